"""Where finished blocks are kept, and the one format of everything that is saved.

A file is a plain ``.npz``: arrays, and the rest as JSON under the name ``meta``. Nothing is
pickled. Its SHA-256 is the comment of the archive. A file is written whole or not at all and is
never changed afterwards, so processes may share a store without talking to each other. Claims
(`Store.claim`) only spare them the same work twice.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

import numpy as np
import platformdirs
from numpy.typing import NDArray

from zib.core import validate
from zib.core.saved import SavedStateError, write_atomically
from zib.core.validate import InvalidParameterError, shown

VARIABLE, SHARED = "ZIB_STORE", "ZIB_STORE_SHARED"
GROUP_FOLDER, GROUP_FILE = 0o2770, 0o660  # what is made in the folder belongs to its group
ENDING, LOCK = ".npz", ".lock"
OURS = re.compile(r"\.?[0-9a-f]+\.(npz|lock|zib)(\.\w+)?").fullmatch  # .zib: of earlier versions
STALE = 3600.0  # seconds after which a half-written file belongs to a process that died
META, BYTES = "meta", "bytes"
CHECKSUM = 64  # characters of a SHA-256

Arrays = dict[str, NDArray[Any]]
Made = TypeVar("Made")


# --------------------------------------------------------------------------------------- the format


def to_npz(
    meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], *, compressed: bool = False
) -> bytes:
    """Return the bytes of a ``.npz`` file with a checksum as the comment of the archive."""
    buffer = io.BytesIO()
    text: Any = np.array(json.dumps(meta, ensure_ascii=False))
    named: dict[str, Any] = {META: text, **arrays}
    (np.savez_compressed if compressed else np.savez)(buffer, **named)
    # an archive ends with the length of its comment, which is 0 so far
    body = buffer.getvalue()[:-2] + CHECKSUM.to_bytes(2, "little")
    return body + hashlib.sha256(body).hexdigest().encode()


def from_npz(content: bytes, *, checked: bool = True) -> tuple[dict[str, Any], Arrays]:
    """Return what `to_npz` was given; raises ValueError if a single bit is not as it was."""
    body, checksum = content[:-CHECKSUM], content[-CHECKSUM:]
    if checked and hashlib.sha256(body).hexdigest().encode() != checksum:
        raise ValueError("its checksum does not match")
    with np.load(io.BytesIO(content), allow_pickle=False) as data:
        arrays = dict(data)
    return json.loads(str(arrays.pop(META))), arrays


def save_arrays(
    path: str | os.PathLike[str],
    kind: str,
    meta: Mapping[str, Any],
    arrays: Mapping[str, NDArray[Any]],
) -> None:
    """Write a file of this kind, whole or not at all."""
    content = to_npz({"format": f"zib.{kind}", **meta}, arrays, compressed=True)
    write_atomically(path, content)


def load_arrays(
    path: str | os.PathLike[str], kind: str, make: Callable[[dict[str, Any], Arrays], Made]
) -> Made:
    """Return what `make` makes of a file of this kind, or raise SavedStateError."""
    damaged = f"{path} is not a saved {kind} file, or it is damaged"
    content = Path(path).read_bytes()
    try:
        # earlier versions wrote no comment, so that its length, 0, was the end of the file
        meta, arrays = from_npz(content, checked=not content.endswith(b"\0\0"))
        if meta.get("format") != f"zib.{kind}":
            raise SavedStateError(damaged)
        return make(meta, arrays)
    except SavedStateError:
        raise
    except Exception as error:  # whatever damage causes in zip, zlib, NumPy and JSON
        raise SavedStateError(f"{damaged}: {str(error)[:200]}") from error


# ---------------------------------------------------------------------------------------- the store


class StoreInfo(NamedTuple):
    """What a store holds: files and bytes of finished work, and what dead processes left."""

    folder: Path
    files: int
    size: int
    leftovers: int


class Claim:
    """The right to compute one block; the system takes it back when the process dies."""

    def __init__(self, lock: Any = None) -> None:
        self._lock = lock

    def release(self) -> None:
        """Give the claim up."""
        lock, self._lock = self._lock, None
        if lock is not None:
            with contextlib.suppress(OSError):
                Path(lock.lock_file).unlink(missing_ok=True)
            lock.release()

    def __enter__(self) -> Claim:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.release()


class Store:
    """A folder of finished work.

    Parameters
    ----------
    folder
        Where; by default ``$ZIB_STORE``, or ``results`` in the user's cache folder. It is made
        when something is first written.
    shared
        Whether the other members of the folder's group may read, add and remove files; by default
        yes if ``$ZIB_STORE_SHARED`` is 1. Otherwise only the user can read what is kept.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> store = Store(tempfile.mkdtemp())
    >>> store.put("ab12", {"regret": np.arange(3.0)}, {"policy": "UCB1"})
    >>> store.get("ab12")["regret"].tolist(), store.get("ab13")
    ([0.0, 1.0, 2.0], None)
    """

    def __init__(
        self, folder: str | os.PathLike[str] | None = None, *, shared: bool | None = None
    ) -> None:
        self._open(folder, shared, "folder")

    def _open(self, folder: str | os.PathLike[str] | None, shared: bool | None, name: str) -> None:
        if shared is None:
            shared = os.environ.get(SHARED) == "1"
        self.shared = validate.flag("shared", shared)
        if folder is None:
            folder = os.environ.get(VARIABLE) or default_folder()
        self.folder = validate.path(name, folder).expanduser()
        if self.folder.exists() and not self.folder.is_dir():
            raise InvalidParameterError(f"`{name}` must be a folder; {self.folder} is a file")
        self._swept = False

    def __repr__(self) -> str:
        return f"Store({str(self.folder)!r})"

    def path_of(self, key: str) -> Path:
        """Return the file of a key."""
        return self.folder / key[:2] / f"{key}{ENDING}"

    def __contains__(self, key: str) -> bool:
        return self.path_of(key).is_file()

    # ----------------------------------------------------------------------------------- blocks

    def put(self, key: str, arrays: Mapping[str, NDArray[Any]], about: Mapping[str, Any]) -> None:
        """Keep arrays under a key; raises OSError where the folder cannot be written."""
        written = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        content = to_npz({"key": key, "about": {**about, "written": written}}, arrays)
        path = self.path_of(key)
        self._make_folder(path.parent)
        write_atomically(path, content, mode=GROUP_FILE if self.shared else None)
        if not self._swept:
            self._swept = True
            self._sweep(STALE)

    def _make_folder(self, folder: Path) -> None:
        for each in (self.folder, folder):
            if self.shared and not each.exists():
                each.mkdir(parents=True, exist_ok=True)
                with contextlib.suppress(OSError):  # made by another member at the same moment
                    each.chmod(GROUP_FOLDER)
        folder.mkdir(parents=True, exist_ok=True)

    def get(self, key: str) -> Arrays | None:
        """Return the arrays of a key, or None if there are none.

        A damaged file is reported by a warning, removed, and counts as absent.
        """
        found = self._read(key)
        return None if found is None else found[1]

    def about(self, key: str) -> dict[str, Any] | None:
        """Return what was said about a key when it was kept, and when that was."""
        found = self._read(key)
        return None if found is None else dict(found[0]["about"])

    def put_bytes(self, key: str, content: bytes, about: Mapping[str, Any]) -> None:
        """Keep a piece of data under a key, with the same promises as `put`."""
        self.put(key, {BYTES: np.frombuffer(content, dtype=np.uint8)}, about)

    def get_bytes(self, key: str) -> bytes | None:
        """Return the data of a key, or None if there is none."""
        found = self.get(key)
        return None if found is None or BYTES not in found else found[BYTES].tobytes()

    def _read(self, key: str) -> tuple[dict[str, Any], Arrays] | None:
        path = self.path_of(key)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            _warn(
                f"{path} in the store cannot be read ({error.strerror or error}); it is computed "
                "again"
            )
            return None
        try:
            meta, arrays = from_npz(content)
            if meta["key"] != key:
                raise ValueError("it belongs to another key")
            return meta, arrays
        except ValueError as error:
            _warn(f"{path} in the store is damaged ({error}); it is removed and computed again")
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
            return None

    # ----------------------------------------------------------------------------------- claims

    def claim(self, key: str) -> Claim | None:
        """Return the claim on a key, or None while another process (or thread) has it.

        Where locks do not work the claim is granted: then work may be done twice, which costs
        time and nothing else.
        """
        from filelock import FileLock, Timeout

        path = self.path_of(key).with_suffix(LOCK)
        lock = FileLock(path, mode=GROUP_FILE if self.shared else 0o600, thread_local=False)
        try:
            self._make_folder(path.parent)
            lock.acquire(blocking=False)
        except Timeout:
            return None
        except (OSError, NotImplementedError):
            return Claim()
        return Claim(lock)

    def tidy(self, key: str) -> None:
        """Remove the claim of a process that died between keeping a block and giving it up."""
        if self.path_of(key).with_suffix(LOCK).exists():
            claim = self.claim(key)
            if claim is not None:
                claim.release()

    # -------------------------------------------------------------------------------- housekeeping

    def _files(self) -> Iterator[os.DirEntry[str]]:
        """Yield what a store has written, finished or not; files of others are left alone."""
        with contextlib.suppress(FileNotFoundError):
            for folder in os.scandir(self.folder):
                if len(folder.name) == 2 and folder.is_dir():
                    yield from (entry for entry in os.scandir(folder) if OURS(entry.name))

    def info(self) -> StoreInfo:
        """Return how many files and bytes the store holds."""
        files, size, leftovers = 0, 0, 0
        for entry in self._files():
            with contextlib.suppress(FileNotFoundError):  # another process is done with it
                if entry.name.endswith(ENDING) and not entry.name.startswith("."):
                    size += entry.stat().st_size
                    files += 1
                else:
                    leftovers += 1
        return StoreInfo(self.folder, files, size, leftovers)

    def clear(self) -> StoreInfo:
        """Remove everything and return what was there.

        Only files that a store writes are touched, so a wrong folder does no harm.
        """
        before = self.info()
        for entry in list(self._files()):
            Path(entry.path).unlink(missing_ok=True)
        with contextlib.suppress(FileNotFoundError):
            for folder in list(os.scandir(self.folder)):
                if len(folder.name) == 2 and folder.is_dir():
                    with contextlib.suppress(OSError):  # not empty: somebody else's, or in use
                        Path(folder.path).rmdir()
        return before

    def _sweep(self, older: float) -> None:
        """Remove half-written files that a killed process left."""
        now = time.time()
        for entry in list(self._files()):
            if entry.name.startswith("."):
                with contextlib.suppress(OSError):
                    if now - entry.stat().st_mtime > older:
                        Path(entry.path).unlink(missing_ok=True)


def default_folder() -> Path:
    """Return the store of the user, in their cache folder."""
    return Path(platformdirs.user_cache_dir("zib", appauthor=False)) / "results"


def as_store(store: bool | str | os.PathLike[str] | Store | None) -> Store | None:
    """Return the store that an argument stands for."""
    if store is None or store is False:
        return None
    if isinstance(store, Store):
        return store
    if store is True:
        return Store()
    if isinstance(store, (str, os.PathLike)):
        found = Store.__new__(Store)
        found._open(store, None, "store")  # errors name the argument that was given
        return found
    raise InvalidParameterError(
        f"`store` must be True, False, a folder or a Store; got {shown(store)}"
    )


def _warn(message: str) -> None:
    warnings.warn(message, RuntimeWarning, stacklevel=4)
