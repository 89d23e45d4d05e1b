"""Estimates with intervals for actions described by features."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from zib.stats.intervals import normal_quantile

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[np.float64]

# The grid over the occurrence part: in standard deviations, fine enough that a magnitude without
# any error of its own moves a quantile by no more than 0.03 of them.
_REACH, _NODES = 7.0, 225
_HALVINGS = 36
_FAR = 9.0  # standard deviations
_SMALLEST = 1e-300


class Curve(NamedTuple):
    """An increasing function of arrays and its inverse."""

    value: Callable[[Array], Array]
    inverse: Callable[[Array], Array]


class Prediction(NamedTuple):
    """Estimates and intervals, one entry per action; NaN where a policy has no such part."""

    arms: tuple[Hashable, ...]
    p: Array
    p_low: Array
    p_high: Array
    mu: Array
    mu_low: Array
    mu_high: Array
    r: Array
    r_low: Array
    r_high: Array

    def to_frame(self) -> pd.DataFrame:
        """Return a table with one row per action."""
        import pandas as pd

        columns = self._asdict()
        index = pd.Index(columns.pop("arms"), name="arm", tupleize_cols=False)
        return pd.DataFrame(columns, index=index)


def predictions(
    arms: tuple[Hashable, ...],
    moments: Array,
    probability: Callable[[Array], Array],
    magnitude: Curve | None,
    level: float,
    inflated: float,
) -> Prediction:
    """Return estimates and intervals from what a policy believes.

    Parameters
    ----------
    arms
        The labels.
    moments
        Five rows: linear predictor of the occurrence and its variance, that of the magnitude and
        its variance, their covariance. The first is NaN where the policy models the reward itself.
    probability
        The link of the occurrence: turns linear predictors into probabilities.
    magnitude
        The link of the magnitude; None for the identity.
    level
        Coverage of each interval, if the moments are right and the estimates normal.
    inflated
        Added to magnitudes and rewards.
    """
    eta, eta_variance, zeta, zeta_variance, _ = moments
    quantile = normal_quantile(level)
    half = quantile * _spread(zeta_variance)
    mu, mu_low, mu_high = (
        (x if magnitude is None else magnitude.value(x)) + inflated
        for x in (zeta, zeta - half, zeta + half)
    )
    if np.isnan(eta).any():
        none = np.full(eta.shape, np.nan)
        return Prediction(arms, none, none, none, none, none, none, mu, mu_low, mu_high)
    eta_half = quantile * _spread(eta_variance)
    p = probability(eta)
    r_low, r_high = product_quantiles(
        probability,
        magnitude,
        moments,
        np.array([0.5 - 0.5 * level, 0.5 + 0.5 * level]),
    )
    return Prediction(
        arms,
        p,
        probability(eta - eta_half),
        probability(eta + eta_half),
        mu,
        mu_low,
        mu_high,
        p * (mu - inflated) + inflated,
        r_low + inflated,
        r_high + inflated,
    )


def product_quantiles(
    probability: Callable[[Array], Array],
    magnitude: Curve | None,
    moments: Array,
    levels: Array,
) -> Array:
    """Return quantiles of h(η)·g(ζ) for jointly normal (η, ζ), shape (levels, actions).

    Notes
    -----
    Given η, the product falls below x if ζ falls below g⁻¹(x/h(η)), a normal probability. The
    trapezoidal rule on a fine grid integrates it over η and bisection inverts the result. Infinite
    or unknown variances give infinite quantiles.
    """
    from scipy import special

    eta, eta_variance, zeta, zeta_variance, covariance = moments
    known = np.isfinite(eta_variance) & np.isfinite(zeta_variance)
    spread = np.sqrt(np.where(known, np.maximum(eta_variance, 0.0), 0.0))
    grid = np.linspace(-_REACH, _REACH, _NODES)
    weights = np.exp(-0.5 * grid * grid)
    weights /= weights.sum()

    h = np.maximum(probability(eta[:, None] + spread[:, None] * grid), _SMALLEST)
    slope = np.divide(covariance, spread, out=np.zeros_like(spread), where=known & (spread > 0.0))
    mean = zeta[:, None] + slope[:, None] * grid
    rest = np.sqrt(np.maximum(np.where(known, zeta_variance, 0.0) - slope * slope, 0.0))
    rest = np.maximum(rest, 1e-12 * np.abs(mean).max(axis=1) + _SMALLEST)[:, None]
    # the conditional range of g(ζ), beyond which nothing has to be known of g
    lowest, highest = mean - _FAR * rest, mean + _FAR * rest
    if magnitude is not None:
        lowest, highest = magnitude.value(lowest), magnitude.value(highest)

    low = (h * lowest).min(axis=1) * np.ones((levels.size, 1))
    high = (h * highest).max(axis=1) * np.ones((levels.size, 1))
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        with np.errstate(over="ignore"):
            bound = np.clip(middle[..., None] / h, lowest, highest)
        if magnitude is not None:
            bound = magnitude.inverse(bound)
        above = special.ndtr((bound - mean) / rest) @ weights > levels[:, None]
        high = np.where(above, middle, high)
        low = np.where(above, low, middle)
    infinite = np.where(levels > 0.5, np.inf, -np.inf)[:, None]
    return np.where(known, 0.5 * (low + high), infinite)


def _spread(variance: Array) -> Array:
    return np.sqrt(np.where(np.isnan(variance), np.inf, np.maximum(variance, 0.0)))


def capped(values: Array) -> Array:
    """Return probabilities: values of a link that exceed 1, or fall below 0, are cut."""
    return np.clip(values, 0.0, 1.0)
