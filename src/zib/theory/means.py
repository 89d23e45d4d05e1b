"""Confidence bounds for mu, the mean of the non-zero rewards: light tails given their number, and
trimmed means for tails with few finite moments.

See `zib.theory.subweibull` for sub-Weibull tails in general.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from zib.core.kernel import borrowing
from zib.core.validate import real, vector
from zib.theory._vectorise import (
    NONNEGATIVE,
    POSITIVE,
    UNIT,
    UNIT_POSITIVE,
    log_over,
    over,
    vectorised,
)
from zib.theory.elementary import power

# --------------------------------------------------------------------------------------------
# light tails, given the number of non-zero rewards


@borrowing
def given_count_radius_scalar(count: float, level: float, sigma: float) -> float:
    """Return sigma sqrt(2 level / count): sub-Gaussian mean of `count` observations."""
    return sigma * math.sqrt(2.0 * level / count) if count > 0.0 else math.inf


@vectorised(given_count_radius_scalar, count=NONNEGATIVE, delta=log_over(2.0), sigma=NONNEGATIVE)
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


@borrowing
def subexponential_radius_scalar(count: float, level: float, lam: float) -> float:
    """Return lam sqrt(2 level/count) + lam level/count: sub-exponential mean."""
    if count <= 0.0:
        return math.inf
    return lam * math.sqrt(2.0 * level / count) + lam * level / count


@vectorised(subexponential_radius_scalar, count=NONNEGATIVE, delta=log_over(2.0), lam=NONNEGATIVE)
def subexponential_radius(count: ArrayLike, delta: ArrayLike, lam: ArrayLike) -> Any:
    """Return the two-sided radius of the mean of `count` sub-exponential non-zero rewards.

    Parameters
    ----------
    count, delta
        As for `given_count_radius`.
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


# --------------------------------------------------------------------------------------------
# trimmed means


@borrowing
def trim_threshold(j: float, level: float, moment: float, epsilon: float) -> float:
    """Return (j M / level)^(1/(1+eps)): the j-th non-zero reward is kept up to this size."""
    return power(j * moment / level, 1.0 / (1.0 + epsilon))


def trimmed_mean(values: ArrayLike, delta: float, moment: float, epsilon: float) -> float:
    """Return the trimmed mean of the non-zero rewards of an arm.

    Parameters
    ----------
    values
        Non-zero rewards in the order in which they were observed; not empty.
    delta
        In (0, 1).
    moment
        M > 0 with E |X|^(1+epsilon) <= M (the *raw* moment, see Notes).
    epsilon
        In (0, 1].

    Returns
    -------
    float
        (1/B) Σ_j X_j 1{|X_j| <= (j M/log(2/delta))^(1/(1+ε))}: the divisor counts the trimmed
        values too.

    Notes
    -----
    The lemma is stated for the centred moment E |X - mu|^(1+ε) <= M, but its proof bounds
    E |X| 1{|X| > a} by M/a^ε and Var(X 1{|X| <= a}) by M a^(1-ε), which needs the raw moment. With
    the centred one the bound is wrong as soon as |mu| is large compared with M^(1/(1+ε)): every
    value is then trimmed and the estimate is 0.

    Examples
    --------
    >>> trimmed_mean([1.0, 2.0, 900.0, 1.0], delta=0.05, moment=20.0, epsilon=1.0)
    1.0
    """
    x = vector("values", values)
    level = math.log(2.0 / real("delta", delta, 0.0, 1.0, "neither"))
    moment = real("moment", moment, 0.0, closed="neither")
    epsilon = real("epsilon", epsilon, 0.0, 1.0, "right")
    order = np.arange(1.0, x.size + 1.0)
    threshold = np.asarray(over(trim_threshold, order, level, moment, epsilon))
    return float(np.where(np.abs(x) <= threshold, x, 0.0).mean())


@borrowing
def trimmed_count_radius_scalar(count: float, level: float, moment: float, epsilon: float) -> float:
    """Return 4 M^(1/(1+eps)) (level/count)^(eps/(1+eps)), level = log(2/delta)."""
    if count <= 0.0:
        return math.inf
    order = epsilon / (1.0 + epsilon)
    return 4.0 * power(moment, 1.0 / (1.0 + epsilon)) * power(level / count, order)


@vectorised(
    trimmed_count_radius_scalar,
    count=NONNEGATIVE,
    delta=log_over(2.0),
    moment=POSITIVE,
    epsilon=UNIT_POSITIVE,
)
def trimmed_count_radius(
    count: ArrayLike, delta: ArrayLike, moment: ArrayLike, epsilon: ArrayLike
) -> Any:
    """Return the two-sided radius of the trimmed mean given the number of non-zero rewards.

    Parameters
    ----------
    count, delta
        As for `given_count_radius`.
    moment, epsilon
        As for `trimmed_mean`.

    Returns
    -------
    float or ndarray
        4 M^(1/(1+ε)) (log(2/delta)/B)^(ε/(1+ε)).

    Notes
    -----
    P(|trimmed mean - mu| > radius) <= delta, by the inequality of Bubeck, Cesa-Bianchi and Lugosi
    (2013) for each B; its proof needs 1 + ε + √2 + ⅓ <= 4. The algorithm of the paper has
    (32 log t)^(ε/(1+ε)) in place of 4 (2 log t)^(ε/(1+ε)): the same at ε = 1, narrower below.

    Examples
    --------
    >>> round(trimmed_count_radius(count=2000, delta=0.05, moment=4.0, epsilon=1.0), 4)
    0.3436
    """


@borrowing
def trimming_factor_scalar(p: float, epsilon: float) -> float:
    """Return g(p, eps), the constant of the trimmed-mean inequality."""
    if p <= 0.0:
        return math.inf
    order = epsilon / (1.0 + epsilon)
    return (1.0 + epsilon) * power(2.0 / p, order) + 4.0 / (3.0 * p) + 2.0 / math.sqrt(p)


@vectorised(trimming_factor_scalar, prob=UNIT, epsilon=UNIT_POSITIVE)
def trimming_factor(prob: ArrayLike, epsilon: ArrayLike) -> Any:
    """Return g(p, eps), the constant of the trimmed-mean inequality.

    Parameters
    ----------
    prob
        p in [0, 1] (infinite at 0).
    epsilon
        In (0, 1]; X has a finite moment of order 1 + epsilon.

    Returns
    -------
    float or ndarray
        (1+ε) 2^(ε/(1+ε)) p^(-ε/(1+ε)) + 4/(3p) + 2/√p.

    Examples
    --------
    >>> round(trimming_factor(prob=1.0, epsilon=1.0), 4)
    6.1618
    """


@borrowing
def trimmed_radius_scalar(n: float, p: float, level: float, moment: float, epsilon: float) -> float:
    """Return g(p, eps) M^(1/(1+eps)) (level/n)^(eps/(1+eps)), level = log(2/delta)."""
    return (
        trimming_factor_scalar(p, epsilon)
        * power(moment, 1.0 / (1.0 + epsilon))
        * power(level / n, epsilon / (1.0 + epsilon))
    )


@vectorised(
    trimmed_radius_scalar,
    n=POSITIVE,
    prob=UNIT_POSITIVE,
    delta=log_over(2.0),
    moment=POSITIVE,
    epsilon=UNIT_POSITIVE,
)
def trimmed_radius(
    n: ArrayLike, prob: ArrayLike, delta: ArrayLike, moment: ArrayLike, epsilon: ArrayLike
) -> Any:
    """Return the one-sided radius of the trimmed mean after n pulls.

    Parameters
    ----------
    n
        Number of pulls, > 0.
    prob
        p in (0, 1].
    delta
        Probability of failure, in (0, 1).
    moment, epsilon
        As for `trimmed_mean`.

    Returns
    -------
    float or ndarray
        g(p, ε) M^(1/(1+ε)) (log(2/delta)/n)^(ε/(1+ε)).

    Notes
    -----
    P(mu - trimmed mean >= radius) <= delta for n >= `zi_subweibull_min_n` (either method), and the
    same for the other side. Below that number of pulls the formula is returned without guarantee.

    Examples
    --------
    >>> round(trimmed_radius(n=10_000, prob=0.2, delta=0.05, moment=4.0, epsilon=1.0), 4)
    0.6708
    """
