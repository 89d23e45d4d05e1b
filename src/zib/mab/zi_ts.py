"""Thompson sampling for zero-inflated rewards: sample how often, sample how much, multiply."""

from __future__ import annotations

import math
from typing import Any, ClassVar, NamedTuple

import numpy as np

from zib.core import validate as check
from zib.core.kernel import jitable, register
from zib.core.spec import Spec
from zib.mab.unseen import resolve_unseen, sample_unseen
from zib.stats.arms import HORIZON, ArmState, new_state, observe

# ------------------------------------------------------------- Algorithm MAB-light-TS (clipped)

PROB_CAP, MEAN_CAP, MEAN_SD = 0, 1, 2


class _ZITSFields(NamedTuple):
    horizon: float
    sigma: float
    rho: float
    gamma: float
    alpha: float
    beta: float
    unseen: float


class ZITS(Spec, _ZITSFields):
    """Thompson sampling with clipped posteriors for light tails (Algorithm MAB-light-TS).

    Parameters
    ----------
    horizon
        Number of rounds T the clipping is made for (≥ 2).
    sigma
        Sub-Gaussian size of the non-zero rewards.
    rho, gamma
        Spread of the Gaussian draw and width of the clipping; the theorem asks for ρ ∈ (½, 1) and
        γ ≥ 4, other positive values are allowed.
    alpha, beta
        Prior Beta(α, β) of the probability of paying; the theorem asks for values in [0, 1], here
        they must be positive so that the prior is proper.
    unseen
        Magnitude of an arm that never paid: ``"pooled"`` takes the largest magnitude sampled this
        round among arms that have paid; or a number.

    Notes
    -----
    p̃ ~ min{Beta(α + B, β + n − B), ϑ(p)} and μ̃ ~ min{N(μ̂, 2σ²/(ρ n p̂)), ϑ(mu)}; the arm with
    the largest p̃·μ̃ is played. ϑ(p) = p̂ + √(γ/(4n) log⁺(T/(4nK))),
    ϑ(mu) = μ̂ + √(4γqσ²/(p̂²n) log⁺(4qσ²T/(p̂²nK))), q = 1 + 1/log(1 + 1/√(nT)). Clipping is from
    above (the printed ``max`` is a slip). Minimax optimal for sub-Gaussian rewards; ϑ(mu) is so
    wide in practice that it rarely binds.
    """

    __slots__ = ()
    words: ClassVar[dict[str, str | None]] = {"unseen": "pooled"}
    default_label = "ZI-TS"

    def __new__(
        cls,
        *,
        horizon: float,
        sigma: float,
        rho: float = 0.9,
        gamma: float = 4.0,
        alpha: float = 1.0,
        beta: float = 1.0,
        unseen: str | float = "pooled",
    ) -> ZITS:
        return super().__new__(
            cls,
            check.real("horizon", horizon, low=2),
            check.real("sigma", sigma, low=0, closed="neither"),
            check.real("rho", rho, low=0, closed="neither"),
            check.real("gamma", gamma, low=0, closed="neither"),
            check.real("alpha", alpha, low=0, closed="neither"),
            check.real("beta", beta, low=0, closed="neither"),
            resolve_unseen(unseen),
        )


def _init(spec: ZITS, n_arms: int) -> ArmState:
    return new_state(n_arms, n_cache=3, horizon=spec.horizon)


@jitable
def _positive_log(x: float) -> float:
    return math.log(x) if x > 1.0 else 0.0


@jitable
def _refresh(spec: Any, state: Any, arm: int) -> None:
    n = state.pulls[arm]
    nonzero = state.nonzero[arm]
    if nonzero == 0.0:
        return
    horizon = state.shared[HORIZON]
    n_arms = state.pulls.size
    p_hat = nonzero / n
    state.cache[arm, PROB_CAP] = p_hat + math.sqrt(
        spec.gamma / (4.0 * n) * _positive_log(horizon / (4.0 * n * n_arms))
    )
    q = 1.0 + 1.0 / math.log1p(1.0 / math.sqrt(n * horizon))
    base = 4.0 * q * spec.sigma * spec.sigma / (p_hat * p_hat * n)
    state.cache[arm, MEAN_CAP] = state.total[arm] / nonzero + math.sqrt(
        spec.gamma * base * _positive_log(base * horizon / n_arms)
    )
    state.cache[arm, MEAN_SD] = spec.sigma * math.sqrt(2.0 / (spec.rho * nonzero))


def _update(spec: Any, state: Any, arm: int, reward: float) -> None:
    observe(state, arm, reward)
    _refresh(spec, state, arm)


def _scores(spec: Any, state: Any, rng: Any, out: Any) -> None:
    top = -np.inf
    for k in range(out.size):
        nonzero = state.nonzero[k]
        if nonzero > 0.0:
            prob = min(
                rng.beta(spec.alpha + nonzero, spec.beta + state.pulls[k] - nonzero),
                state.cache[k, PROB_CAP],
            )
            mean = min(
                state.total[k] / nonzero + state.cache[k, MEAN_SD] * rng.standard_normal(),
                state.cache[k, MEAN_CAP],
            )
            top = max(top, mean)
            out[k] = prob * mean
    sample_unseen(state, spec.alpha, spec.beta, spec.unseen, top, rng, out)


register(
    ZITS,
    init=_init,
    scores=_scores,
    update=_update,
    refresh=_refresh,
    additive=True,
    randomized=True,
)


# ------------------------------------------------------------------ exponential rewards, conjugate


class _ZIExponentialTSFields(NamedTuple):
    shape: float
    rate: float
    alpha: float
    beta: float
    unseen: float


class ZIExponentialTS(Spec, _ZIExponentialTSFields):
    """Exact Thompson sampling when the non-zero rewards are exponential; needs no horizon.

    Parameters
    ----------
    shape, rate
        Prior Gamma(shape, rate) of 1/mu. The default (1, 0) makes the posterior mean of mu the
        sample mean.
    alpha, beta, unseen
        As in `ZITS`.

    Notes
    -----
    1/μ̃ ~ Gamma(shape + B, rate + S) and p̃ ~ Beta(α + B, β + n − B), unclipped. Non-zero rewards
    must be positive.
    """

    __slots__ = ()
    words: ClassVar[dict[str, str | None]] = {"unseen": "pooled"}
    default_label = "ZI-TS exponential"

    def __new__(
        cls,
        *,
        shape: float = 1.0,
        rate: float = 0.0,
        alpha: float = 1.0,
        beta: float = 1.0,
        unseen: str | float = "pooled",
    ) -> ZIExponentialTS:
        return super().__new__(
            cls,
            check.real("shape", shape, low=0),
            check.real("rate", rate, low=0),
            check.real("alpha", alpha, low=0, closed="neither"),
            check.real("beta", beta, low=0, closed="neither"),
            resolve_unseen(unseen),
        )

    @property
    def reward_range(self) -> tuple[float, float]:
        """Exponential rewards are not negative."""
        return (0.0, math.inf)


def _exponential_init(spec: ZIExponentialTS, n_arms: int) -> ArmState:
    return new_state(n_arms)


def _exponential_update(spec: Any, state: Any, arm: int, reward: float) -> None:
    observe(state, arm, max(reward, 0.0))


def _exponential_scores(spec: Any, state: Any, rng: Any, out: Any) -> None:
    top = -np.inf
    for k in range(out.size):
        nonzero = state.nonzero[k]
        if nonzero > 0.0:
            prob = rng.beta(spec.alpha + nonzero, spec.beta + state.pulls[k] - nonzero)
            mean = (spec.rate + state.total[k]) / rng.standard_gamma(spec.shape + nonzero)
            top = max(top, mean)
            out[k] = prob * mean
    sample_unseen(state, spec.alpha, spec.beta, spec.unseen, top, rng, out)


register(
    ZIExponentialTS,
    init=_exponential_init,
    scores=_exponential_scores,
    update=_exponential_update,
    additive=True,
    randomized=True,
)
