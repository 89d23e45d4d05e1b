"""Thompson sampling for zero-inflated rewards: sample how often, sample how much, multiply.

For light tails with clipped posteriors (Algorithm MAB-light-TS), for exponential rewards, and for
symmetric stable rewards with one latent scale per observation.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from zib.core.kernel import jitable, register
from zib.core.spec import Spec, number_or, positive, real
from zib.core.state import Floats, Part, per_arm, scalar
from zib.mab.assumptions import sample_unseen
from zib.stats.arms import observe

# ------------------------------------------------------------- Algorithm MAB-light-TS (clipped)


class ZITS(Spec):
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
    above (the printed ``max`` is a slip). The paper claims that this is minimax optimal for
    sub-Gaussian rewards; its proof has gaps (see the page "The paper and the code"). ϑ(mu) is so
    wide in practice that it rarely binds.

    No mode follows the listing to the letter. This class differs from it in four ways: p̂ is B/n
    (the printed update divides by zero); the first pull of every arm counts; an arm that never paid
    follows `unseen` instead of a Gaussian with infinite variance; and ϑ(mu) is computed anew after
    a zero too, where the listing waits for a payment. The defaults of ρ and γ are ours: the text
    gives ranges and refers to another article.
    """

    horizon: float = real(low=2)
    sigma: float = positive()
    rho: float = positive(default=0.9)
    gamma: float = positive(default=4.0)
    alpha: float = positive(default=1.0)
    beta: float = positive(default=1.0)
    unseen: str | float = number_or("pooled", default="pooled")
    label = "ZI-TS"
    looks = {"ZI-TS": "#0072B2 s heavy", "ZI-TS printed": "#56B4E9 p dashed heavy"}


class Caps(Part):
    """What `ZITS` derives about an arm that has paid."""

    prob_cap: Floats = per_arm()  # ϑ(p)
    mean_cap: Floats = per_arm()  # ϑ(mu)
    mean_sd: Floats = per_arm()  # standard deviation of the draw of mu


@jitable
def _positive_log(x: float) -> float:
    return math.log(x) if x > 1.0 else 0.0


@jitable
def _refresh(spec: Any, state: Any, arm: int) -> None:
    n = state.pulls[arm]
    nonzero = state.nonzero[arm]
    if nonzero == 0.0:
        return
    horizon = state.horizon[0]
    n_arms = state.pulls.size
    p_hat = nonzero / n
    state.own.prob_cap[arm] = p_hat + math.sqrt(
        spec.gamma / (4.0 * n) * _positive_log(horizon / (4.0 * n * n_arms))
    )
    q = 1.0 + 1.0 / math.log1p(1.0 / math.sqrt(n * horizon))
    base = 4.0 * q * spec.sigma * spec.sigma / (p_hat * p_hat * n)
    state.own.mean_cap[arm] = state.total[arm] / nonzero + math.sqrt(
        spec.gamma * base * _positive_log(base * horizon / n_arms)
    )
    state.own.mean_sd[arm] = spec.sigma * math.sqrt(2.0 / (spec.rho * nonzero))


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
                state.own.prob_cap[k],
            )
            mean = min(
                state.total[k] / nonzero + state.own.mean_sd[k] * rng.standard_normal(),
                state.own.mean_cap[k],
            )
            top = max(top, mean)
            out[k] = prob * mean
    sample_unseen(state, spec.alpha, spec.beta, spec.unseen, top, rng, out)


register(
    ZITS,
    own=Caps,
    scores=_scores,
    update=_update,
    refresh=_refresh,
    additive=True,
    randomized=True,
)


# ------------------------------------------------------------------ exponential rewards, conjugate


class ZIExponentialTS(Spec):
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

    shape: float = real(low=0, default=1.0)
    rate: float = real(low=0, default=0.0)
    alpha: float = positive(default=1.0)
    beta: float = positive(default=1.0)
    unseen: str | float = number_or("pooled", default="pooled")
    label = "ZI-TS exponential"
    looks = {"ZI-TS exponential": "#332288 D heavy"}

    @property
    def reward_range(self) -> tuple[float, float]:
        """Exponential rewards are not negative."""
        return (0.0, math.inf)


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
    scores=_exponential_scores,
    update=_exponential_update,
    additive=True,
    randomized=True,
)


# ------------------------------------------------------------------------ symmetric stable rewards

FAR = 25.0  # (X - mu)² / (4 sigma²) beyond which the tail limit of the posterior of λ is used
MAX_TRIES = 500


class ZIStableTS(Spec):
    """Thompson sampling when the non-zero rewards are symmetric stable: X = mu + √λ·N(0, 2σ²).

    Parameters
    ----------
    stability
        Index of stability in (1, 2]; 2 is Gaussian with variance 2σ², smaller is heavier-tailed.
    sigma
        Scale σ of the stable law (characteristic function exp(iμt − |σt|^stability)).
    alpha, beta, unseen
        As in `ZITS`.

    Notes
    -----
    A symmetric stable law is a scale mixture of normals: λ is positive stable with index
    stability/2. Given the scales, mu is Gaussian, with weights 1/λ: extreme rewards count little.
    Each non-zero reward gets one scale when it arrives, drawn from its posterior given the reward
    and the present mean (proposals by the Chambers–Mallows–Stuck/Kanter formula, then rejection),
    so a round costs O(1); a full Gibbs sampler would redraw all of them every round. The uniforms
    come from a Kronecker sequence kept in the state, so that learning stays a pure function of
    state and reward. States cannot be merged exactly.
    """

    stability: float = real(low=1, high=2, closed="right", default=1.8)
    sigma: float = positive()
    alpha: float = positive(default=1.0)
    beta: float = positive(default=1.0)
    unseen: str | float = number_or("pooled", default="pooled")
    label = "ZI-TS stable"
    looks = {"ZI-TS stable": "#56B4E9 s dashed heavy"}


class Latent(Part):
    """What `ZIStableTS` keeps."""

    weight: Floats = per_arm(least=0.0)  # Σ 1/λ_j
    weighted: Floats = per_arm()  # Σ X_j/λ_j
    draws: Floats = scalar(least=0.0)  # points of the Kronecker sequence that are used up


@jitable
def positive_stable(a: float, u: float, v: float) -> float:
    """Return a draw of the positive stable law with Laplace transform exp(−s^a), a in (0, 1).

    Kanter's form of the Chambers–Mallows–Stuck formula; `u`, `v` are uniform on (0, 1).
    """
    angle = math.pi * u
    log_scale = (
        math.log(math.sin(a * angle))
        + (1.0 - a) / a * (math.log(math.sin((1.0 - a) * angle)) - math.log(-math.log(v)))
        - math.log(math.sin(angle)) / a
    )
    return math.exp(log_scale)


@jitable
def _kronecker(j: float, step: float) -> float:
    # powers of the inverse of the real root of x^4 = x + 1 spread best in three dimensions
    x = 0.5 + j * step
    return min(max(x - math.floor(x), 1e-12), 1.0 - 1e-12)


@jitable
def latent_weight(stability: float, distance: float, known: bool, state: Any) -> float:
    """Return 1/λ, λ drawn given (X − mu)²/(4σ²) = `distance`, or a priori if mu is not `known`."""
    if stability == 2.0:
        return 1.0
    if known and distance > FAR:
        # λ given X tends to an inverse gamma law with shape (1 + stability)/2 and rate `distance`
        return 0.5 * (1.0 + stability) / distance
    distance = max(distance, 1e-9)
    weight = 1.0
    for _ in range(MAX_TRIES):
        j = state.own.draws[0] + 1.0
        state.own.draws[0] = j
        scale = positive_stable(
            0.5 * stability, _kronecker(j, 0.8191725133961645), _kronecker(j, 0.6710436067037893)
        )
        weight = 1.0 / scale
        if not known:
            break
        # N(X; mu, 2 σ² λ) as a function of λ is largest at λ = 2·distance
        ratio = 2.0 * distance * weight
        accept = math.sqrt(ratio) * math.exp(0.5 - 0.5 * ratio)
        if _kronecker(j, 0.5497004779019703) < accept:
            break
    return weight


def _stable_update(spec: Any, state: Any, arm: int, reward: float) -> None:
    observe(state, arm, reward)
    if reward == 0.0:
        return
    weight = state.own.weight[arm]
    known = weight > 0.0
    centre = state.own.weighted[arm] / weight if known else reward
    distance = (reward - centre) * (reward - centre) / (4.0 * spec.sigma * spec.sigma)
    new = latent_weight(spec.stability, distance, known, state)
    state.own.weight[arm] += new
    state.own.weighted[arm] += new * reward


def _stable_scores(spec: Any, state: Any, rng: Any, out: Any) -> None:
    top = -np.inf
    for k in range(out.size):
        nonzero = state.nonzero[k]
        if nonzero > 0.0:
            prob = rng.beta(spec.alpha + nonzero, spec.beta + state.pulls[k] - nonzero)
            weight = state.own.weight[k]
            mean = (
                state.own.weighted[k] / weight
                + spec.sigma * math.sqrt(2.0 / weight) * rng.standard_normal()
            )
            top = max(top, mean)
            out[k] = prob * mean
    sample_unseen(state, spec.alpha, spec.beta, spec.unseen, top, rng, out)


register(
    ZIStableTS,
    own=Latent,
    scores=_stable_scores,
    update=_stable_update,
    randomized=True,
)
