"""Forgetting: the same policies when arms change, by discounting old rewards or by a window.

Both wrappers change only the statistics that a policy reads, never the policy. A round is a reward
that is learned. The clock is forgotten with the rewards: a policy whose level is log t sees the
(discounted) number of rewards it still remembers, min(t, 1/(1 − γ)) or min(t, length), and so goes
on exploring for ever.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from zib.core import kernel
from zib.core import validate as check
from zib.core.kernel import is_additive, jitable, lookup, register
from zib.core.spec import Spec, label_of
from zib.stats.arms import CLOCK, ArmState

FORGOTTEN = 0.01  # discounted counts below this are set to zero

# Both wrappers keep what they need behind the entries of the policy inside: at the end of `shared`
# and in the last columns of `cache`, which follow an arm when arms are added or removed.
LOW, HIGH = -1, -2  # entries of `shared`: rewards are clipped to the range of the policy
FACTOR, LEFT = -3, -4  # entries of `shared`: of a step of forgetting, and rewards until the next


def summable(spec: Any) -> Any:
    """Return `spec` if its rewards can be forgotten, or raise."""
    lookup(spec)
    if not is_additive(spec) or lookup(spec).sums:
        raise check.InvalidParameterError(
            "`spec` must be a policy whose statistics are sums over rewards (ZIUCB, ZITS, "
            f"ZIPosterior, UCB1, …), so that rewards can be forgotten; got {spec!r}"
        )
    return spec


class Wrapper(Spec):
    """What both wrappers take over from the policy inside."""

    __slots__ = ()
    spec: Any

    @property
    def needs_true_sizes(self) -> bool:
        """Whether the policy inside is one that only a simulation can run."""
        return bool(getattr(self.spec, "needs_true_sizes", False))

    @property
    def reward_range(self) -> tuple[float, float]:
        """That of the policy inside."""
        return getattr(self.spec, "reward_range", (-np.inf, np.inf))


def extended(spec: Any, n_arms: int, n_cache: int, n_shared: int) -> ArmState:
    """Return the empty state of the policy inside with room for the wrapper."""
    state = lookup(spec.spec).init(spec.spec, n_arms)
    state = state._replace(
        cache=np.hstack([state.cache, np.zeros((n_arms, n_cache))]),
        shared=np.concatenate([state.shared, np.zeros(n_shared)]),
    )
    state.shared[LOW], state.shared[HIGH] = spec.reward_range
    return state  # type: ignore[no-any-return]


@jitable
def clipped(state: Any, reward: float) -> float:
    """Return the reward as the policy inside takes it."""
    return float(min(max(reward, state.shared[LOW]), state.shared[HIGH]))


def inner_scores(spec: Any, state: Any, rng: Any, out: Any) -> None:
    """Write the scores of the policy inside."""
    kernel.scores(spec.spec, state, rng, out)


def inner_indices(spec: Any, state: Any, rng: Any, out: Any) -> None:
    """Write the exact scores of the policy inside."""
    kernel.indices(spec.spec, state, rng, out)


def inner_refresh(spec: Any, state: Any, arm: int) -> None:
    """Recompute what the policy inside keeps about one arm."""
    kernel.refresh(spec.spec, state, arm)


# ------------------------------------------------------------------------------------- discounting


class _DiscountedFields(NamedTuple):
    spec: Any
    half_life: float
    every: int


class Discounted(Wrapper, _DiscountedFields):
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

    __slots__ = ()

    def __new__(cls, spec: Any, half_life: float, *, every: int = 1) -> Discounted:
        half_life = check.real("half_life", half_life, low=1)
        return super().__new__(
            cls, summable(spec), half_life, check.integer("every", every, 1, int(half_life))
        )

    @property
    def label(self) -> str:
        """The name of the policy inside, and how fast it forgets."""
        return f"{label_of(self.spec)}, half-life {self.half_life:g}"


def _discounted_init(spec: Discounted, n_arms: int) -> ArmState:
    state = extended(spec, n_arms, 0, 4)
    state.shared[FACTOR] = 2.0 ** (-spec.every / spec.half_life)
    state.shared[LEFT] = spec.every
    return state


@jitable
def discount(state: Any) -> None:
    """Multiply all statistics by the factor; forget what hardly counts any more."""
    factor = state.shared[FACTOR]
    state.shared[CLOCK] *= factor
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
    state.shared[LEFT] -= 1.0
    due = state.shared[LEFT] <= 0.0
    if due:
        state.shared[LEFT] = spec.every
        discount(state)
    kernel.update(spec.spec, state, arm, clipped(state, reward))
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
    indices=inner_indices,
    randomized=True,
)
