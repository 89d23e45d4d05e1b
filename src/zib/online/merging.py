"""How contextual bandits add up, and how their arms come and go."""

from __future__ import annotations

import copy
from collections.abc import Hashable, Sequence
from typing import Any

from zib.contextual import policy, sums, tally
from zib.contextual.per_arm import is_split, regrouped, with_arms
from zib.contextual.tally import Tally
from zib.core import validate
from zib.core.invariants import problem_in
from zib.core.validate import InvalidParameterError, InvalidTypeError
from zib.online.actions import Labels
from zib.online.history import Row
from zib.online.learning import Learning


class Merging(Learning):
    """Base of `ContextualBandit`: other workers and other arms."""

    # --------------------------------------------------------------------------------- merging

    def merge(self, other: Any, *, since: Any = None) -> None:
        """Add what another worker learned, as if its rewards had come here, after those known.

        Exact where the policy keeps sums (`zib.contextual.Naive`); for others the other bandit must
        have kept its rewards (`keep_rows`), which are learned here, bit for bit.

        Parameters
        ----------
        other
            A bandit with the same policy, features and inflated value. Arms only it knows are added
            here; rewards of arms it has removed are left out.
        since
            The common state both started from, if it was not empty; its rewards are not counted
            twice. Arms of it that this bandit has removed stay removed.
        """
        for name, bandit in {"other": other, **({} if since is None else {"since": since})}.items():
            self._need_alike(name, bandit)
        # copies, so that each bandit is held only while it is read, and may be this one as well
        other = copy.copy(other)
        since = None if since is None else copy.copy(since)
        with self._alone():
            gone = () if since is None else since._every
            known = {*self._every, *gone}
            new = [label for label in other._every if label not in known]
            labels = None if self._arms is None else (*self._arms, *new)
            self._rails.check_room(len(labels or ()))
            spec, state, counted = self._part_of(labels)
            learned = other._learned - (0 if since is None else since._learned)
            if learned < 0:
                raise InvalidParameterError(
                    "`since` must be the state both bandits started from; it holds more rewards"
                )
            rows: list[Row] = []
            if self._history is None and sums.keeps_sums(self._spec):
                for sign, bandit in ((1.0, other), (-1.0, since)):
                    if bandit is not None:
                        _, more, more_counted = bandit._part_of(labels)
                        sums.merge(spec, state, more, sign)
                        tally.add_tally(counted, more_counted, sign)
                problem = problem_in(state) or problem_in(counted)
                if problem is not None:
                    raise InvalidParameterError(
                        f"`since` must be the state both bandits started from; without it {problem}"
                    )
            else:
                rows = self._rows_of(other, learned, labels)
                pin = self._learner.pin(spec, state)
                for row in rows:
                    self._learner.learn(pin, row.arm, row.z, row.w, 0, *row.outcome)
                    tally.count(counted, row.arm, row.outcome[0], 1.0)
                learned = len(rows)
            if self._history is not None:
                if labels is not None and new:
                    self._history.regroup(self._sources(labels))
                for row in rows:
                    self._history.add(row, self._learner)
            self._adopt(labels, spec, state, counted)
            self._learned += learned

    def _need_alike(self, name: str, bandit: Any) -> None:
        if not isinstance(bandit, Merging):
            raise InvalidTypeError(
                f"`{name}` must be a ContextualBandit; got {validate.shown(bandit)}"
            )
        ours = (with_arms(self._spec, 1), self._d, self._q, self._inflated, self._arms is None)
        theirs = (
            with_arms(bandit._spec, 1), bandit._d, bandit._q, bandit._inflated,
            bandit._arms is None,
        )  # fmt: skip
        if ours != theirs:
            raise InvalidParameterError(
                f"`{name}` must have the same policy, features and inflated value, and labels if "
                f"this one has them; got {validate.shown(bandit)}"
            )
        if self._encoder is not bandit._encoder and self._encoder != bandit._encoder:
            raise InvalidParameterError(
                f"`{name}` must have the same encoder; got {validate.shown(bandit._encoder)}"
            )
        fixed = self._known_arms is not None and not is_split(self._spec)
        if fixed and bandit._arms != self._arms:
            raise InvalidParameterError(
                f"`{name}` must have the same arms, since {type(self._spec).__name__} cannot "
                f"get others; got {validate.shown(bandit._arms)}"
            )

    def _rows_of(self, other: Merging, n: int, labels: Labels | None) -> list[Row]:
        """Return the last `n` rewards of another bandit, with our numbers of the arms."""
        kept = 0 if other._history is None else other._history.n_rows
        if n > kept:
            raise InvalidParameterError(
                f"`other` must have kept the {n} rewards to be added (make it with `keep_rows`), "
                f"since {type(self._spec).__name__} keeps no sums; it has kept {kept}"
            )
        assert other._history is not None or n == 0
        position = {label: k for k, label in enumerate(labels or ())}
        found: list[Row] = []
        if other._history is not None:
            latest = other._history.latest(len(other._every))
            for _, (_, arm, row) in zip(range(n), latest, strict=False):
                if labels is None:
                    found.append(row)
                elif arm >= 0 and other._every[arm] in position:
                    found.append(row._replace(arm=position[other._every[arm]]))
        return found[::-1]

    # ------------------------------------------------------------------------------------ arms

    def add_arm(self, arm: Hashable) -> None:
        """Add an arm nothing is known about; one with models of its own where arms have them."""
        self._need_labels("add_arm")
        with self._alone():
            if validate.label("arm", arm) in self._position:
                raise InvalidParameterError(
                    f"`arm` must be new; {validate.shown(arm)} is there already"
                )
            self._rails.check_room(len(self._arms) + 1)
            self._regroup((*self._arms, arm))

    def remove_arm(self, arm: Hashable) -> None:
        """Remove an arm. Its own models are forgotten; a model for all arms keeps what it learned.

        Rewards of it that come later are refused.
        """
        self._need_labels("remove_arm")
        with self._alone():
            self._index(arm)
            if len(self._arms) == 1:
                raise InvalidParameterError(
                    f"`arm` must leave at least one other; {validate.shown(arm)} is the last"
                )
            self._regroup(tuple(a for a in self._arms if a != arm))

    def _need_labels(self, what: str) -> None:
        if self._arms is None:
            raise InvalidParameterError(
                f"`{what}` needs arms with labels; make the bandit with `arms`"
            )
        if self._known_arms is not None and not is_split(self._spec):
            raise InvalidParameterError(
                f"`{what}` needs models that come and go with their arms, as those of "
                f"zib.contextual.Disjoint; {type(self._spec).__name__} has a fixed number of arms"
            )

    def _regroup(self, labels: Labels) -> None:
        spec, state, counted = self._part_of(labels)
        if self._history is not None:
            self._history.regroup(self._sources(labels))
        self._adopt(labels, spec, state, counted)

    def _sources(self, labels: Sequence[Hashable]) -> list[int]:
        """Return which of our arms each label is; −1 for those that are not here."""
        return [self._position.get(label, -1) for label in labels]

    def _part_of(self, labels: Labels | None) -> tuple[Any, Any, Tally]:
        """Return policy, state and tally of these arms; unknown ones are untried."""
        if labels is None or labels == self._arms:
            return self._spec, copy.deepcopy(self._state), copy.deepcopy(self._tally)
        sources = self._sources(labels)
        spec = with_arms(self._spec, len(labels))
        state = copy.deepcopy(self._state)
        if is_split(spec):
            state = regrouped(self._state, policy.init(spec, self._d, self._q), sources)
        return spec, state, tally.regrouped(self._tally, sources)
