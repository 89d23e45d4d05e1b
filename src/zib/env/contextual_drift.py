"""A contextual environment in which the number, the identity and the features of actions change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from zib.core.cache import cached_njit
from zib.core.validate import InvalidParameterError, integer, real
from zib.env.contextual import ContextBlock, ContextualGLM, Instance
from zib.env.contextual_draws import LINKS, LinkName, Noise, settle, transform_and_predict
from zib.env.contextual_random import ContextualGenerator, RandomContextual
from zib.env.rewards import Array, Kind


def _fill_drifting(
    link: Any,
    codes: Any,
    scales: Any,
    sizes: Any,
    beta: Any,
    theta: Any,
    centres: Any,
    rng: Any,
    arms: Any,
    z: Any,
    w: Any,
    reward: Any,
    mean: Any,
    count: Any,
) -> None:
    """Draw rounds: how many actions, which, features, the uniform, the noise, the drift."""
    noise, transform = codes
    sigma, jitter, drift = scales
    low, high = sizes
    d, n_arms = centres.shape
    for t in range(count.size):
        offered = min(low + int(rng.random() * (high - low + 1)), high)
        count[t] = offered
        # go through the pool and take each item with the probability that fills the rest
        taken = 0
        for item in range(n_arms):
            if taken < offered and rng.random() * (n_arms - item) < offered - taken:
                arms[t, taken] = item
                taken += 1
        for k in range(offered, high):
            arms[t, k] = -1
            reward[t, k] = 0.0
            mean[t, k] = -np.inf
        for j in range(d):
            for k in range(offered):
                z[t, j, k] = centres[j, arms[t, k]] + jitter * rng.standard_normal()
            for k in range(offered, high):
                z[t, j, k] = 0.0
                w[t, j, k] = 0.0
        transform_and_predict(transform, beta, theta, z, w, reward, mean, t, offered)
        settle(link, noise, sigma, rng, reward, mean, t, offered)
        if drift > 0.0:
            for j in range(d):
                for item in range(n_arms):
                    centres[j, item] += drift * rng.standard_normal()


_fill_some = cached_njit(_fill_drifting)


class DriftingRun(Instance):
    """One run of `DriftingActions`.

    `block` moves the centres on, so this object belongs to one run: two runs from the same random
    streams need an instance each. The base it was made from does not change.
    """

    def __init__(self, base: ContextualGLM, low: int, high: int, drift: float) -> None:
        self._base = base
        self._centres = base._columns.copy()
        self._sizes = (low, high)
        self._scales = (base.sigma, base.jitter, drift)
        self.n_arms, self.n_actions, self.n_features = base.n_arms, high, base.n_features
        self.link, self.noise, self.sigma = base.link, base.noise, base.sigma

    @property
    def centres(self) -> Array:
        """One row per arm: the mean of its features in the next round (a copy)."""
        return self._centres.T.copy()

    def _draw(self, rng: np.random.Generator, block: ContextBlock) -> None:
        base = self._base
        _fill_some(
            LINKS[self.link],
            base._codes,
            self._scales,
            self._sizes,
            base._beta,
            base._theta,
            self._centres,
            rng,
            *block,
        )


@dataclass(frozen=True)
class DriftingActions(ContextualGenerator):
    """In each round some items of a pool are on offer, and the items change slowly.

    Parameters
    ----------
    base
        A `ContextualGLM` or a `RandomContextual`: its arms are the pool.
    low, high
        The number of actions of a round is uniform on low, …, high; which items is uniform too.
    drift
        After each round every entry of every centre moves by N(0, drift²); 0 for none.

    Notes
    -----
    The arm numbers of a block are the numbers of the items, in increasing order. Coefficients stay
    as they are: what changes is what is on offer. The setting is ours.

    `instance` always returns a new `DriftingRun` that starts from the centres of `base`. That run
    keeps the current centres and is to be used once.

    Examples
    --------
    >>> env = DriftingActions(RandomContextual(n_arms=50), low=3, high=8)
    >>> block = env.instance(np.random.default_rng(0)).block(np.random.default_rng(1), 100)
    >>> block.arms.shape, int(block.count.min()), int(block.count.max())
    ((100, 8), 3, 8)
    """

    base: ContextualGLM | RandomContextual
    low: int = 5
    high: int = 20
    drift: float = 0.001

    def __post_init__(self) -> None:
        if not isinstance(self.base, (ContextualGLM, RandomContextual)):
            raise InvalidParameterError(
                f"`base` must be a ContextualGLM or a RandomContextual; got {self.base!r}"
            )
        high = integer("high", self.high, 1, self.base.n_arms)
        self._set(
            high=high,
            low=integer("low", self.low, 1, high),
            drift=real("drift", self.drift, 0.0, 1.0),
        )

    @property
    def n_arms(self) -> int:
        """Number of items in the pool."""
        return self.base.n_arms

    @property
    def n_actions(self) -> int:
        """The most actions of a round."""
        return self.high

    @property
    def n_features(self) -> tuple[int, int]:
        """Number of features of the magnitude and of the occurrence."""
        return self.base.n_features

    @property
    def link(self) -> LinkName:
        """The link of the occurrence."""
        return self.base.link

    @property
    def noise(self) -> Noise:
        """The law of the noise."""
        return self.base.noise

    @property
    def sigma(self) -> float:
        """Standard deviation of the noise."""
        return self.base.sigma

    def component_size(self, kind: Kind = "subgaussian") -> float:
        """Return the size of the noise (inf where it has none)."""
        return self.base.component_size(kind)

    def to_dict(self) -> dict[str, Any]:
        """Return the generator as plain data; see `zib.env.from_dict`."""
        return {**super().to_dict(), "base": self.base.to_dict()}

    def instance(self, rng: np.random.Generator) -> DriftingRun:
        """Return a run of its own, after drawing the base if that is random."""
        return DriftingRun(self.base.instance(rng), self.low, self.high, self.drift)
