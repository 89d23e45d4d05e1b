"""What a ledger needs of a database: transactions, batches, and a schema that is kept up to date.

SQL is the same for both databases, with parameters $1, $2, …; what differs is behind `Connection`.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from importlib import resources
from typing import Any

from zib.live.answers import LedgerError

Row = tuple[Any, ...]


class Connection(ABC):
    """One connection, used by one thread at a time.

    A connection that was lost raises `Transient`; what cannot be helped by trying again raises a
    `LedgerError` with a sentence.
    """

    name: str  # of the database system
    serial: str  # type of a column that counts rows
    names: str  # type of a column of names, compared letter by letter
    inflated: str  # the inflated value in the settings of a bandit b
    shared: bool  # whether other processes may write at the same time
    worker: int = 0  # the slot that counters of this process are kept under

    @abstractmethod
    def begin(self) -> None:
        """Start a transaction."""

    @abstractmethod
    def commit(self) -> None:
        """Make it durable."""

    @abstractmethod
    def rollback(self) -> None:
        """Forget it."""

    @abstractmethod
    def rows(self, sql: str, *args: Any) -> list[Row]:
        """Return the rows of a query."""

    @abstractmethod
    def run(self, sql: str, *args: Any) -> None:
        """Execute one statement."""

    @abstractmethod
    def script(self, sql: str) -> None:
        """Execute several statements in the transaction."""

    @abstractmethod
    def insert_new(
        self, table: str, columns: Sequence[str], rows: Sequence[Row], key: Sequence[str]
    ) -> list[bool]:
        """Insert the rows whose key is not there yet; return which these are.

        Keys of `rows` differ from each other.
        """

    @abstractmethod
    def add(
        self, table: str, keys: Sequence[str], sums: Sequence[str], rows: Sequence[Row]
    ) -> None:
        """Add numbers to those in rows with these keys; rows that are missing start from 0."""

    @abstractmethod
    def put(
        self, table: str, keys: Sequence[str], columns: Sequence[str], rows: Sequence[Row]
    ) -> None:
        """Set columns of rows with these keys, whether they were there or not."""

    @abstractmethod
    def update(
        self, table: str, keys: Sequence[str], columns: Sequence[str], rows: Sequence[Row]
    ) -> None:
        """Set columns of rows that are there; each of `rows` begins with its keys."""

    @abstractmethod
    def find(
        self,
        table: str,
        columns: Sequence[str],
        column: str,
        values: Sequence[str],
        *,
        lock: bool = False,
        where: str = "",
    ) -> list[Row]:
        """Return rows whose `column`, of text, is one of `values`.

        With `lock` nobody else changes them until the transaction ends. `where` is a further
        condition.
        """

    @abstractmethod
    def lock_schema(self) -> None:
        """Keep others from changing the schema until the transaction ends."""

    @abstractmethod
    def has_table(self, table: str) -> bool:
        """Whether there is such a table."""

    @abstractmethod
    def close(self) -> None:
        """Give it back."""


class Database(ABC):
    """Where ledgers are kept: makes connections and says who leads."""

    @abstractmethod
    def connect(self) -> Connection:
        """Return a connection that writes, with a worker slot of its own."""

    @abstractmethod
    def reader(self) -> Connection:
        """Return a connection for reading: each transaction of it sees one moment."""

    @abstractmethod
    def try_lead(self, bandit: int) -> bool:
        """Return whether this process makes the model versions of a bandit, from now on."""

    @abstractmethod
    def close(self) -> None:
        """Give everything back."""


def in_transaction(connection: Connection, work: Callable[[Connection], Any]) -> Any:
    """Return what `work` returns, after its changes are durable; after an error there are none."""
    connection.begin()
    try:
        found = work(connection)
        connection.commit()
    except BaseException:
        connection.rollback()
        raise
    return found


# ----------------------------------------------------------------------------------- the schema


def migrations() -> list[tuple[int, str]]:
    """Return number and text of every migration, in order."""
    folder = resources.files("zib.live") / "migrations"
    found = sorted(
        (int(file.name.split("_")[0]), file.read_text(encoding="utf-8"))
        for file in folder.iterdir()
        if file.name.endswith(".sql")
    )
    assert [number for number, _ in found] == list(range(1, len(found) + 1))
    return found


def upgrade(connection: Connection, *, steps: Iterable[tuple[int, str]] | None = None) -> int:
    """Bring the schema up to date, all of it or nothing; return its version."""
    known = list(migrations() if steps is None else steps)
    latest = known[-1][0]

    def work(c: Connection) -> int:
        c.lock_schema()
        if not c.has_table("zib_schema"):
            c.run("CREATE TABLE zib_schema (version BIGINT PRIMARY KEY, at BIGINT NOT NULL)")
        version = int(c.rows("SELECT COALESCE(MAX(version), 0) FROM zib_schema")[0][0])
        refuse_newer(version, latest)
        for number, sql in known:
            if number > version:
                for word, text in (
                    ("serial", c.serial),
                    ("name", c.names),
                    ("inflated", c.inflated),
                ):
                    sql = sql.replace(f"{{{word}}}", text)
                c.script(sql)
                c.run(
                    "INSERT INTO zib_schema (version, at) VALUES ($1, $2)",
                    number,
                    round(time.time() * 1e6),
                )
        return latest

    return int(in_transaction(connection, work))


def refuse_newer(version: int, latest: int) -> None:
    """Raise if the database was written by a later zib."""
    if version > latest:
        raise LedgerError(
            f"the database has schema version {version}, and this zib knows up to {latest}: "
            "update zib to open it"
        )


def need_schema(connection: Connection, words: str) -> None:
    """Raise unless the schema is that of this zib; `words` name the database."""
    if not connection.has_table("zib_schema"):
        raise LedgerError(f"{words} is not a database of a ledger")
    version = int(connection.rows("SELECT MAX(version) FROM zib_schema")[0][0])
    latest = migrations()[-1][0]
    refuse_newer(version, latest)
    if version < latest:
        raise LedgerError(
            f"the database has schema version {version}, older than {latest}: "
            "open it once as a ledger, which upgrades it"
        )


def is_address(database: Any) -> bool:
    """Whether it is an address of PostgreSQL."""
    return isinstance(database, str) and database.startswith(("postgresql://", "postgres://"))


def open_database(database: Any, *, room: int | None = None) -> Database:
    """Return the database that a path or an address stands for, up to date."""
    if isinstance(database, Database):
        return database
    if is_address(database):
        from zib.live.postgres import PostgresDatabase

        return PostgresDatabase(database)
    from zib.live.sqlite import SQLiteDatabase

    return SQLiteDatabase(database) if room is None else SQLiteDatabase(database, room=room)
