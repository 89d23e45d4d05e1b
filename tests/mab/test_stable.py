"""The stable-law policy: its random numbers, its scale mixture, and its posterior."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from zib import mab
from zib.core import kernel
from zib.mab.thompson import positive_stable


@pytest.mark.parametrize("a", [0.6, 0.85, 0.95])
def test_positive_stable_has_its_laplace_transform(rng, a) -> None:
    draws = np.array([positive_stable(a, u, v) for u, v in rng.random((40_000, 2))])
    for s in (0.3, 1.0, 3.0):
        values = np.exp(-s * draws)
        error = values.std() / math.sqrt(values.size)
        # nine comparisons at 5 standard errors: error probability below 1e-5
        assert abs(values.mean() - math.exp(-(s**a))) < 5 * error


def test_scale_mixture_is_the_stable_law(rng) -> None:
    stability, sigma = 1.7, 0.6
    scale = np.array([positive_stable(stability / 2, u, v) for u, v in rng.random((5_000, 2))])
    x = 2.0 + np.sqrt(scale) * rng.normal(0.0, math.sqrt(2) * sigma, scale.size)
    law = stats.levy_stable(stability, 0.0, loc=2.0, scale=sigma)
    grid = np.array([0.0, 1.0, 1.6, 2.0, 2.4, 3.0, 4.0])
    expected = law.cdf(grid)
    seen = (x[:, None] <= grid).mean(axis=0)
    # seven proportions at 5 standard errors: error probability below 1e-5
    assert (np.abs(seen - expected) < 5 * np.sqrt(expected * (1 - expected) / x.size)).all()


def gibbs(x: np.ndarray, stability: float, sigma: float, rng, sweeps: int = 1500) -> np.ndarray:
    """Full Gibbs sampler over all scales and mu: importance-weighted redraw of every scale."""
    mu, found = float(np.median(x)), []
    pool = np.array([positive_stable(stability / 2, u, v) for u, v in rng.random((4_000, 2))])
    log_pool = np.log(pool)
    for _ in range(sweeps):
        quad = (x - mu) ** 2 / (4 * sigma**2)
        weights = np.exp(-0.5 * log_pool[None, :] - quad[:, None] / pool[None, :]).cumsum(axis=1)
        pick = (rng.random(x.size) * weights[:, -1])[:, None] < weights
        scale = pool[pick.argmax(axis=1)]
        precision = (1 / scale).sum()
        mu = (x / scale).sum() / precision + sigma * math.sqrt(2 / precision) * rng.normal()
        found.append(mu)
    return np.array(found[200:])


def test_one_scale_per_reward_is_close_to_the_full_gibbs_sampler(rng) -> None:
    stability, sigma = 1.6, 1.0
    x = stats.levy_stable.rvs(stability, 0.0, loc=3.0, scale=sigma, size=150, random_state=rng)
    spec = mab.ZIStableTS(sigma=sigma, stability=stability)
    state = kernel.init(spec, 1)
    for reward in x:
        kernel.update(spec, state, 0, float(reward))
    mean = state.own.weighted[0] / state.own.weight[0]
    spread = sigma * math.sqrt(2 / state.own.weight[0])
    oracle = gibbs(x, stability, sigma, rng)
    assert abs(mean - oracle.mean()) < 1.0 * oracle.std()
    assert 0.6 < spread / oracle.std() < 1.5


def test_an_outlier_hardly_moves_the_estimate() -> None:
    spec = mab.ZIStableTS(sigma=1.0, stability=1.6)
    state = kernel.init(spec, 1)
    for j in range(50):
        kernel.update(spec, state, 0, 3.0 + 0.5 * (-1) ** j)
    before = state.own.weighted[0] / state.own.weight[0]
    kernel.update(spec, state, 0, 1e6)
    after = state.own.weighted[0] / state.own.weight[0]
    assert abs(after - before) < 1e-3


def test_gaussian_case_is_the_exact_posterior() -> None:
    spec = mab.ZIStableTS(sigma=0.5, stability=2.0)
    state = kernel.init(spec, 1)
    x = [1.0, 2.0, 4.0]
    for reward in x:
        kernel.update(spec, state, 0, reward)
    assert state.own.weight[0] == 3.0
    assert state.own.weighted[0] == pytest.approx(sum(x))
