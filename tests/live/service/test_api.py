"""Every route of the service: what it answers, and how it refuses."""

from __future__ import annotations

import io
import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.live.scene import sound
from tests.live.service.scene import ROLES, Service
from zib.live import LedgerError
from zib.live.service import bodies, calls
from zib.live.service.api import OWN
from zib.live.service.routes import ROUTES

pytestmark = pytest.mark.usefixtures("interpreting")
JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("service")


@pytest.fixture(scope="module")
def open_service(folder: Path) -> Iterator[Service]:
    """One without tokens for tests that leave its arms as they are."""
    from zib.core.entry import interpreted

    with (
        interpreted(),
        Service(folder / "open.db", limits={"body": 2_000, "batch": 5, "arms": 4}) as running,
    ):
        yield running


@pytest.fixture
def service(quick_folder: Path) -> Iterator[Service]:
    with Service(quick_folder / "live.db") as running:
        yield running


def test_a_decision_and_what_became_of_it(open_service: Service) -> None:
    service = open_service
    decided = service.post("/v1/shop/decide", {"key": "k", "unit": "u", "arms": ["A", "B"]})
    decision = decided.json()
    assert decided.status_code == 200
    assert decided.headers["cache-control"] == "no-store"
    assert decided.headers["x-content-type-options"] == "nosniff"
    assert decision["arm"] in "AB"
    assert decision["id"] == service.ledgers["shop"].decision_id("k")
    again = {"key": "k", "unit": "u", "arms": ["B", "A"]}
    assert service.post("/v1/shop/decide", again).json() == decision
    event = {"id": "e", "decision_id": decision["id"], "value": 2.5}
    applied = {"status": "applied", "decision_id": decision["id"], "value": 2.5, "counted": True}
    assert service.post("/v1/shop/event", event).json() == applied
    assert service.post("/v1/shop/event", event).json() == {**applied, "status": "duplicate"}
    revised = service.post("/v1/shop/revise", {**event, "id": "r", "value": 1}).json()
    assert revised == {**applied, "value": 1.0}
    found = service.get(f"/v1/shop/decisions/{decision['id']}").json()
    assert found["decision"] == decision
    assert found["outcome"].pop("known") > 1e15  # microseconds
    assert found["outcome"] == {"entries": 2, "value": 1.0, "cancelled": False}
    assert service.post("/v1/shop/cancel", {"decision_id": decision["id"]}).json()["counted"]
    found = service.get(f"/v1/shop/decisions/{decision['id']}").json()
    assert found["outcome"]["cancelled"]


def test_batches_are_done_as_a_whole_or_not_at_all(open_service: Service) -> None:
    post = open_service.post
    asked = {"decisions": [{"key": f"b{n}"} for n in range(5)]}
    made = post("/v1/shop/decide/batch", asked).json()["decisions"]
    assert [one["id"] for one in made] == [
        open_service.ledgers["shop"].decision_id(f"b{n}") for n in range(5)
    ]
    events = [{"id": f"be{n}", "decision_id": one["id"], "value": n} for n, one in enumerate(made)]
    receipts = post("/v1/shop/event/batch", {"events": events}).json()["receipts"]
    assert [one["value"] for one in receipts] == [0.0, 1.0, 2.0, 3.0, 4.0]
    changed = [{**one, "id": f"br{n}", "value": 9} for n, one in enumerate(events)]
    receipts = post("/v1/shop/revise/batch", {"revisions": changed}).json()["receipts"]
    assert {one["value"] for one in receipts} == {9.0}
    spoilt = {"decisions": [{"key": "fresh"}, {"key": "b0", "unit": "another"}]}
    refused = post("/v1/shop/decide/batch", spoilt)
    assert (refused.status_code, refused.json()["kind"]) == (409, "conflict")
    fresh = open_service.ledgers["shop"].decision_id("fresh")
    assert open_service.get(f"/v1/shop/decisions/{fresh}").status_code == 404
    ids = [one["id"] for one in made]
    receipts = post("/v1/shop/cancel/batch", {"decision_ids": ids}).json()["receipts"]
    assert all(one["counted"] for one in receipts)
    assert post("/v1/shop/decide/batch", {"decisions": []}).json() == {"decisions": []}
    too_many = {"decisions": [{"key": f"c{n}"} for n in range(6)]}
    assert post("/v1/shop/decide/batch", too_many).json()["error"] == (
        "`decisions` must hold at most 5 entries (`batch` in [limits]); got 6"
    )
    wrong = post("/v1/shop/event/batch", {"events": [events[0], {**events[1], "value": 1e300}]})
    assert wrong.status_code == 422
    assert wrong.json()["error"].startswith("`events[1]`: `value` must")


@pytest.mark.slow
def test_times_are_seconds_or_text_with_a_zone(open_service: Service) -> None:
    post = open_service.post
    at = "2026-05-01T12:00:00+02:00"
    assert post("/v1/shop/decide", {"key": "t1", "at": at}).json()["at"] == 1_777_629_600.0
    assert post("/v1/shop/decide", {"key": "t2", "at": 1.7e9}).json()["at"] == 1.7e9
    for wrong in ("2026-05-01T12:00:00", "yesterday", True, -5.0):
        answer = post("/v1/shop/decide", {"key": "t3", "at": wrong})
        assert answer.status_code in (400, 422)
        assert "`at`" in answer.json()["error"]


ARRAYS_DEEP = b'{"key": "k", "context": ' + b"[" * 1_900


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        ("decide", b"", 400, "JSON"),
        ("decide", b"{", 400, "JSON"),
        ("decide", b"[]", 400, "expected `object`, got `array`"),
        ("decide", b"\xff\xfe", 400, "JSON"),
        ("decide", ARRAYS_DEEP, 400, "JSON"),
        ("decide", b'{"key": NaN}', 400, "JSON"),
        ("decide", b"{}", 400, "`key`"),
        ("decide", b'{"key": 5}', 400, "`key`"),
        ("decide", b'{"key": "k", "more": 1}', 400, "`more`"),
        ("decide", b'{"key": ""}', 422, "`key`"),
        ("decide", b'{"key": "a\\u0000b"}', 422, "`key`"),
        ("decide", b'{"key": "\\ud800"}', (400, 422), ""),
        ("decide", b'{"key": "x", "arms": []}', 422, "`arms`"),
        ("decide", b'{"key": "x", "arms": ["nobody"]}', 422, "`arms`"),
        ("decide", b'{"key": "x", "arms": [true]}', 400, "`arms[0]`"),
        ("decide", b'{"key": "x", "at": 1e999}', (400, 422), ""),
        ("decide/batch", b'{"decisions": [{"key": "x"}, {}]}', 400, "`decisions[1]`"),
        ("event", b'{"id": "e", "decision_id": "d"}', 400, "`value`"),
        ("event", b'{"id": "e", "decision_id": "d", "value": "1"}', 400, "`value`"),
        ("event", b'{"id": "e", "decision_id": "d", "value": 1e200}', 422, "`value`"),
        ("event", b'{"id": "cancel:e", "decision_id": "d", "value": 1}', 422, "`event_id`"),
        ("arms/pause", b'{"arm": "nobody"}', 422, "`arm`"),
        ("arms", b'{"arm": "A"}', 422, "`arm` must be new"),
        ("shadow", b"{}", 400, "`arm`"),
    ],
    ids=[str(n) for n in range(24)],
)
def test_bad_bodies(open_service: Service, path: str, body: bytes, status: Any, words: str) -> None:
    with open_service.client() as client:
        answer = client.post(f"/v1/shop/{path}", content=body, headers=JSON)
    assert answer.status_code in (status if isinstance(status, tuple) else (status,))
    error = answer.json()["error"]
    assert words in error
    assert "\n" not in error
    assert len(error) < 350


def test_bad_requests(open_service: Service) -> None:
    good = json.dumps({"key": "k2"}).encode()
    with open_service.client() as client:

        def status(method: str, path: str, **more: Any) -> int:
            answer = client.request(method, path, **more)
            if method != "HEAD":
                assert answer.json()["error"]
            return answer.status_code

        decide = "/v1/shop/decide"
        assert status("POST", decide, content=good) == 415
        assert status("POST", decide, content=good, headers={"content-type": "text/plain"}) == 415
        packed = {**JSON, "content-encoding": "gzip"}
        assert status("POST", decide, content=good, headers=packed) == 415
        assert status("POST", decide, content=b" " * 2_001, headers=JSON) == 413
        assert status("POST", decide, content=iter([b" " * 1_500] * 2), headers=JSON) == 413
        assert status("GET", decide) == 405
        assert client.get(decide).headers["allow"] == "POST"
        assert status("DELETE", "/v1/shop/arms") == 405
        assert status("POST", "/v1/nobody/decide", content=good, headers=JSON) == 404
        assert status("GET", "/v1/shop/decisions/unknown") == 404
        assert status("GET", "/v1/shop/decisions/") == 404
        assert status("GET", "/v1/shop/nothing") == 404
        assert status("GET", "/v1/shop/parked?most=0") == 422
        assert status("GET", "/v1/shop/parked?least=1") == 400
        assert status("GET", "/v1/shop/status?most=1") == 400
        assert status("GET", "/v1/shop/export?format=xls") == 422
        assert status("GET", "/v1/shop/export?kind=none") == 422
        assert status("GET", "/v1/shop/export?since=soon") == 422
        # names of this machine that others have made
        assert status("GET", "/v1/bandits", headers={"host": "evil.example"}) == 403
        strange = {**JSON, "origin": "https://evil.example"}
        assert status("POST", decide, content=good, headers=strange) == 403
        # with a charset, in pieces, and with a chunked body
        assert client.post(
            decide, content=iter([good[:5], good[5:]]),
            headers={"content-type": "Application/JSON; charset=utf-8"},
        ).is_success  # fmt: skip
        assert client.head("/v1/bandits").content == b""
        assert client.get("/v1/bandits").json() == {"bandits": ["shop"]}


@pytest.mark.slow
def test_arms_come_rest_and_go_and_it_is_known_who_did_it(quick_folder: Path) -> None:
    with Service(quick_folder / "live.db", tokens=True, limits={"arms": 4}) as service:

        def change(path: str, body: Any) -> Any:
            return service.post(f"/v1/shop/{path}", body, "admin")

        assert change("arms", {"arm": 7}).status_code == 201
        assert change("arms", {"arm": "E"}).status_code == 422  # four are enough
        assert change("arms/pause", {"arm": "B"}).json()["arms"][1]["status"] == "paused"
        assert change("arms/resume", {"arm": "B"}).json()["arms"][1]["status"] == "active"
        assert change("arms/retire", {"arm": "C"}).json()["arms"][2]["status"] == "retired"
        assert change("arms/resume", {"arm": "C"}).status_code == 422
        assert change("shadow", {"arm": "A"}).json()["shadow"] == "A"
        decision = service.post("/v1/shop/decide", {"key": "k"}, "decide").json()
        assert (decision["arm"], decision["kind"], decision["probability"]) == ("A", "shadow", 1.0)
        unserved = service.post("/v1/shop/decide", {"key": "l", "arms": ["B"]}, "decide")
        assert unserved.status_code == 409
        assert "kind" not in unserved.json()
        assert change("shadow", {"arm": None}).json()["shadow"] is None
        for arm in ("A", "B", 7):
            change("arms/pause", {"arm": arm})
        none = service.post("/v1/shop/decide", {"key": "m"}, "decide")
        assert (none.status_code, none.json()["error"]) == (
            409,
            "no arm is active: resume or add one",
        )
        audit = service.get("/v1/shop/audit?most=20", "read").json()["audit"]
        assert [(one["who"], one["action"], one["detail"]) for one in audit[::-1]][:5] == [
            ("admin", "add arm", "7"),
            ("admin", "pause arm", "B"),
            ("admin", "resume arm", "B"),
            ("admin", "retire arm", "C"),
            ("admin", "shadow", "A"),
        ]
        assert len(audit) == 9
        assert service.get("/v1/shop/audit?most=2", "read").json()["audit"] == audit[:2]


@pytest.mark.slow
def test_looking_back(service: Service) -> None:
    ids = [service.post("/v1/shop/decide", {"key": f"k{n}"}).json()["id"] for n in range(4)]
    service.post("/v1/shop/event", {"id": "e", "decision_id": ids[0], "value": 3})
    stray = {"id": "stray", "decision_id": "unknown", "value": 1}
    assert service.post("/v1/shop/event", stray).json()["status"] == "parked"
    status = service.get("/v1/shop/status").json()
    assert sum(arm["decisions"] for arm in status["arms"]) == 4
    assert status["parked"] == 1
    overview = service.get("/v1/shop/overview").json()
    assert overview["status"]["name"] == "shop"
    assert overview["advice"]
    parked = service.get("/v1/shop/parked").json()["parked"]
    assert [(one["id"], one["dead"]) for one in parked] == [("stray", False)]
    service.ledgers["shop"]._clock = lambda: time.time() + 7_200.0  # all windows have closed
    exported = service.get("/v1/shop/export")
    assert exported.headers["content-type"] == "application/vnd.apache.parquet"
    frame = pd.read_parquet(io.BytesIO(exported.content))
    assert sorted(frame["decision"]) == sorted(ids)
    assert frame["reward"].sum() == 3.0
    told = service.get("/v1/shop/export", params={"format": "csv", "since": str(2e9)})
    assert told.text.count("\n") == 1
    assert "shop.csv" in told.headers["content-disposition"]


@pytest.mark.slow
def test_numbers_for_prometheus(service: Service) -> None:
    decision = service.post("/v1/shop/decide", {"key": "k"}).json()
    for _ in range(2):
        event = {"id": "e", "decision_id": decision["id"], "value": 1}
        service.post("/v1/shop/event", event)
    service.post("/v1/shop/decide", {})
    lines = service.get("/metrics").text.splitlines()
    for line in (
        'zib_requests_total{route="POST /v1/{bandit}/decide",status="200"} 1.0',
        'zib_requests_total{route="POST /v1/{bandit}/decide",status="400"} 1.0',
        'zib_request_seconds_count{route="POST /v1/{bandit}/decide"} 2.0',
        'zib_decisions_total{bandit="shop"} 1.0',
        'zib_receipts_total{bandit="shop",status="applied"} 1.0',
        'zib_receipts_total{bandit="shop",status="duplicate"} 1.0',
        "zib_batch_requests_count 3.0",
        'zib_pending_decisions{bandit="shop"} 0.0',
        'zib_parked_events{bandit="shop"} 0.0',
        "zib_database_up 1.0",
    ):
        assert line in lines


@pytest.mark.slow
def test_the_openapi_document_is_valid_and_complete(open_service: Service) -> None:
    document = open_service.get("/openapi.json").json()
    validator = pytest.importorskip(
        "openapi_spec_validator", reason="needs `pip install openapi-spec-validator`"
    )
    validator.validate(document)
    assert document["openapi"].startswith("3.1")
    known = {(method.upper(), path) for path, each in document["paths"].items() for method in each}
    assert known == {
        *((route.method, f"/v1/{{bandit}}/{route.path}") for route in ROUTES),
        *((route.method, f"/{route.path}") for route in OWN),
    }
    names = [each["operationId"] for path in document["paths"].values() for each in path.values()]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    "role",
    [pytest.param(role, marks=pytest.mark.slow) for role in (None, "wrong", "read", "admin")]
    + ["decide"],
)
def test_roles(folder: Path, role: str | None) -> None:
    bodies_of: dict[str, Any] = {
        "decide": {"key": "k"}, "decide/batch": {"decisions": []},
        "event": {"id": "e", "decision_id": "d", "value": 1}, "event/batch": {"events": []},
        "revise": {"id": "r", "decision_id": "d", "value": 1}, "revise/batch": {"revisions": []},
        "cancel": {"decision_id": "d"}, "cancel/batch": {"decision_ids": []},
        "arms": {"arm": "D"}, "arms/pause": {"arm": "A"}, "arms/resume": {"arm": "A"},
        "arms/retire": {"arm": "D"}, "shadow": {"arm": None},
    }  # fmt: skip
    with Service(folder / f"roles-{role}.db", tokens=True) as service:
        headers = {None: {}, "wrong": {"authorization": "Bearer zib_wrong"}}.get(role)
        if headers is None:
            headers = {"authorization": f"Bearer {service.tokens[str(role)]}"}
        with service.client() as client:
            for route in [*ROUTES, *OWN]:
                own = route in OWN
                path = f"/{route.path}" if own else f"/v1/shop/{route.path}"
                path = path.replace("{id}", service.ledgers["shop"].decision_id("k"))
                more = {"json": bodies_of[route.path]} if route.method == "POST" else {}
                answer = client.request(route.method, path, headers=headers, **more)
                allowed = not route.roles or role == "admin" or role in route.roles
                if allowed:
                    # nothing was decided where the role may not; looking it up is allowed
                    missing = route.path.startswith("decisions") and role == "read"
                    assert answer.status_code == (404 if missing else route.status), route.path
                else:
                    status = 403 if role in ROLES else 401
                    assert answer.status_code == status, route.path
                    assert answer.headers["cache-control"] == "no-store"
                    assert ("www-authenticate" in answer.headers) == (status == 401)


@pytest.mark.slow
def test_who_asks_too_often_waits(quick_folder: Path) -> None:
    limits = {"rate": 1.0, "burst": 3.0}
    with Service(quick_folder / "live.db", tokens=True, limits=limits) as service:
        answers = [service.post("/v1/shop/decide", {"key": "k"}, "decide") for _ in range(5)]
        assert [answer.status_code for answer in answers].count(200) in (3, 4)
        assert answers[-1].status_code == 429
        assert int(answers[-1].headers["retry-after"]) >= 1
        assert service.get("/v1/shop/arms", "read").is_success  # others may
        refused = [answer.status_code for answer in answers].count(429)
        assert f"zib_rate_refused_total {refused}.0" in service.get("/metrics", "admin").text


# -------------------------------------------------------------------------------- what goes wrong


@pytest.mark.slow
def test_our_own_mistakes_are_logged_with_a_number_and_not_shown(
    service: Service, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any) -> None:
        raise ZeroDivisionError("secret/path.py")

    monkeypatch.setattr(service.app._served["shop"].requests, "asked", broken)
    answer = service.post("/v1/shop/decide", {"key": "k"})
    assert answer.status_code == 500
    words = answer.json()["error"]
    assert words.startswith("internal error ")
    assert "secret" not in answer.text
    assert words.split()[2].rstrip(":") in caplog.text
    assert "ZeroDivisionError" in caplog.text


def test_errors_of_the_database_are_not_shown() -> None:
    problem = bodies.problem_of(LedgerError("the database refused: no such table secret"))
    assert (problem.status, problem.retry_after) == (503, 1.0)
    assert b"secret" not in problem.body


@pytest.mark.slow
def test_a_database_that_hangs_is_answered_for_in_time(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "PATIENCE", 0.3)
    connection = service.ledgers["shop"]._running._connection
    assert connection is not None
    commit = connection.commit
    hang = [1.5]

    def slow() -> None:
        time.sleep(hang.pop() if hang else 0.0)
        commit()

    monkeypatch.setattr(connection, "commit", slow)
    start = time.monotonic()
    late = service.post("/v1/shop/decide", {"key": "k"})
    assert (late.status_code, late.headers["retry-after"]) == (503, "1")
    assert 0.2 < time.monotonic() - start < 1.2
    refused = service.post("/v1/shop/decide", {"key": "l"})  # at once
    assert refused.status_code == 503
    assert service.get(f"/v1/shop/decisions/{'0' * 24}").status_code == 503
    assert time.monotonic() - start < 1.4
    assert service.get("/readyz").status_code == 503
    assert service.get("/healthz").status_code == 200
    end = time.monotonic() + 10.0
    while service.get("/readyz").status_code != 200:
        assert time.monotonic() < end
        time.sleep(0.05)
    # what was answered with 503 may have been written, and the same key gets the same decision
    id = service.ledgers["shop"].decision_id("k")
    decided = service.get(f"/v1/shop/decisions/{id}").json()["decision"]
    assert service.post("/v1/shop/decide", {"key": "k"}).json() == decided
    sound(service.ledgers["shop"])


@pytest.mark.slow
def test_a_request_must_arrive_in_time(quick_folder: Path) -> None:
    limits = {"header_timeout": 0.5, "connections": 3}
    with Service(quick_folder / "live.db", limits=limits) as service:
        port = int(service.url.rpartition(":")[2])

        def connected() -> socket.socket:
            return socket.create_connection(("127.0.0.1", port), 10.0)

        head = b"POST /v1/shop/decide HTTP/1.1\r\nHost: localhost\r\n"
        whole = head + b"Content-Type: application/json\r\nContent-Length: 12\r\n\r\n"
        slow = [connected() for _ in range(3)]
        for one, part in zip(slow, (b"", head, whole + b"{"), strict=True):
            one.sendall(part)
        with connected() as more:  # there are too many
            assert b" 503 " in more.recv(1_000).split(b"\r\n")[0]
        start = time.monotonic()
        ends = [one.recv(1_000) for one in slow]
        assert time.monotonic() - start < 5.0
        assert ends[0] == b""
        assert b" 408 " in ends[2]
        for one in slow:
            one.close()
        assert service.post("/v1/shop/decide", {"key": "k"}).is_success
