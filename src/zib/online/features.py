"""Features as compiled code wants them: aligned matrices of floats, one row per action."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zib.core.validate import InvalidParameterError

_FLOAT = np.dtype(np.float64)

Matrix = NDArray[np.float64]


def numbers(name: str, values: Any) -> NDArray[Any]:
    """Return an array of real numbers, or raise."""
    try:
        array = np.asarray(values)
    except (TypeError, ValueError):  # rows of different lengths
        raise InvalidParameterError(
            f"`{name}` must be a matrix of numbers; its rows differ in length"
        ) from None
    if array.dtype.kind in "fiub":
        return array
    if array.dtype.kind == "O":  # tables that mix kinds of numbers
        for item in array.flat:
            if not isinstance(item, Real):
                raise InvalidParameterError(f"`{name}` must be numbers only; got {item!r}")
        return array.astype(np.float64)
    raise InvalidParameterError(f"`{name}` must be numbers only; got an array of {array.dtype}")


def is_ready(values: Any, width: int) -> bool:
    """Whether this is a matrix that compiled code takes as it is: no copy, no further look."""
    return (
        type(values) is np.ndarray
        and values.ndim == 2
        and values.dtype is _FLOAT
        and values.shape[1] == width
        and values.flags.carray
        and values.shape[0] > 0
    )


def matrix(name: str, values: Any, width: int) -> Matrix:
    """Return an aligned, writeable matrix in C order, as compiled code expects, or raise."""
    if is_ready(values, width):
        return values  # type: ignore[no-any-return]
    array = numbers(name, values)
    if array.ndim > 0 and len(array) == 0:
        raise InvalidParameterError(f"`{name}` must have at least one row; got none")
    if array.ndim != 2 or array.shape[1] != width:
        raise InvalidParameterError(
            f"`{name}` must have one row per action and {width} columns; got shape {array.shape}"
        )
    if not array.flags.writeable:
        return np.array(array, dtype=np.float64, order="C")
    return np.require(array, np.float64, ("C", "A", "W"))
