"""A Dask cluster: one made for the run on this machine, or one that is there.

Workers with other versions than this process are refused, because their numbers could differ.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import platform
import signal
import sys
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from importlib import metadata
from typing import Any

from zib.core import sources
from zib.core.validate import InvalidParameterError, choice, integer, shown

LIBRARIES = ("numpy", "numba", "scipy")
CONNECT = 20.0  # seconds in which a scheduler has to answer
PATIENCE = 10.0  # seconds without any worker until the user is told
POLL = 0.05
RETRIES = 3  # times that a part is tried again when its worker dies
QUEUED = 2  # parts per thread of a worker: one is worked on while the next one travels


class WorkerRefused(RuntimeError):
    """A worker has other versions than the process that asks it to work."""


# ----------------------------------------------------------------------------------------- versions


@functools.cache
def libraries() -> dict[str, str]:
    """Return what must be the same, besides question and code, for numbers to be the same."""
    return {
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
        **{name: metadata.version(name) for name in LIBRARIES},
        "machine": platform.machine(),
    }


def versions() -> dict[str, str]:
    """Return what must be the same here and there for numbers to be the same."""
    return {"zib": f"{metadata.version('zib')} ({sources.source_hash()})", **libraries()}


def refusal(address: str, found: dict[str, str], wanted: dict[str, str]) -> str:
    """Return in words why a worker is refused."""
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
            from zib.core.cluster import versions

            return versions()
        except Exception as error:  # whatever is wrong with it, it is not this one
            return {"zib": f"that does not work ({error})"}

    return ask


# --------------------------------------------------------------------------------------- connecting


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
    with local_cluster(workers) as cluster, Client(cluster, set_as_default=False) as client:
        yield client


def local_cluster(workers: int) -> Any:
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
            raise WorkerRefused(refusal(address, found, wanted))


@contextlib.contextmanager
def connected(scheduler: str | None, workers: int) -> Iterator[Any]:
    """Give a client of a cluster whose workers are there and have been checked."""
    with _client(scheduler, workers) as client:
        _wait_for_workers(client)
        _check_versions(client)
        yield client


# ----------------------------------------------------------------------------------- parts in order

BACKENDS = ("serial", "dask")


class Machines:
    """Whoever works on the parts of a whole: this process, or the workers of a cluster."""

    def __init__(self, client: Any = None) -> None:
        self._client = client

    @property
    def many(self) -> bool:
        """Whether there are workers."""
        return self._client is not None

    def each(
        self, function: Callable[[Any, Any], Any], shared: Any, parts: Iterable[Any]
    ) -> Iterator[Any]:
        """Yield ``function(shared, part)`` for each part, in the order of the parts.

        A part whose worker dies is given to another one, so `function` must not change anything.
        """
        if self._client is None:
            for part in parts:
                yield function(shared, part)
            return
        yield from self._spread(function, shared, parts)

    def _spread(
        self, function: Callable[[Any, Any], Any], shared: Any, parts: Iterable[Any]
    ) -> Iterator[Any]:
        import cloudpickle

        client, wanted = self._client, versions()
        data = cloudpickle.dumps((function, shared))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of large data
            # a task, not scattered data: that would be lost with the worker that has it
            work = client.submit(_unpack, data, pure=False, retries=RETRIES)
        running: deque[Any] = deque()
        try:
            for part in parts:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", UserWarning)
                    task = client.submit(_work, work, wanted, part, pure=False, retries=RETRIES)
                running.append(task)
                if len(running) >= QUEUED * max(1, sum(client.nthreads().values())):
                    yield running.popleft().result()
            while running:
                yield running.popleft().result()
        finally:
            client.cancel([*running, work])


def _unpack(data: bytes) -> Any:
    import cloudpickle

    return cloudpickle.loads(data)


def _work(work: Any, wanted: dict[str, str], part: Any) -> Any:
    found = versions()
    if found != wanted:  # a worker that joined after the others were asked
        from distributed import get_worker

        raise WorkerRefused(refusal(get_worker().address, found, wanted))
    function, shared = work
    return function(shared, part)


def check_backend(backend: object, workers: object, scheduler: object) -> int:
    """Return the number of workers to start, or raise."""
    choice("backend", backend, BACKENDS)
    if scheduler is not None and not isinstance(scheduler, str):
        raise InvalidParameterError(
            f"`scheduler` must be the address of a Dask scheduler; got {shown(scheduler)}"
        )
    number = 2 if workers is None else integer("workers", workers, low=1, high=10_000)
    for name, value in (("workers", workers), ("scheduler", scheduler)):
        if value is not None and backend != "dask":
            raise InvalidParameterError(f"`{name}` must be None unless `backend` is 'dask'")
    if backend == "dask":
        require_distributed()
    return number


@contextlib.contextmanager
def machines(
    backend: str = "serial", workers: int | None = None, scheduler: str | None = None
) -> Iterator[Machines]:
    """Give what works on parts: this process, or a cluster that is there or made for the run."""
    number = check_backend(backend, workers, scheduler)
    if backend == "serial":
        yield Machines()
        return
    with connected(scheduler, number) as client:
        yield Machines(client)
