"""Multi-armed environments: one law of rewards per arm, fixed once and for all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from zib.core.validate import InvalidParameterError, integer, real, vector
from zib.env.inflated import ZeroInflated
from zib.env.rewards import Array, Exponential, Gaussian, GaussianMixture, Kind, Law, law_from_dict


def _frozen(values: Iterable[float]) -> Array:
    array = np.array(list(values), dtype=np.float64)
    array.flags.writeable = False
    return array


class MAB:
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

    def __init__(self, laws: Iterable[Law]) -> None:
        self._laws = tuple(laws)
        if not self._laws:
            raise InvalidParameterError("`laws` must name at least one law; got none")
        for k, law in enumerate(self._laws):
            if not isinstance(law, Law):
                raise InvalidParameterError(
                    f"`laws` must hold laws such as ZeroInflated; got {law!r} at position {k}"
                )
        common = {law.inflated for law in self._laws if isinstance(law, ZeroInflated)}
        if len(common) > 1:
            raise InvalidParameterError(
                f"`laws` must share one inflated value; got {sorted(common)}"
            )
        self._inflated = common.pop() if common else 0.0
        self._arm_means = _frozen(law.mean for law in self._laws)

    @property
    def laws(self) -> tuple[Law, ...]:
        """The law of each arm."""
        return self._laws

    @property
    def n_arms(self) -> int:
        """Number of arms."""
        return len(self._laws)

    @property
    def inflated(self) -> float:
        """The value paid when nothing happens, the same for all arms."""
        return self._inflated

    @property
    def arm_means(self) -> Array:
        """Mean reward r_k of each arm."""
        return self._arm_means

    @property
    def magnitudes(self) -> Array:
        """Mean mu_k of each arm's rewards that are not the inflated value."""
        return _frozen(_component(law).mean for law in self._laws)

    @property
    def probs(self) -> Array:
        """Probability p_k that an arm pays (1 for a law that is not zero-inflated)."""
        return _frozen(law.prob if isinstance(law, ZeroInflated) else 1.0 for law in self._laws)

    @property
    def variances(self) -> Array:
        """Variance of each arm's reward, inf where infinite."""
        return _frozen(law.variance for law in self._laws)

    @property
    def best_arm(self) -> int:
        """The arm with the largest mean reward (the first of several)."""
        return int(np.argmax(self._arm_means))

    @property
    def best_mean(self) -> float:
        """The largest mean reward."""
        return float(self._arm_means.max())

    @property
    def gaps(self) -> Array:
        """How much each arm loses against the best, Δ_k."""
        return _frozen(self._arm_means.max() - self._arm_means)

    def component_sizes(self, kind: Kind = "subgaussian") -> Array:
        """Return the size of each arm's non-zero part (inf where it has none)."""
        return _frozen(_component(law).size(kind) for law in self._laws)

    def reward_sizes(self, kind: Kind = "subgaussian") -> Array:
        """Return the size of each arm's reward itself: tau or alpha (inf where it has none)."""
        return _frozen(law.size(kind) for law in self._laws)

    def component_size(self, kind: Kind = "subgaussian") -> float:
        """Return one size that is valid for the non-zero part of every arm."""
        return float(self.component_sizes(kind).max())

    def sample(self, arm: int, rng: np.random.Generator, n: int) -> Array:
        """Return the next `n` rewards of `arm`."""
        return self._laws[integer("arm", arm, 0, self.n_arms - 1)].sample(rng, n)

    def instance(self, rng: np.random.Generator) -> MAB:
        """Return the environment of one replication: itself, nothing is drawn."""
        return self

    def parameters(self) -> dict[str, Any]:
        """Return the keyword arguments that rebuild this environment."""
        return {"laws": self._laws}

    def to_dict(self) -> dict[str, Any]:
        """Return the environment as plain data; see `zib.env.from_dict`."""
        return {"environment": "MAB", "laws": [law.to_dict() for law in self._laws]}

    def __repr__(self) -> str:
        inside = ", ".join(f"{name}={_short(v)}" for name, v in self.parameters().items())
        return f"{type(self).__name__}({inside})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MAB) and self._laws == other._laws

    def __hash__(self) -> int:
        return hash(self._laws)


def _component(law: Law) -> Law:
    return law.law if isinstance(law, ZeroInflated) else law


def _short(value: Any) -> str:
    return repr(list(value)) if isinstance(value, tuple) else repr(value)


def _pairs(means: object, probs: object) -> tuple[list[float], list[float]]:
    mu = vector("means", means)
    p = vector("probs", probs, 0.0, 1.0)
    if mu.size != p.size:
        raise InvalidParameterError(
            f"`probs` must have one entry per mean ({mu.size}); got {p.size}"
        )
    return mu.tolist(), p.tolist()


class _Family(MAB):
    """An environment whose arms differ in mean magnitude and probability only."""

    def __init__(self, laws: Iterable[Law], parameters: dict[str, Any]) -> None:
        super().__init__(laws)
        self._parameters = parameters

    def parameters(self) -> dict[str, Any]:
        """Return the keyword arguments that rebuild this environment."""
        return dict(self._parameters)

    def to_dict(self) -> dict[str, Any]:
        """Return the environment as plain data; see `zib.env.from_dict`."""
        return {"environment": type(self).__name__, **self._parameters}


class GaussianMAB(_Family):
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

    def __init__(
        self, means: object, probs: object, sigma: float, *, inflated: float = 0.0
    ) -> None:
        mu, p = _pairs(means, probs)
        sigma = real("sigma", sigma, 0.0, closed="neither")
        super().__init__(
            (ZeroInflated(Gaussian(m, sigma), q, inflated) for m, q in zip(mu, p)),
            {"means": mu, "probs": p, "sigma": sigma, "inflated": float(inflated)},
        )

    @property
    def sigma(self) -> float:
        """Standard deviation of the magnitudes."""
        return float(self._parameters["sigma"])


class MixtureMAB(_Family):
    """Zero-inflated arms paying ½N(mean − offset, sigma²) + ½N(mean + offset, sigma²)."""

    def __init__(
        self,
        means: object,
        probs: object,
        sigma: float,
        offset: float = 1.0,
        *,
        inflated: float = 0.0,
    ) -> None:
        mu, p = _pairs(means, probs)
        sigma = real("sigma", sigma, 0.0, closed="neither")
        offset = real("offset", offset, 0.0)
        super().__init__(
            (ZeroInflated(GaussianMixture(m, sigma, offset), q, inflated) for m, q in zip(mu, p)),
            {
                "means": mu,
                "probs": p,
                "sigma": sigma,
                "offset": offset,
                "inflated": float(inflated),
            },
        )


class ExponentialMAB(_Family):
    """Zero-inflated arms whose non-zero rewards are exponential with the given means."""

    def __init__(self, means: object, probs: object, *, inflated: float = 0.0) -> None:
        mu, p = _pairs(means, probs)
        super().__init__(
            (ZeroInflated(Exponential(m), q, inflated) for m, q in zip(mu, p)),
            {"means": mu, "probs": p, "inflated": float(inflated)},
        )


def _mab_from_dict(data: dict[str, Any]) -> MAB:
    return MAB([law_from_dict(law) for law in data["laws"]])
