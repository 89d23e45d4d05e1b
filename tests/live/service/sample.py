"""Overviews made by hand, and a stand-in for a ledger that shows them."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Hashable, Sequence
from typing import Any

from zib.live.answers import Change
from zib.live.settings import Settings
from zib.live.status import Status
from zib.live.views import (
    Advice,
    Ages,
    ArmView,
    Drift,
    Gain,
    History,
    Overview,
    Ratio,
)
from zib.stats.intervals import Estimate

NOW = 1_784_552_400.0  # in July 2026
NAN = math.nan
UNKNOWN = Estimate(NAN, NAN, NAN)
STRANGE = (
    "<script>alert(1)</script>",
    "\"quoted\" & 'quoted'",
    "🧦 socks",
    "مرحبا بالعالم",
    "long " * 39 + "label",
    "</title><img src=x onerror=alert(2)>",
    "A/B?c=d&e#f%20",
)


def status(**other: Any) -> Status:
    known: dict[str, Any] = {
        "name": "checkout", "at": NOW, "version": 412, "age": 3.2, "arms": {}, "delays": 812,
        "half": 5_400.0, "most": 172_800.0, "late": 3, "duplicates": 17, "conflicts": 0,
        "parked": 4, "dead": 0,
    }  # fmt: skip
    return Status(**{**known, **other})


def arm(label: Hashable, k: int = 0, n: int = 20_000, **other: Any) -> ArmView:
    """An arm whose value falls with `k`, known from `n` decisions."""
    p, mu = 0.034 - 0.0035 * (k % 9), 41.0 + 3.0 * (k % 4)
    wide = 2.8 / math.sqrt(n * p)
    known: dict[str, Any] = {
        "label": label, "status": "active", "share": 0.6 / 2.0**k, "decisions": n,
        "rewarded": round(n * p), "waiting": n // 9,
        "prob": Estimate(p, p * (1 - wide), p * (1 + wide)),
        "magnitude": Estimate(mu, mu * (1 - wide / 2), mu * (1 + wide / 2)),
        "reward": Estimate(p * mu, p * mu * (1 - 1.2 * wide), p * mu * (1 + 1.2 * wide)),
        "best": 0.82 / 6.0**k,
    }  # fmt: skip
    return ArmView(**{**known, **other})


def history(labels: Sequence[Hashable], periods: int = 24 * 14, width: float = 3_600.0) -> History:
    """Decisions that drift towards the first arms, more by day than by night."""
    chance = random.Random(1)
    starts = [NOW // width * width - width * (periods - k) for k in range(periods)]
    daily = [1.2 + math.sin(2 * math.pi * (start % 86_400) / 86_400 - 2.0) for start in starts]
    drift = [k / periods for k in range(periods)]
    counts = {
        label: [
            round(60 * day * chance.uniform(0.8, 1.2) * math.exp(-j * 1.4 * t))
            for day, t in zip(daily, drift)
        ]
        for j, label in enumerate(labels)
    }
    revenue = [
        80.0 * day * chance.uniform(0.6, 1.4) * (1 + 0.3 * t) for day, t in zip(daily, drift)
    ]
    return History(starts, width, counts, revenue, [round(x / 40) for x in revenue])


def ages() -> Ages:
    edges = [k * 25_200.0 for k in range(25)]
    known = [1 - math.exp(-edge / 60_000.0) for edge in edges]
    waiting = [round(900 * math.exp(-k / 40) + 40 * (k % 3)) for k in range(24)]
    return Ages(edges, waiting, known, 41_000.0, 140_000.0)


def gain() -> Gain:
    return Gain(
        "weighting", Estimate(1.31, 1.2, 1.42), Estimate(1.17, 1.1, 1.24),
        Estimate(0.14, 0.035, 0.245), Estimate(12.0, 3.0, 21.0),
        Estimate(4_312.0, 1_078.0, 7_546.0), 30_800,
    )  # fmt: skip


def overview(labels: Sequence[Hashable] = ("A", "B", "C", "D"), **other: Any) -> Overview:
    """Return an overview in which everything is known."""
    arms = [arm(label, k) for k, label in enumerate(labels)]
    known: dict[str, Any] = {
        "status": status(),
        "gain": gain(),
        "arms": arms,
        "history": history(labels),
        "ages": ages(),
        "ratio": Ratio(0.41, labels[0], 20_000, 20_031.0, True),
        "drift": [],
        "advice": [Advice("fine", "Keep running: A is ahead, but it is not decided yet.")],
        "audit": [
            Change(NOW - 5_000, "anna", "pause arm", "D"),
            Change(NOW - 90_000, "live.toml", "add arm", "D"),
        ],
        "last_decision": NOW - 1.0,
        "last_event": NOW - 45.0,
        "context": False,
    }
    return Overview(**{**known, **other})


def busy() -> Overview:
    """Everything that can be wrong is, and there are many arms."""
    labels = [*STRANGE, *(f"price {k}" for k in range(43))]
    seen = overview(labels)
    arms = [
        dataclasses.replace(
            each, status="retired" if k % 9 == 8 else "paused" if k == 5 else "active"
        )
        for k, each in enumerate(seen.arms)
    ]
    arms[3] = dataclasses.replace(arms[3], prob=Estimate(0.03, 0.0, 0.9), best=0.2)
    return dataclasses.replace(
        seen,
        arms=arms,
        status=status(conflicts=2, dead=7, parked=9, shadow=labels[1], problem="disk full"),
        ratio=Ratio(0.00004, labels[0], 21_000, 20_031.0, False),
        drift=[Drift("chance", labels[0], 0.001, 0.031, 0.022)],
        advice=[
            Advice("act", "The events stopped two hours ago.", "check events"),
            Advice(
                "look",
                f"Retire {labels[3]}: it is best with probability 0.3 %.",
                "retire",
                labels[3],
            ),
        ],
        audit=[Change(NOW - 60.0 * k, "anna <b>", "pause arm", labels[k % 7]) for k in range(20)],
    )


def empty() -> Overview:
    """A bandit that has seen nothing."""
    nothing = {"share": None, "decisions": 0, "rewarded": 0, "waiting": 0, "best": None}
    unknown = {"prob": UNKNOWN, "magnitude": UNKNOWN, "reward": UNKNOWN}
    return overview(
        status=status(version=0, age=None, delays=0, half=NAN, most=NAN),
        gain=Gain(),
        arms=[arm(label, **nothing, **unknown) for label in ("A", "B")],
        history=History(),
        ages=Ages(),
        ratio=Ratio(),
        audit=[],
        last_decision=None,
        last_event=None,
    )


def unknown_everywhere() -> Overview:
    """Numbers that are not finite wherever there are numbers."""
    odd = Estimate(NAN, -math.inf, math.inf)
    arms = [
        arm("A", prob=odd, magnitude=odd, reward=odd, best=NAN, share=NAN),
        arm("B", prob=Estimate(0.1, NAN, NAN), reward=Estimate(1.0, 1.0, math.inf)),
    ]
    n = 5
    return overview(
        status=status(half=NAN, most=math.inf, age=-1.0),
        gain=Gain("weighting", odd, odd, Estimate(0.1, NAN, NAN), odd, odd, 5),
        arms=arms,
        history=History([NOW + k for k in range(n)], 1.0, {"A": [0] * n}, [0.0] * n, [0] * n),
        ages=Ages([0.0, 1.0], [0], [NAN, NAN]),
        ratio=Ratio(NAN, None, 0, NAN, True),
        drift=[Drift("amount", "A", NAN, NAN, NAN)],
    )


class ShownLedger:
    """Stands in for a ledger: it shows what it is given and writes down what it is told."""

    def __init__(self, seen: Overview) -> None:
        self.seen = seen
        self.settings = Settings(window=7 * 86_400)
        self.told: list[tuple[str, Hashable, str]] = []
        self.looks = 0

    @property
    def arms(self) -> dict[Hashable, str]:
        return {each.label: each.status for each in self.seen.arms}

    def overview(self) -> Overview:
        self.looks += 1
        return self.seen

    def __getattr__(self, name: str) -> Any:
        if name not in ("pause_arm", "resume_arm", "retire_arm", "add_arm", "set_shadow"):
            raise AttributeError(name)
        return lambda arm, who="": self.told.append((name, arm, who))


def application(ledgers: dict[str, Any], tokens: tuple[Any, ...] = (), every: float = 2.0) -> Any:
    """Return the page alone as an application."""
    from zib.live.service import page
    from zib.live.service.access import Access
    from zib.live.service.config import Config
    from zib.live.service.feed import Feed

    access = Access(Config("live.db", tokens=tokens))
    return page.pages(ledgers, access, Feed(ledgers, every=every))
