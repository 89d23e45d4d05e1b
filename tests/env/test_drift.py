"""Environments that change with the round, and the loop that plays them."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

import zib
from zib import mab
from zib.core.rng import Role, stream
from zib.core.validate import InvalidParameterError
from zib.env import DriftingMAB, PathMAB, from_dict, make
from zib.sim import loop
from zib.sim.loop import play

PATTERNS = ("jumps", "waves", "walk")
SPEED = {"jumps": 0.02, "waves": 0.003, "walk": 0.05}
STEPS = PathMAB(
    probs=[[0.1, 0.5, 0.3], [0.6, 0.2, 0.3], [0.6, 0.2, 0.9]],
    means=[[2.0, 1.0, -1.0], [2.0, 1.0, 1.0], [2.0, 1.0, 3.0]],
    sigma=0.5,
    starts=[0, 70, 110],
)


def moving(pattern, **changes):
    speeds = {"prob_speed": SPEED[pattern], "mean_speed": SPEED[pattern] / 2}
    return DriftingMAB(**{"n_arms": 4, "pattern": pattern, **speeds, **changes})


def environments():
    return [STEPS, *(moving(pattern) for pattern in PATTERNS)]


# ------------------------------------------------------------------------------------------ blocks


@pytest.mark.parametrize("env", environments(), ids=lambda e: getattr(e, "pattern", "paths"))
def test_blocks_of_any_size_make_the_same_rounds(env, seed):
    one, two = (env.instance(np.random.default_rng(seed)) for _ in range(2))
    whole = one.round_block(np.random.default_rng(1), 0, 300)
    rng, start, parts = np.random.default_rng(1), 0, []
    for size in (1, 7, 64, 100, 128):
        parts.append(two.round_block(rng, start, size))
        start += size
    for i in range(2):
        assert np.array_equal(whole[i], np.concatenate([part[i] for part in parts]))
    paths = one.paths(0, 300)  # going back starts again
    assert np.array_equal(paths.probs * paths.means, whole.mean)
    assert np.array_equal(one.paths(250, 50).probs, paths.probs[250:])
    other = env.instance(np.random.default_rng(seed + 1)).paths(0, 300)
    assert (env is STEPS) == np.array_equal(other.probs, paths.probs)


@pytest.mark.parametrize("env", environments(), ids=lambda e: getattr(e, "pattern", "paths"))
def test_rewards_follow_the_paths(env, seed):
    """Six standard errors and a level of 1e-7: wrong with a probability below 1e-6 per case."""
    from scipy.stats import kstest

    instance = env.instance(np.random.default_rng(seed))
    probs, means = instance.paths(0, 400)
    rewards = np.stack(
        [instance.round_block(np.random.default_rng([seed, j]), 0, 400).reward for j in range(200)]
    )
    paid = rewards != 0.0
    off = (paid - probs).sum(axis=(0, 1)) / np.sqrt(200 * (probs * (1 - probs)).sum(axis=0))
    assert np.abs(off).max() < 6.0
    for half in (slice(0, 200), slice(200, 400)):  # in time, not only on average
        error = rewards[:, half].mean(axis=0).sum(axis=0) - (probs * means)[half].sum(axis=0)
        variance = (probs * (0.25 + means**2) - (probs * means) ** 2)[half].sum(axis=0) / 200
        assert np.abs(error / np.sqrt(variance)).max() < 6.0
    standardised = ((rewards - means) / 0.5)[paid]
    assert kstest(standardised, "norm").pvalue > 1e-7


# ------------------------------------------------------------------------------------------- paths


@pytest.mark.parametrize("pattern", PATTERNS)
def test_probabilities_and_magnitudes_move_separately(pattern, seed):
    still = moving(pattern, prob_speed=0.0, mean_speed=0.0).instance(np.random.default_rng(seed))
    only_p = moving(pattern, mean_speed=0.0).instance(np.random.default_rng(seed))
    only_mu = moving(pattern, prob_speed=0.0).instance(np.random.default_rng(seed))
    probs, means = still.paths(0, 500)
    assert (probs == probs[0]).all()
    assert (means == means[0]).all()
    assert np.array_equal(only_p.paths(0, 500).means, means)
    assert np.array_equal(only_mu.paths(0, 500).probs, probs)
    assert len(np.unique(only_p.paths(0, 500).probs[:, 0])) > 3
    assert len(np.unique(only_mu.paths(0, 500).means[:, 0])) > 2
    assert np.array_equal(only_p.paths(0, 1).probs, probs[:1])


@pytest.mark.parametrize("pattern", PATTERNS)
def test_paths_stay_in_their_intervals_and_fill_them(pattern, seed):
    env = moving(pattern, prob_speed=0.05, mean_speed=0.05, probs=(0.01, 0.2), magnitudes=(-1, 4))
    probs, means = env.instance(np.random.default_rng(seed)).paths(0, 20_000)
    for values, (low, high) in ((probs, (0.01, 0.2)), (means, (-1.0, 4.0))):
        assert values.min() >= low * (1 - 1e-12) if low > 0 else values.min() >= low
        assert values.max() <= high * (1 + 1e-12)
        assert values.min() < low + 0.1 * (high - low)
        assert values.max() > high - 0.1 * (high - low)


def test_jumps_come_at_geometric_times(seed):
    """Six standard deviations of a binomial count: wrong with a probability below 1e-8."""
    instance = moving("jumps", prob_speed=0.01).instance(np.random.default_rng(seed))
    probs = instance.paths(0, 50_000).probs
    changed = (np.diff(probs, axis=0) != 0).any(axis=1)
    assert (np.diff(probs, axis=0)[changed] != 0).all()  # all arms at once
    assert abs(changed.sum() - 500) < 6 * math.sqrt(50_000 * 0.01 * 0.99)
    gaps = np.diff(np.flatnonzero(changed))
    assert abs((gaps == 1).mean() - 0.01) < 6 * math.sqrt(0.01 / gaps.size)


def test_waves_have_the_period_asked_for(seed):
    instance = moving("waves", mean_speed=1 / 400).instance(np.random.default_rng(seed))
    means = instance.paths(0, 1200).means
    np.testing.assert_allclose(means[400:800], means[:400], atol=1e-9)
    np.testing.assert_allclose(means[200:600] + means[:400], 4.0, atol=1e-9)  # half a period later
    assert np.abs(means[:100] - means[100:200]).max() > 0.1


def test_steps_of_a_walk(seed):
    """Six standard errors of a standard deviation from 50 000 steps: wrong below 1e-8."""
    instance = moving("walk", mean_speed=1e-4, n_arms=50).instance(np.random.default_rng(seed))
    means = instance.paths(0, 2001).means
    inner = (np.abs(means - 2.0) < 0.95).all(axis=0)  # never near the ends: nothing is folded
    steps = np.diff(means[:, inner], axis=0) / 2.0
    assert steps.size > 50_000
    assert steps.std() == pytest.approx(1e-4, rel=0.02)


def test_walks_are_uniform_in_the_long_run(seed):
    """Level 1e-7; with steps of a third of the interval, 60 rounds apart is independent."""
    from scipy.stats import kstest

    means = moving("walk", mean_speed=0.33).instance(np.random.default_rng(seed)).paths(0, 60_000)
    assert kstest((means.means[::60, 0] - 1.0) / 2.0, "uniform").pvalue > 1e-7


def test_rows_hold_until_the_next_begins():
    probs, means = STEPS.paths(60, 60)
    assert probs[:10, 0].tolist() == [0.1] * 10
    assert probs[10:, 0].tolist() == [0.6] * 50
    assert means[49:51, 2].tolist() == [1.0, 3.0]
    assert STEPS.paths(10**9, 1).probs.tolist() == [[0.6, 0.2, 0.9]]
    assert STEPS.instance(np.random.default_rng(0)) is STEPS
    by_round = PathMAB(probs=[[0.1], [0.2], [0.3]], means=[1.0], sigma=1.0)
    assert by_round.paths(0, 4).probs[:, 0].tolist() == [0.1, 0.2, 0.3, 0.3]


# ----------------------------------------------------------------------------------------- playing


def test_regret_is_against_the_best_arm_of_the_round(monkeypatch):
    class Recorder(PathMAB):
        def round_block(self, rng, start, n):
            blocks.append(super().round_block(rng, start, n))
            return blocks[-1]

        def instance(self, rng):
            return self

    blocks = []
    env = Recorder(**STEPS.parameters())
    rounds = np.arange(1, 161)
    monkeypatch.setattr(loop, "LONGEST_BLOCK", 50)
    run = play(mab.UCB1(), env, rounds, 0, 0, compiled=False)
    rewards, means = (np.concatenate(parts)[:160] for parts in zip(*blocks))
    gap = np.round(np.diff(run.regret, prepend=0.0), 9)
    earned = np.round(np.diff(run.reward, prepend=0.0), 9)
    gaps = np.round(means.max(axis=1, keepdims=True) - means, 9)
    arms = [set(np.flatnonzero(g == row)) for g, row in zip(gap, gaps)]
    paid = [set(np.flatnonzero(e == row)) for e, row in zip(earned, np.round(rewards, 9))]
    assert all(a & p for a, p in zip(arms, paid, strict=True))
    assert run.pulls.sum() == 160
    assert means[100].argmax() != means[120].argmax()


@pytest.mark.parametrize("env", [STEPS, moving("walk")], ids=["paths", "walk"])
def test_results_depend_neither_on_blocks_nor_on_the_compiler(env, monkeypatch):
    spec, rounds = mab.UCB1(), np.array([1, 50, 51, 400])
    runs = [play(spec, env, rounds, 3, 1), play(spec, env, rounds, 3, 1, compiled=False)]
    for longest in (1, 33):
        monkeypatch.setattr(loop, "LONGEST_BLOCK", longest)
        runs.append(play(spec, env, rounds, 3, 1))
    for run in runs[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(runs[0], run, strict=True))


@pytest.mark.slow  # starts processes
def test_backends_agree_and_policies_face_the_same_rounds():
    env = moving("jumps")
    specs = {"a": mab.UCB1(), "b": mab.UCB1(scale=2.0), "again": mab.UCB1()}

    def run(backend, specs=specs, **options):
        return zib.simulate(
            specs, env, horizon=300, replications=3, seed=5, backend=backend, progress=False,
            **options,
        )  # fmt: skip

    results = [run("serial"), run("threads", workers=2), run("processes", workers=2)]
    for result in results[1:]:
        assert np.array_equal(results[0].regret, result.regret)
        assert np.array_equal(results[0].reward, result.reward)
    assert np.array_equal(results[0].regret[0], results[0].regret[2])
    assert not np.array_equal(results[0].regret[0], results[0].regret[1])
    alone = run("serial", {"b": specs["b"]})
    assert np.array_equal(alone.regret[0], results[0].regret[1])
    short = zib.simulate(specs, env, horizon=150, replications=3, seed=5, progress=False)
    at = results[0].checkpoints.tolist().index(150)
    assert np.array_equal(short.reward[:, :, -1], results[0].reward[:, :, at])


def test_an_environment_that_returns_nonsense_is_named():
    class Broken(PathMAB):
        def round_block(self, rng, start, n):
            block = super().round_block(rng, start, n)
            return block._replace(reward=block.reward + np.nan)

    with pytest.raises(InvalidParameterError, match="finite rewards and means of shape"):
        play(mab.UCB1(), Broken(**STEPS.parameters()), np.array([5]), 0, 0, compiled=False)


def test_true_sizes_are_not_known_here():
    spec = mab.UCB(horizon=100, sigma=1.0, size="true")
    with pytest.raises(InvalidParameterError, match="reward_sizes"):
        play(spec, STEPS, np.array([5]), 0, 0, compiled=False)


def test_instances_come_from_the_stream_of_the_replication():
    env = moving("jumps", mean_speed=0.0)
    run = play(mab.EpsilonGreedy(epsilon=1.0), env, np.array([200]), 9, 4, compiled=False)
    probs, means = env.instance(stream(9, Role.INSTANCE, 4)).paths(0, 200)
    values = probs * means
    assert run.regret[-1] <= (values.max(axis=1) - values.min(axis=1)).sum()


# ------------------------------------------------------------------------------- data and bad input


@pytest.mark.parametrize("env", environments(), ids=lambda e: getattr(e, "pattern", "paths"))
def test_environments_are_data(env):
    assert from_dict(json.loads(json.dumps(env.to_dict()))) == env
    assert type(env)(**env.parameters()) == env
    assert hash(type(env)(**env.parameters())) == hash(env)
    assert env.component_size() == 0.5
    assert env.component_size("subexponential") == pytest.approx(0.5)


def test_ids():
    assert make("drifting-mab-probs-v1") == DriftingMAB(pattern="waves", prob_speed=5e-5)
    assert make("drifting-mab-means-v1") == DriftingMAB(pattern="waves", mean_speed=5e-5)
    assert make("drifting-mab-none-v1") == DriftingMAB(pattern="waves")


PATH = {"probs": [[0.1, 0.2], [0.2, 0.1]], "means": [1.0, 2.0], "sigma": 1.0}


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: DriftingMAB(pattern="steps"), "`pattern` must be one of"),
        (lambda: DriftingMAB(n_arms=0), "`n_arms` must lie in"),
        (lambda: DriftingMAB(prob_speed=-0.1), "`prob_speed` must lie in"),
        (lambda: DriftingMAB(mean_speed=1.5), "`mean_speed` must lie in"),
        (lambda: DriftingMAB(probs=(0.0, 0.5)), "`probs` must lie in"),
        (lambda: DriftingMAB(probs=(0.5, 0.1)), "`probs` must be a pair"),
        (lambda: DriftingMAB(magnitudes=(1.0,)), "`magnitudes` must be a pair"),
        (lambda: DriftingMAB(sigma=0.0), "`sigma` must lie in"),
        (lambda: PathMAB(**{**PATH, "probs": [[0.1, 1.2]]}), "`probs` must lie in"),
        (lambda: PathMAB(**{**PATH, "probs": [["x"]]}), "`probs` must hold numbers"),
        (lambda: PathMAB(**{**PATH, "probs": []}), "`probs` must have one row per stretch"),
        (lambda: PathMAB(**{**PATH, "means": [1.0]}), "must have the same shape"),
        (lambda: PathMAB(**{**PATH, "means": [[1.0, 2.0]] * 3}), "must have the same shape"),
        (lambda: PathMAB(**{**PATH, "means": [1.0, np.inf]}), "`means` must lie in"),
        (lambda: PathMAB(**{**PATH, "sigma": -1.0}), "`sigma` must lie in"),
        (lambda: PathMAB(**PATH, starts=[0]), "`starts` must hold 2 whole numbers"),
        (lambda: PathMAB(**PATH, starts=[1, 2]), "`starts` must hold 2 whole numbers"),
        (lambda: PathMAB(**PATH, starts=[0, 0]), "`starts` must hold 2 whole numbers"),
        (lambda: PathMAB(**PATH, starts=[0, 1.5]), "`starts` must hold 2 whole numbers"),
        (lambda: from_dict({"environment": "PathMAB"}), "`data` must hold the parameters"),
    ],
)
def test_bad_input(build, words):
    with pytest.raises(InvalidParameterError, match=words):
        build()
