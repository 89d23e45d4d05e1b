"""What the policies with two models share: their state, how it learns, what it believes.

All rewards teach the model of the occurrence, the non-zero ones that of the magnitude too.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from zib.contextual.estimators import (
    COUNT,
    RESIDUAL,
    MedianOfMeans,
    Ridge,
    magnitude_parameter,
)
from zib.contextual.fit import SMALLEST_MEMORY, new_groups, new_model
from zib.contextual.link import derivative, value
from zib.contextual.links import link_parameter
from zib.contextual.policy import (
    COVARIANCE,
    ETA,
    ETA_VARIANCE,
    ZETA,
    ZETA_VARIANCE,
)
from zib.core import validate as check
from zib.core.kernel import borrowing
from zib.core.spec import Spec
from zib.stats.design import linear_forms, quadratic_forms

ROUNDS, RANDOM_ROUNDS, N_ARMS = 0, 1, 2  # positions in `clock`
RANDOM_ROUNDS_AT_LEAST = 50


class Parts(NamedTuple):
    """Model of the occurrence, model of the magnitude, and the clock."""

    occurrence: Any
    magnitude: Any
    clock: NDArray[np.float64]


class ContextualSpec(Spec):
    """A spec whose links and models are written as their names."""

    __slots__ = ()
    words: ClassVar[dict[str, str | None]] = {"sigma": None}

    def parameters(self) -> dict[str, Any]:
        """Return the keyword arguments that rebuild this spec."""
        out = super().parameters()
        if "link" in out:
            out["link"] = link_parameter(out["link"])
        if "magnitude" in out:
            out["magnitude"] = magnitude_parameter(out["magnitude"])
        if out.get("random_rounds") is not None:
            out["random_rounds"] = int(out["random_rounds"])
        return out


def check_sigma(sigma: object) -> float:
    """Return σ, NaN where it is to be estimated."""
    return math.nan if sigma is None else check.real("sigma", sigma, low=0, closed="neither")


def check_ridge(ridge: object) -> float:
    """Return a positive ridge."""
    return check.real("ridge", ridge, low=0, closed="neither")


def check_memory(memory: object) -> int:
    """Return how many observations are kept as they are."""
    return check.integer("memory", memory, low=SMALLEST_MEMORY)


def check_bound(bound: object) -> float:
    """Return the radius of the ball of coefficients, infinite where None."""
    return math.inf if bound is None else check.real("bound", bound, low=0, closed="neither")


def new_magnitude(
    magnitude: Any,
    dim: int,
    *,
    ridge: float,
    bound: float,
    memory: int,
    plain: bool,
    samples: bool,
) -> Any:
    """Return the empty model of the magnitude."""
    if isinstance(magnitude, MedianOfMeans):
        return new_groups(dim, magnitude.groups, ridge=ridge, bound=bound, samples=samples)
    linear = isinstance(magnitude, Ridge)
    return new_model(
        dim,
        ridge=ridge,
        bound=bound,
        memory=0 if linear else memory,
        plain=plain and not linear,
        samples=samples,
    )


@borrowing
def noise(sigma: float, model: Any) -> float:
    """Return σ, from the residuals where it was not given.

    Before three non-zero rewards there is nothing to go by: the estimate is widened, and with none
    at all it is 1, which ranks the actions as any other number would.
    """
    if sigma > 0.0:
        return sigma
    n = model.meta[COUNT]
    if n == 0.0:
        return 1.0
    return max(math.sqrt(model.meta[RESIDUAL] / n * (1.0 + 2.0 / n)), 1e-100)


@borrowing
def geometry(model: Any) -> Any:
    """Return the matrix the paper's radii are measured in: Σ x x', not weighted."""
    return model.design if model.design.matrix.size > 0 else model.curvature


def new_clock(random_rounds: float = 0.0) -> NDArray[np.float64]:
    """Return a clock at zero."""
    return np.array([0.0, random_rounds, 0.0])


@borrowing
def n_actions(state: Any, out: Any) -> float:
    """Return the number of actions of the round, or of arms where each is scored by itself."""
    number: float = max(float(out.size), state.clock[N_ARMS])
    return number


@borrowing
def play_at_random(state: Any, out: Any) -> bool:
    """Write equal scores during the random rounds; ties are broken at random."""
    if state.clock[ROUNDS] >= state.clock[RANDOM_ROUNDS]:
        return False
    for k in range(out.size):
        out[k] = 0.0
    return True


@borrowing
def predictors(state: Any, z: Any, w: Any, n: int, work: Any, out: Any) -> None:
    """Write both linear predictors, and x'A⁻¹x with the curvatures, into rows of `out`."""
    linear_forms(state.occurrence.coef, w, out[ETA][:n])
    quadratic_forms(state.occurrence.curvature.inverse, w, work, out[ETA_VARIANCE][:n])
    linear_forms(state.magnitude.coef, z, out[ZETA][:n])
    quadratic_forms(state.magnitude.curvature.inverse, z, work, out[ZETA_VARIANCE][:n])


@borrowing
def two_part_moments(spec: Any, state: Any, arms: Any, z: Any, w: Any, work: Any, out: Any) -> None:
    """Write estimates and variances of both linear predictors."""
    predictors(state, z, w, out.shape[1], work[0], out)
    sigma = noise(spec.sigma, state.magnitude)
    for k in range(out.shape[1]):
        out[ETA_VARIANCE, k] *= spread_of_score(spec, out[ETA, k])
        out[ZETA_VARIANCE, k] *= sigma * sigma
        out[COVARIANCE, k] = 0.0


@borrowing
def spread_of_score(spec: Any, eta: float) -> float:
    """Return what turns x'A⁻¹x into a variance for the estimating equation of the paper.

    Its curvature is Σ h'·x x' while its noise is Σ h(1 − h)·x x'; the ratio at the action itself
    stands for the average, and is 1 for the logit.
    """
    prob = min(value(spec.link, eta), 1.0)
    return max(prob * (1.0 - prob), 1e-12) / max(derivative(spec.link, eta), 1e-12)
