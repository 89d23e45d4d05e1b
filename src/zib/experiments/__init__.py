"""The paper's figures, one readable file each, and the report that judges them.

An experiment describes and calls: environments come from `zib.env`, simulations from
`zib.simulate`, bounds from `zib.theory`, curves from `zib.report`.
"""

from zib.experiments.record import Context, Record, Setting, Table, Verdict
from zib.experiments.runner import (
    EXPERIMENTS,
    Interrupted,
    OutputError,
    UnknownExperiment,
    reproduce,
)

__all__ = [
    "EXPERIMENTS",
    "Context",
    "Interrupted",
    "OutputError",
    "Record",
    "Setting",
    "Table",
    "UnknownExperiment",
    "Verdict",
    "reproduce",
]
