"""Simulation: policies × replications in one environment.

In the order in which a simulation goes: `simulate.py` (the way in), `plan.py` (what is to be
played, in blocks), `keys.py` (the names of blocks), `schedule.py` (what is pending, running, done),
`run.py` and `dask.py` (who plays), `loop.py` (the loops that play), `store.py` (what is kept),
`results.py` and `summary.py` (what was measured).
"""

from zib.sim.keys import CannotBeStored
from zib.sim.plan import Plan
from zib.sim.results import Difference, Results
from zib.sim.simulate import SimulationError, simulate
from zib.sim.store import Store
from zib.sim.summary import Summary

__all__ = [
    "CannotBeStored",
    "Difference",
    "Plan",
    "Results",
    "SimulationError",
    "Store",
    "Summary",
    "simulate",
]
