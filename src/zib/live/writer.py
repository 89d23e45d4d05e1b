"""One thread writes for all callers: what arrives while a commit waits for the disk goes together.

So the cost of a durable commit is shared by everybody who is waiting for one (group commit), and a
caller is answered after the commit that holds its request.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import queue
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from zib.live import engine
from zib.live.answers import LedgerError, Transient
from zib.live.book import Work
from zib.live.database import Connection, Database, in_transaction

MOST_ROWS = 4_000  # in a transaction
PATIENCE = 30.0  # seconds for which a database that is away is tried again
FIRST_PAUSE, LONGEST_PAUSE = 0.02, 1.0
_STOP = object()


class _Job:
    """Something to do in the writing thread: requests, or a function; and what came of it."""

    __slots__ = ("answered", "call", "error", "finished", "following", "result", "then", "works")

    def __init__(
        self,
        works: Sequence[Work] = (),
        call: Callable[[Connection], Any] | None = None,
        then: Callable[[], None] | None = None,
    ) -> None:
        self.works = works
        self.call = call
        self.then = then
        self.result: Any = None  # of a function
        self.error: BaseException | None = None
        self.answered = False
        self.following: _Job | None = None  # to be woken by whoever waits for this one
        # a bare lock is the cheapest thing to wait for
        self.finished = threading.Lock()
        self.finished.acquire()

    def wait(self) -> None:
        try:
            self.finished.acquire()
            if self.following is not None:
                self.following.finished.release()
        except BaseException:  # such as Ctrl-C: the others still have to be woken
            threading.Thread(target=self._wake_following, daemon=True).start()
            raise

    def _wake_following(self) -> None:
        while not self.answered:
            time.sleep(0.001)
        if self.following is not None:
            with contextlib.suppress(RuntimeError):  # it is awake already
                self.following.finished.release()

    def fail(self, error: BaseException) -> None:
        self.error = error
        for work in self.works:
            work.error = error

    @property
    def size(self) -> int:
        return sum(work.size for work in self.works) if self.works else 1


def _answer(jobs: Sequence[_Job]) -> None:
    """Tell whoever waits for these jobs that they are done.

    The first is woken here and wakes the next: all at once they would only queue up again, for the
    lock of the interpreter, and keep the writer from it.
    """
    waiting = [job for job in jobs if job.then is None]
    for job, following in itertools.pairwise(waiting):
        job.following = following
    for job in jobs:
        job.answered = True
        if job.then is not None:
            job.then()
    if waiting:
        waiting[0].finished.release()


class _Spoilt(Exception):
    """Some calls of a batch are refused: they must leave nothing behind."""

    def __init__(self, works: Sequence[Work]) -> None:
        super().__init__("refused")
        self.works = works


def _run_whole(connection: Connection, works: Sequence[Work]) -> None:
    """Run requests; raise if a call with several of them is refused in part."""
    engine.run(connection, works)
    spoilt = [work for work in works if len(work.answers) > 1 and work.refusal is not None]
    if spoilt:
        raise _Spoilt(spoilt)


class Writer:
    """Runs requests in transactions, each commit for everybody who waits.

    Parameters
    ----------
    database
        Where to write.
    background
        False: no thread; each request is run and committed by its caller.
    """

    _together: ClassVar[weakref.WeakKeyDictionary[Database, Writer]] = weakref.WeakKeyDictionary()
    _joining: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, database: Database, *, background: bool = True) -> None:
        self._database = database
        self._users = 1
        self._connection: Connection | None = None
        self._closed = False
        self._process = os.getpid()
        self._alone = threading.RLock()
        self._jobs: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        if background:
            self._thread = threading.Thread(target=self._loop, name="zib-writer", daemon=True)
            self._thread.start()

    @classmethod
    def joined(cls, database: Database) -> Writer:
        """Return the thread that writes for all ledgers of an open database; `leave` it at the end.

        A database has one writer at a time anyway, and so their requests share commits.
        """
        with cls._joining:
            found = cls._together.get(database)
            if found is None or found._closed or found.forked:
                found = cls._together[database] = cls(database)
            else:
                found._users += 1
            return found

    def leave(self) -> None:
        """Finish what was asked for; stop if nobody else writes with it."""
        with self._joining:
            self._users -= 1
            last = self._users <= 0
            if last and self._together.get(self._database) is self:
                del self._together[self._database]
        if last:
            self.close()
        elif self._thread is not None:
            self._enqueue(_Job()).wait()  # does nothing, after everything before it

    # ---------------------------------------------------------------------------------- asking

    def do(self, work: Work) -> list[Any]:
        """Run requests and return their answers, once they are durable."""
        self._enqueue(_Job((work,))).wait()
        if work.error is not None:
            raise work.error
        return work.answers

    def submit(self, works: Sequence[Work], then: Callable[[], None]) -> None:
        """Run requests without waiting; `then` is called when each has answers or an error.

        It is called by the writing thread and must not take long.
        """
        self._enqueue(_Job(works, None, then))

    def call(self, work: Callable[[Connection], Any]) -> Any:
        """Run a function in a transaction of its own and return what it returns."""
        job = self._enqueue(_Job(call=work))
        job.wait()
        if job.error is not None:
            raise job.error
        return job.result

    @property
    def forked(self) -> bool:
        """Whether this is a copy in a process that was forked: what it has is not its own."""
        return os.getpid() != self._process

    def _enqueue(self, job: _Job) -> _Job:
        if self.forked:
            raise LedgerError(
                "the ledger was opened before this process was forked: open it in each process"
            )
        if self._closed:
            raise LedgerError("the ledger is closed: open it again")
        if self._thread is None:
            with self._alone:
                self._run([job])
        else:
            self._jobs.put(job)
            if self._closed:  # meanwhile: nobody may be there any more to take it
                self._thread.join()
                self._refuse_rest()
        return job

    def close(self) -> None:
        """Finish what was asked for, then stop."""
        if self._closed:
            return
        self._closed = True
        if self._thread is not None:
            self._jobs.put(_STOP)
            self._thread.join()
            self._refuse_rest()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _refuse_rest(self) -> None:
        """Answer callers that came while the writer was being closed."""
        while True:
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                return
            if job is not _STOP:
                job.fail(LedgerError("the ledger is closed: open it again"))
                _answer([job])

    # --------------------------------------------------------------------------------- writing

    def _loop(self) -> None:
        following: Any = None
        while True:
            job = self._jobs.get() if following is None else following
            following = None
            if job is _STOP:
                return
            batch, size = [job], job.size
            while job.works and size < MOST_ROWS:
                try:
                    following = self._jobs.get_nowait()
                except queue.Empty:
                    break
                if following is _STOP or not following.works:
                    break
                batch.append(following)
                size += following.size
                following = None
            self._run(batch)

    def _run(self, batch: Sequence[_Job]) -> None:
        """Run a batch and answer everybody."""
        first = batch[0]
        if first.call is not None:
            try:
                first.result = self._tried((), first.call)
            except BaseException as error:
                first.fail(error)
        elif first.works:
            self._run_works([work for job in batch for work in job.works])
        _answer(batch)

    def _run_works(self, works: Sequence[Work]) -> None:
        """Run requests in one transaction; afterwards each has answers or an error."""
        try:
            self._tried(works, lambda c: _run_whole(c, works))
        except _Spoilt as spoilt:  # calls of which a part is refused are refused as a whole
            for work in spoilt.works:
                work.error = work.refusal
            rest = [work for work in works if work not in spoilt.works]
            if rest:
                self._run_works(rest)
        except BaseException as error:
            if len(works) > 1 and not isinstance(error, LedgerError):
                for work in works:  # one call must not spoil the others
                    self._run_works([work])
                return
            for work in works:
                work.error = error
        else:
            for work in works:
                work.error = work.refusal

    def _tried(self, works: Sequence[Work], call: Callable[[Connection], Any]) -> Any:
        """Return what a function returns, in a transaction; again if the database was away."""
        pause, until = FIRST_PAUSE, time.monotonic() + PATIENCE
        while True:
            try:
                found = self._committed(call)
                engine.settle(works)
                return found
            except Transient:
                self._forget(works)
                if time.monotonic() > until or self._closed:
                    raise
                time.sleep(pause)
                pause = min(2.0 * pause, LONGEST_PAUSE)
            except BaseException:
                self._forget(works)
                raise

    def _forget(self, works: Sequence[Work]) -> None:
        """Take nothing for granted that was in memory: the commit may have happened or not."""
        for work in works:
            work.book.uncommitted = None
            work.book.sums = None

    def _committed(self, call: Callable[[Connection], Any]) -> Any:
        try:
            if self._connection is None:
                self._connection = self._database.connect()
            return in_transaction(self._connection, call)
        except Transient:
            if self._connection is not None:
                self._connection.close()
                self._connection = None
            raise
