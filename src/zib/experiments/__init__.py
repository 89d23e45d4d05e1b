"""The paper's figures and tables, one readable file each, and the report that judges them.

An experiment declares and calls: environments come from `zib.env`, simulations from `zib.simulate`,
bounds from `zib.theory`, intervals from `zib.stats`, curves from `zib.report`.
"""

from typing import TYPE_CHECKING, Any

from zib.experiments.harness import Experiment
from zib.experiments.record import Context, Record, Setting, Table, Verdict
from zib.experiments.runner import Interrupted, OutputError, UnknownExperiment, reproduce

if TYPE_CHECKING:
    EXPERIMENTS: tuple[str, ...]

__all__ = [
    "EXPERIMENTS",
    "Context",
    "Experiment",
    "Interrupted",
    "OutputError",
    "Record",
    "Setting",
    "Table",
    "UnknownExperiment",
    "Verdict",
    "reproduce",
]


def __getattr__(name: str) -> Any:
    if name == "EXPERIMENTS":  # found by importing all of them, so not before somebody asks
        from zib.experiments.runner import experiments

        return tuple(experiments())
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
