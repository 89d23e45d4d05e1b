"""Plans: blocks, their keys, and what they depend on."""

from __future__ import annotations

import json

import numpy as np
import pytest

import zib
from zib.sim import CannotBeStored, Plan

ENV = zib.env.GaussianMAB(means=[1.0, 2.0], probs=[0.3, 0.4], sigma=1.0)
UCB1 = zib.mab.UCB1()


def plan(policies=None, env=ENV, **options):
    options = {"horizon": 10_000, "replications": 450, **options}
    return Plan.of(policies or {"a": UCB1}, env, **options)


def keys(*args, **options):
    made = plan(*args, **options)
    return [made.key_of(block) for block in made.blocks]


def test_blocks_cover_every_replication_once():
    made = plan({"a": UCB1, "b": zib.mab.UCBV()})
    for policy in (0, 1):
        mine = [b for b in made.blocks if b.policy == policy]
        played = [r for b in mine for r in range(b.first, b.last)]
        assert played == list(range(450))
    assert len({made.key_of(block) for block in made.blocks}) == len(made.blocks) == 6
    for block in made.blocks:
        assert made.block_around(block) == block
        assert made.block_around(block._replace(first=block.last - 1)) == block


def test_block_length_depends_on_the_horizon_only():
    assert plan(horizon=10_000).block_length == 200
    assert plan(horizon=100).block_length == 256
    assert plan(horizon=10**8).block_length == 1
    contextual = zib.env.make("paper-contextual-gaussian-s3-probit-v1")
    policies = {"z": zib.contextual.LaplaceTS()}
    assert plan(policies, contextual, horizon=20_000).block_length == 2


def test_what_keys_do_not_depend_on():
    before = keys()
    assert keys({"another label": UCB1}) == before
    two = plan({"b": zib.mab.UCBV(), "a": UCB1})
    assert [two.key_of(block) for block in two.blocks if block.policy == 1] == before
    assert keys(replications=1000)[:2] == before[:2]  # whole blocks are taken over
    assert keys(env=zib.env.GaussianMAB(means=(1.0, 2.0), probs=(0.3, 0.4), sigma=1)) == before


@pytest.mark.parametrize(
    "options",
    [
        {"seed": 1},
        {"horizon": 10_001},
        {"checkpoints": 100},
        {"policies": {"a": zib.mab.UCB1(scale=1.5)}},
        {"policies": {"a": zib.mab.UCBV()}},
        {"env": zib.env.GaussianMAB(means=[1.0, 2.0], probs=[0.3, 0.4], sigma=1.0 + 1e-15)},
        {"env": zib.env.ExponentialMAB(means=[1.0, 2.0], probs=[0.3, 0.4])},
    ],
)
def test_what_keys_depend_on(options):
    assert not set(keys(**options)) & set(keys())
    assert plan(**options).hash != plan().hash


@pytest.mark.parametrize("what", ["python", "numpy", "numba", "scipy", "machine", "code"])
def test_versions_machine_and_code_count(monkeypatch, what):
    from zib.sim import plan as module

    before = keys()
    if what == "code":
        monkeypatch.setattr(module.sources, "hash_of", lambda modules: "edited")
    else:
        now = {**module.versions(), what: "another"}
        monkeypatch.setattr(module, "versions", lambda: now)
    assert not set(keys()) & set(before)


def test_plan_is_frozen_and_readable():
    made = plan({"a": zib.mab.ZIUCB(horizon=10_000, tail=zib.SubExponential(2.0))})
    data = json.loads(json.dumps(made.to_data()))
    assert data["policies"]["a"]["parameters"]["tail"]["parameters"]["scale"] == 2.0
    assert data["block_length"] == 200
    assert data["hashes"]["a"] == made.policy_hashes[0]
    with pytest.raises(AttributeError):
        made.seed = 3


class Odd(zib.env.GaussianMAB):
    lock: object = None


def test_hash_exists_where_nothing_can_be_stored():
    env = Odd(means=[1.0, 2.0], probs=[0.3, 0.4], sigma=1.0)
    env.lock = iter([])
    with pytest.raises(CannotBeStored):
        keys(env=env)
    assert plan(env=env).hash == plan(env=env).hash != plan(env=env, seed=1).hash
    assert "not storable" in plan(env=env).to_data()


def test_what_cannot_be_named_is_played_and_not_stored_with_one_warning(tmp_path):
    env = Odd(means=[1.0, 2.0], probs=[0.3, 0.4], sigma=1.0)
    env.lock = iter([])
    options = {"horizon": 20, "replications": 1, "progress": False, "checkpoints": 5}
    with pytest.warns(RuntimeWarning, match="cannot name a .*nothing is kept or looked") as caught:
        done = zib.simulate([UCB1], env, **options, store=tmp_path / "unused")
    assert len(caught) == 1
    assert not (tmp_path / "unused").exists()
    assert np.array_equal(done.regret, zib.simulate([UCB1], env, **options).regret)


def test_blocks_are_not_made_before_they_are_asked_for():
    env = zib.env.GaussianMAB(means=[4.0, 5.0], probs=[0.1, 0.05], sigma=1.0)
    plan = Plan.of([zib.mab.UCB1()], env, horizon=10_000, replications=10**12)
    assert len(plan.blocks) == 5 * 10**9
    assert plan.blocks[-1] == (0, 10**12 - 200, 10**12)
    small = Plan.of([zib.mab.UCB1(), zib.mab.NormalTS()], env, horizon=10_000, replications=450)
    assert list(small.blocks) == [small.blocks[i] for i in range(6)] == small.blocks[:]
    assert [small.blocks.at(1, row) for row in range(3)] == [b for b in small.blocks if b.policy]
