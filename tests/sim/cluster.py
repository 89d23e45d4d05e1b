"""A real Dask scheduler and worker processes on the loopback interface."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]


class Cluster:
    """A scheduler and some workers, each a process of its own, without nannies."""

    def __init__(self, folder: Path, workers: int) -> None:
        self._folder = folder
        self._file = folder / "scheduler.json"
        paths = [str(ROOT), *sys.path]
        self._env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in paths if p)}
        self._scheduler = self._start(
            "scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--no-jupyter",
            "--scheduler-file", str(self._file),
        )  # fmt: skip
        self.workers = [self.add_worker() for _ in range(workers)]
        self._wait(self._file.exists)
        from distributed import Client

        with Client(scheduler_file=str(self._file), set_as_default=False) as client:
            self.address = client.scheduler.address
            client.wait_for_workers(workers, timeout=60)

    def _start(self, *arguments: str) -> subprocess.Popen[bytes]:
        log = (self._folder / f"{time.monotonic_ns()}.log").open("wb")
        with log:
            return subprocess.Popen(
                [sys.executable, "-m", "dask", *arguments],
                stdout=log, stderr=log, env=self._env, cwd=self._folder,
            )  # fmt: skip

    def add_worker(self, *arguments: str) -> subprocess.Popen[bytes]:
        return self._start(
            "worker", "--scheduler-file", str(self._file), "--nthreads", "1", "--no-nanny",
            "--no-dashboard", "--host", "127.0.0.1", "--death-timeout", "60", *arguments,
        )  # fmt: skip

    def names(self) -> dict[str, int]:
        """The processes of the workers, by address."""
        from distributed import Client

        with Client(self.address, set_as_default=False) as client:
            return dict(client.run(os.getpid))

    @staticmethod
    def _wait(ready, seconds: float = 60.0) -> None:
        until = time.monotonic() + seconds
        while not ready():
            assert time.monotonic() < until
            time.sleep(0.05)

    def close(self) -> None:
        for process in (*self.workers, self._scheduler):
            process.kill()
            process.wait()
