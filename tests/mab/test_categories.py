"""Rewards that tell which outcome they are: what is learned, decided, refused and simulated."""

from __future__ import annotations

import enum
import math

import numpy as np
import pytest
from scipy import stats
from tests.mab.test_outcomes import exact_indices, naive_indices

import zib
from zib import mab
from zib.core import kernel
from zib.core.entry import interpreted
from zib.env import DriftingMAB, Gaussian, Mixture, OutcomesMAB, ZeroInflated
from zib.sim.loop import play

# What a click and a sale pay overlaps: no edge tells them apart.
SHOP = OutcomesMAB(
    values=[2.0, 4.0], probs=[[0.20, 0.05], [0.10, 0.12], [0.30, 0.02]], sigma=[1.5, 3.0]
)
AB = ["a", "b"]
KINDS = [mab.OutcomesKLUCB, mab.OutcomesPosterior]


def history_of(env, n, seed):
    """Return n rewards as (arm, reward, category), every arm first once."""
    rng = np.random.default_rng(seed)
    arms = np.concatenate([np.arange(env.n_arms), rng.integers(env.n_arms, size=n)])
    out = []
    for arm in arms.tolist():
        reward, category = env.sample_categories(arm, rng, 1)
        out.append((arm, float(reward[0]), int(category[0])))
    return out


def trained(spec, history, n_arms):
    state = kernel.init(spec, n_arms)
    for arm, reward, category in history:
        kernel.learn(spec, state, arm, reward, category)
    return state


# ------------------------------------------------------------------------------- what is learned


@pytest.mark.parametrize("n", [25, 300])
def test_the_index_is_that_of_the_categories_told(n, seed):
    spec = mab.OutcomesKLUCB(categories=2, sigma=(1.5, 3.0))
    history = history_of(SHOP, n, seed)
    told = {reward: category for _, reward, category in history}
    wanted = naive_indices(
        [(arm, reward) for arm, reward, _ in history],
        3,
        told.__getitem__,
        None,
        [0.0, 1.5, 3.0],
        math.log(len(history) + 1),
        [0.0, math.inf, math.inf],
    )
    got = exact_indices(spec, trained(spec, history, 3))
    np.testing.assert_allclose(got, wanted, rtol=1e-6)


def test_statistics_are_those_of_each_category(seed):
    history = history_of(SHOP, 400, seed)
    state = trained(mab.OutcomesKLUCB(categories=2), history, 3)
    for arm in range(3):
        for j in (1, 2):
            values = [r for a, r, c in history if (a, c) == (arm, j)]
            assert state.own.counts[arm, j] == len(values)
            assert state.own.means[arm, j] == pytest.approx(np.mean(values))
            assert state.own.spreads[arm, j] == pytest.approx(np.var(values) * len(values))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sigma", [None, (1.0, 0.3)])
def test_categories_that_an_edge_tells_apart_are_bins(kind, sigma, seed):
    # far apart, so that no value borrowed reaches the edge
    env = OutcomesMAB(values=[-10.0, 10.0], probs=[[0.2, 0.1], [0.1, 0.2]], sigma=[1.0, 0.3])
    told, seen = kind(categories=2, sigma=sigma), kind(edges=(0.0,), sigma=sigma)
    history = history_of(env, 200, seed)
    states = trained(told, history, 2), trained(seen, history, 2)
    for mine, other in zip(states[0].own, states[1].own, strict=True):
        np.testing.assert_array_equal(mine, other)
    scores = np.zeros((2, 2))
    for spec, state, out in zip((told, seen), states, scores, strict=True):
        kernel.scores(spec, state, np.random.default_rng(3), out)
    np.testing.assert_array_equal(*scores)


def test_draws_are_those_of_the_posterior_of_the_categories(seed):
    # Kolmogorov-Smirnov at level 1e-6 against NumPy's own Dirichlet law; both pay 3 now and then
    spec = mab.OutcomesPosterior(categories=2, sigma=(1.0, 2.0))
    history = [(0, 0.0, 0)] * 12 + [(0, 3.0, 1), (0, 1.0, 1), (0, 3.0, 2), (0, 9.0, 2), (0, 0.0, 2)]
    state, out, got = trained(spec, history, 1), np.zeros(1), []
    rng = np.random.default_rng(seed)
    for _ in range(4000):
        kernel.scores(spec, state, rng, out)
        got.append(out[0])
    shares = rng.dirichlet([13.0, 2.5, 3.5], size=40_000)
    values = rng.normal([0.0, 2.0, 4.0], [0.0, 1 / 2**0.5, 2 / 3**0.5], size=(40_000, 3))
    assert stats.ks_2samp(got, (shares * values).sum(axis=1)).pvalue > 1e-6


# ------------------------------------------------------------------------------------ the bandit


class Reaction(enum.IntEnum):
    CLICK = 1
    SALE = 2


@pytest.mark.parametrize("kind", KINDS)
def test_a_bandit_is_told_categories(kind):
    with interpreted():
        one, many = (zib.Bandit(kind(categories=2), arms=AB, seed=1) for _ in range(2))
        one.update("a", 3.0, category=Reaction.SALE)
        one.update("a", 3.0, Reaction.CLICK)
        one.update("b", 0.0)
        one.update("b", 0.0, category=np.int64(2))  # a sale that paid nothing
        many.update_many(list("aabb"), [3.0, 3.0, 0.0, 0.0], [2, 1, 0, 2])
        assert one.dumps() == many.dumps()
        assert one.state.own.counts.tolist() == [[0.0, 1.0, 1.0], [1.0, 0.0, 1.0]]
        again = zib.Bandit.loads(one.dumps())
        again.update("b", 5.0, category=2)
        one.update("b", 5.0, category=2)
        assert again.dumps() == one.dumps()
        many.update_many(AB, [0.0, 0.0])  # nothing happened
        assert many.state.own.counts[:, 0].tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("learn", "message"),
    [
        (lambda b: b.update("a", 1.0), r"`category` must lie in \[1, 2\] where .*; got None"),
        (lambda b: b.update("a", 1.0, category=0), r"`category` must lie in \[1, 2\] .*; got 0"),
        (lambda b: b.update("a", 1.0, category=3), r"`category` must lie in \[0, 2\]; got 3"),
        (lambda b: b.update("a", 1.0, category=-1), r"`category` must lie in \[0, 2\]; got -1"),
        (lambda b: b.update("a", 1.0, category="sale"), "`category` must be a whole number"),
        (lambda b: b.update_many(AB, [0.0, 1.0]), r"`categories` must .* paid; got None"),
        (lambda b: b.update_many(AB, [0.0, 1.0], [0, 0]), r"`categories` must .* paid; got 0"),
        (lambda b: b.update_many(AB, [0.0, 1.0], [0, 9]), r"`categories` must lie in \[0, 2\]"),
        (lambda b: b.update_many(AB, [0.0, 1.0], [0, 1.5]), "`categories` must be a whole"),
        (lambda b: b.update_many(AB, [0.0, 1.0], [1]), "`categories` must be numbers, one per"),
        (lambda b: b.update_many(AB, [0.0, 1.0], ["x", "y"]), "`categories` must"),
    ],
)
def test_wrong_categories_are_refused_and_nothing_is_learned(learn, message):
    with interpreted():
        bandit = zib.Bandit(mab.OutcomesKLUCB(categories=2), arms=AB, seed=1)
        before = bandit.dumps()
        with pytest.raises(zib.InvalidParameterError, match=message):
            learn(bandit)
        assert bandit.dumps() == before


def test_other_policies_refuse_categories():
    with interpreted():
        bandit = zib.Bandit(mab.UCB1(), n_arms=2, seed=1)
        for learn in (
            lambda: bandit.update(0, 1.0, category=1),
            lambda: bandit.update_many([0, 1], [1.0, 0.0], [1, 0]),
        ):
            with pytest.raises(
                zib.InvalidParameterError, match="must be left out but for policies"
            ):
                learn()
        assert sum(bandit.pulls.values()) == 0


def test_an_inflated_value_needs_no_category():
    with interpreted():
        bandit = zib.Bandit(mab.OutcomesKLUCB(categories=2), n_arms=1, seed=1, inflated=-1.0)
        bandit.update(0, -1.0)
        bandit.update(0, 0.0, category=1)
        with pytest.raises(zib.InvalidParameterError, match="where a reward was paid"):
            bandit.update(0, 0.0)
    assert bandit.state.own.means[0].tolist() == [0.0, 1.0, -math.inf]


# --------------------------------------------------------------------------------- environments


def test_rewards_are_the_same_with_and_without_their_categories(seed):
    for law in (*SHOP.laws, Gaussian(1.0, 2.0), Mixture([Gaussian(0.0, 1.0)], [1.0])):
        one, other = np.random.default_rng(seed), np.random.default_rng(seed)
        rewards, categories = law.sample_categories(one, 500)
        np.testing.assert_array_equal(rewards, law.sample(other, 500))
        assert one.random() == other.random()
        assert categories.min() >= 0
        assert categories.max() <= law.n_categories
    inflated = ZeroInflated(Gaussian(1.0, 2.0), 0.5)
    rewards, categories = inflated.sample_categories(np.random.default_rng(seed), 500)
    np.testing.assert_array_equal(categories, (rewards != 0).astype(int))


def test_categories_come_as_often_and_pay_as_much_as_they_should(seed):
    # a chi-squared and two Kolmogorov-Smirnov tests at level 1e-6
    rewards, categories = SHOP.sample_categories(1, np.random.default_rng(seed), 50_000)
    wanted = 50_000 * np.array([0.78, 0.10, 0.12])
    assert stats.chisquare(np.bincount(categories), wanted).pvalue > 1e-6
    for j, (mean, sd) in enumerate([(2.0, 1.5), (4.0, 3.0)], start=1):
        paid = rewards[categories == j]
        assert stats.kstest(paid, stats.norm(mean, sd).cdf).pvalue > 1e-6
    assert not rewards[categories == 0].any()


@pytest.mark.parametrize("kind", KINDS)
def test_a_simulation_tells_categories(kind, monkeypatch):
    learned = []
    real = kernel.lookup(kind(categories=2)).learn

    def spy(spec, state, arm, reward, category):
        learned.append((arm, reward, int(category)))
        real(spec, state, arm, reward, category)

    monkeypatch.setitem(
        kernel.REGISTRY, kind, kernel.lookup(kind(categories=2))._replace(learn=spy)
    )
    rounds = np.array([400], dtype=np.int64)
    run = play(kind(categories=2), SHOP, rounds, 5, 0, compiled=False)
    assert len(learned) == 400
    assert sum(reward for _, reward, _ in learned) == pytest.approx(run.reward[0])
    assert all((reward == 0) == (category == 0) for _, reward, category in learned)
    assert {category for _, _, category in learned} == {0, 1, 2}
    # the rewards are those every other policy gets
    first = [reward for arm, reward, _ in learned if arm == 0]
    monkeypatch.undo()
    others = play(mab.UCB1(), OutcomesMAB(SHOP.values, SHOP.table[:1], SHOP.sigma),
                  np.arange(1, len(first) + 1, dtype=np.int64), 5, 0, compiled=False)  # fmt: skip
    np.testing.assert_allclose(np.diff(others.reward, prepend=0.0), first, atol=1e-9)


@pytest.mark.parametrize(
    "env",
    [
        OutcomesMAB(values=[1.0, 2.0, 3.0], probs=[[0.1, 0.1, 0.1]]),
        DriftingMAB(n_arms=2),
    ],
)
def test_a_simulation_that_cannot_tell_is_refused(env):
    spec = mab.OutcomesKLUCB(categories=2)
    with pytest.raises(zib.InvalidParameterError, match="`env` must tell the category"):
        zib.simulate({"told": spec}, env, horizon=50, replications=1, seed=1, progress=False)
