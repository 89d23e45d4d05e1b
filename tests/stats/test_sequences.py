"""Confidence sequences against other formulas, and by how often they hold along whole paths."""

import numpy as np
import pytest
from scipy import integrate, stats

import zib
from zib.core.entry import interpreted
from zib.core.validate import InvalidParameterError
from zib.stats import intervals, sequences

ALPHA = 0.05
LEVEL = 1 - ALPHA

# ------------------------------------------------------------------------------- the right formulas


@pytest.mark.parametrize(("successes", "n"), [(0, 40), (3, 40), (40, 40), (70, 20_000)])
def test_the_ends_of_share_are_where_the_mixture_reaches_its_limit(successes, n):
    found = sequences.share(successes, n, level=LEVEL)
    mixed = stats.betabinom.logpmf(successes, n, 0.5, 0.5)
    for end, border in ((found.low, 0.0), (found.high, 1.0)):
        if end == border:
            assert successes == n * border
        else:
            ratio = mixed - stats.binom.logpmf(successes, n, end)
            assert ratio == pytest.approx(np.log(1 / ALPHA), rel=1e-6)


@pytest.mark.parametrize("weight", [1.0, 64.0])
@pytest.mark.parametrize("n", [30, 100])
def test_the_ends_of_mean_are_where_the_mixture_of_t_tests_reaches_its_limit(n, weight):
    values = np.random.default_rng(n).normal(3.0, 2.0, n)
    found = sequences.mean(n, values.sum(), n * values.var(), level=LEVEL, weight=weight)
    assert found.value == pytest.approx(values.mean())
    for end in (found.low, found.high):
        t = np.sqrt(n) * (values.mean() - end) / values.std(ddof=1)

        # the mean of the likelihood ratio of t over the effect, on a fine grid
        theta = np.linspace(-1.0, 1.0, 4_001) * 8 * max(abs(t) / np.sqrt(n), weight**-0.5)
        ratio = stats.nct.pdf(t, n - 1, np.sqrt(n) * theta) / stats.t.pdf(t, n - 1)
        mixed = integrate.simpson(ratio * stats.norm.pdf(theta, scale=weight**-0.5), x=theta)
        assert mixed == pytest.approx(1 / ALPHA, rel=1e-5)


def test_product_without_zeros_is_mean():
    seen = (150.0, 310.0, 420.0)
    one, other = sequences.mean(*seen), sequences.product(150, *seen)
    assert list(other) == pytest.approx(list(one), rel=1e-8)


def test_product_is_the_interval_for_fixed_pulls_at_a_larger_budget():
    # the largest shift that `mean` allows is that of a Student interval of another level
    n, b, total, spread = 3_000.0, 200.0, 500.0, 250.0
    half = sequences.mean(b, total, spread).high - total / b
    t = half / np.sqrt(spread / (b - 1) / b)
    fixed = zib.Bandit(n_arms=1)
    fixed._state.pulls[0], fixed._state.nonzero[0] = n, b
    fixed._state.total[0], fixed._state.spread[0] = total, spread
    wanted = fixed.means(level=1 - 2 * stats.t.sf(t, b - 1))[0].reward_interval
    found = sequences.product(n, b, total, spread)
    assert (found.low, found.high) == pytest.approx(wanted, rel=1e-6)


def test_arrays_give_what_numbers_give():
    n, b = np.array([0.0, 1.0, 50.0, 900.0]), np.array([0.0, 1.0, 30.0, 0.0])
    total, spread = np.array([0.0, 2.0, -40.0, 0.0]), np.array([0.0, 0.0, 30.0, 0.0])
    together = sequences.product(n, b, total, spread), sequences.mean(b, total, spread)
    for k in range(4):
        alone = (
            sequences.product(n[k], b[k], total[k], spread[k]),
            sequences.mean(b[k], total[k], spread[k]),
        )
        for whole, part in zip(together, alone, strict=True):
            assert isinstance(part.low, float)
            np.testing.assert_array_equal([x[k] for x in whole], list(part))
    assert np.isinf(together[0].low[[0, 1, 3]]).all(), "nothing is known before some have paid"
    assert np.isfinite([together[0].low[2], together[1].high[2]]).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sequences.share(1, 2, level=1.0), r"`level` must lie in \(0, 1\); got 1"),
        (lambda: sequences.mean(9, 1.0, 1.0, weight=0.0), "`weight` must"),
    ],
)
def test_bad_parameters_are_named(call, message):
    with pytest.raises(InvalidParameterError, match=message):
        call()


# ---------------------------------------------------------------------- how often they hold, always


@pytest.fixture(scope="module")
def lattice():
    """Return, for n up to 700, which p the interval of every count holds (low, high)."""
    n, b = np.meshgrid(np.arange(701.0), np.arange(702.0), indexing="ij")
    found = sequences.share(np.minimum(b, n), n, level=LEVEL)
    return found.low, found.high


@pytest.mark.parametrize("p", [0.02, 0.1, 0.5, 0.97])
def test_share_misses_at_some_time_with_at_most_the_probability_promised(lattice, p):
    # No simulation: the probability of not having missed yet is carried from n to n + 1.
    low, high = lattice
    holding = np.zeros(low.shape[1])
    holding[0] = 1.0
    for n in range(1, low.shape[0]):
        holding[1:] = holding[1:] * (1 - p) + holding[:-1] * p
        holding[0] *= 1 - p
        holding *= (low[n] <= p) & (p <= high[n])
    assert 0.002 < 1 - holding.sum() <= ALPHA


LAWS = {
    "gaussian": (lambda rng, size: rng.normal(1.0, 1.0, size), 1.0),
    "exponential": (lambda rng, size: rng.exponential(1.0, size), 1.0),
    "log-normal": (lambda rng, size: rng.lognormal(0.0, 1.0, size), np.exp(0.5)),
}


def paths(law, p, n, runs, seed):
    """Return, after each of n rewards of many runs: their number, and those of `sequences`."""
    rng = np.random.default_rng(seed)
    draw, mu = LAWS[law]
    paid = rng.random((runs, n)) < p
    off = np.where(paid, draw(rng, (runs, n)) - mu, 0.0)
    b, sums = paid.cumsum(axis=1, dtype=float), off.cumsum(axis=1)
    spread = np.maximum((off**2).cumsum(axis=1) - sums**2 / np.maximum(b, 1.0), 0.0)
    return np.broadcast_to(np.arange(1.0, n + 1), b.shape), b, sums + mu * b, spread


def share_of_paths(found, truth):
    return float(found.excludes(truth).any(axis=1).mean())


@pytest.mark.parametrize(
    ("law", "limit"), [("gaussian", 0.05), ("exponential", 0.05), ("log-normal", 0.11)]
)
def test_mean_holds_along_whole_paths(law, limit):
    # 2,000 paths of 1,200 non-zero rewards. What the limit allows in truth exceeds it by 3.3
    # standard errors with probability 5e-4; the three shares are about .03, .05 and .10
    _, b, total, spread = paths(law, 1.0, 1_200, 2_000, 11)
    missed = share_of_paths(sequences.mean(b, total, spread, level=LEVEL), LAWS[law][1])
    assert missed <= limit + 3.3 * np.sqrt(limit * (1 - limit) / 2_000)
    # they are not so wide that they cannot miss
    assert missed > 0.015


def test_a_small_weight_concludes_too_early_from_skewed_values():
    # why the default weight is 64: the shares are about .13 and .05, 20 standard errors apart
    _, b, total, spread = paths("exponential", 1.0, 1_000, 2_000, 12)
    early = share_of_paths(sequences.mean(b, total, spread, weight=1.0), 1.0)
    late = share_of_paths(sequences.mean(b, total, spread), 1.0)
    assert early > 0.1 > late


@pytest.mark.slow
@pytest.mark.parametrize("p", [0.02, 0.1, 0.5])
@pytest.mark.parametrize("law", LAWS)
def test_product_holds_along_whole_paths(law, p):
    # 600 paths of 1,000 expected non-zero rewards, looked at some 200 times, more often early:
    # 5 % allowed, plus 3.5 standard errors: error probability below 3e-4 each
    n = int(1_000 / p)
    missed = 0.0
    for part in range(6):
        seen = paths(law, p, n, 100, [13, part])
        looks = np.unique(np.geomspace(1, n, 250).astype(int)) - 1
        found = sequences.product(*(x[:, looks] for x in seen), level=LEVEL)
        missed += share_of_paths(found, p * LAWS[law][1]) / 6
    assert missed <= ALPHA + 3.5 * np.sqrt(ALPHA * LEVEL / 600)


# ---------------------------------------------------------------------------- under adaptive play


def played(law, runs, rounds, looks, seed):
    """Let an ε-greedy policy play; return the statistics of the arms at every look, and truths.

    All runs are played at once: row = run, column = arm. The result has a last axis of looks.
    """
    rng = np.random.default_rng(seed)
    draw, mu = LAWS[law]
    p = np.array([0.1, 0.2, 0.5])
    scale = np.array([0.8, 0.5, 0.25])  # arms that pay more often pay less
    row = np.arange(runs)
    n, b, total, square = np.zeros((4, runs, 3))
    kept = []
    for t in range(rounds):
        reward = total / np.maximum(n, 1.0)
        greedy = np.where(n == 0, np.inf, reward + 1e-12 * rng.random((runs, 3))).argmax(axis=1)
        arm = np.where(rng.random(runs) < 0.1, rng.integers(0, 3, runs), greedy)
        x = np.where(rng.random(runs) < p[arm], scale[arm] * draw(rng, runs), 0.0)
        n[row, arm] += 1
        b[row, arm] += x != 0
        total[row, arm] += x
        square[row, arm] += x * x
        if t + 1 in looks:
            spread = np.maximum(square - total**2 / np.maximum(b, 1.0), 0.0)
            kept.append((n.copy(), b.copy(), total.copy(), spread))
    return [np.stack(part, axis=-1) for part in zip(*kept, strict=True)], p, scale * mu


def missed_at_some_look(found, truth):
    return found.excludes(truth[:, None]).any(axis=-1).mean(axis=0)


def test_looking_often_needs_a_sequence():
    # 1,000 runs of an adaptive policy, 20 looks: the intervals for fixed pulls miss the share of
    # non-zero rewards of the arm played most in about 22 %, the sequences in about 2 %. Limits are
    # ten and three standard errors away.
    looks = set(np.linspace(150, 3_000, 20).astype(int))
    (n, b, total, _), p, mu = played("gaussian", 1_000, 3_000, looks, 14)
    fixed = missed_at_some_look(intervals.share(b, n), p)
    always = missed_at_some_look(sequences.share(b, n), p)
    assert fixed.max() > 0.12
    assert always.max() <= 0.05
    estimates = (total / n)[..., -1].mean(axis=0) / (p * mu) - 1
    assert estimates.min() < -0.05, "adaptive play makes estimates too low"


@pytest.mark.parametrize("law", LAWS)
def test_sequences_hold_under_adaptive_play(law):
    # 500 runs, looked at some 150 times: p is exact; mu and r keep within 5 % too, as the clock of
    # an arm runs slowly while it looks bad. 5 % plus 3.5 standard errors: error probability below
    # 3e-4 each if 5 % are missed
    looks = set(np.unique(np.geomspace(10, 2_500, 170).astype(int)))
    (n, b, total, spread), p, mu = played(law, 500, 2_500, looks, 15)
    limit = ALPHA + 3.5 * np.sqrt(ALPHA * LEVEL / 500)
    assert missed_at_some_look(sequences.share(b, n), p).max() <= limit
    assert missed_at_some_look(sequences.mean(b, total, spread), mu).max() <= limit
    assert missed_at_some_look(sequences.product(n, b, total, spread), p * mu).max() <= limit


# ------------------------------------------------------------------------------------- the bandit


def test_means_can_be_watched():
    bandit = zib.Bandit(zib.mab.UCB1(), arms=["a", "b", "c"], seed=0, inflated=-1.0)
    rng = np.random.default_rng(3)
    n = 400
    bandit.update_many(["a"] * n, np.where(rng.random(n) < 0.4, rng.normal(2.0, 1.0, n), -1.0))
    bandit.update_many(["b", "b"], [3.0, -1.0])
    fixed, always = bandit.means(0.9)["a"], bandit.means(0.9, anytime=True)["a"]
    for name in ("prob", "magnitude", "reward"):
        assert getattr(fixed, name) == pytest.approx(getattr(always, name))
        (low, high), (lower, higher) = (
            getattr(found, f"{name}_interval") for found in (fixed, always)
        )
        assert lower < low < high < higher
        assert higher - lower < 2 * (high - low)
    state = bandit.state
    wanted = sequences.product(*(x[0] for x in state[:4]), level=0.9)
    assert always.reward_interval == pytest.approx((wanted.low - 1.0, wanted.high - 1.0))
    few, none = (bandit.means(anytime=True)[arm] for arm in "bc")
    assert few.reward_interval == (-np.inf, np.inf)
    assert none.prob_interval == (0.0, 1.0)


@pytest.mark.parametrize("wrapper", [zib.mab.Discounted, zib.mab.Windowed])
def test_a_policy_that_forgets_cannot_be_watched(wrapper):
    how = {"half_life": 100} if wrapper is zib.mab.Discounted else {"length": 100}
    with interpreted():
        bandit = zib.Bandit(wrapper(zib.mab.UCB1(), **how), n_arms=2)
    with pytest.raises(InvalidParameterError, match="`anytime` needs the statistics of all"):
        bandit.means(anytime=True)
