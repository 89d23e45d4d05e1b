"""What a study found, as tables, sentences, figures and one page."""

from __future__ import annotations

import itertools
import math
import re
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import zib
from zib.report import Panel, paper_style, regret_figure, regret_frame, save_figure, styles_of
from zib.report.numbers import MISSING, count, interval, number, times
from zib.report.page import Picture, write_together
from zib.report.page import render as render_page

if TYPE_CHECKING:
    import pandas as pd

    from zib.studies.play import Outcome, Played

LEVEL = 0.95
CAPTIONS = {
    "regret": "Mean cumulative regret with 95 % bands.",
    "regret-log": "The same on logarithmic axes: linear growth is a line of slope 1, logarithmic "
    "growth bends towards the horizontal.",
}
LONGEST = 600  # characters of a description; the study file has the rest
LOG_FROM = 100  # rounds; fewer show nothing on logarithmic axes


def write(outcome: Outcome, folder: str | Path | None = None) -> Path:
    """Write report, figures, tables and results of a study, all of them or none.

    Parameters
    ----------
    outcome
        From `zib.studies.run`, with at least one environment in it.
    folder
        Where to; the folder the study names by default.

    Returns
    -------
    Path
        ``report.html``. Next to it: ``regret.png``, ``.svg`` and ``.csv``, ``final.csv``, the
        results of each environment (`zib.Results.load` reads them) and the study file.
    """

    def make(draft: Path) -> None:
        stems = draw_all(outcome, draft)
        final_frame(outcome.played).to_csv(
            draft / "final.csv", index=False, float_format="%.10g", lineterminator="\n"
        )
        for stem, each in zip(_stems(outcome.played), outcome.played):
            each.result.save(draft / f"{stem}.npz")
        (draft / "report.toml").write_text(outcome.study.text, encoding="utf-8")
        (draft / "report.html").write_text(render(outcome, draft, stems), encoding="utf-8")

    return write_together(Path(folder or outcome.study.folder), "report.html", make)


def _stems(played: tuple[Played, ...]) -> list[str]:
    """Return a file name per environment; labels that give the same one are numbered."""
    names: list[str] = []
    for case, _ in played:
        plain = re.sub(r"[^\w.-]+", "-", case.label).strip("-.") or "environment"
        choices = (f"{plain}-{n}" if n > 1 else plain for n in itertools.count(1))
        taken = {name.lower() for name in names}  # some file systems do not tell A from a
        names.append(next(name for name in choices if name.lower() not in taken))
    return names


def render(outcome: Outcome, folder: Path, stems: Sequence[str]) -> str:
    """Return the page as text; nothing in it refers to anything outside but its data files."""
    study, played = outcome.study, outcome.played
    words = alternative(played)
    first, *others = (Picture(stem, CAPTIONS[stem], words) for stem in stems)
    descriptions = [
        (label, " · ".join(dict.fromkeys(_described(case.policies[label]) for case in study.cases)))
        for label in study.cases[0].policies
    ]
    return render_page(
        "study",
        folder,
        outcome=outcome,
        study=study,
        unfinished=len(study.cases) - sum(each.result.complete for each in played),
        answers=[(case.label, in_words(result)) for case, result in played],
        lead=first,
        pictures=others,
        environments=list(_environments(played)),
        described=[(case.label, _described(case.environment)) for case in study.cases],
        policies=descriptions,
        origin=_origin(outcome),
    )


class Section(NamedTuple):
    """What the page shows of one environment."""

    label: str
    table: tuple[tuple[str, ...], list[tuple[str, ...]]]
    best: str
    file: str
    kept: str


def _environments(played: tuple[Played, ...]) -> Iterator[Section]:
    for stem, (case, result) in zip(_stems(played), played):
        kept = "Every run" if isinstance(result, zib.Results) else "Means, intervals, quantiles"
        yield Section(case.label, final_rows(result), ranking(result)[0], f"{stem}.npz", kept)


def _described(thing: Any) -> str:
    return textwrap.shorten(repr(thing), LONGEST, placeholder=" …")


def _origin(outcome: Outcome) -> list[tuple[str, str]]:
    """Return what made the numbers: fingerprints, versions, machine, time."""
    study, how = outcome.study, outcome.study.how
    first = outcome.played[0].result.provenance
    versions = " · ".join(
        f"{name} {first[name]}"
        for name in ("zib", "numpy", "numba", "scipy", "python")
        if name in first
    )
    return [
        ("study", f"{study.hash} (in the small print of the figures: plan)"),
        ("seed", str(study.seed)),
        ("versions", versions),
        ("platform", str(first.get("platform", ""))),
        ("backend", f"{how.backend}, {count(int(first['workers']), 'worker')}"),
        ("started", str(first.get("started", ""))),
        ("seconds", f"{outcome.seconds:.1f}"),
        *(
            (f"plan of {case.label}", str(result.provenance["plan_hash"]))
            for case, result in outcome.played
        ),
        *((f"SHA-256 of {name}", digest) for name, digest in study.logs.items()),
    ]


# -------------------------------------------------------------------------------- numbers and words


class Apart(NamedTuple):
    """How much more regret a policy has than the best one, paired by replication."""

    mean: float
    low: float
    high: float

    @property
    def clear(self) -> bool:
        """Whether the interval lies above zero."""
        return self.low > 0.0


def ranking(result: Any) -> list[str]:
    """Return the labels by final regret, the lowest first; those without a finished run last."""
    final = result.mean()[:, -1]
    return [result.labels[int(i)] for i in np.argsort(np.where(np.isnan(final), np.inf, final))]


def apart(result: Any, label: str, best: str) -> Apart:
    """Return the paired difference of final regrets."""
    return Apart(*result.difference(label, best, LEVEL).final)


def final_frame(played: tuple[Played, ...]) -> pd.DataFrame:
    """Return final regrets of all policies in all environments, with the distance to the best."""
    import pandas as pd

    parts: list[pd.DataFrame] = []
    for case, result in played:
        best = ranking(result)[0]
        frame = result.summary(LEVEL)
        frame.insert(0, "environment", case.label)
        between = [apart(result, label, best) for label in result.labels]
        for name in Apart._fields:
            column = "above the best" if name == "mean" else f"above the best, {name}"
            frame[column] = [getattr(each, name) for each in between]
        parts.append(frame)
    return pd.concat(parts, ignore_index=True)


def curve_frame(played: tuple[Played, ...]) -> pd.DataFrame:
    """Return mean regret with its interval at every checkpoint."""
    import pandas as pd

    frames = [regret_frame(result, environment=case.label) for case, result in played]
    return pd.concat(frames, ignore_index=True)


def final_rows(result: Any) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return heading and rows of the table of one environment, the best policy first."""
    order = ranking(result)
    frame = result.summary(LEVEL).set_index("policy")
    least = frame.loc[order[0], "regret"]
    rows: list[tuple[str, ...]] = []
    for label in order:
        row = frame.loc[label]
        more = apart(result, label, order[0])
        rows.append(
            (
                label,
                interval(row["regret"], row["low"], row["high"]),
                MISSING if label == order[0] else interval(*more),
                times(row["regret"] / least if least > 0 else math.nan),
                number(row["median"]),
                f"{number(row['10 %'])} to {number(row['90 %'])}",
                number(row["reward"]),
                str(int(row["replications"])),
            )
        )
    heading = (
        "policy", "regret", "more than the best", "× best", "median", "10 % to 90 %", "reward",
        "runs",
    )  # fmt: skip
    return heading, rows


def in_words(result: Any) -> str:
    """Return one or two sentences: which policy is best, and which are as good within the noise.

    Intervals are each on their own; that the best was picked by the same numbers is not in them.
    """
    best, *others = ranking(result)
    i = result.labels.index(best)
    low, high = result.interval(LEVEL)
    value = interval(result.mean()[i, -1], low[i, -1], high[i, -1])
    said = f"{best} has the lowest regret, {value}."
    between = {label: apart(result, label, best) for label in others}
    known = {label: each for label, each in between.items() if math.isfinite(each.mean)}
    if not known:
        return said
    if any(math.isnan(each.low) for each in known.values()):
        return f"{said} One replication does not show how much of the difference is chance."
    near = [label for label, each in known.items() if not each.clear]
    if near:
        alike = "; ".join(near)  # labels may hold commas
        return f"{said} Within the noise of these replications, as good: {alike}."
    label, each = min(known.items(), key=lambda item: item[1].mean)
    return f"{said} The next, {label}, has {interval(*each)} more."


# ------------------------------------------------------------------------------------------ figures


def draw_all(outcome: Outcome, folder: Path) -> list[str]:
    """Write the figures into `folder` and return the stems of their files."""
    stems = ["regret"]
    _draw(outcome, folder, "regret", log=False)
    if outcome.study.horizon >= LOG_FROM and all(_grows(each.result) for each in outcome.played):
        _draw(outcome, folder, "regret-log", log=True)
        stems.append("regret-log")
    return stems


def origin(outcome: Outcome) -> dict[str, Any]:
    """Return what the small print of a figure says; its plan is the study."""
    return {**outcome.played[0].result.provenance, "plan_hash": outcome.study.hash}


def _grows(result: Any) -> bool:
    return len(result.checkpoints) > 5 and bool(np.nanmax(result.mean()) > 0.0)


def _draw(outcome: Outcome, folder: Path, stem: str, *, log: bool) -> None:
    played = outcome.played
    panels = [Panel(case.label, result) for case, result in played]
    with paper_style():
        fig = regret_figure(panels, log=log, styles=styles_of(played[0].result.labels))
        save_figure(fig, folder, stem, curve_frame(played), origin(outcome))


def alternative(played: Sequence[Played]) -> str:
    """Return the figure in words, for those who cannot see it."""
    best = ", ".join(f"{case.label}: {ranking(result)[0]}" for case, result in played)
    return f"Curves of the mean cumulative regret. Lowest at the end: {best}."
