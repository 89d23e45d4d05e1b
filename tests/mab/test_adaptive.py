"""ZIAdaptive: what it learns from all arms, against SciPy and the raw rewards."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, special, stats

import zib
from zib.core import kernel
from zib.core.state import ArmState
from zib.mab import ZIAdaptive, pooled
from zib.mab import adaptive as za
from zib.mab.posterior import compromise

Rewards = list[np.ndarray]
LAWS = {
    "gaussian": lambda rng, mean, n: rng.normal(mean, 0.4, n),
    "gamma": lambda rng, mean, n: rng.gamma(1.5, mean / 1.5, n),
    "lognormal": lambda rng, mean, n: mean * rng.lognormal(-0.5, 1.0, n),
    "pareto": lambda rng, mean, n: mean * 0.5 * (1 + rng.pareto(2.0, n)),
    "uniform": lambda rng, mean, n: rng.uniform(0, 2 * mean, n),
}


def drawn(law: str, seed: int, counts: list[int]) -> Rewards:
    rng = np.random.default_rng(seed)
    means = 2.0 + np.arange(len(counts)) / len(counts)
    return [LAWS[law](rng, mean, n) for mean, n in zip(means, counts, strict=True)]


def learned(rewards: Rewards, zeros: int = 50) -> ArmState:
    """Return the state after these non-zero rewards and as many zeros per arm, up to date."""
    spec = ZIAdaptive()
    bandit = zib.Bandit(spec, n_arms=len(rewards), seed=0)
    for arm, values in enumerate(rewards):
        both = np.concatenate([values, np.zeros(zeros)])
        bandit.update_many([arm] * both.size, both)
    state: ArmState = bandit.state
    kernel.refresh_all(spec, state)
    return state


def likelihoods(rewards: Rewards) -> dict[int, float]:
    """Log-likelihoods: a mean per arm, one scatter for all; −1 stands for the gamma law."""
    free = sum(x.size - 1 for x in rewards)
    logs = [np.log(x) for x in rewards]
    sd = math.sqrt(sum(((x - x.mean()) ** 2).sum() for x in rewards) / free)
    log_sd = math.sqrt(sum(((v - v.mean()) ** 2).sum() for v in logs) / free)
    s = sum(x.size * (math.log(x.mean()) - v.mean()) for x, v in zip(rewards, logs)) / free
    shape = (3 - s + math.sqrt((s - 3) ** 2 + 24 * s)) / (12 * s)
    return {
        pooled.GAUSSIAN: sum(stats.norm(x.mean(), sd).logpdf(x).sum() for x in rewards),
        -1: sum(stats.gamma(shape, scale=x.mean() / shape).logpdf(x).sum() for x in rewards),
        pooled.LOGNORMAL: sum(
            stats.lognorm(log_sd, scale=math.exp(v.mean())).logpdf(x).sum()
            for x, v in zip(rewards, logs)
        ),
    }


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("seed", range(6))
def test_the_lognormal_has_to_be_the_most_likely_law(law: str, seed: int) -> None:
    rewards = [np.abs(x) for x in drawn(law, seed, [8, 5, 30, 3])]
    found = likelihoods(rewards)
    lognormal = found.pop(pooled.LOGNORMAL)
    wanted = pooled.LOGNORMAL if lognormal > max(found.values()) else pooled.GAUSSIAN
    assert learned(rewards).own.family[0] == wanted


def test_a_negative_reward_rules_out_positive_families_at_once() -> None:
    bandit = zib.Bandit(n_arms=2, seed=0)
    rng = np.random.default_rng(0)
    bandit.update_many([0, 1] * 200, 3.0 * rng.lognormal(0, 1, 400))
    assert bandit.state.own.family[0] == pooled.LOGNORMAL
    bandit.update(0, -1.0)
    assert bandit.state.own.family[0] == pooled.GAUSSIAN
    bandit.revise(0, -1.0, 2.0)
    assert bandit.state.own.family[0] == pooled.LOGNORMAL


def test_log_gamma() -> None:
    for x in (1e-3, 0.3, 1.0, 2.5, 9.0, 1e3, 1e6):
        assert pooled.log_gamma(x) == pytest.approx(float(special.gammaln(x)), rel=1e-10, abs=1e-10)


@pytest.mark.parametrize("alike", [True, False])
def test_how_far_arms_trust_each_others_scatter(alike: bool) -> None:
    """The number of rewards maximises the likelihood of the arms' variances under an F law."""
    rng = np.random.default_rng(4)
    sds = np.full(30, 1.0) if alike else rng.uniform(0.2, 3.0, 30)
    rewards = [rng.normal(0.0, sd, 25) for sd in sds]
    state = learned(rewards)
    assert state.own.family[0] == pooled.GAUSSIAN
    variances = np.array([x.var(ddof=1) for x in rewards])
    grid = 3.0 * 4.0 ** np.arange(pooled.GRID)
    ratio = variances / variances.mean()
    found = grid[np.argmax([stats.f(24, d).logpdf(ratio).sum() for d in grid])]
    assert state.own.borrowed[0] == found
    assert (found > 100) == alike


def test_the_prior_of_magnitudes_is_near_the_truth() -> None:
    """400 arms, magnitudes N(5, 1): centre within 5 standard errors, spread within 40 %."""
    rng = np.random.default_rng(5)
    rewards = [rng.normal(mean, 0.8, 6) for mean in rng.normal(5.0, 1.0, 400)]
    state = learned(rewards)
    assert state.own.centre[0] == pytest.approx(5.0, abs=5 * math.sqrt(1.1 / 400))
    assert state.own.variance[0] == pytest.approx(1.0, rel=0.4)


@pytest.mark.parametrize("law", LAWS)
def test_in_the_end_every_arm_is_judged_by_its_average(law: str) -> None:
    """Also where the family is wrong, and differently wrong in each arm."""
    rng = np.random.default_rng(6)
    powers = (0.8, 1.0, 1.3)
    rewards = [np.abs(LAWS[law](rng, 2.0, 200_000)) ** power for power in powers]
    state = learned(rewards)
    for arm, values in enumerate(rewards):
        place = state.own.place[arm]
        if state.own.family[0] != pooled.GAUSSIAN:
            place = math.exp(place)
        assert place == pytest.approx(values.mean(), rel=0.01)


def test_the_lognormal_estimate_is_used_while_it_agrees_with_the_averages() -> None:
    """Twelve rewards per arm with sd 1.5 of the logarithms: the mean square error of the log mean
    is well below that of the log of the average (paired over 300 arms)."""
    rng = np.random.default_rng(7)
    rewards = [rng.lognormal(0.0, 1.5, 12) for _ in range(300)]
    state = learned(rewards)
    assert state.own.family[0] == pooled.LOGNORMAL
    truth = 0.5 * 1.5**2
    ours = np.array([pooled._place(state, arm)[0] for arm in range(300)]) - truth
    plain = np.array([math.log(x.mean()) for x in rewards]) - truth
    assert (ours**2).mean() < 0.7 * (plain**2).mean()


def test_merging_workers_is_as_if_one_had_seen_all() -> None:
    rng = np.random.default_rng(8)
    values = np.where(rng.random(600) < 0.3, rng.lognormal(1.0, 1.0, 600), 0.0)
    values[5] = -2.0
    whole, first, second = (zib.Bandit(arms=["a", "b"], seed=0) for _ in range(3))
    for bandit, part in (
        (whole, slice(None)),
        (first, slice(0, 600, 2)),
        (second, slice(1, 600, 2)),
    ):
        bandit.update_many(["a" if i % 3 else "b" for i in range(600)][part], values[part])
    first.merge(second)
    for name in ("log_total", "log_squares", "negative"):
        merged, wanted = (getattr(bandit.state.own, name) for bandit in (first, whole))
        assert np.allclose(merged, wanted, rtol=1e-12), name
    assert first.pulls == whole.pulls
    for arm in ("a", "b"):
        assert first.means()[arm].reward == pytest.approx(whole.means()[arm].reward)


@pytest.mark.parametrize(
    "rewards",
    [
        [0.0] * 40,
        [3.0] * 40,
        [0.0, 3.0] * 20,
        [3.0, 4.0] * 20,
        [-1.0, 0.0] * 20,
        [1e-100, 1e100] * 20,
    ],
)
def test_degenerate_rewards(rewards: list[float]) -> None:
    bandit = zib.Bandit(n_arms=3, seed=0)
    for reward in rewards:
        bandit.update(bandit.select(), reward)
    assert not np.isnan(list(bandit.indices().values())).any()


def test_an_arm_that_never_paid_may_pay_far_more() -> None:
    """Ten arms: P(factor > x) = 0.075/x^1.5 for x ≥ 1; binomial tests at level 1e-6 each."""
    rng = np.random.default_rng(9)
    factors = np.array([za.surprise(0.75, 10, rng) for _ in range(40_000)])
    assert factors.min() == 1.0
    for x in (1.0, 2.0, 5.0):
        seen = int((factors > x).sum())
        assert stats.binomtest(seen, 40_000, 0.075 / x**1.5).pvalue > 1e-6


def test_the_more_arms_are_known_the_fewer_are_taken_for_odd() -> None:
    """After four rewards an arm is known; with n of them 1/(1 + 0.3n) and 1/(1 + 3n) are left."""
    for known in (0, 1, 8):
        bandit = zib.Bandit(n_arms=10, seed=0)
        for arm in range(10):
            bandit.update_many([arm] * 4, [1.0 + arm, 2.0, 0.5, 3.0 if arm < known else 0.0])
        common = za.in_common(bandit.spec, bandit.state)
        assert common.surprises == pytest.approx(0.75 / (1.0 + 0.3 * known))
        assert common.strangers == pytest.approx(1.25 / (1.0 + 3.0 * known))


@pytest.mark.parametrize("n_arms", [2, 8, 30])
def test_a_prior_learned_from_few_arms_counts_for_little(n_arms: int) -> None:
    """Arms that are all alike: the prior counts for K²/5 payments, at least 2 and at most 20."""
    bandit = zib.Bandit(n_arms=n_arms, seed=0)
    for arm in range(n_arms):
        bandit.update_many([arm] * 60, [5.0, 0.0, 7.0, 0.0, 0.0, 6.0] * 10)
    assert float(bandit.state.own.alpha[0]) == pytest.approx(min(max(2.0, n_arms**2 / 5), 20.0))
    one = 2.0 / 3.0  # the variance of a reward
    counted = one / float(bandit.state.own.variance[0])
    assert counted == pytest.approx(min(max(5.0, n_arms / 2), 20.0), rel=0.1)


def test_a_rare_jackpot_is_found() -> None:
    """The best arm pays one time in fifty and sixty times as much as the others."""
    env = zib.env.GaussianMAB(means=[1.0] * 9 + [60.0], probs=[0.5] * 9 + [0.02], sigma=0.1)
    result = zib.simulate([ZIAdaptive()], env, horizon=60_000, replications=20, progress=False)
    found = result.pulls[0, :, 9] > 30_000
    assert found.sum() >= 10  # about four in five are; fewer than half has probability < 1e-3


def test_an_arm_unlike_the_others_is_judged_by_its_own_rewards() -> None:
    """Nineteen arms pay 1 on average, one pays 5: the prior of the others hardly moves it. Where
    all are alike, the one with the largest average is moved towards them."""
    rng = np.random.default_rng(10)
    rewards = [rng.normal(1.0, 0.5, 8) for _ in range(19)] + [rng.normal(5.0, 0.5, 8)]
    state = learned(rewards)
    assert state.own.expected[19] == pytest.approx(rewards[19].mean(), rel=0.01)
    alike = learned(rewards[:19])
    averages = np.array([x.mean() for x in rewards[:19]])
    assert alike.own.expected.max() < averages.mean() + 0.7 * (averages.max() - averages.mean())


def test_a_lognormal_law_does_not_judge_an_arm_whose_average_contradicts_it() -> None:
    """Nine log-normal arms, and one that mostly pays little and now and then very much."""
    rng = np.random.default_rng(11)
    rewards = [rng.lognormal(0.0, 1.0, 300) for _ in range(9)]
    rewards.append(np.where(rng.random(300) < 0.1, 50.0, 0.2) * rng.uniform(0.9, 1.1, 300))
    state = learned(rewards)
    assert state.own.family[0] == pooled.LOGNORMAL
    assert state.own.expected[9] == pytest.approx(rewards[9].mean(), rel=0.25)


@pytest.mark.parametrize("wide", ["weibull", "lognormal"])
def test_rewards_over_many_decades_do_not_promise_more_than_was_ever_paid(wide: str) -> None:
    """A few rewards of very skewed laws: what is expected stays near the averages of all arms."""
    rng = np.random.default_rng(12)
    counts = [1, 3, 5, 8, 15, 300]
    if wide == "weibull":
        rewards = [rng.weibull(0.4, n) for n in counts]
    else:
        rewards = [rng.lognormal(0.0, 1.9, n) for n in counts]
    state = learned(rewards)
    average = sum(x.sum() for x in rewards) / sum(counts)
    assert state.own.expected.max() < 10.0 * max(average, *(x.mean() for x in rewards))


@pytest.mark.parametrize("magnitudes", ["own", "shared", "learned"])
def test_what_arms_say_about_each_others_magnitudes(magnitudes: str) -> None:
    """Two arms pay alike often, one twice as much: only "shared" cannot tell them apart."""
    env = zib.env.GaussianMAB(means=[1.0, 2.0], probs=[0.5, 0.5], sigma=0.3)
    spec = ZIAdaptive(magnitudes=magnitudes)
    result = zib.simulate([spec], env, horizon=2_000, replications=20, progress=False)
    best = result.pulls[0, :, 1].mean() / 2_000
    assert (best > 0.95) == (magnitudes != "shared")


def test_shared_magnitudes_save_regret_where_they_are_shared() -> None:
    """Five arms of one magnitude: 60 runs, paired; the difference is 5 standard errors and more."""
    probs = [0.02, 0.04, 0.06, 0.08, 0.10]
    env = zib.env.MAB(
        [zib.env.ZeroInflated(zib.env.LogNormal.from_mean(2.0, 0.8), p) for p in probs]
    )
    policies = {how: ZIAdaptive(magnitudes=how) for how in ("shared", "own")}
    result = zib.simulate(policies, env, horizon=5_000, replications=60, progress=False)
    assert result.difference("shared", "own").high[-1] < 0.0


def test_draws_only_raise_what_an_arm_is_expected_to_pay() -> None:
    bandit = zib.Bandit(n_arms=3, seed=0)
    rng = np.random.default_rng(12)
    bandit.update_many(rng.integers(3, size=400), np.where(rng.random(400) < 0.3, 2.0, 0.0))
    own, state = bandit.state.own, bandit.state
    a, b = own.alpha[0] + state.nonzero, own.beta[0] + state.pulls - state.nonzero
    drawn = np.zeros((200, 3))
    for out in drawn:
        kernel.scores(bandit.spec, state, rng, out)
    assert np.array_equal(drawn.min(axis=0), a / (a + b) * own.expected)
    assert 0.2 < (drawn > drawn.min(axis=0)).mean() < 0.8


@pytest.mark.parametrize("p", [0.0, 0.001, 0.02, 0.3, 0.5, 0.8, 0.99])
@pytest.mark.parametrize("level", [0.01, 0.5, 3.0])
def test_how_far_a_probability_may_be_raised_is_the_inverse_of_a_divergence(
    p: float, level: float
) -> None:
    """Against a root of the exact divergence, found by SciPy. The approximation is above, by
    about a third at most, unless nearly all rounds pay."""
    weight = 200.0

    def beyond(q: float) -> float:
        return weight * float(special.rel_entr(p, q) + special.rel_entr(1 - p, 1 - q)) - level

    exact = optimize.brentq(beyond, p, 1.0 - 1e-15) - p
    found = za.most_probable(p, weight, level) - p
    assert 0.9 * exact < found < 1.35 * exact
    if level == 0.01 and 0.02 <= p <= 0.8:
        assert found == pytest.approx(exact, rel=0.01)


@pytest.mark.parametrize("family", ["gaussian", "lognormal"])
def test_how_far_an_arm_may_be_raised(family: str) -> None:
    """With many rewards the limit is √(2·level) standard deviations of the posterior of p·mu."""
    rng = np.random.default_rng(14)
    state = learned(drawn(family, 14, [4_000, 3_000]), zeros=9_000)
    a = state.own.alpha[0] + state.nonzero[0]
    b = state.own.beta[0] + state.pulls[0] - state.nonzero[0]
    kind = state.own.family[0]
    assert kind == {"gaussian": pooled.GAUSSIAN, "lognormal": pooled.LOGNORMAL}[family]
    magnitudes = np.array([za.draw_magnitude(state, 0, kind, rng) for _ in range(40_000)])
    draws = rng.beta(a, b, 40_000) * magnitudes
    expected = state.own.expected[0]
    for level in (0.5, 2.0):
        raised = za.most(state, 0, kind, expected, level) - a / (a + b) * expected
        assert raised == pytest.approx(math.sqrt(2.0 * level) * draws.std(), rel=0.05)


def test_draws_raise_a_neglected_arm_further_than_a_familiar_one() -> None:
    """Two arms alike, one with a hundredth of the pulls: the level of its limit is larger, so in
    units of its own posterior it is drawn further out."""
    bandit = zib.Bandit(n_arms=2, seed=0)
    rng = np.random.default_rng(15)
    arms = np.repeat([0, 1], [10_000, 100])
    bandit.update_many(arms, np.where(rng.random(arms.size) < 0.3, 2.0, 0.0))
    state = bandit.state
    drawn = np.zeros((4_000, 2))
    for out in drawn:
        kernel.scores(bandit.spec, state, rng, out)
    a = state.own.alpha[0] + state.nonzero
    p, weight = a / (state.pulls + state.own.alpha[0] + state.own.beta[0]), state.pulls
    sd = 2.0 * np.sqrt(p * (1.0 - p) / weight)
    height = (drawn.max(axis=0) - drawn.min(axis=0)) / sd
    levels = np.log1p(state.clock[0] / 2.0 / state.pulls)
    assert height == pytest.approx(np.sqrt(2.0 * levels), rel=0.1)


def test_of_many_arms_few_are_drawn() -> None:
    bandit = zib.Bandit(n_arms=400, seed=0)
    rng = np.random.default_rng(13)
    bandit.update_many(np.repeat(np.arange(400), 5), np.where(rng.random(2000) < 0.3, 2.0, 0.0))
    own, state = bandit.state.own, bandit.state
    a, b = own.alpha[0] + state.nonzero, own.beta[0] + state.pulls - state.nonzero
    raised = np.array(list(bandit.indices().values())) > 1.0001 * a / (a + b) * own.expected
    assert 1 <= raised.sum() <= 30  # of 20 draws on average about half are above their mean


def test_a_known_horizon_saves_regret_and_is_forgotten_after_it() -> None:
    """100 runs, paired: the gain is 5 standard errors and more. Later, scores are as if unknown."""
    env = zib.env.RandomMAB("gaussian", n_arms=5)
    policies = {"told": ZIAdaptive(horizon=2_000), "not": ZIAdaptive()}
    result = zib.simulate(policies, env, horizon=2_000, replications=100, progress=False)
    assert result.difference("told", "not").high[-1] < 0.0
    rng = np.random.default_rng(14)
    arms, rewards = rng.integers(3, size=90), np.where(rng.random(90) < 0.3, 2.0, 0.0)
    drawn = []
    for horizon in ("unknown", 50, 89, 5000):
        bandit = zib.Bandit(ZIAdaptive(horizon=horizon), n_arms=3, seed=3)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it says that the horizon is over
            bandit.update_many(arms, rewards)
        drawn.append(list(bandit.indices().values()))
    assert drawn[0] == drawn[1] == drawn[2] == drawn[3]  # and with far to go, too


def test_a_horizon_that_is_unknown_cannot_be_doubled() -> None:
    with pytest.raises(zib.InvalidParameterError, match="`spec` must be a policy with a horizon"):
        zib.mab.Anytime(ZIAdaptive())


@given(
    place=st.floats(-1e3, 1e3),
    centre=st.floats(-1e3, 1e3),
    noise=st.floats(1e-3, 1e3),
    spread=st.floats(1e-3, 1e3),
)
def test_a_compromise_weighs_estimate_and_prior_by_their_precisions(
    place: float, centre: float, noise: float, spread: float
) -> None:
    mean, variance = compromise(place, noise, centre, spread)
    precision = 1.0 / noise + 1.0 / spread
    assert variance == pytest.approx(1.0 / precision)
    assert mean == pytest.approx((place / noise + centre / spread) / precision, abs=1e-9)


def test_without_doubt_on_either_side_the_estimate_stands() -> None:
    assert compromise(3.0, 0.0, 1.0, 0.0) == (3.0, 0.0)
