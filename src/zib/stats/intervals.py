"""Estimates with intervals for the two parts of a reward and for their product."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from zib import theory


class ArmMeans(NamedTuple):
    """Estimates and intervals of one arm; NaN where the data say nothing."""

    pulls: int
    nonzero: int
    prob: float
    prob_interval: tuple[float, float]
    magnitude: float
    magnitude_interval: tuple[float, float]
    reward: float
    reward_interval: tuple[float, float]


def arm_means(state: Any, level: float, inflated: float) -> list[ArmMeans]:
    """Return the estimates of every arm."""
    rows = zip(state.pulls, state.nonzero, state.total, state.spread, strict=True)
    return [_one(float(n), float(b), float(s), float(q), level, inflated) for n, b, s, q in rows]


def _one(
    pulls: float, nonzero: float, total: float, spread: float, level: float, inflated: float
) -> ArmMeans:
    from scipy import special

    nan = math.nan
    if pulls == 0:
        return ArmMeans(
            0, 0, nan, (0.0, 1.0), nan, (-math.inf, math.inf), nan, (-math.inf, math.inf)
        )
    tail = (1.0 - level) / 2.0
    zeros = pulls - nonzero
    prob_interval = (
        0.0 if nonzero == 0 else float(special.betaincinv(nonzero, zeros + 1, tail)),
        1.0 if zeros == 0 else float(special.betaincinv(nonzero + 1, zeros, 1.0 - tail)),
    )
    prob = nonzero / pulls
    if nonzero == 0:
        unknown = (-math.inf, math.inf)
        return ArmMeans(int(pulls), 0, prob, prob_interval, nan, unknown, inflated, unknown)
    mean = total / nonzero
    magnitude_interval = (-math.inf, math.inf)
    reward_interval = (-math.inf, math.inf)
    if nonzero >= 2 and spread > 0:
        quantile = float(special.stdtrit(nonzero - 1, 1.0 - tail))
        half = quantile * math.sqrt(spread / (nonzero - 1) / nonzero)
        magnitude_interval = (mean - half + inflated, mean + half + inflated)
        # The likelihood ratio level that reproduces Student's t when every reward is non-zero:
        # (B/2) log(1 + t²/(B-1)) instead of z²/2, which is too small for few rewards.
        loss = 0.5 * nonzero * math.log1p(quantile * quantile / (nonzero - 1))
        low = theory.joint_kl_lower(pulls, nonzero, total, level=loss, spread=spread)
        high = theory.joint_kl_upper(pulls, nonzero, total, level=loss, spread=spread)
        reward_interval = (inflated + float(low), inflated + float(high))
    return ArmMeans(
        int(pulls),
        int(nonzero),
        prob,
        prob_interval,
        mean + inflated,
        magnitude_interval,
        prob * mean + inflated,
        reward_interval,
    )
