"""Logs drawn by the thousand as sums over their arms, and how often they get a winner."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import numpy as np

from zib.logs import LoggedData
from zib.logs.advise.collect import Collected, collect
from zib.logs.advise.verdict import arm_values
from zib.stats.comparison import ArmValues, difference
from zib.stats.moments import Moments

Law = Callable[[np.random.Generator, int], np.ndarray]
LAWS: dict[str, Law] = {
    "constant": lambda rng, n: np.ones(n),
    "exponential": lambda rng, n: rng.exponential(size=n),
    "gamma 0.5": lambda rng, n: rng.gamma(0.5, size=n),
    "lognormal 1": lambda rng, n: rng.lognormal(0.0, 1.0, n),
    "lognormal 1.5": lambda rng, n: rng.lognormal(0.0, 1.5, n),
}


@cache
def _template(k: int) -> Collected:
    log = LoggedData.from_arrays(np.arange(2 * k) % k, np.ones(2 * k))
    return collect(log, 0, lambda share: None)


def logs(
    rng: np.random.Generator, rows: np.ndarray, p: np.ndarray, law: Law, scale: float, reps: int
) -> Iterator[Collected]:
    """Yield logs of arms with so many rows, chances p and magnitudes `scale` times the law."""
    k = rows.size
    paid = rng.binomial(rows, p, size=(reps, k))
    x = scale * law(rng, int(paid.sum()))
    group = np.repeat(np.arange(reps * k), paid.ravel())
    whole = Moments(reps * k, order=3)
    whole.add_groups(group, x)
    for i in range(reps):
        at = slice(i * k, (i + 1) * k)
        moments = Moments(k, order=3)
        moments.count, moments.mean = whole.count[at], whole.mean[at]
        moments.m2, moments.m3 = whole.m2[at], whole.m3[at]
        n = rows.astype(np.float64)
        yield replace(_template(k), rows=n, paid=moments, n_rows=int(n.sum()))


def welch(values: ArmValues) -> ArmValues:
    """Return what Welch's test goes by: no floor of the variances, no skewness."""
    return ArmValues(values.value, values.covariance, values.df)


def winner(values: ArmValues, level: float = 0.95) -> int | None:
    """Return the leader if it beats each other arm: the rule of the verdict *ship*."""
    leader = int(np.argmax(values.value))
    low = difference(values, leader, level=level).low
    return leader if (np.delete(low, leader) > 0.0).all() else None


class Rates(NamedTuple):
    """Share of logs with a winner, by our rule and by Welch's test, and of those each arm wins."""

    ours: float
    welch: float
    ours_by_arm: np.ndarray
    welch_by_arm: np.ndarray


def winner_rates(
    seed: int, rows: list[int], p: list[float] | float, law: str, *, reps: int, scale: float = 1.0
) -> Rates:
    """Return how often logs like this get a winner."""
    rng = np.random.default_rng(seed)
    n = np.asarray(rows)
    chance = np.broadcast_to(np.asarray(p, dtype=np.float64), n.shape)
    ours, theirs = np.zeros(n.size), np.zeros(n.size)
    for found in logs(rng, n, chance, LAWS[law], scale, reps):
        values = arm_values(found)
        for count, by in ((ours, values), (theirs, welch(values))):
            best = winner(by)
            if best is not None:
                count[best] += 1.0 / reps
    return Rates(float(ours.sum()), float(theirs.sum()), ours, theirs)
