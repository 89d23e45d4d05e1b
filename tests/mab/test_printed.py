"""The literal modes against the listings of the paper, kept line by line.

One thing is not kept: the listings throw the first reward of every arm away, here it counts.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from zib import mab, theory
from zib.core import kernel

ARMS, ROUNDS, T = 4, 250, 500


def rewards_of(rng: np.random.Generator) -> np.ndarray:
    paid = rng.random((ROUNDS, ARMS)) < [0.5, 0.1, 0.25, 0.9]
    return np.where(paid, rng.normal([-15.0, 3.0, 2.0, 0.7], 0.8, (ROUNDS, ARMS)), 0.0)


class Listing:
    """The variables of Algorithm 1 and of Algorithm RUCB, under their names."""

    def __init__(self) -> None:
        self.upper_mean, self.upper_prob = np.ones(ARMS), np.ones(ARMS)  # U^mu, U^p
        self.count, self.prob = np.zeros(ARMS), np.zeros(ARMS)  # c, p̂
        self.rewards: list[list[float]] = [[] for _ in range(ARMS)]

    def observe(self, arm: int, reward: float) -> None:
        self.count[arm] += 1
        self.prob[arm] += (float(reward != 0) - self.prob[arm]) / self.count[arm]


class LightTails(Listing):
    """Algorithm 1 at θ = 2."""

    def learn(self, arm: int, reward: float, t: int) -> None:
        self.observe(arm, reward)
        delta, size = 4 / T**2, 0.8 * math.sqrt(8 / 3)
        self.upper_prob[arm] = self.prob[arm] + math.sqrt(
            math.log(2 / delta) / (2 * self.count[arm])
        )
        if reward != 0:
            self.rewards[arm].append(reward)
            d = math.sqrt(17 / (6 * math.e**2)) * max(1 / size, 1.0)
            half = self.count[arm] * self.prob[arm] / 2
            self.upper_mean[arm] = float(np.mean(self.rewards[arm])) + (
                2 * math.e * d * size * math.sqrt(math.log(4 / delta) / half)
            )


class HeavyTails(Listing):
    """Algorithm RUCB."""

    epsilon, moment = 0.6, 5.0

    def learn(self, arm: int, reward: float, t: int) -> None:
        self.observe(arm, reward)
        count, log_t2 = self.count[arm], math.log(max(t, 2) ** 2)
        self.upper_prob[arm] = self.prob[arm] + math.sqrt(2 * log_t2 / count)
        if reward != 0:
            power, size = self.epsilon / (1 + self.epsilon), self.moment ** (1 / (1 + self.epsilon))
            g = theory.trimming_factor(self.prob[arm], self.epsilon)
            kept = abs(reward) <= g * size * (log_t2 / count) ** power
            self.rewards[arm].append(reward if kept else 0.0)
            self.upper_mean[arm] = float(np.mean(self.rewards[arm])) + (
                size * (32 * math.log(max(t, 2)) / count) ** power
            )


@pytest.mark.parametrize(
    ("spec", "listing"),
    [
        (
            mab.ZIUCB(
                horizon=T, sigma=0.8, radius="subweibull", occurrence="printed", unseen=1.0
            ),
            LightTails,
        ),
        (
            mab.ZIHeavyUCB(
                epsilon=0.6, moment=5.0, trim="printed", radius="printed", index="printed",
                unseen=1.0,
            ),
            HeavyTails,
        ),
    ],
)  # fmt: skip
def test_literal_modes_follow_the_listing(spec, listing, rng) -> None:
    table, printed = rewards_of(rng), listing()
    state, out = kernel.init(spec, ARMS), np.zeros(ARMS)
    uncapped = negative = 0
    for t in range(1, ROUNDS + 1):
        kernel.scores(spec, state, rng, out)
        if t > ARMS:
            wanted = printed.upper_mean * printed.upper_prob
            np.testing.assert_allclose(out, wanted, rtol=1e-9, err_msg=f"round {t}")
            uncapped += int((printed.upper_prob > 1).sum())
            negative += int((printed.upper_mean < 0).sum())
        # every arm is kept in play, also one whose index the listing would leave behind
        arm = t - 1 if t <= ARMS else int(rng.integers(ARMS))
        kernel.update(spec, state, arm, float(table[t - 1, arm]))
        printed.learn(arm, float(table[t - 1, arm]), t)
    assert uncapped > 10
    assert negative > 10


def test_without_the_literal_mode_the_index_moves_between_pulls() -> None:
    """What the listing leaves out: the level grows for arms that are not played, and U^p ≤ 1."""
    indices = {}
    for index in ("current", "printed"):
        spec = mab.ZIHeavyUCB(epsilon=1.0, moment=9.0, index=index)
        state, out = kernel.init(spec, 2), np.zeros(2)
        for arm, reward in [(0, 2.0), (1, 2.0)] + [(1, 2.0)] * 500:
            kernel.update(spec, state, arm, reward)
        kernel.scores(spec, state, np.random.default_rng(0), out)
        indices[index] = out[0]
    # n = 1: in round 1 U^p = 1 + √(2 log 4) and U^mu = 2 + 12 √(log 4), now U^mu has log 503²
    assert indices["printed"] == pytest.approx(
        (2 + 12 * math.sqrt(math.log(4))) * (1 + math.sqrt(2 * math.log(4)))
    )
    assert indices["current"] == pytest.approx(2 + 12 * math.sqrt(2 * math.log(503)))


# ----------------------------------------------------------------------------- split of the level


@pytest.mark.parametrize("split", [0.1, 0.5, 0.8, "by_prob"])
@pytest.mark.parametrize("occurrence", ["kl", "hoeffding"])
def test_shares_of_the_error_level(split, occurrence) -> None:
    """The index is the product of two bounds from `zib.theory`, each at its share of δ."""
    spec = mab.ZIUCB(horizon=T, sigma=0.8, split=split, occurrence=occurrence)
    rng, delta = np.random.default_rng(2), 4 / T**2
    for n, count, mean in ((40, 3, 2.0), (200, 150, 1.0), (90, 90, 0.5), (300, 4, -3.0)):
        state, out = kernel.init(spec, 1), np.zeros(1)
        values = np.concatenate([rng.normal(mean, 0.8, count), np.zeros(n - count)])
        for value in values:
            kernel.update(spec, state, 0, float(value))
        kernel.scores(spec, state, rng, out)
        share = theory.error_share(count / (n + 1)) if split == "by_prob" else split
        upper = values[:count].mean() + theory.given_count_radius(count, 2 * share * delta, 0.8)
        high = theory.bernoulli_upper(count, n, 2 * (1 - share) * delta, method=occurrence)
        low = theory.bernoulli_lower(count, n, 2 * (1 - share) * delta, method=occurrence)
        assert out[0] == pytest.approx(upper * (high if upper >= 0 else low), rel=1e-9)


@pytest.mark.parametrize("delta", [0.2, 0.02])
@pytest.mark.parametrize("p", [0.02, 0.3, 0.9])
@pytest.mark.parametrize("mu", [0.3, 4.0])
def test_split_by_the_probability_keeps_the_coverage(delta, p, mu, rng) -> None:
    """It fails in less than 0.3 δ of the samples; a rate of 0.3 δ is refused with chance 1e-6."""
    sigma, samples = 1.0, 10_000
    for n in (20, 500):
        count = rng.binomial(n, p, samples)
        paid = count > 0
        n_paid = count[paid]
        mean = rng.normal(mu, sigma / np.sqrt(n_paid))
        share = theory.error_share(n_paid / (n + 1))
        upper = mean + sigma * np.sqrt(2 * np.log(1 / (share * delta)) / n_paid)
        high = theory.bernoulli_upper(n_paid, n, 2 * (1 - share) * delta, method="kl")
        failures = int((np.where(upper >= 0, upper * high, 0.0) < mu * p).sum())
        assert failures <= stats.binom.isf(1e-6, samples, 0.3 * delta)


def test_no_share_makes_the_product_as_narrow_as_the_joint_bound() -> None:
    """Widths to first order: the best share gains a few per cent, the joint bound up to √2."""
    share = np.linspace(0.001, 0.999, 999)
    for p, mu in ((0.01, 4.0), (0.3, 2.0), (0.9, 0.5)):
        for delta in (1e-2, 1e-10):
            a, b = math.sqrt(p), mu * math.sqrt(p * (1 - p))
            width = a * np.sqrt(np.log(1 / (share * delta)))
            width += b * np.sqrt(np.log(1 / ((1 - share) * delta)))
            equal = width[499]
            assert 0.95 * equal < width.min() <= equal
            assert abs(share[width.argmin()] - a / (a + b)) < 0.06
            assert width.min() > (a + b) * math.sqrt(math.log(1 / delta))
            joint = math.hypot(a, b) * math.sqrt(math.log(1 / delta))
            assert joint < width.min()
