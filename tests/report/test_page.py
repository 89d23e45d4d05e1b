"""Pages: nothing unescaped, nothing from elsewhere, conclusions before details, numbers as text."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import jinja2
import numpy as np
import pytest

from zib import ope
from zib.experiments.record import Picture, Record, Setting, Status, Table, Verdict
from zib.experiments.report import findings, render
from zib.experiments.runner import experiments
from zib.logs import LoggedData
from zib.logs.ope.page import in_words, write_page
from zib.report import numbers
from zib.report.page import render as render_page

PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d49444154789c6360000000000500010d0a2db40000000049454e44ae426082"
)


class Outline(HTMLParser):
    """Collects what must balance, what is folded, and the order of headings."""

    VOID = ("meta", "br", "img")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.headings: list[str] = []
        self.folded_tables = self.tables = 0
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        if tag == "table":
            self.tables += 1
            self.folded_tables += "details" in self.open
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in ("h1", "h2"):
            self.headings.append(data)


def record(name: str, *verdicts: tuple[str, Status, str], pictures: int = 1) -> Record:
    return Record(
        id=name,
        title=f"Item {name}",
        about="About & <b>bold</b>",
        scale="quick",
        settings=(Setting("arms", "K < 10", "paper"),),
        pictures=tuple(Picture(f"x{i}", "caption", "alternative") for i in range(pictures)),
        tables=(Table("numbers", ("policy", "regret"), (("a<b", "1.5 [1.0, 2.0]"),), "note"),),
        verdicts=tuple(Verdict(*verdict) for verdict in verdicts),
    )


LOWER = "ZI-TS has lower regret than MOTS"


def test_findings_are_computed_from_the_verdicts():
    records = [
        record("fig2", (LOWER, "holds", "holds (0.5 times the regret of MOTS)")),
        record("figS1", (LOWER, "holds", "holds"), (LOWER, "open", "undecided")),
        record("drift", ("Discounting lowers regret", "fails", "does not hold")),
    ]
    lower, beyond = findings(records)
    # undecided claims do not count
    assert lower.answers == (("", "yes", "holds", "of 3 claims 2 hold and 1 is undecided"),)
    assert lower.example[1].words == "holds (0.5 times the regret of MOTS)"
    assert beyond.answers == (("", "no", "fails", "the only claim does not hold"),)


@pytest.mark.parametrize(
    ("statuses", "answer"),
    [
        (["holds"] * 3 + ["partly"] * 2, "mostly"),
        (["holds", "fails"], "in part"),
        (["partly"] * 3, "in part"),
        (["fails"] * 3 + ["partly"], "mostly not"),
        (["open"] * 2, "undecided"),
        (["holds"] * 2 + ["open"] * 3, "mostly undecided"),
    ],
)
def test_answers_count_decided_claims(statuses: list[Status], answer: str):
    (found,) = findings([record("fig2", *((LOWER, status, "") for status in statuses))])
    assert [each.word for each in found.answers] == [answer]


def test_printed_and_corrected_algorithms_are_told_apart():
    claims = [(LOWER, "holds", ""), (f"{LOWER}: as printed", "fails", "")]
    (found,) = findings([record("fig2", *claims)])
    assert [each[:2] for each in found.answers] == [("as printed", "no"), ("corrected", "yes")]


def test_every_claim_has_a_theme():
    claims = [("some claim nobody thought of", "holds", ""), ("(ours)", "open", "")]
    (found,) = findings([record("new", *claims)])
    assert found.answers[0].tally == "of 2 claims 1 holds and 1 is undecided"


def test_what_goes_beyond_the_paper_does_not_count_as_reported_by_it():
    beyond = [name for name, item in experiments().items() if item.title.startswith("Beyond the")]
    assert len(beyond) >= 6
    last = findings([record("new", ("some claim nobody thought of", "holds", ""))])[0].question
    for name in beyond:
        (found,) = findings([record(name, ("some claim nobody thought of", "holds", ""))])
        assert found.question != last


def test_the_report_leads_with_findings_and_ends_with_the_folded_table(tmp_path: Path):
    for name in ("fig1a", "fig2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x0.png").write_bytes(PNG)
    page = render(tmp_path, [record("fig1a"), record("fig2", (LOWER, "holds", "holds"))])
    outline = Outline(page)
    assert outline.open == []
    assert outline.headings == [
        "Zero-inflated bandits, reproduced", "What one learns", "Item fig1a", "Item fig2",
        "How to read this", "All claims and verdicts",
    ]  # fmt: skip
    assert outline.folded_tables == outline.tables == 5
    assert page.count("data:image/png") == 2  # the picture at the top is not shown again
    assert page.index('src="data:image') < page.index("lower regret than the other methods")
    assert "a&lt;b" in page
    assert "<b>" not in page


def test_a_name_without_a_value_is_an_error(tmp_path: Path):
    with pytest.raises(jinja2.UndefinedError, match="'study' is undefined"):
        render_page("study", tmp_path)


def test_an_evaluation_says_first_what_it_found(rng, tmp_path: Path):
    arm = rng.integers(0, 2, 4_000)
    paid = rng.random(4_000) < np.array([0.1, 0.3])[arm]
    log = LoggedData.from_arrays(
        np.array(["<a>", "b"])[arm], paid * 2.0, propensity=np.full(4_000, 0.5)
    )
    found = ope.evaluate(log, {"<a>": "<a>", "b": "b"}, baseline="logging")
    best, higher, lower = in_words(found)
    # 0.2 and 0.6 on average, errors of 0.01 and 0.02: the order is certain
    assert best.startswith("b has the highest estimated mean reward, 0.")
    assert higher.startswith("Higher than logging beyond the noise: b (0.")
    assert lower.startswith("Lower than logging beyond the noise: <a> (−0.")
    page = write_page(found, tmp_path / "out", "log.csv").read_text(encoding="utf-8")
    outline = Outline(page)
    assert outline.open == []
    assert outline.tables == outline.folded_tables + 1
    assert "&lt;a&gt;" in page
    assert "<a>" not in page
    assert not re.search(r"http|<script|<link|@import|url\(", page)


def test_an_evaluation_without_a_difference_says_so(rng):
    arm = rng.integers(0, 2, 400)
    log = LoggedData.from_arrays(arm, np.ones(400), propensity=np.full(400, 0.5))
    found = ope.evaluate(log, {"first": 0}, baseline="logging", estimators=["snips"])
    assert in_words(found)[1] == "No policy differs from logging beyond the noise."


def test_numbers_keep_their_digits(rng):
    for x in 10.0 ** rng.uniform(-8, 12, 200) * rng.choice([-1.0, 1.0], 200):
        for trim in (False, True):
            text = numbers.number(x, 4, trim=trim).replace("−", "-")
            assert float(text) == pytest.approx(x, rel=5.1e-4)
    assert numbers.number(0.0) == "0"
    assert numbers.number(float("inf")) == "∞"
    assert numbers.percent(1.0) == "100 %"
    assert numbers.percent(1 - 1e-9) != "100 %"
