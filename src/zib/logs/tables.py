"""Tables in batches of bounded size: pandas and Polars frames, CSV and Parquet files.

Everything becomes Arrow on the way in, so frames and files are read by the same code.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from zib.core.validate import InvalidParameterError, shown

CSV_ENDS = (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".csv.bz2", ".tsv.bz2")
PARQUET_ENDS = (".parquet", ".pq", ".parq")
MISSING = ["", "NA", "N/A", "NaN", "nan", "null", "NULL", "None"]
CSV_BLOCK = 1 << 24  # bytes of a CSV file that are parsed at a time
BATCH = 1 << 18


class LogError(InvalidParameterError):
    """A log that cannot be used; the message names the column and the first offending row."""


class Table(ABC):
    """Rows in batches; `columns` are the names in the order of the file."""

    name: str
    columns: tuple[str, ...]

    @abstractmethod
    def batches(self, columns: Sequence[str], size: int = BATCH) -> Iterator[Any]:
        """Yield Arrow record batches of at most `size` rows with these columns."""

    def require(self, role: str, column: str) -> str:
        """Return `column` if the table has it, or raise with the names it does have."""
        if column in self.columns:
            return column
        import difflib

        near = difflib.get_close_matches(str(column), self.columns, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        known = ", ".join(self.columns[:20]) + (", …" if len(self.columns) > 20 else "")
        raise LogError(
            f"{self.name} has no column {column!r} (asked for as `{role}`){hint} It has: {known}."
        )


class FrameTable(Table):
    """A pandas or Polars frame, or an Arrow table."""

    def __init__(self, frame: Any) -> None:
        self.name = "the frame"
        self._frame = frame
        if not hasattr(frame, "columns") or not hasattr(frame, "__len__"):
            raise LogError(
                "`frame` or `source` must be a pandas or Polars frame or an Arrow table; "
                f"got {type(frame).__name__}"
            )
        names = frame.column_names if hasattr(frame, "column_names") else list(frame.columns)
        self.columns = tuple(str(name) for name in names)
        repeated = sorted({name for name in self.columns if self.columns.count(name) > 1})
        if repeated:
            raise LogError(f"the frame has several columns named {repeated[0]!r}")
        self._names = dict(zip(self.columns, names))

    def batches(self, columns: Sequence[str], size: int = BATCH) -> Iterator[Any]:
        """Yield Arrow record batches of at most `size` rows with these columns."""
        import pyarrow as pa

        table = pa.table({name: _arrow(self._frame, self._names[name]) for name in columns})
        yield from table.to_batches(max_chunksize=size)


def _arrow(frame: Any, name: Any) -> Any:
    import pyarrow as pa

    column = frame[name]
    if hasattr(column, "to_arrow"):  # Polars
        return column.to_arrow()
    if isinstance(column, (pa.Array, pa.ChunkedArray)):
        return column
    try:
        return pa.array(column, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError):  # numbers and text mixed
        return pa.array(column.map(str).where(column.notna(), None), from_pandas=True)


class ParquetTable(Table):
    """One Parquet file, or all those of a folder in the order of their names."""

    def __init__(self, path: Path) -> None:
        self.name = path.name
        self._files = (
            sorted(file for file in path.rglob("*") if file.suffix in PARQUET_ENDS)
            if path.is_dir()
            else [path]
        )
        if not self._files:
            raise LogError(f"the folder {path} has no Parquet files")
        self.columns = self._columns(self._files[0])
        for file in self._files[1:]:
            if set(self._columns(file)) != set(self.columns):
                raise LogError(f"{file.name} has other columns than {self._files[0].name}")

    def _open(self, file: Path) -> Any:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            # pre-buffering would keep the whole file in memory
            return pq.ParquetFile(file, pre_buffer=False)
        except (pa.ArrowInvalid, OSError) as error:
            raise LogError(
                f"{file.name} cannot be read as Parquet; it may be cut off or of another "
                f"format ({_first_line(error)})"
            ) from None

    def _columns(self, file: Path) -> tuple[str, ...]:
        with self._open(file) as parquet:
            return tuple(parquet.schema_arrow.names)

    def batches(self, columns: Sequence[str], size: int = BATCH) -> Iterator[Any]:
        """Yield Arrow record batches of at most `size` rows with these columns."""
        import pyarrow as pa

        for file in self._files:
            with self._open(file) as parquet:
                batches = parquet.iter_batches(batch_size=size, columns=list(columns))
                try:
                    yield from batches
                except (pa.ArrowInvalid, OSError) as error:
                    raise LogError(f"{file.name} is damaged: {_first_line(error)}") from None


class CSVTable(Table):
    """A CSV file with a header, possibly compressed; all columns are read as text."""

    def __init__(self, path: Path) -> None:
        self.name = path.name
        self._path = path
        self._delimiter = "\t" if ".tsv" in path.name else ","
        with self._open(None) as reader:
            self.columns = tuple(reader.schema.names)
        repeated = sorted({name for name in self.columns if self.columns.count(name) > 1})
        if repeated:
            raise LogError(f"{self.name} has several columns named {repeated[0]!r}")

    def _open(self, columns: Sequence[str] | None) -> Any:
        import pyarrow as pa
        from pyarrow import csv

        wanted = list(columns) if columns is not None else []
        try:
            return csv.open_csv(
                self._path,
                read_options=csv.ReadOptions(block_size=CSV_BLOCK),
                parse_options=csv.ParseOptions(delimiter=self._delimiter),
                convert_options=csv.ConvertOptions(
                    include_columns=wanted,
                    column_types={name: pa.string() for name in wanted},
                    null_values=MISSING,
                    strings_can_be_null=True,
                ),
            )
        except (pa.ArrowInvalid, OSError, EOFError) as error:
            raise self._damaged(error) from None

    def _damaged(self, error: BaseException) -> LogError:
        return LogError(f"{self.name} cannot be read as CSV: {_first_line(error)}")

    def batches(self, columns: Sequence[str], size: int = BATCH) -> Iterator[Any]:
        """Yield Arrow record batches of at most `size` rows with these columns."""
        import pyarrow as pa

        with self._open(columns) as reader:
            try:
                for batch in reader:
                    for start in range(0, batch.num_rows, size):
                        yield batch.slice(start, size)
            except (pa.ArrowInvalid, OSError, EOFError) as error:
                raise self._damaged(error) from None


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0][:200] if str(error).strip() else repr(error)


def open_table(source: Any) -> Table:
    """Return the table behind a frame, or behind the path of a CSV or Parquet file."""
    if not isinstance(source, (str, Path)):
        return FrameTable(source)
    path = Path(source)
    if not path.exists():
        raise LogError(f"there is no file {path}")
    lower = path.name.lower()
    if path.is_dir() or lower.endswith(PARQUET_ENDS):
        return ParquetTable(path)
    if lower.endswith(CSV_ENDS):
        return CSVTable(path)
    raise LogError(
        f"`path` must end with one of {', '.join(CSV_ENDS + PARQUET_ENDS)}; got {shown(path.name)}"
    )
