"""Target policies: whose value is wanted. Each gives probabilities of the arms for each row."""

from __future__ import annotations

import copy
import difflib
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from zib.core import validate
from zib.core.validate import InvalidParameterError
from zib.logs.passes import Block
from zib.online import Bandit, ContextualBandit

Array = NDArray[np.float64]
Arms = tuple[Hashable, ...]

__all__ = ["always", "snapshot"]

SUM_TOLERANCE = 1e-6
_DRAWS = 100_000  # of a bandit that decides at random, once per evaluation


class Always(NamedTuple):
    """The policy that plays one arm."""

    arm: Hashable


class Snapshot(NamedTuple):
    """A contextual bandit as it is now, with the features it decides on."""

    bandit: ContextualBandit
    features: Callable[[Array], Any] | None
    draws: int


class Learned(NamedTuple):
    """What is to be learned from the log itself, cross-fitted."""

    learner: Any


def always(arm: Hashable) -> Always:
    """Return the policy that always plays `arm`.

    Examples
    --------
    >>> always("b")
    Always(arm='b')
    """
    return Always(arm)


def snapshot(
    bandit: ContextualBandit,
    *,
    features: Callable[[Array], Any] | None = None,
    draws: int = 1000,
) -> Snapshot:
    """Return the policy a contextual bandit follows now, without learning.

    Parameters
    ----------
    bandit
        Copied: what it learns later does not matter.
    features
        Takes the context of n rows of the log, (n, d), and returns what the bandit is to decide
        on: (n, K, m), one row of m features per arm, in the order of the log's arms; or (n, m),
        one vector per row, for a bandit whose arms have models of their own. Or a tuple of two such
        arrays, for the magnitude and for the occurrence part. By default the context itself goes
        through the encoder of the bandit; without an encoder it is taken as it is, if the bandit
        has as many features and a model for each arm.
    draws
        Simulated decisions per context, for policies that decide at random. The weights inherit
        their noise, a relative error of about ((1 − π)/(π·draws))^½ per row, which averages out.

    Notes
    -----
    Probabilities are computed once per distinct set of features in a block of rows; with a
    continuous context that is every row, at some tens of microseconds, or milliseconds for a policy
    that decides at random.
    """
    if not isinstance(bandit, ContextualBandit):
        raise InvalidParameterError(
            f"`bandit` must be a zib.ContextualBandit; got {validate.shown(bandit)}"
        )
    if features is not None and not callable(features):
        raise InvalidParameterError(
            f"`features` must be a function; got {validate.shown(features)}"
        )
    draws = validate.integer("draws", draws, low=1)
    return Snapshot(copy.deepcopy(bandit), features, draws)


Learn = Callable[[str, Any], "Target"]


class Target:
    """A policy ready to be evaluated on a log.

    `outside` is the mass it gives to arms the log does not know; `probabilities` sum to the rest.
    """

    logging = False
    remark = ""  # what makes its value doubtful

    def __init__(self, name: str, n_arms: int) -> None:
        self.name = name
        self.n_arms = n_arms
        self.outside: dict[Hashable, float] = {}

    def probabilities(self, context: Array) -> Array:
        """Return the probabilities of the arms, (n, K)."""
        raise NotImplementedError

    def of(self, block: Block) -> Array:
        """Return the probabilities of the arms in the rows of a block."""
        return self.probabilities(block.context)

    def seen_before(self, rows: NDArray[np.int64], nonzero: NDArray[np.int64]) -> str:
        """Return what suggests that the policy learned from the log, or nothing.

        `rows` and `nonzero` count the log's rows and non-zero rewards of each arm.
        """
        return ""


class LoggingTarget(Target):
    """The policy that made the log."""

    logging = True


class FixedTarget(Target):
    """The same probabilities for every row."""

    def __init__(
        self,
        name: str,
        vector: Array,
        outside: Mapping[Hashable, float],
        bandit: tuple[Bandit, Arms] | None = None,
    ) -> None:
        super().__init__(name, vector.size)
        self._vector = vector
        self._bandit = bandit
        self.outside = dict(outside)

    def seen_before(self, rows: NDArray[np.int64], nonzero: NDArray[np.int64]) -> str:
        """Return what suggests that the policy learned from the log, or nothing."""
        if self._bandit is None:
            return ""
        bandit, arms = self._bandit
        state = bandit.state
        pulls, paid = (getattr(state, part, None) for part in ("pulls", "nonzero"))
        if pulls is not None and paid is not None and set(arms) <= set(bandit.arms):
            at = [bandit.arms.index(arm) for arm in arms]
            if np.array_equal(pulls[at], rows) and np.array_equal(paid[at], nonzero):
                return "it has learned as many rewards of each arm, zero and not, as the log holds"
        return _as_many(sum(bandit.pulls.values()), rows)

    def probabilities(self, context: Array) -> Array:
        """Return the probabilities of the arms, (n, K)."""
        return np.broadcast_to(self._vector, (len(context), self.n_arms))


class FunctionTarget(Target):
    """Probabilities from a function of the context."""

    def __init__(self, name: str, function: Callable[[Array], Any], n_arms: int) -> None:
        super().__init__(name, n_arms)
        self._function = function

    def probabilities(self, context: Array) -> Array:
        """Return the probabilities of the arms, (n, K), after checking them."""
        return checked_probabilities(
            f"policy {self.name!r}", self._function(context), len(context), self.n_arms
        )


def _as_many(learned: int, rows: NDArray[np.int64]) -> str:
    return "it has learned as many rewards as the log has rows" if learned == rows.sum() else ""


class SnapshotTarget(Target):
    """Probabilities from a contextual bandit."""

    def __init__(self, name: str, policy: Snapshot, arms: Arms, names: tuple[str, ...]) -> None:
        super().__init__(name, len(arms))
        self._policy = policy
        self._features = policy.features or features_from(name, policy.bandit, names)
        self._labels: Arms | None = None
        known = policy.bandit.arms
        if known is not None:
            for arm in arms:
                if arm not in known:
                    raise InvalidParameterError(
                        f"policy {name!r}: the bandit must know every arm of the log; "
                        f"it does not know {arm!r}"
                    )
            self._labels = arms

    def probabilities(self, context: Array) -> Array:
        """Return the probabilities of the arms, (n, K)."""
        given = self._features(context)
        parts = given if isinstance(given, tuple) else (given,)
        arrays = [np.asarray(part, dtype=np.float64) for part in parts]
        vectors = has_own_models(self._policy.bandit)
        for array in arrays:
            if vectors and array.ndim == 2 and len(array) == len(context):
                continue
            if array.ndim != 3 or array.shape[:2] != (len(context), self.n_arms):
                raise InvalidParameterError(
                    f"policy {self.name!r}: `features` must return one row per arm for each row "
                    f"of the log, shape ({len(context)}, {self.n_arms}, m); got {array.shape}"
                )
        flat = np.concatenate([a.reshape(len(context), -1) for a in arrays], axis=1)
        _, first, back = np.unique(flat, axis=0, return_index=True, return_inverse=True)
        out = np.empty((first.size, self.n_arms))
        for at, row in enumerate(first):
            one = tuple(np.ascontiguousarray(a[row]) for a in arrays)
            found = self._policy.bandit.propensities(
                one if len(one) == 2 else one[0], self._policy.draws, arms=self._labels
            )
            out[at] = list(found.values())
        return out[back.reshape(-1)]

    def seen_before(self, rows: NDArray[np.int64], nonzero: NDArray[np.int64]) -> str:
        """Return what suggests that the policy learned from the log, or nothing."""
        return _as_many(self._policy.bandit.n_updates, rows)


def has_own_models(bandit: ContextualBandit) -> bool:
    """Return whether every arm has a model of its own, so that one vector is enough."""
    return getattr(bandit.spec, "n_arms", None) is not None


def features_from(
    name: str, bandit: ContextualBandit, names: tuple[str, ...]
) -> Callable[[Array], Any]:
    """Return how the context of a log becomes the features of a bandit, or raise."""
    if not has_own_models(bandit):
        raise InvalidParameterError(
            f"policy {name!r}: say which features each arm has in a row of the log: "
            "zib.ope.snapshot(bandit, features=...)"
        )
    if bandit.encoder is not None:
        encoder = bandit.encoder
        return lambda context: encoder.transform(context_frame(names, context))
    if bandit.n_features != (len(names), len(names)):
        raise InvalidParameterError(
            f"policy {name!r}: the bandit decides on {bandit.n_features[0]} features and the log "
            f"has a context of {len(names)}: name the columns it was made for, give it an encoder, "
            "or use zib.ope.snapshot(bandit, features=...)"
        )
    return lambda context: context


def context_frame(names: tuple[str, ...], context: Array) -> Any:
    """Return the context as a frame with the columns it was read from: words are words again.

    Examples
    --------
    >>> names = ("age", "region=north", "region=south")
    >>> context_frame(names, np.array([[30.0, 0.0, 1.0]])).to_dict("records")
    [{'age': 30.0, 'region': 'south'}]
    """
    import pandas as pd

    columns: dict[str, Any] = {}
    levels: dict[str, list[int]] = {}
    for j, known in enumerate(names):
        column, is_level, _ = known.partition("=")
        if is_level:
            levels.setdefault(column, []).append(j)
            columns[column] = None  # keeps its place
        else:
            columns[column] = context[:, j]
    for column, at in levels.items():
        words = np.array([names[j].partition("=")[2] for j in at], dtype=object)
        columns[column] = words[context[:, at].argmax(axis=1)]
    return pd.DataFrame(columns)


def checked_probabilities(what: str, values: Any, n: int, n_arms: int) -> Array:
    """Return an (n, K) array of probabilities, or raise."""
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidParameterError(
            f"{what} must return numbers; got {validate.shown(values)}"
        ) from None
    if array.shape != (n, n_arms):
        raise InvalidParameterError(
            f"{what} must return one probability per row and arm, shape ({n}, {n_arms}); "
            f"got {array.shape}"
        )
    bad = ~((array >= 0.0) & (array <= 1.0 + SUM_TOLERANCE)).all(axis=1)
    bad |= ~(np.abs(array.sum(axis=1) - 1.0) <= SUM_TOLERANCE)
    if bad.any():
        row = array[int(np.argmax(bad))]
        raise InvalidParameterError(
            f"{what} must return probabilities in [0, 1] that sum to 1 in each row; "
            f"got {row.tolist()!r}"
        )
    return array


def resolve_targets(
    policies: Any, arms: Arms, names: tuple[str, ...] = (), learn: Learn | None = None
) -> list[Target]:
    """Return the target policies with their names, or raise.

    `names` are the columns of the context; `learn` makes a target of something to be learned.
    """
    single = (str, Always, Snapshot, Learned, Bandit, ContextualBandit)
    if isinstance(policies, single) or callable(policies):
        policies = [policies]
    if isinstance(policies, Mapping):
        pairs = [(str(name), policy) for name, policy in policies.items()]
    elif isinstance(policies, Sequence):
        pairs = [(_name_of(policy, at), policy) for at, policy in enumerate(policies)]
    else:
        raise InvalidParameterError(
            f"`policies` must be a mapping of names to policies, or a list; "
            f"got {validate.shown(policies)}"
        )
    if not pairs:
        raise InvalidParameterError("`policies` must hold at least one policy; got none")
    called = [name for name, _ in pairs]
    for name in called:
        if called.count(name) > 1:
            raise InvalidParameterError(
                f"`policies` must have different names; {name!r} occurs twice: use a mapping"
            )
    return [_resolve(name, policy, arms, names, learn) for name, policy in pairs]


def _name_of(policy: Any, at: int) -> str:
    if isinstance(policy, str):
        return policy
    if isinstance(policy, Always):
        return f"always {policy.arm}"
    if isinstance(policy, Bandit):
        return type(policy.spec).__name__
    if isinstance(policy, Snapshot):
        return type(policy.bandit.spec).__name__
    if isinstance(policy, ContextualBandit):
        return type(policy.spec).__name__
    if isinstance(policy, Learned):
        return f"learned {_learner_name(policy.learner)}"
    name = getattr(policy, "__name__", "")
    if name and name != "<lambda>":
        return str(name)
    return f"policy {at + 1}" if isinstance(policy, Mapping) or name else str(policy)


def _learner_name(learner: Any) -> str:
    if isinstance(learner, str):
        return learner
    inner = getattr(learner, "spec", None)  # of a wrapper such as Disjoint
    return type(learner if inner is None else inner).__name__


def _resolve(
    name: str, policy: Any, arms: Arms, names: tuple[str, ...], learn: Learn | None
) -> Target:
    if isinstance(policy, Learned) and learn is not None:
        return learn(name, policy.learner)
    if isinstance(policy, Always):
        return FixedTarget(name, _one(name, policy.arm, arms), {})
    if isinstance(policy, Snapshot):
        return SnapshotTarget(name, policy, arms, names)
    if isinstance(policy, Bandit):
        return _fixed(name, policy.propensities(_DRAWS), arms, policy)
    if isinstance(policy, ContextualBandit):
        return SnapshotTarget(name, snapshot(policy), arms, names)
    if isinstance(policy, Mapping):
        for arm in policy:
            _one(name, arm, arms)
        shares = {arm: validate.real(f"{name}[{arm!r}]", p, 0.0, 1.0) for arm, p in policy.items()}
        total = sum(shares.values())
        if abs(total - 1.0) > SUM_TOLERANCE:
            raise InvalidParameterError(
                f"policy {name!r}: the probabilities must sum to 1; they sum to {total:.6g}"
            )
        return _fixed(name, shares, arms)
    if callable(policy):
        return FunctionTarget(name, policy, len(arms))
    if isinstance(policy, str) and policy == "logging":
        return LoggingTarget(name, len(arms))
    if isinstance(policy, str) and policy == "uniform":
        return FixedTarget(name, np.full(len(arms), 1.0 / len(arms)), {})
    return FixedTarget(name, _one(name, policy, arms, reserved=True), {})


def _fixed(
    name: str, shares: Mapping[Hashable, float], arms: Arms, bandit: Bandit | None = None
) -> FixedTarget:
    position = {arm: k for k, arm in enumerate(arms)}
    vector, outside = np.zeros(len(arms)), {}
    for arm, share in shares.items():
        if arm in position:
            vector[position[arm]] = share
        elif share > 0.0:
            outside[arm] = float(share)
    return FixedTarget(name, vector, outside, None if bandit is None else (bandit, arms))


def _one(name: str, arm: Any, arms: Arms, reserved: bool = False) -> Array:
    """Return all mass on one arm, or raise and name those there are."""
    try:
        at = arms.index(arm)
    except (ValueError, TypeError):
        known = ", ".join(repr(label) for label in arms[:8]) + (", …" if len(arms) > 8 else "")
        words = {str(label): label for label in arms}
        options = [*words, *(("uniform", "logging") if reserved else ())]
        near = difflib.get_close_matches(str(arm), options, n=1)
        hint = f" (did you mean {words.get(near[0], near[0])!r}?)" if near else ""
        also = "'uniform', 'logging' or " if reserved else ""
        raise InvalidParameterError(
            f"`policies`: policy {validate.shown(name)} must be {also}about arms of the log, "
            f"{known}; "
            f"got {validate.shown(arm)}{hint}"
        ) from None
    out = np.zeros(len(arms))
    out[at] = 1.0
    return out
