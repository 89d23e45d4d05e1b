"""Many states of one form in one: every array has a further index in front."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
from numba.core import cgutils, types
from numba.extending import lower_builtin, type_callable

from zib.core.state import claim


def stacked(state: Any, n: int, *, side_by_side: bool = False) -> Any:
    """Return `n` copies of a state of arrays and nested tuples of arrays, as one such state.

    With `side_by_side` the same entry of all of them lies side by side in memory, which is how a
    GPU reads fast.
    """
    if isinstance(state, np.ndarray):
        claim(n, *state.shape)
        out = np.zeros((n, *state.shape), state.dtype, order="F" if side_by_side else "C")
        if state.any():  # memory that is never written to is never taken
            out[:] = state
        return out
    return type(state)(*(stacked(part, n, side_by_side=side_by_side) for part in state))


def row_of(state: Any, k: int) -> Any:
    """Return the k-th of the states in `state`: views, not copies."""
    if isinstance(state, tuple):
        return type(state)(*(row_of(part, k) for part in state))
    return state[k]


# Compiled code cannot build a tuple of any form in Python, and a function that does not count
# references cannot return views. So the compiler is told what to write where `row_of` stands.


@type_callable(row_of)
def _type_row_of(context: Any) -> Any:
    def row_type(state: Any, k: Any) -> Any:
        if isinstance(state, types.Array):
            return context.resolve_function_type(operator.getitem, (state, k), {}).return_type
        return types.BaseTuple.from_types(
            [row_type(part, k) for part in state.types], getattr(state, "instance_class", None)
        )

    return row_type


@lower_builtin(row_of, types.BaseTuple, types.Integer)  # type: ignore[untyped-decorator]
def _lower_row_of(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    position = signature.args[1]

    def row(kind: Any, whole_kind: Any, whole: Any) -> Any:
        if isinstance(whole_kind, types.Array):
            view = kind(whole_kind, position)
            return context.get_function(operator.getitem, view)(builder, (whole, args[1]))
        parts = zip(kind.types, whole_kind.types, cgutils.unpack_tuple(builder, whole), strict=True)
        return context.make_tuple(builder, kind, [row(*part) for part in parts])

    return row(signature.return_type, signature.args[0], args[0])
