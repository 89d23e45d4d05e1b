"""`replay`: every logged decision, drawn again from its model version, key and eligible arms."""

from __future__ import annotations

import json
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

from zib.live.answers import LedgerError
from zib.live.book import ACTIVE, KINDS, SHADOW, Asked, Book
from zib.live.database import Connection
from zib.live.engine import draw_row
from zib.live.keeper import makes_of
from zib.live.pages import Bandit, Columns, Progress, bandit_of, decisions

NAMED = 20  # mismatches that are listed; the others are counted
MOST_VERSIONS = 50  # kept at a time; decisions come in the order of versions, nearly

COLUMNS = (
    "id", "key", "unit", "arm", "wanted", "probability", "version", "at", "kind", "eligible",
    "choices", "context",
)  # fmt: skip


@dataclass(frozen=True)
class Replay:
    """What drawing all decisions again has found.

    Attributes
    ----------
    decisions
        How many the log holds.
    replayed
        How many were drawn again; the other ones were made by versions of the model whose content
        is not kept any more.
    versions
        How many versions of the model made them.
    problems
        Decisions for which arm or probability is not the logged one, one sentence each; at most
        some of them, and a last sentence that counts the others.
    """

    decisions: int
    replayed: int
    versions: int
    problems: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return not self.problems

    def __str__(self) -> str:
        lines = [
            f"{self.replayed:,} of {self.decisions:,} decisions of {self.versions:,} model "
            "versions were drawn again"
            + (", all with the logged arm and probability." if not self.problems else ":")
        ]
        lines += [f"- {problem}" for problem in self.problems]
        if self.replayed < self.decisions:
            lines.append(
                f"{self.decisions - self.replayed:,} cannot be: their model versions are "
                "not kept any more."
            )
        return "\n".join(lines)


def replay(
    connection: Connection, name: str = "default", *, progress: Progress | None = None
) -> Replay:
    """Draw all decisions again and compare.

    Parameters
    ----------
    connection
        In a transaction that sees one moment; see `zib.live.pages.looking`.
    name
        Of the bandit.
    progress
        Called with what is done and the share of it that is done.
    """
    bandit = bandit_of(connection, name)
    ((n,),) = connection.rows("SELECT count(*) FROM decision WHERE bandit = $1", bandit.id)
    books = _Books(connection, bandit)
    done = replayed = wrong = 0
    problems: list[str] = []
    for _, _, page in decisions(connection, bandit.id, COLUMNS):
        for k in range(len(page["seq"])):
            book = books.of(page["version"][k])
            if book is None:
                continue
            replayed += 1
            apart = _compared(book, page, k)
            if apart:
                wrong += 1
                if len(problems) < NAMED:
                    problems.append(f"decision {page['id'][k]} {apart}")
        done += len(page["seq"])
        if progress is not None:
            progress("drawing decisions again", done / max(int(n), 1))
    if wrong > len(problems):
        problems.append(f"and {wrong - len(problems):,} more decisions that are drawn otherwise")
    return Replay(done, replayed, books.seen, problems)


class _Books:
    """What a process that served a version of the model knew."""

    def __init__(self, connection: Connection, bandit: Bandit) -> None:
        self._connection = connection
        self._bandit = bandit
        self._kept: OrderedDict[int, Book | None] = OrderedDict()
        self._numbers: set[int] = set()
        self._makes = makes_of(Book(bandit.id, bandit.name, bandit.configuration))

    @property
    def seen(self) -> int:
        """How many versions there were."""
        return len(self._numbers)

    def of(self, version: int) -> Book | None:
        """Return the book with a version of the model; None if its content is not kept."""
        if version in self._kept:
            return self._kept[version]
        self._numbers.add(version)
        found = self._connection.rows(
            "SELECT content FROM model WHERE bandit = $1 AND version = $2",
            self._bandit.id, version,
        )  # fmt: skip
        book = None
        if found and found[0][0]:
            book = Book(self._bandit.id, self._bandit.name, self._bandit.configuration)
            labels = [arm.label for arm in self._bandit.arms.values()]
            book.know_arms(labels, [ACTIVE] * len(labels))  # those that were not are not eligible
            book.model = self._makes.load(self._connection, version, found[0][0])
            book.active = book.model.active
        self._kept[version] = book
        if len(self._kept) > MOST_VERSIONS:
            self._kept.popitem(last=False)
        return book


def _compared(book: Book, page: Columns, k: int) -> str:
    """Return in which way a decision is drawn otherwise; nothing if it is not."""
    eligible = page["eligible"][k]
    book.shadow = page["arm"][k] if page["kind"][k] == SHADOW else None
    ask = Asked(
        id=page["id"][k],
        key=page["key"][k],
        request="",
        unit=page["unit"][k],
        eligible=None if eligible is None else tuple(json.loads(eligible)),
        context=page["context"][k],
        at=page["at"][k],
    )
    unknown = set(ask.eligible or ()) - set(range(len(book.labels)))
    if unknown:
        return f"cannot be drawn again: there is no arm number {min(unknown)}, which was eligible"
    try:
        row, _ = draw_row(book, ask)
    except LedgerError as error:
        return f"cannot be drawn again: {error}"
    if book.decision_id(ask.key) != ask.id:
        return f"has an id that does not belong to its key, {ask.key!r}"
    again = {"arm": row[5], "wanted": row[6], "probability": row[7], "kind": row[10]}
    if page["choices"][k]:  # 0 in databases from before it was kept
        again["choices"] = row[13]
    apart = [
        f"{name} {_words(book, name, page[name][k])} is drawn again as {_words(book, name, value)}"
        for name, value in again.items()
        if page[name][k] != value
    ]
    return "; ".join(f"with {text}" if i == 0 else text for i, text in enumerate(apart))


def _words(book: Book, column: str, value: Any) -> str:
    if column in ("arm", "wanted"):
        return repr(book.labels[value]) if 0 <= value < len(book.labels) else f"number {value}"
    return repr(KINDS[value] if column == "kind" else value)
