"""Figures and tables of regret: curves in rows of panels, final regrets in tables."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from zib.env.mab import TITLES as TITLES
from zib.experiments.judge import growth
from zib.experiments.record import Table
from zib.report import Panel, regret_figure, regret_frame
from zib.report.numbers import listing, number

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from zib.experiments.harness import Played

COLUMNS = 3


class Drawn(NamedTuple):
    """A figure and the numbers in it, ready to be saved."""

    figure: Figure
    numbers: pd.DataFrame
    caption: str
    alternative: str
    suffix: str = ""


class Look(NamedTuple):
    """What regret figures of one study share: groups of the legend, and the caption."""

    groups: Mapping[str, Sequence[str]]
    caption: str


def rounds_to_record(horizon: int) -> list[int]:
    """Return checkpoints that serve linear and logarithmic axes, half the horizon among them."""
    even = np.linspace(horizon / 100, horizon, 100)
    early = np.geomspace(max(horizon / 1000, 1), horizon / 100, 20)
    return sorted({*(math.ceil(t) for t in (*early, *even)), horizon // 2, horizon})


# ---------------------------------------------------------------------------------------- figures


def regret_figures(panels: Sequence[Played], look: Look, *, logarithmic: bool) -> Iterator[Drawn]:
    """Draw the curves on linear axes, as the paper does, and perhaps on logarithmic ones."""
    rows = numbers(panels)
    best = listing([_lowest(panel) for panel in panels])
    yield Drawn(
        _regret_figure(panels, look, log=False),
        rows,
        look.caption,
        f"Regret curves of all policies; lowest at the end: {best}.",
    )
    if logarithmic:
        yield Drawn(
            _regret_figure(panels, look, log=True),
            rows,
            "The same on logarithmic axes: linear growth is a line of slope 1, logarithmic growth "
            "bends towards the horizontal.",
            "The same regret curves on logarithmic axes.",
            "-log",
        )


def _regret_figure(panels: Sequence[Played], look: Look, *, log: bool) -> Figure:
    drawn = [Panel(panel.title, panel.result, panel.references) for panel in panels]
    return regret_figure(drawn, log=log, columns=COLUMNS, groups=look.groups)


def numbers(panels: Sequence[Played]) -> pd.DataFrame:
    """Return mean regret and its interval for every panel, policy and checkpoint."""
    import pandas as pd

    frames = [
        regret_frame(panel.result, references=panel.references, **panel.key) for panel in panels
    ]
    return pd.concat(frames, ignore_index=True)


def _lowest(panel: Played) -> str:
    finals = panel.result.mean()[:, -1]
    return panel.result.labels[int(np.argmin(finals))]


# ----------------------------------------------------------------------------------------- tables


def detailed_table(panel: Played, against: str, heading: str = "", note: str = "") -> Table:
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
        ("policy", "regret", "95 % interval", f"× {heading or against}", "growth"),
        tuple(rows),
        note,
    )


def side_by_side(
    title: str, panels: Sequence[Played], columns: Sequence[str], note: str = ""
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
