"""Forgetting by a window: only the last rewards count."""

from __future__ import annotations

from typing import Any, NamedTuple

from zib.core import kernel
from zib.core import validate as check
from zib.core.kernel import jitable, register
from zib.core.spec import label_of
from zib.mab.drift import (
    Wrapper,
    clipped,
    extended,
    inner_indices,
    inner_refresh,
    inner_scores,
    summable,
)
from zib.stats.arms import CLOCK, ArmState

LONGEST_WINDOW = 10_000_000

# Nothing is ever subtracted from a sum, so no digits are lost however large a reward that leaves.
# When the ring is full and its first slot is next, it is turned over: each slot is told the sums of
# the later non-zero rewards of its arm. During the next turn the arm's statistics, after a reward
# has left, are the sums told to its slot joined with those of the rewards that came since.
# behind LOW and HIGH of `zib.mab.drift`
HEAD, HELD, NAMES = -3, -4, -5  # entries of `shared`: next slot, rewards held, names given
N_SHARED = 5
NAME, COUNT, TOTAL, SPREAD = -1, -2, -3, -4  # columns of `cache`; sums since the ring was turned
N_CACHE = 4
# entries of a slot of the ring; the arm is known by a name, since positions change with the arms
SLOT_NAME, SLOT_ARM, SLOT_REWARD, SLOT_COUNT, SLOT_TOTAL, SLOT_SPREAD = range(6)
N_SLOT = 6


class _WindowedFields(NamedTuple):
    spec: Any
    length: int


class Windowed(Wrapper, _WindowedFields):
    """Learn from the last `length` rewards only.

    Parameters
    ----------
    spec
        Any policy whose statistics are sums over rewards.
    length
        Number of rewards, of all arms together, that are remembered. It should be many times the
        number of arms: an arm with no reward in the window counts as untried and is played.

    Notes
    -----
    A round costs one more refresh (that of the arm whose reward leaves) and a constant number of
    operations; memory is 48 bytes per reward in the window. Statistics are joined, never
    subtracted, so they do not lose digits with time. While nothing has left the window the policy
    inside plays as it would alone.

    Examples
    --------
    >>> import zib
    >>> bandit = zib.Bandit(zib.mab.Windowed(zib.mab.UCB1(), length=3), n_arms=2, seed=0)
    >>> bandit.update_many([0, 0, 1, 0], [5.0, 0.0, 2.0, 1.0])
    >>> bandit.pulls, bandit.means()[0].reward
    ({0: 2, 1: 1}, 0.5)
    """

    __slots__ = ()

    def __new__(cls, spec: Any, length: int) -> Windowed:
        return super().__new__(
            cls, summable(spec), check.integer("length", length, 1, LONGEST_WINDOW)
        )

    @property
    def label(self) -> str:
        """The name of the policy inside, and what it remembers."""
        return f"{label_of(self.spec)}, last {self.length}"


def _windowed_init(spec: Windowed, n_arms: int) -> ArmState:
    return extended(spec, n_arms, N_CACHE, N_SLOT * spec.length + N_SHARED)


@jitable
def _slot(spec: Any, state: Any, number: int) -> int:
    """Return where in `shared` a slot of the ring begins."""
    return int(state.shared.size - N_SHARED - N_SLOT * (spec.length - number))


@jitable
def _arm_of(state: Any, slot: int) -> int:
    """Return the position of the arm whose reward a slot holds, −1 if it was removed."""
    name = state.shared[slot + SLOT_NAME]
    guess = int(state.shared[slot + SLOT_ARM])
    if guess < state.pulls.size and state.cache[guess, NAME] == name:
        return guess
    for k in range(state.pulls.size):
        if state.cache[k, NAME] == name:
            return k
    return -1


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
def _add_recent(state: Any, arm: int, reward: float) -> None:
    """Add a reward to the sums kept since the ring was turned over."""
    if reward != 0.0:
        state.cache[arm, SPREAD] = _joined_spread(
            state.cache[arm, COUNT],
            state.cache[arm, TOTAL],
            state.cache[arm, SPREAD],
            1.0,
            reward,
            0.0,
        )
        state.cache[arm, COUNT] += 1.0
        state.cache[arm, TOTAL] += reward


@jitable
def _clear_recent(state: Any) -> None:
    for k in range(state.pulls.size):
        state.cache[k, COUNT] = 0.0
        state.cache[k, TOTAL] = 0.0
        state.cache[k, SPREAD] = 0.0


@jitable
def _turn_over(spec: Any, state: Any) -> None:
    """Tell every slot the sums of the later rewards of its arm."""
    _clear_recent(state)
    for number in range(spec.length - 1, -1, -1):
        slot = _slot(spec, state, number)
        arm = _arm_of(state, slot)
        if arm >= 0:
            state.shared[slot + SLOT_COUNT] = state.cache[arm, COUNT]
            state.shared[slot + SLOT_TOTAL] = state.cache[arm, TOTAL]
            state.shared[slot + SLOT_SPREAD] = state.cache[arm, SPREAD]
            _add_recent(state, arm, state.shared[slot + SLOT_REWARD])
    _clear_recent(state)


@jitable
def _leave(state: Any, slot: int) -> int:
    """Forget the reward of a slot; return its arm, −1 if it was removed."""
    state.shared[CLOCK] -= 1.0
    arm = _arm_of(state, slot)
    if arm >= 0:
        state.pulls[arm] -= 1.0
        if state.shared[slot + SLOT_REWARD] != 0.0:
            count = state.shared[slot + SLOT_COUNT]
            total = state.shared[slot + SLOT_TOTAL]
            state.spread[arm] = _joined_spread(
                count,
                total,
                state.shared[slot + SLOT_SPREAD],
                state.cache[arm, COUNT],
                state.cache[arm, TOTAL],
                state.cache[arm, SPREAD],
            )
            state.nonzero[arm] = count + state.cache[arm, COUNT]
            state.total[arm] = total + state.cache[arm, TOTAL]
    return arm


@jitable
def _enter(state: Any, slot: int, arm: int, reward: float) -> None:
    """Put a reward that was learned into a slot."""
    if state.cache[arm, NAME] == 0.0:
        state.shared[NAMES] += 1.0
        state.cache[arm, NAME] = state.shared[NAMES]
    state.shared[slot + SLOT_NAME] = state.cache[arm, NAME]
    state.shared[slot + SLOT_ARM] = arm
    state.shared[slot + SLOT_REWARD] = reward
    _add_recent(state, arm, reward)


def _windowed_update(spec: Any, state: Any, arm: int, reward: float) -> None:
    number = int(state.shared[HEAD])
    slot = _slot(spec, state, number)
    if state.shared[HELD] < spec.length:
        state.shared[HELD] += 1.0
    else:
        if number == 0:
            _turn_over(spec, state)
        gone = _leave(state, slot)
        if gone >= 0:
            kernel.refresh(spec.spec, state, gone)
    value = clipped(state, reward)
    kernel.update(spec.spec, state, arm, value)
    _enter(state, slot, arm, value)
    state.shared[HEAD] = (number + 1) % spec.length


register(
    Windowed,
    init=_windowed_init,
    scores=inner_scores,
    update=_windowed_update,
    refresh=inner_refresh,
    indices=inner_indices,
    randomized=True,
)
