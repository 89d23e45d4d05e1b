"""What makes up the name of a stored block: values as exact text, and the files of user modules.

Pickle would be shorter, but its bytes depend on the history of an object. Here what an object *is*
counts: its type, and the fields that make it up. Anything that cannot be described exactly is
refused: a store that mistook one environment for another would be worse than none.

Our own code counts as one hash of the modules involved (`zib.core.sources`). A user's module counts
by the code in its file, together with the modules of the user that it imports; installed packages
count by their versions.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import json
import sys
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from zib.core import sources
from zib.core.rng import generator_to_data
from zib.core.spec import parameters_of
from zib.core.validate import InvalidParameterError

_HEAP_TYPE = 1 << 9  # of `type.__flags__`: made by a class statement, not in C
_LONG = 64


class CannotBeStored(InvalidParameterError):
    """Something whose code or content cannot be named exactly; a store must not hold it."""


def hash_of(content: Any) -> str:
    """Return the SHA-256 of data for JSON."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), default=repr)
    return hashlib.sha256(text.encode()).hexdigest()


# ------------------------------------------------------------------------------------------ values


def fingerprint(value: Any) -> tuple[str, frozenset[str]]:
    """Return a hash of the content of `value`, and the modules whose code gives it its meaning.

    Examples
    --------
    >>> import zib
    >>> one, modules = fingerprint(zib.mab.UCB1(scale=2.0))
    >>> one == fingerprint(zib.mab.UCB1(scale=2.0))[0], "zib.mab.classics" in modules
    (True, True)
    >>> one == fingerprint(zib.mab.UCB1(scale=2.0000000000000004))[0]
    False
    """
    modules: set[str] = set()
    try:
        content = _described(value, modules)
    except RecursionError:
        raise _refused(value, "it contains itself") from None
    return hash_of(content), frozenset(modules)


def _refused(value: Any, why: str) -> CannotBeStored:
    kind = type(value)
    return CannotBeStored(
        f"`store` cannot name a {kind.__module__}.{kind.__qualname__} exactly ({why}); "
        "build it from numbers, arrays and plain objects"
    )


def _described(value: Any, modules: set[str]) -> Any:
    kind = type(value)
    if value is None or kind in (bool, int, str):
        return value
    if kind is float:
        return ["float", value.hex()]
    if kind in (tuple, list):
        if len(value) > _LONG and all(type(item) is float for item in value):
            return [kind.__name__, _array(np.array(value))]
        return [kind.__name__, *(_described(item, modules) for item in value)]
    if kind is dict:
        pairs = ([_described(k, modules), _described(v, modules)] for k, v in value.items())
        return ["dict", *_sorted(pairs)]
    if kind in (set, frozenset):
        return ["set", *_sorted(_described(item, modules) for item in value)]
    if kind is bytes:
        return ["bytes", hashlib.sha256(value).hexdigest()]
    if isinstance(value, np.ndarray) and kind is np.ndarray:
        if value.dtype.hasobject:
            items = [_described(item, modules) for item in value.ravel().tolist()]
            return ["objects", list(value.shape), items]
        return _array(value)
    if isinstance(value, np.generic):
        return ["scalar", _array(np.asarray(value))]
    if isinstance(value, np.dtype):
        return ["dtype", str(value)]
    if isinstance(value, np.random.Generator):
        return ["generator", generator_to_data(value)]
    return _described_by_type(value, modules)


def _array(value: np.ndarray[Any, Any]) -> list[Any]:
    content = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
    return ["array", value.dtype.str, list(value.shape), content]


def _sorted(items: Any) -> list[Any]:
    return sorted(items, key=json.dumps)


def _described_by_type(value: Any, modules: set[str]) -> Any:
    kind = type(value)
    if isinstance(value, type):
        return ["type", _named(value, modules)]
    if isinstance(value, (types.FunctionType, types.BuiltinFunctionType, types.MethodType)):
        return _function(value, modules)
    if isinstance(value, np.ufunc):
        return ["ufunc", value.__name__]
    if isinstance(value, functools.partial):
        parts = (value.func, value.args, value.keywords)
        return ["partial", *(_described(part, modules) for part in parts)]
    if hasattr(value, "py_func"):  # a function compiled by Numba
        return ["compiled", _function(value.py_func, modules)]
    if isinstance(value, Enum):
        return ["enum", _named(kind, modules), value.name]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        modules |= sources.modules_of(kind)  # kernels need not stand next to their spec
        return ["named", _named(kind, modules), _described(parameters_of(value), modules)]
    if is_dataclass(value):
        content = {field.name: getattr(value, field.name) for field in fields(value)}
        return ["dataclass", _named(kind, modules), _described(content, modules)]
    return ["object", _named(kind, modules), _described(_state(value), modules)]


def _named(kind: type, modules: set[str]) -> str:
    if kind.__module__ != "builtins":
        modules.add(kind.__module__)
    return f"{kind.__module__}.{kind.__qualname__}"


def _state(value: Any) -> Any:
    """Return what makes up an object, without what it only remembers (cached properties)."""
    kind = type(value)
    base = kind
    while base.__flags__ & _HEAP_TYPE and base.__base__ is not None:
        base = base.__base__
    own = hasattr(value, "__dict__") or any("__slots__" in vars(k) for k in kind.__mro__)
    if base is not object or not own:
        raise _refused(value, "its content is not in attributes")
    state = value.__getstate__()
    if isinstance(state, Mapping):
        remembered = {
            name
            for k in kind.__mro__
            for name, attribute in vars(k).items()
            if isinstance(attribute, functools.cached_property)
        }
        return {name: item for name, item in state.items() if name not in remembered}
    return state


def _function(value: Callable[..., Any], modules: set[str]) -> Any:
    if isinstance(value, types.MethodType):
        return ["method", _function(value.__func__, modules), _described(value.__self__, modules)]
    if not isinstance(value, types.FunctionType):
        return ["builtin", str(value.__module__), value.__qualname__]
    modules.add(value.__module__)
    cells = [cell.cell_contents for cell in value.__closure__ or ()]
    parts = (value.__defaults__, value.__kwdefaults__, cells)
    return [
        "function",
        f"{value.__module__}.{value.__qualname__}",
        _code(value.__code__),
        *(_described(part, modules) for part in parts),
    ]


def _code(code: types.CodeType) -> list[Any]:
    """Return the code itself: two lambdas of one line have the same name."""
    inner = [_constant(c) for c in code.co_consts]
    return [hashlib.sha256(code.co_code).hexdigest(), list(code.co_names), inner]


def _constant(value: Any) -> Any:
    if isinstance(value, types.CodeType):
        return _code(value)
    return sorted(map(repr, value)) if isinstance(value, frozenset) else repr(value)


# ------------------------------------------------------------------------------ modules of the user


def user_code(modules: Iterable[str]) -> dict[str, str]:
    """Return the hash, or version, of each module from outside zib that the given ones need.

    Imports are followed as they are written, also those inside functions. The standard library is
    left out, and so is what zib imports.
    """
    found: dict[str, str] = {}
    waiting = list(modules)
    while waiting:
        module = waiting.pop()
        top = module.partition(".")[0]
        if top == "zib" or (top in sys.stdlib_module_names and top != "__main__"):
            continue
        path = _file_of(module)
        if path is None:
            if module in sys.modules and not hasattr(sys.modules[module], "__path__"):
                raise CannotBeStored(
                    f"`store` needs code that is in a file, and the module {module!r} has none; "
                    "put it into a .py file"
                )
        elif {"site-packages", "dist-packages"} & set(path.parts):
            found[top] = _version_of(top)
        elif module not in found:
            found[module], imported = _met(module, path)
            waiting += imported
    return found


# The code of a module as it was when it was first met in this process: what is loaded, even if the
# file is edited later. Loading a module again gives it another `__spec__`.
_MET: dict[str, tuple[Any, str, tuple[str, ...]]] = {}


def _met(module: str, path: Path) -> tuple[str, tuple[str, ...]]:
    loaded = getattr(sys.modules.get(module), "__spec__", None)
    before = _MET.get(module)
    if before is None or before[0] is not loaded or module not in sys.modules:
        data = path.read_bytes()
        if path.suffix == ".py":
            package = module if path.name == "__init__.py" else module.rpartition(".")[0]
            names = sources.imported_names(data, package)
            imported = tuple(part for name in names for part in (name, name.rpartition(".")[0]))
            before = (loaded, sources.code_hash(data), imported)
        else:  # compiled by somebody else: its bytes are its code
            before = (loaded, hashlib.sha256(data).hexdigest(), ())
        _MET[module] = before
    return before[1:]


def _file_of(module: str) -> Path | None:
    """Return the file of a module; None if there is no such module or it has none."""
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
        origin = spec.origin if spec is not None and spec.has_location else None
    return Path(origin) if origin and Path(origin).is_file() else None


def _version_of(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return str(getattr(sys.modules.get(package), "__version__", ""))
