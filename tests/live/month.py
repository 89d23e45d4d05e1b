"""A database with a month of traffic behind it, made in seconds: `month(path)`.

python -m tests.live.month live.db --arms 50 --days 30 --decisions 100000
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

from zib.live import Ledger

HOUR = 3_600.0


def month(
    path: Path | str,
    arms: int = 50,
    days: int = 30,
    decisions: int = 100_000,
    *,
    name: str = "default",
    window: str = "7d",
    holdout: float = 0.05,
    end: float | None = None,
    seed: int = 0,
) -> float:
    """Fill a database, and return the time at which it ends (by default now), in seconds.

    Traffic comes hour by hour with ups and downs of the day. An arm pays with a chance of 2 to 6 %
    about 30 a piece, half of it within a day; everything goes through a ledger, so it is sound.
    """
    rng = np.random.default_rng(seed)
    end = time.time() if end is None else end
    hours = 24 * days
    start = end - hours * HOUR
    labels = [f"variant {k + 1}" for k in range(arms)]
    chance = dict(zip(labels, rng.uniform(0.02, 0.06, arms), strict=True))
    level = 1.0 + 0.6 * np.sin(2.0 * np.pi * np.arange(hours) / 24.0)
    sizes = rng.multinomial(decisions, level / level.sum())
    now = start
    horizon = 7 * 86_400.0
    coming: list[tuple[float, str, float]] = []
    with Ledger(
        path, name, arms=labels, window=window, holdout=holdout, draws=100, background=False,
        clock=lambda: now,
    ) as ledger:  # fmt: skip
        for hour, size in enumerate(sizes.tolist()):
            now = start + hour * HOUR
            made = ledger.decide_many([f"{name} {hour} {k}" for k in range(size)])
            paid = [each for each in made if rng.random() < chance[each.arm]]
            for each in paid:
                delay = min(rng.lognormal(np.log(20.0 * HOUR), 1.0), 0.999 * horizon)
                coming.append((now + delay, each.id, float(np.round(rng.gamma(3.0, 10.0), 2))))
            now += HOUR * 0.999
            due = [each for each in coming if each[0] <= now]
            coming = [each for each in coming if each[0] > now]
            if due:
                ledger.event_many([(f"order {id}", id, value, at) for at, id, value in due])
            if hour % 24 == 23:
                ledger.refresh()
        now = end
        ledger.refresh()
    return end


def main() -> None:
    """Make one from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path")
    for option, value in (("arms", 50), ("days", 30), ("decisions", 100_000)):
        parser.add_argument(f"--{option}", type=int, default=value)
    given = parser.parse_args()
    month(given.path, given.arms, given.days, given.decisions)


if __name__ == "__main__":
    main()
