"""Charts as inline SVG: no scripts, and colours from the page's style sheet.

Shapes stretch with the width of the page while text keeps its size: what stretches lies in an inner
drawing of 1,000 by 1,000 units, text is placed in per cent around it.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from markupsafe import Markup, escape

from zib.live.service import words

if TYPE_CHECKING:
    from zib.live.views import Ages, ArmView, History
    from zib.stats.intervals import Estimate

MOST_BINS = 84  # of a chart over time; a week by two hours
MOST_ROWS = 31  # of the table below it
COLOURED = 6  # arms with a colour of their own; the others are put together
WIDTHS = tuple(
    float(x)
    for x in (
        1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1_200, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200,
        86_400, 2 * 86_400, 7 * 86_400, 14 * 86_400, 28 * 86_400, 91 * 86_400, 364 * 86_400,
    )
)  # fmt: skip
REST = "all others"
DAY = 86_400.0


class Chart(NamedTuple):
    """A drawing and what stands around it.

    Attributes
    ----------
    svg
        The drawing.
    left, right
        Words beside it, from top to bottom.
    legend
        Pairs of a colour's class and words.
    head, rows
        The same as a table.
    """

    svg: Markup
    left: list[str]
    right: list[str]
    legend: list[tuple[str, str]]
    head: list[str]
    rows: list[list[str]]


# ------------------------------------------------------------------------------ intervals of arms


class Scale(NamedTuple):
    """The common scale that intervals of several arms are drawn on."""

    low: float
    high: float

    def at(self, x: float) -> float:
        """Return where a number lies, in per cent, kept inside."""
        return min(max(100.0 * (x - self.low) / (self.high - self.low), 0.0), 100.0)


def scale_of(estimates: Sequence[Estimate]) -> Scale | None:
    """Return a scale on which the estimates can be told apart, or None where nothing is known.

    The interval of an arm that is hardly known may be huge. It is cut, so that it does not press
    all others into a corner: the scale covers all values, and intervals up to three times as wide
    as most.
    """
    known = [each for each in estimates if all(map(math.isfinite, each))]
    values = [each.value for each in estimates if math.isfinite(each.value)]
    if not values:
        return None
    widths = sorted(each.high - each.low for each in known)
    narrow = [each for each in known if each.high - each.low <= 3 * widths[(len(widths) - 1) // 2]]
    low = min([*values, *(each.low for each in narrow)])
    high = max([*values, *(each.high for each in narrow)])
    room = 0.06 * (high - low) or 0.5 * abs(high) or 1.0
    floor = 0.0 if min(values) >= 0.0 else -math.inf  # what is never below 0 needs no room there
    return Scale(max(low - room, floor), high + room)


def interval_bar(estimate: Estimate, scale: Scale | None) -> Markup:
    """Return an interval as a bar with a dot; the numbers stand beside it."""
    if scale is None or not math.isfinite(estimate.value):
        return Markup("")
    bar = ""
    if math.isfinite(estimate.low) and math.isfinite(estimate.high):
        low, high = scale.at(estimate.low), scale.at(estimate.high)
        bar = f'<rect x="{low:.1f}%" y="5" width="{max(high - low, 0.5):.1f}%" height="4" rx="2"/>'
        for x, beyond in ((0, estimate.low < scale.low), (100, estimate.high > scale.high)):
            if beyond:  # it goes on: no round end there
                bar += f'<rect class="cut" x="{max(x - 2, 0)}%" y="3" width="2%" height="8"/>'
    dot = f'<circle cx="{scale.at(estimate.value):.1f}%" cy="7" r="4"/>'
    return Markup(f'<svg class="bar" aria-hidden="true" focusable="false">{bar}{dot}</svg>')


# --------------------------------------------------------------------------------------- over time


class Binned(NamedTuple):
    """History put together to fewer, longer periods."""

    starts: list[float]
    width: float
    decisions: dict[Hashable, list[float]]
    revenue: list[float]
    rewarded: list[float]


def binned(history: History, most: int) -> Binned:
    """Return the history in at most `most` periods, which begin at even times of the clock."""
    if not history.starts:
        return Binned([], 1.0, {}, [], [])
    first, last = history.starts[0], history.starts[-1]
    width = history.width
    for width in WIDTHS:
        if width >= history.width and (last + history.width - first) / width <= most - 1:
            break
    offset = datetime.fromtimestamp(first).astimezone().utcoffset()
    shift = offset.total_seconds() if offset is not None and width >= 3_600 else 0.0
    begin = math.floor((first + shift) / width) * width - shift
    where = [int((start - begin) // width) for start in history.starts]
    n = where[-1] + 1

    def together(numbers: Iterable[float]) -> list[float]:
        out = [0.0] * n
        for k, x in zip(where, numbers, strict=True):
            out[k] += x
        return out

    return Binned(
        [begin + k * width for k in range(n)],
        width,
        {arm: together(x) for arm, x in history.decisions.items()},
        together(history.revenue),
        together(history.rewarded),
    )


def colours(arms: Sequence[ArmView], history: History) -> dict[Hashable, str]:
    """Return the class of the colour of each arm that has one: those with the most decisions.

    Among them the order is that of the ledger, so colours change only when the set does.
    """
    total = {label: sum(n) for label, n in history.decisions.items()}
    labels = [arm.label for arm in arms if total.get(arm.label)]
    most = len(labels) if len(labels) <= COLOURED + 1 else COLOURED
    top = sorted(labels, key=lambda label: -total[label])[:most]
    shown = [label for label in labels if label in top]
    return {label: f"c{k}" for k, label in enumerate(shown)}


def traffic(history: History, chosen: dict[Hashable, str]) -> Chart | None:
    """Return how the decisions were shared between arms over time, stacked to 100 %."""
    found = binned(history, MOST_BINS)
    rest = [label for label in history.decisions if label not in chosen]
    bands = [(words.label(label, 40), css, [label]) for label, css in chosen.items()]
    if any(sum(history.decisions[label]) for label in rest):
        bands.append((REST, "rest", rest))
    if not bands:
        return None

    def shares(of: Binned) -> list[list[float]]:
        """Return a row per band; NaN in periods without decisions."""
        sums = [
            [sum(of.decisions[label][k] for label in labels) for k in range(len(of.starts))]
            for _, _, labels in bands
        ]
        totals = [sum(column) or math.nan for column in zip(*sums, strict=True)]
        return [[x / n for x, n in zip(row, totals, strict=True)] for row in sums]

    rows = shares(found)
    lower = [0.0] * len(found.starts)
    paths = []
    for (_, css, _), row in zip(bands, rows, strict=True):
        upper = [a + b for a, b in zip(lower, row, strict=True)]
        paths.append(f'<path class="{css}" d="{_band(lower, upper)}"/>')
        lower = upper
    latest = [next((x for x in reversed(row) if math.isfinite(x)), math.nan) for row in rows]
    said = ", ".join(
        f"{name} {words.share(x)}" for (name, _, _), x in zip(bands, latest, strict=True)
    )
    coarse = binned(history, MOST_ROWS)
    table = [
        [_period(start, coarse.width), *(words.share(row[k]) for row in shares(coarse))]
        for k, start in enumerate(coarse.starts)
    ]
    return Chart(
        _drawing(
            "traffic", "Share of traffic over time", f"Latest shares: {said}.", "".join(paths),
            _time_ticks(found),
        ),
        ["100 %", "50 %", "0 %"],
        [],
        [(css, f"{name} {words.share(x)}") for (name, css, _), x in zip(bands, latest)],
        ["from", *(name for name, _, _ in bands)],
        table[::-1],
    )  # fmt: skip


def revenue(history: History, now: float, most: float) -> Chart | None:
    """Return what the decisions of each period brought; young periods are drawn lighter.

    `most` is the age by which 90 % of the rewards have come.
    """
    found = binned(history, MOST_BINS)
    if not any(found.revenue):
        return None
    top = _nice(max(found.revenue))
    bottom = -_nice(-min(found.revenue)) if min(found.revenue) < 0 else 0.0
    n = len(found.starts)
    settled: list[str] = []
    young: list[str] = []
    zero = _y(0.0, bottom, top)
    for k, (start, value) in enumerate(zip(found.starts, found.revenue, strict=True)):
        path = _column(k, n, zero, _y(value, bottom, top))
        is_young = math.isfinite(most) and now - (start + found.width) < most
        (young if is_young else settled).append(path)
    shapes = f'<path class="c0" d="{"".join(settled)}"/><path class="young" d="{"".join(young)}"/>'
    coarse = binned(history, MOST_ROWS)
    rows = [
        [_period(start, coarse.width), words.amount(value), words.whole(rewarded)]
        for start, value, rewarded in zip(coarse.starts, coarse.revenue, coarse.rewarded)
    ]
    period = words.exact_span(found.width)
    legend = [("c0", f"sum of rewards, by {period} of the decision")]
    if young:
        legend.append(("young", "still filling up: some rewards come later"))
    total = words.rough(sum(found.revenue))
    return Chart(
        _drawing(
            "revenue", "Rewards over time", f"About {total} in all, in periods of {period}.",
            shapes, _time_ticks(found), zero=zero if bottom < 0 else None,
        ),
        [_round(top), _round((top + bottom) / 2), _round(bottom)],
        [],
        legend,
        ["from", "sum of rewards", "decisions with a reward"],
        rows[::-1],
    )  # fmt: skip


# ------------------------------------------------------------------------------------------- delay


def waiting(ages: Ages) -> Chart | None:
    """Return how many decisions wait, by age, under the curve of how many rewards have come."""
    n = len(ages.waiting)
    if not n or not (any(ages.waiting) or any(map(math.isfinite, ages.known))):
        return None
    top = _nice(max(ages.waiting) or 1)
    bars = "".join(_column(k, n, 1000, _y(x, 0.0, top)) for k, x in enumerate(ages.waiting))
    end = ages.edges[-1] or 1.0
    points = [
        f"{1000 * age / end:.0f} {_y(x, 0.0, 1.0)}"
        for age, x in zip(ages.edges, ages.known, strict=True)
        if math.isfinite(x)
    ]
    curve = f'<path class="curve" d="M{"L".join(points)}"/>' if points else ""
    step = next((step for step, _ in STEPS if end / step <= 5), end)
    ticks = [(100 * k * step / end, words.exact_span(k * step)) for k in range(int(end / step) + 1)]
    known = [*ages.known[1:], *([math.nan] * n)]
    rows = [
        [
            f"{words.exact_span(low)} to {words.exact_span(high)}",
            words.whole(x),
            words.share(share),
        ]
        for low, high, x, share in zip(ages.edges, ages.edges[1:], ages.waiting, known)
    ]
    total = words.whole(sum(ages.waiting))
    return Chart(
        _drawing(
            "waiting", "Decisions that wait, by age",
            f"{total} decisions wait. Half of the rewards come within {words.span(ages.half)}, "
            f"90 % within {words.span(ages.most)}.",
            f'<path class="c0" d="{bars}"/>{curve}', ticks,
        ),
        [_round(top), _round(top / 2), "0"],
        ["100 %", "50 %", "0 %"] if points else [],
        [("c0", "decisions that wait (left)"), ("curve", "rewards that have come by then (right)")],
        ["age", "decisions that wait", "rewards that have come by then"],
        rows,
    )  # fmt: skip


# ----------------------------------------------------------------------------------------- helpers


def _drawing(
    id: str,
    title: str,
    description: str,
    shapes: str,
    ticks: Sequence[tuple[float, str]],
    zero: int | None = None,
) -> Markup:
    """Return a drawing with lines at the top, in the middle and at the bottom, and words below."""
    lines = "".join(f'<path class="grid" d="M0 {y}H1000"/>' for y in (0, 500, 1000))
    if zero is not None:
        lines += f'<path class="zero" d="M0 {zero}H1000"/>'
    below = "".join(
        f'<text x="{x:.1f}%" y="218" text-anchor="{_anchor(x, said)}">{escape(said)}</text>'
        for x, said in ticks
    )
    return Markup(
        f'<svg class="drawing" role="img" aria-labelledby="{id}-title {id}-words">'
        f'<title id="{id}-title">{escape(title)}</title>'
        f'<desc id="{id}-words">{escape(description)}</desc>'
        f'<svg y="1" width="100%" height="198" viewBox="0 0 1000 1000" preserveAspectRatio="none" '
        f'overflow="visible">{shapes}{lines}</svg>{below}</svg>'
    )


def _anchor(x: float, said: str) -> str:
    if len(said) <= 6:  # may reach into the margin
        return "middle"
    return "start" if x < 4 else "end" if x > 96 else "middle"


def _y(x: float, low: float, high: float) -> int:
    return round(1000 - 1000 * (x - low) / (high - low))


def _column(k: int, n: int, bottom: int, top: int) -> str:
    """Return the path of column `k` of `n`."""
    left, right = (k + 0.12) * 1000 / n, (k + 0.88) * 1000 / n
    return f"M{left:.1f} {bottom}V{top}H{right:.1f}V{bottom}z"


def _band(lower: Sequence[float], upper: Sequence[float]) -> str:
    """Return the path of what lies between two rows of numbers; periods with NaN stay empty."""
    n = len(lower)
    out = []
    k = 0
    while k < n:
        if not math.isfinite(upper[k]):
            k += 1
            continue
        first = k
        while k < n and math.isfinite(upper[k]):
            k += 1
        ups = [f"{_y(upper[j], 0.0, 1.0)}H{1000 * (j + 1) / n:.0f}" for j in range(first, k)]
        back = range(k - 1, first - 1, -1)
        downs = [f"V{_y(lower[j], 0.0, 1.0)}H{1000 * j / n:.0f}" for j in back]
        out.append(f"M{1000 * first / n:.0f} {ups[0]}" + "".join(f"V{x}" for x in ups[1:]))
        out.append("".join(downs) + "z")
    return "".join(out)


def _nice(x: float) -> float:
    """Return a round number that is at least `x`, whose half is round, too."""
    if x <= 0 or not math.isfinite(x):
        return 1.0
    power = 10.0 ** math.floor(math.log10(x))
    return next(
        (m * power for m in (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0) if m * power >= x),
        10 * power,
    )


def _round(x: float) -> str:
    """Return a number that was chosen to be round."""
    return f"{x:,.6g}".replace("-", "−")


STEPS = (  # between times on an axis, and how these are written
    *((step, "%H:%M:%S") for step in (1.0, 5.0, 10.0, 30.0)),
    *((60.0 * step, "%H:%M") for step in (1, 5, 15, 30, 60, 180)),
    *((3_600.0 * step, "%-d %b %H:%M") for step in (6, 12)),
    *((DAY * step, "%-d %b") for step in (1, 2, 4, 7, 14, 28)),
    *((DAY * step, "%b %Y") for step in (91, 364)),
    (math.inf, "%Y"),
)


def _time_ticks(found: Binned) -> list[tuple[float, str]]:
    """Return a handful of even times, in per cent of the width, and how they are written."""
    begin, length = found.starts[0], found.width * len(found.starts)
    step, form = next((s, form) for s, form in STEPS if length / s <= (7 if len(form) < 9 else 4))
    offset = datetime.fromtimestamp(begin).astimezone().utcoffset()
    shift = offset.total_seconds() if offset is not None else 0.0
    ticks = []
    at = math.ceil((begin + shift) / step) * step - shift if math.isfinite(step) else begin
    while at < begin + length:
        ticks.append((100 * (at - begin) / length, _written(at, form)))
        at += step
    return ticks


def _written(at: float, form: str) -> str:
    return f"{datetime.fromtimestamp(at).astimezone():{form}}"


def _period(start: float, width: float) -> str:
    if width >= DAY:
        return _written(start, "%-d %b %Y")
    return _written(start, "%-d %b, %H:%M" if width >= 60 else "%H:%M:%S")
