"""The loop on a GPU: compiled for one everywhere, run by a simulator, and by a GPU if there is one.

`pip install 'zib[cuda]'` brings the compiler. Without a GPU it still compiles every policy to the
code of one, and Numba's simulator runs the launching, copying and summing as plain Python.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from tests.policies import SPECS
from tests.sim.test_many import CONTEXTUAL, KINDS, VISITORS

import zib
from zib import env, mab
from zib.core.validate import InvalidParameterError
from zib.env.arrays import world_of
from zib.sim import cuda as gpu
from zib.sim.many import Constants, new_batch, play_many

SHOP = env.GaussianMAB(means=[2.0, 4.0, 8.0], probs=[0.2, 0.12, 0.05], sigma=1.0)
has_compiler = pytest.mark.skipif(
    importlib.util.find_spec("numba_cuda") is None,
    reason="the compiler for GPUs is missing: pip install 'zib[cuda]'",
)


def has_gpu() -> bool:
    try:
        gpu.require_gpu()
    except InvalidParameterError:
        return False
    return True


needs_gpu = pytest.mark.skipif("not has_gpu()", reason="there is no NVIDIA GPU here")


@pytest.mark.skipif("has_gpu()", reason="there is a GPU here")
def test_without_a_gpu_one_sentence_says_what_is_missing() -> None:
    with pytest.raises(InvalidParameterError, match=r"^`backend`='cuda' needs .*'counter' plays"):
        zib.simulate([mab.UCB1()], SHOP, horizon=9, backend="cuda", progress=False)


# ------------------------------------------------------------------------------ without any GPU


def distinct() -> dict[str, object]:
    """Return one spec of each type that is compiled by itself."""
    found: dict[object, tuple[str, object]] = {}
    for name, spec in SPECS.items():
        kind = (type(spec), *(type(field) for field in spec))
        inner = tuple(type(x) for field in spec if isinstance(field, tuple) for x in field)
        found.setdefault((kind, inner), (name, spec))
    return dict(found.values())


@pytest.fixture
def cuda_kernels(monkeypatch):
    """The kernels, for a compiler that believes in a GPU: it asks for one when functions call."""
    import numba.cuda.dispatcher as dispatcher

    hopper = SimpleNamespace(compute_capability=(9, 0))
    monkeypatch.setattr(dispatcher, "get_current_device", lambda: hopper)
    from zib.sim import cuda_kernels

    return cuda_kernels


def machine_code(spec, environment, kernel) -> str:
    """Return what the compiler makes of the loop for a GPU."""
    import numba
    from numba import cuda, types

    world = world_of(environment, 0, 0, 4)
    batch, rounds = new_batch(spec, world, 4, 2), np.array([1, 2])
    told = (spec, batch, world.arrays, Constants(1, 2, 0, 0.0), rounds, 0, 2)
    signature = types.void(*(numba.typeof(argument) for argument in told))
    code, _ = cuda.compile(kernel, signature, device=False, abi="numba", cc=(9, 0))
    return str(code)


@has_compiler
@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(distinct()))
def test_every_policy_compiles_for_a_gpu(name: str, cuda_kernels) -> None:
    assert ".target sm_90" in machine_code(SPECS[name], SHOP, cuda_kernels.play)


@has_compiler
@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_law_compiles_for_a_gpu(name: str, cuda_kernels) -> None:
    assert ".entry" in machine_code(mab.UCB1(), KINDS[name], cuda_kernels.play)


@has_compiler
@pytest.mark.slow
@pytest.mark.parametrize("name", CONTEXTUAL)
def test_contextual_policies_compile_for_a_gpu(name: str, cuda_kernels) -> None:
    assert ".entry" in machine_code(CONTEXTUAL[name], VISITORS, cuda_kernels.play)


@has_compiler
@pytest.mark.slow
def test_what_makes_summaries_compiles_for_a_gpu(cuda_kernels) -> None:
    from numba import cuda, types

    floats, counts = (types.Array(kind, 2, "F") for kind in (types.float64, types.int64))
    row, table = types.float64[::1], types.int64[:, ::1]
    for kernel, arguments in (
        (cuda_kernels.moments, (floats, floats, types.boolean, row, row)),
        (cuda_kernels.moments, (counts, counts, types.boolean, row, row)),
        (cuda_kernels.largest, (floats, row)),
        (cuda_kernels.count, (floats, row, table)),
    ):
        code, _ = cuda.compile(kernel, types.void(*arguments), device=False, abi="numba", cc=(9, 0))
        assert ".entry" in code


SIMULATED = """
import json, sys
import numpy as np, zib
from tests.policies import SPECS
from zib.sim import cuda, many, summary

env = zib.env.RandomMAB("gaussian", n_arms=3)
rounds = np.array([4, 30])
same = {}
for name in ("zi-ts", "zi-ucb", "zi-adaptive", "ucb true", "windowed zi-ts"):
    there = cuda.play_many(SPECS[name], env, rounds, 3, 10, 15)
    here = many.play_many(SPECS[name], env, rounds, 3, 10, 15, compiled=False)
    same[name] = all(np.array_equal(a, b) for a, b in zip(there, here))

visitors = zib.env.RandomContextual(n_arms=3, dimension=2, sparsity=2)
spec = zib.contextual.LaplaceTS()
there = cuda.play_many(spec, visitors, rounds, 3, 10, 13)
here = many.play_many(spec, visitors, rounds, 3, 10, 13, compiled=False)
same["contextual"] = all(np.array_equal(a, b) for a, b in zip(there, here))

summary.EXACT = cuda.EXACT = 20  # few replications, many chunks, all that is otherwise for millions
cuda.COLUMN_THREADS, cuda.MOST, cuda.FIRST_PIECE = 8, 25, 5
policies = {name: SPECS[name] for name in ("zi-ts", "zi-ucb", "ucb1")}
told = dict(horizon=20, replications=60, backend="cuda", checkpoints=4, progress=False)
short = zib.simulate(policies, env, keep="summary", **told)
whole = zib.simulate(policies, env, **told)
worst = max(
    float(np.max(np.abs(getattr(short, what)() / getattr(whole, what)() - 1.0)))
    for what in ("mean", "mean_reward", "standard_error")
)
pulls = float(np.abs(short.mean_pulls() - whole.pulls.mean(axis=1)).max())
ends = [each.difference("zi-ts", "ucb1") for each in (short, whole)]
apart = max(
    float(np.abs(getattr(ends[0], what) - getattr(ends[1], what)).max())
    for what in ("mean", "low", "high")
)
bins = summary.Quantiles(4)
for rows in whole.regret[0][:25], whole.regret[0][25:50], whole.regret[0][50:]:
    bins.add(rows)
off = float(np.max(np.abs(short._arrays["quantiles"][0] / bins.values() - 1.0)))
print(json.dumps({"same": same, "worst": worst, "pulls": pulls, "apart": apart, "off": off}))
"""


@has_compiler
@pytest.mark.slow
def test_a_simulated_gpu_plays_and_sums_up_as_the_processor_does() -> None:
    environment = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1", "NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run(
        [sys.executable, "-c", SIMULATED],
        env=environment,
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert all(found["same"].values()), found
    assert max(found["worst"], found["pulls"], found["apart"]) < 1e-12, found
    assert found["off"] < 0.011, found  # bins, whose scale comes from the first chunk


# ---------------------------------------------------------------------------------- with a GPU


@needs_gpu
@pytest.mark.slow
@pytest.mark.parametrize("name", CONTEXTUAL)
def test_a_gpu_decides_by_contexts_as_the_processor_does(name: str, seed: int) -> None:
    rounds = np.array([50, 200])
    there = gpu.play_many(CONTEXTUAL[name], VISITORS, rounds, seed, 0, 128)
    here = play_many(CONTEXTUAL[name], VISITORS, rounds, seed, 0, 128)
    same = (there.pulls == here.pulls).all(axis=1)
    assert same.mean() > 0.5, f"{(~same).sum()} of 128 replications differ"
    np.testing.assert_allclose(there.regret[same], here.regret[same], rtol=1e-6)


@needs_gpu
@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(distinct()))
def test_a_gpu_decides_as_the_processor_does(name: str, seed: int) -> None:
    rounds = np.array([50, 400])
    there = gpu.play_many(SPECS[name], SHOP, rounds, seed, 0, 512)
    here = play_many(SPECS[name], SHOP, rounds, seed, 0, 512)
    # logarithms and cosines differ in the last bit, which turns a decision now and then, after
    # which that replication goes its own way; most of them never meet one
    same = (there.pulls == here.pulls).all(axis=1)
    assert same.mean() > 0.9, f"{(~same).sum()} of 512 replications differ"
    np.testing.assert_allclose(there.regret[same], here.regret[same], rtol=1e-9)
