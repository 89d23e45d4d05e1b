"""Sizes: how wide the tails of X and of the zero-inflated reward R = XY itself are."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from zib.core.validate import InvalidParameterError, choice, real
from zib.theory import size_scalars
from zib.theory._vectorise import Array, apply, counts, number, numbers

# Solution of -log(1-u) - u = 1/2: the smallest sub-exponential size of an exponential law of
# mean m is m/u.
_U_EXPONENTIAL = 0.698290437315664

LAWS = ("gaussian", "exponential")


def product_variance_proxy(mean: ArrayLike, prob: ArrayLike, sigma: ArrayLike) -> Any:
    """Return tau², the smallest sub-Gaussian variance proxy of a zero-inflated reward.

    Parameters
    ----------
    mean
        mu = E X, any sign.
    prob
        p, the probability of a non-zero reward, in [0, 1].
    sigma
        Size of X: E exp(s(X - mu)) <= exp(s² sigma²/2) for all s; >= 0.

    Returns
    -------
    float or ndarray
        tau² = max_s (2/s²) [log(1 - p + p exp(s mu + s² sigma²/2)) - s mu p].

    Notes
    -----
    R - mu p is sub-Gaussian with exactly this proxy if X is Gaussian, and with at most this one if
    X is only sub-Gaussian. Relative error below 1e-9 for mu p between 1e-6 and 1e6 and beyond.

    - sigma = 0: the Kearns–Saul value mu² (1-2p)/(2 log((1-p)/p)), mu²/4 at p = 1/2.
    - mu = 0, or p = 1: sigma². tau² >= sigma² for every p > 0, so tau² does *not* tend to 0 as
      p tends to 0 unless sigma = 0; at p = 0 itself R is constant and tau² = 0.
    - tau² >= Var(R) = p sigma² + p(1-p) mu², and usually much larger: p = 0.005, mu = 4,
      sigma = 1 gives 2.49 against 0.085.

    Examples
    --------
    >>> round(product_variance_proxy(mean=4.0, prob=0.005, sigma=1.0), 3)
    2.495
    >>> product_variance_proxy(mean=1.0, prob=0.5, sigma=0.0)
    0.25
    """
    return apply(
        size_scalars.variance_proxy,
        numbers("mean", mean),
        numbers("prob", prob, 0.0, 1.0),
        counts("sigma", sigma),
        0.0,
    )


def product_variance_proxy_gradient(
    mean: ArrayLike, prob: ArrayLike, sigma: ArrayLike
) -> tuple[Any, Any, Any]:
    """Return the derivatives of tau² in p, in mu and in sigma².

    Parameters
    ----------
    mean
        mu, any sign.
    prob
        p, in (0, 1).
    sigma
        Size of X, >= 0.

    Returns
    -------
    tuple of float or ndarray
        d tau²/dp, d tau²/dmu, d tau²/d(sigma²).

    Notes
    -----
    By the envelope theorem the maximiser s can be held fixed. With u = s mu + s² sigma²/2 and
    pi = p e^u/(1 - p + p e^u):

        d/dp = (2/s²) [(e^u - 1)/(1 + p(e^u - 1)) - s mu],  d/dmu = (2/s)(pi - p),  d/dsigma² = pi.

    Homogeneity gives 2 tau² = mu d/dmu + 2 sigma² d/dsigma², hence |d/dmu| <= 2 tau²/|mu|:
    the derivative in mu stays bounded where tau²/mu does. The derivative in p tends to 0 as mu
    does, and to minus infinity (not plus) as sigma -> 0 and p -> 1.

    Examples
    --------
    >>> dp, dmu, dvar = product_variance_proxy_gradient(mean=4.0, prob=0.005, sigma=1.0)
    >>> round(dp, 2), round(dmu, 4), round(dvar, 4)
    (53.44, 0.7475, 0.9999)
    """
    arguments = (
        numbers("mean", mean),
        numbers("prob", prob, 0.0, 1.0, "neither"),
        counts("sigma", sigma),
    )
    return (
        apply(size_scalars.variance_proxy_by_prob, *arguments),
        apply(size_scalars.variance_proxy_by_mean, *arguments),
        apply(size_scalars.variance_proxy_by_variance, *arguments),
    )


def product_subexponential_size(mean: ArrayLike, prob: ArrayLike, lam: ArrayLike) -> Any:
    """Return alpha, a sub-exponential size of a zero-inflated reward (not its square).

    Parameters
    ----------
    mean
        mu = E X, any sign.
    prob
        p, in [0, 1].
    lam
        Size of X: E exp(s(X - mu)) <= exp(s² lam²/2) for |s| <= 1/lam; >= 0.

    Returns
    -------
    float or ndarray
        alpha with alpha² = max(lam², max over |s| <= 1/lam of the expression of
        `product_variance_proxy` with sigma = lam).

    Notes
    -----
    E exp(s(R - mu p)) <= exp(s² alpha²/2) for |s| <= 1/alpha. The maximum must not run over all s,
    as the text writes: the moment generating function of X is only bounded for |s| <= 1/lam, and
    with an exponential X it does not even exist beyond. Use alpha with `subexponential_radius`.

    Examples
    --------
    >>> round(product_subexponential_size(mean=6.0, prob=0.2, lam=1.0), 4)
    2.936
    >>> product_subexponential_size(mean=0.5, prob=0.2, lam=1.0)
    1.0
    """
    square = apply(
        size_scalars.subexponential_square,
        numbers("mean", mean),
        numbers("prob", prob, 0.0, 1.0),
        counts("lam", lam),
    )
    return number(np.sqrt(square))


def exponential_subexponential_size(mean: ArrayLike) -> Any:
    """Return the smallest sub-exponential size of an exponential law.

    Parameters
    ----------
    mean
        Mean of the law, > 0.

    Returns
    -------
    float or ndarray
        lam = mean/u, where -log(1-u) - u = 1/2; about 1.432 times the mean.

    Notes
    -----
    E exp(s(X - m)) = exp(-sm)/(1 - sm) <= exp(s² lam²/2) for |s| <= 1/lam. The logarithm of the
    left side divided by s² increases in s, so the condition binds at s = 1/lam.

    Examples
    --------
    >>> round(exponential_subexponential_size(1.0), 4)
    1.4321
    """
    return number(numbers("mean", mean, 0.0, np.inf, "neither") / _U_EXPONENTIAL)


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
            f"{', '.join(repr(law) for law in LAWS)}; got {dist!r}"
        )
    if not callable(getattr(getattr(dist, "dist", None), "pdf", None)):
        raise InvalidParameterError(f"`dist` must be a continuous distribution; got {dist!r}")
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
    return unit * math.exp(0.5 * (low + high) / theta)
