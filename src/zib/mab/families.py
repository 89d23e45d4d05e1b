"""What the non-zero rewards are assumed to follow, for the policies beyond the paper.

A family says three things about an arm that has paid: how large the product p·mu can be at a level
of likelihood, how much likelihood it costs to reach a target, and how mu is drawn from its
posterior. The formulas are those of `zib.theory`; here they meet the statistics of an arm.

How large and how much are long computations, so which one a policy needs is part of its type, its
`Law`: the compiler then meets one of them, not all.

With sigma unknown, and for the log-normal, one reward says nothing about the scale. Until an arm
has two different non-zero rewards it borrows the pooled scale of the others; while nobody has one,
its magnitude is taken to be what was seen.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba.extending import overload

from zib.core import validate as check
from zib.core.kernel import CALLED, borrowing, jitable
from zib.core.spec import Spec
from zib.stats.arms import FIRST_FREE, observe
from zib.theory.bernoulli import bernoulli_kl
from zib.theory.bernoulli import kl_lower_scalar as kl_lower
from zib.theory.bernoulli import kl_upper_scalar as kl_upper
from zib.theory.divergence import (
    divergence_to_gamma,
    divergence_to_gaussian,
    divergence_to_gaussian_unknown,
    divergence_to_lognormal,
)
from zib.theory.joint_gaussian import (
    joint_kl_upper_gaussian,
    joint_kl_upper_gaussian_unknown,
)
from zib.theory.joint_positive import joint_kl_upper_gamma, joint_kl_upper_lognormal
from zib.theory.products import signed_product

FAMILIES = ("gaussian", "exponential", "gamma", "lognormal")
GAUSSIAN, EXPONENTIAL, GAMMA, LOGNORMAL = range(4)

# the log-normal keeps the sum and the centred sum of squares of the logarithms here
LOG_TOTAL, LOG_SPREAD = 0, 1
FIRST_CACHE = 2
# centred sums of squares of all arms, and their degrees of freedom
POOLED_SPREAD, POOLED_FREEDOM = FIRST_FREE, FIRST_FREE + 1
N_SHARED = 2


class KnownScale(NamedTuple):
    """Gaussian rewards, sigma known; as in the other laws, compiled code needs some field."""

    unused: float = 0.0


class UnknownScale(NamedTuple):
    """Gaussian rewards, sigma unknown."""

    unused: float = 0.0


class Gamma(NamedTuple):
    """Gamma rewards of a known shape, exponential ones among them."""

    unused: float = 0.0


class LogNormal(NamedTuple):
    """Log-normal rewards."""

    unused: float = 0.0


Law = KnownScale | UnknownScale | Gamma | LogNormal


def law_of(family: int, sigma: float) -> Law:
    """Return what the bounds of a family are computed for."""
    if family == GAUSSIAN:
        return UnknownScale() if math.isnan(sigma) else KnownScale()
    return LogNormal() if family == LOGNORMAL else Gamma()


def check_family(family: object, sigma: object, shape: object) -> tuple[int, float, float]:
    """Return the checked parameters of a family as numbers; an unknown sigma is NaN."""
    code = check.choice("family", family, FAMILIES)
    if sigma is not None and code != GAUSSIAN:
        raise check.InvalidParameterError(
            f"`sigma` belongs to the family 'gaussian' only; got {sigma!r} for {family!r}"
        )
    if shape is not None and code != GAMMA:
        raise check.InvalidParameterError(
            f"`shape` belongs to the family 'gamma' only; got {shape!r} for {family!r}"
        )
    if shape is None and code == GAMMA:
        raise check.InvalidParameterError("`shape` must be given for the family 'gamma'")
    return (
        code,
        math.nan if sigma is None else check.real("sigma", sigma, low=0, closed="neither"),
        1.0 if shape is None else check.real("shape", shape, low=0, closed="neither"),
    )


class FamilySpec(Spec):
    """What specs with the fields `family`, `sigma` and `shape` have in common."""

    __slots__ = ()
    family: int

    def parameters(self) -> dict[str, Any]:
        """Return the keyword arguments that rebuild this spec."""
        out = super().parameters()
        out.pop("law", None)  # follows from the others
        if out["family"] != "gamma":
            out["shape"] = None
        return out

    @property
    def reward_range(self) -> tuple[float, float]:
        """Which rewards the family allows."""
        return (-math.inf, math.inf) if self.family == GAUSSIAN else (0.0, math.inf)

    @property
    def additive(self) -> bool:
        """Whether states of two workers can be added; logarithms are not kept in that form."""
        return self.family != LOGNORMAL


@jitable
def learn(spec: Any, state: Any, arm: int, reward: float) -> None:
    """Add one reward to the statistics of an arm and to the pooled scale."""
    if spec.family != GAUSSIAN:
        reward = max(reward, 0.0)
    count = state.nonzero[arm]
    before = state.spread[arm]
    observe(state, arm, reward)
    if reward == 0.0:
        return
    if spec.family == LOGNORMAL:
        value = math.log(reward)
        before = state.cache[arm, LOG_SPREAD]
        total = state.cache[arm, LOG_TOTAL] + value
        if count > 0.0:
            state.cache[arm, LOG_SPREAD] += (value - state.cache[arm, LOG_TOTAL] / count) * (
                value - total / (count + 1.0)
            )
        state.cache[arm, LOG_TOTAL] = total
        state.shared[POOLED_SPREAD] += state.cache[arm, LOG_SPREAD] - before
    else:
        state.shared[POOLED_SPREAD] += state.spread[arm] - before
    if count > 0.0:
        state.shared[POOLED_FREEDOM] += 1.0


@jitable
def pool(spec: Any, state: Any) -> None:
    """Compute the pooled scale anew from the statistics of all arms."""
    spread = 0.0
    freedom = 0.0
    for k in range(state.pulls.size):
        if state.nonzero[k] > 1.0:
            freedom += state.nonzero[k] - 1.0
            if spec.family == LOGNORMAL:
                spread += state.cache[k, LOG_SPREAD]
            else:
                spread += state.spread[k]
    state.shared[POOLED_SPREAD] = spread
    state.shared[POOLED_FREEDOM] = freedom


@jitable
def pooled_scale(state: Any) -> float:
    """Return the common standard deviation of the non-zero rewards (or logarithms), or 0."""
    if state.shared[POOLED_FREEDOM] <= 0.0:
        return 0.0
    return math.sqrt(max(state.shared[POOLED_SPREAD], 0.0) / state.shared[POOLED_FREEDOM])


@jitable
def has_own_scale(spec: Any, state: Any, arm: int) -> bool:
    """Whether nothing has to be borrowed from other arms."""
    if spec.family == LOGNORMAL:
        return bool(state.cache[arm, LOG_SPREAD] > 0.0)
    if spec.family == GAUSSIAN and math.isnan(spec.sigma):
        return bool(state.spread[arm] > 0.0)
    return True


@jitable
def _log_mean(state: Any, arm: int, scale: float) -> float:
    """Return the magnitude of a log-normal arm with the given spread of its logarithms."""
    return math.exp(
        min(state.cache[arm, LOG_TOTAL] / state.nonzero[arm] + 0.5 * scale * scale, 700.0)
    )


@jitable
def magnitude(spec: Any, state: Any, arm: int) -> float:
    """Return the estimate of mu of an arm that has paid."""
    if spec.family == LOGNORMAL:
        scale = pooled_scale(state)
        if state.cache[arm, LOG_SPREAD] > 0.0:
            scale = math.sqrt(state.cache[arm, LOG_SPREAD] / state.nonzero[arm])
        return _log_mean(state, arm, scale)
    return float(state.total[arm] / state.nonzero[arm])


# ------------------------------------------------------------------------------ one for each law


@borrowing
def _known_upper(spec: Any, state: Any, arm: int, n: float, level: float) -> float:
    count = state.nonzero[arm]
    return joint_kl_upper_gaussian(n, count, state.total[arm] / count, spec.sigma, level)


@borrowing
def _unknown_upper(spec: Any, state: Any, arm: int, n: float, level: float) -> float:
    count = state.nonzero[arm]
    mean = state.total[arm] / count
    if state.spread[arm] > 0.0:
        own = math.sqrt(state.spread[arm] / count)
        return joint_kl_upper_gaussian_unknown(n, count, mean, own, level)
    scale = pooled_scale(state)
    if scale > 0.0:
        return joint_kl_upper_gaussian(n, count, mean, scale, level)
    return _fixed_upper(count, mean, n, level)


@borrowing
def _gamma_upper(spec: Any, state: Any, arm: int, n: float, level: float) -> float:
    count = state.nonzero[arm]
    return joint_kl_upper_gamma(n, count, state.total[arm] / count, spec.shape, level)


@borrowing
def _lognormal_upper(spec: Any, state: Any, arm: int, n: float, level: float) -> float:
    count = state.nonzero[arm]
    scale = math.sqrt(state.cache[arm, LOG_SPREAD] / count)
    if scale == 0.0:
        scale = pooled_scale(state)
    if scale > 0.0:
        return joint_kl_upper_lognormal(n, count, state.cache[arm, LOG_TOTAL] / count, scale, level)
    return _fixed_upper(count, state.total[arm] / count, n, level)


@borrowing
def _fixed_upper(count: float, mean: float, n: float, level: float) -> float:
    """Return the bound when the magnitude is what was seen and only p can move."""
    p_hat = count / n
    return signed_product(mean, kl_lower(p_hat, n, level), kl_upper(p_hat, n, level))


@borrowing
def _known_cost(spec: Any, state: Any, arm: int, target: float) -> float:
    n, count = state.pulls[arm], state.nonzero[arm]
    mean = state.total[arm] / count
    return float(n * divergence_to_gaussian(mean, count / n, target, spec.sigma))


@borrowing
def _unknown_cost(spec: Any, state: Any, arm: int, target: float) -> float:
    n, count = state.pulls[arm], state.nonzero[arm]
    mean = state.total[arm] / count
    if state.spread[arm] > 0.0:
        own = math.sqrt(state.spread[arm] / count)
        return float(n * divergence_to_gaussian_unknown(mean, count / n, target, own))
    scale = pooled_scale(state)
    if scale > 0.0:
        return float(n * divergence_to_gaussian(mean, count / n, target, scale))
    return _fixed_cost(n, count / n, mean, target)


@borrowing
def _gamma_cost(spec: Any, state: Any, arm: int, target: float) -> float:
    n, count = state.pulls[arm], state.nonzero[arm]
    return float(n * divergence_to_gamma(state.total[arm] / count, count / n, target, spec.shape))


@borrowing
def _lognormal_cost(spec: Any, state: Any, arm: int, target: float) -> float:
    n, count = state.pulls[arm], state.nonzero[arm]
    scale = math.sqrt(state.cache[arm, LOG_SPREAD] / count)
    if scale == 0.0:
        scale = pooled_scale(state)
    if scale > 0.0:
        log_mean = state.cache[arm, LOG_TOTAL] / count
        return float(n * divergence_to_lognormal(log_mean, count / n, target, scale))
    return _fixed_cost(n, count / n, state.total[arm] / count, target)


@borrowing
def _fixed_cost(n: float, prob: float, mean: float, target: float) -> float:
    """Return the cost when the magnitude is what was seen and only p can move."""
    if mean * prob >= target:
        return 0.0
    wanted = target / mean if mean != 0.0 else np.inf
    if wanted < 0.0 or wanted > 1.0:
        return np.inf
    return float(n * bernoulli_kl(prob, wanted))


UPPER_OF: dict[type, Callable[..., float]] = {
    KnownScale: _known_upper,
    UnknownScale: _unknown_upper,
    Gamma: _gamma_upper,
    LogNormal: _lognormal_upper,
}
COST_OF: dict[type, Callable[..., float]] = {
    KnownScale: _known_cost,
    UnknownScale: _unknown_cost,
    Gamma: _gamma_cost,
    LogNormal: _lognormal_cost,
}


def _upper(spec: Any, state: Any, arm: int, n: float, level: float) -> float:
    """Return the largest p·mu within `level` of the likelihood, as if there had been `n` pulls."""
    return UPPER_OF[type(spec.law)](spec, state, arm, n, level)


def cost_to_reach(spec: Any, state: Any, arm: int, target: float) -> float:
    """Return the least likelihood ratio at which p·mu of an arm that has paid is `target`."""
    return COST_OF[type(spec.law)](spec, state, arm, target)


def _law_type(spec: Any) -> type:
    """Return the same from what the compiler knows of a spec."""
    found: type = spec.types[spec.fields.index("law")].instance_class
    return found


@overload(_upper, strict=False, jit_options=CALLED)
def _upper_of(spec, state, arm, n, level):  # type: ignore[no-untyped-def]
    return UPPER_OF[_law_type(spec)]


@overload(cost_to_reach, strict=False, jit_options=CALLED)
def _cost_of(spec, state, arm, target):  # type: ignore[no-untyped-def]
    return COST_OF[_law_type(spec)]


@jitable
def product_upper(spec: Any, state: Any, arm: int, level: float) -> float:
    """Return the largest p·mu within `level` of the likelihood of an arm that has paid."""
    return _upper(spec, state, arm, state.pulls[arm], level)


@jitable
def magnitude_upper(spec: Any, state: Any, arm: int, level: float) -> float:
    """Return the same for an arm that always pays: a bound of mu."""
    return _upper(spec, state, arm, state.nonzero[arm], level)
