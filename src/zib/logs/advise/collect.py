"""One pass over a log of any size: counts, moments, and samples of bounded size.

Rows are cut into blocks of a fixed length before anything is added up, and samples are the rows
with the smallest hash of their number. What is collected therefore does not depend on how the log
cuts its batches, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from zib.logs.advise.reservoir import Kept, KeptPerArm, row_keys
from zib.logs.log import Log, LogBatch
from zib.stats.moments import Moments

Array = NDArray[np.float64]
Codes = NDArray[np.int64]

BLOCK = 262_144
MOST_VALUES = 200_000  # non-zero rewards kept
MOST_TOP = 5_000  # largest magnitudes kept
MOST_CONTEXT = 20_000  # rows kept with their context, zeros and non-zeros each
CONTEXT_NUMBERS = 4_000_000  # numbers kept for them at most
FEWEST_PER_ARM = 20


class WeightedSums:
    """Sums of 1/propensity and of its square, with and without rewards, per arm."""

    def __init__(self, n_arms: int) -> None:
        self.w = np.zeros(n_arms)
        self.w_paid = np.zeros(n_arms)
        self.w_reward = np.zeros(n_arms)
        self.w2 = np.zeros(n_arms)
        self.w2_paid = np.zeros(n_arms)
        self.w2_reward = np.zeros(n_arms)
        self.w2_square = np.zeros(n_arms)
        self.lowest = np.full(n_arms, np.inf)
        self.highest = np.zeros(n_arms)

    def add(self, arm: Codes, reward: Array, propensity: Array) -> None:
        """Add one block."""
        size = self.w.size
        weight = 1.0 / propensity
        paid = reward != 0.0
        who, x, w = arm[paid], reward[paid], weight[paid]
        square = w * w
        self.w += np.bincount(arm, weight, size)
        self.w2 += np.bincount(arm, weight * weight, size)
        self.w_paid += np.bincount(who, w, size)
        self.w_reward += np.bincount(who, w * x, size)
        self.w2_paid += np.bincount(who, square, size)
        self.w2_reward += np.bincount(who, square * x, size)
        self.w2_square += np.bincount(who, square * x * x, size)
        np.minimum.at(self.lowest, arm, propensity)
        np.maximum.at(self.highest, arm, propensity)


@dataclass(frozen=True)
class Collected:
    """All that advice needs of a log.

    Attributes
    ----------
    rows
        Number of rows of each arm.
    paid
        Moments of the non-zero rewards of each arm.
    weighted
        Sums with inverse propensities, or None.
    lowest, highest
        Smallest and largest non-zero reward.
    negative
        Number of negative rewards.
    values, value_arm
        A uniform sample of the non-zero rewards, in random order, and their arms.
    arm_values, arm_value_arm, arm_value_weight
        A sample of equal size for each arm, with inverse propensities.
    top
        The largest magnitudes, decreasing.
    context_arm, context_reward, context
        Two uniform samples joined: rows that paid and rows that did not, with their contexts.
    """

    arms: tuple[Hashable, ...]
    context_names: tuple[str, ...]
    n_rows: int
    rows: Array
    paid: Moments
    weighted: WeightedSums | None
    lowest: float
    highest: float
    negative: int
    values: Array
    value_arm: Codes
    arm_values: Array
    arm_value_arm: Codes
    arm_value_weight: Array
    top: Array
    context_arm: Codes
    context_reward: Array
    context: Array

    @property
    def n_arms(self) -> int:
        """Number of arms."""
        return len(self.arms)

    @property
    def n_paid(self) -> int:
        """Number of non-zero rewards."""
        return int(self.paid.count.sum())


def blocks(log: Log, size: int = BLOCK) -> Iterator[LogBatch]:
    """Yield the rows of a log in blocks of exactly `size` rows (the last may be shorter)."""
    waiting: list[LogBatch] = []
    held, start = 0, 0
    for batch in log.batches():
        waiting.append(batch)
        held += batch.reward.size
        while held >= size:
            whole = _joined(waiting, start)
            yield _cut(whole, 0, size)
            start += size
            held -= size
            waiting = [_cut(whole, size, size + held)] if held else []
    if held:
        yield _joined(waiting, start)


def _joined(parts: list[LogBatch], start: int) -> LogBatch:
    if len(parts) == 1:
        return parts[0]._replace(start=start)
    columns = (
        None if parts[0][i] is None else np.concatenate([part[i] for part in parts])
        for i in range(1, 6)
    )
    return LogBatch(start, *columns)  # type: ignore[arg-type]


def _cut(batch: LogBatch, low: int, high: int) -> LogBatch:
    columns = (None if x is None else x[low:high] for x in batch[1:])
    return LogBatch(batch.start + low, *columns)  # type: ignore[arg-type]


def collect(log: Log, seed: int, tell: Callable[[float], None]) -> Collected:
    """Read the log once; `tell` hears the share of rows read."""
    n_arms, width = len(log.arms), len(log.context_names)
    rows = np.zeros(n_arms)
    paid = Moments(n_arms, order=4)
    weighted = WeightedSums(n_arms) if log.has_propensity else None
    lowest, highest, negative = np.inf, -np.inf, 0
    sample = Kept(MOST_VALUES)
    per_arm = KeptPerArm(max(MOST_VALUES // n_arms, FEWEST_PER_ARM), n_arms)
    most = min(MOST_CONTEXT, max(CONTEXT_NUMBERS // max(width, 1), 1_000))
    with_zero, with_paid = Kept(most), Kept(most)
    top = np.empty(0)
    for block in blocks(log):
        key = row_keys(block.start, block.reward.size, seed)
        rows += np.bincount(block.arm, minlength=n_arms)
        at = np.flatnonzero(block.reward)
        arm, x = block.arm[at], block.reward[at]
        if weighted is not None and block.propensity is not None:
            weighted.add(block.arm, block.reward, block.propensity)
        if width:
            none = np.flatnonzero(block.reward == 0.0)
            with_zero.add(key[none], block.arm[none], block.context[none])
            with_paid.add(key[at], arm, x, block.context[at])
        if at.size:
            paid.add_groups(arm, x)
            lowest, highest = min(lowest, float(x.min())), max(highest, float(x.max()))
            negative += int((x < 0.0).sum())
            sample.add(key[at], arm, x)
            weight = np.ones(at.size) if block.propensity is None else 1.0 / block.propensity[at]
            per_arm.add(key[at], arm, x, weight)
            top = _largest(top, np.abs(x))
        tell((block.start + block.reward.size) / max(log.n_rows, 1))
    value_arm, values = sample.result() or (np.empty(0, np.int64), np.empty(0))
    arm_columns = per_arm.result() or (np.empty(0, np.int64), np.empty(0), np.empty(0))
    context = _contexts(with_zero, with_paid, width)
    return Collected(
        tuple(log.arms), tuple(log.context_names), int(log.n_rows), rows, paid, weighted,
        lowest, highest, negative, values, value_arm, arm_columns[1], arm_columns[0],
        arm_columns[2], top, *context,
    )  # fmt: skip


def _largest(top: Array, size: Array) -> Array:
    if top.size == MOST_TOP:
        size = size[size > top[-1]]
        if not size.size:
            return top
    joined = np.concatenate([top, size])
    if joined.size > MOST_TOP:
        joined = np.partition(joined, joined.size - MOST_TOP)[-MOST_TOP:]
    return np.sort(joined)[::-1]


def _contexts(zero: Kept, paid: Kept, width: int) -> tuple[Codes, Array, Array]:
    arms: list[Codes] = [np.empty(0, np.int64)]
    rewards, contexts = [np.empty(0)], [np.empty((0, width))]
    found = zero.result()
    if found:
        arms.append(found[0])
        rewards.append(np.zeros(found[0].size))
        contexts.append(found[1])
    found = paid.result()
    if found:
        arms.append(found[0])
        rewards.append(found[1])
        contexts.append(found[2])
    return np.concatenate(arms), np.concatenate(rewards), np.concatenate(contexts)
