"""Thompson sampling in two parts: draw how often, draw how much, multiply.

The loop over the arms is the same for every policy that samples in this way. What differs, how an
arm that has paid draws its two parts, a policy adds to `DRAWS`.

Policies that are not told how much rewards scatter learn it from all arms, and that can be wrong
for one of them: where one arm always pays 1, and another 3 on average but little at first, the
second looks as certain as the first, and would never be played again. So an arm with few rewards
is now and then taken for a stranger (`is_stranger`), of which the others say nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from zib.core.kernel import jitable
from zib.core.registry import INLINED, Registry
from zib.mab.assumptions import sample_unseen

DRAWS = Registry("sampler", "DRAWS.add(...)")


@jitable
def nothing_shared(spec: Any, state: Any) -> float:
    """Return a number nobody reads: arms draw without looking at each other."""
    return 0.0


@jitable
def draw_beta(spec: Any, state: Any, arm: int, rng: Any) -> float:
    """Draw the probability of paying from Beta(α + B, β + n − B)."""
    nonzero = state.nonzero[arm]
    return float(rng.beta(spec.alpha + nonzero, spec.beta + state.pulls[arm] - nonzero))


class Draws(NamedTuple):
    """What a policy adds to `DRAWS`."""

    magnitude: Callable[..., float]
    probability: Callable[..., float] = draw_beta
    shared: Callable[..., Any] = nothing_shared


@DRAWS.kernel(INLINED)
def shared(spec: Any, state: Any) -> Any:
    """Return what all arms draw with, computed once per round."""


@DRAWS.kernel(INLINED)
def probability(spec: Any, state: Any, arm: int, rng: Any) -> float:  # type: ignore[empty-body]
    """Draw how often an arm pays that has paid."""


@DRAWS.kernel(INLINED)
def magnitude(spec: Any, state: Any, arm: int, common: Any, rng: Any) -> float:  # type: ignore[empty-body]
    """Draw how much an arm pays that has paid; `common` is what `shared` returned."""


@jitable
def product_scores(spec: Any, state: Any, rng: Any, out: Any) -> None:
    """Write the product of both draws for every arm; arms that never paid borrow a magnitude."""
    top = -np.inf
    common = shared(spec, state)
    for k in range(out.size):
        if state.nonzero[k] > 0.0:
            prob = probability(spec, state, k, rng)
            mean = magnitude(spec, state, k, common, rng)
            top = max(top, mean)
            out[k] = prob * mean
    sample_unseen(state, spec.alpha, spec.beta, spec.unseen, top, rng, out)


# ------------------------------------------------------------------------------------ strange arms

STRANGE = 0.2  # how often an arm with one reward is a stranger; with B rewards, to the power of B
FAMILIAR = 9.0  # rewards from which on an arm is none
AT_ONCE = (
    2.5  # arms among which it is shared, so that a thousand do not cost a thousand times as much
)


@jitable
def typical_magnitude(state: Any) -> float:
    """Return the root mean square of all non-zero rewards, or 0."""
    count = 0.0
    squares = 0.0
    for k in range(state.nonzero.size):
        if state.nonzero[k] > 0.0:
            count += state.nonzero[k]
            squares += state.spread[k] + state.total[k] * (state.total[k] / state.nonzero[k])
    return math.sqrt(squares / count) if count > 0.0 else 0.0


@jitable
def is_stranger(state: Any, count: float, at_once: float, rng: Any) -> bool:
    """Whether others shall say nothing, this time, about the scatter behind so many rewards.

    With more than `at_once` arms it happens the more rarely to each, the more there are.
    """
    if count >= FAMILIAR:
        return False
    share = min(1.0, at_once / state.nonzero.size)
    return bool(rng.random() < share * STRANGE ** max(count, 1.0))


@jitable
def strange_magnitude(mean: float, typical: float, rng: Any) -> float:
    """Draw a magnitude above the average by at least what is typical: P(more than x times that)
    = 1/x²."""
    return float(mean + max(abs(mean), typical) / math.sqrt(1.0 - rng.random()))
