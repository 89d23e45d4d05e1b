"""``zib advise`` and ``zib evaluate``: what a log of decisions says."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from zib.cli.machines import Backend, Scheduler, Workers, machines
from zib.cli.program import app, progress_bar, refuse, refusing, warnings_in_words
from zib.cli.reading import Decimal, Encoding, MissingReward, Sep, Sheet, StripLabels, options

if TYPE_CHECKING:
    from zib.logs import LoggedData, LogScan
    from zib.logs.ope import Evaluation

Log = Annotated[
    str,
    typer.Argument(
        help="CSV, JSON lines (both also packed), Parquet, Feather or Excel file, or a folder of "
        "Parquet files; also the URL of Parquet files."
    ),
]
Arm = Annotated[str | None, typer.Option(help="Column with the arm that was played.")]
Reward = Annotated[str | None, typer.Option(help="Column with the reward; 0: nothing happened.")]
Propensity = Annotated[str | None, typer.Option(help="Column with the probability of that choice.")]
Context = Annotated[
    list[str] | None, typer.Option(help="Column known before choosing (repeat for several).")
]
Time = Annotated[str | None, typer.Option(help="Column with the time.")]
Unit = Annotated[
    str | None, typer.Option(help="Column with the unit's id; a warning if ids repeat.")
]
Cluster = Annotated[
    str | None, typer.Option(help="Column whose rows belong together, such as the user of visits.")
]
Inflated = Annotated[
    float,
    typer.Option(help="The reward that means nothing happened, such as -0.05, a contact's cost."),
]
Randomised = Annotated[
    bool,
    typer.Option(
        "--randomised", help="Arms were drawn at random, with the same chances in every row."
    ),
]
Shares = Annotated[
    str | None,
    typer.Option(
        help="The same with known chances; they are checked.", metavar="ARM:SHARE,ARM:SHARE"
    ),
]
Seed = Annotated[int, typer.Option(help="Seed of everything random.", min=0)]
Level = Annotated[float, typer.Option(help="Confidence level of the intervals.")]


@app.command()
def advise(
    log: Log,
    arm: Arm = None,
    reward: Reward = None,
    propensity: Propensity = None,
    context: Context = None,
    time: Time = None,
    unit: Unit = None,
    cluster: Cluster = None,
    inflated: Inflated = 0.0,
    randomised: Randomised = False,
    shares: Shares = None,
    horizon: Annotated[
        int | None, typer.Option(help="Rounds to play; as many as the log has by default.", min=2)
    ] = None,
    simulate: Annotated[
        bool, typer.Option(help="Simulate what the policy would have earned.")
    ] = True,
    replications: Annotated[
        int | None,
        typer.Option(
            help="Worlds of the simulation to report from, and as many to choose the policy in; by "
            "default as many as stay quick.",
            min=2,
        ),
    ] = None,
    level: Level = 0.95,
    worth: Annotated[
        float, typer.Option(help="Smallest gain worth having, as a share of the best arm's mean.")
    ] = 0.02,
    timezone: Annotated[
        str | None, typer.Option(help="Time zone of days and hours, e.g. Europe/Berlin. [UTC]")
    ] = None,
    seed: Seed = 0,
    out: Annotated[str, typer.Option(help="Folder for page, figures, data, program.")] = "advice",
    sep: Sep = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    sheet: Sheet = None,
    missing_reward: MissingReward = "error",
    strip_labels: StripLabels = False,
    backend: Backend = None,
    workers: Workers = None,
    scheduler: Scheduler = None,
) -> None:
    """Look at a log: is the reward zero-inflated, what does that buy, which policy suits it?

    Columns that are not named are guessed from names and contents; guesses are reported.
    """
    from zib.core.validate import InvalidParameterError
    from zib.logs.advise import advise as make_advice

    with refusing():
        how = options(sep, decimal, encoding, sheet, missing_reward, strip_labels)
        how |= {"inflated": inflated} if inflated else {}
        who = machines(backend, workers, scheduler)
        data, source = _open(log, arm, reward, propensity, context, time, unit, cluster, how, who)
        folder = _folder(out)
        with progress_bar("reading") as tell:
            try:
                advice = make_advice(
                    data,
                    horizon=horizon,
                    replications=replications,
                    simulate=simulate,
                    level=level,
                    worth=worth,
                    randomised=_shares("--shares", shares, data.arms) if shares else randomised,
                    seed=seed,
                    timezone=timezone,
                    source=source,
                    progress=tell,
                    **who,
                )
            except InvalidParameterError as error:
                refuse(str(error))
        typer.echo(str(advice))
        page = advice.write(folder)
    typer.echo(f"\nPage: {page}   Program: {folder / 'policy.py'}")


@app.command()
def evaluate(
    log: Log,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            help="What to evaluate (repeat for several): uniform, logging, an arm, "
            "NAME=ARM:SHARE,ARM:SHARE, a saved bandit (FILE.json), or what is learned from the log "
            "in folds: learned:best (the best arm), learned:greedy (a model's best arm for each "
            "context), learned:LaplaceTS or another policy that needs no parameters. "
            "All arms by default.",
            metavar="POLICY",
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(help="Compare with this one; anything --policy takes.", metavar="POLICY"),
    ] = "logging",
    arm: Arm = None,
    reward: Reward = None,
    propensity: Propensity = None,
    context: Context = None,
    strata: Annotated[
        list[str] | None,
        typer.Option(help="Arms were drawn at random within values of this column (repeat)."),
    ] = None,
    randomised: Randomised = False,
    shares: Shares = None,
    time: Time = None,
    unit: Unit = None,
    cluster: Cluster = None,
    inflated: Inflated = 0.0,
    estimator: Annotated[
        list[str] | None,
        typer.Option(help="ips, snips, dr, sndr, dm, clipped, switch or replay (repeat)."),
    ] = None,
    interval: Annotated[
        str, typer.Option(help="corrected (for skewness), asymptotic or bootstrap.")
    ] = "corrected",
    level: Level = 0.95,
    clip: Annotated[float, typer.Option(help="Largest weight of clipped and switch.")] = 10.0,
    allow_missing: Annotated[
        bool, typer.Option("--allow-missing", help="Go on when a policy plays arms never logged.")
    ] = False,
    seed: Seed = 0,
    out: Annotated[str, typer.Option(help="Folder for page, figure and tables.")] = "evaluation",
    sep: Sep = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    sheet: Sheet = None,
    missing_reward: MissingReward = "error",
    strip_labels: StripLabels = False,
    backend: Backend = None,
    workers: Workers = None,
    scheduler: Scheduler = None,
) -> None:
    """Estimate what other policies would have earned, from a log, with intervals and grades.

    Without propensities, strata and shares they are estimated from the context, with a warning.
    A policy made from this very log must be learned in folds (learned:...), or it flatters itself.
    """
    from zib import ope

    with refusing():
        columns = [
            *(context or []),
            *(name for name in strata or [] if name not in (context or [])),
        ]
        how = options(sep, decimal, encoding, sheet, missing_reward, strip_labels)
        how |= {"inflated": inflated} if inflated else {}
        who = machines(backend, workers, scheduler)
        data, _ = _open(log, arm, reward, propensity, columns, time, unit, cluster, how, who)
        folder = _folder(out)
        source: Any = "logged" if data.has_propensity else "estimated"
        if strata:
            source = ope.Strata(strata)
        elif shares:
            source = _shares("--shares", shares, data.arms)
        elif randomised:
            source = "randomised"
        with warnings_in_words():
            policies = _policies(policy, data.arms)
            baseline = None
            if against:
                baseline, compared = _policy(against, data.arms, "--against")
                policies.setdefault(baseline, compared)
            found = ope.evaluate(
                data,
                policies,
                estimators=tuple(estimator or ("ips", "snips", "dr")),
                propensities=source,
                baseline=baseline,
                level=level,
                interval=interval,
                clip=clip,
                on_missing_support="warn" if allow_missing else "raise",
                seed=seed,
                progress=_terminal(),
                **who,
            )
        typer.echo(found.summary())
        page = _write(found, folder, Path(log).name)
    typer.echo(f"\nPage: {page}")


def _open(
    log: str,
    arm: str | None,
    reward: str | None,
    propensity: str | None,
    context: list[str] | None,
    time: str | None,
    unit: str | None,
    cluster: str | None,
    how: dict[str, Any],
    who: dict[str, Any],
) -> tuple[LoggedData | LogScan, dict[str, Any]]:
    """Return the log with named or guessed columns, and what to read it with.

    `how` are the options of `zib.cli.reading`, `who` those of `zib.cli.machines`.
    """
    from zib.logs import guess_columns, open_log

    named = {
        "arm": arm, "reward": reward, "propensity": propensity, "time": time, "unit": unit,
        "cluster": cluster,
    }  # fmt: skip
    given = {role: column for role, column in named.items() if column is not None}
    sniffed = {
        name: value for name, value in how.items() if name not in ("strip_labels", "inflated")
    }
    guess = guess_columns(log, context=tuple(context or ()), **given, **sniffed)
    for role, reason in zip(_guessed_roles(guess, given), guess.reasons):
        typer.echo(f"guessed {reason}" if role else reason, err=True)
    for doubt in guess.doubts:
        typer.secho(f"warning: {doubt}", fg="yellow", err=True)
    with warnings_in_words():
        most: dict[str, Any] = (
            {} if who["backend"] == "serial" else {"in_memory": 0}
        )  # workers read files
        data = open_log(log, **guess.roles, **how, **most)
    for note in data.notes:
        typer.echo(note, err=True)
    return data, {"path": log, **guess.roles, **how}


def _guessed_roles(guess: Any, given: dict[str, str]) -> list[bool]:
    return [not any(reason.startswith(role) for role in given) for reason in guess.reasons]


def _policies(wanted: list[str] | None, arms: tuple[Any, ...]) -> dict[str, Any]:
    """Return target policies from words of the command line."""
    if not wanted:
        if len(arms) > 20:
            refuse(f"`--policy` must be given for a log with {len(arms)} arms; got none")
        return {"uniform": "uniform", **{f"always {arm}": _always(arm) for arm in arms}}
    found: dict[str, Any] = {}
    for text in wanted:
        name, policy = _policy(text, arms)
        if name in found:
            refuse(f"`--policy` must name each policy once; {name!r} occurs twice")
        found[name] = policy
    return found


def _always(arm: Any) -> Any:
    from zib.logs.ope import always

    return always(arm)


def _policy(text: str, arms: tuple[Any, ...], option: str = "--policy") -> tuple[str, Any]:
    """Return name and policy from words of the command line."""
    if text in ("uniform", "logging"):
        return text, text
    labels = {str(arm): arm for arm in arms}
    if text in labels:
        return f"always {text}", _always(labels[text])
    if text.startswith(_LEARNED):
        return text, _learned(text, option)
    if text.endswith(".json"):
        return Path(text).stem, _saved(text)
    name, _, shares = text.partition("=")
    if not shares:
        known = ", ".join(list(labels)[:10])
        refuse(
            f"`{option}` must be uniform, logging, an arm of the log "
            f"({known}), NAME=ARM:SHARE,ARM:SHARE, a saved bandit (FILE.json) or learned:NAME; "
            f"got {text!r}"
        )
    return name, _shares(option, shares, arms)


_LEARNED = "learned:"


def _learned(text: str, option: str) -> Any:
    """Return something to be learned from the log, by name."""
    from zib import contextual, mab
    from zib.core.validate import InvalidParameterError
    from zib.logs.ope import learned
    from zib.logs.ope.learners import NAMES

    name = text.removeprefix(_LEARNED)
    if name in NAMES:
        return learned(name)
    made: Any = getattr(contextual, name, None) or getattr(mab, name, None)
    try:
        return learned(made())
    except (TypeError, InvalidParameterError) as error:
        why = f" ({error})" if isinstance(made, type) else ""
        refuse(
            f"`{option}` must be learned:best, learned:greedy or learned: and a policy of "
            f"zib.contextual or zib.mab that needs no parameters; got {text!r}{why}"
        )


def _saved(path: str) -> Any:
    """Return the bandit in a file, of whichever kind."""
    from zib import Bandit, ContextualBandit

    with Path(path).open(encoding="utf-8", errors="replace") as file:
        is_contextual = "zib.ContextualBandit" in file.read(4096)
    return (ContextualBandit if is_contextual else Bandit).load(path)


def _shares(option: str, text: str, arms: tuple[Any, ...]) -> dict[Any, float]:
    """Return the shares in words such as a:0.5,b:0.5."""
    labels = {str(arm): arm for arm in arms}
    found: dict[Any, float] = {}
    for piece in text.split(","):
        arm, _, share = piece.rpartition(":")
        try:
            found[labels[arm]] = float(share)
        except (KeyError, ValueError):
            known = ", ".join(list(labels)[:10])
            refuse(f"`{option}` must give shares as ARM:SHARE with arms {known}; got {piece!r}")
    return found


def _folder(out: str) -> Path:
    folder = Path(out)
    if folder.exists() and not folder.is_dir():
        refuse(f"`--out` must be a folder; {out} is a file")
    return folder


def _terminal() -> bool:
    from rich.console import Console

    return Console(stderr=True).is_terminal


def _write(found: Evaluation, folder: Path, log: str) -> Path:
    from zib.logs.ope.page import write_page

    return write_page(found, folder, log)
