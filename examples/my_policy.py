"""A policy of your own in one file: copy it, rename it, change the score.

It plays the observed mean reward plus `width` standard errors, with the variance of a
zero-inflated reward taken apart: p̂·s² (sizes differ) + p̂(1 − p̂)·μ̂² (paid or not).

Run this file to see it pass the conformance suite and play a simulation.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import zib
from zib.core.spec import positive
from zib.core.state import Floats, Part, per_arm
from zib.stats.arms import observe, reward_variance

# 1. The spec: parameters with their ranges, declared once. From this follow the constructor, its
#    one-sentence errors, `repr`, equality and what is saved. Compiled code sees the numbers.


class WidthUCB(zib.Spec):
    """Mean reward plus `width` standard errors; `floor` is the least standard deviation."""

    width: float = positive(default=2.0)
    floor: float = positive(default=0.1)
    label = "width UCB"


# 2. The state. Every policy has pulls, non-zero rewards, their sum and spread per arm. What yours
#    keeps besides has a name and is declared here; arms that come and go, saving, loading and
#    checking a loaded file follow from it.


class Kept(Part):
    """What is derived about an arm, once per reward instead of once per decision."""

    score: Floats = per_arm(start=math.inf, finite=False)  # untried arms come first


# 3. The kernels: plain Python on numbers and arrays, run by the interpreter and compiled from the
#    same text. Use `math`, not NumPy, on single numbers, so that both give the same bits, and guard
#    every division, square root and logarithm: compiled code does not raise. `register` makes them
#    compilable, also for each other; any other function they call needs `@zib.jitable`.


def refresh(spec: Any, state: Any, arm: int) -> None:
    """Recompute what is derived from the statistics of one arm."""
    n = state.pulls[arm]
    if n == 0.0:
        state.own.score[arm] = np.inf
        return
    seen = reward_variance(n, state.nonzero[arm], state.total[arm], state.spread[arm])
    variance = max(spec.floor * spec.floor, seen)
    state.own.score[arm] = state.total[arm] / n + spec.width * math.sqrt(variance / n)


def update(spec: Any, state: Any, arm: int, reward: float) -> None:
    """Learn one reward; nothing random may happen here."""
    observe(state, arm, reward)
    refresh(spec, state, arm)


def scores(spec: Any, state: Any, rng: Any, out: Any) -> None:
    """Write one score per arm; the largest is played, ties at random. The state stays as it is."""
    for k in range(out.size):
        out[k] = state.own.score[k]


# 4. Registration. `additive=True` promises that the statistics are sums over rewards, which makes
#    `Bandit.merge` and `Bandit.revise` work; `randomized=True` is for kernels that draw from `rng`.

zib.register(WidthUCB, own=Kept, scores=scores, update=update, refresh=refresh, additive=True)


def main() -> None:
    """Check the policy, then compare it with the library's."""
    import zib.testing

    spec = WidthUCB(width=2.0)
    zib.testing.check_policy(spec)
    print(f"{spec!r} keeps every promise")
    env = zib.env.GaussianMAB(means=[1.0, 2.0, 3.0], probs=[0.3, 0.2, 0.1], sigma=0.5)
    ours = zib.mab.ZITS(horizon=20_000, sigma=0.5)
    result = zib.simulate([spec, ours], env, horizon=20_000, replications=20, progress=False)
    final = result.to_frame().query("round == 20_000")
    print(final.groupby("policy")["regret"].agg(["mean", "sem"]).round(1))


if __name__ == "__main__":
    main()
