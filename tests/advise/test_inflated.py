"""Logs in which another reward than zero means that nothing happened."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from zib.cli import app
from zib.logs import LoggedData, LogScan
from zib.logs.advise import advise

COST = -0.05


def frame_of(rng, n=1500):
    arm = rng.choice(["a", "b"], n)
    paid = rng.random(n) < np.where(arm == "a", 0.1, 0.2)
    reward = np.where(paid, rng.normal(5.0, 1.0, n).round(2), 0.0)
    return pd.DataFrame({"ad": arm, "spent": reward, "day": np.arange(n) % 50, "p": 0.5})


def both(frame, **options):
    roles = {"arm": "ad", "reward": "spent", "propensity": "p", "time": "day"}
    costly = frame.assign(spent=frame["spent"] + COST)
    return (
        advise(LoggedData.from_frame(frame, **roles), **options),
        advise(LoggedData.from_frame(costly, inflated=COST, **roles), **options),
    )


def test_means_are_in_the_units_of_the_log_and_the_rest_is_the_same(rng) -> None:
    one, other = both(frame_of(rng), simulate=False)
    assert other.inflated == COST
    for a, b in zip((*one.arms, one.overall), (*other.arms, other.overall), strict=True):
        assert b.p == a.p
        for part in ("mu", "r"):
            assert getattr(b, part) == pytest.approx(tuple(x + COST for x in getattr(a, part)))
        if a.weighted is not None:
            assert b.weighted.r == pytest.approx(tuple(x + COST for x in a.weighted.r))
    assert other.verdict.kind == one.verdict.kind
    assert other.verdict.value == pytest.approx(one.verdict.value + COST)
    (first,), (second,) = one.verdict.differences, other.verdict.differences
    assert second.single == pytest.approx(first.single)
    assert other.law.best.name == one.law.best.name
    course, shifted = one.times.courses[0], other.times.courses[0]
    assert np.allclose(shifted.r.value, course.r.value + COST)
    assert np.allclose(shifted.p.value, course.p.value)
    assert "A reward of −0.05 means that nothing happened" in " ".join(other.notes).replace(
        "-", "−"
    )
    assert "inflated=log.inflated / unit" in other.recommendation.snippet
    assert "inflated=-0.05" in other.recommendation.snippet
    assert "inflated" not in one.recommendation.snippet


def test_a_usual_reward_that_is_not_zero_is_pointed_out(rng) -> None:
    frame = frame_of(rng)
    frame["spent"] += COST
    plain = advise(LoggedData.from_frame(frame, arm="ad", reward="spent"), simulate=False)
    assert any("--inflated -0.05" in note for note in plain.notes)


def test_blank_rewards_and_scans_count_from_it_too(rng, tmp_path: Path) -> None:
    frame = frame_of(rng, 200)
    frame["spent"] = (frame["spent"] + COST).where(frame["spent"] != 0.0)
    frame.to_csv(tmp_path / "log.csv", index=False)
    scan = LogScan(
        tmp_path / "log.csv", arm="ad", reward="spent", missing_reward="zero", inflated=COST
    )
    (batch,) = scan.batches()
    assert scan.inflated == COST
    assert np.array_equal(batch.reward == 0.0, frame["spent"].isna())


@pytest.mark.slow
def test_earnings_and_program(rng, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = frame_of(rng)
    one, other = both(frame, horizon=200, replications=4)
    for a, b in zip(one.simulation.earned, other.simulation.earned, strict=True):
        assert b.total == pytest.approx(tuple(x + 200 * COST for x in a.total))
        assert b.above_uniform == pytest.approx(a.above_uniform)
    monkeypatch.chdir(tmp_path)
    frame.assign(spent=frame["spent"] + COST).to_csv("log.csv", index=False)
    result = CliRunner().invoke(
        app,
        ["advise", "log.csv", "--inflated", "-0.05", "--no-simulate", "--horizon", "50",
         "--randomised"],
    )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    program = Path("advice/policy.py").read_text()
    namespace: dict = {}
    exec(compile(program, "policy.py", "exec"), namespace)
    found = namespace["bandit"].means()
    for arm in ("a", "b"):
        mean = (frame["spent"] + COST)[frame["ad"] == arm].mean()
        assert found[arm].reward * namespace["unit"] == pytest.approx(mean, abs=0.15)
