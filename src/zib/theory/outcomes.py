"""The joint bound for rewards through several outcomes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from zib.core.cache import cached_njit
from zib.core.validate import InvalidParameterError
from zib.theory._vectorise import Array, number, numbers, same_shape
from zib.theory.outcome_scalars import outcome_upper


def _all_rows(table: Any, scales: Any, levels: Any, out: Any) -> None:
    m = table.shape[1] // 2
    for i in range(out.size):
        out[i] = outcome_upper(table, i, 0, m, scales, i * m, levels[i], -np.inf)


_fill = cached_njit(_all_rows)


def outcome_kl_upper(
    counts: ArrayLike, means: ArrayLike, sigma: ArrayLike, level: ArrayLike
) -> Any:
    """Return the largest mean reward that the likelihood ratio of all outcomes does not exclude.

    Parameters
    ----------
    counts
        How often each of m outcomes was seen, along the last axis.
    means
        Mean reward of each outcome, along the last axis. For an outcome never seen: what it could
        pay; leave such outcomes out where nothing is known.
    sigma
        Standard deviation of the rewards of each outcome, one for all or along the last axis; 0 for
        outcomes that always pay the same.
    level
        Budget of log-likelihood, >= 0; broadcasts against the other axes.

    Returns
    -------
    float or ndarray
        sup{Σ q'_j v'_j : n KL(q_hat, q') + Σ B_j (v_j - v'_j)²/(2 sigma_j²) <= level}, error below
        1e-10 of the scale of the rewards; ``inf`` without any observation.

    Notes
    -----
    Zero inflation is the case of two outcomes, one of which pays 0: then this is `joint_kl_upper`.
    With known values (sigma = 0) it is the empirical-likelihood bound of Burnetas and Katehakis for
    laws on finitely many points. To first order the width is √(2 level Var(R)/n).

    The set is convex, the mean reward is not concave on it; the global supremum is returned. The
    stationary points lie on curves with one coordinate, of which at most one outcome is far from
    its observed mean, and each curve is searched.

    Examples
    --------
    >>> seen = [900, 60, 30, 10]  # ignored, clicked, bought, returned
    >>> round(outcome_kl_upper(seen, means=[0.0, 1.0, 20.0, -15.0], sigma=0.0, level=3.0), 4)
    0.8307
    """
    often = _entries("counts", counts, 0.0)
    paid = _entries("means", means)
    wide = numbers("sigma", sigma, 0.0, np.inf, "left")
    budget = numbers("level", level, 0.0, np.inf, "left")
    m = often.shape[-1]
    if paid.shape[-1] != m or (wide.ndim > 0 and wide.shape[-1] != m):
        raise InvalidParameterError(
            "`means` and `sigma` must have one entry per outcome, as `counts` has; got shapes "
            f"{paid.shape} and {wide.shape} for {often.shape}"
        )
    if wide.ndim == 0:
        wide = np.full(m, float(wide))
    same_shape(often[..., 0], paid[..., 0], wide[..., 0], budget)
    shape = np.broadcast_shapes(often.shape[:-1], paid.shape[:-1], wide.shape[:-1], budget.shape)
    rows = [np.broadcast_to(a, (*shape, m)).reshape(-1, m) for a in (often, paid, wide)]
    out = np.empty(rows[0].shape[0])
    _fill(
        np.concatenate(rows[:2], axis=1),
        rows[2].flatten(),
        np.broadcast_to(budget, shape).flatten(),
        out,
    )
    return number(out.reshape(shape))


def _entries(name: str, value: ArrayLike, low: float = -np.inf) -> Array:
    array = numbers(name, value, low, np.inf, "left" if low == 0.0 else "both")
    if array.ndim == 0:
        raise InvalidParameterError(f"`{name}` must have one entry per outcome; got {value!r}")
    return array
