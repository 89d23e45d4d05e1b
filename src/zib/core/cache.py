"""Where compiled code is kept between processes.

Numba's own disk cache looks only at the file a function is written in. Our compiled loop calls
kernels from many files, so an edit of a kernel would find the old loop again. The cache folder is
therefore named after a hash of every source file that compiled code can come from: edited sources,
new folder.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import platformdirs

numba_config: Any = numba.config


# These rooms stand above the simulations: nothing compiled is written there or imports from there.
UNCOMPILED = frozenset({"cli", "experiments", "logs", "report", "studies", "testing"})


def _hash_of_sources(leave_out: frozenset[str]) -> str:
    root = Path(__file__).parent.parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        relative = path.relative_to(root)
        if relative.parts[0] not in leave_out:
            digest.update(relative.as_posix().encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


# Of the code that is running, whatever happens to the files later.
SOURCE_HASH = _hash_of_sources(frozenset())
COMPILED_HASH = _hash_of_sources(UNCOMPILED)


def source_hash() -> str:
    """Return the hash of all Python files of the package, as they were when it was imported."""
    return SOURCE_HASH


def _usable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _choose_folder() -> Path | None:
    if os.environ.get("ZIB_CACHE", "1") == "0":
        return None
    base = os.environ.get("NUMBA_CACHE_DIR") or platformdirs.user_cache_dir("zib", appauthor=False)
    folder = Path(base) / f"zib-{COMPILED_HASH}"
    if _usable(folder):
        return folder
    warnings.warn(
        f"zib cannot write its cache of compiled code to {folder}: each process will compile "
        "again. Set NUMBA_CACHE_DIR to a writable folder, or ZIB_CACHE=0 to silence this.",
        RuntimeWarning,
        stacklevel=2,
    )
    return None


FOLDER: Path | None = _choose_folder()


def _with_folder(decorate: Callable[[], Any]) -> Any:
    # Numba picks the folder when a function is decorated, so ours is in force only that long
    # and the caller's own cached functions stay where they were.
    before = numba_config.CACHE_DIR
    numba_config.CACHE_DIR = str(FOLDER)
    try:
        return decorate()
    finally:
        numba_config.CACHE_DIR = before


def cached_njit(function: Callable[..., Any]) -> Any:
    """Compile `function` on first call, keep the result on disk, release the interpreter lock."""
    if FOLDER is None or numba_config.DISABLE_JIT:
        return numba.njit(nogil=True)(function)
    return _with_folder(lambda: numba.njit(cache=True, nogil=True)(function))


def cached_ufunc(function: Callable[..., Any]) -> Any:
    """Turn a scalar formula into a NumPy universal function, compiled on first call."""
    if FOLDER is None:
        return numba.vectorize()(function)
    return _with_folder(lambda: numba.vectorize(cache=True)(function))
