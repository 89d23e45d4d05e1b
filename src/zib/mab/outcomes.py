"""Rewards through several outcomes: the joint likelihood-ratio index."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from zib.core import validate as check
from zib.core.kernel import borrowing, jitable, register
from zib.mab.families import Law
from zib.mab.outcomes_parts import (
    SCALES,
    TABLE,
    OutcomeSpec,
    check_outcomes,
    has_paid,
    is_plain,
    lacks_outcome,
    learn_outcome,
    new_outcome_state,
    pool_outcomes,
)
from zib.mab.outcomes_two import (
    level_at,
    two_indices,
    two_refresh,
    two_scores,
    two_update,
)
from zib.mab.unseen import resolve_unseen
from zib.mab.zi_kl import LAST, UNTIL, UPPER, has_expired, last_round
from zib.stats.arms import CLOCK, ArmState
from zib.theory.outcomes import outcome_upper


class _OutcomesKLUCBFields(NamedTuple):
    family: int
    sigma: float
    shape: float
    law: Law
    known: bool
    m: int
    cuts: tuple[float, ...]
    starts: tuple[float, ...]
    scales: tuple[float, ...]
    delta: float
    c: float
    unseen: float


class OutcomesKLUCB(OutcomeSpec, _OutcomesKLUCBFields):
    """The joint KL index for rewards through several outcomes: ignored, clicked, bought, returned.

    Parameters
    ----------
    edges
        Increasing cut points. A non-zero reward belongs to the bin (edge, next edge] it lies in;
        zero is an outcome of its own. ``edges=(0, 5)``: negative, zero, up to 5, more than 5.
        ``edges=()``: zero and not zero, which is `ZIKLUCB`.
    values
        Instead of `edges`: all rewards there are; 0 is always among them and need not be named.
        `zib.Bandit` refuses any other reward; a simulation takes the value nearest to it.
    sigma
        Standard deviation of the rewards within a bin: one number, one per bin from below, or None:
        estimated per bin from all arms together. Only with `edges`.
    delta, c
        The level, as in `ZIKLUCB`.
    unseen
        What an outcome pays that an arm never had: ``"pooled"`` takes the largest upper bound among
        arms that had it, at most the upper edge of the bin, and leaves out what no arm ever had; or
        a number. Listed `values` are known without having been seen.

    Notes
    -----
    The index is sup{Σ q'_j v'_j : n·KL(q̂, q') + Σ B_j (v̂_j − v'_j)²/(2σ_j²) ≤ level}
    (`zib.theory.outcome_kl_upper`). A policy that knows only zero and not zero takes all non-zero
    rewards for one law, whose spread is mostly the difference between outcomes.

    Examples
    --------
    >>> OutcomesKLUCB(values=(0.0, 1.0, 20.0, -15.0)).n_outcomes
    4
    >>> OutcomesKLUCB(edges=(0.0, 5.0), sigma=1.0).outcome_of(7.5)
    3
    """

    __slots__ = ()
    words: ClassVar[dict[str, str | None]] = {"unseen": "pooled", "delta": None}
    default_label = "outcomes KL-UCB"

    def __new__(
        cls,
        *,
        edges: Sequence[float] | None = None,
        values: Sequence[float] | None = None,
        sigma: float | Sequence[float] | None = None,
        delta: float | None = None,
        c: float = 0.0,
        unseen: str | float = "pooled",
    ) -> OutcomesKLUCB:
        return super().__new__(
            cls,
            *check_outcomes(edges, values, sigma),
            math.nan if delta is None else check.real("delta", delta, 0.0, 1.0, closed="neither"),
            check.real("c", c, low=0),
            resolve_unseen(unseen),
        )


def _init(spec: OutcomesKLUCB, n_arms: int) -> ArmState:
    state = new_outcome_state(spec, n_arms)
    state.cache[:, UPPER] = np.inf
    state.shared[LAST] = -1.0
    return state


@borrowing
def _upper(spec: Any, state: Any, arm: int, level: float, top: float) -> float:
    return outcome_upper(state.cache, arm, TABLE, spec.m, state.shared, SCALES, level, top)


@jitable
def _own_top(spec: Any, state: Any, arm: int) -> float:
    """Return what an outcome could pay that the arm never had, where a number was given."""
    if not math.isnan(spec.unseen) and lacks_outcome(spec, state, arm):
        return float(spec.unseen)
    return -np.inf


@jitable
def _keep(spec: Any, state: Any, arm: int) -> None:
    """Keep a bound of the index of `arm` that holds for some rounds."""
    borrows = not spec.known and math.isnan(spec.sigma)
    borrows = borrows or (math.isnan(spec.unseen) and lacks_outcome(spec, state, arm))
    if borrows or state.pulls[arm] == 0.0:
        state.cache[arm, UPPER] = np.inf  # it depends on other arms, whose data change
    else:
        until = last_round(spec, state, arm)
        level = level_at(spec, until)
        state.cache[arm, UNTIL] = until
        state.cache[arm, UPPER] = _upper(spec, state, arm, level, _own_top(spec, state, arm))


@jitable
def _keep_expired_and(spec: Any, state: Any, arm: int) -> None:
    """Keep a new bound for `arm`, and for those whose bound has expired."""
    for k in range(state.pulls.size):
        if k == arm or has_expired(state, k):
            _keep(spec, state, k)


def _refresh(spec: Any, state: Any, arm: int) -> None:
    if is_plain(spec):
        two_refresh(spec, state, arm)
    else:
        pool_outcomes(spec, state)
        _keep_expired_and(spec, state, arm)


def _update(spec: Any, state: Any, arm: int, reward: float) -> None:
    if is_plain(spec):
        two_update(spec, state, arm, reward)
    else:
        learn_outcome(spec, state, arm, reward)
        _keep_expired_and(spec, state, arm)


@jitable
def _borrow(spec: Any, state: Any, level: float, out: Any) -> None:
    """Write, per arm, the most that an outcome the arm never had could pay."""
    for k in range(out.size):
        out[k] = _own_top(spec, state, k)
    if spec.known or not math.isnan(spec.unseen):
        return
    m = spec.m
    for j in range(1, m):
        top = -np.inf
        missing = False
        for k in range(out.size):
            count = state.cache[k, TABLE + j]
            if count > 0.0:
                reach = state.shared[SCALES + j] * math.sqrt(2.0 * level / count)
                top = max(top, state.cache[k, TABLE + m + j] + reach)
            else:
                missing = True
        top = min(top, spec.cuts[j])
        if missing:
            for k in range(out.size):
                if state.cache[k, TABLE + j] == 0.0:
                    out[k] = max(out[k], top)


@jitable
def _start(spec: Any, state: Any, level: float, exact: bool, out: Any) -> None:
    """Write the bounds kept, or indices, and the indices of arms that have no such bound."""
    if not spec.known and math.isnan(spec.unseen) and not has_paid(state):
        for k in range(out.size):
            out[k] = np.inf
        return
    _borrow(spec, state, level, out)
    for k in range(out.size):
        if state.pulls[k] == 0.0:
            out[k] = np.inf
        elif state.cache[k, UPPER] < np.inf and not exact:
            out[k] = state.cache[k, UPPER]
        else:
            out[k] = _upper(spec, state, k, level, out[k])


def _scores(spec: Any, state: Any, rng: Any, out: Any) -> None:
    if is_plain(spec):
        two_scores(spec, state, rng, out)
        return
    level = level_at(spec, state.shared[CLOCK] + 1.0)
    _start(spec, state, level, False, out)
    first = 0
    for k in range(1, out.size):
        if out[k] > out[first]:
            first = k
    best = -np.inf
    for i in range(-1, out.size):
        # the arm with the largest bound, then one pass: `best` only grows, so what was below it
        # stays below
        k = first if i < 0 else i
        if (i < 0 or (k != first and out[k] >= best)) and state.cache[k, UPPER] < np.inf:
            out[k] = _upper(spec, state, k, level, _own_top(spec, state, k))
            best = max(best, out[k])
        elif i < 0:
            best = out[k]


def _indices(spec: Any, state: Any, rng: Any, out: Any) -> None:
    if is_plain(spec):
        two_indices(spec, state, rng, out)
    else:
        _start(spec, state, level_at(spec, state.shared[CLOCK] + 1.0), True, out)


register(
    OutcomesKLUCB,
    init=_init,
    scores=_scores,
    update=_update,
    refresh=_refresh,
    indices=_indices,
    additive=True,
)
