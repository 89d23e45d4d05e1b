"""One self-contained page with every item: figure, verdicts, settings, numbers, provenance."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path

from zib.experiments.record import Picture, Record, Setting, Table, Verdict
from zib.plot import small_print

STATUS_WORDS = {
    "holds": "holds",
    "partly": "holds in part",
    "fails": "does not hold",
    "open": "undecided",
}
STATUS_SIGNS = {"holds": "✓", "partly": "◐", "fails": "✗", "open": "?"}
COUNT_WORDS = {
    "holds": "hold",
    "partly": "hold in part",
    "fails": "do not hold",
    "open": "undecided",
}
SOURCE_WORDS = {"paper": "paper", "ours": "ours", "fix": "corrected"}

_CSS = """
:root { color-scheme: light dark; --fg: #1d2125; --soft: #5b646d; --bg: #ffffff; --card: #f6f7f8;
  --line: #d9dde1; --link: #0b62a8; --holds: #00694d; --partly: #8a5a00; --fails: #a63a00;
  --open: #5b646d; }
@media (prefers-color-scheme: dark) { :root { --fg: #e4e7ea; --soft: #a3acb5; --bg: #15181b;
  --card: #1e2226; --line: #363c42; --link: #7cc0f5; --holds: #4fd0a8; --partly: #f0b64a;
  --fails: #ff9a66; --open: #a3acb5; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--bg); color: var(--fg);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; }
main { max-width: 68rem; margin: 0 auto; padding: 2rem 1.25rem 5rem; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .3rem; }
h2 { font-size: 1.4rem; margin: 3.2rem 0 .4rem; padding-top: 1.2rem;
  border-top: 1px solid var(--line); }
h3 { font-size: 1.05rem; margin: 1.7rem 0 .5rem; }
p { margin: .5rem 0; max-width: 48rem; }
a { color: var(--link); }
.soft { color: var(--soft); }
.small { font-size: .86rem; }
nav ul { columns: 2 20rem; padding-left: 1.1rem; margin: .4rem 0; }
table { border-collapse: collapse; width: 100%; font-size: .92rem; margin: .4rem 0 1rem;
  font-variant-numeric: tabular-nums; }
th, td { text-align: left; vertical-align: top; padding: .34rem .6rem;
  border-bottom: 1px solid var(--line); }
th { font-weight: 600; color: var(--soft); }
.wide { overflow-x: auto; }
tr.group td { font-weight: 600; padding-top: .9rem; border-bottom: 2px solid var(--line); }
td.num, th.num { text-align: right; white-space: nowrap; }
figure { margin: 1rem 0 1.4rem; }
figure img { width: 100%; height: auto; display: block; background: #fff; border-radius: 6px;
  border: 1px solid var(--line); }
figcaption { color: var(--soft); font-size: .9rem; margin-top: .45rem; max-width: 52rem; }
.badge { display: inline-block; white-space: nowrap; font-weight: 600; font-size: .86rem; }
.holds { color: var(--holds); } .partly { color: var(--partly); } .fails { color: var(--fails); }
.open { color: var(--open); }
.verdict { border-left: 4px solid currentColor; background: var(--card); padding: .55rem .9rem;
  margin: .6rem 0; border-radius: 0 6px 6px 0; }
.verdict > * { color: var(--fg); } .verdict > .badge { color: inherit; }
.verdict p { margin: .15rem 0; max-width: none; }
.source { font-size: .78rem; padding: .05rem .45rem; border-radius: 1rem;
  border: 1px solid var(--line); color: var(--soft); white-space: nowrap; }
details { margin: .35rem 0; } summary { cursor: pointer; color: var(--link); font-size: .9rem; }
details ul { margin: .3rem 0 .2rem; padding-left: 1.2rem; font-size: .88rem; }
.note { background: var(--card); padding: .5rem .9rem; border-radius: 6px; max-width: none; }
.count { display: inline-block; margin-right: 1.4rem; font-size: 1.02rem; }
@media print {
  main { max-width: none; padding: 0; } body { font-size: 10.5pt; }
  h2 { break-before: page; } figure, tr, .verdict { break-inside: avoid; }
  h3 { break-after: avoid; }
  details::details-content { content-visibility: visible; height: auto; }
  nav { display: none; }
}
"""


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
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>Zero-inflated bandits: reproduction</title>\n<style>{_CSS}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


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
    counts = dict.fromkeys(STATUS_WORDS, 0)
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
    tables = "".join(_table(table) for table in record.tables)
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
    try:
        data = base64.b64encode((folder / f"{base}.png").read_bytes()).decode()
    except OSError:
        return f'<p class="note">The image {escape(base)}.png is missing.</p>'
    files = " · ".join(
        f'<a href="{escape(base)}.{end}">{end.upper()}</a>' for end in ("svg", "png", "csv")
    )
    return (
        f'<figure><img src="data:image/png;base64,{data}" alt="{escape(picture.alternative)}">'
        f"<figcaption>{escape(picture.caption)} <span>{files}</span></figcaption></figure>"
    )


def _badge(verdict: Verdict) -> str:
    status = verdict.status
    return f'<span class="badge {status}">{STATUS_SIGNS[status]} {STATUS_WORDS[status]}</span>'


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


def _table(table: Table) -> str:
    numeric = [all(_looks_numeric(row[i]) for row in table.rows) for i in range(len(table.columns))]
    head = "".join(_cell("th", text, numeric[i]) for i, text in enumerate(table.columns))
    body = "".join(
        "<tr>" + "".join(_cell("td", text, numeric[i]) for i, text in enumerate(row)) + "</tr>"
        for row in table.rows
    )
    note = f'<p class="soft small">{escape(table.note)}</p>' if table.note else ""
    return (
        f'<h4>{escape(table.title)}</h4><div class="wide"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>{note}"
    )


def _cell(tag: str, text: str, numeric: bool) -> str:
    return f"<{tag}{' class=num' if numeric else ''}>{escape(text)}</{tag}>"


def _looks_numeric(text: str) -> bool:
    return (bool(text) and (text[0].isdigit() or text[0] in "-−.")) or text in ("", "–", "inf")


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
