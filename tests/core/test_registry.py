"""One dispatcher for the interpreter and the compiler."""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import pytest

import zib
from zib.core.registry import CALLED, Registry, borrowing
from zib.core.spec import Spec, real

shapes = Registry("shape", "a call of shapes.add(...)")


class Shape(NamedTuple):
    area: Any


@shapes.kernel(CALLED)
def area(shape: Any, scale: float) -> float:
    """Return the area of a shape."""


class Square(Spec):
    side: float = real(low=0)


class Circle(Spec):
    radius: float = real(low=0)


shapes.add(Square, Shape(borrowing(lambda shape, scale: scale * shape.side * shape.side)))
shapes.add(Circle, Shape(borrowing(lambda shape, scale: scale * 3.0 * shape.radius**2)))


@numba.njit
def compiled_area(shape: Any, scale: float) -> float:
    return area(shape, scale)


@pytest.mark.parametrize(("shape", "expected"), [(Square(side=2), 8.0), (Circle(radius=2), 24.0)])
def test_both_find_the_same(shape: Any, expected: float) -> None:
    assert area(shape, 2.0) == compiled_area(shape, 2.0) == expected


def test_a_kernel_keeps_its_name_and_words() -> None:
    assert (area.__name__, area.__doc__) == ("area", "Return the area of a shape.")


def test_what_is_not_registered_is_named() -> None:
    class Triangle(Spec):
        pass

    with pytest.raises(TypeError, match="Triangle is not a registered shape; register it with a"):
        area(Triangle(), 1.0)
    with pytest.raises(zib.InvalidParameterError, match="`spec_type` must be a zib.Spec"):
        shapes.add(dict, Shape(None))


PLAIN = ("init", "propensities", "randomized")  # never compiled


def test_no_two_kernels_of_ours_have_the_same_name() -> None:
    """Or compiled code that was kept for one could be taken for the other (see `links.py`)."""
    seen: dict[tuple[str, str], Any] = {}
    entries = [entry._asdict() for registry in Registry.all for entry in registry.values()]
    kernels = [k for entry in entries for name, k in entry.items() if name not in PLAIN]
    for kernel in kernels:
        # those made by one function that returns another are followed to what they call
        inside = [cell.cell_contents for cell in getattr(kernel, "__closure__", None) or ()]
        kernels.extend(k for k in inside if callable(k) and k not in kernels)
        if callable(kernel) and getattr(kernel, "__module__", "").startswith("zib."):
            name = (kernel.__module__, kernel.__qualname__)
            assert seen.setdefault(name, kernel) is kernel, name
    assert ("zib.contextual.links", "value_from_0") in seen
