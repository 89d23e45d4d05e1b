"""The worlds: named ones stay what they are, drawn ones follow from their seed."""

from __future__ import annotations

import math

import numpy as np
import pytest

import zib
import zib.testing
from zib.arena import KINDS, World, arms, drawn, generator, rivals, worlds
from zib.arena.features import Seen, with_features
from zib.arena.generator import ENOUGH
from zib.arena.rivals import DEFAULT, YARDSTICK, entered, raw_sd, truth
from zib.core.validate import InvalidParameterError


def test_there_are_sixty_named_worlds_without_optional_data() -> None:
    everything = worlds([kind for kind in KINDS if kind != "resampled"])
    names = [world.name for world in everything]
    assert len(names) == len(set(names)) >= 60
    assert {world.kind for world in everything} == set(KINDS) - {"resampled"}
    for world in everything:
        assert world.about
        assert 1_000 <= world.horizon <= 100_000
        instance = world.env.instance(np.random.default_rng(0))
        assert instance.n_arms == world.n_arms
    assert {2, 500} <= {world.n_arms for world in everything}


def test_named_worlds_do_not_change() -> None:
    jackpot = next(world for world in worlds("odd") if world.name == "jackpot")
    again = next(world for world in worlds("odd") if world.name == "jackpot")
    assert jackpot == again
    best = jackpot.env.best_arm
    assert jackpot.env.probs[best] == 1e-3
    others = np.delete(jackpot.env.magnitudes, best)
    assert 500 < jackpot.env.magnitudes[best] / others.mean() < 2_000


@pytest.mark.parametrize("kind", [*arms.KINDS])
def test_laws_have_the_mean_they_are_given(kind: str) -> None:
    low, high = arms.KINDS[kind].tails
    for tail in (low, math.sqrt(low * high), high):
        assert arms.law(kind, 7.0, tail).mean == pytest.approx(7.0, rel=1e-9)


def test_structures_are_what_they_say() -> None:
    rng = np.random.default_rng(0)
    far = arms.opposed(rng, "exponential", 9, probs=(1e-3, 0.9), spread=0.2)
    assert np.corrcoef(np.log(far.probs), np.log(far.magnitudes))[0, 1] < -0.99
    assert far.arm_means.min() > 0.8 - 1e-12
    odd = arms.with_an_odd_one(rng, far, kind="constant", lift=1.5, prob=0.01)
    assert odd.n_arms == 10
    assert odd.best_mean == pytest.approx(1.5 * far.best_mean)
    assert (arms.half_silent(rng, far).probs == 0.0).sum() == 9
    wide = arms.widest_best(rng, "lognormal", 6, probs=(0.1, 0.3), tails=(0.1, 1.8), lift=1.2)
    assert wide.laws[wide.best_arm].law.log_sd == pytest.approx(1.8)
    assert arms.signed(rng, 8, probs=(0.1, 0.5), mean=3.0, sd=(0.1, 1.0)).best_mean > 0.0


def test_skewed_arms_have_the_means_they_should() -> None:
    rng = np.random.default_rng(1)
    for maker in (arms.SkewedMAB("lognormal", 0.3, 1.0), arms.SkewedMAB("pareto", 3.0, 4.0)):
        arm = maker.instance(rng).laws[0]
        draws = arm.sample(rng, 400_000)
        error = math.sqrt(arm.variance / 400_000)
        assert abs(draws.mean() - arm.mean) < 5 * error  # fails with probability below 1e-5


# ------------------------------------------------------------------------------------------- drawn

FREE = [kind for kind in KINDS if kind != "resampled"]  # of optional data


def test_a_seed_draws_the_same_worlds() -> None:
    first = drawn(30, seed=11, kinds=FREE)
    assert drawn(40, seed=11, kinds=FREE)[:30] == first
    assert drawn(30, seed=12, kinds=FREE) != first
    assert len({world.name for world in first}) == 30
    fresh = {drawn(1, kinds="plain")[0].name for _ in range(3)}
    assert len(fresh) == 3  # the same by chance with probability below 1e-9


def test_drawn_worlds_cover_what_they_should() -> None:
    many = drawn(400, seed=5, kinds=FREE)
    assert {world.kind for world in many} == set(FREE)
    k = [world.n_arms for world in many]
    assert min(k) == 2
    assert max(k) > 200
    fixed = [world for world in many if world.kind in ("plain", "many", "odd")]
    probs = np.concatenate([world.env.probs for world in fixed])
    assert probs[probs > 0.0].min() < 1e-3
    assert probs.max() > 0.8
    assert {1, 2} <= {int(math.log10(world.horizon)) - 2 for world in fixed}
    for world in fixed:
        assert world.env.probs[world.env.best_arm] * world.horizon >= ENOUGH
        assert 1_000 <= world.horizon <= 100_000
    words = " ".join(world.name for world in many)
    for expected in ("opposed", "only p", "only magnitudes", "silent", "jackpot", "widest",
                     "losses", "gain or lose", "jumps", "waves", "walk", "features of noise",
                     "only the magnitude", "one arm"):  # fmt: skip
        assert expected in words


def test_without_a_log_the_other_worlds_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    amounts = np.array([1.0, 2.0, 5.0])
    monkeypatch.setattr(generator, "_amounts", lambda: amounts)
    there = drawn(40, seed=3)
    monkeypatch.setattr(generator, "_amounts", lambda: None)
    missing = drawn(40, seed=3)
    assert "resampled" in {world.kind for world in there}
    for a, b in zip(there, missing):
        assert a == b or (a.kind, b.kind) == ("resampled", "plain")
    with pytest.raises(InvalidParameterError, match="`kinds` must name a kind that can be drawn"):
        drawn(1, seed=3, kinds="resampled")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n": 0}, r"`n` must lie in \[1, 10000\]; got 0"),
        ({"seed": -1}, "`seed` must"),
        ({"kinds": ["odd", "easy"]}, "`kinds` must be one of .*; got 'easy'"),
        ({"kinds": []}, "`kinds` must name some of"),
        ({"horizon": 1}, r"`horizon` must lie in \[2, 1000000\]; got 1"),
    ],
)
def test_what_cannot_be_drawn_is_said_in_a_sentence(options: dict, words: str) -> None:
    with pytest.raises(InvalidParameterError, match=words):
        drawn(**options)


def test_horizons_can_be_cut() -> None:
    assert {world.horizon for world in worlds("odd", horizon=500)} == {500}
    assert max(world.horizon for world in drawn(50, seed=1, kinds=FREE, horizon=3_000)) <= 5_000
    assert {world.horizon for world in drawn(9, seed=1, kinds="plain", horizon=200)} == {200}


# ------------------------------------------------------------------------------------------ rivals


def test_every_world_has_rivals_with_and_without_knowledge() -> None:
    for world in [*worlds(FREE), *drawn(12, seed=2, kinds=FREE)]:
        there = rivals(world)
        labels = [rival.label for rival in there]
        assert labels[0] == DEFAULT
        assert len(set(labels)) == len(labels) <= 18
        assert not there[0].told
        assert any(rival.told for rival in there)
        assert (YARDSTICK in labels) == math.isfinite(raw_sd(world))


def test_told_sd_is_that_of_the_reward_with_its_zeros() -> None:
    env = zib.env.GaussianMAB(means=[3.0, 5.0], probs=[0.2, 0.1], sigma=1.0)
    world = World(name="a", kind="plain", about="", env=env, horizon=100)
    variances = [0.2 + 0.2 * 0.8 * 9.0, 0.1 + 0.1 * 0.9 * 25.0]
    assert raw_sd(world) == pytest.approx(math.sqrt(np.mean(variances)))
    heavy = zib.env.MAB([zib.ZeroInflated(zib.env.Pareto(1.0, 1.5), 0.1)])
    assert truth(World(name="b", kind="plain", about="", env=heavy, horizon=9)).family == {}


def test_told_sd_of_moving_arms_and_of_contexts(seed: int) -> None:
    still = zib.env.DriftingMAB(n_arms=4, probs=(0.2, 0.2 + 1e-9), magnitudes=(2.0, 2.0 + 1e-9))
    world = World(name="a", kind="drifting", about="", env=still, horizon=50)
    assert raw_sd(world) == pytest.approx(math.sqrt(0.2 * 0.25 + 0.16 * 4.0), rel=1e-6)
    env, right = with_features(
        np.random.default_rng(seed), 3, informative=0, noise=2, effect=0.0, probs=(0.3, 0.3)
    )
    flat = World(name="b", kind="contextual", about="", env=env, horizon=50, right=right)
    mu = env.beta[:, 0]
    expected = math.sqrt(np.mean(0.3 * 0.25 + 0.21 * mu**2))
    assert raw_sd(flat) == pytest.approx(expected, rel=0.1)  # 4000 rounds: four standard errors
    assert right == ((0,), (0,))


def test_entries_play_where_they_can() -> None:
    plain, contextual = worlds("many")[0], worlds("contextual")[0]
    spec = zib.contextual.LaplaceTS()
    assert entered("a", spec, plain) is None
    found = entered("a", spec, contextual)
    assert found is not None
    assert found.spec == zib.contextual.Disjoint(spec=spec, n_arms=contextual.n_arms)
    assert entered("b", lambda world: None, plain) is None
    made = entered("c", lambda world: zib.mab.ZITS(horizon=world.horizon, sigma=1.0), plain)
    assert made is not None
    assert made.spec.horizon == plain.horizon


# ---------------------------------------------------------------------------------------- features


def test_what_is_seen_of_features_changes_nothing_else(seed: int) -> None:
    env, right = with_features(
        np.random.default_rng(seed), 3, informative=2, noise=3, effect=0.5, part="magnitude"
    )
    assert right == ((0, 1, 2), (0,))
    seen = Seen(env=env, magnitude=right[0], occurrence=right[1])
    zib.testing.check_environment(seen)
    all_of_it = env.block(np.random.default_rng(1), 50)
    some = seen.instance(np.random.default_rng(0)).block(np.random.default_rng(1), 50)
    assert (some.reward == all_of_it.reward).all()
    assert (some.z == all_of_it.z[:, :3]).all()
    assert some.w.shape == (50, 1, 3)
    assert not env.theta[:, 1:].any()
    assert np.allclose(np.linalg.norm(env.beta[:, 1:], axis=1), 0.5)


def test_columns_that_do_not_exist_are_refused() -> None:
    env, _ = with_features(np.random.default_rng(0), 2, informative=1, noise=0, effect=0.5)
    for columns in ([2], [0.5], []):
        with pytest.raises(InvalidParameterError, match="`magnitude` must"):
            Seen(env=env, magnitude=columns, occurrence=[0])
