"""The public data sets that are known by name. Nothing is ever downloaded."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from zib.logs import cprm, karlan_list, karlan_zinman, randhie
from zib.logs.entry import (
    DataSet,
    check_columns,
    check_rows,
    check_sum,
    existing,
    parse,
    read,
)
from zib.logs.tables import LogError

_ENTRIES = {
    entry.name: entry
    for entry in (karlan_zinman.ENTRY, karlan_list.ENTRY, cprm.ENTRY, randhie.ENTRY)
}


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at; `ok` is None where nothing can be compared."""

    what: str
    ok: bool | None
    text: str


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
    ('karlan_zinman', 'karlan_list', 'cprm', 'randhie')
    """
    return tuple(_ENTRIES)


def info(name: str) -> DataSet:
    """Return what is known of a data set.

    Examples
    --------
    >>> info("karlan_zinman").licence
    'CC BY 4.0'
    """
    if name not in _ENTRIES:
        raise LogError(f"`name` must be one of {', '.join(names())}; got {name!r}")
    return _ENTRIES[name]


def load_frame(name: str, path: Any = None, *, verify: bool = True) -> Any:
    """Return the table of a data set as a pandas frame, as it stands in the file.

    Parameters
    ----------
    name
        One of `names`.
    path
        The file; not needed for ``"randhie"``.
    verify
        Whether checksum and number of rows must be the known ones, where there are such.
    """
    entry = info(name)
    if entry.file_name is None:
        if path is not None:
            raise LogError(f"`path` must be left out: {name} comes with {entry.source}")
        return randhie.frame_randhie()
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

    if entry.file_name is None:
        title = "statsmodels"
        frame = holds("file", lambda: load_frame(name, path), "no file needed, statsmodels has it")
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
    if has and name == "cprm":
        found.append(_price_classes(frame))
    return Check(name, tuple(found))


def _file(entry: DataSet, path: Any) -> Any:
    if path is None:
        raise LogError(f"no path was given: get {entry.file_name} from {entry.from_where}")
    return existing(entry, path)


def _price_classes(frame: Any) -> Finding:
    try:
        priced = cprm.frame_cprm(frame)
    except LogError as error:
        return Finding("prices", False, str(error))
    shares = priced["price_class"].value_counts(normalize=True)
    here = ", ".join(f"{100 * shares.get(label, 0.0):.4g}" for label in cprm.CLASSES)
    there = ", ".join(f"{100 * share:.4g}" for share in cprm.SHARES)
    return Finding(
        "prices", None, f"the five classes hold {here} % of the rows; in the article {there} %"
    )


def catalogue_rows() -> list[tuple[str, ...]]:
    """Return a table of the data sets: a row of headings, then one row each."""
    head = ("name", "data", "rows", "from")
    return [head, *((e.name, e.title, str(e.rows), e.source) for e in _ENTRIES.values())]


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
