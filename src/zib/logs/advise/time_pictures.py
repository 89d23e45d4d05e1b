"""The pictures of time: courses of p, mu and r, hours and weekdays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from zib.logs.advise.time_words import WEEKDAYS
from zib.report import leave_small_print
from zib.report.numbers import percent, shortened
from zib.report.page import Picture

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from zib.logs.advise.times import Course, TimeReport

Array = NDArray[np.float64]

_POINTS = "#0072B2"
_ARMS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_TITLES = {"p": "how often: p", "mu": "how much: mu", "r": "on average: r = p·mu"}


def _course_frame(courses: Sequence[Course], at: str, points: Sequence[Any]) -> pd.DataFrame:
    import pandas as pd

    out = []
    for course in courses:
        one = pd.DataFrame({at: points, "arm": str(course.label), "rows": course.rows})
        for name in ("p", "mu", "r"):
            for end, values in zip(("", " low", " high"), getattr(course, name), strict=True):
                one[name + end] = values
        out.append(one)
    return pd.concat(out, ignore_index=True)


def times_picture(times: TimeReport, level: float) -> tuple[Figure, Any, Picture]:
    """Return the figure of the courses, its numbers and its caption."""
    fig = times_figure(times, level=level)
    frame = _course_frame(times.courses, "start", times.edges[:-1].tolist())
    several = len(times.courses) > 1
    caption = (
        f"How often, how much and how much on average over time, one point per period of "
        f"{times.unit}. Black: all arms in the mixture of the whole log, with {percent(level)} "
        "intervals." + (" Last panel: how rows were shared out." if several else "")
    )
    return fig, frame, Picture("times", caption, "p, mu and r over time")


def cycles_picture(times: TimeReport, level: float) -> tuple[Figure, Any, Picture]:
    """Return the figure of hours and weekdays, its numbers and its caption."""
    import pandas as pd

    assert times.hours is not None
    parts: list[tuple[str, Course, Sequence[Any]]] = [("hour", times.hours, list(range(24)))]
    if times.weekdays is not None:
        parts.append(("weekday", times.weekdays, [day[:2] for day in WEEKDAYS]))
    fig = cycles_figure(parts)
    frame = pd.concat(
        [_course_frame([c], "at", ticks).assign(cycle=title) for title, c, ticks in parts]
    )
    caption = (
        f"By hour of the day{' and day of the week' if len(parts) > 1 else ''} "
        f"(time zone {times.timezone}), with {percent(level)} intervals."
    )
    return fig, frame, Picture("cycles", caption, "p and mu by hour and weekday")


def times_figure(times: TimeReport, *, level: float = 0.95) -> Figure:
    """Draw p, mu and r over time, and in which shares the arms were played.

    Parameters
    ----------
    times
        Of an advice, with courses.
    level
        Of the intervals, for their name.
    """
    import matplotlib.pyplot as plt

    whole, *arms = times.courses
    columns = 2 if arms else 3
    fig, grid = plt.subplots(
        2 if arms else 1, columns, figsize=(10.0, 6.4 if arms else 3.2), layout="constrained"
    )
    leave_small_print(fig)
    axes = grid.ravel()
    edges = _moments(times, times.edges)
    middle = _moments(times, 0.5 * (times.edges[1:] + times.edges[:-1]))
    for ax, name in zip(axes, _TITLES):
        part = getattr(whole, name)
        for course, color in zip(arms, _ARMS):
            ax.plot(
                middle, getattr(course, name).value, color=color, linewidth=1.3, marker=".",
                markersize=4, alpha=0.85, label=shortened(str(course.label)),
            )  # fmt: skip
        ax.fill_between(middle, part.low, part.high, color="#222222", alpha=0.13, linewidth=0)
        ax.plot(middle, part.value, color="#222222", linewidth=2.2, marker="o", markersize=4,
                label=f"all, with {percent(level)} intervals")  # fmt: skip
        ax.set_title(_TITLES[name])
        shown = [part.low, part.high, *(getattr(course, name).value for course in arms)]
        _fit_height(ax, np.concatenate(shown), part)
    if arms:
        below = np.zeros(times.shares.shape[0])
        for j, color in enumerate(_ARMS[: len(arms)]):
            top = below + 100.0 * times.shares[:, j]
            axes[3].stairs(top, edges, baseline=below, fill=True, color=color, alpha=0.75)
            below = top
        axes[3].set_ylim(0, 100)
        axes[3].set_title("share of the rows (%)")
        handles, labels = axes[0].get_legend_handles_labels()
        fig.legend(handles, labels, loc="outside upper center", ncols=4, frameon=False)
    for ax in axes:
        ax.set_xlim(edges[0], edges[-1])
        _time_ticks(ax, times)
    return fig


def _fit_height(ax: Axes, values: Array, whole: Any) -> None:
    """Show all of the whole, and of the arms what is not far beyond it."""
    low, high = float(np.nanmin(whole.low)), float(np.nanmax(whole.high))
    usual = values[np.isfinite(values)]
    if usual.size:
        reach = 2.5 * (high - low)
        low = max(min(low, float(np.quantile(usual, 0.01))), low - reach)
        high = min(max(high, float(np.quantile(usual, 0.99))), high + reach)
    pad = 0.06 * (high - low) or 0.1 * abs(high) or 1.0
    ax.set_ylim(low - pad if low - pad > 0 or low < 0 else 0.0, high + pad)


def _moments(times: TimeReport, at: Array) -> Any:
    """Return times as what an axis takes: local dates, or the numbers themselves."""
    if not times.dated:
        return at
    import pandas as pd
    from matplotlib.dates import date2num

    stamps = pd.to_datetime(at, unit="s", utc=True).tz_convert(times.timezone).tz_localize(None)
    return np.asarray(date2num(stamps))  # type: ignore[no-untyped-call]


def _time_ticks(ax: Axes, times: TimeReport) -> None:
    if not times.dated:
        ax.locator_params(axis="x", nbins=5)
        return
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    locator = AutoDateLocator(minticks=3, maxticks=6)  # type: ignore[no-untyped-call]
    ax.xaxis.set_major_locator(locator)
    ax.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]


def cycles_figure(cycles: Sequence[tuple[str, Course, Sequence[Any]]]) -> Figure:
    """Draw p and mu by their place in a cycle, one row of panels per cycle.

    Parameters
    ----------
    cycles
        The name of each cycle, its course and the names of its places.
    """
    import matplotlib.pyplot as plt

    fig, grid = plt.subplots(
        len(cycles), 2, figsize=(10.0, 2.6 * len(cycles) + 0.4), layout="constrained",
        squeeze=False,
    )  # fmt: skip
    leave_small_print(fig)
    for row, (title, course, ticks) in zip(grid, cycles, strict=True):
        at = np.arange(len(ticks))
        for ax, name in zip(row, ("p", "mu")):
            part = getattr(course, name)
            ax.vlines(at, part.low, part.high, color=_POINTS, linewidth=2.4, alpha=0.45)
            ax.plot(at, part.value, "o", color=_POINTS, markersize=5)
            shown = at[:: 3 if len(ticks) > 12 else 1]
            ax.set_xticks(shown, [ticks[i] for i in shown])
            ax.set_title(f"{_TITLES[name]}, by {title}")
            ax.grid(axis="x", visible=False)
    return fig
