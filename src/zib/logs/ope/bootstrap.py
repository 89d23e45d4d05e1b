"""Poisson bootstrap of a stream: every row counts Poisson(1) times in every resampled log."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from zib.core.rng import Role, stream
from zib.logs.ope.rows import Block
from zib.logs.ope.scores import Kind, gradients_of, values_of

Array = NDArray[np.float64]

_LEVELS = 2**16
_ROWS_AT_ONCE = 4096


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
