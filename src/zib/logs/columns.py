"""Columns of a table as labels and as hashes of ids; the first bad row is named."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zib.logs.amounts import Numbers, looks_numeric
from zib.logs.tables import LogError

__all__ = ["MANY_ARMS", "MANY_LEVELS", "Labels", "hashes", "looks_numeric", "numbers"]

Array = NDArray[np.float64]
Codes = NDArray[np.int64]
Hashes = NDArray[np.uint64]

MANY_ARMS = 10_000
MANY_LEVELS = 100


def numbers(column: str, values: Any, start: int, **bounds: Any) -> Array:
    """Return an Arrow array as floats, or raise; `bounds` are those of `Numbers`.

    `start` is the number of the first row.
    """
    return Numbers(column, **bounds).read(values, start)


def hashes(column: str, values: Any, start: int, what: str) -> Hashes:
    """Return 64 bits for each id, equal for equal ids; `what` says what the column names."""
    import pyarrow as pa
    from pandas.util import hash_array

    if pa.types.is_integer(values.type) and not values.null_count:  # the same, sooner
        whole: Hashes = hash_array(values.to_numpy(zero_copy_only=False), categorize=False)
        return whole
    values = _encoded(column, values, what)
    names = values.dictionary.to_numpy(zero_copy_only=False)
    missing = values.is_null().to_numpy(zero_copy_only=False)
    if names.dtype.kind == "f" and np.isnan(names).any():
        at = values.indices.fill_null(0).to_numpy(zero_copy_only=False)
        missing = missing | np.isnan(names)[at]
    if missing.any():
        raise LogError(
            f"column `{column}` must name a {what} in every row; row "
            f"{start + int(np.argmax(missing)) + 1} is missing"
        )
    of_names: Hashes = hash_array(names, categorize=False)
    out: Hashes = of_names[values.indices.to_numpy(zero_copy_only=False)]
    return out


def _encoded(column: str, values: Any, what: str) -> Any:
    """Return an Arrow array with a dictionary."""
    import pyarrow as pa

    if pa.types.is_dictionary(values.type):
        return values
    try:
        return values.dictionary_encode()
    except pa.ArrowNotImplementedError:
        raise LogError(
            f"column `{column}` must hold one {what} in every row; it holds {values.type}"
        ) from None


@dataclass
class Labels:
    """Labels in the order in which they were first seen, and their final order."""

    column: str
    most: int
    advice: str
    seen: dict[Hashable, int] = field(default_factory=dict)
    order: Codes | None = None
    whole: bool = False
    strip: bool = False

    def codes(self, values: Any, start: int) -> Codes:
        """Return one code per row, in order of appearance."""
        import pyarrow as pa

        if not pa.types.is_dictionary(values.type):
            if (
                pa.types.is_floating(values.type)
                and np.isnan(values.to_numpy(zero_copy_only=False)).any()
            ):
                values = pa.array(values.to_numpy(zero_copy_only=False), from_pandas=True)
            values = _encoded(self.column, values, "label")
        if values.null_count:
            at = int(np.argmax(values.is_null().to_numpy(zero_copy_only=False)))
            raise LogError(
                f"column `{self.column}` must hold a label in every row; row {start + at + 1} is "
                "missing"
            )
        here = [
            int(label) if self.whole else _plain(label, self.strip)
            for label in values.dictionary.to_pylist()
        ]
        inner = values.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        used = np.zeros(len(here), dtype=bool)
        used[inner] = True
        place = np.zeros(len(here), dtype=np.int64)
        for i, label in enumerate(here):
            if not used[i]:
                continue
            if label not in self.seen:
                if self.order is not None:
                    raise LogError(
                        f"column `{self.column}` holds {label!r}, which was not there when the "
                        "log was first read"
                    )
                if len(self.seen) == self.most:
                    raise LogError(
                        f"column `{self.column}` has more than {self.most} different values; "
                        f"{self.advice}"
                    )
                self.seen[label] = len(self.seen)
            place[i] = self.seen[label]
        codes: Codes = place[inner]
        return codes

    def final(self, codes: Codes | Array) -> Codes:
        """Return the codes in the final order, which `settle` has fixed."""
        if self.order is None:
            raise ValueError("the order of the labels is not settled")
        return self.order[codes]

    def settle(self, wanted: Sequence[Hashable] | None = None) -> tuple[Hashable, ...]:
        """Fix and return the order of the labels: as `wanted`, or sorted."""
        if all(isinstance(label, str) for label in self.seen):
            self._make_numbers()
        labels: list[Hashable]
        if wanted is None:
            labels = sorted(self.seen, key=_sort_key)
        else:
            labels = list(wanted)
            if len(set(labels)) != len(labels):
                raise LogError("`arms` must name each arm once")
            unknown = [label for label in self.seen if label not in labels]
            if unknown:
                raise LogError(
                    f"column `{self.column}` holds {unknown[0]!r}, which is not among `arms`"
                )
        place = {label: k for k, label in enumerate(labels)}
        order = np.empty(len(self.seen), dtype=np.int64)
        for label, first in self.seen.items():
            order[first] = place[label]
        self.order = order
        return tuple(labels)

    def look_alikes(self) -> list[tuple[str, ...]]:
        """Return groups of labels that differ in white space or in capital letters only."""
        alike: dict[str, list[str]] = {}
        for label in self.seen:
            if isinstance(label, str):
                alike.setdefault(" ".join(label.split()).casefold(), []).append(label)
        return [tuple(sorted(group)) for group in alike.values() if len(group) > 1]

    def _make_numbers(self) -> None:
        # A CSV file has text only; arms 0, 1, 2 are meant as numbers there.
        try:
            whole = {label: int(str(label)) for label in self.seen}
        except ValueError:
            return
        if self.seen and all(str(number) == label for label, number in whole.items()):
            self.whole = True
            self.seen = {whole[label]: code for label, code in self.seen.items()}


def _plain(label: Any, strip: bool) -> Hashable:
    if isinstance(label, float) and label.is_integer():
        return int(label)
    if strip and isinstance(label, str):
        return " ".join(label.split())
    return label  # type: ignore[no-any-return]


def _sort_key(label: Any) -> tuple[int, Any]:
    if isinstance(label, (int, float)):
        return (0, label)
    return (1, str(label))
