"""One self-contained page with every item: figure, verdicts, settings, numbers, provenance."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path

from zib.experiments.record import SAID, Picture, Record, Setting, Table, Verdict
from zib.report import small_print
from zib.report.page import figure, page, table

STATUS_SIGNS = {"holds": "✓", "partly": "◐", "fails": "✗", "open": "?"}
COUNT_WORDS = {
    "holds": "hold",
    "partly": "hold in part",
    "fails": "do not hold",
    "open": "undecided",
}
SOURCE_WORDS = {"paper": "paper", "ours": "ours", "fix": "corrected"}


def write_report(folder: Path, records: Mapping[str, Record]) -> Path:
    """Write ``report.html`` into `folder`; images are read from the folders of the items."""
    path = folder / "report.html"
    new = folder / "report.html.new"
    new.write_text(render(folder, list(records.values())), encoding="utf-8")
    new.replace(path)
    return path


def render(folder: Path, records: list[Record]) -> str:
    """Return the page as text; nothing in it refers to anything outside it but its data files."""
    body = "\n".join(
        [
            _head(records),
            _summary(records),
            *(_item(folder, record) for record in records),
            _colophon(),
        ]
    )
    return page("Zero-inflated bandits: reproduction", body)


def _head(records: list[Record]) -> str:
    seconds = sum(record.seconds for record in records)
    scales = sorted({record.scale for record in records})
    scale = escape(" and ".join(scales))
    links = "".join(f'<li><a href="#{escape(r.id)}">{escape(r.title)}</a></li>' for r in records)
    return (
        "<header><h1>Zero-inflated bandits, reproduced</h1>"
        "<p>What the paper <em>Zero-Inflated Bandits</em> (Wei, Wan, Shi, Song) shows and claims "
        "about multi-armed and contextual bandits, run again and judged by the numbers, and a few "
        "targets of our own. Each verdict is computed; intervals are 95 %.</p>"
        f'<p class="soft small">Scale: {scale} · {len(records)} items · '
        f"{_duration(seconds)} of computing</p></header>\n"
        f'<nav aria-label="Contents"><h3>Contents</h3><ul><li><a href="#summary">Summary of '
        f"claims and verdicts</a></li>{links}</ul></nav>"
    )


def _summary(records: list[Record]) -> str:
    counts = dict.fromkeys(SAID, 0)
    rows = []
    for record in records:
        if record.verdicts:
            rows.append(
                f'<tr class="group"><td colspan="3"><a href="#{escape(record.id)}">'
                f"{escape(record.title)}</a></td></tr>"
            )
        for verdict in record.verdicts:
            counts[verdict.status] += 1
            rows.append(
                f"<tr><td>{escape(verdict.claim)}</td><td>{_badge(verdict)}</td>"
                f"<td>{escape(_shorten(verdict.words))}</td></tr>"
            )
    totals = "".join(
        f'<span class="count {status}">{STATUS_SIGNS[status]} {n} {COUNT_WORDS[status]}</span>'
        for status, n in counts.items()
        if n
    )
    return (
        '<h2 id="summary">Summary of claims and verdicts</h2>'
        f"<p>{totals}</p>"
        '<div class="wide"><table><thead><tr><th>claim</th>'
        "<th>verdict</th><th>in words</th></tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _shorten(words: str, limit: int = 220) -> str:
    return words if len(words) <= limit else words[: limit - 1].rsplit(" ", 1)[0] + " …"


def _item(folder: Path, record: Record) -> str:
    notes = "".join(f'<p class="note">{escape(note)}</p>' for note in record.notes)
    verdicts = "".join(_verdict(verdict) for verdict in record.verdicts)
    if not verdicts:
        verdicts = '<p class="soft">The paper claims nothing here that could be tested.</p>'
    pictures = "".join(_picture(folder, record, picture) for picture in record.pictures)
    tables = "".join(_table(content) for content in record.tables)
    return (
        f'<section><h2 id="{escape(record.id)}">{escape(record.title)}</h2>'
        f"<p>{escape(record.about)}</p>{notes}{pictures}"
        f"<h3>What is claimed, and what came out</h3>{verdicts}"
        f"<h3>Numbers</h3>{tables or '<p class=soft>See the figure.</p>'}"
        f"<h3>Settings</h3>{_settings(record.settings)}"
        f'<p class="soft small">{_duration(record.seconds)} at {escape(record.scale)} scale · '
        f"{escape(small_print(record.provenance))} · "
        f"{escape(str(record.provenance.get('time', '')))}</p></section>"
    )


def _picture(folder: Path, record: Record, picture: Picture) -> str:
    base = f"{record.id}/{picture.stem}"
    return figure(folder, base, picture.caption, picture.alternative)


def _badge(verdict: Verdict) -> str:
    status = verdict.status
    return f'<span class="badge {status}">{STATUS_SIGNS[status]} {SAID[status]}</span>'


def _verdict(verdict: Verdict) -> str:
    evidence = ""
    if verdict.evidence:
        items = "".join(f"<li>{escape(line)}</li>" for line in verdict.evidence)
        evidence = f"<details><summary>evidence</summary><ul>{items}</ul></details>"
    return (
        f'<div class="verdict {verdict.status}">{_badge(verdict)}'
        f"<p>{escape(verdict.claim)}.</p><p class=soft>Measured: {escape(verdict.words)}.</p>"
        f"{evidence}</div>"
    )


def _table(content: Table) -> str:
    note = f'<p class="soft small">{escape(content.note)}</p>' if content.note else ""
    return f"<h4>{escape(content.title)}</h4>{table(content.columns, content.rows)}{note}"


def _settings(settings: Iterable[Setting]) -> str:
    rows = "".join(
        f"<tr><td>{escape(s.name)}</td><td>{escape(s.value)}</td>"
        f'<td><span class="source">{SOURCE_WORDS[s.source]}</span></td></tr>'
        for s in settings
    )
    return (
        "<details open><summary>stated in the paper, corrected, or our choice</summary>"
        "<table><thead><tr><th>setting</th><th>value</th><th>from</th></tr></thead>"
        f"<tbody>{rows}</tbody></table></details>"
    )


def _colophon() -> str:
    return (
        '<h2 id="reading">How to read this</h2>'
        "<p>Regret is pseudo-regret: the mean reward of the best arm minus that of the arm played, "
        "added up; in a contextual bandit the best arm is that of the round. All policies of a "
        "panel meet the same random bandits, and the j-th pull of an arm, or in a contextual "
        "bandit an action in a round, pays the same to each, so differences are paired and their "
        "intervals narrow. “Growth” is the exponent b of regret ~ t^b over the second half of the "
        "run, with a bootstrap interval (Student’s for fewer than ten replications): above 0.9 is "
        "called linear, below it sublinear. “Significantly "
        "higher” asks for twice the regret and an interval of the paired difference above zero; "
        "“at most” a given share asks for Fieller’s interval of the ratio to lie below it. A "
        "claim about several "
        "cases holds when every case supports it beyond the noise; the intervals are not widened "
        "for the number of comparisons, so one in forty may point the wrong way by chance.</p>"
    )


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min"
