"""Lemmas and rates of Thompson sampling, and Table 1, against SciPy and the printed formulas."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from zib import InvalidParameterError, theory

# ------------------------------------------------------------------------------ anti-concentration


def beta_cases(rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    alpha, beta = 10 ** rng.uniform(-2, 2.5, 20_000), 10 ** rng.uniform(-2, 2.5, 20_000)
    return alpha, beta, rng.random(20_000) * beta / (alpha + beta)


def test_the_beta_tail_is_a_lower_bound(rng: np.random.Generator) -> None:
    alpha, beta, x = beta_cases(rng)
    true = stats.beta.sf(alpha / (alpha + beta) + x, alpha, beta)
    seen = true > 1e-200
    ratio = theory.beta_tail(alpha, beta, x)[seen] / true[seen]
    assert ratio.max() < 1 + 1e-8
    assert ratio.max() > 0.99  # and tight where β is small


def test_the_printed_beta_tail_fails_for_beta_below_one(rng: np.random.Generator) -> None:
    alpha, beta, x = beta_cases(rng)
    true = stats.beta.sf(alpha / (alpha + beta) + x, alpha, beta)
    printed = theory.beta_tail(alpha, beta, x, version="printed")
    fails = (printed > true * (1 + 1e-8)) & (true > 1e-200)
    assert fails[beta < 1].mean() > 0.9
    assert not fails[beta >= 1].any()
    # the case in the docs
    assert stats.beta.sf(1 / 1.1 + 0.045, 1.0, 0.1) == pytest.approx(0.7348, abs=1e-4)
    assert theory.beta_tail(1.0, 0.1, 0.045, version="printed") == pytest.approx(1.3069, abs=1e-4)
    # the formula of the text, letter by letter
    a, b, at = 2.5, 0.7, 0.1
    wanted = math.gamma(a + b) / (b * math.gamma(b) * math.gamma(a))
    wanted *= (b / (a + b) - at) ** b * (a / (a + b) + at) ** a
    wanted *= (b + 2) / (b + 1) - (a + b) / (b + 1) * at
    assert theory.beta_tail(a, b, at, version="printed") == pytest.approx(wanted, rel=1e-12)


def product_tail(mean: float, sigma: float, alpha: float, beta: float, at: float) -> float:
    """P(N·B ≥ at) for at > 0 by quadrature over the quantiles of B."""
    q = stats.beta.ppf((np.arange(10_000) + 0.5) / 10_000, alpha, beta)
    return float(stats.norm.sf((at / q - mean) / sigma).mean())


def test_the_product_tail_needs_both_factors() -> None:
    failed = 0
    for alpha, beta in ((0.5, 0.3), (1.0, 1.0), (1.0, 8.0), (3.0, 7.0), (6.0, 2.0)):
        for mean, sigma in ((0.0, 1.0), (1.0, 0.5), (3.0, 1.0)):
            for y in (-1.0, 0.0, 0.3, 1.0, 2.0):
                x = ((2 * alpha + beta) * sigma * y + mean * beta) / (2 * (alpha + beta))
                at = mean * alpha / (alpha + beta) + x
                if at <= 0:
                    continue
                true = product_tail(mean, sigma, alpha, beta, at)
                given = (mean, sigma, alpha, beta, x)
                assert theory.gaussian_beta_tail(*given) <= true * (1 + 1e-3)
                printed = theory.gaussian_beta_tail(*given, version="printed")
                failed += printed > 1.01 * true
    assert failed > 20
    x = (22 * 0.5 + 20) / 42  # the case of the docstring
    assert product_tail(1.0, 0.5, 1.0, 20.0, 1 / 21 + x) < 6e-6
    assert theory.gaussian_beta_tail(1.0, 0.5, 1.0, 20.0, x, version="printed") > 0.12


def test_beta_draws_exceed_their_mean_with_a_constant_probability() -> None:
    """The step that would repair the lemma."""
    alpha, beta = np.meshgrid(np.geomspace(1, 1e4, 80), np.geomspace(1, 1e4, 80))
    assert stats.beta.sf(alpha / (alpha + beta), alpha, beta).min() > math.exp(-1)
    # while the one that the proof takes vanishes exponentially with the number of pulls
    p, n = 0.2, np.array([10.0, 100.0, 1000.0])
    c = 2 * theory.gaussian_beta_tail(0.0, 1.0, 1 + p * n, 1 + (1 - p) * n, -1.0)
    assert np.all(c < np.exp(-0.2 * n))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: theory.beta_tail(1.0, 1.0, 0.6), r"`x` must not exceed beta/\(alpha \+ beta\)"),
        (lambda: theory.beta_tail(0.0, 1.0, 0.1), r"`alpha` must lie in \(0, inf\)"),
        (lambda: theory.gaussian_beta_tail(-1.0, 1.0, 1.0, 1.0, 0.0), "`mean` must lie in"),
        (lambda: theory.minimax_ratio("ucb", 100), "`n_arms` must be given for 'ucb'; got None"),
        (lambda: theory.minimax_ratio("heavy_ucb", 100, n_arms=2), "`epsilon` must be given"),
        (lambda: theory.minimax_ratio("glm_ts", 100, dims=3), r"`dims` must be a pair \(d, q\)"),
        (lambda: theory.minimax_ratio("lin", 100), "`algorithm` must be one of 'ucb'"),
    ],
)
def test_bad_input(make, message: str) -> None:
    with pytest.raises(InvalidParameterError, match=message):
        make()


# -------------------------------------------------------------------------------------------- rates


def test_the_term_of_heavier_tails() -> None:
    means, probs, t = [1.0, 0.5, 0.4], [0.5, 0.4, 0.9], np.array([1e3, 1e5])
    light = theory.thompson_regret_rate(means, probs, t)
    assert np.array_equal(theory.thompson_regret_rate(means, probs, t, theta=3.0), light)
    for theta in (1.9, 1.0, 0.5):
        heavier = theory.thompson_regret_rate(means, probs, t, theta=theta)
        assert heavier - light == pytest.approx((3 * t) ** (1 / theta), rel=1e-9)
    # for θ ≤ 1 it promises nothing: rewards in (0, 1) cannot cost more than T
    assert theory.thompson_regret_rate(means, probs, 1e5, theta=1.0) > 1e5


def test_ratios_are_the_stated_rates_over_the_minimax_rate() -> None:
    k, t = 10, np.array([1e3, 1e6, 1e9])
    for epsilon in (0.3, 1.0):
        rate = k * np.sqrt(t) + t ** (1 / (1 + epsilon)) * (k * np.log(t)) ** (
            epsilon / (1 + epsilon)
        )
        found = theory.minimax_ratio("heavy_ucb", t, n_arms=k, epsilon=epsilon)
        assert found == pytest.approx(rate / np.sqrt(k * t), rel=1e-12)
        assert np.all(found > 1)
    assert theory.minimax_ratio("ts", t, n_arms=k) == pytest.approx(1 + np.sqrt(k / t))
    # the bounds with constants grow like the ratios: their quotient settles, at p = 1
    for bound, row, more in (
        (theory.light_tail_minimax_bound(k, 1.0, t, 2.0, 1.0), "ucb", {}),
        (theory.heavy_tail_minimax_bound(k, 1.0, t, 0.3, 1.0), "heavy_ucb", {"epsilon": 0.3}),
    ):
        quotient = bound / np.sqrt(k * t) / theory.minimax_ratio(row, t, n_arms=k, **more)
        assert abs(quotient[2] / quotient[1] - 1) < 0.1
    d, q = 10, 4
    parts = [m * np.log(1 + t / m) * (np.log(t) + m * np.log(1 + t / m)) for m in (d, q)]
    wanted = sum(np.sqrt(part) for part in parts) / d
    assert theory.minimax_ratio("glm_ucb", t, dims=(d, q)) == pytest.approx(wanted, rel=1e-12)
    assert theory.minimax_ratio("glm_ts", 1e5, dims=(d, q)) == pytest.approx(10.0)


def test_printed_ratios() -> None:
    t, k, e = 75_000.0, 10, 0.5

    def printed(row: str, **options) -> float:
        return theory.minimax_ratio(row, t, version="printed", **options)

    assert printed("ucb", n_arms=k) == pytest.approx(math.sqrt(math.log(t)))
    assert printed("ts", n_arms=k) == 1.0
    wanted = math.sqrt(k / t) + (k / t) ** ((e - 1) / (2 * (1 + e))) * math.log(k) ** (e / (1 + e))
    assert printed("heavy_ucb", n_arms=k, epsilon=e) == pytest.approx(wanted)
    assert printed("glm_ucb", dims=(5, 8)) == pytest.approx(math.log(8) * math.log(t / 5))
    assert printed("glm_ts", dims=(5, 8)) == pytest.approx(8 * math.log(8) * math.log(t / 5))
    # what cannot be: nobody is better than minimax
    assert printed("heavy_ucb", n_arms=2, epsilon=1.0) < 1
    assert printed("glm_ucb", dims=(1, 1)) == 0
