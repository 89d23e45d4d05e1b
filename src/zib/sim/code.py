"""Which code a result depends on, as one hash: comments and layout do not count, all else does.

From the modules that play, imports are followed as they are written in the sources, also those
inside functions. `from zib.mab import ZIUCB` leads to the file that defines `ZIUCB`, not to all of
`zib.mab`, so an edit of one policy does not touch the results of another.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import importlib.util
import json
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from zib.core import cache as _cache
from zib.core.saved import write_atomically
from zib.core.validate import InvalidParameterError
from zib.sim.running import difference

ROOT = Path(_cache.__file__).parent.parent
MEMORY = f"code-{sys.version_info.major}.{sys.version_info.minor}.json"  # `ast` changes with Python


class CannotBeStored(InvalidParameterError):
    """Something whose code or content cannot be named exactly; a store must not hold it."""


class EditedSources(CannotBeStored):
    """Files are no longer what this process runs."""


class Source(NamedTuple):
    """One file: the hash of its code, and what it imports as (bound name, module, name)."""

    digest: str
    imports: tuple[tuple[str, str, str], ...]


# ------------------------------------------------------------------------------------- one file


def parse(text: bytes | str, package: str) -> Source:
    """Return the hash of the code without docstrings, and the imports, of one file.

    Examples
    --------
    >>> one = parse('def f(x):  # a comment\\n    "A docstring."\\n    return x + 1', "p")
    >>> two = parse("def f(x):\\n    return (x + 1)", "p")
    >>> one.digest == two.digest, one.digest == parse("def f(x): return x + 2", "p").digest
    (True, False)
    >>> parse("from .a import b", "p").imports
    (('b', 'p.a', 'b'),)
    """
    tree = ast.parse(text)
    imports = tuple(sorted(set(_imports(tree, package))))
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            body = node.body
            if body and isinstance(body[0], ast.Expr) and _is_text(body[0].value):
                node.body = body[1:]
    return Source(hashlib.sha256(ast.dump(tree).encode()).hexdigest(), imports)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _imports(node: ast.AST, package: str) -> Iterator[tuple[str, str, str]]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield alias.asname or alias.name, alias.name, ""
    elif isinstance(node, ast.ImportFrom):
        module = node.module or ""
        if node.level:
            parents = package.split(".")[: len(package.split(".")) - node.level + 1]
            module = ".".join([*parents, module] if module else parents)
        for alias in node.names:
            yield alias.asname or alias.name, module, alias.name
    elif isinstance(node, ast.If) and _is_for_types(node.test):
        for other in node.orelse:
            yield from _imports(other, package)
    else:
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, ast.expr):  # no import can be inside an expression
                yield from _imports(child, package)


def _is_for_types(test: ast.expr) -> bool:
    name = test.id if isinstance(test, ast.Name) else getattr(test, "attr", "")
    return str(name).endswith("TYPE_CHECKING")


# -------------------------------------------------------------------------------- where files are


def _is_ours(module: str) -> bool:
    return module == "zib" or module.startswith("zib.")


@cache
def _file_of(module: str) -> Path | None:
    """Return the file of a module, or None if there is no such module."""
    if _is_ours(module):
        base = ROOT.joinpath(*module.split(".")[1:])
        found = (base / "__init__.py", base.with_suffix(".py"))
        return next((path for path in found if path.is_file()), None)
    loaded = sys.modules.get(module)
    origin = getattr(loaded, "__file__", None)
    if loaded is None:
        above = _file_of(module.rpartition(".")[0]) if "." in module else None
        if above is not None and above.name != "__init__.py":
            return None  # a name in a module; looking for it as a module would import that one
        try:
            spec = importlib.util.find_spec(module)
        except (ImportError, ValueError, AttributeError):
            return None
        origin = None if spec is None or not spec.has_location else spec.origin
    return Path(origin) if origin and Path(origin).is_file() else None


@cache
def _is_installed(package: str) -> bool:
    """Whether a package other than zib is an installed one, which its version stands for."""
    path = None if package == "zib" else _file_of(package)
    if path is None:
        return False
    folders = {sysconfig.get_paths()[name] for name in ("purelib", "platlib")}
    return any(path.is_relative_to(folder) for folder in folders) or bool(
        {"site-packages", "dist-packages"} & set(path.parts)
    )


def _version_of(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return str(getattr(sys.modules.get(package), "__version__", ""))


# --------------------------------------------------------------------------------- what is known


class _Known:
    """Parsed files of this package; they are remembered on disk too, by content."""

    def __init__(self) -> None:
        self.sources: dict[Path, Source] = {}
        self._disk: dict[str, Any] | None = None
        self._fresh = False

    def source(self, module: str, path: Path) -> Source:
        found = self.sources.get(path)
        if found is None:
            found = self.sources[path] = self._read(module, path)
        return found

    def _read(self, module: str, path: Path) -> Source:
        data = path.read_bytes()
        raw = hashlib.sha256(data).hexdigest()
        before = self._remembered().get(module)
        if before is not None and before[0] == raw:
            return Source(before[1], tuple((a, b, c) for a, b, c in before[2]))
        found = parse(data, _package_of(module, path))
        self._remembered()[module] = [raw, found.digest, [list(x) for x in found.imports]]
        self._fresh = True
        return found

    def _remembered(self) -> dict[str, Any]:
        if self._disk is None:
            self._disk = {}
            if _cache.FOLDER is not None:
                with contextlib.suppress(OSError, ValueError):
                    self._disk = json.loads((_cache.FOLDER / MEMORY).read_text())
        return self._disk

    def keep(self) -> None:
        """Write what was parsed anew, for the next process; it only saves time."""
        if self._fresh and _cache.FOLDER is not None:
            self._fresh = False
            with contextlib.suppress(OSError):
                write_atomically(_cache.FOLDER / MEMORY, json.dumps(self._disk))


_KNOWN = _Known()


def _package_of(module: str, path: Path) -> str:
    return module if path.name == "__init__.py" else module.rpartition(".")[0]


def _source(module: str, path: Path) -> Source:
    """Return the parsed file of a module; one from outside is read anew, for it can be reloaded."""
    if _is_ours(module):
        return _KNOWN.source(module, path)
    data = path.read_bytes()
    if path.suffix != ".py":  # compiled by somebody else: its bytes are its code
        return Source(hashlib.sha256(data).hexdigest(), ())
    loaded = sys.modules.get(module)
    differs = None if loaded is None else difference(loaded, data)
    if differs is not None:
        raise EditedSources(
            f"the file of the module {module!r} is not what this process runs ({differs!r} is "
            "another there); load it again, or start again, to use the store"
        )
    return parse(data, _package_of(module, path))


# -------------------------------------------------------------------------------------- closures


def _target(module: str, name: str) -> str:
    """Return the module that `from module import name` leads to; `name` is "" for `import`."""
    if not name or name == "*":
        return module
    if _file_of(f"{module}.{name}") is not None:
        return f"{module}.{name}"
    path = _file_of(module)
    if path is not None and path.name == "__init__.py":
        for bound, origin, original in _source(module, path).imports:
            if bound == name and (origin, original) != (module, name):
                return _target(origin, original)
    return module


def closure(modules: Iterable[str]) -> dict[str, str]:
    """Return hash or version of every module that the given ones depend on, themselves included.

    The standard library is left out. An installed package counts by its version, where a module
    outside zib needs it; those that zib needs are named in the plan.
    """
    found: dict[str, str] = {}
    waiting = [(module, "") for module in modules]
    while waiting:
        origin, name = waiting.pop()
        top = origin.partition(".")[0]
        if top in sys.stdlib_module_names and top != "__main__":
            continue
        if _is_installed(top):
            found[top] = _version_of(top)
            continue
        module = _target(origin, name)
        if module in found:
            continue
        path = _file_of(module)
        if path is None:
            if module in sys.modules:
                raise CannotBeStored(
                    f"`store` needs code that is in a file, and the module {module!r} has none; "
                    "put it into a .py file, or leave `store` out"
                )
            continue  # an import that is never made here, as of another operating system
        source = _source(module, path)
        found[module] = source.digest
        waiting += [
            (there, what)
            for _, there, what in source.imports
            if _is_ours(there) or not _is_ours(module)
        ]
    return found


@cache
def _check_ours(modules: frozenset[str]) -> None:
    """Look once for each set of modules whether the files of this package are what is running."""
    if _cache._hash_of_sources(frozenset()) != _cache.SOURCE_HASH:
        raise EditedSources(
            "the files of zib were edited after this process imported them; start again to use "
            "the store"
        )


def code_hash(modules: frozenset[str]) -> str:
    """Return one hash for the code that the given modules run.

    Raises
    ------
    CannotBeStored
        If a module has no source file, or if files were edited after this process imported them:
        then the files do not say what is running.
    """
    _check_ours(modules)
    content = closure(modules)
    _KNOWN.keep()
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
