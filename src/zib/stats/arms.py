"""Sufficient statistics of the arms, and how one reward is added.

What is kept is `zib.core.state.ArmState`: pulls, non-zero rewards, their sum and their centred sum
of squares. How a reward is taken out again is in `zib.core.exact`.
"""

from __future__ import annotations

from typing import Any

from zib.core.kernel import jitable
from zib.core.state import ArmState as ArmState
from zib.core.state import new_state as new_state


@jitable
def observe(state: Any, arm: int, reward: float) -> None:
    """Add one reward to the statistics of an arm."""
    state.clock[0] += 1.0
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
def reward_variance(pulls: float, nonzero: float, total: float, spread: float) -> float:
    """Return the variance of all rewards of an arm, zeros included (divisor n).

    Σ(R − R̄)² = spread + B μ̂² (1 − p̂): no difference of large numbers.
    """
    if nonzero == 0.0:
        return 0.0
    mean = total / nonzero
    return float((spread + nonzero * mean * mean * (1.0 - nonzero / pulls)) / pulls)
