"""The size of a zero-inflated reward itself: tau² and alpha².

With R = XY, E X = mu, X - mu sub-Gaussian with variance proxy sigma² and Y ~ Bernoulli(p),

    tau² = max over s of f(s),  f(s) = (2/s²) [log(1-p+p exp(s mu + s² sigma²/2)) - s mu p].

Everything is computed in z = s*mu and kappa = (sigma/mu)², where f = mu² phi(z), so that neither
large nor small rewards overflow. With u = z + kappa z²/2 and the centred cumulant function of the
Bernoulli law, Lambda(u) = log(1-p+p e^u) - pu,

    phi(z) = p kappa + 2 Lambda(u)/z².

phi has one maximum, on the side of the sign of the third cumulant 1 - 2p + 3 kappa (checked on a
fine grid of the plane, see the tests); no second branch competes.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from zib.core.kernel import borrowing
from zib.theory._vectorise import NONNEGATIVE, POSITIVE, REAL, UNIT, UNIT_OPEN, number, over
from zib.theory.elementary import log1p_defect


@borrowing
def _exp_defect(u: float) -> float:
    """Return exp(u) - 1 - u >= 0 without cancellation; u < 709."""
    if -0.05 < u < 0.05:
        return (
            0.5
            * u
            * u
            * (
                1.0
                + u
                * (
                    0.3333333333333333
                    + u
                    * (
                        0.08333333333333333
                        + u
                        * (
                            0.016666666666666666
                            + u * (0.002777777777777778 + u * 0.0003968253968253968)
                        )
                    )
                )
            )
        )
    return math.expm1(u) - u


@borrowing
def _cumulant(u: float, p: float) -> tuple[float, float, float]:
    """Return Lambda(u) = log(1-p+p e^u) - pu, its derivative pi - p, and pi; 0 < p < 1.

    pi = p e^u / (1-p+p e^u) is the probability of a non-zero reward under the tilted law. Each
    branch avoids the cancellation or overflow the others suffer from.
    """
    q = 1.0 - p
    if p <= 0.5:
        if u > 0.0:
            shrunk = math.exp(-u)
            if p > shrunk:
                total = p + q * shrunk
                tilted = p / total
                return q * u + math.log(total), tilted * q * (1.0 - shrunk), tilted
        grown = math.expm1(u)
        y = p * grown
        over = 1.0 / (1.0 + y)
        return p * _exp_defect(u) - log1p_defect(y), q * y * over, p * (1.0 + grown) * over
    if u < 0.0:
        shrunk = math.exp(u)
        if q > shrunk:
            total = q + p * shrunk
            return math.log(total) - p * u, -p * q * (1.0 - shrunk) / total, p * shrunk / total
    y = q * math.expm1(-u)
    tilted = p / (1.0 + y)
    return q * _exp_defect(-u) - log1p_defect(y), -tilted * y, tilted


@borrowing
def _argmax_z(p: float, kappa: float, start: float) -> float:
    """Return the maximiser of Lambda(u(z))/z² for 0 < p < 1; `start` = 0 for a cold start.

    Newton's method for d log(Lambda/z²) / d log z = z Lambda' u'/Lambda - 2 = 0 in log z, kept
    inside a bracket.
    """
    q = 1.0 - p
    skew = 1.0 - 2.0 * p + 3.0 * kappa
    side = 1.0 if skew >= 0.0 else -1.0
    y = side * start
    if not 1e-6 < y < 1e5:
        # close to symmetry the maximiser is close to zero: -2 kappa_3/kappa_4
        v = p * q
        fourth = v * (1.0 - 6.0 * v) + kappa * v * (6.0 - 12.0 * p + 3.0 * kappa)
        if fourth < 0.0:
            near = -2.0 * v * skew / fourth
            if -3e-4 < near < 3e-4:
                return near
        if skew > 0.0:
            log_p = math.log(p)
            y = -2.0 * log_p / q
            if y + 0.5 * kappa * y * y > 45.0 - log_p:
                # Lambda(u) = qu + log p to the last bit: solved in closed form
                return y
            y *= skew / (skew + 2.77 * p * p)
        else:
            y = 2.0 * math.log(p / q) * skew / (1.0 - 2.0 * p)
        if y < 1e-4:
            y = 1e-4
    low = 0.0
    high = math.inf
    if side < 0.0 and kappa > 1e-12:
        # u has its vertex at 1/kappa, beyond which Lambda/z² can only fall
        high = 1.0 / kappa
        y = min(y, 0.9 * high)
    for _ in range(200):
        z = side * y
        bent = 1.0 + kappa * z
        value, first, tilted = _cumulant(z + 0.5 * kappa * z * z, p)
        if value <= 0.0:
            # underflow: there is nothing left to maximise
            break
        over = 1.0 / value
        ratio = z * bent * first * over
        excess = ratio - 2.0
        second = tilted * (1.0 - tilted) * bent * bent + first * kappa
        slope = ratio + z * z * second * over - ratio * ratio
        if excess > 0.0:
            low = y
        else:
            high = y
        new = -1.0
        enough = 3e-4
        if slope < 0.0:
            new = y * (1.0 + min(max(-excess / slope, -0.5), 1.0))
        if not low <= new <= high:
            enough = 1e-8
            if high == math.inf:
                new = 2.0 * y
            elif low == 0.0:
                new = 0.5 * y
            else:
                new = math.sqrt(low * high)
        moved = abs(new - y)
        y = new
        if moved <= enough * y:
            break
    return side * y


@borrowing
def proxy_value_at(s: float, mean: float, prob: float, sigma: float) -> float:
    """Return f(s), the lower bound on tau² at one point; at the maximiser it is tau²."""
    if prob <= 0.0:
        return 0.0
    if prob >= 1.0 or abs(s) == math.inf:
        return sigma * sigma
    z = s * mean
    if z == 0.0:
        if s == 0.0:
            return prob * (mean * mean * (1.0 - prob) + sigma * sigma)
        v = 0.5 * s * s * sigma * sigma
        if v > 700.0:
            return sigma * sigma * (1.0 + math.log(prob) / v)
        return sigma * sigma * (math.log1p(prob * math.expm1(v)) / v if v > 0.0 else prob)
    value, _, _ = _cumulant(z + 0.5 * (s * sigma) * (s * sigma), prob)
    return prob * sigma * sigma + 2.0 * value / s / s


@borrowing
def variance_proxy_argmax(mean: float, prob: float, sigma: float, start: float) -> float:
    """Return the maximiser s of f; ``inf`` when mean = 0 (the supremum sigma² is a limit).

    `start` is a previous maximiser for nearly the same parameters, or 0. A start on the wrong side
    or out of range is ignored, so any number is safe.
    """
    if prob <= 0.0 or prob >= 1.0:
        return 0.0
    if abs(mean) <= 1e-70 * sigma or mean == 0.0:
        return math.inf
    root = sigma / mean
    return _argmax_z(prob, root * root, start * mean) / mean


@borrowing
def variance_proxy(mean: float, prob: float, sigma: float, start: float) -> float:
    """Return tau², the smallest sub-Gaussian variance proxy of R."""
    return proxy_value_at(variance_proxy_argmax(mean, prob, sigma, start), mean, prob, sigma)


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
    return over(
        variance_proxy, REAL("mean", mean), UNIT("prob", prob), NONNEGATIVE("sigma", sigma), 0.0
    )


@borrowing
def variance_proxy_derivatives(
    mean: float, prob: float, sigma: float, start: float
) -> tuple[float, float, float]:
    """Return the derivatives of tau² in p, mu and sigma² (envelope theorem); 0 < prob < 1."""
    s = variance_proxy_argmax(mean, prob, sigma, start)
    if s == math.inf:
        return 0.0, 0.0, 1.0
    z = s * mean
    q = 1.0 - prob
    square = mean * mean
    if z == 0.0:
        return square * (1.0 - 2.0 * prob) + sigma * sigma, 2.0 * mean * prob * q, prob
    root = sigma / mean
    kappa = root * root
    u = z + 0.5 * kappa * z * z
    _, lift, tilted = _cumulant(u, prob)
    if -1.0 < u < 1.0:
        grown = math.expm1(u)
        bracket = 0.5 * kappa * z * z + _exp_defect(u) - prob * grown * grown / (1.0 + prob * grown)
    else:
        bracket = lift / (prob * q) - z
    return 2.0 * square * bracket / (z * z), 2.0 * mean * lift / z, tilted


@borrowing
def variance_proxy_by_prob(mean: float, prob: float, sigma: float) -> float:
    """Return the derivative of tau² in p; 0 < prob < 1."""
    by_prob, _, _ = variance_proxy_derivatives(mean, prob, sigma, 0.0)
    return by_prob


@borrowing
def variance_proxy_by_mean(mean: float, prob: float, sigma: float) -> float:
    """Return the derivative of tau² in mu; 0 < prob < 1."""
    _, by_mean, _ = variance_proxy_derivatives(mean, prob, sigma, 0.0)
    return by_mean


@borrowing
def variance_proxy_by_variance(mean: float, prob: float, sigma: float) -> float:
    """Return the derivative of tau² in sigma²; 0 < prob < 1."""
    _, _, by_variance = variance_proxy_derivatives(mean, prob, sigma, 0.0)
    return by_variance


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
    arguments = REAL("mean", mean), UNIT_OPEN("prob", prob), NONNEGATIVE("sigma", sigma)
    return (
        over(variance_proxy_by_prob, *arguments),
        over(variance_proxy_by_mean, *arguments),
        over(variance_proxy_by_variance, *arguments),
    )


@borrowing
def subexponential_square(mean: float, prob: float, lam: float) -> float:
    """Return alpha² = max(lam², max over |s| <= 1/lam of f(s) with sigma = lam)."""
    if prob <= 0.0 or prob >= 1.0 or abs(mean) <= 1e-70 * lam or mean == 0.0:
        return lam * lam
    root = lam / mean
    kappa = root * root
    side = 1.0 if 1.0 - 2.0 * prob + 3.0 * kappa >= 0.0 else -1.0
    if kappa > 0.0:
        edge = side / math.sqrt(kappa)
        value, lift, _ = _cumulant(edge + 0.5, prob)
        if edge * (1.0 + kappa * edge) * lift >= 2.0 * value:
            # still rising where the moment generating function stops to be known
            return max(lam * lam, (prob + 2.0 * value) * lam * lam)
    z = _argmax_z(prob, kappa, 0.0)
    return max(lam * lam, proxy_value_at(z / mean, mean, prob, lam))


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
    square = over(
        subexponential_square, REAL("mean", mean), UNIT("prob", prob), NONNEGATIVE("lam", lam)
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
    return gamma_subexponential_size(POSITIVE("mean", mean), 1.0)


def gamma_subexponential_size(scale: ArrayLike, shape: ArrayLike) -> Any:
    """Return the smallest sub-exponential size of a gamma law.

    Parameters
    ----------
    scale, shape
        Of the law, > 0; its mean is their product.

    Returns
    -------
    float or ndarray
        lam = scale/u, where -log(1-u) - u = 1/(2 shape).

    Notes
    -----
    log E exp(s(X - E X)) = -shape [log(1 - s scale) + s scale], which divided by s² increases in s:
    the condition binds at s = 1/lam. With Lambert's W, u = 1 + W(-exp(-1 - 1/(2 shape))).

    Examples
    --------
    >>> round(gamma_subexponential_size(2.0, 3.0), 4)
    4.2372
    """
    from scipy.special import lambertw

    below: Any = -np.exp(-1.0 - 0.5 / POSITIVE("shape", shape))
    return number(POSITIVE("scale", scale) / (1.0 + np.real(lambertw(below))))
