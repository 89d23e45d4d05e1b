"""Contextual environments: rewards that depend on features, drawn in blocks of rounds.

An environment has `n_actions` (the most actions of a round), `n_arms` (how many different arm
numbers there are), ``n_features = (d, q)`` and ``instance(rng)``; an instance also has
``block(rng, n)``, which returns the next n rounds. Rounds are drawn one after the other in a fixed
order, so two blocks of n rounds are, bit for bit, one block of 2n.
"""

from __future__ import annotations

import json
import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from zib.core.cache import cached_njit
from zib.core.validate import InvalidParameterError, choice, inside, integer, real, vector
from zib.env.contextual_draws import (
    LARGEST_FEATURE,
    LINK_NAMES,
    LINKS,
    NOISES,
    TRANSFORMS,
    LinkName,
    Noise,
    Transform,
    noise_law,
    settle,
    transform_and_predict,
)
from zib.env.rewards import Array, Kind


class ContextBlock(NamedTuple):
    """Some rounds of a contextual environment; actions stand in columns.

    Only the first ``count[t]`` columns of round t are actions. In the others `arms` is −1, `mean`
    is −inf and the rest is 0, so the best mean of a round is the largest of its row.

    Attributes
    ----------
    arms
        (n, K): the arm number of each action.
    z, w
        (n, d, K) and (n, q, K): features of the magnitude and of the occurrence.
    reward
        (n, K): what each action would pay.
    mean
        (n, K): its expectation given the features, p·mu.
    count
        (n,): the number of actions.
    """

    arms: NDArray[np.int64]
    z: Array
    w: Array
    reward: Array
    mean: Array
    count: NDArray[np.int64]  # type: ignore[assignment]


def matrix(name: str, values: object, bound: float = math.inf) -> Array:
    """Return `values` as a matrix with every entry in [−bound, bound], or raise."""
    try:
        array = np.array(values, dtype=np.float64, order="C") + 0.0  # no negative zeros
    except (TypeError, ValueError):
        raise InvalidParameterError(
            f"`{name}` must be a matrix of numbers; got {values!r}"
        ) from None
    if array.ndim != 2 or array.size == 0:
        raise InvalidParameterError(
            f"`{name}` must be a non-empty two-dimensional array; got shape {array.shape}"
        )
    inside(name, array, -bound, bound)
    return array


def read_only(array: Array) -> Array:
    """Return a view that cannot be written to."""
    view = array.view()
    view.flags.writeable = False
    return view


def check_common(link: object, noise: object, sigma: object) -> float:
    """Check what all contextual environments have; return `sigma`."""
    choice("link", link, LINK_NAMES)
    choice("noise", noise, NOISES)
    return real("sigma", sigma, 0.0, closed="neither")


def check_jitter(jitter: object, n_arms: int) -> float:
    """Return the standard deviation of features, by default that of the paper."""
    if jitter is None:
        return math.sqrt(0.5 / n_arms)
    return real("jitter", jitter, 0.0, LARGEST_FEATURE)


class Instance:
    """What the instances of contextual environments have in common."""

    n_arms: int
    n_actions: int
    n_features: tuple[int, int]
    noise: Noise
    link: LinkName
    sigma: float

    def component_size(self, kind: Kind = "subgaussian") -> float:
        """Return the size of the noise (inf where it has none)."""
        return noise_law(self.noise, self.sigma).size(kind)

    def block(
        self, rng: np.random.Generator, n: int, out: ContextBlock | None = None
    ) -> ContextBlock:
        """Return the next `n` rounds.

        Parameters
        ----------
        rng
            The stream of the environment; each round draws from it in the same order, whatever `n`.
        n
            Number of rounds.
        out
            A block of this environment, at least as long, that is no longer needed. It is
            overwritten and its first `n` rounds are returned; this saves fetching new memory.
        """
        n = integer("n", n, 0)
        block = self._new_block(n) if out is None else self._reused(out, n)
        self._draw(rng, block)
        return block

    def _draw(self, rng: np.random.Generator, block: ContextBlock) -> None:
        raise NotImplementedError

    def _new_block(self, n: int) -> ContextBlock:
        k, (d, q) = self.n_actions, self.n_features
        return ContextBlock(
            np.empty((n, k), dtype=np.int64),
            np.empty((n, d, k)),
            np.empty((n, q, k)),
            np.empty((n, k)),
            np.empty((n, k)),
            np.empty(n, dtype=np.int64),
        )

    def _reused(self, out: ContextBlock, n: int) -> ContextBlock:
        if not isinstance(out, ContextBlock):
            raise InvalidParameterError(f"`out` must be a ContextBlock; got {type(out).__name__}")
        fresh = self._new_block(0)
        fits = out.count.size >= n and all(
            a.shape == (out.count.size, *b.shape[1:]) and a.dtype == b.dtype and a.flags.carray
            for a, b in zip(out, fresh)
        )
        if not fits:
            d, q = self.n_features
            raise InvalidParameterError(
                f"`out` must be a block of at least {n} rounds with {self.n_actions} actions and "
                f"({d}, {q}) features; got z of shape {out.z.shape} and w of shape {out.w.shape}"
            )
        parts: Any = (a[:n] for a in out)
        return ContextBlock(*parts)


class FixedInstance(Instance):
    """An environment that is its own instance and is rebuilt by its parameters."""

    def instance(self, rng: np.random.Generator) -> Any:
        """Return the environment of one replication: itself, nothing is drawn."""
        return self

    def parameters(self) -> dict[str, Any]:
        """Return the keyword arguments that rebuild this environment."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """Return the environment as plain data; see `zib.env.from_dict`."""
        return {"environment": type(self).__name__, **self.parameters()}

    def __repr__(self) -> str:
        inside = ", ".join(f"{name}={v!r}" for name, v in self.parameters().items())
        return f"{type(self).__name__}({inside})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FixedInstance) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash(json.dumps(self.to_dict()))


def _fill(
    link: Any,
    codes: Any,
    scales: Any,
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
    """Draw rounds in which every arm is an action: features, then the uniform, then the noise."""
    noise, transform = codes
    sigma, jitter = scales
    d, n_arms = centres.shape
    for t in range(count.size):
        count[t] = n_arms
        for k in range(n_arms):
            arms[t, k] = k
        for j in range(d):
            for k in range(n_arms):
                z[t, j, k] = rng.standard_normal()
            for k in range(n_arms):
                z[t, j, k] = centres[j, k] + jitter * z[t, j, k]
        transform_and_predict(transform, beta, theta, z, w, reward, mean, t, n_arms)
        settle(link, noise, sigma, rng, reward, mean, t, n_arms)


_fill_all = cached_njit(_fill)


class ContextualGLM(FixedInstance):
    """Arms with noisy features; both parts of the reward are generalised linear in them.

    Parameters
    ----------
    beta
        Coefficients of the magnitude, one per feature.
    theta
        Coefficients of the occurrence, one per feature.
    centres
        One row per arm: the mean of its features.
    jitter
        Standard deviation of each feature about its centre; 1/√(2K) for K arms by default.
    link
        ``"probit"``, ``"logit"``, ``"cauchit"``, ``"cloglog"`` or ``"log"``.
    noise
        ``"gaussian"``, ``"mixture"`` or ``"exponential"``.
    sigma
        Standard deviation of the noise.
    transform
        ``"sin"``, element by element, or ``"identity"``: how the features of the occurrence come
        from those of the magnitude.

    Notes
    -----
    In each round arm k has features x ~ N(ν_k, jitter² I), and with z = x, w = ψ(x) it pays
    R = Y·(z'β + ε), Y ~ Bernoulli(h(w'θ)). Its expectation given the features is z'β·h(w'θ), since
    ε has mean 0 and does not depend on Y. All arms share ε and the uniform number that decides on
    Y, so that comparing two of them is less noisy; each alone has the law above.

    The noise is sigma times N(0, 1), ½N(−√¾, ¼) + ½N(√¾, ¼) or Exp(1) − 1. The log link is capped:
    p = min(1, exp(w'θ)), so give it negative predictors.

    Examples
    --------
    >>> env = ContextualGLM([0.6, 0.8], [1.0, 0.0], centres=[[1, 0], [0, 1], [0.6, 0.8]])
    >>> block = env.block(np.random.default_rng(0), 5)
    >>> block.z.shape, block.reward.shape
    ((5, 2, 3), (5, 3))
    """

    def __init__(
        self,
        beta: object,
        theta: object,
        centres: object,
        *,
        jitter: float | None = None,
        link: LinkName = "probit",
        noise: Noise = "gaussian",
        sigma: float = 1.0,
        transform: Transform = "sin",
    ) -> None:
        self._beta = np.array(vector("beta", beta)) + 0.0
        self._theta = np.array(vector("theta", theta)) + 0.0
        rows = matrix("centres", centres, LARGEST_FEATURE)
        d = self._beta.size
        if self._theta.size != d:
            raise InvalidParameterError(
                f"`theta` must have one entry per entry of `beta` ({d}); got {self._theta.size}"
            )
        if rows.shape[1] != d:
            raise InvalidParameterError(
                f"`centres` must have one column per entry of `beta` ({d}); got {rows.shape[1]}"
            )
        self.n_arms = self.n_actions = rows.shape[0]
        self.n_features = (d, d)
        self._columns = np.ascontiguousarray(rows.T)
        self.jitter = check_jitter(jitter, self.n_arms)
        self.sigma = check_common(link, noise, sigma)
        self.link, self.noise, self.transform = link, noise, transform
        self._codes = (NOISES.index(noise), choice("transform", transform, TRANSFORMS))

    @property
    def beta(self) -> Array:
        """Coefficients of the magnitude."""
        return read_only(self._beta)

    @property
    def theta(self) -> Array:
        """Coefficients of the occurrence."""
        return read_only(self._theta)

    @property
    def centres(self) -> Array:
        """One row per arm: the mean of its features."""
        return read_only(self._columns.T)

    def _draw(self, rng: np.random.Generator, block: ContextBlock) -> None:
        _fill_all(
            LINKS[self.link],
            self._codes,
            (self.sigma, self.jitter),
            self._beta,
            self._theta,
            self._columns,
            rng,
            *block,
        )

    def parameters(self) -> dict[str, Any]:
        """Return the keyword arguments that rebuild this environment."""
        return {
            "beta": self._beta.tolist(),
            "theta": self._theta.tolist(),
            "centres": self._columns.T.tolist(),
            "jitter": self.jitter,
            "link": self.link,
            "noise": self.noise,
            "sigma": self.sigma,
            "transform": self.transform,
        }
