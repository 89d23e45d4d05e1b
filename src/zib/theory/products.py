"""Bounds for mu·p: the product of two bounds, and the joint bound that needs no union."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from zib.core.validate import InvalidParameterError, choice
from zib.theory import joint_gaussian, joint_positive, scalars
from zib.theory._vectorise import (
    Array,
    apply,
    counts,
    number,
    numbers,
    positive,
    same_shape,
)

FAMILIES = ("gaussian", "exponential", "gamma", "lognormal")


def product_upper(mean_upper: ArrayLike, prob_lower: ArrayLike, prob_upper: ArrayLike) -> Any:
    """Return an upper bound for mu p from bounds on the two factors.

    Parameters
    ----------
    mean_upper
        Upper bound for mu; any sign, may be infinite.
    prob_lower, prob_upper
        Bounds for p, in [0, 1].

    Returns
    -------
    float or ndarray
        mean_upper * prob_upper where mean_upper >= 0, otherwise mean_upper * prob_lower.

    Notes
    -----
    If mu <= mean_upper and prob_lower <= p <= prob_upper then mu p <= the result. Only two of the
    three bounds can make it fail: for mu >= 0 the first and the last, for mu < 0 the first and the
    lower one on p; two bounds that fail with probability delta/2 each give delta. The printed
    product takes prob_upper always, which is wrong when mean_upper < 0: a larger p makes the
    product *smaller* then.

    Examples
    --------
    >>> product_upper(2.0, 0.1, 0.3)
    0.6
    >>> product_upper(-2.0, 0.1, 0.3)
    -0.2
    """
    low = numbers("prob_lower", prob_lower, 0.0, 1.0)
    high = numbers("prob_upper", prob_upper, 0.0, 1.0)
    if np.any(low > high):
        raise InvalidParameterError("`prob_lower` must not exceed `prob_upper`")
    mean = np.asarray(mean_upper, dtype=np.float64)
    if np.isnan(mean).any():
        raise InvalidParameterError("`mean_upper` must not be NaN")
    return apply(scalars.signed_product, mean, low, high)


def product_lower(mean_lower: ArrayLike, prob_lower: ArrayLike, prob_upper: ArrayLike) -> Any:
    """Return a lower bound for mu p from bounds on the two factors.

    Parameters
    ----------
    mean_lower
        Lower bound for mu; any sign, may be infinite.
    prob_lower, prob_upper
        Bounds for p, in [0, 1].

    Returns
    -------
    float or ndarray
        mean_lower * prob_lower where mean_lower >= 0, otherwise mean_lower * prob_upper.

    Examples
    --------
    >>> product_lower(2.0, 0.1, 0.3), product_lower(-2.0, 0.1, 0.3)
    (0.2, -0.6)
    """
    mean = -np.asarray(mean_lower, dtype=np.float64)
    return number(-np.asarray(product_upper(mean, prob_lower, prob_upper)))


def unseen_upper(n: ArrayLike, level: ArrayLike, magnitude: ArrayLike) -> Any:
    """Return an upper bound for mu p when all of n rewards were zero.

    Parameters
    ----------
    n
        Number of pulls, >= 0.
    level
        >= 0; the probability part fails with probability at most exp(-level).
    magnitude
        An optimistic value for mu, for example the largest upper bound on mu among arms that have
        paid. Negative values count as 0, since p = 0 is compatible with the data.

    Returns
    -------
    float or ndarray
        max(magnitude, 0) (1 - exp(-level/n)).

    Notes
    -----
    Zeros bound p and say nothing about mu: without `magnitude` the bound is infinite, and insisting
    on a first success costs about 1/p pulls per arm.

    Examples
    --------
    >>> round(unseen_upper(n=100, level=3.0, magnitude=2.0), 4)
    0.0591
    """
    return apply(
        scalars.unseen_upper_scalar,
        counts("n", n),
        counts("level", level),
        numbers("magnitude", magnitude),
    )


def _joint_statistics(
    n: ArrayLike, count: ArrayLike, total: ArrayLike, level: ArrayLike | None
) -> tuple[Array, Array, Array, Array]:
    if level is None:
        raise InvalidParameterError("`level` must be given")
    pulls = counts("n", n)
    non_zero = counts("count", count)
    sums = numbers("total", total)
    budget = counts("level", level)
    same_shape(pulls, non_zero, sums)
    if np.any(non_zero > pulls):
        raise InvalidParameterError("`count` must not exceed `n`")
    with np.errstate(all="ignore"):
        means = np.where(non_zero > 0, sums / np.maximum(non_zero, 1e-300), 0.0)
    return pulls, non_zero, means, budget


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
    which = FAMILIES[choice("family", family, FAMILIES)]
    pulls, non_zero, means, budget = _joint_statistics(n, count, total, level)
    sign = 1.0 if upper else -1.0
    if sigma is not None and which != "gaussian":
        raise InvalidParameterError(f"`sigma` has no meaning for family {which!r}")
    if shape is not None and which != "gamma":
        raise InvalidParameterError(f"`shape` has no meaning for family {which!r}")
    if which in ("exponential", "gamma"):
        if spread is not None:
            raise InvalidParameterError(f"`spread` has no meaning for family {which!r}")
        if np.any((means <= 0.0) & (non_zero > 0)):
            raise InvalidParameterError(f"`total` must be positive for family {which!r}")
        if which == "gamma" and shape is None:
            raise InvalidParameterError("`shape` must be given for family 'gamma'")
        form = positive("shape", 1.0 if shape is None else shape)
        gamma = (
            joint_positive.joint_kl_upper_gamma if upper else joint_positive.joint_kl_lower_gamma
        )
        return apply(gamma, pulls, non_zero, means, form, budget)
    if sigma is not None:
        if spread is not None:
            raise InvalidParameterError("give either `sigma` or `spread`, not both")
        known = counts("sigma", sigma)
        result = apply(
            joint_gaussian.joint_kl_upper_gaussian, pulls, non_zero, sign * means, known, budget
        )
        return number(sign * np.asarray(result))
    if spread is None:
        wanted = "`sigma` or `spread`" if which == "gaussian" else "`spread`"
        raise InvalidParameterError(f"{wanted} must be given for family {which!r}")
    sd = np.sqrt(counts("spread", spread) / np.maximum(non_zero, 1e-300))
    sd = np.where(non_zero > 0, sd, 0.0)
    if which == "lognormal":
        lognormal = (
            joint_positive.joint_kl_upper_lognormal
            if upper
            else joint_positive.joint_kl_lower_lognormal
        )
        return apply(lognormal, pulls, non_zero, means, sd, budget)
    result = apply(
        joint_gaussian.joint_kl_upper_gaussian_unknown, pulls, non_zero, sign * means, sd, budget
    )
    return number(sign * np.asarray(result))


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

    target = numbers("delta", delta, 0.0, 1.0, "neither")

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
