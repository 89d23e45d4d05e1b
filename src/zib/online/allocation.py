"""Which share of the decisions each arm gets: guard rails, and probabilities that can be logged.

A policy is turned into an **allocation**, one probability per arm, and the decision is drawn from
it. So the probability that is logged is exact for what was served, whatever the policy, and limits
on shares are limits on these numbers. They hold while rewards are still to come, too.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from zib.core.rng import Role, stream
from zib.core.spec import Declared, real, whole
from zib.core.validate import InvalidParameterError

Numbers = NDArray[np.float64]

MOST_DRAWS = 10_000_000
MOST_KEPT = 1_000  # allocations of different sets of arms that are kept at a time
ROUNDING = 1e-9  # of shares that add up to 1


class GuardRails(Declared):
    """Limits on the shares of the arms, and how the shares are computed; see `zib.Bandit`.

    Examples
    --------
    >>> import zib
    >>> zib.Bandit(n_arms=3, least_share=0.05).guard_rails
    GuardRails(least_share=0.05, largest_share=1.0, evidence=100, draws=1000)
    """

    least_share: float = real(low=0.0, high=1.0, default=0.0)
    largest_share: float = real(low=0.0, high=1.0, closed="right", default=1.0)
    evidence: int = whole(low=1, default=100)
    draws: int = whole(low=1, high=MOST_DRAWS, default=1_000)

    def check(self) -> None:
        """Raise where no allocation keeps both limits."""
        if self.least_share > self.largest_share:
            raise InvalidParameterError(
                f"`least_share` must be at most `largest_share`, {self.largest_share:g}; "
                f"got {self.least_share!r}"
            )

    @property
    def limits(self) -> bool:
        """Whether there is a limit, so that every decision is drawn from an allocation."""
        return self.least_share > 0.0 or self.largest_share < 1.0

    def check_room(self, n_arms: int) -> None:
        """Raise if so many arms cannot all have the least share."""
        if n_arms * self.least_share > 1.0 + ROUNDING:
            raise InvalidParameterError(
                f"`least_share` must be at most 1/{n_arms}, so that {n_arms} arms can have it; "
                f"got {self.least_share!r}"
            )

    def applied(self, shares: Numbers, pulls: Numbers, known: Callable[[], Numbers]) -> Numbers:
        """Return the allocation nearest to what the policy wants that keeps the limits.

        Parameters
        ----------
        shares
            What the policy wants; adds up to 1.
        pulls
            How many rewards of each arm have returned.
        known
            What the policy wants if only arms with evidence may be played, 0 for the others; asked
            only where a new arm wants more than it may have and there are others.
        """
        return _raised(self._capped(shares, pulls, known), self.least_share)

    def _capped(self, shares: Numbers, pulls: Numbers, known: Callable[[], Numbers]) -> Numbers:
        is_new = pulls < self.evidence
        over = is_new & (shares > self.largest_share)
        if not over.any():
            return shares
        if is_new.all():  # nobody else can take the rest, so shares are as even as they must be
            even = 1.0 / shares.size
            top = float(shares.max())
            allowed = max(self.largest_share, even)
            kept = (allowed - even) / (top - even) if top > even else 0.0
            return even + kept * (shares - even)
        out = np.where(over, self.largest_share, shares)
        return out + (1.0 - float(out.sum())) * known()


def _raised(shares: Numbers, least: float) -> Numbers:
    """Return shares of at least `least`; those above it give in proportion, none falls below."""
    low = shares < least
    while low.any():
        if low.all():
            return np.full(shares.size, 1.0 / shares.size)
        rest = (1.0 - least * low.sum()) / shares[~low].sum()
        out = np.where(low, least, shares * rest)
        more = ~low & (out < least)
        if not more.any():
            return out
        low |= more
    return shares


class Allocation(NamedTuple):
    """Arms with their probabilities, ready to draw from."""

    labels: tuple[Hashable, ...]
    shares: list[float]
    edges: list[float]  # sums of the shares, which divide [0, 1)

    @classmethod
    def of(cls, labels: tuple[Hashable, ...], shares: Numbers) -> Self:
        """Return the allocation with these shares."""
        edges = np.cumsum(shares)
        edges[np.flatnonzero(shares)[-1] :] = 1.0  # rounding must not open a gap at the end
        return cls(labels, shares.tolist(), edges.tolist())

    def position(self, u: float) -> int:
        """Return the position of the arm that a number in [0, 1) falls to."""
        return bisect_right(self.edges, u)

    def draw(self, rng: np.random.Generator) -> int:
        """Return the position of an arm, drawn with its probability."""
        return self.position(rng.random())

    def draw_many(self, rng: np.random.Generator, n: int) -> NDArray[np.intp]:
        """Return the positions that `n` calls of `draw` would return."""
        return np.searchsorted(self.edges, rng.random(n), side="right")


def of_largest(scores: Numbers) -> Numbers:
    """Return the shares of a policy without chance: ties of the largest score share."""
    best = scores == np.fmax.reduce(scores)
    if not best.any():  # no score is a number: the first is played
        best[0] = True
    return np.asarray(best / best.sum())


def largest(scores: Numbers, rng: np.random.Generator) -> int:
    """Return the position of the largest score; ties are broken at random."""
    best = np.flatnonzero(scores == np.fmax.reduce(scores))
    if best.size > 1:
        return int(best[rng.integers(best.size)])
    return int(best[0]) if best.size else 0


def stream_of(*statistics: NDArray[Any]) -> np.random.Generator:
    """Return a stream named by statistics: the same state has the same allocation, anywhere."""
    digest = hashlib.blake2b(digest_size=16)
    for array in statistics:
        digest.update(array.tobytes())
    return stream(int.from_bytes(digest.digest(), "little"), Role.ALLOCATION)
