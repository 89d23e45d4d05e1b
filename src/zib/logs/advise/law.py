"""Which law the non-zero rewards follow: maximum likelihood fits, compared, and their tail."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from zib.logs.advise.collect import FEWEST_FOR_LAW, FEWEST_FOR_TAIL, Collected
from zib.logs.advise.values import Atom, Dominant, atoms, dominant, value_counts
from zib.logs.advise.words import law_words, tail_words
from zib.stats.intervals import Estimate, normal_quantile

Array = NDArray[np.float64]
Answer = Literal["yes", "no", "cannot tell"]

SAMPLE = 20_000  # rewards that laws are fitted to
DIFFERENT = 0.1  # share of Var(X) between arms beyond which arms are brought to one scale
MOSTLY = 0.9  # share of the rewards that few values must cover to be called discrete
MOST_POINTS = 20
CLOSE = 0.22  # n times the squared distance by which fits differ by chance alone
FITS_BY_CHANCE = 0.886  # √n times the largest distance of a law that is right (Lilliefors)

_POSITIVE = ("exponential", "gamma", "Weibull", "log-normal", "Pareto", "Lomax", "Gaussian")
_SIGNED = ("Gaussian", "Student t", "Laplace")
_SCIPY = {
    "exponential": "expon",
    "gamma": "gamma",
    "Weibull": "weibull_min",
    "log-normal": "lognorm",
    "Pareto": "pareto",
    "Lomax": "lomax",
    "Gaussian": "norm",
    "Student t": "t",
    "Laplace": "laplace",
}
_NAMES = {
    "exponential": ("mean",),
    "gamma": ("shape", "scale"),
    "Weibull": ("shape", "scale"),
    "log-normal": ("log_sd", "median"),
    "Pareto": ("index", "smallest"),
    "Lomax": ("index", "scale"),
    "Gaussian": ("mean", "sd"),
    "Student t": ("df", "mean", "scale"),
    "Laplace": ("mean", "scale"),
}

SHORTEST = 25  # order statistics used at least
MARGIN = 0.9  # of the distance between 1 and the tail index


@dataclass(frozen=True)
class Fit:
    """One family fitted by maximum likelihood.

    Attributes
    ----------
    name
        The family.
    parameters
        By name, in units of the rewards.
    log_likelihood, aic, bic
        Of the sample; smaller criteria are better. They say nothing where many rewards are equal: a
        law with a peak at such a value wins, whatever it does elsewhere.
    distance
        Largest distance between the distribution functions of sample and fit (Kolmogorov–Smirnov).
    mean_distance
        Root of the mean squared distance between them (Cramér–von Mises); fits are ranked by it.
    close
        Whether no other family is closer by more than chance explains.
    """

    name: str
    parameters: dict[str, float]
    log_likelihood: float
    aic: float
    bic: float
    distance: float
    mean_distance: float
    close: bool = False

    def off_by_chance(self, n: int) -> float:
        """Return the largest distance that chance gives a law that is right, in 95 % of samples."""
        return FITS_BY_CHANCE / math.sqrt(n)

    def fits(self, n: int) -> bool:
        """Return whether chance alone explains the largest distance to `n` rewards."""
        return self.distance <= self.off_by_chance(n)

    def distribution(self) -> Any:
        """Return the fitted law as a frozen SciPy distribution (of |X| where all X < 0)."""
        from scipy import stats

        values = list(self.parameters.values())
        family = getattr(stats, _SCIPY[self.name])
        if self.name in ("Gaussian", "Student t", "Laplace"):
            return family(*values)
        return family(*values[:-1], loc=0.0, scale=values[-1])


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
        return tail_words(self)


@dataclass(frozen=True)
class LawReport:
    """What is known about the law of the non-zero rewards.

    Attributes
    ----------
    n
        Number of rewards the laws were fitted to.
    sign
        1, or −1 where all rewards are negative and the laws describe −X.
    adjusted
        How arms of different size were brought together before fitting: ``"scaled"`` to the common
        mean, ``"centred"`` on it, or ``""``.
    fits
        Best first: by the distance between distribution functions, and by BIC among those that are
        equally close (by the number of parameters where many rewards are equal).
    constant
        The one value all non-zero rewards have, or None.
    points, points_share
        How many values cover most rewards, and which share, if these are few; else 0.
    atoms, atoms_exact
        Values that hold at least 2 % of all non-zero rewards each, the largest share first, and
        whether all rows were counted (or a sample, where different rewards are too many).
    dominant
        Arms of which one reward makes up a large part.
    tail
        Tail index and moments.
    by_arm
        Best family for each arm with enough rewards, by position of the arm; the best of all arms
        where that is as close.
    sample
        The rewards the laws were fitted to, after adjustment, sorted.
    """

    n: int
    sign: int
    adjusted: str
    fits: tuple[Fit, ...]
    constant: float | None
    points: int
    points_share: float
    tail: TailReport
    by_arm: dict[int, str]
    sample: Array
    atoms: tuple[Atom, ...] = ()
    atoms_exact: bool = True
    dominant: tuple[Dominant, ...] = ()

    @property
    def best(self) -> Fit | None:
        """The first of the fits."""
        return self.fits[0] if self.fits else None

    @property
    def words(self) -> str:
        """The law in one sentence."""
        return law_words(self)


def law_report(found: Collected, level: float) -> LawReport:
    """Return fits, tail and peculiarities of the non-zero rewards."""
    x, arm = found.values[:SAMPLE], found.value_arm[:SAMPLE]
    values, counts, exact = value_counts(found)
    sign = found.sign or 1
    points, share = _points(counts)
    empty = LawReport(
        x.size, sign, "", (), None, points, share, tail_report(found, level), {}, np.sort(x),
        atoms(values, counts), exact, dominant(found),
    )  # fmt: skip
    if x.size >= FEWEST_FOR_LAW and found.lowest == found.highest:
        return replace(empty, constant=found.lowest)
    x, adjusted = _brought_together(found, x, arm)
    x = sign * x
    report = replace(empty, n=x.size, adjusted=adjusted, sample=np.sort(x))
    # where every arm always pays the same, nothing is left to fit
    if x.size < FEWEST_FOR_LAW or np.ptp(x) <= 1e-9 * float(np.abs(x).max()):
        return report
    fits = fit_all(x, positive=bool(found.sign))
    by_arm: dict[int, str] = {}
    for k in np.argsort(-found.paid.count, kind="stable")[:20]:
        own = found.arm_values[found.arm_value_arm == k][:2_000]
        if own.size >= 50 and own.min() < own.max():
            best = fit_all(sign * own, positive=bool(found.sign))
            close = [fit.name for fit in best if fit.close]
            by_arm[int(k)] = fits[0].name if fits[0].name in close else best[0].name
    return replace(report, fits=fits, by_arm=by_arm, tail=_weighed(report.tail, fits, x.size))


def _weighed(tail: TailReport, fits: tuple[Fit, ...], n: int) -> TailReport:
    """Return the tail with doubts where a log-normal law fits everything within the noise.

    Its variance is finite, yet far out it passes for a power law in samples of any usual size.
    """
    if tail.finite_variance != "no" or not fits or fits[0].name != "log-normal":
        return tail
    if not fits[0].fits(n):
        return tail
    remark = (
        "The tail looks like a power, but a log-normal law, whose variance is finite, fits too."
    )
    return replace(tail, finite_variance="cannot tell", remark=remark)


def _points(counts: NDArray[np.int64]) -> tuple[int, float]:
    n = int(counts.sum())
    if n < FEWEST_FOR_LAW:
        return 0, 0.0
    cover = np.cumsum(np.sort(counts)[::-1]) / n
    needed = int(np.searchsorted(cover, MOSTLY)) + 1
    if needed > MOST_POINTS or needed * 5 > n:
        return 0, 0.0
    return needed, float(cover[needed - 1])


def _brought_together(found: Collected, x: Array, arm: NDArray[np.int64]) -> tuple[Array, str]:
    """Return magnitudes of all arms on one scale, if the arms differ much."""
    _, mean, m2, _ = found.paid.pooled()
    within = float(found.paid.m2.sum())
    if m2 <= 0.0 or (m2 - within) / m2 < DIFFERENT:
        return x, ""
    known = found.paid.count >= FEWEST_FOR_LAW
    keep = known[arm]
    means = found.paid.mean[arm[keep]]
    if not keep.any():
        return x, ""
    if found.negative in (0, found.n_paid):
        return x[keep] / means * mean, "scaled"
    return x[keep] - means + mean, "centred"


def fit_all(x: Array, *, positive: bool) -> tuple[Fit, ...]:
    """Return all families fitted to `x`, best first.

    Notes
    -----
    The likelihood of a density cannot rank laws of rewards of which many are equal: each of these
    adds the logarithm of the density at one point, so that a Pareto law, whose density is largest
    at the smallest reward, wins wherever many rewards are the smallest. Fits are therefore ranked
    by the distance between distribution functions, which is what a picture shows. n times the
    squared distance of Cramér and von Mises is below 0.22 for 95 % of the samples of a fitted
    law that is right; families within that of the closest are equally close, and among these BIC
    decides, or, where a value holds 2 % of the rewards, the number of parameters.
    """
    unit = float(np.median(np.abs(x)))
    unit = unit if unit > 0.0 else 1.0
    scaled = np.sort(x / unit)
    found = []
    for name in _POSITIVE if positive else _SIGNED:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")  # steps of the optimiser outside the range
            try:
                fit = _fit(name, scaled, unit)
            except (ValueError, RuntimeError, FloatingPointError):
                continue  # this family cannot describe these numbers
        if math.isfinite(fit.log_likelihood):
            found.append(fit)
    least = min((fit.mean_distance**2 for fit in found), default=0.0) + CLOSE / x.size
    found = [replace(fit, close=fit.mean_distance**2 <= least) for fit in found]
    tied = bool(atoms(*np.unique(x, return_counts=True)))

    def rank(fit: Fit) -> tuple[float, ...]:
        if not fit.close:
            return (1.0, fit.mean_distance)
        return (0.0, len(fit.parameters), fit.mean_distance) if tied else (0.0, fit.bic)

    return tuple(sorted(found, key=rank))


def _fit(name: str, x: Array, unit: float) -> Fit:
    from scipy import stats

    family = getattr(stats, _SCIPY[name])
    shape: tuple[float, ...]
    if name in ("Gaussian", "Laplace", "Student t"):
        *shape_, loc, scale = family.fit(x)
        shape = tuple(shape_)
        values = (*shape, loc * unit, scale * unit)
    elif name == "Pareto":
        loc, scale = 0.0, float(x[0])
        shape = (1.0 / float(np.mean(np.log(x / scale))),)
        values = (*shape, scale * unit)
    else:
        *shape_, loc, scale = family.fit(x, floc=0.0)
        shape = tuple(shape_)
        values = (*shape, scale * unit)
    if name == "Lomax" and shape[0] > 1e3:
        raise ValueError("the exponential law in disguise")
    frozen = family(*shape, loc=loc, scale=scale)
    likelihood = float(np.sum(frozen.logpdf(x))) - x.size * math.log(unit)
    free = len(values)
    below = frozen.cdf(x)
    steps = np.arange(x.size + 1) / x.size
    distance = float(max(np.max(steps[1:] - below), np.max(below - steps[:-1])))
    squares = np.mean((0.5 * (steps[1:] + steps[:-1]) - below) ** 2) + 1.0 / (12.0 * x.size**2)
    parameters = dict(zip(_NAMES[name], map(float, values), strict=True))
    return Fit(
        name, parameters, likelihood, 2.0 * free - 2.0 * likelihood,
        free * math.log(x.size) - 2.0 * likelihood, distance, math.sqrt(float(squares)),
    )  # fmt: skip


# -------------------------------------------------------------------------------- tail


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
    if n < FEWEST_FOR_TAIL or longest < SHORTEST:
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
