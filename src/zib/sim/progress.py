"""A bar with the time left, or a function that is told."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Tick = Callable[[int], None]
PAUSE = 0.1  # seconds between two drawings of the bar


@contextmanager
def progress(wanted: bool | Callable[[int, int], None], total: int) -> Iterator[Tick]:
    """Give a function that is told how many more of `total` steps are done, from any thread."""
    if callable(wanted):
        yield _counting(wanted, total)
        return
    if not wanted:
        yield lambda n: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda n: None
        return
    columns = (
        TextColumn("simulating"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("simulating", total=total)
        tick, finish = _now_and_then(lambda n: bar.advance(task, n))
        try:
            yield tick
        finally:
            finish()


def _counting(tell: Callable[[int, int], None], total: int) -> Tick:
    done, lock = 0, threading.Lock()

    def tick(n: int) -> None:
        nonlocal done
        with lock:
            done += n
            reached = done
        tell(reached, total)

    return tick


def _now_and_then(advance: Callable[[int], None]) -> tuple[Tick, Callable[[], None]]:
    """Return a tick that gathers steps, since drawing takes longer, and one that draws the last."""
    done, drawn, at, lock = 0, 0, 0.0, threading.Lock()

    def tick(n: int, pause: float = PAUSE) -> None:
        nonlocal done, drawn, at
        with lock:
            done += n
            now = time.monotonic()
            if now - at < pause:
                return
            more, drawn, at = done - drawn, done, now
        advance(more)

    return tick, lambda: tick(0, 0.0)
