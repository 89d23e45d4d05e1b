"""What policies assume: how fast the tails of the non-zero rewards fall, and what an arm that has
never paid might pay."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from zib.core import validate as check
from zib.core.kernel import jitable
from zib.core.spec import (
    Field,
    Spec,
    argument,
    combined,
    number_or,
    optional,
    positive,
    real,
    whole,
)
from zib.core.validate import InvalidParameterError, shown
from zib.theory.means import given_count_radius_scalar, subexponential_radius_scalar
from zib.theory.products import signed_product
from zib.theory.subweibull import subweibull_radius_scalar

# ------------------------------------------------------------------------------------------- tails

SUBGAUSSIAN, SUBEXPONENTIAL, SUBWEIBULL = 0, 1, 2
LOG2 = math.log(2.0)
RADII = ("given_count", "subweibull")
GIVEN_COUNT, LITERAL = 0, 1


class Tail(Spec):
    """A tail assumption; made by `SubGaussian`, `SubExponential` or `SubWeibull`."""

    kind: int = whole(low=SUBGAUSSIAN, high=SUBWEIBULL)
    theta: float = positive()
    # C with E exp(|X - mu|^theta / C^theta) <= 2, and sigma or lambda, where they are known
    size: float = optional(positive(), default=None)
    scale: float = optional(positive(), default=None)

    def __repr__(self) -> str:
        if self.kind == SUBGAUSSIAN:
            return f"SubGaussian(sigma={self.scale!r})"
        if self.kind == SUBEXPONENTIAL:
            return f"SubExponential(size={self.scale!r})"
        return f"SubWeibull(theta={self.theta!r}, size={self.size!r})"


_SUBGAUSSIAN_SIZE = math.sqrt(8.0 / 3.0)


def SubGaussian(sigma: float) -> Tail:
    """Sub-Gaussian: E exp(s(X − mu)) ≤ exp(s²σ²/2) for every s.

    Examples
    --------
    >>> SubGaussian(sigma=0.5)
    SubGaussian(sigma=0.5)
    """
    sigma = positive().checked("sigma", sigma)
    # E exp((X-mu)^2 / C^2) <= (1 - 2 sigma^2/C^2)^(-1/2), which is 2 at C^2 = 8 sigma^2 / 3
    return Tail(kind=SUBGAUSSIAN, theta=2.0, size=sigma * _SUBGAUSSIAN_SIZE, scale=sigma)


def SubExponential(size: float) -> Tail:
    """Sub-exponential: E exp(s(X − mu)) ≤ exp(s²λ²/2) for |s| ≤ 1/λ, with λ = `size`."""
    size = positive().checked("size", size)
    return Tail(kind=SUBEXPONENTIAL, theta=1.0, scale=size)


def SubWeibull(theta: float, size: float) -> Tail:
    """Sub-Weibull subW(θ; C): E exp(|X − mu|^θ / C^θ) ≤ 2, with C = `size`."""
    return Tail(kind=SUBWEIBULL, theta=theta, size=size)


def _the_tail(given: Mapping[str, Any]) -> Tail:
    sigma, tail = given["sigma"], given["tail"]
    if math.isnan(sigma) == (tail is None):
        raise InvalidParameterError(
            "give exactly one of `sigma` (sub-Gaussian non-zero rewards) and `tail` (SubGaussian, "
            "SubExponential, SubWeibull); got "
            f"sigma={None if math.isnan(sigma) else sigma!r}, tail={tail!r}"
        )
    if tail is None:
        return SubGaussian(sigma)
    if not isinstance(tail, Tail):
        raise InvalidParameterError(
            f"`tail` must be made by SubGaussian, SubExponential or SubWeibull; got {shown(tail)}"
        )
    return tail


class LightTailed(Spec):
    """Base of the policies for a horizon and a tail, of which `sigma` is a short form."""

    horizon: float = real(low=2)
    sigma: float | None = argument(optional(positive()), default=None)
    tail: Tail | None = combined(
        _the_tail, allowed="made by SubGaussian, SubExponential or SubWeibull", default=None
    )

    @property
    def tail_kind(self) -> int:
        """Which of the three kinds of tails it is."""
        assert self.tail is not None
        return self.tail.kind


@jitable
def mean_radius(tail: Any, radius: int, nonzero: float, level: float) -> float:
    """Return U^mu − μ̂ at `level` = log(4/δ), half of δ being spent on mu."""
    if radius == LITERAL:
        # Lemma light_tail_product with n p replaced by n p̂ = B, as Algorithm 1 does
        return subweibull_radius_scalar(nonzero / 2.0, level, tail.theta, tail.size)
    if tail.kind == SUBGAUSSIAN:
        return given_count_radius_scalar(nonzero, level - LOG2, tail.scale)
    if tail.kind == SUBEXPONENTIAL:
        return subexponential_radius_scalar(nonzero, level - LOG2, tail.scale)
    return subweibull_radius_scalar(nonzero, level, tail.theta, tail.size)


# ------------------------------------------------------------------------ arms that have never paid
#
# The data bound their probability of paying and say nothing about how much they pay. By default
# (`unseen="pooled"`, NaN for kernels) such an arm borrows the most optimistic magnitude of the arms
# that have paid; while no arm has paid, all of them are equally promising. A number fixes the
# magnitude instead (Algorithm 1 as printed uses 1, which starves arms that pay more than that).
# `unseen=inf` plays an arm until it has paid, about 1/p pulls each: the rule which the proof
# of optimality covers without a condition.


def _magnitude(name: str, value: Any) -> float:
    if isinstance(value, (float, np.floating)) and value == math.inf:
        return math.inf
    return check.real(name, value)


def unseen_magnitude() -> Any:
    """Declare the magnitude of an arm that never paid: ``"pooled"``, a number, or inf."""
    inner = Field(_magnitude, lambda value: value, "finite number or inf")
    return number_or("pooled", inner, default="pooled")


@jitable
def complete_unseen(state: Any, unseen: float, top: float, out: Any) -> None:
    """Turn the probability bound left in `out` for arms that never paid into an index.

    `top` is the largest upper bound on a magnitude, −inf while no arm has paid.
    """
    if not math.isnan(unseen):
        top = unseen
    for k in range(out.size):
        if state.nonzero[k] == 0.0 and state.pulls[k] > 0.0:
            if top == -np.inf:
                out[k] = np.inf
            else:
                out[k] = signed_product(top, 0.0, out[k])


@jitable
def sample_unseen(
    state: Any, alpha: float, beta: float, unseen: float, top: float, rng: Any, out: Any
) -> None:
    """Write a sampled score for arms that never paid; `top` is the largest sampled magnitude."""
    if not math.isnan(unseen):
        top = unseen
    elif top == -np.inf:
        top = 1.0  # nobody has paid: compare the probabilities alone
    for k in range(out.size):
        if state.nonzero[k] == 0.0:
            if state.pulls[k] == 0.0:
                out[k] = np.inf
            else:
                out[k] = top * rng.beta(alpha, beta + state.pulls[k])
