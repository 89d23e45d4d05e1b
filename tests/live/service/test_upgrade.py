"""A service is stopped, started, copied and restored while clients go on: nothing is lost."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.live.servers import Server
from tests.live.service.proxies import nginx
from tests.live.service.running import Running
from zib.live import Client, Decision, Ledger, LedgerError

pytestmark = pytest.mark.slow

BANDITS = {"shop": {"arms": ["A", "B"], "window": "1h", "draws": 50, "policy": "NormalTS"}}


class Traffic:
    """Threads that decide and report until they are told to stop, and remember the answers."""

    def __init__(self, address: str, *, threads: int = 4, timeout: float = 60.0) -> None:
        self.client = Client(address, "shop", timeout=timeout)
        self.decided: dict[str, Decision] = {}
        self.reported: dict[str, float] = {}
        self.problems: list[Exception] = []
        self.slowest = 0.0
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._go, args=(k,)) for k in range(threads)]

    def _go(self, thread: int) -> None:
        for number in itertools.count():
            if self._over.is_set():
                return
            key, began = f"{thread}-{number}", time.monotonic()
            try:
                decision = self.decided[key] = self.client.decide(key)
                if number % 3 == 0:
                    self.client.event(f"order-{key}", decision.id, 2.0)
                    self.reported[decision.id] = 2.0
            except Exception as error:
                self.problems.append(error)
            self.slowest = max(self.slowest, time.monotonic() - began)
            time.sleep(0.005)

    def until(self, more: int) -> None:
        """Wait for so many more decisions."""
        goal, end = len(self.decided) + more, time.monotonic() + 60.0
        while len(self.decided) < goal:
            assert not self.problems
            assert time.monotonic() < end, f"{len(self.decided)} decisions"
            time.sleep(0.01)

    def __enter__(self) -> Traffic:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()
        self.client.close()

    def is_in(self, database: str) -> None:
        """Check that all that was answered is there, once, as it was answered."""
        assert not self.problems
        with Ledger(database, "shop", background=False) as ledger:
            found = ledger.check()
            assert found, str(found)
            assert found.decisions == len(self.decided)
            assert found.events == len(self.reported)
            assert ledger.replay()
            for decision in list(self.decided.values())[::7]:
                kept, outcome = ledger.decision(decision.id)
                assert kept == decision
                assert outcome.value == self.reported.get(decision.id)


def address(service: Running) -> str:
    return f"http://127.0.0.1:{service.port}"


def checked(database: str) -> None:
    """Run `zib live check` as an administrator would."""
    command = [sys.executable, "-m", "zib.cli", "live", "check", database, "--name", "shop"]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "Sound" in ran.stdout


# -------------------------------------------------------------------------------------- upgrading


def test_a_service_is_replaced_under_traffic(tmp_path: Path) -> None:
    """Stop, install, start: clients wait, and notice nothing but the time that it takes."""
    with Running(tmp_path, bandits=BANDITS) as service, Traffic(address(service)) as traffic:
        for _ in range(2):
            traffic.until(50)
            assert service.stop() == 0
            time.sleep(0.3)  # this is when the new version is installed
            service.start()
        traffic.until(50)
        assert traffic.slowest > 0.3
    traffic.is_in(str(service.database))


def test_workers_are_renewed_one_by_one(tmp_path: Path, postgres: Server) -> None:
    """SIGHUP: the socket stays open, and nobody has to try again for long."""
    url = postgres.fresh()
    with (
        Running(tmp_path, database=url, bandits=BANDITS, server={"workers": 2}) as service,
        Traffic(address(service)) as traffic,
    ):
        traffic.until(50)
        before = set(service.workers())
        os.kill(service.pid, signal.SIGHUP)
        end = time.monotonic() + 60.0
        while set(service.workers()) & before or len(service.workers()) < 2:
            assert time.monotonic() < end
            time.sleep(0.05)
        traffic.until(50)
    traffic.is_in(url)


def test_two_services_behind_a_proxy_are_replaced_one_after_the_other(
    tmp_path: Path, postgres: Server
) -> None:
    """With PostgreSQL and a proxy nobody waits: one serves while the other is replaced."""
    url = postgres.fresh()
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
    with contextlib.ExitStack() as stack:
        services = [
            stack.enter_context(Running(folder, database=url, bandits=BANDITS))
            for folder in folders
        ]
        proxy = stack.enter_context(
            nginx(tmp_path, [service.port for service in services], tls=False)
        )
        traffic = stack.enter_context(Traffic(proxy))
        for service in services:
            traffic.until(50)
            assert service.stop() == 0
            traffic.until(50)
            service.start()
        traffic.until(50)
    traffic.is_in(url)


# ------------------------------------------------------------------------------ backup and restore


@pytest.fixture
def busy(tmp_path: Path) -> Iterator[tuple[Running, Traffic]]:
    with Running(tmp_path, bandits=BANDITS) as service, Traffic(address(service)) as traffic:
        traffic.until(60)
        yield service, traffic


def goes_on(folder: Path, database: str, traffic: Traffic, before: list[str]) -> None:
    """Start a service on what was restored: it knows all from before the backup, and goes on."""
    checked(database)
    with Running(folder, database=database, bandits=BANDITS) as restored:
        with Client(address(restored), "shop") as client:
            for key in before:
                assert client.decide(key) == traffic.decided[key]
            for key, decision in list(traffic.decided.items()):
                # what came after the backup is sent again; the decision is made anew there
                again = client.decide(key)
                assert again.id == decision.id
                if decision.id in traffic.reported:
                    receipt = client.event(f"order-{key}", decision.id, 2.0)
                    assert receipt.status in ("applied", "duplicate")
                    assert receipt.value == 2.0
        assert restored.stop() == 0
    with Ledger(database, "shop", background=False) as ledger:
        found = ledger.check()
        assert found, str(found)
        assert (found.decisions, found.events) == (len(traffic.decided), len(traffic.reported))


def test_an_online_backup_is_restored(busy: tuple[Running, Traffic], tmp_path: Path) -> None:
    service, traffic = busy
    before = list(traffic.decided)[:50]
    copy = tmp_path / "restored" / "live.db"
    copy.parent.mkdir()
    with (
        contextlib.closing(sqlite3.connect(str(service.database))) as source,
        contextlib.closing(sqlite3.connect(copy)) as target,
    ):
        source.backup(target)
    traffic.until(20)
    traffic.__exit__()
    service.stop()
    goes_on(copy.parent, str(copy), traffic, before)


def test_files_of_a_killed_service_are_restored(
    busy: tuple[Running, Traffic], tmp_path: Path
) -> None:
    """All of live.db* belong together: the latest commits are in live.db-wal."""
    service, traffic = busy
    traffic._over.set()
    time.sleep(0.5)
    before = list(traffic.decided)[:50]
    service.kill()
    traffic.__exit__()
    folder = tmp_path / "restored"
    folder.mkdir()
    database = Path(service.database)
    assert database.with_name("live.db-wal").stat().st_size > 0
    for part in database.parent.glob("live.db*"):
        if part.is_file():
            shutil.copy(part, folder / part.name)
    goes_on(folder, str(folder / "live.db"), traffic, before)


def test_a_dump_of_postgresql_is_restored(tmp_path: Path, postgres: Server) -> None:
    dump, url = tmp_path / "dump.sql", postgres.fresh()
    schema = url.rpartition("%3D")[2]
    name = f"restored_{schema}"
    with (
        Running(tmp_path, database=url, bandits=BANDITS) as service,
        Traffic(address(service)) as traffic,
    ):
        traffic.until(60)
        before = list(traffic.decided)[:50]
        postgres.program("pg_dump", "--schema", schema, "--file", dump, url)
        traffic.until(20)
    postgres.run(f"CREATE DATABASE {name}")
    other = url.replace("/postgres?", f"/{name}?")
    assert other != url
    postgres.program("psql", "--quiet", "--set", "ON_ERROR_STOP=1", "--file", dump, other)
    folder = tmp_path / "restored"
    folder.mkdir()
    goes_on(folder, other, traffic, before)


def test_a_client_that_dies_between_decision_and_event_leaves_a_zero(tmp_path: Path) -> None:
    """Nobody reports "did not buy": the decision waits, and closes by itself as one without."""
    bandits: dict[str, Any] = {"shop": {**BANDITS["shop"], "window": 1.0}}
    with Running(tmp_path, bandits=bandits) as service:
        program = (
            f"import os, zib; c = zib.live.Client({address(service)!r}, 'shop')\n"
            "print(c.decide('k').id, flush=True); os.kill(os.getpid(), 9)"
        )
        died = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        assert died.returncode == -signal.SIGKILL
        with Client(address(service), "shop") as client:
            decision, outcome = client.decision(died.stdout.strip())
            assert outcome.value is None
            time.sleep(max(0.0, decision.closes_at - time.time()) + 0.2)
            assert client.event("order", decision.id, 1.0).status == "late"
            with pytest.raises(LedgerError):
                client.decision("nowhere")
