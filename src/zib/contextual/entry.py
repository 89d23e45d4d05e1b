"""Compiled entry points of contextual policies, cheap to call.

As in `zib.core.entry`, spec, state, stream and scratch space are unpacked once and passed as one
reference. The caller's features have one row per action; kernels want one column per action, so
they are turned into scratch space here, and checked on the way.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba.extending import overload

from zib.contextual import policy
from zib.contextual.links import inverse, value
from zib.contextual.policy import choose, choose_again
from zib.contextual.tally import NO_TALLY, Tally, count
from zib.core.entry import Entry, LoosePin, pinned
from zib.core.kernel import CALLED, borrowing

LARGEST_FEATURE = 1e50  # squares and their sums stay finite


class Buffers(NamedTuple):
    """Scratch space of one decision maker, for rounds of up to `out.size` actions."""

    arms: Any  # (capacity,) row numbers: the arms of actions that are given no others
    z: Any  # (d, capacity) features of the magnitude, actions in columns
    w: Any  # (q, capacity) features of the occurrence
    work: Any  # scratch of the kernels
    out: Any  # (capacity,) scores
    z_row: Any  # (d,) features of one action
    w_row: Any  # (q,)
    tally: Tally  # where rewards are counted; of no arms where they are not


def buffers(
    n_actions: int, n_magnitude: int, n_occurrence: int, tally: Tally = NO_TALLY
) -> Buffers:
    """Return scratch space for rounds of up to `n_actions` actions, or a few more."""
    # an odd number of cache lines: columns of a row length that is a power of two would all
    # compete for the same few places in the processor's cache
    capacity = 8 * ((n_actions + 7) // 8 | 1)
    return Buffers(
        np.arange(capacity),
        np.zeros((n_magnitude, capacity)),
        np.zeros((n_occurrence, capacity)),
        policy.scratch(capacity, n_magnitude, n_occurrence),
        np.zeros(capacity),
        np.zeros(n_magnitude),
        np.zeros(n_occurrence),
        tally,
    )


def pin(spec: Any, state: Any, rng: np.random.Generator, space: Buffers) -> Any:
    """Return the decision maker of (spec, state, rng) for compiled code."""
    return pinned(spec, state, rng, space)


def loose_pin(spec: Any, state: Any, rng: np.random.Generator, space: Buffers) -> LoosePin:
    """Return the decision maker of (spec, state, rng) for the interpreter."""
    return LoosePin(spec, state, rng, space)


# --------------------------------------------------------------------------------------- features


def _turn(rows: Any, columns: Any) -> bool:
    """Copy rows into columns; False if a value is not a number of allowed size."""
    columns[:, : len(rows)] = rows.T
    return bool((np.abs(rows) <= LARGEST_FEATURE).all())


@borrowing
def _turn_by_loops(rows: Any, columns: Any) -> bool:
    good = True
    for i in range(rows.shape[1]):
        for k in range(rows.shape[0]):
            feature = rows[k, i]
            columns[i, k] = feature
            good &= abs(feature) <= LARGEST_FEATURE  # false for NaN
    return good


@overload(_turn, strict=False, jit_options=CALLED)
def _compiled_turn(rows, columns):  # type: ignore[no-untyped-def]
    return _turn_by_loops


@borrowing
def _is_usable(row: Any) -> bool:
    good = True
    for i in range(row.size):
        good &= abs(row[i]) <= LARGEST_FEATURE
    return good


# Entry points call the kernels directly: every function in between is one more time that the
# compiler optimises all of it again.


@Entry
def load(pin: Any, z_rows: Any, w_rows: Any) -> bool:
    """Turn features into the scratch space, for the entry points that read them there."""
    good = _turn(z_rows, pin.out.z)
    return _turn(w_rows, pin.out.w) and good


# --------------------------------------------------------------------------------------- deciding


@Entry
def select_one(pin: Any, rows: Any) -> int:
    """Return the row to play, where one matrix serves both parts; -1 if a feature is bad."""
    space = pin.out
    if not _turn(rows, space.z):
        return -1
    out = space.out[: rows.shape[0]]
    return choose(pin.spec, pin.state, space.arms, space.z, space.z, pin.rng, space.work, out)


@Entry
def select(pin: Any, z_rows: Any, w_rows: Any) -> int:
    """Return the row to play; -1 if a feature is bad."""
    space = pin.out
    if not (_turn(z_rows, space.z) and _turn(w_rows, space.w)):
        return -1
    out = space.out[: z_rows.shape[0]]
    return choose(pin.spec, pin.state, space.arms, space.z, space.w, pin.rng, space.work, out)


@Entry
def select_arms(pin: Any, arms: Any, z_rows: Any, w_rows: Any) -> int:
    """Return the row to play among actions that belong to `arms`; -1 if a feature is bad."""
    space = pin.out
    if not (_turn(z_rows, space.z) and _turn(w_rows, space.w)):
        return -1
    out = space.out[: z_rows.shape[0]]
    return choose(pin.spec, pin.state, arms, space.z, space.w, pin.rng, space.work, out)


@borrowing
def _repeat(row: Any, columns: Any, n: int) -> None:
    for i in range(row.size):
        for k in range(n):
            columns[i, k] = row[i]


@Entry
def select_users(pin: Any, arms: Any, z_rows: Any, w_rows: Any, chosen: Any) -> bool:
    """Write which of `arms` is played for every row, whose features serve all of them.

    False, and nothing drawn, if a feature is bad.
    """
    for row in range(chosen.size):
        if not (_is_usable(z_rows[row]) and _is_usable(w_rows[row])):
            return False
    spec, state, rng, space = pin.spec, pin.state, pin.rng, pin.out
    out = space.out[: arms.size]
    for row in range(chosen.size):
        _repeat(z_rows[row], space.z, arms.size)
        _repeat(w_rows[row], space.w, arms.size)
        chosen[row] = choose(spec, state, arms, space.z, space.w, rng, space.work, out)
    return True


@Entry
def scores(pin: Any, arms: Any, out: Any) -> None:
    """Write the scores of the actions that were loaded."""
    space = pin.out
    policy.scores(pin.spec, pin.state, arms, space.z, space.w, pin.rng, space.work, out)


@Entry
def moments(pin: Any, arms: Any, out: Any) -> None:
    """Write the moments of the actions that were loaded, shape (5, number of actions)."""
    space = pin.out
    policy.moments(pin.spec, pin.state, arms, space.z, space.w, space.work, out)


@Entry
def count_choices(pin: Any, arms: Any, draws: int, counts: Any) -> None:
    """Add up how often each of the actions that were loaded is chosen in `draws` decisions."""
    spec, state, rng, space = pin.spec, pin.state, pin.rng, pin.out
    out = space.out[: counts.size]
    counts[choose(spec, state, arms, space.z, space.w, rng, space.work, out)] += 1
    for _ in range(draws - 1):
        counts[choose_again(spec, state, arms, space.z, space.w, rng, space.work, out)] += 1


@Entry
def link_values(link: Any, predictors: Any, out: Any) -> None:
    """Write the mean that belongs to every linear predictor."""
    for i in range(out.size):
        out[i] = value(link, predictors[i])


@Entry
def link_inverses(link: Any, means: Any, out: Any) -> None:
    """Write the linear predictor that belongs to every mean."""
    for i in range(out.size):
        out[i] = inverse(link, means[i])


# --------------------------------------------------------------------------------------- learning


@Entry
def update(pin: Any, arm: int, z_rows: Any, w_rows: Any, row: int, reward: float) -> bool:
    """Learn the reward of one row; False, and nothing learned, if a feature is bad."""
    z, w = z_rows[row], w_rows[row]
    if not (_is_usable(z) and _is_usable(w)):
        return False
    policy.update(pin.spec, pin.state, arm, z, w, reward)
    count(pin.out.tally, arm, reward, 1.0)
    return True


@Entry
def learn(
    pin: Any, arm: int, z_rows: Any, w_rows: Any, row: int, reward: float, category: int
) -> bool:
    """Do the same for a policy that is told the category of a reward."""
    z, w = z_rows[row], w_rows[row]
    if not (_is_usable(z) and _is_usable(w)):
        return False
    policy.learn(pin.spec, pin.state, arm, z, w, reward, category)
    count(pin.out.tally, arm, reward, 1.0)
    return True
