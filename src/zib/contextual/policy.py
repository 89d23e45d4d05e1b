"""Contextual policies: how they are registered, and what those with two models share.

A contextual policy is a spec, a state and three kernels, the same for the interpreter and for the
compiler. `scores` writes one number per action, `update` learns from one reward, `moments` says
what the models believe about each action. Inside kernels features stand with **actions in
columns**, shape (d, K): loops over actions are then the innermost ones and the compiler turns them
into vector instructions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from zib.contextual.fit import learn as learn_model
from zib.contextual.links import derivative, link_parameter, resolve_link, value
from zib.contextual.models import (
    GLM,
    magnitude_parameter,
    new_magnitude,
    new_model,
    noise,
    resolve_magnitude,
    variances,
)
from zib.core.kernel import argmax_random
from zib.core.registry import CALLED, Registry, borrowing
from zib.core.spec import converted, whole
from zib.core.state import Floats, Part, count, scalar
from zib.stats.design import linear_forms, quadratic_forms

Kernel = Callable[..., Any]

# Rows of scratch space a policy may use in `scores` and `moments`; `ByCategory`, which adds up what
# another policy writes, has two more.
WORK_ROWS = 12
SUM_ROWS = 2
# Rows that `moments` writes: the estimated linear predictor of the occurrence and its variance,
# that of the magnitude and its variance, and their covariance.
ETA, ETA_VARIANCE, ZETA, ZETA_VARIANCE, COVARIANCE = range(5)


# ---------------------------------------------------------------------------------- the registry


class ContextualPolicy(NamedTuple):
    """What is registered for one type of spec."""

    init: Callable[[Any, int, int], Any]
    scores: Kernel
    scores_again: Kernel
    update: Kernel
    learn: Kernel
    moments: Kernel
    randomized: bool | Callable[[Any], bool]


POLICIES = Registry("contextual policy", "zib.contextual.register_policy(...)")


@POLICIES.kernel(CALLED)
def scores(spec: Any, state: Any, arms: Any, z: Any, w: Any, rng: Any, work: Any, out: Any) -> None:
    """Write one score per action into `out`."""


@POLICIES.kernel(CALLED)
def scores_again(
    spec: Any, state: Any, arms: Any, z: Any, w: Any, rng: Any, work: Any, out: Any
) -> None:
    """Write scores of the same actions again, right after `scores` with the same state."""


@POLICIES.kernel(CALLED)
def update(spec: Any, state: Any, arm: int, z: Any, w: Any, reward: float) -> None:
    """Learn from one reward."""


@POLICIES.kernel(CALLED)
def learn(spec: Any, state: Any, arm: int, z: Any, w: Any, reward: float, category: int) -> None:
    """Learn from one reward and the category it came with, 0 where nothing happened."""


@POLICIES.kernel(CALLED)
def moments(spec: Any, state: Any, arms: Any, z: Any, w: Any, work: Any, out: Any) -> None:
    """Write what the models believe about each action."""


def _ignore_category(
    spec: Any, state: Any, arm: int, z: Any, w: Any, reward: float, category: int
) -> None:
    update(spec, state, arm, z, w, reward)


def register_policy(
    spec_type: type,
    *,
    init: Callable[[Any, int, int], Any],
    scores: Kernel,
    update: Kernel,
    moments: Kernel,
    learn: Kernel | None = None,
    scores_again: Kernel | None = None,
    randomized: bool | Callable[[Any], bool] = False,
) -> None:
    """Make a contextual policy known to the interpreter and to the compiler.

    Parameters
    ----------
    spec_type
        The `zib.Spec` or NamedTuple class of the parameters; it must live in an importable module.
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
    learn
        ``learn(spec, state, arm, z, w, reward, category)``: the same as `update` for policies that
        use the category a reward came with, 1, 2, … or 0 where nothing happened. Their specs say
        in `n_categories` how many there are.
    scores_again
        The same as `scores`, where that was the last to write into `work`, for the same state and
        actions: for policies that draw again and again from what has to be computed only once.
    randomized
        Whether `scores` draws random numbers, or a function of the spec that says so.
    """
    POLICIES.add(
        spec_type,
        ContextualPolicy(
            init,
            borrowing(scores),
            borrowing(scores_again or scores),
            borrowing(update),
            borrowing(learn or _ignore_category),
            borrowing(moments),
            randomized,
        ),
    )


def lookup_policy(spec: Any, name: str = "spec") -> ContextualPolicy:
    """Return what is registered for the type of `spec`, or raise a TypeError that says how."""
    found: ContextualPolicy = POLICIES.lookup(spec, name)
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


@borrowing
def choose(spec: Any, state: Any, arms: Any, z: Any, w: Any, rng: Any, work: Any, out: Any) -> int:
    """Return the column of the action with the largest score."""
    scores(spec, state, arms, z, w, rng, work, out)
    return argmax_random(out, rng)


@borrowing
def choose_again(
    spec: Any, state: Any, arms: Any, z: Any, w: Any, rng: Any, work: Any, out: Any
) -> int:
    """Return the column of the largest score, right after `choose` with the same state."""
    scores_again(spec, state, arms, z, w, rng, work, out)
    return argmax_random(out, rng)


def scratch(n_actions: int, n_magnitude: int, n_occurrence: int) -> Any:
    """Return scratch space for rounds of up to `n_actions` actions."""
    return np.zeros((WORK_ROWS + SUM_ROWS, max(n_actions, n_magnitude + n_occurrence)))


# ---------------------------------------------------------------------- parameters of several specs

MEMORY = 4096  # observations kept by default
SMALLEST_MEMORY = 256  # fewer would replace observations while the estimate is still poor

LINK: Any = converted(
    resolve_link, link_parameter, allowed="name of a link, or a registered link", default="logit"
)
MAGNITUDE: Any = converted(
    resolve_magnitude,
    magnitude_parameter,
    allowed="'ridge', 'huber', 'median_of_means' or a model",
    default="ridge",
)
KEPT: Any = whole(low=SMALLEST_MEMORY, default=MEMORY)


# ---------------------------------------------------------------------------------------- the clock


class Clock(Part):
    """How far a policy has come."""

    rounds: Floats = count()  # rewards learned from
    random_rounds: Floats = scalar(least=0.0)  # rounds played at random at the start
    arms: Floats = scalar(least=0.0)  # of `Disjoint`, which scores every action by itself; else 0


def new_clock(random_rounds: float = 0.0) -> Clock:
    """Return a clock at zero."""
    return Clock.new({}, random_rounds=np.array([random_rounds]))


RANDOM_ROUNDS_AT_LEAST = 50


def random_rounds(given: float, d: int, q: int) -> float:
    """Return how many rounds are played at random; NaN where the user leaves it to us."""
    return float(max(RANDOM_ROUNDS_AT_LEAST, 2 * d, 2 * q)) if math.isnan(given) else given


@borrowing
def n_actions(state: Any, out: Any) -> float:
    """Return the number of actions of the round, or of arms where each is scored by itself."""
    number: float = max(float(out.size), state.clock.arms[0])
    return number


@borrowing
def play_at_random(state: Any, out: Any) -> bool:
    """Write equal scores during the random rounds; ties are broken at random."""
    if state.clock.rounds[0] >= state.clock.random_rounds[0]:
        return False
    for k in range(out.size):
        out[k] = 0.0
    return True


# --------------------------------------------------------------------------- policies of two models


class Parts(NamedTuple):
    """Model of the occurrence, which learns from all rewards; of the magnitude; and the clock."""

    occurrence: Any
    magnitude: Any
    clock: Clock


def new_parts(spec: Any, d: int, q: int, *, clock: Clock, plain: bool, samples: bool) -> Parts:
    """Return both models before any reward; see `new_model` for `plain` and `samples`."""
    bound = math.inf if math.isnan(spec.bound) else spec.bound
    size = {"ridge": spec.ridge, "bound": bound, "memory": spec.memory}
    return Parts(
        new_model(q, **size, plain=plain, samples=samples),
        new_magnitude(spec.magnitude, d, **size, plain=plain, samples=samples),
        clock,
    )


@borrowing
def learn_parts(spec: Any, state: Any, weights: int, z: Any, w: Any, reward: float) -> None:
    """Learn a reward: whether it is zero, and its size if not; `weights` are those of `GLM`."""
    state.clock.rounds[0] += 1.0
    learn_model(GLM(spec.link, weights), state.occurrence, w, 1.0 if reward != 0.0 else 0.0)
    if reward != 0.0:
        learn_model(spec.magnitude, state.magnitude, z, reward)


@borrowing
def geometry(model: Any) -> Any:
    """Return the matrix the paper's radii are measured in: Σ x x', not weighted."""
    return model.design if model.design.matrix.size > 0 else model.curvature


@borrowing
def predictors(spec: Any, state: Any, z: Any, w: Any, n: int, work: Any, out: Any) -> None:
    """Write both linear predictors, and their variances in units of the noise, into `out`."""
    linear_forms(state.occurrence.coef, w, out[ETA][:n])
    quadratic_forms(state.occurrence.curvature.inverse, w, work, out[ETA_VARIANCE][:n])
    linear_forms(state.magnitude.coef, z, out[ZETA][:n])
    variances(spec.magnitude, state.magnitude, z, work, out[ZETA_VARIANCE][:n])


@borrowing
def two_part_moments(spec: Any, state: Any, arms: Any, z: Any, w: Any, work: Any, out: Any) -> None:
    """Write estimates and variances of both linear predictors, fitted by maximum likelihood."""
    predictors(spec, state, z, w, out.shape[1], work[0], out)
    sigma = noise(spec.magnitude, spec.sigma, state.magnitude)
    for k in range(out.shape[1]):
        out[ZETA_VARIANCE, k] *= sigma * sigma
        out[COVARIANCE, k] = 0.0


@borrowing
def score_moments(spec: Any, state: Any, arms: Any, z: Any, w: Any, work: Any, out: Any) -> None:
    """Write the same for an occurrence fitted by the estimating equation of the paper.

    Its curvature is Σ h'·x x' while its noise is Σ h(1 − h)·x x'; the ratio at the action itself
    stands for the average, and is 1 for the logit.
    """
    two_part_moments(spec, state, arms, z, w, work, out)
    for k in range(out.shape[1]):
        prob = min(value(spec.link, out[ETA, k]), 1.0)
        slope = max(derivative(spec.link, out[ETA, k]), 1e-12)
        out[ETA_VARIANCE, k] *= max(prob * (1.0 - prob), 1e-12) / slope
