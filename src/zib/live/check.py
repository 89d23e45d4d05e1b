"""`check`: the statistics are the fold of the log, and the log is sound.

The log is read once, in pages. What became of each decision is worked out anew from its events with
the functions of `zib.live.outcome` and compared with what is stored beside the decision; what all
decisions add up to is compared with the tables of statistics.
"""

from __future__ import annotations

import json
import math
import time
from collections import defaultdict
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from zib.core.exact import SPLIT
from zib.live.book import SHADOW
from zib.live.check_history import PeriodsCheck
from zib.live.database import Connection
from zib.live.outcome import SECOND, WAITS, Entry, Outcome, Rules, Share, outcome, share
from zib.live.pages import (
    KINDS,
    Bandit,
    Columns,
    Progress,
    bandit_of,
    decisions,
    entries,
    real,
    whole,
)
from zib.live.statistics import ArmSums, read_arm_sums

Array = NDArray[np.float64]
Codes = NDArray[np.int64]

EXACT = 1e-25  # relative to the sizes of the amounts that went in, for sums with twice the digits
PLAIN = 1e-9  # the same for ordinary sums
ROUNDING = 1e-13  # what amounts that were revised may leave in a sum, relative to all of the arm
LARGEST_LOG = 745.0  # no logarithm of a positive number is larger in size
MOST_SETS = 10_000  # of eligible arms, kept
NAMED = 20  # problems of one kind that are listed; the others are counted
COMPACTED = -1  # the bucket of all decisions that are older than any that is kept apart

COLUMNS = (
    "id", "arm", "wanted", "probability", "version", "at", "kind", "eligible", "choices", "entries",
    "value", "known", "cancelled",
)  # fmt: skip


@dataclass(frozen=True)
class Check:
    """What a check of a ledger found.

    Attributes
    ----------
    decisions, events
        How many of each the log holds; revisions and cancellations are events here.
    problems
        What is wrong, one sentence each; empty for a sound ledger.
    """

    decisions: int
    events: int
    problems: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return not self.problems

    def __str__(self) -> str:
        read = f"{self.decisions:,} decisions and {self.events:,} events"
        if not self.problems:
            return f"Sound: the statistics are the fold of the log, {read}."
        head = f"{len(self.problems)} problem{'s' * (len(self.problems) > 1)} in {read}:"
        return "\n".join([head, *(f"- {problem}" for problem in self.problems)])


class _Problems:
    """Sentences about what is wrong, at most some of each kind."""

    def __init__(self) -> None:
        self._listed: dict[str, list[str]] = defaultdict(list)
        self._more: dict[str, int] = defaultdict(int)

    def add(self, kind: str, sentence: str) -> None:
        if len(self._listed[kind]) < NAMED:
            self._listed[kind].append(sentence)
        else:
            self._more[kind] += 1

    def more(self, kind: str, number: int) -> None:
        self._more[kind] += number

    def sentences(self) -> list[str]:
        found = []
        for kind, listed in self._listed.items():
            found += listed
            if self._more[kind]:
                found.append(f"and {self._more[kind]:,} more {kind}")
        return found


COUNTS = ("nonzero", "zero", "positive")


class _Fold:
    """The statistics as the log tells them; decisions that no reward can follow are one bucket."""

    def __init__(self, rules: Rules, n_arms: int, now: int) -> None:
        self.rules = rules
        self.oldest = rules.bucket(now - rules.horizon) + 1
        self.counts = {name: np.zeros(n_arms, dtype=np.int64) for name in COUNTS}
        # of the rewards, their squares, their logarithms, and the squares of these
        self.sums = [[Fraction(0)] * n_arms for _ in range(4)]
        # what rounding errors of sums go with: sizes, their squares, and the number of amounts
        self.sizes = np.zeros((3, n_arms))
        self.waiting: dict[tuple[int, int], int] = defaultdict(int)
        # number, total and squares of the amounts, and the sizes of the last two
        self.converted: dict[tuple[int, int, int], Array] = defaultdict(lambda: np.zeros(5))

    def _bucket(self, at: Codes) -> Codes:
        found = at // self.rules.width
        return np.where(found < self.oldest, COMPACTED, found)

    def add_waiting(self, arm: Codes, at: Codes) -> None:
        """Count decisions that wait."""
        if arm.size:
            pairs = np.stack([arm, self._bucket(at)])
            pairs, n = np.unique(pairs, axis=1, return_counts=True)
            for a, b, many in zip(*pairs.tolist(), n.tolist(), strict=True):
                self.waiting[a, b] += many

    def add(self, arm: Codes, at: Codes, parts: list[Share], size: Array, lines: Codes) -> None:
        """Count decisions with what they add, the sizes of their amounts and numbers of lines."""
        waits, zero, nonzero, amount, delay = (np.array(column) for column in zip(*parts))
        self.add_waiting(arm[waits == 1], at[waits == 1])
        n = self.sizes.shape[1]
        for k, x in enumerate((size, size * size, lines)):
            self.sizes[k] += np.bincount(arm, x, n)
        is_reward, positive = nonzero == 1, (nonzero == 1) & (amount > 0.0)
        for name, these in zip(COUNTS, (is_reward, zero == 1, positive), strict=True):
            self.counts[name] += np.bincount(arm[these], minlength=n)
        for k in np.unique(arm[is_reward]).tolist():
            y = amount[is_reward & (arm == k)]
            logs = np.array([math.log(x) for x in y[y > 0.0].tolist()])
            terms = ((y,), _squared(y), (logs,), _squared(logs))
            for into, some in zip(self.sums, terms, strict=True):
                into[k] += _exact_sum(*some)
        timed = np.flatnonzero(delay >= 0)
        if timed.size:
            keys = np.stack([arm[timed], self._bucket(at[timed]), delay[timed]])
            keys, cell = np.unique(keys, axis=1, return_inverse=True)
            y, large = amount[timed], size[timed]
            table = np.stack(
                [np.bincount(cell.ravel(), x) for x in (y**0, y, y * y, large, large * large)]
            )
            for key, sums in zip(zip(*keys.tolist(), strict=True), table.T, strict=True):
                self.converted[key] += sums


def _squared(x: Array) -> tuple[Array, Array]:
    """Return the squares as they are rounded, and what rounding left out (Dekker's product)."""
    upper = SPLIT * x - (SPLIT * x - x)
    lower = x - upper
    square = x * x
    return square, ((upper * upper - square) + 2.0 * upper * lower) + lower * lower


def _exact_sum(*parts: Array) -> Fraction:
    """Return the sum of all numbers to 32 digits: rounded, and then what rounding left out."""
    terms = [x for part in parts for x in part.tolist()]
    rounded = math.fsum(terms)
    return Fraction(rounded) + Fraction(math.fsum([*terms, -rounded]))


def check(
    connection: Connection,
    name: str = "default",
    *,
    now: int | None = None,
    progress: Progress | None = None,
) -> Check:
    """Compare everything that is stored with the log.

    Parameters
    ----------
    connection
        In a transaction that sees one moment; see `zib.live.pages.looking`.
    name
        Of the bandit.
    now
        The time in microseconds since 1970; the clock of this machine by default. Counts of
        decisions that are too old for a reward are compared in one sum, as they may have been put
        together.
    progress
        Called with what is done and the share of it that is done.
    """
    bandit = bandit_of(connection, name)
    now = round(time.time() * SECOND) if now is None else now
    problems = _Problems()
    known = _Known(connection, bandit)
    # a clock that was set back must not hide what the keeper has put together before
    ((made_at,),) = connection.rows(
        "SELECT COALESCE(MAX(made_at), 0) FROM model WHERE bandit = $1", bandit.id
    )
    n_arms = max(bandit.arms, default=-1) + 1
    fold = _Fold(bandit.configuration.settings.rules, n_arms, max(now, int(made_at)))
    ((n,),) = connection.rows("SELECT count(*) FROM decision WHERE bandit = $1", bandit.id)
    periods = PeriodsCheck()
    done = 0
    for first, last, page in decisions(connection, bandit.id, COLUMNS):
        sound = known.check(page, problems)
        found = entries(connection, bandit.id, first, last)
        parts = _fold_page(fold, page, sound, found, problems)
        periods.add(page, sound, parts)
        done += len(page["seq"])
        if progress is not None:
            progress("checking decisions", done / max(int(n), 1))
    events = _check_events(connection, bandit, problems)
    _compare_arms(connection, bandit, fold, problems)
    _compare_cells(connection, bandit, fold, problems)
    for sentence in periods.compared(connection, bandit):
        problems.add("periods of the history", sentence)
    return Check(done, events, problems.sentences())


class _Known:
    """Arms and model versions that decisions may name."""

    def __init__(self, connection: Connection, bandit: Bandit) -> None:
        versions = connection.rows("SELECT version FROM model WHERE bandit = $1", bandit.id)
        self._arms = np.array(list(bandit.arms), dtype=np.int64)
        self._versions = np.array([number for (number,) in versions], dtype=np.int64)
        self._eligible: dict[str, frozenset[int]] = {}

    def check(self, page: Columns, problems: _Problems) -> NDArray[np.bool_]:
        """Look at what does not depend on events; return which decisions name a known arm."""
        arm, probability = whole(page["arm"]), real(page["probability"])
        right = {
            "arm": np.isin(arm, self._arms),
            "wanted": np.isin(whole(page["wanted"]), self._arms),
            "version": np.isin(whole(page["version"]), self._versions),
            "kind": np.isin(whole(page["kind"]), np.arange(len(KINDS))),
            "probability": (probability > 0.0) & (probability <= 1.0),
        }
        words = {
            "arm": "serves arm number {}, which is not known",
            "wanted": "wanted arm number {}, which is not known",
            "version": "was made by model version {}, which is not known",
            "kind": "is of kind {}, which is not known",
            "probability": "has the probability {}, which must lie in (0, 1]",
        }
        for column, is_right in right.items():
            for k in np.flatnonzero(~is_right).tolist():
                sentence = words[column].format(page[column][k])
                problems.add(f"decisions with a wrong {column}", _decision(page, k) + sentence)
        for k, text in enumerate(page["eligible"]):
            # in shadow mode the default arm is served, whatever is eligible
            drawn = "wanted" if page["kind"][k] == SHADOW else "arm"
            if text is not None and page[drawn][k] not in self._allowed(text):
                problems.add(
                    "decisions that draw an arm which was not eligible",
                    f"{_decision(page, k)}draws arm number {page[drawn][k]}, which is not among "
                    f"the eligible ones, {text}",
                )
        return right["arm"]

    def _allowed(self, text: str) -> frozenset[int]:
        found = self._eligible.get(text)
        if found is None:
            if len(self._eligible) > MOST_SETS:
                self._eligible.clear()
            found = self._eligible[text] = frozenset(json.loads(text))
        return found


def _decision(page: Columns, k: int) -> str:
    return f"decision {page['id'][k]} "


def _fold_page(
    fold: _Fold,
    page: Columns,
    sound: NDArray[np.bool_],
    found: dict[int, list[Entry]],
    problems: _Problems,
) -> dict[int, tuple[Share, float]]:
    """Work out what became of the decisions of a page; compare, and count.

    Returned is what the decisions with events add, and the sizes of their amounts, by position.
    """
    seq, arm, at = page["seq"], page["arm"], page["at"]
    spoken = np.zeros(len(seq), dtype=bool)
    spoken[np.searchsorted(whole(seq), sorted(found))] = True
    changed = (
        (whole(page["entries"]) != 0)
        | ~np.isnan(real(page["value"]))
        | ~np.isnan(real(page["known"]))
        | (whole(page["cancelled"]) != 0)
    )
    for k in np.flatnonzero(changed & ~spoken).tolist():
        _compare_outcome(page, k, WAITS, problems)
    waits = sound & ~spoken
    fold.add_waiting(whole(arm)[waits], whole(at)[waits])
    parts, sizes, numbers = [], [], []
    for k in np.flatnonzero(spoken).tolist():
        lines = found[seq[k]]
        now = outcome(fold.rules, at[k], lines)
        _compare_outcome(page, k, now, problems)
        if sound[k]:
            parts.append(share(fold.rules, at[k], now))
            # no value that it had on the way was larger than all amounts together
            sizes.append(sum(abs(line.value or 0.0) for line in lines) + abs(fold.rules.inflated))
            numbers.append(len(lines))
    told = sound & spoken
    if parts:
        fold.add(whole(arm)[told], whole(at)[told], parts, real(sizes), whole(numbers))
    return dict(zip(np.flatnonzero(told).tolist(), zip(parts, sizes, strict=True), strict=True))


def _compare_outcome(page: Columns, k: int, now: Outcome, problems: _Problems) -> None:
    was = Outcome(
        page["entries"][k], page["value"][k], page["known"][k], bool(page["cancelled"][k])
    )
    if was == now:
        return
    apart = (
        f"`{name}` {stored}, but its events say {told}"
        for name, stored, told in zip(Outcome._fields, was, now, strict=True)
        if stored != told
    )
    problems.add(
        "decisions whose outcome is not the fold of their events",
        f"{_decision(page, k)}is stored with {'; '.join(apart)}",
    )


def _check_events(connection: Connection, bandit: Bandit, problems: _Problems) -> int:
    """Compare the marks of parked events with whether their decision is there; count events."""
    for parked, test, words in (
        (1, "EXISTS", "is parked although its decision is there"),
        (0, "NOT EXISTS", "is not parked although its decision is not there"),
    ):
        where = (
            f"FROM event e WHERE e.bandit = $1 AND e.parked = {parked} AND {test} "
            "(SELECT 1 FROM decision d WHERE d.id = e.decision AND d.bandit = e.bandit)"
        )
        ((many,),) = connection.rows(f"SELECT count(*) {where}", bandit.id)
        if many:
            named = connection.rows(f"SELECT e.id {where} ORDER BY e.id LIMIT {NAMED}", bandit.id)
            for (event,) in named:
                problems.add("events with a wrong mark of parking", f"event {event!r} {words}")
            problems.more("events with a wrong mark of parking", int(many) - len(named))
    ((n,),) = connection.rows("SELECT count(*) FROM event WHERE bandit = $1", bandit.id)
    return int(n)


# ---------------------------------------------------------------------------------------- comparing


def _compare_arms(connection: Connection, bandit: Bandit, fold: _Fold, problems: _Problems) -> None:
    found = connection.rows("SELECT DISTINCT arm FROM arm_sum WHERE bandit = $1", bandit.id)
    unknown = sorted({int(arm) for (arm,) in found} - set(bandit.arms))
    for arm in unknown:
        problems.add("sums of arms", f"there are sums of arm number {arm}, which is not known")
    n_arms = max([*bandit.arms, *unknown], default=-1) + 1
    stored = read_arm_sums(connection, bandit.id, n_arms)
    log_size = LARGEST_LOG * fold.sizes[2]
    compared = (
        ("number of rewards", "nonzero", fold.counts["nonzero"], None),
        ("number of zeros", "zero", fold.counts["zero"], None),
        ("number of positive rewards", "positive", fold.counts["positive"], None),
        ("sum of the rewards", ("sums", "total"), fold.sums[0], fold.sizes[0]),
        ("sum of the squared rewards", ("sums", "squares"), fold.sums[1], fold.sizes[1]),
        ("sum of the logarithms of the rewards", ("logs", "total"), fold.sums[2], log_size),
        ("sum of their squares", ("logs", "squares"), fold.sums[3], LARGEST_LOG * log_size),
    )
    for arm, (label, _) in bandit.arms.items():
        for words, where, log, size in compared:
            was, now = _exactly(stored, where, arm), Fraction(log[arm])
            if float(abs(was - now)) > (0.0 if size is None else EXACT * size[arm]):
                problems.add(
                    "sums of arms",
                    f"arm {label!r}: the {words} is {float(was)!r} in the statistics, but "
                    f"{float(now)!r} in the log",
                )


def _exactly(sums: ArmSums, where: str | tuple[str, str], arm: int) -> Fraction:
    if isinstance(where, str):
        return Fraction(int(getattr(sums, where)[arm]))
    part, name = getattr(sums, where[0]), where[1]
    high, low = (float(getattr(part, each)[arm]) for each in (name, f"{name}_rest"))
    return Fraction(high) + Fraction(low)


def _compare_cells(
    connection: Connection, bandit: Bandit, fold: _Fold, problems: _Problems
) -> None:
    """Compare the counts by age and delay."""
    bucket = f"CASE WHEN bucket < $2 THEN {COMPACTED} ELSE bucket END"
    waiting = connection.rows(
        f"SELECT arm, {bucket}, SUM(n) FROM waiting WHERE bandit = $1 GROUP BY 1, 2",
        bandit.id,
        fold.oldest,
    )
    converted = connection.rows(
        f"SELECT arm, {bucket}, bin, SUM(n), SUM(total), SUM(squares) FROM converted "
        "WHERE bandit = $1 GROUP BY 1, 2, 3",
        bandit.id,
        fold.oldest,
    )
    counted: dict[tuple[int, int], Codes] = defaultdict(lambda: np.zeros(2, dtype=np.int64))
    for arm, at, n in waiting:
        counted[arm, at][0] += int(n)
    for key, n in fold.waiting.items():
        counted[key][1] += n
    for (arm, at), (stored, log) in sorted(counted.items()):
        if stored != log:
            problems.add(
                "counts of waiting decisions",
                f"{stored} decisions of {_cell(bandit, arm, at)} wait in the statistics, "
                f"but {log} in the log",
            )
    cells: dict[tuple[int, int, int], Array] = defaultdict(lambda: np.zeros(8))
    for arm, at, delay, *sums in converted:
        cells[arm, at, delay][:3] += [float(x) for x in sums]
    for cell_key, told in fold.converted.items():
        cells[cell_key][3:] += told
    for (arm, at, delay), cell in sorted(cells.items()):
        whole_arm = np.zeros(2) if arm not in bandit.arms else fold.sizes[:2, arm]
        close = np.concatenate([[0.0], PLAIN * cell[6:] + ROUNDING * whole_arm])
        for k, words in enumerate(("number", "sum", "sum of squares")):
            if not abs(cell[k] - cell[3 + k]) <= close[k]:
                problems.add(
                    "rewards by delay",
                    f"the {words} of the rewards of {_cell(bandit, arm, at)} with delays in "
                    f"bin {delay} is {cell[k]:.17g} in the statistics, but {cell[3 + k]:.17g} in "
                    "the log",
                )


def _cell(bandit: Bandit, arm: int, bucket: int) -> str:
    label = repr(bandit.arms[arm].label) if arm in bandit.arms else f"number {arm}"
    return f"arm {label} in " + (
        "the oldest buckets" if bucket == COMPACTED else f"bucket {bucket}"
    )
