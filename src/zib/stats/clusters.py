"""Means of arms whose rows come in clusters: covariances that let rows of a cluster depend.

A log with several rows per user holds less than its number of rows. `ClusterSums` adds up columns
for each cluster and arm; `clustered` turns the sums into the covariance of the arms' means.
`ClusteredMoments` is for columns that belong to no arm, such as the terms of a doubly robust value.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Codes = NDArray[np.int64]
Hashes = NDArray[np.uint64]

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
        self._groups = 1 << max((MOST // (8 * n_arms)).bit_length(), 10)
        self._folded = False
        self._cluster: Hashes = np.empty(0, np.uint64)
        self._arm: Codes = np.empty(0, np.int64)
        self._sums: Array = np.empty((0, width))
        self._waiting: list[tuple[Hashes, Codes, Array]] = []
        self._held = 0

    def add(self, cluster: Hashes, arm: Codes, *columns: Array) -> None:
        """Take rows: the hash of the cluster, the arm and the columns of each."""
        self._take(*_added_up(cluster, arm, np.column_stack(columns)))

    def merge(self, other: ClusterSums) -> None:
        """Take all that another accumulator has seen."""
        other._settle()
        self._folded = self._folded or other._folded
        self._take(other._cluster, other._arm, other._sums)
        self._settle()

    def _take(self, cluster: Hashes, arm: Codes, sums: Array) -> None:
        self._waiting.append((cluster, arm, sums))
        self._held += arm.size
        if self._held > max(ROOM, self._arm.size):
            self._settle()

    def _settle(self) -> None:
        """Add up what waits; put clusters together when there are too many."""
        parts = [(self._cluster, self._arm, self._sums), *self._waiting]
        self._waiting, self._held = [], 0
        cluster, arm, sums = (np.concatenate(column) for column in zip(*parts, strict=True))
        if self._folded:
            cluster = cluster % np.uint64(self._groups)
        cluster, arm, sums = _added_up(cluster, arm, sums)
        if not self._folded and arm.size > MOST:
            self._folded = True
            cluster, arm, sums = _added_up(cluster % np.uint64(self._groups), arm, sums)
        self._cluster, self._arm, self._sums = cluster, arm, sums

    def table(self) -> tuple[Codes, Codes, Array]:
        """Return cluster (numbered from 0), arm and sums of each pair that occurs."""
        self._settle()
        new = np.ones(self._cluster.size, bool)
        new[1:] = self._cluster[1:] != self._cluster[:-1]
        return np.cumsum(new) - 1, self._arm, self._sums


def _added_up(cluster: Hashes, arm: Codes, sums: Array) -> tuple[Hashes, Codes, Array]:
    """Return each pair of cluster and arm once, sorted, with its sums."""
    if not arm.size:
        return cluster, arm, sums
    order = np.lexsort((arm, cluster))
    cluster, arm = cluster[order], arm[order]
    new = np.ones(arm.size, bool)
    new[1:] = (cluster[1:] != cluster[:-1]) | (arm[1:] != arm[:-1])
    at = np.flatnonzero(new)
    return cluster[at], arm[at], np.add.reduceat(sums[order], at, axis=0)


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
    cluster: Codes, arm: Codes, top: Array, base: Array, row_variance: Array, rows: Array
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
    apart, alike_too = size / scale, size * (1.0 + alike * np.maximum(size - 1.0, 0.0)) / scale
    own = _freedom(arm, share, alike_too, left, k)
    if k > MOST_ARMS:
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
