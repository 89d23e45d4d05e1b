"""What to do now, in plain sentences, the most urgent first.

Each rule is a function of what the page shows that returns advice or none. The order of `RULES` is
that of urgency among rules of one level.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Hashable, Iterator
from typing import NamedTuple

from zib.live.book import ACTIVE
from zib.live.settings import Settings
from zib.live.views import Advice, ArmView, Overview
from zib.logs.joining.instants import span_words
from zib.report.numbers import number, percent

ACT, LOOK, FINE = "act", "look", "fine"
SILENCE = 20.0  # events that should have come since the last one, before that is an alarm
QUIET = 200.0  # the same of decisions
STALE = 600.0  # seconds for which the model may be older than the last event
FEW_LOST = 10  # dead letters, or late events, that are not worth a sentence
LOST, MANY_LOST = 0.01, 0.05  # share of events
LATE = 0.1
SURE, HOPELESS = 0.99, 0.01  # probabilities of being best
MOST_RETIRED = 3  # that are named
SOON = 10.0  # times the time so far; a forecast beyond is not given
CLEAR = 2.6  # standard errors between the best two: a probability of 99.5 %


class Facts(NamedTuple):
    """What rules look at."""

    seen: Overview
    settings: Settings

    @property
    def now(self) -> float:
        """The moment."""
        return self.seen.status.at

    @property
    def active(self) -> list[ArmView]:
        """Arms that are served."""
        return [arm for arm in self.seen.arms if arm.status == ACTIVE]

    def since(self, at: float | None) -> float:
        """Return seconds since a time."""
        return math.inf if at is None else max(self.now - at, 0.0)


def advised(found: Overview, problem: str | None, settings: Settings) -> Overview:
    """Return the overview with advice; `problem` is why the model could not be renewed."""
    found = dataclasses.replace(found, status=dataclasses.replace(found.status, problem=problem))
    facts = Facts(found, settings)
    advice = [each for rule in RULES for each in rule(facts)]
    advice.sort(key=lambda each: (ACT, LOOK, FINE).index(each.level))
    return dataclasses.replace(found, advice=advice or list(keep_running(facts)))


def named(arm: Hashable) -> str:
    """Return the label of an arm as a sentence says it."""
    return arm if isinstance(arm, str) and arm.strip() else repr(arm)


def chance(x: float) -> str:
    """Return a probability in words that never say 0 or 100 %.

    Examples
    --------
    >>> chance(0.0031), chance(0.00002), chance(0.99994), chance(0.5)
    ('0.3 %', 'less than 0.1 %', 'more than 99.9 %', '50 %')
    """
    if x < 0.0005:
        return "less than 0.1 %"
    if x > 0.9995:
        return "more than 99.9 %"
    return f"{100.0 * x:.1f} %".replace(".0 %", " %")


def ago(seconds: float) -> str:
    """Return a length of time without false precision."""
    for size in (86_400.0, 3_600.0, 60.0):
        if seconds >= 1.5 * size:
            return span_words(round(seconds / size) * size)
    return span_words(max(float(f"{seconds:.1g}"), 1.0)).replace("1 seconds", "second")


# -------------------------------------------------------------------------------- what is broken


def model_problem(facts: Facts) -> Iterator[Advice]:
    """Report that the process could not learn."""
    problem, status = facts.seen.status.problem, facts.seen.status
    if problem is not None:
        kind, _, words = problem.partition(": ")
        what = "The database could not be used" if kind == "Transient" else "The model is stuck"
        old = "" if status.age is None else f", {ago(status.age)} old"
        yield Advice(
            ACT,
            f"{what}: {words or kind}. Decisions go on with model version {status.version}{old}.",
            "check the log",
        )


def no_arm(facts: Facts) -> Iterator[Advice]:
    """Report that nothing can be decided."""
    if facts.seen.arms and not facts.active:
        yield Advice(ACT, "No arm is active, so nothing can be decided: resume or add one.", "add")


def model_stale(facts: Facts) -> Iterator[Advice]:
    """Report that nobody learns although events come."""
    status, last = facts.seen.status, facts.seen.last_event
    if status.problem is None and status.age is not None and last is not None:
        behind = status.age - facts.since(last)
        if status.age > STALE and behind > max(STALE, 10.0 * facts.settings.refresh):
            yield Advice(
                ACT,
                f"The model is {ago(status.age)} old although events came since: no process "
                "learns from them. Is a service running, and is it well?",
                "check the log",
            )


def events_stopped(facts: Facts) -> Iterator[Advice]:
    """Report that events do not come although decisions wait for them."""
    missing = facts.seen.missing
    if missing.expected >= SILENCE:
        usual = ""
        if math.isfinite(missing.gap):
            usual = f"; usually one comes every {ago(missing.gap)}"
        yield Advice(
            ACT,
            f"No event for {ago(facts.since(facts.seen.last_event))}{usual}. By the decisions that "
            f"wait, {round(missing.expected):,} should have come: check what sends them.",
            "check events",
        )


def shares_wrong(facts: Facts) -> Iterator[Advice]:
    """Report that arms were not served as often as they were drawn."""
    ratio = facts.seen.ratio
    if not ratio.ok:
        few = "fewer" if ratio.counted < ratio.expected else "more"
        yield Advice(
            ACT,
            f"{named(ratio.arm)} has {few} decisions than it should, {ratio.counted:,} instead of "
            f"{round(ratio.expected):,}, and that is not chance: are decisions for some arms "
            "cancelled more often than for others? Until it is clear why, do not trust the "
            "comparison.",
            "check decisions",
            ratio.arm,
        )


def dead_letters(facts: Facts) -> Iterator[Advice]:
    """Report events that name no decision."""
    dead, status = facts.seen.status.dead, facts.seen.status
    share = dead / max(dead + sum(arm.rewarded for arm in facts.seen.arms), 1)
    if dead >= FEW_LOST and share >= LOST:
        yield Advice(
            ACT if share >= MANY_LOST else LOOK,
            f"{percent(share, 2)} of the events name no decision "
            f"({status.dead:,} so far): check the ids you send.",
            "check events",
        )


# ------------------------------------------------------------------------- what can be improved


def decisions_stopped(facts: Facts) -> Iterator[Advice]:
    """Report that nobody asks any more."""
    history, last = facts.seen.history, facts.seen.last_decision
    total = sum(sum(each) for each in history.decisions.values())
    if last is None or not total:
        return
    gap = max(last - history.starts[0], history.width) / total
    quiet = facts.since(last)
    if quiet > QUIET * gap and quiet > 3_600.0:
        yield Advice(
            LOOK,
            f"No decision for {ago(quiet)}; on average one was made every {ago(gap)}. "
            "Is the traffic still sent here?",
            "check decisions",
        )


def drifted(facts: Facts) -> Iterator[Advice]:
    """Report changes over time."""
    for each in facts.seen.drift[:1]:
        more = len(facts.seen.drift) - 1
        way = "fell" if each.after < each.before else "rose"
        if each.part == "chance":
            what = "The chance of a reward of"
            values = f"from {percent(each.before, 2)} to {percent(each.after, 2)}"
        else:
            what, values = (
                "The average reward of",
                f"from {number(each.before)} to {number(each.after)}",
            )
        others = "" if not more else f", and there are {more} further changes"
        yield Advice(
            LOOK,
            f"{what} {named(each.arm)} {way} {values}, which is not chance{others}. Averages over "
            "all the time mix what was with what is: see whether something changed.",
            "check what changed",
            each.arm,
        )


def late_events(facts: Facts) -> Iterator[Advice]:
    """Report a window that is too short."""
    late = facts.seen.status.late
    share = late / max(late, sum(arm.rewarded for arm in facts.seen.arms), 1)
    if late >= FEW_LOST and share >= LATE:
        yield Advice(
            LOOK,
            f"{percent(share, 2)} of the events became known after the window of "
            f"{span_words(facts.settings.window)} had closed: it is too short for this bandit.",
            "longer window",
        )


def shadow_mode(facts: Facts) -> Iterator[Advice]:
    """Remind that the policy does not decide."""
    arm = facts.seen.status.shadow
    if arm is not None:
        yield Advice(
            LOOK,
            f"Shadow mode is on: {named(arm)} is served whatever the policy wants. Turn it off to "
            "let the policy decide.",
            "end shadow mode",
            arm,
        )


def _changed(facts: Facts) -> set[Hashable]:
    """Return the arms whose averages mix what was with what is: nobody is judged by those."""
    return {each.arm for each in facts.seen.drift}


def _judged(facts: Facts) -> bool:
    """Whether all arms have enough evidence to call one the best."""
    need = facts.settings.evidence
    return (
        len(facts.active) > 1
        and all(arm.label not in _changed(facts) for arm in facts.active)
        and all(
            arm.best is not None and arm.decisions - arm.waiting + arm.rewarded >= need
            for arm in facts.active
        )
    )


def clearly_best(facts: Facts) -> Iterator[Advice]:
    """Name the winner."""
    if _judged(facts):
        arm = max(facts.active, key=lambda each: each.best or 0.0)
        if (arm.best or 0.0) >= SURE:
            yield Advice(
                LOOK,
                f"{named(arm.label)} is best with probability {chance(arm.best or 0.0)}: make it "
                "the only one, or let the others have the little they still get.",
                None,
                arm.label,
            )


def hopeless(facts: Facts) -> Iterator[Advice]:
    """Name arms that can go."""
    need, changed = facts.settings.evidence, _changed(facts)
    # arms may look hopeless beside one that is no longer what its average says
    if any(arm.label in changed and (arm.best or 0.0) >= HOPELESS for arm in facts.active):
        return
    out = sorted(
        (arm.best, k)
        for k, arm in enumerate(facts.active)
        if arm.best is not None
        and arm.label not in changed
        and arm.best < HOPELESS
        and arm.decisions - arm.waiting + arm.rewarded >= need
    )
    if len(facts.active) < 2:
        return
    for best, k in out[:MOST_RETIRED]:
        arm = facts.active[k]
        yield Advice(
            LOOK,
            f"Retire {named(arm.label)}: it is best with probability {chance(best)}.",
            "retire",
            arm.label,
        )


# ------------------------------------------------------------------------------- when all is well


def keep_running(facts: Facts) -> Iterator[Advice]:
    """Say that nothing is to be done, and what is waited for."""
    seen, settings = facts.seen, facts.settings
    if seen.last_decision is None:
        yield Advice(FINE, "No decision has been made yet: ask for the first one.")
    elif seen.last_event is None:
        yield Advice(FINE, "Keep running: decisions are made, and no event has come yet.")
    elif seen.history.starts and facts.since(seen.history.starts[0]) < settings.window:
        left = settings.window - facts.since(seen.history.starts[0])
        yield Advice(
            FINE,
            f"Keep running: the first window closes in {ago(left)}. Until then nobody knows how "
            "many rewards are still to come, so chances may be larger than they look.",
        )
    else:
        yield Advice(FINE, f"Keep running{_forecast(facts)}.")


def _forecast(facts: Facts) -> str:
    """Return when it is likely to be decided, where that can be said."""
    ranked = sorted(facts.active, key=lambda arm: -(arm.best or 0.0))
    if len(ranked) < 2 or ranked[0].best is None:
        return ""
    first, second = ranked[:2]
    widths = [(arm.reward.high - arm.reward.low) / 6.0 for arm in (first, second)]
    apart, error = first.reward.value - second.reward.value, math.hypot(*widths)
    if not (math.isfinite(error) and error > 0.0 and apart > 0.0):
        return ": no arm is clearly better yet"
    factor = (CLEAR * error / apart) ** 2 - 1.0
    so_far = facts.since(facts.seen.history.starts[0]) if facts.seen.history.starts else 0.0
    if not 0.05 < factor < SOON:
        return ": no arm is clearly better yet"
    return (
        f": {named(first.label)} leads, and if arms stay as they look now it takes about "
        f"{ago(factor * so_far)} until that is clear"
    )


RULES = (
    model_problem, no_arm, model_stale, events_stopped, shares_wrong, dead_letters,
    decisions_stopped, drifted, clearly_best, hopeless, late_events, shadow_mode,
)  # fmt: skip
