"""``zib data``: lists, texts, checks and refusals as a user sees them."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.datasets.data import KARLAN_ZINMAN, data_file
from zib.cli import app
from zib.logs import names

run = CliRunner().invoke


def test_list_names_every_data_set() -> None:
    result = run(app, ["data", "list"])
    assert result.exit_code == 0
    assert all(name in result.output for name in names())


@pytest.mark.parametrize("name", names())
def test_info_says_licence_and_citation(name: str) -> None:
    result = run(app, ["data", "info", name])
    assert result.exit_code == 0
    assert "licence" in result.output
    assert "cite" in result.output


def test_unknown_names_are_refused() -> None:
    for command in ("info", "check"):
        result = run(app, ["data", command, "kz"])
        assert result.exit_code == 2
        assert "`name` must be one of cprm" in result.stderr


def test_check_reports_what_is_wrong(tmp_path: Path) -> None:
    assert run(app, ["data", "check", "randhie"]).exit_code == 0
    result = run(app, ["data", "check", "karlan_zinman", str(tmp_path / "none.dta")])
    assert result.exit_code == 1
    assert "openICPSR 113240 V1" in result.output
    wrong = tmp_path / "kz.dta"
    wrong.write_bytes(b"something else")
    result = run(app, ["data", "check", "karlan_zinman", str(wrong)])
    assert result.exit_code == 1
    assert "WRONG" in result.output
    assert "cannot be used as it is" in result.output


def test_check_of_the_real_file() -> None:
    result = run(app, ["data", "check", "karlan_zinman", str(data_file(KARLAN_ZINMAN))])
    assert result.exit_code == 0
    assert "karlan_zinman: can be used" in result.output
