"""Contextual environments: rewards that depend on features, drawn in blocks of rounds.

An environment has `n_actions` (the most actions of a round), `n_arms` (how many different arm
numbers there are), ``n_features = (d, q)`` and ``instance(rng)``; an instance also has
``block(rng, n)``, which returns the next n rounds. Rounds are drawn one after the other in a fixed
order, so two blocks of n rounds are, bit for bit, one block of 2n.
"""

from __future__ import annotations

import math
from functools import cached_property, partial
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from zib.contextual.links import StandardLink, value
from zib.core import validate as check
from zib.core.cache import cached_njit
from zib.core.kernel import borrowing, jitable
from zib.core.spec import positive, real, whole, word
from zib.core.validate import InvalidParameterError
from zib.env.laws import Exponential, Gaussian, GaussianMixture, Law
from zib.env.registry import Array, ContextualEnvironment, Kind, matrix, maybe, register_id, vector

LinkName = Literal["probit", "logit", "cauchit", "cloglog", "log"]
Noise = Literal["gaussian", "mixture", "exponential"]
Transform = Literal["sin", "identity"]

LINK_NAMES: tuple[LinkName, ...] = ("probit", "logit", "cauchit", "cloglog", "log")
NOISES: tuple[Noise, ...] = ("gaussian", "mixture", "exponential")
TRANSFORMS: tuple[Transform, ...] = ("sin", "identity")
# one type of link, so that one compilation serves all five
LINKS: dict[str, Any] = {name: StandardLink(name=name) for name in LINK_NAMES}
_MIXTURE, _EXPONENTIAL = 1, 2  # positions in NOISES and TRANSFORMS
_SINE = 0

# The mixture noise is ½N(−a, s²) + ½N(a, s²) with a² + s² = 1: two clear peaks, variance 1.
MIXTURE_SD = 0.5
MIXTURE_OFFSET = math.sqrt(0.75)
LARGEST_FEATURE = 1e6  # `sine` is accurate well beyond it


def noise_law(noise: Noise, sigma: float) -> Law:
    """Return a law that differs from that of the noise by its mean only."""
    if noise == "gaussian":
        return Gaussian(0.0, sigma)
    if noise == "mixture":
        return GaussianMixture(0.0, MIXTURE_SD * sigma, MIXTURE_OFFSET * sigma)
    return Exponential(sigma)


_INVERSE_PI = 1.0 / math.pi
# π in three parts; the first has 24 bits, so that its multiples below 2^29 are exact
_PI_HIGH = float.fromhex("0x1.921fb5p+1")
_PI_MIDDLE = math.pi - _PI_HIGH
_PI_LOW = 1.2246467991473532e-16
_ROUND = 1.5 * 2.0**52  # adding and subtracting it rounds to the nearest whole number
_S3, _S5, _S7, _S9, _S11, _S13, _S15, _S17, _S19, _S21 = (
    (-1.0) ** (i // 2) / math.factorial(i) for i in range(3, 22, 2)
)


@jitable
def sine(x: float) -> float:
    """Return sin(x) to within 3e-16 for |x| ≤ 1e8.

    Nothing but sums and products, so the compiler handles several numbers at once, which it does
    not with the sine of the C library; that one would take most of the time of a round.
    """
    n = (x * _INVERSE_PI + _ROUND) - _ROUND
    r = ((x - n * _PI_HIGH) - n * _PI_MIDDLE) - n * _PI_LOW
    odd = abs(n - 2.0 * ((n * 0.5 + _ROUND) - _ROUND))
    y = r * r
    p = _S19 + y * _S21
    p = _S17 + y * p
    p = _S15 + y * p
    p = _S13 + y * p
    p = _S11 + y * p
    p = _S9 + y * p
    p = _S7 + y * p
    p = _S5 + y * p
    p = _S3 + y * p
    return (r + r * (y * p)) * (1.0 - 2.0 * odd)


@jitable
def draw_noise(noise: int, sigma: float, rng: Any) -> float:
    """Return one noise, by its position in `NOISES`."""
    if noise == _EXPONENTIAL:
        drawn: float = rng.standard_exponential() - 1.0
    else:
        centre, sd = 0.0, 1.0
        if noise == _MIXTURE:
            centre = MIXTURE_OFFSET if rng.random() < 0.5 else -MIXTURE_OFFSET
            sd = MIXTURE_SD
        drawn = centre + sd * rng.standard_normal()
    return sigma * drawn


@jitable
def settle(
    link: Any, noise: int, sigma: float, rng: Any, reward: Any, mean: Any, t: int, count: int
) -> None:
    """Turn the linear predictors in `reward` (occurrence) and `mean` (magnitude) into the two.

    All actions of a round share one uniform number and one noise.
    """
    u = rng.random()
    noise_now = draw_noise(noise, sigma, rng)
    for k in range(count):
        p = min(value(link, reward[t, k]), 1.0)
        magnitude = mean[t, k]
        mean[t, k] = p * magnitude
        reward[t, k] = magnitude + noise_now if u < p else 0.0


@jitable
def transform_and_predict(
    transform: int,
    beta: Any,
    theta: Any,
    z: Any,
    w: Any,
    reward: Any,
    mean: Any,
    t: int,
    count: int,
) -> None:
    """Write w = ψ(z), and the linear predictors into `reward` and `mean`."""
    for k in range(count):
        mean[t, k] = 0.0
        reward[t, k] = 0.0
    for j in range(beta.size):
        b = beta[j]
        c = theta[j]
        if transform == _SINE:
            for k in range(count):
                w[t, j, k] = sine(z[t, j, k])
        else:
            for k in range(count):
                w[t, j, k] = z[t, j, k]
        for k in range(count):
            mean[t, k] += b * z[t, j, k]
            reward[t, k] += c * w[t, j, k]


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


class Instance:
    """What the instances of contextual environments have in common."""

    n_arms: Any
    n_actions: Any
    n_features: Any
    _block_type: ClassVar[type[Any]] = ContextBlock

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
        n = check.integer("n", n, 0)
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
        kind = self._block_type
        if not isinstance(out, kind):
            raise InvalidParameterError(
                f"`out` must be a {kind.__name__}; got {type(out).__name__}"
            )
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
        block: ContextBlock = kind(*parts)
        return block


class Noisy:
    """An environment whose magnitudes have one of the noises."""

    noise: Any
    sigma: Any

    def component_size(self, kind: Kind = "subgaussian") -> float:
        """Return the size of the noise (inf where it has none)."""
        return noise_law(self.noise, self.sigma).size(kind)


class EveryArm(Noisy):
    """An environment in which every arm is an action of every round.

    Both parts of the reward have the same number of features.
    """

    n_arms: Any
    dimension: Any

    @property
    def n_features(self) -> tuple[int, int]:
        """Number of features of the magnitude and of the occurrence."""
        return self.dimension, self.dimension

    @property
    def n_actions(self) -> int:
        """Number of actions in each round: every arm is one."""
        return int(self.n_arms)


class AroundCentres(EveryArm):
    """An environment whose arms have features that scatter about a centre of their own.

    `beta` holds one coefficient per feature, in one row or in several.
    """

    beta: Any
    centres: Any
    jitter: Any

    @property
    def n_arms(self) -> int:
        """Number of arms."""
        return len(self.centres)

    @property
    def dimension(self) -> int:
        """Number of features of each part."""
        return int(self.beta.shape[-1])

    def _check_centres(self) -> None:
        """Raise unless there is one coefficient per feature; fill in the usual jitter."""
        if self.centres.shape[1] != self.dimension:
            raise InvalidParameterError(
                f"`centres` must have one column per coefficient in `beta` ({self.dimension}); "
                f"got {self.centres.shape[1]}"
            )
        if self.jitter is None:
            self._set(jitter=usual_jitter(self.n_arms))  # type: ignore[attr-defined]


@borrowing
def fill(
    link: Any,
    codes: Any,
    scales: Any,
    beta: Any,
    theta: Any,
    centres: Any,
    rng: Any,
    block: Any,
) -> None:
    """Draw rounds in which every arm is an action: features, then the uniform, then the noise."""
    arms, z, w, reward, mean, count = block
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


_fill_all = cached_njit(fill)


def usual_jitter(n_arms: int) -> float:
    """Return the standard deviation of features in the study of the paper."""
    return math.sqrt(0.5 / n_arms)


class ContextualGLM(AroundCentres, Instance, ContextualEnvironment, positional=3):
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

    beta: Any = vector()
    theta: Any = vector()
    centres: Any = matrix(LARGEST_FEATURE)
    jitter: Any = maybe(real(low=0.0, high=LARGEST_FEATURE), default=None)
    link: LinkName = word(LINK_NAMES, default="probit")
    noise: Noise = word(NOISES, default="gaussian")
    sigma: float = positive(default=1.0)
    transform: Transform = word(TRANSFORMS, default="sin")

    def check(self) -> None:
        """Raise unless there is one coefficient per feature; fill in the usual jitter."""
        d = self.beta.size
        if self.theta.size != d:
            raise InvalidParameterError(
                f"`theta` must have one entry per entry of `beta` ({d}); got {self.theta.size}"
            )
        self._check_centres()

    @cached_property
    def parts(self) -> tuple[Any, ...]:
        """What compiled code draws rounds with: codes, and arrays of its own."""
        codes = (NOISES.index(self.noise), TRANSFORMS.index(self.transform))
        columns = np.ascontiguousarray(self.centres.T)
        return LINKS[self.link], codes, np.array(self.beta), np.array(self.theta), columns

    def _draw(self, rng: np.random.Generator, block: ContextBlock) -> None:
        link, codes, beta, theta, columns = self.parts
        _fill_all(link, codes, (self.sigma, self.jitter), beta, theta, columns, rng, block)


def _sparse_units(rng: np.random.Generator, rows: int, d: int, s: int) -> Array:
    """Return rows of norm 1 with `s` non-zero entries, U(0, 1] before scaling, anywhere."""
    where = np.argsort(rng.random((rows, d)), axis=1)[:, :s]
    out = np.zeros((rows, d))
    np.put_along_axis(out, where, 1.0 - rng.random((rows, s)), axis=1)
    return np.asarray(out / np.linalg.norm(out, axis=1, keepdims=True))


class RandomContextual(EveryArm, ContextualEnvironment, positional=8):
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

    n_arms: int = whole(low=1, default=100)
    dimension: int = whole(low=1, default=10)
    sparsity: int = whole(low=1, default=7)
    noise: Noise = word(NOISES, default="gaussian")
    link: LinkName = word(LINK_NAMES, default="probit")
    sigma: float = positive(default=1.0)
    jitter: Any = maybe(real(low=0.0, high=LARGEST_FEATURE), default=None)
    transform: Transform = word(TRANSFORMS, default="sin")

    def check(self) -> None:
        """Raise unless the sparsity is at most the dimension; fill in the usual jitter."""
        check.integer("sparsity", self.sparsity, 1, self.dimension)
        if self.jitter is None:
            self._set(jitter=usual_jitter(self.n_arms))

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


PAPER_SPARSITIES = (1, 3, 5, 7)

for _noise in NOISES:
    for _sparsity in PAPER_SPARSITIES:
        for _link in LINK_NAMES:
            register_id(
                f"paper-contextual-{_noise}-s{_sparsity}-{_link}-v1",
                partial(RandomContextual, sparsity=_sparsity, noise=_noise, link=_link),
            )
