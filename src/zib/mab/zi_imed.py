"""Indexed minimum empirical divergence: play the arm that could most cheaply be the best."""

from __future__ import annotations

import math
from typing import Any, ClassVar, NamedTuple

import numpy as np

from zib._kernel import jitable, register
from zib.mab.families import (
    FAMILIES,
    FIRST_CACHE,
    LOGNORMAL,
    N_SHARED,
    FamilySpec,
    check_family,
    cost_to_reach,
    has_own_scale,
    learn,
    magnitude,
    pool,
)
from zib.mab.unseen import resolve_unseen
from zib.stats.arms import CLOCK, ArmState, new_state

TARGET, COST = FIRST_CACHE, FIRST_CACHE + 1
NEARLY = 0.998  # kept costs are for a target this far from the arm's own mean to the best one


class _ZIIMEDFields(NamedTuple):
    family: int
    sigma: float
    shape: float
    unseen: float


class ZIIMED(FamilySpec, _ZIIMEDFields):
    """Minimum empirical divergence for zero-inflated rewards: no confidence level, no horizon.

    Parameters
    ----------
    family, sigma, shape
        As in `ZIKLUCB`.
    unseen
        Magnitude of an arm that never paid: ``"pooled"`` takes the largest estimate among arms that
        have paid; or a number.

    Notes
    -----
    Plays the arm with the smallest n·d_inf(p̂, μ̂; r̂*) + log n, where r̂* is the largest mean so
    far and d_inf the least divergence of a law whose mean reaches it (`zib.theory.divergence_to`).
    The best arm has the index log n. As in `ZIKLUCB` most indices need not be computed: d_inf
    grows with the target, so a cost kept for a smaller target bounds it from below.

    Scores are the negatives of the indices.
    """

    __slots__ = ()
    choices: ClassVar[dict[str, tuple[str, ...]]] = {"family": FAMILIES}
    words: ClassVar[dict[str, str | None]] = {"unseen": "pooled", "sigma": None}
    default_label = "ZI-IMED"

    def __new__(
        cls,
        *,
        family: str = "gaussian",
        sigma: float | None = None,
        shape: float | None = None,
        unseen: str | float = "pooled",
    ) -> ZIIMED:
        return super().__new__(cls, *check_family(family, sigma, shape), resolve_unseen(unseen))


def _init(spec: ZIIMED, n_arms: int) -> ArmState:
    state = new_state(n_arms, n_cache=FIRST_CACHE + 2, n_shared=N_SHARED)
    state.cache[:, TARGET] = np.inf
    return state


@jitable
def _mean(spec: Any, state: Any, arm: int) -> float:
    """Return the estimate of p·mu; 0 for an arm that never paid."""
    if state.nonzero[arm] == 0.0:
        return 0.0
    if spec.family == LOGNORMAL:
        return float(magnitude(spec, state, arm) * state.nonzero[arm] / state.pulls[arm])
    return float(state.total[arm] / state.pulls[arm])


@jitable
def _best_mean(spec: Any, state: Any) -> float:
    best = -np.inf
    for k in range(state.pulls.size):
        if state.pulls[k] > 0.0:
            best = max(best, _mean(spec, state, k))
    return best


@jitable
def _keep(spec: Any, state: Any, arm: int, best: float) -> None:
    """Keep the cost of a target just below the best mean."""
    if state.nonzero[arm] > 0.0 and has_own_scale(spec, state, arm):
        mean = _mean(spec, state, arm)
        target = mean + NEARLY * (best - mean)
        state.cache[arm, TARGET] = target
        state.cache[arm, COST] = cost_to_reach(spec, state, arm, target)
    else:
        state.cache[arm, TARGET] = np.inf  # it depends on other arms, whose data change


def _refresh(spec: Any, state: Any, arm: int) -> None:
    pool(spec, state)
    _keep(spec, state, arm, _best_mean(spec, state))


def _refresh_all(spec: Any, state: Any) -> None:
    pool(spec, state)
    best = _best_mean(spec, state)
    for k in range(state.pulls.size):
        _keep(spec, state, k, best)


def _update(spec: Any, state: Any, arm: int, reward: float) -> None:
    learn(spec, state, arm, reward)
    best = _best_mean(spec, state)
    _keep(spec, state, arm, best)
    # one other arm in turn, so that kept targets follow the best mean
    _keep(spec, state, int(state.shared[CLOCK]) % state.pulls.size, best)


@jitable
def _unseen_cost(spec: Any, state: Any, arm: int, best: float) -> float:
    """Return the cost at which an arm that never paid could be the best."""
    if best <= 0.0:
        return 0.0
    top = spec.unseen
    if math.isnan(top):
        top = -np.inf
        for k in range(state.pulls.size):
            if state.nonzero[k] > 0.0:
                top = max(top, magnitude(spec, state, k))
    if top <= best:
        return np.inf
    return float(-state.pulls[arm] * math.log1p(-best / top))


@jitable
def _score(spec: Any, state: Any, arm: int, best: float) -> float:
    cost = 0.0
    if state.nonzero[arm] == 0.0:
        cost = _unseen_cost(spec, state, arm, best)
    elif _mean(spec, state, arm) < best:
        cost = cost_to_reach(spec, state, arm, best)
    return -(cost + math.log(state.pulls[arm]))


def _scores(spec: Any, state: Any, rng: Any, out: Any) -> None:
    best = _best_mean(spec, state)
    first = 0
    for k in range(out.size):
        if state.pulls[k] == 0.0:
            out[k] = np.inf
        elif state.cache[k, TARGET] <= best:
            out[k] = -(state.cache[k, COST] + math.log(state.pulls[k]))
        else:
            out[k] = -math.log(state.pulls[k])
        if out[k] > out[first]:
            first = k
    if state.pulls[first] > 0.0:
        out[first] = _score(spec, state, first, best)
    top = out[first]
    for k in range(out.size):
        # one pass is enough: `top` only grows, so what was below it stays below
        if k != first and out[k] >= top and state.pulls[k] > 0.0:
            out[k] = _score(spec, state, k, best)
            top = max(top, out[k])


def _indices(spec: Any, state: Any, rng: Any, out: Any) -> None:
    best = _best_mean(spec, state)
    for k in range(out.size):
        out[k] = np.inf if state.pulls[k] == 0.0 else _score(spec, state, k, best)


register(
    ZIIMED,
    init=_init,
    scores=_scores,
    update=_update,
    refresh=_refresh,
    refresh_all=_refresh_all,
    indices=_indices,
    additive=True,
)
