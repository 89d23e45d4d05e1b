"""Made-up results with known answers, and experiments cut down to a size for tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from zib.experiments.harness import Panel, Played
from zib.experiments.record import Context
from zib.sim import Results

ROUNDS = np.arange(200, 20_001, 200)
Curve = Callable[[Any], Any]


def results(
    curves: Mapping[str, Curve],
    rounds: Sequence[int] = ROUNDS,  # type: ignore[assignment]
    replications: int = 60,
    noise: float = 0.01,
) -> Results:
    """Return results whose policies follow functions of the round, times noise they share."""
    rounds = np.asarray(rounds)
    rng = np.random.default_rng(0)
    factors = 1 + noise * rng.standard_normal((1, replications, 1))
    shape = (replications, rounds.size)
    regret = np.stack([np.broadcast_to(f(rounds), shape) for f in curves.values()]) * factors
    pulls = np.zeros((len(curves), replications, 2), dtype=np.int64)
    return Results(tuple(curves), rounds, regret, regret, pulls, {"plan_hash": "x"})


def played(panel: Panel, curves: Mapping[str, Curve], replications: int = 60) -> Played:
    """Return a panel as if it had been played."""
    result = results(curves, replications=replications)
    return Played(**vars(panel), result=result)


def panel(
    name: str, env: Any, curves: Mapping[str, Curve], replications: int = 60, **rest: Any
) -> Played:
    """Return a panel that was made up altogether."""
    made = Panel(name=name, env=env, policies={}, horizon=1, replications=replications, **rest)
    return played(made, curves, replications)


def small(experiment: type, **values: Any) -> type:
    """Return an experiment with other values, such as a shorter horizon."""
    return type(experiment.__name__, (experiment,), values)


def quick(folder: Path, seed: int = 0) -> Context:
    """Return a context of quick scale."""
    return Context("quick", seed, 1, folder)
