"""Where compiled code is kept between processes, and when it is used again.

Numba's own disk cache looks at the file a function is written in, and at nothing else. Our loops
call kernels from many files, so an edit of a kernel would find the old loop again, and an edited
docstring would find nothing. Here compiled code is kept under the code that it is made of (see
`zib.core.sources`): the modules of the function, of the specs it is compiled for, and all that they
import. An edit of one policy compiles that policy again.
"""

from __future__ import annotations

import contextlib
import hashlib
import pickle
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

from zib.core import files, sources

numba_config: Any = numba.config


def _problem(folder: Path) -> str | None:
    """Return why compiled code cannot be kept here, or None if it can.

    What is kept is read with pickle, which can run any code, so nobody else may write it.
    """
    try:
        folder.mkdir(mode=files.PRIVATE, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
        return files.distrusted(folder)
    except OSError as error:
        return f"it cannot be written ({error.strerror or error})"


def _choose_folder() -> Path | None:
    if not sources.is_cached():
        return None
    folder = sources.cache_folder()
    problem = _problem(folder)
    if problem is None:
        sources.sources()  # as they are now: what is compiled later is compiled from these
        return folder
    warnings.warn(
        f"zib does not keep compiled code in {folder}: {problem}. Each process will compile again. "
        "Set NUMBA_CACHE_DIR to a folder that only you can write to (chmod 700), or ZIB_CACHE=0 to "
        "silence this.",
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

    def ensure_cache_path(self) -> None:
        """Make the folder, for the user only."""
        Path(self._path).mkdir(mode=files.PRIVATE, parents=True, exist_ok=True)

    def get_source_stamp(self) -> str:
        """Return always the same: other code has another folder."""
        return ""

    def get_disambiguator(self) -> str:
        """Return what tells functions of the same name apart."""
        return self._code


class Damaged(ValueError):
    """A file of the cache is not as it was written."""


class _SealedFiles(caching.IndexDataCacheFile):
    """Files with a checksum in front: what is not as it was written is not unpickled, nor run."""

    def _save_index(self, overloads: Any) -> None:
        self._write(self._index_path, (self._version, self._source_stamp, overloads))

    def _load_index(self) -> Any:
        try:
            version, stamp, overloads = self._read(self._index_path)
        except FileNotFoundError:
            return {}
        return overloads if (version, stamp) == (self._version, self._source_stamp) else {}

    def _save_data(self, name: str, data: Any) -> None:
        self._write(self._data_path(name), data)  # type: ignore[no-untyped-call]

    def _load_data(self, name: str) -> Any:
        return self._read(self._data_path(name))  # type: ignore[no-untyped-call]

    def _write(self, path: str, content: Any) -> None:
        data = self._dump(content)  # type: ignore[no-untyped-call]
        with self._open_for_write(path) as file:
            file.write(hashlib.sha256(data).digest() + data)

    def _read(self, path: str) -> Any:
        content = Path(path).read_bytes()
        digest, data = content[:32], content[32:]
        if hashlib.sha256(data).digest() != digest:
            raise Damaged(f"{Path(path).name} is not as it was written")
        return pickle.loads(data)


_told = False


def _tell(problem: Exception) -> None:
    """Warn once in a process that code is compiled again or not kept; the work goes on."""
    global _told
    if not _told:
        _told = True
        warnings.warn(
            f"zib cannot use its cache of compiled code in {FOLDER} ({problem}): what is missing "
            "is compiled, which takes longer. `zib cache clear --compiled` empties it.",
            RuntimeWarning,
            stacklevel=2,
        )


class _Cache(caching.FunctionCache):
    """Keeps each signature under the code of the specs in it, too; never stops the work."""

    def __init__(self, function: Any) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]
        self._cache_file = _SealedFiles(  # type: ignore[no-untyped-call]
            self._cache_path, self._impl.filename_base, self._impl.locator.get_source_stamp()
        )

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the compiled code; None, after one warning, if its files are damaged."""
        try:
            return super().load_overload(sig, target_context)  # type: ignore[no-untyped-call]
        except Exception as error:  # whatever is wrong with the files, it can be compiled
            _tell(error)
            self._forget()
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep compiled code, if the disk has room."""
        try:
            super().save_overload(sig, data)  # type: ignore[no-untyped-call]
        except Exception as error:
            _tell(error)

    def _forget(self) -> None:
        """Remove the index, so that what is compiled now can be kept."""
        with contextlib.suppress(OSError):
            Path(self._cache_file._index_path).unlink()

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


# Compiled code never raises half way through a state: a division by zero gives what it gives in
# NumPy. It does not hold the interpreter's lock.
OPTIONS: Any = {"nogil": True, "error_model": "numpy"}


def _can_be_kept(function: Any) -> bool:
    """Whether it is one of ours; the files of others are not watched."""
    return FOLDER is not None and function.__module__ in sources.sources()


def cached_njit(function: Callable[..., Any]) -> Any:
    """Compile `function` on first call, keep the result on disk, release the interpreter lock."""
    compiled: Any = numba.njit(**OPTIONS)(function)
    if _can_be_kept(function) and not numba_config.DISABLE_JIT:
        with _our_place():
            compiled._cache = _Cache(function)
    return compiled


def cached_ufunc(function: Callable[..., Any]) -> Any:
    """Turn a scalar formula into a NumPy universal function, compiled on first call."""
    if numba_config.DISABLE_JIT:
        return np.vectorize(function, otypes=[np.float64])
    if not _can_be_kept(function):
        return numba.vectorize()(function)
    compiled: Any = numba.vectorize()(function)
    with _our_place():
        compiled._dispatcher.cache = _Cache(function)
    return compiled
