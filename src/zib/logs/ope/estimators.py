"""The estimators, as columns of numbers per row whose means give the value.

Every estimator here is  mean(plain) + mean(numerator) / mean(denominator),  with either part
possibly missing. With w = π(a|x)/b(a|x) the weight of a row, q = q̂(x, a) the model's prediction for
the arm played and v = Σₐ π(a|x) q̂(x, a) its prediction for the target policy:

=========  ===================  =============  ===========
name       plain                numerator      denominator
=========  ===================  =============  ===========
ips        w·r
snips                           w·r            w
clipped    min(w, c)·r
replay                          accepted·r     accepted
dm         v
dr         v + w·(r − q)
sndr       v                    w·(r − q)      w
switch     v + w·(r − q)·[w≤c]
=========  ===================  =============  ===========
"""

from __future__ import annotations

import copy
import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from zib.core.rng import Role, stream
from zib.logs.passes import Block
from zib.stats.clusters import ClusteredMoments
from zib.stats.moments import JointMoments

Array = NDArray[np.float64]

_LEVELS = 2**16
_ROWS_AT_ONCE = 4096


class Kind(NamedTuple):
    """What an estimator needs and is made of."""

    plain: bool
    ratio: bool
    model: bool = False

    @property
    def width(self) -> int:
        """Number of columns."""
        return self.plain + 2 * self.ratio


ESTIMATORS: dict[str, Kind] = {
    "replay": Kind(plain=False, ratio=True),
    "ips": Kind(plain=True, ratio=False),
    "snips": Kind(plain=False, ratio=True),
    "clipped": Kind(plain=True, ratio=False),
    "dm": Kind(plain=True, ratio=False, model=True),
    "dr": Kind(plain=True, ratio=False, model=True),
    "sndr": Kind(plain=True, ratio=True, model=True),
    "switch": Kind(plain=True, ratio=False, model=True),
}

# What a log's own policy gets under every estimator: the plain mean of the rewards.
ON_POLICY = Kind(plain=True, ratio=False)


class RowValues(NamedTuple):
    """What the estimators use of each row; what is not needed may be None."""

    weight: Array
    reward: Array
    predicted: Array | None = None
    policy_predicted: Array | None = None
    accepted: Array | None = None


def columns(estimator: str, rows: RowValues, clip: float = 10.0) -> Array:
    """Return the columns of an estimator: (n, width), in the order of the table above."""
    w, r = rows.weight, rows.reward
    if estimator == "ips":
        return (w * r)[:, None]
    if estimator == "clipped":
        return (np.minimum(w, clip) * r)[:, None]
    if estimator == "snips":
        return np.stack((w * r, w), axis=1)
    if estimator == "replay":
        accepted = _given(rows.accepted)
        return np.stack((accepted * r, accepted), axis=1)
    q, v = _given(rows.predicted), _given(rows.policy_predicted)
    if estimator == "dm":
        return v[:, None]
    if estimator == "dr":
        return (v + w * (r - q))[:, None]
    if estimator == "sndr":
        return np.stack((v, w * (r - q), w), axis=1)
    return (v + np.where(w <= clip, w, 0.0) * (r - q))[:, None]


def _given(values: Array | None) -> Array:
    if values is None:
        raise TypeError("this estimator needs predictions (or accepted rows)")
    return values


def value_of(kind: Kind, mean: Array) -> float:
    """Return the estimate from the means of its columns; NaN where a denominator is 0."""
    return float(values_of(kind, mean[None, :])[0])


def values_of(kind: Kind, means: Array) -> Array:
    """Return the estimates of several sets of means: (B, width) to (B,)."""
    out: Array = means[:, 0].copy() if kind.plain else np.zeros(len(means))
    if kind.ratio:
        with np.errstate(divide="ignore", invalid="ignore"):
            out += means[:, -2] / means[:, -1]
    return out


def gradients_of(kind: Kind, means: Array) -> Array:
    """Return the derivatives of the estimates with respect to the means: (B, width).

    The influence of a row on the estimate is its centred columns times this: the delta method.
    """
    out = np.ones_like(means)
    if kind.ratio:
        with np.errstate(divide="ignore", invalid="ignore"):
            out[:, -2] = 1.0 / means[:, -1]
            out[:, -1] = -means[:, -2] / means[:, -1] ** 2
    return out


class Spread(NamedTuple):
    """What an interval needs: standard error, skewness and degrees of freedom of an estimate."""

    error: float
    skewness: float
    freedom: float


class Summary(NamedTuple):
    """An estimate with its spread."""

    value: float
    spread: Spread


def summarise(
    kinds: tuple[Kind, ...], signs: Array, moments: JointMoments | ClusteredMoments
) -> Summary:
    """Return Σ sign·estimate over estimators whose columns stand side by side.

    One kind and sign 1 give a value; two kinds and signs (1, −1) the difference of two policies
    from the same rows, whose common noise cancels.
    """
    means = moments.mean
    value, direction, at = 0.0, np.zeros(means.size), 0
    for kind, sign in zip(kinds, signs, strict=True):
        part = slice(at, at + kind.width)
        mean = means[part]
        value += float(sign) * value_of(kind, mean)
        direction[part] = sign * gradients_of(kind, mean[None, :])[0]
        at += kind.width
    if not np.isfinite(direction).all():
        return Summary(float("nan"), Spread(float("nan"), 0.0, 0.0))
    variance, third = moments.along(direction)
    n = moments.n
    if variance <= 0.0 or n < 2:
        return Summary(value, Spread(0.0, 0.0, 0.0))
    skewness = third / variance**1.5 / math.sqrt(n)
    return Summary(value, Spread(math.sqrt(variance / (n - 1)), skewness, n - 1.0))


def estimate(estimator: str, rows: RowValues, clip: float = 10.0) -> Summary:
    """Return one estimate from arrays that are in memory."""
    kind = ESTIMATORS[estimator]
    moments = JointMoments(kind.width)
    moments.add(columns(estimator, rows, clip))
    return summarise((kind,), np.ones(1), moments)


# ------------------------------------------------------------------------------------ bootstrap


def _table() -> NDArray[np.uint8]:
    """Return Poisson(1) as a table of 2¹⁶ equally likely values; the mean is exactly 1."""
    cut = np.cumsum([math.exp(-1.0) / math.factorial(j) for j in range(9)])
    edges = np.rint(cut * _LEVELS).astype(np.int64)
    edges[-1] = _LEVELS
    table = np.repeat(np.arange(9, dtype=np.uint8), np.diff(edges, prepend=0))
    surplus = int(table.sum(dtype=np.int64)) - _LEVELS
    # rounding leaves the mean off by a few parts in 2¹⁶: exchange some ones and zeros
    ones, zeros = np.flatnonzero(table == 1), np.flatnonzero(table == 0)
    if surplus > 0:
        table[ones[:surplus]] = 0
    elif surplus < 0:
        table[zeros[:-surplus]] = 1
    return table


_POISSON = _table()


class Resampled:
    """Weighted sums of columns and of their products in every resampled log.

    The bootstrap of a stream: every row counts Poisson(1) times in every resampled log.

    `groups` says which columns are used together: only their products are kept. Columns are
    shifted by their means in the first block, so that squares do not cancel.
    """

    def __init__(self, width: int, groups: list[list[int]], replicates: int, seed: int) -> None:
        self._seed, self._replicates = seed, replicates
        pairs = sorted({(i, j) for group in groups for i in group for j in group if i <= j})
        self._pairs = np.array(pairs, dtype=np.int64).T
        self._width = width
        self._shift: Array | None = None
        self._sums: Array = np.zeros((replicates, 1 + width + len(pairs)))

    def add(self, columns: Array, block: Block) -> None:
        """Take in the rows of a block: (n, width)."""
        if self._shift is None:
            self._shift = columns.mean(axis=0)
        u = columns - self._shift
        i, j = self._pairs
        features = np.concatenate((np.ones((len(u), 1)), u, u[:, i] * u[:, j]), axis=1)
        # the key of the stream is the block's number: all estimates see the same resampled logs
        rng = stream(self._seed, Role.BOOTSTRAP, 7, block.number)
        for start in range(0, len(u), _ROWS_AT_ONCE):
            part = features[start : start + _ROWS_AT_ONCE]
            draws = rng.integers(0, _LEVELS, (self._replicates, len(part)), dtype=np.uint16)
            self._sums += _POISSON[draws].astype(np.float64) @ part

    def fresh(self) -> Resampled:
        """Return one that keeps the same products and has seen nothing."""
        out = copy.copy(self)
        out._shift, out._sums = None, np.zeros_like(self._sums)
        return out

    def merge(self, other: Resampled) -> None:
        """Take in other rows, whose columns may have been shifted by something else."""
        if other._shift is None:
            return
        if self._shift is None:
            self._shift = other._shift
        by = other._shift - self._shift
        i, j = self._pairs
        n, first = other._sums[:, :1], other._sums[:, 1 : 1 + self._width]
        second = other._sums[:, 1 + self._width :] + first[:, i] * by[j] + first[:, j] * by[i]
        self._sums += np.hstack([n, first + n * by, second + n * (by[i] * by[j])])

    def replicate(
        self, kinds: tuple[Kind, ...], signs: Array, at: list[int]
    ) -> tuple[Array, Array]:
        """Return estimates and standard errors, from the columns `at`, in every resampled log."""
        if self._shift is None:
            raise ValueError("nothing was added")
        n = self._sums[:, :1]
        shifted = self._sums[:, 1 : 1 + self._width] / n
        second = np.zeros((self._replicates, self._width, self._width))
        i, j = self._pairs
        second[:, i, j] = second[:, j, i] = self._sums[:, 1 + self._width :] / n
        second = second[:, at][:, :, at] - shifted[:, at, None] * shifted[:, None, at]
        means = shifted[:, at] + self._shift[at]
        values, directions, begin = np.zeros(self._replicates), np.zeros_like(means), 0
        for kind, sign in zip(kinds, signs, strict=True):
            part = slice(begin, begin + kind.width)
            values += sign * values_of(kind, means[:, part])
            directions[:, part] = sign * gradients_of(kind, means[:, part])
            begin += kind.width
        variances = np.einsum("bi,bij,bj->b", directions, second, directions)
        errors = np.sqrt(np.maximum(variances, 0.0) / np.maximum(n[:, 0] - 1.0, 1.0))
        return values, errors
