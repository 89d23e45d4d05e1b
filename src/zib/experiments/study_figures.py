"""Figures and tables of the multi-armed study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from zib.env.generators import FAMILIES
from zib.experiments.judge import (
    growth,
    listing,
    number,
)
from zib.experiments.panels import GROUPS, LEGEND_HEIGHT, STRONG, TITLES, Panel
from zib.experiments.record import (
    Picture,
    Table,
)
from zib.plot import FigureFiles, legend_below, paper_style, regret_panel, save_figure

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


def draw(
    panels: Sequence[Panel], folder: Path, stem: str, origin: Mapping[str, Any], *, log: bool
) -> FigureFiles:
    """Draw panels three in a row and write figure and numbers."""
    from matplotlib.figure import Figure

    rows = -(-len(panels) // 3)
    with paper_style():
        fig = Figure()
        axes = fig.subplots(rows, 3, squeeze=False)
        flat = list(axes.flat)
        for ax, panel in zip(flat, panels):
            references = (
                {} if panel.lower_bound is None else {"asymptotic bound": panel.lower_bound}
            )
            regret_panel(ax, panel.result, log=log, references=references)
            low, high = panel.probs
            ax.set_title(f"{TITLES[panel.family]}, p ∈ [{low:g}, {high:g}]")
        for ax in flat[len(panels) :]:
            ax.set_visible(False)
        for row in axes:
            row[0].set_ylabel("cumulative regret")
        arrange(fig, rows, 3)
        return save_figure(fig, folder, stem, numbers(panels), origin)


def arrange(fig: Figure, rows: int, columns: int) -> None:
    """Give panels of one size fixed places, with the grouped legend under them."""
    width, panel, gap, left, top, under = 11.6, 2.7, 0.95, 0.8, 0.35, 0.62
    height = rows * panel + (rows - 1) * gap + top + under + LEGEND_HEIGHT
    fig.set_size_inches(width, height)
    fig.subplots_adjust(
        left=left / width,
        right=1 - 0.12 / width,
        top=1 - top / height,
        bottom=(under + LEGEND_HEIGHT) / height,
        hspace=gap / panel,
        wspace=0.2,
    )
    legend_below(fig, fig.axes, GROUPS)


def numbers(panels: Sequence[Panel]) -> pd.DataFrame:
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
                        "family": panel.family,
                        "p_low": panel.probs[0],
                        "p_high": panel.probs[1],
                        "policy": label,
                        "round": result.checkpoints,
                        "regret": mean[i],
                        "low": low[i],
                        "high": high[i],
                        "replications": int(result.finished[i].sum()),
                    }
                )
            )
        if panel.lower_bound is not None:
            parts.append(
                pd.DataFrame(
                    {
                        "family": panel.family,
                        "p_low": panel.probs[0],
                        "p_high": panel.probs[1],
                        "policy": "asymptotic bound",
                        "round": result.checkpoints,
                        "regret": panel.lower_bound,
                    }
                )
            )
    return pd.concat(parts, ignore_index=True)


def pictures(
    panels: Sequence[Panel], folder: Path, stem: str, origin: Mapping[str, Any], *, log: bool
) -> tuple[Picture, ...]:
    """Draw the figure on linear axes, as the paper does, and perhaps on logarithmic ones."""
    draw(panels, folder, stem, origin, log=False)
    best = listing([_lowest(panel) for panel in panels])
    linear = Picture(
        stem,
        "Mean cumulative regret with 95 % bands, linear axes as in the paper. Thin grey and "
        "sand-coloured curves are policies a user might pick instead. Dotted black: the "
        "Lai–Robbins lower bound in a form that is sensible at finite t, "
        "Σ Δ·min(log(1 + t·d)/d, t/K); it binds in the limit only (no closed form for the "
        "mixture).",
        f"Regret curves of all policies; lowest at the end: {best}.",
    )
    if not log:
        return (linear,)
    draw(panels, folder, f"{stem}-log", origin, log=True)
    return (
        linear,
        Picture(
            f"{stem}-log",
            "The same on logarithmic axes: linear growth is a line of slope 1, logarithmic growth "
            "bends towards the horizontal.",
            "The same regret curves on logarithmic axes.",
        ),
    )


def _lowest(panel: Panel) -> str:
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
        result = panel.result
        mean, (low, high) = result.mean()[:, -1], (x[:, -1] for x in result.interval())
        strong = float(mean[result.labels.index(STRONG)])
        rows = []
        for i in np.argsort(mean):
            label = result.labels[int(i)]
            rows.append(
                (
                    label,
                    number(float(mean[i])),
                    f"{number(float(low[i]))} to {number(float(high[i]))}",
                    f"{mean[i] / strong:.2f}",
                    str(growth(result, label)),
                )
            )
        note = ""
        if panel.lower_bound is not None:
            note = f"Asymptotic bound at the horizon: {number(float(panel.lower_bound[-1]))}."
        out.append(
            Table(
                f"{panel.name}: regret at round {int(result.checkpoints[-1])}",
                ("policy", "regret", "95 % interval", "× strong baseline", "growth"),
                tuple(rows),
                note,
            )
        )
    return tuple(out)


def _family_table(panels: Sequence[Panel]) -> Table:
    """Return final regrets of one family, a column per range of p."""
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
    bounds = [
        number(float(p.lower_bound[-1])) if p.lower_bound is not None else "none known"
        for p in panels
    ]
    return Table(
        f"{TITLES[panels[0].family]}: regret at round {int(panels[0].result.checkpoints[-1])} "
        "with 95 % intervals",
        ("policy", *(f"p {p.probs[0]:g}–{p.probs[1]:g}" for p in panels)),
        tuple(rows),
        f"Asymptotic bound at the horizon: {', '.join(bounds)}.",
    )
