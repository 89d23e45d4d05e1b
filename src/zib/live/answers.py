"""What a ledger answers, and how it refuses."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from zib.core.validate import InvalidParameterError


class LedgerError(RuntimeError):
    """The ledger could not do it; nothing has changed."""


class ConflictError(LedgerError, InvalidParameterError):
    """An id came again with other content."""


class Unavailable(LedgerError):
    """The service did not answer in time; repeat the call later with the same ids.

    Attributes
    ----------
    arrived
        Whether a request may have arrived, and its answer been lost.
    """

    def __init__(self, message: str = "", *, arrived: bool = True) -> None:
        super().__init__(message)
        self.arrived = arrived


class Refused(LedgerError):
    """The service does not know the token, or its role does not allow the call."""


class Unserved(LedgerError):
    """No arm may be served to this request, as arms are now."""


class Transient(LedgerError):
    """The database was not there for a moment: the same batch is tried again."""


class Decision(NamedTuple):
    """A decision that is in the database.

    Attributes
    ----------
    id
        Events are reported with it. It is a hash of the name of the bandit and the key, so
        `Ledger.decision_id` tells it before the decision is made.
    arm
        Label of the arm to serve.
    probability
        With which the arm was drawn, exactly; in (0, 1].
    version
        Of the model that it was drawn from.
    at, closes_at
        When it was made, and until when events are expected, in seconds since 1970.
    kind
        "policy", "holdout" (drawn evenly among the arms) or "shadow" (the default arm is served);
        "fallback" for one that a `Client` had to make without the service: it is in no ledger.
    wanted
        Label of the arm that the policy would serve; differs from `arm` in shadow mode only.
    """

    id: str
    arm: Hashable
    probability: float
    version: int
    at: float
    closes_at: float
    kind: str = "policy"
    wanted: Hashable = None


class Receipt(NamedTuple):
    """What became of an event, a revision or a cancellation that is in the database.

    Attributes
    ----------
    status
        "applied"; "duplicate" (it had been reported before); "late" (the window of the decision
        had closed); "parked" (its decision is not known yet); "cancelled" (its decision was); or
        "fallback" (its decision was made without the service, which has not been told).
    decision_id
        Of the decision it belongs to.
    value
        What the decision is worth now; None while it waits for its first event.
    counted
        Whether the entry counts: an event that happened more than window and grace after its
        decision does not, nor does one whose decision is unknown or cancelled.
    """

    status: str
    decision_id: str
    value: float | None
    counted: bool


class Parked(NamedTuple):
    """An event, a revision or a cancellation whose decision is not known.

    Attributes
    ----------
    id, decision_id, kind, value
        As it was reported; `kind` is "event", "revision" or "cancellation".
    at, received
        When it happened and when it became known, in seconds since 1970.
    dead
        Whether it has waited for longer than `park`: most likely its id is wrong. It is applied
        all the same if the decision ever comes.
    """

    id: str
    decision_id: str
    kind: str
    value: float | None
    at: float
    received: float
    dead: bool


class Change(NamedTuple):
    """Something that was changed by hand.

    Attributes
    ----------
    at
        When, in seconds since 1970.
    who
        Who did, as told to `Ledger.pause_arm` and the like; "" where nobody said.
    action
        "add arm", "pause arm", "resume arm", "retire arm" or "shadow".
    detail
        Label of the arm, as text; "off" when shadow mode ended.
    """

    at: float
    who: str
    action: str
    detail: str
