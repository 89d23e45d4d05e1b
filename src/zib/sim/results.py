"""`Results`: what a simulation measured, with its uncertainty and where it came from."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from zib.core import validate as check
from zib.sim.saved_arrays import load_arrays, save_arrays

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


class Results:
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

    # -------------------------------------------------------------------------------- summaries

    @property
    def finished(self) -> NDArray[np.bool_]:
        """Which (policy, replication) pairs were finished."""
        return np.asarray(~np.isnan(self.regret[:, :, -1]))

    @property
    def complete(self) -> bool:
        """Whether every replication of every policy was finished."""
        return bool(self.finished.all())

    def _each(self, values: Floats, what: Any) -> Floats:
        rows = [what(values[i, self.finished[i]]) for i in range(len(self.labels))]
        return np.stack(rows)

    def mean(self) -> Floats:
        """Return the mean regret, shape (policy, checkpoint)."""
        return self._each(self.regret, lambda x: _mean(x))

    def standard_error(self) -> Floats:
        """Return the standard error of the mean regret, shape (policy, checkpoint)."""
        return self._each(self.regret, lambda x: _standard_error(x))

    def interval(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """Return the ends of a t interval for the mean regret, each (policy, checkpoint)."""
        half = self._each(self.regret, lambda x: _half_width(x, level))
        mean = self.mean()
        return mean - half, mean + half

    def quantile(self, q: float) -> Floats:
        """Return a quantile of the regret over replications, shape (policy, checkpoint)."""
        q = check.real("q", q, low=0, high=1)
        return self._each(
            self.regret,
            lambda x: np.quantile(x, q, axis=0) if len(x) else np.full(x.shape[1], np.nan),
        )

    def difference(self, first: str, second: str, level: float = 0.95) -> Difference:
        """Return regret of `first` minus `second`, paired by replication, with a t interval.

        All policies face the same rewards, so pairing removes most of the noise.
        """
        a, b = self._policy(first), self._policy(second)
        both = self.finished[a] & self.finished[b]
        apart = self.regret[a, both] - self.regret[b, both]
        mean, half = _mean(apart), _half_width(apart, level)
        return Difference(self.checkpoints, mean, mean - half, mean + half, int(both.sum()))

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
                "reward": self._each(self.reward, lambda x: _mean(x))[:, -1],
                "replications": self.finished.sum(axis=1),
            }
        )

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

    def plot(self, ax: Axes | None = None, **options: Any) -> Axes:
        """Draw mean regret with intervals; returns the axes."""
        return draw(self, ax, options)

    def _policy(self, label: str) -> int:
        return check.choice("policy", label, self.labels)

    def __repr__(self) -> str:
        lines = [
            f"Results: {len(self.labels)} policies, {self.regret.shape[1]} replications, "
            f"{int(self.checkpoints[-1])} rounds" + ("" if self.complete else " (interrupted)")
        ]
        low, high = self.interval()
        order = np.argsort(self.mean()[:, -1])
        width = max(len(label) for label in self.labels)
        lines += [
            f"  {self.labels[i]:<{width}}  regret {self.mean()[i, -1]:12.1f}"
            f"  95 % [{low[i, -1]:.1f}, {high[i, -1]:.1f}]"
            for i in order
        ]
        return "\n".join(lines)

    # ----------------------------------------------------------------------------------- files

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


def _mean(x: Floats) -> Floats:
    return x.mean(axis=0) if len(x) else np.full(x.shape[1], np.nan)


def _standard_error(x: Floats) -> Floats:
    if len(x) < 2:
        return np.full(x.shape[1], np.nan)
    return np.asarray(x.std(axis=0, ddof=1) / np.sqrt(len(x)))


def _half_width(x: Floats, level: float) -> Floats:
    return _standard_error(x) * t_quantile(len(x), level)


def t_quantile(count: int, level: float) -> float:
    """Return how many standard errors a t interval for the mean of `count` numbers extends."""
    from scipy.special import stdtrit

    level = check.real("level", level, low=0, high=1, closed="neither")
    return float(stdtrit(count - 1, 0.5 + level / 2)) if count > 1 else float("nan")


def draw(result: Any, ax: Axes | None, options: dict[str, Any]) -> Axes:
    """Draw mean regret with intervals, on new axes where none are given."""
    from zib.report import regret_panel

    if ax is None:
        import matplotlib.pyplot as plt

        ax = plt.subplots(figsize=(7, 4.5), layout="constrained")[1]
    regret_panel(ax, result, **options)
    return ax
