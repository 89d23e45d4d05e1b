"""Regression on whole samples: one Newton ascent, and the linear and logistic fits built on it.

The fits by arm have coefficients b + δₖ on (1, standardised context) for arm k. A ridge penalty
holds δₖ near 0: the intercept of an arm counts as `ARM` observation at the common value, its slopes
as `SLOPES`; common slopes are held near 0 by `COMMON`. Arms with little data thus behave like the
average arm, arms with much data like themselves, and separated data have a finite fit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Codes = NDArray[np.int64]

ARM, SLOPES, COMMON, CONSTANT = 1.0, 10.0, 1.0, 1e-3

MOST_STEPS = 100
HALVINGS = 40
PRECISE = 1e-10  # Newton decrement at which to stop, in units of the log-likelihood
NOT_WORSE = 1e-6  # what rounding errors may leave of it
ROUNDING = 1e-13  # relative loss of the log-likelihood that is no loss
_LARGEST = 30.0  # of a log-odds: exp stays harmless and 1 − p is not exactly 0


# -------------------------------------------------------------------------------------- ascent


class Maximum(NamedTuple):
    """Where a function is largest; `converged` is False where no maximum was found."""

    at: Array
    value: float
    converged: bool


Step = Callable[[], tuple[Array, Array]]


def climb(look: Callable[[Array], tuple[float, Step]], start: Array) -> Maximum:
    """Maximise a function by Newton or Fisher scoring steps, halved while they do not raise it.

    Parameters
    ----------
    look
        Takes a point and returns the value there and a function that returns gradient and Newton
        step; that is only called for points that are kept. Values of −inf say "outside".
    start
        A point inside.

    Examples
    --------
    >>> def parabola(x):
    ...     return float(-(x[0] - 3.0) ** 2), lambda: (-2.0 * (x - 3.0), 3.0 - x)
    >>> climb(parabola, np.zeros(1))
    Maximum(at=array([3.]), value=-0.0, converged=True)
    """
    at = start
    value, step_from = look(at)
    for _ in range(MOST_STEPS):
        gradient, step = step_from()
        decrement = float(gradient @ step)
        if not np.isfinite(decrement):
            return Maximum(at, value, False)
        if decrement < PRECISE:
            return Maximum(at, value, True)
        for _ in range(HALVINGS):
            tried, step_there = look(at + step)
            if tried >= value - ROUNDING * abs(value):
                break
            step = step / 2.0
        else:
            return Maximum(at, value, decrement < NOT_WORSE)
        at, value, step_from = at + step, tried, step_there
    return Maximum(at, value, False)


def solved(curvature: Array, gradient: Array) -> Array:
    """Return the Newton step; of columns that say the same, the smallest one."""
    try:
        return np.asarray(np.linalg.solve(curvature, gradient), dtype=np.float64)
    except np.linalg.LinAlgError:
        return np.asarray(np.linalg.lstsq(curvature, gradient, rcond=None)[0])


# ------------------------------------------------------------------------------------ logistic


def _binomial(eta: Array, y: Array, weight: Array | float) -> float:
    return float(np.sum(weight * (y * eta - np.logaddexp(0.0, eta))))


def fit_logit(x: Array, y: Array) -> Maximum:
    """Fit P(Y = 1) = 1/(1 + exp(−x'θ)) by maximum likelihood.

    A ridge of 10⁻⁹ in the steps alone makes columns that say the same harmless; separated outcomes
    end near the largest likelihood, which they do not reach.

    Examples
    --------
    >>> x = np.array([[0.0, 1.0], [1.0, 1.0], [0.0, 1.0], [1.0, 1.0], [1.0, 1.0], [0.0, 1.0]])
    >>> fit_logit(x, np.array([0.0, 0, 0, 1, 1, 1])).at.round(6)
    array([ 1.386294, -0.693147])
    """
    from scipy.special import expit

    ridge = 1e-9 * float((x * x).sum()) / x.shape[1] * np.eye(x.shape[1])

    def look(coef: Array) -> tuple[float, Step]:
        eta = x @ coef

        def step() -> tuple[Array, Array]:
            p = expit(eta)
            gradient = x.T @ (y - p)
            return gradient, np.linalg.solve((x * (p * (1.0 - p))[:, None]).T @ x + ridge, gradient)

        return _binomial(eta, y, 1.0), step

    return climb(look, np.zeros(x.shape[1]))


def fit_multinomial(design: Array, arm: Codes, n_arms: int, penalty: float = 1e-3) -> Array:
    """Return coefficients (m, K) of a multinomial logistic regression with a slight ridge.

    The ridge picks one of the equivalent solutions and keeps separated data finite. Steps are taken
    in uncorrelated columns, where they are few; the ridge holds the coefficients of these.
    """
    from scipy.optimize import minimize
    from scipy.special import logsumexp

    n = len(design)
    basis, triangle = np.linalg.qr(design)
    back = triangle / np.sqrt(n)
    design, width = basis * np.sqrt(n), basis.shape[1]
    rows = np.arange(n)
    observed = np.zeros((width, n_arms))
    np.add.at(observed.T, arm, design)

    def loss(flat: Array) -> tuple[float, Array]:
        beta = flat.reshape(width, n_arms)
        eta = design @ beta
        top = logsumexp(eta, axis=1)
        gradient = design.T @ np.exp(eta - top[:, None]) - observed + penalty * beta
        value = (top - eta[rows, arm]).sum() + 0.5 * penalty * (flat @ flat)
        return float(value) / n, gradient.reshape(-1) / n

    share = (np.bincount(arm, minlength=n_arms) + 0.5) / (n + 0.5 * n_arms)
    start = np.zeros((width, n_arms))
    start[0] = (np.log(share) - np.log(share).mean()) * back[0, 0]
    found = minimize(
        loss,
        start.reshape(-1),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 500, "gtol": 1e-8, "ftol": 1e-13},
    )
    return solved(back, found.x.reshape(width, n_arms))


# -------------------------------------------------------------------------------------- by arm


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


def arm_slices(arm: Codes, n_arms: int) -> tuple[Codes, Sequence[slice]]:
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


def fit_logistic(design: Array, slices: Sequence[slice], y: Array, weight: Array) -> Array:
    """Return coefficients per arm, (K, m), of a logistic regression; rows stand in arm order."""
    from scipy.special import expit

    width = design.shape[1]
    of_common, of_arm = _penalties(width)
    share = (weight @ y + 0.5) / (weight.sum() + 1.0)
    start = np.zeros((1 + len(slices), width))  # the common coefficients, then those of the arms
    start[0, 0] = np.log(share / (1.0 - share))

    def look(flat: Array) -> tuple[float, Step]:
        common, *own = flat.reshape(start.shape)
        apart = np.array(own)
        eta = np.concatenate([design[s] @ (common + apart[k]) for k, s in enumerate(slices)])
        eta = np.clip(eta, -_LARGEST, _LARGEST)
        penalty = float(of_common @ common**2) + float((apart**2 @ of_arm).sum())

        def step() -> tuple[Array, Array]:
            p = expit(eta)
            residual, curvature = weight * (y - p), weight * p * (1.0 - p)
            gram = np.stack([(design[s] * curvature[s, None]).T @ design[s] for s in slices])
            score = np.stack([design[s].T @ residual[s] for s in slices])
            of_all, of_each = score.sum(axis=0) - of_common * common, score - of_arm * apart
            move, own_move = _solve(gram, of_all, of_each)
            gradient = np.concatenate([of_all, of_each.ravel()])
            return gradient, np.concatenate([move, own_move.ravel()])

        return _binomial(eta, y, weight) - 0.5 * penalty, step

    common, *own = climb(look, start.ravel()).at.reshape(start.shape)
    out: Array = common + np.array(own)
    return out
