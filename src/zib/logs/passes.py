"""One pass over a log: blocks of rows, and readers that add up what they need of them.

Rows are cut into blocks of a fixed size before anything is added up, however the log hands them
out, and what is random belongs to a row (`zib.stats.sampling`). Numbers are therefore the same, bit
for bit, for a log in memory and for the same log read from a file.

A reader has a method ``look(block)``. `read` shows every block to several readers, so that one
reading of a file serves counts, moments, samples and fits alike.

A reader with a method ``merge(other)`` takes what a copy of it has found in the rows that follow.
`read` cuts the log into pieces of some blocks, lets a fresh copy read each piece, and merges them
in order. It does so on one machine as well, so that workers of a cluster (`reading_on`), each with
pieces of its own, come to the same numbers, bit for bit. Blocks for readers that cannot merge are
read by the workers and looked at here.
"""

from __future__ import annotations

import copy
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, ParamSpec, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from zib.core.cluster import Machines, check_backend, machines
from zib.core.validate import InvalidParameterError
from zib.logs.log import Hashes, Log, LogBatch
from zib.stats.sampling import SmallestHashes, row_hashes

Array = NDArray[np.float64]
Codes = NDArray[np.int64]
P = ParamSpec("P")
R = TypeVar("R")
Columns = tuple[Array | Codes | Hashes | None, ...]

BLOCK = 65_536
PIECE = 64  # blocks; samples start anew in each, which takes time where pieces are small
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


def block_rows(log: Log) -> int:
    """Return how many rows a block of a log has."""
    return min(BLOCK, max(CELLS // len(log.arms), 1024))


def blocks(log: Log) -> Iterator[Block]:
    """Yield all rows of a log in blocks whose size depends only on the number of arms."""
    start = 0
    for block in _cut(log.batches(), block_rows(log), 0):
        yield block
        start = block.start + block.size
    if start != log.n_rows:
        raise InvalidParameterError(
            f"`log` must hand out as many rows as it says, {log.n_rows}; got {start}"
        )


def _cut(batches: Iterable[LogBatch], full: int, start: int) -> Iterator[Block]:
    """Yield the rows from number `start` on in blocks of `full` rows."""
    waiting: list[Columns] = []
    held = 0
    for batch in batches:
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


def _joined(pieces: list[Columns], number: int, start: int) -> Block:
    first = pieces[0]
    if len(pieces) > 1:
        first = tuple(
            None if column[0] is None else np.concatenate(column)
            for column in zip(*pieces, strict=True)
        )
    return Block(number, start, *first)  # type: ignore[arg-type]


_MACHINES: ContextVar[Machines] = ContextVar("machines", default=Machines())  # noqa: B039


@contextmanager
def reading_on(
    backend: str = "serial", workers: int | None = None, scheduler: str | None = None
) -> Iterator[Machines]:
    """Let `read` use a cluster (``backend="dask"``) inside this context, or this process alone."""
    with machines(backend, workers, scheduler) as found:
        token = _MACHINES.set(found)
        try:
            yield found
        finally:
            _MACHINES.reset(token)


def on_machines(function: Callable[P, R]) -> Callable[P, R]:
    """Let a function with the parameters `backend`, `workers` and `scheduler` read logs there."""

    @functools.wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        given: dict[str, Any] = {
            name: kwargs[name] for name in ("backend", "workers", "scheduler") if name in kwargs
        }
        backend = given.setdefault("backend", "serial")
        check_backend(backend, given.get("workers"), given.get("scheduler"))
        if backend == "serial":
            return function(*args, **kwargs)
        with reading_on(**given):
            return function(*args, **kwargs)

    return called


def read(log: Log, *readers: Reader, tell: Callable[[float], None] | None = None) -> None:
    """Show all blocks of a log to the readers; `tell` hears the share of rows read so far."""
    merging = [reader for reader in readers if hasattr(reader, "merge")]
    others = [reader for reader in readers if not hasattr(reader, "merge")]
    empty = tuple(_fresh(reader) for reader in merging)
    if _MACHINES.get().many:
        pieces = _spread(log, empty, bool(others))
    else:
        pieces = _in_turn(log, empty, others)
    done = 0
    for found, rest in pieces:
        for block in rest:
            for reader in others:
                reader.look(block)
        for reader, piece in zip(merging, found, strict=True):
            reader.merge(piece)
        done += PIECE * block_rows(log)
        if tell is not None:
            tell(min(done / log.n_rows, 1.0))


Piece = tuple[tuple[Reader, ...], list[Block]]


def _fresh(reader: Reader) -> Any:
    """Return a reader as it was before the first row."""
    return reader.fresh() if hasattr(reader, "fresh") else copy.deepcopy(reader)


def _in_turn(log: Log, empty: tuple[Reader, ...], others: list[Reader]) -> Iterator[Piece]:
    """Read the log here, one piece after the other; `others` look at every block."""
    found = blocks(log)
    while first := next(found, None):
        readers = tuple(_fresh(reader) for reader in empty)
        for block in itertools.chain([first], itertools.islice(found, PIECE - 1)):
            for reader in (*readers, *others):
                reader.look(block)
        yield readers, []


def _spread(log: Log, empty: tuple[Reader, ...], whole: bool) -> Iterator[Piece]:
    """Let workers read the pieces; with `whole` the blocks come back as well."""
    full = block_rows(log)
    parts: Iterable[Any]
    there = getattr(log, "seekable", False)  # workers can read it themselves
    if there:
        n, step = log.n_rows, full * PIECE
        parts = ((start, min(start + step, n)) for start in range(0, n, step))
    else:
        parts = _grouped(blocks(log), PIECE)
    shared = (log if there else None, full, empty, whole)
    yield from _MACHINES.get().each(_look_at, shared, parts)


def _grouped(found: Iterator[Block], size: int) -> Iterator[list[Block]]:
    while group := list(itertools.islice(found, size)):
        yield group


def merge_parts(reader: Any, other: Any, *own: str) -> None:
    """Merge two readers attribute by attribute.

    What has a method ``merge`` is merged, also in lists and dictionaries and where one side has
    none yet; True in one is True; names in `own` are left to the caller. Everything else has to be
    a setting, the same in both. So a reader with a new part cannot forget to merge it.
    """
    for name, value in vars(reader).items():
        if name in own:
            continue
        there = getattr(other, name)
        if value is None and hasattr(there, "merge"):
            setattr(reader, name, there)
        elif isinstance(value, bool):
            setattr(reader, name, value or there)
        elif not _merged(value, there):
            raise TypeError(f"{type(reader).__name__} must say how `{name}` is merged")


def _merged(one: Any, other: Any) -> bool:
    """Merge what can be; return whether the two are one now."""
    if hasattr(one, "merge"):
        if other is not None:
            one.merge(other)
        return True
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_merged, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_merged(one[key], other[key]) for key in one)
    return one is other or (isinstance(one, (int, float, str, tuple)) and bool(one == other))


def _look_at(shared: tuple[Any, int, tuple[Reader, ...], bool], part: Any) -> Piece:
    """Return what readers find in one piece; runs on a worker."""
    log, full, empty, whole = shared
    found = part if log is None else _cut(log.rows(*part), full, part[0])
    readers = tuple(_fresh(reader) for reader in empty)
    kept = []
    for block in found:
        for reader in readers:
            reader.look(block)
        if whole:
            kept.append(block)
    return readers, kept


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

    def merge(self, other: Totals) -> None:
        """Take the counts of other rows."""
        self.rows += other.rows
        self.nonzero += other.nonzero
        self.lowest = min(self.lowest, other.lowest)
        self.highest = max(self.highest, other.highest)
        self.negative += other.negative


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

    def merge(self, other: RowSampler) -> None:
        """Take what was drawn from other rows."""
        self._kept.merge(other._kept)

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
