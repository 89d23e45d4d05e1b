"""Where compiled code is kept between processes, and when it is used again.

Numba's own disk cache looks at the file a function is written in, and at nothing else. Our loops
call kernels from many files, so an edit of a kernel would find the old loop again, and an edited
docstring would find nothing. Here compiled code is kept under the code that it is made of (see
`zib.core.sources`): the modules of the function, of the specs it is compiled for, and all that they
import. An edit of one policy compiles that policy again.
"""

from __future__ import annotations

import hashlib
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numba import types
from numba.core import caching

from zib.core import sources

numba_config: Any = numba.config


def _usable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _choose_folder() -> Path | None:
    if not sources.is_cached():
        return None
    folder = sources.cache_folder()
    if _usable(folder):
        sources.sources()  # as they are now: what is compiled later is compiled from these
        return folder
    warnings.warn(
        f"zib cannot write its cache of compiled code to {folder}: each process will compile "
        "again. Set NUMBA_CACHE_DIR to a writable folder, or ZIB_CACHE=0 to silence this.",
        RuntimeWarning,
        stacklevel=2,
    )
    return None


FOLDER: Path | None = _choose_folder()


def made_from(function: Any, signature: Any) -> frozenset[str]:
    """Return the modules that compiled code of a function and these types comes from."""
    modules = {function.__module__}
    for kind in signature:
        for spec_type in _named_tuples(kind):
            modules |= sources.modules_of(spec_type)
    return frozenset(modules)


def _named_tuples(kind: Any) -> Iterator[type]:
    """Yield the classes of all named tuples, such as specs and states, inside a Numba type."""
    if hasattr(kind, "instance_class"):
        yield kind.instance_class
    inside = kind.field_dict.values() if isinstance(kind, types.StructRef) else ()
    for inner in (*getattr(kind, "types", ()), *inside):
        yield from _named_tuples(inner)


class Locator(caching._CacheLocator):
    """Tells Numba where the compiled code of a function is, and that it is fresh there."""

    def __init__(self, function: Any, file: str) -> None:
        self._py_file = file  # Numba names it in its own warnings
        code = sources.hash_of(frozenset({function.__module__}))
        self._path = str(Path(FOLDER or "", f"zib-{code}"))
        # functions of the same name are told apart by their code, not by their line, which wanders
        self._code = hashlib.sha256(function.__code__.co_code).hexdigest()[:8]

    @classmethod
    def from_function(cls, function: Any, file: str) -> Locator:
        """Return the locator of a function of ours."""
        return cls(function, file)

    def get_cache_path(self) -> str:
        """Return the folder, whose name says what the function is made of."""
        return self._path

    def get_source_stamp(self) -> str:
        """Return always the same: other code has another folder."""
        return ""

    def get_disambiguator(self) -> str:
        """Return what tells functions of the same name apart."""
        return self._code


class _Cache(caching.FunctionCache):
    """Keeps each signature under the code of the specs in it, too."""

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        code = sources.hash_of(made_from(self._py_func, sig))
        return (super()._index_key(sig, codegen), code)  # type: ignore[no-untyped-call]


@contextmanager
def _our_place() -> Iterator[None]:
    # Numba asks for the place when a function is decorated, so ours is in force only that long
    # and the caller's own cached functions stay where they were.
    locators = caching.CacheImpl._locator_classes
    chosen = getattr(numba_config, "CACHE_LOCATOR_CLASSES", "")
    caching.CacheImpl._locator_classes = [Locator]
    numba_config.CACHE_LOCATOR_CLASSES = ""
    try:
        yield
    finally:
        caching.CacheImpl._locator_classes = locators
        numba_config.CACHE_LOCATOR_CLASSES = chosen


def _can_be_kept(function: Any) -> bool:
    """Whether it is one of ours; the files of others are not watched."""
    return FOLDER is not None and function.__module__ in sources.sources()


def cached_njit(function: Callable[..., Any]) -> Any:
    """Compile `function` on first call, keep the result on disk, release the interpreter lock."""
    compiled: Any = numba.njit(nogil=True)(function)
    if _can_be_kept(function) and not numba_config.DISABLE_JIT:
        with _our_place():
            compiled._cache = _Cache(function)  # type: ignore[no-untyped-call]
    return compiled


def cached_ufunc(function: Callable[..., Any]) -> Any:
    """Turn a scalar formula into a NumPy universal function, compiled on first call."""
    if numba_config.DISABLE_JIT:
        return np.vectorize(function, otypes=[np.float64])
    if not _can_be_kept(function):
        return numba.vectorize()(function)
    with _our_place():
        return numba.vectorize(cache=True)(function)
