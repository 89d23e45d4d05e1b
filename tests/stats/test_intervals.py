"""Intervals against SciPy and statsmodels, at their borders, and by how often they hold."""

import numpy as np
import pytest
from scipy import stats

from zib.stats import intervals
from zib.stats.intervals import Estimate

SAMPLES = [np.random.default_rng(k).gamma(2.0, 3.0, n) for k, n in enumerate((2, 5, 40))]


def ends(found):
    return [found.low, found.high]


@pytest.mark.parametrize("level", [0.5, 0.95, 0.999])
@pytest.mark.parametrize("values", SAMPLES)
def test_mean_is_that_of_scipy(values, level):
    expected = stats.ttest_1samp(values, 0.0).confidence_interval(level)
    found = intervals.mean(values, level=level)
    np.testing.assert_allclose(ends(found), [expected.low, expected.high], rtol=1e-12)
    assert isinstance(found.low, float)


@pytest.mark.parametrize("level", [0.9, 0.95])
def test_paired_and_welch_are_those_of_scipy(level):
    a, b = SAMPLES[2][:20], SAMPLES[2][20:]
    paired = stats.ttest_rel(a, b).confidence_interval(level)
    np.testing.assert_allclose(
        ends(intervals.paired_difference(a, b, level=level)), [paired.low, paired.high], rtol=1e-12
    )
    welch = stats.ttest_ind(a, SAMPLES[1], equal_var=False).confidence_interval(level)
    np.testing.assert_allclose(
        ends(intervals.difference(a, SAMPLES[1], level=level)), [welch.low, welch.high], rtol=1e-12
    )


@pytest.mark.parametrize(("successes", "n"), [(0, 10), (3, 10), (10, 10), (7, 1_000)])
def test_share_is_that_of_scipy(successes, n):
    expected = stats.binomtest(successes, n).proportion_ci(0.95, method="exact")
    np.testing.assert_allclose(
        ends(intervals.share(successes, n)), [expected.low, expected.high], rtol=1e-10, atol=1e-15
    )


def test_ratio_is_the_set_of_ratios_that_a_t_test_does_not_reject():
    rng = np.random.default_rng(5)
    b = rng.gamma(5.0, 1.0, 12)
    a = 0.7 * b + rng.gamma(2.0, 0.5, 12)
    found = intervals.ratio(a, b)
    for end in ends(found):
        assert stats.ttest_1samp(a - end * b, 0.0).pvalue == pytest.approx(0.05, rel=1e-8)


def test_log_ratio_is_a_paired_interval_of_the_linear_parts():
    a, b = SAMPLES[2][:20], SAMPLES[2][20:]
    linear = intervals.mean(a / a.mean() - b / b.mean())
    found = intervals.log_ratio(a, b)
    assert found.value == pytest.approx(np.log(a.mean() / b.mean()))
    assert found.high - found.value == pytest.approx(linear.high - linear.value)


PAIRED = (intervals.paired_difference, intervals.ratio, intervals.log_ratio)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_columns_are_treated_one_by_one(axis):
    rng = np.random.default_rng(1)
    one, other = rng.gamma(3.0, 1.0, (2, 9, 4))
    one[2, 0] = np.nan
    other[5, 1] = np.nan
    given = [x if axis == 0 else x.T for x in (one, other)]
    for j in range(4):
        there = ~np.isnan(one[:, j]) & ~np.isnan(other[:, j])
        for function in PAIRED:
            found = [np.asarray(part)[j] for part in function(*given, axis=axis)]
            np.testing.assert_allclose(found, function(one[there, j], other[there, j]), rtol=1e-12)
        kept = one[~np.isnan(one[:, j]), j]
        found = [np.asarray(part)[j] for part in intervals.mean(given[0], axis=axis)]
        np.testing.assert_allclose(found, intervals.mean(kept), rtol=1e-12)
        assert np.asarray(intervals.standard_error(given[0], axis=axis))[j] == pytest.approx(
            stats.sem(kept)
        )


def test_too_little_data_gives_infinite_ends():
    assert intervals.mean([2.0]) == Estimate(2.0, -np.inf, np.inf)
    assert intervals.mean([2.0, np.nan]) == Estimate(2.0, -np.inf, np.inf)
    assert np.isnan(intervals.mean([]).value)
    assert ends(intervals.mean([])) == [-np.inf, np.inf]
    assert intervals.ratio([1.0], [2.0]) == Estimate(0.5, 0.0, np.inf)
    assert intervals.ratio([1.0, 2.0], [0.0, 0.0]) == Estimate(np.inf, 0.0, np.inf)
    assert ends(intervals.log_ratio([1.0], [2.0])) == [-np.inf, np.inf]
    assert ends(intervals.difference([1.0], [2.0, 3.0])) == [-np.inf, np.inf]
    assert ends(intervals.skewed(1.0, np.nan, 0.3, df=0)) == [-np.inf, np.inf]
    assert np.isnan(intervals.standard_error([1.0]))
    one = intervals.bootstrap(np.mean, [2.0, np.nan], rng=np.random.default_rng(0))
    assert one == Estimate(2.0, -np.inf, np.inf)


def test_data_without_scatter_give_points():
    assert intervals.mean([2.0, 2.0]) == Estimate(2.0, 2.0, 2.0)
    assert intervals.difference([2.0, 2.0], [1.0, 1.0]) == Estimate(1.0, 1.0, 1.0)
    assert intervals.ratio([2.0, 2.0], [4.0, 4.0]) == Estimate(0.5, 0.5, 0.5)
    assert intervals.skewed(1.0, 0.0, 0.3) == Estimate(1.0, 1.0, 1.0)


@pytest.mark.parametrize("g", [0.05, -0.2, 0.3])
def test_skewed_limits_solve_halls_equation(g):
    found = intervals.skewed(10.0, 2.0, g, df=1_000)
    t = intervals.t_quantile(min(1_000, 2 / g**2))
    for end, target in ((found.low, t), (found.high, -t)):
        w = (10.0 - end) / 2.0
        assert 1.5 / g * (np.exp(2 * g * w / 3) - 1) + g / 6 == pytest.approx(target, rel=1e-10)
    assert (found.value - found.low < found.high - found.value) == (g > 0)


def test_skewed_intervals_are_mirrored_and_without_skewness_students():
    found = intervals.skewed(1.0, 0.1, 0.3, df=30)
    mirrored = intervals.skewed(-1.0, 0.1, -0.3, df=30)
    assert mirrored == pytest.approx((-1.0, -found.high, -found.low), rel=1e-12)
    plain = intervals.from_error(10.0, 2.0, df=30)
    for tiny in (0.0, 1e-8, np.nan):
        assert intervals.skewed(10.0, 2.0, tiny, df=30) == pytest.approx(plain, rel=1e-6)
    many = intervals.skewed(np.full(3, 10.0), 2.0, np.array([0.0, 0.2, -0.9]), df=[30, 30, 0])
    for k, (g, df) in enumerate(((0.0, 30), (0.2, 30), (-0.9, 0))):
        one = intervals.skewed(10.0, 2.0, g, df=df)
        assert (many.low[k], many.high[k]) == pytest.approx((one.low, one.high))


def test_skewed_intervals_stay_sensible_for_any_skewness():
    widths = []
    for g in (1e-9, 1e-5, 0.1, 0.3, 0.5, 0.7, 1.0):
        found = intervals.skewed(1.0, 0.1, g)
        assert found.low < 1.0 < found.high
        widths.append(found.high - found.low)
    assert widths == sorted(widths)
    assert widths[-1] < 3.0  # one row with everything: 30 standard errors, not infinity


def test_bootstrap_is_close_to_student_for_a_mean():
    values = np.random.default_rng(3).normal(5.0, 1.0, 400)
    found = intervals.bootstrap(np.mean, values, rng=np.random.default_rng(4))
    np.testing.assert_allclose(ends(found), ends(intervals.mean(values)), atol=0.02)

    def log_ratio(x, y, axis):
        return np.log(x.mean(axis=axis) / y.mean(axis=axis))

    other = values + np.random.default_rng(5).normal(1.0, 0.1, 400)
    found = intervals.bootstrap(log_ratio, values, other, rng=np.random.default_rng(4))
    np.testing.assert_allclose(ends(found), ends(intervals.log_ratio(values, other)), atol=0.002)


def test_studentised_uses_order_statistics():
    values, errors = np.array([1.0, 2.0, 3.0, 4.0]), np.full(4, 0.5)
    found = intervals.studentised(2.5, 0.4, values, errors, level=0.5)
    # t = −3, −1, 1, 3; quantiles 0.25 and 0.75 are −3 and 1
    assert ends(found) == pytest.approx([2.5 - 0.4 * 1.0, 2.5 + 0.4 * 3.0])
    none = intervals.studentised(2.5, 0.4, values, np.zeros(4))
    assert np.isnan(none.low)
    assert np.isnan(none.high)


# The share of samples whose interval misses is binomial; limits are at one error in 10⁵ for a true
# rate of `most`, which 8,000 samples exceed with that probability at most.
def assert_misses_at_most(missed, most):
    limit = stats.binom.isf(1e-5, missed.size, most)
    assert missed.sum() <= limit, f"{missed.mean():.4f} of the intervals miss, more than {most}"


@pytest.mark.parametrize(
    ("prob", "n", "below", "above"),
    [(1.0, 30, 0.022, 0.039), (0.2, 100, 0.02, 0.026), (0.05, 400, 0.02, 0.023)],
)
def test_hall_holds_on_both_sides_for_skewed_rewards(prob, n, below, above):
    rng = np.random.default_rng(11)
    x = rng.exponential(1.0, (8_000, n)) * (rng.random((8_000, n)) < prob)
    centred = x - x.mean(axis=1, keepdims=True)
    variance = (centred**2).mean(axis=1)
    found = intervals.skewed(
        x.mean(axis=1),
        np.sqrt(variance / (n - 1)),
        (centred**3).mean(axis=1) / variance**1.5 / np.sqrt(n),
        df=n - 1,
    )
    assert_misses_at_most(found.low > prob, below)
    assert_misses_at_most(found.high < prob, above)
    student = intervals.mean(x, axis=1)
    assert (student.high < prob).mean() > 1.5 * (found.high < prob).mean()


def test_fieller_holds():
    rng = np.random.default_rng(12)
    common = rng.gamma(4.0, 1.0, (8_000, 8))
    a = common + rng.gamma(2.0, 1.0, (8_000, 8))
    b = common + rng.gamma(4.0, 1.0, (8_000, 8))
    assert_misses_at_most(intervals.ratio(a, b, axis=1).excludes(6.0 / 8.0), 0.06)
