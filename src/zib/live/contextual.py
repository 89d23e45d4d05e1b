"""Contextual bandits on live traffic: contexts as they are kept, and versions that decide by them.

Every arm has a model of its own, and a decision is made on one vector: what is known about the
user. When decisions are learned is in `zib.live.learning`.
"""

from __future__ import annotations

import copy
import hashlib
import json
import threading
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from zib.contextual.adaptive import Adaptive
from zib.contextual.encoder import Encoder
from zib.contextual.entry import LARGEST_FEATURE
from zib.contextual.per_arm import Disjoint, is_split, with_arms
from zib.core import kernel, validate
from zib.core.validate import InvalidParameterError, InvalidTypeError
from zib.live.answers import LedgerError
from zib.live.model import Versioned, limits
from zib.live.settings import Configuration
from zib.online.allocation import Allocation
from zib.online.contextual import ContextualBandit

Numbers = NDArray[np.float64]

FEWER_DRAWS = 10  # the allocation is computed for each decision, so with so many times fewer draws


# ------------------------------------------------------------------------------------ what is given


def contextual_policy(policy: Any, encoder: Any) -> Any:
    """Return the policy as it is kept, or raise.

    It is the policy that every arm has for itself; or one that has models of its own for each of
    its arms, `Adaptive`, kept as one of a single arm: a ledger knows how many there are.
    """
    if encoder is not None:
        if not isinstance(encoder, Encoder):
            raise InvalidTypeError(
                "`encoder` must be a zib.Encoder, which is kept in the database; "
                f"got {validate.shown(encoder)}"
            )
        if not encoder.is_fitted:
            raise InvalidParameterError(
                "`encoder` must be fitted, by encoder.fit(frame); got one that is not"
            )
    if policy is None:
        return Adaptive(n_arms=1, kind="ts")
    if type(policy) in kernel.REGISTRY:
        raise InvalidTypeError(
            "`policy` must be a contextual policy where `features` or `encoder` is given; "
            f"got {type(policy).__name__}, a policy without features"
        )
    policy = policy.spec if isinstance(policy, Disjoint) else policy
    if getattr(policy, "n_categories", 0):
        raise InvalidParameterError(
            "`policy` must not need the category of a reward, which events do not have; got "
            f"{type(policy).__name__}"
        )
    if is_split(policy) and not kernel.is_interpreted(policy):
        return with_arms(policy, 1)
    try:
        Disjoint(spec=policy, n_arms=1)
    except InvalidParameterError as error:
        raise InvalidParameterError(str(error).replace("`spec`", "`policy`", 1)) from None
    return policy


def n_features(configuration: Configuration) -> int:
    """Return how many numbers a decision is made on."""
    if configuration.encoder is not None:
        return int(configuration.encoder.n_features)
    assert configuration.features is not None
    return configuration.features


def encoded_context(configuration: Configuration, context: Any) -> Mapping[str, Any]:
    """Return a context as it is kept: the features, and what they were made from."""
    n = n_features(configuration)
    given: dict[str, Any] = {}
    if configuration.encoder is not None and isinstance(context, Mapping):
        given = {"given": context}
        try:
            context = configuration.encoder.transform(dict(context))
        except InvalidParameterError as error:
            raise InvalidParameterError(f"`context` cannot be encoded: {error}") from None
    if context is None:
        raise InvalidParameterError(
            f"`context` must be given to a contextual bandit: {n} numbers"
            + (", or a dictionary; got None" if configuration.encoder is not None else "; got None")
        )
    x = validate.numbers("context", context)
    if x.shape != (n,):
        raise InvalidParameterError(
            f"`context` must be {n} numbers; got {validate.shown(context)}, shape {x.shape}"
        )
    validate.inside("context", x, -LARGEST_FEATURE, LARGEST_FEATURE)
    return {"x": x.tolist(), **given}


def features_of(context: str | None) -> Numbers:
    """Return the features of a decision from what is kept."""
    if context is None:
        raise LedgerError("a decision of a contextual bandit has no context")
    return np.array(json.loads(context)["x"], dtype=np.float64)


def new_bandit(configuration: Configuration, labels: Sequence[Hashable]) -> ContextualBandit:
    """Return a bandit that has learned nothing."""
    policy, n_arms = configuration.policy, len(labels)
    bandit = ContextualBandit(
        with_arms(policy, n_arms) if is_split(policy) else Disjoint(spec=policy, n_arms=n_arms),
        arms=labels,
        n_features=n_features(configuration),
        seed=0,
        inflated=configuration.settings.inflated,
    )
    bandit._warn_after = float("inf")  # a horizon is a guess here
    return bandit


# ---------------------------------------------------------------------------------------- a version


class Learned(NamedTuple):
    """A decision that was learned, and what as."""

    id: str
    value: float


class ContextualModel(Versioned):
    """One version of a contextual bandit.

    Parameters
    ----------
    name, configuration, version, made_at, labels, statuses
        As for `zib.live.model.Versioned`.
    bandit
        What it knows; not changed any more.
    learned
        What was learned since the version before, in this order.
    whole
        Whether the text holds everything that is known, not only what was learned.
    """

    chained = True

    def __init__(
        self,
        name: str,
        configuration: Configuration,
        version: int,
        made_at: int,
        labels: Sequence[Hashable],
        statuses: Sequence[str],
        bandit: ContextualBandit,
        learned: Sequence[Learned] = (),
        whole: bool = True,
    ) -> None:
        super().__init__(name, configuration, version, made_at, labels, statuses)
        self.bandit = bandit
        self.learned = tuple(learned)
        self.whole = whole
        self._lock = threading.Lock()  # the bandit has one stream and scratch space

    def allocation(
        self, eligible: tuple[int, ...], key: str = "", context: str | None = None
    ) -> Allocation:
        """Return the probability of each of the eligible arms for a context.

        Posterior draws come from a stream that is named by bandit, version and key.
        """
        rows = np.repeat(features_of(context)[None], len(eligible), axis=0)
        labels = tuple(self.labels[k] for k in eligible)
        rails = limits(self.configuration.settings, len(eligible))
        fewer = rails._replace(draws=max(rails.draws // FEWER_DRAWS, 1))
        with self._lock:
            bandit = self.bandit
            bandit._rails = fewer
            _name_stream(bandit._rng, f"{self.name}\0{self.version}\0draws\0{key}")
            found = bandit._allocation(rows, rows, labels, bandit._rng)
        return found._replace(labels=eligible)

    def warm_up(self) -> None:
        """Compile what decisions and learning need."""
        x = [0.0] * n_features(self.configuration)
        self.allocation(tuple(range(len(self.labels))), "", json.dumps({"x": x}))
        with self._lock:
            twin = copy.copy(self.bandit)
        inflated = self.configuration.settings.inflated
        twin.update_many([self.labels[0]] * 2, [inflated, inflated + 1.0], [x, x])

    def _content(self) -> dict[str, Any]:
        return {
            "learned": self.learned,
            "whole": self.bandit.dumps() if self.whole else None,
        }

    @classmethod
    def of(
        cls,
        name: str,
        configuration: Configuration,
        content: Mapping[str, Any],
        bandit: ContextualBandit,
    ) -> Self:
        """Return the version with this content and bandit."""
        return cls(
            name, configuration, content["version"], content["made_at"], content["labels"],
            content["statuses"], bandit, [Learned(*each) for each in content["learned"]],
            content["whole"] is not None,
        )  # fmt: skip


def _name_stream(rng: np.random.Generator, name: str) -> None:
    """Let a stream go on from where its name says."""
    digest = hashlib.blake2b(name.encode(), digest_size=32).digest()
    state, step = (int.from_bytes(digest[k : k + 16], "big") for k in (0, 16))
    rng.bit_generator.state = {
        "bit_generator": "PCG64",
        "state": {"state": state, "inc": step | 1},
        "has_uint32": 0,
        "uinteger": 0,
    }
