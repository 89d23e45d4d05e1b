"""Tables in batches of bounded size: frames, whatever speaks Arrow, and files.

Everything becomes Arrow on the way in, so frames and files are read by the same code.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from zib.core.validate import InvalidParameterError, shown

PARQUET_ENDS = (".parquet", ".pq", ".parq")
ARROW_ENDS = (".feather", ".arrow", ".ipc")
EXCEL_ENDS = (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods")
PACKED_ENDS = (".gz", ".bz2", ".xz", ".zst", ".zip")
CSV_ENDS = (".csv", ".tsv", ".txt", ".tab")
JSON_ENDS = (".jsonl", ".ndjson", ".json")
MISSING = ["", "NA", "N/A", "#N/A", "NaN", "nan", "null", "NULL", "None", "<NA>"]
BATCH = 1 << 18


class LogError(InvalidParameterError):
    """A log that cannot be used; the message names the column and the first offending row."""


class Table(ABC):
    """Rows in batches; `columns` are the names in the order of the file.

    Attributes
    ----------
    name
        The file, for messages.
    columns
        The names that occur once.
    repeated
        Names that several columns have; those cannot be read.
    notes
        What was guessed of the file, one sentence each.
    decimal
        The decimal mark if it was given.
    comma_likely
        Whether numbers rather have decimal commas and dates the day first.
    """

    name: str
    columns: tuple[str, ...]
    repeated: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    decimal: str | None = None
    comma_likely: bool = False

    @property
    def n_rows(self) -> int | None:
        """Number of rows, where that is known without reading them; `rows` then reads some."""
        return None

    def rows(
        self, columns: Sequence[str], start: int, stop: int, size: int = BATCH
    ) -> Iterator[Any]:
        """Yield the rows from number `start` to before `stop`."""
        raise NotImplementedError

    def stamp(self) -> tuple[tuple[int, int], ...] | None:
        """Return times and sizes of the files, by which a change is noticed; None if unknown."""
        return None

    @abstractmethod
    def batches(self, columns: Sequence[str], size: int = BATCH) -> Iterator[Any]:
        """Yield Arrow record batches of at most `size` rows with these columns."""

    def _name_columns(self, names: Sequence[Any]) -> None:
        """Set the names of the columns; those that occur twice cannot be asked for."""
        count = Counter(str(name) for name in names)
        self.columns = tuple(name for name, n in count.items() if n == 1)
        self.repeated = tuple(name for name, n in count.items() if n > 1)
        if not self.columns:
            raise LogError(f"{self.name} has no column with a name of its own")

    def require(self, role: str, column: str) -> str:
        """Return `column` if the table has it, or raise with the names it does have."""
        if column in self.columns:
            return column
        if column in self.repeated:
            raise LogError(
                f"{self.name} has several columns named {column!r} (asked for as `{role}`); "
                "rename them"
            )
        import difflib

        near = difflib.get_close_matches(str(column), self.columns, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        if any(re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", name) for name in self.columns):
            hint += " Is the first line a header?"
        known = ", ".join(self.columns[:20]) + (", …" if len(self.columns) > 20 else "")
        raise LogError(
            f"{self.name} has no column {column!r} (asked for as `{role}`){hint} It has: {known}."
        )


class FrameTable(Table):
    """A pandas or Polars frame, or an Arrow table."""

    def __init__(self, frame: Any, name: str = "the frame") -> None:
        self.name = name
        self._frame = frame
        names = frame.column_names if hasattr(frame, "column_names") else list(frame.columns)
        self._name_columns(names)
        self._names = {str(name): name for name in names}

    def batches(self, columns: Sequence[str], size: int = BATCH) -> Iterator[Any]:
        """Yield Arrow record batches of at most `size` rows with these columns."""
        import pyarrow as pa

        table = pa.table({name: to_arrow(self._frame, self._names[name]) for name in columns})
        for batch in table.to_batches(max_chunksize=size):
            yield usual(batch)


def to_arrow(frame: Any, name: Any) -> Any:
    """Return a column of a frame as an Arrow array; numbers and text mixed become text."""
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


class StreamTable(Table):
    """Anything that hands out an Arrow stream (``__arrow_c_stream__``), such as a DuckDB relation.

    It is asked for a new stream on every pass.
    """

    def __init__(self, source: Any) -> None:
        self.name = f"the {type(source).__name__}"
        self._source = source
        with refusing(self.name, "an Arrow stream"):
            self._name_columns(self._stream().schema.names)

    def _stream(self) -> Any:
        import pyarrow as pa

        return pa.RecordBatchReader.from_stream(self._source)

    def batches(self, columns: Sequence[str], size: int = BATCH) -> Iterator[Any]:
        """Yield Arrow record batches of at most `size` rows with these columns."""
        with refusing(self.name, "an Arrow stream"):
            yield from cut(self._stream(), columns, size)


class DatasetTable(Table):
    """A dataset of Arrow: many files, perhaps far away, of which only some columns are read."""

    def __init__(self, source: Any) -> None:
        self.name = "the dataset"
        self._source = source
        self._name_columns(source.schema.names)

    def batches(self, columns: Sequence[str], size: int = BATCH) -> Iterator[Any]:
        """Yield Arrow record batches of at most `size` rows with these columns."""
        with refusing(self.name, "an Arrow dataset"):
            found = self._source.to_batches(columns=list(columns), batch_size=size)
            yield from cut(found, columns, size)


def cut(batches: Any, columns: Sequence[str], size: int) -> Iterator[Any]:
    """Yield these columns of record batches, at most `size` rows at a time."""
    for batch in batches:
        wanted = usual(batch.select(list(columns)))
        for start in range(0, batch.num_rows, size):
            yield wanted.slice(start, size)


def usual(batch: Any) -> Any:
    """Return a record batch with plain text and numbers in the place of their newer kinds."""
    import pyarrow as pa

    def better(kind: Any) -> Any:
        if isinstance(kind, pa.BaseExtensionType):
            return better(kind.storage_type)
        if pa.types.is_run_end_encoded(kind):
            return better(kind.value_type)
        if pa.types.is_dictionary(kind):
            value = better(kind.value_type)
            return kind if value == kind.value_type else value
        return pa.string() if kind == pa.string_view() else kind

    kinds = [better(field.type) for field in batch.schema]
    if kinds == batch.schema.types:
        return batch
    columns = []
    for values, kind in zip(batch.columns, kinds, strict=True):
        if isinstance(values, pa.ExtensionArray):
            values = values.storage
        columns.append(values if values.type == kind else values.cast(kind))
    return pa.record_batch(columns, names=batch.schema.names)


@contextmanager
def refusing(name: str, kind: str) -> Iterator[None]:
    """Turn whatever a reader of files raises into one sentence."""
    try:
        yield
    except LogError:
        raise
    except Exception as error:  # a damaged file makes the readers raise nearly anything
        raise LogError(
            f"{name} cannot be read as {kind}; it may be cut off, damaged or of another kind "
            f"({first_line(error)})"
        ) from None


def first_line(error: BaseException) -> str:
    """Return what an error says, without what follows."""
    return str(error).strip().splitlines()[0][:200] if str(error).strip() else repr(error)


def is_url(source: object) -> bool:
    """Return whether a text is a URL, such as ``s3://bucket/folder``.

    Examples
    --------
    >>> is_url("s3://bucket/log"), is_url("C:/log.parquet"), is_url("log.parquet")
    (True, False, False)
    """
    return isinstance(source, str) and re.match(r"[a-zA-Z][a-zA-Z0-9+.-]+://", source) is not None


def open_table(
    source: Any,
    *,
    sep: str | None = None,
    decimal: str | None = None,
    encoding: str | None = None,
    sheet: str | None = None,
) -> Table:
    """Return the table behind a frame or the path of a file.

    `sep`, `encoding` and `sheet` are found out where they are None; `decimal` belongs to the
    columns, which find it out themselves.
    """
    _check_options(sep, decimal, encoding, sheet)
    if is_url(source):
        from zib.logs.parquet import ParquetTable

        _only("a URL of Parquet files", {"sep": sep, "encoding": encoding, "sheet": sheet}, ())
        table: Table = ParquetTable(source)
    elif isinstance(source, (str, Path)):
        table = _open_file(Path(source), sep, encoding, sheet)
    else:
        _only("a file", {"sep": sep, "encoding": encoding, "sheet": sheet}, ())
        table = _open_object(source)
    table.decimal = decimal
    table.comma_likely |= decimal == ","
    return table


def _open_object(source: Any) -> Table:
    """Return the table in memory or behind an interface of Arrow."""
    if hasattr(source, "collect") and hasattr(source, "collect_schema"):  # a lazy Polars frame
        source = source.collect()
    if hasattr(source, "read_next_batch"):  # a stream that can be read once only
        source = source.read_all()
    if hasattr(source, "to_batches") and hasattr(source, "scanner"):
        return DatasetTable(source)
    if any(hasattr(source, name) for name in ("iloc", "get_columns", "column_names")):
        return FrameTable(source)
    if hasattr(source, "__arrow_c_stream__"):
        return StreamTable(source)
    raise LogError(
        "`frame` or `source` must be a pandas or Polars frame, an Arrow table or anything with "
        f"an Arrow stream; got {type(source).__name__}"
    )


def _open_file(path: Path, sep: str | None, encoding: str | None, sheet: str | None) -> Table:
    from zib.logs.delimited import CSVTable
    from zib.logs.formats import ArrowTable, ExcelTable, JSONTable
    from zib.logs.parquet import ParquetTable

    if not path.exists():
        raise LogError(f"there is no file {path}")
    given = {"sep": sep, "encoding": encoding, "sheet": sheet}
    lower = path.name.lower()
    bare = lower
    for end in PACKED_ENDS:
        bare = bare.removesuffix(end)
    if path.is_dir() or lower.endswith(PARQUET_ENDS):
        _only("a Parquet file", given, ())
        return ParquetTable(path)
    if lower.endswith(ARROW_ENDS):
        _only("an Arrow file", given, ())
        return ArrowTable(path)
    if lower.endswith(EXCEL_ENDS):
        _only("an Excel file", given, ("sheet",))
        return ExcelTable(path, sheet)
    if bare.endswith(JSON_ENDS):
        _only("a JSON file", given, ("encoding",))
        return JSONTable(path, encoding)
    if bare.endswith(CSV_ENDS) or (bare != lower and "." not in bare.strip(".")):
        _only("a text file", given, ("sep", "encoding"))
        return CSVTable(path, sep, encoding)
    ends = CSV_ENDS + JSON_ENDS + PARQUET_ENDS + ARROW_ENDS + EXCEL_ENDS
    raise LogError(
        f"`path` must end with one of {', '.join(ends)} (text and JSON also packed: "
        f"{', '.join(PACKED_ENDS)}); got {shown(path.name)}"
    )


def _only(what: str, given: dict[str, str | None], fitting: tuple[str, ...]) -> None:
    for option, value in given.items():
        if value is not None and option not in fitting:
            raise LogError(f"`{option}` must be left out for {what}; got {shown(value)}")


def _check_options(sep: Any, decimal: Any, encoding: Any, sheet: Any) -> None:
    import codecs

    if sep is not None and not (isinstance(sep, str) and len(sep) == 1 and sep not in "\"'\r\n\0"):
        raise LogError(f"`sep` must be one character, such as ';'; got {shown(sep)}")
    if sep is not None and (sep.isalnum() or sep == decimal or not sep.isascii()):
        raise LogError(
            f"`sep` must be a character that is no part of words and numbers; got {shown(sep)}"
        )
    if not (decimal is None or (isinstance(decimal, str) and decimal in (".", ","))):
        raise LogError(f"`decimal` must be '.' or ','; got {shown(decimal)}")
    if encoding is not None:
        try:
            codecs.lookup(encoding)
            b"a".decode(encoding) if "16" not in encoding and "32" not in encoding else None
        except (LookupError, TypeError, ValueError):
            raise LogError(
                f"`encoding` must name an encoding of text, such as 'cp1252'; got {shown(encoding)}"
            ) from None
    if not (sheet is None or isinstance(sheet, str)):
        raise LogError(f"`sheet` must be the name of a sheet; got {shown(sheet)}")
