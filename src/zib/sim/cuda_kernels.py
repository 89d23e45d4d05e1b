"""What runs on a GPU. Import it only where there is one: it sets the compiler for GPUs up.

`play` is the loop of `zib.sim.many`; the others make summaries of what was played. Each is launched
with one block of threads per column there, and adds up in a fixed order: the same numbers each
time.
"""

from __future__ import annotations

from typing import Any

from numba import cuda, float64, int64
from numba.cuda import extending

from zib.core import cache, counter, kernel
from zib.sim.many import play_on
from zib.sim.summary import BINS, LOWEST_BIN, place_of

MOST_THREADS = 1_024  # of a block
FEW_REGISTERS = 64
IS_SIMULATED = bool(cache.numba_config.ENABLE_CUDASIM)

if hasattr(extending, "overload_method"):  # not in every simulation of a GPU
    counter.give_methods(extending.overload_method)


# -------------------------------------------------------------------------------- compiled code


def registers_for(spec: Any) -> int | None:
    """Return how many registers a thread may have that plays a policy; None for any number.

    Rounds are short where a policy keeps the score of every arm, and go fastest with all numbers in
    registers. Where every arm is scored in every round it takes many threads to hide how long each
    logarithm takes, and a GPU has room for twice as many if each has 64 registers (ZI-TS: 7.3·10⁸
    rounds/s against 5.9·10⁸ on an H200; ZI-UCB: 3.0·10⁹ against 4.7·10⁹).
    """
    found = kernel.REGISTRY.get(type(spec))
    if IS_SIMULATED or found is None or hasattr(found.own, "score"):
        return None
    return FEW_REGISTERS


def keep_on_disk(made: Any) -> None:
    """Have what is compiled for a GPU kept with what is compiled for processors."""
    if IS_SIMULATED or not cache.can_be_kept(made.py_func):
        return
    from numba.cuda.core import caching
    from numba.cuda.dispatcher import CUDACache
    from numba.cuda.serialize import dumps

    class Cache(cache.Kept, CUDACache):
        pass

    with cache.our_place(caching.CacheImpl):
        made._cache = Cache(made.py_func)
    made._cache.keep_in_sealed_files(dumps)


def signature_of(made: Any, arguments: tuple[Any, ...]) -> Any:
    """Return for which types a call with such arguments is compiled."""
    return tuple(made.typeof_pyval(argument) for argument in arguments)


def is_kept(made: Any, signature: Any) -> bool:
    """Whether there is compiled code, here or on disk."""
    return signature in made.overloads or made._cache.has(signature, made.targetctx)


# -------------------------------------------------------------------------------------- kernels


def play(spec, batch, world, same, rounds, begin, end):
    """Play one replication per thread, from one checkpoint to another."""
    r = cuda.grid(1)
    if r < batch.pulls.shape[0]:
        used = cuda.local.array(1, int64)
        used[0] = batch.used[r, 0]
        play_on(world, spec, batch, same, rounds, begin, end, used, r)
        batch.used[r, 0] = used[0]


def moments(x, y, paired, mean, squares):
    """Write mean and squared deviations of each column of x, or of x − y."""
    parts = cuda.shared.array(MOST_THREADS, float64)
    column, lane, lanes = cuda.blockIdx.x, cuda.threadIdx.x, cuda.blockDim.x
    centre = 0.0
    for power in range(1, 3):
        total = 0.0
        for r in range(lane, x.shape[0], lanes):
            value = x[r, column] - centre
            if paired:
                value -= y[r, column]
            total += value * value if power == 2 else value
        parts[lane] = total
        cuda.syncthreads()
        step = lanes // 2
        while step > 0:
            if lane < step:
                parts[lane] += parts[lane + step]
            cuda.syncthreads()
            step //= 2
        if power == 1:
            centre = parts[0] / x.shape[0]
            cuda.syncthreads()
    if lane == 0:
        mean[column] = centre
        squares[column] = parts[0]


def largest(x, out):
    """Write the largest absolute value of each column; `out` begins with zeros."""
    column = cuda.blockIdx.x
    for r in range(cuda.threadIdx.x, x.shape[0], cuda.blockDim.x):
        cuda.atomic.max(out, column, abs(x[r, column]))


def count(x, scale, counts):
    """Add how many values of each column are in each bin."""
    column = cuda.blockIdx.x
    for r in range(cuda.threadIdx.x, x.shape[0], cuda.blockDim.x):
        at = round(place_of(x[r, column], scale[column])) - LOWEST_BIN
        cuda.atomic.add(counts, (column, min(max(at, 0), BINS - 1)), 1)
