"""`Naive` and `Integrated`: what the paper compares its contextual policies with."""

from __future__ import annotations

import math
from typing import Any, ClassVar, NamedTuple

import numpy as np

from zib.contextual.fit import learn
from zib.contextual.links import smallest_slope, value
from zib.contextual.models import Linear, Model, Product, new_model, residual_size
from zib.contextual.policy import (
    COVARIANCE,
    ETA,
    ETA_VARIANCE,
    KEPT,
    LINK,
    ZETA,
    ZETA_VARIANCE,
    Clock,
    n_actions,
    new_clock,
    play_at_random,
    random_rounds,
    register_policy,
)
from zib.core.registry import borrowing
from zib.core.spec import REQUIRED, Spec, choice, optional, positive, real
from zib.core.state import Floats
from zib.stats.design import draw_normal, linear_forms, multiply, quadratic_forms
from zib.theory.contextual import contextual_radius_printed as glm_radius
from zib.theory.contextual import contextual_spread_scalar as ts_scale

UCB, TS = 0, 1
PRINTED, FULL = 0, 1


class _Baseline(Spec):
    horizon: float = real(low=2)
    sigma: float | None = optional(positive(), default=REQUIRED)
    kind: str = choice(("ucb", "ts"), default="ucb")
    ridge: float = positive(default=1.0)
    scale: float = real(low=0, default=1.0)
    radius: str = choice(("printed", "full"), default="printed")
    noun: ClassVar[str]

    @property
    def samples(self) -> bool:
        """Whether the policy is Thompson sampling."""
        return bool(self.parameters()["kind"] == "ts")

    @property
    def label(self) -> str:
        """A short name for figures and tables."""
        return f"{self.noun} TS" if self.samples else f"{self.noun} UCB"


class OnePart(NamedTuple):
    """One model of the reward itself, the clock, and room to put two feature vectors in one."""

    model: Model
    clock: Clock
    row: Floats


@borrowing
def _bonus(spec: Any, radius: float) -> float:
    """Return the factor of the width: printed is the *root* of the radius."""
    bonus: float = spec.scale * (math.sqrt(radius) if spec.radius == PRINTED else radius)
    return bonus


# ----------------------------------------------------------------------------------------- naive


class Naive(_Baseline):
    """Linear bandit on the reward itself, blind to its zeros (the paper's misspecified baseline).

    Parameters
    ----------
    horizon
        Number of rounds T; δ = 1/T.
    sigma
        Size of the noise of non-zero rewards, as the paper gives it; None estimates the noise of
        the reward.
    kind
        ``"ucb"`` or ``"ts"``.
    ridge
        λ of the design matrix (> 0).
    scale
        Factor of the width, or of the spread.
    radius
        ``"printed"`` (default): the width is √ρ_X·‖z‖, the root of the radius, as the paper prints
        it for this baseline. ``"full"``: ρ_X·‖z‖, which is LinUCB.

    Notes
    -----
    Ridge regression of R on z over all rounds; the occurrence features are not used. r = z'β is
    wrong for every link but the identity, and the paper says that regret therefore grows linearly.
    How far r is from linear decides. In the setting of figure 3 a linear function explains 98 to
    99 % of the variance of r and the measured regret is sublinear, at most t^0.66 up to T = 20 000;
    on the synthetic loan book, T = 50 000, it is linear.
    """

    noun = "naive"
    looks = {"naive UCB": "#E69F00 ^ dashed", "naive TS": "#999933 v dashdot"}


def _naive_init(spec: Naive, d: int, q: int) -> OnePart:
    model = new_model(d, ridge=spec.ridge, samples=spec.samples)
    return OnePart(model, new_clock(random_rounds(math.nan, d, 0)), np.zeros(0))


@borrowing
def _naive_update(spec: Any, state: Any, arm: int, z: Any, w: Any, reward: float) -> None:
    state.clock.rounds[0] += 1.0
    learn(Linear(0.0), state.model, z, reward)


@borrowing
def _naive_scores(
    spec: Any, state: Any, arms: Any, z: Any, w: Any, rng: Any, work: Any, out: Any
) -> None:
    if play_at_random(state, out):
        return
    d = state.model.coef.size
    log_horizon = math.log(spec.horizon)
    sigma = residual_size(spec.sigma, state.model)
    if spec.kind == TS:
        spread = ts_scale(log_horizon, float(d), n_actions(state, out), sigma, log_horizon)
        beta = work[0][:d]
        draw_normal(state.model.coef, state.model.curvature, spec.scale * spread, rng, beta)
        linear_forms(beta, z, out)
        return
    width = work[0][: out.size]
    linear_forms(state.model.coef, z, out)
    quadratic_forms(state.model.curvature.inverse, z, work[1], width)
    radius = glm_radius(log_horizon, float(d), state.clock.rounds[0], spec.ridge, sigma, 1.0)
    bonus = _bonus(spec, radius)
    for k in range(out.size):
        out[k] += bonus * math.sqrt(width[k])


@borrowing
def _naive_moments(spec: Any, state: Any, arms: Any, z: Any, w: Any, work: Any, out: Any) -> None:
    linear_forms(state.model.coef, z, out[ZETA])
    quadratic_forms(state.model.curvature.inverse, z, work[0], out[ZETA_VARIANCE])
    sigma = residual_size(np.nan, state.model)  # the noise of the reward, zeros and all
    for k in range(out.shape[1]):
        out[ETA, k] = np.nan
        out[ETA_VARIANCE, k] = np.nan
        out[ZETA_VARIANCE, k] *= sigma * sigma
        out[COVARIANCE, k] = 0.0


register_policy(
    Naive,
    init=_naive_init,
    scores=_naive_scores,
    update=_naive_update,
    moments=_naive_moments,
    randomized=lambda spec: spec.samples,
)


# ------------------------------------------------------------------------------------ integrated


class Integrated(_Baseline):
    """One nonlinear regression of the reward, R ≈ z'β·h(w'θ) (the paper's integrated baseline).

    Parameters
    ----------
    horizon, sigma, ridge, scale
        As for `Naive`.
    link
        Link h of the occurrence, by name or as a registered link.
    kind
        ``"ucb"`` or ``"ts"``.
    bound
        Radius of the balls β and θ are confined to.
    radius
        ``"printed"`` (default): width √max(ρ_X, ρ_Y)·‖(z, w)‖ in W⁻¹, as the paper prints it.
        ``"full"``: without the root.
    memory
        Observations kept for refitting (≥ 256); older ones are summarised.

    Notes
    -----
    Least squares over both coefficient vectors at once, by Gauss–Newton steps; W = λI + Σ(z, w)(z,
    w)'. The model is right, but whether a zero is a small magnitude or no occurrence is not used,
    so it learns more slowly than two models do. The printed width is not scaled like the reward.
    """

    link: Any = LINK
    bound: float = positive(default=1.0)
    memory: int = KEPT
    noun = "integrated"
    looks = {"integrated UCB": "#D55E00 P", "integrated TS": "#CC79A7 X dashdot"}


def _integrated_init(spec: Integrated, d: int, q: int) -> OnePart:
    model = new_model(
        d + q,
        ridge=spec.ridge,
        bound=spec.bound,
        memory=spec.memory,
        plain=True,
        samples=spec.samples,
        split=d,
    )
    return OnePart(model, new_clock(random_rounds(math.nan, d, q)), np.zeros(d + q))


@borrowing
def _integrated_update(spec: Any, state: Any, arm: int, z: Any, w: Any, reward: float) -> None:
    state.clock.rounds[0] += 1.0
    for i in range(z.size):
        state.row[i] = z[i]
    for i in range(w.size):
        state.row[z.size + i] = w[i]
    learn(Product(spec.link, z.size), state.model, state.row, reward)


@borrowing
def _stacked_quadratic(matrix: Any, z: Any, w: Any, d: int, q: int, work: Any, out: Any) -> None:
    """Write (z, w)'A(z, w) for every action, block by block."""
    n = out.size
    for k in range(n):
        out[k] = 0.0
    for i in range(d + q):
        for k in range(n):
            work[k] = 0.0
        for j in range(i):
            entry = 2.0 * matrix[i, j]
            if j < d:
                for k in range(n):
                    work[k] += entry * z[j, k]
            else:
                for k in range(n):
                    work[k] += entry * w[j - d, k]
        diagonal = matrix[i, i]
        for k in range(n):
            x = z[i, k] if i < d else w[i - d, k]
            out[k] += x * (work[k] + diagonal * x)
    for k in range(n):
        out[k] = max(out[k], 0.0)


@borrowing
def _integrated_scores(
    spec: Any, state: Any, arms: Any, z: Any, w: Any, rng: Any, work: Any, out: Any
) -> None:
    if play_at_random(state, out):
        return
    n = out.size
    d = z.shape[0]
    q = w.shape[0]
    log_horizon = math.log(spec.horizon)
    sigma = residual_size(spec.sigma, state.model)
    coef = work[0][: d + q]
    if spec.kind == TS:
        actions = n_actions(state, out)
        spread = max(
            ts_scale(log_horizon, float(d), actions, sigma, log_horizon),
            ts_scale(log_horizon, float(q), actions, 1.0, log_horizon),
        )
        draw_normal(state.model.coef, state.model.design, spec.scale * spread, rng, coef)
    else:
        for i in range(d + q):
            coef[i] = state.model.coef[i]
    eta = work[1][:n]
    linear_forms(coef[:d], z, out)
    linear_forms(coef[d:], w, eta)
    for k in range(n):
        out[k] *= min(value(spec.link, eta[k]), 1.0)
    if spec.kind == UCB:
        width = work[1][:n]
        _stacked_quadratic(state.model.design.inverse, z, w, d, q, work[2], width)
        t = state.clock.rounds[0]
        kappa = smallest_slope(spec.link, spec.bound)
        radius = max(
            glm_radius(log_horizon, float(d), t, spec.ridge, sigma, 1.0),
            glm_radius(log_horizon, float(q), t, spec.ridge, 1.0, kappa),
        )
        bonus = _bonus(spec, radius)
        for k in range(n):
            out[k] += bonus * math.sqrt(width[k])


@borrowing
def _solve(inverse: Any, columns: Any, k: int, first: int, row: Any, solved: Any) -> None:
    """Write A⁻¹x, where x holds column k from the coefficient `first` on and is 0 elsewhere."""
    for i in range(row.size):
        row[i] = 0.0
    for i in range(columns.shape[0]):
        row[first + i] = columns[i, k]
    multiply(inverse, row, solved)


@borrowing
def _times(solved: Any, columns: Any, k: int, first: int) -> float:
    """Return the product of column k with the entries of `solved` from `first` on."""
    total = 0.0
    for i in range(columns.shape[0]):
        total += solved[first + i] * columns[i, k]
    return total


@borrowing
def _integrated_moments(
    spec: Any, state: Any, arms: Any, z: Any, w: Any, work: Any, out: Any
) -> None:
    n = out.shape[1]
    d = z.shape[0]
    coef = state.model.coef
    inverse = state.model.curvature.inverse
    linear_forms(coef[:d], z, out[ZETA])
    linear_forms(coef[d:], w, out[ETA])
    variance = residual_size(np.nan, state.model)
    variance *= variance
    row, solved = work[0][: coef.size], work[1][: coef.size]
    for k in range(n):
        _solve(inverse, z, k, 0, row, solved)
        out[ZETA_VARIANCE, k] = variance * _times(solved, z, k, 0)
        out[COVARIANCE, k] = variance * _times(solved, w, k, d)
        _solve(inverse, w, k, d, row, solved)
        out[ETA_VARIANCE, k] = variance * _times(solved, w, k, d)


register_policy(
    Integrated,
    init=_integrated_init,
    scores=_integrated_scores,
    update=_integrated_update,
    moments=_integrated_moments,
    randomized=lambda spec: spec.samples,
)
