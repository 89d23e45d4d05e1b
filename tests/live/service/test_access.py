"""Tokens, roles, sessions, other sites and rates, on the bytes of headers."""

import hashlib
import hmac
from typing import Any

import pytest

from tests.live.scene import Clock
from zib.live.service import access as module
from zib.live.service.access import (
    FAILED,
    FAILED_AGAIN,
    MOST_KEPT,
    SESSION,
    Access,
    Buckets,
    Caller,
    Refused,
    client_address,
    is_secure,
    new_token,
    session_of,
    set_cookie,
)
from zib.live.service.config import Config, Limits, Server, Token

PLAIN = {"shop": "zib_for-the-shop", "page": "zib_for-the-page", "boss": "zib_for-the-boss"}
ROLES = {"shop": "decide", "page": "read", "boss": "admin"}
HOST = (b"host", b"127.0.0.1:8080")


def kept(*names: str) -> tuple[Token, ...]:
    return tuple(
        Token(name=n, role=ROLES[n], sha256=hashlib.sha256(PLAIN[n].encode()).hexdigest())
        for n in names
    )


def access(*names: str, clock: Any = None, workers: int = 1, **limits: float) -> Access:
    config = Config(
        "postgresql://x/y",
        server=Server(workers=workers),
        limits=Limits(**limits),
        tokens=kept(*names),
    )
    clock = clock or Clock()
    return Access(config, clock=clock, ticks=clock)


def bearer(name: str) -> bytes:
    return f"Bearer {PLAIN[name]}".encode()


def status(call: Any, *args: Any, **options: Any) -> int:
    with pytest.raises(Refused) as caught:
        call(*args, **options)
    assert caught.value.sentence
    return caught.value.status


# ------------------------------------------------------------------------------- tokens and roles


def test_a_new_token_is_long_and_its_hash_is_that_of_the_token() -> None:
    token, digest = new_token()
    assert len(token) == 4 + 43  # 256 bits
    assert hashlib.sha256(token.encode()).hexdigest() == digest
    assert new_token()[0] != token


@pytest.mark.parametrize("name", PLAIN)
def test_a_token_tells_who_calls(name: str) -> None:
    assert access(*PLAIN).caller(bearer(name)) == Caller(name, ROLES[name])


@pytest.mark.parametrize(
    "sent",
    [
        None, b"", b"Bearer", b"Bearer ", b"Basic zib_for-the-shop", b"zib_for-the-shop",
        b"Bearer zib_for-the-sho", b"Bearer zib_for-the-shopp", b"Bearer \xff\x00",
        b"Bearer " * 999,
    ],
    ids=range(10),
)  # fmt: skip
def test_other_headers_are_refused(sent: bytes | None) -> None:
    assert status(access(*PLAIN).caller, sent) == 401


def test_the_hash_of_a_token_is_no_token() -> None:
    digest = hashlib.sha256(PLAIN["boss"].encode()).hexdigest()
    assert status(access(*PLAIN).caller, f"Bearer {digest}".encode()) == 401


@pytest.mark.parametrize(
    ("role", "may"), [("decide", {"decide"}), ("read", {"read"}), ("admin", {*ROLES.values()})]
)
def test_what_a_role_may(role: str, may: set[str]) -> None:
    guard, caller = access(*PLAIN), Caller("x", role)
    for needed in ROLES.values():
        if needed in may:
            guard.need(caller, needed)
        else:
            assert status(guard.need, caller, needed) == 403
    guard.need(caller, "decide", "read")


def test_every_stored_hash_is_compared_whichever_matches(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, compare = [], hmac.compare_digest

    def counted(a: bytes, b: bytes) -> bool:
        calls.append((a, b))
        return compare(a, b)

    guard = access(*PLAIN)
    monkeypatch.setattr(module.hmac, "compare_digest", counted)
    for sent in (*map(bearer, PLAIN), b"Bearer nobody"):
        calls.clear()
        try:
            guard.caller(sent)
        except Refused:
            assert sent == b"Bearer nobody"
        assert len(calls) == len(PLAIN)
        assert {len(part) for pair in calls for part in pair} == {32}


# ------------------------------------------------------------------------------------ without them


def test_without_tokens_everybody_here_is_an_admin() -> None:
    caller = access().admit([HOST], "127.0.0.1", changes=True)
    assert caller == Caller("local", "admin")


@pytest.mark.parametrize("host", [b"localhost", b"LOCALHOST:80", b"127.0.0.1", b"[::1]:8080"])
def test_names_of_this_machine_are_answered(host: bytes) -> None:
    access().check_host(host)


@pytest.mark.parametrize(
    "host", [None, b"", b"evil.example", b"localhost.evil.example", b"127.0.0.1.evil.example:80",
             b"10.0.0.1", b"[::2]", b"\xff", b"0.0.0.0", b"::1:80:evil"]
)  # fmt: skip
def test_a_name_that_was_pointed_at_this_machine_is_refused_without_tokens(
    host: bytes | None,
) -> None:
    assert status(access().check_host, host) == 403
    access("shop").check_host(host)


def test_without_tokens_a_proxy_lets_nobody_in() -> None:
    headers = [HOST, (b"x-forwarded-for", b"203.0.113.7")]
    assert status(access().admit, headers, "127.0.0.1", changes=False) == 403
    access().admit([HOST, (b"x-forwarded-for", b"::1")], "127.0.0.1", changes=False)


@pytest.mark.parametrize(
    ("origin", "site", "own"),
    [
        (None, None, True),
        (b"http://127.0.0.1:8080", None, True),
        (b"http://127.0.0.1:8080", b"same-origin", True),
        (None, b"none", True),
        (b"http://evil.example", None, False),
        (b"http://127.0.0.1:8081", None, False),
        (b"null", None, False),
        (b"", None, False),
        (b"http://[bad", None, False),
        (b"http://127.0.0.1:8080", b"cross-site", False),
        (None, b"same-site", False),
    ],
)
def test_changes_that_another_site_has_caused_are_refused(
    origin: bytes | None, site: bytes | None, own: bool
) -> None:
    headers = [HOST, (b"origin", origin), (b"sec-fetch-site", site)]
    sent = [(name, value) for name, value in headers if value is not None]
    guard = access()
    guard.admit(sent, "127.0.0.1", changes=False)
    if own:
        guard.admit(sent, "127.0.0.1", changes=True)
    else:
        assert status(guard.admit, sent, "127.0.0.1", changes=True) == 403


def test_a_session_does_not_help_another_site_either() -> None:
    guard = access(*PLAIN)
    cookie = (b"cookie", f"zib_session={guard.login(PLAIN['boss'])}".encode())
    sent = [HOST, cookie, (b"sec-fetch-site", b"cross-site")]
    assert status(guard.admit, sent, "127.0.0.1", changes=True) == 403
    with_token = [*sent, (b"authorization", bearer("boss"))]  # no site can make a browser do this
    assert guard.admit(with_token, "127.0.0.1", changes=True).name == "boss"


# ---------------------------------------------------------------------------------------- sessions


def cookie_of(value: str) -> bytes:
    return f"theme=dark; zib_session={value}; x".encode()


def test_a_session_lasts_until_it_expires_or_its_token_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ZIB_SESSION_KEY", "shared by the workers")
    clock = Clock()
    guard = access(*PLAIN, clock=clock)
    cookie = cookie_of(guard.login(PLAIN["page"]))
    assert guard.caller(None, cookie) == Caller("page", "read")
    assert access(*PLAIN, clock=clock).caller(None, cookie) == Caller("page", "read")  # a worker
    assert status(access("shop", "boss", clock=clock).caller, None, cookie) == 401
    clock.now += SESSION - 1
    assert guard.caller(None, cookie).name == "page"
    clock.now += 1
    assert status(guard.caller, None, cookie) == 401


def test_a_new_token_under_the_same_name_ends_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZIB_SESSION_KEY", "shared by the workers")
    cookie = cookie_of(access("page").login(PLAIN["page"]))
    monkeypatch.setitem(PLAIN, "page", "zib_another")
    assert status(access("page").caller, None, cookie) == 401


def test_whoever_has_read_the_file_cannot_make_a_session() -> None:
    value = access("boss").login(PLAIN["boss"])  # the same hash, another key
    assert status(access("boss").caller, None, cookie_of(value)) == 401


def test_a_session_that_was_tampered_with_is_none() -> None:
    guard = access(*PLAIN)
    value = guard.login(PLAIN["page"])
    name, expiry, nonce, signature = value.split(":")
    for wrong in (
        f"boss:{expiry}:{nonce}:{signature}",
        f"{name}:{int(expiry) + 1}:{nonce}:{signature}",
        f"{name}:{expiry}:{nonce[::-1]}x:{signature}",
        f"{name}:{expiry}:{nonce}:{signature[:-1]}",
        f"{name}:{expiry}:{nonce}:\xff",
        f"{name}:²:{nonce}:{signature}",
        f"{name}:{'9' * 5000}:{nonce}:{signature}",
        ":::", ":", name, "",
    ):  # fmt: skip
        assert status(guard.caller, None, cookie_of(wrong)) == 401
    assert guard.caller(None, cookie_of(value)).name == "page"


def test_a_token_that_may_only_decide_does_not_open_the_page() -> None:
    assert status(access(*PLAIN).login, PLAIN["shop"]) == 403


def test_forms_carry_a_value_of_their_session() -> None:
    guard = access(*PLAIN)
    one, two = (cookie_of(guard.login(PLAIN["boss"])) for _ in range(2))
    guard.check_csrf(one, guard.csrf(one))
    for wrong in (guard.csrf(two), guard.csrf(None), "", "é", "\udcff"):
        assert status(guard.check_csrf, one, wrong) == 403


def test_the_cookie_is_for_this_site_and_no_script() -> None:
    line = set_cookie("a:1:b:c", secure=True)
    assert line.startswith("zib_session=a:1:b:c; Path=/; Max-Age=604800; ")
    assert {"HttpOnly", "SameSite=Strict", "Secure"} <= set(line.split("; "))
    assert "Secure" not in set_cookie("a", secure=False)
    assert "zib_session=; Path=/; Max-Age=0" in set_cookie(None, secure=False)
    assert session_of(b"a=b; zib_session=v") == "v"
    assert session_of(b"zib_sessions=v; zib_session=") is None


def test_proxies_on_this_machine_are_believed_and_no_others() -> None:
    assert is_secure("https", "203.0.113.7", None)
    assert is_secure("http", "127.0.0.1", b"https")
    assert not is_secure("http", "203.0.113.7", b"https")
    assert not is_secure("http", "127.0.0.1", b"https, http")
    assert client_address("127.0.0.1", b"198.51.100.1, 203.0.113.7") == "203.0.113.7"
    assert client_address("203.0.113.9", b"198.51.100.1") == "203.0.113.9"


# --------------------------------------------------------------------------------------- how often


def test_a_bucket_gives_a_burst_and_then_its_rate() -> None:
    clock = Clock(0.0)
    buckets = Buckets(10.0, 5.0, clock)
    assert [buckets.take("a") for _ in range(5)] == [0.0] * 5
    assert buckets.take("a") == pytest.approx(0.1)
    assert buckets.take("b") == 0.0
    clock.now = 0.1
    assert buckets.take("a") == 0.0
    assert buckets.wait("a") == pytest.approx(0.1)
    clock.now = -1.0  # a clock that went back gives nothing away
    assert buckets.take("a") > 0.0
    clock.now = 100.0
    assert sum(buckets.take("a") == 0.0 for _ in range(20)) == 5


def test_over_a_long_time_no_more_than_rate_and_burst_get_through() -> None:
    clock = Clock(0.0)
    buckets = Buckets(7.0, 3.0, clock)
    through = 0
    for i in range(10_000):
        clock.now = i / 100.0
        through += buckets.take("a") == 0.0
    assert 700 <= through <= 703


def test_buckets_take_bounded_memory() -> None:
    buckets = Buckets(1.0, 1.0, Clock())
    for i in range(MOST_KEPT + 100):
        buckets.take(str(i))
    assert len(buckets._kept) == MOST_KEPT


def test_a_rate_holds_per_token_and_is_divided_among_workers() -> None:
    clock = Clock()
    guard = access(*PLAIN, clock=clock, workers=2, rate=10.0)
    shop = [HOST, (b"authorization", bearer("shop"))]
    for _ in range(5):
        guard.admit(shop, "203.0.113.7", changes=True)
    with pytest.raises(Refused) as caught:
        guard.admit(shop, "203.0.113.8", changes=True)
    assert caught.value.status == 429
    assert caught.value.retry_after == pytest.approx(0.2)
    guard.admit([HOST, (b"authorization", bearer("boss"))], "203.0.113.7", changes=True)
    clock.now += 0.2
    guard.admit(shop, "203.0.113.7", changes=True)


def test_without_tokens_the_rate_holds_per_address() -> None:
    guard = access(rate=1.0, burst=2.0)
    for address in ("127.0.0.1", "127.0.0.2"):
        guard.admit([HOST], address, changes=False)
        guard.admit([HOST], address, changes=False)
        assert status(guard.admit, [HOST], address, changes=False) == 429


def test_unknown_tokens_are_limited_too() -> None:
    guard = access("shop", rate=1.0)
    wrong = [HOST, (b"authorization", b"Bearer x")]
    assert status(guard.admit, wrong, "203.0.113.7", changes=False) == 401
    assert status(guard.admit, wrong, "203.0.113.7", changes=False) == 429


def test_wrong_log_ins_are_limited_per_address() -> None:
    clock = Clock()
    guard = access(*PLAIN, clock=clock)
    for _ in range(FAILED):
        assert status(guard.login, "wrong", "203.0.113.7") == 401
    assert status(guard.login, "wrong", "203.0.113.7") == 429
    assert status(guard.login, PLAIN["boss"], "203.0.113.7") == 429
    guard.login(PLAIN["boss"], "203.0.113.8")
    clock.now += FAILED_AGAIN
    for _ in range(3):
        guard.login(PLAIN["boss"], "203.0.113.7")  # right ones cost nothing
