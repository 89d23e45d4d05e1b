"""The loops that play: one policy against one environment, one replication, checkpoints only.

Three kinds of environments are played by three loops; the one for rewards that come late is in
`zib.sim.delayed`. Where arms do not change (`_by_arm`), rewards are drawn in NumPy, in blocks per
arm, from one random stream per arm. The sizes of the blocks depend on nothing but how often that
arm was refilled, so the j-th pull of an arm pays the same to every policy; the loop runs until it
needs a reward that is not there yet, returns, and goes on after the refill. Where arms change with
the round (`_by_round`) and where contexts arrive (`_with_contexts`), the rewards of *all* arms are
drawn in blocks of rounds from one stream. Nothing in a block depends on what is played, so all
policies of a replication face the same rounds, also those that do not look at the context
(`_without_looking`).

The functions that do the rounds (`_play_arms`, `_play_rounds`, `play_contexts`) are plain Python
on arrays. They run interpreted and compiled, and know nothing of who draws or who waits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from zib.contextual import entry as context_entry
from zib.contextual import policy
from zib.core import entry, kernel
from zib.core.entry import Entry
from zib.core.rng import Role, stream
from zib.core.validate import InvalidParameterError, shown
from zib.env.contextual import ContextBlock
from zib.mab.classics import set_true_sizes

ROUND, PENDING, REACHED = 0, 1, 2  # of `clock`
REGRET, REWARD = 0, 1  # of `sums` and `curves`
FIRST_BLOCK, BLOCK_GROWTH, LARGEST_BLOCK = 64, 4, 16_384  # rewards of one arm drawn at a time
TABLE_SIZE = 2**21  # rewards held at once, over all arms
STRIDE = 2**16  # rounds after which the loop returns, if checkpoints allow, to say how far it is
LONGEST_BLOCK = 1024  # rounds drawn at a time, where arms change with the round
ROUNDS_SIZE = 2**18  # rewards drawn at a time there, over all arms
CONTEXTS = 64  # rounds with contexts drawn at a time: a megabyte with 100 actions and 10 features

OnCheckpoint = Callable[[int], None]


class Run(NamedTuple):
    """Regret and reward at the checkpoints, pulls of every arm at the end.

    Of one replication; with one row per replication where several are kept together.
    """

    regret: NDArray[np.float64]
    reward: NDArray[np.float64]
    pulls: NDArray[np.int64]


def tell_nobody(more: int) -> None:
    """Take no notice of checkpoints that were reached."""


class Replication(NamedTuple):
    """One replication about to be played: who plays where, and from which random streams."""

    spec: Any
    instance: Any
    checkpoints: NDArray[np.int64]
    stream: Callable[..., np.random.Generator]  # of a role; of an arm, too, where each has its own
    compiled: bool
    on_checkpoint: OnCheckpoint


def play(
    spec: Any,
    environment: Any,
    checkpoints: NDArray[np.int64],
    seed: int,
    replication: int,
    *,
    compiled: bool = True,
    on_checkpoint: OnCheckpoint = tell_nobody,
) -> Run:
    """Play one replication.

    `on_checkpoint` is told now and then how many more were reached; it may raise to give up.
    """

    def own_stream(role: Role, *arm: int) -> np.random.Generator:
        return stream(seed, role, replication, *arm)

    instance = environment.instance(own_stream(Role.INSTANCE))
    one = Replication(spec, instance, checkpoints, own_stream, compiled, on_checkpoint)
    return player_of(environment)(one)


def player_of(environment: Any) -> Callable[[Replication], Run]:
    """Return the function that plays a replication in such an environment."""
    for name, player in FURTHER.items():
        if getattr(environment, name, False):
            return player
    if hasattr(environment, "n_features"):
        return _by_context
    return _by_round if getattr(environment, "by_round", False) else _by_arm


# Players of further kinds of environments, by the attribute that says so. They stand in modules of
# their own, so that an edit there does not make every policy compile again.
FURTHER: dict[str, Callable[[Replication], Run]] = {}


# -------------------------------------------------------------------------- arms that do not change


@kernel.jitable
def _play_arms(  # type: ignore[no-untyped-def]
    spec, state, rng, out, table, kinds, used, filled, gaps, clock, sums, rounds, curves, last
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
            kernel.learn(spec, state, arm, reward, kinds[arm, j])
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
def advance(pin, table, kinds, used, filled, gaps, clock, sums, rounds, curves, last):  # type: ignore[no-untyped-def]
    """Play up to checkpoint number `last`; return the arm whose rewards are used up, or -1.

    Regret and reward at each checkpoint are written to `curves`: coming back for every one would
    cost more than the rounds between them, and keep threads waiting for each other.
    """
    return _play_arms(  # type: ignore[no-untyped-call]
        pin.spec,
        pin.state,
        pin.rng,
        pin.out.scores,
        table,
        kinds,
        used,
        filled,
        gaps,
        clock,
        sums,
        rounds,
        curves,
        last,
    )


def _by_arm(one: Replication) -> Run:
    spec, instance, checkpoints = one.spec, one.instance, one.checkpoints
    n_arms = instance.n_arms
    state = kernel.init(spec, n_arms)
    give_true_sizes(spec, state, instance)
    pin, step = player(one, entry, advance, state)

    means = np.asarray(instance.arm_means, dtype=np.float64)
    gaps = means.max() - means
    rewards = ArmRewards(one, np.arange(n_arms))
    clock = np.array([0, -1, 0], dtype=np.int64)
    sums = np.zeros(2)

    rounds = np.array(checkpoints, dtype=np.int64)
    curves = np.empty((2, rounds.size))
    reached = 0
    while reached < rounds.size:
        last = min(rounds.size, 1 + int(np.searchsorted(rounds, clock[ROUND] + STRIDE)))
        arm = step(pin, *rewards.drawn, gaps, clock, sums, rounds, curves, last)
        if arm >= 0:
            rewards.refill(arm)
        more, reached = int(clock[REACHED]) - reached, int(clock[REACHED])
        if more:
            one.on_checkpoint(more)
    return Run(curves[REGRET].copy(), curves[REWARD] + rewards.inflated * rounds, rewards.pulls)


class Drawn(NamedTuple):
    """Rewards that were drawn for each arm, less the inflated value."""

    reward: NDArray[np.float64]
    kind: NDArray[np.int16]  # categories, for policies that want them
    used: NDArray[np.int64]
    filled: NDArray[np.int64]


class ArmRewards:
    """Draws the rewards of each arm in blocks, from a stream of its own.

    `order` gives the arm of the environment that each row stands for.
    """

    def __init__(self, one: Replication, order: NDArray[np.int64]) -> None:
        self._one, self._order = one, order
        n_arms = order.size
        self.inflated = float(getattr(one.instance, "inflated", 0.0))
        self._told = tells_categories(one.spec, one.instance)
        self._largest = int(min(LARGEST_BLOCK, max(FIRST_BLOCK, TABLE_SIZE // n_arms)))
        shape = (n_arms, min(self._largest, int(one.checkpoints[-1]) + FIRST_BLOCK))
        self.drawn = Drawn(
            np.zeros(shape),
            np.zeros(shape, dtype=np.int16),
            np.zeros(n_arms, dtype=np.int64),
            np.zeros(n_arms, dtype=np.int64),
        )
        self._block = np.full(n_arms, FIRST_BLOCK, dtype=np.int64)
        self._pulls = np.zeros(n_arms, dtype=np.int64)
        self._streams: list[np.random.Generator | None] = [None] * n_arms

    @property
    def pulls(self) -> NDArray[np.int64]:
        """How many rewards of each arm were used."""
        return self._pulls + self.drawn.used

    def refill(self, row: int) -> int:
        """Draw the next block of an arm; return how many it had before it was cut."""
        arm = int(self._order[row])
        source = self._streams[row]
        if source is None:
            source = self._streams[row] = self._one.stream(Role.ENVIRONMENT, arm)
        whole = int(self._block[row])
        rewards, categories = drawn_rewards(self._one.instance, arm, source, whole, self._told)
        table, kinds, used, filled = self.drawn
        size = min(whole, table.shape[1])  # in a short run the rest can never be used
        table[row, :size] = (
            rewards[:size] if self.inflated == 0.0 else rewards[:size] - self.inflated
        )
        if self._told:
            kinds[row, :size] = categories[:size]
        self._pulls[row] += used[row]
        used[row] = 0
        filled[row] = size
        self._block[row] = min(BLOCK_GROWTH * whole, self._largest)
        return whole


def tells_categories(spec: Any, instance: Any) -> bool:
    """Whether the policy wants the categories of rewards; raise unless the environment has them."""
    wanted = getattr(spec, "n_categories", 0)
    if wanted == 0:
        return False
    there = getattr(instance, "n_categories", None)
    if there is None or there > wanted:
        raise InvalidParameterError(
            "`env` must tell the category of every reward, one of the policy's "
            f"{wanted}; got {there or 'no'} categories"
        )
    return True


def drawn_rewards(
    instance: Any, arm: int, source: np.random.Generator, size: int, told: bool
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return rewards and, where they are told, their categories."""
    categories = np.empty(0, dtype=np.int64)
    if told:
        drawn, categories = instance.sample_categories(arm, source, size)
    else:
        drawn = np.asarray(instance.sample(arm, source, size), dtype=np.float64)
    if drawn.shape != (size,) or not np.isfinite(drawn).all():
        raise InvalidParameterError(
            f"`env` must return {size} finite rewards when `sample` is asked for {size}; "
            f"arm {arm} gave {drawn!r}"
        )
    return drawn, categories


# -------------------------------------------------------------------- arms that change by the round


@kernel.jitable
def _play_rounds(spec, state, rng, out, reward, gap, first, last, sums, pulls):  # type: ignore[no-untyped-def]
    for t in range(first, last):
        arm = kernel.choose(spec, state, rng, out)
        kernel.update(spec, state, arm, reward[t, arm])
        sums[REGRET] += gap[t, arm]
        sums[REWARD] += reward[t, arm]
        pulls[arm] += 1


@Entry
def advance_rounds(pin, reward, gap, first, last, sums, pulls):  # type: ignore[no-untyped-def]
    """Play rounds first, …, last − 1 of a block."""
    _play_rounds(  # type: ignore[no-untyped-call]
        pin.spec, pin.state, pin.rng, pin.out.scores, reward, gap, first, last, sums, pulls
    )


def _player_of_rounds(one: Replication) -> tuple[np.random.Generator, Any, Callable[..., Any]]:
    """Return the stream of the rounds, and who plays them without looking at any features."""
    tells_categories(one.spec, one.instance)
    state = kernel.init(one.spec, one.instance.n_arms)
    give_true_sizes(one.spec, state, one.instance)
    return one.stream(Role.ENVIRONMENT), *player(one, entry, advance_rounds, state)


def _by_round(one: Replication) -> Run:
    """Regret is against the arm that is best in that very round."""
    instance = one.instance
    source, pin, step = _player_of_rounds(one)
    # the result does not depend on it
    size = max(1, min(LONGEST_BLOCK, ROUNDS_SIZE // instance.n_arms, int(one.checkpoints[-1])))

    def draw(start: int) -> tuple[Any, ...]:
        reward, mean = (
            np.ascontiguousarray(part, dtype=np.float64)
            for part in instance.round_block(source, start, size)
        )
        wanted = (size, instance.n_arms)
        if reward.shape != wanted or mean.shape != wanted or not np.isfinite([reward, mean]).all():
            raise InvalidParameterError(
                f"`env` must return finite rewards and means of shape {wanted} when `round_block` "
                f"is asked for {size} rounds; it gave shapes {reward.shape} and {mean.shape}"
            )
        return reward, mean.max(axis=1, keepdims=True) - mean

    return _play_blocks(one, step, pin, draw, size)


# ----------------------------------------------------------------------------------------- contexts


def _by_context(one: Replication) -> Run:
    free = type(one.spec) in kernel.REGISTRY
    return _without_looking(one) if free else _with_contexts(one)


@kernel.borrowing
def play_contexts(
    spec: Any,
    state: Any,
    rng: Any,
    space: Any,
    block: Any,
    kinds: Any,
    first: int,
    last: int,
    sums: Any,
    pulls: Any,
) -> None:
    """Play rounds first, …, last − 1 of a block with contexts."""
    z_row, w_row = space.z_row, space.w_row
    counts = block[-1]  # on a GPU the name `count` is that of a method of all tuples
    for t in range(first, last):
        arms, z, w = block.arms[t], block.z[t], block.w[t]
        n = counts[t]
        chosen = policy.choose(spec, state, arms, z, w, rng, space.work, space.out[:n])
        for i in range(z_row.size):
            z_row[i] = z[i, chosen]
        for i in range(w_row.size):
            w_row[i] = w[i, chosen]
        reward = block.reward[t, chosen]
        policy.learn(spec, state, arms[chosen], z_row, w_row, reward, kinds[t, chosen])
        best = block.mean[t, 0]
        for k in range(1, n):
            best = max(best, block.mean[t, k])
        sums[REGRET] += best - block.mean[t, chosen]
        sums[REWARD] += reward
        pulls[arms[chosen]] += 1


@Entry
def advance_contextual(
    pin: Any, block: Any, kinds: Any, first: int, last: int, sums: Any, pulls: Any
) -> None:
    """Play rounds first, …, last − 1 of a block."""
    play_contexts(pin.spec, pin.state, pin.rng, pin.out, block, kinds, first, last, sums, pulls)


def _with_contexts(one: Replication) -> Run:
    spec, instance = one.spec, one.instance
    source = one.stream(Role.ENVIRONMENT)
    d, q = instance.n_features
    known = getattr(spec, "n_arms", instance.n_arms)
    if known < instance.n_arms:  # compiled code would read behind the end of an array
        raise InvalidParameterError(
            f"`n_arms` of the policy must be at least the {instance.n_arms} arms of the "
            f"environment; got {known}"
        )
    told = tells_categories(spec, instance)
    state = policy.init(spec, d, q)
    space = context_entry.buffers(instance.n_actions, d, q)
    pin, step = player(one, context_entry, advance_contextual, state, space)
    block = None
    kinds = np.zeros((CONTEXTS, instance.n_actions), dtype=np.int16)

    def draw(start: int) -> tuple[Any, ...]:
        nonlocal block
        block = instance.block(source, CONTEXTS, out=block)  # into the same arrays every time
        rounds = ContextBlock(*block[: len(ContextBlock._fields)])
        return rounds, block.category if told else kinds

    return _play_blocks(one, step, pin, draw, CONTEXTS)


def _without_looking(one: Replication) -> Run:
    """Play a policy that does not look at contexts, on the rounds that those that do are given."""
    spec, instance = one.spec, one.instance
    source, pin, step = _player_of_rounds(one)
    every_arm = np.arange(instance.n_arms)
    block = None

    def draw(start: int) -> tuple[Any, ...]:
        nonlocal block
        block = instance.block(source, CONTEXTS, out=block)
        if block.arms.shape[1] != every_arm.size or (block.arms != every_arm).any():
            raise InvalidParameterError(
                "`env` must offer every arm in every round, in order, to a policy without "
                f"context; got {shown(spec)} where actions come and go"
            )
        return block.reward, block.mean.max(axis=1, keepdims=True) - block.mean

    return _play_blocks(one, step, pin, draw, CONTEXTS)


# ------------------------------------------------------------------------------------------ shared


def player(
    one: Replication, pins: Any, function: Entry, state: Any, *space: Any
) -> tuple[Any, Callable[..., Any]]:
    """Return the decision maker and the function that plays it, compiled or interpreted."""
    return pinned(one, pins, function, state, one.stream(Role.POLICY), *space)


def pinned(
    one: Replication, pins: Any, function: Entry, state: Any, rng: np.random.Generator, *space: Any
) -> tuple[Any, Callable[..., Any]]:
    """Return the same for a random stream that may have been used before."""
    if one.compiled:
        return pins.pin(one.spec, state, rng, *space), function.for_spec(one.spec)
    return pins.loose_pin(one.spec, state, rng, *space), function.interpreted


def _play_blocks(
    one: Replication,
    step: Callable[..., Any],
    pin: Any,
    draw: Callable[[int], tuple[Any, ...]],
    size: int,
) -> Run:
    """Play up to every checkpoint, drawing `size` rounds at a time."""
    sums = np.zeros(2)
    pulls = np.zeros(one.instance.n_arms, dtype=np.int64)
    curves = np.empty((2, one.checkpoints.size))
    drawn: tuple[Any, ...] = ()
    t, used = 0, size
    for i, stop in enumerate(one.checkpoints):
        while t < stop:
            if used == size:
                drawn, used = draw(t), 0
            last = min(size, used + int(stop) - t)
            step(pin, *drawn, used, last, sums, pulls)
            t += last - used
            used = last
        curves[:, i] = sums
        one.on_checkpoint(1)
    return Run(curves[REGRET].copy(), curves[REWARD].copy(), pulls)


def give_true_sizes(spec: Any, state: Any, instance: Any, arms: Any = slice(None)) -> None:
    """Tell a policy that asks for it what only a simulation knows, about these arms."""
    if getattr(spec, "needs_true_sizes", False):
        if not hasattr(instance, "reward_sizes"):
            raise InvalidParameterError(
                f"`size`='true' needs an environment with a method `reward_sizes`; "
                f"got {shown(instance)}"
            )
        inner = spec
        while hasattr(inner, "spec"):
            inner = inner.spec
        kind = "subgaussian" if inner.tail.kind == 0 else "subexponential"
        set_true_sizes(state, instance.reward_sizes(kind)[arms])
