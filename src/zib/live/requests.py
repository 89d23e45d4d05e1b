"""From what a caller gives to what the engine takes, or one sentence saying what is wrong.

Everything is checked in the caller's thread, before anything is queued or written.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from zib.core import validate
from zib.core.state import LARGEST_REWARD, SMALLEST_REWARD
from zib.core.validate import InvalidParameterError
from zib.live.book import MOST_ARMS, Asked, Book, Reported
from zib.live.contextual import encoded_context
from zib.live.outcome import CANCEL, ID_NAMES, Entry
from zib.live.settings import MOST_CONTEXT, microseconds, text

MOST_AT_ONCE = 1_000_000  # requests in one call
CANCELLING = "cancel:"  # how the ids of cancellations begin


class Requests:
    """Checks the requests for one bandit.

    Parameters
    ----------
    book
        The bandit.
    now
        Returns the time in microseconds.
    """

    def __init__(self, book: Book, now: Callable[[], int]) -> None:
        self._book = book
        self._now = now

    # ---------------------------------------------------------------------------------- decisions

    def asked(self, key: Any, unit: Any, arms: Any, context: Any, at: Any) -> Asked:
        """Return a request for a decision."""
        return self._asked(key, unit, self._eligible(arms), context, self._time("at", at))

    def asked_many(self, keys: Any, units: Any, arms: Any, contexts: Any, at: Any) -> list[Asked]:
        """Return requests for decisions at the same time, among the same arms."""
        names = as_list("keys", keys)
        owners = [None] * len(names) if units is None else as_list("units", units)
        told = [None] * len(names) if contexts is None else as_list("contexts", contexts)
        for name, each in (("units", owners), ("contexts", told)):
            if len(each) != len(names):
                raise InvalidParameterError(
                    f"`{name}` must have one entry per entry of `keys`, {len(names)}; "
                    f"got {len(each)}"
                )
        when, eligible = self._time("at", at), self._eligible(arms)
        return [
            self._asked(key, unit, eligible, context, when, "keys", "units")
            for key, unit, context in zip(names, owners, told, strict=True)
        ]

    def _asked(
        self,
        key: Any,
        unit: Any,
        eligible: tuple[int, ...] | None,
        context: Any,
        at: int,
        key_name: str = "key",
        unit_name: str = "unit",
    ) -> Asked:
        key = text(key_name, key)
        unit = None if unit is None else text(unit_name, unit)
        told = self._context(context)
        request = ""
        if unit is not None or eligible is not None or told is not None:
            content = json.dumps([unit, eligible, told]).encode()
            request = hashlib.blake2b(content, digest_size=8).hexdigest()
        return Asked(self._book.decision_id(key), key, request, unit, eligible, told, at)

    def _eligible(self, arms: Any) -> tuple[int, ...] | None:
        if arms is None:
            return None
        return tuple(sorted(self.number("arms", label) for label in validate.labels("arms", arms)))

    def number(self, name: str, label: Any) -> int:
        """Return the number of an arm."""
        try:
            return self._book.position[label]
        except (KeyError, TypeError):
            raise InvalidParameterError(
                f"`{name}` must be known: {validate.shown(tuple(self._book.labels))}; "
                f"got {validate.shown(label)}"
            ) from None

    def _context(self, context: Any) -> str | None:
        """Return a context as it is kept."""
        if self._book.configuration.is_contextual:
            context = encoded_context(self._book.configuration, context)
        return None if context is None else context_text(context)

    # ------------------------------------------------------------------------------------- events

    def reported(
        self, kind: int, id: Any, decision: Any, value: Any, at: Any, received: Any = None
    ) -> Reported:
        """Return an event or a revision."""
        name = ID_NAMES[kind]
        known = self._time("received", received)
        entry = Entry(
            id=text(name, id),
            kind=kind,
            value=self._value(value),
            at=known if at is None else microseconds("at", at),
            received=known,
        )
        if entry.id.startswith(CANCELLING):
            raise InvalidParameterError(
                f"`{name}` must not begin with {CANCELLING!r}, which is for cancellations; "
                f"got {id!r}"
            )
        return Reported(text("decision_id", decision), entry, at is not None)

    def reported_many(self, kind: int, whole: str, rows: Any) -> list[Reported]:
        """Return several events or revisions, each a tuple; `whole` names their parameter."""
        return [self.reported(kind, *row) for row in rows_of(kind, whole, rows)]

    def cancelled(self, decision: Any, name: str = "decision_id") -> Reported:
        """Return a cancellation; `name` is that of the parameter."""
        now, decision = self._now(), text(name, decision)
        return Reported(decision, Entry(f"{CANCELLING}{decision}", CANCEL, None, now, now), False)

    def _value(self, value: Any) -> float:
        number = validate.real("value", value, low=-LARGEST_REWARD, high=LARGEST_REWARD)
        inflated = self._book.rules.inflated
        if 0.0 < abs(number - inflated) < SMALLEST_REWARD:
            raise InvalidParameterError(
                f"`value` must be {inflated:g}, or differ from it by at least "
                f"{SMALLEST_REWARD:g}; got {value!r}"
            )
        return number

    def _time(self, name: str, value: Any) -> int:
        return self._now() if value is None else microseconds(name, value)


def arm_labels(arms: Any) -> tuple[Hashable, ...]:
    """Return the labels of the arms of a new bandit."""
    labels = validate.labels("arms", arms)
    if len(labels) > MOST_ARMS:
        raise InvalidParameterError(
            f"`arms` must hold at most {MOST_ARMS} labels; got {len(labels)}"
        )
    return labels


def as_list(name: str, values: Any) -> list[Any]:
    """Return several values, not too many."""
    found = list(validate.iterable(name, values))
    if len(found) > MOST_AT_ONCE:
        raise InvalidParameterError(
            f"`{name}` must hold at most {MOST_AT_ONCE} entries at once; got {len(found)}"
        )
    return found


def rows_of(kind: int, whole: str, rows: Any) -> list[tuple[Any, Any, Any, Any]]:
    """Return (id, decision, value, time or None) of several events or revisions."""
    name = ID_NAMES[kind]
    found = []
    for k, row in enumerate(as_list(whole, rows)):
        if isinstance(row, str) or not isinstance(row, Sequence) or len(row) not in (3, 4):
            raise InvalidParameterError(
                f"`{whole}` must hold tuples ({name}, decision_id, value) or "
                f"({name}, decision_id, value, at); got {validate.shown(row)} at position {k}"
            )
        id, decision, value, at = row if len(row) == 4 else (*row, None)
        found.append((id, decision, value, at))
    return found


def context_text(context: Any) -> str:
    """Return a context as JSON, or raise."""
    try:
        kept = json.dumps(_plain(context), sort_keys=True, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        raise InvalidParameterError(
            "`context` must be a dictionary or a sequence of numbers and text; "
            f"got {validate.shown(context)}"
        ) from None
    if len(kept) > MOST_CONTEXT:
        raise InvalidParameterError(
            f"`context` must have at most {MOST_CONTEXT} letters as JSON; got {len(kept)}"
        )
    return kept


def _plain(value: Any) -> Any:
    """Return what JSON can hold of NumPy numbers and arrays."""
    if isinstance(value, Mapping):
        return {str(name): _plain(part) for name, part in value.items()}
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    return value
