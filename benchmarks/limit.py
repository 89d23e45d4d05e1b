"""What the machine itself allows: the random numbers and the search a round cannot do without."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks._measure import Part, Row, interleaved
from benchmarks.bare import lean
from benchmarks.scene import N_ARMS


@lean
def _uniforms(rounds: int, rng: Any) -> float:
    total = 0.0
    for _ in range(rounds):
        total += rng.random()
    return total


@lean
def _normals(rounds: int, rng: Any) -> float:
    total = 0.0
    for _ in range(rounds):
        total += rng.standard_normal()
    return total


@lean
def _betas(rounds: int, rng: Any, a: float, b: float) -> float:
    total = 0.0
    for _ in range(rounds):
        total += rng.beta(a, b)
    return total


@lean
def _sampled(rounds: int, rng: Any, a: Any, b: Any) -> float:
    total = 0.0
    for _ in range(rounds):
        for k in range(a.size):
            total += rng.beta(a[k], b[k]) * rng.standard_normal()
    return total


@lean
def _argmaxes(rounds: int, values: Any) -> float:
    total = 0
    for t in range(rounds):
        best = values[0]
        arm = 0
        for k in range(1, values.size):
            if values[k] > best:
                best = values[k]
                arm = k
        values[arm] = 0.5 * best + 1e-9 * t
        total += arm
    return total


def run(quick: bool) -> list[Row]:
    """Measure the draws one by one, and the least a round can be made of."""
    rng = np.random.default_rng(0)
    values = rng.random(N_ARMS)
    paid = np.linspace(30.0, 3000.0, N_ARMS)
    best = interleaved(
        {
            "uniform": lambda n: _uniforms(n, rng),
            "normal": lambda n: _normals(n, rng),
            "beta": lambda n: _betas(n, rng, 30.0, 170.0),
            f"argmax of {N_ARMS}": lambda n: _argmaxes(n, values),
            "sampled": lambda n: _sampled(n, rng, paid, 5.0 * paid),
        },
        seconds=0.05 if quick else 0.2,
        repeats=3 if quick else 15,
    )
    ns = {name: 1e9 * value for name, value in best.items()}
    sampled = ns.pop("sampled")
    rows = [Row("limit", "one operation", name, value, "ns") for name, value in ns.items()]
    floors = {
        "UCB kind": (ns["uniform"] + ns[f"argmax of {N_ARMS}"], "one uniform and one search"),
        "ZITS kind": (
            ns["uniform"] + sampled,
            f"{N_ARMS} Beta and {N_ARMS} normal draws, one uniform",
        ),
    }
    for who, (value, note) in floors.items():
        rows.append(Row("limit", "a round at least", who, value, "ns", note=note))
    return rows


PARTS: dict[str, Part] = {"draws": run}
