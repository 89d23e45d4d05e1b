"""Finds the experiments, runs them one after the other and keeps the report up to date.

A finished item is kept in the store under all it depends on, files included, and read when nothing
changed. (Simulations are kept there block by block anyway; some items do other things, and drawing
takes time, too.) While the first items run, another process compiles the contextual policies that
later ones need: in the first run after an installation that takes longer than playing them.
"""

from __future__ import annotations

import difflib
import hashlib
import io
import json
import os
import pkgutil
import platform
import subprocess
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

from zib.core import cache as compiled
from zib.core import sources
from zib.core.validate import InvalidParameterError, choice, integer
from zib.experiments.harness import Experiment
from zib.experiments.record import SCALES, Context, Record, Scale
from zib.logs.folder import data_files
from zib.sim import CannotBeStored, Store
from zib.sim.cuda import require_gpu
from zib.sim.keys import user_code
from zib.sim.plan import engine_of
from zib.sim.run import BACKENDS
from zib.sim.store import as_store

KEPT_FORMAT = 1  # raise it when stored items can no longer be read
RECORD = "record.json"
PACKAGES = (
    "numpy", "numba", "scipy", "pandas", "pyarrow", "matplotlib", "statsmodels", "scikit-learn",
)  # fmt: skip
COMPILE = (
    "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN);"  # Ctrl-C is for the parent
    "from zib.experiments.contextual_study import compile_policies; compile_policies()"
)
COMPILE_AHEAD = (sys.executable, "-c", COMPILE)

Tell = Callable[[str, str, float], None]
"""Called with (experiment, what is being done, share of the whole run that is done)."""
Item = type[Experiment[Any]]
Stamps = Mapping[Path, tuple[int, int]]


class UnknownExperiment(InvalidParameterError):
    """No experiment has this id."""


class OutputError(OSError):
    """The folder for the results cannot be written to."""


class Interrupted(KeyboardInterrupt):
    """The user stopped the run; `finished` holds the records that were written before."""

    def __init__(self, finished: dict[str, Record]) -> None:
        super().__init__()
        self.finished = finished


# ------------------------------------------------------------------------------ which experiments


@cache
def experiments() -> dict[str, Item]:
    """Return all experiments by id, in the order of the report: whatever declares an `order`."""
    import zib.experiments as package

    found = []
    for info in pkgutil.iter_modules(package.__path__):
        module = import_module(f"{package.__name__}.{info.name}")
        found += [
            item
            for item in vars(module).values()
            if isinstance(item, type)
            and issubclass(item, Experiment)
            and item.__module__ == module.__name__
            and "order" in vars(item)
        ]
    return {item.id: item for item in sorted(found, key=lambda item: item.order)}


def experiment_of(name: str) -> Item:
    """Return the experiment with this id."""
    return experiments()[name]


def resolve(only: Iterable[str] | None) -> list[str]:
    """Return the ids meant by `only`, in the order of the paper; all when none is named.

    Examples
    --------
    >>> resolve(["FIGS1", "fig2"])
    ['fig2', 'figS1']
    """
    wanted = list(only or ())
    if not wanted:
        return list(experiments())
    known = {name.lower(): name for name in experiments()}
    found = set()
    for name in wanted:
        key = name.strip().lower()
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1, cutoff=0.0)
            raise UnknownExperiment(
                f"there is no experiment {name!r}; did you mean {known[near[0]]!r}? "
                f"Known: {', '.join(experiments())}."
            )
        found.add(known[key])
    return [name for name in experiments() if name in found]


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
    for name in experiments():
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
    backend: str = "threads",
    replications: int | None = None,
) -> dict[str, Record]:
    """Run experiments and write figures, numbers and one report.

    Parameters
    ----------
    only
        Ids of experiments; all by default.
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
    backend
        Who plays simulations: ``"threads"``, ``"serial"``, ``"processes"``, or ``"cuda"`` and
        ``"counter"``, of which see `zib.simulate`; what those two cannot play, threads do.
    replications
        How many to play instead of those of the scale, where an item has replications.

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
    if replications is not None:
        replications = integer("replications", replications, 2)
    choice("backend", backend, tuple(name for name in BACKENDS if name != "dask"))
    if backend == "cuda":
        require_gpu()
    kept_in = as_store(store)
    names = resolve(only)
    folder = prepare_folder(out)
    wanted = {name: experiment_of(name) for name in names}
    total = sum(experiment.weight for experiment in wanted.values())
    done = 0.0
    finished: dict[str, Record] = {}
    asked = Context(
        scale,
        seed,
        workers,
        folder,
        store=kept_in,
        backend=backend,
        replications=replications,
    )
    to_run = [item for item in wanted.values() if not _is_kept(item, asked)]
    with compiling_ahead(to_run):
        for name, experiment in wanted.items():
            progress = _progress(tell, name, done / total, experiment.weight / total)
            progress("starting", 0.0)
            context = replace(asked, folder=folder / name, tell=progress)
            try:
                record = _run(experiment, context)
            except KeyboardInterrupt:
                raise Interrupted(finished) from None
            record.save(folder / name)
            finished[name] = record
            write_report(folder, load_records(folder))
            done += experiment.weight
            if record.interrupted:
                raise Interrupted(finished)
    if tell is not None:
        tell("", "done", 1.0)
    return finished


def _is_kept(experiment: Item, context: Context) -> bool:
    key = None if context.store is None else key_of(experiment, context)
    return context.store is not None and key is not None and key in context.store


def _run(experiment: Item, context: Context) -> Record:
    """Return the record of an experiment: from the store if it is there, by running it if not."""
    store = context.store
    key = None if store is None else key_of(experiment, context)
    if store is None or key is None:
        return experiment.run(context)
    found = restore(store, key, context.folder)
    if found is not None:
        return found
    before = stamps(context.folder)
    record = experiment.run(context)
    if not record.interrupted:
        keep(store, key, record, context.folder, before)
    return record


def _progress(
    tell: Tell | None, name: str, done: float, share: float
) -> Callable[[str, float], None]:
    def progress(message: str, part: float) -> None:
        if tell is not None:
            tell(name, message, done + share * part)

    return progress


# ------------------------------------------------------------------------------- compiling ahead


def worthwhile(items: Sequence[Item], processors: int) -> bool:
    """Whether something else is to be run before the first contextual item, and can be meanwhile.

    Examples
    --------
    >>> from zib.experiments.fig2 import Figure2
    >>> from zib.experiments.fig3 import Figure3
    >>> worthwhile([Figure2, Figure3], 2), worthwhile([Figure3, Figure2], 2)
    (True, False)
    """
    slow = [item.compiles_contextual for item in items]
    return compiled.FOLDER is not None and processors > 1 and any(slow) and not slow[0]


@contextmanager
def compiling_ahead(items: Sequence[Item]) -> Iterator[None]:
    """Compile contextual policies in another process, as long as the block runs."""
    if not worthwhile(items, os.cpu_count() or 1):
        yield
        return
    quiet = subprocess.DEVNULL  # whatever goes wrong there: the items compile for themselves
    child = subprocess.Popen(COMPILE_AHEAD, stdin=quiet, stdout=quiet, stderr=quiet)
    try:
        yield
    finally:
        child.terminate()
        child.wait()


# ------------------------------------------------------------------------------ items in the store


def key_of(experiment: Item, context: Context) -> str | None:
    """Return the key of a finished experiment, or None if its code has no file."""
    name = experiment.__module__
    if name not in sys.modules:
        return None
    try:
        code = [sources.hash_of(frozenset({name})), user_code([name])]
    except CannotBeStored:
        return None
    content = {
        "experiment": name,
        "format": KEPT_FORMAT,
        "scale": context.scale,
        "seed": context.seed,
        "replications": context.replications,
        "engine": engine_of(context.backend),
        "code": code,
        "versions": {package: _version(package) for package in PACKAGES},
        "machine": platform.machine(),
        "data": _data_sums(),
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "absent"


def _data_sums() -> dict[str, str]:
    """Return the checksums of the data files that are there; experiments use what they find."""
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in data_files()}


def stamps(folder: Path) -> Stamps:
    """Return when each file of a folder was written, to tell afterwards which are new."""
    if not folder.is_dir():
        return {}
    states = {path: path.stat() for path in folder.rglob("*") if path.is_file()}
    return {path: (state.st_mtime_ns, state.st_size) for path, state in states.items()}


def keep(store: Store, key: str, record: Record, folder: Path, before: Stamps) -> None:
    """Keep a finished experiment: its record, and the files written since `before`."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(record.save(folder), RECORD)
        for path, stamp in sorted(stamps(folder).items()):
            name = path.relative_to(folder).as_posix()
            if before.get(path) != stamp and name != RECORD:
                archive.write(path, name)
    about = {"experiment": record.id, "scale": record.scale, "seconds": record.seconds}
    try:
        store.put_bytes(key, buffer.getvalue(), about)
    except OSError as error:
        warnings.warn(
            f"{record.id} is finished but cannot be kept in the store {store.folder} "
            f"({error.strerror or error})",
            RuntimeWarning,
            stacklevel=2,
        )


def restore(store: Store, key: str, folder: Path) -> Record | None:
    """Write the files of a kept experiment to `folder` and return its record; None if absent."""
    content = store.get_bytes(key)
    if content is None:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        archive.extractall(folder)
    record = Record.load(folder / RECORD)
    if record is None:
        return None
    when = record.provenance.get("time", "an earlier day")
    note = f"Taken from the store: computed at {when} in {record.seconds:.1f} s, nothing changed."
    return replace(
        record, notes=(*record.notes, note), provenance={**record.provenance, "from_store": True}
    )
