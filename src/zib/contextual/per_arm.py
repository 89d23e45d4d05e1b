"""`Disjoint`: parameters of its own for every arm, for any contextual policy."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.extending import overload
from numpy.typing import NDArray

from zib.contextual import policy
from zib.contextual.parts import N_ARMS, RANDOM_ROUNDS, ROUNDS, play_at_random
from zib.contextual.policy import lookup_policy, register_policy
from zib.core import validate as check
from zib.core.kernel import borrowing, is_interpreted
from zib.core.spec import Spec, label_of


class _Fields(NamedTuple):
    spec: Any
    n_arms: int


class Disjoint(Spec, _Fields):
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

    __slots__ = ()

    def __new__(cls, *, spec: Any, n_arms: int) -> Disjoint:
        """Check that the policy can be split by arms."""
        lookup_policy(spec)
        if isinstance(spec, Disjoint):
            raise check.InvalidParameterError("`spec` must not be disjoint itself; got Disjoint")
        if is_interpreted(spec):
            raise check.InvalidParameterError(
                "`spec` must be a policy whose models are ours; give a Template the features that "
                f"zib.contextual.disjoint makes instead; got {type(spec).__name__}"
            )
        return super().__new__(cls, spec, check.integer("n_arms", n_arms, low=1))

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
    clock: NDArray[np.float64]


def _stacked(state: Any, n_arms: int) -> Any:
    if isinstance(state, np.ndarray):
        out = np.zeros((n_arms, *state.shape), dtype=state.dtype)
        if state.any():
            out[:] = state
        return out
    return type(state)(*(_stacked(part, n_arms) for part in state))


def _init(spec: Disjoint, d: int, q: int) -> ByArm:
    one = policy.init(spec.spec, d, q)
    clock = one.clock.copy()
    arms = _stacked(one, spec.n_arms)
    arms.clock[:, RANDOM_ROUNDS] = 0.0  # random rounds are counted over all arms
    arms.clock[:, N_ARMS] = float(spec.n_arms)
    return ByArm(arms, clock)


def of_arm(state: Any, arm: int) -> Any:
    """Return the state of one arm: views, not copies."""
    if isinstance(state, np.ndarray):
        return state[arm]
    return type(state)(*(of_arm(part, arm) for part in state))


@overload(of_arm, strict=False, inline="always")
def _of_arm(state, arm):  # type: ignore[no-untyped-def]
    # Compiled code builds a named tuple only by writing out its fields, and borrowed views cannot
    # be returned: the expression is written into the caller.
    scope: dict[str, Any] = {}

    def written(kind: Any, path: str) -> str:
        if isinstance(kind, types.Array):
            return f"{path}[arm]"
        scope[kind.instance_class.__name__] = kind.instance_class
        parts = zip(kind.fields, kind.types, strict=True)
        inside = ", ".join(written(part, f"{path}.{field}") for field, part in parts)
        return f"{kind.instance_class.__name__}({inside})"

    return eval(f"lambda state, arm: {written(state, 'state')}", scope)


@borrowing
def _scores(
    spec: Any, state: Any, arms: Any, z: Any, w: Any, rng: Any, work: Any, out: Any
) -> None:
    if play_at_random(state, out):
        return
    for k in range(out.size):
        policy.scores(
            spec.spec,
            of_arm(state.arms, arms[k]),
            arms[k : k + 1],
            z[:, k : k + 1],
            w[:, k : k + 1],
            rng,
            work,
            out[k : k + 1],
        )


@borrowing
def _update(spec: Any, state: Any, arm: int, z: Any, w: Any, reward: float) -> None:
    policy.update(spec.spec, of_arm(state.arms, arm), arm, z, w, reward)
    state.clock[ROUNDS] += 1.0
    for k in range(spec.n_arms):  # time passes for every arm, played or not
        state.arms.clock[k, ROUNDS] = state.clock[ROUNDS]


@borrowing
def _moments(spec: Any, state: Any, arms: Any, z: Any, w: Any, work: Any, out: Any) -> None:
    for k in range(out.shape[1]):
        policy.moments(
            spec.spec,
            of_arm(state.arms, arms[k]),
            arms[k : k + 1],
            z[:, k : k + 1],
            w[:, k : k + 1],
            work,
            out[:, k : k + 1],
        )


register_policy(Disjoint, init=_init, scores=_scores, update=_update, moments=_moments)
