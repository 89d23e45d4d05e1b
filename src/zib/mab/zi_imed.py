"""Indexed minimum empirical divergence: play the arm that could most cheaply be the best."""

from __future__ import annotations

import math
from typing import Any, ClassVar, NamedTuple

import numpy as np

from zib.core.kernel import jitable, register
from zib.mab.families import (
    FAMILIES,
    FIRST_CACHE,
    LOGNORMAL,
    N_SHARED,
    FamilySpec,
    Law,
    check_family,
    cost_to_reach,
    has_own_scale,
    law_of,
    learn,
    magnitude,
    pool,
)
from zib.mab.unseen import resolve_unseen
from zib.stats.arms import CLOCK, ArmState, new_state

TARGET, COST = FIRST_CACHE, FIRST_CACHE + 1
# Kept costs are for a target this share of the gap below the best mean. A far one holds for long; a
# close one, over the number of pulls, is needed for an arm that is nearly due: its next pull raises
# its index by about one part in that number.
FAR, CLOSE = 0.002, 0.15


class _ZIIMEDFields(NamedTuple):
    family: int
    sigma: float
    shape: float
    law: Law
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
        code, scale, form = check_family(family, sigma, shape)
        return super().__new__(cls, code, scale, form, law_of(code, scale), resolve_unseen(unseen))


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
def _best_arm(spec: Any, state: Any) -> int:
    """Return the arm with the largest mean among those played, or -1."""
    best = -1
    largest = -np.inf
    for k in range(state.pulls.size):
        if state.pulls[k] > 0.0:
            mean = _mean(spec, state, k)
            if mean > largest:
                best = k
                largest = mean
    return best


@jitable
def _best_mean(spec: Any, state: Any) -> float:
    top = _best_arm(spec, state)
    return _mean(spec, state, top) if top >= 0 else -np.inf


@jitable
def _is_excluded(state: Any, arm: int, best: float, least: float) -> bool:
    """Whether the kept cost shows that the index of `arm` is above `least`."""
    if state.cache[arm, TARGET] > best:
        return False
    return bool(state.cache[arm, COST] + math.log(state.pulls[arm]) > least)


@jitable
def _keep(spec: Any, state: Any, arm: int, best: float, least: float) -> None:
    """Keep the cost of a target below the best mean, close to it if a far one says too little."""
    state.cache[arm, TARGET] = np.inf
    if state.nonzero[arm] == 0.0 or not has_own_scale(spec, state, arm):
        return  # it depends on other arms, whose data change
    gap = best - _mean(spec, state, arm)
    if gap > 0.0:
        for share in (FAR, min(FAR, CLOSE / state.pulls[arm])):
            target = best - share * gap
            state.cache[arm, TARGET] = target
            state.cache[arm, COST] = cost_to_reach(spec, state, arm, target)
            if _is_excluded(state, arm, best, least):
                break


def _refresh(spec: Any, state: Any, arm: int) -> None:
    pool(spec, state)
    top = _best_arm(spec, state)
    if top >= 0:
        _keep(spec, state, arm, _mean(spec, state, top), math.log(state.pulls[top]))


def _refresh_all(spec: Any, state: Any) -> None:
    pool(spec, state)
    top = _best_arm(spec, state)
    for k in range(state.pulls.size):
        if top >= 0:
            _keep(spec, state, k, _mean(spec, state, top), math.log(state.pulls[top]))


def _update(spec: Any, state: Any, arm: int, reward: float) -> None:
    learn(spec, state, arm, reward)
    top = _best_arm(spec, state)
    best = _mean(spec, state, top)
    least = math.log(state.pulls[top])
    _keep(spec, state, arm, best, least)
    # one other arm in turn, so that kept targets follow the best mean
    other = int(state.shared[CLOCK]) % state.pulls.size
    if not _is_excluded(state, other, best, least):
        _keep(spec, state, other, best, least)


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
