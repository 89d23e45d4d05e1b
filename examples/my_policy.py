"""A policy of your own in one file: copy it, rename it, change the score.

It plays the observed mean reward plus `width` standard errors, with the variance of a
zero-inflated reward taken apart: p̂·s² (sizes differ) + p̂(1 − p̂)·μ̂² (paid or not).

Run this file to see it pass the conformance suite and play a simulation.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

import zib
from zib.stats.arms import ArmState, new_state, observe, reward_variance

# 1. The spec: parameters only, immutable. Compiled code sees the fields, so they are numbers.


class _Fields(NamedTuple):
    width: float
    floor: float


class WidthUCB(zib.Spec, _Fields):
    """Mean reward plus `width` standard errors; `floor` is the least standard deviation."""

    __slots__ = ()
    default_label = "width UCB"

    def __new__(cls, *, width: float = 2.0, floor: float = 0.1) -> WidthUCB:
        """Check the parameters here, once; kernels never check anything."""
        if not (math.isfinite(width) and width > 0):
            raise zib.InvalidParameterError(f"`width` must lie in (0, inf); got {width!r}")
        if not (math.isfinite(floor) and floor > 0):
            raise zib.InvalidParameterError(f"`floor` must lie in (0, inf); got {floor!r}")
        return super().__new__(cls, float(width), float(floor))


# 2. The state. `ArmState` counts pulls, non-zero rewards, their sum and spread per arm, and has as
#    many columns of `cache` per arm as you ask for.

INDEX = 0


def init(spec: WidthUCB, n_arms: int) -> ArmState:
    """Return the state before the first reward."""
    state = new_state(n_arms, n_cache=1)
    state.cache[:, INDEX] = np.inf
    return state


# 3. The kernels: plain Python on numbers and arrays, run by the interpreter and compiled from the
#    same text. Use `math`, not NumPy, on single numbers, so that both give the same bits, and guard
#    every division, square root and logarithm: compiled code does not raise. `register` makes them
#    compilable, also for each other; any other function they call needs
#    `@zib.jitable`.


def refresh(spec: Any, state: Any, arm: int) -> None:
    """Recompute what is cached about one arm from its statistics."""
    n = state.pulls[arm]
    if n == 0.0:
        state.cache[arm, INDEX] = np.inf  # untried arms come first
        return
    seen = reward_variance(n, state.nonzero[arm], state.total[arm], state.spread[arm])
    variance = max(spec.floor * spec.floor, seen)
    state.cache[arm, INDEX] = state.total[arm] / n + spec.width * math.sqrt(variance / n)


def update(spec: Any, state: Any, arm: int, reward: float) -> None:
    """Learn one reward; nothing random may happen here."""
    observe(state, arm, reward)
    refresh(spec, state, arm)


def scores(spec: Any, state: Any, rng: Any, out: Any) -> None:
    """Write one score per arm; the largest is played, ties at random. The state stays as it is."""
    for k in range(out.size):
        out[k] = state.cache[k, INDEX]


# 4. Registration. `additive=True` promises that the statistics are sums over rewards, which makes
#    `Bandit.merge` and `Bandit.revise` work; `randomized=True` is for kernels that draw from `rng`.

zib.register(WidthUCB, init=init, scores=scores, update=update, refresh=refresh, additive=True)


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
