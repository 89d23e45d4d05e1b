"""From a table of the study file to the environment or policy it describes."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import zib
import zib.cases.loan
from zib.contextual.links import LINKS
from zib.contextual.policy import POLICIES
from zib.core.kernel import REGISTRY
from zib.core.toml import as_table, check_keys, joined, suggestion
from zib.core.validate import InvalidParameterError, shown

Makers = Mapping[str, Callable[..., Any]]

TAILS = ("SubExponential", "SubGaussian", "SubWeibull")
MODELS = ("GLMModel", "Huber", "LeastSquares", "MedianOfMeans", "Ridge")
NONE = "none"  # TOML has no word for Python's None


class StudyError(InvalidParameterError):
    """A study file that cannot be run; the message says where and what is wrong."""


class Shelf(NamedTuple):
    """What may stand at one place of the file.

    Attributes
    ----------
    what
        The kind of thing, in words.
    kinds
        What can be made there, by public name.
    parts
        What can be made inside it: tails, links, laws, a policy in a wrapper.
    elsewhere
        Names that exist but do not belong there, with the reason.
    """

    what: str
    kinds: Makers
    parts: Makers
    elsewhere: Mapping[str, str]

    @property
    def inside(self) -> Shelf:
        """The shelf for what is nested in a thing from this one."""
        return Shelf("part", self.parts, self.parts, {})

    def find(self, name: object, place: str) -> Callable[..., Any]:
        """Return what makes `name`, or raise with a suggestion."""
        if not isinstance(name, str):
            raise StudyError(f"{place}: `kind` must be a name in quotes; got {shown(name)}")
        if name in self.kinds:
            return self.kinds[name]
        if name in self.elsewhere:
            raise StudyError(f"{place}: {name} {self.elsewhere[name]}")
        raise StudyError(f"{place}: there is no {self.what} {name!r}{suggestion(name, self.kinds)}")


def _public(module: ModuleType, wanted: Callable[[Any], bool]) -> dict[str, Any]:
    found = {name: getattr(module, name) for name in module.__all__}
    return {name: thing for name, thing in found.items() if wanted(thing)}


def environments() -> Shelf:
    """Return what can stand under ``[environments.…]``."""
    law_type = zib.env.Law
    laws = _public(
        zib.env,
        lambda thing: (
            isinstance(thing, type) and issubclass(thing, law_type) and thing is not law_type
        ),
    )
    kinds: dict[str, Any] = {}
    for room in (zib.env, zib.cases.loan):
        kinds |= _public(
            room,
            lambda thing: (
                isinstance(thing, type)
                and hasattr(thing, "instance")
                and bool(getattr(thing, "declared", True))  # else what several have in common
            ),
        )
    reason = (
        "is a law of rewards, not an environment; use it inside one, as in "
        '{ kind = "MAB", laws = […] }'
    )
    return Shelf("environment", kinds, {**laws, **kinds}, dict.fromkeys(laws, reason))


def policies(contextual: bool) -> Shelf:
    """Return what can stand under ``[policies.…]`` of a study with or without features."""
    by_arm = _public(zib.mab, lambda thing: thing in REGISTRY)
    by_features = _public(zib.contextual, lambda thing: thing in POLICIES)
    parts = {name: getattr(zib.mab, name) for name in TAILS}
    models = {name: getattr(zib.contextual, name) for name in MODELS}
    models |= _public(zib.contextual, lambda thing: thing in LINKS)
    if contextual:
        kinds, inside, others = by_features, {**models, **by_features}, by_arm
        reason = (
            "is a policy without features, and the environments of this study are contextual; "
            "write one study for each"
        )
    else:
        kinds, inside, others = by_arm, {**parts, **by_arm}, by_features
        reason = (
            "is a contextual policy, and the environments of this study have no features; "
            "write one study for each"
        )
    elsewhere = {name: reason for name in others if name not in kinds}
    for name in (*parts, *models):
        elsewhere.setdefault(name, "is a part of policies, not a policy")
    return Shelf("policy", kinds, inside, elsewhere)


# ----------------------------------------------------------------------------------------- building


class Given(NamedTuple):
    """What the file need not say: the folder its paths start from, and values by parameter."""

    folder: Path
    values: Mapping[str, Any]


def build(table: object, place: str, shelf: Shelf, given: Given) -> Any:
    """Return what `table` describes: ``kind`` names it, the other keys are its parameters.

    Parameters
    ----------
    table
        The table as it was read.
    place
        Where it stands in the file, for messages.
    shelf
        What may stand there.
    given
        Values for parameters that the maker wants and the table does not give.
    """
    content = dict(as_table(table, place))
    if "kind" not in content:
        raise StudyError(f'{place}: the `kind` of this {shelf.what} is missing, kind = "NAME"')
    name = content.pop("kind")
    make = shelf.find(name, place)
    wanted = parameters_of(make)
    # `kind` is taken: a parameter of that name is written `kind_`
    written = {"kind_" if key == "kind" else key: key for key in wanted}
    unknown = [key for key in content if key not in written]
    if unknown:
        raise StudyError(
            f"{place}: {unknown[0]!r} is not a parameter of {name}{suggestion(unknown[0], written)}"
        )
    # the wrapper for unknown horizons starts with a short one of its own
    passed = Given(given.folder, {} if name == "Anytime" else given.values)
    arguments = {
        written[key]: _value(value, joined(place, key), wanted[written[key]], shelf, passed)
        for key, value in content.items()
    }
    required = [key for key, each in wanted.items() if each.default is inspect.Parameter.empty]
    for key in required:
        if key not in arguments and key in given.values:
            arguments[key] = given.values[key]
    missing = [f"`{key}`" for key in required if key not in arguments]
    if missing:
        raise StudyError(f"{place}: {name} needs {' and '.join(missing)}")
    return _made(make, arguments, name, place)


def parameters_of(make: Any) -> dict[str, inspect.Parameter]:
    """Return the parameters of a maker; annotations of declared ones are those of the class."""
    if getattr(make, "_is_mixed_in", False):  # checks them in `__new__` instead of declaring them
        _, *wanted = inspect.signature(make.__new__).parameters.values()
        return {each.name: each for each in wanted}
    hints: dict[str, Any] = {}
    for kind in reversed(getattr(make, "__mro__", ())):
        hints |= inspect.get_annotations(kind)
    return {
        name: each
        if each.annotation is not each.empty
        else each.replace(annotation=hints.get(name, ""))
        for name, each in inspect.signature(make).parameters.items()
    }


def _made(make: Any, arguments: dict[str, Any], name: str, place: str) -> Any:
    try:
        return make(**arguments)
    except InvalidParameterError as error:
        raise StudyError(f"{place}: {error}") from error
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise StudyError(f"{place}: {name} cannot be made of these values ({error})") from error


def _value(value: Any, place: str, parameter: inspect.Parameter, shelf: Shelf, given: Given) -> Any:
    if parameter.name == "log":
        return read_log(value, place, given.folder)
    if value == NONE and "None" in str(parameter.annotation):
        return None
    return _nested(value, place, shelf, given)


def _nested(value: Any, place: str, shelf: Shelf, given: Given) -> Any:
    if isinstance(value, Mapping):
        return build(value, place, shelf.inside, given)
    if isinstance(value, list):
        return [_nested(item, f"{place}[{i}]", shelf, given) for i, item in enumerate(value)]
    return value


# -------------------------------------------------------------------------------------------- logs


def read_log(table: object, place: str, folder: Path) -> Any:
    """Return the log in a file, described by ``{ file = "…", arm = "…", reward = "…" }``."""
    from zib.logs import LoggedData
    from zib.logs.log import Roles

    content = dict(as_table(table, place))
    check_keys(content, place, ("file", *Roles.__annotations__))
    for key in ("file", "arm", "reward"):
        if not isinstance(content.get(key), str):
            got = f"got {content[key]!r}" if key in content else "it is missing"
            raise StudyError(f"{place}: `{key}` must be a text in quotes; {got}")
    path = folder / content.pop("file")
    return _made(lambda **columns: LoggedData.read(path, **columns), content, "a log", place)


def log_digests(value: object, folder: Path) -> dict[str, str]:
    """Return SHA-256 sums of all log files that tables in `value` name, by the name used there."""
    if isinstance(value, list):
        value = dict(enumerate(value))
    if not isinstance(value, Mapping):
        return {}
    found: dict[str, str] = {}
    log = value.get("log")
    if isinstance(log, Mapping) and isinstance(log.get("file"), str):
        found[log["file"]] = _digest(folder / log["file"])
    for item in value.values():
        found |= log_digests(item, folder)
    return found


def _digest(path: Path) -> str:
    if path.is_dir():
        parts = (_digest(file) for file in sorted(path.rglob("*")) if file.is_file())
        return hashlib.sha256("".join(parts).encode()).hexdigest()
    with path.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
