"""Options that say how a file is written; without them that is found out and reported."""

from __future__ import annotations

from typing import Annotated, Any

import typer

_PANEL = "How the file is written"

Sep = Annotated[
    str | None,
    typer.Option(
        help="Character between columns of a text file, such as ';' or tab.",
        rich_help_panel=_PANEL,
        metavar="CHARACTER",
    ),
]
Decimal = Annotated[
    str | None,
    typer.Option(
        help="Decimal mark of numbers in text: '.' or ','.", rich_help_panel=_PANEL, metavar="MARK"
    ),
]
Encoding = Annotated[
    str | None,
    typer.Option(
        help="Encoding of a text file, such as cp1252.", rich_help_panel=_PANEL, metavar="NAME"
    ),
]
Sheet = Annotated[
    str | None,
    typer.Option(
        help="Sheet of a workbook; by default the first with rows.", rich_help_panel=_PANEL
    ),
]
MissingReward = Annotated[
    str,
    typer.Option(
        help="What a blank reward is: an error, or zero (nothing happened).",
        rich_help_panel=_PANEL,
        metavar="error|zero",
    ),
]
StripLabels = Annotated[
    bool,
    typer.Option("--strip-labels", help="'C' and 'C ' are the same label.", rich_help_panel=_PANEL),
]


def options(
    sep: str | None,
    decimal: str | None,
    encoding: str | None,
    sheet: str | None,
    missing_reward: str,
    strip_labels: bool,
) -> dict[str, Any]:
    """Return the options that say something, as arguments of `zib.datasets.open_log`."""
    character = {"tab": "\t", "\\t": "\t", "space": " "}.get(sep or "", sep)
    given = {
        "sep": character, "decimal": decimal, "encoding": encoding, "sheet": sheet,
        "missing_reward": None if missing_reward == "error" else missing_reward,
        "strip_labels": strip_labels or None,
    }  # fmt: skip
    return {name: value for name, value in given.items() if value is not None}
