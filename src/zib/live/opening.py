"""Making a bandit in a database, or finding the one that is there."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Mapping
from typing import Any

from zib.core import validate
from zib.core.validate import InvalidParameterError, InvalidTypeError
from zib.live.arms import write_arms
from zib.live.book import Book
from zib.live.contextual import contextual_policy
from zib.live.database import Connection
from zib.live.model import check_policy
from zib.live.settings import Configuration, Settings
from zib.mab.adaptive import ZIAdaptive
from zib.stats.delay import DelayDistribution


class Given:
    """What the caller of `Ledger` has said about a bandit, checked; the rest is None.

    Parameters
    ----------
    policy, delay, features, encoder
        As for `Ledger`.
    settings
        Those of `Settings` that were given.
    """

    def __init__(
        self, policy: Any, delay: Any, features: Any, encoder: Any, settings: Mapping[str, Any]
    ) -> None:
        if not (delay is None or isinstance(delay, DelayDistribution)):
            raise InvalidTypeError(
                f"`delay` must be a DelayDistribution or None; got {validate.shown(delay)}"
            )
        if features is not None:
            features = validate.integer("features", features, low=1, high=100_000)
        said = {name: value for name, value in settings.items() if value is not None}
        checked = Settings(**{"window": 1.0, **said}).parameters()
        self.settings = {name: checked[name] for name in said}
        self.others = {
            "policy": policy,
            "delay": delay,
            "features": features,
            "encoder": encoder,
        }

    def configuration(self) -> Configuration:
        """Return everything a new bandit is made with."""
        if "window" not in self.settings:
            raise InvalidParameterError(
                "`window` must be given to make a bandit, such as '7d': how long after a decision "
                "events are expected"
            )
        policy, *rest = self.others.values()
        if self.others["features"] is not None or self.others["encoder"] is not None:
            policy = contextual_policy(policy, self.others["encoder"])
        else:
            policy = ZIAdaptive() if policy is None else policy
            check_policy(policy)
        return Configuration(Settings(**self.settings), policy, *rest)

    def refuse_other(self, name: str, kept: Configuration) -> None:
        """Raise if something differs from what the bandit was made with."""
        known = kept.settings.parameters()
        for parameter, value in self.settings.items():
            if known[parameter] != value:
                raise InvalidParameterError(
                    f"`{parameter}` must be {known[parameter]!r}, which the bandit {name!r} was "
                    f"made with, or not given; got {value!r}"
                )
        policy, *rest = self.others.values()
        if policy is not None and kept.is_contextual:
            policy = contextual_policy(policy, None)
        same = Configuration(kept.settings, kept.policy if policy is None else policy, *rest)
        ours, theirs = json.loads(kept.dumps()), json.loads(same.dumps())
        for parameter, value in self.others.items():
            if value is not None and ours[parameter] != theirs[parameter]:
                raise InvalidParameterError(
                    f"`{parameter}` must be what the bandit {name!r} was made with, or not given; "
                    f"got {validate.shown(value)}"
                )


def open_book(
    c: Connection,
    name: str,
    labels: tuple[Hashable, ...] | None,
    given: Given,
    now: Callable[[], int],
) -> Book:
    """Return the bandit, made if it is not in the database yet."""
    c.lock_schema()
    found = c.rows("SELECT id, settings FROM bandit WHERE name = $1", name)
    if found:
        number, configuration = int(found[0][0]), Configuration.loads(found[0][1])
        given.refuse_other(name, configuration)
    else:
        if labels is None:
            raise InvalidParameterError(
                f"`arms` must be given to make a bandit: there is none named {name!r} yet"
            )
        configuration = given.configuration()
        number = 1 + int(c.rows("SELECT COALESCE(MAX(id), 0) FROM bandit")[0][0])
        c.run(
            "INSERT INTO bandit (id, name, settings, created_at) VALUES ($1, $2, $3, $4)",
            number, name, configuration.dumps(), now(),
        )  # fmt: skip
        write_arms(c, number, 0, labels, now())
    book = Book(number, name, configuration)
    book.read_arms(c)
    if found and labels is not None and set(labels) != set(book.labels):
        raise InvalidParameterError(
            f"`arms` must be those of the bandit, {validate.shown(tuple(book.labels))}, or not "
            f"given (use `add_arm` for more); got {validate.shown(labels)}"
        )
    book.count_parked(c)
    return book
