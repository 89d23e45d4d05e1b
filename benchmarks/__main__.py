"""Run the benchmarks: ``python -m benchmarks [--only online] [--quick] [--out FILE]``."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import time
import warnings
from importlib import import_module, metadata
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks._measure import Part, Row

TOPICS = (
    "limit",
    "online",
    "simulated",
    "cuda",
    "contextual",
    "logs",
    "memory",
    "study",
    "startup",
    "live",
    "service",
)
ALL = Path(__file__).parent / "results" / "latest.json"
SOME = ALL.with_name("some.json")


def _print(console: Console, topic: str, doc: str, rows: list[Row]) -> None:
    table = Table(title=f"{topic}: {doc}", title_justify="left", header_style="bold")
    for heading in ("what", "who", "value", "unit", "target", "", "note"):
        table.add_column(heading, justify="right" if heading in ("value", "target") else "left")
    for row in rows:
        verdict = {True: "[green]met", False: "[red]missed", None: ""}[row.met]
        sign = "" if row.target is None else "≥ " if row.at_least else "≤ "
        table.add_row(
            row.what,
            row.who,
            _number(row.value),
            row.unit,
            sign + _number(row.target),
            verdict,
            row.note,
        )
    console.print(table)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _machine() -> dict[str, object]:
    versions = {name: metadata.version(name) for name in ("zib", "numpy", "numba")}
    return {
        "when": time.strftime("%Y-%m-%d"),
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "system": platform.system(),
        "python": platform.python_version(),
        **versions,
    }


def _kept(out: Path, machine: dict[str, object]) -> dict[str, object]:
    """Return the topics measured earlier the same day, on a like machine with the same versions."""
    if not out.exists():
        return {}
    earlier: dict[str, object] = json.loads(out.read_text())
    return earlier if earlier.pop("machine", None) == machine else {}


def _measured(topic: str, name: str, part: Part, quick: bool) -> list[Row]:
    """Run one part; where it cannot run, the reason takes the place of its rows."""
    try:
        return part(quick)
    except subprocess.CalledProcessError as error:
        lines = str(error.stderr or error).strip().splitlines()
        reason = lines[-1]
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
    return [Row(topic, "not measured", name, None, "", note=reason)]


def _topic(topic: str, quick: bool) -> tuple[str, list[Row]]:
    try:
        module = import_module(f"benchmarks.{topic}")
    except ImportError as error:
        return "", [Row(topic, "not measured", "all", None, "", note=str(error))]
    rows = [
        row for name, part in module.PARTS.items() for row in _measured(topic, name, part, quick)
    ]
    return (module.__doc__ or "").strip(), rows


def main() -> None:
    """Measure, print and write the chosen topics, one after the other."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", action="append", choices=TOPICS, help="one topic; repeatable")
    parser.add_argument("--quick", action="store_true", help="short and rough")
    parser.add_argument(
        "--out",
        type=Path,
        help=f"write JSON here; default {ALL.name}, or {SOME.name} for a selection",
    )
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    console = Console()
    if not console.is_terminal:
        console = Console(width=150)
    out = chosen.out or (SOME if chosen.only or chosen.quick else ALL)
    out.parent.mkdir(parents=True, exist_ok=True)
    machine = {**_machine(), "quick": chosen.quick}
    report = {"machine": machine, **_kept(out, machine)}
    missed: list[Row] = []
    for topic in chosen.only or TOPICS:
        doc, rows = _topic(topic, chosen.quick)
        _print(console, topic, doc, rows)
        report[topic] = [{**row._asdict(), "met": row.met} for row in rows]
        ordered = {name: report[name] for name in ("machine", *TOPICS) if name in report}
        out.write_text(json.dumps(ordered, indent=1, ensure_ascii=False) + "\n")
        missed += [row for row in rows if row.met is False]
    for row in missed:
        console.print(
            f"[red]missed[/red] {row.topic}: {row.what}, {row.who}: "
            f"{_number(row.value)} {row.unit}, target {_number(row.target)}"
        )
    console.print(f"written to {out}")


if __name__ == "__main__":
    main()
