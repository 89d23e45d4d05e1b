"""The compiled loop. One policy against one environment, checkpoints only.

Rewards are drawn by the environment in NumPy, in blocks per arm, from one random stream per arm.
The sizes of the blocks depend on nothing but how often that arm was refilled, so the j-th pull of
an arm pays the same to every policy. The compiled loop runs until it needs a reward that is not
there yet, returns, and goes on after the refill.
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
from zib.mab.baselines import set_true_sizes
from zib.sim.run import Run

ROUND, PENDING, REACHED = 0, 1, 2
REGRET, REWARD = 0, 1
FIRST_BLOCK, BLOCK_GROWTH, LARGEST_BLOCK = 64, 4, 16_384
TABLE_SIZE = 2**21  # rewards held at once, over all arms
STRIDE = 2**16  # rounds after which the loop returns, if checkpoints allow, to say how far it is


@kernel.jitable
def _advance(  # type: ignore[no-untyped-def]
    spec, state, rng, out, table, used, filled, gaps, clock, sums, rounds, curves, last
):
    t = clock[ROUND]
    arm = clock[PENDING]
    at = clock[REACHED]
    regret = sums[REGRET]
    earned = sums[REWARD]
    while at < last:
        stop = rounds[at]
        while t < stop:
            if arm < 0:
                arm = kernel.choose(spec, state, rng, out)
            j = used[arm]
            if j == filled[arm]:
                break
            reward = table[arm, j]
            used[arm] = j + 1
            kernel.update(spec, state, arm, reward)
            regret += gaps[arm]
            earned += reward
            arm = -1
            t += 1
        if t < stop:
            break
        curves[REGRET, at] = regret
        curves[REWARD, at] = earned
        at += 1
    clock[ROUND] = t
    clock[PENDING] = arm
    clock[REACHED] = at
    sums[REGRET] = regret
    sums[REWARD] = earned
    return arm


@Entry
def advance(pin, table, used, filled, gaps, clock, sums, rounds, curves, last):  # type: ignore[no-untyped-def]
    """Play up to checkpoint number `last`; return the arm whose rewards are used up, or -1.

    Regret and reward at each checkpoint are written to `curves`: coming back for every one would
    cost more than the rounds between them, and keep threads waiting for each other.
    """
    return _advance(  # type: ignore[no-untyped-call]
        pin.spec,
        pin.state,
        pin.rng,
        pin.out,
        table,
        used,
        filled,
        gaps,
        clock,
        sums,
        rounds,
        curves,
        last,
    )


def play(
    spec: Any,
    environment: Any,
    checkpoints: NDArray[np.int64],
    seed: int,
    replication: int,
    *,
    compiled: bool = True,
    on_checkpoint: Callable[[int], None] | None = None,
) -> Run:
    """Play one replication and return regret and reward at the checkpoints, pulls at the end.

    `on_checkpoint` is told now and then how many more were reached; it may raise to give up.
    """
    instance = environment.instance(stream(seed, Role.INSTANCE, replication))
    n_arms = instance.n_arms
    state = kernel.init(spec, n_arms)
    give_true_sizes(spec, state, instance)
    rng = stream(seed, Role.POLICY, replication)
    if compiled and not numba_config.DISABLE_JIT:
        pin, step = entry.pin(spec, state, rng), advance.for_spec(spec)
    else:
        pin, step = entry.loose_pin(spec, state, rng), advance.interpreted

    means = np.asarray(instance.arm_means, dtype=np.float64)
    gaps = means.max() - means
    inflated = float(getattr(instance, "inflated", 0.0))
    largest = int(min(LARGEST_BLOCK, max(FIRST_BLOCK, TABLE_SIZE // n_arms)))
    table = np.zeros((n_arms, min(largest, int(checkpoints[-1]) + FIRST_BLOCK)))
    used = np.zeros(n_arms, dtype=np.int64)
    filled = np.zeros(n_arms, dtype=np.int64)
    block = np.full(n_arms, FIRST_BLOCK, dtype=np.int64)
    clock = np.array([0, -1, 0], dtype=np.int64)
    sums = np.zeros(2)
    streams: list[np.random.Generator | None] = [None] * n_arms

    rounds = np.array(checkpoints, dtype=np.int64)
    curves = np.empty((2, rounds.size))
    pulls = np.zeros(n_arms, dtype=np.int64)
    reached = 0
    while reached < rounds.size:
        last = min(rounds.size, 1 + int(np.searchsorted(rounds, clock[ROUND] + STRIDE)))
        arm = step(pin, table, used, filled, gaps, clock, sums, rounds, curves, last)
        if arm >= 0:
            source = streams[arm]
            if source is None:
                source = streams[arm] = stream(seed, Role.ENVIRONMENT, replication, arm)
            size = int(block[arm])
            drawn = _drawn(instance, arm, source, size)
            if size > table.shape[1]:  # a short run: the rest of the block can never be used
                drawn = drawn[: table.shape[1]]
                size = table.shape[1]
            table[arm, :size] = drawn if inflated == 0.0 else drawn - inflated
            pulls[arm] += used[arm]
            used[arm] = 0
            filled[arm] = size
            block[arm] = min(BLOCK_GROWTH * block[arm], largest)
        more, reached = int(clock[REACHED]) - reached, int(clock[REACHED])
        if more and on_checkpoint is not None:
            on_checkpoint(more)
    return Run(curves[REGRET].copy(), curves[REWARD] + inflated * rounds, pulls + used)


def _drawn(instance: Any, arm: int, source: np.random.Generator, size: int) -> NDArray[np.float64]:
    drawn = np.asarray(instance.sample(arm, source, size), dtype=np.float64)
    if drawn.shape != (size,) or not np.isfinite(drawn).all():
        raise InvalidParameterError(
            f"`env` must return {size} finite rewards when `sample` is asked for {size}; "
            f"arm {arm} gave {drawn!r}"
        )
    return drawn


def give_true_sizes(spec: Any, state: Any, instance: Any) -> None:
    """Tell a policy that asks for it what only a simulation knows."""
    if getattr(spec, "needs_true_sizes", False):
        if not hasattr(instance, "reward_sizes"):
            raise InvalidParameterError(
                f"`size`='true' needs an environment with a method `reward_sizes`; got {instance!r}"
            )
        inner = getattr(spec, "spec", spec)
        kind = "subgaussian" if inner.tail.kind == 0 else "subexponential"
        set_true_sizes(state, instance.reward_sizes(kind))
