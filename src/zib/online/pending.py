"""Decisions in flight as fractional zeros, on top of what was learned.

What was learned stays as it is. Decisions are made from a **view** of it: the same statistics with
the zeros that decisions in flight count for, and everything derived computed anew. The view is a
function of what was learned and of the zeros in force, made when a decision first needs it, so
copying, saving, merging and revising have nothing to do with it.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from zib.core import entry, kernel, validate
from zib.core.state import LARGEST_REWARD, copied
from zib.core.validate import InvalidParameterError
from zib.online.served import ServedArms
from zib.stats.pending import PendingEstimate

MOST_ZEROS = 2.0**52
MOST_FACTOR = 1e6
NOTHING = (0.0, 1.0)  # no zeros, and amounts as they are

InFlight = dict[Hashable, tuple[float, float]]


class View(NamedTuple):
    """What decisions are made from."""

    state: Any
    pin: Any
    learned: int  # how many rewards had been learned


class PendingArms(ServedArms):
    """Base of `Bandit`: decisions whose reward has not come yet."""

    _in_flight: InFlight  # per arm: zeros, factor of the amounts
    _pin: Any  # of what was learned
    _view: View | None

    @property
    def pending(self) -> dict[Hashable, float]:
        """How many zeros the decisions in flight of each arm count for; see `set_pending`."""
        return {label: self._in_flight.get(label, NOTHING)[0] for label in self._arms}

    def set_pending(
        self,
        zeros: PendingEstimate | Mapping[Hashable, float] | ArrayLike | None,
        *,
        amounts: Mapping[Hashable, float] | ArrayLike | None = None,
    ) -> None:
        """Say what the decisions in flight count for; the next call replaces it.

        Parameters
        ----------
        zeros
            What `zib.stats.pending.PendingDecisions.estimate` returns (all zeros it knows, and its
            factors). Or how many zeros come on top of those that were learned, which need not be
            whole: per arm in the order of `arms`, or by label, 0 for an arm that is left out.
            None: nothing is in flight.
        amounts
            By how much the amounts that were learned are multiplied, where early ones are not
            typical; 1 for an arm that is left out.

        Notes
        -----
        For policies whose statistics are sums; the others raise. Decisions, `indices`,
        `propensities` and `means` are those of a bandit that had learned these zeros as well, and
        zeros are evidence for the limits on shares. `pulls` and `state` tell what was learned.

        Examples
        --------
        Ten lines run a bandit whose rewards take days. Zeros are never reported: an order is
        learned when it comes, and everything else is counted by `PendingDecisions`.

        >>> import zib
        >>> from zib.stats.pending import PendingDecisions
        >>> rng, orders = np.random.default_rng(1), []
        >>> bandit = zib.Bandit(arms=["A", "B"], seed=1, least_share=0.1)
        >>> pending = PendingDecisions(7.0, bandit.arms)  # orders come within seven days
        >>> for now in np.arange(0.0, 30.0, 0.01):
        ...     while orders and orders[0][0] <= now:
        ...         came, arm, at, amount = orders.pop(0)
        ...         bandit.update(arm, amount)
        ...         pending.reward(arm, at, came - at, amount)
        ...     if now == int(now):
        ...         bandit.set_pending(pending.estimate(now))
        ...     arm = bandit.select()
        ...     pending.decide(arm, now)
        ...     if rng.random() < {"A": 0.05, "B": 0.15}[arm]:  # what only the world knows
        ...         orders = sorted([*orders, (now + 7.0 * rng.beta(1, 3), arm, now, 20.0)])
        >>> decided = sum(bandit.pulls.values()) + sum(bandit.pending.values())
        >>> print(bandit.pulls, f"{decided:.0f} of 3000 decisions have an outcome")
        {'A': 15, 'B': 372} 2741 of 3000 decisions have an outcome
        """
        self._need_sums("set_pending")
        if isinstance(zeros, PendingEstimate):
            if amounts is not None:
                raise InvalidParameterError(
                    "`amounts` must be None where `zeros` is an estimate, which has its own; "
                    f"got {validate.shown(amounts)}"
                )
            amounts = dict(zip(zeros.arms, zeros.factors.tolist(), strict=True))
            zeros = dict(zip(zeros.arms, zeros.zeros.tolist(), strict=True))
        with self._alone():
            self._in_flight = self._checked_in_flight(zeros, amounts)
            self._prepare()

    def _checked_in_flight(self, zeros: Any = None, amounts: Any = None) -> InFlight:
        many = self._per_arm("zeros", zeros, 0.0, MOST_ZEROS)
        factor = self._per_arm("amounts", amounts, 1.0 / MOST_FACTOR, MOST_FACTOR)
        if any(x != 1.0 for x in factor.values()) and not kernel.can_rescale(self._spec):
            raise InvalidParameterError(
                f"`amounts` must be None for {type(self._spec).__name__}, which keeps sums of its "
                "own that cannot be multiplied"
            )
        found = {k: (many.get(k, 0.0), factor.get(k, 1.0)) for k in (*many, *factor)}
        return {label: held for label, held in found.items() if held != NOTHING}

    def _per_arm(self, name: str, given: Any, low: float, high: float) -> dict[Hashable, float]:
        if given is None:
            return {}
        if isinstance(given, Mapping):
            for label in given:
                self._index(label, name)
            labels, values = tuple(given), validate.numbers(name, list(given.values()))
        else:
            labels, values = self._arms, validate.numbers(name, given)
        if values.shape != (len(labels),):
            raise InvalidParameterError(
                f"`{name}` must be numbers, one per arm, shape {(len(self._arms),)}; "
                f"got shape {values.shape}"
            )
        validate.inside(name, values, low, high)
        return dict(zip(labels, values.tolist(), strict=True))

    # ------------------------------------------------------------------------------- the view

    def _deciding(self) -> View:
        """Return what decisions are made from now."""
        if self._view is None or self._view.learned != self._learned:
            state = self._with_pending() if self._in_flight else self._state
            pin = entry.pin(self._spec, state, self._rng) if self._in_flight else self._pin
            self._view = View(state, pin, self._learned)
        return self._view

    def _with_pending(self) -> Any:
        state = copied(self._state)
        found = np.array([self._in_flight.get(label, NOTHING) for label in self._arms])
        zeros, factors = found.T
        state.pulls[:] += zeros
        state.clock[0] += zeros.sum()
        for k in np.flatnonzero((factors != 1.0) & (state.nonzero > 0.0)):
            factor = self._allowed(int(k), float(factors[k]))
            state.total[k] *= factor
            state.spread[k] *= factor * factor
            kernel.rescale(self._spec, state, int(k), factor)
        entry.refresh_all.for_spec(self._spec)(entry.pin(self._spec, state, self._rng))
        return state

    def _allowed(self, arm: int, factor: float) -> float:
        """Return the factor, or less where the average would leave the range of rewards."""
        mean = float(self._state.total[arm] / self._state.nonzero[arm])
        most = min(self._high, LARGEST_REWARD) if mean > 0.0 else max(self._low, -LARGEST_REWARD)
        return min(factor, most / mean) if mean != 0.0 else factor

    def _select_in_view(self, _: Any) -> int:
        """Decide from the view; the argument is the pin of what was learned."""
        return int(self._select_from(self._deciding().pin))

    def _need_sums(self, what: str) -> None:
        if not kernel.is_additive(self._spec):
            raise InvalidParameterError(
                f"`{what}` needs statistics that are sums over rewards; those of "
                f"{type(self._spec).__name__} depend on the order of the rewards"
            )

    # --------------------------------------------------------------------------- arms that go

    def _kept_in_flight(self, labels: Mapping[Hashable, Any]) -> InFlight:
        return {label: held for label, held in self._in_flight.items() if label in labels}

    @staticmethod
    def _added(mine: InFlight, other: InFlight, since: InFlight) -> InFlight:
        """Return what is in flight for two workers; what both started from counts once."""
        out = {}
        for label in {**mine, **other}:
            (a, f), (b, g), (c, _) = (x.get(label, NOTHING) for x in (mine, other, since))
            out[label] = max(a + b - c, 0.0), f if label in mine else g
        return out
