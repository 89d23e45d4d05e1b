"""Means and central moments of data that come in pieces, merged exactly.

Pieces are centred before powers are taken and joined by the formulas of Chan, Golub and LeVeque
(1979) and Pébay (2008), so nothing cancels however large the mean is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Codes = NDArray[np.int64]


class Moments:
    """Counts, means and sums of powers of deviations, element by element.

    Parameters
    ----------
    shape
        Of one observation: the number of columns, or of groups.
    order
        Highest power kept: 2, 3 or 4.

    Attributes
    ----------
    count, mean, m2, m3, m4
        Arrays of `shape`; m2 is the sum of squared deviations from the mean, m3 of their cubes.

    Examples
    --------
    >>> moments = Moments(2)
    >>> moments.add(np.array([[1.0, 10.0], [3.0, 10.0]]))
    >>> moments.add(np.array([[5.0, 40.0]]))
    >>> moments.mean, moments.variance()
    (array([ 3., 20.]), array([  4., 300.]))
    """

    def __init__(self, shape: int | tuple[int, ...] = (), order: int = 2) -> None:
        self.order = order
        self.count: Array = np.zeros(shape)
        self.mean: Array = np.zeros(shape)
        self.m2: Array = np.zeros(shape)
        self.m3: Array = np.zeros(shape)
        self.m4: Array = np.zeros(shape)

    def add(self, rows: NDArray[Any]) -> None:
        """Take observations, shape (n, *shape)."""
        if not len(rows):
            return
        with np.errstate(over="ignore", invalid="ignore"):
            mean = rows.mean(axis=0)
            apart = rows - mean
            powers = [apart**2]
            powers += [powers[0] * apart] if self.order > 2 else []
            powers += [powers[0] ** 2] if self.order > 3 else []
            self._merge(
                np.full(self.mean.shape, float(len(rows))), mean, *(x.sum(axis=0) for x in powers)
            )

    def add_groups(self, group: Codes, x: Array) -> None:
        """Take one number per row, for the group that the row belongs to."""
        size = self.count.size
        with np.errstate(over="ignore", invalid="ignore"):
            n = np.bincount(group, minlength=size).astype(np.float64)
            seen = np.maximum(n, 1.0)
            mean = np.bincount(group, x, size) / seen
            # second pass: what rounding left in the mean
            mean = mean + np.bincount(group, x - mean[group], size) / seen
            apart = x - mean[group]
            square = apart * apart
            powers = [square]
            powers += [square * apart] if self.order > 2 else []
            powers += [square * square] if self.order > 3 else []
            self._merge(n, mean, *(self._sums(group, power) for power in powers))

    def _sums(self, group: Codes, x: Array) -> Array:
        return np.asarray(np.bincount(group, x, self.count.size), dtype=np.float64)

    def merge(self, other: Moments) -> None:
        """Take all that another accumulator has seen."""
        with np.errstate(over="ignore", invalid="ignore"):
            self._merge(other.count, other.mean, other.m2, other.m3, other.m4)

    def _merge(
        self, nb: Array, mean: Array, b2: Array, b3: Array | float = 0.0, b4: Array | float = 0.0
    ) -> None:
        na, n = self.count, np.maximum(self.count + nb, 1.0)
        d = np.where((na > 0) & (nb > 0), mean - self.mean, 0.0)
        both = na * nb
        if self.order > 3:
            self.m4 = (
                self.m4 + b4
                + d**4 * both * (na * na - both + nb * nb) / n**3
                + 6.0 * d * d * (na * na * b2 + nb * nb * self.m2) / n**2
                + 4.0 * d * (na * b3 - nb * self.m3) / n
            )  # fmt: skip
        if self.order > 2:
            self.m3 = (
                self.m3 + b3
                + d**3 * both * (na - nb) / n**2
                + 3.0 * d * (na * b2 - nb * self.m2) / n
            )  # fmt: skip
        self.m2 = self.m2 + b2 + d * d * both / n
        self.mean = np.where(na == 0, mean, self.mean + d * nb / n)
        self.count = na + nb

    def variance(self) -> Array:
        """Return the variances with divisor n − 1; NaN for fewer than two observations."""
        found = self.m2 / np.maximum(self.count - 1.0, 1.0)
        return np.where(self.count > 1.0, found, np.nan)

    def standard_error(self) -> Array:
        """Return the standard errors of the means."""
        return np.sqrt(self.variance() / np.maximum(self.count, 1.0))

    def pooled(self) -> tuple[float, float, float, float]:
        """Return count, mean, and the second and third centred sums of all elements together."""
        n = float(self.count.sum())
        if n == 0.0:
            return 0.0, float("nan"), 0.0, 0.0
        mean = float(self.count.ravel() @ self.mean.ravel() / n)
        d = np.where(self.count > 0, self.mean - mean, 0.0)
        m2 = float((self.m2 + self.count * d * d).sum())
        m3 = float((self.m3 + 3.0 * d * self.m2 + self.count * d**3).sum())
        return n, mean, m2, m3


class JointMoments:
    """Means and joint central sums of second and third order of several columns.

    From these come variance and skewness of any linear combination, and so, by the delta method,
    of any smooth function of the means.

    Examples
    --------
    >>> moments = JointMoments(2)
    >>> moments.add(np.array([[0.0, 1.0], [2.0, 0.0], [4.0, 2.0]]))
    >>> moments.along(np.array([1.0, -1.0]))  # variance and third moment of the difference
    (2.0, -2.0)
    """

    def __init__(self, width: int) -> None:
        self.n = 0
        self.mean: Array = np.zeros(width)
        self.second: Array = np.zeros((width, width))
        self.third: Array = np.zeros((width, width, width))

    def add(self, columns: Array) -> None:
        """Take rows: (n, width)."""
        n, width = columns.shape
        mean = columns.mean(axis=0)
        centred = columns - mean
        products = (centred[:, :, None] * centred[:, None, :]).reshape(n, width * width)
        third = (products.T @ centred).reshape(width, width, width)
        self._join(n, mean, centred.T @ centred, third)

    def merge(self, other: JointMoments) -> None:
        """Take all that another accumulator has seen."""
        if other.n:
            self._join(other.n, other.mean, other.second, other.third)

    def _join(self, n: int, mean: Array, second: Array, third: Array) -> None:
        before, total = self.n, self.n + n
        step = mean - self.mean
        outer = np.multiply.outer(step, step)
        mixed = np.multiply.outer(step, before * second - n * self.second) / total
        self.third += (
            third
            + np.multiply.outer(outer, step) * (before * n * (before - n) / total**2)
            + mixed
            + mixed.transpose(1, 0, 2)
            + mixed.transpose(1, 2, 0)
        )
        self.second += second + outer * (before * n / total)
        self.mean = self.mean + step * (n / total)
        self.n = total

    def along(self, direction: Array) -> tuple[float, float]:
        """Return variance and third central moment of a linear combination, with divisor n."""
        variance = float(direction @ self.second @ direction) / self.n
        third = float(((self.third @ direction) @ direction) @ direction) / self.n
        return max(variance, 0.0), third

    def first(self, width: int) -> JointMoments:
        """Return the moments of the first columns alone."""
        out = JointMoments(width)
        out.n, out.mean = self.n, self.mean[:width]
        out.second = self.second[:width, :width]
        out.third = self.third[:width, :width, :width]
        return out
