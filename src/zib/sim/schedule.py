"""Tracks which blocks are pending, running and done, and talks to the store.

A worker is handed a part of a block, so that few blocks still keep all workers busy. It may return
less than it was asked for; the rest is handed out again. None of this changes a number, because
every replication draws from streams of its own.
"""

from __future__ import annotations

import math
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from zib.sim.loop import Run
from zib.sim.plan import Block, Plan
from zib.sim.store import Claim, Store

PARTS_PER_WORKER = 8
AHEAD = 4  # blocks per worker that may wait in memory until those before them are done
POLL = 0.2  # seconds between two looks at what other processes have finished
MOST_CLAIMS = 256  # each keeps a file open; beyond, two processes may play the same block


class Collector(Protocol):
    """Takes the numbers: results, or a summary, in the making."""

    in_order: bool  # whether it takes the same replications of all policies at once, row by row

    def room(self, block: Block) -> Run:
        """Return arrays with one row per replication of the block, to be filled in."""

    def add(self, runs: Mapping[Block, Run]) -> None:
        """Take finished blocks."""


class _Running:
    """A block in the making: its rows, how many of them are missing, the claim on it."""

    def __init__(self, rows: Run, left: int, claim: Claim | None) -> None:
        self.rows, self.left, self.claim = rows, left, claim


class Schedule:
    """Hands out parts of blocks, takes back what was played, and stores finished blocks.

    It lives in the process that called `zib.simulate`, and one thread uses it.

    Parameters
    ----------
    plan
        What is to be done.
    store
        Where finished blocks are looked up and kept; None for nowhere.
    collector
        Who takes the numbers.
    tick
        Told how many checkpoints were found in the store.
    """

    def __init__(
        self, plan: Plan, store: Store | None, collector: Collector, tick: Callable[[int], None]
    ) -> None:
        self._plan, self._store, self._collector, self._tick = plan, store, collector, tick
        self._pending: deque[Block] = deque()
        self._elsewhere: deque[Block] = deque()  # claimed by other processes
        self._parts: deque[Block] = deque()  # of running blocks, not handed out
        self._running: dict[Block, _Running] = {}
        self._done: dict[Block, Run | None] = {}  # not yet collected; None: to be read from store
        self._unreadable: set[Block] = set()
        self._turn = 0  # the first replication that is not collected, where order matters
        self._looked = 0.0
        self._workers, self._least = 1, plan.block_length
        self._warned = False

    def look_up(self) -> None:
        """Take what is in the store; the other blocks are to be played."""
        for block in self._plan.blocks:
            if not self._found(block):
                self._pending.append(block)

    # -------------------------------------------------------------------------------- questions

    @property
    def policies(self) -> list[int]:
        """The policies that still have something to play."""
        return sorted({block.policy for block in self._pending})

    @property
    def shared(self) -> bool:
        """Whether other processes are at work on some of the blocks."""
        return bool(self._elsewhere)

    @property
    def unfinished(self) -> bool:
        """Whether anything is left, here or elsewhere."""
        return bool(self._pending or self._elsewhere or self._parts or self._running)

    # ------------------------------------------------------------------------------ handing out

    def cut_for(self, workers: int, least: int = 1) -> None:
        """Choose parts so small that so many workers have something to do until the end.

        A part is a share of what is left, so that the last ones are short, but at least `least`
        replications, or a whole block.
        """
        self._workers, self._least = workers, least

    def next(self) -> Block | None:
        """Return a part to play; None if there is nothing to play now (see `unfinished`)."""
        if not self._parts:
            self._start_next()
        return self._parts.popleft() if self._parts else None

    def each(self) -> Iterator[Block]:
        """Return all parts, one after the other; waits for those that are played elsewhere."""
        while self.unfinished:
            part = self.next()
            if part is None:
                time.sleep(POLL)
            else:
                yield part

    def _start_next(self) -> None:
        if not self._pending or self._too_far_ahead():
            self._look_elsewhere()
        while self._pending and not self._parts and not self._too_far_ahead():
            if self._store is None:
                self._start_row()
            else:
                self._start_claimed(self._pending.popleft(), self._store)

    def _too_far_ahead(self) -> bool:
        """Whether too many blocks wait in memory for one before them: they would pile up."""
        waiting = sum(rows is not None for rows in self._done.values())
        return waiting >= AHEAD * self._workers and self._pending[0].first > self._turn

    def _start_row(self) -> None:
        """Start the same replications of all policies, so that an interrupted run has pairs."""
        first = self._pending[0].first
        row = []
        while self._pending and self._pending[0].first == first:
            row.append(self._pending.popleft())
        length = self._length(sum(block.size for block in row))
        parts = [self._start(block, None, length) for block in row]
        self._parts.extend(part for turn in zip(*parts, strict=True) for part in turn)

    def _start_claimed(self, block: Block, store: Store) -> None:
        held = sum(1 for running in self._running.values() if running.claim is not None)
        claim = store.claim(self._plan.key_of(block)) if held < MOST_CLAIMS else Claim()
        if claim is None:
            self._elsewhere.append(block)
        elif self._found(block):  # finished by another process in the meantime
            claim.release()
        else:
            self._parts.extend(self._start(block, claim, self._length(block.size)))

    def _start(self, block: Block, claim: Claim | None, length: int) -> list[Block]:
        self._running[block] = _Running(self._collector.room(block), block.size, claim)
        starts = range(block.first, block.last, length)
        return [Block(block.policy, at, min(at + length, block.last)) for at in starts]

    def _length(self, started: int) -> int:
        """Return the replications of a part, when so many are taken from what is pending."""
        shares = PARTS_PER_WORKER * self._workers
        left = started
        for block in self._pending:
            if left >= shares * self._plan.block_length:
                break
            left += block.size
        return min(self._plan.block_length, max(1, self._least, math.ceil(left / shares)))

    def _look_elsewhere(self) -> None:
        """Take over what other processes have finished, or have left behind when they died."""
        now = time.monotonic()
        if self._elsewhere and now - self._looked >= POLL:
            self._looked = now
            self._pending.extendleft(reversed(self._elsewhere))
            self._elsewhere.clear()

    # ------------------------------------------------------------------------------- taking back

    def take(self, part: Block, rows: Run) -> None:
        """Take the first replications of a part; the others are handed out again."""
        block = self._plan.block_around(part)
        running = self._running[block]
        n = len(rows.regret)
        at = slice(part.first - block.first, part.first - block.first + n)
        # regret last: it says which replications are finished
        for name in ("pulls", "reward", "regret"):
            getattr(running.rows, name)[at] = getattr(rows, name)
        running.left -= n
        if n < part.size:
            self._parts.appendleft(part._replace(first=part.first + n))
        if running.left == 0:
            is_kept = self._keep(block, running.rows)
            del self._running[block]
            if running.claim is not None:
                running.claim.release()
            is_readable = is_kept and block not in self._unreadable
            can_wait = is_readable and self._collector.in_order and block.first > self._turn
            self._done[block] = None if can_wait else running.rows
            self._collect()

    def give_back(self, part: Block) -> None:
        """Hand a part out again: whoever had it is gone."""
        self._parts.appendleft(part)

    def close(self) -> None:
        """Give up all claims, so that others may go on."""
        for running in self._running.values():
            if running.claim is not None:
                running.claim.release()

    def _collect(self) -> None:
        """Hand over what is done, in order if that matters; play again what cannot be read."""
        while blocks := self._ready():
            runs = {block: self._done[block] or self._read(block) for block in blocks}
            damaged = [block for block, rows in runs.items() if rows is None]
            for block in damaged or blocks:
                del self._done[block]
            if damaged:
                self._unreadable.update(damaged)
                self._pending.extendleft(damaged)
                self._tick(-self._checkpoints(damaged))
                return
            self._collector.add({block: rows for block, rows in runs.items() if rows is not None})
            self._turn = blocks[0].last

    def _ready(self) -> list[Block]:
        if not self._collector.in_order:
            return list(self._done)
        row = [block for block in self._done if block.first == self._turn]
        return row if len(row) == len(self._plan.specs) else []

    def _checkpoints(self, blocks: list[Block]) -> int:
        return sum(block.size for block in blocks) * self._plan.checkpoints.size

    # ---------------------------------------------------------------------------------- the store

    def _found(self, block: Block) -> bool:
        """Take over a block that is in the store; where order matters it is read in its turn."""
        if self._store is None or block in self._unreadable:
            return False
        key = self._plan.key_of(block)
        if key not in self._store:
            return False
        rows = None
        if not self._collector.in_order and (rows := self._read(block)) is None:
            return False
        self._store.tidy(key)
        self._done[block] = rows
        self._tick(self._checkpoints([block]))
        self._collect()
        return True

    def _read(self, block: Block) -> Run | None:
        arrays = None if self._store is None else self._store.get(self._plan.key_of(block))
        if arrays is None or not set(Run._fields) <= set(arrays):
            return None
        rows = Run(*(arrays[name] for name in Run._fields))
        fits = rows.regret.shape == (block.size, self._plan.checkpoints.size)
        return rows if fits else None

    def _keep(self, block: Block, rows: Run) -> bool:
        """Store a finished block; False, with one warning, where that cannot be done."""
        if self._store is None:
            return False
        about = {
            "policy": self._plan.labels[block.policy],
            "replications": [block.first, block.last],
            "horizon": self._plan.horizon,
            "seed": self._plan.seed,
        }
        try:
            self._store.put(self._plan.key_of(block), rows._asdict(), about)
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
        return True
