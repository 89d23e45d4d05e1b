"""Databases of older versions are upgraded, newer ones refused, and nothing is half done."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live.make_schema1 import START
from tests.live.servers import Server
from tests.live.stored import rows
from zib.core.entry import interpreted
from zib.live import Ledger, LedgerError
from zib.live.database import migrations, upgrade
from zib.live.postgres import PostgresConnection
from zib.live.sqlite import SQLiteConnection

OLDEST = Path(__file__).parent / "data" / "schema1.sql"


@pytest.fixture(autouse=True)
def _interpreted() -> Iterator[None]:
    with interpreted():
        yield


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A database that was written when the schema had version 1."""
    path = tmp_path / "old.db"
    raw = sqlite3.connect(path)
    raw.executescript(OLDEST.read_text(encoding="utf-8"))
    raw.close()
    return path


def tables(path: Path) -> dict[str, str]:
    raw = sqlite3.connect(path)
    found = dict(raw.execute("SELECT name, sql FROM sqlite_master WHERE name NOT LIKE 'zib_room'"))
    raw.close()
    return found


def test_a_database_of_the_first_version_opens_and_goes_on(old: Path, tmp_path: Path) -> None:
    with Ledger(old, "checkout", background=False, clock=lambda: START + 86_400.0) as ledger:
        assert ledger.check(), str(ledger.check())
        replayed = ledger.replay()
        assert replayed, str(replayed)
        assert replayed.replayed == 12
        assert list(ledger.arms) == ["plain", "bundle", "coupon"]
        decision, known = ledger.decision(ledger.decision_id("k3"))
        assert (decision.arm in ledger.arms, known.value) == (True, 0.0)
        assert ledger.decide("k3", unit="u3", arms=["bundle"]) == decision
        # what there was before the history was kept
        sql = "SELECT kind, SUM(n), SUM(nonzero), SUM(total) FROM history GROUP BY kind"
        kept = {row[0]: row[1:] for row in rows(str(old), sql)}
        sql = (
            "SELECT CASE WHEN kind = 0 THEN 3 ELSE kind END, COUNT(*), "
            "COUNT(CASE WHEN value <> 0 THEN 1 END), TOTAL(value) FROM decision "
            "WHERE cancelled = 0 GROUP BY kind"
        )
        assert kept == {row[0]: row[1:] for row in rows(str(old), sql)}
        assert kept[3][0] >= 4
        late = ledger.decide("not yet")  # its event has waited since then
        assert ledger.decision(late.id)[1].value == 4.0
        assert ledger.check()
    Ledger(tmp_path / "new.db", arms=["a"], window=1.0, background=False).close()
    assert tables(old) == tables(tmp_path / "new.db")


def version(path: Path) -> int:
    raw = sqlite3.connect(path)
    found = int(raw.execute("SELECT max(version) FROM zib_schema").fetchone()[0])
    raw.close()
    return found


def test_a_later_version_adds_to_what_is_there_and_is_refused_by_this_one(old: Path) -> None:
    latest = migrations()[-1][0]
    later = [*migrations(), (latest + 1, "ALTER TABLE decision ADD COLUMN more TEXT;")]
    connection = SQLiteConnection(old, room=0)
    assert upgrade(connection, steps=later) == latest + 1
    assert upgrade(connection, steps=later) == latest + 1  # nothing is done twice
    found = connection.rows("SELECT count(*), count(more) FROM decision")
    connection.close()
    assert found == [(12, 0)]
    before = old.read_bytes()
    with pytest.raises(LedgerError, match=rf"schema version {latest + 1}.*update zib to open it"):
        Ledger(old, "checkout", background=False)
    assert old.read_bytes() == before
    assert version(old) == latest + 1


def test_a_migration_that_fails_leaves_everything_as_it_was(old: Path) -> None:
    latest = migrations()[-1][0]
    broken = [
        *migrations(),
        (latest + 1, "ALTER TABLE decision ADD COLUMN more TEXT; ALTER TABLE missing ADD x TEXT;"),
    ]
    connection = SQLiteConnection(old, room=0)
    before = tables(old)
    with pytest.raises(LedgerError, match="no such table: missing"):
        upgrade(connection, steps=broken)
    connection.close()
    assert tables(old) == before
    assert version(old) == 1
    with Ledger(old, "checkout", background=False, clock=lambda: START + 86_400.0) as ledger:
        assert ledger.check()


@pytest.mark.slow
def test_history_of_older_decisions_is_worked_out_by_postgresql_alike(
    old: Path, postgres: Server
) -> None:
    keys = {"bandit": ("id",), "arm": ("bandit", "number"), "decision": ("id",)}
    before = {table: rows(str(old), f"SELECT * FROM {table}") for table in keys}
    here = SQLiteConnection(old, room=0)
    upgrade(here)
    here.close()
    connection = PostgresConnection(postgres.fresh())
    try:
        upgrade(connection, steps=migrations()[:1])
        for table, held in before.items():
            names = [row[1] for row in rows(str(old), f"PRAGMA table_info({table})")]
            names = names[: len(held[0])]
            connection.insert_new(table, names, held, keys[table])
        upgrade(connection)
        sql = "SELECT * FROM history ORDER BY at, arm, kind"
        assert connection.rows(sql) == rows(str(old), sql)
    finally:
        connection.close()
