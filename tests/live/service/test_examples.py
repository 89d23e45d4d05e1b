"""The examples of clients in three languages do what they say, against a service that runs."""

from __future__ import annotations

import itertools
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import zib
from tests.live.service.scene import Service
from tests.test_docs import blocks
from zib.core.entry import interpreted

EXAMPLES = Path(__file__).parents[3] / "examples"
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    bandits = {"checkout": {"arms": ("A", "B", "C"), "policy": zib.mab.NormalTS()}}
    path = tmp_path_factory.mktemp("examples") / "live.db"
    with interpreted(), Service(path, tokens=True, bandits=bandits) as running:
        yield running


def ran(service: Service, program: str, example: str) -> list[str]:
    """Run an example and return the lines that it prints."""
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"the example in {example} needs {program}: apt install {program}")
    environment = {**os.environ, "ZIB_TOKEN": service.tokens["decide"]}
    done = subprocess.run(
        [found, str(EXAMPLES / example), service.url, "checkout"],
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_python(service: Service) -> None:
    before = service.ledgers["checkout"].check()
    lines = ran(service, sys.executable, "client.py")
    assert all(line.startswith("order-") and line.endswith(" applied") for line in lines)
    after = service.ledgers["checkout"].check()
    assert after.decisions - before.decisions == 100
    assert after.events - before.events == len(lines)


def test_curl(service: Service) -> None:
    if shutil.which("curl") is None:
        pytest.skip("the example in client.sh needs curl: apt install curl")
    decision, applied, duplicate, refund = ran(service, "sh", "client.sh")
    assert '"probability":' in decision
    assert '"status":"applied"' in applied
    assert '"status":"duplicate"' in duplicate
    assert '"value":0' in refund


def test_javascript(service: Service) -> None:
    decision, applied, duplicate, refund = ran(service, "node", "client.mjs")
    assert decision.split()[0] == "policy"
    assert (applied, duplicate, refund) == ("applied", "duplicate", "0")


def test_javascript_goes_on_without_the_service() -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("the example in client.mjs needs node: apt install nodejs")
    done = subprocess.run(
        [node, str(EXAMPLES / "client.mjs"), "http://127.0.0.1:9", "checkout"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == "fallback A undefined\n"
    assert "the default is served" in done.stderr


# ------------------------------------------------------------------------- the page on the service


def asked(address: str, command: str) -> Any:
    """Do what a line with curl does, and return the answer."""
    program, *words = shlex.split(command)
    assert program == "curl"
    body = json.loads(words[1]) if words[0] == "--json" else None
    url = words[-1].replace("http://127.0.0.1:8080", address)
    answer = httpx.get(url) if body is None else httpx.post(url, json=body)
    return answer.json()


def alike(found: Any, shown: Any) -> None:
    """Compare answers: names, lists and texts are the same, and numbers where time passes not."""
    if isinstance(shown, dict):
        assert list(found) == list(shown)
        for name in shown:
            if name not in ("arm", "wanted", "version", "probability") or "status" in shown:
                alike(found[name], shown[name])
    elif isinstance(shown, list):
        assert len(found) == len(shown)
        for one, other in zip(found, shown, strict=True):
            alike(one, other)
    elif isinstance(shown, float | int) and not isinstance(shown, bool) and shown > 1e6:
        assert isinstance(found, type(shown))  # a time
    else:
        assert found == shown


def test_the_page_shows_what_the_service_answers(tmp_path: Path) -> None:
    page = blocks(EXAMPLES.parent / "docs" / "serve.md")
    bandits = {"checkout": {"arms": ("A", "B", "C"), "window": "7d", "policy": zib.mab.NormalTS()}}
    shown = 0
    with interpreted(), Service(tmp_path / "live.db", bandits=bandits) as service:
        for (language, code, _, _), (following, answer, line, _) in itertools.pairwise(page):
            if language == "sh" and following == "json":
                for command in code.splitlines():
                    found = asked(service.url, command)
                try:
                    alike(found, json.loads(answer))
                except AssertionError as error:
                    error.add_note(f"docs/serve.md, line {line}: {found}")
                    raise
                shown += 1
        routes = {
            path.removeprefix("/v1/{bandit}")
            for path in httpx.get(f"{service.url}/openapi.json").json()["paths"]
        }
    assert shown >= 16
    text = (EXAMPLES.parent / "docs" / "serve.md").read_text()
    missing = [route for route in routes if route not in text]
    assert not missing, "routes that the page does not name"
