"""Self-contained pages: one look for reports, advice and evaluations."""

from __future__ import annotations

import base64
import shutil
import tempfile
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path

CSS = """
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
.answer { border-left: 4px solid var(--holds); background: var(--card); padding: .6rem .9rem;
  margin: .8rem 0; border-radius: 0 6px 6px 0; }
.answer code { font-size: 1rem; font-weight: 600; overflow-wrap: anywhere; }
tr.total td { border-top: 2px solid var(--line); font-weight: 600; }
tr.main td { color: var(--holds); font-weight: 600; }
figure.half { max-width: 34rem; }
pre { background: var(--card); border: 1px solid var(--line); border-radius: 6px; padding: .8rem;
  overflow-x: auto; font-size: .84rem; line-height: 1.45; }
code, pre { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
@media print {
  main { max-width: none; padding: 0; } body { font-size: 10.5pt; }
  h2 { break-before: page; } figure, tr, .verdict { break-inside: avoid; }
  h3 { break-after: avoid; }
  details::details-content { content-visibility: visible; height: auto; }
  nav { display: none; }
}
"""


def page(title: str, body: str) -> str:
    """Return an HTML page that refers to nothing outside it."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{CSS}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def figure(
    folder: Path,
    base: str,
    caption: str,
    alternative: str,
    *,
    ends: Sequence[str] = ("svg", "png", "csv"),
    kind: str = "",
) -> str:
    """Return a figure with its image inside, and links to the files it is kept in."""
    try:
        data = base64.b64encode((folder / f"{base}.png").read_bytes()).decode()
    except OSError:
        return f'<p class="note">The image {escape(base)}.png is missing.</p>'
    files = " · ".join(f'<a href="{escape(base)}.{end}">{end.upper()}</a>' for end in ends)
    marked = f' class="{escape(kind)}"' if kind else ""
    return (
        f'<figure{marked}><img src="data:image/png;base64,{data}" alt="{escape(alternative)}">'
        f"<figcaption>{escape(caption)} <span>{files}</span></figcaption></figure>"
    )


def table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], *, last: str = "", marked: str = ""
) -> str:
    """Return a table of ready-made text; columns of numbers stand to the right.

    `last` is the class of the last row, and the row that starts with `marked` stands out. In a
    column of numbers "1.2 [1.0, 1.4]" takes two lines, which keeps tables narrow.
    """
    numeric = [all(_looks_numeric(row[i]) for row in rows) for i in range(len(columns))]
    head = "".join(_cell("th", text, numeric[i]) for i, text in enumerate(columns))
    body = []
    for j, row in enumerate(rows):
        kind = last if last and j == len(rows) - 1 else "main" if row[0] == marked else ""
        cells = "".join(_cell("td", text, numeric[i]) for i, text in enumerate(row))
        body.append(f"<tr{f' class={kind}' if kind else ''}>{cells}</tr>")
    return (
        f'<div class="wide"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )


def _cell(tag: str, text: str, numeric: bool) -> str:
    estimate, bracket, interval = text.partition(" [")
    inside = escape(text)
    if numeric and bracket and estimate:
        inside = f'{escape(estimate)}<br><span class="soft small">[{escape(interval)}</span>'
    return f"<{tag}{' class=num' if numeric else ''}>{inside}</{tag}>"


def _looks_numeric(text: str) -> bool:
    return not text or text == "inf" or text[0].isdigit() or text[0] in "-−.–+∞"


def write_together(folder: Path, last: str, make: Callable[[Path], None]) -> Path:
    """Let `make` write files into a draft and move them into `folder`, all of them or none.

    The file named `last`, the page, is moved last: once it is there, so is what it links to.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        make(draft)
        folder.mkdir(exist_ok=True)
        for path in sorted(draft.iterdir(), key=lambda file: file.name == last):
            path.replace(folder / path.name)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return folder / last
