"""What the catalogue knows of a data set, and how its file is opened and checked."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from zib.logs.tables import CSV_ENDS, PARQUET_ENDS, LogError

FILE_ENDS = (*CSV_ENDS, ".dta", *PARQUET_ENDS)


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
