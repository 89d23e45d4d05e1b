"""The statistics of a bandit as they are in its database: sums over the log, in arrays."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from zib.core.exact import ExactSums, add_reward, add_sums
from zib.live.database import Connection, Row
from zib.live.outcome import SECOND, Rules

Counts = NDArray[np.int64]
Floats = NDArray[np.float64]

_COUNTS = ("nonzero", "zero", "positive")
_PARTS = ("total", "total_rest", "squares", "squares_rest")
SUM_COLUMNS = (*_COUNTS, *_PARTS, *(f"log_{name}" for name in _PARTS))


MANY_ARMS = 20  # from which on old buckets are read now and then only,
OLD_FOR = 30 * SECOND  # and so often; they are old
RECENT = 20  # if they are older than this part of the horizon
COARSE = 10  # buckets that are one then


class ArmSums:
    """Rewards of the arms whose decisions are settled: counts, and sums with twice the digits.

    `nonzero`, `zero` and `positive` count rewards, `sums` are those of the non-zero ones and
    `logs` those of the logarithms of the positive ones, which some policies learn from.
    """

    def __init__(self, n_arms: int) -> None:
        self.nonzero: Counts = np.zeros(n_arms, dtype=np.int64)
        self.zero: Counts = np.zeros(n_arms, dtype=np.int64)
        self.positive: Counts = np.zeros(n_arms, dtype=np.int64)
        self.sums = _no_sums(n_arms)
        self.logs = _no_sums(n_arms)

    def _arrays(self) -> list[Any]:
        """Return the arrays in the order of `SUM_COLUMNS`."""
        counts = [getattr(self, name) for name in _COUNTS]
        return counts + [getattr(s, name) for s in (self.sums, self.logs) for name in _PARTS]

    @property
    def n_arms(self) -> int:
        """How many arms there are."""
        return self.nonzero.size

    def copy(self, n_arms: int | None = None) -> ArmSums:
        """Return a copy, with room for further arms."""
        n = self.n_arms
        out = ArmSums(max(n, n_arms or 0))
        for into, array in zip(out._arrays(), self._arrays(), strict=True):
            into[:n] = array
        return out

    def reward(self, arm: int, amount: float, sign: int) -> None:
        """Add a reward, or take it out again."""
        self.nonzero[arm] += sign
        add_reward(self.sums, arm, amount, float(sign))
        if amount > 0.0:
            self.positive[arm] += sign
            add_reward(self.logs, arm, math.log(amount), float(sign))

    def add(self, other: ArmSums) -> None:
        """Add the sums of another worker."""
        for name in _COUNTS:
            getattr(self, name)[:] += getattr(other, name)
        add_sums(self.sums, other.sums)
        add_sums(self.logs, other.logs)

    def row(self, arm: int) -> Row:
        """Return the row of an arm as the database keeps it."""
        return tuple(array[arm].item() for array in self._arrays())

    @classmethod
    def of_rows(cls, n_arms: int, rows: Iterable[Row]) -> ArmSums:
        """Return the sums of rows that begin with an arm; those of one arm are added."""
        layers: list[ArmSums] = [cls(n_arms)]  # one for each worker that had the same arm
        seen: dict[int, int] = defaultdict(int)
        for arm, *numbers in rows:
            if seen[arm] == len(layers):
                layers.append(cls(n_arms))
            for array, number in zip(layers[seen[arm]]._arrays(), numbers, strict=True):
                array[arm] = number
            seen[arm] += 1
        for other in layers[1:]:
            layers[0].add(other)
        return layers[0]


def _no_sums(n_arms: int) -> ExactSums:
    sums = ExactSums.new({"arms": n_arms})
    sums.low[:], sums.high[:] = -math.inf, math.inf  # the range is not kept
    return sums


class Waiting(NamedTuple):
    """How many decisions wait, by arm and bucket of decision time."""

    arm: Counts
    bucket: Counts
    n: Counts


class Converted(NamedTuple):
    """Rewards by arm, bucket of decision time and bin of the delay."""

    arm: Counts
    bucket: Counts
    bin: Counts
    n: Counts
    total: Floats
    squares: Floats


class Statistics(NamedTuple):
    """All sums over the log of one bandit."""

    arms: ArmSums
    waiting: Waiting
    converted: Converted
    counters: dict[str, int]


def read_arm_sums(
    connection: Connection, bandit: int, n_arms: int, worker: int | None = None
) -> ArmSums:
    """Return the sums of one worker, or of all."""
    which, args = ("", ()) if worker is None else (" AND worker = $2", (worker,))
    rows = connection.rows(
        f"SELECT arm, {', '.join(SUM_COLUMNS)} FROM arm_sum WHERE bandit = $1{which} "
        "ORDER BY arm, worker",
        bandit,
        *args,
    )
    return ArmSums.of_rows(n_arms, rows)


def read_statistics(
    connection: Connection, bandit: int, n_arms: int, *, since: int | None = None
) -> Statistics:
    """Return all sums; within a transaction they are those of one moment.

    With `since` the numbers of decisions that wait and of rewards are those of buckets from this
    one on.
    """
    recent = ""
    args: tuple[int, ...] = ()
    if since is not None:  # arms are named so that the index of each is entered where it begins
        recent = " AND arm IN (SELECT number FROM arm WHERE bandit = $1) AND bucket >= $2"
        args = (since,)
    waiting = connection.rows(
        f"SELECT arm, bucket, CAST(SUM(n) AS BIGINT) FROM waiting WHERE bandit = $1{recent} "
        "GROUP BY arm, bucket HAVING SUM(n) <> 0 ORDER BY arm, bucket",
        bandit,
        *args,
    )
    converted = connection.rows(
        "SELECT arm, bucket, bin, CAST(SUM(n) AS BIGINT), SUM(total), SUM(squares) FROM converted "
        f"WHERE bandit = $1{recent} GROUP BY arm, bucket, bin HAVING SUM(n) <> 0 "
        "ORDER BY arm, bucket, bin",
        bandit,
        *args,
    )
    counters = connection.rows(
        "SELECT name, CAST(SUM(n) AS BIGINT) FROM counter WHERE bandit = $1 GROUP BY name", bandit
    )
    counts = np.array([row[:4] for row in converted], dtype=np.int64).reshape(-1, 4)
    amounts = np.array([row[4:] for row in converted], dtype=np.float64).reshape(-1, 2)
    return Statistics(
        read_arm_sums(connection, bandit, n_arms),
        Waiting(*np.array(waiting, dtype=np.int64).reshape(-1, 3).T),
        Converted(*counts.T, *amounts.T),
        {str(name): int(n) for name, n in counters},
    )


class Recent:
    """Reads the statistics again and again: of many arms what is old only now and then.

    What has happened to old decisions since it was read is missing for half a minute. Their buckets
    are taken ten at a time: decisions that wait as if they were made in the middle of the ten,
    rewards as if at the end, so that no delay is taken for possible that was not.
    """

    def __init__(self, bandit: int, rules: Rules) -> None:
        self._bandit = bandit
        self._rules = rules
        self._old: tuple[Waiting, Converted] | None = None
        self._since = self._read_at = 0

    def read(self, c: Connection, n_arms: int, now: int, *, whole: bool) -> Statistics:
        """Return the statistics at a time (microseconds); `whole`: all of it as it is now."""
        if whole or n_arms < MANY_ARMS:
            return read_statistics(c, self._bandit, n_arms)
        if self._old is None or not 0 <= now - self._read_at < OLD_FOR:
            self._read_at = now
            self._since = (now - self._rules.horizon // RECENT) // self._rules.width
            found = read_statistics(c, self._bandit, n_arms)
            old, young = _split(found.waiting, self._since), _split(found.converted, self._since)
            self._old = (
                _coarse(Waiting(*old[0]), 2, COARSE // 2),
                _coarse(Converted(*young[0]), 3, COARSE - 1),
            )
            found = found._replace(waiting=Waiting(*old[1]), converted=Converted(*young[1]))
        else:
            found = read_statistics(c, self._bandit, n_arms, since=self._since)
        waiting, converted = self._old
        return found._replace(
            waiting=Waiting(*map(_joined, waiting, found.waiting)),
            converted=Converted(*map(_joined, converted, found.converted)),
        )


def _joined(first: Any, second: Any) -> Any:
    return np.concatenate([first, second])


def _split(columns: Any, since: int) -> tuple[list[Any], list[Any]]:
    """Return the columns of rows before a bucket, and of the others."""
    is_old = columns.bucket < since
    return [x[is_old] for x in columns], [x[~is_old] for x in columns]


def _coarse(columns: Any, n_keys: int, shift: int) -> Any:
    """Return rows in which ten buckets are one; arm and bucket come first."""
    bucket = columns.bucket
    place = np.where(bucket >= 0, bucket - bucket % COARSE + shift, bucket)
    keys, row = np.unique(
        np.column_stack([columns.arm, place, *columns[2:n_keys]]), axis=0, return_inverse=True
    )
    sums = [
        np.bincount(row.ravel(), x, minlength=len(keys)).astype(x.dtype) for x in columns[n_keys:]
    ]
    return type(columns)(*keys.T, *sums)
