"""Every logged decision can be drawn again, and one that was not drawn so is found."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.live.little import spoil
from tests.live.scene import START, Clock
from zib.core.entry import interpreted
from zib.live import Ledger
from zib.live.check import check
from zib.live.outcome import SECOND
from zib.live.pages import looking
from zib.live.status import status
from zib.mab import NormalTS


@pytest.fixture(autouse=True)
def _interpreted() -> Iterator[None]:
    with interpreted():
        yield


def made(database: str, clock: Clock, n: int = 60) -> Ledger:
    """Return a ledger in which all kinds of decisions were made, by several versions."""
    ledger = Ledger(
        database, arms=["A", "B", "C"], window=100.0, holdout=0.2, policy=NormalTS(), draws=50,
        evidence=5, background=False, clock=clock,
    )  # fmt: skip
    for i in range(n):
        clock.now += 5.0
        if i == 20:
            ledger.pause_arm("C")  # there is no new version yet
        if i == 30:
            ledger.refresh()
            ledger.add_arm("D")
            ledger.set_shadow("A")
        if i == 45:
            ledger.set_shadow(None)
            ledger.resume_arm("C")
        decision = ledger.decide(f"k{i}", unit=f"u{i % 7}", arms=["A", "B"] if i % 4 == 3 else None)
        if i % 3 == 0:
            ledger.event(f"e{i}", decision.id, 1.0 + i)
        if i % 10 == 9:
            ledger.refresh()
    return ledger


def test_all_kinds_of_decisions_are_drawn_again(database: str) -> None:
    with made(database, Clock()) as ledger:
        found = ledger.replay()
        kinds = set(ledger.export(pending="weight").frame().kind)
        with looking(database) as connection:  # beside it, by path or address
            checked = check(connection, now=round(START * SECOND))
            assert checked, str(checked)
            known = status(connection, now=round(START * SECOND))
        assert sum(arm.decisions for arm in known.arms.values()) == 60
        assert "Model version" in str(known)
    assert kinds == {"policy", "holdout", "shadow"}
    assert found, str(found)
    assert (found.decisions, found.replayed) == (60, 60)
    assert found.versions >= 5
    assert "all with the logged arm and probability" in str(found)


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("UPDATE decision SET probability = probability + 1e-15 WHERE key = 'k1'", "probability"),
        ("UPDATE decision SET arm = (arm + 1) % 3 WHERE key = 'k1'", "is drawn again as"),
        ("UPDATE decision SET wanted = (wanted + 1) % 3 WHERE key = 'k1'", "with wanted"),
        ("UPDATE decision SET key = 'other' WHERE key = 'k1'", "an id that does not belong to"),
        ("UPDATE decision SET eligible = '[7]' WHERE key = 'k1'", "cannot be drawn again"),
        ("UPDATE decision SET kind = 1 - kind WHERE key = 'k1'", "kind"),
    ],
)
def test_a_decision_that_was_not_drawn_so_is_found(tmp_path: Path, sql: str, words: str) -> None:
    path = str(tmp_path / "ledger.db")
    with made(path, Clock(), 5) as ledger:
        spoil(path, sql)
        found = ledger.replay()
    assert len(found.problems) == 1
    assert words in found.problems[0]


def test_what_cannot_be_drawn_again_is_counted(tmp_path: Path) -> None:
    path = str(tmp_path / "ledger.db")
    with made(path, Clock(), 25) as ledger:
        versions = [d[0] for d in _rows(path, "SELECT DISTINCT version FROM decision ORDER BY 1")]
        spoil(path, f"UPDATE model SET content = '' WHERE version = {versions[0]}")
        ((gone,),) = _rows(path, f"SELECT count(*) FROM decision WHERE version = {versions[0]}")
        found = ledger.replay()
    assert found
    assert found.replayed == 25 - gone
    assert f"{gone} cannot be: their model versions are not kept any more" in str(found)


def _rows(path: str, sql: str) -> list[tuple[int, ...]]:
    raw = sqlite3.connect(path)
    found = raw.execute(sql).fetchall()
    raw.close()
    return found


def test_a_ledger_that_is_opened_again_draws_the_same(new_database: Callable[[], str]) -> None:
    path, clock = new_database(), Clock()
    made(path, clock).close()
    with Ledger(path, background=False, clock=clock) as again:
        assert again.replay()
        assert again.check()
        assert again.decide("k1", unit="u1").id == again.decision_id("k1")
