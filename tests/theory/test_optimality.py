"""The facts that the page on asymptotic optimality (docs/optimality.md) rests on."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import zib
from zib import theory

checked = settings(deadline=None, derandomize=True, max_examples=300)
Array = np.ndarray


def kl(p: Array, q: Array | float) -> Array:
    with np.errstate(all="ignore"):
        first = np.where(p > 0, p * np.log(p / q), 0.0)
        return first + np.where(p < 1, (1 - p) * np.log((1 - p) / (1 - q)), 0.0)


# ----------------------------------------------------------------------------------- the divergence


@checked
@given(
    st.integers(2, 20_000),
    st.floats(0.0, 1.0),
    st.floats(-8.0, 8.0),
    st.floats(0.1, 5.0),
    st.floats(0.2, 30.0),
    st.floats(1e-5, 3.0),
)
def test_the_index_reaches_a_target_if_and_only_if_the_divergence_is_affordable(
    n: int, share: float, mean: float, sigma: float, level: float, apart: float
) -> None:
    count = max(1, min(n - 1, round(n**share)))
    prob = count / n
    index = theory.joint_kl_upper(n, count, count * mean, sigma, level)
    room = index - mean * prob
    inside, outside = index - min(apart, 0.999) * room, index + apart * room
    assert n * theory.divergence_to(mean, prob, inside, sigma) < level * (1 + 1e-9)
    assert n * theory.divergence_to(mean, prob, outside, sigma) > level * (1 - 1e-9)


@checked
@given(st.floats(0.01, 0.99), st.floats(-8.0, 8.0), st.floats(0.1, 5.0), st.floats(-6.0, 3.0))
def test_a_higher_target_costs_more(prob: float, mean: float, sigma: float, power: float) -> None:
    targets = mean * prob + 10.0**power * np.linspace(1.0, 2.0, 9)
    cost = np.array([theory.divergence_to(mean, prob, target, sigma) for target in targets])
    assert cost[0] > 0
    assert (np.diff(cost) > 0).all()


@pytest.mark.parametrize(
    ("start", "end", "target", "sigma"),
    [
        ((0.01, 4.0), (0.5, 1.0), 3.0, 1.0),
        ((0.02, -3.0), (0.9, -0.1), 0.4, 1.0),
        # the cheapest way changes here: paying less often, or paying less
        ((0.99, -6.0), (0.99, -0.5), -0.4, 1.0),
        ((0.99, -2.5), (0.3, -2.5), -0.3, 0.7),
    ],
)
def test_the_divergence_is_continuous_in_both_parameters(
    start: tuple[float, float], end: tuple[float, float], target: float, sigma: float
) -> None:
    # on a path cut ever finer the largest step shrinks in proportion; a jump would not
    largest = []
    for cuts in (500, 4_000, 32_000):
        prob, mean = np.linspace(start, end, cuts + 1).T
        assert (prob * mean < target).all()
        cost = np.asarray(theory.divergence_to(mean, prob, target, sigma))
        largest.append(np.abs(np.diff(cost)).max())
    assert largest[1] < 0.2 * largest[0]
    assert largest[2] < 0.2 * largest[1]


@checked
@given(
    st.integers(1, 60),
    st.floats(0.02, 0.98),
    st.floats(-3.0, 3.0),
    st.floats(0.02, 0.98),
    st.floats(-3.0, 3.0),
    st.integers(0, 10**6),
)
def test_the_likelihood_ratio_is_a_difference_of_divergences(
    n: int, p: float, mu: float, q: float, nu: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    sigma = 0.7
    count = int(rng.integers(1, n + 1))
    sizes = mu + sigma * rng.standard_normal(count)

    def log_likelihood(prob: float, mean: float) -> float:
        return float(
            stats.norm.logpdf(sizes, mean, sigma).sum()
            + count * math.log(prob)
            + (n - count) * math.log(1 - prob)
        )

    def divergence(prob: float, mean: float) -> float:
        share = np.array(count / n)
        return float(kl(share, prob) + share * (sizes.mean() - mean) ** 2 / (2 * sigma**2))

    wanted = log_likelihood(q, nu) - log_likelihood(p, mu)
    found = n * (divergence(p, mu) - divergence(q, nu))
    assert found == pytest.approx(wanted, rel=1e-9, abs=1e-8)


# ----------------------------------------------------------------------------------- the deviations


def cells(m: int, p: float, g: float) -> tuple[Array, float]:
    """Centres, as angles, of the cells that meet {x : kl(x, p) <= g/m}, and their width."""
    number = math.ceil(1.5 * math.pi * math.sqrt(m))
    width = 0.5 * math.pi / number
    centres = (np.arange(number) + 0.5) * width
    inside = np.linspace(-0.5, 0.5, 41) * width
    meets = (kl(np.sin(centres[:, None] + inside) ** 2, p) <= g / m).any(axis=1)
    return centres[meets], width


@pytest.mark.parametrize("m", [1, 2, 16, 1024, 65_536])
@pytest.mark.parametrize("p", [1e-4, 0.02, 0.4, 0.97])
def test_few_probabilities_are_close_to_all_estimates(m: int, p: float) -> None:
    for g in (1.0, 3.0, 30.0):
        centres, width = cells(m, p, g)
        assert len(centres) <= 9 * math.sqrt(g) + 2
        x = np.sin(centres[:, None] + np.linspace(-0.5, 0.5, 101) * width) ** 2
        # times n < 2m this is at most 1/2
        assert kl(x, np.sin(centres[:, None]) ** 2).max() <= 1 / (4 * m)


def largest_divergence(p: float, n_max: int, paths: int, rng: np.random.Generator) -> Array:
    """The maximum of n·d(θ̂_n‖θ) over 1 <= n <= n_max with a non-zero reward, per path."""
    out = []
    n = np.arange(1, n_max + 1)
    for _ in range(0, paths, 500):
        paid = rng.random((500, n_max)) < p
        total = np.where(paid, rng.standard_normal((500, n_max)), 0.0).cumsum(axis=1)
        count = paid.cumsum(axis=1)
        value = n * kl(count / n, p) + total**2 / (2.0 * np.maximum(count, 1))
        out.append(np.where(count > 0, value, 0.0).max(axis=1))
    return np.concatenate(out)


@pytest.mark.parametrize("p", [0.02, 0.1, 0.5])
@pytest.mark.parametrize("n_max", [200, 2000])
def test_deviations_are_of_the_order_of_the_lemma(
    p: float, n_max: int, rng: np.random.Generator
) -> None:
    # f log t exp(-f) without any constant. A true probability below it is rejected with a chance
    # below 1e-6 in each of the 30 cases; the lower end says that the order is not too generous
    found = largest_divergence(p, n_max, 8_000, rng)
    for f in (3.0, 4.0, 5.0, 6.0, 7.0):
        order = f * math.log(n_max) * math.exp(-f)
        exceeded = int((found >= f).sum())
        assert exceeded <= stats.binom.isf(1e-6, found.size, min(order, 1.0)), f
        assert exceeded >= stats.binom.ppf(1e-6, found.size, 0.1 * order), f


@pytest.mark.parametrize("p", [0.05, 0.4])
def test_mixtures_of_likelihood_ratios_seldom_become_large(
    p: float, rng: np.random.Generator
) -> None:
    # Ville's inequality for the average over the points of one slice, of which the proof takes a
    # union; a correct library fails with a chance below 1e-6 per case
    m, b, g, paths = 64, 16, 4.0, 4_000
    centres, _ = cells(m, p, g)
    q = np.sin(centres) ** 2
    nu = np.linspace(-math.sqrt(2 * g / b), math.sqrt(2 * g / b), 2 * math.ceil(math.sqrt(g)) + 1)
    paid = rng.random((paths, 2 * m)) < p
    total = np.where(paid, rng.standard_normal((paths, 2 * m)), 0.0).cumsum(axis=1)
    count = paid.cumsum(axis=1)
    n = np.arange(1, 2 * m + 1)
    mixture = np.zeros_like(total)
    for prob in q:
        rare = count * math.log(prob / p) + (n - count) * math.log((1 - prob) / (1 - p))
        for mean in nu:
            mixture += np.exp(rare + mean * total - 0.5 * mean**2 * count)
    mixture /= q.size * nu.size
    for x in (2.0, 5.0, 20.0):
        failures = int((mixture.max(axis=1) >= x).sum())
        assert failures <= stats.binom.isf(1e-6, paths, 1 / x)
        assert failures >= stats.binom.ppf(1e-6, paths, 0.2 / x)  # the inequality is not idle


# ------------------------------------------------------------------------- before the first payment


def test_a_number_above_all_magnitudes_finds_the_arm_that_pays_rarely_and_much() -> None:
    # p_1·M = 1.2 > r_2 = 0.5. Never finding arm 1 would cost 0.7 per round, 3 500 in all
    env = zib.env.GaussianMAB(means=(1.0, 60.0), probs=(0.5, 0.02), sigma=0.1)
    found = zib.simulate(
        [zib.mab.ZIKLUCB(sigma=0.1, c=3.0, unseen=60.0)],
        env,
        horizon=5_000,
        replications=40,
        seed=1,
        backend="serial",
        progress=False,
    )
    assert found.regret[0, :, -1].max() < 100.0


def test_paying_more_often_than_the_second_best_arm_is_not_enough() -> None:
    # Once arm 3 has paid, arms 1 and 2 get about f(t)/2.3 = 6 pulls each, and have not paid in them
    # with a chance of 0.65. Fewer than a quarter of 40 such runs has a chance below 1e-6. Playing
    # arm 3 throughout costs 0.91 per round, 1 820 in all; with `inf` the mean is 222, the largest
    # of 400 runs 504
    env = zib.env.GaussianMAB(means=(20.0, 20.0, 0.1), probs=(0.05, 0.02, 0.9), sigma=0.01)
    found = zib.simulate(
        {
            "pooled": zib.mab.ZIKLUCB(sigma=0.01, c=3.0),
            "inf": zib.mab.ZIKLUCB(sigma=0.01, c=3.0, unseen=math.inf),
        },
        env,
        horizon=2_000,
        replications=40,
        seed=1,
        backend="serial",
        progress=False,
    )
    pooled, proven = found.regret[:, :, -1]
    assert (pooled > 1000).mean() > 0.25
    assert proven.max() < 900


def test_an_upper_bound_of_a_magnitude_is_seldom_far_below_it(rng: np.random.Generator) -> None:
    # P(mean_b + √(2f/b) < -eta for some b) against the sum in the proof; a true probability of
    # that size is rejected with a chance below 1e-6
    b = np.arange(1, 201)
    means = rng.standard_normal((8_000, b.size)).cumsum(axis=1) / b
    for f in (1.0, 2.0, 3.0):
        for eta in (0.3, 0.6):
            failures = int((means + np.sqrt(2 * f / b) < -eta).any(axis=1).sum())
            first = np.exp(-((eta * np.sqrt(b) + math.sqrt(2 * f)) ** 2) / 2).sum()
            assert first <= math.exp(-f) / math.expm1(eta**2 / 2)
            assert failures <= stats.binom.isf(1e-6, 8_000, min(first, 1.0))
            assert failures > 0


def test_d_inf_is_right_continuous_in_the_target() -> None:
    for mean, prob, target in ((1.0, 0.3, 0.5), (-1.0, 0.4, -0.1), (4.0, 0.01, 0.2)):
        at = theory.divergence_to(mean, prob, target, 1.0)
        steps = 10.0 ** -np.arange(2, 9)
        above = theory.divergence_to(mean, prob, target + steps, 1.0) - at
        assert np.all(above > 0)
        assert np.all(np.diff(above) < 0)
        assert above[-1] < 1e-6
