"""The map of settings: cells hold what was drawn there, and the picture says what the cells say."""

from __future__ import annotations

import numpy as np
import pytest
from tests.experiments.made import quick

from zib.core.rng import Role, stream
from zib.env.arrays import world_of
from zib.experiments import regions
from zib.experiments.harness import play
from zib.experiments.regions import AnySetting, Cell, Compared, Regions


class Small(Regions):
    horizon = 60
    replications = 300


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    experiment = Small(quick(tmp_path_factory.mktemp("regions")))
    (panel,) = experiment.panels()
    return experiment, [play(experiment.context, panel)]


def test_settings_are_those_that_were_played() -> None:
    maker = AnySetting("gaussian", sigma=1.0)
    world = world_of(maker, 4, 0, 30)
    for r in range(30):
        level, width, rate = maker.setting(stream(4, Role.INSTANCE, r))
        instance = maker.instance(stream(4, Role.INSTANCE, r))
        np.testing.assert_array_equal(world.arrays.law.mean[r], instance.magnitudes)
        assert np.abs(instance.magnitudes / level - 1.0).max() <= width
        assert np.abs(instance.probs / rate - 1.0).max() <= regions.PROB_HALF + 1e-12


def test_every_replication_is_in_one_cell(found) -> None:
    experiment, played = found
    cells = experiment.cells(played)
    assert 0 < sum(cell.n for cell in cells) <= 300
    assert all(cell.n >= regions.FEWEST_RUNS for cell in cells)
    mean = dict(zip(played[0].result.labels, played[0].result.mean()[:, -1]))
    pair = regions.TS, regions.STRONG
    ratios = [cell.found[pair].ratio for cell in cells]
    assert min(ratios) <= mean[pair[0]] / mean[pair[1]] <= max(ratios)


def test_it_can_be_judged_tabled_and_drawn(found) -> None:
    experiment, played = found
    verdicts = list(experiment.claims(played))
    assert len(verdicts) == 6
    assert {verdict.status for verdict in verdicts} <= {"holds", "partly", "fails", "open"}
    (table,) = experiment.tables(played)
    assert len(table.rows) == 12
    (drawn,) = experiment.figures(played)
    assert set(drawn.numbers["side"]) <= {-1, 0, 1}
    assert len(drawn.numbers) == 6 * len(experiment.cells(played))


def cell(side: int, level: float) -> Cell:
    return Cell("wide", level, 0.1, 0, 0, 50, {("a", "b"): Compared(2.0**side, side)})


@pytest.mark.parametrize(
    ("sides", "status", "words"),
    [
        ((-1, -1), "holds", "holds in every cell"),
        ((1, 0), "fails", "does not hold: less in 0 %, more in 50 % of the cells"),
        ((-1, 0), "open", "undecided at this scale (N = 50): less in 50 %, more in 0 %"),
        ((-1, 1), "partly", "the median mu/σ is 1 where it is less and 4 where it is more"),
    ],
)
def test_words_follow_from_the_cells(sides, status, words) -> None:
    cells = [cell(side, level) for side, level in zip(sides, (1.0, 4.0))]
    verdict = regions._verdict("a claim", ("a", "b"), cells)
    assert verdict.status == status
    assert words in verdict.words


def test_a_clear_difference_is_decided_and_none_is_not() -> None:
    rng = np.random.default_rng(0)
    regret = {label: rng.normal(10.0, 1.0, 80) for label in (*regions.OURS, *regions.THEIRS)}
    regret[regions.TS] = regret[regions.STRONG] - 5.0
    found = regions._compared(regret, level=1.0 - 1e-4)
    assert found[regions.TS, regions.STRONG].side == -1
    assert found[regions.TIGHT, regions.MOTS].side == 0
