"""Prices of car loans, and a synthetic market: price classes as arms, profit if one accepts.

The records behind the paper's loan study are handed out on request only. This market is made up
so that it agrees with what is published about them: the offered prices (in $1000) have the
published quantiles 1.54, 3.639, 5.4164 and 8.5466 at .25, .75, .915 and .9875, which cut them
into five classes. Everything else is our choice: prices between $0 and $16 000 with two more
quantiles that make their density rise and fall once, a logistic acceptance that falls in the
price, and 22 % of all offers accepted. The synthetic records of `loan_synthetic` have the published
range of prices instead, $0.40 to $28 572.50, with the same quantiles inside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from zib.core.spec import real
from zib.core.validate import InvalidParameterError
from zib.env.mab import _Computed
from zib.env.mixtures import QuantileTable, ZeroInflated
from zib.env.registry import Array, derived, register_id
from zib.logs.public.cprm import CLASSES, CUTS

CUT_LEVELS = (0.0, 0.25, 0.75, 0.915, 0.9875, 1.0)
CUT_PRICES = (0.0, *CUTS, 16.0)
PUBLISHED_RANGE = (0.0004, 28.5725)
PUBLISHED_RECORDS = 208_085
_INNER_LEVELS = (0.03, 0.25, 0.50, 0.75, 0.915, 0.9875)
_INNER_PRICES = (0.60, CUTS[0], 2.45, *CUTS[1:])
_POINTS = 513


def price_quantile(level: Sequence[float] | Array, *, published_range: bool = False) -> Array:
    """Return quantiles of the offered price, smooth between the published ones.

    Parameters
    ----------
    level
        Levels in [0, 1].
    published_range
        By default prices lie between 0 and 16. With True the law has the same quantiles at the same
        six levels, but the smallest and the largest of 208 085 prices are the published ones: a
        smooth curve through the logarithms of the prices on the scale of the normal distribution,
        where the published quantiles and the largest price lie nearly on a line.
    """
    from scipy.interpolate import PchipInterpolator

    if not published_range:
        levels = (0.0, *_INNER_LEVELS, 1.0)
        prices = (CUT_PRICES[0], *_INNER_PRICES, CUT_PRICES[-1])
        return np.asarray(PchipInterpolator(levels, prices)(level), dtype=np.float64)
    from scipy.special import ndtri

    end = 0.5 / PUBLISHED_RECORDS
    low, high = PUBLISHED_RANGE
    knots = ndtri(np.array([end, *_INNER_LEVELS, 1.0 - end]))
    curve = PchipInterpolator(knots, np.log([low, *_INNER_PRICES, high]))
    inside = np.clip(np.asarray(level, dtype=np.float64), end, 1.0 - end)
    return np.asarray(np.exp(curve(ndtri(inside))), dtype=np.float64)


def _accepted(
    low: float, high: float, intercept: float, slope: float
) -> tuple[QuantileTable, float]:
    """Return the law of accepted prices among offers between two levels, and how many accept."""
    levels = np.linspace(low, high, _POINTS)
    prices = price_quantile(levels)
    accept = 1.0 / (1.0 + np.exp(slope * prices - intercept))
    pieces = (accept[1:] + accept[:-1]) / 2
    cumulative = np.concatenate([[0.0], np.cumsum(pieces)])
    if (np.diff(cumulative / cumulative[-1]) <= 0.0).any():
        raise InvalidParameterError(
            f"`slope` must leave some chance that high prices are accepted; got {slope:g}"
        )
    table = QuantileTable(tuple(cumulative / cumulative[-1]), tuple(prices))
    return table, float(pieces.mean())


def _intercept(slope: float, acceptance: float) -> float:
    low, high = -40.0, 40.0
    for _ in range(80):
        middle = (low + high) / 2
        if _accepted(0.0, 1.0, middle, slope)[1] < acceptance:
            low = middle
        else:
            high = middle
    return (low + high) / 2


class LoanMarket(_Computed, positional=2):
    """Five price classes; a reward is the price in $1000 if the loan is taken and zero if not.

    Parameters
    ----------
    slope
        How fast the log-odds of acceptance fall per $1000 of price.
    acceptance
        Share of offers accepted when prices are offered as in the past.

    Notes
    -----
    Choosing a class offers a price drawn from the past prices inside it. Dear classes are
    accepted rarely but pay more: none of the two extremes is best.

    Examples
    --------
    >>> market = LoanMarket()
    >>> CLASSES[market.best_arm]
    'high'
    """

    slope: float = real(low=0.0, high=5.0, closed="right", default=0.35)
    acceptance: float = real(low=0.0, high=1.0, closed="neither", default=0.22)
    intercept: float = derived(lambda given: _intercept(given["slope"], given["acceptance"]))
    laws: Any = derived(lambda given: _class_laws(given["intercept"], given["slope"]))

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the arms."""
        return CLASSES

    @cached_property
    def history(self) -> ZeroInflated:
        """The law of one reward when prices of all classes are offered as in the past."""
        return ZeroInflated(*_accepted(0.0, 1.0, self.intercept, self.slope))


def _class_laws(intercept: float, slope: float) -> tuple[ZeroInflated, ...]:
    return tuple(
        ZeroInflated(*_accepted(low, high, intercept, slope)) for low, high in pairwise(CUT_LEVELS)
    )


register_id("loan-market-v1", LoanMarket)
