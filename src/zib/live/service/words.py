"""Numbers, times and arms as the page says them."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from zib.live.book import ACTIVE, PAUSED, RETIRED
from zib.logs.joining.instants import span_words
from zib.report.numbers import MISSING, count, number, percent, shortened

if TYPE_CHECKING:
    from zib.live.answers import Change
    from zib.live.settings import Settings
    from zib.live.views import ArmView, Drift, Gain, Overview, Ratio
    from zib.stats.intervals import Estimate


# ---------------------------------------------------------------------------------------- numbers


def whole(n: float) -> str:
    """Return a count with separators.

    Examples
    --------
    >>> whole(12345), whole(float("nan"))
    ('12,345', '–')
    """
    return f"{round(n):,}".replace("-", "−") if math.isfinite(n) else MISSING


def amount(x: float, digits: int = 3) -> str:
    """Return an amount with `digits` significant digits and separators.

    Examples
    --------
    >>> amount(1234.5), amount(0.012345), amount(-5678901.0), amount(9.9999), amount(float("nan"))
    ('1,234', '0.0123', '−5,678,901', '10.0', '–')
    """
    small = abs(x) < 10.0**digits
    said = number(float(f"{x:.{digits}g}") if small else x, digits)
    sign, body = ("−", said[1:]) if said.startswith("−") else ("", said)
    head, point, tail = body.partition(".")
    return f"{sign}{int(head):,}{point}{tail}" if head.isdigit() else said


def rough(x: float) -> str:
    """Return an amount with two significant digits, for "about".

    Examples
    --------
    >>> rough(4312.7), rough(-87_654.0), rough(3.14159), rough(0.0)
    ('4,300', '−88,000', '3.1', '0')
    """
    if not math.isfinite(x):
        return number(x)
    if x == 0.0:
        return "0"
    rounded = round(x, 1 - math.floor(math.log10(abs(x))))
    return whole(rounded) if abs(rounded) >= 10 else amount(rounded, 2)


def per_cent(x: float, among: float = 0.0) -> str:
    """Return a change in per cent with its sign, with the decimals of the larger number `among`.

    Examples
    --------
    >>> per_cent(12.3), per_cent(-3.21), per_cent(-3.21, 21.0), per_cent(0.0412), per_cent(1234.0)
    ('+12 %', '−3.2 %', '−3 %', '+0.04 %', '+1,234 %')
    """
    if not math.isfinite(x):
        return number(x)
    size = max(abs(x), abs(among))
    decimals = 0 if size >= 9.95 else 1 if size >= 0.95 else 2
    return f"{round(x, decimals) + 0.0:+,.{decimals}f} %".replace("-", "−")


def share(x: float | None) -> str:
    """Return a share or a probability; one that is tiny or nearly 1 is not rounded to 0 or 1.

    Examples
    --------
    >>> share(0.1234), share(0.00042), share(0.0), share(0.9999), share(1.0), share(None)
    ('12.3 %', '< 0.1 %', '0 %', '> 99.9 %', '100 %', '–')
    """
    if x is None or not math.isfinite(x):
        return MISSING
    if 0.0 < x < 0.0005:
        return "< 0.1 %"
    if 0.9995 < x < 1.0:
        return "> 99.9 %"
    return percent(x, 2 if x < 0.0995 else 3)


def chance(x: float) -> str:
    """Return a chance of a reward, which may be tiny.

    Examples
    --------
    >>> chance(0.02345), chance(0.00012), chance(float("nan"))
    ('2.34 %', '0.0120 %', '–')
    """
    return f"{number(100 * x)} %" if math.isfinite(x) else MISSING


def p_value(p: float) -> str:
    """Return a p-value.

    Examples
    --------
    >>> p_value(0.0123), p_value(1.9e-19), p_value(float("nan"))
    ('p = 0.012', 'p < 0.001', 'p = –')
    """
    return "p < 0.001" if p < 0.001 else f"p = {number(p, 2)}"


TOO_FEW = "too few to tell"


def between(estimate: Estimate, said: Callable[[float], str] = amount) -> str:
    """Return where an estimate lies, with its unit once; nothing where there is no estimate."""
    if not (math.isfinite(estimate.low) and math.isfinite(estimate.high)):
        return TOO_FEW if math.isfinite(estimate.value) else ""
    return f"{said(estimate.low).removesuffix(' %')} to {said(estimate.high)}"


# ------------------------------------------------------------------------------------------ times


def clock(at: float) -> str:
    """Return a time of day in the time zone of the service, with seconds."""
    return f"{datetime.fromtimestamp(at).astimezone():%H:%M:%S}"


def moment(at: float | None, now: float) -> str:
    """Return date and time in the time zone of the service, as short as can be seen from `now`."""
    if at is None:
        return "never"
    then, today = (datetime.fromtimestamp(t).astimezone() for t in (at, now))
    if then.date() == today.date():
        return f"{then:%H:%M:%S}"
    return f"{then:%-d %b, %H:%M}" if then.year == today.year else f"{then:%-d %b %Y, %H:%M}"


def zone(at: float) -> str:
    """Return the name of the time zone of the service."""
    return datetime.fromtimestamp(at).astimezone().tzname() or "UTC"


def stamp(at: float) -> str:
    """Return a time for machines."""
    return datetime.fromtimestamp(at).astimezone().isoformat(timespec="seconds")


def span(seconds: float | None) -> str:
    """Return a length of time with two digits.

    Examples
    --------
    >>> span(604_800.0), span(41_000.0), span(12.3), span(0.0), span(float("nan"))
    ('7 days', '11 hours', '12 seconds', 'no time', '–')
    """
    if seconds is None or not math.isfinite(seconds):
        return MISSING
    if seconds <= 0:
        return "no time"
    sizes = (86_400.0, 3_600.0, 60.0, 1.0)
    size = next((size for size in sizes if seconds >= 1.5 * size), 1.0)
    return span_words(float(f"{seconds / size:.2g}") * size)


def age(seconds: float) -> str:
    """Return how old something is, so coarsely that it seldom changes while one looks.

    Examples
    --------
    >>> age(3.2), age(47.0), age(200.0)
    ('a few seconds', 'less than a minute', '3.3 minutes')
    """
    return (
        "a few seconds" if seconds < 10 else "less than a minute" if seconds < 60 else span(seconds)
    )


def exact_span(seconds: float) -> str:
    """Return a length of time with its digits, for axes.

    Examples
    --------
    >>> exact_span(0.0), exact_span(5400.0), exact_span(0.25), exact_span(1209600.0)
    ('0', '1.5 h', '0.25 s', '14 d')
    """
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size or (seconds >= size and unit != "d"):
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s" if seconds else "0"


# ------------------------------------------------------------------------------------------- arms

LONGEST_LABEL = 200  # letters of an arm that is added by hand
SIGNS = {"fine": "✓", "look": "!", "act": "✕"}


def label(arm: Hashable, most: int = 0) -> str:
    """Return the label of an arm as text, cut to `most` letters if that is given."""
    said = arm if isinstance(arm, str) else repr(arm)
    said = said if said.strip() else f"“{said}”"
    return shortened(said, most) if most else said


def in_order(arms: Sequence[ArmView]) -> list[ArmView]:
    """Return arms as the table lists them: the likeliest best first, then the most valuable."""

    def rank(arm: ArmView) -> tuple[float, float, int]:
        best = -1.0 if arm.best is None else arm.best
        value = arm.reward.value if math.isfinite(arm.reward.value) else -math.inf
        return -best, -value, -arm.decisions

    return sorted(arms, key=rank)


# ------------------------------------------------------------------------------------------- gain


class Headline(NamedTuple):
    """The gain in words: a number or "Not known yet", what it means, and "up", "down" or "open"."""

    large: str
    sentences: list[str]
    tone: str


HOW = {
    "holdout": "Measured against the holdout, whose decisions are split evenly between the arms.",
    "arms": "Worked out from what each arm is worth, which does not seem to change over time.",
    "weighting": "Worked out from the probabilities with which the arms were drawn.",
}


def headline(gain: Gain) -> Headline:
    """Return what the policy gains over showing every arm equally often, in words."""
    percent, difference, total = gain.percent, gain.difference, gain.total
    if gain.how == "none" or not math.isfinite(difference.value):
        return Headline("Not known yet", ["There are too few rewards so far to say."], "open")
    over = "over showing every arm equally often"
    if all(map(math.isfinite, percent)):
        widest = max(map(abs, percent))
        large, low, high = (per_cent(x, widest) for x in percent)
    else:
        large = _more(difference.value, "per decision")
        low, high = _signed(difference.low), _signed(difference.high)
    if not (math.isfinite(difference.low) and math.isfinite(difference.high)):
        return Headline(large, [f"That is {over}; how sure it is cannot be said yet."], "open")
    first, tone = f"Between {low} and {high} {over}", "open"
    if difference.low <= 0.0 <= difference.high:
        sentences = [f"{first}: this may still be chance."]
    else:
        tone = "up" if difference.low > 0.0 else "down"
        known = math.isfinite(total.value)
        sentences = [f"{first}; about {_more(total.value, 'so far')}." if known else f"{first}."]
    return Headline(large, [*sentences, HOW.get(gain.how, "")], tone)


def _signed(x: float) -> str:
    return f"+{amount(x)}" if x > 0 else amount(x)


def _more(x: float, rest: str) -> str:
    return f"{rough(abs(x))} {'more' if x >= 0 else 'less'} {rest}"


# ------------------------------------------------------------------------------------------ health


class Line(NamedTuple):
    """One line of the list of checks: its level, its name, what was found and what it means."""

    level: str
    name: str
    found: str
    meaning: str


def checks(seen: Overview) -> list[Line]:
    """Return the checks of the machinery, in words."""
    return [_model(seen), _ratio(seen.ratio), *_drift(seen.drift), *_astray(seen)]


def _model(seen: Overview) -> Line:
    status = seen.status
    if status.problem is not None:
        found = f"Version {status.version} is served; a new one could not be made: {status.problem}"
        return Line("act", "Model", found, "Decisions go on with the last version.")
    if status.age is None:
        return Line("look", "Model", "There is no version yet.", "It comes with the first reward.")
    return Line(
        "fine",
        "Model",
        f"Version {whole(status.version)}, {age(status.age)} old.",
        "A new one is made when something was learned.",
    )


def _ratio(ratio: Ratio) -> Line:
    name = "Shares as intended"
    meaning = "Whether arms are shown as often as was drawn (sample-ratio test)."
    if ratio.ok:
        return Line("fine", name, "Yes, up to chance.", meaning)
    return Line(
        "act",
        name,
        f"No: {label(ratio.arm, 60)} has {count(ratio.counted, 'decision')} where "
        f"{whole(ratio.expected)} are expected ({p_value(ratio.p_value)}).",
        "Decisions get lost or are served otherwise than drawn: the numbers above may be off.",
    )


def _drift(drift: Sequence[Drift]) -> list[Line]:
    meaning = "Whether chances and amounts stay as they were."
    if not drift:
        return [Line("fine", "Stability", "No change over time was found.", meaning)]
    lines = []
    for each in drift:
        said = share if each.part == "chance" else amount
        found = (
            f"The {each.part} of {label(each.arm, 60)} went from {said(each.before)} to "
            f"{said(each.after)} ({p_value(each.p_value)})."
        )
        lines.append(
            Line("look", "Stability", found, "Averages over the whole time hide such a change.")
        )
    return lines


def _astray(seen: Overview) -> list[Line]:
    found = seen.status
    return [
        Line(
            "fine",
            "Late events",
            whole(found.late),
            "Came after the window of their decision had closed; "
            "within the grace period they still count.",
        ),
        Line(
            "fine",
            "Duplicates",
            whole(found.duplicates),
            "Were sent more than once and counted once, as it should be.",
        ),
        Line(
            "look" if found.conflicts else "fine",
            "Conflicts",
            whole(found.conflicts),
            "The same id with other content: refused, so the sender has a mistake.",
        ),
        Line(
            "fine",
            "Parked events",
            whole(found.parked - found.dead),
            "Name a decision that is not known yet; they count once it comes.",
        ),
        Line(
            "look" if found.dead else "fine",
            "Dead letters",
            whole(found.dead),
            "Have waited for their decision too long: a wrong id, or a decision never made here.",
        ),
    ]


PAST = {
    "add arm": "added",
    "pause arm": "paused",
    "resume arm": "resumed",
    "retire arm": "retired",
}


def change(made: Change) -> str:
    """Return a change by hand in words."""
    if made.action != "shadow":
        return f"{PAST.get(made.action, made.action)} {made.detail}"
    if made.detail == "off":
        return "switched shadow mode off"
    return f"switched shadow mode on: everybody gets {made.detail}"


# ------------------------------------------------------------------------------------- to be done


class Question(NamedTuple):
    """What a confirmation asks, what will happen, the word on the button, and whether for good."""

    title: str
    sentences: list[str]
    button: str
    final: bool = False


def question(action: str, arm: Hashable, seen: Overview, settings: Settings) -> Question:
    """Return what is asked before an action: "pause", "resume", "retire", "add" or "shadow"."""
    name = label(arm)
    waiting = next((each.waiting for each in seen.arms if each.label == arm), 0)
    active = [each.label for each in seen.arms if each.status == ACTIVE]
    still = (
        f"Rewards of the {count(waiting, 'decision')} still waiting will count."
        if waiting
        else "What is known of it stays."
    )
    alone = (
        ["No other arm is active: requests for a decision will then be refused."]
        if active == [arm]
        else ["Its traffic goes to the other arms within seconds."]
    )
    if action == "pause":
        first = "It is served no more until somebody resumes it."
        return Question(f"Pause {name}?", [first, *alone, still], f"Pause {name}")
    if action == "resume":
        first = "It is served again within seconds, as often as it deserves by what is known."
        return Question(f"Resume {name}?", [first], f"Resume {name}")
    if action == "retire":
        first = "It is never served again. This cannot be undone."
        return Question(f"Retire {name} for good?", [first, *alone, still], f"Retire {name}", True)
    if action == "add":
        return Question(
            f"Add the arm {name}?",
            [
                "It is served within seconds.",
                f"It gets at most {share(settings.largest_share)} of the traffic (or an even "
                f"share, if that is more) until {whole(settings.evidence)} of its decisions are "
                "settled.",
                "Whoever asks for decisions must know what to do with this label.",
                "An arm cannot be removed later, only paused or retired.",
            ],
            f"Add {name}",
        )
    if arm is None:
        first = "The policy decides again, from the next decision on."
        return Question("Switch shadow mode off?", [first], "Switch shadow mode off")
    return Question(
        f"Switch shadow mode on and serve {name} to everybody?",
        [
            f"Every decision serves {name}, whatever the policy wants; what it wants is logged.",
            "Nothing is learned of other arms meanwhile.",
        ],
        "Switch shadow mode on",
    )


def done(action: str, arm: Hashable, statuses: dict[Hashable, str], shadow: Hashable) -> str:
    """Return that an action was done, if what there is now says so, or nothing."""
    status = statuses.get(arm)
    if action == "shadow":
        if shadow != arm:
            return ""
        return "Shadow mode is off." if arm is None else f"Shadow mode is on: {label(arm)}."
    wanted = {"pause": PAUSED, "resume": ACTIVE, "retire": RETIRED, "add": ACTIVE}.get(action)
    if status is None or status != wanted:
        return ""
    return f"{label(arm)} was added." if action == "add" else f"{label(arm)} is {status}."
