"""Many replications at a time: rounds per second on a GPU, and by the same loop on a processor."""

from __future__ import annotations

import time
from typing import Any

import zib
from benchmarks import scene
from benchmarks._measure import Part, Row
from benchmarks.simulated import ENV, ZITS, ZIUCB, ZIUCB_KL

REPLICATIONS = 131_072
# spec, rounds per replication, target in rounds per second on one H200
POLICIES: dict[str, tuple[Any, int, float]] = {
    "ZIUCB hoeffding": (ZIUCB, 100_000, 5e9),
    "ZIUCB": (ZIUCB_KL, 100_000, 4e9),
    "ZITS": (ZITS, 20_000, 6e8),
    "ZIAdaptive": (zib.mab.ZIAdaptive(), 10_000, 2.5e8),
    "ZIKLUCB": (zib.mab.ZIKLUCB(sigma=scene.SIGMA), 5_000, 1e8),
    "ZIIMED": (zib.mab.ZIIMED(sigma=scene.SIGMA), 5_000, 1e8),
}


def _rate(spec: Any, rounds: int, replications: int, **how: Any) -> tuple[float, float]:
    """Return rounds per second through `zib.simulate`, and the seconds that the first call took."""
    told: dict[str, Any] = {"checkpoints": 20, "keep": "summary", "progress": False, **how}
    start = time.perf_counter()
    zib.simulate([spec], ENV, horizon=20, replications=replications, **told)
    first = time.perf_counter() - start
    start = time.perf_counter()
    zib.simulate([spec], ENV, horizon=rounds, replications=replications, **told)
    return rounds * replications / (time.perf_counter() - start), first


def gpu(quick: bool) -> list[Row]:
    """131,072 replications of ten arms, one per thread."""
    rows = []
    for name, (spec, rounds, target) in POLICIES.items():
        rate, first = _rate(spec, rounds // (10 if quick else 1), REPLICATIONS, backend="cuda")
        note = f"compiling and a first short run: {first:.1f} s"
        rows.append(Row("cuda", "rounds", f"{name}, GPU", rate, "/s", target, note, True))
    return rows


def processor(quick: bool) -> list[Row]:
    """The same loop on one thread, next to the loop that is handed rewards by NumPy."""
    rows = []
    for name, (spec, _, _) in POLICIES.items():
        for backend in ("counter", "serial"):
            rounds, n = (500, 40) if quick else (2_000, 200)
            workers = {"workers": 1} if backend == "counter" else {}
            rate, _ = _rate(spec, rounds, n, backend=backend, **workers)
            rows.append(Row("cuda", "rounds", f"{name}, {backend}", rate, "/s", None, ""))
    return rows


PARTS: dict[str, Part] = {"GPU": gpu, "processor": processor}
