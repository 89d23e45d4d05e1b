"""Information matrices that grow by one observation at a time, and small linear algebra as loops.

A `Gram` keeps A = ridge·I + Σ weight·x x', its inverse (by Sherman–Morrison) and, where somebody
draws from N(0, A⁻¹), its Cholesky factor R (A = R'R, by rank-one updates). Rounding errors of the
two cheap updates add up, so both are made anew from A now and then, often enough to keep them tiny
and seldom enough to cost little. Loops run along rows: the compiler turns them into vector
instructions without reordering sums, so compiled and interpreted results agree to the last bit.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from zib.core.registry import borrowing
from zib.core.state import Floats, Part, claim, count, scalar, scratch, table

SMALLEST_PIVOT = 1e-15
REBUILD_EVERY = 64  # updates, and at least four times the dimension
LARGEST_LEVERAGE = 1e4  # an update of the inverse loses about as many digits as this has


class Gram(Part):
    """An information matrix with its inverse and factor."""

    matrix: Floats = table("dim", "dim")
    inverse: Floats = table("dim", "dim")
    factor: Floats = table("dim", "dim")
    since_rebuild: Floats = count()  # updates since inverse and factor were made anew
    keeps_factor: Floats = scalar(whole=True, least=0.0, most=1.0)  # 1: updates change the factor
    work: Floats = scratch(2, "dim")


def new_gram(dim: int, ridge: float, *, keeps_factor: bool) -> Gram:
    """Return A = ridge·I; dimension 0 makes a matrix nobody uses."""
    claim(3, dim, dim)
    eye = np.eye(dim)
    return Gram.new(
        {"dim": dim},
        matrix=ridge * eye,
        inverse=eye / ridge,
        factor=math.sqrt(ridge) * eye,
        keeps_factor=np.array([float(keeps_factor)]),
    )


@borrowing
def dot(x: Any, y: Any) -> float:
    """Return x'y."""
    total = 0.0
    for i in range(x.size):
        total += x[i] * y[i]
    return total


@borrowing
def multiply(matrix: Any, x: Any, out: Any) -> None:
    """Write A·x into `out`, for a symmetric A."""
    for i in range(out.size):
        out[i] = 0.0
    for j in range(x.size):
        xj = x[j]
        for i in range(out.size):
            out[i] += matrix[j, i] * xj


@borrowing
def shrink(x: Any, first: int, last: int, bound: float) -> None:
    """Scale the entries from `first` to before `last` back into the ball of radius `bound`."""
    length = 0.0
    for i in range(first, last):
        length += x[i] * x[i]
    if length > bound * bound:
        ratio = bound / math.sqrt(length)
        for i in range(first, last):
            x[i] *= ratio


@borrowing
def add_outer(matrix: Any, x: Any, weight: float) -> None:
    """Add weight·x x' to the matrix."""
    for i in range(x.size):
        scaled = weight * x[i]
        for j in range(x.size):
            matrix[i, j] += scaled * x[j]


@borrowing
def cholesky(matrix: Any, factor: Any) -> bool:
    """Write R with R'R = A into `factor`; False if A is not positive definite."""
    dim = matrix.shape[0]
    for i in range(dim):
        for j in range(dim):
            factor[i, j] = matrix[i, j] if j >= i else 0.0
    for k in range(dim):
        # rounding may leave nothing of a pivot that is tiny against its column; the matrix is
        # positive definite by construction, so it is put back on the scale of rounding errors
        pivot = max(factor[k, k], SMALLEST_PIVOT * matrix[k, k])
        if not 0.0 < pivot < np.inf:
            return False
        root = math.sqrt(pivot)
        factor[k, k] = pivot
        for j in range(k, dim):
            factor[k, j] /= root
        for i in range(k + 1, dim):
            scaled = factor[k, i]
            for j in range(i, dim):
                factor[i, j] -= scaled * factor[k, j]
    return True


@borrowing
def solve_upper(factor: Any, x: Any) -> None:
    """Replace x by R⁻¹x."""
    for k in range(x.size - 1, -1, -1):
        total = x[k]
        for i in range(k + 1, x.size):
            total -= factor[k, i] * x[i]
        x[k] = total / factor[k, k]


@borrowing
def solve_lower(factor: Any, x: Any) -> None:
    """Replace x by R'⁻¹x."""
    for k in range(x.size):
        x[k] /= factor[k, k]
        scaled = x[k]
        for i in range(k + 1, x.size):
            x[i] -= factor[k, i] * scaled


@borrowing
def invert(factor: Any, inverse: Any) -> None:
    """Write A⁻¹ into `inverse`, where A = R'R."""
    dim = factor.shape[0]
    for i in range(dim - 1, -1, -1):  # R⁻¹, row by row from below
        for j in range(dim):
            inverse[i, j] = 0.0
        inverse[i, i] = 1.0
        for k in range(i + 1, dim):
            scaled = factor[i, k]
            for j in range(k, dim):
                inverse[i, j] -= scaled * inverse[k, j]
        for j in range(i, dim):
            inverse[i, j] /= factor[i, i]
    for i in range(dim):  # R⁻¹R'⁻¹ in place: an entry is overwritten after its last use
        for j in range(i, dim):
            total = 0.0
            for k in range(j, dim):
                total += inverse[i, k] * inverse[j, k]
            inverse[i, j] = total
    for i in range(dim):
        for j in range(i):
            inverse[i, j] = inverse[j, i]


@borrowing
def rebuild(gram: Any) -> None:
    """Make inverse and factor anew from the matrix, which removes accumulated rounding errors."""
    gram.since_rebuild[0] = 0.0
    if cholesky(gram.matrix, gram.factor):
        invert(gram.factor, gram.inverse)


@borrowing
def _update_factor(factor: Any, x: Any) -> None:
    """Replace R by the factor of R'R + x x'; destroys x."""
    dim = x.size
    for k in range(dim):
        old = factor[k, k]
        new = math.sqrt(old * old + x[k] * x[k])
        c = new / old
        s = x[k] / old
        factor[k, k] = new
        for i in range(k + 1, dim):
            entry = (factor[k, i] + s * x[i]) / c
            factor[k, i] = entry
            x[i] = c * x[i] - s * entry


@borrowing
def observe(gram: Any, x: Any, weight: float) -> None:
    """Add weight·x x' to A and bring inverse and factor up to date."""
    if not weight > 0.0:
        return
    add_outer(gram.matrix, x, weight)
    gram.since_rebuild[0] += 1.0
    solved = gram.work[0]
    multiply(gram.inverse, x, solved)
    leverage = weight * dot(x, solved)
    # in a direction seen for the first time the update subtracts nearly equal numbers
    if leverage > LARGEST_LEVERAGE or gram.since_rebuild[0] >= max(REBUILD_EVERY, 4 * x.size):
        rebuild(gram)
        return
    add_outer(gram.inverse, solved, -weight / (1.0 + leverage))
    if gram.keeps_factor[0] > 0.0:
        copy = gram.work[1]
        root = math.sqrt(weight)
        for i in range(x.size):
            copy[i] = root * x[i]
        _update_factor(gram.factor, copy)


@borrowing
def linear_forms(coef: Any, columns: Any, out: Any) -> None:
    """Write coef'x for every column x."""
    for k in range(out.size):
        out[k] = 0.0
    for i in range(coef.size):
        c = coef[i]
        for k in range(out.size):
            out[k] += c * columns[i, k]


@borrowing
def quadratic_forms(matrix: Any, columns: Any, work: Any, out: Any) -> None:
    """Write x'A x for every column x; A symmetric, `work` as long as `out`."""
    for k in range(out.size):
        out[k] = 0.0
    for i in range(matrix.shape[0]):
        for k in range(out.size):
            work[k] = 0.0
        for j in range(i):
            entry = 2.0 * matrix[i, j]
            for k in range(out.size):
                work[k] += entry * columns[j, k]
        diagonal = matrix[i, i]
        for k in range(out.size):
            x = columns[i, k]
            out[k] += x * (work[k] + diagonal * x)
    for k in range(out.size):
        out[k] = max(out[k], 0.0)


@borrowing
def sandwich_forms(inverse: Any, middle: Any, columns: Any, work: Any, out: Any) -> None:
    """Write x'A⁻¹BA⁻¹x for every column x, where A⁻¹ and B are symmetric."""
    dim = inverse.shape[0]
    solved = work[:dim]
    for k in range(out.size):
        for i in range(dim):
            solved[i] = 0.0
        for j in range(dim):
            for i in range(dim):
                solved[i] += inverse[j, i] * columns[j, k]
        total = 0.0
        for i in range(dim):
            total += solved[i] * dot(middle[i], solved)
        out[k] = max(total, 0.0)


@borrowing
def draw_normal(coef: Any, gram: Any, scale: float, rng: Any, out: Any) -> None:
    """Write a draw from N(coef, scale²·A⁻¹) into `out`."""
    for i in range(coef.size):
        out[i] = rng.standard_normal()
    solve_upper(gram.factor, out[: coef.size])
    for i in range(coef.size):
        out[i] = coef[i] + scale * out[i]
