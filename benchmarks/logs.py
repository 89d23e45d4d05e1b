"""Large logs: join, advice and evaluation of ten million rows of Parquet, time and memory."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks._measure import Part, Row

ARMS, FEATURES = 5, 5
ADVISE_SECONDS, EVALUATE_SECONDS, JOIN_SECONDS, MEMORY_MB = 15.0, 120.0, 60.0, 2_048.0

_SCRIPT = """
import json, resource, sys, time
from pathlib import Path
import pyarrow.parquet as pq
import zib.logs.advise, zib.logs.ope
from zib.logs import LogScan, join as join_files
what, path = sys.argv[1:]
names = [f"x{j}" for j in range(5)]
def scan():
    return LogScan(path, arm="arm", reward="reward", propensity="propensity", context=names)
def read():
    with pq.ParquetFile(path, pre_buffer=False) as file:
        return sum(batch.num_rows for batch in file.iter_batches(batch_size=1 << 18))
def advise():
    return zib.logs.advise.advise(scan(), simulate=False)
def clustered():
    log = LogScan(path, arm="arm", reward="reward", context=names, cluster="user")
    return zib.logs.advise.advise(log, simulate=False)
def evaluate():
    policy = {0: 0.1, 1: 0.1, 2: 0.1, 3: 0.1, 4: 0.6}
    return zib.logs.ope.evaluate(scan(), {"mostly 4": policy}, estimators=("ips", "snips", "dr"))
def joined(pending):
    folder = Path(path).parent
    return join_files(
        folder / "exposures.parquet", folder / "conversions.parquet", window="7d",
        as_of="2024-05-31",
        pending=pending, out=folder / "joined.parquet",
    )
def join():
    return joined("leave-out")
def thin():
    return joined("thin")
def peak():
    status = Path("/proc/self/status")
    if status.exists():  # getrusage would count the parent's memory too
        (line,) = (x for x in status.read_text().splitlines() if x.startswith("VmHWM:"))
        return int(line.split()[1]) / 2**10
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return size / (2**20 if sys.platform == "darwin" else 2**10)
start = time.perf_counter()
jobs = {f.__name__: f for f in (read, scan, advise, clustered, evaluate, join, thin)}
jobs[what]()
print(json.dumps([time.perf_counter() - start, peak()]))
"""


def _write(path: Path, rows: int) -> None:
    """Write a log in which 2 % of the rows pay, in pieces, so that this process stays small.

    Every user has five rows, far apart in the file.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    writer = None
    for start in range(0, rows, 1_000_000):
        n = min(1_000_000, rows - start)
        context = rng.normal(size=(n, FEATURES)).astype(np.float32)
        arm = rng.integers(0, ARMS, n)
        prob = 0.02 * np.exp(0.3 * context[:, 0] - 0.1 * arm)
        paid = rng.random(n) < prob
        reward = np.where(paid, rng.lognormal(1.0 + 0.2 * arm, 0.8), 0.0)
        table = pa.table(
            {
                "arm": arm,
                "reward": reward,
                "propensity": np.full(n, 1.0 / ARMS),
                "user": np.arange(start, start + n) % (rows // 5),
                **{f"x{j}": context[:, j] for j in range(FEATURES)},
            }
        )
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    assert writer is not None
    writer.close()


def _write_two(folder: Path, rows: int) -> None:
    """Write exposures of a month, and the orders of a tenth of them up to two weeks later."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(1)
    shown = sold = None
    start_of_may = 1_714_521_600.0
    for start in range(0, rows, 1_000_000):
        n = min(1_000_000, rows - start)
        number = np.char.add("e", np.arange(start, start + n).astype(str))
        time = start_of_may + 30 * 86_400 * (start + np.sort(rng.random(n)) * n) / rows
        buys = np.flatnonzero(rng.random(n) < 0.1)
        table = pa.table(
            {
                "exposure_id": number,
                "variant": np.array(["A", "B", "C"])[rng.integers(0, 3, n)],
                "time": (time * 1e6).astype("datetime64[us]"),
                **{f"x{j}": rng.normal(size=n).astype(np.float32) for j in range(FEATURES)},
            }
        )
        later = time[buys] + rng.exponential(2 * 86_400.0, buys.size)
        orders = pa.table(
            {
                "order_id": np.char.add("o", number[buys]),
                "exposure_id": number[buys],
                "time": (later * 1e6).astype("datetime64[us]"),
                "amount": rng.gamma(3.0, 10.0, buys.size),
            }
        )
        shown = shown or pq.ParquetWriter(folder / "exposures.parquet", table.schema)
        sold = sold or pq.ParquetWriter(folder / "conversions.parquet", orders.schema)
        shown.write_table(table)
        sold.write_table(orders)
    for writer in (shown, sold):
        assert writer is not None
        writer.close()


def _child(what: str, path: Path) -> tuple[float, float]:
    """Return the seconds and the peak memory in MB of one job in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, what, str(path)],
        check=True,
        capture_output=True,
        text=True,
    )
    seconds, peak = json.loads(done.stdout.splitlines()[-1])
    return float(seconds), float(peak)


def run(quick: bool) -> list[Row]:
    """Time reading, checking, advising and evaluating one large file, and joining two."""
    rows = 10**6 if quick else 10**7
    who = f"{rows:.0e} rows, {ARMS} arms, {FEATURES} features"
    out: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.parquet"
        _write(path, rows)
        limit, _ = _child("read", path)
        out.append(Row("logs", "only read (the limit)", who, limit, "s"))
        for what, words, target in (
            ("scan", "read, check, label", None),
            ("advise", "advise, no simulation", ADVISE_SECONDS),
            ("clustered", "advise, rows of a user dependent", None),
            ("evaluate", "IPS, SNIPS and DR of a fixed policy", EVALUATE_SECONDS),
            ("join", "join with a tenth as many orders", JOIN_SECONDS),
            ("thin", "join, open windows thinned", JOIN_SECONDS),
        ):
            if what == "join":
                path.unlink()
                _write_two(Path(folder), rows)
            seconds, peak = _child(what, path)
            note = f"{seconds / limit:.0f} × reading"
            out.append(Row("logs", words, who, seconds, "s", target, note))
            out.append(Row("logs", f"{words}: peak memory", who, peak, "MB", MEMORY_MB))
    return out


PARTS: dict[str, Part] = {"logs": run}
