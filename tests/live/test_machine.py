"""Any order of calls, with duplicates and restarts, ends in the same state: that of `naive`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    rule,
    run_state_machine_as_test,
)

from tests.live import stored
from tests.live.naive import Conflict, Naive
from tests.live.scene import START, Clock, opened, sound
from zib.live import ConflictError

pytestmark = pytest.mark.usefixtures("interpreting")
WINDOW, GRACE = 100, 20
KEYS = [f"k{n}" for n in range(4)]
IDS = [f"e{n}" for n in range(6)]
VALUES = [0.0, 0.25, 2.0, -1.0, 1e9]
AGGREGATES = ["sum", "first", "last", "max"]
# Seconds after the start: within the window, at its ends, within the grace period, beyond, before.
TIMES = [-50, 0, 1, 30, 99, 100, 101, 119, 120, 121, 250, 5000]
MICRO = 1_000_000

keys, ids, values, times = map(st.sampled_from, (KEYS, IDS, VALUES, TIMES))
maybe_times = st.none() | times


def naive_of(aggregate: str) -> Naive:
    return Naive(window=WINDOW * MICRO, grace=GRACE * MICRO, aggregate=aggregate)


def micro(time: int | None) -> int | None:
    return None if time is None else (round(START) + time) * MICRO


def seconds(time: int | None) -> float | None:
    return None if time is None else START + time


class Machine(RuleBasedStateMachine):
    """The same calls to a ledger and to the naive one."""

    def __init__(self, database: str) -> None:
        super().__init__()
        self.database = database
        self.clock = Clock()
        self.ledger: Any = None

    @initialize(aggregate=st.sampled_from(AGGREGATES))
    def open(self, aggregate: str) -> None:
        self.aggregate = aggregate
        self.naive = naive_of(aggregate)
        self.restart()

    @rule()
    def restart(self) -> None:
        if self.ledger is not None:
            self.ledger.close()
        self.ledger = opened(
            self.database,
            self.clock,
            arms=["A", "B", "C"],
            window=WINDOW,
            grace=GRACE,
            aggregate=self.aggregate,
            draws=20,
        )

    @rule(time=times)
    def jump(self, time: int) -> None:
        self.clock.now = START + time

    @rule()
    def refresh(self) -> None:
        self.ledger.refresh()

    @property
    def now(self) -> int:
        return round(self.clock.now * MICRO)

    def told(self, act: Callable[[], Any], told: Callable[[], str]) -> Any:
        """Compare the answers of both, or that both refuse."""
        try:
            status = told()
        except Conflict:
            with pytest.raises(ConflictError):
                act()
            return None
        receipt = act()
        assert receipt.status == status
        return receipt

    @rule(key=keys, unit=st.sampled_from([None, "u"]), at=maybe_times)
    def decide(self, key: str, unit: str | None, at: int | None) -> None:
        id = self.ledger.decision_id(key)
        before = self.naive.decisions.get(id)
        if before is not None and before.content != unit:
            with pytest.raises(ConflictError):
                self.ledger.decide(key, unit=unit, at=seconds(at))
            return
        made = self.ledger.decide(key, unit=unit, at=seconds(at))
        assert made.id == id
        told = self.now if at is None else micro(at)
        assert told is not None
        kept = self.naive.decide(id, "ABC".index(made.arm), told, unit)
        assert (made.arm, round(made.at * MICRO)) == ("ABC"[kept.arm], kept.at)

    @rule(id=ids, key=keys, value=values, at=maybe_times, received=maybe_times)
    def event(self, id: str, key: str, value: float, at: int | None, received: int | None) -> None:
        decision = self.ledger.decision_id(key)
        known = self.now if received is None else micro(received)
        assert known is not None
        receipt = self.told(
            lambda: self.ledger.event(
                id, decision, value, at=seconds(at), received=seconds(received)
            ),
            lambda: self.naive.event(id, decision, value, at=micro(at), received=known),
        )
        self.worth(receipt, decision)

    @rule(id=ids, key=keys, value=values, at=maybe_times)
    def revise(self, id: str, key: str, value: float, at: int | None) -> None:
        decision = self.ledger.decision_id(key)
        receipt = self.told(
            lambda: self.ledger.revise(id, decision, value, at=seconds(at)),
            lambda: self.naive.revise(id, decision, value, at=micro(at), received=self.now),
        )
        self.worth(receipt, decision)

    @rule(key=keys)
    def cancel(self, key: str) -> None:
        decision = self.ledger.decision_id(key)
        self.told(
            lambda: self.ledger.cancel(decision),
            lambda: self.naive.cancel(decision, received=self.now),
        )

    def worth(self, receipt: Any, decision: str) -> None:
        if receipt is not None and decision in self.naive.decisions:
            nothing = self.naive.cancelled(decision)
            assert receipt.value == (None if nothing else self.naive.value(decision))

    def teardown(self) -> None:
        if self.ledger is None:
            return
        sound(self.ledger)
        self.ledger.close()
        kept = stored.check(self.database, naive_of(self.aggregate))
        assert {id: made[:2] for id, made in kept.decisions.items()} == {
            id: made[:2] for id, made in self.naive.decisions.items()
        }
        assert logged(kept) == logged(self.naive)


def logged(naive: Naive) -> list[Any]:
    """The log in one order; the id of a cancellation is the package's own business."""
    return sorted(
        entry if entry.kind != "cancel" else entry._replace(id="") for entry in naive.entries
    )


def played(new_database: Callable[[], str], examples: int, steps: int) -> None:
    run_state_machine_as_test(
        lambda: Machine(new_database()),
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_calls_in_any_order_with_duplicates_and_restarts(new_database: Callable[[], str]) -> None:
    played(new_database, 4, 30)


@pytest.mark.slow
def test_many_more_calls_in_any_order(new_database: Callable[[], str]) -> None:
    played(new_database, 60, 50)


# ------------------------------------------------------------------------------------ permutations


@st.composite
def operations(draw: st.DrawFn) -> list[tuple[Any, ...]]:
    """Calls that do not contradict each other, about a few decisions, at one moment."""
    found: list[tuple[Any, ...]] = [
        ("decide", key, draw(times)) for key in draw(st.sets(keys, min_size=1))
    ]
    for id in draw(st.sets(ids)):
        what = draw(st.sampled_from(["event", "event", "revise"]))
        received = draw(times) if what == "event" else None
        found.append((what, id, draw(keys), draw(values), draw(times), received))
    found += [("cancel", key) for key in draw(st.sets(keys, max_size=1))]
    return found


def state_after(database: str, aggregate: str, calls: list[tuple[Any, ...]]) -> list[Any]:
    """Make the calls and return all that is kept, past the package."""
    ledger = opened(
        database,
        Clock(),
        arms=["A", "B"],
        window=WINDOW,
        grace=GRACE,
        aggregate=aggregate,
        draws=20,
    )
    for what, *call in calls:
        if what == "decide":
            key, at = call
            ledger.decide(key, at=seconds(at))
        elif what == "cancel":
            ledger.cancel(ledger.decision_id(call[0]))
        else:
            id, key, value, at, received = call
            more = {} if what == "revise" else {"received": seconds(received)}
            getattr(ledger, what)(id, ledger.decision_id(key), value, at=seconds(at), **more)
    sound(ledger)
    ledger.close()
    kept = stored.check(database, naive_of(aggregate))
    outcomes = sorted(
        stored.rows(database, "SELECT id, arm, at, entries, value, known, cancelled FROM decision")
    )
    parked = sorted(stored.rows(database, "SELECT id, parked FROM event"))
    return [outcomes, parked, logged(kept), stored.sums(database).zeros]


def permuted(new_database: Callable[[], str], examples: int) -> None:
    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    @given(operations(), st.sampled_from(AGGREGATES), st.data())
    def check(calls: list[tuple[Any, ...]], aggregate: str, data: st.DataObject) -> None:
        again = data.draw(st.lists(st.sampled_from(calls), max_size=5))
        other = data.draw(st.permutations(calls + again))
        assert state_after(new_database(), aggregate, calls) == state_after(
            new_database(), aggregate, other
        )

    check()


def test_the_order_of_calls_does_not_matter(new_database: Callable[[], str]) -> None:
    permuted(new_database, 4)


@pytest.mark.slow
def test_the_order_of_many_more_calls_does_not_matter(new_database: Callable[[], str]) -> None:
    permuted(new_database, 60)
