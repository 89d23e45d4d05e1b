"""Environments: derived quantities, streams, random instances, ids, plain data, bad input."""

import json
import math
import pickle
from itertools import pairwise

import numpy as np
import pytest
from scipy import stats

from zib import InvalidParameterError, theory
from zib.cases.loan.market import CUT_LEVELS, CUT_PRICES, price_quantile
from zib.env import (
    MAB,
    PAPER_PROBS,
    Exponential,
    ExponentialMAB,
    Gaussian,
    GaussianMAB,
    LoanMarket,
    MixtureMAB,
    Pareto,
    RandomMAB,
    ZeroInflated,
    from_dict,
    list_ids,
    make,
    register_id,
)

ENVIRONMENTS = [
    MAB([ZeroInflated(Pareto(2.0, 1.5), 0.1), Exponential(0.5)]),
    GaussianMAB([1.0, 2.0, -1.0], [0.3, 0.1, 0.5], 0.5),
    GaussianMAB([1.0, 2.0], [0.3, 0.1], 0.5, inflated=1.5),
    MixtureMAB([1.0, 2.0], [0.3, 0.1], 0.5, offset=2.0),
    ExponentialMAB([1.0, 2.0], [0.3, 0.1]),
    LoanMarket(),
]
GENERATORS = [RandomMAB(family, n_arms=4) for family in ("gaussian", "mixture", "exponential")]
kinds = [type(env).__name__ for env in ENVIRONMENTS]


def test_derived_quantities():
    env = GaussianMAB(means=[1.0, 2.0, -1.0], probs=[0.3, 0.2, 0.5], sigma=0.5)
    np.testing.assert_allclose(env.arm_means, [0.3, 0.4, -0.5])
    np.testing.assert_allclose(env.gaps, [0.1, 0.0, 0.9])
    np.testing.assert_array_equal(env.probs, [0.3, 0.2, 0.5])
    np.testing.assert_array_equal(env.magnitudes, [1.0, 2.0, -1.0])
    np.testing.assert_allclose(env.variances, [0.285, 0.69, 0.375])
    assert (env.n_arms, env.best_arm, env.best_mean) == (3, 1, 0.4)
    np.testing.assert_array_equal(env.component_sizes(), [0.5, 0.5, 0.5])
    assert env.component_size() == 0.5
    tau = [math.sqrt(theory.product_variance_proxy(m, p, 0.5)) for m, p in [(1, 0.3), (2, 0.2)]]
    np.testing.assert_allclose(env.reward_sizes()[:2], tau)
    assert not env.arm_means.flags.writeable


def test_an_environment_of_a_user_with_a_constructor_of_its_own():
    class Twins(MAB):
        def __init__(self, law, n_arms):
            super().__init__([law] * n_arms)
            self.comment = "all alike"

    env = Twins(Exponential(2.0), 3)
    assert env.arm_means.tolist() == [2.0, 2.0, 2.0]
    assert env.comment == "all alike"
    with pytest.raises(AttributeError, match="cannot be changed"):
        env.laws = ()


def test_inflated_value_moves_the_mean_only():
    moved = GaussianMAB([3.5, 2.5], [0.3, 0.2], 0.5, inflated=1.5)
    plain = GaussianMAB([2.0, 1.0], [0.3, 0.2], 0.5)
    np.testing.assert_allclose(moved.arm_means, plain.arm_means + 1.5)
    np.testing.assert_allclose(moved.variances, plain.variances)
    np.testing.assert_allclose(moved.reward_sizes(), plain.reward_sizes())
    assert (moved.inflated, plain.inflated, MAB([Exponential(1.0)]).inflated) == (1.5, 0.0, 0.0)


def test_sub_exponential_sizes():
    env = ExponentialMAB([1.0, 3.0], [0.3, 0.1])
    assert np.isinf(env.component_sizes("subgaussian")).all()
    sizes = env.component_sizes("subexponential")
    np.testing.assert_allclose(sizes[1], 3 * sizes[0])
    alpha = theory.product_subexponential_size(3.0, 0.1, sizes[1])
    assert env.reward_sizes("subexponential")[1] == pytest.approx(float(alpha))
    assert MixtureMAB([1.0], [0.5], 0.5).component_size() == pytest.approx(math.sqrt(1.25))


@pytest.mark.parametrize("env", ENVIRONMENTS, ids=kinds)
def test_sampling(env, seed):
    for arm in range(env.n_arms):
        draws = env.sample(arm, np.random.default_rng(seed), 2000)
        assert draws.shape == (2000,)
        assert draws.dtype == np.float64
        np.testing.assert_array_equal(draws, env.sample(arm, np.random.default_rng(seed), 2000))
        paid = np.count_nonzero(draws != getattr(env.laws[arm], "inflated", math.nan))
        # Exact binomial test at 1e-6; 14 arms in all.
        assert stats.binomtest(paid, 2000, env.probs[arm]).pvalue > 1e-6
    before = np.random.default_rng(seed)
    assert env.instance(before) is env
    assert before.random() == np.random.default_rng(seed).random()


@pytest.mark.parametrize("env", [*ENVIRONMENTS, *GENERATORS], ids=repr)
def test_plain_data_round_trip(env):
    assert from_dict(json.loads(json.dumps(env.to_dict()))) == env
    assert pickle.loads(pickle.dumps(env)) == env
    rebuilt = type(env)(**env.parameters())
    assert rebuilt == env
    assert hash(rebuilt) == hash(env)
    assert repr(env).startswith(type(env).__name__)


def test_environments_differ_by_their_parameters():
    assert GaussianMAB([1.0], [0.5], 0.5) != GaussianMAB([1.0], [0.5], 0.6)
    assert RandomMAB("gaussian") != RandomMAB("mixture")
    assert GaussianMAB([1.0], [0.5], 0.5) == MAB([ZeroInflated(Gaussian(1.0, 0.5), 0.5)])


@pytest.mark.parametrize("maker", GENERATORS, ids=lambda m: m.family)
def test_instances_are_redrawn_and_reproducible(maker, seed):
    first = maker.instance(np.random.default_rng(seed))
    assert first == maker.instance(np.random.default_rng(seed))
    assert first != maker.instance(np.random.default_rng(seed + 1))
    drawn = [maker.instance(np.random.default_rng((seed, i))) for i in range(400)]
    means = np.concatenate([env.magnitudes for env in drawn])
    probs = np.concatenate([env.probs for env in drawn])
    # Kolmogorov-Smirnov at level 1e-5, six tests in all.
    assert stats.kstest(means, stats.uniform(1, 2).cdf).pvalue > 1e-5
    assert stats.kstest(probs, stats.uniform(0.3, 0.05).cdf).pvalue > 1e-5
    kind = "subexponential" if maker.family == "exponential" else "subgaussian"
    assert max(env.component_size(kind) for env in drawn) <= maker.component_size(kind)


def test_ids():
    ids = list_ids()
    assert len([name for name in ids if name.startswith("paper-mab-")]) == 18
    for name in ids:
        assert make(name) == make(name)
    env = make("paper-mab-exponential-tiny-v1")
    assert (env.family, env.n_arms, env.probs) == ("exponential", 10, PAPER_PROBS["tiny"])
    with pytest.raises(InvalidParameterError, match="did you mean 'paper-mab-gaussian-p30-v1'"):
        make("paper-mab-gauss-p30-v1")
    with pytest.raises(InvalidParameterError, match="which is taken"):
        register_id("loan-market-v1", LoanMarket)


def test_loan_market_agrees_with_what_is_published(rng):
    market = LoanMarket()
    np.testing.assert_allclose(price_quantile(CUT_LEVELS), CUT_PRICES)
    assert market.n_arms == len(market.classes) == 5
    assert market.history.prob == pytest.approx(0.22, abs=1e-9)
    # Dearer classes are accepted less and pay more; the past is the mix of the classes.
    assert (np.diff(market.probs) < 0).all()
    assert (np.diff(market.magnitudes) > 0).all()
    weights = np.diff(CUT_LEVELS)
    assert weights @ market.probs == pytest.approx(market.history.prob, abs=1e-5)
    assert weights @ market.arm_means == pytest.approx(market.history.mean, abs=1e-4)
    for arm, (low, high) in enumerate(pairwise(CUT_PRICES)):
        paid = market.sample(arm, rng, 5000)
        paid = paid[paid != 0]
        assert paid.min() > low
        assert paid.max() < high


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: MAB([]), "`laws` must name at least one law; got none"),
        (lambda: MAB([3.0]), "`laws` must hold laws such as Gaussian; got 3.0 at position 0"),
        (
            lambda: MAB([ZeroInflated(Exponential(1.0), 0.1, c) for c in (0.0, 2.0)]),
            "`laws` must share one inflated value; got [0.0, 2.0]",
        ),
        (lambda: GaussianMAB([1.0], [0.1, 0.2], 1.0), "`probs` must have one entry per mean (1)"),
        (lambda: GaussianMAB([1.0], [1.2], 1.0), "`probs` must lie in [0, 1]; got 1.2"),
        (lambda: GaussianMAB([1.0], [0.2], -1.0), "`sigma` must lie in (0, inf); got -1.0"),
        (lambda: GaussianMAB(1.0, [0.2], 1.0), "`means` must be a non-empty one-dimensional"),
        (lambda: ExponentialMAB([0.0], [0.2]), "`means` must lie in (0, inf); got 0.0 at pos"),
        (lambda: RandomMAB("normal"), "`family` must be one of"),
        (lambda: RandomMAB("gaussian", probs=(0.4, 0.3)), "`probs` must be a pair (low, high)"),
        (lambda: RandomMAB("gaussian", n_arms=0), "`n_arms` must lie in [1, inf]; got 0"),
        (lambda: RandomMAB("exponential", magnitudes=(-1, 2)), "`magnitudes` must lie in"),
        (lambda: LoanMarket(acceptance=1.0), "`acceptance` must lie in (0, 1); got 1.0"),
        (lambda: from_dict({"environment": "Slot"}), "`environment` in `data` must be one of"),
        (lambda: from_dict({"environment": "MAB"}), "`data` must hold the parameters of MAB"),
        (lambda: from_dict({"environment": "GaussianMAB", "mu": [1]}), "`data` must hold"),
        (lambda: LoanMarket().sample(5, None, 1), "`arm` must lie in [0, 4]; got 5"),
    ],
)
def test_bad_input(build, words):
    with pytest.raises(InvalidParameterError) as caught:
        build()
    assert words in str(caught.value)
