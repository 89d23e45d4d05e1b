"""What `Adaptive` believes of an arm: how often it pays and how much, with features and without."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from zib.contextual.evidence import BORROWED
from zib.contextual.models import noise
from zib.core.registry import borrowing
from zib.core.stacked import row_of
from zib.mab.adaptive import draw_magnitude, seen_magnitude, surprise
from zib.mab.pooled import LOGNORMAL, UNDECIDED
from zib.mab.sampling import is_stranger, strange_magnitude

LARGEST = 1e100  # beyond it products overflow; no reward is larger
LARGEST_LOG = 230.0  # exp of it is `LARGEST`

# --------------------------------------------------------------------------- how rewards scatter


@borrowing
def own_noise(spec: Any, state: Any, arm: int) -> float:
    """Return the variance of the noise of an arm, as its own residuals say."""
    sigma = noise(spec.magnitude, spec.sigma, row_of(state.arms.magnitude, arm))
    return min(max(sigma * sigma, 1e-200), LARGEST * LARGEST)


@borrowing
def noise_of_arm(spec: Any, state: Any, arm: int) -> float:
    """Return the variance of the noise of an arm: its own, and that of all arms for a few more."""
    n = state.plain.nonzero[arm]
    pooled = state.magnitude.noise[0]
    return float((n * own_noise(spec, state, arm) + BORROWED * pooled) / (n + BORROWED))


@borrowing
def own_noise_of_logs(spec: Any, state: Any, arm: int) -> float:
    """Return the variance of the noise of the logarithms of an arm, as its residuals say."""
    sigma = noise(spec.of_logs, np.nan, row_of(state.arms.logarithm, arm))
    return float(sigma * sigma)


@borrowing
def noise_of_logs(spec: Any, state: Any, arm: int) -> float:
    """Return the same: its own, and that of all arms for as many more as arms look alike."""
    n = state.plain.nonzero[arm]
    borrowed = max(BORROWED, state.plain.own.borrowed[0])
    pooled = state.logarithm.noise[0]
    return float((n * own_noise_of_logs(spec, state, arm) + borrowed * pooled) / (n + borrowed))


# ---------------------------------------------------------------------------- without features


@borrowing
def plain_probability(plain: Any, arm: int, drawn: float, rng: Any) -> tuple[float, float]:
    """Return how often an arm pays, whatever the features, and a variance.

    A share `drawn` of its uncertainty is in the number, which is drawn as `ZIAdaptive` does; the
    rest is in the variance.
    """
    a = plain.own.alpha[0] + plain.nonzero[arm]
    b = plain.own.beta[0] + plain.pulls[arm] - plain.nonzero[arm]
    mean, rest = a / (a + b), 1.0 - drawn
    variance = rest * rest * mean * (1.0 - mean) / (a + b + 1.0)
    if drawn > 0.0:
        mean += drawn * (rng.beta(a, b) - mean)
    return mean, variance


@borrowing
def _drawn_magnitude(plain: Any, arm: int, common: Any, rng: Any) -> float:
    """Draw how much an arm pays, whatever the features; as `ZIAdaptive` does."""
    paid, family = plain.nonzero[arm], plain.own.family[0]
    if family == UNDECIDED:
        return float(seen_magnitude(plain, arm, common.top))
    if paid > 0.0 and is_stranger(plain, paid, common.strangers, rng):
        return float(strange_magnitude(plain.total[arm] / paid, common.typical, rng))
    drawn: float = draw_magnitude(plain, arm, family, rng)
    return drawn if paid > 0.0 else drawn * surprise(common.surprises, plain.pulls.size, rng)


@borrowing
def plain_magnitude(
    plain: Any, arm: int, drawn: float, common: Any, rng: Any
) -> tuple[float, float]:
    """Return the same for how much an arm pays; of one that never paid all is drawn."""
    family = plain.own.family[0]
    if family == UNDECIDED or plain.nonzero[arm] == 0.0:
        return _drawn_magnitude(plain, arm, common, rng), 0.0
    mean, width = plain.own.expected[arm], plain.own.width[arm]
    if family == LOGNORMAL:
        width *= mean
    width *= 1.0 - drawn
    if drawn > 0.0:
        mean += drawn * (_drawn_magnitude(plain, arm, common, rng) - mean)
    return mean, width * width


# ------------------------------------------------------------------------------- with features


@borrowing
def _linear(coef: Any, columns: Any, k: int) -> float:
    """Return the linear predictor of column k; the intercept is the last coefficient."""
    last = coef.size - 1
    total = coef[last]
    for i in range(last):
        total += coef[i] * columns[i, k]
    return float(total)


@borrowing
def _uncertainty(model: Any, columns: Any, k: int) -> float:
    """Return the variance of that in units of the noise."""
    inverse = model.curvature.inverse
    last = inverse.shape[0] - 1
    total = inverse[last, last]
    for i in range(last):
        product = 2.0 * inverse[last, i] + inverse[i, i] * columns[i, k]
        for j in range(i):
            product += 2.0 * inverse[i, j] * columns[j, k]
        total += product * columns[i, k]
    return float(max(total, 0.0))


@borrowing
def of_occurrence(state: Any, arm: int, w: Any, k: int) -> tuple[float, float]:
    """Return the linear predictor of the occurrence in column k and its variance."""
    model = row_of(state.arms.occurrence, arm)
    return _linear(model.coef, w, k), _uncertainty(model, w, k)


@borrowing
def of_magnitude(spec: Any, state: Any, arm: int, z: Any, k: int) -> tuple[float, float]:
    """Return the same for the magnitude; for a log-normal law, those of the magnitude itself."""
    if state.law.logs[0] == 0.0:
        model = row_of(state.arms.magnitude, arm)
        return _linear(model.coef, z, k), noise_of_arm(spec, state, arm) * _uncertainty(model, z, k)
    model = row_of(state.arms.logarithm, arm)
    v = noise_of_logs(spec, state, arm)
    mean = math.exp(min(_linear(model.coef, z, k) + 0.5 * v, LARGEST_LOG))
    relative = v * _uncertainty(model, z, k) + 0.5 * v * v / (state.plain.nonzero[arm] + BORROWED)
    return mean, min(mean * mean * relative, LARGEST * LARGEST)


@borrowing
def weight_of_magnitude(state: Any) -> float:
    """Return the probability that magnitudes depend on features, by the law that is in force."""
    if state.law.logs[0] > 0.0:
        return float(state.logarithm.weight[0])
    return float(state.magnitude.weight[0])


@borrowing
def scatter(spec: Any, state: Any, arm: int, mu: float) -> float:
    """Return the variance of what an arm pays when it pays `mu` on average."""
    if state.law.logs[0] == 0.0:
        return noise_of_arm(spec, state, arm)
    square = min(mu * mu, LARGEST * LARGEST)
    return square * math.expm1(min(noise_of_logs(spec, state, arm), 50.0))
