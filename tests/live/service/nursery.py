"""Starts services quickly: forks them from a process that has imported everything they need.

Services are thus processes of their own, which can be killed, and a life costs tenths of a second
instead of seconds. Whatever is left ends with the process that asked for it.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
PYTHONPATH = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
# a life is too short to compile anything
ENVIRONMENT = {**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONPATH": PYTHONPATH}


class Child:
    """A service that was forked; the part of `subprocess.Popen` that tests use."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.ended = threading.Event()

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if not self.ended.wait(timeout):
            raise subprocess.TimeoutExpired("zib serve", timeout or 0.0)
        assert self.returncode is not None
        return self.returncode

    def terminate(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)


class Nursery:
    """The process that forks, as seen from a test."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__], env=ENVIRONMENT, cwd=ROOT,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        self._begun: queue.SimpleQueue[Child] = queue.SimpleQueue()
        self._children: dict[int, Child] = {}
        self._alone = threading.Lock()
        threading.Thread(target=self._listen, daemon=True).start()
        atexit.register(self.close)

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            what, pid, code = json.loads(line)
            if what == "begun":
                self._children[pid] = child = Child(pid)
                self._begun.put(child)
            else:
                child = self._children.pop(pid)
                child.returncode = code
                child.ended.set()

    def fork(self, *args: str, cwd: Path, log: Path) -> Child:
        """Run a command of `zib` in a process and a session of its own."""
        assert self._process.stdin is not None
        with self._alone:
            told = {"args": args, "cwd": str(cwd), "log": str(log)}
            self._process.stdin.write(json.dumps(told) + "\n")
            self._process.stdin.flush()
            return self._begun.get(timeout=60.0)

    def close(self) -> None:
        """End it, and whatever it has forked."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(10)


_nursery: list[Nursery] = []


def fork(*args: str, cwd: Path, log: Path) -> Child:
    """Run a command of `zib` in a process and a session of its own, started quickly."""
    if not _nursery:
        _nursery.append(Nursery())
    return _nursery[0].fork(*args, cwd=cwd, log=log)


# ------------------------------------------------------------------------ in the process that forks


def _run(told: dict[str, Any]) -> None:
    """Be the service; never return."""
    code: Any = 1
    try:
        os.setsid()
        log = os.open(told["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        null = os.open(os.devnull, os.O_RDONLY)
        for source, sink in ((null, 0), (log, 1), (log, 2)):
            os.dup2(source, sink)
        os.chdir(told["cwd"])
        from zib.cli import main

        sys.argv = ["zib", *told["args"]]
        main()
        code = 0
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 0 if code is None else 1)


def _nurse() -> None:
    import zib.cli
    import zib.live.service.page
    import zib.live.service.server

    with (  # imports what is imported late
        tempfile.TemporaryDirectory() as folder,
        zib.live.Ledger(f"{folder}/x.db", arms=["A", "B"], window=60, background=False) as ledger,
    ):
        ledger.decide("key")
        ledger.overview()
    alone = threading.Condition()
    children: set[int] = set()

    def tell(*words: Any) -> None:
        print(json.dumps(words), flush=True)

    def reap() -> None:
        while True:
            with alone:
                alone.wait_for(lambda: bool(children))
            pid, status = os.waitpid(-1, 0)
            with alone:
                children.discard(pid)
                tell("ended", pid, os.waitstatus_to_exitcode(status))

    threading.Thread(target=reap, daemon=True).start()
    for line in sys.stdin:
        told = json.loads(line)
        with alone:
            pid = os.fork()
            if pid == 0:
                _run(told)
            children.add(pid)
            tell("begun", pid, None)
            alone.notify()
    for pid in children:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
    os._exit(0)


if __name__ == "__main__":
    _nurse()
