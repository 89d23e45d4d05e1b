"""Random numbers that belong to a row, and samples of bounded size drawn with them.

Every number depends on the seed and on the number of its row only. What is drawn from a stream is
therefore the same, bit for bit, in whatever pieces the stream comes.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

Codes = NDArray[np.int64]
Hashes = NDArray[np.uint64]
Column = NDArray[Any]

ROOM = 262_144  # rows held before a sample is cut back
FEW_GROUPS = 8  # up to which each is looked at by itself
_FOLDS = 1  # salt of the folds; samples have salts of their own
_STEP = np.uint64(0x9E3779B97F4A7C15)
_MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


def row_hashes(seed: int, salt: int, start: int, size: int) -> Hashes:
    """Return 64 random bits for each of `size` rows from number `start` on.

    The finaliser of SplitMix64, applied twice with keys from the seed and the `salt`, which keeps
    different uses apart. It is a bijection: no two rows have the same bits.

    Examples
    --------
    >>> bool((row_hashes(0, 1, 10, 5) == row_hashes(0, 1, 0, 15)[10:]).all())
    True
    """
    return mixed(seed, salt, np.arange(start, start + size, dtype=np.uint64))


def mixed(seed: int, salt: int, x: Hashes) -> Hashes:
    """Return 64 random bits for each whole number, the same for the same number."""
    key = np.random.SeedSequence(seed, spawn_key=(salt,)).generate_state(2, np.uint64)
    for word in key:
        x = (x ^ word) + _STEP  # wraps around
        x = (x ^ (x >> np.uint64(30))) * _MIX[0]
        x = (x ^ (x >> np.uint64(27))) * _MIX[1]
        x ^= x >> np.uint64(31)
    return x


def folds_of(seed: int, start: int, size: int, folds: int, cluster: Hashes | None = None) -> Codes:
    """Return the fold of each of `size` rows from number `start` on; clusters stay together."""
    found = (
        row_hashes(seed, _FOLDS, start, size) if cluster is None else mixed(seed, _FOLDS, cluster)
    )
    return (found % np.uint64(folds)).astype(np.int64)


class SmallestHashes:
    """The rows with the smallest hashes: a sample without replacement in bounded memory.

    Parameters
    ----------
    most
        Rows kept, of each group.
    n_groups
        Groups are sampled apart: at most `most` rows of each.

    Attributes
    ----------
    seen
        How many rows of each group came by.

    Examples
    --------
    >>> sample = SmallestHashes(100)
    >>> for start in range(0, 1_000, 250):
    ...     rows = np.arange(start, start + 250)
    ...     sample.add(row_hashes(0, 2, start, 250), rows)
    >>> (drawn,) = sample.rows()
    >>> len(set(drawn.tolist())), int(sample.seen[0])
    (100, 1000)
    """

    def __init__(self, most: int, n_groups: int = 1) -> None:
        self._most = most
        self._bars: Hashes = np.full(n_groups, 2**64 - 1, dtype=np.uint64)
        self._room = max(2 * most * n_groups, ROOM)
        self._parts: list[tuple[Column, ...]] = []
        self._held = 0
        self.seen: Codes = np.zeros(n_groups, dtype=np.int64)

    def add(self, key: Hashes, *columns: Column, group: Codes | None = None) -> None:
        """Offer rows with their hashes; `group` says which group each is of."""
        if group is None:
            self.seen[0] += key.size
            near = np.flatnonzero(key <= self._bars[0])
            group = np.zeros(near.size, dtype=np.int64)
        else:
            self.seen += np.bincount(group, minlength=self.seen.size)
            near = np.flatnonzero(key <= self._bars[group])
            group = group[near]
        if not near.size:
            return
        self._parts.append((group, key[near], *(column[near] for column in columns)))
        self._held += near.size
        if self._held > self._room:
            self._trim()

    def merge(self, other: SmallestHashes) -> None:
        """Take what was drawn from other rows; the sample is that of all rows together."""
        self.seen += other.seen
        np.minimum(self._bars, other._bars, out=self._bars)
        self._parts += other._parts
        self._held += other._held
        if self._held > self._room:
            self._trim()

    def _trim(self) -> None:
        """Leave out rows that cannot be among the smallest; a selection is faster than sorting."""
        if self._bars.size > FEW_GROUPS:
            self._settle()
            return
        group = np.concatenate([part[0] for part in self._parts])
        key = np.concatenate([part[1] for part in self._parts])
        for g in range(self._bars.size):
            own = key if self._bars.size == 1 else key[group == g]
            if own.size > self._most:
                bar = np.partition(own, self._most - 1)[self._most - 1]
                self._bars[g] = min(self._bars[g], bar)
        kept = []
        for part in self._parts:
            at = np.flatnonzero(part[1] <= self._bars[part[0]])
            if at.size:
                kept.append(tuple(column[at] for column in part))
        self._parts, self._held = kept, sum(part[1].size for part in kept)

    def _settle(self) -> tuple[Column, ...]:
        group, key, *columns = (np.concatenate(part) for part in zip(*self._parts, strict=True))
        order = np.argsort(key, kind="stable")
        if self._bars.size > 1:
            order = order[np.argsort(group[order], kind="stable")]
        inside = group[order]
        rank = np.arange(order.size) - np.searchsorted(inside, np.arange(self._bars.size))[inside]
        last = rank == self._most - 1
        self._bars[inside[last]] = key[order[last]]
        order = order[rank < self._most]
        self._parts = [tuple(column[order] for column in (group, key, *columns))]
        self._held = order.size
        return self._parts[0]

    def rows(self) -> tuple[Column, ...]:
        """Return the columns of the rows kept, group by group in the order of their hashes.

        Empty where nothing was offered.
        """
        return self._settle()[2:] if self._parts else ()

    def groups(self) -> list[tuple[Column, ...]]:
        """Return the columns of the rows kept, for each group apart."""
        if not self._parts:
            return [() for _ in self._bars]
        group, _, *columns = self._settle()
        ends = np.searchsorted(group, np.arange(self._bars.size + 1))
        return [
            tuple(column[low:high] for column in columns) for low, high in itertools.pairwise(ends)
        ]
