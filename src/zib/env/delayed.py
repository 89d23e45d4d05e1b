"""Rewards that come late, and zeros that nobody reports."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from zib.core import validate as check
from zib.core.spec import real, whole
from zib.core.validate import InvalidParameterError
from zib.env.around import Around, multi_armed
from zib.env.laws import Law
from zib.env.registry import Array, custom, maybe, sequence

LONGEST_WINDOW = 10_000_000


def _laws(name: str, value: Any) -> Any:
    """Return one law for all arms, or a tuple with one per arm."""
    if isinstance(value, Law):
        return _law(name, value)
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        return _law(name, value)
    laws = tuple(_law(name, each) for each in value)
    if not laws:
        raise InvalidParameterError(f"`{name}` must name at least one law; got none")
    return laws


def _law(name: str, value: Any) -> Law:
    if not (isinstance(value, Law) and hasattr(value, "_quantile")):
        raise InvalidParameterError(
            f"`{name}` must be a law with quantiles (Exponential, Uniform, Lomax, LogNormal, "
            f"QuantileTable or Constant), or one per arm; got {check.shown(value)}"
        )
    return value


class Delayed(Around, positional=1):
    """Arms whose rewards arrive later, and whose zeros never do.

    Parameters
    ----------
    env
        A multi-armed environment whose arms do not change, or a generator of such.
    delay
        Law of the delay, in rounds: one for all arms, or one per arm. A delay longer than `window`
        never happens: what is drawn is the law given that it is at most that.
    window
        Rounds after which a decision without a reward is known to have paid nothing.
    starts
        For each arm the round from which on it can be played, counted from 0; at least one is there
        from the start. By default all are.
    trend
        How much rewards depend on their delay, in [−1, 1]: one that comes later than a share u of
        the rewards is multiplied by 1 + trend·(2u − 1). Means do not change.

    Notes
    -----
    A reward other than the inflated value is seen before the decision of round t + max(1, ⌈delay⌉),
    t being the round in which the arm was played. Nothing reports a reward that is the inflated
    value: one has to conclude it, at the latest from the window. What a policy makes of decisions
    that are pending is its own choice: `zib.mab.Pending`. A policy that says nothing about it is
    told each reward when the window of its decision closes. Variances and sizes are those before
    `trend`.

    Rewards and delays have streams of their own: the j-th pull of an arm pays the same as in `env`
    (but for `trend`), and after the same delay, whoever plays. Regret is against the best of the
    arms that can be played in that round.

    Examples
    --------
    >>> from zib.env import Exponential, GaussianMAB
    >>> shop = GaussianMAB(means=[20.0, 30.0], probs=[0.03, 0.02], sigma=5.0)
    >>> env = Delayed(shop, delay=Exponential(mean=200.0), window=1_000)
    >>> env.fraction(0, [100.0, 1_000.0]).round(3).tolist()
    [0.396, 1.0]
    """

    delayed: ClassVar[bool] = True

    env: Any = custom(multi_armed, allowed="multi-armed environment")
    delay: Any = custom(_laws, allowed="law of the delay, or one per arm")
    window: int = whole(low=1, high=LONGEST_WINDOW)
    starts: Any = maybe(sequence(0.0), default=None)
    trend: float = real(low=-1.0, high=1.0, default=0.0)

    def check(self) -> None:
        """Raise unless delays and first rounds fit the arms, and rewards can come in time."""
        if isinstance(self.delay, tuple) and len(self.delay) != self.n_arms:
            raise InvalidParameterError(
                f"`delay` must be one law or one per arm ({self.n_arms}); got {len(self.delay)}"
            )
        if self.starts is not None:
            first = np.array(self.starts)
            if first.size != self.n_arms or (first % 1.0 != 0.0).any() or first.min() > 0.0:
                raise InvalidParameterError(
                    f"`starts` must hold {self.n_arms} whole numbers, one per arm, at least one of "
                    f"them 0; got {check.shown(self.starts)}"
                )
            self._set(starts=tuple(int(each) for each in first))
        for law in self.delays:
            if law._cdf(np.array(float(self.window))) <= 0.0:
                raise InvalidParameterError(
                    f"`window` must be longer than the shortest delay of {law!r}; got {self.window}"
                )

    @property
    def delays(self) -> tuple[Any, ...]:
        """The law of the delay of each arm."""
        return self.delay if isinstance(self.delay, tuple) else (self.delay,) * self.n_arms

    @property
    def first_rounds(self) -> NDArray[np.int64]:
        """The round from which on each arm can be played."""
        return np.array(self.starts or [0] * self.n_arms, dtype=np.int64)

    # ------------------------------------------------------------------------------------ delays

    def fraction(self, arm: int, age: ArrayLike) -> Array:
        """Return F: the share of an arm's rewards that have come by these ages."""
        law = self.delays[check.integer("arm", arm, 0, self.n_arms - 1)]
        ages = np.minimum(check.numbers("age", age), self.window)
        return np.asarray(law._cdf(ages) / law._cdf(np.array(float(self.window))))

    def sample_delays(self, arm: int, rng: np.random.Generator, n: int) -> tuple[Array, Array]:
        """Return the delays of the next `n` rewards of an arm, and what they multiply them by."""
        law = self.delays[check.integer("arm", arm, 0, self.n_arms - 1)]
        level = rng.random(check.integer("n", n, 0))
        within = law._quantile(level * law._cdf(np.array(float(self.window))))
        return np.clip(within, 0.0, self.window), 1.0 + self.trend * (2.0 * level - 1.0)
