"""Advice as a page: the recommendation and one picture first, then what is behind it."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from zib.core.saved import spec_to_data
from zib.logs.advise import words
from zib.logs.advise.pictures import draw_all
from zib.report import small_print
from zib.report.page import Picture, write_together
from zib.report.page import render as render_page

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

LEADING = ("differences", "earnings", "arms")  # whose picture stands at the top, the best first


def render(advice: Advice, folder: Path, pictures: list[Picture]) -> str:
    """Return the page as text; nothing in it refers to anything outside but its data files."""
    drawn = {each.stem: each for each in pictures}
    lead = next((drawn[stem] for stem in LEADING if stem in drawn), None)
    balance = advice.balance
    if balance is not None and not balance.comparable:
        lead = None  # no picture at the top that invites a comparison
    if lead is not None:
        del drawn[lead.stem]
    return render_page(
        "advice",
        folder,
        advice=advice,
        lead=lead,
        drawn=drawn,
        balance=None if balance is None else words.balance_rows(balance),
        findings=_findings(advice),
        differences=words.difference_rows(advice, 40),
        pairs=words.pair_rows(advice),
        chances=words.chance_rows(advice, 40),
        arms=words.arm_rows(advice, 40),
        special=[arm for arm in advice.ranking if arm.note][:10],
        gain=words.gain_words(advice),
        laws=words.law_rows(advice),
        over_time=words.time_rows(advice),
        parameters=words.parameter_rows(advice),
        earned=words.simulation_words(advice),
        earnings=words.simulation_rows(advice),
        small_print=small_print(advice.provenance),
    )


def _findings(advice: Advice) -> list[str]:
    """Return the sentences below the verdict: what zeros are worth, the law, earnings.

    Each section says more; these are its most important sentences.
    """
    gain = words.gain_words(advice)
    earned = words.simulation_words(advice)
    times = advice.times
    changing = (
        times.words[:3] if times is not None and (times.changes or times.differences_change) else ()
    )
    said = (
        *changing, gain[0], *gain[1:][-1:], advice.law.words, *earned[:1],
    )  # fmt: skip
    return [sentence for sentence in said if sentence]
