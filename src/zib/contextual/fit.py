"""Fitting of component models, one observation at a time, at a cost that does not grow.

The estimate solves Σ s(x, y; c)·j = ridge·c over the ball ‖c‖ ≤ bound, for any estimator (see
`estimators`). Exact solutions need a pass over the history, so they are made on a geometric
schedule, by Newton's method from where the estimate stands. In between each observation moves the
estimate by one Newton step of its own, which costs two matrix–vector products.

The last `memory` observations are kept as they are. When the store is full, the older half is
replaced by its quadratic approximation at the current estimate: a matrix (the *anchor*) and a
vector. So memory is bounded, and a refit costs the same after a million rounds as after ten
thousand. For ridge regression the quadratic *is* the observation, and nothing has to be kept.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba.extending import overload
from numpy.typing import NDArray

from zib.contextual.estimators import (
    BOUND,
    COUNT,
    GLM,
    NEXT_REFIT,
    RESIDUAL,
    SPLIT,
    STORED,
    THRESHOLD,
    Huber,
    LeastSquares,
    Linear,
    MedianOfMeans,
    Ridge,
    linearise,
)
from zib.core.kernel import CALLED, borrowing
from zib.stats.design import (
    SINCE_REBUILD,
    Gram,
    add_outer,
    cholesky,
    dot,
    invert,
    multiply,
    new_gram,
    observe,
    solve_lower,
    solve_upper,
)

Floats = NDArray[np.float64]

MEMORY = 4096  # observations kept by default
SMALLEST_MEMORY = 256  # fewer would replace observations while the estimate is still poor
ALWAYS_REFIT = 32  # up to this many observations every one is followed by a refit
REFIT_SHARE = 4  # then after a quarter of the stored observations is new
STEPS = 40  # Newton steps of a refit at most, those taken back included
MOVE, LARGEST_MOVE = 2.0, 64.0  # change of a linear predictor in the first step, in any
SMALL = 32  # coefficients, up to which a factorisation is as good as free
SURPRISE = 1.0  # squared length of a step, in standard errors, that calls for a refit
TOLERANCE = 1e-6  # squared length of the last Newton step, in standard errors


class Model(NamedTuple):
    """A component model: estimate, curvature, and what is needed to improve them.

    `curvature` is ridge·I + Σ f·j j'. `design` is ridge·I + Σ x x', kept only where the confidence
    radii of the paper ask for it (size 0 otherwise).
    """

    coef: Floats
    curvature: Gram
    design: Gram
    anchor: Floats
    target: Floats
    features: Floats
    response: Floats
    meta: Floats
    scratch: Floats


def new_model(
    dim: int,
    *,
    ridge: float,
    bound: float = math.inf,
    memory: int = 0,
    plain: bool = False,
    samples: bool = False,
    split: int = 0,
) -> Model:
    """Return a model that has seen nothing.

    Parameters
    ----------
    dim
        Number of coefficients.
    ridge, bound
        Penalty ridge·‖c‖²/2 and radius of the ball.
    memory
        Observations kept as they are; 0 for ridge regression, which needs none.
    plain
        Whether Σ x x' is kept beside the curvature.
    samples
        Whether somebody draws from the matrix in use (then its Cholesky factor is kept).
    split
        Position where the coefficients of the second factor begin (`Product` only).
    """
    meta = np.zeros(7)
    meta[BOUND] = bound
    meta[NEXT_REFIT] = 1.0
    meta[THRESHOLD] = np.inf
    meta[SPLIT] = split
    return Model(
        np.zeros(dim),
        new_gram(dim, ridge, keeps_factor=samples and not plain),
        new_gram(dim if plain else 0, ridge, keeps_factor=samples and plain),
        ridge * np.eye(dim if memory else 0),
        np.zeros(dim),
        np.zeros((memory, dim)),
        np.zeros(memory),
        meta,
        np.zeros((5, dim)),
    )


@borrowing
def _fold(estimator: Any, model: Any, x: Any, y: float) -> None:
    """Add the quadratic approximation of one observation at the estimate to the anchor."""
    jac = model.scratch[0]
    score, weight = linearise(estimator, model.coef, x, y, model.meta, jac)
    add_outer(model.anchor, jac, weight)
    scale = weight * dot(jac, model.coef) + score
    for i in range(jac.size):
        model.target[i] += scale * jac[i]


@borrowing
def _store(estimator: Any, model: Any, x: Any, y: float) -> None:
    capacity = model.response.size
    stored = int(model.meta[STORED])
    if stored == capacity:
        half = (capacity + 1) // 2
        for i in range(half):
            _fold(estimator, model, model.features[i], model.response[i])
        stored -= half
        for i in range(stored):
            model.response[i] = model.response[i + half]
            for j in range(x.size):
                model.features[i, j] = model.features[i + half, j]
    model.response[stored] = y
    for j in range(x.size):
        model.features[stored, j] = x[j]
    model.meta[STORED] = stored + 1.0


@borrowing
def _shrink(coef: Any, first: int, last: int, bound: float) -> None:
    length = 0.0
    for i in range(first, last):
        length += coef[i] * coef[i]
    if length > bound * bound:
        ratio = bound / math.sqrt(length)
        for i in range(first, last):
            coef[i] *= ratio


@borrowing
def _project(model: Any) -> None:
    """Pull the estimate back into the ball (each factor's part into its own ball)."""
    if model.meta[BOUND] < np.inf:
        split = int(model.meta[SPLIT])
        _shrink(model.coef, 0, split, model.meta[BOUND])
        _shrink(model.coef, split, model.coef.size, model.meta[BOUND])


@borrowing
def _solve_in_ball(matrix: Any, factor: Any, rhs: Any, bound: float, out: Any, work: Any) -> None:
    """Write the minimiser of c'A c/2 − rhs'c over ‖c‖ ≤ bound; `factor` holds that of A.

    On the sphere c = (A + νI)⁻¹ rhs; ν by Newton's method on 1/‖c‖, which converges from below.
    """
    nu = 0.0
    for _ in range(12):
        for i in range(rhs.size):
            out[i] = rhs[i]
        solve_lower(factor, out)
        solve_upper(factor, out)
        length = math.sqrt(dot(out, out))
        if length <= bound * (1.0 + 1e-9):
            break
        for i in range(rhs.size):
            work[i] = out[i]
        solve_lower(factor, work)
        step = (length / bound - 1.0) * length * length / dot(work, work)
        nu += step
        for i in range(rhs.size):
            matrix[i, i] += step
        cholesky(matrix, factor)
    if nu > 0.0:
        for i in range(rhs.size):
            matrix[i, i] -= nu
        cholesky(matrix, factor)


@borrowing
def _solve_in_balls(
    matrix: Any, factor: Any, rhs: Any, split: int, bound: float, out: Any, work: Any
) -> None:
    """Write the minimiser of c'A c/2 − rhs'c with both parts of c in balls; see `_solve_in_ball`.

    One number ν for each part, by the same steps in turn. Shrinking one part may let the other
    back in, so ν may fall again.
    """
    nu_first, nu_last = 0.0, 0.0
    for turn in range(40):
        for i in range(rhs.size):
            out[i] = rhs[i]
        solve_lower(factor, out)
        solve_upper(factor, out)
        settled = True
        for part in range(2):
            last_part = (part + turn) % 2 == 1
            first = split if last_part else 0
            last = rhs.size if last_part else split
            nu = nu_last if last_part else nu_first
            square = 0.0
            for i in range(rhs.size):
                work[i] = out[i] if first <= i < last else 0.0
                square += work[i] * work[i]
            length = math.sqrt(square)
            if length > bound * (1.0 + 1e-9) or (nu > 0.0 and length < bound * (1.0 - 1e-9)):
                settled = False
                solve_lower(factor, work)
                step = max((length / bound - 1.0) * square / dot(work, work), -nu)
                if last_part:
                    nu_last += step
                else:
                    nu_first += step
                for i in range(first, last):
                    matrix[i, i] += step
                cholesky(matrix, factor)
                break
        if settled:
            break
    if nu_first + nu_last > 0.0:
        for i in range(rhs.size):
            matrix[i, i] -= nu_first if i < split else nu_last
        cholesky(matrix, factor)


@borrowing
def _gather(estimator: Any, model: Any, gradient: Any) -> None:
    """Make the curvature anew at the current estimate and write the gradient."""
    matrix, jac = model.curvature.matrix, model.scratch[0]
    multiply(model.anchor, model.coef, gradient)
    for i in range(gradient.size):
        gradient[i] = model.target[i] - gradient[i]
        for j in range(gradient.size):
            matrix[i, j] = model.anchor[i, j]
    for i in range(int(model.meta[STORED])):
        score, weight = linearise(
            estimator, model.coef, model.features[i], model.response[i], model.meta, jac
        )
        if weight > 0.0:
            add_outer(matrix, jac, weight)
            for j in range(jac.size):
                gradient[j] += score * jac[j]


def largest_move(estimator: Any) -> float:
    """Return how far one step may move a linear predictor.

    Far out a link is flat, and a step that trusts its curvature there is off by orders of
    magnitude. Without a link there is no such place.
    """
    return MOVE if isinstance(estimator, (GLM, LeastSquares)) else math.inf


@overload(largest_move, strict=False, jit_options=CALLED)
def _largest_move(estimator):  # type: ignore[no-untyped-def]
    if getattr(estimator, "instance_class", object) in (GLM, LeastSquares):
        return lambda estimator: MOVE
    return lambda estimator: math.inf


@borrowing
def _share(model: Any, step: Any, limit: float) -> float:
    """Return the share of the step that moves no stored predictor further than `limit`."""
    if limit == np.inf:
        return 1.0
    furthest = 0.0
    for i in range(int(model.meta[STORED])):
        furthest = max(furthest, abs(dot(model.features[i], step)))
    return 1.0 if furthest <= limit else limit / furthest


@borrowing
def _newton(estimator: Any, model: Any) -> bool:
    """Solve the score equations from where we stand; False if that did not converge."""
    gram, coef = model.curvature, model.coef
    gradient, step, work = model.scratch[1], model.scratch[2], model.scratch[3]
    split = int(model.meta[SPLIT])
    expected = 0.0  # slope along the last step before it was taken
    limit = largest_move(estimator)
    for _ in range(STEPS):
        tune(estimator, model)
        _gather(estimator, model, gradient)
        if expected > 0.0 and dot(gradient, step) < -0.5 * expected:
            # the step went far beyond the optimum on its line: take back half of it
            expected *= 0.5
            limit = largest_move(estimator)
            for i in range(coef.size):
                step[i] *= 0.5
                coef[i] -= step[i]
            continue
        if not cholesky(gram.matrix, gram.factor):
            return False
        multiply(gram.matrix, coef, work)
        for i in range(coef.size):
            work[i] += gradient[i]
        bound = model.meta[BOUND]
        if split == 0:
            _solve_in_ball(gram.matrix, gram.factor, work, bound, step, model.scratch[0])
        else:
            _solve_in_balls(gram.matrix, gram.factor, work, split, bound, step, model.scratch[0])
        for i in range(coef.size):
            step[i] -= coef[i]
        share = _share(model, step, limit)
        limit = min(2.0 * limit, max(limit, LARGEST_MOVE))  # longer while all goes well
        for i in range(coef.size):
            step[i] *= share
            coef[i] += step[i]
        expected = dot(gradient, step)
        multiply(gram.matrix, step, work)
        if dot(step, work) <= TOLERANCE * share * share:
            return True
    return False


@borrowing
def refit(estimator: Any, model: Any) -> None:
    """Solve the score equations over anchor and stored observations."""
    gram, coef = model.curvature, model.coef
    for attempt in range(2):
        if attempt > 0:  # lost where the link is flat: once more from zero, where it is not
            for i in range(coef.size):
                coef[i] = 0.0
        if _newton(estimator, model):
            break
    if cholesky(gram.matrix, gram.factor):
        invert(gram.factor, gram.inverse)
    gram.meta[SINCE_REBUILD] = 0.0
    wait = max(int(model.meta[STORED]) // REFIT_SHARE, coef.size // 8)
    if model.meta[COUNT] < ALWAYS_REFIT or wait < 1:
        wait = 1
    model.meta[NEXT_REFIT] = model.meta[COUNT] + wait


@borrowing
def _learn(estimator: Any, model: Any, x: Any, y: float) -> None:
    jac, solved = model.scratch[4], model.scratch[1]
    score, weight = linearise(estimator, model.coef, x, y, model.meta, jac)
    observe(model.curvature, jac, weight)
    if model.design.matrix.size > 0:
        observe(model.design, x, 1.0)
    multiply(model.curvature.inverse, jac, solved)
    if weight > 0.0:
        # the squared residual, over what the estimate's own error adds to its expectation
        model.meta[RESIDUAL] += score * score / weight * max(1.0 - weight * dot(jac, solved), 0.0)
    surprise = score * score * dot(jac, solved)
    move = abs(score * dot(jac, solved))
    limit = largest_move(estimator)
    if move > limit:
        score *= limit / move
    for i in range(solved.size):
        model.coef[i] += score * solved[i]
    _project(model)
    _store(estimator, model, x, y)
    model.meta[COUNT] += 1.0
    if surprise > SURPRISE:
        soon = model.meta[COUNT] + x.size // 8
        model.meta[NEXT_REFIT] = min(model.meta[NEXT_REFIT], soon)
    if model.meta[COUNT] >= model.meta[NEXT_REFIT]:
        refit(estimator, model)


# -------------------------------------------------------------------------------- ridge regression


@borrowing
def _learn_ridge(estimator: Any, model: Any, x: Any, y: float) -> None:
    """Learn one observation of a linear model, exactly: c = A⁻¹ Σ x y, or its best in the ball."""
    gram, coef, solved = model.curvature, model.coef, model.scratch[0]
    residual = y - dot(coef, x)
    observe(gram, x, 1.0)
    multiply(gram.inverse, x, solved)
    model.meta[RESIDUAL] += residual * residual * max(1.0 - dot(x, solved), 0.0)
    for i in range(coef.size):
        model.target[i] += y * x[i]
    multiply(gram.inverse, model.target, coef)
    model.meta[COUNT] += 1.0
    bound = model.meta[BOUND]
    if dot(coef, coef) > bound * bound:
        # exact while a factorisation is cheap, else now and then and close to it in between
        if coef.size <= SMALL or model.meta[COUNT] >= model.meta[NEXT_REFIT]:
            model.meta[NEXT_REFIT] = model.meta[COUNT] + max(model.meta[COUNT] // REFIT_SHARE, 1.0)
            if cholesky(gram.matrix, gram.factor):
                _solve_in_ball(gram.matrix, gram.factor, model.target, bound, coef, solved)
        else:
            _shrink(coef, 0, coef.size, bound)


@borrowing
def _settle_ridge(estimator: Any, model: Any) -> None:
    gram, coef, bound = model.curvature, model.coef, model.meta[BOUND]
    multiply(gram.inverse, model.target, coef)
    if dot(coef, coef) > bound * bound and cholesky(gram.matrix, gram.factor):
        _solve_in_ball(gram.matrix, gram.factor, model.target, bound, coef, model.scratch[0])


def settle(estimator: Any, model: Any) -> None:
    """Solve exactly for the estimate, after the ridge of a model has changed."""
    if isinstance(estimator, Ridge):
        _settle_ridge(estimator, model)
    else:
        refit(estimator, model)


@overload(settle, strict=False, jit_options=CALLED)
def _settle(estimator, model):  # type: ignore[no-untyped-def]
    return _settle_ridge if getattr(estimator, "instance_class", object) is Ridge else refit


# ---------------------------------------------------------------------------------- Huber's tuning


def tune(estimator: Any, model: Any) -> None:
    """Adapt what the estimator keeps in `meta`: the threshold of Huber regression."""
    if isinstance(estimator, Huber):
        _tune_huber(estimator, model)


@borrowing
def _tune_huber(estimator: Any, model: Any) -> None:
    stored = int(model.meta[STORED])
    goal = model.coef.size + math.log(max(stored, 1))
    for _ in range(4):
        limit = model.meta[THRESHOLD] * model.meta[THRESHOLD]
        total = 0.0
        for i in range(stored):
            residual = model.response[i] - dot(model.coef, model.features[i])
            total += min(residual * residual, limit)
        if stored <= goal or total <= 0.0:
            model.meta[THRESHOLD] = np.inf  # too few to tell an outlier
            return
        model.meta[THRESHOLD] = math.sqrt(total / goal)


@borrowing
def _tune_nothing(estimator: Any, model: Any) -> None:
    pass


@overload(tune, strict=False, jit_options=CALLED)
def _tune(estimator, model):  # type: ignore[no-untyped-def]
    if getattr(estimator, "instance_class", object) is Huber:
        return _tune_huber
    return _tune_nothing


# --------------------------------------------------------------------------------- median of means


class Groups(NamedTuple):
    """Median of means: one ridge regression per group, and all data together for the radii."""

    coef: Floats
    curvature: Gram
    design: Gram
    parts: Gram
    targets: Floats
    coefs: Floats
    residuals: Floats
    meta: Floats
    scratch: Floats


def new_groups(dim: int, groups: int, *, ridge: float, bound: float, samples: bool) -> Groups:
    """Return `groups` regressions that have seen nothing."""
    meta = np.zeros(7)
    meta[BOUND] = bound
    one = new_gram(dim, ridge, keeps_factor=False)
    return Groups(
        np.zeros(dim),
        new_gram(dim, ridge, keeps_factor=samples),
        new_gram(0, ridge, keeps_factor=False),
        Gram(*(np.stack([array] * groups) for array in one)),
        np.zeros((groups, dim)),
        np.zeros((groups, dim)),
        np.zeros(groups),
        meta,
        np.zeros((3, max(dim, groups))),
    )


@borrowing
def _median(values: Any, n: int) -> float:
    """Return the median of the first n entries, which are sorted in place."""
    for i in range(1, n):
        entry = values[i]
        j = i - 1
        while j >= 0 and values[j] > entry:
            values[j + 1] = values[j]
            j -= 1
        values[j + 1] = entry
    middle: float = 0.5 * (values[(n - 1) // 2] + values[n // 2])
    return middle


@borrowing
def _learn_groups(estimator: Any, model: Any, x: Any, y: float) -> None:
    dim = model.coef.size
    k = int(model.meta[COUNT]) % estimator.groups
    part = Gram(
        model.parts.matrix[k],
        model.parts.inverse[k],
        model.parts.factor[k],
        model.parts.meta[k],
        model.parts.scratch[k],
    )
    difference, solved = model.scratch[0][:dim], model.scratch[1][:dim]
    residual = y - dot(model.coefs[k], x)
    observe(part, x, 1.0)
    observe(model.curvature, x, 1.0)
    multiply(part.inverse, x, solved)
    model.residuals[k] += residual * residual * max(1.0 - dot(x, solved), 0.0)
    for i in range(dim):
        model.targets[k, i] += y * x[i]
    multiply(part.inverse, model.targets[k], model.coefs[k])
    model.meta[COUNT] += 1.0
    used = min(int(model.meta[COUNT]), estimator.groups)

    best = np.inf
    winner = 0
    others = model.scratch[2]
    for a in range(used):
        for b in range(used):
            for i in range(dim):
                difference[i] = model.coefs[a, i] - model.coefs[b, i]
            multiply(model.curvature.matrix, difference, solved)
            others[b] = dot(difference, solved)
        distance = _median(others, used)
        if distance < best:
            best = distance
            winner = a
    for i in range(dim):
        model.coef[i] = model.coefs[winner, i]
    _shrink(model.coef, 0, dim, model.meta[BOUND])
    for a in range(used):
        others[a] = model.residuals[a]
    # an outlier spoils the mean of squares of its group only
    model.meta[RESIDUAL] = _median(others, used) * estimator.groups


# ---------------------------------------------------------------------------------------- learning


def learn(estimator: Any, model: Any, x: Any, y: float) -> None:
    """Learn one observation (x, y)."""
    if isinstance(estimator, MedianOfMeans):
        _learn_groups(estimator, model, x, y)
    elif isinstance(estimator, (Ridge, Linear)):
        _learn_ridge(estimator, model, x, y)
    else:
        _learn(estimator, model, x, y)


@overload(learn, strict=False, jit_options=CALLED)
def _learn_one(estimator, model, x, y):  # type: ignore[no-untyped-def]
    kind = getattr(estimator, "instance_class", object)
    if kind is MedianOfMeans:
        return _learn_groups
    return _learn_ridge if kind in (Ridge, Linear) else _learn
