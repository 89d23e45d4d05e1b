"""The estimators, as columns of numbers per row whose means give the value.

Every estimator here is  mean(plain) + mean(numerator) / mean(denominator),  with either part
possibly missing. With w = π(a|x)/b(a|x) the weight of a row, q = q̂(x, a) the model's prediction for
the arm played and v = Σₐ π(a|x) q̂(x, a) its prediction for the target policy:

=========  ===================  =============  ===========
name       plain                numerator      denominator
=========  ===================  =============  ===========
ips        w·r
snips                           w·r            w
clipped    min(w, c)·r
replay                          accepted·r     accepted
dm         v
dr         v + w·(r − q)
sndr       v                    w·(r − q)      w
switch     v + w·(r − q)·[w≤c]
=========  ===================  =============  ===========
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from zib.stats.moments import JointMoments

Array = NDArray[np.float64]


class Kind(NamedTuple):
    """What an estimator needs and is made of."""

    plain: bool
    ratio: bool
    model: bool = False

    @property
    def width(self) -> int:
        """Number of columns."""
        return self.plain + 2 * self.ratio


ESTIMATORS: dict[str, Kind] = {
    "replay": Kind(plain=False, ratio=True),
    "ips": Kind(plain=True, ratio=False),
    "snips": Kind(plain=False, ratio=True),
    "clipped": Kind(plain=True, ratio=False),
    "dm": Kind(plain=True, ratio=False, model=True),
    "dr": Kind(plain=True, ratio=False, model=True),
    "sndr": Kind(plain=True, ratio=True, model=True),
    "switch": Kind(plain=True, ratio=False, model=True),
}

# What a log's own policy gets under every estimator: the plain mean of the rewards.
ON_POLICY = Kind(plain=True, ratio=False)


class RowValues(NamedTuple):
    """What the estimators use of each row; what is not needed may be None."""

    weight: Array
    reward: Array
    predicted: Array | None = None
    policy_predicted: Array | None = None
    accepted: Array | None = None


def columns(estimator: str, rows: RowValues, clip: float = 10.0) -> Array:
    """Return the columns of an estimator: (n, width), in the order of the table above."""
    w, r = rows.weight, rows.reward
    if estimator == "ips":
        return (w * r)[:, None]
    if estimator == "clipped":
        return (np.minimum(w, clip) * r)[:, None]
    if estimator == "snips":
        return np.stack((w * r, w), axis=1)
    if estimator == "replay":
        accepted = _given(rows.accepted)
        return np.stack((accepted * r, accepted), axis=1)
    q, v = _given(rows.predicted), _given(rows.policy_predicted)
    if estimator == "dm":
        return v[:, None]
    if estimator == "dr":
        return (v + w * (r - q))[:, None]
    if estimator == "sndr":
        return np.stack((v, w * (r - q), w), axis=1)
    return (v + np.where(w <= clip, w, 0.0) * (r - q))[:, None]


def _given(values: Array | None) -> Array:
    if values is None:
        raise TypeError("this estimator needs predictions (or accepted rows)")
    return values


def value_of(kind: Kind, mean: Array) -> float:
    """Return the estimate from the means of its columns; NaN where a denominator is 0."""
    return float(values_of(kind, mean[None, :])[0])


def values_of(kind: Kind, means: Array) -> Array:
    """Return the estimates of several sets of means: (B, width) to (B,)."""
    out: Array = means[:, 0].copy() if kind.plain else np.zeros(len(means))
    if kind.ratio:
        with np.errstate(divide="ignore", invalid="ignore"):
            out += means[:, -2] / means[:, -1]
    return out


def gradients_of(kind: Kind, means: Array) -> Array:
    """Return the derivatives of the estimates with respect to the means: (B, width).

    The influence of a row on the estimate is its centred columns times this: the delta method.
    """
    out = np.ones_like(means)
    if kind.ratio:
        with np.errstate(divide="ignore", invalid="ignore"):
            out[:, -2] = 1.0 / means[:, -1]
            out[:, -1] = -means[:, -2] / means[:, -1] ** 2
    return out


class Spread(NamedTuple):
    """What an interval needs: standard error, skewness and degrees of freedom of an estimate."""

    error: float
    skewness: float
    freedom: float


class Summary(NamedTuple):
    """An estimate with its spread."""

    value: float
    spread: Spread


def summarise(kinds: tuple[Kind, ...], signs: Array, moments: JointMoments) -> Summary:
    """Return Σ sign·estimate over estimators whose columns stand side by side.

    One kind and sign 1 give a value; two kinds and signs (1, −1) the difference of two policies
    from the same rows, whose common noise cancels.
    """
    value, direction, at = 0.0, np.zeros(moments.mean.size), 0
    for kind, sign in zip(kinds, signs, strict=True):
        part = slice(at, at + kind.width)
        mean = moments.mean[part]
        value += float(sign) * value_of(kind, mean)
        direction[part] = sign * gradients_of(kind, mean[None, :])[0]
        at += kind.width
    if not np.isfinite(direction).all():
        return Summary(float("nan"), Spread(float("nan"), 0.0, 0.0))
    variance, third = moments.along(direction)
    n = moments.n
    if variance <= 0.0 or n < 2:
        return Summary(value, Spread(0.0, 0.0, 0.0))
    skewness = third / variance**1.5 / math.sqrt(n)
    return Summary(value, Spread(math.sqrt(variance / (n - 1)), skewness, n - 1.0))


def estimate(estimator: str, rows: RowValues, clip: float = 10.0) -> Summary:
    """Return one estimate from arrays that are in memory."""
    kind = ESTIMATORS[estimator]
    moments = JointMoments(kind.width)
    moments.add(columns(estimator, rows, clip))
    return summarise((kind,), np.ones(1), moments)
