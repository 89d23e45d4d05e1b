"""Who plays: this thread, several threads or processes, a GPU (`zib.sim.dask`: a cluster).

A worker is handed parts of blocks (see `zib.sim.schedule`). Each replication names its own random
streams, so the answer depends neither on the backend nor on the number of workers. A backend stops
early, without losing what is finished, when the user interrupts it.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import (
    FIRST_COMPLETED,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from contextlib import contextmanager

import numpy as np

from zib.sim import cuda
from zib.sim.loop import Run, play, tell_nobody
from zib.sim.many import play_many
from zib.sim.plan import (
    BLOCK_ROUNDS,
    BLOCK_ROUNDS_CONTEXTUAL,
    COUNTER,
    NUMPY,
    Block,
    Plan,
)
from zib.sim.schedule import POLL, Schedule

BACKENDS = ("serial", "threads", "processes", "dask", "counter", "cuda")
SLICE = 1.0  # seconds after which a worker hands over what it has
PAUSE = 0.1  # seconds between two drawings of the bar

Tick = Callable[[int], None]


class Interrupted(Exception):
    """The user asked to stop; raised after everything finished has been handed over."""


class _GivenUp(Exception):
    pass


# -------------------------------------------------------------------------------------- one worker


def play_part(plan: Plan, part: Block, on_checkpoint: Tick = tell_nobody) -> Run:
    """Play the replications of a part, one per row; fewer if they take long or one fails.

    What fails again when the rest is asked for raises then: no finished replication is lost.
    """
    spec = plan.specs[part.policy]
    if plan.engine == COUNTER:
        rounds = BLOCK_ROUNDS_CONTEXTUAL if plan.is_contextual else BLOCK_ROUNDS
        last = min(part.last, part.first + max(1, rounds // plan.horizon))
        rows = play_many(spec, plan.environment, plan.checkpoints, plan.seed, part.first, last)
        on_checkpoint(rows.regret.size)
        return rows
    until = time.monotonic() + SLICE
    runs: list[Run] = []
    for replication in range(part.first, part.last):
        try:
            run = play(
                spec,
                plan.environment,
                plan.checkpoints,
                plan.seed,
                replication,
                on_checkpoint=on_checkpoint,
            )
        except Exception:
            if not runs:
                raise
            break
        runs.append(run)
        if time.monotonic() > until:
            break
    return Run(*(np.stack(parts) for parts in zip(*runs, strict=True)))


def warm_up(plan: Plan, policies: list[int]) -> None:
    """Compile what the policies need here, once, so that no two workers compile the same."""
    rounds = np.array([2], dtype=np.int64)
    for policy in policies:
        if plan.engine == NUMPY:
            play(plan.specs[policy], plan.environment, rounds, plan.seed, 0)
        else:  # two: rows of one alone lie in memory in another way
            play_many(plan.specs[policy], plan.environment, rounds, plan.seed, 0, 2)


def default_workers() -> int:
    """Return the number of processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# ------------------------------------------------------------------------------------ many workers


def run_all(plan: Plan, schedule: Schedule, backend: str, workers: int, tick: Tick) -> None:
    """Play everything in the schedule; `tick(n)` is told of n more checkpoints reached."""
    schedule.cut_for(workers)
    if backend == "serial":
        _serial(plan, schedule, tick)
    elif backend == "cuda":
        _on_gpu(plan, schedule, tick)
    elif backend in ("threads", "counter"):
        _threads(plan, schedule, workers, tick)
    else:
        _processes(plan, schedule, workers, tick)


def _serial(plan: Plan, schedule: Schedule, tick: Tick) -> None:
    try:
        for part in schedule.each():
            # one by one: an interruption costs one replication
            one = part._replace(last=part.first + 1)
            schedule.take(part, play_part(plan, one, tick))
    except KeyboardInterrupt:
        raise Interrupted from None


def _on_gpu(plan: Plan, schedule: Schedule, tick: Tick) -> None:
    """Play block by block, several at a time; an interruption costs those that are being played."""
    schedule.cut_for(1, least=plan.block_length)
    try:
        while schedule.unfinished:
            for part, rows in cuda.play_plan(plan, schedule.next, tick):
                schedule.take(part, rows)
            if schedule.unfinished:
                time.sleep(POLL)
    except KeyboardInterrupt:
        raise Interrupted from None


def _threads(plan: Plan, schedule: Schedule, workers: int, tick: Tick) -> None:
    enough = threading.Event()

    def at_checkpoint(more: int) -> None:
        if enough.is_set():
            raise _GivenUp
        tick(more)

    with ThreadPoolExecutor(workers) as pool:

        def stop() -> None:
            enough.set()
            pool.shutdown(wait=True, cancel_futures=True)

        _keep_busy(
            schedule, workers, lambda part: pool.submit(play_part, plan, part, at_checkpoint), stop
        )


_PLAN: list[Plan] = []  # in a worker process: what it was started with


def _start_worker(plan: Plan) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    _PLAN[:] = [plan]


def _leave_with_parent() -> None:
    """End this worker when its parent was killed: nobody will ask it for anything again."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _in_worker(part: Block) -> Run:
    return play_part(_PLAN[0], part)


def _processes(plan: Plan, schedule: Schedule, workers: int, tick: Tick) -> None:
    # "spawn": a forked child would inherit locks of compiler threads
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(
        workers, mp_context=context, initializer=_start_worker, initargs=(plan,)
    )
    try:
        _keep_busy(
            schedule,
            workers,
            lambda part: pool.submit(_in_worker, part),
            lambda: None,
            lambda rows: tick(rows.regret.size),
        )
    except Interrupted:
        for process in list((getattr(pool, "_processes", None) or {}).values()):
            process.terminate()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _keep_busy(
    schedule: Schedule,
    workers: int,
    submit: Callable[[Block], Future[Run]],
    stop: Callable[[], None],
    taken: Callable[[Run], None] = lambda rows: None,
) -> None:
    """Keep every worker busy with a short queue; hand over each part as soon as it is done."""
    running: dict[Future[Run], Block] = {}

    def take(future: Future[Run]) -> None:
        rows = future.result()
        schedule.take(running.pop(future), rows)
        taken(rows)

    try:
        while True:
            while len(running) < 2 * workers and (part := schedule.next()) is not None:
                running[submit(part)] = part
            if not running:
                if not schedule.unfinished:
                    return
                time.sleep(POLL)
                continue
            pause = POLL if schedule.shared else None
            finished, _ = wait(running, timeout=pause, return_when=FIRST_COMPLETED)
            failed = [future for future in finished if future.exception() is not None]
            for future in finished.difference(failed):
                take(future)
            if failed:
                failed[0].result()  # raises, after the others have been handed over
    except BaseException as error:
        stop()
        for future in list(running):
            if future.done() and not future.cancelled() and future.exception() is None:
                take(future)
        if isinstance(error, KeyboardInterrupt):
            raise Interrupted from None
        raise


# ---------------------------------------------------------------------------------------- progress


@contextmanager
def showing(wanted: bool | Callable[[int, int], None], total: int) -> Iterator[Tick]:
    """Give a function that is told how many more of `total` steps are done, from any thread."""
    if callable(wanted):
        yield _counting(wanted, total)
        return
    if not wanted:
        yield lambda n: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda n: None
        return
    columns = (
        TextColumn("simulating"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("simulating", total=total)
        tick, finish = _now_and_then(lambda n: bar.advance(task, n))
        try:
            yield tick
        finally:
            finish()


def _counting(tell: Callable[[int, int], None], total: int) -> Tick:
    done, lock = 0, threading.Lock()

    def tick(n: int) -> None:
        nonlocal done
        with lock:
            done += n
            reached = done
        tell(reached, total)

    return tick


def _now_and_then(advance: Callable[[int], None]) -> tuple[Tick, Callable[[], None]]:
    """Return a tick that gathers steps, since drawing takes longer, and one that draws the last."""
    done, drawn, at, lock = 0, 0, 0.0, threading.Lock()

    def tick(n: int, pause: float = PAUSE) -> None:
        nonlocal done, drawn, at
        with lock:
            done += n
            now = time.monotonic()
            if now - at < pause:
                return
            more, drawn, at = done - drawn, done, now
        advance(more)

    return tick, lambda: tick(0, 0.0)
