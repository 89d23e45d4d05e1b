"""`Client` and `AsyncClient`: a bandit behind `zib serve`, called as a `Ledger` is."""

from __future__ import annotations

import asyncio
import functools
import os
import time
import uuid
from collections.abc import Callable, Coroutine, Hashable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar
from urllib.parse import quote

from zib.core import validate
from zib.live.answers import Change, Decision, Parked, Receipt
from zib.live.calling import (
    Call,
    Caller,
    Reply,
    Send,
    asked,
    at_sent,
    eligible,
    instant_sent,
    label_sent,
    nothing,
    of_kind,
    one_each,
    part,
    real_id,
    reply_of,
    told,
)
from zib.live.outcome import EVENT, REVISION, Outcome
from zib.live.pages import KINDS
from zib.live.requests import as_list
from zib.live.settings import text

if TYPE_CHECKING:
    import httpx

P = ParamSpec("P")
T = TypeVar("T")


def _now(
    build: Callable[Concatenate[Any, P], Call[T]],
) -> Callable[Concatenate[Client, P], T]:
    """Make a method that waits for the answer from one that says what to ask."""

    @functools.wraps(build)
    def method(self: Client, /, *args: P.args, **given: P.kwargs) -> T:
        return self._do(build(self, *args, **given))

    return method


def _awaited(
    method: Callable[Concatenate[Client, P], T],
) -> Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]:
    """Make the method of `AsyncClient` from that of `Client`."""
    build = method.__wrapped__  # type: ignore[attr-defined]

    @functools.wraps(build)
    async def awaited(self: AsyncClient, /, *args: P.args, **given: P.kwargs) -> T:
        found: T = await self._do(build(self, *args, **given))
        return found

    return awaited


class Client(Caller):
    """A bandit behind `zib serve`; its methods and answers are those of `Ledger`.

    A call is tried again when the connection breaks, the service is away, restarts, or asks for
    patience. That is safe: decisions, events and revisions have ids, and what arrives twice counts
    once. A client may be used by any number of threads, which share its connections.

    Parameters
    ----------
    address
        Of the service, such as ``"http://127.0.0.1:8080"``.
    bandit
        Its name.
    token
        As `zib serve` has been told to expect; None where it needs none.
    timeout
        How many seconds a call may take, all tries and pauses together. A try waits for half of
        what is left.
    retries
        How often to try again at most; None: as often as there is time for. Pauses are random and
        grow from 0.05 to 1 second.
    http
        An `httpx.Client` of your own, for certificates, proxies or limits; it is left open.

    Notes
    -----
    Errors are those of `Ledger`: `InvalidParameterError`, `ConflictError`, `LedgerError`; and
    `Unavailable` when the service stayed away, `Refused` when it does not accept the token.

    ``client.within(0.2)`` is the same client with another time limit, ``client.decision_id(key)``
    the id of a decision before it is made. Methods return what stands in the brackets of ``Call``.

    Examples
    --------
    >>> import zib
    >>> client = zib.live.Client("http://127.0.0.1:8080", "checkout", retries=0)
    >>> decision = client.within(0.2).decide("request-17", fallback="A")  # nobody is listening
    >>> decision.arm, decision.kind
    ('A', 'fallback')
    >>> client.event("order-5", decision.id, 29.90).status  # nobody could learn from it
    'fallback'
    >>> client.close()
    """

    _http: httpx.Client

    def _connections(self) -> Any:
        return self._httpx.Client(**self._how())

    def _given(self, http: Any) -> Any:
        return of_kind(http, self._httpx.Client)

    def _do(self, call: Call[T]) -> T:
        steps = self._tries(call)
        result: Any = None
        while True:
            try:
                step = steps.send(result)
            except StopIteration as done:
                return done.value  # type: ignore[no-any-return]
            result = None
            if isinstance(step, Send):
                result = self._sent(step)
            else:
                time.sleep(step)

    def _sent(self, step: Send) -> Reply | Exception:
        http = self._connected()
        request = self._request(http, step)
        try:
            if step.call.out is None:
                return reply_of(http.send(request))
            response = http.send(request, stream=True)
            try:
                if response.status_code != 200:
                    response.read()
                    return reply_of(response)
                with part(step.call.out).open("wb") as file:
                    for chunk in response.iter_bytes():
                        file.write(chunk)
            finally:
                response.close()
            return Reply(200, b"", None)
        except self._httpx.TransportError as error:
            return error  # type: ignore[no-any-return]

    def close(self) -> None:
        """Close the connections."""
        if self._owns and self._pid == os.getpid():
            self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # ---------------------------------------------------------------------------------- decisions

    @_now
    def decide(
        self,
        key: str | None = None,
        *,
        unit: str | None = None,
        arms: Iterable[Hashable] | None = None,
        context: Any = None,
        at: Any = None,
        fallback: Hashable = None,
    ) -> Call[Decision]:
        """Return which arm to serve; see `Ledger.decide`.

        Parameters
        ----------
        key
            Names the decision; None makes a random one, which all tries share.
        unit, arms, context, at
            As for `Ledger.decide`; arms are text or whole numbers.
        fallback
            Arm to serve when the service does not answer in time or cannot decide. Such a decision
            is in no ledger: its kind is "fallback", its probability NaN, and its id begins with
            "fallback:". Events and revisions with that id are answered with "fallback" and not
            sent. The service may have made a decision whose answer was lost, and would take it
            for one without a reward; `cancel` with the same id undoes that. Without `fallback`
            the error is raised.
        """
        key = uuid.uuid4().hex if key is None else text("key", key)
        sent = {"key": key, **asked(unit, "unit", context), **eligible(arms), **at_sent(at)}
        call = self._post("decide", sent, lambda answer: told(Decision, answer))
        if fallback is None:
            return call
        otherwise = self._fall_back([key], fallback)
        return call._replace(otherwise=lambda error: otherwise(error)[0])

    @_now
    def decide_many(
        self,
        keys: Iterable[str],
        *,
        units: Iterable[str | None] | None = None,
        arms: Iterable[Hashable] | None = None,
        contexts: Iterable[Any] | None = None,
        at: Any = None,
        fallback: Hashable = None,
    ) -> Call[list[Decision]]:
        """Return decisions for several keys, all or none; as many as the service's limit allows."""
        names = [text("keys", key) for key in as_list("keys", keys)]
        whole = {**eligible(arms), **at_sent(at)}
        owners, facts = (
            one_each(name, values, len(names))
            for name, values in (("units", units), ("contexts", contexts))
        )
        sent = [
            {"key": key, **asked(unit, "units", context), **whole}
            for key, unit, context in zip(names, owners, facts, strict=True)
        ]
        call = self._post(
            "decide/batch",
            {"decisions": sent},
            lambda answer: [told(Decision, each) for each in answer["decisions"]],
        )
        if fallback is not None:
            call = call._replace(otherwise=self._fall_back(names, fallback))
        return call

    @_now
    def decision(self, decision_id: str) -> Call[tuple[Decision, Outcome]]:
        """Return a decision and what became of it."""
        id = text("decision_id", decision_id)

        def read(answer: Any) -> tuple[Decision, Outcome]:
            found = answer.get("decision", answer)
            return told(Decision, found), told(Outcome, answer.get("outcome", answer))

        return self._get(f"decisions/{quote(id, safe='')}", read)

    # -------------------------------------------------------------------------- what has happened

    @_now
    def event(
        self, event_id: str, decision_id: str, value: float, *, at: Any = None
    ) -> Call[Receipt]:
        """Report that something happened after a decision, such as an order."""
        return self._one(EVENT, "event", (event_id, decision_id, value, at))

    @_now
    def event_many(self, events: Iterable[tuple[Any, ...]]) -> Call[list[Receipt]]:
        """Report several events, all or none: (event_id, decision_id, value) or with a time."""
        return self._several(EVENT, "event", "events", events)

    @_now
    def revise(
        self, revision_id: str, decision_id: str, value: float, *, at: Any = None
    ) -> Call[Receipt]:
        """Set what a decision is worth: a refund is 0."""
        return self._one(REVISION, "revise", (revision_id, decision_id, value, at))

    @_now
    def revise_many(self, revisions: Iterable[tuple[Any, ...]]) -> Call[list[Receipt]]:
        """Revise several decisions, all or none; as for `event_many`."""
        return self._several(REVISION, "revise", "revisions", revisions)

    @_now
    def cancel(self, decision_id: str) -> Call[Receipt]:
        """Learn nothing from a decision: the mail was never sent, or the fallback was served."""
        return self._post(
            "cancel",
            {"decision_id": real_id("decision_id", decision_id)},
            lambda a: told(Receipt, a),
        )

    @_now
    def cancel_many(self, decision_ids: Iterable[str]) -> Call[list[Receipt]]:
        """Cancel several decisions, all or none."""
        ids = [real_id("decision_ids", id) for id in as_list("decision_ids", decision_ids)]
        return self._told("cancel/batch", "decision_ids", ids, str)

    # --------------------------------------------------------------------------------------- arms

    @_now
    def arms(self) -> Call[dict[Hashable, str]]:
        """Return the arms and their statuses: "active", "paused" or "retired"."""
        return self._get("arms", lambda a: {each["arm"]: each["status"] for each in a["arms"]})

    @_now
    def add_arm(self, arm: Hashable) -> Call[None]:
        """Add an arm."""
        return self._change("arms", arm)._replace(repeatable=False)

    @_now
    def pause_arm(self, arm: Hashable) -> Call[None]:
        """Serve an arm no more, until it is resumed; its events still count."""
        return self._change("arms/pause", arm)

    @_now
    def resume_arm(self, arm: Hashable) -> Call[None]:
        """Serve a paused arm again."""
        return self._change("arms/resume", arm)

    @_now
    def retire_arm(self, arm: Hashable) -> Call[None]:
        """Serve an arm no more, for good; its events still count."""
        return self._change("arms/retire", arm)

    @_now
    def set_shadow(self, arm: Hashable | None) -> Call[None]:
        """Serve one arm whatever the policy wants, or None: what the policy wants."""
        label = None if arm is None else label_sent("arm", arm)
        return self._post("shadow", {"arm": label}, nothing)

    # ------------------------------------------------------------------------------- looking back

    @_now
    def statistics(self) -> Call[dict[str, Any]]:
        """Return what `Ledger.statistics` knows, as dictionaries and lists."""
        return self._get("status", dict)

    @_now
    def overview(self) -> Call[dict[str, Any]]:
        """Return what the page of the bandit shows, as dictionaries and lists."""
        return self._get("overview", dict)

    @_now
    def parked(self, most: int = 1_000) -> Call[list[Parked]]:
        """Return events whose decision is not known, the oldest first; see `Parked.dead`."""
        return self._listed("parked", Parked, most)

    @_now
    def audit(self, most: int = 100) -> Call[list[Change]]:
        """Return what was changed by hand, the latest first, and who did it."""
        return self._listed("audit", Change, most)

    @_now
    def export(
        self,
        out: Any,
        *,
        pending: str = "leave-out",
        since: Any = None,
        until: Any = None,
        kind: str | None = None,
    ) -> Call[Path]:
        """Write the log to a file that ends with .parquet or .csv; return its path.

        The file appears when it is whole. Parameters are those of `Ledger.export`.
        """
        from zib.logs.joining.join import PENDING
        from zib.logs.joining.write import check_file

        path = check_file(out)
        validate.choice("pending", pending, PENDING)
        if kind is not None:
            validate.choice("kind", kind, KINDS)
        query = {
            "format": path.suffix[1:],
            "pending": pending,
            **instant_sent("since", since),
            **instant_sent("until", until),
            **({} if kind is None else {"kind": kind}),
        }
        return self._get("export", lambda _: part(path).replace(path), **query)._replace(out=path)

    @_now
    def bandits(self) -> Call[list[str]]:
        """Return the names of the bandits of the service."""
        return Call("GET", "/v1/bandits", None, lambda answer: list(answer["bandits"]))

    @_now
    def ready(self) -> Call[bool]:
        """Whether the service takes requests now; waits until it does, for `timeout` at most."""
        return Call("GET", "/readyz", None, lambda _: True, otherwise=lambda _: False)


class AsyncClient(Caller):
    """`Client` for programs with an event loop: the same methods, to be awaited.

    Parameters
    ----------
    address, bandit, token, timeout, retries
        As for `Client`.
    http
        An `httpx.AsyncClient` of your own; it is left open.

    Examples
    --------
    >>> import asyncio, zib
    >>> async def shop():
    ...     async with zib.live.AsyncClient("http://127.0.0.1:8080", timeout=0.2) as client:
    ...         keys = [f"request-{k}" for k in range(3)]
    ...         return await asyncio.gather(*(client.decide(k, fallback="A") for k in keys))
    >>> [decision.kind for decision in asyncio.run(shop())]  # nobody is listening
    ['fallback', 'fallback', 'fallback']
    """

    _http: httpx.AsyncClient

    def _connections(self) -> Any:
        return self._httpx.AsyncClient(**self._how())

    def _given(self, http: Any) -> Any:
        return of_kind(http, self._httpx.AsyncClient)

    async def _do(self, call: Call[T]) -> T:
        steps = self._tries(call)
        result: Any = None
        while True:
            try:
                step = steps.send(result)
            except StopIteration as done:
                return done.value  # type: ignore[no-any-return]
            result = None
            if isinstance(step, Send):
                result = await self._sent(step)
            else:
                await asyncio.sleep(step)

    async def _sent(self, step: Send) -> Reply | Exception:
        http = self._connected()
        request = self._request(http, step)
        try:
            if step.call.out is None:
                return reply_of(await http.send(request))
            response = await http.send(request, stream=True)
            try:
                if response.status_code != 200:
                    await response.aread()
                    return reply_of(response)
                with part(step.call.out).open("wb") as file:
                    async for chunk in response.aiter_bytes():
                        file.write(chunk)
            finally:
                await response.aclose()
            return Reply(200, b"", None)
        except self._httpx.TransportError as error:
            return error  # type: ignore[no-any-return]

    async def close(self) -> None:
        """Close the connections."""
        if self._owns and self._pid == os.getpid():
            await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    decide = _awaited(Client.decide)
    decide_many = _awaited(Client.decide_many)
    decision = _awaited(Client.decision)
    event = _awaited(Client.event)
    event_many = _awaited(Client.event_many)
    revise = _awaited(Client.revise)
    revise_many = _awaited(Client.revise_many)
    cancel = _awaited(Client.cancel)
    cancel_many = _awaited(Client.cancel_many)
    arms = _awaited(Client.arms)
    add_arm = _awaited(Client.add_arm)
    pause_arm = _awaited(Client.pause_arm)
    resume_arm = _awaited(Client.resume_arm)
    retire_arm = _awaited(Client.retire_arm)
    set_shadow = _awaited(Client.set_shadow)
    statistics = _awaited(Client.statistics)
    overview = _awaited(Client.overview)
    parked = _awaited(Client.parked)
    audit = _awaited(Client.audit)
    export = _awaited(Client.export)
    bandits = _awaited(Client.bandits)
    ready = _awaited(Client.ready)
