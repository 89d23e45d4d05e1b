"""Forgetting: statistics against plain lists of rewards, and what it is good for."""

from __future__ import annotations

import numpy as np
import pytest

import zib
from zib import mab
from zib.core import kernel
from zib.core.state import Floats, Part, arrays, copied, per_arm, scalar
from zib.core.validate import InvalidParameterError
from zib.env import GaussianMAB, PathMAB
from zib.mab.wrappers import FORGOTTEN
from zib.sim.loop import play
from zib.testing import check_policy

K = 4
INNER = {
    "zi-ucb": mab.ZIUCB(horizon=500, sigma=1.0),
    "zi-ts": mab.ZITS(horizon=500, sigma=1.0),
    "zi-kl": mab.ZIKLUCB(sigma=1.0),
    "zi-kl unknown": mab.ZIKLUCB(),
    "zi-imed": mab.ZIIMED(sigma=1.0),
    "zi-imed exponential": mab.ZIIMED(family="exponential"),
    "zi-posterior": mab.ZIPosterior(),
    "ucb estimated": mab.UCB(horizon=500, sigma=1.0, size="estimated"),
    "ucb variance": mab.UCB(horizon=500, sigma=1.0, size="variance"),
    "mots": mab.MOTS(horizon=500, sigma=1.0),
    "ucb1": mab.UCB1(scale=2.0),
    "ucb-v": mab.UCBV(),
    "kl-ucb": mab.KLUCB(scale=3.0, c=1.0),
    "beta ts": mab.BetaTS(scale=3.0),
    "normal ts": mab.NormalTS(sigma=1.0),
    "eps-greedy": mab.EpsilonGreedy(epsilon=0.1),
}


def history(rounds, seed=0, share=0.3, arms=K):
    """Return arms and rewards; one arm is played less and less."""
    rng = np.random.default_rng(seed)
    weights = np.array([1.0, 1.0, 0.5, 0.02])[:arms]
    chosen = rng.choice(arms, size=rounds, p=weights / weights.sum())
    rewards = np.where(rng.random(rounds) < share, rng.normal(1.5, 1.0, rounds), 0.0)
    return [(int(a), float(r)) for a, r in zip(chosen, rewards)]


def weighted(values, weights):
    """Return count, sum and centred sum of squares with weights."""
    count = sum(weights)
    if count == 0:
        return 0.0, 0.0, 0.0
    total = sum(w * x for w, x in zip(weights, values))
    mean = total / count
    return count, total, sum(w * (x - mean) ** 2 for w, x in zip(weights, values))


class DiscountingOracle:
    """All rewards are kept; statistics are computed from the whole history."""

    def __init__(self, half_life, every):
        self.half_life, self.every, self.seen = half_life, every, 0
        self.pulls = [[] for _ in range(K)]  # at which step of forgetting
        self.paid = [[] for _ in range(K)]
        self.all = []

    def weight(self, at):
        return 2.0 ** (-self.every * (self.seen // self.every - at) / self.half_life)

    def add(self, arm, reward):
        self.seen += 1
        if self.seen % self.every == 0:
            for k in range(K):
                if sum(map(self.weight, self.pulls[k])) < FORGOTTEN:
                    self.pulls[k] = []
                if sum(self.weight(at) for at, _ in self.paid[k]) < FORGOTTEN:
                    self.paid[k] = []
        at = self.seen // self.every
        self.all.append(at)
        self.pulls[arm].append(at)
        if reward != 0.0:
            self.paid[arm].append((at, reward))

    def statistics(self, arm):
        paid = self.paid[arm]
        return (
            sum(map(self.weight, self.pulls[arm])),
            *weighted([x for _, x in paid], [self.weight(at) for at, _ in paid]),
        )

    def remembered(self, arm):
        return [(self.weight(at), reward) for at, reward in self.paid[arm]]

    def clock(self):
        return sum(map(self.weight, self.all))


class WindowOracle:
    """The last rewards, and nothing else."""

    def __init__(self, length):
        self.length, self.all = length, []

    def add(self, arm, reward):
        self.all.append((arm, reward))

    def statistics(self, arm):
        mine = [r for a, r in self.all[-self.length :] if a == arm]
        paid = [r for r in mine if r != 0.0]
        return (len(mine), *weighted(paid, [1.0] * len(paid)))

    def remembered(self, arm):
        return [(1.0, r) for a, r in self.all[-self.length :] if a == arm]

    def clock(self):
        return min(len(self.all), self.length)


WRAPPERS = {
    "discounted": (lambda s: mab.Discounted(s, 30), lambda: DiscountingOracle(30, 1)),
    "forgets arms": (lambda s: mab.Discounted(s, 4), lambda: DiscountingOracle(4, 1)),
    "in steps": (lambda s: mab.Discounted(s, 20.5, every=7), lambda: DiscountingOracle(20.5, 7)),
    "window": (lambda s: mab.Windowed(s, 37), lambda: WindowOracle(37)),
    "short window": (lambda s: mab.Windowed(s, 5), lambda: WindowOracle(5)),
    "window of one": (lambda s: mab.Windowed(s, 1), lambda: WindowOracle(1)),
}


def allowed(spec, reward):
    low, high = spec.reward_range
    return min(max(reward, low), high)


@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("name", ["zi-posterior", "zi-imed", "kl-ucb"])
def test_statistics_are_those_of_the_rewards_that_count(wrapper, name):
    make, oracle = WRAPPERS[wrapper]
    spec, wanted = make(INNER[name]), oracle()
    state = kernel.init(spec, K)
    forgot = False
    for t, (arm, reward) in enumerate(history(220)):
        kernel.update(spec, state, arm, reward)
        wanted.add(arm, allowed(spec, reward))
        if t % 5 == 0 or t > 200:
            found = np.stack(state[:4])
            expected = np.array([wanted.statistics(k) for k in range(K)]).T
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
            assert state.clock[0] == pytest.approx(wanted.clock(), rel=1e-9)
            forgot = forgot or (t > 100 and bool((state.pulls == 0).any()))
    assert forgot or wrapper not in ("forgets arms", "short window", "window of one")


@pytest.mark.parametrize("wrapper", ["discounted", "in steps", "window", "short window"])
@pytest.mark.parametrize("name", INNER)
def test_scores_are_those_of_the_policy_inside_given_the_statistics(wrapper, name):
    inner = INNER[name]
    spec = WRAPPERS[wrapper][0](inner)
    state = kernel.init(spec, K)
    out, wanted, scores = np.zeros(K), np.zeros(K), np.zeros(K)
    for t, (arm, reward) in enumerate(history(150, seed=1)):
        kernel.update(spec, state, arm, allowed(spec, reward))
        if t % 3:
            continue
        fresh = kernel.init(inner, K)
        for i in range(4):
            fresh[i][:] = state[i]
        fresh.clock[0] = state.clock[0]
        for k in range(K):
            kernel.refresh(inner, fresh, k)
        kernel.indices(inner, fresh, np.random.default_rng(t), wanted)
        kernel.indices(spec, state, np.random.default_rng(t), out)
        np.testing.assert_allclose(out, wanted, rtol=1e-7, atol=1e-9)
        kernel.scores(spec, state, np.random.default_rng(t), scores)
        assert out[np.argmax(scores)] == out.max()


def test_a_huge_reward_leaves_the_window_without_a_trace():
    spec = mab.Windowed(mab.UCBV(), 10)
    state = kernel.init(spec, 2)
    small = [0.3, 0.1, 0.2, 0.5, 0.4, 0.7, 0.9, 0.6, 0.8, 0.15]
    for reward in (*small, 1e90, *small):
        kernel.update(spec, state, 0, reward)
    assert state.total[0] == pytest.approx(sum(small), rel=1e-14)
    assert state.spread[0] == pytest.approx(np.var(small) * 10, rel=1e-13)


def test_errors_do_not_add_up_in_a_window():
    spec = mab.Windowed(mab.ZITS(horizon=500, sigma=1.0), 50)
    bandit = zib.Bandit(spec, n_arms=K, seed=0)
    rng = np.random.default_rng(5)
    arms, rewards = rng.integers(K, size=200_000), 1e6 + rng.normal(size=200_000)
    bandit.update_many(arms.tolist(), rewards)
    last = [rewards[-50:][arms[-50:] == k] for k in range(K)]
    np.testing.assert_allclose(bandit.state.spread, [x.var() * x.size for x in last], rtol=1e-8)


@pytest.mark.parametrize("name", ["zi-ts", "zi-kl", "zi-imed", "zi-posterior", "kl-ucb", "ucb-v"])
def test_a_window_beyond_the_horizon_changes_nothing(name):
    env = GaussianMAB(means=[1.0, 2.0, 1.5], probs=[0.3, 0.25, 0.3], sigma=0.5)
    rounds = np.arange(1, 301)
    alone = play(INNER[name], env, rounds, 3, 0, compiled=False)
    for length in (300, 1000):
        inside = play(mab.Windowed(INNER[name], length), env, rounds, 3, 0, compiled=False)
        assert all(np.array_equal(a, b) for a, b in zip(alone, inside, strict=True))


@pytest.mark.parametrize("name", ["zi-ucb", "zi-imed", "ucb1"])
def test_hardly_discounting_hardly_changes_anything(name):
    env = GaussianMAB(means=[1.0, 2.0, 1.5], probs=[0.3, 0.25, 0.3], sigma=0.5)
    rounds = np.array([500])
    alone = play(INNER[name], env, rounds, 3, 0, compiled=False)
    slow = play(mab.Discounted(INNER[name], 1e9), env, rounds, 3, 0, compiled=False)
    assert np.abs(alone.pulls - slow.pulls).max() <= 10


CHANGE = PathMAB(
    probs=[[0.5, 0.2], [0.2, 0.5]], means=[1.0, 1.0], sigma=0.5, starts=[0, 4000]
)  # either way the worse arm loses 0.3


def worst_share(spec, first, last, replications=20):
    """Return how often, on average, the worse arm is played between two rounds."""
    runs = [play(spec, CHANGE, np.array([first, last]), 1, j) for j in range(replications)]
    return float(np.mean([run.regret[1] - run.regret[0] for run in runs])) / (0.3 * (last - first))


@pytest.mark.slow
@pytest.mark.parametrize("wrap", [lambda s: mab.Discounted(s, 300), lambda s: mab.Windowed(s, 400)])
def test_a_change_is_found_within_about_one_memory(wrap):
    # Over 20 replications the share is 0.04 with a standard error of 0.004 for a policy that
    # forgets, and 0.95 with 0.03 for one that does not: margins of more than ten standard errors,
    # so a correct policy fails with a probability far below 1e-6.
    inner = mab.ZIPosterior(sigma=0.5)
    spec = wrap(inner)
    assert worst_share(spec, 2000, 4000) < 0.1
    assert worst_share(spec, 4500, 5500) < 0.1
    assert worst_share(inner, 4500, 5500) > 0.6


# --------------------------------------------------------------------- policies with further sums


def sums(state):
    """Return the further sums that the policy inside keeps."""
    return {name: array for name, a, array in arrays(state) if a.is_sum}


@pytest.mark.parametrize("share", [0.3, 0.9])
@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_further_sums_are_those_of_the_rewards_that_count(wrapper, share):
    make, oracle = WRAPPERS[wrapper]
    inner = mab.ZIAdaptive()
    spec, wanted = make(inner), oracle()
    state = kernel.init(spec, K)
    assert sums(state)
    out, naive_out = np.zeros(K), np.zeros(K)
    for t, (arm, reward) in enumerate(history(220, seed=2, share=share)):
        reward = abs(reward) if t > 60 else reward  # the negative ones are forgotten
        kernel.update(spec, state, arm, reward)
        wanted.add(arm, reward)
        if t % 20 and t < 210:
            continue
        naive = kernel.init(inner, K)
        for k in range(K):
            for i, value in enumerate(wanted.statistics(k)):
                naive[i][k] = value
            for weight, value in wanted.remembered(k):
                kernel.weigh(inner, naive, k, value, weight)
        naive.clock[0] = state.clock[0]
        for name, array in sums(naive).items():
            # a count that has faded below 0.01 is 0
            np.testing.assert_allclose(sums(state)[name], array, rtol=1e-9, atol=FORGOTTEN)
            exact = sums(state)[name] != 0.0
            np.testing.assert_allclose(sums(state)[name][exact], array[exact], rtol=1e-9)
        # nothing else is needed for a decision: what is derived follows from the sums
        for name, array in sums(naive).items():
            array[:] = sums(state)[name]
        kernel.refresh_all(inner, naive)
        fresh = copied(state)
        kernel.refresh_all(spec, fresh)
        kernel.scores(inner, naive, np.random.default_rng(t), naive_out)
        kernel.scores(spec, fresh, np.random.default_rng(t), out)
        np.testing.assert_allclose(out, naive_out, rtol=1e-6)


@pytest.mark.parametrize(
    "wrap", [lambda: mab.Discounted(half_life=80), lambda: mab.Windowed(length=80)]
)
def test_the_default_is_played_inside_and_learns_often_enough(wrap):
    spec = wrap()
    assert spec.spec == mab.ZIAdaptive()
    state = kernel.init(spec, K)
    out, wanted = np.zeros(K), np.zeros(K)
    for arm, reward in history(400, seed=4):
        kernel.update(spec, state, arm, reward)
    # what was learned from all arms is at most a fiftieth of the memory old
    fresh = copied(state)
    kernel.refresh_all(spec, fresh)
    kernel.scores(spec, state, np.random.default_rng(1), out)
    kernel.scores(spec, fresh, np.random.default_rng(1), wanted)
    np.testing.assert_allclose(out, wanted, rtol=0.2)


def test_a_window_of_the_default_beyond_the_horizon_changes_nothing():
    env = GaussianMAB(means=[1.0, 2.0, 1.5], probs=[0.3, 0.25, 0.3], sigma=0.5)
    rounds = np.arange(1, 301)
    alone = play(mab.ZIAdaptive(), env, rounds, 3, 0, compiled=False)
    inside = play(mab.Windowed(length=300), env, rounds, 3, 0, compiled=False)
    assert all(np.array_equal(a, b) for a, b in zip(alone, inside, strict=True))


# ------------------------------------------------------------------------------------- as a bandit


@pytest.mark.parametrize("wrapper", ["discounted", pytest.param("window", marks=pytest.mark.slow)])
def test_bandit_features(wrapper, tmp_path):
    spec = WRAPPERS[wrapper][0](mab.ZIUCB(horizon=500, sigma=1.0))
    bandit = zib.Bandit(spec, arms=["a", "b", "c"], seed=0)
    for arm, reward in history(90, arms=3):
        bandit.update("abc"[arm], reward)
    for refused in (lambda: bandit.merge(bandit), lambda: bandit.revise("a", 0.0, 1.0)):
        with pytest.raises(InvalidParameterError, match="sums over rewards"):
            refused()
    shares = bandit.propensities()
    assert shares.exact
    assert max(shares, key=shares.get) == max(bandit.indices(), key=bandit.indices().get)
    assert set(bandit.means()) == {"a", "b", "c"}
    bandit.save(tmp_path / "bandit.json")
    twin = zib.Bandit.load(tmp_path / "bandit.json")
    for arm, reward in history(60, seed=3, arms=3):
        assert bandit.select() == twin.select()
        for b in (bandit, twin):
            b.update("abc"[arm], reward)
    assert bandit.dumps() == twin.dumps()


@pytest.mark.usefixtures("interpreting")
def test_randomized_policies_inside_are_sampled():
    bandit = zib.Bandit(mab.Windowed(mab.NormalTS(), 30), n_arms=2, seed=0)
    bandit.update_many([0, 1, 0, 1], [1.0, 0.5, 0.0, 0.0])
    assert not bandit.propensities(200).exact


@pytest.mark.parametrize("length", [8, 25])
@pytest.mark.usefixtures("interpreting")
def test_arms_come_and_go_in_a_window(length):
    bandit = zib.Bandit(mab.Windowed(mab.UCBV(), length), arms=list("abcd"), seed=0)
    rng = np.random.default_rng(length)
    seen = []
    for t in range(200):
        if t in (30, 77):
            bandit.remove_arm("b")
            seen = [(arm, r) if arm != "b" else (None, r) for arm, r in seen]
        if t in (50, 90, 120):
            bandit.add_arm("b" if t == 50 else f"new {t}")
        if t == 60:
            bandit.remove_arm("a")
            seen = [(arm, r) if arm != "a" else (None, r) for arm, r in seen]
        arm = bandit.arms[int(rng.integers(bandit.n_arms))]
        reward = float(rng.normal() * (rng.random() < 0.5))
        bandit.update(arm, reward)
        seen.append((arm, reward))
        state = bandit.state
        for k, label in enumerate(bandit.arms):
            mine = [r for a, r in seen[-length:] if a == label]
            paid = np.array([r for r in mine if r != 0.0])
            assert state.pulls[k] == len(mine)
            assert state.nonzero[k] == paid.size
            assert state.total[k] == pytest.approx(paid.sum(), abs=1e-12)
            assert state.spread[k] == pytest.approx(paid.var() * paid.size if paid.size else 0.0)


def test_clock_of_the_level_is_what_is_remembered():
    for spec, memory in (
        (mab.Discounted(mab.UCB1(), 50), 1.0 / (1.0 - 2.0 ** (-1 / 50))),
        (mab.Windowed(mab.UCB1(), 80), 80.0),
    ):
        state = kernel.init(spec, 2)
        for arm, reward in history(2000, arms=2):
            kernel.update(spec, state, arm, reward)
        assert state.clock[0] == pytest.approx(memory, rel=1e-9)


def test_a_policy_from_elsewhere_can_forget():
    class Foreign(mab.UCB1):
        __slots__ = ()

    found = kernel.lookup(mab.UCB1())
    zib.register(
        Foreign,
        init=found.init,
        scores=found.scores,
        update=found.update,
        additive=True,
    )
    try:
        spec = mab.Windowed(Foreign(), 3)
        state = kernel.init(spec, 2)
        for arm, reward in ((0, 5.0), (0, 0.0), (1, 2.0), (0, -1.0)):
            kernel.update(spec, state, arm, reward)
        assert state.pulls.tolist() == [2.0, 1.0]
        assert state.total.tolist() == [-1.0, 2.0]
    finally:
        del kernel.REGISTRY[Foreign]


class OfArms(Part):
    mine: Floats = per_arm(is_sum=True)


class OfAll(Part):
    mine: Floats = scalar(is_sum=True)


@pytest.mark.parametrize("own", [OfArms, OfAll])
def test_sums_that_cannot_be_forgotten_are_refused(own):
    class Foreign(mab.UCB1):
        __slots__ = ()

    found = kernel.lookup(mab.UCB1())
    # of the one it is not known how a reward enters, the other is not per arm
    weigh = None if own is OfArms else (lambda spec, state, arm, reward, weight: None)
    zib.register(
        Foreign, scores=found.scores, update=found.update, own=own, additive=True, weigh=weigh
    )
    try:
        for wrap in (lambda s: mab.Discounted(s, 5), lambda s: mab.Windowed(s, 5), mab.Watching):
            with pytest.raises(InvalidParameterError, match="`spec` must be a policy whose"):
                wrap(Foreign())
    finally:
        del kernel.REGISTRY[Foreign]


# --------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: mab.Discounted(mab.UCB1(), 0.5), "`half_life` must lie in"),
        (lambda: mab.Discounted(mab.UCB1(), float("nan")), "`half_life` must be a finite number"),
        (lambda: mab.Discounted(mab.UCB1(), 10, every=11), r"`every` must lie in \[1, 10\]"),
        (lambda: mab.Discounted(mab.UCB1(), 10, every=0), r"`every` must lie in \[1, 10\]"),
        (lambda: mab.Discounted(mab.UCB1()), "`half_life` must be a .*; got None"),
        (lambda: mab.Windowed(), "`length` must be a whole number .*; got None"),
        (lambda: mab.Windowed(mab.UCB1(), 0), "`length` must lie in"),
        (lambda: mab.Windowed(mab.UCB1(), 10.0), "`length` must be a whole number"),
        (lambda: mab.Windowed(mab.ZIHeavyUCB(epsilon=0.5, moment=2.0), 10), "`spec` must be a pol"),
        (lambda: mab.Discounted(mab.ZIStableTS(sigma=1.0), 10), "`spec` must be a policy whose"),
        (lambda: mab.Discounted(mab.ZIPosterior(family="lognormal"), 10), "`spec` must be a pol"),
        (lambda: mab.Discounted(mab.Windowed(mab.UCB1(), 5), 10), "`spec` must be a policy whose"),
        (lambda: mab.Windowed(mab.Anytime(mab.ZITS(horizon=9, sigma=1.0)), 5), "`spec` must be a"),
    ],
)
def test_bad_input(build, words):
    with pytest.raises(InvalidParameterError, match=words):
        build()


def test_not_a_policy():
    with pytest.raises(TypeError, match="not a registered policy"):
        mab.Windowed(3, 10)


def test_labels_and_parameters():
    spec = mab.Discounted(mab.UCB1(scale=2.0), 50, every=2)
    assert spec.label == "UCB1, half-life 50"
    assert spec._replace(half_life=60).half_life == 60.0
    assert mab.Windowed(mab.UCB1(), 7).label == "UCB1, last 7"
    assert mab.Windowed(mab.KLUCB(scale=2.0), 7).reward_range == (0.0, 2.0)


@pytest.mark.slow
def test_public_suite_accepts_a_policy_that_needs_true_sizes():
    check_policy(mab.Windowed(mab.UCB(horizon=100, sigma=1.0, size="true"), length=30), rounds=100)
