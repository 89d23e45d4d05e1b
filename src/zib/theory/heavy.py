"""Trimmed means: bounds for non-zero rewards with few finite moments."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from zib.core.validate import real, vector
from zib.theory import scalars
from zib.theory._vectorise import (
    apply,
    counts,
    log_two_over,
    numbers,
    positive,
)


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
    return apply(
        scalars.trimming_factor_scalar,
        numbers("prob", prob, 0.0, 1.0),
        numbers("epsilon", epsilon, 0.0, 1.0, "right"),
    )


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
    threshold = np.asarray(apply(scalars.trim_threshold, order, level, moment, epsilon))
    return float(np.where(np.abs(x) <= threshold, x, 0.0).mean())


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
    moment
        M > 0 with E |X|^(1+epsilon) <= M (the raw moment; see `trimmed_mean`).
    epsilon
        In (0, 1].

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
    return apply(
        scalars.trimmed_pulls_radius,
        positive("n", n),
        numbers("prob", prob, 0.0, 1.0, "right"),
        log_two_over(delta),
        positive("moment", moment),
        numbers("epsilon", epsilon, 0.0, 1.0, "right"),
    )


def trimmed_count_radius(
    count: ArrayLike, delta: ArrayLike, moment: ArrayLike, epsilon: ArrayLike
) -> Any:
    """Return the two-sided radius of the trimmed mean given the number of non-zero rewards.

    Parameters
    ----------
    count
        Number B >= 0 of non-zero rewards; ``inf`` is returned for 0.
    delta
        Probability of failure, in (0, 1).
    moment
        M > 0 with E |X|^(1+epsilon) <= M (the raw moment; see `trimmed_mean`).
    epsilon
        In (0, 1].

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
    return apply(
        scalars.trimmed_count_radius,
        counts("count", count),
        log_two_over(delta),
        positive("moment", moment),
        numbers("epsilon", epsilon, 0.0, 1.0, "right"),
    )
