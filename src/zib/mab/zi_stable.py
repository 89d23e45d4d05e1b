"""Thompson sampling for symmetric stable rewards, with one latent scale per observation."""

from __future__ import annotations

import math
from typing import Any, ClassVar, NamedTuple

import numpy as np

from zib.core import validate as check
from zib.core.kernel import jitable, register
from zib.core.spec import Spec
from zib.mab.unseen import resolve_unseen, sample_unseen
from zib.stats.arms import FIRST_FREE, ArmState, new_state, observe

WEIGHT, WEIGHTED = 0, 1  # columns of `cache`: Σ 1/λ_j and Σ X_j/λ_j
DRAWS = FIRST_FREE  # entry of `shared`: how many points of the Kronecker sequence are used up
FAR = 25.0  # (X - mu)² / (4 sigma²) beyond which the tail limit of the posterior of λ is used
MAX_TRIES = 500


class _ZIStableTSFields(NamedTuple):
    stability: float
    sigma: float
    alpha: float
    beta: float
    unseen: float


class ZIStableTS(Spec, _ZIStableTSFields):
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

    __slots__ = ()
    words: ClassVar[dict[str, str | None]] = {"unseen": "pooled"}
    default_label = "ZI-TS stable"

    def __new__(
        cls,
        *,
        sigma: float,
        stability: float = 1.8,
        alpha: float = 1.0,
        beta: float = 1.0,
        unseen: str | float = "pooled",
    ) -> ZIStableTS:
        return super().__new__(
            cls,
            check.real("stability", stability, low=1, high=2, closed="right"),
            check.real("sigma", sigma, low=0, closed="neither"),
            check.real("alpha", alpha, low=0, closed="neither"),
            check.real("beta", beta, low=0, closed="neither"),
            resolve_unseen(unseen),
        )


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
        j = state.shared[DRAWS] + 1.0
        state.shared[DRAWS] = j
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


def _stable_init(spec: ZIStableTS, n_arms: int) -> ArmState:
    return new_state(n_arms, n_cache=2, n_shared=1)


def _stable_update(spec: Any, state: Any, arm: int, reward: float) -> None:
    observe(state, arm, reward)
    if reward == 0.0:
        return
    weight = state.cache[arm, WEIGHT]
    known = weight > 0.0
    centre = state.cache[arm, WEIGHTED] / weight if known else reward
    distance = (reward - centre) * (reward - centre) / (4.0 * spec.sigma * spec.sigma)
    new = latent_weight(spec.stability, distance, known, state)
    state.cache[arm, WEIGHT] += new
    state.cache[arm, WEIGHTED] += new * reward


def _stable_scores(spec: Any, state: Any, rng: Any, out: Any) -> None:
    top = -np.inf
    for k in range(out.size):
        nonzero = state.nonzero[k]
        if nonzero > 0.0:
            prob = rng.beta(spec.alpha + nonzero, spec.beta + state.pulls[k] - nonzero)
            weight = state.cache[k, WEIGHT]
            mean = (
                state.cache[k, WEIGHTED] / weight
                + spec.sigma * math.sqrt(2.0 / weight) * rng.standard_normal()
            )
            top = max(top, mean)
            out[k] = prob * mean
    sample_unseen(state, spec.alpha, spec.beta, spec.unseen, top, rng, out)


register(
    ZIStableTS,
    init=_stable_init,
    scores=_stable_scores,
    update=_stable_update,
    randomized=True,
)
