"""One thread at a time, and nothing half learned.

Our own kernels are compiled so that no arithmetic raises, and what they are given is checked
before: they learn all of a reward. Kernels of others may raise in the middle, and so may any kernel
that is run by the interpreter, where a division by zero is an error. `Careful` undoes those.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from zib.core import kernel
from zib.core.entry import _make_pin


class InUseError(RuntimeError):
    """A bandit that is used by two threads at the same time."""

    def __init__(self) -> None:
        super().__init__(
            "a bandit is used by one thread at a time; give each thread its own or put a lock "
            "around it"
        )


def may_raise(spec: Any) -> bool:
    """Whether a kernel of this policy may raise while it learns."""
    return not kernel.is_native(spec) or _make_pin.for_spec(spec) is not _make_pin.cached


def arrays_in(state: Any) -> Iterator[np.ndarray[Any, Any]]:
    """Yield the arrays of a state of nested tuples; other objects are left out."""
    if isinstance(state, np.ndarray):
        yield state
    elif isinstance(state, tuple):
        for part in state:
            yield from arrays_in(part)


class Careful:
    """Calls functions that learn; arrays are as before if one of them raises.

    A copy is made now and then, and the calls since then are kept: learning is a function of state
    and reward alone, so the state before a call that fails is the copy with those calls repeated.

    Parameters
    ----------
    arrays
        What the functions change.
    repeatable
        Whether calls can be repeated. If not, a copy is made before each of them.
    """

    def __init__(self, arrays: Iterator[np.ndarray[Any, Any]], *, repeatable: bool = True) -> None:
        self._arrays = list(arrays)
        # a copy costs about as much as a kilobyte of it costs to learn one reward
        size = sum(array.nbytes for array in self._arrays)
        self._most = max(256, size // 1024) if repeatable else 0
        self._calls: list[tuple[Callable[..., Any], tuple[Any, ...]]] | None = None
        self._before: list[np.ndarray[Any, Any]] = []

    def __call__(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function; raise what it raises, with the arrays put back."""
        if self._calls is None or len(self._calls) >= self._most:
            self._before = [array.copy() for array in self._arrays]
            self._calls = []
        try:
            result = function(*arguments)
        except BaseException:
            for array, before in zip(self._arrays, self._before, strict=True):
                array[...] = before
            for repeated, with_these in self._calls:
                repeated(*with_these)
            raise
        if self._most:
            self._calls.append((function, arguments))
        return result


def undrawn(rng: np.random.Generator, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function, which draws; if it raises, the stream is put back."""

    @functools.wraps(function)
    def drawing(*arguments: Any) -> Any:
        before = rng.bit_generator.state
        try:
            return function(*arguments)
        except BaseException:
            rng.bit_generator.state = before
            raise

    return drawing
