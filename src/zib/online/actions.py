"""What a contextual bandit is given: features in all their forms, and the arms they belong to."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zib.contextual import entry
from zib.contextual.entry import LARGEST_FEATURE, Buffers
from zib.core import validate
from zib.core.validate import InvalidParameterError
from zib.online.base import OnlinePolicy
from zib.online.encoding import encoded
from zib.online.features import Matrix, is_pair, is_ready_vector, matrix

Labels = tuple[Hashable, ...]
Ids = NDArray[np.int64]


class Actions(OnlinePolicy):
    """Base of `ContextualBandit`: from what the caller gives to what compiled code takes."""

    _d: int  # features of the magnitude
    _q: int  # features of the occurrence
    _width: int  # of a matrix that serves both parts, -1 if there is none
    _known_arms: int | None  # how many arms the policy tells apart, None if it does not
    _encoder: Any  # a `zib.Encoder`, a transformer of others, or None
    _capacity: int
    _space: Buffers
    _pin: Any

    # ------------------------------------------------------------------------ checking features

    def _rows(self, features: Any) -> tuple[Matrix, Matrix]:
        """Return the rows of both parts, of features in any form."""
        return self._matrices(
            features if self._encoder is None else encoded(self._encoder, features)
        )

    def _matrices(self, features: Any) -> tuple[Matrix, Matrix]:
        """Return the rows of both parts, in the form that compiled code was made for."""
        if is_pair(features):
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
        """Return matrices, and whether one vector was given: they have one row then."""
        if is_ready_vector(features, self._width):
            row = features[None]
            return row, row, True
        if features is None:
            raise InvalidParameterError(
                "`features` must be given with the reward: the matrix that was decided on, or the "
                "row of the action; got none"
            )
        if self._encoder is not None:
            features = encoded(self._encoder, features)
            if is_ready_vector(features, self._d):
                return features[None], features[None], True
        if is_pair(features):
            z, w = (validate.numbers(f"features[{i}]", part) for i, part in enumerate(features))
            if z.ndim == w.ndim == 1:
                return *self._matrices((z[None], w[None])), True
            return *self._matrices((z, w)), False
        self._need_pair()
        rows = validate.numbers("features", features)
        if rows.ndim == 1 and len(rows) > 0:
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
    ) -> tuple[Matrix, Matrix, Labels | None]:
        """Return what the caller gives, before the lock is taken: it may be the caller's code.

        One vector stands for a matrix with that row for every arm, or for every one of `arms`.
        """
        labels = None if arms is None else tuple(validate.iterable("arms", arms))
        z, w, alone = self._decided(features)
        if not alone:
            return z, w, labels
        self._need_own_models()
        n = len(self._every) if labels is None else len(labels)
        return np.repeat(z, n, axis=0), np.repeat(w, n, axis=0), labels

    def _load(self, z: Matrix, w: Matrix, arms: Labels | None) -> tuple[Labels, Ids]:
        """Put features where compiled code looks for them; return labels and arm numbers."""
        labels, ids = self._actions(len(z), arms)
        if not entry.load.for_spec(self._spec)(self._pin, z, w):
            self._refuse_features(z, w)
        return labels, ids

    def _actions(self, n: int, arms: Labels | None) -> tuple[Labels, Ids]:
        """Return the label and the arm number of every row, and make room for them."""
        labels: Labels
        if arms is not None:
            labels = self._labels_of_rows(n, arms)
            if self._arms is None and self._known_arms is None:
                ids = np.arange(n)
            else:
                ids = self._numbers(labels)
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

    def _labels_of_rows(self, n: int, arms: Iterable[Hashable]) -> Labels:
        labels = validate.labels("arms", arms)
        if len(labels) != n:
            raise InvalidParameterError(
                f"`arms` must hold one label per row of `features`, {n}; got {len(labels)}"
            )
        return labels

    def _need_every_arm(self, n: int) -> None:
        if n != len(self._position):
            users = "; `select_many` decides for many users" if self._known_arms else ""
            raise InvalidParameterError(
                f"`features` must have one row per arm, {len(self._position)}, or `arms` must name "
                f"the arms of the rows; got {n} rows{users}"
            )

    def _arm_number(self, arm: Hashable, row: int, name: str = "arm") -> int:
        """Return the number the policy knows an arm by; its row if the policy does not care."""
        if self._arms is not None:
            return self._index(arm, name)
        if self._known_arms is not None:
            return validate.integer(name, arm, low=0, high=self._known_arms - 1)
        return row

    def _numbers(self, arms: Iterable[Hashable]) -> Ids:
        """Return the number of every arm, or 0 where nobody tells arms apart."""
        return np.array([self._arm_number(arm, 0, "arms") for arm in arms], dtype=np.int64)

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

    # ------------------------------------------------------------------------- one vector, any arm

    @property
    def _every(self) -> Labels | range:
        """The arms that one vector is decided for."""
        return self._arms if self._arms is not None else range(self._known_arms or 0)

    def _need_own_models(self) -> None:
        """Raise unless the policy tells arms apart that have the same features."""
        if self._known_arms is not None:
            return
        if self._arms is None:
            raise InvalidParameterError(
                f"`features` must have one row per action and {self._d} columns; got shape "
                f"({self._d},), for which arms need models of their own: give `arms`, no `spec`"
            )
        kind = type(self._spec).__name__
        raise InvalidParameterError(
            f"`features` must have one row per arm, since {kind} has one model for all arms; for "
            f"one vector use spec=zib.contextual.Disjoint(spec={kind}(...), "
            f"n_arms={len(self._arms)}); got one vector"
        )

    def _eligible(self, labels: Labels | None) -> tuple[Labels | range, Ids]:
        """Return the arms to choose from, as labels and as numbers."""
        if labels is None:
            return self._every, self._space.arms[: len(self._every)]
        validate.labels("arms", labels)
        return labels, self._numbers(labels)
