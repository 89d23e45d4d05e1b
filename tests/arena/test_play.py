"""Playing, comparing and ranking; small, so that each test takes a moment."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import zib
from zib.arena import DEFAULT, Match, Outcome, World, drawn, play
from zib.arena.outcome import (
    best_of_the_other_half,
    clearly_beyond,
    mean_of,
    rare_of,
    to_the_best,
)
from zib.arena.page import PAGE, sentence
from zib.arena.rivals import PER_ARM
from zib.core.validate import InvalidParameterError

FEW = (DEFAULT, "ε-greedy", "Normal TS (told sd)")
GREEDY = {"greedy": zib.mab.EpsilonGreedy(epsilon=0.0)}
ONE = drawn(1, seed=1, kinds="plain", horizon=50)


@pytest.fixture(scope="module")
def small() -> Outcome:
    places = drawn(3, seed=4, kinds=["plain", "odd"], horizon=300)
    return play(GREEDY, places, replications=8, seed=4, against=FEW, workers=1)


def made(regrets: dict[str, np.ndarray], name: str = "a", kind: str = "plain") -> Match:
    env = zib.env.GaussianMAB(means=[1.0, 2.0], probs=[0.1, 0.1], sigma=0.5)
    world = World(name=name, kind=kind, about="", env=env, horizon=100)
    told = tuple("something" if label.endswith("(told sd)") else "" for label in regrets)
    return Match(world, tuple(regrets), told, np.stack(list(regrets.values())), ("x",))


def test_the_best_is_chosen_by_other_runs() -> None:
    rng = np.random.default_rng(0)
    runs = rng.gamma(5.0, 1.0, (20, 200))  # twenty policies that are all alike
    chosen = best_of_the_other_half(runs, range(20), mean_of)
    assert [half for half, _ in chosen] == [slice(100, 200), slice(0, 100)]
    assert chosen[0][1] == runs[:, :100].mean(axis=1).argmin()
    naive = runs.mean() / runs.mean(axis=1).min()
    assert naive > 1.04
    # the sd of the average ratio is about 0.03: four of them
    assert to_the_best(runs, range(20), mean_of).mean() == pytest.approx(1.0, abs=0.12)


def test_ratios_of_known_regrets() -> None:
    one = np.linspace(1.0, 3.0, 100)
    runs = np.stack([one, 2.0 * one, 4.0 * one])
    assert to_the_best(runs, [0, 1, 2], mean_of) == pytest.approx([1.0, 2.0, 4.0])
    assert to_the_best(runs, [1, 2], rare_of) == pytest.approx([0.5, 1.0, 2.0])
    assert clearly_beyond(runs, [0, 1, 2], 1.15) == [False, True, True]
    nothing = np.zeros((2, 10))
    nothing[1] = 1.0
    assert to_the_best(nothing, [0, 1], mean_of).tolist() == [1.0, np.inf]


def test_ranking_of_known_regrets() -> None:
    base = np.linspace(1.0, 3.0, 40)
    first = made({DEFAULT: 1.1 * base, "b": base, "Normal TS (told sd)": 2 * base}, "one")
    second = made({DEFAULT: base, "b": 3 * base, "Normal TS (told sd)": 2 * base}, "two", "odd")
    found = Outcome((first, second), (DEFAULT,), seed=1)
    table = found.table().set_index(["world", "policy"])
    assert table.loc[("one", DEFAULT), "to Normal TS"] == pytest.approx(0.55)
    assert table.loc[("two", "Normal TS (told sd)"), "to the best"] == pytest.approx(2.0)
    ranking = found.ranking().set_index("policy")
    assert list(ranking.index) == [DEFAULT, "b", "Normal TS (told sd)"]
    row = ranking.loc[DEFAULT]
    assert row["mean: median"] == pytest.approx(1.05)
    assert row["mean: worst"] == pytest.approx(1.1)
    assert row["mean: within"] == 1.0
    assert row["q99: worst"] == pytest.approx(1.1)
    assert ranking.loc["b", "clearly beyond"] == 0.5
    assert found.ranking("odd")["policy"].iloc[0] == DEFAULT
    assert found.by_kind().loc["b"].tolist() == pytest.approx([1.0, 3.0])
    assert "1.05 times the best of all in the median of 2 worlds" in sentence(found, DEFAULT)
    assert repr(found).startswith("Outcome: 2 worlds, 40 replications, seed 1\n  ZI adaptive")


def test_who_is_told_which_arm_is_which_is_not_the_best() -> None:
    base = np.linspace(1.0, 3.0, 40)
    match = made({DEFAULT: base, "UCB true size (told)": 0.1 * base})
    known = match._replace(told=("", PER_ARM))
    ratios = Outcome((known,), (DEFAULT,), seed=1).table()["to the best"]
    assert ratios.tolist() == pytest.approx([1.0, 0.1])


def test_entries_play_with_their_rivals(small: Outcome) -> None:
    assert small.entered == ("greedy", DEFAULT)
    assert small.labels[:2] == (DEFAULT, "ε-greedy")
    assert [match.regret.shape[1] for match in small.matches] == [8, 8, 8]
    table = small.table()
    assert set(table["policy"]) >= {"greedy", DEFAULT}
    assert (table["low"] <= table["regret"]).all()
    assert (table["q99"] >= table["regret"]).all()


def test_a_seed_plays_the_same_again(small: Outcome) -> None:
    places = drawn(3, seed=4, kinds=["plain", "odd"], horizon=300)
    again = play(GREEDY, places[:1], replications=8, seed=4, against=FEW, workers=1)
    assert (again.matches[0].regret == small.matches[0].regret).all()
    assert again.matches[0].hashes == small.matches[0].hashes


def test_page_and_tables(small: Outcome, tmp_path: Path) -> None:
    page = small.save(tmp_path / "out")
    assert page.name == PAGE
    names = {path.name for path in page.parent.iterdir()}
    assert names == {PAGE, "ratios.png", "ratios.svg", "ratios.csv", "table.csv", "ranking.csv",
                     "worlds.csv", "regrets.npz"}  # fmt: skip
    text = page.read_text(encoding="utf-8")
    for world in small.worlds:
        assert world.name in text
    assert "greedy: " in text
    assert f"seed {small.seed}" in text
    with np.load(page.parent / "regrets.npz") as arrays:
        assert (arrays["000"] == small.matches[0].regret).all()


def test_ctrl_c_keeps_what_is_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    places = drawn(3, seed=4, kinds="plain", horizon=100)
    simulate, calls = zib.simulate, []

    def stop_at_the_second(*args, **options):
        calls.append(args)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return simulate(*args, **options)

    monkeypatch.setattr(zib, "simulate", stop_at_the_second)
    found = play(GREEDY, places, replications=4, against=["ε-greedy"], workers=1)
    assert found.interrupted
    assert len(found.matches) == 1
    calls[:] = [None]  # so that the next one is the second
    with pytest.raises(KeyboardInterrupt):
        play(GREEDY, places, replications=4, against=["ε-greedy"], workers=1)


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        ((GREEDY,), {"replications": 3}, r"`replications` must lie in \[4, 10000000\]; got 3"),
        ((GREEDY, []), {}, "`worlds` must hold at least one world; got none"),
        ((GREEDY, ["a"]), {}, "`worlds` must hold worlds of zib.arena; got 'a'"),
        ((GREEDY, [*ONE, *ONE]), {}, "`worlds` must have different names; got '1-000 .*' twice"),
        (([zib.mab.UCB1(), zib.mab.UCB1()],), {}, "`policies` must have different labels"),
        ((GREEDY,), {"backend": "fast"}, "`backend` must be one of"),
        ((GREEDY,), {"target": 0.5}, r"`target` must lie in \[1, inf\); got 0.5"),
    ],
)
def test_wrong_arguments_are_refused_in_a_sentence(arguments, options, words: str) -> None:
    if len(arguments) == 1:
        arguments = (*arguments, ONE)
    with pytest.raises(InvalidParameterError, match=words):
        play(*arguments, **options)


def test_somebody_has_to_play() -> None:
    places = drawn(1, seed=1, kinds="plain", horizon=50)
    with pytest.raises(InvalidParameterError, match="`policies` must hold a policy that plays"):
        play([zib.contextual.LaplaceTS()], places, against=False)


@pytest.mark.slow
def test_every_kind_of_world_is_played() -> None:
    """One drawn world of each kind with all its rivals."""
    places = [
        world
        for kind in ("plain", "many", "odd", "drifting", "contextual")
        for world in drawn(1, seed=1, kinds=kind, horizon=200)
    ]
    found = play(None, places, replications=4, workers=2)
    assert len(found.matches) == 5
    assert found.entered == (DEFAULT,)
    assert np.isfinite(found.table()["regret"]).all()
