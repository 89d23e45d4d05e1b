"""When a contextual bandit on live traffic learns its decisions, and what as.

Models that are fitted take no fractional zeros and give no reward back, so **when** a decision is
learned matters. Rewards at once and zeros at the close ("event") overstate what happens: while the
oldest decisions are open there are no zeros at all. Nothing before the close ("close") is right,
and late. By default ("delay") rewards are learned at once, and a decision without one is learned
as a zero at a random age, so that at every age a share F of the rewards and a share F of the zeros
has been learned, F being the distribution of the delay. A few of these zeros are rewarded later and
count twice, which the ages make up for (`zero_share`).

Decisions that count twice, refunds, cancellations and late rewards are put right now and then:
everything is learned anew from the log, each decision once and in the order of the decisions. So
what a version knows is a function of the log.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from zib.live.answers import LedgerError
from zib.live.book import Book, fraction
from zib.live.contextual import ContextualModel, Learned, features_of, new_bandit
from zib.live.database import Connection
from zib.live.model import Arms, Versioned, in_flight
from zib.live.outcome import SECOND
from zib.live.settings import Configuration
from zib.live.statistics import read_statistics
from zib.online.contextual import ContextualBandit
from zib.stats.delay import pending_weight
from zib.stats.pending import PendingEstimate

Numbers = NDArray[np.float64]

AGEING = 10_000  # times in a horizon that pending decisions are looked through
WHOLE_EVERY = 5_000  # versions: a version in between holds what was learned since the one before
MOST_SINCE = 20_000  # decisions learned since the last whole version
BATCH = 2_000  # decisions read at a time
REBUILD = 20.0  # times what learning anew costs pass before it is done again,
REBUILDS = 200  # and it is done so often in a horizon at most
_COLUMNS = ("seq", "id", "arm", "at", "context", "value", "cancelled")


def zero_share(fraction: Numbers, chance: Numbers, since: Numbers) -> Numbers:
    """Return which share of those that waited at one age is learned as zeros by a later one.

    Parameters
    ----------
    fraction, since
        F at the later age and at the earlier one, in [0, 1].
    chance
        The chance p of a reward, in (0, 1).

    Notes
    -----
    Let a share S of those that wait at F₀ not be learned as zeros by F. Of these,
    (1 − pF)/(1 − pF₀) have no reward yet, and there were 1 − F₀ of them in all, as (1 − p)F₀ zeros
    and pF₀ rewards had been learned. For zeros to grow by (1 − p)dF it takes
    −dS·(1 − F₀)(1 − pF)/(1 − pF₀) = (1 − p)dF, so

        1 − S = (1 − pF₀)(1 − p)/((1 − F₀)p) · log((1 − pF₀)/(1 − pF)).

    Whether a decision is rewarded after it was learned as a zero does not matter: the reward is
    learned as well. About p/2 of the zeros are left out in the end, for those that count twice.
    Where the chance depends on the context and only its mean p̄ is given, zeros are too many or too
    few by the share (p − p̄)(1 − F/2), about, until everything is learned anew.
    """
    rest = np.maximum(1.0 - since, 1e-12)
    gap = np.log1p(chance * (fraction - since) / (1.0 - chance * fraction))
    return np.asarray((1.0 - chance * since) * (1.0 - chance) / (rest * chance) * gap)


class Waiting(NamedTuple):
    """A decision without a reward that is not learned as a zero yet."""

    arm: int
    at: int
    since: int  # age from which on it waits: 0, or its age when everything was learned anew
    u: float  # of [0, 1), decides when it is learned


class Rule:
    """When decisions without a reward are learned as zeros.

    Parameters
    ----------
    configuration
        Of the bandit.
    now
        Microseconds.
    pending
        What is known about delays and chances.
    """

    def __init__(self, configuration: Configuration, now: int, pending: PendingEstimate) -> None:
        self._at_random = configuration.settings.learn == "delay"
        self._horizon = configuration.settings.rules.horizon
        self._now = now
        self._delays = pending.delays
        self._chance = np.clip(pending.chance, 1e-9, 0.999)

    def _fractions(self, arm: NDArray[np.int64], age: Numbers) -> Numbers:
        out = np.zeros(age.size)
        for k in np.unique(arm):
            out[arm == k] = self._delays[k](np.maximum(age[arm == k], 0.0) / SECOND)
        return out

    def is_closed(self, at: int) -> bool:
        """Whether no reward can come any more."""
        return self._now - at >= self._horizon

    def due(self, waiting: Sequence[Waiting]) -> NDArray[np.bool_]:
        """Return which of those that wait are to be learned as zeros."""
        arm = np.array([each.arm for each in waiting], dtype=np.int64)
        age = np.array([self._now - each.at for each in waiting], dtype=np.float64)
        if not self._at_random:
            return age >= self._horizon
        since = self._fractions(arm, np.array([each.since for each in waiting], dtype=np.float64))
        u = np.array([each.u for each in waiting])
        return u < zero_share(self._fractions(arm, age), self._chance[arm], since)

    def anew(self, waiting: Sequence[Waiting]) -> Numbers:
        """Return how decisions without a reward go on after everything was learned anew.

        NaN: it is learned as a zero. Else the number that decides when it will be.
        """
        arm = np.array([each.arm for each in waiting], dtype=np.int64)
        age = np.array([self._now - each.at for each in waiting], dtype=np.float64)
        u = np.array([each.u for each in waiting])
        weight = np.zeros(u.size)
        if self._at_random:
            weight = pending_weight(self._fractions(arm, age), self._chance[arm])
        rest = (u - weight) / np.maximum(1.0 - weight, 1e-12)
        return np.where((age >= self._horizon) | (u < weight), np.nan, rest)


class Learning:
    """Makes versions of a contextual bandit, from its decisions and what became of them."""

    def __init__(self, book: Book) -> None:
        self._book = book
        self._bandit: ContextualBandit | None = None
        self._last = -1  # version that was written here last
        self._waiting: dict[str, Waiting] = {}
        self._zeros: dict[
            str, int
        ] = {}  # learned as zeros while a reward may come, with their times
        self._newest = 0  # decision that was taken up
        self._missing = False  # whether the last version that was made has not been written
        self._versions = self._since_whole = 0  # since the last whole one
        self._drained: list[tuple[str, int, int]] = []
        self._arms: Arms | None = None
        self._rule: Rule | None = None
        self._looked_at = 0
        self._again_at = 0.0
        self._loaded: tuple[int, ContextualBandit] | None = None  # the next may go on from it
        self._stopped = False
        self.to_correct = 0  # decisions that are not learned as what they are worth

    # ----------------------------------------------------------------------------- from a database

    def load(self, c: Connection, version: int, content: str) -> Versioned:
        """Return a version: the last whole one before it, and what was learned since."""
        book, top = self._book, Versioned.read(content)
        chain, base, known = [top], None, self._loaded
        while chain[-1]["whole"] is None:
            before = chain[-1]["version"] - 1
            if known is not None and known[0] == before:
                base = copy.copy(known[1])
                break
            found = c.rows(
                "SELECT content FROM model WHERE bandit = $1 AND version = $2", book.number, before
            )
            if not found:
                raise LedgerError(
                    f"model version {before} is missing, which {version} goes on from"
                )
            chain.append(Versioned.read(found[0][0]))
        bandit = ContextualBandit.loads(chain.pop()["whole"]) if base is None else base
        for each in reversed(chain):
            _add_arms(bandit, each["labels"])
            learned = [Learned(*row) for row in each["learned"]]
            _learn(bandit, c, learned)
        self._loaded = (version, bandit)
        return ContextualModel.of(book.name, book.configuration, top, copy.copy(bandit))

    # ------------------------------------------------------------------------------------- making

    def next(
        self, c: Connection, version: int, now: int, arms: Arms, *, force: bool
    ) -> Versioned | None:
        """Return the next version, if anything was learned."""
        try:
            return self._next(c, version, now, arms, force=force)
        except BaseException:
            self._bandit = None  # what was taken up may not have been learned: learn it anew
            raise

    def _next(
        self, c: Connection, version: int, now: int, arms: Arms, *, force: bool
    ) -> ContextualModel | None:
        again = self.to_correct > 0 and time.monotonic() > self._again_at
        if self._bandit is None or version != self._last + 1 or again:
            return self._anew(c, version, now, arms, gently=not force)
        if force or self._rule is None or abs(now - self._looked_at) >= self._step:
            self._look(c, now, arms)
            sought = True
        else:
            sought = False
        _add_arms(self._bandit, arms.labels)
        learned = self._read_changes(c)
        if sought:
            learned += self._due_zeros(c, list(self._waiting))
        if force and self.to_correct:
            return self._anew(c, version, now, arms, gently=False)
        if not (learned or force or self._missing or arms != self._arms):
            return None
        _learn(self._bandit, c, learned)
        # a version that is loaded goes on from the one before, which must be there
        long = self._versions >= WHOLE_EVERY or self._since_whole >= MOST_SINCE
        return self._version(version, now, arms, None if long or self._missing else learned)

    def written(self, made: Versioned) -> None:
        """Take note that a version is in the database."""
        assert isinstance(made, ContextualModel)
        self._last = made.version
        self._versions = 0 if made.whole else self._versions + 1
        self._since_whole = 0 if made.whole else self._since_whole + len(made.learned)
        self._missing = False

    def chores(self, now: int) -> Callable[[Connection], None] | None:
        """Return what is to be written besides versions: that changes were read."""
        if not self._drained:
            return None
        drained, self._drained = self._drained, []
        bandit = self._book.number

        def work(c: Connection) -> None:
            rows = [(bandit, decision, worker, -n) for decision, worker, n in sorted(drained)]
            c.add("changed", ("bandit", "decision", "worker"), ("n",), rows)
            c.run("DELETE FROM changed WHERE bandit = $1 AND n = 0", bandit)

        return work

    def stop(self) -> None:
        """Give up what takes long."""
        self._stopped = True

    @property
    def _step(self) -> float:
        return self._book.rules.horizon / AGEING

    def _version(
        self, version: int, now: int, arms: Arms, learned: Sequence[Learned] | None
    ) -> ContextualModel:
        """Return the version that has learned this since the one before; None: a whole one."""
        assert self._bandit is not None
        self._arms, self._missing = arms, True
        return ContextualModel(
            self._book.name, self._book.configuration, version, now, *arms,
            copy.copy(self._bandit), learned or (), learned is None,
        )  # fmt: skip

    def _look(self, c: Connection, now: int, arms: Arms) -> None:
        """Estimate delays and chances as they are now."""
        found = read_statistics(c, self._book.number, len(arms.labels))
        configuration = self._book.configuration
        pending = in_flight(configuration, arms.labels, found, now)
        self._rule, self._looked_at = Rule(configuration, now, pending), now
        closed = [id for id, at in self._zeros.items() if self._rule.is_closed(at)]
        for id in closed:
            del self._zeros[id]

    def _due_zeros(self, c: Connection, ids: Sequence[str]) -> list[Learned]:
        """Return which of those that wait are learned now, all of them zeros before the close."""
        if not ids:
            return []
        assert self._rule is not None
        is_due = self._rule.due([self._waiting[id] for id in ids]).tolist()
        due = [id for id, now in zip(ids, is_due, strict=True) if now]
        value: dict[str, Any] = {}
        if self._learn == "close":
            for some in _pieces(due):
                value.update(c.find("decision", ("id", "value"), "id", some))
        for id in due:
            one = self._waiting.pop(id)
            if not self._rule.is_closed(one.at):
                self._zeros[id] = one.at
        for id in [id for id in ids if id in self._waiting]:
            if self._rule.is_closed(self._waiting[id].at):
                del self._waiting[id]  # left out, for one that counts twice
                self.to_correct += 1
        return [Learned(id, self._worth(value.get(id))) for id in due]

    def _worth(self, value: float | None) -> float:
        return self._book.rules.inflated if value is None else value

    @property
    def _learn(self) -> str:
        return self._book.configuration.settings.learn

    def _u(self, id: str) -> float:
        return fraction(f"{self._book.name}\0zero\0{id}")

    def _read_changes(self, c: Connection) -> list[Learned]:
        """Take up decisions that are new or have changed; return what is learned at once."""
        ids = self._changed(c)
        rows = [row for some in _pieces(ids) for row in c.find("decision", _COLUMNS, "id", some)]
        found, newest = [], self._newest
        for seq, id, arm, at, _, value, cancelled in sorted(rows):
            waits, is_zero = id in self._waiting, id in self._zeros
            is_new = seq > newest or not (waits or is_zero or cancelled or value is not None)
            self._newest = max(self._newest, seq)
            if not (is_new or waits or is_zero) or (cancelled and is_zero):
                self.to_correct += 1  # learned as something else, or not at all
            elif cancelled:
                self._waiting.pop(id, None)
            elif value is None or self._learn == "close":
                if is_new:
                    self._waiting[id] = Waiting(arm, at, 0, self._u(id))
            else:
                self._waiting.pop(id, None)
                self.to_correct += self._zeros.pop(id, None) is not None  # it counts twice
                found.append(Learned(id, value))
        return found

    def _changed(self, c: Connection) -> list[str]:
        rows = c.rows(
            "SELECT decision, worker, n FROM changed WHERE bandit = $1 AND n <> 0",
            self._book.number,
        )
        self._drained = [(decision, int(worker), int(n)) for decision, worker, n in rows]
        return sorted({row[0] for row in rows})

    # ------------------------------------------------------------------------------- learning anew

    def _anew(
        self, c: Connection, version: int, now: int, arms: Arms, *, gently: bool
    ) -> ContextualModel:
        """Learn the whole log, each decision once, in the order of the decisions."""
        start = time.thread_time()
        self._changed(c)
        self._waiting, self._zeros, self._newest = {}, {}, 0
        self._look(c, now, arms)
        self._bandit = new_bandit(self._book.configuration, arms.labels)
        for rows in self._log(c):
            before = time.thread_time()
            _learn_rows(self._bandit, list(self._sorted_out(rows, now)))
            if gently:  # those who decide meanwhile come first
                time.sleep(time.thread_time() - before)
        self.to_correct = 0
        cost = time.thread_time() - start
        self._again_at = time.monotonic() + max(
            REBUILD * cost, self._book.rules.horizon / SECOND / REBUILDS
        )
        return self._version(version, now, arms, None)

    def _log(self, c: Connection) -> Iterator[list[Any]]:
        """Return all decisions in their order, in pieces."""
        while not self._stopped:
            rows = c.rows(
                f"SELECT {', '.join(_COLUMNS)} FROM decision WHERE bandit = $1 AND seq > $2 "
                f"ORDER BY seq LIMIT {BATCH}",
                self._book.number,
                self._newest,
            )
            if not rows:
                return
            self._newest = int(rows[-1][0])
            yield rows
        raise LedgerError("the ledger is closed: open it again")

    def _sorted_out(self, rows: Sequence[Any], now: int) -> Iterator[tuple[int, str, float]]:
        """Return arm, context and value of decisions that are learned; take note of the others."""
        assert self._rule is not None
        kept = [row for row in rows if not row[6]]
        wait = [Waiting(row[2], row[3], now - row[3], self._u(row[1])) for row in kept]
        going_on = self._rule.anew(wait).tolist() if kept else []
        for (_, id, arm, at, context, value, _), one, u in zip(kept, wait, going_on, strict=True):
            closed = self._rule.is_closed(at)
            if closed or (value is not None and self._learn != "close"):
                yield arm, context, self._worth(value)
            elif math.isnan(u):
                self._zeros[id] = at
                yield arm, context, self._worth(None)
            else:
                self._waiting[id] = one._replace(u=u)


def _pieces(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(ids), BATCH):
        yield ids[start : start + BATCH]


def _add_arms(bandit: ContextualBandit, labels: Sequence[Hashable]) -> None:
    for label in labels[len(bandit.arms or ()) :]:
        bandit.add_arm(label)


def _learn_rows(bandit: ContextualBandit, rows: Sequence[tuple[int, str, float]]) -> None:
    """Learn decisions, each an arm, a context and a value."""
    if rows:
        assert bandit.arms is not None
        arms = [bandit.arms[arm] for arm, _, _ in rows]
        features = np.array([features_of(context) for _, context, _ in rows])
        bandit.update_many(arms, [value for _, _, value in rows], features)


def _learn(bandit: ContextualBandit, c: Connection, learned: Sequence[Learned]) -> None:
    """Learn decisions that are in the database, in the given order."""
    for start in range(0, len(learned), BATCH):
        some = learned[start : start + BATCH]
        ids = [each.id for each in some]
        found = {row[0]: row for row in c.find("decision", ("id", "arm", "context"), "id", ids)}
        _learn_rows(bandit, [(*found[each.id][1:], each.value) for each in some])
