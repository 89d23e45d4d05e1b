"""`LogScan`: a log that stays in its file and is read in batches, as often as needed."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zib.logs.columns import MANY_ARMS, MANY_LEVELS, Labels, looks_numeric, numbers, times
from zib.logs.log import LogBatch, LoggedData, describe, extras
from zib.logs.tables import BATCH, LogError, open_table

MOST_UNITS = 50_000_000  # kept as 8 bytes each to find repetitions


class LogScan:
    """A log in a CSV or Parquet file, checked once and then streamed.

    Parameters
    ----------
    source
        Path of a CSV file (possibly compressed), of a Parquet file or of a folder of them; or a
        frame.
    arm, reward, propensity, context, time, unit, arms
        As for `LoggedData.from_frame`.

    Notes
    -----
    Creating a scan reads the columns once, checks every row and collects the labels. After that
    `batches` reads again from the file, whatever its size, in memory that does not grow with it.
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
        arms: Sequence[Hashable] | None = None,
    ) -> None:
        if isinstance(context, str):
            context = (context,)
        self._source = source
        self._table = open_table(source)
        find = self._table.require
        self._arm, self._reward = find("arm", arm), find("reward", reward)
        self._propensity = None if propensity is None else find("propensity", propensity)
        self._context = tuple(find("context", name) for name in context)
        self._time = None if time is None else find("time", time)
        self._unit = None if unit is None else find("unit", unit)
        optional = (self._propensity, self._time, self._unit)
        columns = [self._arm, self._reward, *self._context, *(c for c in optional if c)]
        repeated = sorted({name for name in columns if columns.count(name) > 1})
        if repeated:
            raise LogError(f"column `{repeated[0]}` is used twice; each column has one role")
        self._columns = columns
        self._arm_labels = Labels(
            self._arm, MANY_ARMS, "an arm should be chosen again and again: bin the values"
        )
        self._levels: dict[str, Labels] = {}
        self._stamp = _stamp(source)
        self._n_rows = self._check()
        self._arms = self._arm_labels.settle(arms)
        names: list[str] = []
        for name in self._context:
            if name in self._levels:
                names += [f"{name}={level}" for level in self._levels[name].settle()]
            else:
                names.append(name)
        self._context_names = tuple(names)

    def _check(self) -> int:
        """Read everything once: check it and collect labels; return the number of rows."""
        units = _Units(self._unit) if self._unit is not None else None
        n = 0
        for batch in self._raw(BATCH):
            if n == 0:
                for name in self._context:
                    if not looks_numeric(batch.column(name)):
                        advice = "use a column with fewer values, or a number"
                        self._levels[name] = Labels(name, MANY_LEVELS, advice)
            self._decode(batch, n)
            if units is not None:
                units.add(batch.column(self._unit), n)
            n += batch.num_rows
        if n == 0:
            raise LogError(f"{self._table.name} has no rows")
        if units is not None:
            units.check(self)
        return n

    def _raw(self, size: int) -> Iterator[Any]:
        for batch in self._table.batches(self._columns, size):
            if batch.num_rows:
                yield batch

    def _decode(self, batch: Any, start: int) -> LogBatch:
        propensity = self._propensity and numbers(
            self._propensity, batch.column(self._propensity), start, low=0.0, open_low=True,
            high=1.0, why=" (the arm of that row was played, so it had a chance)",
        )  # fmt: skip
        return LogBatch(
            start,
            self._arm_labels.codes(batch.column(self._arm), start),
            numbers(self._reward, batch.column(self._reward), start),
            propensity if propensity is not None else None,  # type: ignore[arg-type]
            self._decode_context(batch, start),
            None if self._time is None else times(self._time, batch.column(self._time), start),
        )

    def _decode_context(self, batch: Any, start: int) -> NDArray[np.float64]:
        parts = []
        for name in self._context:
            values = batch.column(name)
            if name not in self._levels:
                parts.append(numbers(name, values, start)[:, None])
                continue
            labels = self._levels[name]
            codes = labels.codes(values, start)
            if labels.order is not None:  # before that the number of levels is not known
                parts.append((codes[:, None] == np.arange(labels.order.size)).astype(np.float64))
        return np.hstack(parts) if parts else np.empty((batch.num_rows, 0))

    @property
    def arms(self) -> tuple[Hashable, ...]:
        """The labels of the arms; code k stands for ``arms[k]``."""
        return self._arms

    @property
    def context_names(self) -> tuple[str, ...]:
        """The names of the columns of the context."""
        return self._context_names

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self._n_rows

    @property
    def has_propensity(self) -> bool:
        """Whether the probabilities of the choices are known."""
        return self._propensity is not None

    def batches(self, size: int = BATCH) -> Iterator[LogBatch]:
        """Yield all rows in order, at most `size` at a time."""
        if _stamp(self._source) != self._stamp:
            raise LogError(f"{self._table.name} has changed since it was checked; open it again")
        n = 0
        for batch in self._raw(size):
            yield self._decode(batch, n)
            n += batch.num_rows

    def load(self) -> LoggedData:
        """Return the whole log in memory."""
        parts = list(self.batches())

        def joined(field: str) -> Any:
            if getattr(parts[0], field) is None:
                return None
            whole = np.concatenate([getattr(part, field) for part in parts])
            whole.flags.writeable = False
            return whole

        columns = LogBatch(
            0, joined("arm"), joined("reward"), joined("propensity"), joined("context"),
            joined("time"),
        )  # fmt: skip
        unit = None if self._unit is None else self._units()
        return LoggedData(self._arms, self._context_names, columns, unit)

    def _units(self) -> NDArray[Any]:
        batches = self._table.batches([str(self._unit)])
        values = [value for batch in batches for value in batch.column(0).to_pylist()]
        out = np.empty(len(values), dtype=object)
        out[:] = values
        out.flags.writeable = False
        return out

    def unit_at(self, rows: Sequence[int]) -> list[Any]:
        """Return the units of a few rows."""
        found: dict[int, Any] = {}
        n = 0
        for batch in self._table.batches([str(self._unit)]):
            for row in rows:
                if n <= row < n + batch.num_rows:
                    found[row] = batch.column(0)[row - n].as_py()
            n += batch.num_rows
        return [found[row] for row in rows]

    def __len__(self) -> int:
        return self._n_rows

    def __repr__(self) -> str:
        return f"<LogScan: {describe(self)}{extras(self)}>"


def _stamp(source: Any) -> tuple[tuple[int, int], ...] | None:
    if not isinstance(source, (str, Path)):
        return None
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
        from pandas.util import hash_array

        if values.null_count:
            at = int(np.argmax(values.is_null().to_numpy(zero_copy_only=False)))
            raise LogError(
                f"column `{self._column}` must name a unit in every row; row {start + at + 1} is "
                "missing"
            )
        array = values.to_numpy(zero_copy_only=False)
        if self._increasing and array.dtype.kind in "iu":
            steps = bool(np.all(array[1:] > array[:-1]))
            self._increasing = steps and (self._last is None or array[0] > self._last)
            self._last = array[-1]
        else:
            self._increasing = False
        self._rows += len(array)
        if self._rows <= MOST_UNITS:
            self._hashes.append(hash_array(array, categorize=False))

    def check(self, log: LogScan) -> None:
        if self._increasing:
            return
        if self._rows > MOST_UNITS:
            warnings.warn(
                f"column `{self._column}` was not checked for units that occur twice: the log has "
                f"more than {MOST_UNITS} rows and the units are not in increasing order",
                UserWarning,
                stacklevel=4,
            )
            return
        hashes = np.concatenate(self._hashes)
        order = np.argsort(hashes, kind="stable")
        equal = np.flatnonzero(hashes[order[1:]] == hashes[order[:-1]])
        for i in equal[np.argsort(order[equal + 1])][:100]:  # the first repetition in the file
            first, second = int(order[i]), int(order[i + 1])
            one, other = log.unit_at([first, second])
            if one == other:
                raise LogError(
                    f"column `{self._column}` must name each unit once; rows {first + 1} and "
                    f"{second + 1} both hold {one!r}"
                )
