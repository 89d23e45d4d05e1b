"""Rows of a log in blocks of fixed size, and random numbers that belong to a row.

Blocks start at multiples of one size, however the log hands out its rows, and every random number
depends on the seed and on the number of its row or block only. Results are therefore the
same, bit for bit, for a log in memory and for the same log read from a file.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from zib.core.validate import InvalidParameterError
from zib.logs.log import Log

BLOCK = 65_536
_CELLS = 2**22  # at most so many (row, arm) pairs at once, for logs with many arms

Array = NDArray[np.float64]
Codes = NDArray[np.int64]
Hashes = NDArray[np.uint64]

_MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_STEP = np.uint64(0x9E3779B97F4A7C15)


class Block(NamedTuple):
    """Consecutive rows, `number` blocks after the first one."""

    number: int
    start: int
    arm: Codes
    reward: Array
    propensity: Array | None
    context: Array

    @property
    def size(self) -> int:
        """Number of rows."""
        return int(self.reward.size)


def blocks(log: Log) -> Iterator[Block]:
    """Yield all rows of a log in blocks whose size depends only on the number of arms."""
    full = min(BLOCK, max(_CELLS // len(log.arms), 1024))
    waiting: list[tuple[Array | Codes | None, ...]] = []
    held = start = 0
    for batch in log.batches():
        columns = (batch.arm, batch.reward, batch.propensity, batch.context)
        size, at = batch.reward.size, 0
        while at < size:
            take = min(size - at, full - held)
            waiting.append(tuple(None if c is None else c[at : at + take] for c in columns))
            held, at = held + take, at + take
            if held == full:
                yield _joined(waiting, start // full, start)
                start, held, waiting = start + held, 0, []
    if held:
        yield _joined(waiting, start // full, start)
        start += held
    if start != log.n_rows:
        raise InvalidParameterError(
            f"`log` must hand out as many rows as it says, {log.n_rows}; got {start}"
        )


def _joined(pieces: list[tuple[Array | Codes | None, ...]], number: int, start: int) -> Block:
    first = pieces[0]
    if len(pieces) > 1:
        first = tuple(
            None if column[0] is None else np.concatenate(column)
            for column in zip(*pieces, strict=True)
        )
    return Block(number, start, *first)  # type: ignore[arg-type]


def row_hashes(seed: int, salt: int, start: int, size: int) -> Hashes:
    """Return 64 random bits per row, from its number alone (the finaliser of SplitMix64, twice)."""
    key = np.random.SeedSequence(seed, spawn_key=(salt,)).generate_state(2, np.uint64)
    x: Hashes = np.arange(start, start + size, dtype=np.uint64)
    for word in key:
        x = (x ^ word) + _STEP  # wraps around
        x = (x ^ (x >> np.uint64(30))) * _MIX[0]
        x = (x ^ (x >> np.uint64(27))) * _MIX[1]
        x ^= x >> np.uint64(31)
    return x


def folds_of(seed: int, start: int, size: int, folds: int) -> Codes:
    """Return the fold of each row."""
    return (row_hashes(seed, 1, start, size) % np.uint64(folds)).astype(np.int64)


class Sample(NamedTuple):
    """Rows drawn from a log; `weight` says how many rows of the log each stands for."""

    arm: Codes
    context: Array
    reward: Array
    weight: Array


class _Smallest:
    """The rows with the smallest hashes among all that came by: a sample without replacement."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.seen = 0
        self._limit = np.uint64(2**64 - 1)
        self._parts: list[tuple[Hashes, Codes, Array, Array]] = []
        self._held = 0

    def add(self, key: Hashes, arm: Codes, context: Array, reward: Array) -> None:
        self.seen += key.size
        keep = np.flatnonzero(key <= self._limit)
        if not keep.size:
            return
        self._parts.append((key[keep], arm[keep], context[keep], reward[keep]))
        self._held += keep.size
        if self._held > 2 * self.capacity:
            self.cut(self.capacity)

    def cut(self, size: int) -> tuple[Hashes, Codes, Array, Array] | None:
        """Keep the `size` smallest and return them in order of appearance."""
        if not self._parts:
            return None
        key, arm, context, reward = (np.concatenate(c) for c in zip(*self._parts, strict=True))
        if key.size > size:
            keep = np.sort(np.argpartition(key, size)[:size])
            key, arm, context, reward = key[keep], arm[keep], context[keep], reward[keep]
            self._limit = key.max() if key.size else np.uint64(0)
        self._parts, self._held = [(key, arm, context, reward)], key.size
        return self._parts[0]


class RowSampler:
    """Draws at most `capacity` rows from a stream, in memory that does not grow with it.

    With `balanced`, rows with and without a reward are drawn apart and as many of either as
    possible: rewards are rare, and half of a plain sample's information would be left in the file.
    """

    def __init__(self, capacity: int, seed: int, salt: int, balanced: bool) -> None:
        self._capacity = capacity
        self._seed, self._salt = seed, salt
        self._balanced = balanced
        self._strata = [_Smallest(capacity) for _ in range(2 if balanced else 1)]

    def add(self, block: Block, rows: NDArray[np.int64]) -> None:
        """Look at some rows of a block."""
        key = row_hashes(self._seed, self._salt, block.start, block.size)[rows]
        arm, context, reward = block.arm[rows], block.context[rows], block.reward[rows]
        if not self._balanced:
            self._strata[0].add(key, arm, context, reward)
            return
        paid = reward != 0.0
        for stratum, inside in zip(self._strata, (paid, ~paid), strict=True):
            at = np.flatnonzero(inside)
            stratum.add(key[at], arm[at], context[at], reward[at])

    def sample(self) -> Sample:
        """Return the rows drawn."""
        sizes = [min(s.seen, self._capacity) for s in self._strata]
        if self._balanced and sum(sizes) > self._capacity:
            half = self._capacity // 2
            first = max(min(sizes[0], half), self._capacity - sizes[1])
            sizes = [first, self._capacity - first]
        parts = []
        for stratum, size in zip(self._strata, sizes, strict=True):
            found = stratum.cut(size) if size else None
            if found is not None:
                _, arm, context, reward = found
                parts.append((arm, context, reward, np.full(arm.size, stratum.seen / arm.size)))
        if not parts:
            raise InvalidParameterError("`folds` must leave rows to fit on; the log has too few")
        return Sample(*(np.concatenate(c) for c in zip(*parts, strict=True)))


def joined_samples(samples: list[Sample]) -> Sample:
    """Return several samples as one."""
    return Sample(*(np.concatenate(c) for c in zip(*samples, strict=True)))
