"""A policy from a line of text: ``ZIIMED(sigma=1)``, or ``my_policy.py:MyPolicy(width=2)``.

What can be named and with which parameters is the same as in a study file (`zib.studies.build`).
"""

from __future__ import annotations

import ast
import importlib.util
import sys
from pathlib import Path
from typing import Any, NamedTuple

from zib.contextual.policy import POLICIES
from zib.core.kernel import REGISTRY
from zib.core.spec import label_of
from zib.core.validate import shown
from zib.studies.build import NONE, Given, Shelf, StudyError, build, parameters_of, policies

ROOMS = ("mab", "contextual")


class Named(NamedTuple):
    """A policy by the text that names it.

    Attributes
    ----------
    text
        What the user wrote.
    what
        The table of a study file that says the same, or a policy or function as it is.
    shelf
        Where names are looked up.
    """

    text: str
    what: Any
    shelf: Shelf | None

    def for_world(self, horizon: int, n_arms: int) -> Any:
        """Return the policy for this horizon and number of arms, where it asks for them."""
        if self.shelf is None:
            return self.what
        values = {"horizon": horizon, "n_arms": n_arms}
        return build(self.what, self.text, self.shelf, Given(Path(), values))

    @property
    def label(self) -> str:
        """A short name for tables: the label of the policy, or what the user wrote in detail."""
        if self.text.endswith(")"):
            return self.text.rpartition(".py:")[2]
        made = self.for_world(1_000, 2)
        if type(made) in REGISTRY or type(made) in POLICIES:
            return label_of(made)
        return str(getattr(made, "__name__", self.text))

    @property
    def is_policy(self) -> bool:
        """Whether this is a policy, and not a function that returns one."""
        return self.shelf is not None or type(self.what) in REGISTRY or type(self.what) in POLICIES


def named(text: str) -> Named:
    """Return the policy that a line of text names, or raise `StudyError` with one sentence.

    Parameters
    ----------
    text
        ``NAME``, ``NAME(parameter=value, ...)``, the same after ``contextual.`` for a policy that
        sees features, or after ``FILE.py:`` for one of your own. In a file the name may also be
        that of a function of a `zib.arena.World` that returns a policy.

    Examples
    --------
    >>> named("ZITS(sigma=2)").for_world(1000, 10).horizon
    1000.0
    >>> named("Discounted(ZIPosterior(), 500)").label
    'Discounted(ZIPosterior(), 500)'
    """
    file, colon, name = text.rpartition(":")
    if colon and file.endswith(".py"):
        return _from_file(text, Path(file), name)
    expression = _parsed(text, text)
    room = _room(expression)
    shelf = policies(contextual=room == "contextual")
    if room is None and _head(expression) not in shelf.kinds:
        other = policies(contextual=True)
        shelf = other if _head(expression) in other.kinds else shelf
    found = Named(text, _table(expression, text, shelf), shelf)
    found.for_world(1_000, 2)  # raises where it cannot be made
    return found


def _parsed(code: str, text: str) -> ast.expr:
    try:
        return ast.parse(code.strip(), mode="eval").body
    except (SyntaxError, ValueError):
        raise StudyError(
            f"`policy` must be NAME, NAME(parameter=value, ...) or FILE.py:NAME; got {shown(text)}"
        ) from None


def _head(expression: ast.expr) -> str:
    """Return the name of what is called."""
    called = expression.func if isinstance(expression, ast.Call) else expression
    if isinstance(called, ast.Attribute):
        return called.attr
    return called.id if isinstance(called, ast.Name) else ""


def _room(expression: ast.expr) -> str | None:
    called = expression.func if isinstance(expression, ast.Call) else expression
    if not isinstance(called, ast.Attribute):
        return None
    before = called.value
    name = before.attr if isinstance(before, ast.Attribute) else getattr(before, "id", "")
    return name if name in ROOMS else None


def _table(expression: ast.expr, text: str, shelf: Shelf) -> dict[str, Any]:
    """Return the table of a study file that says the same."""
    name = _head(expression)
    if not name:
        raise StudyError(f"`policy` must start with a name; got {shown(text)}")
    if not isinstance(expression, ast.Call):
        return {"kind": name}
    make = shelf.find(name, text)
    known = list(parameters_of(make))
    if len(expression.args) > len(known):
        raise StudyError(f"{text}: {name} has {len(known)} parameters; got {len(expression.args)}")
    given: dict[str | None, ast.expr] = dict(zip(known, expression.args))
    given |= {each.arg: each.value for each in expression.keywords}
    table: dict[str, Any] = {"kind": name}
    for key, value in given.items():
        if key is None:
            raise StudyError(f"{text}: parameters must be written as name=value; got **")
        table["kind_" if key == "kind" else key] = _value(value, text, shelf.inside)
    return table


def _value(value: ast.expr, text: str, shelf: Shelf) -> Any:
    if isinstance(value, ast.Call):
        return _table(value, text, shelf)
    if isinstance(value, (ast.List, ast.Tuple)):
        return [_value(item, text, shelf) for item in value.elts]
    if isinstance(value, ast.Name) and value.id in ("inf", "nan"):
        return float(value.id)
    try:
        found = ast.literal_eval(value)
    except ValueError:
        written = ast.unparse(value)
        raise StudyError(
            f"{text}: values must be numbers, words in quotes or policies; got {shown(written)}"
        ) from None
    return NONE if found is None else found


def _from_file(text: str, path: Path, name: str) -> Named:
    expression = _parsed(name, text)
    thing = getattr(_module(path), _head(expression) or name, None)
    if thing is None:
        raise StudyError(f"`policy` must name something in {path}; it has no {shown(name)}")
    if isinstance(thing, type) and (thing in REGISTRY or thing in POLICIES):
        every = policies(contextual=thing in POLICIES)
        shelf = Shelf("policy", {thing.__name__: thing}, every.parts, {})
        found = Named(text, _table(expression, text, shelf), shelf)
        found.for_world(1_000, 2)
        return found
    if type(thing) in REGISTRY or type(thing) in POLICIES or callable(thing):
        if isinstance(expression, ast.Call):
            raise StudyError(f"{text}: parameters belong to a class of policies; {name} is none")
        return Named(text, thing, None)
    raise StudyError(
        f"`policy` must be a policy, or a function that returns one for a world; got {shown(thing)}"
    )


def _module(path: Path) -> Any:
    """Import a file of the user's."""
    if not path.is_file():
        raise StudyError(f"`policy` must name a file that exists; got {str(path)!r}")
    name = f"zib_user_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        sys.modules.pop(name, None)
        raise StudyError(f"{path} cannot be imported: {type(error).__name__}: {error}") from error
    return module
