"""Laws made of other laws or of numbers: zero inflation, mixtures, quantile tables, data."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any

import numpy as np

from zib.core import validate as check
from zib.core.spec import real
from zib.core.validate import InvalidParameterError
from zib.env.laws import Law, _order
from zib.env.registry import Array, Categories, custom, instance_of, maybe, sequence


def several_laws(name: str, value: Any) -> tuple[Law, ...]:
    """Return `value` as a tuple of at least one law, or raise."""
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise InvalidParameterError(
            f"`{name}` must be a sequence of laws; got {check.shown(value)}"
        )
    laws = tuple(value)
    if not laws:
        raise InvalidParameterError(f"`{name}` must name at least one law; got none")
    for k, law in enumerate(laws):
        if not isinstance(law, Law):
            raise InvalidParameterError(
                f"`{name}` must hold laws such as Gaussian; got {check.shown(law)} at position {k}"
            )
    return laws


class ZeroInflated(Law, positional=3):
    """A reward that is `inflated` with probability 1 − prob and a draw of `law` otherwise.

    Parameters
    ----------
    law
        The law of the reward given that it is not the inflated value.
    prob
        Probability of drawing from `law`, in [0, 1].
    inflated
        The value taken the rest of the time; zero unless said otherwise.

    Notes
    -----
    R = inflated + Y·(X − inflated) with Y ~ Bernoulli(prob) independent of X, so with
    m = E X − inflated: E R = inflated + prob·m and Var R = prob·Var X + prob(1 − prob)·m².
    A block of n draws takes n uniforms and then one draw of X for each of the Y = 1 among them.
    The sizes are those of the product lemma: made from a size of X, they are valid for every X of
    that size. For Gaussian X they are the smallest; so they are for a `QuantileTable`, whose
    moment generating function is known.

    Examples
    --------
    >>> from zib.env import Gaussian
    >>> reward = ZeroInflated(Gaussian(mean=2.0, sigma=0.5), prob=0.25)
    >>> reward.mean, reward.variance
    (0.5, 0.8125)
    """

    law: Law = instance_of(Law, "a law such as Gaussian")
    prob: float = real(low=0.0, high=1.0)
    inflated: float = real(default=0.0)

    def _draw(self, rng: np.random.Generator, n: int) -> Array:
        return self._draw_categories(rng, n)[0]

    def _draw_categories(self, rng: np.random.Generator, n: int) -> tuple[Array, Categories]:
        paid = np.flatnonzero(rng.random(n) < self.prob)
        out = np.zeros(n) if self.inflated == 0.0 else np.full(n, self.inflated)
        categories = np.zeros(n, dtype=np.int64)
        out[paid], categories[paid] = self.law._draw_categories(rng, paid.size)
        return out, categories

    @property
    def n_categories(self) -> int:
        """How many kinds of rewards there are besides nothing."""
        return self.law.n_categories

    @property
    def magnitude(self) -> float:
        """Return E X, the mean of a reward that is not the inflated value."""
        return self.law.mean

    @property
    def mean(self) -> float:
        """Return E R."""
        return self.inflated + self.prob * (self.law.mean - self.inflated)

    @property
    def variance(self) -> float:
        """Return Var R, or inf."""
        if self.prob == 0.0:
            return 0.0
        shift = self.law.mean - self.inflated
        return self.prob * self.law.variance + self.prob * (1.0 - self.prob) * shift * shift

    def moment(self, order: float) -> float:
        """Return E|R|^order, or inf."""
        order = _order(order)
        rest = (1.0 - self.prob) * abs(self.inflated) ** order
        paid = self.prob * self.law.moment(order) if self.prob > 0.0 else 0.0
        return float(rest + paid)

    @property
    def subgaussian_size(self) -> float:
        """Return sqrt(tau²) of `zib.theory.product_variance_proxy`; inf when X has no size."""
        sigma = self.law.subgaussian_size
        if not math.isfinite(sigma):
            return math.inf if self.prob > 0.0 else 0.0
        if isinstance(self.law, QuantileTable) and self.prob > 0.0:
            return self._table_size
        from zib.theory import product_variance_proxy

        shift = self.law.mean - self.inflated
        return math.sqrt(float(product_variance_proxy(shift, self.prob, sigma)))

    @property
    def subexponential_size(self) -> float:
        """Return alpha of `zib.theory.product_subexponential_size`; inf when X has no size."""
        lam = self.law.subexponential_size
        if not math.isfinite(lam):
            return math.inf if self.prob > 0.0 else 0.0
        from zib.theory import product_subexponential_size

        shift = self.law.mean - self.inflated
        return float(product_subexponential_size(shift, self.prob, lam))

    @cached_property
    def _table_size(self) -> float:
        law = self.law
        assert isinstance(law, QuantileTable)
        shift = law.mean - self.inflated

        def log_mgf(s: float) -> float:
            # log(1 − p + p E exp(s(X − c))) − s p (E X − c), c the inflated value
            paid = math.log(self.prob) + s * shift + law.log_mgf(s)
            rest = math.log1p(-self.prob) if self.prob < 1.0 else -math.inf
            top = max(paid, rest)
            total = top + math.log(math.exp(paid - top) + math.exp(rest - top))
            return total - s * self.prob * shift

        ends = (law.values[0], law.values[-1], self.inflated)
        return _smallest_size(log_mgf, max(ends) - min(ends), self.variance)


class Mixture(Law, positional=2):
    """A draw of one of several laws, picked with given probabilities.

    Parameters
    ----------
    laws
        The laws, one per outcome.
    probs
        Probability of each; they sum to 1.

    Notes
    -----
    A block of n draws takes n uniforms and then the draws of each law in turn. The sizes are valid,
    not the smallest: the largest size of a law and half the range of the means, added as variances
    (Hoeffding's lemma for which law it is).

    Examples
    --------
    >>> from zib.env import Constant, Gaussian
    >>> reward = Mixture([Constant(0.0), Gaussian(1.0, 0.5), Constant(20.0)], [0.9, 0.08, 0.02])
    >>> round(reward.mean, 6)
    0.48
    """

    laws: tuple[Law, ...] = custom(several_laws, allowed="laws")
    probs: tuple[float, ...] = sequence(0.0, 1.0)

    def check(self) -> None:
        """Raise unless there is one probability per law, and they sum to 1."""
        if len(self.probs) != len(self.laws):
            raise InvalidParameterError(
                f"`probs` must have one entry per law ({len(self.laws)}); got {len(self.probs)}"
            )
        total = float(np.sum(self.probs))
        if abs(total - 1.0) > 1e-9:
            raise InvalidParameterError(f"`probs` must sum to 1; got {check.shown(total)}")

    def _draw(self, rng: np.random.Generator, n: int) -> Array:
        return self._draw_categories(rng, n)[0]

    def _draw_categories(self, rng: np.random.Generator, n: int) -> tuple[Array, Categories]:
        ends = np.cumsum(self.probs)
        ends[-1] = math.inf  # rounding must not leave a gap at the top
        which = np.searchsorted(ends, rng.random(n), side="right")
        out = np.empty(n)
        for j, law in enumerate(self.laws):
            places = np.flatnonzero(which == j)
            out[places] = law._draw(rng, places.size)
        return out, which + 1

    @property
    def n_categories(self) -> int:
        """How many laws there are."""
        return len(self.laws)

    def _possible(self) -> list[tuple[float, Law]]:
        return [(p, law) for p, law in zip(self.probs, self.laws, strict=True) if p > 0.0]

    @property
    def mean(self) -> float:
        """Return E R."""
        return math.fsum(p * law.mean for p, law in self._possible())

    @property
    def variance(self) -> float:
        """Return Var R, or inf."""
        mean = self.mean
        return math.fsum(p * (law.variance + (law.mean - mean) ** 2) for p, law in self._possible())

    def moment(self, order: float) -> float:
        """Return E|R|^order, or inf."""
        order = _order(order)
        return math.fsum(p * law.moment(order) for p, law in self._possible())

    def _size(self, sizes: list[float]) -> float:
        means = [law.mean for _, law in self._possible()]
        return math.hypot(max(sizes), 0.5 * (max(means) - min(means)))

    @property
    def subgaussian_size(self) -> float:
        """Return a valid size; inf when a law has none."""
        return self._size([law.subgaussian_size for _, law in self._possible()])

    @property
    def subexponential_size(self) -> float:
        """Return a valid size; inf when a law has none."""
        return self._size([law.subexponential_size for _, law in self._possible()])


class _Bounded(Law):
    """A law on an interval: moments and the smallest size come from expectations."""

    values: tuple[float, ...]

    def _expect(self, function: Callable[[Array], Array]) -> float:
        """Return E function(X)."""
        raise NotImplementedError

    def log_mgf(self, s: float) -> float:
        """Return log E exp(s(X − E X))."""
        raise NotImplementedError

    @cached_property
    def _first_two(self) -> tuple[float, float]:
        mean = self._expect(lambda x: x)
        return mean, self._expect(lambda x: (x - mean) ** 2)

    @property
    def mean(self) -> float:
        """Return E X."""
        return self._first_two[0]

    @property
    def variance(self) -> float:
        """Return Var X."""
        return self._first_two[1]

    def moment(self, order: float) -> float:
        """Return E|X|^order."""
        order = _order(order)
        return self._expect(lambda x: np.abs(x) ** order)

    @cached_property
    def _size(self) -> float:
        reach = self.values[-1] - self.values[0]
        return _smallest_size(self.log_mgf, reach, self.variance) if reach > 0.0 else 0.0

    @property
    def subgaussian_size(self) -> float:
        """Return the smallest valid size (the law is bounded)."""
        return self._size


class QuantileTable(_Bounded, positional=2):
    """A continuous bounded law given by a piecewise linear quantile function.

    Parameters
    ----------
    levels
        Increasing probabilities from 0 to 1.
    values
        The quantiles at these levels, increasing.

    Notes
    -----
    Between two neighbouring quantiles the law is uniform, so all moments are exact sums. Bounded,
    hence sub-Gaussian; the smallest size is found by maximising 2·log E exp(s(X − E X))/s².
    """

    levels: tuple[float, ...] = sequence(0.0, 1.0)
    values: tuple[float, ...] = sequence()

    def check(self) -> None:
        """Raise unless both increase, and levels go from 0 to 1."""
        levels, values = self._arrays
        if levels.size < 2 or levels[0] != 0.0 or levels[-1] != 1.0 or np.any(np.diff(levels) <= 0):
            raise InvalidParameterError(
                f"`levels` must increase strictly from 0 to 1; got {levels.tolist()[:6]}"
            )
        if values.size != levels.size or np.any(np.diff(values) <= 0):
            raise InvalidParameterError(
                f"`values` must be {levels.size} strictly increasing numbers; "
                f"got {values.tolist()[:6]}"
            )

    def __repr__(self) -> str:
        if len(self.levels) <= 6:
            return super().__repr__()
        return (
            f"<QuantileTable of {len(self.levels)} quantiles from {self.values[0]:.4g} "
            f"to {self.values[-1]:.4g}>"
        )

    @cached_property
    def _arrays(self) -> tuple[Array, Array]:
        return np.array(self.levels), np.array(self.values)

    def _draw(self, rng: np.random.Generator, n: int) -> Array:
        levels, values = self._arrays
        return np.interp(rng.random(n), levels, values)

    def _cdf(self, x: Array) -> Array:
        levels, values = self._arrays
        return np.interp(x, values, levels)

    def _quantile(self, level: Array) -> Array:
        levels, values = self._arrays
        return np.interp(level, levels, values)

    def quantile(self, level: float) -> float:
        """Return the quantile at `level`."""
        levels, values = self._arrays
        return float(np.interp(check.real("level", level, 0.0, 1.0), levels, values))

    def _expect(self, function: Callable[[Array], Array]) -> float:
        # Five Gauss points inside each uniform piece.
        levels, values = self._arrays
        nodes, weights = np.polynomial.legendre.leggauss(5)
        centre, half = (values[1:] + values[:-1]) / 2, np.diff(values) / 2
        inside = function(centre[:, None] + half[:, None] * nodes)
        return float(np.diff(levels) @ (inside @ (weights / 2)))

    def log_mgf(self, s: float) -> float:
        """Return log E exp(s(X − E X))."""
        mean, variance = self._first_two
        if abs(s) * (self.values[-1] - self.values[0]) < 1e-4:
            return 0.5 * s * s * variance
        top = max(s * (self.values[-1] - mean), s * (self.values[0] - mean))
        return top + math.log(self._expect(lambda x: np.exp(s * (x - mean) - top)))

    def subweibull_size(self, theta: float) -> float:
        """Return the smallest C with E exp(|X − E X|^theta/C^theta) <= 2."""
        theta = check.real("theta", theta, 0.0, closed="neither")
        mean = self.mean
        reach = max(self.values[-1] - mean, mean - self.values[0])

        def excess(size: float) -> float:
            return self._expect(lambda x: np.exp((np.abs(x - mean) / size) ** theta)) - 2.0

        # At C = reach/(log 2)^(1/theta) every term is at most 2; the exponent is capped below 700.
        high = reach * math.exp(-math.log(math.log(2.0)) / theta)
        low = reach * math.exp(-math.log(700.0) / theta)
        for _ in range(100):
            middle = math.sqrt(low * high)
            low, high = (middle, high) if excess(middle) > 0.0 else (low, middle)
        return high


def _smallest_size(log_mgf: Callable[[float], float], reach: float, variance: float) -> float:
    """Return the square root of the largest 2·log_mgf(s)/s², for a law on an interval `reach` wide.

    For |s| beyond 40/reach the bound 2·log_mgf(s)/s² <= 2·reach/|s| is below any variance proxy
    found before, except for laws much narrower than their range; the grid covers 400/reach.
    """
    from scipy.optimize import minimize_scalar

    def negative(s: float) -> float:
        return -2.0 * log_mgf(s) / s**2

    half = np.geomspace(1e-2, 400.0, 120)
    grid = np.concatenate([-half[::-1], half]) / reach
    values = [negative(float(s)) for s in grid]
    at = int(np.argmin(values))
    low, high = float(grid[max(at - 1, 0)]), float(grid[min(at + 1, grid.size - 1)])
    if low * high > 0.0:
        found = minimize_scalar(negative, bounds=(low, high), method="bounded")
        values.append(float(found.fun))
    return math.sqrt(max(-min(values), variance))


class Empirical(_Bounded, positional=2):
    """The law that puts weights on finitely many values: the bootstrap's law.

    Parameters
    ----------
    values
        The numbers observed; repetitions are joined.
    weights
        How often each counts, up to a common factor; all alike by default.

    Examples
    --------
    >>> round(Empirical([1.0, 3.0, 3.0]).mean, 6)
    2.333333
    >>> Empirical([1.0, 3.0], weights=[3.0, 1.0]).mean
    1.5
    """

    values: tuple[float, ...] = sequence()
    weights: tuple[float, ...] | None = maybe(sequence(0.0, closed="right"), default=None)

    def check(self) -> None:
        """Join repetitions."""
        values = np.array(self.values)
        weights = np.ones(values.size) if self.weights is None else np.array(self.weights)
        if weights.size != values.size:
            raise InvalidParameterError(
                f"`weights` must have one entry per value ({values.size}); got {weights.size}"
            )
        kept, place = np.unique(values + 0.0, return_inverse=True)
        total = np.bincount(place, weights)
        self._set(values=tuple(kept.tolist()), weights=tuple(total.tolist()))

    def __repr__(self) -> str:
        if len(self.values) <= 6:
            return super().__repr__()
        digest = hashlib.sha256(np.concatenate(self._arrays).tobytes()).hexdigest()[:12]
        return (
            f"<Empirical of {len(self.values)} values from {self.values[0]:.4g} "
            f"to {self.values[-1]:.4g}, {digest}>"
        )

    @cached_property
    def _arrays(self) -> tuple[Array, Array]:
        weights = np.array(self.weights)
        return np.array(self.values), weights / weights.sum()

    @cached_property
    def _cumulative(self) -> Array:
        cumulative = np.cumsum(self._arrays[1])
        cumulative[-1] = 1.0  # no uniform number lies beyond the last value
        return cumulative

    def _draw(self, rng: np.random.Generator, n: int) -> Array:
        place = np.searchsorted(self._cumulative, rng.random(n), side="right")
        return self._arrays[0][place]

    def _expect(self, function: Callable[[Array], Array]) -> float:
        values, weights = self._arrays
        return float(weights @ function(values))

    def quantile(self, level: float) -> float:
        """Return the smallest value with at least this share of the weight up to it."""
        level = check.real("level", level, 0.0, 1.0)
        place = int(np.searchsorted(self._cumulative, level, side="left"))
        return self.values[min(place, len(self.values) - 1)]

    def log_mgf(self, s: float) -> float:
        """Return log E exp(s(X − E X))."""
        values, weights = self._arrays
        exponent = s * (values - self.mean)
        top = float(exponent.max())
        return top + math.log(float(weights @ np.exp(exponent - top)))
