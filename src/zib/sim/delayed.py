"""The loop of environments whose rewards come late (`zib.env.Delayed`).

There is one decision per round, so a decision is its round. Rewards wait in lists, one for each
round of the window, until they are due. What the policy makes of decisions that are pending is
`zib.mab.Pending`: the ways differ in when they learn what.

Fractional pulls need the ages of all pending decisions. These are counted by arm and by *block* of
`every` rounds in which they were made; pulls are computed anew at the end of each block, from one
pass over the counts. At that moment all decisions of a block have lived through the same number of
blocks, so the delay of a reward is counted in whole blocks, too, as the difference of two blocks:
no bin is ever half over. The distribution F of these lags is what is known or estimated.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from zib.core import entry, kernel
from zib.core.entry import Entry
from zib.core.rng import Role
from zib.core.state import rearranged
from zib.mab.pending import AT_ONCE, ESTIMATED, KNOWN, NO_DELAY, WAIT, ZERO, Pending
from zib.sim.loop import (
    FURTHER,
    PENDING,
    REACHED,
    REGRET,
    REWARD,
    ROUND,
    STRIDE,
    ArmRewards,
    Replication,
    Run,
    give_true_sizes,
    pinned,
)
from zib.stats.unreported import assume_delays, chance_of, reverse_kaplan_meier, weight_of

BLOCKS = 100  # of a window, unless the player says otherwise
STEPS = 3  # towards the chance that weights and pulls agree on; from where the last block ended
# What the F of all arms counts for in that of one arm. More than that costs more regret where the
# best arm pays late than it saves where arms are alike.
SHARED_REWARDS = 3.0
LEAST_PULLS = 0.01  # below, an arm counts as untried


class Book(NamedTuple):
    """What is pending, and what was learned about delays.

    Rounds and blocks are kept in rings: at their number modulo the length.
    """

    # by the round of the decision
    arm: NDArray[np.int64]
    reward: NDArray[np.float64]
    kind: NDArray[np.int16]
    later: NDArray[np.int64]  # the decision whose reward comes in the same round, −1: no more
    due: NDArray[np.int64]  # by round: the first decision whose reward comes then, −1: none
    # by arm and block of the decision
    pending: NDArray[np.float64]
    weight: NDArray[np.float64]  # what a pending decision counts
    came: NDArray[np.float64]  # rewards that have come
    # by arm
    paid: NDArray[np.float64]
    zeros: NDArray[np.float64]
    chance: NDArray[np.float64]
    lags: NDArray[np.float64]  # by arm and lag: rewards that took so many blocks
    fraction: NDArray[np.float64]  # by arm and age in blocks: F
    # by lag, to work with
    events: NDArray[np.float64]
    assumed: NDArray[np.float64]
    complete: NDArray[np.float64]
    settings: NDArray[np.int64]  # the window, and the rounds of a block


def new_book(spec: Pending, instance: Any, order: NDArray[np.int64]) -> Book:
    """Return the empty book of the arms in this order."""
    window = int(instance.window)
    every = max(window // BLOCKS, 1) if np.isnan(spec.every) else min(int(spec.every), window)
    needs_blocks = spec.how in (KNOWN, ESTIMATED)
    lags = (window + 2 * every - 2) // every if needs_blocks else 1
    rounds = window + 1 if spec.how != NO_DELAY else 1
    n_arms = order.size
    fraction = np.empty((n_arms, lags + 1))
    fraction[:, 0] = 0.0
    if needs_blocks:  # at the end of a block: the mean over the rounds of a block of that age
        ages = every * np.arange(1, lags + 1)[:, None] - np.arange(every)
        for k, arm in enumerate(order):
            fraction[k, 1:] = instance.fraction(int(arm), ages).mean(axis=1)
    if spec.how == ESTIMATED:
        fraction[:] = np.linspace(0.0, 1.0, lags + 1)
    return Book(
        arm=np.zeros(rounds, dtype=np.int64),
        reward=np.zeros(rounds),
        kind=np.zeros(rounds, dtype=np.int16),
        later=np.full(rounds, -1, dtype=np.int64),
        due=np.full(rounds, -1, dtype=np.int64),
        pending=np.zeros((n_arms, lags + 1)),
        weight=np.zeros((n_arms, lags + 1)),
        came=np.zeros((n_arms, lags + 1)),
        paid=np.zeros(n_arms),
        zeros=np.zeros(n_arms),
        chance=np.zeros(n_arms),
        lags=np.zeros((n_arms, lags)),
        fraction=fraction,
        events=np.zeros(lags),
        assumed=np.zeros(lags),
        complete=np.zeros(lags + 1),
        settings=np.array([window, every], dtype=np.int64),
    )


# -------------------------------------------------------------------------------- fractional pulls


@kernel.jitable
def _fit_row(
    book: Any, first: int, last: int, blocks: int, given: bool, prior: float, out: Any
) -> None:
    """Estimate F from the delays of arms first, …, last − 1; a prior may be `given` in the book."""
    lags = book.events.size
    ring = book.pending.shape[1]
    total = 0.0
    for j in range(lags):
        book.events[j] = 0.0
        book.complete[j] = 0.0
        for k in range(first, last):
            book.events[j] += book.lags[k, j]
        total += book.events[j]
    for block in range(max(blocks - lags + 1, 0), blocks):
        for k in range(first, last):
            book.complete[blocks - block] += book.came[k, block % ring]
            total -= book.came[k, block % ring]
    book.complete[lags] = total
    if not given:
        assume_delays(book.events, book.complete, prior, book.assumed)
    reverse_kaplan_meier(book.events, book.complete, book.assumed, out)


@kernel.jitable
def _fit_delays(spec: Any, book: Any, blocks: int) -> None:
    n_arms = book.paid.size
    lags = book.events.size
    _fit_row(book, 0, n_arms, blocks, False, spec.prior_rewards, book.fraction[0])
    if spec.per_arm:
        for j in range(lags):
            step = book.fraction[0, j + 1] - book.fraction[0, j]
            book.assumed[j] = SHARED_REWARDS * step
        for k in range(n_arms):
            _fit_row(book, k, k + 1, blocks, True, 0.0, book.fraction[k])
    else:
        for k in range(1, n_arms):
            for j in range(lags + 1):
                book.fraction[k, j] = book.fraction[0, j]


@kernel.jitable
def _weigh_arm(book: Any, arm: int, blocks: int) -> float:
    """Return the pulls of an arm, with what is pending as fractions."""
    ring = book.pending.shape[1]
    chance = book.chance[arm]
    zeros = book.zeros[arm]
    for _ in range(STEPS):
        zeros = book.zeros[arm]
        for block in range(max(blocks - ring + 2, 0), blocks):
            slot = block % ring
            weight = weight_of(book.fraction[arm, blocks - block], chance)
            book.weight[arm, slot] = weight
            zeros += weight * book.pending[arm, slot]
        chance = chance_of(1.0, 1.0, book.paid[arm], zeros)
    book.chance[arm] = chance
    return float(book.paid[arm] + zeros)


@kernel.borrowing
def _weigh_anew(spec: Any, state: Any, book: Any, blocks: int) -> None:
    """Compute pulls from what is pending, at the end of as many blocks."""
    ring = book.pending.shape[1]
    if blocks >= ring - 1:  # nothing can come any more from the oldest block
        slot = (blocks - ring + 1) % ring
        for k in range(book.paid.size):
            book.zeros[k] += book.pending[k, slot]
            book.pending[k, slot] = 0.0
            book.weight[k, slot] = 0.0
            book.came[k, slot] = 0.0
    if spec.how == ESTIMATED:
        _fit_delays(spec, book, blocks)
    learned = 0.0
    for k in range(state.pulls.size):
        pulls = _weigh_arm(book, k, blocks)
        state.pulls[k] = pulls if pulls >= LEAST_PULLS else 0.0
        learned += state.pulls[k]
    state.clock[0] = max(learned, 1.0)
    _refresh(spec, state)


@kernel.borrowing
def _refresh(spec: Any, state: Any) -> None:  # compiled once, called from two places
    kernel.refresh_all(spec.spec, state)


# ------------------------------------------------------------------------------------------ rounds


@kernel.borrowing
def _learn(spec: Any, state: Any, arm: int, reward: float, kind: int, counted: float) -> None:
    """Learn a reward in place of a zero that counts as so many pulls already."""
    state.pulls[arm] = max(state.pulls[arm] - counted, 0.0)
    state.clock[0] = max(state.clock[0] - counted, 0.0)
    kernel.learn(spec.spec, state, arm, reward, kind)
    if spec.how in (KNOWN, ESTIMATED):
        _refresh(spec, state)  # policies learn in whole pulls, and these are fractions


@kernel.jitable
def _take(spec: Any, state: Any, book: Any, t: int, made: int) -> None:
    """Learn the reward of a decision that comes in round t."""
    arm = book.arm[made % book.arm.size]
    counted = 1.0 if spec.how == ZERO else 0.0
    if spec.how in (KNOWN, ESTIMATED):
        every = book.settings[1]
        slot = (made // every) % book.pending.shape[1]
        counted = book.weight[arm, slot]
        book.pending[arm, slot] -= 1.0
        book.came[arm, slot] += 1.0
        book.paid[arm] += 1.0
        book.lags[arm, (t - 1) // every - made // every] += 1.0
    slot = made % book.arm.size
    _learn(spec, state, arm, book.reward[slot], book.kind[slot], counted)


@kernel.jitable
def _settle(spec: Any, state: Any, book: Any, t: int) -> None:
    """Learn what is known before the decision of round t."""
    window, every = book.settings[0], book.settings[1]
    how = spec.how
    if how == NO_DELAY:
        return
    ring = book.arm.size
    made = book.due[t % ring]
    book.due[t % ring] = -1
    while made >= 0:
        _take(spec, state, book, t, made)
        made = book.later[made % ring]
    if t >= window and how in (WAIT, AT_ONCE):
        slot = (t - window) % ring
        reward, kind = book.reward[slot], book.kind[slot]
        if how == WAIT or (reward == 0.0 and kind == 0):
            _learn(spec, state, book.arm[slot], reward, kind, 0.0)
    if t > 0 and t % every == 0 and how in (KNOWN, ESTIMATED):
        _weigh_anew(spec, state, book, t // every)


@kernel.jitable
def _enter(
    spec: Any, state: Any, book: Any, t: int, arm: int, reward: float, kind: int, delay: int
) -> None:
    """Enter the decision of round t, whose reward comes so many rounds later."""
    how = spec.how
    if how == NO_DELAY:
        _learn(spec, state, arm, reward, kind, 0.0)
        return
    ring = book.arm.size
    slot = t % ring
    book.arm[slot] = arm
    book.reward[slot] = reward
    book.kind[slot] = kind
    if how != WAIT and (reward != 0.0 or kind != 0):
        book.later[slot] = book.due[(t + delay) % ring]
        book.due[(t + delay) % ring] = t
    if how == ZERO:
        _learn(spec, state, arm, 0.0, 0, 0.0)
    elif how in (KNOWN, ESTIMATED):
        book.pending[arm, (t // book.settings[1]) % book.pending.shape[1]] += 1.0


@kernel.jitable
def _play(  # type: ignore[no-untyped-def]
    spec, state, rng, out, book, drawn, delays, gaps, until, clock, sums, rounds, curves, last
):
    t = clock[ROUND]
    arm = clock[PENDING]
    at = clock[REACHED]
    while at < last:
        stop = min(rounds[at], until)
        while t < stop:
            if arm < 0:
                _settle(spec, state, book, t)
                arm = kernel.choose(spec, state, rng, out)
            j = drawn.used[arm]
            if j == drawn.filled[arm]:
                break
            drawn.used[arm] = j + 1
            reward = drawn.reward[arm, j]
            _enter(spec, state, book, t, arm, reward, drawn.kind[arm, j], delays[arm, j])
            sums[REGRET] += gaps[arm]
            sums[REWARD] += reward
            arm = -1
            t += 1
        if t < rounds[at]:
            break
        curves[REGRET, at] = sums[REGRET]
        curves[REWARD, at] = sums[REWARD]
        at += 1
    clock[ROUND] = t
    clock[PENDING] = arm
    clock[REACHED] = at
    return arm


@Entry
def advance(pin, book, drawn, delays, gaps, until, clock, sums, rounds, curves, last):  # type: ignore[no-untyped-def]
    """Play up to checkpoint number `last` or to round `until`.

    Return the arm whose rewards are used up, or -1.
    """
    return _play(  # type: ignore[no-untyped-call]
        pin.spec,
        pin.state,
        pin.rng,
        pin.out.scores,
        book,
        drawn,
        delays,
        gaps,
        until,
        clock,
        sums,
        rounds,
        curves,
        last,
    )


def by_delay(one: Replication) -> Run:
    """Play a replication; arms that come later are added to the state when they come."""
    if not isinstance(one.spec, Pending):
        one = one._replace(spec=Pending(one.spec, how="wait", every=None))
    spec, instance = one.spec, one.instance
    first = instance.first_rounds
    order = np.argsort(first, kind="stable")  # arms are rows in the order in which they come
    comes = [*np.unique(first)[1:].tolist(), int(one.checkpoints[-1])]
    means = np.asarray(instance.arm_means, dtype=np.float64)[order]
    rewards = LateRewards(one, order)
    book = new_book(spec, instance, order)
    rng = one.stream(Role.POLICY)
    clock = np.array([0, -1, 0], dtype=np.int64)
    sums = np.zeros(2)
    rounds = np.array(one.checkpoints, dtype=np.int64)
    curves = np.empty((2, rounds.size))
    reached = 0
    state = None
    for until in comes:
        known = order[: int(np.sum(first <= clock[ROUND]))]
        state = _with_arms(spec, state, known.size)
        give_true_sizes(spec, state, instance, known)
        pin, step = pinned(one, entry, advance, state, rng)
        gaps = means[: known.size].max() - means
        while reached < rounds.size and clock[ROUND] < until:
            last = min(rounds.size, 1 + int(np.searchsorted(rounds, clock[ROUND] + STRIDE)))
            inputs = (book, rewards.drawn, rewards.delays, gaps, until)
            arm = step(pin, *inputs, clock, sums, rounds, curves, last)
            if arm >= 0:
                rewards.refill(arm)
            more, reached = int(clock[REACHED]) - reached, int(clock[REACHED])
            if more:
                one.on_checkpoint(more)
    pulls = np.empty(order.size, dtype=np.int64)
    pulls[order] = rewards.pulls
    return Run(curves[REGRET].copy(), curves[REWARD] + rewards.inflated * rounds, pulls)


def _with_arms(spec: Any, state: Any, n_arms: int) -> Any:
    """Return the state with as many arms, the last of them untried."""
    fresh = kernel.init(spec, n_arms)
    if state is None:
        return fresh
    sources = np.where(np.arange(n_arms) < state.pulls.size, np.arange(n_arms), -1)
    state = rearranged(state, fresh, sources.tolist())
    kernel.refresh_all(spec, state)
    return state


class LateRewards(ArmRewards):
    """The rewards of each arm, and after how many rounds they come."""

    def __init__(self, one: Replication, order: NDArray[np.int64]) -> None:
        super().__init__(one, order)
        self.delays = np.zeros(self.drawn.reward.shape, dtype=np.int64)
        self._waits = [one.stream(Role.DELAY, int(arm)) for arm in order]

    def refill(self, row: int) -> int:
        """Draw the next block of an arm; return how many it had before it was cut."""
        whole = super().refill(row)
        size = int(self.drawn.filled[row])
        instance: Any = self._one.instance
        waits, factor = instance.sample_delays(int(self._order[row]), self._waits[row], whole)
        self.delays[row, :size] = np.maximum(np.ceil(waits[:size]), 1.0)
        if instance.trend != 0.0:
            table = self.drawn.reward[row, :size]
            paid = table != 0.0
            table[paid] = (table[paid] + self.inflated) * factor[:size][paid] - self.inflated
        return whole


FURTHER["delayed"] = by_delay
