"""One loop for many replications at a time: each by a thread of a GPU, or one after the other.

The loops in `zib.sim.loop` are handed rewards that NumPy has drawn. Here a replication draws its
rewards by itself, from streams that are a function of a counter (`zib.core.counter`), so that it
needs nothing from anybody. `play_on` is compiled for the processor and, unchanged, for the GPU
(`zib.sim.cuda`); both give the same numbers as far as their logarithms and cosines agree.

The j-th reward of an arm is the same for every policy, as everywhere; where contexts arrive all
policies face the same rounds. Environments are those of the other backends; rewards and contexts
are drawn from other streams.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from zib.contextual import entry as context_entry
from zib.contextual import policy
from zib.core import kernel
from zib.core.counter import FIRST_ARM_LANE, POLICY_LANE, key_of, opened
from zib.core.entry import Entry
from zib.core.registry import INLINED, Registry
from zib.core.stacked import stacked, strided_row_of
from zib.core.validate import InvalidParameterError, shown
from zib.env.arrays import Arms, Contexts, World, draw, side_by_side, world_of
from zib.env.contextual import fill
from zib.sim.loop import REGRET, REWARD, Run, give_true_sizes, play_contexts

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]


class Batch(NamedTuple):
    """Everything that changes while replications are played; a row of each array is one of them."""

    states: Any  # of the policy
    space: Any  # where it writes scores, and whatever else it needs room for
    used: Counts  # random numbers drawn for the policy, then those drawn for the environment
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


# ---------------------------------------------------------------------------------------- the loop

WORLDS = Registry("world", "WORLDS.add(...)")


class Player(NamedTuple):
    """What is entered into `WORLDS` for a kind of environments."""

    play_on: Callable[..., None]


@WORLDS.kernel(INLINED)
def play_on(
    world: Any,
    spec: Any,
    batch: Any,
    same: Any,
    rounds: Any,
    begin: int,
    end: int,
    used: Any,
    r: int,
) -> None:
    """Play replication `r` of a batch from checkpoint `begin` to before checkpoint `end`.

    `used` is where the position in the stream of the policy is kept meanwhile, an array of length
    1: it changes several times in a round, and a GPU can hold it in a register.
    """


@kernel.jitable
def _play_arms_on(world, spec, batch, same, rounds, begin, end, used, r):  # type: ignore[no-untyped-def]
    state = strided_row_of(batch.states, r)
    out = batch.space.scores[r]
    drawn = batch.used[r]
    pulls = batch.pulls[r]
    here = strided_row_of(world, r if world.prob.shape[0] > 1 else 0)
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


@kernel.borrowing
def _play_contexts_on(world, spec, batch, same, rounds, begin, end, used, r):  # type: ignore[no-untyped-def]
    state = strided_row_of(batch.states, r)
    space = strided_row_of(batch.space, r)
    here = strided_row_of(world.coefficients, r)
    sums, pulls = batch.sums[r], batch.pulls[r]
    replication = same.first + r
    rng = opened(same.first_key, same.second_key, replication, POLICY_LANE, used)
    source = opened(
        same.first_key, same.second_key, replication, FIRST_ARM_LANE, batch.used[r, 1:2]
    )
    t = rounds[begin - 1] if begin > 0 else 0
    for at in range(begin, end):
        stop = rounds[at]
        while t < stop:
            fill(
                world.link,
                world.codes,
                world.scales,
                here.beta,
                here.theta,
                here.centres,
                source,
                space.block,
            )
            play_contexts(
                spec, state, rng, space.buffers, space.block, space.kinds, 0, 1, sums, pulls
            )
            t += 1
        batch.regret[r, at] = sums[REGRET]
        batch.reward[r, at] = sums[REWARD]


WORLDS.add(Arms, Player(_play_arms_on))
WORLDS.add(Contexts, Player(_play_contexts_on))


@Entry
def play_all(spec, batch, world, same, rounds, begin, end):  # type: ignore[no-untyped-def]
    """Play the replications of a batch one after the other."""
    for r in range(batch.pulls.shape[0]):
        play_on(world, spec, batch, same, rounds, begin, end, batch.used[r, :1], r)


# --------------------------------------------------------------------------------------- its arrays


class ArmSpace(NamedTuple):
    """What a policy without contexts writes to."""

    scores: Floats


class ContextSpace(NamedTuple):
    """What a contextual policy is shown, one round at a time, and writes to."""

    buffers: Any
    block: Any
    kinds: NDArray[np.int16]  # categories: nobody is told any


def new_batch(spec: Any, world: World, n: int, n_checkpoints: int) -> Batch:
    """Return the beginning of so many replications of a policy."""
    example = world.example
    space: Any
    if example is None:
        n_arms, lanes = world.arrays.prob.shape[1], world.arrays.prob.shape[1]
        state, space = kernel.init(spec, n_arms), ArmSpace(np.zeros(n_arms))
    else:
        n_arms, lanes = example.n_arms, 1
        state = policy.init(spec, *example.n_features)
        space = ContextSpace(
            context_entry.buffers(example.n_actions, *example.n_features),
            example._new_block(1),
            np.zeros((1, example.n_actions), dtype=np.int16),
        )
    batch = Batch(
        stacked(state, n, side_by_side=True),
        stacked(space, n, side_by_side=True),
        side_by_side(np.zeros((n, lanes + 1), dtype=np.int64)),
        side_by_side(np.zeros((n, n_arms), dtype=np.int64)),
        side_by_side(np.zeros((n, 2))),
        side_by_side(np.zeros((n, n_checkpoints))),
        side_by_side(np.zeros((n, n_checkpoints))),
    )
    if example is None:
        give_true_sizes(spec, batch.states, world)
    return batch


def check_playable(spec: Any, environment: Any) -> None:
    """Raise unless this loop can play a policy in such an environment."""
    wanted = policy.POLICIES if hasattr(environment, "n_features") else kernel.REGISTRY
    told = getattr(spec, "n_categories", 0)
    if type(spec) not in wanted or told or kernel.is_interpreted(spec):
        raise InvalidParameterError(
            "`policies` must be compiled, look at contexts if and only if there are any, and not "
            "be told categories of rewards, where every replication draws its own rewards; got "
            f"{shown(spec)}"
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
    check_playable(spec, environment)
    world = world_of(environment, seed, first, last)
    rounds = np.array(checkpoints, dtype=np.int64)
    batch = new_batch(spec, world, last - first, rounds.size)
    step = play_all.for_spec(spec) if compiled else play_all.interpreted
    same = Constants(*key_of(seed), first, world.inflated)
    step(spec, batch, world.arrays, same, rounds, 0, rounds.size)
    return run_of(batch, world, rounds)


def run_of(batch: Batch, world: World, rounds: NDArray[np.int64]) -> Run:
    """Return what was measured."""
    reward = batch.reward + world.inflated * rounds
    return Run(*(np.ascontiguousarray(part) for part in (batch.regret, reward, batch.pulls)))
