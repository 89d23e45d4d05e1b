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
    """A question that several claims bear on, and which: by their words or by their items.

    `versions` answers it apart for the algorithms as printed and for our corrections of them;
    `caveat` says what the answer depends on.
    """

    question: str
    claims: str = ""
    items: str = ""
    versions: bool = False
    caveat: str = ""

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
        versions=True,
    ),
    Theme(
        "Do they have lower regret than the other methods of the paper?",
        r"^ZI-\S+.*\b(lower|lowest|below)\b",
        versions=True,
        caveat="The answer depends on the settings named in each claim, many of which the paper "
        "leaves open: see the item on figure 2 with other magnitudes.",
    ),
    Theme(
        "Do methods that ignore or misjudge the zeros do badly somewhere?",
        r"linear or significantly higher|\(naive\) methods are linear|^Integrated UCB is linear",
    ),
    Theme(
        "Are the statements about bounds and about the size of the reward true?",
        items="fig1b|figS6",
    ),
    Theme(
        "Do the policies and estimators beyond the paper do what is expected of them?",
        r"^(Our target|Ours)\b",
        "limit|sparsity|noknobs|drift|delay|ope",
    ),
    Theme("Are there aims that nobody can reach who is told nothing?", items="rare"),
    Theme("Does what else the paper reports come out as described?", items=".*"),
)
ANSWERS = ((0.95, "yes"), (0.6, "mostly"), (0.4, "in part"), (0.05, "mostly not"), (0.0, "no"))
"""Least score of an answer: the share of decided claims that hold, one that holds in part half."""


class Answer(NamedTuple):
    """What claims say together: in a word, as the status they come closest to, and counted."""

    version: str
    word: str
    status: Status
    tally: str


class Finding(NamedTuple):
    """The answers to the question of a theme, with one of its claims as an example."""

    question: str
    answers: tuple[Answer, ...]
    example: tuple[Record, Verdict]
    caveat: str = ""


Judged = Sequence[tuple[Record, Verdict]]


def findings(records: Iterable[Record]) -> list[Finding]:
    """Return one finding per theme on which something was judged.

    The example came out as most decided claims did; with numbers if possible, in few words.
    """
    grouped: dict[Theme, list[tuple[Record, Verdict]]] = {theme: [] for theme in THEMES}
    for record in records:
        for verdict in record.verdicts:
            theme = next(theme for theme in THEMES if theme.covers(record, verdict))
            grouped[theme].append((record, verdict))
    return [_finding(theme, judged) for theme, judged in grouped.items() if judged]


def _finding(theme: Theme, judged: Judged) -> Finding:
    parts: dict[str, Judged] = {"": judged}
    if theme.versions:
        printed = [pair for pair in judged if "printed" in pair[1].claim]
        others = [pair for pair in judged if pair not in printed]
        if printed and others:
            parts = {"as printed": printed, "corrected": others}
    decided = [pair for pair in judged if pair[1].status != "open"] or judged
    usual = Counter(verdict.status for _, verdict in decided).most_common(1)[0][0]
    examples = [pair for pair in decided if pair[1].status == usual]
    telling = [pair for pair in examples if " times " in pair[1].words]
    example = min(telling or examples, key=lambda pair: len(pair[1].words))
    answers = tuple(_answer(version, part) for version, part in parts.items())
    return Finding(theme.question, answers, example, theme.caveat)


def _answer(version: str, judged: Judged) -> Answer:
    counts = Counter(verdict.status for _, verdict in judged)
    decided = counts["holds"] + counts["partly"] + counts["fails"]
    if not decided:
        return Answer(version, "undecided", "open", tally(counts))
    if decided < counts["open"]:  # the few that are decided do not speak for the others
        return Answer(version, "mostly undecided", "open", tally(counts))
    score = (counts["holds"] + 0.5 * counts["partly"]) / decided
    word = next(word for least, word in ANSWERS if score >= least)
    status: Status = "holds" if score >= 0.6 else "partly" if score >= 0.4 else "fails"
    return Answer(version, word, status, tally(counts))


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
