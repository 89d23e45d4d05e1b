"""`ContextualBandit`: a policy that decides by features, one decision at a time, and learns."""

from __future__ import annotations

import copy
import os
from collections.abc import Hashable, Iterable
from numbers import Real
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from zib.bandit import LARGEST_REWARD, Propensities, RewardDoor
from zib.contextual import entry, policy
from zib.contextual.entry import LARGEST_FEATURE
from zib.contextual.joint import JointUCB
from zib.contextual.links import StandardLink, resolve_link
from zib.core import kernel, validate
from zib.core import saved as _saved
from zib.core.entry import Entry
from zib.core.rng import generator_from_data, generator_to_data
from zib.core.saved import SavedStateError
from zib.core.state import problem_in
from zib.core.validate import InvalidParameterError
from zib.stats.predictions import Curve, Prediction, capped, predictions

FORMAT, FORMAT_VERSION = "zib.ContextualBandit", 1
_FLOAT = np.dtype(np.float64)
_FIRST_CAPACITY = 32
_IDENTITY = StandardLink(name="identity")

__all__ = ["ContextualBandit", "Prediction"]

Matrix = NDArray[np.float64]


class ContextualBandit(RewardDoor):
    """A contextual policy in use: every action comes with features, and actions may change.

    Parameters
    ----------
    spec
        The policy, one of `zib.contextual` or your own. None: `zib.contextual.JointUCB`, which has
        to be told nothing.
    n_features
        Number of features per action; or a pair (d, q), of the magnitude part and of the
        occurrence part.
    arms
        Labels of the actions, if they are the same in every round or come from a known set; any
        hashable values. Without labels actions are known by their row number.
    seed
        A whole number, a NumPy Generator (used as it is, not copied), or None for a fresh stream.
    inflated
        The reward that means "nothing happened", 0 unless said otherwise. A reward exactly equal to
        it is evidence for the occurrence part only.

    Notes
    -----
    Features have one row per action: an array, a list of lists or a DataFrame with numbers only. A
    **tuple of two** of these gives the magnitude and the occurrence part features of their own; one
    matrix serves both.

    `select` never changes what was learned and `update` never draws, so rewards may come late, in
    any order and in batches; give each with the features that were decided on. Bad input raises one
    clear error and changes nothing. One object serves one thread.

    Examples
    --------
    >>> import numpy as np
    >>> import zib
    >>> bandit = zib.ContextualBandit(zib.contextual.JointUCB(), n_features=2, seed=1)
    >>> rng = np.random.default_rng(0)
    >>> for _ in range(200):
    ...     features = rng.normal(size=(5, 2))
    ...     row = bandit.select(features)
    ...     bought = rng.random() < 0.2 + 0.3 * (features[row, 0] > 0)
    ...     bandit.update(row, 10.0 if bought else 0.0, features)
    >>> found = bandit.predict([[1.0, 0.0], [-1.0, 0.0]])
    >>> bool(found.p[0] > found.p[1])
    True
    """

    def __init__(
        self,
        spec: Any = None,
        *,
        n_features: int | tuple[int, int],
        arms: Iterable[Hashable] | None = None,
        seed: int | np.random.Generator | None = None,
        inflated: float = 0.0,
    ) -> None:
        spec = JointUCB() if spec is None else spec
        if type(spec) in kernel.REGISTRY:
            raise TypeError(
                f"{type(spec).__name__} is a policy without features; use zib.Bandit for it"
            )
        policy.lookup_policy(spec)
        widths = n_features if isinstance(n_features, tuple) else (n_features, n_features)
        if len(widths) != 2:
            raise InvalidParameterError(
                f"`n_features` must be a number or a pair of numbers; got {n_features!r}"
            )
        d, q = widths
        self._d = validate.integer("n_features", d, low=1)
        self._q = validate.integer("n_features", q, low=1)
        self._spec = spec
        self._inflated = validate.real("inflated", inflated)
        low, high = getattr(spec, "reward_range", (-np.inf, np.inf))
        self._low = max(low, -LARGEST_REWARD)
        self._high = min(high, LARGEST_REWARD)
        self._rng = seed if isinstance(seed, np.random.Generator) else np.random.default_rng(seed)
        horizon = getattr(_innermost(spec), "horizon", None)
        self._warn_after = float("inf") if horizon is None else float(horizon)
        n_arms = getattr(spec, "n_arms", None)
        self._known_arms = None if n_arms is None else int(n_arms)
        self._arms = None if arms is None else _different(arms)
        if self._arms is not None and self._known_arms not in (None, len(self._arms)):
            raise InvalidParameterError(
                f"`arms` must be {self._known_arms} labels, as many as the policy has arms; "
                f"got {len(self._arms)}"
            )
        self._position = {label: k for k, label in enumerate(self._arms or ())}
        self._state = policy.init(spec, self._d, self._q)
        self._updates = 0
        self._prepare(max(_FIRST_CAPACITY, len(self._position)))

    def _prepare(self, capacity: int) -> None:
        """Unpack everything for compiled code, with room for that many actions."""
        self._space = entry.buffers(capacity, self._d, self._q)
        self._pin = entry.pin(self._spec, self._state, self._rng, self._space)
        self._select_one = entry.select_one.for_spec(self._spec)
        self._select_pair = entry.select.for_spec(self._spec)
        self._learn = entry.update.for_spec(self._spec)
        # What the quick checks compare with: the width of a matrix that serves both parts, and
        # the numbers of rows that need no second look.
        self._width = self._d if self._d == self._q else -1
        room: int = self._space.out.size
        if self._arms is not None:
            self._fewest = self._most = len(self._arms)
        else:
            self._fewest, self._most = 1, min(room, self._known_arms or room)

    # ------------------------------------------------------------------------------- what it is

    @property
    def spec(self) -> Any:
        """The policy's parameters."""
        return self._spec

    @property
    def n_features(self) -> tuple[int, int]:
        """Numbers of features of the magnitude and of the occurrence part."""
        return (self._d, self._q)

    @property
    def arms(self) -> tuple[Hashable, ...] | None:
        """The labels, or None where actions are known by their row."""
        return self._arms

    @property
    def inflated(self) -> float:
        """The reward that means "nothing happened"."""
        return self._inflated

    @property
    def rng(self) -> np.random.Generator:
        """The random stream of the decisions."""
        return self._rng

    @property
    def n_updates(self) -> int:
        """How many rewards were learned."""
        return self._updates

    @property
    def state(self) -> Any:
        """A copy of what was learned."""
        return copy.deepcopy(self._state)

    def __getstate__(self) -> dict[str, Any]:
        # what is unpacked for compiled code holds addresses: it is made anew by the copy
        compiled = ("_pin", "_space", "_select_one", "_select_pair", "_learn")
        return {name: value for name, value in self.__dict__.items() if name not in compiled}

    def __setstate__(self, content: dict[str, Any]) -> None:
        self.__dict__.update(content)
        self._prepare(self._most)

    def __repr__(self) -> str:
        width = self._d if self._d == self._q else (self._d, self._q)
        arms = "" if self._arms is None else f"{len(self._arms)} arms, "
        return (
            f"ContextualBandit({self._spec!r}, n_features={width}, "
            f"{arms}{self._updates} rewards learned)"
        )

    # -------------------------------------------------------------------------------- deciding

    def select(self, features: Any, arms: Iterable[Hashable] | None = None) -> Any:
        """Return the action to take now: its label, or its row where there are no labels.

        Parameters
        ----------
        features
            One row per action, or a tuple of two such matrices.
        arms
            Labels of the rows, where the actions differ from round to round. If the bandit was made
            with labels they must be among those.
        """
        if _is_ready(features, self._width):
            z = w = features
        else:
            z, w = self._matrices(features)
        if arms is None and self._fewest <= len(z) <= self._most:
            if z is w:
                row: int = self._select_one(self._pin, z)
            else:
                row = self._select_pair(self._pin, z, w)
            if row < 0:
                self._refuse_features(z, w)
            return row if self._arms is None else self._arms[row]
        labels, ids = self._actions(len(z), arms)
        row = entry.select_arms.for_spec(self._spec)(self._pin, ids, z, w)
        if row < 0:
            self._refuse_features(z, w)
        return labels[row]

    def indices(
        self, features: Any, arms: Iterable[Hashable] | None = None
    ) -> dict[Hashable, float]:
        """Return the score of every action; `select` with these features takes the largest.

        For a Thompson sampling policy these are the draws the next `select` will make: the stream
        is copied, not advanced.
        """
        labels, ids = self._load(features, arms)
        out = np.zeros(len(labels))
        preview = entry.pin(self._spec, self._state, copy.deepcopy(self._rng), self._space)
        entry.scores.for_spec(self._spec)(preview, ids, out)
        return dict(zip(labels, out.tolist(), strict=True))

    def propensities(
        self, features: Any, draws: int = 10_000, *, arms: Iterable[Hashable] | None = None
    ) -> Propensities:
        """Return the probability of each action if `select` were called with these features.

        Exact for policies whose scores are not random (ties share evenly); else from `draws`
        simulated decisions on a stream of their own, with `error` the largest standard error. The
        decisions to come are not affected.
        """
        draws = validate.integer("draws", draws, low=1)
        if not policy.draws_randomly(self._spec):
            scores = self.indices(features, arms)
            values = np.fromiter(scores.values(), dtype=np.float64)
            best = values == values.max()
            shares = dict(zip(scores, (best / best.sum()).tolist(), strict=True))
            return Propensities(shares, exact=True, error=0.0)
        labels, ids = self._load(features, arms)
        own = np.random.default_rng(copy.deepcopy(self._rng).integers(2**63, size=4))
        pin = entry.pin(self._spec, self._state, own, self._space)
        counts = np.zeros(len(labels), dtype=np.int64)
        entry.count_choices.for_spec(self._spec)(pin, ids, draws, counts)
        found = counts / draws
        error = float(np.sqrt(found * (1 - found) / draws).max())
        shares = dict(zip(labels, found.tolist(), strict=True))
        return Propensities(shares, exact=False, error=max(error, 1 / draws))

    def predict(
        self, features: Any, level: float = 0.95, *, arms: Iterable[Hashable] | None = None
    ) -> Prediction:
        """Return estimates and intervals of p, mu and r for every action.

        p is the probability that something happens, mu the mean reward when it does, r the mean
        reward. Where the policy models the reward as a whole, p and mu are NaN.

        Notes
        -----
        Intervals treat the estimated linear predictors as normal with the variances the policy
        reports: p gets h(η̂ ± z·se), mu gets g(ζ̂ ± z·se), r the quantiles of h(η)·g(ζ) for jointly
        normal (η, ζ). They hold for many rewards, features that vary and a model that is right.
        With few rewards they show the penalty of the fit (its prior) rather than the data.
        """
        level = validate.real("level", level, low=0, high=1, closed="neither")
        labels, ids = self._load(features, arms)
        out = np.zeros((5, len(labels)))
        entry.moments.for_spec(self._spec)(self._pin, ids, out)
        return predictions(labels, out, self._probability, self._magnitude(), level, self._inflated)

    def _probability(self, predictors: Matrix) -> Matrix:
        return capped(_apply(entry.link_values, _link_of(self._spec), predictors))

    def _magnitude(self) -> Curve | None:
        link = _magnitude_link_of(self._spec)
        if link == _IDENTITY:
            return None
        return Curve(
            lambda x: _apply(entry.link_values, link, x),
            lambda x: _apply(entry.link_inverses, link, x),
        )

    # -------------------------------------------------------------------------------- learning

    def update(
        self,
        arm: Hashable,
        reward: float,
        features: Any = None,
        *,
        arms: Iterable[Hashable] | None = None,
    ) -> None:
        """Learn the reward of one decision, now or long after it was made.

        Parameters
        ----------
        arm
            What `select` returned.
        reward
            The reward.
        features
            What was decided on: the whole matrix (or tuple of two), or only the row of `arm`.
        arms
            Labels of the rows, if `select` was given them and `features` is the whole matrix.
        """
        if _is_ready(features, self._width):
            z = w = features
            alone = False
        else:
            z, w, alone = self._decided(features)
        row, k = self._place(arm, len(z), arms, alone)
        value = self._reward(reward)
        if not self._learn(self._pin, k, z, w, row, value):
            self._refuse_features(z, w, row)
        self._updates += 1
        if self._updates > self._warn_after:
            self._warn_horizon()

    def update_many(self, arms: Iterable[Hashable], rewards: ArrayLike, features: Any) -> None:
        """Learn a batch, in the given order; all of it or, after an error, nothing.

        Parameters
        ----------
        arms
            The actions taken.
        rewards
            Their rewards.
        features
            One row per reward: the features of the action that was taken; or a tuple of two such
            matrices.
        """
        given = np.asarray(rewards)
        ids = [self._arm_number(arm, 0) for arm in arms]
        if given.shape != (len(ids),) or (ids and given.dtype.kind not in "fiub"):
            raise InvalidParameterError(
                f"`rewards` must be numbers, one per arm, shape {(len(ids),)}; "
                f"got shape {given.shape} of {given.dtype}"
            )
        if not ids:
            return
        z, w = self._matrices(features)
        if len(z) != len(ids):
            raise InvalidParameterError(
                f"`features` must have one row per reward, {len(ids)}; got {len(z)}"
            )
        values = given.astype(np.float64) - self._inflated
        outside = ~((self._low <= values) & (values <= self._high))
        if outside.any():
            self._reward(given[np.argmax(outside)].item())  # raises and names the first one
        self._refuse_features(z, w)
        for row, (k, value) in enumerate(zip(ids, values.tolist(), strict=True)):
            self._learn(self._pin, k, z, w, row, value)
        self._updates += len(ids)
        if self._updates > self._warn_after:
            self._warn_horizon()

    # ------------------------------------------------------------------------------ keeping it

    def dumps(self) -> str:
        """Return everything as JSON text (no pickle: reading it can run no code)."""
        labels = self._arms
        return _saved.dumps(
            {
                "format": FORMAT,
                "format_version": FORMAT_VERSION,
                "policy": _saved.spec_to_data(self._spec),
                "n_features": [self._d, self._q],
                "arms": None if labels is None else [_saved.label_to_data(a) for a in labels],
                "inflated": self._inflated,
                "updates": self._updates,
                "state": _saved.state_to_data(self._state),
                "rng": generator_to_data(self._rng),
            }
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write `dumps` to a file, whole or not at all."""
        _saved.write_atomically(path, self.dumps())

    @classmethod
    def loads(
        cls,
        text: str,
        *,
        seed: int | np.random.Generator | None = None,
        source: str = "the text",
    ) -> Self:
        """Return the bandit saved by `dumps`; see `load`."""
        content = _saved.loads(text, FORMAT, FORMAT_VERSION, source)
        try:
            spec = _saved.spec_from_data(content["policy"])
            labels = content["arms"]
            d, q = content["n_features"]
            bandit = cls(
                spec,
                n_features=(d, q),
                arms=None if labels is None else [_saved.label_from_data(a) for a in labels],
                seed=generator_from_data(content["rng"]) if seed is None else seed,
                inflated=content["inflated"],
            )
            bandit._updates = int(content["updates"])
            bandit._state = _saved.state_from_data(content["state"], bandit._state)
        except (KeyError, TypeError) as error:
            raise SavedStateError(f"{source} lacks or garbles an entry: {error}") from error
        problem = problem_in(bandit._state)
        if problem is not None:
            raise SavedStateError(f"{source} holds a state that cannot be: {problem}")
        bandit._prepare(bandit._space.out.size)
        return bandit

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], *, seed: int | np.random.Generator | None = None
    ) -> Self:
        """Return the bandit saved at `path`.

        Without `seed` the random stream goes on exactly where it stopped: right for a restart, but
        two loads then explore alike. Give each further copy a `seed` of its own.
        """
        return cls.loads(Path(path).read_text(), seed=seed, source=str(path))

    # ------------------------------------------------------------------------ checking features

    def _matrices(self, features: Any) -> tuple[Matrix, Matrix]:
        """Return the rows of both parts, in the form that compiled code was made for."""
        if isinstance(features, tuple) and len(features) == 2:
            z = _matrix("features[0]", features[0], self._d)
            w = _matrix("features[1]", features[1], self._q)
            if len(z) != len(w):
                raise InvalidParameterError(
                    f"`features` must have as many rows in both matrices; got {len(z)} and {len(w)}"
                )
            return z, w
        self._need_pair()
        rows = _matrix("features", features, self._d)
        return rows, rows

    def _decided(self, features: Any) -> tuple[Matrix, Matrix, bool]:
        """Return matrices, and whether they hold nothing but the row of the action."""
        if features is None:
            raise InvalidParameterError(
                "`features` must be given with the reward: the matrix that was decided on, or the "
                "row of the action; got none"
            )
        if isinstance(features, tuple) and len(features) == 2:
            z, w = (_numbers(f"features[{i}]", part) for i, part in enumerate(features))
            if z.ndim == w.ndim == 1:
                return *self._matrices((z[None], w[None])), True
            return *self._matrices((z, w)), False
        self._need_pair()
        rows = _numbers("features", features)
        if rows.ndim == 1:
            return *self._matrices(rows[None]), True
        return *self._matrices(rows), False

    def _need_pair(self) -> None:
        if self._d != self._q:
            raise InvalidParameterError(
                f"`features` must be a tuple of two, with {self._d} features of the magnitude and "
                f"{self._q} of the occurrence; got one"
            )

    def _refuse_features(self, z: Matrix, w: Matrix, row: int | None = None) -> None:
        """Raise an error that names the first bad feature, of one row or of all, if any."""
        names = ("features", "features") if z is w else ("features[0]", "features[1]")
        for name, rows in zip(names, (z, w), strict=True):
            checked = rows if row is None else rows[row]
            validate.inside(name, checked, -LARGEST_FEATURE, LARGEST_FEATURE)

    # ---------------------------------------------------------------------------- naming actions

    def _load(
        self, features: Any, arms: Iterable[Hashable] | None
    ) -> tuple[tuple[Hashable, ...], NDArray[np.int64]]:
        """Put features where compiled code looks for them; return labels and arm numbers."""
        z, w = self._matrices(features)
        labels, ids = self._actions(len(z), arms)
        if not entry.load.for_spec(self._spec)(self._pin, z, w):
            self._refuse_features(z, w)
        return labels, ids

    def _actions(
        self, n: int, arms: Iterable[Hashable] | None
    ) -> tuple[tuple[Hashable, ...], NDArray[np.int64]]:
        """Return the label and the arm number of every row, and make room for them."""
        labels: tuple[Hashable, ...]
        if arms is not None:
            labels = self._labels_of_rows(n, arms)
            if self._arms is None and self._known_arms is None:
                ids = np.arange(n)
            else:
                numbers = [self._arm_number(label, 0) for label in labels]
                ids = np.array(numbers, dtype=np.int64)
        elif self._arms is not None:
            self._need_every_arm(n)
            labels, ids = self._arms, np.arange(n)
        else:
            if self._known_arms is not None and n > self._known_arms:
                raise InvalidParameterError(
                    f"`features` must have at most {self._known_arms} rows, one per arm of the "
                    f"policy; got {n}"
                )
            labels, ids = tuple(range(n)), np.arange(n)
        room = self._space.out.size
        if n > room:
            self._prepare(max(n, 3 * room // 2))
        return labels, ids

    def _labels_of_rows(self, n: int, arms: Iterable[Hashable]) -> tuple[Hashable, ...]:
        labels = _different(arms)
        if len(labels) != n:
            raise InvalidParameterError(
                f"`arms` must hold one label per row of `features`, {n}; got {len(labels)}"
            )
        return labels

    def _need_every_arm(self, n: int) -> None:
        if n != len(self._position):
            raise InvalidParameterError(
                f"`features` must have one row per arm, {len(self._position)}, or `arms` must name "
                f"the arms of the rows; got {n} rows"
            )

    def _arm_number(self, arm: Hashable, row: int) -> int:
        """Return the number the policy knows an arm by; its row if the policy does not care."""
        if self._arms is not None:
            return self._index(arm)
        if self._known_arms is not None:
            return validate.integer("arm", arm, low=0, high=self._known_arms - 1)
        return row

    def _place(
        self, arm: Hashable, n: int, arms: Iterable[Hashable] | None, alone: bool
    ) -> tuple[int, int]:
        """Return the row of an action that was taken, and the number of its arm."""
        if alone:
            return 0, self._arm_number(arm, 0)
        if arms is not None:
            labels = self._labels_of_rows(n, arms)
            if arm not in labels:
                raise InvalidParameterError(f"`arm` must be one of `arms`; got {arm!r}")
            row = labels.index(arm)
            return row, self._arm_number(arm, row)
        if self._arms is not None:
            row = self._index(arm)
            self._need_every_arm(n)
            return row, row
        if type(arm) is not int or not 0 <= arm < n:
            arm = self._row(arm, n)
        return arm, self._arm_number(arm, arm)

    def _row(self, arm: Any, n: int) -> int:
        try:
            return validate.integer("arm", arm, low=0, high=n - 1)
        except InvalidParameterError:
            raise InvalidParameterError(
                f"`arm` must be a row of `features`, a whole number in [0, {n - 1}]; got {arm!r}"
            ) from None

    def _index(self, arm: Hashable) -> int:
        try:
            return self._position[arm]
        except (KeyError, TypeError):
            known = ", ".join(repr(label) for label in (self._arms or ())[:8])
            more = ", …" if len(self._position) > 8 else ""
            raise InvalidParameterError(
                f"`arm` must be one of {known}{more}; got {arm!r}"
            ) from None


# ------------------------------------------------------------------------------------------ helpers


def _different(arms: Iterable[Hashable]) -> tuple[Hashable, ...]:
    labels = tuple(arms)
    if not labels:
        raise InvalidParameterError("`arms` must hold at least one label; got none")
    if len(set(labels)) != len(labels):
        raise InvalidParameterError(f"`arms` must be different from each other; got {labels!r}")
    return labels


def _numbers(name: str, values: Any) -> NDArray[Any]:
    """Return an array of real numbers, or raise."""
    try:
        array = np.asarray(values)
    except (TypeError, ValueError):  # rows of different lengths
        raise InvalidParameterError(
            f"`{name}` must be a matrix of numbers; its rows differ in length"
        ) from None
    if array.dtype.kind in "fiub":
        return array
    if array.dtype.kind == "O":  # tables that mix kinds of numbers
        for item in array.flat:
            if not isinstance(item, Real):
                raise InvalidParameterError(f"`{name}` must be numbers only; got {item!r}")
        return array.astype(np.float64)
    raise InvalidParameterError(f"`{name}` must be numbers only; got an array of {array.dtype}")


def _is_ready(values: Any, width: int) -> bool:
    """Whether this is a matrix that compiled code takes as it is: no copy, no further look."""
    return (
        type(values) is np.ndarray
        and values.ndim == 2
        and values.dtype is _FLOAT
        and values.shape[1] == width
        and values.flags.carray
        and values.shape[0] > 0
    )


def _matrix(name: str, values: Any, width: int) -> Matrix:
    """Return an aligned, writeable matrix in C order, as compiled code expects, or raise."""
    if _is_ready(values, width):
        return values  # type: ignore[no-any-return]
    array = _numbers(name, values)
    if array.ndim > 0 and len(array) == 0:
        raise InvalidParameterError(f"`{name}` must have at least one row; got none")
    if array.ndim != 2 or array.shape[1] != width:
        raise InvalidParameterError(
            f"`{name}` must have one row per action and {width} columns; got shape {array.shape}"
        )
    if not array.flags.writeable:
        return np.array(array, dtype=np.float64, order="C")
    return np.require(array, np.float64, ("C", "A", "W"))


def _innermost(spec: Any) -> Any:
    """Return the policy nested in a policy, or the policy itself."""
    for field in spec:
        if type(field) in policy.POLICIES:
            return _innermost(field)
    return spec


def _link_of(spec: Any) -> Any:
    """Return the link of the occurrence."""
    inner = _innermost(spec)
    if not hasattr(inner, "link"):
        raise TypeError(
            f"{type(inner).__name__} has an occurrence part, so its spec needs a field `link`"
        )
    return resolve_link(inner.link, probability=False)


def _magnitude_link_of(spec: Any) -> Any:
    """Return the link of the magnitude: that of its model, if the model is one with a link."""
    model = getattr(_innermost(spec), "magnitude", None)
    if hasattr(model, "_fields") or hasattr(model, "predictor"):
        return resolve_link(getattr(model, "link", _IDENTITY), probability=False)
    return _IDENTITY


def _apply(function: Entry, link: Any, values: Matrix) -> Matrix:
    """Return a function of a link at every number of an array."""
    flat = np.ascontiguousarray(values).reshape(-1)
    out = np.zeros(flat.size)
    function.for_spec(link)(link, flat, out)
    return out.reshape(values.shape)
