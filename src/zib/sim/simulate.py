"""`simulate`: policies × replications in one environment."""

from __future__ import annotations

import os
import platform
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from typing import Any, Literal, overload

import numba
import numpy as np

from zib.core import cache
from zib.core import validate as check
from zib.sim.backends import (
    BACKENDS,
    Interrupted,
    Work,
    default_workers,
    play_block,
    run_all,
    warm_up,
)
from zib.sim.code import EditedSources
from zib.sim.dask_backend import require_distributed, run_dask
from zib.sim.gather import Runs, Stream
from zib.sim.ledger import Ledger
from zib.sim.plan import Block, Plan
from zib.sim.progress import progress as showing
from zib.sim.results import Results
from zib.sim.store import Store, as_store
from zib.sim.summary import Summary

KEEP = ("runs", "summary")


class SimulationError(RuntimeError):
    """A run failed; the cause is chained, and `partial` holds the results finished before it."""

    def __init__(self, message: str, partial: Results | Summary) -> None:
        super().__init__(message)
        self.partial = partial


@overload
def simulate(
    policies: Mapping[str, Any] | Sequence[Any],
    env: Any,
    *,
    horizon: int,
    replications: int = ...,
    seed: int = ...,
    checkpoints: int | Sequence[int] = ...,
    backend: str = ...,
    workers: int | None = ...,
    progress: bool | Callable[[int, int], None] = ...,
    store: bool | str | os.PathLike[str] | Store | None = ...,
    keep: Literal["runs"] = ...,
    scheduler: str | None = ...,
) -> Results: ...


@overload
def simulate(
    policies: Mapping[str, Any] | Sequence[Any],
    env: Any,
    *,
    horizon: int,
    replications: int = ...,
    seed: int = ...,
    checkpoints: int | Sequence[int] = ...,
    backend: str = ...,
    workers: int | None = ...,
    progress: bool | Callable[[int, int], None] = ...,
    store: bool | str | os.PathLike[str] | Store | None = ...,
    keep: Literal["summary"],
    scheduler: str | None = ...,
) -> Summary: ...


def simulate(
    policies: Mapping[str, Any] | Sequence[Any],
    env: Any,
    *,
    horizon: int,
    replications: int = 50,
    seed: int = 0,
    checkpoints: int | Sequence[int] = 200,
    backend: str = "threads",
    workers: int | None = None,
    progress: bool | Callable[[int, int], None] = True,
    store: bool | str | os.PathLike[str] | Store | None = None,
    keep: Literal["runs", "summary"] = "runs",
    scheduler: str | None = None,
) -> Results | Summary:
    """Play every policy in the same environment and record regret and reward.

    Parameters
    ----------
    policies
        Specs, or a dict from label to spec.
    env
        An environment, or a generator of random instances that is redrawn per replication.
    horizon
        Rounds per replication.
    replications
        Independent repetitions. The j-th pull of an arm pays the same to every policy.
    seed
        A whole number ≥ 0; with it, results do not depend on backend, workers or other policies.
    checkpoints
        Rounds at which to record: how many (evenly spaced), or the rounds themselves.
    backend
        ``"threads"`` (default), ``"processes"``, ``"serial"`` or ``"dask"`` (``zib[dask]``).
    workers
        How many; all processors by default. A cluster named by `scheduler` has its own.
    progress
        Show a bar with the time left (only on a terminal); or a function that is told, now and
        then and from any thread, how many checkpoints of how many have been reached.
    store
        Where finished blocks of replications are kept and looked up: True for the user's store,
        a folder, or a `zib.sim.Store`. A simulation that was killed goes on where it was, and one
        that was played before is read.
    keep
        ``"runs"`` returns `zib.Results` with every replication; ``"summary"`` returns
        `zib.sim.Summary`, whose memory does not grow with the number of replications.
    scheduler
        Address of a running Dask scheduler, such as ``"tcp://node1:8786"``; without one,
        ``backend="dask"`` makes a cluster of `workers` processes on this machine for the run.

    Notes
    -----
    Where arms change with the round (`zib.env.DriftingMAB`), all policies face the same rewards
    round by round, and regret is against the arm that is best in that round.

    Memory does not grow with `horizon`. Ctrl-C returns what is finished, with a warning; the
    missing replications are NaN. If a run fails, `SimulationError.partial` has what is finished.

    A stored block is used only if policy, environment, checkpoints, seed, the code that plays and
    the versions of NumPy, Numba and SciPy are the same; see `zib.sim.Plan`. Results are the same
    to the last bit with and without a store.

    Examples
    --------
    >>> import zib
    >>> env = zib.env.GaussianMAB(means=[4.0, 5.0], probs=[0.1, 0.05], sigma=1.0)
    >>> result = zib.simulate([zib.mab.ZITS(horizon=500, sigma=1.0), zib.mab.UCB1(scale=5.0)],
    ...                       env, horizon=500, replications=4, progress=False)
    >>> result.regret.shape
    (2, 4, 200)
    """
    plan = Plan.of(
        policies,
        env,
        horizon=horizon,
        replications=replications,
        seed=seed,
        checkpoints=checkpoints,
    )
    check.choice("backend", backend, BACKENDS)
    workers = default_workers() if workers is None else check.integer("workers", workers, low=1)
    check.choice("keep", keep, KEEP)
    if backend == "dask":
        require_distributed()
    elif scheduler is not None:
        raise check.InvalidParameterError(
            f"`scheduler` is for `backend`='dask'; got {scheduler!r} with {backend!r}"
        )
    blocks, kept = _blocks(plan, as_store(store))
    started = time.time()
    work = Work.of(plan)
    sink = Runs(plan) if keep == "runs" else Stream(plan, lambda block: play_block(work, block))
    total = len(plan.specs) * plan.replications

    def so_far() -> Results | Summary:
        return sink.results(_provenance(plan, started, backend, workers))

    with showing(progress, total * plan.checkpoints.size) as tick:
        ledger = Ledger(plan, kept, sink, tick)
        try:
            ledger.look_up(blocks)
            if scheduler is None:
                warm_up(work, ledger.policies)  # here, once, so that no two workers compile it
            if backend == "dask" and ledger.unfinished:
                run_dask(work, ledger, workers, scheduler, tick)
            elif ledger.unfinished:
                run_all(work, ledger, backend, workers, tick)
        except (Interrupted, KeyboardInterrupt):
            if sink.finished == 0:
                raise KeyboardInterrupt from None
            warnings.warn(
                f"interrupted: {sink.finished} of {total} runs are finished and kept, the others "
                f"are missing{' (NaN)' if keep == 'runs' else ''}",
                UserWarning,
                stacklevel=2,
            )
        except Exception as error:
            if sink.finished == 0:
                raise
            raise SimulationError(
                f"a run failed after {sink.finished} of {total} were finished ({error}); "
                "they are in the attribute `partial` of this error",
                so_far(),
            ) from error
        finally:
            ledger.close()
            sink.close()
    return so_far()


def _blocks(plan: Plan, store: Store | None) -> tuple[list[Block], Store | None]:
    """Return the blocks, and the store unless the sources no longer say what is running."""
    if store is None:
        return plan.nameless_blocks, None
    try:
        return plan.blocks, store
    except EditedSources as error:
        warnings.warn(f"{error}; nothing is kept or looked up", RuntimeWarning, stacklevel=3)
        return plan.nameless_blocks, None


def _provenance(plan: Plan, started: float, backend: str, workers: int) -> dict[str, Any]:
    return {
        "plan": plan.to_data(),
        "plan_hash": plan.hash,
        "zib": version("zib"),
        "sources": cache.SOURCE_HASH,
        "numpy": np.__version__,
        "numba": numba.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "seed": plan.seed,
        "backend": backend,
        "workers": workers,
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(started)),
        "seconds": time.time() - started,
    }
