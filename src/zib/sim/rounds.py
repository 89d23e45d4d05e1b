"""The compiled loop for arms that change with the round. Checkpoints only.

The environment draws the rewards of *all* arms in blocks of rounds, from a stream of its own.
Nothing in a block depends on what is played, so all policies of a replication face the same rounds.
Regret is dynamic: against the arm that is best in that very round.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zib.core import entry, kernel
from zib.core.cache import numba_config
from zib.core.entry import Entry
from zib.core.rng import Role, stream
from zib.core.validate import InvalidParameterError
from zib.sim.engine import give_true_sizes
from zib.sim.run import Run

REGRET, REWARD = 0, 1
LONGEST_BLOCK = 1024  # rounds drawn at a time
TABLE_SIZE = 2**18  # rewards drawn at a time, over all arms


@kernel.jitable
def _advance(spec, state, rng, out, reward, gap, first, last, sums, pulls):  # type: ignore[no-untyped-def]
    for t in range(first, last):
        arm = kernel.choose(spec, state, rng, out)
        kernel.update(spec, state, arm, reward[t, arm])
        sums[REGRET] += gap[t, arm]
        sums[REWARD] += reward[t, arm]
        pulls[arm] += 1


@Entry
def advance(pin, reward, gap, first, last, sums, pulls):  # type: ignore[no-untyped-def]
    """Play rounds first, …, last − 1 of a block."""
    _advance(  # type: ignore[no-untyped-call]
        pin.spec, pin.state, pin.rng, pin.out, reward, gap, first, last, sums, pulls
    )


def play_rounds(
    spec: Any,
    environment: Any,
    checkpoints: NDArray[np.int64],
    seed: int,
    replication: int,
    *,
    compiled: bool = True,
    on_checkpoint: Callable[[int], None] | None = None,
    longest_block: int = LONGEST_BLOCK,
) -> Run:
    """Play one replication and return regret and reward at the checkpoints, pulls at the end.

    `on_checkpoint` is told now and then how many more were reached; it may raise to give up. The
    result does not depend on `longest_block`.
    """
    instance = environment.instance(stream(seed, Role.INSTANCE, replication))
    source = stream(seed, Role.ENVIRONMENT, replication)
    rng = stream(seed, Role.POLICY, replication)
    n_arms = instance.n_arms
    state = kernel.init(spec, n_arms)
    give_true_sizes(spec, state, instance)
    if compiled and not numba_config.DISABLE_JIT:
        pin, step = entry.pin(spec, state, rng), advance.for_spec(spec)
    else:
        pin, step = entry.loose_pin(spec, state, rng), advance.interpreted
    size = max(1, min(longest_block, TABLE_SIZE // n_arms, int(checkpoints[-1])))
    sums = np.zeros(2)
    pulls = np.zeros(n_arms, dtype=np.int64)
    regret = np.empty(checkpoints.size)
    reward = np.empty(checkpoints.size)
    rewards = gaps = np.empty((0, n_arms))
    t, used = 0, 0
    for i, stop in enumerate(checkpoints):
        while t < stop:
            if used == len(rewards):
                rewards, gaps = _drawn(instance, source, t, size)
                used = 0
            last = min(size, used + int(stop) - t)
            step(pin, rewards, gaps, used, last, sums, pulls)
            t += last - used
            used = last
        regret[i] = sums[REGRET]
        reward[i] = sums[REWARD]
        if on_checkpoint is not None:
            on_checkpoint(1)
    return Run(regret, reward, pulls)


def _drawn(
    instance: Any, source: np.random.Generator, start: int, size: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return rewards and gaps of the next rounds."""
    reward, mean = (
        np.ascontiguousarray(part, dtype=np.float64)
        for part in instance.round_block(source, start, size)
    )
    wanted = (size, instance.n_arms)
    if reward.shape != wanted or mean.shape != wanted or not np.isfinite([reward, mean]).all():
        raise InvalidParameterError(
            f"`env` must return finite rewards and means of shape {wanted} when `round_block` is "
            f"asked for {size} rounds; it gave shapes {reward.shape} and {mean.shape}"
        )
    return reward, mean.max(axis=1, keepdims=True) - mean
