"""Everything that the page of a bandit shows, from one moment of its database."""

from __future__ import annotations

import numpy as np

from zib.live.arms import changes
from zib.live.book import ACTIVE
from zib.live.database import Connection
from zib.live.outcome import SECOND
from zib.live.past import Past
from zib.live.status import Looked, Status, look, status
from zib.live.views import (
    Advice,
    Ages,
    ArmView,
    Drift,
    Gain,
    History,
    Missing,
    Overview,
    Ratio,
)
from zib.stats.best import chance_of_best
from zib.stats.intervals import Estimate

__all__ = [
    "Advice", "Ages", "ArmView", "Drift", "Estimate", "Gain", "History", "Missing", "Overview",
    "Ratio", "overview",
]  # fmt: skip

AGE_BARS = 24  # that pending decisions are shown in
MOST_CHANGES = 100  # made by hand, that are listed


def overview(connection: Connection, name: str, *, level: float, now: int) -> Overview:
    """Return what the page shows, but for the advice on what only a running ledger knows.

    Parameters
    ----------
    connection
        In a transaction that sees one moment; see `zib.live.pages.looking`.
    name
        Of the bandit.
    level
        Of the intervals.
    now
        The time in microseconds since 1970.
    """
    looked = look(connection, name, now)
    bandit = looked.bandit
    known = status(connection, name, level=level, now=now, looked=looked)
    latest = {
        str(what): int(at) / SECOND
        for what, at in connection.rows(
            "SELECT name, MAX(at) FROM latest WHERE bandit = $1 GROUP BY name", bandit.id
        )
    }
    past = Past(connection, looked, now)
    drift = past.drift()
    context = bandit.configuration.is_contextual
    return Overview(
        status=known,
        gain=past.gain(level, steady=not drift),
        arms=_arms(known, looked),
        history=past.history(),
        ages=_ages(looked, now),
        ratio=past.ratio(),
        drift=drift,
        advice=[],
        audit=changes(connection, bandit.id, MOST_CHANGES),
        last_decision=latest.get("decision"),
        last_event=latest.get("event"),
        context=context,
        missing=past.missing(latest.get("event")),
    )


def _arms(known: Status, looked: Looked) -> list[ArmView]:
    evidence, configuration = looked.evidence, looked.bandit.configuration
    best: dict[int, float] = {}
    active = [k for k, arm in enumerate(known.arms.values()) if arm.status == ACTIVE]
    if not configuration.is_contextual and active:
        chances = chance_of_best(
            *(
                np.asarray(x)[active]
                for x in (
                    evidence.pulls,
                    evidence.nonzero,
                    evidence.total * evidence.factors,
                    evidence.spread * evidence.factors**2,
                )
            ),
            negative=bool((evidence.negative > 0).any()),
        )
        best = dict(zip(active, chances.tolist(), strict=True))
    return [
        ArmView(
            label,
            arm.status,
            arm.share,
            arm.decisions,
            arm.rewarded,
            arm.waiting,
            Estimate(arm.prob, *arm.prob_interval),
            Estimate(arm.magnitude, *arm.magnitude_interval),
            Estimate(arm.reward, *arm.reward_interval),
            best.get(k),
        )
        for k, (label, arm) in enumerate(known.arms.items())
    ]


def _ages(looked: Looked, now: int) -> Ages:
    rules, waiting = looked.bandit.configuration.settings.rules, looked.found.waiting
    edges = np.linspace(0.0, rules.horizon / SECOND, AGE_BARS + 1)
    age = np.maximum(now - (waiting.bucket + 0.5) * rules.width, 0.0) / SECOND
    is_open = (waiting.bucket >= 0) & (age < edges[-1])
    counted, _ = np.histogram(age[is_open], edges, weights=waiting.n[is_open])
    delay = looked.pending.delays[0]
    half, most = delay.quantile([0.5, 0.9]).tolist()
    return Ages(edges.tolist(), counted.astype(int).tolist(), delay(edges).tolist(), half, most)
