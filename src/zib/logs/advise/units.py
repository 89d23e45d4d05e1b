"""Numbers in the units of the log, where another reward than zero means that nothing happened.

Rewards are counted from that number, so that zero means nothing happened and both parts are what
they are elsewhere. Means and sums get it back here; differences, errors and laws need nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from zib.logs.advise.estimates import ArmSummary, Weighted
from zib.logs.advise.times import Course
from zib.stats.intervals import Estimate

if TYPE_CHECKING:
    from zib.logs.advise.advice import Advice
    from zib.logs.advise.simulation import Simulation


def shifted(x: Estimate, by: float) -> Estimate:
    """Return an estimate of a mean with `by` added.

    Examples
    --------
    >>> shifted(Estimate(2.0, 1.0, 3.0), -1.0)
    Estimate(value=1.0, low=0.0, high=2.0)
    """
    return Estimate(*(part + by for part in x))


def in_log_units(advice: Advice, inflated: float) -> Advice:
    """Return an advice about rewards counted from `inflated` in the units of the log."""
    if not inflated:
        return advice
    times = advice.times
    if times is not None:
        times = replace(
            times,
            courses=tuple(_course(course, inflated) for course in times.courses),
            within=tuple((arm, shifted(r, inflated)) for arm, r in times.within),
            hours=None if times.hours is None else _course(times.hours, inflated),
            weekdays=None if times.weekdays is None else _course(times.weekdays, inflated),
        )
    balance = advice.balance
    if balance is not None and balance.values is not None:
        balance = replace(
            balance,
            values=balance.values + inflated,
            arms=tuple(None if arm is None else _weighted(arm, inflated) for arm in balance.arms),
        )
    return replace(
        advice,
        arms=tuple(_arm(arm, inflated) for arm in advice.arms),
        overall=_arm(advice.overall, inflated),
        simulation=None if advice.simulation is None else _earned(advice.simulation, inflated),
        times=times,
        balance=balance,
        inflated=inflated,
    )


def _arm(arm: ArmSummary, by: float) -> ArmSummary:
    weighted = None if arm.weighted is None else _weighted(arm.weighted, by)
    return replace(arm, mu=shifted(arm.mu, by), r=shifted(arm.r, by), weighted=weighted)


def _weighted(found: Weighted, by: float) -> Weighted:
    return found._replace(mu=shifted(found.mu, by), r=shifted(found.r, by))


def _course(course: Course, by: float) -> Course:
    return replace(course, mu=shifted(course.mu, by), r=shifted(course.r, by))


def _earned(ran: Simulation, by: float) -> Simulation:
    whole = by * ran.rounds
    earned: Any = tuple(
        row._replace(total=shifted(row.total, whole), paid=row.paid + whole) for row in ran.earned
    )
    totals = np.asarray(ran.totals) + whole
    return replace(ran, earned=earned, best_total=ran.best_total + whole, totals=totals)
