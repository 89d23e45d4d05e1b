"""Scalar formulas for confidence bounds, shared by the compiled loops and the interpreter.

Each formula is written once, with ``math`` only, and gives the same bits compiled and interpreted.
Nothing here checks its arguments and nothing raises: the public functions of `zib.theory` validate
first, and the policies pass statistics that are valid by construction. Counts of zero are answered
with the bound that holds without data (``inf`` for a mean, 1 for a probability).
"""

from __future__ import annotations

import math

from numba.extending import register_jitable

from zib.theory.elementary import log1p, power

# --------------------------------------------------------------------------------------------
# Bernoulli bounds


@register_jitable
def _kl_shift(p: float, comp: float, c: float) -> tuple[float, float]:
    """Solve kl(p, q) = c for q > p; return q - p and 1 - q. comp = 1 - p; 0 < p < 1, c > 0.

    The start is a fitted formula for y = log((1-p)/(1-q)) that joins sqrt(2 c p/comp), right for
    small c, to c/comp, right for large c; it is within 0.7 % for p < 0.95. One step of fifth order
    (the inverse Taylor series of kl) then leaves 1e-13. The loops serve the corners where the fit
    is poorer. Below y = 1 the step is taken in d = q - p, where the two logarithms do not wait for
    each other; above, in y, which keeps its accuracy however close q comes to 1.
    """
    w = c / (p * comp)
    s = math.sqrt(w)
    top = (1.0 - 2.0 * p) * 0.3333333333333333 + p * s * (-0.1084 + p * (-0.1674 + p * 0.3157))
    bottom = (
        1.0 + s * (0.5046 + p * (-1.6667 + p * 1.2577)) + w * (0.0616 + p * (1.655 - p * 1.5973))
    )
    b = 0.5 * w * (1.0 + top / bottom)
    y = p * (b + math.sqrt(b * b + 2.0 * w))
    if y < 1.0:
        # Padé for 1 - exp(-y)
        d = comp * y / (1.0 + y * (0.5 + y * 0.08333333333333333))
        for _ in range(60):
            q = p + d
            e = comp - d
            over_d = 1.0 / d
            g = (-p * log1p(d / p) - comp * log1p(-d / comp) - c) * over_d
            step = g * q * e
            if -0.1 * d < step < 0.1 * d:
                ee = e * e
                qq = q * q
                r = g * over_d
                h2 = 0.5 * r * (p * ee + comp * qq)
                h3 = 0.3333333333333333 * (g * r) * (comp * qq * q - p * ee * e)
                h4 = 0.25 * (g * g * r) * (p * ee * ee + comp * qq * qq)
                step *= (1.0 + (h2 - h3) + h4) + h2 * (2.0 * h2 - 5.0 * h3 + 5.0 * h2 * h2)
            new = d - step
            if new <= 0.0:
                new = 0.25 * d
            elif new >= comp:
                new = 0.5 * (d + comp)
            d = new
            if -0.005 * d <= step <= 0.005 * d:
                break
        return d, comp - d
    for _ in range(60):
        shrunk = math.exp(-y)
        d = comp * (1.0 - shrunk)
        q = p + d
        e = comp * shrunk
        g = (comp * y - p * log1p(d / p) - c) / d
        step = g * q
        if -0.1 * y < step < 0.1 * y:
            h = g * e * p / d
            h2 = 0.5 * h
            h3 = -0.16666666666666666 * h * g * (q + 2.0 * e)
            h4 = 0.041666666666666664 * h * g * g * (q * (q + 6.0 * e) + 6.0 * e * e)
            step *= (1.0 + (h2 - h3) + h4) + h2 * (2.0 * h2 - 5.0 * h3 + 5.0 * h2 * h2)
        y = y - step if step < 0.75 * y else 0.25 * y
        if -0.003 * y <= step <= 0.003 * y:
            break
    shrunk = math.exp(-y)
    return comp * (1.0 - shrunk), comp * shrunk


@register_jitable
def kl_upper(p_hat: float, n: float, level: float) -> float:
    """Return sup{q : n kl(p_hat, q) <= level}; 1 where there are no observations."""
    if n <= 0.0 or p_hat >= 1.0:
        return 1.0
    if level <= 0.0:
        return p_hat
    c = level / n
    if p_hat < 1e-290:
        return -math.expm1(-c)
    d, _ = _kl_shift(p_hat, 1.0 - p_hat, c)
    q = p_hat + d
    return q if q < 1.0 else 1.0


@register_jitable
def kl_lower(p_hat: float, n: float, level: float) -> float:
    """Return inf{q : n kl(p_hat, q) <= level}; 0 where there are no observations."""
    if n <= 0.0 or p_hat <= 0.0:
        return 0.0
    if level <= 0.0:
        return p_hat
    c = level / n
    comp = 1.0 - p_hat
    if comp < 1e-290:
        return math.exp(-c)
    if p_hat < 1e-290:
        return 0.0
    _, q = _kl_shift(comp, p_hat, c)
    return q


@register_jitable
def hoeffding_radius(n: float, level: float) -> float:
    """Return sqrt(level / (2n)) with level = log(2/delta)."""
    return math.sqrt(0.5 * level / n) if n > 0.0 else math.inf


# --------------------------------------------------------------------------------------------
# bounds for the mean of the non-zero part


@register_jitable
def given_count_radius(count: float, level: float, sigma: float) -> float:
    """Return sigma sqrt(2 level / count): sub-Gaussian mean of `count` observations."""
    return sigma * math.sqrt(2.0 * level / count) if count > 0.0 else math.inf


@register_jitable
def subexponential_radius(count: float, level: float, lam: float) -> float:
    """Return lam sqrt(2 level/count) + lam level/count: sub-exponential mean."""
    if count <= 0.0:
        return math.inf
    return lam * math.sqrt(2.0 * level / count) + lam * level / count


@register_jitable
def subweibull_d(theta: float, size: float) -> float:
    """Return the constant D(theta) of the sub-Weibull inequality (it depends on the size too)."""
    if theta < 1.0:
        # max(sqrt 2, 2^(1/theta)) = 2^(1/theta); logs because it overflows for small theta
        log_d = (
            0.6931471805599453 / theta
            + 0.5 * math.log(8.0)
            + 3.0
            + 0.25 * math.log(6.283185307179586)
            + 0.041666666666666664
            + (2.0 / math.e - math.log(theta)) / theta
        )
        return math.exp(log_d) if log_d < 709.0 else math.inf
    if theta < 2.0:
        return math.sqrt(1.5) / math.e * max(1.0 / size, power(size, theta - 1.0))
    return math.sqrt(17.0 / 6.0) / math.e * max(1.0 / size, power(size, 0.5 * theta - 1.0))


@register_jitable
def subweibull_e(theta: float) -> float:
    """Return the constant E(theta) of the sub-Weibull inequality."""
    if theta < 1.0:
        return power(2.0, 2.0 / theta - 0.5)
    if theta < 2.0:
        return math.sqrt(0.16666666666666666)
    return 0.0


@register_jitable
def subweibull_mean_radius(n: float, s: float, theta: float, size: float) -> float:
    """Return 2e D C (sqrt(s/n) + E s^max(1/theta, 1) / n); exceeded w.p. at most 2 exp(-s)."""
    if n <= 0.0:
        return math.inf
    if s <= 0.0:
        return 0.0
    scale = 2.0 * math.e * subweibull_d(theta, size) * size
    if scale == math.inf:
        return math.inf
    if theta >= 2.0:
        return scale * math.sqrt(s / n)
    exponent = 1.0 / theta if theta < 1.0 else 1.0
    return scale * (math.sqrt(s / n) + subweibull_e(theta) * power(s, exponent) / n)


@register_jitable
def trim_threshold(j: float, level: float, moment: float, epsilon: float) -> float:
    """Return (j M / level)^(1/(1+eps)): the j-th non-zero reward is kept up to this size."""
    return power(j * moment / level, 1.0 / (1.0 + epsilon))


@register_jitable
def trimmed_count_radius(count: float, level: float, moment: float, epsilon: float) -> float:
    """Return 4 M^(1/(1+eps)) (level/count)^(eps/(1+eps)), level = log(2/delta)."""
    if count <= 0.0:
        return math.inf
    order = epsilon / (1.0 + epsilon)
    return 4.0 * power(moment, 1.0 / (1.0 + epsilon)) * power(level / count, order)


@register_jitable
def trimming_factor_scalar(p: float, epsilon: float) -> float:
    """Return g(p, eps), the constant of the trimmed-mean inequality."""
    if p <= 0.0:
        return math.inf
    order = epsilon / (1.0 + epsilon)
    return (1.0 + epsilon) * power(2.0 / p, order) + 4.0 / (3.0 * p) + 2.0 / math.sqrt(p)


@register_jitable
def trimmed_pulls_radius(n: float, p: float, level: float, moment: float, epsilon: float) -> float:
    """Return g(p, eps) M^(1/(1+eps)) (level/n)^(eps/(1+eps)), level = log(2/delta)."""
    return (
        trimming_factor_scalar(p, epsilon)
        * power(moment, 1.0 / (1.0 + epsilon))
        * power(level / n, epsilon / (1.0 + epsilon))
    )


# --------------------------------------------------------------------------------------------
# products


@register_jitable
def signed_product(mean_upper: float, prob_lower: float, prob_upper: float) -> float:
    """Return the largest mu*p over mu <= mean_upper, prob_lower <= p <= prob_upper."""
    if mean_upper >= 0.0:
        return mean_upper * prob_upper
    return mean_upper * prob_lower


@register_jitable
def unseen_upper_scalar(n: float, level: float, magnitude: float) -> float:
    """Return magnitude * sup{q : -n log(1-q) <= level}: an arm that has paid only zeros."""
    if n <= 0.0:
        return max(magnitude, 0.0)
    return max(magnitude, 0.0) * -math.expm1(-level / n)
