"""Run cases in a forked process: a crash or a stall is a failed test, not the end of all."""

from __future__ import annotations

import os
import signal
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

FEWEST = 25  # cases that are checked however slow the machine


def run(cases: Iterable[Any], check: Callable[[Any], None], limit: float, seconds: float) -> int:
    """Check cases in a child for so many seconds, a few at least; return how many, or fail.

    A case that takes longer than `limit` seconds is a stall. Whatever is compiled should have been
    compiled before, in this process.
    """
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report")
        child = os.fork()
        if child == 0:
            _play(cases, check, limit, seconds, report)
        _, status = os.waitpid(child, 0)
        lines = report.read_text(errors="replace").splitlines() if report.exists() else []
    done = sum(line.startswith("case ") for line in lines)
    last = next((line for line in reversed(lines) if line.startswith("case ")), "no case")
    if os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
        word = f"took longer than {limit} s" if name == "SIGALRM" else f"ended by {name}"
        raise AssertionError(f"{word}: {last}")
    if os.WEXITSTATUS(status) != 0:
        raise AssertionError("\n".join(lines[-40:]))
    return done


def _play(
    cases: Iterable[Any], check: Callable[[Any], None], limit: float, seconds: float, report: Path
) -> None:
    try:
        warnings.simplefilter("ignore")
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # kills, compiled code or not
        end = time.monotonic() + seconds
        with report.open("w", buffering=1) as log:
            for number, case in enumerate(cases):
                if number >= FEWEST and time.monotonic() > end:
                    break
                log.write(f"case {number}: {str(case)[:400]}\n")
                signal.setitimer(signal.ITIMER_REAL, limit)
                try:
                    check(case)
                except BaseException:
                    log.write(traceback.format_exc())
                    os._exit(1)
                signal.setitimer(signal.ITIMER_REAL, 0)
        os._exit(0)
    finally:
        os._exit(2)  # never return into the test runner
