"""Bandits for rewards that are mostly zero.

>>> import zib
>>> bandit = zib.Bandit(zib.mab.ZITS(horizon=10_000, sigma=1.0), arms=["a", "b"], seed=0)
>>> arm = bandit.select()
>>> bandit.update(arm, 0.0)
"""

from importlib.metadata import version as _version

from zib import _cache as _cache  # decides where compiled code is kept, before anything is compiled
from zib import contextual, datasets, env, mab, theory
from zib._kernel import jitable, register
from zib._spec import Spec
from zib._validate import InvalidParameterError
from zib.bandit import Bandit, SavedStateError
from zib.contextual_bandit import ContextualBandit
from zib.env import ZeroInflated
from zib.mab import SubExponential, SubGaussian, SubWeibull
from zib.sim import Results, SimulationError, simulate

__version__ = _version("zib")

__all__ = [
    "Bandit",
    "ContextualBandit",
    "InvalidParameterError",
    "Results",
    "SavedStateError",
    "SimulationError",
    "Spec",
    "SubExponential",
    "SubGaussian",
    "SubWeibull",
    "ZeroInflated",
    "contextual",
    "datasets",
    "env",
    "jitable",
    "mab",
    "register",
    "simulate",
    "theory",
]
