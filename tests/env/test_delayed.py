"""Rewards that come late: what the environment draws, and what it refuses."""

from __future__ import annotations

import math

import numpy as np
import pytest

from zib.core.validate import InvalidParameterError
from zib.env import (
    Constant,
    ContextualGLM,
    Delayed,
    Exponential,
    Gaussian,
    GaussianMAB,
    Lomax,
    PathMAB,
    RandomMAB,
    Uniform,
    from_dict,
)

SHOP = GaussianMAB(means=[2.0, 3.0], probs=[0.1, 0.3], sigma=0.5)


def test_fractions_in_closed_form() -> None:
    env = Delayed(SHOP, delay=[Exponential(4.0), Lomax(8.0, 1.5)], window=20)
    assert env.fraction(0, 4.0) == pytest.approx((1 - math.exp(-1)) / (1 - math.exp(-5)))
    assert env.fraction(1, 4.0) == pytest.approx((1 - 2**-1.5) / (1 - 6**-1.5))
    assert env.fraction(0, [-1.0, 0.0, 20.0, 99.0]).tolist() == [0.0, 0.0, 1.0, 1.0]


def test_delays_longer_than_the_window_never_happen(rng) -> None:
    # nearly all delays of this law are longer: drawing until one is short would take for ever
    delay, _ = Delayed(SHOP, delay=Exponential(1e9), window=10).sample_delays(0, rng, 20_000)
    # given that it is short, it is uniform; 6 standard errors of the mean, probability 2e-9
    assert abs(delay.mean() - 5.0) < 6.0 * 10.0 / math.sqrt(12.0 * delay.size)
    fixed, _ = Delayed(SHOP, delay=Constant(3.0), window=10).sample_delays(0, rng, 5)
    assert fixed.tolist() == [3.0] * 5


def test_rewards_are_those_of_the_environment_inside() -> None:
    env = Delayed(RandomMAB("gaussian", n_arms=3), delay=Exponential(4.0), window=20)
    late, inside = (e.instance(np.random.default_rng(1)) for e in (env, env.env))
    assert late.env == inside
    drawn = [e.sample(1, np.random.default_rng(2), 50) for e in (late, inside)]
    assert np.array_equal(*drawn)
    assert late.arm_means.tolist() == inside.arm_means.tolist()


def test_a_trend_raises_late_rewards_and_keeps_the_mean(rng) -> None:
    env = Delayed(SHOP, delay=Uniform(0.0, 10.0), window=10, trend=0.8)
    delay, factor = env.sample_delays(0, rng, 1_000)
    assert factor == pytest.approx(1.0 + 0.8 * (2.0 * delay / 10.0 - 1.0))


def test_plain_data_keep_everything() -> None:
    env = Delayed(SHOP, delay=[Exponential(4.0), Uniform(0, 9)], window=9, starts=[0, 5], trend=-1)
    again = from_dict(env.to_dict())
    assert again == env
    assert again.first_rounds.tolist() == [0, 5]


LINE = PathMAB(probs=[[0.1, 0.2]], means=[1.0, 1.0], sigma=0.5)
GLM = ContextualGLM([0.6, 0.8], [1.0, 0.0], centres=[[1, 0], [0, 1]])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"env": 3}, "`env` must be a multi-armed environment whose arms do not change"),
        ({"env": LINE}, "`env` must be a multi-armed environment"),
        ({"env": GLM}, "`env` must be a multi-armed environment"),
        ({"delay": 3.0}, "`delay` must be a law with quantiles"),
        ({"delay": Gaussian(1.0, 1.0)}, "`delay` must be a law with quantiles"),
        ({"delay": [Exponential(1.0)] * 3}, "`delay` must be one law or one per arm .2.; got 3"),
        ({"delay": []}, "`delay` must name at least one law"),
        ({"delay": Constant(30.0)}, "`window` must be longer than the shortest delay"),
        ({"window": 0}, "`window` must lie in"),
        ({"starts": [1, 2]}, "`starts` must hold 2 whole numbers, one per arm, at least one"),
        ({"starts": [0, 1.5]}, "`starts` must hold 2 whole numbers"),
        ({"starts": [0]}, "`starts` must hold 2 whole numbers"),
        ({"trend": 1.5}, "`trend` must lie in"),
    ],
)
def test_what_does_not_fit_is_refused(change, message) -> None:
    with pytest.raises(InvalidParameterError, match=message):
        Delayed(**{"env": SHOP, "delay": Exponential(2.0), "window": 9, **change})
