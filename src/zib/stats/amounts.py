"""Amounts that depend on how long they took.

While decisions are young only short delays are seen. If orders that come late are larger, the
average of what has come so far is too small. Given its delay, though, an amount is not changed by
when one looks: averages by delay are right, and only their mixture has to be that of F.

With n(k, q) rewards of arm k whose delay is in group q, the average amount there is taken as mu(k)
times g(q), fitted to the sums of all arms. Then the mean of arm k over all delays is its average so
far times

    Σ f(q) g(q) / (Σ n(k, q) g(q) / n(k)),

with f(q) the share of delays in the group by F. Weighting each amount with 1/F(age of its decision)
does not do this: it gives the mean over ages of what is seen by that age, and makes the youngest
decisions, which have seen the least, count most.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from zib.stats.delay import DelayDistribution

Array = NDArray[np.float64]
Whole = NDArray[np.int64]

GROUPS = 10  # of delays
FEWEST = 100  # rewards for which the test is made
ROUNDS = 50


def amount_factors(
    keys: Whole,
    sums: Array,
    n_arms: int,
    delays: Sequence[DelayDistribution],
    edges: Array,
) -> tuple[Array, float]:
    """Return the factor of each arm's average, and the p-value of "amounts do not depend on delay".

    Parameters
    ----------
    keys, sums
        Rows of arm, bucket and bin of the delay (−1: unknown), and of number, sum and sum of
        squares of amounts.
    n_arms
        Number of arms.
    delays
        F of each arm.
    edges
        Of the bins.
    """
    rows = keys[:, 2] >= 0
    arm, bins, held = keys[rows, 0], keys[rows, 2], sums[rows]
    by_bin = np.bincount(bins, held[:, 0], minlength=edges.size - 1)
    if by_bin.sum() < 2:
        return np.ones(n_arms), 1.0
    # groups of bins with about as many rewards each
    group = np.minimum((np.cumsum(by_bin) - 0.5 * by_bin) / by_bin.sum() * GROUPS, GROUPS - 1e-9)
    group = np.unique(group.astype(np.int64), return_inverse=True)[1]
    n_groups = int(group[-1]) + 1
    cell = arm * n_groups + group[bins]
    n, total, squares = (
        np.bincount(cell, column, minlength=n_arms * n_groups).reshape(n_arms, n_groups)
        for column in held.T
    )
    paying = (n.sum(axis=1) > 1.0) & (total.sum(axis=1) > 0.0)
    if n_groups < 2 or not paying.any():
        return np.ones(n_arms), 1.0
    n, total, squares = n[paying], total[paying], squares[paying]
    shape = _shape(n, total)
    ends = np.append(np.flatnonzero(np.diff(group)) + 1, edges.size - 1)
    shares = np.array(
        [np.diff(delays[int(k)](edges[ends]), prepend=0.0) for k in np.flatnonzero(paying)]
    )
    factors = np.ones(n_arms)
    factors[paying] = (shares @ shape) * n.sum(axis=1) / np.maximum(n @ shape, 1e-300)
    p_value = _p_value(n, total, squares) if n.sum() >= FEWEST else 1.0
    return factors, p_value


def _shape(n: Array, total: Array) -> Array:
    """Return g: sums are fitted by n(k, q) mu(k) g(q), the maximum of a Poisson likelihood."""
    shape = np.ones(n.shape[1])
    for _ in range(ROUNDS):
        mean = total.sum(axis=1) / np.maximum(n @ shape, 1e-300)
        shape = np.maximum(total.sum(axis=0) / np.maximum(mean @ n, 1e-300), 1e-9)
    return np.where(n.sum(axis=0) > 0.0, shape, 1.0)


def _p_value(n: Array, total: Array, squares: Array) -> float:
    """Return the p-value of a score test for a trend and a bend over groups, within arms.

    The variance is the one that is seen in each cell, so amounts may scatter more where they are
    larger.
    """
    from scipy.special import chdtrc

    of_arm = n.sum(axis=1, keepdims=True)
    mean = total.sum(axis=1, keepdims=True) / of_arm
    off = total / mean - n
    scatter = np.maximum(squares / mean**2 - 2.0 * total / mean + n, 0.0)
    x = np.linspace(-1.0, 1.0, n.shape[1])
    scores = np.array([s - (n * s).sum(axis=1, keepdims=True) / of_arm for s in (x, x * x)])
    u = (scores * off).sum(axis=(1, 2))
    v = np.einsum("akq,bkq,kq->ab", scores, scores, scatter)
    rank = int(np.linalg.matrix_rank(v, hermitian=True))
    if rank == 0:
        return 1.0
    statistic = float(u @ np.linalg.pinv(v, hermitian=True) @ u)
    return float(chdtrc(rank, max(statistic, 0.0)))
