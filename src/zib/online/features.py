"""Features as compiled code wants them: aligned matrices of floats, one row per action."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zib.core import validate
from zib.core.validate import InvalidParameterError

_FLOAT = np.dtype(np.float64)

Matrix = NDArray[np.float64]


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


def is_ready_vector(values: Any, width: int) -> bool:
    """Whether this is one row that compiled code takes as it is."""
    return (
        type(values) is np.ndarray
        and values.ndim == 1
        and values.dtype is _FLOAT
        and values.shape[0] == width
        and values.flags.carray
    )


def is_pair(features: Any) -> bool:
    """Whether features are given for each part, and not as a vector of two numbers."""
    return (
        isinstance(features, tuple)
        and len(features) == 2
        and not all(isinstance(part, Real) for part in features)
    )


def matrix(name: str, values: Any, width: int) -> Matrix:
    """Return an aligned, writeable matrix in C order, as compiled code expects, or raise."""
    if is_ready(values, width):
        return values  # type: ignore[no-any-return]
    array = validate.numbers(name, values)
    if array.ndim > 0 and len(array) == 0:
        raise InvalidParameterError(f"`{name}` must have at least one row; got none")
    if array.ndim != 2 or array.shape[1] != width:
        raise InvalidParameterError(
            f"`{name}` must have one row per action and {width} columns; got shape {array.shape}"
        )
    if not array.flags.writeable:
        return np.array(array, dtype=np.float64, order="C")
    return np.require(array, np.float64, ("C", "A", "W"))
