"""The log of a ledger goes straight into evaluation and advice, and says what it says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import zib
from tests.live.little import START, Little
from zib import InvalidParameterError, ope
from zib.cli import app
from zib.contextual import LaplaceTS
from zib.core.entry import interpreted
from zib.live import Ledger
from zib.live.export import export, flat
from zib.live.outcome import SECOND
from zib.live.pages import looking
from zib.logs import LogError, guess_columns, open_log
from zib.stats.delay import DelayDistribution, pending_weight


@pytest.fixture
def little(tmp_path: Path) -> Iterator[Little]:
    found = Little(tmp_path / "ledger.db", window=80.0, grace=20.0)
    yield found
    found.close()


def exported(little: Little, out: Any = None, **options: Any) -> Any:
    with little.reading() as connection:
        return export(connection, out, now=round(little.now * SECOND), **options)


def test_one_row_per_decision_with_what_is_known_of_it(little: Little) -> None:
    little.decide("a", unit="u1", context=json.dumps({"age": 31, "city": "Ulm"}))
    little.decide("b", arms=(1,), context=json.dumps({"age": 40.5, "car": {"new": True}}))
    little.decide("c")
    little.decide("d")
    little.event("a", 12.5)
    little.event("b", 3.0)
    little.revise("b", 0.0)
    little.cancel("d")
    little.now += 60.0
    little.decide("e")
    little.event("e", 2.0)
    little.now += 40.0  # window and grace of the first ones end now
    found = exported(little)
    assert (found.rows, found.decisions, found.cancelled) == (3, 5, 1)
    assert (found.open_rows, found.open_rewarded) == (1, 1)
    frame = found.frame().set_index("key")
    assert list(frame.index) == ["a", "b", "c"]
    assert frame.reward.tolist() == [12.5, 0.0, 0.0]
    assert frame.unit.tolist() == ["u1", "b", "c"]
    assert frame.arm["b"] == "B"
    assert frame.propensity["b"] == 1.0
    assert frame.propensity["a"] == {"A": 0.7, "B": 0.3}[frame.arm["a"]]
    assert frame.eligible["b"] == '["B"]'
    assert pd.isna(frame.eligible["a"])
    assert frame.decision["a"] == little.book.decision_id("a")
    assert frame.time["a"] == pd.Timestamp(START, unit="s", tz="UTC")
    assert set(frame.kind) == {"policy"}
    assert frame.context_age.tolist()[:2] == [31.0, 40.5]
    assert frame.context_city["a"] == "Ulm"
    assert frame.context_car_new["b"] is True
    assert not frame.pending.any()
    assert "younger than 1.67 minutes" in str(found)
    assert found.context == ("context_age", "context_car_new", "context_city")


def test_decisions_are_chosen_by_time_and_kind(little: Little) -> None:
    little.book.shadow = 0
    little.decide("shadowed")
    little.book.shadow = None
    little.now += 10.0
    little.decide("later")
    little.now += 500.0
    assert exported(little, kind="shadow").frame().key.tolist() == ["shadowed"]
    assert exported(little, kind="policy").frame().key.tolist() == ["later"]
    assert exported(little, since=START + 10).frame().key.tolist() == ["later"]
    assert exported(little, until=START + 10).frame().key.tolist() == ["shadowed"]
    assert exported(little, since="2030-01-01").rows == 0


@pytest.mark.parametrize("name", ["log.csv", "log.parquet"])
def test_the_columns_of_the_file_are_guessed(little: Little, tmp_path: Path, name: str) -> None:
    # names of entries that would be taken for the arm or the reward if they were not marked
    context = json.dumps({"variant": "x", "revenue": 3.0, "date": "2024-01-01", "user": "u"})
    for i in range(40):
        little.decide(f"k{i}", context=context)
    little.event("k3", 7.5)
    little.now += 500.0
    found = exported(little, tmp_path / name)
    guess = guess_columns(tmp_path / name)
    assert guess.roles | {"context": ()} == {
        "arm": "arm", "reward": "reward", "propensity": "propensity", "time": "time",
        "unit": "unit", "cluster": None, "context": (),
    }  # fmt: skip
    log = open_log(tmp_path / name, **guess.roles)
    assert log.n_rows == found.rows == 40
    assert log.arms == ("A", "B")
    assert found.log(context=()).reward.tolist() == log.reward.tolist()


def test_nothing_to_export_is_an_empty_table(little: Little, tmp_path: Path) -> None:
    for name in ("none.csv", "none.parquet"):
        found = exported(little, tmp_path / name)
        assert found.rows == 0
        assert list(found.frame().columns)[:5] == ["decision", "key", "unit", "time", "arm"]


def test_another_value_than_zero_can_mean_that_nothing_happened(tmp_path: Path) -> None:
    little = Little(tmp_path / "mail.db", inflated=-0.05)
    little.decide("a", "b", "c")
    little.event("a", 9.95)
    little.revise("b", -0.05)
    little.now += 500.0
    found = exported(little)
    assert found.frame().set_index("key").reward.to_dict() == {"a": 9.95, "b": -0.05, "c": -0.05}
    assert sorted(found.log().reward) == [0.0, 0.0, 10.0]
    little.close()


def test_contexts_of_a_contextual_bandit_are_exported_as_given(tmp_path: Path) -> None:
    encoder = zib.Encoder().fit([{"age": 20, "land": "IT"}, {"age": 60, "land": "FR"}] * 5)
    with (
        interpreted(),
        Ledger(
            tmp_path / "shop.db", arms=["a", "b"], window=60.0, encoder=encoder, draws=10,
            policy=LaplaceTS(memory=256), background=False, clock=lambda: float(START),
        ) as ledger,
    ):  # fmt: skip
        ledger.decide("one", context={"age": 35, "land": "IT"})
        ledger.decide("two", context={"age": 50, "land": "FR"})
        assert ledger.check()
        with looking(tmp_path / "shop.db") as connection:
            found = export(connection)
    assert found.frame()[["context_age", "context_land"]].values.tolist() == [
        [35.0, "IT"],
        [50.0, "FR"],
    ]
    assert found.log().context_names == ("context_age", "context_land=FR", "context_land=IT")


def test_labels_may_be_numbers(tmp_path: Path) -> None:
    little = Little(tmp_path / "prices.db", labels=(9.5, 12))
    little.decide(*"abcdef")
    little.now += 500.0
    assert set(exported(little).frame().arm) <= {9.5, 12.0}
    little.close()


def busy(little: Little, n: int, seed: int) -> None:
    """Serve A and B 7:3; B pays more often, all of it long after."""
    rng = np.random.default_rng(seed)
    for start in range(0, n, 500):
        keys = [f"k{i}" for i in range(start, min(start + 500, n))]
        pays = rng.random(len(keys))
        for decision, key, u in zip(little.decide(*keys), keys, pays, strict=True):
            if u < {"A": 0.1, "B": 0.3}[decision.arm]:
                little.event(key, float(np.round(rng.lognormal(1.0, 0.3), 2)))
    little.now += 500.0


def test_evaluation_of_the_log_is_what_is_computed_by_hand(little: Little, seed: int) -> None:
    busy(little, 1_000, seed)
    log, frame = exported(little).log(), exported(little).frame()
    found = ope.evaluate(
        log, {"logging": "logging", "B": ope.always("B")}, estimators=["snips", "ips"]
    ).to_frame()
    value = found.set_index(["policy", "estimator"])["value"]
    assert value["logging", "ips"] == pytest.approx(frame.reward.mean())
    is_b = frame.arm == "B"
    weight = is_b / frame.propensity
    assert set(frame.propensity[is_b]) == {0.3}
    assert value["B", "snips"] == pytest.approx((weight * frame.reward).sum() / weight.sum())
    assert value["B", "ips"] == pytest.approx((weight * frame.reward).mean())


@pytest.mark.slow
def test_the_commands_read_the_file(
    little: Little, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.chdir(tmp_path)
    busy(little, 4_000, seed)
    exported(little, tmp_path / "log.parquet")
    result = CliRunner().invoke(app, ["evaluate", "log.parquet", "--policy", "B"])
    assert result.exit_code == 0, result.stderr
    assert "guessed propensity: `propensity`" in result.stderr
    exported(little, tmp_path / "log.csv")
    result = CliRunner().invoke(app, ["advise", "log.csv", "--no-simulate"])
    assert result.exit_code == 0, result.stderr
    assert "guessed arm: `arm`" in result.stderr
    assert "Recommended: zib." in result.output


def pending(little: Little, n: int, seed: int, rate: float = 0.2) -> None:
    """Decisions at an even pace of which the last ones are pending; delays uniform up to 100 s."""
    rng = np.random.default_rng(seed)
    at = START + np.sort(rng.uniform(0.0, 400.0, n))
    little.now = START + 400.0
    for k, when in enumerate(at):
        little.decide(f"k{k}", at=float(when))
        delay = rng.uniform(0.0, 100.0)
        if rng.random() < rate and when + delay < little.now:
            heard = float(when + delay)
            little.event(f"k{k}", 10.0, at=heard, received=heard)


@pytest.mark.slow
def test_pending_decisions_weigh_what_their_age_makes_of_a_zero(little: Little, seed: int) -> None:
    pending(little, 3_000, seed)
    found = exported(little, pending="weight")
    frame = found.frame()
    assert found.rows == 3_000
    still_open = frame.pending & (frame.reward == 0.0)
    age = little.now - frame.time[still_open].astype("int64") / 1e6
    truth = DelayDistribution([0.0, 100.0], [0.0, 1.0])
    # about 120 delays of the open windows are known: F is within 0.15 with probability > 0.99
    assert np.abs(frame.fraction[still_open] - truth(age)).max() < 0.15
    expected = pending_weight(frame.fraction[still_open], 0.2)
    assert frame.weight[still_open].to_numpy() == pytest.approx(expected, abs=0.03)
    assert (frame.weight[~still_open] == 1.0).all()
    # the weighted rate has a standard error of 0.0078; without weights it were 0.175
    assert np.average(frame.reward > 0.0, weights=frame.weight) == pytest.approx(0.2, abs=0.03)
    with pytest.raises(InvalidParameterError, match="weighted rows would count as whole ones"):
        found.log()


@pytest.mark.slow
def test_pending_decisions_are_thinned_like_a_join_does(little: Little, seed: int) -> None:
    pending(little, 3_000, seed)
    thin, weigh = (exported(little, pending=how).frame() for how in ("thin", "weight"))
    again = exported(little, pending="thin").frame()
    assert thin.equals(again)
    assert not thin.equals(exported(little, pending="thin", seed=1).frame())
    kept = weigh[weigh.key.isin(thin.key)]
    assert set(weigh[weigh.weight == 1.0].key) <= set(thin.key)
    # about 560 rows are drawn with their weights: within 4 standard errors but once in 15,000
    uneven = weigh.weight[weigh.weight < 1.0]
    spread = np.sqrt((uneven * (1.0 - uneven)).sum())
    assert abs((kept.weight < 1.0).sum() - uneven.sum()) < 4.0 * spread


def test_bad_arguments_are_answered_in_one_sentence(little: Little, tmp_path: Path) -> None:
    little.decide("a")
    for wrong, words in (
        ({"pending": "all"}, "`pending` must be"),
        ({"kind": "any"}, "`kind` must be"),
        ({"since": "soon"}, "`since` must be a time such as"),
        ({"out": tmp_path / "log.txt"}, "`out` must end with .parquet or .csv; got"),
        ({"out": tmp_path}, "`out` must end with"),
        ({"seed": -1}, "`seed` must lie in"),
    ):
        with pytest.raises(InvalidParameterError, match=words):
            exported(little, **wrong)
    with pytest.raises(LogError, match="`pending` must be 'leave-out': there are fewer than"):
        exported(little, tmp_path / "log.csv", pending="thin")
    assert list(tmp_path.glob("*log*")) == []


def test_contexts_become_columns() -> None:
    assert flat({"a": 1, "b": {"c": [True, None]}}) == {"a": 1, "b_c_0": True, "b_c_1": None}
    assert flat("x") == {"value": "x"}
