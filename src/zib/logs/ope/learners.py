"""Policies learned from the log that is to judge them: cross-fitted, so that none judges itself.

A policy that was chosen because it does well on some rows looks better on these rows than it is.
Therefore the log is cut into folds, a policy is learned without each of them, and every row is
evaluated with a policy that has not seen it.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zib import contextual
from zib.contextual.policy import POLICIES
from zib.core import validate
from zib.core.kernel import REGISTRY
from zib.core.validate import InvalidParameterError
from zib.logs.log import Log, LogBatch, LoggedData
from zib.logs.ope.models import resolve_model
from zib.logs.ope.policies import Always, Learned, Target, resolve_targets, snapshot
from zib.logs.passes import Block
from zib.online import Bandit, ContextualBandit
from zib.stats.regression import scaling
from zib.stats.sampling import SmallestHashes, mixed, row_hashes

Array = NDArray[np.float64]
Codes = NDArray[np.int64]

__all__ = ["Greedy", "learned"]

_FOLDS, _ROWS = 21, 22  # salts of the folds and of the rows learned from
FEWEST = 20  # rows for each fold
NAMES = ("best", "greedy")


def learned(learner: Any) -> Learned:
    """Return a policy that is to be learned from the log it is evaluated on, cross-fitted.

    Parameters
    ----------
    learner
        "best" (the arm with the largest mean reward; rows count 1/propensity where the log has
        propensities), "greedy" (in every row the arm with the largest predicted reward, `Greedy`),
        a policy of `zib.mab` or `zib.contextual` (a bandit learns the rows and decides as it would
        next; contextual policies get an intercept and the standardised context, and a model for
        each arm), or an object with a method ``fit(log)`` that returns a policy: anything
        `evaluate` takes, such as a function of the context.

    Examples
    --------
    >>> learned("best")
    Learned(learner='best')
    """
    _trainer(learner)
    return Learned(learner)


class Greedy:
    """Plays the arm with the largest reward a model predicts; a learner for `learned`.

    Parameters
    ----------
    model
        As for `zib.ope.evaluate`: "hurdle", "one_part" or a model of your own, such as
        ``zib.ope.Hurdle(occurrence=..., magnitude=...)`` with estimators of scikit-learn.

    Examples
    --------
    >>> log = LoggedData.from_arrays([0, 1] * 100, [0.0, 0.0, 0.0, 2.0] * 50)
    >>> Greedy().fit(log)(np.zeros((1, 0))).tolist()
    [[0.0, 1.0]]
    """

    def __init__(self, model: Any = "hurdle") -> None:
        self.model = resolve_model(model)

    def __repr__(self) -> str:
        return f"Greedy({self.model!r})"

    def fit(self, log: LoggedData) -> Callable[[Array], Array]:
        """Return the policy, a function of the context."""
        model = copy.deepcopy(self.model)
        model.fit(log.arm, log.context, log.reward, log.n_arms)

        def greedy(context: Array) -> Array:
            found = np.asarray(model.predict(context), dtype=np.float64)
            best = found == found.max(axis=1, keepdims=True)
            return np.asarray(best / best.sum(axis=1, keepdims=True))

        return greedy


def _best(log: LoggedData) -> Always:
    weight = np.ones(log.n_rows) if log.propensity is None else 1.0 / log.propensity
    total = np.bincount(log.arm, weight, log.n_arms)
    reward = np.bincount(log.arm, weight * log.reward, log.n_arms)
    mean = np.where(total > 0.0, reward / np.where(total > 0.0, total, 1.0), -np.inf)
    return Always(log.arms[int(np.argmax(mean))])


def _plain(spec: Any) -> Callable[[LoggedData], Any]:
    def train(log: LoggedData) -> Bandit:
        bandit = Bandit(spec, arms=log.arms, seed=0)
        _learn(lambda: bandit.update_many([log.arms[k] for k in log.arm], log.reward))
        return bandit

    return train


def _contextual(spec: Any) -> Callable[[LoggedData], Any]:
    def train(log: LoggedData) -> Any:
        scaled = scaling(log.context, np.ones(log.n_rows))
        own = spec
        if getattr(spec, "n_arms", None) is None:
            own = contextual.Disjoint(spec=spec, n_arms=log.n_arms)
        bandit = ContextualBandit(own, n_features=1 + log.n_features, arms=log.arms, seed=0)
        arms = [log.arms[k] for k in log.arm]
        _learn(lambda: bandit.update_many(arms, log.reward, scaled.design(log.context)))
        return snapshot(bandit, features=scaled.design)

    return train


def _learn(update: Callable[[], None]) -> None:
    with warnings.catch_warnings():
        # of a horizon that was meant for rewards to come
        warnings.filterwarnings("ignore", message="the policy was made for a horizon")
        update()


def _trainer(learner: Any) -> Callable[[LoggedData], Any]:
    """Return the function that makes a policy of a log, or raise."""
    if isinstance(learner, str) and learner in NAMES:
        return _best if learner == "best" else Greedy().fit
    if type(learner) in REGISTRY:
        return _plain(learner)
    if not isinstance(learner, (str, type)) and type(learner) in POLICIES:
        return _contextual(learner)
    if not isinstance(learner, (str, type)) and callable(getattr(learner, "fit", None)):
        return lambda log: copy.deepcopy(learner).fit(log)
    raise InvalidParameterError(
        "`learner` must be 'best', 'greedy', a policy of zib.mab or zib.contextual, or an object "
        f"with a method fit(log) that returns a policy; got {validate.shown(learner)}"
    )


class LearnedTarget(Target):
    """A policy learned without the fold of the row it is asked about."""

    def __init__(self, name: str, learner: Any, log: Log, learning: Learning) -> None:
        super().__init__(name, len(log.arms))
        self._train = _trainer(learner)
        self._learning = learning
        self._by_fold: list[Target] = []

    def learn(self, logs: list[LoggedData]) -> None:
        """Learn a policy for each fold, from the log without it."""
        for log in logs:
            policy = self._train(log)
            if isinstance(policy, Learned) or policy is None:
                raise InvalidParameterError(
                    f"policy {self.name!r}: `fit` must return a policy; got {policy!r}"
                )
            found = resolve_targets({self.name: policy}, log.arms, log.context_names)[0]
            self._by_fold.append(found)
            for arm, mass in found.outside.items():
                self.outside[arm] = self.outside.get(arm, 0.0) + mass / len(logs)

    def of(self, block: Block) -> Array:
        """Return the probabilities of the arms in the rows of a block."""
        fold = self._learning.fold(block)
        out = np.empty((block.size, self.n_arms))
        for f, target in enumerate(self._by_fold):
            rows = np.flatnonzero(fold == f)
            if rows.size:
                out[rows] = target.probabilities(block.context[rows])
        return out


class Learning:
    """Draws rows to learn from, fold by fold, and has the policies learned."""

    def __init__(self, log: Log, folds: int, fit_rows: int, seed: int) -> None:
        self._log, self._folds, self._seed = log, folds, seed
        room = max(fit_rows // (folds - 1), 50)
        self._kept = [SmallestHashes(room) for _ in range(folds)]
        self.targets: list[LearnedTarget] = []

    def target(self, name: str, learner: Any) -> LearnedTarget:
        """Return the target of something to be learned."""
        if self._log.n_rows < FEWEST * self._folds:
            raise InvalidParameterError(
                f"`log` must have at least {FEWEST * self._folds} rows to learn a policy in "
                f"{self._folds} folds; got {self._log.n_rows}"
            )
        made = LearnedTarget(name, learner, self._log, self)
        self.targets.append(made)
        return made

    def fold(self, block: Block) -> Codes:
        """Return the fold of each row; rows of a cluster stay together."""
        if block.cluster is None:
            found = row_hashes(self._seed, _FOLDS, block.start, block.size)
        else:
            found = mixed(self._seed, _FOLDS, block.cluster)
        return (found % np.uint64(self._folds)).astype(np.int64)

    def look(self, block: Block) -> None:
        """Draw from the rows of a block."""
        if not self.targets:
            return
        key = row_hashes(self._seed, _ROWS, block.start, block.size)
        number = block.start + np.arange(block.size)
        chance = np.ones(block.size) if block.propensity is None else block.propensity
        fold = self.fold(block)
        for f, kept in enumerate(self._kept):
            at = np.flatnonzero(fold == f)
            columns = (number, block.arm, block.reward, chance, block.context)
            kept.add(key[at], *(column[at] for column in columns))

    def fresh(self) -> Learning:
        """Return a reader that has drawn nothing."""
        out = copy.copy(self)
        out._kept = copy.deepcopy(self._kept)
        return out

    def merge(self, other: Learning) -> None:
        """Take what was drawn from the rows that follow."""
        for kept, there in zip(self._kept, other._kept, strict=True):
            kept.merge(there)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_log": None}  # workers need no log to draw from its blocks

    def finish(self) -> None:
        """Have all policies learned."""
        if not self.targets:
            return
        parts = [kept.rows() for kept in self._kept]
        self._kept = []
        logs = []
        for f in range(self._folds):
            others = [part for g, part in enumerate(parts) if g != f and part]
            if not others:
                raise InvalidParameterError(
                    f"`learn_folds` must leave rows to learn from; got {self._folds} for too few "
                    "clusters"
                )
            number, arm, reward, chance, context = (
                np.concatenate(column) for column in zip(*others, strict=True)
            )
            order = np.argsort(number)  # policies may mind the order
            columns = LogBatch(
                0, arm[order], reward[order], chance[order] if self._log.has_propensity else None,
                context[order], None,
            )  # fmt: skip
            logs.append(LoggedData(self._log.arms, self._log.context_names, columns))
        for target in self.targets:
            target.learn(logs)
