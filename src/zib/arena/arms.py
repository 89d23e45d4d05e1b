"""Arms by the kind of their magnitudes and by how p and magnitude go together.

What the named worlds and the drawn ones are made of. A *kind* of magnitudes is a law with a given
mean and a number that says how much it scatters or how heavy its tail is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from zib.env import (
    MAB,
    Constant,
    Empirical,
    Exponential,
    Gamma,
    Gaussian,
    GaussianMixture,
    Law,
    LogNormal,
    Lomax,
    Pareto,
    QuantileTable,
    ZeroInflated,
)

Floats = NDArray[np.float64]
Range = tuple[float, float]


class Magnitudes(NamedTuple):
    """A kind of magnitudes: the law for a mean and a tail, and the range of the tail."""

    words: str
    law: Callable[[float, float], Law]
    tails: Range


def _two_points(mean: float, ratio: float) -> Law:
    """Return a law on a small value and one `ratio` times as large, which comes in one of five."""
    low = mean / (0.8 + 0.2 * ratio)
    return Empirical((low, ratio * low), weights=(0.8, 0.2))


def _price_table(mean: float, step: float) -> Law:
    """Return a law on five prices, each `step` times the one before and half as frequent."""
    values = step ** np.arange(5.0)
    weights = 0.5 ** np.arange(5.0)
    values *= mean / float(values @ weights / weights.sum())
    return Empirical(tuple(values.tolist()), weights=tuple(weights.tolist()))


def _weibull(mean: float, shape: float) -> Law:
    """Return Weibull's law as a table of quantiles, cut at one in a hundred thousand."""
    levels = np.concatenate([[0.0], 1.0 - np.geomspace(0.99, 1e-5, 80), [1.0]])
    quantiles = (-np.log1p(-np.minimum(levels, 1.0 - 5e-6))) ** (1.0 / shape)
    table = QuantileTable(tuple(levels.tolist()), tuple(quantiles.tolist()))
    scaled = quantiles * (mean / table.mean)
    return QuantileTable(tuple(levels.tolist()), tuple(scaled.tolist()))


KINDS: dict[str, Magnitudes] = {
    "gaussian": Magnitudes("Gaussian", lambda m, t: Gaussian(m, t * m), (0.1, 0.5)),
    "mixture": Magnitudes(
        "a mixture of two Gaussians", lambda m, t: GaussianMixture(m, 0.2 * m, t * m), (0.2, 0.7)
    ),
    "exponential": Magnitudes("exponential", lambda m, t: Exponential(m), (1.0, 1.0)),
    "gamma": Magnitudes("gamma", lambda m, t: Gamma(m, t), (0.2, 6.0)),
    "lognormal": Magnitudes("log-normal", LogNormal.from_mean, (0.3, 1.8)),
    "pareto": Magnitudes("Pareto", lambda m, t: Pareto(m, t), (1.5, 4.0)),
    "lomax": Magnitudes("Lomax", lambda m, t: Lomax(m, t), (2.1, 5.0)),
    "weibull": Magnitudes("Weibull-like", _weibull, (0.4, 0.9)),
    "constant": Magnitudes("one price per arm", lambda m, t: Constant(m), (1.0, 1.0)),
    "two points": Magnitudes("two amounts", _two_points, (2.0, 50.0)),
    "table": Magnitudes("a table of prices", _price_table, (1.5, 3.0)),
}


def law(kind: str, mean: float, tail: float | None = None) -> Law:
    """Return the law of magnitudes of this kind, mean and tail (by default a middling one).

    Examples
    --------
    >>> law("gamma", 2.0, 0.5)
    Gamma(mean=2.0, shape=0.5)
    >>> {name: round(law(name, 3.0).mean, 6) for name in ("two points", "table", "weibull")}
    {'two points': 3.0, 'table': 3.0, 'weibull': 3.0}
    """
    made = KINDS[kind]
    middle = math.sqrt(made.tails[0] * made.tails[1])
    return made.law(float(mean), middle if tail is None else float(tail))


def log_uniform(rng: np.random.Generator, low: float, high: float, size: Any = None) -> Any:
    """Draw numbers whose logarithm is uniform."""
    return np.exp(rng.uniform(math.log(low), math.log(high), size))


def bandit(rng: np.random.Generator, laws: Sequence[Law], probs: Sequence[float] | Floats) -> MAB:
    """Return the bandit of these magnitudes and probabilities, its arms in a random order."""
    order = rng.permutation(len(laws))
    return MAB([ZeroInflated(laws[int(k)], float(probs[int(k)])) for k in order])


def _tails(rng: np.random.Generator, kind: str, n: int, tails: Range | None, each: bool) -> Floats:
    """Draw the tails of arms: one for all of them, or one each."""
    low, high = KINDS[kind].tails if tails is None else tails
    drawn: Floats = np.asarray(log_uniform(rng, low, high, n if each else 1))
    return np.broadcast_to(drawn, (n,))


# -------------------------------------------------------------------------------------- structures


def scattered(
    rng: np.random.Generator,
    kind: str,
    n_arms: int,
    *,
    probs: Range,
    means: Range,
    tails: Range | None = None,
    each: bool = False,
) -> MAB:
    """Return arms whose p and magnitude have nothing to do with each other.

    Both are log-uniform in their ranges; a range of one point makes all arms alike in it. `each`
    gives every arm a tail of its own.
    """
    mean = log_uniform(rng, *means, n_arms)
    prob = log_uniform(rng, *probs, n_arms)
    tail = _tails(rng, kind, n_arms, tails, each)
    return bandit(rng, [law(kind, m, t) for m, t in zip(mean, tail)], prob)


def opposed(
    rng: np.random.Generator,
    kind: str,
    n_arms: int,
    *,
    probs: Range,
    spread: float,
    scale: float = 1.0,
    tails: Range | None = None,
    each: bool = False,
) -> MAB:
    """Return arms of which one pays the more the rarer it pays; mean rewards are close.

    Probabilities are spread over their range evenly on the log scale, mean rewards uniformly over
    [1 − `spread`, 1] times `scale`.
    """
    prob = np.geomspace(*probs, n_arms)
    value = scale * (1.0 - spread * rng.random(n_arms))
    tail = _tails(rng, kind, n_arms, tails, each)
    return bandit(rng, [law(kind, r / p, t) for r, p, t in zip(value, prob, tail)], prob)


def with_an_odd_one(
    rng: np.random.Generator,
    others: MAB,
    *,
    kind: str,
    lift: float,
    prob: float,
    tail: float | None = None,
) -> MAB:
    """Return a bandit with one more arm, of another law, whose mean is `lift` times the best."""
    mean = lift * others.best_mean / prob
    laws = [*others.laws, ZeroInflated(law(kind, mean, tail), prob)]
    return MAB([laws[int(k)] for k in rng.permutation(len(laws))])


def half_silent(rng: np.random.Generator, bandit: MAB) -> MAB:
    """Return the bandit with as many arms again that never pay."""
    silent = [ZeroInflated(each.law, 0.0) for each in bandit.laws]
    laws = [*bandit.laws, *silent]
    return MAB([laws[int(k)] for k in rng.permutation(len(laws))])


def widest_best(
    rng: np.random.Generator, kind: str, n_arms: int, *, probs: Range, tails: Range, lift: float
) -> MAB:
    """Return arms of very different scatter, of which the widest is best by the factor `lift`.

    Tails go over their range from the narrowest to the widest law; mean rewards of the others lie
    between half the best of them and it.
    """
    tail = np.geomspace(*tails, n_arms)
    prob = log_uniform(rng, *probs, n_arms)
    value = rng.uniform(0.5, 1.0, n_arms)
    value[-1] = lift * value[:-1].max()
    return bandit(rng, [law(kind, r / p, t) for r, p, t in zip(value, prob, tail)], prob)


def mixed(
    rng: np.random.Generator, kinds: Sequence[str], n_arms: int, *, probs: Range, means: Range
) -> MAB:
    """Return arms of different laws, the kinds in turn."""
    prob = log_uniform(rng, *probs, n_arms)
    mean = log_uniform(rng, *means, n_arms)
    laws = []
    for k in range(n_arms):
        kind = kinds[k % len(kinds)]
        laws.append(law(kind, mean[k], log_uniform(rng, *KINDS[kind].tails)))
    return bandit(rng, laws, prob)


def signed(rng: np.random.Generator, n_arms: int, *, probs: Range, mean: float, sd: Range) -> MAB:
    """Return arms whose rewards may be negative: Gaussian around `mean`·U(−1, 1), each its sd."""
    means = mean * rng.uniform(-1.0, 1.0, n_arms)
    means[0] = mean * rng.uniform(0.3, 1.0)  # one arm that is worth playing
    sds = mean * log_uniform(rng, *sd, n_arms)
    laws = [Gaussian(float(m), float(s)) for m, s in zip(means, sds)]
    return bandit(rng, laws, log_uniform(rng, *probs, n_arms))


def gains_and_losses(rng: np.random.Generator, n_arms: int, *, scale: float) -> MAB:
    """Return arms that gain a large amount or lose one, each with probabilities of its own."""
    laws, probs = [], []
    for _ in range(n_arms):
        gain, loss = scale * rng.uniform(0.5, 2.0), scale * rng.uniform(0.3, 1.5)
        share = float(rng.uniform(0.45, 0.9))
        laws.append(Empirical((-loss, gain), weights=(1.0 - share, share)))
        probs.append(float(log_uniform(rng, 0.02, 0.2)))
    return bandit(rng, laws, probs)


@dataclass(frozen=True)
class SkewedMAB:
    """A generator of bandits with skewed or heavy-tailed rewards; means and p as in the paper.

    `low` and `high` are the range of what makes the tail: the standard deviation of the logarithms,
    or Pareto's index. Where they differ, every arm has its own.
    """

    kind: Literal["lognormal", "pareto"]
    low: float
    high: float
    probs: tuple[float, float] = (0.10, 0.35)
    n_arms: int = 10

    def instance(self, rng: np.random.Generator) -> MAB:
        """Draw an environment."""
        means = rng.uniform(1.0, 3.0, self.n_arms)
        probs = rng.uniform(*self.probs, self.n_arms)
        tails = rng.uniform(self.low, self.high, self.n_arms)
        return MAB([ZeroInflated(self.law(m, t), p) for m, t, p in zip(means, tails, probs)])

    def law(self, mean: float, tail: float) -> Any:
        """Return the law of non-zero rewards."""
        mean, tail = float(mean), float(tail)
        if self.kind == "lognormal":
            return LogNormal.from_mean(mean, tail)
        return Pareto(mean, tail)


__all__ = [
    "KINDS",
    "Magnitudes",
    "SkewedMAB",
    "bandit",
    "gains_and_losses",
    "half_silent",
    "law",
    "log_uniform",
    "mixed",
    "opposed",
    "scattered",
    "signed",
    "widest_best",
    "with_an_odd_one",
]
