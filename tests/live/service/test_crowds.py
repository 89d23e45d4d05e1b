"""Very many connections, tokens that are guessed, and rates that are passed."""

from __future__ import annotations

import contextlib
import hashlib
import resource
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live.service.forms import refused
from tests.live.service.running import Running
from tests.live.service.wire import JSON, Gone, Wire, request, wait_until

pytestmark = pytest.mark.slow
DECIDE = "/v1/shop/decide"
MEGABYTE = 1 << 20
WANTED = 10_000  # connections


@pytest.fixture
def many_files() -> Iterator[int]:
    """Allow this process, and those it starts, as many open files as the machine does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def times_of(service: Running, n: int, what: str) -> list[float]:
    """Return how long decisions took, on new connections and on an old one; the slowest last."""
    took = []
    with service.wire() as kept:
        for k in range(n):
            before = time.monotonic()
            if k % 5:
                assert kept.post(DECIDE, {"key": f"{what} {k}"}).status == 200
            else:
                assert service.ask("POST", DECIDE, {"key": f"{what} {k}"}).status == 200
            took.append(time.monotonic() - before)
    return sorted(took)


def test_ten_thousand_connections_hold_nobody_up(quick_folder: Path, many_files: int) -> None:
    n = min(WANTED, many_files - 500)  # what the machine allows
    half = request("POST", DECIDE, b'{"key": "slow"}', JSON)[:-5]
    with Running(quick_folder, limits={"header_timeout": 300, "connections": 2 * n}) as service:
        times_of(service, 20, "before")
        memory = service.memory()
        held: list[socket.socket] = []
        try:
            for k in range(n):
                made = socket.create_connection(("127.0.0.1", service.port), 20.0)
                held.append(made)
                if k % 3 == 0:  # others say nothing, or ask once and stay
                    made.sendall(half)
                elif k % 3 == 1:
                    made.sendall(request("GET", "/healthz"))
            took = times_of(service, 100, "among many")
            grown = (service.memory() - memory) / MEGABYTE
            open_there = len(list(Path(f"/proc/{service.pid}/fd").iterdir()))
        finally:
            for made in held:
                made.close()
        assert open_there > 0.6 * n  # those that were answered may have been closed
        # one pause of a busy machine may be longer
        assert took[-2] < 1.0
        assert grown < 0.03 * n  # 30 kB each
        times_of(service, 20, "after")
        assert service.stop() == 0


def test_beyond_the_limit_of_connections_new_ones_are_refused_and_old_ones_served(
    tmp_path: Path,
) -> None:
    with Running(tmp_path, limits={"header_timeout": 5, "connections": 100}) as service:
        good = service.wire()
        assert good.post(DECIDE, {"key": "first"}).status == 200
        held = []
        for _ in range(150):
            with contextlib.suppress(Gone):
                held.append(service.wire())
        told = 0
        for wire in held:
            try:
                wire.send(request("GET", "/healthz"))
                answer = wire.answer()
            except Gone:
                continue
            if answer.status != 200:
                refused(answer, 503)
                assert int(answer.headers["retry-after"]) >= 1
                told += 1
        assert told > 10
        assert good.post(DECIDE, {"key": "second"}).status == 200
        for wire in (*held, good):
            wire.close()
        wait_until(service.ready, 10.0, "being ready again")
        assert times_of(service, 10, "after")[-2] < 1.0


def test_a_process_that_may_open_no_more_files_goes_on(tmp_path: Path) -> None:
    with Running(tmp_path, limits={"header_timeout": 300}) as service:
        good = service.wire()
        assert good.post(DECIDE, {"key": "first"}).status == 200
        used = len(list(Path(f"/proc/{service.pid}/fd").iterdir()))
        before = resource.prlimit(service.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(service.pid, resource.RLIMIT_NOFILE, (used + 20, before[1]))
        held = []
        for _ in range(100):
            with contextlib.suppress(Gone):
                held.append(service.wire())
        for k in range(20):
            assert good.post(DECIDE, {"key": f"meanwhile {k}"}).status == 200
        for wire in held:
            wire.close()
        wait_until(service.ready, 10.0, "being ready again")
        good.close()
        assert service.stop() == 0


# ------------------------------------------------------------------------------------------ tokens

RATE, BURST = 100, 30  # requests of a token a second, and at once
TOKENS = {"shop": "decide", "looks": "read", "boss": "admin"}


def secret(name: str) -> str:
    return f"zib_{name}_{'s' * 40}"


def bearer(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret(name)}"}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    hashed = {
        name: (role, hashlib.sha256(secret(name).encode()).hexdigest())
        for name, role in TOKENS.items()
    }
    folder = tmp_path_factory.mktemp("guarded")
    with Running(folder, tokens=hashed, limits={"rate": RATE, "burst": BURST}) as service:
        yield service


def patiently(wire: Wire, method: str, path: str, body: object, **more: str) -> int:
    """Return the status of an answer, after having waited as long as one is told to."""
    for _ in range(50):
        answer = wire.ask(method, path, body, **more)
        if answer.status != 429:
            return answer.status
        time.sleep(0.05)
    raise AssertionError("told to wait for ever")


ALLOWED = {
    ("POST", DECIDE): {"shop", "boss"},
    ("POST", "/v1/shop/event"): {"shop", "boss"},
    ("POST", "/v1/shop/cancel"): {"shop", "boss"},
    ("GET", "/v1/shop/decisions/x"): {"shop", "looks", "boss"},
    ("GET", "/v1/shop/status"): {"looks", "boss"},
    ("GET", "/v1/shop/overview"): {"looks", "boss"},
    ("GET", "/v1/shop/parked"): {"looks", "boss"},
    ("GET", "/v1/shop/audit"): {"looks", "boss"},
    ("GET", "/v1/shop/arms"): {"looks", "boss"},
    ("GET", "/v1/shop/export?format=csv"): {"looks", "boss"},
    ("GET", "/metrics"): {"looks", "boss"},
    ("POST", "/v1/shop/arms"): {"boss"},
    ("POST", "/v1/shop/arms/pause"): {"boss"},
    ("POST", "/v1/shop/arms/resume"): {"boss"},
    ("POST", "/v1/shop/arms/retire"): {"boss"},
    ("POST", "/v1/shop/shadow"): {"boss"},
    ("GET", "/v1/bandits"): {"shop", "looks", "boss"},
}


@pytest.mark.parametrize("route", ALLOWED, ids=lambda route: " ".join(route))
def test_each_role_may_do_what_it_may_and_no_more(guarded: Running, route: tuple[str, str]) -> None:
    method, path = route
    body = {} if method == "POST" else None  # says nothing: nothing is done, whoever asks
    with guarded.wire() as wire:
        for name in TOKENS:
            status = patiently(wire, method, path, body, **bearer(name))
            assert (status not in (401, 403)) == (name in ALLOWED[route]), (name, status)
        for wrong in ({}, {"Authorization": "Bearer x"}, {"Authorization": "Basic c2hvcDp4"}):
            assert patiently(wire, method, path, body, **wrong) == 401


@pytest.mark.parametrize(
    "wrong",
    ["", "Bearer", "Bearer ", "bearer\t", f"Bearer {secret('shop')}x",
              f"Bearer {secret('shop')[:-1]}",
     f"Token {secret('shop')}", secret("shop"), "Bearer " + "x" * 30_000, "Bearer \xff\xfe",
     f"Bearer {secret('shop')}, Bearer {secret('boss')}", "Bearer null", "Bearer %00"],
    ids=range(13),
)  # fmt: skip
def test_a_wrong_token_is_refused_in_a_sentence_that_does_not_repeat_it(
    guarded: Running, wrong: str
) -> None:
    with guarded.wire() as wire:
        answer = wire.post(DECIDE, {"key": "a"}, Authorization=wrong)
        sentence = refused(answer, 401, 429, 431)
        assert secret("shop")[:-1] not in sentence
        assert "sssss" not in sentence


def test_guessing_is_slowed_down_and_does_not_slow_those_who_know(guarded: Running) -> None:
    statuses = []
    with guarded.wire() as wire, guarded.wire() as good:
        for k in range(400):
            answer = wire.post(DECIDE, {"key": "a"}, Authorization=f"Bearer guess{k}")
            statuses.append(answer.status)
            refused(answer, 401, 429)
            if answer.status == 429:
                assert int(answer.headers["retry-after"]) >= 1
            if k % 40 == 0:
                told = good.post(DECIDE, {"key": f"knows {k}"}, **bearer("shop"))
                assert told.status == 200
    assert statuses.count(429) > 50


def test_one_who_asks_too_often_is_told_to_wait_and_others_are_not(guarded: Running) -> None:
    with guarded.wire() as wire:
        start, statuses = time.monotonic(), []
        while time.monotonic() - start < 1.0:
            statuses.append(wire.get("/v1/bandits", **bearer("boss")).status)
        passed = statuses.count(200)
        assert 10 <= passed <= BURST + RATE * (time.monotonic() - start) + 1
        assert statuses.count(429) == len(statuses) - passed > 0
        assert wire.post(DECIDE, {"key": "other"}, **bearer("shop")).status == 200
        for path in ("/healthz", "/readyz"):  # they need nothing and cost nothing
            assert wire.get(path).status == 200
