"""A component model of our own: a generalized linear model, compiled."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from zib.contextual.component import Array, Described, as_row, as_rows
from zib.contextual.estimators import BERNOULLI, GLM, LeastSquares, Ridge, resolve_magnitude
from zib.contextual.fit import MEMORY, learn, new_model
from zib.contextual.joint import LARGEST
from zib.contextual.link import derivative, value
from zib.contextual.links import Identity, StandardLink, link_parameter, resolve_link
from zib.contextual.parts import (
    check_bound,
    check_memory,
    check_ridge,
    check_sigma,
    new_magnitude,
    noise,
)
from zib.core import validate as check
from zib.core.cache import numba_config
from zib.core.entry import Entry, LoosePin, _make_pin
from zib.core.kernel import borrowing
from zib.stats.design import draw_normal, linear_forms, quadratic_forms

FAMILIES = ("bernoulli", "gaussian", "huber", "median_of_means")
_IDENTITY = ("identity", Identity(), StandardLink(name="identity"))


@borrowing
def _learn(estimator: Any, model: Any, row: Any, y: float) -> None:
    learn(estimator, model, row, y)


@Entry
def _observe(pin: Any, row: Any, y: float) -> None:
    _learn(pin.spec, pin.state, row, y)


@borrowing
def _believe(estimator: Any, model: Any, settings: Any, columns: Any, out: Any) -> None:
    """Write means, standard errors, linear predictors and their standard errors."""
    sigma = noise(settings[0], model)
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
    draw_normal(model.coef, model.curvature, noise(settings[0], model), rng, coef)
    linear_forms(coef, columns, out)
    for k in range(out.size):
        out[k] = min(max(value(estimator.link, out[k]), -settings[1]), settings[1])


@Entry
def _sample(pin: Any, columns: Any, rng: Any, coef: Any, out: Any) -> None:
    _draw(pin.spec, pin.state, pin.out, columns, rng, coef, out)


class GLMModel(Described):
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

    def __init__(
        self,
        family: str | None = None,
        *,
        link: Any = None,
        ridge: float = 1.0,
        sigma: float | None = None,
        bound: float | None = None,
        memory: int = MEMORY,
    ) -> None:
        if family is None:
            family = "gaussian" if link in _IDENTITY else "bernoulli"
        check.choice("family", family, FAMILIES)
        self._binary = family == "bernoulli"
        if self._binary:
            if sigma is not None:
                raise check.InvalidParameterError(
                    f"`sigma` must be None for the family 'bernoulli'; got {sigma!r}"
                )
            self._estimator: Any = GLM(resolve_link(link or "logit"), BERNOULLI)
        elif family == "gaussian":
            linear = link is None or link in _IDENTITY
            self._estimator = Ridge() if linear else LeastSquares(link=link)
        elif link is None:
            self._estimator = resolve_magnitude(family)
        else:
            raise check.InvalidParameterError(
                f"`link` must be None for the family {family!r}; got {link!r}"
            )
        self._ridge = check_ridge(ridge)
        self._bound = check_bound(bound)
        self._memory = check_memory(memory)
        noise_size = 1.0 if self._binary else check_sigma(sigma)
        self._settings = np.array([noise_size, 1.0 if self._binary else LARGEST])
        self._parameters = {
            "family": family,
            "link": link_parameter(self.link),
            "ridge": self._ridge,
            "sigma": sigma,
            "bound": bound,
            "memory": self._memory,
        }
        self._state: Any = None
        self._pin: Any = None

    @property
    def link(self) -> Any:
        """The link."""
        return self._estimator.link

    def __getstate__(self) -> dict[str, Any]:
        # what is unpacked for compiled code holds addresses: it is made anew by the copy
        return {**self.__dict__, "_pin": None}

    def _prepare(self, dim: int) -> None:
        """Make the state of this many features, and unpack it for compiled code."""
        if self._state is None:
            if self._binary:
                self._state = new_model(
                    dim, ridge=self._ridge, bound=self._bound, memory=self._memory, samples=True
                )
            else:
                self._state = new_magnitude(
                    self._estimator,
                    dim,
                    ridge=self._ridge,
                    bound=self._bound,
                    memory=self._memory,
                    plain=False,
                    samples=True,
                )
        if dim != self._state.coef.size:
            raise check.InvalidParameterError(
                f"`x` must have {self._state.coef.size} features, as before; got {dim}"
            )
        if self._pin is None:
            parts = (self._estimator, self._state, 0, self._settings)
            make = LoosePin if numba_config.DISABLE_JIT else _make_pin.for_spec(self._estimator)
            self._pin = make(*parts)

    def observe(self, x: Any, y: float) -> None:
        """Learn one observation."""
        row = as_row(x)
        if self._binary and y not in (0.0, 1.0):
            raise check.InvalidParameterError(
                f"`y` must be 0 or 1 for the family 'bernoulli'; got {y!r}"
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
