"""The keeper makes model versions: it reads what has happened, and writes what follows from it.

One process leads and makes the versions of a bandit; the others take up what it has written. A
version is made when a reward has come or changed, when arms have changed, and when decisions have
aged enough for their weights to change. Reading and computing take at most a fifth of one
processor: where they take long, versions come less often.
"""

from __future__ import annotations

import contextvars
import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any, Protocol

from zib.live import engine, history
from zib.live.answers import LedgerError
from zib.live.book import Book
from zib.live.database import Connection, Database
from zib.live.learning import Learning
from zib.live.model import Arms, Model, Versioned
from zib.live.outcome import SECOND
from zib.live.settings import label_of
from zib.live.statistics import SUM_COLUMNS, Recent
from zib.live.writer import Writer
from zib.stats.pending import CLOSED

SHARE = 0.2  # of a processor, on average;
AT_ONCE = 0.5  # so many seconds of it may be used before they are earned
AGEING = 10_000  # versions in a horizon, if nothing but the ages of decisions changes
OLD_BUCKETS = 100  # that are put together at a time
FOLLOWING = 0.25  # seconds after which versions of another process are taken up, at most
LOOKING = 0.05  # of the time, for events that were overtaken by their decision
LONGEST_PAUSE = 60.0  # seconds after something went wrong
TOGETHER = 600.0  # seconds after which old periods of the history are put together
MOST_ATTEMPTS = 10

log = logging.getLogger("zib.live")


class Makes(Protocol):
    """What the keeper needs to make versions of one kind of bandit."""

    def load(self, c: Connection, version: int, content: str) -> Versioned:
        """Return a version that is in the database."""
        ...

    def next(
        self, c: Connection, version: int, now: int, arms: Arms, *, force: bool
    ) -> Versioned | None:
        """Return the next version from one moment of the database, or None if nothing is new."""
        ...

    def written(self, made: Versioned) -> None:
        """Take note that a version is in the database."""
        ...

    def chores(self, now: int) -> Callable[[Connection], None] | None:
        """Return what else is to be done in a transaction that writes, if anything."""
        ...

    def stop(self) -> None:
        """Give up what takes long: the ledger is being closed."""
        ...


class Sums:
    """Makes versions of a multi-armed bandit from the sums over its log."""

    def __init__(self, book: Book) -> None:
        self._book = book
        self._seen: Any = None  # by the last version that was written,
        self._made_at = 0  # at this time
        self._written: tuple[Any, int] = (None, 0)  # the same of the one being made
        self._oldest = 0
        self._recent = Recent(book.number, book.rules)

    def load(self, c: Connection, version: int, content: str) -> Versioned:
        """Return a version that is in the database."""
        return Model.loads(content, self._book.name, self._book.configuration)

    def next(
        self, c: Connection, version: int, now: int, arms: Arms, *, force: bool
    ) -> Versioned | None:
        """Return the next version, if a reward, an arm or the age of a decision has changed."""
        rows = c.rows(
            f"SELECT arm, worker, {', '.join(SUM_COLUMNS)} FROM arm_sum WHERE bandit = $1 "
            "ORDER BY arm, worker",
            self._book.number,
        )
        seen = (arms, rows)
        aged = abs(now - self._made_at) >= self._book.rules.horizon / AGEING  # a clock may jump
        if not force and seen == self._seen and not aged:
            return None
        book = self._book
        found = self._recent.read(c, len(arms.labels), now, whole=force)
        buckets = found.waiting.bucket[found.waiting.bucket != CLOSED]
        waits = bool((buckets >= (self._made_at - book.rules.horizon) // book.rules.width).any())
        if not force and seen == self._seen and not waits:
            self._made_at = now  # all of them were closed when the last version was made
            return None
        self._written = (seen, now)
        self._oldest = int(buckets.min()) if buckets.size else 0
        return Model.build(book.name, book.configuration, version, now, *arms, found)

    def written(self, made: Versioned) -> None:
        """Take note that a version is in the database."""
        self._seen, self._made_at = self._written

    def chores(self, now: int) -> Callable[[Connection], None] | None:
        """Return how old buckets are put together, if there are many.

        Sums do not change, so it does not matter what others do at the same time.
        """
        rules = self._book.rules
        before = (now - rules.horizon) // rules.width
        if not self._oldest or before - self._oldest < OLD_BUCKETS:
            return None
        self._oldest = before
        return lambda c: compact(c, self._book.number, before)

    def stop(self) -> None:
        """Nothing takes long."""


def compact(c: Connection, bandit: int, before: int) -> None:
    """Add up the counters of buckets before one."""
    for table, keys, sums in (
        ("waiting", ("arm",), ("n",)),
        ("converted", ("arm", "bin"), ("n", "total", "squares")),
    ):
        columns = (*keys, *sums)
        found: dict[tuple[int, ...], list[float]] = defaultdict(lambda: [0] * len(sums))  # noqa: B023
        for row in c.rows(
            f"DELETE FROM {table} WHERE bandit = $1 AND bucket >= 0 AND bucket < $2 "
            f"RETURNING {', '.join(columns)}",
            bandit,
            before,
        ):
            held = found[row[: len(keys)]]
            for k, value in enumerate(row[len(keys) :]):
                held[k] += value
        rows = [
            (bandit, key[0], CLOSED, *key[1:], c.worker, *held)
            for key, held in sorted(found.items())
            if any(held)
        ]
        if rows:
            c.add(table, ("bandit", "arm", "bucket", *keys[1:], "worker"), sums, rows)


def makes_of(book: Book) -> Makes:
    """Return what makes the versions of a bandit."""
    return Learning(book) if book.configuration.is_contextual else Sums(book)


class Keeper:
    """Keeps the model of a bandit up to date, in a thread of its own or when asked.

    Parameters
    ----------
    book
        What the process knows of the bandit; its `model` is replaced.
    database, writer
        Where to read, and who writes.
    clock
        Returns the time in microseconds.
    """

    def __init__(
        self,
        book: Book,
        database: Database,
        writer: Writer,
        clock: Callable[[], int],
    ) -> None:
        self._book = book
        self._database = database
        self._writer = writer
        self._clock = clock
        self._makes = makes_of(book)
        self._reader: Connection | None = None
        self._alone = threading.Lock()  # one version is made at a time
        self._closed = threading.Event()
        self._replaced: list[Versioned] = []  # since the last version was written
        self._thread: threading.Thread | None = None
        self._look_again = 0.0  # for events that were overtaken
        self._put_together = 0  # when that was done to old periods
        self.leads = False
        self.problem: str | None = None  # what went wrong last, until a version is made
        self.seconds = 0.0  # of processor time, for the last version

    # ------------------------------------------------------------------------ starting and ending

    def open(self) -> None:
        """Take up the latest version, or make the first one; what is needed is compiled now."""
        with self._alone:
            if not self._follow():
                self._make(force=True)
            assert isinstance(self._book.model, Versioned)
            self._book.model.warm_up()

    def start(self) -> None:
        """Make versions in a thread from now on."""
        run = contextvars.copy_context().run  # settings of the caller hold for the thread, too
        self._thread = threading.Thread(
            target=run, args=[self._loop], name="zib-keeper", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop; what is being made is finished."""
        self._closed.set()
        self._makes.stop()
        if self._thread is not None:
            self._thread.join()
        self._forget_connection()

    # -------------------------------------------------------------------------------- one version

    def refresh(self, *, force: bool = True) -> int:
        """Make a version now, or take up a newer one of the leader; return its number."""
        if self._closed.is_set():
            raise LedgerError("the ledger is closed: open it again")
        with self._alone:
            self.leads = self._database.try_lead(self._book.number)
            if self.leads:
                self._settle_parked(force)
                self._make(force=force)
            else:
                self._follow()
            assert self._book.model is not None
            return self._book.model.version

    def _make(self, *, force: bool) -> None:
        start = time.thread_time()
        for _ in range(MOST_ATTEMPTS):
            made = self._next(force)
            if made is None or self._write(made):
                break
            force = True  # what was new has not been written
        else:
            raise LedgerError("another process makes model versions of the same bandit")
        if made is not None:
            self._makes.written(made)
            self._adopt(made)
        now = self._clock()
        chores = self._makes.chores(now)
        if chores is not None:
            self._writer.call(chores)
        if abs(now - self._put_together) >= TOGETHER * SECOND:  # a clock may jump
            self._writer.call(lambda c: history.compact(c, self._book.number, now))
            self._put_together = now
        self.seconds = time.thread_time() - start

    def _next(self, force: bool) -> Versioned | None:
        """Return the version that follows from one moment of the database."""
        c = self._connection()
        try:
            c.begin()
            try:
                arms, last = self._arms(c), self._last(c)
                now = self._clock()
                return self._makes.next(c, last + 1, now, arms, force=force or last == 0)
            finally:
                c.rollback()
        except LedgerError:
            self._forget_connection()
            raise

    def _write(self, made: Versioned) -> bool:
        """Write a version down; False if there is one with its number already."""
        content, bandit = made.dumps(), self._book.number

        def work(c: Connection) -> bool:
            row = (bandit, made.version, made.made_at, content)
            columns = ("bandit", "version", "made_at", "content")
            new = c.insert_new("model", columns, [row], columns[:2])[0]
            if not c.shared:  # nobody else can have used a version
                for old in self._replaced:
                    if not (old.used or old.chained):
                        sql = "DELETE FROM model WHERE bandit = $1 AND version = $2"
                        c.run(sql, bandit, old.version)
            return new

        written = bool(self._writer.call(work))
        self._replaced.clear()
        return written

    def _follow(self) -> bool:
        """Take up the latest version if it is newer; return whether there is any."""
        c = self._connection()
        try:
            c.begin()
            try:
                now = self._book.model
                known = now.version if isinstance(now, Versioned) else 0
                found = c.rows(
                    "SELECT version, content FROM model WHERE bandit = $1 AND version > $2 "
                    "ORDER BY version DESC LIMIT 1",
                    self._book.number,
                    known,
                )
                if found:
                    model = self._makes.load(c, int(found[0][0]), found[0][1])
                    model.used = True  # before it was read, for all we know
                    self._adopt(model)
                return bool(found or known)
            finally:
                c.rollback()
        except LedgerError:
            self._forget_connection()
            raise

    def _adopt(self, model: Versioned) -> None:
        book = self._book
        if len(model.labels) >= len(book.labels) and (
            list(model.labels) != book.labels or list(model.statuses) != book.statuses
        ):
            self._writer.call(book.read_arms)
        if isinstance(book.model, Versioned):
            self._replaced.append(book.model)
        book.model = model

    def _settle_parked(self, force: bool) -> None:
        """Apply events that were parked while another process wrote their decision.

        Looking for them takes longer the more events wait for a decision that never comes; it is
        done as often as a small part of the time allows.
        """
        c, start = self._connection(), time.monotonic()
        if c.shared and (force or start >= self._look_again):
            try:
                found = engine.overtaken(c, self._book)
            except LedgerError:
                self._forget_connection()
                raise
            if found:
                self._writer.call(lambda w: engine.settle_parked(w, self._book, found))
            self._look_again = start + (time.monotonic() - start) / LOOKING

    # ------------------------------------------------------------------------------------ reading

    def _connection(self) -> Connection:
        if self._reader is None:
            self._reader = self._database.reader()
        return self._reader

    def _forget_connection(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _arms(self, c: Connection) -> Arms:
        rows = c.rows(
            "SELECT label, status FROM arm WHERE bandit = $1 ORDER BY number", self._book.number
        )
        return Arms(tuple(label_of(row[0]) for row in rows), tuple(row[1] for row in rows))

    def _last(self, c: Connection) -> int:
        found = c.rows(
            "SELECT COALESCE(MAX(version), 0) FROM model WHERE bandit = $1", self._book.number
        )
        return int(found[0][0])

    # ---------------------------------------------------------------------------------- the thread

    def _loop(self) -> None:
        pause = refresh = self._book.configuration.settings.refresh
        ahead = 0.0  # seconds of processor time that were used and not yet earned
        used, before = time.thread_time(), time.monotonic()
        while not self._closed.wait(pause):
            try:
                self.refresh(force=False)
                self.problem = None
                earned = SHARE * (time.monotonic() - before)
                ahead = max(ahead - earned, 0.0) + time.thread_time() - used
                used, before = time.thread_time(), time.monotonic()
                least = refresh if self.leads else min(refresh, FOLLOWING)
                pause = max(least, (ahead - AT_ONCE) / SHARE)
            except BaseException as error:  # serving goes on with the version there is
                if self._closed.is_set():
                    return
                self.problem = f"{type(error).__name__}: {error}"
                log.warning("no new model version of %r: %s", self._book.name, self.problem)
                pause = min(2.0 * pause, LONGEST_PAUSE)
