"""Multi-armed environments: one law of rewards per arm, fixed, or redrawn for each replication."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import Any, ClassVar, Literal

import numpy as np

from zib.core import validate as check
from zib.core.spec import Field, positive, real, whole, word
from zib.core.validate import InvalidParameterError
from zib.env.laws import Constant, Exponential, Gaussian, GaussianMixture, Law
from zib.env.mixtures import Mixture, ZeroInflated, several_laws
from zib.env.registry import (
    Array,
    Categories,
    Environment,
    Kind,
    as_tuple,
    custom,
    derived,
    frozen,
    pair,
    register_id,
    vector,
)

Family = Literal["gaussian", "mixture", "exponential"]
FAMILIES: tuple[Family, ...] = ("gaussian", "mixture", "exponential")
TITLES = {"gaussian": "Gaussian", "mixture": "Gaussian mixture", "exponential": "Exponential"}
PAPER_PROBS: dict[str, tuple[float, float]] = {
    "p10": (0.10, 0.15),
    "p15": (0.15, 0.20),
    "p20": (0.20, 0.25),
    "p25": (0.25, 0.30),
    "p30": (0.30, 0.35),
    "tiny": (0.0005, 0.01),
}


class MAB(Environment, positional=1):
    """A multi-armed bandit with one law of rewards per arm.

    Parameters
    ----------
    laws
        One law per arm: `zib.env.ZeroInflated` around any law, or any law as it is (an arm that
        always pays).

    Notes
    -----
    An environment is anything with `n_arms`, `arm_means`, ``sample(arm, rng, n)`` and
    ``instance(rng)``. This one is fixed, so `instance` returns the environment itself; generators
    such as `RandomMAB` return a new one each time.

    Examples
    --------
    >>> env = MAB([ZeroInflated(Gaussian(2.0, 0.5), prob=0.1), ZeroInflated(Exponential(1.0), 0.3)])
    >>> env.best_arm, env.gaps.round(3).tolist()
    (1, [0.1, 0.0])
    """

    laws: Any = custom(several_laws, allowed="laws, one per arm")

    def check(self) -> None:
        """Raise unless all laws have the same inflated value."""
        common = {law.inflated for law in self.laws if isinstance(law, ZeroInflated)}
        if len(common) > 1:
            raise InvalidParameterError(
                f"`laws` must share one inflated value; got {sorted(common)}"
            )

    @property
    def n_arms(self) -> int:
        """Number of arms."""
        return len(self.laws)

    @cached_property
    def inflated(self) -> float:
        """The value paid when nothing happens, the same for all arms."""
        return next((law.inflated for law in self.laws if isinstance(law, ZeroInflated)), 0.0)

    @cached_property
    def arm_means(self) -> Array:
        """Mean reward r_k of each arm."""
        return frozen([law.mean for law in self.laws])

    @cached_property
    def magnitudes(self) -> Array:
        """Mean mu_k of each arm's rewards that are not the inflated value."""
        return frozen([_component(law).mean for law in self.laws])

    @cached_property
    def probs(self) -> Array:
        """Probability p_k that an arm pays (1 for a law that is not zero-inflated)."""
        return frozen([law.prob if isinstance(law, ZeroInflated) else 1.0 for law in self.laws])

    @cached_property
    def variances(self) -> Array:
        """Variance of each arm's reward, inf where infinite."""
        return frozen([law.variance for law in self.laws])

    @property
    def best_arm(self) -> int:
        """The arm with the largest mean reward (the first of several)."""
        return int(np.argmax(self.arm_means))

    @property
    def best_mean(self) -> float:
        """The largest mean reward."""
        return float(self.arm_means.max())

    @property
    def gaps(self) -> Array:
        """How much each arm loses against the best, Δ_k."""
        return frozen(self.arm_means.max() - self.arm_means)

    def component_sizes(self, kind: Kind = "subgaussian") -> Array:
        """Return the size of each arm's non-zero part (inf where it has none)."""
        return frozen([_component(law).size(kind) for law in self.laws])

    def reward_sizes(self, kind: Kind = "subgaussian") -> Array:
        """Return the size of each arm's reward itself: tau or alpha (inf where it has none)."""
        return frozen([law.size(kind) for law in self.laws])

    def component_size(self, kind: Kind = "subgaussian") -> float:
        """Return one size that is valid for the non-zero part of every arm."""
        return float(self.component_sizes(kind).max())

    def sample(self, arm: int, rng: np.random.Generator, n: int) -> Array:
        """Return the next `n` rewards of `arm`."""
        law: Law = self.laws[check.integer("arm", arm, 0, self.n_arms - 1)]
        return law.sample(rng, n)

    @property
    def n_categories(self) -> int:
        """How many kinds of rewards there are besides nothing, in the arm that has most."""
        return max(int(law.n_categories) for law in self.laws)

    def sample_categories(
        self, arm: int, rng: np.random.Generator, n: int
    ) -> tuple[Array, Categories]:
        """Return the rewards of `sample`, and of which kind each is: 1, 2, … or 0 for nothing."""
        law: Law = self.laws[check.integer("arm", arm, 0, self.n_arms - 1)]
        return law.sample_categories(rng, n)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MAB) and bool(self.laws == other.laws)

    def __hash__(self) -> int:
        return hash(self.laws)


def _component(law: Law) -> Law:
    return law.law if isinstance(law, ZeroInflated) else law


def _inflated(
    law: Callable[[Mapping[str, Any], float], Law],
) -> Callable[[Mapping[str, Any]], tuple[Law, ...]]:
    """Return what makes zero-inflated arms out of their means and probabilities."""

    def laws(given: Mapping[str, Any]) -> tuple[Law, ...]:
        means, probs = given["means"], given["probs"]
        if means.size != probs.size:
            raise InvalidParameterError(
                f"`probs` must have one entry per mean ({means.size}); got {probs.size}"
            )
        pairs = zip(means.tolist(), probs.tolist(), strict=True)
        return tuple(ZeroInflated(law(given, m), p, given["inflated"]) for m, p in pairs)

    return laws


class _Computed(MAB):
    """An environment whose laws follow from other parameters."""

    declared: ClassVar[dict[str, Field]] = {}


class GaussianMAB(_Computed, positional=3):
    """Zero-inflated arms whose non-zero rewards are N(mean, sigma²).

    Parameters
    ----------
    means
        Mean magnitude mu_k of each arm.
    probs
        Probability p_k that each arm pays.
    sigma
        Standard deviation of the magnitudes, common to all arms.
    inflated
        The value paid the rest of the time.

    Examples
    --------
    >>> GaussianMAB(means=[1, 2], probs=[0.3, 0.2], sigma=0.5).arm_means.tolist()
    [0.3, 0.4]
    """

    means: Any = vector()
    probs: Any = vector(0.0, 1.0)
    sigma: float = positive()
    inflated: float = real(default=0.0)
    laws: Any = derived(_inflated(lambda given, mean: Gaussian(mean, given["sigma"])))


class MixtureMAB(_Computed, positional=4):
    """Zero-inflated arms paying ½N(mean − offset, sigma²) + ½N(mean + offset, sigma²)."""

    means: Any = vector()
    probs: Any = vector(0.0, 1.0)
    sigma: float = positive()
    offset: float = real(low=0.0, default=1.0)
    inflated: float = real(default=0.0)
    laws: Any = derived(
        _inflated(lambda given, mean: GaussianMixture(mean, given["sigma"], given["offset"]))
    )


class ExponentialMAB(_Computed, positional=2):
    """Zero-inflated arms whose non-zero rewards are exponential with the given means."""

    means: Any = vector(0.0, closed="neither")
    probs: Any = vector(0.0, 1.0)
    inflated: float = real(default=0.0)
    laws: Any = derived(_inflated(lambda given, mean: Exponential(mean)))


def _rows(low: float = -math.inf, high: float = math.inf) -> Callable[[str, Any], Array]:
    """Return the check of a number, a row or rows of numbers."""

    def checked(name: str, value: Any) -> Array:
        array = frozen(check.numbers(name, value))
        if array.size == 0 or array.ndim > 2:
            raise InvalidParameterError(f"`{name}` must hold numbers; got shape {array.shape}")
        check.inside(name, array, low, high)
        return array

    return checked


class OutcomesMAB(_Computed, positional=3):
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

    values: Any = custom(_rows(), shown=as_tuple, allowed="numbers, one per outcome")
    probs: Any = custom(_rows(0.0, 1.0), shown=as_tuple, allowed="rows of numbers in [0, 1]")
    sigma: Any = custom(_rows(0.0), shown=as_tuple, allowed="numbers in [0, inf)", default=0.0)
    table: Any = derived(lambda given: given["probs"])
    laws: Any = derived(
        lambda given: _outcome_laws(given["values"], given["table"], given["sigma"])
    )

    def check(self) -> None:
        """Free the name `probs` for what all environments call so."""
        super().check()
        self.__dict__.pop("probs")

    def parameters(self) -> dict[str, Any]:
        """Return the keyword arguments that rebuild this environment."""
        tables = {"values": self.values, "probs": self.table, "sigma": self.sigma}
        return {name: as_tuple(table) for name, table in tables.items()}


def _outcome_laws(values: Array, probs: Array, sigma: Array) -> tuple[Law, ...]:
    if probs.ndim != 2:
        raise InvalidParameterError(f"`probs` must have one row per arm; got shape {probs.shape}")
    paid = probs.sum(axis=1)
    if (paid > 1.0 + 1e-9).any():
        first = int(np.argmax(paid > 1.0 + 1e-9))
        raise InvalidParameterError(
            f"`probs` of an arm must sum to at most 1; got {float(paid[first]):g} for arm {first}"
        )
    m = probs.shape[1]
    if values.ndim == 0 or values.shape not in (probs.shape, (m,)):
        raise InvalidParameterError(
            f"`values` must have one entry per outcome ({m}), in one row or one per arm; "
            f"got shape {values.shape}"
        )
    if sigma.shape not in ((), (m,)):
        raise InvalidParameterError(
            f"`sigma` must be one number or one per outcome ({m}); got shape {sigma.shape}"
        )
    each, wide = np.broadcast_to(values, probs.shape), np.broadcast_to(sigma, (m,))
    return tuple(_arm(each[k], probs[k], wide) for k in range(len(probs)))


def _arm(values: Array, probs: Array, sigma: Array) -> ZeroInflated:
    paid = min(float(probs.sum()), 1.0)
    share = probs / probs.sum() if paid > 0.0 else np.full(probs.size, 1.0 / probs.size)
    laws = [
        Gaussian(float(v), float(s)) if s > 0.0 else Constant(float(v))
        for v, s in zip(values, sigma, strict=True)
    ]
    return ZeroInflated(Mixture(tuple(laws), tuple(share.tolist())), paid)


class RandomMAB(Environment, positional=6):
    """A new multi-armed bandit for every replication.

    Parameters
    ----------
    family
        Law of the non-zero rewards: ``"gaussian"``, ``"mixture"`` or ``"exponential"``.
    n_arms
        Number of arms.
    magnitudes
        Mean magnitudes are drawn uniformly from this interval.
    probs
        Probabilities of paying are drawn uniformly from this interval.
    sigma, offset
        Standard deviation of the Gaussian (parts), and half the distance of the two parts of the
        mixture; the exponential family uses neither.

    Notes
    -----
    `component_size` gives one size valid for every arm that can be drawn, which is what a policy
    must be told before it has seen anything.

    Examples
    --------
    >>> maker = RandomMAB("gaussian", n_arms=3, probs=(0.3, 0.35))
    >>> maker.instance(np.random.default_rng(0)).n_arms
    3
    """

    family: Family = word(FAMILIES)
    n_arms: int = whole(low=1, default=10)
    magnitudes: tuple[float, float] = pair(default=(1.0, 3.0))
    probs: tuple[float, float] = pair(0.0, 1.0, default=(0.30, 0.35))
    sigma: float = positive(default=0.5)
    offset: float = real(low=0.0, default=1.0)

    def check(self) -> None:
        """Raise unless an exponential law has positive means."""
        if self.family == "exponential":
            check.vector("magnitudes", self.magnitudes, 0.0, closed="neither")

    def law(self, mean: float) -> Law:
        """Return the law of non-zero rewards with this mean."""
        if self.family == "gaussian":
            return Gaussian(mean, self.sigma)
        if self.family == "mixture":
            return GaussianMixture(mean, self.sigma, self.offset)
        return Exponential(mean)

    def component_size(self, kind: Kind = "subgaussian") -> float:
        """Return a size of the non-zero part that is valid for every arm that can be drawn."""
        return max(self.law(mean).size(kind) for mean in self.magnitudes)

    def draw_parameters(self, rng: np.random.Generator) -> tuple[Array, Array]:
        """Draw magnitudes, then probabilities, of all arms."""
        return rng.uniform(*self.magnitudes, self.n_arms), rng.uniform(*self.probs, self.n_arms)

    def instance(self, rng: np.random.Generator) -> MAB:
        """Draw magnitudes and probabilities, and return the environment they make."""
        means, probs = self.draw_parameters(rng)
        if self.family == "gaussian":
            return GaussianMAB(means, probs, self.sigma)
        if self.family == "mixture":
            return MixtureMAB(means, probs, self.sigma, self.offset)
        return ExponentialMAB(means, probs)


for _tag, _probs in PAPER_PROBS.items():
    for _family in FAMILIES:
        register_id(f"paper-mab-{_family}-{_tag}-v1", partial(RandomMAB, _family, probs=_probs))
