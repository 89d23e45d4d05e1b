"""Decisions that are drawn from an allocation, those among some of the arms only, and batches.

Without features an allocation holds until something is learned; with features, for one decision.

A batch is decided from a copy of what was learned, which counts the decisions already made in it
(`kernel.count_as_usual`). Its allocation is the share of each arm in the batch.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np

from zib.contextual import entry as contextual_entry
from zib.contextual import policy
from zib.core import entry, kernel, validate
from zib.core.state import Floats, copied
from zib.core.validate import InvalidParameterError
from zib.online.actions import Actions, Ids, Labels
from zib.online.allocation import (
    MOST_KEPT,
    Allocation,
    GuardRails,
    largest,
    of_largest,
    stream_of,
)
from zib.online.base import OnlinePolicy
from zib.online.features import Matrix


class ServedArms(OnlinePolicy):
    """Base of `Bandit`: exact propensities, limits on shares, arms that may be played."""

    _score: Any  # writes the exact score of every arm
    _select_from: Any  # chooses among all arms

    @abstractmethod
    def _deciding(self) -> Any:
        """Return what decisions are made from now: a state and its pin."""

    def _check_rails(self, rails: GuardRails) -> None:
        rails.check_room(len(self._arms))

    def _forget_shares(self) -> None:
        self._allocations: dict[tuple[Labels | None, int], Allocation] = {}
        self._allocated_at = self._learned

    def _rows(self, arms: Labels | None) -> Ids:
        """Return the numbers of the arms that may be played, or raise."""
        if arms is None:
            return np.arange(len(self._arms))
        numbers = [self._index(arm, "arms") for arm in validate.labels("arms", arms)]
        return np.array(numbers, dtype=np.int64)

    def _scores(self, pin: Any, rows: Ids) -> Floats:
        """Return the exact scores of some arms; the others are scored, too, and left out."""
        out = np.zeros(len(self._arms))
        self._score(pin, out)
        return out[rows]

    def _best(self, rows: Ids) -> int:
        """Return which of some arms has the largest score."""
        return int(rows[largest(self._scores(self._deciding().pin, rows), self._rng)])

    def _counts(self, rows: Ids, draws: int, rng: np.random.Generator, state: Any = None) -> Ids:
        """Return how often each of some arms wins in simulated decisions."""
        counts = np.zeros(rows.size, dtype=np.int64)
        pin = entry.pin(self._spec, self._deciding().state if state is None else state, rng)
        entry.count_choices.for_spec(self._spec)(pin, rows, np.zeros(rows.size), draws, counts)
        return counts

    def _sure(self, rows: Ids) -> Floats | None:
        """Return the probabilities of some arms where they need not be estimated."""
        known = kernel.lookup(self._spec).propensities
        if known is not None and rows.size == len(self._arms):
            return np.asarray(known(self._spec, self._deciding().state))[rows]
        if kernel.draws_randomly(self._spec):
            return None
        pin = entry.pin(self._spec, self._deciding().state, np.random.default_rng(0))
        return of_largest(self._scores(pin, rows))

    def _wanted(self, rows: Ids, n: int = 1) -> Floats:
        """Return the shares that the policy wants some arms to have: a function of the state.

        `n` is the number of decisions that are made before anything else is learned.
        """
        if n > 1 and self._counts_decisions(rows):
            return self._wanted_in_batch(rows, n)
        sure = self._sure(rows)
        if sure is not None:
            return sure
        draws = self._rails.draws
        return self._counts(rows, draws, self._stream_of_state(rows)) / draws

    def _stream_of_state(self, rows: Ids) -> np.random.Generator:
        state = self._deciding().state
        return stream_of(state.pulls, state.total, rows)

    def _limited(self, rows: Ids, rails: GuardRails, n: int = 1) -> Floats:
        """Return the shares of some arms within limits: a function of the state."""
        pulls = self._deciding().state.pulls[rows]

        def known() -> Floats:
            tried = np.flatnonzero(pulls >= rails.evidence)
            out = np.zeros(rows.size)
            out[tried] = self._wanted(rows[tried], n)
            return out

        return rails.applied(self._wanted(rows, n), pulls, known)

    def _allocation(self, arms: Labels | None, n: int = 1) -> Allocation:
        """Return the probabilities of the arms that may be played, computed once per state."""
        if self._allocated_at != self._learned or len(self._allocations) > MOST_KEPT:
            self._forget_shares()
        try:
            found = self._allocations.get((arms, n))
        except TypeError:  # a label that is none
            found = None
        if found is None:
            rows = self._rows(arms)
            if n > 1 and not self._counts_decisions(rows):  # a batch is so many decisions
                return self._allocation(arms)
            shares = self._limited(rows, self._rails, n)
            found = Allocation.of(self._arms if arms is None else arms, shares)
            self._allocations[arms, n] = found
        return found

    # --------------------------------------------------------------------------------- batches

    def _counts_decisions(self, rows: Ids) -> bool:
        """Whether decisions of a batch among some arms depend on those made before in it."""
        untried = (self._deciding().state.pulls[rows] == 0.0).any()
        return bool(untried) or kernel.spreads(self._spec)

    def _wanted_in_batch(self, rows: Ids, n: int) -> Floats:
        """Return the shares of some arms in a batch: a function of the state."""
        untried = self._deciding().state.pulls[rows] == 0.0
        first = untried.sum()  # decisions that go to untried arms, one to each
        if n <= first:
            return np.asarray(untried / first)
        rng = self._stream_of_state(rows)
        if kernel.spreads(self._spec):
            played = self._played(rows, n, rng)
            return np.asarray(np.bincount(played, minlength=len(self._arms))[rows] / n)
        state = copied(self._deciding().state)
        pin, count_as_usual = self._in_view(state, rng)
        for arm in rows[untried]:
            count_as_usual(pin, int(arm), False)
        draws = self._rails.draws
        later = self._counts(rows, draws, rng, state) / draws
        return np.asarray((untried + (n - first) * later) / n)

    def _in_view(self, state: Any, rng: np.random.Generator) -> tuple[Any, Any]:
        """Return the pin of a view, and what lets the view count a decision."""
        return entry.pin(self._spec, state, rng), entry.count_as_usual.for_spec(self._spec)

    def _played(self, rows: Ids, n: int, rng: np.random.Generator) -> list[int]:
        """Return the arms that are played in a batch, some of the arms being allowed."""
        pin, count_as_usual = self._in_view(copied(self._deciding().state), rng)
        spread = kernel.spreads(self._spec)
        every = rows.size == len(self._arms)
        out = []
        for _ in range(n):
            if every:
                arm = int(self._select_from(pin))
            else:
                arm = int(rows[largest(self._scores(pin, rows), rng)])
            count_as_usual(pin, arm, spread)
            out.append(arm)
        return out


class Served(Actions):
    """Base of `ContextualBandit`: exact propensities and limits on shares."""

    _tally: Any  # what each arm has earned

    def _check_rails(self, rails: GuardRails) -> None:
        rails.check_room(len(self._every))
        if rails.largest_share < 1.0 and not self._every:
            raise InvalidParameterError(
                "`largest_share` must be 1 where actions have no names: make the bandit with "
                f"`arms`; got {rails.largest_share!r}"
            )

    def _served(self, z: Matrix, w: Matrix, labels: Labels | None, asked: bool) -> Any:
        """Return an action drawn from an allocation, with its probability if that is asked for."""
        with self._alone():
            before = self._rng.bit_generator.state
            try:
                found = self._allocation(z, w, labels, self._rng)
            except BaseException:
                self._rng.bit_generator.state = before
                raise
            k = found.draw(self._rng)
            return (found.labels[k], found.shares[k]) if asked else found.labels[k]

    def _allocation(
        self, z: Matrix, w: Matrix, given: Labels | None, rng: np.random.Generator
    ) -> Allocation:
        """Return the probabilities of the actions; posterior draws come from `rng`."""
        labels, ids = self._load(z, w, given)
        self._rails.check_room(len(labels))
        shares = self._wanted(ids, rng)
        pulls = self._returned(ids)

        def known() -> Floats:
            tried = np.flatnonzero(pulls >= self._rails.evidence)
            self._load(z[tried], w[tried], tuple(labels[k] for k in tried))
            out = np.zeros(len(labels))
            out[tried] = self._wanted(ids[tried], rng)
            return out

        return Allocation.of(tuple(labels), self._rails.applied(shares, pulls, known))

    def _returned(self, ids: Ids) -> Floats:
        """Return how many rewards of these arms have returned."""
        return np.asarray(self._tally.pulls[ids]) if self._every else np.zeros(ids.size)

    def _wanted(self, ids: Ids, rng: np.random.Generator) -> Floats:
        """Return the shares that the policy wants the actions to have that were loaded."""
        pin = (
            self._pin
            if rng is self._rng
            else contextual_entry.pin(self._spec, self._state, rng, self._space)
        )
        if not policy.draws_randomly(self._spec):
            out = np.zeros(ids.size)
            contextual_entry.scores.for_spec(self._spec)(pin, ids, out)
            return of_largest(out)
        counts = np.zeros(ids.size, dtype=np.int64)
        contextual_entry.count_choices.for_spec(self._spec)(pin, ids, self._rails.draws, counts)
        return counts / self._rails.draws
