"""Which edits renew a result: those of code that plays, and no others."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import zib
from zib.sim import code

UCB1 = ["zib.mab.classics", "zib.env.mab", "zib.sim.loop"]
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
    assert {"zib.core.kernel", "zib.stats.arms", "zib.core.rng", "zib.env.rewards"} <= set(found)
    assert not {"zib.mab.zi_kl", "zib.contextual.zi", "zib.cases.loan.market", "zib.mab"} & set(
        found
    )
    assert not {name for name in found if name.startswith("zib.sim")} - {
        "zib.sim.loop",
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
    "file", ["mab/classics.py", "stats/arms.py", "core/kernel.py", "env/rewards.py", "sim/loop.py"]
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
    code._check_ours.cache_clear()
    monkeypatch.setattr(code._cache, "SOURCE_HASH", "what was imported")
    with pytest.warns(RuntimeWarning, match="edited after this process imported them"):
        found = zib.simulate(
            [zib.mab.UCB1()], env, horizon=50, replications=2, progress=False, store=tmp_path / "s"
        )
    assert found.complete
    assert not (tmp_path / "s").exists()
    code._check_ours.cache_clear()


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


MINE = """
import numba
import zib

FACTOR = 1.0
COUNT = 0

class Mine(zib.env.GaussianMAB):
    @property
    def twice(self):
        return 2 * self.n_arms

    @staticmethod
    def thrice(x):
        return 3 * x

@numba.njit
def compiled(x):
    return x + 1.0

def count():
    global COUNT
    COUNT += 1
"""


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """A user's module with an environment, loaded; returns (its file, the module)."""
    file = tmp_path / "zz_mine.py"
    file.write_text(MINE)
    monkeypatch.syspath_prepend(str(tmp_path))
    code._file_of.cache_clear()
    module = importlib.import_module("zz_mine")
    yield file, module
    del sys.modules["zz_mine"]
    code._file_of.cache_clear()


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        ("FACTOR = 1.0", "FACTOR = 2.0", "FACTOR"),
        ("FACTOR = 1.0", "FACTOR = 1", "FACTOR"),
        ("2 * self", "4 * self", "Mine.twice"),
        ("3 * x", "6 * x", "Mine.thrice"),
        ("x + 1.0", "x - 1.0", "compiled"),
        ("COUNT += 1", "COUNT += 2", "count"),
    ],
)
def test_a_users_module_edited_after_its_import_is_noticed(mine, old, new, name):
    file, module = mine
    before = code.closure(["zz_mine"])
    module.count()  # changes what the file binds, and may
    file.write_text("# a comment\n\n" + MINE)
    assert code.closure(["zz_mine"]) == before
    file.write_text(MINE.replace(old, new))
    with pytest.raises(code.EditedSources, match=f"module 'zz_mine' is not .*'{name}' is another"):
        code.closure(["zz_mine"])
    os.utime(file, (1, 1))  # the bytecode of a file as old as before would be used again
    importlib.reload(module)
    assert code.closure(["zz_mine"]) != before


def test_results_of_a_module_that_was_loaded_again_are_its_own(mine, tmp_path):
    """Nothing that the old code computed is handed out for the new code."""
    file, module = mine

    def played():
        env = module.Mine(means=[1.0, 2.0], probs=[0.3, 0.4], sigma=1.0)
        return zib.simulate(
            [zib.mab.UCB1()], env, horizon=50, replications=2, progress=False, store=tmp_path / "s"
        )

    played()
    kept = set((tmp_path / "s").rglob("*.zib"))
    played()
    assert kept == set((tmp_path / "s").rglob("*.zib"))
    assert kept
    file.write_text(MINE.replace("2 * self", "4 * self"))
    with pytest.warns(RuntimeWarning, match=r"'Mine.twice' is another there.*nothing is kept"):
        played()
    assert kept == set((tmp_path / "s").rglob("*.zib"))
    os.utime(file, (1, 1))
    importlib.reload(module)
    played()
    assert len(set((tmp_path / "s").rglob("*.zib")) - kept) == len(kept)
