"""Sub-Weibull tails: their size, the constants of their inequality, and the radii it gives.

X is sub-Weibull with tail parameter theta and size C if E exp(|X - mu|^theta / C^theta) <= 2;
theta = 2 is sub-Gaussian, 1 sub-exponential, and smaller is heavier.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from zib.core.kernel import borrowing
from zib.core.validate import InvalidParameterError, choice, real, shown
from zib.theory._vectorise import (
    NONNEGATIVE,
    POSITIVE,
    UNIT,
    UNIT_POSITIVE,
    Array,
    log_over,
    number,
    over,
    vectorised,
)
from zib.theory.bernoulli import bernoulli_kl
from zib.theory.elementary import power

LAWS = ("gaussian", "exponential")


@borrowing
def subweibull_d(theta: float, size: float) -> float:
    """Return the constant D(theta) of the sub-Weibull inequality (it depends on the size too)."""
    if theta < 1.0:
        # max(sqrt 2, 2^(1/theta)) = 2^(1/theta); logs because it overflows for small theta
        log_d = (
            0.6931471805599453 / theta
            + 0.5 * math.log(8.0)
            + 3.0
            + 0.25 * math.log(6.283185307179586)
            + 0.041666666666666664
            + (2.0 / math.e - math.log(theta)) / theta
        )
        return math.exp(log_d) if log_d < 709.0 else math.inf
    if theta < 2.0:
        return math.sqrt(1.5) / math.e * max(1.0 / size, power(size, theta - 1.0))
    return math.sqrt(17.0 / 6.0) / math.e * max(1.0 / size, power(size, 0.5 * theta - 1.0))


@borrowing
def subweibull_e(theta: float) -> float:
    """Return the constant E(theta) of the sub-Weibull inequality."""
    if theta < 1.0:
        return power(2.0, 2.0 / theta - 0.5)
    if theta < 2.0:
        return math.sqrt(0.16666666666666666)
    return 0.0


def subweibull_constants(theta: float, size: float) -> tuple[float, float]:
    """Return the constants (D, E) of the sub-Weibull inequality.

    Parameters
    ----------
    theta
        Tail parameter, > 0; 2 is sub-Gaussian, 1 sub-exponential, smaller is heavier.
    size
        C > 0 with E exp(|X - mu|^theta / C^theta) <= 2; see `subweibull_size`.

    Returns
    -------
    tuple of float
        D and E.

    Notes
    -----
    Lemma "Sharper sub-Weibull concentrations":

    - theta < 1: D = max(√2, 2^(1/θ)) √8 e³ (2π)^(1/4) e^(1/24) (e^(2/e)/θ)^(1/θ),
      E = 2^(2/θ - 1/2);
    - 1 <= theta < 2: D = √(3/(2e²)) max(1/C, C^(θ-1)), E = 1/√6;
    - theta >= 2: D = √(17/(6e²)) max(1/C, C^(θ/2-1)), E = 0.

    For theta >= 1 the constant depends on the size, because the proof compares |X - mu|^k with
    1 + |X - mu|^(k theta): the inequality is not scale free, and a size below 1 is treated as 1.
    Measure rewards in a unit in which C is at least 1, or the radius will be needlessly wide.
    D is infinite (overflow) below about theta = 0.006.

    Examples
    --------
    >>> d, e = subweibull_constants(theta=2.0, size=1.0)
    >>> round(d, 4), e
    (0.6192, 0.0)
    """
    theta = real("theta", theta, 0.0, closed="neither")
    size = real("size", size, 0.0, closed="neither")
    return subweibull_d(theta, size), subweibull_e(theta)


@borrowing
def subweibull_radius_scalar(n: float, s: float, theta: float, size: float) -> float:
    """Return 2e D C (sqrt(s/n) + E s^max(1/theta, 1) / n); exceeded w.p. at most 2 exp(-s)."""
    if n <= 0.0:
        return math.inf
    if s <= 0.0:
        return 0.0
    scale = 2.0 * math.e * subweibull_d(theta, size) * size
    if scale == math.inf:
        return math.inf
    if theta >= 2.0:
        return scale * math.sqrt(s / n)
    exponent = 1.0 / theta if theta < 1.0 else 1.0
    return scale * (math.sqrt(s / n) + subweibull_e(theta) * power(s, exponent) / n)


@vectorised(
    subweibull_radius_scalar, n=NONNEGATIVE, delta=log_over(2.0), theta=POSITIVE, size=POSITIVE
)
def subweibull_radius(n: ArrayLike, delta: ArrayLike, theta: ArrayLike, size: ArrayLike) -> Any:
    """Return the two-sided radius of the mean of n sub-Weibull observations.

    Parameters
    ----------
    n
        Number of observations of X, >= 0 (infinite radius at 0).
    delta
        Probability of failure, in (0, 1).
    theta, size
        Tail parameter and size of X - mu, both > 0.

    Returns
    -------
    float or ndarray
        2e D C (√(s/n) + E s^max(1/θ, 1)/n) with s = log(2/delta).

    Notes
    -----
    P(|mean - mu| > radius) <= delta for independent X_i with E exp(|X_i - mu|^θ/C^θ) <= 2. The
    constants are generous: for a Gaussian the radius is several times the exact one.

    Examples
    --------
    >>> round(subweibull_radius(n=100, delta=0.05, theta=2.0, size=1.0), 4)
    0.6466
    """


def zi_subweibull_radius(
    n: ArrayLike, prob: ArrayLike, delta: ArrayLike, theta: ArrayLike, size: ArrayLike
) -> Any:
    """Return the radius of the observed mean of X after n pulls of a zero-inflated arm.

    Parameters
    ----------
    n
        Number of pulls, zeros included, >= 0.
    prob
        p, the probability of a non-zero reward, in [0, 1] (infinite radius at 0).
    delta
        Probability of failure, in (0, 1).
    theta, size
        Tail parameter and size of X - mu, both > 0.

    Returns
    -------
    float or ndarray
        `subweibull_radius` with n p/2 observations and s = log(4/delta).

    Notes
    -----
    Lemma "light tail product": P(|mean of the non-zero rewards - mu| >= radius) <= delta **for
    n >= zi_subweibull_min_n(prob, delta)** only. Below that number the formula is still returned,
    as the printed algorithm uses it, but there is no guarantee: with few pulls the number of
    non-zero rewards may be far below n p/2. p is the true probability; an algorithm that plugs in
    an estimate has no guarantee from this lemma alone. With the observed number of non-zero rewards
    at hand, `given_count_radius` is valid for every n and several times smaller.

    Examples
    --------
    >>> round(zi_subweibull_radius(n=1000, prob=0.2, delta=0.05, theta=2.0, size=1.0), 4)
    0.7047
    """
    pulls = np.asarray(NONNEGATIVE("n", n) * UNIT("prob", prob))
    return over(
        subweibull_radius_scalar,
        0.5 * pulls,
        log_over(4.0)("delta", delta),
        POSITIVE("theta", theta),
        POSITIVE("size", size),
    )


def zi_subweibull_min_n(prob: ArrayLike, delta: ArrayLike, method: str = "printed") -> Any:
    """Return the number of pulls from which `zi_subweibull_radius` and `trimmed_radius` hold.

    Parameters
    ----------
    prob
        p in (0, 1].
    delta
        In (0, 1).
    method
        ``"printed"``: 4 log(2/delta)/p². ``"kl"``: log(2/delta)/kl(p/2, p), which is what the proof
        needs (P(B < np/2) <= delta/2 by Chernoff's bound) and is of order 1/p instead of 1/p².

    Returns
    -------
    float or ndarray
        The threshold; not rounded.

    Examples
    --------
    >>> round(zi_subweibull_min_n(prob=0.01, delta=0.05))
    147555
    >>> round(zi_subweibull_min_n(prob=0.01, delta=0.05, method="kl"))
    2385
    """
    p = UNIT_POSITIVE("prob", prob)
    level = log_over(2.0)("delta", delta)
    if choice("method", method, ("printed", "kl")) == 0:
        return number(4.0 * level / p**2)
    return number(level / np.asarray(over(bernoulli_kl, 0.5 * p, p)))


# --------------------------------------------------------------------------------------------
# sub-Weibull size of a law

Survival = Callable[[Array], Array]


class _Tail(NamedTuple):
    """log P(|X - E X| > t), its approximate inverse, and the points where it has a kink."""

    log_survival: Survival
    quantile: Callable[[float], float]
    kinks: tuple[float, ...]


def _named_law(name: str) -> _Tail:
    from scipy.special import log_ndtr, ndtri

    if LAWS[choice("dist", name, LAWS)] == "gaussian":
        return _Tail(
            lambda t: np.asarray(math.log(2.0) + log_ndtr(-t)),
            lambda log_tail: float(-ndtri(0.5 * math.exp(log_tail))),
            (),
        )

    def log_survival(t: Array) -> Array:
        below = np.where(t < 1.0, -np.expm1(np.minimum(t, 1.0) - 1.0), 0.0)
        return np.asarray(np.log(below + np.exp(-1.0 - np.minimum(t, 700.0))))

    return _Tail(log_survival, lambda log_tail: max(-1.0 - log_tail, 0.0), (1.0,))


def _scipy_law(dist: Any) -> _Tail:
    needed = ("mean", "logsf", "logcdf", "isf", "ppf", "support")
    if not all(callable(getattr(dist, name, None)) for name in needed):
        raise InvalidParameterError(
            "`dist` must be a frozen continuous SciPy distribution or one of "
            f"{', '.join(repr(law) for law in LAWS)}; got {shown(dist)}"
        )
    if not callable(getattr(getattr(dist, "dist", None), "pdf", None)):
        raise InvalidParameterError(f"`dist` must be a continuous distribution; got {shown(dist)}")
    centre = float(dist.mean())

    def log_survival(t: Array) -> Array:
        return np.asarray(np.logaddexp(dist.logsf(centre + t), dist.logcdf(centre - t)))

    def quantile(log_tail: float) -> float:
        tail = 0.5 * math.exp(log_tail)
        return float(np.nanmax([dist.isf(tail) - centre, centre - dist.ppf(tail), 0.0]))

    ends = tuple(abs(float(end) - centre) for end in dist.support() if math.isfinite(end))
    return _Tail(log_survival, quantile if math.isfinite(centre) else lambda _: math.inf, ends)


def subweibull_size(dist: Any, theta: float, *, scale: float = 1.0) -> float:
    """Return the smallest C with E exp(|X - E X|^theta / C^theta) <= 2.

    Parameters
    ----------
    dist
        A frozen continuous SciPy distribution, or ``"gaussian"`` or ``"exponential"`` for the
        standard member of these families.
    theta
        Tail parameter, > 0.
    scale
        The law is that of `scale` times the variable; > 0.

    Returns
    -------
    float
        The size, relative error about 1e-9; ``inf`` if there is none (X has heavier tails than
        exp(-c t^theta), or no mean).

    Notes
    -----
    With V = |X - E X|^theta and c = C^theta, E exp(V/c) - 1 = (1/c) ∫ P(V > v) exp(v/c) dv is
    integrated by Gauss–Legendre rules between quantiles down to tails of 1e-300, and solved for c.
    Whether a size exists at all is read off the tails between 1e-150 and 1e-300: the exponent
    log(-log P(V > v)) must grow like log v or faster. A law that turns lighter only beyond that is
    misjudged. The Gaussian has C = σ√(8/3) at theta = 2 and none for theta > 2.

    Examples
    --------
    >>> round(subweibull_size("gaussian", 2.0), 6), round((8 / 3) ** 0.5, 6)
    (1.632993, 1.632993)
    >>> round(subweibull_size("exponential", 1.0, scale=2.0), 4)
    3.0627
    >>> subweibull_size("exponential", 2.0)
    inf
    """
    theta = real("theta", theta, 0.0, closed="neither")
    scale = real("scale", scale, 0.0, closed="neither")
    law = _named_law(dist) if isinstance(dist, str) else _scipy_law(dist)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        # SciPy warns about extreme quantiles it finds inexactly; they only place the nodes
        warnings.simplefilter("ignore")
        return scale * _solve_size(law, theta)


def _solve_size(law: _Tail, theta: float) -> float:
    depths = np.concatenate([np.arange(0.0, 10.0, 0.25), np.arange(10.0, 691.0, 5.0)])
    quantiles = np.array([law.quantile(-float(x)) for x in depths])
    last = quantiles[-1]
    if not math.isfinite(last) or last <= 0.0:
        return math.inf
    unit = float(quantiles[12])  # exceeded with probability e^-3: the answer is of this order
    half, full = law.log_survival(np.array([law.quantile(-345.0), last]))
    unbounded = math.isfinite(full) and full < -600.0
    if unbounded:
        stretch = math.log(last / law.quantile(-345.0))
        if math.log(full / half) < 0.9 * theta * stretch:
            return math.inf
    near = unit * 0.5 ** np.arange(50.0)  # the integrand may be a fractional power at 0
    kinks = [k for k in law.kinks if k < last]
    edges = np.unique(np.concatenate([[0.0], near[near < last], quantiles, kinks]))
    # in v = t^theta for theta < 1, where the integrand is singular in t; in t otherwise
    power = min(theta, 1.0)
    cells = (edges / unit) ** power
    nodes, weights = np.polynomial.legendre.leggauss(24)
    width = 0.5 * np.diff(cells)[:, None]
    points = cells[:-1, None] + width + width * nodes
    t = points ** (1.0 / power)
    v = t**theta
    log_density = law.log_survival(unit * t) + np.log(width * weights)
    if theta > 1.0:
        log_density = log_density + math.log(theta) + (theta - 1.0) * np.log(t)

    def excess(log_c: float) -> float:
        """Return log of (1/c) ∫ P(V > v) exp(v/c) dv, or a large number where it diverges."""
        rate = math.exp(-log_c)
        exponents = log_density + rate * v
        top = float(np.max(exponents))
        if top > 600.0 or (unbounded and exponents[-1, -1] > top - 30.0):
            return 600.0
        return math.log(float(np.exp(exponents).sum()) * rate)

    low, high = 0.0, 0.0
    while excess(high) > 0.0:
        high += 1.0
    while excess(low) <= 0.0:
        low -= 1.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        if excess(middle) > 0.0:
            low = middle
        else:
            high = middle
    log_size = 0.5 * (low + high) / theta
    return unit * math.exp(log_size) if log_size < 709.0 else math.inf
