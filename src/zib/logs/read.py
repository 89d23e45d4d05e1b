"""From tables to logs: which column plays which role, and what is in its rows.

`LogScan` is a log that stays in its file. `open_log` reads a file once and returns the log in
memory if it is short enough, else a `LogScan`.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Unpack

import numpy as np
from numpy.typing import NDArray

from zib.core import validate
from zib.logs.amounts import LARGEST, Numbers, looks_numeric
from zib.logs.columns import MANY_ARMS, MANY_LEVELS, Labels, hashes
from zib.logs.dates import Times
from zib.logs.doubts import about_context, about_labels, refuse_late
from zib.logs.log import LogBatch, LoggedData, Roles, describe, extras
from zib.logs.tables import BATCH, LogError, Table, is_url, open_table

Array = NDArray[np.float64]
Codes = NDArray[np.int64]
Hashes = NDArray[np.uint64]

MOST_UNITS = 50_000_000  # kept as 8 bytes each to find repetitions


class _Rows(NamedTuple):
    """Checked rows before the order of the labels is known: labels are codes by appearance."""

    start: int
    arm: Codes
    reward: Array
    propensity: Array | None
    context: tuple[Array | Codes, ...]
    time: Array | None
    cluster: Hashes | None
    unit: list[Any] | None


class _Layout:
    """Which column of a table plays which role, and the labels that occur in it."""

    def __init__(
        self,
        source: Any,
        *,
        arm: str,
        reward: str,
        propensity: str | None = None,
        context: Sequence[str] = (),
        time: str | None = None,
        unit: str | None = None,
        cluster: str | None = None,
        arms: Sequence[Hashable] | None = None,
        missing_reward: str = "error",
        inflated: float = 0.0,
        strip_labels: bool = False,
        sep: str | None = None,
        decimal: str | None = None,
        encoding: str | None = None,
        sheet: str | None = None,
    ) -> None:
        validate.choice("missing_reward", missing_reward, ("error", "zero"))
        validate.flag("strip_labels", strip_labels)
        self.inflated = validate.real("inflated", inflated, -LARGEST, LARGEST)
        self.table = open_table(source, sep=sep, decimal=decimal, encoding=encoding, sheet=sheet)
        self._source, self._stamp = source, _stamp(source, self.table)
        find = self.table.require
        self._arm, self._reward = find("arm", arm), find("reward", reward)
        self.propensity = None if propensity is None else find("propensity", propensity)
        names = (context,) if isinstance(context, str) else validate.words("context", context)
        self._context = tuple(find("context", name) for name in names)
        self._time = None if time is None else find("time", time)
        self.unit = None if unit is None else find("unit", unit)
        optional = (self.propensity, self._time, self.unit)
        self._columns = [self._arm, self._reward, *self._context, *(c for c in optional if c)]
        repeated = sorted({c for c in self._columns if self._columns.count(c) > 1})
        if repeated:
            raise LogError(f"column `{repeated[0]}` is used twice; each column has one role")
        self._cluster = None if cluster is None else find("cluster", cluster)
        if self._cluster is not None:
            if self._cluster in (self._arm, self._reward, self.propensity, self.unit):
                raise LogError(
                    f"column `{self._cluster}` is used twice; a cluster may only be a column of "
                    "the context or the time besides"
                )
            if self._cluster not in self._columns:
                self._columns.append(self._cluster)
        self.repeated: str | None = None  # the column of units, where some occur again
        self._labels = Labels(
            self._arm, MANY_ARMS, "an arm should be chosen again and again: bin the values",
            strip=strip_labels,
        )  # fmt: skip
        self._levels: dict[str, Labels] = {}
        self._numbers = {
            name: Numbers(name, self.table.decimal, self.table.comma_likely)
            for name in (self._reward, *self._context)
        }
        rewards = self._numbers[self._reward]
        rewards.blank = self.inflated if missing_reward == "zero" else None
        rewards.hint = (
            "fill it in, or say --missing-reward zero, missing_reward='zero' in Python, if blank "
            "means that nothing happened"
        )
        if self.propensity is not None:
            self._numbers[self.propensity] = Numbers(
                self.propensity, self.table.decimal, self.table.comma_likely, low=0.0,
                open_low=True, high=1.0,
                why=" (the arm of that row was played, so it had a chance)",
            )  # fmt: skip
        self._times = None if self._time is None else Times(self._time, self.table.comma_likely)
        self.notes: tuple[str, ...] = ()
        self._wanted = None if arms is None else validate.labels("arms", arms)

    def check(self, keep: float) -> tuple[int, list[_Rows] | None]:
        """Read everything once: check it, collect the labels and fix their order.

        Returns the number of rows, and the rows themselves if there are at most `keep`.
        """
        units = _Units(self.unit) if self.unit is not None else None
        kept: list[_Rows] | None = []
        n = 0
        for batch in self._raw(BATCH):
            if n == 0:
                for name in self._context:
                    if not looks_numeric(batch.column(name)):
                        advice = "use a column with fewer values, or a number"
                        self._levels[name] = Labels(
                            name, MANY_LEVELS, advice, strip=self._labels.strip
                        )
            if kept is not None and n + batch.num_rows > keep:
                kept = None
            rows = self._decode(batch, n, with_units=kept is not None)
            if n == 0:
                context = dict(zip(self._context, rows.context, strict=True))
                doubts = about_context(context, rows.arm, rows.reward)
            if kept is not None:
                kept.append(rows)
            if units is not None:
                units.add(batch.column(self.unit), n)
            n += batch.num_rows
        if n == 0:
            raise LogError(f"{self.table.name} has no rows")
        if units is not None and units.repeat(self) and self._cluster is None:
            self.repeated = self.unit
        self.arms = self._labels.settle(self._wanted)
        names: list[str] = []
        for name in self._context:
            levels = self._levels.get(name)
            names += [f"{name}={level}" for level in levels.settle()] if levels else [name]
        self.context_names = tuple(names)
        for labels in (self._labels, *self._levels.values()):
            doubts += about_labels(labels)
        for doubt in doubts:
            warnings.warn(doubt, UserWarning, stacklevel=4)
        readers: list[Numbers | Times] = [
            *self._numbers.values(),
            *([self._times] if self._times else []),
        ]
        self.notes = (*self.table.notes, *(note for reader in readers for note in reader.notes))
        return n, kept

    def _raw(self, size: int) -> Iterator[Any]:
        for batch in self.table.batches(self._columns, size):
            if batch.num_rows:
                yield batch

    def _decode(self, batch: Any, start: int, with_units: bool = False) -> _Rows:
        def number(name: str) -> Array:
            return self._numbers[name].read(batch.column(name), start)

        arm, reward = self._labels.codes(batch.column(self._arm), start), number(self._reward)
        if self.inflated:
            reward = reward - self.inflated
        if start == 0:
            for name in self._context:
                refuse_late(name, batch.column(name), reward)
        return _Rows(
            start,
            arm,
            reward,
            None if self.propensity is None else number(self.propensity),
            tuple(
                self._levels[name].codes(batch.column(name), start)
                if name in self._levels
                else number(name)
                for name in self._context
            ),
            None if self._times is None else self._times.read(batch.column(self._time), start),
            self._hashes(batch, start),
            batch.column(self.unit).to_pylist() if with_units and self.unit is not None else None,
        )

    def _hashes(self, batch: Any, start: int) -> Hashes | None:
        """Return the clusters; units stand in, since only the end shows whether they repeat."""
        for column, what in ((self._cluster, "cluster"), (self.unit, "unit")):
            if column is not None:
                return hashes(column, batch.column(column), start, what)
        return None

    def finished(self, rows: _Rows) -> LogBatch:
        """Return the rows with final codes and one column per level of a text."""
        parts = []
        for name, values in zip(self._context, rows.context, strict=True):
            if name in self._levels:
                levels = self._levels[name]
                codes = levels.final(values)
                parts.append((codes[:, None] == np.arange(len(levels.seen))).astype(np.float64))
            else:
                parts.append(np.asarray(values, dtype=np.float64)[:, None])
        context = np.hstack(parts) if parts else np.empty((rows.reward.size, 0))
        arm = self._labels.final(rows.arm)
        cluster = None if self._cluster is None and self.repeated is None else rows.cluster
        return LogBatch(rows.start, arm, rows.reward, rows.propensity, context, rows.time, cluster)

    def batches(self, size: int, part: tuple[int, int] | None = None) -> Iterator[LogBatch]:
        """Read the table or some rows of it again, unless its file has changed since."""
        if _stamp(self._source, self.table) != self._stamp:
            raise LogError(f"{self.table.name} has changed since it was checked; open it again")
        found = self.table.rows(self._columns, *part, size) if part else self._raw(size)
        n = part[0] if part else 0
        for batch in found:
            yield self.finished(self._decode(batch, n))
            n += batch.num_rows

    def units(self) -> Iterator[list[Any]]:
        """Read the column of the units again."""
        for batch in self.table.batches([str(self.unit)]):
            yield batch.column(0).to_pylist()

    def load(self, batches: list[LogBatch], units: list[list[Any]] | None) -> LoggedData:
        """Return the log in memory."""

        def joined(field: str) -> Any:
            if getattr(batches[0], field) is None:
                return None
            whole = np.concatenate([getattr(part, field) for part in batches])
            whole.flags.writeable = False
            return whole

        columns = LogBatch(
            0, joined("arm"), joined("reward"), joined("propensity"), joined("context"),
            joined("time"), joined("cluster"),
        )  # fmt: skip
        names: NDArray[Any] | None = None
        if units is not None:
            names = np.empty(sum(map(len, units)), dtype=object)
            names[:] = [value for part in units for value in part]
            names.flags.writeable = False
        return LoggedData(
            self.arms, self.context_names, columns, names, self.notes, self.repeated, self.inflated
        )


def open_log(
    source: Any, *, in_memory: float = 3_000_000, **roles: Unpack[Roles]
) -> LoggedData | LogScan:
    """Read a log once; return it in memory if it has at most `in_memory` rows, else a `LogScan`.

    Parameters
    ----------
    source
        As for `LogScan`.
    in_memory
        Number of rows up to which the log is kept in memory.
    **roles
        The columns ``arm``, ``reward``, ``propensity``, ``context``, ``time``, ``unit`` and
        ``cluster``, and ``arms``, ``missing_reward``, ``inflated``, ``strip_labels``, ``sep``,
        ``decimal``, ``encoding`` and ``sheet``, as for `LoggedData.from_frame` and
        `LoggedData.read`.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"ad": [1, 0, 1], "spent": [0.0, 3.0, 0.0]})
    >>> open_log(frame, arm="ad", reward="spent")
    <LoggedData: 3 rows, 2 arms, 66.7 % zeros>
    >>> open_log(frame, arm="ad", reward="spent", in_memory=2)
    <LogScan: 3 rows, 2 arms>
    """
    if not (isinstance(in_memory, float) and in_memory == np.inf):
        validate.real("in_memory", in_memory, low=0)
    layout = _Layout(source, **roles)
    n, kept = layout.check(in_memory)
    if kept is None:
        return LogScan._of(layout, n)
    units = None if layout.unit is None else [rows.unit or [] for rows in kept]
    return layout.load([layout.finished(rows) for rows in kept], units)


class LogScan:
    """A log in a file, checked once and then streamed.

    Parameters
    ----------
    source
        Path of a file as for `LoggedData.read`, or of a folder of Parquet files; or a frame or
        anything else with an Arrow stream, as for `LoggedData.from_frame`.
    **roles
        The columns ``arm``, ``reward``, ``propensity``, ``context``, ``time``, ``unit`` and
        ``cluster``, and ``arms``, ``missing_reward``, ``inflated``, ``strip_labels``, ``sep``,
        ``decimal``, ``encoding`` and ``sheet``, as for `LoggedData.from_frame` and
        `LoggedData.read`.

    Notes
    -----
    Creating a scan reads the columns once, checks every row and collects the labels. After that
    `batches` reads again from the file, whatever its size, in memory that does not grow with it
    (workbooks and JSON lists, though, are read as a whole).
    Repeated units are found for up to fifty million rows (any number when they come in increasing
    order); beyond that a warning says that it was not checked.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"ad": [1, 0, 1], "spent": [0.0, 3.0, 0.0]})
    >>> scan = LogScan(frame, arm="ad", reward="spent")
    >>> scan
    <LogScan: 3 rows, 2 arms>
    >>> [batch.reward.tolist() for batch in scan.batches(size=2)]
    [[0.0, 3.0], [0.0]]
    """

    def __init__(self, source: Any, **roles: Unpack[Roles]) -> None:
        self._layout = _Layout(source, **roles)
        self._n_rows, _ = self._layout.check(keep=0)

    @classmethod
    def _of(cls, layout: _Layout, n_rows: int) -> LogScan:
        out = cls.__new__(cls)
        out._layout, out._n_rows = layout, n_rows
        return out

    @property
    def arms(self) -> tuple[Hashable, ...]:
        """The labels of the arms; code k stands for ``arms[k]``."""
        return self._layout.arms

    @property
    def context_names(self) -> tuple[str, ...]:
        """The names of the columns of the context."""
        return self._layout.context_names

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self._n_rows

    @property
    def has_propensity(self) -> bool:
        """Whether the probabilities of the choices are known."""
        return self._layout.propensity is not None

    @property
    def inflated(self) -> float:
        """The reward that means "nothing happened"; batches hold rewards counted from it."""
        return self._layout.inflated

    @property
    def notes(self) -> tuple[str, ...]:
        """How the file was read, where that was a choice; one sentence each."""
        return self._layout.notes

    def batches(self, size: int = BATCH) -> Iterator[LogBatch]:
        """Yield all rows in order, at most `size` at a time."""
        yield from self._layout.batches(size)

    @property
    def seekable(self) -> bool:
        """Whether some rows can be read without those before, so that others may do it."""
        return self._layout.table.n_rows is not None

    def rows(self, start: int, stop: int) -> Iterator[LogBatch]:
        """Yield the rows from number `start` to before `stop`; only if `seekable`."""
        yield from self._layout.batches(BATCH, (start, stop))

    @property
    def repeated(self) -> str | None:
        """The column of the units, if some occur more than once and no cluster is named."""
        return self._layout.repeated

    def load(self) -> LoggedData:
        """Return the whole log in memory."""
        units = None if self._layout.unit is None else list(self._layout.units())
        return self._layout.load(list(self.batches()), units)

    def __len__(self) -> int:
        return self._n_rows

    def __repr__(self) -> str:
        return f"<LogScan: {describe(self)}{extras(self)}>"


def _stamp(source: Any, table: Table) -> tuple[tuple[int, int], ...] | None:
    if not isinstance(source, (str, Path)) or is_url(source):
        return table.stamp()
    path = Path(source)
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    return tuple((file.stat().st_mtime_ns, file.stat().st_size) for file in files)


class _Units:
    """Finds units that occur twice, by 64-bit hashes."""

    def __init__(self, column: str) -> None:
        self._column = column
        self._hashes: list[NDArray[np.uint64]] = []
        self._rows = 0
        self._increasing = True
        self._last: Any = None

    def add(self, values: Any, start: int) -> None:
        found = hashes(self._column, values, start, "unit")
        array = values.to_numpy(zero_copy_only=False)
        if self._increasing and array.dtype.kind in "iu":
            steps = bool(np.all(array[1:] > array[:-1]))
            self._increasing = steps and (self._last is None or array[0] > self._last)
            self._last = array[-1]
        else:
            self._increasing = False
        self._rows += len(array)
        if self._rows <= MOST_UNITS:
            self._hashes.append(found)

    def repeat(self, layout: _Layout) -> bool:
        """Return whether some unit occurs more than once, with a warning."""
        if self._increasing:
            return False
        if self._rows > MOST_UNITS:
            warnings.warn(
                f"column `{self._column}` was not checked for units that occur twice: the log has "
                f"more than {MOST_UNITS} rows and the units are not in increasing order",
                UserWarning,
                stacklevel=4,
            )
            return False
        found = np.concatenate(self._hashes)
        order = np.argsort(found, kind="stable")
        equal = np.flatnonzero(found[order[1:]] == found[order[:-1]])
        for i in equal[np.argsort(order[equal + 1])][:100]:  # the first repetition in the file
            first, second = int(order[i]), int(order[i + 1])
            one, other = _at(layout.units(), first, second)
            if one == other:
                warnings.warn(
                    f"column `{self._column}` names some units more than once ({equal.size} rows "
                    f"repeat an earlier one; rows {first + 1} and {second + 1} both hold {one!r}); "
                    f"rows of one unit are not independent, "
                    f"so name it as the cluster instead: --cluster {self._column} "
                    f"(cluster={self._column!r} in Python)",
                    UserWarning,
                    stacklevel=5,
                )
                return True
        return False


def _at(units: Iterator[list[Any]], *rows: int) -> list[Any]:
    """Return the units of a few rows."""
    found: dict[int, Any] = {}
    n = 0
    for part in units:
        found |= {row: part[row - n] for row in rows if n <= row < n + len(part)}
        n += len(part)
    return [found[row] for row in rows]
