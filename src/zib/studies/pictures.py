"""The figures of a study: regret curves, one panel per environment."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from zib.report import (
    legend_below,
    legend_height,
    paper_style,
    regret_panel,
    save_figure,
    styles_of,
)
from zib.studies.numbers import curve_frame, ranking

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from zib.studies.play import Outcome, Played

PANEL = (8.2, 3.9)  # width and height of the only panel, in inches; more than one are smaller
SMALL = (3.45, 2.7)
GAPS = (0.62, 1.0)  # room between panels, for labels and titles
MARGIN = {"left": 0.85, "right": 0.2, "top": 0.42, "under": 0.62, "small print": 0.245}
LOG_FROM = 100  # rounds; fewer show nothing on logarithmic axes


def draw_all(outcome: Outcome, folder: Path) -> list[str]:
    """Write the figures into `folder` and return the stems of their files."""
    stems = ["regret"]
    _draw(outcome, folder, "regret", log=False)
    if outcome.study.horizon >= LOG_FROM and all(_grows(each.result) for each in outcome.played):
        _draw(outcome, folder, "regret-log", log=True)
        stems.append("regret-log")
    return stems


def origin(outcome: Outcome) -> dict[str, Any]:
    """Return what the small print of a figure says; its plan is the study."""
    return {**outcome.played[0].result.provenance, "plan_hash": outcome.study.hash}


def _grows(result: Any) -> bool:
    return len(result.checkpoints) > 5 and bool(np.nanmax(result.mean()) > 0.0)


def _draw(outcome: Outcome, folder: Path, stem: str, *, log: bool) -> None:
    from matplotlib.figure import Figure

    played = outcome.played
    columns = _columns(len(played))
    with paper_style():
        fig = Figure()
        axes = fig.subplots(-(-len(played) // columns), columns, squeeze=False)
        for ax, (case, result) in zip(axes.flat, played):
            regret_panel(
                ax,
                result,
                log=log,
                title=_short(case.label, 38 if columns > 1 else 90),
                styles=styles_of(result.labels),
            )
        for ax in axes.flat[len(played) :]:
            ax.set_visible(False)
        for row in axes:
            row[0].set_ylabel("cumulative regret")
        _arrange(fig, axes.shape, played[0].result.labels)
        save_figure(fig, folder, stem, curve_frame(played), origin(outcome))


def _columns(n: int) -> int:
    return n if n < 3 else 2 if n == 4 else 3


def _short(label: str, most: int) -> str:
    return label if len(label) <= most else f"{label[: most - 1]}…"


def _arrange(fig: Figure, shape: tuple[int, int], labels: Sequence[str]) -> None:
    """Give panels of one size fixed places, with the legend under them."""
    rows, columns = shape
    size = PANEL if rows * columns == 1 else SMALL
    width = columns * size[0] + (columns - 1) * GAPS[0] + MARGIN["left"] + MARGIN["right"]
    longest = max(map(len, labels))
    per_row = max(1, min(4, len(labels), math.floor(width / (0.085 * longest + 0.85))))
    below = legend_height(-(-len(labels) // per_row)) + MARGIN["small print"] + MARGIN["under"]
    height = rows * size[1] + (rows - 1) * GAPS[1] + MARGIN["top"] + below
    fig.set_size_inches(width, height)
    fig.subplots_adjust(
        left=MARGIN["left"] / width,
        right=1 - MARGIN["right"] / width,
        top=1 - MARGIN["top"] / height,
        bottom=below / height,
        wspace=GAPS[0] / size[0],
        hspace=GAPS[1] / size[1],
    )
    legend_below(fig, fig.axes, columns=per_row)


def alternative(played: Sequence[Played]) -> str:
    """Return the figure in words, for those who cannot see it."""
    best = ", ".join(f"{case.label}: {ranking(result)[0]}" for case, result in played)
    return f"Curves of the mean cumulative regret. Lowest at the end: {best}."
