"""A bandit service as one would write it by hand in an afternoon: FastAPI, SQLite, Beta sampling.

It is as durable as the service it is measured next to: write-ahead log, `synchronous=FULL`, and a
commit before each answer. Decisions are safe to repeat, events are counted once. It knows nothing
of windows, delays, late events, propensities, arms that change, or several bandits.

Two ways suggest themselves and both are measured; `BYHAND` says which: "threads" (plain functions,
which FastAPI runs in threads, a connection each) or "loop" (coroutines that share one connection).
"""

from __future__ import annotations

import os
import random
import sqlite3
import threading
import time
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel

ARMS = ["A", "B", "C"]
DATABASE = os.environ["BYHAND_DATABASE"]
SCHEMA = """
CREATE TABLE IF NOT EXISTS decision (
    key TEXT PRIMARY KEY, arm TEXT NOT NULL, at REAL NOT NULL, value REAL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS event (
    id TEXT PRIMARY KEY, key TEXT NOT NULL, value REAL NOT NULL, at REAL NOT NULL) WITHOUT ROWID;
"""

app = FastAPI()
counts = {arm: [1.0, 1.0] for arm in ARMS}  # rewarded, and not; as far as is known
kept = threading.local()


class Ask(BaseModel):
    """A request for a decision."""

    key: str


class Event(BaseModel):
    """Something that happened after a decision."""

    id: str
    key: str
    value: float


def connect() -> sqlite3.Connection:
    """Return a connection at which a commit waits for the disk."""
    connection = sqlite3.connect(DATABASE, timeout=30.0, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    return connection


shared = connect()
shared.executescript(SCHEMA)


def decide(connection: sqlite3.Connection, ask: Ask) -> dict[str, Any]:
    """Draw an arm, write it down, and return it."""
    arm = max(ARMS, key=lambda arm: random.betavariate(*counts[arm]))
    new = connection.execute(
        "INSERT INTO decision VALUES (?, ?, ?, NULL) ON CONFLICT DO NOTHING",
        (ask.key, arm, time.time()),
    ).rowcount
    connection.commit()
    if not new:
        ((arm,),) = connection.execute("SELECT arm FROM decision WHERE key = ?", (ask.key,))
    else:
        counts[arm][1] += 1.0
    return {"key": ask.key, "arm": arm}


def report(connection: sqlite3.Connection, event: Event) -> dict[str, Any]:
    """Write an event down, once."""
    new = connection.execute(
        "INSERT INTO event VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
        (event.id, event.key, event.value, time.time()),
    ).rowcount
    changed = (
        connection.execute(
            "UPDATE decision SET value = COALESCE(value, 0) + ? WHERE key = ? RETURNING arm",
            (event.value, event.key),
        ).fetchall()
        if new
        else []
    )
    connection.commit()
    for (arm,) in changed:
        counts[arm][0] += 1.0
        counts[arm][1] -= 1.0
    return {"id": event.id, "new": bool(new)}


def own() -> sqlite3.Connection:
    """Return the connection of this thread."""
    if not hasattr(kept, "connection"):
        kept.connection = connect()
    found: sqlite3.Connection = kept.connection
    return found


if os.environ.get("BYHAND") == "loop":

    @app.post("/decide")
    async def decide_in_loop(ask: Ask) -> dict[str, Any]:
        """Decide on the one connection: nobody else can run meanwhile."""
        return decide(shared, ask)

    @app.post("/event")
    async def report_in_loop(event: Event) -> dict[str, Any]:
        """Take an event on the one connection."""
        return report(shared, event)

else:

    @app.post("/decide")
    def decide_in_thread(ask: Ask) -> dict[str, Any]:
        """Decide in a thread, on its connection."""
        return decide(own(), ask)

    @app.post("/event")
    def report_in_thread(event: Event) -> dict[str, Any]:
        """Take an event in a thread, on its connection."""
        return report(own(), event)
