"""What comes in and what goes out, as JSON; and which answer an error gets.

The structs are the one description of the interface: requests are decoded by them, answers encoded,
and the OpenAPI document is made from them.
"""

from __future__ import annotations

import logging
import re
import secrets
import time
from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from zib.core.validate import InvalidParameterError
from zib.live.answers import ConflictError, LedgerError, Unserved
from zib.live.service.access import Refused

MOST_WORDS = 400  # letters of a sentence to a client

log = logging.getLogger("zib.live.service")

Label = str | int
Time = Annotated[
    float | Annotated[datetime, Meta(tz=True)],
    Meta(description="Seconds since 1970, or ISO 8601 text with a time zone."),
]
Text = Annotated[str, Meta(description="1 to 200 printable characters.")]
Context = dict[str, Any] | list[Any]


# ----------------------------------------------------------------------------------------- requests


class Asking(Struct, forbid_unknown_fields=True, frozen=True, gc=False):
    """A request for a decision. The same key again gets the same answer."""

    key: Text
    unit: Text | None = None
    arms: list[Label] | None = None
    context: Context | None = None
    at: Time | None = None


class Reporting(Struct, forbid_unknown_fields=True, frozen=True, gc=False):
    """An event, or a revision: what a decision is worth. The same id again changes nothing."""

    id: Text
    decision_id: Text
    value: float
    at: Time | None = None


class Cancelling(Struct, forbid_unknown_fields=True, frozen=True, gc=False):
    """A decision that was never carried out."""

    decision_id: Text


class AskingMany(Struct, forbid_unknown_fields=True):
    """Requests for decisions: all of them are made, or none."""

    decisions: list[Asking]


class ReportingMany(Struct, forbid_unknown_fields=True):
    """Events: all of them are entered, or none."""

    events: list[Reporting]


class RevisingMany(Struct, forbid_unknown_fields=True):
    """Revisions: all of them are entered, or none."""

    revisions: list[Reporting]


class CancellingMany(Struct, forbid_unknown_fields=True):
    """Decisions that were never carried out."""

    decision_ids: list[Text]


class NamingArm(Struct, forbid_unknown_fields=True):
    """The label of an arm."""

    arm: Label


class Shadowing(Struct, forbid_unknown_fields=True):
    """The arm that is served whatever the policy wants; null: what the policy wants."""

    arm: Label | None


# ------------------------------------------------------------------------------------------ answers


class Decided(Struct, gc=False):
    """A decision that is in the database."""

    id: str
    arm: Any
    probability: float
    version: int
    at: float
    closes_at: float
    kind: str
    wanted: Any


class Received(Struct, gc=False):
    """What became of an event, a revision or a cancellation that is in the database."""

    status: str
    decision_id: str
    value: float | None
    counted: bool


class DecidedMany(Struct):
    """The decisions, in the order of the requests."""

    decisions: list[Decided]


class ReceivedMany(Struct):
    """The receipts, in the order of the requests."""

    receipts: list[Received]


class Became(Struct):
    """What became of a decision; `known` is in microseconds since 1970."""

    entries: int
    value: float | None
    known: int | None
    cancelled: bool


class DecisionAndOutcome(Struct):
    """A decision and what became of it."""

    decision: Decided
    outcome: Became


class OneArm(Struct):
    """An arm: "active", "paused" or "retired"."""

    arm: Any
    status: str


class Arms(Struct):
    """All arms, and the one that is served whatever the policy wants, or null."""

    arms: list[OneArm]
    shadow: Any


class Bandits(Struct):
    """Names of the bandits."""

    bandits: list[str]


class OneParked(Struct):
    """An event whose decision is not known; a dead one has waited longer than it should."""

    id: str
    decision_id: str
    kind: str
    value: float | None
    at: float
    received: float
    dead: bool


class AllParked(Struct):
    """Events whose decision is not known, the oldest first."""

    parked: list[OneParked]


class OneChange(Struct):
    """Something that was changed by hand."""

    at: float
    who: str
    action: str
    detail: str


class Changes(Struct):
    """What was changed by hand, the latest first."""

    audit: list[OneChange]


class State(Struct):
    """Whether the service runs, or why it should get no requests."""

    status: str
    problems: list[str] = []


class Error(Struct, omit_defaults=True):
    """One sentence saying what is wrong; `kind` is "conflict" for an id with other content."""

    error: str
    kind: str | None = None


_encoder = msgspec.json.Encoder(enc_hook=str)


def encoded(answer: Any) -> bytes:
    """Return an answer as JSON; what is not a finite number becomes null."""
    return _encoder.encode(answer)


# ------------------------------------------------------------------------------------------- errors


class Problem(Exception):
    """A request that is refused, with the status of the answer and one sentence."""

    def __init__(
        self,
        status: int,
        sentence: str,
        *,
        kind: str | None = None,
        retry_after: float | None = None,
        allow: str | None = None,
    ) -> None:
        sentence = _one_line(sentence)  # it may repeat what was sent
        super().__init__(sentence)
        self.status = status
        self.sentence = sentence
        self.kind = kind
        self.retry_after = retry_after
        self.allow = allow

    @property
    def body(self) -> bytes:
        """What the client is told."""
        return encoded(Error(self.sentence, self.kind))


def _one_line(words: str) -> str:
    if not words.isprintable():
        words = "".join(c if c.isprintable() else repr(c)[1:-1] for c in words)
    return words if len(words) <= MOST_WORDS else f"{words[: MOST_WORDS - 1]}…"


QUIET = 5.0  # seconds between two warnings that the database does not answer
AWAY = (
    "the database does not answer: try again with the same ids, which is safe whether this was "
    "written or not"
)


def problem_of(error: BaseException, where: str = "") -> Problem:
    """Return how an error is answered. What is our own fault goes into the log, not to clients."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, Refused):
        return Problem(error.status, error.sentence, retry_after=error.retry_after)
    if isinstance(error, ConflictError):
        return Problem(409, str(error), kind="conflict")
    if isinstance(error, Unserved):
        return Problem(409, str(error))
    if isinstance(error, (LedgerError, TimeoutError)):
        _warn(where, error)
        return Problem(503, AWAY, retry_after=1.0)
    if isinstance(error, InvalidParameterError):
        return Problem(422, str(error))
    number = secrets.token_hex(3)
    log.error("internal error %s in %s", number, where, exc_info=error)
    return Problem(500, f"internal error {number}: see the service's log")


_warned = [-QUIET]  # when it was last said that the database does not answer


def _warn(where: str, error: BaseException) -> None:
    """Log that the database does not answer; not for each of thousands of requests."""
    now = time.monotonic()
    if now - _warned[0] >= QUIET:
        _warned[0] = now
        log.warning("%s: %s", where, error or type(error).__name__)


class Decoder:
    """Reads one kind of body.

    Examples
    --------
    >>> Decoder(Cancelling).read(b'{"decision_id": "d"}')
    Cancelling(decision_id='d')
    >>> Decoder(Cancelling).read(b'{"decision_id": 5}')
    Traceback (most recent call last):
    zib.live.service.bodies.Problem: `decision_id`: expected `str`, got `int`
    """

    def __init__(self, kind: type[Any]) -> None:
        self._decode = msgspec.json.Decoder(kind).decode

    def read(self, body: bytes | bytearray) -> Any:
        """Return what a body says, or raise with the sentence that names the field."""
        try:
            return self._decode(body)
        except msgspec.ValidationError as error:
            raise Problem(400, _sentence(str(error))) from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Problem(400, f"the body must be JSON: {_small(str(error))}") from None
        except RecursionError:
            raise Problem(400, "the body must be JSON that is not nested so deeply") from None


def _sentence(words: str) -> str:
    """Return what msgspec says with the field first."""
    what, at, path = words.partition(" - at `$")
    if not at:
        return f"the body is not as expected: {_small(what)}"
    return f"`{path.rstrip('`').lstrip('.')}`: {_small(what)}"


def _small(words: str) -> str:
    return words[:1].lower() + words[1:]


def time_of(text: str | None) -> str | float | None:
    """Return a time of a query: seconds since 1970, or text."""
    if text is not None and re.fullmatch(r"\d+(\.\d*)?", text):
        return float(text)
    return text
