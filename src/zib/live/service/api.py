"""The application: plain ASGI, as every layer between a socket and the ledger costs time.

`application` serves the routes of `routes`, a few of its own, and leaves the rest to the page.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import shutil
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote

from zib.live.answers import LedgerError
from zib.live.ledger import Ledger, inside
from zib.live.service import bodies
from zib.live.service.access import Access
from zib.live.service.bodies import Decoder, Problem, encoded, problem_of
from zib.live.service.calls import Calls
from zib.live.service.config import Limits
from zib.live.service.feed import Feed
from zib.live.service.metrics import KIND, Known, Metrics, Seen
from zib.live.service.openapi import document
from zib.live.service.page import pages
from zib.live.service.protocol import WHOLE
from zib.live.service.routes import ANY, READ, ROUTES, Call, Content, File, Route, Served

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
ASGI = Callable[[Scope, Receive, Send], Awaitable[None]]

JSON = (b"content-type", b"application/json")
SAFE = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))
HEAD = b"HTTP/1.1 200 OK\r\n%s\r\ncontent-length: " % b"\r\n".join(
    b": ".join(header) for header in (JSON, *SAFE)
)
NOTHING: dict[str, Any] = {}
THREADS = 32  # for what looks into the database
READY_WITHIN = 2.0  # seconds for the database to answer
SWITCH = 0.0002  # seconds until the loop and the thread that writes let each other go on
STALE = 300.0  # seconds without a new model version, if none could be made, until it is not ready
CHUNK = 1 << 18

log = logging.getLogger("zib.live.service")


class Entry(NamedTuple):
    """A route of one bandit, or of none."""

    route: Route
    served: Any
    decoder: Decoder | None
    seen: Seen


def application(
    ledgers: Mapping[str, Ledger],
    access: Access,
    limits: Limits,
    *,
    close: Callable[[], None] | None = None,
) -> Application:
    """Return the service as an ASGI application.

    Parameters
    ----------
    ledgers
        By name of the bandit, open, of one database.
    access
        Who may do what.
    limits
        What a client may ask for.
    close
        Called when the server has stopped.
    """
    return Application(ledgers, access, limits, close)


class Application:
    """See `application`."""

    def __init__(
        self,
        ledgers: Mapping[str, Ledger],
        access: Access,
        limits: Limits,
        close: Callable[[], None] | None,
    ) -> None:
        self._ledgers = dict(ledgers)
        self._admit, self._need = access.admit, access.need
        self.limits = limits
        self._close = close
        self._feed = Feed(ledgers)
        self._page = pages(ledgers, access, self._feed)
        self._metrics = Metrics()
        self._elsewhere = Seen(self._metrics, "elsewhere")
        self._stopping = False
        self._tokens = bool(access.tokens)
        self._document: bytes | None = None
        self._ping: asyncio.Task[None] | None = None
        writers = {id(inside(ledger).writer): inside(ledger).writer for ledger in ledgers.values()}
        self._calls = {
            key: Calls(writer, self._metrics.batches.observe) for key, writer in writers.items()
        }
        self._table: dict[str, dict[str, Entry]] = {}
        self._tails: dict[str, dict[str, Entry]] = {}
        self._served = {
            name: Served(
                ledger,
                self._calls[id(inside(ledger).writer)],
                self._feed,
                limits,
                self._metrics,
            )
            for name, ledger in ledgers.items()
        }
        for route in OWN:
            self._put(self._table, f"/{route.path}", route, self)
        for name, served in self._served.items():
            for route in ROUTES:
                path, brace, _ = f"/v1/{name}/{route.path}".partition("{")
                self._put(self._tails if brace else self._table, path, route, served)

    def _put(
        self, table: dict[str, dict[str, Entry]], path: str, route: Route, served: Any
    ) -> None:
        decoder = None if route.body is None else Decoder(route.body)
        entries = table.setdefault(path, {})
        label = route.path if served is self else f"v1/{{bandit}}/{route.path}"
        seen = Seen(self._metrics, f"{route.method} /{label}")
        entries[route.method] = Entry(route, served, decoder, seen)
        if route.method == "GET":
            entries["HEAD"] = entries["GET"]

    # ------------------------------------------------------------------------------------- serving

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        kind = scope["type"]
        if kind != "http":
            if kind == "lifespan":
                await self._live(receive, send)
            else:
                await send({"type": "websocket.close", "code": 1000})
            return
        begun = time.perf_counter()
        path: str = scope["path"]
        found, tail = self._table.get(path), ""
        if found is None:
            found, tail = self._with_tail(path)
            if found is None and not path.startswith("/v1/"):
                await self._page(scope, receive, send)
                return
        seen = self._elsewhere
        try:
            if found is None:
                raise Problem(404, self._nowhere(path))
            entry = found.get(scope["method"])
            if entry is None:
                allowed = ", ".join(sorted(found))
                raise Problem(405, f"this takes {allowed} only", allow=allowed)
            seen = entry.seen
            status, kind = entry.route.status, JSON
            answer = await self._answer(entry, tail, scope, receive)
            if isinstance(answer, Content):
                kind, answer = (b"content-type", answer.kind.encode()), answer.content
            elif type(answer) is not File:
                answer = encoded(answer)
        except asyncio.CancelledError:  # it was told to stop, and waits no longer
            await self._refuse(send, Problem(503, "the service is stopping", retry_after=1.0))
            return
        except _Gone:
            return
        except Exception as error:
            problem = problem_of(error, path)
            if problem.status == 429:
                self._metrics.rate_refused.inc()
            seen.answered(problem.status, time.perf_counter() - begun)
            await self._refuse(send, problem)
            return
        seen.answered(status, time.perf_counter() - begun)
        if type(answer) is File:
            await self._send_file(send, answer)
            return
        if status == 200 and kind is JSON:
            whole = scope.get("extensions", NOTHING).get(WHOLE)
            if whole is not None and whole(HEAD, answer):
                return
        await send(
            {
                "type": "http.response.start",
                "status": status,
                "headers": [kind, (b"content-length", b"%d" % len(answer)), *SAFE],
            }
        )
        await send({"type": "http.response.body", "body": answer})

    async def _answer(self, entry: Entry, tail: str, scope: Scope, receive: Receive) -> Any:
        route, served, decoder, _ = entry
        client = scope["client"]
        if route.roles:
            caller = self._admit(
                scope["headers"], client[0] if client else "", changes=decoder is not None
            )
            self._need(caller, *route.roles)
        else:
            caller = None
        body, query = None, {}
        if decoder is not None:
            body = decoder.read(await self._body(scope, receive))
        elif scope["query_string"]:
            query = _query(route, scope["query_string"])
        return await route.handler(served, Call(caller, body, tail, query))  # type: ignore[arg-type]

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        """Return the body, as long as it is JSON and not too long."""
        most, kind = self.limits.body, b""
        for name, value in scope["headers"]:
            if name == b"content-type":
                kind = value
            elif name == b"content-length":
                if len(value) > 18 or int(value) > most:  # httptools knows it is a number
                    raise self._too_long(most)
            elif name == b"content-encoding" and value.lower() != b"identity":
                raise Problem(415, "the body must not be compressed")
        if kind != b"application/json" and not _is_json(kind):
            raise Problem(415, "`Content-Type` must be application/json")
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _Gone
        body: bytes = message.get("body", b"")
        if not message.get("more_body", False):
            if len(body) > most:
                raise self._too_long(most)
            return body
        parts, size = [body], len(body)
        while message.get("more_body", False):
            if size > most:
                raise self._too_long(most)
            message = await receive()
            if message["type"] == "http.disconnect":
                raise _Gone
            parts.append(message.get("body", b""))
            size += len(parts[-1])
        if size > most:
            raise self._too_long(most)
        return b"".join(parts)

    @staticmethod
    def _too_long(most: int) -> Problem:
        return Problem(413, f"the body must have at most {most} bytes (`body` in [limits])")

    def _with_tail(self, path: str) -> tuple[dict[str, Entry] | None, str]:
        """Return the routes whose last part is a parameter."""
        at = path.rfind("/") + 1
        return (self._tails.get(path[:at]), path[at:]) if at < len(path) else (None, "")

    def _nowhere(self, path: str) -> str:
        parts = path.split("/")
        if len(parts) > 3 and parts[1] == "v1" and parts[2] not in self._ledgers:
            return "there is no such bandit: GET /v1/bandits lists them"
        return "there is nothing here: GET /openapi.json lists what there is"

    async def _refuse(self, send: Send, problem: Problem) -> None:
        content = problem.body
        headers = [JSON, (b"content-length", b"%d" % len(content)), *SAFE]
        if problem.retry_after is not None:
            headers.append((b"retry-after", b"%d" % max(1, -int(-problem.retry_after // 1))))
        if problem.allow is not None:
            headers.append((b"allow", problem.allow.encode()))
        if problem.status == 401:
            headers.append((b"www-authenticate", b"Bearer"))
        await send({"type": "http.response.start", "status": problem.status, "headers": headers})
        await send({"type": "http.response.body", "body": content})

    async def _send_file(self, send: Send, file: File) -> None:
        try:
            name = quote(file.path.name, safe="")
            headers = [
                (b"content-type", file.kind.encode()),
                (b"content-length", b"%d" % file.path.stat().st_size),
                (b"content-disposition", f"attachment; filename*=UTF-8''{name}".encode()),
                *SAFE,
            ]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            with file.path.open("rb") as source:
                more = True
                while more:
                    part = await asyncio.to_thread(source.read, CHUNK)
                    more = len(part) == CHUNK
                    await send({"type": "http.response.body", "body": part, "more_body": more})
        finally:
            shutil.rmtree(file.path.parent, ignore_errors=True)

    # --------------------------------------------------------------------------- starting, stopping

    async def _live(self, receive: Receive, send: Send) -> None:
        interval = sys.getswitchinterval()
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                for calls in self._calls.values():
                    calls.start()
                # some may wait for a database that is away, and others must not wait for them
                asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS))
                await self._feed.warm_up()
                # What is there now stays: looking through it for garbage takes a tenth of a second.
                gc.collect()
                gc.freeze()
                sys.setswitchinterval(SWITCH)
                await send({"type": "lifespan.startup.complete"})
            else:
                self.stop()
                if self._close is not None:
                    await asyncio.to_thread(self._close)
                gc.unfreeze()  # the process may go on to do something else
                sys.setswitchinterval(interval)
                await send({"type": "lifespan.shutdown.complete"})
                return

    def stop(self) -> None:
        """Say that the service is about to stop: streams end, and it is not ready any more."""
        self._stopping = True
        self._feed.stop()

    async def problems(self) -> list[str]:
        """Return why the service should get no requests."""
        if self._stopping:
            return ["the service is stopping"]
        found = []
        if any(calls.is_away for calls in self._calls.values()) or not await self._answers():
            found.append("the database does not answer")
        for name, served in self._served.items():
            made_at = getattr(served.book.model, "made_at", 0) / 1e6
            if served.keeper.problem is not None and time.time() - made_at > STALE:
                found.append(f"the bandit {name!r} has had no new model version for long")
        return found

    async def numbers(self) -> bytes:
        """Return the metrics."""
        known, up = [], True
        for name in self._ledgers:
            try:
                now = (await asyncio.wait_for(self._feed.overview(name), READY_WITHIN)).status
            except (LedgerError, TimeoutError):
                up = False
                break
            pending = sum(arm.waiting for arm in now.arms.values())
            known.append(Known(name, pending, now.parked, now.dead, now.version, now.age))
        waiting = sum(calls.waiting for calls in self._calls.values())
        return self._metrics.text(known, waiting, up=up)

    def described(self) -> bytes:
        """Return the OpenAPI document."""
        if self._document is None:
            self._document = encoded(document(ROUTES, OWN, tokens=self._tokens))
        return self._document

    async def _answers(self) -> bool:
        """Whether the database answers; however many ask, it is asked once at a time."""
        if self._ping is None or self._ping.done():
            self._ping = asyncio.create_task(self._ask_database())
        try:
            await asyncio.wait_for(asyncio.shield(self._ping), READY_WITHIN)
        except (TimeoutError, LedgerError):
            return False
        return True

    async def _ask_database(self) -> None:
        for served in self._served.values():
            await asyncio.to_thread(served.writer.call, lambda c: c.rows("SELECT 1"))
            return


class _Gone(Exception):
    """The client has gone before its request was whole."""


def _is_json(kind: bytes) -> bool:
    return kind.partition(b";")[0].strip().lower() == b"application/json"


def _query(route: Route, text: bytes) -> dict[str, str]:
    known = [name for name, _ in route.query]
    found: dict[str, str] = {}
    try:
        pairs = parse_qsl(text.decode("ascii"), keep_blank_values=True, max_num_fields=20)
    except ValueError:
        raise Problem(400, "the query must be text such as ?most=10") from None
    for name, value in pairs:
        if name not in known:
            words = f"; it takes {', '.join(known)}" if known else ""
            raise Problem(400, f"there is no query parameter {name[:40]!r}{words}")
        if name in found:
            raise Problem(400, f"the query parameter {name!r} is given twice")
        found[name] = value
    return found


# ----------------------------------------------------------------------------------- own routes


async def _bandits(app: Any, call: Call) -> Any:
    return bodies.Bandits(list(app._ledgers))


async def _health(app: Any, call: Call) -> Any:
    return bodies.State("ok")


async def _ready(app: Any, call: Call) -> Any:
    problems = await app.problems()
    if problems:
        raise Problem(503, "; ".join(problems), retry_after=1.0)
    return bodies.State("ready")


async def _numbers(app: Any, call: Call) -> Any:
    return Content(await app.numbers(), KIND)


async def _document(app: Any, call: Call) -> Any:
    return Content(app.described(), "application/json")


OWN = (
    Route("GET", "v1/bandits", ANY, _bandits, None, bodies.Bandits, "List the bandits."),
    Route("GET", "healthz", (), _health, None, bodies.State, "Whether the process answers."),
    Route("GET", "readyz", (), _ready, None, bodies.State,
          "Whether it should get requests: 503 says why not."),
    Route("GET", "metrics", READ, _numbers, None, (KIND,), "Numbers for Prometheus."),
    Route("GET", "openapi.json", (), _document, None, dict[str, Any], "This document."),
)  # fmt: skip
