"""What a log of decisions says, and which policy suits it."""

from zib.logs.advise.advice import Advice, Alternative, Recommendation, advise
from zib.logs.advise.choose import Gain
from zib.logs.advise.estimates import ArmSummary, Weighted
from zib.logs.advise.law import Fit, LawReport, TailReport
from zib.logs.advise.simulation import AgainstPlain, Earned, Simulation
from zib.logs.advise.times import Course, TimeReport, TimeTest
from zib.logs.advise.values import Atom, Dominant
from zib.logs.advise.verdict import Chance, Difference, Verdict
from zib.stats.intervals import Estimate

__all__ = [
    "Advice",
    "AgainstPlain",
    "Alternative",
    "ArmSummary",
    "Atom",
    "Chance",
    "Course",
    "Difference",
    "Dominant",
    "Earned",
    "Estimate",
    "Fit",
    "Gain",
    "LawReport",
    "Recommendation",
    "Simulation",
    "TailReport",
    "TimeReport",
    "TimeTest",
    "Verdict",
    "Weighted",
    "advise",
]
