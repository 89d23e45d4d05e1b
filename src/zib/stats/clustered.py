"""Means of rows in clusters: rows of one cluster may depend on each other in any way."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Hashes = NDArray[np.uint64]

BINS = 8192


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
