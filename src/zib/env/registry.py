"""What environments and laws declare, how they become plain data, and ids with a fixed meaning.

A law or an environment is a class with declared parameters (see `zib.core.spec`)::

    class Gaussian(Law, positional=2):
        mean: float = real()
        sigma: float = positive()

Its checks, ``repr``, equality, `to_dict` and `from_dict` follow, and the name of the class is all
that `from_dict` needs to know.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast, dataclass_transform

import numpy as np
from numpy.typing import NDArray

from zib.core import spec
from zib.core import validate as check
from zib.core.spec import REQUIRED, Declared, Field, positive, real, whole, word
from zib.core.validate import Closed, InvalidParameterError

if TYPE_CHECKING:
    from zib.env.laws import Law

Kind = Literal["subgaussian", "subexponential"]
Array = NDArray[np.float64]
Categories = NDArray[np.int64]

# ---------------------------------------------------------------------------------- kinds of fields


def _same(value: Any) -> Any:
    return value


def custom(
    checked: Callable[[str, Any], Any],
    *,
    allowed: str,
    shown: Callable[[Any], Any] = _same,
    default: Any = REQUIRED,
) -> Any:
    """Declare a parameter by its check, called with its name and what the user wrote."""
    return Field(checked, shown, allowed, default)


def frozen(values: Any) -> Array:
    """Return a float array that cannot be written to."""
    array = np.array(values, dtype=np.float64, order="C")
    array += 0.0  # no negative zeros
    array.flags.writeable = False
    return array


def read_only(array: Array) -> Array:
    """Return a view that cannot be written to."""
    view = array.view()
    view.flags.writeable = False
    return view


def _listed(values: Any) -> Any:
    known = (np.ndarray, str, bytes, set, frozenset, Mapping)  # without an order, or not numbers
    if isinstance(values, known) or not isinstance(values, Iterable):
        return values
    return list(values)


def as_tuple(array: Any) -> Any:
    """Return the numbers of an array as a tuple, of tuples where it has rows."""
    listed = array.tolist() if isinstance(array, np.ndarray) else array
    return tuple(map(as_tuple, listed)) if isinstance(listed, list) else listed


def sequence(
    low: float = -math.inf,
    high: float = math.inf,
    closed: Closed = "both",
    *,
    default: Any = REQUIRED,
) -> Any:
    """Declare numbers in an interval, kept as a tuple."""

    def checked(name: str, value: Any) -> tuple[float, ...]:
        return tuple(check.vector(name, _listed(value), low, high, closed).tolist())

    return Field(checked, _same, f"numbers in {check.interval(low, high, closed)}", default)


def vector(low: float = -math.inf, high: float = math.inf, closed: Closed = "both") -> Any:
    """Declare numbers in an interval, kept as an array that cannot be written to."""

    def checked(name: str, value: Any) -> Array:
        return frozen(check.vector(name, value, low, high, closed))

    return Field(checked, as_tuple, f"numbers in {check.interval(low, high, closed)}")


def matrix(bound: float = math.inf) -> Any:
    """Declare a matrix with entries in [−bound, bound], kept as an array, read only."""
    return Field(
        lambda name, value: frozen(checked_matrix(name, value, bound)),
        as_tuple,
        f"matrix of numbers in {check.interval(-bound, bound, 'both')}",
    )


def checked_matrix(name: str, values: object, bound: float = math.inf) -> Array:
    """Return `values` as a matrix with every entry in [−bound, bound], or raise."""
    array = np.ascontiguousarray(check.numbers(name, values)) + 0.0  # no negative zeros
    if array.ndim != 2 or array.size == 0:
        raise InvalidParameterError(
            f"`{name}` must be a non-empty two-dimensional array; got shape {array.shape}"
        )
    check.inside(name, array, -bound, bound)
    return array


def pair(
    low: float = -math.inf,
    high: float = math.inf,
    closed: Closed = "both",
    *,
    default: Any = REQUIRED,
) -> Any:
    """Declare an interval (low, high) inside another."""

    def checked(name: str, value: Any) -> tuple[float, float]:
        found = check.vector(name, value, low, high, closed)
        if found.size != 2 or found[0] > found[1]:
            raise InvalidParameterError(
                f"`{name}` must be a pair (low, high); got {check.shown(value)}"
            )
        return float(found[0]), float(found[1])

    return Field(
        checked, _same, f"pair (low, high) in {check.interval(low, high, closed)}", default
    )


def maybe(inner: Any, *, default: Any = None) -> Any:
    """Declare a parameter that may be None, which `check` of the class may replace."""
    return Field(
        lambda name, value: None if value is None else inner.checked(name, value),
        lambda value: None if value is None else inner.shown(value),
        f"{inner.allowed}, or None",
        default,
    )


def derived(function: Callable[[Mapping[str, Any]], Any], *, init: Literal[False] = False) -> Any:
    """Declare what follows from the parameters before it; `init` tells type checkers so."""
    return spec.derived(function, init=init)


def flag(*, default: Any = REQUIRED) -> Any:
    """Declare a yes or no."""
    return Field(check.flag, _same, "True or False", default)


def text(*, default: Any = REQUIRED) -> Any:
    """Declare any text."""
    return instance_of(str, "text", default=default)


def instance_of(kinds: type | tuple[type, ...], what: str, *, default: Any = REQUIRED) -> Any:
    """Declare an object of one of these types; `what` says which, for errors."""

    def checked(name: str, value: Any) -> Any:
        if not isinstance(value, kinds):
            raise InvalidParameterError(f"`{name}` must be {what}; got {check.shown(value)}")
        return value

    return Field(checked, _same, what, default)


# ------------------------------------------------------------------------------------- plain data


@dataclass_transform(
    frozen_default=True,
    field_specifiers=(
        real,
        positive,
        whole,
        word,
        derived,
        sequence,
        vector,
        matrix,
        pair,
        maybe,
        flag,
        text,
        instance_of,
        custom,
    ),
)
class Named(Declared):
    """Declared parameters that can be written as plain data and read back by name."""

    entry: ClassVar[str]  # the entry of the plain data that holds the name of the class
    known: ClassVar[dict[str, Callable[..., Any]]]  # classes by name
    _positional: ClassVar[int] = 0

    def __init_subclass__(cls, positional: int | None = None, **kwargs: Any) -> None:
        """Make the subclass known by its name; it takes as many parameters in order as its base."""
        if positional is not None:
            cls._positional = positional
        super().__init_subclass__(positional=cls._positional, **kwargs)
        if cls.declared and not cls.__name__.startswith("_"):
            cls.known[cls.__name__] = cls

    def to_dict(self) -> dict[str, Any]:
        """Return numbers, strings, lists and dicts only; see `from_dict` and `law_from_dict`."""
        plain = {name: _plain(value) for name, value in self.parameters().items()}
        return {self.entry: type(self).__name__, **plain}

    def _set(self, **values: Any) -> None:
        """Replace what is stored, for `check` only."""
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.declared:
            super().__setattr__(name, value)  # raises
        object.__setattr__(self, name, value)  # an attribute of a subclass

    # Copies between processes carry what was computed, such as the averages of a loan market.
    __reduce__ = object.__reduce__

    def __setstate__(self, state: dict[str, Any]) -> None:
        for value in state.values():
            if isinstance(value, np.ndarray):
                value.flags.writeable = False
        self.__dict__.update(state)


class Environment(Named):
    """What every environment has: `n_arms`, ``instance(rng)`` and its parameters.

    `instance` returns the environment of one replication. If it has ``sample(arm, rng, n)`` and
    `arm_means`, arms do not change; ``by_round = True`` promises ``round_block(rng, start, n)``
    instead, and `n_features` promises ``block(rng, n)``, rounds with features.
    """

    entry: ClassVar[str] = "environment"
    known: ClassVar[dict[str, Callable[..., Any]]] = {}

    if TYPE_CHECKING:
        # Only declared: a property in the class would stand in the way of a field `n_arms`.
        @property
        def n_arms(self) -> int:
            """Number of arms."""

    def instance(self, rng: np.random.Generator) -> Any:
        """Return the environment of one replication: itself, nothing is drawn."""
        return self


class ContextualEnvironment(Environment):
    """An environment whose rounds have features; see `zib.env.ContextualGLM`."""

    if TYPE_CHECKING:

        @property
        def n_actions(self) -> int:
            """The most actions of a round."""

        @property
        def n_features(self) -> tuple[int, int]:
            """Number of features of the magnitude and of the occurrence."""


def _plain(value: Any) -> Any:
    if isinstance(value, Named):
        return value.to_dict()
    return [_plain(item) for item in value] if isinstance(value, (tuple, list)) else value


def _revived(value: Any) -> Any:
    if isinstance(value, Mapping):
        return law_from_dict(value) if "kind" in value else from_dict(value)
    return [_revived(item) for item in value] if isinstance(value, list) else value


def _from_dict(data: Mapping[str, Any], family: type[Named]) -> Any:
    if not isinstance(data, Mapping):
        raise InvalidParameterError(f"`data` must be a mapping; got {check.shown(data)}")
    arguments = dict(data)
    name = arguments.pop(family.entry, None)
    if not isinstance(name, str) or name not in family.known:
        known = ", ".join(sorted(family.known))
        raise InvalidParameterError(
            f"`{family.entry}` in `data` must be one of {known}; got {check.shown(name)}"
        )
    try:
        return family.known[name](**{k: _revived(v) for k, v in arguments.items()})
    except InvalidParameterError:
        raise
    except TypeError:
        raise InvalidParameterError(
            f"`data` must hold the parameters of {name}; got {sorted(arguments)}"
        ) from None


def from_dict(data: Mapping[str, Any]) -> Environment:
    """Return the environment or generator that its `to_dict` described.

    Examples
    --------
    >>> from zib.env import ExponentialMAB
    >>> env = ExponentialMAB(means=[1, 2], probs=[0.5, 0.1])
    >>> from_dict(env.to_dict()) == env
    True
    """
    return cast("Environment", _from_dict(data, Environment))


def law_from_dict(data: Mapping[str, Any]) -> Law:
    """Return the law that `Law.to_dict` described.

    Examples
    --------
    >>> law_from_dict({"kind": "Gaussian", "mean": 1.0, "sigma": 2.0})
    Gaussian(mean=1.0, sigma=2.0)
    """
    from zib.env.laws import Law

    return cast("Law", _from_dict(data, Law))


# -------------------------------------------------------------------------------------------- ids

_IDS: dict[str, Callable[[], Environment]] = {}


def register_id(name: str, factory: Callable[[], Environment]) -> None:
    """Let `make` build an environment by this name; a name is never given to two environments."""
    check.words("name", [name])
    check.function("factory", factory)
    if name in _IDS:
        raise InvalidParameterError(f"`name` must be new; got {check.shown(name)}, which is taken")
    _IDS[name] = factory


def make(name: str) -> Environment:
    """Return the environment registered under a versioned id.

    An id never changes its meaning: a corrected setting gets the next version number.

    Examples
    --------
    >>> make("paper-mab-gaussian-p30-v1").probs
    (0.3, 0.35)
    >>> make("paper-contextual-mixture-s3-logit-v1").n_features
    (10, 10)
    """
    factory = _IDS.get(name) if isinstance(name, str) else None
    if factory is None:
        near = difflib.get_close_matches(check.shown(name), _IDS, n=1, cutoff=0.3)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise InvalidParameterError(
            f"`name` must be an id listed by zib.env.list_ids(); got {check.shown(name)}{hint}"
        )
    return factory()


def list_ids() -> list[str]:
    """Return every id that `make` knows."""
    return sorted(_IDS)
