"""The log of a bandit in pages: decisions in the order they were made, with what became known.

A page is bounded, so a log of any length is read in the same memory.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from zib.core import validate
from zib.live.answers import LedgerError
from zib.live.database import Connection, Database, is_address, need_schema
from zib.live.outcome import Entry
from zib.live.settings import Configuration, label_of

PAGE = 50_000  # decisions read at a time
KINDS = ("policy", "holdout", "shadow")

Progress = Callable[[str, float], None]
Columns = dict[str, tuple[Any, ...]]


class Arm(NamedTuple):
    """An arm as its table has it."""

    label: Hashable
    status: str


class Bandit(NamedTuple):
    """A bandit as the tables of its database tell it."""

    id: int
    name: str
    configuration: Configuration
    arms: dict[int, Arm]


@contextlib.contextmanager
def looking(database: Any) -> Iterator[Connection]:
    """Yield a connection that sees one moment of a database; nobody waits for it.

    `database` is a path, an address, or an open `Database`, which stays open. A file may be in use
    by a ledger, in this process or another one.
    """
    connection = _reader(database)
    try:
        connection.begin()
        yield connection
        connection.rollback()
    finally:
        connection.close()


def _reader(database: Any) -> Connection:
    """Return a connection that reads; nothing in the database changes, its schema included."""
    if isinstance(database, Database):
        return database.reader()
    if not is_address(database):
        from zib.live.sqlite import SQLiteDatabase

        return SQLiteDatabase(database, read_only=True).reader()
    from zib.live.postgres import PostgresConnection

    connection = PostgresConnection(database, writes=False)
    try:
        need_schema(connection, "this")
    except BaseException:
        connection.close()
        raise
    return connection


def bandit_of(connection: Connection, name: str) -> Bandit:
    """Return the bandit with this name."""
    found = connection.rows("SELECT id, settings FROM bandit WHERE name = $1", name)
    if not found:
        names = [row[0] for row in connection.rows("SELECT name FROM bandit ORDER BY name")]
        known = ", ".join(map(repr, names[:10])) or "none"
        raise LedgerError(
            f"`name` must be that of a bandit in the database, which has {known}; "
            f"got {validate.shown(name)}"
        )
    ((number, settings),) = found
    arms = connection.rows(
        "SELECT number, label, status FROM arm WHERE bandit = $1 ORDER BY number", number
    )
    return Bandit(
        int(number),
        name,
        Configuration.loads(settings),
        {int(k): Arm(label_of(label), status) for k, label, status in arms},
    )


def decisions(
    connection: Connection,
    bandit: int,
    columns: Sequence[str],
    *,
    size: int = PAGE,
    since: int | None = None,
    until: int | None = None,
    kind: int | None = None,
) -> Iterator[tuple[int, int, Columns]]:
    """Yield pages of decisions: after which number, up to which number, and their columns.

    `since` and `until` are microseconds since 1970; a decision at `until` is left out.
    """
    wanted = ["seq", *columns]
    tests, values = ["bandit = $1", "seq > $2"], []
    for test, value in (("at >=", since), ("at <", until), ("kind =", kind)):
        if value is not None:
            values.append(value)
            tests.append(f"{test} ${2 + len(values)}")
    sql = (
        f"SELECT {', '.join(wanted)} FROM decision WHERE {' AND '.join(tests)} "
        f"ORDER BY seq LIMIT {int(size)}"
    )
    last = -1
    while rows := connection.rows(sql, bandit, last, *values):
        found = dict(zip(wanted, zip(*rows), strict=True))
        first, last = last, int(found["seq"][-1])
        yield first, last, found
        if len(rows) < size:
            return


def entries(connection: Connection, bandit: int, first: int, last: int) -> dict[int, list[Entry]]:
    """Return what became known of the decisions after number `first` up to `last`, by number."""
    # CROSS JOIN: SQLite would read the whole table of events for each page
    rows = connection.rows(
        "SELECT d.seq, e.id, e.kind, e.value, e.at, e.received FROM decision d CROSS JOIN event e "
        "WHERE e.decision = d.id AND +e.bandit = d.bandit AND d.bandit = $1 AND d.seq > $2 "
        "AND d.seq <= $3",
        bandit, first, last,
    )  # fmt: skip
    found: dict[int, list[Entry]] = {}
    for seq, *rest in rows:
        found.setdefault(seq, []).append(Entry(*rest))
    return found


def whole(values: Sequence[Any]) -> NDArray[np.int64]:
    """Return a column of whole numbers."""
    return np.array(values, dtype=np.int64)


def real(values: Sequence[Any]) -> NDArray[np.float64]:
    """Return a column of numbers; NaN where there is none."""
    return np.array(values, dtype=np.float64)
