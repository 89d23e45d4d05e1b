"""What a user would pick who ignores the zeros: UCB1, UCB-V, kl-UCB, plain TS, ε-greedy.

All of them see the raw reward and need no horizon.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from zib.core import validate as check
from zib.core.kernel import jitable, register
from zib.core.spec import Spec
from zib.stats.arms import CLOCK, ArmState, new_state, observe, reward_variance
from zib.theory.bernoulli import kl_upper_scalar as kl_upper
from zib.theory.means import given_count_radius_scalar as given_count_radius


class _ScaleFields(NamedTuple):
    scale: float


def _init(spec: Any, n_arms: int) -> ArmState:
    return new_state(n_arms)


@jitable
def _log_round(state: Any) -> float:
    return math.log(max(state.shared[CLOCK] + 1.0, 2.0))


def _update(spec: Any, state: Any, arm: int, reward: float) -> None:
    observe(state, arm, reward)


# ------------------------------------------------------------------------------------------ UCB1


class UCB1(Spec, _ScaleFields):
    """UCB1 (Auer et al. 2002): R̄ + scale·√(2 log t/n), for rewards in [0, scale]."""

    __slots__ = ()
    default_label = "UCB1"

    def __new__(cls, *, scale: float = 1.0) -> UCB1:
        return super().__new__(cls, check.real("scale", scale, low=0, closed="neither"))


def _ucb1_scores(spec: Any, state: Any, rng: Any, out: Any) -> None:
    log_t = _log_round(state)
    for k in range(out.size):
        n = state.pulls[k]
        if n == 0.0:
            out[k] = np.inf
        else:
            out[k] = state.total[k] / n + given_count_radius(n, log_t, spec.scale)


register(UCB1, init=_init, scores=_ucb1_scores, update=_update, additive=True)


# ----------------------------------------------------------------------------------------- UCB-V


class UCBV(Spec, _ScaleFields):
    """UCB-V (Audibert et al. 2009): R̄ + √(2V log t/n) + 3·scale·log t/n, V the variance of R."""

    __slots__ = ()
    default_label = "UCB-V"

    def __new__(cls, *, scale: float = 1.0) -> UCBV:
        return super().__new__(cls, check.real("scale", scale, low=0, closed="neither"))


def _ucbv_scores(spec: Any, state: Any, rng: Any, out: Any) -> None:
    log_t = _log_round(state)
    for k in range(out.size):
        n = state.pulls[k]
        if n == 0.0:
            out[k] = np.inf
        else:
            variance = reward_variance(n, state.nonzero[k], state.total[k], state.spread[k])
            out[k] = (
                state.total[k] / n
                + math.sqrt(2.0 * variance * log_t / n)
                + 3.0 * spec.scale * log_t / n
            )


register(UCBV, init=_init, scores=_ucbv_scores, update=_update, additive=True)


# ---------------------------------------------------------------------------------------- kl-UCB


class _KLUCBFields(NamedTuple):
    scale: float
    c: float


class KLUCB(Spec, _KLUCBFields):
    """kl-UCB (Garivier & Cappé 2011) on R/scale, for rewards in [0, scale].

    Index: scale·sup{q : n·kl(R̄/scale, q) ≤ log t + c·log log t}.
    """

    __slots__ = ()
    default_label = "kl-UCB"

    def __new__(cls, *, scale: float = 1.0, c: float = 0.0) -> KLUCB:
        return super().__new__(
            cls,
            check.real("scale", scale, low=0, closed="neither"),
            check.real("c", c, low=0),
        )

    @property
    def reward_range(self) -> tuple[float, float]:
        """The Bernoulli divergence needs rewards in [0, scale]."""
        return (0.0, self.scale)


def _klucb_update(spec: Any, state: Any, arm: int, reward: float) -> None:
    observe(state, arm, min(max(reward, 0.0), spec.scale))


def _klucb_scores(spec: Any, state: Any, rng: Any, out: Any) -> None:
    log_t = _log_round(state)
    level = log_t + spec.c * max(math.log(log_t), 0.0)
    for k in range(out.size):
        n = state.pulls[k]
        if n == 0.0:
            out[k] = np.inf
        else:
            mean = min(max(state.total[k] / (n * spec.scale), 0.0), 1.0)
            out[k] = spec.scale * kl_upper(mean, n, level)


register(KLUCB, init=_init, scores=_klucb_scores, update=_klucb_update, additive=True)


# ------------------------------------------------------------------------------ plain Thompson


class _BetaTSFields(NamedTuple):
    scale: float
    alpha: float
    beta: float


class BetaTS(Spec, _BetaTSFields):
    """Beta Thompson sampling on R/scale, for rewards in [0, scale] (fractional updates)."""

    __slots__ = ()
    default_label = "Beta TS"

    def __new__(cls, *, scale: float = 1.0, alpha: float = 1.0, beta: float = 1.0) -> BetaTS:
        return super().__new__(
            cls,
            check.real("scale", scale, low=0, closed="neither"),
            check.real("alpha", alpha, low=0, closed="neither"),
            check.real("beta", beta, low=0, closed="neither"),
        )

    @property
    def reward_range(self) -> tuple[float, float]:
        """A Beta posterior needs rewards in [0, scale]."""
        return (0.0, self.scale)


def _beta_scores(spec: Any, state: Any, rng: Any, out: Any) -> None:
    for k in range(out.size):
        n = state.pulls[k]
        if n == 0.0:
            out[k] = np.inf
        else:
            wins = min(max(state.total[k] / spec.scale, 0.0), n)
            out[k] = spec.scale * rng.beta(spec.alpha + wins, spec.beta + n - wins)


register(
    BetaTS, init=_init, scores=_beta_scores, update=_klucb_update, additive=True, randomized=True
)


class _NormalTSFields(NamedTuple):
    sigma: float


class NormalTS(Spec, _NormalTSFields):
    """Gaussian Thompson sampling on the raw reward: N(R̄, σ²/n), flat prior, σ known."""

    __slots__ = ()
    default_label = "Normal TS"

    def __new__(cls, *, sigma: float = 1.0) -> NormalTS:
        return super().__new__(cls, check.real("sigma", sigma, low=0, closed="neither"))


def _normal_scores(spec: Any, state: Any, rng: Any, out: Any) -> None:
    for k in range(out.size):
        n = state.pulls[k]
        if n == 0.0:
            out[k] = np.inf
        else:
            out[k] = state.total[k] / n + spec.sigma / math.sqrt(n) * rng.standard_normal()


register(
    NormalTS, init=_init, scores=_normal_scores, update=_update, additive=True, randomized=True
)


# -------------------------------------------------------------------------------------- ε-greedy


class _EpsilonGreedyFields(NamedTuple):
    epsilon: float


class EpsilonGreedy(Spec, _EpsilonGreedyFields):
    """With probability ε a uniformly random arm, else the largest mean (ties at random)."""

    __slots__ = ()
    default_label = "ε-greedy"

    def __new__(cls, *, epsilon: float = 0.1) -> EpsilonGreedy:
        return super().__new__(cls, check.real("epsilon", epsilon, low=0, high=1))


@jitable
def _means_into(state: Any, out: Any) -> bool:
    untried = False
    for k in range(out.size):
        n = state.pulls[k]
        if n == 0.0:
            out[k] = np.inf
            untried = True
        else:
            out[k] = state.total[k] / n
    return untried


def _greedy_scores(spec: Any, state: Any, rng: Any, out: Any) -> None:
    untried = _means_into(state, out)
    if not untried and rng.random() < spec.epsilon:
        for k in range(out.size):
            out[k] = 0.0  # all arms tie: the choice is uniform


def _greedy_propensities(spec: EpsilonGreedy, state: ArmState) -> Any:
    means = np.empty(state.pulls.size)
    untried = _means_into(state, means)
    best = means == means.max()
    greedy = best / best.sum()
    return greedy if untried else spec.epsilon / means.size + (1.0 - spec.epsilon) * greedy


register(
    EpsilonGreedy,
    init=_init,
    scores=_greedy_scores,
    update=_update,
    additive=True,
    randomized=True,
    propensities=_greedy_propensities,
)
