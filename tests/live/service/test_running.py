"""The service as it is run: stopped under load, in several processes, and with parts that die."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.live.scene import sound
from tests.live.servers import Server
from tests.live.service.running import Running
from tests.live.service.scene import Service
from zib.live import Ledger

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("interpreting")]


def until(done: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end
        time.sleep(0.05)


def address(service: Running) -> str:
    return f"http://127.0.0.1:{service.port}"


class Load:
    """Asks for decisions from many connections until it is told to stop, or nobody answers."""

    def __init__(self, url: str, name: str, connections: int = 16) -> None:
        self.url, self.name, self.connections = url, name, connections
        self.acknowledged: dict[str, dict[str, Any]] = {}
        self.refused: list[int] = []
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=lambda: asyncio.run(self._all()))
        self.thread.start()

    async def _all(self) -> None:
        limits = httpx.Limits(max_connections=self.connections)
        async with httpx.AsyncClient(
            base_url=self.url, limits=limits, timeout=30.0, verify=False
        ) as client:
            await asyncio.gather(*(self._one(client, n) for n in range(self.connections)))

    async def _one(self, client: httpx.AsyncClient, number: int) -> None:
        count = 0
        while not self.stopped.is_set():
            key = f"{self.name}-{number}-{count}"
            count += 1
            try:
                answer = await client.post("/v1/shop/decide", json={"key": key})
            except httpx.HTTPError:
                return
            if answer.status_code == 200:
                self.acknowledged[key] = answer.json()
            else:
                self.refused.append(answer.status_code)

    def stop(self) -> None:
        self.stopped.set()
        self.thread.join(60.0)


def check_kept(database: str, acknowledged: dict[str, dict[str, Any]]) -> None:
    with Ledger(database, "shop") as ledger:
        for key, told in acknowledged.items():
            kept = ledger.decision(ledger.decision_id(key))[0]
            assert told == kept._asdict()
        sound(ledger)


def test_a_service_that_is_stopped_under_load_loses_nothing(quick_folder: Path) -> None:
    with Running(quick_folder) as service:
        load = Load(address(service), "a")
        until(lambda: len(load.acknowledged) > 300)
        assert service.stop() == 0
        load.stop()
    assert set(load.refused) <= {503}
    check_kept(service.database, load.acknowledged)
    assert "Traceback" not in service.words()


def test_an_open_stream_does_not_keep_it_from_stopping(quick_folder: Path) -> None:
    with Service(quick_folder / "live.db", stop_within=30.0) as service:
        with (
            service.client() as client,
            client.stream("GET", "/bandits/shop/live", timeout=30.0) as stream,
        ):
            lines = stream.iter_lines()
            next(lines)
            start = time.monotonic()
            stopping = threading.Thread(target=service.stop)
            stopping.start()
            for _ in lines:
                pass
            stopping.join(20.0)
        assert time.monotonic() - start < 5.0


def test_workers_share_a_database_and_dead_ones_are_replaced(
    postgres: Server, quick_folder: Path
) -> None:
    database = postgres.fresh()
    with Running(quick_folder, database=database, server={"workers": 2}) as service:
        url, workers = address(service), service.workers
        until(lambda: len(workers()) == 2)
        load = Load(url, "a")
        until(lambda: len(load.acknowledged) > 200)
        first = workers()
        os.kill(first[0], signal.SIGKILL)
        until(lambda: len(workers()) == 2 and workers() != first)
        load.stop()
        until(service.ready)
        again = Load(url, "b")
        until(lambda: len(again.acknowledged) > 200)
        again.stop()
        # what the workers have counted is added up, that of the dead one included
        found = httpx.get(f"{url}/metrics").text
        counted = next(
            float(line.split()[-1])
            for line in found.splitlines()
            if line.startswith("zib_decisions_total")
        )
        assert counted >= len(load.acknowledged) + len(again.acknowledged)
        assert service.stop(60.0) == 0
    check_kept(database, load.acknowledged | again.acknowledged)


def test_workers_end_with_the_process_that_started_them(
    postgres: Server, quick_folder: Path
) -> None:
    told = {"database": postgres.fresh(), "server": {"workers": 2}}
    with Running(quick_folder, **told) as service:
        os.kill(service.pid, signal.SIGKILL)
        until(lambda: not service.ready(), 30.0)


def test_a_database_that_is_away_is_said_to_be_and_comes_back(
    postgres: Server, quick_folder: Path
) -> None:
    with Service(postgres.fresh()) as service:
        assert service.post("/v1/shop/decide", {"key": "k"}).is_success
        postgres.stop("immediate")
        try:
            start = time.monotonic()
            answer = service.post("/v1/shop/decide", {"key": "l"})
            assert answer.status_code == 503
            assert int(answer.headers["retry-after"]) >= 1
            assert time.monotonic() - start < 8.0
            assert service.get("/readyz").status_code == 503
            assert service.get("/healthz").status_code == 200
            assert "zib_database_up 0.0" in service.get("/metrics").text
            assert service.get("/v1/shop/status").status_code == 503
        finally:
            postgres.start()
        until(lambda: service.post("/v1/shop/decide", {"key": "l"}).is_success)
        until(lambda: service.get("/readyz").status_code == 200)
        sound(service.ledgers["shop"])
