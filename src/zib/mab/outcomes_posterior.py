"""Rewards through several outcomes: exact posterior sampling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from zib.core import validate as check
from zib.core.kernel import jitable, register
from zib.mab.families import Law
from zib.mab.outcomes_parts import (
    SCALES,
    TABLE,
    OutcomeSpec,
    check_outcomes,
    has_paid,
    is_plain,
    learn_outcome,
    new_outcome_state,
    pool_outcomes,
)
from zib.mab.outcomes_two import (
    two_draws,
)
from zib.mab.posterior import BORROWED
from zib.mab.unseen import resolve_unseen


class _OutcomesPosteriorFields(NamedTuple):
    family: int
    sigma: float
    shape: float
    law: Law
    known: bool
    m: int
    cuts: tuple[float, ...]
    starts: tuple[float, ...]
    scales: tuple[float, ...]
    alpha: float
    beta: float
    unseen: float


class OutcomesPosterior(OutcomeSpec, _OutcomesPosteriorFields):
    """Thompson sampling from the exact posterior of the outcomes and of what they pay.

    Parameters
    ----------
    edges, values, sigma
        As in `OutcomesKLUCB`; ``edges=()`` is `ZIPosterior`.
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

    __slots__ = ()
    words: ClassVar[dict[str, str | None]] = {"unseen": "pooled"}
    default_label = "outcomes posterior"

    def __new__(
        cls,
        *,
        edges: Sequence[float] | None = None,
        values: Sequence[float] | None = None,
        sigma: float | Sequence[float] | None = None,
        alpha: float = 1.0,
        beta: float = 1.0,
        unseen: str | float = "pooled",
    ) -> OutcomesPosterior:
        return super().__new__(
            cls,
            *check_outcomes(edges, values, sigma),
            check.real("alpha", alpha, low=0, closed="neither"),
            check.real("beta", beta, low=0, closed="neither"),
            resolve_unseen(unseen),
        )


def _posterior_refresh(spec: Any, state: Any, arm: int) -> None:
    pool_outcomes(spec, state)


def _posterior_update(spec: Any, state: Any, arm: int, reward: float) -> None:
    learn_outcome(spec, state, arm, reward)


@jitable
def _value(spec: Any, state: Any, arm: int, j: int, rng: Any) -> float:
    """Draw what an outcome pays that the arm has had."""
    m = spec.m
    count = state.cache[arm, TABLE + j]
    mean = state.cache[arm, TABLE + m + j]
    scale = state.shared[SCALES + j]
    if math.isnan(spec.scales[j]):
        freedom = count - 1.0 + BORROWED
        spread = state.cache[arm, TABLE + 2 * m + j] + BORROWED * scale * scale
        return float(mean + math.sqrt(spread / (freedom * count)) * rng.standard_t(freedom))
    return float(mean + scale / math.sqrt(count) * rng.standard_normal())


@jitable
def _is_possible(spec: Any, state: Any, j: int, paid: bool) -> bool:
    """Whether outcome j takes part: known, assumed, or seen (any, while no arm has paid)."""
    if spec.known or not paid or not math.isnan(spec.unseen):
        return True
    return bool(state.shared[SCALES + 3 * spec.m + j] > 0.0)


@jitable
def _fold(
    spec: Any, state: Any, arm: int, j: int, paid: bool, value: float, rng: Any, was: float
) -> float:
    """Mix `value` of outcome j into the mean `was` of zero and of the outcomes after j.

    Given that it is none of the outcomes before j, a reward is outcome j with a probability that
    has a Beta law; its weights are those of j and of all that follow.
    """
    m = spec.m
    each = spec.alpha / (m - 1)
    rest = spec.beta
    for i in range(m):
        if spec.starts[i] == 0.0:
            rest += state.cache[arm, TABLE + i]
        elif i > j and _is_possible(spec, state, i, paid):
            rest += each + state.cache[arm, TABLE + i]
    share = rng.beta(each + state.cache[arm, TABLE + j], rest)
    return float(share * value + (1.0 - share) * was)


def _posterior_scores(spec: Any, state: Any, rng: Any, out: Any) -> None:
    if is_plain(spec):
        two_draws(spec, state, rng, out)
        return
    m = spec.m
    paid = has_paid(state)
    for k in range(out.size):
        out[k] = 0.0
    for j in range(m - 1, -1, -1):
        if spec.starts[j] == 0.0 or not _is_possible(spec, state, j, paid):
            continue
        top = -np.inf
        for k in range(out.size):
            if state.cache[k, TABLE + j] > 0.0 or (spec.known and state.pulls[k] > 0.0):
                value = spec.starts[j]
                if not spec.known:
                    value = _value(spec, state, k, j, rng)
                    top = max(top, value)
                out[k] = _fold(spec, state, k, j, paid, value, rng, out[k])
        if spec.known:
            continue
        if not math.isnan(spec.unseen):
            top = spec.unseen
        elif top == -np.inf:
            top = 1.0  # nobody has paid: compare the probabilities alone
        else:
            top = min(top, spec.cuts[j])
        for k in range(out.size):
            if state.cache[k, TABLE + j] == 0.0 and state.pulls[k] > 0.0:
                out[k] = _fold(spec, state, k, j, paid, top, rng, out[k])
    for k in range(out.size):
        if state.pulls[k] == 0.0:
            out[k] = np.inf


register(
    OutcomesPosterior,
    init=new_outcome_state,
    scores=_posterior_scores,
    update=_posterior_update,
    refresh=_posterior_refresh,
    additive=True,
    randomized=True,
)
