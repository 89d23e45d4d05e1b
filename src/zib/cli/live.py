"""``zib live``: what a ledger of decisions says, while it is in use or afterwards."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from zib.cli.program import app, progress_bar, refuse, refusing

if TYPE_CHECKING:
    from zib.live.database import Connection

live = typer.Typer(
    help="Ledgers of decisions whose reward comes later: look at one, check it, export its log.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(live, name="live")

UNSOUND = 1

Database = Annotated[
    str,
    typer.Argument(
        help="Path of an SQLite file, which may be in use, or a postgresql:// address.",
        metavar="DATABASE",
    ),
]
Name = Annotated[str, typer.Option(help="Name of the bandit; a database may hold several.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]


@live.command()
def status(database: Database, name: Name = "default", as_json: AsJson = False) -> None:
    """Show the arms and what is known of them, the delay of rewards, and what went astray.

    p is the chance of a reward, mu its average size and r what a decision is worth on average,
    p times mu. A decision that still waits for its reward counts as the fraction of a zero that its
    age makes of it. The intervals are 95 % confidence sequences: they hold whenever one looks.
    """
    from zib.live.status import status as look

    with _looking(database) as connection:
        found = look(connection, name)
    if as_json:
        _print_json(found.to_dict())
    else:
        typer.echo(str(found))


@live.command()
def check(database: Database, name: Name = "default", as_json: AsJson = False) -> None:
    """Check that the statistics are the fold of the log, and that the log is sound.

    Works out anew what became of every decision and compares it with what is stored, on one moment
    of the database: a ledger may go on meanwhile. Ends with 0 if everything is right and with 1 if
    not.
    """
    from zib.live.check import check as compare

    with _looking(database) as connection, progress_bar("checking decisions") as tell:
        found = compare(connection, name, progress=tell)
    if as_json:
        _print_json(
            {"decisions": found.decisions, "events": found.events, "problems": found.problems}
        )
    else:
        typer.echo(str(found))
    if not found:
        raise typer.Exit(UNSOUND)


@live.command()
def replay(database: Database, name: Name = "default", as_json: AsJson = False) -> None:
    """Draw every logged decision again from its model version, its key and the eligible arms.

    Arm and probability must come out as logged: the probabilities that an evaluation rests on are
    then those that were drawn with. Ends with 0 if they do and with 1 if not. Decisions whose model
    version is not kept any more are counted.
    """
    from zib.live.replay import replay as draw_again

    with _looking(database) as connection, progress_bar("drawing decisions again") as tell:
        found = draw_again(connection, name, progress=tell)
    if as_json:
        _print_json(
            {
                "decisions": found.decisions, "replayed": found.replayed,
                "versions": found.versions, "problems": found.problems,
            }
        )  # fmt: skip
    else:
        typer.echo(str(found))
    if not found:
        raise typer.Exit(UNSOUND)


@live.command()
def export(
    database: Database,
    out: Annotated[str, typer.Argument(help="File to write, .parquet or .csv.", metavar="FILE")],
    name: Name = "default",
    pending: Annotated[
        str,
        typer.Option(
            help="Decisions whose reward may still come: leave-out, thin (keep those with a "
            "reward, and of the others as many as their age makes zeros of) or weight."
        ),
    ] = "leave-out",
    since: Annotated[
        str | None, typer.Option(help="Only decisions from this time on, such as 2026-05-01.")
    ] = None,
    until: Annotated[str | None, typer.Option(help="Only decisions before this time.")] = None,
    kind: Annotated[
        str | None,
        typer.Option(help="Only decisions of one kind: policy, holdout or shadow."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of what `thin` draws.", min=0)] = 0,
    as_json: AsJson = False,
) -> None:
    """Write the log, one row per decision, for `zib evaluate` and `zib advise`.

    The columns have names that these commands recognise: arm, reward, propensity, time, unit. What
    was known at the decision is in columns that begin with context_. Decisions whose reward may
    still come are no zeros yet; by default they are left out. Cancelled ones always are.
    """
    from zib.live.export import export as write

    with _looking(database) as connection, progress_bar("writing rows") as tell:
        found = write(
            connection, out, name, pending=pending, since=_number_or_text(since),
            until=_number_or_text(until), kind=kind, seed=seed, progress=tell,
        )  # fmt: skip
    if as_json:
        _print_json(
            {
                "file": str(found.path), "rows": found.rows, "decisions": found.decisions,
                "cancelled": found.cancelled, "open": found.open_rows,
                "open_with_reward": found.open_rewarded, "context": found.context,
                "inflated": found.inflated,
            }
        )  # fmt: skip
        return
    typer.echo(str(found))
    if found.rows and pending != "weight":
        more = [part for column in found.context[:5] for part in ("--context", column)]
        more += ["--inflated", f"{found.inflated:g}"] if found.inflated else []
        typer.echo(f"Next: {shlex.join(['zib', 'evaluate', out, *more])}")


@contextmanager
def _looking(database: str) -> Iterator[Connection]:
    """Yield a connection to one moment of the database; errors end in one sentence."""
    from zib.live import LedgerError
    from zib.live.pages import looking

    with refusing():
        try:
            with looking(database) as connection:
                yield connection
        except LedgerError as error:
            refuse(str(error))


def _number_or_text(text: str | None) -> str | float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return text


def _print_json(found: dict[str, Any]) -> None:
    typer.echo(json.dumps(_plain(found), indent=2, ensure_ascii=False, default=str))


def _plain(value: Any) -> Any:
    """Return what JSON can hold: numbers that are none become null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, (list, tuple)) else value
