"""Dispatch of contextual policies: the same kernels for the interpreter and for the compiler.

A contextual policy is a spec, a state and three kernels. `scores` writes one number per action,
`update` learns from one reward, `moments` says what the models believe about each action. Inside
kernels features stand with **actions in columns**, shape (d, K): loops over actions are then the
innermost ones and the compiler turns them into vector instructions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba.extending import overload

from zib.core.kernel import CALLED, argmax_random, borrowing
from zib.core.validate import InvalidParameterError

Kernel = Callable[..., Any]

# Rows of scratch space a policy may use in `scores` and `moments`.
WORK_ROWS = 12
# Rows that `moments` writes.
ETA, ETA_VARIANCE, ZETA, ZETA_VARIANCE, COVARIANCE = 0, 1, 2, 3, 4


class ContextualPolicy(NamedTuple):
    """What is registered for one type of spec."""

    init: Callable[[Any, int, int], Any]
    scores: Kernel
    update: Kernel
    moments: Kernel
    randomized: bool | Callable[[Any], bool]


POLICIES: dict[type, ContextualPolicy] = {}


def register_policy(
    spec_type: type,
    *,
    init: Callable[[Any, int, int], Any],
    scores: Kernel,
    update: Kernel,
    moments: Kernel,
    randomized: bool | Callable[[Any], bool] = False,
) -> None:
    """Make a contextual policy known to the interpreter and to the compiler.

    Parameters
    ----------
    spec_type
        The NamedTuple class of the parameters; it must live in an importable module.
    init
        ``init(spec, d, q) -> state`` for d features of the magnitude and q of the occurrence;
        plain Python, called once. A state is a NamedTuple of arrays, or of NamedTuples of arrays.
    scores
        ``scores(spec, state, arms, z, w, rng, work, out)`` writes one score per action into `out`;
        the largest is played, ties at random. `z` is (d, K) and `w` is (q, K), where K is at least
        ``out.size``; `arms` holds the number of the arm each action belongs to. `work` has
        `WORK_ROWS` rows of scratch, each at least as long as K, d and q. Must not change `state`.
    update
        ``update(spec, state, arm, z, w, reward)`` learns from one action's features and reward; it
        must not draw random numbers.
    moments
        ``moments(spec, state, arms, z, w, work, out)`` writes five rows: the estimated linear
        predictor of the occurrence and its variance, that of the magnitude and its variance, and
        their covariance. A policy without an occurrence part writes NaN in the first two, and the
        reward itself takes the place of the magnitude.
    randomized
        Whether `scores` draws random numbers, or a function of the spec that says so.
    """
    if not (issubclass(spec_type, tuple) and hasattr(spec_type, "_fields")):
        raise InvalidParameterError(
            f"`spec_type` must be a NamedTuple class; got {spec_type.__name__}"
        )
    POLICIES[spec_type] = ContextualPolicy(
        init, borrowing(scores), borrowing(update), borrowing(moments), randomized
    )


def lookup_policy(spec: Any) -> ContextualPolicy:
    """Return what is registered for the type of `spec`, or raise a TypeError that says how."""
    found = POLICIES.get(type(spec))
    if found is None:
        raise TypeError(
            f"{type(spec).__name__} is not a registered contextual policy; "
            "register its kernels with zib.contextual.register_policy(...) first"
        )
    return found


def draws_randomly(spec: Any) -> bool:
    """Whether the scores of the policy, or of the policy nested in it, are random."""
    nested = [field for field in spec if type(field) in POLICIES]
    if nested:
        return any(draws_randomly(field) for field in nested)
    randomized = lookup_policy(spec).randomized
    return randomized(spec) if callable(randomized) else randomized


def init(spec: Any, n_magnitude: int, n_occurrence: int) -> Any:
    """Return the empty state of the policy."""
    return lookup_policy(spec).init(spec, n_magnitude, n_occurrence)


def scores(spec: Any, state: Any, arms: Any, z: Any, w: Any, rng: Any, work: Any, out: Any) -> None:
    """Write one score per action into `out`."""
    lookup_policy(spec).scores(spec, state, arms, z, w, rng, work, out)


def update(spec: Any, state: Any, arm: int, z: Any, w: Any, reward: float) -> None:
    """Learn from one reward."""
    lookup_policy(spec).update(spec, state, arm, z, w, reward)


def moments(spec: Any, state: Any, arms: Any, z: Any, w: Any, work: Any, out: Any) -> None:
    """Write what the models believe about each action."""
    lookup_policy(spec).moments(spec, state, arms, z, w, work, out)


def _compiled(spec: Any, which: str) -> Kernel | None:
    found = POLICIES.get(getattr(spec, "instance_class", object))
    return None if found is None else getattr(found, which)


@overload(scores, strict=False, jit_options=CALLED)
def _scores(spec, state, arms, z, w, rng, work, out):  # type: ignore[no-untyped-def]
    return _compiled(spec, "scores")


@overload(update, strict=False, jit_options=CALLED)
def _update(spec, state, arm, z, w, reward):  # type: ignore[no-untyped-def]
    return _compiled(spec, "update")


@overload(moments, strict=False, jit_options=CALLED)
def _moments(spec, state, arms, z, w, work, out):  # type: ignore[no-untyped-def]
    return _compiled(spec, "moments")


@borrowing
def choose(spec: Any, state: Any, arms: Any, z: Any, w: Any, rng: Any, work: Any, out: Any) -> int:
    """Return the column of the action with the largest score."""
    scores(spec, state, arms, z, w, rng, work, out)
    return argmax_random(out, rng)


def scratch(n_actions: int, n_magnitude: int, n_occurrence: int) -> Any:
    """Return scratch space for rounds of up to `n_actions` actions."""
    return np.zeros((WORK_ROWS, max(n_actions, n_magnitude + n_occurrence)))
