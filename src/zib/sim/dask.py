"""Workers of a Dask cluster: one made for the run on this machine, or one that is there.

The process that calls `simulate` looks blocks up, hands out parts, takes them back and writes the
store. Workers need no store and no common file system. A worker that dies costs the parts it had; a
worker with other versions is turned away, because its numbers could differ.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

from zib.core import cluster
from zib.sim.loop import Run
from zib.sim.plan import Block, Plan
from zib.sim.run import Interrupted, play_part, warm_up
from zib.sim.schedule import POLL, Schedule

MOST_DEATHS = 3  # times that workers may die over one part (and Dask tries each a few times)
COUNTED_EVERY = 2.0  # seconds between two looks at how many workers there are


# ------------------------------------------------------------------------------- on the workers


_WARM: set[tuple[str, int]] = set()
_WARMING = threading.Lock()


def _unpack(data: bytes) -> Plan:
    import cloudpickle

    plan: Plan = cloudpickle.loads(data)
    return plan


def _play(plan: Plan, name: str, wanted: dict[str, str], part: Block) -> Run:
    """Play a part on a worker; the first one of a policy there compiles what it needs."""
    found = cluster.versions()
    if found != wanted:  # a worker that joined after the others were asked
        from distributed import get_worker

        raise cluster.WorkerRefused(cluster.refusal(get_worker().address, found, wanted))
    with _WARMING:
        if (name, part.policy) not in _WARM:
            warm_up(plan, [part.policy])
            _WARM.add((name, part.policy))
    return play_part(plan, part)


# ---------------------------------------------------------------------------------- on this side


def run_dask(
    plan: Plan, schedule: Schedule, workers: int, scheduler: str | None, tick: Callable[[int], None]
) -> None:
    """Play everything in the schedule on the workers of a cluster."""
    with cluster.connected(scheduler, workers) as client:
        _Driver(client, plan, schedule, tick).run()


class _Driver:
    """Keeps the workers busy with a bounded queue."""

    def __init__(
        self, client: Any, plan: Plan, schedule: Schedule, tick: Callable[[int], None]
    ) -> None:
        import uuid

        import cloudpickle

        self._client, self._schedule, self._tick = client, schedule, tick
        self._wanted, self._name = cluster.versions(), f"zib-{uuid.uuid4().hex}"
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
        return cluster.QUEUED * self._threads

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
        if isinstance(error, cluster.WorkerRefused):
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
