"""Files of JSON lines, of Arrow (Feather) and of Excel."""

from __future__ import annotations

import io
import json
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from zib.logs.delimited import BLOCK, decode, encoding_of, open_bytes, packing_note
from zib.logs.tables import BATCH, MISSING, FrameTable, LogError, Table, cut, refusing, to_arrow


class JSONTable(Table):
    """One object per line, possibly packed; or one list of objects. Nested ones get dotted names.

    A list is read into memory as a whole; lines are read in pieces.
    """

    def __init__(self, path: Path, encoding: str | None = None) -> None:
        self.name = path.name
        self._path = path
        with refusing(self.name, "JSON"):
            stream, packed = open_bytes(path)
            with stream:
                head = stream.read(4096)
            self._encoding = encoding
            if encoding is None:
                found, sure = encoding_of(head)
                self._encoding = found if sure and found != "utf-8" else None
            first = next(self._tables(), None)
        if first is None:
            raise LogError(f"{self.name} has no rows")
        self._name_columns(first.column_names)
        self.notes = tuple(packing_note(path, packed))

    def _blocks(self) -> Iterator[bytes]:
        """Yield whole lines in UTF-8."""
        stream, _ = open_bytes(self._path)
        with stream:
            if self._encoding is not None:
                text = io.TextIOWrapper(stream, encoding=self._encoding)
                if (whole := text.read()).strip():
                    yield whole.removeprefix("\ufeff").encode()
                return
            rest = b""
            while block := stream.read(BLOCK):
                end = block.rfind(b"\n") + 1
                if end == 0:
                    rest += block
                    continue
                yield self._utf8(rest + block[:end])
                rest = block[end:]
            if rest.strip():
                yield self._utf8(rest)

    def _utf8(self, block: bytes) -> bytes:
        try:
            block.decode()
        except UnicodeDecodeError:
            return b"\n".join(decode(line)[0].encode() for line in block.split(b"\n"))
        return block.removeprefix(b"\xef\xbb\xbf")

    def _tables(self) -> Iterator[Any]:
        import pyarrow as pa
        from pyarrow import json as arrow

        blocks = self._blocks()
        for block in blocks:
            start = block.lstrip()[:1]
            if start == b"[":
                block = self._lines(block + b"".join(blocks))
            if not block.strip():
                continue
            options = arrow.ReadOptions(block_size=len(block) + 1)
            try:
                table = arrow.read_json(pa.BufferReader(block), read_options=options)
            except pa.ArrowInvalid:
                table = _mixed(block)
            while any(pa.types.is_struct(kind) for kind in table.schema.types):
                table = table.flatten()
            yield table

    def _lines(self, whole: bytes) -> bytes:
        rows = json.loads(whole)
        if not all(isinstance(row, dict) for row in rows):
            raise LogError(f"{self.name} must be a list of objects, one per row")
        return "\n".join(map(json.dumps, rows)).encode()

    def batches(self, columns: Sequence[str], size: int = BATCH) -> Iterator[Any]:
        """Yield Arrow record batches of at most `size` rows with these columns."""
        import pyarrow as pa

        with refusing(self.name, "JSON"):
            for table in self._tables():
                held = [
                    table.column(name) if name in table.column_names else pa.nulls(table.num_rows)
                    for name in columns
                ]
                whole = pa.table(held, names=list(columns))
                yield from cut(whole.to_batches(max_chunksize=size), columns, size)


def _mixed(block: bytes) -> Any:
    """Return lines in which a key holds numbers here and text there: all of it becomes text."""
    import pandas as pd
    import pyarrow as pa

    frame = pd.json_normalize([json.loads(line) for line in block.splitlines() if line.strip()])
    return pa.table({str(name): to_arrow(frame, name) for name in frame.columns})


class ArrowTable(Table):
    """A Feather or Arrow IPC file."""

    def __init__(self, path: Path) -> None:
        self.name = path.name
        self._path = path
        with refusing(self.name, "Arrow"), self._open() as reader:
            self._name_columns(reader.schema.names)
            self._places = {name: i for i, name in enumerate(reader.schema.names)}

    def _open(self, columns: Sequence[str] | None = None) -> Any:
        import pyarrow as pa

        options = pa.ipc.IpcReadOptions(
            included_fields=None if columns is None else [self._places[name] for name in columns]
        )
        source = pa.memory_map(str(self._path))
        try:
            return pa.ipc.open_file(source, options=options)
        except pa.ArrowInvalid:
            return pa.ipc.open_stream(pa.memory_map(str(self._path)), options=options)

    def batches(self, columns: Sequence[str], size: int = BATCH) -> Iterator[Any]:
        """Yield Arrow record batches of at most `size` rows with these columns."""
        with refusing(self.name, "Arrow"), self._open(columns) as reader:
            held = (
                map(reader.get_batch, range(reader.num_record_batches))
                if hasattr(reader, "num_record_batches")
                else reader
            )
            for batch in held:
                batch.validate(full=True)  # places in damaged files may point anywhere
                yield from cut([batch], columns, size)


class ExcelTable(FrameTable):
    """A sheet of a workbook, read into memory: the one that is named, else the first with rows."""

    def __init__(self, path: Path, sheet: str | None = None) -> None:
        found, others = _sheet(path, sheet)
        used, frame = found
        super().__init__(frame, path.name)
        self.columns = tuple(name for name in self.columns if name) or self.columns
        notes = [f"{path.name}: sheet {used!r} is read"] if others else []
        self.notes = tuple(notes)


def _sheet(path: Path, wanted: str | None) -> tuple[tuple[str, Any], bool]:
    """Return name and rows of a sheet, and whether there are others."""
    import pandas as pd

    with refusing(path.name, "Excel"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # styles and the like that the readers do not know
        with pd.ExcelFile(path, engine=_engine(path)) as book:
            names = [str(name) for name in book.sheet_names]
            if wanted is not None and wanted not in names:
                raise LogError(f"{path.name} has no sheet {wanted!r}; it has {', '.join(names)}")
            for name in [wanted] if wanted is not None else names:
                cells = book.parse(
                    name, header=None, dtype=object, na_values=MISSING, keep_default_na=False
                )
                if len(cells):
                    return (name, _headed(cells)), len(names) > 1
    raise LogError(f"{path.name} has no rows")


def _headed(cells: Any) -> Any:
    """Return the cells below the header, which is the first row that is about full."""
    width = int(cells.notna().sum(axis=1).median())
    filled = cells.notna().sum(axis=1).to_numpy()
    at = next((i for i, n in enumerate(filled) if n > 1 or width <= 1), 0)
    names = ["" if value is None or value != value else str(value).strip() for value in
             cells.iloc[at].tolist()]  # fmt: skip
    body = cells.iloc[at + 1 :].dropna(how="all").reset_index(drop=True)
    body.columns = names
    columns = [body.iloc[:, i].infer_objects() for i in range(len(names))]
    import pandas as pd

    return pd.concat(columns, axis=1) if columns else body


def _engine(path: Path) -> Any:
    from importlib.util import find_spec

    if find_spec("python_calamine"):
        return "calamine"
    if find_spec("openpyxl") and path.suffix.lower() in (".xlsx", ".xlsm"):
        return "openpyxl"
    raise LogError(
        f"{path.name} needs a reader of Excel files: pip install python-calamine, or save the "
        "sheet as CSV"
    )
