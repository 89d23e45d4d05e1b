"""Off-policy evaluation: what a policy would have earned, from a log of another one.

>>> import zib.ope
>>> from zib.logs import LoggedData
>>> log = LoggedData.from_arrays([0, 1] * 500, [0, 0, 0, 2] * 250, propensity=[0.5] * 1000)
>>> zib.ope.evaluate(log, ["uniform", 1], estimators=["ips"]).value("1").value
1.0
"""

from zib.logs.ope.estimators import ESTIMATORS
from zib.logs.ope.evaluation import Diagnostics, Difference, Evaluation, SupportError, Value
from zib.logs.ope.learners import Greedy, learned
from zib.logs.ope.models import Hurdle, OnePart, OutcomeModel
from zib.logs.ope.policies import always, snapshot
from zib.logs.ope.propensities import Strata, propensities_by
from zib.logs.ope.run import INTERVALS, evaluate

__all__ = [
    "ESTIMATORS",
    "INTERVALS",
    "Diagnostics",
    "Difference",
    "Evaluation",
    "Greedy",
    "Hurdle",
    "OnePart",
    "OutcomeModel",
    "Strata",
    "SupportError",
    "Value",
    "always",
    "evaluate",
    "learned",
    "propensities_by",
    "snapshot",
]
