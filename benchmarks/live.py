"""Durable decisions per second: callers wait until theirs is on the disk."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks._measure import Part, Row

CALLERS = 64
TARGETS = {"PostgreSQL": 8_000.0}

# One process of callers: told by a line on its standard input when to begin, it prints how many
# decisions were made and the milliseconds that half, and all but one in a hundred, took at most.
_PROCESS = """
import sys, threading, time
import zib
database, me, callers, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
ledger = zib.live.Ledger(database, arms=["A", "B", "C"], window="7d")
ledger.decide(f"{me} warm")
taken, going = [], True
def caller(number):
    made = 0
    while going:
        start = time.perf_counter()
        ledger.decide(f"{me} {number} {made}")
        taken.append(time.perf_counter() - start)
        made += 1
print("ready", flush=True)
sys.stdin.readline()
threads = [threading.Thread(target=caller, args=(k,)) for k in range(callers)]
start = time.perf_counter()
for thread in threads:
    thread.start()
time.sleep(seconds)
going = False
for thread in threads:
    thread.join()
rate = len(taken) / (time.perf_counter() - start)
taken.sort()
print(rate, 1e3 * taken[len(taken) // 2], 1e3 * taken[len(taken) * 99 // 100])
ledger.close()
"""


def decided(
    database: str, *, processes: int, seconds: float, callers: int = CALLERS
) -> tuple[float, float, float]:
    """Return decisions a second of callers in several processes, and their median and 99 % delay.

    Delays are milliseconds, the worst of the processes.
    """
    share = [str(callers // processes), str(seconds)]
    running = [
        subprocess.Popen(
            [sys.executable, "-c", _PROCESS, database, str(number), *share],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(processes)
    ]
    for process in running:
        assert process.stdout is not None
        process.stdout.readline()
    for process in running:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    told = [[float(x) for x in process.communicate()[0].split()] for process in running]
    rates, middle, most = zip(*told, strict=True)
    return sum(rates), max(middle), max(most)


def syncs(seconds: float) -> float:
    """Return how often a second a page of a file can be overwritten and brought to the disk."""
    with tempfile.TemporaryDirectory() as folder:
        file = os.open(Path(folder) / "page", os.O_RDWR | os.O_CREAT)
        os.write(file, bytes(1 << 20))
        os.fsync(file)
        count, start = 0, time.perf_counter()
        while time.perf_counter() - start < seconds:
            os.pwrite(file, b"x" * 8_192, 8_192 * (count % 128))
            os.fdatasync(file)
            count += 1
        os.close(file)
    return count / seconds


def postgres(quick: bool) -> list[Row]:
    """Two processes with all callers between them, the server on the same machine.

    The files of its log are there already, as on a server that has run for a while: making a new
    one keeps everybody waiting for a tenth of a second.
    """
    from tests.live.servers import Server

    seconds = 2.0 if quick else 8.0
    server = Server(durable=True, settings={"min_wal_size": "256MB"})
    try:
        written = "pg_logical_emit_message(false, 'zib', repeat('x', 1000000))"
        server.run(f"SELECT {written} FROM generate_series(1, 200)")
        server.run("CHECKPOINT")
        rows = []
        for processes in (1, 2):
            rate, middle, most = decided(server.fresh(), processes=processes, seconds=seconds)
            note = f"half within {middle:.1f} ms, 99 % within {most:.0f} ms"
            who = f"PostgreSQL, {processes} process{'es' * (processes > 1)}"
            target = TARGETS["PostgreSQL"] if processes == 2 else None
            rows.append(Row("live", "decisions", who, rate, "/s", target, note, at_least=True))
        limit = syncs(seconds / 4) * CALLERS
        note = f"{limit / CALLERS:,.0f} syncs of the disk a second, each for all {CALLERS} callers"
        rows.append(Row("live", "decisions", "if the disk alone took time", limit, "/s", note=note))
        return rows
    finally:
        server.close()


PARTS: dict[str, Part] = {"PostgreSQL": postgres}
