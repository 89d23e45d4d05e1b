"""Keys: values as hashes, equal for equal values in any process, and the files of user modules."""

from __future__ import annotations

import functools
import importlib
import math
import os
import re
import subprocess
import sys
import textwrap
import threading
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytest

import zib
from zib.core.kernel import REGISTRY
from zib.sim.keys import CannotBeStored, fingerprint, user_code


class Plain:
    def __init__(self, **content) -> None:
        self.__dict__.update(content)

    @functools.cached_property
    def remembered(self):
        return 3


class Slots:
    __slots__ = ("a", "b")

    def __init__(self, a, b) -> None:
        self.a, self.b = a, b


class Pair(NamedTuple):
    a: float
    b: object


@dataclass
class Data:
    a: float


def scaled(x, factor=2.0):
    return factor * x


def close_over(y):
    return lambda x: x + y


DIFFERENT = [
    None, True, 1, 1.0, "1", b"1", (1,), [1], {1}, {"1": 1}, (1.0,), math.nan, -0.0, 0.0,
    math.nextafter(1.0, 2.0), np.float64(1.0), np.float32(1.0), np.array([1.0]), np.array([1]),
    np.array([[1.0]]), np.array([1.0, 2.0]), Plain(), Plain(a=1), Plain(b=1), Plain(a=1.0),
    Slots(1, 2), Slots(2, 1), Pair(1.0, 2), Pair(1.0, 2.0), Data(1.0), Data(2.0), scaled, len,
    functools.partial(scaled, factor=3.0), functools.partial(scaled, factor=4.0), close_over(1),
    close_over(2), lambda x: x + 1, lambda x: x + 2, math.exp, math.log, np.exp, Plain,
    tuple(float(i) for i in range(100)), [float(i) for i in range(100)],
    tuple(float(i) for i in range(1, 101)), np.random.default_rng(1), np.random.default_rng(2),
    zib.mab.UCB1(scale=1.0), zib.mab.UCB1(scale=2.0), zib.SubGaussian(1.0),
    zib.mab.ZIUCB(horizon=10, sigma=1.0), zib.mab.ZIUCB(horizon=10, sigma=1.5),
    zib.env.Gaussian(1.0, 1.0), zib.env.Gaussian(1.0, 2.0), np.array(["a", 1], dtype=object),
]  # fmt: skip


def test_different_values_have_different_hashes():
    hashes = [fingerprint(value)[0] for value in DIFFERENT]
    assert len(set(hashes)) == len(hashes)


def test_equal_values_have_equal_hashes():
    pairs = [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({1, 2, 3}, {3, 2, 1}),
        (np.arange(6.0).reshape(2, 3).T, np.array([[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]])),
        (Plain(a=[1, np.ones(2)]), Plain(a=[1, np.ones(2)])),
        (close_over(5), close_over(5)),
    ]
    for one, other in pairs:
        assert fingerprint(one) == fingerprint(other)


def test_what_an_object_remembers_does_not_count():
    used, law = Plain(a=1), zib.env.Empirical([1.0, 2.0])
    before = fingerprint(used), fingerprint(law)
    assert used.remembered == 3
    law.sample(np.random.default_rng(0), 3)
    assert (fingerprint(used), fingerprint(law)) == before


def test_modules_are_those_of_all_parts():
    spec = zib.mab.Anytime(spec=zib.mab.ZIUCB(horizon=10, tail=zib.SubExponential(1.0)))
    parts = (spec, spec.spec, spec.spec.tail)
    assert {type(part).__module__ for part in parts} <= fingerprint(spec)[1]
    assert __name__ in fingerprint(Plain(a=[scaled]))[1]


@pytest.mark.parametrize(
    "value", [threading.Lock(), re.compile("a"), iter([1]), sys, type("D", (dict,), {})(a=1)]
)
def test_what_cannot_be_named_is_refused_in_one_sentence(value):
    with pytest.raises(CannotBeStored, match="`store` cannot name a .* exactly"):
        fingerprint(Plain(inside=value))
    loop = Plain()
    loop.own = loop
    with pytest.raises(CannotBeStored, match="contains itself"):
        fingerprint(loop)


ENVIRONMENTS = """
import numpy as np, zib
from zib.logs import LoggedData
rng = np.random.default_rng(0)
log = LoggedData.from_arrays(rng.integers(0, 2, 400), rng.exponential(size=400),
                             context=rng.integers(0, 2, (400, 1)).astype(float))
ENVIRONMENTS = [
    zib.env.GaussianMAB(means=[1.0, 2.0], probs=[0.3, 0.4], sigma=1.0),
    zib.env.BootstrapMAB(log), zib.env.BootstrapContextual(log),
    zib.cases.loan.LoanMarket(),
    *(zib.env.make(name) for name in zib.env.list_ids()),
]
"""


NAMES = """
from zib.sim.keys import fingerprint
NAMES = [fingerprint(env)[0] + " " + repr(env).replace("\\n", " ") for env in ENVIRONMENTS]
"""


@pytest.mark.slow
def test_every_environment_can_be_named_alike_in_another_process():
    here: dict = {}
    exec(ENVIRONMENTS + NAMES, here)
    done = subprocess.run(
        [sys.executable, "-c", ENVIRONMENTS + NAMES + "print('\\n'.join(NAMES))"],
        env={**os.environ, "PYTHONHASHSEED": "1"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines() == here["NAMES"]
    assert len(here["NAMES"]) > 15
    assert len({name.split()[0] for name in here["NAMES"]}) == len(set(here["NAMES"]))


@pytest.mark.slow
def test_what_an_environment_has_drawn_does_not_count():
    here: dict = {}
    exec(ENVIRONMENTS, here)
    for env in here["ENVIRONMENTS"]:
        if hasattr(env, "n_features"):
            before = fingerprint(env)
            env.instance(np.random.default_rng(0)).block(np.random.default_rng(1), 4)
            assert fingerprint(env) == before


# ------------------------------------------------------------------------------ modules of the user


def test_our_own_modules_the_standard_library_and_installed_packages():
    assert user_code(["zib.mab.classics", "json", "zib"]) == {}
    assert user_code(["numpy.random"]) == {"numpy": np.__version__}


def test_code_from_outside_counts_with_what_it_imports(tmp_path, monkeypatch):
    (tmp_path / "zz_package").mkdir()
    files = {
        "zz_mine.py": "import json\nimport numpy\nfrom zz_package import used\n",
        "zz_package/__init__.py": "",
        "zz_package/used.py": "from .deep import X\ndef late():\n    import zz_late\n",
        "zz_package/deep.py": "X = 1\n",
        "zz_package/unused.py": "X = 1\n",
        "zz_late.py": "X = 1\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    before = user_code(["zz_mine"])
    assert set(before) == {
        "zz_mine", "zz_package", "zz_package.used", "zz_package.deep", "zz_late", "numpy",
    }  # fmt: skip
    (tmp_path / "zz_package" / "deep.py").write_text("# a comment\nX = 1\n")
    assert user_code(["zz_mine"]) == before
    (tmp_path / "zz_package" / "deep.py").write_text("X = 2\n")
    after = user_code(["zz_mine"])
    assert {name for name in after if after[name] != before[name]} == {"zz_package.deep"}


def test_kernels_that_stand_elsewhere_count(monkeypatch):
    """A spec of the user whose kernels are registered from another module of theirs."""
    monkeypatch.setattr(scaled, "__module__", "zz_kernels")
    monkeypatch.setitem(REGISTRY, Pair, (close_over(scaled), len))
    assert fingerprint(Pair(1.0, 2))[1] == {__name__, "zz_kernels"}


MINE = """
import zib
class Mine(zib.env.GaussianMAB):
    def sample(self, arm, rng, n):
        return FACTOR * super().sample(arm, rng, n)
FACTOR = 1.0
"""


def test_a_module_counts_as_it_was_loaded(tmp_path, monkeypatch):
    """An edit counts when the module is loaded again, and not before: old code still runs."""
    file = tmp_path / "zz_loaded.py"
    file.write_text(MINE)
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("zz_loaded")
    store = tmp_path / "store"

    def played():
        env = module.Mine(means=[1.0, 2.0], probs=[0.3, 0.4], sigma=1.0)
        options = {"horizon": 50, "replications": 2, "progress": False, "checkpoints": 5}
        found = zib.simulate([zib.mab.UCB1()], env, **options, store=store)
        return found.reward, {path.name for path in store.rglob("*.npz")}

    try:
        reward, kept = played()
        assert len(kept) == 1
        file.write_text(MINE.replace("FACTOR = 1.0", "FACTOR = 2.0"))
        again, same = played()
        assert same == kept
        assert np.array_equal(again, reward)
        os.utime(file, (1, 1))  # the bytecode of a file as old as before would be used again
        importlib.reload(module)
        other, more = played()
        assert len(more) == 2
        assert kept < more
        assert not np.array_equal(other, reward)
    finally:
        del sys.modules["zz_loaded"]


def test_code_without_a_file_cannot_be_named(tmp_path):
    text = """
    import warnings, zib
    class Mine(zib.env.GaussianMAB): pass
    env = Mine(means=[1.0, 2.0], probs=[0.3, 0.4], sigma=1.0)
    plan = zib.sim.Plan.of([zib.mab.UCB1()], env, horizon=50)
    try:
        plan.key_of(plan.blocks[0])
    except zib.InvalidParameterError as error:
        print(error)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text)],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "needs code that is in a file, and the module '__main__' has none" in done.stdout
