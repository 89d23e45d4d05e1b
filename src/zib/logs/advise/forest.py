"""The picture of a verdict: how far the leading arm is ahead of each other arm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from zib.report import leave_small_print
from zib.report.numbers import number, percent, shortened
from zib.report.page import Picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from zib.logs.advise.verdict import Verdict

MOST_DRAWN = 20
CLEAR, OPEN, BAND = "#009E73", "#5B646D", "#F0E6C8"


def differences_picture(verdict: Verdict) -> tuple[Figure, Any, Picture]:
    """Return the figure, its numbers and its caption; `verdict` must have differences."""
    import matplotlib.pyplot as plt
    import pandas as pd

    shown = verdict.differences[:MOST_DRAWN]
    single = np.array([d.single for d in shown])
    together = np.array([d.together for d in shown])
    height = 1.25 + 0.36 * len(shown)
    fig, ax = plt.subplots(figsize=(9.0, height), layout="constrained")
    leave_small_print(fig)
    ends = np.concatenate([together[:, 1:], single[:, 1:]])
    finite = ends[np.isfinite(ends)]
    low, high = (min(finite.min(), 0.0), max(finite.max(), 0.0)) if finite.size else (-1.0, 1.0)
    margin = 0.06 * (high - low) or 1.0
    if verdict.gap > 0.0:
        ax.axvspan(-verdict.gap, verdict.gap, color=BAND, lw=0, label="not worth having")
    ax.axvline(0.0, color="#1d2125", lw=1.0)
    for y, (one, all_of) in enumerate(zip(single, together, strict=True)):
        colour = CLEAR if one[1] > 0.0 else OPEN
        inside = np.clip([one[1], one[2], all_of[1], all_of[2]], low - margin, high + margin)
        ax.plot(inside[2:], [y, y], color=colour, lw=1.2)
        ax.plot(inside[:2], [y, y], color=colour, lw=4.0, solid_capstyle="butt")
        ax.plot([one[0]], [y], "o", color="white", mec=colour, mew=1.6, ms=6.5, zorder=3)
    ax.set_yticks(range(len(shown)), [shortened(str(d.second)) for d in shown])
    ax.set_ylim(len(shown) - 0.4, -0.6)
    ax.set_xlim(low - margin, high + margin)
    ax.set_xlabel(f"{shortened(str(verdict.arm))} pays more per row than the arm on the left by …")
    if verdict.gap > 0.0 and 2.0 * verdict.gap > 0.004 * (high - low + 2.0 * margin):
        ax.legend(loc="best", frameon=False)
    numbers = pd.DataFrame({"arm": [str(d.second) for d in shown]})
    for name, part in (("", single), ("together ", together)):
        for i, end in enumerate(("difference", "low", "high")):
            numbers[name + end] = part[:, i]
    numbers["chance"] = [d.chance for d in shown]
    more = len(verdict.differences) - len(shown)
    caption = (
        f"How much more {shortened(str(verdict.arm))} pays than each other arm. Thick: "
        f"{percent(verdict.level)} interval of one difference; all above 0 is needed to ship. "
        + ("Thin: intervals that hold for all arms together. " if len(shown) > 1 else "")
        + (
            f"Shaded: differences below {number(100 * verdict.worth, trim=True)} %, not worth "
            "having."
            if verdict.gap > 0.0
            else ""
        )
        + (f" The {more} arms that are furthest behind are left out." if more else "")
    )
    alternative = f"Differences between {shortened(str(verdict.arm))} and the other arms"
    return fig, numbers, Picture("differences", caption.strip(), alternative)
