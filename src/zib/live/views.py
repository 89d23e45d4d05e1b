"""What the page of a bandit shows, as data."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

from zib.live.answers import Change
from zib.live.status import Status
from zib.stats.intervals import Estimate

UNKNOWN = Estimate(math.nan, math.nan, math.nan)


@dataclass(frozen=True)
class Gain:
    """What the policy gains over an even split of the decisions, per decision.

    Attributes
    ----------
    how
        "holdout": decisions of the policy against those of the holdout; "arms": from what each arm
        is worth, if that does not change; "weighting": from the probabilities with which the arms
        were drawn, where it does change or depends on the context; "none": nothing can be said yet.
    policy, even, difference
        What a decision is worth under each, and their difference.
    percent
        The difference as a percentage of `even`.
    total
        The difference times `decisions`.
    decisions
        How many the policy made.
    """

    how: str = "none"
    policy: Estimate = UNKNOWN
    even: Estimate = UNKNOWN
    difference: Estimate = UNKNOWN
    percent: Estimate = UNKNOWN
    total: Estimate = UNKNOWN
    decisions: int = 0


@dataclass(frozen=True)
class ArmView:
    """What is shown of an arm; each interval holds at all times with the level asked for.

    Attributes
    ----------
    label, status, share, decisions, rewarded, waiting
        As in `zib.live.status.ArmStatus`.
    prob, magnitude, reward
        Chance of a reward, its average size, and what a decision is worth.
    best
        Probability that no other active arm is worth more; None where that is not asked: for arms
        that are not active, and for contextual bandits.
    """

    label: Hashable
    status: str
    share: float | None
    decisions: int
    rewarded: int
    waiting: int
    prob: Estimate
    magnitude: Estimate
    reward: Estimate
    best: float | None


@dataclass(frozen=True)
class History:
    """What was decided, and what it brought, by the time of the decision.

    Attributes
    ----------
    starts, width
        Where periods begin, in seconds since 1970, and how long each is.
    decisions
        Of each arm, by label.
    revenue, rewarded
        Sum and number of the rewards of the decisions of a period; those of the last ones are not
        all there yet.
    """

    starts: list[float] = field(default_factory=list)
    width: float = 0.0
    decisions: dict[Hashable, list[int]] = field(default_factory=dict)
    revenue: list[float] = field(default_factory=list)
    rewarded: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Ages:
    """Decisions whose reward may still come, by their age.

    Attributes
    ----------
    edges
        Ages in seconds; one more than there are bars.
    waiting
        How many decisions have an age between two edges.
    known
        Share of the rewards that have come by the age at each edge, of those that come at all.
    half, most
        Ages by which half and 90 % of the rewards have come.
    """

    edges: list[float] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)
    known: list[float] = field(default_factory=list)
    half: float = math.nan
    most: float = math.nan


@dataclass(frozen=True)
class Ratio:
    """Whether the arms were served as often as their probabilities say; the worst arm is named.

    Attributes
    ----------
    p_value
        Holds at whatever time one looks, and for all arms together.
    arm, counted, expected
        The arm that is furthest off, how many decisions it has, and how many it should have.
    ok
        False where the difference is not chance.
    """

    p_value: float = 1.0
    arm: Hashable = None
    counted: int = 0
    expected: float = 0.0
    ok: bool = True


@dataclass(frozen=True)
class Drift:
    """A change over time that is not chance.

    Attributes
    ----------
    part
        "chance" of a reward or its "amount".
    arm
        Label.
    p_value
        Holds at whatever time one looks, and for all arms together.
    before, after
        The values before the change and since.
    """

    part: str
    arm: Hashable
    p_value: float
    before: float
    after: float


@dataclass(frozen=True)
class Missing:
    """How many events should have come since the last one, if all goes on as before.

    Attributes
    ----------
    expected
        From the decisions that wait, their ages, and the delay of rewards; 0 before any came.
    gap
        Seconds between two events, usually; NaN where that is not known.
    """

    expected: float = 0.0
    gap: float = math.nan


@dataclass(frozen=True)
class Advice:
    """What to do now.

    Attributes
    ----------
    level
        "act": something is wrong; "look": something can be improved; "fine".
    sentence
        In plain words.
    action
        "retire", "pause", "check events", …, or None.
    arm
        Label of the arm that it is about, or None.
    """

    level: str
    sentence: str
    action: str | None = None
    arm: Hashable = None


@dataclass(frozen=True)
class Overview:
    """Everything that the page of a bandit shows.

    Attributes
    ----------
    status
        What `Ledger.statistics` returns.
    gain, arms, history, ages, ratio, drift
        See the classes.
    advice
        What to do now, the most urgent first; never empty.
    audit
        What was changed by hand, the latest first.
    last_decision, last_event
        When they were made or became known, in seconds since 1970; None if there is none.
    context
        Whether the bandit decides by context.
    missing
        What should have happened since the last event.
    """

    status: Status
    gain: Gain
    arms: list[ArmView]
    history: History
    ages: Ages
    ratio: Ratio
    drift: list[Drift]
    advice: list[Advice]
    audit: list[Change]
    last_decision: float | None
    last_event: float | None
    context: bool
    missing: Missing = field(default_factory=Missing)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data; what goes by arm is a list there."""
        found = {
            field.name: _plain(getattr(self, field.name)) for field in dataclasses.fields(self)
        }
        found["status"] = self.status.to_dict()
        found["history"]["decisions"] = [
            {"arm": label, "decisions": list(n)} for label, n in self.history.decisions.items()
        ]
        return found


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if hasattr(value, "_asdict"):
        return {name: _plain(each) for name, each in value._asdict().items()}
    return [_plain(each) for each in value] if isinstance(value, list) else value
