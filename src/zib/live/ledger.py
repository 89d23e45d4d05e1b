"""`Ledger`: decisions whose reward comes later or never, kept in a database."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Self

from zib.core import validate
from zib.core.state import LARGEST_REWARD, SMALLEST_REWARD
from zib.core.validate import InvalidParameterError, InvalidTypeError
from zib.live import engine
from zib.live.answers import Decision, LedgerError, Receipt
from zib.live.database import Connection, Database, open_database
from zib.live.engine import ACTIVE, PAUSED, RETIRED, Asked, Book, Reported, Work
from zib.live.even import EvenModel
from zib.live.outcome import CANCEL, EVENT, REVISION, SECOND, Entry, Outcome
from zib.live.settings import (
    MOST_CONTEXT,
    Configuration,
    Settings,
    label_text,
    microseconds,
    text,
)
from zib.live.writer import Writer
from zib.mab.adaptive import ZIAdaptive
from zib.stats.delay import DelayDistribution

MOST_AT_ONCE = 1_000_000  # requests in one call
MOST_ARMS = 10_000
_NOT_GIVEN: Any = object()


class Ledger:
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
        `zib.mab.ZIAdaptive`; or a contextual one.
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
        How many decisions are simulated to know the shares of a policy; 1,000 by default.
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
        settings = {parameter: value for parameter, value in settings.items() if value is not None}
        self._clock = validate.function("clock", clock)
        background = validate.flag("background", background)
        name = text("name", name)
        labels = None if arms is None else _labels(arms)
        given = _given(policy, delay, features, encoder, settings)
        self._owns = not isinstance(database, Database)
        self._database = open_database(database, room=None if background else 0)
        self._writer: Writer | None = None
        try:
            self._writer = Writer(self._database, background=background)
            self._book: Book = self._writer.call(lambda c: self._opened(c, name, labels, given))
            self._book.model = EvenModel(name)
            if shadow is not None:
                self.set_shadow(shadow)
        except BaseException:
            self.close()
            raise

    # ----------------------------------------------------------------------- opening and closing

    def _opened(
        self,
        c: Connection,
        name: str,
        labels: tuple[Hashable, ...] | None,
        given: Mapping[str, Any],
    ) -> Book:
        """Return the bandit, made if it is not in the database yet."""
        c.lock_schema()
        found = c.rows("SELECT id, settings FROM bandit WHERE name = $1", name)
        if found:
            number, configuration = int(found[0][0]), Configuration.loads(found[0][1])
            _refuse_other(name, configuration, given)
        else:
            if labels is None:
                raise InvalidParameterError(
                    f"`arms` must be given to make a bandit: there is none named {name!r} yet"
                )
            if "window" not in given["settings"]:
                raise InvalidParameterError(
                    "`window` must be given to make a bandit, such as '7d': how long after a "
                    "decision events are expected"
                )
            configuration = _configuration(given)
            last = c.rows("SELECT COALESCE(MAX(id), 0) FROM bandit")[0][0]
            number = int(last) + 1
            c.run(
                "INSERT INTO bandit (id, name, settings, created_at) VALUES ($1, $2, $3, $4)",
                number, name, configuration.dumps(), self._now(),
            )  # fmt: skip
            self._write_arms(c, number, 0, labels)
        book = Book(number, name, configuration)
        book.read_arms(c)
        if found and labels is not None and set(labels) != set(book.labels):
            raise InvalidParameterError(
                f"`arms` must be those of the bandit, {validate.shown(tuple(book.labels))}, or not "
                f"given (use `add_arm` for more); got {validate.shown(labels)}"
            )
        book.parked = int(
            c.rows("SELECT COUNT(*) FROM event WHERE bandit = $1 AND parked = 1", number)[0][0]
        )
        return book

    def _write_arms(
        self, c: Connection, bandit: int, start: int, labels: Sequence[Hashable]
    ) -> None:
        for number, label in enumerate(labels, start):
            c.run(
                "INSERT INTO arm (bandit, number, label, status, added_at) "
                "VALUES ($1, $2, $3, $4, $5)",
                bandit, number, label_text(label), ACTIVE, self._now(),
            )  # fmt: skip

    def close(self) -> None:
        """Finish what was asked for, and give everything back; nothing is lost without it."""
        if self._writer is not None:
            self._writer.close()
        if self._owns:
            self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Ledger {self.name!r}: {len(self._book.labels)} arms>"

    @property
    def name(self) -> str:
        """Name of the bandit."""
        return self._book.name

    @property
    def settings(self) -> Settings:
        """How it waits, counts and shares."""
        return self._book.configuration.settings

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
        asked = self._asked(key, unit, arms, context, at)
        found: Decision = _one(self._running.do(Work(self._book, asked=(asked,))))
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
        asked = self._asked_many(keys, units, arms, contexts, at)
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
        asked = self._asked(key, unit, arms, context, at)
        return _chained(self._running.submit(Work(self._book, asked=(asked,))))

    def _asked_many(self, keys: Any, units: Any, arms: Any, contexts: Any, at: Any) -> list[Asked]:
        names = _list("keys", keys)
        owners = [None] * len(names) if units is None else _list("units", units)
        told = [None] * len(names) if contexts is None else _list("contexts", contexts)
        for name, each in (("units", owners), ("contexts", told)):
            if len(each) != len(names):
                raise InvalidParameterError(
                    f"`{name}` must have one entry per key, {len(names)}; got {len(each)}"
                )
        when = self._now() if at is None else microseconds("at", at)
        eligible = self._eligible(arms)
        return [
            self._asked_one(key, unit, eligible, context, when)
            for key, unit, context in zip(names, owners, told, strict=True)
        ]

    def _asked(self, key: Any, unit: Any, arms: Any, context: Any, at: Any) -> Asked:
        when = self._now() if at is None else microseconds("at", at)
        return self._asked_one(key, unit, self._eligible(arms), context, when)

    def _asked_one(
        self, key: Any, unit: Any, eligible: tuple[int, ...] | None, context: Any, at: int
    ) -> Asked:
        key = text("key", key)
        unit = None if unit is None else text("unit", unit)
        told = self._context(context)
        request = ""
        if unit is not None or eligible is not None or told is not None:
            content = json.dumps([unit, eligible, told]).encode()
            request = hashlib.blake2b(content, digest_size=8).hexdigest()
        return Asked(self._book.decision_id(key), key, request, unit, eligible, told, at)

    def _eligible(self, arms: Any) -> tuple[int, ...] | None:
        if arms is None:
            return None
        return tuple(sorted(self._number("arms", label) for label in validate.labels("arms", arms)))

    def _number(self, name: str, label: Any) -> int:
        try:
            return self._book.position[label]
        except (KeyError, TypeError):
            raise InvalidParameterError(
                f"`{name}` must be known: {validate.shown(tuple(self._book.labels))}; "
                f"got {validate.shown(label)}"
            ) from None

    def _context(self, context: Any) -> str | None:
        """Return a context as it is kept."""
        if context is None:
            return None
        try:
            kept = json.dumps(_plain(context), sort_keys=True, allow_nan=False)
        except (TypeError, ValueError):
            raise InvalidParameterError(
                "`context` must be a dictionary or a sequence of numbers and text; "
                f"got {validate.shown(context)}"
            ) from None
        if len(kept) > MOST_CONTEXT:
            raise InvalidParameterError(
                f"`context` must have at most {MOST_CONTEXT} letters as JSON; got {len(kept)}"
            )
        return kept

    def decision(self, decision_id: str) -> tuple[Decision, Outcome]:
        """Return a decision and what became of it, as it is in the database."""
        id = text("decision_id", decision_id)
        found = self._running.call(lambda c: engine.find_decision(c, self._book, id))
        if found is None:
            raise LedgerError(f"there is no decision {id!r} of the bandit {self.name!r}")
        return found  # type: ignore[no-any-return]

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
        report = self._reported(EVENT, "event_id", event_id, decision_id, value, at, received)
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
        report = self._reported(REVISION, "revision_id", revision_id, decision_id, value, at, None)
        return self._enter(report)

    def cancel(self, decision_id: str) -> Receipt:
        """Say that a decision was never carried out: nothing is learned from it."""
        return self._enter(self._cancelled(decision_id))

    def event_many(self, events: Iterable[Sequence[Any]]) -> list[Receipt]:
        """Report several events in one transaction; all of them or, after an error, none.

        Each is a tuple (event_id, decision_id, value) or (event_id, decision_id, value, at).
        """
        return self._enter_many(EVENT, "event_id", "events", events)

    def revise_many(self, revisions: Iterable[Sequence[Any]]) -> list[Receipt]:
        """Revise several decisions in one transaction; as for `event_many`."""
        return self._enter_many(REVISION, "revision_id", "revisions", revisions)

    def cancel_many(self, decision_ids: Iterable[str]) -> list[Receipt]:
        """Cancel several decisions in one transaction."""
        reports = [self._cancelled(id) for id in _list("decision_ids", decision_ids)]
        return self._running.do(Work(self._book, reported=reports))

    def submit_event(
        self, event_id: str, decision_id: str, value: float, *, at: Any = None, received: Any = None
    ) -> Future[Receipt]:
        """Report an event without waiting; for servers with an event loop."""
        report = self._reported(EVENT, "event_id", event_id, decision_id, value, at, received)
        return _chained(self._running.submit(Work(self._book, reported=(report,))))

    def _enter(self, report: Reported) -> Receipt:
        found: Receipt = _one(self._running.do(Work(self._book, reported=(report,))))
        return found

    def _enter_many(self, kind: int, name: str, whole: str, rows: Any) -> list[Receipt]:
        reports = []
        for k, row in enumerate(_list(whole, rows)):
            if isinstance(row, str) or not isinstance(row, Sequence) or len(row) not in (3, 4):
                raise InvalidParameterError(
                    f"`{whole}` must hold tuples ({name}, decision_id, value) or "
                    f"({name}, decision_id, value, at); got {validate.shown(row)} at position {k}"
                )
            at = row[3] if len(row) == 4 else None
            reports.append(self._reported(kind, name, row[0], row[1], row[2], at, None))
        return self._running.do(Work(self._book, reported=reports))

    def _reported(
        self, kind: int, name: str, id: Any, decision: Any, value: Any, at: Any, received: Any
    ) -> Reported:
        now = self._now()
        known = now if received is None else microseconds("received", received)
        entry = Entry(
            id=text(name, id),
            kind=kind,
            value=self._value(value),
            at=known if at is None else microseconds("at", at),
            received=known,
        )
        if entry.id.startswith("cancel:"):
            raise InvalidParameterError(
                f"`{name}` must not begin with 'cancel:', which is for cancellations; got {id!r}"
            )
        return Reported(text("decision_id", decision), entry, at is not None)

    def _cancelled(self, decision: Any) -> Reported:
        now, decision = self._now(), text("decision_id", decision)
        return Reported(decision, Entry(f"cancel:{decision}", CANCEL, None, now, now), False)

    def _value(self, value: Any) -> float:
        number = validate.real("value", value, low=-LARGEST_REWARD, high=LARGEST_REWARD)
        if 0.0 < abs(number - self.settings.inflated) < SMALLEST_REWARD:
            raise InvalidParameterError(
                f"`value` must be {self.settings.inflated:g}, or differ from it by at least "
                f"{SMALLEST_REWARD:g}; got {value!r}"
            )
        return number

    # --------------------------------------------------------------------------------------- arms

    def add_arm(self, arm: Hashable) -> None:
        """Add an arm; until it has evidence it gets at most `largest_share` of the decisions."""
        label = validate.label("arm", arm)

        def work(c: Connection) -> None:
            c.lock_schema()
            self._book.read_arms(c)
            if label in self._book.position:
                raise InvalidParameterError(
                    f"`arm` must be new; {validate.shown(label)} is there already"
                )
            if len(self._book.labels) >= MOST_ARMS:
                raise InvalidParameterError(f"`arm` must be one of at most {MOST_ARMS}; got more")
            self._write_arms(c, self._book.number, len(self._book.labels), [label])
            self._note(c, "add arm", label_text(label))

        self._change_arms(work)

    def pause_arm(self, arm: Hashable) -> None:
        """Serve an arm no more, until it is resumed; its events still count."""
        self._set_status(arm, PAUSED)

    def resume_arm(self, arm: Hashable) -> None:
        """Serve a paused arm again."""
        self._set_status(arm, ACTIVE)

    def retire_arm(self, arm: Hashable) -> None:
        """Serve an arm no more, for good; its events still count."""
        self._set_status(arm, RETIRED)

    def _set_status(self, arm: Hashable, status: str) -> None:
        number = self._number("arm", arm)

        def work(c: Connection) -> None:
            c.lock_schema()
            self._book.read_arms(c)
            now = self._book.statuses[number]
            if now == RETIRED and status != RETIRED:
                raise InvalidParameterError(
                    f"`arm` must not be retired, which is for good; {validate.shown(arm)} is"
                )
            if now == status:
                return
            c.run(
                "UPDATE arm SET status = $1 WHERE bandit = $2 AND number = $3",
                status, self._book.number, number,
            )  # fmt: skip
            verb = {ACTIVE: "resume", PAUSED: "pause", RETIRED: "retire"}[status]
            self._note(c, f"{verb} arm", label_text(arm))

        self._change_arms(work)

    def _change_arms(self, work: Callable[[Connection], None]) -> None:
        try:
            self._running.call(work)
        finally:
            self._running.call(self._book.read_arms)
        self._book.changed = True

    def set_shadow(self, arm: Hashable | None) -> None:
        """Serve one arm whatever the policy wants, or None: what the policy wants."""
        self._book.default = None if arm is None else self._number("arm", arm)

    def _note(self, c: Connection, action: str, detail: str) -> None:
        """Write down what was changed by hand."""
        c.run(
            "INSERT INTO audit (bandit, at, who, action, detail) VALUES ($1, $2, $3, $4, $5)",
            self._book.number, self._now(), "", action, detail,
        )  # fmt: skip

    # ------------------------------------------------------------------------------------ helpers

    @property
    def _running(self) -> Writer:
        assert self._writer is not None
        return self._writer

    def _now(self) -> int:
        return round(float(self._clock()) * SECOND)


# ---------------------------------------------------------------------------------------- arguments


def _given(
    policy: Any, delay: Any, features: Any, encoder: Any, settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what the caller has said, checked."""
    checked = Settings(**{"window": 1.0, **settings}).parameters()
    if not (delay is None or isinstance(delay, DelayDistribution)):
        raise InvalidTypeError(
            f"`delay` must be a DelayDistribution or None; got {validate.shown(delay)}"
        )
    if features is not None:
        features = validate.integer("features", features, low=1, high=100_000)
    return {
        "policy": policy,
        "delay": delay,
        "features": features,
        "encoder": encoder,
        "settings": {name: checked[name] for name in settings},
    }


def _configuration(given: Mapping[str, Any]) -> Configuration:
    return Configuration(
        Settings(**given["settings"]),
        ZIAdaptive() if given["policy"] is None else given["policy"],
        given["delay"],
        given["features"],
        given["encoder"],
    )


def _refuse_other(name: str, kept: Configuration, given: Mapping[str, Any]) -> None:
    """Raise if something is given that differs from what the bandit was made with."""
    known = kept.settings.parameters()
    for parameter, value in given["settings"].items():
        if known[parameter] != value:
            raise InvalidParameterError(
                f"`{parameter}` must be {known[parameter]!r}, which the bandit {name!r} was made "
                f"with, or not given; got {value!r}"
            )
    ours = json.loads(kept.dumps())
    theirs = json.loads(
        Configuration(
            kept.settings,
            kept.policy if given["policy"] is None else given["policy"],
            given["delay"],
            given["features"],
            given["encoder"],
        ).dumps()
    )
    for parameter in ("policy", "delay", "features", "encoder"):
        if given[parameter] is not None and ours[parameter] != theirs[parameter]:
            raise InvalidParameterError(
                f"`{parameter}` must be what the bandit {name!r} was made with, or not given; "
                f"got {validate.shown(given[parameter])}"
            )


def _labels(arms: Any) -> tuple[Hashable, ...]:
    labels = validate.labels("arms", arms)
    if len(labels) > MOST_ARMS:
        raise InvalidParameterError(
            f"`arms` must hold at most {MOST_ARMS} labels; got {len(labels)}"
        )
    return labels


def _list(name: str, values: Any) -> list[Any]:
    found = list(validate.iterable(name, values))
    if len(found) > MOST_AT_ONCE:
        raise InvalidParameterError(
            f"`{name}` must hold at most {MOST_AT_ONCE} entries at once; got {len(found)}"
        )
    return found


def _plain(value: Any) -> Any:
    """Return what JSON can hold of NumPy numbers and arrays."""
    if isinstance(value, Mapping):
        return {str(name): _plain(part) for name, part in value.items()}
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    return value


def _one(answers: Sequence[Any]) -> Any:
    (answer,) = answers
    if isinstance(answer, BaseException):
        raise answer
    return answer


def _chained(future: Future[list[Any]]) -> Future[Any]:
    """Return a future of the one answer."""
    out: Future[Any] = Future()

    def pass_on(done: Future[list[Any]]) -> None:
        try:
            out.set_result(_one(done.result()))
        except BaseException as error:
            out.set_exception(error)

    future.add_done_callback(pass_on)
    return out
