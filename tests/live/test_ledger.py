"""What the ledger answers and keeps, by a clock that the test moves; checked against `naive`."""

from __future__ import annotations

import math
import re
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import zib
from tests.live import stored
from tests.live.naive import Naive
from tests.live.scene import START, Clock, opened, sound
from zib.live import ConflictError, Ledger, LedgerError
from zib.live.database import open_database

pytestmark = pytest.mark.usefixtures("interpreting")
WINDOW, GRACE = 100.0, 20.0


class Scene:
    """A ledger, its clock, and the naive one that is told the same."""

    def __init__(self, database: str, **settings: Any) -> None:
        self.database = database
        self.clock = Clock()
        given = {"arms": [*"ABC"], "window": WINDOW, "grace": GRACE, "draws": 50}
        self.settings = {**given, **settings}
        self.ledger = opened(database, self.clock, **self.settings)

    def restart(self) -> None:
        """Open it again: settings and arms are those in the database."""
        self.ledger.close()
        self.ledger = opened(self.database, self.clock)

    def close(self) -> None:
        self.ledger.close()

    def naive(self) -> Naive:
        """Return the log as it is stored, having checked that the sums are its fold."""
        return stored.check(
            self.database,
            Naive(
                window=micro(self.settings["window"]),
                grace=micro(self.settings["grace"]),
                aggregate=self.settings.get("aggregate", "sum"),
                inflated=self.settings.get("inflated", 0.0),
            ),
        )


def micro(seconds: float) -> int:
    return round(seconds * 1e6)


@pytest.fixture
def scene(database: str) -> Any:
    made = Scene(database)
    yield made
    made.ledger.close()


@pytest.fixture
def scenes(new_database: Callable[[], str]) -> Any:
    made: list[Scene] = []

    def new(**settings: Any) -> Scene:
        made.append(Scene(new_database(), **settings))
        return made[-1]

    yield new
    for each in made:
        each.ledger.close()


def waiting(scene: Scene) -> int:
    return sum(scene.naive().statistics().waiting.values())


# ----------------------------------------------------------------------------------------- deciding


def test_the_same_key_has_the_same_answer_whatever_was_learned_and_after_a_restart(
    scene: Scene,
) -> None:
    first = scene.ledger.decide("k")
    assert first.id == scene.ledger.decision_id("k")
    assert len(first.id) == 24
    assert (first.at, first.closes_at) == (START, START + WINDOW)
    assert first.probability == pytest.approx(1 / 3)
    assert first.arm in "ABC"
    scene.clock.now += 30.0
    scene.ledger.event("e", first.id, 5.0)
    scene.ledger.refresh()
    assert scene.ledger.decide("k") == first
    scene.restart()
    assert scene.ledger.decide("k") == first
    kept, outcome = scene.ledger.decision(first.id)
    assert (kept, outcome.value) == (first, 5.0)
    assert scene.ledger.decision_id("k") == first.id
    assert len(scene.naive().decisions) == 1


@pytest.mark.parametrize("other", [{"unit": "u"}, {"arms": ["A", "B"]}])
def test_the_same_key_with_other_content_is_a_conflict(scene: Scene, other: Any) -> None:
    scene.ledger.decide("k")
    with pytest.raises(ConflictError, match="`key`"):
        scene.ledger.decide("k", **other)
    assert len(scene.naive().decisions) == 1


def test_two_bandits_of_a_database_do_not_know_each_other(database: str) -> None:
    shared, clock = open_database(database), Clock()
    one = opened(shared, clock, name="one", arms=[*"ABC"], window=WINDOW)
    other = opened(shared, clock, name="other", arms=[1, 2], window="1h")
    ids = [ledger.decision_id("k") for ledger in (one, other)]
    assert ids[0] != ids[1]
    assert one.event("e", ids[0], 2.0).status == other.event("e", ids[1], 3.0).status == "parked"
    # a decision of the other bandit is not known here, now or later
    assert other.event("stray", ids[0], 50.0).status == "parked"
    assert one.decide("k").arm in "ABC"
    assert other.event("e", ids[1], 3.0).value is None
    assert other.decide("k").arm in (1, 2)
    assert (one.event("e", ids[0], 2.0).value, other.event("e", ids[1], 3.0).value) == (2.0, 3.0)
    assert other.event("stray", ids[0], 50.0).status == "duplicate"
    with pytest.raises(LedgerError, match="no decision"):
        other.decision(ids[0])
    for ledger in (one, other):
        sound(ledger)
        ledger.close()
    shared.close()
    for name, worth in (("one", 2), ("other", 3)):
        kept = stored.sums(database, stored.number(database, name))
        assert (sum(kept.rewarded.values()), sum(kept.total.values())) == (1, worth)
        assert not sum(kept.waiting.values())


def test_ledgers_of_an_open_database_share_the_thread_that_writes(quick_folder: Path) -> None:
    database = open_database(quick_folder / "shared.db")
    names = ("one", "two", "three")
    ledgers = [Ledger(database, name, arms=[*"AB"], window=WINDOW, draws=50) for name in names]
    assert sum(thread.name == "zib-writer" for thread in threading.enumerate()) == 1
    futures = [ledger.submit_decide(f"k{n}") for n in range(20) for ledger in ledgers]
    assert {future.result(10.0).arm for future in futures} == {"A", "B"}
    with pytest.raises(ConflictError):  # what one of them is refused is its own affair
        ledgers[0].decide("k0", unit="other")
    last = [ledgers[0].submit_decide(f"l{n}") for n in range(20)]
    ledgers[0].close()
    assert all(future.done() for future in last)
    with pytest.raises(LedgerError, match="closed"):
        ledgers[0].decide("m")
    assert ledgers[1].decide("m").arm in "AB"
    again = Ledger(database, "one")
    assert again.decide("l0").id == last[0].result().id
    for ledger in (again, *ledgers[1:]):
        sound(ledger)
        ledger.close()
    assert not any(thread.name == "zib-writer" for thread in threading.enumerate())
    database.close()


# ------------------------------------------------------------------------------- events and windows


@pytest.mark.parametrize(
    ("age", "status", "counted"),
    [
        (0.0, "applied", True),
        (WINDOW, "applied", True),
        (WINDOW + 0.000_001, "late", True),
        (WINDOW + GRACE, "late", True),
        (WINDOW + GRACE + 0.000_001, "late", False),
        (10 * WINDOW, "late", False),
    ],
)
def test_events_count_up_to_window_and_grace(
    scene: Scene, age: float, status: str, counted: bool
) -> None:
    decision = scene.ledger.decide("k")
    scene.clock.now += age
    receipt = scene.ledger.event("e", decision.id, 2.5)
    assert (receipt.status, receipt.counted) == (status, counted)
    assert receipt.value == (2.5 if counted else None)
    kept = scene.naive().statistics()
    assert sum(kept.rewarded.values()) == counted
    assert sum(kept.waiting.values()) == (not counted)
    assert sum(n for n, _ in kept.converted.values()) == counted


def test_an_event_that_happened_in_time_and_is_reported_late_counts(scene: Scene) -> None:
    decision = scene.ledger.decide("k")
    scene.clock.now += 50 * WINDOW
    receipt = scene.ledger.event("e", decision.id, 2.5, at=START + 10)
    assert (receipt.status, receipt.counted, receipt.value) == ("late", True, 2.5)
    kept = scene.naive().statistics()
    assert sum(kept.rewarded.values()) == 1
    assert not kept.converted  # nobody could know in time: it tells nothing about delays


def test_what_came_too_late_can_be_counted_by_a_revision(scene: Scene) -> None:
    decision = scene.ledger.decide("k")
    scene.clock.now += 10 * WINDOW
    assert not scene.ledger.event("e", decision.id, 2.5).counted
    receipt = scene.ledger.revise("r", decision.id, 2.5)
    assert (receipt.counted, receipt.value) == (True, 2.5)
    assert sum(scene.naive().statistics().rewarded.values()) == 1


def test_an_event_before_its_decision_waits_for_it(scene: Scene) -> None:
    id = scene.ledger.decision_id("k")
    receipt = scene.ledger.event("e", id, 2.5)
    assert (receipt.status, receipt.value, receipt.counted) == ("parked", None, False)
    assert scene.ledger.event("e", id, 2.5).status == "duplicate"
    assert not scene.naive().statistics().rewarded
    scene.restart()
    scene.clock.now += 3.0
    decision = scene.ledger.decide("k")
    assert decision.id == id
    kept = scene.naive().statistics()
    assert sum(kept.rewarded.values()) == 1
    assert not sum(kept.waiting.values())
    ((_, _, delay),) = kept.converted  # before its decision: no delay
    assert delay == 0
    assert scene.ledger.event("e", id, 2.5).value == 2.5


def test_events_without_a_decision_become_dead_letters_and_still_count_if_it_comes(
    scenes: Any,
) -> None:
    scene = scenes(park="1h")
    id = scene.ledger.decision_id("k")
    scene.ledger.event("e", id, 1.5)
    assert [(p.id, p.decision_id, p.value, p.dead) for p in scene.ledger.parked()] == [
        ("e", id, 1.5, False)
    ]
    scene.clock.now += 3601.0
    scene.ledger.refresh()
    assert [parked.dead for parked in scene.ledger.parked()] == [True]
    scene.ledger.decide("k", at=START)
    assert scene.ledger.parked() == []
    assert sum(scene.naive().statistics().rewarded.values()) == 1


@pytest.mark.parametrize(
    ("aggregate", "worth"), [("sum", 7.0), ("first", 4.0), ("last", 1.0), ("max", 4.0)]
)
def test_several_events_add_up_as_stated_in_whatever_order_they_come(
    scenes: Any, aggregate: str, worth: float
) -> None:
    for order in ([0, 1, 2], [2, 1, 0], [1, 2, 0]):
        scene = scenes(aggregate=aggregate)
        decision = scene.ledger.decide("k")
        scene.clock.now += 60.0
        for n in order:
            value, at = [(4.0, START + 10), (2.0, START + 20), (1.0, START + 30)][n]
            receipt = scene.ledger.event(f"e{n}", decision.id, value, at=at)
        assert receipt.value == worth
        assert scene.naive().value(decision.id) == worth


@pytest.mark.parametrize(
    ("aggregate", "worth"), [("sum", 4.0), ("first", 3.0), ("last", 1.0), ("max", 3.0)]
)
def test_a_revision_is_the_base_that_later_events_add_to(
    scenes: Any, aggregate: str, worth: float
) -> None:
    entries = [("event", "e1", 8.0, 10), ("revise", "r", 3.0, 20), ("event", "e2", 1.0, 30)]
    for order in ([0, 1, 2], [1, 0, 2], [2, 1, 0], [1, 2, 0]):
        scene = scenes(aggregate=aggregate)
        decision = scene.ledger.decide("k")
        scene.clock.now += 60.0
        for n in order:
            kind, id, value, after = entries[n]
            receipt = getattr(scene.ledger, kind)(id, decision.id, value, at=START + after)
        assert receipt.value == worth
        assert scene.naive().value(decision.id) == worth


def test_a_refund_makes_a_zero_and_amounts_that_cancel_are_nothing(scene: Scene) -> None:
    a, b = scene.ledger.decide("a"), scene.ledger.decide("b")
    scene.ledger.event("order a", a.id, 29.9)
    assert scene.ledger.revise("refund a", a.id, 0.0).value == 0.0
    for n, value in enumerate((0.1, 0.2, -0.3)):
        receipt = scene.ledger.event(f"b{n}", b.id, value)
    assert receipt.value == 0.0
    kept = scene.naive().statistics()
    assert sum(kept.zeros.values()) == 2
    assert not kept.rewarded
    assert not kept.converted
    assert all(total == 0 for total in stored.sums(scene.database).total.values())


def test_a_revision_may_overtake_its_decision_and_its_event(scene: Scene) -> None:
    id = scene.ledger.decision_id("k")
    assert scene.ledger.revise("r", id, 3.0, at=START + 5).status == "parked"
    scene.ledger.decide("k")
    assert scene.naive().value(id) == 3.0
    scene.clock.now += 10
    assert scene.ledger.event("e", id, 9.0, at=START + 1).value == 3.0  # it was before the revision


@pytest.mark.parametrize("early", [False, True])
def test_nothing_is_learned_from_a_cancelled_decision(scene: Scene, early: bool) -> None:
    id = scene.ledger.decision_id("k")
    if early:
        assert scene.ledger.cancel(id).status == "parked"
    scene.ledger.decide("k")
    scene.ledger.event("e", id, 5.0)
    if not early:
        assert scene.ledger.cancel(id).status == "applied"
    assert scene.ledger.cancel(id).status == "duplicate"
    for receipt in (
        scene.ledger.event("f", id, 5.0),
        scene.ledger.revise("r", id, 1.0),
    ):
        assert (receipt.status, receipt.counted) == ("cancelled", False)
    kept = scene.naive()
    assert not any(map(bool, stored.sums(scene.database).rewarded.values()))
    assert waiting(scene) == 0
    assert {"e", "f", "r"} <= {entry.id for entry in kept.entries}  # kept, not learned


# ------------------------------------------------------------------------- duplicates and conflicts


def test_the_same_event_again_is_a_duplicate_and_changes_nothing(scene: Scene) -> None:
    decision = scene.ledger.decide("k")
    scene.ledger.event("e", decision.id, 2.5, at=START + 1)
    scene.clock.now += 5
    before = scene.naive()
    for again in ({"at": START + 1}, {}):
        receipt = scene.ledger.event("e", decision.id, 2.5, **again)
        assert (receipt.status, receipt.value) == ("duplicate", 2.5)
    assert scene.naive().entries == before.entries
    counted = dict(stored.rows(scene.database, "SELECT name, n FROM counter"))
    assert counted["duplicates"] == 2


@pytest.mark.parametrize(
    "other", [{"decision_id": "0" * 24}, {"value": 2.0}, {"at": START + 2}, {"kind": "revise"}]
)
def test_the_same_event_id_with_other_content_is_a_conflict(scene: Scene, other: Any) -> None:
    decision = scene.ledger.decide("k")
    given = {"event_id": "e", "decision_id": decision.id, "value": 2.5, "at": START + 1}
    scene.ledger.event(**given)
    given |= other
    act = scene.ledger.event
    if given.pop("kind", None):
        given["revision_id"] = given.pop("event_id")
        act = scene.ledger.revise
    with pytest.raises(ConflictError, match="'e'"):
        act(**given)
    kept = scene.naive()
    assert len(kept.entries) == 1
    assert kept.value(decision.id) == 2.5


def test_a_batch_with_a_conflict_is_refused_as_a_whole(scene: Scene) -> None:
    a, b = scene.ledger.decide_many(["a", "b"])
    scene.ledger.event("e", a.id, 1.0)
    with pytest.raises(ConflictError):
        scene.ledger.event_many([("x", a.id, 1.0), ("e", b.id, 1.0), ("y", b.id, 4.0)])
    kept = scene.naive()
    assert (kept.value(a.id), kept.value(b.id)) == (1.0, None)
    scene.ledger.decide("c", unit="u")
    with pytest.raises(ConflictError):
        scene.ledger.decide_many([*"abcd"])
    assert len(scene.naive().decisions) == 3


def test_duplicates_within_one_batch(scene: Scene) -> None:
    first, other, second = scene.ledger.decide_many(["k", "l", "k"])
    assert first == second != other
    receipts = scene.ledger.event_many([("e", first.id, 2.0)] * 2)
    assert sorted(receipt.status for receipt in receipts) == ["applied", "duplicate"]
    assert scene.naive().value(first.id) == 2.0


# ------------------------------------------------------------------ arms, holdout, shadow, settings


def test_eligible_arms_and_the_state_of_arms(scene: Scene) -> None:
    ledger = scene.ledger
    ledger.pause_arm("B")
    seen = {d.arm for d in ledger.decide_many([f"k{n}" for n in range(40)])}
    assert seen == {"A", "C"}
    only = ledger.decide("only", arms=["C", "B"])
    assert (only.arm, only.probability) == ("C", 1.0)
    with pytest.raises(LedgerError, match="`arms`"):
        ledger.decide("none", arms=["B"])
    ledger.resume_arm("B")
    ledger.add_arm("D")
    ledger.retire_arm("A")
    ledger.refresh()
    scene.restart()
    assert scene.ledger.arms == {"A": "retired", "B": "active", "C": "active", "D": "active"}
    many = scene.ledger.decide_many([f"l{n}" for n in range(200)])
    assert {d.arm for d in many} == {"B", "C", "D"}
    late = next(d for d in scene.ledger.decide_many([f"k{n}" for n in range(40)]) if d.arm == "A")
    assert scene.ledger.event("e", late.id, 1.0).status == "applied"  # what was served counts
    assert scene.naive().statistics().rewarded == {0: 1}


def test_who_changed_what_is_kept(scene: Scene) -> None:
    ledger = scene.ledger
    ledger.pause_arm("B", who="ann")
    ledger.pause_arm("B", who="bob")  # which changes nothing
    scene.clock.now += 1.0
    ledger.set_shadow("A")
    ledger.set_shadow(None, who="ann")
    ledger.add_arm(7, who="ann")
    expected = [
        (START + 1.0, "ann", "add arm", "7"),
        (START + 1.0, "ann", "shadow", "off"),
        (START + 1.0, "", "shadow", "A"),
        (START, "ann", "pause arm", "B"),
    ]
    assert ledger.audit() == expected
    assert ledger.audit(most=1) == expected[:1]
    with pytest.raises(ValueError, match="`who`"):
        ledger.resume_arm("B", who="a\nb")
    assert ledger.audit() == expected


def test_a_holdout_is_split_evenly_by_unit(scenes: Any) -> None:
    scene = scenes(holdout=0.5)
    for n in range(50):
        scene.ledger.decide(f"k{n}", unit=f"u{n % 10}")
    rows = stored.rows(scene.database, "SELECT unit, kind, probability FROM decision")
    kinds: dict[str, set[int]] = {}
    for unit, kind, probability in rows:
        kinds.setdefault(unit, set()).add(kind)
        assert kind == 0 or probability == pytest.approx(1 / 3)
    assert all(len(kind) == 1 for kind in kinds.values())  # a unit is in it or not
    assert len({*map(tuple, kinds.values())}) == 2


def test_in_shadow_mode_the_default_is_served_and_learned(scenes: Any) -> None:
    scene = scenes(shadow="B")
    many = scene.ledger.decide_many([f"k{n}" for n in range(30)])
    assert {(d.arm, d.probability, d.kind) for d in many} == {("B", 1.0, "shadow")}
    assert {d.wanted for d in many} == {*"ABC"}
    scene.ledger.event("e", many[0].id, 1.0)
    assert scene.naive().statistics().rewarded == {1: 1}


@pytest.mark.parametrize(
    "other",
    [{"window": 50.0}, {"aggregate": "max"}, {"arms": [*"AB"]}, {"inflated": 1.0}, {"grace": 1}],
)
def test_other_settings_than_the_stored_ones_are_refused(scene: Scene, other: Any) -> None:
    scene.ledger.close()
    (name,) = other
    with pytest.raises(zib.InvalidParameterError, match=f"`{name}`"):
        Ledger(scene.database, background=False, clock=scene.clock, **{**scene.settings, **other})
    scene.ledger = Ledger(scene.database, background=False, clock=scene.clock)
    assert scene.ledger.decide("k").closes_at == START + WINDOW


def test_the_inflated_value_may_be_another_than_zero(scenes: Any) -> None:
    scene = scenes(inflated=2.0)
    a, b, c = scene.ledger.decide_many([*"abc"])
    scene.ledger.event_many([("a", a.id, 2.0), ("b", b.id, 0.0), ("c", c.id, 3.5)])
    kept = scene.naive().statistics()
    assert sum(kept.zeros.values()) == 1
    assert sum(kept.rewarded.values()) == 2
    assert sum(kept.total.values()) == Fraction(-0.5)


def test_amounts_of_any_size_come_out_of_the_sums_again(scene: Scene) -> None:
    many = scene.ledger.decide_many([f"k{n}" for n in range(6)], arms=["A"])
    for n, decision in enumerate(many):
        scene.ledger.event(f"e{n}", decision.id, 1e12 if n == 0 else 0.1 * n)
    scene.ledger.revise("r", many[0].id, 0.0)
    total = stored.sums(scene.database).total[0]
    assert float(total) == pytest.approx(math.fsum(0.1 * n for n in range(1, 6)), rel=1e-12)


# ------------------------------------------------------------------------------------------ clocks


def test_a_clock_that_jumps_back_and_forward_loses_nothing(scene: Scene) -> None:
    a = scene.ledger.decide("a")
    scene.clock.now -= 5000.0
    b = scene.ledger.decide("b")
    early = scene.ledger.event("ea", a.id, 1.0)  # 5000 s before its decision, by this clock
    assert (early.status, early.counted) == ("applied", True)
    scene.ledger.refresh()
    scene.clock.now += 10_000.0
    assert scene.ledger.event("eb", b.id, 1.0).status == "late"
    scene.ledger.refresh()
    scene.clock.now = START + 1.0
    c = scene.ledger.decide("c")
    scene.ledger.refresh()
    assert scene.ledger.event("ec", c.id, 1.0).status == "applied"
    assert [scene.ledger.decide(k) for k in "abc"] == [a, b, c]
    kept = scene.naive()
    assert len(kept.decisions) == 3
    assert sum(kept.statistics().rewarded.values()) == 2


# --------------------------------------------------------------------------------------- bad input

KNOWN = "0" * 24
BAD: list[tuple[str, str, Any]] = [
    ("key", "decide", lambda x: x.decide("")),
    ("key", "decide", lambda x: x.decide(17)),
    ("key", "decide", lambda x: x.decide("a" * 201)),
    ("key", "decide", lambda x: x.decide("line\nbreak")),
    ("keys", "decide_many", lambda x: x.decide_many(5)),
    ("keys", "decide_many", lambda x: x.decide_many(["good", None])),
    ("unit", "decide", lambda x: x.decide("k", unit=3.5)),
    ("units", "decide_many", lambda x: x.decide_many(["k", "l"], units=["u"])),
    ("arms", "decide", lambda x: x.decide("k", arms=["Z"])),
    ("arms", "decide", lambda x: x.decide("k", arms=[])),
    ("at", "decide", lambda x: x.decide("k", at="yesterday")),
    ("at", "decide", lambda x: x.decide("k", at=math.nan)),
    ("at", "decide", lambda x: x.decide("k", at=-1.0)),
    ("event_id", "event", lambda x: x.event(None, KNOWN, 1.0)),
    ("decision_id", "event", lambda x: x.event("e", "", 1.0)),
    ("value", "event", lambda x: x.event("e", KNOWN, "much")),
    ("value", "event", lambda x: x.event("e", KNOWN, math.inf)),
    ("value", "event", lambda x: x.event("e", KNOWN, math.nan)),
    ("value", "event", lambda x: x.event("e", KNOWN, 1e300)),
    ("received", "event", lambda x: x.event("e", KNOWN, 1.0, received=math.inf)),
    ("events", "event_many", lambda x: x.event_many([("good", KNOWN, 1.0), ("bad", KNOWN)])),
    ("value", "event_many", lambda x: x.event_many([("good", KNOWN, 1.0), ("bad", KNOWN, None)])),
    ("revision_id", "revise", lambda x: x.revise("", KNOWN, 1.0)),
    ("value", "revise", lambda x: x.revise("r", KNOWN, math.nan)),
    ("decision_id", "cancel", lambda x: x.cancel(5)),
    ("arm", "add_arm", lambda x: x.add_arm("A")),
    ("arm", "pause_arm", lambda x: x.pause_arm("Z")),
]


def test_bad_input_is_answered_in_a_sentence_that_names_the_field_and_changes_nothing(
    scene: Scene,
) -> None:
    scene.ledger.event("e0", scene.ledger.decide("k0").id, 1.0)
    tables = ("decision", "event", "arm", "arm_sum", "waiting", "converted", "counter", "audit")
    kept = lambda: [  # noqa: E731
        sorted(map(repr, stored.rows(scene.database, f"SELECT * FROM {table}"))) for table in tables
    ]
    before = kept()
    for field, call, act in BAD:
        with pytest.raises((zib.InvalidParameterError, TypeError)) as told:
            act(scene.ledger)
        words = str(told.value)
        assert f"`{field}`" in words, (call, words)
        assert "\n" not in words
    assert kept() == before
    scene.naive()


# -------------------------------------------------------------------------------------------- speed


def test_no_call_reads_a_whole_table(quick_folder: Path) -> None:
    path = str(quick_folder / "ledger.db")
    ledger = opened(path, Clock(), arms=[*"AB"], window=WINDOW, draws=20)
    said: list[str] = []
    raw = ledger._writer._connection._raw  # type: ignore[union-attr]
    raw.set_trace_callback(said.append)
    decision = ledger.decide("k")
    ledger.event("e", decision.id, 1.0)
    ledger.event("e", decision.id, 1.0)
    ledger.event("f", ledger.decision_id("l"), 1.0)
    ledger.decide_many([*"klm"])
    ledger.revise("r", decision.id, 1.0)
    ledger.cancel(decision.id)
    ledger.decision(decision.id)
    raw.set_trace_callback(None)
    ledger.close()
    plans: set[str] = set()
    with closing(sqlite3.connect(path)) as connection:
        for sql in said:
            if sql.startswith(("SELECT", "UPDATE", "INSERT")):
                plans |= {row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}")}
    read = {plan for plan in plans if re.search(r"(SCAN|SEARCH) (event|decision)\b", plan)}
    assert len(read) >= 4
    for plan in read:
        assert re.search(r"\b(id|decision|rowid)[=>]|event_parked", plan), plan
