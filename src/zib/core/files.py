"""Files that are written whole or not at all, and folders that nobody else can write to."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from pathlib import Path

PRIVATE = 0o700  # of a folder: its owner only


def write_atomically(
    path: str | os.PathLike[str], data: str | bytes, *, mode: int | None = None
) -> None:
    """Write the whole file or leave the old one: a crash in between loses nothing.

    A file that is there keeps its permissions, and a symbolic link still points to where it did. A
    new file has the permissions of `mode`; by default only its owner can read it.
    """
    target = Path(os.path.realpath(path))
    with contextlib.suppress(OSError):
        mode = stat.S_IMODE(target.stat().st_mode)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            if mode is not None:
                temporary.chmod(mode)
            file.write(data.encode() if isinstance(data, str) else data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(target.parent)


def _sync_folder(folder: Path) -> None:
    """Make the new name of a file survive a crash of the machine, where the system can do that."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def distrusted(folder: Path) -> str | None:
    """Return why code in this folder may be somebody else's; None if only the user can write there.

    That is: the folder belongs to another user, its group or others may write to it, or anybody may
    rename a folder that it is in.
    """
    if not hasattr(os, "getuid"):
        return None
    found = folder.stat()
    if found.st_uid != os.getuid():
        return "it belongs to another user"
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return "other users can write to it"
    for parent in Path(os.path.realpath(folder)).parents:
        mode = parent.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            return f"other users can rename it, because all can write to {parent}"
    return None
