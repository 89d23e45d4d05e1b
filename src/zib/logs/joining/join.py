"""`join`: exposures and conversions to one row per exposure with its reward.

The conversions are held in memory (some forty bytes each, and their keys). The exposures are read
two or three times in batches: to find those with a conversion, to count the pending ones where they
are to be weighted, and to write.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zib.core import validate
from zib.core.cluster import Machines, check_backend, machines
from zib.core.validate import InvalidParameterError
from zib.logs.joining import attribute as rules
from zib.logs.joining import roles
from zib.logs.joining.attribute import Events, Exposures, Outcomes, Pairs
from zib.logs.joining.instants import Clock, check_zone, moment, span, span_words
from zib.logs.joining.joined import ENOUGH, ArmRates, Joined, Part
from zib.logs.joining.passes import (
    Finish,
    Keys,
    Made,
    Rows,
    Seen,
    Shown,
    Sold,
    Tally,
    read_conversions,
)
from zib.logs.joining.write import FolderRows, check_target, is_folder, rows_for, write_part
from zib.logs.tables import LogError, Table, open_table
from zib.stats.delay import (
    DelayCounts,
    DelayDistribution,
    delay_bins,
    delays_differ,
    pending_posterior,
)

Array = NDArray[np.float64]
Codes = NDArray[np.int64]

PENDING = ("leave-out", "thin", "weight")
PART = 1 << 20  # exposures that a worker reads at a time
DIFFERENT = 0.001  # p-value below which arms get delays of their own
MOST_CURVES = 50  # arms up to which they are compared
LEAN = 20.0  # conversions that the delays of all arms are worth to a single one then
FLAT = 1e-6  # both parameters of the Beta prior: the estimate is that of the likelihood


def join(
    exposures: Any,
    conversions: Any,
    *,
    window: float | str | None,
    on: str | Sequence[str] | None = None,
    arm: str | None = None,
    time: str | None = None,
    conversion_time: str | None = None,
    amount: str | None = None,
    conversion_id: str | None = None,
    attribute: str = "last",
    combine: str = "sum",
    pending: str = "leave-out",
    as_of: Any = None,
    timezone: str = "UTC",
    conversion_timezone: str | None = None,
    reward: str = "reward",
    prior: DelayDistribution | None = None,
    seed: int = 0,
    out: Any = None,
    backend: str = "serial",
    workers: int | None = None,
    scheduler: str | None = None,
) -> Joined:
    """Join exposures with the conversions that came of them: one row per exposure, with its reward.

    Parameters
    ----------
    exposures, conversions
        Paths of CSV or Parquet files, folders of them, or frames: who was shown what and when, and
        who bought when and for how much.
    window
        How long after the exposure a conversion counts: ``"7d"``, ``"12h"``, ``"30min"`` or
        seconds; None for ever. For times that are plain numbers, a number in their unit.
    on
        The column in both that says which exposure, or whose, a conversion is; two names where the
        columns have different ones.
    arm
        Column of the exposures with what was shown; for the rates of the report and for `pending`.
    time, conversion_time
        Columns with the times.
    amount
        Column of the conversions with what they are worth; each counts 1 without one.
    conversion_id
        Column that identifies a conversion. Rows with one id are one conversion: a negative amount
        is a refund and is added, another amount is a revision and replaces what came before, and
        the same amount again is a duplicate. Refunds with an id count whenever they come.
    attribute
        Which exposure in the window before a conversion it belongs to when a key has several:
        the "last", the "first", or "all" of them (it then counts several times).
    combine
        How conversions of one exposure add up: "sum", "first", "last" or "max".
    pending
        What becomes of exposures whose window is still open: "leave-out"; "thin" keeps those with
        a conversion and of the others a random part, so that the rows are like those of closed
        windows; "weight" keeps all, with the columns ``weight`` and ``fraction``. See Notes.
    as_of
        When the data end; the latest time in either file by default. Rows after it are not used.
    timezone, conversion_timezone
        Where the clocks stand for times without offset, such as ``"Europe/Berlin"``; the same for
        both files by default.
    reward
        Name of the new column.
    prior
        What the distribution of the delay is thought to be, worth one conversion.
    seed
        Of what "thin" draws.
    out
        File to write, ending with .parquet or .csv; or a new folder of Parquet files, also by URL.
        Without it the rows stay in memory.
    backend, workers, scheduler
        "serial", or "dask": exposures in Parquet files are read, joined and, into a folder, written
        by the workers of a cluster, that of the scheduler with this address or one of `workers`
        processes made for it. The rows are the same.

    Notes
    -----
    An exposure of yesterday without a conversion is not a zero yet. Counting it as one makes every
    rate too small; leaving it out while counting conversions of yesterday makes rates several times
    too large. Leaving out all exposures with an open window is right and simple. The other two
    choices use them, by the distribution F of the delay (`zib.stats.delay`): of an open exposure of
    age a the conversion has been seen with probability F(a). Rows with a conversion are kept, the
    others count F(1 − p)/(1 − pF), p being the rate of the arm. So each exposure is represented
    with probability F(a) whatever its outcome, which leaves rates, contexts and propensities as
    they are. Arms whose delays differ get an F each. It assumes that amounts do not depend on the
    delay, nor the delay on when the exposure was. With ``combine="sum"`` the amounts of open
    exposures can still grow.

    Examples
    --------
    >>> import pandas as pd
    >>> shown = pd.DataFrame({"user": ["u", "v", "w"], "arm": ["a", "b", "a"],
    ...                       "time": pd.to_datetime(["2024-05-01", "2024-05-02", "2024-05-09"])})
    >>> bought = pd.DataFrame({"user": ["v", "v", "x"], "amount": [30.0, -10.0, 5.0],
    ...                        "time": pd.to_datetime(["2024-05-03", "2024-05-04", "2024-05-05"])})
    >>> joined = join(shown, bought, window="7d", as_of="2024-05-10")
    >>> joined.frame()[["user", "arm", "reward"]]
      user arm  reward
    0    u   a     0.0
    1    v   b    20.0
    >>> joined.unknown.number, joined.open_rows
    (1, 1)
    """
    length = math.inf if window is None else span("window", window)
    validate.choice("attribute", attribute, rules.RULES)
    validate.choice("combine", combine, rules.COMBINATIONS)
    validate.choice("pending", pending, PENDING)
    zone = check_zone("timezone", timezone)
    other_zone = (
        zone
        if conversion_timezone is None
        else check_zone("conversion_timezone", conversion_timezone)
    )
    seed = validate.seed("seed", seed)
    if prior is not None and not isinstance(prior, DelayDistribution):
        raise InvalidParameterError(
            f"`prior` must be a zib.stats.delay.DelayDistribution; got {validate.shown(prior)}"
        )
    target = None if out is None else check_target(out)
    check_backend(backend, workers, scheduler)
    end = None if as_of is None else moment("as_of", as_of, zone)
    if not isinstance(reward, str) or not reward:
        raise InvalidParameterError(
            f"`reward` must be the name of the new column; got {validate.shown(reward)}"
        )
    left, right = _opened("exposures", exposures), _opened("conversions", conversions)
    notes: list[str] = []
    key, other_key = roles.keys(left, right, on, notes)
    shown, columns = _columns(
        left, right, key, other_key, notes,
        {"time": time, "arm": arm, "conversion_time": conversion_time, "amount": amount,
         "conversion_id": conversion_id},
        zone, plain=not isinstance(window, str),
    )  # fmt: skip
    _check_columns(shown, columns["conversion_time"], length, pending, reward)
    clock = Clock(
        str(columns["conversion_time"]), other_zone, shown.clock.plain, right.comma_likely
    )
    sold = read_conversions(
        right, other_key, columns["conversion_time"], columns["amount"], columns["conversion_id"],
        clock,
    )  # fmt: skip
    shown.peek()
    with machines(backend, workers, scheduler) as there:
        split = there.many or (target is not None and is_folder(target))
        parts: list[Rows] = shown.parts(PART) if split else [None]
        seen = Seen(clock=shown.clock)
        for found in there.each(_survey, (shown, sold.keys), parts):
            seen.merge(found)
        if not seen.rows:
            raise LogError(f"{left.name} has no rows")
        _check_clocks(shown, clock, sold)
        latest = max(seen.latest, float(sold.rows.time.max(initial=-np.inf)))
        until = math.inf if shown.time is None else latest if end is None else end
        story = _attributed(sold, seen, until, length, attribute, combine)
        edges = None if math.isinf(length) or shown.time is None else delay_bins(length)
        work = Finish(story.outcomes, length, until, pending, reward, seed, edges)
        apart = fit_delays(work, story.arm, seen.arms, prior)
        tally = None
        if pending != "leave-out":
            assert edges is not None
            assert work.delays is not None
            tally = Tally(edges)
            for counted in there.each(_tally, (shown, work), parts):
                tally.merge(counted)
            work.chances = fit_chances(tally, work)
        made = Made(tally=Tally(edges) if tally is None and edges is not None else None)
        table = _written(there, shown, work, parts, made, target)
    notes += [*left.notes, *right.notes, *sold.notes]
    notes += _notes(shown, clock, sold, seen, story, attribute)
    notes += _delay_notes(work, apart)
    return Joined(
        path=target,
        table=table,
        rows=made.rows,
        exposures=seen.rows - made.future,
        converted=int(story.outcomes.row.size),
        matched=story.part(story.pairs.event),
        unknown=story.part(story.pairs.unknown),
        early=story.part(story.pairs.early),
        late=story.part(story.pairs.late),
        future=(made.future, story.future),
        duplicates=story.settled.duplicates,
        revisions=story.settled.revisions,
        refunds=story.settled.refunds,
        refunded=story.settled.refunded,
        alike=story.alike,
        open_rows=made.open_rows,
        open_converted=made.open_converted,
        delays=work.delays,
        arms=_rates(tally or made.tally, work),
        repeated=story.repeated,
        notes=tuple(notes),
        names=(left.name, right.name),
        roles={
            "reward": reward,
            **({"arm": shown.arm} if shown.arm else {}),
            **({"time": shown.time} if shown.time else {}),
        },
        window=length,
        as_of=until,
        dates=shown.time is not None and bool(shown.clock.dates),
        attribute=attribute,
        combine=combine,
        pending=pending,
    )


def _survey(shared: tuple[Shown, Keys], part: Rows) -> Seen:
    shown, keys = shared
    return shown.survey(keys, part)


def _tally(shared: tuple[Shown, Finish], part: Rows) -> Tally:
    shown, work = shared
    return shown.tally(work, part)


def _finish(
    shared: tuple[Shown, Finish, str | None], part: tuple[int, Rows]
) -> tuple[Made, list[Any]]:
    """Make the rows of a part, and write them if there is a folder; runs on a worker."""
    shown, work, folder = shared
    uncounted = None if work.chances is not None else work.edges
    made = Made(tally=None if uncounted is None else Tally(uncounted))
    rows = shown.finish(work, made, part[1])
    if folder is None:
        return made, list(rows)
    write_part(folder, part[0], rows)
    return made, []


def _written(
    there: Machines, shown: Shown, work: Finish, parts: list[Rows], made: Made,
    target: str | Path | None,
) -> Any:  # fmt: skip
    """Write all rows, or return them as a table."""
    if target is not None and is_folder(target):
        folder = FolderRows(str(target))
        try:
            for counted, _ in there.each(_finish, (shown, work, folder.place), enumerate(parts)):
                made.merge(counted)
            folder.close()
        except BaseException:
            folder.give_up()
            raise
        return None
    rows = rows_for(None if target is None else Path(target))
    try:
        if there.many:
            for counted, batches in there.each(_finish, (shown, work, None), enumerate(parts)):
                made.merge(counted)
                for batch in batches:
                    rows.add(batch)
        else:
            for batch in shown.finish(work, made):
                rows.add(batch)
        rows.close()
    except BaseException:
        rows.give_up()
        raise
    return rows.table()


def fit_delays(
    work: Finish, arm: Codes, labels: dict[Hashable, int], prior: DelayDistribution | None
) -> float:
    """Estimate the delay, for each arm where arms differ; return the p-value of that."""
    if work.edges is not None:
        age = work.as_of - work.outcomes.time
        groups = []
        if len(labels) > MOST_CURVES:
            labels, arm = {}, np.zeros_like(arm)
        for code in range(max(len(labels), 1)):
            at = np.flatnonzero(arm == code)
            groups.append(DelayCounts(work.edges))
            groups[-1].add(work.outcomes.delay[at], age[at])
        whole = DelayCounts(work.edges)
        for counts in groups:
            whole.merge(counts)
        if whole.events >= ENOUGH or prior is not None:
            work.delays = whole.distribution(prior=prior)
        apart = delays_differ(groups)
        if apart < DIFFERENT and work.delays is not None:
            # an arm with few conversions of its own leans on those of the others
            work.by_arm = {
                label: groups[code].distribution(prior=work.delays, prior_events=LEAN)
                for label, code in labels.items()
            }
        if work.delays is not None:
            return apart
    if work.pending != "leave-out":
        raise LogError(
            f"`pending` must be 'leave-out': there are fewer than {ENOUGH} conversions to "
            "estimate the distribution of the delay from"
        )
    return 1.0


def _opened(name: str, source: Any) -> Table:
    try:
        return open_table(source)
    except LogError as error:
        raise LogError(f"`{name}` cannot be used: {error}") from None


def _columns(
    left: Table,
    right: Table,
    key: str,
    other_key: str,
    notes: list[str],
    given: dict[str, str | None],
    zone: str,
    plain: bool,
) -> tuple[Shown, dict[str, str | None]]:
    """Return the exposures and the columns of the conversions, by name or guessed."""
    time = roles.find(left, "time", given["time"], roles.TIMES, notes, (key,))
    arm = roles.find(left, "arm", given["arm"], roles.ARMS, notes, (key, str(time)))
    found: dict[str, str | None] = {}
    for role, names in (
        ("conversion_time", roles.TIMES),
        ("conversion_id", roles.IDS),
        ("amount", roles.AMOUNTS),
    ):
        but = (other_key, *(str(name) for name in found.values()))
        found[role] = roles.find(right, role, given[role], names, notes, but)
    if found["amount"] is None:
        notes.append("No column of amounts was named or found: each conversion counts 1.")
    return Shown(left, key, time, arm, Clock(str(time), zone, plain, left.comma_likely)), found


def _check_columns(
    shown: Shown, conversion_time: str | None, window: float, pending: str, reward: str
) -> None:
    if (shown.time is None or conversion_time is None) and not math.isinf(window):
        role, table = (
            ("time", "exposures") if shown.time is None else ("conversion_time", "conversions")
        )
        raise LogError(
            f"`{role}` must name the column with the times of the {table}; none was found"
        )
    if (shown.time is None) != (conversion_time is None):
        raise LogError("`time` and `conversion_time` must be given together")
    if pending != "leave-out" and (shown.arm is None or math.isinf(window)):
        what = (
            "`arm` must name the column with the arms"
            if shown.arm is None
            else "`window` must be finite"
        )
        raise LogError(f"{what} when `pending` is {pending!r}")
    taken = {reward, *(("weight", "fraction") if pending == "weight" else ())} & {
        *shown.table.columns
    }
    if taken:
        raise LogError(
            "`reward` must be a name that no column of the exposures has (nor `weight` and "
            f"`fraction`, where these are added); got {validate.shown(reward)}"
        )


def _check_clocks(shown: Shown, other: Clock, sold: Sold) -> None:
    if shown.time is None or not sold.rows.size or shown.clock.dates == other.dates:
        return
    if not shown.clock.plain and not other.plain:  # numbers are seconds since 1970 then
        return
    raise LogError(
        f"the columns `{shown.time}` and `{other.column}` must both hold dates or both numbers; "
        "for numbers of seconds since 1970 give `window` as text, such as '7d'"
    )


class _Story:
    """What became of the conversions."""

    def __init__(
        self, events: Events, settled: rules.Settled, pairs: Pairs, outcomes: Outcomes
    ) -> None:
        self.events, self.settled, self.pairs, self.outcomes = events, settled, pairs, outcomes
        self.future = self.alike = 0
        self.repeated = False
        self.arm: Codes = np.empty(0, np.int64)  # of each outcome

    def part(self, rows: Any) -> Part:
        amount = self.events.amount[rows]
        return Part(int(amount.size), float(amount.sum()))


def _attributed(
    sold: Sold, seen: Seen, until: float, window: float, rule: str, combine: str
) -> _Story:
    known = np.flatnonzero(sold.rows.time <= until)
    settled = rules.settle(sold.rows.pick(known), None if sold.ids is None else sold.ids[known])
    none = np.empty(0, np.int64)
    row, key, time, arm = (
        np.concatenate(parts)
        for parts in zip(*(seen.found or [(none, none, np.empty(0), none)]), strict=True)
    )
    past = np.flatnonzero(time <= until)
    exposures = Exposures.sorted(row[past], key[past], time[past])
    events = settled.events
    pairs = rules.pair(exposures, events, window, rule)
    outcomes = rules.combine(exposures, events, pairs, combine)
    story = _Story(events, settled, pairs, outcomes)
    story.arm = arm[np.searchsorted(row, outcomes.row)]
    story.future = sold.rows.size - known.size
    story.repeated = bool((exposures.key[1:] == exposures.key[:-1]).any())
    if sold.ids is None and events.size:
        order = np.lexsort(events)
        again = np.ones(events.size - 1, dtype=bool)
        for column in events:
            again &= column[order[1:]] == column[order[:-1]]
        story.alike = int(again.sum())
    return story


def fit_chances(tally: Tally, work: Finish) -> dict[Hashable, float]:
    """Return the chance of a conversion of each arm, pending ones counted as fractions."""
    assert work.delays is not None
    counts = np.array(list(tally.counts.values()), dtype=np.float64)
    ages = tally.ages()
    fractions = np.array([work.by_arm.get(label, work.delays)(ages) for label in tally.counts])
    found = pending_posterior(
        counts[:, 1] + counts[:, 2], counts[:, 0], fractions, counts=counts[:, 3:],
        alpha=FLAT, beta=FLAT,
    )  # fmt: skip
    return dict(zip(tally.counts, map(float, found.mean), strict=True))


def _rates(tally: Tally | None, work: Finish) -> tuple[ArmRates, ...]:
    if tally is None or not tally.counts:
        return ()
    chances = {} if work.delays is None else fit_chances(tally, work)
    out = []
    for label, counts in tally.counts.items():
        zeros, converted, still_open = (int(x) for x in counts[:3])
        closed = zeros + converted
        out.append(
            ArmRates(
                label, closed, converted, still_open + int(counts[3:].sum()), still_open,
                converted / closed if closed else math.nan, chances.get(label, math.nan),
            )
        )  # fmt: skip
    return tuple(sorted(out, key=lambda rates: str(rates.arm)))


def _delay_notes(work: Finish, apart: float) -> list[str]:
    if not work.by_arm:
        return []
    half = {str(label): float(each.quantile(0.5)) for label, each in work.by_arm.items()}
    fast, slow = min(half, key=half.__getitem__), max(half, key=half.__getitem__)
    return [
        f"The delay differs between arms (p = {apart:.1g}; half of the conversions of {fast} come "
        f"within {span_words(half[fast])}, of {slow} within {span_words(half[slow])}): each has a "
        "delay curve of its own, and a window that is too short favours the faster one."
    ]


def _notes(
    shown: Shown, other: Clock, sold: Sold, seen: Seen, story: _Story, rule: str
) -> list[str]:
    out = []
    for clock, table in ((shown.clock, "exposures"), (other, "conversions")):
        if clock.scale != 1.0:
            out.append(f"The times of the {table} are taken for {clock.unit} since 1970.")
        if clock.naive and clock.timezone != "UTC":
            out.append(f"Times of the {table} without offset are those of {clock.timezone}.")
        if clock.ambiguous:
            out.append(
                f"Of the times of the {table}, {clock.ambiguous:,} occurred twice in "
                f"{clock.timezone}, where clocks were set back; the first one is taken."
            )
        if clock.skipped:
            out.append(
                f"Of the times of the {table}, {clock.skipped:,} never occurred in "
                f"{clock.timezone}, where clocks were set forward; the end of the gap is taken."
            )
    if shown.clock.dates and other.dates:
        zones = [bool(clock.naive) for clock in (shown.clock, other)]
        if zones[0] != zones[1] and shown.clock.timezone == other.timezone == "UTC":
            which = "exposures" if zones[0] else "conversions"
            out.append(
                f"The times of the {which} have no offset and are taken as UTC, those of the other "
                "file have one; name a time zone if that is wrong."
            )
    if seen.without_key:
        out.append(f"Exposures without a key: {seen.without_key:,}; they count as not converted.")
    if sold.without_key:
        out.append(f"Rows of the conversions without a key: {sold.without_key:,}.")
    if story.future:
        out.append(f"Rows of the conversions after the end of the data: {story.future:,}.")
    if story.alike:
        out.append(
            f"Rows of the conversions that repeat another one in key, time and amount: "
            f"{story.alike:,}; without an id of the conversion they count."
        )
    if story.repeated and rule == "all":
        out.append(
            "Conversions count for several exposures, so amounts add up to more than came in."
        )
    below = int(np.count_nonzero(story.outcomes.reward < 0.0))
    if below:
        out.append(
            f"Exposures with a negative reward, as refunds exceed what was bought: {below:,}."
        )
    early = story.pairs.early.sum()
    if early > 0.2 * max(story.events.size, 1):
        out.append(
            f"{100 * early / story.events.size:.0f} % of the conversions come before the exposure; "
            "check the time zones of both files."
        )
    return out
