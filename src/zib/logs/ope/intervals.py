"""Confidence intervals for a smooth function of means, from few numbers."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Interval = tuple[float, float]

UNKNOWN: Interval = (math.nan, math.nan)
_LEAST = 0.3


class Spread(NamedTuple):
    """What an interval needs: the standard error and the skewness of the estimate."""

    error: float
    skewness: float


def spread_of(variance: float, third: float, n: int) -> Spread:
    """Return error and skewness of a mean of `n` rows with this variance and third moment."""
    if variance <= 0.0 or n < 2:
        return Spread(0.0, 0.0)
    return Spread(math.sqrt(variance / (n - 1)), third / variance**1.5 / math.sqrt(n))


def normal_quantile(level: float) -> float:
    """Return z with P(|N(0, 1)| < z) = level."""
    from scipy.special import ndtri

    return float(ndtri(0.5 + level / 2))


def asymptotic(value: float, spread: Spread, level: float) -> Interval:
    """Return value ± z·error."""
    half = normal_quantile(level) * spread.error
    return value - half, value + half


def corrected(value: float, spread: Spread, level: float) -> Interval:
    """Return the interval of Hall's exponential transformation, which takes out the skewness.

    Notes
    -----
    A mean of rewards that are mostly zero is skewed to the right and correlated with its own
    standard error: when it is too small, so is the error, and value ± z·error misses the truth
    above it too often. With g the skewness of the estimate and T = (estimate − truth)/error, the
    variable (3/2g)·(exp(2gT/3) − 1) + g/6 is standard normal up to terms of order 1/n, and
    monotone in T (P. Hall, *On the removal of skewness by transformation*, JRSS B 54, 1992). The
    limits are its inverse at ±t, with two precautions for few rewards.

    The error itself is estimated. The kurtosis of a distribution is at least its squared skewness
    plus 1 (Pearson), so the variance under the error has at most 2/g² degrees of freedom: t is the
    quantile of Student's distribution with so many. And the inverse, a logarithm, runs off to
    infinity when g·t nears 3/2: the skewness used is cut where its argument falls below `_LEAST`.
    """
    if abs(spread.skewness) < 1e-6:
        return asymptotic(value, spread, level)
    from scipy.special import stdtrit

    size = abs(spread.skewness)
    t = float(stdtrit(2.0 / size**2, 0.5 + level / 2))
    # the root of 1 − (2g/3)(t + g/6) = _LEAST
    most = 3.0 * (1.0 - _LEAST) / (t + math.sqrt(t * t + 1.0 - _LEAST))
    g = math.copysign(min(size, most), spread.skewness)

    def back(limit: float) -> float:
        return 1.5 / g * math.log1p(2.0 * g / 3.0 * (limit - g / 6.0))

    return value - spread.error * back(t), value - spread.error * back(-t)


def studentised(
    value: float, spread: Spread, values: Array, errors: Array, level: float
) -> Interval:
    """Return the bootstrap-t interval from estimates and standard errors of resampled logs."""
    shift = values - value
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(errors > 0.0, shift / errors, np.where(shift == 0, 0.0, np.inf * shift))
    tail = (1.0 - level) / 2
    # an observed order statistic, never between a number and infinity
    low, high = np.quantile(t, [tail, 1.0 - tail], method="inverted_cdf")
    if not (math.isfinite(low) and math.isfinite(high)):
        return UNKNOWN
    return value - float(high) * spread.error, value - float(low) * spread.error
