"""Who does the work: this thread, several threads, or several processes.

Each task names its own random streams, so the answer depends neither on the backend nor on the
number of workers. A backend yields finished tasks in any order and stops early, without losing
what is finished, when the user interrupts it.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    Executor,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from zib.sim.contextual import play_contextual
from zib.sim.engine import play
from zib.sim.rounds import play_rounds
from zib.sim.run import Run

BACKENDS = ("serial", "threads", "processes")


class Task(NamedTuple):
    """One replication of one policy."""

    policy: int
    replication: int
    spec: Any
    environment: Any
    checkpoints: NDArray[np.int64]
    seed: int


class Interrupted(Exception):
    """The user asked to stop; raised after everything finished has been handed over."""


class _GivenUp(Exception):
    pass


def _do(task: Task, on_checkpoint: Callable[[], None] | None = None) -> Run:
    return _loop_of(task.environment)(
        task.spec,
        task.environment,
        task.checkpoints,
        task.seed,
        task.replication,
        on_checkpoint=on_checkpoint,
    )


def _loop_of(environment: Any) -> Callable[..., Run]:
    if hasattr(environment, "n_features"):
        return play_contextual
    return play_rounds if getattr(environment, "by_round", False) else play


def warm_up(tasks: Sequence[Task]) -> None:
    """Compile what the tasks need here, once, so that no two workers compile the same."""
    seen = set()
    for task in tasks:
        if task.policy not in seen:
            seen.add(task.policy)
            _do(task._replace(checkpoints=np.array([2], dtype=np.int64)))


def run_tasks(
    tasks: Sequence[Task], backend: str, workers: int, tick: Callable[[int], None]
) -> Iterator[tuple[Task, Run]]:
    """Yield every task with its outcome; `tick(n)` is told of n more checkpoints reached."""
    if backend == "serial":
        yield from _serial(tasks, tick)
    elif backend == "threads":
        yield from _threads(tasks, workers, tick)
    else:
        yield from _processes(tasks, workers, tick)


def _serial(tasks: Sequence[Task], tick: Callable[[int], None]) -> Iterator[tuple[Task, Run]]:
    try:
        for task in tasks:
            yield task, _do(task, lambda: tick(1))
    except KeyboardInterrupt:
        raise Interrupted from None


def _threads(
    tasks: Sequence[Task], workers: int, tick: Callable[[int], None]
) -> Iterator[tuple[Task, Run]]:
    stop = threading.Event()

    def at_checkpoint() -> None:
        if stop.is_set():
            raise _GivenUp
        tick(1)

    with ThreadPoolExecutor(workers) as pool:
        try:
            yield from _drain(
                pool, tasks, workers, lambda task: pool.submit(_do, task, at_checkpoint)
            )
        except BaseException:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def _ignore_interrupt() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _processes(
    tasks: Sequence[Task], workers: int, tick: Callable[[int], None]
) -> Iterator[tuple[Task, Run]]:
    # "spawn": a forked child would inherit locks of compiler threads
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_ignore_interrupt)
    try:
        for task, run in _drain(pool, tasks, workers, lambda task: pool.submit(_do, task)):
            tick(task.checkpoints.size)
            yield task, run
    except Interrupted:
        for process in list(getattr(pool, "_processes", {}).values()):
            process.terminate()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _drain(
    pool: Executor, tasks: Sequence[Task], workers: int, submit: Callable[[Task], Any]
) -> Iterator[tuple[Task, Run]]:
    """Keep every worker busy with a short queue; hand over each task as soon as it is done."""
    waiting = iter(tasks)
    running: dict[Any, Task] = {}

    def top_up() -> None:
        for task in waiting:
            running[submit(task)] = task
            if len(running) >= 2 * workers:
                return

    try:
        top_up()
        while running:
            finished, _ = wait(running, return_when=FIRST_COMPLETED)
            failures = [future for future in finished if future.exception() is not None]
            for future in finished - set(failures):
                yield running.pop(future), future.result()
            if failures:
                failures[0].result()  # raises, after the others have been handed over
            top_up()
    except KeyboardInterrupt:
        for future, task in list(running.items()):
            if future.done() and not future.cancelled() and future.exception() is None:
                yield task, future.result()
        raise Interrupted from None


def default_workers() -> int:
    """Return the number of processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
