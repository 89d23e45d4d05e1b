"""`Summary`: what a simulation measured, without its replications, in bounded memory."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from zib.core import validate as check
from zib.sim.loop import Run
from zib.sim.plan import Plan
from zib.sim.results import Difference, draw, t_quantile
from zib.sim.saved_arrays import load_arrays, save_arrays
from zib.sim.sketch import Sketch, quantile_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]
ARRAYS = ("mean", "squares", "pair_squares", "reward", "pulls", "values", "weights")


class Moments:
    """Mean and sum of squared deviations of each column, by merging batches (Chan et al. 1979)."""

    def __init__(self, columns: int) -> None:
        self.count = 0
        self.mean = np.zeros(columns)
        self.squares = np.zeros(columns)

    def add(self, rows: NDArray[Any]) -> None:
        """Take rows, shape (n, columns)."""
        n = len(rows)
        mean = rows.mean(axis=0)
        total = self.count + n
        apart = mean - self.mean
        self.mean = self.mean + apart * (n / total)
        self.squares += ((rows - mean) ** 2).sum(axis=0) + apart**2 * (self.count * n / total)
        self.count = total


class Merger:
    """Takes the replications of all policies, some at a time and in order, and forgets them."""

    def __init__(self, plan: Plan) -> None:
        columns = plan.checkpoints.size
        self._regret = [Moments(columns) for _ in plan.specs]
        self._reward = [Moments(columns) for _ in plan.specs]
        self._pulls = [Moments(plan.environment.n_arms) for _ in plan.specs]
        self._pairs = [Moments(columns) for _ in pairs(len(plan.specs))]
        self._sketches = [Sketch(columns) for _ in plan.specs]

    @property
    def count(self) -> int:
        """Replications taken so far, of each policy."""
        return self._regret[0].count

    def add(self, runs: Sequence[Run]) -> None:
        """Take the same replications of every policy."""
        for i, run in enumerate(runs):
            self._regret[i].add(run.regret)
            self._reward[i].add(run.reward)
            self._pulls[i].add(run.pulls)
            self._sketches[i].add(run.regret)
        for pair, (a, b) in zip(self._pairs, pairs(len(runs)), strict=True):
            pair.add(runs[a].regret - runs[b].regret)

    def summary(self, plan: Plan, provenance: dict[str, Any]) -> Summary:
        """Return the summary so far."""
        weights = self._sketches[0].weights  # alike: all policies have as many replications
        values = np.empty((len(plan.specs), plan.checkpoints.size, weights.size))
        for sketch, out in zip(self._sketches, values, strict=True):
            sketch.write(out)
        return Summary(
            plan.labels,
            plan.checkpoints,
            self.count,
            plan.replications,
            {
                "mean": np.stack([part.mean for part in self._regret]),
                "squares": np.stack([part.squares for part in self._regret]),
                "pair_squares": np.array([part.squares for part in self._pairs]),
                "reward": np.stack([part.mean for part in self._reward]),
                "pulls": np.stack([part.mean for part in self._pulls]),
                "values": values,
                "weights": weights,
            },
            provenance,
        )


def pairs(n: int) -> Iterator[tuple[int, int]]:
    """Return all pairs a < b of n things."""
    return ((a, b) for a in range(n) for b in range(a + 1, n))


class Summary:
    """Means, intervals, quantiles and paired differences of regrets; no single replications.

    What `zib.simulate(..., keep="summary")` returns. Its methods are those of `zib.Results`.

    Attributes
    ----------
    labels
        Names of the policies.
    checkpoints
        Rounds at which regret and reward were recorded, shape (C,).
    count, replications
        How many replications of each policy are in here, and how many were wanted.
    provenance
        Versions, seed, plan and its hash, times.

    Notes
    -----
    Up to 256 replications quantiles are exact; beyond, see `zib.sim.sketch.Sketch`.
    """

    def __init__(
        self,
        labels: Sequence[str],
        checkpoints: NDArray[np.int64],
        count: int,
        replications: int,
        arrays: dict[str, NDArray[Any]],
        provenance: dict[str, Any],
    ) -> None:
        self.labels = tuple(labels)
        self.checkpoints = checkpoints
        self.count = int(count)
        self.replications = int(replications)
        self.provenance = provenance
        self._arrays = arrays

    # -------------------------------------------------------------------------------- summaries

    @property
    def complete(self) -> bool:
        """Whether every replication is in here."""
        return self.count == self.replications

    def mean(self) -> Floats:
        """Return the mean regret, shape (policy, checkpoint)."""
        return self._arrays["mean"].copy()

    def standard_error(self) -> Floats:
        """Return the standard error of the mean regret, shape (policy, checkpoint)."""
        return self._error(self._arrays["squares"])

    def interval(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """Return the ends of a t interval for the mean regret, each (policy, checkpoint)."""
        half = self.standard_error() * t_quantile(self.count, level)
        return self.mean() - half, self.mean() + half

    def quantile(self, q: float) -> Floats:
        """Return a quantile of the regret over replications, shape (policy, checkpoint)."""
        q = check.real("q", q, low=0, high=1)
        weights = self._arrays["weights"]
        return np.stack([quantile_of(values, weights, q) for values in self._arrays["values"]])

    def difference(self, first: str, second: str, level: float = 0.95) -> Difference:
        """Return regret of `first` minus `second`, paired by replication, with a t interval."""
        a, b = (check.choice("policy", label, self.labels) for label in (first, second))
        mean = self._arrays["mean"][a] - self._arrays["mean"][b]
        half = np.zeros_like(mean)
        if a != b:
            at = list(pairs(len(self.labels))).index((min(a, b), max(a, b)))
            half = self._error(self._arrays["pair_squares"][at]) * t_quantile(self.count, level)
        return Difference(self.checkpoints, mean, mean - half, mean + half, self.count)

    def _error(self, squares: Floats) -> Floats:
        if self.count < 2:
            return np.full_like(squares, np.nan)
        return np.asarray(np.sqrt(squares / (self.count - 1) / self.count))

    def mean_reward(self) -> Floats:
        """Return the mean reward, shape (policy, checkpoint)."""
        return self._arrays["reward"].copy()

    def mean_pulls(self) -> Floats:
        """Return how often each arm was played by the end, on average, shape (policy, arm)."""
        return self._arrays["pulls"].copy()

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
                "replications": self.count,
            }
        )

    def plot(self, ax: Axes | None = None, **options: Any) -> Axes:
        """Draw mean regret with intervals; returns the axes."""
        return draw(self, ax, options)

    def __repr__(self) -> str:
        low, high = self.interval()
        mean = self.mean()[:, -1]
        width = max(len(label) for label in self.labels)
        return "\n".join(
            [
                f"Summary: {len(self.labels)} policies, {self.count} replications, "
                f"{int(self.checkpoints[-1])} rounds" + ("" if self.complete else " (interrupted)"),
                *(
                    f"  {self.labels[i]:<{width}}  regret {mean[i]:12.1f}"
                    f"  95 % [{low[i, -1]:.1f}, {high[i, -1]:.1f}]"
                    for i in np.argsort(mean)
                ),
            ]
        )

    # ----------------------------------------------------------------------------------- files

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to one ``.npz`` file, whole or not at all (no pickle inside)."""
        meta = {
            "labels": self.labels,
            "count": self.count,
            "replications": self.replications,
            "provenance": self.provenance,
        }
        arrays = {**self._arrays, "checkpoints": self.checkpoints}
        save_arrays(path, "Summary", meta, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Summary:
        """Return the summary saved at `path`."""
        return load_arrays(
            path,
            "Summary",
            lambda meta, arrays: cls(
                meta["labels"],
                arrays["checkpoints"],
                meta["count"],
                meta["replications"],
                {name: arrays[name] for name in ARRAYS},
                meta["provenance"],
            ),
        )
