"""Rewards that tell their category: what is learned of each, and what that buys."""

from __future__ import annotations

import numpy as np
import pytest

import zib
from tests.contextual_policies import TOLD
from zib.contextual import Adaptive, ByCategory, Disjoint, JointUCB, LaplaceTS, Naive
from zib.core.validate import InvalidParameterError

# One sort is liked where the feature is large, the other where it is small: what either pays
# together is least in the middle, which no model that is linear in the feature can see.
SHOP = zib.env.ContextualOutcomes(
    beta=[[3.0, 0.0], [3.3, 0.0]],
    theta=[[-1.5, 2.0], [-1.5, -2.0]],
    centres=[[1.0, 0.6], [1.0, -0.6], [1.0, 0.0]],
    jitter=0.7,
    sigma=0.5,
)


def history(env, n, seed=0):
    block = env.block(np.random.default_rng(seed), n)
    arms = np.random.default_rng(seed + 1).integers(0, env.n_arms, n)
    t = np.arange(n)
    return arms, block.z[t, :, arms], block.reward[t, arms], block.category[t, arms]


@pytest.mark.usefixtures("interpreting")
@pytest.mark.parametrize("name", TOLD)
def test_every_category_is_a_policy_of_its_own(name):
    spec = TOLD[name]
    arms, x, reward, category = history(SHOP, 120)
    told = zib.ContextualBandit(spec, n_features=2, seed=1)
    told.update_many(arms.tolist(), reward, x, category)
    rows = np.array([[1.0, 0.5], [1.0, -0.5]])
    whole = told.predict(rows)
    total = np.zeros(2)
    for c in range(1, spec.categories + 1):
        alone = zib.ContextualBandit(spec.spec, n_features=2, seed=1)
        alone.update_many(arms.tolist(), np.where(category == c, reward, 0.0), x)
        expected, found = alone.predict(rows), told.predict(rows, category=c)
        for part, other in zip(expected[1:], found[1:]):
            np.testing.assert_array_equal(part, other)
        total += found.r
    np.testing.assert_allclose(whole.r, total, rtol=1e-12)
    assert np.isnan(whole.p).all()


@pytest.mark.usefixtures("interpreting")
@pytest.mark.parametrize("inside", [Disjoint(spec=LaplaceTS(), n_arms=2), Adaptive(n_arms=2)])
def test_arms_come_and_go_in_every_category(inside):
    arms, x, reward, category = history(SHOP, 150)
    spec = ByCategory(spec=inside, categories=2)
    options = {"arms": ["a", "b"], "n_features": 2, "seed": 1}
    told = zib.ContextualBandit(spec, **options)
    alone = [zib.ContextualBandit(inside, **options) for _ in range(2)]

    def learn(rows, labels):
        for t in rows:
            arm = labels[arms[t] % len(labels)]
            told.update(arm, reward[t], x[t], category=category[t])
            for c, bandit in enumerate(alone, 1):
                bandit.update(arm, reward[t] if category[t] == c else 0.0, x[t])

    learn(range(50), ["a", "b"])
    for bandit in (told, *alone):
        bandit.add_arm("c")
    learn(range(50, 100), ["a", "b", "c"])
    for bandit in (told, *alone):
        bandit.remove_arm("a")
    learn(range(100, 150), ["b", "c"])
    for c, bandit in enumerate(alone, 1):
        expected, found = bandit.predict([1.0, 0.4]), told.predict([1.0, 0.4], category=c)
        for part, other in zip(expected[1:], found[1:]):
            np.testing.assert_array_equal(part, other)
    assert told.select([1.0, 0.4]) in ("b", "c")


@pytest.mark.usefixtures("interpreting")
def test_variance_of_the_sum_is_that_of_draws():
    """The scores of `LaplaceTS` draw the coefficients; 1,000 draws have 2.2 % error (one sd)."""
    arms, x, reward, category = history(SHOP, 600)
    spec = ByCategory(spec=LaplaceTS(), categories=2)
    bandit = zib.ContextualBandit(spec, n_features=2, seed=3)
    bandit.update_many(arms.tolist(), reward, x, category)
    rows = np.array([[1.0, 0.5], [1.0, -0.5]])
    draws = []
    for _ in range(1_000):
        draws.append(list(bandit.indices(rows).values()))
        bandit.select(rows)  # moves the stream on
    found = bandit.predict(rows, level=0.95)
    half = (found.r_high - found.r_low) / (2 * 1.959964)
    np.testing.assert_allclose(np.std(draws, axis=0), half, rtol=0.11)
    np.testing.assert_allclose(np.mean(draws, axis=0), found.r, atol=0.2 * half.max())


def test_rewards_of_the_environment():
    """Shares and means of categories against the formula; 5 standard errors, about 1e-6 each."""
    env = zib.env.ContextualOutcomes(
        beta=[[5.0, 1.0], [20.0, -3.0]], theta=[[-1.0, 0.5], [-2.0, -0.5]],
        centres=[[1.0, 0.5]], jitter=0.0, sigma=2.0,
    )  # fmt: skip
    n = 200_000
    block = env.block(np.random.default_rng(7), n)
    category, reward = block.category[:, 0], block.reward[:, 0]
    p = 1 / (1 + np.exp(-np.array([-1.0 + 0.25, -2.0 - 0.25])))
    for c, mu in ((1, 5.5), (2, 18.5)):
        own = category == c
        assert abs(own.mean() - p[c - 1]) < 5 * np.sqrt(p[c - 1] * (1 - p[c - 1]) / n)
        assert abs(reward[own].mean() - mu) < 5 * 2.0 / np.sqrt(own.sum())
    assert (reward[category == 0] == 0.0).all()
    np.testing.assert_allclose(block.mean[:, 0], p @ [5.5, 18.5])


def test_probabilities_that_add_up_to_more_than_one_are_divided_by_their_sum():
    env = zib.env.ContextualOutcomes([[1.0], [3.0]], [[2.0], [2.0]], [[1.0]])
    block = env.block(np.random.default_rng(1), 500)
    assert (block.category > 0).all()
    np.testing.assert_allclose(block.mean, 2.0)


@pytest.mark.slow
def test_telling_categories_apart_pays_where_they_depend_on_different_things():
    """One model of zero and not zero is wrong here, and its regret grows with the horizon.

    Lower by half in all of 20 replications: if both were alike, an event of probability 1e-6.
    """
    policies = {
        "told": ByCategory(spec=LaplaceTS(), categories=2),
        "not told": LaplaceTS(),
    }
    result = zib.simulate(policies, SHOP, horizon=4_000, replications=20, seed=5, progress=False)
    told, not_told = result.regret[:, :, -1]
    assert (told < 0.5 * not_told).all()


@pytest.mark.usefixtures("interpreting")
def test_refusals():
    with pytest.raises(InvalidParameterError, match="`spec` must not be split already; got ByCat"):
        ByCategory(spec=TOLD["by category"], categories=2)
    with pytest.raises(InvalidParameterError, match="such as LaplaceTS\\(\\); got Naive"):
        ByCategory(spec=Naive(horizon=10, sigma=1.0), categories=2)
    with pytest.raises(InvalidParameterError, match="`spec` must be split by arms first"):
        Disjoint(spec=TOLD["by category"], n_arms=2)
    with pytest.raises(InvalidParameterError, match="`env` must tell the category of every reward"):
        zib.simulate([TOLD["by category"]], zib.env.DisjointContextual(n_arms=2), horizon=10,
                     replications=1, progress=False)  # fmt: skip
    told = zib.ContextualBandit(TOLD["by category"], n_features=2)
    with pytest.raises(InvalidParameterError, match=r"`category` must lie in \[1, 2\] where a rew"):
        told.update(0, 3.0, [[1.0, 0.0]])
    told.update(0, 0.0, [[1.0, 0.0]])
    plain = zib.ContextualBandit(JointUCB(), n_features=2)
    for wrong in (
        lambda: plain.update(0, 3.0, [[1.0, 0.0]], category=1),
        lambda: plain.update_many([0], [3.0], [[1.0, 0.0]], [1]),
        lambda: plain.predict([[1.0, 0.0]], category=1),
    ):
        with pytest.raises(InvalidParameterError, match="must be left out but for policies with"):
            wrong()
