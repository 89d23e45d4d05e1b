"""The command line: messages, exit codes, and what is left on disk."""

import subprocess
import sys
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from zib.cli import app
from zib.experiments import runner
from zib.experiments.record import Record, Verdict


def record(name):
    return Record(
        id=name,
        title=f"Title of {name}",
        about="",
        scale="quick",
        settings=(),
        pictures=(),
        tables=(),
        verdicts=(Verdict("claim [one]", "partly", "holds only for [x]"),)
        if name != "fig1a"
        else (),
    )


@pytest.fixture
def calls(monkeypatch):
    made = []

    def module(name):
        def run(context):
            made.append(SimpleNamespace(name=name, context=context))
            return record(name)

        return SimpleNamespace(run=run, weight=1.0, compiles_contextual=False, __module__="nowhere")

    monkeypatch.setattr(runner, "experiment_of", module)
    return made


def invoke(*arguments):
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200", "NO_COLOR": "1"})


def test_version_and_help():
    assert invoke("--version").output.startswith("zib ")
    for arguments in (("--help",), ("reproduce", "--help")):
        result = invoke(*arguments)
        assert result.exit_code == 0
        assert "reproduce" in result.output


def test_reproduce_runs_what_is_asked_for(calls, tmp_path):
    result = invoke(
        "reproduce", "--only", "fig2", "--only", "FIG1A", "--out", str(tmp_path), "--seed", "5",
        "--workers", "1", "--scale", "paper",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert [call.name for call in calls] == ["fig1a", "fig2"]
    context = calls[0].context
    assert (context.scale, context.seed, context.workers) == ("paper", 5, 1)
    assert "holds only for [x]" in result.output
    assert "claim [one]" in result.output
    assert str(tmp_path / "report.html") in result.output.replace("\n", "")
    assert (tmp_path / "report.html").exists()


def test_the_store_of_a_run(calls, tmp_path, monkeypatch):
    monkeypatch.setenv("ZIB_STORE", str(tmp_path / "mine"))
    only = ("reproduce", "--only", "fig2", "--out", str(tmp_path))
    invoke(*only)
    invoke(*only, "--store", str(tmp_path / "named"))
    invoke(*only, "--no-store")
    stores = [call.context.store for call in calls]
    assert [store and store.folder.name for store in stores] == ["mine", "named", None]
    result = invoke(*only, "--no-store", "--store", "x")
    assert result.exit_code == 2
    assert "either --store or --no-store" in result.output
    (tmp_path / "file").write_text("")
    assert "is a file" in invoke(*only, "--store", str(tmp_path / "file")).output


def test_unknown_item_is_one_sentence_with_a_suggestion(calls, tmp_path):
    result = invoke("reproduce", "--only", "figS7", "--out", str(tmp_path))
    assert result.exit_code == 2
    assert "there is no experiment 'figS7'; did you mean 'figS" in result.output
    assert "Traceback" not in result.output
    assert calls == []


def test_unwritable_folder_stops_before_anything_runs(calls, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    result = invoke("reproduce", "--out", str(blocked / "deeper"))
    assert result.exit_code == 2
    assert "cannot write to the output folder" in result.output
    assert "Traceback" not in result.output
    assert calls == []


@pytest.mark.parametrize(
    "arguments", [("--scale", "huge"), ("--seed", "-1"), ("--workers", "0"), ("--workers", "x")]
)
def test_bad_values(calls, tmp_path, arguments):
    result = invoke("reproduce", "--out", str(tmp_path), *arguments)
    assert result.exit_code == 2
    assert "Traceback" not in result.output
    assert calls == []


def test_interruption_keeps_what_is_finished(calls, tmp_path, monkeypatch):
    ordinary = runner.experiment_of

    def module(name):
        found = ordinary(name)
        if name == "fig2":

            def stop(context):
                raise KeyboardInterrupt

            found.run = stop
        return found

    monkeypatch.setattr(runner, "experiment_of", module)
    result = invoke("reproduce", "--out", str(tmp_path))
    assert result.exit_code == 130
    assert "fig1a, fig1b. The same command goes on from here." in result.output
    assert (tmp_path / "fig1b" / "record.json").exists()
    assert (tmp_path / "report.html").exists()


def test_module_runs_as_a_program():
    done = subprocess.run(
        [sys.executable, "-m", "zib.cli", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("zib ")
