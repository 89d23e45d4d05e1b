"""The page of a bandit: what to do now, what is known of its arms, and changes by hand.

Everything is made on the server. With JavaScript the sections that changed are sent as server-sent
events and put in place; without, the page loads itself again from time to time. Links lead to a
confirmation, and only its form changes anything.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, quote, urlencode

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from zib.core.validate import InvalidParameterError
from zib.live.answers import LedgerError
from zib.live.book import RETIRED
from zib.live.service import words
from zib.live.service.access import (
    Access,
    Caller,
    Refused,
    client_address,
    is_secure,
    set_cookie,
)
from zib.live.service.bodies import Problem, problem_of
from zib.live.service.feed import Feed
from zib.live.service.rendering import address, headers, marks, page, sections
from zib.live.settings import label_of, label_text

if TYPE_CHECKING:
    from zib.live.ledger import Ledger

HEARTBEAT = 10.0  # seconds without news until a sign of life
REFRESH = 30  # seconds, without JavaScript
MOST_FORM = 20_000  # bytes
ACTIONS = ("pause", "resume", "retire", "add", "shadow")

Ledgers = Mapping[str, "Ledger"]
Handler = Callable[[Request], Awaitable[Response]]


def pages(ledgers: Ledgers, access: Access, feed: Feed) -> Starlette:
    """Return the pages as an application, which answers mistakes by pages, too.

    Parameters
    ----------
    ledgers
        By name of the bandit.
    access
        Who may see and do what.
    feed
        Overviews of the same ledgers.
    """
    return Starlette(
        routes=routes(ledgers, access, feed), exception_handlers={HTTPException: _elsewhere}
    )


def routes(ledgers: Ledgers, access: Access, feed: Feed) -> list[Route]:
    """Return the routes of the pages; see `pages`."""
    those = _Pages(ledgers, access, feed)
    one = "/bandits/{name}"
    return [
        Route("/", those.answered(those.home)),
        Route("/login", those.answered(those.log_in), methods=["GET", "POST"]),
        Route("/logout", those.answered(those.log_out), methods=["POST"]),
        Route(one, those.answered(those.bandit)),
        Route(f"{one}/live", those.answered(those.live)),
        Route(f"{one}/arms/{{action}}", those.answered(those.change), methods=["GET", "POST"]),
    ]


async def _elsewhere(request: Request, error: Exception) -> Response:
    """Answer what no route does."""
    assert isinstance(error, HTTPException)
    problem = Problem(error.status_code, "This takes no such request.")
    if error.status_code == 404:
        problem = Problem(404, "There is nothing here.")
    return refused(problem, error.headers)


def refused(problem: Problem, more: Mapping[str, str] | None = None) -> Response:
    """Return a page that says what went wrong."""
    titles = {401: "Please log in", 403: "Not allowed", 404: "Not found", 429: "Too many requests"}
    status = problem.status
    title = titles.get(status, "That did not work" if status < 500 else "Something is wrong here")
    headers = {**_later(problem), **(more or {})}
    return page("error", status, headers, title=title, sentence=_said(problem), caller=None)


class _Pages:
    def __init__(self, ledgers: Ledgers, access: Access, feed: Feed) -> None:
        self._ledgers = ledgers
        self._access = access
        self._feed = feed

    def answered(self, handler: Handler) -> Handler:
        """Return a handler that answers whatever goes wrong by a page."""

        async def answer(request: Request) -> Response:
            try:
                return await handler(request)
            except Exception as error:
                problem = problem_of(error, request.url.path)
            if problem.status != 401 or request.method == "POST":
                return refused(problem)
            if request.headers.get("sec-fetch-site") == "cross-site":
                # After a link on another site browsers hold our cookie back; they send it when our
                # own page leads on.
                return page("again", caller=None)
            return _led(f"/login?{urlencode({'then': quote(request.url.path)})}")

        return answer

    # ------------------------------------------------------------------------- getting in and out

    async def home(self, request: Request) -> Response:
        """Show the list of the bandits, or the only one."""
        caller = self._reader(request)
        if len(self._ledgers) == 1:
            (name,) = self._ledgers
            return _led(address(name))
        looks = await asyncio.gather(*map(self._feed.look, self._ledgers), return_exceptions=True)
        found = [
            (name, address(name), None if isinstance(look, BaseException) else look.overview)
            for name, look in zip(self._ledgers, looks, strict=True)
        ]
        return self._answer("home", request, caller, bandits=found)

    async def log_in(self, request: Request) -> Response:
        """Ask for a token, and take it."""
        then = _local(request.query_params.get("then", "/"))
        self._access.check_host(_header(request, "host"))
        if not self._access.tokens:
            return _led(then)
        if request.method == "GET":
            return page("login", then=then, problem="", caller=None)
        names = ("origin", "sec-fetch-site", "host")
        self._access.check_origin(*(_header(request, name) for name in names))
        form = await _form(request)
        then = _local(form.get("then", "/"))
        peer = _peer(request)
        from_where = client_address(peer, _header(request, "x-forwarded-for"))
        try:
            value = self._access.login(form.get("token", ""), from_where)
        except Refused as error:
            problem = problem_of(error)
            said = {"then": then, "problem": _said(problem)}
            return page("login", problem.status, _later(problem), caller=None, **said)
        return _led(then, self._session(request, value))

    async def log_out(self, request: Request) -> Response:
        """Forget who it was."""
        self._reader(request)
        await self._checked_form(request)
        return _led("/login", self._session(request, None))

    def _session(self, request: Request, value: str | None) -> dict[str, str]:
        proto = _header(request, "x-forwarded-proto")
        secure = is_secure(request.url.scheme, _peer(request), proto)
        return {"Set-Cookie": set_cookie(value, secure=secure)}

    def _reader(self, request: Request, role: str = "read") -> Caller:
        changes = request.method not in ("GET", "HEAD")
        caller = self._access.admit(request.scope["headers"], _peer(request), changes=changes)
        self._access.need(caller, role)
        return caller

    async def _checked_form(self, request: Request) -> dict[str, str]:
        form = await _form(request)
        self._access.check_csrf(_header(request, "cookie"), form.get("proof", ""))
        return form

    # -------------------------------------------------------------------------------- one bandit

    async def bandit(self, request: Request) -> Response:
        """Show a bandit."""
        caller = self._reader(request)
        name = self._name(request)
        look = await self._feed.look(name)
        admin = caller.role == "admin"
        done = ""
        if "done" in request.query_params:
            arm = _given_arm(request.query_params.get("arm", "null"))
            ledger = self._ledgers[name]
            shadow = look.overview.status.shadow
            done = words.done(request.query_params["done"], arm, ledger.arms, shadow)
        seen = look.overview
        made = await sections(look, name, admin)
        return self._answer(
            "bandit", request, caller, name=name, here=address(name), sections=made,
            marks=marks(made), admin=admin, done=done, refresh=REFRESH,
            others=[other for other in self._ledgers if other != name], seen=seen,
            arms=[arm for arm in seen.arms if arm.status != RETIRED],
            settings=self._ledgers[name].settings,
        )  # fmt: skip

    async def live(self, request: Request) -> Response:
        """Send the sections that change."""
        name = self._name(request)
        more = {"X-Accel-Buffering": "no", **headers()}
        kind = "text/event-stream"
        try:
            caller = self._reader(request)
        except Refused as refusal:
            if refusal.status == 429:
                raise
            return Response(_event("ended", ""), 200, more, kind)  # browsers hide why it is refused
        had = dict(
            pair.split(":", 1)
            for pair in request.query_params.get("marks", "").split(",")
            if ":" in pair
        )
        stream = self._stream(request, name, caller.role == "admin", had)
        return StreamingResponse(stream, 200, more, kind)

    async def _stream(
        self, request: Request, name: str, admin: bool, had: dict[str, str]
    ) -> AsyncIterator[str]:
        def allowed() -> bool:
            try:  # tokens are removed, and sessions end
                who = self._access.caller(
                    _header(request, "authorization"), _header(request, "cookie")
                )
            except Refused:
                return False
            return who.may("read") and who.may("admin") is admin

        yield _event("beat", "")
        quiet = 0.0
        async for look in self._feed.looks(name, allowed):
            made = {} if look is None else await sections(look, name, admin)
            now = marks(made)
            changed = {id: made[id] for id, mark in now.items() if had.get(id) != mark}
            had |= now
            if changed:
                yield _event("sections", json.dumps([changed, now], ensure_ascii=False))
                quiet = 0.0
                continue
            quiet += self._feed.every
            if quiet >= HEARTBEAT:
                yield _event("beat", "")
                quiet = 0.0
        if not self._feed.stopped:
            yield _event("ended", "")

    # ----------------------------------------------------------------------------------- changes

    async def change(self, request: Request) -> Response:
        """Ask whether something shall be changed, and change it."""
        caller = self._reader(request, "admin")
        name = self._name(request)
        action = request.path_params["action"]
        if action not in ACTIONS:
            raise Problem(404, f"There is no action {action!r}.")
        if request.method == "GET":
            arm = self._arm(name, action, dict(request.query_params))
            seen = (await self._feed.look(name)).overview
            asked = words.question(action, arm, seen, self._ledgers[name].settings)
            return self._answer(
                "confirm", request, caller, name=name, here=address(name), asked=asked,
                arm=label_text(arm), address=f"{address(name)}/arms/{action}",
            )  # fmt: skip
        form = await self._checked_form(request)
        arm = self._arm(name, action, form)
        if action == "retire" and form.get("sure") != "yes":
            raise Problem(422, "Retiring is for good: please tick the box that says so.")
        try:
            await asyncio.to_thread(self._do, name, action, arm, caller.name)
        except InvalidParameterError as problem:
            raise Problem(409, f"Nothing was changed: {problem}") from problem
        self._feed.forget(name)
        query = urlencode({"done": action, "arm": label_text(arm)})
        return _led(f"{address(name)}?{query}")

    def _do(self, name: str, action: str, arm: Hashable, who: str) -> None:
        ledger = self._ledgers[name]
        do: dict[str, Callable[..., None]] = {
            "pause": ledger.pause_arm,
            "resume": ledger.resume_arm,
            "retire": ledger.retire_arm,
            "add": ledger.add_arm,
            "shadow": ledger.set_shadow,
        }
        do[action](arm, who=who)

    def _arm(self, name: str, action: str, given: Mapping[str, str]) -> Hashable:
        """Return the arm that is meant, which must be there, or new if it is to be added."""
        if action == "add" and "label" in given:
            label = given["label"].strip()
            if not 0 < len(label) <= words.LONGEST_LABEL:
                raise Problem(
                    422, f"The name of an arm must have 1 to {words.LONGEST_LABEL} letters."
                )
            arm: Hashable = label
        else:
            arm = _given_arm(given.get("arm", ""))
        there = self._ledgers[name].arms
        said = words.label(arm, 60)
        if action == "add" and arm in there:
            raise Problem(409, f"There is an arm {said} already.")
        if action != "add" and arm not in there and not (action == "shadow" and arm is None):
            raise Problem(404, f"There is no arm {said}.")
        if action in ("pause", "resume") and there.get(arm) == RETIRED:
            raise Problem(409, f"{said} is retired, which is for good.")
        return arm

    # ----------------------------------------------------------------------------------- helpers

    def _name(self, request: Request) -> str:
        name: str = request.path_params["name"]
        if name not in self._ledgers:
            raise Problem(404, "There is no such bandit here.")
        return name

    def _answer(self, template: str, request: Request, caller: Caller, **values: Any) -> Response:
        proof = self._access.csrf(_header(request, "cookie"))
        sessions = bool(self._access.tokens)
        return page(template, caller=caller, proof=proof, sessions=sessions, **values)


def _header(request: Request, name: str) -> bytes | None:
    value = request.headers.get(name)
    return None if value is None else value.encode("latin-1")


def _peer(request: Request) -> str:
    return request.client.host if request.client is not None else ""


def _said(problem: Problem) -> str:
    """Return the sentence of a problem as a page has it."""
    if problem.status == 503:
        return "The database does not answer just now. Please try again in a moment."
    sentence = problem.sentence.rstrip(".")
    return f"{sentence[:1].upper()}{sentence[1:]}."


def _later(problem: Problem) -> dict[str, str]:
    after = problem.retry_after
    return {} if after is None else {"Retry-After": str(max(1, round(after)))}


def _led(there: str, more: Mapping[str, str] | None = None) -> Response:
    """Return an answer that leads to another page."""
    return RedirectResponse(there, 303, {**headers(), **(more or {})})


def _given_arm(given: str) -> Hashable:
    try:
        return label_of(given)
    except (ValueError, LedgerError):
        raise Problem(422, "The address does not name an arm.") from None


def _local(address: str) -> str:
    """Return an address of this service; one of another host becomes the front page."""
    plain = address.startswith("/") and not address.startswith(("//", "/\\"))
    return address if plain and address.isprintable() else "/"


async def _form(request: Request) -> dict[str, str]:
    """Return the fields of a form."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MOST_FORM:
            raise Problem(413, "This form is too long.")
    try:
        fields = parse_qs(body.decode(), max_num_fields=10, keep_blank_values=True)
    except ValueError:
        raise Problem(400, "This form cannot be read.") from None
    return {name: values[-1] for name, values in fields.items()}


def _event(kind: str, data: str) -> str:
    """Return a server-sent event; `data` is one line."""
    return f"event: {kind}\ndata: {data}\n\n"
