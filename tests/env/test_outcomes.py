"""Rewards through several outcomes: moments, sampling, sizes, plain data, bad input."""

from __future__ import annotations

import json
import math
import pickle

import numpy as np
import pytest
from scipy import integrate, stats

from zib import InvalidParameterError
from zib.env import (
    MAB,
    Constant,
    Exponential,
    Gaussian,
    Mixture,
    OutcomesMAB,
    Pareto,
    from_dict,
    law_from_dict,
)

SHOP = OutcomesMAB(
    values=[1.0, 20.0, -15.0],
    probs=[[0.10, 0.02, 0.005], [0.05, 0.03, 0.0], [0.0, 0.0, 0.0], [0.5, 0.3, 0.2]],
    sigma=[0.0, 4.0, 3.0],
)


def test_means_and_variances_by_hand() -> None:
    np.testing.assert_allclose(SHOP.arm_means, [0.425, 0.65, 0.0, 3.5])
    np.testing.assert_allclose(SHOP.probs, [0.125, 0.08, 0.0, 1.0])
    second = np.array([1.0, 400.0 + 16.0, 225.0 + 9.0])
    for k, probs in enumerate([[0.10, 0.02, 0.005], [0.05, 0.03, 0.0], [0, 0, 0], [0.5, 0.3, 0.2]]):
        wanted = np.dot(probs, second) - SHOP.arm_means[k] ** 2
        assert SHOP.variances[k] == pytest.approx(wanted, abs=1e-12)
    assert SHOP.best_arm == 3


def test_outcomes_come_as_often_as_they_should(seed: int) -> None:
    # a chi-squared test at level 1e-6
    draws = SHOP.laws[0].sample(np.random.default_rng(seed), 200_000)
    seen = [(draws == 0).sum(), (draws == 1).sum(), (draws > 1).sum(), (draws < 0).sum()]
    wanted = 200_000 * np.array([0.875, 0.10, 0.02, 0.005])
    assert stats.chisquare(seen, wanted).pvalue > 1e-6


def test_one_law_is_that_law(rng: np.random.Generator) -> None:
    law = Gaussian(1.0, 2.0)
    one = Mixture([law], [1.0])
    assert (one.mean, one.variance, one.subgaussian_size) == (1.0, 4.0, 2.0)
    assert one.moment(3.0) == law.moment(3.0)
    draws = one.sample(rng, 5000)
    assert stats.kstest(draws, stats.norm(1.0, 2.0).cdf).pvalue > 1e-6  # level 1e-6


def test_sizes_are_valid() -> None:
    law = Mixture([Constant(0.0), Gaussian(1.0, 0.5), Gaussian(20.0, 3.0)], [0.8, 0.15, 0.05])
    size = law.subgaussian_size
    for s in np.linspace(-2.0, 2.0, 81):
        mgf = 0.8 + 0.15 * math.exp(s + s * s / 8) + 0.05 * math.exp(20 * s + 4.5 * s * s)
        assert math.log(mgf) - s * law.mean <= 0.5 * s * s * size * size + 1e-12
    mixed = Mixture([Constant(0.0), Exponential(2.0)], [0.5, 0.5])
    assert mixed.subgaussian_size == math.inf
    lam = mixed.subexponential_size
    for s in np.linspace(-1 / lam, 1 / lam, 41):
        centred = math.log(0.5 + 0.5 / (1 - 2 * s)) - s * mixed.mean
        assert centred <= 0.5 * s * s * lam * lam + 1e-12
    assert Mixture([Constant(0.0), Pareto(2.0, 1.5)], [0.5, 0.5]).variance == math.inf


def test_moments_against_integration() -> None:
    law = Mixture([Constant(-3.0), Gaussian(1.0, 0.5)], [0.25, 0.75])
    part, _ = integrate.quad(lambda x: abs(x) ** 1.5 * stats.norm.pdf(x, 1.0, 0.5), -4, 6)
    assert law.moment(1.5) == pytest.approx(0.25 * 3**1.5 + 0.75 * part, rel=1e-7)


def test_plain_data() -> None:
    assert from_dict(json.loads(json.dumps(SHOP.to_dict()))) == SHOP
    assert pickle.loads(pickle.dumps(SHOP)) == SHOP
    other = MAB([Mixture([Constant(0.0), Mixture([Exponential(1.0)], [1.0])], [0.5, 0.5])])
    assert from_dict(json.loads(json.dumps(other.to_dict()))) == other
    law = SHOP.laws[0]
    assert law_from_dict(law.to_dict()) == law
    assert "OutcomesMAB" in repr(SHOP)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Constant(math.nan), "`value` must be a finite number"),
        (lambda: Mixture([Constant(0.0)], [0.5]), "`probs` must sum to 1; got 0.5"),
        (lambda: Mixture([Constant(0.0)], [0.5, 0.5]), "one entry per law"),
        (lambda: Mixture([3.0], [1.0]), "`laws` must hold laws"),
        (lambda: Mixture(7, [1.0]), "`laws` must be a sequence of laws; got 7"),
        (lambda: OutcomesMAB([1.0, 2.0], [[0.6, 0.6]]), "must sum to at most 1; got 1.2 for arm 0"),
        (lambda: OutcomesMAB([1.0, 2.0], [0.1, 0.2]), "`probs` must have one row per arm"),
        (lambda: OutcomesMAB([1.0], [[0.1, 0.2]]), "`values` must have one entry per outcome"),
        (lambda: OutcomesMAB([1.0, 2.0], [[0.1, 0.2]], [1.0]), "`sigma` must be one number"),
        (lambda: OutcomesMAB([1.0, 2.0], [[0.1, 0.2]], -1.0), "`sigma` must lie in"),
        (lambda: OutcomesMAB(["a"], [[0.1]]), "`values` must hold numbers"),
    ],
)
def test_bad_input(make, words: str) -> None:
    with pytest.raises(InvalidParameterError, match=words):
        make()
