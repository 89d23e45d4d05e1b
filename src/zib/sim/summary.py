"""`Summary`: what a simulation measured, without its replications, in bounded memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zib.core import validate as check
from zib.core.kernel import jitable
from zib.sim.loop import Run
from zib.sim.plan import Block, Plan
from zib.sim.results import Difference, Measured, empty_runs, half_width
from zib.sim.store import load_arrays, save_arrays
from zib.stats.moments import Moments

Floats = NDArray[np.float64]
ARRAYS = ("mean", "squares", "pair_squares", "reward", "pulls", "quantiles")
EXACT = 1_000  # replications up to which quantiles are exact
WIDTH = 0.01  # of a bin, relative to the value: an answer is off by half of it at most
FEW = 64  # rows counted at a time, so that counting takes little memory
LOWEST_BIN, BINS = -4_096, 8_193  # where values are counted elsewhere: up to e⁴⁰ times `SMALL`
SMALL = 1e-4  # of the largest of the first values of a column: below, bins are equally wide


@jitable
def place_of(value: Any, scale: Any) -> Any:
    """Return where a value, or each of several, is among the bins: round it to get its bin.

    arcsinh is the logarithm of large values, and linear around 0.
    """
    return np.arcsinh(value / scale) / WIDTH


class Quantiles:
    """Quantiles of each column of a stream of rows: exact up to `EXACT` rows, then from bins.

    Notes
    -----
    Bins are as wide as 1 % of the values in them, so an answer is within 0.5 % of a value whose
    rank is off by 0.1 % of the rows at most, whatever the law. (This is the idea of DDSketch,
    Masson et al. 2019; `boost_histogram` does the counting.) Around 0, up to 10⁻⁴ times the largest
    of the first values of the column, bins are of equal width.

    Examples
    --------
    >>> quantiles = Quantiles(1)
    >>> quantiles.add(np.arange(101.0)[:, None])
    >>> np.quantile(quantiles.values(), 0.25, axis=1).tolist()
    [25.0]
    """

    def __init__(self, columns: int) -> None:
        self._columns = columns
        self._first: list[Floats] = []  # as long as all rows are kept
        self._scale = np.ones(columns)
        self._bins: Any = None

    def add(self, rows: Floats) -> None:
        """Take rows, shape (n, columns)."""
        if self._bins is None:
            self._first.append(rows.copy())
            if sum(map(len, self._first)) > EXACT:
                self._start_counting()
        else:
            self._count(rows)

    def _start_counting(self) -> None:
        self.start_bins(np.max([np.abs(rows).max(axis=0) for rows in self._first], axis=0))
        for rows in self._first:
            self._count(rows)
        self._first = []

    def start_bins(self, largest: Floats) -> None:
        """Count from now on, in bins; `largest` is the size of the first values per column."""
        import boost_histogram as bh

        self._scale = np.where(largest > 0.0, SMALL * largest, 1.0)
        self._bins = bh.Histogram(
            bh.axis.Integer(0, self._columns, underflow=False, overflow=False),
            bh.axis.Integer(0, 1, growth=True),
            storage=bh.storage.Int64(),
        )

    @property
    def scale(self) -> Floats | None:
        """What values are divided by before they are sorted into bins; None before there are any.

        See `place_of`.
        """
        return None if self._bins is None else self._scale

    def add_counts(self, lowest: int, counts: NDArray[np.int64]) -> None:
        """Take values that were counted elsewhere, shape (columns, bins), from bin `lowest` on."""
        column, at = np.nonzero(counts)
        bins = lowest + at
        self._bins.fill(column, bins)  # one of each, which makes room for them
        first = round(self._bins.axes[1].edges[0])
        self._bins.view()[column, bins - first] += counts[column, at] - 1

    def _count(self, rows: Floats) -> None:
        for at in range(0, len(rows), FEW):
            few = rows[at : at + FEW]
            bins = np.rint(place_of(few, self._scale)).astype(np.int64)
            self._bins.fill(np.tile(np.arange(self._columns), len(few)), bins.ravel())

    def values(self) -> Floats:
        """Return up to `EXACT` values per column, ascending, whose quantiles are the answers."""
        if self._bins is None:
            return np.sort(np.concatenate([np.empty((0, self._columns)), *self._first]), axis=0).T
        counts = self._bins.view()
        middles = np.sinh(WIDTH * self._bins.axes[1].edges[:-1])
        ranks = np.linspace(0.0, counts[0].sum() - 1.0, EXACT)
        out = np.empty((self._columns, EXACT))
        for i, row in enumerate(counts):
            at = np.searchsorted(np.cumsum(row), ranks, side="right")
            out[i] = self._scale[i] * middles[at]
        return out


class Summary(Measured):
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
    Up to 1 000 replications quantiles are exact; beyond, they are within 0.5 % of a value whose
    rank is off by 0.1 % of the replications at most.
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

    @property
    def counts(self) -> NDArray[np.int64]:
        """How many replications of each policy are in here."""
        return np.full(len(self.labels), self.count)

    @property
    def complete(self) -> bool:
        """Whether every replication is in here."""
        return self.count == self.replications

    def mean(self) -> Floats:
        """Return the mean regret, shape (policy, checkpoint)."""
        return self._arrays["mean"].copy()

    def mean_reward(self) -> Floats:
        """Return the mean reward, shape (policy, checkpoint)."""
        return self._arrays["reward"].copy()

    def mean_pulls(self) -> Floats:
        """Return how often each arm was played by the end, on average, shape (policy, arm)."""
        return self._arrays["pulls"].copy()

    def standard_error(self) -> Floats:
        """Return the standard error of the mean regret, shape (policy, checkpoint)."""
        return self._error(self._arrays["squares"])

    def quantile(self, q: float) -> Floats:
        """Return a quantile of the regret over replications, shape (policy, checkpoint)."""
        q = check.real("q", q, low=0, high=1)
        values = self._arrays["quantiles"]
        return np.quantile(values, q, axis=2) if self.count else np.full(values.shape[:2], np.nan)

    def difference(self, first: str, second: str, level: float = 0.95) -> Difference:
        """Return regret of `first` minus `second`, paired by replication, with a t interval."""
        a, b = (
            check.choice("first", first, self.labels),
            check.choice("second", second, self.labels),
        )
        mean = self._arrays["mean"][a] - self._arrays["mean"][b]
        half = np.zeros_like(mean)
        if a != b:
            at = list(combinations(range(len(self.labels)), 2)).index((min(a, b), max(a, b)))
            half = half_width(self._error(self._arrays["pair_squares"][at]), self.count, level)
        return Difference(self.checkpoints, mean, mean - half, mean + half, self.count)

    def _error(self, squares: Floats) -> Floats:
        if self.count < 2:
            return np.full_like(squares, np.nan)
        return np.asarray(np.sqrt(squares / (self.count - 1) / self.count))

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


class CollectSummary:
    """Takes the same replications of all policies, row by row and in order, and forgets them.

    The order makes the result the same to the last bit each time.
    """

    in_order = True

    def __init__(self, plan: Plan) -> None:
        columns = plan.checkpoints.size
        self._plan = plan
        self._count = 0
        self._regret = [Moments(columns) for _ in plan.specs]
        self._reward = [Moments(columns) for _ in plan.specs]
        self._pulls = [Moments(plan.environment.n_arms) for _ in plan.specs]
        self._pairs = [Moments(columns) for _ in combinations(plan.specs, 2)]
        self._quantiles = [Quantiles(columns) for _ in plan.specs]

    def room(self, block: Block) -> Run:
        """Return new arrays."""
        return empty_runs(self._plan, block.size)

    def add(self, runs: Mapping[Block, Run]) -> None:
        """Take the same replications of every policy."""
        self.add_rows([runs[block] for block in sorted(runs)])  # by policy

    def add_rows(self, rows: Sequence[Run]) -> None:
        """Take the same replications of every policy, in their order."""
        for i, run in enumerate(rows):
            self._regret[i].add(run.regret)
            self._reward[i].add(run.reward)
            self._pulls[i].add(run.pulls)
            self._quantiles[i].add(run.regret)
        for moments, (a, b) in zip(self._pairs, combinations(rows, 2), strict=True):
            moments.add(a.regret - b.regret)
        self._count += len(rows[0].regret)

    # What was added up and counted elsewhere, for all policies, and then `counted`.

    def add_moments(self, what: str, number: int, n: int, mean: Floats, squares: Floats) -> None:
        """Take mean and squared deviations of `n` replications.

        `what` is "regret", "reward" or "pulls" of policy `number`, or "pairs": of the regrets of
        two policies, in the order of `itertools.combinations`.
        """
        part = Moments(mean.size)
        part.count, part.mean, part.m2 = np.full(mean.size, float(n)), mean, squares
        kept: list[Moments] = getattr(self, f"_{what}")
        kept[number].merge(part)

    def bins_of(self, policy: int, largest: Callable[[], Floats]) -> Floats:
        """Return the scale of the bins that regrets of a policy are counted in.

        `largest` is asked for the size of the first values, if these are the first.
        """
        quantiles = self._quantiles[policy]
        if quantiles.scale is None:
            quantiles.start_bins(largest())
        assert quantiles.scale is not None
        return quantiles.scale

    def add_counts(self, policy: int, lowest: int, counts: NDArray[np.int64]) -> None:
        """Take regrets of a policy that were counted in bins."""
        self._quantiles[policy].add_counts(lowest, counts)

    def counted(self, n: int) -> None:
        """Say that `n` more replications of all policies are in here."""
        self._count += n

    @property
    def replications(self) -> int:
        """How many replications are wanted."""
        return self._plan.replications

    @property
    def finished(self) -> int:
        """How many replications were taken, over all policies."""
        return self._count * len(self._plan.specs)

    def result(self, provenance: dict[str, Any]) -> Summary:
        """Return the summary so far."""
        return Summary(
            self._plan.labels,
            self._plan.checkpoints,
            self._count,
            self._plan.replications,
            {
                "mean": np.stack([part.mean for part in self._regret]),
                "squares": np.stack([part.m2 for part in self._regret]),
                "pair_squares": np.array([part.m2 for part in self._pairs]),
                "reward": np.stack([part.mean for part in self._reward]),
                "pulls": np.stack([part.mean for part in self._pulls]),
                "quantiles": np.stack([part.values() for part in self._quantiles]),
            },
            provenance,
        )
