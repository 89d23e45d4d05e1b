"""Does a mean stay the same from period to period, and do groups move together?

Observations are summed per period (row) and group (column): how many, and their sum. A group has
one variance and one fourth cumulant per observation. From these come quadratic forms that are
chi-square if nothing changes; two corrections make them hold for rewards that are mostly zero.

The variance of the quadratic form is 2·df for normal sums. For few observations per period with
heavy tails it is larger by the kurtosis of the sums, so df is replaced by the number with which a
scaled chi-square has that variance (Satterthwaite). And observations within a short time may
depend on each other: `dispersion` says how much more sums over short times vary than independent
observations would, and the tests divide by it, with its degrees of freedom.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Result(NamedTuple):
    """A test: the F statistic, its degrees of freedom and the p value (1 where nothing is left)."""

    statistic: float
    freedom: float
    below: float
    p_value: float


class Dispersion(NamedTuple):
    """How many times more sums over short times vary than independent observations; at least 1."""

    factor: float = 1.0
    freedom: float = np.inf


NOTHING = Result(0.0, 0.0, np.inf, 1.0)
STEADY = Dispersion()


def _judged(q: float, freedom: float, excess: float, dispersion: Dispersion) -> Result:
    from scipy.stats import chi2, f

    if freedom < 1.0:
        return NOTHING
    statistic = q / freedom / dispersion.factor
    like = 2.0 * freedom**2 / (2.0 * freedom + max(excess, 0.0))
    if np.isfinite(dispersion.freedom):
        p_value = f.sf(statistic, like, dispersion.freedom)
    else:
        p_value = chi2.sf(statistic * like, like)
    return Result(float(statistic), float(freedom), dispersion.freedom, float(p_value))


def common_change(n: Array, total: Array, variance: Array) -> Array:
    """Return what each period has, summed, above the groups' own means.

    Parameters
    ----------
    n, total
        (periods, groups): numbers of observations and their sums.
    variance
        Of an observation of each group; groups without any are left out.
    """
    used = variance > 0
    mean = total[:, used].sum(axis=0) / np.maximum(n[:, used].sum(axis=0), 1.0)
    return np.asarray((total[:, used] - n[:, used] * mean).sum(axis=1))


def constancy(
    n: Array, total: Array, variance: Array, fourth: Array, dispersion: Dispersion = STEADY
) -> Result:
    """Test whether the mean of each group is the same in all periods.

    Parameters
    ----------
    n, total
        (periods, groups): numbers of observations and their sums.
    variance, fourth
        Variance and fourth cumulant of an observation of each group.
    dispersion
        See `dispersion`.

    Notes
    -----
    Deviations of the groups are added up within periods, so the test looks for changes that groups
    have in common, and the shares of the groups may change as they like. With one group it is
    Pearson's chi-square test of homogeneity.

    Examples
    --------
    >>> clicks, visits = np.array([[30.0], [50.0]]), np.array([[1_000.0], [1_000.0]])
    >>> found = constancy(visits, clicks, np.array([0.04 * 0.96]), np.zeros(1))
    >>> round(found.statistic, 3), round(found.p_value, 4)
    (5.208, 0.0225)
    """
    above = common_change(n, total, variance)
    per_size = np.maximum(variance, 0.0) / np.maximum(n.sum(axis=0), 1.0)
    covariance = np.diag(n @ np.maximum(variance, 0.0)) - (n * per_size) @ n.T
    scale = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    kept = scale > 0.0
    if kept.sum() < 2:
        return NOTHING
    above, scale = above[kept] / scale[kept], scale[kept]
    values, vectors = np.linalg.eigh(covariance[np.ix_(kept, kept)] / np.outer(scale, scale))
    used = values > 1e-9 * values[-1]
    q = float(np.sum((vectors[:, used].T @ above) ** 2 / values[used]))
    kurtosis = n[kept] @ np.where(variance > 0, fourth, 0.0) / (n[kept] @ variance) ** 2
    return _judged(q, float(used.sum()), float(kurtosis.sum()), dispersion)


def dispersion(
    n: Array, total: Array, variance: Array, period: NDArray[np.int64], slot: NDArray[np.int64]
) -> Dispersion:
    """Return how much more short times vary than independent observations would.

    Parameters
    ----------
    n, total, variance
        As for `constancy`, with short times as rows.
    period, slot
        For each short time, what may have an effect of its own and is not counted: the period it
        is in, and its place in the day or week (all 0 for none).
    """
    above = common_change(n, total, variance)
    weight = n @ variance
    kept = weight > 0.0
    above, weight = above[kept] / weight[kept], weight[kept]
    _, period = np.unique(period[kept], return_inverse=True)
    _, slot = np.unique(slot[kept], return_inverse=True)
    if not weight.size:
        return STEADY
    cells = np.zeros((int(period.max()) + 1, int(slot.max()) + 1))
    sums = np.zeros_like(cells)
    np.add.at(cells, (period, slot), weight)
    np.add.at(sums, (period, slot), weight * above)
    fitted = additive(cells, sums)
    freedom = float(weight.size - sum(cells.shape) + 1)
    if freedom < 10.0:
        return STEADY
    left = float(np.sum(weight * (above - fitted[period, slot]) ** 2))
    return Dispersion(max(left / freedom, 1.0), freedom)


def cycle(
    n: Array,
    total: Array,
    variance: Array,
    fourth: Array,
    slot: NDArray[np.int64],
    dispersion: Dispersion = STEADY,
) -> Result:
    """Test whether places in a cycle (hours of the day, weekdays) differ beyond a smooth trend.

    Parameters
    ----------
    n, total, variance, fourth, dispersion
        As for `constancy`, with short times in their order as rows.
    slot
        The place of each short time in the cycle.

    Notes
    -----
    Weighted least squares of what the short times have above the groups' means, on the places and a
    cubic in time; the sum of squares that the places explain is the statistic.
    """
    above = common_change(n, total, variance)
    weight = n @ variance
    kept = weight > 0.0
    above, weight = above[kept] / weight[kept], weight[kept]
    places, slot = np.unique(slot[kept], return_inverse=True)
    if places.size < 2 or weight.size < places.size + 10:
        return NOTHING
    trend = np.polynomial.legendre.legvander(np.linspace(-1.0, 1.0, weight.size), 3)
    root = np.sqrt(weight)
    left = []
    for design in (trend, np.hstack([trend, np.eye(places.size)[slot]])):
        basis, size, _ = np.linalg.svd(design * root[:, None], full_matrices=False)
        basis = basis[:, size > 1e-9 * size[0]]
        left.append((float(np.sum((basis.T @ (root * above)) ** 2)), basis.shape[1]))
    (less, few), (more, many) = left
    sums = np.bincount(slot, weight)
    fourths = np.bincount(slot, n[kept] @ np.where(variance > 0, fourth, 0.0))
    return _judged(more - less, float(many - few), float(np.sum(fourths / sums**2)), dispersion)


def additive(weight: Array, total: Array) -> Array:
    """Return row effect + column effect, fitted by least squares to total/weight with `weight`."""
    rows, columns = weight.sum(axis=1), weight.sum(axis=0)
    safe = np.where(columns > 0, columns, 1.0)
    matrix = np.diag(rows) - (weight / safe) @ weight.T
    effect = np.linalg.pinv(matrix, hermitian=True) @ (
        total.sum(axis=1) - weight @ (total.sum(axis=0) / safe)
    )
    column = (total.sum(axis=0) - effect @ weight) / safe
    return np.asarray(effect[:, None] + column)


def proportional(n: Array, total: Array, size: Array) -> Array:
    """Return row factor × column factor, fitted to total/n ≥ 0 by iterated scaling.

    Parameters
    ----------
    size
        Of each column: variance over mean of an observation; sums count 1/size.
    """
    column = total.sum(axis=0) / np.maximum(n.sum(axis=0), 1e-300)
    row = np.ones(n.shape[0])
    for _ in range(200):
        before = row
        row = (total / size).sum(axis=1) / np.maximum((n / size) @ column, 1e-300)
        column = total.sum(axis=0) / np.maximum(row @ n, 1e-300)
        if np.max(np.abs(row - before)) <= 1e-10 * np.max(row):
            break
    return np.outer(row, column)


def interaction(
    n: Array,
    total: Array,
    variance: Array,
    fourth: Array,
    size: Array | None,
    dispersion: Dispersion = STEADY,
) -> Result:
    """Test whether groups keep their distance to each other from period to period.

    Parameters
    ----------
    n, total, variance, fourth, dispersion
        As for `constancy`.
    size
        Of each group, E R²/E R of an observation R ≥ 0: then the variance of a group goes with its
        mean μ as size·μ − μ². None for observations of either sign.

    Notes
    -----
    Groups that rise and fall by the same amount, or by the same factor, are called alike: the test
    is made against both, and the larger p value counts. The variance in a period is that of the
    fitted mean. What groups do in common is not looked at.

    Examples
    --------
    >>> n = np.full((4, 2), 10_000.0)
    >>> p = np.array([[0.02, 0.04], [0.03, 0.06], [0.01, 0.02], [0.02, 0.04]])
    >>> v, unit = np.array([0.02, 0.04]), np.ones(2)
    >>> bool(interaction(n, n * p, v, np.zeros(2), unit).p_value > 0.99)  # by the same factor
    True
    >>> p[2:] = p[2:, ::-1]
    >>> bool(interaction(n, n * p, v, np.zeros(2), unit).p_value < 1e-9)
    True
    """
    used = (n.sum(axis=0) > 0) & (variance > 0)
    n, total, variance, fourth = n[:, used], total[:, used], variance[used], fourth[used]
    kept = n.sum(axis=1) > 0
    n, total = n[kept], total[kept]
    seen = n > 0
    freedom = float(seen.sum() - n.shape[0] - n.shape[1] + 1)
    if freedom < 1.0 or n.shape[1] < 2:
        return NOTHING
    mean = np.divide(total, n, out=np.zeros_like(total), where=seen)
    plain = np.broadcast_to(variance, n.shape)
    fits = []
    if size is None:
        fits.append((additive(n / plain, total / plain), plain))
    else:
        size = size[used]
        overall = total.sum(axis=0) / n.sum(axis=0)

        def spread(fitted: Array) -> Array:
            near = np.clip(fitted, 0.1 * overall, np.maximum(0.9 * size, overall))
            return np.maximum(size * near - near * near, 1e-3 * variance)

        spreads = plain
        for _ in range(4):
            fitted = additive(n / spreads, total / spreads)
            spreads = spread(fitted)
        fits.append((fitted, spreads))
        fitted = proportional(n, total, size)
        fits.append((fitted, spread(fitted)))
    results = []
    share = freedom / seen.sum()  # of a deviation that the fit leaves
    for fitted, spreads in fits:
        q = float(np.sum(np.where(seen, n * (mean - fitted) ** 2 / spreads, 0.0)))
        kurtosis = np.where(seen, fourth / np.maximum(n, 1.0) / spreads**2, 0.0)
        results.append(_judged(q, freedom, float(share**2 * kurtosis.sum()), dispersion))
    return max(results, key=lambda each: each.p_value)


def holm(p_values: Array) -> Array:
    """Return p values adjusted for their number (Holm 1979).

    Examples
    --------
    >>> holm(np.array([0.01, 0.04, 0.02]))
    array([0.03, 0.04, 0.04])
    """
    order = np.argsort(p_values, kind="stable")
    steps = p_values[order] * np.arange(p_values.size, 0, -1)
    out = np.empty(p_values.size)
    out[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return out
