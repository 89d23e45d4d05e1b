"""Processes killed under load; `python -m benchmarks --only live` kills a hundred on each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.live.servers import Server

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow


def killed(database: str, kills: int, seed: int) -> dict[str, Any]:
    """Kill in a process that has opened nothing, and return what came of it."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))}
    ran = subprocess.run(
        [sys.executable, "-m", "tests.live.kills", database,
         "--kills", str(kills), "--seed", str(seed)],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    found: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return found


def test_nothing_acknowledged_is_lost_or_doubled_when_a_process_is_killed(
    database: str, seed: int
) -> None:
    found = killed(database, 8, seed)
    assert found["lost"] == []
    assert found["acknowledged"] > 8 * 20


def test_nothing_acknowledged_is_lost_when_the_server_crashes_as_well(seed: int) -> None:
    server = Server(durable=True)
    stop = threading.Event()
    crashes = 0

    def crash() -> None:
        nonlocal crashes
        while not stop.wait(2.5):
            server.restart("immediate")
            crashes += 1

    thread = threading.Thread(target=crash)
    thread.start()
    try:
        found = killed(server.fresh(), 6, seed)
    finally:
        stop.set()
        thread.join()
        server.close()
    assert found["lost"] == []
    assert crashes >= 1
