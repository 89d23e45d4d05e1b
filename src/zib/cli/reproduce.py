"""``zib reproduce``: the paper's figures and tables, and the report that judges them."""

from __future__ import annotations

import time
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from zib.cli.program import INTERRUPTED, app, refuse

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console

    from zib.experiments.record import Record


class Scale(StrEnum):
    """How much to compute."""

    quick = "quick"
    paper = "paper"


@app.command()
def reproduce(
    only: Annotated[
        list[str] | None,
        typer.Option(help="Run this item only (repeat for several), e.g. fig2.", metavar="ID"),
    ] = None,
    scale: Annotated[
        Scale, typer.Option(help="quick: few replications; paper: as many as the paper.")
    ] = Scale.quick,
    out: Annotated[str, typer.Option(help="Folder for figures, numbers and report.")] = "results",
    workers: Annotated[
        int | None, typer.Option(help="Threads; all processors by default.", min=1)
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of everything random.", min=0)] = 0,
    backend: Annotated[
        str,
        typer.Option(
            help="Who plays: threads, serial, processes; cuda: an NVIDIA GPU, where it can; "
            "counter: the same as cuda, on the processors."
        ),
    ] = "threads",
    replications: Annotated[
        int | None,
        typer.Option(help="How many to play, instead of those of the scale.", min=2),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            help="Where finished work is looked up and kept; $ZIB_STORE or the user's cache folder "
            "by default. See `zib cache info`.",
            metavar="PATH",
        ),
    ] = None,
    no_store: Annotated[
        bool, typer.Option("--no-store", help="Compute everything anew and keep nothing.")
    ] = False,
) -> None:
    """Reproduce the paper's simulations and judge its claims.

    What is unchanged since an earlier run is read from the store; what was interrupted goes on.
    """
    from rich.console import Console

    console = Console(stderr=True)
    from zib.core.validate import InvalidParameterError
    from zib.experiments.runner import Interrupted, OutputError, prepare_folder, resolve
    from zib.sim import Store

    if no_store and store is not None:
        refuse("give either --store or --no-store.")
    try:
        names = resolve(only)
        kept = None if no_store else Store(store)
        folder = prepare_folder(out)
    except (InvalidParameterError, OutputError) as error:
        refuse(str(error))
    started = time.monotonic()
    try:
        finished = _run(
            console,
            names,
            scale=scale.value,
            out=folder,
            workers=workers,
            seed=seed,
            store=kept,
            backend=backend,
            replications=replications,
        )
    except InvalidParameterError as error:
        refuse(str(error))
    except Interrupted as stop:
        whole = [name for name, record in stop.finished.items() if not record.interrupted]
        partly = [name for name, record in stop.finished.items() if record.interrupted]
        words = f"kept in {folder}: {', '.join(whole) or 'no whole item'}"
        words += f"; in part: {', '.join(partly)}" if partly else ""
        go_on = "" if no_store else " The same command goes on from here."
        console.print(
            f"Interrupted; {words}.{go_on}", style="yellow", highlight=False, soft_wrap=True
        )
        raise typer.Exit(INTERRUPTED) from None
    except OSError as error:
        refuse(f"cannot write to the output folder {folder}: {error.strerror or error}.")
    _show(finished)
    read = sum(bool(record.provenance.get("from_store")) for record in finished.values())
    Console().print(
        f"\n{len(finished)} item(s){f', {read} from the store,' if read else ''} in "
        f"{time.monotonic() - started:.0f} s. "
        f"Report: {folder / 'report.html'}",
        soft_wrap=True,
        highlight=False,
    )


def _run(console: Console, names: list[str], **options: Any) -> Mapping[str, Record]:
    """Run experiments with a bar that shows how far they are."""
    from rich.progress import (
        BarColumn,
        Progress,
        ProgressColumn,
        SpinnerColumn,
        Task,
        TaskProgressColumn,
        TextColumn,
    )
    from rich.text import Text

    from zib.experiments.runner import reproduce as run_experiments

    class TimeLeft(ProgressColumn):
        """Counts down between two reports of progress."""

        def render(self, task: Task) -> Text:
            return Text(_time_left(task.fields["ends"] - time.monotonic()))

    started = time.monotonic()
    columns = (
        SpinnerColumn(),
        TextColumn("{task.fields[item]:<6} {task.description}"),
        BarColumn(bar_width=28),
        TaskProgressColumn(),
        TimeLeft(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("starting", total=1.0, item="", ends=0.0)
        shown = ""

        def tell(item: str, message: str, done: float) -> None:
            nonlocal shown
            bar.update(
                task,
                completed=done,
                description=message,
                item=item,
                ends=_expected_end(started, time.monotonic(), done),
            )
            if not console.is_terminal and item and item != shown:
                shown = item
                console.print(f"running {item} ...", highlight=False)

        return run_experiments(names, tell=tell, **options)


def _expected_end(started: float, now: float, done: float) -> float:
    """Return when all will be done if the rest goes as fast as the share done so far."""
    return started + (now - started) / done if done > 0.01 else 0.0


def _time_left(seconds: float) -> str:
    """Return the time left as a phrase; nothing when it is not known or over.

    Examples
    --------
    >>> _time_left(30.4), _time_left(900.0), _time_left(-1.0)
    ('30 s left', '15 min left', '')
    """
    if seconds <= 0:
        return ""
    return f"{seconds:.0f} s left" if seconds < 100 else f"{seconds / 60:.0f} min left"


def _show(finished: Mapping[str, Record]) -> None:
    from rich.console import Console
    from rich.table import Table

    colours = {"holds": "green", "partly": "yellow", "fails": "red", "open": "dim"}
    table = Table(title="Claims of the paper", show_lines=False, pad_edge=False)
    table.add_column("item", no_wrap=True)
    table.add_column("claim", ratio=3)
    table.add_column("verdict", ratio=3)
    for name, record in finished.items():
        for verdict in record.verdicts:
            style = colours[verdict.status]
            table.add_row(
                name, _plain(verdict.claim), f"[{style}]{_plain(verdict.words)}[/{style}]"
            )
        if not record.verdicts:
            table.add_row(name, _plain(record.title), "[dim]nothing to judge; see the figure[/dim]")
    Console().print(table)


def _plain(words: str, limit: int = 160) -> str:
    from rich.markup import escape

    short = words if len(words) <= limit else words[: limit - 1].rsplit(" ", 1)[0] + " …"
    return escape(short)
