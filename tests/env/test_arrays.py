"""Environments as arrays: every law draws what it should, and instances are those of the others."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from zib import env
from zib.core import counter
from zib.core.rng import Role, stream
from zib.core.stacked import row_of
from zib.core.validate import InvalidParameterError
from zib.env import arrays

LAWS = [
    (env.Gaussian(-1.5, 0.7), arrays.Gaussians),
    (env.GaussianMixture(2.0, 0.5), arrays.Mixtures),
    (env.Exponential(2.5), arrays.Exponentials),
    (env.LogNormal(0.3, 0.8), arrays.LogNormals),
    (env.Pareto(3.0, 2.5), arrays.Paretos),
    (env.Lomax(3.0, 2.5), arrays.Paretos),
    (env.Gamma(3.0, 2.5), arrays.Gammas),
    (env.StudentT(1.0, 2.0, 2.5), arrays.Several),
    (env.Uniform(-1.0, 3.0), arrays.Several),
    (env.QuantileTable((0.0, 0.3, 0.9, 1.0), (-1.0, 0.5, 2.0, 6.0)), arrays.Several),
]
TABLES = [
    (env.Empirical([1.0, 3.0, 7.0], [3.0, 1.0, 1.0]), arrays.Tables),
    (env.Mixture([env.Constant(2.0), env.Constant(9.0)], [0.25, 0.75]), arrays.Tables),
    (env.Constant(4.0), arrays.Several),
]
ids = [type(law).__name__ for law, _ in LAWS]


def drawn(law, arm: int, n: int, seed: int):
    s = counter.stream(seed, 0, 2)
    return np.array([arrays.draw(row_of(law, 0), arm, s) for _ in range(n)])


@pytest.mark.parametrize(("law", "kind"), LAWS, ids=ids)
def test_draws_are_those_of_the_law(law, kind, seed: int, rng) -> None:
    found = arrays.world_of(env.MAB([law, env.ZeroInflated(law, 0.2)]), seed, 0, 1).arrays
    assert type(found.law) is kind
    assert found.prob.tolist() == [[1.0, 0.2]]
    draws = drawn(found.law, 1, 4_000, seed)
    # two samples, Kolmogorov-Smirnov at level 1e-6
    assert stats.ks_2samp(draws, law.sample(rng, 20_000)).pvalue > 1e-6


@pytest.mark.parametrize(("law", "kind"), TABLES, ids=["Empirical", "Mixture", "Constant"])
def test_tables_are_drawn_by_their_weights(law, kind, seed: int, rng) -> None:
    found = arrays.world_of(env.MAB([env.ZeroInflated(law, 0.2)]), seed, 0, 1).arrays
    assert type(found.law) is kind
    values, counts = np.unique(drawn(found.law, 0, 3_000, seed), return_counts=True)
    known, wanted = np.unique(law.sample(rng, 60_000), return_counts=True)
    assert values.tolist() == known.tolist()
    # chi-squared at level 1e-6 (nothing to test where there is one value)
    if values.size > 1:
        assert stats.chi2_contingency([counts, wanted]).pvalue > 1e-6


def test_arms_of_different_kinds_share_one_environment(seed: int) -> None:
    laws = [law for law, _ in [*LAWS, *TABLES]]
    world = arrays.world_of(env.MAB([env.ZeroInflated(law, 0.1) for law in laws]), seed, 0, 1)
    assert type(world.arrays.law) is arrays.Several
    for k, law in enumerate(laws):
        draws = drawn(world.arrays.law, k, 2_000, seed)
        sd = math.sqrt(law.variance) if math.isfinite(law.variance) else 20.0
        assert abs(draws.mean() - law.mean) <= 6.0 * sd / math.sqrt(2_000) + 1e-12
    mab = env.MAB([env.ZeroInflated(law, 0.1) for law in laws])
    np.testing.assert_array_equal(world.arrays.gap[0], mab.gaps)


@pytest.mark.parametrize("family", ["gaussian", "mixture", "exponential"])
def test_random_instances_are_those_of_the_other_backends(family) -> None:
    maker = env.RandomMAB(family, n_arms=4, probs=(0.1, 0.4))
    world = arrays.world_of(maker, 11, 5, 9)
    for row, replication in enumerate(range(5, 9)):
        instance = maker.instance(stream(11, Role.INSTANCE, replication))
        np.testing.assert_array_equal(world.arrays.prob[row], instance.probs)
        np.testing.assert_allclose(world.arrays.gap[row], instance.gaps, rtol=1e-13, atol=1e-15)
        np.testing.assert_array_equal(world.arrays.law.mean[row], instance.magnitudes)
        for kind in ("subgaussian", "subexponential"):
            np.testing.assert_allclose(
                world.reward_sizes(kind)[row], instance.reward_sizes(kind), rtol=1e-9
            )


def test_other_generators_are_asked_for_each_instance() -> None:
    class Two(env.Environment):
        n_arms = 2

        def instance(self, rng):
            return env.ExponentialMAB(rng.uniform(1.0, 2.0, 2), [0.2, 0.3])

    world = arrays.world_of(Two(), 3, 0, 5)
    assert world.arrays.law.mean.shape == (5, 2)
    assert len(np.unique(world.arrays.law.mean)) == 10


@pytest.mark.parametrize(
    "environment",
    [
        env.DriftingMAB(n_arms=3, prob_speed=0.1),
        env.Delayed(env.RandomMAB("gaussian"), delay=env.Exponential(2.0), window=9),
        env.MAB([env.Mixture([env.Gaussian(0.0, 1.0), env.Constant(1.0)], [0.5, 0.5])]),
        env.DisjointContextual(),
    ],
    ids=["drifting", "delayed", "mixture of laws", "disjoint"],
)
def test_what_cannot_be_drawn_is_refused_in_one_sentence(environment) -> None:
    with pytest.raises(InvalidParameterError, match=r"^`env` must have arms .*; got "):
        arrays.world_of(environment, 0, 0, 2)
