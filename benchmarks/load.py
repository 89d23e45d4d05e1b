"""Requests for a service, many at a time, by a process that itself needs little of the processor.

Plain sockets and requests that are made beforehand: a client of a library would take more time
than the service, which has to share the processors with it. Closed loop: every connection asks
again when it is answered, which shows how much the service can do. Open loop: requests come by
chance at a given rate, whether or not others have been answered, and are timed from the moment at
which they were due, so a service that stalls is not spared the requests of that time.

``python -m benchmarks.load`` reads what to do as JSON and prints what came of it (see `run`).
"""

from __future__ import annotations

import json
import random
import select
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
END = b"\r\n\r\n"
LENGTH = b"content-length: "


class Connection:
    """One connection that is kept, with at most one request under way."""

    __slots__ = ("due", "file", "received", "socket")

    def __init__(self, host: str, port: int) -> None:
        self.socket = socket.create_connection((host, port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.socket.fileno()
        self.received = b""
        self.due = 0.0

    def answer(self) -> bytes | None:
        """Return the answer if all of it is there."""
        got = self.socket.recv(65_536)
        if not got:
            raise ConnectionError("the service closed the connection")
        self.received = got = self.received + got if self.received else got
        end = got.find(END)
        if end < 0:
            return None
        at = got.find(LENGTH)
        if at < 0 or at > end:
            at = got.lower().find(LENGTH)
        if len(got) < end + 4 + int(got[at + 16 : got.find(b"\r", at)]):
            return None
        self.received = b""
        return got


def requests(told: dict[str, Any]) -> list[bytes]:
    """Return the requests as bytes; `body` holds %d for the number of each."""
    head = (
        f"POST {told['path']} HTTP/1.1\r\nHost: {told['host']}:{told['port']}\r\n"
        f"{told.get('headers', '')}Content-Type: application/json\r\nContent-Length: "
    ).encode()
    bodies = told.get("bodies") or [
        (told["body"] % n).encode() for n in range(told["first"], told["first"] + told["most"])
    ]
    bodies = [body.encode() if isinstance(body, str) else body for body in bodies]
    return [b"%s%d\r\n\r\n%s" % (head, len(body), body) for body in bodies]


def run(told: dict[str, Any]) -> dict[str, Any]:
    """Send requests for some seconds and return what was measured, in milliseconds.

    `told` has host, port, path, connections, seconds; body, first and most (or bodies); and for an
    open loop the rate.
    """
    waiting = requests(told)
    waiting.reverse()
    connections = [Connection(told["host"], told["port"]) for _ in range(told["connections"])]
    by_file = {connection.file: connection for connection in connections}
    poll = select.epoll()
    for connection in connections:
        poll.register(connection.file, select.EPOLLIN)
    rate, draw = told.get("rate"), random.Random(told.get("seed", 0))
    taken: list[float] = []
    refused, shown = 0, b""
    clock = time.perf_counter
    used, start = time.process_time(), clock()
    until = start + told["seconds"]
    idle = list(connections)
    due = start if rate else float("inf")
    if not rate:
        for connection in idle:
            connection.due = clock()
            connection.socket.sendall(waiting.pop())
        idle = []
    under_way = told["connections"] - len(idle)
    late: list[float] = []  # when requests were due that no connection was free for
    while True:
        now = clock()
        if rate:
            while due <= now and due < until and waiting:
                late.append(due)
                due += draw.expovariate(rate)
            sent = min(len(late), len(idle))
            for when in late[:sent]:
                connection = idle.pop()
                connection.due = when
                connection.socket.sendall(waiting.pop())
            del late[:sent]
            under_way += sent
            if due >= until and not late and not under_way:
                break
            # the poll itself only knows whole milliseconds
            select.select([poll], [], [], max(min(due, now + 1.0) - now, 0.0))
        found = poll.poll(0 if rate else 1.0)
        if now > until + 10.0:
            break
        for file, _ in found:
            connection = by_file[file]
            answer = connection.answer()
            if answer is None:
                continue
            now = clock()
            taken.append(now - connection.due)
            if answer[9:12] not in (b"200", b"201"):
                refused, shown = refused + 1, answer
            if rate:
                idle.append(connection)
                under_way -= 1
            elif now < until and waiting:
                connection.due = now
                connection.socket.sendall(waiting.pop())
            else:
                under_way -= 1
        if not rate and not under_way:
            break
    seconds = clock() - start
    used = time.process_time() - used
    for connection in connections:
        connection.socket.close()
    taken.sort()
    n = len(taken)
    return {
        "n": n,
        "rate": n / seconds,
        "p50": 1e3 * taken[n // 2],
        "p99": 1e3 * taken[n * 99 // 100],
        "p999": 1e3 * taken[n * 999 // 1000],
        "most": 1e3 * taken[-1],
        "refused": refused,
        "shown": shown.decode(errors="replace")[-300:],
        "unanswered": under_way + len(late),
        "exhausted": not waiting,
        "processor": used / n,
    }


def load(**told: Any) -> dict[str, Any]:
    """Run it in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.load"],
        check=True, capture_output=True, text=True, cwd=ROOT, input=json.dumps(told),
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout)
    return found


if __name__ == "__main__":
    print(json.dumps(run(json.load(sys.stdin))))
