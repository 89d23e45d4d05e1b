"""`zib serve` as a process of its own, which tests start, kill and stop."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from tests.live.service.nursery import ENVIRONMENT, Child, fork
from tests.live.service.wire import Answer, Gone, Wire

BANDIT: dict[str, Any] = {"arms": ["A", "B", "C"], "window": "1h", "draws": 50}
START_WITHIN = 60.0  # seconds; two or three on an idle machine


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        number: int = found.getsockname()[1]
        return number


def table(name: str, content: Mapping[str, Any]) -> str:
    """Return a table of a TOML file; JSON is close enough to TOML for what is in ours."""
    lines = [f"{key} = {json.dumps(value)}" for key, value in content.items()]
    return "\n".join([f"[{name}]", *lines, "", ""])


class Running:
    """A service with a folder, a port and settings of its own; started by `with` or `start`."""

    def __init__(
        self,
        folder: Path,
        *,
        database: str = "live.db",
        bandits: Mapping[str, Mapping[str, Any]] | None = None,
        server: Mapping[str, Any] | None = None,
        limits: Mapping[str, Any] | None = None,
        tokens: Mapping[str, tuple[str, str]] | None = None,  # name: (role, hash)
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self.port = free_port()
        self.database = database if "://" in database else str(folder / database)
        self.bandits = dict(bandits or {"shop": BANDIT})
        self.server = {"port": self.port, **(server or {})}
        self.limits = dict(limits or {})
        self.tokens = dict(tokens or {})
        self.environment = dict(environment or {})
        self.process: subprocess.Popen[bytes] | Child | None = None
        self.log = folder / "log.txt"

    # --------------------------------------------------------------------------------- starting

    def configure(self) -> Path:
        """Write what it is started with."""
        parts = [f"database = {json.dumps(self.database)}\n", table("server", self.server)]
        parts.append(table("limits", self.limits))
        for name, (role, hashed) in self.tokens.items():
            parts.append(table("[token]", {"name": name, "role": role, "sha256": hashed}))
        for name, bandit in self.bandits.items():
            parts.append(table(f"bandit.{json.dumps(name)}", bandit))
        path = self.folder / "live.toml"
        path.write_text("\n".join(parts))
        return path

    def spawn(self) -> subprocess.Popen[bytes] | Child:
        """Start the process and return at once."""
        path = self.configure()
        if not self.environment:
            self.process = fork("serve", str(path), cwd=self.folder, log=self.log)
            return self.process
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "zib.cli", "serve", str(path)],
                env={**ENVIRONMENT, **self.environment},
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        return self.process

    def start(self) -> Self:
        """Start it and wait until it is ready; again if it ends, as whoever keeps services does."""
        process = self.spawn()
        end = time.monotonic() + START_WITHIN
        try:
            while not self.ready():
                assert time.monotonic() < end, f"it is not ready:\n{self.words()}"
                if process.poll() is not None:
                    time.sleep(0.5)
                    process = self.spawn()
                time.sleep(0.02)
        except BaseException:
            self.kill()
            raise
        return self

    def ready(self) -> bool:
        """Whether it says that it is."""
        with contextlib.suppress(Gone), self.wire(timeout=5.0) as wire:
            return wire.get("/readyz").status == 200
        return False

    def words(self) -> str:
        """Return the end of what it has printed."""
        return self.log.read_text(errors="replace")[-4000:] if self.log.exists() else ""

    # -------------------------------------------------------------------------------------- use

    def wire(self, **more: Any) -> Wire:
        """Connect to it."""
        return Wire(self.port, **more)

    def ask(self, method: str, path: str, body: Any = None, **more: str) -> Answer:
        """Ask once, on a connection of its own."""
        with self.wire() as wire:
            return wire.ask(method, path, body, **more)

    @property
    def pid(self) -> int:
        """Number of the process that was started."""
        assert self.process is not None
        return self.process.pid

    def workers(self) -> list[int]:
        """Return the processes that serve: its children, or itself."""
        found = []
        with contextlib.suppress(OSError):
            for child in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split():
                with contextlib.suppress(OSError):
                    if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes():
                        found.append(int(child))
        return found or [self.pid]

    def memory(self) -> int:
        """Return how many bytes the processes that serve have in memory."""
        total = 0
        for pid in self.workers():
            with contextlib.suppress(OSError):
                for line in Path(f"/proc/{pid}/status").read_text().splitlines():
                    if line.startswith("VmRSS:"):
                        total += 1024 * int(line.split()[1])
        return total

    # ----------------------------------------------------------------------------------- ending

    def kill(self) -> None:
        """Kill everything that was started, at once."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def stop(self, within: float = 30.0) -> int:
        """Tell it to stop and return how it ended."""
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(within)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exception: object) -> None:
        self.kill()


def alive(pid: int) -> bool:
    """Whether a process is there and not just waited for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
