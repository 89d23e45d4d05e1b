"""What PostgreSQL adds: slots, a leader, several processes, and connections that break."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.live.servers import Proxy, Server
from zib.live import Ledger, LedgerError, engine
from zib.live.answers import Transient
from zib.live.book import Work
from zib.live.database import Connection, in_transaction, migrations
from zib.live.postgres import PostgresConnection, PostgresDatabase, lock_key
from zib.live.sqlite import SQLiteDatabase

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("interpreting")]

EVENT = ("bandit", "id", "decision", "kind", "value", "at", "received", "parked")
ARMS = {"arms": ["A", "B"], "window": "7d"}


@pytest.fixture
def url(postgres: Server) -> str:
    return postgres.fresh()


@pytest.fixture
def proxy(postgres: Server) -> Iterator[Proxy]:
    made = Proxy(postgres)
    yield made
    made.close()


def event(id: str, value: float | None = 1.0, decision: str = "d") -> tuple[Any, ...]:
    return 1, id, decision, 0, value, 5, 6, 0


# ----------------------------------------------------------------------------------- statements


def play(connection: Connection, seed: int) -> list[Any]:
    """Run transactions at random; return all answers and what is in the tables at the end."""
    rng = random.Random(seed)
    said: list[Any] = []
    for _ in range(60):
        connection.begin()
        for _ in range(rng.randint(1, 4)):
            ids = rng.sample([f"e{k}" for k in range(40)] + ["é", "'", '"', "$1", "\n"], 6)
            values = [rng.choice([None, 0.0, 1e-300, -1.5, rng.random()]) for _ in ids]
            of = [f"d{rng.randrange(6)}" for _ in ids]
            kind = rng.randrange(5)
            if kind == 0:
                rows = [event(*row) for row in zip(ids, values, of)]
                said.append(connection.insert_new("event", EVENT, rows, ("bandit", "id")))
            elif kind == 1:
                cells = sorted({(1, rng.randrange(3), rng.randrange(3), 0) for _ in ids})
                rows = [(*cell, rng.randint(-2, 5)) for cell in cells]
                connection.add("waiting", ("bandit", "arm", "bucket", "worker"), ("n",), rows)
            elif kind == 2:
                named = [(1, id, 0, rng.randint(0, 9)) for id in ids]
                connection.put("counter", ("bandit", "name", "worker"), ("n",), named)
            elif kind == 3:
                rows = [(1, id, value, 1) for id, value in zip(ids, values)]
                connection.update("event", ("bandit", "id"), ("value", "parked"), rows)
            else:
                where = rng.choice(["", "parked = 1"])
                lock = rng.random() < 0.5
                found = connection.find("event", EVENT, "decision", of, lock=lock, where=where)
                said.append(sorted(found, key=repr))
        if rng.random() < 0.3:
            connection.rollback()
        else:
            connection.commit()
    for table in ("event", "waiting", "counter"):
        said.append(sorted(connection.rows(f"SELECT * FROM {table}"), key=repr))
    return said


@pytest.mark.parametrize("number", range(3))
def test_statements_do_the_same_on_both_databases(
    url: str, tmp_path: Path, seed: int, number: int
) -> None:
    answers = []
    for database in (PostgresDatabase(url), SQLiteDatabase(tmp_path / "same.db", room=0)):
        connection = database.connect()
        answers.append(play(connection, seed + number))
        connection.close()
        database.close()
    assert answers[0] == answers[1]
    assert all(answers[0][-3:])


def test_nothing_to_do_is_nothing_done(url: str) -> None:
    connection = PostgresDatabase(url).connect()
    assert connection.insert_new("event", EVENT, [], ("bandit", "id")) == []
    connection.add("counter", ("bandit", "name", "worker"), ("n",), [])
    connection.update("event", ("bandit", "id"), ("value",), [])
    assert connection.find("event", ("id",), "decision", []) == []
    connection.close()


def test_new_tables_are_read_by_their_keys(url: str) -> None:
    """Plans are made while tables are empty and without statistics, and kept."""
    connection = PostgresDatabase(url).connect()
    plan = connection.rows("EXPLAIN SELECT * FROM decision WHERE id = ANY('{a,b}'::text[])")
    assert "Seq Scan" not in str(plan)
    # and in an order that does not change with the system and its languages
    sorts = (
        "SELECT DISTINCT attcollation::regcollation::text FROM pg_attribute "
        "WHERE attrelid IN ('decision'::regclass, 'event'::regclass) AND attname = 'id'"
    )
    assert connection.rows(sorts) == [('"C"',)]
    connection.close()


def test_it_works_inside_a_loop_of_others(url: str) -> None:
    """As in a notebook, which runs a loop in its main thread."""

    async def cell() -> str:
        with Ledger(url, background=False, **ARMS) as ledger:
            ledger.event("order", ledger.decide("key").id, 1.0)
            await asyncio.sleep(0.0)
            return ledger.event("order", ledger.decide("key").id, 1.0).status

    assert asyncio.run(cell()) == "duplicate"


def test_commits_wait_for_the_disk_even_if_the_server_is_told_not_to(url: str) -> None:
    lax = PostgresConnection(url + "%20-csynchronous_commit%3Doff")
    assert lax.rows("SHOW synchronous_commit") == [("on",)]
    strict = PostgresConnection(url + "%20-csynchronous_commit%3Dremote_apply")
    assert strict.rows("SHOW synchronous_commit") == [("remote_apply",)]
    lax.close()
    strict.close()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda url: url.replace("/postgres?", "/nowhere?"), "there is no such database"),
        (lambda url: url.replace("test_", "other_"), "has no schema other_"),
        (lambda url: url.split("?")[0] + "?host=/nowhere", "cannot be reached"),
        (lambda url: url + "&target_session_attrs=standby", "cannot be reached"),
        (lambda url: url + "&port=abc", "`database` must be an address"),
    ],
)
def test_an_address_that_leads_nowhere_gets_one_sentence(
    url: str, change: Callable[[str], str], words: str
) -> None:
    with pytest.raises(LedgerError, match=words):
        Ledger(change(url), **ARMS)


def test_an_old_server_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zib.live.postgres._OLDEST", 99)
    with pytest.raises(LedgerError, match="is too old: 99 or later is needed"):
        Ledger(url, **ARMS)


def test_what_the_server_refuses_changes_nothing(url: str) -> None:
    connection = PostgresDatabase(url).connect()
    for bad in (event("a\0b"), event("\ud800"), (*event("x")[:5], 2**70, 6, 0)):
        with pytest.raises(LedgerError, match="refused"):
            in_transaction(
                connection,
                lambda c: c.insert_new("event", EVENT, [event("a"), bad], ("bandit", "id")),  # noqa: B023
            )
    assert connection.rows("SELECT * FROM event") == []
    connection.close()


def test_several_processes_may_make_the_tables_at_once(postgres: Server) -> None:
    made_all = [(number,) for number, _ in migrations()]
    for url in (postgres.fresh(), postgres._server.get_uri()):  # the latter: in a schema of its own
        with ThreadPoolExecutor(8) as pool:
            made = list(pool.map(lambda _: PostgresDatabase(url), range(8)))  # noqa: B023
        connection = made[0].connect()
        assert connection.rows("SELECT version FROM zib_schema") == made_all
        assert connection.schema == ("zib" if "options" not in url else url.rpartition("%3D")[2])
        connection.close()


# ------------------------------------------------------------------------------ slots and leaders


def test_no_two_connections_have_one_slot(postgres: Server, url: str) -> None:
    database, elsewhere = PostgresDatabase(url), PostgresDatabase(postgres.fresh())
    first, second = database.connect(), database.connect()
    other = elsewhere.connect()
    assert (first.worker, second.worker, other.worker) == (0, 1, 0)
    first.close()
    third = database.connect()
    assert third.worker == 0
    assert database.reader().worker == -1
    database.close()
    elsewhere.close()
    assert not third.alive


def test_a_connection_that_nobody_holds_gives_its_slot_back(url: str) -> None:
    database = PostgresDatabase(url)
    PostgresConnection(url)
    gc.collect()
    until = time.monotonic() + 30.0
    while (kept := database.connect()).worker != 0:
        kept.close()
        assert time.monotonic() < until
    database.close()


def test_one_leads_until_its_connection_breaks(postgres: Server, url: str) -> None:
    one, two = PostgresDatabase(url), PostgresDatabase(url)
    assert one.try_lead(1)
    assert not two.try_lead(1)
    assert two.try_lead(2)
    assert one.try_lead(1)
    assert postgres.disconnect_all() == 2
    assert two.try_lead(1) is False  # it finds its own connection broken
    assert two.try_lead(1)
    assert not one.try_lead(1)  # it had not noticed, and has stepped down now
    assert not one.try_lead(1)
    two.close()
    assert one.try_lead(1)
    one.close()


def test_a_leader_steps_down_while_the_server_is_away(url: str, postgres: Server) -> None:
    database = PostgresDatabase(url)
    assert database.try_lead(1)
    postgres.stop()
    try:
        assert not database.try_lead(1)
    finally:
        postgres.start()
    assert database.try_lead(1)
    database.close()


def test_names_of_locks_are_far_apart() -> None:
    keys = {lock_key("public", "leader", k) for k in range(1_000)} | {lock_key("a", "b")}
    assert len(keys) == 1_001
    assert all(-(2**63) <= key < 2**63 for key in keys)
    assert -(2**31) <= lock_key("public", "slot", size=4) < 2**31


# ------------------------------------------------------------------------- broken connections


@pytest.mark.parametrize(("when", "committed"), [("after", True), ("before", False)])
def test_a_commit_whose_answer_is_lost_is_looked_up(
    proxy: Proxy, url: str, when: str, committed: bool
) -> None:
    database = PostgresDatabase(proxy.url(url))
    connection = database.connect()
    connection.begin()
    assert connection.insert_new("event", EVENT, [event("a"), event("b")], ("bandit", "id"))
    proxy.break_at_commit(when)
    if committed:
        connection.commit()
    else:
        with pytest.raises(Transient):
            connection.commit()
    assert proxy.broken == 1
    assert not connection.alive
    connection.close()
    reader = database.reader()
    assert len(reader.rows("SELECT * FROM event")) == 2 * committed
    database.close()


def test_another_transaction_is_no_witness(proxy: Proxy, url: str) -> None:
    """The row is there, but somebody else has written it: the batch has to be run again."""
    database = PostgresDatabase(proxy.url(url))
    connection, other = database.connect(), database.connect()
    connection.begin()
    connection.insert_new("event", EVENT, [event("a")], ("bandit", "id"))
    proxy.break_at_commit("before")
    racing = threading.Thread(
        target=lambda: other.insert_new("event", EVENT, [event("a")], ("bandit", "id"))
    )
    racing.start()  # waits for the first, which breaks
    with pytest.raises(Transient):
        connection.commit()
    racing.join()
    assert len(other.rows("SELECT * FROM event")) == 1
    database.close()


@pytest.mark.parametrize("when", ["before", "after"])
def test_callers_do_not_notice_a_broken_connection(proxy: Proxy, url: str, when: str) -> None:
    with Ledger(proxy.url(url), **ARMS) as ledger:
        for number in range(5):
            proxy.break_at_commit(when)
            decision = ledger.decide(f"key {number}")
            proxy.break_at_commit(when)
            receipt = ledger.event(f"order {number}", decision.id, 2.5)
            assert (receipt.status, receipt.value, receipt.counted) == ("applied", 2.5, True)
            assert ledger.decide(f"key {number}") == decision
            assert ledger.event(f"order {number}", decision.id, 2.5).status == "duplicate"
        assert proxy.broken == 10
    reader = PostgresDatabase(url).reader()
    assert reader.rows("SELECT SUM(nonzero), SUM(total) FROM arm_sum") == [(5, 12.5)]
    assert reader.rows("SELECT SUM(n) FROM waiting") == [(0,)]
    reader.close()


def test_a_slot_that_was_lost_takes_no_sums_along(postgres: Server, url: str) -> None:
    """Whoever reconnects may get another slot, and must not count what it had under the old one."""
    ledger = Ledger(url, **ARMS)
    first = ledger.decide("first")
    ledger.event("order 1", first.id, 1.0)
    postgres.disconnect_all()
    other = Ledger(url, **ARMS)  # takes the slot
    assert ledger.decision(first.id)[0] == first
    ledger.event("order 2", ledger.decide("second").id, 1.0)
    other.event("order 3", other.decide("third").id, 1.0)
    reader = PostgresDatabase(url).reader()
    assert reader.rows("SELECT SUM(nonzero), SUM(total) FROM arm_sum") == [(3, 3.0)]
    assert reader.rows("SELECT COUNT(DISTINCT worker) FROM arm_sum") == [(2,)]
    for opened in (ledger, other, reader):
        opened.close()


# -------------------------------------------------------------------------------- several writers


def test_writers_of_the_same_ids_agree_and_never_wait_in_a_circle(
    postgres: Server, url: str, seed: int
) -> None:
    keys = [f"key {k}" for k in range(120)]

    def work(number: int) -> list[Any]:
        rng = random.Random(seed + number)
        answers: dict[str, Any] = {}
        with Ledger(url, **ARMS) as ledger:
            for _ in range(25):
                some = rng.sample(keys, 20)
                for key, decision in zip(some, ledger.decide_many(some)):
                    assert answers.setdefault(key, decision) == decision
                events = [
                    (f"{key} {k % 2}", ledger.decision_id(key), 1.0) for k, key in enumerate(some)
                ]
                ledger.event_many(rng.sample(events, len(events)))
            return [answers.get(key) for key in keys]

    before = postgres.run("SELECT SUM(deadlocks) FROM pg_stat_database")
    contexts = [contextvars.copy_context() for _ in range(4)]  # threads run interpreted, too
    with ThreadPoolExecutor(4) as pool:
        found = list(
            pool.map(lambda context, number: context.run(work, number), contexts, range(4))
        )
    for answers in zip(*found):
        assert len({answer for answer in answers if answer is not None}) == 1
    assert postgres.run("SELECT SUM(deadlocks) FROM pg_stat_database") == before
    reader = PostgresDatabase(url).reader()
    events = reader.rows("SELECT COUNT(*) FROM event")[0][0]
    assert reader.rows("SELECT SUM(nonzero), SUM(total) FROM arm_sum") == [(120, float(events))]
    assert reader.rows("SELECT SUM(n) FROM waiting") == [(0,)]
    reader.close()


def test_an_event_and_its_decision_in_two_transactions_at_once_meet(url: str) -> None:
    """Neither sees the other: the event is parked, and nobody unparks it but the leader."""
    with Ledger(url, background=False, **ARMS) as one, Ledger(url, background=False, **ARMS) as two:
        id = one.decision_id("key")
        connection = one._running._connection
        assert connection is not None
        connection.begin()
        asked = Work(one._book, asked=[one._requests.asked("key", None, None, None, None)])
        engine.run(connection, [asked])
        assert two.event("order", id, 2.0).status == "parked"
        connection.commit()
        assert one.decision(id)[1].value is None
        one.refresh()
        assert one.decision(id)[1].value == 2.0
        assert one.check(), str(one.check())
        assert one.statistics().parked == 0
