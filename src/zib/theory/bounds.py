"""Confidence bounds for the two parts of a zero-inflated reward and for their product.

A reward is R = XY with Y ~ Bernoulli(p) and E X = mu; n pulls showed B = count non-zero rewards.
`delta` is always the probability that a bound may fail; *two-sided* radii fail on each side with
probability at most delta/2 when the law is symmetric about the bound, and at most delta together.
All functions broadcast over their arguments, return a float for scalar input and an array
otherwise, and raise `InvalidParameterError` for arguments outside their range.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from zib.core.validate import InvalidParameterError, choice, real
from zib.theory import elementary, scalars
from zib.theory._vectorise import (
    Array,
    apply,
    counts,
    log_two_over,
    number,
    numbers,
    positive,
    same_shape,
)

# --------------------------------------------------------------------------------------------
# the non-zero part


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
    return scalars.subweibull_d(theta, size), scalars.subweibull_e(theta)


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
    return apply(
        scalars.subweibull_mean_radius,
        counts("n", n),
        log_two_over(delta),
        positive("theta", theta),
        positive("size", size),
    )


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
    pulls = np.asarray(counts("n", n) * numbers("prob", prob, 0.0, 1.0))
    return apply(
        scalars.subweibull_mean_radius,
        0.5 * pulls,
        log_two_over(delta, 4.0),
        positive("theta", theta),
        positive("size", size),
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
    p = numbers("prob", prob, 0.0, 1.0, "right")
    level = log_two_over(delta)
    if choice("method", method, ("printed", "kl")) == 0:
        return number(4.0 * level / p**2)
    return number(level / np.asarray(apply(elementary.bernoulli_kl, 0.5 * p, p)))


def given_count_radius(count: ArrayLike, delta: ArrayLike, sigma: ArrayLike) -> Any:
    """Return the two-sided radius of the mean of `count` sub-Gaussian non-zero rewards.

    Parameters
    ----------
    count
        B, the number of non-zero rewards, >= 0 (infinite radius at 0).
    delta
        Probability of failure, in (0, 1).
    sigma
        Sub-Gaussian size, E exp(s(X - mu)) <= exp(s² sigma²/2) for all s; >= 0.

    Returns
    -------
    float or ndarray
        sigma √(2 log(2/delta)/B).

    Notes
    -----
    Holds given B, hence also when B is random, as long as B does not depend on the values of X: for
    a fixed number of pulls, not at a time chosen by looking at the rewards. For adaptive stopping
    take a union bound over B (as the UCB algorithms do through a small delta).

    Examples
    --------
    >>> round(given_count_radius(count=100, delta=0.05, sigma=1.0), 4)
    0.2716
    """
    return apply(
        scalars.given_count_radius,
        counts("count", count),
        log_two_over(delta),
        counts("sigma", sigma),
    )


def subexponential_radius(count: ArrayLike, delta: ArrayLike, lam: ArrayLike) -> Any:
    """Return the two-sided radius of the mean of `count` sub-exponential non-zero rewards.

    Parameters
    ----------
    count
        B, the number of non-zero rewards, >= 0 (infinite radius at 0).
    delta
        Probability of failure, in (0, 1).
    lam
        Size: E exp(s(X - mu)) <= exp(s² lam²/2) for |s| <= 1/lam; >= 0.

    Returns
    -------
    float or ndarray
        lam √(2L/B) + lam L/B with L = log(2/delta).

    Notes
    -----
    From the Chernoff bound with s = min(√(2L/B), 1)/lam: for L/B <= 1/2 the first term alone would
    do, beyond it the second takes over. For an exponential law see
    `exponential_subexponential_size`.

    Examples
    --------
    >>> round(subexponential_radius(count=100, delta=0.05, lam=1.0), 4)
    0.3085
    """
    return apply(
        scalars.subexponential_radius,
        counts("count", count),
        log_two_over(delta),
        counts("lam", lam),
    )


# --------------------------------------------------------------------------------------------
# the probability of a non-zero reward


def hoeffding_radius(n: ArrayLike, delta: ArrayLike) -> Any:
    """Return √(log(2/delta)/(2n)), the two-sided Hoeffding radius of a proportion.

    Parameters
    ----------
    n
        Number of pulls, >= 0 (infinite radius at 0).
    delta
        Probability of failure, in (0, 1).

    Returns
    -------
    float or ndarray
        The radius. It ignores p; for small p the bounds of `kl_upper` are far tighter.

    Examples
    --------
    >>> round(hoeffding_radius(n=100, delta=0.05), 4)
    0.1358
    """
    return apply(scalars.hoeffding_radius, counts("n", n), log_two_over(delta))


def kl_upper(p_hat: ArrayLike, n: ArrayLike, level: ArrayLike) -> Any:
    """Return the largest q with n kl(p_hat, q) <= level.

    Parameters
    ----------
    p_hat
        Observed proportion, in [0, 1].
    n
        Number of pulls, >= 0 (the bound is 1 at 0).
    level
        >= 0; P(p > bound) <= exp(-level) for each fixed n (Chernoff).

    Returns
    -------
    float or ndarray
        The bound, exact to about 1e-13 relative, also for p_hat = 1e-9 or n = 1e12.

    Notes
    -----
    kl(p, q) = p log(p/q) + (1-p) log((1-p)/(1-q)). At p_hat = 0 the bound is 1 - exp(-level/n).

    Examples
    --------
    >>> round(kl_upper(p_hat=0.01, n=1000, level=3.0), 5)
    0.01976
    >>> round(kl_upper(p_hat=0.0, n=1000, level=3.0), 7)
    0.0029955
    """
    return apply(
        scalars.kl_upper,
        numbers("p_hat", p_hat, 0.0, 1.0),
        counts("n", n),
        counts("level", level),
    )


def kl_lower(p_hat: ArrayLike, n: ArrayLike, level: ArrayLike) -> Any:
    """Return the smallest q with n kl(p_hat, q) <= level; see `kl_upper`.

    Parameters
    ----------
    p_hat
        Observed proportion, in [0, 1].
    n
        Number of pulls, >= 0 (the bound is 0 at 0).
    level
        >= 0; P(p < bound) <= exp(-level) for each fixed n.

    Returns
    -------
    float or ndarray
        The bound.

    Examples
    --------
    >>> round(kl_lower(p_hat=0.01, n=1000, level=3.0), 5)
    0.00412
    """
    return apply(
        scalars.kl_lower,
        numbers("p_hat", p_hat, 0.0, 1.0),
        counts("n", n),
        counts("level", level),
    )


def _proportion(successes: ArrayLike, n: ArrayLike) -> tuple[Array, Array]:
    wins = counts("successes", successes)
    pulls = counts("n", n)
    same_shape(wins, pulls)
    if np.any(wins > pulls):
        raise InvalidParameterError("`successes` must not exceed `n`")
    with np.errstate(all="ignore"):
        return np.where(pulls > 0, wins / np.maximum(pulls, 1e-300), 0.0), pulls


def bernoulli_upper(
    successes: ArrayLike, n: ArrayLike, delta: ArrayLike, method: str = "hoeffding"
) -> Any:
    """Return an upper confidence bound for p, capped at 1.

    Parameters
    ----------
    successes
        Number of non-zero rewards, >= 0.
    n
        Number of pulls, >= successes (the bound is 1 at 0).
    delta
        In (0, 1); the level is log(2/delta), so that P(p > bound) <= delta/2.
    method
        ``"hoeffding"``: p_hat + √(log(2/delta)/(2n)). ``"kl"``: `kl_upper`, never wider, and of
        order 1/n instead of 1/√n when hardly any reward was non-zero.

    Returns
    -------
    float or ndarray
        The bound, in [0, 1].

    Examples
    --------
    >>> round(bernoulli_upper(successes=10, n=1000, delta=0.05), 4)
    0.0529
    >>> round(bernoulli_upper(successes=10, n=1000, delta=0.05, method="kl"), 4)
    0.0211
    """
    p_hat, pulls = _proportion(successes, n)
    level = log_two_over(delta)
    if choice("method", method, ("hoeffding", "kl")) == 1:
        return apply(scalars.kl_upper, p_hat, pulls, level)
    return number(np.minimum(p_hat + apply(scalars.hoeffding_radius, pulls, level), 1.0))


def bernoulli_lower(
    successes: ArrayLike, n: ArrayLike, delta: ArrayLike, method: str = "hoeffding"
) -> Any:
    """Return a lower confidence bound for p, capped at 0; see `bernoulli_upper`.

    Parameters
    ----------
    successes, n, delta, method
        As for `bernoulli_upper`; P(p < bound) <= delta/2.

    Returns
    -------
    float or ndarray
        The bound, in [0, 1]; 0 at n = 0.

    Examples
    --------
    >>> bernoulli_lower(successes=10, n=1000, delta=0.05)
    0.0
    >>> round(bernoulli_lower(successes=10, n=1000, delta=0.05, method="kl"), 4)
    0.0037
    """
    p_hat, pulls = _proportion(successes, n)
    level = log_two_over(delta)
    if choice("method", method, ("hoeffding", "kl")) == 1:
        return apply(scalars.kl_lower, p_hat, pulls, level)
    return number(np.maximum(p_hat - apply(scalars.hoeffding_radius, pulls, level), 0.0))
