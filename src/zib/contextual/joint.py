"""`JointUCB` and `LaplaceTS`: both parts' uncertainty in one number, and no radius to choose.

By the delta method the estimate h(w'θ̂)·g(z'β̂) of an action's mean reward has the variance
p²·Var(mu) + mu²·Var(p) + Var(mu)·Var(p), where Var(p) = h'²·w'I⁻¹w with the Fisher information I of
the occurrence. No union bound over the two parts, no smallest slope κ, no norm to know. `LaplaceTS`
draws the coefficients from the matching Gaussian posterior.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from zib.contextual.estimators import BERNOULLI, GLM, MedianOfMeans, resolve_magnitude
from zib.contextual.fit import MEMORY, learn, new_model
from zib.contextual.learned_ridge import Scale, learn_scale, new_scale
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
from zib.core import validate as check
from zib.core.kernel import borrowing
from zib.stats.design import draw_normal, linear_forms

LARGEST = 1e100  # beyond it products overflow; no reward is larger
LEARNED = 1


class _Fields(NamedTuple):
    sigma: float
    link: Any
    magnitude: Any
    ridge: float
    bound: float
    scale: float
    memory: int


class _LaplaceFields(NamedTuple):
    sigma: float
    link: Any
    magnitude: Any
    ridge: float
    bound: float
    scale: float
    memory: int
    prior: int


class _JointPolicy(ContextualSpec):
    __slots__ = ()
    bound: float

    def parameters(self) -> dict[str, Any]:
        """Return the keyword arguments that rebuild this spec."""
        out = super().parameters()
        out["bound"] = None if math.isinf(self.bound) else self.bound
        return out


def _checked(
    sigma: object,
    link: Any,
    magnitude: Any,
    ridge: object,
    bound: object,
    scale: object,
    memory: object,
) -> _Fields:
    return _Fields(
        check_sigma(sigma),
        resolve_link(link),
        resolve_magnitude(magnitude),
        check_ridge(ridge),
        check_bound(bound),
        check.real("scale", scale, low=0),
        check_memory(memory),
    )


class JointUCB(_JointPolicy, _Fields):
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
    ) -> JointUCB:
        """Check everything."""
        return super().__new__(cls, *_checked(sigma, link, magnitude, ridge, bound, scale, memory))


class LaplaceTS(_JointPolicy, _LaplaceFields):
    """Thompson sampling from the Gaussian approximation of the posterior of both parts.

    Parameters
    ----------
    sigma, link, magnitude, ridge, bound, memory
        As for `JointUCB`.
    scale
        Factor of the posterior's standard deviations.
    prior
        ``"fixed"``: `ridge` is the prior precision of all coefficients. ``"learned"``: only to
        begin with; the precision of either model is then learned from the data (empirical Bayes).
        Not with the median of means.

    Notes
    -----
    θ̃ ~ N(θ̂, I⁻¹) with the Fisher information I at the penalised maximum likelihood estimate,
    β̃ ~ N(β̂, σ²V⁻¹); the action with the largest h(w'θ̃)·g(z'β̃) is played.

    A learned precision maximises the marginal likelihood (MacKay's fixed point γ/‖c‖², with γ the
    number of coefficients that the data determine), under a weak prior around `ridge` worth one
    coefficient; with d coefficients it is at most (1 + d)·ridge. It is fitted when the number of
    observations has grown by a quarter. Features that never vary, such as a column of ones, keep
    `ridge`. It pays where features are many and matter little.

    Examples
    --------
    >>> LaplaceTS(sigma=1.0).label
    'Laplace-TS'
    """

    __slots__ = ()
    choices: ClassVar[dict[str, tuple[str, ...]]] = {"prior": ("fixed", "learned")}
    default_label = "Laplace-TS"

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
        prior: str = "fixed",
    ) -> LaplaceTS:
        """Check everything."""
        fields = _checked(sigma, link, magnitude, ridge, bound, scale, memory)
        learns = check.choice("prior", prior, cls.choices["prior"])
        if learns == LEARNED and isinstance(fields.magnitude, MedianOfMeans):
            raise check.InvalidParameterError(
                "`prior`='learned' needs a model with one posterior; got "
                "magnitude='median_of_means'"
            )
        return super().__new__(cls, *fields, learns)

    @property
    def label(self) -> str:
        """A short name for figures and tables."""
        return f"{self.default_label} learned" if self.prior == LEARNED else self.default_label


class LaplaceParts(NamedTuple):
    """`Parts`, and the scales of both priors."""

    occurrence: Any
    magnitude: Any
    clock: NDArray[np.float64]
    occurrence_scale: Scale
    magnitude_scale: Scale


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


def _init_laplace(spec: LaplaceTS, d: int, q: int) -> LaplaceParts:
    learns = spec.prior == LEARNED
    return LaplaceParts(
        *_init(spec, d, q),
        new_scale(q if learns else 0, spec.ridge),
        new_scale(d if learns else 0, spec.ridge),
    )


@borrowing
def _update(spec: Any, state: Any, arm: int, z: Any, w: Any, reward: float) -> None:
    state.clock[ROUNDS] += 1.0
    learn(GLM(spec.link, BERNOULLI), state.occurrence, w, 1.0 if reward != 0.0 else 0.0)
    if reward != 0.0:
        learn(spec.magnitude, state.magnitude, z, reward)


@borrowing
def _update_laplace(spec: Any, state: Any, arm: int, z: Any, w: Any, reward: float) -> None:
    _update(spec, state, arm, z, w, reward)
    if spec.prior == LEARNED:
        learn_scale(
            GLM(spec.link, BERNOULLI), state.occurrence, state.occurrence_scale, w, spec.ridge, 1.0
        )
        if reward != 0.0:
            sigma = noise(spec.sigma, state.magnitude)
            learn_scale(
                spec.magnitude,
                state.magnitude,
                state.magnitude_scale,
                z,
                spec.ridge,
                sigma * sigma,
            )


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
    init=_init_laplace,
    scores=_ts_scores,
    update=_update_laplace,
    moments=_moments,
    randomized=True,
)
