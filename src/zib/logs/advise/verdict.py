"""The verdict on a log: ship an arm, keep testing, or no difference worth having."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from zib.logs.advise.collect import Collected
from zib.logs.advise.estimates import reward_skewness
from zib.report import numbers
from zib.report.numbers import percent, shortened
from zib.stats.clusters import Clustered, clustered
from zib.stats.comparison import (
    ArmValues,
    Comparison,
    compare,
    pairwise,
    rows_to_settle,
    variance_of_differences,
)
from zib.stats.intervals import LEVEL, Estimate

if TYPE_CHECKING:
    from zib.logs.advise.balance import Balance

Array = NDArray[np.float64]
Kind = Literal["ship", "keep testing", "no difference", "not comparable"]

WORTH = 0.02  # smallest relative gain worth having, by default
BORROWED = 2.0  # non-zero rewards of all arms that an arm's variance is steadied with
ALL_PAIRS = 12  # arms up to which every pair is listed
FEWEST_ROWS = 2
UNREAL = 1e12  # rows that nobody will have


@dataclass(frozen=True)
class Difference:
    """Mean reward of `first` minus that of `second`.

    Attributes
    ----------
    single
        With an interval that holds on its own; the verdict *ship* rests on these.
    together
        With an interval that holds together with those of all other arms against the leader.
    chance
        Probability that `first` pays more on average.
    """

    first: Hashable
    second: Hashable
    single: Estimate
    together: Estimate
    chance: float


@dataclass(frozen=True)
class Chance:
    """Probability that an arm is the best, and the expected loss per row of choosing it now."""

    arm: Hashable
    best: float
    loss: float


@dataclass(frozen=True)
class Verdict:
    """What to do now, and the comparisons behind it.

    Attributes
    ----------
    kind
        "ship", "keep testing", "no difference" or "not comparable".
    words
        The conclusion in a sentence or two.
    arm
        The arm with the largest estimate; None when there is nothing to compare.
    as_good
        Arms that are surely within `worth` of it.
    behind
        Arms that are surely worse than it.
    rows_needed
        About so many more rows, spread evenly over the arms still in the race, would settle it;
        None where it is settled or no realistic number would.
    differences
        The leader against each other arm, the closest first.
    pairs
        Every pair of arms, with intervals that hold together, for logs of at most twelve arms.
    chances
        Probability of being the best and expected loss of each arm, the most likely first.
    worth, gap
        Smallest gain worth having, relative to the leader and per row.
    value
        Estimated mean reward of the leader.
    level, basis
        Level of the intervals, and what was compared.
    """

    kind: Kind
    words: str
    arm: Hashable | None = None
    as_good: tuple[Hashable, ...] = ()
    behind: tuple[Hashable, ...] = ()
    rows_needed: int | None = None
    differences: tuple[Difference, ...] = ()
    pairs: tuple[Difference, ...] = ()
    chances: tuple[Chance, ...] = ()
    worth: float = WORTH
    gap: float = 0.0
    value: float = math.nan
    level: float = LEVEL
    basis: str = "averages"


def judge(
    arms: Sequence[Hashable],
    values: ArmValues,
    rows: Array,
    *,
    level: float = LEVEL,
    worth: float = WORTH,
    seed: int = 0,
    low: float = -math.inf,
    basis: str = "averages",
) -> Verdict:
    """Return the verdict on estimated mean rewards, whatever they come from.

    Parameters
    ----------
    arms
        Labels.
    values
        Estimates with their covariance: averages, weighted, clustered or doubly robust values.
    rows
        (K,): rows of each arm, for the number of rows still needed. Arms with fewer than two are
        left out.
    level
        Of the intervals: a winner is declared wrongly with probability at most 1 − level.
    worth
        Smallest relative gain worth having.
    seed
        Of the draws behind probabilities.
    low
        Means cannot be below; 0 where rewards are never negative.
    basis
        What was compared, for the page: "averages", "doubly robust values", …

    Notes
    -----
    With w = worth · |largest estimate|: an arm is *as good* as the leader when the difference is
    surely below w, and no arm is *worth having* when none is surely or possibly ahead by w. Then:

    1. another arm is as good and none worth having: no difference;
    2. the leader beats each other arm: ship;
    3. none is worth having: no difference that speaks for another arm than the leader;
    4. otherwise: keep testing.

    The rule takes the log as one look at a test whose length was fixed beforehand. Looking again
    and again until an arm wins makes winners of equal arms, as with any test.

    Examples
    --------
    >>> values = ArmValues(np.array([1.0, 1.4]), np.array([[0.02, 0.005], [0.005, 0.02]]))
    >>> print(judge(["a", "b"], values, np.array([500.0, 500.0])).words)
    Ship 'b': it pays 0.4 more per row than 'a' (95 % interval 0.0605 to 0.739), +40 %.
    """
    kept = np.flatnonzero((rows >= FEWEST_ROWS) & np.isfinite(values.value))
    if kept.size < 2:
        words = "Nothing to compare: fewer than two arms have data."
        return Verdict("not comparable", words, worth=worth, level=level, basis=basis)
    if not np.any(values.variance[kept]):  # equal rewards only, since arms borrow from each other
        paid = float(values.value[kept[0]])
        if paid == 0.0:
            words = "Nothing to compare: nothing has been paid yet."
            return Verdict("not comparable", words, worth=worth, level=level, basis=basis)
        words = f"No difference worth having: every row of every arm paid {_number(paid)}."
        return Verdict("no difference", words, worth=worth, level=level, basis=basis)
    labels = [arms[k] for k in kept.tolist()]
    few = [arms[k] for k in range(len(arms)) if k not in set(kept.tolist()) and rows[k] > 0]
    inner, n = values.only(kept), rows[kept]
    found = compare(inner, level=level, seed=seed, low=low)
    lead = found.leader
    other = np.arange(kept.size) != lead
    wide = worth * abs(float(inner.value[lead]))
    equal = other & (found.together.high < wide)
    worse = other & (found.single.low > 0.0)
    none_ahead = bool((-found.together.low[other] < wide).all()) and wide > 0.0
    needed: int | None = None
    race = np.flatnonzero(other & ~worse)
    if none_ahead and equal.any():
        kind: Kind = "no difference"
    elif worse.sum() == other.sum():
        kind = "ship"
    elif none_ahead:
        kind = "no difference"
    else:
        kind = "keep testing"
        each = rows_to_settle(inner, n, lead, race, gap=wide, level=level)
        total = each * (race.size + 1)
        needed = _rounded(total) if total < UNREAL else None
    order = sorted(np.flatnonzero(other).tolist(), key=lambda k: float(found.single.value[k]))
    verdict = Verdict(
        kind,
        "",
        labels[lead],
        tuple(labels[k] for k in order if equal[k]),
        tuple(labels[k] for k in order if found.together.low[k] > 0.0 and not equal[k]),
        needed,
        tuple(_difference(found, labels, lead, k) for k in order),
        tuple(
            Difference(labels[i], labels[j], single, together, chance)
            for i, j, single, together, chance in pairwise(inner, level=level, seed=seed, low=low)
        )
        if kept.size <= ALL_PAIRS
        else (),
        tuple(
            Chance(labels[k], float(found.chance[k]), float(found.loss[k]))
            for k in np.argsort(-found.chance, kind="stable").tolist()
        ),
        worth,
        wide,
        float(inner.value[lead]),
        level,
        basis,
    )
    return replace(verdict, words=_words(verdict, few))


def _difference(
    found: Comparison, labels: Sequence[Hashable], first: int, second: int
) -> Difference:
    single, together = (
        Estimate(*(float(part[second]) for part in x)) for x in (found.single, found.together)
    )
    return Difference(labels[first], labels[second], single, together, float(found.behind[second]))


def _rounded(x: float) -> int:
    """Return two significant digits of a number of rows."""
    whole = max(math.ceil(x), 1)
    step: int = 10 ** max(len(str(whole)) - 2, 0)
    return -(-whole // step) * step


# ----------------------------------------------------------------------------------------- words


def _number(x: float, digits: int = 3) -> str:
    return numbers.number(x, digits, trim=True)


def _interval(x: Estimate, level: float) -> str:
    return f"{percent(level)} interval {_number(x.low)} to {_number(x.high)}"


def _named(labels: Sequence[Hashable], most: int = 4) -> str:
    shown = [repr(shortened(str(label))) for label in labels[:most]]
    if len(labels) > most:
        return ", ".join(shown) + f" and {len(labels) - most} more"
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def _words(verdict: Verdict, few: Sequence[Hashable]) -> str:
    """Return the conclusion; `few` are arms left out."""
    value = verdict.value
    next_best = verdict.differences[0]
    lead = _named([verdict.arm])
    rival = _named([next_best.second])
    apart = next_best.single
    base = value - float(apart.value)
    relative = f", +{_number(100 * float(apart.value) / abs(base), 2)} %" if base else ""
    ahead = f"{_number(apart.value)} more per row than"
    how = _interval(apart, verdict.level)
    others = len(verdict.differences)
    part = f"{100 * verdict.worth:.3g} %"
    if verdict.kind == "ship":
        words = f"Ship {lead}: it pays {ahead} {rival} ({how}){relative}"
        if others > 1:
            words = (
                f"Ship {lead}: it pays more than each of the {others} other arms, {ahead} "
                f"the next best, {rival} ({how}){relative}"
            )
        words += "."
    elif verdict.kind == "no difference" and verdict.as_good:
        most = max(
            max(d.together.high, -d.together.low)
            for d in verdict.differences
            if d.second in verdict.as_good
        )
        words = (
            f"No difference worth having: {_named((verdict.arm, *verdict.as_good))} differ by at "
            f"most {_number(most)} per row, {_number(100 * most / abs(value), 2)} % ({part} would "
            "be worth having). Choose by cost or convenience."
        )
    elif verdict.kind == "no difference":
        most = max(0.0, *(-d.together.low for d in verdict.differences))
        words = (
            f"Use {lead}: no other arm can pay more than {lead} by over {_number(most)} per row, "
            f"{_number(100 * most / abs(value), 2)} %, and {part} would be worth having. That it "
            f"pays more than {rival}, by {_number(apart.value)} per row ({how}), is not "
            "settled."
        )
    else:
        words = f"Keep testing: {lead} leads {rival} by {_number(apart.value)} per row ({how})"
        loss = next(c.loss for c in verdict.chances if c.arm == verdict.arm)
        if verdict.rows_needed is None:
            words += ", and no realistic number of rows would tell them apart"
        else:
            race = [d.second for d in verdict.differences if d.single.low <= 0.0]
            among = f", spread evenly over {_named((verdict.arm, *race))}," if others > 1 else ""
            new = " of new clusters" if "cluster" in verdict.basis else ""
            words += f"; about {verdict.rows_needed:,} more rows{new}{among} would settle it"
        words += f". Choosing {lead} now has an expected loss of {_number(loss)} per row"
        words += f" ({_number(100 * loss / abs(value), 2)} %)." if value else "."
    if verdict.behind and verdict.kind != "ship":
        words += f" Surely worse than {lead}: {_named(verdict.behind)}."
    if few:
        words += f" Left out for want of rows: {_named(few)}."
    return words


# ---------------------------------------------------------------------------------- from the log


def verdict_on(
    found: Collected,
    balance: Balance | None = None,
    *,
    level: float,
    worth: float,
    seed: int,
    inflated: float = 0.0,
    values: ArmValues | None = None,
) -> Verdict:
    """Return the verdict on the arms of a log; by doubly robust values where balance fails.

    Rewards are counted from `inflated`; the verdict is in the units of the log. `values` are
    `arm_values` where they are known.
    """
    if balance is not None and balance.fails:
        basis = "doubly robust values"
        if balance.values is None or balance.covariance is None:
            words = f"Not comparable: {balance.reason}, so this log cannot tell which arm is best."
            return Verdict("not comparable", words, worth=worth, level=level, basis=basis)
        robust = ArmValues(balance.values + inflated, balance.covariance, balance.freedom)
        return judge(
            found.arms, robust, found.rows, level=level, worth=worth, seed=seed, basis=basis
        )
    basis = "averages" if found.weighted is None else "averages with inverse propensities"
    if found.clusters is not None:
        basis += ", rows of a cluster dependent"
    low = inflated if found.sign > 0 else -math.inf
    values = arm_values(found) if values is None else values
    values = replace(values, value=values.value + inflated)
    return judge(
        found.arms, values, found.rows, level=level, worth=worth, seed=seed, low=low, basis=basis
    )


def arm_values(found: Collected) -> ArmValues:
    """Return the mean rewards of the arms of a log, fit for comparing them.

    With propensities, rows count 1/propensity; with clusters, rows of one may depend. No variance
    is taken to be smaller than with the rewards of all arms mixed in, as many as hold two non-zero
    ones: an arm that was lucky enough to see nothing but zeros is not certain to pay nothing.
    """
    n, b = found.rows, found.paid.count
    rows = np.maximum(n, 1.0)
    with np.errstate(all="ignore"):
        mean, second = found.paid.mean, found.paid.m2 / np.maximum(b, 1.0)
        p = b / rows
        value, square = p * mean, p * (second + mean**2)  # of a row of the arm
        variance = np.maximum(square - value**2, 0.0) / np.maximum(n - 1.0, 1.0)
        paid, middle, m2, m3 = found.paid.pooled()
        overall = paid / max(found.n_rows, 1)
        size = rows
        if found.weighted is not None:
            w = found.weighted
            total = np.where(w.w > 0, w.w, 1.0)
            value = w.w_reward / total
            size = total**2 / np.where(w.w2 > 0, w.w2, 1.0)
            spread = w.w2_square - 2.0 * value * w.w2_reward + value**2 * w.w2
            variance = np.maximum(spread, 0.0) / total**2
        floor, skewness = np.zeros(n.size), 0.0
        if paid:
            mixed = BORROWED / overall
            first = (rows * p * mean + mixed * overall * middle) / (rows + mixed)
            both = rows * square + mixed * overall * (m2 / paid + middle**2)
            floor = np.maximum(both / (rows + mixed) - first**2, 0.0) / np.maximum(size - 1.0, 1.0)
            bent = reward_skewness(overall, middle, m2 / paid, m3 / paid)
            skewness = float(np.nan_to_num(bent, nan=0.0, posinf=0.0, neginf=0.0))
    df = np.maximum(size - 1.0, 1.0)
    value = np.where(n > 0, value, np.nan)
    sums = reward_sums(found, variance)
    if sums is None:
        return ArmValues(value, variance, df, floor, skewness, size)
    # one effect for all arms: their own are noisy, and would bend differences of equal arms
    known = np.isfinite(sums.effect)
    effect = (
        max(float(np.average(sums.effect[known], weights=n[known])), 1.0) if known.any() else 1.0
    )
    return ArmValues(value, sums.covariance, sums.df, floor * effect, skewness, size / effect)


def design_effect(found: Collected, values: ArmValues) -> float:
    """Return how many times the variance of independent rows the leader's differences have.

    The median over the arms; 1 for a log without clusters. `values` are its `arm_values`.
    """
    if found.clusters is None or found.n_arms < 2:
        return 1.0
    if not np.isfinite(values.value).any():
        return 1.0
    lead = int(np.nanargmax(values.value))
    plain = arm_values(replace(found, clusters=None))
    with np.errstate(all="ignore"):
        ratio = variance_of_differences(values, lead)[0] / variance_of_differences(plain, lead)[0]
    ratio = np.delete(ratio, lead)
    ratio = ratio[np.isfinite(ratio)]
    return float(np.median(ratio)) if ratio.size else 1.0


def reward_sums(found: Collected, variance: Array) -> Clustered | None:
    """Return the covariance of mean rewards over clusters, or None for a log without them."""
    if found.clusters is None:
        return None
    cluster, arm, sums = found.cluster_table()
    return clustered(cluster, arm, sums[:, 2], sums[:, 0], variance, found.rows)
