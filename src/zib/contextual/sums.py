"""Policies whose state is a sum over rewards: rewards are revised and states added exactly.

That is ridge regression of the reward, `Naive`: A = λI + Σ x x' and b = Σ x y decide everything,
and the sum of squared residuals is Σ y² − b'A⁻¹b. Models with links are solved by iteration, and
what they keep depends on the order of the rewards.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from zib.contextual.baselines import Naive
from zib.contextual.per_arm import Disjoint
from zib.core.stacked import row_of
from zib.stats.design import rebuild


def keeps_sums(spec: Any) -> bool:
    """Whether the state of a policy is a sum over rewards."""
    return isinstance(spec, Naive) or (isinstance(spec, Disjoint) and keeps_sums(spec.spec))


def revise(spec: Any, state: Any, arm: int, x: Any, old: float, new: float) -> None:
    """Replace the reward of an observation at `x`."""
    if isinstance(spec, Disjoint):
        revise(spec.spec, row_of(state.arms, arm), 0, x, old, new)
        return
    model = state.model
    squares = _squares(model) + (new - old) * (new + old)
    model.target[:] += (new - old) * x
    _solve(model, squares)


def merge(spec: Any, state: Any, other: Any, sign: float = 1.0) -> None:
    """Add what another state has learned, or take it out again (`sign` −1)."""
    if isinstance(spec, Disjoint):
        for k in range(spec.n_arms):
            merge(spec.spec, row_of(state.arms, k), row_of(other.arms, k), sign)
        state.clock.rounds[0] += sign * other.clock.rounds[0]
        state.arms.clock.rounds[:] = state.clock.rounds[0]
        return
    model, more = state.model, other.model
    squares = _squares(model) + sign * _squares(more)
    state.clock.rounds[0] += sign * other.clock.rounds[0]
    model.seen[0] += sign * more.seen[0]
    matrix = model.curvature.matrix
    matrix += sign * more.curvature.matrix
    matrix -= sign * spec.ridge * np.eye(len(matrix))
    model.target[:] += sign * more.target
    rebuild(model.curvature)
    _solve(model, squares)


def _squares(model: Any) -> float:
    """Return Σ y²."""
    return float(model.residual[0] + model.target @ model.coef)


def _solve(model: Any, squares: float) -> None:
    model.coef[:] = model.curvature.inverse @ model.target
    model.residual[0] = max(squares - float(model.target @ model.coef), 0.0)
