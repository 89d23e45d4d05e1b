"""What an evaluation found."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from zib.core.validate import InvalidParameterError
from zib.logs.ope.trust import Diagnostics

if TYPE_CHECKING:
    import pandas as pd


class Value(NamedTuple):
    """The estimated mean reward of a policy.

    Attributes
    ----------
    policy, estimator
        Of what and how.
    value, error
        The estimate and its standard error.
    low, high
        The interval; NaN where there is none.
    grade
        "good", "caution" or "do not use".
    reasons
        Why not "good", in words.
    """

    policy: str
    estimator: str
    value: float
    error: float
    low: float
    high: float
    grade: str
    reasons: tuple[str, ...]


class Difference(NamedTuple):
    """By how much a policy is better than the baseline, from the same rows.

    Attributes as those of `Value`; the grade is the worse one of both policies.
    """

    policy: str
    baseline: str
    estimator: str
    value: float
    error: float
    low: float
    high: float
    grade: str
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class Evaluation:
    """Values of policies, estimated from a log; made by `zib.ope.evaluate`.

    Attributes
    ----------
    values
        One `Value` per policy and estimator.
    differences
        One `Difference` per other policy and estimator, if there is a baseline.
    diagnostics
        One `Diagnostics` per policy.
    settings
        How it was done: rows, level, kind of interval, model, source of the propensities, seed.
    """

    values: tuple[Value, ...]
    differences: tuple[Difference, ...]
    diagnostics: tuple[Diagnostics, ...]
    settings: dict[str, Any]

    def value(self, policy: str, estimator: str | None = None) -> Value:
        """Return the value of a policy; by its last estimator if none is named."""
        found = [v for v in self.values if v.policy == policy]
        if estimator is not None:
            found = [v for v in found if v.estimator == estimator]
        if not found:
            raise InvalidParameterError(
                f"`policy` and `estimator` must be among those evaluated; "
                f"got {policy!r}, {estimator!r}"
            )
        return found[-1]

    def difference(self, policy: str, estimator: str | None = None) -> Difference:
        """Return the difference of a policy to the baseline; by its last estimator by default."""
        found = [d for d in self.differences if d.policy == policy]
        if estimator is not None:
            found = [d for d in found if d.estimator == estimator]
        if not found:
            raise InvalidParameterError(
                f"`policy` and `estimator` must be among those compared; "
                f"got {policy!r}, {estimator!r}"
            )
        return found[-1]

    def to_frame(self, what: str = "values") -> pd.DataFrame:
        """Return the "values", "differences" or "diagnostics" as a pandas frame."""
        import pandas as pd

        tables: dict[str, tuple[tuple[Any, ...], tuple[str, ...]]] = {
            "values": (self.values, Value._fields),
            "differences": (self.differences, Difference._fields),
            "diagnostics": (self.diagnostics, Diagnostics._fields),
        }
        if what not in tables:
            raise InvalidParameterError(
                f"`what` must be 'values', 'differences' or 'diagnostics'; got {what!r}"
            )
        rows, names = tables[what]
        frame = pd.DataFrame.from_records(list(rows), columns=list(names))
        if "reasons" in frame:
            frame["reasons"] = ["; ".join(row.reasons) for row in rows]
        return frame

    def to_dict(self) -> dict[str, Any]:
        """Return everything as numbers, strings, lists and dicts, ready for JSON.

        NaN and infinity become None.
        """
        return {
            "settings": _plain(self.settings),
            "values": [_plain(v._asdict()) for v in self.values],
            "differences": [_plain(d._asdict()) for d in self.differences],
            "diagnostics": [_plain(d._asdict()) for d in self.diagnostics],
        }

    def summary(self) -> str:
        """Return tables of values, differences and diagnostics as plain text."""
        s = self.settings
        level = f"{100 * s['level']:g} %"
        lines = [
            f"{s['rows']} rows, {s['nonzero']} with a reward; propensities {s['propensities']}; "
            f"{s['interval']} {level} intervals",
            "",
        ]
        lines += _table(
            ("policy", "estimator", "value", level, "grade"),
            [
                (v.policy, v.estimator, _number(v.value), _interval(v.low, v.high), v.grade)
                for v in self.values
            ],
        )
        if self.differences:
            lines += ["", f"minus {self.differences[0].baseline}:"]
            lines += _table(
                ("policy", "estimator", "difference", level, "grade"),
                [
                    (d.policy, d.estimator, _number(d.value), _interval(d.low, d.high), d.grade)
                    for d in self.differences
                ],
            )
        lines += ["", "weights:"]
        lines += _table(
            ("policy", "effective rows", "effective non-zero", "largest", "mean", "z"),
            [
                (
                    d.policy,
                    f"{d.effective_rows:.0f}",
                    f"{d.effective_nonzero:.0f}",
                    f"{d.largest_weight:.4g}",
                    f"{d.mean_weight:.4f}",
                    f"{d.mean_weight_z:+.1f}",
                )
                for d in self.diagnostics
            ],
        )
        notes: dict[tuple[str, str], list[str]] = {}
        for v in self.values:
            for reason in v.reasons:
                notes.setdefault((v.policy, reason), []).append(v.estimator)
        if notes:
            lines.append("")
        for (policy, reason), which in notes.items():
            by_all = len(which) == len({v.estimator for v in self.values})
            only = "" if by_all else f" ({', '.join(which)})"
            lines.append(f"{policy}{only}: {reason}")
        return "\n".join(line.rstrip() for line in lines)

    def __repr__(self) -> str:
        policies = len(self.diagnostics)
        estimators = len({v.estimator for v in self.values})
        return (
            f"<Evaluation: {policies} {'policy' if policies == 1 else 'policies'}, "
            f"{estimators} estimator{'' if estimators == 1 else 's'}, "
            f"{self.settings['rows']} rows>"
        )


def _number(x: float) -> str:
    return "–" if math.isnan(x) else f"{x:.5g}"


def _interval(low: float, high: float) -> str:
    return "–" if math.isnan(low) else f"[{low:.4g}, {high:.4g}]"


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[j]) for row in (head, *rows)) for j in range(len(head))]
    return [
        "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in (head, *rows)
    ]


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value
