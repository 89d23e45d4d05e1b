"""The client asks again where that is safe, gives up in time, and says what the service said."""

from __future__ import annotations

import asyncio
import json
import math
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import zib
from tests.live.service import scene
from zib.core.entry import interpreted
from zib.live import (
    AsyncClient,
    Client,
    ConflictError,
    Decision,
    Ledger,
    LedgerError,
    Receipt,
    Refused,
    Unavailable,
)

ADDRESS = "http://bandits.test"


class Service:
    """A ledger behind the routes that the retries are about; `faults` befall the next requests.

    A fault is a status, an exception to raise before anything is done, or "lost": it is done, and
    the answer is lost.
    """

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.faults: list[Any] = []
        self.headers: dict[str, str] = {}
        self.requests: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        fault = self.faults.pop(0) if self.faults else None
        if isinstance(fault, Exception):
            raise fault
        if isinstance(fault, int):
            sentence = {"error": f"fault {fault}"}
            return httpx.Response(fault, json=sentence, headers=self.headers)
        answer = self.answer(request)
        if fault == "lost":
            raise httpx.ReadError("the connection was closed")
        return answer

    async def soon(self, request: httpx.Request) -> httpx.Response:
        await asyncio.sleep(0)
        return self(request)

    def answer(self, request: httpx.Request) -> httpx.Response:
        given = json.loads(request.content or b"{}")
        try:
            match request.url.path.rpartition("/")[2]:
                case "decide":
                    found = self.ledger.decide(given.pop("key"), **given)._asdict()
                case "event":
                    id, decision = given.pop("id"), given.pop("decision_id")
                    found = self.ledger.event(id, decision, given.pop("value"), **given)._asdict()
                case "arms":
                    found = self.ledger.add_arm(given["arm"])
                case _:
                    return httpx.Response(404, json={"error": "there is no such route"})
        except ConflictError as error:
            return httpx.Response(409, json={"error": str(error), "kind": "conflict"})
        except zib.InvalidParameterError as error:
            return httpx.Response(422, json={"error": str(error)})
        return httpx.Response(200, json=found)

    def client(self, **more: Any) -> Client:
        http = httpx.Client(transport=httpx.MockTransport(self))
        return Client(ADDRESS, "shop", http=http, **more)

    def async_client(self, **more: Any) -> AsyncClient:
        http = httpx.AsyncClient(transport=httpx.MockTransport(self.soon))
        return AsyncClient(ADDRESS, "shop", http=http, **more)


@pytest.fixture
def service(quick_folder: Path) -> Iterator[Service]:
    with (
        interpreted(),
        Ledger(
            quick_folder / "shop.db",
            "shop",
            arms=["A", "B"],
            window="7d",
            policy=zib.mab.NormalTS(),
            draws=50,
            background=False,
        ) as ledger,
    ):
        yield Service(ledger)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Pauses are listed, and time passes without waiting for it."""
    found: list[float] = []
    clock = time.monotonic

    def sleep(seconds: float) -> None:
        found.append(seconds)

    monkeypatch.setattr("zib.live.client.time.sleep", sleep)
    monkeypatch.setattr("zib.live.calling.time.monotonic", lambda: clock() + sum(found))
    return found


def refused_connection() -> Exception:
    return httpx.ConnectError("connection refused")


# ---------------------------------------------------------------------------------- trying again


@pytest.mark.parametrize(
    "fault",
    [
        refused_connection,
        lambda: httpx.ReadTimeout("too slow"),
        lambda: httpx.RemoteProtocolError("the server closed an idle connection"),
        lambda: 408,
        lambda: 429,
        lambda: 502,
        lambda: 503,
        lambda: 504,
    ],
    ids=["connect", "time-out", "closed", "408", "429", "502", "503", "504"],
)
def test_what_may_pass_is_tried_again(
    service: Service, pauses: list[float], fault: Callable[[], Any]
) -> None:
    service.faults = [fault(), fault()]
    decision = service.client().decide("k")
    assert isinstance(decision, Decision)
    assert decision == service.ledger.decide("k")
    assert len(service.requests) == 3
    assert len(pauses) == 2
    assert 0.0 <= pauses[0] <= 0.05
    assert 0.0 <= pauses[1] <= 0.1


def test_a_lost_answer_is_the_same_decision_when_asked_again(
    service: Service, pauses: list[float]
) -> None:
    service.faults = ["lost"]
    decision = service.client().decide()  # a key of its own, which both tries share
    first, second = (json.loads(request.content)["key"] for request in service.requests)
    assert first == second
    assert service.ledger.decision(decision.id)[0] == decision
    assert service.ledger.check().decisions == 1


def test_an_event_whose_receipt_was_lost_counts_once(service: Service, pauses: list[float]) -> None:
    client = service.client()
    decision = client.decide("k")
    service.faults = ["lost", "lost"]
    assert client.event("e", decision.id, 5.0) == Receipt("duplicate", decision.id, 5.0, True)
    found = service.ledger.check()
    assert found
    assert found.events == 1


def test_the_service_says_how_long_to_wait(service: Service, pauses: list[float]) -> None:
    service.faults, service.headers = [429, 503], {"Retry-After": "3"}
    service.client().decide("k")
    assert pauses == [3.0, 3.0]


def test_a_wait_beyond_the_time_limit_is_not_begun(service: Service, pauses: list[float]) -> None:
    service.faults, service.headers = [429], {"Retry-After": "60"}
    with pytest.raises(Unavailable, match="gave no answer within 10 s, in 1 tries: fault 429"):
        service.client().decide("k")
    assert not pauses


def test_pauses_grow_to_a_second_and_end_with_the_time(
    service: Service, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zib.live.calling.random.uniform", lambda low, high: high)
    service.faults = [refused_connection() for _ in range(1000)]
    with pytest.raises(Unavailable, match="within 5 s, in 9 tries: connection refused") as raised:
        service.client(timeout=5.0).decide("k")
    assert pauses == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0]
    assert not raised.value.arrived


def test_tries_are_limited_and_each_leaves_time_for_another(
    service: Service, pauses: list[float]
) -> None:
    service.faults = [httpx.ReadTimeout("") for _ in range(10)]
    with pytest.raises(Unavailable, match="3 tries: ReadTimeout") as raised:
        service.client(timeout=8.0, retries=2).decide("k")
    assert raised.value.arrived
    limits = [request.extensions["timeout"]["read"] for request in service.requests]
    assert limits[0] == pytest.approx(4.0, abs=0.2)
    assert limits[2] > 7.0  # the last may have all that is left


def test_adding_an_arm_is_not_repeated_when_it_may_have_been_done(
    service: Service, pauses: list[float]
) -> None:
    client = service.client()
    service.faults = [refused_connection(), "lost"]
    with pytest.raises(Unavailable):
        client.add_arm("C")
    assert "C" in service.ledger.arms
    assert len(service.requests) == 2


# ------------------------------------------------------------------------------ refusals, errors


def test_mistakes_are_not_tried_again(service: Service) -> None:
    client = service.client()
    client.decide("k")
    with pytest.raises(ConflictError, match="has been decided with another unit"):
        client.decide("k", unit="u")
    with pytest.raises(zib.InvalidParameterError, match="`arms` must be known"):
        client.decide("l", arms=["nowhere"])
    assert len(service.requests) == 3


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, zib.InvalidParameterError),
        (401, Refused),
        (403, Refused),
        (404, LedgerError),
        (409, LedgerError),
        (413, zib.InvalidParameterError),
        (500, LedgerError),
    ],
)
def test_what_the_service_says_is_raised(
    service: Service, status: int, kind: type[Exception]
) -> None:
    service.faults = [status]
    with pytest.raises(kind, match=f"^fault {status}$") as raised:
        service.client().decide("k")
    assert type(raised.value) is kind
    assert len(service.requests) == 1


@pytest.mark.parametrize("content", [b"<html>It works!</html>", b"[]", b"{}", b"null", b""])
def test_an_answer_of_something_else_is_said_to_be_that(content: bytes) -> None:
    transport = httpx.MockTransport(lambda request: httpx.Response(200, content=content))
    client = Client(ADDRESS, "shop", http=httpx.Client(transport=transport))
    with pytest.raises(LedgerError, match="/v1/shop/decide is not that of a zib service"):
        client.decide("k")


def test_a_token_is_sent_and_never_shown(service: Service) -> None:
    client = service.client(token="secret-token")
    client.decide("k")
    assert service.requests[0].headers["authorization"] == "Bearer secret-token"
    assert "secret" not in repr(client)
    with pytest.raises(zib.InvalidParameterError, match="`token` must be text") as raised:
        service.client(token="geheim \n")
    assert "geheim" not in str(raised.value)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"address": "localhost:8080"}, "`address` must be one of a service"),
        ({"address": "ftp://x"}, "`address` must be one of a service"),
        ({"address": "http://a:99999"}, "`address` must be one of a service"),
        ({"bandit": ""}, "`bandit` must be text"),
        ({"timeout": 0.0}, "`timeout` must lie in"),
        ({"retries": -1}, "`retries` must lie in"),
        ({"http": 5}, "`http` must be an httpx.Client; got 5"),
    ],
    ids=lambda part: None if isinstance(part, str) else "-".join(part),
)
def test_what_a_client_is_made_with_is_checked(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(zib.InvalidParameterError, match=sentence):
        Client(**{"address": ADDRESS, **given})


def test_certificates_are_checked_however_the_address_is_written() -> None:
    for address in ("https://x.test", "HTTPS://x.test/"):
        with Client(address) as client:
            assert repr(client) == "<Client of 'default' at https://x.test>"
            pool = client._http._transport._pool  # type: ignore[attr-defined]
            assert pool._ssl_context.verify_mode == ssl.CERT_REQUIRED


def test_labels_have_to_be_what_json_has(service: Service) -> None:
    with pytest.raises(zib.InvalidParameterError, match="`arms` must be text or a whole number"):
        service.client().decide("k", arms=[("a", 1)])
    with pytest.raises(zib.InvalidParameterError, match="`context` must be a dictionary"):
        service.client().decide("k", context={"x": math.nan})
    assert not service.requests


# --------------------------------------------------------------------------------------- fallback


def test_a_fallback_is_served_when_the_service_is_away(
    service: Service, pauses: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    client = service.client(timeout=0.5, retries=1)
    service.faults = [refused_connection()] * 10
    decision = client.decide("k", fallback="A")
    assert (decision.arm, decision.kind, decision.version) == ("A", "fallback", 0)
    assert math.isnan(decision.probability)
    assert "1 decided without the service" in caplog.text
    service.faults = []
    assert client.event("e", decision.id, 5.0).status == "fallback"
    assert client.event_many([("e", decision.id, 5.0)])[0].status == "fallback"
    assert client.revise("r", decision.id, 5.0).counted is False
    assert len(service.requests) == 2, "events of a fallback are not sent"
    many = client.within(0.1)
    service.faults = [refused_connection()] * 10
    assert [d.arm for d in many.decide_many(["k", "l"], fallback="A")] == ["A", "A"]


def test_a_fallback_does_not_hide_the_callers_mistakes(service: Service) -> None:
    client = service.client()
    client.decide("k")
    with pytest.raises(ConflictError):
        client.decide("k", unit="u", fallback="A")
    with pytest.raises(zib.InvalidParameterError, match="`fallback` must be text"):
        client.decide("l", fallback=1.5)
    service.faults = [500, 401]
    assert client.decide("m", fallback="A").kind == "fallback"
    assert client.decide("m", fallback="A").kind == "fallback"


# ----------------------------------------------------------------------------------- the real one


def test_every_call_is_answered_as_by_a_ledger(quick_folder: Path) -> None:
    shop = {"shop": {"arms": ("A", "B", "C"), "policy": zib.mab.NormalTS()}}
    with (
        interpreted(),
        scene.Service(quick_folder / "shop.db", tokens=True, bandits=shop) as running,
    ):
        ledger = running.ledgers["shop"]

        def connected(role: str) -> Client:
            return Client(running.url, "shop", token=running.tokens[role])

        with connected("decide") as shop, connected("admin") as admin:
            made = shop.decide("k", unit="u", arms=["A", "B"], context={"x": np.float64(1.5)})
            assert made == ledger.decide("k", unit="u", arms=["A", "B"], context={"x": 1.5})
            assert made.id == shop.decision_id("k") == ledger.decision_id("k")
            many = shop.decide_many(["l", "m"], units=["v", None], at=made.at - 1.0)
            assert many == ledger.decide_many(["l", "m"], units=["v", None])
            assert shop.event("e", made.id, 5.0) == Receipt("applied", made.id, 5.0, True)
            told = shop.event_many(
                [("e", made.id, 5.0), ("f", "fallback:x", 1.0), ("g", "no", 2.0)]
            )
            assert [each.status for each in told] == ["duplicate", "fallback", "parked"]
            assert shop.revise("r", made.id, 1.0).value == 1.0
            assert shop.revise_many([("r", made.id, 1.0)])[0].status == "duplicate"
            assert shop.cancel(f"fallback:{many[0].id}").decision_id == many[0].id
            assert shop.cancel_many([many[0].id, many[1].id])[1].status == "applied"
            assert shop.decision(made.id) == ledger.decision(made.id)
            with pytest.raises(LedgerError, match="there is no decision 'nowhere'"):
                shop.decision("nowhere")
            with pytest.raises(ConflictError):
                shop.event("e", made.id, 6.0)
            with pytest.raises(zib.InvalidParameterError, match="`value` must lie in"):
                shop.event("h", made.id, 1e300)
            with pytest.raises(Refused):
                shop.arms()
            assert admin.bandits() == ["shop"]
            assert admin.ready()
            admin.add_arm("D")
            admin.pause_arm("C")
            admin.retire_arm("B")
            admin.resume_arm("C")
            admin.set_shadow("A")
            assert shop.decide("n").kind == "shadow"
            admin.set_shadow(None)
            assert admin.arms() == ledger.arms
            assert admin.parked() == ledger.parked()
            assert admin.audit(3) == ledger.audit(3)
            assert (found := admin.statistics())["name"] == "shop"
            assert (found["duplicates"], found["conflicts"], found["parked"]) == (3, 1, 1)
            assert admin.overview()["status"]["name"] == "shop"
            ledger.decide("old", at=made.at - 7200.0)
            mine = admin.export(quick_folder / "mine.csv", until=made.at + 9.0)
            ledger.export(quick_folder / "theirs.csv")
            assert mine.read_text() == (quick_folder / "theirs.csv").read_text()
            assert mine.read_text().count("\n") == 2
            with pytest.raises(zib.InvalidParameterError, match="fewer than 5 conversions"):
                admin.export(quick_folder / "thin.csv", pending="thin")
            assert not list(quick_folder.glob("thin*")), "no half of a file is left behind"
        with Client(running.url, "shop", token="wrong") as nobody, pytest.raises(Refused):
            nobody.decide("o")
        with (
            Client(running.url, "nowhere", token=running.tokens["decide"]) as nowhere,
            pytest.raises(LedgerError, match="there is no such bandit"),
        ):
            nowhere.decide("o")
    with Client(running.url, "shop", timeout=0.05) as late:
        assert not late.ready()


# ------------------------------------------------------------------------------------------ async


def test_many_calls_at_once_in_an_event_loop(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.faults = ["lost", 503, httpx.ReadTimeout("")] * 10

    async def calls() -> list[Decision]:
        async with service.async_client() as client:
            decisions = await asyncio.gather(*(client.decide(f"k{i}") for i in range(40)))
            receipt = await client.event("e", decisions[0].id, 2.0)
            assert receipt.status == "applied"
            with pytest.raises(ConflictError):
                await client.event("e", decisions[0].id, 3.0)
            return decisions

    decisions = asyncio.run(calls())
    assert decisions == [service.ledger.decide(f"k{i}") for i in range(40)]
    assert service.ledger.check().decisions == 40


def test_a_process_that_was_forked_makes_connections_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Client(ADDRESS) as client:
        before = client._connected()
        assert client._connected() is before
        monkeypatch.setattr("zib.live.calling.os.getpid", lambda: -1)
        assert client._connected() is not before
        client._http.close()
    before.close()


def test_an_answer_that_breaks_off_is_asked_for_again(tmp_path: Path, pauses: list[float]) -> None:
    class Torn(httpx.SyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            yield b"key,arm"
            raise httpx.ReadError("the connection was closed")

    answers = [httpx.Response(200, stream=Torn()), httpx.Response(200, content=b"key,arm\nk,A\n")]
    transport = httpx.MockTransport(lambda request: answers.pop(0))
    client = Client(ADDRESS, http=httpx.Client(transport=transport))
    out = client.export(tmp_path / "log.csv")
    assert out.read_text() == "key,arm\nk,A\n"
    answers += [httpx.Response(200, stream=Torn()), httpx.Response(500, content=b"")]
    with pytest.raises(LedgerError):
        client.export(tmp_path / "other.csv")
    assert [file.name for file in tmp_path.iterdir()] == ["log.csv"]


def test_every_method_is_there_in_both() -> None:
    def names(kind: type) -> set[str]:
        return {name for name in dir(kind) if not name.startswith("_")}

    assert names(Client) == names(AsyncClient)
    mirrored = {"decide", "decide_many", "decision", "decision_id", "event", "event_many", "revise"}
    mirrored |= {"revise_many", "cancel", "cancel_many", "arms", "add_arm", "pause_arm", "audit"}
    mirrored |= {"resume_arm", "retire_arm", "set_shadow", "statistics", "parked", "export"}
    assert mirrored <= names(Client)


@pytest.mark.slow
def test_the_package_needs_httpx_only_when_a_client_is_made() -> None:
    program = (
        "import sys; sys.modules['httpx'] = None; import zib.live\n"
        "try: zib.live.Client('http://x')\n"
        "except zib.live.LedgerError as error: print(error)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.stdout == "calling a service needs httpx: pip install 'zib[client]'\n", ran.stderr
