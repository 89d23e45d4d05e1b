"""``zib data``: the public data sets that are known by name."""

from __future__ import annotations

from typing import Annotated

import typer

from zib.cli.program import app, refuse

data = typer.Typer(
    help="Public data sets: what they are, where to get them, whether a file is the right one. "
    "Nothing is ever downloaded.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(data, name="data")

Name = Annotated[str, typer.Argument(help="Name of the data set; see `zib data list`.")]


@data.command("list")
def list_() -> None:
    """List the data sets."""
    from rich.console import Console
    from rich.table import Table

    from zib.logs import catalogue_rows

    heading, *rows = catalogue_rows()
    table = Table(pad_edge=False)
    for i, column in enumerate(heading):
        table.add_column(column, no_wrap=i == 0, justify="right" if column == "rows" else "left")
    for row in rows:
        table.add_row(*row)
    Console().print(table)


@data.command()
def info(name: Name) -> None:
    """Say what a data set is, under which licence, whom to cite and where to get it."""
    from zib.logs import LogError, info_text

    try:
        typer.echo(info_text(name))
    except LogError as error:
        refuse(str(error))


@data.command()
def check(
    name: Name,
    path: Annotated[
        str | None, typer.Argument(help="The file; left out where none is needed.")
    ] = None,
) -> None:
    """Check that a file is the data set: checksum, columns, rows."""
    from zib.logs import LogError, check_text

    try:
        text, status = check_text(name, path)
    except LogError as error:
        refuse(str(error))
    typer.echo(text)
    raise typer.Exit(status)
