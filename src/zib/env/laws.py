"""Laws of rewards: small immutable objects that can be sampled and know their own moments.

A *law* is the distribution of one number. `zib.env.ZeroInflated` turns any law into a reward that
is mostly zero. Laws draw with NumPy in blocks; how many numbers a block consumes from the stream
depends on its size, so the same stream cut into other blocks gives other (equally valid) draws.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from zib.core import validate as check
from zib.core.spec import positive, real
from zib.env.registry import Array, Categories, Kind, Named

KINDS = ("subgaussian", "subexponential")


class Law(Named, ABC):
    """The distribution of one number.

    A subclass declares its parameters as fields (or is a frozen dataclass): two laws with the same
    parameters are equal, a law can be a dictionary key and its ``repr`` rebuilds it. To write one,
    give `_draw`, `mean`, `variance` and `moment`; the sizes default to infinity, which means that
    there is none. A law of delays (`zib.env.Delayed`) also has `_cdf` and `_quantile`, on arrays.
    """

    entry: ClassVar[str] = "kind"
    known: ClassVar[dict[str, Callable[..., Any]]] = {}

    if TYPE_CHECKING:
        # Only declared: a property in the class would stand in the way of a field `mean`.
        @property
        def mean(self) -> float:
            """Return E X."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Make the subclass known by its name, also one that is a dataclass."""
        super().__init_subclass__(**kwargs)
        if not cls.__name__.startswith("_"):
            cls.known[cls.__name__] = cls

    def parameters(self) -> dict[str, Any]:
        """Return the keyword arguments that rebuild this law."""
        if is_dataclass(self):
            return {f.name: getattr(self, f.name) for f in fields(self) if f.init}
        return super().parameters()

    @abstractmethod
    def _draw(self, rng: np.random.Generator, n: int) -> Array:
        """Return `n` independent draws; `n` has been checked."""

    @property
    @abstractmethod
    def variance(self) -> float:
        """Return Var X, or inf."""

    @abstractmethod
    def moment(self, order: float) -> float:
        """Return E|X|^order (about zero, absolute), or inf."""

    def sample(self, rng: np.random.Generator, n: int) -> Array:
        """Return `n` independent draws as a float64 array."""
        return self._draw(rng, check.integer("n", n, 0))

    @property
    def n_categories(self) -> int:
        """How many kinds of draws there are, besides nothing: 1, but for a mixture."""
        return 1

    def _draw_categories(self, rng: np.random.Generator, n: int) -> tuple[Array, Categories]:
        """Return `n` draws, and of which kind each is: 1, 2, … or 0 for nothing."""
        return self._draw(rng, n), np.ones(n, dtype=np.int64)

    def sample_categories(self, rng: np.random.Generator, n: int) -> tuple[Array, Categories]:
        """Return the draws of `sample`, and of which kind each is: 1, 2, … or 0 for nothing."""
        return self._draw_categories(rng, check.integer("n", n, 0))

    @property
    def subgaussian_size(self) -> float:
        """Return a sigma with log E exp(s(X − E X)) <= s² sigma²/2 for every s; inf when none."""
        return math.inf

    @property
    def subexponential_size(self) -> float:
        """Return a lam with log E exp(s(X − E X)) <= s² lam²/2 for |s| <= 1/lam; inf when none."""
        return self.subgaussian_size

    def size(self, kind: Kind) -> float:
        """Return `subgaussian_size` or `subexponential_size`."""
        if check.choice("kind", kind, KINDS) == 0:
            return self.subgaussian_size
        return self.subexponential_size


def _order(order: float) -> float:
    return check.real("order", order, 0.0)


def _normal_absolute_moment(mean: float, sigma: float, order: float) -> float:
    # Integrates |mean + sigma z|^order against the normal density, split where the integrand has
    # its kink; beyond 40 standard deviations the density underflows.
    from scipy.integrate import quad

    def integrand(z: float) -> float:
        return math.exp(order * math.log(max(abs(mean + sigma * z), 1e-300)) - 0.5 * z * z)

    kink = -mean / sigma
    edges = sorted({-40.0, -8.0, 0.0, 8.0, 40.0, min(max(kink, -40.0), 40.0)})
    total = sum(
        quad(integrand, a, b, epsabs=0.0, epsrel=1e-11, limit=200)[0] for a, b in pairwise(edges)
    )
    return float(total / math.sqrt(2.0 * math.pi))


class Gaussian(Law, positional=2):
    """The normal law N(mean, sigma²).

    Examples
    --------
    >>> Gaussian(mean=2.0, sigma=0.5).variance
    0.25
    """

    mean: float = real()
    sigma: float = positive()

    def _draw(self, rng: np.random.Generator, n: int) -> Array:
        return rng.normal(self.mean, self.sigma, n)

    @property
    def variance(self) -> float:
        """Return Var X."""
        return self.sigma * self.sigma

    @property
    def subgaussian_size(self) -> float:
        """Return sigma, the smallest valid size."""
        return self.sigma

    def moment(self, order: float) -> float:
        """Return E|X|^order by quadrature."""
        return _normal_absolute_moment(self.mean, self.sigma, _order(order))


class GaussianMixture(Law, positional=3):
    """The even mixture of N(mean − offset, sigma²) and N(mean + offset, sigma²).

    Notes
    -----
    The noise is offset·ε + sigma·Z with a fair sign ε. A fair sign is sub-Gaussian with size
    exactly 1, so the smallest valid size of the mixture is sqrt(offset² + sigma²); it equals the
    standard deviation.
    """

    mean: float = real()
    sigma: float = positive()
    offset: float = real(low=0.0, default=1.0)

    def _draw(self, rng: np.random.Generator, n: int) -> Array:
        draws = rng.normal(self.mean - self.offset, self.sigma, n)
        draws += (2.0 * self.offset) * (rng.random(n) < 0.5)
        return draws

    @property
    def variance(self) -> float:
        """Return Var X = offset² + sigma²."""
        return self.offset * self.offset + self.sigma * self.sigma

    @property
    def subgaussian_size(self) -> float:
        """Return sqrt(offset² + sigma²), the smallest valid size."""
        return math.sqrt(self.variance)

    def moment(self, order: float) -> float:
        """Return E|X|^order by quadrature."""
        order = _order(order)
        low = _normal_absolute_moment(self.mean - self.offset, self.sigma, order)
        high = _normal_absolute_moment(self.mean + self.offset, self.sigma, order)
        return 0.5 * (low + high)


class Exponential(Law, positional=1):
    """The exponential law with the given mean.

    Notes
    -----
    Not sub-Gaussian. Its smallest sub-exponential size solves −log(1 − u) − u = ½ with
    u = mean/size: the right end s = 1/size of the range is the binding one.
    """

    mean: float = positive()

    def _draw(self, rng: np.random.Generator, n: int) -> Array:
        return rng.exponential(self.mean, n)

    def _cdf(self, x: Array) -> Array:
        return -np.expm1(-np.maximum(x, 0.0) / self.mean)

    def _quantile(self, level: Array) -> Array:
        return -self.mean * np.log1p(-level)

    @property
    def variance(self) -> float:
        """Return Var X = mean²."""
        return self.mean * self.mean

    @property
    def subexponential_size(self) -> float:
        """Return the smallest valid size, about 1.43 times the mean."""
        from zib.theory import exponential_subexponential_size

        return float(exponential_subexponential_size(self.mean))

    def moment(self, order: float) -> float:
        """Return E X^order = mean^order Γ(1 + order)."""
        return math.exp(_order(order) * math.log(self.mean) + math.lgamma(1.0 + order))


class Gamma(Law, positional=2):
    """The gamma law with the given mean and shape: mean·Gamma(shape)/shape.

    The larger the shape, the less it scatters: the standard deviation is mean/√shape. Shape 1 is
    the exponential law.

    Examples
    --------
    >>> Gamma(mean=6.0, shape=4.0).variance
    9.0
    """

    mean: float = positive()
    shape: float = positive()

    @property
    def scale(self) -> float:
        """Return mean/shape."""
        return self.mean / self.shape

    def _draw(self, rng: np.random.Generator, n: int) -> Array:
        return self.scale * rng.standard_gamma(self.shape, n)

    def _cdf(self, x: Array) -> Array:
        from scipy.special import gammainc

        return np.asarray(gammainc(self.shape, np.maximum(x, 0.0) / self.scale))

    def _quantile(self, level: Array) -> Array:
        from scipy.special import gammaincinv

        return np.asarray(self.scale * gammaincinv(self.shape, level))

    @property
    def variance(self) -> float:
        """Return Var X = mean²/shape."""
        return self.mean * self.scale

    @property
    def subexponential_size(self) -> float:
        """Return the smallest valid size."""
        from zib.theory import gamma_subexponential_size

        return float(gamma_subexponential_size(self.scale, self.shape))

    def moment(self, order: float) -> float:
        """Return E X^order = scale^order Γ(shape + order)/Γ(shape)."""
        order = _order(order)
        logs = math.lgamma(self.shape + order) - math.lgamma(self.shape)
        return _exp(order * math.log(self.scale) + logs)


class LogNormal(Law, positional=2):
    """The law of exp(Z) with Z ~ N(log_mean, log_sd²).

    Every moment is finite, yet E exp(s X) is infinite for each s > 0: there is no sub-Gaussian
    and no sub-exponential size.

    Examples
    --------
    >>> LogNormal.from_mean(mean=2.0, log_sd=0.5).mean
    2.0
    """

    log_mean: float = real(low=-700.0, high=700.0)
    log_sd: float = real(low=0.0, high=26.0, closed="right")

    @classmethod
    def from_mean(cls, mean: float, log_sd: float) -> LogNormal:
        """Return the log-normal law with this mean (of X itself) and this log_sd."""
        mean = check.real("mean", mean, 0.0, closed="neither")
        log_sd = check.real("log_sd", log_sd, 0.0, 26.0, closed="right")
        return cls(log_mean=math.log(mean) - 0.5 * log_sd * log_sd, log_sd=log_sd)

    def _draw(self, rng: np.random.Generator, n: int) -> Array:
        return rng.lognormal(self.log_mean, self.log_sd, n)

    def _cdf(self, x: Array) -> Array:
        from scipy.special import ndtr

        with np.errstate(divide="ignore"):
            return np.asarray(ndtr((np.log(np.maximum(x, 0.0)) - self.log_mean) / self.log_sd))

    def _quantile(self, level: Array) -> Array:
        from scipy.special import ndtri

        return np.asarray(np.exp(self.log_mean + self.log_sd * ndtri(level)))

    @property
    def mean(self) -> float:
        """Return E X = exp(log_mean + log_sd²/2)."""
        return self.moment(1.0)

    @property
    def variance(self) -> float:
        """Return Var X."""
        square = self.log_sd * self.log_sd
        return _exp(square + 2.0 * self.log_mean + math.log(math.expm1(square)))

    def moment(self, order: float) -> float:
        """Return E X^order = exp(order·log_mean + order²·log_sd²/2)."""
        order = _order(order)
        return _exp(order * self.log_mean + 0.5 * (order * self.log_sd) ** 2)


def _exp(x: float) -> float:
    return math.exp(x) if x < 709.0 else math.inf


class StudentT(Law, positional=3):
    """The law of mean + scale·t with t Student with `df` > 1 degrees of freedom.

    E|X|^q is finite exactly for q < df: with df in (1, 2] only moments below the second exist.
    """

    mean: float = real()
    scale: float = positive()
    df: float = real(low=1.0, closed="neither")

    def _draw(self, rng: np.random.Generator, n: int) -> Array:
        return self.mean + self.scale * rng.standard_t(self.df, n)

    @property
    def variance(self) -> float:
        """Return scale²·df/(df − 2), or inf for df <= 2."""
        return self.scale**2 * self.df / (self.df - 2.0) if self.df > 2.0 else math.inf

    def moment(self, order: float) -> float:
        """Return E|X|^order: closed form for mean zero, else quadrature; inf for order >= df."""
        order = _order(order)
        if order >= self.df:
            return math.inf
        df = self.df
        if self.mean == 0.0:
            log_value = (
                order * math.log(self.scale)
                + 0.5 * order * math.log(df)
                + math.lgamma(0.5 * (order + 1.0))
                + math.lgamma(0.5 * (df - order))
                - 0.5 * math.log(math.pi)
                - math.lgamma(0.5 * df)
            )
            return math.exp(log_value)
        from scipy.integrate import quad

        log_constant = math.lgamma(0.5 * (df + 1.0)) - math.lgamma(0.5 * df)
        log_constant -= 0.5 * math.log(df * math.pi)

        def integrand(v: float) -> float:
            # t = sinh(v) turns both power tails into exponential ones.
            t = math.sinh(v)
            size = max(abs(self.mean + self.scale * t), 1e-300)
            log_density = log_constant - 0.5 * (df + 1.0) * math.log1p(t * t / df)
            return math.exp(order * math.log(size) + log_density) * math.cosh(v)

        kink = math.asinh(-self.mean / self.scale)
        reach = min(300.0, 40.0 / (df - order) + abs(kink) + 10.0)
        edges = sorted({-reach, -reach / 8, kink, 0.0, reach / 8, reach})
        pieces = pairwise(edges)
        return float(
            sum(quad(integrand, a, b, epsabs=0.0, epsrel=1e-10, limit=400)[0] for a, b in pieces)
        )


class Pareto(Law, positional=2):
    """The Pareto law on [scale, ∞) with density shape·scale^shape/x^(shape+1), given its mean.

    The mean fixes scale = mean·(shape − 1)/shape. E X^q is finite exactly for q < shape.
    """

    mean: float = positive()
    shape: float = real(low=1.0, closed="neither")

    @property
    def scale(self) -> float:
        """Return the smallest possible value."""
        return self.mean * (self.shape - 1.0) / self.shape

    def _draw(self, rng: np.random.Generator, n: int) -> Array:
        return self.scale * (1.0 + rng.pareto(self.shape, n))

    @property
    def variance(self) -> float:
        """Return Var X, or inf for shape <= 2."""
        a = self.shape
        return self.scale**2 * a / ((a - 1.0) ** 2 * (a - 2.0)) if a > 2.0 else math.inf

    def moment(self, order: float) -> float:
        """Return E X^order = shape·scale^order/(shape − order); inf for order >= shape."""
        order = _order(order)
        if order >= self.shape:
            return math.inf
        return self.shape * math.exp(order * math.log(self.scale)) / (self.shape - order)


class Lomax(Law, positional=2):
    """Pareto's tail from zero on: P(X > x) = (1 + x/scale)^(−shape), given its mean.

    The mean fixes scale = mean·(shape − 1). E X^q is finite exactly for q < shape.

    Examples
    --------
    >>> Lomax(mean=2.0, shape=3.0).variance
    12.0
    """

    mean: float = positive()
    shape: float = real(low=1.0, closed="neither")

    @property
    def scale(self) -> float:
        """Return mean·(shape − 1)."""
        return self.mean * (self.shape - 1.0)

    def _draw(self, rng: np.random.Generator, n: int) -> Array:
        return self.scale * rng.pareto(self.shape, n)

    def _cdf(self, x: Array) -> Array:
        return -np.expm1(-self.shape * np.log1p(np.maximum(x, 0.0) / self.scale))

    def _quantile(self, level: Array) -> Array:
        return self.scale * np.expm1(-np.log1p(-level) / self.shape)

    @property
    def variance(self) -> float:
        """Return Var X = mean²·shape/(shape − 2), or inf for shape <= 2."""
        a = self.shape
        return self.mean**2 * a / (a - 2.0) if a > 2.0 else math.inf

    def moment(self, order: float) -> float:
        """Return E X^order = scale^order·Γ(1 + order)Γ(shape − order)/Γ(shape), or inf."""
        order, a = _order(order), self.shape
        if order >= a:
            return math.inf
        logs = math.lgamma(1.0 + order) + math.lgamma(a - order) - math.lgamma(a)
        return _exp(order * math.log(self.scale) + logs)


class Uniform(Law, positional=2):
    """The uniform law on [low, high].

    Examples
    --------
    >>> Uniform(0.0, 6.0).variance
    3.0
    """

    low: float = real()
    high: float = real()

    def check(self) -> None:
        """Raise unless low < high."""
        check.real("high", self.high, self.low, closed="neither")

    def _draw(self, rng: np.random.Generator, n: int) -> Array:
        return rng.uniform(self.low, self.high, n)

    def _cdf(self, x: Array) -> Array:
        return np.clip((x - self.low) / (self.high - self.low), 0.0, 1.0)

    def _quantile(self, level: Array) -> Array:
        return self.low + (self.high - self.low) * level

    @property
    def mean(self) -> float:
        """Return (low + high)/2."""
        return 0.5 * (self.low + self.high)

    @property
    def variance(self) -> float:
        """Return (high − low)²/12."""
        return (self.high - self.low) ** 2 / 12.0

    @property
    def subgaussian_size(self) -> float:
        """Return the standard deviation, which is the smallest valid size."""
        return math.sqrt(self.variance)

    def moment(self, order: float) -> float:
        """Return E|X|^order."""
        power = _order(order) + 1.0
        ends = [math.copysign(abs(x) ** power, x) for x in (self.low, self.high)]
        return (ends[1] - ends[0]) / (power * (self.high - self.low))


class Constant(Law, positional=1):
    """The law that always gives the same value.

    Parameters
    ----------
    value
        The value.
    """

    value: float = real()

    def _draw(self, rng: np.random.Generator, n: int) -> Array:
        return np.full(n, self.value)

    def _cdf(self, x: Array) -> Array:
        return np.asarray(x >= self.value, dtype=np.float64)

    def _quantile(self, level: Array) -> Array:
        return np.full(np.shape(level), self.value)

    @property
    def mean(self) -> float:
        """Return the value."""
        return self.value

    @property
    def variance(self) -> float:
        """Return 0."""
        return 0.0

    def moment(self, order: float) -> float:
        """Return |value|^order."""
        return float(abs(self.value) ** _order(order))

    @property
    def subgaussian_size(self) -> float:
        """Return 0."""
        return 0.0
