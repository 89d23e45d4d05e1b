"""What the arms may truly be: worlds drawn from what a log leaves open.

A world has a probability of paying and a law of magnitudes for every arm. Both are drawn from their
posteriors, in which arms are shrunk towards each other as much as the log asks for, so that the arm
that happened to be lucky is not taken at its word. One answer is that all arms are alike; how
likely that is (`alike`) is computed, and the worlds drawn are those in which arms differ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from zib.logs.advise.collect import Collected
from zib.logs.advise.estimates import ArmSummary
from zib.logs.advise.verdict import arm_values
from zib.stats.between import Shares, Values

Array = NDArray[np.float64]

ALIKE = 0.5  # probability, before the log is seen, that all arms are alike
VALUES, FEWEST_VALUES, MOST_VALUES = 40_000, 50, 2_000  # rewards that worlds draw from: of all
# arms together, and of each arm at least and at most
WORLDS_KEPT = 256
LEAST_BORROWED = 1.0  # rewards of all arms that count as the arm's own, at least
TINY = 1e-12


class Magnitudes(NamedTuple):
    """A law on observed rewards: the values, and the shares up to and with each."""

    values: Array
    reached: Array

    @classmethod
    def of(cls, values: Array, weights: Array) -> Magnitudes:
        """Return the law with these weights."""
        reached = np.cumsum(weights)
        return cls(values, reached / reached[-1])

    @property
    def mean(self) -> float:
        """The mean magnitude."""
        return float(np.diff(self.reached, prepend=0.0) @ self.values)

    def sample(self, rng: np.random.Generator, n: int) -> Array:
        """Return `n` magnitudes."""
        place = np.searchsorted(self.reached, rng.random(n), side="right")
        return self.values[np.minimum(place, self.values.size - 1)]


class World:
    """One possible truth: a multi-armed bandit that `zib.simulate` plays."""

    def __init__(self, probs: Array, laws: Sequence[Magnitudes]) -> None:
        self._probs, self._laws = probs, laws
        self.arm_means = probs * np.array([law.mean for law in laws])
        self.n_arms = probs.size

    @property
    def best_mean(self) -> float:
        """The largest mean reward."""
        return float(self.arm_means.max())

    @property
    def best_arm(self) -> int:
        """The arm that has it."""
        return int(np.argmax(self.arm_means))

    def sample(self, arm: int, rng: np.random.Generator, n: int) -> Array:
        """Return the next `n` rewards of `arm`."""
        out = np.zeros(n)
        paid = np.flatnonzero(rng.random(n) < self._probs[arm])
        out[paid] = self._laws[arm].sample(rng, paid.size)
        return out


class _Draws(NamedTuple):
    """Which parts of the reward differ between arms, and how likely that is."""

    probs_apart: bool
    means_apart: bool
    weight: float


class Worlds:
    """A new `World` for every replication, drawn from what the log leaves open.

    Attributes
    ----------
    alike
        Probability, given the log, that all arms earn the same: the larger of two, one by how often
        and how much they pay, one by their average rewards.
    kept
        The arms that take part: those with data.

    Notes
    -----
    Before the log is seen, all arms are alike with probability ½; else how often they pay, how
    much, or both differ, each with the same probability. How often: a Beta law of the arms'
    probabilities. How much: the magnitudes of an arm are those observed, weighted at random (the
    Bayesian bootstrap), and those of all arms as far as the log says that arms resemble each other
    (a Dirichlet process). The spreads of both parts are unknown (`stats.between`).
    """

    def __init__(self, found: Collected, arms: Sequence[ArmSummary], unit: float) -> None:
        self.kept = [k for k, arm in enumerate(arms) if arm.rows > 0]
        self.n_arms = len(self.kept)
        own = [arms[k] for k in self.kept]
        size = found.rows[self.kept]
        effective = arm_values(found).size  # with propensities and clusters fewer than rows
        if effective is not None:
            size = effective[self.kept]
        self._count = size * np.array([min(arm.compared[0].value, 1.0) for arm in own])
        self._always = not (self._count < size).any()  # no reward is zero
        self._shares = Shares(self._count, size)
        most = min(max(VALUES // self.n_arms, FEWEST_VALUES), MOST_VALUES)
        _, mean, _, _ = found.paid.pooled()
        self._pooled = _at_mean(found.values[:most], np.ones(min(most, found.values.size)), mean)
        self._pooled /= unit
        self._values, self._weights = [], []
        for k in self.kept:
            at = np.flatnonzero(found.arm_value_arm == k)[:most]
            weight = found.arm_value_weight[at]
            values = _at_mean(found.arm_values[at], weight, arms[k].compared[1].value)
            self._values.append(np.concatenate([values / unit, self._pooled]))
            self._weights.append(weight / max(weight.sum(), TINY))
        self._made = lru_cache(WORLDS_KEPT)(self._make)
        shares_odds = -math.inf if self._always else self._shares.log_odds
        self._means, self._variance = compared_magnitudes(own, self._count, unit)
        means_odds = -math.inf if self._means is None else self._means.log_odds
        self._draws = _weighed(shares_odds, means_odds)
        parts = ALIKE / (ALIKE + sum(each.weight for each in self._draws))
        self.alike = max(parts, _alike_on_average(own, size))

    def instance(self, rng: np.random.Generator) -> World:
        """Draw one world in which arms differ; the same for every policy of a replication."""
        return self._made(int(rng.integers(2**62)))

    def _make(self, seed: int) -> World:
        rng = np.random.default_rng(seed)
        weights = np.cumsum([each.weight for each in self._draws])
        at = int(np.searchsorted(weights, rng.random() * weights[-1], side="right"))
        return self._world(rng, self._draws[min(at, len(self._draws) - 1)])

    def alike_instance(self, rng: np.random.Generator) -> World:
        """Draw one world in which all arms pay the same."""
        return self._world(rng, _Draws(False, False, 1.0))

    def _world(self, rng: np.random.Generator, how: _Draws) -> World:
        probs = np.ones(self.n_arms)
        if not self._always:
            probs = self._shares.draw(rng, apart=how.probs_apart)
        even = np.full(self._pooled.size, self._count.sum() / self._pooled.size)
        common = _at_random(rng, even)
        if not how.means_apart or self._means is None:
            return World(probs, [Magnitudes.of(self._pooled, common)] * self.n_arms)
        # as many rewards of all arms count as the arm's own as make the means differ that much
        borrowed = self._variance / self._means.draw_spread(rng) ** 2 - 1.0
        common *= max(borrowed, LEAST_BORROWED) / common.sum()
        laws = []
        for values, weight, count in zip(self._values, self._weights, self._count, strict=True):
            shape = np.concatenate([count * weight, common])
            laws.append(Magnitudes.of(values, _at_random(rng, shape)))
        return World(probs, laws)

    def __repr__(self) -> str:
        return f"<Worlds: {self.n_arms} arms, alike with probability {self.alike:.3g}>"


def compared_magnitudes(
    arms: Sequence[ArmSummary], count: Array, unit: float = 1.0
) -> tuple[Values | None, float]:
    """Return the mean magnitudes of all arms, weighed with one spread for all, and its square.

    `count` is how many non-zero rewards the arms have, effectively. None where nothing can tell
    magnitudes apart, such as one reward per arm or the same price everywhere.
    """
    b = np.array([float(arm.nonzero) for arm in arms])
    mean = np.array([arm.compared[1].value if arm.nonzero else 0.0 for arm in arms]) / unit
    within = sum(arm.magnitude_variance * arm.rows for arm in arms if arm.nonzero) / unit**2
    freedom = float(np.maximum(b - 1.0, 0.0).sum())
    known = count > 0.0
    spread = within / freedom if freedom > 0.0 else 0.0
    if freedom == 0.0 or known.sum() < 2:
        return None, spread
    typical = math.sqrt(float(b @ mean**2 + within) / b.sum())
    if np.ptp(mean[known]) <= 1e-9 * typical:
        return None, spread
    variance = max(spread, 1e-20 * typical**2)
    errors = np.where(known, variance / np.where(known, count, 1.0), np.inf)
    return Values(mean, errors, typical, freedom), spread


def _alike_on_average(arms: Sequence[ArmSummary], size: Array) -> float:
    """Return the probability that arms earn alike, by their average rewards and nothing else.

    Arms may pay differently often and different amounts and still earn the same.
    """
    mean = np.array([arm.compared[2].value for arm in arms])
    rows = np.array([float(arm.rows) for arm in arms])
    variance = float(rows @ np.array([arm.variance for arm in arms])) / rows.sum()
    scale = max(abs(float(rows @ mean) / rows.sum()), math.sqrt(variance / rows.sum()))
    if not variance > 0.0 or not scale > 0.0:
        return 0.0
    odds = Values(mean, variance / size, scale, max(rows.sum() - rows.size, 1.0)).log_odds
    return ALIKE / (ALIKE + (1.0 - ALIKE) * math.exp(min(odds, 600.0)))


def _weighed(shares: float, means: float) -> list[_Draws]:
    """Return the ways in which arms may differ with their weights against `ALIKE`."""
    ways = [(True, False, shares), (False, True, means), (True, True, shares + means)]
    possible = [(p, m, odds) for p, m, odds in ways if odds > -math.inf]
    if not possible:  # nothing can tell the arms apart, as with one reward in all
        possible = [(True, False, 0.0)]
    each = (1.0 - ALIKE) / len(possible)
    return [_Draws(p, m, each * math.exp(min(odds, 600.0))) for p, m, odds in possible]


def _at_random(rng: np.random.Generator, shape: Array) -> Array:
    """Return random weights, each on average its shape: a Dirichlet law up to a factor."""
    drawn = rng.standard_gamma(shape)
    return drawn if drawn.sum() > 0.0 else shape


def _at_mean(values: Array, weight: Array, mean: float) -> Array:
    """Return a sample moved a little, so that it has the mean of all values."""
    if values.size == 0:
        return values
    own = float(np.average(values, weights=weight))
    one_sign = values.min() > 0.0 or values.max() < 0.0
    return values * (mean / own) if one_sign else values + (mean - own)
