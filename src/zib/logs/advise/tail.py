"""How heavy the tail of the non-zero rewards is, and which moments are finite."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from zib.logs.advise.collect import Collected
from zib.stats.intervals import Estimate, normal_quantile

Array = NDArray[np.float64]
Answer = Literal["yes", "no", "cannot tell"]

FEWEST = 100  # non-zero rewards without which a tail index means nothing
SHORTEST = 25  # order statistics used at least
MARGIN = 0.9  # of the distance between 1 and the tail index


@dataclass(frozen=True)
class TailReport:
    """Tail index, and what follows from it.

    Attributes
    ----------
    index
        Hill's estimate: moments below it are finite if the tail is a power. NaN when there are too
        few rewards.
    k, threshold
        How many of the largest magnitudes it uses, and the magnitude beyond which they lie.
    plateau
        The range of k over which the interval is taken.
    extreme
        Extreme value index by the moment estimator: 0 for tails lighter than any power, 1/index for
        power tails.
    finite_variance
        Whether the variance of the non-zero rewards is finite.
    epsilon, moment
        For `ZIHeavyUCB`: an order 1 + ε whose moment is finite, and that moment.
    remark
        What else bears on the answer.
    """

    index: Estimate
    k: int
    threshold: float
    plateau: tuple[int, int]
    extreme: Estimate
    finite_variance: Answer
    epsilon: float
    moment: Estimate
    remark: str = ""

    @property
    def words(self) -> str:
        """The answer in a sentence or two."""
        return f"{self._answer()} {self.remark}".strip()

    def _answer(self) -> str:
        if math.isnan(self.index.value) and self.finite_variance == "yes":
            return (
                "The variance is finite as far as the log shows: the largest magnitude occurs "
                "again and again, so the rewards look capped."
            )
        if math.isnan(self.index.value):
            return (
                f"The tail cannot be judged: that takes at least {FEWEST} non-zero rewards of "
                "different sizes."
            )
        near = (
            f"tail index {self.index.value:.2f} [{self.index.low:.2f}, {self.index.high:.2f}] from "
            f"the {self.k} largest magnitudes"
        )
        if self.finite_variance == "yes":
            return f"The variance is finite ({near}, extreme value index {self.extreme.value:.2f})."
        if self.finite_variance == "no":
            return (
                f"The variance is infinite ({near}); moments of order below "
                f"{self.index.value:.2f} are finite. If rewards cannot exceed some amount by "
                "design, the variance is finite all the same, but the largest rewards dominate it."
            )
        return f"Whether the variance is finite cannot be told ({near})."


def tail_report(found: Collected, level: float) -> TailReport:
    """Return the tail index of the magnitudes with its interval and consequences.

    Notes
    -----
    Hill's estimator on the k largest magnitudes. k is the one, of sixty between 25 and a quarter of
    the rewards (5 000 at most), whose exceedances lie closest to a power law in the distance of
    Kolmogorov and Smirnov (Clauset, Shalizi and Newman 2009). The interval is the union of
    index·(1 ± z/√k) over k/2, …, 2k, so that it covers the choice of k.

    The variance is called finite when that interval lies above 2, or when the moment estimator of
    Dekkers, Einmahl and de Haan (1989), which also recognises tails lighter than any power, lies
    below ½ with its interval. It is called infinite when both say the opposite. The order 1 + ε is
    1 + 0.9·(index − 1), with the lower end of the interval where the variance is infinite.
    """
    top, n = found.top, found.n_paid
    longest = min(n // 4, top.size - 1)
    nothing = Estimate(math.nan, 0.0, math.inf)
    empty = TailReport(
        nothing, 0, math.nan, (0, 0), Estimate(math.nan, -math.inf, math.inf), "cannot tell", 1.0,
        absolute_moment(found, 2.0, level),
    )  # fmt: skip
    if n < FEWEST or longest < SHORTEST:
        return empty
    if top[0] == top[SHORTEST]:
        return replace(empty, finite_variance="yes")
    logs = np.log(top[: longest + 1])
    ks = np.unique(np.geomspace(SHORTEST, longest, 60).astype(np.int64))
    spread = np.cumsum(logs)[ks - 1] / ks - logs[ks]
    ks, spread = ks[spread > 1e-12], spread[spread > 1e-12]
    if not ks.size:
        return empty
    index = 1.0 / spread
    k_at = int(np.argmin([_distance(logs, int(k), a) for k, a in zip(ks, index)]))
    k = int(ks[k_at])
    near = (ks >= k / 2) & (ks <= 2 * k)
    z = normal_quantile(level)
    reach = z / np.sqrt(ks[near])
    low = float(np.max([np.min(index[near] * (1.0 - reach)), 0.0]))
    high = float(np.max(index[near] * (1.0 + reach)))
    hill = Estimate(float(index[k_at]), low, high)
    extreme = _moment_index(logs, k, z)
    answer: Answer = "cannot tell"
    light, heavy = hill.low > 2.0, hill.high < 2.0
    if light or extreme.high < 0.5:
        answer = "cannot tell" if heavy else "yes"
    elif heavy and extreme.low > 0.5:
        answer = "no"
    epsilon = 1.0
    if answer != "yes":
        safe = hill.low if answer == "no" else hill.value
        epsilon = min(max(MARGIN * (safe - 1.0), 0.05), 1.0)
        epsilon = math.floor(epsilon * 100.0) / 100.0
    return TailReport(
        hill, k, float(top[k]), (int(ks[near][0]), int(ks[near][-1])), extreme, answer, epsilon,
        absolute_moment(found, 1.0 + epsilon, level),
    )  # fmt: skip


def _distance(logs: Array, k: int, index: float) -> float:
    """Return the Kolmogorov–Smirnov distance of the k largest to a power law above the next."""
    survival = np.exp(-index * (logs[:k] - logs[k]))
    steps = np.arange(k + 1) / k
    return float(max(np.max(steps[1:] - survival), np.max(survival - steps[:-1])))


def _moment_index(logs: Array, k: int, z: float) -> Estimate:
    above = logs[:k] - logs[k]
    m1, m2 = float(above.mean()), float((above * above).mean())
    rest = 1.0 - m1 * m1 / m2
    if rest <= 0.0:
        return Estimate(math.nan, -math.inf, math.inf)
    g = m1 + 1.0 - 0.5 / rest
    if g >= 0.0:
        variance = 1.0 + g * g
    else:
        variance = (
            (1 - g) ** 2 * (1 - 2 * g)
            * (4 - 8 * (1 - 2 * g) / (1 - 3 * g)
               + (5 - 11 * g) * (1 - 2 * g) / ((1 - 3 * g) * (1 - 4 * g)))
        )  # fmt: skip
    half = z * math.sqrt(variance / k)
    return Estimate(g, g - half, g + half)


def absolute_moment(found: Collected, order: float, level: float) -> Estimate:
    """Return E|X|^order of the non-zero rewards.

    The largest magnitudes are counted exactly, the others through the sample. The interval is
    normal and too short when the tail is heavy.
    """
    n = found.n_paid
    if n == 0:
        return Estimate(math.nan, 0.0, math.inf)
    size = np.abs(found.values)
    if size.size < n:
        rest = size[size < found.top[-1]]
        parts = [(found.top, 1.0)]
        if rest.size:
            parts.append((rest, (n - found.top.size) / rest.size))
    else:
        parts = [(size, 1.0)]
    with np.errstate(over="ignore"):
        first = sum(float((x**order).sum()) * weight for x, weight in parts) / n
        second = sum(float((x ** (2.0 * order)).sum()) * weight for x, weight in parts) / n
    if not math.isfinite(second):
        return Estimate(first, 0.0, math.inf)
    half = normal_quantile(level) * math.sqrt(max(second - first * first, 0.0) / n)
    return Estimate(first, max(first - half, 0.0), first + half)
