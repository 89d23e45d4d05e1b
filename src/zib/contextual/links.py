"""The six links: logit, probit, cauchit, complementary log-log, log and identity.

`Logit`, `Probit`, `Cauchit`, `CLogLog` and `Log` turn a linear predictor z into a probability,
`Identity` leaves it alone. The formulas stay finite and keep their relative accuracy in both tails,
beyond |z| = 800. `StandardLink` is any one of the six by number: policies hold it, so that one
compilation serves all six.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, NamedTuple

from numba.extending import register_jitable

from zib.contextual.link import lookup_link, register_link
from zib.core import validate as check
from zib.core.spec import Spec

LARGEST = 700.0  # exp of more than 709 overflows


class _NoFields(NamedTuple):
    # compiled code cannot tell two empty tuples apart, so a link has one field that says nothing
    unused: float


class _Link(Spec):
    __slots__ = ()

    def parameters(self) -> dict[str, Any]:
        """Return nothing: these links have no parameters."""
        return {}


# ----------------------------------------------------------------------------------------- logit


class Logit(_Link, _NoFields):
    """h(z) = 1/(1 + exp(−z))."""

    __slots__ = ()

    def __new__(cls) -> Logit:
        """Take no parameters."""
        return super().__new__(cls, 0.0)


@register_jitable
def _logit_value(link: Any, z: float) -> float:
    if z >= 0.0:
        return 1.0 / (1.0 + math.exp(-z))
    e = math.exp(max(z, -LARGEST))
    return e / (1.0 + e)


@register_jitable
def _logit_derivative(link: Any, z: float) -> float:
    e = math.exp(-min(abs(z), LARGEST))
    return e / ((1.0 + e) * (1.0 + e))


@register_jitable
def _logit_inverse(link: Any, z: float) -> float:
    return math.log(z) - math.log1p(-z)


@register_jitable
def _softplus(z: float) -> float:
    return max(z, 0.0) + math.log1p(math.exp(-min(abs(z), LARGEST)))


@register_jitable
def _logit_log_value(link: Any, z: float) -> float:
    return -_softplus(-z)


@register_jitable
def _logit_log_complement(link: Any, z: float) -> float:
    return -_softplus(z)


register_link(
    Logit,
    value=_logit_value,
    derivative=_logit_derivative,
    inverse=_logit_inverse,
    log_value=_logit_log_value,
    log_complement=_logit_log_complement,
)


# ---------------------------------------------------------------------------------------- probit

ROOT_2 = math.sqrt(2.0)
ROOT_2_PI = math.sqrt(2.0 * math.pi)


class Probit(_Link, _NoFields):
    """h(z) = Φ(z), the standard normal distribution function."""

    __slots__ = ()

    def __new__(cls) -> Probit:
        """Take no parameters."""
        return super().__new__(cls, 0.0)


@register_jitable
def _probit_value(link: Any, z: float) -> float:
    return 0.5 * math.erfc(-z / ROOT_2)


@register_jitable
def _probit_derivative(link: Any, z: float) -> float:
    return math.exp(-min(0.5 * z * z, LARGEST)) / ROOT_2_PI if abs(z) < 40.0 else 0.0


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


@register_jitable
def _probit_inverse(link: Any, z: float) -> float:
    if z <= 0.5:
        return _normal_quantile(z)
    return -_normal_quantile(1.0 - z)


@register_jitable
def _probit_log_value(link: Any, z: float) -> float:
    return _log_normal_tail(z)


@register_jitable
def _probit_log_complement(link: Any, z: float) -> float:
    return _log_normal_tail(-z)


register_link(
    Probit,
    value=_probit_value,
    derivative=_probit_derivative,
    inverse=_probit_inverse,
    log_value=_probit_log_value,
    log_complement=_probit_log_complement,
)


# --------------------------------------------------------------------------------------- cauchit


class Cauchit(_Link, _NoFields):
    """h(z) = ½ + arctan(z)/π, the Cauchy distribution function."""

    __slots__ = ()

    def __new__(cls) -> Cauchit:
        """Take no parameters."""
        return super().__new__(cls, 0.0)


@register_jitable
def _cauchit_value(link: Any, z: float) -> float:
    if z < -1.0:
        return math.atan(-1.0 / z) / math.pi
    return 0.5 + math.atan(z) / math.pi


@register_jitable
def _cauchit_derivative(link: Any, z: float) -> float:
    return 1.0 / (math.pi * (1.0 + z * z))


@register_jitable
def _cauchit_inverse(link: Any, z: float) -> float:
    if z < 0.25:
        return -1.0 / math.tan(math.pi * z)
    if z > 0.75:
        return 1.0 / math.tan(math.pi * (1.0 - z))
    return math.tan(math.pi * (z - 0.5))


@register_jitable
def _cauchit_log_value(link: Any, z: float) -> float:
    if z > 0.0:
        return math.log1p(-_cauchit_value(link, -z))
    return math.log(_cauchit_value(link, z))


@register_jitable
def _cauchit_log_complement(link: Any, z: float) -> float:
    return _cauchit_log_value(link, -z)


register_link(
    Cauchit,
    value=_cauchit_value,
    derivative=_cauchit_derivative,
    inverse=_cauchit_inverse,
    log_value=_cauchit_log_value,
    log_complement=_cauchit_log_complement,
)


# ------------------------------------------------------------------------- complementary log-log


class CLogLog(_Link, _NoFields):
    """h(z) = 1 − exp(−exp(z)); not symmetric."""

    __slots__ = ()

    def __new__(cls) -> CLogLog:
        """Take no parameters."""
        return super().__new__(cls, 0.0)


@register_jitable
def _exp(z: float) -> float:
    return math.exp(min(max(z, -LARGEST), LARGEST))


@register_jitable
def _cloglog_value(link: Any, z: float) -> float:
    return -math.expm1(-_exp(z))


@register_jitable
def _cloglog_derivative(link: Any, z: float) -> float:
    return math.exp(max(z - _exp(z), -LARGEST)) if z < 7.0 else 0.0


@register_jitable
def _cloglog_inverse(link: Any, z: float) -> float:
    return math.log(-math.log1p(-z))


@register_jitable
def _cloglog_log_value(link: Any, z: float) -> float:
    e = _exp(z)
    if z < -30.0:
        return z - 0.5 * e
    return math.log(-math.expm1(-e))


@register_jitable
def _cloglog_log_complement(link: Any, z: float) -> float:
    return -_exp(z)


register_link(
    CLogLog,
    value=_cloglog_value,
    derivative=_cloglog_derivative,
    inverse=_cloglog_inverse,
    log_value=_cloglog_log_value,
    log_complement=_cloglog_log_complement,
)


# ------------------------------------------------------------------------------- log and identity


class Log(_Link, _NoFields):
    """h(z) = exp(z): a probability only for z ≤ 0; whoever uses it as one caps it at 1."""

    __slots__ = ()

    def __new__(cls) -> Log:
        """Take no parameters."""
        return super().__new__(cls, 0.0)


@register_jitable
def _log_link_value(link: Any, z: float) -> float:
    return _exp(z)


@register_jitable
def _log_link_inverse(link: Any, z: float) -> float:
    return math.log(z)


@register_jitable
def _log_link_log_value(link: Any, z: float) -> float:
    return z


@register_jitable
def _log_link_log_complement(link: Any, z: float) -> float:
    if z >= 0.0:
        return math.nan
    return math.log(-math.expm1(z))


register_link(
    Log,
    value=_log_link_value,
    derivative=_log_link_value,
    inverse=_log_link_inverse,
    log_value=_log_link_log_value,
    log_complement=_log_link_log_complement,
)


class Identity(_Link, _NoFields):
    """h(z) = z, for magnitudes."""

    __slots__ = ()

    def __new__(cls) -> Identity:
        """Take no parameters."""
        return super().__new__(cls, 0.0)


@register_jitable
def _identity_value(link: Any, z: float) -> float:
    return z


@register_jitable
def _identity_derivative(link: Any, z: float) -> float:
    return 1.0


@register_jitable
def _identity_log_value(link: Any, z: float) -> float:
    return math.log(z) if z > 0.0 else math.nan


@register_jitable
def _identity_log_complement(link: Any, z: float) -> float:
    return math.log1p(-z) if z < 1.0 else math.nan


register_link(
    Identity,
    value=_identity_value,
    derivative=_identity_derivative,
    inverse=_identity_value,
    log_value=_identity_log_value,
    log_complement=_identity_log_complement,
)


# ------------------------------------------------------------------------------- any of the six

LOGIT, PROBIT, CAUCHIT, CLOGLOG, LOG, IDENTITY = range(6)


class _StandardFields(NamedTuple):
    name: int


class StandardLink(Spec, _StandardFields):
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

    __slots__ = ()
    choices: ClassVar[dict[str, tuple[str, ...]]] = {
        "name": ("logit", "probit", "cauchit", "cloglog", "log", "identity")
    }

    def __new__(cls, *, name: str) -> StandardLink:
        """Take the name of a link."""
        return super().__new__(cls, check.choice("link", name, cls.choices["name"]))


_BY_TYPE: dict[type, str] = {
    Logit: "logit",
    Probit: "probit",
    Cauchit: "cauchit",
    CLogLog: "cloglog",
    Log: "log",
    Identity: "identity",
}


def resolve_link(link: Any, *, probability: bool = True) -> Any:
    """Return the link a policy holds: ours by number, a registered foreign one as it is.

    `probability` refuses the identity, which is no model of an occurrence.
    """
    if isinstance(link, str):
        found: Any = StandardLink(name=link)
    elif type(link) in _BY_TYPE:
        found = StandardLink(name=_BY_TYPE[type(link)])
    else:
        lookup_link(link)
        found = link
    if probability and found == StandardLink(name="identity"):
        allowed = ", ".join(repr(o) for o in StandardLink.choices["name"][:-1])
        raise check.InvalidParameterError(f"`link` must be one of {allowed}; got {link!r}")
    return found


def link_parameter(link: Any) -> Any:
    """Return what a user would write for a link: its name if it is one of ours."""
    return link.parameters()["name"] if isinstance(link, StandardLink) else link


@register_jitable
def _standard_value(link: Any, z: float) -> float:
    kind = link.name
    if kind == LOGIT:
        return _logit_value(link, z)
    if kind == PROBIT:
        return _probit_value(link, z)
    if kind == CAUCHIT:
        return _cauchit_value(link, z)
    if kind == CLOGLOG:
        return _cloglog_value(link, z)
    if kind == LOG:
        return _log_link_value(link, z)
    return _identity_value(link, z)


@register_jitable
def _standard_derivative(link: Any, z: float) -> float:
    kind = link.name
    if kind == LOGIT:
        return _logit_derivative(link, z)
    if kind == PROBIT:
        return _probit_derivative(link, z)
    if kind == CAUCHIT:
        return _cauchit_derivative(link, z)
    if kind == CLOGLOG:
        return _cloglog_derivative(link, z)
    if kind == LOG:
        return _log_link_value(link, z)
    return _identity_derivative(link, z)


@register_jitable
def _standard_inverse(link: Any, z: float) -> float:
    kind = link.name
    if kind == LOGIT:
        return _logit_inverse(link, z)
    if kind == PROBIT:
        return _probit_inverse(link, z)
    if kind == CAUCHIT:
        return _cauchit_inverse(link, z)
    if kind == CLOGLOG:
        return _cloglog_inverse(link, z)
    if kind == LOG:
        return _log_link_inverse(link, z)
    return _identity_value(link, z)


@register_jitable
def _standard_log_value(link: Any, z: float) -> float:
    kind = link.name
    if kind == LOGIT:
        return _logit_log_value(link, z)
    if kind == PROBIT:
        return _probit_log_value(link, z)
    if kind == CAUCHIT:
        return _cauchit_log_value(link, z)
    if kind == CLOGLOG:
        return _cloglog_log_value(link, z)
    if kind == LOG:
        return _log_link_log_value(link, z)
    return _identity_log_value(link, z)


@register_jitable
def _standard_log_complement(link: Any, z: float) -> float:
    kind = link.name
    if kind == LOGIT:
        return _logit_log_complement(link, z)
    if kind == PROBIT:
        return _probit_log_complement(link, z)
    if kind == CAUCHIT:
        return _cauchit_log_complement(link, z)
    if kind == CLOGLOG:
        return _cloglog_log_complement(link, z)
    if kind == LOG:
        return _log_link_log_complement(link, z)
    return _identity_log_complement(link, z)


register_link(
    StandardLink,
    value=_standard_value,
    derivative=_standard_derivative,
    inverse=_standard_inverse,
    log_value=_standard_log_value,
    log_complement=_standard_log_complement,
)
