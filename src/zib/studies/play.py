"""Play a study, or play each policy for a moment and say what the whole study will take."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import zib
from zib.sim.plan import Block, Plan
from zib.sim.run import default_workers
from zib.sim.store import Store, as_store
from zib.sim.summary import EXACT
from zib.studies.study import Case, Study

ENOUGH = 0.15  # seconds of play that a calibration aims at
FIRST = 256  # rounds of the first attempt
CHECKPOINTS = 20  # of a calibration
NUMBER = 8  # bytes of a float64 or int64
LOOKED_UP = 20_000  # blocks of a policy that a dry run looks for in the store
HEADER = 3_000  # bytes of a file in the store besides its numbers

Tell = Callable[[str, int, int], None]
"""Called with (environment, steps done, steps of the whole study)."""


class Played(NamedTuple):
    """One environment and what its policies did there."""

    case: Case
    result: Any


@dataclass(frozen=True)
class Outcome:
    """What a study measured: `zib.Results` or summaries, environment by environment."""

    study: Study
    played: tuple[Played, ...]
    interrupted: bool
    seconds: float

    def __getitem__(self, environment: str) -> Any:
        """Return the results in one environment, by its label."""
        return {each.case.label: each.result for each in self.played}[environment]


def run(study: Study, tell: Tell | None = None) -> Outcome:
    """Play all policies in all environments of a study.

    Parameters
    ----------
    study
        From `zib.studies.read`.
    tell
        Told about progress, now and then and from any thread.

    Returns
    -------
    Outcome
        On Ctrl-C it holds what is finished, and `Outcome.interrupted` is true.

    Notes
    -----
    With a store (the default) each finished block of replications is kept at once, and running
    the same study again goes on where it stopped, with the same numbers.
    """
    started = time.monotonic()
    played: list[Played] = []
    steps = [_steps(study, case) for case in study.cases]
    interrupted = False
    for i, case in enumerate(study.cases):
        try:
            result = _play(study, case, _progress(tell, case.label, sum(steps[:i]), sum(steps)))
        except KeyboardInterrupt:
            interrupted = True
            break
        if _some(result):
            played.append(Played(case, result))
        if not result.complete:
            interrupted = True
            break
    return Outcome(study, tuple(played), interrupted, time.monotonic() - started)


def _steps(study: Study, case: Case) -> int:
    """Return how many checkpoints the runs of all policies in one environment reach together."""
    rounds = len(study.plan(case).checkpoints)
    return rounds * study.replications * len(case.policies)


def _play(study: Study, case: Case, progress: Callable[[int, int], None]) -> Any:
    with warnings.catch_warnings():
        # an interrupted simulation says so by a warning; here its result says so
        warnings.filterwarnings("ignore", "interrupted: ", UserWarning)
        return zib.simulate(
            case.policies,
            case.environment,
            **study.arguments(),
            **study.how._asdict(),
            progress=progress,
        )


def _some(result: Any) -> bool:
    """Return whether any policy has finished a replication."""
    return bool((result.summary()["replications"] > 0).any())


def _progress(tell: Tell | None, label: str, before: int, total: int) -> Callable[[int, int], None]:
    if tell is None:
        return lambda done, of: None
    step = max(1, total // 1000)  # often enough for a bar, seldom enough to cost nothing
    told = before

    def progress(done: int, of: int) -> None:
        nonlocal told
        if done >= of or before + done >= told + step:
            told = before + done
            tell(label, told, total)

    tell(label, before, total)
    return progress


# ------------------------------------------------------------------------------------------ dry run


class Line(NamedTuple):
    """One policy in one environment: its tasks, and the time of those that are missing."""

    environment: str
    policy: str
    blocks: int
    stored: int
    per_round: float
    seconds: float


@dataclass(frozen=True)
class Estimate:
    """What a study will take.

    Attributes
    ----------
    lines
        Tasks and computing time, policy by policy.
    workers
        How many share the work, at most one per replication; None where a scheduler decides.
    memory
        Bytes, at most, of this process and its workers together.
    store_bytes
        What the store will grow by.
    """

    lines: tuple[Line, ...]
    workers: int | None
    memory: int
    store_bytes: int

    @property
    def blocks(self) -> int:
        """Tasks of the study."""
        return sum(line.blocks for line in self.lines)

    @property
    def stored(self) -> int:
        """Tasks that are in the store already."""
        return sum(line.stored for line in self.lines)

    @property
    def computing(self) -> float:
        """Seconds of computing that are missing, on one processor like this one."""
        return sum(line.seconds for line in self.lines)

    @property
    def seconds(self) -> float:
        """Seconds until the end, when all workers are busy; compiling is extra."""
        return self.computing / (self.workers or 1)


def estimate(study: Study, tell: Callable[[str, int, int], None] | None = None) -> Estimate:
    """Play every policy for a moment and say what the whole study will take.

    Parameters
    ----------
    study
        From `zib.studies.read`.
    tell
        Told about progress: (policy in environment, calibrations done, calibrations in all).

    Notes
    -----
    Policies are compiled first, which is not counted; the run that follows finds the compiled
    code again. Time grows with the rounds as it did between the last two, ever longer, attempts
    of the calibration. Policies all of whose tasks are in the store are not calibrated.
    """
    how, store = study.how, as_store(study.how.store)
    lines: list[Line] = []
    kept = growth = 0
    everything = sum(len(case.policies) for case in study.cases)
    for case in study.cases:
        plan = study.plan(case)
        per_run = NUMBER * (2 * len(plan.checkpoints) + case.environment.n_arms)
        for i, (label, spec) in enumerate(case.policies.items()):
            if tell is not None:
                tell(f"{label} in {case.label}", len(lines), everything)
            rows = plan.blocks.rows
            stored = [] if store is None else _stored(plan, i, store)
            missing = rows - len(stored)
            runs = study.replications - sum(block.size for block in stored)
            one = _seconds_of_a_run(spec, case.environment, study) if runs else 0.0
            lines.append(
                Line(
                    case.label,
                    label,
                    rows,
                    len(stored),
                    one / study.horizon,
                    one * runs,
                )
            )
            growth += runs * per_run + HEADER * missing
        kept += _kept(study, case, per_run)
    workers = min(how.workers or default_workers(), everything * study.replications)
    processes = 1 + (workers if how.backend == "processes" or _local_cluster(study) else 0)
    return Estimate(
        tuple(lines),
        None if how.scheduler else 1 if how.backend == "serial" else workers,
        processes * _memory_now() + kept,
        growth if store is not None else 0,
    )


def _stored(plan: Plan, policy: int, store: Store) -> list[Block]:
    """Return the blocks of a policy that are in the store, of the first `LOOKED_UP`."""
    blocks = (plan.blocks.at(policy, row) for row in range(min(plan.blocks.rows, LOOKED_UP)))
    return [block for block in blocks if plan.key_of(block) in store]


def _kept(study: Study, case: Case, per_run: int) -> int:
    """Return the bytes of what is known about one environment at the end."""
    n = len(case.policies)
    if study.how.keep == "runs":
        return n * study.replications * per_run
    # per policy and checkpoint the quantiles and the bins they come from, about as many; per pair
    # two moments of the difference
    return per_run * (2 * n * min(EXACT, study.replications) + n * n) // 2


def _local_cluster(study: Study) -> bool:
    return study.how.backend == "dask" and study.how.scheduler is None


def _seconds_of_a_run(spec: Any, environment: Any, study: Study) -> float:
    """Return the seconds of one replication on one processor.

    Attempts grow until one takes long enough to be measured: first in rounds, then, where the
    whole horizon is short, in replications.
    """

    def play(rounds: int, replications: int) -> float:
        started = time.perf_counter()
        zib.simulate(
            {"policy": spec},
            environment,
            horizon=rounds,
            replications=replications,
            seed=study.seed,
            checkpoints=min(rounds, CHECKPOINTS),
            backend="serial",
            progress=False,
        )
        return time.perf_counter() - started

    horizon = study.horizon
    play(min(2, horizon), 1)  # compiles
    rounds, runs = min(FIRST, horizon), 1
    spent, before = play(rounds, runs), (0, 0, 0.0)
    while spent < ENOUGH:
        before = (rounds, runs, spent)
        if rounds < horizon:
            rounds = min(4 * rounds, horizon)
        else:
            runs *= 4
        spent = play(rounds, runs)
    more = max(spent - before[2], 0.0)  # what the last attempt took above the one before
    if rounds < horizon:
        return spent + more / (rounds - before[0]) * (horizon - rounds)
    return more / (runs - before[1]) if runs > 1 else spent


def _memory_now() -> int:
    """Return the most memory this process has used, in bytes; 0 where the system does not say."""
    try:
        import resource
    except ImportError:
        return 0
    unit = 1 if sys.platform == "darwin" else 1024
    return int(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) * unit
