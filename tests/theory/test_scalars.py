"""Scalar formulas: the same bits compiled and interpreted, and no exception in the corners."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from zib.theory import (
    bernoulli,
    contextual,
    divergence,
    joint_gaussian,
    joint_positive,
    means,
    products,
    sizes,
    subweibull,
)
from zib.theory._vectorise import ufunc_of

Draw = Callable[[np.random.Generator], tuple[float, ...]]


def _log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    return float(10.0 ** rng.uniform(low, high))


def _prob(rng: np.random.Generator) -> float:
    kind = rng.integers(6)
    if kind == 0:
        return float(rng.choice([0.0, 1.0, 0.5, 1e-300, 1.0 - 1e-16]))
    if kind == 1:
        return 1.0 - _log_uniform(rng, -12, -1)
    return _log_uniform(rng, -9, 0) if kind < 4 else float(rng.uniform())


def _n(rng: np.random.Generator) -> float:
    return float(rng.choice([0.0, 1.0, float(int(_log_uniform(rng, 0, 12)))]))


def _level(rng: np.random.Generator) -> float:
    return float(rng.choice([0.0, _log_uniform(rng, -2, 2), 5.0]))


def _mean(rng: np.random.Generator) -> float:
    sign = float(rng.choice([-1.0, 1.0]))
    return float(
        rng.choice([0.0, sign * _log_uniform(rng, -6, 6), sign * _log_uniform(rng, -1, 1)])
    )


def _size(rng: np.random.Generator) -> float:
    return float(rng.choice([_log_uniform(rng, -6, 6), _log_uniform(rng, -1, 1)]))


def _joint(rng: np.random.Generator, positive: bool = False) -> tuple[float, ...]:
    n = float(int(_log_uniform(rng, 0, 6)))
    count = float(rng.choice([0.0, 1.0, n, float(rng.integers(0, int(n) + 1))]))
    mean = abs(_mean(rng)) if positive else _mean(rng)
    return n, count, mean, _size(rng), _level(rng)


SCALARS: dict[Callable[..., float], Draw] = {
    bernoulli.bernoulli_kl: lambda r: (_prob(r), _prob(r)),
    bernoulli.kl_upper_scalar: lambda r: (_prob(r), _n(r), _level(r)),
    bernoulli.kl_lower_scalar: lambda r: (_prob(r), _n(r), _level(r)),
    bernoulli.hoeffding_radius_scalar: lambda r: (_n(r), _level(r)),
    means.given_count_radius_scalar: lambda r: (_n(r), _level(r), _size(r)),
    means.subexponential_radius_scalar: lambda r: (_n(r), _level(r), _size(r)),
    subweibull.subweibull_d: lambda r: (_log_uniform(r, -3, 1), _size(r)),
    subweibull.subweibull_e: lambda r: (_log_uniform(r, -3, 1),),
    subweibull.subweibull_radius_scalar: lambda r: (
        _n(r),
        _level(r),
        _log_uniform(r, -3, 1),
        _size(r),
    ),
    means.trim_threshold: lambda r: (_n(r), 5.0, _size(r), _log_uniform(r, -2, 0)),
    means.trimmed_count_radius_scalar: lambda r: (_n(r), 5.0, _size(r), _log_uniform(r, -2, 0)),
    means.trimming_factor_scalar: lambda r: (_prob(r), _log_uniform(r, -2, 0)),
    products.signed_product: lambda r: (_mean(r), _prob(r), _prob(r)),
    products.error_share_scalar: lambda r: (_prob(r),),
    products.unseen_upper_scalar: lambda r: (_n(r), _level(r), _mean(r)),
    joint_gaussian.joint_kl_upper_gaussian: _joint,
    joint_gaussian.joint_kl_upper_gaussian_unknown: _joint,
    joint_positive.joint_kl_upper_gamma: lambda r: _joint(r, positive=True),
    joint_positive.joint_kl_lower_gamma: lambda r: _joint(r, positive=True),
    joint_positive.joint_kl_upper_lognormal: _joint,
    joint_positive.joint_kl_lower_lognormal: _joint,
    divergence.divergence_to_gaussian: lambda r: (_mean(r), _prob(r), _mean(r), _size(r)),
    divergence.divergence_to_gaussian_unknown: lambda r: (_mean(r), _prob(r), _mean(r), _size(r)),
    divergence.divergence_to_gamma: lambda r: (_size(r), _prob(r), _size(r), _size(r)),
    contextual.contextual_optimism_scalar: lambda r: (_level(r), _size(r)),
    sizes.variance_proxy: lambda r: (_mean(r), _prob(r), _size(r), 0.0),
    sizes.variance_proxy_argmax: lambda r: (_mean(r), _prob(r), _size(r), _mean(r)),
    sizes.proxy_value_at: lambda r: (_size(r), _mean(r), _prob(r), _size(r)),
    sizes.subexponential_square: lambda r: (_mean(r), _prob(r), _size(r)),
}


@pytest.mark.parametrize("scalar", SCALARS, ids=lambda s: s.__name__)
def test_interpreted_and_compiled_agree_to_the_last_bit(scalar: Any, seed: int) -> None:
    rng = np.random.default_rng([seed, len(scalar.__name__)])
    points = [SCALARS[scalar](rng) for _ in range(400)]
    interpreted = np.array([scalar(*point) for point in points])
    with np.errstate(all="ignore"):
        compiled = ufunc_of(scalar)(*np.array(points).T)
    np.testing.assert_array_equal(interpreted.view(np.int64), compiled.view(np.int64))
    assert not np.isnan(interpreted).any()


def test_rewards_of_any_size_raise_nothing() -> None:
    for mean in (0.0, 1e-300, 1e300, -1e300):
        for sigma in (0.0, 1e-300, 1.0, 1e300):
            joint_gaussian.joint_kl_upper_gaussian(10.0, 3.0, mean, sigma, 2.0)
            joint_gaussian.joint_kl_upper_gaussian_unknown(10.0, 3.0, mean, sigma, 2.0)
            sizes.variance_proxy(mean, 0.3, sigma, 0.0)
            sizes.subexponential_square(mean, 0.3, sigma)
    assert joint_positive.joint_kl_upper_lognormal(10.0, 1.0, 0.0, 3.0, 50.0) == math.inf


def test_any_warm_start_gives_the_same_maximum(rng: np.random.Generator) -> None:
    for _ in range(300):
        mean, prob, sigma = _mean(rng), float(rng.uniform(0.001, 0.999)), _size(rng)
        cold = sizes.variance_proxy(mean, prob, sigma, 0.0)
        for start in (math.inf, -1e9, 1e-9, _mean(rng), math.nan):
            warm = sizes.variance_proxy(mean, prob, sigma, start)
            assert warm == pytest.approx(cold, rel=1e-9)
