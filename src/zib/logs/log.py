"""Logs of decisions: which arm was played, what it paid, and what was known at the time."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, Required, TypedDict, Unpack, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from zib.core import validate
from zib.logs.tables import BATCH, LogError

Array = NDArray[np.float64]
Hashes = NDArray[np.uint64]


class LogBatch(NamedTuple):
    """Some consecutive rows of a log.

    Attributes
    ----------
    start
        Number of the first row, counted from 0.
    arm
        Codes into the labels of the log.
    reward
        What the arm paid, counted from the log's `inflated`; exactly zero when nothing happened.
    propensity
        With which probability the arm was chosen, or None.
    context
        (n, d): what was known before choosing; d may be 0.
    time
        When, or None.
    cluster
        64-bit hashes of the cluster each row belongs to, or None.
    """

    start: int
    arm: NDArray[np.int64]
    reward: Array
    propensity: Array | None
    context: Array
    time: Array | None
    cluster: Hashes | None = None


@runtime_checkable
class Log(Protocol):
    """What evaluation and advice need of a log; `LoggedData` and `LogScan` have it."""

    @property
    def arms(self) -> tuple[Hashable, ...]:
        """The labels of the arms; code k stands for ``arms[k]``."""

    @property
    def context_names(self) -> tuple[str, ...]:
        """The names of the columns of the context."""

    @property
    def n_rows(self) -> int:
        """Number of rows."""

    @property
    def has_propensity(self) -> bool:
        """Whether the probabilities of the choices are known."""

    def batches(self, size: int = BATCH) -> Iterator[LogBatch]:
        """Yield all rows in order, at most `size` at a time."""


class Roles(TypedDict, total=False):
    """Which column plays which role, and how the file is written; see `LoggedData.read`."""

    arm: Required[str]
    reward: Required[str]
    propensity: str | None
    context: Sequence[str]
    time: str | None
    unit: str | None
    cluster: str | None
    arms: Sequence[Hashable] | None
    missing_reward: str
    inflated: float
    strip_labels: bool
    sep: str | None
    decimal: str | None
    encoding: str | None
    sheet: str | None


def _frozen(array: Any, dtype: Any = np.float64) -> Any:
    out = np.array(array, dtype=dtype, order="C")
    out.flags.writeable = False
    return out


def _column(name: str, values: Any) -> NDArray[Any]:
    """Return a column as an array with one entry per decision, or raise."""
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise LogError(f"`{name}` must have no masked entries; got {validate.shown(values)}")
    try:
        array = np.asarray(values)
    except ValueError:
        array = np.array(None)
    text = name in ("reward", "propensity") and array.dtype.kind in "US"
    # a bare object prints as an address in memory and names nothing
    blank = array.dtype.kind == "O" and any(type(v) is object for v in array.flat)
    if array.ndim != 1 or array.dtype.kind in "cV" or text or blank:
        raise LogError(
            f"`{name}` must have one entry per decision, all of one kind; "
            f"got {validate.shown(values)}"
        )
    return array


class LoggedData:
    """A log in memory: arms, rewards, and optionally propensities, contexts, times, units
    and clusters.

    Make one with `from_frame`, `read` or `from_arrays`; they check everything once. The arrays are
    read-only. For a file that does not fit into memory use `LogScan`.

    Notes
    -----
    A reward of exactly zero means that nothing happened; where another number means that, such as
    the cost of a contact, it is `inflated`, and `reward` is counted from it. `propensity` is the
    probability with which the arm that was played had been chosen, given the context; without it
    values of other policies can only be estimated under the assumption that the context holds all
    reasons of the choice.

    Examples
    --------
    >>> log = LoggedData.from_arrays(["a", "b", "a"], [0.0, 2.5, 0.0], propensity=[0.5] * 3)
    >>> log
    <LoggedData: 3 rows, 2 arms, 66.7 % zeros, propensities>
    >>> log.arms
    ('a', 'b')
    """

    def __init__(
        self,
        arms: tuple[Hashable, ...],
        context_names: tuple[str, ...],
        columns: LogBatch,
        unit: NDArray[Any] | None = None,
        notes: tuple[str, ...] = (),
        repeated: str | None = None,
        inflated: float = 0.0,
    ) -> None:
        self._arms = arms
        self._context_names = context_names
        self._columns = columns
        self._unit = unit
        self._notes = notes
        self._repeated = repeated
        self._inflated = inflated

    @classmethod
    def from_frame(
        cls,
        frame: Any,
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
        decimal: str | None = None,
    ) -> LoggedData:
        """Return the log in a pandas or Polars frame, or in anything with an Arrow stream.

        Parameters
        ----------
        frame
            One row per decision: a pandas or Polars frame, an Arrow table, reader or dataset, a
            DuckDB relation, or anything else with a method ``__arrow_c_stream__``.
        arm, reward
            Names of the columns with the arm that was played and with what it paid. Amounts of
            money as text ("$1,234.50", "1.234,50 €"), true and false, yes and no will do.
        propensity
            Column with the probability of that choice, in (0, 1].
        context
            Columns with what was known before; a column of text becomes one 0/1 column per value.
        time
            Column with numbers or dates; dates become seconds since 1970 in UTC.
        unit
            Column that names who was treated; units that occur more than once get a warning, since
            their rows are not independent (see `cluster`).
        cluster
            Column with what makes rows belong together, such as the user of several visits: rows
            of one cluster may depend on each other in any way, those of different clusters may
            not. It may be a column of the context, too.
        arms
            The arms in the order wanted; by default those that occur, sorted.
        missing_reward
            "zero" if a blank reward means that nothing happened; by default it is an error.
        inflated
            The reward that means "nothing happened", such as −0.05 where a contact costs 0.05.
            `LoggedData.reward` is counted from it.
        strip_labels
            Whether white space around and between the words of a label counts for nothing, so
            that "C" and "C " are one arm.
        decimal
            The decimal mark of numbers in text, "." or ","; found out by default.
        """
        from zib.logs.read import open_log

        log = open_log(
            frame, arm=arm, reward=reward, propensity=propensity, context=context, time=time,
            unit=unit, cluster=cluster, arms=arms, missing_reward=missing_reward, inflated=inflated,
            strip_labels=strip_labels, decimal=decimal, in_memory=np.inf,
        )  # fmt: skip
        assert isinstance(log, LoggedData)
        return log

    @classmethod
    def read(cls, path: Any, **roles: Unpack[Roles]) -> LoggedData:
        """Return the log in a file.

        Parameters
        ----------
        path
            A text file (CSV and the like) or JSON lines, also packed with gzip, bzip2, xz, zstd or
            zip; a Parquet, Feather or Arrow file, a folder of Parquet files, or a workbook.
        **roles
            The columns and the rest as for `from_frame`; for text files also ``sep`` and
            ``encoding``, for workbooks ``sheet``. Left out, these are found out; `notes` tells.
        """
        from zib.logs.read import open_log

        log = open_log(str(path), in_memory=np.inf, **roles)
        assert isinstance(log, LoggedData)
        return log

    @classmethod
    def from_arrays(
        cls,
        arm: ArrayLike,
        reward: ArrayLike,
        *,
        propensity: ArrayLike | None = None,
        context: ArrayLike | None = None,
        context_names: Sequence[str] | None = None,
        time: ArrayLike | None = None,
        unit: ArrayLike | None = None,
        cluster: ArrayLike | None = None,
        arms: Sequence[Hashable] | None = None,
        inflated: float = 0.0,
    ) -> LoggedData:
        """Return the log in these arrays, one entry (or row of `context`) per decision."""
        import pandas as pd

        columns: dict[str, Any] = {"arm": list(_column("arm", arm).tolist())}
        given = {
            "reward": reward, "propensity": propensity, "time": time, "unit": unit,
            "cluster": cluster,
        }  # fmt: skip
        for name, values in given.items():
            if values is not None or name == "reward":
                columns[name] = values if hasattr(values, "dtype") else _column(name, values)
                _column(name, values)
                if len(columns[name]) != len(columns["arm"]):
                    raise LogError(
                        f"`{name}` must have as many entries as `arm`, {len(columns['arm'])}; "
                        f"got {len(columns[name])}"
                    )
        names: list[str] = []
        if context is not None:
            matrix = validate.numbers("context", context)
            if matrix.ndim != 2 or len(matrix) != len(columns["arm"]):
                raise LogError(
                    f"`context` must have one row per decision; got shape {matrix.shape}"
                )
            names = [f"x{j}" for j in range(matrix.shape[1])]
            if context_names is not None:
                names = list(validate.words("context_names", context_names))
                if len(set(names)) != matrix.shape[1] or len(names) != matrix.shape[1]:
                    raise LogError(
                        f"`context_names` must name {matrix.shape[1]} different columns; "
                        f"got {validate.shown(context_names)}"
                    )
            clash = set(names) & {"arm", *given}
            if clash:
                raise LogError(f"`context_names` must not hold {sorted(clash)[0]!r}")
            columns |= {name: matrix[:, j] for j, name in enumerate(names)}
        return cls.from_frame(
            pd.DataFrame(columns), arm="arm", reward="reward",
            propensity="propensity" if propensity is not None else None, context=names,
            time="time" if time is not None else None, unit="unit" if unit is not None else None,
            cluster="cluster" if cluster is not None else None, arms=arms, inflated=inflated,
        )  # fmt: skip

    @property
    def arms(self) -> tuple[Hashable, ...]:
        """The labels of the arms; code k stands for ``arms[k]``."""
        return self._arms

    @property
    def context_names(self) -> tuple[str, ...]:
        """The names of the columns of the context."""
        return self._context_names

    @property
    def arm(self) -> NDArray[np.int64]:
        """The code of the arm played in each row."""
        return self._columns.arm

    @property
    def reward(self) -> Array:
        """The reward of each row, counted from `inflated`; zero: nothing happened."""
        return self._columns.reward

    @property
    def inflated(self) -> float:
        """The reward that means "nothing happened", in the units of the log."""
        return self._inflated

    @property
    def propensity(self) -> Array | None:
        """The probability of the choice of each row, or None."""
        return self._columns.propensity

    @property
    def context(self) -> Array:
        """(n_rows, n_features)."""
        return self._columns.context

    @property
    def time(self) -> Array | None:
        """The time of each row, or None."""
        return self._columns.time

    @property
    def unit(self) -> NDArray[Any] | None:
        """Who was treated in each row, or None."""
        return self._unit

    @property
    def cluster(self) -> Hashes | None:
        """A 64-bit hash of the cluster of each row, or None."""
        return self._columns.cluster

    @property
    def notes(self) -> tuple[str, ...]:
        """How the file was read, where that was a choice; one sentence each."""
        return self._notes

    @property
    def repeated(self) -> str | None:
        """The column of the units, if some occur more than once and no cluster is named."""
        return self._repeated

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.reward.size)

    @property
    def n_arms(self) -> int:
        """Number of arms."""
        return len(self._arms)

    @property
    def n_features(self) -> int:
        """Number of columns of the context."""
        return len(self._context_names)

    @property
    def has_propensity(self) -> bool:
        """Whether the probabilities of the choices are known."""
        return self.propensity is not None

    def batches(self, size: int = BATCH) -> Iterator[LogBatch]:
        """Yield all rows in order, at most `size` at a time."""
        for start in range(0, self.n_rows, size):
            rows = slice(start, start + size)
            yield LogBatch(start, *(None if x is None else x[rows] for x in self._columns[1:]))  # type: ignore[arg-type]

    def subset(self, rows: ArrayLike) -> LoggedData:
        """Return the rows picked by a mask or by their numbers; the arms stay as they are."""
        picked = self._picked(rows)
        columns = (None if x is None else _frozen(x[picked], x.dtype) for x in self._columns[1:])
        unit = None if self._unit is None else self._unit[picked]
        batch = LogBatch(0, *columns)  # type: ignore[arg-type]
        return self._like(batch, unit)

    def _like(self, columns: LogBatch, unit: NDArray[Any] | None) -> LoggedData:
        """Return a log of other rows that is like this one otherwise."""
        return LoggedData(
            self._arms, self._context_names, columns, unit, self._notes, self._repeated,
            self._inflated,
        )  # fmt: skip

    def _picked(self, rows: ArrayLike) -> NDArray[Any]:
        """Return the rows to pick, as a mask or as whole numbers, or raise."""
        numbers = validate.numbers("rows", rows)
        picked = np.asarray(rows)
        n, is_mask = self.n_rows, picked.dtype.kind == "b"
        if picked.ndim != 1 or (is_mask and picked.size != n) or (numbers % 1 != 0).any():
            raise LogError(
                f"`rows` must be a mask of {n} entries or whole numbers; got {validate.shown(rows)}"
            )
        if not is_mask:
            validate.inside("rows", numbers, -n, n - 1)
        return picked if is_mask else numbers.astype(np.int64)

    def with_propensity(self, propensity: ArrayLike) -> LoggedData:
        """Return the same log with these probabilities of the choices."""
        values = validate.numbers("propensity", propensity)
        if values.shape != self.reward.shape:
            raise LogError(
                f"`propensity` must have one entry per row ({self.n_rows}); got {values.shape}"
            )
        bad = ~((values > 0) & (values <= 1))
        if bad.any():
            at = int(np.argmax(bad))
            raise LogError(f"`propensity` must lie in (0, 1]; row {at + 1} holds {values[at]!r}")
        columns = self._columns._replace(propensity=_frozen(values))
        return self._like(columns, self._unit)

    def to_frame(self) -> Any:
        """Return a pandas frame with the columns of the log."""
        import pandas as pd

        labels = np.empty(self.n_arms, dtype=object)
        labels[:] = self._arms
        reward = self.reward + self._inflated
        columns: dict[str, Any] = {"arm": labels[self.arm], "reward": reward}
        for name, values in (
            ("propensity", self.propensity), ("time", self.time), ("unit", self._unit),
            ("cluster", self.cluster),
        ):  # fmt: skip
            if values is not None:
                columns[name] = values
        columns |= {name: self.context[:, j] for j, name in enumerate(self._context_names)}
        return pd.DataFrame(columns)

    def __len__(self) -> int:
        return self.n_rows

    def __repr__(self) -> str:
        return f"<LoggedData: {describe(self)}, {_zeros(self.reward)}{extras(self)}>"


def _zeros(reward: Array) -> str:
    return f"{100 * float(np.mean(reward == 0.0)):.1f} % zeros"


def describe(log: Log) -> str:
    """Return the size of a log in words."""
    return f"{log.n_rows} rows, {len(log.arms)} arms"


def extras(log: Log) -> str:
    """Return in words what a log has besides arms and rewards."""
    out = f", {len(log.context_names)} features" if log.context_names else ""
    return out + (", propensities" if log.has_propensity else "")


def inflated_of(log: Log) -> float:
    """Return the reward of a log that means "nothing happened"."""
    return float(getattr(log, "inflated", 0.0))
