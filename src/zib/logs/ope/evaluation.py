"""What an evaluation found, and how far it can be trusted."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from zib.core.validate import InvalidParameterError, shown
from zib.report.numbers import MISSING, listing, number, percent

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[np.float64]

GOOD, CAUTION, DO_NOT_USE = GRADES = ("good", "caution", "do not use")

FEW_ROWS, SOME_ROWS = 100, 1000
FEW_PAID, SOME_PAID = 30, 100
FEW_CLUSTERS = 30
FAR, OFF = 4.0, 3.0
LARGE_SHARE = 0.05
MUCH_CUT, SOME_CUT = 0.20, 0.01
MUCH_MISSING = 0.05


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


Row = TypeVar("Row", Value, Difference)


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
        return _last(self.values, policy, estimator, "evaluated")

    def difference(self, policy: str, estimator: str | None = None) -> Difference:
        """Return the difference of a policy to the baseline; by its last estimator by default."""
        return _last(self.differences, policy, estimator, "compared")

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
                f"`what` must be 'values', 'differences' or 'diagnostics'; got {shown(what)}"
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
        level = percent(s["level"])
        lines = [
            f"{s['rows']} rows, {s['nonzero']} with a reward; propensities {s['propensities']}; "
            f"{s['interval']} {level} intervals{_counted(s)}",
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
            lines += ["", *against_baseline(self)]
        lines += ["", "weights:"]
        lines += _table(
            ("policy", "effective rows", "effective non-zero", "largest", "mean", "z"),
            [
                (
                    d.policy,
                    f"{d.effective_rows:.0f}",
                    f"{d.effective_nonzero:.0f}",
                    _number(d.largest_weight, 4),
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


def _counted(settings: dict[str, Any]) -> str:
    """Return what is special about the rewards and rows, in words."""
    out = ""
    if settings.get("inflated"):
        out += f"; nothing happened: {_number(settings['inflated'])}"
    if settings.get("clusters") is not None:
        out += f"; {settings['clusters']} clusters"
    return out


def against_baseline(evaluation: Evaluation) -> list[str]:
    """Return which policies differ from the baseline beyond the noise, in sentences.

    The last estimator speaks, as for `Evaluation.value`.
    """
    if not evaluation.differences:
        return []
    baseline = evaluation.differences[0].baseline
    policies = dict.fromkeys(each.policy for each in evaluation.differences)
    final = [evaluation.difference(policy) for policy in policies if policy != baseline]
    final = [each for each in final if each.grade != GRADES[-1] and math.isfinite(each.low)]
    clear = {
        "higher": [f"{each.policy} ({_estimate(each)})" for each in final if each.low > 0.0],
        "lower": [f"{each.policy} ({_estimate(each)})" for each in final if each.high < 0.0],
    }
    said = [
        f"{word.capitalize()} than {baseline} beyond the noise: {listing(names)}."
        for word, names in clear.items()
        if names
    ]
    if final and not said:
        said = [f"No policy differs from {baseline} beyond the noise."]
    return said


def _estimate(row: Value | Difference) -> str:
    return f"{_number(row.value, 4)} {_interval(row.low, row.high)}"


def _number(x: float, digits: int = 5) -> str:
    return number(x, digits, trim=True)


def _interval(low: float, high: float) -> str:
    return MISSING if math.isnan(low) else f"[{_number(low, 4)}, {_number(high, 4)}]"


def _last(rows: tuple[Row, ...], policy: str, estimator: str | None, how: str) -> Row:
    """Return the last row about a policy, and by an estimator if one is named."""
    found = [row for row in rows if row.policy == policy and estimator in (None, row.estimator)]
    if not found:
        raise InvalidParameterError(
            f"`policy` and `estimator` must be among those {how}; "
            f"got {shown(policy)}, {estimator!r}"
        )
    return found[-1]


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


# -------------------------------------------------------------------------------- trust


class SupportError(InvalidParameterError):
    """A target policy plays arms that the log does not show; no data can tell what they pay."""


class WeightSums:
    """Sums of the weights of all rows and of the rows that paid."""

    def __init__(self) -> None:
        self.rows = self.matched = self.paid = 0
        self.total = self.squares = self.paid_total = self.paid_squares = self.largest = 0.0

    def add(self, weight: Array, paid: NDArray[np.bool_]) -> None:
        """Take in the weights of some rows."""
        inside = weight[paid]
        self.rows += weight.size
        self.matched += int(np.count_nonzero(weight))
        self.paid += int(np.count_nonzero(inside))
        self.total += float(weight.sum())
        self.squares += float(weight @ weight)
        self.paid_total += float(inside.sum())
        self.paid_squares += float(inside @ inside)
        self.largest = max(self.largest, float(weight.max(initial=0.0)))

    def merge(self, other: WeightSums) -> None:
        """Take in the sums of other rows."""
        for name, value in vars(other).items():
            mine = getattr(self, name)
            setattr(self, name, max(mine, value) if name == "largest" else mine + value)

    @property
    def effective_rows(self) -> float:
        """(Σw)²/Σw²: as many rows of the target policy's own would say as much."""
        return self.total**2 / self.squares if self.squares > 0 else 0.0

    @property
    def effective_paid(self) -> float:
        """The same over rows with a reward that is not zero."""
        return self.paid_total**2 / self.paid_squares if self.paid_squares > 0 else 0.0

    @property
    def largest_share(self) -> float:
        """The share of the largest weight in the sum."""
        return self.largest / self.total if self.total > 0 else math.nan

    def z_score(self, expected: float) -> float:
        """Return how many standard errors the mean weight is away from what it should be."""
        if self.rows < 2:
            return math.nan
        mean = self.total / self.rows
        off = mean - expected
        variance = max(self.squares / self.rows - mean**2, 0.0)
        error = math.sqrt(variance / (self.rows - 1))
        if abs(off) <= 1e-9 or error <= 1e-12:
            return 0.0 if abs(off) <= 1e-9 else math.copysign(math.inf, off)
        return off / error


class Diagnostics(NamedTuple):
    """What the weights of one target policy look like.

    Attributes
    ----------
    policy
        Its name.
    rows
        Rows of the log.
    matched_share
        Share of rows whose arm the policy might have played.
    effective_rows
        (Σw)²/Σw²: so many rows of the policy's own would say as much.
    nonzero
        Rows with a weight and a reward that is not zero.
    effective_nonzero
        (Σw)²/Σw² over those rows: with mostly zeros, this is the sample size that counts.
    largest_weight, largest_share
        The largest weight, and its share in the sum of all.
    mean_weight, mean_weight_z
        The mean weight, which is 1 if the propensities are right, and the distance in standard
        errors: a test of the propensities.
    cut_share
        Share of the total weight above `clip`: what "clipped" leaves out.
    missing_mass, missing
        Mean probability the policy gives to arms that could not be observed, in total and by arm.
    missing_bound
        By how much the value may be lower or higher because of that: the mass times the smallest
        and the largest reward of the log (zero included).
    """

    policy: str
    rows: int
    matched_share: float
    effective_rows: float
    nonzero: int
    effective_nonzero: float
    largest_weight: float
    largest_share: float
    mean_weight: float
    mean_weight_z: float
    cut_share: float
    missing_mass: float
    missing: dict[Hashable, float]
    missing_bound: tuple[float, float]


def grade(
    estimator: str,
    found: Diagnostics,
    used: WeightSums,
    *,
    clip: float,
    level: float,
    estimated: bool = False,
    clusters: int | None = None,
    remark: str = "",
) -> tuple[str, tuple[str, ...]]:
    """Return the grade of an estimate and the reasons in words, worst first."""
    bad: list[str] = []
    weak: list[str] = []
    if found.missing_mass > 0.0:
        text = f"{percent(found.missing_mass)} of its decisions cannot be observed in this log"
        (bad if found.missing_mass > MUCH_MISSING else weak).append(text)
    if used.paid == 0:
        text = "no matching row has a reward: nothing is known about its size"
        if used.effective_rows > 0:
            most = min(-math.log1p(-level) / used.effective_rows, 1.0)
            text += f", and its chance is below {most:.2g} at level {level:g}"
        bad.append(text)
    elif used.effective_paid < FEW_PAID:
        bad.append(f"effectively only {used.effective_paid:.3g} rewards that are not zero")
    elif used.effective_paid < SOME_PAID:
        weak.append(f"effectively {used.effective_paid:.3g} rewards that are not zero")
    if used.effective_rows < FEW_ROWS:
        bad.append(f"effectively only {used.effective_rows:.3g} rows")
    elif used.effective_rows < SOME_ROWS:
        weak.append(f"effectively {used.effective_rows:.4g} rows")
    if abs(found.mean_weight_z) > FAR:
        bad.append(
            f"the mean weight is {found.mean_weight:.4g}, {abs(found.mean_weight_z):.3g} standard "
            "errors from what it must be: the propensities are probably wrong"
        )
    elif abs(found.mean_weight_z) > OFF:
        weak.append(
            f"the mean weight is {found.mean_weight:.4g}, {abs(found.mean_weight_z):.3g} standard "
            "errors from what it should be"
        )
    if used.largest_share > LARGE_SHARE:
        weak.append(f"one row has {percent(used.largest_share)} of all the weight")
    if estimator in ("clipped", "switch") and found.cut_share > 0.0:
        effect = (
            "with rewards above zero the value is too low"
            if estimator == "clipped"
            else "there the value rests on the model alone"
        )
        text = f"{percent(found.cut_share)} of the weight lies above {clip:g}: {effect}"
        if found.cut_share > MUCH_CUT:
            bad.append(text)
        elif found.cut_share > SOME_CUT:
            weak.append(text)
    if clusters is not None and clusters < FEW_CLUSTERS:
        weak.append(f"only {clusters} clusters of rows")
    if remark:
        weak.append(remark)
    if estimated:
        weak.append("propensities are estimated: right only if the context holds every reason")
    if estimator == "dm":
        weak.append("no interval: its error is that of the model, which the log cannot show")
    worst = DO_NOT_USE if bad else CAUTION if weak else GOOD
    return worst, (*bad, *weak)


def support_message(policy: str, missing: dict[Hashable, float]) -> str:
    """Return one sentence that names the arms and how often the policy plays them."""
    worst = sorted(missing.items(), key=lambda item: -item[1])
    arms = ", ".join(f"{arm!r} ({percent(mass)})" for arm, mass in worst[:5])
    more = f" and {len(worst) - 5} more" if len(worst) > 5 else ""
    return (
        f"policy {policy!r} plays arms where the log never shows them: {arms}{more}; "
        f"{percent(sum(missing.values()))} of its decisions cannot be evaluated"
    )
