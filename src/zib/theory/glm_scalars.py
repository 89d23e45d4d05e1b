"""Scalar formulas for contextual policies, shared by the compiled loops and the interpreter.

Written with ``math`` only, so that compiled and interpreted code give the same bits. Nothing here
checks its arguments; `zib.theory.contextual` does.
"""

from __future__ import annotations

import math

from zib.core.kernel import jitable
from zib.theory.elementary import log1p


@jitable
def glm_radius(
    log_inverse_delta: float, dim: float, rounds: float, ridge: float, sigma: float, kappa: float
) -> float:
    """Return (sigma/kappa) sqrt(4 log(1/delta) + dim log(1 + rounds/(ridge dim)))."""
    growth = dim * log1p(rounds / (ridge * dim))
    return sigma / kappa * math.sqrt(4.0 * log_inverse_delta + growth)


@jitable
def ts_scale(
    log_inverse_delta: float, dim: float, n_actions: float, sigma: float, log_horizon: float
) -> float:
    """Return sqrt(24 sigma² dim log(1/delta) log(T)) / K, the spread of contextual sampling."""
    return sigma / n_actions * math.sqrt(24.0 * dim * log_inverse_delta * log_horizon)


@jitable
def ridge_radius(
    log_inverse_delta: float,
    dim: float,
    rounds: float,
    ridge: float,
    sigma: float,
    kappa: float,
    norm: float,
) -> float:
    """Return [sigma sqrt(2 log(1/delta) + dim log(1 + rounds/(ridge dim))) + sqrt(ridge) norm]/k.

    k = min(kappa, 1): the penalty has slope 1 whatever the link.
    """
    growth = dim * log1p(rounds / (ridge * dim))
    noise = sigma * math.sqrt(2.0 * log_inverse_delta + growth)
    return (noise + math.sqrt(ridge) * norm) / min(kappa, 1.0)


@jitable
def optimism(radius: float, spread: float) -> float:
    """Return P(N(0, 1) > radius/spread)."""
    return 0.5 * math.erfc(0.7071067811865476 * radius / spread)
