"""The joint bound for mu·p: what the likelihood ratio of both parts together does not exclude."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from zib.core.validate import InvalidParameterError
from zib.theory._vectorise import (
    NONNEGATIVE,
    POSITIVE,
    REAL,
    UNIT_OPEN,
    Array,
    number,
    over,
    same_shape,
)
from zib.theory.joint_curve import GAMMA, GAUSSIAN, GAUSSIAN_UNKNOWN, LOGNORMAL, family_of
from zib.theory.joint_gaussian import joint_kl_upper_gaussian, joint_kl_upper_gaussian_unknown
from zib.theory.joint_positive import (
    joint_kl_lower_gamma,
    joint_kl_lower_lognormal,
    joint_kl_upper_gamma,
    joint_kl_upper_lognormal,
)

# A lower bound for a Gaussian is an upper bound for the rewards with the other sign.
GAUSSIANS = {
    GAUSSIAN: joint_kl_upper_gaussian,
    GAUSSIAN_UNKNOWN: joint_kl_upper_gaussian_unknown,
}
UPPER = {GAMMA: joint_kl_upper_gamma, LOGNORMAL: joint_kl_upper_lognormal}
LOWER = {GAMMA: joint_kl_lower_gamma, LOGNORMAL: joint_kl_lower_lognormal}


def _joint(
    upper: bool,
    n: ArrayLike,
    count: ArrayLike,
    total: ArrayLike,
    sigma: ArrayLike | None,
    level: ArrayLike | None,
    family: str,
    spread: ArrayLike | None,
    shape: ArrayLike | None,
) -> Any:
    code, name, value = family_of(family, sigma, spread, shape)
    if level is None:
        raise InvalidParameterError("`level` must be given")
    pulls = NONNEGATIVE("n", n)
    non_zero = NONNEGATIVE("count", count)
    sums = REAL("total", total)
    budget = NONNEGATIVE("level", level)
    same_shape(pulls, non_zero, sums)
    if np.any(non_zero > pulls):
        raise InvalidParameterError("`count` must not exceed `n`")
    means = _per_reward(sums, non_zero)
    if code == GAMMA and np.any((means <= 0.0) & (non_zero > 0)):
        raise InvalidParameterError(f"`total` must be positive for family {family!r}")
    parameter = (POSITIVE if code == GAMMA else NONNEGATIVE)(name, value)
    if name == "spread":
        parameter = np.sqrt(_per_reward(parameter, non_zero))
    if code in GAUSSIANS:
        sign = 1.0 if upper else -1.0
        bound = over(GAUSSIANS[code], pulls, non_zero, sign * means, parameter, budget)
        return number(sign * np.asarray(bound))
    return over((UPPER if upper else LOWER)[code], pulls, non_zero, means, parameter, budget)


def _per_reward(sums: Array, non_zero: Array) -> Array:
    """Return the sums divided by the number of non-zero rewards; 0 where there are none."""
    with np.errstate(all="ignore"):
        return np.where(non_zero > 0, sums / np.maximum(non_zero, 1e-300), 0.0)


def joint_kl_upper(
    n: ArrayLike,
    count: ArrayLike,
    total: ArrayLike,
    sigma: ArrayLike | None = None,
    level: ArrayLike | None = None,
    *,
    family: str = "gaussian",
    spread: ArrayLike | None = None,
    shape: ArrayLike | None = None,
) -> Any:
    """Return the largest mu' p' that the likelihood ratio of both parts together does not exclude.

    Parameters
    ----------
    n
        Number of pulls.
    count
        B, the number of non-zero rewards, <= n. The bound is infinite at B = 0; see `unseen_upper`.
    total
        Sum of the non-zero rewards (for ``"lognormal"``: of their logarithms).
    sigma
        Known standard deviation (or sub-Gaussian size) of X, >= 0; family ``"gaussian"`` only.
    level
        Budget of log-likelihood, >= 0. `joint_kl_level` turns a delta into a level.
    family
        ``"gaussian"`` (with `sigma` known, or with `spread` and sigma unknown), ``"exponential"``,
        ``"gamma"`` (known `shape`) or ``"lognormal"`` (both parameters unknown, with `spread`).
    spread
        Sum of squared deviations of the non-zero rewards (or logarithms) from their mean.
    shape
        Shape of the gamma law; 1 is exponential.

    Returns
    -------
    float or ndarray
        sup{mu' p' : n kl(p_hat, p') + B div(mu_hat, mu') <= level}, relative error below 1e-10.

    Notes
    -----
    The divergences are (mu_hat - mu')²/(2 sigma²); (1/2) log(1 + (mu_hat - mu')²/s²) with
    s² = spread/B when sigma is unknown; shape * (r - 1 - log r) with r = mu_hat/mu'; and for the
    log-normal log(s'/s) + (s² + (m - m')²)/(2s'²) - 1/2 with mean exp(m' + s'²/2).

    The supremum runs over both parameters, so for a negative mean it may be reached at a *smaller*
    p' than observed. To first order the width is √(2 level Var(R)/n): no union bound over the two
    parts is paid, and Var(R) is below the variance proxy of R, by far when p is small.

    With sigma unknown or a log-normal law, spread = 0 (a single non-zero reward, say) leaves the
    scale undetermined and the bound is infinite. The likelihood set of these two is also not
    convex; the global supremum over it is returned. A bound of the log-normal beyond the largest
    float is ``inf``.

    Examples
    --------
    >>> round(joint_kl_upper(n=1000, count=5, total=20.0, sigma=1.0, level=3.0), 4)
    0.0525
    >>> round(joint_kl_upper(n=1000, count=5, total=-20.0, sigma=1.0, level=3.0), 4)
    -0.0051
    >>> round(joint_kl_upper(1000, 5, 20.0, level=3.0, family="exponential"), 4)
    0.1017
    >>> joint_kl_upper(n=1000, count=0, total=0.0, sigma=1.0, level=3.0)
    inf
    """
    return _joint(True, n, count, total, sigma, level, family, spread, shape)


def joint_kl_lower(
    n: ArrayLike,
    count: ArrayLike,
    total: ArrayLike,
    sigma: ArrayLike | None = None,
    level: ArrayLike | None = None,
    *,
    family: str = "gaussian",
    spread: ArrayLike | None = None,
    shape: ArrayLike | None = None,
) -> Any:
    """Return the smallest mu' p' that the joint likelihood ratio does not exclude.

    Parameters
    ----------
    n, count, total, sigma, level, family, spread, shape
        As for `joint_kl_upper`.

    Returns
    -------
    float or ndarray
        inf{mu' p' : n kl(p_hat, p') + B div(mu_hat, mu') <= level}; without a non-zero reward
        (or without a scale) -inf for the Gaussian and 0 for the families with positive values.

    Examples
    --------
    >>> round(joint_kl_lower(n=1000, count=5, total=20.0, sigma=1.0, level=3.0), 4)
    0.0051
    """
    return _joint(False, n, count, total, sigma, level, family, spread, shape)


def joint_kl_level(delta: ArrayLike) -> Any:
    """Return a level at which the joint bounds with known sigma fail with probability <= delta.

    Parameters
    ----------
    delta
        In (0, 1).

    Returns
    -------
    float or ndarray
        The solution L of erfc(√L) + 4 √(L/π) exp(-L) = delta (at least 1).

    Notes
    -----
    For Gaussian X and fixed n, A = n kl(p_hat, p) has P(A > x) <= 2 exp(-x) by Chernoff's bound,
    and given B > 0 the other term is half a squared standard normal variable, independent of B.
    Integrating one tail over the other gives the left side above. Upper and lower bound hold
    *together* with probability 1 - delta. This is the price of a proof for every n: in the limit of
    many non-zero rewards a single bound needs only z²/2 with P(N(0,1) > z) = delta, and in
    simulations the level log(1/delta) makes a single bound fail less than 0.3 delta of the time for
    n from 20 to 20 000, p from 0.005 to 1 and means of either sign.

    Examples
    --------
    >>> round(joint_kl_level(0.05), 4)
    4.6236
    """
    from scipy.special import erfc

    target = UNIT_OPEN("delta", delta)

    def failure(level: Array) -> Array:
        return np.asarray(erfc(np.sqrt(level)) + 4.0 * np.sqrt(level / np.pi) * np.exp(-level))

    low = np.ones_like(target)
    high = 10.0 - 2.0 * np.log(target)
    for _ in range(80):
        middle = 0.5 * (low + high)
        above = failure(middle) > target
        low = np.where(above, middle, low)
        high = np.where(above, high, middle)
    return number(high)
