"""How fast the tails of the non-zero rewards fall: the assumption a confidence radius rests on."""

from __future__ import annotations

import math
from typing import Any, ClassVar, NamedTuple

from zib.core import validate as check
from zib.core.kernel import jitable
from zib.core.spec import Spec
from zib.theory.means import given_count_radius_scalar as given_count_radius
from zib.theory.means import subexponential_radius_scalar as subexponential_radius
from zib.theory.subweibull import subweibull_radius_scalar as subweibull_mean_radius

SUBGAUSSIAN, SUBEXPONENTIAL, SUBWEIBULL = 0, 1, 2
LOG2 = math.log(2.0)
RADII = ("given_count", "subweibull")
GIVEN_COUNT, LITERAL = 0, 1


class _TailFields(NamedTuple):
    kind: int
    theta: float
    size: float  # C with E exp(|X - mu|^theta / C^theta) <= 2
    scale: float  # sigma or lambda; NaN where only (theta, C) is known


class Tail(Spec, _TailFields):
    """A tail assumption; made by `SubGaussian`, `SubExponential` or `SubWeibull`."""

    __slots__ = ()
    names: ClassVar[tuple[str, ...]] = ("SubGaussian", "SubExponential", "SubWeibull")

    def parameters(self) -> dict[str, Any]:
        """Return the four numbers of the tail."""
        return self._asdict()

    def __repr__(self) -> str:
        if self.kind == SUBGAUSSIAN:
            return f"SubGaussian(sigma={self.scale!r})"
        if self.kind == SUBEXPONENTIAL:
            return f"SubExponential(size={self.scale!r})"
        return f"SubWeibull(theta={self.theta!r}, size={self.size!r})"

    def __hash__(self) -> int:
        return hash(repr(self))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tail) and repr(self) == repr(other)


def SubGaussian(sigma: float) -> Tail:
    """Sub-Gaussian: E exp(s(X − mu)) ≤ exp(s²σ²/2) for every s.

    Examples
    --------
    >>> SubGaussian(sigma=0.5)
    SubGaussian(sigma=0.5)
    """
    sigma = check.real("sigma", sigma, low=0, closed="neither")
    # E exp((X-mu)^2 / C^2) <= (1 - 2 sigma^2/C^2)^(-1/2), which is 2 at C^2 = 8 sigma^2 / 3
    return Tail(SUBGAUSSIAN, 2.0, sigma * math.sqrt(8.0 / 3.0), sigma)


def SubExponential(size: float) -> Tail:
    """Sub-exponential: E exp(s(X − mu)) ≤ exp(s²λ²/2) for |s| ≤ 1/λ, with λ = `size`."""
    size = check.real("size", size, low=0, closed="neither")
    return Tail(SUBEXPONENTIAL, 1.0, math.nan, size)


def SubWeibull(theta: float, size: float) -> Tail:
    """Sub-Weibull subW(θ; C): E exp(|X − mu|^θ / C^θ) ≤ 2, with C = `size`."""
    theta = check.real("theta", theta, low=0, closed="neither")
    size = check.real("size", size, low=0, closed="neither")
    return Tail(SUBWEIBULL, theta, size, math.nan)


def resolve_tail(sigma: float | None, tail: Tail | None) -> Tail:
    """Return the tail meant by the pair of arguments (exactly one must be given)."""
    if (sigma is None) == (tail is None):
        raise check.InvalidParameterError(
            "give exactly one of `sigma` (sub-Gaussian non-zero rewards) and `tail` "
            f"(SubGaussian, SubExponential, SubWeibull); got sigma={sigma!r}, tail={tail!r}"
        )
    if tail is None:
        assert sigma is not None
        return SubGaussian(sigma)
    if not isinstance(tail, Tail):
        raise check.InvalidParameterError(
            f"`tail` must be made by SubGaussian, SubExponential or SubWeibull; got {tail!r}"
        )
    return tail


@jitable
def mean_radius(tail: Any, radius: int, nonzero: float, log_horizon: float) -> float:
    """Return U^mu − μ̂ at δ = 4/T², so that log(2/δ) = 2 log T − log 2 and log(4/δ) = 2 log T."""
    if radius == LITERAL:
        # Lemma light_tail_product with n p replaced by n p̂ = B, as Algorithm 1 does
        return subweibull_mean_radius(nonzero / 2.0, 2.0 * log_horizon, tail.theta, tail.size)
    if tail.kind == SUBGAUSSIAN:
        return given_count_radius(nonzero, 2.0 * log_horizon - LOG2, tail.scale)
    if tail.kind == SUBEXPONENTIAL:
        return subexponential_radius(nonzero, 2.0 * log_horizon - LOG2, tail.scale)
    return subweibull_mean_radius(nonzero, 2.0 * log_horizon, tail.theta, tail.size)
