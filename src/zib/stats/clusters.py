"""Means of arms whose rows come in clusters: covariances that let rows of a cluster depend.

A log with several rows per user holds less than its number of rows. `ClusterSums` adds up columns
for each cluster and arm; `clustered` turns the sums into the covariance of the arms' means.
`ClusteredMoments` is for columns that belong to no arm, such as the terms of a doubly robust value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Codes = NDArray[np.int64]
Hashes = NDArray[np.uint64]
Sums = Callable[[Array], Array]  # of a column, over the rows of each key

MOST = 4_000_000  # pairs of cluster and arm that are kept apart
ROOM = 1_000_000  # pairs that wait to be added up
BINS = 8192  # of `ClusteredMoments`
MOST_ARMS = 1_500  # up to which arms may share clusters; beyond, means count as independent


class ClusterSums:
    """Sums of columns over the rows of each cluster and arm, in bounded memory.

    Parameters
    ----------
    width
        Number of columns.
    n_arms
        Number of arms.

    Notes
    -----
    Beyond four million pairs of cluster and arm, clusters are put together at random, by their
    hashes, into at least a thousand and usually half a million groups. Groups of independent
    clusters are independent, so nothing computed from them becomes wrong; with so many groups it
    hardly becomes less precise.

    Examples
    --------
    >>> sums = ClusterSums(1, n_arms=2)
    >>> sums.add(np.array([7, 7, 9], np.uint64), np.array([0, 0, 1]), np.array([1.0, 2.0, 5.0]))
    >>> cluster, arm, total = sums.table()
    >>> cluster.tolist(), arm.tolist(), total.tolist()
    ([0, 1], [0, 1], [[3.0], [5.0]])
    """

    def __init__(self, width: int, n_arms: int) -> None:
        # One key for both: the arm in the low bits, above them as much of the hash as has room.
        # Clusters whose hashes differ in the rest only would count as one, which does no harm.
        self._bits = np.uint64((n_arms - 1).bit_length())
        self._arms = np.uint64((1 << int(self._bits)) - 1)
        self._groups = 1 << max((MOST // (8 * n_arms)).bit_length(), 10)
        self._folded = False
        self._key: Hashes = np.empty(0, np.uint64)
        self._sums: Array = np.empty((width, 0))
        self._waiting: list[tuple[Hashes, Array]] = []
        self._held = 0

    def add(self, cluster: Hashes, arm: Codes, *columns: Array) -> None:
        """Take rows: the hash of the cluster, the arm and the columns of each."""
        self._take((cluster << self._bits) | arm.astype(np.uint64), np.stack(columns))

    def merge(self, other: ClusterSums) -> None:
        """Take all that another accumulator has seen."""
        other._settle()
        self._folded = self._folded or other._folded
        self._take(other._key, other._sums)

    def _take(self, key: Hashes, sums: Array) -> None:
        if not key.size:
            return
        self._waiting.append((key, sums))
        self._held += key.size
        if self._held > max(ROOM, self._key.size):
            self._settle()

    def _settle(self) -> None:
        """Add up what waits; put clusters together when there are too many."""
        if not self._waiting:
            return
        parts = [(self._key, self._sums), *self._waiting]
        self._waiting, self._held = [], 0
        key = np.concatenate([each for each, _ in parts])
        found, add = self._pairs(key)
        sums = np.empty((len(self._sums), found.size))
        for j, row in enumerate(sums):  # one at a time, to save memory
            row[:] = add(np.concatenate([each[j] for _, each in parts]))
        self._key, self._sums = found, sums

    def _pairs(self, key: Hashes) -> tuple[Hashes, Sums]:
        """Return the keys to be kept, and what adds up a column for them."""
        if not self._folded:
            found, add = _by_sorting(key)
            if found.size <= MOST:
                return found, add
            self._folded = True
            del found, add  # before as much memory is needed again
        group = (key >> self._bits) % np.uint64(self._groups)
        key = (group << self._bits) | (key & self._arms)
        few = self._groups << int(self._bits) <= MOST
        return _by_counting(key) if few else _by_sorting(key)

    def table(self) -> tuple[Codes, Codes, Array]:
        """Return cluster (numbered from 0), arm and sums of each pair that occurs."""
        self._settle()
        cluster = self._key >> self._bits
        new = np.ones(cluster.size, bool)
        new[1:] = cluster[1:] != cluster[:-1]
        return np.cumsum(new) - 1, (self._key & self._arms).astype(np.int64), self._sums.T


def _by_sorting(key: Hashes) -> tuple[Hashes, Sums]:
    """Return each key once, sorted, and what adds up a column for them."""
    order = np.argsort(key, kind="stable")
    key = key[order]
    new = np.ones(key.size, bool)
    new[1:] = key[1:] != key[:-1]
    first = np.flatnonzero(new)
    return key[first], lambda column: np.add.reduceat(column[order], first)


def _by_counting(key: Hashes) -> tuple[Hashes, Sums]:
    """Return the same for keys that are small numbers, which takes no sorting."""
    at = key.astype(np.int64)
    found = np.flatnonzero(np.bincount(at))
    return found.astype(np.uint64), lambda x: np.asarray(np.bincount(at, x)[found], np.float64)


class Clustered(NamedTuple):
    """Means with covariance and degrees of freedom as `zib.stats.comparison.ArmValues` has them.

    `effect` is the design effect of each arm, its variance over that of independent rows, and
    `skewness` that of each mean.
    """

    covariance: Array
    df: Array
    effect: Array
    skewness: Array


def clustered(
    cluster: Codes,
    arm: Codes,
    top: Array,
    base: Array,
    row_variance: Array,
    rows: Array,
    *,
    compared: bool = True,
) -> Clustered:
    """Return the covariance of top/base, each summed over the rows of an arm, for all arms.

    Parameters
    ----------
    cluster, arm, top, base
        One entry per pair of cluster and arm: sums of rewards and of rows, of weights, …
    row_variance
        (K,): the variance of the mean of each arm if rows were independent.
    rows
        (K,): number of rows behind each mean.
    compared
        Whether means are to be compared. Otherwise variances and degrees of freedom, (K,), take the
        place of the matrices, which take as long again.

    Notes
    -----
    The bias-reduced sandwich CR2 of Bell and McCaffrey (2002): deviations of a cluster are divided
    by √(1 − h), h its share in the arm. Arms may vary within clusters or between them. Degrees of
    freedom are Satterthwaite's for clusters of these sizes, with rows of a cluster correlated as
    much as the design effect says (Imbens and Kolesár 2016): few large clusters count as few. For
    the difference of two arms, what they share counts once.

    An arm that a single cluster makes up has an infinite variance.
    """
    k = rows.size
    total = np.bincount(arm, base, k)
    some = np.where(total > 0.0, total, 1.0)
    mean = np.bincount(arm, top, k) / some
    share = base / some[arm]
    score = (top - mean[arm] * base) / some[arm]
    left = 1.0 - share
    alone = left <= 1e-12
    score = np.where(alone, 0.0, score / np.sqrt(np.where(alone, 1.0, left)))
    variance = np.bincount(arm, score * score, k)
    unknown = (np.bincount(arm, alone & (base > 0.0), k) > 0) | (total <= 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        effect = np.where(row_variance > 0.0, variance / row_variance, np.nan)
        skewness = np.bincount(arm, score**3, k) / variance**1.5
        skewness = np.where(np.isfinite(skewness), skewness, 0.0)
    size = share * rows[arm]  # rows of the pair, at the average weight of its arm
    mass = np.bincount(arm, size * (size - 1.0), k)
    excess, spread = np.nansum((effect - 1.0) * rows), float(mass.sum())
    alike = float(np.clip(excess / spread, 0.0, 1.0)) if spread > 0.0 else 0.0
    left = np.where(alone, 1.0, left)
    scale = np.maximum(rows[arm], 1.0) ** 2
    alike_too = size * (1.0 + alike * np.maximum(size - 1.0, 0.0)) / scale
    own = _freedom(arm, share, alike_too, left, k)
    if not compared or k > MOST_ARMS:
        return Clustered(np.where(unknown, np.inf, variance), own, effect, skewness)
    from scipy.sparse import csr_array

    shape = (int(cluster.max()) + 1 if cluster.size else 1, k)

    def products(x: Array) -> Array:
        found = csr_array((x, (cluster, arm)), shape=shape)
        return np.asarray((found.T @ found).todense())

    def of_differences(work: Array, each: Array) -> Array:
        """Return degrees of freedom if these are the variances of the clusters' sums."""
        whole = np.bincount(arm, work, k)
        with np.errstate(divide="ignore", invalid="ignore"):
            both = np.add.outer(whole**2 / each, whole**2 / each) + 2.0 * products(work)
            return np.asarray(np.add.outer(whole, whole) ** 2 / both)

    covariance = products(score)
    covariance[np.diag_indices(k)] = variance
    # What rows of a cluster have in common may cancel in a difference within it.
    full = np.add.outer(variance, variance)
    single = np.add.outer(row_variance, row_variance)
    apart = size / scale
    with np.errstate(divide="ignore", invalid="ignore"):
        kept = np.clip((full - 2.0 * covariance - single) / (full - single), 0.0, 1.0)
        kept = np.where(np.isfinite(kept), kept, 1.0)
        plain = of_differences(apart, _freedom(arm, share, apart, left, k))
        df = 1.0 / ((1.0 - kept) / plain + kept / of_differences(alike_too, own))
    df = np.maximum(np.where(np.isfinite(df), df, 1.0), 1.0)
    df[np.diag_indices(k)] = own
    covariance[np.diag_indices(k)] = np.where(unknown, np.inf, variance)
    return Clustered(covariance, df, effect, skewness)


def _freedom(arm: Codes, n: Array, w: Array, left: Array, k: int) -> Array:
    """Return Satterthwaite's degrees of freedom of each arm's variance.

    With n the shares of the clusters (they add up to 1), w the variances of their sums and
    c² = 1/(1 − n), deviations have the covariance C(D_w − n w' − w n' + n n' Σw)C; the result is
    its squared trace over the sum of its squared entries.
    """

    def total(x: Array) -> Array:
        return np.asarray(np.bincount(arm, x, k))

    c2 = 1.0 / left
    whole = total(w)[arm]
    inner = -2.0 * n * w + n * n * whole  # diagonal of what is added to D_w
    trace = total(c2 * (w + inner))
    a, b, d, whole = total(c2 * n * n), total(c2 * n * w), total(c2 * w * w), total(w)
    square = total(c2**2 * (w * w + 2.0 * w * inner))
    square += 2.0 * (a * d + b * b) - 4.0 * a * b * whole + a * a * whole**2
    with np.errstate(divide="ignore", invalid="ignore"):
        found = trace**2 / square
    return np.where(np.isfinite(found), np.maximum(found, 1.0), 1.0)


class ClusteredMoments:
    """What `JointMoments` knows, for clusters in place of rows, in bounded memory.

    Clusters are dealt into bins by their hashes, and clusters of one bin count as one. Unions of
    independent clusters are independent, so that is right for any number of them; it costs degrees
    of freedom only when there are nearly as many clusters as bins, where nobody needs them.

    Attributes
    ----------
    mean
        Of the columns, over rows.

    Examples
    --------
    >>> moments = ClusteredMoments(1)
    >>> cluster = np.array([7, 7, 8, 9], dtype=np.uint64)
    >>> moments.add(np.array([[1.0], [1.0], [4.0], [0.0]]), cluster)
    >>> moments.n, moments.mean.tolist()
    (3, [1.5])
    """

    def __init__(self, width: int, bins: int = BINS) -> None:
        self._shift: Array | None = None
        self._sums: Array = np.zeros((bins, width))
        self._rows: Array = np.zeros(bins)

    def add(self, columns: Array, cluster: Hashes) -> None:
        """Take rows, (n, width), and the hash of the cluster of each."""
        from scipy.sparse import csr_array

        if self._shift is None:
            self._shift = columns.mean(axis=0)  # so that sums of large numbers do not cancel
        bins = (cluster % np.uint64(self._rows.size)).astype(np.int64)
        shape = (self._rows.size, len(columns))
        chosen = csr_array((np.ones(len(columns)), (bins, np.arange(len(columns)))), shape=shape)
        self._sums += chosen @ (columns - self._shift)
        self._rows += np.bincount(bins, minlength=self._rows.size)

    def merge(self, other: ClusteredMoments) -> None:
        """Take all that another has seen."""
        if other._shift is None:
            return
        if self._shift is None:
            self._shift = other._shift
        moved = np.multiply.outer(other._rows, other._shift - self._shift)
        self._sums = self._sums + other._sums + moved
        self._rows = self._rows + other._rows

    @property
    def n(self) -> int:
        """Number of clusters, as far as the bins tell them apart."""
        return int(np.count_nonzero(self._rows))

    @property
    def mean(self) -> Array:
        """Of the columns, over rows."""
        shift = np.zeros(self._sums.shape[1]) if self._shift is None else self._shift
        out: Array = shift + self._sums.sum(axis=0) / max(float(self._rows.sum()), 1.0)
        return out

    def part(self, at: list[int]) -> ClusteredMoments:
        """Return the moments of some columns alone."""
        out = ClusteredMoments(len(at), self._rows.size)
        out._shift = None if self._shift is None else self._shift[at]
        out._sums, out._rows = self._sums[:, at], self._rows
        return out

    def influences(self) -> Array:
        """Return what each cluster adds to the errors of the means, (n, width).

        Their mean is 0 and their covariance matrix with divisor n·(n − 1) is that of the means.
        """
        there = self._rows > 0
        total = max(float(self._rows.sum()), 1.0)
        centre = self._sums.sum(axis=0) / total
        apart = self._sums[there] - np.multiply.outer(self._rows[there], centre)
        return np.asarray(apart * (self.n / total))

    def along(self, direction: Array) -> tuple[float, float]:
        """Return variance and third central moment of a linear combination, with divisor n."""
        found = self.influences() @ direction
        return float(np.mean(found**2)), float(np.mean(found**3))
