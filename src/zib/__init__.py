"""Bandits for rewards that are mostly zero.

>>> import zib
>>> bandit = zib.Bandit(zib.mab.ZITS(horizon=10_000, sigma=1.0), arms=["a", "b"], seed=0)
>>> arm = bandit.select()
>>> bandit.update(arm, 0.0)
"""

from importlib import import_module as _import_module
from importlib.metadata import version as _version
from typing import TYPE_CHECKING as _TYPE_CHECKING

from zib import contextual, datasets, env, mab, theory
from zib.cases import loan as _loan  # noqa: F401 - gives its environments their names
from zib.contextual.encoder import Encoder
from zib.core import cache as _cache  # noqa: F401 - decides where compiled code is kept
from zib.core.kernel import jitable, register
from zib.core.spec import Spec
from zib.core.validate import InvalidParameterError
from zib.env import ZeroInflated
from zib.mab import SubExponential, SubGaussian, SubWeibull
from zib.online import Bandit, ContextualBandit, SavedStateError
from zib.sim import Results, SimulationError, simulate

if _TYPE_CHECKING:
    from zib import advise, arena, live, ope

__version__ = _version("zib")

__all__ = [
    "Bandit",
    "ContextualBandit",
    "Encoder",
    "InvalidParameterError",
    "Results",
    "SavedStateError",
    "SimulationError",
    "Spec",
    "SubExponential",
    "SubGaussian",
    "SubWeibull",
    "ZeroInflated",
    "advise",
    "arena",
    "contextual",
    "datasets",
    "env",
    "jitable",
    "live",
    "mab",
    "ope",
    "register",
    "simulate",
    "theory",
]


def __getattr__(name: str) -> object:
    # What a service does not need is imported when it is first asked for.
    if name in ("advise", "arena", "live", "ope", "studies"):
        return _import_module(f"zib.{name}")
    raise AttributeError(f"module 'zib' has no attribute {name!r}")
