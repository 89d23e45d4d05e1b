"""The joint bound for several outcomes against SciPy's optimisers and the two-outcome bound."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize

import zib
from zib import theory

quick = settings(deadline=None, derandomize=True, max_examples=200)


def slow_upper(counts, means, sigma, level, starts=8, seed=0):
    """Maximise Σ q_j v_j over softmax weights and shifts, from several starts, with SLSQP.

    Every value returned belongs to a point that satisfies the constraint.
    """
    rng = np.random.default_rng(seed)
    b, v, s = (np.asarray(a, dtype=float) for a in (counts, means, sigma))
    n, m = b.sum(), b.size
    moves = np.where(b > 0, s, 0.0)
    seen = b > 0
    scale = np.ptp(v) + s.max()

    def parts(z):
        w = np.exp(z[:m] - z[:m].max())
        return w / w.sum(), z[m:]

    def value(z):
        q, x = parts(z)
        return q @ (v + moves * x)

    def cost(z):
        q, x = parts(z)
        return (b[seen] * np.log(b[seen] / n / q[seen])).sum() + 0.5 * b @ (x * x)

    def loss(z):
        q, x = parts(z)
        each = v + moves * x
        return -value(z) / scale, -np.concatenate([q * (each - q @ each), q * moves]) / scale

    def slack_slope(z):
        q, x = parts(z)
        return np.concatenate([b - n * q, -b * x]) / level

    home = np.concatenate([np.log(np.maximum(b, 1e-6)), np.zeros(m)])
    rule = {"type": "ineq", "fun": lambda z: 1 - cost(z) / level, "jac": slack_slope}
    best = -math.inf
    for i in range(starts + m):
        away = np.zeros(2 * m)
        if i < m:  # one outcome pushed hard
            away[i], away[m + i] = 2.0, math.sqrt(2 * level / max(b[i], 1))
        else:
            away = rng.normal(size=2 * m)
        step = 1.0
        while cost(home + step * away) > level:
            step *= 0.8
        z = home + step * away
        for _ in range(3):  # SLSQP stops early now and then
            found = optimize.minimize(
                loss,
                z,
                jac=True,
                method="SLSQP",
                constraints=[rule],
                bounds=[(-60, 60)] * (2 * m),
                options={"maxiter": 500, "ftol": 1e-16},
            )
            z = found.x
        inside, outside = 0.0, 1.0
        if cost(z) <= level:
            inside = 1.0
        for _ in range(60 if inside == 0 else 0):
            half = 0.5 * (inside + outside)
            if cost(home + half * (z - home)) <= level:
                inside = half
            else:
                outside = half
        best = max(best, value(home + inside * (z - home)))
    return best


def _case(rng):
    m = int(rng.integers(2, 6))
    counts = np.floor(10 ** rng.uniform(0, rng.choice([1.0, 3.0]), m))
    means = rng.normal(0, 10 ** rng.uniform(-1, 1), m)
    sigma = np.where(rng.random(m) < 0.3, 0.0, 10 ** rng.uniform(-1, 1, m))
    if rng.random() < 0.3:
        counts[int(rng.integers(m))] = 0.0
    if counts.sum() == 0:
        counts[0] = 3.0
    return counts, means, sigma, float(10 ** rng.uniform(-1, 1.4))


@pytest.mark.slow
def test_against_slsqp(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for i in range(25):
        counts, means, sigma, level = _case(rng)
        found = theory.outcome_kl_upper(counts, means, sigma, level)
        wanted = slow_upper(counts, means, sigma, level, seed=i)
        scale = np.ptp(means) + sigma.max() + abs(wanted)
        assert -1e-10 < (found - wanted) / scale < 1e-6, (counts, means, sigma, level)


@pytest.mark.slow
def test_the_outcome_worth_pushing_need_not_be_the_largest() -> None:
    # the second outcome pays less and was seen once: moving its mean is cheaper
    for counts, means, sigma in [
        ([1000.0, 500.0, 1.0], [0.0, 5.0, 3.0], [0.0, 1.0, 1.0]),
        ([3.0, 1.0, 1.0], [0.0, 2.0, 2.0], [0.0, 3.0, 3.0]),
        ([30.0, 2.0, 1.0, 1.0], [0.0, 2.0, 1.0, -4.0], [0.0, 1.0, 2.0, 6.0]),
    ]:
        for level in (0.5, 2.0, 6.0, 14.0, 40.0):
            found = theory.outcome_kl_upper(counts, means, sigma, level)
            wanted = slow_upper(counts, means, sigma, level, starts=20)
            assert found == pytest.approx(wanted, rel=1e-6)
            assert found >= wanted - 1e-10


@quick
@given(
    st.integers(1, 100_000),
    st.floats(0.0, 1.0),
    st.one_of(st.floats(-50, 50), st.floats(-2, 2)),
    st.floats(0.02, 20.0),
    st.floats(0.05, 40.0),
)
def test_two_outcomes_are_zero_inflation(
    n: int, share: float, mean: float, sigma: float, level: float
) -> None:
    b = max(1, min(n, round(n**share)))
    found = theory.outcome_kl_upper([n - b, b], [0.0, mean], [0.0, sigma], level)
    wanted = theory.joint_kl_upper(n, b, mean * b, sigma, level)
    assert found == pytest.approx(wanted, rel=1e-10, abs=1e-15 * (abs(mean) + sigma))


def test_two_known_values_are_a_bernoulli_bound() -> None:
    for b in (0, 1, 3, 50, 100):
        found = theory.outcome_kl_upper([100 - b, b], [0.0, 7.0], 0.0, 3.0)
        assert found == pytest.approx(7.0 * theory.kl_upper(b / 100, 100, 3.0), rel=1e-11)
        found = theory.outcome_kl_upper([100 - b, b], [0.0, -7.0], 0.0, 3.0)
        wanted = -7.0 * theory.kl_lower(b / 100, 100, 3.0)
        assert found == pytest.approx(wanted, rel=1e-11, abs=1e-14)


def test_known_values_against_the_dual(rng: np.random.Generator) -> None:
    # min over eta of eta - exp(-level/n) exp(Σ q_j log(eta - v_j)), a convex problem
    for _ in range(200):
        m = int(rng.integers(2, 7))
        counts = rng.integers(1, 60, m).astype(float)
        values = rng.normal(0, 5, m)
        level = float(10 ** rng.uniform(-2, 1.5))
        n = counts.sum()
        share = counts / n

        def dual(t, share=share, values=values, level=level, n=n):
            eta = values.max() + math.exp(t)
            return eta - math.exp(-level / n) * math.exp(share @ np.log(eta - values))

        wanted = optimize.minimize_scalar(
            dual, bounds=(-40, 15), method="bounded", options={"xatol": 1e-10}
        ).fun
        found = theory.outcome_kl_upper(counts, values, 0.0, level)
        assert found == pytest.approx(wanted, rel=1e-9, abs=1e-9)


def test_first_order_width() -> None:
    counts = np.array([9e5, 6e4, 3e4, 1e4])
    means, sigma = np.array([0.0, 1.0, 20.0, -15.0]), np.array([0.0, 0.3, 5.0, 4.0])
    share = counts / counts.sum()
    mean = share @ means
    variance = share @ (sigma**2 + (means - mean) ** 2)
    found = theory.outcome_kl_upper(counts, means, sigma, 5.0)
    assert found - mean == pytest.approx(math.sqrt(2 * 5.0 * variance / 1e6), rel=0.01)


def test_one_outcome_only() -> None:
    assert theory.outcome_kl_upper([10.0], [2.0], [0.5], 3.0) == pytest.approx(
        2.0 + 0.5 * math.sqrt(0.6), rel=1e-12
    )
    assert theory.outcome_kl_upper([10.0], [2.0], [0.0], 3.0) == 2.0
    # zeros only, and one outcome that could pay 4
    found = theory.outcome_kl_upper([10.0, 0.0], [0.0, 4.0], 0.0, 3.0)
    assert found == pytest.approx(theory.unseen_upper(10, 3.0, 4.0), rel=1e-12)
    assert theory.outcome_kl_upper([10.0, 0.0], [0.0, -4.0], 0.0, 3.0) == 0.0
    assert theory.outcome_kl_upper([0.0, 0.0], [0.0, 1.0], 0.0, 3.0) == math.inf
    assert theory.outcome_kl_upper([3.0, 1.0], [0.0, 4.0], [0.0, 1.0], 0.0) == 1.0


def test_grows_with_the_level_and_broadcasts() -> None:
    levels = np.linspace(0.0, 30.0, 300)
    found = theory.outcome_kl_upper([40.0, 3.0, 2.0], [0.0, 1.0, 20.0], [0.0, 0.5, 8.0], levels)
    assert found.shape == (300,)
    assert (np.diff(found) > 0).all()
    two = theory.outcome_kl_upper([[40.0, 3.0], [40.0, 4.0]], [0.0, 1.0], 0.0, [[1.0], [2.0]])
    assert two.shape == (2, 2)
    assert two[1, 0] == theory.outcome_kl_upper([40.0, 3.0], [0.0, 1.0], 0.0, 2.0)


def test_scales_with_the_unit_of_the_rewards(rng: np.random.Generator) -> None:
    for _ in range(50):
        counts, means, sigma, level = _case(rng)
        one = theory.outcome_kl_upper(counts, means, sigma, level)
        for unit in (1e-80, 1e80):
            many = theory.outcome_kl_upper(counts, unit * means, unit * sigma, level)
            assert many == pytest.approx(unit * one, rel=1e-9)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (([-1.0, 2.0], [0.0, 1.0], 1.0, 1.0), "`counts` must lie in"),
        (([1.0, 2.0], [0.0, math.inf], 1.0, 1.0), "`means` must lie in"),
        (([1.0, 2.0], [0.0, 1.0], -1.0, 1.0), "`sigma` must lie in"),
        (([1.0, 2.0], [0.0, 1.0], 1.0, -1.0), "`level` must lie in"),
        (([1.0, 2.0, 3.0], [0.0, 1.0], 1.0, 1.0), "must have one entry per outcome"),
        ((3.0, [0.0, 1.0], 1.0, 1.0), "`counts` must have one entry per outcome"),
    ],
)
def test_bad_input(arguments: tuple, words: str) -> None:
    with pytest.raises(zib.InvalidParameterError, match=words):
        theory.outcome_kl_upper(*arguments)
