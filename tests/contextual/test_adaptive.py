"""`Adaptive`: is the evidence right, does it find what depends on the features, and does it pay?"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import special, stats

import zib
from zib.contextual import (
    Adaptive,
    Disjoint,
    JointUCB,
    LaplaceTS,
    LeastSquares,
    MedianOfMeans,
    beliefs,
    evidence,
    policy,
)
from zib.contextual.adaptive import MAGNITUDE_INTERCEPT
from zib.core.entry import interpreted
from zib.core.stacked import row_of
from zib.core.validate import InvalidParameterError
from zib.mab.pooled import LOGNORMAL

SIGMA = 0.7


def users(rng, n, d, unit=1.0):
    return np.column_stack([np.ones(n), unit * rng.normal(size=(n, d))])


def taught(spec, x, arms, rewards):
    """Return the state after these rewards."""
    state = policy.init(spec, x.shape[1], x.shape[1])
    for row, arm, reward in zip(x, arms, rewards, strict=True):
        policy.update(spec, state, int(arm), row, row, float(reward))
    return state


def world(rng, x, arms, theta, beta):
    """Return rewards with these coefficients of the arms, one row each."""
    p = 1 / (1 + np.exp(-(x * theta[arms]).sum(axis=1)))
    sizes = (x * beta[arms]).sum(axis=1) + SIGMA * rng.normal(size=len(x))
    return np.where(rng.random(len(x)) < p, sizes, 0.0)


# --------------------------------------------------------------------------------------- evidence


def magnitude_of_one_arm(rng, sigma):
    """Return features and rewards of an arm that always pays, with its model, prior and group.

    The features come with the intercept of the model, which stands behind them.
    """
    x = users(rng, 60, 3, unit=0.5)
    rewards = 5.0 + x @ [0.0, 0.6, -0.4, 0.0] + SIGMA * rng.normal(size=len(x))
    spec = Adaptive(n_arms=1, sigma=sigma, magnitude="ridge")
    state = taught(spec, x, np.zeros(len(x)), rewards)
    model, prior = row_of(state.arms.magnitude, 0), row_of(state.arms.magnitude_prior, 0)
    return np.column_stack([x, np.ones(len(x))]), rewards, model, prior, state.magnitude


def variances(group, scale):
    """Return the prior variances: of a constant, three features that vary, and the intercept."""
    slab = scale**2 / (group.relevant[0] * group.unit[1:4])
    return np.r_[1.0 / evidence.INERT, slab * group.relevance[1:4], 1.0 / MAGNITUDE_INTERCEPT]


def covariance(x, group, scale):
    return np.eye(len(x)) + x @ np.diag(variances(group, scale)) @ x.T


def measured(model, prior, group, scales, variance):
    policy_data = model.curvature.matrix @ model.coef
    out = []
    for scale in scales:
        model.work[1] = policy_data
        at = (scale, MAGNITUDE_INTERCEPT, variance)
        out.append(evidence._evidence(model, prior, group, *at))
    return np.diff(out)


SCALES = (1e-8, 0.125, 1.0, 8.0)


def test_evidence_is_the_probability_of_the_data(rng) -> None:
    x, rewards, model, prior, group = magnitude_of_one_arm(rng, SIGMA)
    wanted = [
        stats.multivariate_normal.logpdf(
            rewards, x @ prior.mean, SIGMA**2 * covariance(x, group, scale)
        )
        for scale in SCALES
    ]
    found = measured(model, prior, group, SCALES, SIGMA**2)
    assert np.allclose(found, np.diff(wanted), rtol=1e-6, atol=1e-6)


def test_evidence_integrates_the_noise_out(rng) -> None:
    """What is left is a multivariate t law around the scatter of all arms."""
    x, rewards, model, prior, group = magnitude_of_one_arm(rng, None)
    away = rewards - x @ prior.mean
    wanted = []
    for scale in SCALES:
        matrix = covariance(x, group, scale)
        square = away @ np.linalg.solve(matrix, away)
        square += evidence.BORROWED * group.scatter[0]
        free = len(x) + evidence.BORROWED
        wanted.append(-0.5 * np.linalg.slogdet(matrix)[1] - 0.5 * free * math.log(square))
    found = measured(model, prior, group, SCALES, math.nan)
    assert np.allclose(found, np.diff(wanted), rtol=1e-6, atol=1e-6)


def test_what_is_left_of_the_squares_follows_the_prior(rng) -> None:
    x, rewards, model, prior, group = magnitude_of_one_arm(rng, None)
    away = rewards - x @ prior.mean
    wanted = away @ np.linalg.solve(covariance(x, group, prior.scale[0]), away)
    assert model.residual[0] == pytest.approx(wanted, rel=1e-6)
    precision = np.diag(1.0 / variances(group, prior.scale[0]))
    assert np.allclose(np.diag(precision), prior.precision)
    assert np.allclose(model.curvature.matrix, precision + x.T @ x, rtol=1e-8)
    mode = np.linalg.solve(precision + x.T @ x, precision @ prior.mean + x.T @ rewards)
    assert np.allclose(model.coef, mode)


def test_the_odds_of_a_feature_are_those_of_the_data_with_and_without_it(rng) -> None:
    """Given the priors of the others, whatever prior is in force for the feature itself."""
    x, rewards, model, prior, _ = magnitude_of_one_arm(rng, SIGMA)
    away = rewards - x @ prior.mean
    for i, slab in ((1, 0.3), (3, 7.0)):
        in_force = 1.0 / prior.precision
        with_it, without = in_force.copy(), in_force.copy()
        with_it[i], without[i] = 1.0 / slab, 0.0
        one, none = (
            stats.multivariate_normal.logpdf(
                away, cov=SIGMA**2 * (np.eye(len(x)) + x @ np.diag(each) @ x.T)
            )
            for each in (with_it, without)
        )
        assert evidence._for_one(model, prior, i, slab, SIGMA**2) == pytest.approx(one - none)


def test_the_usual_share_of_features_that_matter(rng) -> None:
    """With a uniform prior three of ten make it (3 + 1)/(10 + 2); in doubt it is a fixed point."""
    group = evidence.Group.new({"dim": 11})
    group.constant[:10], group.constant[10] = np.inf, 1.0
    group.odds[:] = np.r_[[300.0] * 3, [-300.0] * 7, 0.0]
    assert evidence._usual_share(group) == pytest.approx(4 / 12)
    group.odds[:10] = rng.normal(size=10)
    share = evidence._usual_share(group)
    probable = 1 / (1 + (1 - share) / share * np.exp(-group.odds[:10]))
    assert share == pytest.approx((1 + probable.sum()) / 12, abs=1e-3)


def log_probability(y, x, group, doubt):
    """Return that of the rewards of one arm whose noise and scale are not known."""
    where = group.usual[0] * x[:, -1]

    def of(scale):
        shape = group.scatter[0] * covariance(x, group, scale)
        return stats.multivariate_t.logpdf(y, where, shape, df=evidence.BORROWED)

    grid = evidence.SMALLEST * 2.0 ** np.arange(evidence.MOST_SCALES)
    share = np.minimum(1.0, 1.0 / grid**2)
    matters = special.logsumexp([of(scale) for scale in grid], b=share / share.sum())
    return np.logaddexp(
        math.log(doubt) + of(evidence.NO_EFFECT),
        math.log(1 - doubt) + matters - group.price[0],
    )


def test_the_law_is_the_one_that_makes_the_rewards_more_probable(rng) -> None:
    x = users(rng, 8, 3, unit=0.5)  # the first fit comes after eight rewards
    rewards = np.exp(1.0 + 0.5 * x[:, 1] + 0.8 * rng.normal(size=len(x)))
    state = taught(Adaptive(n_arms=1, doubt=0.3), x, np.zeros(len(x)), rewards)
    wide = np.column_stack([x, np.ones(len(x))])
    normal = log_probability(rewards, wide, state.magnitude, 0.3)
    of_logs = log_probability(np.log(rewards), wide, state.logarithm, 0.3) - np.log(rewards).sum()
    found = state.logarithm.marginal[0] - np.log(rewards).sum() - state.magnitude.marginal[0]
    assert found == pytest.approx(of_logs - normal, rel=1e-6)
    skewed = state.plain.own.family[0] == LOGNORMAL
    assert bool(state.law.logs[0]) == (of_logs > normal and skewed)


# ------------------------------------------------------------------------------- what it finds out


CASES = {"nothing": (0.0, 0.0), "occurrence": (1.5, 0.0), "magnitude": (0.0, 1.5)}


@pytest.mark.parametrize("case", CASES)
def test_it_finds_the_part_that_depends_on_the_features(rng, case) -> None:
    """Effects that are twice the noise, or none; 800 rewards of two arms.

    In 50 runs the weight of a part without effect was at most 0.97, half of the time below 0.5, and
    that of a part with one always 1 to three digits.
    """
    by_theta, by_beta = CASES[case]
    x, arms = users(rng, 800, 4), rng.integers(2, size=800)
    theta = np.array([[0.0, by_theta, 0.0, 0.0, 0.0], [-0.5, 0.0, by_theta, 0.0, 0.0]])
    beta = np.array([[3.0, by_beta, 0.0, 0.0, 0.0], [4.0, 0.0, by_beta, 0.0, 0.0]])
    state = taught(Adaptive(n_arms=2), x, arms, world(rng, x, arms, theta, beta))
    found = (state.occurrence.weight[0], state.magnitude.weight[0])
    for weight, effect in zip(found, (by_theta, by_beta), strict=True):
        assert (weight > 0.999) if effect else (weight < 0.99)


def test_it_finds_the_features_that_matter(rng) -> None:
    """Two of twelve, with effects of the size of the noise; 1,000 rewards of two arms.

    In 20 runs those that matter had a probability of 0.91 to 1 (it is not renewed for a change by
    less than a tenth), the others one of at most 0.78, and half of them less than 0.02.
    """
    x, arms = users(rng, 1000, 12), rng.integers(2, size=1000)
    theta, beta = np.zeros((2, 13)), np.zeros((2, 13))
    beta[:, 0], beta[:, 3], beta[:, 7] = 3.0, [0.7, -0.7], [-0.7, 0.7]
    theta[:, 5] = [1.2, -1.2]
    state = taught(Adaptive(n_arms=2), x, arms, world(rng, x, arms, theta, beta))
    for group, right in ((state.magnitude, [3, 7]), (state.occurrence, [5])):
        others = np.setdiff1d(np.arange(1, 13), right)
        assert (group.relevance[right] > 0.85).all()
        assert (group.relevance[others] < 0.95).all()
        assert np.median(group.relevance[others]) < 0.1


@pytest.mark.parametrize("law", ["normal", "log-normal"])
def test_it_finds_the_law_of_magnitudes(rng, law) -> None:
    """400 rewards of two arms; it was found in 20 of 20 runs."""
    x, arms = users(rng, 400, 4), rng.integers(2, size=400)
    place = 0.5 * x[:, 1] * np.where(arms == 0, 1.0, -1.0)
    noise = 0.5 * rng.normal(size=400)
    rewards = np.exp(place + noise) if law == "log-normal" else 4.0 + place + noise
    state = taught(Adaptive(n_arms=2), x, arms, rewards)
    assert bool(state.law.logs[0]) == (law == "log-normal")
    policy.update(Adaptive(n_arms=2), state, 0, x[0], x[0], -1.0)
    assert state.law.logs[0] == state.law.open[0] == 0.0  # no logarithm of a loss


def test_a_log_normal_magnitude_is_the_exponential_of_place_and_half_the_variance(rng) -> None:
    n = 4000
    x = users(rng, n, 2)
    rewards = np.exp(0.3 + 0.8 * x[:, 1] + 0.6 * rng.normal(size=n))
    spec = Adaptive(n_arms=1)
    state = taught(spec, x, np.zeros(n), rewards)
    assert state.law.logs[0] == 1.0
    out, column = np.zeros((5, 1)), np.array([[1.0], [1.0], [0.0]])
    policy.moments(spec, state, np.array([0]), column, column, policy.scratch(1, 3, 3), out)
    mean = math.exp(0.3 + 0.8 + 0.5 * 0.6**2)
    # the standard error of the log of the mean: of two coefficients and of half the variance
    error = mean * math.sqrt(2 * 0.6**2 / n + 0.5 * 0.6**4 / n)
    assert abs(out[policy.ZETA, 0] - mean) < 4.5 * error  # by chance once in 100,000
    assert math.sqrt(out[policy.ZETA_VARIANCE, 0]) == pytest.approx(error, rel=0.1)


def test_the_features_need_no_constant(rng) -> None:
    x, arms = users(rng, 600, 3), rng.integers(2, size=600)
    theta, beta = np.array([[-1.5, 0, 0, 0]] * 2), np.array([[3.0, 0, 1, 0]] * 2)
    rewards = world(rng, x, arms, theta, beta)
    spec = Adaptive(n_arms=2)
    one, other = taught(spec, x, arms, rewards), taught(spec, x[:, 1:], arms, rewards)
    for part in ("occurrence", "magnitude"):
        weights = [getattr(state, part).weight[0] for state in (one, other)]
        assert weights[0] == pytest.approx(weights[1], abs=1e-3)
        coefs = [getattr(state.arms, part).coef for state in (one, other)]
        assert np.allclose(coefs[0][:, 1:], coefs[1], atol=1e-3)
    assert other.occurrence.weight[0] < 0.99  # nothing looks as if it explained the rare rewards


def test_units_of_features_do_not_matter(rng) -> None:
    x, arms = users(rng, 150, 3), rng.integers(2, size=150)
    theta, beta = np.array([[0.0, 1, 0, 0]] * 2), np.array([[3.0, 0, 1, 0]] * 2)
    rewards = world(rng, x, arms, theta, beta)
    units = np.array([1.0, 0.02, 30.0, 1.0])
    spec = Adaptive(n_arms=2)
    one, other = (taught(spec, x * unit, arms, rewards) for unit in (1.0, units))
    for part in ("occurrence", "magnitude"):
        groups = getattr(one, part), getattr(other, part)
        assert groups[0].weight[0] == pytest.approx(groups[1].weight[0], abs=0.02)
        wide = np.append(units, 1.0)  # the intercept is the last
        coefs = getattr(one.arms, part).coef, getattr(other.arms, part).coef * wide
        assert np.allclose(*coefs, atol=0.05)


def test_without_features_that_vary_it_never_uses_a_model_with_them(rng) -> None:
    x = np.ones((200, 2)) * [1.0, 3.0]
    rewards = np.where(rng.random(200) < 0.4, rng.normal(2.0, 1.0, 200), 0.0)
    state = taught(Adaptive(n_arms=2), x, rng.integers(2, size=200), rewards)
    assert state.occurrence.weight[0] == state.magnitude.weight[0] == 0.0


def test_an_arm_with_an_effect_of_its_own_has_a_scale_of_its_own(rng) -> None:
    x, arms = users(rng, 400, 4), rng.integers(3, size=400)
    beta = np.zeros((3, 5))
    beta[:, 0], beta[2, 1] = 3.0, 2.0
    theta = np.zeros((3, 5))
    state = taught(Adaptive(n_arms=3), x, arms, world(rng, x, arms, theta, beta))
    scales = state.arms.magnitude_prior.scale[:, 0]
    assert scales[2] > scales[:2].max()  # between 1.1 and 1.7 times in 20 runs
    assert state.magnitude.weight[0] > 0.99


# ------------------------------------------------------------------------------------------- draws


def scored(spec, state, x, n=1, seed=0):
    """Return the scores of both arms in `n` decisions for a user."""
    out, work = np.zeros(2), policy.scratch(2, x.size, x.size)
    arms, columns, rng = np.arange(2), np.column_stack([x, x]), np.random.default_rng(seed)
    found = np.empty((n, 2))
    with interpreted():
        for row in found:
            policy.scores(spec, state, arms, columns, columns, rng, work, out)
            row[:] = out
    return found


def test_draws_are_those_of_the_posterior_between_estimate_and_index(rng) -> None:
    """Against draws of all coefficients by NumPy; Kolmogorov's test is wrong with 1e-6 per arm."""
    x, arms = users(rng, 500, 3), rng.integers(2, size=500)
    theta, beta = np.array([[0.0, 1.5, 0, 0]] * 2), np.array([[3.0, 0, 1.5, 0]] * 2)
    rewards = world(rng, x, arms, theta, beta)
    spec = Adaptive(n_arms=2, kind="ts")
    state = taught(spec, x, arms, rewards)
    assert min(state.occurrence.weight[0], state.magnitude.weight[0]) > 0.999
    assert state.law.logs[0] == 0.0
    user, n = np.array([1.0, -0.4, 0.3, 2.0]), 4000
    with_intercept = np.append(user, 1.0)
    found = scored(spec, state, user, n)
    ((index, other_index),) = scored(spec._replace(kind="ucb"), state, user)
    for arm, most in enumerate((index, other_index)):
        drawn = []
        for model, variance in (
            (row_of(state.arms.occurrence, arm), 1.0),
            (row_of(state.arms.magnitude, arm), beliefs.noise_of_arm(spec, state, arm)),
        ):
            covariance = variance * np.linalg.inv(model.curvature.matrix)
            coef = rng.multivariate_normal(model.coef, covariance, 20_000)
            drawn.append((coef @ with_intercept, model.coef @ with_intercept))
        (eta, eta_hat), (zeta, zeta_hat) = drawn
        least = zeta_hat / (1 + np.exp(-eta_hat))
        wanted = np.clip(zeta / (1 + np.exp(-eta)), least, most)
        assert least < most
        assert found[:, arm].min() == pytest.approx(least)
        assert found[:, arm].max() == pytest.approx(most)
        jitter = 1e-9 * rng.random(n)  # where draws are clipped they are ties
        test = stats.ks_2samp(found[:, arm] + jitter, wanted + 1e-9 * rng.random(20_000))
        assert test.pvalue > 1e-6


def test_where_features_do_not_matter_draws_are_those_without_them(rng) -> None:
    x = np.ones((200, 2)) * [1.0, 3.0]
    rewards = np.where(rng.random(200) < 0.4, rng.normal(2.0, 1.0, 200), 0.0)
    spec = Adaptive(n_arms=2, kind="ts")
    state = taught(spec, x, rng.integers(2, size=200), rewards)
    index = spec._replace(kind="ucb")
    assert np.array_equal(scored(spec, state, x[0], 50), scored(index, state, x[0], 50))


def test_what_the_draws_are_called() -> None:
    assert Adaptive(n_arms=2, kind="ts").label == "Adaptive TS"
    with pytest.raises(InvalidParameterError, match="`kind` must be one of 'ucb', 'ts'"):
        Adaptive(n_arms=2, kind="draw")


# ------------------------------------------------------------------------------------- as a bandit


def played(n=120, **options):
    rng = np.random.default_rng(2)
    bandit = zib.ContextualBandit(arms=["a", "b"], n_features=3, seed=1, **options)
    for x in users(rng, n, 2):
        arm = bandit.select(x)
        bandit.update(arm, rng.normal(3.0, 1.0) if rng.random() < 0.4 else 0.0, x)
    return bandit


def test_it_is_the_default_of_arms_with_names() -> None:
    assert zib.ContextualBandit(arms=["a", "b"], n_features=3).spec == Adaptive(n_arms=2)
    assert zib.ContextualBandit(n_features=3).spec == JointUCB()
    assert Adaptive(n_arms=2).label == "Adaptive"


def test_arms_come_and_go() -> None:
    with interpreted():
        bandit = played()
        before = bandit.state
        bandit.add_arm("c")
        x = [1.0, 0.5, -0.5]
        assert bandit.select(x) == "c"  # nothing is known about it
        bandit.update("c", 2.0, x)
        assert (bandit.state.arms.occurrence_prior.precision[2] != 1.0).any()  # as the others have
        for field in ("coef", "response"):
            old, new = (getattr(s.arms.occurrence, field) for s in (before, bandit.state))
            assert field != "response" or np.array_equal(old, new[:2])
            assert new.shape[0] == 3
        bandit.remove_arm("a")
        assert bandit.pulls == {"b": before.plain.pulls[1], "c": 1}
        assert bandit.select(x) in ("b", "c")
        assert np.isfinite(bandit.predict(x).r).all()


def test_rewards_are_revised_and_merged_as_if_they_had_been_right() -> None:
    with interpreted():
        x, y = [1.0, 0.5, -0.5], [1.0, -0.2, 0.3]
        first, second = (played(40, keep_rows=True) for _ in range(2))
        first.update("a", 0.0, x)
        first.update("b", 2.0, y)
        first.revise("a", 0.0, 5.0, x)
        second.update("a", 5.0, x)
        other = zib.ContextualBandit(arms=["a", "b"], n_features=3, keep_rows=True)
        other.update("b", 2.0, y)
        second.merge(other)
        for one, two in zip(first.state.arms.magnitude, second.state.arms.magnitude, strict=True):
            if isinstance(one, np.ndarray):
                assert np.array_equal(one, two)


def test_predictions_are_mixtures_with_what_is_known_without_features() -> None:
    with interpreted():
        bandit = played(300)
        rng = np.random.default_rng(3)
        for arm in ("a", "b"):  # enough of both that their own scatter decides
            for _ in range(100):
                bandit.update(arm, float(rng.normal(3.0, 1.0)), [1.0, *rng.normal(size=2)])
        for group in (bandit._state.occurrence, bandit._state.magnitude):
            group.weight[0] = 0.0
        alike = [bandit.predict([1.0, a, b]) for a, b in ((0.0, 0.0), (3.0, -3.0))]
    plain = bandit.state.plain
    for found in alike:
        assert np.allclose(found.p, (plain.nonzero + 0.5) / (plain.pulls + 1.0))
        assert np.allclose(found.mu, plain.total / plain.nonzero)
        assert (found.p_low < found.p).all()
        assert (found.p < found.p_high).all()
        spread = np.sqrt(plain.spread / (plain.nonzero - 1.0) / plain.nonzero)
        assert np.allclose((found.mu_high - found.mu_low) / 2, 1.96 * spread, rtol=0.05)


def test_what_has_no_single_posterior_is_refused() -> None:
    for magnitude in (MedianOfMeans(), LeastSquares(link="log", score="printed")):
        with pytest.raises(InvalidParameterError, match="`magnitude` must be a model with one"):
            Adaptive(n_arms=2, magnitude=magnitude)
    with pytest.raises(InvalidParameterError, match="must be one of 'learned', 'ridge'.*got 'no'"):
        Adaptive(n_arms=2, magnitude="no")
    with pytest.raises(InvalidParameterError, match="must be one of 'ridge'.*got 'learned'"):
        JointUCB(magnitude="learned")
    with pytest.raises(InvalidParameterError, match="`doubt` must lie in"):
        Adaptive(n_arms=2, doubt=1.0)
    assert Adaptive(n_arms=2, magnitude="learned") == Adaptive(n_arms=2)
    assert Adaptive(n_arms=2, magnitude="ridge") != Adaptive(n_arms=2)
    with pytest.raises(InvalidParameterError, match="must not have models per arm itself"):
        Disjoint(spec=Adaptive(n_arms=2), n_arms=2)


# ------------------------------------------------------------------------------------- does it pay?


def regrets(spec, d, effect, horizon, runs, seed):
    """Return the regret of a policy in runs with four arms; None is the context-free default."""
    out = []
    for run in range(runs):
        rng = np.random.default_rng([seed, run])
        probs, sizes = rng.uniform(0.05, 0.3, 4), rng.uniform(1.0, 3.0, 4)
        slopes = rng.standard_normal((2, 4, d))
        slopes *= effect / np.linalg.norm(slopes, axis=2, keepdims=True)
        x = users(rng, horizon, d)
        p = 1 / (1 + np.exp(-x @ np.column_stack([np.log(probs / (1 - probs)), slopes[0]]).T))
        mu = x @ np.column_stack([sizes, slopes[1]]).T
        noise, u, means = rng.standard_normal(horizon), rng.random(horizon), p * mu
        if spec is None:
            bandit = zib.Bandit(n_arms=4, seed=run)
        else:
            bandit = zib.ContextualBandit(spec, n_features=d + 1, seed=run)
        regret = 0.0
        for t in range(horizon):
            arm = bandit.select() if spec is None else bandit.select(x[t])
            reward = mu[t, arm] + noise[t] if u[t] < p[t, arm] else 0.0
            bandit.update(arm, reward, *(() if spec is None else (x[t],)))
            regret += means[t].max() - means[t, arm]
        out.append(regret)
    return np.mean(out)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "most"), [("ucb", 1.3), ("ts", 1.45)])
def test_noise_costs_little(seed, kind, most) -> None:
    """With 20 features that say nothing: at most 1.3 times the regret of the context-free default.

    With six other seeds of 100 runs each it was 1.03 to 1.13 times, with draws 1.01 to 1.26 times;
    a normal law with that scatter exceeds the limits with a probability below 1e-3. `LaplaceTS` and
    `JointUCB` have 4 times that regret.
    """
    free = regrets(None, 20, 0.0, 3000, 100, seed)
    assert regrets(Adaptive(n_arms=4, kind=kind), 20, 0.0, 3000, 100, seed) < most * free
    assert regrets(Disjoint(spec=LaplaceTS(), n_arms=4), 20, 0.0, 3000, 10, seed) > 2.0 * free


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "most"), [("ucb", 1.25), ("ts", 1.4)])
def test_features_that_matter_are_used(seed, kind, most) -> None:
    """At most 1.25 (1.4) times the regret of `JointUCB`, which believes in them from the start.

    After 5,000 rounds and over 60 runs the ratio was 0.9; without features it was 5. Draws explore
    more: with four other seeds ratios were 0.87 to 1.08 for the index, and 1.08 to 1.15 for draws.
    By their scatter it fails with a probability of about 1e-3.
    """
    known = regrets(Disjoint(spec=JointUCB(), n_arms=4), 5, 0.8, 3000, 30, seed)
    assert regrets(Adaptive(n_arms=4, kind=kind), 5, 0.8, 3000, 30, seed) < most * known
