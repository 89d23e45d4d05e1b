"""Batches in simulations: the same decisions as those of a bandit in use, and what they cost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.policies import ONLINE, SPECS

import zib
from zib import env, mab
from zib.core.entry import interpreted
from zib.core.rng import Role, stream
from zib.core.validate import InvalidParameterError, InvalidTypeError
from zib.sim.loop import play
from zib.testing.specs import allowed

SHOP = env.GaussianMAB(means=[2.0, 3.0, 2.5], probs=[0.1, 0.3, 0.2], sigma=0.5)
ROUNDS = np.array([10, 60])


def rewards_of(seed: int, arm: int) -> Any:
    """Yield the rewards of an arm in replication 0."""
    rng, size = stream(seed, Role.ENVIRONMENT, 0, arm), 64
    while True:
        yield from SHOP.sample(arm, rng, size).tolist()
        size *= 4


@pytest.mark.parametrize("name", ONLINE)
def test_a_simulation_plays_as_a_bandit_in_use(name: str) -> None:
    """`select_many` and `update_many` in turn; the last batch is shorter."""
    spec = ONLINE[name]
    run = play(spec, env.Batched(SHOP, size=13), ROUNDS, 4, 0, compiled=False)
    paid = [rewards_of(4, arm) for arm in range(3)]
    pulls, earned = np.zeros(3, dtype=int), 0.0
    with interpreted():
        bandit = zib.Bandit(spec, n_arms=3, seed=stream(4, Role.POLICY, 0))
        while pulls.sum() < 60:
            arms = bandit.select_many(min(13, 60 - pulls.sum()))
            rewards = [next(paid[arm]) for arm in arms]
            bandit.update_many(arms, [allowed(spec, reward) for reward in rewards])
            pulls += np.bincount(arms, minlength=3)
            earned += sum(rewards)
    assert run.pulls.tolist() == pulls.tolist()
    assert run.reward[-1] == pytest.approx(earned)
    assert run.regret[-1] == pytest.approx((0.9 - np.array([0.2, 0.9, 0.5])) @ pulls)


@pytest.mark.parametrize("name", ["ucb1", "zi-ucb", "ucb true"])
def test_batches_of_one_are_no_batches(name: str) -> None:
    plain = play(SPECS[name], SHOP, ROUNDS, 4, 1)
    ones = play(SPECS[name], env.Batched(SHOP, size=1), ROUNDS, 4, 1)
    assert np.array_equal(plain.regret, ones.regret)
    assert np.array_equal(plain.reward, ones.reward)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in ("ucb1", "ucb true") else pytest.mark.slow)
        for name in SPECS
    ],
)
def test_compiled_code_decides_as_interpreted(name: str) -> None:
    world = env.Batched(env.RandomMAB("gaussian", n_arms=4, probs=(0.05, 0.35)), size=11)
    fast = play(SPECS[name], world, np.array([100, 300]), 5, 0)
    slow = play(SPECS[name], world, np.array([100, 300]), 5, 0, compiled=False)
    for mine, yours in zip(fast, slow, strict=True):
        assert np.array_equal(mine, yours)
    assert fast.pulls.sum() == 300


def test_categories_are_told_at_the_end_of_a_batch() -> None:
    world = env.OutcomesMAB([1.0, 20.0], [[0.3, 0.02], [0.2, 0.3]], [0.0, 4.0])
    spec = mab.OutcomesKLUCB(categories=2)
    with interpreted():
        run = play(spec, env.Batched(world, size=20), np.array([200]), 1, 0, compiled=False)
    assert run.pulls[1] > 100


def test_every_backend_plays_the_same() -> None:
    world = env.Batched(env.RandomMAB("exponential", n_arms=3), size=30)
    options: Any = {"horizon": 100, "replications": 3, "progress": False, "workers": 2}
    found = [
        zib.simulate([mab.UCB1(scale=3.0)], world, backend=backend, **options).regret
        for backend in ("serial", "threads", "processes")
    ]
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])


def test_what_cannot_be_played_is_refused() -> None:
    world = env.Batched(SHOP, size=10)
    for backend in ("counter", "cuda"):
        with pytest.raises(InvalidParameterError, match="no delays or batches"):
            zib.simulate([mab.UCB1()], world, horizon=10, backend=backend)
    with pytest.raises(InvalidTypeError, match="must be a registered policy"):
        zib.simulate([zib.contextual.LaplaceTS()], world, horizon=10)
    contextual = env.RandomContextual(n_arms=3, dimension=2, sparsity=1)
    for other in (contextual, env.DriftingMAB(), world, env.GaussianMAB, "shop"):
        with pytest.raises(InvalidParameterError, match="`env` must be a multi-armed environment"):
            env.Batched(other, size=10)
    for size in (0, 2.5, "ten"):
        with pytest.raises(InvalidParameterError, match=f"`size` must .*; got {size!r}"):
            env.Batched(SHOP, size=size)


@pytest.mark.slow
def test_batches_of_a_hundred_cost_index_policies_little() -> None:
    """Without counting what was decided regret is 1.5 to 2 times as large; seeds are fixed."""
    world = env.RandomMAB("gaussian", n_arms=10, probs=(0.05, 0.35))
    policies = {"imed": mab.ZIIMED(), "kl": mab.ZIKLUCB(), "posterior": mab.ZIPosterior()}
    final = [
        zib.simulate(policies, each, horizon=20_000, replications=40, progress=False).mean()[:, -1]
        for each in (world, env.Batched(world, size=100))
    ]
    assert (final[1] < 1.15 * final[0]).all()
