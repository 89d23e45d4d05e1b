"""The history: sums by the time of the decision are the fold of the log, however old they get."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.live import stored
from tests.live.little import Little, spoil
from tests.live.naive import Naive
from tests.live.scene import Clock, opened, sound
from tests.live.test_check import verdict
from zib.live import history
from zib.live.check import check
from zib.live.history import HOUR, MOST_EXPECTED, SUMS, WIDTHS, width_of
from zib.live.model import Versioned
from zib.live.outcome import SECOND
from zib.live.pages import looking

pytestmark = pytest.mark.usefixtures("interpreting")
DAY = 86_400.0


def whole_history(database: str) -> dict[tuple[int, int], Any]:
    """Return all sums by arm and kind, whatever the period."""
    found: dict[tuple[int, int], Any] = defaultdict(lambda: np.zeros(len(SUMS)))
    for arm, kind, *sums in stored.rows(
        database, f"SELECT arm, kind, {', '.join(SUMS)} FROM history"
    ):
        found[arm, kind] += [float(x) for x in sums]
    return found


def test_shares_of_all_arms_add_up_as_the_model_versions_gave_them(database: str) -> None:
    clock = Clock()
    with opened(
        database, clock, arms=["A", "B", "C"], window="1d", holdout=0.2, draws=30
    ) as ledger:
        for day in range(4):
            some = ["A", "C"] if day % 2 else None
            made = ledger.decide_many([f"{day} {k}" for k in range(40)], arms=some)
            ledger.event_many([(f"e{d.id}", d.id, 5.0) for d in made[::3] if d.arm != "B"])
            ledger.cancel(made[1].id)
            clock.now += DAY / 4
            ledger.refresh()
        sound(ledger)
    expected: dict[int, Any] = defaultdict(lambda: np.zeros(4))
    versions = dict(stored.rows(database, "SELECT version, content FROM model"))
    for version, eligible, probability, arm in stored.rows(
        database, "SELECT version, eligible, probability, arm FROM decision WHERE kind = 0"
    ):
        arms = [0, 1, 2] if eligible is None else json.loads(eligible)
        if eligible is None:
            shares = np.array(Versioned.read(versions[version])["shares"])
        else:  # two arms: the other one has the rest
            shares = np.array([probability if k == arm else 1.0 - probability for k in arms])
        n = len(arms)
        for k, share in zip(arms, shares, strict=True):
            expected[k] += [share, share * (1.0 - share), 1.0 / n, 1.0 / (n * n * share)]
    kept = whole_history(database)
    assert {kind for _, kind in kept} == {0, 1}
    for arm, sums in expected.items():
        np.testing.assert_allclose(kept[arm, 0][6:], sums, rtol=1e-9)
    stored.check(database, Naive(window=86_400 * SECOND))


def test_old_periods_are_put_together_and_nothing_is_lost(database: str) -> None:
    clock = Clock()
    with opened(database, clock, arms=["A", "B"], window=60.0, draws=30) as ledger:
        for k in range(60):
            made = ledger.decide(f"k{k}")
            if k % 3 == 0:
                ledger.event(f"e{k}", made.id, 2.5)
            clock.now += 5.0
        first = ledger.decision_id("k0")
        before, fine = whole_history(database), stored.rows(database, "SELECT at FROM history")
        for days, width in ((0.5, 600), (5.0, 3_600), (90.0, 86_400)):
            clock.now += days * DAY
            ledger.refresh()
            starts = [row[0] for row in stored.rows(database, "SELECT at FROM history")]
            assert all(at % (width * SECOND) == 0 for at in starts)
            after = whole_history(database)
            assert after.keys() == before.keys()
            for key, sums in before.items():
                np.testing.assert_allclose(after[key], sums, rtol=1e-12)
            sound(ledger)
        ledger.revise("refund", first, 0.0)  # of a decision whose period is long gone
        sound(ledger)
    assert len({row[0] for row in fine}) >= 30


def test_of_very_many_arms_only_the_one_that_was_drawn_is_kept(database: str) -> None:
    arms = list(range(MOST_EXPECTED + 1))
    with opened(database, Clock(), arms=arms, window="1d", draws=10) as ledger:
        made = ledger.decide_many([f"k{k}" for k in range(5)])
        ledger.event("e", made[0].id, 3.0)
        sound(ledger)
    kept = whole_history(database)
    assert {kind for _, kind in kept} == {history.MANY}
    assert sum(sums[0] for sums in kept.values()) == 5
    arm = arms.index(made[0].arm)
    assert kept[arm, history.MANY][4] == pytest.approx(
        3.0 * (1.0 - 1.0 / (len(arms) * made[0].probability))
    )


@pytest.mark.parametrize("column", [*SUMS[:6], "expected"])
def test_a_wrong_number_is_found(column: str, tmp_path: Path) -> None:
    little = Little(tmp_path / "ledger.db")
    for k in range(20):
        little.decide(f"k{k}")
    little.event("k3", 3.5)
    assert verdict(little)
    little.close()
    spoil(
        little.path,
        f"UPDATE history SET {column} = {column} + 1 WHERE rowid = "
        "(SELECT rowid FROM history WHERE kind = 0 LIMIT 1)",
    )
    with looking(little.path) as connection:
        found = check(connection, now=round(little.now * SECOND))
    assert len(found.problems) == 1
    assert f"`{column}`" in found.problems[0]


def test_periods_are_short_against_the_window_and_divide_each_other() -> None:
    assert [width_of(round(d * DAY * SECOND)) for d in (0.001, 0.1, 1.0, 7.0, 365.0)] == [
        10 * SECOND, 60 * SECOND, 600 * SECOND, HOUR, HOUR,
    ]  # fmt: skip
    assert all(wide % narrow == 0 for narrow, wide in itertools.pairwise(WIDTHS))
