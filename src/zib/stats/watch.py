"""Alarms that may be looked at every day: shares that are not what they should be, and drift.

`ratio_evidence` is an e-value: under the null hypothesis it exceeds 1/a at **any** time with
probability a at most (Ville 1939). `drifts` is corrected for the number of looks, times of change
and arms.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

SLOPES = np.geomspace(1e-4, 1.0, 25)
MOST_BLOCKS = 60  # of time that are kept apart; older ones are one
FEWEST = 20.0  # rewards on each side of a change
LOOKS = math.pi**2 / 6.0  # the sum of 1/d²: what the looks cost together


def ratio_evidence(counted: ArrayLike, expected: ArrayLike, variance: ArrayLike) -> Array:
    """Return the evidence, arm by arm, that arms were not drawn with their probabilities.

    Parameters
    ----------
    counted
        How often each arm was drawn.
    expected, variance
        Sums of its probabilities π and of π(1 − π) over all decisions.

    Notes
    -----
    A count minus its expectation is a martingale with steps of at most 1, so by Bennett's
    inequality exp(λ(counted − expected) − variance·(e^|λ| − 1 − |λ|)) has a mean of at most 1 for
    every λ, at all times, however the probabilities come about. It is averaged over 25 values of λ
    on each side. The mean over several arms is an e-value, too.

    Examples
    --------
    >>> ratio_evidence([5_010, 5_300], [5_000, 5_000], [2_500, 2_500]).round(1).tolist()
    [0.6, 697329.5]
    """
    n, mean, v = (np.asarray(x, np.float64)[..., None] for x in (counted, expected, variance))
    off = n - mean
    cost = v * (np.expm1(SLOPES) - SLOPES)
    sides = np.concatenate([SLOPES * off - cost, -SLOPES * off - cost], axis=-1)
    return np.asarray(np.exp(np.minimum(sides, 600.0)).mean(axis=-1))


class Change(NamedTuple):
    """A change that was found.

    Attributes
    ----------
    p_value
        Corrected for looks, times of change, and `tests`.
    at
        Number of the first block after the change.
    before, after
        Values on both sides of it.
    """

    p_value: float
    at: int
    before: float
    after: float


def rate_change(events: ArrayLike, exposure: ArrayLike, *, looks: int, tests: int) -> Change | None:
    """Return the strongest change of a rate, events per exposure, between blocks of time.

    Parameters
    ----------
    events, exposure
        How many events there were in each block, in the order of time, and among how many
        decisions.
    looks
        How many blocks have passed, so how often it was looked at most.
    tests
        How many rates are watched at a time.

    Notes
    -----
    For each time of change the events before and after it are compared by their likelihood ratio.
    Days differ by more than chance even where nothing changes for good, so the variance is scaled
    by that of neighbouring blocks where it is larger than Poisson's. The p-value is multiplied by
    the numbers of times of change and of tests and by 1.64 d² at look d, which sums to 1 over all
    looks.

    Examples
    --------
    >>> found = rate_change([30, 33, 28, 12, 15, 11], [1000] * 6, looks=6, tests=4)
    >>> found.at, round(found.before, 4), round(found.after, 4), found.p_value < 0.01
    (3, 0.0303, 0.0127, True)
    """
    from scipy.special import xlogy

    s, e = (np.asarray(x, np.float64) for x in (events, exposure))
    scale = _dispersion(s, e)
    first, last = np.cumsum(s)[:-1], s.sum() - np.cumsum(s)[:-1]
    of_first, of_last = np.cumsum(e)[:-1], e.sum() - np.cumsum(e)[:-1]
    q = np.where(e.sum() > 0.0, of_first / max(e.sum(), 1e-300), 0.0)
    expected = np.minimum(s.sum() * q, s.sum() * (1.0 - q))
    allowed = (expected >= FEWEST) & (of_first > 0.0) & (of_last > 0.0)
    if not allowed.any():
        return None
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = xlogy(first, first / (s.sum() * q)) + xlogy(last, last / (s.sum() * (1.0 - q)))
    found = np.where(allowed, 2.0 * ratio / scale, -1.0)
    k = int(np.argmax(found))
    return Change(
        _corrected(float(found[k]), int(allowed.sum()), looks, tests),
        k + 1,
        float(first[k] / of_first[k]),
        float(last[k] / of_last[k]),
    )


def mean_change(
    count: ArrayLike, total: ArrayLike, squares: ArrayLike, *, looks: int, tests: int
) -> Change | None:
    """Return the strongest change of a mean between blocks of time.

    Parameters
    ----------
    count, total, squares
        Number, sum and sum of squares of the values in each block, in the order of time.
    looks, tests
        As in `rate_change`.
    """
    n, y, yy = (np.asarray(x, np.float64) for x in (count, total, squares))
    first, last = np.cumsum(n)[:-1], n.sum() - np.cumsum(n)[:-1]
    allowed = (first >= FEWEST) & (last >= FEWEST)
    if not allowed.any():
        return None
    means = (
        np.cumsum(y)[:-1] / np.maximum(first, 1.0),
        (y.sum() - np.cumsum(y)[:-1]) / np.maximum(last, 1.0),
    )
    within = yy.sum() - first * means[0] ** 2 - last * means[1] ** 2
    apart = (means[0] - means[1]) ** 2 * first * last / (first + last)
    freedom = max(float(n.sum()) - 2.0, 1.0)
    # the likelihood ratio of the t-test
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = n.sum() * np.log1p(apart / np.maximum(within, 1e-300))
    found = np.where(allowed & (within > 0.0), ratio * freedom / (freedom + 2.0), -1.0)
    k = int(np.argmax(found))
    if found[k] < 0.0:
        return None
    return Change(
        _corrected(float(found[k]), int(allowed.sum()), looks, tests),
        k + 1,
        float(means[0][k]),
        float(means[1][k]),
    )


def _dispersion(s: Array, e: Array) -> float:
    """Return by how much neighbouring blocks differ more than Poisson counts do, at least 1.

    The largest difference is left out, as it may be the change that is looked for.
    """
    some = e > 0.0
    s, e = s[some], e[some]
    if s.size < 4 or s.sum() <= 0.0:
        return 1.0
    rate = s / e
    apart = np.diff(rate) ** 2 / (s.sum() / e.sum() * (1.0 / e[1:] + 1.0 / e[:-1]))
    return max(float(np.sort(apart)[:-1].sum() / (apart.size - 1)), 1.0)


def _corrected(ratio: float, splits: int, looks: int, tests: int) -> float:
    from scipy.special import erfc

    p = float(erfc(math.sqrt(max(ratio, 0.0) / 2.0)))
    return min(1.0, p * splits * tests * LOOKS * max(looks, 1) ** 2)
