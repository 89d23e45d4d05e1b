"""Prior scales learned from the data: how large are the coefficients of a component model?

The prior of a coefficient is N(0, v/ρ), with v the variance of the noise (1 for the occurrence) and
ρ the precision, `ridge` to begin with. Empirical Bayes takes the ρ under which the data are most
probable; with the Gaussian approximation of the posterior that ρ is MacKay's fixed point
ρ = γ·v/‖c‖², where γ = Σ(1 − ρ·(A⁻¹)_ii) is the number of coefficients that the data determine and
A the curvature, ridge included.

Two things keep it from being too sure of itself. ρ has a prior of its own, worth `HYPER`
coefficients of the size that `ridge` says: ρ = (γ + HYPER)/(‖c‖²/v + HYPER/ridge), so that ρ is
`ridge` without data and at most (1 + d/HYPER)·ridge with any. And a coefficient of a feature that
has been the same in every observation, an intercept, keeps `ridge`: how often rewards are zero says
nothing about how much the other features matter.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba.extending import overload

from zib.contextual.estimators import COUNT, MedianOfMeans
from zib.contextual.fit import Floats, settle
from zib.core.kernel import CALLED, borrowing
from zib.stats.design import SINCE_REBUILD, cholesky, invert, multiply

PRECISION, NEXT_FIT = 0, 1  # positions in `meta`
HYPER = 1.0
SMALLEST = 1e-6  # of `ridge`
FIRST_FIT, GROWTH = 8.0, 1.25  # observations before the first fit, and between two
ROUNDS, STEPS = 3, 30  # exact solutions per fit, steps of the fixed point between two
CLOSE = 1e-3  # relative change at which a fit ends


class Scale(NamedTuple):
    """What is kept about the prior of a model; of size 0 where it is not learned."""

    constant: Floats  # the value a feature has always had, inf once it has varied
    precision: Floats  # in force, one per coefficient
    meta: Floats


def new_scale(dim: int, ridge: float) -> Scale:
    """Return the scale of `dim` coefficients before any data."""
    return Scale(np.zeros(dim), np.full(dim, ridge), np.array([ridge, FIRST_FIT]))


@borrowing
def _is_scaled(scale: Any, i: int) -> bool:
    """Whether a coefficient shares the learned precision: all but that of an intercept."""
    return bool(scale.constant[i] == 0.0 or scale.constant[i] == np.inf)


@borrowing
def _put(model: Any, scale: Any, ridge: float, target: Any) -> None:
    """Put the precision in force and move the estimate to the optimum it has then."""
    gram = model.curvature
    for i in range(target.size):
        wanted = scale.meta[PRECISION] if _is_scaled(scale, i) else ridge
        more = wanted - scale.precision[i]
        scale.precision[i] = wanted
        gram.matrix[i, i] += more
        if model.anchor.size > 0:
            model.anchor[i, i] += more
    if cholesky(gram.matrix, gram.factor):
        invert(gram.factor, gram.inverse)
        gram.meta[SINCE_REBUILD] = 0.0
        multiply(gram.inverse, target, model.coef)


@borrowing
def _fixed_point(model: Any, scale: Any, ridge: float, variance: float) -> None:
    """Bring the precision to its fixed point, the curvature of the likelihood held as it is."""
    coef, target = model.coef, model.scratch[1]
    multiply(model.curvature.matrix, coef, target)  # what the data say, whatever the prior
    _put(model, scale, ridge, target)
    for _ in range(STEPS):
        old = scale.meta[PRECISION]
        size = 0.0
        known = 0.0
        for i in range(coef.size):
            if _is_scaled(scale, i):
                size += coef[i] * coef[i]
                known += min(max(1.0 - old * model.curvature.inverse[i, i], 0.0), 1.0)
        new = SMALLEST * ridge
        if size < 1e100 * variance:
            new = max(new, (known + HYPER) / (size / variance + HYPER / ridge))
        if abs(new - old) <= CLOSE * old:
            return
        scale.meta[PRECISION] = new
        _put(model, scale, ridge, target)


@borrowing
def _learn_scale(
    estimator: Any, model: Any, scale: Any, x: Any, ridge: float, variance: float
) -> None:
    count = model.meta[COUNT]
    for i in range(x.size):
        if count <= 1.0:
            scale.constant[i] = x[i]
        elif x[i] != scale.constant[i]:
            scale.constant[i] = np.inf
    if count < scale.meta[NEXT_FIT]:
        return
    scale.meta[NEXT_FIT] = math.floor(GROWTH * count) + 1.0
    for _ in range(ROUNDS):
        before = scale.meta[PRECISION]
        _fixed_point(model, scale, ridge, variance)
        settle(estimator, model)
        if abs(scale.meta[PRECISION] - before) <= CLOSE * before:
            return


@borrowing
def _learn_nothing(
    estimator: Any, model: Any, scale: Any, x: Any, ridge: float, variance: float
) -> None:
    pass


def learn_scale(
    estimator: Any, model: Any, scale: Any, x: Any, ridge: float, variance: float
) -> None:
    """Learn the prior precision of a model that has just learned an observation at `x`.

    `variance` is that of the noise. A median of several models has no posterior to learn from.
    """
    if not isinstance(estimator, MedianOfMeans):
        _learn_scale(estimator, model, scale, x, ridge, variance)


@overload(learn_scale, strict=False, jit_options=CALLED)
def _learn_scale_of(estimator, model, scale, x, ridge, variance):  # type: ignore[no-untyped-def]
    if getattr(estimator, "instance_class", object) is MedianOfMeans:
        return _learn_nothing
    return _learn_scale
