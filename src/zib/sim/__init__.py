"""Simulation: the compiled loop, who runs it, and what it measured."""

from zib.sim.results import Difference, Results
from zib.sim.simulate import SimulationError, simulate

__all__ = ["Difference", "Results", "SimulationError", "simulate"]
