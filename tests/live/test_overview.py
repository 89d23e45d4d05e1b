"""What the page shows, compared with numbers worked out by hand or from the log."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path

import numpy as np
import pytest

from tests.live.month import month
from tests.live.scene import Clock, opened
from zib.live import Ledger
from zib.mab import UCB

pytestmark = pytest.mark.usefixtures("interpreting")
DAY = 86_400.0


def test_everything_is_there_and_follows_from_the_log(database: str) -> None:
    clock = Clock()
    with opened(
        database,
        clock,
        arms=["A", "B", 3],
        window="1d",
        holdout=0.3,
        inflated=1.0,
        policy=UCB(horizon=1_000, sigma=1.0),
        least_share=0.2,
        evidence=1,
    ) as ledger:
        rng, made, paid = np.random.default_rng(1), [], {}
        for day in range(3):
            made += ledger.decide_many([f"{day} {k}" for k in range(300)])
            for each in made[-300:]:
                if rng.random() < (0.5 if each.arm == "B" else 0.2):
                    paid[each.id] = 1.0 + float(rng.gamma(4.0))
            ledger.event_many([(f"e{d.id}", d.id, paid[d.id]) for d in made[-300:] if d.id in paid])
            clock.now += DAY
        clock.now += 2 * DAY
        ledger.pause_arm(3, who="Ada")
        ledger.refresh()
        found = ledger.overview()
    kinds = np.array([d.kind for d in made])
    rewards = np.array([paid.get(d.id, 1.0) for d in made])
    assert found.gain.how == "holdout"
    worth = {k: rewards[kinds == k].mean() for k in ("policy", "holdout")}
    assert found.gain.policy.value == pytest.approx(worth["policy"])
    assert found.gain.even.value == pytest.approx(worth["holdout"])
    apart = worth["policy"] - worth["holdout"]
    assert found.gain.difference.value == pytest.approx(apart)
    assert found.gain.percent.value == pytest.approx(100.0 * apart / worth["holdout"])
    assert found.gain.total.value == pytest.approx(apart * (kinds == "policy").sum())
    assert found.gain.percent.low < found.gain.percent.value < found.gain.percent.high
    assert sum(found.history.revenue) == pytest.approx(rewards.sum())
    assert sum(found.history.rewarded) == (rewards != 1.0).sum()
    for arm in found.arms:
        assert sum(found.history.decisions[arm.label]) == arm.decisions
        assert arm.decisions == sum(d.arm == arm.label for d in made)
    best = {arm.label: arm.best for arm in found.arms}
    assert best[3] is None
    assert best["B"] > 0.99
    assert best["A"] + best["B"] == pytest.approx(1.0)
    assert found.ratio.ok
    assert not found.drift
    assert found.last_decision == made[-1].at
    assert found.audit[0].who == "Ada"
    assert [each.action for each in found.advice] == ["check decisions", None, "retire"]
    plain = json.loads(json.dumps(found.to_dict()))
    assert plain["gain"]["percent"].keys() == {"value", "low", "high"}
    assert [each["arm"] for each in plain["history"]["decisions"]] == ["A", "B", 3]


def test_an_empty_ledger_has_an_overview(database: str) -> None:
    with opened(database, Clock(), arms=["A", "B"], window="1d", draws=30) as ledger:
        found = ledger.overview()
    assert found.gain.how == "none"
    assert math.isnan(found.gain.difference.value)
    assert found.history.starts == []
    assert found.last_decision is None
    assert [each.sentence for each in found.advice] == [
        "No decision has been made yet: ask for the first one."
    ]


def test_pending_decisions_are_counted_by_age(database: str) -> None:
    clock = Clock()
    with opened(database, clock, arms=["A"], window=2400.0, draws=10) as ledger:
        for k in range(30):
            ledger.decide(f"k{k}")
            clock.now += 100.0
        ages = ledger.overview().ages
    assert 23 <= sum(ages.waiting) <= 24  # one is as old as the window
    assert len(ages.waiting) == 24
    assert all(n <= 2 for n in ages.waiting)
    assert ages.edges[-1] == 2400.0
    assert ages.known[0] == 0.0
    assert ages.known[-1] == 1.0


@pytest.mark.slow
def test_a_month_of_fifty_arms_is_sound_and_seen_in_a_third_of_a_second(quick_folder: Path) -> None:
    path = quick_folder / "month.db"
    end = month(path, decisions=40_000)
    with Ledger(path, background=False, clock=lambda: end) as ledger:
        assert ledger.check(), str(ledger.check())
        ledger.overview()
        taken = []
        for _ in range(5):
            start = time.perf_counter()
            found = ledger.overview()
            taken.append(time.perf_counter() - start)
    assert len(found.arms) == 50
    assert found.gain.how == "holdout"
    assert min(taken) < 0.3
