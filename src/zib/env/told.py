"""A contextual environment whose rewards tell their category."""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from zib.contextual.links import value
from zib.core.cache import cached_njit
from zib.core.spec import positive, real, word
from zib.core.validate import InvalidParameterError
from zib.env.contextual import (
    LARGEST_FEATURE,
    LINK_NAMES,
    LINKS,
    NOISES,
    AroundCentres,
    ContextBlock,
    Instance,
    LinkName,
    Noise,
    draw_noise,
)
from zib.env.registry import Array, ContextualEnvironment, matrix, maybe


class CategoryBlock(NamedTuple):
    """A `ContextBlock` with one more array: the category of every reward, 0 where it is zero."""

    arms: NDArray[np.int64]
    z: Array
    w: Array
    reward: Array
    mean: Array
    count: NDArray[np.int64]  # type: ignore[assignment]
    category: NDArray[np.int16]


def _fill(
    link: Any,
    noise: int,
    scales: Any,
    beta: Any,
    theta: Any,
    centres: Any,
    rng: Any,
    block: Any,
) -> None:
    """Draw rounds: the features, then the uniform number, then the noise."""
    sigma, jitter = scales
    d, n_arms = centres.shape
    for t in range(block.count.size):
        block.count[t] = n_arms
        for j in range(d):
            for k in range(n_arms):
                x = 1.0 if j == 0 else centres[j, k] + jitter * rng.standard_normal()
                block.z[t, j, k] = x
                block.w[t, j, k] = x
        u = rng.random()
        noise_now = draw_noise(noise, sigma, rng)
        for k in range(n_arms):
            block.arms[t, k] = k
            total = 0.0
            for c in range(beta.shape[0]):
                eta = 0.0
                for j in range(d):
                    eta += theta[c, j] * block.w[t, j, k]
                total += min(value(link, eta), 1.0)
            scale = 1.0 / max(total, 1.0)
            block.mean[t, k] = 0.0
            block.reward[t, k] = 0.0
            block.category[t, k] = 0
            reached = 0.0
            for c in range(beta.shape[0]):
                eta, zeta = 0.0, 0.0
                for j in range(d):
                    eta += theta[c, j] * block.w[t, j, k]
                    zeta += beta[c, j] * block.z[t, j, k]
                p = scale * min(value(link, eta), 1.0)
                block.mean[t, k] += p * zeta
                if reached <= u < reached + p:
                    block.reward[t, k] = zeta + noise_now
                    block.category[t, k] = c + 1
                reached += p


_fill_told = cached_njit(_fill)


class ContextualOutcomes(AroundCentres, Instance, ContextualEnvironment, positional=3):
    """Arms with noisy features whose rewards come in categories, and say which one it was.

    Parameters
    ----------
    beta, theta
        One row per category: the coefficients of its magnitude and of its occurrence.
    centres
        One row per arm: the mean of its features. The first feature is the constant 1, whatever
        the first column says.
    jitter
        Standard deviation of each other feature about its centre; 1/√(2K) for K arms by default.
    link, noise, sigma
        As in `ContextualGLM`.

    Notes
    -----
    An arm with features x has the outcome c with probability p_c = h(x'θ_c) and pays x'β_c + ε
    then; with what is left it pays nothing. Where the p_c add up to more than 1 they are divided
    by their sum. The mean reward given the features is Σ p_c·x'β_c. All arms share ε and the
    uniform number that decides on the outcome. A block is a `CategoryBlock`, for policies such as
    `zib.contextual.ByCategory`; others do not see the categories.

    Examples
    --------
    >>> env = ContextualOutcomes(
    ...     beta=[[5.0, 1.0], [40.0, -3.0]], theta=[[-1.0, 0.5], [-2.0, -0.5]],
    ...     centres=[[1.0, 0.5], [1.0, -0.5]],
    ... )
    >>> block = env.block(np.random.default_rng(0), 1000)
    >>> sorted(set(block.category.ravel().tolist()))
    [0, 1, 2]
    """

    beta: Any = matrix()
    theta: Any = matrix()
    centres: Any = matrix(LARGEST_FEATURE)
    jitter: Any = maybe(real(low=0.0, high=LARGEST_FEATURE), default=None)
    link: LinkName = word(LINK_NAMES, default="logit")
    noise: Noise = word(NOISES, default="gaussian")
    sigma: float = positive(default=1.0)

    def check(self) -> None:
        """Raise unless there is one coefficient per feature; fill in the usual jitter."""
        if self.theta.shape != self.beta.shape:
            raise InvalidParameterError(
                f"`theta` must have the shape of `beta` {self.beta.shape}; got {self.theta.shape}"
            )
        self._check_centres()

    @property
    def n_categories(self) -> int:
        """How many kinds of rewards there are besides nothing."""
        return len(self.beta)

    @cached_property
    def _parts(self) -> tuple[Any, ...]:
        """What compiled code draws rounds with: codes, and arrays of its own."""
        columns = np.ascontiguousarray(self.centres.T)
        scales = (self.sigma, self.jitter)
        own = (np.array(self.beta), np.array(self.theta), columns)
        return LINKS[self.link], NOISES.index(self.noise), scales, *own

    _block_type = CategoryBlock

    def _new_block(self, n: int) -> Any:
        return CategoryBlock(*super()._new_block(n), np.zeros((n, self.n_actions), dtype=np.int16))

    def _draw(self, rng: np.random.Generator, block: ContextBlock) -> None:
        _fill_told(*self._parts, rng, block)
