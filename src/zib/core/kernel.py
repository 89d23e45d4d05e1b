"""Multi-armed policies: one set of plain-Python kernels, run by the interpreter and the compiler.

A policy is a **spec** (immutable parameters), a **state** (named arrays) and three kernels.
`scores` writes one number per arm, `update` learns from one reward, `refresh` recomputes what is
derived from the statistics of one arm. `register` is the only way in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba.extending import register_jitable

from zib.core.registry import CALLED as CALLED
from zib.core.registry import INLINED, Registry
from zib.core.registry import borrowing as borrowing
from zib.core.registry import jitable as jitable
from zib.core.state import ArmState, Part, new_state

Kernel = Callable[..., Any]

REGISTRY = Registry("policy", "zib.register(...)")


class Policy(NamedTuple):
    """What is registered for one type of spec."""

    spec_type: type
    init: Callable[[Any, int], Any]
    scores: Kernel
    update: Kernel
    learn: Kernel
    refresh: Kernel
    refresh_all: Kernel
    indices: Kernel
    additive: bool
    own: type[Part]
    weigh: Kernel
    rescale: Kernel | None
    randomized: bool
    propensities: Callable[[Any, Any], Any] | None
    imagine: Kernel


@REGISTRY.kernel(INLINED)
def scores(spec: Any, state: Any, rng: Any, out: Any) -> None:
    """Write one score per arm into `out`."""


@REGISTRY.kernel(INLINED)
def indices(spec: Any, state: Any, rng: Any, out: Any) -> None:
    """Write the exact score of every arm into `out`."""


@REGISTRY.kernel(INLINED)
def update(spec: Any, state: Any, arm: int, reward: float) -> None:
    """Learn from one reward."""


@REGISTRY.kernel(INLINED)
def learn(spec: Any, state: Any, arm: int, reward: float, category: int) -> None:
    """Learn from one reward and the category it came with, 0 where nothing happened."""


@REGISTRY.kernel(INLINED)
def refresh(spec: Any, state: Any, arm: int) -> None:
    """Recompute what is derived from the statistics of one arm."""


@REGISTRY.kernel(INLINED)
def refresh_all(spec: Any, state: Any) -> None:
    """Recompute what is derived from the statistics of every arm."""


@REGISTRY.kernel(INLINED)
def imagine(spec: Any, state: Any, arm: int) -> None:
    """Count one more pull of an arm that was played, with rewards like those it had."""


@REGISTRY.kernel(INLINED)
def weigh(spec: Any, state: Any, arm: int, reward: float, weight: float) -> None:
    """Add a reward to the further sums of a policy, or take it out again (`weight` −1)."""


def _ignore_category(spec: Any, state: Any, arm: int, reward: float, category: int) -> None:
    update(spec, state, arm, reward)


def _no_refresh(spec: Any, state: Any, arm: int) -> None:
    """Nothing is derived."""


def _no_sums(spec: Any, state: Any, arm: int, reward: float, weight: float) -> None:
    """There are no further sums."""


def _refresh_each(spec: Any, state: Any) -> None:
    for k in range(state.pulls.size):
        refresh(spec, state, k)


def _imagine_nothing(spec: Any, state: Any, arm: int) -> None:
    """What one more pull would change is not known."""


def _imagine_inside(spec: Any, state: Any, arm: int) -> None:
    imagine(spec.spec, state, arm)


@jitable
def one_more(state: Any, arm: int) -> float:
    """Let the statistics of an arm that was played be those of one more pull with the same means.

    Returns what they were multiplied by, for further sums.
    """
    pulls = state.pulls[arm]
    factor = (pulls + 1.0) / pulls
    state.clock[0] += 1.0
    state.pulls[arm] = pulls + 1.0
    state.nonzero[arm] = min(state.nonzero[arm] * factor, pulls + 1.0)
    state.total[arm] *= factor
    state.spread[arm] *= factor
    return float(factor)


def _imagine_one(spec: Any, state: Any, arm: int) -> None:
    one_more(state, arm)
    refresh(spec, state, arm)


def register(
    spec_type: type,
    *,
    scores: Kernel,
    update: Kernel,
    learn: Kernel | None = None,
    own: type[Part] = Part,
    init: Callable[[Any, int], Any] | None = None,
    refresh: Kernel | None = None,
    refresh_all: Kernel | None = None,
    indices: Kernel | None = None,
    additive: bool = False,
    weigh: Kernel | None = None,
    rescale: Kernel | None = None,
    randomized: bool = False,
    propensities: Callable[[Any, Any], Any] | None = None,
    imagine: Kernel | None = None,
    allocates: bool = False,
) -> None:
    """Make a policy known to the interpreter and to the compiler.

    Parameters
    ----------
    spec_type
        The `Spec` class of the parameters; it must live in an importable module.
    own
        What the policy keeps besides the statistics of `ArmState`: a class of declared arrays, see
        `zib.core.state`.
    init
        ``init(spec, n_arms) -> state``, where the empty state needs more than the declaration
        says; plain Python, called once.
    scores
        ``scores(spec, state, rng, out)`` writes one score per arm into `out`; the arm with the
        largest is chosen, ties at random. Must write ``inf`` for arms never pulled, and must not
        change `state`.
    update
        ``update(spec, state, arm, reward)`` learns; it must not draw random numbers.
    learn
        ``learn(spec, state, arm, reward, category)``: the same for policies that use the category a
        reward came with, 1, 2, … or 0 where nothing happened. Their specs say in `n_categories`
        how many there are.
    refresh
        ``refresh(spec, state, arm)`` recomputes what is derived about one arm after its statistics
        were changed from outside (merge, revision, new arms).
    refresh_all
        ``refresh_all(spec, state)``: the same for all arms, where that costs less than one by one.
    indices
        ``indices(spec, state, rng, out)``: as `scores`, with the exact score of every arm, for
        policies whose `scores` leaves a bound for arms that cannot be the largest.
    additive
        Whether `state` is an `ArmState` whose statistics are plain sums over observations, so that
        states of two workers can be merged and a reward can be revised.
    weigh
        ``weigh(spec, state, arm, reward, weight)`` adds `weight` times the contribution of one
        reward to the arrays of `own` that are declared as sums, so that a reward can be revised.
    rescale
        ``rescale(spec, state, arm, factor)`` changes the arrays of `own` that are declared as sums
        to what they would be if every reward of the arm had been `factor` times as large.
    randomized
        Whether `scores` draws random numbers.
    propensities
        ``propensities(spec, state) -> array`` for randomized policies where it is known exactly.
    imagine
        ``imagine(spec, state, arm)`` counts one more pull of an arm, with rewards like those it
        had; so a policy without chance plays a batch (`zib.Bandit.select_many`). Not needed where
        the policy is `additive` and keeps no further sums.
    allocates
        Whether a kernel creates arrays while it runs (slower; prefer an array of `own`).
    """

    def empty(spec: Any, n_arms: int) -> ArmState:
        return new_state(n_arms, own=own, horizon=getattr(spec, "horizon", 1.0))

    compilable = register_jitable if allocates else jitable
    scoring = compilable(scores)
    if imagine is None and "spec" in spec_type._fields:  # type: ignore[attr-defined]
        imagine = _imagine_inside  # a policy around a policy
    elif imagine is None:
        imagine = _imagine_one if additive and not own.keeps_sums() else _imagine_nothing
    REGISTRY.add(
        spec_type,
        Policy(
            spec_type,
            init or empty,
            scoring,
            compilable(update),
            compilable(learn or _ignore_category),
            compilable(refresh or _no_refresh),
            compilable(refresh_all or _refresh_each),
            scoring if indices is None else compilable(indices),
            additive,
            own,
            compilable(weigh or _no_sums),
            rescale,
            randomized,
            propensities,
            compilable(imagine),
        ),
    )


def lookup(spec: Any, name: str = "spec") -> Policy:
    """Return what is registered for the type of `spec`, or raise a TypeError that says how."""
    found: Policy = REGISTRY.lookup(spec, name)
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


def keeps_sums(spec: Any) -> bool:
    """Whether the policy keeps sums of its own over rewards, besides those every policy keeps."""
    return lookup(spec).own.keeps_sums()


def can_weigh(spec: Any) -> bool:
    """Whether a single reward can be added to all sums of the policy, and taken out again."""
    return lookup(spec).weigh is not _no_sums or not keeps_sums(spec)


def can_rescale(spec: Any) -> bool:
    """Whether the rewards of an arm can be multiplied by a number afterwards."""
    return lookup(spec).rescale is not None or not keeps_sums(spec)


def rescale(spec: Any, state: Any, arm: int, factor: float) -> None:
    """Multiply the rewards of an arm in the further sums of a policy."""
    kernel = lookup(spec).rescale
    if kernel is not None:
        kernel(spec, state, arm, factor)


def is_interpreted(spec: Any) -> bool:
    """Whether the kernels hold Python objects, so that only the interpreter can run them."""
    return bool(getattr(spec, "interpreted", False))


def draws_randomly(spec: Any) -> bool:
    """Whether the scores of the policy, or of the policy nested in it, are random.

    A policy around another says by ``adds_chance`` whether its own scores are.
    """
    nested = _nested(spec)
    if nested:
        return getattr(spec, "adds_chance", False) or any(draws_randomly(each) for each in nested)
    return lookup(spec).randomized


def _nested(spec: Any) -> list[Any]:
    """Return the policies that stand in the fields of a spec."""
    return [field for field in spec if type(field) in REGISTRY]


def _is_random_inside(spec: Any) -> bool:
    """Whether the innermost policy draws its decisions."""
    nested = _nested(spec)
    if nested:
        return any(_is_random_inside(each) for each in nested)
    return lookup(spec).randomized


def spreads(spec: Any) -> bool:
    """Whether the policy is without chance and spreads the decisions of a batch by `imagine`.

    Others without chance decide the same again until a reward is learned. What a policy around it
    adds by chance is drawn for every decision of the batch.
    """
    return not _is_random_inside(spec) and _can_imagine(spec)


def _can_imagine(spec: Any) -> bool:
    found = lookup(spec).imagine
    if found is _imagine_inside:
        return _can_imagine(spec.spec)
    return found is not _imagine_nothing and (found is not _imagine_one or is_additive(spec))


def init(spec: Any, n_arms: int) -> Any:
    """Return the empty state of the policy."""
    return lookup(spec).init(spec, n_arms)


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
def count_as_usual(spec: Any, state: Any, arm: int, spread: bool) -> None:
    """Let a view of the state count a decision of a batch whose reward is not known yet.

    The first decision for an untried arm counts as a zero, so that the rest of a batch does not go
    to arms that nobody knows. Further ones count as what the arm has paid so far, if the batch is
    to `spread`.
    """
    if state.pulls[arm] == 0.0:
        update(spec, state, arm, 0.0)
    elif spread:
        imagine(spec, state, arm)


@jitable
def choose(spec: Any, state: Any, rng: Any, out: Any) -> int:
    """Return the arm with the largest score."""
    scores(spec, state, rng, out)
    return argmax_random(out, rng)
