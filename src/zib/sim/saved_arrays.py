"""What was measured, in one ``.npz`` file: arrays, and the rest as JSON; nothing is pickled."""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from zib.core.saved import SavedStateError, write_atomically

Made = TypeVar("Made")
Arrays = Mapping[str, NDArray[Any]]


def save_arrays(
    path: str | os.PathLike[str], kind: str, meta: dict[str, Any], arrays: Arrays
) -> None:
    """Write a file of this kind, whole or not at all."""
    buffer = io.BytesIO()
    text: Any = np.array(json.dumps({"format": f"zib.{kind}", **meta}))
    np.savez_compressed(buffer, meta=text, **arrays)  # type: ignore[arg-type]
    write_atomically(path, buffer.getvalue())


def load_arrays(
    path: str | os.PathLike[str], kind: str, make: Callable[[dict[str, Any], Arrays], Made]
) -> Made:
    """Return what `make` makes of a file of this kind, or raise SavedStateError."""
    damaged = f"{path} is not a saved {kind} file, or it is damaged"
    try:
        with np.load(io.BytesIO(Path(path).read_bytes()), allow_pickle=False) as data:
            meta = json.loads(str(data["meta"]))
            if meta.get("format") != f"zib.{kind}":
                raise SavedStateError(damaged)
            return make(meta, data)
    except (ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise SavedStateError(f"{damaged}: {error}") from error
