"""Dispatch of links: which function a link stands for, in Python and in compiled code.

A link is a spec, so a model that holds one is compiled for it: there is no name to look up in the
loop, and a link of your own runs at the same speed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from numba.extending import overload, register_jitable

from zib.core import validate as check

Function = Callable[[Any, float], float]


class Link(NamedTuple):
    """What is registered for one type of link; each function takes the link and one number."""

    value: Function
    derivative: Function
    inverse: Function
    log_value: Function
    log_complement: Function


LINKS: dict[type, Link] = {}


def register_link(
    spec_type: type,
    *,
    value: Function,
    derivative: Function,
    inverse: Function,
    log_value: Function,
    log_complement: Function,
) -> None:
    """Make a link known to the interpreter and to the compiler.

    Parameters
    ----------
    spec_type
        A NamedTuple class in an importable module; its instances stand for the link.
    value, derivative, inverse
        ``f(link, z)``: h(z), h'(z), and the z with h(z) = m. Plain Python on one number that never
        raises.
    log_value, log_complement
        ``f(link, z)``: log h(z) and log(1 − h(z)), accurate in the tails, for likelihoods; NaN
        where the value is not a probability.
    """
    LINKS[spec_type] = Link(
        register_jitable(value),
        register_jitable(derivative),
        register_jitable(inverse),
        register_jitable(log_value),
        register_jitable(log_complement),
    )


def lookup_link(link: Any) -> Link:
    """Return what is registered for the type of `link`, or raise a TypeError that says how."""
    found = LINKS.get(type(link))
    if found is None:
        raise TypeError(
            f"{type(link).__name__} is not a registered link; "
            "register it with zib.contextual.register_link(...) first"
        )
    return found


def value(link: Any, z: float) -> float:
    """Return h(z)."""
    return lookup_link(link).value(link, z)


def derivative(link: Any, z: float) -> float:
    """Return h'(z)."""
    return lookup_link(link).derivative(link, z)


def inverse(link: Any, z: float) -> float:
    """Return the linear predictor whose mean is `z`."""
    return lookup_link(link).inverse(link, z)


def log_value(link: Any, z: float) -> float:
    """Return log h(z)."""
    return lookup_link(link).log_value(link, z)


def log_complement(link: Any, z: float) -> float:
    """Return log(1 − h(z))."""
    return lookup_link(link).log_complement(link, z)


def _compiled(link: Any, which: str) -> Any:
    found = LINKS.get(getattr(link, "instance_class", object))
    return None if found is None else getattr(found, which)


@overload(value, strict=False)
def _value(link, z):  # type: ignore[no-untyped-def]
    return _compiled(link, "value")


@overload(derivative, strict=False)
def _derivative(link, z):  # type: ignore[no-untyped-def]
    return _compiled(link, "derivative")


@overload(inverse, strict=False)
def _inverse(link, z):  # type: ignore[no-untyped-def]
    return _compiled(link, "inverse")


@overload(log_value, strict=False)
def _log_value(link, z):  # type: ignore[no-untyped-def]
    return _compiled(link, "log_value")


@overload(log_complement, strict=False)
def _log_complement(link, z):  # type: ignore[no-untyped-def]
    return _compiled(link, "log_complement")


def kappa(link: Any, radius: float) -> float:
    """Return the smallest h' over |z| ≤ radius, the κ of the confidence radii.

    The derivative of every link here has one peak or is monotone, so the minimum is at an end.

    Examples
    --------
    >>> from zib.contextual import Logit
    >>> round(kappa(Logit(), 1.0), 4)
    0.1966
    """
    return smallest_slope(link, check.real("radius", radius, low=0))


@register_jitable
def smallest_slope(link: Any, radius: float) -> float:
    """Return κ without checks, for kernels; not quite 0 where it underflows, radii divide by it."""
    return max(min(derivative(link, -radius), derivative(link, radius)), 1e-100)
