"""`Disjoint`: parameters of its own for every arm, for any contextual policy."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

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
    if _has_own_models(spec):
        raise check.InvalidParameterError(
            f"`spec` must not have models per arm itself; got {type(spec).__name__}"
        )
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
    own_models: ClassVar[bool] = True

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


# ---------------------------------------------------------------------------- arms come and go


def is_split(spec: Any) -> bool:
    """Whether a policy has models of its own for every arm, or is one around such a policy."""
    inner = getattr(spec, "spec", None)
    return _has_own_models(spec) or (type(inner) in policy.POLICIES and is_split(inner))


def _has_own_models(spec: Any) -> bool:
    return bool(getattr(type(spec), "own_models", False))


def with_arms(spec: Any, n_arms: int) -> Any:
    """Return the policy for another number of arms; one that shares its models stays as it is."""
    if _has_own_models(spec):
        return spec._replace(n_arms=n_arms)
    return spec._replace(spec=with_arms(spec.spec, n_arms)) if is_split(spec) else spec


def regrouped(state: Any, fresh: Any, sources: Sequence[int]) -> Any:
    """Return the state of other arms: for each the arm it was, or −1 if it is new.

    `fresh` is the empty state for as many arms. The clock keeps counting the rewards of arms that
    are gone.
    """
    if isinstance(state, ByArm):
        chosen = np.asarray(sources, dtype=np.int64)
        copy_arms(state.arms, fresh.arms, chosen)
        fresh.arms.clock.rounds[...] = state.clock.rounds
        fresh.arms.clock.arms[...] = float(chosen.size)
        return ByArm(fresh.arms, copy.deepcopy(state.clock))
    if hasattr(state, "with_arms"):
        return state.with_arms(fresh, sources)
    if isinstance(state, tuple):
        return type(state)(*(regrouped(s, f, sources) for s, f in zip(state, fresh, strict=True)))
    return copy.deepcopy(state)


def copy_arms(old: Any, new: Any, chosen: Any) -> None:
    """Copy what is known about arms, the first index of all arrays, to their new places."""
    if isinstance(old, tuple):
        for part, fresh in zip(old, new, strict=True):
            copy_arms(part, fresh, chosen)
        return
    known = chosen >= 0
    new[known] = old[chosen[known]]


register_policy(Disjoint, init=_init, scores=_scores, update=_update, moments=_moments)
