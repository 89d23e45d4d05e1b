"""Models of the reward for the direct method and for doubly robust estimates."""

from __future__ import annotations

import copy
import itertools
import warnings
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from zib.core.validate import InvalidParameterError, shown
from zib.stats.regression import Scaling, arm_slices, fit_linear, fit_logistic, scaling

Array = NDArray[np.float64]
Codes = NDArray[np.int64]

__all__ = ["Hurdle", "OnePart", "OutcomeModel"]


class OutcomeModel(Protocol):
    """What a model of the reward must be able to do."""

    def fit(self, arm: Codes, context: Array, reward: Array, n_arms: int) -> Any:
        """Learn from rows: codes of arms (n,), context (n, d), rewards (n,)."""

    def predict(self, context: Array) -> Array:
        """Return the expected reward of every arm: (n, n_arms)."""


class _OwnModel:
    """What our models share: two regressions on (1, context), with coefficients per arm."""

    weighted = True
    _scaling: Scaling

    def _prepared(
        self, arm: Codes, context: Array, reward: Array, n_arms: int, weight: Array | None
    ) -> tuple[Array, list[slice], Array, Array]:
        given = np.ones(reward.size) if weight is None else weight
        self._scaling = scaling(context, given)
        order, slices = arm_slices(arm, n_arms)
        return self._scaling.design(context[order]), list(slices), reward[order], given[order]


class Hurdle(_OwnModel):
    """Chance of a reward times its size: q(x, a) = p(x, a)·μ(x, a), fitted apart.

    Parameters
    ----------
    occurrence
        A classifier in the manner of scikit-learn (`fit`, `predict_proba`) for "the reward is not
        zero"; None for the logistic regression described below.
    magnitude
        A regressor (`fit`, `predict`) for the rewards that are not zero; None for a linear one.

    Notes
    -----
    By default both parts are regressions on the standardised context with an intercept and slopes
    for every arm, held by a ridge penalty near values common to all arms: an arm's intercept counts
    as one observation at the common value, its slopes as ten. With few rewards the model is
    additive in arm and context, with many every arm has its own slopes, without context it is
    p̂·μ̂ per arm. An arm that never paid gets the common magnitude. Predicted magnitudes are kept
    within the range of the rewards seen.

    Estimators of your own get the columns (one 0/1 column per arm, context).

    Examples
    --------
    >>> import numpy as np
    >>> arm, reward = np.array([0, 0, 1, 1] * 50), np.array([0.0, 2.0, 0.0, 0.0] * 50)
    >>> q = Hurdle().fit(arm, np.zeros((200, 0)), reward, 2).predict(np.zeros((1, 0)))
    >>> q.round(2)
    array([[0.96, 0.04]])
    """

    def __init__(self, *, occurrence: Any = None, magnitude: Any = None) -> None:
        for name, part, method in (
            ("occurrence", occurrence, "predict_proba"),
            ("magnitude", magnitude, "predict"),
        ):
            if part is not None and not (hasattr(part, "fit") and hasattr(part, method)):
                raise InvalidParameterError(
                    f"`{name}` must have the methods fit and {method}; got {shown(part)}"
                )
        self.occurrence = occurrence
        self.magnitude = magnitude
        # estimators from elsewhere need not take weights: they get a plain sample
        self.weighted = occurrence is None and magnitude is None

    def __repr__(self) -> str:
        parts = [
            f"{name}={part!r}"
            for name, part in (("occurrence", self.occurrence), ("magnitude", self.magnitude))
            if part is not None
        ]
        return f"Hurdle({', '.join(parts)})"

    def fit(
        self,
        arm: Codes,
        context: Array,
        reward: Array,
        n_arms: int,
        weight: Array | None = None,
    ) -> Self:
        """Learn from rows; `weight` says how many rows each stands for."""
        self._n_arms = n_arms
        design, slices, y, w = self._prepared(arm, context, reward, n_arms, weight)
        paid = y != 0.0
        self._any = bool(paid.any())
        if not self._any:
            return self
        sizes = y[paid]
        self._range = float(sizes.min()), float(sizes.max())
        self._prob: Any = _constant_if_one_class(paid)
        if self._prob is None:
            if self.occurrence is None:
                self._prob = fit_logistic(design, slices, paid.astype(np.float64), w)
            else:
                self._prob = _trained(self.occurrence, one_hot(arm, context, n_arms), reward != 0.0)
        if self.magnitude is None:
            ends = np.cumsum([0, *(int(paid[s].sum()) for s in slices)])
            inner = [slice(a, b) for a, b in itertools.pairwise(ends)]
            self._size: Any = fit_linear(design[paid], inner, sizes, w[paid])
        else:
            rows = reward != 0.0
            features = one_hot(arm[rows], context[rows], n_arms)
            self._size = _trained(self.magnitude, features, reward[rows])
        return self

    def predict(self, context: Array) -> Array:
        """Return the expected reward of every arm: (n, n_arms)."""
        p, size = self.parts(context)
        return p * size

    def parts(self, context: Array) -> tuple[Array, Array]:
        """Return chance and size of a reward for every arm, each (n, n_arms)."""
        from scipy.special import expit

        shape = (len(context), self._n_arms)
        if not self._any:
            return np.zeros(shape), np.zeros(shape)
        design = self._scaling.design(context)
        if isinstance(self._prob, float):
            p = np.full(shape, self._prob)
        elif self.occurrence is None:
            p = expit(design @ self._prob.T)
        else:
            yes = list(self._prob.classes_).index(True)
            p = _each_arm(lambda x: self._prob.predict_proba(x)[:, yes], context, self._n_arms)
        if self.magnitude is None:
            size = design @ self._size.T
        else:
            size = _each_arm(self._size.predict, context, self._n_arms)
        return p, np.clip(size, *self._range)


class OnePart(_OwnModel):
    """One regression of the reward itself, zeros included: what `Hurdle` is to be compared with.

    Parameters
    ----------
    regressor
        A regressor in the manner of scikit-learn; None for the linear one with the same features
        and penalties as the parts of `Hurdle`.
    """

    def __init__(self, *, regressor: Any = None) -> None:
        if regressor is not None and not (
            hasattr(regressor, "fit") and hasattr(regressor, "predict")
        ):
            raise InvalidParameterError(
                f"`regressor` must have the methods fit and predict; got {shown(regressor)}"
            )
        self.regressor = regressor
        self.weighted = regressor is None

    def __repr__(self) -> str:
        return f"OnePart({'' if self.regressor is None else f'regressor={self.regressor!r}'})"

    def fit(
        self,
        arm: Codes,
        context: Array,
        reward: Array,
        n_arms: int,
        weight: Array | None = None,
    ) -> Self:
        """Learn from rows; `weight` says how many rows each stands for."""
        self._n_arms = n_arms
        self._range = float(reward.min()), float(reward.max())
        if self.regressor is None:
            self._coefficients: Any = fit_linear(
                *self._prepared(arm, context, reward, n_arms, weight)
            )
        else:
            self._coefficients = _trained(self.regressor, one_hot(arm, context, n_arms), reward)
        return self

    def predict(self, context: Array) -> Array:
        """Return the expected reward of every arm: (n, n_arms)."""
        if self.regressor is None:
            found = self._scaling.design(context) @ self._coefficients.T
        else:
            found = _each_arm(self._coefficients.predict, context, self._n_arms)
        return np.asarray(np.clip(found, *self._range))


def one_hot(arm: Codes, context: Array, n_arms: int) -> Array:
    """Return the columns that estimators from elsewhere get: one per arm, then the context."""
    out = np.zeros((arm.size, n_arms + context.shape[1]))
    out[np.arange(arm.size), arm] = 1.0
    out[:, n_arms:] = context
    return out


def _each_arm(predict: Any, context: Array, n_arms: int) -> Array:
    out = np.empty((len(context), n_arms))
    for k in range(n_arms):
        out[:, k] = predict(one_hot(np.full(len(context), k), context, n_arms))
    return out


def _trained(estimator: Any, features: Array, target: Any) -> Any:
    fresh = copy.deepcopy(estimator)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a fit that has not quite converged still serves
        fresh.fit(features, target)
    return fresh


def _constant_if_one_class(paid: NDArray[np.bool_]) -> float | None:
    return 1.0 if paid.all() else None


def resolve_model(model: Any) -> Any:
    """Return a model from its name, or check that an object has what a model needs."""
    if isinstance(model, str) and model == "hurdle":
        return Hurdle()
    if isinstance(model, str) and model == "one_part":
        return OnePart()
    if not isinstance(model, (str, type)) and hasattr(model, "fit") and hasattr(model, "predict"):
        return model
    raise InvalidParameterError(
        "`model` must be 'hurdle', 'one_part' or an object with the methods "
        f"fit(arm, context, reward, n_arms) and predict(context); got {shown(model)}"
    )
