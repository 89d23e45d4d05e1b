"""Environments that change with the round: how often and how much, or what is on offer.

A multi-armed one says ``by_round = True``, and its instances have ``round_block(rng, start, n)``:
the rewards and the mean rewards of all arms in n rounds. In `DriftingActions` the number, the
identity and the features of actions change.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from zib.core import validate as check
from zib.core.cache import cached_njit
from zib.core.rng import Role, stream
from zib.core.spec import positive, real, whole, word
from zib.core.validate import InvalidParameterError
from zib.env.contextual import (
    NOISES,
    ContextBlock,
    ContextualGLM,
    Instance,
    LinkName,
    Noise,
    Noisy,
    RandomContextual,
    settle,
    transform_and_predict,
)
from zib.env.laws import Gaussian
from zib.env.registry import (
    Array,
    ContextualEnvironment,
    Environment,
    Kind,
    as_tuple,
    custom,
    frozen,
    instance_of,
    maybe,
    pair,
    register_id,
    sequence,
)

Pattern = Literal["jumps", "waves", "walk"]
PATTERNS: tuple[Pattern, ...] = ("jumps", "waves", "walk")
SKIPPED = 4096  # rows made at a time on the way to a later round
SMALLEST_UNIFORM = 2.0**-54  # in place of zero, whose normal quantile is not finite


class RoundBlock(NamedTuple):
    """What all arms pay in some rounds, and their mean rewards; one row per round."""

    reward: Array
    mean: Array


class Paths(NamedTuple):
    """Probabilities and mean magnitudes of all arms in some rounds; one row per round."""

    probs: Array
    means: Array


class RoundMAB:
    """Zero-inflated Gaussian arms whose p and mu depend on the round: what the kinds share."""

    by_round: ClassVar[bool] = True
    n_arms: Any
    sigma: Any

    def paths(self, start: int, n: int) -> Paths:
        """Return p and mu of all arms in rounds start, …, start + n − 1, counted from 0."""
        raise NotImplementedError

    def round_block(self, rng: np.random.Generator, start: int, n: int) -> RoundBlock:
        """Draw what every arm pays in rounds start, …, start + n − 1, counted from 0.

        Each arm takes two uniforms per round, so blocks of any sizes make the same rewards.
        """
        from scipy.special import ndtri

        probs, means = self.paths(start, n)
        uniforms = rng.random((n, self.n_arms, 2))
        paid = uniforms[:, :, 0] < probs
        reward = np.zeros((n, self.n_arms))
        normal = ndtri(np.maximum(uniforms[:, :, 1][paid], SMALLEST_UNIFORM))
        reward[paid] = means[paid] + self.sigma * normal
        return RoundBlock(reward, probs * means)

    def component_size(self, kind: Kind = "subgaussian") -> float:
        """Return the size of the non-zero part, the same in all rounds (inf where it has none)."""
        return Gaussian(0.0, self.sigma).size(kind)


def _table(low: float, high: float) -> Callable[[str, Any], Array]:
    """Return the check of p or mu: one row per stretch of rounds, one column per arm."""

    def checked(name: str, value: Any) -> Array:
        array = np.atleast_2d(check.numbers(name, value))
        if array.ndim != 2 or array.size == 0:
            raise InvalidParameterError(
                f"`{name}` must have one row per stretch of rounds and one column per arm; "
                f"got shape {array.shape}"
            )
        check.inside(name, array, low, high)
        return frozen(array)

    return checked


class PathMAB(RoundMAB, Environment):
    """Arms that follow given paths.

    Parameters
    ----------
    probs, means
        Tables of p and mu: one row per stretch of rounds, one column per arm. A single row holds
        for all rounds.
    sigma
        Standard deviation of the non-zero rewards.
    starts
        The round at which each row begins, counted from 0 and increasing from 0; by default every
        row holds for one round. The last row holds for ever.

    Examples
    --------
    >>> env = PathMAB(probs=[[0.1, 0.2], [0.3, 0.2]], means=[1.0, 1.0], sigma=0.5, starts=[0, 100])
    >>> env.paths(99, 2).probs.tolist()
    [[0.1, 0.2], [0.3, 0.2]]
    """

    probs: Any = custom(_table(0.0, 1.0), shown=as_tuple, allowed="rows of numbers in [0, 1]")
    means: Any = custom(_table(-np.inf, np.inf), shown=as_tuple, allowed="rows of numbers")
    sigma: float = positive()
    starts: Any = maybe(sequence(0.0), default=None)

    def check(self) -> None:
        """Raise unless the tables fit each other; give both all rows."""
        p, mu = self.probs, self.means
        rows = max(len(p), len(mu))
        if p.shape[1] != mu.shape[1] or {len(p), len(mu)} - {1, rows}:
            raise InvalidParameterError(
                "`probs` and `means` must have the same shape, or one of them a single row; "
                f"got {p.shape} and {mu.shape}"
            )
        shape = (rows, p.shape[1])
        starts = _starts(self.starts, rows)
        self._set(
            probs=frozen(np.broadcast_to(p, shape)),
            means=frozen(np.broadcast_to(mu, shape)),
            starts=tuple(starts.tolist()),
        )

    @property
    def n_arms(self) -> int:
        """Number of arms."""
        return int(self.probs.shape[1])

    @cached_property
    def _first_rounds(self) -> NDArray[np.int64]:
        return np.array(self.starts)

    def paths(self, start: int, n: int) -> Paths:
        """Return p and mu of all arms in rounds start, …, start + n − 1, counted from 0."""
        row = np.searchsorted(self._first_rounds, np.arange(start, start + n), side="right") - 1
        return Paths(self.probs[row], self.means[row])


def _starts(value: tuple[float, ...] | None, rows: int) -> NDArray[np.int64]:
    if value is None:
        return np.arange(rows)
    given = np.array(value)
    starts = given.astype(np.int64)
    if (
        starts.size != rows
        or (starts != given).any()
        or starts[0] != 0
        or (np.diff(starts) < 1).any()
    ):
        raise InvalidParameterError(
            f"`starts` must hold {rows} whole numbers, one per row, increasing from 0; "
            f"got {check.shown(value)}"
        )
    return starts


# ------------------------------------------------------------------------------- random instances


class _Mover:
    """A path of one number in [0, 1] per arm, made on the way; it can start again."""

    def __init__(self, seed: int, speed: float, n_arms: int) -> None:
        self._seed, self._speed, self._n_arms = seed, speed, n_arms
        self._restart()

    def _restart(self) -> None:
        self._rng = stream(self._seed, Role.INSTANCE)
        self._at = 0
        self._place = self._rng.random(self._n_arms)

    def rows(self, start: int, n: int) -> Array:
        if start < self._at:
            self._restart()
        while self._at < start:
            self._next(min(start - self._at, SKIPPED))
        return self._next(n)

    def _next(self, n: int) -> Array:
        rows = self._moved(n)
        self._at += n
        return rows

    def _moved(self, n: int) -> Array:
        raise NotImplementedError


class _Jumps(_Mover):
    """New uniform places for all arms, at random rounds."""

    def _restart(self) -> None:
        super()._restart()
        self._change = self._wait()

    def _wait(self) -> float:
        return float(self._rng.geometric(self._speed)) if self._speed > 0.0 else np.inf

    def _moved(self, n: int) -> Array:
        rows = np.empty((n, self._n_arms))
        first = 0
        while self._change < self._at + n:
            last = int(self._change) - self._at
            rows[first:last] = self._place
            self._place = self._rng.random(self._n_arms)
            self._change += self._wait()
            first = last
        rows[first:] = self._place
        return rows


class _Waves(_Mover):
    """Sine waves; every arm has its own phase."""

    def _moved(self, n: int) -> Array:
        rounds = np.arange(self._at, self._at + n, dtype=np.float64)[:, None]
        turns = self._place + self._speed * rounds
        return np.asarray(0.5 + 0.5 * np.sin(2.0 * np.pi * (turns - np.floor(turns))))


class _Walk(_Mover):
    """Gaussian steps, reflected at both ends by folding the free walk."""

    def _moved(self, n: int) -> Array:
        steps = np.empty((n + 1, self._n_arms))
        steps[0] = self._place
        steps[1:] = self._speed * self._rng.standard_normal((n, self._n_arms))
        free = np.cumsum(steps, axis=0)
        self._place = free[-1]
        return np.asarray(1.0 - np.abs(1.0 - np.mod(free[:-1], 2.0)))


_MOVERS: dict[str, type[_Mover]] = {"jumps": _Jumps, "waves": _Waves, "walk": _Walk}


class MovingMAB(RoundMAB):
    """One run of `DriftingMAB`; it goes forward in little memory, and back by starting again."""

    def __init__(self, maker: DriftingMAB, seeds: tuple[int, int]) -> None:
        self.n_arms, self.sigma = maker.n_arms, maker.sigma
        mover = _MOVERS[maker.pattern]
        self._prob_mover = mover(seeds[0], maker.prob_speed, maker.n_arms)
        self._mean_mover = mover(seeds[1], maker.mean_speed, maker.n_arms)
        self._logits = tuple(float(np.log(p / (1.0 - p))) for p in maker.probs)
        self._magnitudes = maker.magnitudes

    def paths(self, start: int, n: int) -> Paths:
        """Return p and mu of all arms in rounds start, …, start + n − 1, counted from 0."""
        low, high = self._logits
        logit = low + (high - low) * self._prob_mover.rows(start, n)
        low, high = self._magnitudes
        means = low + (high - low) * self._mean_mover.rows(start, n)
        return Paths(1.0 / (1.0 + np.exp(-logit)), means)


class DriftingMAB(Environment, positional=7):
    """Arms whose p and mu move, each at its own speed; a new instance for every replication.

    Parameters
    ----------
    n_arms
        Number of arms.
    pattern
        How they move between the ends of their intervals; speeds are per round, and 0 means never.
        ``"jumps"``: at random rounds all arms get new values; the speed is the probability of a
        change in a round. ``"waves"``: sine waves with random phases; the speed is the number of
        cycles per round. ``"walk"``: reflected Gaussian random walks; the speed is the standard
        deviation of a step, as a part of the length of the interval.
    prob_speed, mean_speed
        Speed of p and of mu.
    probs, magnitudes
        Intervals of p and of mu, inside (0, 1) and anywhere. What moves is the logit of p.
    sigma
        Standard deviation of the non-zero rewards, which are Gaussian.

    Notes
    -----
    p and mu move independently of each other and in separate streams, so instances of the same
    seed that differ in `prob_speed` only have the same mu in all rounds.

    Examples
    --------
    >>> env = DriftingMAB(n_arms=3, prob_speed=0.01).instance(np.random.default_rng(0))
    >>> probs, means = env.paths(0, 1000)
    >>> len(np.unique(probs[:, 0])), len(np.unique(means[:, 0]))
    (12, 1)
    """

    n_arms: int = whole(low=1, default=10)
    pattern: Pattern = word(PATTERNS, default="jumps")
    prob_speed: float = real(low=0.0, high=1.0, default=0.0)
    mean_speed: float = real(low=0.0, high=1.0, default=0.0)
    probs: tuple[float, float] = pair(0.0, 1.0, "neither", default=(0.05, 0.35))
    magnitudes: tuple[float, float] = pair(closed="neither", default=(1.0, 3.0))
    sigma: float = positive(default=0.5)

    by_round: ClassVar[bool] = True

    def component_size(self, kind: Kind = "subgaussian") -> float:
        """Return the size of the non-zero part, the same in all rounds (inf where it has none)."""
        return Gaussian(0.0, self.sigma).size(kind)

    def instance(self, rng: np.random.Generator) -> MovingMAB:
        """Return a new run; its paths are made as they are asked for."""
        of_probs, of_means = rng.integers(2**63, size=2)
        return MovingMAB(self, (int(of_probs), int(of_means)))


for _what, _speeds in {"probs": (5e-5, 0.0), "means": (0.0, 5e-5), "none": (0.0, 0.0)}.items():
    register_id(
        f"drifting-mab-{_what}-v1",
        partial(DriftingMAB, pattern="waves", prob_speed=_speeds[0], mean_speed=_speeds[1]),
    )


# ------------------------------------------------------------------------- what is on offer moves


def _fill_drifting(
    link: Any,
    codes: Any,
    scales: Any,
    sizes: Any,
    beta: Any,
    theta: Any,
    centres: Any,
    rng: Any,
    block: Any,
) -> None:
    """Draw rounds: how many actions, which, features, the uniform, the noise, the drift."""
    arms, z, w, reward, mean, count = block
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


class DriftingRun(Noisy, Instance):
    """One run of `DriftingActions`.

    `block` moves the centres on, so this object belongs to one run: two runs from the same random
    streams need an instance each. The base it was made from does not change.
    """

    def __init__(self, base: ContextualGLM, low: int, high: int, drift: float) -> None:
        self._base = base
        self._centres: Array = base.parts[-1].copy()
        self._sizes = (low, high)
        self._scales = (base.sigma, base.jitter, drift)
        self.n_arms, self.n_actions, self.n_features = base.n_arms, high, base.n_features
        self.link, self.noise, self.sigma = base.link, base.noise, base.sigma

    @property
    def centres(self) -> Array:
        """One row per arm: the mean of its features in the next round (a copy)."""
        return self._centres.T.copy()

    def _draw(self, rng: np.random.Generator, block: ContextBlock) -> None:
        link, codes, beta, theta, _ = self._base.parts
        _fill_some(link, codes, self._scales, self._sizes, beta, theta, self._centres, rng, block)


class DriftingActions(Noisy, ContextualEnvironment, positional=4):
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

    base: ContextualGLM | RandomContextual = instance_of(
        (ContextualGLM, RandomContextual), "a ContextualGLM or a RandomContextual"
    )
    low: int = whole(low=1, default=5)
    high: int = whole(low=1, default=20)
    drift: float = real(low=0.0, high=1.0, default=0.001)

    def check(self) -> None:
        """Raise unless low <= high <= number of items."""
        check.integer("high", self.high, 1, self.base.n_arms)
        check.integer("low", self.low, 1, self.high)

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

    def instance(self, rng: np.random.Generator) -> DriftingRun:
        """Return a run of its own, after drawing the base if that is random."""
        return DriftingRun(self.base.instance(rng), self.low, self.high, self.drift)


for _noise in NOISES:
    register_id(f"drifting-{_noise}-v1", partial(DriftingActions, RandomContextual(noise=_noise)))
