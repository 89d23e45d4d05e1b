"""``zib join``: exposures and conversions to one log."""

from __future__ import annotations

import shlex
from typing import Annotated

import typer

from zib.cli.machines import Backend, Scheduler, Workers, machines
from zib.cli.program import app, refusing


@app.command()
def join(
    exposures: Annotated[
        str,
        typer.Argument(help="Who was shown what and when: a file, or a folder of Parquet files."),
    ],
    conversions: Annotated[
        str,
        typer.Argument(
            help="Who bought when, and for how much: a file, or a folder of Parquet files."
        ),
    ],
    window: Annotated[
        str,
        typer.Option(help="How long after the exposure a conversion counts: 7d, 12h, 30min; none."),
    ],
    on: Annotated[
        str | None,
        typer.Option(
            help="Column in both files: the id of the exposure or of the user. "
            "EXPOSURES=CONVERSIONS where the names differ."
        ),
    ] = None,
    arm: Annotated[str | None, typer.Option(help="Column with what was shown.")] = None,
    time: Annotated[str | None, typer.Option(help="Column with the time of the exposure.")] = None,
    conversion_time: Annotated[
        str | None, typer.Option(help="Column with the time of the conversion.")
    ] = None,
    amount: Annotated[
        str | None, typer.Option(help="Column with the amount; each counts 1 without one.")
    ] = None,
    conversion_id: Annotated[
        str | None,
        typer.Option(
            help="Column with the id of the conversion: finds duplicates, refunds, revisions."
        ),
    ] = None,
    attribute: Annotated[
        str, typer.Option(help="With several exposures in the window: last, first or all.")
    ] = "last",
    combine: Annotated[
        str, typer.Option(help="Several conversions of one exposure: sum, first, last or max.")
    ] = "sum",
    pending: Annotated[
        str,
        typer.Option(
            help="Exposures whose window is still open: leave-out, thin (keep those with a "
            "conversion, and of the others as many as their age makes zeros of) or weight."
        ),
    ] = "leave-out",
    as_of: Annotated[
        str | None, typer.Option(help="End of the data; the latest time in the files by default.")
    ] = None,
    timezone: Annotated[
        str, typer.Option(help="Of times without offset, such as Europe/Berlin.")
    ] = "UTC",
    conversion_timezone: Annotated[
        str | None, typer.Option(help="The same for the conversions, if different.")
    ] = None,
    reward: Annotated[str, typer.Option(help="Name of the new column.")] = "reward",
    seed: Annotated[int, typer.Option(help="Seed of what `thin` draws.", min=0)] = 0,
    out: Annotated[
        str,
        typer.Option(help="File to write, .parquet or .csv; or a new folder of Parquet files."),
    ] = "joined.parquet",
    backend: Backend = None,
    workers: Workers = None,
    scheduler: Scheduler = None,
) -> None:
    """Join exposures with the conversions that came later: one row per exposure, with its reward.

    Exposures whose window is still open are no zeros yet; by default they are left out. Columns
    that are not named are guessed from their names; guesses are reported.
    """
    from zib.logs import join as make

    names = on.split("=") if on is not None and "=" in on else on
    with refusing():
        joined = make(
            exposures,
            conversions,
            window=None if window.lower() == "none" else _number_or_text(window),
            on=names,
            arm=arm,
            time=time,
            conversion_time=conversion_time,
            amount=amount,
            conversion_id=conversion_id,
            attribute=attribute,
            combine=combine,
            pending=pending,
            as_of=as_of if as_of is None else _number_or_text(as_of),
            timezone=timezone,
            conversion_timezone=conversion_timezone,
            reward=reward,
            seed=seed,
            out=out,
            **machines(backend, workers, scheduler),
        )
    typer.echo(str(joined))
    if pending != "weight":
        options = [part for role, name in joined.roles.items() for part in (f"--{role}", name)]
        typer.echo(f"Next: {shlex.join(['zib', 'advise', out, *options])}")


def _number_or_text(text: str) -> str | float:
    try:
        return float(text)
    except ValueError:
        return text
