"""One self-contained page for a study, with figures, numbers and the file that made them."""

from __future__ import annotations

import itertools
import re
import textwrap
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import zib
from zib.report.page import figure, page, table, write_together
from zib.studies import pictures
from zib.studies.numbers import final_frame, final_rows, in_words, ranking

if TYPE_CHECKING:
    from zib.studies.play import Outcome, Played
    from zib.studies.study import Study

CAPTIONS = {
    "regret": "Mean cumulative regret with 95 % bands.",
    "regret-log": "The same on logarithmic axes: linear growth is a line of slope 1, logarithmic "
    "growth bends towards the horizontal.",
}
LONGEST = 600  # characters of a description; the study file has the rest


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
        stems = pictures.draw_all(outcome, draft)
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


def render(outcome: Outcome, folder: Path, stems: list[str]) -> str:
    """Return the page as text; nothing in it refers to anything outside but its data files."""
    shown = "".join(
        figure(folder, stem, CAPTIONS[stem], pictures.alternative(outcome.played)) for stem in stems
    )
    files = dict(zip((each.case.label for each in outcome.played), _stems(outcome.played)))
    body = "\n".join(
        [
            _head(outcome),
            f'<h2 id="curves">Regret over time</h2>{shown}',
            '<h2 id="final">Regret at the end</h2>',
            *(_environment(each, files[each.case.label]) for each in outcome.played),
            '<p class="soft small">All of it as a table: <a href="final.csv">final.csv</a>.</p>',
            _settings(outcome.study),
            _origin(outcome),
            _reading(),
        ]
    )
    return page(outcome.study.name, body)


def _head(outcome: Outcome) -> str:
    study = outcome.study
    answers = "".join(
        f"<p><b>{escape(case.label)}</b>: {escape(in_words(result))}</p>"
        for case, result in outcome.played
    )
    note = ""
    if outcome.interrupted:
        missing = len(study.cases) - sum(each.result.complete for each in outcome.played)
        note = (
            '<p class="note">This study was interrupted: '
            f"{missing} of {len(study.cases)} environments are not finished, and what is shown of "
            "them rests on fewer replications.</p>"
        )
    about = f"<p>{escape(study.about)}</p>" if study.about else ""
    return (
        f"<header><h1>{escape(study.name)}</h1>{about}"
        f'<p class="soft small">{_count(len(study.cases), "environment")} · '
        f"{_count(len(study.cases[0].policies), 'policy', 'policies')} · "
        f"{study.horizon:,} rounds · {_count(study.replications, 'replication')} · "
        f"seed {study.seed} · study {study.hash}</p></header>"
        f'{note}<div class="answer">{answers}</div>'
    )


def _count(n: int, one: str, many: str = "") -> str:
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def _environment(each: Played, stem: str) -> str:
    case, result = each
    heading, rows = final_rows(result)
    kept = "Every run" if isinstance(result, zib.Results) else "Means, intervals, quantiles"
    return (
        f"<h3>{escape(case.label)}</h3>"
        f"{table(heading, rows, marked=ranking(result)[0])}"
        f'<p class="soft small">{kept}: <a href="{escape(stem)}.npz">{escape(stem)}.npz</a></p>'
    )


def _settings(study: Study) -> str:
    environments = [(case.label, _described(case.environment)) for case in study.cases]
    rows = [
        (label, *dict.fromkeys(_described(case.policies[label]) for case in study.cases))
        for label in study.cases[0].policies
    ]
    policies = [(label, " · ".join(descriptions)) for label, *descriptions in rows]
    changed = ""
    if study.changes:
        changed = f'<p class="note">Run with other settings: {escape(", ".join(study.changes))}</p>'
    return (
        '<h2 id="settings">Settings</h2>'
        f"<h3>Environments</h3>{table(('environment', 'what it is'), environments)}"
        "<h3>Policies</h3><p>With every parameter, also those the file leaves to the library or "
        f"to the study.</p>{table(('policy', 'what it is'), policies)}"
        '<h3>The study file</h3><p class="soft small">Also in '
        '<a href="report.toml">report.toml</a>; paths in it start from the folder it was in.</p>'
        f"{changed}<details><summary>show it</summary><pre>{escape(study.text)}</pre></details>"
    )


def _described(thing: Any) -> str:
    return textwrap.shorten(repr(thing), LONGEST, placeholder=" …")


def _origin(outcome: Outcome) -> str:
    study, how = outcome.study, outcome.study.how
    first = outcome.played[0].result.provenance
    versions = " · ".join(
        f"{name} {first[name]}"
        for name in ("zib", "numpy", "numba", "scipy", "python")
        if name in first
    )
    rows = [
        ("study", f"{study.hash} (in the small print of the figures: plan)"),
        ("seed", str(study.seed)),
        ("versions", versions),
        ("platform", str(first.get("platform", ""))),
        ("backend", f"{how.backend}, {_count(int(first['workers']), 'worker')}"),
        ("started", str(first.get("started", ""))),
        ("seconds", f"{outcome.seconds:.1f}"),
        *(
            (f"plan of {case.label}", str(result.provenance["plan_hash"]))
            for case, result in outcome.played
        ),
        *((f"SHA-256 of {name}", digest) for name, digest in study.logs.items()),
    ]
    return f'<h2 id="origin">Where it comes from</h2>{table(("what", ""), rows)}'


def _reading() -> str:
    return (
        '<h2 id="reading">How to read this</h2>'
        "<p>Regret is pseudo-regret: the mean reward of the best arm minus that of the arm played, "
        "added up; in a contextual environment the best action is that of the round. All policies "
        "meet the same rewards, so differences are paired by replication and their intervals are "
        "narrower than those of the regrets. Intervals are Student’s at 95 %, each on its own: "
        "they are not widened for the number of comparisons, nor for picking the best policy by "
        "the same numbers. “10 % to 90 %” are quantiles over replications, and the reward is what "
        "a policy earned over all rounds, on average.</p>"
        "<p>The hash of a study covers what decides the numbers: environments, policies, horizon, "
        "replications, seed, checkpoints and the content of log files. Backend, workers, store "
        "and folder do not.</p>"
    )
