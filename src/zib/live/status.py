"""What a ledger knows at a moment: its arms, the delay of rewards, and what went astray."""

from __future__ import annotations

import math
import time
from collections.abc import Hashable, Sequence
from dataclasses import asdict, dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from zib.live.book import ACTIVE
from zib.live.database import Connection
from zib.live.model import Evidence, Versioned, in_flight
from zib.live.outcome import SECOND
from zib.live.pages import Bandit, bandit_of
from zib.live.statistics import Statistics, read_statistics
from zib.logs.joining.instants import span_words
from zib.stats.arm_means import arm_means, before_delays_are_known
from zib.stats.pending import CLOSED, PendingEstimate

# Rewards of decisions that are over, before what pending ones count as is taken for known
DELAYS_KNOWN = 30


class ArmStatus(NamedTuple):
    """What is known of an arm; each interval holds at whatever time one looks.

    Attributes
    ----------
    status
        "active", "paused" or "retired".
    share
        Of the decisions that the latest model version gives it; None for a contextual bandit,
        which gives every context shares of its own.
    decisions
        How many served it and were not cancelled: `rewarded`, `zeros` and `waiting` together.
    rewarded
        Decisions with a reward.
    zeros
        Decisions without one that are older than window and grace, or were told to be worth
        nothing.
    waiting
        Decisions whose reward may still come.
    weight
        How many zeros the waiting ones count as, by their age.
    prob, magnitude, reward
        Chance of a reward, its average size, and what a decision is worth on average; NaN where
        nothing is known.
    prob_interval, magnitude_interval, reward_interval
        Where they lie. Until some decisions are older than window and grace nobody knows how many
        rewards are still to come: those of chances and values are wide then.
    """

    status: str
    share: float | None
    decisions: int
    rewarded: int
    zeros: int
    waiting: int
    weight: float
    prob: float
    prob_interval: tuple[float, float]
    magnitude: float
    magnitude_interval: tuple[float, float]
    reward: float
    reward_interval: tuple[float, float]


@dataclass(frozen=True)
class Status:
    """What a ledger knows at a moment.

    Attributes
    ----------
    name
        Of the bandit.
    at
        The moment, in seconds since 1970.
    version, age
        Of the latest model, and seconds since it was made; 0 and None before there is one.
    arms
        By label.
    delays
        Rewards with a known delay.
    half, most
        Seconds within which half and 90 % of the rewards have come, of those that come at all.
    late
        Events that became known after the window of their decision had closed.
    duplicates, conflicts
        Events that came again, and those that did with other content and were refused.
    parked, dead
        Events whose decision is not known, and those of them that wait longer than they should.
    shadow
        Label of the arm that is served whatever the policy wants, or None.
    problem
        Why this process could not make the last model version, or None; it serves the one it has.
    """

    name: str
    at: float
    version: int
    age: float | None
    arms: dict[Hashable, ArmStatus]
    delays: int
    half: float
    most: float
    late: int
    duplicates: int
    conflicts: int
    parked: int
    dead: int
    shadow: Hashable = None
    problem: str | None = None

    def __str__(self) -> str:
        return "\n".join([*_table(self), "", *_sentences(self)])

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data; the labels of the arms are entries of a list there."""
        found = asdict(self)
        found["arms"] = [{"arm": label, **arm._asdict()} for label, arm in self.arms.items()]
        return found


class Looked(NamedTuple):
    """What is read from a database to say what is known at a moment."""

    bandit: Bandit
    found: Statistics
    pending: PendingEstimate
    evidence: Evidence
    rewarded: NDArray[np.float64]  # decisions with a reward that are older than window and grace

    @property
    def knows_delays(self) -> bool:
        """Whether enough rewards have come in full to say what pending decisions count as."""
        return bool(self.rewarded.sum() >= DELAYS_KNOWN)


def look(connection: Connection, name: str, now: int) -> Looked:
    """Read the sums of a bandit, and work out what decisions without a reward count."""
    bandit = bandit_of(connection, name)
    labels = [arm.label for arm in bandit.arms.values()]
    found = read_statistics(connection, bandit.id, len(labels))
    pending = in_flight(bandit.configuration, labels, found, now)
    rules, seen = bandit.configuration.settings.rules, found.converted
    over = (seen.bucket < rules.bucket(now - rules.horizon)) | (seen.bucket == CLOSED)
    rewarded = np.bincount(seen.arm[over], seen.n[over], minlength=len(labels)).astype(np.float64)
    return Looked(bandit, found, pending, Evidence.of(found.arms, pending), rewarded)


def status(
    connection: Connection,
    name: str = "default",
    *,
    level: float = 0.95,
    now: int | None = None,
    looked: Looked | None = None,
) -> Status:
    """Return what is known.

    Parameters
    ----------
    connection
        In a transaction that sees one moment; see `zib.live.pages.looking`.
    name
        Of the bandit.
    level
        Of the intervals.
    now
        The time in microseconds since 1970; the clock of this machine by default.
    looked
        What `look` has read already, if it has.
    """
    now = round(time.time() * SECOND) if now is None else now
    looked = looked or look(connection, name, now)
    bandit, found, pending, evidence, _ = looked
    labels = [arm.label for arm in bandit.arms.values()]
    settings = bandit.configuration.settings
    known = SimpleNamespace(
        pulls=evidence.pulls,
        nonzero=evidence.nonzero,
        total=evidence.total * evidence.factors,
        spread=evidence.spread * evidence.factors**2,
    )
    means = arm_means(known, level, settings.inflated, anytime=True)
    if not looked.knows_delays:
        means = before_delays_are_known(
            means, known, level, settings.inflated,
            decisions=evidence.nonzero + pending.closed + pending.waiting,
            closed=pending.closed + looked.rewarded,
            rewarded=looked.rewarded,
        )  # fmt: skip
    version, made_at, shares = _latest(connection, bandit)
    arms = {
        label: ArmStatus(
            arm.status,
            shares.get(number),
            int(found.arms.nonzero[k] + pending.closed[k] + pending.waiting[k]),
            int(found.arms.nonzero[k]),
            int(pending.closed[k]),
            int(pending.waiting[k]),
            float(pending.weighted[k]),
            *means[k][2:],
        )
        for k, (label, (number, arm)) in enumerate(zip(labels, bandit.arms.items(), strict=True))
    }
    dead_before = now - round(settings.park * SECOND)
    ((parked, dead),) = connection.rows(
        "SELECT COUNT(*), COALESCE(SUM(CASE WHEN received < $2 THEN 1 ELSE 0 END), 0) FROM event "
        "WHERE bandit = $1 AND parked = 1",
        bandit.id,
        dead_before,
    )
    ((shadow,),) = connection.rows("SELECT shadow FROM bandit WHERE id = $1", bandit.id)
    delay = pending.delays[0]
    half, most = delay.quantile([0.5, 0.9]).tolist()
    return Status(
        name=name,
        at=now / SECOND,
        version=version,
        age=None if made_at is None else (now - made_at) / SECOND,
        arms=arms,
        delays=int(delay.events),
        half=half,
        most=most,
        late=found.counters.get("late", 0),
        duplicates=found.counters.get("duplicates", 0),
        conflicts=found.counters.get("conflicts", 0),
        parked=int(parked),
        dead=int(dead),
        shadow=None if shadow is None else bandit.arms[int(shadow)].label,
    )


def _latest(connection: Connection, bandit: Bandit) -> tuple[int, int | None, dict[int, float]]:
    """Return the latest model version, when it was made, and the shares it gives the arms."""
    found = connection.rows(
        "SELECT version, made_at, content FROM model WHERE bandit = $1 "
        "ORDER BY version DESC LIMIT 1",
        bandit.id,
    )
    if not found:
        return 0, None, {}
    version, made_at, text = found[0]
    content = Versioned.read(text) if text else {}
    active = [k for k, each in enumerate(content.get("statuses", ())) if each == ACTIVE]
    shares = dict(zip(active, content.get("shares", ())))
    if shares:
        shares |= {number: 0.0 for number in bandit.arms if number not in shares}
    return int(version), int(made_at), shares


# ----------------------------------------------------------------------------------------- in words

HEAD = (
    ("arm", ""), ("share", ""), ("decisions", ""), ("rewards", ""), ("waiting,", "as zeros"),
    ("p,", "interval"), ("mu,", "interval"), ("r,", "interval"),
)  # fmt: skip


def _table(found: Status) -> list[str]:
    """Return the table of the arms; every arm has two lines."""
    cells = [HEAD]
    for label, arm in found.arms.items():
        cells.append(
            (
                (str(label), "" if arm.status == ACTIVE else f"({arm.status})"),
                ("–" if arm.share is None else f"{100 * arm.share:.3g} %", ""),
                (f"{arm.decisions:,}", ""),
                (f"{arm.rewarded:,}", ""),
                (f"{arm.waiting:,}", f"{arm.weight:,.1f}"),
                _estimate(100 * arm.prob, [100 * x for x in arm.prob_interval], " %"),
                _estimate(arm.magnitude, arm.magnitude_interval),
                _estimate(arm.reward, arm.reward_interval),
            )
        )
    wide = [max(len(text) for cell in column for text in cell) for column in zip(*cells)]
    lines = []
    for row in cells:
        for texts in zip(*row, strict=True):
            first, *rest = zip(texts, wide, strict=True)
            line = [first[0].ljust(first[1]), *(text.rjust(width) for text, width in rest)]
            if any(texts):
                lines.append("  ".join(line).rstrip())
    return lines


def _estimate(value: float, interval: Sequence[float], unit: str = "") -> tuple[str, str]:
    if not math.isfinite(value):
        return "–", ""
    low, high = (f"{x:.3g}" if math.isfinite(x) else "" for x in interval)
    return f"{value:.3g}{unit}", f"{low}–{high}" if low and high else ""


def _sentences(found: Status) -> list[str]:
    out = ["There is no model version yet."]
    if found.age is not None:
        out = [f"Model version {found.version}, {span_words(max(found.age, 0.0))} old."]
    if found.shadow is not None:
        out.append(f"Shadow mode: {found.shadow!r} is served, whatever the policy wants.")
    delay = "No delay is known yet."
    if found.delays:
        delay = (
            f"Of the rewards that come, half come within {span_words(found.half)} and 90 % within "
            f"{span_words(found.most)} (from {found.delays:,}, corrected for those still to come)."
        )
    return [
        *out,
        delay,
        f"Events so far: {found.late:,} late, {found.duplicates:,} duplicates, "
        f"{found.conflicts:,} conflicts. Parked now: {found.parked:,}, dead letters: "
        f"{found.dead:,}.",
    ]
