"""Between the event loop and the thread that writes.

Requests that arrive in one turn of the loop are handed over together, and are answered together
after the commit that holds them. Nobody waits for a thread, and nobody waits for long: a request
that the database has not taken within `PATIENCE` is answered, although it may still be written
(ids make it safe to ask again).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from zib.live.answers import Transient
from zib.live.book import Asked, Book, Reported, Work
from zib.live.writer import Writer

PATIENCE = 4.0  # seconds until a caller is told that the database does not answer
# Seconds between two batches, unless one caller is alone. A commit costs the processor the same for
# one request as for ten: without a gap a service at half of its load is as busy as at full load.
GAP = 0.004
LOOKING = 0.25  # seconds between looks for those who have waited so long
MOST_WAITING = 50_000  # requests, of all callers


class Queued(Work):
    """Requests of one call, and where its answer goes."""

    __slots__ = ("future",)

    def __init__(
        self,
        book: Book,
        asked: Sequence[Asked] = (),
        reported: Sequence[Reported] = (),
    ) -> None:
        super().__init__(book, asked, reported)
        self.future: asyncio.Future[None] | None = None


class Calls:
    """Hands requests of an event loop to the writer of a database.

    Parameters
    ----------
    writer
        Shared by the ledgers of the database.
    observe
        Called with the number of requests that are handed over together.
    """

    def __init__(self, writer: Writer, observe: Callable[[float], None]) -> None:
        self._writer = writer
        self._observe = observe
        self._loop: asyncio.AbstractEventLoop | None = None
        self._collected: list[Queued] = []
        self._next = 0.0  # when the next requests are handed over, at the earliest
        self._under_way: deque[tuple[float, list[Queued]]] = deque()
        self.waiting = 0  # requests that have no answer yet

    def start(self) -> None:
        """Take over the running loop."""
        self._loop = asyncio.get_running_loop()
        self._loop.call_later(LOOKING, self._look)

    async def do(self, work: Queued) -> list[Any]:
        """Return the answers to requests, once they are durable."""
        loop = self._loop
        if loop is None:
            self.start()
            loop = self._loop
            assert loop is not None
        if self.is_away or self.waiting > MOST_WAITING:
            raise Transient("requests before this one wait for the database")
        future = work.future = loop.create_future()
        if not self._collected:
            pause = self._next - time.monotonic()
            if pause > 0.0:
                loop.call_later(pause, self._hand_over)
            else:
                loop.call_soon(self._hand_over)
        self._collected.append(work)
        self.waiting += 1
        await future
        if work.error is not None:
            raise work.error
        return work.answers

    @property
    def is_away(self) -> bool:
        """Whether requests wait for longer than anybody should."""
        under_way = self._under_way
        return bool(under_way) and time.monotonic() - under_way[0][0] > PATIENCE

    def _hand_over(self) -> None:
        works, self._collected = self._collected, []
        assert self._loop is not None
        now = time.monotonic()
        self._next = now + GAP if len(works) > 1 else now
        self._under_way.append((now, works))
        self._observe(len(works))
        tell = functools.partial(self._loop.call_soon_threadsafe, self._answer, works)

        def then() -> None:
            with contextlib.suppress(RuntimeError):  # the loop has gone
                tell()

        try:
            self._writer.submit(works, then)
        except BaseException as error:  # it is closed
            self._under_way.pop()
            for work in works:
                work.error = error
            self._wake(works)

    def _answer(self, works: list[Queued]) -> None:
        """Wake those who wait for these requests; batches come back in the order they went."""
        while self._under_way:
            _, first = self._under_way.popleft()
            if first is works:
                break
        self._wake(works)

    def _wake(self, works: list[Queued]) -> None:
        self.waiting -= len(works)
        for work in works:
            future = work.future
            if future is not None and not future.done():
                future.set_result(None)

    def _look(self) -> None:
        """Answer those who have waited too long; what they asked for stays under way."""
        assert self._loop is not None
        before = time.monotonic() - PATIENCE
        for since, works in self._under_way:
            if since > before:
                break
            for work in works:
                future = work.future
                if future is not None and not future.done():
                    future.set_exception(Transient("the database has not answered"))
        self._loop.call_later(LOOKING, self._look)
