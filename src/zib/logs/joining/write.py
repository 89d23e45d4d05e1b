"""Where joined rows go: a Parquet or CSV file, which appears when it is complete, or memory."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from zib.core.validate import InvalidParameterError, shown

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
        umask = os.umask(0)
        os.umask(umask)
        self._place.chmod(0o666 & ~umask)  # temporary files are private
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


def check_target(path: Path) -> None:
    """Raise unless a file with a known end can be written there."""
    if path.suffix.lower() not in ENDS:
        raise InvalidParameterError(
            f"`out` must end with {' or '.join(ENDS)}; got {shown(path.name)}"
        )
    if path.is_dir():
        raise InvalidParameterError(f"`out` must be a file; {path} is a folder")


def rows_for(path: Path | None) -> Rows:
    """Return what takes the rows."""
    return Rows() if path is None else FileRows(path)
