"""The page as text: every section of hand-made overviews, log-in, forms and what they refuse."""

from __future__ import annotations

import asyncio
import dataclasses
import re
from collections.abc import Awaitable, Callable
from html.parser import HTMLParser
from typing import Any

import httpx
import pytest

from tests.live.service import sample
from zib.live.answers import LedgerError
from zib.live.service.access import new_token
from zib.live.service.config import Token
from zib.live.service.feed import Feed, Look
from zib.live.service.rendering import SECTIONS, marks, rendered, sections

VOID = {"meta", "link", "input", "img", "br"}


class Tags(HTMLParser):
    """Collects tags and attributes, and fails where they are not closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("kind", ["overview", "busy", "empty", "unknown_everywhere"])
def test_every_section_is_sound_html_whatever_is_known(kind: str) -> None:
    seen = getattr(sample, kind)()
    sections = rendered(Look(seen, 0.0), "checkout", admin=True)
    assert set(sections) == set(SECTIONS)
    tags = [tag for text in sections.values() for tag in Tags(text).found]
    assert not any(tag == "script" for tag, _ in tags)
    # no handlers and no inline style, which the content security policy forbids
    assert not any(name.startswith("on") or name == "style" for _, a in tags for name in a)
    ids = [found["id"] for _, found in tags if "id" in found]
    assert len(ids) == len(set(ids))
    assert not re.search(r"\bnan\b|\binf\b|>None<", " ".join(sections.values()))


def visited(app: Any, visit: Callable[[httpx.AsyncClient], Awaitable[None]]) -> None:
    """Let a visitor go through the pages of an application."""

    async def run() -> None:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            await visit(client)

    asyncio.run(run())


def proof_in(page: str) -> str:
    found = re.search(r'name="proof" value="(\w+)"', page)
    assert found is not None
    return found[1]


def test_a_change_is_confirmed_and_says_who() -> None:
    ledger = sample.ShownLedger(sample.overview(["A", "<b>"]))

    async def visit(client: httpx.AsyncClient) -> None:
        address = "/bandits/shop/arms/pause"
        asked = await client.get(address, params={"arm": '"<b>"'})
        assert asked.status_code == 200
        assert "Pause &lt;b&gt;?" in asked.text
        fields = {"arm": '"<b>"', "proof": proof_in(asked.text)}
        wrong = await client.post(address, data={**fields, "proof": "x"})
        assert wrong.status_code == 403
        assert ledger.told == []
        done = await client.post(address, data=fields)
        assert done.status_code == 303
        assert ledger.told == [("pause_arm", "<b>", "local")]

    visited(sample.application({"shop": ledger}), visit)


def test_log_in_and_out_and_a_reader_without_forms() -> None:
    reader, digest = new_token()
    tokens = (Token(name="anna", role="read", sha256=digest),)
    ledger = sample.ShownLedger(sample.overview())

    async def visit(client: httpx.AsyncClient) -> None:
        there = "/bandits/shop"
        sent = await client.get(there)
        assert (sent.status_code, sent.headers["location"]) == (
            303,
            "/login?then=%2Fbandits%2Fshop",
        )
        linked = await client.get(there, headers={"sec-fetch-site": "cross-site"})
        assert 'http-equiv="refresh" content="0"' in linked.text
        wrong = await client.post("/login", data={"token": "wrong", "then": there})
        assert (wrong.status_code, 'role="alert"' in wrong.text) == (401, True)
        away = await client.post("/login", data={"token": reader, "then": "//evil.example"})
        assert away.headers["location"] == "/"
        got = await client.post("/login", data={"token": reader, "then": there})
        assert got.headers["location"] == there
        assert "HttpOnly; SameSite=Strict" in got.headers["set-cookie"]
        page = await client.get(there)
        assert page.status_code == 200
        assert re.findall(r'<form[^>]*action="([^"]*)"', page.text) == ["/logout"]
        assert "/arms/pause" not in page.text
        refused = await client.get(f"{there}/arms/pause", params={"arm": '"A"'})
        assert refused.status_code == 403
        fields = {"proof": proof_in(page.text), "arm": '"A"'}
        assert (await client.post(f"{there}/arms/pause", data=fields)).status_code == 403
        assert ledger.told == []
        out = await client.post("/logout", data=fields)
        assert "Max-Age=0" in out.headers["set-cookie"]
        assert (await client.get(there)).status_code == 303

    visited(sample.application({"shop": ledger}, tokens), visit)


def test_what_goes_wrong_is_said_in_a_page_without_details(caplog: Any) -> None:
    class Broken(sample.ShownLedger):
        def overview(self) -> Any:
            raise RuntimeError("secret")

    ledgers = {"a": sample.ShownLedger(sample.empty()), "b": Broken(sample.empty())}

    async def visit(client: httpx.AsyncClient) -> None:
        for address, status in (
            ("/nowhere", 404),
            ("/bandits/c", 404),
            ("/logout", 405),
            ("/bandits/b", 500),
            ("/bandits/a/arms/explode?arm=1", 404),
            ("/bandits/a/arms/pause?arm=[[", 422),
            ("/bandits/a/arms/pause?arm=%22Z%22", 404),
            ("/bandits/a/arms/add?label=A", 409),
            ("/bandits/a/arms/add?label=", 422),
        ):
            answer = await client.get(address)
            assert (address, answer.status_code) == (address, status)
            assert "<h1>" in answer.text
            assert "secret" not in answer.text
            assert answer.headers["content-security-policy"].startswith("default-src 'none'")
            assert answer.headers["cache-control"] == "no-store"
        long = await client.post("/bandits/a/arms/add", content=b"x" * 30_000)
        assert long.status_code == 413
        strange = await client.post("/bandits/a/arms/add", content=b"\xff\xfe")
        assert strange.status_code == 400
        assert "does not answer" in (await client.get("/")).text  # the list of both

    visited(sample.application(ledgers), visit)


def test_sections_that_changed_are_sent_once_and_the_database_is_asked_once_for_all() -> None:
    ledger = sample.ShownLedger(sample.overview())

    async def run() -> None:
        feed = Feed({"shop": ledger}, every=0.01)  # type: ignore[dict-item]
        looks = [feed.looks("shop", lambda: True) for _ in range(3)]
        first = await asyncio.gather(*(anext(each) for each in looks))
        assert ledger.looks == 1
        assert first[0] is first[1] is first[2]
        assert first[0] is not None
        made = await sections(first[0], "shop", admin=False)
        assert made is await sections(first[0], "shop", admin=False)
        ledger.seen = dataclasses.replace(ledger.seen, last_event=0.0)
        later = await anext(looks[0])
        assert later is not None
        now = await sections(later, "shop", admin=False)
        was, is_now = marks(made), marks(now)
        assert [id for id in was if was[id] != is_now[id]] == ["gain"]
        feed.stop()
        with pytest.raises(StopAsyncIteration):
            await anext(looks[0])

    asyncio.run(run())


def test_numbers_of_a_database_that_does_not_answer_are_marked_as_old(caplog: Any) -> None:
    class Away(sample.ShownLedger):
        def overview(self) -> Any:
            if self.looks:
                raise LedgerError("away")
            return super().overview()

    async def run() -> None:
        feed = Feed({"shop": Away(sample.overview())}, every=0.0)  # type: ignore[dict-item]
        assert (await feed.look("shop")).failing_since is None
        look = await feed.look("shop")
        assert "the database has given no newer ones since" in rendered(look, "shop", True)["asof"]
        with pytest.raises(LedgerError, match="away"):
            await feed.overview("shop")

    asyncio.run(run())
