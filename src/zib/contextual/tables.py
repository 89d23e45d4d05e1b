"""Tables that an encoder reads: frames of pandas and Polars, Arrow tables and dictionaries."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from zib.core import validate as check
from zib.core.validate import InvalidParameterError, InvalidTypeError

_GAPS = ("NAType", "NaTType")  # of pandas, which need not be imported for it


def is_missing(value: Any) -> bool:
    """Whether a value stands for none: None, NaN, and what pandas has for it."""
    if value is None:
        return True
    kind = type(value)
    if kind is str:
        return False
    if kind.__name__ in _GAPS:
        return True
    return isinstance(value, (float, np.floating)) and bool(value != value)


class Frame(NamedTuple):
    """A table, column by column as Arrow arrays."""

    title: str  # the parameter it was given as
    names: tuple[str, ...]
    n_rows: int
    column: Callable[[str], Any]

    @classmethod
    def of(cls, title: str, frame: Any) -> Self:
        """Return the table, whatever it is given as, or raise."""
        if isinstance(frame, (list, tuple)) and frame and all(isinstance(r, dict) for r in frame):
            return cls._of_rows(title, frame)
        if isinstance(frame, dict) and cls.is_columns(frame):
            lengths = {len(values) for values in frame.values()}
            if len(lengths) != 1:
                raise InvalidParameterError(
                    f"`{title}` must have columns of equal length; got {sorted(lengths)}"
                )
            return cls._checked(title, frame, lengths.pop(), lambda n: _arrow(title, n, frame[n]))
        names = getattr(frame, "column_names", None)
        if names is None:
            names = getattr(frame, "columns", None)
        if names is None or not (hasattr(frame, "__getitem__") and hasattr(frame, "__len__")):
            raise InvalidTypeError(
                f"`{title}` must be a pandas or Polars frame, an Arrow table or dictionaries; "
                f"got {check.shown(frame)}"
            )
        by_name = {str(name): name for name in names}
        n_rows = getattr(frame, "num_rows", None)
        return cls._checked(
            title,
            [str(name) for name in names],
            len(frame) if n_rows is None else n_rows,
            lambda name: _arrow(title, name, frame[by_name[name]]),
        )

    @classmethod
    def _of_rows(cls, title: str, rows: Any) -> Self:
        def column(name: str) -> Any:
            try:
                values = [row[name] for row in rows]
            except KeyError:
                raise InvalidParameterError(
                    f"`{title}` must hold {name!r} in every row, with None where it is missing"
                ) from None
            return _arrow(title, name, values)

        return cls._checked(title, list(rows[0]), len(rows), column)

    @classmethod
    def _checked(cls, title: str, names: Any, n_rows: int, column: Callable[[str], Any]) -> Self:
        found = tuple(names)
        if not all(isinstance(name, str) for name in found) or len(set(found)) != len(found):
            raise InvalidParameterError(
                f"`{title}` must have columns with different names; got {check.shown(found)}"
            )
        if n_rows == 0:
            raise InvalidParameterError(f"`{title}` must have at least one row; got none")
        return cls(title, found, n_rows, column)

    @staticmethod
    def is_columns(frame: Mapping[Any, Any]) -> bool:
        """Whether a dictionary holds columns and not one row."""
        return bool(frame) and all(
            isinstance(values, (list, np.ndarray)) or hasattr(values, "to_numpy")
            for values in frame.values()
        )

    def need(self, name: str) -> None:
        """Raise unless there is such a column."""
        if name not in self.names:
            near = difflib.get_close_matches(name, self.names, n=1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            raise InvalidParameterError(
                f"`{self.title}` must have a column {name!r}{hint}; got {check.shown(self.names)}"
            )

    def kind(self, name: str) -> str:
        """Return "number", "flag" or "text", or raise."""
        import pyarrow as pa

        kind = self.column(name).type
        if pa.types.is_boolean(kind):
            return "flag"
        if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
            return "number"
        if _is_text(kind):
            return "text"
        if pa.types.is_null(kind):
            raise InvalidParameterError(
                f"`{self.title}` must hold values in {name!r}; all are missing"
            )
        if pa.types.is_temporal(kind):
            raise InvalidParameterError(
                f"`{self.title}` must hold numbers, text or truth values in {name!r}; got dates or "
                "times: give what matters about them, such as an age in days or the weekday"
            )
        raise InvalidParameterError(
            f"`{self.title}` must hold numbers, text or truth values in {name!r}; got {kind}"
        )

    def numbers(self, name: str) -> NDArray[np.float64]:
        """Return a column of numbers or truth values; NaN where one is missing."""
        import pyarrow as pa
        import pyarrow.compute as pc

        column = self.column(name)
        if pa.types.is_null(column.type):
            return np.full(self.n_rows, np.nan)
        if self.kind(name) == "text":
            raise InvalidTypeError(f"`{self.title}` must hold numbers in {name!r}; got text")
        if pa.types.is_boolean(column.type):
            column = pc.cast(column, pa.int8())
        values = pc.cast(column, pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        return np.asarray(values, dtype=np.float64)

    def levels(self, name: str) -> tuple[list[Any], NDArray[np.int64]]:
        """Return the different values of a column, and which one each row has; -1 for none."""
        import pyarrow as pa
        import pyarrow.compute as pc

        column = self.column(name)
        if pa.types.is_null(column.type):
            return [], np.full(self.n_rows, -1)
        self.kind(name)  # raises unless it is one that can be used
        if pa.types.is_dictionary(column.type):
            column = pc.cast(column, column.type.value_type)
        encoded = pc.dictionary_encode(column)
        values = encoded.dictionary.to_pylist()
        codes = pc.fill_null(pc.cast(encoded.indices, pa.int64()), -1).to_numpy()
        gaps = [k for k, value in enumerate(values) if is_missing(value)]
        return values, np.where(np.isin(codes, gaps), -1, codes)


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return _is_text(kind.value_type)
    view = getattr(pa.types, "is_string_view", lambda _: False)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or view(kind))


def _arrow(title: str, name: str, values: Any) -> Any:
    """Return a column as one Arrow array, or raise."""
    import pyarrow as pa

    try:
        if hasattr(values, "to_arrow"):  # Polars
            values = values.to_arrow()
        elif not isinstance(values, (pa.Array, pa.ChunkedArray)):
            values = pa.array(values, from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        raise InvalidParameterError(
            f"`{title}` must hold values of one kind in {name!r}; got {check.shown(values)}"
        ) from None
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, pa.ChunkedArray):  # of no chunks, or too long for one
        values = pa.concat_arrays(values.chunks)
    return values
