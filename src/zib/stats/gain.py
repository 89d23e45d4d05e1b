"""What a policy gains over an even split of the decisions, from sums over its log.

Decision i is made among Kᵢ arms with probability πᵢ for the arm that is played, and pays rᵢ.

- **Holdout**: where some decisions are split evenly in truth, means are compared.
- **Arms**: if what the arms are worth does not change, the policy's decisions pay Σ nₐ rₐ, and an
  even split of them Σ eₐ rₐ with eₐ the sum of 1/Kᵢ over decisions for which the arm was there.
- **Weighting**: in an even split decision i would have paid rᵢ/(Kᵢπᵢ) on average, so that
  rᵢ(1 − 1/(Kᵢπᵢ)) is what the policy has gained by it, whatever the arms are worth at that time.

The second needs the fewest decisions, and is misled where all arms get better or worse while their
shares change. The third is not, but a policy that plays an arm once in a thousand decisions has to
wait long for it. It has a trap: until such an arm has paid, not only the sum is off, its empirical
variance is far too small as well. So the variance is summed over all arms that **could** have been
drawn: Σ_i Σ_a π_ia·m_a·(1 − 1/(Kᵢπ_ia))² with m_a the mean square of what an arm pays.

All intervals hold at whatever time one looks, in the limit of many rewards. Those of sums come from
`sequences.walk`. For the arms, Mₐ = Sₐ − nₐrₐ are martingales that never move together, so with
their variances Vₐ, and any ρₐ, at all times at once with probability 1 − α

    Σₐ Mₐ²/(Vₐ + ρₐ) ≤ 2 log(1/α) + Σₐ log(1 + Vₐ/ρₐ)

(the mixture of Robbins over a vector; Abbasi-Yadkori, Pál and Szepesvári 2011, *Improved algorithms
for linear stochastic bandits*, theorem 1). This bounds every combination of the rₐ.

Rewards may still come. A decision whose share F of the rewards is known by its age counts as F.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from zib.stats import sequences
from zib.stats.intervals import LEVEL, Estimate

Array = NDArray[np.float64]

UNKNOWN = Estimate(math.nan, -math.inf, math.inf)


class Cells(NamedTuple):
    """Sums over groups of decisions of one arm at one time; arrays of equal length.

    Attributes
    ----------
    arm
        Number of the arm.
    known
        Share F of the rewards that are known by now, of those that come.
    n, nonzero, total, squares
        Decisions, those with a reward, and sums of the rewards and of their squares.
    score, score_squares
        Sums of r(1 − 1/(Kπ)) and of its squares.
    expected, even, inverse
        Sums of π, 1/K and 1/(K²π) of this arm over all decisions that could have been for it; 0
        where that is not known.
    """

    arm: NDArray[np.int64]
    known: Array
    n: Array
    nonzero: Array
    total: Array
    squares: Array
    score: Array
    score_squares: Array
    expected: Array
    even: Array
    inverse: Array


class Gained(NamedTuple):
    """What the policy and an even split pay per decision, the difference, and that in percent."""

    policy: Estimate
    even: Estimate
    difference: Estimate
    percent: Estimate

    def whatever_comes(self, known: float) -> Gained:
        """Return it while nobody knows how many rewards are still to come.

        All amounts may be too small by one factor, or too large by at most 1/`known`, the share of
        the rewards that is taken to have come. The percentage does not depend on it.
        """

        def widened(found: Estimate) -> Estimate:
            low, high = float(found.low), float(found.high)
            return Estimate(
                found.value,
                low * known if low > 0.0 else -math.inf if low < 0.0 else 0.0,
                high * known if high < 0.0 else math.inf if high > 0.0 else 0.0,
            )

        return Gained(
            widened(self.policy), widened(self.even), widened(self.difference), self.percent
        )


WIDTH = 20.0  # rewards of an arm: where the bound on combinations of arms is narrowest, about
FEWEST = 20.0  # rewards of the policy, before anything is said

NOTHING = Gained(UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN)


def by_weighting(cells: Cells, *, inflated: float = 0.0, level: float = LEVEL) -> Gained:
    """Return the gain over an even split from the probabilities of the arms.

    Parameters
    ----------
    cells
        Sums over the policy's decisions; rewards are counted from `inflated`.
    inflated
        What a decision without a reward is worth.
    level
        Of the intervals, each of which holds at all times together.
    """
    decisions = float((cells.known * cells.n).sum())
    if decisions <= 0.0 or not cells.nonzero.sum():
        return NOTHING
    paid, score = float(cells.total.sum()), float(cells.score.sum())
    size, mean_square = _sizes(cells)
    f = cells.known * mean_square[cells.arm]
    even = np.maximum(cells.even, 1e-300)
    weight = np.where(cells.even > 0.0, cells.inverse / even, 0.0)  # 1/(Kπ), on average

    def spread(x: float, of: float) -> tuple[float, float]:
        """Return variance and number of typical terms of Σ r(of − x/(Kπ))."""
        each = f * (of * of * cells.expected - 2.0 * of * x * cells.even + x * x * cells.inverse)
        each = np.maximum(each, 0.0)
        variance = float(each.sum())
        jumps = float((each * size[cells.arm] * (of - x * weight) ** 2).sum())
        return variance, variance * variance / jumps if jumps > 0.0 else 0.0

    variance, count = spread(1.0, 1.0)
    seen = float(cells.score_squares.sum())
    if seen > variance:  # arms may pay more when they are rarely played, or π was not kept
        total = float(np.abs(cells.score).sum())
        variance, count = seen, min(count or math.inf, total * total / seen)
    difference = _scaled(sequences.walk(score, variance, count, level=level), decisions)
    other = _scaled(sequences.walk(paid - score, *spread(1.0, 0.0), level=level), decisions)
    kappa = _kappa(variance, count, level)
    a, b, c = (float((f * x).sum()) for x in (cells.expected, cells.even, cells.inverse))
    shift = inflated * decisions
    percent = _percent(paid + shift, paid - score + shift, kappa, (a, b, c))
    if not c:  # π of the other arms is not known
        percent, other = _open(percent), _open(other)
    return Gained(
        _mean(decisions, cells, inflated, level), _moved(other, inflated), difference, percent
    )


def by_arms(policy: Cells, every: Cells, *, inflated: float = 0.0, level: float = LEVEL) -> Gained:
    """Return the gain over an even split if what arms are worth does not change.

    Parameters
    ----------
    policy
        Sums over the policy's decisions.
    every
        Sums over all decisions, which say what the arms are worth.
    inflated, level
        As for `by_weighting`; here the intervals hold all together.
    """
    n_arms = int(max(policy.arm.max(initial=0), every.arm.max(initial=0))) + 1
    n, rewards, total = (
        _by_arm(every, x, n_arms) for x in (every.known * every.n, every.nonzero, every.total)
    )
    if rewards.sum() < FEWEST:
        return NOTHING
    size, mean_square = _sizes(every)
    played, even = (_by_arm(policy, policy.known * x, n_arms) for x in (policy.n, policy.even))
    decisions = float(played.sum())
    used = (played > 0.0) | (even > 0.0)
    if decisions <= 0.0 or (n[used] <= 0.0).any():
        return NOTHING
    n, size, mean_square, played, even = (x[used] for x in (n, size, mean_square, played, even))
    worth = total[used] / n
    # as if an even split were of as many decisions; those of before may be without `even`
    even = even * decisions / max(float(even.sum()), 1e-300)
    variance, room = n * mean_square, WIDTH * size
    error = (variance + room) / (n * n)
    budget = -2.0 * math.log1p(-level) + float(np.log1p(variance / room).sum())

    def combined(weights: Array) -> Estimate:
        value, half = weights @ worth, math.sqrt(budget * float(weights**2 @ error))
        return _scaled(Estimate(value, value - half, value + half), decisions)

    percent = _percent(
        float(played @ worth) + inflated * decisions,
        float(even @ worth) + inflated * decisions,
        budget,
        tuple(float((x * y) @ error) for x, y in ((played, played), (played, even), (even, even))),
    )
    return Gained(
        _moved(combined(played), inflated),
        _moved(combined(even), inflated),
        combined(played - even),
        percent,
    )


def by_holdout(
    policy: Cells, holdout: Cells, *, inflated: float = 0.0, level: float = LEVEL
) -> Gained:
    """Return the gain over decisions that were split evenly in truth; as for `by_weighting`."""
    n = [float((cells.known * cells.n).sum()) for cells in (policy, holdout)]
    if min(n) <= 0.0:
        return NOTHING
    paid = [float(cells.total.sum()) / m for cells, m in zip((policy, holdout), n, strict=True)]
    rewards = [float(cells.nonzero.sum()) for cells in (policy, holdout)]
    variance = [
        max(float(cells.squares.sum()) / m - mean * mean, 0.0) / m
        for cells, m, mean in zip((policy, holdout), n, paid, strict=True)
    ]
    jumps = sum(v * v / max(b, 1.0) for v, b in zip(variance, rewards, strict=True))
    total = sum(variance)
    # a group without rewards seems to be without variance
    count = total * total / jumps if jumps > 0.0 and min(rewards) >= 2.0 else 0.0
    difference = sequences.walk(paid[0] - paid[1], max(total, 1e-300), count, level=level)
    kappa = _kappa(total, count, level)
    percent = _percent(
        paid[0] + inflated, paid[1] + inflated, kappa, (variance[0], 0.0, variance[1])
    )
    return Gained(
        _mean(n[0], policy, inflated, level),
        _mean(n[1], holdout, inflated, level),
        difference,
        percent,
    )


def _sizes(cells: Cells) -> tuple[Array, Array]:
    """Return the mean square of the rewards of each arm, and of all decisions for it.

    One further reward of ordinary size, in as many decisions as those take on average, stands for
    arms with few rewards.
    """
    n_arms = int(cells.arm.max()) + 1
    n, rewards, squares = (
        _by_arm(cells, x, n_arms) for x in (cells.known * cells.n, cells.nonzero, cells.squares)
    )
    usual = squares.sum() / rewards.sum()
    per_reward = n.sum() / rewards.sum()
    return (squares + usual) / (rewards + 1.0), (squares + usual) / (n + per_reward)


def _by_arm(cells: Cells, x: Array, n_arms: int) -> Array:
    return np.bincount(cells.arm, x, minlength=n_arms).astype(np.float64)


def _mean(n: float, cells: Cells, inflated: float, level: float) -> Estimate:
    rewards, total = float(cells.nonzero.sum()), float(cells.total.sum())
    spread = max(float(cells.squares.sum()) - total * total / max(rewards, 1.0), 0.0)
    found = sequences.product(max(n, rewards), rewards, total, spread, level=level)
    return _moved(found, inflated)


def _kappa(variance: float, count: float, level: float) -> float:
    """Return by how many variances the square of an error may exceed nothing."""
    if variance <= 0.0:
        return 0.0
    high = float(np.asarray(sequences.walk(0.0, 1.0, count, level=level).high))
    return high * high


def _percent(policy: float, even: float, kappa: float, variance: tuple[float, ...]) -> Estimate:
    """Return 100 (policy/even − 1) with Fieller's interval: the x that policy − x·even allows.

    The variance of policy − x·even is a − 2xb + x²c.
    """
    if even <= 0.0:
        return UNKNOWN
    value = 100.0 * (policy / even - 1.0)
    a, b, c = variance
    if not math.isfinite(kappa) or even * even <= kappa * c:
        return Estimate(value, -math.inf, math.inf)
    lead, half, rest = even * even - kappa * c, policy * even - kappa * b, policy**2 - kappa * a
    root = math.sqrt(max(half * half - lead * rest, 0.0))
    low, high = (100.0 * ((half + sign * root) / lead - 1.0) for sign in (-1.0, 1.0))
    return Estimate(value, low, high)


def _scaled(found: Estimate, by: float) -> Estimate:
    return Estimate(*(float(x) / by for x in found))


def _moved(found: Estimate, by: float) -> Estimate:
    return Estimate(*(float(x) + by for x in found))


def _open(found: Estimate) -> Estimate:
    return Estimate(found.value, -math.inf, math.inf)
