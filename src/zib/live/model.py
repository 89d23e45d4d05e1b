"""One version of what a ledger has learned, and the decisions that are drawn from it.

A version is made from statistics and never changes. It gives every set of eligible arms one
**allocation**, a probability per arm, and a decision is drawn from it with u = hash(bandit,
version, key). So the probability that is logged is exactly the one that was drawn with, every
process that serves the version gives the same answer, and `replay` recomputes each decision from
the log alone.
"""

from __future__ import annotations

import base64
import json
import threading
import zlib
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from zib.core import kernel, saved
from zib.core.exact import ExactSums, set_moments
from zib.core.state import ArmState, new_state
from zib.core.validate import InvalidParameterError
from zib.live.answers import LedgerError
from zib.live.book import ACTIVE, Drawn, fraction
from zib.live.outcome import SECOND
from zib.live.settings import Configuration, Settings
from zib.live.statistics import ArmSums, Statistics
from zib.mab.wrappers import Wrapper
from zib.online.allocation import MOST_KEPT, Allocation, GuardRails
from zib.online.bandit import Bandit
from zib.stats.pending import BUCKETS, CLOSED, PendingDecisions, PendingEstimate

Numbers = NDArray[np.float64]

FORMAT = 1
DIGITS = 6  # of fractional pulls; a version is defined by the rounded ones
# what is known of the non-zero rewards of an arm, besides their number, sum and spread
FURTHER = ("log_total", "log_squares", "negative")


def limits(settings: Settings, n_arms: int) -> GuardRails:
    """Return the limits on the shares of so many eligible arms.

    Arms come and go, so a least share that does not fit so many is cut to an even share, and an
    arm without evidence may always have an even share.
    """
    even = 1.0 / n_arms
    rails = settings.guard_rails
    least, largest = min(rails.least_share, even), max(rails.largest_share, even)
    found: GuardRails = rails._replace(least_share=least, largest_share=largest)
    return found


def check_policy(spec: Any) -> None:
    """Raise unless the policy can be built from the sums that a ledger keeps."""
    kernel.lookup(spec, "policy")
    name = type(spec).__name__
    if isinstance(spec, Wrapper) or not kernel.is_additive(spec):
        raise InvalidParameterError(
            "`policy` must keep statistics that are sums over rewards, since those of late rewards "
            f"are put right; got {name}, whose depend on the order of the rewards"
        )
    low, high = getattr(spec, "reward_range", (-np.inf, np.inf))
    if np.isfinite([low, high]).any():
        raise InvalidParameterError(
            "`policy` must take rewards of any size, since the events of a decision add up; "
            f"got {name}, for rewards in [{low:g}, {high:g}]"
        )
    unknown = kernel.lookup(spec).own.sum_names() - set(FURTHER)
    if unknown:
        raise InvalidParameterError(
            f"`policy` must not keep further sums of its own; got {name}, which keeps "
            f"{', '.join(sorted(unknown))}"
        )


class Evidence(NamedTuple):
    """What a version knows about every arm; rewards are counted from the inflated value.

    `zeros` holds closed decisions, and each pending one as the fraction it counts for; by `factors`
    the average of the rewards is multiplied where it depends on the delay.
    """

    nonzero: Numbers
    zeros: Numbers
    factors: Numbers
    total: Numbers
    spread: Numbers
    log_total: Numbers
    log_squares: Numbers
    negative: Numbers

    @property
    def pulls(self) -> Numbers:
        """All decisions, as far as they count."""
        return self.nonzero + self.zeros

    @classmethod
    def of(cls, arms: ArmSums, pending: PendingEstimate) -> Self:
        """Return the evidence from what has happened and what may still come."""
        found, logs = _moments(arms.nonzero, arms.sums), _moments(arms.positive, arms.logs)
        return cls(
            nonzero=found.nonzero,
            zeros=np.round(pending.zeros, DIGITS),
            factors=np.round(pending.factors, DIGITS),
            total=found.total,
            spread=found.spread,
            log_total=logs.total,
            log_squares=logs.spread + logs.total**2 / np.maximum(logs.nonzero, 1.0),
            negative=found.nonzero - logs.nonzero,
        )

    def bandit(self, spec: Any, labels: tuple[Hashable, ...], settings: Settings) -> Bandit:
        """Return the policy that has learned this."""
        made = Bandit(spec, arms=labels, seed=0, inflated=settings.inflated, draws=settings.draws)
        state = kernel.init(spec, len(labels))
        state.pulls[:] = self.nonzero
        state.clock[0] = self.nonzero.sum()
        for name in ("nonzero", "total", "spread"):
            getattr(state, name)[:] = getattr(self, name)
        for name in kernel.lookup(spec).own.sum_names():
            getattr(state.own, name)[:] = getattr(self, name)
        made._take(labels, state, made._sums)
        made.set_pending(self.zeros, amounts=self.factors)
        return made


def _moments(counts: NDArray[np.int64], sums: ExactSums) -> ArmState:
    state = new_state(counts.size)
    state.nonzero[:] = counts
    for k in range(counts.size):
        set_moments(state, sums, k)
    return state


def in_flight(
    configuration: Configuration, labels: Sequence[Hashable], found: Statistics, now: int
) -> PendingEstimate:
    """Return what the decisions without a reward count at a time (microseconds)."""
    rules, arms = configuration.settings.rules, found.arms
    horizon = rules.width * BUCKETS / SECOND
    every, closed = np.arange(arms.n_arms), np.full(arms.n_arms, CLOSED)
    seen = found.converted
    known = np.bincount(seen.arm, seen.n, minlength=arms.n_arms)
    # rewards that say nothing about the delay: too late, or entered as revisions
    other = np.maximum(arms.nonzero - known, 0.0)
    unsaid = np.zeros(arms.n_arms)
    return PendingDecisions.from_counts(
        horizon,
        labels,
        waiting=[
            np.concatenate(pair)
            for pair in zip(found.waiting, (every, closed, arms.zero), strict=True)
        ],
        rewarded=[
            np.concatenate(pair)
            for pair in zip(seen, (every, closed, closed, other, unsaid, unsaid), strict=True)
        ],
    ).estimate(
        now / SECOND, prior=configuration.delay, prior_events=configuration.settings.prior_events
    )


class Arms(NamedTuple):
    """The arms of a bandit as they are in the database, by number."""

    labels: tuple[Hashable, ...]
    statuses: tuple[str, ...]


class Versioned:
    """What all models do alike: a draw with a hashed number, and a text that is kept.

    Parameters
    ----------
    name
        Of the bandit.
    configuration
        What it was made with.
    version, made_at
        Number of the version, and when it was made (microseconds).
    labels, statuses
        Of all arms there ever were, by number.
    """

    chained = False  # whether the next version needs this one

    def __init__(
        self,
        name: str,
        configuration: Configuration,
        version: int,
        made_at: int,
        labels: Sequence[Hashable],
        statuses: Sequence[str],
    ) -> None:
        self.name = name
        self.configuration = configuration
        self.version = version
        self.made_at = made_at
        self.labels = tuple(labels)
        self.statuses = tuple(statuses)
        self.active = tuple(k for k, status in enumerate(self.statuses) if status == ACTIVE)
        self.used = False  # whether a decision was drawn from it here

    def allocation(
        self, eligible: tuple[int, ...], key: str = "", context: str | None = None
    ) -> Allocation:
        """Return the probability of each of the eligible arms, at least one, in ascending order."""
        raise NotImplementedError

    def draw(self, key: str, eligible: tuple[int, ...], context: str | None = None) -> Drawn:
        """Return the arm for a key, with its probability; the same in any process.

        Arms that are newer than the version wait for the next one.
        """
        self.used = True
        known = eligible
        if known != self.active:
            known = tuple(sorted(k for k in eligible if k < len(self.labels)))
            if not known:
                raise LedgerError("no model version knows the arm yet: ask again in a second")
        found = self.allocation(known, key, context)
        k = found.position(fraction(f"{self.name}\0{self.version}\0{key}"))
        return Drawn(known[k], found.shares[k], known, found.shares)

    def warm_up(self) -> None:
        """Compile what decisions need, before there are any."""
        raise NotImplementedError

    def dumps(self) -> str:
        """Return the version as text, to be read by `Model.loads`."""
        content = {
            "format": FORMAT,
            "version": self.version,
            "made_at": self.made_at,
            "labels": [saved.label_to_data(label) for label in self.labels],
            "statuses": self.statuses,
            **self._content(),
        }
        text = json.dumps(content, separators=(",", ":"), allow_nan=False)
        return base64.b85encode(zlib.compress(text.encode())).decode()

    def _content(self) -> dict[str, Any]:
        raise NotImplementedError

    @staticmethod
    def read(text: str) -> dict[str, Any]:
        """Return the content of a version as data."""
        try:
            content: dict[str, Any] = json.loads(zlib.decompress(base64.b85decode(text)))
        except (ValueError, zlib.error) as error:
            raise LedgerError(f"a stored model version cannot be read: {error}") from error
        if content.get("format") != FORMAT:
            raise LedgerError(
                f"a stored model version has format {content.get('format')!r}; this version of zib "
                f"reads format {FORMAT}"
            )
        content["labels"] = saved.labels_from_data(content["labels"])
        return content


class Model(Versioned):
    """One version of a multi-armed bandit.

    Parameters
    ----------
    name, configuration, version, made_at, labels, statuses
        As for `Versioned`.
    evidence
        What is known about each arm.
    delay
        Number of delays that were known, and by when half and 90 % of the rewards have come
        (seconds); to look at, nothing is computed from it.
    """

    def __init__(
        self,
        name: str,
        configuration: Configuration,
        version: int,
        made_at: int,
        labels: Sequence[Hashable],
        statuses: Sequence[str],
        evidence: Evidence,
        delay: Sequence[float] = (),
    ) -> None:
        super().__init__(name, configuration, version, made_at, labels, statuses)
        self.evidence = evidence
        self.delay = tuple(delay)
        self._lock = threading.Lock()  # compiled code uses scratch space of the bandit
        self._kept: dict[tuple[int, ...], Allocation] = {}
        self._made: Bandit | None = None

    @classmethod
    def build(
        cls,
        name: str,
        configuration: Configuration,
        version: int,
        now: int,
        labels: Sequence[Hashable],
        statuses: Sequence[str],
        found: Statistics,
    ) -> Self:
        """Return the version that follows from statistics at a time (microseconds)."""
        pending = in_flight(configuration, labels, found, now)
        delay = pending.delays[0]
        seen = (delay.events, *delay.quantile([0.5, 0.9]).tolist())
        evidence = Evidence.of(found.arms, pending)
        return cls(name, configuration, version, now, labels, statuses, evidence, seen)

    @property
    def bandit(self) -> Bandit:
        """The policy that knows what this version knows; made when it is first needed."""
        if self._made is None:
            configuration = self.configuration
            self._made = self.evidence.bandit(
                configuration.policy, self.labels, configuration.settings
            )
        return self._made

    def allocation(
        self, eligible: tuple[int, ...], key: str = "", context: Any = None
    ) -> Allocation:
        """Return the probability of each of the eligible arms, computed once for each set."""
        found = self._kept.get(eligible)
        if found is None:
            with self._lock:
                rails = limits(self.configuration.settings, len(eligible))
                shares = self.bandit._limited(np.array(eligible, dtype=np.int64), rails)
                found = Allocation.of(eligible, shares)
                if len(self._kept) > MOST_KEPT:
                    self._kept.clear()
                self._kept[eligible] = found
        return found

    def warm_up(self) -> None:
        """Compile what decisions among any arms need, before there are any."""
        every = np.arange(len(self.labels))
        with self._lock:
            self.bandit._limited(every, limits(self.configuration.settings, every.size))

    def _content(self) -> dict[str, Any]:
        shares = self.allocation(self.active).shares if self.active else []
        return {
            "evidence": {name: array.tolist() for name, array in self.evidence._asdict().items()},
            "delay": [round(value, 3) for value in self.delay],
            "shares": shares,
        }

    @classmethod
    def loads(cls, text: str, name: str, configuration: Configuration) -> Self:
        """Return the version that `dumps` wrote.

        The shares of the active arms are read, not computed again; those of fewer arms are a
        function of the evidence.
        """
        content = cls.read(text)
        model = cls(
            name, configuration, content["version"], content["made_at"], content["labels"],
            content["statuses"],
            Evidence(**{k: np.array(v, float) for k, v in content["evidence"].items()}),
            content["delay"],
        )  # fmt: skip
        if model.active:
            shares = np.array(content["shares"])
            model._kept[model.active] = Allocation.of(model.active, shares)
        return model
