"""Radii, sampling spreads and regret of the contextual policies for generalized linear models.

The model: an action has features z and w with norms at most 1. It pays with probability h(w'theta),
and then g(z'beta) plus sub-Gaussian noise of size sigma; beta and theta have norms at most 1 too.
V = ridge I + Σ z z' over the rounds that paid, U = ridge I + Σ w w' over all rounds.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from zib.core.kernel import borrowing
from zib.core.validate import InvalidParameterError, choice, shown
from zib.theory._vectorise import (
    FROM_ONE,
    NONNEGATIVE,
    POSITIVE,
    REAL,
    UNIT_POSITIVE,
    Array,
    log_over,
    number,
    over,
    vectorised,
)
from zib.theory.elementary import log1p

VERSIONS = ("corrected", "printed")
# A logistic link on [-1, 1]: its smallest slope and its smallest value.
LOGIT_SLOPE = math.e / (1.0 + math.e) ** 2
LOGIT_FLOOR = 1.0 / (1.0 + math.e)


@borrowing
def contextual_radius_corrected(
    log_inverse_delta: float,
    dim: float,
    rounds: float,
    ridge: float,
    sigma: float,
    kappa: float,
    norm: float,
) -> float:
    """Return [sigma sqrt(2 log(1/delta) + dim log(1 + rounds/(ridge dim))) + sqrt(ridge) norm]/k.

    k = min(kappa, 1): the penalty has slope 1 whatever the link.
    """
    growth = dim * log1p(rounds / (ridge * dim))
    noise = sigma * math.sqrt(2.0 * log_inverse_delta + growth)
    return (noise + math.sqrt(ridge) * norm) / min(kappa, 1.0)


@borrowing
def contextual_radius_printed(
    log_inverse_delta: float, dim: float, rounds: float, ridge: float, sigma: float, kappa: float
) -> float:
    """Return (sigma/kappa) sqrt(4 log(1/delta) + dim log(1 + rounds/(ridge dim)))."""
    growth = dim * log1p(rounds / (ridge * dim))
    return sigma / kappa * math.sqrt(4.0 * log_inverse_delta + growth)


def contextual_radius(
    rounds: ArrayLike,
    dim: ArrayLike,
    delta: ArrayLike,
    *,
    ridge: ArrayLike = 1.0,
    sigma: ArrayLike = 1.0,
    kappa: ArrayLike = 1.0,
    norm: ArrayLike = 1.0,
    version: str = "corrected",
) -> Any:
    """Return rho, which the norm of beta_hat - beta in V never exceeds, with probability 1 - delta.

    Parameters
    ----------
    rounds
        Observations t >= 0 that went into the estimate.
    dim
        Number of features, >= 1.
    delta
        In (0, 1).
    ridge
        lambda > 0, the multiple of the identity in V and the weight of the penalty.
    sigma
        Size of the noise: that of X for the magnitude part; 1/2 for the occurrence part, since a
        Bernoulli variable is sub-Gaussian with size 1/2 (the text has 1).
    kappa
        Smallest slope of the link over the predictors that the true and the estimated parameter
        can give, > 0; 1 for the identity.
    norm
        A bound for the norm of the true parameter, >= 0. The printed version has no place for it.
    version
        ``"corrected"`` or ``"printed"``.

    Returns
    -------
    float or ndarray
        Corrected: [sigma √(2 log(1/delta) + D) + √lambda norm] / min(kappa, 1), where
        D = dim log(1 + t/(lambda dim)). Printed: (sigma/kappa) √(4 log(1/delta) + D).

    Notes
    -----
    Holds for all t and all directions at once, however the features were chosen from the past:
    |z'(beta_hat - beta)| <= rho √(z'V⁻¹z). Assumes features of norm at most 1, noise that is
    sub-Gaussian given the past *and* given that the action paid, and for beta_hat the solution of
    Σ (y - g(z'b)) z = lambda b. That is the ridge estimate if g is the identity, and in general the
    minimum of a convex function, which may also be taken over a convex set that holds beta.

    The printed radius lacks the bias √lambda norm of the penalty. Its factor 4 in place of 2 makes
    up for that where √lambda norm <= sigma [√(4 log(1/delta) + D) - √(2 log(1/delta) + D)]
    (kappa <= 1); elsewhere it need not cover.

    Examples
    --------
    >>> round(contextual_radius(1000, dim=5, delta=0.01), 3)
    6.977
    >>> round(contextual_radius(1000, dim=5, delta=0.01, version="printed"), 3)
    6.704
    """
    level = log_over(1.0)("delta", delta)
    arguments = (
        level,
        FROM_ONE("dim", dim),
        NONNEGATIVE("rounds", rounds),
        POSITIVE("ridge", ridge),
        POSITIVE("sigma", sigma),
        POSITIVE("kappa", kappa),
    )
    bound = NONNEGATIVE("norm", norm)
    if choice("version", version, VERSIONS) == 1:
        return over(contextual_radius_printed, *arguments)
    return over(contextual_radius_corrected, *arguments, bound)


@borrowing
def contextual_spread_scalar(
    log_inverse_delta: float, dim: float, n_actions: float, sigma: float, log_horizon: float
) -> float:
    """Return sqrt(24 sigma² dim log(1/delta) log(T)) / K, the spread of contextual sampling."""
    return sigma / n_actions * math.sqrt(24.0 * dim * log_inverse_delta * log_horizon)


def contextual_spread(
    dim: ArrayLike,
    delta: ArrayLike,
    horizon: ArrayLike,
    *,
    sigma: ArrayLike = 1.0,
    n_actions: ArrayLike = 1.0,
) -> Any:
    """Return the factor phi of contextual Thompson sampling: beta ~ N(beta_hat, phi² V⁻¹).

    Parameters
    ----------
    dim
        Number of features, >= 1.
    delta
        In (0, 1); the experiments of the text take 1/T.
    horizon
        T >= 1.
    sigma
        Size of the noise, > 0.
    n_actions
        K >= 1. The theory has K = 1 here; the experiments divide by the number of actions.

    Returns
    -------
    float or ndarray
        sigma √(24 dim log(1/delta) log T) / K, which is √(24 sigma² dim log(1/delta)/(K² eps))
        with eps = 1/log T.

    Notes
    -----
    `contextual_optimism` tells how often a draw with this spread exceeds the truth.

    Examples
    --------
    >>> round(contextual_spread(10, 1 / 20_000, 20_000, n_actions=100), 3)
    1.534
    """
    return over(
        contextual_spread_scalar,
        log_over(1.0)("delta", delta),
        FROM_ONE("dim", dim),
        FROM_ONE("n_actions", n_actions),
        POSITIVE("sigma", sigma),
        np.log(FROM_ONE("horizon", horizon)),
    )


@borrowing
def contextual_optimism_scalar(radius: float, spread: float) -> float:
    """Return P(N(0, 1) > radius/spread)."""
    return 0.5 * math.erfc(0.7071067811865476 * radius / spread)


@vectorised(contextual_optimism_scalar, radius=NONNEGATIVE, spread=POSITIVE)
def contextual_optimism(radius: ArrayLike, spread: ArrayLike) -> Any:
    """Return how often, at least, a sampled predictor exceeds the true one.

    Parameters
    ----------
    radius
        rho >= 0 with |z'(beta_hat - beta)| <= rho √(z'V⁻¹z); see `contextual_radius`.
    spread
        phi > 0, the draw being beta ~ N(beta_hat, phi² V⁻¹); see `contextual_spread`.

    Returns
    -------
    float or ndarray
        P(N(0, 1) > rho/phi).

    Notes
    -----
    This is the anti-concentration that the regret of Thompson sampling rests on; it is attained
    where the estimate is as low as the radius allows. With twice the radius it is the probability
    of exceeding the truth by the radius. The text asks for log^(3/2) T standard deviations more,
    with a probability of order T^(-eps/2): for T = 1 000 that event has probability below 1e-60.

    Examples
    --------
    >>> round(contextual_optimism(radius=2.0, spread=1.0), 4)
    0.0228
    """


def contextual_random_period(
    dim_magnitude: ArrayLike,
    dim_occurrence: ArrayLike,
    delta: ArrayLike,
    *,
    prob_min: ArrayLike,
    eigenvalue_magnitude: ArrayLike,
    eigenvalue_occurrence: ArrayLike,
    constants: tuple[float, float, float, float] | None = None,
) -> Any:
    """Return tau: after so many random rounds Σ z z' and Σ w w' have no eigenvalue below 1.

    Parameters
    ----------
    dim_magnitude, dim_occurrence
        d and q, the lengths of z and w.
    delta
        In (0, 1).
    prob_min
        p_min, a lower bound for the probability that an action pays, in (0, 1].
    eigenvalue_magnitude, eigenvalue_occurrence
        sigma_z² and sigma_w²: no eigenvalue of E[z z'] or E[w w'] is smaller, for any action. At
        most 1/d and 1/q, since the features have norms at most 1.
    constants
        C_1, …, C_4 of the printed formula, which the text calls universal and does not give. None
        is a bound with explicit constants.

    Returns
    -------
    float or ndarray
        None: the larger of m(d)/(p_min sigma_z²) and m(q)/sigma_w² with m(d) = 1 + √(2L) + L and
        L = log(d/delta), rounded up; holds with probability 1 - 2 delta. Otherwise, rounded up, the
        largest of (C_1 √d + C_2 √l)²/(p_min sigma_z⁴) + 2/(p_min sigma_z²), 4 l/p_min² and
        (C_3 √q + C_4 √l)²/sigma_w⁴ + 2/sigma_w² with l = log(1/delta).

    Notes
    -----
    The default is the matrix Chernoff bound for Y z z', whose mean is at least p_min E[z z']. It
    asks that the eigenvalues are bounded given the past and that actions are drawn at random,
    whatever their number. The corrected regret bound needs no random rounds.

    Examples
    --------
    >>> contextual_random_period(5, 5, 0.01, prob_min=0.2, eigenvalue_magnitude=0.1,
    ...                          eigenvalue_occurrence=0.1)
    538.0
    """
    d, q = FROM_ONE("dim_magnitude", dim_magnitude), FROM_ONE("dim_occurrence", dim_occurrence)
    level = log_over(1.0)("delta", delta)
    p = UNIT_POSITIVE("prob_min", prob_min)
    ez = UNIT_POSITIVE("eigenvalue_magnitude", eigenvalue_magnitude)
    ew = UNIT_POSITIVE("eigenvalue_occurrence", eigenvalue_occurrence)
    for name, dim, eigenvalue in (("magnitude", d, ez), ("occurrence", q, ew)):
        if np.any(dim * eigenvalue > 1.0 + 1e-12):
            raise InvalidParameterError(
                f"`eigenvalue_{name}` must not exceed 1 / `dim_{name}`; got {eigenvalue.max():g}"
            )
    if constants is None:
        return number(np.ceil(np.maximum(_mass(d, level) / (p * ez), _mass(q, level) / ew)))
    c = NONNEGATIVE("constants", constants)
    if c.shape != (4,):
        raise InvalidParameterError(f"`constants` must hold 4 numbers; got {shown(constants)}")
    root = np.sqrt(level)
    first = (c[0] * np.sqrt(d) + c[1] * root) ** 2 / (p * ez**2) + 2.0 / (p * ez)
    third = (c[2] * np.sqrt(q) + c[3] * root) ** 2 / ew**2 + 2.0 / ew
    return number(np.ceil(np.maximum(np.maximum(first, 4.0 * level / p**2), third)))


def _mass(dim: Array, level: Array) -> Array:
    # m - 1 - log m >= L, the condition of the matrix Chernoff bound, holds from 1 + √(2L) + L on.
    log_dim = level + np.log(dim)
    return 1.0 + np.sqrt(2.0 * log_dim) + log_dim


def _potential(rounds: Array, dim: Array, ridge: Array) -> Array:
    """Return a bound for the sum of z'V⁻¹z over the observations, each z before it enters V."""
    most = 1.0 / ridge
    return most / np.log1p(most) * dim * np.log1p(rounds / (ridge * dim))


def contextual_regret_bound(
    horizon: ArrayLike,
    dim_magnitude: ArrayLike,
    dim_occurrence: ArrayLike,
    delta: ArrayLike,
    *,
    sigma: ArrayLike = 1.0,
    slope_magnitude: ArrayLike = 1.0,
    slope_occurrence: ArrayLike = 0.25,
    kappa_magnitude: ArrayLike = 1.0,
    kappa_occurrence: ArrayLike = LOGIT_SLOPE,
    prob_min: ArrayLike = LOGIT_FLOOR,
    at_zero: ArrayLike = 0.0,
    ridge_magnitude: ArrayLike = 1.0,
    ridge_occurrence: ArrayLike = 1.0,
    random_rounds: ArrayLike = 0.0,
    radii: tuple[ArrayLike, ArrayLike] | None = None,
    version: str = "corrected",
) -> Any:
    """Return the regret bound of the contextual UCB theorem, with explicit constants.

    Parameters
    ----------
    horizon
        T >= 1; an array gives a curve.
    dim_magnitude, dim_occurrence
        d and q, the lengths of z and w.
    delta
        In (0, 1).
    sigma
        Size of the noise of X, > 0.
    slope_magnitude, slope_occurrence
        L_g and L_h, the largest slopes of the links.
    kappa_magnitude, kappa_occurrence
        kappa_g and kappa_h, the smallest slopes on [-1, 1].
    prob_min
        p_min, the smallest value of h on [-1, 1].
    at_zero
        g(0).
    ridge_magnitude, ridge_occurrence
        The ridge parameters of V and U, > 0.
    random_rounds
        tau >= 0; see `contextual_random_period`.
    radii
        rho_X and rho_Y that the policy uses in the last round. By default those of
        `contextual_radius`, in the same version. Smaller ones than the corrected radii void the
        bound.
    version
        ``"corrected"``: holds with probability 1 - 3 delta, for any tau. ``"printed"``: the last
        line of the proof, said to hold with probability 1 - 5 delta for the tau of
        `contextual_random_period`; nan where the logarithm in it is negative.

    Returns
    -------
    float or ndarray
        Corrected: (2 L_g + |g(0)|) tau + 2 (L_g + |g(0)|) L_h rho_Y √(T S_Y)
        + min{2 L_g rho_X √(T S_X) + 4 L_g L_h rho_X rho_Y √(S_X S_Y/p_min),
        2 L_g rho_X √(T S_X/p_min)}, with S_Y = c(λ) q log(1 + T/(λq)) for λ = `ridge_occurrence`,
        S_X = e/(e - 1) [c(λ) d log(1 + T/(λd)) + log(1/delta)/λ] for λ = `ridge_magnitude`, and
        c(λ) = 1/(λ log(1 + 1/λ)). Printed: (2 L_g + g(0)) tau
        + 2 L_g rho_X √(2 T d log((λ + T)/(d + dλ)))
        + 2 (L_g + g(0)) L_h rho_Y √(2 T q log((λ + T)/(q + qλ))).

    Notes
    -----
    The default links are the identity for X and the logistic function for Y. All norms are at most
    1; where beta has norm up to B put g(B·) in place of g, that is, multiply its slopes by B.

    The corrected bound is for the index on the scale of means, [upper bound of g] times [upper
    bound of h, at most 1], with the lower bound of h where the first factor is negative, and for
    estimates as in `contextual_radius`. The regret is Σ_t (max_a r_t(a) - r_t(A_t)); its mean is
    larger by at most 3 delta T (2 L_g + |g(0)|). The rate (d + q) √T log T is the printed one.
    p_min enters only a term of order d q log² T.

    Examples
    --------
    >>> bound = contextual_regret_bound([1e6, 1e8], 5, 5, 1e-4)
    >>> bool(8.0 < bound[1] / bound[0] < 15.0)
    True
    """
    t = FROM_ONE("horizon", horizon)
    d, q = FROM_ONE("dim_magnitude", dim_magnitude), FROM_ONE("dim_occurrence", dim_occurrence)
    level = log_over(1.0)("delta", delta)
    slope_g = POSITIVE("slope_magnitude", slope_magnitude)
    slope_h = POSITIVE("slope_occurrence", slope_occurrence)
    p = UNIT_POSITIVE("prob_min", prob_min)
    zero = REAL("at_zero", at_zero)
    ridge_v = POSITIVE("ridge_magnitude", ridge_magnitude)
    ridge_u = POSITIVE("ridge_occurrence", ridge_occurrence)
    start = np.minimum(NONNEGATIVE("random_rounds", random_rounds), t)
    printed = choice("version", version, VERSIONS) == 1
    kappa_g = POSITIVE("kappa_magnitude", kappa_magnitude)
    kappa_h = POSITIVE("kappa_occurrence", kappa_occurrence)
    if radii is None:
        rho_x = contextual_radius(
            t, d, delta, ridge=ridge_v, sigma=sigma, kappa=kappa_g, version=version
        )
        rho_y = contextual_radius(
            t,
            q,
            delta,
            ridge=ridge_u,
            sigma=1.0 if printed else 0.5,
            kappa=kappa_h,
            version=version,
        )
    else:
        pair = radii if isinstance(radii, tuple) else tuple(np.atleast_1d(POSITIVE("radii", radii)))
        if len(pair) != 2:
            raise InvalidParameterError(f"`radii` must be a pair; got {shown(radii)}")
        rho_x, rho_y = (POSITIVE("radii", r) for r in pair)
    if printed:
        with np.errstate(invalid="ignore"):
            wide_x = np.sqrt(2.0 * t * d * np.log((ridge_v + t) / (d * (1.0 + ridge_v))))
            wide_y = np.sqrt(2.0 * t * q * np.log((ridge_u + t) / (q * (1.0 + ridge_u))))
        first = (2.0 * slope_g + zero) * start
        occurrence = 2.0 * (slope_g + zero) * slope_h * rho_y * wide_y
        return number(first + 2.0 * slope_g * rho_x * wide_x + occurrence)
    zero = np.abs(zero)
    sum_y = _potential(t, q, ridge_u)
    sum_x = math.e / (math.e - 1.0) * (_potential(t, d, ridge_v) + level / ridge_v)
    first = (2.0 * slope_g + zero) * start
    occurrence = 2.0 * (slope_g + zero) * slope_h * rho_y * np.sqrt(t * sum_y)
    split = np.sqrt(t * sum_x) + 2.0 * slope_h * rho_y * np.sqrt(sum_x * sum_y / p)
    magnitude = 2.0 * slope_g * rho_x * np.minimum(split, np.sqrt(t * sum_x / p))
    return number(first + occurrence + magnitude)


def contextual_thompson_rate(
    horizon: ArrayLike, dim_magnitude: ArrayLike, dim_occurrence: ArrayLike
) -> Any:
    """Return the rate of the contextual Thompson sampling corollary, which states no constant.

    Parameters
    ----------
    horizon
        T >= 1; an array gives a curve.
    dim_magnitude, dim_occurrence
        d and q, the lengths of z and w.

    Returns
    -------
    float or ndarray
        max(d, q)² √T: the regret up to constants and powers of log T.

    Notes
    -----
    The text gives neither the constant nor the power of the logarithm, and refers to another
    article for the proof. The curve shows a shape, not a level.

    Examples
    --------
    >>> contextual_thompson_rate(10_000, 2, 3)
    900.0
    """
    t = FROM_ONE("horizon", horizon)
    d, q = FROM_ONE("dim_magnitude", dim_magnitude), FROM_ONE("dim_occurrence", dim_occurrence)
    return number(np.maximum(d, q) ** 2 * np.sqrt(t))
