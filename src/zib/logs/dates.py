"""Times as people write them: numbers, ISO with or without a zone, and the usual other dates."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zib.logs.amounts import Numbers, decoded, looks_numeric, offence
from zib.logs.tables import LogError

Array = NDArray[np.float64]

# Numbers between these years are times since 1970 in parts of a second.
_FIRST, _LAST = datetime(1990, 1, 1).timestamp(), datetime(2100, 1, 1).timestamp()
_PARTS = {"milliseconds": 1e3, "microseconds": 1e6, "nanoseconds": 1e9}

_DATES = (
    "%m/%d/%Y", "%d/%m/%Y", "%d.%m.%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y/%m/%d", "%Y.%m.%d",
    "%d-%b-%Y", "%d %b %Y", "%b %d, %Y", "%d %B %Y", "%B %d, %Y", "%m/%d/%y", "%d/%m/%y",
    "%d.%m.%y",
)  # fmt: skip
_CLOCKS = ("", "%H:%M", "%H:%M:%S", "%H:%M:%S.%f", "%I:%M %p", "%I:%M:%S %p")
_RULE = "hold numbers or dates such as 2024-05-01, 2024-05-01T12:30:00 or 2024-05-01T12:30:00+02:00"


@dataclass
class Times:
    """Reads a column of times, batch after batch, as seconds since 1970 in UTC.

    Numbers stay as they are, unless they are milli-, micro- or nanoseconds since 1970 or days such
    as 20240501.

    Attributes
    ----------
    column
        Its name, for messages.
    day_first
        Whether 03/04/2024 rather is in April.
    how
        How the times are written, once that is known.
    """

    column: str
    day_first: bool = False
    how: str | None = None
    found: list[str] = field(default_factory=list)
    scale: float = 1.0  # numbers are divided by it; 0 for days such as 20240501

    @property
    def notes(self) -> list[str]:
        """How the column was read, where that was a choice."""
        return [f"column `{self.column}`: {text}" for text in self.found]

    def read(self, values: Any, start: int) -> Array:
        """Return an Arrow array as seconds, or raise; `start` is the number of the first row."""
        import pyarrow as pa

        values = decoded(values)
        if values.null_count:
            at = int(np.argmax(values.is_null().to_numpy(zero_copy_only=False)))
            raise LogError(
                f"column `{self.column}` must hold a time in every row; row {start + at + 1} is "
                "missing"
            )
        if pa.types.is_temporal(values.type):
            if not pa.types.is_date(values.type):
                self._note_zone(getattr(values.type, "tz", None) is not None)
            return self._seconds(values)
        if self.how in (None, "number") and looks_numeric(values):
            return self._numbers(values, start)
        if self.how == "number" or not (
            pa.types.is_string(values.type) or pa.types.is_large_string(values.type)
        ):
            raise self._refused(values, start)
        for zoned in (False, True):
            stamps = self._iso(values, zoned)
            if stamps is not None and self.how in (None, "zoned" if zoned else "plain"):
                self.how = "zoned" if zoned else "plain"
                self._note_zone(zoned)
                return self._seconds(stamps)
        if self.how in ("zoned", "plain"):
            raise self._refused(values, start)
        return self._other(values, start)

    def _note_zone(self, zoned: bool) -> None:
        text = "times are converted to UTC" if zoned else "times have no zone and are read as UTC"
        if text not in self.found:
            self.found.append(text)

    def _seconds(self, stamps: Any) -> Array:
        import pyarrow as pa
        import pyarrow.compute as pc

        try:
            if not pa.types.is_timestamp(stamps.type) or stamps.type.unit != "us":
                zone = getattr(stamps.type, "tz", None)
                stamps = pc.cast(stamps, pa.timestamp("us", tz=zone), safe=False)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise LogError(f"column `{self.column}` must {_RULE}; it holds {stamps.type}") from None
        whole = pc.cast(stamps, pa.int64()).to_numpy(zero_copy_only=False)
        return np.asarray(whole, dtype=np.float64) / 1e6

    def _iso(self, values: Any, zoned: bool) -> Any | None:
        """Return ISO times, all with a zone or all without, or None."""
        import pyarrow as pa
        import pyarrow.compute as pc

        kind = pa.timestamp("us", tz="UTC" if zoned else None)
        for tidy in (False, True):
            text = values
            if tidy:
                text = pc.utf8_trim_whitespace(text)
                text = pc.replace_substring_regex(text, r"(\.[0-9]{6})[0-9]+", r"\1")
                text = pc.replace_substring_regex(text, r" ?(?:UTC|GMT|utc|z)$", "Z")
                text = pc.replace_substring_regex(text, r" ([-+][0-9]{2}:?(?:[0-9]{2})?)$", r"\1")
            try:
                return pc.cast(text, kind)
            except pa.ArrowInvalid:
                continue
        return None

    def _numbers(self, values: Any, start: int) -> Array:
        array = Numbers(self.column).read(values, start)
        if self.how is None:
            self.how = "number"
            for part, scale in _PARTS.items():
                if array.size and array.min() > _FIRST * scale and array.max() < _LAST * scale:
                    self.found.append(f"numbers are {part} since 1970, read as seconds")
                    self.scale = scale
            if array.size and array.min() > 19_000_000 and array.max() < 21_000_000:
                days = self._days(array)
                if not np.isnan(days).any():
                    self.found.append("numbers are days such as 20240501, read as dates")
                    self.scale = 0.0
        if self.scale:
            return array / self.scale if self.scale != 1.0 else array
        days = self._days(array)
        if np.isnan(days).any():
            at = int(np.argmax(np.isnan(days)))
            raise offence(self.column, "hold days such as 20240501", start + at, float(array[at]))
        return days

    @staticmethod
    def _days(array: Array) -> Array:
        """Return days such as 20240501 as seconds, NaN for what is none."""
        import pandas as pd

        unique, inverse = np.unique(array, return_inverse=True)
        texts = [str(int(x)) if x == int(x) else "" for x in unique.tolist()]
        days = pd.to_datetime(pd.Series(texts), format="%Y%m%d", errors="coerce")
        return _since_1970(days)[inverse]

    def _other(self, values: Any, start: int) -> Array:
        import pandas as pd

        text = pd.Series(values.to_pylist(), dtype=object).str.strip()
        if self.how is not None:
            return self._by(text, self.how, start)
        formats = [form for form in _formats() if _reads(text[0], form)]
        both = {
            form: _since_1970(pd.to_datetime(text, format=form, errors="coerce"))
            for form in formats
        }
        fitting = [form for form in formats if not np.isnan(both[form]).any()]
        if not fitting:
            if formats:
                self._by(text, formats[0], start)
            raise self._refused(values, start)
        fitting.sort(key=lambda form: (form.index("%d") < 2) != self.day_first)
        self.how = fitting[0]
        self._note_zone(False)
        if len(fitting) > 1:
            order = "day" if self.day_first else "month"
            self.found.append(f"{text[0]!r} is read with the {order} first (else write ISO dates)")
        return both[self.how]

    def _by(self, text: Any, form: str, start: int) -> Array:
        import pandas as pd

        seconds = _since_1970(pd.to_datetime(text, format=form, errors="coerce"))
        if np.isnan(seconds).any():
            at = int(np.argmax(np.isnan(seconds)))
            raise offence(self.column, f"{_RULE}, all written alike", start + at, text[at])
        return seconds

    def _refused(self, values: Any, start: int) -> LogError:
        """Return the error that names the first value unlike the others."""
        wanted = self.how
        for i in range(len(values)):
            here = self._kind(values.slice(i, 1))
            wanted = wanted or here
            if here is None or here != wanted:
                more = ", with a zone in all rows or in none" if here and wanted != "number" else ""
                return offence(self.column, _RULE + more, start + i, values[i].as_py())
        return LogError(f"column `{self.column}` must {_RULE}, all written alike")

    def _kind(self, one: Any) -> str | None:
        if looks_numeric(one):
            return "number"
        if self._iso(one, False) is not None:
            return "plain"
        return "zoned" if self._iso(one, True) is not None else None


def _since_1970(stamps: Any) -> Array:
    import pandas as pd

    seconds = (stamps - pd.Timestamp("1970-01-01")).dt.total_seconds()
    return np.asarray(seconds, dtype=np.float64)


def _formats() -> list[str]:
    return [
        date + (between + clock if clock else "")
        for date in _DATES
        for clock in _CLOCKS
        for between in ((" ", ", ", "T") if clock else ("",))
    ]


def _reads(text: str, form: str) -> bool:
    if not re.match(r"^[\w]", text):
        return False
    try:
        datetime.strptime(text, form)
    except ValueError:
        return False
    return True
