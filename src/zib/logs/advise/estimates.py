"""How often, how much, and how much on average: estimates per arm with intervals."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from zib import theory
from zib.logs.advise.collect import FEW, Collected
from zib.stats.clusters import clustered
from zib.stats.intervals import Estimate, normal_quantile, one_sided, share, skewed, t_quantile

Array = NDArray[np.float64]
Codes = NDArray[np.int64]

UNKNOWN = (-math.inf, math.inf)


class Weighted(NamedTuple):
    """Estimates of one arm with inverse propensities: as if it had been played in every row."""

    p: Estimate
    mu: Estimate
    r: Estimate
    effective_rows: float


@dataclass(frozen=True)
class ArmSummary:
    """What the log says about one arm, or about all of it.

    Attributes
    ----------
    label
        The arm.
    rows, nonzero
        How often it was played, and how often it paid.
    p, mu, r
        Probability of a non-zero reward, mean of the non-zero rewards, mean reward.
    sd
        Standard deviation of the non-zero rewards.
    variance
        Variance of the reward (divisor n), the sum of the two parts.
    occurrence_variance, magnitude_variance
        p(1 − p)·mu² and p·Var(X).
    weighted
        The same with inverse propensities, where the log has them.
    note
        What is special about this arm, or nothing.
    """

    label: Hashable
    rows: int
    nonzero: int
    p: Estimate
    mu: Estimate
    r: Estimate
    sd: float
    occurrence_variance: float
    magnitude_variance: float
    weighted: Weighted | None = None
    note: str = ""

    @property
    def zero_share(self) -> float:
        """Share of rewards that are exactly zero."""
        return 1.0 - self.nonzero / self.rows if self.rows else math.nan

    @property
    def variance(self) -> float:
        """Variance of the reward, with divisor n."""
        return self.occurrence_variance + self.magnitude_variance

    @property
    def occurrence_share(self) -> float:
        """Share of the variance that comes from whether the arm pays at all."""
        return self.occurrence_variance / self.variance if self.variance > 0 else math.nan

    @property
    def compared(self) -> tuple[Estimate, Estimate, Estimate]:
        """The estimates of p, mu and r that are fit for comparing arms."""
        if self.weighted is not None:
            return self.weighted.p, self.weighted.mu, self.weighted.r
        return self.p, self.mu, self.r


def _skewed_mean(mean: Any, sd: Any, skewness: Any, n: Any, level: float) -> tuple[Array, Array]:
    """Return the ends for the mean of n numbers; of fewer than two, those of two."""
    seen = np.maximum(n, 1.0)
    root = np.sqrt(seen)
    found = skewed(mean, sd / root, skewness / root, df=np.maximum(n - 1.0, 1.0), level=level)
    return np.asarray(found.low), np.asarray(found.high)


def reward_skewness(p: Any, mean: Any, variance: Any, third: Any) -> Array:
    """Return the skewness of R = X·Y from p and the centred moments of X."""
    p, mean, variance, third = (np.asarray(x)[()] for x in (p, mean, variance, third))
    k2 = p * variance + p * (1.0 - p) * mean**2
    k3 = p * third + 3.0 * p * (1.0 - p) * mean * variance + p * (1 - p) * (1 - 2 * p) * mean**3
    with np.errstate(all="ignore"):
        return np.asarray(np.where(k2 > 0, k3 / k2**1.5, 0.0))


class _Columns(NamedTuple):
    """One entry per arm."""

    n: Array
    b: Array
    mean: Array
    variance: Array  # of X, divisor B
    third: Array


def summaries(
    found: Collected, level: float, whole: ArmSummary | None = None
) -> tuple[ArmSummary, ...]:
    """Return what the log says about each arm; `whole` is `overall` where it is known."""
    b = found.paid.count
    seen = np.maximum(b, 1.0)
    with np.errstate(over="ignore", invalid="ignore"):
        columns = _Columns(
            found.rows, b, found.paid.mean, found.paid.m2 / seen, found.paid.m3 / seen
        )
    pooled_sd = within_sd(found).value
    positive = found.negative == 0
    whole = overall(found, level) if whole is None else whole
    p, mu, r = _intervals(columns, level, pooled_sd, found.sign)
    weighted = _weighted(found, columns, level, pooled_sd)
    if found.has_clusters and found.weighted is None:
        table = found.cluster_table()
        p, mu, r = _clustered(*table, (p, mu, r), columns, _variances(columns), level, found.sign)
    out = []
    for k, label in enumerate(found.arms):
        n_k, b_k = int(columns.n[k]), int(b[k])
        note = ""
        p_k, mu_k, r_k = (Estimate(*(float(x[k]) for x in part)) for part in (p, mu, r))
        if n_k == 0:
            note = "no data: nothing can be said about this arm until it has been played"
            p_k = Estimate(math.nan, 0.0, 1.0)
            r_k = Estimate(math.nan, *UNKNOWN)
        elif b_k == 0:
            reach = max(abs(whole.mu.low), abs(whole.mu.high)) if whole.nonzero else math.inf
            high = p_k.high * reach
            r_k = Estimate(0.0, 0.0 if positive else -high, high)
            note = (
                f"never paid: p is at most {p_k.high:.2g} (rule of three: {min(3 / n_k, 1):.2g}); "
                "its magnitude is unknown, and r is bounded with that of the other arms"
            )
        elif b_k < FEW:
            note = (
                f"only {b_k} non-zero reward{'s' if b_k > 1 else ''}: the spread of the magnitudes "
                "is taken from all arms together"
            )
        out.append(
            ArmSummary(
                label, n_k, b_k, p_k, mu_k, r_k,
                math.sqrt(columns.variance[k] * b_k / (b_k - 1)) if b_k > 1 else math.nan,
                *_parts(n_k, b_k, float(columns.mean[k]), float(columns.variance[k])),
                None if weighted is None or b_k == 0 or n_k == 0 else weighted[k],
                note,
            )
        )  # fmt: skip
    return tuple(out)


def overall(found: Collected, level: float) -> ArmSummary:
    """Return the same for all rows together, in the mixture of arms the log has."""
    b, mean, m2, m3 = found.paid.pooled()
    n = float(found.n_rows)
    if b == 0.0:
        high = share(0.0, n, level=level).high
        return ArmSummary(
            "all", int(n), 0, Estimate(0.0, 0.0, high), Estimate(math.nan, *UNKNOWN),
            Estimate(0.0, *UNKNOWN), math.nan, 0.0, 0.0,
        )  # fmt: skip
    columns = _Columns(*(np.array([v]) for v in (n, b, mean, m2 / b, m3 / b)))
    p, mu, r = (
        Estimate(*(float(x[0]) for x in part))
        for part in _intervals(columns, level, math.nan, found.sign)
    )
    if found.has_clusters and found.weighted is None:
        cluster, _, sums = found.cluster_table()
        whole = np.column_stack([np.bincount(cluster, column) for column in sums.T]).astype(float)
        every = np.arange(len(whole)), np.zeros(len(whole), np.int64), whole
        row = tuple(Estimate(*(np.array([x]) for x in part)) for part in (p, mu, r))
        found_ends = _clustered(*every, row, columns, _variances(columns), level, found.sign)
        p, mu, r = (Estimate(*(float(x[0]) for x in part)) for part in found_ends)
    sd = math.sqrt(m2 / (b - 1)) if b > 1 else math.nan
    return ArmSummary("all", int(n), int(b), p, mu, r, sd, *_parts(int(n), int(b), mean, m2 / b))


def _parts(n: int, b: int, mean: float, variance: float) -> tuple[float, float]:
    if n == 0 or b == 0:
        return 0.0, 0.0
    p = b / n
    return p * (1.0 - p) * mean * mean, p * variance


def _intervals(c: _Columns, level: float, pooled_sd: float, sign: int) -> tuple[Estimate, ...]:
    n, b = np.maximum(c.n, 1.0), c.b
    p = b / n
    _, p_low, p_high = share(b, n, level=level)
    seen = np.maximum(b, 2.0)
    sd = np.sqrt(c.variance * seen / (seen - 1.0))
    with np.errstate(all="ignore"):
        skewness = np.where(c.variance > 0, c.third / c.variance**1.5, 0.0)
    low, high = _skewed_mean(c.mean, sd, skewness, b, level)
    variance = p * c.variance + p * (1.0 - p) * c.mean**2
    sd_r = np.sqrt(variance * n / np.maximum(n - 1.0, 1.0))
    r = p * c.mean
    bent = reward_skewness(p, c.mean, c.variance, c.third)
    r_low, r_high = _skewed_mean(r, sd_r, bent, n, level)
    # magnitudes that never vary: only p is uncertain
    fixed = (b >= FEW) & (c.variance <= 1e-24 * c.mean**2)
    low, high = np.where(fixed, c.mean, low), np.where(fixed, c.mean, high)
    ends = np.sort(np.stack([p_low * c.mean, p_high * c.mean]), axis=0)
    r_low, r_high = np.where(fixed, ends[0], r_low), np.where(fixed, ends[1], r_high)
    few = (b < FEW) & (b > 0)
    if few.any() and math.isfinite(pooled_sd) and pooled_sd > 0:
        z = normal_quantile(level)
        half = z * pooled_sd / np.sqrt(b[few])
        low[few], high[few] = c.mean[few] - half, c.mean[few] + half
        args = (c.n[few], b[few], b[few] * c.mean[few])
        loss = np.full(int(few.sum()), z * z / 2.0)
        r_low[few] = theory.joint_kl_lower(*args, sigma=pooled_sd, level=loss)
        r_high[few] = theory.joint_kl_upper(*args, sigma=pooled_sd, level=loss)
    lone = (b < 2) & ~(few & (pooled_sd > 0))
    for array, end in ((low, -np.inf), (high, np.inf), (r_low, -np.inf), (r_high, np.inf)):
        array[lone] = end
    mu = Estimate(np.where(b > 0, c.mean, np.nan), low, high)
    means = (mu, Estimate(r, r_low, r_high))
    return Estimate(p, p_low, p_high), *(one_sided(each, sign) if sign else each for each in means)


def _weighted(
    found: Collected, c: _Columns, level: float, pooled_sd: float
) -> list[Weighted] | None:
    w = found.weighted
    if w is None:
        return None
    # arms that were never played or never paid divide by 1; nothing of theirs is used
    total, paid = np.where(w.w > 0, w.w, 1.0), np.where(w.w_paid > 0, w.w_paid, 1.0)
    p, r, mu = w.w_paid / total, w.w_reward / total, w.w_reward / paid
    rows = total**2 / np.where(w.w2 > 0, w.w2, 1.0)
    # linearised variances of the self-normalised estimates
    var_p = (w.w2_paid * (1.0 - p) ** 2 + (w.w2 - w.w2_paid) * p**2) / total**2
    var_r = np.maximum(w.w2_square - 2.0 * r * w.w2_reward + r * r * w.w2, 0.0) / total**2
    var_mu = np.maximum(w.w2_square - 2.0 * mu * w.w2_reward + mu**2 * w.w2_paid, 0.0) / paid**2
    # Korn and Graubard: exact limits at the sample size that has this variance
    like = np.where(var_p > 0, p * (1.0 - p) / np.where(var_p > 0, var_p, 1.0), rows)
    _, p_low, p_high = share(p * like, like, level=level)
    payers = paid**2 / np.where(w.w2_paid > 0, w.w2_paid, 1.0)
    with np.errstate(all="ignore"):
        skewness = np.where(c.variance > 0, c.third / c.variance**1.5, 0.0)
    mu_low, mu_high = _skewed_mean(mu, np.sqrt(var_mu * payers), skewness, payers, level)
    bent = reward_skewness(c.b / np.maximum(c.n, 1.0), c.mean, c.variance, c.third)
    r_low, r_high = _skewed_mean(r, np.sqrt(var_r * rows), bent, rows, level)
    few = (payers < FEW) & (w.w_paid > 0)
    if few.any() and math.isfinite(pooled_sd) and pooled_sd > 0:
        half = normal_quantile(level) * pooled_sd / np.sqrt(payers[few])
        mu_low[few], mu_high[few] = mu[few] - half, mu[few] + half
    unsure = payers < 2.0
    for array, end in ((mu_low, -np.inf), (mu_high, np.inf), (r_low, -np.inf), (r_high, np.inf)):
        array[unsure] = end
    parts: tuple[Estimate, ...] = (
        Estimate(p, p_low, p_high),
        Estimate(mu, mu_low, mu_high),
        Estimate(r, r_low, r_high),
    )
    if found.has_clusters:
        table = found.cluster_table()
        parts = _clustered(*table, parts, c, (var_p, var_mu, var_r), level, 0)
    share_paid, *means = parts
    if found.sign:
        means = [one_sided(each, found.sign) for each in means]

    def of(part: Estimate, k: int) -> Estimate:
        return Estimate(*(float(x[k]) for x in part))

    return [
        Weighted(of(share_paid, k), of(means[0], k), of(means[1], k), float(rows[k]))
        for k in range(p.size)
    ]


def _variances(c: _Columns) -> tuple[Array, Array, Array]:
    """Return the variances of p, mu and r over independent rows."""
    n, b = np.maximum(c.n, 1.0), np.maximum(c.b, 1.0)
    p = c.b / n
    return p * (1.0 - p) / n, c.variance / b, (p * c.variance + p * (1.0 - p) * c.mean**2) / n


def _clustered(
    cluster: Codes,
    arm: Codes,
    sums: Array,
    parts: tuple[Estimate, ...],
    c: _Columns,
    variances: tuple[Array, Array, Array],
    level: float,
    sign: int,
) -> tuple[Estimate, ...]:
    """Return p, mu and r with intervals that let rows of a cluster depend.

    `parts` are those for independent rows, of which arms with few non-zero rewards keep what is
    wider, and `variances` theirs.
    """
    rows, paid, reward = sums.T
    p = parts[0]
    spread = [
        clustered(cluster, arm, top, base, variance, n, compared=False)
        for top, base, variance, n in zip(
            (paid, reward, reward), (rows, paid, rows), variances, (c.n, c.b, c.n), strict=True
        )
    ]
    found: list[Estimate] = []
    for part, each in zip(parts, spread, strict=True):
        variance, df = each.covariance, each.df
        if part is p:  # Korn and Graubard: exact limits at the sample size that has this variance
            with np.errstate(all="ignore"):
                like = p.value * (1.0 - p.value) / variance
                like *= (normal_quantile(level) / t_quantile(df, level)) ** 2
            like = np.where(np.isfinite(like) & (like > 0.0), like, 1.0)
            _, low, high = share(p.value * like, like, level=level)
        else:
            value = np.where(np.isfinite(part.value), part.value, 0.0)
            _, low, high = skewed(value, np.sqrt(variance), each.skewness, df=df, level=level)
        known = np.isfinite(variance) & (variance > 0.0)
        few = (c.b < FEW) | ~known
        low = np.where(few, np.minimum(np.where(known, low, part.low), part.low), low)
        high = np.where(few, np.maximum(np.where(known, high, part.high), part.high), high)
        found.append(Estimate(part.value, low, high))
    if sign:
        found[1:] = [one_sided(each, sign) for each in found[1:]]
    return tuple(found)


def within_sd(found: Collected, level: float = 0.95) -> Estimate:
    """Return the standard deviation of the non-zero rewards around their arm's mean.

    The interval uses their fourth moment, on the log scale; it means little for heavy tails.
    """
    b = found.paid.count
    freedom = float(np.maximum(b - 1.0, 0.0).sum())
    if freedom == 0.0:
        return Estimate(math.nan, 0.0, math.inf)
    variance = float(found.paid.m2.sum()) / freedom
    if variance == 0.0:
        return Estimate(0.0, 0.0, 0.0)
    with np.errstate(over="ignore"):
        kurtosis = float(found.paid.m4.sum() / b.sum()) / variance / variance
    if not math.isfinite(kurtosis):
        return Estimate(math.sqrt(variance), 0.0, math.inf)
    error = math.sqrt(max(kurtosis - 1.0, 0.0) / freedom) / 2.0  # of log sd
    z = normal_quantile(level)
    sd = math.sqrt(variance)
    return Estimate(sd, sd * math.exp(-z * error), sd * math.exp(min(z * error, 700.0)))
