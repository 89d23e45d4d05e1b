"""Checks of arguments, all with one form of message: `` `delta` must lie in (0, 1); got 1.5 ``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Closed = Literal["both", "neither", "left", "right"]


class InvalidParameterError(ValueError):
    """An argument outside its allowed range; the message names it, the range and the value."""


def interval(low: float, high: float, closed: Closed) -> str:
    """Return an interval in mathematical notation."""
    left = "[" if closed in ("both", "left") and math.isfinite(low) else "("
    right = "]" if closed in ("both", "right") and math.isfinite(high) else ")"
    return f"{left}{_number(low)}, {_number(high)}{right}"


def _number(x: float) -> str:
    return f"{x:g}" if math.isfinite(x) else ("inf" if x > 0 else "-inf")


def real(
    name: str,
    value: object,
    low: float = -math.inf,
    high: float = math.inf,
    closed: Closed = "both",
) -> float:
    """Return `value` as a finite float inside the interval, or raise."""
    number = math.nan
    if isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool):
        number = float(value)
    if not math.isfinite(number):
        raise InvalidParameterError(
            f"`{name}` must be a finite number in {interval(low, high, closed)}; got {value!r}"
        )
    too_low = number < low or (number == low and closed in ("neither", "right"))
    too_high = number > high or (number == high and closed in ("neither", "left"))
    if too_low or too_high:
        raise InvalidParameterError(
            f"`{name}` must lie in {interval(low, high, closed)}; got {value!r}"
        )
    return number


def integer(name: str, value: object, low: int | None = None, high: int | None = None) -> int:
    """Return `value` as an int inside [low, high], or raise."""
    bounds = f"[{'-inf' if low is None else low}, {'inf' if high is None else high}]"
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise InvalidParameterError(f"`{name}` must be a whole number in {bounds}; got {value!r}")
    number = int(value)
    if (low is not None and number < low) or (high is not None and number > high):
        raise InvalidParameterError(f"`{name}` must lie in {bounds}; got {value!r}")
    return number


def choice(name: str, value: object, options: Sequence[str]) -> int:
    """Return the position of `value` in `options`, or raise."""
    if value not in options:
        allowed = ", ".join(repr(o) for o in options)
        raise InvalidParameterError(f"`{name}` must be one of {allowed}; got {value!r}")
    return list(options).index(str(value))


def vector(
    name: str,
    value: object,
    low: float = -math.inf,
    high: float = math.inf,
    closed: Closed = "both",
) -> NDArray[np.float64]:
    """Return `value` as a non-empty 1-D float array with every entry in the interval, or raise."""
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidParameterError(
            f"`{name}` must be a sequence of numbers; got {value!r}"
        ) from None
    if array.ndim != 1 or array.size == 0:
        raise InvalidParameterError(
            f"`{name}` must be a non-empty one-dimensional sequence; got shape {array.shape}"
        )
    inside(name, array, low, high, closed)
    return array


def inside(
    name: str,
    array: NDArray[np.float64],
    low: float = -math.inf,
    high: float = math.inf,
    closed: Closed = "both",
) -> None:
    """Raise unless every entry of `array` is finite and inside the interval."""
    bad = ~np.isfinite(array)
    bad |= array < low if closed in ("both", "left") else array <= low
    bad |= array > high if closed in ("both", "right") else array >= high
    if bad.any():
        first = np.unravel_index(int(np.argmax(bad)), array.shape)
        at = "" if array.ndim == 0 else f" at position {', '.join(str(int(i)) for i in first)}"
        raise InvalidParameterError(
            f"`{name}` must lie in {interval(low, high, closed)}; got {float(array[first])!r}{at}"
        )
