"""Parameters declared once: constructor, errors, printing, equality and JSON follow from them.

    class ZITS(Spec):
        horizon: float = real(low=2)
        sigma: float = positive()
        rho: float = positive(default=0.9)
        unseen: float | str = number_or("pooled", default="pooled")
        label = "ZI-TS"

From these lines come the keyword-only constructor, its one-sentence errors, `repr`, equality,
hashing, pickling, `parameters` and the table of parameters in the documentation.

A `Spec` is a tuple of numbers and of other specs, because compiled code sees it: a choice such as
``radius="given_count"`` is stored as its position among the options, a word that stands for "no
number" as NaN. `parameters` turns them back into what the user wrote. A `Declared` is the same for
objects that compiled code does not see, such as environments and laws: it keeps what it is given.
"""

from __future__ import annotations

import inspect
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, dataclass_transform

import numpy as np

from zib.core import validate as check
from zib.core.validate import Closed, InvalidParameterError, InvalidTypeError

REQUIRED: Any = inspect.Parameter.empty


class Field(NamedTuple):
    """One declared parameter."""

    checked: Callable[[str, Any], Any]  # (name, what the user wrote) -> what is stored, or raises
    shown: Callable[[Any], Any]  # what is stored -> what the user wrote
    allowed: str  # the range in words, for errors and documentation
    default: Any = REQUIRED
    derived: Callable[[Mapping[str, Any]], Any] | None = None  # computed from the fields before it
    is_parameter: bool = True  # an argument of the constructor
    is_kept: bool = True  # False: an argument that only other fields follow from
    kw_only: bool = True  # False: may also be given by its place


def _same(value: Any) -> Any:
    return value


# --------------------------------------------------------------------------------- kinds of fields


def real(
    *,
    low: float = -math.inf,
    high: float = math.inf,
    closed: Closed = "both",
    default: Any = REQUIRED,
    kw_only: bool = True,
) -> Any:
    """Declare a finite number in an interval; with `kw_only` false it may be given by its place."""
    return Field(
        lambda name, value: check.real(name, value, low, high, closed),
        _same,
        f"number in {check.interval(low, high, closed)}",
        default,
        kw_only=kw_only,
    )


def positive(*, default: Any = REQUIRED) -> Any:
    """Declare a finite number > 0."""
    return real(low=0.0, closed="neither", default=default)


def whole(
    *,
    low: int | None = None,
    high: int | None = None,
    default: Any = REQUIRED,
    kw_only: bool = True,
) -> Any:
    """Declare a whole number."""
    return Field(
        lambda name, value: check.integer(name, value, low, high),
        int,  # what is stored may be a float: see `optional`
        f"whole number in [{'-inf' if low is None else low}, {'inf' if high is None else high}]",
        default,
        kw_only=kw_only,
    )


def choice(options: Sequence[str], *, default: Any = REQUIRED) -> Any:
    """Declare one of several words; a `Spec` stores its position."""
    return Field(
        lambda name, value: check.choice(name, value, options),
        lambda code: options[int(code)],
        "one of " + ", ".join(repr(option) for option in options),
        default,
    )


def word(options: Sequence[str], *, default: Any = REQUIRED) -> Any:
    """Declare one of several words that is stored as it is, for a `Declared`."""
    return choice(options, default=default)._replace(
        checked=lambda name, value: options[check.choice(name, value, options)], shown=_same
    )


def optional(inner: Any, *, default: Any = None) -> Any:
    """Declare a parameter that may be None; numbers store NaN for it.

    Whole numbers are stored as floats, so that compiled code sees one type. `default=REQUIRED`
    makes the user say None.
    """

    def checked(name: str, value: Any) -> Any:
        stored = math.nan if value is None else inner.checked(name, value)
        return float(stored) if isinstance(stored, int) else stored

    def shown(value: Any) -> Any:
        return None if isinstance(value, float) and math.isnan(value) else inner.shown(value)

    return Field(checked, shown, f"{inner.allowed}, or None", default)


def number_or(name_of_none: str, inner: Any = None, *, default: Any = REQUIRED) -> Any:
    """Declare a number or one word that stands for no number, stored as NaN."""
    number = real() if inner is None else inner

    def checked(name: str, value: Any) -> Any:
        if isinstance(value, str):
            if value == name_of_none:
                return math.nan
            raise InvalidParameterError(
                f"`{name}` must be {name_of_none!r} or a number; got {check.shown(value)}"
            )
        return number.checked(name, value)

    return Field(
        checked,
        lambda value: name_of_none if math.isnan(value) else value,
        f"{number.allowed}, or {name_of_none!r}",
        default,
    )


def converted(
    to_stored: Callable[[Any], Any],
    to_shown: Callable[[Any], Any] = _same,
    *,
    allowed: str,
    default: Any = REQUIRED,
    kw_only: bool = True,
) -> Any:
    """Declare a parameter with a check of its own; `to_stored` raises a one-sentence error."""
    return Field(lambda name, value: to_stored(value), to_shown, allowed, default, kw_only=kw_only)


def derived(function: Callable[[Mapping[str, Any]], Any], *, init: Literal[False] = False) -> Any:
    """Declare a number that follows from the fields before it; not a parameter."""
    return Field(lambda name, value: value, _same, "", None, function, is_parameter=False)


def combined(
    function: Callable[[Mapping[str, Any]], Any], *, allowed: str, default: Any = REQUIRED
) -> Any:
    """Declare a parameter whose stored value follows from it and from the fields before it."""
    return Field(lambda name, value: value, _same, allowed, default, function)


def argument(inner: Any = None, *, default: Any = None) -> Any:
    """Declare an argument that is not stored; `derived` and `combined` fields follow from it.

    Without `inner` they are handed what the user wrote, unchecked.
    """
    if inner is None:
        return Field(lambda name, value: value, _same, "", default, is_kept=False)
    return inner._replace(default=default, is_kept=False)


# -------------------------------------------------------------------------------- what all declare

KNOWN: dict[str, type] = {}  # every class with declared parameters, by the name it is saved under


def saved_name(kind: type) -> str:
    """Return the name a class is saved under; for our own, independent of the file it is in."""
    parts = kind.__module__.split(".")
    where = ".".join(parts[:2]) if parts[0] == "zib" else kind.__module__
    return f"{where}.{kind.__qualname__}"


class Fixed(type):
    """Metaclass of tuples with names: instances have no attributes besides, bases may be mixed."""

    def __new__(
        mcs, name: str, bases: tuple[type, ...], body: dict[str, Any], **kwargs: Any
    ) -> Any:
        """Create the class."""
        body.setdefault("__slots__", ())
        return super().__new__(mcs, name, bases, body, **kwargs)


class _Declares:
    """What `Spec` and `Declared` have in common."""

    __slots__ = ()

    declared: ClassVar[dict[str, Field]] = {}
    # A short name for figures and tables: a string, or a property where it depends on parameters.
    label: ClassVar[Any] = property(
        lambda self: getattr(self, "default_label", "") or type(self).__name__
    )

    def __init_subclass__(cls, positional: int = 0, **kwargs: Any) -> None:
        """Collect the fields of the class body; the first `positional` may be given in order."""
        super().__init_subclass__(**kwargs)
        own = {name: value for name, value in vars(cls).items() if isinstance(value, Field)}
        cls.declared = {**cls.declared, **own}
        cls._lay_out(own, positional)
        KNOWN[saved_name(cls)] = cls

    @classmethod
    def _lay_out(cls, own: Mapping[str, Field], positional: int) -> None:
        """Prepare the class to hold its fields."""
        cls.__signature__ = _signature(cls.declared, positional)  # type: ignore[attr-defined]
        for name in own:
            delattr(cls, name)

    @classmethod
    def _values(cls, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return what is stored for these arguments, or raise."""
        bound = _bound(cls, args, kwargs)
        out: dict[str, Any] = {}
        for name, field in cls.declared.items():
            if field.is_parameter:
                out[name] = _checked(name, field.allowed, field.checked, name, bound[name])
            if field.derived is not None and field.is_parameter:
                out[name] = _checked(name, field.allowed, field.derived, out)
            elif field.derived is not None:
                out[name] = field.derived(out)
        return {name: value for name, value in out.items() if cls.declared[name].is_kept}

    def check(self) -> None:
        """Raise unless the parameters, each allowed, go together; called by the constructor."""

    def parameters(self) -> dict[str, Any]:
        """Return the keyword arguments that rebuild this object."""
        return {
            name: field.shown(getattr(self, name))
            for name, field in self.declared.items()
            if field.is_parameter and field.is_kept
        }

    def _replace(self, **changes: Any) -> Any:
        return type(self)(**{**self.parameters(), **changes})

    def __repr__(self) -> str:
        inside = ", ".join(f"{name}={_code(value)}" for name, value in self.parameters().items())
        return f"{type(self).__name__}({inside})"

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return False
        mine, others = self.parameters(), other.parameters()
        return mine.keys() == others.keys() and all(_alike(mine[k], others[k]) for k in mine)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((type(self), tuple((k, _hashable(v)) for k, v in self.parameters().items())))

    def __reduce__(self) -> Any:
        return (_rebuild, (type(self), self.parameters()))


def _code(value: Any) -> str:
    """Return Python text that makes the value; ``inf`` alone would not."""
    return f"float('{value}')" if isinstance(value, float) and math.isinf(value) else repr(value)


def _checked(name: str, allowed: str, check_one: Callable[..., Any], *given: Any) -> Any:
    """Return what the check of a parameter returns; whatever it stumbles over is refused alike."""
    try:
        return check_one(*given)
    except InvalidParameterError:
        raise
    except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError) as error:
        value = given[-1][name] if isinstance(given[-1], dict) and len(given) == 1 else given[-1]
        raise InvalidTypeError(
            f"`{name}` must be {allowed or 'of another type'}; got {check.shown(value)}"
        ) from error


def _alike(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return np.array_equal(a, b)
    return bool(a == b)


def _hashable(value: Any) -> Any:
    return value.tobytes() if isinstance(value, np.ndarray) else value


def _rebuild(kind: type, parameters: dict[str, Any]) -> Any:
    return kind(**parameters)


def _signature(declared: Mapping[str, Field], positional: int) -> inspect.Signature:
    kinds = inspect.Parameter
    given = {name: field for name, field in declared.items() if field.is_parameter}
    parameters: list[inspect.Parameter] = []
    may_be_left_out = False
    for i, (name, field) in enumerate(given.items()):
        default = field.default
        by_place = i < positional or not field.kw_only
        if by_place and may_be_left_out and default is REQUIRED:
            default = None  # Python wants a default here; the check of the parameter refuses it
        may_be_left_out = may_be_left_out or default is not REQUIRED
        kind = kinds.POSITIONAL_OR_KEYWORD if by_place else kinds.KEYWORD_ONLY
        parameters.append(kinds(name, kind, default=default))
    return inspect.Signature(parameters)


def _bound(cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments by name, defaults filled in."""
    if not args and kwargs.keys() == cls.__signature__.parameters.keys():
        return kwargs  # nothing to look up; environments are built once per replication
    try:
        bound = cls.__signature__.bind(*args, **kwargs)
    except TypeError as error:
        raise TypeError(f"{cls.__name__}: {error}; it takes {cls.__signature__}") from None
    bound.apply_defaults()
    return dict(bound.arguments)


@dataclass_transform(
    kw_only_default=True,
    frozen_default=True,
    field_specifiers=(
        real,
        positive,
        whole,
        choice,
        word,
        optional,
        number_or,
        converted,
        derived,
        combined,
        argument,
    ),
)
class Spec(_Declares, tuple[Any, ...], metaclass=Fixed):
    """Base of specs: immutable parameters that compiled code sees.

    Declare fields in the class body (see the module). Override `check` for conditions that concern
    several parameters, and `label` for a name that depends on them.
    """

    # Compiled code cannot tell two empty tuples apart, so a spec without parameters has one entry
    # that says nothing.
    _fields: ClassVar[tuple[str, ...]] = ("unused",)
    _is_mixed_in: ClassVar[bool] = False

    @classmethod
    def _lay_out(cls, own: Mapping[str, Field], positional: int) -> None:
        tuples: list[Any] = [
            t for t in cls.__mro__ if "_fields" in vars(t) and not issubclass(t, _Declares)
        ]
        if tuples:  # the form before parameters were declared: `class Mine(Spec, SomeNamedTuple)`
            cls._fields, cls._is_mixed_in = tuples[0]._fields, True
            return
        super()._lay_out(own, positional)
        if cls.declared:
            cls._fields = tuple(name for name, field in cls.declared.items() if field.is_kept)
            for position, name in enumerate(cls._fields):
                setattr(cls, name, property(operator.itemgetter(position)))

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Check all parameters and store them."""
        if cls._is_mixed_in:
            return super().__new__(cls, *args, **kwargs)
        values = cls._values(args, kwargs)
        self = tuple.__new__(cls, tuple(values.values()) or (0.0,))
        self.check()
        return self

    def parameters(self) -> dict[str, Any]:
        """Return the keyword arguments that rebuild this spec."""
        return _mixed_in_parameters(self) if self._is_mixed_in else super().parameters()

    def _asdict(self) -> dict[str, Any]:
        return dict(zip(self._fields, self, strict=True))

    @property
    def reward_range(self) -> tuple[float, float]:
        """The rewards this policy is meant for; the online object refuses others."""
        return (-math.inf, math.inf)

    @property
    def reward_values(self) -> tuple[float, ...] | None:
        """All rewards there are, ascending; None: any within `reward_range`."""
        return None


def _mixed_in_parameters(spec: Any) -> dict[str, Any]:
    out: dict[str, Any] = {}
    choices, words = getattr(spec, "choices", {}), getattr(spec, "words", {})
    for name, value in spec._asdict().items():
        if name in choices:
            out[name] = choices[name][int(value)]
        elif name in words and math.isnan(value):
            out[name] = words[name]
        else:
            out[name] = value
    return out


@dataclass_transform(
    frozen_default=True,
    field_specifiers=(
        real,
        positive,
        whole,
        choice,
        word,
        optional,
        number_or,
        converted,
        derived,
        combined,
        argument,
    ),
)
class Declared(_Declares):
    """Base of objects with declared parameters that compiled code does not see."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        for name, value in self._values(args, kwargs).items():
            object.__setattr__(self, name, value)
        self.check()

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__} cannot be changed; make a new one")


def parameters_of(spec: Any) -> dict[str, Any]:
    """Return the parameters of any registered spec, also of one that does not use `Spec`."""
    return spec.parameters() if isinstance(spec, _Declares) else dict(spec._asdict())


def label_of(spec: Any) -> str:
    """Return a short name for any registered spec."""
    return spec.label if isinstance(spec, _Declares) else type(spec).__name__


def parameter_table(kind: type) -> str:
    """Return the parameters of a class as a Markdown table: name, range, default."""
    lines = ["| parameter | allowed | default |", "|---|---|---|"]
    for name, field in kind.declared.items():  # type: ignore[attr-defined]
        if field.is_parameter:
            default = "required" if field.default is REQUIRED else f"`{field.default!r}`"
            lines.append(f"| `{name}` | {field.allowed} | {default} |")
    return "\n".join(lines)
