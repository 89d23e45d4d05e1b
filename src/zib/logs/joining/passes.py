"""The passes over the two files: conversions into memory, exposures in batches."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from zib.logs.amounts import Numbers
from zib.logs.columns import MANY_ARMS, Labels
from zib.logs.joining.attribute import Events, Outcomes
from zib.logs.joining.instants import Clock
from zib.logs.tables import LogError, Table
from zib.stats.delay import DelayDistribution, pending_weight
from zib.stats.sampling import row_hashes

Array = NDArray[np.float64]
Codes = NDArray[np.int64]
Rows = tuple[int, int] | None  # rows from … to before …, or all of them

BATCH = 1 << 18
SALT = 7


# --------------------------------------------------------------------------------------------- keys


def _text(values: Any) -> Any:
    """Return keys as text: whole numbers without a point, words without spaces around them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_floating(values.type):
        whole = pc.all(pc.equal(pc.floor(values), values)).as_py() is not False
        values = pc.cast(values, pa.int64(), safe=False) if whole else values
    try:
        return pc.utf8_trim_whitespace(pc.cast(values, pa.large_string()))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise LogError(f"`on` must name columns of text or numbers; got {values.type}") from None


class Keys:
    """The different keys of the conversions, and where to find one.

    They are looked up by 64-bit hashes and then compared, so no two keys are taken for one.
    """

    def __init__(self, values: Any) -> None:
        import pyarrow as pa

        self._whole = pa.types.is_integer(values.type)
        encoded = (values if self._whole else _text(values)).dictionary_encode()
        if isinstance(encoded, pa.ChunkedArray):
            encoded = encoded.combine_chunks()
        self.values = encoded.dictionary
        self.codes: Codes = (
            encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
        )
        self._index: Any = None
        self._as_text: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_index": None, "_as_text": None}

    def _indexed(self, text: bool) -> tuple[Any, Any]:
        import pandas as pd

        if self._index is None or (text and self._as_text is None):
            values = _text(self.values) if text and self._whole else self.values
            hashes = _hashes(values)
            index = pd.Index(hashes)
            if not index.is_unique:  # about once in 10⁷ joins of 10⁶ keys
                raise LogError("two keys have the same hash; give one of them another name")
            self._index, self._as_text = index, values
        return self._index, self._as_text

    def find(self, values: Any) -> Codes:
        """Return the codes of keys, −1 for those without conversion."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if pa.types.is_dictionary(values.type):
            values = values.dictionary_decode()
        if not len(self.values):
            return np.full(len(values), -1)
        if self._whole and not pa.types.is_integer(values.type):
            self._whole, self.values, self._index = False, _text(self.values), None
        if not self._whole:
            values = _text(values)
        index, own = self._indexed(text=not self._whole)
        codes = np.asarray(index.get_indexer(_hashes(values)), dtype=np.int64)
        if values.null_count:
            codes[values.is_null().to_numpy(zero_copy_only=False)] = -1
        hit = np.flatnonzero(codes >= 0)
        if hit.size:
            here, there = values.take(pa.array(hit)), own.take(pa.array(codes[hit]))
            if here.type != there.type:
                here = pc.cast(here, there.type)
            codes[hit[~pc.equal(here, there).to_numpy(zero_copy_only=False)]] = -1
        return codes


def _hashes(values: Any) -> NDArray[np.uint64]:
    import pyarrow as pa
    from pandas.util import hash_array

    if pa.types.is_integer(values.type):
        whole = values.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        return np.asarray(whole.view(np.uint64))
    plain = values.fill_null("").to_numpy(zero_copy_only=False)
    return np.asarray(hash_array(plain, categorize=False))


# -------------------------------------------------------------------------------------- conversions


class Sold(NamedTuple):
    """The file of the conversions: rows, the codes of their ids, and the keys."""

    rows: Events
    ids: Codes | None
    keys: Keys
    without_key: int
    notes: list[str]


def read_conversions(
    table: Table, key: str, time: str | None, amount: str | None, number: str | None, clock: Clock
) -> Sold:
    """Read all conversions; `number` is the column of their ids."""
    import pyarrow as pa

    names = list(dict.fromkeys(name for name in (key, time, amount, number) if name))
    found: list[tuple[Any, Array, Array, Any]] = []
    start = 0
    amounts = Numbers(str(amount), table.decimal, table.comma_likely)
    for batch in table.batches(names):
        n = batch.num_rows
        if n:
            found.append(
                (
                    _decoded(batch.column(key)),
                    np.zeros(n) if time is None else clock.read(batch.column(time), start),
                    np.ones(n) if amount is None else amounts.read(batch.column(amount), start),
                    None if number is None else _decoded(batch.column(number)),
                )
            )
        start += n
    if not found:
        return Sold(
            Events(np.empty(0, np.int64), np.empty(0), np.empty(0)), None,
            Keys(pa.array([], pa.large_string())), 0, [],
        )  # fmt: skip
    keys = Keys(_chunked([part[0] for part in found]))
    rows = Events(
        keys.codes, np.concatenate([part[1] for part in found]),
        np.concatenate([part[2] for part in found]),
    )  # fmt: skip
    ids = None
    if number is not None:
        ids = Keys(_chunked([part[3] for part in found])).codes
        unnamed = np.flatnonzero(ids < 0)
        ids[unnamed] = ids.max(initial=-1) + 1 + np.arange(unnamed.size)  # each is one of its own
    return Sold(rows, ids, keys, int(np.count_nonzero(keys.codes < 0)), amounts.notes)


def _decoded(values: Any) -> Any:
    import pyarrow as pa

    return values.dictionary_decode() if pa.types.is_dictionary(values.type) else values


def _chunked(parts: list[Any]) -> Any:
    import pyarrow as pa

    if len({str(part.type) for part in parts}) > 1:
        parts = [_text(part) for part in parts]
    return pa.chunked_array(parts)


# ---------------------------------------------------------------------------------------- exposures


@dataclass
class Seen:
    """What one reading of the exposures finds: those with a key that has conversions."""

    rows: int = 0
    without_key: int = 0
    first: float = np.inf
    latest: float = -np.inf
    found: list[tuple[Codes, Codes, Array, Codes]] = field(default_factory=list)
    arms: dict[Hashable, int] = field(default_factory=dict)  # numbers of the labels in `found`
    clock: Clock | None = None

    def merge(self, other: Seen) -> None:
        """Take what the rows that follow had."""
        at = [self.arms.setdefault(label, len(self.arms)) for label in other.arms] or [0]
        number = np.array(at, dtype=np.int64)
        self.found += [
            (row + self.rows, key, time, number[arm]) for row, key, time, arm in other.found
        ]
        self.rows += other.rows
        self.without_key += other.without_key
        self.first, self.latest = min(self.first, other.first), max(self.latest, other.latest)
        if self.clock is not None and other.clock is not None:
            self.clock.merge(other.clock)


@dataclass
class Tally:
    """Counts of exposures of each arm: closed, open, and pending by age.

    `counts` has a row for each arm: closed without and with a conversion, open with one, and those
    pending in each bin of ages.
    """

    edges: Array
    counts: dict[Hashable, Codes] = field(default_factory=dict)

    def add(
        self, labels: Collection[Hashable], arm: Codes, age: Array, closed: NDArray[np.bool_],
        event: NDArray[np.bool_],
    ) -> None:  # fmt: skip
        """Count some rows; `arm` holds positions in `labels`."""
        bins = np.clip(np.searchsorted(self.edges, age, side="right") - 1, 0, self.edges.size - 2)
        what = np.where(closed, event, np.where(event, 2, 3 + bins))
        width = self.edges.size + 2
        table = np.bincount(arm * width + what, minlength=len(labels) * width)
        for label, row in zip(labels, table.reshape(-1, width), strict=True):
            self._take(label, row)

    def _take(self, label: Hashable, row: Codes) -> None:
        self.counts[label] = self.counts[label] + row if label in self.counts else row

    def merge(self, other: Tally) -> None:
        """Take the counts of other rows."""
        for label, row in other.counts.items():
            self._take(label, row)

    def ages(self) -> Array:
        """Return the middle of each bin."""
        return 0.5 * (self.edges[1:] + self.edges[:-1])


@dataclass
class Finish:
    """All that is needed to turn exposures into joined rows."""

    outcomes: Outcomes
    window: float
    as_of: float
    pending: str
    reward: str
    seed: int
    edges: Array | None
    delays: DelayDistribution | None = None
    by_arm: dict[Hashable, DelayDistribution] = field(default_factory=dict)
    chances: dict[Hashable, float] | None = None

    def fraction(self, labels: Iterable[Hashable], arm: Codes, age: Array) -> Array:
        """Return F at these ages, that of the arm where arms differ."""
        assert self.delays is not None
        out = self.delays(age)
        for code, label in enumerate(labels):
            if label in self.by_arm:
                at = np.flatnonzero(arm == code)
                out[at] = self.by_arm[label](age[at])
        return out


@dataclass
class Made:
    """Joined rows of some exposures, and what was counted on the way."""

    rows: int = 0
    future: int = 0
    open_rows: int = 0
    open_converted: int = 0
    tally: Tally | None = None

    def merge(self, other: Made) -> None:
        """Take the counts of other rows."""
        self.rows += other.rows
        self.future += other.future
        self.open_rows += other.open_rows
        self.open_converted += other.open_converted
        if self.tally is not None and other.tally is not None:
            self.tally.merge(other.tally)


@dataclass
class Shown:
    """The file of the exposures."""

    table: Table
    key: str
    time: str | None
    arm: str | None
    clock: Clock

    def parts(self, size: int) -> list[Rows]:
        """Return parts that can be read apart; the whole table where that is not possible."""
        n = self.table.n_rows
        if n is None:
            return [None]
        return [(start, min(start + size, n)) for start in range(0, n, size)] or [(0, 0)]

    def _batches(self, columns: Sequence[str], part: Rows) -> Iterator[Any]:
        names = list(dict.fromkeys(columns))
        if part is None:
            return self.table.batches(names, BATCH)
        return self.table.rows(names, *part, BATCH)

    def peek(self) -> None:
        """Find out from the first rows how the times are written, for all parts alike."""
        if self.time is not None:
            n = self.table.n_rows
            part = None if n is None else (0, min(n, 10_000))
            for batch in self._batches([self.time], part):
                if batch.num_rows:
                    self.clock.read(batch.column(self.time).slice(0, 10_000), 0)
                    break
            self.clock = self._clock()

    def _clock(self) -> Clock:
        """Return a clock that reads as this one and has counted nothing."""
        return replace(self.clock, naive=0, ambiguous=0, skipped=0)

    def survey(self, keys: Keys, part: Rows = None) -> Seen:
        """Find the exposures whose key has conversions; rows are counted within the part."""
        clock = self._clock()
        seen = Seen(clock=clock)
        labels = self._labels()
        wanted = [name for name in (self.key, self.time, self.arm) if name]
        for batch in self._batches(wanted, part):
            n = batch.num_rows
            if not n:
                continue
            times = self._times(clock, batch, seen.rows)
            seen.first = min(seen.first, float(times.min()))
            seen.latest = max(seen.latest, float(times.max()))
            key = batch.column(self.key)
            seen.without_key += key.null_count
            codes = keys.find(key)
            hit = np.flatnonzero(codes >= 0)
            if hit.size:
                arm = np.zeros(hit.size, dtype=np.int64)
                if self.arm is not None:
                    arm = labels.codes(batch.column(self.arm).take(hit), seen.rows)
                seen.found.append((hit + seen.rows, codes[hit], times[hit], arm))
            seen.rows += n
        seen.arms = dict(labels.seen)
        return seen

    def _times(self, clock: Clock, batch: Any, start: int) -> Array:
        if self.time is None:
            return np.zeros(batch.num_rows)
        return clock.read(batch.column(self.time), start)

    def tally(self, work: Finish, part: Rows = None) -> Tally:
        """Count the exposures of each arm."""
        assert self.arm is not None
        assert work.edges is not None
        tally, labels = Tally(work.edges), self._labels()
        start = part[0] if part else 0
        clock = self._clock()
        for batch in self._batches([name for name in (self.arm, self.time) if name], part):
            if batch.num_rows:
                age = work.as_of - self._times(clock, batch, start)
                event = _events(work.outcomes, start, batch.num_rows)[0]
                here = np.flatnonzero(age >= 0.0)
                arm = labels.codes(batch.column(self.arm), start)
                tally.add(labels.seen, arm[here], age[here], age[here] >= work.window, event[here])
            start += batch.num_rows
        return tally

    def _labels(self) -> Labels:
        return Labels(str(self.arm), MANY_ARMS, "name a column that holds arms")

    def finish(self, work: Finish, made: Made, part: Rows = None) -> Iterator[Any]:
        """Yield joined rows as record batches, and count them in `made`."""
        labels = self._labels()
        clock = self._clock()
        start = part[0] if part else 0
        for batch in self._batches(self.table.columns, part):
            n = batch.num_rows
            if n:
                times = self._times(clock, batch, start)
                yield from self._finished(work, made, batch, times, start, labels)
            start += n

    def _finished(
        self, work: Finish, made: Made, batch: Any, times: Array, start: int, labels: Labels
    ) -> Iterator[Any]:
        n = batch.num_rows
        event, reward = _events(work.outcomes, start, n)
        age = work.as_of - times if self.time is not None else np.full(n, np.inf)
        past, closed = age >= 0.0, age >= work.window
        still_open = past & ~closed
        made.future += int(n - past.sum())
        made.open_rows += int(still_open.sum())
        made.open_converted += int((still_open & event).sum())
        arm = None
        if self.arm is not None:
            arm = labels.codes(batch.column(self.arm), start)
            if made.tally is not None:
                made.tally.add(labels.seen, arm[past], age[past], closed[past], event[past])
        extra: dict[str, Array] = {work.reward: reward}
        keep = closed
        if work.pending != "leave-out":
            assert arm is not None
            assert work.chances is not None
            fraction = work.fraction(labels.seen, arm, np.maximum(age, 0.0))
            fraction = np.where(closed, 1.0, fraction)
            chance = np.array([work.chances[label] for label in labels.seen])[arm]
            weight = np.where(event | closed, 1.0, pending_weight(fraction, chance))
            if work.pending == "thin":
                drawn = row_hashes(work.seed, SALT, start, n) / 2.0**64
                keep = past & (drawn < weight)
            else:
                keep = past
                extra |= {"weight": weight, "fraction": fraction}
        made.rows += int(keep.sum())
        yield self._batch(batch, times, extra, keep)

    def _batch(
        self, batch: Any, times: Array, extra: dict[str, Array], keep: NDArray[np.bool_]
    ) -> Any:
        import pyarrow as pa

        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        if self.time is not None and self.clock.dates:
            micros = np.round(times * 1e6).astype(np.int64)
            columns[self.time] = pa.array(micros).cast(pa.timestamp("us", "UTC"))
        columns |= {name: pa.array(values) for name, values in extra.items()}
        whole = pa.RecordBatch.from_pydict(columns)
        return whole if keep.all() else whole.filter(pa.array(keep))


def _events(outcomes: Outcomes, start: int, size: int) -> tuple[NDArray[np.bool_], Array]:
    """Return which of some rows have a conversion, and their rewards."""
    low, high = np.searchsorted(outcomes.row, [start, start + size])
    at = outcomes.row[low:high] - start
    event, reward = np.zeros(size, dtype=bool), np.zeros(size)
    event[at], reward[at] = True, outcomes.reward[low:high]
    return event, reward
