"""Compiled entry points that are cheap to call.

Handing a tuple of arrays and a Generator to compiled code costs about 15 µs per call, nearly all of
it unpacking. A `Pin` is unpacked once and then passed as one reference, at well under 1 µs. The
same functions run interpreted on a `LoosePin`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import numba
import numpy as np
from numba import types
from numba.experimental import structref

from zib.core import kernel
from zib.core.cache import OPTIONS, cached_njit, numba_config
from zib.core.exact import ExactSums, add_reward

_INTERPRETING: ContextVar[bool] = ContextVar("interpreting", default=False)


@contextmanager
def interpreted() -> Iterator[None]:
    """Run what is pinned and called in this context without compiling it, for tests."""
    token = _INTERPRETING.set(True)
    try:
        yield
    finally:
        _INTERPRETING.reset(token)


class LoosePin(NamedTuple):
    """What a decision needs, as plain Python."""

    spec: Any
    state: Any
    rng: Any
    out: Any


@structref.register
class _PinType(types.StructRef):
    def preprocess_fields(self, fields: Any) -> Any:
        return tuple((name, types.unliteral(kind)) for name, kind in fields)


class Pin(structref.StructRefProxy):
    """What a decision needs, unpacked for compiled code."""

    def __new__(cls, spec: Any, state: Any, rng: Any, out: Any) -> Any:
        """Use `pin` instead."""
        return structref.StructRefProxy.__new__(cls, spec, state, rng, out)


structref.define_boxing(_PinType, Pin)
structref.define_constructor(Pin, _PinType, ["spec", "state", "rng", "out"])


def is_compiled(spec: Any) -> bool:
    """Whether what is pinned now for this spec runs compiled."""
    return not (numba_config.DISABLE_JIT or _INTERPRETING.get() or kernel.is_interpreted(spec))


class Entry:
    """A function compiled in two ways: kept on disk for our specs, in memory for foreign ones."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.interpreted = function
        self.cached = cached_njit(function)
        self.fresh = numba.njit(**OPTIONS)(function)

    def for_spec(self, spec: Any) -> Any:
        """Return the function to call for this spec, compiled unless the spec forbids it."""
        if not is_compiled(spec):
            return self.interpreted
        return self.cached if kernel.is_native(spec) else self.fresh


def _make(spec, state, rng, out):  # type: ignore[no-untyped-def]
    return Pin(spec, state, rng, out)


_make_pin = Entry(_make)


def pinned(spec: Any, state: Any, rng: Any, out: Any) -> Any:
    """Return a pin for compiled code, or a loose one where it is interpreted.

    It refers to the same arrays and the same random stream; the caller keeps those alive.
    """
    return (_make_pin.for_spec(spec) if is_compiled(spec) else LoosePin)(spec, state, rng, out)


class Room(NamedTuple):
    """Where a decision maker writes, besides its state."""

    scores: Any  # one per arm
    sums: ExactSums  # of rewards that can be revised; of no arms where none can


NO_SUMS = ExactSums.new({"arms": 0})


def pin(spec: Any, state: Any, rng: np.random.Generator, sums: ExactSums = NO_SUMS) -> Any:
    """Return the decision maker of (spec, state, rng) for compiled code."""
    return pinned(spec, state, rng, Room(np.zeros(state.pulls.size), sums))


def loose_pin(spec: Any, state: Any, rng: np.random.Generator) -> LoosePin:
    """Return the decision maker of (spec, state, rng) for the interpreter."""
    return LoosePin(spec, state, rng, Room(np.zeros(state.pulls.size), NO_SUMS))


@Entry
def select(pin):  # type: ignore[no-untyped-def]
    return kernel.choose(pin.spec, pin.state, pin.rng, pin.out.scores)


@kernel.jitable
def _learn(spec, state, sums, arm, reward):  # type: ignore[no-untyped-def]
    kernel.update(spec, state, arm, reward)
    if reward != 0.0 and sums.total.size > 0:
        add_reward(sums, arm, reward, 1.0)


@Entry
def update(pin, arm, reward):  # type: ignore[no-untyped-def]
    if arm < 0 or arm >= pin.state.pulls.size:
        raise IndexError("the arm is not one of those that were pinned")
    _learn(pin.spec, pin.state, pin.out.sums, arm, reward)  # type: ignore[no-untyped-call]


@Entry
def update_block(pin, arms, rewards):  # type: ignore[no-untyped-def]
    for i in range(arms.size):
        if arms[i] < 0 or arms[i] >= pin.state.pulls.size:
            raise IndexError("the arm is not one of those that were pinned")
    for i in range(arms.size):
        _learn(pin.spec, pin.state, pin.out.sums, arms[i], rewards[i])  # type: ignore[no-untyped-call]


@kernel.jitable
def _learn_told(spec, state, sums, arm, reward, category):  # type: ignore[no-untyped-def]
    kernel.learn(spec, state, arm, reward, category)
    if reward != 0.0 and sums.total.size > 0:
        add_reward(sums, arm, reward, 1.0)


@Entry
def learn(pin, arm, reward, category):  # type: ignore[no-untyped-def]
    """Update a policy that is told the category of a reward."""
    if arm < 0 or arm >= pin.state.pulls.size:
        raise IndexError("the arm is not one of those that were pinned")
    sums = pin.out.sums
    _learn_told(pin.spec, pin.state, sums, arm, reward, category)  # type: ignore[no-untyped-call]


@Entry
def learn_block(pin, arms, rewards, categories):  # type: ignore[no-untyped-def]
    for i in range(arms.size):
        if arms[i] < 0 or arms[i] >= pin.state.pulls.size:
            raise IndexError("the arm is not one of those that were pinned")
    for i in range(arms.size):
        _learn_told(  # type: ignore[no-untyped-call]
            pin.spec, pin.state, pin.out.sums, arms[i], rewards[i], categories[i]
        )


@Entry
def count_as_usual(pin, arm, spread):  # type: ignore[no-untyped-def]
    """Let a view of a state count a decision of a batch whose reward is not known yet."""
    kernel.count_as_usual(pin.spec, pin.state, arm, spread)


@Entry
def refresh(pin, arm):  # type: ignore[no-untyped-def]
    kernel.refresh(pin.spec, pin.state, arm)


@Entry
def refresh_all(pin):  # type: ignore[no-untyped-def]
    kernel.refresh_all(pin.spec, pin.state)


@Entry
def scores(pin, out):  # type: ignore[no-untyped-def]
    kernel.indices(pin.spec, pin.state, pin.rng, out)


@kernel.jitable
def _count_choices(spec, state, rng, out, rows, among, draws, counts):  # type: ignore[no-untyped-def]
    for _ in range(draws):
        kernel.indices(spec, state, rng, out)
        for i in range(rows.size):
            among[i] = out[rows[i]]
        counts[kernel.argmax_random(among, rng)] += 1


@Entry
def count_choices(pin, rows, among, draws, counts):  # type: ignore[no-untyped-def]
    """Add up how often each of the arms `rows` is chosen when only they may be."""
    for i in range(rows.size):
        if rows[i] < 0 or rows[i] >= pin.state.pulls.size:
            raise IndexError("the arm is not one of those that were pinned")
    _count_choices(  # type: ignore[no-untyped-call]
        pin.spec, pin.state, pin.rng, pin.out.scores, rows, among, draws, counts
    )
