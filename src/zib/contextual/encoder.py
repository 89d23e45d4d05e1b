"""`Encoder`: from what is known about a user to the numbers a contextual policy learns from.

An encoder is fitted to a table once and then turns tables, or one dictionary at a time, into rows
of features. It is data: a few numbers and levels per column, saved inside the bandit that uses it.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from zib.contextual.tables import Frame, is_missing
from zib.core import validate as check
from zib.core.saved import SavedStateError
from zib.core.validate import InvalidParameterError, InvalidTypeError

Matrix = NDArray[np.float64]
Level = str | int | float

LARGEST = 1e100  # of a number in a column, and one over the smallest scale
MOST_LEVELS = 100_000  # that may be asked for
RARE_SHARE, RARE_AT_MOST = 100, 10  # a level is rare below 1 % of the rows, and below 10 rows


# ---------------------------------------------------------------------------------------- columns


class Number(NamedTuple):
    """A column of numbers, centred and scaled; a gap is the mean and a feature that says so."""

    name: str
    mean: float
    scale: float
    low: float  # the smallest and the largest number of the table
    high: float
    has_missing: bool

    @classmethod
    def fitted(cls, name: str, frame: Frame) -> Self:
        """Learn the column of a table."""
        values = frame.numbers(name)
        known = values[~np.isnan(values)]
        _need_values(name, known.size)
        check.inside(f"{name}", known, -LARGEST, LARGEST)
        scale = float(known.std())
        return cls(
            name,
            float(known.mean()),
            scale if scale > 1e-12 * float(np.abs(known).max()) + 1 / LARGEST else 1.0,
            float(known.min()),
            float(known.max()),
            known.size < values.size,
        )

    @property
    def ends(self) -> tuple[float, float]:
        """Values beyond are far outside what the table held: further than its range is wide."""
        width = self.high - self.low
        return self.low - width, self.high + width

    @property
    def names(self) -> list[str]:
        """The names of the features."""
        return [self.name, f"{self.name} missing"] if self.has_missing else [self.name]

    def write(self, given: Any, out: Matrix, at: int) -> bool:
        """Write the features of one value; whether it was far outside."""
        given = self._number(given)
        if given != given:
            if self.has_missing:
                out[at + 1] = 1.0
            return False
        low, high = self.ends
        far = not low <= given <= high
        if far:
            given = self._clipped(given)
        out[at] = (given - self.mean) / self.scale
        return far

    def write_all(self, frame: Frame, out: Matrix, at: int) -> float | None:
        """Write the features of a whole column; return a value that was far outside, if any."""
        values = frame.numbers(self.name)
        missing = np.isnan(values)
        low, high = self.ends
        far = (values < low) | (values > high)
        found = float(values[np.argmax(far)]) if far.any() else None
        if np.isinf(values).any():
            self._clipped(float(values[np.argmax(np.isinf(values))]))
        scaled = (np.clip(values, low, high) - self.mean) / self.scale
        out[:, at] = np.where(missing, 0.0, scaled)
        if self.has_missing:
            out[:, at + 1] = missing
        return found

    def _number(self, given: Any) -> float:
        if is_missing(given):
            return math.nan
        if isinstance(given, np.bool_):
            return float(given)
        if isinstance(given, (float, int, np.integer, np.floating)):
            return float(given)
        raise InvalidTypeError(
            f"`features` must hold a number or None for {self.name!r}; got {check.shown(given)}"
        )

    def _clipped(self, given: float) -> float:
        if math.isinf(given):
            raise InvalidParameterError(
                f"`features` must hold a finite number or None for {self.name!r}; got {given}"
            )
        low, high = self.ends
        return min(max(given, low), high)

    def checked(self) -> Self:
        """Return the column of a file, or raise."""
        for key in ("mean", "low", "high"):
            check.real(key, getattr(self, key), -LARGEST, LARGEST)
        check.real("scale", self.scale, 1 / LARGEST, LARGEST)
        check.flag("has_missing", self.has_missing)
        if not self.low <= self.mean * (1 + 1e-9 * math.copysign(1, self.mean)):
            raise ValueError("`mean` is below `low`")
        if not self.low <= self.high:
            raise ValueError("`low` is above `high`")
        return self


class Flag(NamedTuple):
    """A column of True and False: 1 and 0; where missing 0 and a feature that says so."""

    name: str
    has_missing: bool

    @classmethod
    def fitted(cls, name: str, frame: Frame) -> Self:
        """Learn the column of a table."""
        values = frame.numbers(name)
        missing = np.isnan(values)
        _need_values(name, int((~missing).sum()))
        return cls(name, bool(missing.any()))

    @property
    def names(self) -> list[str]:
        """The names of the features."""
        return [self.name, f"{self.name} missing"] if self.has_missing else [self.name]

    def write(self, given: Any, out: Matrix, at: int) -> bool:
        """Write the features of one value."""
        if is_missing(given):
            if self.has_missing:
                out[at + 1] = 1.0
        elif isinstance(given, (bool, np.bool_, int, float, np.number)) and given in (0, 1):
            out[at] = float(given)
        else:
            raise InvalidTypeError(
                f"`features` must hold True, False or None for {self.name!r}; "
                f"got {check.shown(given)}"
            )
        return False

    def write_all(self, frame: Frame, out: Matrix, at: int) -> None:
        """Write the features of a whole column."""
        values = frame.numbers(self.name)
        missing = np.isnan(values)
        wrong = ~missing & (values != 0.0) & (values != 1.0)
        if wrong.any():
            self.write(float(values[np.argmax(wrong)]), out[0], at)  # raises
        out[:, at] = np.where(missing, 0.0, values)
        if self.has_missing:
            out[:, at + 1] = missing

    def checked(self) -> Self:
        """Return the column of a file, or raise."""
        check.flag("has_missing", self.has_missing)
        return self


class Category(NamedTuple):
    """A column of categories: one feature per level, one for all others, one where missing."""

    name: str
    levels: tuple[Level, ...]  # the most frequent first
    has_missing: bool

    @classmethod
    def fitted(cls, name: str, frame: Frame, rare: int | None, most: int) -> Self:
        """Learn the column of a table: levels with fewer than `rare` rows are pooled."""
        levels, codes = frame.levels(name)
        counts = np.bincount(codes[codes >= 0], minlength=len(levels))
        _need_values(name, int(counts.sum()))
        least = rare if rare is not None else min(RARE_AT_MOST, -(-frame.n_rows // RARE_SHARE))
        order = sorted(range(len(levels)), key=lambda i: (-counts[i], str(levels[i])))
        kept = [levels[i] for i in order if counts[i] >= least][:most]
        if not kept:
            raise InvalidParameterError(
                f"`frame` must hold levels of {name!r} often enough to learn from; got "
                f"{len(levels)} different values, none in {least} rows: leave the column out with "
                "`columns`, or lower `rare`"
            )
        return cls(name, tuple(kept), bool((codes < 0).any()))

    @property
    def names(self) -> list[str]:
        """The names of the features."""
        names = [f"{self.name}={level}" for level in self.levels]
        names.append(f"{self.name} other")
        return [*names, f"{self.name} missing"] if self.has_missing else names

    def place(self, given: Any, positions: Mapping[Any, int]) -> int:
        """Return which of the features of the column is 1."""
        try:
            found = positions.get(given)
        except TypeError:  # not hashable
            found = None
            given = [given]
        if found is not None:
            return found
        if is_missing(given):
            return len(self.levels) + self.has_missing  # where none were missing, another level
        is_text = isinstance(self.levels[0], str)
        if not isinstance(given, str if is_text else (int, float, np.number)):
            raise InvalidTypeError(
                f"`features` must hold {'text' if is_text else 'a number'} or None for "
                f"{self.name!r}; got {check.shown(given)}"
            )
        return len(self.levels)

    def checked(self) -> Self:
        """Return the column of a file, or raise."""
        kinds = {isinstance(level, str) for level in self.levels}
        if len(kinds) != 1 or len(set(self.levels)) != len(self.levels):
            raise ValueError(f"`levels` of {self.name!r} must be different texts or numbers")
        for level in self.levels:
            if type(level) not in (str, int, float) or level != level:
                raise ValueError(f"{check.shown(level)} is no level")
        check.flag("has_missing", self.has_missing)
        return self


Column = Number | Flag | Category
_KINDS: dict[str, Any] = {"number": Number, "flag": Flag, "category": Category}
_NAMES = {kind: name for name, kind in _KINDS.items()}


def _need_values(name: str, n: int) -> None:
    if n == 0:
        raise InvalidParameterError(f"`frame` must hold values in {name!r}; all are missing")


class Place(NamedTuple):
    """Where the features of a column stand, and what one value at a time needs."""

    name: str
    column: Any
    at: int
    positions: dict[Any, int]  # of levels
    low: float  # the range of numbers that need no second look; empty for other columns
    high: float

    @classmethod
    def of(cls, column: Column, at: int) -> Self:
        """Return the place of a column whose first feature stands at `at`."""
        levels = column.levels if isinstance(column, Category) else ()
        low, high = column.ends if isinstance(column, Number) else (1.0, 0.0)
        return cls(column.name, column, at, {level: k for k, level in enumerate(levels)}, low, high)


# ---------------------------------------------------------------------------------------- encoder


class Encoder:
    """Features from tables and dictionaries: numbers scaled, categories one-hot, gaps filled.

    Parameters
    ----------
    columns
        The columns to use, in this order; all of the table by default.
    categories
        Columns whose numbers are only names, such as the number of a shop.
    rare
        A level with fewer rows than this shares the feature "other" with all that were never seen.
        None: 1 % of the rows, at most 10.
    most_levels
        No column gets more levels than this; the most frequent ones are kept.
    intercept
        Whether the first feature is 1. Bandits add none, so it is here that there is one.

    Notes
    -----
    - A number becomes (x − mean)/sd. Where it is missing (None, NaN) it is the mean, and if numbers
      were missing in the table a further feature is 1.
    - True and False become 1 and 0; missing values as above.
    - Text becomes one feature per level, one for **other** levels and, if values were missing in
      the table, one for those.
    - A number further outside the range of the table than that range is wide is moved to that
      distance, with one warning per column: refit the encoder, and a bandit with it, if that goes
      on.
    - Dates are refused: give what matters about them, such as an age in days or a weekday.

    Columns that an encoder does not know are ignored; one that it knows must be there, if only as
    None.

    Examples
    --------
    >>> import pandas as pd
    >>> import zib
    >>> users = pd.DataFrame({"age": [20, 40, None], "country": ["DE", "FR", "DE"]})
    >>> encoder = zib.Encoder().fit(users)
    >>> encoder.feature_names
    ('intercept', 'age', 'age missing', 'country=DE', 'country=FR', 'country other')
    >>> encoder.transform({"age": 35, "country": "IT"})
    array([1. , 0.5, 0. , 0. , 0. , 1. ])
    """

    def __init__(
        self,
        *,
        columns: Sequence[str] | None = None,
        categories: Sequence[str] = (),
        rare: int | None = None,
        most_levels: int = 100,
        intercept: bool = True,
    ) -> None:
        self._wanted = None if columns is None else _different("columns", columns)
        self._categories = _different("categories", categories)
        unknown = set(self._categories) - set(self._wanted or self._categories)
        if unknown:
            raise InvalidParameterError(
                f"`categories` must be among `columns`; got {check.shown(sorted(unknown)[0])}"
            )
        self._rare = None if rare is None else check.integer("rare", rare, low=1)
        self._most = check.integer("most_levels", most_levels, low=1, high=MOST_LEVELS)
        self._intercept = check.flag("intercept", intercept)
        self._adopt(())

    def _adopt(self, columns: tuple[Column, ...]) -> None:
        """Take over fitted columns, and prepare what one row at a time needs."""
        self._columns = columns
        self._told: set[str] = set()
        start = int(self._intercept)
        self._plan = []
        for column in columns:
            self._plan.append(Place.of(column, start))
            start += len(column.names)
        self._start = np.zeros(start)
        self._start[: int(self._intercept)] = 1.0

    # ---------------------------------------------------------------------------------- learning

    def fit(self, frame: Any) -> Self:
        """Learn means, scales and levels; return the encoder itself.

        Parameters
        ----------
        frame
            A pandas or Polars frame, an Arrow table, a list of dictionaries, or a dictionary of
            columns.
        """
        table = Frame.of("frame", frame)
        names = table.names if self._wanted is None else self._wanted
        if not names:
            raise InvalidParameterError("`frame` must have at least one column; got none")
        for name in (*names, *self._categories):
            table.need(name)
        self._adopt(tuple(self._fitted(name, table) for name in names))
        return self

    def _fitted(self, name: str, table: Frame) -> Column:
        kind = table.kind(name)
        if kind == "text" or name in self._categories:
            return Category.fitted(name, table, self._rare, self._most)
        return Flag.fitted(name, table) if kind == "flag" else Number.fitted(name, table)

    @property
    def is_fitted(self) -> bool:
        """Whether `fit` was called."""
        return bool(self._columns)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The names of the features, in their order."""
        named = ["intercept"] if self._intercept else []
        return (*named, *(name for column in self._columns for name in column.names))

    @property
    def n_features(self) -> int:
        """How many features there are."""
        return int(self._start.size)

    def __repr__(self) -> str:
        if not self.is_fitted:
            return "Encoder(not fitted)"
        names = ", ".join(column.name for column in self._columns)
        return f"Encoder({names}: {self.n_features} features)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Encoder) and self.to_data() == other.to_data()

    __hash__ = None  # type: ignore[assignment]  # it can be fitted again

    # ---------------------------------------------------------------------------------- encoding

    def transform(self, features: Any) -> Matrix:
        """Return the features of one dictionary (a vector) or of a table (one row per row)."""
        if not self._columns:
            raise InvalidParameterError("`fit` must be called first; the encoder is not fitted")
        if isinstance(features, dict) and not Frame.is_columns(features):
            return self._row(features)
        table = Frame.of("features", features)
        out = np.zeros((table.n_rows, self.n_features))
        out[:] = self._start
        far: list[tuple[Column, float]] = []
        for name, column, at, positions, *_ in self._plan:
            table.need(name)
            if isinstance(column, Category):
                values, codes = table.levels(name)
                # the last one is that of missing values, with the code -1
                places = np.array([column.place(value, positions) for value in (*values, None)])
                out[np.arange(table.n_rows), at + places[codes]] = 1.0
            else:
                found = column.write_all(table, out, at)
                if found is not None:
                    far.append((column, found))
        for column, value in far:
            self._warn(column, value)
        return out

    def _row(self, row: dict[str, Any]) -> Matrix:
        out = self._start.copy()
        for name, column, at, positions, low, high in self._plan:
            try:
                given = row[name]
            except KeyError:
                raise InvalidParameterError(
                    f"`features` must hold {name!r}, with None where it is missing; got "
                    f"{check.shown(list(row))}"
                ) from None
            kind = type(given)
            if kind is str and given in positions:  # the common cases first
                out[at + positions[given]] = 1.0
            elif (kind is float or kind is int) and low <= given <= high:
                out[at] = (given - column.mean) / column.scale
            elif isinstance(column, Category):
                out[at + column.place(given, positions)] = 1.0
            elif column.write(given, out, at):
                self._warn(column, given)
        return out

    def _warn(self, column: Any, value: Any) -> None:
        if column.name in self._told:
            return
        self._told.add(column.name)
        warnings.warn(
            f"{column.name!r} was {float(value):g}, far outside the [{column.low:g}, "
            f"{column.high:g}] that the encoder was fitted to; such values are clipped. Fit it "
            "again if they are to be expected",
            UserWarning,
            stacklevel=4,
        )

    # ------------------------------------------------------------------------------- keeping it

    def to_data(self) -> dict[str, Any]:
        """Return everything as plain data."""
        return {
            "intercept": self._intercept,
            "columns": [
                {"kind": _NAMES[type(column)], **column._asdict()}
                | ({"levels": list(column.levels)} if isinstance(column, Category) else {})
                for column in self._columns
            ],
        }

    @classmethod
    def from_data(cls, data: Any) -> Self:
        """Return the encoder; what cannot have been saved is refused."""
        if not (isinstance(data, dict) and data.keys() == {"intercept", "columns"}):
            raise SavedStateError("the saved entry 'encoder' must hold 'intercept' and 'columns'")
        columns = data["columns"]
        if not (isinstance(columns, list) and columns):
            raise SavedStateError("the saved entry 'encoder' must hold a list of columns")
        try:
            found = tuple(_column_from_data(column) for column in columns)
            encoder = cls(columns=[column.name for column in found], intercept=data["intercept"])
        except (TypeError, ValueError, ArithmeticError, LookupError) as error:
            raise SavedStateError(f"the saved entry 'encoder' cannot be: {error}") from error
        encoder._adopt(found)
        return encoder


def _different(name: str, value: object) -> tuple[str, ...]:
    words = check.words(name, value)
    if len(set(words)) != len(words):
        raise InvalidParameterError(
            f"`{name}` must be different from each other; got {check.shown(value)}"
        )
    return words


def _column_from_data(data: Any) -> Column:
    kind = _KINDS[data["kind"]]
    fields = {key: value for key, value in data.items() if key != "kind"}
    if fields.keys() != set(kind._fields) or not isinstance(fields["name"], str):
        raise ValueError(f"a column of kind {data['kind']!r} has {', '.join(kind._fields)}")
    if kind is Category:
        if not isinstance(fields["levels"], list):
            raise ValueError("`levels` must be a list")
        fields["levels"] = tuple(fields["levels"])
    column: Column = kind(**fields).checked()
    return column
