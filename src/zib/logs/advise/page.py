"""Advice as a self-contained page, with figures and data files."""

from __future__ import annotations

import dataclasses
import json
import math
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from zib.core.saved import spec_to_data
from zib.logs.advise import words
from zib.logs.advise.pictures import Picture, draw_all
from zib.report import small_print
from zib.report.page import figure, page, table, write_together

if TYPE_CHECKING:
    from zib.logs.advise.advice import Advice

FORMAT = "zib.Advice/1"


def write(advice: Advice, folder: Path) -> Path:
    """Write page, data, program and figures into `folder`, all of them or none."""

    def make(draft: Path) -> None:
        pictures = draw_all(advice, draft)
        text = json.dumps(to_data(advice), indent=1, allow_nan=False)
        (draft / "advice.json").write_text(text + "\n", encoding="utf-8")
        (draft / "policy.py").write_text(advice.recommendation.snippet, encoding="utf-8")
        (draft / "advice.html").write_text(render(advice, draft, pictures), encoding="utf-8")

    return write_together(folder, "advice.html", make)


# ------------------------------------------------------------------------------------------ data


def to_data(advice: Advice) -> dict[str, Any]:
    """Return the advice as plain data; the sample of rewards is thinned to quantiles."""
    out: dict[str, Any] = {"format": FORMAT}
    for field in dataclasses.fields(advice):
        out[field.name] = _plain(getattr(advice, field.name))
    sample = advice.law.sample
    levels = np.linspace(0.0, 1.0, 201)
    out["law"]["sample"] = _plain(np.quantile(sample, levels).tolist() if sample.size else [])
    out["recommendation"]["spec"] = _plain(spec_to_data(advice.recommendation.spec))
    for arm, row in zip((*advice.arms, advice.overall), (*out["arms"], out["overall"])):
        row["zero_share"] = _plain(arm.zero_share)
        row["occurrence_share"] = _plain(arm.occurrence_share)
    return out


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return {field.name: _plain(getattr(value, field.name)) for field in fields}
    if hasattr(value, "_asdict"):
        return {key: _plain(item) for key, item in value._asdict().items()}
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else repr(value)
    if value is None or isinstance(value, (str, int, float)):
        return value
    return repr(value)


# ------------------------------------------------------------------------------------------ page


def render(advice: Advice, folder: Path, pictures: list[Picture]) -> str:
    """Return the page as text; nothing in it refers to anything outside but its data files."""
    shown = {
        each.stem: figure(
            folder, each.stem, each.caption, each.alternative, kind="half" if each.half else ""
        )
        for each in pictures
    }
    body = "\n".join(
        [_head(advice), _arms(advice, shown), _gain(advice), _law(advice, shown), _policy(advice),
         _earned(advice, shown), _colophon(advice)]
    )  # fmt: skip
    return page("Advice for a bandit", body)


def _head(advice: Advice) -> str:
    rec, whole = advice.recommendation, advice.overall
    notes = "".join(f'<p class="note">{escape(note)}</p>' for note in advice.notes)
    unit = "" if rec.unit == 1.0 else f" for rewards divided by {rec.unit:g}"
    reasons = "".join(f"<p>{escape(line)}</p>" for line in rec.reasons)
    return (
        "<header><h1>Advice for a bandit</h1>"
        f'<p class="soft">{whole.rows} rows · {len(advice.arms)} arms · '
        f"{words.percent(whole.zero_share)} zeros</p></header>"
        f'<div class="answer"><p>Recommended: <code>{escape(rec.code)}</code>{escape(unit)}</p>'
        f"{reasons}</div>{notes}"
    )


def _arms(advice: Advice, shown: dict[str, str]) -> str:
    head, rows = words.arm_rows(advice, 40)
    special = [arm for arm in advice.ranking if arm.note][:10]
    notes = "".join(f"<li>{escape(str(arm.label))}: {escape(arm.note)}.</li>" for arm in special)
    leader = words.leader_words(advice)
    return (
        '<h2 id="arms">The arms</h2>'
        f"<p>{escape(leader)}</p>{shown.get('arms', '')}{table(head, rows, last='total')}"
        + (f"<ul class=small>{notes}</ul>" if notes else "")
    )


def _gain(advice: Advice) -> str:
    text = "".join(f"<p>{escape(line)}</p>" for line in words.gain_words(advice))
    return f'<h2 id="gain">What zero inflation can buy</h2>{text}'


def _law(advice: Advice, shown: dict[str, str]) -> str:
    fits = table(*words.law_rows(advice)) if advice.law.fits else ""
    note = (
        '<p class="soft small">Maximum likelihood on '
        f"{advice.law.n} non-zero rewards. AIC and BIC are differences to the smallest; the "
        "distance is that of Kolmogorov and Smirnov.</p>"
    )
    return (
        '<h2 id="law">Law of the non-zero rewards</h2>'
        f"<p>{escape(advice.law.words)}</p><p>{escape(advice.law.tail.words)}</p>"
        f"{shown.get('magnitudes', '')}{fits}{note if fits else ''}{shown.get('quantiles', '')}"
    )


def _policy(advice: Advice) -> str:
    rec = advice.recommendation
    estimates = table(*words.parameter_rows(advice)) if rec.parameters else ""
    others = "".join(
        f"<li><code>{escape(other.code)}</code>: {escape(other.why)}</li>"
        for other in rec.alternatives
    )
    context = ""
    if advice.context is not None:
        context = f"<p>{escape(advice.context.words)}</p>"
    return (
        f'<h2 id="policy">The policy</h2>{context}{estimates}'
        + (f"<h3>Also worth a look</h3><ul>{others}</ul>" if others else "")
        + '<h3>A program that runs it</h3><p class="soft small">Also in '
        f'<a href="policy.py">policy.py</a>.</p><pre>{escape(rec.snippet)}</pre>'
    )


def _earned(advice: Advice, shown: dict[str, str]) -> str:
    if advice.simulation is None:
        return ""
    text = "".join(f"<p>{escape(line)}</p>" for line in words.simulation_words(advice))
    head, rows = words.simulation_rows(advice)
    main = advice.simulation.labels[0]
    return (
        f'<h2 id="earned">What it would have earned</h2>{text}{shown.get("earnings", "")}'
        f"{table(head, rows, marked=main)}"
    )


def _colophon(advice: Advice) -> str:
    return (
        '<h2 id="reading">How to read this</h2>'
        f"<p>All intervals hold with probability about {100 * advice.level:.3g} %, each on its "
        "own. p: Clopper and Pearson. mu and r: Student’s t with Hall’s correction for skewness; "
        "with fewer than ten non-zero rewards the spread of all arms is used and r gets the joint "
        "likelihood bound of both parts. With propensities each row counts 1/propensity when arms "
        "are compared, with linearised variances. “From occurrence” is the share p(1 − p)·mu² of "
        "the variance p·Var(X) + p(1 − p)·mu² of a reward. The tail index is Hill’s, on as many of "
        "the largest magnitudes as lie closest to a power law; its interval covers half to twice "
        "that number.</p>"
        f'<p class="soft small">{escape(small_print(advice.provenance))} · '
        '<a href="advice.json">advice.json</a></p>'
    )
