"""Algorithm RUCB: trimmed means for non-zero rewards with a finite moment of order 1 + ε only."""

from __future__ import annotations

import math
from typing import Any, ClassVar, NamedTuple

import numpy as np

from zib.core import validate as check
from zib.core.kernel import register
from zib.core.spec import Spec
from zib.mab.unseen import complete_unseen, resolve_unseen
from zib.stats.arms import CLOCK, ArmState, new_state, observe
from zib.theory.means import trim_threshold
from zib.theory.means import trimmed_count_radius_scalar as trimmed_count_radius
from zib.theory.means import trimmed_radius_scalar as trimmed_pulls_radius
from zib.theory.products import signed_product

GROWING, PRINTED = 0, 1  # trimming
GIVEN_COUNT = 0  # radius
KEPT = 0  # column of `cache`: sum of the rewards that passed the trimming


class _ZIHeavyUCBFields(NamedTuple):
    epsilon: float
    moment: float
    trim: int
    radius: int
    unseen: float


class ZIHeavyUCB(Spec, _ZIHeavyUCBFields):
    """UCB for zero-inflated rewards with heavy tails (Algorithm RUCB); needs no horizon.

    Parameters
    ----------
    epsilon
        Order of the finite moment minus one, in (0, 1].
    moment
        M with E|X|^(1+ε) ≤ M (raw moment of the non-zero rewards: the proof needs it raw).
    trim
        ``"growing"`` (default): the j-th non-zero reward counts if
        |X| ≤ (jM/log t²)^(1/(1+ε)), the threshold of the lemma. ``"printed"``: the shrinking
        threshold g(p̂, ε) M^(1/(1+ε)) (log t²/n)^(ε/(1+ε)) of the listing, which ends up discarding
        everything; kept for comparison.
    radius
        ``"given_count"`` (default): 4 M^(1/(1+ε)) (log t²/B)^(ε/(1+ε)) with the number B of
        non-zero rewards. ``"printed"``: M^(1/(1+ε)) (32 log t/n)^(ε/(1+ε)) with n pulls; too narrow
        when p is small, and, as a constant, when ε is.
    unseen
        As in `ZIUCB`.

    Notes
    -----
    U^p = p̂ + √(2 log t²/n), capped at 1. A reward is trimmed once, when it arrives, so a round
    costs O(1); the sum of trimmed rewards depends on the order of arrival, hence two states cannot
    be merged.
    """

    __slots__ = ()
    choices: ClassVar[dict[str, tuple[str, ...]]] = {
        "trim": ("growing", "printed"),
        "radius": ("given_count", "printed"),
    }
    words: ClassVar[dict[str, str | None]] = {"unseen": "pooled"}
    default_label = "ZI-UCB heavy"

    def __new__(
        cls,
        *,
        epsilon: float,
        moment: float,
        trim: str = "growing",
        radius: str = "given_count",
        unseen: str | float = "pooled",
    ) -> ZIHeavyUCB:
        return super().__new__(
            cls,
            check.real("epsilon", epsilon, low=0, high=1, closed="right"),
            check.real("moment", moment, low=0, closed="neither"),
            check.choice("trim", trim, cls.choices["trim"]),
            check.choice("radius", radius, cls.choices["radius"]),
            resolve_unseen(unseen),
        )


def _init(spec: ZIHeavyUCB, n_arms: int) -> ArmState:
    return new_state(n_arms, n_cache=1)


def _update(spec: Any, state: Any, arm: int, reward: float) -> None:
    observe(state, arm, reward)
    if reward == 0.0:
        return
    log_t2 = 2.0 * math.log(max(state.shared[CLOCK], 2.0))
    if spec.trim == GROWING:
        threshold = trim_threshold(state.nonzero[arm], log_t2, spec.moment, spec.epsilon)
    else:
        n = state.pulls[arm]
        threshold = trimmed_pulls_radius(
            n, state.nonzero[arm] / n, log_t2, spec.moment, spec.epsilon
        )
    if abs(reward) <= threshold:
        state.cache[arm, KEPT] += reward


def _scores(spec: Any, state: Any, rng: Any, out: Any) -> None:
    log_t = math.log(max(state.shared[CLOCK] + 1.0, 2.0))
    power = spec.epsilon / (1.0 + spec.epsilon)
    if spec.radius == GIVEN_COUNT:
        scale = trimmed_count_radius(1.0, 2.0 * log_t, spec.moment, spec.epsilon)
    else:
        scale = spec.moment ** (1.0 / (1.0 + spec.epsilon)) * (32.0 * log_t) ** power
    top = -np.inf
    for k in range(out.size):
        n = state.pulls[k]
        nonzero = state.nonzero[k]
        if n == 0.0:
            out[k] = np.inf
            continue
        wide = math.sqrt(4.0 * log_t / n)  # sqrt(2 log t² / n)
        p_hat = nonzero / n
        out[k] = min(1.0, p_hat + wide)
        if nonzero > 0.0:
            count = nonzero if spec.radius == GIVEN_COUNT else n
            mean_upper = state.cache[k, KEPT] / nonzero + scale * count**-power
            top = max(top, mean_upper)
            out[k] = signed_product(mean_upper, max(0.0, p_hat - wide), out[k])
    complete_unseen(state, spec.unseen, top, out)


register(ZIHeavyUCB, init=_init, scores=_scores, update=_update)
