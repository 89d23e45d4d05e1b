"""One loop for many replications at a time: each by a thread of a GPU, or one after the other.

The loops in `zib.sim.loop` are handed rewards that NumPy has drawn. Here a replication draws its
rewards by itself, from streams that are a function of a counter (`zib.core.counter`), so that it
needs nothing from anybody. `play_on` is compiled for the processor and, unchanged, for the GPU
(`zib.sim.cuda`); both give the same numbers as far as their logarithms and cosines agree.

The j-th reward of an arm is the same for every policy, as everywhere. Environments are those of the
other backends; rewards are drawn from other streams.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from zib.core import kernel
from zib.core.counter import FIRST_ARM_LANE, POLICY_LANE, key_of, opened
from zib.core.entry import Entry
from zib.core.stacked import row_of, stacked
from zib.core.validate import InvalidParameterError, shown
from zib.env.arrays import World, draw, side_by_side, world_of
from zib.sim.loop import REGRET, REWARD, Run, give_true_sizes

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]


class Batch(NamedTuple):
    """Everything that changes while replications are played; a row of each array is one of them."""

    states: Any  # of the policy
    scores: Floats  # room for those of all arms
    used: Counts  # random numbers drawn for the policy, then those drawn for each arm
    pulls: Counts
    sums: Floats  # regret and reward so far
    regret: Floats  # at the checkpoints
    reward: Floats


class Constants(NamedTuple):
    """What is the same for all replications of a batch."""

    first_key: int
    second_key: int
    first: int  # number of the first replication
    inflated: float


@kernel.jitable
def play_on(spec, batch, arms, same, rounds, begin, end, used, r):  # type: ignore[no-untyped-def]
    """Play replication `r` of a batch from checkpoint `begin` to before checkpoint `end`.

    `used` is where the position in the stream of the policy is kept meanwhile, an array of length
    1: it changes several times in a round, and a GPU can hold it in a register.
    """
    state = row_of(batch.states, r)
    out = batch.scores[r]
    drawn = batch.used[r]
    pulls = batch.pulls[r]
    here = row_of(arms, r if arms.prob.shape[0] > 1 else 0)
    replication = same.first + r
    rng = opened(same.first_key, same.second_key, replication, POLICY_LANE, used)
    lost = batch.sums[r, REGRET]
    earned = batch.sums[r, REWARD]
    t = rounds[begin - 1] if begin > 0 else 0
    for at in range(begin, end):
        stop = rounds[at]
        while t < stop:
            arm = kernel.choose(spec, state, rng, out)
            source = opened(
                same.first_key,
                same.second_key,
                replication,
                FIRST_ARM_LANE + arm,
                drawn[arm + 1 : arm + 2],
            )
            reward = 0.0
            if source.random() < here.prob[arm]:
                reward = draw(here.law, arm, source) - same.inflated
            kernel.update(spec, state, arm, reward)
            pulls[arm] += 1
            lost += here.gap[arm]
            earned += reward
            t += 1
        batch.regret[r, at] = lost
        batch.reward[r, at] = earned
    batch.sums[r, REGRET] = lost
    batch.sums[r, REWARD] = earned


@Entry
def play_all(spec, batch, arms, same, rounds, begin, end):  # type: ignore[no-untyped-def]
    """Play the replications of a batch one after the other."""
    for r in range(batch.pulls.shape[0]):
        play_on(spec, batch, arms, same, rounds, begin, end, batch.used[r, :1], r)  # type: ignore[no-untyped-call]


def new_batch(spec: Any, world: World, n: int, n_checkpoints: int) -> Batch:
    """Return the beginning of so many replications of a policy."""
    n_arms = world.arms.prob.shape[1]
    batch = Batch(
        stacked(kernel.init(spec, n_arms), n, side_by_side=True),
        side_by_side(np.zeros((n, n_arms))),
        side_by_side(np.zeros((n, n_arms + 1), dtype=np.int64)),
        side_by_side(np.zeros((n, n_arms), dtype=np.int64)),
        side_by_side(np.zeros((n, 2))),
        side_by_side(np.zeros((n, n_checkpoints))),
        side_by_side(np.zeros((n, n_checkpoints))),
    )
    give_true_sizes(spec, batch.states, world)
    return batch


def check_playable(spec: Any) -> None:
    """Raise unless a policy can be played by this loop."""
    if getattr(spec, "n_categories", 0) or kernel.is_interpreted(spec):
        raise InvalidParameterError(
            "`policies` must be multi-armed, compiled, and not told categories of rewards, where "
            f"every replication draws its own rewards; got {shown(spec)}"
        )


def play_many(
    spec: Any,
    environment: Any,
    checkpoints: NDArray[np.int64],
    seed: int,
    first: int,
    last: int,
    *,
    compiled: bool = True,
) -> Run:
    """Play replications first, …, last − 1 on this processor."""
    check_playable(spec)
    world = world_of(environment, seed, first, last)
    rounds = np.array(checkpoints, dtype=np.int64)
    batch = new_batch(spec, world, last - first, rounds.size)
    step = play_all.for_spec(spec) if compiled else play_all.interpreted
    same = Constants(*key_of(seed), first, world.inflated)
    step(spec, batch, world.arms, same, rounds, 0, rounds.size)
    return run_of(batch, world, rounds)


def run_of(batch: Batch, world: World, rounds: NDArray[np.int64]) -> Run:
    """Return what was measured."""
    reward = batch.reward + world.inflated * rounds
    return Run(*(np.ascontiguousarray(part) for part in (batch.regret, reward, batch.pulls)))
