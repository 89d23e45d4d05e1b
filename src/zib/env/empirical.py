"""`Empirical`, the law of resampling numbers that were observed."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from zib.core.validate import InvalidParameterError, real, vector
from zib.env.inflated import _smallest_size
from zib.env.rewards import Array, Law, _order, _set


@dataclass(frozen=True, repr=False)
class Empirical(Law):
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

    values: tuple[float, ...]
    weights: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        values = vector("values", _listed(self.values))
        weights = np.ones(values.size)
        if self.weights is not None:
            weights = vector("weights", _listed(self.weights), 0.0, closed="right")
        if weights.size != values.size:
            raise InvalidParameterError(
                f"`weights` must have one entry per value ({values.size}); got {weights.size}"
            )
        kept, place = np.unique(values + 0.0, return_inverse=True)
        total = np.bincount(place, weights)
        _set(self, "values", tuple(kept.tolist()))
        _set(self, "weights", tuple(total.tolist()))

    def __repr__(self) -> str:
        if len(self.values) <= 6:
            return f"Empirical(values={self.values}, weights={self.weights})"
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

    @cached_property
    def _first_two(self) -> tuple[float, float]:
        values, weights = self._arrays
        mean = float(weights @ values)
        return mean, float(weights @ (values - mean) ** 2)

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
        values, weights = self._arrays
        return float(weights @ np.abs(values) ** _order(order))

    def quantile(self, level: float) -> float:
        """Return the smallest value with at least this share of the weight up to it."""
        level = real("level", level, 0.0, 1.0)
        place = int(np.searchsorted(self._cumulative, level, side="left"))
        return self.values[min(place, len(self.values) - 1)]

    def log_mgf(self, s: float) -> float:
        """Return log E exp(s(X − E X))."""
        values, weights = self._arrays
        exponent = s * (values - self.mean)
        top = float(exponent.max())
        return top + math.log(float(weights @ np.exp(exponent - top)))

    @cached_property
    def _size(self) -> float:
        reach = self.values[-1] - self.values[0]
        return _smallest_size(self.log_mgf, reach, self.variance) if reach > 0.0 else 0.0

    @property
    def subgaussian_size(self) -> float:
        """Return the smallest valid size (the law is bounded)."""
        return self._size


def _listed(values: object) -> object:
    return list(values) if isinstance(values, Iterable) else values
