"""Regret curves on any axes, one legend for several panels, and saving with the numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from zib.core.validate import InvalidParameterError, real
from zib.report.numbers import shortened
from zib.report.style import Style, style_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = NDArray[np.float64]


class RegretResult(Protocol):
    """What a panel needs of a simulation's results, with every run or without."""

    labels: Any
    checkpoints: Any

    def mean(self) -> Array:
        """Return mean regret, one row per policy."""

    def interval(self, level: float) -> tuple[Array, Array]:
        """Return the ends of its intervals."""

    def summary(self) -> pd.DataFrame:
        """Return one row per policy, with the number of its ``replications``."""


def regret_panel(
    ax: Axes,
    result: RegretResult,
    *,
    labels: Sequence[str] | None = None,
    level: float = 0.95,
    band: bool = True,
    log: bool = False,
    references: Mapping[str, Array] | None = None,
    title: str = "",
    n_markers: int = 6,
    styles: Mapping[str, Style] | None = None,
) -> None:
    """Draw mean cumulative regret with a confidence band, one curve per policy.

    Parameters
    ----------
    ax
        Where to draw.
    result
        Results of `zib.simulate`.
    labels
        Which policies, in which order; all by default.
    level
        Confidence level of the bands (Student intervals over replications).
    band
        Whether to draw them.
    log
        Both axes logarithmic: linear growth is then a line of slope 1, whatever its size.
    references
        Further curves by label, one number per checkpoint (a lower bound, say).
    styles
        How to draw labels that should not look as they always do (`styles_of`).
    """
    level = real("level", level, 0.0, 1.0, closed="neither")
    known = list(result.labels)
    wanted = known if labels is None else list(labels)
    unknown = [label for label in wanted if label not in known]
    if unknown:
        raise InvalidParameterError(
            f"`labels` must be among {', '.join(map(repr, known))}; got {unknown[0]!r}"
        )
    rounds = np.asarray(result.checkpoints, dtype=np.float64)
    keep = rounds >= rounds[-1] / 300 if log else np.ones(rounds.size, dtype=bool)
    means, (_, highs) = result.mean(), result.interval(level)
    for order, label in enumerate(wanted):
        style = (styles or {}).get(label) or style_of(label)
        row = known.index(label)
        mean, half = means[row, keep], (highs - means)[row, keep]
        if np.isnan(mean).all():
            continue
        at = _marker_positions(rounds[keep], n_markers, log, order / max(len(wanted), 1))
        ax.plot(rounds[keep], mean, label=label, markevery=at, zorder=3, **style.arguments())
        if band and np.isfinite(half).all():
            low = np.maximum(mean - half, mean * 1e-3) if log else mean - half
            ax.fill_between(
                rounds[keep], low, mean + half, color=style.color, alpha=0.13, linewidth=0
            )
    for label, curve in (references or {}).items():
        style = style_of(label)
        ax.plot(rounds[keep], np.asarray(curve)[keep], label=label, zorder=2, **style.arguments())
    if log:
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.minorticks_off()
        ax.set_xlim(rounds[keep][0], rounds[-1])
        ax.set_ylim(bottom=_lowest(ax) / 1.5)
    else:
        ax.set_xlim(0, rounds[-1])
        ax.set_ylim(bottom=0)
        ax.locator_params(nbins=6, steps=[1, 2, 5, 10])  # few enough for a small panel
    ax.xaxis.set_major_formatter(_thousands)
    ax.yaxis.set_major_formatter(_thousands)
    ax.set_xlabel("round")
    if title:
        ax.set_title(title)


def _lowest(ax: Axes) -> float:
    lines = [np.asarray(line.get_ydata(), dtype=np.float64) for line in ax.get_lines()]
    positive = [float(y[y > 0].min()) for y in lines if (y > 0).any()]
    return min(positive, default=1.0)


def _thousands(x: float, _: object = None) -> str:
    if abs(x) >= 1e6:
        return f"{x / 1e6:g}M"
    return f"{x / 1000:g}k" if abs(x) >= 1000 else f"{x:g}"


def _marker_positions(rounds: Array, n: int, log: bool, phase: float) -> list[int]:
    # Markers of different curves sit at different rounds, so that they do not cover each other.
    scale = np.log(rounds) if log else rounds
    wanted = scale[0] + (np.arange(n) + 0.1 + 0.8 * phase) / n * (scale[-1] - scale[0])
    return sorted({int(i) for i in np.clip(np.searchsorted(scale, wanted), 0, rounds.size - 1)})


def legend_height(rows: int) -> float:
    """Return the height in inches of a legend with so many rows under its titles."""
    return 0.235 * rows + 0.3


def legend_below(
    fig: Figure,
    axes: Sequence[Axes],
    groups: Mapping[str, Sequence[str]] | None = None,
    *,
    bottom: float = 0.22,
    columns: int = 4,
) -> float:
    """Put one legend for all panels under them; return its height in inches.

    Parameters
    ----------
    fig, axes
        The figure, and the panels whose curves are named.
    groups
        Titles and the labels under them, each group in a column of its own; labels in no group
        come last. Without groups all labels share one block of `columns` columns.
    bottom
        Distance to the lower edge of the figure, in inches.
    """
    handles: dict[str, Any] = {}
    for ax in axes:
        for handle, label in zip(*ax.get_legend_handles_labels()):
            handles.setdefault(label, handle)
    blocks = {
        title: [label for label in labels if label in handles]
        for title, labels in (groups or {}).items()
    }
    named = {label for labels in blocks.values() for label in labels}
    rest = [label for label in handles if label not in named]
    if rest:
        blocks["" if not blocks else "others"] = rest
    blocks = {title: labels for title, labels in blocks.items() if labels}
    per_block = columns if len(blocks) == 1 else 1
    rows = max(-(-len(labels) // per_block) for labels in blocks.values())
    height = legend_height(rows)
    for i, (title, labels) in enumerate(blocks.items()):
        legend = fig.legend(
            [handles[label] for label in labels],
            labels,
            title=title or None,
            loc="upper center",
            ncols=per_block,
            frameon=False,
            bbox_to_anchor=((i + 0.5) / len(blocks), (bottom + height) / fig.get_figheight()),
            handlelength=3.2,
            borderaxespad=0.0,
            alignment="left",
        )
        legend.get_title().set_fontweight("bold")
    return height


# ---------------------------------------------------------------------------------- whole figures

ALONE, SMALL = (8.2, 3.9), (3.45, 2.7)  # width and height of the only panel, and of one of several
GAPS = (0.62, 1.0)  # room between panels, for labels and titles, in inches
MARGIN = {"left": 0.85, "right": 0.25, "top": 0.42, "under": 0.62, "small print": 0.245}


class Panel(NamedTuple):
    """One panel of a figure: its title, results, and curves that belong to no policy."""

    title: str
    result: RegretResult
    references: Mapping[str, Array] = {}


def regret_figure(
    panels: Sequence[Panel],
    *,
    log: bool = False,
    columns: int | None = None,
    groups: Mapping[str, Sequence[str]] | None = None,
    styles: Mapping[str, Style] | None = None,
) -> Figure:
    """Draw regret panels of one size in rows, with one legend under them.

    Parameters
    ----------
    panels
        At least one.
    log
        Both axes logarithmic.
    columns
        Panels in a row; what suits their number by default.
    groups
        Titles in the legend and the labels under them (`legend_below`).
    styles
        How to draw labels that should not look as they always do (`styles_of`).
    """
    from matplotlib.figure import Figure

    n = len(panels)
    columns = columns or (n if n < 3 else 2 if n == 4 else 3)
    rows = -(-n // columns)
    fig = Figure()
    axes = fig.subplots(rows, columns, squeeze=False)
    for ax, panel in zip(axes.flat, panels):
        title = shortened(panel.title, 38 if columns > 1 else 90)
        regret_panel(
            ax, panel.result, log=log, references=panel.references, title=title, styles=styles
        )
    for ax in axes.flat[n:]:
        ax.set_visible(False)
    for row in axes:
        row[0].set_ylabel("cumulative regret")
    _arrange(fig, rows, columns, groups)
    return fig


def _arrange(
    fig: Figure, rows: int, columns: int, groups: Mapping[str, Sequence[str]] | None
) -> None:
    size = ALONE if rows * columns == 1 else SMALL
    width = columns * size[0] + (columns - 1) * GAPS[0] + MARGIN["left"] + MARGIN["right"]
    labels = {label for ax in fig.axes for label in ax.get_legend_handles_labels()[1]}
    per_row = 1
    if groups:
        legend_rows = max(len(labels & set(names)) for names in groups.values())
    else:
        longest = max(map(len, labels))
        per_row = max(1, min(4, len(labels), math.floor(width / (0.085 * longest + 0.85))))
        legend_rows = -(-len(labels) // per_row)
    below = legend_height(legend_rows) + MARGIN["small print"] + MARGIN["under"]
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
    legend_below(fig, fig.axes, groups, columns=per_row)


def regret_frame(
    result: RegretResult, *, references: Mapping[str, Array] | None = None, **key: object
) -> pd.DataFrame:
    """Return mean regret with its interval at every checkpoint; `key` are columns in front."""
    import pandas as pd

    mean, (low, high) = result.mean(), result.interval(0.95)
    runs = result.summary()["replications"]
    curves: list[dict[str, Any]] = [
        {
            "policy": label,
            "round": result.checkpoints,
            "regret": mean[i],
            "low": low[i],
            "high": high[i],
            "replications": int(runs[i]),
        }
        for i, label in enumerate(result.labels)
    ]
    curves += [
        {"policy": label, "round": result.checkpoints, "regret": curve}
        for label, curve in (references or {}).items()
    ]
    return pd.concat([pd.DataFrame({**key, **curve}) for curve in curves], ignore_index=True)


# ------------------------------------------------------------------------------------------ saving


class FigureFiles(NamedTuple):
    """Where one figure was written."""

    png: Path
    svg: Path
    csv: Path


def small_print(provenance: Mapping[str, Any]) -> str:
    """Return one line that says what made a figure.

    Examples
    --------
    >>> small_print({"zib": "0.1.0", "seed": 3, "plan_hash": "0123456789abcdef", "numpy": "2.4"})
    'zib 0.1.0 · plan 0123456789ab · seed 3 · numpy 2.4'
    """
    parts = []
    if "zib" in provenance:
        parts.append(f"zib {provenance['zib']}")
    if "plan_hash" in provenance:
        parts.append(f"plan {str(provenance['plan_hash'])[:12]}")
    if "seed" in provenance:
        parts.append(f"seed {provenance['seed']}")
    parts.extend(
        f"{name} {provenance[name]}"
        for name in ("numpy", "numba", "scipy", "python")
        if name in provenance
    )
    return " · ".join(parts)


def leave_small_print(fig: Figure) -> None:
    """Keep the lower edge free for the line that `save_figure` writes."""
    engine = fig.get_layout_engine()
    assert engine is not None
    low = 0.17 / fig.get_figheight()
    engine.set(rect=(0.0, low, 1.0, 1.0 - low))  # type: ignore[call-arg]


def save_figure(
    fig: Figure,
    folder: Path,
    stem: str,
    numbers: pd.DataFrame,
    provenance: Mapping[str, Any],
) -> FigureFiles:
    """Write `stem`.png, `stem`.svg and `stem`.csv into `folder`.

    The files hold no time stamp: the same numbers give the same bytes.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    files = FigureFiles(*(folder / f"{stem}.{end}" for end in ("png", "svg", "csv")))
    fig.text(
        0.995,
        0.05 / fig.get_figheight(),
        small_print(provenance),
        ha="right",
        va="bottom",
        fontsize=6.5,
        color="#777777",
    )
    fig.savefig(files.png, metadata={"Software": small_print(provenance)})
    fig.savefig(files.svg, metadata={"Date": None, "Creator": small_print(provenance)})
    numbers.to_csv(files.csv, index=False, float_format="%.10g", lineterminator="\n")
    return files
