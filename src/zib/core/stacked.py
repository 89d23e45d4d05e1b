"""Many states of one form in one: every array has a further index in front."""

from __future__ import annotations

import operator
from collections.abc import Callable
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


def strided_row_of(state: Any, k: int) -> Any:
    """Return the same; compiled code takes no array for contiguous, whatever its shape.

    For states whose rows lie side by side: those of length 1 and 0 would be of other types than the
    rest, and a function that returns one or the other would not compile.
    """
    return row_of(state, k)


# Compiled code cannot build a tuple of any form in Python, and a function that does not count
# references cannot return views. So the compiler is told what to write where `row_of` stands.


def _view_type(context: Any, state: Any, k: Any) -> Any:
    return context.resolve_function_type(operator.getitem, (state, k), {}).return_type


def _typed(strided: bool) -> Callable[[Any], Any]:
    def type_row_of(context: Any) -> Any:
        def row_type(state: Any, k: Any) -> Any:
            if isinstance(state, types.Array):
                view = _view_type(context, state, k)
                return view.copy(layout="A") if strided and isinstance(view, types.Array) else view
            return types.BaseTuple.from_types(
                [row_type(part, k) for part in state.types], getattr(state, "instance_class", None)
            )

        return row_type

    return type_row_of


def _lower_row_of(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    position = signature.args[1]

    def row(kind: Any, whole_kind: Any, whole: Any) -> Any:
        if isinstance(whole_kind, types.Array):
            view = _view_type(context.typing_context, whole_kind, position)
            getter = context.get_function(operator.getitem, view(whole_kind, position))
            return getter(builder, (whole, args[1]))
        parts = zip(kind.types, whole_kind.types, cgutils.unpack_tuple(builder, whole), strict=True)
        return context.make_tuple(builder, kind, [row(*part) for part in parts])

    return row(signature.return_type, signature.args[0], args[0])


for _function, _strided in ((row_of, False), (strided_row_of, True)):
    type_callable(_function)(_typed(_strided))
    lower_builtin(_function, types.BaseTuple, types.Integer)(_lower_row_of)
