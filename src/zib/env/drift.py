"""Multi-armed environments that change with the round; how often and how much move separately.

An environment of this kind says ``by_round = True``, and its instances have
``round_block(rng, start, n)``: the rewards and the mean rewards of all arms in n rounds.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from zib.core.rng import Role, stream
from zib.core.validate import InvalidParameterError, choice, inside, integer, real, vector
from zib.env.rewards import Array, Gaussian, Kind

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
    n_arms: int
    sigma: float

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


def _path(name: str, value: object, low: float, high: float) -> Array:
    try:
        array = np.array(value, dtype=np.float64, ndmin=2)
    except (TypeError, ValueError):
        raise InvalidParameterError(
            f"`{name}` must be a table of numbers, one row per stretch of rounds; got {value!r}"
        ) from None
    if array.ndim != 2 or array.size == 0:
        raise InvalidParameterError(
            f"`{name}` must have one row per stretch of rounds and one column per arm; "
            f"got shape {array.shape}"
        )
    inside(name, array, low, high)
    return array


class PathMAB(RoundMAB):
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

    def __init__(
        self, *, probs: object, means: object, sigma: float, starts: object = None
    ) -> None:
        p, mu = _path("probs", probs, 0.0, 1.0), _path("means", means, -np.inf, np.inf)
        self.sigma = real("sigma", sigma, 0.0, closed="neither")
        rows = max(len(p), len(mu))
        if p.shape[1] != mu.shape[1] or {len(p), len(mu)} - {1, rows}:
            raise InvalidParameterError(
                "`probs` and `means` must have the same shape, or one of them a single row; "
                f"got {p.shape} and {mu.shape}"
            )
        self.n_arms = p.shape[1]
        self._probs, self._means = (np.broadcast_to(x, (rows, self.n_arms)) for x in (p, mu))
        self._starts = _starts(starts, rows)

    def paths(self, start: int, n: int) -> Paths:
        """Return p and mu of all arms in rounds start, …, start + n − 1, counted from 0."""
        row = np.searchsorted(self._starts, np.arange(start, start + n), side="right") - 1
        return Paths(self._probs[row], self._means[row])

    def instance(self, rng: np.random.Generator) -> PathMAB:
        """Return the environment of one replication: itself, nothing is drawn."""
        return self

    def parameters(self) -> dict[str, Any]:
        """Return the keyword arguments that rebuild this environment."""
        return {
            "probs": self._probs.tolist(),
            "means": self._means.tolist(),
            "sigma": self.sigma,
            "starts": self._starts.tolist(),
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the environment as plain data; see `zib.env.from_dict`."""
        return {"environment": "PathMAB", **self.parameters()}

    def __repr__(self) -> str:
        inside = ", ".join(f"{name}={value!r}" for name, value in self.parameters().items())
        return f"PathMAB({inside})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PathMAB) and self.parameters() == other.parameters()

    def __hash__(self) -> int:
        return hash(repr(self))


def _starts(value: object, rows: int) -> NDArray[np.int64]:
    if value is None:
        return np.arange(rows)
    given = vector("starts", value, 0.0)
    starts = given.astype(np.int64)
    if (
        starts.size != rows
        or (starts != given).any()
        or starts[0] != 0
        or (np.diff(starts) < 1).any()
    ):
        raise InvalidParameterError(
            f"`starts` must hold {rows} whole numbers, one per row, increasing from 0; "
            f"got {value!r}"
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


@dataclass(frozen=True)
class DriftingMAB:
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

    n_arms: int = 10
    pattern: Pattern = "jumps"
    prob_speed: float = 0.0
    mean_speed: float = 0.0
    probs: tuple[float, float] = (0.05, 0.35)
    magnitudes: tuple[float, float] = (1.0, 3.0)
    sigma: float = 0.5

    by_round: ClassVar[bool] = True

    def __post_init__(self) -> None:
        choice("pattern", self.pattern, PATTERNS)
        checked = {
            "n_arms": integer("n_arms", self.n_arms, 1),
            "prob_speed": real("prob_speed", self.prob_speed, 0.0, 1.0),
            "mean_speed": real("mean_speed", self.mean_speed, 0.0, 1.0),
            "probs": _interval("probs", self.probs, 0.0, 1.0),
            "magnitudes": _interval("magnitudes", self.magnitudes, -np.inf, np.inf),
            "sigma": real("sigma", self.sigma, 0.0, closed="neither"),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    def component_size(self, kind: Kind = "subgaussian") -> float:
        """Return the size of the non-zero part, the same in all rounds (inf where it has none)."""
        return Gaussian(0.0, self.sigma).size(kind)

    def instance(self, rng: np.random.Generator) -> MovingMAB:
        """Return a new run; its paths are made as they are asked for."""
        of_probs, of_means = rng.integers(2**63, size=2)
        return MovingMAB(self, (int(of_probs), int(of_means)))

    def parameters(self) -> dict[str, Any]:
        """Return the keyword arguments that rebuild this generator."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def to_dict(self) -> dict[str, Any]:
        """Return the generator as plain data; see `zib.env.from_dict`."""
        plain = {k: list(v) if isinstance(v, tuple) else v for k, v in self.parameters().items()}
        return {"environment": "DriftingMAB", **plain}


def _interval(name: str, value: object, low: float, high: float) -> tuple[float, float]:
    pair = vector(name, value, low, high, closed="neither")
    if pair.size != 2 or pair[0] > pair[1]:
        raise InvalidParameterError(f"`{name}` must be a pair (low, high); got {value!r}")
    return float(pair[0]), float(pair[1])
