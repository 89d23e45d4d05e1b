"""Dispatch, caching of compiled code, streams, validation."""

from __future__ import annotations

import math
import os
import pickle
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import zib
from tests.policies import SPECS
from zib import InvalidParameterError, mab
from zib.core import validate
from zib.core.rng import Role, generator_from_data, generator_to_data, stream

ROOT = Path(zib.__file__).parent

MY_POLICY = textwrap.dedent(
    '''
    """A policy of a user: the arm whose worst reward so far is best."""
    from typing import Any, NamedTuple
    import numpy as np
    import zib
    from zib.stats.arms import new_state, observe

    class _Fields(NamedTuple):
        level: float

    class Cautious(zib.Spec, _Fields):
        __slots__ = ()
        def __new__(cls, *, level: float = 1.0):
            return super().__new__(cls, float(level))

    def init(spec, n_arms):
        return new_state(n_arms)

    def scores(spec, state, rng, out):
        for k in range(out.size):
            n = state.pulls[k]
            out[k] = np.inf if n == 0.0 else BONUS * spec.level / n + state.total[k] / n

    def update(spec, state, arm, reward):
        observe(state, arm, reward)

    zib.register(Cautious, init=init, scores=scores, update=update, additive=True)
    '''
)


def run_python(code: str, cwd: Path, **env: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        cwd=cwd,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# ------------------------------------------------------------------------ cache of compiled code

PLAY = """
import numpy as np, zib
from zib.sim import loop
env = zib.env.GaussianMAB(means=[1.0, 2.0, 1.5], probs=[0.3, 0.4, 0.2], sigma=1.0)
spec = zib.mab.UCB1(scale=1.0)
run = loop.play(spec, env, np.array([200]), 0, 0)
slow = loop.play(spec, env, np.array([200]), 0, 0, compiled=False)
stats = loop.advance.cached.stats
print(sum(stats.cache_hits.values()), sum(stats.cache_misses.values()), run.regret[-1],
      slow.regret[-1])
"""


@pytest.mark.slow
def test_disk_cache_hits_in_a_second_process_and_is_not_stale_after_an_edit(tmp_path) -> None:
    package = tmp_path / "src" / "zib"
    shutil.copytree(ROOT, package, ignore=shutil.ignore_patterns("__pycache__"))
    env = {"NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(tmp_path / "src")}
    first = run_python(PLAY, tmp_path, **env).split()
    second = run_python(PLAY, tmp_path, **env).split()
    assert first[:2] == ["0", "1"]
    assert second[:2] == ["1", "0"], "the second process must find compiled code on disk"
    assert first[2:] == second[2:]
    # other words and other lines, in the files of the loop and of a kernel, change no code
    for name in ("sim/loop.py", "core/entry.py", "mab/classics.py"):
        file = package / name
        file.write_text("# a comment\n\n" + file.read_text().replace('"""', '"""Other words. ', 1))
    # nor does other code that this policy is not made of
    for name in ("env/mab.py", "contextual/joint.py", "sim/plan.py"):
        file = package / name
        file.write_text(file.read_text() + "\n\nEXTRA = 1\n")
    elsewhere = run_python(PLAY, tmp_path, **env).split()
    assert elsewhere == second
    # an edit of a kernel, in another file than the compiled loop, must not find the old code
    kernels = package / "mab" / "classics.py"
    edited = kernels.read_text().replace(
        "given_count_radius(n, log_t,", "given_count_radius(n, 10.0 * log_t,"
    )
    assert edited != kernels.read_text()
    kernels.write_text(edited)
    third = run_python(PLAY, tmp_path, **env).split()
    assert third[:2] == ["0", "1"]
    assert third[2] == third[3], "compiled and interpreted runs must agree after the edit"
    assert third[2] != first[2]


@pytest.mark.slow
def test_unwritable_cache_warns_and_works(tmp_path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    code = """
    import warnings
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        import zib
    print([str(w.message) for w in caught if "does not keep compiled code" in str(w.message)] != [])
    bandit = zib.Bandit(zib.mab.UCB1(), n_arms=2, seed=0)
    bandit.update(bandit.select(), 1.0)
    """
    assert run_python(code, tmp_path, NUMBA_CACHE_DIR=str(blocked)).strip() == "True"


@pytest.mark.slow
def test_cache_can_be_switched_off(tmp_path) -> None:
    code = "import zib; print(zib.core.cache.FOLDER)"
    assert run_python(code, tmp_path, ZIB_CACHE="0").strip() == "None"


def test_callers_own_numba_cache_is_left_alone(tmp_path) -> None:
    code = """
    import numba
    before = numba.config.CACHE_DIR
    import zib
    print(numba.config.CACHE_DIR == before)
    """
    assert run_python(code, tmp_path).strip() == "True"


def test_runs_without_a_compiler(tmp_path) -> None:
    code = """
    import zib
    env = zib.env.GaussianMAB(means=[1.0, 2.0], probs=[0.3, 0.4], sigma=1.0)
    result = zib.simulate([zib.mab.ZITS(horizon=50, sigma=1.0)], env, horizon=50, replications=2,
                          progress=False)
    bandit = zib.Bandit(zib.mab.ZITS(horizon=50, sigma=1.0), n_arms=3, seed=0)
    bandit.update(bandit.select(), 1.0)
    print(result.regret[0, :, -1].tolist())
    """
    with_jit = run_python(code, tmp_path)
    without = run_python(code, tmp_path, NUMBA_DISABLE_JIT="1")
    assert with_jit == without


def test_import_compiles_nothing_and_loads_nothing_heavy(tmp_path) -> None:
    code = """
    import sys, zib
    from zib.sim.loop import advance
    heavy = {"matplotlib", "pandas", "scipy.stats", "scipy.optimize"} & set(sys.modules)
    print(heavy, len(advance.cached.signatures))
    """
    assert run_python(code, tmp_path).split() == ["set()", "0"]


# ------------------------------------------------------------------------------- foreign policies


@pytest.mark.slow
def test_a_users_policy_runs_compiled_conforms_and_is_never_stale(tmp_path) -> None:
    module = tmp_path / "my_policy.py"
    code = """
    import numpy as np, zib, zib.testing, my_policy
    from zib.sim import loop
    spec = my_policy.Cautious(level=1.0)
    zib.testing.check_policy(spec)
    env = zib.env.GaussianMAB(means=[1.0, 2.0, 1.5], probs=[0.3, 0.4, 0.2], sigma=1.0)
    fast = loop.play(spec, env, np.arange(1, 301), 0, 0)
    slow = loop.play(spec, env, np.arange(1, 301), 0, 0, compiled=False)
    assert np.array_equal(fast.regret, slow.regret)
    assert len(loop.advance.fresh.signatures) == 1 and not loop.advance.cached.signatures
    result = zib.simulate({"mine": spec, "nested": zib.mab.EpsilonGreedy()}, env, horizon=200,
                          replications=2, backend="processes", workers=2, progress=False)
    print(fast.regret[-1], result.complete)
    """
    code = 'if __name__ == "__main__":\n' + textwrap.indent(textwrap.dedent(code), "    ")
    script = tmp_path / "script.py"
    script.write_text(code)
    outputs = []
    for bonus in ("1.0", "50.0"):
        module.write_text(MY_POLICY.replace("BONUS", bonus))
        done = subprocess.run(
            [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        outputs.append(done.stdout.split())
    assert outputs[0][0] != outputs[1][0], "an edited kernel must be compiled again"
    assert outputs[0][1] == "True"


def test_one_signature_per_type_of_spec() -> None:
    from zib.sim import loop

    env = zib.env.GaussianMAB(means=[1.0, 2.0], probs=[0.3, 0.4], sigma=1.0)
    specs = [mab.UCB1(scale=1), mab.UCB1(scale=2.5), mab.UCB1(scale=np.float64(3))]
    before = None
    for spec in specs:
        loop.play(spec, env, np.array([20]), 0, 0)
        now = len(loop.advance.cached.signatures)
        assert before in (None, now)
        before = now


# ------------------------------------------------------------------------------------------ specs


@pytest.mark.parametrize("name", SPECS)
def test_specs_print_as_code_that_rebuilds_them(name) -> None:
    spec = SPECS[name]
    namespace = {**vars(mab)}
    assert eval(repr(spec), namespace) == spec
    assert pickle.loads(pickle.dumps(spec)) == spec
    assert spec.label


def test_specs_differ_by_type_and_by_value() -> None:
    assert mab.UCB1(scale=1.0) != mab.UCBV(scale=1.0)
    assert mab.UCB1(scale=1.0) != mab.UCB1(scale=2.0)
    assert mab.UCB1(scale=1.0)._replace(scale=2.0) == mab.UCB1(scale=2.0)
    with pytest.raises(InvalidParameterError):
        mab.UCB1(scale=1.0)._replace(scale=-2.0)


BAD = [
    (lambda: mab.ZIUCB(horizon=1, sigma=1.0), r"`horizon` must lie in \[2, inf\); got 1"),
    (lambda: mab.ZIUCB(horizon=100), "exactly one of `sigma`"),
    (lambda: mab.ZIUCB(horizon=100, sigma=1.0, tail=mab.SubGaussian(1.0)), "exactly one"),
    (lambda: mab.ZIUCB(horizon=100, sigma=-1.0), r"`sigma` must lie in \(0, inf\); got -1.0"),
    (lambda: mab.ZIUCB(horizon=100, sigma=math.nan), "`sigma` must be a finite number"),
    (
        lambda: mab.ZIUCB(horizon=100, sigma=1.0, radius="wide"),
        "`radius` must be one of 'given_count'",
    ),
    (
        lambda: mab.ZIUCB(horizon=100, sigma=1.0, unseen="none"),
        "`unseen` must be 'pooled' or a number",
    ),
    (lambda: mab.ZIUCB(horizon=100, tail=3.0), "`tail` must be made by"),
    (
        lambda: mab.ZIUCB(horizon=100, tail=mab.SubExponential(1.0), radius="subweibull"),
        "needs `tail`=SubWeibull",
    ),
    (lambda: mab.SubWeibull(0.0, 1.0), r"`theta` must lie in \(0, inf\)"),
    (lambda: mab.ZIHeavyUCB(epsilon=1.5, moment=1.0), r"`epsilon` must lie in \(0, 1\]; got 1.5"),
    (lambda: mab.ZIHeavyUCB(epsilon=1.0, moment=0.0), "`moment` must lie in"),
    (lambda: mab.ZITS(horizon="many", sigma=1.0), "`horizon` must be a finite number"),
    (lambda: mab.ZITS(horizon=10, sigma=1.0, alpha=0.0), "`alpha` must lie in"),
    (lambda: mab.ZIStableTS(sigma=1.0, stability=1.0), r"`stability` must lie in \(1, 2\]"),
    (lambda: mab.UCB(horizon=10, sigma=1.0, size="big"), "`size` must be one of 'component'"),
    (lambda: mab.UCB(horizon=10, tail=mab.SubWeibull(1.0, 1.0)), "must be SubGaussian or SubExp"),
    (lambda: mab.MOTS(horizon=10, sigma=1.0, rho=1.5), r"`rho` must lie in \(0, 1\]"),
    (lambda: mab.EpsilonGreedy(epsilon=-0.1), r"`epsilon` must lie in \[0, 1\]"),
    (lambda: mab.KLUCB(scale=0.0), "`scale` must lie in"),
    (lambda: mab.Anytime(spec=mab.UCB1()), "policy with a horizon"),
]


@pytest.mark.parametrize(("make", "message"), BAD, ids=[m for _, m in BAD])
def test_parameters_out_of_range(make, message) -> None:
    with pytest.raises(InvalidParameterError, match=message):
        make()


# ------------------------------------------------------------------------------- streams, checks


def test_streams_are_named_not_ordered() -> None:
    a = stream(3, Role.POLICY, 1).random(4)
    stream(3, Role.POLICY, 0).random(100)
    assert np.array_equal(a, stream(3, Role.POLICY, 1).random(4))
    others = [stream(3, Role.ENVIRONMENT, 1), stream(4, Role.POLICY, 1), stream(3, Role.POLICY, 2)]
    assert not any(np.array_equal(a, other.random(4)) for other in others)


def test_generators_travel_as_data() -> None:
    rng = stream(1, Role.POLICY, 2)
    rng.random(7)
    again = generator_from_data(generator_to_data(rng))
    assert np.array_equal(rng.random(5), again.random(5))
    with pytest.raises(InvalidParameterError, match="`bit_generator` must be one of"):
        generator_from_data({"bit_generator": "os.system"})
    with pytest.raises(InvalidParameterError, match="damaged"):
        generator_from_data({"bit_generator": "PCG64", "state": {}})


def test_messages_of_one_form() -> None:
    with pytest.raises(InvalidParameterError, match=r"^`delta` must lie in \(0, 1\); got 1\.5$"):
        validate.real("delta", 1.5, low=0, high=1, closed="neither")
    with pytest.raises(InvalidParameterError, match="`k` must be a whole number in"):
        validate.integer("k", 1.5, low=0)
    with pytest.raises(InvalidParameterError, match="got 2.0 at position 1"):
        validate.vector("probs", [0.5, 2.0], low=0, high=1)
    with pytest.raises(InvalidParameterError, match="non-empty one-dimensional"):
        validate.vector("probs", [[0.5]])


def test_ties_are_broken_evenly(rng) -> None:
    from zib.core.kernel import argmax_random

    values = np.array([1.0, np.nan, 3.0, 3.0, 0.0, 3.0])
    picked = np.bincount([argmax_random(values, rng) for _ in range(9_000)], minlength=6)
    assert picked[[0, 1, 4]].sum() == 0
    # three proportions at 5 standard errors: error probability below 2e-6
    assert (abs(picked[[2, 3, 5]] / 9_000 - 1 / 3) < 5 * math.sqrt(2 / 9 / 9_000)).all()
