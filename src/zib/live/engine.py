"""A batch of requests inside one transaction: what is written, and what is answered.

State changes and the statistics that follow from them are written together. Ids make everything
safe to repeat: a batch whose commit is in doubt is run again.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from zib.core import validate
from zib.live.answers import ConflictError, Decision, LedgerError, Parked, Receipt, Unserved
from zib.live.book import (
    ACTIVE,
    HOLDOUT,
    KINDS,
    POLICY,
    SHADOW,
    Asked,
    Book,
    Drawn,
    Reported,
    Work,
    fraction,
)
from zib.live.database import Connection, Row
from zib.live.history import Made, Periods, width_of
from zib.live.outcome import (
    CANCEL,
    ENTRY_KINDS,
    EVENT,
    ID_NAMES,
    NO_BIN,
    SECOND,
    WAITING,
    Entry,
    Outcome,
    Share,
    counts,
    outcome,
    share,
)
from zib.live.statistics import SUM_COLUMNS, ArmSums, read_arm_sums

_FIXED = (
    "id", "bandit", "key", "request", "unit", "arm", "wanted", "probability", "version", "at",
    "kind", "eligible", "context", "choices",
)  # fmt: skip
_CHANGING = ("entries", "value", "known", "cancelled")
_EVENT = ("bandit", "id", "decision", "kind", "value", "at", "received", "parked")


class _Changes:
    """Sums that a batch adds to the statistics of one bandit."""

    def __init__(self, book: Book, sums: ArmSums) -> None:
        self.book = book
        self.sums = sums  # those of the book until a reward changes them: then a copy
        self.own = False
        self.arms: set[int] = set()
        self.waiting: dict[tuple[int, int], int] = defaultdict(int)
        self.converted: dict[tuple[int, int, int], list[float]] = {}
        self.counters: dict[str, int] = defaultdict(int)
        self.changed: set[str] = set()  # decisions that a contextual bandit has to look at
        self.history = Periods(width_of(book.rules.horizon))
        self.latest: dict[str, int] = {}

    def add(self, arm: int, at: int, part: Share, sign: int) -> None:
        """Add what a decision is worth, or take it out again."""
        bucket = self.book.rules.bucket(at)
        if part.waiting:
            self.waiting[arm, bucket] += sign
            return
        if not self.own or arm >= self.sums.n_arms:  # an arm may be added by another process
            self.sums = self.sums.copy(max(arm + 1, len(self.book.labels)))
            self.own = True
        if part.zero:
            self.sums.zero[arm] += sign
            self.arms.add(arm)
        elif part.nonzero:
            self.sums.reward(arm, part.amount, sign)
            self.arms.add(arm)
            if part.bin != NO_BIN:
                cell = self.converted.setdefault((arm, bucket, part.bin), [0, 0.0, 0.0])
                cell[0] += sign
                cell[1] += sign * part.amount
                cell[2] += sign * part.amount * part.amount

    def write(self, c: Connection) -> None:
        """Put the sums into the database."""
        bandit, worker = self.book.number, c.worker
        waiting = [(bandit, *key, worker, n) for key, n in sorted(self.waiting.items()) if n]
        if waiting:
            c.add("waiting", ("bandit", "arm", "bucket", "worker"), ("n",), waiting)
        converted = [
            (bandit, *key, worker, int(cell[0]), cell[1], cell[2])
            for key, cell in sorted(self.converted.items())
        ]
        if converted:
            c.add(
                "converted",
                ("bandit", "arm", "bucket", "bin", "worker"),
                ("n", "total", "squares"),
                converted,
            )
        if self.arms:
            rows = [(bandit, arm, worker, *self.sums.row(arm)) for arm in sorted(self.arms)]
            c.put("arm_sum", ("bandit", "arm", "worker"), SUM_COLUMNS, rows)
        if self.changed and self.book.configuration.is_contextual:
            changed = [(bandit, decision, worker, 1) for decision in sorted(self.changed)]
            c.add("changed", ("bandit", "decision", "worker"), ("n",), changed)
        counters = [(bandit, name, worker, n) for name, n in sorted(self.counters.items()) if n]
        if counters:
            c.add("counter", ("bandit", "name", "worker"), ("n",), counters)
        self.history.write(c, bandit)
        if self.latest:
            latest = [(bandit, name, worker, at) for name, at in sorted(self.latest.items())]
            c.put("latest", ("bandit", "name", "worker"), ("at",), latest)


class _Found(NamedTuple):
    """A decision as it is in the database."""

    made: Made
    outcome: Outcome

    @property
    def at(self) -> int:
        return self.made.at

    @classmethod
    def of(cls, row: Row) -> _Found:
        *made, entries, value, known, cancelled = row
        return cls(Made(*made), Outcome(entries, value, known, bool(cancelled)))


def run(connection: Connection, works: Sequence[Work]) -> None:
    """Do a batch of requests in the transaction of a connection, and fill in the answers.

    Nothing in memory changes before `settle` is called, after the commit.
    """
    by_book: dict[int, list[Work]] = {}
    for work in works:
        work.answers = []
        by_book.setdefault(work.book.number, []).append(work)
    for number in sorted(by_book):  # one order for all processes, so that none waits in a circle
        _run_book(connection, by_book[number])


def settle(works: Iterable[Work]) -> None:
    """Take over what a committed batch has changed in memory."""
    for work in works:
        book, changes = work.book, work.book.uncommitted
        if changes is not None:
            book.sums = changes.sums
            book.parked += changes.counters["parked"] - changes.counters["unparked"]
            book.changed = True
            book.uncommitted = None


def _run_book(c: Connection, works: Sequence[Work]) -> None:
    book = works[0].book
    if book.sums is None or book.sums_of is not c:  # new here, or the last commit is in doubt
        book.sums = read_arm_sums(c, book.number, len(book.labels), c.worker)
        book.sums_of = c
        book.count_parked(c)
    changes = _Changes(book, book.sums)
    asked = [ask for work in works for ask in work.asked]
    reported = [report for work in works for report in work.reported]
    decisions = iter(_decide(c, changes, asked) if asked else ())
    receipts = iter(_enter(c, changes, reported) if reported else ())
    for work in works:
        work.answers = [next(decisions) for _ in work.asked]
        work.answers += [next(receipts) for _ in work.reported]
    changes.write(c)
    book.uncommitted = changes


# ------------------------------------------------------------------------------------- deciding


def _decide(c: Connection, changes: _Changes, asked: Sequence[Asked]) -> list[Any]:
    book = changes.book
    first: dict[str, Asked] = {}
    for ask in asked:
        first.setdefault(ask.id, ask)
    drawn: dict[str, tuple[Row, Drawn]] = {}
    refused: dict[str, LedgerError] = {}
    for ask in first.values():
        try:
            drawn[ask.id] = draw_row(book, ask)
        except LedgerError as error:
            refused[ask.id] = error
    rows = sorted(row for row, _ in drawn.values())  # by id: one order for all processes
    is_new = c.insert_new("decision", (*_FIXED, *_CHANGING), rows, ("id",)) if rows else []
    known = {row[0]: row for row, fresh in zip(rows, is_new, strict=True) if fresh}
    new = list(known)
    others = [id for id in first if id not in known]
    if others:  # known before, or no arm may be played now
        known |= {row[0]: row for row in c.find("decision", _FIXED, "id", others)}
        book.need_arms(c, max((max(row[5], row[6]) for row in known.values()), default=-1))
    for id in new:
        row, (_, _, arms, shares) = drawn[id]
        changes.add(row[5], row[9], WAITING, 1)
        changes.history.decided(row[9], row[5], row[10], arms, shares)
        changes.changed.add(id)
    if new:
        changes.latest["decision"] = max(known[id][9] for id in new)
    changes.counters["repeated"] += len(asked) - len(new)
    if new and (c.shared or book.parked):
        waiting = c.find("event", ("decision",), "decision", new, where=book.where_parked)
        _unpark(c, changes, sorted({row[0] for row in waiting}))
    return [_answer(book, ask, known.get(ask.id), refused.get(ask.id)) for ask in asked]


def draw_row(book: Book, ask: Asked) -> tuple[Row, Drawn]:
    """Return the row of a new decision, and how its arm was drawn."""
    model = book.model  # another thread may put a newer one in its place
    assert model is not None
    eligible = book.active
    if ask.eligible is not None:
        eligible = tuple(k for k in ask.eligible if book.statuses[k] == ACTIVE)
    if not eligible:
        raise Unserved(
            "`arms` must hold one that is active; all of them are paused or retired"
            if ask.eligible is not None
            else "no arm is active: resume or add one"
        )
    kind, drawn = POLICY, model.draw(ask.key, eligible, ask.context)
    wanted = drawn.arm
    if book.in_holdout(ask.key, ask.unit):
        kind = HOLDOUT
        u = fraction(f"{book.name}\0even\0{ask.key}")
        even = 1.0 / len(eligible)
        drawn = Drawn(eligible[int(u * len(eligible))], even, eligible, [even] * len(eligible))
    elif book.shadow is not None:
        if book.shadow not in eligible:
            raise Unserved(
                "`arms` must hold the arm that is served in shadow mode, "
                f"{validate.shown(book.labels[book.shadow])}, and it must be active"
            )
        kind, drawn = SHADOW, Drawn(book.shadow, 1.0, (book.shadow,), (1.0,))
    row = (
        ask.id, book.number, ask.key, ask.request, ask.unit, drawn.arm, wanted,
        drawn.probability, model.version, ask.at, kind,
        # none: those that were active when the version was made
        None if eligible == model.active else json.dumps(eligible), ask.context,
        len(drawn.arms), 0, None, None, 0,
    )  # fmt: skip
    return row, drawn


def _answer(book: Book, ask: Asked, row: Row | None, refused: LedgerError | None) -> Any:
    if row is None:
        return refused
    if row[3] != ask.request:
        return ConflictError(
            f"`key` {validate.shown(ask.key)} has been decided with another unit, other arms or "
            "another context; a new decision needs a new key"
        )
    return decision_of(book, row)


def decision_of(book: Book, row: Row) -> Decision:
    """Return a decision from its row in the database, as far as that never changes."""
    at = row[9]
    return Decision(
        row[0],
        book.labels[row[5]],
        row[7],
        row[8],
        at / SECOND,
        (at + book.rules.window) / SECOND,
        KINDS[row[10]],
        book.labels[row[6]],
    )


def find_decision(c: Connection, book: Book, id: str) -> tuple[Decision, Outcome] | None:
    """Return a decision and what became of it."""
    found = c.find("decision", (*_FIXED, *_CHANGING), "id", [id])
    if not found or found[0][1] != book.number:
        return None
    book.need_arms(c, max(found[0][5:7]))
    entries, value, known, cancelled = found[0][-4:]
    return decision_of(book, found[0]), Outcome(entries, value, known, bool(cancelled))


def find_parked(c: Connection, book: Book, dead_before: int, most: int) -> list[Parked]:
    """Return events whose decision is not known, the oldest first."""
    rows = c.rows(
        "SELECT id, decision, kind, value, at, received FROM event "
        "WHERE bandit = $1 AND parked = 1 ORDER BY received, id LIMIT $2",
        book.number,
        most,
    )
    return [
        Parked(
            id,
            decision,
            ENTRY_KINDS[kind],
            value,
            at / SECOND,
            received / SECOND,
            received < dead_before,
        )
        for id, decision, kind, value, at, received in rows
    ]


# -------------------------------------------------------------------------- events and revisions


def _enter(c: Connection, changes: _Changes, reported: Sequence[Reported]) -> list[Any]:
    book = changes.book
    first: dict[str, Reported] = {}
    for report in reported:
        first.setdefault(report.entry.id, report)
    decisions = _locked(c, book, {report.decision for report in first.values()})
    rows = [
        (book.number, e.id, id, e.kind, e.value, e.at, e.received, int(id not in decisions))
        for id, e, _ in sorted(first.values(), key=lambda report: report.entry.id)
    ]
    is_new = c.insert_new("event", _EVENT, rows, ("bandit", "id"))
    new = {row[1] for row, fresh in zip(rows, is_new, strict=True) if fresh}
    happened = [row[6] for row in rows if row[1] in new and row[3] == EVENT]
    if happened:
        changes.latest["event"] = max(happened)
    repeated = [id for id in first if id not in new]
    kept = {id: report for id, report in first.items() if id in new}
    if repeated:
        kept |= _kept_events(c, book, repeated)
    touched = sorted({first[id].decision for id in new if first[id].decision in decisions})
    now = _fold(c, changes, decisions, touched)
    answers = []
    for report in reported:
        fresh = report.entry.id in new and first[report.entry.id] is report
        answers.append(_receipt(changes, report, kept[report.entry.id], fresh, now, decisions))
    return answers


def _locked(c: Connection, book: Book, ids: Iterable[str]) -> dict[str, _Found]:
    """Return the decisions of the bandit, which nobody else changes until the transaction ends."""
    columns = ("id", "bandit", *Made._fields, *_CHANGING)
    found = c.find("decision", columns, "id", sorted(ids), lock=True)
    return {row[0]: _Found.of(row[2:]) for row in found if row[1] == book.number}


def _kept_events(c: Connection, book: Book, ids: Sequence[str]) -> dict[str, Reported]:
    columns = ("id", "kind", "value", "at", "received", "decision")
    found = c.find("event", columns, "id", ids, where=f"bandit = {book.number:d}")
    return {row[0]: Reported(row[5], Entry(*row[:5]), True) for row in found}


def _fold(
    c: Connection, changes: _Changes, decisions: dict[str, _Found], touched: Sequence[str]
) -> dict[str, Outcome]:
    """Fold the log of decisions anew and change the statistics accordingly; return all outcomes."""
    now = {id: found.outcome for id, found in decisions.items()}
    if not touched:
        return now
    rules = changes.book.rules
    log: dict[str, list[Entry]] = defaultdict(list)
    columns = ("decision", "id", "kind", "value", "at", "received")
    # Other bandits may name its decisions by mistake; with "+", it is not searched by.
    own = f"+bandit = {changes.book.number:d}"
    for decision, *entry in c.find("event", columns, "decision", touched, where=own):
        log[decision].append(Entry(*entry))
    rows = []
    for id in touched:
        before = decisions[id]
        after = outcome(rules, before.at, log[id])
        if after == before.outcome:
            continue
        now[id] = after
        changes.changed.add(id)
        rows.append((id, after.entries, after.value, after.known, int(after.cancelled)))
        for found, sign in ((before.outcome, -1), (after, 1)):
            part = share(rules, before.at, found)
            changes.add(before.made.arm, before.at, part, sign)
            changes.history.change(before.made, part, sign)
    if rows:
        c.update("decision", ("id",), _CHANGING, rows)
    return now


def _unpark(c: Connection, changes: _Changes, ids: Sequence[str]) -> int:
    """Apply the parked events of decisions that are known by now; return how many there were."""
    if not ids:
        return 0
    bandit = changes.book.number
    parked = c.find("event", ("id", "decision"), "decision", ids, where=changes.book.where_parked)
    c.update(
        "event", ("bandit", "id"), ("parked",), [(bandit, row[0], 0) for row in sorted(parked)]
    )
    decisions = _locked(c, changes.book, ids)
    _fold(c, changes, decisions, ids)
    changes.counters["unparked"] += len(parked)
    return len(parked)


def overtaken(c: Connection, book: Book) -> list[str]:
    """Return decisions with parked events: another process wrote them at the same moment."""
    found = c.rows(
        "SELECT DISTINCT event.decision FROM event JOIN decision ON decision.id = event.decision "
        "AND decision.bandit = event.bandit WHERE event.bandit = $1 AND event.parked = 1",
        book.number,
    )
    return sorted(row[0] for row in found)


def settle_parked(c: Connection, book: Book, decisions: Sequence[str]) -> None:
    """Apply the parked events of decisions that are there."""
    changes = _Changes(book, read_arm_sums(c, book.number, len(book.labels), c.worker))
    _unpark(c, changes, decisions)
    changes.write(c)
    book.sums = None  # to be read again, as this may not be committed


def _receipt(
    changes: _Changes,
    report: Reported,
    kept: Reported,
    fresh: bool,
    now: dict[str, Outcome],
    decisions: dict[str, _Found],
) -> Any:
    rules, entry = changes.book.rules, kept.entry
    if not fresh and (
        kept.decision != report.decision
        or entry.kind != report.entry.kind
        or entry.value != report.entry.value
        or (report.at_given and entry.at != report.entry.at)
    ):
        changes.counters["conflicts"] += 1
        return ConflictError(
            f"`{ID_NAMES[report.entry.kind]}` {validate.shown(entry.id)} has been reported with "
            "another decision, value or time; a change needs `revise` with an id of its own"
        )
    found = decisions.get(kept.decision)
    if found is None:
        changes.counters["parked" if fresh else "duplicates"] += 1
        return Receipt("parked" if fresh else "duplicate", kept.decision, None, False)
    after = now[kept.decision]
    counted = counts(rules, found.at, entry) and not after.cancelled
    status = "applied"
    if not fresh:
        changes.counters["duplicates"] += 1
        status = "duplicate"
    elif after.cancelled and entry.kind != CANCEL:
        status = "cancelled"
    elif entry.kind == EVENT and entry.received > found.at + rules.window:
        changes.counters["late"] += 1
        status = "late"
    value = None if after.cancelled else after.value
    return Receipt(status, kept.decision, value, counted or entry.kind == CANCEL)
