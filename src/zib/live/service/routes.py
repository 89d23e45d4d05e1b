"""What the service can be asked: each route with its role, its body, its answer, and what it does.

Everything is declared here once. `api` serves it, `openapi` describes it.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Hashable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from zib.core import validate
from zib.core.validate import InvalidParameterError
from zib.live import engine
from zib.live.answers import Transient
from zib.live.book import Asked, Reported
from zib.live.ledger import Ledger, inside
from zib.live.outcome import EVENT, REVISION
from zib.live.service import bodies
from zib.live.service.access import Caller
from zib.live.service.bodies import Problem, time_of
from zib.live.service.calls import Calls, Queued
from zib.live.service.config import Limits
from zib.live.service.feed import Feed
from zib.live.service.metrics import Metrics
from zib.live.settings import text

LOOK_WITHIN = 10.0  # seconds that looking something up may take
DECIDE, READ, ADMIN = ("decide",), ("read",), ("admin",)
ANY = ("decide", "read")


class Served:
    """A bandit, and what its routes need.

    Parameters
    ----------
    ledger
        Of the bandit.
    calls
        Hands its requests to the writer.
    feed
        Overviews of all bandits.
    limits
        What a client may ask for.
    metrics
        Where decisions and receipts are counted.
    """

    def __init__(
        self, ledger: Ledger, calls: Calls, feed: Feed, limits: Limits, metrics: Metrics
    ) -> None:
        self.ledger = ledger
        self.calls = calls
        self.feed = feed
        self.limits = limits
        self.exports = asyncio.Semaphore(1)
        self.decided = metrics.decisions.labels(ledger.name).inc
        self._receipts = metrics.receipts
        self._received: dict[str, Callable[[], None]] = {}
        self.book, self.requests, self.writer, self.keeper, _ = inside(ledger)

    def received(self, status: str) -> None:
        """Count a receipt."""
        count = self._received.get(status)
        if count is None:
            count = self._receipts.labels(self.ledger.name, status).inc
            self._received[status] = count
        count()


class Call(NamedTuple):
    """One request."""

    caller: Caller
    body: Any  # decoded
    tail: str  # the last part of the path, where it is a parameter
    query: dict[str, str]


Handler = Callable[[Served, Call], Awaitable[Any]]


class Route(NamedTuple):
    """A route below /v1/{bandit}.

    Attributes
    ----------
    method, path
        A path that ends with "{id}" has a parameter there.
    roles
        Any of them is enough.
    handler
        Called with a `Served` and a `Call`; returns the answer.
    body, answer
        Structs; no body: None; a file: its media types.
    words
        One sentence for the document.
    status
        Of the answer.
    query
        Names and descriptions of query parameters.
    """

    method: str
    path: str
    roles: tuple[str, ...]
    handler: Handler
    body: type[Any] | None
    answer: Any
    words: str
    status: int = 200
    query: tuple[tuple[str, str], ...] = ()


class Content(NamedTuple):
    """An answer that is not JSON, or is JSON already."""

    content: bytes
    kind: str


class File(NamedTuple):
    """An answer that is a file; its folder is removed once it has been sent."""

    path: Path
    kind: str


# ---------------------------------------------------------------------------------------- deciding


async def decide(served: Served, call: Call) -> Any:
    """Decide."""
    ask = call.body
    asked = served.requests.asked(ask.key, ask.unit, ask.arms, ask.context, ask.at)
    found = await served.calls.do(Queued(served.book, (asked,)))
    served.decided()
    return bodies.Decided(*found[0])


async def decide_many(served: Served, call: Call) -> Any:
    """Decide several times."""
    asked: list[Asked] = _each(
        served,
        "decisions",
        call.body.decisions,
        lambda ask: served.requests.asked(ask.key, ask.unit, ask.arms, ask.context, ask.at),
    )
    found = await served.calls.do(Queued(served.book, asked)) if asked else []
    served.decided(len(found))
    return bodies.DecidedMany([bodies.Decided(*decision) for decision in found])


async def decision(served: Served, call: Call) -> Any:
    """Look a decision up."""
    id = text("decision_id", call.tail)
    found = await _looked(
        served, served.writer.call, lambda c: engine.find_decision(c, served.book, id)
    )
    if found is None:
        raise Problem(404, f"there is no decision {validate.shown(id)} of this bandit")
    made, outcome = found
    return bodies.DecisionAndOutcome(
        bodies.Decided(*made),
        bodies.Became(outcome.entries, outcome.value, outcome.known, outcome.cancelled),
    )


# ------------------------------------------------------------------------------- what has happened


async def event(served: Served, call: Call) -> Any:
    """Enter an event."""
    return await _entered(served, _reported(served, EVENT, call.body))


async def revise(served: Served, call: Call) -> Any:
    """Enter a revision."""
    return await _entered(served, _reported(served, REVISION, call.body))


async def cancel(served: Served, call: Call) -> Any:
    """Cancel a decision."""
    return await _entered(served, served.requests.cancelled(call.body.decision_id))


async def event_many(served: Served, call: Call) -> Any:
    """Enter several events."""
    return await _entered_many(
        served, "events", call.body.events, lambda one: _reported(served, EVENT, one)
    )


async def revise_many(served: Served, call: Call) -> Any:
    """Enter several revisions."""
    return await _entered_many(
        served, "revisions", call.body.revisions, lambda one: _reported(served, REVISION, one)
    )


async def cancel_many(served: Served, call: Call) -> Any:
    """Cancel several decisions."""
    return await _entered_many(
        served, "decision_ids", call.body.decision_ids, served.requests.cancelled
    )


def _reported(served: Served, kind: int, body: Any) -> Reported:
    return served.requests.reported(kind, body.id, body.decision_id, body.value, body.at)


async def _entered(served: Served, report: Reported) -> Any:
    found = await served.calls.do(Queued(served.book, (), (report,)))
    receipt = bodies.Received(*found[0])
    served.received(receipt.status)
    return receipt


async def _entered_many(
    served: Served, name: str, given: Sequence[Any], make: Callable[[Any], Reported]
) -> Any:
    reports: list[Reported] = _each(served, name, given, make)
    found = await served.calls.do(Queued(served.book, (), reports)) if reports else []
    for receipt in found:
        served.received(receipt.status)
    return bodies.ReceivedMany([bodies.Received(*receipt) for receipt in found])


def _each(served: Served, name: str, given: Sequence[Any], make: Callable[[Any], Any]) -> list[Any]:
    """Return the checked requests of a batch; the sentence says which of them is wrong."""
    most = served.limits.batch
    if len(given) > most:
        raise Problem(
            422,
            f"`{name}` must hold at most {most} entries (`batch` in [limits]); got {len(given)}",
        )
    found = []
    for k, one in enumerate(given):
        try:
            found.append(make(one))
        except InvalidParameterError as error:
            raise Problem(422, f"`{name}[{k}]`: {error}") from None
    return found


# --------------------------------------------------------------------------------------------- arms


async def arms(served: Served, call: Call) -> Any:
    """Say which arms there are."""
    return _arms(served)


def _arms(served: Served) -> bodies.Arms:
    book = served.book
    known = [
        bodies.OneArm(label, status)
        for label, status in zip(list(book.labels), list(book.statuses), strict=False)
    ]
    shadow = book.shadow
    return bodies.Arms(known, None if shadow is None else book.labels[shadow])


async def add_arm(served: Served, call: Call) -> Any:
    """Add an arm."""
    return await _changed(served, call, served.ledger.add_arm)


async def pause_arm(served: Served, call: Call) -> Any:
    """Pause an arm."""
    return await _changed(served, call, served.ledger.pause_arm)


async def resume_arm(served: Served, call: Call) -> Any:
    """Resume an arm."""
    return await _changed(served, call, served.ledger.resume_arm)


async def retire_arm(served: Served, call: Call) -> Any:
    """Retire an arm."""
    return await _changed(served, call, served.ledger.retire_arm)


async def shadow(served: Served, call: Call) -> Any:
    """Serve one arm whatever the policy wants."""
    return await _changed(served, call, served.ledger.set_shadow)


async def _changed(served: Served, call: Call, change: Callable[..., None]) -> bodies.Arms:
    label: Hashable = call.body.arm
    await asyncio.to_thread(change, label, who=call.caller.name)
    served.feed.forget(served.ledger.name)
    return _arms(served)


# ------------------------------------------------------------------------------------- looking back


async def status(served: Served, call: Call) -> Any:
    """Say what is known."""
    found = await asyncio.wait_for(served.feed.overview(served.ledger.name), LOOK_WITHIN)
    return found.status.to_dict()


async def overview(served: Served, call: Call) -> Any:
    """Say everything that the page shows."""
    found = await asyncio.wait_for(served.feed.overview(served.ledger.name), LOOK_WITHIN)
    return found.to_dict()


async def parked(served: Served, call: Call) -> Any:
    """Show events whose decision is not known."""
    found = await _looked(served, served.ledger.parked, _most(call, 1_000))
    return bodies.AllParked([bodies.OneParked(*one) for one in found])


async def audit(served: Served, call: Call) -> Any:
    """Show what was changed by hand."""
    found = await _looked(served, served.ledger.audit, _most(call, 100))
    return bodies.Changes([bodies.OneChange(*one) for one in found])


async def _looked(served: Served, look: Callable[..., Any], *args: Any) -> Any:
    """Return what a look into the database finds, if it answers in time."""
    if served.calls.is_away:
        raise Transient("requests before this one wait for the database")
    return await asyncio.wait_for(asyncio.to_thread(look, *args), LOOK_WITHIN)


def _most(call: Call, default: int) -> int:
    given = call.query.get("most")
    if given is None:
        return default
    if not (given.isascii() and given.isdigit() and 1 <= int(given[:9]) <= 10_000):
        raise Problem(
            422, f"`most` must be a whole number in [1, 10000]; got {validate.shown(given)}"
        )
    return int(given[:9])


async def export(served: Served, call: Call) -> Any:
    """Write the log to a file, one bandit's at a time, and send it."""
    query = dict(call.query)
    kind = query.pop("format", "parquet")
    if kind not in FORMATS:
        raise Problem(422, f"`format` must be parquet or csv; got {validate.shown(kind)}")
    which: dict[str, Any] = {**query}
    for name in ("since", "until"):
        if name in which:
            which[name] = time_of(which[name])
    if served.exports.locked():
        raise Problem(503, "another export of this bandit is being made", retry_after=5.0)
    async with served.exports:
        return await asyncio.to_thread(_exported, served.ledger, kind, which)


def _exported(ledger: Ledger, kind: str, which: dict[str, Any]) -> File:
    folder = Path(tempfile.mkdtemp(prefix="zib-export-"))
    try:
        path = folder / f"{ledger.name}.{kind}"
        ledger.export(path, **which)
        return File(path, FORMATS[kind])
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


# -------------------------------------------------------------------------------------- the table

FORMATS = {"parquet": "application/vnd.apache.parquet", "csv": "text/csv; charset=utf-8"}
EXPORT = (
    ("format", "parquet (the default) or csv."),
    ("pending", "What becomes of decisions whose reward may still come: leave-out (the default), "
                "thin or weight."),
    ("since", "Earliest time of a decision: seconds since 1970, or text such as 2026-05-01."),
    ("until", "Decisions from this time on are left out."),
    ("kind", "Only decisions of one kind: policy, holdout or shadow."),
)  # fmt: skip

MOST = (("most", "How many at most."),)

ROUTES = (
    Route("POST", "decide", DECIDE, decide, bodies.Asking, bodies.Decided,
          "Decide which arm to serve; the decision is durable when the answer comes."),
    Route("POST", "decide/batch", DECIDE, decide_many, bodies.AskingMany, bodies.DecidedMany,
          "Decide several times: all of it is done, or nothing."),
    Route("POST", "event", DECIDE, event, bodies.Reporting, bodies.Received,
          "Report that something happened after a decision, such as an order."),
    Route("POST", "event/batch", DECIDE, event_many, bodies.ReportingMany, bodies.ReceivedMany,
          "Report several events: all of them are entered, or none."),
    Route("POST", "revise", DECIDE, revise, bodies.Reporting, bodies.Received,
          "Set what a decision is worth, whatever was reported before: a refund is 0."),
    Route("POST", "revise/batch", DECIDE, revise_many, bodies.RevisingMany, bodies.ReceivedMany,
          "Revise several decisions: all of them, or none."),
    Route("POST", "cancel", DECIDE, cancel, bodies.Cancelling, bodies.Received,
          "Say that a decision was never carried out: nothing is learned from it."),
    Route("POST", "cancel/batch", DECIDE, cancel_many, bodies.CancellingMany, bodies.ReceivedMany,
          "Cancel several decisions: all of them, or none."),
    Route("GET", "decisions/{id}", ANY, decision, None, bodies.DecisionAndOutcome,
          "Look up a decision and what became of it."),
    Route("GET", "arms", READ, arms, None, bodies.Arms, "List the arms."),
    Route("POST", "arms", ADMIN, add_arm, bodies.NamingArm, bodies.Arms, "Add an arm.", 201),
    Route("POST", "arms/pause", ADMIN, pause_arm, bodies.NamingArm, bodies.Arms,
          "Serve an arm no more, until it is resumed; its events still count."),
    Route("POST", "arms/resume", ADMIN, resume_arm, bodies.NamingArm, bodies.Arms,
          "Serve a paused arm again."),
    Route("POST", "arms/retire", ADMIN, retire_arm, bodies.NamingArm, bodies.Arms,
          "Serve an arm no more, for good; its events still count."),
    Route("POST", "shadow", ADMIN, shadow, bodies.Shadowing, bodies.Arms,
          "Serve one arm whatever the policy wants, which is logged; null ends it."),
    Route("GET", "status", READ, status, None, dict[str, Any],
          "What is known: arms, the delay of rewards, and what went astray."),
    Route("GET", "overview", READ, overview, None, dict[str, Any],
          "Everything that the page shows."),
    Route("GET", "parked", READ, parked, None, bodies.AllParked,
          "Events whose decision is not known, the oldest first.", 200, MOST),
    Route("GET", "audit", READ, audit, None, bodies.Changes,
          "What was changed by hand, the latest first.", 200, MOST),
    Route("GET", "export", READ, export, None, tuple(FORMATS.values()),
          "The log, one row per decision.", 200, EXPORT),
)  # fmt: skip
