"""Which of our code something is made of, as one hash: for stored results and for compiled code.

Code counts as syntax trees, so comments, docstrings and layout do not. From the modules that
something names, imports are followed as they are written, also those inside functions. So an edit
of one policy changes what is made of that policy, and nothing else.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import json
import os
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple

import platformdirs

from zib.core import files
from zib.core.registry import Registry

ROOT = Path(__file__).parent.parent
REMEMBERED = 5_000  # parsed files; one is a line in a small file


class Source(NamedTuple):
    """One file: the hash of its code, and the names it imports, each with its module in front."""

    code: str
    imports: tuple[str, ...]


def code_hash(text: bytes | str) -> str:
    """Return a hash of the code in a file: comments, docstrings and layout do not count.

    Examples
    --------
    >>> one = code_hash('def f(x):  # a comment\\n    "A docstring."\\n    return x + 1')
    >>> one == code_hash("def f(x):\\n    return (x + 1)"), one == code_hash("def f(x): return x")
    (True, False)
    """
    tree = ast.parse(text)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [line for line in body if not _is_text(line)]  # type: ignore[attr-defined]
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()


def _is_text(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def imported_names(text: bytes | str, package: str) -> Iterator[str]:
    """Yield what a file of `package` imports, with the module in front: `zib.mab.tails.Tail`."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) + 1 - node.level]
            start = above if node.level else []
            module = ".".join([*start, *([node.module] if node.module else [])])
            yield from (f"{module}.{alias.name}" for alias in node.names)


# --------------------------------------------------------------------------------------- our files


def is_cached() -> bool:
    """Whether anything may be kept on disk between processes."""
    return os.environ.get("ZIB_CACHE", "1") != "0"


def cache_folder() -> Path:
    """Return the folder of what is kept between processes."""
    return Path(
        os.environ.get("NUMBA_CACHE_DIR") or platformdirs.user_cache_dir("zib", appauthor=False)
    )


@cache
def sources() -> dict[str, Source]:
    """Return our files by module, as they were when zib was imported.

    Later edits do not matter: they are not what this process runs. Parsing all files takes a
    second, so what was parsed is remembered on disk, by content.
    """
    memory = cache_folder() / f"zib-sources-{sys.version_info.major}.{sys.version_info.minor}.json"
    known = _remembered(memory) if is_cached() else {}
    used, found = {}, {}
    for path in sorted(ROOT.rglob("*.py")):
        data = path.read_bytes()
        parts = ["zib", *path.relative_to(ROOT).with_suffix("").parts]
        package = ".".join(parts[:-1])
        module = package if parts[-1] == "__init__" else ".".join(parts)
        name = hashlib.sha256(f"{package}\n".encode() + data).hexdigest()[:32]
        if name not in known:
            known[name] = [code_hash(data), sorted(set(imported_names(data, package)))]
            used = known
        found[module] = Source(known[name][0], tuple(known[name][1]))
    if used and is_cached():
        with contextlib.suppress(OSError):
            memory.parent.mkdir(mode=files.PRIVATE, parents=True, exist_ok=True)
            if files.distrusted(memory.parent) is None:
                text = json.dumps(dict(list(known.items())[-REMEMBERED:]))
                files.write_atomically(memory, text)
    return found


def _remembered(memory: Path) -> dict[str, Any]:
    """Return what was parsed before, by content; nothing if somebody else could have written it."""
    with contextlib.suppress(OSError, ValueError):
        known = json.loads(memory.read_text()) if files.distrusted(memory.parent) is None else {}
        whole = isinstance(known, dict) and all(_is_source(entry) for entry in known.values())
        return known if whole else {}
    return {}


def _is_source(entry: Any) -> bool:
    return (
        isinstance(entry, list)
        and len(entry) == 2
        and isinstance(entry[0], str)
        and isinstance(entry[1], list)
    )


@cache
def source_hash() -> str:
    """Return one hash of all our code."""
    return _hash(sources())


@cache
def made_of(modules: frozenset[str]) -> frozenset[str]:
    """Return our modules among the given ones, with all that they import."""
    table = sources()
    found: set[str] = set()
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        module = name if name in table else name.rpartition(".")[0]  # or a name in that module
        if module in table and module not in found:
            found.add(module)
            waiting += table[module].imports
    return frozenset(found)


@cache
def hash_of(modules: frozenset[str]) -> str:
    """Return one hash of the code of our modules among the given ones and of all they import."""
    table = sources()
    return _hash({module: table[module] for module in made_of(modules)})


def _hash(table: dict[str, Source]) -> str:
    lines = sorted(f"{module} {source.code}" for module, source in table.items())
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def modules_of(spec_type: type) -> set[str]:
    """Return the modules of a type of spec and of what is registered for it."""
    found = {spec_type.__module__}
    for registry in Registry.all:
        entry = registry.get(spec_type, ())
        for part in entry if isinstance(entry, tuple) else vars(entry).values():
            found.update(_modules_of_function(part))
    return found


def _modules_of_function(function: Any) -> Iterable[str]:
    """Yield the module of a function, and of the functions that it was made from."""
    function = getattr(function, "py_func", function)
    if isinstance(function, FunctionType):
        yield function.__module__
        for cell in function.__closure__ or ():
            yield from _modules_of_function(cell.cell_contents)
