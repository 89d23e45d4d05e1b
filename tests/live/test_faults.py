"""What goes wrong around a ledger, and that nothing is lost or doubled by it."""

from __future__ import annotations

import os
import resource
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.live import stored
from tests.live.flaky import Flaky
from tests.live.naive import Naive
from tests.live.scene import Clock, opened, sound
from tests.live.servers import Server
from zib.live import Ledger, LedgerError
from zib.live import database as schema
from zib.live.sqlite import SQLiteDatabase

pytestmark = pytest.mark.usefixtures("interpreting")
WINDOW = 100.0
SETTINGS: dict[str, Any] = {"arms": [*"ABC"], "window": WINDOW, "draws": 50}


def naive() -> Naive:
    return Naive(window=round(WINDOW * 1e6))


@pytest.fixture
def flaky(database: str) -> Iterator[tuple[Flaky, Any]]:
    made = Flaky(database)
    ledger = opened(made, Clock(), **SETTINGS)
    made.path = database  # type: ignore[attr-defined]
    yield made, ledger
    ledger.close()
    made.close()


def wait_until(happened: Callable[[], bool], seconds: float = 30.0) -> None:
    """Wait, but not for ever."""
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.001)


# --------------------------------------------------------------------------- the reply is lost


def test_a_commit_whose_reply_is_lost_is_done_once(flaky: Any) -> None:
    database, ledger = flaky
    id = ledger.decision_id("k")

    def lost() -> Any:
        database.lose_reply()
        return ledger

    lost().event("early", id, 1.0)  # parked
    decision = lost().decide("k")
    assert stored.check(database.path, naive()).value(id) == 1.0
    lost().event("e", id, 2.0)
    lost().revise("r", id, 4.0)
    lost().event("f", id, 8.0)
    assert ledger.decide("k") == decision
    other = lost().decide("l")
    lost().cancel(other.id)
    assert database.connections >= 7  # each time a new connection
    kept = stored.check(database.path, naive())
    assert (len(kept.decisions), len(kept.entries)) == (2, 5)
    assert kept.value(id) is not None
    assert kept.cancelled(other.id)
    sound(ledger)


@pytest.mark.parametrize("operation", ["begin", "find", "insert_new", "add", "put", "commit"])
def test_a_connection_lost_at_any_moment_is_made_anew(flaky: Any, operation: str) -> None:
    database, ledger = flaky
    database.lose(operation)
    decision = ledger.decide("k")
    database.lose(operation)
    ledger.event("e", decision.id, 2.0)
    database.lose(operation)
    ledger.revise("r", decision.id, 3.0)
    database.before.clear()  # not every call needs every operation
    kept = stored.check(database.path, naive())
    assert (len(kept.decisions), len(kept.entries)) == (1, 2)
    assert ledger.event("e", decision.id, 2.0).status == "duplicate"


def test_a_reply_lost_in_a_batch_of_many_callers(database: str) -> None:
    made = Flaky(database)
    ledger = Ledger(made, **SETTINGS)
    answers: list[Any] = []

    def caller(number: int) -> None:
        for n in range(10):
            decision = ledger.decide(f"{number}-{n}")
            answers.append((decision, ledger.event(f"e{number}-{n}", decision.id, 1.0)))

    callers = [threading.Thread(target=caller, args=(number,)) for number in range(8)]
    for thread in callers:
        thread.start()
    for n in range(1, 6):
        wait_until(lambda: len(answers) >= 12 * n)  # noqa: B023
        made.lose_reply()
    for thread in callers:
        thread.join(30)
    sound(ledger)
    ledger.close()
    made.close()
    kept = stored.check(database, naive())
    assert (len(kept.decisions), len(kept.entries), len(answers)) == (80, 80, 80)
    assert sum(kept.statistics().rewarded.values()) == 80


# ----------------------------------------------------------------------------------- full disks


def test_an_error_of_the_database_is_told_and_changes_nothing(flaky: Any) -> None:
    database, ledger = flaky
    decision = ledger.decide("k")
    for operation in ("insert_new", "update", "put", "commit"):
        database.lose(operation, LedgerError("the database could not be written: no room"))
        with pytest.raises(LedgerError, match="no room"):
            ledger.event("e", decision.id, 2.0)
        assert not stored.check(database.path, naive()).entries
    assert ledger.event("e", decision.id, 2.0).status == "applied"
    assert sum(stored.check(database.path, naive()).statistics().rewarded.values()) == 1


def test_a_file_that_may_not_grow_refuses_and_serves_again_once_there_is_room(
    quick_folder: Path,
) -> None:
    path = str(quick_folder / "ledger.db")
    ledger = opened(path, Clock(), **SETTINGS)
    first = ledger.decide_many([f"a{n}" for n in range(50)])
    raw = ledger._writer._connection._raw
    ((pages,),) = raw.execute("PRAGMA page_count").fetchall()
    raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    ((_free,),) = raw.execute("PRAGMA freelist_count").fetchall()
    raw.execute("DROP TABLE IF EXISTS zib_room")
    raw.execute("VACUUM")
    ((pages,),) = raw.execute("PRAGMA page_count").fetchall()
    raw.execute(f"PRAGMA max_page_count = {pages + 10}")
    done: list[Any] = []

    def fill() -> None:
        for n in range(10_000):
            done.extend(ledger.decide_many([f"b{n}-{m}" for m in range(100)]))

    with pytest.raises(LedgerError, match="full") as told:
        fill()
    assert "\n" not in str(told.value)
    assert ledger.decide("a0") == first[0]  # what needs no room is served
    raw.execute("PRAGMA max_page_count = 1073741823")
    ledger.event("e", ledger.decide("c").id, 1.0)
    sound(ledger)
    ledger.close()
    assert len(stored.check(path, naive()).decisions) == 50 + len(done) + 1


@pytest.mark.slow
def test_a_disk_that_fills_up_under_load_loses_nothing_acknowledged(quick_folder: Path) -> None:
    path, notes = str(quick_folder / "ledger.db"), quick_folder / "notes"
    child = os.fork()
    if child == 0:
        try:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            ledger = opened(path, Clock(), **SETTINGS)
            file = os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            size = max(entry.stat().st_size for entry in quick_folder.iterdir())
            resource.setrlimit(resource.RLIMIT_FSIZE, (size + 200_000, size + 200_000))
            for n in range(1_000_000):
                for decision in ledger.decide_many([f"{n}-{m}" for m in range(100)]):
                    os.write(file, f"{decision.id}\n".encode())
        except LedgerError as error:
            os._exit(0 if "room" in str(error) else 2)
        except BaseException:
            os._exit(3)
        os._exit(4)
    assert os.waitpid(child, 0)[1] == 0
    ledger = opened(path, Clock())
    sound(ledger)
    ledger.close()
    told = set(notes.read_text().split())
    kept = stored.check(path, naive())
    assert len(told) >= 100
    assert told <= set(kept.decisions)
    assert len(kept.decisions) - len(told) in (0, 100)  # the last batch may be there, unanswered


# ------------------------------------------------------------------------------------- closing


@pytest.mark.slow
@pytest.mark.parametrize("_", range(3))
def test_a_close_racing_with_events_answers_every_caller(database: str, _: int) -> None:
    ledger = Ledger(database, **SETTINGS)
    ids = [d.id for d in ledger.decide_many([f"k{n}" for n in range(8)])]
    done: list[str] = []
    refused: list[str] = []

    def caller(number: int) -> None:
        for n in range(100_000):
            try:
                ledger.event(f"e{number}-{n}", ids[number], 1.0)
            except LedgerError as error:
                refused.append(str(error))
                return
            done.append(f"e{number}-{n}")

    threads = [threading.Thread(target=caller, args=(n,), daemon=True) for n in range(8)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(done) >= 20)
    ledger.close()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    assert {*refused} == {"the ledger is closed: open it again"}
    kept = stored.check(database, naive())
    assert {entry.id for entry in kept.entries} == {*done}


def test_a_closed_ledger_says_so(database: str) -> None:
    ledger = opened(database, Clock(), **SETTINGS)
    ledger.close()
    ledger.close()
    for act in (
        lambda: ledger.decide("k"),
        lambda: ledger.event("e", "0" * 24, 1.0),
        lambda: ledger.refresh(),
    ):
        with pytest.raises(LedgerError, match="closed"):
            act()


# --------------------------------------------------------------------------------------- files


def test_a_second_process_is_kept_out_of_a_file(quick_folder: Path) -> None:
    path, words = str(quick_folder / "ledger.db"), quick_folder / "words"
    ledger = opened(path, Clock(), **SETTINGS)
    child = os.fork()
    if child == 0:
        try:
            opened(path, Clock(), **SETTINGS)
        except LedgerError as error:
            words.write_text(str(error))
        os._exit(0)
    os.waitpid(child, 0)
    assert words.read_text() == (
        f"{path} is in use already: an SQLite file serves one process, which opens it once; "
        "use PostgreSQL for several"
    )
    assert ledger.decide("k").id
    ledger.close()
    opened(path, Clock()).close()


def test_commits_wait_for_the_disk(quick_folder: Path) -> None:
    ledger = opened(str(quick_folder / "ledger.db"), Clock(), **SETTINGS)
    ledger.decide("k")
    raw = ledger._writer._connection._raw
    assert raw.execute("PRAGMA synchronous").fetchone() == (2,)
    assert raw.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    ledger.close()


def test_the_log_is_copied_while_commits_go_on_and_starts_anew(quick_folder: Path) -> None:
    path, written = quick_folder / "ledger.db", 0
    log = path.with_name(path.name + "-wal")
    database = SQLiteDatabase(path, room=1 << 20)
    ledger = opened(database, Clock(), **SETTINGS)
    connection, length = ledger._writer._connection, log.stat().st_size
    copied: list[str] = []
    copy = connection._copy
    connection._copy = lambda: (copied.append(threading.current_thread().name), copy())
    while written < 2_000:
        ledger.decide_many([f"k{written + k}" for k in range(50)])
        written += 50
        if connection._copying is not None and written % 100 == 0:
            connection._copying.join()
    assert log.stat().st_size == length
    ledger.close()
    database.close()
    assert len(copied) > 2
    assert {*copied} == {"zib-checkpoint"}
    assert not log.exists()
    assert len(stored.check(str(path), naive()).decisions) == written


def test_a_newer_schema_is_refused_and_an_older_one_upgraded(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = opened(database, Clock(), **SETTINGS)
    decision = ledger.decide("k")
    ledger.close()
    known = schema.migrations()
    latest = known[-1][0]
    with monkeypatch.context() as patch:
        broken = [
            *known,
            (latest + 1, "CREATE TABLE further (x BIGINT); INSERT INTO nowhere VALUES (1)"),
        ]
        patch.setattr(schema, "migrations", lambda: broken)
        with pytest.raises(LedgerError, match="nowhere"):
            opened(database, Clock())
        further = [*known, (latest + 1, "CREATE TABLE further (x BIGINT)")]
        patch.setattr(schema, "migrations", lambda: further)
        ledger = opened(database, Clock())  # all or nothing: `further` is not there yet
        assert ledger.decide("k") == decision
        ledger.close()
        assert stored.rows(database, "SELECT x FROM further") == []
    with pytest.raises(LedgerError) as told:
        opened(database, Clock())
    assert str(told.value) == (
        f"the database has schema version {latest + 1}, and this zib knows up to {latest}: "
        "update zib to open it"
    )


@pytest.mark.parametrize("content", [b"not a database at all\n" * 500, b"\x00" * 8192])
def test_a_file_that_is_something_else_is_refused_in_a_sentence(
    quick_folder: Path, content: bytes
) -> None:
    path = quick_folder / "ledger.db"
    path.write_bytes(content)
    with pytest.raises(LedgerError) as told:
        opened(str(path), Clock(), **SETTINGS)
    assert "\n" not in str(told.value)
    assert "database" in str(told.value)
    assert path.read_bytes() == content
    with pytest.raises(LedgerError):  # and the lock was given back
        opened(str(path), Clock(), **SETTINGS)


def test_a_log_torn_by_a_power_failure_leaves_whole_commits(quick_folder: Path) -> None:
    path = str(quick_folder / "ledger.db")
    ledger = opened(path, Clock(), **SETTINGS)
    folder = quick_folder / "torn"
    folder.mkdir()
    sizes: list[int] = []
    for n in range(20):
        id = ledger.decide(f"k{n}").id
        ledger.event(f"e{n}", id, 1.0)
    base, log = Path(path).read_bytes(), Path(path + "-wal").read_bytes()
    written = len(log.rstrip(b"\x00"))
    for share in range(0, 21):
        copy = str(folder / f"{share}.db")
        Path(copy).write_bytes(base)
        Path(copy + "-wal").write_bytes(log[: written * share // 20])
        kept = stored.check(copy, naive())
        sizes.append(len(kept.decisions) + len(kept.entries))
    ledger.close()
    assert sizes == sorted(sizes)
    assert sizes[-1] == 40
    assert len({*sizes}) > 3
    assert sqlite3.sqlite_version  # the recovery is that of SQLite; ours is what one commit holds


# ----------------------------------------------------------------------------------- PostgreSQL


@pytest.mark.slow
def test_a_server_restarted_under_load_loses_nothing_and_no_caller_notices(
    postgres: Server,
) -> None:
    database = postgres.fresh()
    ledger = Ledger(database, **SETTINGS)
    done: list[str] = []
    failed: list[BaseException] = []
    stop = threading.Event()

    def caller(number: int) -> None:
        n = 0
        try:
            while not stop.is_set():
                decision = ledger.decide(f"{number}-{n}")
                assert ledger.event(f"e{number}-{n}", decision.id, 1.0).status in (
                    "applied",
                    "duplicate",
                )
                done.append(decision.id)
                n += 1
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=caller, args=(n,), daemon=True) for n in range(8)]
    for thread in threads:
        thread.start()
    for act in (
        lambda: postgres.restart("fast"),
        postgres.disconnect_all,
        lambda: postgres.restart("immediate"),
    ):
        goal = len(done) + 200
        wait_until(lambda: len(done) > goal or bool(failed))  # noqa: B023
        act()
    goal = len(done) + 200
    wait_until(lambda: len(done) > goal or bool(failed))
    stop.set()
    for thread in threads:
        thread.join(30)
    assert not failed
    sound(ledger)
    ledger.close()
    kept = stored.check(database, naive())
    assert {*done} == kept.decisions.keys()
    assert len(kept.entries) == len(done) == sum(kept.statistics().rewarded.values())
