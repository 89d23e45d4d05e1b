"""A clock that tests move, and ledgers that run by it in the caller's thread."""

from __future__ import annotations

from typing import Any

from zib.live import Ledger

START = 1_700_000_000.0


class Clock:
    """Seconds since 1970, as the test says."""

    def __init__(self, now: float = START) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def opened(database: Any, clock: Clock, **settings: Any) -> Ledger:
    """Open a ledger without threads."""
    return Ledger(database, clock=clock, background=False, **settings)


def sound(ledger: Ledger) -> None:
    """Fail unless the package's own check finds the statistics to be the fold of the log."""
    found = ledger.check()
    assert found, str(found)
