"""Sums by the time of the decision: what was decided in a period, and what it brought.

Rows of the table ``history`` belong to a period, an arm and a kind of decision. They are a fold of
the log like all statistics, and written in the same transactions. Where rewards are counted from
the inflated value, r is the reward of a decision, π the probability with which its arm was drawn
and K the number of arms it was drawn from:

=================  ================================================================================
``n``              decisions that were not cancelled
``nonzero``        those with a reward
``total``          Σ r
``squares``        Σ r²
``score``          Σ r(1 − 1/(Kπ)): what the policy gains over an even split, by weighting
``score_squares``  Σ (r(1 − 1/(Kπ)))²
=================  ================================================================================

Of the policy's decisions there are also sums over **all** arms that could have been drawn, π being
the probability of the arm that the row is about; cancelled decisions stay in them.

=================  ================================================================================
``expected``       Σ π: how many decisions the arm should have
``variance``       Σ π(1 − π), of that number
``even``           Σ 1/K: how many it would have in an even split
``inverse``        Σ 1/(K²π)
=================  ================================================================================

Periods are a hundredth of window and grace or less, and are put together as they get older.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from zib.live.book import POLICY
from zib.live.database import Connection, Row
from zib.live.outcome import SECOND, Share

# In the column `kind`, besides those of `zib.live.book`: decisions of the policy
BEFORE = 3  # of which it is not known from how many arms they were drawn,
MANY = 4  # or from so many that sums over all arms would take too long
MOST_EXPECTED = 100

HOUR = 3_600 * SECOND
WIDTHS = (10 * SECOND, 60 * SECOND, 600 * SECOND, HOUR, 24 * HOUR)  # each divides the next
KEPT = (300, 300, 300, 1_500)  # periods of these widths, until they are put together
CHART = (*WIDTHS[:4], 6 * HOUR, 24 * HOUR, 7 * 24 * HOUR, 28 * 24 * HOUR)  # widths of its bars
MOST_BARS = 300
PART = 100  # a period is such a part of window and grace, at most, if that is not too short
KEYS = ("bandit", "at", "arm", "kind", "worker")
REWARDS = ("n", "nonzero", "total", "squares", "score", "score_squares")
CHANCES = ("expected", "variance", "even", "inverse")
SUMS = (*REWARDS, *CHANCES)


def width_of(horizon: int) -> int:
    """Return how long a period is at first (microseconds).

    Examples
    --------
    >>> [width_of(days * 24 * HOUR) // SECOND for days in (0, 1, 7)]
    [10, 600, 3600]
    """
    return max((width for width in WIDTHS[:4] if PART * width <= horizon), default=WIDTHS[0])


def chart_width(span: int, horizon: int) -> int:
    """Return how wide the bars of a chart are that shows so much time (microseconds)."""
    least = width_of(horizon)
    return next((w for w in CHART if w >= least and span <= MOST_BARS * w), CHART[-1])


def kind_of(kind: int, choices: int) -> int:
    """Return the kind under which a decision is found in the history."""
    if kind != POLICY or 0 < choices <= MOST_EXPECTED:
        return kind
    return MANY if choices else BEFORE


class Made(NamedTuple):
    """What the history has to know of a decision."""

    arm: int
    at: int
    kind: int
    probability: float
    choices: int


class Periods:
    """What a batch adds to the history of one bandit."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._rewards: dict[tuple[int, int, int], list[float]] = {}
        # New decisions by period, arm, kind and shares. Those of one version are one object.
        self._new: dict[tuple[int, int, int, int], int] = {}
        self._shares: dict[int, tuple[Sequence[int], Sequence[float]]] = {}

    def decided(
        self, at: int, arm: int, kind: int, arms: Sequence[int], shares: Sequence[float]
    ) -> None:
        """Add a new decision, drawn from these arms with these probabilities."""
        key = at - at % self._width, arm, kind, id(shares)
        self._new[key] = self._new.get(key, 0) + 1
        self._shares[key[3]] = arms, shares

    def _cell(self, start: int, arm: int, kind: int) -> list[float]:
        key = start, arm, kind
        cell = self._rewards.get(key)
        if cell is None:
            cell = self._rewards[key] = [0, 0, 0.0, 0.0, 0.0, 0.0]
        return cell

    def change(self, made: Made, part: Share, sign: int) -> None:
        """Add what became of a decision, or take it out again."""
        if not (part.waiting or part.zero or part.nonzero):  # it was cancelled
            return
        start = made.at - made.at % self._width
        cell = self._cell(start, made.arm, kind_of(made.kind, made.choices))
        cell[0] += sign
        if part.nonzero:
            amount = part.amount
            cell[1] += sign
            cell[2] += sign * amount
            cell[3] += sign * amount * amount
            score = amount * weight_of(made)
            cell[4] += sign * score
            cell[5] += sign * score * score

    def write(self, c: Connection, bandit: int) -> None:
        """Put the sums into the database."""
        drawn: dict[tuple[int, int], int] = defaultdict(int)
        for (start, arm, kind, shares), n in self._new.items():
            known = kind_of(kind, len(self._shares[shares][0]))
            self._cell(start, arm, known)[0] += n
            if known == POLICY:
                drawn[start, shares] += n
        chances: dict[tuple[int, int, int], list[float]] = {}
        for (start, which), n in drawn.items():
            arms, shares_of = self._shares[which]
            even = 1.0 / len(arms)
            for arm, share in zip(arms, shares_of, strict=True):
                more = n * share, n * share * (1.0 - share), n * even, n * even * even / share
                cell = chances.setdefault((start, arm, POLICY), [0.0, 0.0, 0.0, 0.0])
                for k, x in enumerate(more):
                    cell[k] += x
        nothing, no_chances = [0, 0, 0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]
        rewards, worker = self._rewards, c.worker
        rows = [
            (bandit, *key, worker, *rewards.get(key, nothing), *chances.get(key, no_chances))
            for key in sorted(rewards.keys() | chances.keys())
        ]
        rows = [row for row in rows if any(row[len(KEYS) :])]
        if rows:
            c.add("history", KEYS, SUMS, rows)


def weight_of(made: Made) -> float:
    """Return what the reward of a decision counts in the gain over an even split: 1 − 1/(Kπ)."""
    if made.kind != POLICY or not made.choices:
        return 0.0
    return 1.0 - 1.0 / (made.choices * made.probability)


# ---------------------------------------------------------------------------- what gets older


def old_before(now: int) -> list[tuple[int, int, int]]:
    """Return which periods are put together: width before, width then, and before which time."""
    return [
        (narrow, wide, (now - kept * narrow) // wide * wide)
        for narrow, wide, kept in zip(WIDTHS, WIDTHS[1:], KEPT, strict=False)
    ]


def compact(c: Connection, bandit: int, now: int) -> None:
    """Put old periods together; sums do not change, whatever others do at the same time."""
    for _, wide, before in old_before(now):
        found: dict[tuple[int, ...], list[float]] = defaultdict(lambda: [0] * len(SUMS))
        for at, *rest in c.rows(
            "DELETE FROM history WHERE bandit = $1 AND at < $2 AND (at % $3 <> 0 OR worker <> $4) "
            f"RETURNING at, arm, kind, {', '.join(SUMS)}",
            bandit, before, wide, c.worker,
        ):  # fmt: skip
            held = found[at - at % wide, rest[0], rest[1]]
            for k, value in enumerate(rest[2:]):
                held[k] += value
        rows = [(bandit, *key, c.worker, *held) for key, held in sorted(found.items()) if any(held)]
        if rows:
            c.add("history", KEYS, SUMS, rows)


# ------------------------------------------------------------------------------------- reading


class Rows(NamedTuple):
    """The history as columns; all workers together, in the order of time."""

    at: NDArray[np.int64]
    arm: NDArray[np.int64]
    kind: NDArray[np.int64]
    n: NDArray[np.float64]
    nonzero: NDArray[np.float64]
    total: NDArray[np.float64]
    squares: NDArray[np.float64]
    score: NDArray[np.float64]
    score_squares: NDArray[np.float64]
    expected: NDArray[np.float64]
    variance: NDArray[np.float64]
    even: NDArray[np.float64]
    inverse: NDArray[np.float64]

    def where(self, which: NDArray[np.bool_]) -> Rows:
        """Return some of the rows."""
        columns: tuple[Any, ...] = self
        return Rows(*(column[which] for column in columns))


def read_history(c: Connection, bandit: int, width: int) -> Rows:
    """Return all of it, in periods of a width (microseconds) or what is kept, if that is wider."""
    sums = ", ".join(f"SUM({name})" for name in SUMS)
    rows: list[Row] = c.rows(
        f"SELECT at - at % $2 AS start, arm, kind, {sums} FROM history WHERE bandit = $1 "
        "GROUP BY start, arm, kind ORDER BY start, arm, kind",
        bandit, width,
    )  # fmt: skip
    table = np.array(rows, dtype=np.float64).reshape(len(rows), 3 + len(SUMS))
    return Rows(*table[:, :3].astype(np.int64).T, *table[:, 3:].T)


def first_of(c: Connection, bandit: int) -> int | None:
    """Return when the history begins (microseconds); None if there is none."""
    ((at,),) = c.rows("SELECT MIN(at) FROM history WHERE bandit = $1", bandit)
    return None if at is None else int(at)
