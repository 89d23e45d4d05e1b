"""Text files with one row per line: packing, encoding, separator and header are found out."""

from __future__ import annotations

import codecs
import csv
import io
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from zib.logs.tables import BATCH, MISSING, PACKED_ENDS, LogError, Table, refusing

BLOCK = 1 << 24  # bytes that are parsed at a time
HEAD = 1 << 18  # bytes that are looked at first
RECORDS = 200  # records that are looked at first
SEPARATORS = (",", ";", "\t", "|")
NAMES = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
FALLBACK = "cp1252"

# The first bytes of a file, and how it is packed.
_MAGIC = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bz2",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\xfd7zXZ\x00": "xz",
    b"PK\x03\x04": "zip",
}
_MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


def open_bytes(path: Path) -> tuple[Any, str | None]:
    """Return the unpacked bytes of a file as a stream of Arrow, and how they were packed."""
    import pyarrow as pa

    with path.open("rb") as file:
        first = file.read(8)
    kind = next((kind for magic, kind in _MAGIC.items() if first.startswith(magic)), None)
    if kind == "xz":
        import lzma

        return pa.PythonFile(lzma.open(path), mode="r"), kind
    if kind == "zip":
        return pa.PythonFile(_unzipped(path), mode="r"), kind
    plain = pa.OSFile(str(path))
    return (plain if kind is None else pa.CompressedInputStream(plain, kind)), kind


def _unzipped(path: Path) -> Any:
    import zipfile

    archive = zipfile.ZipFile(path)
    inside = [
        entry.filename
        for entry in archive.infolist()
        if not entry.is_dir() and not entry.filename.startswith(("__MACOSX", "."))
    ]
    if len(inside) != 1:
        raise LogError(
            f"{path.name} must hold one file; it holds {len(inside)}: "
            f"{', '.join(inside[:5])} (unpack it and name the file)"
        )
    return archive.open(inside[0])


def packing_note(path: Path, kind: str | None) -> list[str]:
    """Return a note if a file is packed and its name does not say so."""
    says = path.name.lower().endswith(PACKED_ENDS)
    if kind is not None and not says:
        return [f"{path.name} is packed with {kind}"]
    return []


def encoding_of(head: bytes) -> tuple[str, bool]:
    """Return the encoding that the first bytes show, and whether it is beyond doubt."""
    for mark, encoding in _MARKS.items():
        if head.startswith(mark):
            return encoding, True
    zeros = [head[k:4096:2].count(0) for k in (0, 1)]
    few, many = sorted(zeros)
    if many > len(head[:4096]) / 4 and few == 0:
        return ("utf-16-le" if zeros[1] == many else "utf-16-be"), True
    return "utf-8", False


def decode(data: bytes) -> tuple[str, bool]:
    """Return bytes as text, and whether they are UTF-8."""
    try:
        return data.decode("utf-8-sig"), True
    except UnicodeDecodeError:
        pass
    try:
        return data.decode(FALLBACK), False
    except UnicodeDecodeError:
        return data.decode("latin-1"), False


class Layout(NamedTuple):
    """How a text file is laid out."""

    sep: str
    skip: int  # lines before the header
    names: tuple[str, ...]


def sniff(text: str, whole: bool, wanted: str | None, usual: str) -> Layout | None:
    """Find separator and header in the first lines of a file; None if there is no line."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if not whole and "\n" in text:
        text = text[: text.rindex("\n") + 1]
    first = text.split("\n", 1)[0].strip().strip('"')
    before = 0
    if len(first) == 5 and first.lower().startswith("sep="):  # as Excel writes it
        wanted = wanted or first[4]
        text, before = text.partition("\n")[2], 1
    found = [
        (score, layout._replace(skip=layout.skip + before))
        for sep in ((wanted,) if wanted else SEPARATORS)
        for score, layout in _layouts(text, sep, whole)
    ]
    if not found:
        return None
    # Equal counts in all records come first, then more columns, then the usual separator.
    return max(found, key=lambda pair: (*pair[0], pair[1].sep == usual))[1]


def _layouts(text: str, sep: str, whole: bool) -> Iterator[tuple[tuple[float, int], Layout]]:
    """Yield how well a separator fits, and the layout with it."""
    reader = csv.reader(io.StringIO(text), delimiter=sep)
    records: list[tuple[int, list[str]]] = []  # with the line on which they start
    line = 0
    try:
        for record in reader:
            records.append((line, record))
            line = reader.line_num
            if len(records) == RECORDS:
                break
    except csv.Error:
        pass
    if not whole and len(records) < RECORDS:
        records = records[:-1] or records  # the last one may be cut
    records = [(at, record) for at, record in records if record]
    if not records:
        return
    width = Counter(len(record) for _, record in records).most_common(1)[0][0]
    fitting = sum(len(record) == width for _, record in records) / len(records)
    # Lines of a title or of comments stand before the header in many exports.
    rest = records
    while (
        len(rest) > 1
        and width > 1
        and len(rest[0][1]) != width
        and (rest[0][1][0].startswith("#") or sum(map(bool, rest[0][1])) <= 1)
    ):
        rest = rest[1:]
    at, header = rest[0]
    header_fits = len(header) == width and all(len(name) < 1000 for name in header)
    names = tuple(name.strip() for name in header)
    fits = header_fits and width > 1
    yield (fitting if fits else 0.0, width if fits else 0), Layout(sep, at, names)


class CSVTable(Table):
    """A text file with a header, possibly packed; all columns are read as text."""

    def __init__(self, path: Path, sep: str | None = None, encoding: str | None = None) -> None:
        self.name = path.name
        self._path = path
        usual = "\t" if any(end in path.name.lower() for end in (".tsv", ".tab")) else ","
        with refusing(self.name, "CSV"):
            stream, packed = open_bytes(path)
            with stream:
                head = stream.read(HEAD)
                whole = len(head) < HEAD
        self._given = encoding is not None
        self._encoding, sure = (encoding, True) if encoding else encoding_of(head)
        with refusing(self.name, "CSV"):
            layout = sniff(self._head(head), whole, sep, usual)
            if layout is None:
                raise LogError(f"{self.name} cannot be read as CSV: it is empty")
        self._sep, self._skip, names = layout
        self._places = {name: i for i, name in enumerate(names)}
        self._width = len(names)
        self._odd: set[str] = set()
        self._name_columns(names)
        self.columns = tuple(name for name in self.columns if name) or self.columns
        self.comma_likely = self._sep == ";"
        notes = packing_note(path, packed)
        if self._sep != (sep or usual):
            notes.append(f"{self.name} has {NAMES.get(self._sep, repr(self._sep))} between columns")
        if self._skip:
            notes.append(f"{self.name}: {self._skip} lines before the header are left out")
        if sure and not self._given and self._encoding != "utf-8":
            notes.append(f"{self.name} is encoded in {self._encoding}")
        self.notes = tuple(notes)

    def _head(self, head: bytes) -> str:
        """Return the first bytes as text."""
        if self._encoding == "utf-8" and not self._given:
            text, clean = decode(head)
            # a letter may be cut in two at the end
            return text if clean else decode(head[: head.rfind(b"\n") + 1] or head)[0]
        decoder = codecs.getincrementaldecoder(self._encoding)()
        return decoder.decode(head).removeprefix("\ufeff")

    def _open(self, stream: Any, columns: Sequence[str]) -> Any:
        import pyarrow as pa
        from pyarrow import csv as arrow

        wanted = [str(self._places[name]) for name in columns]
        transcoded = self._given or self._encoding != "utf-8"
        return arrow.open_csv(
            stream,
            read_options=arrow.ReadOptions(
                block_size=BLOCK,
                skip_rows=self._skip,
                column_names=[str(i) for i in range(self._width)],
                skip_rows_after_names=1,
                encoding=self._encoding if transcoded else "utf8",
            ),
            parse_options=arrow.ParseOptions(delimiter=self._sep, newlines_in_values=True),
            convert_options=arrow.ConvertOptions(
                include_columns=wanted,
                column_types={name: pa.binary() for name in wanted},
                null_values=MISSING,
                strings_can_be_null=True,
            ),
        )

    def batches(self, columns: Sequence[str], size: int = BATCH) -> Iterator[Any]:
        """Yield Arrow record batches of at most `size` rows with these columns."""
        import pyarrow as pa

        with refusing(self.name, "CSV"):
            stream, _ = open_bytes(self._path)
            with stream, self._open(stream, columns) as reader:
                for batch in reader:
                    texts = [self._text(name, values) for name, values in zip(columns, batch)]
                    named = pa.record_batch(texts, names=list(columns))
                    for start in range(0, batch.num_rows, size):
                        yield named.slice(start, size)

    def _text(self, name: str, values: Any) -> Any:
        """Return bytes as text; odd ones are decoded value by value."""
        import pyarrow as pa

        try:
            return values.cast(pa.string())
        except pa.ArrowInvalid:
            pass
        encoded = values.dictionary_encode()
        texts = pa.array([decode(each)[0] for each in encoded.dictionary.to_pylist()], pa.string())
        if name not in self._odd:
            self._odd.add(name)
            note = f"column `{name}` holds bytes that are not UTF-8; they are read as {FALLBACK}"
            self.notes = (*self.notes, note)
        return texts.take(encoded.indices)
