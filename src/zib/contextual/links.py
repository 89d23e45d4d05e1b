"""Links: the functions that turn a linear predictor into a mean.

A link is a spec, so a model that holds one is compiled for it: there is no name to look up in the
loop, and a link of your own (see `register_link`) runs at the same speed. `Logit`, `Probit`,
`Cauchit`, `CLogLog` and `Log` turn a linear predictor z into a probability, `Identity` leaves it
alone. The formulas stay finite and keep their relative accuracy in both tails, beyond |z| = 800.
`StandardLink` is any one of the six by number: policies hold it, so that one compilation serves
all six.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from numba.extending import register_jitable

from zib.core import validate as check
from zib.core.registry import Registry
from zib.core.spec import Spec, choice

Function = Callable[[Any, float], float]

LARGEST = 700.0  # exp of more than 709 overflows
ROOT_2 = math.sqrt(2.0)
ROOT_2_PI = math.sqrt(2.0 * math.pi)


class Link(NamedTuple):
    """What is registered for one type of link; each function takes the link and one number."""

    value: Function
    derivative: Function
    inverse: Function
    log_value: Function
    log_complement: Function


LINKS = Registry("link", "zib.contextual.register_link(...)")


@LINKS.kernel({})
def value(link: Any, z: float) -> float:  # type: ignore[empty-body]
    """Return h(z)."""


@LINKS.kernel({})
def derivative(link: Any, z: float) -> float:  # type: ignore[empty-body]
    """Return h'(z)."""


@LINKS.kernel({})
def inverse(link: Any, z: float) -> float:  # type: ignore[empty-body]
    """Return the linear predictor whose mean is `z`."""


@LINKS.kernel({})
def log_value(link: Any, z: float) -> float:  # type: ignore[empty-body]
    """Return log h(z)."""


@LINKS.kernel({})
def log_complement(link: Any, z: float) -> float:  # type: ignore[empty-body]
    """Return log(1 − h(z))."""


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
        A `zib.Spec` or NamedTuple class in an importable module; its instances stand for the link.
    value, derivative, inverse
        ``f(link, z)``: h(z), h'(z), and the z with h(z) = m. Plain Python on one number that never
        raises.
    log_value, log_complement
        ``f(link, z)``: log h(z) and log(1 − h(z)), accurate in the tails, for likelihoods; NaN
        where the value is not a probability.
    """
    functions = (value, derivative, inverse, log_value, log_complement)
    LINKS.add(spec_type, Link(*(register_jitable(function) for function in functions)))


def kappa(link: Any, radius: float) -> float:
    """Return the smallest h' over |z| ≤ radius, the κ of the confidence radii.

    The derivative of every link here has one peak or is monotone, so the minimum is at an end.

    Examples
    --------
    >>> from zib.contextual import Logit
    >>> round(kappa(Logit(), 1.0), 4)
    0.1966
    """
    LINKS.lookup(link, "link")
    return smallest_slope(link, check.real("radius", radius, low=0))


@register_jitable
def smallest_slope(link: Any, radius: float) -> float:
    """Return κ without checks, for kernels; not quite 0 where it underflows, radii divide by it."""
    return max(min(derivative(link, -radius), derivative(link, radius)), 1e-100)


# ----------------------------------------------------------------------------------- the six links
#
# Each is one class whose methods are the functions; as functions of (link, z) they are registered.

_L = TypeVar("_L", bound=type)
STANDARD: dict[str, type] = {}  # the six by name, in the order of their numbers


def _standard(name: str) -> Callable[[_L], _L]:
    """Register a link whose functions are the methods of its class."""

    def declare(kind: _L) -> _L:
        register_link(kind, **{part: vars(kind)[part] for part in Link._fields})
        STANDARD[name] = kind
        return kind

    return declare


@register_jitable
def _softplus(z: float) -> float:
    return max(z, 0.0) + math.log1p(math.exp(-min(abs(z), LARGEST)))


@_standard("logit")
class Logit(Spec):
    """h(z) = 1/(1 + exp(−z))."""

    def value(self, z: float) -> float:
        if z >= 0.0:
            return 1.0 / (1.0 + math.exp(-z))
        e = math.exp(max(z, -LARGEST))
        return e / (1.0 + e)

    def derivative(self, z: float) -> float:
        e = math.exp(-min(abs(z), LARGEST))
        return e / ((1.0 + e) * (1.0 + e))

    def inverse(self, z: float) -> float:
        return math.log(z) - math.log1p(-z)

    def log_value(self, z: float) -> float:
        return -_softplus(-z)

    def log_complement(self, z: float) -> float:
        return -_softplus(z)


@register_jitable
def _log_normal_tail(z: float) -> float:
    """Return log Φ(z)."""
    if z > 0.0:
        return math.log1p(-0.5 * math.erfc(z / ROOT_2))
    if z > -10.0:
        return math.log(0.5 * math.erfc(-z / ROOT_2))
    # Mills' ratio as a continued fraction, which converges fast this far out
    ratio = 0.0
    for k in range(30, 0, -1):
        ratio = k / (-z + ratio)
    return -0.5 * z * z - math.log(ROOT_2_PI) - math.log(-z + ratio)


@register_jitable
def _normal_quantile(p: float) -> float:
    """Return z with Φ(z) = p for 0 < p <= 1/2."""
    # a start good to three digits, then Newton's method on log Φ, which is concave and nearly
    # quadratic in the tail
    t = math.sqrt(-2.0 * math.log(p))
    z = -(t - (2.30753 + 0.27061 * t) / (1.0 + t * (0.99229 + 0.04481 * t)))
    goal = math.log(p)
    for _ in range(8):
        log_cdf = _log_normal_tail(z)
        # Φ/φ, from logarithms so that both may underflow
        ratio = math.exp(log_cdf + 0.5 * z * z) * ROOT_2_PI
        step = (log_cdf - goal) * ratio
        z -= step
        if abs(step) <= 1e-15 * abs(z) + 1e-300:
            break
    return z


@_standard("probit")
class Probit(Spec):
    """h(z) = Φ(z), the standard normal distribution function."""

    def value(self, z: float) -> float:
        return 0.5 * math.erfc(-z / ROOT_2)

    def derivative(self, z: float) -> float:
        return math.exp(-min(0.5 * z * z, LARGEST)) / ROOT_2_PI if abs(z) < 40.0 else 0.0

    def inverse(self, z: float) -> float:
        if z <= 0.5:
            return _normal_quantile(z)
        return -_normal_quantile(1.0 - z)

    def log_value(self, z: float) -> float:
        return _log_normal_tail(z)

    def log_complement(self, z: float) -> float:
        return _log_normal_tail(-z)


@register_jitable
def _cauchy_cdf(z: float) -> float:
    if z < -1.0:
        return math.atan(-1.0 / z) / math.pi
    return 0.5 + math.atan(z) / math.pi


@register_jitable
def _log_cauchy_cdf(z: float) -> float:
    return math.log1p(-_cauchy_cdf(-z)) if z > 0.0 else math.log(_cauchy_cdf(z))


@_standard("cauchit")
class Cauchit(Spec):
    """h(z) = ½ + arctan(z)/π, the Cauchy distribution function."""

    def value(self, z: float) -> float:
        return _cauchy_cdf(z)

    def derivative(self, z: float) -> float:
        return 1.0 / (math.pi * (1.0 + z * z))

    def inverse(self, z: float) -> float:
        if z < 0.25:
            return -1.0 / math.tan(math.pi * z)
        if z > 0.75:
            return 1.0 / math.tan(math.pi * (1.0 - z))
        return math.tan(math.pi * (z - 0.5))

    def log_value(self, z: float) -> float:
        return _log_cauchy_cdf(z)

    def log_complement(self, z: float) -> float:
        return _log_cauchy_cdf(-z)


@register_jitable
def _exp(z: float) -> float:
    return math.exp(min(max(z, -LARGEST), LARGEST))


@_standard("cloglog")
class CLogLog(Spec):
    """h(z) = 1 − exp(−exp(z)); not symmetric."""

    def value(self, z: float) -> float:
        return -math.expm1(-_exp(z))

    def derivative(self, z: float) -> float:
        return math.exp(max(z - _exp(z), -LARGEST)) if z < 7.0 else 0.0

    def inverse(self, z: float) -> float:
        return math.log(-math.log1p(-z))

    def log_value(self, z: float) -> float:
        e = _exp(z)
        return z - 0.5 * e if z < -30.0 else math.log(-math.expm1(-e))

    def log_complement(self, z: float) -> float:
        return -_exp(z)


@_standard("log")
class Log(Spec):
    """h(z) = exp(z): a probability only for z ≤ 0; callers clip at 1."""

    def value(self, z: float) -> float:
        return _exp(z)

    def derivative(self, z: float) -> float:
        return _exp(z)

    def inverse(self, z: float) -> float:
        return math.log(z)

    def log_value(self, z: float) -> float:
        return z

    def log_complement(self, z: float) -> float:
        return math.nan if z >= 0.0 else math.log(-math.expm1(z))


@_standard("identity")
class Identity(Spec):
    """h(z) = z, for magnitudes."""

    def value(self, z: float) -> float:
        return z

    def derivative(self, z: float) -> float:
        return 1.0

    def inverse(self, z: float) -> float:
        return z

    def log_value(self, z: float) -> float:
        return math.log(z) if z > 0.0 else math.nan

    def log_complement(self, z: float) -> float:
        return math.log1p(-z) if z < 1.0 else math.nan


# ---------------------------------------------------------------------------------- any of the six


class StandardLink(Spec):
    """One of the six links by name.

    Parameters
    ----------
    name
        ``"logit"``, ``"probit"``, ``"cauchit"``, ``"cloglog"``, ``"log"`` or ``"identity"``.

    Examples
    --------
    >>> from zib.contextual import value
    >>> value(StandardLink(name="probit"), 0.0)
    0.5
    """

    name: str = choice(tuple(STANDARD))


def _by_number(part: str, number: int = 0) -> Function:
    """Return the function that goes through the six links until it comes to that of the number."""
    mine: Function = getattr(LINKS[tuple(STANDARD.values())[number]], part)
    if number == len(STANDARD) - 1:
        return mine
    others = _by_number(part, number + 1)

    def function(link: Any, z: float) -> float:
        return mine(link, z) if link.name == number else others(link, z)

    # Compiled functions of one name and signature are told apart by a number that each process
    # counts for itself. Code that two processes have kept could then be taken for one another.
    function.__qualname__ = function.__name__ = f"{part}_from_{number}"
    compilable: Function = register_jitable(function)
    return compilable


register_link(StandardLink, **{part: _by_number(part) for part in Link._fields})

IDENTITY = StandardLink(name="identity")


def resolve_link(link: Any, *, probability: bool = True) -> Any:
    """Return the link a policy holds: ours by number, a registered foreign one as it is.

    `probability` refuses the identity, which is no model of an occurrence.
    """
    found = link
    for name, kind in STANDARD.items():
        if isinstance(link, kind):
            found = StandardLink(name=name)
    names = tuple(STANDARD)[: -1 if probability else None]
    if isinstance(link, str) or (probability and found == IDENTITY):
        return StandardLink(name=names[check.choice("link", link, names)])
    LINKS.lookup(found, "link")
    return found


def link_parameter(link: Any) -> Any:
    """Return what a user would write for a link: its name if it is one of ours."""
    return link.parameters()["name"] if isinstance(link, StandardLink) else link
