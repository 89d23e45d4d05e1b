"""Every item: what it declares is sound, and it can judge whatever comes out."""

from __future__ import annotations

import re

import numpy as np
import pytest
from tests.experiments.made import played, quick

from zib.cases.loan import synthetic_loan_records
from zib.experiments import conditions, loan_study, mab_study, runner
from zib.experiments.harness import Experiment, Panel, Played, Scaled, Simulated, amount, play
from zib.experiments.judge import judged
from zib.experiments.record import Context, Setting

ITEMS = runner.experiments()
SIMULATED = [name for name, item in ITEMS.items() if issubclass(item, Simulated)]


@pytest.fixture(scope="module")
def book():
    records = synthetic_loan_records(2000, seed=2)
    return loan_study.Book("synthetic", records, loan_study.default_cuts(records))


@pytest.fixture
def few_records(monkeypatch, book):
    monkeypatch.delenv(loan_study.FOLDER_VARIABLE, raising=False)
    monkeypatch.setattr(loan_study, "synthetic_book", lambda seed: book)


@pytest.mark.parametrize("name", ITEMS)
def test_an_item_declares_sound_settings(name, tmp_path, few_records):
    item = ITEMS[name]
    assert item.id == name
    assert item.weight > 0
    assert item.title
    assert item.about.endswith(".")
    for scale in ("quick", "paper"):
        settings = list(item(Context(scale, 0, 1, tmp_path)).settings())
        assert settings
        assert {setting.source for setting in settings} <= {"paper", "ours", "fix"}
        assert all(setting.name and setting.value for setting in settings)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        *((name, "drawn independently") for name in ("fig2", "figS1", "figS2")),
        *((name, "ρ = 0.9, γ = 4") for name in ("fig2", "figS1", "figS2")),
        ("fig4", "λ = 1 (the text"),
    ],
)
def test_what_the_text_leaves_open_is_ours(name, words, tmp_path, few_records):
    settings = ITEMS[name](Context("quick", 0, 1, tmp_path)).settings()
    assert [s.source for s in settings if words in s.value] == ["ours"]


def made_up(experiment):
    """Return the panels of an item as if they had been played."""
    found = []
    for panel in experiment.panels():
        if "tuned" in panel.name:
            continue  # takes a pilot
        policies = panel.policies() if callable(panel.policies) else panel.policies
        curves = {label: (lambda t, i=i: (1 + i) * t**0.6) for i, label in enumerate(policies)}
        found.append(played(panel, curves, replications=3))
    return found


@pytest.mark.parametrize("name", SIMULATED)
def test_a_simulated_item_tabulates_and_judges(name, tmp_path, few_records):
    experiment = ITEMS[name](quick(tmp_path))
    found = made_up(experiment)
    names = [panel.name for panel in found]
    assert len(names) == len(set(names))
    assert all(panel.horizon > 0 and panel.replications >= 2 for panel in found)
    for table in experiment.tables(found):
        assert all(len(row) == len(table.columns) for row in table.rows)
    verdicts = judged(lambda: experiment.claims(found))
    assert {v.status for v in verdicts} <= {"holds", "partly", "fails", "open"}
    assert len({v.claim for v in verdicts}) == len(verdicts)
    assert all(experiment.notes(found))
    for verdict in verdicts:
        if verdict.status == "open":  # three runs decide little, and the words say how many
            assert re.search(r"at this scale|not measured here", verdict.words), verdict.words


@pytest.mark.parametrize("name", SIMULATED)
def test_quick_scale_asks_the_same_question_or_another_one_in_words(name, tmp_path, few_records):
    asked, claims = [], []
    for scale in ("quick", "paper"):
        experiment = ITEMS[name](Context(scale, 0, 1, tmp_path))
        found = made_up(experiment)
        asked.append([(p.env, p.horizon, p.result.labels) for p in found])
        claims.append({v.claim: v.words for v in experiment.claims(found)})
    same_tasks = repr([task[:2] for task in asked[0]]) == repr([task[:2] for task in asked[1]])
    if repr(asked[0]) == repr(asked[1]):
        assert set(claims[0]) == set(claims[1])
    elif same_tasks:  # some policies play at paper scale only: a claim names those it is about
        assert set(claims[0]) != set(claims[1])
    else:
        for claim in set(claims[0]) & set(claims[1]):
            assert claims[0][claim].startswith("not asked at this scale")


@pytest.mark.parametrize("name", ["fig2", "figS1", "figS2", "fig3", "figS3", "links", "conditions"])
def test_a_comparison_names_the_settings_it_holds_for(name, tmp_path, few_records):
    experiment = ITEMS[name](quick(tmp_path))
    compared = [
        v.claim
        for v in experiment.claims(made_up(experiment))
        if re.search(r"lower|lowest|below|at most", v.claim)
    ]
    assert compared
    for claim in compared:
        assert "σ" in claim
        assert re.search(r"T = \d+", claim)
        assert re.search(r"p from \S+ to \S+,|K = 100, d = 10, s = ", claim)


def test_the_answer_follows_the_magnitudes(tmp_path):
    """Ratios of ZI-UCB to the strong baseline on either side of 1 are told apart."""
    experiment = ITEMS["conditions"](quick(tmp_path))
    panels = experiment.panels()
    assert len(panels) == len(conditions.GRID)
    levels = [1.4, 1.35, 1.1, 0.9, 0.9]
    found = [
        played(panel, {"ZI-UCB": lambda t, x=x: x * t**0.5, mab_study.STRONG: np.sqrt}, 200)
        for panel, x in zip(panels, levels)
    ]
    (verdict,) = experiment.claims(found)
    assert verdict.status == "partly"
    assert verdict.words.startswith(
        "holds only for mu ~ U[1, 3], σ = 3 and mu ~ U[0.2, 1], σ = 1; does not hold for "
    )
    (table,) = experiment.tables(found)
    assert [row[-1] for row in table.rows] == ["1.40", "1.35", "1.10", "0.90", "0.90"]


def test_a_scaled_value_is_that_of_the_scale(tmp_path):
    class Item(Experiment[None]):
        runs = Scaled(quick=3, paper=50)

        def settings(self):
            return ()

        def measure(self):
            return None

    assert Item(Context("quick", 0, 1, tmp_path)).runs == 3
    assert Item(Context("paper", 0, 1, tmp_path)).runs == 50
    assert Item.runs.paper == 50


def test_the_source_of_an_amount():
    assert amount("horizon", "T", 100, 100) == Setting("horizon", "T = 100", "paper")
    assert amount("horizon", "T", 10, 100).source == "ours"


def test_playing_one_panel(tmp_path):
    import zib

    env = zib.env.GaussianMAB(means=[1.0, 2.0], probs=[0.5, 0.5], sigma=0.5)
    told = []
    panel = Panel(
        name="two arms",
        env=env,
        policies=lambda: {"ε-greedy": zib.mab.EpsilonGreedy(epsilon=0.1)},
        horizon=20,
        replications=2,
        reference=lambda rounds: {"line": 0.1 * rounds},
    )
    found = play(quick(tmp_path), panel, lambda done, total: told.append(done / total))
    assert isinstance(found, Played)
    assert found.title == found.name == "two arms"
    assert list(found.policies) == list(found.result.labels) == ["ε-greedy"]
    np.testing.assert_allclose(found.references["line"][-1], 2.0)
    assert told[-1] == 1.0
