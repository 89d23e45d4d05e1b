"""`JointUCB` and `LaplaceTS`: both parts' uncertainty in one number, and no radius to choose.

By the delta method the estimate h(w'θ̂)·g(z'β̂) of an action's mean reward has the variance
p²·Var(mu) + mu²·Var(p) + Var(mu)·Var(p), where Var(p) = h'²·w'I⁻¹w with the Fisher information I of
the occurrence. No union bound over the two parts, no smallest slope κ, no norm to know. `LaplaceTS`
draws the coefficients from the matching Gaussian posterior.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from zib.contextual.evidence import note_constants
from zib.contextual.links import derivative, value
from zib.contextual.models import BERNOULLI, GLM, LeastSquares, MedianOfMeans, noise, settle
from zib.contextual.policy import (
    ETA,
    ETA_VARIANCE,
    KEPT,
    LINK,
    MAGNITUDE,
    ZETA,
    ZETA_VARIANCE,
    Clock,
    Parts,
    learn_parts,
    new_clock,
    new_parts,
    predictors,
    register_policy,
    two_part_moments,
)
from zib.core import validate as check
from zib.core.registry import borrowing
from zib.core.spec import Spec, choice, optional, positive, real
from zib.core.state import Floats, Part, scalar, table
from zib.stats.design import cholesky, draw_normal, invert, linear_forms, multiply

LARGEST = 1e100  # beyond it products overflow; no reward is larger
LEARNED = 1


class _JointPolicy(Spec):
    sigma: float | None = optional(positive(), default=None)
    link: Any = LINK
    magnitude: Any = MAGNITUDE
    ridge: float = positive(default=1.0)
    bound: float | None = optional(positive(), default=None)
    scale: float = real(low=0, default=1.0)
    memory: int = KEPT


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

    label = "Joint-UCB"
    looks = {"Joint-UCB": "#882255 h heavy"}


class LaplaceTS(_JointPolicy):
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

    prior: str = choice(("fixed", "learned"), default="fixed")
    looks = {"Laplace-TS": "#332288 D dashdot heavy"}

    def check(self) -> None:
        """Refuse an estimate that is no posterior mode, and a learned prior for several of them."""
        if isinstance(self.magnitude, LeastSquares) and self.magnitude.solves_printed:
            raise check.InvalidParameterError(
                "`magnitude` must be a model with a posterior; got LeastSquares(score='printed')"
            )
        if self.learns_prior and isinstance(self.magnitude, MedianOfMeans):
            raise check.InvalidParameterError(
                "`prior`='learned' needs a model with one posterior; got "
                "magnitude='median_of_means'"
            )

    @property
    def learns_prior(self) -> bool:
        """Whether the prior precision is learned."""
        return bool(self.parameters()["prior"] == "learned")

    @property
    def label(self) -> str:
        """A short name for figures and tables."""
        return "Laplace-TS learned" if self.learns_prior else "Laplace-TS"


def _init(spec: Any, d: int, q: int) -> Parts:
    samples = isinstance(spec, LaplaceTS)
    return new_parts(spec, d, q, clock=new_clock(), plain=False, samples=samples)


@borrowing
def _update(spec: Any, state: Any, arm: int, z: Any, w: Any, reward: float) -> None:
    learn_parts(spec, state, BERNOULLI, z, w, reward)


@borrowing
def _ucb_scores(
    spec: Any, state: Any, arms: Any, z: Any, w: Any, rng: Any, work: Any, out: Any
) -> None:
    n = out.size
    sigma = noise(spec.magnitude, spec.sigma, state.magnitude)
    width = spec.scale * math.sqrt(math.log1p(state.clock.rounds[0]))
    predictors(spec, state, z, w, n, work[5], work)
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
    sigma = noise(spec.magnitude, spec.sigma, state.magnitude)
    beta, theta, eta = work[0][:d], work[1][:q], work[2][:n]
    draw_normal(state.magnitude.coef, state.magnitude.curvature, spec.scale * sigma, rng, beta)
    draw_normal(state.occurrence.coef, state.occurrence.curvature, spec.scale, rng, theta)
    linear_forms(theta, w, eta)
    linear_forms(beta, z, out)
    for k in range(n):
        mu = min(max(value(spec.magnitude.link, out[k]), -LARGEST), LARGEST)
        out[k] = min(value(spec.link, eta[k]), 1.0) * mu


# -------------------------------------------------------------------------------- learned priors
#
# How large are the coefficients of a component model? The prior of a coefficient is N(0, v/ρ), with
# v the variance of the noise (1 for the occurrence) and ρ the precision, `ridge` to begin with.
# Empirical Bayes takes the ρ under which the data are most probable; with the Gaussian
# approximation of the posterior that ρ is MacKay's fixed point ρ = γ·v/‖c‖², where
# γ = Σ(1 − ρ·(A⁻¹)_ii) is the number of coefficients that the data determine and A the curvature,
# ridge included.
#
# Two things keep it from being too sure of itself. ρ has a prior of its own, worth `HYPER`
# coefficients of the size that `ridge` says: ρ = (γ + HYPER)/(‖c‖²/v + HYPER/ridge), so that ρ is
# `ridge` without data and at most (1 + d/HYPER)·ridge with any. And a coefficient of a feature that
# has been the same in every observation, an intercept, keeps `ridge`: how often rewards are zero
# says nothing about how much the other features matter.

HYPER = 1.0
SMALLEST = 1e-6  # of `ridge`
FIRST_FIT, GROWTH = 8.0, 1.25  # observations before the first fit, and between two
FITS, STEPS = 3, 30  # exact solutions per fit, steps of the fixed point between two
CLOSE = 1e-3  # relative change at which a fit ends


class Scale(Part):
    """What is kept about the prior of a model; of size 0 where it is not learned."""

    constant: Floats = table("dim", finite=False)  # the value a feature has always had, else inf
    precision: Floats = table("dim", least=0.0)  # in force, one per coefficient
    shared: Floats = scalar(least=0.0)  # the learned precision of all but intercepts
    next_fit: Floats = scalar(start=FIRST_FIT, least=0.0)  # the number of observations it is due at


class LaplaceParts(NamedTuple):
    """`Parts`, and the scales of both priors."""

    occurrence: Any
    magnitude: Any
    clock: Clock
    occurrence_scale: Scale
    magnitude_scale: Scale


def _new_scale(dim: int, ridge: float) -> Scale:
    return Scale.new({"dim": dim}, precision=np.full(dim, ridge), shared=np.array([ridge]))


def _init_laplace(spec: LaplaceTS, d: int, q: int) -> LaplaceParts:
    sizes = (q, d) if spec.learns_prior else (0, 0)
    return LaplaceParts(*_init(spec, d, q), *(_new_scale(size, spec.ridge) for size in sizes))


@borrowing
def _is_scaled(scale: Any, i: int) -> bool:
    """Whether a coefficient shares the learned precision: all but that of an intercept."""
    return bool(scale.constant[i] == 0.0 or scale.constant[i] == np.inf)


@borrowing
def _put(model: Any, scale: Any, ridge: float, target: Any) -> None:
    """Put the precision in force and move the estimate to the optimum it has then."""
    gram = model.curvature
    for i in range(target.size):
        wanted = scale.shared[0] if _is_scaled(scale, i) else ridge
        more = wanted - scale.precision[i]
        scale.precision[i] = wanted
        gram.matrix[i, i] += more
        if model.anchor.size > 0:
            model.anchor[i, i] += more
    if cholesky(gram.matrix, gram.factor):
        invert(gram.factor, gram.inverse)
        gram.since_rebuild[0] = 0.0
        multiply(gram.inverse, target, model.coef)


@borrowing
def _fixed_point(model: Any, scale: Any, ridge: float, variance: float) -> None:
    """Bring the precision to its fixed point, the curvature of the likelihood held as it is."""
    coef, target = model.coef, model.work[1]
    multiply(model.curvature.matrix, coef, target)  # what the data say, whatever the prior
    _put(model, scale, ridge, target)
    for _ in range(STEPS):
        old = scale.shared[0]
        size = 0.0
        known = 0.0
        for i in range(coef.size):
            if _is_scaled(scale, i):
                size += coef[i] * coef[i]
                known += min(max(1.0 - old * model.curvature.inverse[i, i], 0.0), 1.0)
        new = SMALLEST * ridge
        if size < 1e100 * variance:
            new = max(new, (known + HYPER) / (size / variance + HYPER / ridge))
        if abs(new - old) <= CLOSE * old:
            return
        scale.shared[0] = new
        _put(model, scale, ridge, target)


@borrowing
def _learn_scale(
    estimator: Any, model: Any, scale: Any, x: Any, ridge: float, variance: float
) -> None:
    """Learn the prior precision of a model that has just learned an observation at `x`.

    `variance` is that of the noise.
    """
    count = model.seen[0]
    note_constants(scale.constant, x, count)
    if count < scale.next_fit[0]:
        return
    scale.next_fit[0] = math.floor(GROWTH * count) + 1.0
    for _ in range(FITS):
        before = scale.shared[0]
        _fixed_point(model, scale, ridge, variance)
        settle(estimator, model)
        if abs(scale.shared[0] - before) <= CLOSE * before:
            return


@borrowing
def _update_laplace(spec: Any, state: Any, arm: int, z: Any, w: Any, reward: float) -> None:
    _update(spec, state, arm, z, w, reward)
    if spec.prior == LEARNED:
        glm = GLM(spec.link, BERNOULLI)
        _learn_scale(glm, state.occurrence, state.occurrence_scale, w, spec.ridge, 1.0)
        if reward != 0.0:
            sigma = noise(spec.magnitude, spec.sigma, state.magnitude)
            _learn_scale(
                spec.magnitude,
                state.magnitude,
                state.magnitude_scale,
                z,
                spec.ridge,
                sigma * sigma,
            )


register_policy(JointUCB, init=_init, scores=_ucb_scores, update=_update, moments=two_part_moments)
register_policy(
    LaplaceTS,
    init=_init_laplace,
    scores=_ts_scores,
    update=_update_laplace,
    moments=two_part_moments,
    randomized=True,
)
