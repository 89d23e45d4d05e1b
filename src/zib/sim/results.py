"""`Results`: what a simulation measured, with its uncertainty and where it came from."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from zib.core import validate as check
from zib.sim.loop import Run
from zib.sim.plan import Block, Plan
from zib.sim.store import load_arrays, save_arrays
from zib.stats import intervals

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]
ARRAYS = ("checkpoints", "regret", "reward", "pulls")


class Difference(NamedTuple):
    """Paired difference of regrets, first minus second, at every checkpoint."""

    checkpoints: NDArray[np.int64]
    mean: Floats
    low: Floats
    high: Floats
    replications: int

    @property
    def final(self) -> tuple[float, float, float]:
        """Mean, low and high at the last checkpoint."""
        return float(self.mean[-1]), float(self.low[-1]), float(self.high[-1])


class Measured:
    """What `Results` and `Summary` have in common: tables, intervals and curves of the regret."""

    labels: tuple[str, ...]
    checkpoints: NDArray[np.int64]
    provenance: dict[str, Any]

    @property
    def counts(self) -> NDArray[np.int64]:
        """How many replications of each policy are in here."""
        raise NotImplementedError

    @property
    def complete(self) -> bool:
        """Whether every replication of every policy was finished."""
        raise NotImplementedError

    def mean(self) -> Floats:
        """Return the mean regret, shape (policy, checkpoint)."""
        raise NotImplementedError

    def mean_reward(self) -> Floats:
        """Return the mean reward, shape (policy, checkpoint)."""
        raise NotImplementedError

    def standard_error(self) -> Floats:
        """Return the standard error of the mean regret, shape (policy, checkpoint)."""
        raise NotImplementedError

    def quantile(self, q: float) -> Floats:
        """Return a quantile of the regret over replications, shape (policy, checkpoint)."""
        raise NotImplementedError

    def interval(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """Return the ends of a t interval for the mean regret, each (policy, checkpoint)."""
        half = half_width(self.standard_error(), self.counts[:, None], level)
        return self.mean() - half, self.mean() + half

    def summary(self, level: float = 0.95) -> pd.DataFrame:
        """Return final regret per policy: mean, standard error, interval, quantiles, reward."""
        import pandas as pd

        low, high = self.interval(level)
        return pd.DataFrame(
            {
                "policy": self.labels,
                "regret": self.mean()[:, -1],
                "standard error": self.standard_error()[:, -1],
                "low": low[:, -1],
                "high": high[:, -1],
                "median": self.quantile(0.5)[:, -1],
                "10 %": self.quantile(0.1)[:, -1],
                "90 %": self.quantile(0.9)[:, -1],
                "reward": self.mean_reward()[:, -1],
                "replications": self.counts,
            }
        )

    def plot(self, ax: Axes | None = None, **options: Any) -> Axes:
        """Draw mean regret with intervals; returns the axes."""
        from zib.report import regret_panel

        if ax is None:
            import matplotlib.pyplot as plt

            ax = plt.subplots(figsize=(7, 4.5), layout="constrained")[1]
        regret_panel(ax, self, **options)
        return ax

    def __repr__(self) -> str:
        mean = self.mean()[:, -1]
        low, high = (end[:, -1] for end in self.interval())
        width = max(len(label) for label in self.labels)
        return "\n".join(
            [
                f"{type(self).__name__}: {len(self.labels)} policies, "
                f"{int(self.counts.max())} replications, {int(self.checkpoints[-1])} rounds"
                + ("" if self.complete else " (interrupted)"),
                *(
                    f"  {self.labels[i]:<{width}}  regret {mean[i]:12.1f}"
                    f"  95 % [{low[i]:.1f}, {high[i]:.1f}]"
                    for i in np.argsort(mean)
                ),
            ]
        )


def half_width(error: Floats, count: Any, level: float) -> Floats:
    """Return half the length of a t interval; NaN for fewer than two replications."""
    level = check.real("level", level, low=0, high=1, closed="neither")
    count = np.maximum(count, 2)  # with fewer the error is NaN
    return np.asarray(error * intervals.t_quantile(count - 1, level))


class Results(Measured):
    """Regret and reward of several policies in the same environment.

    Attributes
    ----------
    labels
        Names of the policies.
    checkpoints
        Rounds at which regret and reward were recorded, shape (C,).
    regret, reward
        Cumulative pseudo-regret and reward, shape (policy, replication, checkpoint). Rows of
        replications that were not finished (an interrupted run) are NaN.
    pulls
        How often each arm was played by the end, shape (policy, replication, arm).
    provenance
        Versions, seed, plan and its hash, times.
    """

    def __init__(
        self,
        labels: Sequence[str],
        checkpoints: NDArray[np.int64],
        regret: Floats,
        reward: Floats,
        pulls: NDArray[np.int64],
        provenance: dict[str, Any],
    ) -> None:
        self.labels = tuple(labels)
        self.checkpoints = checkpoints
        self.regret = regret
        self.reward = reward
        self.pulls = pulls
        self.provenance = provenance

    @property
    def finished(self) -> NDArray[np.bool_]:
        """Which (policy, replication) pairs were finished."""
        return np.asarray(~np.isnan(self.regret[:, :, -1]))

    @property
    def counts(self) -> NDArray[np.int64]:
        """How many replications of each policy were finished."""
        return np.asarray(self.finished.sum(axis=1))

    @property
    def complete(self) -> bool:
        """Whether every replication of every policy was finished."""
        return bool(self.finished.all())

    def mean(self) -> Floats:
        """Return the mean regret, shape (policy, checkpoint)."""
        return np.asarray(intervals.average(self.regret, axis=1))

    def mean_reward(self) -> Floats:
        """Return the mean reward, shape (policy, checkpoint)."""
        return np.asarray(intervals.average(self.reward, axis=1))

    def standard_error(self) -> Floats:
        """Return the standard error of the mean regret, shape (policy, checkpoint)."""
        return np.asarray(intervals.standard_error(self.regret, axis=1))

    def quantile(self, q: float) -> Floats:
        """Return a quantile of the regret over replications, shape (policy, checkpoint)."""
        q = check.real("q", q, low=0, high=1)
        missing = np.full(self.checkpoints.size, np.nan)
        return np.stack(
            [
                np.quantile(regret[done], q, axis=0) if done.any() else missing
                for regret, done in zip(self.regret, self.finished, strict=True)
            ]
        )

    def difference(self, first: str, second: str, level: float = 0.95) -> Difference:
        """Return regret of `first` minus `second`, paired by replication, with a t interval.

        All policies face the same rewards, so pairing removes most of the noise.
        """
        a, b = (
            check.choice("first", first, self.labels),
            check.choice("second", second, self.labels),
        )
        apart = self.regret[a] - self.regret[b]
        count = int((self.finished[a] & self.finished[b]).sum())
        mean = np.asarray(intervals.average(apart))
        half = half_width(np.asarray(intervals.standard_error(apart)), count, level)
        return Difference(self.checkpoints, mean, mean - half, mean + half, count)

    def to_frame(self) -> pd.DataFrame:
        """Return a long table: policy, replication, round, regret, reward."""
        import pandas as pd

        policies, replications, rounds = self.regret.shape
        frame = pd.DataFrame(
            {
                "policy": np.repeat(np.array(self.labels, dtype=object), replications * rounds),
                "replication": np.tile(np.repeat(np.arange(replications), rounds), policies),
                "round": np.tile(self.checkpoints, policies * replications),
                "regret": self.regret.ravel(),
                "reward": self.reward.ravel(),
            }
        )
        return frame.dropna(subset=["regret"]).reset_index(drop=True)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to one ``.npz`` file, whole or not at all (no pickle inside)."""
        arrays = {name: getattr(self, name) for name in ARRAYS}
        meta = {"labels": self.labels, "provenance": self.provenance}
        save_arrays(path, "Results", meta, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Results:
        """Return the results saved at `path`."""
        return load_arrays(
            path,
            "Results",
            lambda meta, arrays: cls(
                labels=meta["labels"],
                provenance=meta["provenance"],
                **{name: arrays[name] for name in ARRAYS},
            ),
        )


class CollectRuns:
    """Keeps every replication; rows that were not played stay NaN."""

    in_order = False

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._runs = empty_runs(plan, len(plan.specs), plan.replications)

    def room(self, block: Block) -> Run:
        """Return the rows of the block: what is written there is in the results at once."""
        at = slice(block.first, block.last)
        regret, reward, pulls = self._runs
        return Run(regret[block.policy, at], reward[block.policy, at], pulls[block.policy, at])

    def add(self, runs: Mapping[Block, Run]) -> None:
        """Copy finished blocks; those that were played here are in their place already."""
        for block, rows in runs.items():
            for mine, theirs in zip(self.room(block), rows, strict=True):
                mine[:] = theirs

    @property
    def finished(self) -> int:
        """How many replications there are, over all policies."""
        return int((~np.isnan(self._runs.regret[:, :, -1])).sum())

    def result(self, provenance: dict[str, Any]) -> Results:
        """Return the results so far."""
        return Results(self._plan.labels, self._plan.checkpoints, *self._runs, provenance)


def empty_runs(plan: Plan, *shape: int) -> Run:
    """Return arrays for so many replications, NaN until they are filled in."""
    return Run(
        np.full((*shape, plan.checkpoints.size), np.nan),
        np.full((*shape, plan.checkpoints.size), np.nan),
        np.zeros((*shape, plan.environment.n_arms), dtype=np.int64),
    )
