"""Policies around a policy: an unknown horizon, and arms that change.

`Anytime` doubles the horizon of a policy made for a fixed one. `Discounted`, `Windowed` and
`Watching` forget old rewards: they change only the statistics that a policy reads, never the
policy. A round is a reward that is learned. The clock is forgotten with the rewards: a policy whose
level is log t sees the (discounted) number of rewards it still remembers, min(t, 1/(1 − γ)) or
min(t, length), and so goes on exploring for ever.

What a wrapper keeps stands in ``state.around``; the policy inside sees its own ``state.own``. The
sums over rewards that it declares there are forgotten like those that every policy keeps.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

from zib.core import kernel
from zib.core.kernel import can_weigh, is_additive, jitable, lookup, register
from zib.core.spec import REQUIRED, Spec, combined, converted, derived, label_of, real, whole
from zib.core.state import ArmState, Floats, Part, count, set_horizon
from zib.core.summed import are_per_arm, fade_sums
from zib.core.validate import InvalidParameterError, shown
from zib.mab.adaptive import ZIAdaptive


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


def wrapped(spec: Any, n_arms: int, around: type[Part], **sizes: int) -> ArmState:
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
    return wrapped(spec, n_arms, Part)


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
OFTEN = 50  # times per memory: how often policies that learn late are made to learn


def summable(spec: Any) -> Any:
    """Return a policy whose rewards can be forgotten, the default for None, or raise."""
    if spec is None:
        return ZIAdaptive()
    found = lookup(spec)
    if not (is_additive(spec) and can_weigh(spec) and are_per_arm(found.own)):
        raise InvalidParameterError(
            "`spec` must be a policy whose statistics are sums over rewards (ZIAdaptive, ZIUCB, "
            f"ZIPosterior, UCB1, …), so that rewards can be forgotten; got {shown(spec)}"
        )
    return spec


class Forgetful(Wrapper):
    """Base of the wrappers that forget; rewards are clipped to the range of the policy inside."""

    spec: Any = converted(
        summable,
        allowed="policy whose statistics are sums over rewards",
        default=None,
        kw_only=False,
    )
    low: float = derived(lambda given: float(_range_of(given["spec"])[0]))
    high: float = derived(lambda given: float(_range_of(given["spec"])[1]))
    late: bool = derived(lambda given: bool(getattr(given["spec"], "learns_late", False)))

    @property
    def learns_late(self) -> bool:
        """Whether the policy inside learns some things now and then only."""
        return self.late


@jitable
def clipped(spec: Any, reward: float) -> float:
    """Return the reward as the policy inside takes it."""
    return float(min(max(reward, spec.low), spec.high))


@jitable
def fade(state: Any, arm: int, factor: float) -> None:
    """Multiply the statistics of an arm by the factor; forget what hardly counts any more."""
    state.pulls[arm] *= factor
    state.nonzero[arm] *= factor
    state.total[arm] *= factor
    state.spread[arm] *= factor
    fade_sums(state.own, arm, factor, FORGOTTEN)
    if state.pulls[arm] < FORGOTTEN:
        state.pulls[arm] = 0.0
    if state.nonzero[arm] < FORGOTTEN:
        state.nonzero[arm] = 0.0
        state.total[arm] = 0.0
        state.spread[arm] = 0.0
        fade_sums(state.own, arm, 0.0, FORGOTTEN)


def _steps(given: Any) -> int:
    longest = int(given["half_life"])
    if given["every"] is None:
        return max(longest // OFTEN, 1) if given["late"] else 1
    return int(whole(low=1, high=longest).checked("every", given["every"]))


class Discounted(Forgetful):
    """Let old rewards count less and less: half as much after every `half_life` rewards.

    Parameters
    ----------
    spec
        Any policy whose statistics are sums over rewards; by default `ZIAdaptive`.
    half_life
        After this many further rewards, of any arm, a reward counts half (≥ 1). The statistics are
        those of about 1.44·half_life rewards. It has to be given.
    every
        Forget once every so many rewards, by as much as is due (at most `half_life`). Between two
        steps nothing is forgotten, so weights differ from the exact ones by a factor of at most
        2^(every/half_life). By default 1, and a fiftieth of the half-life for policies that learn
        a prior from all arms, as `ZIAdaptive` does: it is learned anew at each step.

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
    >>> zib.mab.Discounted(half_life=500).label
    'ZI adaptive, half-life 500'
    """

    half_life: float = real(low=1, default=REQUIRED, kw_only=False)
    every: int = combined(_steps, allowed="whole number in [1, half_life], or None", default=None)
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
    return wrapped(spec, n_arms, SinceStep)


@jitable
def _discount(state: Any, factor: float) -> None:
    """Multiply all statistics by the factor; forget what hardly counts any more."""
    state.clock[0] *= factor
    for k in range(state.pulls.size):
        fade(state, k, factor)


def _discounted_update(spec: Any, state: Any, arm: int, reward: float) -> None:
    state.around.since[0] += 1.0
    due = state.around.since[0] >= spec.every
    if due:
        state.around.since[0] = 0.0
        _discount(state, spec.factor)
    kernel.update(spec.spec, state, arm, clipped(spec, reward))
    if due:
        kernel.refresh_all(spec.spec, state)
    elif not spec.late:  # policies learn in whole rewards, and counts are not whole
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
