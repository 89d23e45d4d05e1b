"""Rewards that are taken back and states that add up: what bandits with sums can do."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Hashable, Sequence
from typing import Any, Self

import numpy as np

from zib.core import entry, kernel, validate
from zib.core.exact import ExactSums, add_reward, add_sums, set_moments, was_learned
from zib.core.invariants import problem_in
from zib.core.state import add_states, copied, rearranged
from zib.core.validate import InvalidParameterError, InvalidTypeError
from zib.online.pending import InFlight, PendingArms

_NOBODY = object()  # the label of no arm


class SummedArms(PendingArms):
    """Base of `Bandit`: statistics that are sums over rewards."""

    _sums: ExactSums

    @abstractmethod
    def _adopt(self, arms: tuple[Hashable, ...], state: Any, sums: ExactSums) -> None:
        """Go on with these arms and what was learned about them."""

    def revise(self, arm: Hashable, old: float, new: float) -> None:
        """Replace a reward learned earlier: a zero that turned out to be a sale, a refund.

        For policies whose statistics are sums; the others raise. Afterwards everything is as if
        `new` had been learned in the first place, but for rounding errors, even if `old` was far
        larger than the other rewards. The relative error of their variance is about
        (M/s)²·1e-29, where s is their standard deviation and M the largest reward the arm ever had.

        Only sums are kept, so not every `old` that was never learned is recognised. One is refused
        that is outside the range of the arm's rewards, or that leaves others that cannot be.
        """
        self._need_sums("revise")
        before, after = self._reward(old, "old"), self._reward(new, "new")
        with self._alone():
            k = self._index(arm)
            self._need_learned(arm, k, before, old)
            state, sums = copied(self._state), copied(self._sums)
            if before != 0.0:
                add_reward(sums, k, before, -1.0)
            if after != 0.0:
                add_reward(sums, k, after, 1.0)
            state.nonzero[k] += float(after != 0.0) - float(before != 0.0)
            set_moments(state, sums, k)
            kernel.weigh(self._spec, state, k, before, -1.0)
            kernel.weigh(self._spec, state, k, after, 1.0)
            pin = entry.pin(self._spec, state, self._rng)
            entry.refresh.for_spec(self._spec)(pin, k)
            problem = problem_in(state)
            if problem is not None:
                raise InvalidParameterError(
                    f"`old` must be a reward learned for arm {validate.shown(arm)}; got {old!r}, "
                    f"without which {problem}"
                )
            self._adopt(self._arms, state, sums)

    def _need_learned(self, arm: Hashable, k: int, before: float, old: float) -> None:
        """Raise unless a reward can have been learned for an arm."""
        count = int(self._state.nonzero[k])
        held = count if before != 0 else int(self._state.pulls[k]) - count
        wanted = f"`old` must be a reward learned for arm {validate.shown(arm)}"
        if held < 1:
            kind = "non-zero" if before != 0 else "zero"
            raise InvalidParameterError(
                f"{wanted}, which has no {kind} reward; got {validate.shown(old)}"
            )
        if before != 0 and not was_learned(self._sums, k, count, before):
            low, high = self._sums.low[k] + self._inflated, self._sums.high[k] + self._inflated
            raise InvalidParameterError(
                f"{wanted}, whose {count} non-zero rewards are in [{low:g}, {high:g}] and have the "
                f"mean {self._state.total[k] / count + self._inflated:g}; got {old!r}"
            )

    def merge(self, other: Self, *, since: Self | None = None) -> None:
        """Add what another worker learned, as if one bandit had seen all rewards.

        Parameters
        ----------
        other
            A bandit with the same policy and inflated value. Arms only it knows are added here;
            its limits on shares are not taken over.
        since
            The common state both started from, if it was not empty; it is then counted once. Arms
            of it that this bandit has removed stay removed.

        What is in flight (`set_pending`) adds up as well.
        """
        self._need_sums("merge")
        for name, bandit in {"other": other, **({} if since is None else {"since": since})}.items():
            if not isinstance(bandit, SummedArms):
                raise InvalidTypeError(f"`{name}` must be a Bandit; got {validate.shown(bandit)}")
            if bandit._spec != self._spec or bandit._inflated != self._inflated:
                raise InvalidParameterError(
                    f"`{name}` must have the same policy and inflated value; "
                    f"got {validate.shown(bandit._spec)}, inflated={bandit._inflated!r}"
                )
        # copies, so that each bandit is held only while it is read, and may be this one as well
        other = copy.copy(other)
        since = None if since is None else copy.copy(since)
        with self._alone():
            gone = () if since is None else since._arms  # known before: this side removed them
            known = {*self._position, *gone}
            labels = self._arms + tuple(a for a in other._arms if a not in known)
            self._rails.check_room(len(labels))
            total, sums = self._part_of(labels)
            more, more_sums = other._part_of(labels)
            add_states(total, more)
            add_sums(sums, more_sums)
            learned = self._learned + other._learned
            base_in_flight = {} if since is None else since._in_flight
            in_flight = self._added(self._in_flight, other._in_flight, base_in_flight)
            if since is not None:
                # an arm that was removed over there is not counted twice
                base, base_sums = since._part_of(
                    [a if a in other._position else _NOBODY for a in labels]
                )
                if (base.pulls > total.pulls).any() or (base.nonzero > total.nonzero).any():
                    raise InvalidParameterError(
                        "`since` must be the state both bandits started from; it holds more rewards"
                    )
                add_states(total, base, sign=-1.0)
                add_sums(sums, base_sums, sign=-1.0)
                for k in np.flatnonzero(base.nonzero > 0):
                    set_moments(total, sums, int(k))
                learned -= since._learned
            self._take(labels, total, sums, in_flight)
            self._learned = max(learned, 0)

    def _take(
        self,
        labels: tuple[Hashable, ...],
        state: Any,
        sums: ExactSums,
        in_flight: InFlight | None = None,
    ) -> None:
        """Go on with other arms, after what is derived from all of them was computed anew."""
        pin = entry.pin(self._spec, state, self._rng)
        entry.refresh_all.for_spec(self._spec)(pin)
        self._in_flight = self._in_flight if in_flight is None else in_flight
        self._adopt(labels, state, sums)

    def _part_of(self, labels: Sequence[Hashable]) -> tuple[Any, ExactSums]:
        """Return copies of state and sums with these arms; unknown ones are untried."""
        sources = [self._position.get(label, -1) for label in labels]
        state = rearranged(self._state, kernel.init(self._spec, len(sources)), sources)
        sums = self._no_sums(len(sources))
        if sums.total.size:
            sums = rearranged(self._sums, sums, sources)
        return state, sums

    def _no_sums(self, n_arms: int) -> ExactSums:
        """Return exact sums before any reward; of no arms where rewards cannot be revised."""
        return ExactSums.new({"arms": n_arms if kernel.is_additive(self._spec) else 0})
