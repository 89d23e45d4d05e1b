"""Verdicts follow from numbers: made-up results with known answers."""

from typing import NamedTuple

import numpy as np
import pytest
from tests.experiments.made import panel, results

from zib.env.mab import FAMILIES, RandomMAB
from zib.experiments import mab_study
from zib.experiments.fig2 import Figure2
from zib.experiments.judge import (
    Decision,
    at_most,
    below,
    compare,
    compare_all,
    decide,
    from_cases,
    grows,
    growth,
    lower,
    where,
)
from zib.experiments.record import Context

ROUNDS = np.arange(100, 10_001, 100)


def made(curves, replications=60, noise=0.01):
    return results(curves, ROUNDS, replications, noise)


@pytest.mark.parametrize(
    ("curve", "exponent", "word"),
    [
        (lambda t: 0.1 * t, 1.0, "linear"),
        (np.sqrt, 0.5, "sublinear"),
        (np.log, 0.113, "sublinear"),
        (lambda t: 0.0 * t, 0.0, "sublinear"),
        (lambda t: t**0.91, 0.91, "linear"),
    ],
)
def test_growth(curve, exponent, word):
    found = growth(made({"a": curve}), "a")
    assert found.exponent == pytest.approx(exponent, abs=0.01)
    assert found.low <= found.exponent + 1e-12
    assert found.exponent <= found.high + 1e-12
    assert found.word == word


def test_growth_is_undecided_when_replications_disagree():
    result = made({"a": lambda t: 1.0 * t})
    result.regret[0, :45] = np.sqrt(ROUNDS) * 5
    assert growth(result, "a").word == "undecided"


def test_growth_of_few_replications_has_a_wider_interval(rng):
    slope = rng.uniform(0.5, 1.5, (1, 60, 1))
    many = made({"a": lambda t: t**0.7}, noise=0.0)
    many.regret = many.regret ** (1 + 0.02 * slope)
    few = made({"a": lambda t: t**0.7}, replications=3, noise=0.0)
    few.regret = many.regret[:, :3]
    wide, narrow = growth(few, "a"), growth(many, "a")
    assert wide.high - wide.low > narrow.high - narrow.low > 0
    assert wide.low < wide.exponent < wide.high
    # Student's interval for a mean of logarithms is what it is close to for such small spreads.
    half = int(np.argmin(np.abs(ROUNDS - ROUNDS[-1] / 2)))
    logs = np.log(few.regret[0, :, -1] / few.regret[0, :, half]) / np.log(2)
    assert wide.high - wide.low == pytest.approx(
        2 * 4.302652729911275 * logs.std(ddof=1) / np.sqrt(3), rel=0.05
    )
    one = growth(made({"a": np.sqrt}, replications=1), "a")
    assert one.word == "undecided"


def test_grows():
    result = made({"a": np.sqrt, "b": lambda t: 1.0 * t}, 200)
    cases = [("x", result, "a"), ("x", result, "b"), ("x", result, "missing")]
    assert grows("c", cases[:1]).status == "holds"
    assert grows("c", cases[:1], "linear").status == "fails"
    mixed = grows("c", cases, "linear")
    assert mixed.status == "partly"
    assert mixed.words == "holds only for b (x); does not hold for a (x)"
    assert grows("c", cases[2:]).status == "open"
    assert grows("c", cases[:2], exponents=True).words.endswith("(x) (exponent 0.50 to 1.00)")


def test_at_most():
    curves = {"a": np.sqrt, "b": lambda t: 3 * np.sqrt(t), "c": lambda t: 1.5 * np.sqrt(t)}
    result = made(curves, 200)

    def found(**factors):
        return [compare("x", result, "a", label, factor=f) for label, f in factors.items()]

    assert found(b=1.0)[0].ratio == pytest.approx(1 / 3)
    assert at_most("c", found(b=0.4, c=0.8)).status == "holds"
    verdict = at_most("c", found(b=0.4, c=0.5))
    assert verdict.status == "partly"
    assert verdict.words == (
        "holds only for b (x); does not hold for c (x) (0.33 times b, 0.67 times c)"
    )
    assert at_most("c", []).status == "open"


def test_places_of_panels():
    assert where("", "Gaussian mixture s = 3") == ("Gaussian mixture", "s = 3")
    assert where("a", "Gaussian p 0.1–0.15") == ("a, Gaussian", "p 0.1–0.15")
    assert where("a", "probit") == ("a", "probit")


def test_comparison_is_paired():
    # Replications differ by a factor of two, yet the difference is always of one sign.
    result = made({"a": lambda t: 1.0 * t, "b": lambda t: 1.2 * t}, 400, noise=0.3)
    found = compare("here", result, "a", "b")
    assert found.lower
    assert not found.higher
    assert found.n == 400
    assert found.ratio == pytest.approx(1 / 1.2)
    assert "here: a is 0.83 times b (minus b: " in str(found)


def test_a_bad_run_that_may_have_been_missed_leaves_it_undecided():
    curves = {"a": lambda t: 1.0 * t, "b": lambda t: 1.2 * t, "bad": lambda t: 9.0 * t}
    few = compare("x", made(curves, 12), "a", "b")
    assert (few.lower, few.higher) == (False, False)
    assert str(few).endswith("N = 12; 3 more bad runs could turn it round)")
    assert compare("x", made(curves, 200), "a", "b").lower
    assert compare("x", made(curves, 12), "a", "bad").lower  # so bad that it does not matter


def test_below():
    good = made({"a": np.sqrt, "b": lambda t: 1.0 * t})
    bad = made({"a": lambda t: 2.0 * t, "b": lambda t: 1.0 * t})
    assert below("c", {"x": good}, "a", "b").status == "holds"
    assert below("c", {"x": bad}, "a", "b").status == "fails"
    mixed = below("c", {"x": good, "y": bad}, "a", "b")
    assert mixed.status == "partly"
    assert mixed.words.startswith("holds only for x; does not hold for y (0.01 to 2.00 times")
    assert len(mixed.evidence) == 2
    assert below("c", {"x": good}, "a", "missing").status == "open"
    same = made({"a": np.sqrt, "b": np.sqrt})
    half = below("c", {"x": good, "y": same}, "a", "b")
    assert half.status == "open"
    assert half.words.startswith("undecided at this scale (N = 60) for y; holds for x (")


def test_pairs_of_policies_are_compared_where_both_play():
    one = made({"a": np.sqrt, "b": lambda t: 1.0 * t})
    other = made({"a": np.sqrt})
    cases = compare_all({"x": one, "y": other}, [("a", "b"), ("b", "a")])
    assert [(c.panel, c.first, c.second) for c in cases] == [("x", "a", "b"), ("x", "b", "a")]
    assert lower("c", cases[:1], lambda c: ("", c.panel)).status == "holds"
    assert lower("c", cases[1:], lambda c: ("", c.panel)).status == "fails"


def test_one_bad_case_decides():
    low, high, unsure = (Decision(side, 8, 0.0, 0.0, 0.0, 0.95) for side in (-1, 1, 0))
    verdict = decide("c", [low, low], ": 1 and 2", map(str, (1, 2)))
    assert (verdict.status, verdict.words, verdict.evidence) == (
        "holds", "holds: 1 and 2", ("1", "2"),
    )  # fmt: skip
    assert decide("c", [low, unsure], "").words == "undecided at this scale (N = 8)"
    assert decide("c", [low, high], "").status == "fails"
    assert decide("c", [high, high], "", side=1).status == "holds"


class Named(NamedTuple):
    subject: str
    place: str
    number: int
    n: int = 4


def test_words_of_many_cases():
    cases = [Named("Gaussian", f"p {i}", i) for i in range(6)] + [Named("Mixture", "p 0", 9)]
    verdict = from_cases(
        "c",
        cases,
        good=lambda c: c[2] < 6,
        bad=lambda c: c[2] == 9,
        name=lambda c: (c[0], c[1]),
    )
    assert verdict.words == "holds only in 6 of 7 cases; does not hold for Mixture (p 0)"
    everywhere = from_cases(
        "c", cases, good=lambda c: False, bad=lambda c: c[2] < 6, name=lambda c: (c[0], c[1])
    )
    assert everywhere.words == (
        "does not hold for Gaussian; undecided at this scale (N = 4) for Mixture (p 0)"
    )
    long = [Named(f"policy {i}", f"a panel with a long name {i % 5}", i) for i in range(12)]
    counted = from_cases(
        "c", long, good=lambda c: c[2] < 2, bad=lambda c: c[2] > 8, name=lambda c: (c[0], c[1])
    )
    assert counted.words.endswith("; undecided at this scale (N = 4) for 7 of 12 cases")


LABELS = (
    *mab_study.ZERO_INFLATED, *mab_study.BEYOND, mab_study.STRONG, *mab_study.BASELINES,
    *mab_study.OTHERS,
)  # fmt: skip


def _panel(family, curves):
    everything = {label: curves.get(label, lambda t: 30 * np.log(t)) for label in LABELS}
    maker = RandomMAB(family, probs=(0.3, 0.35))
    return panel(mab_study.panel_name(maker), maker, everything, replications=2000)


@pytest.fixture
def figure_2(tmp_path):
    return Figure2(Context("quick", 0, 1, tmp_path))


def test_study_verdicts_follow_the_curves(figure_2):
    ours = {label: lambda t: 20 * np.log(t) for label in mab_study.ZERO_INFLATED}
    ours["ZI-TS"] = lambda t: 15 * np.log(t)
    ours["ZI-IMED"] = lambda t: 10 * np.log(t)
    theirs = {label: lambda t: 0.2 * t for label in mab_study.BASELINES}
    drawn = [_panel(family, {**ours, **theirs}) for family in FAMILIES]
    assert {v.status for v in figure_2.claims(drawn)} == {"holds"}
    swapped = {label: lambda t: 0.2 * t for label in (*mab_study.ZERO_INFLATED, *mab_study.BEYOND)}
    drawn = [_panel(family, swapped) for family in FAMILIES]
    statuses = [v.status for v in figure_2.claims(drawn)]
    assert statuses[0] == statuses[1] == "fails"
    assert statuses[2] == "holds"  # the strong baseline
    assert set(statuses[3:]) == {"fails"}


def test_study_tables_are_sorted_and_complete(figure_2):
    panel = _panel("gaussian", {"ZI-TS": np.sqrt, "UCB1": lambda t: 1.0 * t})
    (table,) = figure_2.tables([panel])
    assert table.rows[-1][0] == "UCB1"
    assert len(table.rows) == len(panel.result.labels)
    assert all(len(row) == len(table.columns) for row in table.rows)


def test_far_higher_is_undecided_within_the_noise(rng):
    label = mab_study.BASELINES[0]
    ours = lambda t: 20 * np.log(t)  # noqa: E731
    curves = {"ZI-UCB": ours, "ZI-TS": ours, label: lambda t: 50 * np.log(t)}
    clear = made(curves, 50)
    assert mab_study.far_higher(label, {"x": clear}).status == "holds"
    noisy = made(curves)
    noisy.regret[2] *= np.where(np.arange(60) < 5, 12.0, 0.25)[:, None]
    verdict = mab_study.far_higher(label, {"x": noisy})
    assert (verdict.status, verdict.words[:31]) == ("open", "undecided at this scale (N = 60)"[:31])
    close = made({**curves, label: lambda t: 25 * np.log(t)})
    verdict = mab_study.far_higher(label, {"x": close})
    assert verdict.status == "fails"
    assert "at most 1.25 times" in verdict.words
