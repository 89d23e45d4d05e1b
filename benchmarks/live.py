"""The ledger: durable decisions per second, how soon it learns, its memory, and kills."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks._measure import Part, Row
from zib.live import Ledger

ROOT = Path(__file__).parents[1]
CALLERS = 64
ARMS = ["A", "B", "C"]
TARGETS = {"SQLite": 15_000.0, "PostgreSQL": 8_000.0}

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


def sqlite(quick: bool) -> list[Row]:
    """One process, with `synchronous=FULL`: single calls of many threads, and batches of one."""
    seconds, rows = 2.0 if quick else 8.0, []
    with tempfile.TemporaryDirectory() as folder:
        database = f"{folder}/live.db"
        rate, middle, most = decided(database, processes=1, seconds=seconds)
        note = f"half within {middle:.1f} ms, 99 % within {most:.0f} ms"
        target = TARGETS["SQLite"]
        rows.append(Row("live", "decisions", "SQLite", rate, "/s", target, note, at_least=True))
        with Ledger(database) as ledger:
            for size in (100, 1000, 10_000):
                n, start = 0, time.perf_counter()
                while time.perf_counter() - start < seconds / 4:
                    ledger.decide_many([f"{size}-{k}" for k in range(n, n + size)])
                    n += size
                rate = n / (time.perf_counter() - start)
                rows.append(Row("live", f"decisions, {size:,} at once", "SQLite", rate, "/s"))
    return rows


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


def learning(quick: bool) -> list[Row]:
    """Report events one by one and see when the next model version is in force."""
    taken = []
    with (
        tempfile.TemporaryDirectory() as folder,
        Ledger(f"{folder}/live.db", arms=ARMS, window="7d") as ledger,
    ):
        decisions = ledger.decide_many([f"k{n}" for n in range(100)])
        time.sleep(1.0)
        for n in range(3 if quick else 20):
            before = ledger.decide(f"before {n}").version
            start = time.perf_counter()
            ledger.event(f"e{n}", decisions[n].id, 1.0 + n)
            k = 0
            while ledger.decide(f"after {n} {k}").version == before:
                k += 1
                time.sleep(0.005)
            taken.append(time.perf_counter() - start)
    note = f"median {statistics.median(taken):.2f} s of {len(taken)}"
    return [Row("live", "event to new version, longest", "SQLite", max(taken), "s", 1.0, note)]


_MEMORY = """
import json, sys, time
from pathlib import Path
from zib.live import Ledger
def peak():
    (line,) = (x for x in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in x)
    return int(line.split()[1]) / 2**10
with Ledger(sys.argv[1], arms=["A", "B", "C"], window="7d") as ledger:
    ledger.decide("first")
    opened, n, start = peak(), int(sys.argv[2]), time.perf_counter()
    for first in range(0, n, 10_000):
        ledger.decide_many([f"k{k}" for k in range(first, first + 10_000)])
    ledger.refresh()
    statistics = ledger.statistics()
    assert sum(arm.waiting for arm in statistics.arms.values()) == n + 1
    print(json.dumps([opened, peak(), time.perf_counter() - start]))
"""


def memory(quick: bool) -> list[Row]:
    """Let many decisions wait, in a process of its own."""
    rows = []
    for n in (10**5,) if quick else (10**6, 10**7):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [sys.executable, "-c", _MEMORY, f"{folder}/live.db", str(n)],
                check=True, capture_output=True, text=True,
            )  # fmt: skip
            size = sum(file.stat().st_size for file in Path(folder).iterdir()) / 1e6
        opened, peak, seconds = json.loads(done.stdout.splitlines()[-1])
        note = f"{opened:.0f} MB when opened; {seconds:.0f} s to decide, {size:,.0f} MB on disk"
        rows.append(
            Row("live", f"memory, {n:.0e} pending decisions", "SQLite", peak, "MB", 500.0, note)
        )
    return rows


def _module(name: str, database: str, *options: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", f"tests.live.{name}", database, *options],
        check=True, capture_output=True, text=True, cwd=ROOT,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def kills(quick: bool) -> list[Row]:
    """Kill processes under load; what was acknowledged and is lost or doubled fails the run."""
    from tests.live.servers import Server

    many, rows = ("3" if quick else "100"), []
    server = Server(durable=True)
    try:
        with tempfile.TemporaryDirectory() as folder:
            for who, database in (
                ("SQLite", f"{folder}/live.db"),
                ("PostgreSQL", server.fresh()),
            ):
                found = _module("kills", database, "--kills", many)
                note = f"{found['acknowledged']:,} acknowledged; {found['seconds']:.0f} s"
                what = f"lost or doubled over {many} kills"
                rows.append(Row("live", what, who, len(found["lost"]), "", 0.0, note))
    finally:
        server.close()
    return rows


def soak(quick: bool) -> list[Row]:
    """Play equal arms through a bad network, and fold the log."""
    n = 20_000 if quick else 1_000_000
    with tempfile.TemporaryDirectory() as folder:
        found = _module("soak", f"{folder}/live.db", "--decisions", str(n))
    note = (
        f"{found['events']:,} events, {found['parked']:,} overtook, {found['late']:,} late, "
        f"{found['duplicate']:,} twice; sums = fold of the log; {found['missed']} of "
        f"{found['looks']} intervals missed, and {found['missed_early']} before the first "
        f"close; shares {found['holdout']:.1f} and "
        f"{found['weights']:.1f} standard deviations off"
    )
    return [
        Row("live", f"A/A run of {n:.0e} decisions", "SQLite", found["seconds"], "s", None, note)
    ]


PARTS: dict[str, Part] = {
    "SQLite": sqlite,
    "PostgreSQL": postgres,
    "learning": learning,
    "memory": memory,
    "kills": kills,
    "soak": soak,
}
