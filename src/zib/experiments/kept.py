"""Finished experiments in the store: figures, numbers and record, under all they depend on.

Simulations are kept block by block anyway (`zib.sim`). A whole item is kept as well, because some
do other things than simulate, and because drawing takes time, too.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import warnings
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

from zib.experiments.loan_study import CPRM_FILES, FOLDER_VARIABLE, KL_FILE, KZ_FILE
from zib.experiments.record import Record, Scale
from zib.sim import CannotBeStored, Store
from zib.sim.code import code_hash

FORMAT = 1  # raise it when stored items can no longer be read
RECORD = "record.json"
PACKAGES = (
    "numpy", "numba", "scipy", "pandas", "pyarrow", "matplotlib", "statsmodels", "scikit-learn",
)  # fmt: skip

Stamps = Mapping[Path, tuple[int, int]]


def key_of(module: Any, scale: Scale, seed: int) -> str | None:
    """Return the key of a finished experiment, or None if its code has no file."""
    name = getattr(module, "__name__", None)
    if name is None:
        return None
    try:
        code = code_hash(frozenset({name}))
    except CannotBeStored:
        return None
    content = {
        "experiment": name,
        "format": FORMAT,
        "scale": scale,
        "seed": seed,
        "code": code,
        "versions": {package: _version(package) for package in PACKAGES},
        "machine": platform.machine(),
        "data": _data_files(),
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "absent"


def _data_files() -> dict[str, str]:
    """Return the checksums of the data files that are there; experiments use what they find."""
    folder = os.environ.get(FOLDER_VARIABLE)
    if not folder:
        return {}
    found = (Path(folder) / name for name in (KZ_FILE, KL_FILE, *CPRM_FILES))
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in found if p.is_file()}


def stamps(folder: Path) -> Stamps:
    """Return when each file of a folder was written, to tell afterwards which are new."""
    if not folder.is_dir():
        return {}
    states = {path: path.stat() for path in folder.rglob("*") if path.is_file()}
    return {path: (state.st_mtime_ns, state.st_size) for path, state in states.items()}


def keep(store: Store, key: str, record: Record, folder: Path, before: Stamps) -> None:
    """Keep a finished experiment: its record, and the files written since `before`."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(record.save(folder), RECORD)
        for path, stamp in sorted(stamps(folder).items()):
            name = path.relative_to(folder).as_posix()
            if before.get(path) != stamp and name != RECORD:
                archive.write(path, name)
    about = {"experiment": record.id, "scale": record.scale, "seconds": record.seconds}
    try:
        store.put_bytes(key, buffer.getvalue(), about)
    except OSError as error:
        warnings.warn(
            f"{record.id} is finished but cannot be kept in the store {store.folder} "
            f"({error.strerror or error})",
            RuntimeWarning,
            stacklevel=2,
        )


def restore(store: Store, key: str, folder: Path) -> Record | None:
    """Write the files of a kept experiment to `folder` and return its record; None if absent."""
    content = store.get_bytes(key)
    if content is None:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        archive.extractall(folder)
    record = Record.load(folder / RECORD)
    if record is None:
        return None
    when = record.provenance.get("time", "an earlier day")
    note = f"Taken from the store: computed at {when} in {record.seconds:.1f} s, nothing changed."
    return replace(
        record, notes=(*record.notes, note), provenance={**record.provenance, "from_store": True}
    )
