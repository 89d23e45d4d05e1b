"""Runs experiments one after the other and keeps the report up to date."""

from __future__ import annotations

import difflib
import tempfile
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

from zib.core.validate import InvalidParameterError, choice, integer
from zib.experiments import kept
from zib.experiments.ahead import compiling_ahead
from zib.experiments.record import SCALES, Context, Record, Scale
from zib.sim import Store
from zib.sim.store import as_store

EXPERIMENTS = (
    "fig1a",
    "fig1b",
    "fig2",
    "fig3",
    "fig4",
    "figS1",
    "figS2",
    "figS3",
    "links",
    "figS4",
    "figS5",
    "tabS1",
    "figS6",
    "limit",
    "sparsity",
    "noknobs",
    "drift",
    "ope",
)

Tell = Callable[[str, str, float], None]
"""Called with (experiment, what is being done, share of the whole run that is done)."""


class UnknownExperiment(InvalidParameterError):
    """No experiment has this id."""


class OutputError(OSError):
    """The folder for the results cannot be written to."""


class Interrupted(KeyboardInterrupt):
    """The user stopped the run; `finished` holds the records that were written before."""

    def __init__(self, finished: dict[str, Record]) -> None:
        super().__init__()
        self.finished = finished


def module_of(experiment: str) -> Any:
    """Return the module of an experiment."""
    return import_module(f"zib.experiments.{experiment}")


def resolve(only: Iterable[str] | None) -> list[str]:
    """Return the ids meant by `only`, in the order of the paper; all when none is named.

    Examples
    --------
    >>> resolve(["FIGS1", "fig2"])
    ['fig2', 'figS1']
    """
    wanted = list(only or ())
    if not wanted:
        return list(EXPERIMENTS)
    known = {name.lower(): name for name in EXPERIMENTS}
    found = set()
    for name in wanted:
        key = name.strip().lower()
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1, cutoff=0.0)
            raise UnknownExperiment(
                f"there is no experiment {name!r}; did you mean {known[near[0]]!r}? "
                f"Known: {', '.join(EXPERIMENTS)}."
            )
        found.add(known[key])
    return [name for name in EXPERIMENTS if name in found]


def prepare_folder(out: str | Path) -> Path:
    """Create the folder for results and make sure that files can be written there."""
    folder = Path(out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        reason = error.strerror or str(error)
        raise OutputError(f"cannot write to the output folder {folder}: {reason}.") from None
    return folder


def load_records(folder: Path) -> dict[str, Record]:
    """Return the records an earlier run left in `folder`, in the order of the paper."""
    found = {}
    for name in EXPERIMENTS:
        record = Record.load(folder / name / "record.json")
        if record is not None:
            found[name] = record
    return found


def reproduce(
    only: Iterable[str] | None = None,
    *,
    scale: Scale = "quick",
    out: str | Path = "results",
    workers: int | None = None,
    seed: int = 0,
    tell: Tell | None = None,
    store: bool | str | Path | Store | None = None,
) -> dict[str, Record]:
    """Run experiments and write figures, numbers and one report.

    Parameters
    ----------
    only
        Ids of `EXPERIMENTS`; all by default.
    scale
        ``"quick"`` for a few replications, ``"paper"`` for as many as the paper.
    out
        Folder for everything; ``report.html`` in it shows all items found there, also those of
        earlier runs.
    workers
        Threads of the simulations; all processors by default.
    seed
        Seed of everything random.
    tell
        Told about progress.
    store
        Where finished simulations and items are looked up and kept: True for the user's store, a
        folder, or a `zib.sim.Store`. With it an unchanged item is read instead of run, and an
        interrupted one goes on where it was.

    Returns
    -------
    dict
        The records of the items that were run, by id. What is finished is written at once: an
        interruption loses at most the item in progress.

    Raises
    ------
    UnknownExperiment, OutputError
        Before anything runs.
    Interrupted
        On Ctrl-C, with the records written so far; a `KeyboardInterrupt`.
    """
    from zib.experiments.report import write_report

    choice("scale", scale, SCALES)
    seed = integer("seed", seed, 0)
    if workers is not None:
        workers = integer("workers", workers, 1)
    kept_in = as_store(store)
    names = resolve(only)
    folder = prepare_folder(out)
    modules = {name: module_of(name) for name in names}
    total = sum(float(module.WEIGHT) for module in modules.values())
    done = 0.0
    finished: dict[str, Record] = {}
    to_run = [name for name in names if not _is_kept(modules[name], scale, seed, kept_in)]
    with compiling_ahead(to_run):
        for name, module in modules.items():
            weight = float(module.WEIGHT)
            progress = _progress(tell, name, done / total, weight / total)
            progress("starting", 0.0)
            context = Context(scale, seed, workers, folder / name, progress, kept_in)
            try:
                record = _run(module, context)
            except KeyboardInterrupt:
                raise Interrupted(finished) from None
            record.save(folder / name)
            finished[name] = record
            write_report(folder, load_records(folder))
            done += weight
            if record.interrupted:
                raise Interrupted(finished)
    if tell is not None:
        tell("", "done", 1.0)
    return finished


def _is_kept(module: Any, scale: Scale, seed: int, store: Store | None) -> bool:
    key = None if store is None else kept.key_of(module, scale, seed)
    return store is not None and key is not None and key in store


def _run(module: Any, context: Context) -> Record:
    """Return the record of an experiment: from the store if it is there, by running it if not."""
    store = context.store
    key = None if store is None else kept.key_of(module, context.scale, context.seed)
    if store is None or key is None:
        record: Record = module.run(context)
        return record
    found = kept.restore(store, key, context.folder)
    if found is not None:
        return found
    before = kept.stamps(context.folder)
    record = module.run(context)
    if not record.interrupted:
        kept.keep(store, key, record, context.folder, before)
    return record


def _progress(
    tell: Tell | None, name: str, done: float, share: float
) -> Callable[[str, float], None]:
    def progress(message: str, part: float) -> None:
        if tell is not None:
            tell(name, message, done + share * part)

    return progress
