"""Several processes on one PostgreSQL database: one leads, any may be killed."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.live.servers import Server
from zib.core.entry import interpreted
from zib.live import Ledger, LedgerError
from zib.live.postgres import PostgresDatabase

BANDIT = {"arms": ["A", "B", "C"], "window": "7d", "refresh": 0.1}
CALLERS = 4
PATIENCE = 60.0  # seconds; everything here takes a few tenths on an idle machine


def live(url: str, me: int, folder: Path) -> None:
    """Decide and report until told to stop; note what was acknowledged, and the versions seen.

    Every event is reported for a decision of the next process as well, which may not be there yet.
    """
    ledger = Ledger(url, **BANDIT)
    note = os.open(folder / f"notes {me}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    ended = folder / "stop"
    keeper = ledger._keeper
    assert keeper is not None

    def caller(number: int) -> None:
        made = 0
        while not ended.exists():
            key = f"{me} {number} {made}"
            decision = ledger.decide(key)
            os.write(note, f"decision|{decision.id}|{decision.arm}\n".encode())
            if made % 3 == 0:
                ledger.event(f"own {key}", decision.id, 1.0)
                os.write(note, f"event|own {key}|\n".encode())
                other = f"{me + 1} {number} {made}"
                ledger.event(f"other {key}", ledger.decision_id(other), 0.5)
                os.write(note, f"event|other {key}|\n".encode())
            made += 1

    threads = [threading.Thread(target=caller, args=(k,)) for k in range(CALLERS)]
    for thread in threads:
        thread.start()
    seen = 0
    while not ended.exists():
        model = ledger._book.model
        assert model is not None
        if model.version != seen:
            seen = model.version
            who = "leads" if keeper.leads else "follows"
            os.write(note, f"{who}|{seen}|{time.time()}\n".encode())
        time.sleep(0.01)
    for thread in threads:
        thread.join()
    ledger.close()


def forked(work: Callable[[], None]) -> int:
    """Run `work` in a process of its own and return its id."""
    with warnings.catch_warnings():  # runners of tests have threads, which the child does without
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    return child


class Processes:
    """Processes that are forked, and waited for."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder
        self.running: dict[int, int] = {}

    def start(self, me: int) -> None:
        def work() -> None:
            with interpreted():
                live(self.url, me, self.folder)

        self.running[me] = forked(work)

    def notes(self, me: int) -> list[list[str]]:
        file = self.folder / f"notes {me}"
        lines = file.read_text().split("\n")[:-1] if file.exists() else []
        return [line.split("|") for line in lines]

    def seen(self, me: int, who: tuple[str, ...] = ("leads", "follows")) -> int:
        """Return the latest version that a process has taken up."""
        return max((int(note[1]) for note in self.notes(me) if note[0] in who), default=0)

    def leader(self) -> int | None:
        """Return which of those that are running has made the latest version."""
        found = [(self.seen(me, ("leads",)), me) for me in self.running]
        return max(found)[1] if max(found)[0] else None

    def wait(self, until: Callable[[], Any]) -> Any:
        end = time.monotonic() + PATIENCE
        while not (found := until()):
            assert time.monotonic() < end, "nothing happened"
            for me, child in self.running.items():
                assert os.waitpid(child, os.WNOHANG) == (0, 0), f"process {me} ended by itself"
            time.sleep(0.02)
        return found

    def kill(self, me: int) -> None:
        child = self.running.pop(me)
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)

    def stop(self) -> None:
        (self.folder / "stop").touch()
        for me in list(self.running):
            assert os.waitpid(self.running.pop(me), 0)[1] == 0


@pytest.fixture
def processes(postgres: Server, tmp_path: Path) -> Iterator[Processes]:
    made = Processes(postgres.fresh(), tmp_path)
    yield made
    for me in list(made.running):
        made.kill(me)


def check(processes: Processes, everybody: range) -> None:
    """What was acknowledged is there, and the statistics are the fold of the log."""
    with interpreted(), Ledger(processes.url, background=False) as ledger:
        ledger.refresh()
        assert ledger.check(), ledger.check()
    database = PostgresDatabase(processes.url)
    reader = database.reader()
    arms = dict(reader.rows("SELECT number, label FROM arm"))
    decisions = {row[0]: arms[row[1]] for row in reader.rows("SELECT id, arm FROM decision")}
    events = {row[0] for row in reader.rows("SELECT id FROM event")}
    known = reader.rows(
        "SELECT COUNT(*) FROM event JOIN decision ON decision.id = decision WHERE parked = 1"
    )
    assert known == [(0,)]
    database.close()
    for me in everybody:
        for what, id, more in processes.notes(me):
            if what == "decision":
                assert decisions[id] == f'"{more}"'
            elif what == "event":
                assert id in events


@pytest.mark.slow
def test_another_process_leads_when_the_leader_is_killed(processes: Processes) -> None:
    for me in (1, 2):
        processes.start(me)
    killed = []
    for following in range(3, 6):
        leader = processes.wait(processes.leader)
        last = processes.seen(leader)
        for me in processes.running:  # everybody takes up what it has made
            processes.wait(lambda me=me, last=last: processes.seen(me) >= last)
        processes.kill(leader)
        killed.append(leader)
        (left,) = processes.running
        processes.wait(lambda left=left, last=last: processes.seen(left, ("leads",)) > last)
        processes.start(following)
    processes.stop()
    assert len(set(killed)) == 3
    check(processes, range(1, 6))


@pytest.mark.slow
def test_workers_serve_while_nobody_leads(processes: Processes) -> None:
    """Somebody else holds the lock and makes no versions: a leader that hangs."""
    hung = PostgresDatabase(processes.url)
    with interpreted(), Ledger(hung, background=False, **BANDIT) as ledger:
        ledger.refresh()
        for me in (1, 2):
            processes.start(me)
        processes.wait(lambda: all(len(processes.notes(me)) > 200 for me in (1, 2)))
        first = ledger._book.model
        assert first is not None
        assert {note[0] for me in (1, 2) for note in processes.notes(me)} & {"leads"} == set()
        assert {processes.seen(me) for me in (1, 2)} == {first.version}
        age = ledger.statistics().age
        assert age is not None
        assert age > 0.0
    hung.close()
    processes.wait(processes.leader)  # the lock is free, and somebody takes it
    processes.stop()
    check(processes, range(1, 3))


@pytest.mark.slow
def test_a_server_restarted_under_load_is_gone_on_with(
    processes: Processes, postgres: Server
) -> None:
    for me in (1, 2):
        processes.start(me)
        processes.wait(lambda me=me: processes.notes(me))
    for restart in (lambda: postgres.restart("fast"), lambda: postgres.restart("immediate")):
        leader = processes.wait(processes.leader)
        noted = {me: len(processes.notes(me)) for me in (1, 2)}
        last = processes.seen(leader)
        restart()
        for me in (1, 2):
            processes.wait(lambda me=me: len(processes.notes(me)) > noted[me] + 100)  # noqa: B023
            processes.wait(lambda me=me: processes.seen(me) > last)  # noqa: B023
    processes.stop()
    check(processes, range(1, 3))


def test_a_forked_process_is_told_to_open_its_own(
    new_database: Callable[[], str], interpreting: None
) -> None:
    ledger = Ledger(new_database(), background=False, **BANDIT)
    decision = ledger.decide("before")

    def child() -> None:
        with pytest.raises(LedgerError, match="open it in each process"):
            ledger.decide("in the child")
        ledger.close()

    assert os.waitpid(forked(child), 0)[1] == 0
    assert ledger.decide("before") == decision
    ledger.close()
