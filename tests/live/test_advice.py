"""Each rule speaks when it should, in a plain sentence, and is silent otherwise."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from tests.live.scene import START, Clock, opened
from zib.live.advice import RULES, advised
from zib.live.settings import Settings
from zib.live.status import Status
from zib.live.views import (
    UNKNOWN,
    Ages,
    ArmView,
    Drift,
    Gain,
    History,
    Missing,
    Overview,
    Ratio,
)
from zib.stats.intervals import Estimate

HOUR, DAY = 3_600.0, 86_400.0
SETTINGS = Settings(window="7d")


def arm(label: str, best: float, **more: Any) -> ArmView:
    known: dict[str, Any] = {
        "label": label, "status": "active", "share": 0.5, "decisions": 5_000, "rewarded": 150,
        "waiting": 100, "prob": UNKNOWN, "magnitude": UNKNOWN, "reward": UNKNOWN, "best": best,
    }  # fmt: skip
    return ArmView(**(known | more))


def seen(**more: Any) -> Overview:
    """Return the overview of a bandit that is well, but for `more`."""
    status = Status(
        "shop", START, 7, 5.0, {}, 300, HOUR, DAY, 2, 1, 0, 0, 0
    )  # fmt: skip
    of_status = {each.name for each in dataclasses.fields(Status)} - {"arms"}
    own = {name: more.pop(name) for name in list(more) if name in of_status}
    known: dict[str, Any] = {
        "status": dataclasses.replace(status, **own),
        "gain": Gain(),
        "arms": [arm("A", 0.6), arm("B", 0.4)],
        "history": History([START - 30 * DAY], DAY, {"A": [5_000], "B": [5_000]}, [1.0], [300]),
        "ages": Ages(),
        "ratio": Ratio(),
        "drift": [],
        "advice": [],
        "audit": [],
        "last_decision": START - 10.0,
        "last_event": START - 60.0,
        "context": False,
        "missing": Missing(0.1, 200.0),
    }
    return Overview(**(known | more))


def told(**more: Any) -> list[tuple[str, str]]:
    problem = more.pop("problem", None)
    settings = more.pop("settings", SETTINGS)
    found = advised(seen(**more), problem, settings)
    return [(each.level, each.sentence) for each in found.advice]


def test_all_is_well() -> None:
    assert told() == [("fine", "Keep running: no arm is clearly better yet.")]
    leading = [
        arm("A", 0.8, reward=Estimate(1.2, 0.9, 1.5)), arm("B", 0.2, reward=Estimate(1.0, 0.7, 1.3))
    ]  # fmt: skip
    ((level, sentence),) = told(arms=leading)
    assert level == "fine"
    assert "A leads" in sentence
    assert "about 71 days" in sentence
    ((_, sentence),) = told(history=History([START - 2 * DAY], HOUR, {"A": [900]}, [1.0], [3]))
    assert "the first window closes in 5 days" in sentence


RETIRE = [arm("A", 0.7), arm("B", 0.297), arm("C", 0.003)]
WON = [arm("A", 0.002), arm("B", 0.998)]
CASES = {
    "model stuck": (
        {"problem": "LedgerError: the disk is full"}, "act",
        "The model is stuck: the disk is full. Decisions go on with model version 7",
    ),
    "database away": (
        {"problem": "Transient: gone"}, "act", "The database could not be used: gone.",
    ),
    "nobody learns": (
        {"age": 3 * HOUR}, "act", "The model is 3 hours old although events came since",
    ),
    "no arm": (
        {"arms": [arm("A", 0.5, status="paused")]}, "act", "No arm is active",
    ),
    "events stopped": (
        {"missing": Missing(40.2, 180.0), "last_event": START - 2 * HOUR, "age": 2 * HOUR}, "act",
        "No event for 2 hours; usually one comes every 3 minutes. By the decisions that wait, 40",
    ),
    "sample ratio": (
        {"ratio": Ratio(1e-6, "B", 4_000, 4_400.0, False)}, "act",
        "B has fewer decisions than it should, 4,000 instead of 4,400, and that is not chance",
    ),
    "many dead letters": (
        {"dead": 41}, "act", "12 % of the events name no decision (41 so far): check the ids",
    ),
    "some dead letters": ({"dead": 12}, "look", "3.8 % of the events name no decision"),
    "decisions stopped": (
        {"last_decision": START - 20 * DAY, "last_event": START - 19 * DAY}, "look",
        "No decision for 20 days; on average one was made every",
    ),
    "drift": (
        {"drift": [Drift("chance", "B", 1e-5, 0.03, 0.015)]}, "look",
        "The chance of a reward of B fell from 3 % to 1.5 %, which is not chance",
    ),
    "drift of amounts": (
        {"drift": [Drift("amount", "B", 1e-5, 30.0, 41.5)] * 2}, "look",
        "The average reward of B rose from 30.0 to 41.5, which is not chance, and there are 1",
    ),
    "late events": (
        {"late": 60}, "look", "20 % of the events became known after the window of 7 days",
    ),
    "retire": ({"arms": RETIRE}, "look", "Retire C: it is best with probability 0.3 %."),
    "won": ({"arms": WON}, "look", "B is best with probability 99.8 %: make it the only one"),
    "shadow": ({"shadow": "A"}, "look", "Shadow mode is on: A is served whatever the policy wants"),
    "nothing yet": (
        {"last_decision": None, "last_event": None}, "fine", "No decision has been made yet",
    ),
    "no event yet": ({"last_event": None}, "fine", "Keep running: decisions are made"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_rules(name: str) -> None:
    given, level, sentence = CASES[name]
    first = told(**given)[0]
    assert first[0] == level
    assert first[1].startswith(sentence), first[1]


def test_every_rule_is_tried_here() -> None:
    assert len(CASES) >= len(RULES)


def test_the_most_urgent_comes_first_and_little_evidence_retires_nobody() -> None:
    levels = [level for level, _ in told(arms=WON, dead=41, shadow="A")]
    assert levels == ["act", "look", "look", "look"]
    young = [arm("A", 0.999, decisions=60, waiting=50, rewarded=5), arm("B", 0.001, decisions=60)]
    assert not [s for _, s in told(arms=young) if "best" in s and "A is" in s]
    little = [arm("A", 0.999), arm("B", 0.001, decisions=90, waiting=85, rewarded=2)]
    assert not [s for _, s in told(arms=little) if "Retire" in s or "is best" in s]


def test_arms_that_have_changed_judge_nobody_and_are_not_judged() -> None:
    fell = [Drift("chance", "A", 1e-9, 0.05, 0.03)]  # A leads
    assert not [s for _, s in told(arms=RETIRE, drift=fell) if s.startswith("Retire")]
    for who, retired in (("B", False), ("C", False), ("D", True)):
        arms = [*RETIRE, arm("D", 0.0001)]
        found = told(arms=arms, drift=[Drift("chance", who, 1e-9, 0.01, 0.02)])
        assert any(s.startswith("Retire C") for _, s in found) is retired
    assert not [s for _, s in told(arms=WON, drift=fell) if "make it" in s]


def test_events_that_stop_are_noticed_by_what_should_have_come(database: str) -> None:
    clock = Clock()
    with opened(database, clock, arms=["A", "B"], window=1_000.0, draws=10) as ledger:
        k = 0

        def traffic(periods: int, events: bool) -> None:
            nonlocal k
            for _ in range(periods):
                made = ledger.decide_many([f"{k} {n}" for n in range(50)])
                clock.now += 10.0
                if events:
                    ledger.event_many([(f"e{d.id}", d.id, 2.0) for d in made[::10]])
                k += 1

        traffic(20, events=True)
        assert ledger.overview().missing.expected < 10.0
        traffic(8, events=False)
        ledger.refresh()
        found = ledger.overview()
    assert 15.0 < found.missing.expected < 60.0  # about five every ten seconds
    assert found.advice[0].action == "check events"
    assert math.isclose(found.missing.gap, 2.0, rel_tol=0.5)
