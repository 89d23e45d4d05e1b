"""The page of `zib reproduce`: findings first, then the items, at the end the table of verdicts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from zib.experiments.record import SAID, Picture, Record, Status, Verdict
from zib.report import small_print
from zib.report.numbers import listing, shortened
from zib.report.page import render as render_page

SIGNS: dict[Status, str] = {"holds": "✓", "partly": "◐", "fails": "✗", "open": "?"}
COUNTED: dict[Status, tuple[str, str]] = {
    "holds": ("holds", "hold"),
    "partly": ("holds in part", "hold in part"),
    "fails": ("does not hold", "do not hold"),
    "open": ("is undecided", "are undecided"),
}
SOURCES = {"paper": "paper", "ours": "ours", "fix": "corrected"}

LEADING = ("sparsity", "fig2", "fig3", "fig4")
"""Items whose picture may stand at the top, the best first."""


class Theme(NamedTuple):
    """A question that several claims bear on, and which: by their words or by their items."""

    question: str
    claims: str = ""
    items: str = ""

    def covers(self, record: Record, verdict: Verdict) -> bool:
        """Return whether a claim bears on the question."""
        if self.items and re.fullmatch(self.items, record.id):
            return True
        return bool(self.claims) and re.search(self.claims, verdict.claim) is not None


# A claim belongs to the first theme that covers it; the answers are computed.
THEMES = (
    Theme(
        "Do the paper's zero-inflated policies learn, with regret that grows sublinearly?",
        r"([Oo]ur algorithms|zero-inflated UCB and TS) are sublinear",
    ),
    Theme(
        "Do they have lower regret than the other methods of the paper?",
        r"^ZI-\S+.*\b(lower|lowest|below)\b",
    ),
    Theme(
        "Do methods that ignore or misjudge the zeros do badly somewhere?",
        r"linear or significantly higher|misspecified|^Integrated UCB is linear",
    ),
    Theme(
        "Are the statements about bounds and about the size of the reward true?",
        items="fig1b|figS6",
    ),
    Theme(
        "Do the policies and estimators beyond the paper reach their targets?",
        r"^(Our target|Ours)\b",
        "limit|sparsity|noknobs|drift|ope",
    ),
    Theme("Does what else the paper reports come out as described?", items=".*"),
)
ANSWERS = ((0.95, "Yes"), (0.6, "Mostly"), (0.4, "In part"), (0.05, "Mostly not"), (0.0, "No"))
"""Least score of an answer: the share of decided claims that hold, one that holds in part half."""


class Finding(NamedTuple):
    """What the claims on one theme say together, with one of them as an example."""

    question: str
    answer: str
    status: Status
    tally: str
    example: tuple[Record, Verdict]


def findings(records: Iterable[Record]) -> list[Finding]:
    """Return one finding per theme on which something was judged.

    The example is one of the claims that came out as most of them did, if possible with numbers.
    """
    grouped: dict[Theme, list[tuple[Record, Verdict]]] = {theme: [] for theme in THEMES}
    for record in records:
        for verdict in record.verdicts:
            theme = next(theme for theme in THEMES if theme.covers(record, verdict))
            grouped[theme].append((record, verdict))
    return [_finding(theme, judged) for theme, judged in grouped.items() if judged]


def _finding(theme: Theme, judged: Sequence[tuple[Record, Verdict]]) -> Finding:
    counts = Counter(verdict.status for _, verdict in judged)
    usual = counts.most_common(1)[0][0]
    examples = [pair for pair in judged if pair[1].status == usual]
    telling = [pair for pair in examples if " times " in pair[1].words]
    status, answer = _answer(counts)
    return Finding(theme.question, answer, status, tally(counts), (telling or examples)[0])


def _answer(counts: Mapping[Status, int]) -> tuple[Status, str]:
    decided = counts["holds"] + counts["partly"] + counts["fails"]
    if not decided:
        return "open", "Undecided"
    score = (counts["holds"] + 0.5 * counts["partly"]) / decided
    answer = next(word for least, word in ANSWERS if score >= least)
    return ("holds" if score >= 0.6 else "partly" if score >= 0.4 else "fails"), answer


def tally(counts: Mapping[Status, int]) -> str:
    """Return how many claims came out how.

    Examples
    --------
    >>> tally({"holds": 3, "fails": 1}), tally({"open": 1}), tally({"holds": 2})
    ('of 4 claims 3 hold and 1 does not hold', 'the only claim is undecided', 'both claims hold')
    """
    total = sum(counts.values())
    found = {status: counts[status] for status in SAID if counts.get(status)}
    if len(found) == 1:
        (status,) = found
        start = {1: "the only claim", 2: "both claims"}.get(total, f"all {total} claims")
        return f"{start} {COUNTED[status][total > 1]}"
    parts = [f"{n} {COUNTED[status][n > 1]}" for status, n in found.items()]
    return f"of {total} claims {listing(parts)}"


def write_report(folder: Path, records: Mapping[str, Record]) -> Path:
    """Write ``report.html`` into `folder`; images are read from the folders of the items."""
    path = folder / "report.html"
    new = folder / "report.html.new"
    new.write_text(render(folder, list(records.values())), encoding="utf-8")
    new.replace(path)
    return path


def render(folder: Path, records: list[Record]) -> str:
    """Return the page as text; nothing in it refers to anything outside it but its data files."""
    counts = Counter(verdict.status for record in records for verdict in record.verdicts)
    return render_page(
        "reproduction",
        folder,
        records=records,
        lead=_lead(folder, records),
        findings=findings(records),
        counts={status: counts[status] for status in SAID if counts[status]},
        scales=listing(sorted({record.scale for record in records})),
        seconds=sum(record.seconds for record in records),
        signs=SIGNS,
        said=SAID,
        counted=COUNTED,
        sources=SOURCES,
        small_print=small_print,
        shortened=shortened,
    )


def _lead(folder: Path, records: Sequence[Record]) -> tuple[Record, Picture] | None:
    """Return the picture for the top of the page: of the items in `LEADING`, or the first."""
    known = {record.id: record for record in records}
    preferred = [known[name] for name in LEADING if name in known]
    pictures: Iterator[tuple[Record, Picture]] = (
        (record, picture)
        for record in (*preferred, *records)
        for picture in record.pictures
        if (folder / record.id / f"{picture.stem}.png").exists()
    )
    return next(pictures, None)
