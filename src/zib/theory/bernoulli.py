"""Confidence bounds for p, the probability that a reward is not zero.

`delta` is always the probability that a bound may fail; *two-sided* radii fail on each side with
probability at most delta/2 when the law is symmetric about the bound, and at most delta together.
All public functions of `zib.theory` broadcast over their arguments, return a float for scalar input
and an array otherwise, and raise `InvalidParameterError` for arguments outside their range.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from zib.core.kernel import borrowing
from zib.core.validate import InvalidParameterError, choice
from zib.theory._vectorise import (
    NONNEGATIVE,
    UNIT,
    Array,
    log_over,
    number,
    over,
    same_shape,
    vectorised,
)
from zib.theory.elementary import log1p, log1p_defect

METHODS = ("hoeffding", "kl")


@borrowing
def bernoulli_kl(p: float, q: float) -> float:
    """Return kl(p, q) between Bernoulli laws; ``inf`` where q excludes what p allows."""
    if p == q:
        return 0.0
    if p <= 0.0:
        return -math.log1p(-q) if q < 1.0 else math.inf
    if p >= 1.0:
        return -math.log(q) if q > 0.0 else math.inf
    if q <= 0.0 or q >= 1.0:
        return math.inf
    d = q - p
    return p * log1p_defect(d / p) + (1.0 - p) * log1p_defect(-d / (1.0 - p))


@borrowing
def hoeffding_radius_scalar(n: float, level: float) -> float:
    """Return sqrt(level / (2n)) with level = log(2/delta)."""
    return math.sqrt(0.5 * level / n) if n > 0.0 else math.inf


@vectorised(hoeffding_radius_scalar, n=NONNEGATIVE, delta=log_over(2.0))
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


@borrowing
def _kl_shift(p: float, comp: float, c: float) -> tuple[float, float]:
    """Solve kl(p, q) = c for q > p; return q - p and 1 - q. comp = 1 - p; 0 < p < 1, c > 0.

    The start is a fitted formula for y = log((1-p)/(1-q)) that joins sqrt(2 c p/comp), right for
    small c, to c/comp, right for large c; it is within 0.7 % for p < 0.95. One step of fifth order
    (the inverse Taylor series of kl) then leaves 1e-13. The loops serve the corners where the fit
    is poorer. Below y = 1 the step is taken in d = q - p, where the two logarithms do not wait for
    each other; above, in y, which keeps its accuracy however close q comes to 1.
    """
    w = c / (p * comp)
    s = math.sqrt(w)
    top = (1.0 - 2.0 * p) * 0.3333333333333333 + p * s * (-0.1084 + p * (-0.1674 + p * 0.3157))
    bottom = (
        1.0 + s * (0.5046 + p * (-1.6667 + p * 1.2577)) + w * (0.0616 + p * (1.655 - p * 1.5973))
    )
    b = 0.5 * w * (1.0 + top / bottom)
    y = p * (b + math.sqrt(b * b + 2.0 * w))
    if y < 1.0:
        # Padé for 1 - exp(-y)
        d = comp * y / (1.0 + y * (0.5 + y * 0.08333333333333333))
        for _ in range(60):
            q = p + d
            e = comp - d
            over_d = 1.0 / d
            g = (-p * log1p(d / p) - comp * log1p(-d / comp) - c) * over_d
            step = g * q * e
            if -0.1 * d < step < 0.1 * d:
                ee = e * e
                qq = q * q
                r = g * over_d
                h2 = 0.5 * r * (p * ee + comp * qq)
                h3 = 0.3333333333333333 * (g * r) * (comp * qq * q - p * ee * e)
                h4 = 0.25 * (g * g * r) * (p * ee * ee + comp * qq * qq)
                step *= (1.0 + (h2 - h3) + h4) + h2 * (2.0 * h2 - 5.0 * h3 + 5.0 * h2 * h2)
            new = d - step
            if new <= 0.0:
                new = 0.25 * d
            elif new >= comp:
                new = 0.5 * (d + comp)
            d = new
            if -0.005 * d <= step <= 0.005 * d:
                break
        return d, comp - d
    for _ in range(60):
        shrunk = math.exp(-y)
        d = comp * (1.0 - shrunk)
        q = p + d
        e = comp * shrunk
        g = (comp * y - p * log1p(d / p) - c) / d
        step = g * q
        if -0.1 * y < step < 0.1 * y:
            h = g * e * p / d
            h2 = 0.5 * h
            h3 = -0.16666666666666666 * h * g * (q + 2.0 * e)
            h4 = 0.041666666666666664 * h * g * g * (q * (q + 6.0 * e) + 6.0 * e * e)
            step *= (1.0 + (h2 - h3) + h4) + h2 * (2.0 * h2 - 5.0 * h3 + 5.0 * h2 * h2)
        y = y - step if step < 0.75 * y else 0.25 * y
        if -0.003 * y <= step <= 0.003 * y:
            break
    shrunk = math.exp(-y)
    return comp * (1.0 - shrunk), comp * shrunk


@borrowing
def kl_upper_scalar(p_hat: float, n: float, level: float) -> float:
    """Return sup{q : n kl(p_hat, q) <= level}; 1 where there are no observations."""
    if n <= 0.0 or p_hat >= 1.0:
        return 1.0
    if level <= 0.0:
        return p_hat
    c = level / n
    if p_hat < 1e-290:
        return -math.expm1(-c)
    d, _ = _kl_shift(p_hat, 1.0 - p_hat, c)
    q = p_hat + d
    return q if q < 1.0 else 1.0


@vectorised(kl_upper_scalar, p_hat=UNIT, n=NONNEGATIVE, level=NONNEGATIVE)
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


@borrowing
def kl_lower_scalar(p_hat: float, n: float, level: float) -> float:
    """Return inf{q : n kl(p_hat, q) <= level}; 0 where there are no observations."""
    if n <= 0.0 or p_hat <= 0.0:
        return 0.0
    if level <= 0.0:
        return p_hat
    c = level / n
    comp = 1.0 - p_hat
    if comp < 1e-290:
        return math.exp(-c)
    if p_hat < 1e-290:
        return 0.0
    _, q = _kl_shift(comp, p_hat, c)
    return q


@vectorised(kl_lower_scalar, p_hat=UNIT, n=NONNEGATIVE, level=NONNEGATIVE)
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


def _proportion(successes: ArrayLike, n: ArrayLike) -> tuple[Array, Array]:
    wins = NONNEGATIVE("successes", successes)
    pulls = NONNEGATIVE("n", n)
    same_shape(wins, pulls, names=("successes", "n"))
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
    level = log_over(2.0)("delta", delta)
    same_shape(p_hat, level, names=("n", "delta"))
    if choice("method", method, METHODS) == 1:
        return over(kl_upper_scalar, p_hat, pulls, level)
    return number(np.minimum(p_hat + over(hoeffding_radius_scalar, pulls, level), 1.0))


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
    level = log_over(2.0)("delta", delta)
    same_shape(p_hat, level, names=("n", "delta"))
    if choice("method", method, METHODS) == 1:
        return over(kl_lower_scalar, p_hat, pulls, level)
    return number(np.maximum(p_hat - over(hoeffding_radius_scalar, pulls, level), 0.0))
