"""Final regrets of many runs, to draw samples from: on which side the truth lies is known there.

`python -m tests.experiments.regrets` simulates them anew (two minutes) and writes `regrets.npz`.
They are whatever the policies did when they were made; nothing depends on their being up to date.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

import zib
from zib.experiments.mab_study import policies

FILE = Path(__file__).with_name("regrets.npz")
PANELS = ("paper-mab-gaussian-p15-v1", "paper-mab-mixture-p25-v1")  # two of figure S1
LABELS = (
    "ZI-UCB printed", "ZI-UCB", "ZI-TS", "ZI adaptive", "UCB true size (strong)",
    "UCB variance size", "MOTS", "UCB1", "Normal TS",
)  # fmt: skip
HORIZON, RUNS = 75_000, 300


def load() -> dict[str, np.ndarray]:
    """Return the regrets at half the horizon and at the horizon, (policy, run, 2), per panel."""
    with np.load(FILE) as file:
        return {name: file[name].astype(np.float64) for name in file.files}


def main() -> None:
    """Simulate and write the file; whole numbers suffice."""
    found = {}
    for name in PANELS:
        maker = zib.env.make(name)
        everybody = policies(maker, HORIZON)
        result = zib.simulate(
            {label: everybody[label] for label in LABELS},
            maker,
            horizon=HORIZON,
            replications=RUNS,
            seed=12345,
            checkpoints=[HORIZON // 2, HORIZON],
        )
        found[name] = np.round(result.regret).astype(np.uint16)
    np.savez_compressed(FILE, **found)


if __name__ == "__main__":
    main()
