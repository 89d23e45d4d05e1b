"""What goes wrong under and around a service, and that it comes back by itself."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import struct
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import zib
from tests.live import stored
from tests.live.naive import Naive
from tests.live.scene import sound
from tests.live.servers import Server
from tests.live.service.callers import Crowd, decision_id
from tests.live.service.forms import refused
from tests.live.service.kills import looked
from tests.live.service.nursery import PYTHONPATH
from tests.live.service.running import BANDIT, Running, alive
from tests.live.service.wire import JSON, Gone, request, wait_until
from zib.core.entry import interpreted

pytestmark = pytest.mark.slow
DECIDE = "/v1/shop/decide"
QUICK = {**BANDIT, "refresh": 0.2}


def all_there(service: Running, crowd: Crowd) -> None:
    """Stop a service and fail unless it holds what its callers know."""
    assert service.stop() == 0, service.words()
    for bandit, told in crowd.told.items():
        assert looked(service.database, told) == []
        with interpreted(), zib.live.Ledger(service.database, bandit, background=False) as ledger:
            sound(ledger)
            assert ledger.replay(), str(ledger.replay())


def version(service: Running) -> int:
    """Return the version of the model in force."""
    found = service.ask("GET", "/v1/shop/status")
    assert found.status == 200, found
    return int(found.json()["version"])


# -------------------------------------------------------------------------------------- PostgreSQL


@pytest.fixture
def own_server() -> Any:
    server = Server()
    yield server
    server.start()  # if it was left stopped
    server.close()


def test_a_database_that_is_away_is_waited_for(tmp_path: Path, own_server: Server) -> None:
    database = own_server.fresh()
    with Running(tmp_path, database=database, server={"workers": 2}) as service:
        with Crowd(service.port, ["shop"], callers=8) as crowd:
            for mode in ("fast", "immediate"):
                crowd.wait_for(100)
                own_server.restart(mode)
            crowd.wait_for(100)
            own_server.disconnect_all()
            crowd.wait_for(100)
            own_server.stop("fast")
            wait_until(lambda: not service.ready(), 15.0, "not being ready")
            refused(service.ask("GET", "/readyz"), 503)
            assert service.ask("GET", "/healthz").status == 200  # the process is well
            answer = service.ask("GET", "/v1/shop/status")
            refused(answer, 503)
            assert int(answer.headers["retry-after"]) >= 1
            own_server.start()
            wait_until(service.ready, 15.0, "being ready again")
            crowd.wait_for(100)
        # nobody was told that the service made a mistake
        assert "internal error" not in service.words()
        all_there(service, crowd)


def test_workers_killed_while_the_database_is_away_come_back_with_it(
    tmp_path: Path, own_server: Server
) -> None:
    database = own_server.fresh()
    with Running(tmp_path, database=database, server={"workers": 2}) as service:
        workers = service.workers()
        own_server.stop("fast")
        for worker in workers:
            os.kill(worker, signal.SIGKILL)
        time.sleep(4.0)
        assert service.process is not None
        assert service.process.poll() is None, service.words()
        own_server.start()
        wait_until(service.ready, 40.0, "being ready again")
        wait_until(lambda: len(service.workers()) == 2, 20.0, "two workers")
        assert service.ask("POST", DECIDE, {"key": "after"}).status == 200
        assert service.stop() == 0


def test_another_worker_leads_when_the_leader_is_killed(tmp_path: Path, postgres: Server) -> None:
    with Running(
        tmp_path, database=postgres.fresh(), server={"workers": 2}, bandits={"shop": QUICK}
    ) as service:
        with Crowd(service.port, ["shop"], callers=4) as crowd:
            first = service.workers()
            assert len(first) == 2
            for worker in first:  # one of them leads
                crowd.wait_for(50)
                before = version(service)
                os.kill(worker, signal.SIGKILL)
                wait_until(lambda: version(service) > before + 1, 20.0, "another version")  # noqa: B023
                wait_until(
                    lambda: len(set(service.workers()) - {service.pid}) == 2, 20.0, "two workers"
                )
            assert not set(first) & set(service.workers())
        all_there(service, crowd)


def test_a_worker_that_dies_while_it_is_asked_is_replaced_at_once(
    tmp_path: Path, postgres: Server
) -> None:
    with Running(tmp_path, database=postgres.fresh(), server={"workers": 2}) as service:
        wait_until(lambda: len(set(service.workers()) - {service.pid}) == 2, 20.0, "two workers")
        stopped = service.workers()[0]
        os.kill(stopped, signal.SIGSTOP)
        time.sleep(2.0)  # by now it was asked, and cannot answer
        os.kill(stopped, signal.SIGKILL)
        wait_until(
            lambda: len(set(service.workers()) - {stopped, service.pid}) == 2, 15.0, "a new worker"
        )


def test_workers_end_when_their_supervisor_is_killed(tmp_path: Path, postgres: Server) -> None:
    with Running(tmp_path, database=postgres.fresh(), server={"workers": 2}) as service:
        workers = service.workers()
        assert len(workers) == 2
        held = service.wire()
        held.send(request("GET", "/bandits/shop/live"))  # somebody looks at the page
        os.kill(service.pid, signal.SIGKILL)
        wait_until(lambda: not any(map(alive, workers)), 15.0, "the end of the workers")
        held.close()
        service.start()
        assert service.ask("POST", DECIDE, {"key": "again"}).status == 200


# ------------------------------------------------------------------------------------------ SQLite


def test_a_disk_that_is_full_refuses_and_serves_again_once_there_is_room(tmp_path: Path) -> None:
    with Running(tmp_path) as service:
        with Crowd(service.port, ["shop"], callers=8) as crowd:
            crowd.wait_for(200)
            _, hard = resource.prlimit(service.pid, resource.RLIMIT_FSIZE)
            resource.prlimit(service.pid, resource.RLIMIT_FSIZE, (20_000, hard))
            wait_until(lambda: crowd.refused or crowd.failed, 30.0, "a full disk")
            with service.wire() as wire:
                answer = wire.post(DECIDE, {"key": "full"})
                for k in range(200):
                    answer = wire.post(DECIDE, {"key": f"{'x' * 100} {k}"})
                    if answer.status != 200:
                        break
                refused(answer, 503, 507)
                assert wire.get("/healthz").status == 200
            resource.prlimit(service.pid, resource.RLIMIT_FSIZE, (hard, hard))
            crowd.wait_for(200)
        assert crowd.refused
        all_there(service, crowd)


def test_a_second_service_on_the_same_file_says_so_and_hurts_nobody(tmp_path: Path) -> None:
    with Running(tmp_path) as service:
        first = service.ask("POST", DECIDE, {"key": "a"}).json()
        folder = tmp_path / "second"
        folder.mkdir()
        second = Running(folder, database=service.database)
        second.database = service.database
        try:
            assert second.spawn().wait(30) not in (0, -signal.SIGSEGV)
        finally:
            second.kill()
        words = second.log.read_text()
        assert "is in use already" in words
        assert "Traceback" not in words
        assert service.ask("POST", DECIDE, {"key": "a"}).json() == first
        assert service.stop() == 0


def test_a_port_that_is_taken_is_said_in_a_sentence(tmp_path: Path) -> None:
    with Running(tmp_path) as service:
        folder = tmp_path / "second"
        folder.mkdir()
        second = Running(folder, server={"port": service.port})
        try:
            assert second.spawn().wait(30) != 0
        finally:
            second.kill()
        words = second.log.read_text()
        assert str(service.port) in words
        assert "Traceback" not in words
        assert service.ready()


# ------------------------------------------------------------------------------------------ clocks

# runs in the service before anything else: its clock is the real one, plus what a file says
CLOCK = """
import mmap, os, struct, time
_file = open(os.environ["ZIB_TEST_CLOCK"], "r+b")
_offset = mmap.mmap(_file.fileno(), 8)
_real = time.time
time.time = lambda: _real() + struct.unpack("d", _offset)[0]
"""


def test_a_clock_that_jumps_loses_nothing(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(CLOCK)
    offset = tmp_path / "offset"
    offset.write_bytes(struct.pack("d", 0.0))
    environment = {
        "ZIB_TEST_CLOCK": str(offset),
        "PYTHONPATH": os.pathsep.join((PYTHONPATH, str(tmp_path))),
    }
    with Running(tmp_path, bandits={"shop": QUICK}, environment=environment) as service:
        before = service.ask("POST", DECIDE, {"key": "before"}).json()
        with Crowd(service.port, ["shop"], callers=4, fine=("late",)) as crowd:
            for jump in (7_200.0, -7_200.0, 90 * 86_400.0, -86_400.0, 0.0):
                crowd.wait_for(40)
                with offset.open("r+b") as file:  # the same place in the file, which is mapped
                    file.write(struct.pack("d", jump))
                crowd.wait_for(40)
                assert service.ask("POST", DECIDE, {"key": "before"}).json() == before
                now = service.ask("POST", DECIDE, {"key": f"jump {jump}"}).json()["at"]
                assert abs(now - time.time() - jump) < 10.0
                assert service.ask("GET", "/v1/shop/overview").status == 200
                assert service.ready()
                assert version(service) > 0
        # each caller's answers were checked; events that came in a later hour are late
        assert service.stop() == 0
    kept = stored.check(service.database, Naive(window=3_600_000_000), "shop")
    assert {d["id"] for d in crowd.told["shop"].decisions.values()} < set(kept.decisions)
    entries = {(e.kind, e.decision) for e in kept.entries}
    kinds = {"event": "event", "refund": "revision", "cancel": "cancel"}
    for what, number in crowd.told["shop"].entries:
        assert (kinds[what], decision_id("shop", f"key {number}")) in entries


# ---------------------------------------------------------------------------------------- stopping


def test_told_to_stop_it_answers_what_it_has_taken_and_refuses_the_rest(tmp_path: Path) -> None:
    done: list[str] = []
    turned_away: list[str] = []
    unanswered: list[str] = []
    wrong: list[Any] = []
    stopped = threading.Event()

    def caller(me: int) -> None:
        n = 0
        while not stopped.is_set():
            try:
                with service.wire() as wire:
                    while not stopped.is_set():
                        n += 1
                        key = f"{me} {n}"
                        unanswered.append(key)
                        answer = wire.post(DECIDE, {"key": key})
                        unanswered.remove(key)
                        if answer.status == 200:
                            done.append(key)
                        else:
                            turned_away.append(refused(answer, 503))
                            assert "retry-after" in answer.headers
            except Gone:
                time.sleep(0.005)
            except BaseException as error:
                wrong.append(error)
                return

    with Running(tmp_path, server={"stop_within": 10}) as service:
        idle = [service.wire() for _ in range(20)]
        idle[0].send(request("GET", "/bandits/shop/live"))  # somebody looks at the page
        idle[1].send(request("POST", DECIDE, b'{"key": "a"}', JSON)[:-5])  # never comes whole
        threads = [threading.Thread(target=caller, args=(k,), daemon=True) for k in range(24)]
        for thread in threads:
            thread.start()
        wait_until(lambda: len(done) > 300, what="load")
        start = time.monotonic()
        assert service.stop(within=20.0) == 0
        took = time.monotonic() - start
        stopped.set()
        for thread in threads:
            thread.join(10)
        for wire in idle:
            wire.close()
    assert not wrong, wrong
    assert took < 8.0  # nobody who only looks, or never ends, holds it up for longer
    kept = stored.check(service.database, Naive(window=3_600_000_000), "shop").decisions
    assert {decision_id("shop", key) for key in done} <= set(kept)
    # what got no answer was not taken: on a connection that was being closed, say
    lost = [key for key in unanswered if decision_id("shop", key) in kept]
    assert not lost, f"{len(lost)} were done and not answered"
    assert "Traceback" not in service.words()


def test_a_stop_while_the_database_is_away_ends_in_time(tmp_path: Path, own_server: Server) -> None:
    database = own_server.fresh()
    with Running(tmp_path, database=database, server={"stop_within": 3}) as service:
        assert service.ask("POST", DECIDE, {"key": "a"}).status == 200
        own_server.stop("fast")
        with service.wire() as wire:
            wire.send(request("POST", DECIDE, json.dumps({"key": "b"}).encode(), JSON))
            time.sleep(0.3)
            start = time.monotonic()
            service.stop(within=20.0)
            assert time.monotonic() - start < 12.0
            with contextlib.suppress(Gone):
                refused(wire.answer(), 503)
        assert "Traceback" not in service.words()


def test_a_start_without_a_database_is_said_in_a_sentence(tmp_path: Path) -> None:
    service = Running(tmp_path, database=f"postgresql:///x?host={tmp_path}")
    try:
        assert service.spawn().wait(60) not in (0, -signal.SIGSEGV)
    finally:
        service.kill()
    assert "Traceback" not in service.words()
    assert service.words().strip()
