"""One pass over a log: blocks of rows, and readers that add up what they need of them.

Rows are cut into blocks of a fixed size before anything is added up, however the log hands them
out, and what is random belongs to a row (`zib.stats.sampling`). Numbers are therefore the same, bit
for bit, for a log in memory and for the same log read from a file.

A reader has a method ``look(block)``. `read` shows every block to several readers, so that one
reading of a file serves counts, moments, samples and fits alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from zib.core.validate import InvalidParameterError
from zib.logs.log import Hashes, Log
from zib.stats.sampling import SmallestHashes, row_hashes

Array = NDArray[np.float64]
Codes = NDArray[np.int64]
Columns = tuple[Array | Codes | Hashes | None, ...]

BLOCK = 65_536
CELLS = 2**22  # at most so many (row, arm) pairs at once, for logs with many arms


class Block(NamedTuple):
    """Consecutive rows, `number` blocks after the first one; columns as in `LogBatch`."""

    number: int
    start: int
    arm: Codes
    reward: Array
    propensity: Array | None
    context: Array
    time: Array | None = None
    cluster: Hashes | None = None

    @property
    def size(self) -> int:
        """Number of rows."""
        return int(self.reward.size)


class Reader(Protocol):
    """Adds up something of a log."""

    def look(self, block: Block) -> None:
        """Take in the rows of a block."""


def blocks(log: Log) -> Iterator[Block]:
    """Yield all rows of a log in blocks whose size depends only on the number of arms."""
    full = min(BLOCK, max(CELLS // len(log.arms), 1024))
    waiting: list[Columns] = []
    held = start = 0
    for batch in log.batches():
        columns = batch[1:]
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


def _joined(pieces: list[Columns], number: int, start: int) -> Block:
    first = pieces[0]
    if len(pieces) > 1:
        first = tuple(
            None if column[0] is None else np.concatenate(column)
            for column in zip(*pieces, strict=True)
        )
    return Block(number, start, *first)  # type: ignore[arg-type]


def read(log: Log, *readers: Reader, tell: Callable[[float], None] | None = None) -> None:
    """Show all blocks of a log to the readers; `tell` hears the share of rows read so far."""
    for block in blocks(log):
        for reader in readers:
            reader.look(block)
        if tell is not None:
            tell((block.start + block.size) / log.n_rows)


class Totals:
    """Checks every row and counts: rows and non-zero rewards of each arm, range of the rewards.

    Attributes
    ----------
    rows, nonzero
        Of each arm.
    lowest, highest
        Smallest and largest non-zero reward; infinite where there is none.
    negative
        Number of negative rewards.
    """

    def __init__(self, log: Log) -> None:
        self._n_arms, self._width = len(log.arms), len(log.context_names)
        self.rows: Codes = np.zeros(self._n_arms, dtype=np.int64)
        self.nonzero: Codes = np.zeros(self._n_arms, dtype=np.int64)
        self.lowest, self.highest, self.negative = np.inf, -np.inf, 0

    def look(self, block: Block) -> None:
        """Check and count the rows of a block."""
        if block.context.shape != (block.size, self._width) or not (
            np.isfinite(block.reward).all() and np.isfinite(block.context).all()
        ):
            raise InvalidParameterError(
                "`log` must hold finite rewards and a finite context in every row"
            )
        if block.arm.min() < 0 or block.arm.max() >= self._n_arms:
            raise InvalidParameterError(f"`log` must hold codes of arms below {self._n_arms}")
        self.rows += np.bincount(block.arm, minlength=self._n_arms)
        at = np.flatnonzero(block.reward)
        if at.size:
            x = block.reward[at]
            self.nonzero += np.bincount(block.arm[at], minlength=self._n_arms)
            self.lowest = min(self.lowest, float(x.min()))
            self.highest = max(self.highest, float(x.max()))
            self.negative += int(np.count_nonzero(x < 0.0))


class Sample(NamedTuple):
    """Rows drawn from a log; `weight` says how many rows of the log each stands for."""

    arm: Codes
    context: Array
    reward: Array
    weight: Array


class RowSampler:
    """Draws at most `capacity` rows from a log, in memory that does not grow with it.

    With `balanced`, rows with and without a reward are drawn apart and as many of either as
    possible: rewards are rare, and half of a plain sample's information would be left in the file.
    """

    def __init__(self, capacity: int, seed: int, salt: int, balanced: bool) -> None:
        self._capacity = capacity
        self._seed, self._salt = seed, salt
        self._balanced = balanced
        self._kept = SmallestHashes(capacity, 2 if balanced else 1)

    def look(self, block: Block) -> None:
        """Look at all rows of a block."""
        self.add(block, np.arange(block.size))

    def add(self, block: Block, rows: NDArray[np.int64]) -> None:
        """Look at some rows of a block."""
        key = row_hashes(self._seed, self._salt, block.start, block.size)[rows]
        arm, context, reward = block.arm[rows], block.context[rows], block.reward[rows]
        group = (reward == 0.0).astype(np.int64) if self._balanced else None
        self._kept.add(key, arm, context, reward, group=group)

    def sample(self) -> Sample:
        """Return the rows drawn."""
        seen = self._kept.seen.tolist()
        sizes = [min(n, self._capacity) for n in seen]
        if self._balanced and sum(sizes) > self._capacity:
            half = self._capacity // 2
            first = max(min(sizes[0], half), self._capacity - sizes[1])
            sizes = [first, self._capacity - first]
        parts = [
            (*(column[:size] for column in columns), np.full(size, n / size))
            for columns, size, n in zip(self._kept.groups(), sizes, seen, strict=True)
            if size
        ]
        if not parts:
            raise InvalidParameterError("`folds` must leave rows to fit on; the log has too few")
        return Sample(*(np.concatenate(c) for c in zip(*parts, strict=True)))


def joined_samples(samples: list[Sample]) -> Sample:
    """Return several samples as one."""
    return Sample(*(np.concatenate(c) for c in zip(*samples, strict=True)))
