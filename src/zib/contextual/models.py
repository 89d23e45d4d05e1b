"""Component models: what they minimise, and what they keep.

Fitting (see `fit`) knows nothing about links or robustness. It asks an *estimator* to **linearise**
one observation at the current coefficients c: a direction j, a score s and a weight f, such that
the observation adds s·j to the score equations and f·j j' to the curvature.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from zib.contextual.links import IDENTITY, derivative, link_parameter, resolve_link, value
from zib.core import validate as check
from zib.core.registry import CALLED, Registry, borrowing
from zib.core.spec import Spec, choice, converted, derived, real, whole
from zib.core.stacked import stacked
from zib.core.state import Floats, Part, count, part, position, scalar, scratch, table
from zib.stats.design import Gram, new_gram, quadratic_forms, sandwich_forms

Kernel = Callable[..., Any]

SCORE, BERNOULLI = 0, 1  # kinds of weights
PRINTED = 1  # the score of `LeastSquares`
SMALLEST_VARIANCE = 1e-14  # of a Bernoulli variable far in the tail; keeps ratios finite
SMALLEST_WEIGHT = 1e-6  # of an observation far in the tail; keeps steps finite
LARGEST_RATIO = 100.0  # of the slope to the variance
LARGEST_MEAN = 1e9  # of the log link while Newton's method is still far off


# ------------------------------------------------------------------------------------- what is kept


class Model(Part):
    """A component model: estimate, curvature, and what is needed to improve them."""

    coef: Floats = table("dim")
    curvature: Gram = part(Gram)  # ridge·I + Σ f·j j'
    design: Gram = part(Gram)  # ridge·I + Σ x x' where the paper's radii ask for it, else of size 0
    anchor: Floats = table("dim", "dim")  # with `target`, the observations no longer stored
    target: Floats = table("dim")
    features: Floats = table("memory", "dim")
    response: Floats = table("memory")
    stored: Floats = position("response")  # how many observations are stored
    seen: Floats = count()  # observations learned
    next_refit: Floats = scalar(start=1.0, least=0.0)  # the number of observations it is due at
    residual: Floats = scalar(finite=False, least=0.0)  # Σ of squared residuals
    threshold: Floats = scalar(start=math.inf, finite=False, least=0.0)  # of Huber regression
    bound: Floats = scalar(start=math.inf, finite=False, least=0.0)  # radius of the ball
    split: Floats = position("coef")  # where the second factor of `Product` begins
    work: Floats = scratch(5, "dim")


def new_model(
    dim: int,
    *,
    ridge: float,
    bound: float = math.inf,
    memory: int = 0,
    plain: bool = False,
    samples: bool = False,
    split: int = 0,
) -> Model:
    """Return a model that has seen nothing.

    Parameters
    ----------
    dim
        Number of coefficients.
    ridge, bound
        Penalty ridge·‖c‖²/2 and radius of the ball.
    memory
        Observations kept as they are; 0 for ridge regression, which needs none.
    plain
        Whether Σ x x' is kept beside the curvature.
    samples
        Whether somebody draws from the matrix in use (then its Cholesky factor is kept).
    split
        Position where the coefficients of the second factor begin (`Product` only).
    """
    return Model.new(
        {"dim": dim, "memory": memory},
        curvature=new_gram(dim, ridge, keeps_factor=samples and not plain),
        design=new_gram(dim if plain else 0, ridge, keeps_factor=samples and plain),
        anchor=ridge * np.eye(dim if memory else 0),
        bound=np.array([bound]),
        split=np.array([float(split)]),
    )


class Groups(Part):
    """Median of means: one ridge regression per group, whose matrices add up to `curvature`."""

    coef: Floats = table("dim")
    curvature: Gram = part(Gram)
    design: Gram = part(Gram)
    anchor: Floats = table(0, 0)
    parts: Gram = part(Gram)  # of every group
    targets: Floats = table("groups", "dim")
    coefs: Floats = table("groups", "dim")
    residuals: Floats = table("groups", finite=False, least=0.0)
    seen: Floats = count()
    residual: Floats = scalar(finite=False, least=0.0)
    ridge: Floats = scalar(least=0.0)  # of one group
    loss: Floats = scalar(start=1.0, least=0.0)  # variance lost by fitting in groups, a factor
    bound: Floats = scalar(start=math.inf, finite=False, least=0.0)
    images: Floats = scratch("groups", "dim")
    apart: Floats = scratch("groups", "groups")
    work: Floats = scratch(3, "longest")


def new_groups(dim: int, groups: int, *, ridge: float, bound: float, samples: bool) -> Groups:
    """Return `groups` regressions that have seen nothing."""
    share = ridge / groups
    return Groups.new(
        {"dim": dim, "groups": groups, "longest": max(dim, groups)},
        curvature=new_gram(dim, ridge, keeps_factor=samples),
        design=new_gram(0, ridge, keeps_factor=False),
        parts=stacked(new_gram(dim, share, keeps_factor=False), groups),
        ridge=np.array([share]),
        bound=np.array([bound]),
    )


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
    linear = isinstance(magnitude, (Ridge, Learned))
    plain = plain or (isinstance(magnitude, LeastSquares) and magnitude.solves_printed)
    return new_model(
        dim,
        ridge=ridge,
        bound=bound,
        memory=0 if linear else memory,
        plain=plain and not linear,
        samples=samples,
    )


@borrowing
def residual_size(sigma: float, model: Any) -> float:
    """Return σ, from the residuals where it was not given.

    Before three non-zero rewards there is nothing to go by: the estimate is widened, and with none
    at all it is 1, which ranks the actions as any other number would.
    """
    if sigma > 0.0:
        return sigma
    n = model.seen[0]
    if n == 0.0:
        return 1.0
    return max(math.sqrt(model.residual[0] / n * (1.0 + 2.0 / n)), 1e-100)


# ------------------------------------------------------------------------------------- the registry


class Estimator(NamedTuple):
    """What is registered for one type of estimator."""

    learn: Kernel  # (estimator, model, x, y): learn one observation
    settle: Kernel  # (estimator, model): solve exactly
    linearise: Kernel | None  # only for those fitted by Newton's method
    tune: Kernel  # (estimator, model): adapt what the estimator keeps in the model
    largest_move: Kernel  # (estimator): how far one step may move a linear predictor
    square: Kernel  # (estimator, score, weight): the squared residual of an observation
    variances: Kernel  # (estimator, model, columns, work, out): x'Cov(ĉ)x/σ² of every column
    noise: Kernel  # (estimator, sigma, model): the size of the noise
    radius: Kernel  # (estimator, spec, model, rounds): that of `ZIUCB`


ESTIMATORS = Registry("estimator", "zib.contextual.fit.register_estimator(...)")


@ESTIMATORS.kernel(CALLED)
def linearise(  # type: ignore[empty-body]
    estimator: Any, coef: Any, x: Any, y: float, threshold: float, out: Any
) -> tuple[float, float]:
    """Write j into `out` and return (s, f); `threshold` is that of the model, for `Huber`."""


@ESTIMATORS.kernel(CALLED)
def learn(estimator: Any, model: Any, x: Any, y: float) -> None:
    """Learn one observation (x, y)."""


@ESTIMATORS.kernel(CALLED)
def settle(estimator: Any, model: Any) -> None:
    """Solve exactly for the estimate, after the ridge of a model has changed."""


@ESTIMATORS.kernel(CALLED)
def tune(estimator: Any, model: Any) -> None:
    """Adapt what the estimator keeps in the model: the threshold of Huber regression."""


@ESTIMATORS.kernel(CALLED)
def largest_move(estimator: Any) -> float:  # type: ignore[empty-body]
    """Return how far one step may move a linear predictor.

    Far out a link is flat, and a step that trusts its curvature there is off by orders of
    magnitude. Without a link there is no such place.
    """


@ESTIMATORS.kernel(CALLED)
def square(estimator: Any, score: float, weight: float) -> float:  # type: ignore[empty-body]
    """Return the squared residual of an observation with this score and weight > 0."""


@ESTIMATORS.kernel(CALLED)
def variances(estimator: Any, model: Any, columns: Any, work: Any, out: Any) -> None:
    """Write the variance of x'ĉ, in units of the noise, for every column x."""


@ESTIMATORS.kernel(CALLED)
def noise(estimator: Any, sigma: float, model: Any) -> float:  # type: ignore[empty-body]
    """Return σ such that σ² times `variances` are those of x'ĉ; NaN estimates it from residuals."""


@ESTIMATORS.kernel(CALLED)
def radius(estimator: Any, spec: Any, model: Any, rounds: float) -> float:  # type: ignore[empty-body]
    """Return ρ, with |x'(ĉ − c)| ≤ ρ·√(x'V⁻¹x) but for a probability 1/T; `spec` is a `ZIUCB`."""


# ----------------------------------------------------------------------- models of the occurrence


class GLM(NamedTuple):
    """A model of the occurrence with the score Σ (y − h(x'c))·v(x'c)·x.

    `weights` says what v is. SCORE: 1, the estimating equation of the paper. BERNOULLI:
    h'/(h(1 − h)), maximum likelihood. The two agree for the logit.
    """

    link: Any
    weights: int


@borrowing
def _predict(coef: Any, x: Any, out: Any) -> float:
    """Return x'c and copy x to `out`: the direction of all models with one linear predictor."""
    total = 0.0
    for i in range(x.size):
        total += coef[i] * x[i]
        out[i] = x[i]
    return total


@borrowing
def linearise_glm(
    estimator: Any, coef: Any, x: Any, y: float, threshold: float, out: Any
) -> tuple[float, float]:
    """Linearise the score of the occurrence."""
    eta = _predict(coef, x, out)
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


# ---------------------------------------------------------------------- models of the magnitude


class Ridge(Spec):
    """Ridge regression for the magnitude: X = z'β + noise. Exact, and nothing has to be kept."""

    link: Any = derived(lambda fields: IDENTITY)


class Learned(Spec):
    """Ridge regression for the magnitude or for its logarithm, as the rewards say (`Adaptive`)."""

    link: Any = derived(lambda fields: IDENTITY)


class LeastSquares(Spec):
    """Least squares for the magnitude with a link: X = g(z'β) + noise.

    Parameters
    ----------
    link
        The link g, such as ``"log"`` for magnitudes that are products of effects. For the identity
        `Ridge` is the same and faster.
    score
        The equation solved for β. ``"least_squares"`` (default): Σ (X − g(z'β))·g'(z'β)·z = λβ, the
        optimum for noise of equal size. ``"printed"``: Σ (X − g(z'β))·z = λβ, the paper's. Not for
        `LaplaceTS`, since it is not the score of a normal likelihood.

    Notes
    -----
    The radius of `ZIUCB` is the paper's, for its own equation. Least squares has less error where
    g' varies much, but may have several optima and has no such theorem.
    """

    link: Any = converted(
        functools.partial(resolve_link, probability=False),
        link_parameter,
        allowed="name of a link, or a registered link",
    )
    score: str = choice(("least_squares", "printed"), default="least_squares")

    @property
    def solves_printed(self) -> bool:
        """Whether the equation is the paper's."""
        return bool(self.parameters()["score"] == "printed")


@borrowing
def linearise_least_squares(
    estimator: Any, coef: Any, x: Any, y: float, threshold: float, out: Any
) -> tuple[float, float]:
    """Linearise (y − g(x'c))²/2, by Gauss and Newton, or the paper's equation."""
    zeta = _predict(coef, x, out)
    slope = min(derivative(estimator.link, zeta), LARGEST_MEAN)
    residual = y - min(value(estimator.link, zeta), LARGEST_MEAN)
    if estimator.score == PRINTED:
        return residual, max(slope, SMALLEST_WEIGHT)
    return residual * slope, slope * slope


@borrowing
def square_least_squares(estimator: Any, score: float, weight: float) -> float:
    """Return the squared residual: the score itself where the equation is the paper's."""
    return score * score if estimator.score == PRINTED else score * score / weight


@borrowing
def variances_least_squares(estimator: Any, model: Any, columns: Any, work: Any, out: Any) -> None:
    """Write x'A⁻¹x, or x'A⁻¹VA⁻¹x with V = λI + Σ z z' for the paper's equation."""
    if estimator.score == PRINTED:
        sandwich_forms(model.curvature.inverse, model.design.matrix, columns, work, out)
    else:
        quadratic_forms(model.curvature.inverse, columns, work, out)


# Noise has a finite moment of order 1 + ε: E|noise|^(1 + ε) ≤ σ^(1 + ε).
EPSILON: Any = real(low=0, high=1, closed="right", default=1.0)


class Huber(Spec):
    """Adaptive Huber regression for the magnitude: residuals beyond a threshold count less.

    Parameters
    ----------
    epsilon
        ε in (0, 1]: the noise has a moment of order 1 + ε, and the `sigma` of a policy is
        (E|noise|^(1+ε))^(1/(1+ε)). 1 (default): a variance.

    Notes
    -----
    The threshold τ needs no tuning: it solves Σ min(r², τ²) = τ²·(d + log n) over the residuals r
    of the n stored rewards, so that it grows like √n where the variance is finite and cuts off
    outliers where it is not. For rewards whose noise has a finite moment of order 1 + ε only.

    With ε < 1 there is no variance, and standard errors are σ·n^γ·√(x'V⁻¹x) with n non-zero rewards
    and γ = (1 − ε)/(2(1 + ε)). An estimated σ grows like that by itself. The radius of `ZIUCB` is
    σ·n^γ·L^(ε/(1+ε)) with L = 4 log T + d log(1 + t/(λd)): the order in which adaptive Huber
    regression converges [1]_, with the constants of light tails.

    References
    ----------
    .. [1] Q. Sun, W.-X. Zhou and J. Fan, "Adaptive Huber regression", Journal of the American
       Statistical Association, 2020.
    """

    epsilon: float = EPSILON
    link: Any = derived(lambda fields: IDENTITY)


@borrowing
def linearise_huber(
    estimator: Any, coef: Any, x: Any, y: float, threshold: float, out: Any
) -> tuple[float, float]:
    """Linearise Huber's loss: beyond the threshold it grows linearly."""
    residual = y
    for i in range(x.size):
        residual -= coef[i] * x[i]
        out[i] = x[i]
    size = abs(residual)
    weight = 1.0 if size <= threshold else threshold / size
    return weight * residual, weight


class MedianOfMeans(Spec):
    """Median of means for the magnitude: several ridge regressions, and the point between them.

    Parameters
    ----------
    groups
        Number m of groups (≥ 1, odd ones make sense). The non-zero rewards go to them in turn; up
        to m/2 groups may be spoilt by outliers.
    epsilon
        ε in (0, 1], as for `Huber`.

    Notes
    -----
    The estimate is the geometric median [1]_: the β with the smallest sum of distances
    ‖β − β̂_k‖_V to the regressions of the groups, each with its share λ/m of the ridge. Errors are
    those of one regression of all rewards, √(variance) larger by two factors. One is what the
    groups' mean loses to it, from their matrices. The other is what a geometric median of normal
    points in d dimensions loses to their mean: (d/2)·[Γ(d/2)/Γ((d + 1)/2)]², π/2 for d = 1 and
    1.18 for d = 3. So intervals cover as they say for symmetric noise, with a variance or without.
    Where noise is skewed, the groups' means have a median that is not their mean, and intervals
    cover too little until groups are large (lognormal noise with log-sd 1.5: 79 % of 95 % with 30
    rewards per group, 87 % with 140).

    `ZIUCB` takes the bound that needs no shape,
    ρ = C·[m^(ε/(1+ε))·σ·n^γ·(2^(1−ε)/δ')^(1/(1+ε))·√(d log(1 + n/(λd))) + √λ·bound],
    with n non-zero rewards, γ = (1 − ε)/(2(1 + ε)) and C = (m + 1)/(2√m) for an odd m. A group is
    off by more than that with probability at most δ' (the moment of order 1 + ε of a martingale),
    half of them with probability at most 1/T, by the choice δ' = (T·(m over h))^(−1/h), h = ⌈m/2⌉.
    It holds in every single round for features of norm at most 1, however they were chosen,
    where the groups' matrices are alike.

    References
    ----------
    .. [1] S. Minsker, "Geometric median and robust estimation in Banach spaces", Bernoulli, 2015.
    """

    groups: int = whole(low=1, high=99, default=7)
    epsilon: float = EPSILON
    link: Any = derived(lambda fields: IDENTITY)


MAGNITUDES: dict[str, Callable[[], Any]] = {
    "ridge": Ridge,
    "huber": Huber,
    "median_of_means": MedianOfMeans,
}


def resolve_magnitude(magnitude: Any, *more: str) -> Any:
    """Return the model of the magnitude, given by name or as it is; errors name `more` names."""
    if isinstance(magnitude, (Ridge, LeastSquares, Huber, MedianOfMeans)):
        return magnitude
    if not isinstance(magnitude, str) or magnitude not in MAGNITUDES:
        allowed = ", ".join(repr(name) for name in (*more, *MAGNITUDES))
        raise check.InvalidParameterError(
            f"`magnitude` must be one of {allowed}, or LeastSquares(...), Huber() or "
            f"MedianOfMeans(...); got {check.shown(magnitude)}"
        )
    return MAGNITUDES[magnitude]()


def magnitude_parameter(magnitude: Any) -> Any:
    """Return the name of a model of the magnitude where it says everything, else the model."""
    for name, make in MAGNITUDES.items():
        if magnitude == make():
            return name
    return magnitude


# ----------------------------------------------------------------------------- models of the reward


class Linear(NamedTuple):
    """Ridge regression for the reward itself, R ≈ z'β."""

    unused: float


class Product(NamedTuple):
    """Least squares for the reward itself: R ≈ z'β·h(w'θ), with x = (z, w) and c = (β, θ)."""

    link: Any
    split: int  # where w and θ begin


@borrowing
def linearise_product(
    estimator: Any, coef: Any, x: Any, y: float, threshold: float, out: Any
) -> tuple[float, float]:
    """Linearise (y − z'β·h(w'θ))²/2, by Gauss and Newton."""
    d = estimator.split
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
