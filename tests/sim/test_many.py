"""Replications that draw their own rewards: the loop that is played on processors and on GPUs."""

from __future__ import annotations

import numpy as np
import pytest
from tests.policies import SPECS, TOLD

import zib
from zib import contextual, env, mab
from zib.core import kernel
from zib.core.validate import InvalidParameterError
from zib.sim.loop import play
from zib.sim.many import check_playable, play_many

SHOP = env.GaussianMAB(means=[2.0, 4.0, 8.0], probs=[0.2, 0.12, 0.05], sigma=1.0)
ROUNDS = np.array([20, 80])
QUICK = ["zi-ucb", "zi-ts", "ucb true"]
KINDS = {
    "mixture": env.MixtureMAB([2.0, 3.0], [0.2, 0.3], 0.5),
    "exponential": env.ExponentialMAB([2.0, 3.0], [0.2, 0.3], inflated=-1.0),
    "lognormal": env.MAB([env.ZeroInflated(env.LogNormal(0.0, 1.0), 0.3)] * 2),
    "pareto": env.MAB([env.ZeroInflated(env.Pareto(2.0, 1.5), 0.3), env.Lomax(1.0, 2.0)]),
    "gamma": env.MAB([env.ZeroInflated(env.Gamma(2.0, 1.5), 0.3)] * 3),
    "table": env.MAB([env.ZeroInflated(env.Empirical([1.0, 5.0, 7.0]), 0.3)] * 2),
    "several": env.MAB([env.Uniform(0.0, 1.0), env.StudentT(1.0, 1.0, 3.0), env.Constant(0.7)]),
}


def assert_compiled_as_interpreted(spec, environment, seed: int) -> None:
    compiled = play_many(spec, environment, ROUNDS, seed, 3, 7)
    read = play_many(spec, environment, ROUNDS, seed, 5, 7, compiled=False)
    for whole, part in zip(compiled, read, strict=True):
        np.testing.assert_array_equal(whole[2:], part)
    assert compiled.pulls.sum(axis=1).tolist() == [ROUNDS[-1]] * 4


@pytest.mark.parametrize("name", QUICK)
def test_compiled_as_interpreted(name: str, seed: int) -> None:
    assert_compiled_as_interpreted(SPECS[name], env.RandomMAB("gaussian", n_arms=3), seed)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(SPECS.keys() - set(QUICK)))
def test_every_policy_compiled_as_interpreted(name: str, seed: int) -> None:
    assert_compiled_as_interpreted(SPECS[name], SHOP, seed)


@pytest.mark.slow
@pytest.mark.parametrize("environment", KINDS.values(), ids=KINDS)
def test_every_kind_of_law_compiled_as_interpreted(environment, seed: int) -> None:
    assert_compiled_as_interpreted(mab.UCB1(scale=3.0), environment, seed)


@pytest.mark.slow
@pytest.mark.parametrize("spec", [SPECS["zi-ts"], SPECS["zi-adaptive"], SPECS["ucb variance"]])
@pytest.mark.parametrize(
    "environment", [SHOP, env.RandomMAB("exponential", n_arms=5)], ids=["fixed", "random"]
)
def test_regret_is_that_of_the_other_loop(spec, environment, seed: int) -> None:
    n, rounds = 1_500, np.array([100, 500])
    many = play_many(spec, environment, rounds, seed, 0, n)
    one = [play(spec, environment, rounds, seed, r) for r in range(n)]
    for name in ("regret", "reward"):
        a = getattr(many, name)
        b = np.stack([getattr(run, name) for run in one])
        error = np.sqrt((a.var(axis=0) + b.var(axis=0)) / n)
        # twelve pairs of means, two checkpoints each: 5.5 standard errors, 1e-6 altogether
        assert (np.abs(a.mean(axis=0) - b.mean(axis=0)) < 5.5 * error).all()


VISITORS = env.RandomContextual(n_arms=6, dimension=3, sparsity=2)
CONTEXTUAL = {
    "joint ucb": contextual.JointUCB(),
    "laplace ts": contextual.LaplaceTS(),
    "zi-ucb": contextual.ZIUCB(horizon=100, sigma=1.0),
    "zi-ts": contextual.ZITS(horizon=100, sigma=1.0, index="printed"),
    "naive": contextual.Naive(horizon=100, sigma=1.0),
    "disjoint": contextual.Disjoint(spec=contextual.LaplaceTS(), n_arms=6),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CONTEXTUAL)
def test_every_contextual_policy_compiled_as_interpreted(name: str, seed: int) -> None:
    assert_compiled_as_interpreted(CONTEXTUAL[name], VISITORS, seed)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["joint ucb", "laplace ts", "zi-ucb"])
def test_contextual_regret_is_that_of_the_other_loop(name: str, seed: int) -> None:
    n, rounds = 300, np.array([40, 150])
    many = play_many(CONTEXTUAL[name], VISITORS, rounds, seed, 0, n).regret
    one = np.stack([play(CONTEXTUAL[name], VISITORS, rounds, seed, r).regret for r in range(n)])
    # the same environments, other rounds: three policies, two checkpoints, 1e-6 altogether
    apart = many - one
    assert (np.abs(apart.mean(axis=0)) < 5.3 * apart.std(axis=0) / np.sqrt(n)).all()


def test_the_jth_reward_of_an_arm_is_the_same_for_every_policy(seed: int) -> None:
    # where there is one arm, all policies must earn the same; where there are two, what an arm
    # pays does not depend on when it is played
    lonely = env.GaussianMAB([2.0], [0.5], 1.0)
    earned = [play_many(SPECS[name], lonely, ROUNDS, seed, 0, 3).reward for name in QUICK[:2]]
    np.testing.assert_array_equal(*earned)


def test_results_do_not_depend_on_workers_and_fill_summaries(seed: int) -> None:
    policies = {"ts": SPECS["zi-ts"], "ucb": SPECS["zi-ucb"]}
    told = {"horizon": 60, "replications": 40, "seed": seed, "checkpoints": 3, "progress": False}
    runs = [
        zib.simulate(policies, SHOP, backend="counter", workers=workers, **told)
        for workers in (1, 2)
    ]
    np.testing.assert_array_equal(runs[0].regret, runs[1].regret)
    summary = zib.simulate(policies, SHOP, backend="counter", keep="summary", **told)
    np.testing.assert_allclose(summary.mean(), runs[0].mean(), rtol=1e-12)
    np.testing.assert_allclose(
        summary.difference("ts", "ucb").mean, runs[0].difference("ts", "ucb").mean, atol=1e-12
    )


def test_blocks_are_kept_apart_from_those_of_other_backends(tmp_path, seed: int) -> None:
    told = {"horizon": 50, "replications": 4, "seed": seed, "progress": False, "store": tmp_path}
    first = zib.simulate([SPECS["zi-ucb"]], SHOP, backend="counter", **told)
    other = zib.simulate([SPECS["zi-ucb"]], SHOP, **told)
    again = zib.simulate([SPECS["zi-ucb"]], SHOP, backend="counter", **told)
    np.testing.assert_array_equal(first.regret, again.regret)
    assert not np.array_equal(first.reward, other.reward)


@pytest.mark.parametrize("backend", ["counter", "cuda"])
@pytest.mark.parametrize(
    ("policy", "environment", "words"),
    [
        (TOLD["outcomes-kl told"], SHOP, "`policies` must be compiled"),
        (mab.UCB1(), env.DriftingMAB(n_arms=3, prob_speed=0.1), "`env` must have arms"),
        (mab.UCB1(), env.RandomContextual(n_arms=3, dimension=3, sparsity=2), "`policies` must be"),
    ],
    ids=["told", "drifting", "without looking"],
)
def test_what_cannot_be_played_is_refused_in_one_sentence(
    backend, policy, environment, words
) -> None:
    with pytest.raises(InvalidParameterError, match=f"^{words}"):
        zib.simulate([policy], environment, horizon=9, backend=backend, progress=False)


def test_all_multi_armed_policies_can_be_played() -> None:
    for spec in SPECS.values():
        check_playable(spec, SHOP)
        assert kernel.lookup(spec)
