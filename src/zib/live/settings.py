"""What a bandit on live traffic is told: declared once, kept in its database."""

from __future__ import annotations

import json
from collections.abc import Hashable
from datetime import datetime, timedelta
from typing import Any, Self

from zib.core import saved, validate
from zib.core.spec import Declared, converted, real, whole, word
from zib.core.validate import InvalidParameterError
from zib.live.answers import LedgerError
from zib.live.outcome import AGGREGATES, SECOND, Rules
from zib.logs.joining.instants import span
from zib.online.allocation import MOST_DRAWS, GuardRails
from zib.stats.delay import DelayDistribution

LONGEST = 100 * 365 * 86_400.0  # of a window, in seconds
LATEST = 4_000_000_000.0  # of a time, in seconds since 1970
LONGEST_TEXT = 200  # of keys, units and ids
MOST_CONTEXT = 65_536  # letters of a context as JSON
LEARN = ("delay", "close", "event")


def duration(name: str, value: Any, *, zero: bool = False) -> float:
    """Return a length of time in seconds: a number, a timedelta, or text such as "7d"."""
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if zero and not isinstance(value, str) and value == 0:
        return 0.0
    return validate.real(name, span(name, value), low=0.0, high=LONGEST)


def _duration(name: str, *, zero: bool = False, default: Any = ...) -> Any:
    more = {} if default is ... else {"default": default}
    return converted(
        lambda value: duration(name, value, zero=zero),
        allowed="length of time, in seconds or as text such as '7d'",
        **more,
    )


def microseconds(name: str, value: Any) -> int:
    """Return a time as microseconds since 1970: seconds, or a datetime with a time zone."""
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise InvalidParameterError(
                f"`{name}` must have a time zone, such as datetime.now(timezone.utc); got {value!r}"
            )
        value = value.timestamp()
    return round(validate.real(name, value, low=0.0, high=LATEST) * SECOND)


def text(name: str, value: Any) -> str:
    """Return a key, a unit or an id, or raise."""
    if (
        type(value) is str
        and 0 < len(value) <= LONGEST_TEXT
        and value.isprintable()
        and not value.isspace()
    ):
        return value
    raise InvalidParameterError(
        f"`{name}` must be text of 1 to {LONGEST_TEXT} printable characters; "
        f"got {validate.shown(value)}"
    )


def label_text(label: Hashable) -> str:
    """Return the label of an arm as it is kept in the database."""
    return json.dumps(saved.label_to_data(label), ensure_ascii=False)


def label_of(kept: str) -> Hashable:
    """Return the label of an arm from the database."""
    found: Hashable = saved.labels_from_data([json.loads(kept)])[0]
    return found


class Settings(Declared):
    """How a bandit on live traffic waits, counts and shares; see `Ledger`."""

    window: float = _duration("window")
    grace: float = _duration("grace", zero=True, default=0.0)
    aggregate: str = word(AGGREGATES, default="sum")
    inflated: float = real(default=0.0)
    least_share: float = real(low=0.0, high=1.0, closed="right", default=0.001)
    largest_share: float = real(low=0.0, high=1.0, closed="right", default=0.2)
    evidence: int = whole(low=1, default=100)
    draws: int = whole(low=1, high=MOST_DRAWS, default=1_000)
    holdout: float = real(low=0.0, high=1.0, closed="left", default=0.0)
    prior_events: float = real(low=0.0, closed="neither", default=1.0)
    refresh: float = _duration("refresh", default=0.5)
    park: float = _duration("park", default=3_600.0)
    learn: str = word(LEARN, default="delay")

    @property
    def rules(self) -> Rules:
        """How events add up."""
        return Rules.of(self.window, self.grace, self.aggregate, self.inflated)

    @property
    def guard_rails(self) -> GuardRails:
        """Limits on the shares of the arms."""
        return GuardRails(
            least_share=self.least_share,
            largest_share=self.largest_share,
            evidence=self.evidence,
            draws=self.draws,
        )

    def check(self) -> None:
        """Raise where limits contradict each other."""
        self.guard_rails.check()


class Configuration:
    """Everything that a bandit is made with, apart from its arms; kept as JSON.

    Attributes
    ----------
    settings
        Windows, aggregation and limits.
    policy
        A spec, multi-armed or contextual.
    delay
        The law of the delay that is assumed before any was seen, or None.
    features, encoder
        Of a contextual bandit: how many numbers a context has, or how they are made; else None.
    """

    def __init__(
        self,
        settings: Settings,
        policy: Any,
        delay: DelayDistribution | None = None,
        features: int | None = None,
        encoder: Any = None,
    ) -> None:
        self.settings = settings
        self.policy = policy
        self.delay = delay
        self.features = features
        self.encoder = encoder

    @property
    def is_contextual(self) -> bool:
        """Whether decisions have a context."""
        return self.features is not None or self.encoder is not None

    def dumps(self) -> str:
        """Return the text that is kept."""
        return json.dumps(
            {
                "settings": self.settings.parameters(),
                "policy": saved.spec_to_data(self.policy),
                "delay": None
                if self.delay is None
                else {
                    "edges": self.delay.edges.tolist(),
                    "values": self.delay.values.tolist(),
                },
                "features": self.features,
                "encoder": None if self.encoder is None else self.encoder.to_data(),
            },
            sort_keys=True,
        )

    @classmethod
    def loads(cls, kept: str) -> Self:
        """Return what `dumps` has written."""
        from zib.contextual.encoder import Encoder

        try:
            data = json.loads(kept)
            known = {k: v for k, v in data["settings"].items() if k in Settings.declared}
            delay, encoder = data["delay"], data["encoder"]
            return cls(
                Settings(**known),
                saved.spec_from_data(data["policy"]),
                None if delay is None else DelayDistribution(delay["edges"], delay["values"]),
                data["features"],
                None if encoder is None else Encoder.from_data(encoder),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise LedgerError(f"the settings in the database cannot be read: {error}") from error
