"""Means and central moments up to the third order of several columns, added up block by block."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Moments:
    """Count, means, and central sums of second and third order of the columns seen so far.

    Blocks are centred before they are multiplied and merged exactly, so nothing cancels.
    """

    def __init__(self, width: int) -> None:
        self.n = 0
        self.mean: Array = np.zeros(width)
        self.second: Array = np.zeros((width, width))
        self.third: Array = np.zeros((width, width, width))

    def add(self, columns: Array) -> None:
        """Take in rows: (n, width)."""
        n, width = columns.shape
        mean = columns.mean(axis=0)
        centred = columns - mean
        products = (centred[:, :, None] * centred[:, None, :]).reshape(n, width * width)
        second = centred.T @ centred
        third = (products.T @ centred).reshape(width, width, width)
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
        """Return variance and third central moment of a linear combination of the columns."""
        variance = float(direction @ self.second @ direction) / self.n
        third = float(((self.third @ direction) @ direction) @ direction) / self.n
        return max(variance, 0.0), third

    def first(self, width: int) -> Moments:
        """Return the moments of the first columns alone."""
        out = Moments(width)
        out.n, out.mean = self.n, self.mean[:width]
        out.second = self.second[:width, :width]
        out.third = self.third[:width, :width, :width]
        return out
