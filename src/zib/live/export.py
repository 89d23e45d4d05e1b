"""`export`: the log of a ledger as a table, one row per decision, for evaluation and advice."""

from __future__ import annotations

import json
import time
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zib.core import validate
from zib.core.validate import InvalidParameterError
from zib.live.database import Connection
from zib.live.outcome import SECOND
from zib.live.pages import (
    KINDS,
    Bandit,
    Columns,
    Progress,
    bandit_of,
    decisions,
    real,
    whole,
)
from zib.live.settings import microseconds
from zib.logs.joining.attribute import Outcomes
from zib.logs.joining.instants import moment, span_words
from zib.logs.joining.join import PENDING, fit_chances, fit_delays
from zib.logs.joining.passes import SALT, Finish, Tally
from zib.logs.joining.write import check_file, rows_for
from zib.logs.tables import LogError
from zib.stats.delay import delay_bins, pending_weight
from zib.stats.sampling import mixed

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

MOST_COLUMNS = 1_000  # of contexts
PREFIX = "context_"
ROLES = {
    "arm": "arm", "reward": "reward", "propensity": "propensity", "time": "time", "unit": "unit",
}  # fmt: skip


@dataclass(frozen=True)
class Exported:
    """The log of a ledger as a table; print it for a summary.

    Attributes
    ----------
    path
        The file that was written, or None.
    table
        The rows as an Arrow table, or None if they were written to a file.
    rows
        Number of rows.
    decisions
        Decisions that were asked for; cancelled ones are never among the rows.
    cancelled
        How many of them were cancelled.
    open_rows, open_rewarded
        How many could still get a reward, and those of them that have one.
    context
        Names of the columns of the context.
    inflated
        The reward that means that nothing happened.
    pending
        What became of the open ones: "leave-out", "thin" or "weight".
    horizon
        How long a decision stays open, in seconds.
    """

    path: Path | None
    table: Any
    rows: int
    decisions: int
    cancelled: int
    open_rows: int
    open_rewarded: int
    context: tuple[str, ...]
    inflated: float
    pending: str
    horizon: float

    def frame(self) -> Any:
        """Return the rows as a pandas frame."""
        if self.table is not None:
            return self.table.to_pandas()
        import pandas as pd

        if str(self.path).lower().endswith(".csv"):
            return pd.read_csv(str(self.path))
        return pd.read_parquet(str(self.path))

    def log(self, **roles: Any) -> Any:
        """Return the rows as a log for `zib.ope.evaluate` and `zib.advise.advise`.

        The columns of the context that hold numbers or words, of which there are few, come with
        it; other roles are given as for `zib.datasets.open_log`.
        """
        from zib.logs.read import open_log

        if self.pending == "weight":
            raise InvalidParameterError(
                "`pending` must be 'leave-out' or 'thin' for a log; weighted rows would count as "
                "whole ones"
            )
        named = {**ROLES, "context": self.context, "inflated": self.inflated, **roles}
        return open_log(self.table if self.path is None else self.path, **named)

    def __str__(self) -> str:
        where = "" if self.path is None else f" in {self.path}"
        lines = [f"{self.rows:,} rows{where}, of {self.decisions:,} decisions."]
        if self.cancelled:
            lines.append(f"Cancelled decisions, which are left out: {self.cancelled:,}.")
        if self.open_rows:
            what = {
                "leave-out": "they are left out, with and without reward",
                "thin": "those with a reward are kept, and of the others as many as their age "
                "makes zeros of, drawn at random",
                "weight": "those without reward weigh what their age makes of a zero; the commands "
                "`zib advise` and `zib evaluate` do not read weights (use `thin` for them)",
            }[self.pending]
            lines.append(
                f"Decisions younger than {span_words(self.horizon)}, whose reward may still come: "
                f"{self.open_rows:,}, of which {self.open_rewarded:,} with one; {what}."
            )
        return "\n".join(lines)


def export(
    connection: Connection,
    out: Any = None,
    name: str = "default",
    *,
    pending: str = "leave-out",
    since: Any = None,
    until: Any = None,
    kind: str | None = None,
    seed: int = 0,
    now: int | None = None,
    progress: Progress | None = None,
) -> Exported:
    """Return the log as a table, or write it to a file.

    Parameters
    ----------
    connection
        In a transaction that sees one moment; see `zib.live.pages.looking`.
    out
        File to write, ending with .parquet or .csv; without it the rows stay in memory.
    name
        Of the bandit.
    pending
        What becomes of decisions whose reward may still come, those younger than window and grace:
        "leave-out"; "thin" keeps those with a reward and of the others a random part, so that the
        rows are like those of closed decisions; "weight" keeps all, with the columns ``weight`` and
        ``fraction``. The same as for `zib.datasets.join`.
    since, until
        Times between which decisions were made: seconds since 1970, a date, or text such as
        ``"2026-05-01"`` (UTC unless it says otherwise). A decision at `until` is left out.
    kind
        Only decisions of one kind: "policy", "holdout" or "shadow"; all by default.
    seed
        Of what "thin" draws.
    now
        The time in microseconds since 1970; the clock of this machine by default.
    progress
        Called with what is done and the share of it that is done.

    Notes
    -----
    Columns: ``decision`` (its id), ``key``, ``unit`` (the key where none was given), ``time``,
    ``arm``, ``reward`` (the inflated value where nothing happened), ``propensity`` (the logged
    probability), ``version`` of the model, ``kind``, ``wanted`` (what the policy would have served:
    differs from ``arm`` in the holdout and in shadow mode), ``eligible`` (as JSON, blank if all
    arms were), ``pending``, and a column ``context_…`` for each entry of the context.
    """
    validate.choice("pending", pending, PENDING)
    if kind is not None:
        validate.choice("kind", kind, KINDS)
    seed = validate.seed("seed", seed)
    first, last = (
        None if value is None else microseconds(word, moment(word, value, "UTC"))
        for word, value in (("since", since), ("until", until))
    )
    target = None if out is None else check_file(out)
    made = _Export(
        connection,
        bandit_of(connection, name),
        pending=pending,
        seed=seed,
        now=round(time.time() * SECOND) if now is None else now,
        which={
            "since": first,
            "until": last,
            "kind": None if kind is None else KINDS.index(kind),
        },
        progress=progress,
    )
    rows = rows_for(target)
    try:
        for batch in made.batches():
            rows.add(batch)
        rows.close()
    except BaseException:
        rows.give_up()
        raise
    return Exported(
        path=target,
        table=rows.table(),
        rows=rows.rows,
        decisions=made.seen,
        cancelled=made.cancelled,
        open_rows=made.open_rows,
        open_rewarded=made.open_rewarded,
        context=tuple(PREFIX + column for column in made.context),
        inflated=made.rules.inflated,
        pending=pending,
        horizon=made.horizon,
    )


@dataclass
class _Export:
    """The passes over the log: kinds of context, pending decisions, rows."""

    connection: Connection
    bandit: Bandit
    pending: str
    seed: int
    now: int
    which: dict[str, Any]
    progress: Progress | None
    seen: int = 0
    cancelled: int = 0
    open_rows: int = 0
    open_rewarded: int = 0
    context: dict[str, str] = field(default_factory=dict)  # names and kinds of columns

    def __post_init__(self) -> None:
        self.rules = self.bandit.configuration.settings.rules
        self.horizon = self.rules.horizon / SECOND
        self.numbers = list(self.bandit.arms)
        self._labels = {k: arm.label for k, arm in self.bandit.arms.items()}
        self._at = np.full(max(self.numbers, default=-1) + 1, 0, dtype=np.int64)
        self._at[self.numbers] = np.arange(len(self.numbers))
        self._eligible: dict[str, str] = {}

    def _pages(self, *columns: str, words: str = "") -> Iterator[Columns]:
        tests = "".join(
            f" AND {test} {value:d}"
            for test, value in zip(("at >=", "at <", "kind ="), self.which.values(), strict=True)
            if value is not None
        )
        ((n,),) = self.connection.rows(
            f"SELECT count(*) FROM decision WHERE bandit = $1{tests}", self.bandit.id
        )
        done = 0
        for _, _, page in decisions(self.connection, self.bandit.id, columns, **self.which):
            yield page
            done += len(page["seq"])
            if self.progress is not None:
                self.progress(words, done / max(int(n), 1))

    def batches(self) -> Iterator[Any]:
        """Yield the rows as record batches, an empty one first."""
        self._look_at_contexts()
        weigh = None if self.pending == "leave-out" else self._weighing()
        schema = self._schema()
        yield _empty(schema)
        columns = (
            "id", "key", "unit", "at", "arm", "value", "probability", "version", "kind", "wanted",
            "eligible", "cancelled", *(("context",) if self.context else ()),
        )  # fmt: skip
        for page in self._pages(*columns, words="writing rows"):
            yield self._rows(page, weigh, schema)

    # ------------------------------------------------------------------------------------ contexts

    def _look_at_contexts(self) -> None:
        """Find out which columns the contexts make, and whether they hold numbers."""
        ((any_,),) = self.connection.rows(
            "SELECT count(*) FROM (SELECT 1 FROM decision WHERE bandit = $1 "
            "AND context IS NOT NULL LIMIT 1) found", self.bandit.id,
        )  # fmt: skip
        if not any_:
            return
        for page in self._pages("context", words="looking at contexts"):
            for text in page["context"]:
                if text is None:
                    continue
                for column, value in self._entries(text).items():
                    if value is not None:
                        kind = self.context.get(column, _kind(value))
                        self.context[column] = kind if kind == _kind(value) else "text"
            if len(self.context) > MOST_COLUMNS:
                raise LogError(
                    f"the contexts of the log have more than {MOST_COLUMNS} entries in all, too "
                    "many for columns"
                )
        self.context = dict(sorted(self.context.items(), key=_natural))

    def _entries(self, text: str) -> dict[str, Any]:
        """Return the entries of a context, as it was given."""
        context = json.loads(text)
        if self.bandit.configuration.is_contextual:  # which keeps the features, too
            context = context.get("given", context["x"])
        return flat(context)

    def _context_columns(self, page: Columns) -> dict[str, list[Any]]:
        found = [{} if text is None else self._entries(text) for text in page["context"]]
        out = {}
        for column, kind in self.context.items():
            values = [row.get(column) for row in found]
            if kind == "text":
                values = [x if x is None or isinstance(x, str) else json.dumps(x) for x in values]
            out[PREFIX + column] = values
        return out

    # ------------------------------------------------------------------------------------- pending

    def _weighing(self) -> Finish:
        """Estimate the delay, and the chance of a reward of each arm, from the whole log."""
        edges = delay_bins(self.horizon)
        tally, found = Tally(edges), []
        labels = {self._labels[k]: code for code, k in enumerate(self.numbers)}
        for page in self._pages("arm", "at", "value", "known", "cancelled", words="weighing"):
            arm = self._at[whole(page["arm"])]
            at, value, known = whole(page["at"]), real(page["value"]), real(page["known"])
            age = np.maximum(self.now - at, 0) / SECOND
            event = self._rewarded(value)
            here = whole(page["cancelled"]) == 0
            closed = age >= self.horizon
            tally.add(labels, arm[here], age[here], closed[here], event[here])
            told = np.flatnonzero(here & event & ~np.isnan(known))
            delay = np.clip((known[told] - at[told]) / SECOND, 0.0, age[told])
            found.append((at[told] / SECOND, delay, arm[told]))
        times, delays, arms = map(np.concatenate, zip(*found)) if found else (_NO,) * 3
        work = Finish(
            Outcomes(np.arange(times.size), times, np.ones(times.size), delays),
            self.horizon, self.now / SECOND, self.pending, "reward", self.seed, edges,
        )  # fmt: skip
        fit_delays(work, arms.astype(np.int64), labels, self.bandit.configuration.delay)
        work.chances = fit_chances(tally, work)
        return work

    def _rewarded(self, value: Array) -> Mask:
        return np.asarray(~np.isnan(value) & (value != self.rules.inflated))

    # ---------------------------------------------------------------------------------------- rows

    def _schema(self) -> Any:
        import pyarrow as pa

        text = pa.string()
        kinds = {"number": pa.float64(), "truth": pa.bool_(), "text": text}
        more = {"weight": pa.float64(), "fraction": pa.float64()}
        arms = _label_array(list(self._labels.values())).type
        return pa.schema(
            {
                "decision": text, "key": text, "unit": text, "time": pa.timestamp("us", "UTC"),
                "arm": arms, "reward": pa.float64(), "propensity": pa.float64(),
                "version": pa.int64(), "kind": text, "wanted": arms, "eligible": text,
                "pending": pa.bool_(), **(more if self.pending == "weight" else {}),
                **{PREFIX + column: kinds[kind] for column, kind in self.context.items()},
            }
        )  # fmt: skip

    def _rows(self, page: Columns, weigh: Finish | None, schema: Any) -> Any:
        import pyarrow as pa

        at, value = whole(page["at"]), real(page["value"])
        arm = self._at[whole(page["arm"])]
        event = self._rewarded(value)
        age = np.maximum(self.now - at, 0) / SECOND
        cancelled, closed = whole(page["cancelled"]) != 0, age >= self.horizon
        still_open = ~cancelled & ~closed
        self.seen += at.size
        self.cancelled += int(cancelled.sum())
        self.open_rows += int(still_open.sum())
        self.open_rewarded += int((still_open & event).sum())
        keep = ~cancelled & closed
        more: dict[str, Any] = {}
        if weigh is not None:
            assert weigh.chances is not None
            labels = list(self._labels.values())
            fraction = np.where(closed, 1.0, weigh.fraction(labels, arm, age))
            chance = np.array([weigh.chances[label] for label in labels])[arm]
            weight = np.where(event | closed, 1.0, pending_weight(fraction, chance))
            if self.pending == "thin":
                drawn = mixed(self.seed, SALT, whole(page["seq"]).astype(np.uint64)) / 2.0**64
                keep = ~cancelled & (drawn < weight)
            else:
                keep = ~cancelled
                more = {"weight": weight, "fraction": fraction}
        known = _label_array(list(self._labels.values()))
        columns = {
            "decision": page["id"],
            "key": page["key"],
            "unit": [key if unit is None else unit for key, unit in zip(page["key"], page["unit"])],
            "time": pa.array(at).cast(schema.field("time").type),
            "arm": known.take(pa.array(arm)),
            "reward": np.where(np.isnan(value), self.rules.inflated, value),
            "propensity": real(page["probability"]),
            "version": whole(page["version"]),
            "kind": pa.array(KINDS).take(pa.array(whole(page["kind"]))),
            "wanted": known.take(pa.array(self._at[whole(page["wanted"])])),
            "eligible": [self._eligible_words(text) for text in page["eligible"]],
            "pending": still_open,
            **more,
            **(self._context_columns(page) if self.context else {}),
        }
        batch = pa.RecordBatch.from_pydict(columns, schema=schema)
        return batch if keep.all() else batch.filter(pa.array(keep))

    def _eligible_words(self, text: str | None) -> str | None:
        if text is None:
            return None
        found = self._eligible.get(text)
        if found is None:
            found = json.dumps([_plain(self._labels[k]) for k in json.loads(text)])
            if len(self._eligible) < MOST_COLUMNS:
                self._eligible[text] = found
        return found


_NO = np.empty(0)


def _empty(schema: Any) -> Any:
    import pyarrow as pa

    return pa.RecordBatch.from_pydict({name: [] for name in schema.names}, schema=schema)


def _plain(label: Hashable) -> Any:
    return label if isinstance(label, (str, int, float, bool)) else str(label)


def _label_array(labels: list[Hashable]) -> Any:
    """Return labels as a column: of words, or of numbers if all of them are."""
    import pyarrow as pa

    kinds = {type(label) for label in labels}
    if kinds and (kinds <= {int, float} or kinds == {bool}):
        return pa.array(labels, pa.float64() if float in kinds else None)
    return pa.array([label if isinstance(label, str) else str(label) for label in labels], "string")


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "truth"
    return "number" if isinstance(value, (int, float)) else "text"


def _natural(pair: tuple[str, str]) -> tuple[Any, ...]:
    """Order 0, 1, …, 10, and not 0, 1, 10, 2."""
    return tuple((0, int(p), "") if p.isdigit() else (1, 0, p) for p in pair[0].split("_"))


def flat(context: Any) -> dict[str, Any]:
    """Return the entries of a context by name; what is inside an entry has its name before it.

    Examples
    --------
    >>> flat({"age": 31, "car": {"power": 90}})
    {'age': 31, 'car_power': 90}
    >>> flat([0.5, 1.0])
    {'0': 0.5, '1': 1.0}
    """
    found: dict[str, Any] = {}

    def put(name: str, value: Any) -> None:
        if isinstance(value, (dict, list)):
            pairs = value.items() if isinstance(value, dict) else enumerate(value)
            for key, inner in pairs:
                put(f"{name}_{key}" if name else str(key), inner)
        else:
            found[name or "value"] = value

    put("", context)
    return found
