"""The curve on which both parts of a reward are as large as a likelihood allows."""

from __future__ import annotations

import math

from numpy.typing import ArrayLike

from zib.core.kernel import borrowing
from zib.core.validate import InvalidParameterError, choice
from zib.theory.elementary import log1p, log1p_defect, one_minus_exp

FAMILIES = ("gaussian", "exponential", "gamma", "lognormal")
# families of the joint bounds; LEFT marks the branch towards small probabilities
GAUSSIAN = 0
GAUSSIAN_UNKNOWN = 1
GAMMA = 2
LOGNORMAL = 3
LEFT = 4


def family_of(
    family: str, sigma: ArrayLike | None, spread: ArrayLike | None, shape: ArrayLike | None
) -> tuple[int, str, ArrayLike]:
    """Return the code of a family, and name and value of the one parameter it is given with."""
    which = FAMILIES[choice("family", family, FAMILIES)]
    for name, value, owners in (
        ("sigma", sigma, ("gaussian",)),
        ("spread", spread, ("gaussian", "lognormal")),
        ("shape", shape, ("gamma",)),
    ):
        if value is not None and which not in owners:
            raise InvalidParameterError(f"`{name}` has no meaning for family {which!r}")
    if which == "exponential":
        return GAMMA, "shape", 1.0
    if which == "gamma" and shape is not None:
        return GAMMA, "shape", shape
    if which == "lognormal" and spread is not None:
        return LOGNORMAL, "spread", spread
    if which == "gaussian" and sigma is not None and spread is None:
        return GAUSSIAN, "sigma", sigma
    if which == "gaussian" and sigma is None and spread is not None:
        return GAUSSIAN_UNKNOWN, "spread", spread
    wanted = {
        "gaussian": "either `sigma` or `spread`",
        "gamma": "`shape`",
        "lognormal": "`spread`",
    }[which]
    alone = ", not both" if which == "gaussian" else ""
    raise InvalidParameterError(f"{wanted} must be given for family {which!r}{alone}")


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


@borrowing
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


@borrowing
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


@borrowing
def occurrence(p: float, a: float, over_p: float) -> tuple[float, float, float]:
    """Return n kl(p, p')/B = log(1+pa)/p - log(1+a) and its first two derivatives in a > -1."""
    one = 1.0 + a
    two = 1.0 + p * a
    over = 1.0 / (one * two)
    cost = log1p(p * a) * over_p - log1p(a)
    return cost, a * (1.0 - p) * over, over * over * (two * two - p * one * one)


@borrowing
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
    if a <= -1.0:
        return a, math.inf, 0.0
    cost, slope, _ = occurrence(p, a, 1.0 / p)
    return a, cost + div, slope * da + ddiv


@borrowing
def joint_root(
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


@borrowing
def halley(x: float, g: float, dg: float, d2g: float, w: float, low: float, high: float) -> float:
    """Return Halley's next x for sqrt(G) = sqrt(w), or the middle when it leaves the bracket."""
    newton = 2.0 * (g - math.sqrt(w * g)) / dg
    bend = 1.0 - 0.5 * newton * (d2g / dg - 0.5 * dg / g)
    new = x - newton / bend
    if not low <= new <= high or bend < 0.5:
        new = 0.5 * (low + high)
    return new


@borrowing
def joint_prob(p: float, a: float) -> float:
    """Return p' at the point a of the curve."""
    return p * (1.0 + a) / (1.0 + p * a)


@borrowing
def left_solve(family: int, p: float, w: float, nu: float, par: float) -> tuple[float, float]:
    """Solve G = w on the branch towards p' = 0 (p < 1); return the place x and p'."""
    high = w - math.log1p(-p) / p
    eta = joint_root(LEFT + family, p, w, nu, par, 0.0, high, min(w, 0.5 * high))
    left = math.exp(-eta)
    return _left_place(family, eta, nu, par), p * left / ((1.0 - p) + p * left)
