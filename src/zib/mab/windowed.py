"""Policies that learn from the last rewards only."""

from __future__ import annotations

from typing import Any

import numpy as np

from zib.core import kernel
from zib.core.kernel import jitable, lookup, register
from zib.core.spec import REQUIRED, derived, label_of, whole
from zib.core.state import (
    LARGEST_REWARD,
    ArmState,
    Floats,
    Part,
    arm_number,
    clamped,
    clamped_arm,
    count,
    per_arm,
    position,
    scratch,
    table,
)
from zib.core.summed import put_sums, read_sums, sums_of_arms
from zib.mab.wrappers import (
    OFTEN,
    Forgetful,
    clipped,
    inner_indices,
    inner_refresh,
    inner_refresh_all,
    inner_scores,
    wrapped,
)

LONGEST_WINDOW = 10_000_000


class Windowed(Forgetful):
    """Learn from the last `length` rewards only.

    Parameters
    ----------
    spec
        Any policy whose statistics are sums over rewards; by default `ZIAdaptive`.
    length
        Number of rewards, of all arms together, that are remembered. It should be many times the
        number of arms: an arm with no reward in the window counts as untried and is played. It has
        to be given.

    Notes
    -----
    A round costs one more refresh (that of the arm whose reward leaves) and a constant number of
    operations; memory is 40 bytes per reward in the window, and 64 for `ZIAdaptive`, which keeps
    further sums. Statistics are joined, never subtracted, so they do not lose digits with time.
    While nothing has left the window the policy inside plays as it would alone. A policy that
    learns a prior from all arms, as `ZIAdaptive` does, learns it anew after every fiftieth of a
    window.

    Examples
    --------
    >>> import zib
    >>> bandit = zib.Bandit(zib.mab.Windowed(zib.mab.UCB1(), length=3), n_arms=2, seed=0)
    >>> bandit.update_many([0, 0, 1, 0], [5.0, 0.0, 2.0, 1.0])
    >>> bandit.pulls, bandit.means()[0].reward
    ({0: 2, 1: 1}, 0.5)
    """

    length: int = whole(low=1, high=LONGEST_WINDOW, default=REQUIRED, kw_only=False)
    every: int = derived(lambda given: max(given["length"] // OFTEN, 1))

    @property
    def label(self) -> str:
        """The name of the policy inside, and what it remembers."""
        return f"{label_of(self.spec)}, last {self.length}"


class Ring(Part):
    """The rewards of the window in a ring of slots, and sums that spare subtracting.

    Nothing is ever subtracted from a sum, so no digits are lost however large a reward that leaves.
    When the ring is full and its first slot is next, it is turned over: each slot is told the sums
    of the later non-zero rewards of its arm. During the next turn the arm's statistics, after a
    reward has left, are the sums told to its slot joined with those of the rewards that came since.
    """

    head: Floats = position("reward")  # the next slot; behind the end: the first
    held: Floats = position("reward")  # slots that hold a reward
    arm: Floats = arm_number("length")  # per slot; −1: the arm was removed
    reward: Floats = table("length", least=-LARGEST_REWARD, most=LARGEST_REWARD)
    later_count: Floats = table("length", whole=True, least=0.0)  # told when it was turned over
    later_total: Floats = table("length")
    later_spread: Floats = table("length", least=0.0)
    new_count: Floats = per_arm(whole=True, least=0.0)  # since the ring was turned over
    new_total: Floats = per_arm()
    new_spread: Floats = per_arm(least=0.0)
    # the same for the further sums of the policy inside
    later_sums: Floats = table("length", "sums")
    new_sums: Floats = per_arm("sums")
    row: Floats = scratch(1, "sums")
    since: Floats = count()  # rewards since a policy that learns late was made to learn

    def conflict(self, state: Any) -> str | None:
        """Return how the rewards in the ring differ from what the statistics say of them."""
        held = int(self.held[0])
        if held < self.reward.size and self.head[0] != held:
            return f"`head` must be {held}, behind the {held} slots in use; got {self.head[0]:g}"
        if state.clock[0] != held:
            return f"`held` must be the number of rewards learned; got {held}"
        arms = self.arm[:held].astype(np.int64) + 1  # a removed arm is counted at 0
        paid = arms[self.reward[:held] != 0.0]
        for name, counted in (("pulls", arms), ("nonzero", paid)):
            found = np.bincount(counted, minlength=state.pulls.size + 1)[1:]
            if not np.array_equal(found, getattr(state, name)):
                return f"`{name}` must count the rewards in the ring, {found.tolist()}"
        return None


def _windowed_init(spec: Windowed, n_arms: int) -> ArmState:
    sums = len(sums_of_arms(lookup(spec.spec).own))
    return wrapped(spec, n_arms, Ring, length=spec.length, sums=sums)


@jitable
def _joined_spread(
    count: float, total: float, spread: float, more: float, more_total: float, more_spread: float
) -> float:
    """Return the centred sum of squares of two groups together."""
    if count == 0.0:
        return more_spread
    if more == 0.0:
        return spread
    apart = total / count - more_total / more
    return float(spread + more_spread + apart * apart * (count * more / (count + more)))


@jitable
def _add_new(ring: Any, arm: int, reward: float) -> None:
    """Add a reward to the sums kept since the ring was turned over."""
    if reward != 0.0:
        ring.new_spread[arm] = _joined_spread(
            ring.new_count[arm], ring.new_total[arm], ring.new_spread[arm], 1.0, reward, 0.0
        )
        ring.new_count[arm] += 1.0
        ring.new_total[arm] += reward


@jitable
def _add_new_sums(spec: Any, state: Any, arm: int, reward: float) -> None:
    """Add a reward to the further sums kept since the ring was turned over.

    Only the policy inside knows how, and adds to its own; these are put back afterwards.
    """
    ring = state.around
    read_sums(state.own, arm, ring.row, 0, 0)
    put_sums(state.own, arm, ring.new_sums, arm, 0)
    kernel.weigh(spec.spec, state, arm, reward, 1.0)
    read_sums(state.own, arm, ring.new_sums, arm, 0)
    put_sums(state.own, arm, ring.row, 0, 0)


@jitable
def _clear_new(ring: Any) -> None:
    for k in range(ring.new_count.size):
        ring.new_count[k] = 0.0
        ring.new_total[k] = 0.0
        ring.new_spread[k] = 0.0
        for j in range(ring.new_sums.shape[1]):
            ring.new_sums[k, j] = 0.0


@jitable
def _turn_over(spec: Any, state: Any) -> None:
    """Tell every slot the sums of the later rewards of its arm."""
    ring = state.around
    _clear_new(ring)
    for slot in range(ring.reward.size - 1, -1, -1):
        arm = clamped_arm(ring.arm[slot], ring.new_count.size)
        if arm >= 0:
            ring.later_count[slot] = ring.new_count[arm]
            ring.later_total[slot] = ring.new_total[arm]
            ring.later_spread[slot] = ring.new_spread[arm]
            for j in range(ring.new_sums.shape[1]):
                ring.later_sums[slot, j] = ring.new_sums[arm, j]
            _add_new(ring, arm, ring.reward[slot])
            _add_new_sums(spec, state, arm, ring.reward[slot])
    _clear_new(ring)


@jitable
def _leave(state: Any, slot: int) -> int:
    """Forget the reward of a slot; return its arm, −1 if it was removed."""
    ring = state.around
    state.clock[0] -= 1.0
    arm = clamped_arm(ring.arm[slot], ring.new_count.size)
    if arm >= 0:
        state.pulls[arm] -= 1.0
        if ring.reward[slot] != 0.0:
            state.spread[arm] = _joined_spread(
                ring.later_count[slot],
                ring.later_total[slot],
                ring.later_spread[slot],
                ring.new_count[arm],
                ring.new_total[arm],
                ring.new_spread[arm],
            )
            state.nonzero[arm] = ring.later_count[slot] + ring.new_count[arm]
            state.total[arm] = ring.later_total[slot] + ring.new_total[arm]
        for j in range(ring.row.shape[1]):
            ring.row[0, j] = ring.later_sums[slot, j] + ring.new_sums[arm, j]
        put_sums(state.own, arm, ring.row, 0, 0)
    return arm


def _windowed_update(spec: Any, state: Any, arm: int, reward: float) -> None:
    ring = state.around
    slot = clamped(ring.head[0], spec.length + 1)
    if slot == spec.length:
        slot = 0
    if ring.held[0] < spec.length:
        ring.held[0] += 1.0
    else:
        if slot == 0:
            _turn_over(spec, state)
        gone = _leave(state, slot)
        if gone >= 0 and not spec.late:
            kernel.refresh(spec.spec, state, gone)
        ring.since[0] += 1.0
    value = clipped(spec, reward)
    kernel.update(spec.spec, state, arm, value)
    if spec.late and ring.since[0] >= spec.every:
        ring.since[0] = 0.0
        kernel.refresh_all(spec.spec, state)
    ring.arm[slot] = arm
    ring.reward[slot] = value
    _add_new(ring, arm, value)
    _add_new_sums(spec, state, arm, value)
    ring.head[0] = slot + 1.0


register(
    Windowed,
    init=_windowed_init,
    scores=inner_scores,
    update=_windowed_update,
    refresh=inner_refresh,
    refresh_all=inner_refresh_all,
    indices=inner_indices,
    randomized=True,
)
