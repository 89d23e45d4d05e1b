"""Checks of arguments, all with one form of message: `` `delta` must lie in (0, 1); got 1.5 ``.

Everything public comes through here, so that every bad argument gets the same answer before
anything has changed: one short line that names the parameter, what is allowed and what was given.
Nothing is guessed: text is no number, the imaginary part of a number and the entries that a mask
hides are not dropped, and what no float can hold is refused.
"""

from __future__ import annotations

import math
import os
import reprlib
from collections.abc import Hashable, Iterable, Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Closed = Literal["both", "neither", "left", "right"]

LONGEST_MESSAGE = 300  # characters
LONGEST_VALUE = 60
LARGEST_WHOLE = 2**63 - 1  # of an int64
LONGEST_WHOLE = 4096  # bits of a seed or of a label; Python writes no number of many more


class InvalidParameterError(ValueError):
    """An argument outside its allowed range; the message names it, the range and the value."""

    def __init__(self, message: str = "") -> None:
        super().__init__(_one_line(message, LONGEST_MESSAGE))


class InvalidTypeError(InvalidParameterError, TypeError):
    """An argument of a type that is not allowed."""


# ------------------------------------------------------------------------------- values in messages


class _Short(reprlib.Repr):
    """Prints large things in part; a number of a thousand digits is described."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel, self.maxother, self.maxstring = 3, LONGEST_VALUE, LONGEST_VALUE - 15

    def repr_int(self, x: int, level: int) -> str:
        if x.bit_length() > 128:
            return f"{'-' if x < 0 else ''}1e+{math.floor(x.bit_length() * math.log10(2))}"
        return repr(x)


_short = _Short()


def shown(value: object) -> str:
    """Return a value for a message: one line of at most 60 characters.

    Examples
    --------
    >>> shown(1.5), shown([0.5] * 1000), len(shown("x" * 100_000)) <= 60
    ('1.5', '[0.5, 0.5, 0.5, 0.5, 0.5, 0.5, ...]', True)
    """
    try:
        text = _short.repr(value)
    except Exception:  # a `__repr__` that fails must not hide what was wrong
        text = f"an object of type {type(value).__name__}"
    return _one_line(text, LONGEST_VALUE)


def _one_line(text: str, most: int) -> str:
    # control characters are shown, not sent to the terminal of whoever reads the message
    if not text.isprintable():
        text = "".join(
            c if c.isprintable() else " " if c.isspace() else repr(c)[1:-1] for c in text
        )
        text = " ".join(text.split())
    if len(text) <= most:
        return text
    end = most // 4
    return f"{text[: most - end - 3]}...{text[-end:]}"


def interval(low: float, high: float, closed: Closed) -> str:
    """Return an interval in mathematical notation."""
    left = "[" if closed in ("both", "left") and math.isfinite(low) else "("
    right = "]" if closed in ("both", "right") and math.isfinite(high) else ")"
    return f"{left}{_number(low)}, {_number(high)}{right}"


def _number(x: float) -> str:
    return f"{x:g}" if math.isfinite(x) else ("inf" if x > 0 else "-inf")


# ------------------------------------------------------------------------------------------ numbers


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
        number = _float(value)
    if not math.isfinite(number):
        raise InvalidParameterError(
            f"`{name}` must be a finite number in {interval(low, high, closed)}; got {shown(value)}"
        )
    too_low = number < low or (number == low and closed in ("neither", "right"))
    too_high = number > high or (number == high and closed in ("neither", "left"))
    if too_low or too_high:
        raise InvalidParameterError(
            f"`{name}` must lie in {interval(low, high, closed)}; got {shown(value)}"
        )
    return number


def _float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:  # of a whole number beyond 1.8e308
        return math.inf if value > 0 else -math.inf


def integer(name: str, value: object, low: int | None = None, high: int | None = None) -> int:
    """Return `value` as an int inside [low, high], or raise; it always fits into 64 bits."""
    bounds = f"[{'-inf' if low is None else low}, {'inf' if high is None else high}]"
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise InvalidParameterError(
            f"`{name}` must be a whole number in {bounds}; got {shown(value)}"
        )
    number = int(value)
    if (low is not None and number < low) or (high is not None and number > high):
        raise InvalidParameterError(f"`{name}` must lie in {bounds}; got {shown(value)}")
    if abs(number) > LARGEST_WHOLE:
        raise InvalidParameterError(
            f"`{name}` must lie in {bounds}, below 2**63; got {shown(value)}"
        )
    return number


def flag(name: str, value: object) -> bool:
    """Return `value`, which must be True or False, or raise."""
    if not isinstance(value, (bool, np.bool_)):
        raise InvalidParameterError(f"`{name}` must be True or False; got {shown(value)}")
    return bool(value)


def choice(name: str, value: object, options: Sequence[str]) -> int:
    """Return the position of `value` in `options`, or raise."""
    if not isinstance(value, str) or value not in options:
        allowed = ", ".join(repr(o) for o in options)
        raise InvalidParameterError(f"`{name}` must be one of {allowed}; got {shown(value)}")
    return list(options).index(str(value))


def words(name: str, value: object) -> tuple[str, ...]:
    """Return a sequence of strings, such as names of columns, as a tuple, or raise.

    A single string is refused: its letters are not meant.
    """
    given = (None,) if isinstance(value, Mapping) else tuple(iterable(name, value))
    if not all(isinstance(word, str) for word in given):
        raise InvalidParameterError(f"`{name}` must be a sequence of strings; got {shown(value)}")
    return tuple(map(str, given))


def function(name: str, value: object) -> Any:
    """Return `value`, which must be something that can be called, or raise."""
    if not callable(value):
        raise InvalidTypeError(f"`{name}` must be a function; got {shown(value)}")
    return value


def path(name: str, value: object) -> Path:
    """Return the path of a file or folder, or raise."""
    text = os.fspath(value) if isinstance(value, (str, os.PathLike)) else None
    if not isinstance(text, str) or "\0" in text or max(map(len, text.split("/"))) > 255:
        raise InvalidTypeError(f"`{name}` must be a path, such as 'a/file'; got {shown(value)}")
    return Path(text)


# ------------------------------------------------------------------------------------------- arrays


def numbers(name: str, value: object) -> NDArray[np.float64]:
    """Return `value` as an array of floats of any shape, or raise; it may be `value` itself.

    Text, complex numbers, dates and masked entries are refused instead of converted.
    """
    if isinstance(value, np.ma.MaskedArray):
        if np.ma.is_masked(value):
            raise InvalidParameterError(f"`{name}` must have no masked entries; got {shown(value)}")
        value = value.data
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, OverflowError):
        raise InvalidParameterError(
            f"`{name}` must hold numbers, in rows of equal length; got {shown(value)}"
        ) from None
    if array.dtype.kind in "fiub" and not isinstance(value, (bool, np.bool_)):
        return array.astype(np.float64, copy=False)
    # tables that mix kinds of numbers, and numbers beyond 64 bits
    if array.dtype.kind == "O" and all(isinstance(item, Real) for item in array.flat):
        try:
            return np.array([float(item) for item in array.flat]).reshape(array.shape)
        except OverflowError:
            raise InvalidParameterError(
                f"`{name}` must hold numbers below 1.8e308; got {shown(value)}"
            ) from None
    raise InvalidParameterError(f"`{name}` must hold numbers; got {shown(value)}")


def vector(
    name: str,
    value: object,
    low: float = -math.inf,
    high: float = math.inf,
    closed: Closed = "both",
) -> NDArray[np.float64]:
    """Return `value` as a non-empty 1-D float array with every entry in the interval, or raise."""
    array = numbers(name, value)
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


# --------------------------------------------------------------------------------- seeds and labels


def seed(name: str, value: object) -> int:
    """Return `value` as a whole number ≥ 0 that names a random stream, or raise."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise InvalidParameterError(f"`{name}` must be a whole number >= 0; got {shown(value)}")
    number = int(value)
    if number < 0 or number.bit_length() > LONGEST_WHOLE:
        raise InvalidParameterError(
            f"`{name}` must lie in [0, 2**{LONGEST_WHOLE}); got {shown(value)}"
        )
    return number


def generator(name: str, value: object) -> np.random.Generator:
    """Return the random stream that `value` stands for, or raise.

    That is a Generator (used as it is), whatever else `numpy.random.default_rng` makes one from
    for certain (a whole number ≥ 0 or several, a SeedSequence, a BitGenerator), or None.
    """
    if value is None:
        return np.random.default_rng()
    if isinstance(value, np.random.Generator):
        return value
    if isinstance(value, (np.random.SeedSequence, np.random.BitGenerator)):
        return np.random.default_rng(value)
    if isinstance(value, (list, tuple)) or (isinstance(value, np.ndarray) and value.ndim == 1):
        parts = [] if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value) else value
        if len(parts):
            return np.random.default_rng([_seed(name, part, value) for part in parts])
    return np.random.default_rng(_seed(name, value, value))


def _seed(name: str, part: object, value: object) -> int:
    try:
        return seed(name, part)
    except InvalidParameterError:
        raise InvalidParameterError(
            f"`{name}` must be None, a whole number >= 0 (or several), a SeedSequence or a "
            f"Generator; got {shown(value)}"
        ) from None


def label(name: str, value: Any) -> Hashable:
    """Return a label of an arm, or raise unless it can be looked up and saved.

    Those are text, numbers, True, False, None and tuples of these.
    """
    if not _is_label(value):
        raise InvalidParameterError(
            f"`{name}` must be a label made of text, finite numbers, bools, None and tuples of "
            f"these, which can be saved; got {shown(value)} of type {type(value).__name__}"
        )
    return value  # type: ignore[no-any-return]


def _is_label(value: Any) -> bool:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, tuple):
        return all(map(_is_label, value))
    if isinstance(value, int):
        return value.bit_length() <= LONGEST_WHOLE
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, str)


def iterable(name: str, value: object) -> Iterable[Any]:
    """Return `value`, which must hold several values and not be text or masked, or raise."""
    if (
        isinstance(value, (str, bytes))
        or not isinstance(value, Iterable)
        or (isinstance(value, np.ndarray) and (value.ndim != 1 or np.ma.is_masked(value)))
    ):
        raise InvalidParameterError(f"`{name}` must be a sequence; got {shown(value)}")
    return value


def labels(name: str, value: object) -> tuple[Hashable, ...]:
    """Return labels, at least one and all different, or raise.

    A string is refused: its letters are not meant.
    """
    found = tuple(iterable(name, value))
    if not found:
        raise InvalidParameterError(f"`{name}` must hold at least one label; got none")
    for each in found:
        label(name, each)
    if len(set(found)) != len(found):
        raise InvalidParameterError(
            f"`{name}` must be different from each other; got {shown(found)}"
        )
    return found
