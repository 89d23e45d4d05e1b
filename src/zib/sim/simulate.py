"""`simulate`: policies × replications in one environment."""

from __future__ import annotations

import hashlib
import itertools
import json
import platform
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from zib import _cache, _saved
from zib import _validate as check
from zib._kernel import lookup
from zib._spec import label_of
from zib.contextual.policy import lookup_policy
from zib.sim.backends import BACKENDS, Interrupted, Task, default_workers, run_tasks, warm_up
from zib.sim.results import Results


class SimulationError(RuntimeError):
    """A run failed; the cause is chained, and `partial` holds the results finished before it."""

    def __init__(self, message: str, partial: Results) -> None:
        super().__init__(message)
        self.partial = partial


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
) -> Results:
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
        ``"threads"`` (default), ``"processes"`` or ``"serial"``.
    workers
        How many; all processors by default.
    progress
        Show a bar with the time left (only on a terminal); or a function that is told, now and
        then and from any thread, how many checkpoints of how many have been reached.

    Notes
    -----
    Where arms change with the round (`zib.env.DriftingMAB`), all policies face the same rewards
    round by round, and regret is against the arm that is best in that round.

    Memory does not grow with `horizon`. Ctrl-C returns what is finished, with a warning; the
    missing replications are NaN. If a run fails, `SimulationError.partial` has what is finished.

    Examples
    --------
    >>> import zib
    >>> env = zib.env.GaussianMAB(means=[4.0, 5.0], probs=[0.1, 0.05], sigma=1.0)
    >>> result = zib.simulate([zib.mab.ZITS(horizon=500, sigma=1.0), zib.mab.UCB1(scale=5.0)],
    ...                       env, horizon=500, replications=4, progress=False)
    >>> result.regret.shape
    (2, 4, 200)
    """
    _check_environment(env)
    labelled = _labelled(policies, lookup_policy if hasattr(env, "n_features") else lookup)
    horizon = check.integer("horizon", horizon, low=1)
    replications = check.integer("replications", replications, low=1)
    seed = check.integer("seed", seed, low=0)
    check.choice("backend", backend, BACKENDS)
    workers = default_workers() if workers is None else check.integer("workers", workers, low=1)
    rounds = _rounds(checkpoints, horizon)

    tasks = [
        Task(i, replication, spec, env, rounds, seed)
        for replication in range(replications)
        for i, spec in enumerate(labelled.values())
    ]
    plan = {
        "policies": {label: _saved.spec_to_data(spec) for label, spec in labelled.items()},
        "environment": repr(env),
        "horizon": horizon,
        "replications": replications,
        "seed": seed,
        "checkpoints": rounds.tolist(),
    }
    started = time.time()
    regret = np.full((len(labelled), replications, rounds.size), np.nan)
    reward = np.full_like(regret, np.nan)
    pulls = np.zeros((len(labelled), replications, env.n_arms), dtype=np.int64)

    def so_far() -> Results:
        origin = _provenance(plan, started, backend, workers)
        return Results(tuple(labelled), rounds, regret, reward, pulls, origin)

    def finished() -> int:
        return int((~np.isnan(regret[:, :, -1])).sum())

    with _progress(progress, len(tasks) * rounds.size) as tick:
        try:
            warm_up(tasks)
            for task, run in run_tasks(tasks, backend, workers, tick):
                regret[task.policy, task.replication] = run.regret
                reward[task.policy, task.replication] = run.reward
                pulls[task.policy, task.replication] = run.pulls
        except (Interrupted, KeyboardInterrupt):
            if finished() == 0:
                raise KeyboardInterrupt from None
            warnings.warn(
                f"interrupted: {finished()} of {len(tasks)} runs are finished and kept, the others "
                "are missing (NaN)",
                UserWarning,
                stacklevel=2,
            )
        except Exception as error:
            if finished() == 0:
                raise
            raise SimulationError(
                f"a run failed after {finished()} of {len(tasks)} were finished ({error}); "
                "they are in the attribute `partial` of this error",
                so_far(),
            ) from error
    return so_far()


def _labelled(
    policies: Mapping[str, Any] | Sequence[Any], find: Callable[[Any], Any]
) -> dict[str, Any]:
    if isinstance(policies, Mapping):
        labelled = {str(label): spec for label, spec in policies.items()}
    else:
        specs = [policies] if hasattr(policies, "_fields") else list(policies)
        labels = [label_of(spec) if hasattr(spec, "_fields") else "" for spec in specs]
        labelled = {}
        for label, spec in zip(labels, specs, strict=True):
            name = label if labels.count(label) == 1 else repr(spec)
            if name in labelled:
                raise check.InvalidParameterError(f"`policies` holds {spec!r} twice")
            labelled[name] = spec
    if not labelled:
        raise check.InvalidParameterError("`policies` must hold at least one policy; got none")
    for spec in labelled.values():
        find(spec)
    return labelled


def _rounds(checkpoints: int | Sequence[int], horizon: int) -> NDArray[np.int64]:
    if isinstance(checkpoints, (int, np.integer)):
        number = check.integer("checkpoints", checkpoints, low=1)
        rounds = np.unique(np.ceil(np.arange(1, number + 1) * (horizon / number)).astype(np.int64))
        return np.asarray(np.minimum(rounds, horizon), dtype=np.int64)
    values = check.vector("checkpoints", checkpoints, low=1, high=horizon)
    rounds = np.unique(values.astype(np.int64))
    return rounds if rounds[-1] == horizon else np.append(rounds, horizon)


def _check_environment(env: Any) -> None:
    for name in ("n_arms", "instance"):
        if not hasattr(env, name):
            raise check.InvalidParameterError(
                f"`env` must be an environment (it lacks `{name}`); got {env!r}"
            )


def _provenance(plan: dict[str, Any], started: float, backend: str, workers: int) -> dict[str, Any]:
    text = json.dumps([plan, _cache.SOURCE_HASH], sort_keys=True, default=repr)
    return {
        "plan": plan,
        "plan_hash": hashlib.sha256(text.encode()).hexdigest()[:16],
        "zib": version("zib"),
        "sources": _cache.SOURCE_HASH,
        "numpy": np.__version__,
        "numba": numba.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "seed": plan["seed"],
        "backend": backend,
        "workers": workers,
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(started)),
        "seconds": time.time() - started,
    }


@contextmanager
def _progress(
    wanted: bool | Callable[[int, int], None], total: int
) -> Iterator[Callable[[int], None]]:
    if callable(wanted):
        tell, reached, lock = wanted, itertools.count(1), threading.Lock()

        def tick(n: int) -> None:
            with lock:
                done = max(next(reached) for _ in range(n))
            tell(done, total)

        yield tick
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
    columns = (
        TextColumn("simulating"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("simulating", total=total)
        yield lambda n: bar.advance(task, n)
