"""The contextual bounds against simulation.

Coverage is counted over whole trajectories: a repetition fails if any round exceeds the bound.
A bound that holds with probability 1 - delta is rejected only if the failures exceed the 1 - 1e-6
quantile of the binomial law; with fewer than 50 such counts a correct library fails somewhere with
probability below 5e-5.
"""

from __future__ import annotations

import math

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from zib import theory
from zib.core.validate import InvalidParameterError
from zib.theory.contextual import (
    LOGIT_FLOOR,
    LOGIT_SLOPE,
    _potential,
    contextual_radius_printed,
    contextual_spread_scalar,
)

quick = settings(deadline=None, derandomize=True, max_examples=200)

Array = np.ndarray
ALL_Z = "ri,rij,rj->r"


def accept(failures: Array, delta: float, *case: object) -> None:
    allowed = stats.binom.isf(1e-6, failures.size, delta)
    assert failures.sum() <= allowed, (failures.mean(), delta, *case)


def directions(rng: np.random.Generator, *shape: int) -> Array:
    z = rng.standard_normal(shape)
    return z / np.linalg.norm(z, axis=-1, keepdims=True)


# --------------------------------------------------------------------------------------------
# formulas


@quick
@given(
    st.floats(0, 1e7),
    st.integers(1, 50),
    st.floats(1e-9, 0.9),
    st.floats(0.01, 100),
    st.floats(0.01, 10),
    st.floats(0.05, 1.0),
    st.floats(0, 3),
)
def test_radii_are_the_formulas(
    rounds: float, dim: int, delta: float, ridge: float, sigma: float, kappa: float, norm: float
) -> None:
    level, growth = math.log(1 / delta), dim * math.log1p(rounds / (ridge * dim))
    settings = {"ridge": ridge, "sigma": sigma, "kappa": kappa, "norm": norm}
    printed = theory.contextual_radius(rounds, dim, delta, **settings, version="printed")
    ours = theory.contextual_radius(rounds, dim, delta, **settings)
    assert printed == pytest.approx(sigma / kappa * math.sqrt(4 * level + growth), rel=1e-12)
    noise = sigma * math.sqrt(2 * level + growth)
    assert ours == pytest.approx((noise + math.sqrt(ridge) * norm) / kappa, rel=1e-12)
    # the printed radius makes up for the bias of the penalty exactly where the Notes say so
    room = sigma * (math.sqrt(4 * level + growth) - math.sqrt(2 * level + growth))
    gap = room - math.sqrt(ridge) * norm
    if abs(gap) > 1e-9 * printed:
        assert (printed > ours) == (gap > 0)


def test_a_steep_link_does_not_shrink_the_bias() -> None:
    flat = theory.contextual_radius(100, 3, 0.1, kappa=1.0)
    assert theory.contextual_radius(100, 3, 0.1, kappa=4.0) == flat


def test_scalars_give_the_same_bits_compiled() -> None:
    @numba.njit
    def radius(a: float, d: float, t: float, ridge: float, s: float, k: float) -> float:
        return contextual_radius_printed(a, d, t, ridge, s, k)

    @numba.njit
    def spread(a: float, d: float, n: float, s: float, log_t: float) -> float:
        return contextual_spread_scalar(a, d, n, s, log_t)

    for t in (0.0, 1.0, 17.0, 2e4):
        case = (9.9, 10.0, t, 0.7, 1.3, 0.2)
        assert radius(*case) == contextual_radius_printed(*case)
    assert spread(9.9, 10.0, 100.0, 1.0, 9.9) == contextual_spread_scalar(
        9.9, 10.0, 100.0, 1.0, 9.9
    )
    by_hand = math.sqrt(24 * 4 * 3 * math.log(50) * math.log(1000) / 7**2)
    assert theory.contextual_spread(3, 1 / 50, 1000, sigma=2.0, n_actions=7) == pytest.approx(
        by_hand
    )


def test_optimism_and_the_printed_anti_concentration() -> None:
    ratio = np.array([0.0, 0.5, 1.0, 7.0, 30.0])
    ours = theory.contextual_optimism(ratio, 1.0)
    assert np.allclose(ours, stats.norm.sf(ratio), rtol=1e-12, atol=0)
    assert theory.contextual_optimism(3.0, 2.0) == pytest.approx(stats.norm.sf(1.5))
    # at the upper end of the good event, a draw still has log^1.5 T - 1 standard errors to go
    assert theory.contextual_optimism(math.log(1000) ** 1.5 - 1, 1.0) < 1e-60


def test_thompson_rate() -> None:
    rate = theory.contextual_thompson_rate([1e4, 4e4], 3, 2)
    assert rate[1] == pytest.approx(2 * rate[0])
    assert rate[0] == pytest.approx(900.0)


# --------------------------------------------------------------------------------------------
# the ellipsoids


def linear_errors(
    rng: np.random.Generator,
    mode: str,
    ridge: float,
    sigma: float,
    *,
    unpenalised: bool = False,
    repeats: int = 1500,
    rounds: int = 150,
    dim: int = 3,
) -> tuple[Array, Array]:
    """The norms of beta_hat - beta in V before each round, and the observations behind them.

    Features are chosen among 12: where the error is largest already, where V knows least, or at
    random. An action pays with a probability that depends on its features.
    """
    beta = directions(rng, repeats, dim)
    v = np.broadcast_to(ridge * np.eye(dim), (repeats, dim, dim)).copy()
    noise = np.zeros((repeats, dim))
    errors = np.zeros((rounds, repeats))
    seen = np.zeros((rounds, repeats))
    for t in range(rounds):
        candidates = directions(rng, 12, dim)
        if unpenalised:
            plain = v - ridge * np.eye(dim)
            ready = np.linalg.eigvalsh(plain)[:, 0] >= 1.0
            plain[~ready] = np.eye(dim)
            error = np.where(ready[:, None], np.linalg.solve(plain, noise[..., None])[..., 0], 0.0)
        else:
            error = np.linalg.solve(v, (noise - ridge * beta)[..., None])[..., 0]
        errors[t] = np.sqrt(np.einsum(ALL_Z, error, v, error))
        if mode == "error":
            score = candidates @ error.T
        elif mode == "width":
            score = np.einsum("ai,rij,aj->ar", candidates, np.linalg.inv(v), candidates)
        else:
            score = rng.random((12, repeats))
        z = candidates[np.argmax(score, axis=0)]
        paid = rng.random(repeats) < 0.3 + 0.5 * (z[:, 0] > 0)
        noise += np.where(paid, sigma * rng.standard_normal(repeats), 0.0)[:, None] * z
        v += paid[:, None, None] * z[:, :, None] * z[:, None, :]
        if t + 1 < rounds:
            seen[t + 1] = seen[t] + paid
    return errors, seen


@pytest.mark.parametrize("mode", ["error", "width", "random"])
@pytest.mark.parametrize(("ridge", "sigma"), [(1.0, 1.0), (0.1, 1.0), (100.0, 0.1)])
def test_the_magnitude_ellipsoid_covers(
    mode: str, ridge: float, sigma: float, rng: np.random.Generator
) -> None:
    errors, seen = linear_errors(rng, mode, ridge, sigma)
    for delta in (0.2, 0.02):
        radius = theory.contextual_radius(seen, 3, delta, ridge=ridge, sigma=sigma)
        accept((errors > radius).any(axis=0), delta, mode, ridge, sigma)


@pytest.mark.parametrize("mode", ["error", "width"])
def test_the_printed_radius_covers_where_the_penalty_is_small(
    mode: str, rng: np.random.Generator
) -> None:
    errors, seen = linear_errors(rng, mode, ridge=1.0, sigma=1.0)
    for delta in (0.2, 0.02):
        radius = theory.contextual_radius(seen, 3, delta, version="printed")
        accept((errors > radius).any(axis=0), delta, mode)


@pytest.mark.parametrize("unpenalised", [False, True])
def test_the_printed_radius_fails_where_the_penalty_is_large(
    unpenalised: bool, rng: np.random.Generator
) -> None:
    """Penalised: the bias. Not penalised: the score does not see the ridge part of V."""
    ridge, sigma, delta = (100.0, 0.1, 0.1) if not unpenalised else (100.0, 1.0, 0.1)
    errors, seen = linear_errors(
        rng, "random", ridge, sigma, unpenalised=unpenalised, repeats=200, rounds=40
    )
    printed = theory.contextual_radius(seen, 3, delta, ridge=ridge, sigma=sigma, version="printed")
    assert (errors > printed).any(axis=0).mean() > 0.9


def logistic_fit(w: Array, y: Array, ridge: float) -> Array:
    """The penalised estimates over the unit ball, by accelerated projected gradients."""
    step = 1.0 / (ridge + 0.25 * w.shape[1])
    theta = np.zeros((w.shape[0], w.shape[2]))
    ahead = theta
    for i in range(150):
        mean = 1.0 / (1.0 + np.exp(-np.einsum("rtj,rj->rt", w, ahead)))
        new = ahead + step * (np.einsum("rt,rtj->rj", y - mean, w) - ridge * ahead)
        new /= np.maximum(np.linalg.norm(new, axis=1, keepdims=True), 1.0)
        ahead = new + i / (i + 3.0) * (new - theta)
        theta = new
    assert np.abs(ahead - theta).max() < 1e-6
    return theta


@pytest.mark.parametrize("ridge", [0.3, 2.0])
def test_the_occurrence_ellipsoid_covers(ridge: float, rng: np.random.Generator) -> None:
    repeats, rounds, dim = 400, 240, 2
    truth = directions(rng, repeats, dim)
    w = np.zeros((repeats, rounds, dim))
    y = np.zeros((repeats, rounds))
    score = np.zeros((repeats, dim))
    for t in range(rounds):
        candidates = directions(rng, 8, dim)
        w[:, t] = candidates[np.argmax(candidates @ score.T, axis=0)]  # chosen to feed the error
        p = 1.0 / (1.0 + np.exp(-np.einsum("rj,rj->r", w[:, t], truth)))
        y[:, t] = rng.random(repeats) < p
        score += (y[:, t] - p)[:, None] * w[:, t]
    checks = (4, 15, 40, 100, 240)
    errors = np.zeros((len(checks), repeats))
    for i, t in enumerate(checks):
        error = logistic_fit(w[:, :t], y[:, :t], ridge) - truth
        u = ridge * np.eye(dim) + np.einsum("rti,rtj->rij", w[:, :t], w[:, :t])
        errors[i] = np.sqrt(np.einsum(ALL_Z, error, u, error))
    for delta in (0.2, 0.02):
        radius = theory.contextual_radius(
            checks, dim, delta, ridge=ridge, sigma=0.5, kappa=LOGIT_SLOPE
        )
        accept((errors > radius[:, None]).any(axis=0), delta, ridge)


def test_a_bernoulli_variable_has_size_one_half() -> None:
    p, s = np.linspace(0.001, 0.999, 97)[:, None], np.linspace(-30, 30, 401)
    cumulant = np.logaddexp(np.log1p(-p), np.log(p) + s) - s * p
    assert np.all(cumulant <= 0.125 * s**2 + 1e-12)


# --------------------------------------------------------------------------------------------
# sums of widths


def widths(features: Array, ridge: float, paid: Array | None = None) -> Array:
    """z'V⁻¹z of every row, before it enters V if it paid."""
    v = ridge * np.eye(features.shape[1])
    out = np.zeros(len(features))
    for t, z in enumerate(features):
        out[t] = z @ np.linalg.solve(v, z)
        if paid is None or paid[t]:
            v += np.outer(z, z)
    return out


@pytest.mark.parametrize("ridge", [0.02, 0.5, 1.0, 30.0])
@pytest.mark.parametrize("dim", [1, 4, 10])
def test_the_elliptical_potential(ridge: float, dim: int, rng: np.random.Generator) -> None:
    rounds = 120
    unit = np.eye(dim)[np.arange(rounds) % dim]
    short = directions(rng, rounds, dim) * rng.random((rounds, 1))
    for features in (unit, directions(rng, rounds, dim), short):
        total = np.cumsum(widths(features, ridge))
        bound = _potential(np.arange(1.0, rounds + 1), np.array(float(dim)), np.array(ridge))
        assert np.all(total <= bound * (1 + 1e-12))


def test_the_potential_is_attained() -> None:
    # one round in one dimension: 1/ridge against c(ridge) log(1 + 1/ridge)
    one = np.array(1.0)
    assert _potential(one, one, np.array(0.2)) == pytest.approx(5.0)


def test_the_printed_sum_of_widths_is_too_small() -> None:
    """The trace of the ridge is lambda d, not lambda."""
    dim, ridge, first, horizon = 10, 1.0, 10, 20
    root = np.sqrt(widths(np.eye(dim)[np.arange(horizon) % dim], ridge))
    printed = math.sqrt(2 * horizon * dim * math.log((ridge + horizon) / (dim * (1 + ridge))))
    assert root[first:].sum() > 1.5 * printed


def test_widths_of_rounds_that_do_not_pay_count_too(rng: np.random.Generator) -> None:
    """Printed: the sum over the rounds that paid. The regret has all, weighted with p."""
    dim, ridge, rounds, delta, p_min = 2, 1.0, 1000, 0.2, 0.02
    level = math.log(1 / delta)
    repeats = 60
    weighted = np.zeros(repeats)
    plain = np.zeros(repeats)
    for r in range(repeats):
        features = directions(rng, rounds, dim)
        p = np.where(features[:, 0] > 0.6, 0.3, p_min)
        x2 = widths(features, ridge, rng.random(rounds) < p)
        weighted[r], plain[r] = (p * x2).sum(), np.sqrt(x2).sum()
    potential = float(_potential(*(np.array(float(a)) for a in (rounds, dim, ridge))))
    allowed = math.e / (math.e - 1) * (potential + level / ridge)
    accept(weighted > allowed, delta)

    never = np.sqrt(widths(directions(rng, rounds, dim), ridge, np.zeros(rounds, dtype=bool)))
    printed = math.sqrt(2 * rounds * dim * math.log((ridge + rounds) / (dim * (1 + ridge))))
    assert never.sum() > printed  # nothing is learned while nothing is paid
    assert np.all(plain**2 <= rounds * weighted / p_min)


# --------------------------------------------------------------------------------------------
# the random period


def test_the_random_period_fills_every_direction(rng: np.random.Generator) -> None:
    """Axes as features, one of them rare, and paying least where it is rarest."""
    dim, delta, repeats = 3, 0.1, 2000
    share = np.array([0.45, 0.45, 0.1])
    pays = np.array([0.9, 0.5, 0.2])
    tau = theory.contextual_random_period(
        dim, dim, delta, prob_min=0.2, eigenvalue_magnitude=0.1, eigenvalue_occurrence=0.1
    )
    seen = rng.multinomial(int(tau), share, size=repeats)
    paid = rng.binomial(seen, pays)
    accept((paid.min(axis=1) < 1) | (seen.min(axis=1) < 1), 2 * delta)
    # given that they paid, the rare direction is rarer still
    given_paid = share * pays / (share * pays).sum()
    assert given_paid.min() < 0.04


def test_the_random_period_satisfies_the_chernoff_condition() -> None:
    level = np.geomspace(1e-6, 1e3, 50)
    m = 1 + np.sqrt(2 * level) + level
    assert np.all(m - 1 - np.log(m) >= level * (1 - 1e-9))


def test_the_printed_random_period() -> None:
    d, q, delta, p, ez, ew = 4, 3, 0.05, 0.25, 0.2, 0.3
    c = (1.0, 2.0, 3.0, 4.0)
    root = math.sqrt(math.log(1 / delta))
    first = ((c[0] * math.sqrt(d / p) + c[1] * root / math.sqrt(p)) / ez) ** 2 + 2 / (p * ez)
    third = ((c[2] * math.sqrt(q) + c[3] * root) / ew) ** 2 + 2 / ew
    wanted = math.ceil(max(first, 4 * math.log(1 / delta) / p**2, third))
    settings = {"prob_min": p, "eigenvalue_magnitude": ez, "eigenvalue_occurrence": ew}
    assert theory.contextual_random_period(d, q, delta, **settings, constants=c) == wanted
    small = theory.contextual_random_period(d, q, delta, **settings, constants=(0, 0, 0, 0))
    assert small == math.ceil(4 * math.log(1 / delta) / p**2)


# --------------------------------------------------------------------------------------------
# regret


def test_the_regret_bounds_are_the_formulas() -> None:
    t, d, q, delta, sigma, tau = 5000.0, 4, 3, 0.01, 0.7, 40.0
    lg, lh, kg, kh, p, zero, rv, ru = 1.5, 0.4, 0.9, 0.24, 0.16, -0.3, 2.0, 0.5
    settings = {
        "sigma": sigma,
        "slope_magnitude": lg,
        "slope_occurrence": lh,
        "kappa_magnitude": kg,
        "kappa_occurrence": kh,
        "prob_min": p,
        "at_zero": zero,
        "ridge_magnitude": rv,
        "ridge_occurrence": ru,
        "random_rounds": tau,
    }
    level = math.log(1 / delta)
    gx, gy = d * math.log(1 + t / (rv * d)), q * math.log(1 + t / (ru * q))
    rho_x = (sigma * math.sqrt(2 * level + gx) + math.sqrt(rv)) / kg
    rho_y = (0.5 * math.sqrt(2 * level + gy) + math.sqrt(ru)) / kh
    sx = math.e / (math.e - 1) * (gx / (rv * math.log(1 + 1 / rv)) + level / rv)
    sy = gy / (ru * math.log(1 + 1 / ru))
    one = 2 * lg * rho_x * math.sqrt(t * sx) + 4 * lg * lh * rho_x * rho_y * math.sqrt(sx * sy / p)
    two = 2 * lg * rho_x * math.sqrt(t * sx / p)
    wanted = (2 * lg + 0.3) * tau + 2 * (lg + 0.3) * lh * rho_y * math.sqrt(t * sy) + min(one, two)
    found = theory.contextual_regret_bound(t, d, q, delta, **settings)
    assert found == pytest.approx(wanted, rel=1e-12)
    same = theory.contextual_regret_bound(t, d, q, delta, **settings, radii=(rho_x, rho_y))
    assert same == pytest.approx(wanted, rel=1e-12)

    rho_x = sigma / kg * math.sqrt(4 * level + gx)
    rho_y = math.sqrt(4 * level + gy) / kh
    wanted = (
        (2 * lg + zero) * tau
        + 2 * lg * rho_x * math.sqrt(2 * t * d * math.log((rv + t) / (d * (1 + rv))))
        + 2 * (lg + zero) * lh * rho_y * math.sqrt(2 * t * q * math.log((ru + t) / (q * (1 + ru))))
    )
    found = theory.contextual_regret_bound(t, d, q, delta, **settings, version="printed")
    assert found == pytest.approx(wanted, rel=1e-12)
    assert math.isnan(theory.contextual_regret_bound(10, 10, 10, 0.1, version="printed"))


def test_rare_payment_does_not_change_the_rate() -> None:
    """p enters the corrected bound in a term without √T only."""
    t = 1e16
    often, rarely = (theory.contextual_regret_bound(t, 3, 3, 1e-3, prob_min=p) for p in (1.0, 1e-3))
    assert rarely / often < 1.001


@pytest.mark.parametrize("zero", [-3.0, -0.5, 0.0, 0.5, 3.0])
def test_one_round_costs_at_most_the_first_constant(zero: float) -> None:
    slope = 0.8
    p, g = np.linspace(0, 1, 21), zero + slope * np.linspace(-1, 1, 21)
    reward = np.multiply.outer(p, g)
    assert reward.max() - reward.min() <= 2 * slope + abs(zero) + 1e-12


def test_the_index_and_the_regret_of_a_simulated_run(rng: np.random.Generator) -> None:
    """Every step of the corrected proof on runs of the policy, for negative magnitudes too.

    On the event of the two ellipsoids, which fails with probability at most 2 delta = 2e-6 per run,
    each round obeys the inequality exactly.
    """
    dim, rounds, ridge, sigma, delta, runs = 2, 80, 1.0, 0.5, 1e-6, 3
    bound = theory.contextual_regret_bound(rounds, dim, dim, delta, sigma=sigma)
    for _ in range(runs):
        beta, theta = directions(rng, 2, dim)
        v, u = ridge * np.eye(dim), ridge * np.eye(dim)
        total = np.zeros(dim)
        ws, ys = np.zeros((rounds, dim)), np.zeros(rounds)
        regret = 0.0
        paid_so_far = 0
        for t in range(rounds):
            z, w = directions(rng, 2, 6, dim)
            beta_hat = np.linalg.solve(v, total)
            theta_hat = logistic_fit(ws[None, :t], ys[None, :t], ridge)[0] if t else np.zeros(dim)
            rho_x = theory.contextual_radius(paid_so_far, dim, delta, sigma=sigma)
            rho_y = theory.contextual_radius(t, dim, delta, sigma=0.5, kappa=LOGIT_SLOPE)
            x = np.sqrt(np.einsum("ai,ij,aj->a", z, np.linalg.inv(v), z))
            y = np.sqrt(np.einsum("ai,ij,aj->a", w, np.linalg.inv(u), w))
            upper_g = z @ beta_hat + rho_x * x
            upper_h, lower_h = (
                1 / (1 + np.exp(-(w @ theta_hat + sign * rho_y * y))) for sign in (1, -1)
            )
            index = np.where(upper_g >= 0, upper_g * upper_h, upper_g * lower_h)
            g, p = z @ beta, 1 / (1 + np.exp(-(w @ theta)))
            assert np.all(index >= g * p)
            a = int(np.argmax(index))
            gap = (g * p).max() - g[a] * p[a]
            wide_g, wide_h = 2 * rho_x * x[a], 0.5 * rho_y * y[a]
            assert gap <= p[a] * wide_g + wide_h + wide_g * wide_h
            regret += gap
            ws[t], ys[t] = w[a], rng.random() < p[a]
            u += np.outer(w[a], w[a])
            if ys[t]:
                total += (g[a] + sigma * rng.standard_normal()) * z[a]
                v += np.outer(z[a], z[a])
                paid_so_far += 1
        assert regret <= bound


def test_defaults_are_the_logistic_link() -> None:
    u = np.linspace(-1, 1, 1001)
    h = 1 / (1 + np.exp(-u))
    assert pytest.approx((h * (1 - h)).min()) == LOGIT_SLOPE
    assert pytest.approx(h.min()) == LOGIT_FLOOR


# --------------------------------------------------------------------------------------------
# inputs


def test_arrays_give_arrays() -> None:
    curve = theory.contextual_regret_bound([1e3, 1e4, 1e5], 5, 4, 0.01)
    assert curve.shape == (3,)
    assert np.all(np.diff(curve) > 0)
    assert theory.contextual_radius([[1.0], [2.0]], [3, 4], 0.1).shape == (2, 2)
    assert isinstance(theory.contextual_radius(1, 2, 0.1), float)
    period = theory.contextual_random_period(
        [2, 3], 2, 0.1, prob_min=0.5, eigenvalue_magnitude=0.3, eigenvalue_occurrence=0.5
    )
    assert period.shape == (2,)


def test_wrong_inputs() -> None:
    with pytest.raises(InvalidParameterError, match="`delta` must lie in"):
        theory.contextual_radius(10, 2, 1.5)
    with pytest.raises(InvalidParameterError, match="`dim` must lie in"):
        theory.contextual_radius(10, 0, 0.5)
    with pytest.raises(InvalidParameterError, match="`ridge` must lie in"):
        theory.contextual_radius(10, 2, 0.5, ridge=0.0)
    with pytest.raises(InvalidParameterError, match="`norm` must lie in"):
        theory.contextual_radius(10, 2, 0.5, norm=-1.0, version="printed")
    with pytest.raises(InvalidParameterError, match="`version` must be one of"):
        theory.contextual_regret_bound(10, 2, 2, 0.5, version="best")
    with pytest.raises(InvalidParameterError, match="`prob_min` must lie in"):
        theory.contextual_regret_bound(10, 2, 2, 0.5, prob_min=0.0)
    with pytest.raises(InvalidParameterError, match="broadcast"):
        theory.contextual_radius([1, 2, 3], [1, 2], 0.5)
    settings = {"prob_min": 0.5, "eigenvalue_magnitude": 0.3, "eigenvalue_occurrence": 0.3}
    with pytest.raises(InvalidParameterError, match="must not exceed 1 / `dim_occurrence`"):
        theory.contextual_random_period(2, 4, 0.1, **settings)
    with pytest.raises(InvalidParameterError, match="`constants` must hold 4 numbers"):
        theory.contextual_random_period(2, 2, 0.1, **settings, constants=(1.0,))  # type: ignore[arg-type]
