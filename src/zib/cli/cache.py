"""``zib cache``: what the library keeps on disk, and how to be rid of it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import typer

from zib.cli.program import app, refuse
from zib.report.numbers import file_size

if TYPE_CHECKING:
    from pathlib import Path

    from zib.sim.store import Store

cache = typer.Typer(
    help="What is kept on disk: compiled code, and results of simulations (the store).",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(cache, name="cache")

Folder = Annotated[
    str | None,
    typer.Option(
        "--store",
        help="Folder of the results; $ZIB_STORE or the user's cache folder by default.",
        metavar="PATH",
    ),
]


@cache.command()
def info(store: Folder = None) -> None:
    """Say what is kept, where, and how much it is."""
    from rich.console import Console
    from rich.table import Table

    found, (place, folders, size) = _store(store).info(), _compiled()
    table = Table(pad_edge=False)
    for column in ("what", "number", "size", "where"):
        table.add_column(column, justify="right" if column in ("number", "size") else "left",
                         overflow="fold")  # fmt: skip
    where = "switched off" if place is None else str(place)
    table.add_row("compiled code", str(len(folders)), file_size(size), where)
    table.add_row("results", str(found.files), file_size(found.size), str(found.folder))
    console = Console()
    console.print(table)
    if found.leftovers:
        console.print(
            f"{found.leftovers} file(s) are being written, or were left by a process that died or "
            "by an earlier version.",
            highlight=False,
        )


@cache.command()
def clear(
    compiled: Annotated[bool, typer.Option("--compiled", help="Only compiled code.")] = False,
    results: Annotated[bool, typer.Option("--results", help="Only results.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    store: Folder = None,
) -> None:
    """Remove compiled code and stored results; both are made again when they are needed."""
    import shutil

    both = compiled == results
    kept = _store(store)
    place, folders, size = _compiled()
    if both or results:
        found = kept.info()
        files = found.files + found.leftovers
        if files and _agreed(f"{files} stored results, {file_size(found.size)}", kept.folder, yes):
            try:
                kept.clear()
            except OSError as error:
                refuse(f"cannot remove {error.filename}: {error.strerror}.")
            typer.echo(f"removed {files} stored results ({file_size(found.size)})")
        elif not files:
            typer.echo("no results are stored")
    if both or compiled:
        if folders and place and _agreed(f"compiled code, {file_size(size)}", place, yes):
            for folder in folders:
                shutil.rmtree(folder, ignore_errors=True)
            for memory in place.glob("zib-sources-*.json"):
                memory.unlink(missing_ok=True)
            typer.echo(f"removed compiled code ({file_size(size)})")
        elif not folders:
            typer.echo("no compiled code is kept")


def _agreed(what: str, where: Path, yes: bool) -> bool:
    return yes or typer.confirm(f"Remove {what}, from {where}?")


def _store(folder: str | None) -> Store:
    from zib.core.validate import InvalidParameterError
    from zib.sim.store import Store

    try:
        return Store(folder)
    except InvalidParameterError as error:
        refuse(str(error))


def _compiled() -> tuple[Path | None, list[Path], int]:
    """Return the place of compiled code, a folder per state of a module, and their size."""
    from zib.core import cache as _cache

    if _cache.FOLDER is None:
        return None, [], 0
    place = _cache.FOLDER
    folders = [
        path
        for path in sorted(place.iterdir())
        if path.is_dir() and re.fullmatch(r"zib-[0-9a-f]{16}", path.name)
    ]
    size = sum(p.stat().st_size for folder in folders for p in folder.rglob("*") if p.is_file())
    return place, folders, size
