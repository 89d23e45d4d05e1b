"""One hash of our sources, for stored results and for compiled code, and where the latter is kept.

The hash is of the syntax trees, so comments, docstrings and layout do not count. It covers the
rooms whose code can play: nothing above the simulations is compiled, or changes a number in them.

Numba's own disk cache looks only at the file a function is written in, and at nothing else. Our
loops call kernels from many files, so an edit of a kernel would find the old loop again, and an
edited docstring would find nothing. The folder of compiled code is therefore named after the hash:
edited code, new folder.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import json
import os
import sys
import tempfile
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numba
import numpy as np
import platformdirs
from numba.core import caching

numba_config: Any = numba.config

ROOT = Path(__file__).parent.parent
# What stands above the loops: no code that plays is written there or imported from there.
ABOVE = (
    "__init__.py", "advise.py", "cli/", "datasets.py", "experiments/", "live/", "logs/advise/",
    "logs/ope/", "online/", "ope.py", "report/", "sim/", "studies/", "testing/",
)  # fmt: skip
LOOP = "sim/loop.py"  # the rest of `sim` hands out work and keeps results
REMEMBERED = 5_000  # files whose hash is known; one file is one line in a small memory


# -------------------------------------------------------------------------------- hash of sources


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


def plays(file: Path) -> bool:
    """Whether code that plays, or is compiled, can be in this file."""
    if not file.is_relative_to(ROOT):
        return False
    relative = file.relative_to(ROOT).as_posix()
    return relative == LOOP or not relative.startswith(ABOVE)


@cache
def source_hash(*, everything: bool = False) -> str:
    """Return the hash of our sources: of those that can play, or of all.

    It is taken once per process, when zib is imported, so it stands for the code that is running
    whatever happens to the files later.
    """
    files = [path for path in sorted(ROOT.rglob("*.py")) if everything or plays(path)]
    contents = [path.read_bytes() for path in files]
    digest = hashlib.sha256()
    for path, code in zip(files, _hashes(contents), strict=True):
        digest.update(f"{path.relative_to(ROOT).as_posix()} {code}\n".encode())
    return digest.hexdigest()[:16]


def _hashes(contents: list[bytes]) -> list[str]:
    """Return `code_hash` of each file; parsing takes a second, so they are remembered on disk."""
    memory = _base() / f"zib-sources-{sys.version_info.major}.{sys.version_info.minor}.json"
    known: dict[str, str] = {}
    with contextlib.suppress(OSError, ValueError):
        known = json.loads(memory.read_text())
    names = [hashlib.sha256(content).hexdigest()[:32] for content in contents]
    missing = {name: text for name, text in zip(names, contents, strict=True) if name not in known}
    if missing:
        if len(known) > REMEMBERED:
            known = {name: known[name] for name in names if name in known}
        known.update((name, code_hash(text)) for name, text in missing.items())
        if _is_on():
            with contextlib.suppress(OSError):
                _write(memory, json.dumps(known))
    return [known[name] for name in names]


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(handle, "w") as file:
        file.write(text)
    Path(name).replace(path)


# ------------------------------------------------------------------------------------- the folder


def _is_on() -> bool:
    return os.environ.get("ZIB_CACHE", "1") != "0"


def _base() -> Path:
    return Path(
        os.environ.get("NUMBA_CACHE_DIR") or platformdirs.user_cache_dir("zib", appauthor=False)
    )


def _usable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _choose_folder() -> Path | None:
    if not _is_on():
        return None
    if _usable(_base()):
        folder = _base() / f"zib-{source_hash()}"
        folder.mkdir(exist_ok=True)
        return folder
    warnings.warn(
        f"zib cannot write its cache of compiled code to {_base()}: each process will compile "
        "again. Set NUMBA_CACHE_DIR to a writable folder, or ZIB_CACHE=0 to silence this.",
        RuntimeWarning,
        stacklevel=2,
    )
    return None


FOLDER: Path | None = _choose_folder()


# --------------------------------------------------------------------------------------- compiling


class Locator(caching._CacheLocator):
    """Tells Numba where the compiled code of a function is, and that it is fresh there."""

    def __init__(self, function: Any, file: str) -> None:
        self._py_file = file  # Numba names it in its own warnings
        self._path = str(Path(FOLDER or "", Path(file).relative_to(ROOT).parent))
        self._code = hashlib.sha256(function.__code__.co_code).hexdigest()[:8]

    @classmethod
    def from_function(cls, function: Any, file: str) -> Locator:
        """Return the locator of a function of ours."""
        return cls(function, file)

    def get_cache_path(self) -> str:
        """Return the folder."""
        return self._path

    def get_source_stamp(self) -> str:
        """Return always the same: another state of the sources has another folder."""
        return ""

    def get_disambiguator(self) -> str:
        """Return what tells functions of the same name apart; not the line, which wanders."""
        return self._code


def _can_be_kept(function: Any) -> bool:
    """Whether the name of the folder says when the function has changed."""
    return FOLDER is not None and plays(Path(function.__code__.co_filename))


def _kept(decorate: Callable[[], Any]) -> Any:
    """Decorate a function so that its compiled code is kept in our folder."""
    # Numba asks for the place when a function is decorated, so ours is in force only that long
    # and the caller's own cached functions stay where they were.
    locators = caching.CacheImpl._locator_classes
    chosen = getattr(numba_config, "CACHE_LOCATOR_CLASSES", "")
    caching.CacheImpl._locator_classes = [Locator]
    numba_config.CACHE_LOCATOR_CLASSES = ""
    try:
        return decorate()
    finally:
        caching.CacheImpl._locator_classes = locators
        numba_config.CACHE_LOCATOR_CLASSES = chosen


def cached_njit(function: Callable[..., Any]) -> Any:
    """Compile `function` on first call, keep the result on disk, release the interpreter lock."""
    if numba_config.DISABLE_JIT or not _can_be_kept(function):
        return numba.njit(nogil=True)(function)
    return _kept(lambda: numba.njit(cache=True, nogil=True)(function))


def cached_ufunc(function: Callable[..., Any]) -> Any:
    """Turn a scalar formula into a NumPy universal function, compiled on first call."""
    if numba_config.DISABLE_JIT:
        return np.vectorize(function, otypes=[np.float64])
    if not _can_be_kept(function):
        return numba.vectorize()(function)
    return _kept(lambda: numba.vectorize(cache=True)(function))
