"""HTTP/1.1 as uvicorn speaks it, with what it lacks against slow, broken and hostile clients.

A request must arrive whole in time, with headers of a bounded size; answers must be taken; few
requests may wait on one connection, and few connections be open. Whatever is refused here has the
form of all refusals.
"""

from __future__ import annotations

import asyncio
import weakref
from functools import partial
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from zib.live.service.bodies import Error, encoded
from zib.live.service.config import Limits

LOOKING = 1.0  # seconds between looks for slow clients
STALLED = 60.0  # seconds that a client may take none of its answer
MOST_HEAD = 1 << 16  # bytes of a request line and headers that do not arrive at once
WHOLE = "zib.whole"  # extension of the scope: see `Protocol.answer`
MOST_WAITING = 256  # requests on a connection that were sent before the first was answered


class Protocol(HttpToolsProtocol):
    """One connection."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.arriving_since: float | None = None
        self.stalled_since: float | None = None
        self.idle_since: float | None = None
        self.in_head = False
        self.head_size = 0
        self.running: Any = None  # what is being answered; `cycle` is what came last
        self.last_words: tuple[int, str, bytes] | None = None  # for when those before are answered

    @property
    def limits(self) -> Limits:
        """What a client may do."""
        app: Any = self.app
        limits: Limits = app.limits
        return limits

    # ----------------------------------------------------------------------------------- arriving

    def connection_made(self, transport: Any) -> None:
        """Take a connection, unless there are too many."""
        super().connection_made(transport)
        self.arriving_since = self.loop.time()
        if self.server_state not in _looked_after:
            _looked_after.add(self.server_state)
            look_at(self.loop, self.server_state)
        if len(self.connections) > self.limits.connections:
            self.refuse(503, "too many connections: try again", b"retry-after: 1\r\n")

    def data_received(self, data: bytes) -> None:
        """Read on, unless the end of the connection is settled."""
        if self.last_words is not None or self.transport.is_closing():
            return
        before = self.headers
        super().data_received(data)
        if self.in_head and self.headers is before:
            self.head_size += len(data)
            if self.head_size > MOST_HEAD:
                self.end(431, f"the headers must have at most {MOST_HEAD} bytes")

    def on_message_begin(self) -> None:
        """Begin to wait for a whole request."""
        if len(self.pipeline) >= MOST_WAITING:
            self.end(400, f"at most {MOST_WAITING} requests may wait on one connection")
            raise OverflowError  # ends the parser
        super().on_message_begin()
        self.idle_since = None
        self.in_head, self.head_size = True, 0
        if self.arriving_since is None:
            self.arriving_since = self.loop.time()

    def on_headers_complete(self) -> None:
        """Take note that a body comes next."""
        self.in_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Take note that a request has arrived whole."""
        self.arriving_since = None
        super().on_message_complete()

    # ---------------------------------------------------------------------------------- answering

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        self.running = cycle
        cycle.scope["extensions"] = {WHOLE: partial(self.answer, cycle)}
        super()._start_asgi_task(cycle, app)

    def answer(self, cycle: Any, head: bytes, body: bytes) -> bool:
        """Write an answer at once, or return False: it has to be sent as any other.

        The application is offered this beside `send`, which takes head and body one by one, reads
        the headers again and writes twice; that took a third of the time of a decision.

        Parameters
        ----------
        cycle
            Of the request.
        head
            Status line and headers as far as the colon after content-length, which comes last.
        body
            All of it.
        """
        if cycle.disconnected:
            return True
        if self.flow.write_paused or cycle.response_started or cycle.scope["method"] == "HEAD":
            return False
        end = b"\r\n\r\n" if cycle.keep_alive else b"\r\nconnection: close\r\n\r\n"
        cycle.response_started = cycle.response_complete = True
        cycle.waiting_for_100_continue = False
        self.transport.write(b"%s%d%s%s" % (head, len(body), end, body))
        cycle.message_event.set()
        if not cycle.keep_alive:
            self.transport.close()
        cycle.on_response()
        return True

    def on_response_complete(self) -> None:
        """Go on with the request that came next, or end; `look` closes what stays idle."""
        self.running = None
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        elif self.last_words is not None:
            self.refuse(*self.last_words)
        else:
            self.idle_since = self.loop.time()

    def pause_writing(self) -> None:
        """Take note that the client takes nothing."""
        self.stalled_since = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        """Take note that it takes something."""
        self.stalled_since = None
        super().resume_writing()

    # ------------------------------------------------------------------------------------- ending

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell what is being answered that nobody listens."""
        self.pipeline.clear()
        if self.running is not None:
            self.running.disconnected = True
            self.running.message_event.set()
        super().connection_lost(exc)

    def look(self, now: float) -> None:
        """Close the connection if it was waited for long enough."""
        late = self.limits.header_timeout
        if self.arriving_since is not None and now - self.arriving_since > late:
            if self.headers is None or (self.cycle and self.cycle.response_started):
                self.transport.close()
            else:
                self.end(408, "the request did not arrive in time")
        elif self.stalled_since is not None and now - self.stalled_since > STALLED:
            self.transport.abort()
        elif self.idle_since is not None and now - self.idle_since > self.timeout_keep_alive:
            self.transport.close()

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP."""
        self.end(400, "this is not a request by HTTP/1.1")

    def end(self, status: int, sentence: str, more: bytes = b"") -> None:
        """Refuse what is arriving, once the requests before it are answered."""
        if self.last_words is not None or self.transport.is_closing():
            return
        self.arriving_since = None
        if self.running is not None and self.cycle.more_body and self.pipeline:
            self.pipeline.popleft()  # the last one, which is never going to be whole
        elif self.running is None or self.cycle.more_body:
            self.refuse(status, sentence, more)
            return
        self.last_words = status, sentence, more

    def refuse(self, status: int, sentence: str, more: bytes = b"") -> None:
        """Answer without the application, and close the connection."""
        content = encoded(Error(sentence))
        self.transport.write(
            b"HTTP/1.1 %d \r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
            b"cache-control: no-store\r\nx-content-type-options: nosniff\r\n"
            b"connection: close\r\n%s\r\n%s" % (status, len(content), more, content)
        )
        self.transport.close()

    def shutdown(self) -> None:
        """End the connection when what has arrived whole is answered; streams end first."""
        app: Any = self.app
        app.stop()
        if self.arriving_since is not None and self.headers is not None:
            self.end(503, "the service is stopping", b"retry-after: 1\r\n")
        super().shutdown()


_looked_after: weakref.WeakSet[ServerState] = weakref.WeakSet()


def look_at(loop: asyncio.AbstractEventLoop, state: ServerState) -> None:
    """Look for slow clients, from now on: one timer for all, as timers cost on every request."""
    now = loop.time()
    for connection in list(state.connections):
        if isinstance(connection, Protocol):
            connection.look(now)
    loop.call_later(LOOKING, look_at, loop, state)
