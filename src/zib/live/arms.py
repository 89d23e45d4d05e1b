"""Arms that come, rest and go. Each change is made in a transaction and written down."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from zib.core import validate
from zib.core.validate import InvalidParameterError
from zib.live.answers import Change
from zib.live.book import ACTIVE, PAUSED, RETIRED, Book
from zib.live.database import Connection
from zib.live.outcome import SECOND
from zib.live.settings import label_of, label_text

VERBS = {ACTIVE: "resume", PAUSED: "pause", RETIRED: "retire"}
OFF = "off"  # no shadow mode; labels are kept as JSON, which this is not


def add_arm(c: Connection, book: Book, label: Hashable, now: int, who: str = "") -> None:
    """Add an arm that is not there yet."""
    _take_over(c, book)
    if label in book.position:
        raise InvalidParameterError(f"`arm` must be new; {validate.shown(label)} is there already")
    if len(book.labels) >= book.most_arms:
        raise InvalidParameterError(
            f"`arm` must be one of at most {book.most_arms}, retired ones included; got one more"
        )
    write_arms(c, book.number, len(book.labels), [label], now)
    _note(c, book, now, who, "add arm", label_text(label))


def set_status(
    c: Connection, book: Book, number: int, status: str, now: int, who: str = ""
) -> None:
    """Pause, resume or retire an arm."""
    _take_over(c, book)
    label = book.labels[number]
    if book.statuses[number] == RETIRED and status != RETIRED:
        raise InvalidParameterError(
            f"`arm` must not be retired, which is for good; {validate.shown(label)} is"
        )
    if book.statuses[number] != status:
        c.run(
            "UPDATE arm SET status = $1 WHERE bandit = $2 AND number = $3",
            status, book.number, number,
        )  # fmt: skip
        _note(c, book, now, who, f"{VERBS[status]} arm", label_text(label))


def set_shadow(c: Connection, book: Book, number: int | None, now: int, who: str = "") -> None:
    """Serve one arm whatever the policy wants, or not."""
    _take_over(c, book)
    if number != book.shadow:
        c.run("UPDATE bandit SET shadow = $1 WHERE id = $2", number, book.number)
        arm = OFF if number is None else label_text(book.labels[number])
        _note(c, book, now, who, "shadow", arm)


def write_arms(
    c: Connection, bandit: int, start: int, labels: Sequence[Hashable], now: int
) -> None:
    """Write new arms, numbered from `start`."""
    for number, label in enumerate(labels, start):
        c.run(
            "INSERT INTO arm (bandit, number, label, status, added_at) VALUES ($1, $2, $3, $4, $5)",
            bandit, number, label_text(label), ACTIVE, now,
        )  # fmt: skip


def _take_over(c: Connection, book: Book) -> None:
    """Know the arms as they are, which nobody else changes until the transaction ends."""
    c.lock_schema()
    book.read_arms(c)


def _note(c: Connection, book: Book, now: int, who: str, action: str, detail: str) -> None:
    """Write down what was changed by hand."""
    c.run(
        "INSERT INTO audit (bandit, at, who, action, detail) VALUES ($1, $2, $3, $4, $5)",
        book.number, now, who, action, detail,
    )  # fmt: skip


def changes(c: Connection, bandit: int, most: int) -> list[Change]:
    """Return what was changed by hand, the latest first."""
    rows = c.rows(
        "SELECT at, who, action, detail FROM audit WHERE bandit = $1 ORDER BY seq DESC LIMIT $2",
        bandit, most,
    )  # fmt: skip
    return [
        Change(at / SECOND, who, action, "off" if detail == OFF else str(label_of(detail)))
        for at, who, action, detail in rows
    ]
