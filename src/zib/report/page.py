"""Pages from templates: one look for reports, studies, advice and evaluations.

A page is a template in ``templates/`` and the values it names. It holds its images itself and
loads nothing from elsewhere; links lead to the data files beside it.
"""

from __future__ import annotations

import base64
import shutil
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from zib.report import numbers

if TYPE_CHECKING:
    from jinja2 import Environment


class Picture(NamedTuple):
    """A figure by its file stem inside the folder of the page, with the words that go with it."""

    stem: str
    caption: str
    alternative: str
    half: bool = False


class _Cell(NamedTuple):
    text: str
    interval: str
    numeric: bool


class _Table(NamedTuple):
    head: list[_Cell]
    rows: list[tuple[str, list[_Cell]]]


def render(template: str, folder: Path, **values: Any) -> str:
    """Return a page as text.

    Parameters
    ----------
    template
        Name of a template without its endings: ``"study"``.
    folder
        Where the page will be; its images are read from there.
    values
        What the template names; a name without a value is an error.
    """
    made = _templates().get_template(f"{template}.html.j2")
    return made.render(image=lambda stem: _image(folder, stem), **values)


@cache
def _templates() -> Environment:
    import jinja2

    templates = jinja2.Environment(
        loader=jinja2.PackageLoader("zib.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    shown = (numbers.number, numbers.percent, numbers.times, numbers.duration, numbers.count)
    templates.filters.update({each.__name__: each for each in shown})
    templates.globals["as_table"] = _table
    return templates


def _image(folder: Path, stem: str) -> str:
    """Return an image as an address that holds it; empty where the file is missing."""
    try:
        data = (folder / f"{stem}.png").read_bytes()
    except OSError:
        return ""
    return f"data:image/png;base64,{base64.b64encode(data).decode()}"


def _table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], last: str = "", marked: str = ""
) -> _Table:
    """Return the cells of a table of ready-made text; columns of numbers stand to the right.

    `last` is the class of the last row, and the row that starts with `marked` stands out. In a
    column of numbers "1.2 [1.0, 1.4]" takes two lines, which keeps tables narrow.
    """
    numeric = [all(_looks_numeric(row[i]) for row in rows) for i in range(len(columns))]
    body = []
    for j, row in enumerate(rows):
        kind = last if last and j == len(rows) - 1 else "main" if row[0] == marked else ""
        body.append((kind, [_cell(text, numeric[i]) for i, text in enumerate(row)]))
    return _Table([_Cell(text, "", numeric[i]) for i, text in enumerate(columns)], body)


def _cell(text: str, numeric: bool) -> _Cell:
    estimate, bracket, rest = text.partition(" [")
    if numeric and bracket and estimate:
        return _Cell(estimate, f"[{rest}", numeric)
    return _Cell(text, "", numeric)


def _looks_numeric(text: str) -> bool:
    return not text or text == "inf" or text[0].isdigit() or text[0] in "-−.–+∞"


def write_together(folder: Path, last: str, make: Callable[[Path], None]) -> Path:
    """Let `make` write files into a draft and move them into `folder`, all of them or none.

    The file named `last`, the page, is moved last: once it is there, so is what it links to.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        make(draft)
        folder.mkdir(exist_ok=True)
        for path in sorted(draft.iterdir(), key=lambda file: file.name == last):
            path.replace(folder / path.name)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return folder / last
