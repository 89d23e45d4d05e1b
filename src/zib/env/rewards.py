"""Laws of rewards: small immutable objects that can be sampled and know their own moments.

A *law* is the distribution of one number. `ZeroInflated` turns any law into a reward that is
mostly zero. Laws draw with NumPy in blocks; how many numbers a block consumes from the stream
depends on its size, so the same stream cut into other blocks gives other (equally valid) draws.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from zib._validate import InvalidParameterError, integer, real, vector

Kind = Literal["subgaussian", "subexponential"]
Array = NDArray[np.float64]

_LAWS: dict[str, type[Law]] = {}


class Law(ABC):
    """The distribution of one number.

    A subclass is a frozen dataclass: two laws with the same parameters are equal, a law can be a
    dictionary key and its ``repr`` rebuilds it. To write one, give `_draw`, `mean`, `variance` and
    `moment`; the sizes default to infinity, which means that there is none.
    """

    if TYPE_CHECKING:
        # Only declared: a property in the class would become the default of a field `mean`.
        @property
        def mean(self) -> float:
            """Return E X."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Make the subclass known to `law_from_dict` by its name."""
        super().__init_subclass__(**kwargs)
        _LAWS[cls.__name__] = cls

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
        return self._draw(rng, integer("n", n, 0))

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
        return self.subgaussian_size if _check_kind(kind) == 0 else self.subexponential_size

    def parameters(self) -> dict[str, Any]:
        """Return the keyword arguments that rebuild this law."""
        return {f.name: getattr(self, f.name) for f in fields(cast("Any", self)) if f.init}

    def to_dict(self) -> dict[str, Any]:
        """Return the law as numbers, strings, lists and dicts only; see `law_from_dict`."""
        return {"kind": type(self).__name__} | {k: _plain(v) for k, v in self.parameters().items()}


def law_from_dict(data: Mapping[str, Any]) -> Law:
    """Return the law that `Law.to_dict` described.

    Examples
    --------
    >>> law_from_dict({"kind": "Gaussian", "mean": 1.0, "sigma": 2.0})
    Gaussian(mean=1.0, sigma=2.0)
    """
    arguments = dict(data)
    name = arguments.pop("kind", None)
    if not isinstance(name, str) or name not in _LAWS:
        known = ", ".join(sorted(_LAWS))
        raise InvalidParameterError(f"`kind` must be one of {known}; got {name!r}")
    try:
        return _LAWS[name](
            **{k: law_from_dict(v) if isinstance(v, Mapping) else v for k, v in arguments.items()}
        )
    except TypeError:
        raise InvalidParameterError(
            f"`data` must hold the parameters of {name}; got {sorted(arguments)}"
        ) from None


def _plain(value: Any) -> Any:
    if isinstance(value, Law):
        return value.to_dict()
    return list(value) if isinstance(value, tuple) else value


def _check_kind(kind: str) -> int:
    if kind not in ("subgaussian", "subexponential"):
        raise InvalidParameterError(
            f"`kind` must be one of 'subgaussian', 'subexponential'; got {kind!r}"
        )
    return 0 if kind == "subgaussian" else 1


def _order(order: float) -> float:
    return real("order", order, 0.0)


def _set(law: Law, name: str, value: Any) -> None:
    object.__setattr__(law, name, value)


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


@dataclass(frozen=True)
class Gaussian(Law):
    """The normal law N(mean, sigma²).

    Examples
    --------
    >>> Gaussian(mean=2.0, sigma=0.5).variance
    0.25
    """

    mean: float
    sigma: float

    def __post_init__(self) -> None:
        _set(self, "mean", real("mean", self.mean))
        _set(self, "sigma", real("sigma", self.sigma, 0.0, closed="neither"))

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


@dataclass(frozen=True)
class GaussianMixture(Law):
    """The even mixture of N(mean − offset, sigma²) and N(mean + offset, sigma²).

    Notes
    -----
    The noise is offset·ε + sigma·Z with a fair sign ε. A fair sign is sub-Gaussian with size
    exactly 1, so the smallest valid size of the mixture is sqrt(offset² + sigma²); it equals the
    standard deviation.
    """

    mean: float
    sigma: float
    offset: float = 1.0

    def __post_init__(self) -> None:
        _set(self, "mean", real("mean", self.mean))
        _set(self, "sigma", real("sigma", self.sigma, 0.0, closed="neither"))
        _set(self, "offset", real("offset", self.offset, 0.0))

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


@dataclass(frozen=True)
class Exponential(Law):
    """The exponential law with the given mean.

    Notes
    -----
    Not sub-Gaussian. Its smallest sub-exponential size solves −log(1 − u) − u = ½ with
    u = mean/size: the right end s = 1/size of the range is the binding one.
    """

    mean: float

    def __post_init__(self) -> None:
        _set(self, "mean", real("mean", self.mean, 0.0, closed="neither"))

    def _draw(self, rng: np.random.Generator, n: int) -> Array:
        return rng.exponential(self.mean, n)

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


@dataclass(frozen=True)
class LogNormal(Law):
    """The law of exp(Z) with Z ~ N(log_mean, log_sd²).

    Every moment is finite, yet E exp(s X) is infinite for each s > 0: there is no sub-Gaussian
    and no sub-exponential size.

    Examples
    --------
    >>> LogNormal.from_mean(mean=2.0, log_sd=0.5).mean
    2.0
    """

    log_mean: float
    log_sd: float

    def __post_init__(self) -> None:
        _set(self, "log_mean", real("log_mean", self.log_mean, -700.0, 700.0))
        _set(self, "log_sd", real("log_sd", self.log_sd, 0.0, 26.0, closed="right"))

    @classmethod
    def from_mean(cls, mean: float, log_sd: float) -> LogNormal:
        """Return the log-normal law with this mean (of X itself) and this log_sd."""
        mean = real("mean", mean, 0.0, closed="neither")
        log_sd = real("log_sd", log_sd, 0.0, 26.0, closed="right")
        return cls(log_mean=math.log(mean) - 0.5 * log_sd * log_sd, log_sd=log_sd)

    def _draw(self, rng: np.random.Generator, n: int) -> Array:
        return rng.lognormal(self.log_mean, self.log_sd, n)

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


@dataclass(frozen=True)
class StudentT(Law):
    """The law of mean + scale·t with t Student with `df` > 1 degrees of freedom.

    E|X|^q is finite exactly for q < df: with df in (1, 2] only moments below the second exist.
    """

    mean: float
    scale: float
    df: float

    def __post_init__(self) -> None:
        _set(self, "mean", real("mean", self.mean))
        _set(self, "scale", real("scale", self.scale, 0.0, closed="neither"))
        _set(self, "df", real("df", self.df, 1.0, closed="neither"))

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


@dataclass(frozen=True)
class Pareto(Law):
    """The Pareto law on [scale, ∞) with density shape·scale^shape/x^(shape+1), given its mean.

    The mean fixes scale = mean·(shape − 1)/shape. E X^q is finite exactly for q < shape.
    """

    mean: float
    shape: float

    def __post_init__(self) -> None:
        _set(self, "mean", real("mean", self.mean, 0.0, closed="neither"))
        _set(self, "shape", real("shape", self.shape, 1.0, closed="neither"))

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


@dataclass(frozen=True)
class QuantileTable(Law):
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

    levels: tuple[float, ...]
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        levels = vector("levels", self.levels, 0.0, 1.0)
        values = vector("values", self.values)
        if levels.size < 2 or levels[0] != 0.0 or levels[-1] != 1.0 or np.any(np.diff(levels) <= 0):
            raise InvalidParameterError(
                f"`levels` must increase strictly from 0 to 1; got {levels.tolist()[:6]}"
            )
        if values.size != levels.size or np.any(np.diff(values) <= 0):
            raise InvalidParameterError(
                f"`values` must be {levels.size} strictly increasing numbers; "
                f"got {values.tolist()[:6]}"
            )
        _set(self, "levels", tuple(levels.tolist()))
        _set(self, "values", tuple(values.tolist()))

    def __repr__(self) -> str:
        if len(self.levels) <= 6:
            return f"QuantileTable(levels={self.levels}, values={self.values})"
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

    def quantile(self, level: float) -> float:
        """Return the quantile at `level`."""
        levels, values = self._arrays
        return float(np.interp(real("level", level, 0.0, 1.0), levels, values))

    def _expect(self, function: Callable[[Array], Array]) -> float:
        # Five Gauss points inside each uniform piece.
        levels, values = self._arrays
        nodes, weights = np.polynomial.legendre.leggauss(5)
        centre, half = (values[1:] + values[:-1]) / 2, np.diff(values) / 2
        inside = function(centre[:, None] + half[:, None] * nodes)
        return float(np.diff(levels) @ (inside @ (weights / 2)))

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

    def log_mgf(self, s: float) -> float:
        """Return log E exp(s(X − E X))."""
        mean, variance = self._first_two
        if abs(s) * (self.values[-1] - self.values[0]) < 1e-4:
            return 0.5 * s * s * variance
        top = max(s * (self.values[-1] - mean), s * (self.values[0] - mean))
        return top + math.log(self._expect(lambda x: np.exp(s * (x - mean) - top)))

    def subweibull_size(self, theta: float) -> float:
        """Return the smallest C with E exp(|X − E X|^theta/C^theta) <= 2."""
        theta = real("theta", theta, 0.0, closed="neither")
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

    @cached_property
    def _size(self) -> float:
        return _smallest_size(self.log_mgf, self.values[-1] - self.values[0], self.variance)

    @property
    def subgaussian_size(self) -> float:
        """Return the smallest valid size."""
        return self._size


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


@dataclass(frozen=True)
class ZeroInflated(Law):
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
    >>> reward = ZeroInflated(Gaussian(mean=2.0, sigma=0.5), prob=0.25)
    >>> reward.mean, reward.variance
    (0.5, 0.8125)
    """

    law: Law
    prob: float
    inflated: float = 0.0
    _zero: bool = field(init=False, repr=False, compare=False, default=True)

    def __post_init__(self) -> None:
        if not isinstance(self.law, Law):
            raise InvalidParameterError(f"`law` must be a law such as Gaussian; got {self.law!r}")
        _set(self, "prob", real("prob", self.prob, 0.0, 1.0))
        _set(self, "inflated", real("inflated", self.inflated))
        _set(self, "_zero", self.inflated == 0.0)

    def _draw(self, rng: np.random.Generator, n: int) -> Array:
        paid = np.flatnonzero(rng.random(n) < self.prob)
        out = np.zeros(n) if self._zero else np.full(n, self.inflated)
        out[paid] = self.law._draw(rng, paid.size)
        return out

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
