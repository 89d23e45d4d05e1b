"""Contextual environments redrawn for each replication, with common or separate coefficients."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, cast

import numpy as np

from zib.contextual.link import inverse
from zib.core.cache import cached_njit
from zib.core.validate import InvalidParameterError, choice, integer, real, vector
from zib.env.contextual import (
    ContextBlock,
    ContextualGLM,
    FixedInstance,
    check_common,
    check_jitter,
    matrix,
    read_only,
)
from zib.env.contextual_draws import (
    LINKS,
    NOISES,
    TRANSFORMS,
    LinkName,
    Noise,
    Transform,
    noise_law,
    settle,
)
from zib.env.rewards import Array, Kind


class ContextualGenerator:
    """What frozen dataclasses that generate contextual environments have in common."""

    def parameters(self) -> dict[str, Any]:
        """Return the keyword arguments that rebuild this generator."""
        return {f.name: getattr(self, f.name) for f in fields(cast("Any", self))}

    def to_dict(self) -> dict[str, Any]:
        """Return the generator as plain data; see `zib.env.from_dict`."""
        plain = {k: list(v) if isinstance(v, tuple) else v for k, v in self.parameters().items()}
        return {"environment": type(self).__name__, **plain}

    def _set(self, **checked: Any) -> None:
        for name, v in checked.items():
            object.__setattr__(self, name, v)


class _EveryArm(ContextualGenerator):
    """A generator of environments in which every arm is an action of every round."""

    n_arms: int
    dimension: int
    noise: Noise
    sigma: float

    @property
    def n_actions(self) -> int:
        """Number of actions in each round: every arm is one."""
        return self.n_arms

    @property
    def n_features(self) -> tuple[int, int]:
        """Number of features of the magnitude and of the occurrence."""
        return (self.dimension, self.dimension)

    def component_size(self, kind: Kind = "subgaussian") -> float:
        """Return the size of the noise (inf where it has none)."""
        return noise_law(self.noise, self.sigma).size(kind)


def _interval(name: str, values: object, low: float, high: float) -> tuple[float, float]:
    pair = vector(name, values, low, high, closed="neither")
    if pair.size != 2 or pair[0] > pair[1]:
        raise InvalidParameterError(f"`{name}` must be a pair (low, high); got {values!r}")
    return float(pair[0]), float(pair[1])


def _sparse_units(rng: np.random.Generator, rows: int, d: int, s: int) -> Array:
    """Return rows of norm 1 with `s` non-zero entries, U(0, 1] before scaling, anywhere."""
    where = np.argsort(rng.random((rows, d)), axis=1)[:, :s]
    out = np.zeros((rows, d))
    np.put_along_axis(out, where, 1.0 - rng.random((rows, s)), axis=1)
    return np.asarray(out / np.linalg.norm(out, axis=1, keepdims=True))


@dataclass(frozen=True)
class RandomContextual(_EveryArm):
    """A new contextual bandit for every replication, as in the study of the paper.

    Parameters
    ----------
    n_arms
        Number of arms K.
    dimension
        Number of features d of each part.
    sparsity
        Number of non-zero entries of θ and of each centre.
    noise, link, sigma, jitter, transform
        As in `ContextualGLM`.

    Notes
    -----
    β has entries U[0, 1]; θ and the centres ν_1, …, ν_K have `sparsity` such entries at random
    positions, each vector its own; every vector is scaled to norm 1. The paper says so about β;
    that it holds for θ and ν_k too is our reading.

    With the log link θ is turned to −θ. Positive predictors would make every arm pay always; this
    way p = exp(−w'|θ|) spreads below 1, the norm stays and a model without intercept is right. An
    arm whose centre shares no entry with θ still has p near 1. This is our choice.

    Examples
    --------
    >>> maker = RandomContextual(n_arms=5, dimension=3, sparsity=2)
    >>> env = maker.instance(np.random.default_rng(0))
    >>> np.count_nonzero(env.centres, axis=1).tolist()
    [2, 2, 2, 2, 2]
    """

    n_arms: int = 100
    dimension: int = 10
    sparsity: int = 7
    noise: Noise = "gaussian"
    link: LinkName = "probit"
    sigma: float = 1.0
    jitter: float | None = None
    transform: Transform = "sin"

    def __post_init__(self) -> None:
        n_arms = integer("n_arms", self.n_arms, 1)
        dimension = integer("dimension", self.dimension, 1)
        sparsity = integer("sparsity", self.sparsity, 1, dimension)
        choice("transform", self.transform, TRANSFORMS)
        self._set(
            n_arms=n_arms,
            dimension=dimension,
            sparsity=sparsity,
            sigma=check_common(self.link, self.noise, self.sigma),
            jitter=check_jitter(self.jitter, n_arms),
        )

    def instance(self, rng: np.random.Generator) -> ContextualGLM:
        """Draw β, then θ and the centres, and return the environment they make."""
        d = self.dimension
        beta = 1.0 - rng.random(d)
        beta /= np.linalg.norm(beta)
        rows = _sparse_units(rng, 1 + self.n_arms, d, self.sparsity)
        return ContextualGLM(
            beta,
            -rows[0] if self.link == "log" else rows[0],
            rows[1:],
            jitter=self.jitter,
            link=self.link,
            noise=self.noise,
            sigma=self.sigma,
            transform=self.transform,
        )


# -------------------------------------------------------------------------- one context, many arms


def _fill_disjoint(
    link: Any,
    codes: Any,
    sigma: float,
    beta: Any,
    theta: Any,
    rng: Any,
    arms: Any,
    z: Any,
    w: Any,
    reward: Any,
    mean: Any,
    count: Any,
) -> None:
    """Draw rounds with one context: its features, then the uniform, then the noise."""
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


class DisjointGLM(FixedInstance):
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

    def __init__(
        self,
        beta: object,
        theta: object,
        *,
        intercept: bool = True,
        link: LinkName = "probit",
        noise: Noise = "gaussian",
        sigma: float = 1.0,
    ) -> None:
        rows, others = matrix("beta", beta), matrix("theta", theta)
        if rows.shape != others.shape:
            raise InvalidParameterError(
                f"`theta` must have the shape of `beta` {rows.shape}; got {others.shape}"
            )
        self.n_arms = self.n_actions = rows.shape[0]
        self.n_features = (rows.shape[1], rows.shape[1])
        self._beta, self._theta = np.ascontiguousarray(rows.T), np.ascontiguousarray(others.T)
        self.intercept = bool(intercept)
        self.sigma = check_common(link, noise, sigma)
        self.link, self.noise = link, noise

    @property
    def beta(self) -> Array:
        """One row per arm: coefficients of the magnitude."""
        return read_only(self._beta.T)

    @property
    def theta(self) -> Array:
        """One row per arm: coefficients of the occurrence."""
        return read_only(self._theta.T)

    def _draw(self, rng: np.random.Generator, block: ContextBlock) -> None:
        codes = (NOISES.index(self.noise), int(self.intercept))
        _fill_shared(LINKS[self.link], codes, self.sigma, self._beta, self._theta, rng, *block)

    def parameters(self) -> dict[str, Any]:
        """Return the keyword arguments that rebuild this environment."""
        return {
            "beta": self._beta.T.tolist(),
            "theta": self._theta.T.tolist(),
            "intercept": self.intercept,
            "link": self.link,
            "noise": self.noise,
            "sigma": self.sigma,
        }


@dataclass(frozen=True)
class DisjointContextual(_EveryArm):
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

    n_arms: int = 10
    dimension: int = 5
    magnitudes: tuple[float, float] = (1.0, 3.0)
    probs: tuple[float, float] = (0.1, 0.3)
    effect: float = 0.5
    link: LinkName = "probit"
    noise: Noise = "gaussian"
    sigma: float = 1.0

    def __post_init__(self) -> None:
        self._set(
            n_arms=integer("n_arms", self.n_arms, 1),
            dimension=integer("dimension", self.dimension, 1),
            magnitudes=_interval("magnitudes", self.magnitudes, -math.inf, math.inf),
            probs=_interval("probs", self.probs, 0.0, 1.0),
            effect=real("effect", self.effect, 0.0),
            sigma=check_common(self.link, self.noise, self.sigma),
        )

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
