"""Numbers as people write them: money, thousands, decimal commas, percentages, yes and no.

A column of numbers is read by one `Numbers`, which remembers over all batches how the column is
written. What Arrow can convert as it stands never comes here; the rest is converted once per
different value.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zib.logs.tables import LogError

Array = NDArray[np.float64]

LARGEST = 1e100  # so that sums of squares stay finite

TRUE_FALSE = {"true": 1.0, "false": 0.0}
# Text that stands for no number, besides what readers of files know.
BLANKS = (
    "", "-", "–", "—", "na", "n/a", "n.a.", "#n/a", "nan", "null", "none", "<na>", "(none)",
    "(not set)", "not available",
)  # fmt: skip
YES_NO = {"yes": 1.0, "no": 0.0, "y": 1.0, "n": 0.0, "t": 1.0, "f": 0.0} | TRUE_FALSE

# Three capital letters may also be the start of a product number, so the codes are listed.
_CODES = (
    "USD|EUR|GBP|JPY|CHF|CAD|AUD|NZD|SEK|NOK|DKK|ISK|PLN|CZK|HUF|RON|BGN|TRY|UAH|RUB|ILS|AED|SAR|"
    "ZAR|NGN|EGP|KES|INR|PKR|CNY|RMB|HKD|TWD|KRW|SGD|MYR|IDR|THB|PHP|VND|BRL|MXN|ARS|CLP|COP|PEN"
)
_CURRENCY = rf"(?:[A-Z]{{1,2}})?\p{{Sc}}|{_CODES}|kr\.?|zł|Kč|Ft|lei|Fr\."
_WRITTEN = (
    rf"^(?P<open>\(?) ?(?P<sign>[-+−]?) ?(?P<before>(?:{_CURRENCY})?) ?(?P<inner>[-+−]?) ?"
    r"(?P<body>[0-9.,' ]*[0-9][.,]?(?:[eE][-+]?[0-9]+)?) ?(?P<percent>%?) ?"
    rf"(?P<after>(?:{_CURRENCY})?) ?(?P<last>-?)(?P<close>\)?)$"
)
_SIGNS = ("sign", "inner", "last")
_EXPONENT = r"(?:[eE][-+]?[0-9]+)?"
_COMMA = r"^[-+]?[0-9]+,(?:[0-9]{1,2}|[0-9]{4,})$"  # not a thousand and a bit
_FORMS = {
    ".": r"^(?:[0-9]+|[1-9][0-9]{0,2}(?:[,' ][0-9]{2,3})*[,' ][0-9]{3})?(?:\.[0-9]*)?"
    + _EXPONENT
    + "$",
    ",": r"^(?:[0-9]+|[1-9][0-9]{0,2}(?:[.' ][0-9]{3})+)?(?:,[0-9]*)?" + _EXPONENT + "$",
}


def is_text(kind: Any) -> bool:
    """Return whether an Arrow type is text."""
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def decoded(values: Any) -> Any:
    """Return an Arrow array without a dictionary."""
    import pyarrow as pa

    return values.dictionary_decode() if pa.types.is_dictionary(values.type) else values


def _cast(values: Any) -> Any | None:
    """Return text as floats if Arrow can convert all of it."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for trim in (False, True):
        try:
            text = pc.utf8_trim_whitespace(values) if trim else values
            return pc.cast(text, pa.float64())
        except pa.ArrowInvalid:
            continue
    return None


def _without_blanks(values: Any) -> Any:
    """Return text with null in the place of what stands for no number."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = values.type
    low = pc.utf8_lower(pc.utf8_trim_whitespace(values))
    blank = pc.is_in(low, pa.array(BLANKS, kind))
    return pc.if_else(blank, pa.scalar(None, kind), values) if pc.any(blank).as_py() else values


def _parts(unique: Any) -> dict[str, Any]:
    """Return sign, currency, digits and so on of written numbers; ``body`` is null for others."""
    import pyarrow as pa
    import pyarrow.compute as pc

    text = pc.replace_substring_regex(pc.cast(unique, pa.string()), "[\u00a0\u202f\u2009]", " ")
    text = pc.utf8_trim_whitespace(pc.replace_substring(text, "’", "'"))
    found = pc.extract_regex(text, _WRITTEN)
    parts = {name.name: pc.struct_field(found, name.name) for name in found.type}
    signs = pc.binary_join_element_wise(*(parts[name] for name in ("open", *_SIGNS)), "")
    one = pc.less_equal(pc.utf8_length(signs), 1)
    closed = pc.equal(pc.equal(parts["open"], "("), pc.equal(parts["close"], ")"))
    parts["body"] = pc.if_else(pc.and_(one, closed), parts["body"], pa.scalar(None, pa.string()))
    return parts


def _words(unique: Any, words: dict[str, float]) -> Array | None:
    """Return the values of yes, no, true and false if there is nothing else."""
    values = [words.get(text.strip().lower(), np.nan) for text in unique.to_pylist()[:50]]
    return None if len(unique) > 50 or np.isnan(values).any() else np.array(values)


def looks_numeric(values: Any, *, yes_no: bool = False) -> bool:
    """Return whether every value that is there is a number, or true or false.

    With `yes_no` the words yes and no will do as well.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    values = decoded(values)
    kind = values.type
    if (
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_decimal(kind)
    ):
        return True
    if not is_text(kind):
        return False
    if _cast(values) is not None or _cast(pc.replace_substring(values, ",", ".")) is not None:
        return True
    unique = _without_blanks(values.unique()).drop_null()
    if not len(unique) or _words(unique, YES_NO if yes_no else TRUE_FALSE) is not None:
        return True
    body = _parts(unique)["body"]
    forms = [pc.match_substring_regex(body, form).fill_null(False) for form in _FORMS.values()]
    return body.null_count == 0 and any(pc.all(form).as_py() for form in forms)


@dataclass
class Numbers:
    """Reads a column of numbers, batch after batch.

    Attributes
    ----------
    column
        Its name, for messages.
    decimal
        The decimal mark if it was given or has been found.
    comma_likely
        Whether 1.234 rather means a thousand and a bit.
    low, open_low, high, why
        The interval in which the numbers must lie, and an explanation for messages.
    blank
        What a missing value counts as, or None if there must not be any.
    hint
        What to do about a missing value, for messages.
    """

    column: str
    decimal: str | None = None
    comma_likely: bool = False
    low: float = -LARGEST
    open_low: bool = False
    high: float = LARGEST
    why: str = ""
    blank: float | None = None
    hint: str = "fill it in or drop the row"
    blanks: int = 0
    rows: int = 0
    currency: str | None = None
    percent: bool = False
    plain: bool = False  # whether numbers other than 0 stood without a per cent sign
    found: list[str] = field(default_factory=list)

    @property
    def notes(self) -> list[str]:
        """How the column was read, where that was a choice."""
        notes = [f"column `{self.column}`: {text}" for text in self.found]
        if self.blanks:
            notes.append(
                f"column `{self.column}`: {self.blanks} of {self.rows} rows are blank and count "
                f"as {self.blank:g}"
            )
        return notes

    def read(self, values: Any, start: int) -> Array:
        """Return an Arrow array as floats, or raise; `start` is the number of the first row."""
        import pyarrow as pa
        import pyarrow.compute as pc

        values = decoded(values)
        if is_text(values.type):
            values = self._text(values, start)
        try:
            array = np.asarray(
                pc.cast(values, pa.float64(), safe=False).to_numpy(zero_copy_only=False),
                dtype=np.float64,
            )
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
            raise LogError(
                f"column `{self.column}` must hold numbers; it holds {values.type}"
            ) from None
        self.rows += len(array)
        if self.blank is not None:
            missing = np.isnan(array)
            if missing.any():
                self.blanks += int(missing.sum())
                array = np.where(missing, self.blank, array)
        self._check(array, start)
        return array

    def _check(self, array: Array, start: int) -> None:
        bad = ~(array >= self.low) | ~(array <= self.high)
        if self.open_low:
            bad |= array == self.low
        if not bad.any():
            return
        at = int(np.argmax(bad))
        if np.isnan(array[at]):
            raise LogError(
                f"column `{self.column}` must hold a number in every row; row {start + at + 1} is "
                f"missing ({self.hint})"
            )
        left = "(" if self.open_low else "["
        rule = (
            "hold finite numbers"
            if self.high == LARGEST and self.low == -LARGEST
            else f"lie in {left}{self.low:g}, {self.high:g}]"
        )
        raise offence(self.column, rule, start + at, float(array[at]), self.why)

    def _text(self, values: Any, start: int) -> Any:
        """Return text as floats."""
        import pyarrow as pa
        import pyarrow.compute as pc

        floats = self._plain(values)
        if floats is None:
            values = _without_blanks(values)
            if self.decimal is None:
                self._look_for_commas(values)
            floats = self._plain(values)
        if floats is not None and not (self.percent and self._any(floats)):
            self.plain = self.plain or self._any(floats)
            return floats
        encoded = values.dictionary_encode()
        unique = encoded.dictionary
        words = _words(unique, YES_NO)
        if words is None:
            words = self._written(unique, encoded.indices, start)
        elif "yes and true count as 1, no and false as 0" not in self.found:
            self.found.append("yes and true count as 1, no and false as 0")
        return pc.take(pa.array(words), encoded.indices)

    def _plain(self, values: Any) -> Any | None:
        """Return text as floats if all of it is bare numbers with the mark found so far."""
        import pyarrow.compute as pc

        def dots() -> bool:
            return bool(pc.any(pc.match_substring(values, ".")).as_py())

        if self.decimal == ",":
            return None if dots() else _cast(pc.replace_substring(values, ",", "."))
        floats = _cast(values)
        if floats is not None and self.decimal is None and dots():
            if self.comma_likely:
                return None  # 1.234 may be a thousand and a bit
            self.decimal = "."
        return floats

    def _look_for_commas(self, values: Any) -> None:
        """Find a bare number with a decimal comma among the first values."""
        import pyarrow.compute as pc

        few = values.slice(0, 2_000)
        found = few.filter(pc.match_substring_regex(few, _COMMA))
        if len(found):
            self._decide(point=None, comma=(0, found[0].as_py()), doubtful=None)

    @staticmethod
    def _any(floats: Any) -> bool:
        import pyarrow.compute as pc

        return bool(pc.any(pc.not_equal(floats, 0.0)).as_py())

    def _written(self, unique: Any, rows: Any, start: int) -> Array:
        """Return what written numbers stand for."""
        import pyarrow as pa
        import pyarrow.compute as pc

        parts = _parts(unique)
        body = parts["body"]
        texts = unique.to_pylist()

        def first(bad: Any) -> tuple[int, str] | None:
            """Return row and text of the first unique value with this mark."""
            marked = np.asarray(bad.fill_null(True).to_numpy(zero_copy_only=False), dtype=bool)
            if not marked.any():
                return None
            at = int(np.argmax(marked))  # values are in the order of their first rows
            row = int(np.argmax(rows.fill_null(-1).to_numpy(zero_copy_only=False) == at))
            return start + row, texts[at]

        fits = {mark: pc.match_substring_regex(body, form) for mark, form in _FORMS.items()}
        wrong = first(pc.invert(pc.or_(fits["."], fits[","])))
        if wrong:
            raise offence(self.column, "hold numbers", *wrong)
        only = {".": pc.and_not(fits["."], fits[","]), ",": pc.and_not(fits[","], fits["."])}
        if self.decimal is None:
            self._decide(
                point=first(only["."]), comma=first(only[","]),
                doubtful=first(pc.match_substring_regex(body, "[.,]")),
            )  # fmt: skip
        mark = self.decimal or "."
        wrong = first(pc.invert(fits[mark]))
        if wrong:
            other = "," if mark == "." else "."
            raise offence(
                self.column, f"hold numbers with the decimal mark {mark!r}", *wrong,
                f" (say --decimal {other!r}, decimal={other!r} in Python, if that is the mark of "
                "all rows)",
            )  # fmt: skip
        self._units(parts, first)
        digits = pc.replace_substring_regex(body, "[,' ]" if mark == "." else "[.' ]", "")
        digits = pc.replace_substring(digits, ",", ".")
        array = np.array(pc.cast(digits, pa.float64()).to_numpy(zero_copy_only=False))
        negative = pc.equal(parts["open"], "(")
        for sign in _SIGNS:
            negative = pc.or_(negative, pc.is_in(parts[sign], pa.array(["-", "−"])))
        array = np.where(negative.to_numpy(zero_copy_only=False), -array, array)
        return array / 100.0 if self.percent else array

    def _decide(
        self,
        point: tuple[int, str] | None,
        comma: tuple[int, str] | None,
        doubtful: tuple[int, str] | None,
    ) -> None:
        """Find the decimal mark from values that can be read in one way only."""
        if point and comma:
            raise LogError(
                f"column `{self.column}` must have one decimal mark; row {point[0] + 1} holds "
                f"{point[1]!r} and row {comma[0] + 1} {comma[1]!r}"
            )
        if point or comma:
            self.decimal = "." if point else ","
            if comma:
                self.found.append(f"decimal commas, such as {comma[1]!r}")
        elif doubtful:
            self.decimal = "," if self.comma_likely else "."
            other = "." if self.comma_likely else ","
            self.found.append(
                f"{doubtful[1]!r} is read with the decimal mark {self.decimal!r} (say --decimal "
                f"{other!r} if that is wrong)"
            )

    def _units(self, parts: dict[str, Any], first: Any) -> None:
        """Take note of the currency and of percentages; there must be one kind."""
        import pyarrow.compute as pc

        for side in ("before", "after"):
            for sign in parts[side].unique().to_pylist():
                if not sign or sign == self.currency:
                    continue
                if self.currency is not None:
                    row, text = first(pc.equal(parts[side], sign))
                    raise LogError(
                        f"column `{self.column}` must hold one currency; other rows are in "
                        f"{self.currency} and row {row + 1} holds {text!r}: convert it first"
                    )
                self.currency = sign
                self.found.append(f"the currency sign {sign} is left out")
        marked = pc.equal(parts["percent"], "%")
        zero = pc.match_substring_regex(parts["body"], "^[0., ]*$")
        plain = first(pc.invert(pc.or_(marked, zero)))
        self.plain = self.plain or plain is not None
        if not pc.any(marked).as_py() and not self.percent:
            return
        if self.plain:
            raise offence(
                self.column, "have a per cent sign in all rows or in none",
                *(plain or first(marked)),
            )  # fmt: skip
        if not self.percent:
            self.found.append("percentages are divided by 100")
        self.percent = True


def offence(column: str, rule: str, row: int, value: object, why: str = "") -> LogError:
    """Return the error for a value that breaks a rule; `row` counts from 0."""
    return LogError(f"column `{column}` must {rule}; row {row + 1} holds {value!r}{why}")
