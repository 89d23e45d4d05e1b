"""How different a two-part law must be to be as good as the best arm, for single numbers."""

from __future__ import annotations

import math

from numba.extending import register_jitable

from zib.theory.elementary import log1p_defect


@register_jitable
def _joint_divergence(p: float, a: float) -> float:
    """Return kl(p, p') = log(1+pa) - p log(1+a) without cancellation."""
    return p * log1p_defect(a) - log1p_defect(p * a)


@register_jitable
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
    k3 = p
    k2 = p * nu + p * (1.0 - p) * nu - gap * p
    k1 = p + p * (1.0 - p) * nu * nu - gap * p * nu
    k0 = -gap
    # between its turning points the cubic is monotone
    t1 = high
    t2 = high
    disc = k2 * k2 - 3.0 * k3 * k1
    if disc > 0.0:
        root = math.sqrt(disc)
        t1 = min(max((-k2 - root) / (3.0 * k3), low), high)
        t2 = min(max((-k2 + root) / (3.0 * k3), low), high)
    best = math.inf
    for piece in range(3):
        left = low if piece == 0 else (t1 if piece == 1 else t2)
        right = t1 if piece == 0 else (t2 if piece == 1 else high)
        f_left = ((k3 * left + k2) * left + k1) * left + k0
        f_right = ((k3 * right + k2) * right + k1) * right + k0
        if right <= left or f_left * f_right > 0.0:
            continue
        x = 0.5 * (left + right)
        if f_left == 0.0:
            x = left
        elif f_right == 0.0:
            x = right
        else:
            for _ in range(200):
                f = ((k3 * x + k2) * x + k1) * x + k0
                df = (3.0 * k3 * x + 2.0 * k2) * x + k1
                if (f > 0.0) == (f_left > 0.0):
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
                if moved <= 1e-15 * x:
                    break
        a = x * (x + nu)
        if a > -1.0:
            best = min(best, _joint_divergence(p, a) + 0.5 * p * x * x)
    if best == math.inf:
        # rounding left no sign change: one of the ends is the solution
        x = high if rho < 0.0 else low
        best = max(0.0, _joint_divergence(p, x * (x + nu)) + 0.5 * p * x * x)
    return best


@register_jitable
def divergence_to_exponential(mean: float, prob: float, target: float) -> float:
    """Return inf{kl(p, p') + p (r-1-log r) : mu'p' >= target}, r = mean/mu'; all positive.

    On the stationary curve t = mu'/mu - 1 solves a quadratic.
    """
    gap = target / mean - prob
    if gap <= 0.0 or prob < 1e-280:
        return 0.0
    p = prob
    beta = p * (2.0 - p) - gap * (1.0 + p)
    root = math.sqrt(beta * beta + 8.0 * p * gap)
    if beta > 0.0:
        t = 2.0 * gap / (beta + root)
    else:
        t = (root - beta) / (4.0 * p)
    # r - 1 = -t/(1+t) and -log r = log(1+t)
    u = -t / (1.0 + t)
    div = log1p_defect(u) if t < 1.0 else u + math.log1p(t)
    return _joint_divergence(p, -u) + p * div
