"""From scalar formulas to public functions over NumPy inputs, by one declaration.

A topic file writes a formula once, for single numbers, and declares its public form below it::

    @borrowing
    def hoeffding_radius_scalar(n: float, level: float) -> float: ...

    @vectorised(hoeffding_radius_scalar, n=NONNEGATIVE, delta=log_over(2.0))
    def hoeffding_radius(n: ArrayLike, delta: ArrayLike) -> Any:
        '''Docstring; there is no body.'''

The public form checks its arguments, broadcasts them and returns a float for scalars and an array
for arrays. Nothing is compiled before the first call. Functions that need more than that call the
checks and `over` themselves.

Scalar formulas use ``math`` only and give the same bits compiled and interpreted. They check
nothing and never raise: the public functions validate first, and the policies pass statistics that
are valid by construction. Counts of zero are answered with the bound that holds without data
(``inf`` for a mean, 1 for a probability).
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from zib.core.cache import cached_ufunc
from zib.core.validate import Closed, InvalidParameterError, inside, numbers

Array = NDArray[np.float64]
# Called with the name and the value of an argument; returns an array or raises.
Check = Callable[[str, ArrayLike], Array]
F = TypeVar("F", bound=Callable[..., Any])


def within(low: float = -np.inf, high: float = np.inf, closed: Closed = "both") -> Check:
    """Return the check that every entry lies in the interval; it hands on a float array."""

    def check(name: str, value: ArrayLike) -> Array:
        array = numbers(name, value)
        inside(name, array, low, high, closed)
        return array

    return check


REAL = within()
POSITIVE = within(0.0, np.inf, "neither")
NONNEGATIVE = within(0.0, np.inf, "left")
FROM_ONE = within(1.0, np.inf, "left")
UNIT = within(0.0, 1.0)  # a probability
UNIT_POSITIVE = within(0.0, 1.0, "right")
UNIT_OPEN = within(0.0, 1.0, "neither")


def log_over(numerator: float) -> Check:
    """Return the check of a `delta` in (0, 1) that hands on log(numerator / delta)."""

    def level(name: str, value: ArrayLike) -> Array:
        return np.log(numerator / UNIT_OPEN(name, value))

    return level


@functools.cache
def ufunc_of(scalar: Callable[..., float]) -> Any:
    """Return the universal function of a scalar formula; it compiles when first called."""
    return cached_ufunc(scalar)


def over(scalar: Callable[..., float], *arguments: ArrayLike) -> Any:
    """Apply a scalar formula with broadcasting; a float for scalars, an array for arrays."""
    arrays = [np.asarray(a, dtype=np.float64) for a in arguments]
    same_shape(*arrays)
    with np.errstate(all="ignore"):
        result = ufunc_of(scalar)(*arrays)
    return number(result)


def vectorised(scalar: Callable[..., float], **checks: Check) -> Callable[[F], F]:
    """Give a function without a body the values of `scalar`, with one check per argument.

    The checks stand in the order of the scalar formula's arguments and carry the names of the
    public ones.
    """

    def declare(function: F) -> F:
        signature = inspect.signature(function)
        if list(signature.parameters) != list(checks):
            raise TypeError(f"{function.__name__} needs one check per argument, in their order")

        @functools.wraps(function)
        def public(*args: Any, **kwargs: Any) -> Any:
            function(*args, **kwargs)  # raises Python's own message for a wrong call
            given = signature.bind(*args, **kwargs).arguments
            arrays = [check(name, given[name]) for name, check in checks.items()]
            same_shape(*arrays, names=tuple(checks))
            return over(scalar, *arrays)

        return public  # type: ignore[return-value]

    return declare


def same_shape(*arrays: Array, names: Sequence[str] = ()) -> None:
    """Raise unless the arrays broadcast against each other."""
    try:
        np.broadcast_shapes(*(a.shape for a in arrays))
    except ValueError:
        shapes = ", ".join(str(a.shape) for a in arrays)
        which = ", ".join(f"`{name}`" for name in names) or "arguments"
        raise InvalidParameterError(f"{which} must broadcast; got shapes {shapes}") from None


def number(result: Any) -> Any:
    """Return a float for a zero-dimensional result and the array itself otherwise."""
    return float(result) if np.ndim(result) == 0 else np.asarray(result, dtype=np.float64)
