"""Sums of rewards with twice the digits, so that a reward can be taken out of them again.

The statistics of an arm (`zib.stats.arms`) are ordinary numbers: once a reward of 1e12 is in them,
the digits that tell rewards around 50 apart are lost, and taking the 1e12 out does not bring them
back. For revisions a bandit therefore keeps the sum of the non-zero rewards and the sum of their
squares as unevaluated sums of two numbers, about 32 digits.

What comes out after a revision has a relative error of at most about (M/s)²·1e-29 in the centred
sum of squares, where M is the largest reward the arm ever had and s the standard deviation of those
it has now: 1e-6 for a reward of 1e12 among rewards that differ by 5. A spread that is smaller than
this error is taken for 0.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from zib.core.kernel import jitable
from zib.core.state import ArmState, Floats, Part, per_arm

SPLIT = 134217729.0  # 2^27 + 1: halves the digits of a number
ROUNDING = 2.0**-98  # of a sum of squares, against the largest square there ever was
OTHER_DIGITS = 1e-9  # a revised reward may differ by this share from the one that was learned


class ExactSums(Part):
    """Sums over the non-zero rewards of each arm, and the range all of them were in."""

    total: Floats = per_arm()
    total_rest: Floats = per_arm()
    squares: Floats = per_arm(least=0.0)
    squares_rest: Floats = per_arm()
    low: Floats = per_arm(start=math.inf, finite=False)  # −inf: not known
    high: Floats = per_arm(start=-math.inf, finite=False)

    def differs_from(self, state: ArmState) -> str | None:
        """Return which sums are not those of the statistics, but for rounding errors."""
        for k in range(self.total.size):
            size = _largest(self, k) if state.nonzero[k] > 0 else 0.0
            close = 1e-6 * size * state.nonzero[k]
            if abs(self.total[k] - state.total[k]) > close:
                return f"`total` must be {state.total[k]:g} for arm number {k}"
            squares = float(state.spread[k])
            if state.nonzero[k] > 0:
                squares += state.total[k] ** 2 / state.nonzero[k]
            if abs(self.squares[k] - squares) > close * size:
                return f"`squares` must be {squares:g} for arm number {k}"
        return None


# ------------------------------------------------------------------------------------------- adding


@jitable
def _two_sum(a: Any, b: Any) -> Any:
    """Return a + b as it is rounded, and what rounding left out."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


@jitable
def _add(high: float, low: float, x: float, x_rest: float) -> tuple[float, float]:
    """Return (high + low) + (x + x_rest) as a number and a rest."""
    total, rest = _two_sum(high, x)
    return _two_sum(total, rest + (low + x_rest))  # type: ignore[no-any-return]


@jitable
def add_reward(sums: Any, arm: int, reward: float, sign: float) -> None:
    """Add a non-zero reward to the sums of an arm, or take it out again (`sign` −1)."""
    upper = SPLIT * reward - (SPLIT * reward - reward)
    lower = reward - upper
    square = reward * reward
    rest = ((upper * upper - square) + 2.0 * upper * lower) + lower * lower
    sums.total[arm], sums.total_rest[arm] = _add(
        sums.total[arm], sums.total_rest[arm], sign * reward, 0.0
    )
    sums.squares[arm], sums.squares_rest[arm] = _add(
        sums.squares[arm], sums.squares_rest[arm], sign * square, sign * rest
    )
    if sign > 0.0:
        sums.low[arm] = min(sums.low[arm], reward)
        sums.high[arm] = max(sums.high[arm], reward)


def add_sums(into: ExactSums, other: ExactSums, sign: float = 1.0) -> None:
    """Add the sums of `other`, or take them out again (`sign` −1)."""
    for name in ("total", "squares"):
        high, low = getattr(into, name), getattr(into, f"{name}_rest")
        x, rest = getattr(other, name), getattr(other, f"{name}_rest")
        high[:], low[:] = _add(high, low, sign * x, sign * rest)
    if sign > 0.0:
        np.minimum(into.low, other.low, out=into.low)
        np.maximum(into.high, other.high, out=into.high)


def sums_of(state: ArmState) -> ExactSums:
    """Return the sums as far as the statistics of the arms tell them."""
    sums = ExactSums.new({"arms": state.pulls.size})
    for k in np.flatnonzero(state.nonzero > 0):
        total = float(state.total[k])
        squares = Fraction(float(state.spread[k])) + Fraction(total) ** 2 / int(state.nonzero[k])
        sums.total[k] = total
        sums.squares[k] = float(squares)
        sums.squares_rest[k] = float(squares - Fraction(float(squares)))
        sums.low[k], sums.high[k] = -math.inf, math.inf
    return sums


# ------------------------------------------------------------------------------------------ reading


def _largest(sums: ExactSums, arm: int) -> float:
    """Return the size of the largest reward there ever was, or of the largest there can be now."""
    known = max(abs(float(sums.low[arm])), abs(float(sums.high[arm])))
    return known if math.isfinite(known) else math.sqrt(float(sums.squares[arm]))


def _moments(
    sums: ExactSums, arm: int, count: int, without: float = 0.0
) -> tuple[Fraction, Fraction]:
    """Return the sum and the centred sum of squares of `count` ≥ 1 rewards, all digits kept."""
    total = Fraction(float(sums.total[arm])) + Fraction(float(sums.total_rest[arm]))
    squares = Fraction(float(sums.squares[arm])) + Fraction(float(sums.squares_rest[arm]))
    total -= Fraction(without)
    squares -= Fraction(without) ** 2
    return total, squares - total * total / count


def set_moments(state: ArmState, sums: ExactSums, arm: int) -> None:
    """Put the sum and the centred sum of squares of an arm's non-zero rewards anew."""
    count = int(state.nonzero[arm])
    if count == 0:
        state.total[arm] = state.spread[arm] = 0.0
        for name, array in sums._asdict().items():
            array[arm] = ExactSums.declared[name].start  # type: ignore[union-attr]
        return
    total, spread = _moments(sums, arm, count)
    known = math.isfinite(float(sums.low[arm]))
    doubt = (ROUNDING if known else 2.0**-48) * _largest(sums, arm) ** 2 * count
    state.total[arm] = float(total)
    state.spread[arm] = float(spread) if count > 1 and spread > doubt else 0.0


def was_learned(sums: ExactSums, arm: int, count: int, reward: float) -> bool:
    """Return whether a reward can be one of the `count` ≥ 1 non-zero rewards of an arm.

    It must lie in their range, and the others must be numbers in that range, too: their mean lies
    in it and their centred sum of squares is not negative.
    """
    low, high = float(sums.low[arm]), float(sums.high[arm])
    size = max(_largest(sums, arm), abs(reward))
    close = OTHER_DIGITS * size
    if not low - close <= reward <= high + close:
        return False
    if count == 1:
        return abs(float(sums.total[arm]) - reward) <= close
    total, spread = _moments(sums, arm, count - 1, without=reward)
    mean = float(total / (count - 1))
    doubt = close * size * count
    if spread < -doubt or (count == 2 and spread > doubt):  # one reward has no spread
        return False
    return low - close <= mean <= high + close
