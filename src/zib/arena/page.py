"""The page of a competition: who is best, in how many worlds, and by how much."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from zib.arena.outcome import RARE, Outcome
from zib.arena.world import KINDS
from zib.report import leave_small_print, paper_style, save_figure, style_of
from zib.report.numbers import MISSING, count, duration, interval, number, percent, times
from zib.report.page import Picture, render, write_together

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

PAGE = "arena.html"
STEM = "ratios"
LEAST, SHOWN = 0.8, 10.0  # ratios beyond these stand at the edges of the figure
COLOURS = ("#D55E00", "#0072B2", "#009E73", "#AA4499", "#882255", "#117733")
HEADING = (
    "policy", "told", "worlds", "to the best: median", "worst", "within target", "clearly beyond",
    "99 %: median", "worst", "within target", "to the best told nothing: median", "worst",
    "to Normal TS: median", "worst",
)  # fmt: skip
COLUMNS = (
    "mean: median", "mean: worst", "mean: within", "clearly beyond", "q99: median", "q99: worst",
    "q99: within", "told nothing: median", "told nothing: worst", "Normal TS: median",
    "Normal TS: worst",
)  # fmt: skip


def write(outcome: Outcome, folder: Path) -> Path:
    """Write page, figure and tables into a folder, all of them or none; return the page."""

    def make(draft: Path) -> None:
        table, ranking = outcome.table(), outcome.ranking()
        with paper_style():
            numbers = table[["world", "kind", "policy", "told", "to the best", "q99 to the best"]]
            save_figure(figure(outcome, table), draft, STEM, numbers, _origin(outcome))
        for name, frame in (
            ("table", table),
            ("ranking", ranking),
            ("worlds", worlds_frame(outcome)),
        ):
            frame.to_csv(draft / f"{name}.csv", index=False, float_format="%.10g")
        regrets: dict[str, Any] = {
            f"{i:03d}": match.regret for i, match in enumerate(outcome.matches)
        }
        np.savez_compressed(draft / "regrets.npz", **regrets)
        (draft / PAGE).write_text(text(outcome, draft, table), encoding="utf-8")

    return write_together(folder, PAGE, make)


def _origin(outcome: Outcome) -> dict[str, Any]:
    return {**outcome.provenance, "plan_hash": outcome.hash}


def worlds_frame(outcome: Outcome) -> pd.DataFrame:
    """Return the worlds as a table."""
    import pandas as pd

    return pd.DataFrame(
        {
            "world": world.name,
            "kind": world.kind,
            "about": world.about,
            "arms": world.n_arms,
            "horizon": world.horizon,
        }
        for world in outcome.worlds
    )


# ---------------------------------------------------------------------------------------- the page


class Section(NamedTuple):
    """A table of ranks: the worlds it is about, the table, and who stands out."""

    title: str
    table: tuple[tuple[str, ...], list[tuple[str, ...]]]


def text(outcome: Outcome, folder: Path, table: pd.DataFrame) -> str:
    """Return the page as text."""
    featureless = [kind for kind in KINDS if kind != "contextual"]
    present = {world.kind for world in outcome.worlds}
    sections = []
    if present & set(featureless):
        title = "Worlds without features" if "contextual" in present else "All worlds"
        sections.append(Section(title, ranking_rows(outcome.ranking(featureless))))
    if "contextual" in present:
        sections.append(
            Section("Worlds with features", ranking_rows(outcome.ranking("contextual")))
        )
    caption = (
        "Mean regret over that of the best of all policies, a line per world and a dot per policy; "
        "hollow dots were told something. Coloured: what was entered. Shaded: within "
        f"{outcome.target:g} times the best. Ratios below {LEAST:g} and above {SHOWN:g} stand at "
        "the edges."
    )
    words = "; ".join(sentence(outcome, label) for label in outcome.entered)
    return render(
        "arena",
        folder,
        outcome=outcome,
        n_worlds=count(len(outcome.matches), "world"),
        sentences=[f"{sentence(outcome, label)}." for label in outcome.entered],
        sections=sections,
        marked=outcome.entered[0],
        by_kind=kind_rows(outcome),
        picture=Picture(STEM, caption, f"Ratios of mean regrets. {words}."),
        worlds=world_rows(outcome, table),
        kinds=[(kind, KINDS[kind]) for kind in KINDS if kind in present],
        origin=_described(outcome),
        percentile=f"{100 * RARE:.0f}",
    )


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(key): value for key, value in row.items()} for row in frame.to_dict("records")]


def sentence(outcome: Outcome, label: str) -> str:
    """Return how a policy did, in words."""
    ranking: dict[str, Any] = {row["policy"]: row for row in _records(outcome.ranking())}
    if label not in ranking:
        return f"{label} plays in none of these worlds"
    row = ranking[label]
    return (
        f"{label}: {times(row['mean: median'])} times the best of all in the median of "
        f"{count(int(row['worlds']), 'world')}, at worst {times(row['mean: worst'])} times; within "
        f"{outcome.target:g} times in {percent(row['mean: within'])} of them. 99th percentile "
        f"(N = {outcome.replications}): {times(row['q99: median'])} times the smallest in the "
        f"median, at worst {times(row['q99: worst'])} times"
    )


def ranking_rows(ranking: pd.DataFrame) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return heading and rows of a ranking, as text."""
    rows: list[tuple[str, ...]] = []
    for row in _records(ranking):
        cells = [
            percent(row[column]) if column.endswith(("within", "beyond")) else times(row[column])
            for column in COLUMNS
        ]
        rows.append((str(row["policy"]), str(row["told"]) or "nothing", str(row["worlds"]), *cells))
    return HEADING, rows


def kind_rows(outcome: Outcome) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return heading and rows of the medians by kind of world."""
    wide = outcome.by_kind()
    rows: list[tuple[str, ...]] = [
        (str(label), *(times(value) if math.isfinite(value) else MISSING for value in row))
        for label, row in zip(wide.index, wide.to_numpy())
    ]
    return ("policy", *map(str, wide.columns)), rows


def world_rows(
    outcome: Outcome, table: pd.DataFrame
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return heading and rows of the worlds, with what was entered first and the best of all."""
    first = outcome.entered[0]
    by_world: dict[str, dict[str, Any]] = {}
    for row in _records(table):
        by_world.setdefault(row["world"], {})[row["policy"]] = row
    rows: list[tuple[str, ...]] = []
    for world in outcome.worlds:
        there = by_world[world.name]
        best = min(there.values(), key=lambda row: float(row["regret"]))
        regret, ratio, rare = MISSING, MISSING, MISSING
        if first in there:
            row = there[first]
            regret = interval(row["regret"], row["low"], row["high"])
            ratio, rare = times(row["to the best"]), times(row["q99 to the best"])
        rows.append(
            (
                world.name,
                f"{world.kind}: {world.about}",
                str(world.n_arms),
                str(world.horizon),
                f"{best['policy']}, {number(best['regret'])}",
                regret,
                ratio,
                rare,
            )
        )
    heading = (
        "world", "what it is", "arms", "rounds", "lowest mean regret", f"regret of {first}",
        "to the best", "99 % to the best",
    )  # fmt: skip
    return heading, rows


def _described(outcome: Outcome) -> list[tuple[str, str]]:
    """Return what made the numbers."""
    origin = outcome.provenance
    versions = " · ".join(
        f"{name} {origin[name]}" for name in ("zib", "numpy", "numba", "python") if name in origin
    )
    found = [
        ("command", str(origin.get("command", ""))),
        ("seed", str(outcome.seed)),
        ("replications", str(outcome.replications)),
        ("versions", versions),
        ("platform", str(origin.get("platform", ""))),
        ("backend", str(origin.get("backend", ""))),
        ("started", str(origin.get("started", ""))),
        ("took", duration(float(origin.get("seconds", 0.0)))),
        ("fingerprint of all that was played", outcome.hash),
    ]
    return [(name, value) for name, value in found if value]


# -------------------------------------------------------------------------------------- the figure


def figure(outcome: Outcome, table: pd.DataFrame) -> Figure:
    """Draw the ratio of every policy to the best, a line per world."""
    from matplotlib.figure import Figure

    order = list(KINDS)
    worlds = sorted(outcome.worlds, key=lambda world: order.index(world.kind))
    names = [world.name for world in worlds]
    drawn = Figure(figsize=(10.4, 1.6 + 0.21 * len(names)), layout="constrained")
    leave_small_print(drawn)
    ax = drawn.subplots()
    ax.axvspan(1.0, outcome.target, color="#DDEEDD", zorder=0)
    place = {name: i for i, name in enumerate(names)}
    colours = dict(zip(outcome.entered, itertools.cycle(COLOURS)))
    shown: set[str] = set()
    for row in _records(table):
        label, told = str(row["policy"]), bool(row["told"])
        mine = label in outcome.entered
        look = style_of(label)
        group = label if mine else "told something" if told else "told nothing"
        ax.plot(
            min(max(float(row["to the best"]), LEAST), SHOWN),
            place[row["world"]],
            linestyle="",
            marker=look.marker or "o" if mine else "o",
            markersize=(9.0 if look.marker == "*" else 6.0) if mine else 4.0,
            color=colours.get(label, "#8A8A8A"),
            markerfacecolor="none" if told and not mine else None,
            markeredgewidth=0.8,
            alpha=1.0 if mine else 0.75,
            zorder=3 if mine else 2,
            label=group if group not in shown else None,
        )
        shown.add(group)
    short = [f"{w.kind}: {w.name.removeprefix(f'{outcome.seed}-')}" for w in worlds]
    ax.set_yticks(range(len(names)), short, fontsize=7.5)
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.set_xscale("log")
    ax.set_xlim(LEAST / 1.02, SHOWN * 1.06)
    ticks = (LEAST, 1.0, 1.15, 1.5, 2.0, 3.0, 5.0, SHOWN)
    ax.set_xticks(ticks, [f"≤ {LEAST:g}", *(f"{t:g}" for t in ticks[1:-1]), f"≥ {SHOWN:g}"])
    ax.set_xticks([], minor=True)
    ax.set_xlabel("mean regret / best of all")
    drawn.legend(loc="outside upper center", ncols=5, frameon=False)
    return drawn
