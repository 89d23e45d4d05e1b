"""Comparisons of several means against SciPy, closed forms and Monte Carlo."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from zib.stats.comparison import ArmValues, compare, difference, pairwise, rows_to_settle


def averages(*samples: np.ndarray) -> ArmValues:
    return ArmValues(
        np.array([x.mean() for x in samples]),
        np.array([x.var(ddof=1) / x.size for x in samples]),
        np.array([x.size - 1.0 for x in samples]),
    )


def test_a_difference_is_that_of_welch(rng) -> None:
    x, y = rng.normal(1.0, 1.0, 12), rng.normal(0.0, 3.0, 7)
    wanted = stats.ttest_ind(x, y, equal_var=False).confidence_interval(0.9)
    found = difference(averages(x, y), 0, level=0.9)
    assert (found.low[1], found.high[1]) == pytest.approx((wanted.low, wanted.high))
    assert (found.value[0], found.low[0], found.high[0]) == (0.0, 0.0, 0.0)


def test_a_covariance_counts_in_differences() -> None:
    values = ArmValues(np.array([2.0, 1.0]), np.array([[4.0, 3.0], [3.0, 4.0]]))
    found = difference(values, 0)
    assert found.high[1] - found.low[1] == pytest.approx(2 * 1.959964 * math.sqrt(2.0))


@pytest.mark.slow
def test_intervals_together_are_those_of_dunnett_and_of_tukey(rng) -> None:
    """20 000 draws have the quantile to about 0.02 standard errors, and 0.08 is allowed."""
    samples = [rng.normal(0.0, 1.0, 4_000) for _ in range(5)]
    values = averages(*samples)
    leader = int(np.argmax(values.value))
    error = math.sqrt(2.0 / 4_000)
    dunnett = stats.dunnett(
        *(x for k, x in enumerate(samples) if k != leader), control=samples[leader], rng=rng
    ).confidence_interval(0.95)
    found = compare(values).together
    # SciPy gives arm minus control
    assert np.delete(found.low, leader) == pytest.approx(-dunnett.high, abs=0.08 * error)
    tukey = stats.tukey_hsd(*samples).confidence_interval(0.95)
    for pair in pairwise(values):
        wanted = tukey.low[pair.first, pair.second], tukey.high[pair.first, pair.second]
        assert pair.together[1:] == pytest.approx(wanted, abs=0.08 * error)
        assert pair.single.low > pair.together.low


def test_intervals_together_are_wider_for_more_arms() -> None:
    widths = [
        np.ptp([x[1] for x in compare(ArmValues(np.arange(k, 0.0, -1.0), np.ones(k))).together[1:]])
        for k in (2, 3, 10)
    ]
    assert widths == sorted(widths)
    # Dunnett's two-sided 5 % point for two comparisons with equal variances
    assert widths[1] == pytest.approx(2 * 2.212 * math.sqrt(2.0), rel=0.02)


def test_two_arms_need_no_adjustment() -> None:
    found = compare(ArmValues(np.array([1.0, 2.0]), np.array([0.3, 0.2])))
    for one, both in zip(found.single, found.together, strict=True):
        np.testing.assert_array_equal(one, both)


def test_chances_and_losses_have_closed_forms_for_two_arms() -> None:
    """From 20 000 draws: off by 0.02, or six standard errors, with probability below 1e-8."""
    gap, error = 0.7, math.sqrt(0.5)
    found = compare(ArmValues(np.array([1.0 + gap, 1.0]), np.array([0.2, 0.3])))
    z = gap / error
    assert found.chance == pytest.approx([stats.norm.cdf(z), stats.norm.cdf(-z)], abs=0.02)
    assert found.behind[1] == pytest.approx(stats.norm.cdf(z), abs=0.02)
    lost = error * (stats.norm.pdf(z) - z * stats.norm.sf(z))
    assert found.loss == pytest.approx([lost, lost + gap], abs=0.02)
    assert found.chance.sum() == pytest.approx(1.0)


def test_means_that_cannot_be_negative_are_not_drawn_so() -> None:
    values = ArmValues(np.array([0.1, 0.0]), np.array([0.01, 0.01]))
    assert compare(values, low=0.0).loss[1] < compare(values).loss[1]
    huge = ArmValues(np.array([0.0, 0.0]), np.array([1e-12, 1e-12]))
    assert compare(huge, low=0.0).chance == pytest.approx([0.5, 0.5], abs=0.02)


def test_rows_to_settle_have_the_textbook_number() -> None:
    """n per arm = 2σ²(z + z')²/d², less those there are."""
    sigma, apart, there = 3.0, 0.4, 150.0
    values = ArmValues(np.array([apart, 0.0]), np.full(2, sigma**2 / there))
    z = stats.norm.ppf(0.975) + stats.norm.ppf(0.8)
    wanted = 2.0 * (sigma * z / apart) ** 2 - there
    rows = np.array([there, there])
    found = rows_to_settle(values, rows, 0, np.array([1]), gap=0.0)
    assert found == pytest.approx(wanted)
    # a difference smaller than what is worth having need not be told
    near = rows_to_settle(values, rows, 0, np.array([1]), gap=2 * apart)
    assert near == pytest.approx((wanted + there) / 4 - there)
    equal = ArmValues(np.zeros(2), np.ones(2))
    assert rows_to_settle(equal, rows, 0, np.array([1]), gap=0.0) == math.inf


def test_an_arm_without_a_variance_is_not_known_exactly() -> None:
    values = ArmValues(np.array([1.0, 0.0]), np.array([0.0, 0.0]))
    assert difference(values, 0).low[1] == -math.inf
    floored = ArmValues(values.value, values.covariance, floor=np.array([0.1, 0.1]))
    assert 0.0 < difference(floored, 0).low[1] < 1.0


@pytest.mark.parametrize("sd", [[1, 1], [1, 1, 1], [5, 1, 1, 1, 0.2], [1] * 10])
def test_a_winner_among_equal_normal_arms_is_as_rare_as_stated(sd: list[float]) -> None:
    """20 000 draws at 5 %: above 5.8 % with probability below 1e-6 if the rule is right."""
    rng = np.random.default_rng(3)
    scale = np.array(sd)
    means = rng.normal(0.0, scale, (20_000, scale.size))
    lead = means.argmax(axis=1)
    apart = means.max(axis=1, keepdims=True) - means
    error = np.hypot(scale[lead][:, None], scale)
    apart[np.arange(len(means)), lead] = np.inf
    assert np.mean((apart > 1.959964 * error).all(axis=1)) <= 0.058


@pytest.mark.slow
def test_thousands_of_arms_are_compared(rng) -> None:
    values = ArmValues(rng.normal(size=3_000), np.full(3_000, 0.01), np.full(3_000, 50.0))
    found = compare(values)
    assert found.chance.sum() == pytest.approx(1.0)
    assert found.together.low.min() > -1.0
