"""``zib arena``: policies compete in worlds that nobody could tune them to."""

from __future__ import annotations

import shlex
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from zib.cli.program import INTERRUPTED, app, progress_bar, refuse, refusing, warnings_in_words

if TYPE_CHECKING:
    from collections.abc import Callable

    from zib.arena import Outcome, World

FAILED = 1
TARGET = 1.15  # that of `zib.arena`, which is imported when it is needed


class Which(StrEnum):
    """Which worlds to play in."""

    drawn = "drawn"
    development = "development"
    all = "all"


@app.command()
def arena(
    policies: Annotated[
        list[str] | None,
        typer.Argument(
            help='Policies to enter: a name, "ZIIMED(sigma=1)", or my_policy.py:MyPolicy.',
            metavar="[POLICY]...",
        ),
    ] = None,
    worlds: Annotated[
        Which,
        typer.Option(help="drawn: at random from a fresh seed; development: fixed and named."),
    ] = Which.drawn,
    kinds: Annotated[
        list[str] | None,
        typer.Option(help="Only this kind of worlds (repeat for several); see --list."),
    ] = None,
    n: Annotated[int, typer.Option("--n", help="How many worlds to draw.")] = 60,
    seed: Annotated[
        int | None, typer.Option(help="Seed of everything; a fresh one by default, printed.")
    ] = None,
    replications: Annotated[int, typer.Option(help="How often each policy plays.")] = 100,
    horizon: Annotated[int, typer.Option(help="Longest horizon.")] = 10_000,
    target: Annotated[float, typer.Option(help="What counts as close to the best.")] = TARGET,
    workers: Annotated[int | None, typer.Option(help="Threads; all processors by default.")] = None,
    backend: Annotated[
        str, typer.Option(help="threads, serial, processes; cuda: a GPU, where it can.")
    ] = "threads",
    out: Annotated[
        str, typer.Option(help="Folder for the page and its numbers.")
    ] = "results/arena",
    show: Annotated[bool, typer.Option("--list", help="Show the worlds and stop.")] = False,
) -> None:
    """Rank the default, its rivals and your policies in many worlds.

    Worlds are drawn from a seed that is printed; the same seed plays the same again.
    """
    import secrets

    from zib.core.validate import InvalidParameterError

    chosen = secrets.randbits(32) if seed is None else seed
    with refusing():
        entries = dict(_entry(text) for text in policies or ())
        places = _worlds(worlds, kinds, n, chosen, horizon)
        if show:
            _list(places, worlds, chosen)
            return
        from zib.experiments.runner import OutputError, prepare_folder

        try:
            folder = prepare_folder(out)
        except OutputError as error:
            refuse(str(error))
    typer.echo(f"seed {chosen}", err=True)
    from zib.arena import play

    try:
        with warnings_in_words(), progress_bar("starting") as tell:
            outcome = play(
                entries,
                places,
                replications=replications,
                seed=chosen,
                target=target,
                workers=workers,
                backend=backend,
                progress=_told(tell),
            )
    except InvalidParameterError as error:
        refuse(str(error))
    except KeyboardInterrupt:
        typer.secho("Interrupted; no world is finished.", fg="yellow", err=True)
        raise typer.Exit(INTERRUPTED) from None
    except RuntimeError as error:  # of a run
        typer.secho(f"error: a run failed: {error.__cause__ or error}", fg="red", err=True)
        raise typer.Exit(FAILED) from None
    outcome.provenance["command"] = _command(
        policies, worlds, kinds, n, chosen, replications, horizon, target
    )
    with refusing():
        page = outcome.save(folder)
    _show(outcome)
    typer.echo(
        f"median and worst ratio to the best policy of a world, share within {target:g}; of mean "
        "regrets, then of 99th percentiles"
    )
    typer.echo(f"\nPage: {page}. Again: {outcome.provenance['command']}")
    if outcome.interrupted:
        raise typer.Exit(INTERRUPTED)


def _entry(text: str) -> tuple[str, Any]:
    """Return the label of a policy and what makes it for a world."""
    from zib.studies.naming import named

    found = named(text)
    if found.shelf is None:
        return found.label, found.what

    def for_world(world: World) -> Any:
        return found.for_world(world.horizon, world.n_arms)

    return found.label, for_world


def _worlds(which: Which, kinds: list[str] | None, n: int, seed: int, horizon: int) -> list[World]:
    from zib.arena import drawn
    from zib.arena import worlds as development

    wanted = [part.strip() for each in kinds for part in each.split(",")] if kinds else None
    found: list[World] = []
    if which != Which.drawn:
        found += development(wanted, horizon=horizon)
    if which != Which.development:
        found += drawn(n, seed=seed, kinds=wanted, horizon=horizon)
    if not found:
        refuse(
            f"`kinds` must name worlds that are here; there are none of {', '.join(wanted or [])}"
        )
    return found


def _told(tell: Callable[[str, float], None]) -> Callable[[str, float], None]:
    """Return the progress bar; off a terminal every tenth of the work is a line."""
    import sys

    if sys.stderr.isatty():
        return lambda name, share: tell(name[:40], share)
    said = 0

    def lines(name: str, share: float) -> None:
        nonlocal said
        if int(10 * share) > said:
            said = int(10 * share)
            typer.echo(f"{10 * said} % done", err=True)

    return lines


def _command(
    policies: list[str] | None,
    which: Which,
    kinds: list[str] | None,
    n: int,
    seed: int,
    replications: int,
    horizon: int,
    target: float,
) -> str:
    parts = ["zib", "arena", *(policies or ())]
    parts += ["--worlds", which.value, "--seed", str(seed), "--replications", str(replications)]
    parts += ["--horizon", str(horizon)]
    if target != TARGET:
        parts += ["--target", f"{target:g}"]
    if which != Which.development:
        parts += ["--n", str(n)]
    for kind in kinds or ():
        parts += ["--kinds", kind]
    return shlex.join(parts)


# ------------------------------------------------------------------------------------------ screen


def _list(worlds: list[World], which: Which, seed: int) -> None:
    from zib.arena import KINDS

    kind = ""
    for world in sorted(worlds, key=lambda each: list(KINDS).index(each.kind)):
        if world.kind != kind:
            kind = world.kind
            typer.secho(f"{kind}: {KINDS[kind]}", bold=True)
        typer.echo(f"  {world}")
    if which != Which.development:
        typer.echo(f"{len(worlds)} worlds; those that are drawn come from seed {seed}")
    else:
        typer.echo(f"{len(worlds)} worlds")


def _show(outcome: Outcome) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from zib.report.numbers import times

    table = Table(
        title=f"Regret as a multiple of the best, {len(outcome.matches)} worlds, "
        f"N = {outcome.replications}, seed {outcome.seed}",
        title_justify="left",
        box=None,
        pad_edge=False,
    )
    table.add_column("policy")
    for head in ("told", "worlds", "median", "worst", "within", "99 %", "worst"):
        table.add_column(head, justify="right", no_wrap=True, min_width=max(len(head), 4))
    columns = ("mean: median", "mean: worst", "mean: within", "q99: median", "q99: worst")
    for row in outcome.ranking().to_dict("records"):
        cells = [
            f"{100 * row[each]:.0f} %" if each.endswith("within") else times(row[each])
            for each in columns
        ]
        style = "bold green" if row["policy"] in outcome.entered else None
        told = "yes" if row["told"] else ""
        table.add_row(escape(str(row["policy"])), told, str(row["worlds"]), *cells, style=style)
    Console().print(table)
