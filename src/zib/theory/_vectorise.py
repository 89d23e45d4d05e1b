"""From scalar formulas to public functions over NumPy inputs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from zib.core.cache import cached_ufunc
from zib.core.validate import Closed, InvalidParameterError, inside

Array = NDArray[np.float64]


@functools.cache
def _ufunc(scalar: Callable[..., float]) -> Any:
    return cached_ufunc(scalar)


def apply(scalar: Callable[..., float], *arguments: ArrayLike) -> Any:
    """Apply a scalar formula with broadcasting; a float for scalars, an array for arrays."""
    arrays = [np.asarray(a, dtype=np.float64) for a in arguments]
    same_shape(*arrays)
    with np.errstate(all="ignore"):
        result = _ufunc(scalar)(*arrays)
    return number(result)


def same_shape(*arrays: Array) -> None:
    """Raise unless the arrays broadcast against each other."""
    try:
        np.broadcast_shapes(*(a.shape for a in arrays))
    except ValueError:
        shapes = ", ".join(str(a.shape) for a in arrays)
        raise InvalidParameterError(f"arguments must broadcast; got shapes {shapes}") from None


def number(result: Any) -> Any:
    """Return a float for a zero-dimensional result and the array itself otherwise."""
    return float(result) if np.ndim(result) == 0 else np.asarray(result, dtype=np.float64)


def numbers(
    name: str,
    value: ArrayLike,
    low: float = -np.inf,
    high: float = np.inf,
    closed: Closed = "both",
) -> Array:
    """Return `value` as a float array of any shape with every entry in the interval, or raise."""
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidParameterError(f"`{name}` must hold numbers; got {value!r}") from None
    if isinstance(value, (bool, np.bool_)):
        raise InvalidParameterError(f"`{name}` must hold numbers; got {value!r}")
    inside(name, array, low, high, closed)
    return array


def positive(name: str, value: ArrayLike) -> Array:
    """Return `value` with every entry finite and > 0, or raise."""
    return numbers(name, value, 0.0, np.inf, "neither")


def counts(name: str, value: ArrayLike, low: float = 0.0) -> Array:
    """Return `value` with every entry finite and >= low, or raise."""
    return numbers(name, value, low, np.inf, "left")


def log_two_over(delta: ArrayLike, numerator: float = 2.0) -> Array:
    """Return log(numerator / delta) for delta in (0, 1), or raise."""
    return np.log(numerator / numbers("delta", delta, 0.0, 1.0, "neither"))
