"""What the non-zero rewards are assumed to follow, for the policies beyond the paper.

A family says three things about an arm that has paid: how large the product p·mu can be at a level
of likelihood, how much likelihood it costs to reach a target, and how mu is drawn from its
posterior. The formulas are those of `zib.theory`; here they meet the statistics of an arm.

How large and how much are long computations, so which one a policy needs is part of its type, its
law: the compiler then meets one of them, not all.

With sigma unknown, and for the log-normal, one reward says nothing about the scale. Until an arm
has two different non-zero rewards it borrows the pooled scale of the others; while nobody has one,
its magnitude is taken to be what was seen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from zib.core.kernel import borrowing, jitable, one_more
from zib.core.registry import INLINED, Registry
from zib.core.spec import Spec, choice, derived, optional, positive
from zib.core.state import Floats, Part, per_arm, scalar
from zib.core.validate import InvalidParameterError
from zib.stats.arms import observe
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


class FamilySpec(Spec):
    """Base of the policies that assume a family."""

    family: str = choice(FAMILIES, default="gaussian")
    sigma: float | None = optional(positive(), default=None)
    shape: float | None = optional(positive(), default=None)
    # the shape of the gamma law that an exponential one is
    form: float = derived(lambda given: 1.0 if math.isnan(given["shape"]) else given["shape"])

    def check(self) -> None:
        """Raise where a parameter belongs to another family."""
        given = self.parameters()
        family = given["family"]
        for name, belongs_to in (("sigma", "gaussian"), ("shape", "gamma")):
            if given[name] is not None and family != belongs_to:
                raise InvalidParameterError(
                    f"`{name}` belongs to the family {belongs_to!r} only; "
                    f"got {given[name]!r} for {family!r}"
                )
        if family == "gamma" and given["shape"] is None:
            raise InvalidParameterError("`shape` must be given for the family 'gamma'; got None")

    @property
    def reward_range(self) -> tuple[float, float]:
        """Which rewards the family allows."""
        any_sign = self.parameters()["family"] == "gaussian"
        return (-math.inf if any_sign else 0.0, math.inf)

    @property
    def additive(self) -> bool:
        """Whether states of two workers can be added; logarithms are not kept in that form."""
        return bool(self.parameters()["family"] != "lognormal")


# ------------------------------------------------------------------------- statistics, pooled scale


class PooledScale(Part):
    """What is kept for a scale that arms borrow from each other."""

    log_total: Floats = per_arm()  # log-normal only: sum of the logarithms, ...
    log_spread: Floats = per_arm()  # ... and their centred sum of squares
    pooled_spread: Floats = scalar()  # centred sums of squares of all arms
    pooled_freedom: Floats = scalar(least=0.0)  # and their degrees of freedom


@jitable
def learn(spec: Any, state: Any, arm: int, reward: float) -> None:
    """Add one reward to the statistics of an arm and to the pooled scale."""
    own = state.own
    if spec.family != GAUSSIAN:
        reward = max(reward, 0.0)
    count = state.nonzero[arm]
    before = state.spread[arm]
    observe(state, arm, reward)
    if reward == 0.0:
        return
    if spec.family == LOGNORMAL:
        value = math.log(reward)
        before = own.log_spread[arm]
        total = own.log_total[arm] + value
        if count > 0.0:
            own.log_spread[arm] += (value - own.log_total[arm] / count) * (
                value - total / (count + 1.0)
            )
        own.log_total[arm] = total
        own.pooled_spread[0] += own.log_spread[arm] - before
    else:
        own.pooled_spread[0] += state.spread[arm] - before
    if count > 0.0:
        own.pooled_freedom[0] += 1.0


@jitable
def learn_as_usual(spec: Any, state: Any, arm: int) -> None:
    """Count one more pull of an arm, with rewards like those it had."""
    factor = one_more(state, arm)
    state.own.log_total[arm] *= factor
    state.own.log_spread[arm] *= factor
    pool(spec, state)


@jitable
def pool(spec: Any, state: Any) -> None:
    """Compute the pooled scale anew from the statistics of all arms."""
    spread = 0.0
    freedom = 0.0
    for k in range(state.pulls.size):
        if state.nonzero[k] > 1.0:
            freedom += state.nonzero[k] - 1.0
            if spec.family == LOGNORMAL:
                spread += state.own.log_spread[k]
            else:
                spread += state.spread[k]
    state.own.pooled_spread[0] = spread
    state.own.pooled_freedom[0] = freedom


@jitable
def pooled_scale(state: Any) -> float:
    """Return the common standard deviation of the non-zero rewards (or logarithms), or 0."""
    freedom = state.own.pooled_freedom[0]
    if freedom <= 0.0:
        return 0.0
    return math.sqrt(max(state.own.pooled_spread[0], 0.0) / freedom)


@jitable
def has_own_scale(spec: Any, state: Any, arm: int) -> bool:
    """Whether nothing has to be borrowed from other arms."""
    if spec.family == LOGNORMAL:
        return bool(state.own.log_spread[arm] > 0.0)
    if spec.family == GAUSSIAN and math.isnan(spec.sigma):
        return bool(state.spread[arm] > 0.0)
    return True


@jitable
def magnitude(spec: Any, state: Any, arm: int) -> float:
    """Return the estimate of mu of an arm that has paid."""
    count = state.nonzero[arm]
    if spec.family == LOGNORMAL:
        scale = pooled_scale(state)
        if state.own.log_spread[arm] > 0.0:
            scale = math.sqrt(state.own.log_spread[arm] / count)
        return math.exp(min(state.own.log_total[arm] / count + 0.5 * scale * scale, 700.0))
    return float(state.total[arm] / count)


# ------------------------------------------------------------------------------------ bounds by law


class KnownScale(Spec):
    """Gaussian rewards, sigma known."""

    sigma: float = positive()


class UnknownScale(Spec):
    """Gaussian rewards, sigma unknown."""


class Gamma(Spec):
    """Gamma rewards of a known shape, exponential ones among them."""

    shape: float = positive()


class LogNormal(Spec):
    """Log-normal rewards."""


Law = KnownScale | UnknownScale | Gamma | LogNormal


def _law_of(given: Mapping[str, Any]) -> Law:
    if given["family"] == GAUSSIAN:
        known = not math.isnan(given["sigma"])
        return KnownScale(sigma=given["sigma"]) if known else UnknownScale()
    return LogNormal() if given["family"] == LOGNORMAL else Gamma(shape=given["form"])


class BoundedFamilySpec(FamilySpec):
    """Base of the policies that need the bounds of their family."""

    law: Law = derived(_law_of)


class Bounds(NamedTuple):
    """What is registered for a law."""

    upper: Callable[..., float]
    cost_to_reach: Callable[..., float]


LAWS = Registry("law", "LAWS.add(...)")


@LAWS.kernel(INLINED)
def upper(law: Any, state: Any, arm: int, n: float, level: float) -> float:  # type: ignore[empty-body]
    """Return the largest p·mu within `level` of the likelihood, as if there had been `n` pulls."""


@LAWS.kernel(INLINED)
def cost_to_reach(law: Any, state: Any, arm: int, target: float) -> float:  # type: ignore[empty-body]
    """Return the least likelihood ratio at which p·mu of an arm that has paid is `target`."""


@jitable
def product_upper(spec: Any, state: Any, arm: int, level: float) -> float:
    """Return the largest p·mu within `level` of the likelihood of an arm that has paid."""
    return upper(spec.law, state, arm, state.pulls[arm], level)


@jitable
def magnitude_upper(spec: Any, state: Any, arm: int, level: float) -> float:
    """Return the same for an arm that always pays: a bound of mu."""
    return upper(spec.law, state, arm, state.nonzero[arm], level)


@jitable
def _known_upper(law: Any, state: Any, arm: int, n: float, level: float) -> float:
    count = state.nonzero[arm]
    return joint_kl_upper_gaussian(n, count, state.total[arm] / count, law.sigma, level)


@jitable
def _unknown_upper(law: Any, state: Any, arm: int, n: float, level: float) -> float:
    count = state.nonzero[arm]
    mean = state.total[arm] / count
    if state.spread[arm] > 0.0:
        own = math.sqrt(state.spread[arm] / count)
        return joint_kl_upper_gaussian_unknown(n, count, mean, own, level)
    scale = pooled_scale(state)
    if scale > 0.0:
        return joint_kl_upper_gaussian(n, count, mean, scale, level)
    return _fixed_upper(count, mean, n, level)


@jitable
def _gamma_upper(law: Any, state: Any, arm: int, n: float, level: float) -> float:
    count = state.nonzero[arm]
    return joint_kl_upper_gamma(n, count, state.total[arm] / count, law.shape, level)


@jitable
def _lognormal_upper(law: Any, state: Any, arm: int, n: float, level: float) -> float:
    count = state.nonzero[arm]
    scale = math.sqrt(state.own.log_spread[arm] / count)
    if scale == 0.0:
        scale = pooled_scale(state)
    if scale > 0.0:
        log_mean = state.own.log_total[arm] / count
        return joint_kl_upper_lognormal(n, count, log_mean, scale, level)
    return _fixed_upper(count, state.total[arm] / count, n, level)


@borrowing
def _fixed_upper(count: float, mean: float, n: float, level: float) -> float:
    """Return the bound when the magnitude is what was seen and only p can move."""
    p_hat = count / n
    return signed_product(mean, kl_lower(p_hat, n, level), kl_upper(p_hat, n, level))


@jitable
def _known_cost(law: Any, state: Any, arm: int, target: float) -> float:
    n, count = state.pulls[arm], state.nonzero[arm]
    mean = state.total[arm] / count
    return float(n * divergence_to_gaussian(mean, count / n, target, law.sigma))


@jitable
def _unknown_cost(law: Any, state: Any, arm: int, target: float) -> float:
    n, count = state.pulls[arm], state.nonzero[arm]
    mean = state.total[arm] / count
    if state.spread[arm] > 0.0:
        own = math.sqrt(state.spread[arm] / count)
        return float(n * divergence_to_gaussian_unknown(mean, count / n, target, own))
    scale = pooled_scale(state)
    if scale > 0.0:
        return float(n * divergence_to_gaussian(mean, count / n, target, scale))
    return _fixed_cost(n, count / n, mean, target)


@jitable
def _gamma_cost(law: Any, state: Any, arm: int, target: float) -> float:
    n, count = state.pulls[arm], state.nonzero[arm]
    return float(n * divergence_to_gamma(state.total[arm] / count, count / n, target, law.shape))


@jitable
def _lognormal_cost(law: Any, state: Any, arm: int, target: float) -> float:
    n, count = state.pulls[arm], state.nonzero[arm]
    scale = math.sqrt(state.own.log_spread[arm] / count)
    if scale == 0.0:
        scale = pooled_scale(state)
    if scale > 0.0:
        log_mean = state.own.log_total[arm] / count
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


LAWS.add(KnownScale, Bounds(_known_upper, _known_cost))
LAWS.add(UnknownScale, Bounds(_unknown_upper, _unknown_cost))
LAWS.add(Gamma, Bounds(_gamma_upper, _gamma_cost))
LAWS.add(LogNormal, Bounds(_lognormal_upper, _lognormal_cost))
