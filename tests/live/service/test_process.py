"""``zib serve`` as a process: it starts, answers, stops when told to, and refuses to share."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.live.servers import Server
from zib.live import Ledger
from zib.live.service import demo
from zib.live.service.access import new_token
from zib.live.service.config import EXAMPLE

pytestmark = pytest.mark.slow

PATIENCE = 120.0  # seconds; a machine that compiles something else is slow to start


class Process:
    """``zib serve`` with these arguments."""

    def __init__(self, folder: Path, *arguments: object, **environment: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "zib.cli", "serve", *map(str, arguments)],
            cwd=folder,
            env={**os.environ, "NO_COLOR": "1", "COLUMNS": "200", **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.printed = ""

    def wait_for(self, pattern: str) -> str:
        """Return what a line of the output matches."""
        end = time.monotonic() + PATIENCE
        assert self.process.stdout is not None
        while not (found := re.search(pattern, self.printed, re.MULTILINE)):
            assert time.monotonic() < end, f"it has printed {self.printed!r} only"
            ready, _, _ = select.select([self.process.stdout], [], [], 1.0)
            if ready:
                some = os.read(self.process.stdout.fileno(), 65_536).decode()
                assert some, f"it has ended: {self.printed!r}, {self.process.communicate()[1]!r}"
                self.printed += some
        return found[1]

    @property
    def address(self) -> str:
        """Where its page is."""
        return self.wait_for(r"^Page: +(http://\S+)/$")

    def ended(self, signal_number: int | None = None) -> tuple[int, str, str]:
        """Return exit code and output, after a signal or by itself."""
        if signal_number is not None:
            self.process.send_signal(signal_number)
        out, err = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, self.printed + out.decode(), err.decode()


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Process]]:
    started: list[Process] = []

    def start(*arguments: object, **environment: str) -> Process:
        started.append(Process(tmp_path, *arguments, **environment))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.process.kill()
        each.process.communicate()


@pytest.fixture
def example(tmp_path: Path) -> Path:
    path = tmp_path / "live.toml"
    path.write_text(EXAMPLE, encoding="utf-8")
    return path


def test_the_example_is_served_unchanged_until_sigterm(serve: Any, tmp_path: Path) -> None:
    code, out, _ = serve("--init").ended()
    assert (code, out) == (0, "Wrote live.toml. Next: zib serve live.toml\n")
    service = serve("live.toml", "--port", 0)  # any port: 8080 may be taken on this machine
    with httpx.Client(base_url=service.address) as http:
        assert http.get("/healthz").status_code == 200
        assert http.get("/readyz").status_code == 200
        page = http.get("/", follow_redirects=True)
        assert page.status_code == 200
        assert page.headers["content-type"].startswith("text/html")
        assert "checkout" in page.text
        decision = http.post("/v1/checkout/decide", json={"key": "k"}).json()

        # nobody else may write the same file, and nobody loses anything by trying
        code, _, err = serve("live.toml", "--port", 0).ended()
        assert code == 2
        assert err.startswith(f"error: {tmp_path / 'live.db'} is in use already")
        assert err.count("\n") == 1

        port = service.address.rpartition(":")[2]
        code, _, err = serve("live.toml", "--port", port).ended()
        assert (code, err) == (
            2, f"error: 127.0.0.1 port {port} is taken by another program: choose another with "
            "--port\n",
        )  # fmt: skip
        assert http.post("/v1/checkout/decide", json={"key": "k"}).json() == decision
        checked = serve("live.toml", "--check").ended()
        assert "checkout, 3 arms and 1 decisions" in checked[1]
    code, _, err = service.ended(signal.SIGTERM)
    assert (code, err) == (0, "Stopped.\n")
    with Ledger(tmp_path / "live.db", "checkout", background=False) as ledger:
        assert ledger.decision(decision["id"])[0].arm == decision["arm"]


def test_an_interrupt_stops_it_too(serve: Any, example: Path) -> None:
    service = serve("live.toml", "--port", 0)
    assert httpx.get(f"{service.address}/healthz").status_code == 200
    assert service.ended(signal.SIGINT)[0] == 0


def test_the_environment_says_which_database(serve: Any, example: Path, tmp_path: Path) -> None:
    service = serve("live.toml", "--port", 0, ZIB_DATABASE="elsewhere.db")
    assert httpx.get(f"{service.address}/readyz").status_code == 200
    assert service.ended(signal.SIGTERM)[0] == 0
    assert (tmp_path / "elsewhere.db").exists()
    assert not (tmp_path / "live.db").exists()


def test_the_number_of_arms_is_limited(serve: Any, example: Path) -> None:
    example.write_text(example.read_text().replace("arms = 1_000 ", "arms = 4 "))
    service = serve("live.toml", "--port", 0)
    with httpx.Client(base_url=service.address) as http:
        assert http.post("/v1/checkout/arms", json={"arm": "D"}).status_code == 201
        answer = http.post("/v1/checkout/arms", json={"arm": "E"})
        assert answer.status_code == 422
        assert answer.json()["error"] == (
            "`arm` must be one of at most 4, retired ones included; got one more"
        )
        assert len(http.get("/v1/checkout/arms").json()["arms"]) == 4
    assert service.ended(signal.SIGTERM)[0] == 0


def test_a_port_that_this_user_may_not_use_is_told(serve: Any, example: Path) -> None:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", 81))
        except PermissionError:
            pass
        else:
            pytest.skip("this user may use every port")
    code, _, err = serve("live.toml", "--port", 81).ended()
    assert code == 2
    assert "may not be used by this user" in err


def test_a_session_holds_at_every_worker_and_ends_with_the_service(
    serve: Any, example: Path, postgres: Server
) -> None:
    token, digest = new_token()
    table = f'[[token]]\nname = "boss"\nrole = "admin"\nsha256 = "{digest}"\n'
    example.write_text(EXAMPLE + table, encoding="utf-8")
    options = ("live.toml", "--port", 0, "--workers", 2)
    service = serve(*options, ZIB_DATABASE=postgres.fresh())
    assert service.wait_for(r"^Access: +(.*)$") == "decide: nobody; read: nobody; admin: boss"
    with httpx.Client(base_url=service.address, timeout=PATIENCE) as http:
        assert http.get("/v1/checkout/status").status_code == 401
        headers = {"Authorization": f"Bearer {token}"}
        assert http.get("/v1/checkout/status", headers=headers).status_code == 200
        assert http.post("/login", data={"token": "wrong"}).status_code == 401
        answer = http.post("/login", data={"token": token})
        assert answer.is_redirect
        assert "HttpOnly; SameSite=Strict" in answer.headers["set-cookie"]
    session = dict(http.cookies)
    with contextlib.ExitStack() as stack:  # a connection each: the system spreads them
        for _ in range(20):
            other = httpx.Client(base_url=service.address, cookies=session, timeout=PATIENCE)
            page = stack.enter_context(other).get("/bandits/checkout")
            assert page.status_code == 200
            assert "boss" in page.text
    assert service.ended(signal.SIGTERM)[0] == 0
    again = serve(*options, ZIB_DATABASE=postgres.fresh())
    with httpx.Client(base_url=again.address, cookies=session, timeout=PATIENCE) as http:
        assert http.get("/bandits/checkout").is_redirect  # to /login
    assert again.ended(signal.SIGTERM)[0] == 0


def test_the_demo_shows_visitors_and_leaves_nothing_behind(serve: Any, tmp_path: Path) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    service = serve("--demo", "--port", 0, TMPDIR=str(folder), ZIB_DATABASE="precious.db")
    visits = int(service.wait_for(r"^([\d,]+) simulated visits").replace(",", ""))
    service.wait_for(r"(visitors a second)")
    with httpx.Client(base_url=service.address) as http:
        status = http.get(f"/v1/{demo.NAME}/status").json()
        assert {arm["arm"] for arm in status["arms"]} == set(demo.CHANCES)
        end = time.monotonic() + PATIENCE
        while sum(arm["decisions"] for arm in status["arms"]) < visits + 100:  # seconds of visits
            assert time.monotonic() < end
            time.sleep(0.2)
            status = http.get(f"/v1/{demo.NAME}/status").json()
        assert status["duplicates"] > 0
        assert min(arm["rewarded"] for arm in status["arms"]) > 0
    assert service.ended(signal.SIGINT)[0] == 0
    assert list(folder.iterdir()) == []
    assert not (tmp_path / "precious.db").exists()
    assert service.address not in running()  # the visitors have gone


def running() -> str:
    """Return the command lines of all processes, where the system tells them."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has just ended
            found.append(file.read_bytes().decode(errors="replace"))
    return "\n".join(found)
