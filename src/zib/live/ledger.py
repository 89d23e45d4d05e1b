"""`Ledger`: decisions whose reward comes later or never, kept in a database."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple, Self

from zib.core import validate
from zib.live import engine
from zib.live.answers import Decision, LedgerError, Parked, Receipt
from zib.live.arms import add_arm, set_shadow, set_status
from zib.live.book import ACTIVE, PAUSED, RETIRED, Book, Reported, Work
from zib.live.database import Connection, Database, open_database
from zib.live.keeper import Keeper
from zib.live.opening import Given, open_book
from zib.live.outcome import EVENT, REVISION, SECOND, Outcome
from zib.live.requests import Requests, arm_labels, as_list
from zib.live.settings import text
from zib.live.told import Told
from zib.live.writer import Writer
from zib.stats.delay import DelayDistribution


class Ledger(Told):
    """A bandit on live traffic: it decides, waits for what happens, and learns.

    Every decision and every event is in a database before the call returns. The zero of a
    zero-inflated reward is not an event, nobody reports "did not buy": a decision waits until its
    window closes, and while it does it counts as the fraction of a zero that its age makes likely
    (`zib.stats.delay`).

    Parameters
    ----------
    database
        Path of an SQLite file (made if it is not there), a ``postgresql://`` address, or a database
        that is open already and shared by several ledgers.
    name
        Of the bandit; a database may hold several.
    arms
        Labels of the arms; needed to make a bandit. One that is in the database keeps what it was
        made with: nothing else may be given, and nothing needs to.
    policy
        A multi-armed policy whose statistics are sums over rewards, by default
        `zib.mab.ZIAdaptive`; or a contextual one, by default `zib.contextual.Adaptive` with
        ``kind="ts"``, whose number of arms follows those of the ledger. Of others, such as
        `zib.contextual.LaplaceTS`, every arm gets a model of its own.
    window
        How long after a decision events are expected: seconds, or text such as ``"7d"``. Needed to
        make a bandit.
    grace
        For how much longer events still count, 0 by default.
    aggregate
        What several events of a decision are worth: their "sum" (the default), the "first", the
        "last", or the largest ("max"). Order is by the time at which they happened.
    inflated
        The reward that means "nothing happened", 0 by default.
    least_share
        Least probability of every arm that may be served, 0.001 by default.
    largest_share
        Largest probability of an arm without evidence, 0.2 by default (or an even share).
    evidence
        How many decisions of an arm must have been settled, by a reward or by time, until it may
        have more; 100 by default.
    draws
        How many decisions are simulated to know the shares of a policy; 1,000 by default. A
        contextual bandit, which has to do so for each decision, simulates a tenth of them.
    holdout
        Share of units (or of decisions without one) whose arm is drawn evenly, 0 by default: the
        yardstick of what the policy gains.
    shadow
        Label of the arm that is served whatever the policy wants, which is logged; None: the
        policy decides.
    delay
        What the delay is thought to be before any was seen, a
        `zib.stats.delay.DelayDistribution` in seconds.
    prior_events
        How many observed events `delay` is worth, 1 by default.
    refresh
        Least seconds between two versions of the model, 0.5 by default.
    park
        How long an event of an unknown decision waits until it counts as a dead letter, an hour by
        default; it is applied even later, should the decision come.
    features, encoder
        Make it contextual: how many numbers a context has, or a `zib.Encoder` that makes them.
    learn
        When a contextual bandit learns that nothing happened: after a "delay" drawn from that of
        the events (the default), at the "close" of the window with all the rest, or there while
        events are learned at once ("event", which overstates the chance of a reward).
    clock
        Returns the time in seconds since 1970.
    background
        Whether threads write and learn. Without, calls commit one by one, and `refresh` has to be
        called to learn.

    Examples
    --------
    >>> import tempfile, zib
    >>> from pathlib import Path
    >>> folder = tempfile.TemporaryDirectory()
    >>> ledger = zib.live.Ledger(
    ...     Path(folder.name) / "shop.db", arms=["A", "B"], window="7d", background=False
    ... )
    >>> decision = ledger.decide("request-17")
    >>> ledger.event("order-5", decision.id, 29.90).status
    'applied'
    >>> ledger.decide("request-17") == decision
    True
    >>> ledger.revise("refund-5", decision.id, 0.0).value
    0.0
    >>> ledger.close()
    >>> folder.cleanup()
    """

    def __init__(
        self,
        database: Any,
        name: str = "default",
        *,
        arms: Iterable[Hashable] | None = None,
        policy: Any = None,
        window: Any = None,
        grace: Any = None,
        aggregate: str | None = None,
        inflated: float | None = None,
        least_share: float | None = None,
        largest_share: float | None = None,
        evidence: int | None = None,
        draws: int | None = None,
        holdout: float | None = None,
        shadow: Hashable = None,
        delay: DelayDistribution | None = None,
        prior_events: float | None = None,
        refresh: Any = None,
        park: Any = None,
        features: int | None = None,
        encoder: Any = None,
        learn: str | None = None,
        clock: Callable[[], float] = time.time,
        background: bool = True,
    ) -> None:
        settings = {
            "window": window,
            "grace": grace,
            "aggregate": aggregate,
            "inflated": inflated,
            "least_share": least_share,
            "largest_share": largest_share,
            "evidence": evidence,
            "draws": draws,
            "holdout": holdout,
            "prior_events": prior_events,
            "refresh": refresh,
            "park": park,
            "learn": learn,
        }
        self._clock = validate.function("clock", clock)
        background = validate.flag("background", background)
        name = text("name", name)
        labels = None if arms is None else arm_labels(arms)
        given = Given(policy, delay, features, encoder, settings)
        self._owns = not isinstance(database, Database)
        self._database = open_database(database, room=None if background else 0)
        self._writer: Writer | None = None
        self._keeper: Keeper | None = None
        self._closed = False
        try:
            if background:
                self._writer = Writer.joined(self._database)
            else:
                self._writer = Writer(self._database, background=False)
            self._book: Book = self._writer.call(
                lambda c: open_book(c, name, labels, given, self._now)
            )
            self._requests = Requests(self._book, self._now)
            if shadow is not None:
                self.set_shadow(shadow)
            self._keeper = Keeper(self._book, self._database, self._writer, self._now)
            self._keeper.open()
            if background:
                self._keeper.start()
        except BaseException:
            self.close()
            raise

    # ----------------------------------------------------------------------- opening and closing

    def close(self) -> None:
        """Finish what was asked for, and give everything back; nothing is lost without it."""
        if self._writer is not None and self._writer.forked:
            return  # locks and connections are those of the process that opened it
        if self._closed:
            return
        self._closed = True
        if self._keeper is not None:
            self._keeper.close()
        if self._writer is not None:
            self._writer.leave()
        if self._owns:
            self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Ledger {self.name!r}: {len(self._book.labels)} arms>"

    @property
    def arms(self) -> dict[Hashable, str]:
        """The arms and their statuses: "active", "paused" or "retired"."""
        return dict(zip(self._book.labels, self._book.statuses, strict=True))

    # ---------------------------------------------------------------------------------- deciding

    def decision_id(self, key: str) -> str:
        """Return the id that the decision with a key has, or will have."""
        return self._book.decision_id(text("key", key))

    def decide(
        self,
        key: str,
        *,
        unit: str | None = None,
        arms: Iterable[Hashable] | None = None,
        context: Any = None,
        at: Any = None,
    ) -> Decision:
        """Return which arm to serve; the decision is in the database when this returns.

        Parameters
        ----------
        key
            Names the decision, such as the id of a request. The same key again gets the same
            answer, so a call may be repeated; the same key with another unit, other arms or another
            context raises a `ConflictError`.
        unit
            Who it is for, such as a customer; units stay in or out of the holdout.
        arms
            Labels of the arms that may be served this time; None: all that are active.
        context
            Numbers, or a dictionary, that a contextual bandit decides on.
        at
            When: seconds since 1970 or a datetime with a time zone; None: now.
        """
        asked = self._requests.asked(key, unit, arms, context, at)
        found: Decision = self._running.do(Work(self._book, asked=(asked,)))[0]
        return found

    def decide_many(
        self,
        keys: Iterable[str],
        *,
        units: Iterable[str | None] | None = None,
        arms: Iterable[Hashable] | None = None,
        contexts: Iterable[Any] | None = None,
        at: Any = None,
    ) -> list[Decision]:
        """Return decisions for several keys, in one transaction; `arms` and `at` hold for all.

        All of them or, after an error, none.
        """
        asked = self._requests.asked_many(keys, units, arms, contexts, at)
        return self._running.do(Work(self._book, asked=asked))

    def submit_decide(
        self,
        key: str,
        *,
        unit: str | None = None,
        arms: Iterable[Hashable] | None = None,
        context: Any = None,
        at: Any = None,
    ) -> Future[Decision]:
        """Ask for a decision without waiting; for servers with an event loop."""
        asked = self._requests.asked(key, unit, arms, context, at)
        return self._submitted(Work(self._book, asked=(asked,)))

    def decision(self, decision_id: str) -> tuple[Decision, Outcome]:
        """Return a decision and what became of it, as it is in the database."""
        id = text("decision_id", decision_id)
        found = self._running.call(lambda c: engine.find_decision(c, self._book, id))
        if found is None:
            raise LedgerError(f"there is no decision {id!r} of the bandit {self.name!r}")
        return found  # type: ignore[no-any-return]

    def parked(self, most: int = 1_000) -> list[Parked]:
        """Return events whose decision is not known, the oldest first; see `Parked.dead`."""
        most = validate.integer("most", most, low=1, high=1_000_000)
        dead_before = self._now() - round(self.settings.park * SECOND)
        found: list[Parked] = self._running.call(
            lambda c: engine.find_parked(c, self._book, dead_before, most)
        )
        return found

    # -------------------------------------------------------------------------- what has happened

    def event(
        self, event_id: str, decision_id: str, value: float, *, at: Any = None, received: Any = None
    ) -> Receipt:
        """Report that something happened after a decision, such as an order.

        Parameters
        ----------
        event_id
            Names the event. The same id again is a duplicate and changes nothing; with another
            decision, value or time it raises a `ConflictError`.
        decision_id
            The `id` of the decision. One that is not known (events may overtake decisions) parks
            the event until it is.
        value
            What it is worth.
        at
            When it happened; None: now. It counts if that was at most window and grace after the
            decision.
        received
            When it became known; None: now. To be given when old logs are put in.
        """
        report = self._requests.reported(EVENT, event_id, decision_id, value, at, received)
        return self._enter(report)

    def revise(
        self, revision_id: str, decision_id: str, value: float, *, at: Any = None
    ) -> Receipt:
        """Set what a decision is worth, whatever was reported before `at`: a refund is 0.

        Parameters
        ----------
        revision_id
            Names the revision; as for `event`.
        decision_id
            The `id` of the decision.
        value
            The absolute value. Events that happened later add to it.
        at
            When; None: now.
        """
        report = self._requests.reported(REVISION, revision_id, decision_id, value, at)
        return self._enter(report)

    def cancel(self, decision_id: str) -> Receipt:
        """Say that a decision was never carried out: nothing is learned from it."""
        return self._enter(self._requests.cancelled(decision_id))

    def event_many(self, events: Iterable[Sequence[Any]]) -> list[Receipt]:
        """Report several events in one transaction; all of them or, after an error, none.

        Each is a tuple (event_id, decision_id, value) or (event_id, decision_id, value, at).
        """
        return self._enter_many(self._requests.reported_many(EVENT, "events", events))

    def revise_many(self, revisions: Iterable[Sequence[Any]]) -> list[Receipt]:
        """Revise several decisions in one transaction; as for `event_many`."""
        return self._enter_many(self._requests.reported_many(REVISION, "revisions", revisions))

    def cancel_many(self, decision_ids: Iterable[str]) -> list[Receipt]:
        """Cancel several decisions in one transaction."""
        ids = as_list("decision_ids", decision_ids)
        return self._enter_many([self._requests.cancelled(id, "decision_ids") for id in ids])

    def submit_event(
        self, event_id: str, decision_id: str, value: float, *, at: Any = None, received: Any = None
    ) -> Future[Receipt]:
        """Report an event without waiting; for servers with an event loop."""
        report = self._requests.reported(EVENT, event_id, decision_id, value, at, received)
        return self._submitted(Work(self._book, reported=(report,)))

    def _enter(self, report: Reported) -> Receipt:
        (found,) = self._enter_many([report])
        return found

    def _enter_many(self, reports: list[Reported]) -> list[Receipt]:
        return self._running.do(Work(self._book, reported=reports))

    # --------------------------------------------------------------------------------------- arms

    def add_arm(self, arm: Hashable, *, who: str = "") -> None:
        """Add an arm; until it has evidence it gets at most `largest_share` of the decisions.

        `who` does it is kept with what was done, here and in the next four; see `audit`.
        """
        label, who = validate.label("arm", arm), _who(who)
        self._change_arms(lambda c: add_arm(c, self._book, label, self._now(), who))

    def pause_arm(self, arm: Hashable, *, who: str = "") -> None:
        """Serve an arm no more, until it is resumed; its events still count."""
        self._set_status(arm, PAUSED, who)

    def resume_arm(self, arm: Hashable, *, who: str = "") -> None:
        """Serve a paused arm again."""
        self._set_status(arm, ACTIVE, who)

    def retire_arm(self, arm: Hashable, *, who: str = "") -> None:
        """Serve an arm no more, for good; its events still count."""
        self._set_status(arm, RETIRED, who)

    def _set_status(self, arm: Hashable, status: str, who: str) -> None:
        number, who = self._requests.number("arm", arm), _who(who)
        self._change_arms(lambda c: set_status(c, self._book, number, status, self._now(), who))

    def _change_arms(self, work: Callable[[Connection], None]) -> None:
        try:
            self._running.call(work)
        finally:
            self._running.call(self._book.read_arms)
        self._book.changed = True

    def set_shadow(self, arm: Hashable | None, *, who: str = "") -> None:
        """Serve one arm whatever the policy wants, or None: what the policy wants."""
        number, who = None if arm is None else self._requests.number("arm", arm), _who(who)
        self._change_arms(lambda c: set_shadow(c, self._book, number, self._now(), who))

    # ----------------------------------------------------------------------------------- learning

    def refresh(self) -> int:
        """Make a model version from what is known now, and return its number.

        In the background this happens by itself, within a second of an event. Where another
        process makes the versions its latest is taken up.
        """
        assert self._keeper is not None
        return self._keeper.refresh()

    # ------------------------------------------------------------------------------------ helpers

    def _submitted(self, work: Work) -> Future[Any]:
        """Return a future of the one answer to a request."""
        future: Future[Any] = Future()

        def then() -> None:
            if work.error is not None:
                future.set_exception(work.error)
            else:
                future.set_result(work.answers[0])

        self._running.submit((work,), then)
        return future

    @property
    def _running(self) -> Writer:
        assert self._writer is not None
        if self._closed:
            raise LedgerError("the ledger is closed: open it again")
        return self._writer

    def _now(self) -> int:
        return round(float(self._clock()) * SECOND)


class Inside(NamedTuple):
    """What the service works with: it queues requests of its event loop with the writer."""

    book: Book
    requests: Requests
    writer: Writer
    keeper: Keeper
    database: Database


def inside(ledger: Ledger) -> Inside:
    """Return the parts of an open ledger; for this package only."""
    assert ledger._keeper is not None
    return Inside(ledger._book, ledger._requests, ledger._running, ledger._keeper, ledger._database)


def _who(who: Any) -> str:
    return "" if type(who) is str and not who else text("who", who)
