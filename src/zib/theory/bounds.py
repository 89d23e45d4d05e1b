"""Confidence bounds for the two parts of a zero-inflated reward and for their product.

A reward is R = XY with Y ~ Bernoulli(p) and E X = mu; n pulls showed B = count non-zero rewards.
`delta` is always the probability that a bound may fail; *two-sided* radii fail on each side with
probability at most delta/2 when the law is symmetric about the bound, and at most delta together.
All functions broadcast over their arguments, return a float for scalar input and an array
otherwise, and raise `InvalidParameterError` for arguments outside their range.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from zib._validate import InvalidParameterError, choice, real, vector
from zib.theory import scalars
from zib.theory._vectorise import Array, apply, counts, log_two_over, number, numbers, positive

FAMILIES = ("gaussian", "exponential", "gamma", "lognormal")


# --------------------------------------------------------------------------------------------
# the non-zero part


def subweibull_constants(theta: float, size: float) -> tuple[float, float]:
    """Return the constants (D, E) of the sub-Weibull inequality.

    Parameters
    ----------
    theta
        Tail parameter, > 0; 2 is sub-Gaussian, 1 sub-exponential, smaller is heavier.
    size
        C > 0 with E exp(|X - mu|^theta / C^theta) <= 2; see `subweibull_size`.

    Returns
    -------
    tuple of float
        D and E.

    Notes
    -----
    Lemma "Sharper sub-Weibull concentrations":

    - theta < 1: D = max(√2, 2^(1/θ)) √8 e³ (2π)^(1/4) e^(1/24) (e^(2/e)/θ)^(1/θ),
      E = 2^(2/θ - 1/2);
    - 1 <= theta < 2: D = √(3/(2e²)) max(1/C, C^(θ-1)), E = 1/√6;
    - theta >= 2: D = √(17/(6e²)) max(1/C, C^(θ/2-1)), E = 0.

    For theta >= 1 the constant depends on the size, because the proof compares |X - mu|^k with
    1 + |X - mu|^(k theta): the inequality is not scale free, and a size below 1 is treated as 1.
    Measure rewards in a unit in which C is at least 1, or the radius will be needlessly wide.
    D is infinite (overflow) below about theta = 0.006.

    Examples
    --------
    >>> d, e = subweibull_constants(theta=2.0, size=1.0)
    >>> round(d, 4), e
    (0.6192, 0.0)
    """
    theta = real("theta", theta, 0.0, closed="neither")
    size = real("size", size, 0.0, closed="neither")
    return scalars.subweibull_d(theta, size), scalars.subweibull_e(theta)


def subweibull_radius(n: ArrayLike, delta: ArrayLike, theta: ArrayLike, size: ArrayLike) -> Any:
    """Return the two-sided radius of the mean of n sub-Weibull observations.

    Parameters
    ----------
    n
        Number of observations of X, >= 0 (infinite radius at 0).
    delta
        Probability of failure, in (0, 1).
    theta, size
        Tail parameter and size of X - mu, both > 0.

    Returns
    -------
    float or ndarray
        2e D C (√(s/n) + E s^max(1/θ, 1)/n) with s = log(2/delta).

    Notes
    -----
    P(|mean - mu| > radius) <= delta for independent X_i with E exp(|X_i - mu|^θ/C^θ) <= 2. The
    constants are generous: for a Gaussian the radius is several times the exact one.

    Examples
    --------
    >>> round(subweibull_radius(n=100, delta=0.05, theta=2.0, size=1.0), 4)
    0.6466
    """
    return apply(
        scalars.subweibull_mean_radius,
        counts("n", n),
        log_two_over(delta),
        positive("theta", theta),
        positive("size", size),
    )


def zi_subweibull_radius(
    n: ArrayLike, prob: ArrayLike, delta: ArrayLike, theta: ArrayLike, size: ArrayLike
) -> Any:
    """Return the radius of the observed mean of X after n pulls of a zero-inflated arm.

    Parameters
    ----------
    n
        Number of pulls, zeros included, >= 0.
    prob
        p, the probability of a non-zero reward, in [0, 1] (infinite radius at 0).
    delta
        Probability of failure, in (0, 1).
    theta, size
        Tail parameter and size of X - mu, both > 0.

    Returns
    -------
    float or ndarray
        `subweibull_radius` with n p/2 observations and s = log(4/delta).

    Notes
    -----
    Lemma "light tail product": P(|mean of the non-zero rewards - mu| >= radius) <= delta **for
    n >= zi_subweibull_min_n(prob, delta)** only. Below that number the formula is still returned,
    as the printed algorithm uses it, but there is no guarantee: with few pulls the number of
    non-zero rewards may be far below n p/2. p is the true probability; an algorithm that plugs in
    an estimate has no guarantee from this lemma alone. With the observed number of non-zero rewards
    at hand, `given_count_radius` is valid for every n and several times smaller.

    Examples
    --------
    >>> round(zi_subweibull_radius(n=1000, prob=0.2, delta=0.05, theta=2.0, size=1.0), 4)
    0.7047
    """
    pulls = np.asarray(counts("n", n) * numbers("prob", prob, 0.0, 1.0))
    return apply(
        scalars.subweibull_mean_radius,
        0.5 * pulls,
        log_two_over(delta, 4.0),
        positive("theta", theta),
        positive("size", size),
    )


def zi_subweibull_min_n(prob: ArrayLike, delta: ArrayLike, method: str = "printed") -> Any:
    """Return the number of pulls from which `zi_subweibull_radius` and `trimmed_radius` hold.

    Parameters
    ----------
    prob
        p in (0, 1].
    delta
        In (0, 1).
    method
        ``"printed"``: 4 log(2/delta)/p². ``"kl"``: log(2/delta)/kl(p/2, p), which is what the proof
        needs (P(B < np/2) <= delta/2 by Chernoff's bound) and is of order 1/p instead of 1/p².

    Returns
    -------
    float or ndarray
        The threshold; not rounded.

    Examples
    --------
    >>> round(zi_subweibull_min_n(prob=0.01, delta=0.05))
    147555
    >>> round(zi_subweibull_min_n(prob=0.01, delta=0.05, method="kl"))
    2385
    """
    p = numbers("prob", prob, 0.0, 1.0, "right")
    level = log_two_over(delta)
    if choice("method", method, ("printed", "kl")) == 0:
        return number(4.0 * level / p**2)
    return number(level / np.asarray(apply(scalars.bernoulli_kl, 0.5 * p, p)))


def given_count_radius(count: ArrayLike, delta: ArrayLike, sigma: ArrayLike) -> Any:
    """Return the two-sided radius of the mean of `count` sub-Gaussian non-zero rewards.

    Parameters
    ----------
    count
        B, the number of non-zero rewards, >= 0 (infinite radius at 0).
    delta
        Probability of failure, in (0, 1).
    sigma
        Sub-Gaussian size, E exp(s(X - mu)) <= exp(s² sigma²/2) for all s; >= 0.

    Returns
    -------
    float or ndarray
        sigma √(2 log(2/delta)/B).

    Notes
    -----
    Holds given B, hence also when B is random, as long as B does not depend on the values of X: for
    a fixed number of pulls, not at a time chosen by looking at the rewards. For adaptive stopping
    take a union bound over B (as the UCB algorithms do through a small delta).

    Examples
    --------
    >>> round(given_count_radius(count=100, delta=0.05, sigma=1.0), 4)
    0.2716
    """
    return apply(
        scalars.given_count_radius,
        counts("count", count),
        log_two_over(delta),
        counts("sigma", sigma),
    )


def subexponential_radius(count: ArrayLike, delta: ArrayLike, lam: ArrayLike) -> Any:
    """Return the two-sided radius of the mean of `count` sub-exponential non-zero rewards.

    Parameters
    ----------
    count
        B, the number of non-zero rewards, >= 0 (infinite radius at 0).
    delta
        Probability of failure, in (0, 1).
    lam
        Size: E exp(s(X - mu)) <= exp(s² lam²/2) for |s| <= 1/lam; >= 0.

    Returns
    -------
    float or ndarray
        lam √(2L/B) + lam L/B with L = log(2/delta).

    Notes
    -----
    From the Chernoff bound with s = min(√(2L/B), 1)/lam: for L/B <= 1/2 the first term alone would
    do, beyond it the second takes over. For an exponential law see
    `exponential_subexponential_size`.

    Examples
    --------
    >>> round(subexponential_radius(count=100, delta=0.05, lam=1.0), 4)
    0.3085
    """
    return apply(
        scalars.subexponential_radius,
        counts("count", count),
        log_two_over(delta),
        counts("lam", lam),
    )


# --------------------------------------------------------------------------------------------
# the probability of a non-zero reward


def hoeffding_radius(n: ArrayLike, delta: ArrayLike) -> Any:
    """Return √(log(2/delta)/(2n)), the two-sided Hoeffding radius of a proportion.

    Parameters
    ----------
    n
        Number of pulls, >= 0 (infinite radius at 0).
    delta
        Probability of failure, in (0, 1).

    Returns
    -------
    float or ndarray
        The radius. It ignores p; for small p the bounds of `kl_upper` are far tighter.

    Examples
    --------
    >>> round(hoeffding_radius(n=100, delta=0.05), 4)
    0.1358
    """
    return apply(scalars.hoeffding_radius, counts("n", n), log_two_over(delta))


def kl_upper(p_hat: ArrayLike, n: ArrayLike, level: ArrayLike) -> Any:
    """Return the largest q with n kl(p_hat, q) <= level.

    Parameters
    ----------
    p_hat
        Observed proportion, in [0, 1].
    n
        Number of pulls, >= 0 (the bound is 1 at 0).
    level
        >= 0; P(p > bound) <= exp(-level) for each fixed n (Chernoff).

    Returns
    -------
    float or ndarray
        The bound, exact to about 1e-13 relative, also for p_hat = 1e-9 or n = 1e12.

    Notes
    -----
    kl(p, q) = p log(p/q) + (1-p) log((1-p)/(1-q)). At p_hat = 0 the bound is 1 - exp(-level/n).

    Examples
    --------
    >>> round(kl_upper(p_hat=0.01, n=1000, level=3.0), 5)
    0.01976
    >>> round(kl_upper(p_hat=0.0, n=1000, level=3.0), 7)
    0.0029955
    """
    return apply(
        scalars.kl_upper,
        numbers("p_hat", p_hat, 0.0, 1.0),
        counts("n", n),
        counts("level", level),
    )


def kl_lower(p_hat: ArrayLike, n: ArrayLike, level: ArrayLike) -> Any:
    """Return the smallest q with n kl(p_hat, q) <= level; see `kl_upper`.

    Parameters
    ----------
    p_hat
        Observed proportion, in [0, 1].
    n
        Number of pulls, >= 0 (the bound is 0 at 0).
    level
        >= 0; P(p < bound) <= exp(-level) for each fixed n.

    Returns
    -------
    float or ndarray
        The bound.

    Examples
    --------
    >>> round(kl_lower(p_hat=0.01, n=1000, level=3.0), 5)
    0.00412
    """
    return apply(
        scalars.kl_lower,
        numbers("p_hat", p_hat, 0.0, 1.0),
        counts("n", n),
        counts("level", level),
    )


def _proportion(successes: ArrayLike, n: ArrayLike) -> tuple[Array, Array]:
    wins = counts("successes", successes)
    pulls = counts("n", n)
    wins, pulls = np.broadcast_arrays(wins, pulls)
    if np.any(wins > pulls):
        raise InvalidParameterError("`successes` must not exceed `n`")
    with np.errstate(all="ignore"):
        return np.where(pulls > 0, wins / np.maximum(pulls, 1e-300), 0.0), pulls


def bernoulli_upper(
    successes: ArrayLike, n: ArrayLike, delta: ArrayLike, method: str = "hoeffding"
) -> Any:
    """Return an upper confidence bound for p, capped at 1.

    Parameters
    ----------
    successes
        Number of non-zero rewards, >= 0.
    n
        Number of pulls, >= successes (the bound is 1 at 0).
    delta
        In (0, 1); the level is log(2/delta), so that P(p > bound) <= delta/2.
    method
        ``"hoeffding"``: p_hat + √(log(2/delta)/(2n)). ``"kl"``: `kl_upper`, never wider, and of
        order 1/n instead of 1/√n when hardly any reward was non-zero.

    Returns
    -------
    float or ndarray
        The bound, in [0, 1].

    Examples
    --------
    >>> round(bernoulli_upper(successes=10, n=1000, delta=0.05), 4)
    0.0529
    >>> round(bernoulli_upper(successes=10, n=1000, delta=0.05, method="kl"), 4)
    0.0211
    """
    p_hat, pulls = _proportion(successes, n)
    level = log_two_over(delta)
    if choice("method", method, ("hoeffding", "kl")) == 1:
        return apply(scalars.kl_upper, p_hat, pulls, level)
    return number(np.minimum(p_hat + apply(scalars.hoeffding_radius, pulls, level), 1.0))


def bernoulli_lower(
    successes: ArrayLike, n: ArrayLike, delta: ArrayLike, method: str = "hoeffding"
) -> Any:
    """Return a lower confidence bound for p, capped at 0; see `bernoulli_upper`.

    Parameters
    ----------
    successes, n, delta, method
        As for `bernoulli_upper`; P(p < bound) <= delta/2.

    Returns
    -------
    float or ndarray
        The bound, in [0, 1]; 0 at n = 0.

    Examples
    --------
    >>> bernoulli_lower(successes=10, n=1000, delta=0.05)
    0.0
    >>> round(bernoulli_lower(successes=10, n=1000, delta=0.05, method="kl"), 4)
    0.0037
    """
    p_hat, pulls = _proportion(successes, n)
    level = log_two_over(delta)
    if choice("method", method, ("hoeffding", "kl")) == 1:
        return apply(scalars.kl_lower, p_hat, pulls, level)
    return number(np.maximum(p_hat - apply(scalars.hoeffding_radius, pulls, level), 0.0))


# --------------------------------------------------------------------------------------------
# products


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
    If mu <= mean_upper and prob_lower <= p <= prob_upper then mu p <= the result, so it fails at
    most as often as the three bounds together. The printed product takes prob_upper always, which
    is wrong when mean_upper < 0: a larger p makes the product *smaller* then.

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
    try:
        pulls, non_zero, sums = np.broadcast_arrays(pulls, non_zero, sums)
    except ValueError:
        raise InvalidParameterError("`n`, `count` and `total` must broadcast") from None
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
        gamma = scalars.joint_kl_upper_gamma if upper else scalars.joint_kl_lower_gamma
        return apply(gamma, pulls, non_zero, means, form, budget)
    if sigma is not None:
        if spread is not None:
            raise InvalidParameterError("give either `sigma` or `spread`, not both")
        known = counts("sigma", sigma)
        result = apply(
            scalars.joint_kl_upper_gaussian, pulls, non_zero, sign * means, known, budget
        )
        return number(sign * np.asarray(result))
    if spread is None:
        wanted = "`sigma` or `spread`" if which == "gaussian" else "`spread`"
        raise InvalidParameterError(f"{wanted} must be given for family {which!r}")
    sd = np.sqrt(counts("spread", spread) / np.maximum(non_zero, 1e-300))
    sd = np.where(non_zero > 0, sd, 0.0)
    if which == "lognormal":
        lognormal = scalars.joint_kl_upper_lognormal if upper else scalars.joint_kl_lower_lognormal
        return apply(lognormal, pulls, non_zero, means, sd, budget)
    result = apply(
        scalars.joint_kl_upper_gaussian_unknown, pulls, non_zero, sign * means, sd, budget
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
    *together* with probability 1 - delta. In the limit of many non-zero rewards a single bound
    needs only z²/2 with P(N(0,1) > z) = delta, about log(1/delta) less half its logarithm.

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


# --------------------------------------------------------------------------------------------
# heavy tails


def trimming_factor(prob: ArrayLike, epsilon: ArrayLike) -> Any:
    """Return g(p, eps), the constant of the trimmed-mean inequality.

    Parameters
    ----------
    prob
        p in [0, 1] (infinite at 0).
    epsilon
        In (0, 1]; X has a finite moment of order 1 + epsilon.

    Returns
    -------
    float or ndarray
        (1+ε) 2^(ε/(1+ε)) p^(-ε/(1+ε)) + 4/(3p) + 2/√p.

    Examples
    --------
    >>> round(trimming_factor(prob=1.0, epsilon=1.0), 4)
    6.1618
    """
    return apply(
        scalars.trimming_factor_scalar,
        numbers("prob", prob, 0.0, 1.0),
        numbers("epsilon", epsilon, 0.0, 1.0, "right"),
    )


def trimmed_mean(values: ArrayLike, delta: float, moment: float, epsilon: float) -> float:
    """Return the trimmed mean of the non-zero rewards of an arm.

    Parameters
    ----------
    values
        Non-zero rewards in the order in which they were observed; not empty.
    delta
        In (0, 1).
    moment
        M > 0 with E |X|^(1+epsilon) <= M (the *raw* moment, see Notes).
    epsilon
        In (0, 1].

    Returns
    -------
    float
        (1/B) Σ_j X_j 1{|X_j| <= (j M/log(2/delta))^(1/(1+ε))}: the divisor counts the trimmed
        values too.

    Notes
    -----
    The lemma is stated for the centred moment E |X - mu|^(1+ε) <= M, but its proof bounds
    E |X| 1{|X| > a} by M/a^ε and Var(X 1{|X| <= a}) by M a^(1-ε), which needs the raw moment. With
    the centred one the bound is wrong as soon as |mu| is large compared with M^(1/(1+ε)): every
    value is then trimmed and the estimate is 0.

    Examples
    --------
    >>> trimmed_mean([1.0, 2.0, 900.0, 1.0], delta=0.05, moment=20.0, epsilon=1.0)
    1.0
    """
    x = vector("values", values)
    level = math.log(2.0 / real("delta", delta, 0.0, 1.0, "neither"))
    moment = real("moment", moment, 0.0, closed="neither")
    epsilon = real("epsilon", epsilon, 0.0, 1.0, "right")
    order = np.arange(1.0, x.size + 1.0)
    threshold = np.asarray(apply(scalars.trim_threshold, order, level, moment, epsilon))
    return float(np.where(np.abs(x) <= threshold, x, 0.0).mean())


def trimmed_radius(
    n: ArrayLike, prob: ArrayLike, delta: ArrayLike, moment: ArrayLike, epsilon: ArrayLike
) -> Any:
    """Return the one-sided radius of the trimmed mean after n pulls.

    Parameters
    ----------
    n
        Number of pulls, > 0.
    prob
        p in (0, 1].
    delta
        Probability of failure, in (0, 1).
    moment
        M > 0 with E |X|^(1+epsilon) <= M (the raw moment; see `trimmed_mean`).
    epsilon
        In (0, 1].

    Returns
    -------
    float or ndarray
        g(p, ε) M^(1/(1+ε)) (log(2/delta)/n)^(ε/(1+ε)).

    Notes
    -----
    P(mu - trimmed mean >= radius) <= delta for n >= `zi_subweibull_min_n` (either method), and the
    same for the other side. Below that number of pulls the formula is returned without guarantee.

    Examples
    --------
    >>> round(trimmed_radius(n=10_000, prob=0.2, delta=0.05, moment=4.0, epsilon=1.0), 4)
    0.6708
    """
    factor = np.asarray(trimming_factor(numbers("prob", prob, 0.0, 1.0, "right"), epsilon))
    eps = np.asarray(epsilon, dtype=np.float64)
    ratio = log_two_over(delta) / positive("n", n)
    scale = positive("moment", moment) ** (1.0 / (1.0 + eps))
    return number(factor * scale * ratio ** (eps / (1.0 + eps)))
