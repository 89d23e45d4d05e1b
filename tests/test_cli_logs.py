"""``zib advise`` and ``zib evaluate`` as a user sees them."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import Result
from typer.testing import CliRunner

import zib
from zib import ope
from zib.cli import app
from zib.logs import LoggedData


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(a) for a in arguments])


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(2)
    n = 6_000
    variant = rng.choice(["a", "b"], n, p=[0.7, 0.3])
    wave = rng.integers(1, 3, n)
    pays = rng.random(n) < np.where(variant == "a", 0.03, 0.06)
    pd.DataFrame(
        {
            "variant": variant,
            "revenue": np.where(pays, rng.gamma(2.0, 10.0, n), 0.0),
            "propensity": np.where(variant == "a", 0.7, 0.3),
            "wave": wave,
        }
    ).to_csv("log.csv", index=False)
    return tmp_path / "log.csv"


def test_advise_guesses_columns_and_writes_everything(log: Path) -> None:
    result = run("advise", log, "--no-simulate", "--out", "answer")
    assert result.exit_code == 0, result.stderr
    assert "guessed arm: `variant`" in result.stderr
    assert "guessed reward: `revenue`" in result.stderr
    assert "Recommended: zib." in result.output
    assert {"advice.html", "advice.json", "policy.py", "arms.png"} <= {
        file.name for file in Path("answer").iterdir()
    }
    saved = json.loads(Path("answer/advice.json").read_text())
    assert saved["overall"]["rows"] == 6_000
    assert "log.csv" in Path("answer/policy.py").read_text()


def test_evaluate_prints_and_writes_what_the_library_says(log: Path) -> None:
    result = run(
        "evaluate", log, "--policy", "b", "--policy", "mix=a:0.5,b:0.5", "--policy", "uniform"
    )
    assert result.exit_code == 0, result.stderr
    data = LoggedData.read(log, arm="variant", reward="revenue", propensity="propensity")
    expected = ope.evaluate(data, {"always b": "b"}, baseline="logging").value("always b", "snips")
    assert f"{expected.value:.5g}" in result.output
    saved = json.loads(Path("evaluation/evaluation.json").read_text())
    names = {row["policy"] for row in saved["values"]}
    assert names == {"always b", "mix", "uniform", "logging"}
    page = Path("evaluation/evaluation.html").read_text()
    assert "data:image/png;base64" in page
    assert "minus logging" in page.lower()
    frame = pd.read_csv("evaluation/values.csv")
    row = frame[(frame["policy"] == "always b") & (frame["estimator"] == "snips")]
    assert float(row["value"].iloc[0]) == pytest.approx(expected.value, rel=1e-12)


def test_evaluate_all_arms_by_default_with_strata(log: Path) -> None:
    result = run("evaluate", log, "--strata", "wave", "--estimator", "ips", "--against", "uniform")
    assert result.exit_code == 0, result.stderr
    data = LoggedData.read(log, arm="variant", reward="revenue", context=["wave"])
    by_hand = ope.propensities_by(data, ["wave"])
    assert by_hand.propensity is not None
    weighted = np.where(data.arm == 0, data.reward / by_hand.propensity, 0.0).mean()
    assert f"{weighted:.5g}" in result.output


def test_a_saved_bandit_can_be_evaluated(log: Path) -> None:
    bandit = zib.Bandit(zib.mab.UCB1(scale=50.0), arms=["a", "b"], seed=0)
    bandit.update("a", 0.0)
    bandit.save("mine.json")
    result = run("evaluate", log, "--policy", "mine.json", "--estimator", "ips")
    assert result.exit_code == 0, result.stderr
    assert "mine" in result.output


def test_estimated_propensities_come_with_a_warning(log: Path) -> None:
    frame = pd.read_csv(log).drop(columns="propensity")
    frame.to_csv("plain.csv", index=False)
    result = run("evaluate", "plain.csv", "--policy", "b", "--estimator", "ips")
    assert result.exit_code == 0, result.stderr
    assert "warning: propensities are estimated from the log" in result.stderr


@pytest.mark.slow
def test_randomised_and_shares_are_graded_as_such(log: Path) -> None:
    frame = pd.read_csv(log).drop(columns="propensity")
    frame.to_csv("plain.csv", index=False)
    for more in (["--randomised"], ["--shares", "a:0.7,b:0.3"]):
        result = run("evaluate", "plain.csv", "--policy", "b", "--estimator", "snips", *more)
        assert result.exit_code == 0, result.stderr
        assert "warning" not in result.stderr
        assert "propensities randomised" in result.output
        assert "caution" not in result.output
        advised = run("advise", "plain.csv", "--no-simulate", "--context", "wave", *more)
        assert advised.exit_code == 0, advised.stderr
        assert "assumes that they were drawn at random" not in advised.output
    wrong = run("advise", "plain.csv", "--no-simulate", "--shares", "a:0.5,b:0.5")
    assert "The arms do not occur with the shares given" in wrong.output


def test_against_takes_what_policy_takes(log: Path) -> None:
    result = run("evaluate", log, "--policy", "b", "--against", "a", "--estimator", "snips")
    assert result.exit_code == 0, result.stderr
    assert "minus always a:" in result.output
    mixed = run("evaluate", log, "--policy", "b", "--against", "half=a:0.5,b:0.5")
    assert "minus half:" in mixed.output


def test_learned_policies_are_cross_fitted(log: Path) -> None:
    result = run("evaluate", log, "--policy", "learned:best", "--policy", "learned:greedy")
    assert result.exit_code == 0, result.stderr
    assert "learned:best" in result.output
    data = LoggedData.read(log, arm="variant", reward="revenue", propensity="propensity")
    expected = ope.evaluate(data, {"it": ope.learned("best")}).value("it", "snips")
    assert f"{expected.value:.5g}" in result.output


@pytest.mark.usefixtures("interpreting")
def test_a_saved_contextual_bandit_can_be_evaluated(log: Path) -> None:
    frame = pd.read_csv(log).head(300)
    frame.to_csv("short.csv", index=False)
    bandit = zib.ContextualBandit(
        arms=["a", "b"], encoder=zib.Encoder().fit(frame[["wave"]]), seed=0
    )
    half = frame.head(100)
    bandit.update_many(half["variant"], half["revenue"], half[["wave"]])
    bandit.save("mine.json")
    result = run("evaluate", "short.csv", "--policy", "mine.json", "--context", "wave")
    assert result.exit_code == 0, result.stderr
    assert "mine" in result.output


BAD = {
    "no such file": (["none.csv"], "there is no file none.csv"),
    "no such column": (["log.csv", "--arm", "varant"], "has no column 'varant'"),
    "unknown policy": (["log.csv", "--policy", "c"], "`--policy` must be uniform, logging, an arm"),
    "bad share": (["log.csv", "--policy", "m=a:x"], "must give shares as ARM:SHARE"),
    "shares do not add up": (["log.csv", "--policy", "m=a:.2,b:.2"], "must sum to 1"),
    "unknown estimator": (["log.csv", "--estimator", "dro"], "did you mean 'dr'?"),
    "level": (["log.csv", "--level", "1.5"], "`level` must lie in (0, 1); got 1.5"),
    "out is a file": (["log.csv", "--out", "log.csv"], "`--out` must be a folder"),
    "unknown baseline": (["log.csv", "--against", "c"], "`--against` must be uniform, logging, an"),
    "bad shares": (
        ["log.csv", "--shares", "a:0.5,c:0.5"],
        "`--shares` must give shares as ARM:SHARE",
    ),
    "shares of one": (["log.csv", "--shares", "a:0.5,b:0.4"], "must sum to 1 over the arms"),
    "nothing to learn": (["log.csv", "--policy", "learned:x"], "`--policy` must be learned:best"),
    "parameters": (["log.csv", "--policy", "learned:ZITS"], "that needs no parameters"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_sentence_and_writes_nothing(case: str, log: Path) -> None:
    arguments, message = BAD[case]
    result = run("evaluate", *arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())
    assert "Traceback" not in result.stderr
    assert not Path("evaluation").exists()


def test_an_arm_the_log_never_shows_is_refused(log: Path) -> None:
    bandit = zib.Bandit(zib.mab.UCB1(scale=50.0), arms=["a", "new"], seed=0)
    bandit.update("a", 0.0)
    bandit.save("mine.json")
    result = run("evaluate", log, "--policy", "mine.json")
    assert result.exit_code == 2
    assert "'new'" in result.stderr
    allowed = run("evaluate", log, "--policy", "mine.json", "--allow-missing")
    assert allowed.exit_code == 0
    assert "warning" in allowed.stderr


@pytest.mark.parametrize("command", ["advise", "evaluate"])
def test_truncated_files_are_one_sentence(command: str, log: Path) -> None:
    pd.read_csv(log).to_parquet("log.parquet")
    whole = Path("log.parquet").read_bytes()
    Path("cut.parquet").write_bytes(whole[: len(whole) // 2])
    result = run(command, "cut.parquet")
    assert result.exit_code == 2
    assert "cannot be read as Parquet" in result.stderr
    assert not Path(command if command == "advise" else "evaluation").exists()


def test_all_zeros(log: Path) -> None:
    pd.DataFrame({"arm": ["a", "b"] * 50, "reward": 0.0}).to_csv("zeros.csv", index=False)
    result = run("advise", "zeros.csv", "--no-simulate")
    assert result.exit_code == 0
    assert "zero" in result.output


@pytest.mark.slow
def test_a_cluster_evaluates_the_same(log: Path) -> None:
    pytest.importorskip("distributed")
    pd.read_csv(log).to_parquet("log.parquet")
    wanted = ("evaluate", "log.parquet", "--policy", "b", "--estimator", "ips")
    here, there = run(*wanted), run(*wanted, "--backend", "dask", "--workers", 1)
    assert there.exit_code == 0, there.stderr
    assert there.stdout == here.stdout
    refused = run(*wanted, "--workers", 1)
    assert "`workers` must be None unless `backend` is 'dask'" in refused.stderr


def test_options_say_how_a_file_is_written(log: Path) -> None:
    frame = pd.read_csv(log, nrows=600)
    frame["variant"] = np.where(np.arange(len(frame)) % 9 == 0, frame["variant"] + " ", "b")
    frame["revenue"] = frame["revenue"].where(frame["revenue"] > 0)
    frame.drop(columns="propensity").to_csv("export.txt", index=False, sep="|", decimal=",")
    command = ("evaluate", "export.txt", "--policy", "b", "--strata", "wave", "--estimator", "ips")
    result = run(*command)
    assert result.exit_code == 2
    assert "--missing-reward zero" in result.stderr
    result = run(*command, "--missing-reward", "zero", "--decimal", ",", "--strip-labels")
    assert result.exit_code == 0, result.stderr
    assert "export.txt has bars between columns" in result.stderr
    blank = int(frame["revenue"].isna().sum())
    assert f"column `revenue`: {blank} of 600 rows are blank and count as 0" in result.stderr
    assert "look alike" not in result.stderr
    for bad, message in (("--sep", "`sep` must be one"), ("--encoding", "`encoding` must name")):
        result = run(*command, bad, "no such")
        assert result.exit_code == 2
        assert message in result.stderr


def test_the_program_reads_the_file_in_the_same_way() -> None:
    from types import SimpleNamespace

    from zib.logs.advise.snippet import reading

    source = {"path": "l.csv", "arm": "v", "reward": "r", "missing_reward": "zero", "sep": "\t",
              "strip_labels": True}  # fmt: skip
    text = reading(source, SimpleNamespace(context_names=()), context=False)  # type: ignore[arg-type]
    told = "    missing_reward='zero',\n    strip_labels=True,\n    sep='\\t',\n"
    assert text == f"log = LoggedData.read(\n    'l.csv',\n    arm='v',\n    reward='r',\n{told})\n"
