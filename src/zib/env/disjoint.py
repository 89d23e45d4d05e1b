"""Contextual environments with one context for all arms and separate coefficients per arm."""

from __future__ import annotations

from functools import cached_property, partial
from typing import Any

import numpy as np

from zib.contextual.links import inverse
from zib.core.cache import cached_njit
from zib.core.spec import positive, real, whole, word
from zib.core.validate import InvalidParameterError
from zib.env.contextual import (
    LINK_NAMES,
    LINKS,
    NOISES,
    ContextBlock,
    EveryArm,
    Instance,
    LinkName,
    Noise,
    settle,
)
from zib.env.registry import Array, ContextualEnvironment, flag, matrix, pair, register_id


def _fill_disjoint(
    link: Any,
    codes: Any,
    sigma: float,
    beta: Any,
    theta: Any,
    rng: Any,
    block: Any,
) -> None:
    """Draw rounds with one context: its features, then the uniform, then the noise."""
    arms, z, w, reward, mean, count = block
    noise, intercept = codes
    d, n_arms = beta.shape
    for t in range(count.size):
        count[t] = n_arms
        for k in range(n_arms):
            arms[t, k] = k
            mean[t, k] = 0.0
            reward[t, k] = 0.0
        for j in range(d):
            x = 1.0 if j < intercept else rng.standard_normal()
            for k in range(n_arms):
                z[t, j, k] = x
                w[t, j, k] = x
                mean[t, k] += beta[j, k] * x
                reward[t, k] += theta[j, k] * x
        settle(link, noise, sigma, rng, reward, mean, t, n_arms)


_fill_shared = cached_njit(_fill_disjoint)


class DisjointGLM(EveryArm, Instance, ContextualEnvironment, positional=2):
    """One context for all arms, and own coefficients for each arm.

    Parameters
    ----------
    beta, theta
        One row per arm: its coefficients of the magnitude and of the occurrence.
    intercept
        Whether the first feature is the constant 1.
    link, noise, sigma
        As in `ContextualGLM`.

    Notes
    -----
    The other features of the context x are independent N(0, 1), new in each round. Arm k pays
    Y·(x'β_k + ε), Y ~ Bernoulli(h(x'θ_k)), where all arms share ε and the uniform number behind Y.
    Every action has the same features, so only the arm number tells them apart.

    Examples
    --------
    >>> env = DisjointGLM(beta=[[1, 0.5], [2, 0.1]], theta=[[-0.5, 1], [-1, 0]])
    >>> env.block(np.random.default_rng(0), 4).z[:, 0].tolist()
    [[1.0, 1.0], [1.0, 1.0], [1.0, 1.0], [1.0, 1.0]]
    """

    beta: Any = matrix()
    theta: Any = matrix()
    intercept: bool = flag(default=True)
    link: LinkName = word(LINK_NAMES, default="probit")
    noise: Noise = word(NOISES, default="gaussian")
    sigma: float = positive(default=1.0)

    def check(self) -> None:
        """Raise unless both parts have as many coefficients."""
        if self.beta.shape != self.theta.shape:
            raise InvalidParameterError(
                f"`theta` must have the shape of `beta` {self.beta.shape}; got {self.theta.shape}"
            )

    @property
    def n_arms(self) -> int:
        """Number of arms."""
        return len(self.beta)

    @property
    def dimension(self) -> int:
        """Number of features of each part."""
        return int(self.beta.shape[1])

    @cached_property
    def _parts(self) -> tuple[Any, ...]:
        """What compiled code draws rounds with: codes, and arrays of its own."""
        codes = (NOISES.index(self.noise), int(self.intercept))
        beta, theta = (np.ascontiguousarray(x.T) for x in (self.beta, self.theta))
        return LINKS[self.link], codes, self.sigma, beta, theta

    def _draw(self, rng: np.random.Generator, block: ContextBlock) -> None:
        _fill_shared(*self._parts, rng, block)


class DisjointContextual(EveryArm, ContextualEnvironment, positional=8):
    """A new `DisjointGLM` for every replication.

    Parameters
    ----------
    n_arms
        Number of arms.
    dimension
        Number of features, the constant 1 included.
    magnitudes, probs
        Mean magnitude and probability of paying of each arm in the average context (x = 0 but for
        the constant), drawn uniformly from these intervals.
    effect
        Norm of the other coefficients of each arm and part; their direction is uniform. Both linear
        predictors have this standard deviation over contexts.
    link, noise, sigma
        As in `ContextualGLM`.

    Notes
    -----
    The first feature is the constant. In the average context this is a multi-armed bandit like
    those of `RandomMAB`; `effect` says how much the context matters. The setting is ours.

    Examples
    --------
    >>> env = DisjointContextual(n_arms=3, effect=0.0).instance(np.random.default_rng(0))
    >>> bool((env.beta[:, 0] >= 1).all()), bool(env.beta[:, 1:].any())
    (True, False)
    """

    n_arms: int = whole(low=1, default=10)
    dimension: int = whole(low=1, default=5)
    magnitudes: tuple[float, float] = pair(closed="neither", default=(1.0, 3.0))
    probs: tuple[float, float] = pair(0.0, 1.0, "neither", default=(0.1, 0.3))
    effect: float = real(low=0.0, default=0.5)
    link: LinkName = word(LINK_NAMES, default="probit")
    noise: Noise = word(NOISES, default="gaussian")
    sigma: float = positive(default=1.0)

    def instance(self, rng: np.random.Generator) -> DisjointGLM:
        """Draw magnitudes, probabilities and the two sets of directions, in this order."""
        link = LINKS[self.link]
        magnitudes = rng.uniform(*self.magnitudes, self.n_arms)
        probs = rng.uniform(*self.probs, self.n_arms)
        beta, theta = (self._slopes(rng) for _ in range(2))
        return DisjointGLM(
            np.column_stack([magnitudes, beta]),
            np.column_stack([[inverse(link, float(p)) for p in probs], theta]),
            link=self.link,
            noise=self.noise,
            sigma=self.sigma,
        )

    def _slopes(self, rng: np.random.Generator) -> Array:
        drawn = rng.standard_normal((self.n_arms, self.dimension - 1))
        norms = np.linalg.norm(drawn, axis=1, keepdims=True)
        return np.asarray(self.effect * drawn / np.where(norms > 0.0, norms, 1.0))


for _noise in NOISES:
    register_id(f"disjoint-{_noise}-v1", partial(DisjointContextual, noise=_noise))
