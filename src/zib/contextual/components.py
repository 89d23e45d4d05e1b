"""Component models of `Template`: what is asked of one, and one of our own.

A component model learns pairs (x, y) and says, for rows of features, what it expects y to be and
how sure it is. For the occurrence y is 0 or 1, for the magnitude it is a non-zero reward.
"""

from __future__ import annotations

import copyreg
import math
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from zib.contextual.fit import learn
from zib.contextual.joint import LARGEST
from zib.contextual.links import (
    IDENTITY,
    Identity,
    derivative,
    link_parameter,
    resolve_link,
    value,
)
from zib.contextual.models import (
    BERNOULLI,
    GLM,
    LeastSquares,
    Ridge,
    new_magnitude,
    new_model,
    noise,
    resolve_magnitude,
)
from zib.contextual.policy import KEPT
from zib.core import validate as check
from zib.core.entry import Entry, pinned
from zib.core.registry import borrowing
from zib.core.spec import Declared, converted, optional, positive, word
from zib.stats.design import draw_normal, linear_forms, quadratic_forms

Array = NDArray[np.float64]


class ComponentModel(Protocol):
    """What `Template` asks of a model; any object with these two methods will do.

    Two more are used where a model has them. ``sample(x, rng)`` returns one joint draw of the means
    of all rows, for Thompson sampling; without it, each mean is drawn from a normal distribution.
    ``predictor(x)``, with an attribute `link`, returns linear predictors and their standard errors,
    from which intervals are made; without it, intervals are symmetric about the mean.
    """

    def observe(self, x: Array, y: float) -> None:
        """Learn one observation; `x` is one row of features and may be kept."""

    def predict(self, x: Array) -> tuple[Array, Array]:
        """Return the mean and its standard error, or a radius, for every row of `x`."""


class Learner(Declared):
    """Base of our component models: declared parameters stay, what is learned (`_…`) changes."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            object.__setattr__(self, name, value)
        else:
            super().__setattr__(name, value)

    # two models with the same parameters may have learned different things
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __getstate__(self) -> dict[str, Any]:
        return dict(self.__dict__)

    def __reduce__(self) -> Any:
        return (copyreg.__newobj__, (type(self),), self.__getstate__())  # type: ignore[attr-defined]


def as_rows(x: Any) -> Array:
    """Return rows of features in the order compiled code was made for, or raise."""
    rows = np.ascontiguousarray(x, dtype=np.float64)
    if rows.ndim != 2:
        raise check.InvalidParameterError(
            f"`x` must be a matrix, one row per action; got shape {rows.shape}"
        )
    return rows


def as_row(x: Any) -> Array:
    """Return one row of features, or raise."""
    row = np.ascontiguousarray(x, dtype=np.float64)
    if row.ndim != 1:
        raise check.InvalidParameterError(f"`x` must be one row; got shape {row.shape}")
    return row


def normal_draw(model: ComponentModel, x: Array, rng: np.random.Generator) -> Array:
    """Return means drawn from normal distributions, one by one."""
    mean, error = model.predict(x)
    return mean + error * rng.standard_normal(mean.size)


# --------------------------------------------------------------------- a generalized linear model

FAMILIES = ("bernoulli", "gaussian", "huber", "median_of_means")


@borrowing
def _learn(estimator: Any, model: Any, row: Any, y: float) -> None:
    learn(estimator, model, row, y)


@Entry
def _observe(pin: Any, row: Any, y: float) -> None:
    _learn(pin.spec, pin.state, row, y)


@borrowing
def _believe(estimator: Any, model: Any, settings: Any, columns: Any, out: Any) -> None:
    """Write means, standard errors, linear predictors and their standard errors."""
    sigma = noise(estimator, settings[0], model)
    linear_forms(model.coef, columns, out[2])
    quadratic_forms(model.curvature.inverse, columns, out[0], out[3])
    for k in range(out.shape[1]):
        error = sigma * math.sqrt(out[3, k])
        out[0, k] = min(max(value(estimator.link, out[2, k]), -settings[1]), settings[1])
        slope = min(derivative(estimator.link, out[2, k]), LARGEST)
        out[1, k] = min(slope * error, LARGEST)
        out[3, k] = error


@Entry
def _predict(pin: Any, columns: Any, out: Any) -> None:
    _believe(pin.spec, pin.state, pin.out, columns, out)


@borrowing
def _draw(
    estimator: Any, model: Any, settings: Any, columns: Any, rng: Any, coef: Any, out: Any
) -> None:
    draw_normal(model.coef, model.curvature, noise(estimator, settings[0], model), rng, coef)
    linear_forms(coef, columns, out)
    for k in range(out.size):
        out[k] = min(max(value(estimator.link, out[k]), -settings[1]), settings[1])


@Entry
def _sample(pin: Any, columns: Any, rng: Any, coef: Any, out: Any) -> None:
    _draw(pin.spec, pin.state, pin.out, columns, rng, coef, out)


def _is_identity(link: Any) -> bool:
    return link is None or link == "identity" or link in (Identity(), IDENTITY)


class GLMModel(Learner, positional=1):
    """A generalized linear model, fitted as in `JointUCB`.

    Parameters
    ----------
    family
        ``"bernoulli"`` (default) for the occurrence: maximum likelihood. For the magnitude
        ``"gaussian"`` (least squares; the default with the identity link), or ``"huber"`` and
        ``"median_of_means"`` against heavy tails.
    link
        Link by name or as a registered link; logit for ``"bernoulli"``, identity otherwise. The
        robust families have no other than the identity.
    ridge
        Precision of the Gaussian prior of the coefficients (> 0), in units of the noise.
    sigma
        Standard deviation of the noise of the magnitude; None (default) estimates it.
    bound
        Radius of the ball the coefficients are confined to; None (default) for no ball.
    memory
        Observations kept for refitting (≥ 256); older ones are summarised.

    Notes
    -----
    The standard error of the mean h(x'c) is h'(x'ĉ)·σ·√(x'A⁻¹x) by the delta method, with the
    curvature A of the fit; σ = 1 for ``"bernoulli"``. It holds for a model that is right and many
    observations. Draws take the coefficients from N(ĉ, σ²A⁻¹).

    Examples
    --------
    >>> model = GLMModel(link="identity", sigma=1.0)
    >>> model.observe([1.0, 0.0], 3.0)
    >>> mean, error = model.predict([[1.0, 0.0], [0.0, 1.0]])
    >>> mean.round(3).tolist(), error.round(3).tolist()
    ([1.5, 0.0], [0.707, 1.0])
    """

    family: str | None = word(FAMILIES, default=None)
    link: Any = converted(
        lambda link: resolve_link(link, probability=False),
        link_parameter,
        allowed="name of a link, or a registered link",
        default=None,
    )
    ridge: float = positive(default=1.0)
    sigma: float | None = optional(positive(), default=None)
    bound: float | None = optional(positive(), default=None)
    memory: int = KEPT

    def __init__(self, family: str | None = None, *, link: Any = None, **others: Any) -> None:
        if family is not None:
            check.choice("family", family, FAMILIES)
        else:
            family = "bernoulli" if link is None or not _is_identity(link) else "gaussian"
        self._binary = family == "bernoulli"
        if family in ("huber", "median_of_means") and link is not None:
            raise check.InvalidParameterError(
                f"`link` must be None for the family {family!r}; got {check.shown(link)}"
            )
        if self._binary:
            link = resolve_link(link or "logit")  # refuses the identity
        super().__init__(family, link=IDENTITY if link is None else link, **others)
        if self._binary and not math.isnan(self._given("sigma")):
            raise check.InvalidParameterError(
                f"`sigma` must be None for the family 'bernoulli'; got {check.shown(self.sigma)}"
            )
        self._estimator = self._make_estimator()
        # σ, and the largest mean there is
        self._settings = np.array([1.0, 1.0] if self._binary else [self._given("sigma"), LARGEST])
        self._state: Any = None
        self._pin: Any = None

    def _given(self, name: str) -> float:
        """Return what is stored for an optional parameter: NaN for None."""
        return float(getattr(self, name))

    def _make_estimator(self) -> Any:
        if self._binary:
            return GLM(self.link, BERNOULLI)
        if self.family == "gaussian":
            return Ridge() if self.link == IDENTITY else LeastSquares(link=self.link)
        return resolve_magnitude(self.family)

    def __getstate__(self) -> dict[str, Any]:
        # what is unpacked for compiled code holds addresses: it is made anew by the copy
        return {**super().__getstate__(), "_pin": None}

    def _prepare(self, dim: int) -> None:
        """Make the state of this many features, and unpack it for compiled code."""
        if self._state is None:
            bound = self._given("bound")
            size: dict[str, Any] = {
                "ridge": self.ridge,
                "bound": math.inf if math.isnan(bound) else bound,
                "memory": self.memory,
                "plain": False,
                "samples": True,
            }
            if self._binary:
                self._state = new_model(dim, **size)
            else:
                self._state = new_magnitude(self._estimator, dim, **size)
        if dim != self._state.coef.size:
            raise check.InvalidParameterError(
                f"`x` must have {self._state.coef.size} features, as before; got {dim}"
            )
        if self._pin is None:
            self._pin = pinned(self._estimator, self._state, 0, self._settings)

    def observe(self, x: Any, y: float) -> None:
        """Learn one observation."""
        row = as_row(x)
        if self._binary and y not in (0.0, 1.0):
            raise check.InvalidParameterError(
                f"`y` must be 0 or 1 for the family 'bernoulli'; got {check.shown(y)}"
            )
        self._prepare(row.size)
        _observe.for_spec(self._estimator)(self._pin, row, float(y))

    def _all(self, x: Any) -> Array:
        rows = as_rows(x)
        self._prepare(rows.shape[1])
        out = np.empty((4, len(rows)))
        _predict.for_spec(self._estimator)(self._pin, rows.T, out)
        return out

    def predict(self, x: Any) -> tuple[Array, Array]:
        """Return means and standard errors."""
        out = self._all(x)
        return out[0], out[1]

    def predictor(self, x: Any) -> tuple[Array, Array]:
        """Return linear predictors and their standard errors."""
        out = self._all(x)
        return out[2], out[3]

    def sample(self, x: Any, rng: np.random.Generator) -> Array:
        """Return the means under coefficients drawn from their posterior."""
        rows = as_rows(x)
        self._prepare(rows.shape[1])
        out = np.empty(len(rows))
        _sample.for_spec(self._estimator)(self._pin, rows.T, rng, np.empty(rows.shape[1]), out)
        return out
