"""Which edits renew a result: those of code that plays, and no others."""

from __future__ import annotations

import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import zib
from zib.sim import code

UCB1 = ["zib.mab.classics", "zib.env.mab", "zib.sim.engine"]
SOURCES = Path(zib.__file__).parent


@pytest.fixture
def copy(tmp_path, monkeypatch):
    """A copy of the sources that the fingerprint reads instead; returns (folder, hash of UCB1)."""
    folder = tmp_path / "zib"
    shutil.copytree(SOURCES, folder, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(code, "ROOT", folder)

    def digest(modules=UCB1):
        code._file_of.cache_clear()
        monkeypatch.setattr(code, "_KNOWN", code._Known())
        return code.closure(modules)

    yield folder, digest
    code._file_of.cache_clear()


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_the_closure_of_one_policy_has_what_it_needs_and_no_other_policy():
    found = code.closure(UCB1)
    assert {"zib._kernel", "zib.stats.arms", "zib._rng", "zib.env.rewards"} <= set(found)
    assert not {"zib.mab.zi_kl", "zib.contextual.zi", "zib.env.loan", "zib.mab"} & set(found)
    assert not {name for name in found if name.startswith("zib.sim")} - {
        "zib.sim.engine",
        "zib.sim.run",
    }


def test_edits_elsewhere_comments_and_docstrings_do_not_count(copy):
    folder, digest = copy
    before = digest()
    edit(folder / "mab" / "zi_kl.py", "import", "import sys\nimport")
    (folder / "sim" / "simulate.py").write_text("raise SystemExit")
    file = folder / "stats" / "arms.py"
    file.write_text("# a comment\n\n\n" + file.read_text().replace('"""', '"""Other words. ', 1))
    assert digest() == before


@pytest.mark.parametrize(
    "file", ["mab/classics.py", "stats/arms.py", "_kernel.py", "env/rewards.py", "sim/engine.py"]
)
def test_any_other_edit_of_code_that_plays_counts(copy, file):
    folder, digest = copy
    before = digest()
    path = folder / file
    path.write_text(path.read_text() + "\nEXTRA = 1\n")
    after = digest()
    assert after != before
    assert set(after) == set(before)


def test_imports_inside_functions_count_and_those_for_types_do_not(copy):
    folder, digest = copy
    file = folder / "mab" / "classics.py"
    file.write_text(file.read_text() + "\ndef late():\n    from zib.mab import zi_kl\n")
    assert "zib.mab.zi_kl" in digest()
    file.write_text(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from zib.mab import zi_ts\n"
    )
    assert "zib.mab.zi_ts" not in digest()


def test_names_that_a_package_hands_on_lead_to_their_file(copy):
    folder, digest = copy
    (folder / "mine.py").write_text("from zib.mab import ZIKLUCB\nfrom zib import Bandit\n")
    found = digest(["zib.mine"])
    assert {"zib.mab.zi_kl", "zib.bandit"} <= set(found)
    assert "zib.mab" not in found
    (folder / "mine.py").write_text("import zib.mab\n")
    assert {"zib.mab", "zib.mab.zi_kl", "zib.mab.zi_ts"} <= set(digest(["zib.mine"]))


def test_code_from_outside_counts_with_what_it_imports(tmp_path, monkeypatch):
    (tmp_path / "zz_helper.py").write_text("X = 1\n")
    (tmp_path / "zz_mine.py").write_text("import json\nimport numpy\nfrom zz_helper import X\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    def found():
        code._file_of.cache_clear()
        code._KNOWN.sources.clear()
        return code.closure(["zz_mine"])

    before = found()
    assert set(before) == {"zz_mine", "zz_helper", "numpy"}
    (tmp_path / "zz_helper.py").write_text("X = 2\n")
    after = found()
    assert after["zz_helper"] != before["zz_helper"]
    assert after["zz_mine"] == before["zz_mine"]


def test_relative_imports():
    text = "from . import a\nfrom .b import c\nfrom ..d import e\nfrom .. import f"
    imports = code.parse(text, "top.sub").imports
    assert {(module, name) for _, module, name in imports} == {
        ("top.sub", "a"),
        ("top.sub.b", "c"),
        ("top.d", "e"),
        ("top", "f"),
    }


def test_sources_edited_under_a_running_process_are_noticed(monkeypatch, tmp_path):
    """The files would say something else than what is running: nothing may be stored."""
    env = zib.env.GaussianMAB(means=[1.0, 2.0], probs=[0.3, 0.4], sigma=1.0)
    code.code_hash.cache_clear()
    monkeypatch.setattr(code._cache, "SOURCE_HASH", "what was imported")
    with pytest.warns(RuntimeWarning, match="edited after this process imported them"):
        found = zib.simulate(
            [zib.mab.UCB1()], env, horizon=50, replications=2, progress=False, store=tmp_path / "s"
        )
    assert found.complete
    assert not (tmp_path / "s").exists()
    code.code_hash.cache_clear()


def test_interactive_code_is_refused(tmp_path):
    text = """
    import zib
    class Mine(zib.env.GaussianMAB): pass
    env = Mine(means=[1.0, 2.0], probs=[0.3, 0.4], sigma=1.0)
    try:
        zib.simulate([zib.mab.UCB1()], env, horizon=50, replications=2, progress=False, store="s")
    except zib.InvalidParameterError as error:
        print(error)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text)],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "needs code that is in a file, and the module '__main__' has none" in done.stdout
    assert not (tmp_path / "s").exists()
