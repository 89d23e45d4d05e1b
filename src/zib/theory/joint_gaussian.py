"""Joint bounds of p·mu when the non-zero rewards are Gaussian."""

from __future__ import annotations

import math

from zib.core.kernel import borrowing
from zib.theory.bernoulli import kl_lower_scalar, kl_upper_scalar
from zib.theory.joint_curve import (
    GAUSSIAN,
    GAUSSIAN_UNKNOWN,
    halley,
    joint_curve,
    joint_prob,
    joint_root,
    left_solve,
    occurrence,
)
from zib.theory.products import signed_product


@borrowing
def _gaussian_value(family: int, x: float, p: float, nu: float) -> float:
    """Return mu' p' / sigma at the point x of the curve."""
    a, _, _ = joint_curve(family, x, p, nu, 0.0)
    return (x + nu) * joint_prob(p, a)


@borrowing
def _gaussian_root(p: float, w: float, nu: float) -> float:
    """Solve G(x) = w for x > 0 when nu >= 0 and sigma is known (G is increasing).

    The start replaces log(1+pa)/p - log(1+a) by (1-p) a²/2 / (1+2(1+p)a/3); then Halley's method
    on sqrt(G).
    """
    comp = 1.0 - p
    slope = 0.6666666666666666 * (1.0 + p)
    high = math.sqrt(2.0 * w)
    low = 0.0
    x = high / math.sqrt(1.0 + comp * nu * nu)
    m = x + nu
    x = high / math.sqrt(1.0 + comp * m * m / (1.0 + slope * x * m))
    over_p = 1.0 / p
    for _ in range(200):
        a = x * (x + nu)
        da = 2.0 * x + nu
        cost, h, dh = occurrence(p, a, over_p)
        g = cost + 0.5 * x * x
        dg = h * da + x
        d2g = 1.0 + 2.0 * h + da * da * dh
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
def _known_sigma_below_zero(p: float, w: float, far: float) -> float:
    """Return max mu'p'/sigma when mu = -far*sigma and w < far²/2, so that mu' < 0 throughout.

    With z = far - x = -mu'/sigma the sign of dG/dx is that of
    Q(z) = 1 - 2 far z + (3-p) z² + p (z(far-z))², which is convex where the curve has points, so G
    has at most two turning points and at most two local maxima of mu'p' compete.
    """
    if p >= 1.0:
        # p' <= 1 binds: either p' = 1, or x(far - x) = 1
        best = -(far - math.sqrt(2.0 * w))
        if far > 2.0:
            x = 2.0 / (far + math.sqrt(far * far - 4.0))
            if 0.5 * x * x < w:
                best = max(best, -(far - x) * math.exp(0.5 * x * x - w))
        return best
    # the left branch ends at the pole a = -1 or, if there is none, at the second turning point
    end = 0.5 * far
    if far >= 2.0:
        end = 2.0 / (far + math.sqrt(far * far - 4.0))
    # first turning point as seen from z = 0 (Newton from the left of a convex function)
    z = 0.0
    turning = False
    for _ in range(100):
        u = z * (far - z)
        value = 1.0 - 2.0 * far * z + (3.0 - p) * z * z + p * u * u
        slope = -2.0 * far + 2.0 * (3.0 - p) * z + 2.0 * p * u * (far - 2.0 * z)
        if value <= 1e-14:
            turning = True
            break
        if slope >= 0.0 or z >= end:
            break
        z -= value / slope
    if not turning:
        x = joint_root(GAUSSIAN, p, w, -far, 0.0, 0.0, far, 0.5 * far)
        return _gaussian_value(GAUSSIAN, x, p, -far)
    best = -math.inf
    _, g, _ = joint_curve(GAUSSIAN, far - z, p, -far, 0.0)
    if g <= w:
        x = joint_root(GAUSSIAN, p, w, -far, 0.0, far - z, far, far - 0.5 * z)
        best = _gaussian_value(GAUSSIAN, x, p, -far)
    if far >= 2.0:
        x, prob = left_solve(GAUSSIAN, p, w, -far, 0.0)
        return max(best, (x - far) * prob)
    z = end
    for _ in range(100):
        u = z * (far - z)
        value = 1.0 - 2.0 * far * z + (3.0 - p) * z * z + p * u * u
        slope = -2.0 * far + 2.0 * (3.0 - p) * z + 2.0 * p * u * (far - 2.0 * z)
        if value <= 1e-14 or slope <= 0.0:
            break
        z -= value / slope
    _, g, _ = joint_curve(GAUSSIAN, far - z, p, -far, 0.0)
    if g >= w:
        x = joint_root(GAUSSIAN, p, w, -far, 0.0, 0.0, far - z, 0.5 * (far - z))
        best = max(best, _gaussian_value(GAUSSIAN, x, p, -far))
    return best


@borrowing
def joint_kl_upper_gaussian(
    n: float, count: float, mean: float, sigma: float, level: float
) -> float:
    """Return sup{mu'p' : n kl(count/n, p') + count (mean-mu')²/(2 sigma²) <= level}."""
    if count <= 0.0:
        return math.inf
    p = count / n
    if level <= 0.0:
        return mean * p
    w = level / count
    if abs(mean) >= 1e100 * sigma:
        return signed_product(mean, kl_lower_scalar(p, n, level), kl_upper_scalar(p, n, level))
    nu = mean / sigma
    if nu >= 0.0:
        if p >= 1.0:
            return mean + sigma * math.sqrt(2.0 * w)
        x = _gaussian_root(p, w, nu)
        return (mean + sigma * x) * joint_prob(p, x * (x + nu))
    if 0.5 * nu * nu > w:
        return sigma * _known_sigma_below_zero(p, w, -nu)
    high = math.sqrt(2.0 * w)
    x = high
    if p < 1.0:
        x = joint_root(GAUSSIAN, p, w, nu, 0.0, -nu, high, 0.5 * (high - nu))
    return sigma * _gaussian_value(GAUSSIAN, x, p, nu)


@borrowing
def _unknown_sigma_turning(p: float, nu: float) -> tuple[float, float]:
    """Return the two turning points of G for sigma unknown and nu > 0, or (-1, -1).

    The sign of dG/dx is that of c4 x⁴ + c3 x³ + c2 x² + c1 x + c0 with only c2 possibly negative;
    divided by x² this is convex, so there are two roots or none.
    """
    c4 = 2.0 * (1.0 + p)
    c3 = 4.0 * p * nu
    c2 = 5.0 - p - nu * nu * (1.0 - 2.0 * p)
    c1 = nu * (4.0 - 2.0 * p)
    c0 = 1.0 + (1.0 - p) * nu * nu
    if c2 + 2.0 * math.sqrt(c4 * c0) + 2.0 * math.sqrt(c3 * c1) >= 0.0:
        return -1.0, -1.0
    first = math.sqrt(c0 / -c2)
    found = False
    for _ in range(200):
        value = c4 * first * first + c3 * first + c2 + (c1 + c0 / first) / first
        slope = 2.0 * c4 * first + c3 - (c1 + 2.0 * c0 / first) / (first * first)
        if value <= -1e-14 * c2:
            found = True
            break
        if slope >= 0.0:
            break
        first -= value / slope
    if not found:
        return -1.0, -1.0
    last = math.sqrt(-c2 / c4)
    for _ in range(200):
        value = c4 * last * last + c3 * last + c2 + (c1 + c0 / last) / last
        slope = 2.0 * c4 * last + c3 - (c1 + 2.0 * c0 / last) / (last * last)
        if value <= -1e-14 * c2 or slope <= 0.0:
            break
        last -= value / slope
    return first, last


@borrowing
def _unknown_sigma_below_zero(p: float, w: float, far: float) -> float:
    """Return max mu'p'/s when mu = -far*s and w < log(1+far²)/2, so that mu' < 0 throughout."""
    top = math.sqrt(math.expm1(2.0 * w))
    pole = math.inf
    if far * far >= 8.0:
        pole = 2.0 / (far + math.sqrt(far * far - 8.0))
    if p >= 1.0:
        best = -(far - top)
        if pole < top:
            log_prob = 0.5 * math.log1p(pole * pole) - w
            best = max(best, -(far - pole) * math.exp(log_prob))
        return best
    # G rises up to the minimum of a (or to the pole a = -1); beyond, look for turning points of
    # the quartic on a grid: polynomials only, so a fine grid is cheap.
    middle = far / (1.0 + math.sqrt(1.0 + far * far))
    c4 = 2.0 * (1.0 + p)
    c3 = -4.0 * p * far
    c2 = 5.0 - p - far * far * (1.0 - 2.0 * p)
    c1 = -far * (4.0 - 2.0 * p)
    c0 = 1.0 + (1.0 - p) * far * far
    left = middle
    if pole < math.inf:
        left = 1.0 / (2.0 * pole)
    best = -math.inf
    high = far
    steps = 64
    previous = 1.0
    x_previous = far
    falling = False
    turn = far
    # walk down from x = far: G falls to a turning point, then rises again
    for i in range(1, steps + 1):
        x = far - (far - left) * i / steps
        value = (((c4 * x + c3) * x + c2) * x + c1) * x + c0
        if (value > 0.0) != (previous > 0.0):
            inside = x
            outside = x_previous
            for _ in range(60):
                half = 0.5 * (inside + outside)
                v = (((c4 * half + c3) * half + c2) * half + c1) * half + c0
                if (v > 0.0) == (value > 0.0):
                    inside = half
                else:
                    outside = half
            turn = 0.5 * (inside + outside)
            _, g, _ = joint_curve(GAUSSIAN_UNKNOWN, turn, p, -far, 0.0)
            if not falling and g <= w:
                root = joint_root(
                    GAUSSIAN_UNKNOWN, p, w, -far, 0.0, turn, high, 0.5 * (turn + high)
                )
                best = max(best, _gaussian_value(GAUSSIAN_UNKNOWN, root, p, -far))
            high = turn
            falling = not falling
        previous = value
        x_previous = x
    if pole < math.inf:
        x, prob = left_solve(GAUSSIAN_UNKNOWN, p, w, -far, 0.0)
        return max(best, (x - far) * prob)
    if falling:
        # the walk ended between two turning points: the rest of G rises
        high = middle
    _, g, _ = joint_curve(GAUSSIAN_UNKNOWN, high, p, -far, 0.0)
    if g >= w:
        x = joint_root(GAUSSIAN_UNKNOWN, p, w, -far, 0.0, 0.0, high, 0.5 * high)
        best = max(best, _gaussian_value(GAUSSIAN_UNKNOWN, x, p, -far))
    return best


@borrowing
def joint_kl_upper_gaussian_unknown(
    n: float, count: float, mean: float, sd: float, level: float
) -> float:
    """Return sup{mu'p' : n kl(count/n, p') + (count/2) log(1+(mean-mu')²/sd²) <= level}.

    `sd` is the root of the mean squared deviation (divisor `count`). ``inf`` without two different
    non-zero rewards: the data then say nothing about the scale.
    """
    if count <= 0.0 or sd <= 0.0:
        return math.inf
    p = count / n
    if level <= 0.0:
        return mean * p
    w = level / count
    if w > 340.0:
        return math.inf
    nu = mean / sd
    if abs(nu) > 1e100:
        return signed_product(mean, kl_lower_scalar(p, n, level), kl_upper_scalar(p, n, level))
    high = math.sqrt(math.expm1(2.0 * w))
    if nu < 0.0:
        if nu <= -high:
            return sd * _unknown_sigma_below_zero(p, w, -nu)
        x = high
        if p < 1.0:
            x = joint_root(GAUSSIAN_UNKNOWN, p, w, nu, 0.0, -nu, high, 0.5 * (high - nu))
        return sd * _gaussian_value(GAUSSIAN_UNKNOWN, x, p, nu)
    if p >= 1.0:
        return mean + sd * high
    start = high / math.sqrt(1.0 + (1.0 - p) * nu * nu)
    first, last = _unknown_sigma_turning(p, nu)
    if first < 0.0:
        x = joint_root(GAUSSIAN_UNKNOWN, p, w, nu, 0.0, 0.0, high, start)
        return sd * _gaussian_value(GAUSSIAN_UNKNOWN, x, p, nu)
    best = -math.inf
    _, g, _ = joint_curve(GAUSSIAN_UNKNOWN, first, p, nu, 0.0)
    if g >= w:
        x = joint_root(GAUSSIAN_UNKNOWN, p, w, nu, 0.0, 0.0, first, min(start, first))
        best = _gaussian_value(GAUSSIAN_UNKNOWN, x, p, nu)
    _, g, _ = joint_curve(GAUSSIAN_UNKNOWN, last, p, nu, 0.0)
    if g <= w:
        x = joint_root(GAUSSIAN_UNKNOWN, p, w, nu, 0.0, last, max(last, high), max(last, high))
        best = max(best, _gaussian_value(GAUSSIAN_UNKNOWN, x, p, nu))
    return sd * best
