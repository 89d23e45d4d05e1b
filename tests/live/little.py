"""A ledger without a policy, on SQLite with a clock that is set by hand: the engine and no more."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from zib.live import engine
from zib.live.book import Asked, Book, Drawn, Reported, Work, fraction
from zib.live.database import in_transaction
from zib.live.outcome import CANCEL, EVENT, REVISION, SECOND, Entry
from zib.live.pages import bandit_of
from zib.live.settings import Configuration, Settings, label_text
from zib.live.sqlite import SQLiteDatabase
from zib.mab import UCB

START = 1_700_000_000


class Shares:
    """A model that gives every arm the same share, always."""

    def __init__(self, shares: Sequence[float], version: int = 1) -> None:
        self.shares = tuple(shares)
        self.version = version
        self.active = tuple(range(len(self.shares)))

    def draw(self, key: str, eligible: tuple[int, ...], context: str | None) -> Drawn:
        whole = sum(self.shares[k] for k in eligible)
        shares = [self.shares[k] / whole for k in eligible]
        u = fraction(f"{self.version}{key}") * whole
        for k in eligible:
            u -= self.shares[k]
            if u < 0.0:
                break
        return Drawn(k, self.shares[k] / whole, eligible, shares)


class Little:
    """Decisions and events in a database."""

    def __init__(
        self,
        path: Path,
        labels: Sequence[Any] = ("A", "B"),
        shares: Sequence[float] = (0.7, 0.3),
        name: str = "default",
        **settings: Any,
    ) -> None:
        self.path = path
        self.database = SQLiteDatabase(path, room=0)
        self.connection = self.database.connect()
        self.connection.run("PRAGMA synchronous = OFF")  # nobody pulls the plug here
        settings = {"window": 100.0, **settings}
        self.now = float(START)
        configuration = Configuration(Settings(**settings), UCB(horizon=1000, sigma=1.0))
        in_transaction(self.connection, lambda c: self._make(c, name, labels, configuration))
        with self.reading() as c:
            bandit = bandit_of(c, name)
        self.book = Book(bandit.id, name, configuration)
        self.book.know_arms(labels, ["active"] * len(labels))
        self.book.model = Shares(shares)
        self._entries = 0

    def _make(self, c: Any, name: str, labels: Sequence[Any], made: Configuration) -> None:
        ((number,),) = c.rows("SELECT COALESCE(MAX(id), 0) + 1 FROM bandit")
        at = START * SECOND
        c.run(
            "INSERT INTO bandit (id, name, settings, created_at) VALUES ($1, $2, $3, $4)",
            number, name, made.dumps(), at,
        )  # fmt: skip
        for k, label in enumerate(labels):
            c.run(
                "INSERT INTO arm VALUES ($1, $2, $3, 'active', $4)",
                number, k, label_text(label), at,
            )  # fmt: skip
        c.run("INSERT INTO model VALUES ($1, 1, $2, '')", number, at)

    def reading(self) -> Any:
        from zib.live.pages import looking

        return looking(self.database)

    def _do(self, work: Work) -> list[Any]:
        in_transaction(self.connection, lambda c: engine.run(c, [work]))
        engine.settle([work])
        return work.answers

    def decide(
        self,
        *keys: str,
        at: float | None = None,
        unit: str | None = None,
        arms: tuple[int, ...] | None = None,
        context: str | None = None,
    ) -> list[Any]:
        when = round((self.now if at is None else at) * SECOND)
        asked = [
            Asked(self.book.decision_id(key), key, "", unit, arms, context, when) for key in keys
        ]
        return self._do(Work(self.book, asked=asked))

    def enter(
        self,
        kind: int,
        key: str,
        value: float | None,
        id: str | None = None,
        at: float | None = None,
        received: float | None = None,
    ) -> Any:
        self._entries += 1
        happened, known = (
            round((self.now if time is None else time) * SECOND) for time in (at, received)
        )
        entry = Entry(id or f"entry-{self._entries}", kind, value, happened, known)
        report = Reported(self.book.decision_id(key), entry, True)
        return self._do(Work(self.book, reported=[report]))[0]

    def event(self, key: str, value: float, **more: Any) -> Any:
        return self.enter(EVENT, key, value, **more)

    def revise(self, key: str, value: float, **more: Any) -> Any:
        return self.enter(REVISION, key, value, **more)

    def cancel(self, key: str) -> Any:
        return self.enter(CANCEL, key, None)

    def spoil(self, sql: str) -> None:
        """Change the database behind the back of the ledger."""
        spoil(self.path, sql)

    def close(self) -> None:
        self.database.close()


def spoil(path: Path | str, sql: str) -> None:
    """Change a database behind the back of its ledger."""
    with sqlite3.connect(path) as raw:
        raw.execute("PRAGMA synchronous = OFF")
        raw.execute(sql)
    raw.close()
