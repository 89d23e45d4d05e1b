"""`check` finds whatever is not the fold of the log, and nothing else."""

from __future__ import annotations

import math
import random
import shutil
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.live.little import START, Little, spoil
from zib.live.check import NAMED, check
from zib.live.outcome import SECOND, Entry, Rules, outcome, share
from zib.live.pages import looking


@pytest.fixture
def little(tmp_path: Path) -> Iterator[Little]:
    found = Little(tmp_path / "ledger.db", grace=20.0, aggregate="sum")
    yield found
    found.close()


def play(little: Little, n: int, seed: int) -> None:
    """Let all that can happen happen, in any order."""
    rng = random.Random(seed)
    for i in range(n):
        little.now += rng.choice([0.5, 1.0, 3.0])
        little.decide(f"k{i}", arms=rng.choice([None, (0,), (0, 1)]))
        if rng.random() < 0.4:  # some events overtake their decision, and some never have one
            key = f"k{rng.randrange(i + 4)}"
            at = little.now - rng.choice([0.0, 0.0, 30.0, 1e4])
            value = rng.choice([0.0, 3.5, -1.25, 1e9, round(rng.lognormvariate(1.0, 1.0), 2)])
            little.event(key, value, at=at)
        if rng.random() < 0.1:
            little.revise(f"k{rng.randrange(i + 1)}", rng.choice([0.0, 7.25, 1e12]))
        if rng.random() < 0.05:
            little.cancel(f"k{rng.randrange(i + 4)}")


def verdict(little: Little) -> Any:
    with little.reading() as connection:
        return check(connection, now=round(little.now * SECOND))


def test_a_ledger_in_which_everything_happens_is_sound(little: Little, seed: int) -> None:
    play(little, 150, seed)
    found = verdict(little)
    assert found, str(found)
    assert found.decisions == 150
    assert found.events > 40
    assert "the statistics are the fold of the log" in str(found)


def by_hand(
    aggregate: str, inflated: float, horizon: int, at: int, lines: list[Entry]
) -> tuple[Any, ...]:
    """Return what became of a decision, written from the description and not from the code."""
    told = sorted(
        (line for line in lines if line.kind != 2), key=lambda line: (line.at, line.kind, line.id)
    )
    worth, heard, first_heard, n = None, [], None, 0
    for line in told:
        if line.kind == 1:  # a revision replaces everything before it
            heard = [line.value]
        elif line.at <= at + horizon:
            heard.append(line.value)
            if first_heard is None or line.received < first_heard:
                first_heard = line.received
        else:
            continue
        n += 1
    if heard:
        worth = {
            "sum": math.fsum(heard), "first": heard[0], "last": heard[-1], "max": max(heard),
        }[aggregate]  # fmt: skip
    cancelled = any(line.kind == 2 for line in lines)
    if cancelled:
        adds: tuple[Any, ...] = ("nothing",)
    elif worth is None:
        adds = ("waits",)
    elif worth == inflated:
        adds = ("zero",)
    else:
        in_time = first_heard is not None and first_heard <= at + horizon
        adds = ("reward", worth - inflated, in_time)
    return n, worth, first_heard, cancelled, adds


@pytest.mark.parametrize("aggregate", ["sum", "first", "last", "max"])
def test_the_fold_of_a_decision_is_what_the_description_says(aggregate: str, seed: int) -> None:
    rng = random.Random(seed)
    rules = Rules.of(8.0, 2.0, aggregate, 1.0)
    for _ in range(300):
        lines = [
            Entry(
                f"e{k}",
                rng.choice([0, 0, 0, 0, 1, 2]),
                rng.choice([0.0, 1.0, 2.0, 5.5]),
                rng.randrange(-2, 14) * SECOND,
                rng.randrange(0, 14) * SECOND,
            )
            for k in range(rng.randrange(5))
        ]
        n, worth, heard, cancelled, adds = by_hand(aggregate, 1.0, 10 * SECOND, 0, lines)
        rng.shuffle(lines)  # the order of arrival does not matter
        found = outcome(rules, 0, lines)
        assert found == (n, worth, heard, cancelled)
        part = share(rules, 0, found)
        expected = {
            "nothing": (0, 0, 0), "waits": (1, 0, 0), "zero": (0, 1, 0), "reward": (0, 0, 1),
        }[adds[0]]  # fmt: skip
        assert (part.waiting, part.zero, part.nonzero) == expected
        if adds[0] == "reward":
            assert part.amount == adds[1]
            assert (part.bin >= 0) == adds[2]


def test_the_tables_are_the_sums_of_what_is_done_by_hand(little: Little, seed: int) -> None:
    play(little, 120, seed)
    rows = little.connection.rows
    told: dict[str, list[Entry]] = defaultdict(list)
    for decision, *line in rows("SELECT decision, id, kind, value, at, received FROM event"):
        told[decision].append(Entry(*line))
    counts: dict[Any, float] = defaultdict(float)
    for id, arm, at in rows("SELECT id, arm, at FROM decision"):
        adds = by_hand("sum", 0.0, 120 * SECOND, at, told[id])[-1]
        counts[arm, adds[0]] += 1
        if adds[0] == "reward":
            counts[arm, "total"] += adds[1]
            counts[arm, "in time"] += adds[2]
    for arm, nonzero, zero, total in rows("SELECT arm, nonzero, zero, total FROM arm_sum"):
        assert nonzero == counts[arm, "reward"]
        assert zero == counts[arm, "zero"]
        assert total == pytest.approx(counts[arm, "total"], rel=1e-12)
    for arm, n in rows("SELECT arm, sum(n) FROM waiting GROUP BY arm"):
        assert n == counts[arm, "waits"]
    for arm, n in rows("SELECT arm, sum(n) FROM converted GROUP BY arm"):
        assert n == counts[arm, "in time"]


DAMAGE = {
    "UPDATE arm_sum SET nonzero = nonzero + 1 WHERE arm = 0": "arm 'A': the number of rewards is",
    "UPDATE arm_sum SET zero = zero - 1 WHERE arm = 0": "arm 'A': the number of zeros is",
    "UPDATE arm_sum SET positive = 99": "the number of positive rewards is 99.0 in the statistics",
    "UPDATE arm_sum SET total_rest = total_rest + 1e-20": "the sum of the rewards is",
    "UPDATE arm_sum SET squares = squares * (1 + 1e-15)": "the sum of the squared rewards is",
    "UPDATE arm_sum SET log_total_rest = 1e-20": "the sum of the logarithms of the rewards is",
    "INSERT INTO arm_sum SELECT bandit, 5, worker, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 FROM arm_sum "
    "LIMIT 1": "sums of arm number 5, which is not known",
    "UPDATE waiting SET n = n + 1 WHERE arm = 1": "of arm 'B' in bucket",
    "DELETE FROM waiting": "wait in the statistics, but",
    "UPDATE converted SET n = n + 1": "the number of the rewards of arm",
    "UPDATE converted SET total = total + 0.001": "the sum of the rewards of arm",
    "UPDATE converted SET squares = squares * 1.00001": "the sum of squares of the rewards of",
    "UPDATE converted SET bin = bin + 1": "with delays in bin",
    "UPDATE decision SET value = 31.0 WHERE key = 'paid'": "`value` 31.0, but its events say 30.0",
    "UPDATE decision SET value = 0.0 WHERE key = 'waits'": "`value` 0.0, but its events say None",
    "UPDATE decision SET entries = 2 WHERE key = 'paid'": "`entries` 2, but its events say 1",
    "UPDATE decision SET known = known - 1 WHERE key = 'paid'": "`known`",
    "UPDATE decision SET cancelled = 1 WHERE key = 'waits'": "`cancelled` True",
    "UPDATE decision SET probability = 0.0 WHERE key = 'waits'": "must lie in (0, 1]",
    "UPDATE decision SET probability = 1.5 WHERE key = 'waits'": "must lie in (0, 1]",
    "UPDATE decision SET arm = 9 WHERE key = 'waits'": "serves arm number 9, which is not known",
    "UPDATE decision SET wanted = 9 WHERE key = 'waits'": "wanted arm number 9, which is not known",
    "UPDATE decision SET version = 7 WHERE key = 'waits'": "model version 7, which is not known",
    "UPDATE decision SET kind = 4 WHERE key = 'waits'": "is of kind 4, which is not known",
    "UPDATE decision SET eligible = '[1]' WHERE arm = 0": "not among the eligible ones, [1]",
    "UPDATE decision SET at = at + 1000000 WHERE key = 'waits'": "in bucket",
    "DELETE FROM decision WHERE key = 'paid'": "not parked although its decision is not there",
    "DELETE FROM event WHERE id = 'order'": "`value` 30.0, but its events say None",
    "UPDATE event SET value = 29.0 WHERE id = 'order'": "`value` 30.0, but its events say 29.0",
    "UPDATE event SET parked = 1 WHERE id = 'order'": "parked although its decision is there",
    "UPDATE event SET parked = 0 WHERE id = 'early'": "not parked although its decision is not",
    "UPDATE event SET kind = 2 WHERE id = 'order'": "`cancelled` False, but its events say True",
}


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with nothing wrong in it."""
    little = Little(tmp_path_factory.mktemp("sound") / "ledger.db", grace=20.0)
    little.decide("paid", "waits", *(f"k{i}" for i in range(8)))
    little.now += 5.0
    little.event("paid", 30.0, id="order")
    for i in range(8):
        little.event(f"k{i}", 2.0 + i if i % 2 else 0.0)
    little.event("never", 1.0, id="early")
    assert verdict(little)
    little.close()
    return little.path


@pytest.mark.parametrize("sql", DAMAGE)
def test_whatever_is_changed_behind_its_back_is_found(
    sound: Path, tmp_path: Path, sql: str
) -> None:
    path = Path(shutil.copy(sound, tmp_path))
    spoil(path, sql)
    with looking(path) as connection:
        found = check(connection, now=(START + 5) * SECOND)
    assert not found
    assert DAMAGE[sql] in str(found), str(found)


def test_amounts_that_were_revised_leave_no_trace(little: Little) -> None:
    little.decide(*(f"k{i}" for i in range(30)))
    little.now += 5.0
    for i in range(30):
        little.event(f"k{i}", 1e15 / 7.0 if i % 3 else 49.99)
    for i in range(30):
        if i % 3:
            little.now += 0.001
            little.revise(f"k{i}", 50.01)
    found = verdict(little)
    assert found, str(found)


def test_old_buckets_may_have_been_put_together(little: Little) -> None:
    little.decide("a", "b", "c")
    little.event("a", 5.0)
    little.now += 500.0
    little.decide("d")
    for table, rest in (("waiting", ""), ("converted", ", bin")):
        little.spoil(
            f"CREATE TABLE old AS SELECT bandit, arm, -1 AS bucket{rest}, worker, sum(n) AS n"
            + (", sum(total) AS total, sum(squares) AS squares" if rest else "")
            + f" FROM {table} WHERE bucket < {(START + 100) * 1_000_000 // little.book.rules.width}"
            f" GROUP BY bandit, arm{rest}, worker"
        )
        before = (START + 100) * 1_000_000 // little.book.rules.width
        little.spoil(f"DELETE FROM {table} WHERE bucket < {before}")
        little.spoil(f"INSERT INTO {table} SELECT * FROM old")
        little.spoil("DROP TABLE old")
    assert verdict(little), str(verdict(little))
    little.event("b", 4.0)  # taken out of its own bucket, which is -1 there by now
    assert verdict(little), str(verdict(little))
    little.spoil("UPDATE waiting SET n = n + 1 WHERE bucket = -1")
    assert "in the oldest buckets wait" in str(verdict(little))


def test_bandits_of_one_database_are_checked_apart(little: Little) -> None:
    little.decide("a")
    little.event("a", 2.0)
    little.close()
    other = Little(little.path, name="other", aggregate="max")
    stranger = other.book.decision_id
    other.book.decision_id = little.book.decision_id  # type: ignore[method-assign]
    assert other.event("a", 5.0, id="entry-1").status == "parked"  # not its decision
    other.book.decision_id = stranger  # type: ignore[method-assign]
    other.decide("a")
    other.event("a", 1.0)
    with other.reading() as connection:
        for name, events in (("default", 1), ("other", 2)):
            found = check(connection, name)
            assert found, str(found)
            assert (found.decisions, found.events) == (1, events)
    other.close()


def test_it_sees_one_moment_while_decisions_go_on(little: Little) -> None:
    little.decide("a", "b")
    with looking(str(little.path)) as connection:
        connection.rows("SELECT 1 FROM bandit")
        little.decide("c")
        little.event("a", 2.0)
        found = check(connection)
        assert found, str(found)
        assert (found.decisions, found.events) == (2, 0)
    assert verdict(little).decisions == 3


def test_many_problems_of_a_kind_are_counted(little: Little) -> None:
    little.decide(*(f"k{i}" for i in range(NAMED + 7)))
    little.spoil("UPDATE decision SET probability = 0")
    found = verdict(little)
    assert len(found.problems) == NAMED + 1
    assert found.problems[-1] == "and 7 more decisions with a wrong probability"
    assert str(found).startswith(f"{NAMED + 1} problems in {NAMED + 7} decisions and 0 events:")


def test_progress_is_told(little: Little) -> None:
    little.decide("a")
    told: list[Any] = []
    with little.reading() as connection:
        check(connection, progress=lambda *what: told.append(what))
    assert told == [("checking decisions", 1.0)]


def test_the_bandit_must_be_there(little: Little) -> None:
    from zib.live import LedgerError

    with little.reading() as connection, pytest.raises(LedgerError, match="`name` must be that of"):
        check(connection, "other")
