"""Policies around a policy: an unknown horizon, and arms that change.

`Anytime` doubles the horizon of a policy made for a fixed one. `Discounted` and `Windowed` forget
old rewards: they change only the statistics that a policy reads, never the policy. A round is a
reward that is learned. The clock is forgotten with the rewards: a policy whose level is log t sees
the (discounted) number of rewards it still remembers, min(t, 1/(1 − γ)) or min(t, length), and so
goes on exploring for ever.

What a wrapper keeps stands in ``state.around``; the policy inside sees its own ``state.own``.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from zib.core import kernel
from zib.core.kernel import is_additive, jitable, keeps_sums, lookup, register
from zib.core.spec import Spec, combined, converted, derived, label_of, real, whole
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
    set_horizon,
    table,
)
from zib.core.validate import InvalidParameterError, shown


class Wrapper(Spec):
    """What all wrappers take over from the policy inside."""

    spec: Any

    @property
    def needs_true_sizes(self) -> bool:
        """Whether the policy inside is one that only a simulation can run."""
        return bool(getattr(self.spec, "needs_true_sizes", False))

    @property
    def reward_range(self) -> tuple[float, float]:
        """That of the policy inside."""
        return _range_of(self.spec)


def _range_of(spec: Any) -> tuple[float, float]:
    low, high = getattr(spec, "reward_range", (-math.inf, math.inf))
    return low, high


def _wrapped(spec: Any, n_arms: int, around: type[Part], **sizes: int) -> ArmState:
    """Return the empty state of the policy inside, with that of the wrapper around it."""
    state: ArmState = kernel.init(spec.spec, n_arms)
    return state._replace(around=around.new({"arms": n_arms, **sizes}))


def inner_scores(spec: Any, state: Any, rng: Any, out: Any) -> None:
    """Write the scores of the policy inside."""
    kernel.scores(spec.spec, state, rng, out)


def inner_indices(spec: Any, state: Any, rng: Any, out: Any) -> None:
    """Write the exact scores of the policy inside."""
    kernel.indices(spec.spec, state, rng, out)


def inner_refresh(spec: Any, state: Any, arm: int) -> None:
    """Recompute what the policy inside keeps about one arm."""
    kernel.refresh(spec.spec, state, arm)


def inner_refresh_all(spec: Any, state: Any) -> None:
    """Recompute what the policy inside keeps about all arms."""
    kernel.refresh_all(spec.spec, state)


# ------------------------------------------------------------------------------- the doubling trick


def _with_horizon(spec: Any) -> Any:
    if math.isnan(getattr(spec, "horizon", math.nan)):
        raise InvalidParameterError(
            f"`spec` must be a policy with a horizon (ZIUCB, ZITS, UCB, MOTS, …); got {shown(spec)}"
        )
    lookup(spec)
    return spec


class Anytime(Wrapper):
    """Run `spec` for its horizon T, then forget everything and run it for 2T, 4T, …

    Keeps the regret rate of a fixed-horizon policy up to a constant. What was learned is thrown
    away at each restart, as the theory asks; `Bandit.means` then describes the present stretch.

    Examples
    --------
    >>> import zib
    >>> zib.mab.Anytime(spec=zib.mab.ZITS(horizon=1000, sigma=1.0)).label
    'ZI-TS, doubling'
    """

    spec: Any = converted(_with_horizon, allowed="policy with a horizon", kw_only=False)

    @property
    def label(self) -> str:
        """The name of the policy inside, marked."""
        return f"{label_of(self.spec)}, doubling"


def _anytime_init(spec: Anytime, n_arms: int) -> ArmState:
    return _wrapped(spec, n_arms, Part)


def _anytime_update(spec: Any, state: Any, arm: int, reward: float) -> None:
    kernel.update(spec.spec, state, arm, reward)
    if state.clock[0] >= state.horizon[0]:
        state.pulls[:] = 0.0
        state.nonzero[:] = 0.0
        state.total[:] = 0.0
        state.spread[:] = 0.0
        state.clock[0] = 0.0
        set_horizon(state, 2.0 * state.horizon[0])
        kernel.refresh_all(spec.spec, state)


register(
    Anytime,
    init=_anytime_init,
    scores=inner_scores,
    update=_anytime_update,
    refresh=inner_refresh,
    refresh_all=inner_refresh_all,
    indices=inner_indices,
    randomized=True,
)


# --------------------------------------------------------------------------------------- forgetting

FORGOTTEN = 0.01  # discounted counts below this are set to zero


def _summable(spec: Any) -> Any:
    lookup(spec)
    if not is_additive(spec) or keeps_sums(spec):
        raise InvalidParameterError(
            "`spec` must be a policy whose statistics are sums over rewards (ZIUCB, ZITS, "
            f"ZIPosterior, UCB1, …), so that rewards can be forgotten; got {shown(spec)}"
        )
    return spec


class Forgetful(Wrapper):
    """Base of the wrappers that forget; rewards are clipped to the range of the policy inside."""

    spec: Any = converted(
        _summable, allowed="policy whose statistics are sums over rewards", kw_only=False
    )
    low: float = derived(lambda given: float(_range_of(given["spec"])[0]))
    high: float = derived(lambda given: float(_range_of(given["spec"])[1]))


@jitable
def _clipped(spec: Any, reward: float) -> float:
    """Return the reward as the policy inside takes it."""
    return float(min(max(reward, spec.low), spec.high))


class Discounted(Forgetful):
    """Let old rewards count less and less: half as much after every `half_life` rewards.

    Parameters
    ----------
    spec
        Any policy whose statistics are sums over rewards.
    half_life
        After this many further rewards, of any arm, a reward counts half (≥ 1). The statistics are
        those of about 1.44·half_life rewards.
    every
        Forget once every so many rewards, by as much as is due (default 1, at most `half_life`).
        Between two steps nothing is forgotten, so weights differ from the exact ones by a factor of
        at most 2^(every/half_life).

    Notes
    -----
    With γ = 2^(−1/half_life), pulls, non-zero rewards, their sum, their centred sum of squares and
    the clock are multiplied by γ before each reward is learned. These are the weighted statistics
    exactly; n and B are then no whole numbers (`Bandit.pulls` cuts them off). An arm whose
    discounted pulls fall below 0.01 (one pull, 6.6 half-lives ago) counts as untried, and one whose
    discounted number of non-zero rewards does as one that never paid. So no arm waits much longer
    than that: choose a half-life of many times n_arms/7 rewards. A policy made for a horizon keeps
    the level of that horizon.

    Forgetting changes every arm, so each step costs n_arms refreshes of what the policy keeps:
    nothing for UCB1, NormalTS and ZIPosterior, more than deciding for ZIUCB, ZIKLUCB and ZIIMED.
    With hundreds of arms let `every` be a few per cent of `half_life`.

    Examples
    --------
    >>> import zib
    >>> zib.mab.Discounted(zib.mab.ZIPosterior(sigma=1.0), half_life=500).label
    'ZI posterior, half-life 500'
    """

    half_life: float = real(low=1, kw_only=False)
    every: int = combined(
        lambda given: whole(low=1, high=int(given["half_life"])).checked("every", given["every"]),
        allowed="whole number in [1, half_life]",
        default=1,
    )
    factor: float = derived(lambda given: 2.0 ** (-given["every"] / given["half_life"]))

    @property
    def label(self) -> str:
        """The name of the policy inside, and how fast it forgets."""
        return f"{label_of(self.spec)}, half-life {self.half_life:g}"


class SinceStep(Part):
    """What `Discounted` keeps."""

    counts_fade: ClassVar[bool] = True  # counts are weighted, so they are no whole numbers
    since: Floats = count()  # rewards since the last step of forgetting


def _discounted_init(spec: Discounted, n_arms: int) -> ArmState:
    return _wrapped(spec, n_arms, SinceStep)


@jitable
def _discount(state: Any, factor: float) -> None:
    """Multiply all statistics by the factor; forget what hardly counts any more."""
    state.clock[0] *= factor
    for k in range(state.pulls.size):
        state.pulls[k] *= factor
        state.nonzero[k] *= factor
        state.total[k] *= factor
        state.spread[k] *= factor
        if state.pulls[k] < FORGOTTEN:
            state.pulls[k] = 0.0
        if state.nonzero[k] < FORGOTTEN:
            state.nonzero[k] = 0.0
            state.total[k] = 0.0
            state.spread[k] = 0.0


def _discounted_update(spec: Any, state: Any, arm: int, reward: float) -> None:
    state.around.since[0] += 1.0
    due = state.around.since[0] >= spec.every
    if due:
        state.around.since[0] = 0.0
        _discount(state, spec.factor)
    kernel.update(spec.spec, state, arm, _clipped(spec, reward))
    if due:
        kernel.refresh_all(spec.spec, state)
    else:  # policies learn in whole rewards, and counts are not whole
        kernel.refresh(spec.spec, state, arm)


register(
    Discounted,
    init=_discounted_init,
    scores=inner_scores,
    update=_discounted_update,
    refresh=inner_refresh,
    refresh_all=inner_refresh_all,
    indices=inner_indices,
    randomized=True,
)


# ------------------------------------------------------------------------------------------- window

LONGEST_WINDOW = 10_000_000


class Windowed(Forgetful):
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
    operations; memory is 40 bytes per reward in the window. Statistics are joined, never
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

    length: int = whole(low=1, high=LONGEST_WINDOW, kw_only=False)

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
    return _wrapped(spec, n_arms, Ring, length=spec.length)


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
def _clear_new(ring: Any) -> None:
    for k in range(ring.new_count.size):
        ring.new_count[k] = 0.0
        ring.new_total[k] = 0.0
        ring.new_spread[k] = 0.0


@jitable
def _turn_over(ring: Any) -> None:
    """Tell every slot the sums of the later rewards of its arm."""
    _clear_new(ring)
    for slot in range(ring.reward.size - 1, -1, -1):
        arm = clamped_arm(ring.arm[slot], ring.new_count.size)
        if arm >= 0:
            ring.later_count[slot] = ring.new_count[arm]
            ring.later_total[slot] = ring.new_total[arm]
            ring.later_spread[slot] = ring.new_spread[arm]
            _add_new(ring, arm, ring.reward[slot])
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
            _turn_over(ring)
        gone = _leave(state, slot)
        if gone >= 0:
            kernel.refresh(spec.spec, state, gone)
    value = _clipped(spec, reward)
    kernel.update(spec.spec, state, arm, value)
    ring.arm[slot] = arm
    ring.reward[slot] = value
    _add_new(ring, arm, value)
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
