"""Rewards through several outcomes: a mixture of laws, and bandits whose arms are such mixtures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from zib.core.validate import InvalidParameterError, inside, real, vector
from zib.env.inflated import ZeroInflated
from zib.env.mab import _Family
from zib.env.rewards import Array, Gaussian, Law, _order, _set, law_from_dict


@dataclass(frozen=True)
class Constant(Law):
    """The law that always gives the same value.

    Parameters
    ----------
    value
        The value.
    """

    value: float

    def __post_init__(self) -> None:
        _set(self, "value", real("value", self.value))

    def _draw(self, rng: np.random.Generator, n: int) -> Array:
        return np.full(n, self.value)

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


@dataclass(frozen=True)
class Mixture(Law):
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
    >>> from zib.env import Gaussian
    >>> reward = Mixture([Constant(0.0), Gaussian(1.0, 0.5), Constant(20.0)], [0.9, 0.08, 0.02])
    >>> round(reward.mean, 6)
    0.48
    """

    laws: tuple[Law, ...]
    probs: tuple[float, ...]

    def __post_init__(self) -> None:
        if isinstance(self.laws, (str, bytes)) or not isinstance(self.laws, Iterable):
            raise InvalidParameterError(f"`laws` must be a sequence of laws; got {self.laws!r}")
        laws = tuple(law_from_dict(law) if isinstance(law, Mapping) else law for law in self.laws)
        for j, law in enumerate(laws):
            if not isinstance(law, Law):
                raise InvalidParameterError(
                    f"`laws` must hold laws such as Gaussian; got {law!r} at position {j}"
                )
        probs = vector("probs", self.probs, 0.0, 1.0)
        if probs.size != len(laws):
            raise InvalidParameterError(
                f"`probs` must have one entry per law ({len(laws)}); got {probs.size}"
            )
        if abs(float(probs.sum()) - 1.0) > 1e-9:
            raise InvalidParameterError(f"`probs` must sum to 1; got {float(probs.sum())!r}")
        _set(self, "laws", laws)
        _set(self, "probs", tuple(probs.tolist()))

    def to_dict(self) -> dict[str, Any]:
        """Return the law as numbers, strings, lists and dicts only; see `law_from_dict`."""
        laws = [law.to_dict() for law in self.laws]
        return {"kind": "Mixture", "laws": laws, "probs": list(self.probs)}

    def _draw(self, rng: np.random.Generator, n: int) -> Array:
        ends = np.cumsum(self.probs)
        ends[-1] = math.inf  # rounding must not leave a gap at the top
        which = np.searchsorted(ends, rng.random(n), side="right")
        out = np.empty(n)
        for j, law in enumerate(self.laws):
            places = np.flatnonzero(which == j)
            out[places] = law._draw(rng, places.size)
        return out

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


class OutcomesMAB(_Family):
    """Arms whose reward depends on what happens: nothing, or one of several outcomes.

    Parameters
    ----------
    values
        Mean reward of each outcome: one row for all arms, or one row per arm.
    probs
        Probability of each outcome, one row per arm; the rest of the time the arm pays 0.
    sigma
        Standard deviation of the reward given the outcome: one for all, or one per outcome. 0: the
        outcome always pays its value.

    Notes
    -----
    An arm is ``ZeroInflated(Mixture(...), prob)``: `probs` of the environment is the probability of
    anything but zero, `magnitudes` the mean of what is paid then. Other laws per outcome:
    ``MAB([Mixture(laws, probs), ...])``.

    Examples
    --------
    >>> env = OutcomesMAB(values=[1.0, 20.0, -15.0], probs=[[0.1, 0.03, 0.0], [0.1, 0.05, 0.02]])
    >>> env.arm_means.round(6).tolist(), env.best_arm
    ([0.7, 0.8], 1)
    """

    def __init__(self, values: object, probs: object, sigma: object = 0.0) -> None:
        q = _rows("probs", probs, 0.0, 1.0)
        if q.ndim != 2:
            raise InvalidParameterError(f"`probs` must have one row per arm; got shape {q.shape}")
        if (q.sum(axis=1) > 1.0 + 1e-9).any():
            first = int(np.argmax(q.sum(axis=1) > 1.0 + 1e-9))
            raise InvalidParameterError(
                f"`probs` of an arm must sum to at most 1; got {float(q[first].sum()):g} for arm "
                f"{first}"
            )
        v = _rows("values", values)
        s = _rows("sigma", sigma, 0.0)
        if v.ndim == 0 or v.shape[-1] != q.shape[1] or v.shape not in (q.shape, q.shape[1:]):
            raise InvalidParameterError(
                f"`values` must have one entry per outcome ({q.shape[1]}), in one row or one per "
                f"arm; got shape {v.shape}"
            )
        if s.shape not in ((), q.shape[1:]):
            raise InvalidParameterError(
                f"`sigma` must be one number or one per outcome ({q.shape[1]}); got shape {s.shape}"
            )
        each, wide = np.broadcast_to(v, q.shape), np.broadcast_to(s, q.shape[1:])
        super().__init__(
            (_arm(each[k], q[k], wide) for k in range(q.shape[0])),
            {"values": v.tolist(), "probs": q.tolist(), "sigma": s.tolist()},
        )


def _arm(values: Array, probs: Array, sigma: Array) -> ZeroInflated:
    paid = min(float(probs.sum()), 1.0)
    share = probs / probs.sum() if paid > 0.0 else np.full(probs.size, 1.0 / probs.size)
    laws = [
        Gaussian(float(v), float(s)) if s > 0.0 else Constant(float(v))
        for v, s in zip(values, sigma, strict=True)
    ]
    return ZeroInflated(Mixture(tuple(laws), tuple(share.tolist())), paid)


def _rows(name: str, value: object, low: float = -math.inf, high: float = math.inf) -> Array:
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidParameterError(
            f"`{name}` must hold numbers in rows of equal length; got {value!r}"
        ) from None
    if array.size == 0 or array.ndim > 2:
        raise InvalidParameterError(f"`{name}` must hold numbers; got shape {array.shape}")
    inside(name, array, low, high)
    return array
