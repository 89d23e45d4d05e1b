"""`Study`: what a study file says, read and checked before anything runs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import zib
from zib.core import toml
from zib.core import validate as check
from zib.core.toml import as_table, check_keys, joined, suggestion
from zib.core.validate import InvalidParameterError
from zib.sim.plan import Plan, engine_of
from zib.sim.run import BACKENDS
from zib.studies.build import (
    Given,
    StudyError,
    build,
    environments,
    log_digests,
    policies,
)

# The settings of a file and what they are when it does not give them; None: they must be given.
SETTINGS: dict[str, Any] = {
    "name": "",
    "about": "",
    "horizon": None,
    "replications": 50,
    "seed": 0,
    "checkpoints": 200,
    "environments": None,
    "policies": None,
    "run": {},
    "output": {},
}
RUN: dict[str, Any] = {
    "backend": "threads",
    "workers": None,
    "scheduler": None,
    "store": True,
    "keep": "runs",
}
KEEPS = ("runs", "summary")
EXAMPLE = (resources.files(__package__) / "example.toml").read_text(encoding="utf-8")
"""The commented example that ``zib simulate --init`` writes."""
# What numbers depend on. Where and how a study runs changes none of them.
DECISIVE = ("horizon", "replications", "seed", "checkpoints", "environments", "policies")


class Case(NamedTuple):
    """One environment of a study and the policies that play in it, by their labels."""

    label: str
    environment: Any
    policies: dict[str, Any]


class How(NamedTuple):
    """How a study is run, as `zib.simulate` is told; nothing here changes a number."""

    backend: str
    workers: int | None
    scheduler: str | None
    store: bool | Path
    keep: str


@dataclass(frozen=True)
class Study:
    """Policies × environments, with everything that decides what comes out.

    Attributes
    ----------
    name, about
        Title and description of the report.
    horizon, replications, seed, checkpoints
        As for `zib.simulate`.
    cases
        The environments, each with its policies.
    how
        Backend, workers, store: what does not change the results.
    folder
        Where the report goes.
    text
        The file as it was read.
    changes
        What replaced settings of the file, as words.
    logs
        SHA-256 sums of the log files that environments resample.
    hash
        Fingerprint of all settings that decide what comes out, and of the log files.
    """

    name: str
    about: str
    horizon: int
    replications: int
    seed: int
    checkpoints: int | list[int]
    cases: tuple[Case, ...]
    how: How
    folder: Path
    text: str
    changes: tuple[str, ...]
    logs: dict[str, str]
    hash: str

    @property
    def contextual(self) -> bool:
        """Whether policies see features."""
        return is_contextual(self.cases[0].environment)

    def arguments(self) -> dict[str, Any]:
        """Return what `zib.simulate` and `Plan.of` are told besides policies and environment."""
        return {
            "horizon": self.horizon,
            "replications": self.replications,
            "seed": self.seed,
            "checkpoints": self.checkpoints,
        }

    def plan(self, case: Case) -> Plan:
        """Return the plan of one environment: its tasks, by name."""
        engine = engine_of(self.how.backend)
        return Plan.of(case.policies, case.environment, **self.arguments(), engine=engine)


def is_contextual(environment: Any) -> bool:
    """Return whether policies see features in this environment."""
    return hasattr(environment, "n_features")


def read(path: str | Path, changes: Mapping[str, Any] | None = None) -> Study:
    """Read and check a study file; nothing is run.

    Parameters
    ----------
    path
        A TOML file. Paths in it are relative to the folder it is in.
    changes
        Settings that replace those of the file, nested as there: ``{"run": {"workers": 2}}``.

    Raises
    ------
    StudyError
        One sentence that says where in the file something is wrong, with a suggestion for names
        that do not exist.
    """
    source = Path(path)
    try:
        text = toml.read_text(source)
    except InvalidParameterError as error:
        raise StudyError(str(error)) from None
    return parse(text, source, changes)


def parse(text: str, source: str | Path, changes: Mapping[str, Any] | None = None) -> Study:
    """Return the study in a text that stands, or could stand, in the file `source`."""
    source = Path(source)
    try:
        data = toml.changed(toml.parse(text, source), changes or {})
    except InvalidParameterError as error:
        raise StudyError(str(error)) from None
    try:
        return _study(data, text, source, tuple(_words(changes or {})))
    except InvalidParameterError as error:
        raise StudyError(f"{source.name}: {error}") from error


def _words(changes: Mapping[str, Any], place: str = "") -> Iterator[str]:
    """Yield the changes as lines of a study file; the folder of the output says nothing."""
    for key, value in changes.items():
        if isinstance(value, Mapping):
            yield from _words(value, joined(place, key))
        elif place != "output":
            yield f"{joined(place, key)} = {json.dumps(value, default=str)}"


def _study(data: dict[str, Any], text: str, source: Path, changes: tuple[str, ...]) -> Study:
    check_keys(data, "", SETTINGS)
    for key, default in SETTINGS.items():
        if default is None and key not in data:
            raise StudyError(f"`{key}` is missing")
    settings = {**SETTINGS, **data}
    folder = source.parent
    horizon = check.integer("horizon", settings["horizon"], low=1)
    cases = _cases(settings, horizon, folder)
    logs = log_digests(settings["environments"], folder)
    return Study(
        name=_text(settings, "name") or source.stem,
        about=_text(settings, "about"),
        horizon=horizon,
        replications=check.integer("replications", settings["replications"], low=1),
        seed=check.seed("seed", settings["seed"]),
        checkpoints=_checkpoints(settings["checkpoints"], horizon),
        cases=cases,
        how=_how(settings["run"], folder),
        folder=_output(settings["output"], source),
        text=text,
        changes=changes,
        logs=logs,
        hash=_hash({key: settings[key] for key in DECISIVE}, logs),
    )


def _hash(settings: dict[str, Any], logs: dict[str, str]) -> str:
    text = json.dumps([settings, sorted(logs.values())], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _text(settings: Mapping[str, Any], key: str) -> str:
    value = settings[key]
    if not isinstance(value, str):
        raise StudyError(f"`{key}` must be a text in quotes; got {check.shown(value)}")
    return value.strip()


def _checkpoints(value: object, horizon: int) -> int | list[int]:
    if not isinstance(value, list):
        return check.integer("checkpoints", value, low=1)
    if not value:
        raise StudyError("`checkpoints` must hold at least one round; got none")
    return [check.integer("checkpoints", each, low=1, high=horizon) for each in value]


# --------------------------------------------------------------------------------- who plays where


def _cases(settings: Mapping[str, Any], horizon: int, folder: Path) -> tuple[Case, ...]:
    made = {
        label: _environment(table, joined("environments", label), folder)
        for label, table in _labelled(settings, "environments").items()
    }
    first, *others = made
    for label in others:
        if is_contextual(made[label]) != is_contextual(made[first]):
            with_, without = (label, first) if is_contextual(made[label]) else (first, label)
            raise StudyError(
                f"environments: {with_!r} is contextual and {without!r} is not, so no policy can "
                "play in both; write one study for each"
            )
    shelf = policies(is_contextual(made[first]))
    tables = _labelled(settings, "policies")
    cases = []
    for label, environment in made.items():
        given = Given(folder, {"horizon": horizon, "n_arms": environment.n_arms})
        players = {
            name: build(table, joined("policies", name), shelf, given)
            for name, table in tables.items()
        }
        cases.append(Case(label, environment, players))
    return tuple(cases)


def _labelled(settings: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    tables = as_table(settings[key], key)
    if not tables or not all(label.strip() for label in tables):
        raise StudyError(f"`{key}` must hold at least one table [{key}.NAME], none without a name")
    return tables


def _environment(table: object, place: str, folder: Path) -> Any:
    content = as_table(table, place)
    if "id" not in content:
        return build(content, place, environments(), Given(folder, {}))
    if len(content) > 1:
        others = ", ".join(repr(key) for key in content if key != "id")
        raise StudyError(f"{place}: an `id` stands for all parameters; got {others} as well")
    name = content["id"]
    if name not in zib.env.list_ids():
        raise StudyError(
            f"{place}: there is no environment with the id {name!r}"
            f"{suggestion(str(name), zib.env.list_ids())}"
        )
    return zib.env.make(name)


# --------------------------------------------------------------------------------- how and whereto


def _how(table: object, folder: Path) -> How:
    content = as_table(table, "run")
    if misplaced := [key for key in content if key not in RUN and key in SETTINGS]:
        raise StudyError(f"run: {misplaced[0]!r} must stand above the first [table] of the file")
    check_keys(content, "run", RUN)
    run = {**RUN, **content}
    try:
        check.choice("backend", run["backend"], BACKENDS)
        check.choice("keep", run["keep"], KEEPS)
        if run["workers"] is not None:
            run["workers"] = check.integer("workers", run["workers"], low=1)
    except InvalidParameterError as error:
        raise StudyError(f"run: {error}") from error
    if run["scheduler"] is not None and run["backend"] != "dask":
        raise StudyError(
            f'run: `scheduler` is for backend = "dask"; got backend = "{run["backend"]}"'
        )
    if not isinstance(run["scheduler"], str | None):
        raise StudyError(f"run: `scheduler` must be an address; got {run['scheduler']!r}")
    if not isinstance(run["store"], bool | str):
        raise StudyError(f"run: `store` must be true, false or a folder; got {run['store']!r}")
    store = run["store"] if isinstance(run["store"], bool) else folder / run["store"]
    return How(run["backend"], run["workers"], run["scheduler"], store, run["keep"])


def _output(table: object, source: Path) -> Path:
    content = as_table(table, "output")
    check_keys(content, "output", ("folder",))
    folder = content.get("folder", f"results/{source.stem}")
    if not isinstance(folder, str) or not folder.strip():
        raise StudyError(f"output: `folder` must be a path in quotes; got {check.shown(folder)}")
    return source.parent / folder
