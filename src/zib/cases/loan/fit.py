"""How a loan market is fitted to records: acceptance, profit, prices of the classes.

Acceptance by maximum likelihood: Fisher scoring with the links of `zib.contextual`. With
the log link the largest likelihood often has a record at probability one, where no gradient
vanishes; a barrier that is lowered step by step finds it all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from zib.cases.loan.market import CUT_LEVELS
from zib.cases.loan.records import LoanRecords
from zib.contextual.links import derivative, inverse, log_complement, log_value, value
from zib.core.cache import cached_njit
from zib.core.validate import InvalidParameterError, choice, real, vector
from zib.env.contextual import LINK_NAMES, LINKS, LinkName
from zib.env.registry import Array
from zib.stats.regression import climb, solved

Transform = Literal["linear", "quadratic"]
TRANSFORMS: tuple[Transform, ...] = ("linear", "quadratic")
KNOTS = 65  # quantiles that describe the prices inside a class
FEWEST_IN_CLASS = 20

BARRIERS = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7)
SMALLEST_VARIANCE = 1e-12
SEPARATED = 1e-6  # a log-likelihood this close to 0: coefficients run off to infinity


class BinaryFit(NamedTuple):
    """A fitted binary regression.

    Attributes
    ----------
    coef
        Coefficients, one per column.
    log_likelihood
        Of the records it was fitted to.
    converged
        False where no maximum was found: outcomes that can be told apart without error have none.
    """

    coef: Array
    log_likelihood: float
    converged: bool


def _equations(
    link: Any, barrier: float, x: Any, y: Any, coef: Any, gradient: Any, curvature: Any
) -> float:
    """Write gradient and curvature of the log-likelihood; return it.

    With a barrier, which is for the log link, barrier·log(−x'θ) is added for each record, and the
    curvature is the observed one; otherwise it is Fisher's. One pass over the records, without
    matrix products: for few columns these would be slower, far more so on a busy machine.
    """
    d = coef.size
    gradient[:] = 0.0
    curvature[:] = 0.0
    total = 0.0
    for r in range(y.size):
        eta = 0.0
        for i in range(d):
            eta += coef[i] * x[r, i]
        p = value(link, eta)
        if not p <= 1.0 or (barrier > 0.0 and p == 1.0):
            return -np.inf
        total += log_value(link, eta) if y[r] > 0.5 else log_complement(link, eta)
        rest = max(1.0 - p, SMALLEST_VARIANCE)
        if barrier > 0.0:
            miss = 1.0 - y[r]
            score = y[r] - miss * p / rest + barrier / eta
            weight = miss * p / (rest * rest) + barrier / (eta * eta)
            total += barrier * np.log(-eta)
        else:
            slope = derivative(link, eta)
            ratio = slope / max(p * rest, SMALLEST_VARIANCE)
            score = (y[r] - p) * ratio
            weight = slope * ratio
        for i in range(d):
            gradient[i] += score * x[r, i]
            weighted = weight * x[r, i]
            for j in range(i + 1):
                curvature[i, j] += weighted * x[r, j]
    for i in range(d):
        for j in range(i):
            curvature[j, i] = curvature[i, j]
    return total


_equations_of_all = cached_njit(_equations)


def _likelihood(link: Any, eta: Any, y: Any) -> float:
    total = 0.0
    for i in range(y.size):
        if not value(link, eta[i]) <= 1.0:
            return -np.inf
        total += log_value(link, eta[i]) if y[i] > 0.5 else log_complement(link, eta[i])
    return total


_likelihood_of_all = cached_njit(_likelihood)


def _predict(link: Any, eta: Any, out: Any) -> None:
    for i in range(eta.size):
        out[i] = min(value(link, eta[i]), 1.0)


_predict_all = cached_njit(_predict)


def probabilities(link: LinkName, predictor: Array) -> Array:
    """Return h of every linear predictor, at most 1.

    Examples
    --------
    >>> probabilities("logit", np.array([0.0]))
    array([0.5])
    """
    choice("link", link, LINK_NAMES)
    flat = np.ascontiguousarray(predictor, dtype=np.float64).ravel()
    out = np.empty_like(flat)
    _predict_all(LINKS[link], flat, out)
    return out.reshape(np.shape(predictor))


def fit_binary(
    features: Array, outcome: NDArray[Any], link: LinkName, *, intercept: int = 1
) -> BinaryFit:
    """Fit P(Y = 1) = h(x'θ) by maximum likelihood.

    Parameters
    ----------
    features
        (n, d); the column `intercept` is constant, the fit starts from it alone.
    outcome
        (n,): 0 or 1, both present.
    link
        ``"probit"``, ``"logit"``, ``"cauchit"``, ``"cloglog"`` or ``"log"``.

    Examples
    --------
    >>> x = np.array([[0.0, 1.0], [1.0, 1.0], [0.0, 1.0], [1.0, 1.0], [1.0, 1.0], [0.0, 1.0]])
    >>> fit_binary(x, np.array([0, 0, 0, 1, 1, 1]), "logit").coef.round(6)
    array([ 1.386294, -0.693147])
    """
    choice("link", link, LINK_NAMES)
    y = np.ascontiguousarray(outcome, dtype=np.float64)
    x = np.ascontiguousarray(features, dtype=np.float64)
    share = float(y.mean()) if y.size else 0.0
    if not 0.0 < share < 1.0:
        raise InvalidParameterError(
            f"`outcome` must hold both zeros and ones; got {y.size} values with mean {share:g}"
        )
    start = np.zeros(x.shape[1])
    start[intercept] = inverse(LINKS[link], share) / x[0, intercept]
    if link != "log":
        return _climb(link, 0.0, x, y, start)
    found = BinaryFit(start, -np.inf, False)
    for barrier in BARRIERS:
        found = _climb(link, barrier, x, y, found.coef)
    return found._replace(log_likelihood=log_likelihood(link, x @ found.coef, y))


def _climb(link: LinkName, barrier: float, x: Array, y: Array, coef: Array) -> BinaryFit:
    """Maximise the log-likelihood by Fisher scoring."""

    def look(coef: Array) -> tuple[float, Any]:
        gradient, curvature = np.empty(coef.size), np.empty((coef.size, coef.size))
        value = _equations_of_all(LINKS[link], barrier, x, y, coef, gradient, curvature)
        return value, lambda: (gradient, solved(curvature, gradient))

    found = climb(look, coef)
    return BinaryFit(found.at, found.value, found.converged and found.value < -SEPARATED)


def log_likelihood(link: LinkName, predictor: Array, outcome: NDArray[Any]) -> float:
    """Return the log-likelihood of a binary outcome; −inf where the link leaves [0, 1]."""
    choice("link", link, LINK_NAMES)
    eta = np.ascontiguousarray(predictor, dtype=np.float64)
    y = np.ascontiguousarray(outcome, dtype=np.float64)
    return float(_likelihood_of_all(LINKS[link], eta, y))


def least_squares(features: Array, outcome: Array) -> Array:
    """Return the coefficients of ordinary least squares, by the normal equations of few columns."""
    return np.asarray(np.linalg.lstsq(features.T @ features, features.T @ outcome, rcond=None)[0])


def transformed(covariates: Array, transform: Transform) -> Array:
    """Return b(x): the standardised covariates, with ``"quadratic"`` their squares less 1 as well.

    Examples
    --------
    >>> transformed(np.array([[2.0, 1.0]]), "quadratic")
    array([[2., 1., 3., 0.]])
    """
    choice("transform", transform, TRANSFORMS)
    if transform == "linear":
        return covariates
    return np.hstack([covariates, covariates**2 - 1.0])


def design(records: LoanRecords, transform: Transform = "linear") -> Array:
    """Return the rows (a, 1, b(x)) of the records."""
    b = transformed(records.standardised, transform)
    return np.column_stack([records.price, np.ones(records.n_records), b])


class ProfitFit(NamedTuple):
    """Least squares of the profit on (a, 1, b(x)), and the standard deviation of what is left."""

    beta: Array
    sigma: float


def fit_profit(
    records: LoanRecords,
    rng: np.random.Generator,
    *,
    lam: float = 1.0,
    transform: Transform = "linear",
) -> ProfitFit:
    """Fit the profit X = (a, 1, b(x))β.

    Where the records say what accepted offers brought, X is that. Where they do not it is made up
    for all records as the paper does: X = a + Exp − λ, with an exponential variable of mean λ.
    """
    lam = real("lam", lam, 0.0, closed="neither")
    x = design(records, transform)
    if records.profit is None:
        noise = lam * (rng.standard_exponential(records.n_records) - 1.0)
        return ProfitFit(least_squares(x, records.price + noise), lam)
    taken = records.accepted
    if taken.sum() <= x.shape[1]:
        raise InvalidParameterError(
            f"`records` must have more than {x.shape[1]} accepted offers to fit their profit; "
            f"got {int(taken.sum())}"
        )
    y = records.profit[taken]
    beta = least_squares(x[taken], y)
    rest = y - x[taken] @ beta
    return ProfitFit(beta, float(np.sqrt(rest @ rest / (y.size - x.shape[1]))))


def default_cuts(records: LoanRecords) -> Array:
    """Return the paper's quantiles .25, .75, .915 and .9875 of the records' prices."""
    return np.asarray(np.quantile(records.price, CUT_LEVELS[1:-1]))


def split_prices(records: LoanRecords, cuts: Sequence[float] | None = None) -> list[Array]:
    """Return the sorted prices of each class; a price at a cut belongs to the class below it."""
    edges = default_cuts(records) if cuts is None else vector("cuts", cuts)
    if (np.diff(edges) <= 0).any():
        raise InvalidParameterError(f"`cuts` must increase strictly; got {edges.tolist()}")
    ordered = np.sort(records.price)
    parts = np.split(ordered, np.searchsorted(ordered, edges, side="right"))
    sizes = [part.size for part in parts]
    if min(sizes) < FEWEST_IN_CLASS:
        raise InvalidParameterError(
            f"`cuts` must leave at least {FEWEST_IN_CLASS} records in each class; "
            f"{edges.round(4).tolist()} leave {sizes}"
        )
    return parts


def class_quantiles(prices: NDArray[np.float64]) -> Array:
    """Return the quantiles that describe the prices of one class."""
    return np.asarray(np.quantile(prices, np.linspace(0.0, 1.0, KNOTS)))
