"""The loop of `zib.sim.many` on an NVIDIA GPU: one thread per replication.

What is compiled is `play_on` and the registered kernels of the policies, as they stand. Arrays lie
on the GPU with the replication as the index that changes fastest, so that neighbouring threads read
neighbouring numbers. Where only a summary is wanted, sums and counts are made there too, and no
replication ever reaches this machine's memory.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zib.core import counter
from zib.core.spec import Spec
from zib.core.validate import InvalidParameterError
from zib.env.arrays import World, world_of
from zib.sim.loop import Run
from zib.sim.many import Batch, Constants, check_playable, new_batch, run_of
from zib.sim.plan import Plan
from zib.sim.summary import BINS, EXACT, LOWEST_BIN, CollectSummary

THREADS = 128  # of a block
COLUMN_THREADS = 256  # that add up one column
MOST = 131_072  # replications played at once
ROUNDS_AT_ONCE = 4_000_000_000  # of all replications: about a second, so that Ctrl-C is heard
SHARE = 0.6  # of the free memory of the GPU that arrays may take
HERE = 4e9  # bytes of this machine's memory in which what is sent there is made
MEASURED = ("regret", "reward", "pulls")

Tick = Callable[[int], None]


def require_gpu() -> Any:
    """Return `numba.cuda`, or say in one sentence what is missing."""
    instead = "; backend='counter' plays the same on the processors"
    try:
        import numba_cuda as numba_cuda
        from numba import cuda
    except ImportError:
        raise InvalidParameterError(
            f"`backend`='cuda' needs the package numba-cuda: pip install 'zib[cuda]'{instead}"
        ) from None
    if not cuda.is_available():
        raise InvalidParameterError(
            "`backend`='cuda' needs an NVIDIA GPU with its driver; none was found on this "
            f"machine{instead}"
        )
    return cuda


@functools.cache
def compiled(name: str) -> Any:
    """Return a kernel of `zib.sim.cuda_kernels`, to be launched."""
    cuda = require_gpu()
    from zib.sim import cuda_kernels

    return cuda.jit(getattr(cuda_kernels, name))


# --------------------------------------------------------------------------------- one batch there


def on_gpu(cuda: Any, value: Any) -> Any:
    """Return arrays, and tuples of arrays, on the GPU; numbers as they are."""
    if isinstance(value, np.ndarray):
        return cuda.to_device(value)
    if isinstance(value, tuple) and not isinstance(value, Spec):
        parts = (on_gpu(cuda, part) for part in value)
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return value


def play_batch(
    spec: Any, world: World, rounds: NDArray[np.int64], same: Constants, n: int, tick: Tick
) -> Batch:
    """Play so many replications to the end and return the batch, on the GPU."""
    cuda = require_gpu()
    batch: Batch = on_gpu(cuda, new_batch(spec, world, n, rounds.size))
    there, stops = on_gpu(cuda, world.arrays), cuda.to_device(rounds)
    launch = compiled("play")[math.ceil(n / THREADS), THREADS]
    begin = 0
    while begin < rounds.size:
        begun = rounds[begin - 1] if begin else 0
        end = int(np.searchsorted(rounds, begun + max(1, ROUNDS_AT_ONCE // n), side="right"))
        end = max(end, begin + 1)
        launch(spec, batch, there, same, stops, begin, end)
        cuda.synchronize()
        tick((end - begin) * n)
        begin = end
    return batch


def play_many(
    spec: Any,
    environment: Any,
    checkpoints: NDArray[np.int64],
    seed: int,
    first: int,
    last: int,
    tick: Tick = lambda more: None,
) -> Run:
    """Play replications first, …, last − 1 on the GPU, and bring them here."""
    check_playable(spec, environment)
    rounds = np.array(checkpoints, dtype=np.int64)
    chunk = chunk_size([spec], environment, seed, rounds.size)
    runs = []
    for begin in range(first, last, chunk):
        n = min(chunk, last - begin)
        world = world_of(environment, seed, begin, begin + n)
        same = Constants(*counter.key_of(seed), begin, world.inflated)
        batch = play_batch(spec, world, rounds, same, n, tick)
        here = {name: getattr(batch, name).copy_to_host() for name in MEASURED}
        runs.append(run_of(batch._replace(**here), world, rounds))
    return Run(*(np.concatenate(parts) for parts in zip(*runs, strict=True)))


def chunk_size(specs: Sequence[Any], environment: Any, seed: int, n_checkpoints: int) -> int:
    """Return how many replications of all policies fit into the memory, there and here."""
    free = require_gpu().current_context().get_memory_info()[0]
    world = world_of(environment, seed, 0, 1)
    sizes = [_bytes(new_batch(spec, world, 1, n_checkpoints)) for spec in specs]
    most = min(SHARE * free / (sum(sizes) + _bytes(world.arrays)), HERE / max(sizes))
    return max(1, int(min(MOST, most)))


def _bytes(value: Any) -> int:
    if isinstance(value, tuple):
        return sum(map(_bytes, value))
    return int(value.nbytes) if isinstance(value, np.ndarray) else 8


# --------------------------------------------------------------------------------------- summaries


def summarise(plan: Plan, collector: CollectSummary, tick: Tick) -> None:
    """Play the whole plan and hand over sums and counts, chunk by chunk."""
    chunk = chunk_size(plan.specs, plan.environment, plan.seed, plan.checkpoints.size)
    for first in range(0, plan.replications, chunk):
        last = min(first + chunk, plan.replications)
        world = world_of(plan.environment, plan.seed, first, last)
        same = Constants(*counter.key_of(plan.seed), first, world.inflated)
        batches = []
        for spec in plan.specs:
            batch = play_batch(spec, world, plan.checkpoints, same, last - first, tick)
            batches.append(batch._replace(states=None, space=None))  # which is most of it
        reduce_into(collector, batches, world.inflated * plan.checkpoints)


def reduce_into(collector: CollectSummary, batches: list[Batch], shift: NDArray[Any]) -> None:
    """Add the replications of a chunk, which are on the GPU, to a summary.

    `shift` is what the inflated value adds to the reward at each checkpoint.
    """
    if collector.replications <= EXACT:  # few enough to be kept one by one
        rows = []
        for batch in batches:
            regret, reward, pulls = (getattr(batch, name).copy_to_host() for name in MEASURED)
            rows.append(Run(regret, reward + shift, pulls))
        collector.add_rows(rows)
        return
    n = batches[0].regret.shape[0]
    for policy, batch in enumerate(batches):
        mean, squares = _moments(batch.reward)
        collector.add_moments("reward", policy, n, mean + shift, squares)
        collector.add_moments("regret", policy, n, *_moments(batch.regret))
        collector.add_moments("pulls", policy, n, *_moments(batch.pulls))
        scale = collector.bins_of(policy, functools.partial(_largest, batch.regret))
        collector.add_counts(policy, LOWEST_BIN, _counts(batch.regret, scale))
    for pair, (a, b) in enumerate(itertools.combinations(batches, 2)):
        collector.add_moments("pairs", pair, n, *_moments(a.regret, b.regret))
    collector.counted(n)


def _moments(x: Any, y: Any = None) -> tuple[NDArray[Any], NDArray[Any]]:
    out = np.zeros((2, x.shape[1]))
    paired = y is not None
    compiled("moments")[x.shape[1], COLUMN_THREADS](x, y if paired else x, paired, out[0], out[1])
    return out[0], out[1]


def _largest(x: Any) -> NDArray[Any]:
    out = np.zeros(x.shape[1])
    compiled("largest")[x.shape[1], COLUMN_THREADS](x, out)
    return out


def _counts(x: Any, scale: NDArray[Any]) -> NDArray[Any]:
    out = np.zeros((x.shape[1], BINS), dtype=np.int64)
    compiled("count")[x.shape[1], COLUMN_THREADS](x, scale, out)
    return out
