"""The program ``zib`` and what its commands share.

Heavy modules are imported inside the commands, so that ``zib --help`` answers at once.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, NoReturn

import typer

app = typer.Typer(
    name="zib",
    help="Bandits for rewards that are mostly zero.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


BAD_INPUT = 2
INTERRUPTED = 130


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"zib {version('zib')}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", callback=_version, is_eager=True),
    ] = False,
) -> None:
    """Bandits for rewards that are mostly zero."""


def refuse(message: str) -> NoReturn:
    """Say in one sentence what is wrong and stop."""
    from rich.console import Console

    console = Console(stderr=True)
    console.print(f"error: {message}", style="red", highlight=False, soft_wrap=True, markup=False)
    raise typer.Exit(BAD_INPUT)


def write_example(path: Path, content: str, following: str) -> None:
    """Write an example file where there is none, and say which command comes next."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(content)
    except FileExistsError:
        refuse(f"{path} exists; nothing was written")
    except OSError as error:
        refuse(f"cannot write {path}: {error.strerror or error}")
    typer.echo(f"Wrote {path}. Next: {following}")


@contextmanager
def refusing() -> Iterator[None]:
    """Turn errors of the input into one sentence."""
    from zib import InvalidParameterError, SavedStateError

    try:
        yield
    except (InvalidParameterError, SavedStateError) as error:
        refuse(str(error))
    except OSError as error:
        refuse(f"{error.filename or 'the output folder'}: {error.strerror or error}")


@contextmanager
def warnings_in_words() -> Iterator[None]:
    """Print warnings as sentences, without the place in the code."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield
    for warning in caught:
        typer.secho(f"warning: {warning.message}", fg="yellow", err=True)


@contextmanager
def progress_bar(first: str) -> Iterator[Callable[[str, float], None]]:
    """Show a progress bar on a terminal; yields a function of what is done and its share."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(first, total=1.0)
        yield lambda message, share: bar.update(task, description=message, completed=share)
