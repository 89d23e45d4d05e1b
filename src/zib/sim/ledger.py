"""The books of a simulation: what is to be played, who plays it, what is done.

Blocks are what is named and stored. Pieces are what a worker is handed: a part of a block, so that
few blocks still keep all workers busy. A worker may return less than it was asked for; the rest is
handed out again. None of this changes a number, because every replication draws from streams of
its own.
"""

from __future__ import annotations

import math
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

from zib.sim.loop import Run
from zib.sim.plan import Block, Plan
from zib.sim.store import Claim, Store

PIECES_PER_WORKER = 8
POLL = 0.2  # seconds between two looks at what other processes have finished
MOST_CLAIMS = 256  # each keeps a file open; beyond, two processes may play the same block


Reader = Callable[[Block], Run | None]


class Piece(NamedTuple):
    """Replications first, …, last − 1, all of one block."""

    block: Block
    first: int
    last: int


class Sink(Protocol):
    """Who takes what was played: `Results` in the making, or a running summary of it."""

    def room(self, block: Block) -> Run:
        """Return arrays with one row per replication of the block, to be filled in."""

    def done(self, block: Block, rows: Run, read: Reader | None) -> None:
        """Take over a block whose arrays have been filled in; `read` finds it in the store."""

    def stored(self, block: Block, read: Reader) -> bool:
        """Take over a block that is in the store, now or in its turn; False if it is not usable."""


class _Open:
    """A block in the making."""

    def __init__(self, rows: Run, left: int, claim: Claim | None) -> None:
        self.rows, self.left, self.claim = rows, left, claim


class Ledger:
    """Hands out pieces, takes back what was played, and stores finished blocks.

    Parameters
    ----------
    plan
        What is to be done.
    store
        Where finished blocks are looked up and kept; None for nowhere.
    sink
        Who takes the numbers.
    tick
        Told how many checkpoints were found in the store.
    """

    def __init__(
        self,
        plan: Plan,
        store: Store | None,
        sink: Sink,
        tick: Callable[[int], None],
    ) -> None:
        self._plan, self._store, self._sink, self._tick = plan, store, sink, tick
        self._waiting: deque[Block] = deque()
        self._elsewhere: deque[Block] = deque()
        self._pieces: deque[Piece] = deque()
        self._open: dict[Block, _Open] = {}
        self._looked = 0.0
        self._workers, self._least = 1, plan.block_length
        self._warned = False

    def look_up(self, blocks: Sequence[Block]) -> None:
        """Take what is in the store; the other blocks are to be played."""
        for block in blocks:
            if not self._found(block):
                self._waiting.append(block)

    # -------------------------------------------------------------------------------- questions

    @property
    def policies(self) -> list[int]:
        """The policies that still have something to play."""
        return sorted({block.policy for block in self._waiting})

    @property
    def block_length(self) -> int:
        """Replications of a whole block."""
        return self._plan.block_length

    @property
    def shared(self) -> bool:
        """Whether other processes are at work on some of the blocks."""
        return bool(self._elsewhere)

    @property
    def unfinished(self) -> bool:
        """Whether anything is left, here or elsewhere."""
        return bool(self._waiting or self._elsewhere or self._pieces or self._open)

    # ------------------------------------------------------------------------------ handing out

    def cut_for(self, workers: int, least: int = 1) -> None:
        """Choose pieces so small that so many workers have something to do until the end.

        A piece is a share of what is left, so that the last ones are short, but at least `least`
        replications, or a whole block.
        """
        self._workers, self._least = workers, least

    def _length(self, opened: int) -> int:
        """Return the replications of a piece, when so many are taken from what is waiting."""
        shares = PIECES_PER_WORKER * self._workers
        left = opened
        for block in self._waiting:
            if left >= shares * self._plan.block_length:
                break
            left += block.last - block.first
        share = math.ceil(left / shares)
        return min(self._plan.block_length, max(1, self._least, share))

    def next(self) -> Piece | None:
        """Return a piece to play; None if there is nothing to play (see `unfinished`)."""
        if not self._pieces:
            self._open_next()
        return self._pieces.popleft() if self._pieces else None

    def each(self) -> Iterator[Piece]:
        """Return all pieces, one after the other; waits for those that are played elsewhere."""
        while self.unfinished:
            piece = self.next()
            if piece is None:
                time.sleep(POLL)
            else:
                yield piece

    def _open_next(self) -> None:
        if not self._waiting:
            self._look_elsewhere()
        while self._waiting and not self._pieces:
            if self._store is None:
                self._open_row()
            else:
                self._open_claimed(self._waiting.popleft(), self._store)

    def _open_row(self) -> None:
        """Open the same replications of all policies, so that an interrupted run has pairs."""
        first = self._waiting[0].first
        row = []
        while self._waiting and self._waiting[0].first == first:
            row.append(self._waiting.popleft())
        length = self._length(sum(block.last - block.first for block in row))
        pieces = [self._cut(block, None, length) for block in row]
        self._pieces.extend(piece for turn in zip(*pieces, strict=True) for piece in turn)

    def _open_claimed(self, block: Block, store: Store) -> None:
        held = sum(1 for part in self._open.values() if part.claim is not None)
        claim = store.claim(block.key) if held < MOST_CLAIMS else Claim()
        if claim is None:
            self._elsewhere.append(block)
        elif self._found(block):  # finished by another process in the meantime
            claim.release()
        else:
            length = self._length(block.last - block.first)
            self._pieces.extend(self._cut(block, claim, length))

    def _cut(self, block: Block, claim: Claim | None, length: int) -> list[Piece]:
        self._open[block] = _Open(self._sink.room(block), block.last - block.first, claim)
        starts = range(block.first, block.last, length)
        return [Piece(block, at, min(at + length, block.last)) for at in starts]

    def _look_elsewhere(self) -> None:
        """Take over what other processes have finished, or have left behind when they died."""
        now = time.monotonic()
        if self._elsewhere and now - self._looked >= POLL:
            self._looked = now
            self._waiting, self._elsewhere = self._elsewhere, deque()

    # ------------------------------------------------------------------------------- taking back

    def take(self, piece: Piece, rows: Run) -> None:
        """Take the first replications of a piece; the others are handed out again."""
        block = piece.block
        part = self._open[block]
        n = len(rows.regret)
        at = slice(piece.first - block.first, piece.first - block.first + n)
        # regret last: it says which replications are finished
        for name in ("pulls", "reward", "regret"):
            getattr(part.rows, name)[at] = getattr(rows, name)
        part.left -= n
        if piece.first + n < piece.last:
            self._pieces.appendleft(piece._replace(first=piece.first + n))
        if part.left == 0:
            kept = self._kept(block, part.rows)
            del self._open[block]
            if part.claim is not None:
                part.claim.release()
            self._sink.done(block, part.rows, self._read if kept else None)

    def give_back(self, piece: Piece) -> None:
        """Hand a piece out again: whoever had it is gone."""
        self._pieces.appendleft(piece)

    def _kept(self, block: Block, rows: Run) -> bool:
        if self._store is None:
            return False
        about = {
            "policy": self._plan.labels[block.policy],
            "replications": [block.first, block.last],
            "horizon": self._plan.horizon,
            "seed": self._plan.seed,
        }
        try:
            self._store.put(block.key, rows._asdict(), about)
            return True
        except OSError as error:
            if not self._warned:
                self._warned = True
                warnings.warn(
                    f"the store {self._store.folder} cannot be written "
                    f"({error.strerror or error}): the simulation goes on and its results are "
                    "whole, but blocks are not kept from here on. Those kept before are safe. "
                    "Make room there or name another folder before you run it again.",
                    RuntimeWarning,
                    stacklevel=2,
                )
            return False

    def _found(self, block: Block) -> bool:
        if self._store is None or block.key not in self._store:
            return False
        found = self._sink.stored(block, self._read)
        if found:
            self._store.tidy(block.key)
            self._tick((block.last - block.first) * self._plan.checkpoints.size)
        return found

    def _read(self, block: Block) -> Run | None:
        arrays = None if self._store is None else self._store.get(block.key)
        if arrays is None:
            return None
        rows = Run(*(arrays.get(name) for name in Run._fields))  # type: ignore[arg-type]
        shape = (block.last - block.first, self._plan.checkpoints.size)
        return rows if rows.regret is not None and rows.regret.shape == shape else None

    def close(self) -> None:
        """Give up all claims, so that others may go on."""
        for part in self._open.values():
            if part.claim is not None:
                part.claim.release()
