"""Decisions in batches: what policies make of those whose rewards have not returned yet."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from contextlib import nullcontext

import numpy as np
import pytest

import zib
from tests.policies import ONLINE, SPECS, TOLD
from zib import mab
from zib.core import kernel
from zib.core.entry import interpreted
from zib.core.state import arrays, in_one_piece
from zib.testing.specs import allowed

ARMS = ("a", "b", "c", "d")
SPREADING = {name: spec for name, spec in (SPECS | TOLD).items() if kernel.spreads(spec)}


@pytest.fixture(autouse=True)
def _without_compiling(request: pytest.FixtureRequest) -> Iterator[None]:
    """Compile in slow tests only."""
    slow = request.node.get_closest_marker("slow") is not None
    with nullcontext() if slow else interpreted():
        yield


def trained(spec, n=80, **options) -> zib.Bandit:
    bandit = zib.Bandit(spec, arms=ARMS, seed=3, **options)
    rng = np.random.default_rng(3)
    arms = [ARMS[k] for k in rng.integers(4, size=n)]
    rewards = (rng.random(n) < 0.4) * (2.0 + rng.random(n))
    bandit.update_many(arms, [allowed(spec, reward) for reward in rewards])
    return bandit


# ------------------------------------------------------------------------------- one more pull


def test_policies_without_chance_spread_a_batch() -> None:
    wanted = {name for name, spec in (SPECS | TOLD).items() if not kernel.draws_randomly(spec)}
    assert set(SPREADING) == wanted | {"watching kl-ucb recheck"}  # whose chance is added around it
    assert {"zi-imed lognormal", "outcomes-kl told", "windowed zi-imed", "zi-heavy"} <= wanted


@pytest.mark.parametrize("name", SPREADING)
def test_imagined_pulls_are_those_of_the_same_rewards_again(name) -> None:
    """As many imagined pulls as there were leave what the same rewards, twice, would have left."""
    spec = SPREADING[name]
    rng = np.random.default_rng(5)
    arms = np.concatenate([np.arange(3), rng.integers(3, size=30)])
    rewards = np.where(rng.random(33) < 0.5, rng.normal(2.0, 1.0, 33), 0.0)
    history = [(int(k), allowed(spec, float(x))) for k, x in zip(arms, rewards, strict=True)]
    once, twice = kernel.init(spec, 3), kernel.init(spec, 3)
    if name == "ucb true":
        once.own.true_size[:] = twice.own.true_size[:] = 1.0
    for arm, reward in history:
        kernel.update(spec, once, arm, reward)
    for arm, _ in history:
        kernel.imagine(spec, once, arm)
    for arm, reward in history * 2:
        kernel.update(spec, twice, arm, reward)
    if name.split()[0] in ("windowed", "discounted", "doubling", "zi-heavy"):
        return  # what these forget or trim depends on the order of rewards
    found, wanted = np.zeros(3), np.zeros(3)
    kernel.indices(spec, once, rng, found)
    kernel.indices(spec, twice, rng, wanted)
    np.testing.assert_allclose(found, wanted, rtol=1e-9)
    for statistic in ("pulls", "nonzero", "total", "spread", "clock"):
        np.testing.assert_allclose(getattr(once, statistic), getattr(twice, statistic), rtol=1e-9)
    chosen = np.zeros(3)  # what is kept of bounds leads to the same decision
    kernel.scores(spec, once, rng, chosen)
    assert chosen.argmax() == found.argmax()


def test_a_probability_stays_a_probability() -> None:
    state = kernel.init(mab.ZIUCB(horizon=100, sigma=1.0), 1)
    for _ in range(3):
        kernel.update(mab.ZIUCB(horizon=100, sigma=1.0), state, 0, 1.0)
    for _ in range(5_000):
        kernel.one_more(state, 0)
        assert state.nonzero[0] <= state.pulls[0]
    assert state.total[0] / state.pulls[0] == pytest.approx(1.0, rel=1e-9)


def test_a_state_in_one_piece_is_the_same_state() -> None:
    for spec in SPECS.values():
        state = kernel.init(spec, 3)
        kernel.update(spec, state, 1, allowed(spec, 0.5))
        piece, memory = in_one_piece(state)
        for (name, _, a), (_, _, b) in zip(arrays(state), arrays(piece), strict=True):
            assert np.array_equal(a, b, equal_nan=True), name
            assert (a.dtype, a.shape) == (b.dtype, b.shape)
            assert b.size == 0 or np.shares_memory(b, memory)
            assert b.flags.carray  # contiguous, aligned, can be written to


# ------------------------------------------------------------------------------------- batches


@pytest.mark.parametrize("name", ["zi-imed", "zi-adaptive", "eps-greedy", "windowed zi-ts"])
def test_batches_of_some_arms_and_propensities_are_the_same_after_a_restart(name) -> None:
    bandit = trained(ONLINE[name], n=40)
    bandit.add_arm("new")
    twin = zib.Bandit.loads(bandit.dumps())
    for options in ({}, {"arms": ("d", "new", "b")}, {"return_propensity": True}):
        mine, yours = (each.select_many(9, **options) for each in (bandit, twin))
        assert str(mine) == str(yours)
    assert bandit.dumps() == twin.dumps()


@pytest.mark.parametrize("name", ONLINE)
def test_untried_arms_share_a_batch(name) -> None:
    """Shares of 1/5 are within 5.3 standard errors of chance; the seed is fixed."""
    bandit = zib.Bandit(ONLINE[name], n_arms=5, seed=0, draws=50)
    batch = bandit.select_many(200)
    assert min(batch.count(k) for k in range(5)) >= 10
    some = bandit.select_many(60, arms=[4, 1])
    assert set(some) == {1, 4}
    assert min(some.count(1), some.count(4)) >= 10
    _, shares = bandit.select_many(3, return_propensity=True)
    assert shares.tolist() == [0.2] * 3
    _, shares = bandit.select_many(200, return_propensity=True)
    assert shares.min() > 0.05


@pytest.mark.parametrize("name", ONLINE)
def test_a_new_arm_does_not_take_the_whole_batch(name) -> None:
    spec = ONLINE[name]
    if getattr(spec, "unseen", None) == np.inf:
        return  # which asks for this arm until it pays
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # beyond the horizon of the policy
        bandit = trained(spec, n=48 if name.startswith("doubling") else 480)
    bandit.add_arm("new")
    batch = bandit.select_many(300)
    assert batch[0] == "new"
    assert 1 <= batch.count("new") < 290
    bandit.set_shares(draws=50)
    served, shares = bandit.select_many(300, return_propensity=True)
    logged = dict(zip(served, shares.tolist(), strict=True))
    assert logged.get("new", 0.0) < 0.97
    assert sum(logged.values()) <= 1.0 + 1e-9


def test_decisions_of_posterior_policies_are_those_of_single_calls() -> None:
    bandit = trained(mab.ZIPosterior())
    one, many = copy.copy(bandit), copy.copy(bandit)
    assert [one.select() for _ in range(30)] == many.select_many(30)
    assert one.dumps() == many.dumps()


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["ucb1", "zi-imed", "zi-kl lognormal", "outcomes-kl", "zi-adaptive"]
)
def test_compiled_code_decides_alike(name) -> None:
    bandit = trained(ONLINE[name])
    bandit.add_arm("new")
    with interpreted():
        slow = zib.Bandit.loads(bandit.dumps())
        wanted = [slow.select_many(50, **each) for each in ({}, {"arms": ["a", "new"]})]
        shares = slow.select_many(50, return_propensity=True)[1].tolist()
    assert [bandit.select_many(50, **each) for each in ({}, {"arms": ["a", "new"]})] == wanted
    assert bandit.select_many(50, return_propensity=True)[1].tolist() == shares


def test_shares_of_a_batch_are_what_an_index_policy_plays() -> None:
    """Ties are broken in another stream, so arms may change places, once or twice."""
    for spec in (mab.ZIIMED(), mab.ZIKLUCB(), mab.UCB1(scale=3.0)):
        bandit = trained(spec)
        batch = bandit.select_many(400)
        served, shares = bandit.select_many(400, return_propensity=True)
        assert len(set(batch)) > 1
        for arm, share in dict(zip(served, shares.tolist(), strict=True)).items():
            assert abs(batch.count(arm) - 400 * share) <= 2
        assert bandit.select(return_propensity=True)[1] == 1.0
        bandit.set_shares(least_share=0.2)
        served, shares = bandit.select_many(400, return_propensity=True)
        assert set(served) == set(ARMS)
        assert shares.min() >= 0.2 - 1e-12


def test_decisions_in_flight_count_in_a_batch() -> None:
    bandit = trained(mab.ZIIMED())
    best = bandit.select()
    bandit.set_pending({best: 500.0})
    assert bandit.select_many(50).count(best) < 25


def test_without_statistics_that_are_sums_one_arm_is_played() -> None:
    class Stubborn(zib.Spec):
        label = "stubborn"

    def update(spec, state, arm, reward):
        state.pulls[arm] += 1.0

    def scores(spec, state, rng, out):
        for k in range(out.size):
            out[k] = np.inf if state.pulls[k] == 0.0 else -k

    zib.register(Stubborn, scores=scores, update=update)
    try:
        bandit = zib.Bandit(Stubborn(), n_arms=3, seed=0)
        batch = bandit.select_many(9)
        assert sorted(batch[:3]) == [0, 1, 2]
        assert batch[3:] == [0] * 6
    finally:
        del kernel.REGISTRY[Stubborn]
