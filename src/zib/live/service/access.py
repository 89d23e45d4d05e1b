"""Who may do what: tokens, roles, sessions of the page, and how often one may ask.

Nothing here knows of a web framework: it takes the bytes of headers, as ASGI has them. Whatever is
refused raises `Refused`, with the status and the sentence of the answer.

Without tokens everybody on this machine is an admin. What a browser can be made to send from
elsewhere is refused all the same: requests whose Host is not this machine (a name that was pointed
at it), and changes that another site has caused.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import os
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import NamedTuple

from zib.live.service.config import ROLES, Config, Token, is_loopback

MAY = {"decide": {"decide"}, "read": {"read"}, "admin": set(ROLES)}
COOKIE = "zib_session"
SESSION = 7 * 86_400  # seconds that one stays logged in
SESSION_KEY = "ZIB_SESSION_KEY"  # environment variable that the workers of a service share
FAILED = 10  # wrong tokens that an address may log in with at once
FAILED_AGAIN = 6.0  # seconds until it may with another one
MOST_KEPT = 10_000  # callers or addresses whose rate is remembered

Headers = Iterable[tuple[bytes, bytes]]


class Refused(Exception):
    """A request that is not answered.

    Attributes
    ----------
    status
        Of the answer: 401, 403 or 429.
    sentence
        Says why.
    retry_after
        Seconds after which it may be tried again; None: it is of no use.
    """

    def __init__(self, status: int, sentence: str, retry_after: float | None = None) -> None:
        super().__init__(sentence)
        self.status = status
        self.sentence = sentence
        self.retry_after = retry_after


class Caller(NamedTuple):
    """Who asks: the name of the token and its role."""

    name: str
    role: str

    def may(self, *roles: str) -> bool:
        """Whether it may do what one of these roles may."""
        return not MAY[self.role].isdisjoint(roles)


LOCAL = Caller("local", "admin")


def new_token() -> tuple[str, str]:
    """Return a token, which nobody can guess, and the hash that live.toml keeps of it."""
    token = f"zib_{secrets.token_urlsafe(32)}"
    return token, hashlib.sha256(token.encode()).hexdigest()


class Buckets:
    """Token buckets: so many a second, and so many at once.

    Parameters
    ----------
    rate
        A second.
    burst
        At once, at least 1.
    clock
        Seconds, from whenever.
    """

    def __init__(self, rate: float, burst: float, clock: Callable[[], float]) -> None:
        self._rate = rate
        self._burst = max(burst, 1.0)
        self._clock = clock
        self._kept: OrderedDict[str, tuple[float, float]] = OrderedDict()  # what was left, and when

    def _left(self, key: str, now: float) -> float:
        left, at = self._kept.get(key, (self._burst, now))
        return min(self._burst, left + max(now - at, 0.0) * self._rate)

    def wait(self, key: str) -> float:
        """Return in how many seconds one may be taken; 0: now."""
        return max(1.0 - self._left(key, self._clock()), 0.0) / self._rate

    def take(self, key: str) -> float:
        """Take one and return 0, or take none and return in how many seconds one may be."""
        now = self._clock()
        left = self._left(key, now)
        if left < 1.0:
            return (1.0 - left) / self._rate
        self._kept[key] = (left - 1.0, now)
        self._kept.move_to_end(key)
        if len(self._kept) > MOST_KEPT:  # the one that was quiet for longest has most likely
            self._kept.popitem(last=False)  # a full bucket again, as one that is not kept
        return 0.0


class Access:
    """Decides who may do what.

    Parameters
    ----------
    config
        Tokens, limits and the number of workers, which share the rate evenly.
    clock
        Seconds since 1970, for sessions.
    ticks
        Seconds that never go back, for rates.

    Examples
    --------
    >>> token, digest = new_token()
    >>> shop = Token(name="shop", role="decide", sha256=digest)
    >>> access = Access(Config("live.db", tokens=(shop,)))
    >>> caller = access.caller(f"Bearer {token}".encode())
    >>> caller
    Caller(name='shop', role='decide')
    >>> access.need(caller, "decide")
    >>> access.need(caller, "admin")
    Traceback (most recent call last):
    zib.live.service.access.Refused: the token 'shop' has the role decide: this needs admin
    """

    def __init__(
        self,
        config: Config,
        *,
        clock: Callable[[], float] = time.time,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        self.tokens = config.tokens
        self._digests = [(bytes.fromhex(token.sha256), token) for token in config.tokens]
        self._clock = clock
        # Sessions cannot be made by who has read live.toml: their key is not in it.
        self._key = (os.environ.get(SESSION_KEY) or secrets.token_hex(32)).encode()
        rate, burst = config.limits.rate, config.limits.burst or config.limits.rate
        n = config.server.workers
        self._rates = Buckets(rate / n, burst / n, ticks) if rate else None
        self._failures = Buckets(1.0 / FAILED_AGAIN, FAILED, ticks)

    # --------------------------------------------------------------------------------- all at once

    def admit(self, headers: Headers, peer: str, *, changes: bool) -> Caller:
        """Return who asks, after all checks but that of the role.

        Parameters
        ----------
        headers
            Names in small letters, and values, as in the scope of ASGI.
        peer
            Address of the other end of the connection.
        changes
            Whether the request changes something.
        """
        authorization = cookie = host = origin = site = forwarded = None
        for name, value in headers:
            if name == b"authorization":
                authorization = value
            elif name == b"cookie":
                cookie = value if cookie is None else cookie + b"; " + value
            elif name == b"host":
                host = value
            elif name == b"origin":
                origin = value
            elif name == b"sec-fetch-site":
                site = value
            elif name == b"x-forwarded-for":
                forwarded = value
        self.check_host(host)
        if changes and authorization is None:  # a browser sends cookies by itself, tokens never
            self.check_origin(origin, site, host)
        address = client_address(peer, forwarded)
        if not self.tokens and forwarded is not None and not is_loopback(address):
            raise Refused(403, "without tokens the service answers nobody from elsewhere")
        try:
            caller = self.caller(authorization, cookie)
        except Refused:
            self.spend(f"?{address}")
            raise
        self.spend(caller.name if self.tokens else f"?{address}")
        return caller

    # ----------------------------------------------------------------------------- tokens and roles

    def caller(self, authorization: bytes | None, cookie: bytes | None = None) -> Caller:
        """Return who sends these headers, or refuse."""
        if not self.tokens:
            return LOCAL
        if authorization is not None:
            scheme, _, sent = authorization.partition(b" ")
            token = self._token(sent.strip()) if scheme.lower() == b"bearer" else None
            if token is None:
                raise Refused(401, "the token is not known: send `Authorization: Bearer TOKEN`")
        else:
            value = session_of(cookie)
            token = None if value is None else self._session(value)
            if token is None:
                raise Refused(401, "a token is needed: send `Authorization: Bearer TOKEN`")
        return Caller(token.name, token.role)

    def need(self, caller: Caller, *roles: str) -> None:
        """Refuse who may not do what one of these roles may."""
        if not caller.may(*roles):
            raise Refused(
                403,
                f"the token {caller.name!r} has the role {caller.role}: this needs "
                f"{' or '.join(roles)}",
            )

    def _token(self, sent: bytes) -> Token | None:
        """Return the token that was sent; the time it takes does not depend on which it is."""
        digest, found = hashlib.sha256(sent).digest(), None
        for kept, token in self._digests:
            if hmac.compare_digest(kept, digest):
                found = token
        return found

    # ------------------------------------------------------------------------- sessions of the page

    def login(self, sent: str, address: str = "") -> str:
        """Return the value of the cookie for a token that was typed in, or refuse."""
        wait = self._failures.wait(address)
        if wait > 0.0:
            raise Refused(429, "too many wrong tokens were tried: wait a little", wait)
        token = self._token(sent.strip().encode("utf-8", "surrogateescape"))
        if token is None:
            self._failures.take(address)
            raise Refused(401, "this token is not known")
        self.need(Caller(token.name, token.role), "read")
        content = f"{token.name}:{int(self._clock()) + SESSION}:{secrets.token_hex(8)}"
        return f"{content}:{self._sign(token, 'session', content)}"

    def _session(self, value: str) -> Token | None:
        """Return the token that a session was begun with, if it is still there."""
        content, _, signature = value.rpartition(":")
        name, _, rest = content.partition(":")
        expiry = rest.partition(":")[0]
        found = None
        for token in self.tokens:
            if token.name == name:
                found = token
        if found is None or not (expiry.isascii() and expiry.isdigit()):
            return None
        expected = self._sign(found, "session", content)
        if not hmac.compare_digest(expected.encode(), signature.encode()):
            return None
        return found if int(expiry) > self._clock() else None

    def _sign(self, token: Token, purpose: str, content: str) -> str:
        key = self._key + bytes.fromhex(token.sha256)
        return hmac.new(key, f"{purpose}:{content}".encode(), "sha256").hexdigest()

    def csrf(self, cookie: bytes | None) -> str:
        """Return what forms of a session carry, so that no other site can fill them in."""
        value = session_of(cookie)
        if value is None:  # without tokens there are none; other sites are kept out by their Origin
            return hmac.new(self._key, b"csrf:local", "sha256").hexdigest()
        return hmac.new(self._key, f"csrf:{value}".encode(), "sha256").hexdigest()

    def check_csrf(self, cookie: bytes | None, sent: str) -> None:
        """Refuse a form that this session was not given."""
        if not hmac.compare_digest(self.csrf(cookie).encode(), sent.encode("utf-8", "replace")):
            raise Refused(403, "the form has expired: load the page again")

    # ---------------------------------------------------------------------------------- other sites

    def check_host(self, host: bytes | None) -> None:
        """Without tokens: refuse names of this machine that others have given it."""
        if not self.tokens and not _is_here(host):
            raise Refused(403, "without tokens the service answers on 127.0.0.1 and localhost only")

    def check_origin(self, origin: bytes | None, site: bytes | None, host: bytes | None) -> None:
        """Refuse a change that another site has caused; programs send neither header."""
        if site is not None:
            own = site in (b"same-origin", b"none")
        elif origin is not None:
            own = _plain(origin).partition("://")[2].lower() == _plain(host).lower() != ""
        else:
            own = True
        if not own:
            raise Refused(403, "the request comes from another site")

    # ------------------------------------------------------------------------------------ how often

    def spend(self, key: str) -> None:
        """Count one request, or refuse it."""
        wait = self._rates.take(key) if self._rates is not None else 0.0
        if wait > 0.0:
            raise Refused(429, "too many requests: wait a little", wait)


# ---------------------------------------------------------------------------------------- headers


def session_of(cookie: bytes | None) -> str | None:
    """Return the value of our cookie in a Cookie header."""
    for part in _plain(cookie).split(";"):
        name, equals, value = part.strip().partition("=")
        if equals and name == COOKIE and value:
            return value
    return None


def set_cookie(value: str | None, *, secure: bool) -> str:
    """Return a Set-Cookie header; None logs out."""
    age = 0 if value is None else SESSION
    more = "; Secure" if secure else ""
    return f"{COOKIE}={value or ''}; Path=/; Max-Age={age}; HttpOnly; SameSite=Strict{more}"


def is_secure(scheme: str, peer: str, forwarded_proto: bytes | None) -> bool:
    """Whether the browser came by https; a proxy is believed if it is on this machine."""
    if forwarded_proto is not None and is_loopback(peer):
        return _plain(forwarded_proto).rpartition(",")[2].strip().lower() == "https"
    return scheme == "https"


def client_address(peer: str, forwarded_for: bytes | None) -> str:
    """Return the address of who asks; a proxy is believed if it is on this machine."""
    if forwarded_for is not None and is_loopback(peer):
        return _plain(forwarded_for).rpartition(",")[2].strip()[:64] or peer
    return peer


@functools.lru_cache(1_000)
def _is_here(host: bytes | None) -> bool:
    """Whether a Host header names this machine, whatever the port."""
    name = _plain(host)
    if name.startswith("["):
        name = name[1:].partition("]")[0]
    elif name.count(":") == 1:
        name = name.partition(":")[0]
    return is_loopback(name)


def _plain(header: bytes | None) -> str:
    return "" if header is None else header.decode("latin-1")
