"""Which exposure a conversion belongs to, and what it is worth in the end."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Codes = NDArray[np.int64]
Mask = NDArray[np.bool_]

RULES = ("last", "first", "all")
COMBINATIONS = ("sum", "first", "last", "max")


class Events(NamedTuple):
    """Rows of a file of conversions, or conversions after their rows have been put together.

    `key` says whose conversion it is (−1: unknown), `time` when it first occurred.
    """

    key: Codes
    time: Array
    amount: Array

    @property
    def size(self) -> int:
        """How many."""
        return int(self.key.size)

    def pick(self, rows: Codes | Mask) -> Events:
        """Return some of them."""
        return Events(self.key[rows], self.time[rows], self.amount[rows])


class Settled(NamedTuple):
    """Conversions with net amounts, and how many rows said nothing new or changed another."""

    events: Events
    duplicates: int
    revisions: int
    refunds: int
    refunded: float


def settle(rows: Events, ids: Codes | None) -> Settled:
    """Put the rows of each conversion id together.

    Rows with one id tell the story of one conversion in the order of their times. A negative amount
    is a refund and is added. Another amount that is not negative is a revision and replaces all
    that came before; the same amount again is a duplicate.
    """
    if ids is None:
        negative = rows.amount < 0.0
        refunded = -float(rows.amount[negative].sum())
        return Settled(rows, 0, 0, int(negative.sum()), refunded)
    order = np.lexsort((np.arange(ids.size), rows.time, ids))
    group, (key, time, amount) = ids[order], rows.pick(order)
    n = group.size
    at = np.arange(n)
    first = np.flatnonzero(np.r_[True, group[1:] != group[:-1]]) if n else at
    rank = np.cumsum(np.r_[True, group[1:] != group[:-1]]) - 1 if n else at
    # values: drop what repeats the value before, keep the last of each id
    negative = amount < 0.0
    value = np.flatnonzero(~negative)
    repeated = np.zeros(value.size, dtype=bool)
    repeated[1:] = (rank[value[1:]] == rank[value[:-1]]) & (amount[value[1:]] == amount[value[:-1]])
    value = value[~repeated]
    last = np.full(first.size, -1)
    last[rank[value]] = value  # the last assignment wins, and they are in order
    revisions = int(value.size - np.count_nonzero(last >= 0))
    # refunds: drop the same row twice, and what a later value has replaced
    refund = np.flatnonzero(negative)
    same = np.zeros(refund.size, dtype=bool)
    same[1:] = (
        (rank[refund[1:]] == rank[refund[:-1]])
        & (amount[refund[1:]] == amount[refund[:-1]])
        & (time[refund[1:]] == time[refund[:-1]])
    )
    refund = refund[~same]
    in_force = refund[refund > last[rank[refund]]]
    net = np.where(last >= 0, amount[last], 0.0)
    net = net + np.bincount(rank[in_force], amount[in_force], first.size)
    known = np.full(first.size, -1)
    with_key = np.flatnonzero(key >= 0)[::-1]
    known[rank[with_key]] = key[with_key]  # of the first row that says it
    events = Events(known, time[first], net)
    duplicates = int(repeated.sum() + same.sum())
    refunded = -float(amount[in_force].sum())
    return Settled(events, duplicates, revisions, int(refund.size), refunded)


class Exposures(NamedTuple):
    """Exposures of those who converted, in the order of key and time; `row` is their row."""

    row: Codes
    key: Codes
    time: Array

    @staticmethod
    def sorted(row: Codes, key: Codes, time: Array) -> Exposures:
        """Return them in order."""
        order = np.lexsort((row, time, key))
        return Exposures(row[order], key[order], time[order])


class Pairs(NamedTuple):
    """Which conversions belong to which exposures, and those that belong to none.

    Attributes
    ----------
    exposure, event
        Positions of pairs.
    unknown, early, late
        Conversions of a key without exposure, before the first exposure, and after the window of
        the last one before.
    """

    exposure: Codes
    event: Codes
    unknown: Mask
    early: Mask
    late: Mask


def pair(exposures: Exposures, events: Events, window: float, rule: str) -> Pairs:
    """Return the exposures that conversions belong to.

    "last" and "first" name the exposure among those in the window before the conversion; "all"
    counts a conversion once for each of them.
    """
    known = np.isin(events.key, exposures.key)
    upper = _before(exposures, events.key, events.time, inclusive=True)
    lower = _before(exposures, events.key, events.time - window, inclusive=False)
    start = np.searchsorted(exposures.key, events.key, side="left")
    any_before = known & (upper > start)
    hit = any_before & (upper > lower)
    here = np.flatnonzero(hit)
    if rule == "all":
        many = (upper - lower)[here]
        event = np.repeat(here, many)
        offset = np.arange(event.size) - np.repeat(np.cumsum(many) - many, many)
        exposure = np.repeat(lower[here], many) + offset
    else:
        event, exposure = here, (upper[here] - 1 if rule == "last" else lower[here])
    return Pairs(exposure, event, ~known, known & ~any_before, any_before & ~hit)


def _before(exposures: Exposures, key: Codes, time: Array, inclusive: bool) -> Codes:
    """Return how many exposures come before (key, time) in their order."""
    n = exposures.key.size
    keys = np.concatenate([exposures.key, key])
    times = np.concatenate([exposures.time, time])
    kind = np.concatenate([np.zeros(n), np.ones(key.size)])
    order = np.lexsort((kind if inclusive else -kind, times, keys))
    passed = np.cumsum(order < n)
    out = np.empty(order.size, dtype=np.int64)
    out[order] = passed
    return out[n:]


class Outcomes(NamedTuple):
    """What exposures led to: the reward, and the delay of the first conversion.

    Only exposures with a conversion are listed, in the order of their rows.
    """

    row: Codes
    time: Array
    reward: Array
    delay: Array


def combine(exposures: Exposures, events: Events, pairs: Pairs, how: str) -> Outcomes:
    """Add up the conversions of each exposure."""
    order = np.lexsort((events.time[pairs.event], exposures.row[pairs.exposure]))
    exposure, event = pairs.exposure[order], pairs.event[order]
    row, time, amount = exposures.row[exposure], events.time[event], events.amount[event]
    start = np.flatnonzero(np.r_[True, row[1:] != row[:-1]]) if row.size else np.arange(0)
    if not row.size:
        reward = np.empty(0)
    elif how == "sum":
        reward = np.add.reduceat(amount, start)
    elif how == "max":
        reward = np.maximum.reduceat(amount, start)
    else:
        reward = amount[start if how == "first" else np.r_[start[1:], row.size] - 1]
    shown = exposures.time[exposure[start]]
    return Outcomes(row[start], shown, reward, time[start] - shown)
