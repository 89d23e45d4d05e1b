"""`simulate`: policies × replications in one environment."""

from __future__ import annotations

import os
import platform
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from typing import Any, Literal, Required, TypedDict, Unpack, overload

import numba
import numpy as np

from zib.core import sources
from zib.core import validate as check
from zib.core.cluster import require_distributed
from zib.env.arrays import world_of
from zib.sim import cuda
from zib.sim.dask import run_dask
from zib.sim.keys import CannotBeStored
from zib.sim.many import check_playable
from zib.sim.plan import NUMPY, Plan, engine_of
from zib.sim.results import CollectRuns, Results
from zib.sim.run import BACKENDS, Interrupted, default_workers, run_all, showing, warm_up
from zib.sim.schedule import Schedule
from zib.sim.store import Store, as_store
from zib.sim.summary import CollectSummary, Summary

KEEP = ("runs", "summary")


class SimulationError(RuntimeError):
    """A run failed; the cause is chained, and `partial` holds the results finished before it."""

    def __init__(self, message: str, partial: Results | Summary) -> None:
        super().__init__(message)
        self.partial = partial


class Options(TypedDict, total=False):
    """What `simulate` is told besides policies, environment and what to keep."""

    horizon: Required[int]
    replications: int
    seed: int
    checkpoints: int | Sequence[int]
    backend: str
    workers: int | None
    progress: bool | Callable[[int, int], None]
    store: bool | str | os.PathLike[str] | Store | None
    scheduler: str | None


Policies = Mapping[str, Any] | Sequence[Any]


@overload
def simulate(
    policies: Policies, env: Any, *, keep: Literal["runs"] = ..., **options: Unpack[Options]
) -> Results: ...


@overload
def simulate(
    policies: Policies, env: Any, *, keep: Literal["summary"], **options: Unpack[Options]
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
        A whole number ≥ 0; with it, results do not depend on workers or other policies, nor on the
        backend, but for ``"counter"`` and ``"cuda"``, which draw rewards in another way.
    checkpoints
        Rounds at which to record: how many (evenly spaced), or the rounds themselves.
    backend
        ``"threads"`` (default), ``"processes"``, ``"serial"`` or ``"dask"`` (``zib[dask]``);
        ``"cuda"`` (``zib[cuda]``) plays many thousand replications at once on an NVIDIA GPU, and
        ``"counter"`` plays the same on the processors.
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
    Where contexts arrive, policies without context (`zib.mab`) may play along, if every arm is an
    action of every round: all policies face the same rounds, and regret is against the arm that is
    best in that context.

    Where arms change with the round (`zib.env.DriftingMAB`), all policies face the same rewards
    round by round, and regret is against the arm that is best in that round.

    Where rewards come late (`zib.env.Delayed`), `zib.mab.Pending` says what a policy makes of
    decisions that are pending; without it, a policy is told each reward when the window closes.

    Where decisions are made in batches (`zib.env.Batched`), policies decide as in
    `zib.Bandit.select_many` and learn when the batch is complete.

    Memory does not grow with `horizon`. Ctrl-C returns what is finished, with a warning; the
    missing replications are NaN. If a run fails, `SimulationError.partial` has what is finished.

    A stored block is used only if policy, environment, checkpoints, seed, the code that plays and
    the versions of Python, NumPy, Numba and SciPy are the same; see `zib.sim.Plan`. What cannot be
    named exactly is played and not stored, with a warning. Results are the same to the last bit
    with and without a store.

    Examples
    --------
    >>> import zib
    >>> env = zib.env.GaussianMAB(means=[4.0, 5.0], probs=[0.1, 0.05], sigma=1.0)
    >>> result = zib.simulate([zib.mab.ZITS(horizon=500, sigma=1.0), zib.mab.UCB1(scale=5.0)],
    ...                       env, horizon=500, replications=4, progress=False)
    >>> result.regret.shape
    (2, 4, 200)
    """
    check.choice("backend", backend, BACKENDS)
    plan = Plan.of(
        policies,
        env,
        horizon=horizon,
        replications=replications,
        seed=seed,
        checkpoints=checkpoints,
        engine=engine_of(backend),
    )
    workers = default_workers() if workers is None else check.integer("workers", workers, low=1)
    check.choice("keep", keep, KEEP)
    if not callable(progress):
        check.flag("progress", progress)
    if plan.engine != NUMPY:
        for spec in plan.specs:
            check_playable(spec, plan.environment)
        world_of(plan.environment, plan.seed, 0, 1)
    if backend == "dask":
        require_distributed()
    elif backend == "cuda":
        cuda.require_gpu()
    elif scheduler is not None:
        raise check.InvalidParameterError(
            f"`scheduler` is for `backend`='dask'; got {check.shown(scheduler)} with {backend!r}"
        )
    kept = _usable(as_store(store), plan)
    started = time.time()
    collector = CollectRuns(plan) if keep == "runs" else CollectSummary(plan)
    total = len(plan.specs) * plan.replications

    def so_far() -> Results | Summary:
        return collector.result(_provenance(plan, started, backend, workers))

    with showing(progress, total * plan.checkpoints.size) as tick:
        schedule = Schedule(plan, kept, collector, tick)
        try:
            schedule.look_up()
            if backend == "cuda":
                cuda.compile_ahead(plan, schedule.policies)
            if backend == "cuda" and isinstance(collector, CollectSummary) and kept is None:
                cuda.summarise(plan, collector, tick)
                return so_far()
            if scheduler is None and backend != "cuda":
                warm_up(plan, schedule.policies)  # here, once, so that no two workers compile it
            if backend == "dask" and schedule.unfinished:
                run_dask(plan, schedule, workers, scheduler, tick)
            elif schedule.unfinished:
                run_all(plan, schedule, backend, workers, tick)
        except (Interrupted, KeyboardInterrupt):
            if collector.finished == 0:
                raise KeyboardInterrupt from None
            warnings.warn(
                f"interrupted: {collector.finished} of {total} runs are finished and kept, the "
                f"others are missing{' (NaN)' if keep == 'runs' else ''}",
                UserWarning,
                stacklevel=2,
            )
        except Exception as error:
            if collector.finished == 0:
                raise
            raise SimulationError(
                f"a run failed after {collector.finished} of {total} were finished ({error}); "
                "they are in the attribute `partial` of this error",
                so_far(),
            ) from error
        finally:
            schedule.close()
    return so_far()


def _usable(store: Store | None, plan: Plan) -> Store | None:
    """Return the store, or None, with a warning, if blocks of the plan have no exact name."""
    if store is not None:
        try:
            plan.key_of(plan.blocks[0])
        except CannotBeStored as error:
            warnings.warn(f"{error}; nothing is kept or looked up", RuntimeWarning, stacklevel=3)
            return None
    return store


def _provenance(plan: Plan, started: float, backend: str, workers: int) -> dict[str, Any]:
    return {
        "plan": plan.to_data(),
        "plan_hash": plan.hash,
        "zib": version("zib"),
        "sources": sources.source_hash(),
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
