"""What is known about the arms of a bandit: p, mu and r = p·mu, each with its interval."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from zib import theory
from zib.stats import intervals, sequences
from zib.stats.intervals import Estimate


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


def arm_means(
    state: Any, level: float, inflated: float, *, anytime: bool = False
) -> list[ArmMeans]:
    """Return the estimates of every arm; rewards in `state` are counted from `inflated`."""
    n, b, total, spread = (
        np.asarray(x, dtype=np.float64)
        for x in (state.pulls, state.nonzero, state.total, state.spread)
    )
    if anytime:
        p = sequences.share(b, n, level=level)
        mu = sequences.mean(b, total, spread, level=level)
        r = sequences.product(n, b, total, spread, level=level)
    else:
        p = intervals.share(b, n, level=level)
        mu, r = _at_fixed_pulls(n, b, total, spread, level)
    columns = (
        n.astype(int),
        b.astype(int),
        p.value,
        _pairs(p, 0.0),
        mu.value + inflated,
        _pairs(mu, inflated),
        r.value + inflated,
        _pairs(r, inflated),
    )
    rows = zip(*(x.tolist() if isinstance(x, np.ndarray) else x for x in columns), strict=True)
    return [ArmMeans(*row) for row in rows]


def before_delays_are_known(
    means: list[ArmMeans],
    state: Any,
    level: float,
    inflated: float,
    *,
    decisions: Any,
    closed: Any,
    rewarded: Any,
) -> list[ArmMeans]:
    """Return the estimates with intervals that hold whatever the delay of rewards is.

    Parameters
    ----------
    means, state, level, inflated
        What `arm_means` has returned with ``anytime=True``, and from what.
    decisions
        Number of decisions of each arm.
    closed, rewarded
        Decisions that are older than window and grace, and how many of them have a reward.

    Notes
    -----
    While hardly any decision is that old, nobody knows how many rewards are still to come, and what
    pending decisions count as rests on an assumption. Two things do not. Rewards so far among all
    decisions are at most those that come in the end, so the lower end of their confidence sequence
    holds; and the closed decisions are the first ones that were made, with all their rewards, so
    the upper end of theirs does. Before the first one is closed that is 1.
    """
    b, total, spread, every, over, paid = (
        np.asarray(x, dtype=np.float64)
        for x in (state.nonzero, state.total, state.spread, decisions, closed, rewarded)
    )
    every = np.maximum(every, b)
    low = np.asarray(sequences.share(b, every, level=level).low)
    high = np.asarray(sequences.share(paid, np.maximum(over, paid), level=level).high)
    least = np.asarray(sequences.product(every, b, total, spread, level=level).low) + inflated
    out = []
    for k, each in enumerate(means):
        worth = each.magnitude_interval[1] - inflated  # may be infinite
        most = worth * high[k] + inflated if high[k] > 0.0 else inflated
        p, r = each.prob_interval, each.reward_interval
        out.append(
            each._replace(
                prob_interval=(min(p[0], float(low[k])), max(p[1], float(high[k]))),
                reward_interval=(min(r[0], float(least[k])), max(r[1], float(most))),
            )
        )
    return out


def _at_fixed_pulls(
    n: Any, b: Any, total: Any, spread: Any, level: float
) -> tuple[Estimate, Estimate]:
    """Return mu with Student's interval, and r with that of the profile likelihood."""
    varied = (b >= 2) & (spread > 0)
    freedom = np.where(varied, b - 1.0, 0.0)
    error = np.sqrt(spread / np.maximum(b - 1.0, 1.0) / np.maximum(b, 1.0))
    mu = np.where(b > 0, total / np.maximum(b, 1.0), np.nan)
    magnitude = intervals.from_error(mu, error, df=freedom, level=level)
    low, high = np.full(n.size, -np.inf), np.full(n.size, np.inf)
    if varied.any():
        # The likelihood ratio level that reproduces Student's t when every reward is non-zero:
        # (B/2) log(1 + t²/(B-1)) instead of z²/2, which is too small for few rewards.
        t = intervals.t_quantile(freedom[varied], level)
        loss = 0.5 * b[varied] * np.log1p(t * t / freedom[varied])
        seen = (n[varied], b[varied], total[varied])
        low[varied] = theory.joint_kl_lower(*seen, level=loss, spread=spread[varied])
        high[varied] = theory.joint_kl_upper(*seen, level=loss, spread=spread[varied])
    reward = np.where(n > 0, total / np.where(n > 0, n, 1.0), np.nan)
    return magnitude, Estimate(reward, low, high)


def _pairs(estimate: Estimate, inflated: float) -> list[tuple[float, float]]:
    low, high = ((np.asarray(end) + inflated).tolist() for end in (estimate.low, estimate.high))
    return list(zip(low, high, strict=True))
