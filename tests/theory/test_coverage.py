"""Each confidence bound by simulation.

Every case draws REPEATS samples and counts how often the bound fails. A bound that holds with
probability 1 - delta is rejected only if the count exceeds the 1 - 1e-6 quantile of the binomial
law with success probability delta; over the fewer than 2 000 cases of this file a correct library
fails somewhere with probability below 0.002.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from zib import theory

REPEATS = 4000
DELTAS = (0.2, 0.02)
PROBS = (0.005, 0.1, 0.6, 1.0)
PULLS = (20, 300, 5000)
MEANS = (-3.0, 0.4, 5.0)

Array = np.ndarray
Sampler = Callable[[np.random.Generator, Array], Array]


def accept(failures: Array, delta: float, *case: object) -> None:
    allowed = stats.binom.isf(1e-6, failures.size, delta)
    assert failures.sum() <= allowed, (failures.mean(), delta, *case)


def mean_of(rng: np.random.Generator, count: Array, sampler: Sampler) -> Array:
    """The mean of `count` draws per row; nan where there are none."""
    total = np.zeros(count.size)
    done = np.zeros_like(count)
    while np.any(done < count):
        active = done < count
        block = min(64, int((count - done).max()))
        draws = sampler(rng, np.empty((int(active.sum()), block)))
        keep = np.arange(block) < (count - done)[active][:, None]
        total[active] += np.where(keep, draws, 0.0).sum(axis=1)
        done[active] = np.minimum(done[active] + block, count[active])
    with np.errstate(all="ignore"):
        return np.where(count > 0, total / count, np.nan)


def gaussian_statistics(
    rng: np.random.Generator, n: int, p: float, mean: float, sigma: float
) -> tuple[Array, Array, Array]:
    """Counts, sums and squared deviations of the non-zero rewards of REPEATS arms."""
    count = rng.binomial(n, p, REPEATS)
    total = count * mean + sigma * np.sqrt(count) * rng.standard_normal(REPEATS)
    spread = sigma**2 * rng.chisquare(np.maximum(count - 1, 1))
    return count, total, np.where(count > 1, spread, 0.0)


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("p", [0.0, 1e-4, *PROBS])
def test_bernoulli_bounds(p: float, delta: float, rng: np.random.Generator) -> None:
    for n in PULLS:
        wins = rng.binomial(n, p, REPEATS)
        for method in ("hoeffding", "kl"):
            upper = theory.bernoulli_upper(wins, n, delta, method)
            lower = theory.bernoulli_lower(wins, n, delta, method)
            accept((upper < p) | (lower > p), delta, n, p, method)
            accept(upper < p, delta / 2, n, p, method)
            accept(lower > p, delta / 2, n, p, method)


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("p", PROBS)
def test_given_count_and_products(p: float, delta: float, rng: np.random.Generator) -> None:
    for n in PULLS:
        for mean in MEANS:
            for sigma in (0.3, 2.0):
                count, total, _ = gaussian_statistics(rng, n, p, mean, sigma)
                radius = theory.given_count_radius(count, delta, sigma)
                estimate = total / np.maximum(count, 1)
                accept(np.abs(estimate - mean) > radius, delta, n, p, mean, sigma)
                # half of delta for each factor; two-sided bounds on p for either sign
                radius = theory.given_count_radius(count, delta / 2, sigma)
                upper = theory.bernoulli_upper(count, n, delta / 2, "kl")
                lower = theory.bernoulli_lower(count, n, delta / 2, "kl")
                bound = theory.product_upper(estimate + radius, lower, upper)
                accept(bound < mean * p, delta, n, p, mean, sigma)
                bound = theory.product_lower(estimate - radius, lower, upper)
                accept(bound > mean * p, delta, n, p, mean, sigma)


def test_the_printed_product_fails_for_negative_means(rng: np.random.Generator) -> None:
    n, p, mean, delta = 5000, 0.3, -3.0, 0.05
    count, total, _ = gaussian_statistics(rng, n, p, mean, 0.1)
    upper = total / count + theory.given_count_radius(count, delta / 2, 0.1)
    printed = upper * theory.bernoulli_upper(count, n, delta / 2)
    # exceeds delta by a factor of ten and more: no chance of passing
    assert (printed < mean * p).mean() > 0.5


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("p", PROBS)
def test_joint_bounds_of_gaussian_rewards(p: float, delta: float, rng: np.random.Generator) -> None:
    level = theory.joint_kl_level(delta)
    for n in PULLS:
        for mean in MEANS:
            for sigma in (0.3, 2.0):
                count, total, _ = gaussian_statistics(rng, n, p, mean, sigma)
                upper = theory.joint_kl_upper(n, count, total, sigma, level)
                lower = theory.joint_kl_lower(n, count, total, sigma, level)
                accept((upper < mean * p) | (lower > mean * p), delta, n, p, mean, sigma)
                # measured, not proved: one bound alone is content with log(1/delta)
                upper = theory.joint_kl_upper(n, count, total, sigma, math.log(1 / delta))
                accept(upper < mean * p, 0.4 * delta, n, p, mean, sigma)


@pytest.mark.slow
@pytest.mark.parametrize("p", [0.05, 0.4])
@pytest.mark.parametrize("mean", MEANS)
def test_joint_bounds_at_the_asymptotic_level(
    p: float, mean: float, rng: np.random.Generator
) -> None:
    # A single bound needs only z²/2 when there are many non-zero rewards, for every family. Half a
    # percent is added to delta for what is left of the asymptotics at 2 000 and more of them.
    delta = 0.05
    level = stats.norm.isf(delta) ** 2 / 2
    n = int(2000 / p)
    for sigma in (0.3, 2.0):
        count, total, spread = gaussian_statistics(rng, n, p, mean, sigma)
        upper = theory.joint_kl_upper(n, count, total, sigma, level)
        accept(upper < mean * p, delta + 0.005, p, mean, sigma)
        upper = theory.joint_kl_upper(n, count, total, level=level, spread=spread)
        accept(upper < mean * p, delta + 0.005, p, mean, sigma)
        lower = theory.joint_kl_lower(n, count, total, level=level, spread=spread)
        accept(lower > mean * p, delta + 0.005, p, mean, sigma)
    size = abs(mean)
    for shape in (1.0, 3.0):
        count = rng.binomial(n, p, REPEATS)
        total = rng.gamma(shape * count, size / shape)
        kind = {"family": "gamma", "shape": shape, "level": level}
        upper = theory.joint_kl_upper(n, count, total, **kind)
        accept(upper < size * p, delta + 0.005, p, size, shape)
        lower = theory.joint_kl_lower(n, count, total, **kind)
        accept(lower > size * p, delta + 0.005, p, size, shape)
    # the logarithms of log-normal rewards have the Gaussian statistics
    count, total, spread = gaussian_statistics(rng, n, p, mean / 5, 0.7)
    truth = p * math.exp(mean / 5 + 0.7**2 / 2)
    kind = {"family": "lognormal", "spread": spread, "level": level}
    accept(theory.joint_kl_upper(n, count, total, **kind) < truth, delta + 0.005, p, mean)
    accept(theory.joint_kl_lower(n, count, total, **kind) > truth, delta + 0.005, p, mean)


@pytest.mark.parametrize("p", [0.0, 0.0005, 0.01])
def test_unseen_arms(p: float, rng: np.random.Generator) -> None:
    delta, n, mean = 0.1, 300, 2.0
    count = rng.binomial(n, p, REPEATS)
    bound = theory.unseen_upper(n, math.log(1 / delta), mean)
    accept((count == 0) & (bound < mean * p), delta, p)


@pytest.mark.parametrize("theta", [0.5, 0.8, 1.0, 1.5, 2.0, 3.0])
def test_subweibull_radius(theta: float, rng: np.random.Generator) -> None:
    size = 0.9 * 2.0 ** (1 / theta)

    def sampler(rng: np.random.Generator, like: Array) -> Array:
        sign = np.where(rng.random(like.shape) < 0.5, -1.0, 1.0)
        return 2.0 + 0.9 * sign * rng.weibull(theta, like.shape)

    assert size == pytest.approx(theory.subweibull_size(stats.dweibull(theta, scale=0.9), theta))
    for n in (1, 5, 100):
        estimate = mean_of(rng, np.full(REPEATS, n), sampler)
        for delta in DELTAS:
            radius = theory.subweibull_radius(n, delta, theta, size)
            accept(np.abs(estimate - 2.0) > radius, delta, n, theta)


@pytest.mark.parametrize("p", [0.005, 0.1, 0.6])
@pytest.mark.parametrize("theta", [0.7, 1.0, 2.0])
def test_zero_inflated_subweibull_radius(theta: float, p: float, rng: np.random.Generator) -> None:
    delta = 0.1
    size = 2.0 ** (1 / theta)

    def sampler(rng: np.random.Generator, like: Array) -> Array:
        sign = np.where(rng.random(like.shape) < 0.5, -1.0, 1.0)
        return -1.0 + sign * rng.weibull(theta, like.shape)

    n = math.ceil(theory.zi_subweibull_min_n(p, delta, method="kl"))
    count = rng.binomial(n, p, REPEATS)
    estimate = mean_of(rng, count, sampler)
    radius = theory.zi_subweibull_radius(n, p, delta, theta, size)
    accept(~(np.abs(estimate + 1.0) <= radius), delta, theta, p)


@pytest.mark.parametrize("mean", [0.5, 4.0])
def test_subexponential_radius(mean: float, rng: np.random.Generator) -> None:
    lam = theory.exponential_subexponential_size(mean)
    for count in (1, 5, 100):
        estimate = rng.gamma(count, mean, REPEATS) / count
        for delta in DELTAS:
            radius = theory.subexponential_radius(count, delta, lam)
            accept(np.abs(estimate - mean) > radius, delta, mean, count)


@pytest.mark.parametrize("p", PROBS)
def test_sizes_of_the_reward_itself(p: float, rng: np.random.Generator) -> None:
    for n in PULLS:
        for mean in MEANS:
            sigma = 0.5
            _, total, _ = gaussian_statistics(rng, n, p, mean, sigma)
            tau = math.sqrt(theory.product_variance_proxy(mean, p, sigma))
            for delta in DELTAS:
                radius = theory.given_count_radius(n, delta, tau)
                accept(np.abs(total / n - mean * p) > radius, delta, n, p, mean)
        for mean in (0.5, 5.0):
            count = rng.binomial(n, p, REPEATS)
            total = rng.gamma(np.maximum(count, 1e-300), mean) * (count > 0)
            lam = theory.exponential_subexponential_size(mean)
            alpha = theory.product_subexponential_size(mean, p, lam)
            for delta in DELTAS:
                radius = theory.subexponential_radius(n, delta, alpha)
                accept(np.abs(total / n - mean * p) > radius, delta, n, p, mean)


@pytest.mark.parametrize("p", [0.1, 0.7])
@pytest.mark.parametrize("centre", [-2.0, 0.0, 6.0])
def test_trimmed_mean(p: float, centre: float, rng: np.random.Generator) -> None:
    # Student's t with 1.8 degrees of freedom has moments up to order 1.8 only
    epsilon, delta, repeats = 0.6, 0.1, 600
    degrees = 1.8
    moment = stats.t(degrees, loc=centre).expect(lambda x: np.abs(x) ** (1 + epsilon), limit=500)
    n = math.ceil(theory.zi_subweibull_min_n(p, delta, method="kl"))
    radius = theory.trimmed_radius(n, p, delta, moment, epsilon)
    failures = np.zeros((2, repeats))
    for i in range(repeats):
        count = rng.binomial(n, p)
        if count == 0:
            continue
        x = centre + rng.standard_t(degrees, count)
        estimate = theory.trimmed_mean(x, delta, moment, epsilon)
        failures[:, i] = centre - estimate >= radius, estimate - centre >= radius
    accept(failures[0], delta, p, centre)
    accept(failures[1], delta, p, centre)


@pytest.mark.parametrize("epsilon", [0.2, 0.5, 1.0])
@pytest.mark.parametrize("centre", [-2.0, 6.0])
def test_trimmed_mean_given_the_count(
    epsilon: float, centre: float, rng: np.random.Generator
) -> None:
    # Student's t with just more moments than needed; the count is random, as in a bandit
    delta, repeats, n, p = 0.1, 600, 200, 0.3
    degrees = 1.05 + epsilon
    moment = stats.t(degrees, loc=centre).expect(lambda x: np.abs(x) ** (1 + epsilon), limit=500)
    failures = np.zeros(repeats)
    for i in range(repeats):
        count = max(rng.binomial(n, p), 1)
        x = centre + rng.standard_t(degrees, count)
        radius = theory.trimmed_count_radius(count, delta, moment, epsilon)
        failures[i] = abs(theory.trimmed_mean(x, delta, moment, epsilon) - centre) > radius
    accept(failures, delta, epsilon, centre)
