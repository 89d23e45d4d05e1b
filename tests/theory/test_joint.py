"""The joint likelihood bounds against brute force over the other parameter."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.theory import oracles
from zib import theory

slow = settings(deadline=None, derandomize=True, max_examples=60)
quick = settings(deadline=None, derandomize=True, max_examples=200)

pulls = st.integers(1, 100_000)
shares = st.floats(0.0, 1.0)
levels = st.floats(0.05, 40.0)
means = st.one_of(st.floats(-50, 50), st.floats(-2, 2))
scales = st.floats(0.02, 20.0)


def _count(n: int, share: float) -> int:
    return max(1, min(n, round(n**share)))


@slow
@given(pulls, shares, means, scales, levels)
def test_gaussian(n: int, share: float, mean: float, sigma: float, level: float) -> None:
    b = _count(n, share)
    wanted = oracles.joint_upper(n, b, level, lambda u: mean + sigma * np.sqrt(2 * u / b))
    found = theory.joint_kl_upper(n, b, mean * b, sigma, level)
    assert found == pytest.approx(wanted, rel=1e-9, abs=1e-300)
    assert theory.joint_kl_lower(n, b, -mean * b, sigma, level) == -found


@slow
@given(pulls, shares, means, scales, levels)
def test_gaussian_sigma_unknown(n: int, share: float, mean: float, sd: float, level: float) -> None:
    b = _count(n, share)
    level = min(level, 100.0 * b)
    wanted = oracles.joint_upper(
        n, b, level, lambda u: mean + sd * np.sqrt(np.expm1(2 * np.minimum(u / b, 300.0)))
    )
    found = theory.joint_kl_upper(n, b, mean * b, level=level, spread=sd**2 * b)
    assert found == pytest.approx(wanted, rel=1e-9, abs=1e-300)


@pytest.mark.parametrize("mean", [3.0, 30.0, 800.0])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_sigma_unknown_has_two_competing_maxima(mean: float, count: int) -> None:
    # far from zero with few rewards the set is not convex: moving mu' or moving p' may win
    for n in (10 * count, 5000 * count):
        for level in (1.0, 2.0, 5.0, 12.0):
            wanted = oracles.joint_upper(
                n, count, level, lambda u, m=mean, b=count: m + np.sqrt(np.expm1(2 * u / b))
            )
            found = theory.joint_kl_upper(n, count, mean * count, level=level, spread=count)
            assert found == pytest.approx(wanted, rel=1e-9)


@settings(deadline=None, derandomize=True, max_examples=20)
@given(pulls, shares, st.floats(1e-3, 1e3), st.floats(0.1, 30.0), levels)
def test_gamma(n: int, share: float, mean: float, shape: float, level: float) -> None:
    b = _count(n, share)
    level = min(level, 300.0 * b * shape)
    budget = b * shape
    wanted = oracles.joint_upper(
        n, b, level, lambda u: mean * oracles.gamma_ratio(u / budget, upper=True)
    )
    found = theory.joint_kl_upper(n, b, mean * b, level=level, family="gamma", shape=shape)
    assert found == pytest.approx(wanted, rel=1e-9)
    wanted = -oracles.joint_upper(
        n, b, level, lambda u: -mean * oracles.gamma_ratio(u / budget, upper=False)
    )
    found = theory.joint_kl_lower(n, b, mean * b, level=level, family="gamma", shape=shape)
    assert found == pytest.approx(wanted, rel=1e-9, abs=1e-300)


def test_exponential_is_gamma_of_shape_one() -> None:
    first = theory.joint_kl_upper(500, 20, 33.0, level=2.5, family="exponential")
    assert first == theory.joint_kl_upper(500, 20, 33.0, level=2.5, family="gamma", shape=1.0)


@pytest.mark.parametrize("sd", [0.01, 0.1, 0.6, 1.5])
@pytest.mark.parametrize(("n", "count"), [(3, 3), (40, 2), (3000, 2), (900, 60)])
def test_lognormal(sd: float, n: int, count: int) -> None:
    centre = 0.4
    for level in (0.3, 1.5):
        root = np.linspace(0.0, math.sqrt(level), 200)
        for upper, bound in ((True, theory.joint_kl_upper), (False, theory.joint_kl_lower)):
            table = np.array(
                [oracles.lognormal_log_mean(u * u / count, sd**2, upper) for u in root]
            )
            sign = 1.0 if upper else -1.0

            def best(
                u: np.ndarray, sign: float = sign, x: np.ndarray = root, y: np.ndarray = table
            ) -> np.ndarray:
                return sign * np.exp(centre + np.interp(np.sqrt(u), x, y))

            wanted = sign * oracles.joint_upper(n, count, level, best)
            found = bound(
                n, count, centre * count, level=level, family="lognormal", spread=sd**2 * count
            )
            # the table is interpolated, hence the tolerance
            assert found == pytest.approx(wanted, rel=3e-4)


@pytest.mark.parametrize(("n", "b", "s"), [(60.0, 7.0, 0.35), (500.0, 2.0, 0.05)])
def test_lognormal_against_an_optimiser(n: float, b: float, s: float) -> None:
    from scipy import optimize

    m, level = 0.2, 3.0
    p = b / n

    def value(v: np.ndarray) -> float:
        """-log(mu' p') for log s' and logit p', with the largest m' that is left."""
        s2, q = math.exp(2 * v[0]), 1 / (1 + math.exp(-v[1]))
        left = (level - n * float(oracles.kl(p, q))) / b
        square = 2 * s2 * (left + 0.5 - v[0] + math.log(s)) - s * s
        return math.inf if square < 0 else -(m + math.sqrt(square) + s2 / 2 + math.log(q))

    logit = math.log(p / (1 - p))
    starts = [
        np.array([math.log(s) + x, logit + y])
        for x in np.linspace(0.0, 4.0, 60)
        for y in np.linspace(0.0, 3.0, 60)
    ]
    best = min(starts, key=value)
    for _ in range(3):
        options = {"xatol": 1e-12, "fatol": 1e-15, "maxiter": 4000}
        best = optimize.minimize(value, best, method="Nelder-Mead", options=options).x
    ours = theory.joint_kl_upper(n, b, m * b, level=level, family="lognormal", spread=s * s * b)
    assert math.log(ours) == pytest.approx(-value(best), rel=1e-9)


@quick
@given(pulls, shares, means, scales, levels, st.floats(0.01, 100))
def test_scaling_and_monotonicity(
    n: int, share: float, mean: float, sigma: float, level: float, unit: float
) -> None:
    b = _count(n, share)
    bound = theory.joint_kl_upper(n, b, mean * b, sigma, level)
    assert bound >= mean * b / n - 1e-12 * abs(mean)
    scaled = theory.joint_kl_upper(n, b, unit * mean * b, unit * sigma, level)
    assert scaled == pytest.approx(unit * bound, rel=1e-9, abs=1e-250)
    slack = 1e-9 * abs(bound)
    assert theory.joint_kl_upper(n, b, mean * b, sigma, 1.1 * level) >= bound - slack
    assert theory.joint_kl_upper(n, b, mean * b, 1.1 * sigma, level) >= bound - slack
    assert theory.joint_kl_lower(n, b, mean * b, sigma, level) <= bound


@quick
@given(pulls, shares, st.floats(0, 50), scales, levels)
def test_never_above_the_product_of_separate_bounds(
    n: int, share: float, mean: float, sigma: float, level: float
) -> None:
    b = _count(n, share)
    product = (mean + sigma * math.sqrt(2 * level / b)) * theory.kl_upper(b / n, n, level)
    assert theory.joint_kl_upper(n, b, mean * b, sigma, level) <= product * (1 + 1e-9)


def test_first_order_width_is_the_standard_deviation_of_the_reward() -> None:
    p, mu, sigma, n, level = 0.05, 4.0, 1.0, 10**9, 3.0
    bound = theory.joint_kl_upper(n, p * n, mu * p * n, sigma, level)
    variance = p * sigma**2 + p * (1 - p) * mu**2
    assert bound - mu * p == pytest.approx(math.sqrt(2 * level * variance / n), rel=1e-3)


def test_edges() -> None:
    assert theory.joint_kl_upper(10, 0, 0.0, 1.0, 2.0) == math.inf
    assert theory.joint_kl_lower(10, 0, 0.0, 1.0, 2.0) == -math.inf
    assert theory.joint_kl_lower(10, 0, 0.0, level=2.0, family="exponential") == 0.0
    # every reward non-zero: the mean alone is uncertain
    assert theory.joint_kl_upper(8, 8, 16.0, 1.5, 2.0) == pytest.approx(2 + 1.5 * math.sqrt(0.5))
    # no noise: the probability alone is uncertain, upwards or downwards
    upper, lower = theory.kl_upper(0.3, 10, 2.0), theory.kl_lower(0.3, 10, 2.0)
    assert theory.joint_kl_upper(10, 3, 6.0, 0.0, 2.0) == pytest.approx(2 * upper)
    assert theory.joint_kl_upper(10, 3, -6.0, 0.0, 2.0) == pytest.approx(-2 * lower)
    # one non-zero reward says nothing about an unknown scale
    assert theory.joint_kl_upper(10, 1, 2.0, level=2.0, spread=0.0) == math.inf
    assert theory.joint_kl_upper(10, 5, 10.0, 1.0, 0.0) == pytest.approx(1.0)


def test_level_for_a_given_failure_probability() -> None:
    from scipy.special import erfc

    for delta in (0.5, 0.05, 1e-6, 1e-100):
        level = theory.joint_kl_level(delta)
        failure = erfc(math.sqrt(level)) + 4 * math.sqrt(level / math.pi) * math.exp(-level)
        assert failure == pytest.approx(delta, rel=1e-9)
    assert theory.joint_kl_level([0.1, 0.2]).shape == (2,)
