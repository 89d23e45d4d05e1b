"""The paper's baselines: UCB on the raw reward with four rules for its size, and MOTS."""

from __future__ import annotations

import math
from typing import Any, ClassVar, NamedTuple

import numpy as np

from zib.core import validate as check
from zib.core.kernel import jitable, register
from zib.core.spec import Spec
from zib.mab.tails import LOG2, SUBGAUSSIAN, SUBWEIBULL, Tail, resolve_tail
from zib.stats.arms import HORIZON, LOG_HORIZON, ArmState, new_state, observe, reward_variance
from zib.theory.means import given_count_radius_scalar as given_count_radius
from zib.theory.means import subexponential_radius_scalar as subexponential_radius
from zib.theory.sizes import (
    proxy_value_at,
    subexponential_square,
    variance_proxy_argmax,
)

COMPONENT, VARIANCE, ESTIMATED, TRUE = 0, 1, 2, 3
INDEX, TRUE_SIZE, MAXIMISER = 0, 1, 2  # columns of `cache`


class _UCBFields(NamedTuple):
    horizon: float
    tail: Tail
    size: int


class UCB(Spec, _UCBFields):
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
    printed α² in front of the root has the wrong dimension). While an arm has never paid, the
    estimated rules have nothing to estimate and use the size of X.
    """

    __slots__ = ()
    choices: ClassVar[dict[str, tuple[str, ...]]] = {
        "size": ("component", "variance", "estimated", "true")
    }

    def __new__(
        cls,
        *,
        horizon: float,
        sigma: float | None = None,
        tail: Tail | None = None,
        size: str = "component",
    ) -> UCB:
        resolved = resolve_tail(sigma, tail)
        if resolved.kind == SUBWEIBULL:
            raise check.InvalidParameterError(
                f"`tail` of UCB must be SubGaussian or SubExponential; got {resolved!r}"
            )
        return super().__new__(
            cls,
            check.real("horizon", horizon, low=2),
            resolved,
            check.choice("size", size, cls.choices["size"]),
        )

    @property
    def label(self) -> str:
        """The rule is part of the name."""
        rule = self.choices["size"][self.size]
        return {"true": "UCB true size (strong)"}.get(rule, f"UCB {rule} size")

    @property
    def needs_true_sizes(self) -> bool:
        """Whether an environment has to supply the size of every arm's reward."""
        return self.size == TRUE


def set_true_sizes(state: ArmState, sizes: Any) -> None:
    """Hand the true sizes (τ or α per arm) to a state of `UCB` with ``size="true"``."""
    state.cache[:, TRUE_SIZE] = sizes


def _init(spec: UCB, n_arms: int) -> ArmState:
    state = new_state(n_arms, n_cache=3, horizon=spec.horizon)
    state.cache[:, INDEX] = np.inf
    state.cache[:, TRUE_SIZE] = np.nan
    return state


@jitable
def _size(spec: Any, state: Any, arm: int) -> float:
    nonzero = state.nonzero[arm]
    if spec.size == TRUE:
        return float(state.cache[arm, TRUE_SIZE])
    if spec.size == COMPONENT or nonzero == 0.0:
        return float(spec.tail.scale)
    n = state.pulls[arm]
    if spec.size == VARIANCE:
        return math.sqrt(reward_variance(n, nonzero, state.total[arm], state.spread[arm]))
    mean = state.total[arm] / nonzero
    if spec.tail.kind == SUBGAUSSIAN:
        s = variance_proxy_argmax(mean, nonzero / n, spec.tail.scale, state.cache[arm, MAXIMISER])
        state.cache[arm, MAXIMISER] = s
        return math.sqrt(proxy_value_at(s, mean, nonzero / n, spec.tail.scale))
    return math.sqrt(subexponential_square(mean, nonzero / n, spec.tail.scale))


@jitable
def _refresh(spec: Any, state: Any, arm: int) -> None:
    n = state.pulls[arm]
    if n == 0.0:
        state.cache[arm, INDEX] = np.inf
        return
    level = 2.0 * state.shared[LOG_HORIZON] - LOG2
    size = _size(spec, state, arm)
    if spec.tail.kind == SUBGAUSSIAN:
        radius = given_count_radius(n, level, size)
    else:
        radius = subexponential_radius(n, level, size)
    state.cache[arm, INDEX] = state.total[arm] / n + radius


def _update(spec: Any, state: Any, arm: int, reward: float) -> None:
    observe(state, arm, reward)
    _refresh(spec, state, arm)


def _scores(spec: Any, state: Any, rng: Any, out: Any) -> None:
    for k in range(out.size):
        out[k] = state.cache[k, INDEX]


register(UCB, init=_init, scores=_scores, update=_update, refresh=_refresh, additive=True)


# ------------------------------------------------------------------------------------------ MOTS


class _MOTSFields(NamedTuple):
    horizon: float
    sigma: float
    rho: float
    alpha: float


class MOTS(Spec, _MOTSFields):
    """Minimax optimal Thompson sampling on the raw reward (Jin et al. 2021), the TS baseline.

    Parameters
    ----------
    horizon
        Number of rounds T (≥ 2).
    sigma
        Sub-Gaussian size taken for the reward; the paper's baseline takes that of X.
    rho, alpha
        Spread and clipping; (0.9999, 2) are the authors' values, (0.9, 4) the other pair in use.

    Notes
    -----
    min{N(R̄, σ²/(ρn)), R̄ + σ√(α/n · log⁺(T/(Kn)))}.
    """

    __slots__ = ()
    default_label = "MOTS"

    def __new__(
        cls, *, horizon: float, sigma: float, rho: float = 0.9999, alpha: float = 2.0
    ) -> MOTS:
        return super().__new__(
            cls,
            check.real("horizon", horizon, low=2),
            check.real("sigma", sigma, low=0, closed="neither"),
            check.real("rho", rho, low=0, high=1, closed="right"),
            check.real("alpha", alpha, low=0, closed="neither"),
        )


CAP = 0


def _mots_init(spec: MOTS, n_arms: int) -> ArmState:
    return new_state(n_arms, n_cache=1, horizon=spec.horizon)


@jitable
def _mots_refresh(spec: Any, state: Any, arm: int) -> None:
    n = state.pulls[arm]
    if n == 0.0:
        return
    ratio = state.shared[HORIZON] / (state.pulls.size * n)
    bonus = math.sqrt(spec.alpha / n * math.log(ratio)) if ratio > 1.0 else 0.0
    state.cache[arm, CAP] = state.total[arm] / n + spec.sigma * bonus


def _mots_update(spec: Any, state: Any, arm: int, reward: float) -> None:
    observe(state, arm, reward)
    _mots_refresh(spec, state, arm)


def _mots_scores(spec: Any, state: Any, rng: Any, out: Any) -> None:
    for k in range(out.size):
        n = state.pulls[k]
        if n == 0.0:
            out[k] = np.inf
        else:
            draw = state.total[k] / n + spec.sigma / math.sqrt(spec.rho * n) * rng.standard_normal()
            out[k] = min(draw, state.cache[k, CAP])


register(
    MOTS,
    init=_mots_init,
    scores=_mots_scores,
    update=_mots_update,
    refresh=_mots_refresh,
    additive=True,
    randomized=True,
)
