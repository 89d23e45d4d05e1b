"""What runs on a GPU. Import it only where there is one: it sets the compiler for GPUs up.

`play` is the loop of `zib.sim.many`; the others make summaries of what was played. Each is launched
with one block of threads per column there, and adds up in a fixed order: the same numbers each
time.
"""

from __future__ import annotations

from numba import cuda, float64, int64
from numba.cuda import extending

from zib.core import counter
from zib.sim.many import play_on
from zib.sim.summary import BINS, LOWEST_BIN, place_of

MOST_THREADS = 1_024  # of a block

if hasattr(extending, "overload_method"):  # not where a GPU is only simulated
    counter.give_methods(extending.overload_method)


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
