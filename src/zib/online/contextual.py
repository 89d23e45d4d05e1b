"""`ContextualBandit`: a policy that decides by features, one decision at a time, and learns."""

from __future__ import annotations

import copy
import functools
from collections.abc import Hashable, Iterable
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from zib.contextual import entry, policy
from zib.contextual.entry import LARGEST_FEATURE
from zib.contextual.joint import JointUCB
from zib.contextual.links import StandardLink, resolve_link
from zib.core import kernel, validate
from zib.core.entry import Entry
from zib.core.state import claim
from zib.core.validate import InvalidParameterError, InvalidTypeError
from zib.online.base import OnlinePolicy, Propensities, Seed
from zib.online.features import Matrix, is_ready, matrix
from zib.online.guard import Careful, InUseError, arrays_in, may_raise, undrawn
from zib.stats.predictions import Curve, Prediction, capped, predictions

_FIRST_CAPACITY = 32
_MANY_FEATURES = 100_000  # a file may say so many that its state does not show
_IDENTITY = StandardLink(name="identity")

__all__ = ["ContextualBandit", "Prediction"]


class ContextualBandit(OnlinePolicy):
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
        Labels of the actions, if they are the same in every round or come from a known set:
        text, numbers, None, or tuples of these. Without labels actions are known by their row
        number.
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
    clear error, and after any error everything is as it was before (models of your own, in a
    `Template`, see to that themselves). One object serves one thread: a second that comes while it
    is in use gets a RuntimeError.

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

    _format = "zib.ContextualBandit"
    _format_version = 2
    _compiled = ("_pin", "_space", "_select_one", "_select_pair", "_select_arms", "_learn")

    def __init__(
        self,
        spec: Any = None,
        *,
        n_features: int | tuple[int, int],
        arms: Iterable[Hashable] | None = None,
        seed: Seed = None,
        inflated: float = 0.0,
    ) -> None:
        spec = JointUCB() if spec is None else spec
        if type(spec) in kernel.REGISTRY:
            raise InvalidTypeError(
                f"`spec` must be a contextual policy; {type(spec).__name__} is a policy without "
                "features; use zib.Bandit for it"
            )
        policy.lookup_policy(spec)
        widths = n_features if isinstance(n_features, tuple) else (n_features, n_features)
        if len(widths) != 2:
            raise InvalidParameterError(
                f"`n_features` must be a number or a pair of numbers; "
                f"got {validate.shown(n_features)}"
            )
        d, q = widths
        self._d = validate.integer("n_features", d, low=1)
        self._q = validate.integer("n_features", q, low=1)
        super().__init__(spec, seed, inflated, getattr(_innermost(spec), "horizon", None))
        n_arms = getattr(spec, "n_arms", None)
        self._known_arms = None if n_arms is None else int(n_arms)
        self._arms = None if arms is None else validate.labels("arms", arms)
        if self._arms is not None and self._known_arms not in (None, len(self._arms)):
            raise InvalidParameterError(
                f"`arms` must be {self._known_arms} labels, as many as the policy has arms; "
                f"got {len(self._arms)}"
            )
        self._position = {label: k for k, label in enumerate(self._arms or ())}
        self._state = policy.init(spec, self._d, self._q)
        self._capacity = max(_FIRST_CAPACITY, len(self._position))
        self._prepare()

    def _prepare(self) -> None:
        self._space = entry.buffers(self._capacity, self._d, self._q)
        self._pin = entry.pin(self._spec, self._state, self._rng, self._space)
        self._select_one = entry.select_one.for_spec(self._spec)
        self._select_pair = entry.select.for_spec(self._spec)
        self._select_arms = entry.select_arms.for_spec(self._spec)
        self._learn = entry.update.for_spec(self._spec)
        if may_raise(self._spec):
            for name in ("_select_one", "_select_pair", "_select_arms"):
                setattr(self, name, undrawn(self._rng, getattr(self, name)))
            careful = Careful(arrays_in(self._state), repeatable=not self._has_objects)
            self._learn = functools.partial(_carefully, careful, self._learn)
        # What the quick checks compare with: the width of a matrix that serves both parts, and
        # the numbers of rows that need no second look.
        self._width = self._d if self._d == self._q else -1
        room: int = self._space.out.size
        if self._arms is not None:
            self._fewest = self._most = len(self._arms)
        else:
            self._fewest, self._most = 1, min(room, self._known_arms or room)

    @property
    def _has_objects(self) -> bool:
        """Whether the state holds models that are Python objects."""
        return kernel.is_interpreted(self._spec)

    # ------------------------------------------------------------------------------- what it is

    @property
    def n_features(self) -> tuple[int, int]:
        """Numbers of features of the magnitude and of the occurrence part."""
        return (self._d, self._q)

    @property
    def arms(self) -> tuple[Hashable, ...] | None:
        """The labels, or None where actions are known by their row."""
        return self._arms  # type: ignore[no-any-return]

    @property
    def n_updates(self) -> int:
        """How many rewards were learned."""
        return self._learned

    def __repr__(self) -> str:
        width = self._d if self._d == self._q else (self._d, self._q)
        arms = "" if self._arms is None else f"{len(self._arms)} arms, "
        return (
            f"ContextualBandit({self._spec!r}, n_features={width}, "
            f"{arms}{self._learned} rewards learned)"
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
        labels = None if arms is None else tuple(validate.iterable("arms", arms))
        if is_ready(features, self._width):
            z = w = features
        else:
            z, w = self._matrices(features)
        if not self._enter(False):
            raise InUseError
        try:
            if labels is None and self._fewest <= len(z) <= self._most:
                if z is w:
                    row: int = self._select_one(self._pin, z)
                else:
                    row = self._select_pair(self._pin, z, w)
                if row < 0:
                    self._refuse_features(z, w)
                return row if self._arms is None else self._arms[row]
            named, ids = self._actions(len(z), labels)
            row = self._select_arms(self._pin, ids, z, w)
            if row < 0:
                self._refuse_features(z, w)
            return named[row]
        finally:
            self._leave()

    def indices(
        self, features: Any, arms: Iterable[Hashable] | None = None
    ) -> dict[Hashable, float]:
        """Return the score of every action; `select` with these features takes the largest.

        For a Thompson sampling policy these are the draws the next `select` will make: the stream
        is copied, not advanced.
        """
        z, w, named = self._given(features, arms)
        with self._alone():
            labels, ids = self._load(z, w, named)
            out = np.zeros(len(labels))
            preview = entry.pin(self._spec, self._state, self._same_stream(), self._space)
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
            return Propensities.of_largest(self.indices(features, arms))
        z, w, named = self._given(features, arms)
        with self._alone():
            labels, ids = self._load(z, w, named)
            pin = entry.pin(self._spec, self._state, self._own_stream(), self._space)
            counts = np.zeros(len(labels), dtype=np.int64)
            entry.count_choices.for_spec(self._spec)(pin, ids, draws, counts)
            return Propensities.of_counts(labels, counts)

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
        z, w, named = self._given(features, arms)
        with self._alone():
            labels, ids = self._load(z, w, named)
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
        if is_ready(features, self._width):
            z = w = features
            alone = False
        else:
            z, w, alone = self._decided(features)
        row, k = self._place(arm, len(z), arms, alone)
        value = self._reward(reward)
        if not self._enter(False):
            raise InUseError
        try:
            if self._learned + 1 > self._warn_after:
                self._refuse_features(z, w, row)
                self._warn_of_horizon()
            if not self._learn(self._pin, k, z, w, row, value):
                self._refuse_features(z, w, row)
            self._learned += 1
        finally:
            self._leave()

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
        known = validate.iterable("arms", arms)
        ids = [self._arm_number(arm, 0, "arms") for arm in known]
        values = self._rewards(rewards, len(ids))
        if not ids:
            return
        z, w = self._matrices(features)
        if len(z) != len(ids):
            raise InvalidParameterError(
                f"`features` must have one row per reward, {len(ids)}; got {len(z)}"
            )
        self._refuse_features(z, w)
        with self._alone():
            if self._learned + len(ids) > self._warn_after:
                self._warn_of_horizon()
            before = copy.deepcopy(self._state) if may_raise(self._spec) else None
            try:
                for row, (k, value) in enumerate(zip(ids, values.tolist(), strict=True)):
                    self._learn(self._pin, k, z, w, row, value)
            except BaseException:
                if before is not None:
                    self._state = before
                    self._prepare()
                raise
            self._learned += len(ids)

    # ------------------------------------------------------------------------------ keeping it

    def _content(self) -> dict[str, Any]:
        return {"n_features": [self._d, self._q]}

    @classmethod
    def _rebuilt(cls, spec: Any, arms: Any, seed: Seed, content: dict[str, Any]) -> Self:
        d, q = content["n_features"]
        for width in (d, q):
            if validate.integer("n_features", width, low=1) > _MANY_FEATURES:
                claim(width)
        return cls(spec, n_features=(d, q), arms=arms, seed=seed, inflated=content["inflated"])

    # ------------------------------------------------------------------------ checking features

    def _matrices(self, features: Any) -> tuple[Matrix, Matrix]:
        """Return the rows of both parts, in the form that compiled code was made for."""
        if isinstance(features, tuple) and len(features) == 2:
            z = matrix("features[0]", features[0], self._d)
            w = matrix("features[1]", features[1], self._q)
            if len(z) != len(w):
                raise InvalidParameterError(
                    f"`features` must have as many rows in both matrices; got {len(z)} and {len(w)}"
                )
            return z, w
        self._need_pair()
        rows = matrix("features", features, self._d)
        return rows, rows

    def _decided(self, features: Any) -> tuple[Matrix, Matrix, bool]:
        """Return matrices, and whether they hold nothing but the row of the action."""
        if features is None:
            raise InvalidParameterError(
                "`features` must be given with the reward: the matrix that was decided on, or the "
                "row of the action; got none"
            )
        if isinstance(features, tuple) and len(features) == 2:
            z, w = (validate.numbers(f"features[{i}]", part) for i, part in enumerate(features))
            if z.ndim == w.ndim == 1:
                return *self._matrices((z[None], w[None])), True
            return *self._matrices((z, w)), False
        self._need_pair()
        rows = validate.numbers("features", features)
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

    def _given(
        self, features: Any, arms: Iterable[Hashable] | None
    ) -> tuple[Matrix, Matrix, tuple[Hashable, ...] | None]:
        """Return what the caller gives, before the lock is taken: it may be the caller's code."""
        return *self._matrices(features), None if arms is None else tuple(
            validate.iterable("arms", arms)
        )

    def _load(
        self, z: Matrix, w: Matrix, arms: tuple[Hashable, ...] | None
    ) -> tuple[tuple[Hashable, ...], NDArray[np.int64]]:
        """Put features where compiled code looks for them; return labels and arm numbers."""
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
                numbers = [self._arm_number(label, 0, "arms") for label in labels]
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
            self._capacity = max(n, 3 * room // 2)
            self._prepare()
        return labels, ids

    def _labels_of_rows(self, n: int, arms: Iterable[Hashable]) -> tuple[Hashable, ...]:
        labels = validate.labels("arms", arms)
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

    def _arm_number(self, arm: Hashable, row: int, name: str = "arm") -> int:
        """Return the number the policy knows an arm by; its row if the policy does not care."""
        if self._arms is not None:
            return self._index(arm, name)
        if self._known_arms is not None:
            return validate.integer(name, arm, low=0, high=self._known_arms - 1)
        return row

    def _place(
        self, arm: Hashable, n: int, arms: Iterable[Hashable] | None, alone: bool
    ) -> tuple[int, int]:
        """Return the row of an action that was taken, and the number of its arm."""
        if alone:
            return 0, self._arm_number(arm, 0)
        if arms is not None:
            labels = self._labels_of_rows(n, arms)
            if validate.label("arm", arm) not in labels:
                raise InvalidParameterError(
                    f"`arm` must be one of `arms`; got {validate.shown(arm)}"
                )
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
                f"`arm` must be a row of `features`, a whole number in [0, {n - 1}]; got "
                f"{validate.shown(arm)}"
            ) from None


def _carefully(
    careful: Careful, learn: Any, pin: Any, k: int, z: Matrix, w: Matrix, row: int, reward: float
) -> Any:
    """Learn one row; a copy of it, since it may have to be learned again."""
    return careful(learn, pin, k, z[row : row + 1].copy(), w[row : row + 1].copy(), 0, reward)


# ------------------------------------------------------------------------------------------ links


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
