"""`ZIUCB` and `ZITS`: the paper's policies for zero-inflated generalized linear bandits."""

from __future__ import annotations

import math
from typing import Any

from zib.contextual.links import smallest_slope, value
from zib.contextual.models import SCORE, noise, radius
from zib.contextual.policy import (
    KEPT,
    LINK,
    MAGNITUDE,
    Parts,
    geometry,
    learn_parts,
    n_actions,
    new_clock,
    new_parts,
    play_at_random,
    random_rounds,
    register_policy,
    score_moments,
)
from zib.core.registry import borrowing
from zib.core.spec import REQUIRED, Spec, choice, number_or, optional, positive, real, whole
from zib.stats.design import draw_normal, linear_forms, quadratic_forms
from zib.theory.contextual import contextual_radius_printed as glm_radius
from zib.theory.contextual import contextual_spread_scalar as ts_scale
from zib.theory.products import signed_product

MEAN, PRINTED = 0, 1
HALF = 0.5  # sub-Gaussian size of a Bernoulli variable


class _PaperPolicy(Spec):
    horizon: float = real(low=2)
    sigma: float | None = optional(positive(), default=REQUIRED)
    link: Any = LINK
    magnitude: Any = MAGNITUDE
    ridge: float = positive(default=1.0)
    bound: float = positive(default=1.0)
    scale: float | str = number_or("calibrated", positive(), default=1.0)
    index: str = choice(("mean", "printed"), default="mean")  # type: ignore[assignment]
    random_rounds: int | None = optional(whole(low=0), default=None)
    memory: int = KEPT


# Where compiled code finds the field `index`: by name, on a GPU, it would find a method of tuples.
_INDEX = _PaperPolicy._fields.index("index")


class ZIUCB(_PaperPolicy):
    """UCB for zero-inflated generalized linear bandits (Algorithms 2 and B.3).

    Parameters
    ----------
    horizon
        Number of rounds T the confidence level δ = 1/T is made for (≥ 2).
    sigma
        Sub-Gaussian size σ of the noise of non-zero rewards; None estimates it.
    link
        Link h of the occurrence, by name (``"logit"``, ``"probit"``, ``"cauchit"``, ``"cloglog"``,
        ``"log"``) or as a registered link.
    magnitude
        Model of the non-zero rewards: ``"ridge"`` (default), ``"huber"`` or ``"median_of_means"``
        for heavy tails, or `Ridge`,
        `LeastSquares`, `Huber`, `MedianOfMeans`.
    ridge
        λ of both design matrices (> 0).
    bound
        Radius of the balls the coefficients are confined to. The paper assumes 1, with features of
        norm at most 1; κ, the smallest slope of the link over it, enters the radius.
    scale
        Factor of the radii. ``"calibrated"``: those for one action at one time, σ√(2 log T) and
        √(2 log T)/(2κ), instead of the paper's for all directions and times at once.
    index
        ``"mean"`` (default): [h(w'θ̂) + U_all]·g(z'β̂ + U_nonzero), the first factor within [0, 1]
        and paired with its lower bound where the second is negative. ``"printed"``: the product of
        the upper bounds of both *linear predictors*, as in Algorithm B.3; two negative factors then
        score high.
    random_rounds
        Rounds τ played at random at the start; max(50, 2·d, 2·q) unless given.
    memory
        Observations kept for refitting (≥ 256); older ones are summarised.

    Notes
    -----
    θ̂ and β̂ solve the score equations Σ(Y − h(w'θ))w = λθ and the ridge regression of the non-zero
    rewards. U_nonzero = ρ_X‖z‖ in V⁻¹ and U_all = ρ_Y‖w‖ in U⁻¹, where
    ρ_X = (σ/κ_g)√(4 log T + d log(1 + t/(λd))) and ρ_Y = (1/κ_h)√(4 log T + q log(1 + t/(λq))).
    Valid simultaneously over time under the paper's assumptions if σ is not small next to √λ·bound
    (`zib.theory.contextual_radius` has the condition), and far too wide: see `JointUCB`. As an
    upper bound of h(w'θ), p̂ + U_all needs a link no steeper than 1, as all of ours are. The radius
    for heavy tails is that of `Huber` or `MedianOfMeans`.

    With ``index="printed"`` four things still differ from Algorithm B.3. The score equations have
    the ridge on their right side, where 0 is printed: without it they have no solution in the first
    rounds. An estimate that leaves the ball is the best one in it, where no solution is printed.
    Between refits estimates move by single Newton steps. And τ is not the printed one, which
    depends on constants that nobody knows.

    Examples
    --------
    >>> ZIUCB(horizon=1000, sigma=1.0, link="probit").link
    StandardLink(name='probit')
    """

    label = "ZI-UCB"


class ZITS(_PaperPolicy):
    """Thompson sampling for zero-inflated generalized linear bandits (Algorithm B.4).

    Parameters
    ----------
    horizon, sigma, link, magnitude, ridge, bound, random_rounds, memory
        As for `ZIUCB`.
    scale
        Factor of the spread. ``"calibrated"``: σ for the magnitude and 1/(2κ) for the occurrence,
        the spread of the estimates themselves.
    index
        ``"mean"`` (default): h(w'θ̃)·g(z'β̃). ``"printed"``: the product of the linear predictors.

    Notes
    -----
    β̃ ~ N(β̂, ϱ²V⁻¹), θ̃ ~ N(θ̂, ϱ²U⁻¹) with the paper's ϱ² = 24σ²d·log(T)²/K² (σ = 1 for the
    occurrence), K the number of actions of the round. The factor 1/K² is the paper's and has no
    theory behind it.

    With ``index="printed"`` this still differs from Algorithm B.4 as `ZIUCB` does from B.3, and in
    one more thing: both vectors are drawn in every round, where B.4 draws β̃ only after a non-zero
    reward and uses it until the next one.
    """

    label = "ZI-TS"


def _init(spec: Any, d: int, q: int) -> Parts:
    clock = new_clock(random_rounds(spec.random_rounds, d, q))
    return new_parts(spec, d, q, clock=clock, plain=True, samples=isinstance(spec, ZITS))


@borrowing
def _update(spec: Any, state: Any, arm: int, z: Any, w: Any, reward: float) -> None:
    learn_parts(spec, state, SCORE, z, w, reward)


@borrowing
def _ucb_radii(spec: Any, state: Any) -> tuple[float, float]:
    """Return ρ_X and ρ_Y."""
    log_horizon = math.log(spec.horizon)
    kappa_y = smallest_slope(spec.link, spec.bound)
    if math.isnan(spec.scale):
        root = math.sqrt(2.0 * log_horizon)
        sigma = noise(spec.magnitude, spec.sigma, state.magnitude)
        kappa_x = smallest_slope(spec.magnitude.link, spec.bound)
        return sigma * root / kappa_x, HALF * root / kappa_y
    t = state.clock.rounds[0]
    q = float(state.occurrence.coef.size)
    radius_x = radius(spec.magnitude, spec, state.magnitude, t)
    radius_y = glm_radius(log_horizon, q, t, spec.ridge, 1.0, kappa_y)
    return spec.scale * radius_x, spec.scale * radius_y


@borrowing
def _ucb_scores(
    spec: Any, state: Any, arms: Any, z: Any, w: Any, rng: Any, work: Any, out: Any
) -> None:
    if play_at_random(state, out):
        return
    n = out.size
    eta, width_y, zeta, width_x = work[0][:n], work[1][:n], work[2][:n], work[3][:n]
    linear_forms(state.occurrence.coef, w, eta)
    quadratic_forms(geometry(state.occurrence).inverse, w, work[4], width_y)
    linear_forms(state.magnitude.coef, z, zeta)
    quadratic_forms(geometry(state.magnitude).inverse, z, work[4], width_x)
    radius_x, radius_y = _ucb_radii(spec, state)
    for k in range(n):
        bonus_x = radius_x * math.sqrt(width_x[k])
        bonus_y = radius_y * math.sqrt(width_y[k])
        if spec[_INDEX] == PRINTED:
            out[k] = (zeta[k] + bonus_x) * (eta[k] + bonus_y)
        else:
            prob = min(value(spec.link, eta[k]), 1.0)
            out[k] = signed_product(
                value(spec.magnitude.link, zeta[k] + bonus_x),
                max(prob - bonus_y, 0.0),
                min(prob + bonus_y, 1.0),
            )


@borrowing
def _ts_scores(
    spec: Any, state: Any, arms: Any, z: Any, w: Any, rng: Any, work: Any, out: Any
) -> None:
    if play_at_random(state, out):
        return
    n = out.size
    d, q = state.magnitude.coef.size, state.occurrence.coef.size
    sigma = noise(spec.magnitude, spec.sigma, state.magnitude)
    if math.isnan(spec.scale):
        scale_x = sigma
        scale_y = HALF / smallest_slope(spec.link, spec.bound)
    else:
        log_horizon = math.log(spec.horizon)
        actions = n_actions(state, out)
        scale_x = spec.scale * ts_scale(log_horizon, float(d), actions, sigma, log_horizon)
        scale_y = spec.scale * ts_scale(log_horizon, float(q), actions, 1.0, log_horizon)
    beta, theta = work[0][:d], work[1][:q]
    draw_normal(state.magnitude.coef, geometry(state.magnitude), scale_x, rng, beta)
    draw_normal(state.occurrence.coef, geometry(state.occurrence), scale_y, rng, theta)
    eta = work[2][:n]
    linear_forms(theta, w, eta)
    linear_forms(beta, z, out)
    for k in range(n):
        if spec[_INDEX] == PRINTED:
            out[k] *= eta[k]
        else:
            out[k] = min(value(spec.link, eta[k]), 1.0) * value(spec.magnitude.link, out[k])


register_policy(ZIUCB, init=_init, scores=_ucb_scores, update=_update, moments=score_moments)
register_policy(
    ZITS,
    init=_init,
    scores=_ts_scores,
    update=_update,
    moments=score_moments,
    randomized=True,
)
