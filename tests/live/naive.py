"""The slow, obvious ledger: it keeps what it was told and works out everything from that anew.

Nothing here is shared with the package but the edges of the bins of delays. Times are whole
microseconds, a decision is an arm and a time, and every question (what is this decision worth, how
many wait, what was paid) is answered by going through the whole log from the start. The arm is not
drawn here: it is told.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from fractions import Fraction
from typing import NamedTuple

from zib.stats.delay import delay_bins

DAY = 86_400 * 10**6  # microseconds

BUCKETS = 2000  # of decision times within window and grace
ROUNDING = 1e-12  # amounts that cancel each other up to this share are nothing


class Conflict(Exception):
    """The same id was used before for something else."""


class Made(NamedTuple):
    arm: int
    at: int
    content: object = None  # what was asked for: unit, eligible arms, context
    kind: int = 0  # 0 policy, 1 holdout, 2 shadow
    probability: float = 1.0
    choices: int = 1


class Entry(NamedTuple):
    """A line of the log; lines about one decision are read in the order of these fields."""

    at: int
    kind: str  # "cancel", "event" or "revision": at the same time a revision has the last word
    id: str
    decision: str
    value: float
    received: int


class Statistics(NamedTuple):
    """Sums over the decisions: per arm, and per arm and bucket of the decision's time."""

    zeros: Counter[int]
    rewarded: Counter[int]
    total: dict[int, Fraction]
    squares: dict[int, Fraction]
    waiting: Counter[tuple[int, int]]  # (arm, bucket)
    converted: dict[tuple[int, int, int], tuple[int, Fraction]]  # (arm, bucket, bin): count, sum

    def collapsed(self) -> Statistics:
        """Leave the buckets out: what stays the same when old buckets are put together."""
        waiting: Counter[tuple[int, int]] = Counter()
        for (arm, _), n in self.waiting.items():
            waiting[arm, 0] += n
        converted: dict[tuple[int, int, int], tuple[int, Fraction]] = {}
        for (arm, _, delay), (n, total) in self.converted.items():
            m, before = converted.get((arm, 0, delay), (0, Fraction(0)))
            converted[arm, 0, delay] = (m + n, before + total)
        return self._replace(waiting=waiting, converted=converted)


class Naive:
    """What a ledger with this window, grace (both in microseconds) and aggregate has to hold."""

    def __init__(
        self, *, window: int, grace: int = 0, aggregate: str = "sum", inflated: float = 0.0
    ) -> None:
        self.window = window
        self.horizon = window + grace
        self.aggregate = aggregate
        self.inflated = inflated
        self.width = -(-self.horizon // BUCKETS)  # rounded up
        self.edges = list(delay_bins(float(self.horizon)))
        self.decisions: dict[str, Made] = {}
        self.entries: list[Entry] = []

    # ------------------------------------------------------------------------------ being told

    def decide(self, decision: str, arm: int, at: int, content: object = None) -> Made:
        """Return what was decided for this id: the first answer, however often one asks."""
        before = self.decisions.setdefault(decision, Made(arm, at, content))
        if before.content != content:
            raise Conflict(decision)
        return before

    def event(
        self, id: str, decision: str, value: float, *, at: int | None = None, received: int
    ) -> str:
        """Return the status of an event at the moment it arrives."""
        new = Entry(received if at is None else at, "event", id, decision, value, received)
        if self._seen(new, at is not None):
            return "duplicate"
        if decision not in self.decisions:
            return "parked"
        if self.cancelled(decision):
            return "cancelled"
        late = received > self.decisions[decision].at + self.window
        return "late" if late else "applied"

    def revise(
        self, id: str, decision: str, value: float, *, at: int | None = None, received: int
    ) -> str:
        """Return the status of a revision: it always counts, so it is never late."""
        new = Entry(received if at is None else at, "revision", id, decision, value, received)
        if self._seen(new, at is not None):
            return "duplicate"
        if decision not in self.decisions:
            return "parked"
        return "cancelled" if self.cancelled(decision) else "applied"

    def cancel(self, decision: str, *, received: int) -> str:
        """Take a decision out of everything that is learned, for good."""
        if self.cancelled(decision):
            return "duplicate"
        self.entries.append(
            Entry(received, "cancel", f"cancel {decision}", decision, 0.0, received)
        )
        return "applied" if decision in self.decisions else "parked"

    def _seen(self, new: Entry, at_given: bool) -> bool:
        """Whether an entry was told before; if it was and said something else, raise."""
        for old in self.entries:
            if old.id == new.id:
                same = (old.kind, old.decision, old.value) == (new.kind, new.decision, new.value)
                if not same or (at_given and old.at != new.at):
                    raise Conflict(new.id)
                return True
        self.entries.append(new)
        return False

    # ------------------------------------------------------------------------------- questions

    def cancelled(self, decision: str) -> bool:
        return any(e.decision == decision and e.kind == "cancel" for e in self.entries)

    def parked(self) -> list[Entry]:
        return [entry for entry in self.entries if entry.decision not in self.decisions]

    def counts(self, event: Entry) -> bool:
        """An event counts up to window and grace after its decision; before it, always."""
        return event.at - self.decisions[event.decision].at <= self.horizon

    def value(self, decision: str, entries: list[Entry] | None = None) -> float | None:
        """Return what a decision is worth so far; None while nobody has reported anything."""
        own = sorted(e for e in entries or self.entries if e.decision == decision)
        worth: Fraction | None = None
        size = Fraction(0)
        for entry in own:
            new = Fraction(entry.value)
            if entry.kind == "revision":
                worth, size = new, abs(new)
            elif entry.kind == "event" and self.counts(entry):
                size += abs(new)
                if worth is None or self.aggregate == "last":
                    worth = new
                elif self.aggregate == "sum":
                    worth += new
                elif self.aggregate == "max":
                    worth = max(worth, new)
        if worth is not None and self.aggregate == "sum" and abs(worth) <= ROUNDING * size:
            worth = Fraction(0)
        return None if worth is None else float(worth)

    def delay(self, decision: str, entries: list[Entry] | None = None) -> int | None:
        """Return how long after the decision the first event that counts became known.

        None if there was none, or if it became known after window and grace.
        """
        at = self.decisions[decision].at
        known = [
            max(entry.received - at, 0)
            for entry in entries or self.entries
            if entry.decision == decision and entry.kind == "event" and self.counts(entry)
        ]
        return min(known) if known and min(known) <= self.horizon else None

    def by_decision(self) -> dict[str, list[Entry]]:
        """Return the lines of the log about each decision."""
        of: dict[str, list[Entry]] = defaultdict(list)
        for entry in self.entries:
            of[entry.decision].append(entry)
        return of

    def statistics(self) -> Statistics:
        """Fold the whole log, one decision after the other."""
        new = Statistics(Counter(), Counter(), {}, {}, Counter(), {})
        of = self.by_decision()
        for decision, made in self.decisions.items():
            own = of[decision]
            if any(entry.kind == "cancel" for entry in own):
                continue
            worth = self.value(decision, own) if own else None
            bucket = made.at // self.width
            if worth is None:
                new.waiting[made.arm, bucket] += 1
            elif worth == self.inflated:
                new.zeros[made.arm] += 1
            else:
                amount = Fraction(worth) - Fraction(self.inflated)
                new.rewarded[made.arm] += 1
                new.total[made.arm] = new.total.get(made.arm, Fraction(0)) + amount
                new.squares[made.arm] = new.squares.get(made.arm, Fraction(0)) + amount**2
                delay = self.delay(decision, own)
                if delay is not None:
                    place = (made.arm, bucket, self.bin(delay))
                    n, total = new.converted.get(place, (0, Fraction(0)))
                    new.converted[place] = (n + 1, total + amount)
        return new

    def history(self) -> dict[tuple[int, int, int], list[Fraction]]:
        """Return sums by the day of the decision, arm and kind.

        They are the number of decisions, of rewards, the rewards, their squares, what the policy
        gains over an even split of each, and the squares of that.
        """
        new: dict[tuple[int, int, int], list[Fraction]] = {}
        of = self.by_decision()
        for decision, made in self.decisions.items():
            own = of[decision]
            if any(entry.kind == "cancel" for entry in own):
                continue
            day = made.at // DAY * DAY
            sums = new.setdefault((day, made.arm, made.kind), [Fraction(0)] * 6)
            sums[0] += 1
            worth = self.value(decision, own) if own else None
            if worth is not None and worth != self.inflated:
                amount = Fraction(worth) - Fraction(self.inflated)
                gained = Fraction(0)
                if made.kind == 0:
                    gained = amount * (1 - 1 / (made.choices * Fraction(made.probability)))
                for k, x in enumerate((1, amount, amount**2, gained, gained**2), 1):
                    sums[k] += x
        return new

    def bin(self, delay: int) -> int:
        """Return which bin a delay falls into; upper edges belong to their bin."""
        return max(bisect_left(self.edges, delay) - 1, 0)
