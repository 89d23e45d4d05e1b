"""Whether groups differ in what was known before they were formed.

The test asks whether a multinomial classifier can tell the groups apart: its score statistic,
Σₖ nₖ x̄ₖ'S⁻¹x̄ₖ with x̄ₖ the centred mean of group k and S the covariance of all rows, compared with
what it is after the groups were dealt out at random. That is valid for any number of groups, any
columns and any sample size.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Codes = NDArray[np.int64]

MOST_TERMS = 60
ROWS_PER_TERM = 20
FAR = 5.0  # standardised columns are cut there: one huge value must not decide
PERMUTATIONS = 199
LOOK = 4_000  # rows looked at to see which terms depend on others
ENOUGH = 10  # statistics above the observed one after which to stop


class Terms(NamedTuple):
    """Functions of a context: its columns, standardised, then squares and products of them."""

    centre: Array
    scale: Array
    columns: Codes
    products: Codes  # (m, 2), positions among the columns kept
    product_centre: Array
    product_scale: Array

    def of(self, context: Array) -> Array:
        """Return the terms of each row."""
        x = (context[:, self.columns] - self.centre) / self.scale
        np.clip(x, -FAR, FAR, out=x)
        if not len(self.products):
            return x
        more = x[:, self.products[:, 0]] * x[:, self.products[:, 1]]
        return np.hstack([x, (more - self.product_centre) / self.product_scale])


def terms_of(context: Array) -> Terms:
    """Choose the terms from rows in random order.

    Columns that vary come first, then what there is room for: squares, and products of two columns;
    at most `MOST_TERMS` terms in all and one for every `ROWS_PER_TERM` rows. What depends linearly
    on earlier terms is left out.

    Examples
    --------
    >>> x = np.column_stack([np.arange(100.0), np.ones(100), np.arange(100) % 2])
    >>> terms_of(x).columns.tolist(), terms_of(x).products.tolist()
    ([0, 2], [[0, 0], [0, 1]])
    """
    n, width = context.shape
    mean = context.mean(axis=0) if n else np.zeros(width)
    spread = context.std(axis=0) if n else np.zeros(width)
    size = np.abs(context).max(axis=0, initial=0.0)
    kept = np.flatnonzero(spread > 1e-9 * size)
    z = np.clip((context[:, kept] - mean[kept]) / spread[kept], -FAR, FAR)
    own = independent(z[:LOOK])
    kept, z = kept[own], z[:, own]
    room = max(min(MOST_TERMS, n // ROWS_PER_TERM) - kept.size, 0)
    d = kept.size
    pairs = [(i, i) for i in range(d) if np.unique(z[:200, i]).size > 2]
    pairs += [(i, j) for i in range(d) for j in range(i + 1, d)]
    if len(pairs) > room:  # all products or none: which of them matter is not known
        squares = [pair for pair in pairs if pair[0] == pair[1]]
        pairs = squares if len(squares) <= room else []
    products = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    more = z[:, products[:, 0]] * z[:, products[:, 1]]
    centre, scale = more.mean(axis=0) if n else np.zeros(len(products)), more.std(axis=0)
    varies = scale > 1e-9
    products, more = products[varies], more[:, varies]
    centre, scale = centre[varies], scale[varies]
    if len(products):
        new = independent(np.hstack([z, (more - centre) / scale])[:LOOK])[d:]
        products, centre, scale = products[new], centre[new], scale[new]
    return Terms(mean[kept], spread[kept], kept, products, centre, scale)


def independent(x: Array) -> NDArray[np.bool_]:
    """Return which columns do not depend linearly on those before them (and a constant)."""
    keep = np.ones(x.shape[1], dtype=bool)
    basis = np.empty((len(x), 0))
    for j in range(x.shape[1]):
        column = x[:, j] - x[:, j].mean()
        size = float(np.linalg.norm(column))
        for _ in range(2):  # the second time takes out what rounding left
            column = column - basis @ (basis.T @ column)
        rest = float(np.linalg.norm(column))
        keep[j] = size > 0.0 and rest > 1e-6 * size
        if keep[j]:
            basis = np.column_stack([basis, column / rest])
    return keep


class PermutationTest(NamedTuple):
    """The score statistic, its expectation for groups dealt at random, and the p-value."""

    statistic: float
    expected: float
    p_value: float


def permutation_test(x: Array, group: Codes, rng: np.random.Generator) -> PermutationTest:
    """Test whether the rows of `x` have one and the same law in all groups.

    The p-value is (1 + number above)/(1 + number of permutations) after `PERMUTATIONS` of them, or,
    if `ENOUGH` statistics lie above the observed one before that, `ENOUGH` over their number
    (Besag and Clifford, 1991). Either has at most the level it says.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> group = rng.integers(3, size=600)
    >>> x = rng.normal(size=(600, 4))
    >>> permutation_test(x, group, rng).p_value > 0.05
    True
    >>> permutation_test(x + 0.5 * (group == 2)[:, None], group, rng).p_value
    0.005
    """
    from scipy.sparse import csc_array

    _, code = np.unique(group, return_inverse=True)
    n, groups = len(x), int(code.max(initial=-1)) + 1
    if groups < 2 or x.shape[1] == 0 or n < 3:
        return PermutationTest(0.0, 0.0, 1.0)
    basis, _ = np.linalg.qr(x - x.mean(axis=0))
    basis = np.ascontiguousarray(basis * np.sqrt(n - 1.0))
    count, ones, ends = np.bincount(code).astype(np.float64), np.ones(n), np.arange(n + 1)

    def statistic(dealt: NDArray[np.int64]) -> float:
        sums = csc_array((ones, dealt, ends), shape=(groups, n)) @ basis
        return float((sums**2 / count[:, None]).sum())

    observed = statistic(code)
    close = observed * (1.0 - 1e-12)  # sums in another order are not larger
    above = drawn = 0
    while drawn < PERMUTATIONS and above < ENOUGH:
        above += statistic(rng.permutation(code)) >= close
        drawn += 1
    p = ENOUGH / drawn if above == ENOUGH else (1 + above) / (1 + PERMUTATIONS)
    return PermutationTest(observed, float((groups - 1) * x.shape[1]), p)


class ColumnDifference(NamedTuple):
    """The largest difference between two groups in one column, in standard deviations."""

    column: int
    size: float
    high: int
    low: int
    p_value: float


def standardised_differences(
    count: Array, mean: Array, variance: Array, fewest: float = 50.0
) -> list[ColumnDifference]:
    """Return the largest standardised difference of each column, the largest first.

    Parameters
    ----------
    count
        Rows of each group, (K,).
    mean, variance
        Of each group and column, (K, d), the variance with divisor n.
    fewest
        Groups with fewer rows are left out (unless fewer than two are left): their means differ by
        chance alone.

    Notes
    -----
    The difference of two groups is divided by the root of the mean of their variances. The p-value
    is that of the F test of equal means of all groups.

    Examples
    --------
    >>> found = standardised_differences(
    ...     np.array([100.0, 100.0]), np.array([[0.0], [0.5]]), np.ones((2, 1))
    ... )
    >>> found[0].size, round(found[0].p_value, 4)
    (0.5, 0.0005)
    """
    from scipy.stats import f

    large = np.flatnonzero(count >= fewest)
    if large.size < 2:
        large = np.argsort(-count, kind="stable")[:2]
    out = []
    total = float(count.sum())
    for j in range(mean.shape[1]):
        high, low = (int(large[i]) for i in (np.argmax(mean[large, j]), np.argmin(mean[large, j])))
        apart = float(mean[high, j] - mean[low, j])
        spread = float(np.sqrt((variance[high, j] + variance[low, j]) / 2.0))
        size = apart / spread if spread > 0.0 else (np.inf if apart > 0.0 else 0.0)
        centre = float(count @ mean[:, j]) / total
        between = float(count @ (mean[:, j] - centre) ** 2)
        within = float(count @ variance[:, j])
        freedom = int((count > 0).sum()) - 1
        left = total - freedom - 1
        if freedom < 1 or left < 1 or between == 0.0:
            p = 1.0
        else:
            p = float(f.sf(between / freedom / (within / left), freedom, left)) if within else 0.0
        out.append(ColumnDifference(j, float(size), high, low, p))
    return sorted(out, key=lambda found: -found.size)
