"""Component models of `Template`: what is asked of one.

A component model learns pairs (x, y) and says, for rows of features, what it expects y to be and
how sure it is. For the occurrence y is 0 or 1, for the magnitude it is a non-zero reward.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from zib.core import validate as check

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


class Described:
    """A model that prints as it was made."""

    _parameters: dict[str, Any]

    def __repr__(self) -> str:
        inside = ", ".join(f"{name}={value!r}" for name, value in self._parameters.items())
        return f"{type(self).__name__}({inside})"


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
