"""A long run with arms that are all alike, through a network that repeats, reorders and delays.

``python -m tests.live.soak DATABASE --decisions 1000000`` makes decisions by a simulated clock.
Of the calls 5 % are made twice; of the events 5 % overtake their decision and others change places;
2 % come after the window. Then everything in the database is folded anew and compared with the sums
that were kept, and with what was sent.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections import defaultdict
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import numpy as np

from tests.live import stored
from tests.live.naive import Naive
from tests.live.scene import Clock, opened, sound

ARMS = ["A", "B", "C"]
CHANCE, MEAN, SPREAD = 0.05, 30.0, 10.0
WINDOW, GRACE = 2000.0, 500.0
TICK, TICKS = 10.0, 1000  # seconds in a tick, and ticks with decisions: four horizons
REPEATED, OVERTAKING, LATE = 0.05, 0.05, 0.02
LOOKS = 50
HOLDOUT = 0.1
LEVEL = 0.9999  # of the intervals that are looked at


class Sent:
    """One event: what it says, when it happened and when it is sent."""

    def __init__(self, number: int, value: float, at: float) -> None:
        self.number, self.value, self.at = number, value, at


def tick_of(number: Any, n: int) -> Any:
    """Return when a decision is made."""
    return number * TICKS // n


def network(
    n: int, rng: np.random.Generator, start: float
) -> tuple[dict[int, list[Sent]], dict[int, list[Sent]]]:
    """Return the events by the tick they are sent in: those ahead of their decision, the others."""
    made = start + TICK * (1 + tick_of(np.arange(n), n))
    buys = np.flatnonzero(rng.random(n) < CHANCE)
    delay = np.minimum(rng.exponential(400.0, buys.size), 0.999 * WINDOW)
    late = rng.random(buys.size) < LATE
    delay[late] = rng.uniform(1.01 * WINDOW, 1.2 * WINDOW, late.sum())
    early = ~late & (rng.random(buys.size) < OVERTAKING)
    delay[early] = 0.0
    values = np.round(rng.normal(MEAN, SPREAD, buys.size), 2)
    values[values == 0.0] = 1.0
    at = made[buys] + delay
    tick = np.ceil((at - start) / TICK).astype(int)
    shuffled = ~early & ~late & (rng.random(buys.size) < OVERTAKING)
    tick[shuffled] += rng.integers(1, 20, shuffled.sum())  # stays in a queue somewhere
    ahead: dict[int, list[Sent]] = defaultdict(list)
    after: dict[int, list[Sent]] = defaultdict(list)
    for number, value, t, k, first in zip(
        buys.tolist(), values.tolist(), at.tolist(), tick.tolist(), early.tolist(), strict=True
    ):
        one = Sent(number, value, t)
        (ahead[tick_of(number, n)] if first else after[k]).append(one)
    return ahead, after


def repeated(items: Iterable[Any], rng: np.random.Generator) -> list[Any]:
    """Return the items in another order, some of them twice."""
    every = list(items)
    every += [item for item in every if rng.random() < REPEATED]
    rng.shuffle(every)
    return every


class Run:
    """Sends everything, and keeps account of what was sent and answered."""

    def __init__(self, database: str, n: int, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.clock = Clock()
        self.start = self.clock.now
        self.database, self.n = database, n
        self.ahead, self.after = network(n, self.rng, self.start)
        self.ledger = opened(
            database, self.clock, arms=ARMS, window=WINDOW, grace=GRACE, holdout=HOLDOUT
        )
        self.answers: dict[str, int] = defaultdict(int)
        self.missed = self.missed_early = self.looks = 0

    def events(self, sent: list[Sent]) -> None:
        if sent:
            calls = repeated(sent, self.rng)
            for receipt in self.ledger.event_many(
                (f"e{one.number}", self.ledger.decision_id(f"k{one.number}"), one.value, one.at)
                for one in calls
            ):
                self.answers[receipt.status] += 1

    def tick(self, tick: int) -> None:
        self.clock.now = self.start + TICK * (tick + 1)
        self.events(self.ahead.pop(tick, []))
        first, end = (-(-k * self.n // TICKS) for k in (tick, tick + 1))
        calls = repeated(range(min(first, self.n), min(end, self.n)), self.rng)
        if calls:
            self.ledger.decide_many([f"k{number}" for number in calls])
        self.events(self.after.pop(tick, []))

    def look(self) -> None:
        """Make a new version and see whether the intervals hold what is true.

        Before the first decisions have closed, how many rewards are still to come is a guess: the
        intervals take the estimated delay for the true one.
        """
        self.ledger.refresh()
        for arm in self.ledger.statistics(LEVEL).arms.values():
            for (low, high), true in (
                (arm.prob_interval, CHANCE),
                (arm.magnitude_interval, MEAN),
                (arm.reward_interval, CHANCE * MEAN),
            ):
                self.looks += 1
                if self.clock.now - self.start > WINDOW + GRACE:
                    self.missed += not low <= true <= high
                else:
                    self.missed_early += not low <= true <= high

    def play(self) -> None:
        for tick in range(max([TICKS, *self.after]) + 1):
            self.tick(tick)
            if tick % (TICKS // LOOKS) == 0:
                self.look()
        self.look()


def run(database: str, *, decisions: int, seed: int) -> dict[str, Any]:
    """Play, then compare the sums with the log and with what was sent."""
    began = time.monotonic()
    game = Run(database, decisions, seed)
    sent = {
        one.number: one for d in (game.ahead, game.after) for many in d.values() for one in many
    }
    game.play()
    played = time.monotonic() - began
    sound(game.ledger)
    checked = time.monotonic() - began - played
    game.ledger.close()
    kept = stored.check(database, Naive(window=round(WINDOW * 1e6), grace=round(GRACE * 1e6)))
    assert len(kept.decisions) == decisions
    assert {entry.id for entry in kept.entries} == {f"e{number}" for number in sent}
    folded = kept.statistics()
    total = sum((Fraction(one.value) for one in sent.values()), Fraction(0))
    assert sum(folded.rewarded.values()) == len(sent)
    assert sum(folded.total.values()) == total  # the same numbers, exactly
    return {
        "decisions": decisions,
        "events": len(sent),
        **game.answers,
        "seconds": played,
        "check": checked,
        "fold": time.monotonic() - began - played - checked,
        "looks": game.looks,
        "missed": game.missed,
        "missed_early": game.missed_early,
        **shares(database),
    }


def shares(database: str) -> dict[str, float]:
    """Return how far shares are from what they should be, in standard deviations.

    Of the holdout: from even. Of the others: the weights 1/π of an arm's decisions, π being the
    logged probability, add up to the number of all decisions, less a martingale, whatever the
    policy learned on the way.
    """
    rows = stored.rows(database, "SELECT kind, arm, probability FROM decision")
    kind, arm, probability = (np.array(column) for column in zip(*rows, strict=True))
    even = np.bincount(arm[kind == 1], minlength=len(ARMS))
    expected = even.sum() / len(ARMS)
    policy = kind == 0
    worst, n = 0.0, int(policy.sum())
    for k in range(len(ARMS)):
        mine = policy & (arm == k)
        weights = 1.0 / probability[mine]
        spread = math.sqrt(float((weights * (weights - 1.0)).sum()))
        worst = max(worst, abs(float(weights.sum()) - n) / max(spread, 1.0))
    return {
        "holdout": float(
            (np.abs(even - expected) / math.sqrt(expected * (1 - 1 / len(ARMS)))).max()
        ),
        "weights": worst,
    }


def main() -> None:
    """Play, and print what came of it as JSON."""
    parser = argparse.ArgumentParser(prog="python -m tests.live.soak", description=__doc__)
    parser.add_argument("database", help="path of a new SQLite file, or postgresql://…")
    parser.add_argument("--decisions", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    print(json.dumps(run(chosen.database, decisions=chosen.decisions, seed=chosen.seed)))


if __name__ == "__main__":
    main()
