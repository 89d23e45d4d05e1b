"""Which code something is made of: enough that nothing is stale, and not much more."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import zib
from zib.core import sources

UCB1 = frozenset({"zib.mab.classics", "zib.env.mab", "zib.sim.loop"})


@pytest.fixture
def copy(tmp_path, monkeypatch):
    """A copy of our files that is read instead; returns (folder, function that hashes UCB1)."""
    folder = tmp_path / "zib"
    shutil.copytree(Path(zib.__file__).parent, folder, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(sources, "ROOT", folder)

    def forget():
        for function in (sources.sources, sources.made_of, sources.hash_of, sources.source_hash):
            function.cache_clear()

    def digest(modules=UCB1):
        forget()
        return sources.hash_of(modules)

    yield folder, digest
    monkeypatch.undo()
    forget()


def test_a_policy_is_made_of_what_it_needs_and_of_nothing_above_it():
    found = sources.made_of(UCB1)
    assert {"zib.core.kernel", "zib.stats.arms", "zib.core.rng"} <= found
    above = ("cli", "experiments", "report", "studies", "testing", "logs.ope", "logs.advise")
    assert not [name for name in found if name.startswith(tuple(f"zib.{x}" for x in above))]
    assert {name for name in found if name.startswith("zib.sim")} == {"zib.sim.loop"}
    assert len(found) < len(sources.sources()) / 3


def test_other_words_and_other_modules_do_not_count(copy):
    folder, digest = copy
    before = digest()
    file = folder / "stats" / "arms.py"
    file.write_text("# a comment\n\n\n" + file.read_text().replace('"""', '"""Other words. ', 1))
    for name in ("sim/plan.py", "contextual/joint.py"):
        (folder / name).write_text((folder / name).read_text() + "\nEXTRA = 1\n")
    assert digest() == before
    assert sources.source_hash() != zib.core.sources.hash_of(UCB1)


@pytest.mark.parametrize(
    "file", ["mab/classics.py", "stats/arms.py", "core/kernel.py", "env/mab.py", "sim/loop.py"]
)
def test_any_edit_of_code_that_plays_counts(copy, file):
    folder, digest = copy
    before = digest()
    (folder / file).write_text((folder / file).read_text() + "\nEXTRA = 1\n")
    assert digest() != before


def test_imports_count_wherever_and_however_they_are_written(copy):
    folder, digest = copy
    file = folder / "mine.py"

    def found(text):
        file.write_text(text)
        digest()
        return sources.made_of(frozenset({"zib.mine"}))

    assert "zib.core.rng" in found("def late():\n    from zib.core import rng\n")
    assert "zib.core.rng" in found("from zib.core.rng import Role\n")
    assert "zib.core.rng" in found("import zib.core.rng as names\n")
    assert "zib.core.rng" in found("from .core.rng import Role\n")
    assert {"zib", "zib.sim.simulate"} <= found("import zib\n")  # anything may be meant
    assert "zib.sim.simulate" in found("from zib import simulate\n")  # the package hands it on
    assert found("import json\n") == {"zib.mine"}


def test_relative_imports():
    text = "from . import a\nfrom .b import c\nfrom ..d import e\nfrom .. import f\nimport g.h"
    found = set(sources.imported_names(text, "top.sub"))
    assert found == {"top.sub.a", "top.sub.b.c", "top.d.e", "top.f", "g.h"}


COMPILED = """
import sys
import numpy as np, zib
from numba.core import event
from zib.core import cache, sources
from zib.sim import loop

spec = eval(sys.argv[1], {"mab": zib.mab, "contextual": zib.contextual})
env = zib.env.GaussianMAB(means=[1.0, 2.0], probs=[0.3, 0.4], sigma=1.0)
entry = loop.advance
if sys.argv[1].startswith("contextual"):
    env = zib.env.make("paper-contextual-gaussian-s3-probit-v1")
    env.instance(np.random.default_rng(0)).block(np.random.default_rng(1), 4)
    entry = loop.advance_contextual
with event.install_recorder("numba:compile") as recorder:
    loop.play(spec, env, np.array([2]), 0, 0)
(signature,) = entry.cached.signatures
known = sources.made_of(cache.made_from(entry.interpreted, signature))
compiled = {e.data["dispatcher"].py_func.__module__ for _, e in recorder.buffer}
ours = {name for name in compiled if str(name).startswith("zib.")}
print(len(ours), sorted(ours - known))
"""

SPECS = [
    "mab.UCB1()",
    "mab.Anytime(spec=mab.ZITS(horizon=100, sigma=1.0))",
    "mab.ZIKLUCB()",
    "mab.Discounted(mab.ZIPosterior(), half_life=100)",
    "mab.ZIAdaptive()",
    "contextual.JointUCB()",
    "contextual.ZITS(horizon=100, sigma=1.0)",
    "contextual.Disjoint(spec=contextual.LaplaceTS(), n_arms=100)",
]


@pytest.mark.slow
@pytest.mark.parametrize("spec", SPECS)
def test_all_that_is_compiled_is_known(spec):
    """Every function that Numba compiles for a policy is in a module that the key covers."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(COMPILED), spec],
        env={**os.environ, "ZIB_CACHE": "0"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    number, unknown = done.stdout.split(maxsplit=1)
    assert int(number) >= 3
    assert unknown.strip() == "[]"
