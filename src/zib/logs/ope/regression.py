"""Penalised linear and logistic regression with coefficients per arm that lean on common ones.

Arm k has coefficients b + δₖ on (1, standardised context). A ridge penalty holds δₖ near 0: the
intercept of an arm counts as `ARM` observation at the common value, its slopes as `SLOPES`; common
slopes are held near 0 by `COMMON`. Arms with little data thus behave like the average arm, arms
with much data like themselves, and separated data have a finite fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

ARM, SLOPES, COMMON, CONSTANT = 1.0, 10.0, 1.0, 1e-3
_LARGEST = 30.0  # of a log-odds: exp stays harmless and 1 − p is not exactly 0

Array = NDArray[np.float64]


class Scaling(NamedTuple):
    """Centre and scale of each column of the context."""

    centre: Array
    scale: Array

    def design(self, context: Array) -> Array:
        """Return (1, standardised context)."""
        out = np.ones((len(context), self.centre.size + 1))
        np.subtract(context, self.centre, out=out[:, 1:])
        out[:, 1:] /= self.scale
        return out


def scaling(context: Array, weight: Array) -> Scaling:
    """Return weighted means and standard deviations; constant columns get scale 1."""
    share = weight / weight.sum()
    centre = share @ context
    spread = np.sqrt(share @ (context - centre) ** 2)
    constant = spread <= 1e-12 * (1.0 + np.abs(centre))
    return Scaling(centre, np.where(constant, 1.0, spread))


def arm_slices(arm: NDArray[np.int64], n_arms: int) -> tuple[NDArray[np.int64], Sequence[slice]]:
    """Return an order that puts rows of one arm together, and where each arm then stands."""
    order = np.argsort(arm, kind="stable")
    ends = np.cumsum(np.bincount(arm, minlength=n_arms))
    return order, [slice(e - c, e) for e, c in zip(ends, np.diff(ends, prepend=0), strict=True)]


def _penalties(width: int) -> tuple[Array, Array]:
    common, arm = np.full(width, COMMON), np.full(width, SLOPES)
    common[0], arm[0] = CONSTANT, ARM
    return common, arm


def _solve(gram: Array, common: Array, own: Array) -> tuple[Array, Array]:
    """Solve the penalised normal equations for the common and the arms' own coefficients.

    `gram` (K, m, m) holds the information of each arm. The system is an arrow: each arm's own part
    meets only the common part, so arms are eliminated one by one.
    """
    width = gram.shape[1]
    of_common, of_arm = _penalties(width)
    inner = gram + np.diag(of_arm)
    moved = np.linalg.solve(inner, np.concatenate((gram, own[:, :, None]), axis=2))
    rest = np.diag(of_common) + (gram - gram @ moved[:, :, :width]).sum(axis=0)
    right = common - (gram @ moved[:, :, width:])[:, :, 0].sum(axis=0)
    step = np.linalg.solve(rest, right)
    return step, moved[:, :, width] - moved[:, :, :width] @ step


def fit_linear(design: Array, slices: Sequence[slice], y: Array, weight: Array) -> Array:
    """Return coefficients per arm, (K, m), of a linear regression; rows stand in arm order."""
    middle = float(np.average(y, weights=weight))
    weighted = design * weight[:, None]
    gram = np.stack([weighted[s].T @ design[s] for s in slices])
    right = np.stack([weighted[s].T @ (y[s] - middle) for s in slices])
    common, own = _solve(gram, right.sum(axis=0), right)
    out: Array = common + own
    out[:, 0] += middle
    return out


def fit_logistic(
    design: Array, slices: Sequence[slice], y: Array, weight: Array, steps: int = 50
) -> Array:
    """Return coefficients per arm, (K, m), of a logistic regression; rows stand in arm order."""
    from scipy.special import expit

    of_common, of_arm = _penalties(design.shape[1])
    total = weight.sum()
    start = (weight @ y + 0.5) / (total + 1.0)
    common, own = np.zeros(design.shape[1]), np.zeros((len(slices), design.shape[1]))
    common[0] = np.log(start / (1.0 - start))

    def predictor(common: Array, own: Array) -> Array:
        eta = np.concatenate([design[s] @ (common + own[k]) for k, s in enumerate(slices)])
        return np.asarray(np.clip(eta, -_LARGEST, _LARGEST))

    def loss(eta: Array, common: Array, own: Array) -> float:
        penalty = float(of_common @ common**2) + float((own**2 @ of_arm).sum())
        return float(weight @ (np.logaddexp(0.0, eta) - y * eta)) + 0.5 * penalty

    eta = predictor(common, own)
    now = loss(eta, common, own)
    for _ in range(steps):
        p = expit(eta)
        residual, curvature = weight * (y - p), weight * p * (1.0 - p)
        gram = np.stack([(design[s] * curvature[s, None]).T @ design[s] for s in slices])
        score = np.stack([design[s].T @ residual[s] for s in slices])
        move, own_move = _solve(gram, score.sum(axis=0) - of_common * common, score - of_arm * own)
        size = 1.0
        while size > 1e-6:
            trial = (common + size * move, own + size * own_move)
            eta = predictor(*trial)
            after = loss(eta, *trial)
            if after <= now + 1e-12 * abs(now):
                break
            size /= 2.0
        done = now - after <= 1e-10 * (1.0 + abs(now))
        (common, own), now = trial, after
        if done or size <= 1e-6:
            break
    return common + own
