"""The server: uvicorn with uvloop and httptools, in one process or several.

One process serves SQLite. Several serve PostgreSQL: each opens the database for itself, and one
that dies is replaced.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import secrets
import signal
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import uvicorn
from uvicorn.supervisors import Multiprocess

from zib.live.service.access import SESSION_KEY, Access
from zib.live.service.api import Application, application
from zib.live.service.config import Config
from zib.live.service.metrics import FOLDER
from zib.live.service.protocol import Protocol

KEEP_ALIVE = 75  # seconds that a connection may be idle between two requests
BACKLOG = 4_096

log = logging.getLogger("zib.live.service")


class Server(uvicorn.Server):
    """A server that returns when it was told to stop, and does not die of the signal then."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop at SIGTERM and SIGINT; a second SIGINT does not wait for anybody."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        kinds = (signal.SIGINT, signal.SIGTERM)
        before = {kind: signal.signal(kind, self.handle_exit) for kind in kinds}
        try:
            yield
        finally:
            for kind, handler in before.items():
                signal.signal(kind, handler)


class Supervisor(Multiprocess):
    """What replaces a worker that dies, at once.

    It asks its workers in turn whether they are well and waits for the answer. As long as this
    process holds the worker's end of the pipe as well, the pipe of a worker that dies meanwhile
    stays open, and the wait goes on until its time is over.
    """

    def keep_subprocess_alive(self) -> None:
        """Look after all workers; only they hold their ends of the pipes."""
        for process in self.processes:
            process.child_conn.close()
        super().keep_subprocess_alive()


def make_app(config: Config) -> Application:
    """Return the application of one process, its ledgers open."""
    ledgers = config.open_ledgers()
    return application(ledgers, Access(config), config.limits, close=ledgers.close)


def settings(config: Config, app: Any, **more: Any) -> uvicorn.Config:
    """Return what uvicorn is told."""
    return uvicorn.Config(
        app,
        host=config.server.host,
        port=config.server.port,
        http=Protocol,
        ws="none",
        lifespan="on",
        interface="asgi3",
        access_log=False,
        log_config=None,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_worker_healthcheck=30,
        timeout_graceful_shutdown=max(1, round(config.server.stop_within)),
        **more,
    )


def serve(config: Config, *, started: Callable[[str], None] | None = None) -> None:
    """Serve until the process is told to stop.

    Parameters
    ----------
    config
        What live.toml says.
    started
        Called with the address once the socket is bound.
    """
    write_log()
    raise_limit()
    listener = bound(config)
    workers = config.server.workers
    try:
        if workers == 1:
            app = make_app(config)
            if started is not None:
                started(address_of(listener))
            Server(settings(config, app)).run([listener])
            return
        config.open_ledgers().close()  # says what is wrong, and brings the database up to date
        with tempfile.TemporaryDirectory(prefix="zib-metrics-") as folder:
            os.environ.setdefault(FOLDER, folder)
            os.environ.setdefault(SESSION_KEY, secrets.token_hex(32))
            told = settings(config, partial(make_worker, config), factory=True, workers=workers)
            if started is not None:
                started(address_of(listener))
            Supervisor(told, [listener]).run()
    finally:
        listener.close()


def make_worker(config: Config) -> Application:
    """Return the application of one of several processes, which ends with the one it serves for."""
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="zib-parent", daemon=True).start()
    write_log()
    raise_limit()
    return make_app(config)


def bound(config: Config) -> socket.socket:
    """Return a socket that listens where it should."""
    family = socket.AF_INET6 if ":" in config.server.host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((config.server.host, config.server.port))
    listener.listen(BACKLOG)
    listener.setblocking(False)
    return listener


def address_of(listener: socket.socket) -> str:
    """Return the address that a socket listens at."""
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def write_log() -> None:
    """Write warnings and errors to the standard error, with the time, unless told otherwise."""
    logging.basicConfig(format="%(asctime)s %(process)d %(levelname)s %(message)s")


def raise_limit() -> None:
    """Allow as many open files as the system lets us: each connection is one."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
