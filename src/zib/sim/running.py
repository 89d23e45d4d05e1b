"""Whether a loaded module still is what its file says.

A file that is edited after a process imported it no longer describes what the process runs. Files
of zib are compared as a whole; of a user's module nothing is left after the import but its
functions and constants, so these are compared with what the file would give now.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from functools import cache, cached_property, partial
from types import CodeType, FunctionType, ModuleType
from typing import Any


def difference(loaded: ModuleType, text: bytes | str) -> str | None:
    """Return the name of something in a module that `text` does not define so; None if all agree.

    Comments and layout do not count. Only what came from the module's file is looked at: functions
    and methods, also behind decorators, and names that are bound to a literal once.
    """
    tree = ast.parse(text)
    for name, value in _literals(tree).items():
        now = vars(loaded).get(name, value)
        if type(now) is not type(value) or now != value:
            return name
    written = {_meaning(code) for code in _codes(compile(tree, "", "exec", dont_inherit=True))}
    for function in _functions(loaded):
        if _meaning(function.__code__) not in written:
            return function.__qualname__
    return None


def _literals(tree: ast.Module) -> dict[str, Any]:
    """Return the names that are bound at the top of a module once, to a literal, and never else."""
    bound: dict[str, list[ast.expr | None]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Global):
            for name in node.names:
                bound.setdefault(name, []).append(None)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
            bound.setdefault(node.id, []).append(None)
    found = {}
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target, value = statement.targets[0], statement.value
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            target, value = statement.target, statement.value
        else:
            continue
        if isinstance(target, ast.Name) and len(bound[target.id]) == 1:
            try:
                found[target.id] = ast.literal_eval(value)
            except ValueError:
                continue
    return found


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _meaning(code: CodeType) -> tuple[Any, ...]:
    """Return what a function does, without its file and its lines."""
    constants = tuple(
        _meaning(x) if isinstance(x, CodeType) else (type(x), repr(x) if x != x else x)
        for x in code.co_consts
    )
    places = (code.co_varnames, code.co_freevars, code.co_cellvars)
    return code.co_qualname, code.co_code, code.co_names, places, constants


def _functions(loaded: ModuleType) -> Iterator[FunctionType]:
    """Yield the functions and methods of a module that were written in its file."""
    here = _place(loaded.__file__ or "")
    waiting = list(vars(loaded).values())
    seen: set[int] = set()
    while waiting:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, type):
            if value.__module__ == loaded.__name__:
                waiting += vars(value).values()
        elif not isinstance(value, ModuleType):
            if isinstance(value, FunctionType) and _place(value.__code__.co_filename) == here:
                yield value
            waiting += _inside(value)


@cache
def _place(file: str) -> str:
    return os.path.realpath(file)


def _inside(value: object) -> tuple[object, ...]:
    """Return the functions that a decorator or a compiler has wrapped."""
    if isinstance(value, property):
        return value.fget, value.fset, value.fdel
    if isinstance(value, staticmethod | classmethod):
        return (value.__func__,)
    if isinstance(value, partial | cached_property):
        return (value.func,)
    kept = getattr(value, "__dict__", None)
    return (kept.get("__wrapped__"), kept.get("py_func")) if type(kept) is dict else ()
