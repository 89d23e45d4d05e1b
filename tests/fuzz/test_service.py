"""Whatever is sent to whichever route of a service: never an error of its own, always its form.

Requests are made from the service's own OpenAPI document and then spoilt, once or several times: in
the text, in the values, in the path, the query, the headers or the method. What is refused says so
in one sentence that gives nothing away, and has changed nothing in the database.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import random
import re
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest

from tests.fuzz import seeds
from tests.live.service.callers import decision_id
from tests.live.service.forms import refused, refused_page
from tests.live.service.running import Running
from tests.live.service.wire import Answer, Gone, Wire, request

pytestmark = pytest.mark.slow
SECONDS = 15.0
BODY = 20_000  # bytes that are taken
# nothing of these changes by a request that is refused; models and the like go on by themselves
KEPT = ("bandit", "arm", "decision", "event", "audit")
# of pages, which are not in the document: (method, path)
PAGES = [
    ("GET", "/"), ("GET", "/bandits/shop"), ("POST", "/bandits/shop/arms/pause"),
    ("POST", "/bandits/shop/arms/add"), ("GET", "/login"), ("POST", "/login"),
    ("POST", "/logout"),
]  # fmt: skip

NASTY: list[Any] = [
    None, True, False, 0, -1, 1, 7, 0.5, -0.0, 1e308, -1e308, 1e-320, 2**31, 2**53 + 1, 2**63,
    2**64, -(2**63) - 1, 10**30, 1_700_000_000, "", " ", "a", "A", "Z", "\0", "a\0b", "\n",
    "\u202e", "\ud800", "\U0001f4a9", "é" * 300, "x" * 257, "x" * 5000, "' OR 1=1 --",
    "\"; DROP TABLE decision; --", "%s", "{}", "${jndi:x}", "../../etc/passwd",
    "<script>alert(1)</script>", "NaN", "Infinity", "null", "1e5", "2026-05-01",
    "2026-05-01T00:00:00Z", "9999-12-31T23:59:59Z", "0000-00-00", "-1", [], [[]], {}, [None],
    ["A"], ["A", "A"], ["Z"], [1.5], list(range(300)), {"": ""}, {"a": {"b": []}}, [[[[[[1]]]]]],
    "cancel:x",
]  # fmt: skip
RAW = [
    b"", b"\0", b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\u0000", b"\\ud800", b"\xff",
    b"\xc3", b"NaN", b"-Infinity", b"1e999", b"9" * 400, b"-", b"//x", b"/*x*/", b"'",
    b"\xef\xbb\xbf", b"[" * 3000, b'{"a":' * 2000, b" " * 25_000,
]  # fmt: skip
PIECES = [
    "%00", "%ff", "%2e%2e", "%2F", "..", ".", "", "~", "%", "%zz", "é", "x" * 300, "%F0%9F%92%A9",
    "*", "shop", "nobody", "decide", "batch", "v1", "0" * 24, ";", "a=b", "%0d%0aX:%20y",
    "status",
]  # fmt: skip
HEADERS: list[tuple[str, str]] = [
    ("Content-Type", ""), ("Content-Type", "text/plain"),
    ("Content-Type", "application/json;;;="), ("Content-Type", "application/json; charset=utf-7"),
    ("Content-Encoding", "gzip"), ("Accept", "nothing/*"), ("Accept", "\x80"),
    ("Accept-Encoding", "gzip;q=nan"), ("Cookie", "zib_session=x"),
    ("Cookie", "zib_session=a:1:b:c"), ("Cookie", "=;=;;;"),
    ("Cookie", "zib_session=\xff:9999999999999999999:x:y"), ("Authorization", "Bearer x"),
    ("Authorization", "\xff"), ("Origin", "null"), ("Origin", "http://[::1"),
    ("Origin", "https://elsewhere.example"), ("Sec-Fetch-Site", "cross-site"),
    ("X-Forwarded-For", "%"), ("X-Forwarded-For", "1.2.3.4, \xff"),
    ("X-Forwarded-Proto", "gopher"), ("X-Forwarded-Host", "a b"), ("If-None-Match", "*"),
    ("If-Modified-Since", "yesterday"), ("Range", "bytes=9-1"), ("Range", "bytes=0-0"),
    ("Last-Event-ID", "\xff"), ("Expect", "200-maybe"), ("X-HTTP-Method-Override", "DELETE"),
    ("Te", "trailers"), ("Connection", "close, keep-alive"), ("Idempotency-Key", "x"),
    ("Referer", "http://["),
]  # fmt: skip
METHODS = ["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE"]


class Sent(NamedTuple):
    method: str
    path: str
    body: bytes | None
    headers: dict[str, str]


class Maker:
    """Makes requests that a document promises to answer, and spoils them."""

    def __init__(self, document: dict[str, Any], rng: random.Random) -> None:
        self._document = document
        self.rng = rng
        self.routes = [
            (method.upper(), path, operation)
            for path, operations in document["paths"].items()
            for method, operation in operations.items()
            if method.upper() in METHODS
        ]

    def made(self, method: str, path: str, operation: dict[str, Any]) -> Sent:
        """Return a request as the document has it."""
        filled = re.sub(r"{(\w+)}", lambda m: self._name(m.group(1)), path)
        asked = [
            f"{each['name']}={quote(str(self.value(each.get('schema', {}))))}"
            for each in map(self._resolved, operation.get("parameters", ()))
            if each["in"] == "query" and self.rng.random() < 0.5
        ]
        content = self._resolved(operation.get("requestBody", {})).get("content", {})
        if not content:
            return Sent(method, filled + ("?" + "&".join(asked) if asked else ""), None, {})
        kind, inner = next(iter(content.items()))
        body = json.dumps(self.value(inner["schema"])).encode()
        return Sent(method, filled, body, {"Content-Type": kind})

    def _name(self, name: str) -> str:
        return "shop" if name in ("bandit", "name") else self.rng.choice(["0" * 24, ID])

    def _resolved(self, schema: dict[str, Any]) -> dict[str, Any]:
        while "$ref" in schema:
            found: Any = self._document
            for part in schema["$ref"].removeprefix("#/").split("/"):
                found = found[part]
            schema = found
        return schema

    def value(self, schema: dict[str, Any]) -> Any:
        """Return something that a schema allows, more or less."""
        schema, rng = self._resolved(schema), self.rng
        for some in ("anyOf", "oneOf", "allOf"):
            if some in schema:
                return self.value(rng.choice(schema[some]))
        if "enum" in schema:
            return rng.choice(schema["enum"])
        kind = schema.get("type")
        kind = rng.choice(kind) if isinstance(kind, list) else kind
        if kind == "object" or "properties" in schema:
            needed = schema.get("required", ())
            return {
                name: self.named(name, inner)
                for name, inner in schema.get("properties", {}).items()
                if name in needed or rng.random() < 0.4
            }
        if kind == "array":
            return [self.value(schema.get("items", {})) for _ in range(rng.randrange(4))]
        if kind == "string":
            return rng.choice(["A", "B", "k1", "k2", ID])
        if kind in ("number", "integer"):
            return rng.choice([0, 1, 7, round(time.time())])
        return rng.choice([None, True]) if kind in ("null", "boolean") else rng.choice(NASTY)

    def named(self, name: str, schema: dict[str, Any]) -> Any:
        if name in ("key", "id") and self.rng.random() < 0.9:
            return f"{name} {self.rng.randrange(200)}"
        return ID if name == "decision_id" and self.rng.random() < 0.8 else self.value(schema)

    # --------------------------------------------------------------------------------- spoiling

    def spoilt(self, sent: Sent) -> Sent:
        """Return a request with one more thing wrong."""
        ways: list[Callable[[Sent], Sent]] = [
            self._value, self._value, self._value, self._text, self._text, self._path, self._query,
            self._header, self._method,
        ]  # fmt: skip
        return self.rng.choice(ways)(sent)

    def _value(self, sent: Sent) -> Sent:
        try:
            content = json.loads(sent.body or b"")
        except (ValueError, RecursionError):
            return self._text(sent)
        content = self._changed(content)
        return sent._replace(body=json.dumps(content).encode())

    def _changed(self, value: Any) -> Any:
        rng = self.rng
        if isinstance(value, dict) and value and rng.random() < 0.85:
            name = rng.choice(list(value))
            act = rng.random()
            if act < 0.1:
                return {k: v for k, v in value.items() if k != name}
            if act < 0.2:
                return {**value, rng.choice(["x", "", "at", "arms", "Key"]): rng.choice(NASTY)}
            return {**value, name: self._changed(value[name])}
        if isinstance(value, list) and value and rng.random() < 0.7:
            place = rng.randrange(len(value))
            return [*value[:place], self._changed(value[place]), *value[place + 1 :]]
        return rng.choice(NASTY)

    def _text(self, sent: Sent) -> Sent:
        body = sent.body or b""
        place, piece = self.rng.randrange(len(body) + 1), self.rng.choice(RAW)
        left = place + self.rng.choice([0, 0, 1, 5, len(body)])
        return sent._replace(body=body[:place] + piece + body[left:])

    def _path(self, sent: Sent) -> Sent:
        path, question, query = sent.path.partition("?")
        parts = path.split("/")
        place = self.rng.randrange(1, len(parts) + 1)
        parts[place : place + self.rng.randrange(2)] = [self.rng.choice(PIECES)]
        found = quote("/".join(parts), safe="/%;=*~.")
        return sent._replace(path=found + question + query)

    def _query(self, sent: Sent) -> Sent:
        names = ["format", "pending", "since", "until", "kind", "level", "most", "seed", "x", ""]
        value = quote(str(self.rng.choice(NASTY)).encode("utf-8", "replace")[:300])
        more = f"{self.rng.choice(names)}={self.rng.choice([value, *PIECES[:4]])}"
        return sent._replace(path=sent.path + ("&" if "?" in sent.path else "?") + more)

    def _header(self, sent: Sent) -> Sent:
        name, value = self.rng.choice(HEADERS)
        return sent._replace(headers={**sent.headers, name: value})

    def _method(self, sent: Sent) -> Sent:
        return sent._replace(method=self.rng.choice(METHODS))


ID = decision_id("shop", "key 1")


class Watched:
    """Tells whether anything that matters has changed in a database, quickly."""

    def __init__(self, path: str) -> None:
        self._connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        self._version = self._digest = ""

    def digest(self) -> str:
        """Return what stands for the content of all tables that matter."""
        version = str(self._connection.execute("PRAGMA data_version").fetchone())
        if version != self._version:
            self._version = version
            found = hashlib.sha256()
            for table in KEPT:
                for row in self._connection.execute(f"SELECT * FROM {table}"):
                    found.update(repr(row).encode())
            self._digest = found.hexdigest()
        return self._digest

    def close(self) -> None:
        self._connection.close()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    limits = {"body": BODY, "batch": 20, "arms": 12}
    with Running(tmp_path_factory.mktemp("fuzzed"), limits=limits) as running:
        yield running


def judged(sent: Sent, answer: Answer) -> None:
    """Fail unless an answer has the promised form."""
    assert answer.status < 500, "an error of its own"
    if answer.status >= 400 and sent.method != "HEAD":
        (refused if sent.path.startswith("/v1/") else refused_page)(answer)
    if answer.status == 405:
        assert answer.headers.get("allow")


def asked(wire: Wire, sent: Sent) -> Answer:
    wire.send(request(*sent))
    status, headers = wire.head()
    if sent.method == "HEAD":
        return Answer(status, headers, b"")
    if headers.get("content-type", "").startswith("text/event-stream"):  # never ends by itself
        wire.close()
        return Answer(status, headers, b"")
    return Answer(status, headers, wire._body(status, headers))


def test_every_route_refuses_whatever_is_wrong_in_the_promised_form(service: Running) -> None:
    seed = seeds.seed()
    document = service.ask("GET", "/openapi.json").json()
    maker = Maker(document, random.Random(seed))
    routes = [*maker.routes, *((method, path, {}) for method, path in PAGES)]
    assert len(maker.routes) >= 20
    assert service.ask("POST", "/v1/shop/decide", {"key": "key 1"}).json()["id"] == ID
    with contextlib.closing(Watched(service.database)) as watched:
        statuses, reached = fuzzed(service, maker, routes, watched, seed)
    assert "Traceback" not in service.words()
    if seeds.seconds(SECONDS) >= SECONDS:
        unreached = {f"{m} {p}" for m, p, _ in maker.routes} - set(reached)
        assert not unreached, f"no request for {unreached} was good"
        assert sum(statuses.values()) > 1000, statuses
        assert {400, 404, 405, 415, 422} <= set(statuses)
    assert service.stop() == 0


def fuzzed(
    service: Running, maker: Maker, routes: list[Any], watched: Watched, seed: int
) -> tuple[Counter[int], Counter[str]]:
    """Send requests as long as there is time; return the answers, and the routes reached."""
    rng = maker.rng
    statuses: Counter[int] = Counter()
    reached: Counter[str] = Counter()
    wire, end = service.wire(), time.monotonic() + seeds.seconds(SECONDS)
    while time.monotonic() < end:
        method, path, operation = routes[sum(statuses.values()) % len(routes)]
        sent = maker.made(method, path, operation)
        for _ in range(rng.choice([0, 1, 1, 1, 2, 3])):
            sent = maker.spoilt(sent)
        before = watched.digest()
        try:
            try:
                answer = asked(wire, sent)
            except Gone:  # a connection may be closed after a refusal; the request is not lost
                wire.close()
                wire = service.wire()
                answer = asked(wire, sent)
            judged(sent, answer)
            if answer.status >= 400:
                assert watched.digest() == before, "a refused request has changed something"
        except (AssertionError, Gone) as wrong:
            wire.close()
            shown = sent._replace(body=sent.body and sent.body[:300])
            raise AssertionError(f"ZIB_FUZZ_SEED={seed}: {shown}: {wrong}") from wrong
        if wire.socket.fileno() < 0:
            wire = service.wire()
        statuses[answer.status] += 1
        if answer.status < 300:
            reached[f"{method} {path}"] += 1
    wire.close()
    return statuses, reached
