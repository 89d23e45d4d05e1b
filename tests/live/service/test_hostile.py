"""Clients that are broken, slow or hostile: they are refused in a sentence and hurt nobody else."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.live import stored
from tests.live.service.callers import decision_id
from tests.live.service.forms import refused, refused_page
from tests.live.service.running import Running
from tests.live.service.wire import JSON, Gone, Wire, request, wait_until
from zib.live.service.config import Limits
from zib.live.service.protocol import Protocol

pytestmark = pytest.mark.slow
TIMEOUT = 1.0  # seconds until a request must have arrived whole
BODY = 100_000
BATCH = 50
DECIDE = "/v1/shop/decide"
SLACK = 3.0  # seconds by which a busy machine may be late
MEGABYTE = 1 << 20


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    limits = {"header_timeout": TIMEOUT, "body": BODY, "batch": BATCH}
    with Running(tmp_path_factory.mktemp("hostile"), limits=limits) as running:
        yield running


@pytest.fixture
def wire(service: Running) -> Iterator[Wire]:
    with service.wire() as made:
        yield made


@pytest.fixture(autouse=True)
def _well_afterwards(service: Running, request: pytest.FixtureRequest) -> Iterator[None]:
    """Whatever a test does, others are served within a second and nothing went wrong inside."""
    said = len(service.log.read_text())
    yield
    before = time.monotonic()
    key = request.node.name
    answer = service.ask("POST", DECIDE, {"key": key})
    assert answer.status == 200, answer
    assert answer.json()["id"] == decision_id("shop", key)
    assert time.monotonic() - before < 1.0
    assert "Traceback" not in service.log.read_text()[said:], service.words()


def descriptors(service: Running) -> int:
    return len(list(Path(f"/proc/{service.pid}/fd").iterdir()))


def count(service: Running, table: str = "decision") -> int:
    return int(stored.rows(service.database, f"SELECT COUNT(*) FROM {table}")[0][0])


# ------------------------------------------------------------------------------- slow and half open


def dripping(wire: Wire, data: bytes, pause: float, seconds: float) -> float:
    """Send byte by byte until the service has had enough; return after how many seconds."""
    start = time.monotonic()
    for k in range(len(data)):
        if time.monotonic() - start > seconds:
            return seconds
        try:
            wire.send(data[k : k + 1])
        except Gone:
            break
        if wire.closed_within(pause):
            break
    return time.monotonic() - start


@pytest.mark.parametrize("part", ["header", "body", "chunk", "nothing", "second request"])
def test_a_request_that_never_arrives_whole_is_given_up(
    service: Running, wire: Wire, part: str
) -> None:
    body = json.dumps({"key": "x" * 500}).encode()
    whole = request("POST", DECIDE, body, JSON)
    if part == "header":
        data = whole[:-1]
    elif part == "body":
        wire.send(whole[: -len(body)])
        data = body[:-1]
    elif part == "chunk":
        wire.send(request("POST", DECIDE, None, {**JSON, "Transfer-Encoding": "chunked"}))
        data = b"1f4\r\n" + b" " * 499
    elif part == "nothing":
        assert wire.closed_within(TIMEOUT + SLACK)
        return
    else:  # the first one is answered
        assert wire.post(DECIDE, {"key": "first"}).status == 200
        data = whole[:-1]
    assert dripping(wire, data, 0.05, TIMEOUT + SLACK + 1.0) < TIMEOUT + SLACK


def test_many_slow_clients_hold_nobody_up(service: Running) -> None:
    slow = [service.wire() for _ in range(300)]
    for wire in slow:
        wire.send(b"POST /v1/shop/decide HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Le")
    worst = 0.0
    with service.wire() as good:
        for k in range(50):
            before = time.monotonic()
            assert good.post(DECIDE, {"key": f"among slow {k}"}).status == 200
            worst = max(worst, time.monotonic() - before)
    assert worst < 1.0
    assert all(wire.closed_within(TIMEOUT + SLACK) for wire in slow)
    for wire in slow:
        wire.close()


def test_clients_that_vanish_leave_nothing_behind(service: Running) -> None:
    before = descriptors(service)
    for k in range(300):
        wire = service.wire()
        whole = request("POST", DECIDE, json.dumps({"key": f"vanished {k}"}).encode(), JSON)
        wire.send(whole[: k % len(whole)])
        wire.vanish()
    wait_until(lambda: descriptors(service) <= before + 5, TIMEOUT + 10.0, "giving them up")


def test_what_was_asked_by_a_client_that_has_gone_is_done_all_the_same(service: Running) -> None:
    for k in range(50):
        wire = service.wire()
        wire.send(request("POST", DECIDE, json.dumps({"key": f"gone {k}"}).encode(), JSON))
        # a reset may overtake the request in the service's socket, an end cannot
        wire.close()
    ids = [decision_id("shop", f"gone {k}") for k in range(50)]
    with service.wire() as good:
        wait_until(
            lambda: all(good.get(f"/v1/shop/decisions/{id}").status == 200 for id in ids),
            what="all decisions",
        )


def test_answers_that_are_never_read_do_not_pile_up(service: Running) -> None:
    memory = service.memory()
    held = [service.wire(timeout=2.0) for _ in range(20)]
    for wire in held:
        wire.socket.settimeout(0.5)
        with_answer = request("GET", "/openapi.json") * 2000
        with contextlib.suppress(Gone):  # it reads no more before its answers are taken
            wire.send(with_answer)
    time.sleep(1.0)
    assert service.memory() - memory < 60 * MEGABYTE
    for wire in held:
        wire.vanish()


def test_viewers_that_never_read_do_not_pile_up(service: Running) -> None:
    memory = service.memory()
    held = [service.wire() for _ in range(100)]
    for wire in held:
        wire.send(request("GET", "/bandits/shop/live"))
    with service.wire() as good:
        for k in range(400):
            assert good.post(DECIDE, {"key": f"seen by nobody {k}"}).status == 200
            time.sleep(0.005)
    assert service.memory() - memory < 60 * MEGABYTE
    for wire in held:
        wire.vanish()


# ----------------------------------------------------------------------------------------- framing


def test_pipelined_requests_are_answered_in_order(wire: Wire) -> None:
    keys = [f"pipelined {k}" for k in range(100)]
    wire.send(
        b"".join(request("POST", DECIDE, json.dumps({"key": k}).encode(), JSON) for k in keys)
    )
    answers = [wire.answer() for _ in keys]
    assert [a.json()["id"] for a in answers] == [decision_id("shop", key) for key in keys]


def test_a_refusal_in_the_middle_of_a_pipeline_leaves_the_others_alone(wire: Wire) -> None:
    bodies = [b'{"key": "a"}', b"{", b'{"key": "b"}', b'{"key": 1}', b'{"key": "c"}']
    wire.send(b"".join(request("POST", DECIDE, body, JSON) for body in bodies))
    assert [wire.answer().status for _ in bodies] == [200, 400, 200, 400, 200]


@pytest.mark.parametrize(
    ("version", "headers", "kept"),
    [("1.1", {}, True), ("1.1", {"Connection": "close"}, False), ("1.0", {}, False)],
    ids=["kept", "told to close", "HTTP/1.0"],
)
def test_an_answer_written_at_once_has_the_headers_of_others_and_ends_what_should_end(
    wire: Wire, version: str, headers: dict[str, str], kept: bool
) -> None:
    asked = request("POST", DECIDE, b'{"key": "at once"}', {**JSON, **headers})
    wire.send(asked.replace(b"HTTP/1.1", f"HTTP/{version}".encode()))
    answer = wire.answer()
    assert answer.json()["id"] == decision_id("shop", "at once")
    plain = {name: value for name, value in answer.headers.items() if name != "connection"}
    assert plain == {
        "content-type": "application/json",
        "content-length": str(len(answer.body)),
        "cache-control": "no-store",
        "x-content-type-options": "nosniff",
    }
    assert answer.headers.get("connection") == (None if kept else "close")
    wire.send(request("HEAD", "/healthz"))
    if kept:
        assert wire.socket.recv(9) == b"HTTP/1.1 "
    else:
        with pytest.raises(Gone):
            wire.answer()


def test_a_connection_that_stays_idle_is_closed() -> None:
    closed = []
    idle = SimpleNamespace(
        limits=Limits(), arriving_since=None, stalled_since=None, idle_since=100.0,
        timeout_keep_alive=75, transport=SimpleNamespace(close=lambda: closed.append(True)),
    )  # fmt: skip
    Protocol.look(idle, 174.0)  # type: ignore[arg-type]
    assert not closed
    Protocol.look(idle, 176.0)  # type: ignore[arg-type]
    assert closed


@pytest.mark.parametrize("how", ["length", "chunked", "without end"])
def test_a_body_that_is_too_large_is_refused_before_it_is_read(
    service: Running, wire: Wire, how: str
) -> None:
    memory = service.memory()
    if how == "length":
        headers = {**JSON, "Content-Length": str(10**12)}
        wire.send(request("POST", DECIDE, None, headers))
        assert str(BODY) in refused(wire.answer(), 413).replace(",", "")
        return
    headers = {**JSON, "Transfer-Encoding": "chunked"}
    wire.send(request("POST", DECIDE, None, headers))
    chunk = b"4000\r\n" + b" " * 0x4000 + b"\r\n"
    sent = 0
    try:
        while sent < (20 * BODY if how == "chunked" else 100 * MEGABYTE):
            wire.send(chunk)
            sent += 0x4000
    except Gone:
        pass
    try:
        refused(wire.answer(), 413)
    except Gone:
        assert how == "without end"  # a reset may overtake the answer
    assert service.memory() - memory < 30 * MEGABYTE


@pytest.mark.parametrize(
    "head",
    [
        "Content-Length: 5\r\nContent-Length: 20",
        "Content-Length: -5",
        "Content-Length: 0x10",
        "Content-Length: 99999999999999999999999999",
        "Content-Length: 12\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked, identity",
        "Transfer-Encoding: gzip",
        "Content-Length : 12",
        "Con\x00tent: 12",
    ],
)
def test_lengths_that_contradict_each_other_are_refused(wire: Wire, head: str) -> None:
    """Else two servers in a row may disagree where a request ends, and a second one hides in it."""
    hidden = b'{"key": "a"}GET /hidden HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n'
    wire.send(f"POST {DECIDE} HTTP/1.1\r\nHost: 127.0.0.1\r\n{head}\r\n\r\n".encode() + hidden)
    try:
        answer = wire.answer()
    except Gone:
        return
    refused(answer)
    with contextlib.suppress(Gone):
        assert wire.answer().status not in (200, 404)  # what is hidden is no request


def test_a_length_that_is_too_small_ends_the_request_there(wire: Wire) -> None:
    wire.send(request("POST", DECIDE, None, {**JSON, "Content-Length": "12"}))
    wire.send(b'{"key": "a"}, and what is left is no request\r\n\r\n')
    assert wire.answer().status == 200
    refused(wire.answer(), 400)
    assert wire.closed_within(SLACK)


@pytest.mark.parametrize(
    "data",
    [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),  # TLS
        b"\x00" * 1000 + b"\r\n\r\n",
        b"\xff\xfe garbage \r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nno colon\r\n\r\n",
        b"GET /\x00 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"G" * 100_000,
    ],
    ids=["http2", "tls", "zeros", "garbage", "short", "version", "header", "nul", "method"],
)
def test_what_is_not_http_is_refused_or_cut_off(wire: Wire, data: bytes) -> None:
    wire.send(data)
    with contextlib.suppress(Gone):
        refused(wire.answer(), 400, 404, 431, 501, 505)
    assert wire.closed_within(TIMEOUT + SLACK)


@pytest.mark.parametrize("headers", [{"X": "x" * 2_000_000}, {f"X{k}": "x" for k in range(50_000)}])
def test_huge_headers_are_cut_off(service: Running, headers: dict[str, str]) -> None:
    memory = service.memory()
    with service.wire() as wire:
        try:
            wire.send(request("GET", "/healthz", None, headers))
            refused(wire.answer(), 431, 400)
        except Gone:
            pass
        assert wire.closed_within(SLACK)
    assert service.memory() - memory < 30 * MEGABYTE


def test_a_client_that_waits_for_leave_to_send_gets_it(wire: Wire) -> None:
    body = b'{"key": "patient"}'
    whole = request("POST", DECIDE, body, {**JSON, "Expect": "100-continue"})
    wire.send(whole[: -len(body)])
    assert wire.head()[0] == 100
    wire.send(body)
    assert wire.answer().status == 200


def test_no_protocol_is_changed_to(wire: Wire) -> None:
    more = {
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Version": "13",
    }
    wire.send(request("GET", "/healthz", None, more))
    assert wire.answer().status == 200


# ----------------------------------------------------------------------------------------- content

LONG = "x" * 20_000
BAD_BODIES: dict[str, bytes] = {
    "nothing": b"",
    "half": b'{"key": "a"',
    "garbage": b"\x00\x01\x02",
    "text": b'"key"',
    "list": b'[{"key": "a"}]',
    "null": b"null",
    "two": b'{"key": "a"}{"key": "b"}',
    "comma": b'{"key": "a",}',
    "quotes": b"{'key': 'a'}",
    "no key": b"{}",
    "unknown field": b'{"key": "a", "color": "red"}',
    "number as key": b'{"key": 1}',
    "null as key": b'{"key": null}',
    "empty key": b'{"key": ""}',
    "long key": json.dumps({"key": LONG}).encode(),
    "zero byte in key": b'{"key": "a\\u0000b"}',
    "half a letter": b'{"key": "\\ud800"}',
    "not utf-8": b'{"key": "\xff\xfe"}',
    "byte order mark": b'\xef\xbb\xbf{"key": "a"}',
    "utf-16": '{"key": "a"}'.encode("utf-16"),
    "deep": b"[" * 40_000,
    "deep context": b'{"key": "a", "context": ' + b"[" * 30_000 + b"]" * 30_000 + b"}",
    "deep objects": b'{"key":"a","context":' + b'{"a":' * 9_000 + b"1" + b"}" * 9_000 + b"}",
    "time as nan": b'{"key": "a", "at": NaN}',
    "time as infinity": b'{"key": "a", "at": Infinity}',
    "time far away": b'{"key": "a", "at": 1e300}',
    "time far back": b'{"key": "a", "at": -1e18}',
    "time too large": b'{"key": "a", "at": 1e400}',
    "time as digits": b'{"key": "a", "at": 1' + b"0" * 5000 + b"}",
    "time as text": b'{"key": "a", "at": "yesterday"}',
    "time without zone": b'{"key": "a", "at": "2026-05-01T10:00:00"}',
    "time as list": b'{"key": "a", "at": []}',
    "arms as text": b'{"key": "a", "arms": "ABC"}',
    "no arms": b'{"key": "a", "arms": []}',
    "unknown arm": b'{"key": "a", "arms": ["Z"]}',
    "arm twice": b'{"key": "a", "arms": ["A", "A"]}',
    "arm as object": b'{"key": "a", "arms": [{}]}',
    "unit as number": b'{"key": "a", "unit": 7}',
    "unit with zero byte": b'{"key": "a", "unit": "\\u0000"}',
    "context with nan": b'{"key": "a", "context": [NaN]}',
    "long context": b'{"key": "a", "context": "' + b"x" * 90_000 + b'"}',
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_BODIES)
def test_a_body_that_makes_no_sense_is_refused_and_changes_nothing(
    service: Running, wire: Wire, name: str
) -> None:
    before = count(service)
    refused(wire.post(DECIDE, BAD_BODIES[name]), 400, 422)
    whole = b'{"decisions": [{"key": "fine"}, ' + BAD_BODIES[name] + b"]}"
    refused(wire.post(f"{DECIDE}/batch", whole), 400, 422)
    assert count(service) == before  # all of a batch or none of it


ID = decision_id("shop", "anything")
BAD_EVENTS: dict[str, Any] = {
    "no value": {"id": "e", "decision_id": ID},
    "null": {"id": "e", "decision_id": ID, "value": None},
    "text": {"id": "e", "decision_id": ID, "value": "1"},
    "flag": {"id": "e", "decision_id": ID, "value": True},
    "nan": b'{"id": "e", "decision_id": "x", "value": NaN}',
    "infinity": b'{"id": "e", "decision_id": "x", "value": -Infinity}',
    "too large": b'{"id": "e", "decision_id": "x", "value": 1e999}',
    "large": {"id": "e", "decision_id": ID, "value": 1e300},
    "many digits": b'{"id": "e", "decision_id": "x", "value": ' + b"9" * 5000 + b"}",
    "tiny": {"id": "e", "decision_id": ID, "value": 1e-300},
    "no id": {"decision_id": ID, "value": 1.0},
    "empty id": {"id": "", "decision_id": ID, "value": 1.0},
    "zero byte": {"id": "\0", "decision_id": ID, "value": 1.0},
    "id of a cancellation": {"id": f"cancel:{ID}", "decision_id": ID, "value": 1.0},
    "long id": {"id": LONG, "decision_id": ID, "value": 1.0},
    "long decision": {"id": "e", "decision_id": LONG, "value": 1.0},
    "decision as number": {"id": "e", "decision_id": 7, "value": 1.0},
    "received": {"id": "e", "decision_id": ID, "value": 1.0, "received": 0},
}


@pytest.mark.parametrize("route", ["event", "revise"])
@pytest.mark.parametrize("name", BAD_EVENTS)
def test_an_event_that_makes_no_sense_is_refused_and_changes_nothing(
    service: Running, wire: Wire, route: str, name: str
) -> None:
    before = count(service, "event")
    refused(wire.post(f"/v1/shop/{route}", BAD_EVENTS[name]), 400, 422)
    assert count(service, "event") == before


def test_of_a_name_that_is_given_twice_one_is_taken_or_none(wire: Wire) -> None:
    answer = wire.post(DECIDE, b'{"key": "first", "key": "second"}')
    if answer.status == 200:
        assert answer.json()["id"] == decision_id("shop", "second")
    else:
        refused(answer, 400)


def test_a_batch_that_is_too_large_is_refused(service: Running, wire: Wire) -> None:
    before = count(service)
    asked = [{"key": f"too many {k}"} for k in range(BATCH + 1)]
    assert str(BATCH) in refused(wire.post(f"{DECIDE}/batch", {"decisions": asked}), 400, 413, 422)
    assert count(service) == before
    answer = wire.post(f"{DECIDE}/batch", {"decisions": asked[:BATCH]})
    assert len(answer.json()["decisions"]) == BATCH
    assert wire.post(f"{DECIDE}/batch", {"decisions": []}).status in (200, 400, 422)


@pytest.mark.parametrize(
    "kind",
    ["text/plain", "application/x-www-form-urlencoded", "application/jsonp", "multipart/form-data",
     "application/json/x", "", "application/xml, application/json"],
)  # fmt: skip
def test_a_body_that_does_not_say_it_is_json_is_refused(wire: Wire, kind: str) -> None:
    """A form on another site can send these without asking, and JSON only after asking."""
    refused(wire.post(DECIDE, {"key": "typed"}, **{"Content-Type": kind}), 415)


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "Application/JSON"])
def test_json_may_say_its_character_set(wire: Wire, kind: str) -> None:
    answer = wire.post(DECIDE, {"key": "typed fine"}, **{"Content-Type": kind})
    assert answer.status == 200, answer


# ------------------------------------------------------------------------------ methods and paths


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"])
def test_another_method_is_refused_and_the_right_one_named(wire: Wire, method: str) -> None:
    try:
        answer = wire.ask(method, DECIDE)
    except Gone:
        assert method == "BREW"
        return
    if method == "BREW":
        refused(answer, 400, 405, 501)
        return
    refused(answer, 405)
    assert answer.headers["allow"] == "POST"


@pytest.mark.parametrize(
    "path",
    ["/v1/{}/status", "/v1/{}/arms", "/v1/{}/overview", "/v1/bandits", "/openapi.json",
     "/metrics", "/healthz", "/readyz", "/v1/{}/export", "/v1/{}/parked", "/v1/{}/audit"],
)  # fmt: skip
def test_nothing_is_told_to_what_is_only_looked_at(wire: Wire, path: str) -> None:
    for method in ("DELETE", "PUT", "PATCH"):
        answer = wire.ask(method, path.format("shop"), {})
        refused(answer, 405)
        assert "GET" in answer.headers["allow"]


@pytest.mark.parametrize(
    "path",
    [
        "/../../../etc/passwd",
        "/v1/../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/v1/%2e%2e/decide",
        "/v1/..%2f..%2f/decide",
        "//v1//shop//decide",
        "/v1/shop/decide/",
        "/v1/shop/decide/../decide",
        "/v1/shop/decide%00",
        "/v1/%00/decide",
        "/v1/shop%00/decide",
        "/v1/%ff%fe/decide",
        "/v1/%c0%ae%c0%ae/decide",
        "/v1/%ud800/decide",
        "/v1/sh%6Fp%20/decide",
        "/v1/%/decide",
        "/v1/%zz/decide",
        "/v1//decide",
        "/v1/nobody/decide",
        "/v1/" + "x" * 5000 + "/decide",
        "/static/../../live.toml",
        "/static/%2e%2e/config.py",
        "/live.toml",
        "/templates/page.html",
        "/.git/config",
        "http://elsewhere.example/v1/nobody/decide",
        "*",
        "/v1/shop/DECIDE",
        "/V1/shop/decide",
        "/v1/shop;x/decide",
    ],
)
def test_odd_paths_lead_nowhere(service: Running, path: str) -> None:
    before = count(service)
    for method, body in (("GET", None), ("POST", {"key": "odd"})):
        with service.wire() as wire:
            try:
                answer = wire.ask(method, path, body)
            except Gone:
                continue
            assert b"root:" not in answer.body
            if path.startswith("/v1"):
                refused(answer, 400, 403, 404, 405)
            else:  # somebody may have typed it into a browser
                refused_page(answer, 400, 403, 404, 405)
    assert count(service) == before


def test_a_path_written_otherwise_means_the_same(wire: Wire) -> None:
    assert wire.post("/v1/sh%6Fp/decide", {"key": "encoded"}).status == 200
    assert wire.post("/v1/shop%2Fdecide", {"key": "slash"}).status in (200, 404)
    assert wire.post("/v1/shop/decide?whatever=1#x", {"key": "asked"}).status in (200, 400)


@pytest.mark.parametrize(
    "id", ["0" * 24, "x", "%00", "a" * 5000, "%F0%9F%92%A9", "..", "' OR 1=1 --", "%27%3B--"]
)
def test_an_unknown_decision_is_not_found(wire: Wire, id: str) -> None:
    refused(wire.get(f"/v1/shop/decisions/{id.replace(' ', '%20')}"), 400, 404, 422)


@pytest.mark.parametrize(
    "query",
    ["format=exe", "format=", "format=csv&pending=maybe", "format=csv&since=never",
     "format=csv&since=1e400", "format=csv&kind=%00", "format=csv&until=nan",
     "format=csv&color=red", "format=csv&format=parquet", "%ff=%fe", "format=../../etc/passwd"],
)  # fmt: skip
def test_an_export_that_makes_no_sense_is_refused(wire: Wire, query: str) -> None:
    refused(wire.get(f"/v1/shop/export?{query}"), 400, 422)


def test_a_page_on_another_site_cannot_tell_a_local_service_anything(
    service: Running, wire: Wire
) -> None:
    before = count(service, "arm")
    for more in ({"Origin": "https://elsewhere.example"}, {"Sec-Fetch-Site": "cross-site"}):
        refused(wire.post("/v1/shop/arms", {"arm": "Z"}, **more), 403)
    wire.send(b"GET /v1/shop/status HTTP/1.1\r\nHost: elsewhere.example\r\n\r\n")
    refused(wire.answer(), 400, 403)  # a name that was made to point here
    assert count(service, "arm") == before


def test_many_at_once_with_everything_wrong_do_not_slow_the_others(service: Running) -> None:
    stop = threading.Event()

    def bad(k: int) -> None:
        bodies = list(BAD_BODIES.values())
        while not stop.is_set():
            try:
                with service.wire() as wire:
                    for body in bodies:
                        wire.post(DECIDE, body)
            except Gone:
                pass

    threads = [threading.Thread(target=bad, args=(k,), daemon=True) for k in range(8)]
    for thread in threads:
        thread.start()
    took = []
    with service.wire() as good:
        for k in range(100):
            before = time.monotonic()
            assert good.post(DECIDE, {"key": f"among wrong {k}"}).status == 200
            took.append(time.monotonic() - before)
    stop.set()
    for thread in threads:
        thread.join(10)
    assert max(took) < 1.0
