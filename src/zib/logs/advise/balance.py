"""Whether the arms of a log met the same situations, and what to compare where they did not.

A log without propensities can be read as an experiment only if arms were chosen without looking at
the context. That is tested here. If it fails, raw means compare situations rather than arms, and
doubly robust values take their place.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from zib.core import validate as check
from zib.core.rng import Role, stream
from zib.logs.advise.estimates import ArmSummary, Weighted
from zib.logs.advise.words import balance_words
from zib.logs.log import Log
from zib.logs.ope.models import Hurdle
from zib.logs.ope.propensities import LogisticSource, shares_of
from zib.logs.ope.readers import Survey
from zib.logs.passes import Block, merge_parts, read
from zib.stats.balance import (
    Terms,
    permutation_test,
    standardised_differences,
    terms_of,
)
from zib.stats.clusters import ClusteredMoments
from zib.stats.intervals import Estimate, from_error, share, skewed
from zib.stats.moments import Moments
from zib.stats.sampling import SmallestHashes, row_hashes

Array = NDArray[np.float64]
Codes = NDArray[np.int64]

ERROR = 0.01  # of all tests of balance together
LARGE = 0.1  # standardised difference that is usually called large
MOST_ROWS = 30_000
MOST_NUMBERS = 4_000_000  # kept with them
MOST_ARMS = 50  # for doubly robust values
FEWEST_EACH = 10  # rows with and without a 0/1 column, per arm, for its own test
FOLDS = 3
FIT_ROWS = 60_000
LEAST_CHANCE = 0.1  # of an arm in a row, as a share of its chance on average
LEAST_KEPT = 0.25  # rows in which every arm had a chance; below, arms are not comparable
LEAST_ROWS = 30  # effective rows of an arm there
SALT = 9


class ColumnBalance(NamedTuple):
    """How far the arms differ in one column of the context, in standard deviations."""

    column: str
    difference: float
    high: Hashable
    low: Hashable


@dataclass(frozen=True)
class Balance:
    """Whether the arms met the same situations.

    Attributes
    ----------
    fails
        Whether the context tells which arm was played, at the level `error`.
    comparable
        Whether the arms can be compared all the same: every arm had a chance in enough rows.
    p_value
        Of the permutation test of a classifier of arm on context; of a column on its own, over all
        rows and counted for the number of columns, where that is smaller.
    error
        Probability of `fails` where arms were drawn at random.
    rows
        Rows on which the classifier was tested.
    differences
        Largest standardised difference between two arms in each column, the largest first.
    right, by_share
        Share of the arms that a cross-fitted classifier gets right, and share of the most frequent
        arm; NaN unless `fails`.
    kept
        Share of the rows where every arm had a chance of at least a tenth of its average; the arms
        are compared on these.
    arms
        Doubly robust estimates of each arm in those rows, or None.
    values, covariance, skewness, freedom
        The doubly robust mean rewards, the covariance matrix of their errors, their skewness and
        the degrees of freedom; None where arms are not compared.
    reason
        Why arms are not compared, or nothing.
    """

    fails: bool
    comparable: bool
    p_value: float
    error: float
    rows: int
    differences: tuple[ColumnBalance, ...]
    right: float = math.nan
    by_share: float = math.nan
    kept: float = 1.0
    arms: tuple[Weighted | None, ...] = ()
    values: Array | None = None
    covariance: Array | None = None
    skewness: Array | None = None
    freedom: float = math.nan
    reason: str = ""

    @property
    def words(self) -> str:
        """The answer in a sentence or two."""
        return balance_words(self)


# ------------------------------------------------------------------------- how arms were drawn


class Drawn(NamedTuple):
    """What the caller says about how arms were drawn.

    `shares` are the probabilities of the arms, the same in every row, or None.
    """

    randomised: bool
    shares: Array | None


def drawn(randomised: Any, log: Log) -> Drawn:
    """Return what the caller says, or raise where the log says something else."""
    if isinstance(randomised, Mapping):
        return Drawn(True, shares_of("randomised", randomised, log.arms))
    if not isinstance(randomised, (bool, np.bool_)):
        raise check.InvalidTypeError(
            "`randomised` must be True, False or a mapping of arms to probabilities; "
            f"got {check.shown(randomised)}"
        )
    return Drawn(bool(randomised), None)


def mismatch(rows: Array, shares: Array | None) -> float:
    """Return the p-value of the chi-square test that arms occur with the shares they should have.

    Examples
    --------
    >>> round(mismatch(np.array([520.0, 480.0]), np.array([0.5, 0.5])), 3)
    0.206
    """
    from scipy.stats import chisquare

    if shares is None:
        return 1.0
    possible = shares > 0.0
    if rows[~possible].sum() > 0:
        return 0.0
    if possible.sum() < 2:
        return 1.0
    return float(chisquare(rows[possible], shares[possible] * rows.sum()).pvalue)


# ---------------------------------------------------------------------------------------- test


class BalanceReader:
    """Reads what the test needs: a sample of rows, and means of the context by arm."""

    def __init__(self, log: Log, seed: int) -> None:
        width = len(log.context_names)
        self._seed = seed
        self.sample = SmallestHashes(min(MOST_ROWS, MOST_NUMBERS // max(width, 1)))
        self.moments = Moments((len(log.arms), width))

    def look(self, block: Block) -> None:
        """Take in the rows of a block."""
        from scipy.sparse import csc_array

        n_arms, width = self.moments.mean.shape
        if not width:
            return
        key = row_hashes(self._seed, SALT, block.start, block.size)
        # without clusters every row is one of its own, and its hash names it
        self.sample.add(
            key, block.arm, block.context, key if block.cluster is None else block.cluster
        )
        ends = np.arange(block.size + 1)
        of_arm = csc_array((np.ones(block.size), block.arm, ends), shape=(n_arms, block.size))
        count = np.bincount(block.arm, minlength=n_arms).astype(np.float64)[:, None]
        mean = of_arm @ block.context / np.maximum(count, 1.0)
        squares = of_arm @ (block.context - mean[block.arm]) ** 2
        part = Moments((n_arms, width))
        part.count, part.mean, part.m2 = np.broadcast_to(count, mean.shape), mean, squares
        self.moments.merge(part)

    def merge(self, other: BalanceReader) -> None:
        """Take what was read of the rows that follow."""
        merge_parts(self, other)

    def rows(self) -> tuple[Codes, Array]:
        """Return arm and context of the sample; of each cluster one row, drawn at random."""
        arm, context, cluster = self.sample.rows()
        _, first = np.unique(cluster, return_index=True)
        at = np.sort(first)
        return arm[at], context[at]

    @property
    def whole(self) -> bool:
        """Whether the sample holds all independent rows."""
        rows = self.sample.rows()
        return int(self.sample.seen.sum()) == len(rows[0]) or len(np.unique(rows[2])) < len(rows[0])


def check_balance(log: Log, reader: BalanceReader, seed: int) -> Balance | None:
    """Return whether context and arms of a log go together; None without context or choice.

    Where rows come in clusters only one row of each is tested, since arms may have been drawn for
    whole clusters.
    """
    if not log.context_names or len(log.arms) < 2:
        return None
    arm, context = reader.rows()
    rng = stream(seed, Role.BOOTSTRAP, SALT)
    found = permutation_test(terms_of(context).of(context), arm, rng)
    count = reader.moments.count[:, 0]
    variance = reader.moments.m2 / np.maximum(reader.moments.count, 1.0)
    differences = standardised_differences(count, reader.moments.mean, variance)
    p = found.p_value
    if not reader.whole:
        # A sample misses small differences that a long log turns into clear ones. The columns are
        # tested on all rows, each test with its share of half the level.
        tested = _testable(count, reader.moments.mean, variance)
        least = min((d.p_value for d in differences if tested[d.column]), default=1.0)
        p = min(1.0, 2.0 * min(p, least * max(int(tested.sum()), 1)))
    return Balance(
        p <= ERROR, True, p, ERROR, len(arm),
        tuple(
            ColumnBalance(log.context_names[d.column], d.size, log.arms[d.high], log.arms[d.low])
            for d in differences
        ),
    )  # fmt: skip


def _testable(count: Array, mean: Array, variance: Array) -> NDArray[np.bool_]:
    """Return for which columns the F test holds: no 0/1 column that is nearly constant."""
    total = float(count.sum())
    centre = count @ mean / total
    spread = count @ (variance + (mean - centre) ** 2) / total
    # a 0/1 column with share s has variance s(1 − s)
    binary = np.abs(spread - centre * (1.0 - centre)) <= 1e-9
    smallest = float(count[count > 0].min(initial=total))
    rare = np.minimum(centre, 1.0 - centre) * smallest < FEWEST_EACH
    return np.asarray((spread > 0.0) & ~(binary & rare))


# ------------------------------------------------------------------------------- doubly robust


class _OnTerms:
    """The outcome model on columns, squares and products of the context."""

    weighted = True

    def fit(
        self, arm: Codes, context: Array, reward: Array, n_arms: int, weight: Array | None = None
    ) -> _OnTerms:
        self._terms: Terms = terms_of(context)
        self._model = Hurdle().fit(arm, self._terms.of(context), reward, n_arms, weight)
        return self

    def predict(self, context: Array) -> Array:
        return self._model.predict(self._terms.of(context))

    def parts(self, context: Array) -> tuple[Array, Array]:
        return self._model.parts(self._terms.of(context))


class RobustValues:
    """Adds up the doubly robust values of all arms, in rows where each of them had a chance."""

    def __init__(self, log: Log, survey: Survey, source: LogisticSource) -> None:
        self._survey, self._source = survey, source
        self._share = survey.totals.rows / max(log.n_rows, 1)
        self._there = survey.totals.rows > 0
        self._reset(len(log.arms))

    def _reset(self, n_arms: int) -> None:
        self.rows = self.right = self.kept = 0
        self.weight, self.squares = np.zeros(n_arms), np.zeros(n_arms)
        width = 2 * n_arms
        self.mean, self.second = np.zeros(width), np.zeros((width, width))
        self.third = Moments(width, order=3)
        self.clustered: ClusteredMoments | None = None

    def look(self, block: Block) -> None:
        """Take in the rows of a block."""
        chance = self._source.all(block)
        self.rows += block.size
        self.right += int(np.count_nonzero(chance.argmax(axis=1) == block.arm))
        inside = (chance >= LEAST_CHANCE * self._share)[:, self._there].all(axis=1)
        at = np.flatnonzero(inside)
        if not at.size:
            return
        p, size = self._survey.parts(block)
        p, size, chance = p[at], size[at], chance[at]
        arm, reward = block.arm[at], block.reward[at]
        rows = np.arange(at.size)
        weight = 1.0 / chance[rows, arm]
        psi = np.hstack([p * size, p])
        n_arms = p.shape[1]
        psi[rows, arm] += weight * (reward - psi[rows, arm])
        psi[rows, n_arms + arm] += weight * ((reward != 0.0) - psi[rows, n_arms + arm])
        self.weight += np.bincount(arm, weight, n_arms)
        self.squares += np.bincount(arm, weight * weight, n_arms)
        self._add(psi)
        if block.cluster is not None:
            if self.clustered is None:
                self.clustered = ClusteredMoments(psi.shape[1])
            self.clustered.add(psi, block.cluster[at])

    def _add(self, psi: Array) -> None:
        mean = psi.mean(axis=0)
        centred = psi - mean
        self._join(len(psi), mean, centred.T @ centred)
        self.third.add(psi)

    def _join(self, n: int, mean: Array, second: Array) -> None:
        total = self.kept + n
        if n:
            step = mean - self.mean
            self.second += second + np.multiply.outer(step, step) * (self.kept * n / total)
            self.mean = self.mean + step * (n / total)
        self.kept = total

    def fresh(self) -> RobustValues:
        """Return a reader with the same fits that has seen nothing."""
        out = copy.copy(self)
        out._reset(self.weight.size)
        return out

    def merge(self, other: RobustValues) -> None:
        """Take what was found in the rows that follow."""
        self.weight, self.squares = self.weight + other.weight, self.squares + other.squares
        self.rows, self.right = self.rows + other.rows, self.right + other.right
        self._join(other.kept, other.mean, other.second)
        self.third.merge(other.third)
        if self.clustered is None:
            self.clustered = other.clustered
        elif other.clustered is not None:
            self.clustered.merge(other.clustered)

    def errors(self) -> tuple[Array, Array, float]:
        """Return covariance matrix and skewness of the means, and degrees of freedom."""
        if self.clustered is not None:
            influence, n = self.clustered.influences(), self.clustered.n
            second, third = influence.T @ influence, (influence**3).sum(axis=0)
        else:
            second, third, n = self.second, self.third.m3, self.kept
        covariance = second / max(n * (n - 1), 1)
        variance = np.diag(second) / max(n, 1)
        with np.errstate(all="ignore"):
            skewness = np.where(variance > 0, third / n / variance**1.5, 0.0) / math.sqrt(max(n, 1))
        return covariance, skewness, float(n - 1)


def doubly_robust(
    log: Log, checked: Balance, level: float, seed: int, tell: Callable[[float], None]
) -> Balance:
    """Return the balance with doubly robust values of the arms; the log is read twice.

    Chances of the arms and models of the reward are fitted in folds on columns, squares and
    products of the context, and each row is treated by the fit without its fold. The values are
    right if either is right, and if the context holds every reason of the choices.
    """
    n_arms = len(log.arms)
    if n_arms > MOST_ARMS:
        return replace(checked, comparable=False, reason=f"there are more than {MOST_ARMS} arms")
    if log.n_rows < 10 * FOLDS:
        return replace(checked, comparable=False, reason="the log is too short to fit a model")
    source = LogisticSource(n_arms, FIT_ROWS, seed, FOLDS)
    survey = Survey(log, source, _OnTerms(), FOLDS, FIT_ROWS, seed)
    read(log, survey, tell=lambda part: tell(0.4 * part))
    survey.finish()
    found = RobustValues(log, survey, source)
    read(log, found, tell=lambda part: tell(0.5 + 0.5 * part))
    rows = survey.totals.rows
    out = replace(
        checked,
        right=found.right / found.rows,
        by_share=float(rows.max()) / found.rows,
        kept=found.kept / found.rows,
    )
    effective = found.weight**2 / np.where(found.squares > 0, found.squares, 1.0)
    few = [arm for arm, n, played in zip(log.arms, effective, rows) if played and n < LEAST_ROWS]
    if out.kept < LEAST_KEPT:
        why = "in most rows the context decides which arm is played"
        return replace(out, comparable=False, reason=why)
    if few:
        why = f"where every arm had a chance, arm {few[0]!r} was hardly played"
        return replace(out, comparable=False, reason=why)
    covariance, skewness, freedom = found.errors()
    arms = tuple(
        _estimates(found.mean[[k, n_arms + k]], covariance[np.ix_(at, at)], float(skewness[k]),
                   freedom, float(effective[k]), level)
        if rows[k] and survey.totals.nonzero[k] else None
        for k in range(n_arms) for at in ([k, n_arms + k],)
    )  # fmt: skip
    return replace(
        out, arms=arms, values=found.mean[:n_arms], covariance=covariance[:n_arms, :n_arms],
        skewness=skewness[:n_arms], freedom=freedom,
    )  # fmt: skip


def _estimates(
    value: Array, covariance: Array, skewness: float, freedom: float, rows: float, level: float
) -> Weighted:
    """Return p, mu = r/p and r of an arm with their intervals."""
    r, p = float(value[0]), min(max(float(value[1]), 0.0), 1.0)
    error = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    of_r = skewed(r, float(error[0]), skewness, df=freedom, level=level)
    like = p * (1.0 - p) / error[1] ** 2 if error[1] > 0 and 0.0 < p < 1.0 else rows
    of_p = share(p * like, like, level=level)
    of_mu = Estimate(math.nan, -math.inf, math.inf)
    if p > 0.0:
        mu = r / p
        along = np.array([1.0, -mu]) / p
        spread = math.sqrt(max(float(along @ covariance @ along), 0.0))
        of_mu = from_error(mu, spread, df=freedom, level=level)
    of_all = tuple(Estimate(*map(float, part)) for part in (of_p, of_mu, of_r))
    return Weighted(of_all[0], of_all[1], of_all[2], rows)


def with_values(arms: tuple[ArmSummary, ...], balance: Balance | None) -> tuple[ArmSummary, ...]:
    """Return the arms with the estimates that are fit for comparing them."""
    if balance is None or not balance.arms:
        return arms
    return tuple(replace(arm, weighted=each) for arm, each in zip(arms, balance.arms, strict=True))
