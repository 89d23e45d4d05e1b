"""Delays and pending decisions against exact likelihoods, other estimators and the truth."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate, stats

from zib.core.validate import InvalidParameterError
from zib.stats.delay import (
    DelayCounts,
    DelayDistribution,
    delay_bins,
    delays_differ,
    pending_posterior,
    pending_weight,
)

WINDOW = 7.0
LAWS = {
    "exponential": stats.expon(scale=2.0),
    "lognormal": stats.lognorm(s=1.5, scale=0.5),
    "uniform": stats.uniform(0.0, WINDOW),
    "late": stats.beta(5.0, 2.0, scale=WINDOW),
}


def exact_mean(events: float, zeros: float, f: np.ndarray, many: np.ndarray) -> float:
    """Return the posterior mean under a uniform prior by quadrature of the likelihood."""
    p = np.linspace(0.0, 1.0, 200_001)[1:-1]
    log = events * np.log(p) + zeros * np.log1p(-p) + (many * np.log1p(-np.outer(p, f))).sum(1)
    weight = np.exp(log - log.max())
    return float(integrate.simpson(weight * p, x=p) / integrate.simpson(weight, x=p))


@pytest.mark.parametrize("p", [0.005, 0.02, 0.1, 0.3])
def test_the_mean_is_that_of_the_exact_posterior(p):
    f = np.array([0.05, 0.3, 0.6, 0.9])
    many = np.array([4_000.0, 3_000.0, 2_000.0, 1_000.0])
    events = round(p * (2_000 + f @ many))
    zeros = 2_000 * (1 - p)
    pending = many * (1 - p * f)
    found = pending_posterior(events, zeros, f, counts=pending)
    wanted = exact_mean(events, zeros, f, pending)
    assert found.mean == pytest.approx(wanted, rel=0.005)
    assert found.mean == pytest.approx(found.alpha / (found.alpha + found.beta))
    np.testing.assert_allclose(found.weights, pending_weight(f, found.mean), rtol=1e-9)
    # what is usually done instead
    assert (events + 1) / (events + zeros + 2) > 1.5 * wanted
    assert (events + 1) / (events + zeros + pending.sum() + 2) < 0.8 * wanted


def test_the_mean_is_where_the_score_vanishes():
    f, many = np.array([0.1, 0.5, 0.99]), np.array([[300.0, 20.0, 5.0], [0.0, 900.0, 40.0]])
    found = pending_posterior([30.0, 4.0], [50.0, 700.0], f, counts=many)
    p = found.mean[:, None]
    score = (31 / p - 1 / (1 - p))[:, 0] * [1, 0] + (5 / p - 1 / (1 - p))[:, 0] * [0, 1]
    score = score - np.array([50.0, 700.0]) / (1 - found.mean) - (many * f / (1 - p * f)).sum(1)
    np.testing.assert_allclose(score, 0.0, atol=1e-6)
    single = pending_posterior(30.0, 50.0, f, counts=many[0])
    assert single.mean == pytest.approx(found.mean[0], rel=1e-12)


def test_nothing_pending_is_the_usual_posterior():
    assert pending_posterior(3, 7, [0.0, 1.0], counts=[50, 0]).mean == pytest.approx(4 / 12)
    assert pending_posterior(3, 7, []).mean == pytest.approx(4 / 12)
    assert pending_posterior(3, 0, [1.0] * 7).mean == pytest.approx(4 / 12)


def truncated(law, n, rng):
    """Return delays and ages of `n` rewards that are seen in the middle of a run of three windows,
    while traffic grows and two arms have different chances."""
    age = 1.5 * WINDOW * rng.random(12 * n) ** 1.5
    delay = law.rvs(12 * n, random_state=rng)
    seen = np.flatnonzero((delay <= np.minimum(age, WINDOW)) & (rng.random(12 * n) < 0.5))[:n]
    assert seen.size == n
    return delay[seen], age[seen]


@pytest.mark.parametrize("name", LAWS)
def test_f_is_near_the_truth_in_the_middle_of_a_run(name, seed):
    """2,000 rewards: the largest difference is at most 0.03 on average over 25 runs. The error of
    that average is about 0.001 and it is 0.018 to 0.020, so chance has no part in it."""
    law, rng = LAWS[name], np.random.default_rng(seed)
    at = np.linspace(0.0, WINDOW, 400)
    truth = law.cdf(at) / law.cdf(WINDOW)
    apart, plain = [], []
    for _ in range(25):
        delay, age = truncated(law, 2_000, rng)
        counts = DelayCounts(delay_bins(WINDOW))
        counts.add(delay, age)
        apart.append(np.abs(counts.distribution()(at) - truth).max())
        plain.append(np.abs(np.searchsorted(np.sort(delay), at) / delay.size - truth).max())
    assert np.mean(apart) <= 0.03
    assert np.mean(plain) > 1.5 * np.mean(apart)


def test_without_truncation_it_is_the_empirical_distribution(seed):
    delay = np.random.default_rng(seed).exponential(1.0, 500)
    delay = delay[delay < WINDOW]
    counts = DelayCounts(delay_bins(WINDOW))
    counts.add(delay, np.full(delay.size, 20.0))
    found = counts.distribution(prior_events=1e-9)
    empirical = [np.mean(delay <= edge) for edge in counts.edges]
    np.testing.assert_allclose(found.values, empirical, atol=1e-9)
    assert found.reach == WINDOW


def test_the_estimate_maximises_the_likelihood_of_truncated_delays(seed):
    """Lynden-Bell's estimator is the nonparametric maximum of Π f(dᵢ)/F(cᵢ) (Woodroofe 1985)."""
    rng = np.random.default_rng(seed)
    delay, age = truncated(LAWS["exponential"], 300, rng)
    edges = np.array([0.0, 0.5, 1.0, 2.0, 4.0, WINDOW])
    counts = DelayCounts(edges)
    counts.add(delay, age)
    bins = np.searchsorted(edges, delay, side="left") - 1
    complete = np.searchsorted(edges, age, side="right") - 1
    kept = bins < complete

    def likelihood(mass):
        total = np.cumsum(mass)
        return np.log(mass[bins[kept]]).sum() - np.log(total[complete[kept] - 1]).sum()

    best = np.diff(counts.distribution(prior_events=1e-12).values)
    for _ in range(200):
        other = best * np.exp(0.05 * rng.normal(size=best.size))
        assert likelihood(other / other.sum()) < likelihood(best)


def test_pieces_merge_to_the_whole(seed):
    delay, age = truncated(LAWS["lognormal"], 1_000, np.random.default_rng(seed))
    whole, parts = DelayCounts(delay_bins(WINDOW)), DelayCounts(delay_bins(WINDOW))
    whole.add(delay, age)
    for rows in np.array_split(np.arange(1_000), 7):
        piece = DelayCounts(delay_bins(WINDOW))
        piece.add(delay[rows], age[rows])
        parts.merge(piece)
    assert parts.events == whole.events
    np.testing.assert_array_equal(parts.distribution().values, whole.distribution().values)


@pytest.mark.slow
def test_equal_delays_are_called_different_as_often_as_stated(seed):
    """Of 400 tests at 5 % between 7 and 35 reject, except with probability 0.002. The groups have
    other chances and other ages, which must not matter."""
    rng, rejected = np.random.default_rng(seed), 0
    for _ in range(400):
        groups = []
        for n, oldest in ((600, 7.0), (900, 10.0), (300, 14.0)):
            delay, age = rng.exponential(2.0, n), rng.random(n) * oldest
            seen = delay <= np.minimum(age, WINDOW)
            groups.append(DelayCounts(delay_bins(WINDOW)))
            groups[-1].add(delay[seen], age[seen])
        rejected += delays_differ(groups) < 0.05
    assert 7 <= rejected <= 35


def test_the_test_is_the_log_rank_test_of_reversed_delays(seed):
    """Without truncation, and with bins so fine that nobody shares one, it is SciPy's."""
    rng = np.random.default_rng(seed)
    one, two = 7.0 * rng.random(60), 7.0 * rng.beta(1.5, 1.0, 80)
    groups = [DelayCounts(delay_bins(WINDOW, n_bins=200_000)) for _ in range(2)]
    groups[0].add(one, np.full(60, 9.0))
    groups[1].add(two, np.full(80, 9.0))
    wanted = stats.logrank(WINDOW - one, WINDOW - two).pvalue
    assert delays_differ(groups) == pytest.approx(wanted, rel=1e-6)


def test_a_prior_holds_where_there_are_no_data():
    prior = DelayDistribution([0.0, 1.0, WINDOW], [0.0, 0.7, 1.0])
    counts = DelayCounts(delay_bins(WINDOW))
    np.testing.assert_allclose(
        counts.distribution(prior=prior)(counts.edges), prior(counts.edges), atol=1e-12
    )
    counts.add([0.1, 0.4, 0.4], [1.2, 1.0, 1.3])  # nothing older than 1.3 has been seen
    found = counts.distribution(prior=prior)
    assert found(4.0) - found(2.0) == pytest.approx(prior(4.0) - prior(2.0), abs=1e-9)
    assert 1.0 < found.reach <= 1.3


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: delay_bins(-1.0), r"`horizon` must lie in \(0, inf\)"),
        (lambda: DelayCounts([1.0, 2.0]), "`edges` must increase from 0"),
        (lambda: DelayCounts([0.0, 1.0]).add([0.5], [0.2]), "`delay` must be at most the age"),
        (lambda: DelayCounts([0.0, 1.0]).add([0.5], [[0.2]]), "`age` must have one entry"),
        (lambda: DelayCounts([0.0, 1.0]).merge(DelayCounts([0.0, 2.0])), "the same edges"),
        (lambda: delays_differ([3]), "`groups` must hold DelayCounts"),
        (lambda: DelayCounts([0.0, 1.0]).distribution(prior=3), "`prior` must be a Delay"),
        (lambda: DelayDistribution([0.0, 1.0], [0.0, 0.5]), "end with 1"),
        (lambda: DelayDistribution([0.0, 1.0], [1.0]), "as many entries"),
        (lambda: pending_posterior(1, 1, 0.5), "one entry per age"),
        (lambda: pending_posterior([1, 2], 1, [0.5], counts=[[1], [2], [3]]), "`counts` must"),
        (lambda: pending_weight(1.5, 0.1), r"`fraction` must lie in \[0, 1\]"),
    ],
)
def test_bad_arguments_are_refused(call, message):
    with pytest.raises(InvalidParameterError, match=message):
        call()


HALFWAY = {
    "exponential": lambda u: -0.2 * np.log1p(-u * (1.0 - np.exp(-5.0))),
    "slow": lambda u: -0.6 * np.log1p(-u * (1.0 - np.exp(-1.0 / 0.6))),
    "uniform": lambda u: u,
    "heavy": lambda u: 0.01 * ((1.0 - u * (1.0 - 101.0**-0.7)) ** (-1.0 / 0.7) - 1.0),
    "at once": lambda u: 0.01 * u,
}


@pytest.mark.parametrize("name", HALFWAY)
def test_what_nobody_has_seen_yet_follows_the_trend(name, rng) -> None:
    """Half a horizon after the start, 2,000 rewards, mean of 40 runs.

    F at the age of the oldest decisions was 0.89 to 1.00 times the truth in 40 runs each, with
    standard deviations of at most 0.10, 0.016 for the mean: outside with probability below 1e-4.
    """
    delays, edges = HALFWAY[name], delay_bins(1.0)
    at = edges[np.searchsorted(edges, 0.5) - 3]
    truth = np.mean(delays(np.linspace(0.0, 1.0, 100_001)) <= at)
    found = []
    for _ in range(40):
        delay, age = delays(rng.random(2_000)), rng.uniform(0.0, 0.5, 2_000)
        counts, seen = DelayCounts(edges), delay < age
        counts.add(delay[seen], age[seen])
        found.append(float(counts.distribution()(at)) / truth)
    assert 0.82 < np.mean(found) < 1.07
