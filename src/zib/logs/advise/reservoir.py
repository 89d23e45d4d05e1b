"""Samples of bounded size: the rows whose hash is smallest, whatever order they come in."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Hashes = NDArray[np.uint64]
Column = NDArray[Any]

ROOM = 262_144  # rows held beyond a sample before it is cut back


def row_keys(start: int, count: int, seed: int) -> Hashes:
    """Return the hashes of consecutive row numbers: the finaliser of SplitMix64, a bijection."""
    with np.errstate(over="ignore"):
        x = np.arange(start, start + count, dtype=np.uint64)
        x = x * np.uint64(0x9E3779B97F4A7C15) + np.uint64((seed * 0xD1B54A32D192ED03 + 1) % 2**64)
        for _ in range(2):  # twice: neighbouring seeds must not give shifted copies
            x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            x = x ^ (x >> np.uint64(31))
    return x


class Kept:
    """Rows of a bounded sample; `columns` holds one array per field, aligned with `key`."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._parts: list[tuple[Hashes, tuple[Column, ...]]] = []
        self._held = 0
        self._bar = np.uint64(2**64 - 1)
        self.seen = 0

    def add(self, key: Hashes, *columns: Column) -> None:
        """Offer rows; those with the smallest keys stay."""
        self.seen += key.size
        near = key <= self._bar
        if not near.any():
            return
        self._parts.append((key[near], tuple(column[near] for column in columns)))
        self._held += int(near.sum())
        if self._held > 2 * self._most:
            self._settle()

    def _settle(self) -> None:
        key = np.concatenate([part[0] for part in self._parts])
        order = np.argsort(key, kind="stable")[: self._most]
        fields = zip(*(part[1] for part in self._parts), strict=True)
        columns = tuple(np.concatenate(field)[order] for field in fields)
        self._parts = [(key[order], columns)]
        self._held = order.size
        if order.size == self._most:
            self._bar = key[order[-1]]

    def result(self) -> tuple[Column, ...]:
        """Return the columns of the rows kept, in the order of their keys."""
        if not self._parts:
            return ()
        self._settle()
        return self._parts[0][1]


class KeptPerArm(Kept):
    """The same for each arm on its own: at most `most` rows of every arm."""

    def __init__(self, most: int, n_arms: int) -> None:
        super().__init__(most)
        self._bars = np.full(n_arms, 2**64 - 1, dtype=np.uint64)
        self._limit = max(2 * most * n_arms, ROOM)

    def add(self, key: Hashes, *columns: Column) -> None:
        """Offer rows; the first column must be the arm."""
        arm = columns[0].astype(np.int64)
        near = key <= self._bars[arm]
        if not near.any():
            return
        self._parts.append((key[near], tuple(column[near] for column in columns)))
        self._held += int(near.sum())
        if self._held > self._limit:
            self._settle()

    def _settle(self) -> None:
        key = np.concatenate([part[0] for part in self._parts])
        fields = zip(*(part[1] for part in self._parts), strict=True)
        joined = [np.concatenate(field) for field in fields]
        arm = joined[0].astype(np.int64)
        order = np.lexsort((key, arm))
        sorted_arm = arm[order]
        first = np.searchsorted(sorted_arm, np.arange(self._bars.size))
        rank = np.arange(order.size) - first[sorted_arm]
        last = rank == self._most - 1
        self._bars[sorted_arm[last]] = key[order[last]]
        order = order[rank < self._most]
        self._parts = [(key[order], tuple(column[order] for column in joined))]
        self._held = order.size
