"""Bounds for mu·p from bounds on the two factors; see `zib.theory.joint` for both at once."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from zib.core.kernel import borrowing
from zib.core.validate import InvalidParameterError, numbers, shown
from zib.theory._vectorise import NONNEGATIVE, REAL, UNIT, Array, number, over, vectorised


@borrowing
def signed_product(mean_upper: float, prob_lower: float, prob_upper: float) -> float:
    """Return the largest mu*p over mu <= mean_upper, prob_lower <= p <= prob_upper."""
    if mean_upper >= 0.0:
        return mean_upper * prob_upper
    return mean_upper * prob_lower


def product_upper(mean_upper: ArrayLike, prob_lower: ArrayLike, prob_upper: ArrayLike) -> Any:
    """Return an upper bound for mu p from bounds on the two factors.

    Parameters
    ----------
    mean_upper
        Upper bound for mu; any sign, may be infinite.
    prob_lower, prob_upper
        Bounds for p, in [0, 1].

    Returns
    -------
    float or ndarray
        mean_upper * prob_upper where mean_upper >= 0, otherwise mean_upper * prob_lower.

    Notes
    -----
    If mu <= mean_upper and prob_lower <= p <= prob_upper then mu p <= the result. Only two of the
    three bounds can make it fail: for mu >= 0 the first and the last, for mu < 0 the first and the
    lower one on p; two bounds that fail with probability delta/2 each give delta. The printed
    product takes prob_upper always, which is wrong when mean_upper < 0: a larger p makes the
    product *smaller* then.

    Examples
    --------
    >>> product_upper(2.0, 0.1, 0.3)
    0.6
    >>> product_upper(-2.0, 0.1, 0.3)
    -0.2
    """
    low = UNIT("prob_lower", prob_lower)
    high = UNIT("prob_upper", prob_upper)
    if np.any(low > high):
        raise InvalidParameterError("`prob_lower` must not exceed `prob_upper`")
    return over(signed_product, _bound("mean_upper", mean_upper), low, high)


def _bound(name: str, value: ArrayLike) -> Array:
    """Return bounds, which may be infinite, or raise."""
    array = numbers(name, value)
    if np.isnan(array).any():
        raise InvalidParameterError(f"`{name}` must not be NaN; got {shown(value)}")
    return array


def product_lower(mean_lower: ArrayLike, prob_lower: ArrayLike, prob_upper: ArrayLike) -> Any:
    """Return a lower bound for mu p from bounds on the two factors.

    Parameters
    ----------
    mean_lower
        Lower bound for mu; any sign, may be infinite.
    prob_lower, prob_upper
        Bounds for p, in [0, 1].

    Returns
    -------
    float or ndarray
        mean_lower * prob_lower where mean_lower >= 0, otherwise mean_lower * prob_upper.

    Examples
    --------
    >>> product_lower(2.0, 0.1, 0.3), product_lower(-2.0, 0.1, 0.3)
    (0.2, -0.6)
    """
    mean = -_bound("mean_lower", mean_lower)
    return number(-np.asarray(product_upper(mean, prob_lower, prob_upper)))


@borrowing
def error_share_scalar(p: float) -> float:
    """Return 1 / (1 + sqrt(1 - p)): the share of an error level that goes to the bound of mu."""
    return 1.0 / (1.0 + math.sqrt(1.0 - p))


@vectorised(error_share_scalar, prob=UNIT)
def error_share(prob: ArrayLike) -> Any:
    """Return the share of an error level that the bound of mu gets, the rest being for p.

    Parameters
    ----------
    prob
        p in [0, 1].

    Returns
    -------
    float or ndarray
        1/(1 + √(1 - p)): one half for rare rewards, more where the arm nearly always pays.

    Notes
    -----
    The product of two bounds that fail with probability wδ and (1 - w)δ has, to first order, the
    width √(2/n) [σ√p √log(1/(wδ)) + |mu| √(p(1-p)) √log(1/((1-w)δ))], which is smallest near
    w = σ/(σ + |mu| √(1-p)). With |mu| = σ this depends on p alone and is the share returned. The
    factor √p of both parts cancels: that rewards are rare is no reason for an unequal split. And
    whatever w is, both logarithms are at least log(1/δ), so no split brings the sum of the two
    roots down to the root of the sum that the joint bound has (`joint_kl_upper`).

    Examples
    --------
    >>> error_share([0.0, 0.75, 1.0])
    array([0.5       , 0.66666667, 1.        ])
    """


@borrowing
def unseen_upper_scalar(n: float, level: float, magnitude: float) -> float:
    """Return magnitude * sup{q : -n log(1-q) <= level}: an arm that has paid only zeros."""
    if n <= 0.0:
        return max(magnitude, 0.0)
    return max(magnitude, 0.0) * -math.expm1(-level / n)


@vectorised(unseen_upper_scalar, n=NONNEGATIVE, level=NONNEGATIVE, magnitude=REAL)
def unseen_upper(n: ArrayLike, level: ArrayLike, magnitude: ArrayLike) -> Any:
    """Return an upper bound for mu p when all of n rewards were zero.

    Parameters
    ----------
    n
        Number of pulls, >= 0.
    level
        >= 0; the probability part fails with probability at most exp(-level).
    magnitude
        An optimistic value for mu, for example the largest upper bound on mu among arms that have
        paid. Negative values count as 0, since p = 0 is compatible with the data.

    Returns
    -------
    float or ndarray
        max(magnitude, 0) (1 - exp(-level/n)).

    Notes
    -----
    Zeros bound p and say nothing about mu: without `magnitude` the bound is infinite, and insisting
    on a first success costs about 1/p pulls per arm.

    Examples
    --------
    >>> round(unseen_upper(n=100, level=3.0, magnitude=2.0), 4)
    0.0591
    """
