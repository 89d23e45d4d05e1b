"""How likely draws are to be large: the two lemmas behind the Thompson sampling theorem.

Both fail as printed; the corrected forms are the defaults.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from zib.core.validate import InvalidParameterError, choice
from zib.theory._vectorise import NONNEGATIVE, POSITIVE, REAL, Array, number, same_shape

_VERSIONS = ("corrected", "printed")


def _beta_tail(alpha: Array, beta: Array, below: Array, is_printed: bool) -> Array:
    """Return the bound of P(Beta(alpha, beta) > 1 - below)."""
    from scipy.special import gammaln, xlogy

    log_first = gammaln(alpha + beta) - np.log(beta) - gammaln(beta) - gammaln(alpha)
    first = np.exp(log_first + xlogy(beta, below) + xlogy(alpha, 1.0 - below))
    slip = (1.0 - beta) / (beta + 1.0) if is_printed else 0.0
    return np.asarray(first * (1.0 + (alpha + beta) / (beta + 1.0) * below + slip))


def beta_tail(
    alpha: ArrayLike, beta: ArrayLike, x: ArrayLike, *, version: str = "corrected"
) -> Any:
    """Return a lower bound for P(Beta(α, β) > α/(α + β) + x).

    Parameters
    ----------
    alpha, beta
        Parameters of the Beta law, > 0.
    x
        In [0, β/(α + β)].
    version
        ``"corrected"`` (default) or ``"printed"`` (Lemma E.3).

    Returns
    -------
    float or ndarray
        With m = α/(α + β), Γ(α+β)/(β Γ(β) Γ(α)) (1 - m - x)^β (m + x)^α [(2β+1) - (α+β)x]/(β+1).

    Notes
    -----
    The first two terms of the power series of the incomplete beta function, whose terms are all
    positive; hence a lower bound. The text prints β + 2 in place of 2β + 1, which comes from a slip
    in the last line of its proof and is larger for β < 1: at α = 1, β = 0.1, x = 0.045 the
    probability is 0.735 and the printed bound 1.31.

    Examples
    --------
    >>> round(beta_tail(1.0, 0.1, 0.045), 4)
    0.7333
    >>> round(beta_tail(1.0, 0.1, 0.045, version="printed"), 4)
    1.3069
    """
    a, b, shift = POSITIVE("alpha", alpha), POSITIVE("beta", beta), NONNEGATIVE("x", x)
    is_printed = choice("version", version, _VERSIONS) == 1
    same_shape(a, b, shift)
    below = b / (a + b) - shift
    if np.any(below < 0.0):
        raise InvalidParameterError(
            f"`x` must not exceed beta/(alpha + beta); got {float(np.max(shift))!r}"
        )
    return number(_beta_tail(a, b, below, is_printed))


def gaussian_beta_tail(
    mean: ArrayLike,
    sigma: ArrayLike,
    alpha: ArrayLike,
    beta: ArrayLike,
    x: ArrayLike,
    *,
    version: str = "corrected",
) -> Any:
    """Return a lower bound for P(N·B ≥ mean·α/(α + β) + x), N Gaussian and B ~ Beta(α, β).

    Parameters
    ----------
    mean, sigma
        Parameters of the Gaussian factor; mean >= 0, sigma > 0.
    alpha, beta
        Parameters of the Beta factor, > 0.
    x
        Any number.
    version
        ``"corrected"`` (default) or ``"printed"`` (Lemma E.4).

    Returns
    -------
    float or ndarray
        c/2 where y = [2(α+β)x - mean·β]/[(2α+β)σ] <= 0, and c φ(y) y/(y² + 1) above, with φ the
        standard normal density and c = `beta_tail` (α, β, β/(2(α+β))).

    Notes
    -----
    The event contains {N ≥ mean + yσ} and {B ≥ α/(α+β) + β/(2(α+β))}. The text forgets the second
    of them where y > 0, so that c is missing, and inherits the slip of `beta_tail` in c. With
    mean = 1, σ = 0.5, α = 1, β = 20 and y = 1 the probability is 5e-6 and the printed bound 0.12.

    c is exponentially small in α + β, because half the way from the mean of the Beta law to 1 is
    many of its standard deviations. The proof of the theorem puts c back and drops it in the last
    line of the same display. B ≥ its mean alone, with probability at least 1/e for α, β >= 1, would
    not have this problem.

    Examples
    --------
    >>> round(gaussian_beta_tail(1.0, 1.0, 1.0, 1.0, 1.0), 4)
    0.0284
    >>> round(gaussian_beta_tail(1.0, 1.0, 1.0, 1.0, 1.0, version="printed"), 4)
    0.121
    """
    mu, s, shift = NONNEGATIVE("mean", mean), POSITIVE("sigma", sigma), REAL("x", x)
    a, b = POSITIVE("alpha", alpha), POSITIVE("beta", beta)
    is_printed = choice("version", version, _VERSIONS) == 1
    same_shape(mu, s, a, b, shift)
    c = _beta_tail(a, b, 0.5 * b / (a + b), is_printed)
    y = (2.0 * (a + b) * shift - mu * b) / ((2.0 * a + b) * s)
    tail = np.exp(-0.5 * y**2) / np.sqrt(2.0 * np.pi) * y / (y**2 + 1.0)
    return number(np.where(y <= 0.0, 0.5 * c, tail if is_printed else c * tail))
