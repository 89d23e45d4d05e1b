"""Takes what was played: keeps it all (`Runs`), or merges it in order and forgets it (`Stream`)."""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np

from zib.sim.ledger import Reader
from zib.sim.loop import Run
from zib.sim.plan import Block, Plan
from zib.sim.results import Results
from zib.sim.store import Store
from zib.sim.summary import Merger, Summary


def _empty(plan: Plan, *shape: int) -> Run:
    return Run(
        np.full((*shape, plan.checkpoints.size), np.nan),
        np.full((*shape, plan.checkpoints.size), np.nan),
        np.zeros((*shape, plan.environment.n_arms), dtype=np.int64),
    )


class Runs:
    """Keeps every replication; rows that were not played stay NaN."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._all = _empty(plan, len(plan.specs), plan.replications)

    def room(self, block: Block) -> Run:
        """Return the rows of the block: what is written there is in the results at once."""
        at = slice(block.first, block.last)
        regret, reward, pulls = self._all
        return Run(regret[block.policy, at], reward[block.policy, at], pulls[block.policy, at])

    def done(self, block: Block, rows: Run, read: Reader | None) -> None:
        """Nothing to do: the rows are views."""

    def stored(self, block: Block, read: Reader) -> bool:
        """Copy a stored block."""
        rows = read(block)
        if rows is None:
            return False
        for mine, theirs in zip(self.room(block), rows, strict=True):
            mine[:] = theirs
        return True

    @property
    def finished(self) -> int:
        """How many replications there are, over all policies."""
        return int((~np.isnan(self._all.regret[:, :, -1])).sum())

    def results(self, provenance: dict[str, Any]) -> Results:
        """Return the results so far."""
        plan = self._plan
        return Results(plan.labels, plan.checkpoints, *self._all, provenance)

    def close(self) -> None:
        """Nothing to clean up."""


class Stream:
    """Merges blocks in the order of the plan, whatever order they arrive in.

    So the result is the same to the last bit each time. Blocks that come too early wait on disk:
    in the store, or in a temporary folder where there is none.

    Parameters
    ----------
    plan
        What is being played.
    replay
        Plays one block here and now; called in the rare case that a stored one is damaged.
    """

    def __init__(self, plan: Plan, replay: Callable[[Block], Run]) -> None:
        self._plan, self._replay = plan, replay
        self._merger = Merger(plan)
        self._turn = 0
        self._arrived: dict[tuple[int, int], tuple[Block, Run | Reader]] = {}
        self._folder = contextlib.ExitStack()
        self._spare: Store | None = None

    def room(self, block: Block) -> Run:
        """Return new arrays."""
        return _empty(self._plan, block.last - block.first)

    def done(self, block: Block, rows: Run, read: Reader | None) -> None:
        """Merge the block, or put it aside until its turn comes."""
        held: Run | Reader = rows
        if block.first > self._turn:
            held = read or self._aside(block, rows) or rows
        self._arrived[block.first, block.policy] = (block, held)
        self._merge()

    def stored(self, block: Block, read: Reader) -> bool:
        """Note that the block is in the store; it is read in its turn."""
        self._arrived[block.first, block.policy] = (block, read)
        self._merge()
        return True

    def _merge(self) -> None:
        policies = range(len(self._plan.specs))
        while all((self._turn, policy) in self._arrived for policy in policies):
            turn = [self._arrived.pop((self._turn, policy)) for policy in policies]
            self._merger.add([self._rows(*each) for each in turn])
            self._turn = turn[0][0].last

    def _rows(self, block: Block, held: Run | Reader) -> Run:
        if isinstance(held, Run):
            return held
        return held(block) or self._replay(block)

    def _aside(self, block: Block, rows: Run) -> Reader | None:
        """Write a block to the temporary folder; None if that cannot be done."""
        try:
            if self._spare is None:
                folder = self._folder.enter_context(tempfile.TemporaryDirectory(prefix="zib-"))
                self._spare = Store(folder)
            self._spare.put(_name(block), rows._asdict(), {})
        except OSError:
            return None  # it stays in memory
        return self._read_aside

    def _read_aside(self, block: Block) -> Run | None:
        arrays = None if self._spare is None else self._spare.get(_name(block))
        return None if arrays is None else Run(**arrays)

    @property
    def finished(self) -> int:
        """How many replications were merged, over all policies."""
        return self._merger.count * len(self._plan.specs)

    def results(self, provenance: dict[str, Any]) -> Summary:
        """Return the summary so far."""
        return self._merger.summary(self._plan, provenance)

    def close(self) -> None:
        """Remove the temporary folder."""
        self._folder.close()


def _name(block: Block) -> str:
    return hashlib.sha256(repr(block).encode()).hexdigest()
