"""The joint likelihood-ratio index: how much could p·mu be, both parts taken together?"""

from __future__ import annotations

import math
from typing import Any, ClassVar, NamedTuple

import numpy as np

from zib.core import validate as check
from zib.core.kernel import jitable, register
from zib.mab.families import (
    FAMILIES,
    FIRST_CACHE,
    N_SHARED,
    FamilySpec,
    Law,
    check_family,
    cost_to_reach,
    has_own_scale,
    law_of,
    learn,
    magnitude_upper,
    pool,
    product_upper,
)
from zib.mab.unseen import complete_unseen, resolve_unseen
from zib.stats.arms import CLOCK, FIRST_FREE, ArmState, new_state

UPPER, UNTIL = FIRST_CACHE, FIRST_CACHE + 1
LAST = FIRST_FREE + N_SHARED
# A kept bound is the index at a later round. It holds until the clock has grown by the first share,
# or until the level has grown by the second over the number of pulls if that is sooner: arms that
# are nearly due differ by what one pull changes.
FAR, CLOSE = 0.1, 0.3


class _ZIKLUCBFields(NamedTuple):
    family: int
    sigma: float
    shape: float
    law: Law
    delta: float
    c: float
    unseen: float


class ZIKLUCB(FamilySpec, _ZIKLUCBFields):
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
        The constant of the second term (≥ 0). Proofs of optimality ask for 3; 0 plays better.
    unseen
        Magnitude of an arm that never paid: ``"pooled"`` takes the largest upper bound among arms
        that have paid; or a number.

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

    Examples
    --------
    >>> ZIKLUCB(sigma=1.0).label
    'ZI-KL-UCB'
    """

    __slots__ = ()
    choices: ClassVar[dict[str, tuple[str, ...]]] = {"family": FAMILIES}
    words: ClassVar[dict[str, str | None]] = {"unseen": "pooled", "sigma": None, "delta": None}
    default_label = "ZI-KL-UCB"

    def __new__(
        cls,
        *,
        family: str = "gaussian",
        sigma: float | None = None,
        shape: float | None = None,
        delta: float | None = None,
        c: float = 0.0,
        unseen: str | float = "pooled",
    ) -> ZIKLUCB:
        code, scale, form = check_family(family, sigma, shape)
        return super().__new__(
            cls,
            code,
            scale,
            form,
            law_of(code, scale),
            math.nan if delta is None else check.real("delta", delta, 0.0, 1.0, closed="neither"),
            check.real("c", c, low=0),
            resolve_unseen(unseen),
        )


def _init(spec: ZIKLUCB, n_arms: int) -> ArmState:
    state = new_state(n_arms, n_cache=FIRST_CACHE + 2, n_shared=N_SHARED + 1)
    state.cache[:, UPPER] = np.inf
    state.shared[LAST] = -1.0
    return state


@jitable
def _level(spec: Any, clock: float) -> float:
    if not math.isnan(spec.delta):
        return -math.log(spec.delta)
    log_t = math.log(max(clock, 1.0))
    return float(log_t + spec.c * math.log(max(log_t, 1.0)))


@jitable
def last_round(spec: Any, state: Any, arm: int) -> float:
    """Return until when a bound of the index of `arm` should hold."""
    now = state.shared[CLOCK] + 1.0
    share = min(FAR, CLOSE * _level(spec, now) / state.pulls[arm])
    return float(now + math.floor(now * share) + 1.0)


@jitable
def has_expired(state: Any, arm: int) -> bool:
    """Whether there is a bound of the index of `arm` that does not hold in the next round."""
    expired = state.cache[arm, UNTIL] < state.shared[CLOCK] + 1.0
    return bool(expired and state.cache[arm, UPPER] < np.inf)


@jitable
def _keep(spec: Any, state: Any, arm: int) -> None:
    """Keep a bound of the index of `arm` that holds for some rounds."""
    state.cache[arm, UPPER] = np.inf
    if state.nonzero[arm] == 0.0 or not has_own_scale(spec, state, arm):
        return  # it depends on other arms, whose data change
    until = last_round(spec, state, arm)
    state.cache[arm, UNTIL] = until
    state.cache[arm, UPPER] = product_upper(spec, state, arm, _level(spec, until))


@jitable
def _keep_expired(spec: Any, state: Any) -> None:
    for k in range(state.pulls.size):
        if has_expired(state, k):
            _keep(spec, state, k)


def _refresh(spec: Any, state: Any, arm: int) -> None:
    pool(spec, state)
    _keep(spec, state, arm)
    _keep_expired(spec, state)


def _refresh_all(spec: Any, state: Any) -> None:
    pool(spec, state)
    for k in range(state.pulls.size):
        _keep(spec, state, k)


def _update(spec: Any, state: Any, arm: int, reward: float) -> None:
    learn(spec, state, arm, reward)
    last = int(state.shared[LAST])
    state.shared[LAST] = arm
    if arm == last:
        state.cache[arm, UPPER] = np.inf
    else:
        _keep(spec, state, arm)
        if last >= 0 and state.cache[last, UPPER] == np.inf:
            _keep(spec, state, last)
    _keep_expired(spec, state)


@jitable
def _start(spec: Any, state: Any, level: float, out: Any) -> None:
    """Write the bounds kept, and the indices of arms that never paid."""
    waiting = False
    for k in range(out.size):
        if state.nonzero[k] > 0.0:
            out[k] = state.cache[k, UPPER]
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
    level = _level(spec, state.shared[CLOCK] + 1.0)
    _start(spec, state, level, out)
    first = 0
    for k in range(1, out.size):
        if out[k] > out[first]:
            first = k
    if state.nonzero[first] == 0.0:
        best = out[first]
    else:
        second = -np.inf
        for k in range(out.size):
            if k != first:
                second = max(second, out[k])
        if second < np.inf and cost_to_reach(spec, state, first, second) < level:
            return  # its index is above all bounds of the others
        out[first] = product_upper(spec, state, first, level)
        best = out[first]
    for k in range(out.size):
        # one pass is enough: `best` only grows, so what was below it stays below
        if k != first and out[k] >= best and state.nonzero[k] > 0.0:
            out[k] = product_upper(spec, state, k, level)
            best = max(best, out[k])


def _indices(spec: Any, state: Any, rng: Any, out: Any) -> None:
    level = _level(spec, state.shared[CLOCK] + 1.0)
    _start(spec, state, level, out)
    for k in range(out.size):
        if state.nonzero[k] > 0.0:
            out[k] = product_upper(spec, state, k, level)


register(
    ZIKLUCB,
    init=_init,
    scores=_scores,
    update=_update,
    refresh=_refresh,
    refresh_all=_refresh_all,
    indices=_indices,
    additive=True,
)
