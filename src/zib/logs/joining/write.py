"""Where joined rows go: memory, or a file or folder that appears when it is complete."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from zib.core import validate
from zib.core.validate import InvalidParameterError, shown
from zib.logs.parquet import file_system
from zib.logs.tables import is_url

ENDS = (".parquet", ".csv")


class Rows:
    """Keeps record batches; all of them get the types of the first one."""

    def __init__(self) -> None:
        self.rows = 0
        self._kept: list[Any] = []
        self._schema: Any = None

    def add(self, batch: Any) -> None:
        """Take some rows."""
        if self._schema is None:
            self._schema = batch.schema
        elif batch.schema != self._schema:
            batch = batch.cast(self._schema)
        self.rows += batch.num_rows
        self._put(batch)

    def _put(self, batch: Any) -> None:
        self._kept.append(batch)

    def table(self) -> Any:
        """Return everything as a table; None where it is in a file."""
        import pyarrow as pa

        return pa.Table.from_batches(self._kept, self._schema)

    def close(self) -> None:
        """Finish."""

    def give_up(self) -> None:
        """Leave nothing behind."""


class FileRows(Rows):
    """Writes a file next to its final place and moves it there at the end."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(
            suffix=path.suffix, prefix=f".{path.stem}-", dir=path.parent
        )
        os.close(handle)
        self._place = Path(name)
        self._writer: Any = None

    def _put(self, batch: Any) -> None:
        if self._writer is None:
            self._writer = self._open(batch)
        self._writer.write_batch(batch)

    def _open(self, batch: Any) -> Any:
        if self._path.suffix.lower() == ".csv":
            from pyarrow import csv

            return csv.CSVWriter(self._place, batch.schema)
        import pyarrow.parquet as pq

        return pq.ParquetWriter(self._place, batch.schema, use_dictionary=_repetitive(batch))

    def table(self) -> Any:
        """Return None: the rows are in the file."""
        return None

    def close(self) -> None:
        """Finish the file and give it its name."""
        if self._writer is not None:
            self._writer.close()
        self._place.chmod(0o666 & ~_umask())  # temporary files are private
        self._place.replace(self._path)

    def give_up(self) -> None:
        """Remove what was written."""
        if self._writer is not None:
            self._writer.close()
        self._place.unlink(missing_ok=True)


def _repetitive(batch: Any) -> list[str]:
    """Return the columns with few different values; in others looking for them takes long."""
    import pyarrow.compute as pc

    first = batch.slice(0, 10_000)
    return [
        name
        for name in batch.schema.names
        if pc.count_distinct(first.column(name)).as_py() <= 0.2 * max(first.num_rows, 1)
    ]


class FolderRows:
    """A folder of Parquet files, one for each part; whoever makes a part writes it.

    Here the files are written to a folder next to the final place, which gets its name at the end;
    on other file systems they are written where they belong.
    """

    def __init__(self, target: str) -> None:
        self._target = target
        self.place = target
        if not is_url(target):
            parent = Path(target).parent
            parent.mkdir(parents=True, exist_ok=True)
            self.place = tempfile.mkdtemp(prefix=f".{Path(target).name}-", dir=parent)
            Path(self.place).chmod(0o777 & ~_umask())

    def close(self) -> None:
        """Give the folder its name."""
        if self.place != self._target:
            Path(self.place).rename(self._target)

    def give_up(self) -> None:
        """Remove what was written, where that is a folder of our own."""
        if self.place != self._target:
            shutil.rmtree(self.place, ignore_errors=True)


def write_part(place: str, number: int, batches: Iterable[Any]) -> None:
    """Write one file of a folder."""
    import pyarrow.parquet as pq
    from pyarrow import fs

    system, folder = file_system(place) if is_url(place) else (fs.LocalFileSystem(), place)
    system.create_dir(folder, recursive=True)
    writer = None
    try:
        for batch in batches:
            if writer is None:
                writer = pq.ParquetWriter(
                    f"{folder}/part-{number:05d}.parquet", batch.schema,
                    use_dictionary=_repetitive(batch), filesystem=system,
                )  # fmt: skip
            writer.write_batch(batch)
    finally:
        if writer is not None:
            writer.close()


def _umask() -> int:
    umask = os.umask(0)
    os.umask(umask)
    return umask


def is_folder(out: object) -> bool:
    """Return whether rows go to a folder: a URL, or a path without an end."""
    return is_url(out) or (isinstance(out, (str, Path)) and not Path(out).suffix)


def check_target(out: Any) -> str | Path:
    """Return where to write, or raise."""
    if is_url(out):
        return str(out)
    path = validate.path("out", out)
    if is_folder(out):
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise InvalidParameterError(f"`out` must be a new or empty folder; {path} is not")
        return path
    return check_file(path, or_folder=True)


def check_file(out: Any, *, or_folder: bool = False) -> Path:
    """Return the file to write, or raise."""
    path = validate.path("out", out)
    if path.suffix.lower() not in ENDS:
        raise InvalidParameterError(
            f"`out` must end with {' or '.join(ENDS)}{', or be a folder' * or_folder}; "
            f"got {shown(path.name)}"
        )
    if path.is_dir():
        raise InvalidParameterError(f"`out` must be a file; {path} is a folder")
    return path


def rows_for(path: Path | None) -> Rows:
    """Return what takes the rows."""
    return Rows() if path is None else FileRows(path)
