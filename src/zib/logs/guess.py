"""Guesses which column of a table is the arm, the reward, the propensity, the time and the unit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from zib.core import validate
from zib.logs.amounts import Numbers, is_text
from zib.logs.dates import Times
from zib.logs.doubts import NAMING, words_of
from zib.logs.tables import LogError, Table, open_table
from zib.report.numbers import percent

SAMPLE = 100_000  # rows that are looked at
MOST_ARMS = 1_000
FEW_VALUES = 50  # of an arm that has no telling name
MANY_ZEROS = 0.3
FEWEST_UNITS = 10

# From telling to weak: a name of an earlier group wins over one of a later group.
REWARDS = (
    {"reward", "payoff"},
    {
        "revenue", "profit", "spend", "spent", "spending", "donation", "amount", "sale", "payout",
        "payment", "purchase", "earning", "margin", "gmv", "turnover", "income", "interest", "paid",
        "gain",
    },
    {"value", "outcome", "conversion", "converted", "click", "clicked", "gave", "bought", "y"},
)  # fmt: skip
ARMS = (
    {"arm", "action", "variant", "treatment"},
    {
        "group", "campaign", "offer", "version", "price", "bucket", "ad", "segment", "creative",
        "banner", "cell", "condition", "treat", "experiment", "template", "coupon", "discount",
        "promotion", "letter",
    },
    {"control", "choice", "item", "policy", "rate", "product", "test"},
)  # fmt: skip
PROPENSITIES = (
    {"propensity", "pscore", "propensityscore"},
    {"prob", "probability", "p", "ps", "pi"},
)
# Words that may stand beside these; another word tells of the probability of something else.
CHOOSING = {
    "action", "arm", "logging", "logged", "log", "policy", "assignment", "treatment", "selection",
    "choice", "score", "of", *PROPENSITIES[0], *PROPENSITIES[1],
}  # fmt: skip
TIMES = (
    {"timestamp", "time", "datetime", "date", "ts", "at"},
    {"day", "week", "month", "wave", "round", "hour", "t"},
)
UNITS = (
    {"unit", "user", "customer", "client", "visitor", "person", "household", "subscriber"},
    {"id", "uid", "uuid", "key", "userid", "customerid", "clientid", "email", "session"},
)
READING = ("sep", "decimal", "encoding", "sheet")
LISTED = 10  # columns that a message names


@dataclass(frozen=True)
class Guess:
    """Which column plays which role; `reasons` says why, one sentence each.

    `roles` gives the columns as arguments of `LoggedData.read` or `LogScan`; `doubts` are sentences
    about what looks wrong in the rows that were looked at.
    """

    arm: str
    reward: str
    propensity: str | None = None
    time: str | None = None
    unit: str | None = None
    cluster: str | None = None
    context: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()

    @property
    def roles(self) -> dict[str, Any]:
        """The columns by the names of the arguments they are for."""
        return {
            role: getattr(self, role)
            for role in ("arm", "reward", "propensity", "time", "unit", "cluster", "context")
        }


@dataclass(eq=False)
class _Column:
    name: str
    words: tuple[str, ...]
    values: Any
    rows: int
    numeric: bool = False
    distinct: int = 0
    missing: int = 0
    numbers: Any = field(default=None, repr=False)
    blank_is_zero: bool = False

    @property
    def filled(self) -> bool:
        """Whether nearly all rows have a value; what is missing is said when the log is read."""
        return self.missing <= self.rows / 100

    @property
    def zeros(self) -> float:
        """The share of zeros, of the rows that hold a number or of all."""
        zeros = int(np.sum(self.numbers == 0.0))
        if self.blank_is_zero:
            return (zeros + self.missing) / self.rows
        return float(zeros / max(self.numbers.size, 1))

    @property
    def flag(self) -> bool:
        """Whether it holds 0 and 1 only."""
        return self.numeric and bool(np.isin(self.numbers, (0.0, 1.0)).all())


def guess_columns(source: Any, **given: Any) -> Guess:
    """Guess the columns of a log from their names and from its first 100 000 rows.

    Parameters
    ----------
    source
        A file, a frame or another source, as for `LogScan`.
    **given
        Roles that are known: ``arm``, ``reward``, ``propensity``, ``time``, ``unit``,
        ``cluster``, ``context``. They are kept. An empty string says that there is no such column.
        And how to read: ``sep``, ``decimal``, ``encoding``, ``sheet`` and ``missing_reward``, as
        for `LoggedData.read`.

    Notes
    -----
    The reward has numbers; the arm has 2 to 1000 values, each many times. Exact names come first,
    then parts of names, then the only column that fits by its content. If several columns fit
    equally well the guess is refused, with a list of those that may be meant. The context is never
    guessed. A unit is only guessed for a table that was seen as a whole, or where some units occur
    more than once, which is worth a warning. A column that is called propensity must hold
    probabilities.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"variant": ["a", "b"] * 50, "revenue": [0.0] * 99 + [7.5]})
    >>> for reason in guess_columns(frame).reasons:
    ...     print(reason)
    arm: `variant`, by its name, 2 values
    reward: `revenue`, by its name, 99 % zeros
    """
    options = {name: given.pop(name) for name in READING if name in given}
    missing_reward = given.pop("missing_reward", "error")
    validate.choice("missing_reward", missing_reward, ("error", "zero"))
    table = open_table(source, **options)
    known = ("arm", "reward", "propensity", "time", "unit", "cluster", "context")
    for role in given:
        if role not in known:
            raise LogError(f"roles are {', '.join(known)}; got {role!r}")
    context = given.get("context") or ()
    context = (context,) if isinstance(context, str) else tuple(context)
    named = {
        role: table.require(role, given[role])
        for role in known[:-1]
        if given.get(role) not in (None, "")
    }
    for name in context:
        table.require("context", name)
    for role in ("arm", "reward"):
        if given.get(role) == "":
            raise LogError(f"`{role}` must name a column; got ''")
    columns, whole, doubts = _look(table)
    if missing_reward == "zero":
        for each in columns:
            each.blank_is_zero = each.numeric
    taken = {*named.values(), *context}
    reasons = {role: f"{role}: `{column}`, as given" for role, column in named.items()}
    finders: dict[str, Callable[[list[_Column]], tuple[str | None, str]]] = {
        "propensity": lambda free: _propensity(free, table),
        "reward": lambda free: _reward(free, table),
        "arm": lambda free: _arm(free, table),
        "time": _time,
        "unit": lambda free: _unit(free, whole),
    }
    for role, find in finders.items():
        if role in named or given.get(role) == "":
            continue
        column, why = find([c for c in columns if c.name not in taken])
        if why:
            reasons[role] = f"{role}: {why}"
        if column is not None:
            named[role] = column
            taken.add(column)
    return Guess(
        **named,
        context=context,
        reasons=tuple(reasons[role] for role in known if role in reasons),
        doubts=tuple(doubts),
    )


def _look(table: Table) -> tuple[list[_Column], bool, list[str]]:
    """Return the first rows by column, whether they are the whole table, and doubts about them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    parts, rows, whole = [], 0, True
    for batch in table.batches(table.columns, SAMPLE):
        parts.append(batch.slice(0, SAMPLE - rows))
        whole = rows + batch.num_rows <= SAMPLE
        rows += parts[-1].num_rows
        if not whole:
            break
    if rows == 0:
        raise LogError(f"{table.name} has no rows")
    first = pa.concat_tables(
        [pa.Table.from_batches([part]) for part in parts], promote_options="permissive"
    ).combine_chunks()
    columns = []
    same = np.zeros(rows, dtype=np.uint64)
    for name in table.columns:
        values = first.column(name)
        values = values.chunk(0) if values.num_chunks == 1 else values.combine_chunks()
        if pa.types.is_dictionary(values.type):
            values = values.dictionary_decode()
        if pa.types.is_floating(values.type):
            values = pa.array(values.to_numpy(zero_copy_only=False), from_pandas=True)
        column = _Column(name, words_of(name), values, rows, missing=values.null_count)
        try:
            column.distinct = pc.count_distinct(values).as_py()
            codes = values.dictionary_encode(null_encoding="encode").indices
        except pa.ArrowNotImplementedError:  # lists and the like play no role
            continue
        same = (same ^ codes.to_numpy(zero_copy_only=False).astype(np.uint64)) * _ODD
        same ^= same >> np.uint64(29)
        if values.null_count < rows and not pa.types.is_temporal(values.type):
            try:
                reader = Numbers(name, table.decimal, table.comma_likely)
                column.numbers = reader.read(values.drop_null(), 0)
                column.numeric = True
            except LogError:
                pass
        columns.append(column)
    return columns, whole, _repetitions(same, columns, whole) + _currencies(columns)


_ODD = np.uint64(0x9E3779B97F4A7C15)


def _currencies(columns: list[_Column]) -> list[str]:
    """Return a sentence if a column says that amounts are in several currencies."""
    out = []
    for column in columns:
        if "currency" in column.words and 1 < column.distinct < FEW_VALUES and not column.numeric:
            held = ", ".join(map(str, column.values.unique().drop_null().to_pylist()[:3]))
            out.append(
                f"column `{column.name}` names several currencies ({held}); convert amounts to one "
                "before they are compared"
            )
    return out


def _repetitions(same: Any, columns: list[_Column], whole: bool) -> list[str]:
    """Return a sentence if rows are equal in every column although they need not be."""
    rows = same.size
    repeated = rows - np.unique(same).size
    telling = max((column.distinct for column in columns), default=0)
    if not repeated or telling < rows / 2:  # without ids or times rows are equal by chance
        return []
    of = f"{rows} rows" if whole else f"the first {rows} rows"
    return [
        f"{repeated} of {of} equal an earlier row in every column; if they were exported twice, "
        "drop them"
    ]


def _by_name(columns: list[_Column], names: Sequence[set[str]]) -> list[tuple[int, _Column]]:
    """Return the columns with a telling name and how far down it is: 0, 1, … exact, then parts."""
    out = []
    for column in columns:
        exact = [i for i, group in enumerate(names) if "".join(column.words) in group]
        part = [i for i, group in enumerate(names) if any(map(group.__contains__, column.words))]
        stems = [i for i, group in enumerate(names) if _starts(column.words, group)]
        if exact:
            out.append((exact[0], column))
        elif part or stems:
            out.append((len(names) + min(part + stems), column))
    return out


def _starts(words: Sequence[str], group: set[str]) -> bool:
    stems = tuple(stem for stem in group if len(stem) >= 5)  # "amount" in "amountgiven"
    return any(word.startswith(stems) for word in words)


def _best(named: list[tuple[int, _Column]]) -> list[_Column]:
    top = min((place for place, _ in named), default=0)
    return [column for place, column in named if place == top]


def _ask(
    role: str, best: Sequence[_Column], table: Table, why: str,
    plausible: Sequence[tuple[_Column, str]],
) -> LogError:  # fmt: skip
    """Return the error that lists the columns that may be meant, the best ones first."""
    names = [column.name for column in best]
    first = sorted(plausible, key=lambda pair: pair[0].name not in names)
    listed = ", ".join(f"`{column.name}` ({text})" for column, text in first[:LISTED])
    listed += ", …" if len(first) > LISTED else ""
    name_it = f"name it: --{role} COLUMN ({role}=... in Python)"
    if best:
        return LogError(
            f"several columns of {table.name} may be the {role}{why}: {listed}; {name_it}"
        )
    if first:
        return LogError(
            f"no column of {table.name} looks like the {role} beyond doubt{why}; it may be "
            f"{listed}; {name_it}"
        )
    known = ", ".join(table.columns[:20]) + (", …" if len(table.columns) > 20 else "")
    return LogError(
        f"no column of {table.name} looks like the {role}{why}; {name_it}, one of {known}"
    )


def _ranked(columns: list[_Column], names: Sequence[set[str]]) -> list[_Column]:
    """Return the columns, those with telling names first."""
    place = {column.name: i for i, column in _by_name(columns, names)}
    return sorted(columns, key=lambda column: place.get(column.name, 2 * len(names)))


def _is_id(column: _Column) -> bool:
    return bool(column.words) and column.words[-1] in NAMING and column.distinct > column.rows / 10


def _rewards(columns: list[_Column]) -> list[tuple[_Column, str]]:
    """Return the columns that may be the reward, each with what speaks for it."""
    named = {column.name for _, column in _by_name(columns, REWARDS)}
    out = []
    for column in _ranked(columns, REWARDS):
        if _is_id(column) or _is_time_like(column) or column.missing == column.rows:
            continue
        blank = f"blank in {percent(column.missing / column.rows)} of the rows"
        hint = "" if column.blank_is_zero else ": --missing-reward zero if nothing happened there"
        if column.numeric and not column.filled and not column.blank_is_zero:
            if column.name in named or column.distinct > 2:
                out.append((column, blank + hint))
        elif column.numeric and column.distinct > 1:
            if column.name in named or column.zeros > MANY_ZEROS:
                only = "0 and 1 only, " if column.flag else ""
                out.append((column, f"{only}{percent(column.zeros)} zeros"))
        elif not column.numeric and column.name in named and is_text(column.values.type):
            there = column.values.drop_null()
            out.append((column, f"text, such as {there[0].as_py()[:30]!r}"))
    return out


def _arms(columns: list[_Column]) -> list[tuple[_Column, str]]:
    """Return the columns that may be the arm, each with what speaks for it."""
    named = {column.name for _, column in _by_name(columns, ARMS)}
    out = []
    for column in _ranked(columns, ARMS):
        if _is_id(column) or _is_time_like(column) or column.missing == column.rows:
            continue
        blank = "" if column.filled else f", blank in {percent(column.missing / column.rows)}"
        if _repeats(column) and (column.name in named or (
            column.distinct <= FEW_VALUES and _label_like(column)
        )):  # fmt: skip
            held = "0 and 1 only" if column.flag else f"{column.distinct} values"
            out.append((column, held + blank))
        elif column.name in named and column.distinct > 1:
            out.append((column, f"{column.distinct} values in {column.rows} rows{blank}"))
    return out


def _is_time_like(column: _Column) -> bool:
    if column.numeric:
        return False
    try:
        Times(column.name).read(column.values.drop_null().slice(0, 100), 0)
    except LogError:
        return False
    return True


def _reward(columns: list[_Column], table: Table) -> tuple[str, str]:
    filled = [c for c in columns if c.numeric and (c.filled or c.blank_is_zero)]
    numeric = [c for c in filled if c.distinct > 1 or (c.blank_is_zero and c.missing)]
    named = _by_name(numeric, REWARDS)
    # a column that is called reward is the reward, also when it is zero throughout
    best = _best([pair for pair in _by_name(filled, REWARDS) if pair[0] == 0])
    if not best:
        # Money that is never zero is rather known beforehand, such as the amount asked for.
        best = _best([pair for pair in named if pair[1].zeros >= MANY_ZEROS]) or _best(named)
    why = "by its name"
    if not best:
        if _by_name([c for c in columns if c.numeric and c not in filled], REWARDS):
            raise _ask("reward", [], table, "", _rewards(columns))  # the named one is mostly blank
        best = [c for c in numeric if c.zeros > MANY_ZEROS and not c.flag]
        why = "the only column of numbers with many zeros"
    if len(best) != 1:
        raise _ask("reward", best, table, "", _rewards(columns))
    return best[0].name, f"`{best[0].name}`, {why}, {percent(best[0].zeros)} zeros"


def _arm(columns: list[_Column], table: Table) -> tuple[str, str]:
    fitting = [c for c in columns if c.filled and _repeats(c)]
    named = _by_name(fitting, ARMS)
    best = _best(named)
    why = "by its name"
    if len(best) == 1 and best[0].flag:
        flags = [column for _, column in named if column.flag]
        if len(flags) > 1:  # one arm may be spread over several columns of 0 and 1
            raise _ask(
                "arm", flags, table, " (it may be spread over several columns)", _arms(columns)
            )
    if not best:
        best = [c for c in fitting if c.distinct <= FEW_VALUES and _label_like(c)]
        why = "the only column with few values"
    if len(best) != 1:
        raise _ask("arm", best, table, "", _arms(columns))
    return best[0].name, f"`{best[0].name}`, {why}, {best[0].distinct} values"


def _repeats(column: _Column) -> bool:
    small = min(10, column.rows / 2)  # a tenth of a few rows would leave no arms
    return 2 <= column.distinct <= min(MOST_ARMS, max(column.rows / 10, small))


def _label_like(column: _Column) -> bool:
    return not column.numeric or bool(np.all(column.numbers == np.rint(column.numbers)))


def _propensity(columns: list[_Column], table: Table) -> tuple[str | None, str]:
    k = len(PROPENSITIES)
    fitting = [
        (place, c) for place, c in _by_name(columns, PROPENSITIES)
        if place < k or set(c.words) <= CHOOSING
    ]  # fmt: skip
    # A letter may stand for anything, and a word for a share of something else.
    meant = [(place, c) for place, c in fitting if not _impossible(c) or _called_so(c)]
    best = _best(meant)
    if len(best) > 1:
        listed = ", ".join(f"`{c.name}`" for c in best)
        raise LogError(
            f"several columns may be the propensity: {listed}; name it: --propensity COLUMN "
            "(propensity=... in Python)"
        )
    if not best:
        ignored = [f"`{c.name}` {_impossible(c)}" for _, c in fitting]
        return None, f"none, since {ignored[0]}" if ignored else ""
    wrong = _impossible(best[0])
    if wrong:
        raise LogError(
            f"column `{best[0].name}` of {table.name} is called a propensity, the probability with "
            f"which the arm of the row was chosen, but {wrong}; correct it, or do without: "
            "--propensity '' (propensity='' in Python)"
        )
    return best[0].name, f"`{best[0].name}`, by its name, all in (0, 1]"


def _impossible(column: _Column) -> str:
    """Return why a column cannot hold the probabilities of choices that were made, or nothing."""
    if column.missing:
        return f"is missing in {column.missing} of {column.rows} rows"
    if not column.numeric:
        return f"holds {str(column.values[0].as_py())[:30]!r}"
    bad = ~((column.numbers > 0.0) & (column.numbers <= 1.0))
    if bad.any():
        at = int(np.argmax(bad))
        per_cent = bool(np.all((column.numbers > 0.0) & (column.numbers <= 100.0)))
        more = " (per cent? divide by 100)" if per_cent and column.numbers.max() > 10.0 else ""
        return f"holds {column.numbers[at]:g} in row {at + 1}, outside (0, 1]{more}"
    if column.rows > 1 and bool(np.all(column.numbers == 1.0)):
        return "is 1 in every row, as if nothing had been drawn at random"
    return ""


def _called_so(column: _Column) -> bool:
    """Whether a column is called a propensity or probability, or nearly holds such."""
    telling = {*PROPENSITIES[0], "prob", "probability"}
    if telling & set(column.words) or "".join(column.words) in telling:
        return True
    if not column.numeric:
        return False
    inside = (column.numbers >= 0.0) & (column.numbers <= 1.0)
    return bool(inside.mean() > 0.9 and np.any(inside & (column.numbers % 1.0 != 0.0)))


def _time(columns: list[_Column]) -> tuple[str | None, str]:
    named = _by_name(columns, TIMES)
    named = [(i, c) for i, c in named if i < len(TIMES) or c.words[-1] in TIMES[0]]
    return _optional(_best([(i, c) for i, c in named if _is_time(c)]), "by its name")


def _is_time(column: _Column) -> bool:
    if column.missing:
        return False
    try:
        Times(column.name).read(column.values, 0)
    except LogError:
        return False
    return True


def _unit(columns: list[_Column], whole: bool) -> tuple[str | None, str]:
    named = _by_name(columns, UNITS)
    best = _best([(i, c) for i, c in named if i < len(UNITS) or c.words[-1] in NAMING])
    if len(best) == 1 and best[0].missing == 0:
        name = best[0].name
        if best[0].distinct < best[0].rows:
            many = best[0].words[-1] in NAMING or best[0].distinct >= best[0].rows / 10
            if best[0].distinct < FEWEST_UNITS or not many:  # rather a kind of customer
                return None, f"none, since `{name}` holds few values"
            repeated = best[0].rows - best[0].distinct
            return name, (
                f"`{name}`, by its name, though {repeated} of {best[0].rows} rows repeat a value "
                f"(--cluster {name} if rows of one value belong together)"
            )
        if not whole:
            return None, f"none, since only the first {SAMPLE} rows of `{name}` were looked at"
    return _optional(best, "by its name, all different")


def _optional(best: list[_Column], why: str) -> tuple[str | None, str]:
    if len(best) > 1:
        return None, "none, since " + " and ".join(f"`{c.name}`" for c in best) + " both fit"
    return (best[0].name, f"`{best[0].name}`, {why}") if best else (None, "")
