"""Where finished blocks are kept: one checksummed file per block, named after its key.

A file is written whole or not at all, and is never changed afterwards, so processes may share a
store without talking to each other. Claims (`Store.claim`) only spare them the same work twice.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np
import platformdirs
from numpy.typing import NDArray

from zib.core.saved import write_atomically
from zib.core.validate import InvalidParameterError

MAGIC = b"zib store 1\n"
VARIABLE = "ZIB_STORE"
ENDING, LOCK = ".zib", ".lock"
STALE = 3600.0  # seconds after which a half-written file belongs to a process that died
BYTES = "bytes"

Arrays = dict[str, NDArray[Any]]


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

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> store = Store(tempfile.mkdtemp())
    >>> store.put("ab12", {"regret": np.arange(3.0)}, {"policy": "UCB1"})
    >>> store.get("ab12")["regret"].tolist(), store.get("ab13")
    ([0.0, 1.0, 2.0], None)
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        if folder is None:
            folder = os.environ.get(VARIABLE) or default_folder()
        self.folder = Path(folder).expanduser()
        if self.folder.exists() and not self.folder.is_dir():
            raise InvalidParameterError(f"`store` must be a folder; {self.folder} is a file")
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
        contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        header = {
            "key": key,
            "about": {**about, "written": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())},
            "arrays": [[name, a.dtype.str, list(a.shape)] for name, a in contiguous.items()],
        }
        words = json.dumps(header, ensure_ascii=False).encode()
        parts = [MAGIC, len(words).to_bytes(8, "little"), words]
        parts += [array.tobytes() for array in contiguous.values()]
        digest = hashlib.sha256()
        for part in parts:
            digest.update(part)
        path = self.path_of(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, b"".join([*parts, digest.digest()]))
        if not self._swept:
            self._swept = True
            self._sweep(STALE)

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
            return _unpacked(key, content)
        except ValueError as error:
            _warn(f"{path} in the store is damaged ({error}); it is removed and computed again")
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
            return None

    # ----------------------------------------------------------------------------------- claims

    def tidy(self, key: str) -> None:
        """Remove the claim of a process that died between keeping a block and giving it up."""
        if self.path_of(key).with_suffix(LOCK).exists():
            claim = self.claim(key)
            if claim is not None:
                claim.release()

    def claim(self, key: str) -> Claim | None:
        """Return the claim on a key, or None while another process (or thread) has it.

        Where locks do not work the claim is granted: then work may be done twice, which costs
        time and nothing else.
        """
        from filelock import FileLock, Timeout

        path = self.path_of(key).with_suffix(LOCK)
        lock = FileLock(path, thread_local=False)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            lock.acquire(blocking=False)
        except Timeout:
            return None
        except (OSError, NotImplementedError):
            return Claim()
        return Claim(lock)

    # -------------------------------------------------------------------------------- housekeeping

    def _files(self) -> Iterator[os.DirEntry[str]]:
        with contextlib.suppress(FileNotFoundError):
            for folder in os.scandir(self.folder):
                if len(folder.name) == 2 and folder.is_dir():
                    yield from (entry for entry in os.scandir(folder) if entry.is_file())

    def info(self) -> StoreInfo:
        """Return how many files and bytes the store holds."""
        files, size, leftovers = 0, 0, 0
        for entry in self._files():
            with contextlib.suppress(FileNotFoundError):  # another process is done with it
                if _is_finished(entry.name):
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
            if _is_ours(entry.name):
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
            if _is_half_written(entry.name):
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
        return Store(store)
    raise InvalidParameterError(f"`store` must be True, False, a folder or a Store; got {store!r}")


def _is_finished(name: str) -> bool:
    return name.endswith(ENDING) and not name.startswith(".")


def _is_half_written(name: str) -> bool:
    return name.startswith(".") and f"{ENDING}." in name


def _is_ours(name: str) -> bool:
    return _is_finished(name) or _is_half_written(name) or name.endswith(LOCK)


def _warn(message: str) -> None:
    warnings.warn(message, RuntimeWarning, stacklevel=4)


def _unpacked(key: str, content: bytes) -> tuple[dict[str, Any], Arrays]:
    start = len(MAGIC) + 8
    if len(content) < start + 32 or not content.startswith(MAGIC):
        raise ValueError("it is cut off or no file of a store")
    if hashlib.sha256(memoryview(content)[:-32]).digest() != content[-32:]:
        raise ValueError("its checksum does not match")
    at = start + int.from_bytes(content[len(MAGIC) : start], "little")
    header = json.loads(content[start:at])
    if header["key"] != key:
        raise ValueError("it belongs to another key")
    arrays: Arrays = {}
    for name, kind, shape in header["arrays"]:
        dtype, size = np.dtype(kind), int(np.prod(shape, dtype=np.int64))
        arrays[name] = np.frombuffer(content, dtype, size, at).reshape(shape)
        at += size * dtype.itemsize
    return header, arrays
