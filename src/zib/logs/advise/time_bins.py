"""What advice keeps of the times of a log: counts and sums per short time and arm, in one pass.

Short times get longer as the log does, along widths of which each divides the next, on a grid that
does not depend on the log. So the same rows give the same numbers in whatever pieces they come, and
memory does not grow with the log.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from zib.core.validate import InvalidParameterError, shown
from zib.logs.passes import Block

Array = NDArray[np.float64]
Codes = NDArray[np.int64]

HOUR, DAY, WEEK = 3_600, 86_400, 604_800
WIDTHS = (1, 4, 20, 60, 300, 900, HOUR, 6 * HOUR, DAY, *(WEEK * 2**j for j in range(350)))
DATES = (315_532_800.0, 4_102_444_800.0)  # 1980 and 2100: numbers between them are dates
SCALES = (1.0, 1e-3, 1e-6, 1e-9)  # seconds, milliseconds, … since 1970
MOST_BINS, FEWEST_BINS = 1_024, 64
MOST_CELLS = 2**17
MOST_ARMS = 500  # beyond that, arms are not kept apart
SMALLEST = -60  # power of two that is the least width of times that are no dates


class TimeBins:
    """Counts and sums per short time and arm, and per hour of the week.

    Parameters
    ----------
    n_arms
        Number of arms.
    timezone
        Name of the time zone of hours and weekdays, such as ``"Europe/Berlin"``; UTC by default.

    Attributes
    ----------
    sums
        (3, short times, arms): rows, non-zero rewards and their sum; all arms together where there
        are more than `MOST_ARMS`.
    week
        (3, 168, arms): the same per hour of the week, Monday 0 h first.
    low, high
        First and last time.
    """

    def __init__(self, n_arms: int, timezone: str | None = None) -> None:
        from zoneinfo import ZoneInfo

        self.timezone = timezone or "UTC"
        try:
            self.zone = ZoneInfo(self.timezone)
        except (KeyError, ValueError, OSError, TypeError, AttributeError):
            raise InvalidParameterError(
                f"`timezone` must name a time zone such as 'Europe/Berlin'; got {shown(timezone)}"
            ) from None
        self.apart = n_arms <= MOST_ARMS
        self._arms = n_arms if self.apart else 1
        self._most = min(MOST_BINS, max(MOST_CELLS // self._arms, FEWEST_BINS))
        self._scale: float | None = None  # to seconds; 0 where times are no dates
        self.mixed = False  # pieces of which some look like dates
        self._level = 0
        self.first = 0
        self.low, self.high = math.inf, -math.inf
        self.sums: Array = np.zeros((3, 0, self._arms))
        self.week: Array = np.zeros((3, 168, self._arms))

    @property
    def seen(self) -> bool:
        """Whether there were any times."""
        return self._scale is not None

    @property
    def dated(self) -> bool:
        """Whether all times are dates."""
        return bool(self._scale) and DATES[0] <= self.low and self.high <= DATES[1]

    @property
    def width(self) -> float:
        """Length of a short time."""
        return self._width(self._level)

    def starts(self) -> Array:
        """Return when each short time starts."""
        return np.asarray((self.first + np.arange(self.sums.shape[1])) * self.width, np.float64)

    def local(self, time: Array) -> tuple[Codes, Codes]:
        """Return weekday (Monday is 0) and hour of times in the time zone."""
        import pandas as pd

        quarter = np.floor(time / 900.0).astype(np.int64)
        at: slice | Codes = slice(None)
        low, high = int(quarter.min()), int(quarter.max())
        if high - low < quarter.size:  # one look-up for all times within a quarter of an hour
            quarter, at = np.arange(low, high + 1, dtype=np.int64), quarter - low
        local = pd.to_datetime(quarter * 900, unit="s", utc=True).tz_convert(self.zone)
        day, hour = (np.asarray(x, dtype=np.int64) for x in (local.day_of_week, local.hour))
        return day[at], hour[at]

    def offset(self) -> float:
        """Return by how many seconds the time zone is ahead of UTC at the first time."""
        from datetime import UTC, datetime

        ahead = self.zone.utcoffset(datetime.fromtimestamp(self.low, UTC).replace(tzinfo=None))
        return ahead.total_seconds() if ahead is not None else 0.0

    def look(self, block: Block) -> None:
        """Take in the rows of a block."""
        time = block.time
        if time is None or not time.size:
            return
        low, high = float(time.min()), float(time.max())
        if self._scale is None:
            fits = (s for s in SCALES if DATES[0] <= low * s and high * s <= DATES[1])
            self._scale = next(fits, 0.0)
        if self._scale:
            time = time * self._scale
            low, high = low * self._scale, high * self._scale
        self._widen(low, high)
        arm = block.arm if self.apart else np.zeros(time.size, dtype=np.int64)
        at = self._index(time, self._level).astype(np.int64) - self.first
        self._add(self.sums, at, arm, block.reward)
        if self.dated:
            day, hour = self.local(time)
            self._add(self.week, 24 * day + hour, arm, block.reward)

    def _add(self, sums: Array, at: Codes, arm: Codes, reward: Array) -> None:
        low, high = int(at.min()), int(at.max()) + 1
        cell = (at - low) * self._arms + arm
        shape, size = (high - low, self._arms), (high - low) * self._arms
        sums[0, low:high] += np.bincount(cell, minlength=size).reshape(shape)
        paid = np.flatnonzero(reward)
        sums[1, low:high] += np.bincount(cell[paid], minlength=size).reshape(shape)
        sums[2, low:high] += np.bincount(cell[paid], reward[paid], size).reshape(shape)

    def _width(self, level: int) -> float:
        return float(WIDTHS[level]) if self._scale else 2.0 ** (level + SMALLEST)

    def _index(self, time: Array, level: int) -> Array:
        # of whole seconds: then the floor of a floor is that of the time itself
        return np.floor((np.floor(time) if self._scale else time) / self._width(level))

    def _widen(self, low: float, high: float) -> None:
        """Make room for times from `low` to `high`, with longer short times where needed."""
        self.low, self.high = min(self.low, low), max(self.high, high)
        ends = np.array([self.low, self.high])
        level = self._level
        while True:
            first, last = self._index(ends, level)
            if last - first < self._most and max(abs(first), abs(last)) < 2.0**52:
                break
            level += 1
        self._lengthen(level)
        if not self.sums.shape[1]:
            self.first = int(first)
        before = self.first - int(first)
        after = int(last) + 1 - self.first - self.sums.shape[1]
        if before or after:
            self.sums = np.pad(self.sums, ((0, 0), (before, after), (0, 0)))
        self.first = int(first)

    def _lengthen(self, level: int) -> None:
        """Join short times to those of another level."""
        if level > self._level and self.sums.shape[1]:
            factor = round(self._width(level) / self.width)
            new = (self.first + np.arange(self.sums.shape[1])) // factor
            joined = np.flatnonzero(np.diff(new, prepend=new[0] - 1))
            self.sums, self.first = np.add.reduceat(self.sums, joined, axis=1), int(new[0])
        self._level = level

    def merge(self, other: TimeBins) -> None:
        """Take in what another reader has seen."""
        self.mixed = self.mixed or other.mixed
        if other._scale is None:
            return
        if self._scale is None:
            self._scale = other._scale
        if self._scale != other._scale:
            self.mixed = True
        if self.mixed:
            return
        self._level = max(self._level, 0)
        self._widen(other.low, other.high)
        other._lengthen(self._level)
        at = other.first - self.first
        self.sums[:, at : at + other.sums.shape[1]] += other.sums
        self.week += other.week
