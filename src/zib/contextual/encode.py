"""From a context to one row of features per action.

Contextual policies want a matrix with one row per action. Which one depends on what the arms have
in common:

- `shared`: arms are described by features of their own (price, size, topic). One set of
  coefficients serves all arms, also those never seen before. The first choice.
- `disjoint`: arms are only names, few, and have nothing in common. Each has its own coefficients.
- `hybrid`: both. Shared features carry over from arm to arm, the rest is learned for each arm.

Each puts a 1 in front, the intercept, unless told not to: give it the context without one. Policies
add nothing to the features they are given.

The matrices are dense, and a decision costs of order K·dim² for K actions (K·dim where a model does
not keep a matrix of that size). With many arms the blocks of `disjoint` are nearly all zeros; the
policy wrapper `zib.contextual.Disjoint` fits one model per arm at the cost of one arm's features.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from zib.core import validate as check

Matrix = NDArray[np.float64]

__all__ = ["disjoint", "hybrid", "shared"]


def shared(
    context: ArrayLike,
    arm_features: ArrayLike,
    *,
    interactions: bool = True,
    intercept: bool = True,
) -> Matrix:
    """Return features whose coefficients all arms share.

    Parameters
    ----------
    context
        What is known about the round: one vector, or one row per action.
    arm_features
        What is known about the actions, one row each.
    interactions
        Whether every product of an entry of the context with one of the arm's is a feature too.
        Without them the context moves all actions alike, and a linear model ranks them the same
        way in every round.
    intercept
        Whether the first feature is 1.

    Returns
    -------
    ndarray
        One row per action. With c entries of the context and m of the arms there are
        (1 + c)(1 + m) columns, or 1 + c + m without interactions; one less without intercept.

    Examples
    --------
    >>> shared([2.0], [[3.0], [5.0]])
    array([[ 1.,  2.,  3.,  6.],
           [ 1.,  2.,  5., 10.]])
    >>> shared([2.0], [[3.0], [5.0]], interactions=False, intercept=False)
    array([[2., 3.],
           [2., 5.]])
    """
    arm_rows = _matrix("arm_features", arm_features)
    rows = _rows("context", context, len(arm_rows))
    parts = [np.ones((len(arm_rows), 1))] if check.flag("intercept", intercept) else []
    parts += [rows, arm_rows]
    if check.flag("interactions", interactions):
        parts.append((rows[:, :, None] * arm_rows[:, None, :]).reshape(len(rows), -1))
    return np.hstack(parts)


def disjoint(
    context: ArrayLike,
    n_arms: int,
    *,
    arms: Sequence[int] | None = None,
    intercept: bool = True,
) -> Matrix:
    """Return features whose coefficients belong to one arm each.

    Parameters
    ----------
    context
        What is known about the round: one vector, or one row per action.
    n_arms
        Number of different arms.
    arms
        The arm of each action, whole numbers from 0 to n_arms − 1; all arms in order by default.
    intercept
        Whether every arm has a feature 1 as well.

    Returns
    -------
    ndarray
        One row per action and n_arms·(1 + c) columns for a context of c entries, n_arms·c without
        intercept: the context in the block of the arm, 0 elsewhere.

    Examples
    --------
    >>> disjoint([2.0], 2)
    array([[1., 2., 0., 0.],
           [0., 0., 1., 2.]])
    >>> disjoint([2.0], 3, arms=[2], intercept=False)
    array([[0., 0., 2.]])
    """
    n_arms = check.integer("n_arms", n_arms, low=1)
    ids = _ids(arms, n_arms)
    rows = _rows("context", context, ids.size)
    if check.flag("intercept", intercept):
        rows = np.hstack([np.ones((ids.size, 1)), rows])
    blocks = np.zeros((ids.size, n_arms, rows.shape[1]))
    blocks[np.arange(ids.size), ids] = rows
    return blocks.reshape(ids.size, -1)


def hybrid(
    context: ArrayLike,
    shared_features: ArrayLike,
    n_arms: int,
    *,
    arms: Sequence[int] | None = None,
    intercept: bool = True,
) -> Matrix:
    """Return features of which some are shared by all arms and some belong to one arm each.

    Parameters
    ----------
    context
        What is known about the round and enters the block of the arm: one vector, or one row per
        action.
    shared_features
        One row per action: the features whose coefficients all arms share, such as those made by
        `shared` (without intercept, which the blocks have already).
    n_arms, arms, intercept
        As for `disjoint`.

    Returns
    -------
    ndarray
        One row per action: the shared features, then the columns of `disjoint`.

    Notes
    -----
    The two groups overlap on purpose. The penalty of the fit divides the work: what arms have in
    common costs least as a shared coefficient, and blocks hold what is left.

    Examples
    --------
    >>> hybrid([2.0], [[3.0], [5.0]], 2)
    array([[3., 1., 2., 0., 0.],
           [5., 0., 0., 1., 2.]])
    """
    blocks = disjoint(context, n_arms, arms=arms, intercept=intercept)
    common = _matrix("shared_features", shared_features)
    if len(common) != len(blocks):
        raise check.InvalidParameterError(
            f"`shared_features` must have one row per action, {len(blocks)}; got {len(common)}"
        )
    return np.hstack([common, blocks])


def _numbers(name: str, values: ArrayLike) -> Matrix:
    array = check.numbers(name, values)
    check.inside(name, array)
    return array


def _matrix(name: str, values: ArrayLike) -> Matrix:
    array = _numbers(name, values)
    if array.ndim != 2 or array.size == 0:
        raise check.InvalidParameterError(
            f"`{name}` must be a non-empty matrix with one row per action; got shape {array.shape}"
        )
    return array


def _rows(name: str, values: ArrayLike, n: int) -> Matrix:
    """Return one row per action, of a vector for all of them or of a matrix."""
    array = _numbers(name, values)
    if array.ndim == 1 and array.size > 0:
        return np.broadcast_to(array, (n, array.size))
    if array.ndim != 2 or len(array) != n or array.size == 0:
        raise check.InvalidParameterError(
            f"`{name}` must be one vector, or a matrix with one row per action, {n}; "
            f"got shape {array.shape}"
        )
    return array


def _ids(arms: Sequence[int] | None, n_arms: int) -> NDArray[np.int64]:
    if arms is None:
        return np.arange(n_arms)
    ids = check.numbers("arms", arms)
    if ids.ndim != 1 or ids.size == 0 or (ids != np.floor(ids)).any():
        raise check.InvalidParameterError(
            f"`arms` must be whole numbers, one per action; got {check.shown(arms)}"
        )
    check.inside("arms", ids, 0, n_arms - 1)
    return ids.astype(np.int64)
