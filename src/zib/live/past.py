"""What the history says: the gain, shares that are off, drift, and events that do not come."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from zib.live.book import HOLDOUT, POLICY
from zib.live.database import Connection
from zib.live.history import CHART, HOUR, MANY, chart_width, first_of, read_history
from zib.live.outcome import SECOND
from zib.live.status import Looked
from zib.live.views import Drift, Gain, History, Missing, Ratio
from zib.stats import watch
from zib.stats.gain import Cells, by_arms, by_holdout, by_weighting
from zib.stats.intervals import Estimate

Array = NDArray[np.float64]

DAY = 24 * HOUR
RATIO_WRONG = 0.01  # how often the sample-ratio test may be wrong, over all looks
DRIFT_WRONG = 0.05  # the same of the tests for drift, all together
SETTLED = 0.8  # share of the rewards that must be known of decisions that tell about drift
FINE = 20  # periods in window and grace, at least
SHORT = HOUR  # windows up to this are watched for drift by the hour, others by the day


class Past:
    """The history of a bandit at a moment.

    Parameters
    ----------
    connection
        In a transaction that sees one moment.
    looked
        What was read there already.
    now
        The time in microseconds.
    """

    def __init__(self, connection: Connection, looked: Looked, now: int) -> None:
        horizon = looked.bandit.configuration.settings.rules.horizon
        first = first_of(connection, looked.bandit.id)
        self._bar = chart_width(now - (now if first is None else first), horizon)
        # as coarse as the chart, but fine enough for the delay of rewards
        fine = max((w for w in CHART if FINE * w <= horizon), default=CHART[0])
        self._period = min(self._bar, fine)
        self._rows = read_history(connection, looked.bandit.id, self._period)
        self._settings = looked.bandit.configuration.settings
        self._contextual = looked.bandit.configuration.is_contextual
        self._labels = [arm.label for arm in looked.bandit.arms.values()]
        self._pending = looked.pending
        self._knows_delays = looked.knows_delays
        self._known = self._share_known(now)

    def _share_known(self, at: int) -> Array:
        """Return which share of the rewards of each row is known at a time."""
        old = np.maximum(at - self._rows.at, 0) / SECOND
        young = np.maximum(old - self._period / SECOND, 0.0)
        if not self._pending.split:
            return self._pending.delays[0].average(young, old)
        found = np.zeros(old.size)
        for arm in np.unique(self._rows.arm).tolist():
            own = self._rows.arm == arm
            found[own] = self._pending.delays[arm].average(young[own], old[own])
        return found

    # ------------------------------------------------------------------------------------- gain

    def gain(self, level: float, *, steady: bool) -> Gain:
        """Return what the policy gains; `steady`: arms do not seem to change over time."""
        rows = self._rows
        by_policy = (rows.kind == POLICY) | (rows.kind == MANY)
        policy, holdout = self._cells(by_policy), self._cells(rows.kind == HOLDOUT)
        decisions, inflated = int(policy.n.sum()), self._settings.inflated
        if self._settings.holdout > 0.0 and holdout.n.sum() > 0.0:
            how, found = "holdout", by_holdout(policy, holdout, inflated=inflated, level=level)
        elif steady and not self._contextual and not (rows.kind == MANY).any():
            every = self._cells(np.ones(rows.at.size, dtype=bool))
            how, found = "arms", by_arms(policy, every, inflated=inflated, level=level)
        else:
            how, found = "weighting", by_weighting(policy, inflated=inflated, level=level)
        if not math.isfinite(found.difference.value):
            return Gain(decisions=decisions)
        if not self._knows_delays:
            found = found.whatever_comes(float((policy.known * policy.n).sum()) / decisions)
        total = Estimate(*(float(x) * decisions for x in found.difference))
        return Gain(how, *found, total, decisions)

    def _cells(self, which: NDArray[np.bool_]) -> Cells:
        rows = self._rows.where(which)
        return Cells(
            rows.arm, self._known[which], rows.n, rows.nonzero, rows.total, rows.squares,
            rows.score, rows.score_squares, rows.expected, rows.even, rows.inverse,
        )  # fmt: skip

    # ---------------------------------------------------------------------------- sample ratio

    def ratio(self) -> Ratio:
        """Return whether arms have as many decisions as they should.

        Decisions that are cancelled have to be as many of each arm as it has shares: the others
        are compared with their part of what was drawn, period by period.
        """
        rows = self._rows.where(self._rows.kind == POLICY)
        if not rows.at.size:
            return Ratio()
        _, period = np.unique(rows.at, return_inverse=True)
        kept = np.bincount(period, rows.n) / np.maximum(np.bincount(period, rows.expected), 1e-300)
        n_arms = len(self._labels)
        counted, expected, variance = (
            np.bincount(rows.arm, x, minlength=n_arms)
            for x in (rows.n, rows.expected * kept[period], rows.variance * kept[period])
        )
        drawn = expected > 0.0
        evidence = watch.ratio_evidence(counted[drawn], expected[drawn], variance[drawn])
        p_value = min(1.0, 1.0 / max(float(evidence.mean()), 1e-300))
        worst = int(np.flatnonzero(drawn)[np.argmax(evidence)])
        return Ratio(
            p_value,
            self._labels[worst],
            int(counted[worst]),
            float(expected[worst]),
            p_value >= RATIO_WRONG,
        )

    # ------------------------------------------------------------------------------------ drift

    def drift(self) -> list[Drift]:
        """Return changes of chances and amounts that are not chance, the surest first."""
        rows = self._rows.where(self._known >= SETTLED)
        if self._contextual or not rows.at.size:
            return []  # what an arm is worth then depends on whom it is played for
        known = self._known[self._known >= SETTLED]
        width = HOUR if self._settings.rules.horizon <= SHORT else DAY
        block = rows.at // width
        looks = int(block[-1] - block[0]) + 1
        block = np.maximum(block - block[-1] + watch.MOST_BLOCKS - 1, 0)  # the oldest are one
        n_arms = len(self._labels)
        cell = rows.arm * watch.MOST_BLOCKS + block
        shape = n_arms, watch.MOST_BLOCKS
        exposure, nonzero, total, squares = (
            np.bincount(cell, x, minlength=n_arms * watch.MOST_BLOCKS).reshape(shape)
            for x in (rows.n * known, rows.nonzero, rows.total, rows.squares)
        )
        tests = 2 * int((exposure.sum(axis=1) > 0.0).sum())
        found = []
        for k, label in enumerate(self._labels):
            rate = watch.rate_change(nonzero[k], exposure[k], looks=looks, tests=tests)
            mean = watch.mean_change(nonzero[k], total[k], squares[k], looks=looks, tests=tests)
            for part, change, more in (
                ("chance", rate, 0.0),
                ("amount", mean, self._settings.inflated),
            ):
                if change is not None and change.p_value < DRIFT_WRONG:
                    before, after = change.before + more, change.after + more
                    found.append(Drift(part, label, change.p_value, before, after))
        return sorted(found, key=lambda each: each.p_value)

    # ------------------------------------------------------------------------ what does not come

    def missing(self, last_event: float | None) -> Missing:
        """Return how many events should have come since the last one."""
        rows, rewards = self._rows, float(self._rows.nonzero.sum())
        if last_event is None or not rewards:
            return Missing()
        since = round(last_event * SECOND)
        n_arms = len(self._labels)
        exposure, paid = (
            np.bincount(rows.arm, x, minlength=n_arms) for x in (rows.n * self._known, rows.nonzero)
        )
        chance = paid / np.maximum(exposure, 1.0)
        come = np.maximum(self._known - self._share_known(since), 0.0)
        # an arm's chance is never taken for larger than 1
        expected = float((rows.n * np.minimum(chance, 1.0)[rows.arm] * come).sum())
        first = float(rows.at[rows.nonzero > 0][0]) / SECOND
        span = max(last_event - first, self._period / SECOND)
        return Missing(expected, span / rewards)

    # ------------------------------------------------------------------------------------ charts

    def history(self) -> History:
        """Return decisions and rewards over time, in not too many periods of equal width."""
        rows = self._rows
        if not rows.at.size:
            return History()
        width = self._bar
        first = int(rows.at[0]) // width
        bar = rows.at // width - first
        n_bars, n_arms = int(bar[-1]) + 1, len(self._labels)
        counted = np.bincount(rows.arm * n_bars + bar, rows.n, minlength=n_arms * n_bars)
        decisions = counted.reshape(n_arms, n_bars).astype(int).tolist()
        revenue = np.bincount(bar, rows.total + self._settings.inflated * rows.n, minlength=n_bars)
        rewarded = np.bincount(bar, rows.nonzero, minlength=n_bars)
        return History(
            [(first + k) * width / SECOND for k in range(n_bars)],
            width / SECOND,
            dict(zip(self._labels, decisions, strict=True)),
            revenue.tolist(),
            rewarded.astype(int).tolist(),
        )
