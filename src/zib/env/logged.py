"""Bandits that resample a log: regret of any policy on one's own data.

Rewards are drawn again from those observed. Where the log has propensities each observation counts
1/propensity, so that arms that were played in some situations more than in others are compared as
if they had been played everywhere alike.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from zib.core import validate
from zib.core.validate import InvalidParameterError, choice
from zib.env.contextual import ContextBlock, Instance
from zib.env.laws import Law
from zib.env.mab import MAB, _Computed
from zib.env.mixtures import Empirical, ZeroInflated
from zib.env.registry import Array, Kind, derived, flag, instance_of
from zib.logs.log import LoggedData

FeatureMap = Callable[[Array, int], Array]
MANY_CELLS = 1_000


def _weights(log: LoggedData, use_propensity: bool) -> Array:
    if log.propensity is None or not use_propensity:
        return np.ones(log.n_rows)
    return 1.0 / log.propensity


def _reward_law(reward: Array, weight: Array) -> Law:
    paid = reward != 0.0
    if not paid.any():
        return ZeroInflated(Empirical((1.0,)), 0.0)
    prob = float(weight[paid].sum() / weight.sum()) if not paid.all() else 1.0
    return ZeroInflated(Empirical(reward[paid], weight[paid]), prob)


class BootstrapMAB(_Computed, positional=1):
    """A multi-armed bandit whose arms pay rewards resampled from a log.

    Parameters
    ----------
    log
        A log in memory; each of its arms must occur in it.
    use_propensity
        Whether observations count 1/propensity when the log has propensities.

    Notes
    -----
    With weights w the mean of arm k is Σ w·R / Σ w over its rows: the self-normalised inverse
    propensity estimate of playing k always. The gaps between arms are those of the data, noise
    included: the best arm of the bootstrap need not be the best arm.

    Examples
    --------
    >>> from zib.logs import LoggedData
    >>> log = LoggedData.from_arrays(["a", "a", "b", "b"], [0.0, 3.0, 0.0, 2.0])
    >>> env = BootstrapMAB(log)
    >>> env.labels, env.arm_means.tolist()
    (('a', 'b'), [1.5, 1.0])
    """

    log: LoggedData = instance_of(LoggedData, "a LoggedData (load a LogScan first)")
    use_propensity: bool = flag(default=True)
    laws: Any = derived(lambda given: _laws(given))

    @property
    def labels(self) -> tuple[Hashable, ...]:
        """The arms as the log calls them."""
        return self.log.arms

    def to_dict(self) -> dict[str, Any]:
        """Return the laws as plain data; the log is not part of it."""
        return MAB(self.laws).to_dict()

    def __repr__(self) -> str:
        return f"<BootstrapMAB: {self.log.n_rows} rows, laws {list(self.laws)}>"


def _laws(given: Mapping[str, Any]) -> tuple[Law, ...]:
    log = given["log"]
    weight = _weights(log, given["use_propensity"])
    laws = []
    for k, label in enumerate(log.arms):
        rows = log.arm == k
        if not rows.any():
            raise InvalidParameterError(
                f"arm {label!r} has no data in the log, so nothing can be resampled; leave it "
                "out of `arms`"
            )
        laws.append(_reward_law(log.reward[rows], weight[rows]))
    return tuple(laws)


class BootstrapContextual(Instance):
    """A contextual bandit that resamples contexts from a log, and rewards within arm × cell.

    Parameters
    ----------
    log
        A log in memory with a context.
    cells
        What makes two rows alike: names of columns of the context, or one label per row. By
        default all columns, if they take few different values together.
    features
        What policies see of an action: ``"context"``, a 1 and the context, alike for all arms
        (for `zib.contextual.Disjoint`); ``"disjoint"``, the same in a block of its own per arm
        (for any policy); or a function of (context, n_arms) that returns one row per arm.
    empty
        What an arm pays in a cell in which it was never played: ``"raise"`` refuses, ``"arm"``
        resamples all rows of the arm.
    use_propensity
        Whether observations count 1/propensity when the log has propensities.

    Notes
    -----
    Each round takes the context of a random row of the log, and each arm pays a reward drawn from
    the rows of that arm in the same cell. Given the context, the mean is therefore the mean of
    arm × cell. All arms use the same uniform number, the larger the larger the reward, so that
    comparing two of them is less noisy; each alone has the law of its rows.
    """

    def __init__(
        self,
        log: LoggedData,
        *,
        cells: ArrayLike | Sequence[str] | None = None,
        features: Literal["context", "disjoint"] | FeatureMap = "disjoint",
        empty: Literal["raise", "arm"] = "raise",
        use_propensity: bool = True,
    ) -> None:
        if not isinstance(log, LoggedData):
            raise InvalidParameterError(f"`log` must be a LoggedData; got {validate.shown(log)}")
        weight = _weights(log, validate.flag("use_propensity", use_propensity))
        if not callable(features):
            choice("features", features, ("context", "disjoint"))
        if log.n_features == 0:
            raise InvalidParameterError(
                "`log` must have a context; for a log without one use BootstrapMAB"
            )
        choice("empty", empty, ("raise", "arm"))
        self._labels = log.arms
        self.n_arms = self.n_actions = log.n_arms
        self._context = np.ascontiguousarray(log.context)
        self._cell, names = _cells(log, cells)
        self._make_groups(log, weight, names, empty)
        self._features = features
        self.n_features = (self._width(), self._width())
        largest = float(np.abs(log.reward).max())
        self._reach = largest if math.isfinite(largest) else math.inf

    def _make_groups(
        self, log: LoggedData, weight: Array, names: Sequence[str], empty: str
    ) -> None:
        """Sort the rewards of each arm × cell; cumulative weights of group g lie in (g, g + 1]."""
        n_cells = len(names)
        group = log.arm * n_cells + self._cell
        rows = [np.flatnonzero(group == g) for g in range(self.n_arms * n_cells)]
        for g, found in enumerate(rows):
            if found.size:
                continue
            arm, cell = divmod(g, n_cells)
            everywhere = np.flatnonzero(log.arm == arm)
            if empty == "raise" or not everywhere.size:
                raise InvalidParameterError(
                    f"arm {log.arms[arm]!r} has no data in the cell {names[cell]}; use coarser "
                    'cells, or empty="arm" to resample all rows of the arm there'
                )
            rows[g] = everywhere
        self.cell_means = np.empty((self.n_arms, n_cells))
        values, levels = [], []
        for g, found in enumerate(rows):
            order = found[np.argsort(log.reward[found], kind="stable")]
            share = np.cumsum(weight[order])
            share /= share[-1]
            values.append(log.reward[order])
            levels.append(g + share)
            mean = float(weight[order] @ log.reward[order] / weight[order].sum())
            self.cell_means[divmod(g, n_cells)] = mean
        self.cell_means.flags.writeable = False
        self._values, self._levels = np.concatenate(values), np.concatenate(levels)
        self._last = np.cumsum([part.size for part in values]) - 1

    @property
    def labels(self) -> tuple[Hashable, ...]:
        """The arms as the log calls them."""
        return self._labels

    def _width(self) -> int:
        d = int(self._context.shape[1]) + 1
        if callable(self._features):
            rows = np.asarray(self._features(self._context[0], self.n_arms), dtype=np.float64)
            if rows.ndim != 2 or rows.shape[0] != self.n_arms:
                raise InvalidParameterError(
                    f"`features` must return one row per arm ({self.n_arms}); "
                    f"got shape {rows.shape}"
                )
            return int(rows.shape[1])
        choice("features", self._features, ("context", "disjoint"))
        return d if self._features == "context" else d * self.n_arms

    def instance(self, rng: np.random.Generator) -> BootstrapContextual:
        """Return the environment of one replication: itself, nothing is drawn."""
        return self

    def component_size(self, kind: Kind = "subgaussian") -> float:
        """Return a size that is valid for the rewards: their largest absolute value."""
        return self._reach

    def _draw(self, rng: np.random.Generator, block: ContextBlock) -> None:
        n, k = block.count.size, self.n_arms
        uniform = rng.random((n, 2))
        row = (uniform[:, 0] * len(self._cell)).astype(np.int64)
        cell = self._cell[row]
        n_cells = self.cell_means.shape[1]
        group = np.arange(k) * n_cells + cell[:, None]
        # side="right": a uniform number of exactly 0 belongs to the first reward of the group;
        # the minimum: adding the group may round a number next to 1 up
        place = np.searchsorted(self._levels, group + uniform[:, 1:], side="right")
        block.reward[:] = self._values[np.minimum(place, self._last[group])]
        block.mean[:] = self.cell_means[:, cell].T
        block.arms[:] = np.arange(k)
        block.count[:] = k
        self._fill_features(self._context[row], block)

    def _fill_features(self, context: Array, block: ContextBlock) -> None:
        d = context.shape[1] + 1
        if callable(self._features):
            for t, x in enumerate(context):
                block.z[t] = np.asarray(self._features(x, self.n_arms)).T
        elif self._features == "context":
            block.z[:, 0] = 1.0
            block.z[:, 1:] = context[:, :, None]
        else:
            block.z[:] = 0.0
            for arm in range(self.n_arms):
                block.z[:, arm * d, arm] = 1.0
                block.z[:, arm * d + 1 : (arm + 1) * d, arm] = context
        block.w[:] = block.z

    def __repr__(self) -> str:
        digest = hashlib.sha256()
        for array in (self._context, self._cell, self._values, self._levels):
            digest.update(np.ascontiguousarray(array).tobytes())
        return (
            f"<BootstrapContextual: {len(self._cell)} rows, {self.n_arms} arms, "
            f"{self.cell_means.shape[1]} cells, {digest.hexdigest()[:12]}>"
        )


def _cells(log: LoggedData, cells: Any) -> tuple[NDArray[np.int64], list[str]]:
    """Return the number of the cell of each row, and the cells in words."""
    chosen = log.context_names if cells is None else cells
    if not isinstance(chosen, np.ndarray) and all(
        isinstance(name, str) and name in log.context_names for name in chosen
    ):
        columns = [log.context_names.index(name) for name in chosen]
        if not columns:
            raise InvalidParameterError("`cells` must name at least one column; got none")
        kept, code = np.unique(log.context[:, columns], axis=0, return_inverse=True)
        if len(kept) > MANY_CELLS or len(kept) * 10 > log.n_rows + 10:
            raise InvalidParameterError(
                f"`cells` must make few groups of rows; these columns take {len(kept)} different "
                "values together: name discrete columns, or give one label per row"
            )
        names = [", ".join(f"{c}={v:g}" for c, v in zip(chosen, row)) for row in kept]
        return code.reshape(-1).astype(np.int64), names
    labels = np.asarray(chosen)
    if labels.shape != (log.n_rows,):
        unknown = [c for c in np.atleast_1d(labels).tolist() if c not in log.context_names]
        raise InvalidParameterError(
            "`cells` must name columns of the context "
            f"({', '.join(log.context_names[:10])}) or hold one label per row ({log.n_rows}); "
            f"got {unknown[0] if unknown else labels.shape!r}"
        )
    kept, code = np.unique(labels, return_inverse=True)
    if kept.size > MANY_CELLS:
        raise InvalidParameterError(
            f"`cells` must make at most {MANY_CELLS} groups of rows; got {kept.size}"
        )
    return code.astype(np.int64), [str(value) for value in kept]
