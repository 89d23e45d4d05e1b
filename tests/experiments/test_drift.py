"""The experiment on arms that change: verdicts from made-up curves, and a short run."""

from __future__ import annotations

import numpy as np
import pytest
from tests.experiments.made import panel, small

from zib.env import make
from zib.experiments import drift
from zib.experiments.drift import Drift
from zib.experiments.harness import Scaled
from zib.experiments.record import Context, Record

LABELS = tuple(label for group in Drift.look.groups.values() for label in group)
FORGETFUL = tuple(
    drift.forgetful(x, how) for x in (drift.POSTERIOR, drift.IMED) for how in drift.FORGETTING
)
PLAIN = (drift.POSTERIOR, drift.IMED)


def world(name, curves):
    return panel(drift.WORLDS[name], make(name), curves)


def verdicts(panels):
    return Drift(None).claims(panels)


def curves(plain, forgetful, ucb1, watching):
    return {
        **dict.fromkeys((*PLAIN, drift.ADAPTIVE), plain),
        drift.WATCHING: watching,
        **dict.fromkeys(FORGETFUL, forgetful),
        "UCB1, discounted": ucb1,
    }


MOVING = curves(lambda t: 0.2 * t, lambda t: 0.05 * t, lambda t: 0.3 * t, lambda t: 0.03 * t)
STILL = curves(
    lambda t: 20.0 * np.log(t), lambda t: 0.05 * t, lambda t: 0.3 * t, lambda t: 5.0 * np.log(t)
)
NAMES = tuple(drift.WORLDS)


def test_every_claim_holds_where_the_curves_say_so():
    panels = [world(NAMES[0], MOVING), world(NAMES[1], MOVING), world(NAMES[2], STILL)]
    found = verdicts(panels)
    assert [v.status for v in found] == ["holds"] * 7
    assert "0.25 times the regret of the policy as it is" in found[0].words


def test_every_claim_fails_where_the_curves_say_the_opposite():
    moving = curves(lambda t: 0.05 * t, lambda t: 0.2 * t, lambda t: 0.1 * t, lambda t: 0.3 * t)
    still = curves(
        lambda t: 0.2 * t,
        lambda t: 20.0 * np.log(t),
        lambda t: 10.0 * np.log(t),
        lambda t: 0.3 * t,
    )
    panels = [world(NAMES[0], moving), world(NAMES[1], moving), world(NAMES[2], still)]
    assert {v.status for v in verdicts(panels)} == {"fails"}


def test_verdicts_without_the_still_world_are_open():
    found = verdicts([world(NAMES[0], MOVING)])
    wanted = ["holds", "holds", "open", "open", "open", "holds", "holds"]
    assert [v.status for v in found] == wanted


def test_each_world_moves_one_part():
    for name, words in drift.WORLDS.items():
        maker = make(name)
        assert (maker.prob_speed > 0) == ("only p" in words)
        assert (maker.mean_speed > 0) == ("only mu" in words)


def test_who_plays():
    maker = make(NAMES[0])
    assert set(drift.policies(maker, imed=True)) == set(LABELS)
    assert not any("IMED" in label for label in drift.policies(maker, imed=False))


@pytest.mark.slow
def test_a_short_run(tmp_path):
    told = []
    context = Context("quick", 1, 1, tmp_path, lambda message, done: told.append(done))
    record = small(Drift, horizon=400, replications=Scaled(quick=2, paper=2)).run(context)
    assert (record.id, record.scale, record.interrupted) == ("drift", "quick", False)
    assert len(record.verdicts) == 7
    assert {row[0] for row in record.tables[0].rows} <= set(LABELS)
    for end in ("png", "svg", "csv"):
        assert (tmp_path / f"drift.{end}").stat().st_size > 0
    record.save(tmp_path)
    assert Record.load(tmp_path / "record.json") == record
    assert told[:-1] == sorted(told[:-1])
    assert told[-1] == pytest.approx(0.97)
