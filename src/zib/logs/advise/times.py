"""Whether the arms pay the same all the time: drift, differences that drift, hours and weekdays."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from zib.logs.advise.time_bins import DAY, HOUR, WEEK, TimeBins
from zib.logs.advise.time_words import time_words
from zib.report.numbers import duration
from zib.stats import constancy as stay
from zib.stats.constancy import Dispersion, Result
from zib.stats.intervals import Estimate, from_error, one_sided, share

if TYPE_CHECKING:
    from zib.logs.advise.collect import Collected

Array = NDArray[np.float64]
Codes = NDArray[np.int64]

MOST_PERIODS, FEWEST_PERIODS = 20, 3
COARSE = 4  # periods in which slow changes show best
PER_PERIOD = 10.0  # non-zero rewards in a period on average, at least
FEWEST_PAID = 40
ALARM = 0.01  # adjusted p value below which something is said to change
UNEVEN = 0.05  # share of the rows that must have gone to other arms than usual to matter
MOST_SHOWN = 6  # arms with a course of their own
MOST_TESTED = 50  # arms tested on their own


class TimeTest(NamedTuple):
    """A test of whether something stays the same over time.

    Attributes
    ----------
    about
        ``"p"``, ``"mu"``, ``"r"``; ``"differences of p"`` or ``"… of r"`` for arms against each
        other; ``"p by hour"``, ``"mu by weekday"`` and the like.
    arm
        The arm it is about, or None for all of them.
    statistic, freedom
        F statistic and its degrees of freedom.
    p_value, adjusted
        As it is, and adjusted for the number of tests (Holm); tests of single arms are adjusted
        among themselves.
    """

    about: str
    arm: Hashable | None
    statistic: float
    freedom: float
    p_value: float
    adjusted: float

    @property
    def alarm(self) -> bool:
        """Whether there is a change."""
        return self.adjusted < ALARM


@dataclass(frozen=True)
class Course:
    """How often, how much and how much on average, one entry per period, hour or weekday.

    Attributes
    ----------
    label
        The arm, or ``"all"``: all arms in the mixture of the whole log.
    rows
        Number of rows.
    p, mu, r
        Arrays with intervals; NaN where nothing is known.
    """

    label: Hashable
    rows: Array
    p: Estimate
    mu: Estimate
    r: Estimate


@dataclass(frozen=True)
class TimeReport:
    """What changes over time.

    Attributes
    ----------
    start, end
        First and last time: seconds since 1970 where `dated`, else as in the log.
    dated, timezone
        Whether times are dates, and the time zone of days, hours and weekdays.
    reason
        Why nothing was looked at, or nothing.
    unit
        What a period is, in words.
    edges
        Start of each period, and the end of the last.
    courses
        Over the periods: all arms together first, then the arms with most rows.
    shares
        (periods, arms in `courses`): shares of the rows.
    tests
        All that were made; those of single arms last.
    dispersion
        How many times more short times vary than independent rows would.
    shares_change
        Whether arms were played in other shares at other times.
    within
        Mean rewards of the arms compared within periods, standardised to the whole log; empty
        unless shares change.
    leaders
        The arms that lead in the first and in the second half of the periods.
    hours, weekdays
        Courses over the hours of the day and over the days of the week, Monday first; None where
        the log is too short.
    weighted
        Whether arms are compared with inverse propensities anyway.
    rows
        Number of rows of the log.
    """

    start: float
    end: float
    dated: bool
    timezone: str
    reason: str = ""
    unit: str = ""
    edges: Array = field(default_factory=lambda: np.empty(0))
    courses: tuple[Course, ...] = ()
    shares: Array = field(default_factory=lambda: np.empty((0, 0)))
    tests: tuple[TimeTest, ...] = ()
    dispersion: float = 1.0
    shares_change: bool = False
    within: tuple[tuple[Hashable, Estimate], ...] = ()
    leaders: tuple[Hashable, ...] = ()
    hours: Course | None = None
    weekdays: Course | None = None
    weighted: bool = False
    rows: int = 0

    @property
    def changes(self) -> tuple[str, ...]:
        """Which of p, mu and r change over time."""
        return tuple(t.about for t in self.tests if t.about in ("p", "mu", "r") and t.alarm
                     and t.arm is None)  # fmt: skip

    @property
    def differences_change(self) -> bool:
        """Whether the distances between arms change, beyond a common amount or factor."""
        return any(t.alarm for t in self.tests if t.about.startswith("differences"))

    @property
    def words(self) -> tuple[str, ...]:
        """What changes, and what to do about it, in sentences."""
        return time_words(self)


class _Part(NamedTuple):
    """One of p, mu and r: observations per short time and arm, and moments of one of them."""

    n: Array
    total: Array
    variance: Array
    fourth: Array
    size: Array | None  # E R²/E R where observations have one sign

    def grouped(self, group: Codes) -> _Part:
        """Return the same for groups of short times."""
        count = int(group.max()) + 1
        sums = np.zeros((2, count, self.n.shape[1]))
        np.add.at(sums[0], group, self.n)
        np.add.at(sums[1], group, self.total)
        return self._replace(n=sums[0], total=sums[1])

    def of(self, arm: int) -> _Part:
        """Return one arm alone."""
        one = slice(arm, arm + 1)
        return _Part(self.n[:, one], self.total[:, one], self.variance[one], self.fourth[one], None)

    @property
    def tested(self) -> tuple[Array, Array, Array, Array]:
        """What tests of constancy take."""
        return self[:4]


def time_report(found: Collected, level: float) -> TimeReport | None:
    """Return what changes over time; None for a log without times."""
    bins = found.times
    if not bins.seen:
        return None
    empty = TimeReport(
        bins.low, bins.high, bins.dated, bins.timezone, rows=found.n_rows,
        weighted=found.weighted is not None,
    )  # fmt: skip
    if bins.mixed:
        return replace(empty, reason="Some times look like dates and others do not.")
    if bins.low == bins.high:
        return replace(empty, reason="All rows have the same time.")
    paid = float(bins.sums[1].sum())
    if paid < FEWEST_PAID:
        return replace(empty, reason=f"With {paid:.0f} non-zero rewards no change would show.")
    period, unit, starts = _periods(bins, paid)
    if starts.size < FEWEST_PERIODS:
        return replace(empty, reason="The rows lie too close together in time.")
    parts = _parts(found, bins)
    spread = {name: _dispersion(bins, part, period) for name, part in parts.items()}
    coarse = np.minimum(period * COARSE // starts.size, COARSE - 1)
    tests = _tests(bins, parts, spread, period, coarse)
    labels = found.arms if bins.apart else ()
    shown: list[int] = []
    if len(labels) > 1:
        shown = np.argsort(-found.rows, kind="stable")[:MOST_SHOWN].tolist()
    by_period = {name: part.grouped(period) for name, part in parts.items()}
    courses = [_course("all", by_period, spread, found.sign, level)]
    rows = by_period["r"].n
    for k in shown:
        own = {name: part.of(k) for name, part in by_period.items()}
        courses.append(_arm_course(labels[k], own, found.sign, level))
    report = replace(
        empty, unit=unit, edges=np.append(starts, min(bins.high, bins.starts()[-1] + bins.width)),
        courses=tuple(courses), shares=(rows / rows.sum(axis=1, keepdims=True))[:, shown],
        tests=(*tests, *_arm_tests(labels, by_period, spread)),
        dispersion=max(each.factor for each in spread.values()),
        shares_change=_uneven(rows) > UNEVEN, **_cycles(bins, parts, spread, found.sign, level),
    )  # fmt: skip
    if len(labels) > 1:
        half = starts.size // 2
        report = replace(report, leaders=tuple(
            labels[_leader(by_period["r"], part)] for part in (slice(half), slice(half, None))
        ))  # fmt: skip
    if report.shares_change and len(labels) > 1:
        report = replace(report, within=_within(labels, by_period["r"], spread["r"], level))
    return report


# -------------------------------------------------------------------------------------- periods


def _periods(bins: TimeBins, paid: float) -> tuple[Codes, str, Array]:
    """Return the period of each short time, what a period is, and when each starts.

    Days and weeks are kept whole, so that the hours and the weekdays do not pass for drift.
    """
    starts = bins.starts()
    span = bins.high - bins.low
    length, unit = bins.width, ""
    index: Codes = np.arange(starts.size)
    if bins.dated and bins.width <= DAY and span >= 2 * DAY:
        index = np.floor((starts + bins.offset()) / DAY).astype(np.int64)
        index -= index[0]
        length, unit = DAY, "day"
        if span >= 4 * WEEK:
            index, length, unit = index // 7, WEEK, "week"
    most = 28 if unit == "day" else MOST_PERIODS  # four weeks of days
    most = min(most, max(int(paid / PER_PERIOD), 1))
    together = -(-(int(index.max()) + 1) // most)
    index = index // together
    if int(index.max()) > 1:  # a last piece of less than half a period goes to the one before
        last = index == index.max()
        if last.sum() < 0.5 * np.sum(index == index.max() - 1):
            index[last] -= 1
    with_rows = bins.sums[0].sum(axis=1) > 0
    used, period = np.unique(index, return_inverse=True)
    filled = np.bincount(period, with_rows, used.size) > 0
    # periods without rows are joined to the one before
    period = np.maximum(np.cumsum(filled)[period] - 1, 0)
    first = np.array([starts[np.argmax((period == k) & with_rows)] for k in range(filled.sum())])
    if unit:
        unit = unit if together == 1 else f"{together} {unit}s"
    elif bins.dated:
        unit = duration(length * together)
    else:
        unit = f"{length * together:.3g}"
    return period, unit, np.maximum(first, bins.low)


def _uneven(rows: Array) -> float:
    """Return which share of the rows went to other arms than usual, beyond chance."""
    size, usual = rows.sum(axis=1), rows.sum(axis=0) / rows.sum()
    apart = 0.5 * np.abs(rows / size[:, None] - usual).sum(axis=1)
    chance = 0.5 * np.sqrt(2.0 / math.pi * usual * (1.0 - usual) / size[:, None]).sum(axis=1)
    return float((size @ (apart - chance)) / size.sum())


def _leader(r: _Part, part: slice) -> int:
    n, total = r.n[part].sum(axis=0), r.total[part].sum(axis=0)
    return int(np.argmax(np.where(n > 0, total / np.maximum(n, 1.0), -np.inf)))


# ---------------------------------------------------------------------------------------- tests


def _parts(found: Collected, bins: TimeBins) -> dict[str, _Part]:
    """Return p, mu and r with their moments under the assumption that nothing changes."""
    rows, paid, total = bins.sums
    if bins.apart:
        b = np.maximum(found.paid.count, 1.0)
        mean = np.where(found.paid.count > 0, found.paid.mean, 0.0)
        c2, c3, c4 = found.paid.m2 / b, found.paid.m3 / b, found.paid.m4 / b
    else:
        x = found.values
        mean = np.array([x.mean()])
        c2, c3, c4 = (np.array([np.mean((x - mean) ** j)]) for j in (2, 3, 4))
    n = np.maximum(rows.sum(axis=0), 1.0)
    p = paid.sum(axis=0) / n
    q = p * (1.0 - p)
    with np.errstate(over="ignore", invalid="ignore"):
        # raw moments of the non-zero rewards, and from them the centred ones of all rewards
        x2, x3 = c2 + mean**2, c3 + 3.0 * mean * c2 + mean**3
        x4 = c4 + 4.0 * mean * c3 + 6.0 * mean**2 * c2 + mean**4
        r = p * mean
        variance = p * x2 - r**2
        fourth = p * x4 - 4.0 * r * p * x3 + 6.0 * r**2 * p * x2 - 3.0 * r**4 - 3.0 * variance**2
        size = np.where(mean != 0.0, x2 / np.where(mean != 0.0, mean, 1.0), 1.0)

    def finite(x: Array) -> Array:
        return np.where(np.isfinite(x), x, 0.0)

    return {
        "p": _Part(rows, paid, q, q * (1.0 - 6.0 * q), np.ones(p.size)),
        "mu": _Part(paid, total, c2, finite(c4 - 3.0 * c2**2), None),
        "r": _Part(rows, total, variance, finite(fourth), size if found.sign else None),
    }


def _dispersion(bins: TimeBins, part: _Part, period: Codes) -> Dispersion:
    slot = np.zeros(period.size, dtype=np.int64)
    span = bins.high - bins.low
    if bins.dated and bins.width < DAY and span >= 2 * DAY:
        slot = np.arange(period.size) % round(DAY / bins.width)
    if bins.dated and bins.width <= DAY and span >= 2 * WEEK:
        slot = np.arange(period.size) % round(WEEK / bins.width)
    return stay.dispersion(*part[:3], period, slot)


def _twice(fine: Result, slow: Result) -> Result:
    """Return the smaller p value of two tests, doubled."""
    best = min(fine, slow, key=lambda each: each.p_value)
    return best._replace(p_value=min(2.0 * best.p_value, 1.0))


def _tests(
    bins: TimeBins,
    parts: dict[str, _Part],
    spread: dict[str, Dispersion],
    period: Codes,
    coarse: Codes,
) -> list[TimeTest]:
    """Return all tests of all arms together, adjusted for their number."""
    found: dict[str, Result] = {}
    for name, part in parts.items():
        found[name] = _twice(*(
            stay.constancy(*part.grouped(group).tested, spread[name]) for group in (period, coarse)
        ))  # fmt: skip
    for name in ("p", "r") if parts["p"].n.shape[1] > 1 else ():
        sign = 1.0 if parts[name].total.sum() >= 0 else -1.0
        tables = (parts[name].grouped(group) for group in (period, coarse))
        found[f"differences of {name}"] = _twice(*(
            stay.interaction(
                each.n, sign * each.total if each.size is not None else each.total, each.variance,
                each.fourth, None if each.size is None else np.abs(each.size), spread[name],
            )
            for each in tables
        ))  # fmt: skip
    for about, slots in _slots(bins).items():
        for name in ("p", "mu"):
            part = parts[name]
            if slots is None:
                week = bins.week[[0, 1]] if name == "p" else bins.week[[1, 2]]
                by = week.reshape(2, 7, 24, -1).sum(axis=1 if about == "hour" else 2)
                found[f"{name} by {about}"] = stay.constancy(
                    by[0], by[1], part.variance, part.fourth, spread[name]
                )
            else:
                found[f"{name} by {about}"] = stay.cycle(*part.tested, slots, spread[name])
    made = {about: result for about, result in found.items() if result.freedom > 0}
    adjusted = stay.holm(np.array([result.p_value for result in made.values()]))
    return [
        TimeTest(about, None, result.statistic, result.freedom, result.p_value, float(value))
        for (about, result), value in zip(made.items(), adjusted, strict=True)
    ]


def _slots(bins: TimeBins) -> dict[str, Codes | None]:
    """Return the cycles the log is long enough for; the place of each short time, or None where
    short times are too long and the sums per hour of the week must do."""
    out: dict[str, Codes | None] = {}
    if not bins.dated:
        return out
    span, starts = bins.high - bins.low, bins.starts()
    if span >= 3 * DAY:
        out["hour"] = bins.local(starts)[1] if bins.width <= HOUR else None
    if span >= 2 * WEEK:
        out["weekday"] = bins.local(starts)[0] if bins.width <= DAY else None
    return out


def _arm_tests(
    labels: tuple[Hashable, ...], by_period: dict[str, _Part], spread: dict[str, Dispersion]
) -> list[TimeTest]:
    """Return tests of single arms, adjusted among themselves."""
    paid = by_period["mu"].n.sum(axis=0)
    found: list[tuple[str, Hashable, Result]] = []
    arms = [k for k in np.argsort(-paid, kind="stable")[:MOST_TESTED] if paid[k] >= FEWEST_PAID]
    for k in arms if len(labels) > 1 else []:
        for name in ("p", "mu"):
            own = by_period[name].of(int(k))
            # as many periods as leave five non-zero rewards in each
            count = own.n.shape[0]
            fewer = max(min(count, int(paid[k] / 5.0)), 2)
            fine = own.grouped(np.arange(count) * fewer // count)
            slow = own.grouped(np.arange(count) * COARSE // count)
            result = _twice(*(stay.constancy(*x.tested, spread[name]) for x in (fine, slow)))
            if result.freedom > 0:
                found.append((name, labels[k], result))
    adjusted = stay.holm(np.array([result.p_value for *_, result in found]))
    return [
        TimeTest(name, arm, result.statistic, result.freedom, result.p_value, float(value))
        for (name, arm, result), value in zip(found, adjusted, strict=True)
    ]


# -------------------------------------------------------------------------------------- courses


def _course(
    label: Hashable, parts: dict[str, _Part], spread: dict[str, Dispersion], sign: int, level: float
) -> Course:
    """Return all arms together, in the mixture that they have in the whole log."""
    out: dict[str, Estimate] = {}
    for name, part in parts.items():
        above = stay.common_change(*part[:3])
        n = part.n.sum(axis=1)
        seen = np.maximum(n, 1.0)
        value = np.where(n > 0, part.total.sum() / part.n.sum() + above / seen, np.nan)
        error = np.sqrt(part.n @ part.variance * spread[name].factor) / seen
        out[name] = _bounded(from_error(value, error, level=level), name, sign)
    return Course(label, parts["r"].n.sum(axis=1), **out)


def _arm_course(label: Hashable, parts: dict[str, _Part], sign: int, level: float) -> Course:
    out: dict[str, Estimate] = {}
    for name, part in parts.items():
        n, total = part.n[:, 0], part.total[:, 0]
        if name == "p":
            out[name] = Estimate(*(np.asarray(x) for x in share(total, n, level=level)))
            continue
        seen = np.maximum(n, 1.0)
        value = np.where(n > 0, total / seen, np.nan)
        error = np.sqrt(np.maximum(part.variance, 0.0) / seen)
        out[name] = _bounded(from_error(value, error, level=level), name, sign)
    return Course(label, parts["r"].n[:, 0], **out)


def _bounded(x: Estimate, name: str, sign: int) -> Estimate:
    if name == "p":
        return Estimate(*(np.clip(end, 0.0, 1.0) for end in x))
    return one_sided(x, sign) if sign else x


def _cycles(
    bins: TimeBins,
    parts: dict[str, _Part],
    spread: dict[str, Dispersion],
    sign: int,
    level: float,
) -> dict[str, Any]:
    rows, paid, total = bins.week
    of_week = {"p": (rows, paid), "mu": (paid, total), "r": (rows, total)}
    out = {}
    for about in _slots(bins):
        axis = 0 if about == "hour" else 1
        tables = {
            name: parts[name]._replace(
                n=n.reshape(7, 24, -1).sum(axis=axis), total=sums.reshape(7, 24, -1).sum(axis=axis)
            )
            for name, (n, sums) in of_week.items()
        }
        out[f"{about}s"] = _course("all", tables, spread, sign, level)
    return out


def _within(
    labels: tuple[Hashable, ...], r: _Part, spread: Dispersion, level: float
) -> tuple[tuple[Hashable, Estimate], ...]:
    """Return the mean reward of each arm in the mixture of periods of the whole log.

    Weighted least squares of the means of arms in periods on both: differences between arms come
    from within periods only.
    """
    use = np.flatnonzero((r.n.sum(axis=0) > 0) & (r.variance > 0))
    n, variance = r.n[:, use], r.variance[use]
    weight = n / variance
    arms = use.size
    # effects of periods first, then of arms
    matrix = np.block(
        [[np.diag(weight.sum(axis=1)), weight], [weight.T, np.diag(weight.sum(axis=0))]]
    )
    inverse = np.linalg.pinv(matrix, hermitian=True)
    sums = r.total[:, use] / variance
    effect = inverse @ np.concatenate([sums.sum(axis=1), sums.sum(axis=0)])
    mixture = r.n.sum(axis=1) / r.n.sum()
    out = []
    for j in range(arms):
        direction = np.concatenate([mixture, np.eye(arms)[j]])
        error = math.sqrt(float(direction @ inverse @ direction) * spread.factor)
        value = float(direction @ effect)
        out.append((labels[int(use[j])], from_error(value, error, level=level)))
    return tuple(sorted(out, key=lambda each: -each[1].value))
