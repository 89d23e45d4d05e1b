"""Scalar solvers for the two parts of a reward taken together: joint bounds.

Written once, with ``math`` only, like `zib.theory.scalars`.
"""

from __future__ import annotations

import math

from numba.extending import register_jitable

from zib.theory.elementary import log1p, log1p_defect, one_minus_exp
from zib.theory.scalars import kl_lower, kl_upper, signed_product

# families of the joint bounds; LEFT marks the branch towards small probabilities
GAUSSIAN = 0
GAUSSIAN_UNKNOWN = 1
GAMMA = 2
LOGNORMAL = 3
LEFT = 4

# sup{mu' p' : n kl(p, p') + B div(mu, mu') <= level}, with p = B/n. The stationary pairs form a
# curve: p' = p(1+a)/(1+pa), where a = a(x) and x is a coordinate of mu'. Along it
#     n kl(p, p') = B (log(1+pa)/p - log(1+a)),
# so only one equation G(x) = level/B is left, G = log(1+pa)/p - log(1+a) + div(x):
#     Gaussian, sigma known:   x = (mu'-mu)/sigma, a = x(x+nu),          div = x²/2
#     Gaussian, sigma unknown: x = (mu'-mu)/s,     a = x(x+nu)/(1+x²),   div = log(1+x²)/2
#     gamma with shape k:      x = log(mu'/mu),    a = k(1-exp(-x)),     div = k(x-1+exp(-x))
#     log-normal:              d = m'-m = 1-exp(-x), s'² = (s²+d²)/(1-d), a = d/s'²,
#                              div = (log(1+d²/s²) + x - d)/2
# with nu = mu/sigma. Where G is not monotone the maximum is at the first or the last root.
#
# Making a product small (a lower bound, or an upper bound below zero) can drive p' towards 0 and a
# towards -1. On that branch the coordinate is eta = -log(1+a) >= 0 and x follows from a.


@register_jitable
def _left_place(family: int, eta: float, nu: float, par: float) -> float:
    """Return the coordinate x (d for the log-normal) where 1 + a = exp(-eta)."""
    drop = one_minus_exp(eta)
    if family == GAUSSIAN:
        return 2.0 * drop / (-nu + math.sqrt(max(nu * nu - 4.0 * drop, 0.0)))
    if family == GAUSSIAN_UNKNOWN:
        return 2.0 * drop / (-nu + math.sqrt(max(nu * nu - 4.0 * drop * (1.0 + drop), 0.0)))
    if family == GAMMA:
        return -math.log1p(drop / par)
    return -2.0 * drop * par / (1.0 + math.sqrt(1.0 + 4.0 * math.exp(-eta) * drop * par))


@register_jitable
def _left_curve(
    family: int, eta: float, p: float, nu: float, par: float
) -> tuple[float, float, float]:
    """Return (a, G, dG/deta) on the branch towards p' = 0."""
    left = math.exp(-eta)
    drop = one_minus_exp(eta)
    x = _left_place(family, eta, nu, par)
    if family == GAUSSIAN:
        div = 0.5 * x * x
        turn = -nu - 2.0 * x
        ddiv = x * left / turn if turn > 0.0 else 0.0
    elif family == GAUSSIAN_UNKNOWN:
        div = 0.5 * log1p(x * x)
        turn = -nu - 2.0 * (1.0 + drop) * x
        ddiv = x * left / turn if turn > 0.0 else 0.0
    elif family == GAMMA:
        c = drop / par
        div = par * log1p_defect(c)
        ddiv = c * left / (1.0 + c)
    else:
        e = par + x * x
        div = 0.5 * (log1p(x * x / par) + log1p_defect(-x))
        slope = (par * (1.0 - 2.0 * x) - x * x) / (e * e)
        ddiv = -left * (x / e + 0.5 * x / (1.0 - x)) / slope if slope > 0.0 else 0.0
    two = (1.0 - p) + p * left
    log_two = log1p(-p * drop) if eta < 0.5 else math.log(two)
    return -drop, log_two / p + eta + div, drop * (1.0 - p) / two + ddiv


@register_jitable
def joint_curve(
    family: int, x: float, p: float, nu: float, par: float
) -> tuple[float, float, float]:
    """Return (a, G, dG/dx) at x; G = inf where the curve has no point (a <= -1)."""
    if family >= LEFT:
        return _left_curve(family - LEFT, x, p, nu, par)
    if family == GAUSSIAN:
        a = x * (x + nu)
        da = 2.0 * x + nu
        div = 0.5 * x * x
        ddiv = x
    elif family == GAUSSIAN_UNKNOWN:
        over = 1.0 / (1.0 + x * x)
        a = x * (x + nu) * over
        da = (2.0 * x + nu * (1.0 - x * x)) * over * over
        div = 0.5 * log1p(x * x)
        ddiv = x * over
    elif family == GAMMA:
        d = one_minus_exp(x)
        a = par * d
        da = par * (1.0 - d)
        div = par * (x - d)
        ddiv = par * d
    else:
        d = one_minus_exp(x)
        e = par + d * d
        a = d * (1.0 - d) / e
        da = (par * (1.0 - 2.0 * d) - d * d) / (e * e) * (1.0 - d)
        div = 0.5 * (log1p(d * d / par) + x - d)
        ddiv = (1.0 - d) * d / e + 0.5 * d
    one = 1.0 + a
    if one <= 0.0:
        return a, math.inf, 0.0
    two = 1.0 + p * a
    g = log1p(p * a) / p - log1p(a) + div
    return a, g, a * (1.0 - p) / (one * two) * da + ddiv


@register_jitable
def _joint_root(
    family: int, p: float, w: float, nu: float, par: float, low: float, high: float, start: float
) -> float:
    """Solve G(x) = w for x between `low` (G <= w) and `high` (G >= w), where G is monotone.

    Newton steps on sqrt(G), which is nearly straight; bisection when one leaves the bracket.
    """
    x = start
    for _ in range(200):
        _, g, dg = joint_curve(family, x, p, nu, par)
        if g > w:
            high = x
        else:
            low = x
        new = 0.5 * (low + high)
        if 0.0 < g < math.inf and dg != 0.0:
            newton = x - 2.0 * (g - math.sqrt(w * g)) / dg
            if min(low, high) <= newton <= max(low, high):
                new = newton
        moved = abs(new - x)
        x = new
        if moved <= 1e-7 * abs(x):
            break
    return x


@register_jitable
def _joint_prob(p: float, a: float) -> float:
    return p * (1.0 + a) / (1.0 + p * a)


@register_jitable
def _gaussian_value(family: int, x: float, p: float, nu: float) -> float:
    """Return mu' p' / sigma at the point x of the curve."""
    a, _, _ = joint_curve(family, x, p, nu, 0.0)
    return (x + nu) * _joint_prob(p, a)


@register_jitable
def _left_solve(family: int, p: float, w: float, nu: float, par: float) -> tuple[float, float]:
    """Solve G = w on the branch towards p' = 0 (p < 1); return the place x and p'."""
    high = w - math.log1p(-p) / p
    eta = _joint_root(LEFT + family, p, w, nu, par, 0.0, high, min(w, 0.5 * high))
    left = math.exp(-eta)
    return _left_place(family, eta, nu, par), p * left / ((1.0 - p) + p * left)


@register_jitable
def _halley(x: float, g: float, dg: float, d2g: float, w: float, low: float, high: float) -> float:
    """Return Halley's next x for sqrt(G) = sqrt(w), or the middle when it leaves the bracket."""
    newton = 2.0 * (g - math.sqrt(w * g)) / dg
    bend = 1.0 - 0.5 * newton * (d2g / dg - 0.5 * dg / g)
    new = x - newton / bend
    if not low <= new <= high or bend < 0.5:
        new = 0.5 * (low + high)
    return new


@register_jitable
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
        one = 1.0 + a
        two = 1.0 + p * a
        g = log1p(p * a) * over_p - log1p(a) + 0.5 * x * x
        over = 1.0 / (one * two)
        h = a * comp * over
        dg = h * da + x
        # h' = 1/(1+a)² - p/(1+pa)²
        d2g = 1.0 + 2.0 * h + da * da * over * over * (two * two - p * one * one)
        if g > w:
            high = x
        else:
            low = x
        new = _halley(x, g, dg, d2g, w, low, high)
        moved = abs(new - x)
        x = new
        if moved <= 2e-4 * x:
            break
    return x


@register_jitable
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
        one = 1.0 + a
        two = 1.0 + p * a
        g = log1p(p * a) * over_p - log1p(a) + shape * (x - d)
        if g <= 0.0:
            break  # all rounding: x is so small that the start is exact
        over = 1.0 / (one * two)
        h = a * comp * over
        dg = h * da + a
        d2g = da * (1.0 - h) + da * da * over * over * (two * two - p * one * one)
        if g > w:
            high = x
        else:
            low = x
        new = _halley(x, g, dg, d2g, w, low, high)
        moved = abs(new - x)
        x = new
        if moved <= 2e-4 * x:
            break
    return x


@register_jitable
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
        x = _joint_root(GAUSSIAN, p, w, -far, 0.0, 0.0, far, 0.5 * far)
        return _gaussian_value(GAUSSIAN, x, p, -far)
    best = -math.inf
    _, g, _ = joint_curve(GAUSSIAN, far - z, p, -far, 0.0)
    if g <= w:
        x = _joint_root(GAUSSIAN, p, w, -far, 0.0, far - z, far, far - 0.5 * z)
        best = _gaussian_value(GAUSSIAN, x, p, -far)
    if far >= 2.0:
        x, prob = _left_solve(GAUSSIAN, p, w, -far, 0.0)
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
        x = _joint_root(GAUSSIAN, p, w, -far, 0.0, 0.0, far - z, 0.5 * (far - z))
        best = max(best, _gaussian_value(GAUSSIAN, x, p, -far))
    return best


@register_jitable
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
        return signed_product(mean, kl_lower(p, n, level), kl_upper(p, n, level))
    nu = mean / sigma
    if nu >= 0.0:
        if p >= 1.0:
            return mean + sigma * math.sqrt(2.0 * w)
        x = _gaussian_root(p, w, nu)
        return (mean + sigma * x) * _joint_prob(p, x * (x + nu))
    if 0.5 * nu * nu > w:
        return sigma * _known_sigma_below_zero(p, w, -nu)
    high = math.sqrt(2.0 * w)
    x = high
    if p < 1.0:
        x = _joint_root(GAUSSIAN, p, w, nu, 0.0, -nu, high, 0.5 * (high - nu))
    return sigma * _gaussian_value(GAUSSIAN, x, p, nu)


@register_jitable
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


@register_jitable
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
                root = _joint_root(
                    GAUSSIAN_UNKNOWN, p, w, -far, 0.0, turn, high, 0.5 * (turn + high)
                )
                best = max(best, _gaussian_value(GAUSSIAN_UNKNOWN, root, p, -far))
            high = turn
            falling = not falling
        previous = value
        x_previous = x
    if pole < math.inf:
        x, prob = _left_solve(GAUSSIAN_UNKNOWN, p, w, -far, 0.0)
        return max(best, (x - far) * prob)
    if falling:
        # the walk ended between two turning points: the rest of G rises
        high = middle
    _, g, _ = joint_curve(GAUSSIAN_UNKNOWN, high, p, -far, 0.0)
    if g >= w:
        x = _joint_root(GAUSSIAN_UNKNOWN, p, w, -far, 0.0, 0.0, high, 0.5 * high)
        best = max(best, _gaussian_value(GAUSSIAN_UNKNOWN, x, p, -far))
    return best


@register_jitable
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
        return signed_product(mean, kl_lower(p, n, level), kl_upper(p, n, level))
    high = math.sqrt(math.expm1(2.0 * w))
    if nu < 0.0:
        if nu <= -high:
            return sd * _unknown_sigma_below_zero(p, w, -nu)
        x = high
        if p < 1.0:
            x = _joint_root(GAUSSIAN_UNKNOWN, p, w, nu, 0.0, -nu, high, 0.5 * (high - nu))
        return sd * _gaussian_value(GAUSSIAN_UNKNOWN, x, p, nu)
    if p >= 1.0:
        return mean + sd * high
    start = high / math.sqrt(1.0 + (1.0 - p) * nu * nu)
    first, last = _unknown_sigma_turning(p, nu)
    if first < 0.0:
        x = _joint_root(GAUSSIAN_UNKNOWN, p, w, nu, 0.0, 0.0, high, start)
        return sd * _gaussian_value(GAUSSIAN_UNKNOWN, x, p, nu)
    best = -math.inf
    _, g, _ = joint_curve(GAUSSIAN_UNKNOWN, first, p, nu, 0.0)
    if g >= w:
        x = _joint_root(GAUSSIAN_UNKNOWN, p, w, nu, 0.0, 0.0, first, min(start, first))
        best = _gaussian_value(GAUSSIAN_UNKNOWN, x, p, nu)
    _, g, _ = joint_curve(GAUSSIAN_UNKNOWN, last, p, nu, 0.0)
    if g <= w:
        x = _joint_root(GAUSSIAN_UNKNOWN, p, w, nu, 0.0, last, max(last, high), max(last, high))
        best = max(best, _gaussian_value(GAUSSIAN_UNKNOWN, x, p, nu))
    return sd * best


@register_jitable
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
    return mean * math.exp(x) * _joint_prob(p, shape * one_minus_exp(x))


@register_jitable
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
        x = _joint_root(
            GAMMA, p, w, 0.0, shape, 0.0, -math.log1p(1.0 / shape), -0.5 / (1.0 + shape)
        )
        return mean * math.exp(x)
    x, prob = _left_solve(GAMMA, p, w, 0.0, shape)
    return mean * math.exp(x) * prob


@register_jitable
def lognormal_log_value(x: float, p: float, log_mean: float, spread: float) -> float:
    """Return log(mu' p') at the point x of the curve."""
    d = one_minus_exp(x)
    a, _, _ = joint_curve(LOGNORMAL, x, p, 0.0, spread)
    return (
        log_mean
        + d
        + 0.5 * (spread + d * d) * math.exp(min(x, 700.0))
        + math.log(_joint_prob(p, a))
    )


@register_jitable
def _lognormal_turning(p: float, spread: float, d: float) -> float:
    """Return a number with the sign of dG/dd; d = m' - m."""
    e = spread + d * d
    rest = (1.0 - d) * (1.0 - d)
    return (1.0 - p) * rest * (spread - 2.0 * spread * d - d * d) + (spread + d) * (
        e + p * d * (1.0 - d)
    ) * ((1.0 - d) + 0.5 * e)


@register_jitable
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
        x = _joint_root(LOGNORMAL, p, w, 0.0, s2, 0.0, high, start)
        log_value = lognormal_log_value(x, p, log_mean, s2)
    else:
        log_value = -math.inf
        _, g, _ = joint_curve(LOGNORMAL, first, p, 0.0, s2)
        if g >= w:
            x = _joint_root(LOGNORMAL, p, w, 0.0, s2, 0.0, first, min(start, first))
            log_value = lognormal_log_value(x, p, log_mean, s2)
        _, g, _ = joint_curve(LOGNORMAL, last, p, 0.0, s2)
        if g <= w:
            x = _joint_root(LOGNORMAL, p, w, 0.0, s2, last, max(high, last), max(high, last))
            log_value = max(log_value, lognormal_log_value(x, p, log_mean, s2))
    return math.exp(log_value) if log_value < 709.0 else math.inf


@register_jitable
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
            d, prob = _left_solve(LOGNORMAL, p, w, 0.0, s2)
        else:
            # p' = 1 until a = -1 (d = -s²), then p' falls alone
            at_pole = 0.5 * (log1p(s2) + log1p_defect(s2))
            d = -s2
            prob = 1.0
            if at_pole < w:
                prob = math.exp(at_pole - w)
            else:
                pole = -math.log1p(s2)
                x = _joint_root(LOGNORMAL, p, w, 0.0, s2, 0.0, pole, 0.5 * pole)
                d = one_minus_exp(x)
        log_value = log_mean + d + 0.5 * (s2 + d * d) / (1.0 - d) + math.log(prob)
    return math.exp(log_value) if log_value < 709.0 else math.inf
