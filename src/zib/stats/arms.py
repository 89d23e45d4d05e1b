"""Sufficient statistics of the arms: what every policy keeps, and how it is added up.

For arm k: `pulls` n, `nonzero` B, `total` S (sum of the non-zero rewards) and `spread`, the centred
sum of squares of the non-zero rewards. The centred form loses no digits when rewards are large
against their spread, and two workers' statistics still add up.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from zib.core.kernel import jitable

Floats = NDArray[np.float64]

CLOCK, HORIZON, LOG_HORIZON = 0, 1, 2
FIRST_FREE = 3  # further entries of `shared` belong to the policy


class ArmState(NamedTuple):
    """What has been learned. One row per arm, except `shared`.

    `cache` holds per-arm numbers derived by the policy; `shared` the clock (number of rewards
    learned from), the horizon now in force and its logarithm, then what the policy adds.
    """

    pulls: Floats
    nonzero: Floats
    total: Floats
    spread: Floats
    cache: Floats
    shared: Floats


def new_state(
    n_arms: int, *, n_cache: int = 1, horizon: float = 1.0, n_shared: int = 0
) -> ArmState:
    """Return the state of `n_arms` untried arms."""
    state = ArmState(
        np.zeros(n_arms),
        np.zeros(n_arms),
        np.zeros(n_arms),
        np.zeros(n_arms),
        np.zeros((n_arms, n_cache)),
        np.zeros(FIRST_FREE + n_shared),
    )
    set_horizon(state, float(horizon))
    return state


@jitable
def set_horizon(state: Any, horizon: float) -> None:
    """Put a horizon in force (it lives in the state because the doubling trick changes it)."""
    state.shared[HORIZON] = horizon
    state.shared[LOG_HORIZON] = math.log(horizon)


@jitable
def observe(state: Any, arm: int, reward: float) -> None:
    """Add one reward to the statistics of an arm."""
    state.shared[CLOCK] += 1.0
    state.pulls[arm] += 1.0
    if reward != 0.0:
        count = state.nonzero[arm]
        total = state.total[arm] + reward
        if count > 0.0:
            # not negative, except by rounding when rewards are equal and counts no whole numbers
            state.spread[arm] += max(
                (reward - state.total[arm] / count) * (reward - total / (count + 1.0)), 0.0
            )
        state.nonzero[arm] = count + 1.0
        state.total[arm] = total


@jitable
def forget(state: Any, arm: int, reward: float) -> None:
    """Take one reward that was added before out of the statistics again."""
    state.shared[CLOCK] -= 1.0
    state.pulls[arm] -= 1.0
    if reward != 0.0:
        count = state.nonzero[arm]
        total = state.total[arm] - reward
        if count > 1.0:
            change = (reward - state.total[arm] / count) * (reward - total / (count - 1.0))
            state.spread[arm] = max(state.spread[arm] - change, 0.0)
            state.total[arm] = total
        else:
            state.total[arm] = 0.0
        if count <= 2.0:
            state.spread[arm] = 0.0
        state.nonzero[arm] = count - 1.0


def add_states(into: ArmState, other: ArmState, sums: int = 0) -> None:
    """Add the statistics of `other` to those of `into`, as if one had seen all rewards.

    The first `sums` columns of `cache` are sums as well.
    """
    into.cache[:, :sums] += other.cache[:, :sums]
    both = (into.nonzero > 0) & (other.nonzero > 0)
    a, b = into.nonzero[both], other.nonzero[both]
    apart = into.total[both] / a - other.total[both] / b
    into.spread[:] += other.spread
    into.spread[both] += apart * apart * (a * b / (a + b))
    into.pulls[:] += other.pulls
    into.nonzero[:] += other.nonzero
    into.total[:] += other.total
    into.shared[CLOCK] += other.shared[CLOCK]


@jitable
def reward_variance(pulls: float, nonzero: float, total: float, spread: float) -> float:
    """Return the variance of all rewards of an arm, zeros included (divisor n).

    Σ(R − R̄)² = spread + B μ̂² (1 − p̂): no difference of large numbers.
    """
    if nonzero == 0.0:
        return 0.0
    mean = total / nonzero
    return float((spread + nonzero * mean * mean * (1.0 - nonzero / pulls)) / pulls)


def subtract_states(into: ArmState, part: ArmState, sums: int = 0) -> None:
    """Take the statistics of `part`, which `into` contains, out again."""
    into.cache[:, :sums] -= part.cache[:, :sums]
    rest = into.nonzero - part.nonzero
    both = (rest > 0) & (part.nonzero > 0)
    a, b = rest[both], part.nonzero[both]
    apart = (into.total[both] - part.total[both]) / a - part.total[both] / b
    into.spread[:] -= part.spread
    into.spread[both] -= apart * apart * (a * b / (a + b))
    into.spread[rest <= 1] = 0.0
    np.maximum(into.spread, 0.0, out=into.spread)
    into.pulls[:] -= part.pulls
    into.nonzero[:] = rest
    into.total[:] -= part.total
    into.total[rest == 0] = 0.0
    into.cache[rest == 0, :sums] = 0.0
    into.shared[CLOCK] -= part.shared[CLOCK]
