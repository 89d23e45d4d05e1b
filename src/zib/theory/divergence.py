"""How different a two-part law must be to be as good as the best arm.

Every divergence here is inf{kl(p, p') + p div(mu, mu') : mu' p' >= target}, one function per family
of the non-zero part; `divergence_to` serves them all.
"""

from __future__ import annotations

import math
from typing import Any

from numpy.typing import ArrayLike

from zib.core.kernel import borrowing
from zib.theory._vectorise import POSITIVE, REAL, UNIT, over
from zib.theory.bernoulli import bernoulli_kl
from zib.theory.elementary import log1p_defect
from zib.theory.joint_curve import (
    GAMMA,
    GAUSSIAN,
    GAUSSIAN_UNKNOWN,
    LOGNORMAL,
    family_of,
    joint_curve,
)
from zib.theory.joint_positive import lognormal_log_value

FAR = 1e50  # a magnitude so many standard deviations from zero does not move


@borrowing
def _joint_divergence(p: float, a: float) -> float:
    """Return kl(p, p') = log(1+pa) - p log(1+a) without cancellation."""
    return p * log1p_defect(a) - log1p_defect(p * a)


@borrowing
def _fixed_magnitude(mean: float, prob: float, target: float) -> float:
    """Return the divergence when the magnitude cannot move and only p can."""
    if mean > 0.0 and target <= mean:
        return bernoulli_kl(prob, target / mean)
    if mean < 0.0 and target <= 0.0:
        return bernoulli_kl(prob, target / mean)
    return math.inf


@borrowing
def divergence_to_gaussian(mean: float, prob: float, target: float, sigma: float) -> float:
    """Return inf{kl(p, p') + p (mu-mu')²/(2 sigma²) : mu'p' >= target}.

    On the stationary curve mu'p' = target is a cubic in x = (mu'-mu)/sigma.
    """
    gap = (target - mean * prob) / sigma
    if gap <= 0.0:
        return 0.0
    if prob <= 0.0:
        return 0.0
    nu = mean / sigma
    if abs(nu) > FAR:
        return _fixed_magnitude(mean, prob, target)
    p = prob
    rho = target / sigma
    if p >= 1.0:
        # p' = 1 when mu' > 0; otherwise p' < 1 at no more than the same price
        x = rho - nu
        best = 0.5 * x * x
        if rho < 0.0 and nu < -2.0:
            x = 2.0 / (-nu + math.sqrt(nu * nu - 4.0))
            ratio = rho / (x + nu)
            if ratio < 1.0:
                best = min(best, 0.5 * x * x - math.log(ratio))
        return best
    if rho >= 0.0:
        low = max(0.0, rho - nu)
        high = rho / p - nu
    else:
        low = 0.0
        high = -nu
    # F(x) = p x(1+a) + p(1-p) nu a - gap(1+pa), a = x(x+nu): coefficients of the cubic
    k2 = p * nu + p * (1.0 - p) * nu - gap * p
    k1 = p + p * (1.0 - p) * nu * nu - gap * p * nu
    if nu >= 0.0 and rho >= 0.0:
        # mu' and p' both grow with x: there is one root
        x = _bracketed_root(p, k2, k1, -gap, low, high, True)
        value = _joint_divergence(p, x * (x + nu)) + 0.5 * p * x * x
        if value < math.inf:
            return value  # else the squares overflow
    best = math.inf
    for piece in range(3):
        x = _cubic_root(piece, p, k2, k1, -gap, low, high)
        a = x * (x + nu)
        if x >= 0.0 and a > -1.0:
            best = min(best, _joint_divergence(p, a) + 0.5 * p * x * x)
    if best == math.inf:
        # rounding left no sign change: one of the ends is the solution
        x = high if rho < 0.0 else low
        best = max(0.0, _joint_divergence(p, x * (x + nu)) + 0.5 * p * x * x)
    return best


@borrowing
def divergence_to_gaussian_unknown(mean: float, prob: float, target: float, sd: float) -> float:
    """Return inf{kl(p, p') + (p/2) log(1 + (mu-mu')²/sd²) : mu'p' >= target}.

    As for a known sigma, with a = x(x+nu)/(1+x²).
    """
    gap = (target - mean * prob) / sd
    if gap <= 0.0 or prob <= 0.0:
        return 0.0
    nu = mean / sd
    if abs(nu) > FAR:
        return _fixed_magnitude(mean, prob, target)
    p = prob
    rho = target / sd
    if p >= 1.0:
        x = rho - nu
        best = 0.5 * math.log1p(x * x)
        if rho < 0.0:
            # p' < 1 where 1 + a = 0, as far as it exists
            disc = nu * nu - 8.0
            if disc > 0.0:
                x = 2.0 / (-nu + math.sqrt(disc))
                if rho < x + nu < 0.0 or x + nu >= 0.0:
                    return best
                ratio = rho / (x + nu)
                if ratio < 1.0:
                    best = min(best, 0.5 * math.log1p(x * x) - math.log(ratio))
        return best
    if rho >= 0.0:
        low = max(0.0, rho - nu)
        high = rho / p - nu
    else:
        low = 0.0
        high = -nu
    # p(x+nu)(1 + nu x + 2x²) - rho(1 + p nu x + (1+p) x²) = 0, with rho = p nu + gap
    k3 = 2.0 * p
    k2 = 3.0 * p * nu - rho * (1.0 + p)
    k1 = p * (1.0 + nu * nu) - rho * p * nu
    best = math.inf
    for piece in range(3):
        x = _cubic_root(piece, k3, k2, k1, -gap, low, high)
        a = x * (x + nu) / (1.0 + x * x)
        if x >= 0.0 and a > -1.0:
            best = min(best, _joint_divergence(p, a) + 0.5 * p * math.log1p(x * x))
    if best == math.inf:
        x = high if rho < 0.0 else low
        a = x * (x + nu) / (1.0 + x * x)
        best = max(0.0, _joint_divergence(p, a) + 0.5 * p * math.log1p(x * x))
    return best


@borrowing
def _cubic_root(
    piece: int, k3: float, k2: float, k1: float, k0: float, low: float, high: float
) -> float:
    """Return the root of k3 x³ + k2 x² + k1 x + k0 on one of its monotone pieces in [low, high].

    Piece 0 lies before the first turning point, 1 between both, 2 behind; −1 without a root.
    """
    t1 = high
    t2 = high
    disc = k2 * k2 - 3.0 * k3 * k1
    if disc > 0.0:
        root = math.sqrt(disc)
        t1 = min(max((-k2 - root) / (3.0 * k3), low), high)
        t2 = min(max((-k2 + root) / (3.0 * k3), low), high)
    left = low if piece == 0 else (t1 if piece == 1 else t2)
    right = t1 if piece == 0 else (t2 if piece == 1 else high)
    f_left = ((k3 * left + k2) * left + k1) * left + k0
    f_right = ((k3 * right + k2) * right + k1) * right + k0
    if right <= left or f_left * f_right > 0.0:
        return -1.0
    if f_left == 0.0:
        return left
    if f_right == 0.0:
        return right
    return _bracketed_root(k3, k2, k1, k0, left, right, f_right > 0.0)


@borrowing
def _bracketed_root(
    k3: float, k2: float, k1: float, k0: float, left: float, right: float, rising: bool
) -> float:
    """Return the only root of k3 x³ + k2 x² + k1 x + k0 between `left` and `right`.

    Newton's method, and bisection when a step leaves the bracket.
    """
    # the straight line through x = 0 is a good start for a small target
    x = -k0 / k1 if k1 != 0.0 else left
    if not left < x < right:
        x = 0.5 * (left + right)
    for _ in range(200):
        f = ((k3 * x + k2) * x + k1) * x + k0
        df = (3.0 * k3 * x + 2.0 * k2) * x + k1
        if (f > 0.0) != rising:
            left = x
        else:
            right = x
        new = 0.5 * (left + right)
        if df != 0.0:
            newton = x - f / df
            if left <= newton <= right:
                new = newton
        moved = abs(new - x)
        x = new
        if moved <= 1e-10 * x:  # Newton squares what is left
            break
    return x


@borrowing
def divergence_to_gamma(mean: float, prob: float, target: float, shape: float) -> float:
    """Return inf{kl(p, p') + p k (r-1-log r) : mu'p' >= target}, r = mean/mu', k the shape.

    All positive. On the stationary curve t = mu'/mu - 1 solves a quadratic.
    """
    gap = target / mean - prob
    if gap <= 0.0 or prob < 1e-280:
        return 0.0
    p = prob
    k = shape
    beta = p * (1.0 + k - p * k) - gap * (1.0 + p * k)
    root = math.sqrt(beta * beta + 4.0 * (1.0 + k) * p * gap)
    if beta > 0.0:
        t = 2.0 * gap / (beta + root)
    else:
        t = (root - beta) / (2.0 * (1.0 + k) * p)
    # r - 1 = -t/(1+t) and -log r = log(1+t)
    u = -t / (1.0 + t)
    div = log1p_defect(u) if t < 1.0 else u + math.log1p(t)
    return _joint_divergence(p, -k * u) + p * k * div


@borrowing
def divergence_to_lognormal(log_mean: float, prob: float, target: float, log_sd: float) -> float:
    """Return inf{kl(p, p') + p [log(s'/s) + (s²+(m-m')²)/(2s'²) - 1/2] : mu'p' >= target}.

    `target` > 0 and mu' = exp(m'+s'²/2). Along the stationary curve log(mu'p') is increasing; its
    root is found by the Illinois method.
    """
    p = prob
    s2 = log_sd * log_sd
    if target <= 0.0 or p <= 0.0 or s2 <= 0.0:
        return 0.0
    goal = math.log(target)
    low = 0.0
    f_low = log_mean + 0.5 * s2 + math.log(p) - goal
    if f_low >= 0.0:
        return 0.0
    high = 1e-3
    f_high = lognormal_log_value(high, p, log_mean, s2) - goal
    while f_high < 0.0 and high < 1e3:
        low = high
        f_low = f_high
        high *= 2.0
        f_high = lognormal_log_value(high, p, log_mean, s2) - goal
    side = 0
    x = high
    for _ in range(200):
        x = high - f_high * (high - low) / (f_high - f_low)
        f = lognormal_log_value(x, p, log_mean, s2) - goal
        if f > 0.0:
            high = x
            f_high = f
            if side == 1:
                f_low *= 0.5
            side = 1
        else:
            low = x
            f_low = f
            if side == -1:
                f_high *= 0.5
            side = -1
        if abs(f) <= 1e-14 * max(1.0, abs(goal)) or high - low <= 1e-15 * high:
            break
    _, g, _ = joint_curve(LOGNORMAL, x, p, 0.0, s2)
    return p * g


SCALARS = {
    GAUSSIAN: divergence_to_gaussian,
    GAUSSIAN_UNKNOWN: divergence_to_gaussian_unknown,
    GAMMA: divergence_to_gamma,
    LOGNORMAL: divergence_to_lognormal,
}


def divergence_to(
    mean: ArrayLike,
    prob: ArrayLike,
    target: ArrayLike,
    sigma: ArrayLike | None = None,
    *,
    family: str = "gaussian",
    spread: ArrayLike | None = None,
    shape: ArrayLike | None = None,
) -> Any:
    """Return d_inf, how hard it is to tell an arm from one that would pay `target`.

    Parameters
    ----------
    mean, prob
        mu and p of the arm; mu > 0 for ``"exponential"`` and ``"gamma"``, and the mean of the
        logarithm for ``"lognormal"``.
    target
        The mean reward to be reached; > 0 except for ``"gaussian"``.
    sigma
        Known standard deviation of X, > 0; family ``"gaussian"`` only.
    family
        ``"gaussian"`` (with `sigma` known, or with `spread` and sigma unknown), ``"exponential"``,
        ``"gamma"`` (known `shape`) or ``"lognormal"`` (both parameters unknown, with `spread`).
    spread
        Standard deviation of X, or of its logarithm, where it is not known to be that.
    shape
        Shape of the gamma law.

    Returns
    -------
    float or ndarray
        inf{kl(p, p') + p div(mu, mu') : mu' p' >= target}; 0 if mu p >= target.

    Notes
    -----
    div is (mu - mu')²/(2 sigma²), (1/2) log(1 + (mu - mu')²/spread²) when sigma is unknown,
    shape·(r - 1 - log r) with r = mu/mu', or the divergence of two normal laws of the logarithm.
    The factor p in front is there because only non-zero rewards show X. The infimum is the joint
    one over both parameters: the minimiser has p' = p(1+a)/(1+pa), and mu'p' = target is a cubic
    (Gaussian) or quadratic (gamma) equation for mu'. For a small gap
    d_inf ≈ (target - mu p)²/(2 Var(R)).

    At p = 0 the result is 0: a law that pays almost never, but enormously, cannot be excluded.

    Examples
    --------
    >>> round(divergence_to(mean=2.0, prob=0.2, target=0.5, sigma=1.0), 6)
    0.005136
    >>> divergence_to(mean=2.0, prob=0.2, target=0.3, sigma=1.0)
    0.0
    """
    code, name, value = family_of(family, sigma, spread, shape)
    p = UNIT("prob", prob)
    return over(
        SCALARS[code],
        (POSITIVE if code == GAMMA else REAL)("mean", mean),
        p,
        (POSITIVE if code in (GAMMA, LOGNORMAL) else REAL)("target", target),
        POSITIVE(name, value),
    )
