"""What a million decisions cost: processor, disk and memory, for both databases.

``python -m benchmarks.costs sqlite`` (or ``postgresql``) starts a service, sends decisions over 64
connections, one in twenty followed by an event, and prints what the service and its database used.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

CONNECTIONS = 64
DECISIONS = 20_000
TICKS = os.sysconf("SC_CLK_TCK")
LIVE = """
database = {database}
[server]
port = {port}
workers = {workers}
[bandit.shop]
arms = ["A", "B", "C", "D", "E"]
window = "7d"
"""


def ask(connection: HTTPConnection, route: str, body: dict[str, Any]) -> dict[str, Any]:
    """Send one request on a connection that is kept."""
    headers = {"Content-Type": "application/json"}
    connection.request("POST", f"/v1/shop/{route}", json.dumps(body), headers)
    answer = connection.getresponse()
    found: dict[str, Any] = json.loads(answer.read())
    assert answer.status == 200, found
    return found


def load(port: int, first: int, n: int) -> None:
    """Decide n times, from 64 threads."""

    def go(thread: int) -> None:
        connection = HTTPConnection("127.0.0.1", port)
        connection.connect()
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for k in range(first + thread, first + n, CONNECTIONS):
            key = f"request-{k:032d}"  # as long as a UUID
            decision = ask(connection, "decide", {"key": key, "unit": f"customer-{k:010d}"})
            if k % 20 == 0:
                event = {"id": f"order-{k:032d}", "decision_id": decision["id"], "value": 29.9}
                ask(connection, "event", event)
        connection.close()

    threads = [threading.Thread(target=go, args=(k,)) for k in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def processes(pid: int) -> list[int]:
    """Return a process and its children."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(each for child in children for each in processes(int(child)))]


def processor(pids: list[int]) -> float:
    """Return the seconds of the processor that processes have used."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            parts = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += sum(map(int, parts[11:15]))  # with those of children that have ended
    return total / TICKS


def memory(pids: list[int]) -> float:
    """Return megabytes in memory, each counted once where processes share it."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1])
    return total / 1024


def measured(kind: str, n: int) -> dict[str, float]:
    """Return what n decisions cost."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = None
        database, workers = str(folder / "live.db"), 1
        if kind == "postgresql":
            from tests.live.servers import Server

            server = Server(durable=True)
            stack.callback(server.close)
            database, workers = server.fresh(), 2
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        file = folder / "live.toml"
        file.write_text(LIVE.format(database=json.dumps(database), port=port, workers=workers))
        service = subprocess.Popen([sys.executable, "-m", "zib.cli", "serve", str(file)])
        stack.callback(service.wait)
        stack.callback(service.terminate)
        while True:  # until it listens
            wait = HTTPConnection("127.0.0.1", port)
            with contextlib.suppress(OSError), contextlib.closing(wait):
                wait.request("GET", "/readyz")
                if wait.getresponse().status == 200:
                    break
            time.sleep(0.1)

        def disk() -> int:
            if server is None:  # pages that are in use: the file has some in reserve
                with contextlib.closing(sqlite3.connect(database)) as c:
                    pages, free, size = (
                        c.execute(f"PRAGMA {what}").fetchone()[0]
                        for what in ("page_count", "freelist_count", "page_size")
                    )
                return int((pages - free) * size)
            found = server.run("SELECT pg_database_size(current_database())")
            return int(found[0][0])

        def written() -> int:
            if server is None:
                return 0
            return int(server.run("SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')")[0][0])

        load(port, 0, n // 4)  # compiles, and fills caches
        time.sleep(1.0)
        serving = processes(service.pid)
        storing = []
        if server is not None:
            main = int((server.folder / "postmaster.pid").read_text().split()[0])
            storing = processes(main)
        before = (processor(serving), processor(storing), disk(), written())
        began = time.monotonic()
        load(port, n, n)
        seconds = time.monotonic() - began
        time.sleep(1.0)
        after = (processor(serving), processor(storing), disk(), written())
        used = [b - a for a, b in zip(before, after, strict=True)]
        return {
            "decisions a second": round(n / seconds),
            "service, processor seconds per million": round(used[0] / n * 1e6),
            "database, processor seconds per million": round(used[1] / n * 1e6),
            "disk, bytes per decision": round(used[2] / n),
            "written to the log of PostgreSQL, bytes per decision": round(used[3] / n),
            "memory of the service, MB": round(memory(serving)),
            "memory of the database, MB": round(memory(storing)),
        }


if __name__ == "__main__":
    told = sys.argv[1] if len(sys.argv) > 1 else "sqlite"
    print(json.dumps(measured(told, DECISIONS), indent=1))
