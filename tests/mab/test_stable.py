"""The stable-law policy: its law, its posterior against a Gibbs sampler, and outliers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from zib import mab
from zib.core import kernel
from zib.mab import sampling, stable


def learned(spec, rewards):
    state = kernel.init(spec, 1)
    for reward in rewards:
        kernel.update(spec, state, 0, float(reward))
    return state


def drawn(spec, rewards, size: int = 4_000) -> np.ndarray:
    """Draws of mu after these rewards."""
    state, rng = learned(spec, rewards), np.random.default_rng(0)
    return np.array([sampling.magnitude(spec, state, 0, 0.0, rng) for _ in range(size)])


@pytest.mark.parametrize("stability", [1.05, 1.3, 1.8, 1.99])
def test_law_against_scipy(stability) -> None:
    spec = mab.ZIStableTS(sigma=1.0, stability=stability)
    own = kernel.init(spec, 1).own
    law = stats.levy_stable(stability, 0.0)
    at = np.array([0.0, 0.3, 1.0, 2.5, 7.0, 30.0])
    found = [stable.log_density(spec, own, x) for x in at]
    assert np.allclose(found, law.logpdf(at), atol=2e-4)
    assert [stable.log_density(spec, own, -x) for x in at] == found
    slopes = (law.logpdf(at[1:] - 1e-4) - law.logpdf(at[1:] + 1e-4)) / 2e-4
    assert np.allclose([stable.score_at(spec, own, x) for x in at[1:]], slopes, atol=2e-3)
    far = stable.log_density(spec, own, 4_000.0) - stable.log_density(spec, own, 1_000.0)
    assert far == pytest.approx(-(1 + stability) * math.log(4.0))
    middle = slice(stable.GRID // 4, 3 * stable.GRID // 4, 5)
    assert np.allclose(law.cdf(own.quantiles[middle]), own.levels[middle], atol=1e-4)


@pytest.mark.parametrize(
    ("stability", "skewness"), [(1.2, 0.0), (1.7, 0.0), (1.5, 1.0), (1.8, -0.5)]
)
def test_draws_by_chambers_mallows_stuck_against_scipy(rng, stability, skewness) -> None:
    uniforms = rng.random((5_000, 2))
    x = np.array([stable.draw_stable(stability, skewness, u, v) for u, v in uniforms])
    grid = np.array([-4.0, -1.5, -0.5, 0.0, 0.5, 1.5, 4.0])
    expected = stats.levy_stable.cdf(grid, stability, skewness)
    seen = (x[:, None] <= grid).mean(axis=0)
    # 28 proportions at 5 standard errors: error probability below 2e-5
    assert (np.abs(seen - expected) < 5 * np.sqrt(expected * (1 - expected) / x.size)).all()


def test_edges_of_the_uniforms_give_numbers() -> None:
    last = 1.0 - 2.0**-53
    for u in (0.0, 0.5, last):
        for v in (0.0, 0.5, last):
            assert math.isfinite(stable.draw_stable(1.3, 1.0, u, v))


def test_mots_draws_from_a_stable_law(rng) -> None:
    """Eight rewards of arm 0 with mean 2; with the cap far away a draw is mean + scale·S."""
    spec = mab.MOTS(horizon=1e300, sigma=0.5, rho=0.8, alpha=1e6, stability=1.5, skewness=0.3)
    state = kernel.init(spec, 1)
    for reward in (1.0, 3.0) * 4:
        kernel.update(spec, state, 0, reward)
    out = np.zeros(1)
    draws = []
    for _ in range(4_000):
        kernel.scores(spec, state, rng, out)
        draws.append(out[0])
    scale = 0.5 / math.sqrt(1.6) * 8 ** (1 / 1.5 - 1)
    grid = np.array([0.5, 1.5, 2.0, 2.5, 3.5])
    expected = stats.levy_stable.cdf((grid - 2.0) / scale, 1.5, 0.3)
    seen = (np.array(draws)[:, None] <= grid).mean(axis=0)
    # five proportions at 5 standard errors: error probability below 1e-5
    assert (np.abs(seen - expected) < 5 * np.sqrt(expected * (1 - expected) / 4_000)).all()
    assert mab.MOTS(horizon=10, sigma=1.0).label == "MOTS"
    assert spec.label == "MOTS stable"


def gibbs(x: np.ndarray, stability: float, sigma: float, rng, sweeps: int = 1_000) -> np.ndarray:
    """Sample mu by its scale mixture of normals: all scales given mu, and mu given all scales.

    The scales are positive stable, drawn by SciPy; scales given a reward, by importance.
    """
    a = stability / 2
    size = math.cos(math.pi * a / 2) ** (1 / a)
    pool = stats.levy_stable.rvs(a, 1.0, scale=size, size=1_500, random_state=rng)
    log_pool = np.log(pool)
    mu, found = float(np.median(x)), []
    for _ in range(sweeps):
        quad = (x - mu) ** 2 / (4 * sigma**2)
        weights = np.exp(-0.5 * log_pool[None, :] - quad[:, None] / pool[None, :]).cumsum(axis=1)
        pick = (rng.random(x.size) * weights[:, -1])[:, None] < weights
        scale = pool[pick.argmax(axis=1)]
        precision = (1 / scale).sum()
        mu = (x / scale).sum() / precision + sigma * math.sqrt(2 / precision) * rng.normal()
        found.append(mu)
    return np.array(found[200:])


@pytest.mark.parametrize("n", [4, 25, 60])
def test_posterior_is_that_of_drawing_scales_and_centre_in_turn(rng, n) -> None:
    stability, sigma = 1.6, 1.0
    x = stats.levy_stable.rvs(stability, 0.0, loc=3.0, scale=sigma, size=n, random_state=rng)
    ours = drawn(mab.ZIStableTS(sigma=sigma, stability=stability), x)
    oracle = gibbs(x, stability, sigma, rng)
    # Gibbs draws are correlated, about 150 count: standard errors of .1 sd (median), 8 % (spread)
    q25, q50, q75 = np.quantile(oracle, [0.25, 0.5, 0.75])
    r25, r50, r75 = np.quantile(ours, [0.25, 0.5, 0.75])
    assert abs(r50 - q50) < 0.4 * (q75 - q25)
    assert (r75 - r25) / (q75 - q25) == pytest.approx(1.0, abs=0.35)


def test_an_outlier_counts_little_wherever_it_stands(rng) -> None:
    spec = mab.ZIStableTS(sigma=math.sqrt(0.5))
    rest = rng.normal(0.0, 1.0, 500)
    for place in (0, 1, 100, 499):
        draws = drawn(spec, np.insert(rest, place, 300.0), 500)
        # the standard error of the mean of the rest is .045
        assert abs(draws.mean()) < 0.2
        assert draws.std() < 0.1
    three = drawn(spec, [300.0, 301.0, 299.0, *rest[:25]], 500)
    assert abs(three.mean()) < 1.0


def test_two_rewards_far_apart_leave_two_places_open() -> None:
    draws = drawn(mab.ZIStableTS(sigma=1.0, stability=1.6), [1.0, 101.0])
    # by symmetry half of the draws each; 5 standard errors
    assert abs((draws < 51.0).mean() - 0.5) < 5 * 0.5 / math.sqrt(draws.size)
    assert ((np.abs(draws - 1) < 20) | (np.abs(draws - 101) < 20)).mean() > 0.98


def test_weights_of_three_places_far_apart() -> None:
    """The middle one explains the others by two jumps of d, the outer ones by d and 2d."""
    draws = drawn(mab.ZIStableTS(sigma=1.0, stability=1.6), [1.0, 20_001.0, 10_001.0])
    middle = 2.0**2.6 / (2.0 + 2.0**2.6)
    # 5 standard errors, and 1 % for the points between which the density is taken for linear
    error = 5 * math.sqrt(middle * (1 - middle) / draws.size) + 0.01
    assert abs((np.abs(draws - 10_001.0) < 1_000).mean() - middle) < error


@pytest.mark.parametrize("rewards", [[1e100, 1.0], [1e100] * 40, [1e-100, -1e100, 5.0], [7.0] * 60])
def test_rewards_of_any_size_give_finite_draws(rewards) -> None:
    draws = drawn(mab.ZIStableTS(sigma=1e-3), rewards, 200)
    assert np.isfinite(draws).all()


def test_gaussian_case_is_the_exact_posterior() -> None:
    spec = mab.ZIStableTS(sigma=0.5, stability=2.0)
    x = [1.0, 2.0, 4.0]
    own = learned(spec, x).own
    assert own.centre[0] == pytest.approx(np.mean(x))
    assert own.information[0] == pytest.approx(3 / (2 * 0.5**2))
