"""How a time is taken, and how it is reported."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

Work = Callable[[int], object]
Part = Callable[[bool], "list[Row]"]  # told whether to be quick


class Row(NamedTuple):
    """One measured number: of whom, in which unit, and what we wanted."""

    topic: str
    what: str
    who: str
    value: float | None
    unit: str
    target: float | None = None
    note: str = ""
    at_least: bool = False

    @property
    def met(self) -> bool | None:
        """Whether the target is reached; None where there is no target or no value."""
        if self.target is None or self.value is None:
            return None
        return self.value >= self.target if self.at_least else self.value <= self.target


def interleaved(
    works: Mapping[str, Work],
    *,
    seconds: float = 0.2,
    repeats: int = 5,
    rounds: Mapping[str, int] | None = None,
) -> dict[str, float]:
    """Return the best seconds per round of each work, all measured turn by turn in this process.

    A work is a function that plays `n` rounds. Each is run first for warmth and to learn how many
    rounds fill `seconds` (unless `rounds` says); then all take turns `repeats` times, so that a
    slow spell of the machine hits them alike, and the best turn of each counts. The clock is the
    processor time of this thread: other programs on the machine do not count, and nothing measured
    here uses a second thread.
    """
    fixed = rounds or {}
    rounds = {
        name: _warm(work, fixed[name]) if name in fixed else _rounds_for(work, seconds)
        for name, work in works.items()
    }
    best = dict.fromkeys(works, float("inf"))
    for _ in range(repeats):
        for name, work in works.items():
            best[name] = min(best[name], _once(work, rounds[name]) / rounds[name])
    return best


def _once(work: Work, rounds: int) -> float:
    gc.collect()
    gc.disable()
    try:
        start = time.thread_time()
        work(rounds)
        return time.thread_time() - start
    finally:
        gc.enable()


def _warm(work: Work, rounds: int) -> int:
    work(min(rounds, 1000))
    return rounds


def _rounds_for(work: Work, seconds: float) -> int:
    rounds = 20
    work(rounds)
    while (taken := _once(work, rounds)) < seconds / 4 and rounds < 50_000_000:
        rounds = int(rounds * min(20.0, max(2.0, 0.5 * seconds / max(taken, 1e-9))))
    return max(20, int(rounds * seconds / taken))
