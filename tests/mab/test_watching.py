"""Changes that are noticed: against plain lists of weighted rewards, and what it is good for."""

from __future__ import annotations

import math

import numpy as np
import pytest

import zib
from zib import mab
from zib.core import kernel
from zib.core.state import arrays, copied
from zib.core.validate import InvalidParameterError
from zib.env import GaussianMAB, PathMAB
from zib.mab.watching import AGAIN, CAUTION, HALF_LIVES, KEPT, change_ratio, is_on_trial
from zib.sim.loop import play

K = 3
INNER = {
    "zi-adaptive": mab.ZIAdaptive(),
    "zi-posterior": mab.ZIPosterior(),
    "zi-ucb": mab.ZIUCB(horizon=500, sigma=1.0),
    "kl-ucb": mab.KLUCB(scale=3.0),
}


def history(rounds, seed=0):
    """Return arms and rewards; arm 0 pays less often from the middle on, arm 1 more at the end."""
    rng = np.random.default_rng(seed)
    for t in range(rounds):
        arm = int(rng.choice(K, p=[0.5, 0.4, 0.1]))
        prob = 0.1 if arm == 0 and t > rounds // 3 else 0.5
        mean = 2.5 if arm == 1 and t > 2 * rounds // 3 else 1.2
        yield arm, float(abs(rng.normal(mean, 0.4))) if rng.random() < prob else 0.0


class Naive:
    """Every reward of every arm, with its weight among all rewards and in each memory."""

    def __init__(self):
        self.rewards = [[] for _ in range(K)]
        self.weights = [np.empty((0, 1 + len(HALF_LIVES))) for _ in range(K)]
        self.rounds, self.since, self.changes = 0, 0, 0

    def add(self, arm, reward):
        self.rounds += 1
        self.since += 1
        if self.changes and self.since * 50 >= self.rounds / self.changes:
            for weights in self.weights:
                weights *= 0.5 ** (self.since * self.changes / self.rounds)
            self.since = 0
        self.weights[arm][:, 1:] *= 0.5 ** (1 / np.array(HALF_LIVES))
        self.weights[arm] = np.vstack([self.weights[arm], np.ones(1 + len(HALF_LIVES))])
        self.rewards[arm].append(reward)
        for m in range(len(HALF_LIVES)):
            needed = math.log(self.rounds / (1 + self.changes))
            needed += AGAIN if self.changes else CAUTION
            if self.ratio(arm, m) > needed:
                self.changes += 1
                weights = self.weights[arm]
                weights[:, 0] = weights[:, 1 + m]
                weights[:, 1 + m :] = weights[:, [1 + m]]
                for k, other in enumerate(self.weights):
                    if k != arm and other[:, 0].sum() > KEPT:
                        other *= KEPT / other[:, 0].sum()
                break

    def part(self, arm, weights):
        """Return pulls, non-zero rewards, their sum and their centred sum of squares."""
        rewards = np.array(self.rewards[arm])
        paid = weights * (rewards != 0)
        total = (paid * rewards).sum()
        mean = total / paid.sum() if paid.sum() else 0.0
        return weights.sum(), paid.sum(), total, (paid * (rewards - mean) ** 2).sum()

    def ratio(self, arm, m):
        weights = self.weights[arm]
        n, b, s, q = self.part(arm, weights[:, 1 + m])
        older, older_paid, older_total, _ = self.part(arm, weights[:, 0] - weights[:, 1 + m])
        _, count, _, spread = self.part(arm, weights[:, 0])
        if older < n:
            return 0.0
        w = 2.0 if b / n < older_paid / older else 1.0
        p = (w * b + older_paid) / (w * n + older)
        out = w * _log_ratio(n, b, p) + _log_ratio(older, older_paid, p)
        if b >= 3 and older_paid >= 3:
            largest = max(spread / count, q / b)
            variance = largest / (2 * b) + spread / count / older_paid
            out += (s / b - older_total / older_paid) ** 2 / (2 * variance)
        return out


def _log_ratio(n, b, p):
    """Return the log-likelihood at b/n less that at p."""
    out = 0.0
    if b > 0:
        out += b * math.log(b / n / p)
    if n - b > 1e-12:
        out += (n - b) * math.log((n - b) / n / (1 - p))
    return out


@pytest.mark.parametrize("name", INNER)
def test_statistics_and_changes_are_those_of_plain_lists(name):
    inner = INNER[name]
    spec, naive = mab.Watching(inner), Naive()
    state = kernel.init(spec, K)
    out, wanted = np.zeros(K), np.zeros(K)
    for t, (arm, reward) in enumerate(history(900)):
        reward = min(reward, spec.high)
        kernel.update(spec, state, arm, reward)
        naive.add(arm, reward)
        assert state.around.changes[0] == naive.changes
        if t % 50 and t < 890:
            continue
        plain = kernel.init(inner, K)
        for k in range(K):
            for i, value in enumerate(naive.part(k, naive.weights[k][:, 0])):
                plain[i][k] = value
            for reward_then, weights in zip(naive.rewards[k], naive.weights[k], strict=True):
                kernel.weigh(inner, plain, k, reward_then, weights[0])
            for m in range(len(HALF_LIVES)):
                found = [array[k, m] for array in state.around[:4]]
                held = naive.part(k, naive.weights[k][:, 1 + m])
                np.testing.assert_allclose(found, held, rtol=1e-9, atol=1e-9)
                if state.pulls[k] > 0:
                    assert change_ratio(state, k, m) == pytest.approx(naive.ratio(k, m), abs=1e-7)
        np.testing.assert_allclose(np.stack(state[:4]), np.stack(plain[:4]), rtol=1e-9, atol=1e-9)
        for (field, declared, a), (_, _, b) in zip(arrays(state.own), arrays(plain.own)):
            if declared.is_sum:
                np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9, err_msg=field)
        plain.clock[0] = state.clock[0]
        kernel.refresh_all(inner, plain)
        fresh = copied(state)
        kernel.refresh_all(spec, fresh)
        kernel.indices(inner, plain, np.random.default_rng(t), wanted)
        kernel.indices(spec, fresh, np.random.default_rng(t), out)
        np.testing.assert_allclose(out, wanted, rtol=1e-6)
    assert naive.changes >= 2


@pytest.mark.parametrize("name", ["zi-adaptive", "zi-ucb"])
def test_until_the_first_change_nothing_is_different(name):
    env = GaussianMAB(means=[1.0, 2.0, 1.5], probs=[0.3, 0.25, 0.3], sigma=0.5)
    rounds = np.arange(1, 301)
    alone = play(INNER[name], env, rounds, 3, 0, compiled=False)
    inside = play(mab.Watching(INNER[name]), env, rounds, 3, 0, compiled=False)
    assert all(np.array_equal(a, b) for a, b in zip(alone, inside, strict=True))


# ------------------------------------------------------------------------------- trying arms again

RECHECK = 40


def trials(spec, state, history):
    """Learn the rewards; after each yield how often each arm was played in its trial, −1: in none.

    A trial is told by the list of its rewards; means and noticed changes are those of the policy.
    """
    last, trial = [0] * K, [[] for _ in range(K)]
    for t, (arm, reward) in enumerate(history, 1):
        on_trial = bool(trial[arm]) or (t - 1 - last[arm] >= RECHECK and state.pulls[arm] > 0)
        before = state.around.changes[0]
        kernel.update(spec, state, arm, reward)
        last[arm] = t
        if on_trial:
            trial[arm].append(reward)
            best = max(
                state.total[k] / state.pulls[k] for k in range(K) if k != arm and state.pulls[k]
            )
            if np.mean(trial[arm]) < best:
                trial[arm] = []
        if state.around.changes[0] > before:
            trial[arm] = []
        waiting = [state.pulls[k] > 0 and t - last[k] >= RECHECK for k in range(K)]
        yield [len(trial[k]) if trial[k] or waiting[k] else -1 for k in range(K)]


@pytest.mark.usefixtures("interpreting")
def test_trials_are_those_of_plain_lists():
    spec = mab.Watching(mab.UCB1(scale=3.0), recheck=RECHECK)
    state = kernel.init(spec, K)
    rng, out = np.random.default_rng(0), np.zeros(K)
    longest, counted = 0, 0
    neglected = [*history(200), *((0, r) for _, r in history(100, seed=1)), *history(900, seed=2)]
    for t, wanted in enumerate(trials(spec, state, neglected)):
        found = [is_on_trial(spec, state, k) for k in range(K)]
        assert found == [n >= 0 for n in wanted]
        assert all(state.around.tried[k] == max(n, 0) for k, n in enumerate(wanted))
        longest = max(longest, *wanted)
        chances = [0.0 if n < 0 else 10.0 * (n + 1) / RECHECK for n in wanted]
        if t % 5 == 0 and 0.0 < sum(chances) <= 1.0:
            counted += 1
            chosen = np.zeros(K)
            for _ in range(300):
                kernel.scores(spec, state, rng, out)
                chosen[out.argmax()] += np.isinf(out.max())
            # five standard errors: wrong by chance once in a million comparisons
            error = np.sqrt(np.multiply(chances, np.subtract(1.0, chances)) * 300)
            assert (abs(chosen - 300 * np.array(chances)) <= 5 * error + 1e-9).all()
    assert longest >= 3
    assert counted >= 10


def test_without_recheck_no_arm_is_on_trial():
    spec = mab.Watching(mab.UCB1())
    state = kernel.init(spec, K)
    kernel.update(spec, state, 0, 1.0)
    for _ in range(500):
        kernel.update(spec, state, 1, 1.0)
        assert not any(is_on_trial(spec, state, k) for k in range(K))


@pytest.mark.usefixtures("interpreting")
def test_a_batch_does_not_go_to_the_arm_that_is_due():
    bandit = zib.Bandit(mab.Watching(mab.UCB1(), recheck=1000), n_arms=2, seed=0, draws=4000)
    bandit.update_many([1] * 60 + [0] * 1500, [0.0] * 60 + [1.0] * 1500)
    # binomial (500, .01): more than 25 has a probability below 1e-10
    assert 0 <= bandit.select_many(500).count(1) <= 25
    shares = bandit.propensities()
    # five standard errors of 4000 draws
    assert abs(shares[1] - 0.01) < 5 * math.sqrt(0.01 * 0.99 / 4000)


@pytest.mark.slow
def test_a_neglected_arm_is_found_with_recheck():
    # Over 20 replications, the regret after the change is a tenth of that without; the limit of a
    # half is more than five standard errors away.
    env = PathMAB(
        probs=[[0.5, 0.2, 0.1], [0.5, 0.2, 0.9]], means=[1.0] * 3, sigma=0.3, starts=[0, 5000]
    )
    regret = {
        recheck: np.mean(
            [
                play(mab.Watching(recheck=recheck), env, np.array([20_000]), 1, j).regret[0]
                for j in range(20)
            ]
        )
        for recheck in (None, 200)
    }
    assert regret[200] < 0.5 * regret[None]


# ---------------------------------------------------------------------------------------- noticing


def noticed(rewards, arms=None):
    """Return how many changes are noticed in the rewards of one arm."""
    spec = mab.Watching(mab.UCB1())
    state = kernel.init(spec, 2)
    for reward in rewards:
        kernel.update(spec, state, 0, reward)
    return int(state.around.changes[0])


def test_a_huge_reward_is_no_change():
    rng = np.random.default_rng(1)
    rewards = np.where(rng.random(2000) < 0.4, rng.normal(2.0, 0.5, 2000), 0.0)
    rewards[1200] = 1e6
    assert noticed(rewards) == 0
    assert noticed([*rewards[:1000], *(rewards[:300] * 1.7)]) >= 1


@pytest.mark.parametrize("value", [0.0, 1.0, -2.0])
def test_equal_rewards_are_no_change(value):
    assert noticed([value] * 500) == 0
    assert noticed([value] * 300 + [value + 1.0] * 100) >= 1


CHANGE = PathMAB(
    probs=[[0.5, 0.2], [0.2, 0.5]], means=[1.0, 1.0], sigma=0.5, starts=[0, 4000]
)  # either way the worse arm loses 0.3


@pytest.mark.slow
def test_a_change_is_found():
    # Over 20 replications the worse arm is played in 2 % of the rounds, by the policy alone in
    # 95 %; the limits are more than ten standard errors away.
    rounds = np.array([4500, 6000])
    shares = {}
    for spec in (mab.Watching(), mab.ZIAdaptive()):
        runs = [play(spec, CHANGE, rounds, 1, j) for j in range(20)]
        shares[spec] = np.mean([run.regret[1] - run.regret[0] for run in runs]) / (0.3 * 1500)
    assert shares[mab.Watching()] < 0.1
    assert shares[mab.ZIAdaptive()] > 0.6


@pytest.mark.slow
def test_changes_are_hardly_ever_noticed_where_there_are_none():
    # By chance in about 2 % of runs. More than 12 of 60 have a probability below 1e-8.
    env = GaussianMAB(means=[1.0, 2.0, 1.5, 1.0], probs=[0.3, 0.25, 0.1, 0.2], sigma=0.5)
    rounds = np.array([20_000])
    differ = 0
    for j in range(60):
        alone = play(mab.ZIAdaptive(), env, rounds, 9, j)
        differ += not np.array_equal(alone.pulls, play(mab.Watching(), env, rounds, 9, j).pulls)
    assert differ <= 12


# ------------------------------------------------------------------------------------- as a bandit


@pytest.mark.usefixtures("interpreting")
def test_bandit_features(tmp_path):
    bandit = zib.Bandit(arms=["a", "b", "c"], drift="auto", seed=0)
    assert bandit.spec == mab.Watching(mab.ZIAdaptive())
    for arm, reward in history(700):
        bandit.update("abc"[arm], reward)
    assert bandit.state.around.changes[0] >= 1
    for refused in (lambda: bandit.merge(bandit), lambda: bandit.revise("a", 0.0, 1.0)):
        with pytest.raises(InvalidParameterError, match="sums over rewards"):
            refused()
    with pytest.raises(InvalidParameterError, match="Watching forgets some"):
        bandit.means(anytime=True)
    bandit.remove_arm("b")
    bandit.add_arm("d")
    assert bandit.select() == "d"
    bandit.save(tmp_path / "bandit.json")
    twin = zib.Bandit.load(tmp_path / "bandit.json")
    for arm, reward in history(60, seed=3):
        assert bandit.select() == twin.select()
        for b in (bandit, twin):
            b.update("acd"[arm], reward)
    assert bandit.dumps() == twin.dumps()


def test_drift_is_auto_or_none():
    assert zib.Bandit(n_arms=2, drift=None).spec == mab.ZIAdaptive()
    assert zib.Bandit(mab.UCB1(), n_arms=2, drift="auto").spec == mab.Watching(mab.UCB1())
    for wrong in ("x", True, 3, ["auto"]):
        with pytest.raises(InvalidParameterError, match='`drift` must be None or "auto"; got'):
            zib.Bandit(n_arms=2, drift=wrong)
    with pytest.raises(InvalidParameterError, match="`spec` must be a policy whose"):
        zib.Bandit(mab.Windowed(length=5), n_arms=2, drift="auto")
    with pytest.raises(InvalidParameterError, match="`spec` must be a policy whose"):
        mab.Watching(mab.Watching())


def test_label():
    assert mab.Watching().label == "ZI adaptive, watching"
    assert mab.Watching(recheck=500).label == "ZI adaptive, watching, trying again after 500"


@pytest.mark.parametrize("wrong", [0, 0.5, -3, math.inf, math.nan, "often", True])
def test_recheck_is_a_number_of_rounds(wrong):
    with pytest.raises(InvalidParameterError, match="`recheck` must .*; got"):
        mab.Watching(recheck=wrong)
