"""Figures and tables of the studies: regret curves in rows of panels, final regrets in tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from zib.env.generators import FAMILIES
from zib.experiments.judge import (
    growth,
    listing,
    number,
)
from zib.experiments.panels import GROUPS, STRONG, TITLES, Panel
from zib.experiments.record import (
    Picture,
    Table,
)
from zib.report import (
    FigureFiles,
    legend_below,
    legend_height,
    paper_style,
    regret_panel,
    save_figure,
)
from zib.sim import Results

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

Groups = Mapping[str, Sequence[str]]
COLUMNS = 3
CAPTION = (
    "Mean cumulative regret with 95 % bands, linear axes as in the paper. Thin grey and "
    "sand-coloured curves are policies a user might pick instead. Dotted black: the "
    "Lai–Robbins lower bound in a form that is sensible at finite t, "
    "Σ Δ·min(log(1 + t·d)/d, t/K); it binds in the limit only (no closed form for the "
    "mixture)."
)


class Look(NamedTuple):
    """What figures of one study share: groups of the legend, caption, margin in inches."""

    groups: Groups = GROUPS
    caption: str = CAPTION
    right: float = 0.12


MULTI_ARMED = Look()


class Shown(Protocol):
    """A panel that can be drawn and tabulated."""

    @property
    def result(self) -> Results:
        """What was measured."""

    @property
    def name(self) -> str:
        """The panel in words."""

    @property
    def title(self) -> str:
        """What stands over it."""

    @property
    def key(self) -> dict[str, object]:
        """What tells it from others, as columns of a table."""

    @property
    def references(self) -> dict[str, NDArray[np.float64]]:
        """Curves that are no policy."""


def draw(
    panels: Sequence[Shown],
    folder: Path,
    stem: str,
    origin: Mapping[str, Any],
    *,
    log: bool,
    look: Look = MULTI_ARMED,
) -> FigureFiles:
    """Draw panels three in a row and write figure and numbers."""
    from matplotlib.figure import Figure

    rows = -(-len(panels) // COLUMNS)
    with paper_style():
        fig = Figure()
        axes = fig.subplots(rows, COLUMNS, squeeze=False)
        flat = list(axes.flat)
        for ax, panel in zip(flat, panels):
            regret_panel(ax, panel.result, log=log, references=panel.references)
            ax.set_title(panel.title)
        for ax in flat[len(panels) :]:
            ax.set_visible(False)
        for row in axes:
            row[0].set_ylabel("cumulative regret")
        arrange(fig, rows, look)
        return save_figure(fig, folder, stem, numbers(panels), origin)


def arrange(fig: Figure, rows: int, look: Look = MULTI_ARMED) -> None:
    """Give panels of one size fixed places, with the grouped legend under them."""
    width, panel, gap, left, top, under = 11.6, 2.7, 0.95, 0.8, 0.35, 0.62
    legend = round(legend_height(max(map(len, look.groups.values()))) + 0.245, 3)  # and small print
    height = rows * panel + (rows - 1) * gap + top + under + legend
    fig.set_size_inches(width, height)
    fig.subplots_adjust(
        left=left / width,
        right=1 - look.right / width,
        top=1 - top / height,
        bottom=(under + legend) / height,
        hspace=gap / panel,
        wspace=0.2,
    )
    legend_below(fig, fig.axes, look.groups)


def numbers(panels: Sequence[Shown]) -> pd.DataFrame:
    """Return mean regret and its interval for every panel, policy and checkpoint."""
    import pandas as pd

    parts = []
    for panel in panels:
        result = panel.result
        low, high = result.interval()
        mean = result.mean()
        for i, label in enumerate(result.labels):
            parts.append(
                pd.DataFrame(
                    {
                        **panel.key,
                        "policy": label,
                        "round": result.checkpoints,
                        "regret": mean[i],
                        "low": low[i],
                        "high": high[i],
                        "replications": int(result.finished[i].sum()),
                    }
                )
            )
        for label, curve in panel.references.items():
            parts.append(
                pd.DataFrame(
                    {
                        **panel.key,
                        "policy": label,
                        "round": result.checkpoints,
                        "regret": curve,
                    }
                )
            )
    return pd.concat(parts, ignore_index=True)


def pictures(
    panels: Sequence[Shown],
    folder: Path,
    stem: str,
    origin: Mapping[str, Any],
    *,
    log: bool,
    look: Look = MULTI_ARMED,
) -> tuple[Picture, ...]:
    """Draw the figure on linear axes, as the paper does, and perhaps on logarithmic ones."""
    draw(panels, folder, stem, origin, log=False, look=look)
    best = listing([_lowest(panel) for panel in panels])
    linear = Picture(
        stem, look.caption, f"Regret curves of all policies; lowest at the end: {best}."
    )
    if not log:
        return (linear,)
    draw(panels, folder, f"{stem}-log", origin, log=True, look=look)
    return (
        linear,
        Picture(
            f"{stem}-log",
            "The same on logarithmic axes: linear growth is a line of slope 1, logarithmic growth "
            "bends towards the horizontal.",
            "The same regret curves on logarithmic axes.",
        ),
    )


def _lowest(panel: Shown) -> str:
    finals = panel.result.mean()[:, -1]
    return panel.result.labels[int(np.argmin(finals))]


def tables(panels: Sequence[Panel]) -> tuple[Table, ...]:
    """Return final regrets: one detailed table per panel, or one per family over ranges of p."""
    if len({panel.probs for panel in panels}) > 1:
        return tuple(
            _family_table([p for p in panels if p.family == family])
            for family in FAMILIES
            if any(p.family == family for p in panels)
        )
    out = []
    for panel in panels:
        note = ""
        if panel.lower_bound is not None:
            note = f"Asymptotic bound at the horizon: {number(float(panel.lower_bound[-1]))}."
        out.append(detailed_table(panel, STRONG, "× strong baseline", note))
    return tuple(out)


def detailed_table(panel: Shown, against: str, heading: str, note: str = "") -> Table:
    """Return final regrets of one panel, as multiples of the policy `against`, and their growth."""
    result = panel.result
    mean, (low, high) = result.mean()[:, -1], (x[:, -1] for x in result.interval())
    unit = float(mean[result.labels.index(against)])
    rows = []
    for i in np.argsort(mean):
        label = result.labels[int(i)]
        rows.append(
            (
                label,
                number(float(mean[i])),
                f"{number(float(low[i]))} to {number(float(high[i]))}",
                f"{mean[i] / unit:.2f}",
                str(growth(result, label)),
            )
        )
    return Table(
        f"{panel.name}: regret at round {int(result.checkpoints[-1])}",
        ("policy", "regret", "95 % interval", heading, "growth"),
        tuple(rows),
        note,
    )


def side_by_side(
    title: str, panels: Sequence[Shown], columns: Sequence[str], note: str = ""
) -> Table:
    """Return final regrets of panels with the same policies, a column per panel."""
    labels = panels[0].result.labels
    finals = np.stack([panel.result.mean()[:, -1] for panel in panels])
    intervals = [panel.result.interval() for panel in panels]
    rows = []
    for i in np.argsort(finals.mean(axis=0)):
        cells = (
            f"{number(float(final[i]))} [{number(float(low[i, -1]))}, {number(float(high[i, -1]))}]"
            for final, (low, high) in zip(finals, intervals)
        )
        rows.append((labels[int(i)], *cells))
    return Table(
        f"{title}: regret at round {int(panels[0].result.checkpoints[-1])} with 95 % intervals",
        ("policy", *columns),
        tuple(rows),
        note,
    )


def _family_table(panels: Sequence[Panel]) -> Table:
    """Return final regrets of one family, a column per range of p."""
    bounds = [
        number(float(p.lower_bound[-1])) if p.lower_bound is not None else "none known"
        for p in panels
    ]
    return side_by_side(
        TITLES[panels[0].family],
        panels,
        [f"p {p.probs[0]:g}–{p.probs[1]:g}" for p in panels],
        f"Asymptotic bound at the horizon: {', '.join(bounds)}.",
    )
