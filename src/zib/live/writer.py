"""One thread writes for all callers: what arrives while a commit waits for the disk goes together.

So the cost of a durable commit is shared by everybody who is waiting for one (group commit), and a
caller is answered after the commit that holds its request.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from zib.live import engine
from zib.live.answers import LedgerError, Transient
from zib.live.database import Connection, Database, in_transaction
from zib.live.engine import Work

MOST_ROWS = 4_000  # in a transaction
PATIENCE = 30.0  # seconds for which a database that is away is tried again
FIRST_PAUSE, LONGEST_PAUSE = 0.02, 1.0
_STOP = object()


class _Job:
    """Something to do in the writing thread, and what came of it."""

    __slots__ = ("call", "error", "finished", "result", "then", "work")

    def __init__(self, work: Work | None, call: Callable[[Connection], Any] | None) -> None:
        self.work = work
        self.call = call
        self.result: Any = None
        self.error: BaseException | None = None
        self.then: Callable[[_Job], None] | None = None
        # a bare lock is the cheapest thing to wait for
        self.finished = threading.Lock()
        self.finished.acquire()

    def done(self) -> None:
        if self.then is not None:
            self.then(self)
        self.finished.release()

    def wait(self) -> Any:
        self.finished.acquire()
        if self.error is not None:
            raise self.error
        return self.result

    @property
    def size(self) -> int:
        return 1 if self.work is None else len(self.work.asked) + len(self.work.reported)


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

    def __init__(self, database: Database, *, background: bool = True) -> None:
        self._database = database
        self._connection: Connection | None = None
        self._closed = False
        self._alone = threading.RLock()
        self._jobs: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        if background:
            self._thread = threading.Thread(target=self._loop, name="zib-writer", daemon=True)
            self._thread.start()

    # ---------------------------------------------------------------------------------- asking

    def do(self, work: Work) -> list[Any]:
        """Run requests and return their answers, once they are durable."""
        found: list[Any] = self._enqueue(_Job(work, None)).wait()
        return found

    def submit(self, work: Work) -> Future[list[Any]]:
        """Run requests; the future has their answers."""
        future: Future[list[Any]] = Future()

        def then(job: _Job) -> None:
            if job.error is not None:
                future.set_exception(job.error)
            else:
                future.set_result(job.result)

        job = _Job(work, None)
        job.then = then
        self._enqueue(job)
        return future

    def call(self, work: Callable[[Connection], Any]) -> Any:
        """Run a function in a transaction of its own and return what it returns."""
        return self._enqueue(_Job(None, work)).wait()

    def _enqueue(self, job: _Job) -> _Job:
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
                job.error = LedgerError("the ledger is closed: open it again")
                job.done()

    # --------------------------------------------------------------------------------- writing

    def _loop(self) -> None:
        following: Any = None
        while True:
            job = self._jobs.get() if following is None else following
            following = None
            if job is _STOP:
                return
            batch, size = [job], job.size
            while job.work is not None and size < MOST_ROWS:
                try:
                    following = self._jobs.get_nowait()
                except queue.Empty:
                    break
                if following is _STOP or following.work is None:
                    break
                batch.append(following)
                size += following.size
                following = None
            self._run(batch)

    def _run(self, batch: Sequence[_Job]) -> None:
        """Run a batch in one transaction, again if the database was away, and answer."""
        try:
            results = self._tried(batch)
        except _Spoilt as spoilt:  # calls of which a part is refused are refused as a whole
            for job in batch:
                if job.work in spoilt.works:
                    assert job.work is not None
                    job.error = job.work.refusal
                    job.done()
            rest = [job for job in batch if job.work not in spoilt.works]
            if rest:
                self._run(rest)
            return
        except BaseException as error:
            if len(batch) > 1 and not isinstance(error, LedgerError):
                for job in batch:  # one request must not spoil the others
                    self._run([job])
                return
            for job in batch:
                job.error = error
        else:
            for job, result in zip(batch, results, strict=True):
                job.result = result
                job.error = None if job.work is None else job.work.refusal
        for job in batch:
            job.done()

    def _tried(self, batch: Sequence[_Job]) -> list[Any]:
        pause, until = FIRST_PAUSE, time.monotonic() + PATIENCE
        while True:
            try:
                return self._committed(batch)
            except Transient:
                self._forget(batch)
                if time.monotonic() > until or self._closed:
                    raise
                time.sleep(pause)
                pause = min(2.0 * pause, LONGEST_PAUSE)
            except BaseException:
                self._forget(batch)
                raise

    def _forget(self, batch: Sequence[_Job]) -> None:
        """Take nothing for granted that was in memory: the commit may have happened or not."""
        for job in batch:
            if job.work is not None:
                job.work.book.uncommitted = None
                job.work.book.sums = None

    def _committed(self, batch: Sequence[_Job]) -> list[Any]:
        try:
            if self._connection is None:
                self._connection = self._database.connect()
            call = batch[0].call
            if call is not None:
                return [in_transaction(self._connection, call)]
            works = [job.work for job in batch if job.work is not None]
            in_transaction(self._connection, lambda c: _run_whole(c, works))
        except Transient:
            if self._connection is not None:
                self._connection.close()
                self._connection = None
            raise
        engine.settle(works)
        return [work.answers for work in works]
