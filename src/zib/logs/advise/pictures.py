"""The figures of an advice: the arms, the non-zero rewards and their law, what policies earn."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from zib.logs.advise.forest import differences_picture
from zib.logs.advise.time_pictures import cycles_picture, times_picture
from zib.logs.advise.words import UNIFORM
from zib.report import leave_small_print, paper_style, save_figure, style_of
from zib.report.numbers import percent, shortened
from zib.report.page import Picture

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from zib.logs.advise.advice import Advice
    from zib.logs.advise.law import LawReport

Array = NDArray[np.float64]

MOST_DRAWN = 20  # arms
BAR, ATOMS, POINTS = "#9FB6C9", "#4A6B85", "#0072B2"
_CURVES = (("#D55E00", "-"), ("#009E73", (0, (5, 2))), ("#AA4499", (0, (6, 2, 1, 2))))
FAR = 40.0  # ratio of quantiles beyond which magnitudes are drawn on a logarithmic axis


def draw_all(advice: Advice, folder: Path) -> list[Picture]:
    """Draw what there is to draw; return what was drawn."""
    import pandas as pd

    pictures: list[Picture] = []

    def save(fig: Figure, numbers: pd.DataFrame, picture: Picture) -> None:
        import matplotlib.pyplot as plt

        save_figure(fig, folder, picture.stem, numbers, advice.provenance)
        plt.close(fig)
        pictures.append(picture)

    law = advice.law
    with paper_style():
        if advice.verdict.differences:
            save(*differences_picture(advice.verdict))
        save(*_arms_picture(advice))
        times = advice.times
        if times is not None and times.courses:
            save(*times_picture(times, advice.level))
            if times.hours is not None:
                save(*cycles_picture(times, advice.level))
        if law.sample.size:
            fitted = {
                fit.name: fit.distribution()
                for fit in law.fits[:3]
                if fit.close or fit.mean_distance <= 2.0 * law.fits[0].mean_distance
            }
            fig = magnitudes_figure(
                law.sample, zero_share=advice.overall.zero_share, laws=fitted,
                unit="reward" if law.sign > 0 else "loss",
                atoms=() if law.adjusted else [(law.sign * v, share) for v, share in law.atoms],
            )  # fmt: skip
            levels = np.linspace(0.0, 1.0, 201)
            numbers = pd.DataFrame({"level": levels, "quantile": np.quantile(law.sample, levels)})
            save(fig, numbers, Picture(
                "magnitudes",
                "Left: share of rewards that are zero. Right: the others, with the laws that fit "
                "best." + _atoms_caption(law),
                "Histogram of the non-zero rewards with fitted densities",
            ))  # fmt: skip
        if law.best is not None:
            fig = quantile_figure(
                law.sample, law=law.best.distribution(), name=law.best.name, level=advice.level
            )
            levels = (np.arange(1, 201) - 0.5) / 200
            numbers = pd.DataFrame(
                {
                    "level": levels,
                    "law": law.best.distribution().ppf(levels),
                    "observed": np.quantile(law.sample, levels),
                }
            )
            save(fig, numbers, Picture(
                "quantiles",
                f"Quantiles of the non-zero rewards against the {law.best.name} law. Points inside "
                "the band are what chance alone would do, one by one.",
                f"Quantile-quantile plot against the {law.best.name} law",
                half=True,
            ))  # fmt: skip
        if advice.simulation is not None:
            save(*_earnings_picture(advice))
    return pictures


def _atoms_caption(law: LawReport) -> str:
    if not law.atoms or law.constant is not None:
        return ""
    if law.adjusted:
        return " Arms are brought to one mean, so single values are not marked."
    return " Dark: values that many rewards have; the largest are named."


def _arms_picture(advice: Advice) -> tuple[Figure, Any, Picture]:
    import pandas as pd

    ranked = advice.ranking
    shown = ranked
    if len(ranked) > MOST_DRAWN:
        shown = (*ranked[: MOST_DRAWN - 5], *ranked[-5:])
    parts = np.array([[list(e) for e in arm.compared] for arm in shown], dtype=np.float64)
    labels = [str(arm.label) for arm in shown]
    fig = arms_figure(labels, p=parts[:, 0], mu=parts[:, 1], r=parts[:, 2], level=advice.level)
    numbers = pd.DataFrame({"arm": labels})
    for j, name in enumerate(("p", "mu", "r")):
        for i, end in enumerate(("", " low", " high")):
            numbers[name + end] = parts[:, j, i]
    more = "" if len(shown) == len(ranked) else (
        f" The best {MOST_DRAWN - 5} and the last 5 of {len(ranked)} arms."
    )  # fmt: skip
    weighted = any(arm.weighted is not None for arm in advice.arms)
    how = " Rows count 1/propensity." if weighted else ""
    if advice.balance is not None and advice.balance.arms:
        how = " Doubly robust values."
    caption = (
        f"How often and how much each arm pays, with {percent(advice.level)} intervals; "
        f"triangles mark intervals that go on.{how}{more}"
    )
    return fig, numbers, Picture("arms", caption, "Estimates of p, mu and r for each arm")


def _earnings_picture(advice: Advice) -> tuple[Figure, Any, Picture]:
    import pandas as pd

    ran = advice.simulation
    assert ran is not None
    gains = np.array([list(row.above_uniform) for row in ran.earned])
    shown = [i for i, label in enumerate(ran.labels) if label != UNIFORM]
    fig = earnings_figure(
        [ran.labels[i] for i in shown], gains=gains[shown], rounds=ran.rounds,
        recommended=ran.labels[0], level=advice.level,
    )  # fmt: skip
    totals = np.array([list(row.total) for row in ran.earned])
    numbers = pd.DataFrame(
        {
            "policy": ran.labels,
            "more than uniform": gains[:, 0],
            "low": gains[:, 1],
            "high": gains[:, 2],
            "earned": totals[:, 0],
            "earned low": totals[:, 1],
            "earned high": totals[:, 2],
            "paid": [row.paid for row in ran.earned],
            "best arm": [row.best_share for row in ran.earned],
        }
    )
    caption = (
        f"Earned more than by choosing at random, in {ran.rounds} rounds: the mean over worlds "
        f"that the log leaves open, and {percent(advice.level)} intervals over them."
    )
    return fig, numbers, Picture("earnings", caption, "What each policy would have earned")


# ----------------------------------------------------------------------------------------- drawing


def wants_log(values: Array) -> bool:
    """Return whether positive values spread so far that a logarithmic axis shows them better."""
    if values.size == 0 or values.min() <= 0.0:
        return False
    low, middle, high, top = np.quantile(values, [0.01, 0.5, 0.99, 0.9995])
    return bool(high > FAR * low or top > 0.5 * FAR * middle)


def magnitudes_figure(
    values: Array,
    *,
    zero_share: float,
    laws: Mapping[str, Any],
    unit: str = "reward",
    atoms: Sequence[tuple[float, float]] = (),
) -> Figure:
    """Draw the share of zeros and, apart from it, the non-zero rewards with fitted densities.

    Parameters
    ----------
    values
        Non-zero rewards, at least one.
    zero_share
        Share of zeros among all rewards.
    laws
        Labels and fitted laws (with ``pdf``), the best first; at most three are drawn.
    atoms
        Values that many rewards have and their shares, the largest share first.
    """
    import matplotlib.pyplot as plt

    fig, (left, right) = plt.subplots(
        1, 2, figsize=(9.0, 3.9), width_ratios=(1, 5.2), layout="constrained"
    )
    leave_small_print(fig)
    left.bar([0, 1], [100 * zero_share, 100 * (1 - zero_share)], 0.62, color=["#C9CED3", BAR])
    for at, share in ((0, zero_share), (1, 1 - zero_share)):
        left.annotate(
            percent(share), (at, 100 * share), xytext=(0, 2), textcoords="offset points",
            ha="center", va="bottom", fontsize=9,
        )  # fmt: skip
    left.set_xticks([0, 1], ["zero", "not"])
    left.set_ylim(0, 112)
    left.set_yticks([0, 25, 50, 75, 100])
    left.grid(axis="x", visible=False)
    left.set_ylabel("share of rewards (%)")
    log = wants_log(values)
    edges, x = _edges(values, log)
    counts, _ = np.histogram(values, edges)
    width = np.diff(np.log10(edges)) if log else np.diff(edges)
    height = counts / (values.size * width)
    right.stairs(height, edges, fill=True, color=BAR, alpha=0.8, label="non-zero rewards")
    tallest = float(height.max())
    _mark_atoms(right, atoms, edges, width, height)
    for (label, law), (color, line) in zip(laws.items(), _CURVES):
        with np.errstate(all="ignore"):
            density = np.asarray(law.pdf(x), dtype=np.float64)
        if log:
            density = density * x * math.log(10.0)
        density[~np.isfinite(density)] = np.nan
        right.plot(x, density, color=color, linestyle=line, linewidth=2.0, label=label)
    if log:
        right.set_xscale("log")
    right.set_xlim(edges[0], edges[-1])
    right.set_ylim(0, (1.4 if atoms else 1.25) * tallest)
    right.set_xlabel(f"non-zero {unit}" + (" (logarithmic)" if log else ""))
    right.set_ylabel("density per factor of ten" if log else "density")
    right.legend(frameon=False, loc="upper right")
    return fig


def _mark_atoms(
    ax: Axes, atoms: Sequence[tuple[float, float]], edges: Array, width: Array, height: Array
) -> None:
    """Darken the part of the histogram that single values make up, and name the largest."""
    inside = [(v, share) for v, share in atoms if edges[0] <= v <= edges[-1]]
    if not inside:
        return
    dark = np.zeros(height.size)
    for value, share in inside:
        at = min(max(int(np.searchsorted(edges, value, side="right")) - 1, 0), height.size - 1)
        dark[at] += share / width[at]
    ax.stairs(np.minimum(dark, height), edges, fill=True, color=ATOMS, label="single values")
    named: list[int] = []
    for value, share in inside[:4]:
        at = min(max(int(np.searchsorted(edges, value, side="right")) - 1, 0), height.size - 1)
        if any(abs(at - other) < height.size / 12 for other in named):
            continue  # its name would cover another
        named.append(at)
        ax.annotate(
            f"{value:.6g}\n{percent(share)}", (value, height[at]), xytext=(0, 4),
            textcoords="offset points", ha="left" if at < height.size / 20 else "center",
            va="bottom", fontsize=8.5, color="#333333", zorder=5,
            bbox={"boxstyle": "round,pad=0.1", "facecolor": "white", "alpha": 0.8, "linewidth": 0},
        )  # fmt: skip


def _edges(values: Array, log: bool) -> tuple[Array, Array]:
    low, inner, outer, high = np.quantile(values, [0.0005, 0.01, 0.99, 0.9995])
    if not log and high - low > 4.0 * (outer - inner) > 0.0:
        low, high = inner, outer  # a few extremes would squeeze all others into one bar
    if low == high:
        low, high = low - 0.5 * abs(low), high + 0.5 * abs(high)
    n = int(min(max(round(2.0 * values.size ** (1 / 3)), 12), 60))
    if log:
        edges = np.geomspace(low, high * (1 + 1e-9), n + 1)
        return edges, np.geomspace(low, high, 400)
    pad = 0.02 * (high - low)
    edges = np.linspace(low - pad, high + pad, n + 1)
    return edges, np.linspace(edges[0], edges[-1], 400)


def quantile_figure(sample: Array, *, law: Any, name: str, level: float = 0.95) -> Figure:
    """Draw the quantiles of a sorted sample against those of a law, with a pointwise band."""
    import matplotlib.pyplot as plt
    from scipy.special import betaincinv

    n = sample.size
    # evenly in the middle, and every single one far out
    ranks = np.unique(
        np.concatenate(
            [np.linspace(1, n, min(n, 300)), np.arange(1, min(n, 30) + 1),
             np.arange(max(n - 30, 1), n + 1)]
        ).astype(np.int64)
    )  # fmt: skip
    tail = (1.0 - level) / 2.0
    with np.errstate(all="ignore"):
        expected = np.asarray(law.ppf((ranks - 0.5) / n))
        low = np.asarray(law.ppf(betaincinv(ranks, n + 1.0 - ranks, tail)))
        high = np.asarray(law.ppf(betaincinv(ranks, n + 1.0 - ranks, 1.0 - tail)))
    observed = sample[ranks - 1]
    fig, ax = plt.subplots(figsize=(5.4, 4.6), layout="constrained")
    leave_small_print(fig)
    log = wants_log(sample) and bool((expected > 0).all() and (low > 0).all())
    ax.fill_between(
        expected, low, high, color="#D55E00", alpha=0.15, linewidth=0,
        label=f"{percent(level)} of samples",
    )  # fmt: skip
    ends = [float(min(expected[0], observed[0])), float(max(expected[-1], observed[-1]))]
    ax.plot(ends, ends, color="#D55E00", linewidth=1.4, label="perfect fit")
    ax.plot(expected, observed, ".", color=POINTS, markersize=4.5, label="rewards")
    if log:
        ax.set_xscale("log")
        ax.set_yscale("log")
    ax.set_xlim(*_limits(expected[0], expected[-1], log))
    ax.set_ylim(*_limits(min(observed[0], expected[0]), max(observed[-1], expected[-1]), log))
    ax.set_xlabel(f"quantile of the {name} law")
    ax.set_ylabel("observed quantile")
    ax.legend(frameon=False, loc="upper left")
    return fig


def _limits(low: float, high: float, log: bool) -> tuple[float, float]:
    if log:
        pad = (high / low) ** 0.04
        return float(low / pad), float(high * pad)
    pad = 0.04 * (high - low)
    return float(low - pad), float(high + pad)


def arms_figure(
    labels: Sequence[str], *, p: Array, mu: Array, r: Array, level: float = 0.95
) -> Figure:
    """Draw estimates with intervals of p, mu and r side by side, one line per arm, best first.

    Parameters
    ----------
    labels
        Names of the arms, from top to bottom.
    p, mu, r
        (n, 3): estimate, lower and upper end; ends may be infinite, estimates NaN.
    """
    import matplotlib.pyplot as plt

    n = len(labels)
    fig, axes = plt.subplots(
        1, 3, figsize=(10.0, max(0.36 * n, 1.0) + 1.25), sharey=True, layout="constrained"
    )
    leave_small_print(fig)
    titles = ("how often: p", "how much: mu", "on average: r = p·mu")
    for ax, rows, title in zip(axes, (p, mu, r), titles, strict=True):
        _forest(ax, rows)
        ax.set_title(title)
        ax.grid(axis="y", visible=False)
    axes[0].set_yticks(range(n), [shortened(label) for label in labels])
    axes[0].set_ylim(n - 0.4, -0.6)
    axes[2].set_xlabel(f"with {percent(level)} intervals")
    return fig


def _forest(ax: Axes, rows: Array) -> None:
    known = np.isfinite(rows[:, 0])
    ends = rows[known]
    finite = ends[np.isfinite(ends)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    # one arm about which little is known must not flatten the others
    if ends.shape[0] > 2:
        width = np.where(np.isfinite(ends[:, 2] - ends[:, 1]), ends[:, 2] - ends[:, 1], np.inf)
        usual = ends[width <= 8.0 * np.median(width)]
        inside = np.concatenate([usual[np.isfinite(usual)], ends[:, 0]])
        low, high = float(inside.min()), float(inside.max())
    pad = 0.06 * (high - low) or 0.1 * abs(high) or 1.0
    low, high = low - pad, high + pad
    for y in np.flatnonzero(known).tolist():
        value, left, right = rows[y]
        ax.plot([max(left, low), min(right, high)], [y, y], color=POINTS, linewidth=2.0, alpha=0.7)
        ax.plot([value], [y], "o", color=POINTS, markersize=5.5, markeredgecolor="white")
        if left < low:
            ax.plot([low], [y], marker=5, color=POINTS, markersize=6, clip_on=False)
        if right > high:
            ax.plot([high], [y], marker=4, color=POINTS, markersize=6, clip_on=False)
    for y in np.flatnonzero(~known).tolist():
        ax.text(0.5 * (low + high), y, "unknown", ha="center", va="center", color="#777777")
    ax.set_xlim(low, high)
    ax.locator_params(axis="x", nbins=5)


def earnings_figure(
    labels: Sequence[str],
    *,
    gains: Array,
    rounds: int,
    recommended: str,
    level: float = 0.95,
) -> Figure:
    """Draw what each policy earned more than chance, with intervals, the most first.

    Parameters
    ----------
    gains
        (n, 3): mean, lower and upper end, one row per label.
    """
    import matplotlib.pyplot as plt

    n = len(labels)
    order = np.argsort(-gains[:, 0], kind="stable")
    fig, ax = plt.subplots(figsize=(8.4, 0.42 * n + 1.45), layout="constrained")
    leave_small_print(fig)
    for y, i in enumerate(order):
        style = style_of(labels[i])
        ax.plot(gains[i, 1:], [y, y], color=style.color, linewidth=3.0, solid_capstyle="round")
        ax.plot(
            [gains[i, 0]], [y], marker=style.marker or "o", color=style.color,
            markersize=12 if style.marker == "*" else 8,
            markeredgecolor="white", linestyle="none",
        )  # fmt: skip
    ax.axvline(0.0, color="#333333", linewidth=1.2, linestyle=(0, (4, 3)))
    names = [labels[i] + (" (recommended)" if labels[i] == recommended else "") for i in order]
    ax.set_yticks(range(n), names)
    for tick, i in zip(ax.get_yticklabels(), order):
        tick.set_fontweight("bold" if labels[i] == recommended else "normal")
    ax.set_ylim(n - 0.4, -0.6)
    finite = gains[np.isfinite(gains)]
    low, high = min(float(finite.min()), 0.0), max(float(finite.max()), 0.0)
    pad = 0.05 * (high - low) or 1.0
    ax.set_xlim(low - pad, high + pad)
    ax.grid(axis="y", visible=False)
    ax.set_xlabel(
        f"earned in {rounds} rounds more than by chance alone, with {percent(level)} intervals"
    )
    return fig
