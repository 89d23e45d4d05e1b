"""What the page says and draws, from numbers that were made by hand."""

from __future__ import annotations

import dataclasses
import math
import re
from datetime import datetime
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.live.service import sample
from zib.live.service import charts, words
from zib.live.settings import Settings
from zib.live.views import Gain, History
from zib.stats.intervals import Estimate

NAN = math.nan
UNKNOWN = Estimate(NAN, NAN, NAN)


def gained(difference: Estimate, percent: Estimate = UNKNOWN, total: Estimate = UNKNOWN) -> Gain:
    return Gain("holdout", UNKNOWN, UNKNOWN, difference, percent, total, 1_000)


@pytest.mark.parametrize(
    ("gain", "large", "first", "tone"),
    [
        (Gain(), "Not known yet", "There are too few rewards so far to say.", "open"),
        (
            sample.gain(),
            "+12 %",
            "Between +3 % and +21 % over showing every arm equally often; about 4,300 more so far.",
            "up",
        ),
        (
            gained(Estimate(0.01, -0.02, 0.04), Estimate(1.2, -2.5, 4.9)),
            "+1.2 %",
            "Between −2.5 % and +4.9 % over showing every arm equally often: "
            "this may still be chance.",
            "open",
        ),
        (
            gained(Estimate(-2.0, -3.0, -1.0), total=Estimate(-2e3, -3e3, -1e3)),
            "2.0 less per decision",
            "Between −3.00 and −1.00 over showing every arm equally often; "
            "about 2,000 less so far.",
            "down",
        ),
        (
            gained(Estimate(0.5, NAN, NAN)),
            "0.50 more per decision",
            "That is over showing every arm equally often; how sure it is cannot be said yet.",
            "open",
        ),
    ],
    ids=["none", "up", "open", "down", "no interval"],
)
def test_the_gain_in_words(gain: Gain, large: str, first: str, tone: str) -> None:
    said = words.headline(gain)
    assert (said.large, said.sentences[0], said.tone) == (large, first, tone)


def test_checks_stand_out_where_something_is_wrong() -> None:
    levels = {line.name: line.level for line in words.checks(sample.busy())}
    assert levels == {
        "Model": "act",
        "Shares as intended": "act",
        "Stability": "look",
        "Late events": "fine",
        "Duplicates": "fine",
        "Conflicts": "look",
        "Parked events": "fine",
        "Dead letters": "look",
    }
    assert {line.level for line in words.checks(sample.overview())} == {"fine"}


def test_a_confirmation_warns_of_the_last_arm() -> None:
    settings = Settings(window=60.0)
    seen = sample.overview(["A", "B"])
    assert "the other arms" in " ".join(words.question("pause", "A", seen, settings).sentences)
    alone = dataclasses.replace(seen, arms=[seen.arms[0]])
    assert "will then be refused" in " ".join(
        words.question("retire", "A", alone, settings).sentences
    )
    assert words.question("retire", "A", seen, settings).final


def test_a_notice_says_only_what_is_true() -> None:
    statuses: dict[Any, str] = {"A": "paused", "B": "active"}
    assert words.done("pause", "A", statuses, None) == "A is paused."
    assert words.done("pause", "B", statuses, None) == ""
    assert words.done("pause", "Z", statuses, None) == ""
    assert words.done("explode", "A", statuses, None) == ""
    assert words.done("shadow", None, statuses, None) == "Shadow mode is off."
    assert words.done("shadow", "A", statuses, "B") == ""


# ----------------------------------------------------------------------------------------- charts


def test_periods_that_are_put_together_keep_their_sums() -> None:
    history = sample.history(["A", "B"], periods=720)
    for most in (10, 84):
        found = charts.binned(history, most)
        assert len(found.starts) <= most
        first = datetime.fromtimestamp(found.starts[0])
        assert (first.minute, first.second) == (0, 0)
        assert found.width < 86_400 or first.hour == 0
        assert sum(found.revenue) == pytest.approx(sum(history.revenue))
        for label, n in history.decisions.items():
            assert sum(found.decisions[label]) == sum(n)


def test_bands_of_traffic_fill_the_chart_and_leave_gaps_without_decisions() -> None:
    history = History(
        [0.0, 60.0, 120.0], 60.0, {"A": [1, 0, 3], "B": [3, 0, 1]}, [0.0] * 3, [0] * 3
    )
    arms = [sample.arm("A"), sample.arm("B")]
    drawn = charts.traffic(history, charts.colours(arms, history))
    assert drawn is not None
    ElementTree.fromstring(drawn.svg)  # it is well-formed
    first, second = re.findall(r'<path class="c\d" d="([^"]+)"', drawn.svg)
    assert first == "M0 750H333V1000H0zM667 250H1000V1000H667z"
    assert second == "M0 0H333V750H0zM667 0H1000V250H667z"
    assert drawn.legend == [("c0", "A 75 %"), ("c1", "B 25 %")]
    assert [row[1:] for row in drawn.rows] == [["75 %", "25 %"], ["–", "–"], ["25 %", "75 %"]]


def test_arms_beyond_the_colours_are_put_together() -> None:
    labels = [f"arm {k}" for k in range(30)]
    history = sample.history(labels, periods=48)
    drawn = charts.traffic(history, charts.colours([sample.arm(x) for x in labels], history))
    assert drawn is not None
    assert [css for css, _ in drawn.legend] == [f"c{k}" for k in range(6)] + ["rest"]


def test_one_huge_interval_does_not_press_the_others_into_a_corner() -> None:
    known = [Estimate(0.1 * k, 0.1 * k - 0.05, 0.1 * k + 0.05) for k in (1, 2, 3)]
    scale = charts.scale_of([*known, Estimate(0.2, 0.0, 50.0), UNKNOWN])
    assert scale is not None
    assert 0.0 <= scale.low <= 0.05
    assert 0.35 <= scale.high < 0.5
    assert charts.scale_of([UNKNOWN]) is None
    assert 'class="cut"' in charts.interval_bar(Estimate(0.2, 0.0, 50.0), scale)
    assert 'class="cut"' not in charts.interval_bar(known[1], scale)


def test_an_estimate_without_an_interval_says_why():
    assert words.between(Estimate(2.0, 1.5, 2.5)) == "1.50 to 2.50"
    assert words.between(Estimate(40.6, NAN, NAN)) == words.TOO_FEW
    assert words.between(UNKNOWN) == ""
