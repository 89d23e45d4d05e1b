"""Rewards through several outcomes: Thompson sampling from the posterior of all of them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from zib.core.kernel import jitable, register
from zib.core.spec import number_or, positive
from zib.core.state import ArmState
from zib.mab.outcomes import (
    OutcomePart,
    OutcomeSpec,
    has_paid,
    learn_category,
    learn_outcome,
    new_outcomes,
    pool_outcomes,
)
from zib.mab.posterior import BORROWED
from zib.mab.sampling import AT_ONCE, is_stranger, strange_magnitude, typical_magnitude


class OutcomesPosterior(OutcomeSpec):
    """Thompson sampling from the exact posterior of the outcomes and of what they pay.

    Parameters
    ----------
    categories, edges, values, sigma
        As in `OutcomesKLUCB`.
    alpha, beta
        Prior of the outcomes, a Dirichlet law: `beta` for zero, and `alpha` in equal parts for the
        others. The probability of paying then has the prior Beta(alpha, beta), as in `ZIPosterior`.
    unseen
        What an outcome pays that an arm never had: ``"pooled"`` takes the largest value sampled
        this round among arms that had it, at most the upper edge of the bin, and leaves out what no
        arm ever had; or a number.

    Notes
    -----
    q̃ ~ Dirichlet(prior + counts), ṽ_j ~ N(v̂_j, σ_j²/B_j), or Student's t where sigma is unknown;
    the arm with the largest Σ q̃_j ṽ_j is played. The Dirichlet law is drawn as a chain of Betas.

    Examples
    --------
    >>> OutcomesPosterior(values=(1.0, 20.0, -15.0)).reward_range
    (-15.0, 20.0)
    """

    alpha: float = positive(default=1.0)
    beta: float = positive(default=1.0)
    unseen: str | float = number_or("pooled", default="pooled")
    label = "outcomes posterior"


def _posterior_init(spec: OutcomesPosterior, n_arms: int) -> ArmState:
    return new_outcomes(spec, n_arms, OutcomePart)


def _posterior_refresh(spec: Any, state: Any, arm: int) -> None:
    pool_outcomes(spec, state)


def _posterior_update(spec: Any, state: Any, arm: int, reward: float) -> None:
    learn_outcome(spec, state, arm, reward)


def _posterior_learn(spec: Any, state: Any, arm: int, reward: float, category: int) -> None:
    learn_category(spec, state, arm, reward, category)


@jitable
def _value(spec: Any, state: Any, arm: int, j: int, rng: Any) -> float:
    """Draw what an outcome pays that the arm has had."""
    own = state.own
    count = own.counts[arm, j]
    mean = own.means[arm, j]
    scale = own.scales[j]
    if math.isnan(spec.outcomes.scales[j]):
        if is_stranger(state, count, AT_ONCE, rng):
            value = strange_magnitude(mean, typical_magnitude(state), rng)
            return float(min(value, spec.outcomes.cuts[j]))
        freedom = count - 1.0 + BORROWED
        spread = own.spreads[arm, j] + BORROWED * scale * scale
        return float(mean + math.sqrt(spread / (freedom * count)) * rng.standard_t(freedom))
    return float(mean + scale / math.sqrt(count) * rng.standard_normal())


@jitable
def _is_possible(spec: Any, state: Any, j: int, paid: bool) -> bool:
    """Whether outcome j takes part: known, assumed, or seen (any, while no arm has paid)."""
    if spec.outcomes.known or not paid or not math.isnan(spec.unseen):
        return True
    return bool(state.own.seen[j] > 0.0)


@jitable
def _fold(
    spec: Any, state: Any, arm: int, j: int, paid: bool, value: float, rng: Any, was: float
) -> float:
    """Mix `value` of outcome j into the mean `was` of zero and of the outcomes after j.

    Given that it is none of the outcomes before j, a reward is outcome j with a probability that
    has a Beta law; its weights are those of j and of all that follow.
    """
    counts = state.own.counts
    each = spec.alpha / (spec.outcomes.m - 1)
    rest = spec.beta
    for i in range(spec.outcomes.m):
        if spec.outcomes.starts[i] == 0.0:
            rest += counts[arm, i]
        elif i > j and _is_possible(spec, state, i, paid):
            rest += each + counts[arm, i]
    share = rng.beta(each + counts[arm, j], rest)
    return float(share * value + (1.0 - share) * was)


def _posterior_scores(spec: Any, state: Any, rng: Any, out: Any) -> None:
    outcomes = spec.outcomes
    paid = has_paid(state)
    for k in range(out.size):
        out[k] = 0.0
    for j in range(outcomes.m - 1, -1, -1):
        if outcomes.starts[j] == 0.0 or not _is_possible(spec, state, j, paid):
            continue
        top = -np.inf
        for k in range(out.size):
            if state.own.counts[k, j] > 0.0 or (outcomes.known and state.pulls[k] > 0.0):
                value = outcomes.starts[j]
                if not outcomes.known:
                    value = _value(spec, state, k, j, rng)
                    top = max(top, value)
                out[k] = _fold(spec, state, k, j, paid, value, rng, out[k])
        if outcomes.known:
            continue
        if not math.isnan(spec.unseen):
            top = spec.unseen
        elif top == -np.inf:
            top = 1.0  # nobody has paid: compare the probabilities alone
        else:
            top = min(top, outcomes.cuts[j])
        for k in range(out.size):
            if state.own.counts[k, j] == 0.0 and state.pulls[k] > 0.0:
                out[k] = _fold(spec, state, k, j, paid, top, rng, out[k])
    for k in range(out.size):
        if state.pulls[k] == 0.0:
            out[k] = np.inf


register(
    OutcomesPosterior,
    own=OutcomePart,
    init=_posterior_init,
    scores=_posterior_scores,
    update=_posterior_update,
    learn=_posterior_learn,
    refresh=_posterior_refresh,
    refresh_all=pool_outcomes,
    randomized=True,
)
