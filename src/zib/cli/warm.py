"""``zib warm``: compile policies before a service needs them."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from zib.cli.program import app, refuse, refusing

# Values of parameters that policies want to be told; compiled code depends on their types only.
VALUES: dict[str, Any] = {
    "horizon": 1_000, "sigma": 1.0, "epsilon": 0.5, "moment": 4.0, "half_life": 100.0,
    "length": 100, "n_arms": 2,
}  # fmt: skip
POLICY = r"(?:(mab|contextual)\.)?(\w+)(?:\((.+)\))?"


@app.command()
def warm(
    what: Annotated[
        list[str] | None,
        typer.Argument(
            help="Policies, such as ZITS, contextual.ZITS or 'Windowed(ZIIMED)', or files of saved "
            "bandits. Without any: the default policies.",
            metavar="POLICY|FILE",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Compile everything that bandits call, so that the next process starts fast.

    Compiled code is kept on disk until the library or Numba changes; `zib cache info` says where.
    Run this once per machine or image, after installing, as the user who runs the service.

    A policy is compiled with the usual types of its parameters. Where yours differ (another law
    of the tail, another link, categories), save a bandit that plays it and give the file.
    """
    from zib.core import cache

    if cache.FOLDER is None:
        refuse("compiled code is not kept on disk here, so it cannot be made in advance.")
    plans = [plan for word in what or [""] for plan in _plans(word)]
    with _bar(len(plans)) as tell, refusing():
        for name, make in plans:
            tell(name, None)
            start = time.perf_counter()
            make().warm_up()
            tell(name, time.perf_counter() - start)
    typer.echo(f"Compiled code is kept in {cache.FOLDER}.")


def _plans(word: str) -> list[tuple[str, Callable[[], Any]]]:
    """Return names and makers of the bandits that a policy or a file stands for."""
    import zib
    from zib.core.kernel import REGISTRY

    if not word:
        rows, arms = zib.contextual.JointUCB.__name__, zib.contextual.Adaptive.__name__
        return [
            (zib.mab.ZIAdaptive.__name__, lambda: zib.Bandit(n_arms=2)),
            (f"contextual.{rows}", lambda: zib.ContextualBandit(n_features=2)),
            (f"contextual.{arms}", lambda: zib.ContextualBandit(n_features=2, arms=[0, 1])),
        ]
    if not re.fullmatch(POLICY, word) or Path(word).exists():
        if not Path(word).is_file():
            refuse(f"{word} is neither a policy nor a file.")
        return [(word, lambda: _loaded(Path(word)))]
    spec = _spec(word)
    if type(spec) in REGISTRY:
        return [(word, lambda: zib.Bandit(spec, n_arms=2))]
    return [(word, lambda: zib.ContextualBandit(spec, n_features=2))]


def _loaded(path: Path) -> Any:
    """Return the bandit of a file, of either kind."""
    import zib

    try:
        return zib.Bandit.load(path)
    except zib.SavedStateError as error:
        if "ContextualBandit" not in path.read_text(encoding="utf-8", errors="replace")[:200]:
            raise error from None
    return zib.ContextualBandit.load(path)


def _spec(word: str, room: str | None = None) -> Any:
    """Return a policy by its name, with another one in parentheses if it takes one."""
    from zib.core.spec import REQUIRED
    from zib.core.validate import InvalidParameterError

    found = re.fullmatch(POLICY, word)
    if found is None:
        refuse(f"{word!r} is not the name of a policy.")
    name, inner = found[2], found[3]
    kind = _kind(found[1] or room, name)
    wanted = {
        parameter
        for parameter, field in kind.declared.items()
        if field.is_parameter and field.default is REQUIRED
    }
    if inner is not None and "spec" not in kind.declared:
        refuse(f"{name} plays no other policy; got {word}.")
    if inner is None and "spec" in wanted:
        refuse(f"{name} plays another policy; name it as in '{name}(…)'.")
    given = {parameter: VALUES[parameter] for parameter in wanted & VALUES.keys()}
    if inner is not None:
        is_contextual = kind.__module__.startswith("zib.contextual")
        given["spec"] = _spec(inner, "contextual" if is_contextual else "mab")
    if "sigma" in kind.declared and name in ("UCB", "ZIUCB"):  # which take a tail instead, too
        given["sigma"] = VALUES["sigma"]
    try:
        return kind(**given)
    except (InvalidParameterError, TypeError):
        refuse(f"{name} has several forms; save a bandit that plays yours and give the file.")


def _kind(room: str | None, name: str) -> Any:
    """Return the class of a policy, by default one without features."""
    from zib.core.toml import suggestion
    from zib.studies.build import policies

    rooms = {"mab": policies(False).kinds, "contextual": policies(True).kinds}
    known = {**rooms["contextual"], **rooms["mab"]} if room is None else rooms[room]
    if name not in known:
        refuse(f"there is no policy {name!r}{suggestion(name, known)}")
    return known[name]


@contextmanager
def _bar(total: int) -> Iterator[Callable[[str, float | None], None]]:
    """Show a progress bar on a terminal, and a line for whatever is done."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
    )

    console = Console(stderr=True)
    columns = (
        SpinnerColumn(),
        TextColumn("compiling {task.description}", markup=False),
        BarColumn(bar_width=28),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(
        *columns, console=console, disable=not console.is_terminal, transient=True
    ) as bar:
        task = bar.add_task("", total=total)

        def tell(name: str, seconds: float | None) -> None:
            bar.update(task, description=name, advance=0 if seconds is None else 1)
            if seconds is not None:
                console.print(f"{name}: {seconds:.1f} s", highlight=False, markup=False)

        yield tell
