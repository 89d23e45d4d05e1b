"""What became of a decision: the fold of its events, and what it adds to the statistics.

Everything here is a pure function of the log. The engine applies it to one decision at a time,
`check` to all of them: that both agree is what "statistics = fold of the log" means. Nothing
depends on the order in which entries arrived.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable
from typing import NamedTuple

from zib.stats.delay import delay_bins
from zib.stats.pending import BUCKETS

EVENT, REVISION, CANCEL = 0, 1, 2
ENTRY_KINDS = ("event", "revision", "cancellation")
ID_NAMES = ("event_id", "revision_id", "decision_id")  # of their kinds, as callers say
AGGREGATES = ("sum", "first", "last", "max")
SECOND = 1_000_000  # in the unit of all times here, microseconds
# Amounts that cancel each other leave a rest of this order, which is not a reward.
RESIDUE = 1e-12
NO_BIN = -1


class Rules(NamedTuple):
    """How the events of a decision add up."""

    window: int  # microseconds
    horizon: int  # window and grace
    aggregate: str
    inflated: float
    edges: tuple[float, ...]  # of the bins of delays, microseconds
    width: int  # of a bucket of decision times, microseconds

    @classmethod
    def of(cls, window: float, grace: float, aggregate: str, inflated: float) -> Rules:
        """Return the rules for a window and a grace period in seconds."""
        horizon = round((window + grace) * SECOND)
        edges = tuple((delay_bins(float(horizon))).tolist())
        width = max(1, -(-horizon // BUCKETS))
        return cls(round(window * SECOND), horizon, aggregate, inflated, edges, width)

    def bucket(self, at: int) -> int:
        """Return the bucket of a time of decision."""
        return at // self.width

    def bin(self, delay: int) -> int:
        """Return the bin of a delay within the horizon."""
        return max(bisect_left(self.edges, delay) - 1, 0)


class Entry(NamedTuple):
    """One line of the log about a decision: an event, a revision or a cancellation."""

    id: str
    kind: int
    value: float | None
    at: int  # when it happened
    received: int  # when the ledger came to know


class Outcome(NamedTuple):
    """What became of a decision.

    Attributes
    ----------
    entries
        How many events and revisions count.
    value
        What it is worth; None if no entry counts: it waits, or nothing ever happened.
    known
        When the first event that counts became known; None if there is none.
    cancelled
        Whether nothing is to be learned from it.
    """

    entries: int = 0
    value: float | None = None
    known: int | None = None
    cancelled: bool = False


WAITS = Outcome()


def counts(rules: Rules, decided_at: int, entry: Entry) -> bool:
    """Whether an event happened within the horizon; a revision always counts."""
    return entry.kind == REVISION or (
        entry.kind == EVENT and entry.at - decided_at <= rules.horizon
    )


def outcome(rules: Rules, decided_at: int, entries: Iterable[Entry]) -> Outcome:
    """Return what became of a decision, whatever the order of its entries."""
    every = list(entries)
    counted = sorted(
        (e for e in every if counts(rules, decided_at, e)), key=lambda e: (e.at, e.kind, e.id)
    )
    cancelled = any(e.kind == CANCEL for e in every)
    if not counted:
        return Outcome(cancelled=cancelled)
    start = max((k for k, e in enumerate(counted) if e.kind == REVISION), default=0)
    amounts = [float(e.value or 0.0) for e in counted[start:]]
    known = min((e.received for e in counted if e.kind == EVENT), default=None)
    return Outcome(len(counted), _aggregated(rules.aggregate, amounts), known, cancelled)


def _aggregated(how: str, amounts: list[float]) -> float:
    if how == "sum":
        total = math.fsum(amounts)
        return 0.0 if abs(total) <= RESIDUE * math.fsum(map(abs, amounts)) else total
    if how == "first":
        return amounts[0]
    return amounts[-1] if how == "last" else max(amounts)


class Share(NamedTuple):
    """What one decision adds to the statistics of its arm."""

    waiting: int = 0
    zero: int = 0
    nonzero: int = 0
    amount: float = 0.0  # above the inflated value
    bin: int = NO_BIN  # of the delay, if that is known to be within the horizon


NOTHING = Share()
WAITING = Share(waiting=1)
ZERO = Share(zero=1)


def share(rules: Rules, decided_at: int, found: Outcome) -> Share:
    """Return what a decision with this outcome adds to the statistics of its arm.

    A delay counts if the ledger knew within the horizon: that is what the age of a pending
    decision is compared with.
    """
    if found.cancelled:
        return NOTHING
    if found.value is None:
        return WAITING
    amount = found.value - rules.inflated
    if amount == 0.0:
        return ZERO
    delay = None if found.known is None else max(found.known - decided_at, 0)
    late = delay is None or delay > rules.horizon
    return Share(nonzero=1, amount=amount, bin=NO_BIN if late else rules.bin(delay or 0))
