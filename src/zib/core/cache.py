"""Where compiled code is kept between processes, and when it is used again.

Numba's own disk cache looks at the file a function is written in, and at nothing else. Our loops
call kernels from many files, so an edit of a kernel would find the old loop again, and an edited
docstring would find nothing. Here compiled code is kept under the code that it is made of (see
`zib.core.sources`): the modules of the function, of the specs it is compiled for, and all that they
import. An edit of one policy compiles that policy again.
"""

from __future__ import annotations

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
from numba.core import caching, serialize

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


class _SealedFiles:
    """A file per signature, with a checksum in front: what is not as it was written is not
    unpickled, nor run.

    Numba's own files have an index, which two processes that compile at the same time overwrite,
    and numbers, which both give to different code. Here the name of a file follows from its key.
    """

    def __init__(self, folder: str, base: str, dumps: Callable[[Any], bytes]) -> None:
        self._folder, self._base, self._dumps = Path(folder), base, dumps

    def path_of(self, key: Any) -> Path:
        """Return where the code of a key is kept."""
        return self._folder / f"{self._base}.{hashlib.sha256(repr(key).encode()).hexdigest()}.nbc"

    def save(self, key: Any, data: Any) -> None:
        """Keep the code of a key."""
        content = self._dumps((numba.__version__, key, data))
        files.write_atomically(self.path_of(key), hashlib.sha256(content).digest() + content)

    def load(self, key: Any) -> Any:
        """Return the code of a key; None if there is none."""
        path = self.path_of(key)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        digest, content = content[:32], content[32:]
        if hashlib.sha256(content).digest() != digest:
            path.unlink(missing_ok=True)
            raise Damaged(f"{path.name} is not as it was written")
        version, kept, data = pickle.loads(content)
        return data if (version, kept) == (numba.__version__, key) else None

    def flush(self) -> None:
        """Forget everything: never, it belongs to other processes, too."""


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


class Kept:
    """In front of a cache of Numba's: keeps each signature under the code of the specs in it, too.

    It never stops the work.
    """

    _py_func: Any
    _cache_path: Any
    _cache_file: Any
    _impl: Any

    def keep_in_sealed_files(self, dumps: Callable[[Any], bytes]) -> None:
        """Use our files instead of Numba's."""
        self._cache_file = _SealedFiles(self._cache_path, self._impl.filename_base, dumps)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the compiled code; None, after one warning, if its file is damaged."""
        try:
            return super().load_overload(sig, target_context)  # type: ignore[misc]
        except Exception as error:  # whatever is wrong with the files, it can be compiled
            _tell(error)
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep compiled code, if the disk has room."""
        try:
            super().save_overload(sig, data)  # type: ignore[misc]
        except Exception as error:
            _tell(error)

    def has(self, sig: Any, target_context: Any) -> bool:
        """Whether there is code of a signature."""
        target_context.refresh()
        key = self._index_key(sig, target_context.codegen())
        return bool(self._cache_file.path_of(key).exists())

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        code = sources.hash_of(made_from(self._py_func, sig))
        return (super()._index_key(sig, codegen), code)  # type: ignore[misc]


class _Cache(Kept, caching.FunctionCache):
    """For processors."""

    def __init__(self, function: Any) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]
        self.keep_in_sealed_files(serialize.dumps)


@contextmanager
def our_place(implementation: Any = caching.CacheImpl) -> Iterator[None]:
    """Have Numba keep code in our folder; it asks for the place when a function is decorated.

    Ours is in force only that long, and the caller's own cached functions stay where they were.
    """
    locators = implementation._locator_classes
    chosen = getattr(numba_config, "CACHE_LOCATOR_CLASSES", "")
    implementation._locator_classes = [Locator]
    numba_config.CACHE_LOCATOR_CLASSES = ""
    try:
        yield
    finally:
        implementation._locator_classes = locators
        numba_config.CACHE_LOCATOR_CLASSES = chosen


# Compiled code never raises half way through a state: a division by zero gives what it gives in
# NumPy. It does not hold the interpreter's lock.
OPTIONS: Any = {"nogil": True, "error_model": "numpy"}


def can_be_kept(function: Any) -> bool:
    """Whether it is one of ours; the files of others are not watched."""
    return FOLDER is not None and function.__module__ in sources.sources()


def cached_njit(function: Callable[..., Any]) -> Any:
    """Compile `function` on first call, keep the result on disk, release the interpreter lock."""
    compiled: Any = numba.njit(**OPTIONS)(function)
    if can_be_kept(function) and not numba_config.DISABLE_JIT:
        with our_place():
            compiled._cache = _Cache(function)
    return compiled


def cached_ufunc(function: Callable[..., Any]) -> Any:
    """Turn a scalar formula into a NumPy universal function, compiled on first call."""
    if numba_config.DISABLE_JIT:
        return np.vectorize(function, otypes=[np.float64])
    if not can_be_kept(function):
        return numba.vectorize()(function)
    compiled: Any = numba.vectorize()(function)
    with our_place():
        compiled._dispatcher.cache = _Cache(function)
    return compiled
