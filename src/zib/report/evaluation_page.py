"""An off-policy evaluation as a page with its picture and tables."""

from __future__ import annotations

import json
import math
from html import escape
from importlib.metadata import version
from pathlib import Path

from zib.logs.ope.evaluation import Difference, Evaluation, Value
from zib.report.evaluation import forest_panel
from zib.report.figures import save_figure
from zib.report.page import figure, page, table, write_together
from zib.report.style import paper_style

HOW = (
    "A log tells what the arm that was played paid, and nothing about the others. Each row is "
    "weighted by how much more likely the policy in question would have played that arm than the "
    "policy that made the log (ips); dividing by the mean weight is more stable (snips); dr adds a "
    "model of the reward, how often times how much, and corrects it by the weighted residuals. "
    "Intervals are for independent rows. A grade other than “good” comes with its reasons."
)


def write_page(evaluation: Evaluation, folder: Path, log: str) -> Path:
    """Write ``evaluation.html``, its figure, tables (CSV) and data (JSON); all of them or none."""

    def make(draft: Path) -> None:
        _draw(evaluation, draft)
        text = json.dumps(evaluation.to_dict(), indent=1, allow_nan=False)
        (draft / "evaluation.json").write_text(text + "\n", encoding="utf-8")
        for what in ("values", "differences", "diagnostics"):
            evaluation.to_frame(what).to_csv(draft / f"{what}.csv", index=False)
        body = render(evaluation, draft, log)
        (draft / "evaluation.html").write_text(page(f"Evaluation of {log}", body), encoding="utf-8")

    return write_together(folder, "evaluation.html", make)


def _draw(evaluation: Evaluation, folder: Path) -> None:
    from matplotlib.figure import Figure

    panels = ["values", *(["differences"] if evaluation.differences else [])]
    policies = {value.policy for value in evaluation.values}
    with paper_style():
        height = 1.6 + 0.62 * len(policies)
        drawn = Figure(figsize=(9.0, height))
        # the line below is left to the small print
        drawn.set_layout_engine("constrained", rect=(0.0, 0.25 / height, 1.0, 1.0 - 0.25 / height))
        axes = drawn.subplots(1, len(panels), squeeze=False)[0]
        for ax, what in zip(axes, panels):
            forest_panel(ax, evaluation, what=what)
        if len(panels) == 2:
            axes[1].get_legend().remove()
        made_by = {"zib": version("zib"), "seed": evaluation.settings["seed"]}
        save_figure(drawn, folder, "policies", evaluation.to_frame("values"), made_by)


def render(evaluation: Evaluation, folder: Path, log: str) -> str:
    """Return the body of the page."""
    settings = evaluation.settings
    level = f"{100 * settings['level']:g} %"
    head = (
        f"<header><h1>What other policies would have earned</h1><p>Log: {escape(log)}, "
        f"{settings['rows']} rows, {settings['nonzero']} of them with a reward that is not zero. "
        f"Propensities: {escape(str(settings['propensities']))}. Intervals: {level}, "
        f"{escape(settings['interval'])}.</p></header>"
    )
    picture = figure(
        folder,
        "policies",
        "Mean reward per decision, and its difference to the baseline where there is one. Full "
        "markers: good; half: caution; empty: do not use.",
        "Forest plot of the values of the policies",
    )
    parts = [head, picture, "<h2>Values</h2>", _estimates(evaluation.values, level)]
    if evaluation.differences:
        baseline = escape(evaluation.differences[0].baseline)
        parts += [f"<h2>Minus {baseline}</h2>", _estimates(evaluation.differences, level)]
    parts += ["<h2>Weights</h2>", _weights(evaluation), "<h2>How to read this</h2>"]
    files = " · ".join(
        f'<a href="{name}">{name}</a>'
        for name in ("values.csv", "differences.csv", "diagnostics.csv", "evaluation.json")
    )
    parts.append(f"<p>{HOW}</p><p class='soft small'>{files} · zib {version('zib')} · "
                 f"seed {settings['seed']}</p>")  # fmt: skip
    return "\n".join(parts)


def _estimates(rows: tuple[Value, ...] | tuple[Difference, ...], level: str) -> str:
    columns = ["policy", "estimator", "value", "standard error", level, "grade"]
    doubtful = any(row.reasons for row in rows)
    content = [
        [
            row.policy,
            row.estimator,
            _number(row.value),
            _number(row.error),
            f"{_number(row.low)} to {_number(row.high)}" if math.isfinite(row.low) else "–",
            row.grade,
            *(["; ".join(row.reasons)] if doubtful else []),
        ]
        for row in rows
    ]
    return table([*columns, "why"] if doubtful else columns, content)


def _weights(evaluation: Evaluation) -> str:
    return table(
        (
            "policy",
            "rows it might have played",
            "effective rows",
            "effective non-zero rewards",
            "largest weight",
            "mean weight (should be 1)",
        ),
        [
            (
                found.policy,
                f"{100 * found.matched_share:.1f} %",
                f"{found.effective_rows:.0f}",
                f"{found.effective_nonzero:.0f}",
                f"{found.largest_weight:.4g}",
                f"{found.mean_weight:.4f} (z = {found.mean_weight_z:+.1f})",
            )
            for found in evaluation.diagnostics
        ],
    )


def _number(x: float) -> str:
    return "–" if math.isnan(x) else f"{x:.4g}"
