"""`JointUCB` and `LaplaceTS`: both parts' uncertainty in one number, and no radius to choose.

By the delta method the estimate h(w'θ̂)·g(z'β̂) of an action's mean reward has the variance
p²·Var(mu) + mu²·Var(p) + Var(mu)·Var(p), where Var(p) = h'²·w'I⁻¹w with the Fisher information I of
the occurrence. No union bound over the two parts, no smallest slope κ, no norm to know. `LaplaceTS`
draws the coefficients from the matching Gaussian posterior.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from zib import _validate as check
from zib._kernel import borrowing
from zib.contextual.estimators import BERNOULLI, GLM, resolve_magnitude
from zib.contextual.fit import MEMORY, learn, new_model
from zib.contextual.link import derivative, value
from zib.contextual.links import resolve_link
from zib.contextual.parts import (
    ROUNDS,
    ContextualSpec,
    Parts,
    check_bound,
    check_memory,
    check_ridge,
    check_sigma,
    new_clock,
    new_magnitude,
    noise,
    predictors,
)
from zib.contextual.policy import (
    COVARIANCE,
    ETA,
    ETA_VARIANCE,
    ZETA,
    ZETA_VARIANCE,
    register_policy,
)
from zib.stats.design import draw_normal, linear_forms

LARGEST = 1e100  # beyond it products overflow; no reward is larger


class _Fields(NamedTuple):
    sigma: float
    link: Any
    magnitude: Any
    ridge: float
    bound: float
    scale: float
    memory: int


class _JointPolicy(ContextualSpec, _Fields):
    __slots__ = ()

    def __new__(
        cls,
        *,
        sigma: float | None = None,
        link: Any = "logit",
        magnitude: Any = "ridge",
        ridge: float = 1.0,
        bound: float | None = None,
        scale: float = 1.0,
        memory: int = MEMORY,
    ) -> Any:
        """Check everything."""
        return super().__new__(
            cls,
            check_sigma(sigma),
            resolve_link(link),
            resolve_magnitude(magnitude),
            check_ridge(ridge),
            check_bound(bound),
            check.real("scale", scale, low=0),
            check_memory(memory),
        )

    def parameters(self) -> dict[str, Any]:
        """Return the keyword arguments that rebuild this spec."""
        out = super().parameters()
        out["bound"] = None if math.isinf(self.bound) else self.bound
        return out


class JointUCB(_JointPolicy):
    """UCB on the mean reward itself, with the joint uncertainty of both parts.

    Parameters
    ----------
    sigma
        Standard deviation of the noise of non-zero rewards; None (default) estimates it.
    link
        Link h of the occurrence, by name or as a registered link.
    magnitude
        Model of the non-zero rewards: ``"ridge"`` (default), ``"huber"``, ``"median_of_means"``, or
        `Ridge`, `LeastSquares`, `Huber`, `MedianOfMeans`.
    ridge
        Precision of the Gaussian prior of the coefficients (> 0), in units of the noise for the
        magnitude.
    bound
        Radius of the balls the coefficients are confined to; None (default) for no ball.
    scale
        Factor of the width; 0 plays the largest estimate.
    memory
        Observations kept for refitting (≥ 256); older ones are summarised.

    Notes
    -----
    index = p̂·mû + scale·√(log(1 + t))·√(p̂²·V_mu + mû²·V_p + V_mu·V_p), the last term for actions
    about which little is known. The Gaussian approximation is the assumption; there is no theorem.

    Examples
    --------
    >>> JointUCB(link="probit")
    JointUCB(sigma=None, link='probit', magnitude='ridge', ridge=1.0, bound=None, scale=1.0,
             memory=4096)
    """

    __slots__ = ()
    default_label = "Joint-UCB"


class LaplaceTS(_JointPolicy):
    """Thompson sampling from the Gaussian approximation of the posterior of both parts.

    Parameters
    ----------
    sigma, link, magnitude, ridge, bound, memory
        As for `JointUCB`.
    scale
        Factor of the posterior's standard deviations.

    Notes
    -----
    θ̃ ~ N(θ̂, I⁻¹) with the Fisher information I at the penalised maximum likelihood estimate,
    β̃ ~ N(β̂, σ²V⁻¹); the action with the largest h(w'θ̃)·g(z'β̃) is played.

    Examples
    --------
    >>> LaplaceTS(sigma=1.0).label
    'Laplace-TS'
    """

    __slots__ = ()
    default_label = "Laplace-TS"


def _init(spec: Any, d: int, q: int) -> Parts:
    samples = isinstance(spec, LaplaceTS)
    return Parts(
        new_model(q, ridge=spec.ridge, bound=spec.bound, memory=spec.memory, samples=samples),
        new_magnitude(
            spec.magnitude,
            d,
            ridge=spec.ridge,
            bound=spec.bound,
            memory=spec.memory,
            plain=False,
            samples=samples,
        ),
        new_clock(),
    )


@borrowing
def _update(spec: Any, state: Any, arm: int, z: Any, w: Any, reward: float) -> None:
    state.clock[ROUNDS] += 1.0
    learn(GLM(spec.link, BERNOULLI), state.occurrence, w, 1.0 if reward != 0.0 else 0.0)
    if reward != 0.0:
        learn(spec.magnitude, state.magnitude, z, reward)


@borrowing
def _moments(spec: Any, state: Any, arms: Any, z: Any, w: Any, work: Any, out: Any) -> None:
    n = out.shape[1]
    predictors(state, z, w, n, work[0], out)
    sigma = noise(spec.sigma, state.magnitude)
    for k in range(n):
        out[ZETA_VARIANCE, k] *= sigma * sigma
        out[COVARIANCE, k] = 0.0


@borrowing
def _ucb_scores(
    spec: Any, state: Any, arms: Any, z: Any, w: Any, rng: Any, work: Any, out: Any
) -> None:
    n = out.size
    sigma = noise(spec.sigma, state.magnitude)
    width = spec.scale * math.sqrt(math.log1p(state.clock[ROUNDS]))
    predictors(state, z, w, n, work[5], work)
    for k in range(n):
        eta, zeta = work[ETA, k], work[ZETA, k]
        prob = min(value(spec.link, eta), 1.0)
        slope_y = derivative(spec.link, eta)
        mu = min(max(value(spec.magnitude.link, zeta), -LARGEST), LARGEST)
        slope_x = sigma * min(derivative(spec.magnitude.link, zeta), LARGEST)
        var_p = slope_y * slope_y * work[ETA_VARIANCE, k]
        var_mu = min(slope_x * slope_x * work[ZETA_VARIANCE, k], LARGEST * LARGEST)
        variance = prob * prob * var_mu + mu * mu * var_p + var_mu * var_p
        out[k] = prob * mu + width * math.sqrt(variance)


@borrowing
def _ts_scores(
    spec: Any, state: Any, arms: Any, z: Any, w: Any, rng: Any, work: Any, out: Any
) -> None:
    n = out.size
    d, q = state.magnitude.coef.size, state.occurrence.coef.size
    sigma = noise(spec.sigma, state.magnitude)
    beta, theta, eta = work[0][:d], work[1][:q], work[2][:n]
    draw_normal(state.magnitude.coef, state.magnitude.curvature, spec.scale * sigma, rng, beta)
    draw_normal(state.occurrence.coef, state.occurrence.curvature, spec.scale, rng, theta)
    linear_forms(theta, w, eta)
    linear_forms(beta, z, out)
    for k in range(n):
        mu = min(max(value(spec.magnitude.link, out[k]), -LARGEST), LARGEST)
        out[k] = min(value(spec.link, eta[k]), 1.0) * mu


register_policy(JointUCB, init=_init, scores=_ucb_scores, update=_update, moments=_moments)
register_policy(
    LaplaceTS,
    init=_init,
    scores=_ts_scores,
    update=_update,
    moments=_moments,
    randomized=True,
)
