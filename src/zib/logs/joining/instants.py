"""Times of two systems on one clock: seconds since 1970 in UTC, from dates, text and numbers."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zib.core.validate import InvalidParameterError, real, shown
from zib.logs.columns import looks_numeric, numbers
from zib.logs.dates import Times
from zib.logs.tables import LogError

Array = NDArray[np.float64]

_UNITS = {"w": 604_800.0, "d": 86_400.0, "h": 3_600.0, "m": 60.0, "min": 60.0, "s": 1.0}
_SPAN = re.compile(r"(?:\d+(?:\.\d+)?\s*(?:w|d|h|min|m|s)\s*)+")
_ZONED = r":\d\d\S*(?:[Zz]|[+-]\d\d(?::?\d\d)?)$"
# numbers beyond these are taken for milli-, micro- and nanoseconds since 1970
_SCALES = ((1e17, 1e9, "nanoseconds"), (1e14, 1e6, "microseconds"), (1e11, 1e3, "milliseconds"))


def span(name: str, value: object) -> float:
    """Return a length of time in seconds: a number, or text such as ``7d``, ``12h``, ``1d12h``.

    Examples
    --------
    >>> span("window", "7d"), span("window", "1d 12h"), span("window", 90)
    (604800.0, 129600.0, 90.0)
    """
    if isinstance(value, str):
        text = value.strip().lower()
        if not _SPAN.fullmatch(text):
            raise InvalidParameterError(
                f"`{name}` must be a length of time such as '7d', '12h', '30min' or '1d12h'; "
                f"got {shown(value)}"
            )
        parts = re.findall(r"(\d+(?:\.\d+)?)\s*(w|d|h|min|m|s)", text)
        value = sum(float(number) * _UNITS[unit] for number, unit in parts)
    return real(name, value, low=0.0, closed="neither")


def span_words(seconds: float) -> str:
    """Return a length of time in words.

    Examples
    --------
    >>> span_words(604_800.0), span_words(5_400.0), span_words(12.3)
    ('7 days', '1.5 hours', '12 seconds')
    """
    for unit, words in (("d", "days"), ("h", "hours"), ("min", "minutes")):
        if seconds >= 1.5 * _UNITS[unit] or seconds == _UNITS[unit]:
            number = f"{seconds / _UNITS[unit]:.3g}"
            return f"{number} {words[:-1] if number == '1' else words}"
    return f"{seconds:.2g} seconds"


@dataclass
class Clock:
    """Reads the times of one file, and keeps count of those that a time zone leaves open.

    Attributes
    ----------
    timezone
        Where the clocks of the file stand that say no offset.
    dates
        Whether the column holds dates, or numbers; None before anything was read.
    scale
        What numbers are divided by to become seconds.
    naive, ambiguous, skipped
        How many times had no offset; how many of these occur twice (the clocks were set back; the
        first one is taken) or never (they were set forward).
    """

    column: str
    timezone: str = "UTC"
    plain: bool = False  # numbers are times in a unit of their own
    day_first: bool = False  # 03/04/2024 rather is in April
    dates: bool | None = None
    scale: float = 1.0
    unit: str = "seconds"
    naive: int = 0
    ambiguous: int = 0
    skipped: int = 0
    _seen: bool = field(default=False, repr=False)
    _forms: Times | None = field(default=None, repr=False)

    @property
    def notes(self) -> list[str]:
        """How dates in unusual forms were read."""
        return [] if self._forms is None else self._forms.notes

    def read(self, values: Any, start: int) -> Array:
        """Return the times of consecutive rows; `start` is the number of the first one."""
        import pyarrow as pa

        if pa.types.is_dictionary(values.type):
            values = values.dictionary_decode()
        if values.null_count:
            at = int(np.argmax(values.is_null().to_numpy(zero_copy_only=False)))
            raise LogError(
                f"column `{self.column}` must hold a time in every row; row {start + at + 1} is "
                "missing"
            )
        if self.dates is None and len(values):
            self.dates = not looks_numeric(values)
        if self.dates is False:
            return self._number(values, start)
        return self._date(values, start)

    def _number(self, values: Any, start: int) -> Array:
        found = numbers(self.column, values, start)
        if not self._seen and found.size and not self.plain:
            self._seen = True
            middle = float(np.median(np.abs(found)))
            for least, scale, unit in _SCALES:
                if middle > least:
                    self.scale, self.unit = scale, unit
                    break
        return found / self.scale if self.scale != 1.0 else found

    def _date(self, values: Any, start: int) -> Array:
        import pyarrow as pa
        import pyarrow.compute as pc

        if pa.types.is_date(values.type):
            values = pc.cast(values, pa.timestamp("us"))
        if pa.types.is_timestamp(values.type):
            zone = values.type.tz
            stamps = pc.cast(values, pa.timestamp("us", zone), safe=False)
            return _seconds(stamps) if zone is not None else self._local(stamps)
        if not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
            raise self._not_times(start)
        for zone in (None, "UTC"):  # most columns are of one kind
            try:
                stamps = pc.cast(values, pa.timestamp("us", zone))
            except pa.ArrowInvalid:
                continue
            return self._local(stamps) if zone is None else _seconds(stamps)
        return self._mixed(values, start)

    def _mixed(self, values: Any, start: int) -> Array:
        """Read text of several forms: with and without offsets, ``UTC`` as a word, nanoseconds."""
        import pyarrow as pa
        import pyarrow.compute as pc

        text = pc.utf8_trim_whitespace(values)
        text = pc.replace_substring_regex(text, r"\s*(?:UTC|GMT)$", "Z")
        text = pc.replace_substring_regex(text, r"\s+([+-]\d\d:?\d\d)$", r"\1")
        text = pc.replace_substring_regex(text, r"(\.\d{6})\d+", r"\1")
        zoned = pc.match_substring_regex(text, _ZONED)
        mask = zoned.to_numpy(zero_copy_only=False)
        out = np.empty(len(values))
        try:
            out[mask] = _seconds(pc.cast(text.filter(zoned), pa.timestamp("us", "UTC")))
            out[~mask] = self._local(pc.cast(text.filter(pc.invert(zoned)), pa.timestamp("us")))
        except pa.ArrowInvalid:
            return self._other(values, start)
        return out

    def _other(self, values: Any, start: int) -> Array:
        """Read dates in other forms, such as 01.05.2024 12:30."""
        import pyarrow as pa

        if looks_numeric(values):
            raise self._not_times(start)
        if self._forms is None:
            self._forms = Times(self.column, self.day_first)
        found = self._forms.read(values, start)
        return self._local(pa.array(np.round(found * 1e6).astype(np.int64), pa.timestamp("us")))

    def _local(self, stamps: Any) -> Array:
        """Return times without offset as those of the time zone."""
        import pyarrow as pa
        import pyarrow.compute as pc

        self.naive += len(stamps)
        if self.timezone == "UTC" or not len(stamps):
            return _seconds(stamps)
        try:
            early, late = (
                pc.assume_timezone(stamps, self.timezone, ambiguous=which, nonexistent=which)
                for which in ("earliest", "latest")
            )
        except pa.ArrowInvalid:
            raise _unknown_zone("timezone", self.timezone) from None
        first, apart = _seconds(early), _seconds(late) - _seconds(early)
        self.ambiguous += int(np.count_nonzero(apart > 1.0))
        skipped = (apart > 0.0) & (apart <= 1.0)  # the two ends of the gap
        self.skipped += int(np.count_nonzero(skipped))
        return np.where(skipped, _seconds(late), first)

    def _not_times(self, start: int) -> LogError:
        return LogError(
            f"column `{self.column}` must hold numbers or dates such as 2024-05-01 12:30:00 or "
            f"2024-05-01T12:30:00+02:00; the rows from {start + 1} on hold other things"
        )

    def merge(self, other: Clock) -> None:
        """Take the counts of another piece of the file."""
        if other.dates is not None:
            self.dates, self.scale, self.unit = other.dates, other.scale, other.unit
            self._seen, self._forms = other._seen, other._forms
        self.naive += other.naive
        self.ambiguous += other.ambiguous
        self.skipped += other.skipped


def _seconds(stamps: Any) -> Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    whole = pc.cast(stamps, pa.int64()).to_numpy(zero_copy_only=False)
    return np.asarray(whole, dtype=np.float64) / 1e6


def _unknown_zone(name: str, timezone: object) -> InvalidParameterError:
    return InvalidParameterError(
        f"`{name}` must be a name such as 'Europe/Berlin' or 'UTC'; got {shown(timezone)}"
    )


def check_zone(name: str, timezone: object) -> str:
    """Return the name of a time zone, or raise."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not isinstance(timezone, str):
        raise _unknown_zone(name, timezone)
    try:
        pc.assume_timezone(pa.array([0], pa.timestamp("us")), timezone)
    except pa.ArrowInvalid:
        raise _unknown_zone(name, timezone) from None
    return timezone


def moment(name: str, value: object, timezone: str) -> float:
    """Return one time: a number, a date or text, in the time zone unless it has an offset."""
    import pyarrow as pa

    if isinstance(value, (date, datetime)):
        value = value.isoformat()
    if not isinstance(value, str):
        return real(name, value)
    try:
        return float(Clock(name, timezone, dates=True).read(pa.array([str(value)]), 0)[0])
    except LogError:
        raise InvalidParameterError(
            f"`{name}` must be a time such as 2024-05-01 or 2024-05-01T12:30:00Z; "
            f"got {shown(value)}"
        ) from None
