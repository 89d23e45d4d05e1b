"""Play a study: one simulation per environment, with progress, resumable through the store."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import zib
from zib.studies.study import Case, Study

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
