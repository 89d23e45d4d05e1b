"""What one experiment leaves behind: settings, figures, tables, verdicts, provenance."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from zib.sim import Store

Source = Literal["paper", "ours", "fix"]
Status = Literal["holds", "partly", "fails", "open"]
Scale = Literal["quick", "paper"]

SAID: dict[Status, str] = {
    "holds": "holds",
    "partly": "holds in part",
    "fails": "does not hold",
    "open": "undecided",
}
SCALES: tuple[Scale, ...] = ("quick", "paper")
FORMAT = "zib.experiments.Record/1"


@dataclass(frozen=True)
class Setting:
    """One line of the settings: stated in the paper, a correction of it, or our choice."""

    name: str
    value: str
    source: Source


@dataclass(frozen=True)
class Verdict:
    """A claim of the paper, whether the numbers bear it out, and the numbers."""

    claim: str
    status: Status
    words: str
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True)
class Table:
    """A table of ready-made text."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


@dataclass(frozen=True)
class Picture:
    """A figure by its file stem, inside the folder of the experiment."""

    stem: str
    caption: str
    alternative: str


@dataclass(frozen=True)
class Record:
    """Everything the report shows about one item of the paper."""

    id: str
    title: str
    about: str
    scale: str
    settings: tuple[Setting, ...]
    pictures: tuple[Picture, ...]
    tables: tuple[Table, ...]
    verdicts: tuple[Verdict, ...]
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    provenance: dict[str, Any] = field(default_factory=dict)
    interrupted: bool = False

    def save(self, folder: Path) -> Path:
        """Write the record as JSON next to its figures."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "record.json"
        data = {"format": FORMAT, **dataclasses.asdict(self)}
        path.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        return path

    @classmethod
    def load(cls, path: Path) -> Record | None:
        """Return the record saved at `path`, or None if it is not one of this version."""
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            if data.pop("format") != FORMAT:
                return None
            parts = {
                "settings": Setting,
                "pictures": Picture,
                "verdicts": Verdict,
            }
            for name, kind in parts.items():
                data[name] = tuple(kind(**item) for item in data[name])
            data["verdicts"] = tuple(
                dataclasses.replace(v, evidence=tuple(v.evidence)) for v in data["verdicts"]
            )
            data["tables"] = tuple(
                Table(
                    item["title"],
                    tuple(item["columns"]),
                    tuple(tuple(row) for row in item["rows"]),
                    item["note"],
                )
                for item in data["tables"]
            )
            data["notes"] = tuple(data["notes"])
            return cls(**data)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None


@dataclass(frozen=True)
class Context:
    """What an experiment is told: how much to do, with which seed, where, and whom to tell.

    `store` is where simulations are looked up and kept, `backend` who plays them, `replications`
    how many are played instead of those of the scale.
    """

    scale: Scale
    seed: int
    workers: int | None
    folder: Path
    tell: Callable[[str, float], None] = lambda message, done: None
    store: Store | None = None
    backend: str = "threads"
    replications: int | None = None

    @property
    def quick(self) -> bool:
        """Whether this is the small version."""
        return self.scale == "quick"


def plan_hash(plan: object) -> str:
    """Return a short fingerprint of what was run: the plan and the sources that ran it."""
    from zib.core.sources import source_hash

    text = json.dumps([plan, source_hash()], sort_keys=True, default=repr)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def provenance(plan: object, seed: int) -> dict[str, Any]:
    """Return versions, seed, time and the fingerprint of the plan."""
    return {
        "plan_hash": plan_hash(plan),
        "seed": seed,
        "zib": version("zib"),
        "numpy": version("numpy"),
        "numba": version("numba"),
        "scipy": version("scipy"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
