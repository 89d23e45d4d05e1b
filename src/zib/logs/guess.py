"""Guesses which column of a table is the arm, the reward, the propensity, the time and the unit."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from zib.logs.columns import looks_numeric, times
from zib.logs.tables import LogError, Table, open_table
from zib.report.numbers import percent

SAMPLE = 100_000  # rows that are looked at
MOST_ARMS = 1_000
FEW_VALUES = 50  # of an arm that has no telling name
MANY_ZEROS = 0.3

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
NAMING = {"id", "uid", "uuid", "key"}  # last words of a column that names units


@dataclass(frozen=True)
class Guess:
    """Which column plays which role; `reasons` says why, one sentence each.

    `roles` gives the columns as arguments of `LoggedData.read` or `LogScan`.
    """

    arm: str
    reward: str
    propensity: str | None = None
    time: str | None = None
    unit: str | None = None
    cluster: str | None = None
    context: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()

    @property
    def roles(self) -> dict[str, Any]:
        """The columns by the names of the arguments they are for."""
        return {
            role: getattr(self, role)
            for role in ("arm", "reward", "propensity", "time", "unit", "cluster", "context")
        }


@dataclass
class _Column:
    name: str
    words: tuple[str, ...]
    values: Any
    rows: int
    numeric: bool = False
    distinct: int = 0
    missing: int = 0
    numbers: Any = field(default=None, repr=False)

    @property
    def filled(self) -> bool:
        """Whether nearly all rows have a value; what is missing is said when the log is read."""
        return self.missing <= self.rows / 100

    @property
    def zeros(self) -> float:
        return float(np.mean(self.numbers == 0.0))

    @property
    def flag(self) -> bool:
        """Whether it holds 0 and 1 only."""
        return self.numeric and bool(np.isin(self.numbers, (0.0, 1.0)).all())


def guess_columns(source: Any, **given: Any) -> Guess:
    """Guess the columns of a log from their names and from its first 100 000 rows.

    Parameters
    ----------
    source
        A pandas or Polars frame, or the path of a CSV or Parquet file.
    **given
        Roles that are known: ``arm``, ``reward``, ``propensity``, ``time``, ``unit``,
        ``cluster``, ``context``. They are kept. An empty string says that there is no such column.

    Notes
    -----
    The reward has numbers; the arm has 2 to 1000 values, each many times. Exact names come first,
    then parts of names, then the only column that fits by its content. If several columns fit
    equally well the guess is refused. The context is never guessed. A unit is only guessed for a
    table that was seen as a whole, since each unit may occur once.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"variant": ["a", "b"] * 50, "revenue": [0.0] * 99 + [7.5]})
    >>> for reason in guess_columns(frame).reasons:
    ...     print(reason)
    arm: `variant`, by its name, 2 values
    reward: `revenue`, by its name, 99 % zeros
    """
    table = open_table(source)
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
    columns, whole = _look(table)
    taken = {*named.values(), *context}
    reasons = {role: f"{role}: `{column}`, as given" for role, column in named.items()}
    finders: dict[str, Callable[[list[_Column]], tuple[str | None, str]]] = {
        "propensity": _propensity,
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
    )


def _look(table: Table) -> tuple[list[_Column], bool]:
    """Return the first rows by column, and whether they are the whole table."""
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
    first = pa.Table.from_batches(parts).combine_chunks()
    columns = []
    for name in table.columns:
        values = first.column(name)
        values = values.chunk(0) if values.num_chunks == 1 else values.combine_chunks()
        if pa.types.is_dictionary(values.type):
            values = values.dictionary_decode()
        if pa.types.is_floating(values.type):
            values = pa.array(values.to_numpy(zero_copy_only=False), from_pandas=True)
        column = _Column(name, _words(name), values, rows, missing=values.null_count)
        try:
            column.distinct = pc.count_distinct(values).as_py()
        except pa.ArrowNotImplementedError:  # lists and the like play no role
            continue
        column.numeric = values.null_count < rows and looks_numeric(values)
        if column.numeric:
            if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
                values = pc.utf8_trim_whitespace(values)
            there = pc.cast(values.drop_null(), pa.float64(), safe=False)
            column.numbers = np.asarray(there.to_numpy(zero_copy_only=False))
        columns.append(column)
    return columns, whole


def _words(name: str) -> tuple[str, ...]:
    parts = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)
    words = [part.lower() for part in parts if not part.isdigit()]
    return tuple(word[:-1] if len(word) > 3 and word.endswith("s") else word for word in words)


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


def _ask(role: str, columns: Sequence[_Column], table: Table, why: str) -> LogError:
    if columns:
        listed = ", ".join(f"`{c.name}`" for c in columns[:10]) + (
            ", …" if len(columns) > 10 else ""
        )
        return LogError(
            f"several columns of {table.name} may be the {role}{why}: {listed}; name it: "
            f"--{role} COLUMN ({role}=... in Python)"
        )
    known = ", ".join(table.columns[:20]) + (", …" if len(table.columns) > 20 else "")
    return LogError(
        f"no column of {table.name} looks like the {role}{why}; name it: --{role} COLUMN "
        f"({role}=... in Python), one of {known}"
    )


def _reward(columns: list[_Column], table: Table) -> tuple[str, str]:
    filled = [c for c in columns if c.numeric and c.filled]
    numeric = [c for c in filled if c.distinct > 1]
    named = _by_name(numeric, REWARDS)
    # a column that is called reward is the reward, also when it is zero throughout
    best = _best([pair for pair in _by_name(filled, REWARDS) if pair[0] == 0])
    if not best:
        # Money that is never zero is rather known beforehand, such as the amount asked for.
        best = _best([pair for pair in named if pair[1].zeros >= MANY_ZEROS]) or _best(named)
    why = "by its name"
    if not best:
        best = [c for c in numeric if c.zeros > MANY_ZEROS and not c.flag]
        why = "the only column of numbers with many zeros"
    if len(best) != 1:
        raise _ask("reward", best, table, "")
    return best[0].name, f"`{best[0].name}`, {why}, {percent(best[0].zeros)} zeros"


def _arm(columns: list[_Column], table: Table) -> tuple[str, str]:
    fitting = [c for c in columns if c.filled and _repeats(c)]
    named = _by_name(fitting, ARMS)
    best = _best(named)
    why = "by its name"
    if len(best) == 1 and best[0].flag:
        flags = [column for _, column in named if column.flag]
        if len(flags) > 1:  # one arm may be spread over several columns of 0 and 1
            raise _ask("arm", flags, table, " (each holds 0 and 1 only)")
    if not best:
        best = [c for c in fitting if c.distinct <= FEW_VALUES and _label_like(c)]
        why = "the only column with few values"
    if len(best) != 1:
        raise _ask("arm", best, table, "")
    return best[0].name, f"`{best[0].name}`, {why}, {best[0].distinct} values"


def _repeats(column: _Column) -> bool:
    small = min(10, column.rows / 2)  # a tenth of a few rows would leave no arms
    return 2 <= column.distinct <= min(MOST_ARMS, max(column.rows / 10, small))


def _label_like(column: _Column) -> bool:
    return not column.numeric or bool(np.all(column.numbers == np.rint(column.numbers)))


def _propensity(columns: list[_Column]) -> tuple[str | None, str]:
    inside = [
        c for c in columns
        if c.numeric and c.missing == 0 and bool(np.all((c.numbers > 0) & (c.numbers <= 1)))
    ]  # fmt: skip
    k = len(PROPENSITIES)
    fitting = [
        (place, c) for place, c in _by_name(inside, PROPENSITIES)
        if place < k or set(c.words) <= CHOOSING
    ]  # fmt: skip
    best = _best(fitting)
    if len(best) > 1:
        listed = ", ".join(f"`{c.name}`" for c in best)
        raise LogError(
            f"several columns may be the propensity: {listed}; name it: --propensity COLUMN "
            "(propensity=... in Python)"
        )
    if not best:
        return None, ""
    return best[0].name, f"`{best[0].name}`, by its name, all in (0, 1]"


def _time(columns: list[_Column]) -> tuple[str | None, str]:
    named = _by_name(columns, TIMES)
    named = [(i, c) for i, c in named if i < len(TIMES) or c.words[-1] in TIMES[0]]
    return _optional(_best([(i, c) for i, c in named if _is_time(c)]), "by its name")


def _is_time(column: _Column) -> bool:
    if column.missing:
        return False
    try:
        times(column.name, column.values, 0)
    except LogError:
        return False
    return True


def _unit(columns: list[_Column], whole: bool) -> tuple[str | None, str]:
    named = _by_name(columns, UNITS)
    best = _best([(i, c) for i, c in named if i < len(UNITS) or c.words[-1] in NAMING])
    if len(best) == 1 and best[0].missing == 0:
        name = best[0].name
        if best[0].distinct < best[0].rows:
            return None, f"none, since `{name}` holds some values more than once"
        if not whole:
            return None, f"none, since only the first {SAMPLE} rows of `{name}` were looked at"
    return _optional(best, "by its name, all different")


def _optional(best: list[_Column], why: str) -> tuple[str | None, str]:
    if len(best) > 1:
        return None, "none, since " + " and ".join(f"`{c.name}`" for c in best) + " both fit"
    return (best[0].name, f"`{best[0].name}`, {why}") if best else (None, "")
