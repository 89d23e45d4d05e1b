"""Logs for the tests of off-policy evaluation."""

from __future__ import annotations

import numpy as np

from zib.logs import LoggedData

ARMS = ("a", "b", "c")
LOGGING = np.array([0.5, 0.3, 0.2])
TARGET = np.array([0.1, 0.2, 0.7])


def sparse_log(rng, n=5000, *, p=0.05, features=2, propensity=True):
    """A log whose chances and sizes of rewards depend on arm and context."""
    context = rng.normal(size=(n, features))
    scores = np.tile(np.log(LOGGING), (n, 1))
    if features:
        scores += 0.5 * context[:, :1] * [-1, 0, 1]
    shares = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    arm = (rng.random(n)[:, None] > shares.cumsum(axis=1)).sum(axis=1).clip(0, 2)
    tilt = context[:, 0] if features else 0.0
    chance = 1 / (1 + np.exp(-(np.log(p / (1 - p)) + 0.3 * arm + 0.5 * tilt)))
    reward = (rng.random(n) < chance) * rng.gamma(3.0, 2.0 + arm, n)
    return LoggedData.from_arrays(
        np.array(ARMS)[arm],
        reward,
        propensity=shares[np.arange(n), arm] if propensity else None,
        context=context if features else None,
        arms=ARMS,
    )
