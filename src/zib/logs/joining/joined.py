"""What a join found: counts, the delay curve, the joined rows, and a report in words."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from zib.core.validate import InvalidParameterError
from zib.logs.joining.instants import span_words
from zib.logs.tables import open_table
from zib.stats.delay import DelayDistribution

ENOUGH = 5  # conversions without which no delay curve is told


class Part(NamedTuple):
    """A number of conversions and what they are worth."""

    number: int
    amount: float


@dataclass(frozen=True)
class ArmRates:
    """How often exposures of one arm convert.

    Attributes
    ----------
    arm
        Its label.
    closed, closed_converted
        Exposures whose window had closed, and how many of them have a conversion.
    pending, pending_converted
        The same of exposures whose window was still open.
    closed_chance
        Share of the closed ones with a conversion.
    chance
        The estimate from all exposures: those without conversion so far count as the fraction of a
        zero that their age makes them (`zib.stats.delay.pending_posterior`).
    """

    arm: Hashable
    closed: int
    closed_converted: int
    pending: int
    pending_converted: int
    closed_chance: float
    chance: float


@dataclass(frozen=True)
class Joined:
    """A joined log with the story of its making; print it for a report.

    Attributes
    ----------
    path
        The file or folder that was written, or None.
    table
        The rows as an Arrow table, or None if they were written to a file.
    rows
        Number of rows in it.
    exposures, converted
        Exposures read (up to `as_of`), and those with at least one conversion.
    matched
        Conversions that belong to an exposure; with ``attribute="all"`` each pair counts.
    unknown, early, late
        Conversions without exposure, before the first exposure, and after the window.
    future
        Rows of either file after `as_of`, which were not used.
    duplicates, revisions, refunds, refunded
        Rows that repeat a conversion; that replace its amount; that are negative, and their sum.
    alike
        Rows alike in key, time and amount where no conversion id tells whether they are the same.
    open_rows, open_converted
        Exposures whose window was still open, and those of them with a conversion.
    delays
        The distribution of the delay from exposure to first conversion, corrected for conversions
        that are still to come; None with few conversions, or without a window.
    arms
        Rates of each arm; empty where no column of arms is known.
    repeated
        Whether keys occur in several exposures.
    notes
        Sentences: guessed columns, times that a time zone leaves open, peculiarities.
    """

    path: Path | str | None
    table: Any
    rows: int
    exposures: int
    converted: int
    matched: Part
    unknown: Part
    early: Part
    late: Part
    future: tuple[int, int]
    duplicates: int
    revisions: int
    refunds: int
    refunded: float
    alike: int
    open_rows: int
    open_converted: int
    delays: DelayDistribution | None
    arms: tuple[ArmRates, ...]
    repeated: bool
    notes: tuple[str, ...]
    names: tuple[str, str]
    roles: dict[str, Any]
    window: float
    as_of: float
    dates: bool
    attribute: str
    combine: str
    pending: str

    def frame(self) -> Any:
        """Return the joined rows as a pandas frame."""
        import pyarrow as pa

        if self.table is not None:
            return self.table.to_pandas()
        if str(self.path).endswith(".csv"):
            import pandas as pd

            return pd.read_csv(str(self.path))
        table = open_table(self.path)
        return pa.Table.from_batches(list(table.batches(table.columns))).to_pandas()

    def log(self, **roles: Any) -> Any:
        """Return the joined rows as a log for `zib.advise.advise` and `zib.ope.evaluate`.

        Columns are named as for `zib.datasets.open_log`; arm, reward and time are known already
        where they were named or guessed for the join.
        """
        from zib.logs.read import open_log

        if self.pending == "weight":
            raise InvalidParameterError(
                "`pending` must be 'leave-out' or 'thin' for a log; weighted rows would count as "
                "whole ones"
            )
        named = {**self.roles, **roles}
        if named.get("arm") is None:
            raise InvalidParameterError(
                "`arm` must name the column with what was shown, since the join was not told; got "
                f"{named.get('arm')!r}"
            )
        return open_log(self.table if self.path is None else self.path, **named)

    @property
    def outside_window(self) -> float:
        """Share of the amounts of those exposed before that came after the window."""
        whole = self.matched.amount + self.late.amount
        return self.late.amount / whole if whole else math.nan

    def __str__(self) -> str:
        return report(self)


def _moment(joined: Joined) -> str:
    if not math.isfinite(joined.as_of):
        return ""
    if not joined.dates:
        return f", as of {joined.as_of:g}"
    return f", as of {datetime.fromtimestamp(joined.as_of, UTC):%Y-%m-%d %H:%M} UTC"


def _length(joined: Joined, value: float) -> str:
    return span_words(value) if joined.dates else f"{value:.3g}"


def _counts(joined: Joined) -> list[tuple[str, int, float | None]]:
    rows: list[tuple[str, int, float | None]] = [
        ("exposures", joined.exposures, None),
        ("  with a conversion", joined.converted, None),
        ("conversions matched", *joined.matched),
        ("  without exposure", *joined.unknown),
        ("  before the exposure", *joined.early),
        ("  after the window", *joined.late),
        ("rows dropped as duplicates", joined.duplicates, None),
        ("rows that revise an amount", joined.revisions, None),
        ("refunds", joined.refunds, -joined.refunded),
    ]
    return [row for row in rows if row[1] or not row[0].startswith(("  ", "rows", "refunds"))]


def report(joined: Joined) -> str:
    """Return what the join found in words."""
    left, right = joined.names
    window = (
        "no window" if math.isinf(joined.window) else f"window {_length(joined, joined.window)}"
    )
    rule = {
        "last": "a conversion belongs to the last exposure before it",
        "first": "a conversion belongs to the first exposure in the window before it",
        "all": "a conversion counts for every exposure in the window before it",
    }[joined.attribute]
    if not joined.repeated:
        rule = "each id has one exposure"
    lines = [f"{left} joined with {right}: {window}{_moment(joined)}; {rule}.", ""]
    for words, count, amount in _counts(joined):
        worth = "" if amount is None else f"   worth {amount:,.2f}"
        lines.append(f"{words:<28}{count:>12,}{worth}")
    lines.append("")
    if joined.late.number and math.isfinite(joined.outside_window):
        lines.append(
            f"{100 * joined.outside_window:.1f} % of what the exposed brought in came after the "
            "window and does not count."
        )
    if not math.isinf(joined.window):
        lines += _open_words(joined)
    if joined.delays is not None:
        half, most, nearly = (
            _length(joined, float(x)) for x in joined.delays.quantile([0.5, 0.9, 0.99])
        )
        lines.append(
            f"Of the conversions that come within the window, half come within {half}, 90 % within "
            f"{most} and 99 % within {nearly} (estimated from {joined.delays.events:,.0f}, "
            "corrected for those still to come)."
        )
    lines += joined.notes
    lines += _arm_lines(joined)
    where = "" if joined.path is None else f" in {joined.path}"
    lines.append(f"{joined.rows:,} rows{where}.")
    return "\n".join(lines)


def _open_words(joined: Joined) -> list[str]:
    if not joined.open_rows:
        return ["All windows had closed."]
    what = {
        "leave-out": "they are left out, with and without conversion",
        "thin": "those with a conversion are kept, and of the others as many as their age makes "
        "zeros of, drawn at random",
        "weight": "those without conversion weigh what their age makes of a zero; the commands "
        "`zib advise` and `zib evaluate` do not read weights (use `thin` for them)",
    }[joined.pending]
    return [
        f"Exposures whose window was still open: {joined.open_rows:,}, of which "
        f"{joined.open_converted:,} with a conversion; {what}."
    ]


def _arm_lines(joined: Joined) -> list[str]:
    if not 0 < len(joined.arms) <= 30:
        return []
    head = ["arm", "closed", "converted", "share", "open", "converted", "share of all*"]
    rows = [
        [str(a.arm)[:24], f"{a.closed:,}", f"{a.closed_converted:,}", _percent(a.closed_chance),
         f"{a.pending:,}", f"{a.pending_converted:,}", _percent(a.chance)]
        for a in joined.arms
    ]  # fmt: skip
    if joined.delays is None:
        head, rows = head[:4], [row[:4] for row in rows]
    wide = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = [""]
    for row in (head, *rows):
        cells = [row[0].ljust(wide[0]), *(x.rjust(w) for x, w in zip(row[1:], wide[1:]))]
        lines.append("  ".join(cells))
    if joined.delays is not None:
        lines.append("* open exposures without conversion count as the fraction of a zero.")
    return [*lines, ""]


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %" if math.isfinite(share) else "–"
