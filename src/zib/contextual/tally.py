"""What the arms of a contextual bandit have earned, whatever the features: counts and sums."""

from __future__ import annotations

from typing import Any

import numpy as np

from zib.core.exact import ExactSums, add_reward, add_sums, set_moments
from zib.core.kernel import jitable
from zib.core.state import MOST_ROUNDS, ArmState, Floats, Part, new_state, part, per_arm


class Tally(Part):
    """Rewards of every arm; of no arms where actions have no names."""

    pulls: Floats = per_arm(least=0.0, most=MOST_ROUNDS, whole=True)
    nonzero: Floats = per_arm(least=0.0, most=MOST_ROUNDS, whole=True)
    sums: ExactSums = part(ExactSums)

    def conflict(self, state: Any) -> str | None:
        """Return what rewards cannot add up to."""
        if (self.nonzero > self.pulls).any():
            return "`nonzero` holds more non-zero rewards than `pulls` has rewards"
        return self.sums.differs_from(self.moments())

    def moments(self) -> ArmState:
        """Return the statistics of the arms, as those of a bandit without features."""
        state = new_state(self.pulls.size)
        state.pulls[:] = self.pulls
        state.nonzero[:] = self.nonzero
        sums = ExactSums(*(array.copy() for array in self.sums))
        for k in range(self.pulls.size):
            set_moments(state, sums, k)
        return state


def new_tally(n_arms: int) -> Tally:
    """Return the tally of arms that have earned nothing yet."""
    return Tally.new({"arms": n_arms})


NO_TALLY = new_tally(0)


@jitable
def count(tally: Any, arm: int, reward: float, sign: float) -> None:
    """Count a reward of an arm, or take it out again (`sign` −1)."""
    if 0 <= arm < tally.pulls.size:
        tally.pulls[arm] += sign
        if reward != 0.0:
            tally.nonzero[arm] += sign
            add_reward(tally.sums, arm, reward, sign)


def add_tally(into: Tally, other: Tally, sign: float = 1.0) -> None:
    """Add the rewards of `other`, or take them out again (`sign` −1)."""
    into.pulls[:] += sign * other.pulls
    into.nonzero[:] += sign * other.nonzero
    add_sums(into.sums, other.sums, sign)


def regrouped(tally: Tally, sources: Any) -> Tally:
    """Return the tally of other arms: for each the arm it was, or −1 if it is new."""
    new = new_tally(len(sources))
    chosen = np.asarray(sources, dtype=np.int64)
    known = chosen >= 0
    pairs = zip((*tally[:2], *tally.sums), (*new[:2], *new.sums), strict=True)
    for old, array in pairs:
        array[known] = old[chosen[known]]
    return new
