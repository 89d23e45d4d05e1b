"""Large studies: cost of the books, gain of a second worker, memory, cost of handing out blocks."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import zib
from benchmarks import scene
from benchmarks._measure import Part, Row
from zib.sim import Plan, Store
from zib.sim import run as running
from zib.sim.loop import Run, play
from zib.sim.summary import CollectSummary

ENV = zib.env.GaussianMAB(means=scene.MEANS, probs=scene.PROBS, sigma=scene.SIGMA)
HORIZON = 10_000
SPEC = zib.mab.ZITS(horizon=HORIZON, sigma=scene.SIGMA)  # a block of 200 takes about a second
FAST = zib.mab.UCB1(scale=5.0)
MOST_OVERHEAD, LEAST_GAIN, MOST_MEMORY = 3.0, 1.8, 500.0

_MEMORY = """
import json, sys, time
from pathlib import Path
import zib
from benchmarks import study
def peak():
    (line,) = (x for x in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in x)
    return int(line.split()[1]) / 2**10
n, checkpoints = int(sys.argv[1]), int(sys.argv[2])
zib.simulate([study.FAST], study.ENV, horizon=100, replications=2, progress=False)
before, start = peak(), time.perf_counter()
found = zib.simulate([study.FAST], study.ENV, horizon=study.HORIZON, replications=n,
                     checkpoints=checkpoints, keep="summary", progress=False)
found.quantile(0.5)
print(json.dumps([before, peak(), time.perf_counter() - start]))
"""


def _plan(spec: Any, replications: int) -> Plan:
    return Plan.of([spec], ENV, horizon=HORIZON, replications=replications)


def _bare(plan: Plan) -> list[Run]:
    return [
        play(plan.specs[0], plan.environment, plan.checkpoints, plan.seed, replication)
        for replication in range(plan.replications)
    ]


def _books(plan: Plan, runs: list[Run]) -> None:
    """Do all but play: a plan with keys, a new store, a bar that is drawn, runs that are known."""

    def known(*where: Any, on_checkpoint: Callable[[int], None]) -> Run:
        for _ in range(plan.checkpoints.size // 5):  # more often than a run of this length does
            on_checkpoint(5)
        return runs[int(where[-1])]

    with (
        tempfile.TemporaryDirectory() as folder,
        Path(os.devnull).open("w") as nowhere,
        contextlib.redirect_stderr(nowhere),
        mock.patch.object(running, "play", known),
        mock.patch("zib.sim.simulate.warm_up"),
        mock.patch.dict(os.environ, FORCE_COLOR="1"),  # draws the bar although nobody looks
    ):
        zib.simulate(
            plan.specs,
            plan.environment,
            horizon=HORIZON,
            replications=plan.replications,
            backend="serial",
            store=folder,
        )


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _each(n: int, work: Callable[[int], object]) -> float:
    """Return the median seconds of one of n calls."""
    return sorted(_seconds(lambda i=i: work(i)) for i in range(n))[n // 2]  # type: ignore[misc]


def _overhead(quick: bool) -> list[Row]:
    """Compare the books with the playing; a difference of two long times would be mostly noise."""
    length = _plan(SPEC, 1).block_length
    plan = _plan(SPEC, length * (1 if quick else 4))
    _bare(_plan(SPEC, 1))
    runs: list[Run] = []
    turns = []
    for _ in range(3 if quick else 7):
        bare = _seconds(lambda: runs.extend(_bare(plan)))
        turns.append((bare, _seconds(lambda: _books(plan, runs))))
    bare, books = (min(times) for times in zip(*turns, strict=True))
    blocks = plan.replications / length
    note = f"best of {len(turns)}; {blocks:.0f} block(s) of {bare / blocks:.2f} s"
    what = "plan, store and bar / bare engine"
    return [Row("study", what, "serial", 100 * books / bare, "%", MOST_OVERHEAD, note)]


BACKENDS = ("threads", "processes", "dask")
LONG = 75_000  # the paper's: in short runs threads wait for each other in NumPy's draws


def _rate(backend: str, workers: int, replications: int) -> tuple[float, float]:
    """Return checkpoints per second after the first were reached, and the seconds until then."""
    reached: list[tuple[float, int]] = []
    start = time.perf_counter()
    zib.simulate(
        [zib.mab.ZITS(horizon=LONG, sigma=scene.SIGMA)],
        ENV,
        horizon=LONG,
        replications=replications,
        backend=backend,
        workers=workers,
        progress=lambda done, total: reached.append((time.perf_counter(), done)),
    )
    (first, few), (last, all_) = reached[0], reached[-1]
    return (all_ - few) / (last - first), first - start


_ALONE = "from benchmarks import study; print(study._rate('serial', 1, {n})[0])"


def _together(processes: int, n: int) -> float:
    """Return the sum of the rates of processes that know nothing of each other."""
    command = [sys.executable, "-c", _ALONE.format(n=n)]
    running = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(processes)
    ]
    return sum(float(one.communicate()[0]) for one in running)


WHAT = "2 workers / 1 worker"


def _allowed(quick: bool) -> list[Row]:
    """Measure what this machine lets two programs gain that have nothing to do with each other."""
    n = 80 if quick else 400
    alone = [(_together(1, n // 2), _together(2, n // 2)) for _ in range(1 if quick else 3)]
    one, two = (max(rates) for rates in zip(*alone, strict=True))
    note = f"what this machine allows, best of {len(alone)}"
    return [Row("study", WHAT, "two programs on their own", two / one, "×", note=note)]


def _gain(backend: str, quick: bool) -> list[Row]:
    n = 80 if quick else 400
    turns = [(_rate(backend, 1, n), _rate(backend, 2, n)) for _ in range(1 if quick else 3)]
    one, two = (max(turn[i][0] for turn in turns) for i in (0, 1))
    start = min(turn[1][1] for turn in turns)
    note = f"rates after the first result, best of {len(turns)}; {start:.1f} s until then"
    return [Row("study", WHAT, backend, two / one, "×", LEAST_GAIN, note, at_least=True)]


def _memory(quick: bool) -> list[Row]:
    rows = []
    for checkpoints, most in ((200, 10**4 if quick else 10**5), (1000, 2000 if quick else 10**4)):
        peaks = []
        for n in (100, most):
            done = subprocess.run(
                [sys.executable, "-c", _MEMORY, str(n), str(checkpoints)],
                check=True, capture_output=True, text=True,
            )  # fmt: skip
            before, peak, seconds = json.loads(done.stdout.splitlines()[-1])
            peaks.append(peak)
        who = f"{most:.0e} replications, {checkpoints} checkpoints"
        note = f"{before:.0f} MB of it after import; {seconds:.0f} s"
        rows.append(Row("study", "peak memory, T = 10⁴", who, peaks[1], "MB", MOST_MEMORY, note))
        more = peaks[1] - peaks[0]
        rows.append(Row("study", "more than 100 replications", who, more, "MB", 60.0))
    return rows


WHO = "200 replications, 200 checkpoints"


def _block() -> Run:
    found = zib.simulate([FAST], ENV, horizon=HORIZON, replications=200, progress=False)
    return Run(found.regret[0], found.reward[0], found.pulls[0])


def _costs(quick: bool) -> list[Row]:
    """What one block costs the process that hands them out, and how large it is."""
    rows = _block()
    size = sum(part.nbytes for part in rows)
    n = 20 if quick else 100
    with tempfile.TemporaryDirectory() as folder:
        store = Store(folder)
        put = _each(n, lambda i: store.put(f"{i:064x}", rows._asdict(), {}))
        get = _each(n, lambda i: store.get(f"{i:064x}"))
    plan = _plan(FAST, 200)
    collector, block = CollectSummary(plan), plan.blocks[0]
    merge = _each(n, lambda i: collector.add({block: rows}))
    return [
        Row("study", "size of a block", WHO, size / 1000, "kB"),
        Row("study", "driver: write a block to the store", WHO, 1e3 * put, "ms"),
        Row("study", "driver: read a block from the store", WHO, 1e3 * get, "ms"),
        Row("study", "driver: merge a block into a summary", WHO, 1e3 * merge, "ms"),
    ]


def _echo(rows: Run) -> Run:
    return Run(rows.regret.copy(), rows.reward.copy(), rows.pulls.copy())


def _handing_out(quick: bool) -> list[Row]:
    """Measure the processor time per block of this process, with the scheduler in it.

    The workers only hand arrays of the size of a block back.
    """
    from distributed import Client, LocalCluster

    rows = _block()
    turns = 2 if quick else 10
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None, memory_limit=0
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        known = client.scatter(rows, broadcast=True)

        def turn(n: int) -> float:
            start = time.process_time()
            client.gather([client.submit(_echo, known, pure=False) for _ in range(n)])
            return time.process_time() - start

        turn(20)
        seconds = sum(turn(20) for _ in range(turns)) / (20 * turns)
    what = "driver: hand out and take back a block with Dask"
    note = "processor time of driver and scheduler together"
    return [Row("study", what, WHO, 1e3 * seconds, "ms", note=note)]


PARTS: dict[str, Part] = {
    "overhead": _overhead,
    "gain this machine allows": _allowed,
    **{f"gain with {backend}": partial(_gain, backend) for backend in BACKENDS},
    "memory": _memory,
    "cost of a block": _costs,
    "cost of a block with dask": _handing_out,
}
