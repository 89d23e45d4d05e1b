"""Dispatch: one set of plain-Python kernels, run by the interpreter and by the compiler.

A policy is a **spec** (an immutable tuple of parameters), a **state** (a tuple of arrays) and three
kernels. `scores` writes one number per arm, `update` learns from one reward, `refresh` recomputes
what is cached about one arm from its statistics. `register` is the only way in. In Python the
kernels are looked up by the type of the spec; in compiled code Numba does the same look-up at
compile time, so a policy written outside this package runs at the same speed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numba.extending import overload, register_jitable

from zib.core.validate import InvalidParameterError

Kernel = Callable[..., Any]

# Kernels never own memory: without reference counting, handing a state from one kernel to the next
# is free (with it, a simulated round costs ten times as much).
_F = TypeVar("_F", bound=Callable[..., Any])
_BORROWS: Any = {"_nrt": False, "forceinline": True}
jitable: Callable[[_F], _F] = register_jitable(**_BORROWS)
# The same without forced inlining, for functions that take longer than a call.
CALLED: Any = {"_nrt": False}
borrowing: Callable[[_F], _F] = register_jitable(**CALLED)


class Policy(NamedTuple):
    """What is registered for one type of spec."""

    spec_type: type
    init: Callable[[Any, int], Any]
    scores: Kernel
    update: Kernel
    refresh: Kernel
    refresh_all: Kernel
    indices: Kernel
    additive: bool
    sums: int
    weigh: Kernel | None
    randomized: bool
    propensities: Callable[[Any, Any], Any] | None


REGISTRY: dict[type, Policy] = {}


def _no_refresh(spec: Any, state: Any, arm: int) -> None:
    """Nothing is cached."""


def _refresh_each(spec: Any, state: Any) -> None:
    for k in range(state.pulls.size):
        refresh(spec, state, k)


def register(
    spec_type: type,
    *,
    init: Callable[[Any, int], Any],
    scores: Kernel,
    update: Kernel,
    refresh: Kernel | None = None,
    refresh_all: Kernel | None = None,
    indices: Kernel | None = None,
    additive: bool = False,
    sums: int = 0,
    weigh: Kernel | None = None,
    randomized: bool = False,
    propensities: Callable[[Any, Any], Any] | None = None,
    allocates: bool = False,
) -> None:
    """Make a policy known to the interpreter and to the compiler.

    Parameters
    ----------
    spec_type
        The NamedTuple class of the parameters; it must live in an importable module.
    init
        ``init(spec, n_arms) -> state``; plain Python, called once.
    scores
        ``scores(spec, state, rng, out)`` writes one score per arm into `out`; the arm with the
        largest is chosen, ties at random. Must write ``inf`` for arms never pulled, and must not
        change `state`.
    update
        ``update(spec, state, arm, reward)`` learns; it must not draw random numbers.
    refresh
        ``refresh(spec, state, arm)`` recomputes cached columns after statistics were changed from
        outside (merge, revision, new arms).
    refresh_all
        ``refresh_all(spec, state)``: the same for all arms, where that costs less than one by one.
    indices
        ``indices(spec, state, rng, out)``: as `scores`, with the exact score of every arm, for
        policies whose `scores` leaves a bound for arms that cannot be the largest.
    additive
        Whether `state` is an `ArmState` whose statistics are plain sums over observations, so that
        states of two workers can be merged and a reward can be revised.
    sums, weigh
        How many leading columns of ``state.cache`` are further sums over an arm's rewards, and
        ``weigh(spec, state, arm, reward, weight)``, which adds `weight` times the contribution of
        one reward to them, so that they can be merged and revised too.
    randomized
        Whether `scores` draws random numbers.
    propensities
        ``propensities(spec, state) -> array`` for randomized policies where it is known exactly.
    allocates
        Whether a kernel creates arrays while it runs (slower; prefer a column of ``state.cache``).
    """
    if not (issubclass(spec_type, tuple) and hasattr(spec_type, "_fields")):
        raise InvalidParameterError(
            f"`spec_type` must be a NamedTuple class; got {spec_type.__name__}"
        )
    compilable = register_jitable if allocates else jitable
    scoring = compilable(scores)
    REGISTRY[spec_type] = Policy(
        spec_type,
        init,
        scoring,
        compilable(update),
        compilable(refresh or _no_refresh),
        compilable(refresh_all or _refresh_each),
        scoring if indices is None else compilable(indices),
        additive,
        sums,
        weigh,
        randomized,
        propensities,
    )


def lookup(spec: Any) -> Policy:
    """Return what is registered for the type of `spec`, or raise a TypeError that says how."""
    found = REGISTRY.get(type(spec))
    if found is None:
        raise TypeError(
            f"{type(spec).__name__} is not a registered policy; "
            "register its kernels with zib.register(...) first"
        )
    return found


def is_native(spec: Any) -> bool:
    """Whether the spec and every spec nested in it belong to this package.

    Only then may compiled code be kept on disk: the cache folder is named after *our* sources, so
    code compiled from somebody else's kernels could be stale after an edit there.
    """
    if not type(spec).__module__.startswith("zib."):
        return False
    return all(is_native(field) for field in spec if hasattr(field, "_fields"))


def is_additive(spec: Any) -> bool:
    """Whether statistics of this policy are sums over rewards, so that they can be merged.

    A spec may say no where its type says yes: that depends on a parameter.
    """
    return lookup(spec).additive and bool(getattr(spec, "additive", True))


def weigh(spec: Any, state: Any, arm: int, reward: float, weight: float) -> None:
    """Add a reward to the further sums of a policy, or take it out again (`weight` −1)."""
    kernel = lookup(spec).weigh
    if kernel is not None:
        kernel(spec, state, arm, reward, weight)


def is_interpreted(spec: Any) -> bool:
    """Whether the kernels hold Python objects, so that only the interpreter can run them."""
    return bool(getattr(spec, "interpreted", False))


def draws_randomly(spec: Any) -> bool:
    """Whether the scores of the policy, or of the policy nested in it, are random."""
    nested = [field for field in spec if type(field) in REGISTRY]
    if nested:
        return any(draws_randomly(field) for field in nested)
    return lookup(spec).randomized


def init(spec: Any, n_arms: int) -> Any:
    """Return the empty state of the policy."""
    return lookup(spec).init(spec, n_arms)


def scores(spec: Any, state: Any, rng: Any, out: Any) -> None:
    """Write one score per arm into `out`."""
    lookup(spec).scores(spec, state, rng, out)


def indices(spec: Any, state: Any, rng: Any, out: Any) -> None:
    """Write the exact score of every arm into `out`."""
    lookup(spec).indices(spec, state, rng, out)


def update(spec: Any, state: Any, arm: int, reward: float) -> None:
    """Learn from one reward."""
    lookup(spec).update(spec, state, arm, reward)


def refresh(spec: Any, state: Any, arm: int) -> None:
    """Recompute what is cached about one arm."""
    lookup(spec).refresh(spec, state, arm)


def refresh_all(spec: Any, state: Any) -> None:
    """Recompute what is cached about every arm."""
    lookup(spec).refresh_all(spec, state)


def _compiled(spec: Any, which: str) -> Kernel | None:
    found = REGISTRY.get(getattr(spec, "instance_class", object))
    return None if found is None else getattr(found, which)


@overload(scores, strict=False, jit_options=_BORROWS)
def _scores(spec, state, rng, out):  # type: ignore[no-untyped-def]
    return _compiled(spec, "scores")


@overload(indices, strict=False, jit_options=_BORROWS)
def _indices(spec, state, rng, out):  # type: ignore[no-untyped-def]
    return _compiled(spec, "indices")


@overload(update, strict=False, jit_options=_BORROWS)
def _update(spec, state, arm, reward):  # type: ignore[no-untyped-def]
    return _compiled(spec, "update")


@overload(refresh, strict=False, jit_options=_BORROWS)
def _refresh(spec, state, arm):  # type: ignore[no-untyped-def]
    return _compiled(spec, "refresh")


@overload(refresh_all, strict=False, jit_options=_BORROWS)
def _refresh_all(spec, state):  # type: ignore[no-untyped-def]
    return _compiled(spec, "refresh_all")


@jitable
def argmax_random(values: Any, rng: Any) -> int:
    """Return the position of the largest entry; ties are broken uniformly at random.

    A random number is drawn only where there is a tie. NaN never wins.
    """
    best = -np.inf
    winner = 0
    ties = 0
    for k in range(values.size):
        value = values[k]
        if value > best:
            best = value
            winner = k
            ties = 1
        elif value == best:
            ties += 1
            if rng.random() * ties < 1.0:
                winner = k
    return winner


@jitable
def choose(spec: Any, state: Any, rng: Any, out: Any) -> int:
    """Return the arm with the largest score."""
    scores(spec, state, rng, out)
    return argmax_random(out, rng)
