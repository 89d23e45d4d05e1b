"""Decisions whose reward has not come yet: what they count, arm by arm, at any moment.

`PendingDecisions` keeps counts, not decisions: how many of an arm wait for their reward, by the
time they were made, and how many were rewarded, by that time and by the delay. `estimate` turns
them into fractional zeros, which `zib.Bandit.set_pending` takes:

1. F, the distribution of the delay, from the rewards (`zib.stats.delay.DelayCounts`): one for all
   arms, or one per arm where they differ.
2. Each waiting decision counts as w = F(1 − p)/(1 − pF) zeros (`pending_posterior`).
3. Where amounts depend on the delay, those seen so far are not typical: early ones are seen more
   often. `DelayedAmounts` finds by how much each arm's average has to be corrected.

Times are cut into buckets of 1/2000 of the horizon, so memory does not grow with the number of
decisions, and F of a bucket is the mean of F over the ages in it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from zib.core import validate
from zib.core.validate import InvalidParameterError, InvalidTypeError
from zib.stats.amounts import amount_factors
from zib.stats.delay import (
    PSEUDO_EVENTS,
    DelayCounts,
    DelayDistribution,
    complete_bins,
    delay_bin,
    delay_bins,
    delays_differ,
    pending_posterior,
)

Array = NDArray[np.float64]
Whole = NDArray[np.int64]
Auto = bool | Literal["auto"]

BUCKETS = 2_000  # in a horizon
MOST_BUCKETS = 4 * BUCKETS  # that are kept apart, and so many are left when there are more:
KEPT_BUCKETS = 3 * BUCKETS
CLOSED = -1  # the bucket of decisions that are over
NO_BIN = -1  # of a reward that says nothing about the delay
FEW_ROWS = 10_000
MOST_NEW = 50_000  # changes that are kept singly
MOST_DECISIONS = 2**53
LATEST = 1e18  # of times
DIFFERENT = 0.01  # below this p-value arms have delays of their own, or amounts depend on them
SHRINKAGE = 30.0  # rewards that the F of all arms is worth for the F of one
FEWEST = 30  # rewards of an arm whose delays are compared with those of others
MOST_GROUPS = 50  # of arms that are compared
ROOM = 5_000_000  # numbers at a time


class PendingEstimate(NamedTuple):
    """What decisions in flight count; arrays have one entry per arm.

    Attributes
    ----------
    arms
        Labels.
    events
        Decisions with a reward.
    waiting
        Decisions younger than the horizon without one.
    closed
        Zeros: decisions older than the horizon without a reward.
    weighted
        What the waiting decisions count: the sum of their weights.
    chance
        Posterior mean of p.
    delays
        F in force for each arm.
    split
        Whether arms have an F of their own.
    delays_p
        p-value of the test that all arms have the same delays; 1 where it was not made.
    factors
        By how much an arm's average amount has to be multiplied; 1 where amounts are taken not to
        depend on the delay.
    amounts_p
        p-value of the test that they do not; 1 where it was not made.
    """

    arms: tuple[Hashable, ...]
    events: Array
    waiting: Array
    closed: Array
    weighted: Array
    chance: Array
    delays: tuple[DelayDistribution, ...]
    split: bool
    delays_p: float
    factors: Array
    amounts_p: float

    @property
    def zeros(self) -> Array:
        """All zeros: those that are closed, and what the waiting decisions count."""
        return self.closed + self.weighted


class _Sums:
    """Sums by a key of whole numbers; rows may repeat a key until they are put together."""

    def __init__(self, n_keys: int, n_sums: int) -> None:
        self._keys: Whole = np.zeros((0, n_keys), dtype=np.int64)
        self._sums: Array = np.zeros((0, n_sums))
        self._new: dict[tuple[int, ...], Array] = {}

    def add(self, key: tuple[int, ...], *values: float) -> None:
        held = self._new.get(key)
        self._new[key] = np.array(values) if held is None else held + values
        if len(self._new) > MOST_NEW:
            self.tidy()

    def extend(self, keys: Whole, sums: Array) -> None:
        self._keys = np.concatenate([self._keys, keys])
        self._sums = np.concatenate([self._sums, sums])

    def first_at(self, key: tuple[int, ...]) -> float:
        """Return the first sum of a key."""
        held = float(self._sums[(self._keys == key).all(axis=1), 0].sum())
        return held + float(self._new[key][0]) if key in self._new else held

    def rows(self) -> tuple[Whole, Array]:
        if self._new:
            self.extend(np.array(list(self._new), dtype=np.int64), np.array([*self._new.values()]))
            self._new = {}
        return self._keys, self._sums

    def tidy(self, closed_before: int = 0) -> None:
        """Put rows with the same key together; buckets before one are one."""
        keys, sums = self.rows()
        keys[keys[:, 1] < closed_before, 1] = CLOSED
        if not len(keys):
            return
        order = np.lexsort(keys.T[::-1])
        keys, sums = keys[order], sums[order]
        first = np.append(True, (keys[1:] != keys[:-1]).any(axis=1))
        sums = np.add.reduceat(sums, np.flatnonzero(first), axis=0)
        held = (sums != 0.0).any(axis=1)
        self._keys, self._sums = keys[first][held], sums[held]

    def copy(self) -> _Sums:
        out = _Sums(self._keys.shape[1], self._sums.shape[1])
        out.extend(*self.rows())
        return out


class PendingDecisions:
    """Counts of decisions that wait for their reward, and of those that were rewarded.

    Parameters
    ----------
    horizon
        After this time a decision without a reward is a zero: the window, and what late rewards
        are granted beyond it. In any unit, the same for all times and delays here.
    arms
        Labels of the arms.

    Notes
    -----
    All counts are sums, so pieces `merge` to the whole whatever the order. Memory grows with arms
    and with rewards in the last few horizons, not with decisions: 2,000 numbers per arm and
    horizon. Once there are more than 8,000 buckets of time, all but the 6,000 latest are put
    together as closed.

    The age of a decision is counted from the `now` of each call, whatever was said before: where a
    clock jumps back, decisions made "in the future" have age 0.

    Examples
    --------
    Decisions and orders of a shop, in days; orders come up to seven days later:

    >>> rng = np.random.default_rng(1)
    >>> pending = PendingDecisions(7.0, ["old page", "new page"])
    >>> for _ in range(4_000):
    ...     arm, at = ["old page", "new page"][rng.integers(2)], 10.0 * rng.random()
    ...     pending.decide(arm, at)
    ...     delay = rng.exponential(2.0)
    ...     if rng.random() < 0.1 and at + delay < 10.0 and delay < 7.0:
    ...         pending.reward(arm, at, delay, 30.0)
    >>> found = pending.estimate(10.0)
    >>> print(found.waiting, found.closed, found.weighted.round())
    [1271. 1312.] [539. 525.] [937. 950.]
    >>> print(found.chance.round(3), found.delays[0])
    [0.108 0.107] <DelayDistribution: 352 events, half by 1.126, 90 % by 4.151>
    """

    def __init__(self, horizon: float, arms: Iterable[Hashable]) -> None:
        self._horizon = validate.real("horizon", horizon, low=0, closed="neither")
        self._edges = delay_bins(self._horizon)
        self._arms = validate.labels("arms", arms)
        self._position = {label: k for k, label in enumerate(self._arms)}
        self._waiting = _Sums(2, 1)  # by arm and bucket
        self._rewarded = _Sums(3, 3)  # by arm, bucket and bin: number, sum, sum of squares
        self._closed_before = 0
        self._tidied = 0  # rows when they were last put together

    @classmethod
    def from_counts(
        cls,
        horizon: float,
        arms: Iterable[Hashable],
        *,
        waiting: Sequence[ArrayLike] | None = None,
        rewarded: Sequence[ArrayLike] | None = None,
    ) -> Self:
        """Return the object with these counts, which may have been kept elsewhere.

        Parameters
        ----------
        horizon, arms
            As for the class.
        waiting
            Three columns: position of the arm, bucket, number of decisions. The bucket is
            ⌊time/`width`⌋, or −1 for zeros: decisions that are over, whatever their age.
        rewarded
            Six columns: position of the arm, bucket (−1: older than the horizon), bin of the delay
            (`bin_of`; −1: it says nothing about F), number, sum and sum of squares of amounts.

        Rows may repeat a key, and single rows may be negative: their sums count.

        Examples
        --------
        >>> waiting = [0, 0, 1], [5, 6, 6], [100, 200, 50]
        >>> pending = PendingDecisions.from_counts(2_000.0, ["a", "b"], waiting=waiting)
        >>> pending.estimate(500.0).waiting
        array([300.,  50.])
        """
        out = cls(horizon, arms)
        for name, given, held in (
            ("waiting", waiting, out._waiting),
            ("rewarded", rewarded, out._rewarded),
        ):
            if given is not None:
                held.extend(*out._columns(name, given, *(x.shape[1] for x in held.rows())))
        out._tidied = out._n_rows()
        return out

    def _columns(
        self, name: str, given: Sequence[ArrayLike], n_keys: int, n_sums: int
    ) -> tuple[Whole, Array]:
        columns = [validate.numbers(name, each) for each in validate.iterable(name, given)]
        n = n_keys + n_sums
        if len(columns) != n or any(x.ndim != 1 or x.size != columns[0].size for x in columns):
            raise InvalidParameterError(
                f"`{name}` must be {n} columns of equal length; got {validate.shown(given)}"
            )
        table = np.array(columns).T.reshape(-1, n)
        validate.inside(name, table)
        keys = table[:, :n_keys]
        allowed = (keys == np.floor(keys)) & (keys >= CLOSED) & (keys <= MOST_DECISIONS)
        allowed[:, 0] &= (keys[:, 0] >= 0) & (keys[:, 0] < len(self._arms))
        if n_keys > 2:
            allowed[:, 2] &= keys[:, 2] < self._edges.size - 1
        if not allowed.all():
            row = int(np.argmin(allowed.all(axis=1)))
            raise InvalidParameterError(
                f"`{name}` must begin with the number of an arm and of a bucket (and of a bin); "
                f"got {[float(x) for x in keys[row]]} in row {row}"
            )
        return keys.astype(np.int64), table[:, n_keys:]

    # ------------------------------------------------------------------------------- what it is

    @property
    def horizon(self) -> float:
        """The age after which a decision without a reward is a zero."""
        return self._horizon

    @property
    def width(self) -> float:
        """How long a bucket of time is."""
        return self._horizon / BUCKETS

    @property
    def arms(self) -> tuple[Hashable, ...]:
        """The labels, in the order of every array here."""
        return self._arms

    def __repr__(self) -> str:
        _, waiting = self._waiting.rows()
        _, rewarded = self._rewarded.rows()
        return (
            f"<PendingDecisions: {len(self._arms)} arms, {waiting.sum():g} decisions without and "
            f"{rewarded[:, 0].sum():g} with a reward>"
        )

    def bin_of(self, delay: ArrayLike) -> Whole:
        """Return the numbers of the bins that delays fall into."""
        d = validate.numbers("delay", delay)
        validate.inside("delay", d, 0.0, self._horizon)
        return delay_bin(self._edges, d)

    def _bucket(self, at: float) -> int:
        found = int(validate.real("at", at, low=0.0, high=LATEST) / self.width)
        return found if found >= self._closed_before else CLOSED

    def _arm(self, arm: Hashable) -> int:
        try:
            return self._position[arm]
        except (KeyError, TypeError):
            raise InvalidParameterError(
                f"`arm` must be one of {validate.shown(list(self._arms))}; "
                f"got {validate.shown(arm)}"
            ) from None

    # -------------------------------------------------------------------------------- counting

    def decide(self, arm: Hashable, at: float, n: int = 1) -> None:
        """Count `n` decisions for `arm` made at a time (≥ 0)."""
        many = validate.integer("n", n, low=1, high=MOST_DECISIONS)
        self._waiting.add((self._arm(arm), self._bucket(at)), many)

    def reward(self, arm: Hashable, at: float, delay: float | None, amount: float) -> None:
        """Count the reward of a decision that was made at `at`.

        Parameters
        ----------
        arm, at
            Of the decision.
        delay
            How long the reward took (≥ 0). None, or longer than the horizon: it counts, and says
            nothing about F.
        amount
            What was paid. 0: it is known that nothing will be, so the decision is a zero now.
        """
        key = self._arm(arm), self._bucket(at)
        took = np.inf if delay is None else validate.real("delay", delay, low=0.0)
        paid = validate.real("amount", amount, -1e100, 1e100)
        self._need_waiting(key, 1, arm, at)
        self._waiting.add(key, -1.0)
        if paid == 0.0:
            self._waiting.add((key[0], CLOSED), 1.0)
            return
        self._rewarded.add((*key, self._bin(took)), 1.0, paid, paid * paid)

    def _bin(self, took: float) -> int:
        return NO_BIN if took > self._horizon else int(delay_bin(self._edges, took))

    def revise(self, arm: Hashable, at: float, delay: float | None, old: float, new: float) -> None:
        """Replace the amount of a reward that was counted: a refund (0), or a larger order.

        Parameters
        ----------
        arm, at, delay
            As it was counted.
        old, new
            The amount that was counted, and the right one.
        """
        took = np.inf if delay is None else validate.real("delay", delay, low=0.0)
        key = self._arm(arm), self._bucket(at), self._bin(took)
        before = validate.real("old", old, -1e100, 1e100)
        after = validate.real("new", new, -1e100, 1e100)
        if self._rewarded.first_at(key) < 1.0 or before == 0.0:
            raise InvalidParameterError(
                f"`old` must be a reward of {validate.shown(arm)} that was counted with this time "
                f"and delay; got {old!r}"
            )
        change = after - before, after * after - before * before
        self._rewarded.add(key, -1.0 if after == 0.0 else 0.0, *change)
        if after == 0.0:
            self._waiting.add((key[0], CLOSED), 1.0)

    def cancel(self, arm: Hashable, at: float, n: int = 1) -> None:
        """Forget `n` decisions that wait: the mail was never sent."""
        many = validate.integer("n", n, low=1, high=MOST_DECISIONS)
        key = self._arm(arm), self._bucket(at)
        self._need_waiting(key, many, arm, at)
        self._waiting.add(key, -many)

    def _need_waiting(self, key: tuple[int, int], n: int, arm: Hashable, at: float) -> None:
        held = self._waiting.first_at(key)
        if held < n:
            raise InvalidParameterError(
                f"`at` must be the time of a decision for {validate.shown(arm)} that waits; "
                f"got {at!r}, around which {held:g} do"
            )

    def add_arm(self, arm: Hashable) -> None:
        """Add an arm."""
        if validate.label("arm", arm) in self._position:
            raise InvalidParameterError(
                f"`arm` must be new; {validate.shown(arm)} is there already"
            )
        self._position[arm] = len(self._arms)
        self._arms = (*self._arms, arm)

    def merge(self, other: PendingDecisions) -> None:
        """Add the counts of another piece; arms only it knows are added."""
        if not isinstance(other, PendingDecisions) or other._horizon != self._horizon:
            raise InvalidParameterError(
                f"`other` must be a PendingDecisions with the horizon {self._horizon:g}; "
                f"got {validate.shown(other)}"
            )
        pieces = other._waiting.copy(), other._rewarded.copy()  # it may be this one
        for label in other._arms:
            if label not in self._position:
                self.add_arm(label)
        number = np.array([self._position[label] for label in other._arms])
        for held, piece in zip((self._waiting, self._rewarded), pieces, strict=True):
            keys, sums = piece.rows()
            held.extend(np.column_stack([number[keys[:, 0]], keys[:, 1:]]), sums)
        self._closed_before = max(self._closed_before, other._closed_before)
        self._tidy()

    def _tidy(self) -> None:
        """Bound the memory: few rows, and few buckets.

        Buckets are put together by their rank, not by a clock: one wrong time closes nothing.
        """
        buckets = np.unique(self._waiting.rows()[0][:, 1])
        if buckets.size > MOST_BUCKETS:
            self._closed_before = max(self._closed_before, int(buckets[-KEPT_BUCKETS]))
        self._waiting.tidy(self._closed_before)
        self._rewarded.tidy(self._closed_before)
        self._tidied = self._n_rows()

    def _n_rows(self) -> int:
        return len(self._waiting.rows()[0]) + len(self._rewarded.rows()[0])

    # --------------------------------------------------------------------------------- reading

    def _ages(self, bucket: Whole, now: float) -> tuple[Array, Array]:
        """Return the ages of the youngest and the oldest decision of buckets."""
        start = bucket * self.width
        young, old = (np.maximum(now - x, 0.0) for x in (start + self.width, start))
        over = bucket == CLOSED
        beyond = 2.0 * self._horizon
        return np.where(over, beyond, young), np.where(over, beyond, old)

    def delay_counts(self, now: float) -> list[DelayCounts]:
        """Return the counts of delays from which F is estimated, one object per arm."""
        now = validate.real("now", now, -LATEST, LATEST)
        return [self._delays(now, k) for k in range(len(self._arms))]

    def _delays(self, now: float, arms: Any = None) -> DelayCounts:
        """Return the counts of delays of one arm, of some (a mask), or of all."""
        keys, sums = self._rewarded.rows()
        if isinstance(arms, int):
            keys, sums = keys[keys[:, 0] == arms], sums[keys[:, 0] == arms]
        elif arms is not None:
            keys, sums = keys[arms[keys[:, 0]]], sums[arms[keys[:, 0]]]
        known = keys[:, 2] != NO_BIN
        young, _ = self._ages(keys[known, 1], now)
        out = DelayCounts(self._edges)
        out._count(keys[known, 2], complete_bins(self._edges, young), sums[known, 0])
        return out

    def _differ(self, now: float, events: Array) -> float:
        """Return the p-value of a test whether arms differ; those with few rewards are one."""
        alone = np.zeros(len(self._arms), dtype=bool)
        alone[np.argsort(-events, kind="stable")[:MOST_GROUPS]] = True
        alone &= events >= FEWEST
        groups = [self._delays(now, int(k)) for k in np.flatnonzero(alone)]
        return delays_differ([*groups, self._delays(now, ~alone)])

    def estimate(
        self,
        now: float,
        *,
        delay: DelayDistribution | None = None,
        prior: DelayDistribution | None = None,
        prior_events: float = PSEUDO_EVENTS,
        by_arm: Auto = "auto",
        by_delay: Auto = "auto",
    ) -> PendingEstimate:
        """Return what the decisions count at a time.

        Parameters
        ----------
        now
            The time that ages are counted to.
        delay
            F where it is known; None: it is estimated.
        prior, prior_events
            What F is thought to be, and how many observed rewards that is worth.
        by_arm
            Whether each arm has its own F, which is drawn to that of all arms as if those were 30
            rewards. ``"auto"``: where a test finds that arms differ, at 1 %.
        by_delay
            Whether averages are corrected for amounts that depend on the delay. ``"auto"``: where a
            test finds that they do, at 1 %.
        """
        now = validate.real("now", now, -LATEST, LATEST)
        wanted = _auto("by_arm", by_arm), _auto("by_delay", by_delay)
        for name, given in (("delay", delay), ("prior", prior)):
            if given is not None and not isinstance(given, DelayDistribution):
                raise InvalidTypeError(
                    f"`{name}` must be a DelayDistribution or None; got {validate.shown(given)}"
                )
        if delay is not None and delay.horizon > self._horizon * (1.0 + 1e-9):
            raise InvalidParameterError(
                f"`delay` must reach 1 by the horizon, {self._horizon:g}; got {delay!r}"
            )
        validate.real("prior_events", prior_events, low=0, closed="neither")
        if self._n_rows() > 2 * self._tidied + FEW_ROWS:
            self._tidy()
        n_arms = len(self._arms)
        keys, sums = self._rewarded.rows()
        events = np.maximum(np.bincount(keys[:, 0], sums[:, 0], minlength=n_arms), 0.0)
        split, p_delays = False, 1.0
        if delay is None:
            pooled = self._delays(now).distribution(prior=prior, prior_events=prior_events)
            if wanted[0] == "auto":
                p_delays = self._differ(now, events)
            split = p_delays < DIFFERENT if wanted[0] == "auto" else bool(wanted[0])
        else:
            pooled = delay
        delays = (pooled,) * n_arms
        if split:
            delays = tuple(
                each.distribution(prior=pooled, prior_events=SHRINKAGE)
                for each in self.delay_counts(now)
            )
        waiting, closed, weighted, chance = self._weigh(now, events, delays, split)
        factors, p_amounts = np.ones(n_arms), 1.0
        if wanted[1] is not False:
            found, p_amounts = amount_factors(keys, sums, n_arms, delays, self._edges)
            if wanted[1] is True or p_amounts < DIFFERENT:
                factors = found
        return PendingEstimate(
            self._arms, events, waiting, closed, weighted, chance, delays, split, p_delays,
            factors, p_amounts,
        )  # fmt: skip

    def _weigh(
        self, now: float, events: Array, delays: tuple[DelayDistribution, ...], split: bool
    ) -> tuple[Array, Array, Array, Array]:
        """Return waiting and closed decisions, the sum of weights, and the chance of each arm."""
        keys, sums = self._waiting.rows()
        buckets, column = np.unique(keys[:, 1], return_inverse=True)
        young, old = self._ages(buckets, now)
        over = young >= self._horizon
        n_arms = events.size
        waiting, closed, weighted, chance = np.zeros((4, n_arms))
        step = max(ROOM // max(buckets.size, 1), 1)
        for first in range(0, n_arms, step):
            rows = slice(first, min(first + step, n_arms))
            here = (keys[:, 0] >= rows.start) & (keys[:, 0] < rows.stop)
            shape = rows.stop - rows.start, buckets.size
            cell = (keys[here, 0] - rows.start) * buckets.size + column[here]
            many = np.bincount(cell, sums[here, 0], minlength=shape[0] * shape[1]).reshape(shape)
            closed[rows] = np.maximum(many[:, over].sum(axis=1), 0.0)
            many = np.maximum(many[:, ~over], 0.0)
            waiting[rows] = many.sum(axis=1)
            ages = young[~over], old[~over]
            f = np.array([each.average(*ages) for each in (delays[rows] if split else delays[:1])])
            found = pending_posterior(events[rows], closed[rows], f if split else f[0], counts=many)
            weighted[rows] = (many * found.weights).sum(axis=1)
            chance[rows] = found.mean
        return waiting, closed, weighted, chance


def _auto(name: str, value: Auto) -> Auto:
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if not isinstance(value, str) or value != "auto":
        raise InvalidParameterError(
            f"`{name}` must be True, False or 'auto'; got {validate.shown(value)}"
        )
    return value
