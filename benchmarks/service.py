"""The service: durable decisions per second through HTTP, next to peers, and its page."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks._measure import Part, Row
from benchmarks.live import syncs
from benchmarks.load import load
from zib.live import Ledger
from zib.live.book import decision_id

ROOT = Path(__file__).parents[1]
CONNECTIONS = 64
ASK, REPORT = '{"key":"%09d"}', '{"id":"e%09d","decision_id":"%s","value":1.5}'
TARGETS = {"SQLite": 8_000.0, "PostgreSQL, 2 workers": 5_000.0}
FIRST = 100_000_000  # key of the first decision that counts
TICK = os.sysconf("SC_CLK_TCK")
ARMS = {"arms": ["A", "B", "C"], "window": "7d"}

reached: dict[str, float] = {}  # decisions a second, by who made them, in this run


class Load(NamedTuple):
    """A service under load: where it is, and what is sent."""

    who: str
    port: int
    pid: int
    path: str = "/v1/shop/decide"

    def run(self, seconds: float, first: int, *, rate: float | None = None) -> dict[str, Any]:
        """Ask for decisions whose keys begin at a number."""
        return self.send(
            self.path, seconds, rate, body=ASK, first=first, most=round(40e3 * seconds)
        )

    def send(self, path: str, seconds: float, rate: float | None, **what: Any) -> dict[str, Any]:
        """Send requests and add what processor time one of them took the service."""
        before = processor(self.pid)
        found = load(
            host="127.0.0.1", port=self.port, path=path, connections=CONNECTIONS, seconds=seconds,
            rate=rate, **what,
        )  # fmt: skip
        if found["refused"] or found["unanswered"]:
            raise RuntimeError(f"not every request was answered with success: {found}")
        found["server"] = (processor(self.pid) - before) / found["n"]
        return found


def processor(pid: int) -> float:
    """Return the seconds of processor time that a process and its children have used."""
    total, seen = 0.0, [str(pid)]
    while seen:
        number = seen.pop()
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
            total += (int(fields[11]) + int(fields[12])) / TICK
            seen += Path(f"/proc/{number}/task/{number}/children").read_text().split()
    return total


@contextlib.contextmanager
def served(who: str, *, workers: int = 1, **how: Any) -> Iterator[Load]:
    """Run `zib serve` in a folder of its own."""
    from tests.live.service.running import Running

    with tempfile.TemporaryDirectory() as folder:
        how = {"bandits": {"shop": ARMS}, "server": {"workers": workers}, **how}
        where = how.pop("folder", Path(folder))
        running = Running(where, **how)
        running.environment["NUMBA_DISABLE_JIT"] = "0"
        with running:
            yield Load(who, running.port, running.pid)


@contextlib.contextmanager
def uvicorn(who: str, app: str, path: str, **environment: str) -> Iterator[Load]:
    """Run another application."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        sys.executable, "-m", "uvicorn", app, "--port", str(port), "--no-access-log",
        "--log-level", "warning", "--no-server-header", "--no-date-header",
    ]  # fmt: skip
    process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, **environment})
    try:
        end = time.monotonic() + 30.0
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"{who} did not start")
            time.sleep(0.05)
        yield Load(who, port, process.pid, path)
    finally:
        process.terminate()
        process.wait()


def costs(found: dict[str, Any]) -> str:
    """Say what processor time a request took on both sides."""
    return (
        f"half within {found['p50']:.1f} ms, {1e6 * found['server']:.0f} µs of processor time per "
        f"request, and {1e6 * found['processor']:.0f} µs of the program that asks"
    )


def decided(service: Load, seconds: float) -> list[Row]:
    """As many decisions as it makes, and how long they take at half of that."""
    service.run(1.0, 0)
    full = service.run(seconds, FIRST)
    reached[service.who] = full["rate"]
    half = service.run(seconds, 2 * FIRST, rate=full["rate"] / 2.0)
    who = service.who
    most = 40.0 if who in TARGETS else None
    return [
        Row("service", "decisions", who, full["rate"], "/s", TARGETS.get(who), costs(full), True),
        Row("service", "99 % answered within, at that load", who, full["p99"], "ms", most,
            f"99.9 % within {full['p999']:.0f} ms, the longest {full['most']:.0f} ms"),
        Row("service", "99 % answered within, at half of it", who, half["p99"], "ms",
            10.0 if who == "SQLite" else None,
            f"{half['rate']:,.0f}/s; {costs(half)}; 99.9 % within {half['p999']:.0f} ms, the "
            f"longest {half['most']:.0f} ms"),
    ]  # fmt: skip


def reported(service: Load, seconds: float) -> Row:
    """As many events as it takes, each of another decision made before."""
    keys = range(FIRST, FIRST + int(reached[service.who] * seconds / 2.0))
    bodies = [REPORT % (key, decision_id("shop", f"{key:09d}")) for key in keys]
    found = service.send("/v1/shop/event", seconds, None, bodies=bodies)
    return Row("service", "events", service.who, found["rate"], "/s", None, costs(found))


def floor(quick: bool) -> list[Row]:
    """What the server and the program that asks can do without a bandit; and the disk."""
    seconds = 1.0 if quick else 4.0
    with uvicorn("echo", "benchmarks.echo:app", "/") as service:
        service.run(0.5, 0)
        found = service.run(seconds, 0)
    rate = syncs(seconds / 4)
    return [
        Row("service", "answers", "uvicorn, nothing behind it", found["rate"], "/s", None,
            costs(found)),
        Row("service", "syncs of the disk", "one after the other", rate, "/s", None,
            "each serves everybody who is waiting"),
    ]  # fmt: skip


def sqlite(quick: bool) -> list[Row]:
    """One process with an SQLite file, `synchronous=FULL`."""
    seconds = 2.0 if quick else 8.0
    with tempfile.TemporaryDirectory() as folder:
        with served("SQLite", folder=Path(folder)) as service:
            rows = [*decided(service, seconds), reported(service, seconds)]
            with stream(service):
                rate = reached["SQLite"] / 2.0
                found = service.run(seconds / 2.0, 3 * FIRST, rate=rate)
            rows.append(
                Row("service", "99 % answered within, at half and with a page open", "SQLite",
                    found["p99"], "ms", None, f"the longest {found['most']:.0f} ms")
            )  # fmt: skip
        rows += on_disk("SQLite", f"{folder}/live.db")
    return rows


def postgres(quick: bool) -> list[Row]:
    """Two workers and PostgreSQL, all on this machine; see `live.postgres` about its log."""
    from tests.live.servers import Server

    seconds = 2.0 if quick else 8.0
    server = Server(durable=True, settings={"min_wal_size": "256MB"})
    try:
        written = "pg_logical_emit_message(false, 'zib', repeat('x', 1000000))"
        server.run(f"SELECT {written} FROM generate_series(1, 200)")
        server.run("CHECKPOINT")
        database = server.fresh()
        who = "PostgreSQL, 2 workers"
        with served(who, database=database, workers=2) as service:
            rows = [*decided(service, seconds), reported(service, seconds)]
        return rows + on_disk(who, database)
    finally:
        server.close()


def on_disk(who: str, database: str) -> list[Row]:
    """How many bytes a decision and an event take, indexes and all."""
    from zib.live.database import open_database

    if "://" in database:
        sizes = "SELECT pg_total_relation_size('decision'), pg_total_relation_size('event')"
    else:
        size = (
            "SELECT SUM(pgsize) FROM dbstat JOIN sqlite_master USING (name) WHERE tbl_name = '{}'"
        )
        sizes = f"SELECT ({size.format('decision')}), ({size.format('event')})"
    opened = open_database(database)
    try:
        reader = opened.reader()
        ((bytes_of_decisions, bytes_of_events),) = reader.rows(sizes)
        ((decisions, events),) = reader.rows(
            "SELECT (SELECT COUNT(*) FROM decision), (SELECT COUNT(*) FROM event)"
        )
    finally:
        opened.close()
    return [
        Row("service", "on disk, a decision", who, bytes_of_decisions / decisions, "bytes", None,
            f"{decisions:,} decisions, without unit or context"),
        Row("service", "on disk, an event", who, bytes_of_events / events, "bytes", None,
            f"{events:,} events"),
    ]  # fmt: skip


@contextlib.contextmanager
def stream(service: Load) -> Iterator[None]:
    """Look at the page, which is told of news, as long as the block lasts."""
    with socket.create_connection(("127.0.0.1", service.port)) as page:
        for path, kind in (("", "text/html"), ("/live", "text/event-stream")):
            page.sendall(
                f"GET /bandits/shop{path} HTTP/1.1\r\nHost: 127.0.0.1:{service.port}\r\n"
                f"Accept: {kind}\r\n\r\n".encode()
            )
            got = page.recv(65_536)
            if b" 200 " not in got[:20]:
                raise RuntimeError(f"the page was not served: {got[:100]!r}")
            while not path and b"</html>" not in got:
                got = got[-10:] + page.recv(65_536)

        def read() -> None:
            with contextlib.suppress(OSError):
                while page.recv(65_536):
                    pass

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        yield
        with contextlib.suppress(OSError):
            page.shutdown(socket.SHUT_RDWR)
        reader.join()


# -------------------------------------------------------------------------------------------- peers


def byhand(quick: bool) -> list[Row]:
    """A plain bandit in FastAPI over SQLite, both ways, as durable as ours."""
    seconds, rows = 2.0 if quick else 8.0, []
    for how in ("threads", "loop"):
        who = f"FastAPI by hand, {how}"
        with (
            tempfile.TemporaryDirectory() as folder,
            uvicorn(
                who, "benchmarks.byhand:app", "/decide", BYHAND=how,
                BYHAND_DATABASE=f"{folder}/byhand.db",
            ) as service,
        ):  # fmt: skip
            service.run(0.5, 0)
            found = service.run(seconds / 2.0, FIRST)
        reached[who] = found["rate"]
        note = f"{costs(found)}; 99 % within {found['p99']:.0f} ms"
        rows.append(Row("service", "decisions", who, found["rate"], "/s", None, note))
    if "SQLite" in reached:
        best = max(rate for who, rate in reached.items() if who.startswith("FastAPI"))
        ratio = reached["SQLite"] / best
        rows.append(Row("service", "decisions, ours over theirs", "FastAPI by hand, the faster",
                        ratio, "×", 2.0, "", at_least=True))  # fmt: skip
    return rows


def banditdb(quick: bool) -> list[Row]:
    """Say why BanditDB is missing."""
    raise RuntimeError(
        "the package index has its client only; its server needs its crates or its container "
        "image, which could not be had"
    )


# --------------------------------------------------------------------------------------------- page


def page(quick: bool) -> list[Row]:
    """The page of a bandit with 50 arms and 30 days of history."""
    days, per_hour = (3, 20) if quick else (30, 100)
    arms = [f"price {k}" for k in range(50)]
    bandit: dict[str, Any] = {"arms": arms, "window": "7d"}
    with tempfile.TemporaryDirectory() as folder:
        now, made = time.time(), 0
        with Ledger(f"{folder}/live.db", "shop", **bandit, background=False) as ledger:
            for hour in range(24 * days, 0, -1):
                at = now - 3_600.0 * hour
                keys = [f"{made + k}" for k in range(per_hour)]
                found = ledger.decide_many(keys, at=at)
                made += per_hour
                ledger.event_many(
                    [(f"e{d.id}", d.id, 20.0 + k, at + 60.0 * k) for k, d in enumerate(found[::20])]
                )
                if hour % 24 == 0:
                    ledger.refresh()
            start = time.perf_counter()
            ledger.overview()
            first = time.perf_counter() - start
            start = time.perf_counter()
            ledger.overview()
            seconds = time.perf_counter() - start
        with served("page", folder=Path(folder), bandits={"shop": bandit}) as service:
            size, painted, note = opened(f"http://127.0.0.1:{service.port}/bandits/shop")
    who = f"50 arms, {days} days, {made:,} decisions"
    note = f"{note}; the overview takes {first:.2f} s, and then {seconds:.2f} s"
    return [
        Row("service", "page, size", who, size / 1e3, "kB", 300.0),
        Row("service", "page, first paint", who, painted, "s", 1.0, note),
    ]


def opened(address: str) -> tuple[int, float | None, str]:
    """Open a page in Chromium; return its bytes, the worst first paint in seconds, and a note."""
    from playwright.sync_api import sync_playwright

    taken = []
    with sync_playwright() as machine:
        browser = machine.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        try:
            for _ in range(5):
                tab = browser.new_context().new_page()
                answer = tab.goto(address, wait_until="load")
                size = len(answer.body()) if answer is not None else 0
                painted = "performance.getEntriesByName('first-paint')"
                while not tab.evaluate(f"{painted}.length"):
                    tab.wait_for_timeout(10)
                taken.append(tab.evaluate(f"{painted}[0].startTime") / 1e3)
                more = tab.evaluate(
                    "performance.getEntriesByType('resource')"
                    ".map(r => r.transferSize).reduce((a, b) => a + b, 0)"
                )
                tab.context.close()
        finally:
            browser.close()
    note = f"the longest of {len(taken)}, the shortest {min(taken):.2f} s"
    return size + int(more), max(taken), note


PARTS: dict[str, Part] = {
    "floor": floor,
    "SQLite": sqlite,
    "FastAPI by hand": byhand,
    "BanditDB": banditdb,
    "PostgreSQL": postgres,
    "page": page,
}
