"""``zib simulate``: messages, exit codes, what is left on disk, and going on after Ctrl-C."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import zib
from zib import studies
from zib.cli import app

STUDY = """
name = "Small"
horizon = 300
replications = 4
checkpoints = 10
[environments.one]
kind = "GaussianMAB"
means = [1.0, 2.0]
probs = [0.3, 0.4]
sigma = 0.5
[policies."ZI-TS"]
kind = "ZITS"
sigma = 0.5
[policies.UCB1]
kind = "UCB1"
scale = 3.0
"""


@pytest.fixture
def file(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ZIB_STORE", str(tmp_path / "user-store"))
    path = tmp_path / "study.toml"
    path.write_text(STUDY, encoding="utf-8")
    return path


def invoke(*arguments: object):
    return CliRunner().invoke(
        app, ["simulate", *map(str, arguments)], env={"COLUMNS": "200", "NO_COLOR": "1"}
    )


def refused(*arguments: object) -> str:
    result = invoke(*arguments)
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
    return result.output


def test_init_writes_the_example_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = invoke("--init")
    assert result.exit_code == 0
    assert "zib simulate study.toml --dry-run" in result.output
    assert (tmp_path / "study.toml").read_text(encoding="utf-8") == studies.EXAMPLE
    (tmp_path / "study.toml").write_text("mine")
    assert "study.toml exists; nothing was written" in refused("--init")
    assert (tmp_path / "study.toml").read_text() == "mine"
    assert invoke("--init", "other.toml").exit_code == 0
    assert (tmp_path / "other.toml").exists()
    assert "cannot write" in refused("--init", "no/folder.toml")


def test_a_study_leaves_report_figures_and_numbers(file):
    result = invoke(file, "--workers", 1)
    assert result.exit_code == 0, result.output
    folder = file.parent / "results" / "study"
    assert f"Report: {folder / 'report.html'}" in result.output.replace("\n", "")
    assert "has the lowest regret" in result.output
    assert {path.name for path in folder.iterdir()} >= {"report.html", "final.csv", "one.npz"}
    assert any((file.parent / "user-store").rglob("*.npz"))


def test_options_replace_the_file(file):
    result = invoke(
        file, "--seed", 7, "--replications", 2, "--backend", "serial", "--out", "there",
        "--no-store",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    results = zib.Results.load(file.parent / "there" / "one.npz")
    assert results.provenance["seed"] == 7
    assert results.provenance["backend"] == "serial"
    assert results.regret.shape == (2, 2, 10)
    assert not (file.parent / "user-store").exists()
    assert invoke(file, "--store", "kept").exit_code == 0
    assert any((file.parent / "kept").rglob("*.npz"))


def test_dry_run_says_what_it_will_take_and_leaves_nothing(file):
    result = invoke(file, "--dry-run")
    assert result.exit_code == 0, result.output
    assert "Tasks: 2 blocks of replications, 0 of them in the store" in result.output
    assert "Time: about" in result.output
    assert "Memory: about" in result.output
    assert not (file.parent / "results").exists()
    assert not (file.parent / "user-store").exists()
    invoke(file)
    again = invoke(file, "--dry-run")
    assert "2 blocks of replications, 2 of them in the store" in again.output
    assert "nothing has to be played" in again.output


def test_a_dry_run_answers_at_once_whatever_the_number_of_replications(file):
    started = time.monotonic()
    result = invoke(file, "--dry-run", "--replications", 10**12)
    assert result.exit_code == 0, result.output
    blocks = re.search(r"Tasks: (\d+) blocks of replications, 0 of them", result.output)
    assert blocks is not None
    assert int(blocks[1]) >= 2 * 10**12 // 256
    assert time.monotonic() - started < 60  # most of it compiling and calibrating


@pytest.mark.parametrize("option", [(), ("--dry-run",)])
def test_mistakes_are_one_sentence_before_anything_runs(file, monkeypatch, option):
    def never(*_, **__):
        raise AssertionError("something ran")

    monkeypatch.setattr(zib, "simulate", never)
    file.write_text(STUDY.replace("ZITS", "ZITSS"))
    output = refused(file, *option)
    assert "study.toml: policies.ZI-TS: there is no policy 'ZITSS'; did you mean 'ZITS'?" in output
    assert not (file.parent / "results").exists()


def test_other_refusals(file):
    assert "name a study" in refused()
    assert "no.toml cannot be read: No such file or directory" in refused("no.toml")
    assert "exclude each other" in refused(file, "--store", "x", "--no-store")
    assert "`backend` must be one of" in refused(file, "--backend", "thread")
    refused(file, "--workers", 0)
    (file.parent / "blocked").write_text("")
    assert "cannot write to the output folder" in refused(file, "--out", "blocked/deeper")
    (file.parent / "full").write_text("")
    assert "`store` must be a folder" in refused(file, "--store", "full")


def test_a_run_that_fails_says_that_it_can_go_on(file, monkeypatch):
    def fail(*_, **__):
        raise zib.SimulationError("words for Python", None) from OSError("a worker died")

    monkeypatch.setattr(zib, "simulate", fail)
    result = invoke(file)
    assert result.exit_code == 1
    assert "error: a run failed: a worker died. The same command goes on" in result.output
    assert "Traceback" not in result.output
    assert "starts anew" in invoke(file, "--no-store").output


def test_a_scheduler_is_handed_on(file, monkeypatch):
    told = {}

    def record(policies, env, **settings):
        told.update(settings)
        raise zib.InvalidParameterError("`scheduler` does not answer")

    assert "shared by the cluster's workers" in (
        invoke(file, "--scheduler", "tcp://127.0.0.1:9", "--dry-run").output
    )
    monkeypatch.setattr(zib, "simulate", record)
    assert "`scheduler` does not answer" in refused(file, "--scheduler", "tcp://127.0.0.1:9")
    assert (told["backend"], told["scheduler"]) == ("dask", "tcp://127.0.0.1:9")
    assert "`scheduler` is for" in refused(file, "--scheduler", "x", "--backend", "serial")


@pytest.mark.slow
def test_ctrl_c_keeps_what_is_finished_and_the_same_command_goes_on(file):
    # many short blocks: one whole block is in the store long before the run could be over
    file.write_text(
        STUDY.replace("horizon = 300", "horizon = 100_000").replace("= 4\n", "= 4_000\n")
    )
    command = [sys.executable, "-m", "zib.cli", "simulate", str(file), "--workers", "1"]
    environment = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1"}
    running = subprocess.Popen(
        command,
        cwd=file.parent,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        # tests that run in the background have children that ignore Ctrl-C
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    try:
        deadline = time.monotonic() + 120
        while not list((file.parent / "user-store").rglob("*.npz")):
            assert running.poll() is None, running.stderr.read()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=60)
    finally:
        running.kill()
        running.wait()
        running.stderr.close()
    assert running.returncode == 130
    assert "Interrupted; what is finished is in" in said
    assert "The same command goes on with what is missing." in said
    assert "Traceback" not in said

    folder = file.parent / "results" / "study"
    partial = zib.Results.load(folder / "one.npz")
    assert not partial.complete
    assert "was interrupted" in (folder / "report.html").read_text(encoding="utf-8")
    # going on, as far as what is finished: read, not played
    done = len(list((file.parent / "user-store").rglob("*.npz")))
    found = invoke(file, "--dry-run").output
    assert f"{done} of them in the store" in found
    finished = partial.finished[0]
    assert finished.any()
    alone = zib.simulate(
        {"ZI-TS": zib.mab.ZITS(horizon=100_000, sigma=0.5)},
        zib.env.GaussianMAB([1.0, 2.0], [0.3, 0.4], 0.5),
        horizon=100_000, replications=1, checkpoints=10, progress=False,
    )  # fmt: skip
    np.testing.assert_array_equal(partial.regret[0, 0], alone.regret[0, 0])
