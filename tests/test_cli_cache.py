"""``zib cache``: what it says and what it removes."""

from __future__ import annotations

import numpy as np
import pytest
from typer.testing import CliRunner

from zib.cli import app
from zib.core import cache as _cache
from zib.sim import Store


def invoke(*arguments, **options):
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "300"}, **options)


@pytest.fixture
def places(tmp_path, monkeypatch):
    store = Store(tmp_path / "results")
    for i in range(3):
        store.put(f"{i}a" + 62 * "0", {"x": np.zeros(1000)}, {})
    base = tmp_path / "compiled"
    for name in ("zib-0123456789abcdef", "zib-aaaaaaaaaaaaaaaa", "something else"):
        (base / name).mkdir(parents=True)
        (base / name / "code").write_bytes(bytes(1500))
    (base / "zib-sources-3.11.json").write_text("{}")
    monkeypatch.setattr(_cache, "FOLDER", base)
    monkeypatch.setenv("ZIB_STORE", str(store.folder))
    return store, base


def test_info(places):
    store, base = places
    result = invoke("cache", "info")
    assert result.exit_code == 0
    rows = {line.split("│")[1].strip(): line for line in result.output.splitlines() if "│" in line}
    assert "2" in rows["compiled code"]
    assert "3.0 kB" in rows["compiled code"]
    assert str(base) in rows["compiled code"]
    size = sum(path.stat().st_size for path in store.folder.rglob("*.npz"))
    assert 24_000 < size < 30_000
    assert f"{size / 1000:.1f} kB" in rows["results"]
    assert str(store.folder) in rows["results"]


def test_clear_asks_and_takes_no_for_an_answer(places):
    store, base = places
    result = invoke("cache", "clear", input="n\nn\n")
    assert "Remove 3 stored results" in result.output
    assert store.info().files == 3
    assert (base / "zib-aaaaaaaaaaaaaaaa").exists()


@pytest.mark.parametrize(
    "which", [(), ("--results",), ("--compiled",), ("--results", "--compiled")]
)
def test_clear_removes_what_is_asked_for(places, which):
    store, base = places
    result = invoke("cache", "clear", "--yes", *which)
    assert result.exit_code == 0, result.output
    assert (store.info().files == 0) == (which != ("--compiled",))
    assert (base / "zib-aaaaaaaaaaaaaaaa").exists() == (which == ("--results",))
    assert (base / "zib-sources-3.11.json").exists() == (which == ("--results",))
    assert (base / "something else" / "code").exists()
    again = invoke("cache", "clear", "--yes", *which)
    assert "removed" not in again.output


def test_another_store_and_a_wrong_one(places, tmp_path):
    result = invoke("cache", "clear", "--yes", "--results", "--store", str(tmp_path / "other"))
    assert "no results are stored" in result.output
    assert places[0].info().files == 3
    (tmp_path / "file").write_text("x")
    result = invoke("cache", "info", "--store", str(tmp_path / "file"))
    assert result.exit_code == 2
    assert "is a file" in result.output
