"""The one problem everybody plays: ten arms, Gaussian sizes, between 10 and 30 % of them paid."""

from __future__ import annotations

import numpy as np

N_ARMS = 10
HORIZON = 1_000_000
SIGMA = 0.5
PROBS = np.linspace(0.10, 0.28, N_ARMS)
MEANS = np.linspace(3.0, 1.2, N_ARMS)
ARM_MEANS = PROBS * MEANS

_BLOCK = 4096


def reward_table(seed: int = 0) -> list[list[float]]:
    """Return a block of ready rewards per arm, so that online timings contain no environment."""
    rng = np.random.default_rng(seed)
    paid = rng.random((N_ARMS, _BLOCK)) < PROBS[:, None]
    sizes = MEANS[:, None] + SIGMA * rng.standard_normal((N_ARMS, _BLOCK))
    table: list[list[float]] = np.where(paid, sizes, 0.0).tolist()
    return table


def mask() -> int:
    """Return what to and a round number with to walk around the block."""
    return _BLOCK - 1
