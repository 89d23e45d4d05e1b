"""An off-policy evaluation as a page: the answer and its picture first, then the tables."""

from __future__ import annotations

import json
import math
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from zib.core.validate import InvalidParameterError, choice, shown
from zib.logs.ope.evaluation import GRADES, Difference, Evaluation, Value, against_baseline
from zib.report import paper_style, save_figure
from zib.report.numbers import MISSING, interval, number, percent, shortened
from zib.report.page import Picture, write_together
from zib.report.page import render as render_page

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Rows = list[tuple[str, ...]]

PICTURE = Picture(
    "policies",
    "Mean reward per decision, and its difference to the baseline where there is one. Full "
    "markers: good; half: caution; empty: do not use.",
    "Forest plot of the values of the policies",
)


def write_page(evaluation: Evaluation, folder: Path, log: str) -> Path:
    """Write ``evaluation.html``, its figure, tables (CSV) and data (JSON); all of them or none."""

    def make(draft: Path) -> None:
        _draw(evaluation, draft)
        text = json.dumps(evaluation.to_dict(), indent=1, allow_nan=False)
        (draft / "evaluation.json").write_text(text + "\n", encoding="utf-8")
        for what in ("values", "differences", "diagnostics"):
            evaluation.to_frame(what).to_csv(draft / f"{what}.csv", index=False)
        (draft / "evaluation.html").write_text(render(evaluation, draft, log), encoding="utf-8")

    return write_together(folder, "evaluation.html", make)


def render(evaluation: Evaluation, folder: Path, log: str) -> str:
    """Return the page as text; nothing in it refers to anything outside but its data files."""
    level = percent(evaluation.settings["level"])
    baseline = evaluation.differences[0].baseline if evaluation.differences else ""
    return render_page(
        "evaluation",
        folder,
        log=log,
        settings=evaluation.settings,
        level=level,
        answers=in_words(evaluation),
        picture=PICTURE,
        baseline=baseline,
        summary=_summary(evaluation),
        values=_rows(evaluation.values, level),
        differences=_rows(evaluation.differences, level),
        weights=_weights(evaluation),
        version=version("zib"),
    )


# ------------------------------------------------------------------------------------------- words


def in_words(evaluation: Evaluation) -> list[str]:
    """Return what the evaluation says: the best policy, what beats the baseline, what to distrust.

    The last estimator speaks, as for `Evaluation.value`.
    """
    final = [evaluation.value(policy) for policy in _policies(evaluation)]
    usable = [value for value in final if value.grade != GRADES[-1] and math.isfinite(value.value)]
    answers = []
    if usable:
        best = max(usable, key=lambda value: value.value)
        answers.append(
            f"{best.policy} has the highest estimated mean reward, {_interval(best)} by "
            f"{best.estimator} (grade of the estimate: {best.grade})."
        )
    answers += against_baseline(evaluation)
    refused = [value.policy for value in final if value not in usable]
    if refused:
        answers.append(f"Do not use the estimates of {', '.join(refused)}: see the reasons below.")
    return answers


def _interval(found: Value | Difference) -> str:
    return interval(found.value, found.low, found.high)


def _summary(evaluation: Evaluation) -> tuple[list[str], Rows]:
    """Return one row per policy by the estimator that speaks, the highest value first."""
    values = [evaluation.value(policy) for policy in _policies(evaluation)]
    compared = {each.policy: each for each in evaluation.differences}  # the last estimator stays
    baseline = evaluation.differences[0].baseline if evaluation.differences else ""
    doubtful = any(value.reasons for value in values)
    columns = ["policy", "mean reward", *([f"minus {baseline}"] if baseline else []), "grade"]
    rows: Rows = []
    for value in sorted(values, key=lambda v: -v.value if math.isfinite(v.value) else math.inf):
        row = [value.policy, _interval(value)]
        if baseline:
            row.append(_interval(compared[value.policy]) if value.policy in compared else MISSING)
        rows.append((*row, value.grade, *(["; ".join(value.reasons)] if doubtful else [])))
    return [*columns, "why"] if doubtful else columns, rows


def _policies(evaluation: Evaluation) -> list[str]:
    return list(dict.fromkeys(value.policy for value in evaluation.values))


def _rows(rows: tuple[Value, ...] | tuple[Difference, ...], level: str) -> tuple[list[str], Rows]:
    """Return heading and rows of a table of estimates; reasons only where there are any."""
    columns = ["policy", "estimator", "value", "standard error", level, "grade"]
    doubtful = any(row.reasons for row in rows)
    content = [
        (
            row.policy,
            row.estimator,
            number(row.value, 4, trim=True),
            number(row.error, 4, trim=True),
            f"{number(row.low, 4, trim=True)} to {number(row.high, 4, trim=True)}"
            if math.isfinite(row.low)
            else MISSING,
            row.grade,
            *(["; ".join(row.reasons)] if doubtful else []),
        )
        for row in rows
    ]
    return [*columns, "why"] if doubtful else columns, content


def _weights(evaluation: Evaluation) -> tuple[tuple[str, ...], Rows]:
    heading = (
        "policy", "rows it might have played", "effective rows", "effective non-zero rewards",
        "largest weight", "mean weight (should be 1)",
    )  # fmt: skip
    return heading, [
        (
            found.policy,
            percent(found.matched_share),
            f"{found.effective_rows:.0f}",
            f"{found.effective_nonzero:.0f}",
            number(found.largest_weight, 4, trim=True),
            f"{found.mean_weight:.4f} (z = {found.mean_weight_z:+.1f})",
        )
        for found in evaluation.diagnostics
    ]


# ----------------------------------------------------------------------------------------- drawing

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

    One row per policy, in the same order in both; within it one point with its interval per
    estimator. Markers tell estimators apart. Colour and fill show the grade: full for "good", half
    for "caution", empty for "do not use". An estimate without an interval is a point alone.

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
        raise InvalidParameterError(
            f"`what` must be something the evaluation has; got {shown(what)}"
        )
    known = tuple(dict.fromkeys(row.estimator for row in rows))
    wanted = known if estimators is None else tuple(estimators)
    unknown = [name for name in wanted if name not in known]
    if unknown or not wanted:
        raise InvalidParameterError(
            f"`estimators` must be among {', '.join(map(repr, known))}; got {shown(estimators)}"
        )
    policies = tuple(dict.fromkeys(row.policy for row in (*evaluation.values, *rows)))
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
        ax.set_xlabel(f"mean reward minus that of {shortened(evaluation.differences[0].baseline)}")
    else:
        ax.set_xlabel("mean reward per decision")
    ax.set_yticks(range(len(policies)), [shortened(name, 36) for name in policies])
    ax.set_ylim(len(policies) - 0.5, -0.5)
    for order, name in enumerate(wanted):
        ax.plot(
            [], [], linestyle="none", marker=_MARKERS[order % len(_MARKERS)], color="#333333",
            label=name,
        )  # fmt: skip
    ax.legend(loc="best", frameon=False)
    if title:
        ax.set_title(title)


def _draw(evaluation: Evaluation, folder: Path) -> None:
    from matplotlib.figure import Figure

    panels = ["values", *(["differences"] if evaluation.differences else [])]
    policies = {value.policy for value in evaluation.values}
    with paper_style():
        height = 1.6 + 0.52 * len(policies)
        drawn = Figure(figsize=(9.0, height))
        # the line below is left to the small print
        drawn.set_layout_engine("constrained", rect=(0.0, 0.25 / height, 1.0, 1.0 - 0.25 / height))
        axes = drawn.subplots(1, len(panels), squeeze=False, sharey=True)[0]
        for ax, what in zip(axes, panels):
            forest_panel(ax, evaluation, what=what)
            ax.get_legend().remove()
        drawn.legend(
            *axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=8, frameon=False
        )
        made_by = {"zib": version("zib"), "seed": evaluation.settings["seed"]}
        save_figure(drawn, folder, "policies", evaluation.to_frame("values"), made_by)
