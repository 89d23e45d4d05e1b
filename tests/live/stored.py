"""What a database holds, read past the package: the log, and the sums kept beside it."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections import Counter, defaultdict
from fractions import Fraction
from typing import Any

from tests.live.naive import DAY, Entry, Made, Naive, Statistics

KINDS = ("event", "revision", "cancel")
CLOSED = -1  # the bucket into which those of decisions that nothing can come for are put
Rows = list[tuple[Any, ...]]


def rows(database: str, sql: str) -> Rows:
    """Run one query in a connection of its own."""
    if "://" not in database:
        connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
        try:
            return connection.execute(sql).fetchall()
        finally:
            connection.close()

    import asyncpg

    async def fetched() -> Rows:
        connection = await asyncpg.connect(database)
        try:
            return [tuple(row) for row in await connection.fetch(sql)]
        finally:
            await connection.close()

    end = time.monotonic() + 30.0
    while True:
        try:
            return asyncio.run(fetched())
        except (OSError, asyncpg.PostgresConnectionError, asyncpg.OperatorInterventionError):
            if time.monotonic() > end:  # a server that a test restarts comes back
                raise
            time.sleep(0.05)


def wait_for_the_last_commit(database: str) -> None:
    """Wait until a server has noticed that clients are gone: it may still be committing for them.

    Queries here are one by one, so a commit between two of them would be seen by half.
    """
    if "://" not in database:
        return
    sql = "SELECT COUNT(*) FROM pg_stat_activity WHERE application_name = 'zib' AND state <> 'idle'"
    end = time.monotonic() + 30.0
    while rows(database, sql)[0][0]:
        assert time.monotonic() < end, "sessions of a killed process are still there"
        time.sleep(0.01)


def log(database: str, naive: Naive, bandit: int = 1) -> Naive:
    """Tell an empty `naive` what is in the log, and return it."""
    for id, arm, at, *drawn in rows(
        database,
        "SELECT id, arm, at, kind, probability, choices FROM decision "
        f"WHERE bandit = {bandit} ORDER BY seq",
    ):
        assert id not in naive.decisions
        naive.decisions[id] = Made(arm, at, None, *drawn)
    naive.entries = [
        Entry(at, KINDS[kind], id, decision, value or 0.0, received)
        for at, id, decision, kind, value, received in rows(
            database,
            f"SELECT at, id, decision, kind, value, received FROM event WHERE bandit = {bandit}",
        )
    ]
    assert len({entry.id for entry in naive.entries}) == len(naive.entries)
    return naive


def sums(database: str, bandit: int = 1) -> Statistics:
    """Return the sums that are kept, all workers together."""
    new = Statistics(Counter(), Counter(), {}, {}, Counter(), {})
    for arm, nonzero, zero, *parts in rows(
        database,
        "SELECT arm, nonzero, zero, total, total_rest, squares, squares_rest FROM arm_sum "
        f"WHERE bandit = {bandit}",
    ):
        total, total_rest, squares, squares_rest = map(Fraction, parts)
        new.rewarded[arm] += nonzero
        new.zeros[arm] += zero
        new.total[arm] = new.total.get(arm, Fraction(0)) + total + total_rest
        new.squares[arm] = new.squares.get(arm, Fraction(0)) + squares + squares_rest
    for arm, bucket, n in rows(
        database, f"SELECT arm, bucket, n FROM waiting WHERE bandit = {bandit}"
    ):
        new.waiting[arm, bucket] += n
    for arm, bucket, bin, n, total in rows(
        database, f"SELECT arm, bucket, bin, n, total FROM converted WHERE bandit = {bandit}"
    ):
        m, before = new.converted.get((arm, bucket, bin), (0, Fraction(0)))
        new.converted[arm, bucket, bin] = (m + n, before + Fraction(total))
    return new


def differences(kept: Statistics, folded: Statistics) -> list[str]:
    """Name what the sums and the fold of the log do not agree on; amounts up to rounding."""
    found = []
    for name in ("zeros", "rewarded", "waiting"):
        a, b = ({k: n for k, n in getattr(s, name).items() if n} for s in (kept, folded))
        found += [
            f"{name}[{k}]: {a.get(k, 0)} kept, {b.get(k, 0)} in the log"
            for k in sorted(a.keys() | b.keys())
            if a.get(k, 0) != b.get(k, 0)
        ]
    for name in ("total", "squares"):
        a, b = getattr(kept, name), getattr(folded, name)
        found += [
            f"{name}[{k}]: {float(a.get(k, 0))} kept, {float(b.get(k, 0))} in the log"
            for k in sorted(a.keys() | b.keys())
            if not _close(a.get(k, Fraction(0)), b.get(k, Fraction(0)), 1e-12)
        ]
    none = (0, Fraction(0))
    for k in sorted(kept.converted.keys() | folded.converted.keys()):
        (n, x), (m, y) = kept.converted.get(k, none), folded.converted.get(k, none)
        if n != m or not _close(x, y, 1e-9):
            found.append(f"converted[{k}]: {n}, {float(x)} kept, {m}, {float(y)} in the log")
    return found


def history(database: str, naive: Naive, bandit: int) -> list[str]:
    """Name what the history and the log do not agree on, day by day."""
    kept: dict[tuple[int, int, int], list[Fraction]] = {}
    expected: Counter[int] = Counter()
    for at, arm, kind, *numbers, chance in rows(
        database,
        "SELECT at, arm, kind, n, nonzero, total, squares, score, score_squares, expected "
        f"FROM history WHERE bandit = {bandit}",
    ):
        day = at // DAY * DAY
        sums = kept.setdefault((day, arm, kind), [Fraction(0)] * 6)
        for k, x in enumerate(numbers):
            sums[k] += Fraction(x)
        expected[day] += chance
    folded, nothing = naive.history(), [Fraction(0)] * 6
    # a large amount that was revised leaves its rounding
    largest: dict[tuple[int, int, int], float] = defaultdict(lambda: 1.0)
    for entry in naive.entries:
        made = naive.decisions.get(entry.decision)
        if made is not None:
            key = (made.at // DAY * DAY, made.arm, made.kind)
            largest[key] = max(largest[key], entry.value**2)
    found = []
    for key in sorted(kept.keys() | folded.keys()):
        a, b = kept.get(key, nothing), folded.get(key, nothing)
        size = max(*map(abs, b), Fraction(largest[key]))
        if a[:2] != b[:2] or any(
            abs(x - y) > 1e-9 * max(abs(x), abs(y), size) for x, y in zip(a[2:], b[2:], strict=True)
        ):
            found.append(f"history[{key}]: {list(map(float, a))}, {list(map(float, b))} in the log")
    drawn = Counter(made.at // DAY * DAY for made in naive.decisions.values() if made.kind == 0)
    found += [
        f"expected[{day}]: {expected[day]} kept, {drawn[day]} decisions of the policy in the log"
        for day in sorted(expected.keys() | drawn.keys())
        if abs(expected[day] - drawn[day]) > 1e-9 * max(drawn[day], 1)
    ]
    return found


def _close(a: Fraction, b: Fraction, share: float) -> bool:
    return abs(a - b) <= Fraction(share) * max(abs(a), abs(b), 1)


def check(database: str, naive: Naive, name: str = "default") -> Naive:
    """Fail unless everything kept beside the log follows from it; return the log."""
    bandit = number(database, name)
    log(database, naive, bandit)
    kept, folded = sums(database, bandit), naive.statistics()
    if any(bucket == CLOSED for _, bucket in kept.waiting) or any(
        bucket == CLOSED for _, bucket, _ in kept.converted
    ):
        kept, folded = kept.collapsed(), folded.collapsed()
    wrong = differences(kept, folded) + history(database, naive, bandit)
    of: dict[str, list[Entry]] = defaultdict(list)
    for entry in naive.entries:
        of[entry.decision].append(entry)
    for id, value, cancelled in rows(
        database, f"SELECT id, value, cancelled FROM decision WHERE bandit = {bandit}"
    ):
        own = of[id]
        expected = (naive.value(id, own) if own else None, any(e.kind == "cancel" for e in own))
        if (value, bool(cancelled)) != expected:
            wrong.append(f"decision {id}: {(value, cancelled)} kept, {expected} in the log")
    for id, decision, parked in rows(
        database, f"SELECT id, decision, parked FROM event WHERE bandit = {bandit}"
    ):
        if parked != (decision not in naive.decisions):
            wrong.append(f"event {id} has parked = {parked}")
    assert not wrong, "\n".join(wrong[:20])
    return naive


def number(database: str, name: str = "default") -> int:
    """Return the number of a bandit."""
    found = {row[1]: row[0] for row in rows(database, "SELECT id, name FROM bandit")}
    return int(found[name])
