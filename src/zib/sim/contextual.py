"""The compiled loop of contextual bandits. One policy against one environment, checkpoints only.

The environment draws contexts and the rewards of *all* actions in blocks, from a stream of its own.
Nothing in a block depends on what is played, so all policies of a replication face the same rounds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zib.contextual import entry as _context_entry
from zib.contextual import policy
from zib.core.cache import numba_config
from zib.core.entry import Entry
from zib.core.kernel import borrowing
from zib.core.rng import Role, stream
from zib.sim.run import Run

BLOCK = 64  # rounds drawn at a time: about a megabyte with 100 actions and 10 features
REGRET, REWARD = 0, 1


@borrowing
def _advance(
    spec: Any,
    state: Any,
    rng: Any,
    space: Any,
    block: Any,
    first: int,
    last: int,
    sums: Any,
    pulls: Any,
) -> None:
    z_row, w_row = space.z_row, space.w_row
    for t in range(first, last):
        arms, z, w = block.arms[t], block.z[t], block.w[t]
        n = block.count[t]
        chosen = policy.choose(spec, state, arms, z, w, rng, space.work, space.out[:n])
        for i in range(z_row.size):
            z_row[i] = z[i, chosen]
        for i in range(w_row.size):
            w_row[i] = w[i, chosen]
        reward = block.reward[t, chosen]
        policy.update(spec, state, arms[chosen], z_row, w_row, reward)
        best = block.mean[t, 0]
        for k in range(1, n):
            best = max(best, block.mean[t, k])
        sums[REGRET] += best - block.mean[t, chosen]
        sums[REWARD] += reward
        pulls[arms[chosen]] += 1


@Entry
def advance(pin: Any, block: Any, first: int, last: int, sums: Any, pulls: Any) -> None:
    """Play rounds first, …, last − 1 of a block."""
    _advance(pin.spec, pin.state, pin.rng, pin.out, block, first, last, sums, pulls)


def play_contextual(
    spec: Any,
    environment: Any,
    checkpoints: NDArray[np.int64],
    seed: int,
    replication: int,
    *,
    compiled: bool = True,
    on_checkpoint: Callable[[int], None] | None = None,
) -> Run:
    """Play one replication and return regret and reward at the checkpoints, pulls at the end."""
    instance = environment.instance(stream(seed, Role.INSTANCE, replication))
    source = stream(seed, Role.ENVIRONMENT, replication)
    rng = stream(seed, Role.POLICY, replication)
    d, q = instance.n_features
    state = policy.init(spec, d, q)
    space = _context_entry.buffers(instance.n_actions, d, q)
    if compiled and not numba_config.DISABLE_JIT:
        pin, step = _context_entry.pin(spec, state, rng, space), advance.for_spec(spec)
    else:
        pin, step = _context_entry.loose_pin(spec, state, rng, space), advance.interpreted
    sums = np.zeros(2)
    pulls = np.zeros(instance.n_arms, dtype=np.int64)
    regret = np.empty(checkpoints.size)
    reward = np.empty(checkpoints.size)
    block = store = instance.block(source, BLOCK)
    t, used = 0, 0
    for i, stop in enumerate(checkpoints):
        while t < stop:
            if used == BLOCK:
                block = instance.block(source, BLOCK, out=store)
                used = 0
            last = min(BLOCK, used + int(stop) - t)
            step(pin, block, used, last, sums, pulls)
            t += last - used
            used = last
        regret[i] = sums[REGRET]
        reward[i] = sums[REWARD]
        if on_checkpoint is not None:
            on_checkpoint(1)
    return Run(regret, reward, pulls)
