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
from zib.core.cache import cached_njit, numba_config

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
        self.fresh = numba.njit(nogil=True)(function)

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


def pin(spec: Any, state: Any, rng: np.random.Generator) -> Any:
    """Return the decision maker of (spec, state, rng) for compiled code."""
    return pinned(spec, state, rng, np.zeros(state.pulls.size))


def loose_pin(spec: Any, state: Any, rng: np.random.Generator) -> LoosePin:
    """Return the decision maker of (spec, state, rng) for the interpreter."""
    return LoosePin(spec, state, rng, np.zeros(state.pulls.size))


@Entry
def select(pin):  # type: ignore[no-untyped-def]
    return kernel.choose(pin.spec, pin.state, pin.rng, pin.out)


@Entry
def update(pin, arm, reward):  # type: ignore[no-untyped-def]
    kernel.update(pin.spec, pin.state, arm, reward)


@kernel.jitable
def _update_block(spec, state, arms, rewards):  # type: ignore[no-untyped-def]
    for i in range(arms.size):
        kernel.update(spec, state, arms[i], rewards[i])


@Entry
def update_block(pin, arms, rewards):  # type: ignore[no-untyped-def]
    _update_block(pin.spec, pin.state, arms, rewards)  # type: ignore[no-untyped-call]


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
def _count_choices(spec, state, rng, out, draws, counts):  # type: ignore[no-untyped-def]
    for _ in range(draws):
        counts[kernel.choose(spec, state, rng, out)] += 1


@Entry
def count_choices(pin, draws, counts):  # type: ignore[no-untyped-def]
    _count_choices(  # type: ignore[no-untyped-call]
        pin.spec, pin.state, pin.rng, pin.out, draws, counts
    )
