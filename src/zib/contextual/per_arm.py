"""`Disjoint`: parameters of its own for every arm, for any contextual policy."""

from __future__ import annotations

from typing import Any, NamedTuple

from zib.contextual import policy
from zib.contextual.policy import Clock, lookup_policy, play_at_random, register_policy
from zib.core import validate as check
from zib.core.kernel import is_interpreted
from zib.core.registry import borrowing
from zib.core.spec import Spec, converted, label_of, whole
from zib.core.stacked import row_of, stacked


def _splittable(spec: Any) -> Any:
    """Return a policy that can be split by arms, or raise."""
    lookup_policy(spec)
    if isinstance(spec, Disjoint):
        raise check.InvalidParameterError("`spec` must not be disjoint itself; got Disjoint")
    if getattr(spec, "n_categories", 0):
        raise check.InvalidParameterError(
            "`spec` must be split by arms first: ByCategory(spec=Disjoint(...), categories=...); "
            f"got {type(spec).__name__}"
        )
    if is_interpreted(spec):
        raise check.InvalidParameterError(
            "`spec` must be a policy whose models are ours; give a Template the features that "
            f"zib.contextual.disjoint makes instead; got {type(spec).__name__}"
        )
    return spec


class Disjoint(Spec):
    """One model per arm instead of one for all: nothing is shared between arms.

    Parameters
    ----------
    spec
        A contextual policy, such as ``JointUCB()``.
    n_arms
        Number of arms (≥ 1). Actions say which arm they belong to; by default row k is arm k.

    Notes
    -----
    For few arms whose parameters have nothing to do with each other, as in the disjoint LinUCB.
    Where arms resemble each other, shared features learn faster (see `zib.contextual.hybrid`).
    A decision costs K times that of one action, and memory grows with the number of arms.

    Examples
    --------
    >>> from zib.contextual import JointUCB
    >>> Disjoint(spec=JointUCB(), n_arms=3).label
    'Joint-UCB, disjoint'
    """

    spec: Any = converted(_splittable, allowed="a compiled contextual policy")
    n_arms: int = whole(low=1)

    @property
    def label(self) -> str:
        """A short name for figures and tables."""
        return f"{label_of(self.spec)}, disjoint"

    @property
    def link(self) -> Any:
        """The link of the policy."""
        return self.spec.link

    @property
    def magnitude(self) -> Any:
        """The model of the magnitude."""
        return self.spec.magnitude


class ByArm(NamedTuple):
    """The states of all arms, array by array with the arm as first index, and a common clock."""

    arms: Any
    clock: Clock


def _init(spec: Disjoint, d: int, q: int) -> ByArm:
    one = policy.init(spec.spec, d, q)
    arms = stacked(one, spec.n_arms)
    arms.clock.random_rounds[:] = 0.0  # random rounds are counted over all arms
    arms.clock.arms[:] = float(spec.n_arms)
    return ByArm(arms, one.clock)


@borrowing
def _scores(
    spec: Any, state: Any, arms: Any, z: Any, w: Any, rng: Any, work: Any, out: Any
) -> None:
    if play_at_random(state, out):
        return
    for k in range(out.size):
        policy.scores(
            spec.spec,
            row_of(state.arms, arms[k]),
            arms[k : k + 1],
            z[:, k : k + 1],
            w[:, k : k + 1],
            rng,
            work,
            out[k : k + 1],
        )


@borrowing
def _update(spec: Any, state: Any, arm: int, z: Any, w: Any, reward: float) -> None:
    policy.update(spec.spec, row_of(state.arms, arm), arm, z, w, reward)
    state.clock.rounds[0] += 1.0
    for k in range(spec.n_arms):  # time passes for every arm, played or not
        state.arms.clock.rounds[k, 0] = state.clock.rounds[0]


@borrowing
def _moments(spec: Any, state: Any, arms: Any, z: Any, w: Any, work: Any, out: Any) -> None:
    for k in range(out.shape[1]):
        policy.moments(
            spec.spec,
            row_of(state.arms, arms[k]),
            arms[k : k + 1],
            z[:, k : k + 1],
            w[:, k : k + 1],
            work,
            out[:, k : k + 1],
        )


register_policy(Disjoint, init=_init, scores=_scores, update=_update, moments=_moments)
