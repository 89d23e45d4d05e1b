"""Information matrices and small linear algebra against numpy.linalg."""

from __future__ import annotations

import numpy as np
import pytest

from zib.stats.design import (
    Gram,
    cholesky,
    draw_normal,
    invert,
    linear_forms,
    multiply,
    new_gram,
    observe,
    quadratic_forms,
    solve_lower,
    solve_upper,
)


def grown(rows, weights, ridge):
    gram = new_gram(rows.shape[1], ridge, keeps_factor=True)
    for x, weight in zip(rows, weights, strict=True):
        observe(gram, x, weight)
    return gram


def relative_error(gram: Gram) -> tuple[float, float, float]:
    """Errors of matrix·inverse and of factor'factor, and the condition number they may grow with.

    Everything is put on the scale of correlations first, on which the errors of the algorithms
    live.
    """
    scale = np.sqrt(np.diag(gram.matrix))
    matrix = gram.matrix / np.outer(scale, scale)
    inverse = gram.inverse * np.outer(scale, scale)
    factor = gram.factor / scale
    inverse_error = np.abs(matrix @ inverse - np.eye(len(scale))).max()
    return inverse_error, np.abs(factor.T @ factor - matrix).max(), np.linalg.cond(matrix)


def symmetric(rng, dim):
    rows = rng.normal(size=(3 * dim, dim))
    return rows.T @ rows


@pytest.mark.parametrize("dim", [1, 3, 12])
def test_thousands_of_updates_do_not_drift(rng, dim) -> None:
    rows = rng.normal(size=(3000, dim))
    weights = rng.uniform(0.0, 2.0, 3000)
    gram = grown(rows, weights, 0.5)
    assert gram.since_rebuild[0] < max(64, 4 * dim)  # made anew regularly
    assert np.allclose(gram.matrix, 0.5 * np.eye(dim) + (rows.T * weights) @ rows, rtol=1e-12)
    assert np.allclose(gram.inverse, np.linalg.inv(gram.matrix), rtol=1e-10, atol=1e-16)
    assert np.allclose(gram.factor, np.linalg.cholesky(gram.matrix).T, rtol=1e-10, atol=1e-12)


def test_drift_stays_where_the_condition_allows(rng) -> None:
    """Features of sizes 1e-3 to 1e3, two of them nearly equal."""
    dim = 6
    rows = rng.normal(size=(2000, dim))
    rows[:, 1] = rows[:, 0] + 1e-3 * rows[:, 1]
    gram = grown(rows * np.logspace(-3, 3, dim), np.ones(2000), 1e-9)
    inverse_error, factor_error, condition = relative_error(gram)
    assert condition > 1e4
    assert inverse_error < 1e-13 * condition
    assert factor_error < 1e-12


@pytest.mark.parametrize("size", [1e2, 1e4, 1e8])
def test_first_look_in_a_direction(rng, size) -> None:
    """The first updates shrink the inverse by up to 1e16 at once, and lose no digits."""
    rows = size * rng.normal(size=(40, 4))
    for n in (4, 5, 11, 40):
        inverse_error, factor_error, condition = relative_error(grown(rows[:n], np.ones(n), 1.0))
        assert inverse_error < 1e-11 * condition
        assert factor_error < 1e-12


def test_constant_and_collinear_features(rng) -> None:
    rows = np.column_stack([np.ones(500), np.ones(500), rng.normal(size=500)])
    rows = np.column_stack([rows, rows[:, 2] * 2.0])
    gram = grown(rows, np.ones(500), 1.0)
    assert np.allclose(gram.inverse, np.linalg.inv(gram.matrix), rtol=1e-8, atol=1e-12)
    assert np.allclose(gram.factor.T @ gram.factor, gram.matrix, rtol=1e-12, atol=1e-9)


def test_weights_that_are_not_positive_teach_nothing(rng) -> None:
    gram = new_gram(3, 2.0, keeps_factor=True)
    for weight in (0.0, -1.0, np.nan):
        observe(gram, rng.normal(size=3), weight)
    assert np.array_equal(gram.matrix, 2.0 * np.eye(3))
    assert np.array_equal(gram.inverse, 0.5 * np.eye(3))


@pytest.mark.parametrize("dim", [1, 2, 7, 20])
def test_factor_solves_and_inverse(rng, dim) -> None:
    matrix = symmetric(rng, dim)
    factor, inverse = np.zeros((dim, dim)), np.zeros((dim, dim))
    assert cholesky(matrix, factor)
    assert np.allclose(factor, np.linalg.cholesky(matrix).T)
    invert(factor, inverse)
    assert np.allclose(inverse, np.linalg.inv(matrix))
    x = rng.normal(size=dim)
    upper, lower, product = x.copy(), x.copy(), np.zeros(dim)
    solve_upper(factor, upper)
    solve_lower(factor, lower)
    multiply(matrix, x, product)
    assert np.allclose(upper, np.linalg.solve(factor, x))
    assert np.allclose(lower, np.linalg.solve(factor.T, x))
    assert np.allclose(product, matrix @ x)


@pytest.mark.parametrize("bad", [np.nan, np.inf, 0.0, -1.0])
def test_cholesky_says_so_where_there_is_none(bad) -> None:
    matrix = np.diag([1.0, bad, 1.0])
    assert not cholesky(matrix, np.zeros((3, 3)))


def test_cholesky_of_a_matrix_that_rounding_made_singular() -> None:
    """1e9 + 1 twice: the second pivot is lost; what stands in for it is of the size of rounding."""
    matrix = np.full((2, 2), 1e20) + np.eye(2)
    factor = np.zeros((2, 2))
    assert cholesky(matrix, factor)
    assert np.allclose(factor.T @ factor, matrix, rtol=1e-14)
    assert factor[1, 1] > 0.0


@pytest.mark.parametrize(("dim", "n"), [(1, 1), (4, 1), (4, 9), (9, 4)])
def test_forms(rng, dim, n) -> None:
    matrix, coef = symmetric(rng, dim), rng.normal(size=dim)
    columns = rng.normal(size=(dim, n + 3))  # more columns than asked for
    out, work = np.full(n, np.nan), np.full(n, np.nan)
    linear_forms(coef, columns, out)
    assert np.allclose(out, coef @ columns[:, :n])
    quadratic_forms(matrix, columns, work, out)
    assert np.allclose(out, np.einsum("ik,ij,jk->k", columns, matrix, columns)[:n])


def test_quadratic_forms_are_never_negative(rng) -> None:
    direction = rng.normal(size=5)
    matrix = np.outer(direction, direction)  # singular: many forms are zero but for rounding
    columns = rng.normal(size=(5, 400))
    columns -= np.outer(direction, direction @ columns) / (direction @ direction)
    out = np.zeros(400)
    quadratic_forms(matrix, columns, np.zeros(400), out)
    assert (out >= 0.0).all()
    assert out.max() < 1e-12


def test_draws_have_mean_and_covariance(rng) -> None:
    """N(coef, scale²·A⁻¹), from 20 000 draws: 14 statistics, normal to a good approximation.

    Fails by chance with probability below 1e-6 (5.5 standard errors each).
    """
    dim, n, scale = 4, 20_000, 1.7
    rows = rng.normal(size=(50, dim)) * np.array([1.0, 0.1, 5.0, 1.0])
    rows[:, 3] += rows[:, 0]
    gram = grown(rows, np.ones(50), 0.3)
    coef = rng.normal(size=dim)
    draws, out = np.zeros((n, dim)), np.zeros(dim)
    for i in range(n):
        draw_normal(coef, gram, scale, rng, out)
        draws[i] = out
    white = (draws - coef) @ np.linalg.cholesky(gram.matrix) / scale  # L'(x − c): N(0, I)
    assert np.abs(white.mean(axis=0)).max() * np.sqrt(n) < 5.5
    second = white.T @ white / n - np.eye(dim)
    error = np.sqrt(np.where(np.eye(dim) > 0, 2.0, 1.0) / n)
    assert np.abs(second / error).max() < 5.5
