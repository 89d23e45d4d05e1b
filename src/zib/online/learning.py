"""How a contextual bandit learns, counts what arms earn, and takes rewards back."""

from __future__ import annotations

import copy
import functools
from collections.abc import Hashable, Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from zib.contextual import entry, sums, tally
from zib.contextual.tally import Tally
from zib.core import kernel, validate
from zib.core.exact import was_learned
from zib.core.state import LARGEST_REWARD, SMALLEST_REWARD
from zib.core.validate import InvalidParameterError
from zib.online.actions import Actions, Labels
from zib.online.categories import checked_categories, checked_category
from zib.online.features import Matrix, is_ready
from zib.online.guard import Careful, InUseError, arrays_in, may_raise
from zib.online.history import History, Learner, Row
from zib.stats.arm_means import ArmMeans, arm_means

Outcome = tuple[Any, ...]  # a reward, counted from the inflated one


class Change(NamedTuple):
    """A reward that was learned, and what it ought to have been."""

    name: Hashable  # of the arm
    arm: int
    z: Matrix
    w: Matrix
    old: float
    new: Outcome
    given: Any  # `old` as it was given


class Learning(Actions):
    """Base of `ContextualBandit`: rewards, one by one and in batches."""

    _tally: Tally
    _history: History | None

    def _prepare_learning(self) -> None:
        self._n_categories = int(getattr(self._spec, "n_categories", 0))
        told = self._n_categories > 0
        learn = (entry.learn if told else entry.update).for_spec(self._spec)
        quiet = entry.buffers(1, self._d, self._q)
        rng = self._rng
        self._learner = Learner(
            self._d, self._q, learn, lambda spec, state: entry.pin(spec, state, rng, quiet)
        )
        self._learn = learn
        if may_raise(self._spec):
            careful = Careful(
                arrays_in((self._state, self._tally)), repeatable=not self._has_objects
            )
            self._learn = functools.partial(_carefully, careful, learn)

    @property
    def _has_objects(self) -> bool:
        """Whether the state holds models that are Python objects."""
        return kernel.is_interpreted(self._spec)

    # --------------------------------------------------------------------------- what was earned

    @property
    def pulls(self) -> dict[Hashable, int]:
        """How many rewards each arm has learned from; not for actions without labels."""
        self._need_names("pulls")
        counts = self._tally.pulls.astype(int).tolist()
        return dict(zip(self._every, counts, strict=True))

    def means(self, level: float = 0.95, *, anytime: bool = False) -> dict[Hashable, ArmMeans]:
        """Return what each arm has earned: estimates and intervals of p, mu and r = p·mu.

        Parameters
        ----------
        level, anytime
            As for `zib.Bandit.means`.

        Notes
        -----
        These are means over the rounds in which the arm was played, whatever the features. A good
        policy plays each arm where it is best, so they say how the arms do as they are used, not
        which arm is better: that is what `predict` and the evaluation of logs are for.
        """
        level = validate.real("level", level, low=0, high=1, closed="neither")
        validate.flag("anytime", anytime)
        self._need_names("means")
        with self._alone():
            found = arm_means(self._tally.moments(), level, self._inflated, anytime=anytime)
            return dict(zip(self._every, found, strict=True))

    def _need_names(self, what: str) -> None:
        if not self._every:
            raise InvalidParameterError(
                f"`{what}` needs arms with names; make the bandit with `arms`"
            )

    # -------------------------------------------------------------------------------- learning

    def update(
        self,
        arm: Hashable,
        reward: float,
        features: Any = None,
        *,
        arms: Iterable[Hashable] | None = None,
        category: int | None = None,
    ) -> None:
        """Learn the reward of one decision, now or long after it was made.

        Parameters
        ----------
        arm
            What `select` returned.
        reward
            The reward.
        features
            What was decided on: the vector of the user, or the whole matrix or only the row of
            `arm` in it; or a tuple of two of these.
        arms
            Labels of the rows, if `select` was given them and `features` is the whole matrix.
        category
            For policies that are told it (`zib.contextual.ByCategory`): which of their categories
            the reward is, 1, 2, …, or None where nothing happened.
        """
        if is_ready(features, self._width):
            z = w = features
            alone = False
        else:
            z, w, alone = self._decided(features)
        row, k = self._place(arm, len(z), arms, alone)
        outcome: Outcome = (self._reward(reward),)
        if category is not None or self._n_categories > 0:
            outcome = self._told(outcome, category)
        if not self._enter(False):
            raise InUseError
        try:
            if self._learned + 1 > self._warn_after:
                self._refuse_features(z, w, row)
                self._warn_of_horizon()
            if not self._learn(self._pin, k, z, w, row, *outcome):
                self._refuse_features(z, w, row)
            self._learned += 1
            if self._history is not None:
                self._history.add(_row(k, z, w, row, outcome), self._learner)
        finally:
            self._leave()

    def _told(self, outcome: Outcome, category: Any) -> Outcome:
        """Return the reward with its category."""
        return (*outcome, checked_category(self._n_categories, category, outcome[0]))

    def _outcomes(self, values: NDArray[np.float64], categories: ArrayLike | None) -> list[Outcome]:
        """Return rewards, with their categories where the policy is told them."""
        if categories is None and self._n_categories == 0:
            return list(zip(values.tolist()))
        kinds = checked_categories(self._n_categories, categories, values)
        return list(zip(values.tolist(), kinds.tolist(), strict=True))

    def update_many(
        self,
        arms: Iterable[Hashable],
        rewards: ArrayLike,
        features: Any,
        categories: ArrayLike | None = None,
    ) -> None:
        """Learn a batch, in the given order; all of it or, after an error, nothing.

        Parameters
        ----------
        arms
            The actions taken.
        rewards
            Their rewards.
        features
            One row per reward: the vector of the user, or the features of the action that was
            taken; or a tuple of two such matrices.
        categories
            Their categories, as for `update`; 0 where nothing happened.
        """
        known = validate.iterable("arms", arms)
        ids = self._numbers(known)
        outcomes = self._outcomes(self._rewards(rewards, len(ids)), categories)
        if not ids.size:
            return
        z, w = self._one_row_each(features, len(ids))
        rows = list(zip(ids.tolist(), range(len(ids)), outcomes, strict=True))
        with self._alone():
            if self._learned + len(rows) > self._warn_after:
                self._warn_of_horizon()
            before = copy.deepcopy((self._state, self._tally)) if may_raise(self._spec) else None
            try:
                for k, row, outcome in rows:
                    self._learn(self._pin, k, z, w, row, *outcome)
            except BaseException:
                if before is not None:
                    self._state, self._tally = before
                    self._prepare()
                raise
            self._learned += len(rows)
            if self._history is not None:
                for k, row, outcome in rows:
                    self._history.add(_row(k, z, w, row, outcome), self._learner)

    def _one_row_each(self, features: Any, n: int) -> tuple[Matrix, Matrix]:
        """Return checked features, one row for each of `n` rewards."""
        z, w = self._rows(features)
        if len(z) != n:
            raise InvalidParameterError(
                f"`features` must have one row per reward, {n}; got {len(z)}"
            )
        self._refuse_features(z, w)
        return z, w

    # -------------------------------------------------------------------------------- revising

    def revise(
        self,
        arm: Hashable,
        old: float,
        new: float,
        features: Any = None,
        *,
        arms: Iterable[Hashable] | None = None,
        category: int | None = None,
    ) -> None:
        """Replace a reward learned earlier: a zero that turned out to be a sale, a refund.

        Afterwards everything is as if `new` had been learned in the first place: bit for bit among
        the rewards that are kept (`keep_rows`), which are learned again; but for rounding errors
        where the policy keeps sums (`zib.contextual.Naive`). Other policies raise.

        Parameters
        ----------
        arm, old, features, arms
            What `update` was given.
        new, category
            The right reward, and its category for policies that are told it.
        """
        z, w, alone = self._decided(features)
        row, k = self._place(arm, len(z), arms, alone)
        self._refuse_features(z, w, row)
        before = self._reward(old, "old")
        after: Outcome = (self._reward(new, "new"),)
        if category is not None or self._n_categories > 0:
            after = self._told(after, category)
        at = slice(row, row + 1)
        self._revise([Change(arm, k, z[at], w[at], before, after, old)])

    def revise_many(
        self,
        arms: Iterable[Hashable],
        old: ArrayLike,
        new: ArrayLike,
        features: Any,
        categories: ArrayLike | None = None,
    ) -> None:
        """Replace a batch of rewards, at about the price of one; all of it or nothing.

        Parameters
        ----------
        arms, old, features
            What `update_many` was given: one arm, reward and row of features each.
        new, categories
            The right rewards, and their categories for policies that are told them.
        """
        names = list(validate.iterable("arms", arms))
        ids = self._numbers(names)
        before = self._rewards(old, len(ids), "old").tolist()
        after = self._outcomes(self._rewards(new, len(ids), "new"), categories)
        if not ids.size:
            return
        z, w = self._one_row_each(features, len(ids))
        self._revise(
            [
                Change(
                    names[i],
                    int(k),
                    z[i : i + 1],
                    w[i : i + 1],
                    before[i],
                    after[i],
                    before[i] + self._inflated,
                )
                for i, k in enumerate(ids)
            ]
        )

    def _revise(self, changes: list[Change]) -> None:
        with self._alone():
            new_tally = copy.deepcopy(self._tally)
            for change in changes:
                tally.count(new_tally, change.arm, change.old, -1.0)
                tally.count(new_tally, change.arm, change.new[0], 1.0)
            if self._history is not None:
                found = self._find(self._history, changes)
                state = self._history.replayed(self._learner, found)
                self._history.replace(found)
            else:
                self._need_sums("revise", "kept rewards, to learn them again")
                self._need_learned(changes)
                state = copy.deepcopy(self._state)
                for change in changes:
                    at = (change.arm, change.z[0], change.old, change.new[0])
                    sums.revise(self._spec, state, *at)
            self._adopt(self._arms, self._spec, state, new_tally)

    def _find(self, history: History, changes: list[Change]) -> dict[int, Outcome]:
        """Return the positions of rewards to be replaced, the latest first, with the new ones."""
        named = bool(self._every)
        wanted: dict[Any, list[Change]] = {}
        for change in changes:
            key = (change.arm if named else -1, change.old, change.z.tobytes(), change.w.tobytes())
            wanted.setdefault(key, []).append(change)
        short = {key[:2] for key in wanted}  # most rows are no match by arm and reward alone
        found: dict[int, Outcome] = {}
        for at, arm, row in history.latest(len(self._every)):
            brief = (arm if named else -1, row.outcome[0])
            if brief in short:
                waiting = wanted.get((*brief, row.z.tobytes(), row.w.tobytes()))
                if waiting:
                    found[at] = waiting.pop(0).new
                    if len(found) == len(changes):
                        return found
        lost = next(waiting[0] for waiting in wanted.values() if waiting)
        raise InvalidParameterError(
            f"`old` must be a reward learned for arm {validate.shown(lost.name)} with these "
            f"`features`, one of the {history.n_rows} that are kept; got "
            f"{validate.shown(lost.given)}"
        )

    def _need_learned(self, changes: list[Change]) -> None:
        """Raise unless sums may hold the rewards that are to be replaced."""
        if not self._every:
            return
        for change in changes:
            count = int(self._tally.nonzero[change.arm])
            held = count if change.old != 0.0 else int(self._tally.pulls[change.arm]) - count
            if held < 1 or (
                change.old != 0.0
                and not was_learned(self._tally.sums, change.arm, count, change.old)
            ):
                raise InvalidParameterError(
                    f"`old` must be a reward learned for arm {validate.shown(change.name)}; got "
                    f"{validate.shown(change.given)}"
                )

    def _need_sums(self, what: str, instead: str) -> None:
        if not sums.keeps_sums(self._spec):
            raise InvalidParameterError(
                f"`{what}` needs {instead}: make the bandit with `keep_rows`, since "
                f"{type(self._spec).__name__} keeps no sums that rewards can be taken out of"
            )

    def _adopt(self, labels: Labels | None, spec: Any, state: Any, counted: Tally) -> None:
        """Go on with other arms, or another state."""
        self._spec, self._state, self._tally = spec, state, counted
        self._name(labels)
        self._prepare()

    def _name(self, labels: Labels | None) -> None:
        self._arms = labels
        self._position = {label: k for k, label in enumerate(labels or ())}
        n_arms = getattr(self._spec, "n_arms", None)
        self._known_arms = None if n_arms is None else int(n_arms)
        self._capacity = max(self._capacity, len(self._position), self._known_arms or 0)

    # ------------------------------------------------------------------------------ keeping it

    def _checked_outcome(self, outcome: list[Any]) -> Outcome:
        """Return a kept reward of a file, or raise."""
        told = self._n_categories > 0
        value, *kind = outcome
        reward = validate.real("outcomes", value, -LARGEST_REWARD, LARGEST_REWARD)
        if 0.0 < abs(reward) < SMALLEST_REWARD:
            raise ValueError(f"{reward} is no reward")
        if self._values is not None and not self._listed(np.array([reward]))[0]:
            raise ValueError(f"{reward} is none of the rewards there are")
        if len(kind) != told:
            raise ValueError(f"{len(outcome)} numbers are no outcome")
        return (reward, *(checked_category(self._n_categories, c or None, reward) for c in kind))


def _row(k: int, z: Matrix, w: Matrix, row: int, outcome: Outcome) -> Row:
    """Return a reward with copies of its features."""
    at = slice(row, row + 1)
    one = z[at].copy()
    return Row(k, one, one if w is z else w[at].copy(), outcome)


def _carefully(
    careful: Careful, learn: Any, pin: Any, k: int, z: Matrix, w: Matrix, row: int, *outcome: Any
) -> Any:
    """Learn one row; a copy of it, since it may have to be learned again."""
    return careful(learn, pin, k, z[row : row + 1].copy(), w[row : row + 1].copy(), 0, *outcome)
