"""Values of policies with their intervals, one below the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from zib.core.validate import InvalidParameterError, choice
from zib.logs.ope.evaluation import Difference, Evaluation, Value
from zib.logs.ope.trust import GRADES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe–Ito; the fill tells grades apart without colour
_COLORS = dict(zip(GRADES, ("#0072B2", "#E69F00", "#D55E00"), strict=True))
_FILLS = dict(zip(GRADES, ("full", "left", "none"), strict=True))
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "h")


def forest_panel(
    ax: Axes,
    evaluation: Evaluation,
    *,
    what: str = "values",
    estimators: tuple[str, ...] | None = None,
    title: str = "",
) -> None:
    """Draw values, or differences to the baseline, as a forest plot.

    One row per policy; within it one point with its interval per estimator. Markers tell
    estimators apart. Colour and fill show the grade: full for "good", half for "caution", empty for
    "do not use". An estimate without an interval is a point alone.

    Parameters
    ----------
    ax
        Where to draw.
    evaluation
        What `zib.ope.evaluate` returned.
    what
        "values" or "differences".
    estimators
        Which, in which order; all by default.
    title
        Of the panel.
    """
    choice("what", what, ("values", "differences"))
    rows: tuple[Value | Difference, ...] = (
        evaluation.values if what == "values" else evaluation.differences
    )
    if not rows:
        raise InvalidParameterError(f"`what` must be something the evaluation has; got {what!r}")
    known = tuple(dict.fromkeys(row.estimator for row in rows))
    wanted = known if estimators is None else tuple(estimators)
    unknown = [name for name in wanted if name not in known]
    if unknown or not wanted:
        raise InvalidParameterError(
            f"`estimators` must be among {', '.join(map(repr, known))}; got {estimators!r}"
        )
    policies = tuple(dict.fromkeys(row.policy for row in rows))
    room = 0.7 / len(wanted)
    for row in rows:
        if row.estimator not in wanted or not np.isfinite(row.value):
            continue
        order = wanted.index(row.estimator)
        y = policies.index(row.policy) + (order - (len(wanted) - 1) / 2) * room
        color = _COLORS[row.grade]
        if np.isfinite(row.low) and np.isfinite(row.high):
            ax.plot([row.low, row.high], [y, y], color=color, linewidth=1.8, solid_capstyle="butt")
        ax.plot(
            [row.value],
            [y],
            linestyle="none",
            marker=_MARKERS[order % len(_MARKERS)],
            color=color,
            fillstyle=_FILLS[row.grade],
            markersize=6.5,
            zorder=3,
        )
    if what == "differences":
        ax.axvline(0.0, color="#555555", linewidth=1.0, zorder=1)
        ax.set_xlabel(f"mean reward minus that of {evaluation.differences[0].baseline}")
    else:
        ax.set_xlabel("mean reward per decision")
    ax.set_yticks(range(len(policies)), policies)
    ax.set_ylim(len(policies) - 0.5, -0.5)
    for order, name in enumerate(wanted):
        ax.plot(
            [], [], linestyle="none", marker=_MARKERS[order % len(_MARKERS)], color="#333333",
            label=name,
        )  # fmt: skip
    ax.legend(loc="best", frameon=False)
    if title:
        ax.set_title(title)
