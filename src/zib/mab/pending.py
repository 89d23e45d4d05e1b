"""What a policy makes of decisions whose reward may still come."""

from __future__ import annotations

from typing import Any

from zib.core import kernel
from zib.core import validate as check
from zib.core.kernel import is_additive, lookup, register
from zib.core.spec import choice, combined, converted, label_of, optional, positive, whole
from zib.core.state import ArmState
from zib.core.validate import InvalidParameterError, shown
from zib.mab.wrappers import (
    Wrapper,
    inner_indices,
    inner_refresh,
    inner_refresh_all,
    inner_scores,
)

WAYS = {
    "estimated": "F estimated",
    "known": "F known",
    "zero": "pending as zeros",
    "at_once": "rewards at once, zeros at the close",
    "wait": "waiting for the close",
    "no_delay": "no delay",
}
ESTIMATED, KNOWN, ZERO, AT_ONCE, WAIT, NO_DELAY = range(len(WAYS))
NEED_SUMS = ("estimated", "known", "zero")
MOST_ROUNDS = 10_000_000


def _policy(spec: Any) -> Any:
    lookup(spec)
    if isinstance(spec, Pending):
        raise InvalidParameterError(f"`spec` must not be a Pending itself; got {shown(spec)}")
    return spec


def _way(given: Any) -> int:
    code = int(choice(tuple(WAYS)).checked("how", given["how"]))
    if tuple(WAYS)[code] in NEED_SUMS and not is_additive(given["spec"]):
        raise InvalidParameterError(
            "`how` must be 'wait', 'at_once' or 'no_delay' for a policy whose statistics are not "
            f"sums over rewards, {shown(given['spec'])}; got {given['how']!r}"
        )
    return code


class Pending(Wrapper):
    """Play `spec` where rewards come late (`zib.env.Delayed`), with a way to treat what is pending.

    Parameters
    ----------
    spec
        Any policy; ``"estimated"``, ``"known"`` and ``"zero"`` need one whose statistics are sums.
    how
        ``"estimated"`` (default) and ``"known"``: a decision that is pending counts as a fraction
        of a pull, F(1 − p)/(1 − pF), with F the share of the rewards that have come by its age: the
        true one, or one estimated from the delays seen so far. ``"zero"``: it counts as a zero at
        once, which is corrected when its reward comes. ``"at_once"``: rewards are learned when they
        come, zeros when the window closes. ``"wait"``: everything is learned when the window
        closes. ``"no_delay"``: everything is learned at once, which only a simulation can.
    every
        Rounds after which F is estimated and pending decisions are weighed anew; a hundredth of
        the window by default. Rewards are learned as they come.
    prior_rewards
        How many rewards the assumption counts for that delays are spread evenly, as far as there
        are decisions of that age; beyond, the trend of the last delays goes on.
    per_arm
        Whether each arm has an F of its own, which leans on that of all arms for as much as three
        rewards would. By default all arms have the same; if the best arm pays later than others,
        its pending decisions then count for too much. Where arms do not differ, an F for each costs
        two or three per cent of the regret; where they do, it saves a good part of it.

    Notes
    -----
    ``"at_once"`` is what happens when `update` is called as orders arrive: zeros are missing for
    the length of a window, and p looks several times too large. Amounts are learned as they are;
    `zib.Bandit.set_pending` can correct those that depend on the delay. The derivation of the
    fractions and the estimate of F are in `zib.stats.delay`. Nothing is proven about posterior
    sampling with an estimated F.

    An index does not change until a reward comes or a decision ages, so a policy without chance
    plays one arm many times over meanwhile; ``"zero"`` spreads its choices and can be better for
    it by a few per cent.

    Where nothing is late (in `zib.Bandit`, and in other environments) the policy plays as the one
    inside.

    Examples
    --------
    >>> import zib
    >>> late = zib.mab.Pending(zib.mab.ZIAdaptive())
    >>> late.label, late._replace(how="wait").label
    ('ZI adaptive, F estimated', 'ZI adaptive, waiting for the close')
    """

    spec: Any = converted(_policy, allowed="policy", kw_only=False)
    how: Any = combined(
        _way,
        allowed="one of " + ", ".join(repr(way) for way in WAYS),
        default="estimated",
    )._replace(shown=lambda code: tuple(WAYS)[code])
    every: Any = optional(whole(low=1, high=MOST_ROUNDS), default=None)
    prior_rewards: float = positive(default=1.0)
    per_arm: bool = converted(
        lambda value: check.flag("per_arm", value), bool, allowed="True or False", default=False
    )

    @property
    def label(self) -> str:
        """The name of the policy inside, and what it makes of what is pending."""
        return f"{label_of(self.spec)}, {tuple(WAYS.values())[self.how]}"

    @property
    def n_categories(self) -> int:
        """How many kinds of rewards the policy inside is told."""
        return int(getattr(self.spec, "n_categories", 0))


def _init(spec: Pending, n_arms: int) -> ArmState:
    state: ArmState = kernel.init(spec.spec, n_arms)
    return state


def _update(spec: Any, state: Any, arm: int, reward: float) -> None:
    kernel.update(spec.spec, state, arm, reward)


def _learn(spec: Any, state: Any, arm: int, reward: float, category: int) -> None:
    kernel.learn(spec.spec, state, arm, reward, category)


register(
    Pending,
    init=_init,
    scores=inner_scores,
    update=_update,
    learn=_learn,
    refresh=inner_refresh,
    refresh_all=inner_refresh_all,
    indices=inner_indices,
    randomized=True,
)
