"""What a process knows about a bandit, and what it is asked for."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple, Protocol

from zib.live.database import Connection
from zib.live.outcome import Entry, Rules
from zib.live.settings import Configuration, label_of
from zib.live.statistics import ArmSums

POLICY, HOLDOUT, SHADOW = 0, 1, 2
KINDS = ("policy", "holdout", "shadow")
ACTIVE, PAUSED, RETIRED = "active", "paused", "retired"
MOST_ARMS = 10_000


class Drawn(NamedTuple):
    """The arm that a model draws, and from which arms with which probabilities."""

    arm: int
    probability: float
    arms: Sequence[int]
    shares: Sequence[float]


class Draws(Protocol):
    """What the engine needs of a model."""

    version: int
    active: tuple[int, ...]

    def draw(self, key: str, eligible: tuple[int, ...], context: str | None) -> Drawn:
        """Return an arm among those that may be played, and its probability."""
        ...


class Book:
    """What a process knows about one bandit: its settings, arms and current model."""

    def __init__(self, number: int, name: str, configuration: Configuration) -> None:
        self.number = number
        self.name = name
        self.configuration = configuration
        self.rules: Rules = configuration.settings.rules
        self.most_arms = MOST_ARMS  # a service may allow fewer
        self.labels: list[Hashable] = []
        self.statuses: list[str] = []
        self.position: dict[Hashable, int] = {}
        self.active: tuple[int, ...] = ()
        self.model: Draws | None = None
        self.shadow: int | None = None  # the arm served whatever the policy wants; None: off
        self.parked = 0  # events of unknown decisions; exact where one process writes
        self.changed = True  # since the last model version
        self.sums: ArmSums | None = None  # of this worker; None: to be read
        self.sums_of: Connection | None = None  # another connection may have another slot
        self.uncommitted: Any = None  # changes of the batch that is being written

    def know_arms(self, labels: Sequence[Hashable], statuses: Sequence[str]) -> None:
        """Take over the arms: labels and statuses, in the order of their numbers."""
        self.labels, self.statuses = list(labels), list(statuses)
        self.position = {label: k for k, label in enumerate(labels)}
        self.active = tuple(k for k, status in enumerate(statuses) if status == ACTIVE)

    def need_arms(self, c: Connection, number: int) -> None:
        """Read the arms again if one has been added by another process."""
        if number >= len(self.labels):
            self.read_arms(c)

    def read_arms(self, c: Connection) -> None:
        """Take over the arms as they are in the database, and the one of shadow mode."""
        rows = c.rows(
            "SELECT label, status FROM arm WHERE bandit = $1 ORDER BY number", self.number
        )
        self.know_arms([label_of(row[0]) for row in rows], [row[1] for row in rows])
        ((self.shadow,),) = c.rows("SELECT shadow FROM bandit WHERE id = $1", self.number)

    @property
    def where_parked(self) -> str:
        """Condition on events: of this bandit, and waiting for their decision."""
        return f"bandit = {self.number:d} AND parked = 1"

    def count_parked(self, c: Connection) -> None:
        """Count the events that wait for their decision."""
        self.parked = int(c.rows(f"SELECT COUNT(*) FROM event WHERE {self.where_parked}")[0][0])

    def decision_id(self, key: str) -> str:
        """Return the id of the decision with a key."""
        return decision_id(self.name, key)

    def in_holdout(self, key: str, unit: str | None) -> bool:
        """Whether a unit, or a decision without one, belongs to the yardstick."""
        holdout = self.configuration.settings.holdout
        return holdout > 0.0 and fraction(f"{self.name}\0holdout\0{unit or key}") < holdout


def decision_id(bandit: str, key: str) -> str:
    """Return the id of the decision with a key: known to everybody, made or not."""
    return hashlib.blake2b(f"{bandit}\0{key}".encode(), digest_size=12).hexdigest()


def fraction(text: str) -> float:
    """Return a number in [0, 1) that follows from a text and is as good as drawn at random.

    Examples
    --------
    >>> fraction("a") == fraction("a") != fraction("b")
    True
    """
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> 11) * 2.0**-53


class Asked(NamedTuple):
    """A request for a decision, checked."""

    id: str
    key: str
    request: str  # hash of what was asked: the same key must ask the same
    unit: str | None
    eligible: tuple[int, ...] | None
    context: str | None
    at: int


class Reported(NamedTuple):
    """An event, a revision or a cancellation, checked."""

    decision: str
    entry: Entry
    at_given: bool


class Work:
    """The requests of one call, of one bandit: after the commit it has `answers`, or an `error`."""

    __slots__ = ("answers", "asked", "book", "error", "reported")

    def __init__(
        self, book: Book, asked: Sequence[Asked] = (), reported: Sequence[Reported] = ()
    ) -> None:
        self.book = book
        self.asked = asked
        self.reported = reported
        self.answers: list[Any] = []
        self.error: BaseException | None = None

    @property
    def size(self) -> int:
        """How many requests there are."""
        return len(self.asked) + len(self.reported)

    @property
    def refusal(self) -> BaseException | None:
        """The first of the answers that is an error."""
        return next((a for a in self.answers if isinstance(a, BaseException)), None)
