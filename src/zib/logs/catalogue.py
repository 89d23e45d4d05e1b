"""The catalogue of public data sets: what is known of them, and how a file is opened and checked.

Nothing is ever downloaded.
"""

from __future__ import annotations

import hashlib
import importlib
import pkgutil
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from zib.core import validate
from zib.logs import public
from zib.logs.tables import CSV_ENDS, PARQUET_ENDS, LogError

FILE_ENDS = (*CSV_ENDS, ".csv.gz", ".tsv.gz", ".csv.bz2", ".csv.xz", ".dta", *PARQUET_ENDS)


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at; `ok` is None where nothing can be compared."""

    what: str
    ok: bool | None
    text: str


@dataclass(frozen=True)
class DataSet:
    """A public data set: what it is, where it comes from, and how its file is recognised.

    Attributes
    ----------
    name, title
        The name by which the catalogue knows it, and a title.
    what
        What was done, in a sentence or two.
    rows
        Number of rows of the file.
    rows_fixed
        Whether a file with another number of rows is another file.
    arms, randomisation, outcome, zeros
        What was chosen between, how it was chosen, what is counted as reward, and how often that
        is zero; in words.
    citation, licence, source, get
        Whom to cite, under which terms, where it is, and what a person has to do to get it.
    file_name
        The name of the file at the source, or None if no file is needed.
    sha256
        Checksum of that file; None where there is no single such file.
    columns
        The columns that are needed.
    other_columns
        Other sets of columns that will do instead; conversions of a file rename them.
    frame
        Returns the table as a pandas frame, for data that need no file.
    look
        Takes the table and returns one more finding for `check`.
    """

    name: str
    title: str
    what: str
    rows: int
    rows_fixed: bool
    arms: str
    randomisation: str
    outcome: str
    zeros: str
    citation: str
    licence: str
    source: str
    get: str
    file_name: str | None
    sha256: str | None
    columns: tuple[str, ...]
    other_columns: tuple[tuple[str, ...], ...] = ()
    frame: Callable[[], Any] | None = None
    look: Callable[[Any], Finding] | None = None

    @property
    def from_where(self) -> str:
        """Source and licence in a few words, for messages."""
        return f"{self.source} (licence: {self.licence})"


def existing(entry: DataSet, path: Any) -> Path:
    """Return the path of a file that is there, or say where to get it."""
    if not isinstance(path, (str, Path)):
        raise LogError(
            f"`path` must be the path of {entry.file_name} or a pandas frame read from it; "
            f"got {type(path).__name__}"
        )
    file = Path(path)
    if not file.is_file():
        raise LogError(f"there is no file {file}: get {entry.file_name} from {entry.from_where}")
    return file


def checksum(path: Path) -> str:
    """Return the sha256 of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def check_sum(entry: DataSet, path: Path) -> None:
    """Raise unless the file is the one that the catalogue knows."""
    if entry.sha256 is None:
        return
    found = checksum(path)
    if found != entry.sha256:
        raise LogError(
            f"{path.name} is not the file of {entry.source}: its sha256 is {found}, not "
            f"{entry.sha256}; get it again, or pass verify=False to use it as it is"
        )


def parse(path: Path) -> Any:
    """Return the pandas frame in a CSV, Stata or Parquet file."""
    import pandas as pd

    lower = path.name.lower()
    if not lower.endswith(FILE_ENDS):
        raise LogError(f"`path` must end with one of {', '.join(FILE_ENDS)}; got {path.name!r}")
    try:
        if lower.endswith(".dta"):
            return pd.read_stata(path, convert_categoricals=False)
        if lower.endswith(PARQUET_ENDS):
            return pd.read_parquet(path)
        return pd.read_csv(path, sep="\t" if ".tsv" in lower else ",", low_memory=False)
    except Exception as error:  # a damaged file makes the readers raise nearly anything
        why = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
        raise LogError(
            f"{path.name} cannot be read; it may be cut off or of another format ({why})"
        ) from None


def check_columns(entry: DataSet, frame: Any, name: str) -> tuple[str, ...]:
    """Return which of the known sets of columns the frame has, or raise."""
    sets = (entry.columns, *entry.other_columns)
    missing = [[c for c in columns if c not in frame.columns] for columns in sets]
    best = min(range(len(sets)), key=lambda i: len(missing[i]))
    if missing[best]:
        lacks = ", ".join(f"`{c}`" for c in missing[best])
        raise LogError(
            f"{name} lacks {lacks} of the {entry.title} data (needed: {', '.join(sets[best])})"
        )
    return sets[best]


def check_rows(entry: DataSet, frame: Any, name: str) -> None:
    """Raise if the file must have a certain number of rows and has another."""
    if entry.rows_fixed and len(frame) != entry.rows:
        raise LogError(
            f"{name} has {len(frame)} rows and the {entry.title} data have {entry.rows}; get the "
            "file again, or pass verify=False to use it as it is"
        )


def read(entry: DataSet, path: Any, *, verify: bool) -> Any:
    """Return the frame of a data set after all checks; a frame is only checked for its columns."""
    import pandas as pd

    if isinstance(path, pd.DataFrame):
        check_columns(entry, path, "the frame")
        return path
    file = existing(entry, path)
    if verify:
        check_sum(entry, file)
    frame = parse(file)
    check_columns(entry, frame, file.name)
    if verify:
        check_rows(entry, frame, file.name)
    return frame


def known_context(
    entry: DataSet,
    frame: Any,
    context: Sequence[str],
    *,
    code: float | None = None,
    drop_missing: bool,
) -> Any:
    """Return which rows to use: all, or with `drop_missing` those whose context is known.

    `code` is a number that stands for a missing value. Raises if a column is not there, or if
    values are missing and rows are not to be dropped.
    """
    keep = np.ones(len(frame), dtype=bool)
    for column in context:
        if column not in frame.columns:
            raise LogError(f"`context` asks for {column!r}, which the {entry.title} data lack")
        unknown = frame[column].isna().to_numpy()
        coded = ""
        if code is not None:
            marked = (frame[column] == code).to_numpy()
            if marked.any():
                unknown, coded = unknown | marked, f" (coded {code:g})"
        if unknown.any() and not drop_missing:
            raise LogError(
                f"column `{column}` is missing{coded} in {int(unknown.sum())} of {len(frame)} "
                "rows; leave it out of `context`, or pass drop_missing=True to drop those rows"
            )
        keep &= ~unknown
    if not keep.any():
        raise LogError("every row misses a value of `context`; ask for fewer columns")
    return keep


def context_columns(context: Sequence[str]) -> tuple[str, ...]:
    """Return the columns asked for as a tuple; one name stands for itself."""
    return (context,) if isinstance(context, str) else tuple(context)


# ------------------------------------------------------------------------------- the catalogue


@cache
def _modules() -> dict[str, Any]:
    """Return the files of `zib.logs.public` by the names of their data sets."""
    found = [
        importlib.import_module(f"{public.__name__}.{module.name}")
        for module in pkgutil.iter_modules(public.__path__)
    ]
    return {module.ENTRY.name: module for module in found}


def loaders() -> dict[str, Callable[..., Any]]:
    """Return the functions of all data sets by their names: ``load_cprm`` and so on."""
    modules = _modules().values()
    return {name: getattr(module, name) for module in modules for name in module.__all__}


@dataclass(frozen=True)
class Check:
    """What `check` found, in words; `str` gives the report.

    Attributes
    ----------
    name
        The data set.
    findings
        File, checksum, columns and rows, as far as the check got.
    """

    name: str
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether the data can be used as they are."""
        return all(finding.ok is not False for finding in self.findings)

    @property
    def exit_status(self) -> int:
        """0 if the data can be used, else 1."""
        return 0 if self.ok else 1

    def __str__(self) -> str:
        marks = {True: "ok", False: "WRONG", None: "–"}
        width = max(len(finding.what) for finding in self.findings)
        lines = [f"{f.what:<{width}}  {marks[f.ok]:<5}  {f.text}" for f in self.findings]
        verdict = "can be used" if self.ok else "cannot be used as it is"
        return "\n".join([*lines, f"{self.name}: {verdict}"])


def names() -> tuple[str, ...]:
    """Return the names of the data sets.

    Examples
    --------
    >>> names()
    ('cprm', 'karlan_list', 'karlan_zinman', 'randhie')
    """
    return tuple(_modules())


def info(name: str) -> DataSet:
    """Return what is known of a data set.

    Examples
    --------
    >>> info("karlan_zinman").licence
    'CC BY 4.0'
    """
    if not isinstance(name, str) or name not in names():
        raise LogError(f"`name` must be one of {', '.join(names())}; got {validate.shown(name)}")
    entry: DataSet = _modules()[name].ENTRY
    return entry


def load_frame(name: str, path: Any = None, *, verify: bool = True) -> Any:
    """Return the table of a data set as a pandas frame, as it stands in the file.

    Parameters
    ----------
    name
        One of `names`.
    path
        The file; left out for data that need none, such as ``"randhie"``.
    verify
        Whether checksum and number of rows must be the known ones, where there are such.
    """
    entry = info(name)
    if entry.frame is not None:
        if path is not None:
            raise LogError(f"`path` must be left out: {name} comes with {entry.source}")
        return entry.frame()
    if path is None:
        raise LogError(
            f"`path` must name the file of {name}: get {entry.file_name} from {entry.from_where}"
        )
    return read(entry, path, verify=verify)


def check(name: str, path: Any = None) -> Check:
    """Return whether a file is the one that the catalogue knows: file, checksum, columns, rows.

    Never raises for a file that is missing or wrong; the report says so.
    """
    entry = info(name)
    found: list[Finding] = []

    def holds(what: str, step: Callable[[], Any], text: str) -> Any:
        try:
            result = step()
        except LogError as error:
            found.append(Finding(what, False, str(error)))
            return None
        found.append(Finding(what, True, text))
        return result if result is not None else True

    if entry.frame is not None:
        title = entry.source
        text = f"no file needed, {entry.source} has it"
        frame = holds("file", lambda: load_frame(name, path), text)
    else:
        file = holds("file", lambda: _file(entry, path), f"{path} is there")
        if file is None:
            return Check(name, tuple(found))
        title = file.name
        if entry.sha256 is None:
            found.append(Finding("checksum", None, "not compared: there is no single fixed file"))
        else:
            holds("checksum", lambda: check_sum(entry, file), f"sha256 {entry.sha256}")
        frame = holds("format", lambda: parse(file), f"{title} can be read")
    if frame is None:
        return Check(name, tuple(found))
    has = holds("columns", lambda: check_columns(entry, frame, title), "all needed ones are there")
    if entry.rows_fixed:
        holds("rows", lambda: check_rows(entry, frame, title), f"{len(frame)}")
    else:
        same = "as expected" if len(frame) == entry.rows else f"expected about {entry.rows}"
        found.append(Finding("rows", None, f"{len(frame)}, {same}"))
    if has and entry.look is not None:
        found.append(entry.look(frame))
    return Check(name, tuple(found))


def _file(entry: DataSet, path: Any) -> Any:
    if path is None:
        raise LogError(f"no path was given: get {entry.file_name} from {entry.from_where}")
    return existing(entry, path)


def catalogue_rows() -> list[tuple[str, ...]]:
    """Return a table of the data sets: a row of headings, then one row each."""
    head = ("name", "data", "rows", "from")
    return [head, *((e.name, e.title, str(e.rows), e.source) for e in map(info, names()))]


def info_text(name: str) -> str:
    """Return all that is known of a data set, as text for a terminal."""
    entry = info(name)
    columns = " or ".join(", ".join(each) for each in (entry.columns, *entry.other_columns))
    parts = {
        "what": entry.what,
        "rows": f"{entry.rows}",
        "arms": entry.arms,
        "assignment": entry.randomisation,
        "reward": entry.outcome,
        "zeros": entry.zeros,
        "columns": columns,
        "source": entry.source,
        "how to get": entry.get,
        "file": entry.file_name or "none needed",
        "sha256": entry.sha256 or "not fixed",
        "licence": entry.licence,
        "cite": entry.citation,
        "load with": f"zib.datasets.load_{entry.name}({'' if entry.file_name is None else 'path'})",
    }
    width = max(map(len, parts))
    body = [
        textwrap.fill(text, 96, initial_indent=f"{label:<{width}}  ",
                      subsequent_indent=" " * (width + 2))
        for label, text in parts.items()
    ]  # fmt: skip
    return "\n".join([f"{entry.name}: {entry.title}", *body])


def check_text(name: str, path: Any = None) -> tuple[str, int]:
    """Return the report of `check` and the exit status of a command that prints it."""
    report = check(name, path)
    return str(report), report.exit_status
