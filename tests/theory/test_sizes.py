from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, optimize, stats

from tests.theory import oracles
from zib import theory
from zib.core.validate import InvalidParameterError

quick = settings(deadline=None, derandomize=True, max_examples=150)
slow = settings(deadline=None, derandomize=True, max_examples=60)


# ------------------------------------------------------------------ tau²


@pytest.mark.parametrize("p", [1e-8, 0.001, 0.2, 0.4999, 0.5, 0.50001, 0.77, 0.999, 1 - 1e-9])
@pytest.mark.parametrize("mean", [1e-6, 3.0, -3.0, 1e6])
def test_without_noise_it_is_kearns_saul(p: float, mean: float) -> None:
    wanted = mean**2 / 4
    if p != 0.5:
        wanted = mean**2 * (1 - 2 * p) / (2 * math.log((1 - p) / p))
    # log((1-p)/p) itself loses digits near p = 1/2
    tolerance = 1e-9 if abs(p - 0.5) > 1e-3 else 1e-7
    assert theory.product_variance_proxy(mean, p, 0.0) == pytest.approx(wanted, rel=tolerance)


def test_near_symmetry_it_is_accurate_too() -> None:
    # (1-2p)/(2 log((1-p)/p)) = 1/4 - (p-1/2)²/3 + O((p-1/2)⁴)
    for h in (1e-7, 1e-5, 1e-4, -1e-4):
        found = theory.product_variance_proxy(1.0, 0.5 + h, 0.0)
        assert found == pytest.approx(0.25 - h * h / 3, rel=1e-12)


@slow
@given(st.floats(1e-6, 1 - 1e-6), st.floats(-3, 3), st.booleans())
def test_it_is_the_maximum_over_s(p: float, log_ratio: float, negative: bool) -> None:
    mean, sigma = (-1.7 if negative else 1.7), 1.7 * 10.0**log_ratio
    wanted = oracles.variance_proxy(mean, p, sigma)
    found = theory.product_variance_proxy(mean, p, sigma)
    assert found == pytest.approx(wanted, rel=1e-9)


def test_there_is_only_one_local_maximum() -> None:
    # the solver relies on it: on a fine grid of s, for each of many (p, sigma/mu), log_mgf/s² goes
    # up and down once, on the side of the sign of 1 - 2p + 3 (sigma/mu)²
    s = np.geomspace(0.03, 3e3, 1500)
    for p in (1e-6, 0.01, 0.3, 0.45, 0.55, 0.7, 0.9, 0.99, 1 - 1e-4, 1 - 1e-6):
        turn = max(2 * p - 1, 0) / 3
        for kappa in (1e-6, 1e-3, 0.02, 0.9 * turn, 0.99 * turn, 1.01 * turn, 0.3, 2.0, 50.0):
            peaks = []
            for sign in (-1.0, 1.0):
                f = (oracles.log_mgf(sign * s, 1.0, p, math.sqrt(kappa)) / s**2).astype(float)
                d = np.diff(f)
                moves = np.sign(d[np.abs(d) > 1e-11 * f[1:]])
                peaks.append(int(((moves[:-1] > 0) & (moves[1:] < 0)).sum()))
            skew = 1 - 2 * p + 3 * kappa
            assert max(peaks) <= 1
            assert peaks[0 if skew > 0 else 1] == 0


@quick
@given(st.floats(1e-9, 1 - 1e-9), st.floats(-1e3, 1e3), st.floats(0, 1e3), st.floats(1e-3, 1e3))
def test_tau_scales_and_dominates(p: float, mean: float, sigma: float, unit: float) -> None:
    found = theory.product_variance_proxy(mean, p, sigma)
    variance = p * sigma**2 + p * (1 - p) * mean**2
    assert found >= max(variance, sigma**2) * (1 - 1e-9)
    assert theory.product_variance_proxy(-mean, p, sigma) == found
    scaled = theory.product_variance_proxy(unit * mean, p, unit * sigma)
    assert scaled == pytest.approx(unit**2 * found, rel=1e-9, abs=1e-300)
    assert theory.product_variance_proxy(mean, p, 1.1 * sigma) >= found * (1 - 1e-9)
    assert theory.product_variance_proxy(1.1 * mean, p, sigma) >= found * (1 - 1e-9)


def test_degenerate_rewards() -> None:
    assert theory.product_variance_proxy(5.0, 0.0, 1.0) == 0.0
    assert theory.product_variance_proxy(5.0, 1.0, 2.0) == 4.0
    assert theory.product_variance_proxy(0.0, 0.3, 2.0) == 4.0
    assert theory.product_variance_proxy(1e-200, 0.3, 2.0) == 4.0
    assert theory.product_variance_proxy(1.0, 1e-300, 1.0) == pytest.approx(1.0, rel=1e-2)
    far = theory.product_variance_proxy([1e-6, 1e6], [0.5, 0.5], [1e3, 1e-3])
    assert np.isfinite(far).all()


def test_the_example_of_small_probabilities() -> None:
    assert theory.product_variance_proxy(4.0, 0.005, 1.0) == pytest.approx(2.49, abs=0.01)


@pytest.mark.parametrize("p", [0.01, 0.3, 0.5, 0.7, 0.95])
@pytest.mark.parametrize("mean", [-2.0, 0.3, 8.0])
@pytest.mark.parametrize("sigma", [0.2, 1.0, 4.0])
def test_gradient_matches_differences(p: float, mean: float, sigma: float) -> None:
    def tau(m: float, q: float, v: float) -> float:
        return float(theory.product_variance_proxy(m, q, math.sqrt(v)))

    h = 1e-4
    by_prob, by_mean, by_variance = theory.product_variance_proxy_gradient(mean, p, sigma)
    v, scale = sigma**2, tau(mean, p, sigma**2)
    dp = h * min(p, 1 - p)
    found = (tau(mean, p + dp, v) - tau(mean, p - dp, v)) / (2 * dp)
    assert by_prob == pytest.approx(found, rel=1e-5, abs=1e-6 * scale / min(p, 1 - p))
    dm = h * abs(mean)
    found = (tau(mean + dm, p, v) - tau(mean - dm, p, v)) / (2 * dm)
    assert by_mean == pytest.approx(found, rel=1e-5, abs=1e-6 * scale / abs(mean))
    dv = h * v
    found = (tau(mean, p, v + dv) - tau(mean, p, v - dv)) / (2 * dv)
    assert by_variance == pytest.approx(found, rel=1e-5)
    # Euler: tau² is homogeneous of degree 2 in (mu, sigma)
    assert mean * by_mean + 2 * v * by_variance == pytest.approx(2 * scale, rel=1e-6)


def test_gradient_at_the_symmetric_point() -> None:
    by_prob, by_mean, by_variance = theory.product_variance_proxy_gradient(3.0, 0.5, 0.0)
    assert (by_prob, by_mean, by_variance) == (
        pytest.approx(0.0, abs=1e-9),
        pytest.approx(1.5),
        pytest.approx(0.5),
    )


def test_what_the_lemma_says_about_large_derivatives_and_what_holds() -> None:
    gradient = theory.product_variance_proxy_gradient
    # said: d tau²/dp -> +inf as mu -> 0, p -> 1. It tends to 0.
    assert abs(gradient(1e-3, 0.999, 1.0)[0]) < 1e-6
    # said: d tau²/dp -> +inf as sigma -> 0, p -> 1. It tends to -inf.
    assert gradient(1.0, 1 - 1e-9, 1e-6)[0] < -1e5
    # said: d tau²/dmu -> +inf as sigma -> 0, p -> 1. It is at most 2 tau²/mu, which tends to 0.
    assert 0 <= gradient(1.0, 1 - 1e-9, 1e-6)[1] < 0.06


def test_prob_at_the_ends_has_no_gradient() -> None:
    with pytest.raises(InvalidParameterError, match="`prob`"):
        theory.product_variance_proxy_gradient(1.0, 1.0, 1.0)


# ------------------------------------------------------------------ alpha


@slow
@given(st.floats(1e-4, 1 - 1e-4), st.floats(-2, 2))
def test_alpha_is_the_maximum_over_small_s(p: float, log_ratio: float) -> None:
    mean, lam = 2.0, 2.0 * 10.0**log_ratio
    wanted = max(lam**2, oracles.variance_proxy(mean, p, lam, limit=1 / lam))
    found = theory.product_subexponential_size(mean, p, lam)
    assert found**2 == pytest.approx(wanted, rel=1e-9)
    assert theory.product_subexponential_size(-mean, p, lam) == found
    assert found**2 <= theory.product_variance_proxy(mean, p, lam) * (1 + 1e-9)


@pytest.mark.parametrize("p", [0.005, 0.3, 0.9])
def test_alpha_bounds_the_moment_generating_function_of_exponential_rewards(p: float) -> None:
    mean = 1.5
    alpha = theory.product_subexponential_size(
        mean, p, theory.exponential_subexponential_size(mean)
    )
    s = np.linspace(-1, 1, 2001) / alpha
    log_mgf = np.log(1 - p + p / (1 - s * mean)) - s * mean * p
    assert np.all(log_mgf <= s**2 * alpha**2 / 2 + 1e-15)


def test_alpha_without_noise_is_kearns_saul() -> None:
    found = theory.product_subexponential_size(2.0, 0.2, 0.0)
    assert found**2 == pytest.approx(theory.product_variance_proxy(2.0, 0.2, 0.0), rel=1e-12)


@pytest.mark.parametrize("shape", [0.05, 1.0, 4.0, 300.0])
def test_the_smallest_size_of_a_gamma_law(shape: float) -> None:
    lam = theory.gamma_subexponential_size(2.0, shape)
    u = 2.0 / lam
    assert -shape * (math.log1p(-u) + u) == pytest.approx(0.5, rel=1e-5)
    s = np.linspace(-1, 1, 4001) / lam
    log_mgf = -shape * (np.log1p(-2.0 * s) + 2.0 * s)
    assert np.all(log_mgf <= s**2 * lam**2 / 2 * (1 + 1e-5))


def test_the_smallest_size_of_an_exponential_law() -> None:
    lam = theory.exponential_subexponential_size(3.0)
    u = 3.0 / lam
    assert -math.log1p(-u) - u == pytest.approx(0.5, rel=1e-13)
    assert lam / 3.0 == pytest.approx(1.43, abs=5e-3)
    s = np.linspace(-1, 1, 4001) / lam
    assert np.all(-3 * s - np.log1p(-3 * s) <= s**2 * lam**2 / 2 + 1e-14)
    smaller = 0.999 * lam
    assert -3 / smaller - math.log1p(-3 / smaller) > 0.5


# ------------------------------------------------------------------ sub-Weibull size


def _by_quadrature(dist: object, theta: float, points: list[float]) -> float:
    centre = dist.mean()  # type: ignore[attr-defined]

    def excess(size: float) -> float:
        total = 0.0
        for a, b in itertools.pairwise(points):
            total += integrate.quad(
                lambda x: math.exp((abs(x - centre) / size) ** theta) * dist.pdf(x),  # type: ignore[attr-defined]
                a,
                b,
                epsabs=1e-13,
                epsrel=1e-12,
                limit=400,
            )[0]
        return total - 2

    low = high = 1.0
    while excess(high) > 0:
        high *= 1.3
    while excess(low) < 0:
        low /= 1.05
    return float(optimize.brentq(excess, low, high, xtol=1e-13))


def test_gaussian_size_in_closed_form() -> None:
    assert theory.subweibull_size("gaussian", 2.0) == pytest.approx(math.sqrt(8 / 3), rel=1e-10)
    found = theory.subweibull_size(stats.norm(3.0, 0.7), 2.0)
    assert found == pytest.approx(0.7 * math.sqrt(8 / 3), rel=1e-9)


@pytest.mark.parametrize("theta", [0.3, 0.8, 1.0, 1.6, 2.0, 3.5])
def test_double_weibull_size_in_closed_form(theta: float) -> None:
    # |X|^theta is exponential, so E exp(|X|^theta/c) = 1/(1 - 1/c) = 2 at c = 2
    found = theory.subweibull_size(stats.dweibull(theta, scale=3.0), theta)
    assert found == pytest.approx(3.0 * 2.0 ** (1 / theta), rel=1e-8)


def test_exponential_size() -> None:
    def excess(c: float) -> float:
        below = math.exp(1 / c) * -math.expm1(-(1 + 1 / c)) / (1 + 1 / c)
        return below + math.exp(-1) / (1 - 1 / c) - 2

    wanted = optimize.brentq(excess, 1.01, 10, xtol=1e-14)
    assert theory.subweibull_size("exponential", 1.0) == pytest.approx(wanted, rel=1e-9)
    assert theory.subweibull_size("exponential", 1.0, scale=4.0) == pytest.approx(4 * wanted)
    assert theory.subweibull_size(stats.expon(scale=4), 1.0) == pytest.approx(4 * wanted, rel=1e-9)


@pytest.mark.parametrize(
    ("dist", "theta", "points"),
    [
        (stats.norm(0, 1), 1.0, [-12.0, 0.0, 12.0]),
        (stats.gamma(2.5), 1.0, [0.0, 2.5, 60.0]),
        (stats.uniform(0, 1), 2.0, [0.0, 0.5, 1.0]),
        (stats.beta(0.5, 2.0), 1.0, [0.0, 0.2, 1.0]),
        (stats.expon(), 0.5, [0.0, 1.0, 200.0]),
        (stats.weibull_min(1.5), 1.5, [0.0, float(stats.weibull_min(1.5).mean()), 60.0]),
    ],
)
def test_sizes_match_quadrature(dist: object, theta: float, points: list[float]) -> None:
    wanted = _by_quadrature(dist, theta, points)
    assert theory.subweibull_size(dist, theta) == pytest.approx(wanted, rel=1e-7)


@pytest.mark.parametrize(
    ("dist", "theta"),
    [
        (stats.t(5), 0.5),
        (stats.pareto(2.5), 1.0),
        (stats.lognorm(0.5), 0.5),
        (stats.expon(), 1.2),
        (stats.norm(), 2.3),
        (stats.cauchy(), 1.0),
        (stats.weibull_min(0.7), 1.0),
    ],
)
def test_heavier_tails_have_no_size(dist: object, theta: float) -> None:
    assert theory.subweibull_size(dist, theta) == math.inf


def test_what_is_no_distribution_is_refused() -> None:
    with pytest.raises(InvalidParameterError, match="`dist`"):
        theory.subweibull_size("cauchy", 1.0)
    with pytest.raises(InvalidParameterError, match="`dist`"):
        theory.subweibull_size(3.0, 1.0)
    with pytest.raises(InvalidParameterError, match="continuous"):
        theory.subweibull_size(stats.poisson(3), 1.0)
    with pytest.raises(InvalidParameterError, match="`theta`"):
        theory.subweibull_size("gaussian", 0.0)
