"""A backup that is taken while decisions go on is a ledger of one moment."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live.servers import Server
from zib.core.entry import interpreted
from zib.live import Ledger
from zib.mab import NormalTS


@pytest.fixture(autouse=True)
def _interpreted() -> Iterator[None]:
    with interpreted():
        yield


def made(database: object) -> Ledger:
    ledger = Ledger(
        database, arms=["A", "B"], window="7d", policy=NormalTS(), draws=50, background=False
    )
    for k in range(20):
        decision = ledger.decide(f"k{k}")
        if k % 4 == 0:
            ledger.event(f"e{k}", decision.id, 5.0)
    return ledger


def goes_on(restored: object, before: Ledger) -> None:
    """Check that the copy is sound, and that sending again what came after the backup is safe."""
    with Ledger(restored, background=False) as copy:
        found = copy.check()
        assert found, str(found)
        assert (found.decisions, found.events) == (20, 5)
        assert copy.replay()
        assert copy.event("e0", copy.decision_id("k0"), 5.0).status == "duplicate"
        assert copy.event("e1", copy.decision_id("k1"), 7.0).status == "applied"
        assert copy.decide("k3") == before.decide("k3")
        assert copy.check()


def test_sqlite_is_copied_while_it_is_in_use(tmp_path: Path) -> None:
    path, copy = tmp_path / "ledger.db", tmp_path / "copy.db"
    with made(path) as ledger:
        source, target = sqlite3.connect(path), sqlite3.connect(copy)
        source.backup(target)
        ledger.event("e1", ledger.decision_id("k1"), 7.0)  # after the backup
        target.close()
        source.close()
        goes_on(copy, ledger)


@pytest.mark.slow
def test_postgresql_is_dumped_while_it_is_in_use(postgres: Server, tmp_path: Path) -> None:
    dump, url = tmp_path / "dump.sql", postgres.fresh()
    with made(url) as ledger:
        postgres.program("pg_dump", "--schema", url.rpartition("%3D")[2], "--file", dump, url)
        ledger.event("e1", ledger.decision_id("k1"), 7.0)
        postgres.run("CREATE DATABASE restored")
        other = url.replace("/postgres?", "/restored?")
        assert other != url
        postgres.program("psql", "--quiet", "--set", "ON_ERROR_STOP=1", "--file", dump, other)
        goes_on(other, ledger)
