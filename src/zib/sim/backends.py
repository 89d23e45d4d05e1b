"""Who does the work: this thread, several threads or processes (or `zib.sim.dask_backend`).

A worker is handed pieces of blocks (see `zib.sim.ledger`). Each replication names its own random
streams, so the answer depends neither on the backend nor on the number of workers. A backend stops
early, without losing what is finished, when the user interrupts it.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import (
    FIRST_COMPLETED,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from zib.sim.ledger import POLL, Ledger, Piece
from zib.sim.loop import Run, loop_of
from zib.sim.plan import Block, Plan

BACKENDS = ("serial", "threads", "processes", "dask")
SLICE = 1.0  # seconds after which a worker hands over what it has

Tick = Callable[[int], None]


class Work(NamedTuple):
    """What all pieces of a plan have in common; sent to a worker once."""

    specs: tuple[Any, ...]
    environment: Any
    checkpoints: NDArray[np.int64]
    seed: int

    @classmethod
    def of(cls, plan: Plan) -> Work:
        """Return what is needed to play the pieces of `plan`."""
        return cls(plan.specs, plan.environment, plan.checkpoints, plan.seed)


class Interrupted(Exception):
    """The user asked to stop; raised after everything finished has been handed over."""


class _GivenUp(Exception):
    pass


def play_piece(work: Work, piece: Piece, on_checkpoint: Tick | None = None) -> Run:
    """Play the replications of a piece, one per row; fewer if they take long or one fails.

    What fails again when the rest is asked for raises then: no finished replication is lost.
    """
    loop, spec = loop_of(work.environment), work.specs[piece.block.policy]
    until = time.monotonic() + SLICE
    runs: list[Run] = []
    for replication in range(piece.first, piece.last):
        try:
            run = loop(
                spec,
                work.environment,
                work.checkpoints,
                work.seed,
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


def play_block(work: Work, block: Block) -> Run:
    """Play a whole block, here and now."""
    parts: list[Run] = []
    at = block.first
    while at < block.last:
        parts.append(play_piece(work, Piece(block, at, block.last)))
        at += len(parts[-1].regret)
    return Run(*(np.concatenate(rows) for rows in zip(*parts, strict=True)))


def warm_up(work: Work, policies: list[int]) -> None:
    """Compile what the policies need here, once, so that no two workers compile the same."""
    loop, rounds = loop_of(work.environment), np.array([2], dtype=np.int64)
    for policy in policies:
        loop(work.specs[policy], work.environment, rounds, work.seed, 0)


def run_all(work: Work, ledger: Ledger, backend: str, workers: int, tick: Tick) -> None:
    """Play everything in the ledger; `tick(n)` is told of n more checkpoints reached."""
    ledger.cut_for(workers)
    if backend == "serial":
        _serial(work, ledger, tick)
    elif backend == "threads":
        _threads(work, ledger, workers, tick)
    else:
        _processes(work, ledger, workers, tick)


def _serial(work: Work, ledger: Ledger, tick: Tick) -> None:
    try:
        for piece in ledger.each():
            # one by one: an interruption costs one replication
            one = piece._replace(last=piece.first + 1)
            ledger.take(piece, play_piece(work, one, tick))
    except KeyboardInterrupt:
        raise Interrupted from None


def _threads(work: Work, ledger: Ledger, workers: int, tick: Tick) -> None:
    enough = threading.Event()

    def at_checkpoint(more: int) -> None:
        if enough.is_set():
            raise _GivenUp
        tick(more)

    with ThreadPoolExecutor(workers) as pool:

        def stop() -> None:
            enough.set()
            pool.shutdown(wait=True, cancel_futures=True)

        _drain(
            ledger, workers, lambda piece: pool.submit(play_piece, work, piece, at_checkpoint), stop
        )


_WORK: list[Work] = []  # in a worker process: what it was started with


def _start_worker(work: Work) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    _WORK[:] = [work]


def _leave_with_parent() -> None:
    """End this worker when its parent was killed: nobody will ask it for anything again."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _in_worker(piece: Piece) -> Run:
    return play_piece(_WORK[0], piece)


def _processes(work: Work, ledger: Ledger, workers: int, tick: Tick) -> None:
    # "spawn": a forked child would inherit locks of compiler threads
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(
        workers, mp_context=context, initializer=_start_worker, initargs=(work,)
    )
    try:
        _drain(
            ledger,
            workers,
            lambda piece: pool.submit(_in_worker, piece),
            lambda: None,
            lambda rows: tick(rows.regret.size),
        )
    except Interrupted:
        for process in list((getattr(pool, "_processes", None) or {}).values()):
            process.terminate()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _drain(
    ledger: Ledger,
    workers: int,
    submit: Callable[[Piece], Future[Run]],
    stop: Callable[[], None],
    taken: Callable[[Run], None] = lambda rows: None,
) -> None:
    """Keep every worker busy with a short queue; hand over each piece as soon as it is done."""
    running: dict[Future[Run], Piece] = {}

    def take(future: Future[Run]) -> None:
        rows = future.result()
        ledger.take(running.pop(future), rows)
        taken(rows)

    try:
        while True:
            while len(running) < 2 * workers and (piece := ledger.next()) is not None:
                running[submit(piece)] = piece
            if not running:
                if not ledger.unfinished:
                    return
                time.sleep(POLL)
                continue
            pause = POLL if ledger.shared else None
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


def default_workers() -> int:
    """Return the number of processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
