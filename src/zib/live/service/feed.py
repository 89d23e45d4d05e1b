"""What the ledgers know, computed at most every two seconds however many people look."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zib.live.ledger import Ledger
    from zib.live.views import Overview

EVERY = 2.0  # seconds
logger = logging.getLogger("zib.live.service")


@dataclass
class Look:
    """An overview, and since when the database has not given a newer one.

    Attributes
    ----------
    overview
        What was known.
    taken
        When it was asked for, on the clock that only goes forwards.
    failing_since
        Since when newer ones could not be computed, in seconds since 1970; None: they can.
    rendered
        What was made of it; a place for those who look to share their work.
    """

    overview: Overview
    taken: float
    failing_since: float | None = None
    rendered: dict[str, asyncio.Future[dict[str, str]]] = field(default_factory=dict)


class Feed:
    """Overviews of several bandits for all who look at them.

    Parameters
    ----------
    ledgers
        By name of the bandit.
    every
        Least seconds between two overviews of a bandit.
    """

    def __init__(self, ledgers: Mapping[str, Ledger], *, every: float = EVERY) -> None:
        self._ledgers = ledgers
        self._every = every
        self._looks: dict[str, Look] = {}
        self._locks: dict[str, asyncio.Lock] = {name: asyncio.Lock() for name in ledgers}
        self._old: set[str] = set()  # whose last look is not worth keeping
        self._stopped = asyncio.Event()

    @property
    def every(self) -> float:
        """Least seconds between two overviews of a bandit."""
        return self._every

    @property
    def stopped(self) -> bool:
        """Whether the service is about to stop."""
        return self._stopped.is_set()

    def stop(self) -> None:
        """End all streams, as servers wait for them when they stop; called in the event loop."""
        self._stopped.set()

    async def warm_up(self) -> None:
        """Load what overviews need, so that who looks first does not wait for it."""
        for name in list(self._ledgers)[:1]:
            with contextlib.suppress(Exception):  # who looks is told
                await asyncio.wait_for(self.look(name), self._every)
            self.forget(name)

    async def overview(self, name: str) -> Overview:
        """Return what is known of a bandit; at most two seconds old, or an error is raised."""
        look = await self.look(name)
        if look.failing_since is not None:
            look = await self.look(name, fresh=True)
        return look.overview

    async def look(self, name: str, *, fresh: bool = False) -> Look:
        """Return what is known of a bandit, or what was when the database answered last.

        Parameters
        ----------
        name
            Of the bandit.
        fresh
            Ask the database, and raise its error if it cannot answer.
        """
        async with self._locks[name]:
            last = self._looks.get(name)
            now = time.monotonic()
            young = last is not None and now - last.taken < self._every
            if last is not None and young and name not in self._old and not fresh:
                return last
            self._old.discard(name)  # if it is put there while we look, it stays
            try:
                found = await asyncio.to_thread(self._ledgers[name].overview)
            except Exception:
                if last is None or fresh:
                    raise
                logger.exception("no overview of the bandit %r", name)
                since = last.failing_since if last.failing_since is not None else time.time()
                look = Look(last.overview, now, since)
            else:
                look = Look(found, now)
            self._looks[name] = look
            return look

    def forget(self, name: str) -> None:
        """Look again the next time: something was changed by hand."""
        self._old.add(name)

    async def looks(self, name: str, allowed: Callable[[], bool]) -> AsyncIterator[Look | None]:
        """Yield looks as time goes by, while it is allowed and until the service stops.

        None is yielded where there is nothing new.
        """
        last = None
        while not self.stopped and allowed():
            look = await self.look(name)
            yield None if look is last else look
            last = look
            try:
                await asyncio.wait_for(self._stopped.wait(), self._every)
            except TimeoutError:
                continue
