"""The loop of `zib.sim.many` on an NVIDIA GPU: one thread per replication.

What is compiled is `play_on` and the registered kernels of the policies, as they stand. Arrays lie
on the GPU with the replication as the index that changes fastest, so that neighbouring threads read
neighbouring numbers. A few policies are played side by side, each on a stream of its own, since the
ten thousand replications of one alone leave most of a GPU idle. Where only a summary is wanted,
sums and counts are made there too, and no replication ever reaches this machine's memory.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import os
import pickle
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zib.core import cache, counter, kernel
from zib.core.spec import Spec
from zib.core.validate import InvalidParameterError
from zib.env.arrays import World, world_of
from zib.sim.loop import Run
from zib.sim.many import Batch, Constants, check_playable, new_batch, run_of
from zib.sim.plan import Block, Plan
from zib.sim.summary import BINS, EXACT, LOWEST_BIN, CollectSummary

THREADS = 128  # of a block
COLUMN_THREADS = 256  # that add up one column
MOST = 131_072  # replications of one policy at once
# Replications from which on no other policy is begun: kernels of several policies on one
# multiprocessor slow each other down. 16 policies, 10,000 replications each, all at once: 5.2 s;
# two at a time: 3.4 s.
BUSY = 20_000
FIRST_PIECE = 200  # rounds of the first launch; the next ones are chosen by how long it took
PIECE = 0.5  # seconds that a launch shall take: a GPU that drives a screen stops what takes longer
PAUSE = 2e-4  # seconds between two looks at what is running
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


# ---------------------------------------------------------------------------------- compiled there


@functools.cache
def compiled(name: str, registers: int | None = None, kept: bool = True) -> Any:
    """Return a kernel of `zib.sim.cuda_kernels`; what is compiled is kept on disk if `kept`."""
    cuda = require_gpu()
    from zib.sim import cuda_kernels

    function = getattr(cuda_kernels, name)
    options = {} if registers is None else {"max_registers": registers}
    made = cuda.jit(**options)(function)
    if kept:
        cuda_kernels.keep_on_disk(made)
    return made


def launched(made: Any, blocks: int, threads: int, stream: Any = 0) -> Any:
    """Return a kernel that is ready to be called; few blocks are no reason for a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return made[blocks, threads, stream]


def player_of(spec: Any) -> Any:
    """Return what plays a policy."""
    from zib.sim import cuda_kernels

    registers = cuda_kernels.registers_for(spec)
    return compiled("play", registers, kernel.is_native(spec))


def compile_ahead(plan: Plan, policies: Iterable[int]) -> None:
    """Compile what is missing for these policies, several at a time."""
    compile_all(missing_players(plan, policies))


def missing_players(plan: Plan, policies: Iterable[int] | None = None) -> dict[Any, Any]:
    """Return what has to be compiled to play a plan: by types, the arguments of `play_many`."""
    from zib.sim import cuda_kernels

    if cuda_kernels.IS_SIMULATED or cache.FOLDER is None:
        return {}
    # arrays of one row or one column lie in memory in another way, and are another type
    n, rounds = min(2, plan.replications), np.arange(1, min(2, plan.checkpoints.size) + 1)
    world = world_of(plan.environment, plan.seed, 0, n)
    same = Constants(*counter.key_of(plan.seed), 0, world.inflated)
    missing = {}
    for policy in range(len(plan.specs)) if policies is None else policies:
        spec = plan.specs[policy]
        if kernel.is_native(spec):
            batch = new_batch(spec, world, n, rounds.size)
            told = (spec, batch, world.arrays, same, rounds, 0, 1)
            signature = cuda_kernels.signature_of(player_of(spec), told)
            if not cuda_kernels.is_kept(player_of(spec), signature):
                missing[signature] = (spec, plan.environment, rounds, plan.seed, 0, n)
    return missing


def compile_all(missing: dict[Any, Any]) -> None:
    """Compile in as many processes as there are processors; they leave the code on disk.

    One process compiles one kernel after the other, in 1 to 15 s each. Whatever goes wrong there is
    compiled here later.
    """
    several = list(missing.values())
    most = min(os.cpu_count() or 1, len(several))
    if most < 2:
        return
    children = []
    try:
        for i in range(most):
            command = [sys.executable, "-c", "from zib.sim import cuda; cuda.compile_asked()"]
            quiet = subprocess.DEVNULL
            child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet)
            children.append(child)
            if child.stdin is not None:
                with contextlib.suppress(OSError), child.stdin as pipe:
                    pipe.write(pickle.dumps(several[i::most]))
        for child in children:
            child.wait()
    finally:
        for child in children:
            child.kill()
            child.wait()


def compile_asked() -> None:
    """In such a process: play as much as it takes to compile each."""
    for asked in pickle.load(sys.stdin.buffer):
        play_many(*asked)


# -------------------------------------------------------------------------------- jobs and streams


def on_gpu(cuda: Any, value: Any, stream: Any = 0) -> Any:
    """Return arrays, and tuples of arrays, on the GPU; numbers as they are."""
    if isinstance(value, np.ndarray):
        return cuda.to_device(value, stream=stream)
    if isinstance(value, tuple) and not isinstance(value, Spec):
        parts = (on_gpu(cuda, part, stream) for part in value)
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return value


class Job:
    """Some replications of one policy, played piece by piece on a stream of their own."""

    def __init__(
        self, spec: Any, world: World, rounds: NDArray[np.int64], seed: int, block: Block
    ) -> None:
        cuda = require_gpu()
        self.spec, self.world, self.rounds, self.block = spec, world, rounds, block
        self.n = n = block.size
        self._same = Constants(*counter.key_of(seed), block.first, world.inflated)
        self._stream, self._mark = cuda.stream(), cuda.event()
        here = new_batch(spec, world, n, rounds.size)
        self.bytes = _bytes(here) + _bytes(world.arrays)
        self.batch: Batch = on_gpu(cuda, here, self._stream)
        self._there = on_gpu(cuda, world.arrays, self._stream)
        self._stops = cuda.to_device(rounds, stream=self._stream)
        self._player = player_of(spec)
        self._stream.synchronize()  # `here` may go
        self._begin = self._end = 0  # checkpoints between which it is playing
        self._piece, self._since = FIRST_PIECE, 0.0

    @property
    def is_finished(self) -> bool:
        """Whether it was played to the end."""
        return self._begin == self.rounds.size

    def go_on(self) -> int:
        """Begin the next piece, if the last one has ended; return the checkpoints it reached."""
        reached = 0
        if self._end > self._begin:
            if not self._has_ended():
                return 0
            took = max(time.monotonic() - self._since, 1e-6)
            self._piece = max(1, int(self._piece * min(max(PIECE / took, 0.25), 8.0)))
            reached, self._begin = self._end - self._begin, self._end
        if not self.is_finished:
            begun = self.rounds[self._begin - 1] if self._begin else 0
            end = int(np.searchsorted(self.rounds, begun + self._piece, side="right"))
            self._end, self._since = max(end, self._begin + 1), time.monotonic()
            self._piece = int(self.rounds[self._end - 1] - begun)
            launched(self._player, math.ceil(self.n / THREADS), THREADS, self._stream)(
                self.spec, self.batch, self._there, self._same, self._stops, self._begin, self._end
            )
            self._mark.record(self._stream)
        return reached

    def _has_ended(self) -> bool:
        query = getattr(self._mark, "query", lambda: True)  # what is only simulated has no query
        return bool(query())

    def fetch(self) -> Run:
        """Return what was measured, here."""
        here = {
            name: getattr(self.batch, name).copy_to_host(stream=self._stream) for name in MEASURED
        }
        self._stream.synchronize()
        return run_of(self.batch._replace(**here), self.world, self.rounds)


def side_by_side(jobs: Iterator[Job], room: float, tick: Tick) -> Iterator[Job]:
    """Play jobs, as many at a time as a GPU has room for, and yield each when it is finished.

    Another one is begun while those that are playing take less than `room` bytes.
    """
    running: list[Job] = []
    while True:
        while (
            sum(job.n for job in running) < BUSY
            and sum(job.bytes for job in running) < room
            and (job := next(jobs, None)) is not None
        ):
            running.append(job)
        if not running:
            return
        reached = 0
        for job in list(running):
            more = job.go_on()
            reached += more
            tick(more * job.n)
            if job.is_finished:
                running.remove(job)
                yield job
        if not reached:
            time.sleep(PAUSE)


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
    chunk, room = chunk_size([spec], environment, seed, rounds.size)
    blocks = (Block(0, at, min(at + chunk, last)) for at in range(first, last, chunk))
    jobs = (
        Job(spec, world_of(environment, seed, block.first, block.last), rounds, seed, block)
        for block in blocks
    )
    found = {job.block: job.fetch() for job in side_by_side(jobs, room, tick)}
    runs = (found[block] for block in sorted(found))
    return Run(*(np.concatenate(parts) for parts in zip(*runs, strict=True)))


def play_plan(
    plan: Plan, ask: Callable[[], Block | None], tick: Tick
) -> Iterator[tuple[Block, Run]]:
    """Play the blocks that `ask` returns, until it returns None; the first part of one at least."""
    chunk, room = chunk_size(plan.specs, plan.environment, plan.seed, plan.checkpoints.size)

    @functools.lru_cache(maxsize=2)  # blocks of all policies are in the same environments
    def world(first: int, last: int) -> World:
        return world_of(plan.environment, plan.seed, first, last)

    def jobs() -> Iterator[Job]:
        while (block := ask()) is not None:
            part = block._replace(last=min(block.last, block.first + chunk))
            spec = plan.specs[block.policy]
            asked[part] = block
            yield Job(spec, world(part.first, part.last), plan.checkpoints, plan.seed, part)

    asked: dict[Block, Block] = {}
    for job in side_by_side(jobs(), room, tick):
        yield asked.pop(job.block), job.fetch()


def chunk_size(
    specs: Sequence[Any], environment: Any, seed: int, n_checkpoints: int
) -> tuple[int, float]:
    """Return how many replications of all policies fit, there and here, and the bytes of that.

    Twice as much fits, so that another chunk can be begun while one is being played.
    """
    room = 0.5 * SHARE * require_gpu().current_context().get_memory_info()[0]
    world = world_of(environment, seed, 0, 1)
    sizes = [_bytes(new_batch(spec, world, 1, n_checkpoints)) for spec in specs]
    most = min(room / (sum(sizes) + _bytes(world.arrays)), HERE / max(sizes))
    return max(1, int(min(MOST, most))), room


def _bytes(value: Any) -> int:
    if isinstance(value, tuple):
        return sum(map(_bytes, value))
    return int(value.nbytes) if isinstance(value, np.ndarray) else 8


# --------------------------------------------------------------------------------------- summaries


def summarise(plan: Plan, collector: CollectSummary, tick: Tick) -> None:
    """Play the whole plan and hand over sums and counts, chunk by chunk."""
    rounds, seed = plan.checkpoints, plan.seed
    chunk, _ = chunk_size(plan.specs, plan.environment, seed, rounds.size)
    for first in range(0, plan.replications, chunk):
        last = min(first + chunk, plan.replications)
        world = world_of(plan.environment, seed, first, last)
        blocks = (Block(policy, first, last) for policy in range(len(plan.specs)))
        jobs = (Job(plan.specs[b.policy], world, rounds, seed, b) for b in blocks)
        batches: dict[Block, Batch] = {}
        for job in side_by_side(jobs, math.inf, tick):  # a chunk of all policies fits
            batches[job.block] = job.batch._replace(states=None, space=None)  # which is most of it
        in_order = [batches[block] for block in sorted(batches)]
        reduce_into(collector, in_order, world.inflated * rounds)


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
    _fill("moments", (x, y if paired else x, paired), out[0], out[1])
    return out[0], out[1]


def _largest(x: Any) -> NDArray[Any]:
    out = np.zeros(x.shape[1])
    _fill("largest", (x,), out)
    return out


def _counts(x: Any, scale: NDArray[Any]) -> NDArray[Any]:
    out = np.zeros((x.shape[1], BINS), dtype=np.int64)
    _fill("count", (x, require_gpu().to_device(scale)), out)
    return out


def _fill(name: str, asked: tuple[Any, ...], *out: NDArray[Any]) -> None:
    """Have a kernel write into arrays, with one block of threads per column of the first one."""
    cuda = require_gpu()
    there = [cuda.to_device(part) for part in out]
    launched(compiled(name), asked[0].shape[1], COLUMN_THREADS)(*asked, *there)
    for here, made in zip(out, there, strict=True):
        made.copy_to_host(here)
