"""Start of a process: importing, and the first compiled call when the cache is warm."""

from __future__ import annotations

import subprocess
import sys

from benchmarks._measure import Part, Row

_IMPORT = """
import time
start = time.perf_counter()
import {module}
print(time.perf_counter() - start)
"""
_OVER_NUMPY = """
import numpy, time
start = time.perf_counter()
import {module}
print(time.perf_counter() - start)
"""
_FIRST_CALL = """
import time
import zib
spec = zib.mab.{policy}(horizon=1000, sigma=1.0)
start = time.perf_counter()
bandit = zib.Bandit(spec, n_arms=10, seed=0)
bandit.update(bandit.select(), 1.0)
print(time.perf_counter() - start)
"""
_FIRST_SIMULATION = """
import time
import zib
env = zib.env.GaussianMAB(means=[1.0, 2.0], probs=[0.5, 0.2], sigma=1.0)
spec = zib.mab.{policy}(horizon=1000, sigma=1.0)
start = time.perf_counter()
zib.simulate([spec], env, horizon=1000, replications=1, backend="serial", progress=False)
print(time.perf_counter() - start)
"""


def _seconds(code: str) -> float:
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return float(done.stdout.splitlines()[-1])


def _best(code: str, repeats: int) -> float:
    """Return the best of fresh processes, the first of which (cold files, compiling) is dropped."""
    return min(_seconds(code) for _ in range(repeats + 1))


def run(quick: bool) -> list[Row]:
    """Time imports and first calls, each in a fresh process."""
    repeats = 2 if quick else 5
    rows = [
        Row(
            "startup",
            "import",
            "numpy alone",
            _best(_IMPORT.format(module="numpy"), repeats),
            "s",
        ),
        Row(
            "startup",
            "import",
            "numba over numpy",
            _best(_OVER_NUMPY.format(module="numba"), repeats),
            "s",
        ),
        Row(
            "startup",
            "import",
            "zib over numpy",
            _best(_OVER_NUMPY.format(module="zib"), repeats),
            "s",
            0.5,
        ),
    ]
    for policy in ("ZIUCB", "ZITS"):
        for what, code in (
            ("first Bandit decision, warm disk cache", _FIRST_CALL),
            ("first simulation, warm disk cache", _FIRST_SIMULATION),
        ):
            rows.append(
                Row("startup", what, policy, _best(code.format(policy=policy), repeats), "s", 1.0)
            )
    return rows


PARTS: dict[str, Part] = {"startup": run}
