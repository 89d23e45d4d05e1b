"""Policies for several outcomes: indices and draws against slow oracles."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats
from tests.theory.test_outcomes import slow_upper

import zib
from zib import mab
from zib.core import kernel
from zib.env import OutcomesMAB

# the conformance suite compares compiled code with this
pytestmark = pytest.mark.usefixtures("interpreting")

SHOP = OutcomesMAB(
    values=[1.0, 20.0, -15.0],
    probs=[[0.10, 0.02, 0.005], [0.05, 0.03, 0.01], [0.15, 0.01, 0.0]],
    sigma=[0.2, 4.0, 3.0],
)


def trained(spec, history, n_arms):
    state = kernel.init(spec, n_arms)
    for arm, reward in history:
        kernel.update(spec, state, arm, reward)
    return state


def exact_indices(spec, state):
    out = np.zeros(state.pulls.size)
    kernel.indices(spec, state, np.random.default_rng(0), out)
    return out


def draws_of(env, n, seed):
    rng = np.random.default_rng(seed)
    arms = np.concatenate([np.arange(env.n_arms), rng.integers(env.n_arms, size=n)])
    return [(int(a), float(env.sample(int(a), rng, 1)[0])) for a in arms]


# ------------------------------------------------------------------- two outcomes: zero inflation


@pytest.mark.parametrize("policy", [mab.OutcomesKLUCB, mab.OutcomesPosterior])
def test_two_outcomes_are_left_to_the_policies_for_zero_inflation(policy) -> None:
    with pytest.raises(zib.InvalidParameterError, match="use ZIKLUCB or ZIPosterior; got"):
        policy(edges=())


# ------------------------------------------------------------------------------ indices by SciPy


def naive_indices(history, n_arms, outcomes_of, known, sigma, level, caps):
    """The index of every arm from the full history; `outcomes_of` maps a reward to an outcome."""
    m = len(caps)
    rewards = [[r for a, r in history if a == k] for k in range(n_arms)]
    groups = [[[r for r in arm if outcomes_of(r) == j] for j in range(m)] for arm in rewards]
    out = []
    for arm in groups:
        counts, means, scales = [], [], []
        for j in range(m):
            if known is not None:
                counts.append(len(arm[j]))
                means.append(known[j])
                scales.append(0.0)
            elif arm[j]:
                counts.append(len(arm[j]))
                means.append(sum(arm[j]) / len(arm[j]))
                scales.append(sigma[j])
            else:  # borrowed from the arms that had it
                tops = [
                    sum(g[j]) / len(g[j]) + sigma[j] * math.sqrt(2 * level / len(g[j]))
                    for g in groups
                    if g[j]
                ]
                if tops or j == 0:
                    counts.append(0)
                    means.append(min(max(tops), caps[j]) if j > 0 else 0.0)
                    scales.append(0.0)
        out.append(slow_upper(counts, means, scales, level))
    return out


def shop_bin(reward: float) -> int:
    return 0 if reward == 0 else 1 if reward <= 0 else 2 if reward <= 5 else 3


@pytest.mark.parametrize("n", [25, 300])
def test_index_with_edges(n: int, seed: int) -> None:
    spec = mab.OutcomesKLUCB(edges=(0.0, 5.0), sigma=(3.0, 0.2, 4.0))
    history = draws_of(SHOP, n, seed)
    state = trained(spec, history, 3)
    wanted = naive_indices(
        history,
        3,
        shop_bin,
        None,
        [0.0, 3.0, 0.2, 4.0],
        math.log(len(history) + 1),
        [0.0, 0.0, 5.0, math.inf],
    )
    np.testing.assert_allclose(exact_indices(spec, state), wanted, rtol=1e-6)


def test_index_with_values(seed: int) -> None:
    spec = mab.OutcomesKLUCB(values=(0.0, 1.0, 20.0, -15.0), c=1.0)
    env = OutcomesMAB(values=[1.0, 20.0, -15.0], probs=[[0.1, 0.02, 0.0], [0.3, 0.0, 0.05]])
    history = draws_of(env, 120, seed)
    state = trained(spec, history, 2)
    known = [-15.0, 0.0, 1.0, 20.0]
    level = math.log(len(history) + 1)
    level += math.log(level)
    wanted = naive_indices(history, 2, known.index, known, None, level, known)
    np.testing.assert_allclose(exact_indices(spec, state), wanted, rtol=1e-6)


def test_unknown_sigma_is_pooled_per_outcome(seed: int) -> None:
    history = draws_of(SHOP, 1500, seed)
    spec = mab.OutcomesKLUCB(edges=(0.0, 5.0))
    state = trained(spec, history, 3)
    scales = [0.0]
    for j in (1, 2, 3):
        groups = [[r for a, r in history if a == k and shop_bin(r) == j] for k in range(3)]
        spread = sum(np.var(g) * len(g) for g in groups if g)
        scales.append(math.sqrt(spread / sum(len(g) - 1 for g in groups if g)))
    known = mab.OutcomesKLUCB(edges=(0.0, 5.0), sigma=scales[1:])
    wanted = exact_indices(known, trained(known, history, 3))
    np.testing.assert_allclose(exact_indices(spec, state), wanted, rtol=1e-9)


@pytest.mark.parametrize(
    "spec",
    [
        mab.OutcomesKLUCB(edges=(0.0, 5.0), sigma=(3.0, 0.2, 4.0)),
        mab.OutcomesKLUCB(edges=(0.0, 5.0), sigma=2.0, unseen=10.0),
        mab.OutcomesKLUCB(values=(1.0, 20.0, -15.0)),
    ],
)
def test_the_arm_played_has_the_largest_index(spec, seed: int) -> None:
    state, out, exact = kernel.init(spec, 3), np.zeros(3), np.zeros(3)
    rng = np.random.default_rng(seed)
    for _ in range(250):
        kernel.indices(spec, state, rng, exact)
        arm = kernel.choose(spec, state, rng, out)
        assert exact[arm] == exact.max()
        assert (out >= exact).all()
        kernel.update(spec, state, arm, float(SHOP.sample(arm, rng, 1)[0]))


# ------------------------------------------------------------------------------ posterior draws


def sampled(spec, state, n, seed):
    rng, out = np.random.default_rng(seed), np.zeros(state.pulls.size)
    rows = []
    for _ in range(n):
        kernel.scores(spec, state, rng, out)
        rows.append(out.copy())
    return np.array(rows)


def test_draws_are_dirichlet_times_normal(seed: int) -> None:
    # Kolmogorov-Smirnov at level 1e-6 against NumPy's own Dirichlet law
    spec = mab.OutcomesPosterior(edges=(0.0, 5.0), sigma=(3.0, 0.2, 4.0), alpha=1.5, beta=0.5)
    rewards = [0.0] * 12 + [1.0, 1.2, 0.8] + [20.0, 23.0] + [-15.0]
    state = trained(spec, [(0, r) for r in rewards], 1)
    got = sampled(spec, state, 4000, seed)[:, 0]
    rng = np.random.default_rng(seed + 1)
    shares = rng.dirichlet([12.5, 1.5, 3.5, 2.5], size=40_000)
    values = rng.normal([0, -15, 1.0, 21.5], [0, 3, 0.2 / 3**0.5, 4 / 2**0.5], size=(40_000, 4))
    assert stats.ks_2samp(got, (shares * values).sum(axis=1)).pvalue > 1e-6


def test_draws_with_listed_values(seed: int) -> None:
    spec = mab.OutcomesPosterior(values=(1.0, 20.0, -15.0))
    rewards = [0.0] * 20 + [1.0] * 4 + [20.0]
    state = trained(spec, [(0, r) for r in rewards], 1)
    got = sampled(spec, state, 4000, seed)[:, 0]
    rng = np.random.default_rng(seed + 1)
    shares = rng.dirichlet([1 / 3, 21.0, 4 + 1 / 3, 1 + 1 / 3], size=40_000)
    wanted = shares @ np.array([-15.0, 0.0, 1.0, 20.0])
    assert stats.ks_2samp(got, wanted).pvalue > 1e-6  # level 1e-6


def test_what_nobody_ever_had_is_left_out(seed: int) -> None:
    spec = mab.OutcomesPosterior(edges=(0.0, 5.0), sigma=1.0)
    state = trained(spec, [(0, 0.0)] * 10 + [(0, 1.0)] * 3, 1)
    got = sampled(spec, state, 4000, seed)[:, 0]
    rng = np.random.default_rng(seed + 1)
    wanted = rng.beta(3 + 1 / 3, 11.0, 40_000) * rng.normal(1.0, 1 / 3**0.5, 40_000)
    assert stats.ks_2samp(got, wanted).pvalue > 1e-6  # level 1e-6


# --------------------------------------------------------------------------------- special cases


@pytest.mark.parametrize("kind", [mab.OutcomesKLUCB, mab.OutcomesPosterior])
@pytest.mark.parametrize(
    "what", [{"edges": (0.0, 5.0), "sigma": 1.0}, {"edges": (0.0, 5.0)}, {"values": (1.0, -2.0)}]
)
@pytest.mark.parametrize("rewards", [[0.0], [1.0], [-2.0], [1.0, -2.0], [0.0, 1.0]])
def test_degenerate_data_give_numbers(kind, what, rewards) -> None:
    spec = kind(**what)
    state, rng, out = kernel.init(spec, 3), np.random.default_rng(1), np.zeros(3)
    for j in range(40):
        arm = kernel.choose(spec, state, rng, out)
        assert not np.isnan(out).any()
        kernel.update(spec, state, arm, rewards[j % len(rewards)])
    assert state.pulls.min() > 0


def test_nothing_but_zeros() -> None:
    history = [(0, 0.0)] * 30 + [(1, 0.0)] * 10
    spec = mab.OutcomesKLUCB(edges=(0.0, 5.0), sigma=1.0)
    assert (exact_indices(spec, trained(spec, history, 2)) == math.inf).all()
    # a listed value is possible without having been seen
    spec = mab.OutcomesKLUCB(values=(20.0, -15.0))
    wanted = [20.0 * -math.expm1(-math.log(41) / n) for n in (30, 10)]
    np.testing.assert_allclose(exact_indices(spec, trained(spec, history, 2)), wanted, rtol=1e-12)
    # costs only: the best that can happen is nothing
    spec = mab.OutcomesKLUCB(values=(-15.0,))
    np.testing.assert_array_equal(exact_indices(spec, trained(spec, history, 2)), [0.0, 0.0])


def test_always_the_same_outcome() -> None:
    spec = mab.OutcomesKLUCB(edges=(5.0,), sigma=0.5)
    state = trained(spec, [(0, 1.0), (0, 3.0), (1, 7.0)], 2)
    # arm 0 had the first bin only; zero and the second bin, borrowed from arm 1, are possible
    level = math.log(4)
    top = 7.0 + 0.5 * math.sqrt(2 * level)
    wanted = slow_upper([0, 2, 0], [0.0, 2.0, top], [0.0, 0.5, 0.0], level)
    assert exact_indices(spec, state)[0] == pytest.approx(wanted, rel=1e-6)


def test_which_outcome_a_reward_is() -> None:
    spec = mab.OutcomesKLUCB(edges=(0.0, 5.0), sigma=1.0)
    assert [spec.outcome_of(r) for r in (0.0, -0.1, 1e-9, 5.0, 5.1)] == [0, 1, 2, 2, 3]
    spec = mab.OutcomesKLUCB(values=(20.0, 1.0, -15.0))
    assert spec.parameters()["values"] == (-15.0, 0.0, 1.0, 20.0)
    assert [spec.outcome_of(r) for r in (-15.0, 0.0, 1.0, 1.1, 20.0)] == [0, 1, 2, 2, 3]
    assert spec.reward_range == (-15.0, 20.0)
    assert mab.OutcomesKLUCB(values=range(1, 30)).n_outcomes == 30
    assert mab.OutcomesKLUCB(edges=(0,), sigma=[1, 1]) == mab.OutcomesKLUCB(edges=(0.0,), sigma=1)


def test_arms_come_and_go() -> None:
    bandit = zib.Bandit(mab.OutcomesKLUCB(edges=(0.0, 5.0)), arms=["a", "b"], seed=1)
    bandit.update_many(["a", "b", "a", "b", "a"], [1.0, 7.0, 1.5, 6.0, -3.0])
    bandit.add_arm("c")
    assert bandit.select() == "c"
    bandit.update("c", 0.0)
    before = bandit.indices()
    bandit.remove_arm("b")
    after = bandit.indices()
    assert after.keys() == {"a", "c"}
    assert after["c"] < before["c"]  # nobody has paid more than 5 any more
    with pytest.raises(zib.InvalidParameterError, match="`merge` needs statistics that are sums"):
        bandit.merge(bandit)


@pytest.mark.parametrize("kind", [mab.OutcomesKLUCB, mab.OutcomesPosterior])
@pytest.mark.parametrize("reward", [2.0, 1.0 + 1e-9, -0.5, 1e3, math.nan, math.inf])
def test_only_listed_rewards_are_learned(kind, reward: float) -> None:
    bandit = zib.Bandit(kind(values=(0.1, 1.0, -15.0)), n_arms=2, seed=1)
    words = r"`rewards?` must be (one of the policy's `values`, -15, 0, 0\.1, 1; got |a finite)"
    for learn in (
        lambda: bandit.update(0, reward),
        lambda: bandit.update_many([0, 1], [1.0, reward]),
    ):
        with pytest.raises(zib.InvalidParameterError, match=words):
            learn()
    assert sum(bandit.pulls.values()) == 0
    for allowed in (0, 0.0, -0.0, 0.1, 1, np.float64(-15.0), True):
        bandit.update(0, allowed)
    bandit.update_many([0, 1, 1, 1], [0.1, 1.0, -15.0, 0.0])
    assert bandit.pulls == {0: 8, 1: 3}


def test_listed_rewards_are_counted_from_the_inflated_value() -> None:
    bandit = zib.Bandit(mab.OutcomesKLUCB(values=(0.3, 7.0)), n_arms=2, seed=1, inflated=1.1)
    for reward in (1.1, 1.4, 8.1):  # 1.4 - 1.1 is not 0.3 in binary
        bandit.update(0, reward)
    bandit.update_many([1, 1], [1.4, 8.1])
    assert 1.4 - 1.1 != 0.3
    assert bandit.state.nonzero.tolist() == [2.0, 2.0]
    with pytest.raises(zib.InvalidParameterError, match=r"`values`, 1\.1, 1\.4, 8\.1; got 0\.3"):
        bandit.update(0, 0.3)


def test_a_reloaded_bandit_refuses_other_rewards_too() -> None:
    spec = mab.OutcomesKLUCB(values=(1.0, 5.0))
    bandit = zib.Bandit.loads(zib.Bandit(spec, n_arms=2, seed=1).dumps())
    bandit.update(0, 5.0)
    with pytest.raises(zib.InvalidParameterError, match="one of the policy's `values`"):
        bandit.update(0, 4.0)


ONE_OF = "give exactly one of `edges`, `values` and `categories`"


@pytest.mark.parametrize("kind", [mab.OutcomesKLUCB, mab.OutcomesPosterior])
@pytest.mark.parametrize(
    ("what", "words"),
    [
        ({}, ONE_OF),
        ({"edges": (0.0,), "values": (1.0,)}, ONE_OF),
        ({"edges": (0.0,), "categories": 2}, ONE_OF),
        ({"categories": 1}, r"`categories` must lie in \[2, 63\]; got 1"),
        ({"categories": 2.5}, "`categories` must be a whole number"),
        ({"categories": 3, "sigma": (1.0,)}, "`sigma` must be one number or one per bin"),
        ({"edges": (5.0, 0.0)}, "`edges` must be at most 62 increasing numbers"),
        ({"edges": (0.0, math.nan)}, "`edges` must lie in"),
        ({"edges": 3.0}, "`edges` must be a sequence of numbers; got 3.0"),
        ({"edges": "ab"}, "`edges` must be a sequence of numbers; got 'ab'"),
        ({"values": (0.0,)}, "`values` must hold 1 to 63 different values besides 0"),
        ({"values": range(1, 70)}, "`values` must hold 1 to 63 different values besides 0"),
        ({"values": (1.0, 2e100)}, "`values` must lie in"),
        ({"values": (1.0,), "sigma": 1.0}, "`sigma` belongs to `edges`"),
        ({"edges": (0.0,), "sigma": -1.0}, "`sigma` must lie in"),
        ({"edges": (0.0,), "sigma": (1.0,)}, "`sigma` must be one number or one per bin"),
        ({"edges": (0.0,), "unseen": "x"}, "`unseen` must be 'pooled' or a number"),
    ],
)
def test_bad_input(kind, what, words: str) -> None:
    with pytest.raises(zib.InvalidParameterError, match=words):
        kind(**what)
