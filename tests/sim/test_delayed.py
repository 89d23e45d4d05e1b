"""Rewards that come late: the loop against a slow and obvious one, and what follows from theory."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from tests.policies import SPECS

from zib import env, mab
from zib.core import kernel
from zib.core.kernel import is_additive
from zib.core.rng import Role, stream
from zib.core.state import arrays, rearranged
from zib.core.validate import InvalidParameterError
from zib.mab.pending import WAYS
from zib.sim.loop import play

SHOP = env.GaussianMAB(means=[2.0, 3.0, 2.5], probs=[0.1, 0.3, 0.2], sigma=0.5)
LATE = env.Delayed(
    SHOP, delay=[env.Exponential(20.0), env.Uniform(0.0, 60.0), env.Lomax(9.0, 1.5)], window=60
)
LATER = env.Delayed(SHOP, delay=env.Exponential(20.0), window=50, starts=[130, 0, 77], trend=0.5)
ROUNDS = np.array([100, 260])


# ----------------------------------------------------------------------------- the slow and obvious


class Decision:
    def __init__(self, made: int, arm: int, reward: float, comes: int) -> None:
        self.made, self.arm, self.reward, self.comes = made, arm, reward, comes


def draws(world: Any, seed: int, arm: int) -> Any:
    """Yield rewards of an arm, and after how many rounds each comes."""
    rewards, waits = stream(seed, Role.ENVIRONMENT, 0, arm), stream(seed, Role.DELAY, 0, arm)
    size = 64
    while True:
        values = world.sample(arm, rewards, size)
        delays, factor = world.sample_delays(arm, waits, size)
        for value, delay, times in zip(values, delays, factor, strict=True):
            yield float(value * times), max(1, int(np.ceil(delay)))
        size *= 4


def lags_of(seen: list[Decision], t: int, every: int, arms: set[int]) -> list[tuple[int, int]]:
    """Return lag and completed blocks of the rewards of these arms that have come by round t."""
    came = [d for d in seen if d.reward != 0.0 and d.comes <= t and d.arm in arms]
    return [((d.comes - 1) // every - d.made // every, t // every - d.made // every) for d in came]


def fitted(lags: list[tuple[int, int]], assumed: Any) -> list[float]:
    """Return F by definition: the chance that a reward took less than j blocks."""
    n = len(assumed)
    found = [1.0]
    for j in range(n - 1, 0, -1):
        came = sum(lag == j for lag, _ in lags) + assumed[j]
        able = sum(lag <= j < complete for lag, complete in lags) + sum(assumed[: j + 1])
        found.append(found[-1] * (1.0 - came / able))
    return [0.0, *reversed(found)]


def assumed_in(lags: list[tuple[int, int]], n_lags: int, prior: float) -> list[float]:
    """Return what is assumed: even within the reach of the data, the trend of its end beyond."""
    reach = min(max((complete for _, complete in lags), default=0), n_lags)
    if reach < 8 or reach == n_lags:
        return [prior / n_lags] * n_lags

    def rates(bins: range) -> tuple[float, float]:
        came = sum(lag in bins for lag, _ in lags)
        due = sum(sum(lag <= j < complete for lag, complete in lags) / (j + 1) for j in bins)
        return came, due

    early, late = (
        rates(bins) for bins in (range(reach // 2, 3 * reach // 4), range(3 * reach // 4, reach))
    )
    both = (early[0] + late[0] + prior) / (early[1] + late[1] + prior)
    first, last = ((came + 3.0 * both) / (due + 3.0) for came, due in (early, late))
    out = [prior / n_lags] * reach
    for j in range(reach, n_lags):
        step = last * min(last / first, 1.0) ** (4 * (j + 1 - 7 * reach / 8) / reach) / (j + 1)
        step = min(step, 0.5)
        out.append(sum(out) * step / (1 - step))
    return out


def slow(spec: mab.Pending, world: Any, horizon: int, seed: int = 0) -> tuple[list[int], float]:
    """Return the arms that are played, and the regret."""
    how, inner = spec.parameters()["how"], spec.spec
    order = [int(k) for k in np.argsort(world.first_rounds, kind="stable")]
    arms = [k for k in order if world.first_rounds[k] == 0]
    source = {k: draws(world, seed, k) for k in order}
    state, rng = kernel.init(inner, len(arms)), stream(seed, Role.POLICY, 0)
    every = max(world.window // 100, 1) if np.isnan(spec.every) else int(spec.every)
    n_lags = (world.window + 2 * every - 2) // every
    seen: list[Decision] = []
    weights: dict[int, float] = {}
    chance = dict.fromkeys(order, 0.0)
    played, regret = [], 0.0

    def learn(arm: int, reward: float, instead_of: float = 0.0) -> None:
        k = arms.index(arm)
        state.pulls[k] = max(state.pulls[k] - instead_of, 0.0)
        state.clock[0] = max(state.clock[0] - instead_of, 0.0)
        kernel.update(inner, state, k, reward)
        if how in ("known", "estimated"):
            kernel.refresh_all(inner, state)

    def fraction(arm: int, t: int, d: Decision) -> float:
        if how == "known":  # the mean over the decisions of the same block
            made = d.made // every * every + np.arange(every)
            return float(world.fraction(arm, t - made).mean())
        return values[arm][t // every - d.made // every]

    for t in range(horizon):
        if t and (world.first_rounds == t).any():
            known = len(arms)
            arms += [k for k in order if world.first_rounds[k] == t]
            fresh = kernel.init(inner, len(arms))
            sources = [k if k < known else -1 for k in range(len(arms))]
            state = rearranged(state, fresh, sources)
            kernel.refresh_all(inner, state)
        if how in ("zero", "at_once", "known", "estimated"):
            for d in reversed(seen):
                if d.reward != 0.0 and d.comes == t:
                    learn(d.arm, d.reward, 1.0 if how == "zero" else weights.get(d.made, 0.0))
        if t >= world.window:
            d = seen[t - world.window]
            if how == "wait" or (how == "at_once" and d.reward == 0.0):
                learn(d.arm, d.reward)
        if how in ("known", "estimated") and t and t % every == 0:
            lags = lags_of(seen, t, every, set(order))
            pooled = fitted(lags, assumed_in(lags, n_lags, spec.prior_rewards))
            values = dict.fromkeys(order, pooled)
            if spec.per_arm:
                near = [3.0 * step for step in np.diff(pooled)]
                values = {k: fitted(lags_of(seen, t, every, {k}), near) for k in order}
            for k, arm in enumerate(arms):
                mine = [d for d in seen if d.arm == arm]
                paid = sum(d.reward != 0.0 and d.comes <= t for d in mine)
                pending = [d for d in mine if d.reward == 0.0 or d.comes > t]
                for _ in range(3):
                    zeros = 0.0
                    for d in pending:
                        f = 1.0 if (t // every - d.made // every) >= n_lags else fraction(arm, t, d)
                        weights[d.made] = f * (1 - chance[arm]) / (1 - chance[arm] * f)
                        zeros += weights[d.made]
                    chance[arm] = (1 + paid) / (2 + paid + zeros)
                state.pulls[k] = paid + zeros if paid + zeros >= 0.01 else 0.0
            state.clock[0] = max(state.pulls.sum(), 1.0)
            kernel.refresh_all(inner, state)
        arm = arms[kernel.choose(inner, state, rng, np.zeros(len(arms)))]
        reward, delay = next(source[arm])
        seen.append(Decision(t, arm, reward, t + delay))
        if how in ("no_delay", "zero"):
            learn(arm, reward if how == "no_delay" else 0.0)
        played.append(arm)
        regret += world.arm_means[arms].max() - world.arm_means[arm]
    return played, regret


ADAPTIVE, UCB1 = mab.ZIAdaptive(), mab.UCB1(scale=4.0)
CASES = [
    *(mab.Pending(UCB1, how=how) for how in WAYS),
    mab.Pending(ADAPTIVE, every=7),
    mab.Pending(ADAPTIVE, how="known", every=9),
    mab.Pending(UCB1, per_arm=True, every=5, prior_rewards=3.0),
    mab.Pending(mab.Anytime(mab.ZITS(horizon=40, sigma=0.5)), how="at_once"),
]


def compare(spec: Any, world: Any, rounds: Any) -> None:
    run = play(spec, world, rounds, 0, 0, compiled=False)
    arms, regret = slow(spec, world, int(rounds[-1]))
    assert run.pulls.tolist() == np.bincount(arms, minlength=3).tolist()
    assert run.regret[-1] == pytest.approx(regret, rel=1e-12)


@pytest.mark.parametrize("how", WAYS)
def test_the_loop_decides_as_the_slow_and_obvious_one(how: str) -> None:
    compare(mab.Pending(UCB1, how=how, every=6), LATER, np.array([60, 150]))


@pytest.mark.slow
@pytest.mark.parametrize("world", [LATE, LATER], ids=["late", "arms that come later"])
@pytest.mark.parametrize("spec", CASES, ids=repr)
def test_the_loop_decides_as_the_slow_one_for_longer(spec: Any, world: Any) -> None:
    compare(spec, world, ROUNDS)


@pytest.mark.slow
def test_compiled_and_interpreted_runs_are_the_same() -> None:
    for how, world in itertools.product(WAYS, (LATE, LATER)):
        spec = mab.Pending(ADAPTIVE, how=how, every=4)
        fast = play(spec, world, ROUNDS, 0, 3)
        plain = play(spec, world, ROUNDS, 0, 3, compiled=False)
        for one, other in zip(fast, plain, strict=True):
            assert np.array_equal(one, other)


# ----------------------------------------------------------------------------------- what must hold


def test_without_delay_it_is_the_environment_inside() -> None:
    alone = play(ADAPTIVE, SHOP, ROUNDS, 0, 0, compiled=False)
    at_once = env.Delayed(SHOP, delay=env.Exponential(20.0), window=1)
    for spec, world in (
        (mab.Pending(ADAPTIVE, how="no_delay"), LATE),
        (mab.Pending(ADAPTIVE, how="wait"), at_once),
        (ADAPTIVE, at_once),  # a policy that says nothing waits for the close
    ):
        run = play(spec, world, ROUNDS, 0, 0, compiled=False)
        for one, other in zip(alone, run, strict=True):
            assert np.array_equal(one, other)


def test_inflated_rewards_are_paid_and_not_reported() -> None:
    # what is paid besides the inflated value is learned, and the value itself is earned each round
    moved = env.Delayed(
        env.GaussianMAB([2.0 + 1.5, 3.0 + 1.5, 2.5 + 1.5], SHOP.probs, 0.5, inflated=1.5),
        delay=LATE.delay,
        window=60,
    )
    spec = mab.Pending(UCB1, how="zero")
    run, plain = (play(spec, w, ROUNDS, 0, 0, compiled=False) for w in (moved, LATE))
    assert run.pulls.tolist() == plain.pulls.tolist()
    assert run.reward == pytest.approx(plain.reward + 1.5 * ROUNDS)


def test_categories_arrive_with_their_rewards() -> None:
    world = env.Delayed(
        env.OutcomesMAB([1.0, 20.0], [[0.2, 0.02], [0.3, 0.1]], [0.5, 4.0]),
        delay=env.Uniform(0.0, 30.0),
        window=30,
    )
    told = mab.OutcomesPosterior(categories=2)
    for how in ("at_once", "wait"):
        run = play(mab.Pending(told, how=how), world, ROUNDS, 0, 0, compiled=False)
        assert run.pulls.sum() == ROUNDS[-1]


def test_a_zero_adds_to_pulls_only() -> None:
    """Whatever plays with fractional pulls keeps nothing else about rewards of zero."""
    for spec in filter(is_additive, SPECS.values()):
        state = kernel.init(spec, 2)
        for _ in range(5):
            kernel.update(spec, state, 0, 0.0)
        sums = [array for _, declared, array in arrays(state) if declared.is_sum]
        assert not any(array.any() for array in sums), spec
        assert state.pulls.tolist() == [5.0, 0.0], spec
        assert not state.nonzero.any(), spec


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n, s in SPECS.items() if is_additive(s)])
def test_every_additive_policy_plays_with_fractional_pulls(name: str) -> None:
    for how in ("estimated", "zero"):
        spec = mab.Pending(SPECS[name], how=how, every=5)
        run = play(spec, LATE, ROUNDS, 0, 0, compiled=False)
        assert run.pulls.sum() == ROUNDS[-1]
        assert np.isfinite(run.regret).all()


def test_bad_input() -> None:
    for make, message in (
        (lambda: mab.Pending(3), "`spec` must be a registered policy"),
        (lambda: mab.Pending(mab.Pending(UCB1)), "`spec` must not be a Pending itself"),
        (lambda: mab.Pending(UCB1, how="guess"), "`how` must be one of 'estimated'"),
        (lambda: mab.Pending(mab.Windowed(UCB1, 9), how="zero"), "`how` must be 'wait', 'at_once'"),
        (lambda: mab.Pending(UCB1, every=0), "`every` must lie in"),
        (lambda: mab.Pending(UCB1, prior_rewards=0.0), "`prior_rewards` must lie in"),
        (lambda: mab.Pending(UCB1, per_arm=3), "`per_arm` must be True or False"),
    ):
        with pytest.raises((InvalidParameterError, TypeError), match=message):
            make()
