"""What a component model minimises: the score and the curvature one observation contributes.

Fitting (see `fit`) knows nothing about links or robustness. It asks an estimator to *linearise* one
observation at the current coefficients c: a direction j, a score s and a weight f, such that the
observation adds s·j to the score equations and f·j j' to the curvature.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from numba.extending import overload

from zib.contextual.link import derivative, value
from zib.contextual.links import StandardLink, link_parameter, resolve_link
from zib.core import validate as check
from zib.core.kernel import CALLED, borrowing
from zib.core.spec import Spec

SCORE, BERNOULLI = 0, 1  # kinds of weights
SMALLEST_VARIANCE = 1e-14  # of a Bernoulli variable far in the tail; keeps ratios finite
SMALLEST_WEIGHT = 1e-6  # of an observation far in the tail; keeps steps finite
LARGEST_RATIO = 100.0  # of the slope to the variance
LARGEST_MEAN = 1e9  # of the log link while Newton's method is still far off

# positions in a model's `meta`
COUNT, STORED, NEXT_REFIT, RESIDUAL, BOUND, THRESHOLD, SPLIT = range(7)

Linearise = Callable[[Any, Any, Any, Any, Any, Any], tuple[float, float]]
LINEARISE: dict[type, Linearise] = {}


def linearise(
    estimator: Any, coef: Any, x: Any, y: float, meta: Any, out: Any
) -> tuple[float, float]:
    """Write j into `out` and return (s, f)."""
    return LINEARISE[type(estimator)](estimator, coef, x, y, meta, out)


@overload(linearise, strict=False, jit_options=CALLED)
def _linearise(estimator, coef, x, y, meta, out):  # type: ignore[no-untyped-def]
    return LINEARISE.get(getattr(estimator, "instance_class", object))


# ----------------------------------------------------------------------- models of the occurrence


class GLM(NamedTuple):
    """A model of the occurrence with the score Σ (y − h(x'c))·v(x'c)·x.

    `weights` says what v is. SCORE: 1, the estimating equation of the paper. BERNOULLI:
    h'/(h(1 − h)), maximum likelihood. The two agree for the logit.
    """

    link: Any
    weights: int


@borrowing
def _glm_terms(estimator: Any, eta: float, y: float) -> tuple[float, float]:
    mean = min(value(estimator.link, eta), LARGEST_MEAN)
    slope = min(derivative(estimator.link, eta), LARGEST_MEAN)
    if estimator.weights == BERNOULLI:
        # the cap matters only where h comes close to 1 with a steep slope (log link); any weight
        # leaves the equation unbiased
        variance = mean * (1.0 - mean)
        if variance < SMALLEST_VARIANCE and mean <= 1.0:
            return y - mean, SMALLEST_WEIGHT  # so far out only the direction is known
        ratio = min(slope / max(variance, SMALLEST_VARIANCE), LARGEST_RATIO)
        return (y - mean) * ratio, slope * ratio
    return y - mean, max(slope, SMALLEST_WEIGHT)


@borrowing
def _linearise_glm(
    estimator: Any, coef: Any, x: Any, y: float, meta: Any, out: Any
) -> tuple[float, float]:
    eta = 0.0
    for i in range(x.size):
        eta += coef[i] * x[i]
        out[i] = x[i]
    return _glm_terms(estimator, eta, y)


LINEARISE[GLM] = _linearise_glm


# ---------------------------------------------------------------------- models of the magnitude


class _LinkField(NamedTuple):
    link: Any


class Ridge(Spec, _LinkField):
    """Ridge regression for the magnitude: X = z'β + noise. Exact, and nothing has to be kept."""

    __slots__ = ()

    def __new__(cls) -> Ridge:
        """Take no parameters."""
        return super().__new__(cls, StandardLink(name="identity"))

    def parameters(self) -> dict[str, Any]:
        """Return nothing."""
        return {}


class LeastSquares(Spec, _LinkField):
    """Least squares for the magnitude with a link: X = g(z'β) + noise.

    Parameters
    ----------
    link
        The link g, such as ``"log"`` for magnitudes that are products of effects. For the identity
        `Ridge` is the same and faster.
    """

    __slots__ = ()

    def __new__(cls, *, link: Any) -> LeastSquares:
        """Take a link."""
        return super().__new__(cls, resolve_link(link, probability=False))

    def parameters(self) -> dict[str, Any]:
        """Return the link."""
        return {"link": link_parameter(self.link)}


@borrowing
def _linearise_least_squares(
    estimator: Any, coef: Any, x: Any, y: float, meta: Any, out: Any
) -> tuple[float, float]:
    zeta = 0.0
    for i in range(x.size):
        zeta += coef[i] * x[i]
        out[i] = x[i]
    slope = min(derivative(estimator.link, zeta), LARGEST_MEAN)
    return (y - min(value(estimator.link, zeta), LARGEST_MEAN)) * slope, slope * slope


LINEARISE[LeastSquares] = _linearise_least_squares


class Huber(Spec, _LinkField):
    """Adaptive Huber regression for the magnitude: residuals beyond a threshold count less.

    Notes
    -----
    The threshold τ needs no tuning: it solves Σ min(r², τ²) = τ²·(d + log n) over the residuals r
    of the n stored rewards, so that it grows like √n where the variance is finite and cuts off
    outliers where it is not. For rewards whose noise has a finite moment of order 1 + ε only.
    """

    __slots__ = ()

    def __new__(cls) -> Huber:
        """Take no parameters."""
        return super().__new__(cls, StandardLink(name="identity"))

    def parameters(self) -> dict[str, Any]:
        """Return nothing: there is nothing to tune."""
        return {}


@borrowing
def _linearise_huber(
    estimator: Any, coef: Any, x: Any, y: float, meta: Any, out: Any
) -> tuple[float, float]:
    residual = y
    for i in range(x.size):
        residual -= coef[i] * x[i]
        out[i] = x[i]
    size = abs(residual)
    weight = 1.0 if size <= meta[THRESHOLD] else meta[THRESHOLD] / size
    return weight * residual, weight


LINEARISE[Huber] = _linearise_huber


class _GroupsFields(NamedTuple):
    groups: int
    link: Any


class MedianOfMeans(Spec, _GroupsFields):
    """Median of means for the magnitude: several ridge regressions, and the most central of them.

    Parameters
    ----------
    groups
        Number m of groups (≥ 1, odd ones make sense). The non-zero rewards go to them in turn; up
        to m/2 groups may be spoilt by outliers.

    Notes
    -----
    The estimate is the group's whose median distance ‖β̂_i − β̂_j‖_V to the others is smallest.
    """

    __slots__ = ()

    def __new__(cls, *, groups: int = 7) -> MedianOfMeans:
        """Take the number of groups."""
        return super().__new__(
            cls, check.integer("groups", groups, low=1, high=99), StandardLink(name="identity")
        )

    def parameters(self) -> dict[str, Any]:
        """Return the number of groups."""
        return {"groups": self.groups}


class Linear(NamedTuple):
    """Ridge regression for the reward itself, R ≈ z'β."""

    unused: float


class Product(NamedTuple):
    """Least squares for the reward itself: R ≈ z'β·h(w'θ), with x = (z, w) and c = (β, θ)."""

    link: Any


@borrowing
def _linearise_product(
    estimator: Any, coef: Any, x: Any, y: float, meta: Any, out: Any
) -> tuple[float, float]:
    d = int(meta[SPLIT])
    zeta = 0.0
    for i in range(d):
        zeta += coef[i] * x[i]
    eta = 0.0
    for i in range(d, x.size):
        eta += coef[i] * x[i]
    prob = min(value(estimator.link, eta), 1.0)
    slope = zeta * derivative(estimator.link, eta)
    for i in range(d):
        out[i] = prob * x[i]
    for i in range(d, x.size):
        out[i] = slope * x[i]
    return y - zeta * prob, 1.0


LINEARISE[Product] = _linearise_product


MAGNITUDES: dict[str, Callable[[], Any]] = {
    "ridge": Ridge,
    "huber": Huber,
    "median_of_means": MedianOfMeans,
}


def resolve_magnitude(magnitude: Any) -> Any:
    """Return the model of the magnitude, given by name or as it is."""
    if isinstance(magnitude, (Ridge, LeastSquares, Huber, MedianOfMeans)):
        return magnitude
    if not isinstance(magnitude, str) or magnitude not in MAGNITUDES:
        allowed = ", ".join(repr(name) for name in MAGNITUDES)
        raise check.InvalidParameterError(
            f"`magnitude` must be one of {allowed}, or LeastSquares(...), Huber() or "
            f"MedianOfMeans(...); got {magnitude!r}"
        )
    return MAGNITUDES[magnitude]()


def magnitude_parameter(magnitude: Any) -> Any:
    """Return the name of a model of the magnitude where it says everything, else the model."""
    for name, make in MAGNITUDES.items():
        if magnitude == make():
            return name
    return magnitude
