"""``zib live`` as a user sees it, beside a ledger that has the database open."""

import json
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from click.testing import Result
from typer.testing import CliRunner

from tests.live.little import Little
from zib.cli import app


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["live", *(str(a) for a in arguments)])


@pytest.fixture
def little(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Little]:
    monkeypatch.chdir(tmp_path)
    found = Little(tmp_path / "ledger.db", labels=("plain", "bundle"), grace=20.0)
    found.decide(*(f"k{i}" for i in range(40)))
    for i in range(0, 40, 4):
        found.event(f"k{i}", 10.0 + i)
    found.event("k0", 10.0, id="again")
    found.event("unknown", 1.0)
    yield found
    found.close()


def test_status_shows_arms_delays_and_what_went_astray(little: Little) -> None:
    result = run("status", "ledger.db")
    assert result.exit_code == 0, result.stderr
    assert "plain" in result.output
    assert "bundle" in result.output
    assert "Model version 1" in result.output
    assert "Parked now: 1, dead letters: 1." in result.output  # it was years ago


def test_status_as_json_has_the_same_numbers(little: Little) -> None:
    found = json.loads(run("status", "ledger.db", "--json").output)
    assert [arm["arm"] for arm in found["arms"]] == ["plain", "bundle"]
    assert sum(arm["decisions"] for arm in found["arms"]) == 40
    assert sum(arm["rewarded"] for arm in found["arms"]) == 10
    assert sum(arm["zeros"] for arm in found["arms"]) == 30  # windows closed years ago
    for arm in found["arms"]:
        assert arm["prob"] == pytest.approx(arm["rewarded"] / arm["decisions"])
        assert arm["prob_interval"][0] < arm["prob"] < arm["prob_interval"][1]
        assert arm["reward"] == pytest.approx(arm["prob"] * arm["magnitude"])
    assert found["parked"] == 1
    assert found["shadow"] is None


def test_check_ends_with_0_for_a_sound_ledger_and_with_1_for_another(little: Little) -> None:
    result = run("check", "ledger.db")
    assert result.exit_code == 0, result.output
    assert result.output.startswith("Sound: the statistics are the fold of the log, 40 decisions")
    assert json.loads(run("check", "ledger.db", "--json").output)["problems"] == []
    little.spoil("UPDATE decision SET value = 11.0 WHERE key = 'k4'")
    result = run("check", "ledger.db")
    assert result.exit_code == 1
    assert "`value` 11.0, but its events say 14.0" in result.output
    result = run("check", "ledger.db", "--json")
    assert result.exit_code == 1
    assert len(json.loads(result.output)["problems"]) == 1


def test_replay_says_what_cannot_be_drawn_again(little: Little) -> None:
    result = run("replay", "ledger.db")
    assert result.exit_code == 0
    assert "40 cannot be: their model versions are not kept any more" in result.output
    assert json.loads(run("replay", "ledger.db", "--json").output)["replayed"] == 0


def test_export_writes_a_log_and_says_what_to_do_next(little: Little) -> None:
    result = run("export", "ledger.db", "log.csv")
    assert result.exit_code == 0, result.stderr
    assert "40 rows in log.csv, of 40 decisions." in result.output
    assert "Next: zib evaluate log.csv" in result.output
    assert pd.read_csv("log.csv").reward.gt(0.0).sum() == 10
    found = json.loads(run("export", "ledger.db", "log.parquet", "--json").output)
    assert found["rows"] == len(pd.read_parquet("log.parquet")) == 40
    assert run("export", "ledger.db", "log.csv", "--since", "2030-01-01").exit_code == 0
    assert len(pd.read_csv("log.csv")) == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("check", "none.db"), "there is no database none.db"),
        (("status", "ledger.db", "--name", "other"), "which has 'default'; got 'other'"),
        (("export", "ledger.db", "log.txt"), "`out` must end with .parquet or .csv"),
        (("export", "ledger.db", "log.csv", "--pending", "all"), "`pending` must be"),
        (("export", "ledger.db", "log.csv", "--since", "soon"), "`since` must be a time"),
        (("status", "text.txt"), "file is not a database"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_sentence(
    little: Little, arguments: tuple[str, ...], words: str
) -> None:
    Path("text.txt").write_text("not a database, but long enough to be looked at" * 10)
    result = run(*arguments)
    assert result.exit_code == 2
    assert words in " ".join(result.stderr.split())
