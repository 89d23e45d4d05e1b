"""Models of acceptance for table S1: bases, data splitting with mirror statistics, held-out fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from zib.cases.loan.fit import fit_binary, least_squares, log_likelihood, probabilities
from zib.cases.loan.records import LoanRecords
from zib.core.rng import Role, stream
from zib.env.contextual_draws import LinkName

Floats = NDArray[np.float64]
Kernel = Literal["Epanechnikov", "triangular", "Gaussian"]
KERNELS: dict[Kernel, Callable[[Floats], Floats]] = {
    # distances in units of the bandwidth; the two with an end reach twice as far
    "Epanechnikov": lambda u: np.maximum(1.0 - (u / 2.0) ** 2, 0.0),
    "triangular": lambda u: np.maximum(1.0 - u / 2.0, 0.0),
    "Gaussian": lambda u: np.exp(-(u**2) / 2.0),
}
CENTRES = 10
FEW_VALUES = 10  # a covariate with fewer different values has no spline
INNER_KNOTS = (0.25, 0.5, 0.75)
NO_LINK = "identity"  # how a least squares fit is called
CLIP = 1e-3  # a linear probability is kept this far inside (0, 1) when its likelihood is taken


def polynomial(x: Floats, degree: int) -> Floats:
    """Return the powers 1 to `degree` of each column; v different values have v − 1 powers."""
    columns = []
    for column in x.T:
        most = min(degree, np.unique(column).size - 1)
        columns += [column**power for power in range(1, most + 1)]
    return np.stack(columns, axis=1)


def spline(x: Floats, degree: int) -> Floats:
    """Return B-splines of each column with knots at its quartiles, less one of them per column.

    Columns with few different values stay as they are.
    """
    from scipy.interpolate import BSpline

    parts = []
    for column in x.T:
        if np.unique(column).size < FEW_VALUES:
            parts.append(column[:, None])
            continue
        inner = np.unique(np.quantile(column, INNER_KNOTS))
        low, high = column.min(), column.max()
        inner = inner[(inner > low) & (inner < high)]
        knots = np.concatenate([[low] * (degree + 1), inner, [high] * (degree + 1)])
        parts.append(BSpline.design_matrix(column, knots, degree).toarray()[:, 1:])
    return np.hstack(parts)


def kernel(x: Floats, name: Kernel, rng: np.random.Generator) -> Floats:
    """Return the kernel of the distance to a few customers drawn at random."""
    centres = x[rng.choice(len(x), CENTRES, replace=False)]
    distance = np.sqrt(((x[:, None, :] - centres) ** 2).sum(axis=2))
    return KERNELS[name](distance / np.median(distance))


def with_price(price: Floats, b: Floats) -> Floats:
    """Return (a, 1, b) with every column but the constant at standard deviation 1."""
    x = np.column_stack([price, b])
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    return np.column_stack([x[:, :1], np.ones(len(x)), x[:, 1:]])


def mirror(first: Floats, second: Floats) -> Floats:
    """Return the mirror statistics sign(b₁b₂)(|b₁| + |b₂|) of two independent estimates.

    Examples
    --------
    >>> mirror(np.array([1.0, -2.0, 0.5]), np.array([2.0, 1.0, 0.0]))
    array([ 3., -3.,  0.])
    """
    return np.asarray(np.sign(first * second) * (np.abs(first) + np.abs(second)))


def estimated_fdp(statistics: Floats, threshold: float = 0.0) -> float:
    """Return #{M < −t}/max(#{M > t}, 1), the estimated share of false discoveries.

    Examples
    --------
    >>> estimated_fdp(np.array([3.0, 2.0, -1.0])), estimated_fdp(np.array([3.0, 2.0, -1.0]), 1.5)
    (0.5, 0.0)
    """
    above = int((statistics > threshold).sum())
    return float((statistics < -threshold).sum()) / max(above, 1)


def area_under_curve(score: Floats, outcome: NDArray[np.bool_]) -> float:
    """Return the chance that an accepted offer scores higher than one that was not."""
    from scipy.stats import rankdata

    ranks = rankdata(score)
    ones = int(outcome.sum())
    return float((ranks[outcome].sum() - ones * (ones + 1) / 2) / (ones * (outcome.size - ones)))


class Cell(NamedTuple):
    """One model: a number per split each; NaN where it could not be fitted.

    Attributes
    ----------
    basis, degree, link
        Which model.
    fdp
        Estimated share of false discoveries among all columns whose signs agree.
    likelihood
        Log-likelihood per offer on the half that was not used.
    area
        Area under the curve there.
    """

    basis: str
    degree: int
    link: str
    fdp: Floats
    likelihood: Floats
    area: Floats

    @property
    def fitted(self) -> bool:
        """Whether it could be fitted in every split."""
        return not bool(np.isnan(self.fdp).any())


def halves(n: int, seed: int, splits: int) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Return random halves of n rows."""
    out = []
    for i in range(splits):
        order = stream(seed, Role.BOOTSTRAP, 1, i).permutation(n)
        out.append((np.sort(order[: n // 2]), np.sort(order[n // 2 :])))
    return out


def evaluate(
    basis: str,
    degree: int,
    link: LinkName | None,
    features: Floats,
    accepted: NDArray[np.bool_],
    splits: Sequence[tuple[NDArray[np.int64], NDArray[np.int64]]],
) -> Cell:
    """Fit one model to both halves of every split."""
    rows = np.full((3, len(splits)), np.nan)
    for i, pair in enumerate(splits):
        coefs = []
        for half in pair:
            x, y = features[half], accepted[half]
            if link is None:
                coefs.append(least_squares(x, y.astype(np.float64)))
                continue
            found = fit_binary(x, y, link)
            if found.converged:
                coefs.append(found.coef)
        if len(coefs) < 2:
            continue
        other = pair[1]
        eta, y = features[other] @ coefs[0], accepted[other]
        statistics = mirror(*(np.delete(coef, 1) for coef in coefs))
        rows[:, i] = (
            estimated_fdp(statistics),
            _held_out(link, eta, y) / y.size,
            area_under_curve(eta, y),
        )
    return Cell(basis, degree, link or NO_LINK, *rows)


def _held_out(link: LinkName | None, eta: Floats, y: NDArray[np.bool_]) -> float:
    if link is None:
        p = np.clip(eta, CLIP, 1.0 - CLIP)
    elif link == "log":  # may exceed one for offers it has not seen
        p = np.minimum(probabilities(link, eta), 1.0 - CLIP)
    else:
        return log_likelihood(link, eta, y)
    return float(np.log(np.where(y, p, 1.0 - p)).sum())


def cells(
    records: LoanRecords,
    *,
    seed: int,
    splits: int,
    links: Sequence[LinkName],
    degrees: Sequence[int],
    spline_degrees: Sequence[int],
    tell: Callable[[float], None] = lambda done: None,
) -> list[Cell]:
    """Evaluate every model of the table."""
    x, price, accepted = records.standardised, records.price, records.accepted
    pairs = halves(records.n_records, seed, splits)
    bases: list[tuple[str, int, Floats]] = [("linear", 1, x)]
    bases += [("polynomial", d, polynomial(x, d)) for d in degrees if d > 1]
    bases += [("spline", d, spline(x, d)) for d in spline_degrees]
    out: list[Cell] = []
    total = len(bases) + 1
    for i, (basis, degree, b) in enumerate(bases):
        features = with_price(price, b)
        out += [evaluate(basis, degree, link, features, accepted, pairs) for link in links]
        tell((i + 1) / total)
    if 1 in degrees:  # a polynomial of degree 1 is the linear model
        out += [cell._replace(basis="polynomial") for cell in out if cell.basis == "linear"]
    for name in KERNELS:
        # the same customers for each kernel
        b = kernel(x, name, stream(seed, Role.BOOTSTRAP, 2))
        features = with_price(price, b)
        out.append(evaluate(f"kernel ({name})", 0, None, features, accepted, pairs))
    return out


def best_degrees(found: Sequence[Cell]) -> list[Cell]:
    """Keep, of each basis and link, the degree with the best likelihood on held-out offers."""
    kept: dict[tuple[str, str], Cell] = {}
    for cell in found:
        key = (cell.basis, cell.link)
        if key not in kept or _quality(cell) > _quality(kept[key]):
            kept[key] = cell
    return list(kept.values())


def _quality(cell: Cell) -> float:
    return float(cell.likelihood.mean()) if cell.fitted else -np.inf
