"""Policies that ignore the zeros: the paper's baselines and what a user would pick otherwise.

UCB on the raw reward with four rules for its size, and MOTS, as in the paper; then UCB1, UCB-V,
kl-UCB, plain Thompson sampling and ε-greedy, which need no horizon.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from zib.core.kernel import jitable, register
from zib.core.registry import INLINED, Registry
from zib.core.spec import Spec, choice, positive, real
from zib.core.state import ArmState, Floats, Part, per_arm
from zib.core.validate import InvalidParameterError, shown
from zib.mab.assumptions import LOG2, SUBGAUSSIAN, SUBWEIBULL, LightTailed
from zib.mab.stable import draw_stable
from zib.stats.arms import observe, reward_variance
from zib.theory.bernoulli import kl_upper_scalar as kl_upper
from zib.theory.means import given_count_radius_scalar as given_count_radius
from zib.theory.means import subexponential_radius_scalar as subexponential_radius
from zib.theory.sizes import proxy_value_at, subexponential_square, variance_proxy_argmax

# ------------------------------------------------------------------- UCB with a size of the reward

COMPONENT, VARIANCE, ESTIMATED, TRUE = 0, 1, 2, 3


class UCB(LightTailed):
    """UCB that treats the reward as one light-tailed variable and ignores its zeros (App. C.1).

    Parameters
    ----------
    horizon
        Number of rounds T of the confidence level δ = 4/T² (≥ 2).
    sigma, tail
        Exactly one: size of the *non-zero* rewards, sub-Gaussian (σ, or `SubGaussian`) or
        sub-exponential (`SubExponential`).
    size
        How the size of R = X·Y is found. ``"component"``: that of X (not valid: R can be wider).
        ``"variance"``: running variance of R (not valid: the variance proxy exceeds it).
        ``"estimated"``: τ² (or α²) solved on the fly from p̂ and μ̂. ``"true"``: the true value per
        arm, the paper's strong baseline; only a simulation knows it.

    Notes
    -----
    Sub-Gaussian: R̄ + √(2τ² log(2/δ)/n). Sub-exponential: R̄ + α√(2 log(2/δ)/n) + α log(2/δ)/n (the
    printed α² in front of the root has the wrong dimension). The variance rule takes the variance
    for τ² and the standard deviation for α; the text says "the estimated variance" for both, which
    for α has the dimension of a squared reward. While an arm has never paid, the estimated rules
    have nothing to estimate and use the size of X.
    """

    size: str = choice(("component", "variance", "estimated", "true"), default="component")
    looks = {
        "UCB component size": "#E69F00 ^",
        "UCB variance size": "#CC79A7 v",
        "UCB estimated size": "#999933 P dashdot",
        "UCB true size (strong)": "#D55E00 X",
    }

    def check(self) -> None:
        """Raise for a tail whose product with the zeros has no size here."""
        if self.tail_kind == SUBWEIBULL:
            raise InvalidParameterError(
                f"`tail` of UCB must be SubGaussian or SubExponential; got {shown(self.tail)}"
            )

    @property
    def label(self) -> str:
        """The rule is part of the name."""
        return "UCB true size (strong)" if self.needs_true_sizes else f"UCB {self._rule} size"

    @property
    def needs_true_sizes(self) -> bool:
        """Whether an environment has to supply the size of every arm's reward."""
        return self._rule == "true"

    @property
    def _rule(self) -> str:
        return str(self.parameters()["size"])


class Sizes(Part):
    """What `UCB` derives about an arm."""

    score: Floats = per_arm(start=math.inf, finite=False)
    true_size: Floats = per_arm(start=math.inf, finite=False)  # until it is given
    maximiser: Floats = per_arm(finite=False)  # where the search for the variance proxy ended last


def set_true_sizes(state: ArmState, sizes: Any) -> None:
    """Hand the true sizes (τ or α per arm) to a state of `UCB` with ``size="true"``."""
    state.own.true_size[:] = sizes


@jitable
def _size(spec: Any, state: Any, arm: int) -> float:
    nonzero = state.nonzero[arm]
    if spec.size == TRUE:
        return float(state.own.true_size[arm])
    if spec.size == COMPONENT or nonzero == 0.0:
        return float(spec.tail.scale)
    n = state.pulls[arm]
    if spec.size == VARIANCE:
        return math.sqrt(reward_variance(n, nonzero, state.total[arm], state.spread[arm]))
    mean = state.total[arm] / nonzero
    if spec.tail.kind == SUBGAUSSIAN:
        s = variance_proxy_argmax(mean, nonzero / n, spec.tail.scale, state.own.maximiser[arm])
        state.own.maximiser[arm] = s
        return math.sqrt(proxy_value_at(s, mean, nonzero / n, spec.tail.scale))
    return math.sqrt(subexponential_square(mean, nonzero / n, spec.tail.scale))


@jitable
def _ucb_refresh(spec: Any, state: Any, arm: int) -> None:
    n = state.pulls[arm]
    if n == 0.0:
        state.own.score[arm] = np.inf
        return
    level = 2.0 * state.log_horizon[0] - LOG2
    size = _size(spec, state, arm)
    if spec.tail.kind == SUBGAUSSIAN:
        radius = given_count_radius(n, level, size)
    else:
        radius = subexponential_radius(n, level, size)
    state.own.score[arm] = state.total[arm] / n + radius


def _ucb_update(spec: Any, state: Any, arm: int, reward: float) -> None:
    observe(state, arm, reward)
    _ucb_refresh(spec, state, arm)


def _ucb_scores(spec: Any, state: Any, rng: Any, out: Any) -> None:
    for k in range(out.size):
        out[k] = state.own.score[k]


register(
    UCB, own=Sizes, scores=_ucb_scores, update=_ucb_update, refresh=_ucb_refresh, additive=True
)


# ------------------------------------------------------------------------ one score for every arm

RAW = Registry("score of the raw reward", "RAW.add(...)")


@jitable
def _no_level(spec: Any, state: Any) -> float:
    return 0.0


@jitable
def _log_round(spec: Any, state: Any) -> float:
    return math.log(max(state.clock[0] + 1.0, 2.0))


class Raw(NamedTuple):
    """What the policies below have of their own; the rest is `raw_scores`."""

    score: Callable[..., float]
    level: Callable[..., float] = _no_level


@RAW.kernel(INLINED)
def level(spec: Any, state: Any) -> float:  # type: ignore[empty-body]
    """Return what the scores of all arms of a round depend on."""


@RAW.kernel(INLINED)
def score(spec: Any, state: Any, arm: int, common: float, rng: Any) -> float:  # type: ignore[empty-body]
    """Return the score of an arm that was played; `common` is what `level` returned."""


def raw_scores(spec: Any, state: Any, rng: Any, out: Any) -> None:
    """Write the scores of the arms; those that were never played come first."""
    common = level(spec, state)
    for k in range(out.size):
        out[k] = np.inf if state.pulls[k] == 0.0 else score(spec, state, k, common, rng)


# ------------------------------------------------------------------------------------------ MOTS


class MOTS(Spec):
    """Minimax optimal Thompson sampling on the raw reward (Jin et al. 2021), the TS baseline.

    Parameters
    ----------
    horizon
        Number of rounds T (≥ 2).
    sigma
        Sub-Gaussian size taken for the reward; the paper's baseline takes that of X.
    rho, alpha
        Spread and clipping; (0.9999, 2) are the authors' values, (0.9, 4) the other pair in use.
    stability, skewness
        Law of the draw: stable with this index in (1, 2] and this skewness in [−1, 1]; 2 is
        Gaussian. The paper adds such a step for exponential rewards (App. C.1, "CMS generation")
        and leaves its parameters open.

    Notes
    -----
    min{R̄ + σ/√(2ρ) · n^(1/stability − 1) · S, R̄ + σ√(α/n · log⁺(T/(Kn)))}, S standard stable; for
    stability 2 the draw is N(R̄, σ²/(ρn)). S is drawn by the formula of Chambers, Mallows and Stuck
    and has mean 0. The mean of n rewards of a stable law scatters like n^(1/stability − 1).
    """

    horizon: float = real(low=2)
    sigma: float = positive()
    rho: float = real(low=0, high=1, closed="right", default=0.9999)
    alpha: float = positive(default=2.0)
    stability: float = real(low=1, high=2, closed="right", default=2.0)
    skewness: float = real(low=-1, high=1, default=0.0)
    looks = {"MOTS": "#661100 * dashdot", "MOTS stable": "#661100 * dotted"}

    @property
    def label(self) -> str:
        """A short name for figures and tables."""
        return "MOTS" if self.stability == 2.0 else "MOTS stable"


class Cap(Part):
    """What `MOTS` derives about an arm that was played."""

    cap: Floats = per_arm()


@jitable
def _mots_refresh(spec: Any, state: Any, arm: int) -> None:
    n = state.pulls[arm]
    if n == 0.0:
        return
    ratio = state.horizon[0] / (state.pulls.size * n)
    bonus = math.sqrt(spec.alpha / n * math.log(ratio)) if ratio > 1.0 else 0.0
    state.own.cap[arm] = state.total[arm] / n + spec.sigma * bonus


def _mots_update(spec: Any, state: Any, arm: int, reward: float) -> None:
    observe(state, arm, reward)
    _mots_refresh(spec, state, arm)


@jitable
def _mots_score(spec: Any, state: Any, arm: int, common: float, rng: Any) -> float:
    n = state.pulls[arm]
    if spec.stability == 2.0:
        draw = spec.sigma / math.sqrt(spec.rho * n) * rng.standard_normal()
    else:
        noise = draw_stable(spec.stability, spec.skewness, rng.random(), rng.random())
        draw = spec.sigma / math.sqrt(2.0 * spec.rho) * n ** (1.0 / spec.stability - 1.0) * noise
    return float(min(state.total[arm] / n + draw, state.own.cap[arm]))


RAW.add(MOTS, Raw(_mots_score))
register(
    MOTS,
    own=Cap,
    scores=raw_scores,
    update=_mots_update,
    refresh=_mots_refresh,
    additive=True,
    randomized=True,
)


# ------------------------------------------------------------------------------- without a horizon


def _update(spec: Any, state: Any, arm: int, reward: float) -> None:
    observe(state, arm, reward)


# ------------------------------------------------------------------------------------------ UCB1


class UCB1(Spec):
    """UCB1 (Auer et al. 2002): R̄ + scale·√(2 log t/n), for rewards in [0, scale]."""

    scale: float = positive(default=1.0)
    label = "UCB1"
    looks = {"UCB1": "#8C8C8C < dotted thin"}


@jitable
def _ucb1_score(spec: Any, state: Any, arm: int, log_t: float, rng: Any) -> float:
    n = state.pulls[arm]
    return float(state.total[arm] / n + given_count_radius(n, log_t, spec.scale))


RAW.add(UCB1, Raw(_ucb1_score, _log_round))
register(UCB1, scores=raw_scores, update=_update, additive=True)


# ----------------------------------------------------------------------------------------- UCB-V


class UCBV(Spec):
    """UCB-V (Audibert et al. 2009): R̄ + √(2V log t/n) + 3·scale·log t/n, V the variance of R."""

    scale: float = positive(default=1.0)
    label = "UCB-V"
    looks = {"UCB-V": "#8C8C8C p dashdot thin"}


@jitable
def _ucbv_score(spec: Any, state: Any, arm: int, log_t: float, rng: Any) -> float:
    n = state.pulls[arm]
    variance = reward_variance(n, state.nonzero[arm], state.total[arm], state.spread[arm])
    return float(
        state.total[arm] / n + math.sqrt(2.0 * variance * log_t / n) + 3.0 * spec.scale * log_t / n
    )


RAW.add(UCBV, Raw(_ucbv_score, _log_round))
register(UCBV, scores=raw_scores, update=_update, additive=True)


# ---------------------------------------------------------------------------------------- kl-UCB


class KLUCB(Spec):
    """kl-UCB (Garivier & Cappé 2011) on R/scale, for rewards in [0, scale].

    Index: scale·sup{q : n·kl(R̄/scale, q) ≤ log t + c·log log t}.
    """

    scale: float = positive(default=1.0)
    c: float = real(low=0, default=0.0)
    label = "kl-UCB"
    looks = {"kl-UCB": "#8C8C8C > dashed thin"}

    @property
    def reward_range(self) -> tuple[float, float]:
        """The Bernoulli divergence needs rewards in [0, scale]."""
        return (0.0, self.scale)


def _klucb_update(spec: Any, state: Any, arm: int, reward: float) -> None:
    observe(state, arm, min(max(reward, 0.0), spec.scale))


@jitable
def _klucb_level(spec: Any, state: Any) -> float:
    log_t = _log_round(spec, state)
    return float(log_t + spec.c * max(math.log(log_t), 0.0))


@jitable
def _klucb_score(spec: Any, state: Any, arm: int, common: float, rng: Any) -> float:
    n = state.pulls[arm]
    mean = min(max(state.total[arm] / (n * spec.scale), 0.0), 1.0)
    return float(spec.scale * kl_upper(mean, n, common))


RAW.add(KLUCB, Raw(_klucb_score, _klucb_level))
register(KLUCB, scores=raw_scores, update=_klucb_update, additive=True)


# ------------------------------------------------------------------------------ plain Thompson


class BetaTS(Spec):
    """Beta Thompson sampling on R/scale, for rewards in [0, scale] (fractional updates)."""

    scale: float = positive(default=1.0)
    alpha: float = positive(default=1.0)
    beta: float = positive(default=1.0)
    label = "Beta TS"
    looks = {"Beta TS": "#B0A070 8 dashdot thin"}

    @property
    def reward_range(self) -> tuple[float, float]:
        """A Beta posterior needs rewards in [0, scale]."""
        return (0.0, self.scale)


@jitable
def _beta_score(spec: Any, state: Any, arm: int, common: float, rng: Any) -> float:
    n = state.pulls[arm]
    wins = min(max(state.total[arm] / spec.scale, 0.0), n)
    return float(spec.scale * rng.beta(spec.alpha + wins, spec.beta + n - wins))


RAW.add(BetaTS, Raw(_beta_score))
register(BetaTS, scores=raw_scores, update=_klucb_update, additive=True, randomized=True)


class NormalTS(Spec):
    """Gaussian Thompson sampling on the raw reward: N(R̄, σ²/n), flat prior, σ known."""

    sigma: float = positive(default=1.0)
    label = "Normal TS"
    looks = {"Normal TS": "#B0A070 H dotted thin"}


@jitable
def _normal_score(spec: Any, state: Any, arm: int, common: float, rng: Any) -> float:
    n = state.pulls[arm]
    return float(state.total[arm] / n + spec.sigma / math.sqrt(n) * rng.standard_normal())


RAW.add(NormalTS, Raw(_normal_score))
register(NormalTS, scores=raw_scores, update=_update, additive=True, randomized=True)


# -------------------------------------------------------------------------------------- ε-greedy


class EpsilonGreedy(Spec):
    """With probability ε a uniformly random arm, else the largest mean (ties at random)."""

    epsilon: float = real(low=0, high=1, default=0.1)
    label = "ε-greedy"
    looks = {"ε-greedy": "#B0A070 d dashed thin"}


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
    scores=_greedy_scores,
    update=_update,
    additive=True,
    randomized=True,
    propensities=_greedy_propensities,
)
