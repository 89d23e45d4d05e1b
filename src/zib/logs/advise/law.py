"""Which law the non-zero rewards follow: maximum likelihood fits, compared."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zib.logs.advise.collect import Collected
from zib.logs.advise.tail import TailReport, tail_report

Array = NDArray[np.float64]

SAMPLE = 20_000  # rewards that laws are fitted to
FEWEST = 10
DIFFERENT = 0.1  # share of Var(X) between arms beyond which arms are brought to one scale
MOSTLY = 0.9  # share of the rewards that few values must cover to be called discrete
MOST_POINTS = 20

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
        Of the sample; smaller criteria are better.
    distance
        Largest distance between the distribution functions of sample and fit (Kolmogorov–Smirnov).
    """

    name: str
    parameters: dict[str, float]
    log_likelihood: float
    aic: float
    bic: float
    distance: float

    def distribution(self) -> Any:
        """Return the fitted law as a frozen SciPy distribution (of |X| where all X < 0)."""
        from scipy import stats

        values = list(self.parameters.values())
        family = getattr(stats, _SCIPY[self.name])
        if self.name in ("Gaussian", "Student t", "Laplace"):
            return family(*values)
        return family(*values[:-1], loc=0.0, scale=values[-1])


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
        Best first, by BIC.
    constant
        The one value all non-zero rewards have, or None.
    points, points_share
        How many values cover most rewards, and which share, if these are few; else 0.
    tail
        Tail index and moments.
    by_arm
        Best family for each arm with enough rewards, by position of the arm.
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

    @property
    def best(self) -> Fit | None:
        """The fit with the smallest BIC."""
        return self.fits[0] if self.fits else None

    @property
    def words(self) -> str:
        """The law in one sentence."""
        if self.constant is not None:
            return f"All non-zero rewards are {self.constant:.6g}: only how often matters."
        if self.best is None:
            return f"Too few non-zero rewards to fit a law ({self.n}; it takes {FEWEST})."
        inside = ", ".join(
            f"{k.replace('_', ' ')} {v:.4g}" for k, v in self.best.parameters.items()
        )
        what = {"": "", "scaled": ", after bringing all arms to one mean",
                "centred": ", after centring all arms on one mean"}[self.adjusted]  # fmt: skip
        text = (
            f"Of the laws tried the {self.best.name} fits best{what}: {inside}; largest distance "
            f"between the distribution functions {self.best.distance:.3f}."
        )
        if self.sign < 0:
            text += " All rewards are negative; the laws describe their size."
        if self.points:
            text += (
                f" But the rewards sit mostly on {self.points} values, which hold "
                f"{100 * self.points_share:.0f} % of them: a smooth law only describes the shape."
            )
        return text


def law_report(found: Collected, level: float) -> LawReport:
    """Return fits, tail and peculiarities of the non-zero rewards."""
    x, arm = found.values[:SAMPLE], found.value_arm[:SAMPLE]
    tail = tail_report(found, level)
    sign = -1 if found.n_paid and found.negative == found.n_paid else 1
    if x.size >= FEWEST and found.lowest == found.highest:
        return LawReport(x.size, sign, "", (), found.lowest, 1, 1.0, tail, {}, np.sort(x))
    points, share = _points(x)
    x, adjusted = _brought_together(found, x, arm)
    x = sign * x
    one_sided = sign < 0 or found.negative == 0
    fits = fit_all(x, positive=one_sided) if x.size >= FEWEST else ()
    tail = _weighed(tail, fits, x.size)
    by_arm: dict[int, str] = {}
    for k in np.argsort(-found.paid.count, kind="stable")[:20]:
        own = found.arm_values[found.arm_value_arm == k][:2_000]
        if own.size >= 50 and own.min() < own.max():
            by_arm[int(k)] = fit_all(sign * own, positive=one_sided)[0].name
    return LawReport(x.size, sign, adjusted, fits, None, points, share, tail, by_arm, np.sort(x))


def _weighed(tail: TailReport, fits: tuple[Fit, ...], n: int) -> TailReport:
    """Return the tail with doubts where a log-normal law fits everything within the noise.

    Its variance is finite, yet far out it passes for a power law in samples of any usual size.
    0.886/√n is Lilliefors' five per cent limit.
    """
    if tail.finite_variance != "no" or not fits or fits[0].name != "log-normal":
        return tail
    if fits[0].distance * math.sqrt(n) > 0.886:
        return tail
    remark = (
        "The tail looks like a power, but a log-normal law, whose variance is finite, fits too."
    )
    return replace(tail, finite_variance="cannot tell", remark=remark)


def _points(x: Array) -> tuple[int, float]:
    if x.size < FEWEST:
        return 0, 0.0
    counts = np.sort(np.unique(x, return_counts=True)[1])[::-1]
    cover = np.cumsum(counts) / x.size
    needed = int(np.searchsorted(cover, MOSTLY)) + 1
    if needed > MOST_POINTS or needed * 5 > x.size:
        return 0, 0.0
    return needed, float(cover[needed - 1])


def _brought_together(found: Collected, x: Array, arm: NDArray[np.int64]) -> tuple[Array, str]:
    """Return magnitudes of all arms on one scale, if the arms differ much."""
    _, mean, m2, _ = found.paid.pooled()
    within = float(found.paid.m2.sum())
    if m2 <= 0.0 or (m2 - within) / m2 < DIFFERENT:
        return x, ""
    known = found.paid.count >= FEWEST
    keep = known[arm]
    means = found.paid.mean[arm[keep]]
    if not keep.any():
        return x, ""
    if found.negative in (0, found.n_paid):
        return x[keep] / means * mean, "scaled"
    return x[keep] - means + mean, "centred"


def fit_all(x: Array, *, positive: bool) -> tuple[Fit, ...]:
    """Return all families fitted to `x`, best first."""
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
    return tuple(sorted(found, key=lambda fit: fit.bic))


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
    parameters = dict(zip(_NAMES[name], map(float, values), strict=True))
    return Fit(
        name, parameters, likelihood, 2.0 * free - 2.0 * likelihood,
        free * math.log(x.size) - 2.0 * likelihood, distance,
    )  # fmt: skip
