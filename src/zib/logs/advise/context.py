"""Whether the context decides which arm is best: a test of context × arm in both parts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from zib.logs.advise.collect import Collected
from zib.logs.advise.words import context_words
from zib.stats.regression import fit_logit

Array = NDArray[np.float64]

ERROR = 0.01  # of both tests together
MOST_ARMS = 50
FEWEST = 20  # non-zero rewards of an arm, and five per coefficient


@dataclass(frozen=True)
class PartTest:
    """One test: slopes of the context that differ by arm against slopes common to all arms."""

    part: str
    statistic: float
    freedom: int
    p_value: float


@dataclass(frozen=True)
class ContextReport:
    """Whether the context matters for choosing an arm.

    Attributes
    ----------
    tests
        Of the occurrence (logistic regression, likelihood ratio) and of the magnitude (least
        squares, F as a likelihood ratio); those that could be made.
    matters
        Whether one of them rejects at 1 % for both together (Bonferroni).
    reason
        Why no test was made, or nothing.
    """

    names: tuple[str, ...]
    tests: tuple[PartTest, ...]
    matters: bool
    reason: str = ""

    @property
    def words(self) -> str:
        """The answer in one sentence."""
        return context_words(self)


def context_report(found: Collected) -> ContextReport | None:
    """Return the test of context × arm; None for a log without context.

    Notes
    -----
    The sample holds rows that paid and rows that did not in other proportions than the log.
    Logistic slopes are not changed by that, and the intercepts of the arms absorb it.
    """
    names = found.context_names
    if not names:
        return None
    paid = found.context_reward != 0.0
    counts = np.bincount(found.context_arm[paid], minlength=found.n_arms)
    rest = np.bincount(found.context_arm[~paid], minlength=found.n_arms)
    x = _standardised(found.context)
    width = x.shape[1]
    enough = max(FEWEST, 5 * (width + 1))
    usable = np.flatnonzero((counts >= enough) & (rest >= enough))
    busy = np.flatnonzero(counts >= enough)
    if found.n_arms > MOST_ARMS:
        why = f"The context was not tested: {found.n_arms} arms are more than {MOST_ARMS}."
        return ContextReport(names, (), False, why)
    if width == 0:
        return ContextReport(names, (), False, "The context never varies, so it says nothing.")
    tests = []
    if usable.size >= 2:
        keep = np.isin(found.context_arm, usable)
        tests.append(_occurrence(x[keep], found.context_arm[keep], paid[keep]))
    if busy.size >= 2:
        keep = paid & np.isin(found.context_arm, busy)
        y = found.context_reward[keep]
        if y.min() < y.max():
            tests.append(_magnitude(x[keep], found.context_arm[keep], y))
    if not tests:
        why = (
            "The context was not tested: that takes two arms with at least "
            f"{enough} non-zero rewards each."
        )
        return ContextReport(names, (), False, why)
    matters = any(test.p_value < ERROR / len(tests) for test in tests)
    return ContextReport(names, tuple(tests), matters)


def _standardised(context: Array) -> Array:
    """Return the columns with mean 0 and spread 1, without those that depend on others."""
    from scipy.linalg import qr

    spread = context.std(axis=0) if len(context) else np.zeros(context.shape[1])
    size = np.abs(context).max(axis=0, initial=0.0)
    x = context[:, spread > 1e-9 * size]
    if x.shape[1] == 0:
        return x
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    triangle, order = qr(x, mode="r", pivoting=True)
    depth = np.abs(np.diag(triangle))
    return np.asarray(x[:, np.sort(order[: depth.size][depth > 1e-8 * depth[0]])])


def _by_arm(x: Array, arm: NDArray[np.int64]) -> list[NDArray[np.intp]]:
    return [np.flatnonzero(arm == k) for k in np.unique(arm)]


def _occurrence(x: Array, arm: NDArray[np.int64], paid: NDArray[np.bool_]) -> PartTest:
    groups = _by_arm(x, arm)
    dummies = np.zeros((len(x), len(groups)))
    for j, rows in enumerate(groups):
        dummies[rows, j] = 1.0
    common, rank = _logistic(np.hstack([dummies, x]), paid)
    apart, own = 0.0, 0
    for rows in groups:
        likelihood, free = _logistic(np.hstack([np.ones((rows.size, 1)), x[rows]]), paid[rows])
        apart += likelihood
        own += free
    return _chi_square("occurrence", 2.0 * (apart - common), own - rank)


def _logistic(x: Array, paid: NDArray[np.bool_]) -> tuple[float, int]:
    """Return the largest log-likelihood of a logistic regression and the rank of its design."""
    rank = int(np.linalg.matrix_rank(x.T @ x, hermitian=True))
    return fit_logit(x, paid.astype(np.float64)).value, rank


def _magnitude(x: Array, arm: NDArray[np.int64], y: Array) -> PartTest:
    """Test on log X where all X are positive, where the noise is nearer to constant; else on X."""
    from scipy.stats import f

    values = np.log(np.abs(y)) if (y > 0).all() or (y < 0).all() else y / np.abs(y).max()
    groups = _by_arm(x, arm)
    own_x, own_y = x.copy(), values.copy()
    apart, own = 0.0, 0
    for rows in groups:
        design = np.hstack([np.ones((rows.size, 1)), x[rows]])
        residual, rank = _least_squares(design, values[rows])
        apart += residual
        own += rank
        own_x[rows] -= x[rows].mean(axis=0)
        own_y[rows] -= values[rows].mean()
    common, rank = _least_squares(own_x, own_y)
    freedom = own - len(groups) - rank
    left = y.size - own
    if freedom <= 0 or left <= 0 or apart <= 0.0:
        return PartTest("magnitude", 0.0, max(freedom, 0), 1.0)
    ratio = (common - apart) / freedom / (apart / left)
    return PartTest("magnitude", ratio, freedom, float(f.sf(ratio, freedom, left)))


def _least_squares(x: Array, y: Array) -> tuple[float, int]:
    beta, _, rank, _ = np.linalg.lstsq(x, y, rcond=1e-9)
    return float(np.sum((y - x @ beta) ** 2)), int(rank)


def _chi_square(part: str, statistic: float, freedom: int) -> PartTest:
    from scipy.special import chdtrc

    if freedom <= 0:
        return PartTest(part, 0.0, 0, 1.0)
    statistic = max(statistic, 0.0)
    return PartTest(part, statistic, freedom, float(chdtrc(freedom, statistic)))
