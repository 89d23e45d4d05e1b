"""SQLite: one process, nothing to install.

A commit at `synchronous=FULL` waits for the disk. Most of that wait is for the write-ahead log
*growing*: its length has to be written, too. So the log is made long once, and commits overwrite
it from the start after each checkpoint, which makes them many times as fast.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import re
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import filelock

from zib.core import validate
from zib.live.answers import LedgerError, Transient
from zib.live.database import Connection, Database, Row, need_schema, upgrade

ROOM = 32 * 1024 * 1024  # length of the write-ahead log
PAGE = 1_024  # ids are hashes: each new row changes a page of its own, which is written whole
BUSY = 10.0  # seconds to wait for a reader that holds a lock
MOST_TOGETHER = 64  # rows in a statement
SHORT_COPIES = 3  # of what was written to the log while most of it was copied
LULL = 0.02  # seconds without a commit after which there is nothing to wait for
_OLDEST = (3, 35)


@functools.cache
def _translated(sql: str) -> str:
    return re.sub(r"\$(\d+)", r"?\1", sql)


@functools.cache
def _insert_sql(table: str, columns: tuple[str, ...], then: str, n: int) -> str:
    row = f"({', '.join('?' * len(columns))})"
    return (
        f"INSERT INTO {table} ({', '.join(columns)}) VALUES {', '.join([row] * n)} "
        f"ON CONFLICT {then}"
    )


def _copy_log(connection: sqlite3.Connection) -> None:
    """Copy what can be copied of the log.

    Passive: never waits for a reader. What was committed is durable if this fails, too, and a
    commit that finds no room tells.
    """
    with contextlib.suppress(sqlite3.Error):
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)")


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    """Turn errors of SQLite into ours."""
    try:
        yield
    except sqlite3.OperationalError as error:
        words = str(error)
        if "locked" in words or "busy" in words:
            raise Transient(f"the database is locked by another program: {words}") from error
        if "full" in words or "disk I/O" in words:
            raise LedgerError(
                f"the database could not be written ({words}): make room on its disk; "
                "nothing has changed"
            ) from error
        raise LedgerError(f"the database refused: {words}") from error
    except sqlite3.DatabaseError as error:
        raise LedgerError(f"the database cannot be used: {error}") from error


class SQLiteConnection(Connection):
    """A connection to a file."""

    name = "sqlite"
    serial = "INTEGER PRIMARY KEY"
    names = "TEXT"
    inflated = "json_extract(b.settings, '$.settings.inflated')"
    shared = False
    closed = False

    def __init__(self, path: Path, *, read_only: bool = False, room: int = ROOM) -> None:
        self._path = path
        self._pages = 0  # written since the last checkpoint, about
        self._most_pages = max(room // PAGE // 2, 500)
        self._copies = bool(room)  # whether a thread may copy the log
        self._copying: threading.Thread | None = None
        self._committed = threading.Event()  # set after each commit while the log is copied
        with _explained():
            self._raw = self._connected("ro" if read_only else "rwc")
            if room and not read_only:
                self._make_room(room)

    def _connected(self, mode: str) -> sqlite3.Connection:
        address = f"{self._path.absolute().as_uri()}?mode={mode}"
        raw = sqlite3.connect(
            address, uri=True, timeout=BUSY, isolation_level=None, check_same_thread=False
        )
        if mode == "rwc":
            raw.execute(f"PRAGMA page_size = {PAGE}")  # of a new file
            raw.execute("PRAGMA journal_mode = WAL")
            raw.execute("PRAGMA synchronous = FULL")
            raw.execute("PRAGMA wal_autocheckpoint = 0")
            raw.execute("PRAGMA cache_size = -65536")
        return raw

    def _run(self, sql: str, *args: Any) -> sqlite3.Cursor:
        return self._raw.execute(sql, args)

    def _make_room(self, room: int) -> None:
        log = self._path.with_name(self._path.name + "-wal")
        if log.exists() and log.stat().st_size >= room:
            return
        self._run("BEGIN IMMEDIATE")
        self._run("CREATE TABLE IF NOT EXISTS zib_room (x BLOB)")
        self._run("INSERT INTO zib_room VALUES (zeroblob(?))", room)
        self._run("COMMIT")
        self._run("DELETE FROM zib_room")
        self._run("PRAGMA wal_checkpoint(RESTART)")
        # The pages of it stay in the cache, and SQLite would go through all of them with each
        # commit from now on, which takes longer than the rest of it: begin with an empty cache.
        used, self._raw = self._raw, self._connected("rwc")
        self._run("SELECT 1 FROM zib_room")  # the log would go with its last connection
        used.close()

    def begin(self) -> None:
        with _explained():
            self._run("BEGIN IMMEDIATE")

    def commit(self) -> None:
        with _explained():
            self._run("COMMIT")
        if self._pages > self._most_pages:
            self._checkpoint()

    def _checkpoint(self) -> None:
        """Copy the log into the file, so that it can be overwritten from the start.

        A thread copies most of it while commits go on, as nobody who is waiting for one should
        wait for that, too. What has come meanwhile is little and is copied here.
        """
        self._committed.set()
        if self._copies and self._copying is None:
            self._copying = threading.Thread(target=self._copy, name="zib-checkpoint", daemon=True)
            self._copying.start()
        elif self._copying is None or not self._copying.is_alive():
            self._copying = None
            _copy_log(self._raw)
            self._pages = 0

    def _copy(self) -> None:
        """Copy the log while commits go on.

        SQLite syncs the file only at the end of a copy that no commit has overtaken. Left to the
        last copy, which callers wait for, that takes 15 ms for a log of ten thousand pages. So the
        short copies here begin just after a commit, when the next one is some milliseconds away.
        """
        with (
            contextlib.suppress(sqlite3.Error),
            contextlib.closing(self._connected("rw")) as other,
        ):
            _copy_log(other)
            for _ in range(SHORT_COPIES):
                self._committed.clear()
                self._committed.wait(LULL)
                _copy_log(other)

    def rollback(self) -> None:
        if self._raw.in_transaction:
            with contextlib.suppress(sqlite3.Error):
                self._run("ROLLBACK")

    def rows(self, sql: str, *args: Any) -> list[Row]:
        with _explained():
            return self._run(_translated(sql), *args).fetchall()

    def run(self, sql: str, *args: Any) -> None:
        self._pages += 1
        with _explained():
            self._run(_translated(sql), *args)

    def script(self, sql: str) -> None:
        with _explained():
            for statement in re.sub(r"--.*", "", sql).split(";"):
                if statement.strip():
                    self._run(statement)

    def _insert(self, table: str, columns: Sequence[str], then: str, rows: Sequence[Row]) -> int:
        """Insert rows and return how many were inserted or changed.

        Many in one statement: each takes and gives back the lock of the interpreter, for which the
        callers wait, too. A few sizes of statements are enough, and they stay prepared.
        """
        self._pages += 2 * len(rows) + 4
        before, start, names = self._raw.total_changes, 0, tuple(columns)
        with _explained():
            while start < len(rows):
                n = min(MOST_TOGETHER, 1 << (len(rows) - start).bit_length() - 1)
                values = tuple(itertools.chain.from_iterable(rows[start : start + n]))
                self._run(_insert_sql(table, names, then, n), *values)
                start += n
        return self._raw.total_changes - before

    def insert_new(
        self, table: str, columns: Sequence[str], rows: Sequence[Row], key: Sequence[str]
    ) -> list[bool]:
        n = self._insert(table, columns, "DO NOTHING", rows)
        if n == len(rows):
            return [True] * n
        # Some were there already. New rows are numbered on from all before, as none is deleted.
        sql = f"SELECT {', '.join(key)} FROM {table} WHERE rowid > last_insert_rowid() - $1"
        added = set(self.rows(sql, n)) if n else set()
        at = [columns.index(name) for name in key]
        return [tuple(row[k] for k in at) in added for row in rows]

    def add(
        self, table: str, keys: Sequence[str], sums: Sequence[str], rows: Sequence[Row]
    ) -> None:
        set_to = ", ".join(f"{name} = {name} + excluded.{name}" for name in sums)
        then = f"({', '.join(keys)}) DO UPDATE SET {set_to}"
        self._insert(table, (*keys, *sums), then, rows)

    def put(
        self, table: str, keys: Sequence[str], columns: Sequence[str], rows: Sequence[Row]
    ) -> None:
        set_to = ", ".join(f"{name} = excluded.{name}" for name in columns)
        then = f"({', '.join(keys)}) DO UPDATE SET {set_to}"
        self._insert(table, (*keys, *columns), then, rows)

    def update(
        self, table: str, keys: Sequence[str], columns: Sequence[str], rows: Sequence[Row]
    ) -> None:
        which = " AND ".join(f"{name} = ?{k}" for k, name in enumerate(keys, 1))
        set_to = ", ".join(f"{name} = ?{k}" for k, name in enumerate(columns, len(keys) + 1))
        self._pages += 2 * len(rows) + 4
        with _explained():
            self._raw.executemany(f"UPDATE {table} SET {set_to} WHERE {which}", rows)

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
        further = f" AND {where}" if where else ""
        return self.rows(
            f"SELECT {', '.join(columns)} FROM {table} "
            f"WHERE {column} IN (SELECT value FROM json_each($1)){further}",
            json.dumps(list(values)),
        )

    def lock_schema(self) -> None:
        """Nothing to do: a transaction that writes is alone."""

    def has_table(self, table: str) -> bool:
        return bool(
            self.rows("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = $1", table)
        )

    def close(self) -> None:
        self.closed = True
        if self._copying is not None:
            self._copying.join()
        with contextlib.suppress(sqlite3.Error):
            self._raw.close()


class SQLiteDatabase(Database):
    """A file that one process writes.

    Parameters
    ----------
    path
        The file; made if it is not there.
    room
        Length of the write-ahead log in bytes that is reserved, so that commits are fast; 0: none.
    read_only
        Whether to look only, which is possible while another process writes.
    """

    def __init__(self, path: Any, *, room: int = ROOM, read_only: bool = False) -> None:
        if sqlite3.sqlite_version_info < _OLDEST:
            raise LedgerError(
                f"SQLite {sqlite3.sqlite_version} is too old: 3.35 or later is needed"
            )
        self.path = validate.path("database", path)
        self.room = room
        self.read_only = read_only
        self._lock: Any = None
        self._open: list[SQLiteConnection] = []
        self._mutex = threading.Lock()
        if read_only:
            self._check_version()
            return
        if not self.path.parent.is_dir():
            raise LedgerError(f"there is no folder {self.path.parent} to keep the database in")
        lock = filelock.FileLock(f"{self.path}.lock", blocking=False)
        try:
            lock.acquire()
        except filelock.Timeout:
            raise LedgerError(
                f"{self.path} is in use already: an SQLite file serves one process, which opens it "
                "once; use PostgreSQL for several"
            ) from None
        except OSError as error:
            raise LedgerError(f"{self.path} cannot be used: {error}") from error
        self._lock = lock
        try:
            # without room, which would be lost again when it is closed
            connection = self._kept(SQLiteConnection(self.path, room=0))
            upgrade(connection)
            self._give_back(connection)
        except BaseException:
            self.close()
            raise

    def _check_version(self) -> None:
        if not self.path.is_file():
            raise LedgerError(f"there is no database {self.path}")
        connection = self.reader()
        try:
            need_schema(connection, str(self.path))
        finally:
            self._give_back(connection)

    def connect(self) -> SQLiteConnection:
        return self._kept(SQLiteConnection(self.path, room=self.room))

    def reader(self) -> SQLiteConnection:
        return self._kept(SQLiteReader(self.path, read_only=True))

    def _kept(self, connection: SQLiteConnection) -> SQLiteConnection:
        with self._mutex:
            self._open = [kept for kept in self._open if not kept.closed] + [connection]
        return connection

    def _give_back(self, connection: SQLiteConnection) -> None:
        with self._mutex:
            self._open.remove(connection)
        connection.close()

    def try_lead(self, bandit: int) -> bool:
        return not self.read_only

    def close(self) -> None:
        with self._mutex:
            for connection in self._open:
                connection.close()
            self._open.clear()
        if self._lock is not None:
            self._lock.release()
            self._lock = None


class SQLiteReader(SQLiteConnection):
    """A connection that only reads; its transactions see one moment and keep nobody waiting."""

    def begin(self) -> None:
        with _explained():
            self._run("BEGIN")
