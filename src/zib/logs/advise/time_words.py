"""What changes over time, and what to do about it, in words: functions of numbers only."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from zib.report import numbers
from zib.report.numbers import listing, percent

if TYPE_CHECKING:
    from zib.logs.advise.times import Course, TimeReport, TimeTest

WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
DEPENDENT = 1.5  # dispersion from which on rows that are close in time are said to be alike


def time_words(report: TimeReport) -> tuple[str, ...]:
    """Return what changes over time and what to do, in sentences."""
    if report.reason:
        return (f"Nothing can be said about changes over time. {report.reason}",)
    said = [_drift(report), _differences(report), _to_do(report), *_cycles(report), _arms(report)]
    if report.dispersion > DEPENDENT:
        said.append(
            f"Rows that are close in time pay alike: short times vary {report.dispersion:.2g} "
            "times as much as independent rows would. The tests here allow for that; if it comes "
            "from users with several rows, name their column as cluster."
        )
    return tuple(sentence for sentence in said if sentence)


def value(name: str, x: float) -> str:
    """Return p in per cent and other numbers as they are."""
    return percent(x) if name == "p" else numbers.number(x, 3, trim=True)


def p_value(x: float) -> str:
    """Return a p value."""
    return "p value below 0.001" if x < 0.001 else f"p value {x:.2g}"


def periods(report: TimeReport) -> str:
    """Return how many periods there are, and what they are."""
    count = report.edges.size - 1
    one = {"day": "days", "week": "weeks"}.get(report.unit)
    return f"{count} {one}" if one else f"{count} periods of {report.unit}"


def _found(report: TimeReport, about: str) -> TimeTest | None:
    return next((t for t in report.tests if t.about == about and t.arm is None), None)


def _ends(course: Course, name: str) -> tuple[float, float]:
    """Return the means over the first and over the last quarter of the periods."""
    x = getattr(course, name).value
    quarter = max(x.size // 4, 1)
    out = []
    for part in (slice(quarter), slice(-quarter, None)):
        weight = np.where(np.isnan(x[part]), 0.0, course.rows[part])
        out.append(float(np.nansum(x[part] * weight) / max(weight.sum(), 1e-300)))
    return out[0], out[1]


def _drift(report: TimeReport) -> str:
    tests = {name: _found(report, name) for name in ("p", "mu", "r")}
    made = {name: test for name, test in tests.items() if test is not None}
    if not report.changes:
        least = min((test.adjusted for test in made.values()), default=1.0)
        return (
            f"Over {periods(report)} nothing says that the arms pay more or less often, or more or "
            f"less, at other times (smallest {p_value(least)}, adjusted for the number of tests)."
        )
    said = []
    for name in report.changes:
        first, last = _ends(report.courses[0], name)
        x = getattr(report.courses[0], name).value
        low, high = float(np.nanmin(x)), float(np.nanmax(x))
        if abs(last - first) > 0.4 * (high - low):
            way = (
                f"from {value(name, first)} in the first quarter to {value(name, last)} in the last"
            )
        else:
            way = f"up and down between {value(name, low)} and {value(name, high)}"
        said.append(f"{name} {way} ({p_value(made[name].adjusted)})")
    text = f"Rewards change over {periods(report)}: {', '.join(said)}."
    if report.dated and report.end - report.start < 2 * 86_400:
        text += " In less than two days, drift cannot be told from the hour of the day."
    return text


def _differences(report: TimeReport) -> str:
    made = [t for t in report.tests if t.about.startswith("differences")]
    if not made:
        return ""
    least = min(made, key=lambda test: test.adjusted)
    if not report.differences_change:
        return (
            "Nothing says that the differences between the arms change over time "
            f"({p_value(least.adjusted)})."
        )
    what = "how often they pay" if least.about.endswith(" p") else "what they pay on average"
    text = (
        f"The differences between the arms change over time ({what}, {p_value(least.adjusted)}), "
        "beyond what all of them have in common"
    )
    first, second = report.leaders
    if first != second:
        return f"{text}: {first!r} leads in the first half of the time, {second!r} in the second."
    return f"{text}; {first!r} leads in both halves of the time."


def _to_do(report: TimeReport) -> str:
    if report.differences_change:
        half = max(int(float(f"{report.rows / 4:.1g}")), 1)
        return (
            "What to do: judge the arms by recent rows, and let the policy forget: "
            f"zib.mab.Discounted(policy, half_life={half}) or zib.mab.Windowed(policy, "
            f"length={2 * half}); that is a quarter and half of this log, and less if arms change "
            "places faster."
        )
    if not report.changes:
        return ""
    if not report.shares_change:
        return (
            "What to do: nothing for the choice between arms. All were played in the same shares "
            "all the time, so what changes for all of them does not bias their comparison; expect "
            "other totals at other times."
        )
    text = (
        "What to do: do not compare plain averages. Arms were played in other shares at other "
        "times, so averages mix up the arm and the time."
    )
    if report.weighted:
        return f"{text} The comparison with inverse propensities allows for that."
    arms = ", ".join(
        f"{label!r} {numbers.interval(*estimate, 3, trim=True)}"
        for label, estimate in report.within[:6]
    )
    more = len(report.within) - 6
    rest = f" and {more} more" if more > 0 else ""
    return f"{text} Compared within periods, the mean rewards are {arms}{rest}."


def _cycles(report: TimeReport) -> list[str]:
    out = []
    for about, course in (("hour", report.hours), ("weekday", report.weekdays)):
        if course is None:
            continue
        said = []
        for name in ("p", "mu"):
            test = _found(report, f"{name} by {about}")
            if test is None or not test.alarm:
                continue
            x = getattr(course, name).value
            low, high = int(np.nanargmin(x)), int(np.nanargmax(x))
            said.append(
                f"{name} is largest {_when(about, high)} ({value(name, float(x[high]))}) and "
                f"smallest {_when(about, low)} ({value(name, float(x[low]))}, "
                f"{p_value(test.adjusted)})"
            )
        what = {"hour": "The hour of the day", "weekday": "The day of the week"}[about]
        if said:
            zone = f" in the time zone {report.timezone}" if about == "hour" else ""
            out.append(f"{what} matters{zone}: {'; '.join(said)}.")
    return out


def _when(about: str, at: int) -> str:
    return f"at {at} h" if about == "hour" else f"on {WEEKDAYS[at]}s"


def _arms(report: TimeReport) -> str:
    single = [t for t in report.tests if t.arm is not None and t.alarm]
    if not single or not report.differences_change:
        return ""
    named = [f"{test.arm!r} ({test.about})" for test in single[:6]]
    more = f" and {len(single) - 6} more" if len(single) > 6 else ""
    return f"On their own, these arms change: {listing(named)}{more}."
