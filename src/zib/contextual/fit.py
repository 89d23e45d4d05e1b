"""Fitting of component models, one observation at a time, at a cost that does not grow.

The estimate solves Σ s(x, y; c)·j = ridge·c over the ball ‖c‖ ≤ bound, for any estimator (see
`models`). Exact solutions need a pass over the history, so they are made on a geometric
schedule, by Newton's method from where the estimate stands. In between each observation moves the
estimate by one Newton step of its own, which costs two matrix–vector products.

The last `memory` observations are kept as they are. When the store is full, the older half is
replaced by its quadratic approximation at the current estimate: a matrix (the *anchor*) and a
vector. So memory is bounded, and a refit costs the same after a million rounds as after ten
thousand. For ridge regression the quadratic *is* the observation, and nothing has to be kept.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from zib.contextual.links import smallest_slope
from zib.contextual.models import (
    ESTIMATORS,
    GLM,
    Estimator,
    Huber,
    Kernel,
    Learned,
    LeastSquares,
    Linear,
    MedianOfMeans,
    Product,
    Ridge,
    largest_move,
    linearise,
    linearise_glm,
    linearise_huber,
    linearise_least_squares,
    linearise_product,
    residual_size,
    square,
    square_least_squares,
    tune,
    variances_least_squares,
)
from zib.contextual.models import learn as learn
from zib.contextual.models import settle as settle
from zib.contextual.robust import (
    groups_noise,
    groups_radius,
    huber_radius,
    learn_groups,
    tail_size,
    tune_huber,
)
from zib.core.registry import borrowing
from zib.core.state import clamped
from zib.stats.design import (
    add_outer,
    cholesky,
    dot,
    invert,
    multiply,
    observe,
    quadratic_forms,
    shrink,
    solve_lower,
    solve_upper,
)
from zib.theory.contextual import contextual_radius_printed as glm_radius

ALWAYS_REFIT = 32  # up to this many observations every one is followed by a refit
REFIT_SHARE = 4  # then after a quarter of the stored observations is new
STEPS = 40  # Newton steps of a refit at most, those taken back included
MOVE, LARGEST_MOVE = 2.0, 64.0  # change of a linear predictor in the first step, in any
SMALL = 32  # coefficients, up to which a factorisation is as good as free
SURPRISE = 1.0  # squared length of a step, in standard errors, that calls for a refit
TOLERANCE = 1e-6  # squared length of the last Newton step, in standard errors


# ---------------------------------------------------------------------- what is kept of the history


@borrowing
def _fold(estimator: Any, model: Any, x: Any, y: float) -> None:
    """Add the quadratic approximation of one observation at the estimate to the anchor."""
    jac = model.work[0]
    score, weight = linearise(estimator, model.coef, x, y, model.threshold[0], jac)
    add_outer(model.anchor, jac, weight)
    scale = weight * dot(jac, model.coef) + score
    for i in range(jac.size):
        model.target[i] += scale * jac[i]


@borrowing
def _store(estimator: Any, model: Any, x: Any, y: float) -> None:
    capacity = model.response.size
    stored = clamped(model.stored[0], capacity + 1)
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
    model.stored[0] = stored + 1.0


@borrowing
def _project(model: Any) -> None:
    """Pull the estimate back into the ball (each factor's part into its own ball)."""
    if model.bound[0] < np.inf:
        split = clamped(model.split[0], model.coef.size + 1)
        shrink(model.coef, 0, split, model.bound[0])
        shrink(model.coef, split, model.coef.size, model.bound[0])


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
    matrix, jac = model.curvature.matrix, model.work[0]
    multiply(model.anchor, model.coef, gradient)
    for i in range(gradient.size):
        gradient[i] = model.target[i] - gradient[i]
        for j in range(gradient.size):
            matrix[i, j] = model.anchor[i, j]
    for i in range(clamped(model.stored[0], model.response.size + 1)):
        score, weight = linearise(
            estimator, model.coef, model.features[i], model.response[i], model.threshold[0], jac
        )
        if weight > 0.0:
            add_outer(matrix, jac, weight)
            for j in range(jac.size):
                gradient[j] += score * jac[j]


@borrowing
def _share(model: Any, step: Any, limit: float) -> float:
    """Return the share of the step that moves no stored predictor further than `limit`."""
    if limit == np.inf:
        return 1.0
    furthest = 0.0
    for i in range(clamped(model.stored[0], model.response.size + 1)):
        furthest = max(furthest, abs(dot(model.features[i], step)))
    return 1.0 if furthest <= limit else limit / furthest


@borrowing
def _newton(estimator: Any, model: Any) -> bool:
    """Solve the score equations from where we stand; False if that did not converge."""
    gram, coef = model.curvature, model.coef
    gradient, step, work = model.work[1], model.work[2], model.work[3]
    split = clamped(model.split[0], model.coef.size + 1)
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
        bound = model.bound[0]
        if split == 0:
            _solve_in_ball(gram.matrix, gram.factor, work, bound, step, model.work[0])
        else:
            _solve_in_balls(gram.matrix, gram.factor, work, split, bound, step, model.work[0])
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
    gram.since_rebuild[0] = 0.0
    wait = max(clamped(model.stored[0], model.response.size + 1) // REFIT_SHARE, coef.size // 8)
    if model.seen[0] < ALWAYS_REFIT or wait < 1:
        wait = 1
    model.next_refit[0] = model.seen[0] + wait


@borrowing
def _learn(estimator: Any, model: Any, x: Any, y: float) -> None:
    jac, solved = model.work[4], model.work[1]
    score, weight = linearise(estimator, model.coef, x, y, model.threshold[0], jac)
    observe(model.curvature, jac, weight)
    if model.design.matrix.size > 0:
        observe(model.design, x, 1.0)
    multiply(model.curvature.inverse, jac, solved)
    if weight > 0.0:
        # over what the estimate's own error adds to its expectation
        own = max(1.0 - weight * dot(jac, solved), 0.0)
        model.residual[0] += square(estimator, score, weight) * own
    surprise = score * score * dot(jac, solved)
    move = abs(score * dot(jac, solved))
    limit = largest_move(estimator)
    if move > limit:
        score *= limit / move
    for i in range(solved.size):
        model.coef[i] += score * solved[i]
    _project(model)
    _store(estimator, model, x, y)
    model.seen[0] += 1.0
    if surprise > SURPRISE:
        soon = model.seen[0] + x.size // 8
        model.next_refit[0] = min(model.next_refit[0], soon)
    if model.seen[0] >= model.next_refit[0]:
        refit(estimator, model)


# -------------------------------------------------------------------------------- ridge regression


@borrowing
def _learn_ridge(estimator: Any, model: Any, x: Any, y: float) -> None:
    """Learn one observation of a linear model, exactly: c = A⁻¹ Σ x y, or its best in the ball."""
    gram, coef, solved = model.curvature, model.coef, model.work[0]
    residual = y - dot(coef, x)
    observe(gram, x, 1.0)
    multiply(gram.inverse, x, solved)
    model.residual[0] += residual * residual * max(1.0 - dot(x, solved), 0.0)
    for i in range(coef.size):
        model.target[i] += y * x[i]
    multiply(gram.inverse, model.target, coef)
    model.seen[0] += 1.0
    bound = model.bound[0]
    if dot(coef, coef) > bound * bound:
        # exact while a factorisation is cheap, else now and then and close to it in between
        if coef.size <= SMALL or model.seen[0] >= model.next_refit[0]:
            model.next_refit[0] = model.seen[0] + max(model.seen[0] // REFIT_SHARE, 1.0)
            if cholesky(gram.matrix, gram.factor):
                _solve_in_ball(gram.matrix, gram.factor, model.target, bound, coef, solved)
        else:
            shrink(coef, 0, coef.size, bound)


@borrowing
def _settle_ridge(estimator: Any, model: Any) -> None:
    gram, coef, bound = model.curvature, model.coef, model.bound[0]
    multiply(gram.inverse, model.target, coef)
    if dot(coef, coef) > bound * bound and cholesky(gram.matrix, gram.factor):
        _solve_in_ball(gram.matrix, gram.factor, model.target, bound, coef, model.work[0])


# ------------------------------------------------------------------------------------- registration


@borrowing
def _nothing(estimator: Any, model: Any) -> None:
    pass


@borrowing
def _anywhere(estimator: Any) -> float:
    return np.inf


@borrowing
def _within_reach(estimator: Any) -> float:
    return MOVE


@borrowing
def _square(estimator: Any, score: float, weight: float) -> float:
    return score * score / weight


@borrowing
def _variances(estimator: Any, model: Any, columns: Any, work: Any, out: Any) -> None:
    quadratic_forms(model.curvature.inverse, columns, work, out)


@borrowing
def _noise(estimator: Any, sigma: float, model: Any) -> float:
    size: float = residual_size(sigma, model)
    return size


@borrowing
def _radius(estimator: Any, spec: Any, model: Any, rounds: float) -> float:
    """Return the paper's radius, (σ/κ)·√(4 log T + d log(1 + t/(λd)))."""
    size = residual_size(spec.sigma, model)
    kappa = smallest_slope(estimator.link, spec.bound)
    dim = float(model.coef.size)
    found: float = glm_radius(math.log(spec.horizon), dim, rounds, spec.ridge, size, kappa)
    return found


def register_estimator(
    kind: type,
    *,
    learn: Kernel = _learn,
    settle: Kernel = refit,
    linearise: Kernel | None = None,
    tune: Kernel = _nothing,
    largest_move: Kernel = _anywhere,
    square: Kernel = _square,
    variances: Kernel = _variances,
    noise: Kernel = _noise,
    radius: Kernel = _radius,
) -> None:
    """Make an estimator known to the interpreter and to the compiler; see `Estimator`."""
    moves = (linearise, tune, largest_move)
    ESTIMATORS.add(kind, Estimator(learn, settle, *moves, square, variances, noise, radius))


register_estimator(GLM, linearise=linearise_glm, largest_move=_within_reach)
register_estimator(
    LeastSquares,
    linearise=linearise_least_squares,
    largest_move=_within_reach,
    square=square_least_squares,
    variances=variances_least_squares,
)
register_estimator(
    Huber, linearise=linearise_huber, tune=tune_huber, noise=tail_size, radius=huber_radius
)
register_estimator(Product, linearise=linearise_product)
register_estimator(Ridge, learn=_learn_ridge, settle=_settle_ridge)
register_estimator(Learned, learn=_learn_ridge, settle=_settle_ridge)
register_estimator(Linear, learn=_learn_ridge, settle=_settle_ridge)
register_estimator(
    MedianOfMeans,
    learn=learn_groups,
    settle=_nothing,
    noise=groups_noise,
    radius=groups_radius,
)
