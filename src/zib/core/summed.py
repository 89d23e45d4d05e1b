"""The further sums that a policy declares, one per arm, reached by kernels that do not know it.

A wrapper that forgets rewards must forget them in every sum over rewards: in the statistics that
every policy keeps, and in those that the policy inside declares with ``per_arm(is_sum=True)``.
Which these are follows from the type of its part, so compiled code contains just the loads and
stores.

A *row* is a row of a two-dimensional array, from a place on: one number for each of the sums, in
the order of their declaration.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba.extending import overload

from zib.core.registry import INLINED, jitable
from zib.core.state import Array, Part


def sums_of_arms(kind: type[Part]) -> tuple[int, ...]:
    """Return the places, among the arrays of a part, of the sums that are one number per arm."""
    return tuple(
        place
        for place, array in enumerate(kind.declared.values())
        if isinstance(array, Array) and array.is_sum and array.shape == ("arms",)
    )


def are_per_arm(kind: type[Part]) -> bool:
    """Whether all sums of a part are one number per arm."""
    return len(sums_of_arms(kind)) == len(kind.sum_names())


def _is_count(kind: type[Part], place: int) -> bool:
    array = tuple(kind.declared.values())[place]
    return isinstance(array, Array) and array.whole


def fade_sums(own: Any, arm: int, factor: float, least: float) -> None:
    """Multiply the sums of an arm by a factor; those that count, and fall below `least`, are 0."""
    for place in sums_of_arms(type(own)):
        own[place][arm] *= factor
        if _is_count(type(own), place) and own[place][arm] < least:
            own[place][arm] = 0.0


def read_sums(own: Any, arm: int, rows: Any, row: int, first: int) -> None:
    """Write the sums of an arm into a row."""
    for j, place in enumerate(sums_of_arms(type(own))):
        rows[row, first + j] = own[place][arm]


def put_sums(own: Any, arm: int, rows: Any, row: int, first: int) -> None:
    """Let the sums of an arm be those of a row."""
    for j, place in enumerate(sums_of_arms(type(own))):
        own[place][arm] = rows[row, first + j]


# ------------------------------------------------------------------------------ the same, compiled


def _fade_one(kind: Any, place: int, j: int, then: Any) -> Any:
    if _is_count(kind, place):

        def fade_count(own: Any, arm: int, factor: float, least: float) -> None:
            own[place][arm] *= factor
            if own[place][arm] < least:
                own[place][arm] = 0.0
            then(own, arm, factor, least)

        return fade_count

    def fade(own: Any, arm: int, factor: float, least: float) -> None:
        own[place][arm] *= factor
        then(own, arm, factor, least)

    return fade


def _read_one(kind: Any, place: int, j: int, then: Any) -> Any:
    def read(own: Any, arm: int, rows: Any, row: int, first: int) -> None:
        rows[row, first + j] = own[place][arm]
        then(own, arm, rows, row, first)

    return read


def _put_one(kind: Any, place: int, j: int, then: Any) -> Any:
    def put(own: Any, arm: int, rows: Any, row: int, first: int) -> None:
        own[place][arm] = rows[row, first + j]
        then(own, arm, rows, row, first)

    return put


def _fade_none(own: Any, arm: int, factor: float, least: float) -> None:
    """Stand for the end of the sums."""


def _move_none(own: Any, arm: int, rows: Any, row: int, first: int) -> None:
    """Stand for the end of the sums."""


def _compiled(function: Any, one: Callable[..., Any], none: Any) -> None:
    """Tell the compiler what to write where the function stands: one step for each sum."""

    def steps(own: Any, *args: Any) -> Any:
        kind = getattr(own, "instance_class", None)
        if kind is None or not issubclass(kind, Part):
            return None
        written = none
        for j, place in reversed(list(enumerate(sums_of_arms(kind)))):
            written = one(kind, place, j, jitable(written))
        return written

    overload(function, strict=False, jit_options=INLINED)(steps)


_compiled(fade_sums, _fade_one, _fade_none)
_compiled(read_sums, _read_one, _move_none)
_compiled(put_sums, _put_one, _move_none)
