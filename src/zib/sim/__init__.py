"""Simulation: the compiled loop, who runs it, and what it measured."""

from zib.sim.code import CannotBeStored
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
