"""Single values that matter: rewards that occur again and again, and one that outweighs the others.

Prices, round donations and minimum fees are single values that hold a large share of the non-zero
rewards: atoms, which no smooth law has. And where rewards are few or spread far, one of them may
carry an arm.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from zib.logs.passes import Block

if TYPE_CHECKING:
    from zib.logs.advise.collect import Collected

Array = NDArray[np.float64]
Codes = NDArray[np.int64]

MOST_DISTINCT = 131_072  # values counted; beyond that their counts come from a sample
ROOM = 262_144  # rewards held before they are counted
ATOM = 0.02  # share of the non-zero rewards from which on a value is called an atom
FEWEST_EQUAL = 5
DOMINATES = 0.1  # share of an arm's sum from which on one reward is named
TIMES_AVERAGE = 5.0  # and how many times an average reward it must be


class Atom(NamedTuple):
    """A value that many non-zero rewards have.

    Attributes
    ----------
    value
        The reward.
    share
        Share of the non-zero rewards that are equal to it.
    """

    value: float
    share: float


class Dominant(NamedTuple):
    """One reward that carries an arm.

    Attributes
    ----------
    arm
        Label of the arm.
    reward
        The largest reward of the arm.
    share
        Share of the arm's total that it makes up.
    mu, r
        Mean of the non-zero rewards and mean reward of the arm with it.
    mu_without, r_without
        The same without it.
    """

    arm: Hashable
    reward: float
    share: float
    mu: float
    r: float
    mu_without: float
    r_without: float


class ValueCounts:
    """Counts how often each non-zero reward occurs.

    Exact as long as there are at most `MOST_DISTINCT` different ones; then it gives up, whatever
    their order was, and holds nothing any more.

    Examples
    --------
    >>> counts = ValueCounts()
    >>> counts.add(np.array([5.0, 2.5, 5.0]))
    >>> counts.found()
    (array([2.5, 5. ]), array([1, 2]))
    """

    def __init__(self) -> None:
        self._values: Array = np.empty(0)
        self._counts: Codes = np.empty(0, dtype=np.int64)
        self._waiting: list[Array] = []
        self._held = 0
        self._too_many = False

    def look(self, block: Block) -> None:
        """Count the rewards of a block."""
        if not self._too_many:
            self.add(block.reward[block.reward != 0.0])

    def add(self, values: Array) -> None:
        """Count some values."""
        if self._too_many or not values.size:
            return
        self._waiting.append(values)
        self._held += values.size
        if self._held > ROOM:
            self._settle()

    def _settle(self) -> None:
        if not self._waiting:
            return
        values, counts = np.unique(np.concatenate(self._waiting), return_counts=True)
        self._waiting, self._held = [], 0
        self._join(values, counts)

    def _join(self, values: Array, counts: Codes) -> None:
        joined, at = np.unique(np.concatenate([self._values, values]), return_inverse=True)
        if joined.size > MOST_DISTINCT:
            self._too_many = True
            self._values, self._counts = np.empty(0), np.empty(0, dtype=np.int64)
            return
        total = np.zeros(joined.size, dtype=np.int64)
        np.add.at(total, at, np.concatenate([self._counts, counts]))
        self._values, self._counts = joined, total

    def merge(self, other: ValueCounts) -> None:
        """Add what another one has counted."""
        self._settle()
        other._settle()
        if other._too_many:
            self._too_many = True
            self._values, self._counts = np.empty(0), np.empty(0, dtype=np.int64)
        elif not self._too_many:
            self._join(other._values, other._counts)

    def found(self) -> tuple[Array, Codes] | None:
        """Return the different values in ascending order and their counts; None if too many."""
        self._settle()
        return None if self._too_many else (self._values, self._counts)


class LargestRewards:
    """Keeps the reward of the largest magnitude of each arm; 0 for arms that never paid."""

    def __init__(self, n_arms: int) -> None:
        self.highest: Array = np.zeros(n_arms)
        self.lowest: Array = np.zeros(n_arms)

    def look(self, block: Block) -> None:
        """Look at the rewards of a block."""
        np.maximum.at(self.highest, block.arm, block.reward)
        np.minimum.at(self.lowest, block.arm, block.reward)

    def merge(self, other: LargestRewards) -> None:
        """Take in what another one has seen."""
        np.maximum(self.highest, other.highest, out=self.highest)
        np.minimum(self.lowest, other.lowest, out=self.lowest)

    def found(self) -> Array:
        """Return one reward per arm."""
        return np.where(self.highest >= -self.lowest, self.highest, self.lowest)


def value_counts(found: Collected) -> tuple[Array, Codes, bool]:
    """Return the values of the non-zero rewards, their counts, and whether these are of all rows.

    Where there are too many different ones, they are those of the sample.
    """
    if found.counted is not None:
        return (*found.counted, True)
    values, counts = np.unique(found.values, return_counts=True)
    return values, counts, found.values.size == found.n_paid


def atoms(values: Array, counts: Codes) -> tuple[Atom, ...]:
    """Return the values that hold at least `ATOM` of all, the largest share first.

    Examples
    --------
    >>> atoms(np.array([1.0, 29.99]), np.array([999, 333]))
    (Atom(value=1.0, share=0.75), Atom(value=29.99, share=0.25))
    """
    n = int(counts.sum())
    held = np.flatnonzero(counts >= max(ATOM * n, FEWEST_EQUAL))
    order = held[np.argsort(-counts[held], kind="stable")]
    return tuple(Atom(float(values[i]), float(counts[i]) / n) for i in order)


def dominant(found: Collected) -> tuple[Dominant, ...]:
    """Return the arms that one reward carries, and what they would be without it.

    That is asked of logs whose rewards all have one sign; sums of others may cancel.
    """
    if not found.sign:
        return ()
    paid, mean = found.paid.count, found.paid.mean
    total = paid * mean
    out = []
    for k in np.flatnonzero(paid > 1).tolist():
        share = float(found.largest[k] / total[k])
        if share < max(DOMINATES, TIMES_AVERAGE / paid[k]):
            continue
        rest = float(total[k] - found.largest[k])
        out.append(
            Dominant(
                found.arms[k], float(found.largest[k]), share, float(mean[k]),
                float(total[k] / found.rows[k]), rest / float(paid[k] - 1.0),
                rest / float(found.rows[k] - 1.0),
            )
        )  # fmt: skip
    return tuple(sorted(out, key=lambda each: -each.share))
