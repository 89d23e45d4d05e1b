from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import zib
from tests.theory import oracles
from zib import theory
from zib.core.validate import InvalidParameterError

settings.register_profile("theory", deadline=None, derandomize=True, max_examples=150)
settings.load_profile("theory")

probs = st.floats(1e-9, 1 - 1e-9)
sizes = st.floats(1e-3, 1e3)
deltas = st.floats(1e-12, 0.999)


# ------------------------------------------------------------------ sub-Weibull and friends


def test_subweibull_constants_in_each_regime() -> None:
    e = math.e
    d, tail = theory.subweibull_constants(0.5, 3.0)
    by_hand = 4 * math.sqrt(8) * e**3 * (2 * math.pi) ** 0.25 * e ** (1 / 24)
    assert d == pytest.approx(by_hand * (e ** (2 / e) / 0.5) ** 2, rel=1e-13)
    assert tail == pytest.approx(2**3.5, rel=1e-14)
    for size, factor in ((0.5, 2.0), (2.0, 2.0**0.5)):
        d, tail = theory.subweibull_constants(1.5, size)
        assert d == pytest.approx(math.sqrt(3 / (2 * e**2)) * factor, rel=1e-14)
        assert tail == pytest.approx(1 / math.sqrt(6), rel=1e-15)
    for size, factor in ((0.5, 2.0), (2.0, 2.0**0.5)):
        d, tail = theory.subweibull_constants(3.0, size)
        assert d == pytest.approx(math.sqrt(17 / (6 * e**2)) * factor, rel=1e-14)
        assert tail == 0.0
    # sub-Gaussian: 2e D C = 2 sqrt(17/6) max(1, C)
    d, _ = theory.subweibull_constants(2.0, 5.0)
    assert 2 * e * d * 5.0 == pytest.approx(2 * math.sqrt(17 / 6) * 5.0, rel=1e-14)


def test_subweibull_constants_overflow_to_infinity() -> None:
    assert theory.subweibull_constants(1e-3, 1.0) == (math.inf, math.inf)


@pytest.mark.parametrize("theta", [0.4, 1.0, 1.7, 2.0, 4.0])
@pytest.mark.parametrize("size", [0.3, 2.5])
def test_subweibull_radius_is_the_formula(theta: float, size: float) -> None:
    n, delta = 137.0, 0.03
    d, e = theory.subweibull_constants(theta, size)
    s = math.log(2 / delta)
    wanted = 2 * math.e * d * size * (math.sqrt(s / n) + e * s ** max(1 / theta, 1) / n)
    assert theory.subweibull_radius(n, delta, theta, size) == pytest.approx(wanted, rel=1e-12)
    s = math.log(4 / delta)
    half = n * 0.2 / 2
    wanted = 2 * math.e * d * size * (math.sqrt(s / half) + e * s ** max(1 / theta, 1) / half)
    found = theory.zi_subweibull_radius(n, 0.2, delta, theta, size)
    assert found == pytest.approx(wanted, rel=1e-12)


def test_simple_radii_are_their_formulas() -> None:
    level = math.log(2 / 0.1)
    assert theory.given_count_radius(40, 0.1, 3.0) == pytest.approx(3 * math.sqrt(level / 20))
    assert theory.hoeffding_radius(40, 0.1) == pytest.approx(math.sqrt(level / 80))
    wanted = 3 * math.sqrt(level / 20) + 3 * level / 40
    assert theory.subexponential_radius(40, 0.1, 3.0) == pytest.approx(wanted)
    for radius in (
        theory.given_count_radius(0, 0.1, 1.0),
        theory.hoeffding_radius(0, 0.1),
        theory.subexponential_radius(0, 0.1, 1.0),
        theory.subweibull_radius(0, 0.1, 1.0, 1.0),
        theory.zi_subweibull_radius(100, 0.0, 0.1, 1.0, 1.0),
    ):
        assert radius == math.inf


def test_given_count_is_about_five_times_tighter_than_the_lemma() -> None:
    # n p non-zero rewards with sigma = 1, C = sqrt(8/3)
    lemma = theory.zi_subweibull_radius(10_000, 0.2, 0.05, 2.0, math.sqrt(8 / 3))
    assert 5.0 < lemma / theory.given_count_radius(2000, 0.05, 1.0) < 10.0


@given(st.floats(1, 1e9), deltas, st.floats(0.1, 5), sizes)
def test_radii_shrink_with_data_and_grow_with_confidence(
    n: float, delta: float, theta: float, size: float
) -> None:
    radius = theory.subweibull_radius(n, delta, theta, size)
    assert theory.subweibull_radius(2 * n, delta, theta, size) < radius
    assert theory.subweibull_radius(n, delta / 2, theta, size) > radius
    assert theory.subweibull_radius(n, delta, theta, 2 * size) >= radius * (1 - 1e-12)


@pytest.mark.parametrize("prob", [0.005, 0.3, 1.0])
def test_threshold_of_validity(prob: float) -> None:
    from scipy import stats

    delta = 0.05
    printed = theory.zi_subweibull_min_n(prob, delta)
    assert printed == pytest.approx(4 * math.log(2 / delta) / prob**2)
    sharp = theory.zi_subweibull_min_n(prob, delta, method="kl")
    assert sharp < printed
    # exactly: P(B < np/2) <= delta/2 from there on
    for factor in (1.0, 1.7, 4.0):
        n = math.ceil(sharp * factor)
        assert stats.binom.cdf(math.ceil(n * prob / 2) - 1, n, prob) <= delta / 2


# ------------------------------------------------------------------ Bernoulli


@pytest.mark.parametrize("p", [1e-9, 1e-5, 0.003, 0.1, 0.35, 0.5, 0.8, 0.97, 1 - 1e-7])
def test_kl_bounds_match_bisection(p: float) -> None:
    for n in 10.0 ** np.arange(0, 13, 1.5):
        for level in (0.01, 1.0, 10.0, 60.0):
            wanted = oracles.kl_bound(p, level / n, upper=True)
            assert theory.kl_upper(p, n, level) == pytest.approx(wanted, rel=1e-12, abs=0)
            wanted = oracles.kl_bound(p, level / n, upper=False)
            assert theory.kl_lower(p, n, level) == pytest.approx(wanted, rel=1e-12, abs=1e-300)


def test_kl_bounds_at_the_ends() -> None:
    assert theory.kl_upper(0.0, 50, 3.0) == pytest.approx(1 - math.exp(-0.06), rel=1e-14)
    assert theory.kl_lower(1.0, 50, 3.0) == pytest.approx(math.exp(-0.06), rel=1e-14)
    assert theory.kl_upper(1.0, 50, 3.0) == 1.0
    assert theory.kl_lower(0.0, 50, 3.0) == 0.0
    assert theory.kl_upper(0.3, 0, 3.0) == 1.0
    assert theory.kl_lower(0.3, 0, 3.0) == 0.0
    assert theory.kl_upper(0.3, 50, 0.0) == 0.3


@given(probs, st.floats(1, 1e9), st.floats(1e-3, 100))
def test_kl_bounds_are_symmetric_monotone_and_around_the_estimate(
    p: float, n: float, level: float
) -> None:
    upper, lower = theory.kl_upper(p, n, level), theory.kl_lower(p, n, level)
    assert 0 <= lower <= p <= upper <= 1
    assert theory.kl_upper(p, 2 * n, level) <= upper * (1 + 1e-13)
    assert theory.kl_upper(p, n, 2 * level) >= upper * (1 - 1e-13)
    assert 1 - theory.kl_lower(1 - p, n, level) == pytest.approx(upper, rel=1e-9)


@given(st.integers(0, 200), st.integers(1, 200), deltas)
def test_kl_is_never_wider_than_hoeffding(successes: int, n: int, delta: float) -> None:
    successes = min(successes, n)
    wide = theory.bernoulli_upper(successes, n, delta)
    assert theory.bernoulli_upper(successes, n, delta, method="kl") <= wide * (1 + 1e-13)
    narrow = theory.bernoulli_lower(successes, n, delta)
    assert theory.bernoulli_lower(successes, n, delta, method="kl") >= narrow - 1e-13


def test_bernoulli_bounds_are_capped() -> None:
    assert theory.bernoulli_upper(9, 10, 0.05) == 1.0
    assert theory.bernoulli_lower(1, 10, 0.05) == 0.0
    assert theory.bernoulli_upper(0, 0, 0.05) == 1.0
    assert theory.bernoulli_lower(0, 0, 0.05, method="kl") == 0.0


# ------------------------------------------------------------------ products


@given(st.floats(-1e3, 1e3), st.floats(0, 1), st.floats(0, 1), st.floats(0, 1), st.floats(0, 10))
def test_product_upper_covers_every_pair_inside(
    upper: float, a: float, b: float, share: float, below: float
) -> None:
    low, high = min(a, b), max(a, b)
    inside = low + share * (high - low)
    found = theory.product_upper(upper, low, high)
    assert (upper - below) * inside <= found + 1e-9 * abs(found)
    assert theory.product_lower(-upper, low, high) == -found


def test_product_with_an_unknown_mean_is_infinite() -> None:
    assert theory.product_upper(math.inf, 0.1, 0.2) == math.inf


def test_unseen_upper() -> None:
    assert theory.unseen_upper(200, 4.0, 3.0) == pytest.approx(3 * (1 - math.exp(-0.02)))
    assert theory.unseen_upper(200, 4.0, -3.0) == 0.0
    assert theory.unseen_upper(0, 4.0, 3.0) == 3.0


# ------------------------------------------------------------------ heavy tails


def test_trimming_factor_is_the_formula() -> None:
    p, eps = 0.3, 0.4
    wanted = (1 + eps) * (2 / p) ** (eps / (1 + eps)) + 4 / (3 * p) + 2 / math.sqrt(p)
    assert theory.trimming_factor(p, eps) == pytest.approx(wanted, rel=1e-13)
    radius = theory.trimmed_radius(500, p, 0.1, 7.0, eps)
    wanted *= 7 ** (1 / (1 + eps)) * (math.log(20) / 500) ** (eps / (1 + eps))
    assert radius == pytest.approx(wanted, rel=1e-12)


def test_trimmed_radius_given_the_count() -> None:
    found = theory.trimmed_count_radius(np.array([0, 10, 1000]), 0.1, 7.0, 0.5)
    wanted = 4 * 7.0 ** (1 / 1.5) * (math.log(20.0) / np.array([10, 1000])) ** (0.5 / 1.5)
    assert np.isinf(found[0])
    np.testing.assert_allclose(found[1:], wanted, rtol=1e-12)
    # at epsilon = 1 it is the printed (32 log t / B)^(1/2), delta = 2/t²
    t = 500.0
    printed = math.sqrt(7.0) * math.sqrt(32 * math.log(t) / 60)
    assert theory.trimmed_count_radius(60, 2 / t**2, 7.0, 1.0) == pytest.approx(printed)


def test_trimmed_mean_keeps_what_is_below_the_growing_threshold(rng: np.random.Generator) -> None:
    x = rng.standard_t(2.5, size=200) * 3
    eps, moment, delta = 0.5, 4.0, 0.1
    kept = [
        v if abs(v) <= ((j + 1) * moment / math.log(2 / delta)) ** (1 / (1 + eps)) else 0.0
        for j, v in enumerate(x)
    ]
    assert theory.trimmed_mean(x, delta, moment, eps) == pytest.approx(sum(kept) / 200, rel=1e-12)


def test_the_centred_moment_would_not_do() -> None:
    # X = 100 exactly: the centred moment is 0 < M = 1, yet everything is trimmed.
    x = np.full(1000, 100.0)
    assert theory.trimmed_mean(x, 0.05, 1.0, 1.0) == 0.0
    assert theory.trimmed_radius(1000, 1.0, 0.05, 1.0, 1.0) < 100.0
    assert theory.trimmed_mean(x, 0.05, 1e4, 1.0) > 98.0


# ------------------------------------------------------------------ the door


def test_scalars_give_floats_and_arrays_broadcast() -> None:
    assert type(theory.kl_upper(0.1, 10, 1.0)) is float
    found = theory.kl_upper([[0.1], [0.2]], [10, 20, 30], 1.0)
    assert found.shape == (2, 3)
    assert found[1, 2] == theory.kl_upper(0.2, 30, 1.0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: theory.hoeffding_radius(10, 1.5), r"`delta` must lie in \(0, 1\); got 1.5"),
        (lambda: theory.hoeffding_radius(-1, 0.5), r"`n` must lie in \[0, inf\); got -1.0"),
        (lambda: theory.kl_upper(math.nan, 10, 1.0), r"`p_hat` must lie in \[0, 1\]; got nan"),
        (lambda: theory.kl_upper("a", 10, 1.0), "`p_hat` must hold numbers; got 'a'"),
        (lambda: theory.kl_upper(True, 10, 1.0), "`p_hat` must hold numbers; got True"),
        (lambda: theory.kl_upper([0.1, 0.2], [1, 2, 3], 1.0), "must broadcast"),
        (lambda: theory.bernoulli_upper(5, 3, 0.1), "`successes` must not exceed `n`"),
        (lambda: theory.bernoulli_upper(1, 3, 0.1, "x"), "`method` must be one of"),
        (lambda: theory.product_upper(1.0, 0.5, 0.2), "`prob_lower` must not exceed"),
        (lambda: theory.product_upper(math.nan, 0.1, 0.2), "`mean_upper` must not be NaN"),
        (lambda: theory.joint_kl_upper(5, 6, 1.0, 1.0, 1.0), "`count` must not exceed `n`"),
        (lambda: theory.joint_kl_upper(5, 2, 1.0, 1.0), "`level` must be given"),
        (lambda: theory.joint_kl_upper(5, 2, 1.0, level=1.0), "`sigma` or `spread`"),
        (lambda: theory.joint_kl_upper(5, 2, 1.0, 1.0, 1.0, spread=1.0), "not both"),
        (lambda: theory.joint_kl_upper(5, 2, 1.0, 1.0, 1.0, family="gamma"), "no meaning"),
        (lambda: theory.joint_kl_upper(5, 2, 1.0, level=1.0, family="gamma"), "`shape` must be"),
        (lambda: theory.joint_kl_upper(5, 2, -1.0, level=1.0, family="exponential"), "positive"),
        (lambda: theory.trimmed_mean([], 0.1, 1.0, 1.0), "`values` must be a non-empty"),
        (lambda: theory.trimming_factor(0.5, 2.0), r"`epsilon` must lie in \(0, 1\]; got 2.0"),
    ],
)
def test_bad_arguments_are_named(call: object, message: str) -> None:
    with pytest.raises(InvalidParameterError, match=message):
        call()  # type: ignore[operator]


def test_every_public_name_has_a_docstring_with_an_example() -> None:
    for name in zib.theory.__all__:
        doc = getattr(zib.theory, name).__doc__
        assert doc is not None
        assert ">>>" in doc, name
        assert "Returns" in doc, name
