"""Joint bounds of p·mu when the non-zero rewards are gamma or log-normal."""

from __future__ import annotations

import math

from zib.core.kernel import borrowing
from zib.theory.elementary import log1p, log1p_defect, one_minus_exp
from zib.theory.joint_curve import (
    GAMMA,
    LOGNORMAL,
    halley,
    joint_curve,
    joint_prob,
    joint_root,
    left_solve,
    occurrence,
)


@borrowing
def _gamma_root(p: float, w: float, shape: float) -> float:
    """Solve G(x) = w for x > 0 and a gamma law (G is increasing), by Halley's method too."""
    comp = 1.0 - p
    low = 0.0
    high = w / shape + math.sqrt(2.0 * w / shape)
    x = min(math.sqrt(2.0 * w / (shape * (1.0 + shape * comp))), high)
    over_p = 1.0 / p
    for _ in range(200):
        d = one_minus_exp(x)
        a = shape * d
        da = shape - a
        cost, h, dh = occurrence(p, a, over_p)
        g = cost + shape * (x - d)
        if g <= 0.0:
            break  # all rounding: x is so small that the start is exact
        dg = h * da + a
        d2g = da * (1.0 - h) + da * da * dh
        if g > w:
            high = x
        else:
            low = x
        new = halley(x, g, dg, d2g, w, low, high)
        moved = abs(new - x)
        x = new
        if moved <= 2e-4 * x:
            break
    return x


@borrowing
def joint_kl_upper_gamma(n: float, count: float, mean: float, shape: float, level: float) -> float:
    """Return sup{mu'p' : n kl(count/n, p') + count shape (r-1-log r) <= level}, r = mean/mu'.

    `mean` > 0; an exponential law is the case shape = 1.
    """
    if count <= 0.0:
        return math.inf
    p = count / n
    if level <= 0.0 or mean <= 0.0:
        return mean * p
    w = level / count
    x = _gamma_root(p, w, shape)
    if x > 700.0:
        return math.inf
    return mean * math.exp(x) * joint_prob(p, shape * one_minus_exp(x))


@borrowing
def joint_kl_lower_gamma(n: float, count: float, mean: float, shape: float, level: float) -> float:
    """Return inf{mu'p' : n kl(count/n, p') + count shape (r-1-log r) <= level}, r = mean/mu'."""
    if count <= 0.0 or mean <= 0.0:
        return 0.0
    p = count / n
    if level <= 0.0:
        return mean * p
    w = level / count
    if p >= 1.0:
        # p' = 1 until a = -1, then p' falls alone
        at_pole = shape * log1p_defect(1.0 / shape)
        if at_pole < w:
            return mean / (1.0 + 1.0 / shape) * math.exp(at_pole - w)
        x = joint_root(GAMMA, p, w, 0.0, shape, 0.0, -math.log1p(1.0 / shape), -0.5 / (1.0 + shape))
        return mean * math.exp(x)
    x, prob = left_solve(GAMMA, p, w, 0.0, shape)
    return mean * math.exp(x) * prob


@borrowing
def lognormal_log_value(x: float, p: float, log_mean: float, spread: float) -> float:
    """Return log(mu' p') at the point x of the curve."""
    d = one_minus_exp(x)
    a, _, _ = joint_curve(LOGNORMAL, x, p, 0.0, spread)
    return (
        log_mean + d + 0.5 * (spread + d * d) * math.exp(min(x, 700.0)) + math.log(joint_prob(p, a))
    )


@borrowing
def _lognormal_turning(p: float, spread: float, d: float) -> float:
    """Return a number with the sign of dG/dd; d = m' - m."""
    e = spread + d * d
    rest = (1.0 - d) * (1.0 - d)
    return (1.0 - p) * rest * (spread - 2.0 * spread * d - d * d) + (spread + d) * (
        e + p * d * (1.0 - d)
    ) * ((1.0 - d) + 0.5 * e)


@borrowing
def joint_kl_upper_lognormal(
    n: float, count: float, log_mean: float, log_sd: float, level: float
) -> float:
    """Return the sup of mu'p' for a log-normal non-zero part with both parameters free.

    The constraint is n kl(count/n, p') + count [log(s'/s) + (s²+(m-m')²)/(2s'²) - 1/2] <= level,
    with m = `log_mean`, s = `log_sd` (divisor `count`) of the logarithms, mu' = exp(m'+s'²/2).
    ``inf`` without two different non-zero rewards.
    """
    if count <= 0.0 or log_sd <= 0.0:
        return math.inf
    p = count / n
    s2 = log_sd * log_sd
    w = level / count
    if level <= 0.0:
        log_value = log_mean + 0.5 * s2 + math.log(p)
        return math.exp(log_value) if log_value < 709.0 else math.inf
    # div >= (x - 1)/2
    high = 2.0 * w + 1.0
    start = min(high, math.sqrt(2.0 * w / (1.0 / s2 + 0.5 + (1.0 - p) / (s2 * s2))))
    # turning points of G: both lie beyond the maximum of a, at d0
    d0 = s2 / (s2 + math.sqrt(s2 * s2 + s2))
    first = -1.0
    last = -1.0
    if p < 1.0 and s2 < 1.0:
        steps = 64
        ratio = math.exp(-math.log(d0) / steps)
        inside = d0
        previous = 1.0
        for _ in range(steps):
            outside = inside
            inside = min(inside * ratio, 1.0)
            value = _lognormal_turning(p, s2, inside)
            if (value > 0.0) != (previous > 0.0):
                left = outside
                right = inside
                for _ in range(50):
                    half = 0.5 * (left + right)
                    if (_lognormal_turning(p, s2, half) > 0.0) == (previous > 0.0):
                        left = half
                    else:
                        right = half
                if first < 0.0:
                    first = -math.log1p(-0.5 * (left + right))
                else:
                    last = -math.log1p(-0.5 * (left + right))
            previous = value
    if last < 0.0:
        x = joint_root(LOGNORMAL, p, w, 0.0, s2, 0.0, high, start)
        log_value = lognormal_log_value(x, p, log_mean, s2)
    else:
        log_value = -math.inf
        _, g, _ = joint_curve(LOGNORMAL, first, p, 0.0, s2)
        if g >= w:
            x = joint_root(LOGNORMAL, p, w, 0.0, s2, 0.0, first, min(start, first))
            log_value = lognormal_log_value(x, p, log_mean, s2)
        _, g, _ = joint_curve(LOGNORMAL, last, p, 0.0, s2)
        if g <= w:
            x = joint_root(LOGNORMAL, p, w, 0.0, s2, last, max(high, last), max(high, last))
            log_value = max(log_value, lognormal_log_value(x, p, log_mean, s2))
    return math.exp(log_value) if log_value < 709.0 else math.inf


@borrowing
def joint_kl_lower_lognormal(
    n: float, count: float, log_mean: float, log_sd: float, level: float
) -> float:
    """Return the inf of mu'p' over the set of `joint_kl_upper_lognormal`; 0 without a scale."""
    if count <= 0.0 or log_sd <= 0.0:
        return 0.0
    p = count / n
    s2 = log_sd * log_sd
    w = level / count
    log_value = log_mean + 0.5 * s2 + math.log(p)
    if level > 0.0:
        if p < 1.0:
            d, prob = left_solve(LOGNORMAL, p, w, 0.0, s2)
        else:
            # p' = 1 until a = -1 (d = -s²), then p' falls alone
            at_pole = 0.5 * (log1p(s2) + log1p_defect(s2))
            d = -s2
            prob = 1.0
            if at_pole < w:
                prob = math.exp(at_pole - w)
            else:
                pole = -math.log1p(s2)
                x = joint_root(LOGNORMAL, p, w, 0.0, s2, 0.0, pole, 0.5 * pole)
                d = one_minus_exp(x)
        log_value = log_mean + d + 0.5 * (s2 + d * d) / (1.0 - d) + math.log(prob)
    return math.exp(log_value) if log_value < 709.0 else math.inf
