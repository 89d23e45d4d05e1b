"""Groups that are alike or apart: evidence and draws, against Monte Carlo and closed forms."""

import numpy as np
import pytest
from scipy import integrate, stats

from zib.stats.between import SPREADS, Shares, Values

LOG_WEIGHTS = np.log(SPREADS)


def test_the_evidence_of_two_values_is_the_ratio_of_normal_densities() -> None:
    """With two groups only the difference counts: N(0, v₁ + v₂ + 2τ²) against N(0, v₁ + v₂)."""
    value, variance, scale = np.array([1.0, 1.7]), np.array([0.02, 0.05]), 1.3
    spread = scale * SPREADS
    slab = stats.norm.pdf(0.7, scale=np.sqrt(0.07 + 2 * spread**2)).mean()
    expected = np.log(slab / stats.norm.pdf(0.7, scale=np.sqrt(0.07)))
    assert Values(value, variance, scale).log_odds == pytest.approx(expected, abs=1e-10)
    far = Values(value, variance, scale, freedom=1e9).log_odds
    assert far == pytest.approx(expected, abs=1e-5)


def test_a_group_without_data_says_nothing() -> None:
    two = Values([1.0, 2.0], [0.1, 0.1], 1.0)
    three = Values([1.0, 2.0, 99.0], [0.1, 0.1, np.inf], 1.0)
    assert three.log_odds == pytest.approx(two.log_odds, abs=1e-12)


def test_the_evidence_of_shares_is_the_ratio_of_integrals() -> None:
    """One spread, by numerical integration over the centre on the scale of the logit."""
    from scipy.special import betaln, expit

    count, size = np.array([12.0, 25.0]), np.array([200.0, 260.0])

    def inside(logit: float, spread: float | None) -> float:
        m = expit(logit)
        if spread is None:
            log = (count * np.log(m) + (size - count) * np.log1p(-m)).sum()
        else:
            total = 1.0 / (spread**2 * m * (1.0 - m))
            a, b = m * total, (1.0 - m) * total
            log = (betaln(a + count, b + size - count) - betaln(a, b)).sum()
        return float(np.exp(log + 150.0))

    def whole(spread: float | None) -> float:
        return float(integrate.quad(inside, -8.0, 2.0, args=(spread,), limit=200)[0])

    expected = np.log(np.mean([whole(s) for s in SPREADS]) / whole(None))
    assert Shares(count, size).log_odds == pytest.approx(expected, abs=0.01)


def test_draws_of_values_have_the_moments_of_the_posterior() -> None:
    value, variance = np.array([0.0, 1.0, 4.0]), np.array([0.5, 0.2, 0.3])
    groups = Values(value, variance, 1.0)
    rng = np.random.default_rng(0)
    drawn = np.array([groups.draw(rng, apart=True) for _ in range(2_000)])
    # the posterior by brute force: θ given τ and m is normal; τ flat, m flat
    mean, weights = np.zeros(3), 0.0
    for tau in SPREADS:
        w = 1.0 / (variance + tau**2)
        m = (w @ value) / w.sum()
        log = 0.5 * np.log(w).sum() - 0.5 * np.log(w.sum()) - 0.5 * (w * (value - m) ** 2).sum()
        share = tau**2 / (tau**2 + variance)
        mean += np.exp(log) * tau * (share * value + (1 - share) * m)
        weights += np.exp(log) * tau
    # four standard errors of three means: error probability 2e-4
    error = 4 * drawn.std(axis=0) / np.sqrt(2_000)
    assert (np.abs(drawn.mean(axis=0) - mean / weights) < error).all()
    assert len(set(groups.draw(rng, apart=False))) == 1


def test_draws_of_shares_are_shrunk_towards_each_other() -> None:
    groups = Shares([10.0, 30.0, 0.0], [1_000.0, 1_000.0, 10.0])
    rng = np.random.default_rng(0)
    drawn = np.array([groups.draw(rng, apart=True) for _ in range(500)])
    low, high, unknown = drawn.mean(axis=0)
    assert 0.010 < low < 0.015
    assert 0.025 < high < 0.030
    assert 0.010 < unknown < 0.030  # next to nothing is known about it


@pytest.mark.slow
def test_equal_groups_are_seldom_called_different() -> None:
    """A Bayes factor has mean 1 where groups are alike, so it exceeds 39 in at most 1/39 of cases.

    Of 2 000 cases 51 are expected at most; more than 85 has a probability below 1e-5.
    """
    rng = np.random.default_rng(1)
    large = 0
    for _ in range(2_000):
        arms = int(rng.integers(2, 12))
        size = rng.integers(20, 3_000, arms).astype(float)
        large += Shares(rng.binomial(size.astype(int), 0.03), size).log_odds > np.log(39.0)
    assert large <= 85
