"""Workers of a Dask cluster: one made for the run on this machine, or one that is there.

The process that calls `simulate` looks blocks up, hands out parts, takes them back and writes the
store. Workers need no store and no common file system. A worker that dies costs the parts it had; a
worker with other versions is turned away, because its numbers could differ.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import signal
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from importlib import metadata
from typing import Any

from zib.core import sources
from zib.core.validate import InvalidParameterError
from zib.sim import keys
from zib.sim.loop import Run
from zib.sim.plan import Block, Plan
from zib.sim.run import Interrupted, play_part, warm_up
from zib.sim.schedule import POLL, Schedule

QUEUED = 2  # parts per thread of a worker: one is played while the next one travels
MOST_DEATHS = 3  # times that workers may die over one part (and Dask tries each a few times)
COUNTED_EVERY = 2.0  # seconds between two looks at how many workers there are
CONNECT = 20.0  # seconds in which a scheduler has to answer
PATIENCE = 10.0  # seconds without any worker until the user is told


class WorkerRefused(RuntimeError):
    """A worker has other versions than the process that asks it to work."""


# ------------------------------------------------------------------------------- on the workers


def versions() -> dict[str, str]:
    """Return what must be the same here and there for numbers to be the same."""
    return {"zib": f"{metadata.version('zib')} ({sources.source_hash()})", **keys.versions()}


_WARM: set[tuple[str, int]] = set()
_WARMING = threading.Lock()


def _unpack(data: bytes) -> Plan:
    import cloudpickle

    plan: Plan = cloudpickle.loads(data)
    return plan


def _play(plan: Plan, name: str, wanted: dict[str, str], part: Block) -> Run:
    """Play a part on a worker; the first one of a policy there compiles what it needs."""
    found = versions()
    if found != wanted:  # a worker that joined after the others were asked
        from distributed import get_worker

        raise WorkerRefused(_refusal(get_worker().address, found, wanted))
    with _WARMING:
        if (name, part.policy) not in _WARM:
            warm_up(plan, [part.policy])
            _WARM.add((name, part.policy))
    return play_part(plan, part)


def _refusal(address: str, found: dict[str, str], wanted: dict[str, str]) -> str:
    apart = [
        f"{name} {there} there and {name} {wanted.get(name, 'absent')} here"
        for name, there in found.items()
        if wanted.get(name) != there
    ]
    return (
        f"the worker {address} is refused, its results could differ: {'; '.join(apart)}. "
        "Install the same versions on both sides"
    )


def _ask() -> Callable[[], dict[str, str]]:
    """Return `versions` as a function that travels by value: a worker may have an old zib."""

    def ask() -> dict[str, str]:
        try:
            from zib.sim.dask import versions

            return versions()
        except Exception as error:  # whatever is wrong with it, it is not this one
            return {"zib": f"that does not work ({error})"}

    return ask


# ---------------------------------------------------------------------------------- on this side


def require_distributed() -> None:
    """Raise one sentence if Dask is not installed."""
    try:
        import cryptography  # noqa: F401
        import distributed  # noqa: F401
    except ImportError:
        raise InvalidParameterError(
            "`backend`='dask' needs the packages distributed and cryptography; install them with: "
            "pip install 'zib[dask]'"
        ) from None


@contextlib.contextmanager
def _client(scheduler: str | None, workers: int) -> Iterator[Any]:
    from distributed import Client

    if scheduler is not None:
        try:
            client = Client(scheduler, set_as_default=False, timeout=CONNECT)
        except (OSError, ValueError) as error:
            raise InvalidParameterError(
                f"`scheduler` must be the address of a running Dask scheduler; {scheduler!r} does "
                f"not answer ({error})"
            ) from None
        with client:
            yield client
        return
    with _local_cluster(workers) as cluster, Client(cluster, set_as_default=False) as client:
        yield client


def _local_cluster(workers: int) -> Any:
    """Return a cluster on this machine that only this process can talk to.

    Whoever reaches a scheduler or a worker can let it run any code, and any user of a machine
    reaches its ports. So both sides show a certificate that is made for the run and kept in memory.
    """
    import dask
    from distributed import LocalCluster, Security

    # Dask binds its web servers, here and in the workers, always; without routes they answer 404
    pages: dict[str, Any] = {
        f"distributed.{role}.http.routes": [] for role in ("scheduler", "worker")
    }
    with dask.config.set(pages), _deaf_children(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about ports and versions that do not concern the user
        return LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            protocol="tls",
            security=Security.temporary(),
            scheduler_kwargs={"dashboard": False, "dashboard_address": "127.0.0.1:0"},
            worker_dashboard_address=None,
            memory_limit=0,
            silence_logs=logging.ERROR,
        )


@contextlib.contextmanager
def _deaf_children() -> Iterator[None]:
    """Let processes started here ignore Ctrl-C, which is for this process to handle."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def run_dask(
    plan: Plan, schedule: Schedule, workers: int, scheduler: str | None, tick: Callable[[int], None]
) -> None:
    """Play everything in the schedule on the workers of a cluster."""
    with _client(scheduler, workers) as client:
        _wait_for_workers(client)
        _check_versions(client)
        _Driver(client, plan, schedule, tick).run()


def _wait_for_workers(client: Any) -> None:
    started, told = time.monotonic(), False
    while not client.nthreads():
        if not told and time.monotonic() - started > PATIENCE:
            told = True
            warnings.warn(
                "the Dask scheduler has no workers yet; waiting for the first one",
                UserWarning,
                stacklevel=5,
            )
        time.sleep(POLL)


def _check_versions(client: Any) -> None:
    wanted = versions()
    for address, found in client.run(_ask(), on_error="return").items():
        if not isinstance(found, dict):
            raise WorkerRefused(f"the worker {address} cannot be asked for its versions: {found}")
        if found != wanted:
            raise WorkerRefused(_refusal(address, found, wanted))


class _Driver:
    """Keeps the workers busy with a bounded queue."""

    def __init__(
        self, client: Any, plan: Plan, schedule: Schedule, tick: Callable[[int], None]
    ) -> None:
        import uuid

        import cloudpickle

        self._client, self._schedule, self._tick = client, schedule, tick
        self._wanted, self._name = versions(), f"zib-{uuid.uuid4().hex}"
        self._running: dict[Any, Block] = {}
        self._done: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._deaths: Counter[Block] = Counter()
        self._counted, self._threads = 0.0, 1
        # a part costs the scheduler milliseconds, so it should take some tens to play
        self._least = plan.block_length // 8
        data = cloudpickle.dumps(plan)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of large environments
            # a task, not scattered data: that would be lost with the worker that has it
            self._plan = client.submit(_unpack, data, key=self._name, pure=False)

    def run(self) -> None:
        """Play until nothing is left."""
        try:
            while True:
                while len(self._running) < self._room():
                    part = self._schedule.next()
                    if part is None:
                        break
                    self._submit(part)
                if not self._running and not self._schedule.unfinished:
                    return
                self._take(self._finished())
        except BaseException as error:
            self._give_up()
            if isinstance(error, KeyboardInterrupt):
                raise Interrupted from None
            raise

    def _room(self) -> int:
        """Return how many parts may be under way; workers come and go."""
        now = time.monotonic()
        if now - self._counted > COUNTED_EVERY:
            self._counted = now
            self._threads = max(1, sum(self._client.nthreads().values()))
            self._schedule.cut_for(self._threads, self._least)
        return QUEUED * self._threads

    def _submit(self, part: Block) -> None:
        future = self._client.submit(_play, self._plan, self._name, self._wanted, part, pure=False)
        self._running[future] = part
        future.add_done_callback(self._done.put)

    def _finished(self) -> list[Any]:
        """Wait a little and return the tasks that ended, well or not."""
        found = []
        try:
            found.append(self._done.get(timeout=POLL))
            while True:
                found.append(self._done.get_nowait())
        except queue.Empty:
            return [future for future in found if future in self._running]

    def _take(self, futures: list[Any]) -> None:
        well = [future for future in futures if future.status == "finished"]
        if well:
            for future, rows in zip(well, self._client.gather(well), strict=True):
                self._schedule.take(self._running.pop(future), rows)
                self._tick(rows.regret.size)
        for future in futures:
            if future in self._running:
                self._failed(future)

    def _failed(self, future: Any) -> None:
        """Hand the part to another worker if that can help, or raise."""
        from distributed import KilledWorker

        part = self._running[future]
        if future.status != "error":
            raise RuntimeError("the connection to the Dask scheduler was lost")
        error = future.exception()
        if isinstance(error, WorkerRefused):
            warnings.warn(str(error), RuntimeWarning, stacklevel=5)
            self._retire(str(error))
        elif isinstance(error, KilledWorker) and self._deaths[part] < MOST_DEATHS:
            self._deaths[part] += 1
        else:
            raise error
        del self._running[future]
        self._schedule.give_back(part)

    def _retire(self, refusal: str) -> None:
        bad = [address for address in self._client.nthreads() if f" {address} " in refusal]
        self._client.retire_workers(bad, close_workers=True)

    def _give_up(self) -> None:
        """Cancel what is under way, after taking what is finished."""
        with contextlib.suppress(Exception):
            self._client.cancel([f for f in self._running if f.status == "pending"])
            well = [future for future in self._running if future.status == "finished"]
            for future, rows in zip(well, self._client.gather(well), strict=True):
                self._schedule.take(self._running.pop(future), rows)
