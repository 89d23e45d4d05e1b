"""Memory of a long simulation: it must not grow with the number of rounds."""

from __future__ import annotations

import json
import subprocess
import sys

from benchmarks._measure import Part, Row

_SCRIPT = """
import json, resource, sys, time
from pathlib import Path
import zib
from benchmarks import scene
def peak():
    status = Path("/proc/self/status")
    if status.exists():  # getrusage would count the parent's memory too
        (line,) = (x for x in status.read_text().splitlines() if x.startswith("VmHWM:"))
        return int(line.split()[1]) / 2**10
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return size / (2**20 if sys.platform == "darwin" else 2**10)
env = zib.env.GaussianMAB(means=scene.MEANS, probs=scene.PROBS, sigma=scene.SIGMA)
imported = peak()
rounds = int(sys.argv[1])
spec = zib.mab.ZIUCB(horizon=rounds, sigma=scene.SIGMA, occurrence="hoeffding")
start = time.perf_counter()
zib.simulate([spec], env, horizon=rounds, replications=1, backend="serial", progress=False)
print(json.dumps([imported, peak(), time.perf_counter() - start]))
"""


def _peak(rounds: int) -> tuple[float, float, float]:
    """Return the peak in MB after import and after the run, and the seconds it took."""
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, str(rounds)], check=True, capture_output=True, text=True
    )
    imported, peak, seconds = json.loads(done.stdout.splitlines()[-1])
    return float(imported), float(peak), float(seconds)


def run(quick: bool) -> list[Row]:
    """Run one policy for more and more rounds, each time in a process of its own."""
    _peak(1000)  # compiled code is on disk from here on
    rows: list[Row] = []
    grown: list[float] = []
    for rounds in (10**4, 10**6) if quick else (10**4, 10**6, 10**8):
        imported, peak, seconds = _peak(rounds)
        grown.append(peak - imported)
        who = f"T = {rounds:.0e}"
        note = f"peak {peak:.0f} MB, of which {imported:.0f} MB after the imports; {seconds:.1f} s"
        rows.append(
            Row("memory", "resident growth over imports", who, peak - imported, "MB", 200.0, note)
        )
    rows.append(
        Row(
            "memory",
            "longest run / shortest run",
            "extra",
            grown[-1] - grown[0],
            "MB",
            20.0,
            "independent of T up to noise and reward blocks",
        )
    )
    return rows


PARTS: dict[str, Part] = {"memory": run}
