"""How the service is called: what is sent, how often it is tried, and how answers are read.

Nothing here touches the network. `Caller._tries` says, step by step, what to send and how long to
wait; `zib.live.client` does it, in the caller's thread or in an event loop.
"""

from __future__ import annotations

import json
import logging
import os
import random
import time
from collections.abc import Callable, Generator, Hashable
from pathlib import Path
from typing import Any, Generic, NamedTuple, Self, TypeVar
from urllib.parse import quote, urlsplit

from zib.core import validate
from zib.core.validate import InvalidParameterError
from zib.live.answers import ConflictError, Decision, LedgerError, Receipt, Refused, Unavailable
from zib.live.book import decision_id
from zib.live.outcome import ID_NAMES, SECOND
from zib.live.requests import as_list, context_text, rows_of
from zib.live.settings import microseconds, text
from zib.logs.joining.instants import moment

FALLBACK = "fallback"  # kind of a decision that was made without the service
MADE_UP = f"{FALLBACK}:"  # how the ids of such decisions begin
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0  # seconds; a pause is drawn between 0 and this
ENDLESS = 1_000_000  # retries where only time is limited
AGAIN = (408, 429, 502, 503, 504)
NOT_DONE = (408, 429)  # the service itself says that nothing was done

T = TypeVar("T")
logger = logging.getLogger("zib.live")


class Call(NamedTuple, Generic[T]):
    """One call of the service: what to send, and how to read the answer."""

    method: str
    path: str
    body: Any
    read: Callable[[Any], T]
    query: dict[str, str] = {}
    otherwise: Callable[[LedgerError], T] | None = None
    out: Path | None = None  # the answer is a file that goes here
    local: bool = False  # nothing to send: `read(None)` is the answer
    repeatable: bool = True  # whether doing it twice is the same as doing it once


class Send(NamedTuple):
    """A step of a call: send the request and wait for the answer, so many seconds."""

    call: Call[Any]
    seconds: float


class Reply(NamedTuple):
    """What came back; `content` is JSON or, of a file, nothing."""

    status: int
    content: bytes
    retry_after: str | None


class Caller:
    """What both clients know, and everything that needs no network."""

    def __init__(
        self,
        address: str,
        bandit: str = "default",
        *,
        token: str | None = None,
        timeout: float = 10.0,
        retries: int | None = None,
        http: Any = None,
    ) -> None:
        self._address = address_of(address)
        self._bandit = text("bandit", bandit)
        self._token = _token(token)
        self._timeout = _seconds(timeout)
        self._retries = (
            ENDLESS if retries is None else validate.integer("retries", retries, low=0, high=1_000)
        )
        self._httpx = need_httpx()
        self._owns = http is None
        self._pid = os.getpid()
        self._http = self._connections() if http is None else self._given(http)

    def _connections(self) -> Any:
        raise NotImplementedError

    def _given(self, http: Any) -> Any:
        raise NotImplementedError

    def _how(self) -> dict[str, Any]:
        """Return how connections are made; certificates take a while to load, so only for TLS."""
        limits = self._httpx.Limits(max_connections=100, max_keepalive_connections=100)
        return {"limits": limits, "verify": self._address.startswith("https:")}

    def _connected(self) -> Any:
        """Return the connections of this process: those of a parent are not shared with it."""
        if self._owns and self._pid != os.getpid():
            self._http, self._pid = self._connections(), os.getpid()
        return self._http

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._bandit!r} at {self._address}>"

    @property
    def bandit(self) -> str:
        """Name of the bandit."""
        return self._bandit

    def decision_id(self, key: str) -> str:
        """Return the id that the decision with a key has, or will have."""
        return decision_id(self._bandit, text("key", key))

    def within(self, timeout: float) -> Self:
        """Return the same client with another limit on how long a call takes, in seconds.

        Both use the same connections.
        """
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__, _timeout=_seconds(timeout))
        return other

    # ----------------------------------------------------------------------------------- requests

    def _get(self, route: str, read: Callable[[Any], T], **query: str) -> Call[T]:
        return Call("GET", self._path(route), None, read, query)

    def _post(self, route: str, body: Any, read: Callable[[Any], T]) -> Call[T]:
        return Call("POST", self._path(route), body, read)

    def _path(self, route: str) -> str:
        return f"/v1/{quote(self._bandit, safe='')}/{route}"

    def _fall_back(self, keys: list[str], arm: Hashable) -> Callable[[LedgerError], list[Decision]]:
        """Return what makes decisions without the service, and says so in the log."""
        arm = label_sent("fallback", arm)

        def otherwise(error: LedgerError) -> list[Decision]:
            logger.warning("%d decided without the service: %s", len(keys), error)
            nan, now = float("nan"), time.time()
            return [
                Decision(MADE_UP + self.decision_id(key), arm, nan, 0, now, nan, FALLBACK)
                for key in keys
            ]

        return otherwise

    def _report(self, kind: int, row: tuple[Any, ...]) -> dict[str, Any]:
        """Return an event or a revision as it is sent."""
        id, decision, value, at = row
        sent: dict[str, Any] = {
            "id": text(ID_NAMES[kind], id),
            "decision_id": text("decision_id", decision),
            "value": validate.real("value", value),
        }
        return {**sent, **at_sent(at)}

    def _one(self, kind: int, route: str, row: tuple[Any, ...]) -> Call[Receipt]:
        sent = self._report(kind, row)
        if sent["decision_id"].startswith(MADE_UP):
            return _locally(_untold(sent["decision_id"]))
        return self._post(route, sent, lambda answer: told(Receipt, answer))

    def _several(self, kind: int, route: str, whole: str, rows: Any) -> Call[list[Receipt]]:
        return self._told(
            f"{route}/batch",
            whole,
            [self._report(kind, row) for row in rows_of(kind, whole, rows)],
            lambda sent: str(sent["decision_id"]),
        )

    def _told(
        self, route: str, whole: str, entries: list[Any], decision: Callable[[Any], str]
    ) -> Call[list[Receipt]]:
        """Return a batch, less what belongs to decisions that the service never made."""
        sent = [entry for entry in entries if not decision(entry).startswith(MADE_UP)]

        def read(answer: Any) -> list[Receipt]:
            receipts = iter([] if answer is None else answer["receipts"])
            return [
                _untold(decision(entry))
                if decision(entry).startswith(MADE_UP)
                else told(Receipt, next(receipts))
                for entry in entries
            ]

        call = self._post(route, {whole: sent}, read)
        return call if sent else call._replace(local=True)

    def _listed(self, route: str, kind: type[T], most: Any) -> Call[list[T]]:
        most = validate.integer("most", most, low=1, high=1_000_000)
        return self._get(route, lambda a: [told(kind, each) for each in a[route]], most=str(most))

    def _change(self, route: str, arm: Hashable) -> Call[None]:
        return self._post(route, {"arm": label_sent("arm", arm)}, nothing)

    # -------------------------------------------------------------------------------------- tries

    def _tries(self, call: Call[T]) -> Generator[Send | float, Any, T]:
        """Yield what to send and how long to wait until there is an answer; return it."""
        try:
            return (yield from self._answer(call))
        except LedgerError as error:
            if call.out is not None:
                part(call.out).unlink(missing_ok=True)
            if call.otherwise is None or isinstance(error, InvalidParameterError):
                raise
            return call.otherwise(error)

    def _answer(self, call: Call[T]) -> Generator[Send | float, Any, T]:
        if call.local:
            return call.read(None)
        end = time.monotonic() + self._timeout
        arrived = False
        for number in range(self._retries + 1):
            # half of the time left, so that there is time for another
            left = max(end - time.monotonic(), 0.001)
            got: Reply | Exception = yield Send(
                call, left if number == self._retries else left / 2.0
            )
            if isinstance(got, Reply) and got.status not in AGAIN:
                return _read(call, got)
            arrived |= self._may_have_arrived(got)
            pause = _asked_to_wait(got)
            if pause is None:
                longest = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0**number)
                pause = random.uniform(0.0, longest)
            over = number == self._retries or time.monotonic() + pause >= end
            if over or (arrived and not call.repeatable):
                break
            yield pause
        raise Unavailable(
            f"the service at {self._address} gave no answer within {self._timeout:g} s, in "
            f"{number + 1} tries: {_said(got)}",
            arrived=arrived,
        )

    def _may_have_arrived(self, got: Reply | Exception) -> bool:
        if isinstance(got, Reply):
            return got.status not in NOT_DONE
        never = (self._httpx.ConnectError, self._httpx.ConnectTimeout, self._httpx.PoolTimeout)
        return not isinstance(got, never)

    def _request(self, http: Any, step: Send) -> Any:
        """Return the request of a step, for `send`."""
        call = step.call
        headers = {"Accept": "application/json" if call.out is None else "*/*"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        content = None
        if call.body is not None:
            headers["Content-Type"] = "application/json"
            content = json.dumps(call.body, allow_nan=False).encode()
        return http.build_request(
            call.method,
            self._address + call.path,
            params=call.query or None,
            headers=headers,
            content=content,
            timeout=step.seconds,
        )


# ------------------------------------------------------------------------------- reading answers


def told(kind: type[T], answer: Any) -> T:
    """Return a NamedTuple from an object of JSON, which may have more fields."""
    return kind(**{name: answer[name] for name in kind._fields if name in answer})  # type: ignore[attr-defined]


def nothing(_: Any) -> None:
    """Read an answer that says only that it is done."""


def _read(call: Call[T], reply: Reply) -> T:
    """Return what the service answers, or raise what it says."""
    try:
        answer = None if call.out is not None and reply.status == 200 else json.loads(reply.content)
    except ValueError:
        answer = {}
    if reply.status < 300:
        try:
            return call.read(answer)
        except (AttributeError, KeyError, StopIteration, TypeError, ValueError) as error:
            raise LedgerError(
                f"the answer to {call.method} {call.path} is not that of a zib service"
            ) from error
    refusal: dict[str, Any] = answer if isinstance(answer, dict) else {}
    unsaid = f"{call.method} {call.path} was answered with {reply.status}"
    sentence = str(refusal.get("error", unsaid))
    if reply.status in (400, 413, 415, 422):
        raise InvalidParameterError(sentence)
    if reply.status in (401, 403):
        raise Refused(sentence)
    if reply.status == 409 and refusal.get("kind") == "conflict":
        raise ConflictError(sentence)
    raise LedgerError(sentence)


def _asked_to_wait(got: Reply | Exception) -> float | None:
    """Return the seconds of a Retry-After; None where there is none, or a date."""
    try:
        return max(float(got.retry_after or ""), 0.0) if isinstance(got, Reply) else None
    except ValueError:
        return None


def _said(got: Reply | Exception) -> str:
    if isinstance(got, Exception):
        return str(got) or type(got).__name__
    try:
        return str(json.loads(got.content)["error"])
    except (ValueError, KeyError, TypeError):
        return f"it answered with {got.status}"


# ------------------------------------------------------------------------------ checking requests


def address_of(value: Any) -> str:
    """Return the address of a service without a slash at the end, or raise."""
    try:
        parts = urlsplit(value) if isinstance(value, str) and value.isprintable() else None
        if parts is not None and parts.scheme in ("http", "https") and parts.hostname:
            bare = not (parts.query or parts.fragment or parts.username)
            if bare and len(value) <= 2_000 and (parts.port is None or parts.port > 0):
                return f"{parts.scheme}://{parts.netloc}{parts.path}".rstrip("/")
    except ValueError:  # a port that is none
        pass
    raise InvalidParameterError(
        "`address` must be one of a service, such as 'http://127.0.0.1:8080'; "
        f"got {validate.shown(value)}"
    )


def _token(value: Any) -> str | None:
    if value is None or (
        isinstance(value, str)
        and 0 < len(value) <= 1_000
        and value.isascii()
        and value.isprintable()
        and " " not in value
    ):
        return value
    raise InvalidParameterError(  # what it is stays out of the log
        f"`token` must be text of letters, digits and signs; got something else of type "
        f"{type(value).__name__}"
    )


def _seconds(value: Any) -> float:
    return validate.real("timeout", value, low=0.0, high=86_400.0, closed="right")


def need_httpx() -> Any:
    """Return the module httpx, or say what to install."""
    try:
        import httpx
    except ImportError:
        raise LedgerError("calling a service needs httpx: pip install 'zib[client]'") from None
    return httpx


def label_sent(name: str, label: Any) -> str | int:
    """Return the label of an arm as JSON has it."""
    if hasattr(label, "dtype") and getattr(label, "ndim", 1) == 0:
        label = label.item()
    if isinstance(label, str) or (isinstance(label, int) and not isinstance(label, bool)):
        validate.label(name, label)
        return label
    raise InvalidParameterError(
        f"`{name}` must be text or a whole number, as JSON has them; got {validate.shown(label)}"
    )


def eligible(arms: Any) -> dict[str, Any]:
    """Return the part of a request that says which arms may be served."""
    if arms is None:
        return {}
    return {"arms": [label_sent("arms", label) for label in validate.labels("arms", arms)]}


def asked(unit: Any, name: str, context: Any) -> dict[str, Any]:
    """Return the part of a request that says whom it is for; `name` is that of the unit."""
    sent = {} if unit is None else {"unit": text(name, unit)}
    return sent if context is None else {**sent, "context": json.loads(context_text(context))}


def at_sent(at: Any) -> dict[str, float]:
    """Return the part of a request that says when."""
    return {} if at is None else {"at": microseconds("at", at) / SECOND}


def instant_sent(name: str, value: Any) -> dict[str, str]:
    """Return a time as it stands in an address, from what `Ledger.export` takes."""
    return {} if value is None else {name: repr(moment(name, value, "UTC"))}


def one_each(name: str, values: Any, n: int) -> list[Any]:
    """Return as many values as there are keys."""
    found = [None] * n if values is None else as_list(name, values)
    if len(found) != n:
        raise InvalidParameterError(
            f"`{name}` must have one entry per entry of `keys`, {n}; got {len(found)}"
        )
    return found


def real_id(name: str, value: Any) -> str:
    """Return the id that the service knows a decision by, were it to know it."""
    return text(name, value).removeprefix(MADE_UP)


def part(path: Path) -> Path:
    """Return where a file is until it is whole."""
    return path.with_name(f"{path.name}.part")


def _locally(answer: T) -> Call[T]:
    return Call("", "", None, lambda _: answer, local=True)


def _untold(decision: str) -> Receipt:
    return Receipt(FALLBACK, decision, None, False)


def reply_of(response: Any) -> Reply:
    """Return what matters of a response of httpx."""
    return Reply(response.status_code, response.content, response.headers.get("retry-after"))


def of_kind(http: Any, kind: type) -> Any:
    """Return connections of the caller's own, or raise."""
    if isinstance(http, kind):
        return http
    raise InvalidParameterError(
        f"`http` must be an httpx.{kind.__name__}; got {validate.shown(http)}"
    )
