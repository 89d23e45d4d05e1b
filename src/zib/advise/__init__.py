"""What a log of decisions says, and which policy suits it."""

from zib.advise.advice import Advice, Alternative, Recommendation, advise
from zib.advise.estimates import ArmSummary, Estimate, Weighted
from zib.advise.gain import Gain
from zib.advise.law import Fit, LawReport
from zib.advise.simulation import Earned, Simulation
from zib.advise.tail import TailReport

__all__ = [
    "Advice",
    "Alternative",
    "ArmSummary",
    "Earned",
    "Estimate",
    "Fit",
    "Gain",
    "LawReport",
    "Recommendation",
    "Simulation",
    "TailReport",
    "Weighted",
    "advise",
]
