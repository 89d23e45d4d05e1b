"""What advice keeps of a log: counts, moments, and samples of bounded size, in one pass."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from zib.logs.advise.time_bins import TimeBins
from zib.logs.advise.values import LargestRewards, ValueCounts
from zib.logs.log import Log
from zib.logs.passes import Block, Reader, Totals, merge_parts, read
from zib.stats.clusters import ClusterSums
from zib.stats.moments import Moments
from zib.stats.sampling import SmallestHashes, row_hashes

Array = NDArray[np.float64]
Codes = NDArray[np.int64]
Randomised = Literal["yes", "no", "unknown"]

MOST_VALUES = 200_000  # non-zero rewards kept
MOST_TOP = 5_000  # largest magnitudes kept
MOST_CONTEXT = 20_000  # rows kept with their context, zeros and non-zeros each
CONTEXT_NUMBERS = 4_000_000  # numbers kept for them at most
FEWEST_PER_ARM = 20
FEW = 10  # fewer non-zero rewards than this, and an arm borrows the spread of the others
FEWEST_FOR_LAW = 10  # non-zero rewards without which no law is fitted
FEWEST_FOR_TAIL = 100  # and no tail index
SALT = 4


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

    def merge(self, other: WeightedSums) -> None:
        """Take the sums of other rows."""
        for name in vars(self):
            if name not in ("lowest", "highest"):
                getattr(self, name)[...] += getattr(other, name)
        np.minimum(self.lowest, other.lowest, out=self.lowest)
        np.maximum(self.highest, other.highest, out=self.highest)


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
    clusters
        Rows, non-zero rewards and rewards of each cluster and arm, each row counted 1/propensity
        where the log has them; None for a log without clusters.
    repeated
        Name of the column of units, where units occur more than once and make the clusters.
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
    counted
        The different non-zero rewards and how often each occurs, or None if they are too many.
    largest
        The reward of the largest magnitude of each arm.
    times
        Counts and sums over time; nothing has been seen in a log without times.
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
    counted: tuple[Array, Codes] | None
    largest: Array
    times: TimeBins
    context_arm: Codes
    context_reward: Array
    context: Array
    clusters: ClusterSums | None = None
    repeated: str | None = None

    @property
    def n_arms(self) -> int:
        """Number of arms."""
        return len(self.arms)

    @property
    def has_clusters(self) -> bool:
        """Whether the log names clusters; units that occur again are only suspected of it."""
        return self.clusters is not None and self.repeated is None

    def cluster_table(self) -> tuple[Codes, Codes, Array]:
        """Return cluster, arm, and rows, non-zero rewards and rewards of each such pair."""
        assert self.clusters is not None
        return self.clusters.table()

    @property
    def n_paid(self) -> int:
        """Number of non-zero rewards."""
        return int(self.paid.count.sum())

    @property
    def sign(self) -> int:
        """1 if all non-zero rewards are positive, −1 if all are negative, 0 if neither."""
        if not self.n_paid or 0 < self.negative < self.n_paid:
            return 0
        return -1 if self.negative else 1


class _Collector:
    """Reads blocks and keeps what `Collected` holds."""

    def __init__(self, log: Log, seed: int, timezone: str | None = None) -> None:
        n_arms, width = len(log.arms), len(log.context_names)
        self._seed, self._width, self._n_arms = seed, width, n_arms
        self._totals = Totals(log)
        self._paid = Moments(n_arms, order=4)
        self._weighted = WeightedSums(n_arms) if log.has_propensity else None
        self._clusters: ClusterSums | None = None
        self._values = SmallestHashes(MOST_VALUES)
        self._by_arm = SmallestHashes(max(MOST_VALUES // n_arms, FEWEST_PER_ARM), n_arms)
        most = min(MOST_CONTEXT, max(CONTEXT_NUMBERS // max(width, 1), 1_000))
        self._contexts = SmallestHashes(most, 2)  # without and with a reward
        self._top: Array = np.empty(0)
        self._counts, self._largest = ValueCounts(), LargestRewards(n_arms)
        self._times = TimeBins(n_arms, timezone)

    def look(self, block: Block) -> None:
        """Take in the rows of a block."""
        self._totals.look(block)
        self._counts.look(block)
        self._largest.look(block)
        self._times.look(block)
        key = row_hashes(self._seed, SALT, block.start, block.size)
        if self._weighted is not None and block.propensity is not None:
            self._weighted.add(block.arm, block.reward, block.propensity)
        if block.cluster is not None:
            if self._clusters is None:
                self._clusters = ClusterSums(3, self._n_arms)
            one = np.ones(block.size) if block.propensity is None else 1.0 / block.propensity
            columns = (one, one * (block.reward != 0.0), one * block.reward)
            self._clusters.add(block.cluster, block.arm, *columns)
        if self._width:
            paid = (block.reward != 0.0).astype(np.int64)
            self._contexts.add(key, block.arm, block.reward, block.context, group=paid)
        at = np.flatnonzero(block.reward)
        if at.size:
            arm, x = block.arm[at], block.reward[at]
            self._paid.add_groups(arm, x)
            self._values.add(key[at], arm, x)
            weight = np.ones(at.size) if block.propensity is None else 1.0 / block.propensity[at]
            self._by_arm.add(key[at], arm, x, weight, group=arm)
            self._top = _largest(self._top, np.abs(x))

    def merge(self, other: _Collector) -> None:
        """Take what was kept of the rows that follow."""
        merge_parts(self, other, "_top")
        self._top = _largest(self._top, other._top)

    def collected(self, log: Log) -> Collected:
        """Return what was kept."""
        totals = self._totals
        no_arms, nothing = np.empty(0, np.int64), np.empty(0)
        value_arm, values = self._values.rows() or (no_arms, nothing)
        own_arm, own_values, own_weights = self._by_arm.rows() or (no_arms, nothing, nothing)
        who, paid, context = self._contexts.rows() or (
            no_arms, nothing, np.empty((0, self._width)),
        )  # fmt: skip
        return Collected(
            tuple(log.arms), tuple(log.context_names), int(log.n_rows),
            totals.rows.astype(np.float64), self._paid, self._weighted, totals.lowest,
            totals.highest, totals.negative, values, value_arm, own_values, own_arm, own_weights,
            self._top, self._counts.found(), self._largest.found(), self._times, who, paid,
            context, self._clusters, getattr(log, "repeated", None),
        )  # fmt: skip


def collect(
    log: Log,
    seed: int,
    tell: Callable[[float], None],
    *more: Reader,
    timezone: str | None = None,
) -> Collected:
    """Read the log once, for `more` readers, too; `tell` hears the share of rows read."""
    collector = _Collector(log, seed, timezone)
    read(log, collector, *more, tell=tell)
    return collector.collected(log)


def _largest(top: Array, size: Array) -> Array:
    if top.size == MOST_TOP:
        size = size[size > top[-1]]
        if not size.size:
            return top
    joined = np.concatenate([top, size])
    if joined.size > MOST_TOP:
        joined = np.partition(joined, joined.size - MOST_TOP)[-MOST_TOP:]
    return np.sort(joined)[::-1]


def randomised(found: Collected) -> Randomised:
    """Return whether every arm had one and the same probability in all rows."""
    if found.weighted is None:
        return "unknown"
    played = found.rows > 0
    low, high = found.weighted.lowest[played], found.weighted.highest[played]
    return "yes" if bool((high - low <= 1e-6 * high).all()) else "no"
