"""``zib simulate``: a study described by a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from zib.cli.program import INTERRUPTED, app, refuse, warnings_in_words, write_example

if TYPE_CHECKING:
    from zib.studies import Estimate, Outcome, Study

FAILED = 1
DEFAULT = "study.toml"


@app.command()
def simulate(
    file: Annotated[
        str | None, typer.Argument(help="The study, a TOML file.", metavar="STUDY.toml")
    ] = None,
    init: Annotated[
        bool,
        typer.Option("--init", help=f"Write a commented example ({DEFAULT} by default) and stop."),
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Check the file, show the tasks and what they will take."),
    ] = False,
    out: Annotated[str | None, typer.Option(help="Folder for report, figures and numbers.")] = None,
    replications: Annotated[int | None, typer.Option(help="Repetitions.", min=1)] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of everything random.", min=0)] = None,
    backend: Annotated[
        str | None, typer.Option(help="serial, threads, processes, dask, cuda or counter.")
    ] = None,
    workers: Annotated[int | None, typer.Option(help="How many.", min=1)] = None,
    scheduler: Annotated[
        str | None, typer.Option(help="Address of a Dask scheduler; implies --backend dask.")
    ] = None,
    store: Annotated[
        str | None, typer.Option(help="Folder in which finished blocks are kept.")
    ] = None,
    no_store: Annotated[
        bool, typer.Option("--no-store", help="Neither keep finished blocks nor use them.")
    ] = False,
) -> None:
    """Run a study: policies × environments from a file, with figures, tables and one report.

    Options replace what the file says. Finished blocks are kept: after an interruption the same
    command goes on with what is missing.
    """
    if init:
        _write_example(Path(file or DEFAULT))
        return
    if file is None:
        refuse(f"name a study, as in `zib simulate {DEFAULT}`; --init writes one to start from")
    if store is not None and no_store:
        refuse("--store and --no-store exclude each other")
    from zib.core.validate import InvalidParameterError
    from zib.studies import read

    run = {
        "backend": "dask" if scheduler and not backend else backend,
        "workers": workers,
        "scheduler": scheduler,
        # paths on the command line start from the current folder, those in the file from there
        "store": False if no_store else str(Path(store).absolute()) if store else None,
    }
    changes: dict[str, Any] = {
        "seed": seed,
        "replications": replications,
        "run": {key: value for key, value in run.items() if value is not None},
        "output": {} if out is None else {"folder": str(Path(out).absolute())},
    }
    try:
        study = read(file, {key: value for key, value in changes.items() if value is not None})
    except InvalidParameterError as error:
        refuse(str(error))
    if dry_run:
        _estimate(study)
    else:
        _run(study, Path(file))


def _write_example(path: Path) -> None:
    from zib.studies import EXAMPLE

    write_example(path, EXAMPLE, f"zib simulate {path} --dry-run")


# ----------------------------------------------------------------------------------------- running


def _run(study: Study, file: Path) -> None:
    from zib.core.validate import InvalidParameterError
    from zib.experiments.runner import OutputError, prepare_folder
    from zib.studies import run, write

    again = (
        "The same command goes on with what is missing."
        if study.how.store
        else "Without a store the same command starts anew."
    )
    try:
        prepare_folder(study.folder)
        with warnings_in_words(), _bar("simulating") as tell:
            outcome = run(study, tell)
        page = write(outcome) if outcome.played else None
    except (InvalidParameterError, OutputError) as error:
        refuse(str(error))
    except RuntimeError as error:  # of a run, a worker or a cluster
        reason = f"a run failed: {error.__cause__}" if error.__cause__ else str(error)
        _say(f"error: {reason}. {again}", "red")
        raise typer.Exit(FAILED) from None
    except OSError as error:
        refuse(f"cannot write to the output folder {study.folder}: {error.strerror or error}.")
    if page is not None:
        _show(outcome)
    if outcome.interrupted:
        kept = f"what is finished is in {page}" if page else "nothing is finished"
        _say(f"Interrupted; {kept}. {again}", "yellow")
        raise typer.Exit(INTERRUPTED)
    typer.echo(f"\nStudy {study.hash} in {outcome.seconds:.0f} s. Report: {page}")


def _show(outcome: Outcome) -> None:
    from zib.studies.report import final_rows, in_words

    for case, result in outcome.played:
        heading, rows = final_rows(result)
        _table(case.label, heading[:4], [row[:4] for row in rows])
        typer.echo(in_words(result))


# ------------------------------------------------------------------------------------------ dry run


def _estimate(study: Study) -> None:
    from zib.core.validate import InvalidParameterError
    from zib.report.numbers import duration
    from zib.studies import estimate

    try:
        with warnings_in_words(), _bar("calibrating") as tell:
            found = estimate(study, tell)
    except InvalidParameterError as error:
        refuse(str(error))
    except KeyboardInterrupt:
        _say("Interrupted.", "yellow")
        raise typer.Exit(INTERRUPTED) from None
    _table(
        study.name,
        ("environment", "policy", "blocks", "in the store", "per round", "computing"),
        [
            (
                line.environment,
                line.policy,
                str(line.blocks),
                str(line.stored),
                f"{1e6 * line.per_round:.2f} µs" if line.per_round else "–",
                duration(line.seconds),
            )
            for line in found.lines
        ],
    )
    for text in _sentences(study, found):
        typer.echo(text)


def _sentences(study: Study, found: Estimate) -> Iterator[str]:
    from zib.report.numbers import duration, file_size

    blocks = "1 block" if found.blocks == 1 else f"{found.blocks} blocks"
    yield (
        f"Tasks: {blocks} of replications, {found.stored} of them in the store "
        f"(study {study.hash})."
    )
    if found.stored == found.blocks:
        yield "Time: a moment; nothing has to be played."
    elif found.workers is None:
        yield f"Time: {duration(found.computing)} of computing, shared by the cluster's workers."
    elif study.how.backend == "cuda":
        yield f"Time: {duration(found.computing)} on one processor; a GPU takes a part of that."
    else:
        many = "1 worker" if found.workers == 1 else f"{found.workers} workers"
        yield (
            f"Time: about {duration(found.seconds)} with {many} ({study.how.backend}), from a "
            "short calibration; compiling, the first time, is extra."
        )
    store = f"{file_size(found.store_bytes)} more in the store" if study.how.store else "no store"
    yield f"Memory: about {file_size(found.memory)}. Disk: {store}. Output: {study.folder}"


# ------------------------------------------------------------------------------------------ screen


def _table(title: str, heading: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=escape(title), title_justify="left", pad_edge=False)
    for i, column in enumerate(heading):
        words = column in ("environment", "policy")
        table.add_column(column, justify="left" if words else "right", no_wrap=not words or i > 1)
    for row in rows:
        table.add_row(*(escape(cell) for cell in row))
    Console().print(table)


def _say(message: str, style: str) -> None:
    from rich.console import Console

    Console(stderr=True).print(message, style=style, highlight=False, soft_wrap=True, markup=False)


@contextmanager
def _bar(doing: str) -> Iterator[Callable[[str, int, int], None]]:
    """Show a progress bar on a terminal; elsewhere one line per environment or policy."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=28),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(doing, total=None)
        shown = ""

        def tell(item: str, done: int, total: int) -> None:
            nonlocal shown
            bar.update(task, description=f"{doing} {item}", completed=done, total=total)
            if not console.is_terminal and item != shown:
                shown = item
                console.print(f"{doing} {item} ...", highlight=False, markup=False)

        yield tell
