"""How alike several groups are: the posterior of what they share, and of how much they differ.

Groups have a value each, a probability (`Shares`) or a number known with an error (`Values`). Under
the *slab* they are draws of a common law whose spread is unknown; under the *spike* they are all
the same. `log_odds` compares the two (the logarithm of the Bayes factor), and `draw` returns
possible true values under either: shrunk towards each other as much as the data ask for.

Under the spike a Bayes factor has mean 1, so that it exceeds 1/a with a probability of at most a:
what is claimed only when it does is claimed wrongly at most that often.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

# Spreads of logits, and of values in units of `scale`. Evidence is weighed with all orders of
# magnitude alike likely; draws suppose that all spreads are, which shrinks groups less.
SPREADS = np.geomspace(0.02, 1.5, 16)
LOG_SPREADS = np.log(SPREADS)
CENTRES = np.linspace(-6.0, 6.0, 49)  # standard deviations around the best guess of the centre


def _log_sum(x: Array) -> float:
    top = float(x.max())
    return top + float(np.log(np.exp(x - top).sum()))


def _drawn(rng: np.random.Generator, log_weights: Array) -> int:
    weights = np.exp(log_weights - log_weights.max()).ravel()
    return int(np.searchsorted(np.cumsum(weights), rng.random() * weights.sum(), side="right"))


def _student(misfit: Array, freedom: float, known: NDArray[np.bool_]) -> Array:
    """Return what takes the place of a sum of squares where the factor of the variances is drawn.

    With a factor known on ν degrees of freedom the contrasts of the groups follow Student's law.
    """
    if not np.isfinite(freedom):
        return misfit
    return np.asarray((freedom + known.sum() - 1.0) * np.log1p(misfit / freedom))


class Values:
    """Groups with a number each, known with a normal error.

    Parameters
    ----------
    value, variance
        Estimate of each group and the variance of its error; infinite where nothing is known.
    scale
        What a spread of 1 means, such as the size of a typical value.
    freedom
        Degrees of freedom on which the common factor of the variances is known.

    Examples
    --------
    >>> alike = Values([1.0, 1.1, 0.9], [0.01, 0.01, 0.01], 1.0)
    >>> apart = Values([1.0, 2.0, 0.2], [0.01, 0.01, 0.01], 1.0)
    >>> alike.log_odds < 0.0 < apart.log_odds
    True
    """

    def __init__(
        self, value: ArrayLike, variance: ArrayLike, scale: float, freedom: float = np.inf
    ) -> None:
        variance = np.asarray(variance, dtype=np.float64)
        self._known = np.isfinite(variance)
        self._value = np.where(self._known, np.asarray(value, dtype=np.float64), 0.0)
        self._variance = np.where(self._known, variance, np.inf)
        # a spread of nothing first: the spike
        self._spreads = np.concatenate([[0.0], scale * SPREADS])
        self._weights = 1.0 / (self._variance + self._spreads[:, None] ** 2)
        total = self._weights.sum(axis=1)
        self._centres = (self._weights @ self._value) / total
        self._errors = 1.0 / np.sqrt(total)
        off = self._value - self._centres[:, None]
        with np.errstate(divide="ignore"):
            each = np.where(self._known, np.log(self._weights), 0.0).sum(axis=1)
        misfit = np.where(self._known, self._weights * off * off, 0.0).sum(axis=1)
        self._log_likelihood = 0.5 * (each - np.log(total) - _student(misfit, freedom, self._known))

    @property
    def log_odds(self) -> float:
        """The logarithm of the Bayes factor of the slab against the spike."""
        slab = _log_sum(self._log_likelihood[1:]) - np.log(SPREADS.size)
        return float(slab - self._log_likelihood[0])

    def draw_spread(self, rng: np.random.Generator) -> float:
        """Return one possible spread between groups that are apart."""
        return float(self._spreads[1 + _drawn(rng, self._log_likelihood[1:] + LOG_SPREADS)])

    def draw(self, rng: np.random.Generator, *, apart: bool) -> Array:
        """Return one possible truth: all groups apart, or all the same."""
        at = 1 + _drawn(rng, self._log_likelihood[1:] + LOG_SPREADS) if apart else 0
        centre = self._centres[at] + self._errors[at] * rng.standard_normal()
        if not apart:
            return np.full(self._value.size, centre)
        between = self._spreads[at] ** 2
        error = np.where(self._known, self._variance, 1.0)
        own = np.where(self._known, between / (between + error), 0.0)
        middle = own * self._value + (1.0 - own) * centre
        return np.asarray(
            middle + np.sqrt(between * (1.0 - own)) * rng.standard_normal(middle.size)
        )


class _Prior(NamedTuple):
    """Beta laws on a grid of spreads and centres, and how likely the data make each."""

    alpha: Array
    beta: Array
    log_weight: Array


class Shares:
    """Groups with a probability each, known from how often something happened.

    Parameters
    ----------
    count, size
        How often it happened in how many trials; need not be whole (effective numbers).

    Examples
    --------
    >>> Shares([100, 104], [1000, 1000]).log_odds < 0.0 < Shares([100, 160], [1000, 1000]).log_odds
    True
    """

    def __init__(self, count: ArrayLike, size: ArrayLike) -> None:
        self._count = np.asarray(count, dtype=np.float64)
        self._rest = np.maximum(np.asarray(size, dtype=np.float64) - self._count, 0.0)
        seen, rest = float(self._count.sum()), float(self._rest.sum())
        logit = np.log((self._count + 0.5) / (self._rest + 0.5))
        known = np.where(self._count + self._rest > 0.0, 1.0, 0.0)
        variance = 1.0 / (self._count + 0.5) + 1.0 / (self._rest + 0.5)
        self._slab = [self._prior(logit, variance, known, spread) for spread in SPREADS]
        centre = np.log((seen + 0.5) / (rest + 0.5))
        sd = np.sqrt(1.0 / (seen + 0.5) + 1.0 / (rest + 0.5))
        m = centre + sd * CENTRES
        self._spike = _log_sum(
            -seen * np.logaddexp(0.0, -m) - rest * np.logaddexp(0.0, m)
        ) + np.log(sd)

    def _prior(self, logit: Array, variance: Array, known: Array, spread: float) -> _Prior:
        from scipy.special import betaln, expit

        weight = known / (variance + spread * spread)
        centre, sd = (weight @ logit) / weight.sum(), 1.0 / np.sqrt(weight.sum())
        m = expit(centre + sd * CENTRES)
        total = 1.0 / (spread * spread * m * (1.0 - m))
        alpha, beta = m * total, (1.0 - m) * total
        inside = betaln(alpha[:, None] + self._count, beta[:, None] + self._rest)
        return _Prior(alpha, beta, (inside - betaln(alpha, beta)[:, None]).sum(axis=1) + np.log(sd))

    @property
    def log_odds(self) -> float:
        """The logarithm of the Bayes factor of the slab against the spike."""
        slab = _log_sum(np.concatenate([prior.log_weight for prior in self._slab]))
        return float(slab - np.log(SPREADS.size) - self._spike)

    def draw(self, rng: np.random.Generator, *, apart: bool) -> Array:
        """Return one possible truth: all groups apart, or all the same."""
        if not apart:
            alike = rng.beta(self._count.sum() + 0.5, self._rest.sum() + 0.5)
            return np.full(self._count.size, alike)
        weights = np.concatenate(
            [prior.log_weight + more for prior, more in zip(self._slab, LOG_SPREADS, strict=True)]
        )
        which, centre = divmod(_drawn(rng, weights), CENTRES.size)
        prior = self._slab[which]
        found: Any = rng.beta(prior.alpha[centre] + self._count, prior.beta[centre] + self._rest)
        return np.asarray(found)
