"""The two policies that take both parts of the reward together: the joint KL index, and IMED.

`ZIKLUCB` asks how large p·mu could be, `ZIIMED` how much likelihood it would cost to be the best.
Both questions take long to answer, and for most arms a bound that was kept is enough to see that
they cannot be the one to play.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from zib.core.kernel import jitable, register
from zib.core.registry import INLINED, Registry
from zib.core.spec import optional, real
from zib.core.state import MANY, Floats, Part, arm_number, clamped, clamped_arm, per_arm
from zib.mab.assumptions import complete_unseen, unseen_magnitude
from zib.mab.families import (
    LOGNORMAL,
    BoundedFamilySpec,
    PooledScale,
    cost_to_reach,
    has_own_scale,
    learn,
    learn_as_usual,
    magnitude,
    magnitude_upper,
    pool,
    product_upper,
)

# ------------------------------------------------------------------ the lazy search for the largest


class Lazy(NamedTuple):
    """What the search needs to know about a policy."""

    is_bound: Callable[..., bool]
    exact: Callable[..., float]


LAZY = Registry("lazy policy", "LAZY.add(...)")


@LAZY.kernel(INLINED)
def is_bound(spec: Any, state: Any, arm: int) -> bool:  # type: ignore[empty-body]
    """Whether what was written for `arm` is an upper bound of its index, not the index itself."""


@LAZY.kernel(INLINED)
def exact(spec: Any, state: Any, arm: int, at: float) -> float:  # type: ignore[empty-body]
    """Return the index of `arm`; `at` is the level, or the target, of this round."""


@jitable
def largest(out: Any) -> int:
    """Return the first position of the largest entry."""
    first = 0
    for k in range(1, out.size):
        if out[k] > out[first]:
            first = k
    return first


@jitable
def settle(spec: Any, state: Any, at: float, first: int, out: Any) -> None:
    """Replace bounds by indices until the largest entry of `out` is an index.

    Begins with the arm `first`, which has the largest bound. Then one pass is enough: the largest
    index found only grows, so what was below it stays below.
    """
    best = -np.inf
    for i in range(-1, out.size):
        k = first if i < 0 else i
        if i < 0 or (k != first and out[k] >= best):
            if is_bound(spec, state, k):
                out[k] = exact(spec, state, k, at)
                best = max(best, out[k])
            elif i < 0:
                best = out[k]


# ----------------------------------------------------------------------------------- joint KL index

# A kept bound is the index at a later round. It holds until the clock has grown by the share FAR,
# or, if that is sooner, until the level has grown by the share CLOSE/n. One more pull lowers the
# level per pull by 1/n, so the bound of an arm that is nearly due has to be closer than that.
FAR, CLOSE = 0.1, 0.3


class ZIKLUCB(BoundedFamilySpec):
    """The joint KL index; needs no horizon, and for sigma unknown nothing at all.

    Parameters
    ----------
    family
        What the non-zero rewards follow: ``"gaussian"``, ``"exponential"``, ``"gamma"`` (with a
        known `shape`) or ``"lognormal"``. All but the first ask for positive rewards.
    sigma
        Standard deviation (or sub-Gaussian size) of Gaussian non-zero rewards; None: unknown, each
        arm has its own.
    shape
        Shape of the gamma law.
    delta
        None: the level is log t + c·log log t at round t. A number in (0, 1): the level is
        log(1/delta) in all rounds, such as ``delta=1/T`` for a fixed horizon T.
    c
        The constant of the second term (≥ 0). The proof of optimality asks for more than 2; 0 plays
        better.
    unseen
        Magnitude of an arm that never paid: ``"pooled"`` takes the largest upper bound among arms
        that have paid; a number; or ``inf``, which plays the arm until it pays.

    Notes
    -----
    The index is sup{mu'p' : n·kl(p̂, p') + B·div(μ̂, mu') ≤ level} (`zib.theory.joint_kl_upper`):
    one budget for both parts, no union bound. The arm with the largest index is played.

    Most indices need not be computed. For given data an index grows with the level, so the index at
    a later round, computed once and kept, bounds it from above until then. If the arm with the
    largest bound reaches the bounds of all others within its budget, which is a question about its
    divergence, it is the one to play; if not, its index is computed, then those of arms whose bound
    is not below the largest index found. The arm played is the exact maximiser. An arm that is
    played again and again gets a bound only when another arm takes its place.

    ``ZIKLUCB(sigma=σ, c=3, unseen=inf)`` is proven to be asymptotically optimal for Gaussian
    non-zero rewards on every bandit with probabilities in (0, 1). With ``unseen="pooled"`` and
    c > 2 the proof asks for more, for instance that the best arm also pays most often. The level
    log t (c = 0) is not covered. See the page "Why the joint index reaches the limit".

    Examples
    --------
    >>> ZIKLUCB(sigma=1.0).label
    'ZI-KL-UCB'
    >>> ZIKLUCB(sigma=1.0, c=3.0, unseen=float("inf")).unseen
    inf
    """

    delta: float | None = optional(real(low=0.0, high=1.0, closed="neither"), default=None)
    c: float = real(low=0, default=0.0)
    unseen: str | float = unseen_magnitude()
    label = "ZI-KL-UCB"
    looks = {
        "ZI-KL-UCB": "#44AA99 h dashdot heavy",
        "ZI-KL-UCB proven": "#44AA99 H dotted heavy",
    }


class KeptUpper(Part):
    """Bounds of the indices that hold for some rounds."""

    upper: Floats = per_arm(start=math.inf, finite=False)  # inf: none is kept
    until: Floats = per_arm()  # the last round in which it holds


class _KLPart(PooledScale, KeptUpper):
    last: Floats = arm_number()  # the arm learned from last


@jitable
def level_at(spec: Any, clock: float) -> float:
    """Return the budget of likelihood at a round."""
    if not math.isnan(spec.delta):
        return -math.log(spec.delta)
    log_t = math.log(max(clock, 1.0))
    return float(log_t + spec.c * math.log(max(log_t, 1.0)))


@jitable
def last_round(spec: Any, state: Any, arm: int) -> float:
    """Return until when a bound of the index of `arm` should hold."""
    now = state.clock[0] + 1.0
    share = min(FAR, CLOSE * level_at(spec, now) / state.pulls[arm])
    return float(now + math.floor(now * share) + 1.0)


@jitable
def has_expired(state: Any, arm: int) -> bool:
    """Whether there is a bound of the index of `arm` that does not hold in the next round."""
    expired = state.own.until[arm] < state.clock[0] + 1.0
    return bool(expired and state.own.upper[arm] < np.inf)


@jitable
def _keep_upper(spec: Any, state: Any, arm: int) -> None:
    """Keep a bound of the index of `arm` that holds for some rounds."""
    state.own.upper[arm] = np.inf
    if state.nonzero[arm] == 0.0 or not has_own_scale(spec, state, arm):
        return  # it depends on other arms, whose data change
    until = last_round(spec, state, arm)
    state.own.until[arm] = until
    state.own.upper[arm] = product_upper(spec, state, arm, level_at(spec, until))


@jitable
def _keep_expired(spec: Any, state: Any) -> None:
    for k in range(state.pulls.size):
        if has_expired(state, k):
            _keep_upper(spec, state, k)


def _refresh(spec: Any, state: Any, arm: int) -> None:
    pool(spec, state)
    _keep_upper(spec, state, arm)
    _keep_expired(spec, state)


def _refresh_all(spec: Any, state: Any) -> None:
    pool(spec, state)
    for k in range(state.pulls.size):
        _keep_upper(spec, state, k)


def _update(spec: Any, state: Any, arm: int, reward: float) -> None:
    learn(spec, state, arm, reward)
    _follow(spec, state, arm)


def _imagine(spec: Any, state: Any, arm: int) -> None:
    learn_as_usual(spec, state, arm)
    _follow(spec, state, arm)


@jitable
def _follow(spec: Any, state: Any, arm: int) -> None:
    """Keep bounds that follow what was just learned of an arm."""
    last = clamped_arm(state.own.last[0], state.pulls.size)
    state.own.last[0] = arm
    if arm == last:
        state.own.upper[arm] = np.inf
    else:
        _keep_upper(spec, state, arm)
        if last >= 0 and state.own.upper[last] == np.inf:
            _keep_upper(spec, state, last)
    _keep_expired(spec, state)


@jitable
def _start(spec: Any, state: Any, level: float, out: Any) -> None:
    """Write the bounds kept, and the indices of arms that never paid."""
    waiting = False
    for k in range(out.size):
        if state.nonzero[k] > 0.0:
            out[k] = state.own.upper[k]
        elif state.pulls[k] > 0.0:
            out[k] = -math.expm1(-level / state.pulls[k])
            waiting = True
        else:
            out[k] = np.inf
    if waiting:
        top = -np.inf
        for k in range(out.size):
            if state.nonzero[k] > 0.0:
                top = max(top, magnitude_upper(spec, state, k, level))
        complete_unseen(state, spec.unseen, top, out)


def _scores(spec: Any, state: Any, rng: Any, out: Any) -> None:
    level = level_at(spec, state.clock[0] + 1.0)
    _start(spec, state, level, out)
    first = largest(out)
    if state.nonzero[first] > 0.0:
        second = -np.inf
        for k in range(out.size):
            if k != first:
                second = max(second, out[k])
        if second < np.inf and cost_to_reach(spec.law, state, first, second) < level:
            return  # its index is above all bounds of the others
    settle(spec, state, level, first, out)


@jitable
def _has_paid(spec: Any, state: Any, arm: int) -> bool:
    return bool(state.nonzero[arm] > 0.0)


def _indices(spec: Any, state: Any, rng: Any, out: Any) -> None:
    level = level_at(spec, state.clock[0] + 1.0)
    _start(spec, state, level, out)
    for k in range(out.size):
        if state.nonzero[k] > 0.0:
            out[k] = product_upper(spec, state, k, level)


register(
    ZIKLUCB,
    own=_KLPart,
    scores=_scores,
    update=_update,
    refresh=_refresh,
    refresh_all=_refresh_all,
    indices=_indices,
    additive=True,
    imagine=_imagine,
)
LAZY.add(ZIKLUCB, Lazy(is_bound=_has_paid, exact=product_upper))


# ------------------------------------------------------------------- indexed minimum divergence

# Kept costs are for a target below the best mean by this share of the gap to it: FAR_BELOW, which
# holds for long, or CLOSE_BELOW/n if that excludes too little. One more pull raises the index by
# about 1/n of itself, so the target of an arm that is nearly due has to be closer than that.
FAR_BELOW, CLOSE_BELOW = 0.002, 0.15


class ZIIMED(BoundedFamilySpec):
    """Minimum empirical divergence for zero-inflated rewards: no confidence level, no horizon.

    Parameters
    ----------
    family, sigma, shape
        As in `ZIKLUCB`.
    unseen
        Magnitude of an arm that never paid: ``"pooled"`` takes the largest estimate among arms that
        have paid; a number; or ``inf``, with which the arm costs nothing and is played about as
        often as the best one until it pays.

    Notes
    -----
    Plays the arm with the smallest n·d_inf(p̂, μ̂; r̂*) + log n, where r̂* is the largest mean so
    far and d_inf the least divergence of a law whose mean reaches it (`zib.theory.divergence_to`).
    The best arm has the index log n. As in `ZIKLUCB` most indices need not be computed: d_inf
    grows with the target, so a cost kept for a smaller target bounds it from below.

    Scores are the negatives of the indices.
    """

    unseen: str | float = unseen_magnitude()
    label = "ZI-IMED"
    looks = {"ZI-IMED": "#AA4499 ^ dashdot heavy"}


class _IMEDPart(PooledScale):
    target: Floats = per_arm(start=math.inf, finite=False)  # inf: none is kept
    cost: Floats = per_arm(finite=False)  # of reaching the target


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
    highest = -np.inf
    for k in range(state.pulls.size):
        if state.pulls[k] > 0.0:
            mean = _mean(spec, state, k)
            if mean > highest:
                best = k
                highest = mean
    return best


@jitable
def _best_mean(spec: Any, state: Any) -> float:
    top = _best_arm(spec, state)
    return _mean(spec, state, top) if top >= 0 else -np.inf


@jitable
def _is_excluded(state: Any, arm: int, best: float, least: float) -> bool:
    """Whether the kept cost shows that the index of `arm` is above `least`."""
    if state.own.target[arm] > best:
        return False
    return bool(state.own.cost[arm] + math.log(state.pulls[arm]) > least)


@jitable
def _keep_cost(spec: Any, state: Any, arm: int, best: float, least: float) -> None:
    """Keep the cost of a target below the best mean, close to it if a far one says too little."""
    state.own.target[arm] = np.inf
    if state.nonzero[arm] == 0.0 or not has_own_scale(spec, state, arm):
        return  # it depends on other arms, whose data change
    gap = best - _mean(spec, state, arm)
    if gap > 0.0:
        for share in (FAR_BELOW, min(FAR_BELOW, CLOSE_BELOW / state.pulls[arm])):
            target = best - share * gap
            state.own.target[arm] = target
            state.own.cost[arm] = cost_to_reach(spec.law, state, arm, target)
            if _is_excluded(state, arm, best, least):
                break


def _imed_refresh(spec: Any, state: Any, arm: int) -> None:
    pool(spec, state)
    top = _best_arm(spec, state)
    if top >= 0:
        _keep_cost(spec, state, arm, _mean(spec, state, top), math.log(state.pulls[top]))


def _imed_refresh_all(spec: Any, state: Any) -> None:
    pool(spec, state)
    top = _best_arm(spec, state)
    for k in range(state.pulls.size):
        if top >= 0:
            _keep_cost(spec, state, k, _mean(spec, state, top), math.log(state.pulls[top]))


def _imed_update(spec: Any, state: Any, arm: int, reward: float) -> None:
    learn(spec, state, arm, reward)
    _imed_follow(spec, state, arm)


def _imed_imagine(spec: Any, state: Any, arm: int) -> None:
    learn_as_usual(spec, state, arm)
    _imed_follow(spec, state, arm)


@jitable
def _imed_follow(spec: Any, state: Any, arm: int) -> None:
    """Keep costs that follow what was just learned of an arm."""
    top = _best_arm(spec, state)
    best = _mean(spec, state, top)
    least = math.log(state.pulls[top])
    _keep_cost(spec, state, arm, best, least)
    # one other arm in turn, so that kept targets follow the best mean
    other = clamped(state.clock[0], MANY) % state.pulls.size
    if not _is_excluded(state, other, best, least):
        _keep_cost(spec, state, other, best, least)


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
        cost = cost_to_reach(spec.law, state, arm, best)
    return -(cost + math.log(state.pulls[arm]))


@jitable
def _was_played(spec: Any, state: Any, arm: int) -> bool:
    return bool(state.pulls[arm] > 0.0)


def _imed_scores(spec: Any, state: Any, rng: Any, out: Any) -> None:
    best = _best_mean(spec, state)
    for k in range(out.size):
        if state.pulls[k] == 0.0:
            out[k] = np.inf
        elif state.own.target[k] <= best:
            out[k] = -(state.own.cost[k] + math.log(state.pulls[k]))
        else:
            out[k] = -math.log(state.pulls[k])
    settle(spec, state, best, largest(out), out)


def _imed_indices(spec: Any, state: Any, rng: Any, out: Any) -> None:
    best = _best_mean(spec, state)
    for k in range(out.size):
        out[k] = np.inf if state.pulls[k] == 0.0 else _score(spec, state, k, best)


register(
    ZIIMED,
    own=_IMEDPart,
    scores=_imed_scores,
    update=_imed_update,
    refresh=_imed_refresh,
    refresh_all=_imed_refresh_all,
    indices=_imed_indices,
    additive=True,
    imagine=_imed_imagine,
)
LAZY.add(ZIIMED, Lazy(is_bound=_was_played, exact=_score))
