"""The joint bound for rewards through several outcomes, for one arm at a time and for arrays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from zib.core.cache import cached_njit
from zib.core.kernel import borrowing
from zib.core.validate import InvalidParameterError, shown
from zib.theory._vectorise import NONNEGATIVE, REAL, Array, Check, number, same_shape
from zib.theory.elementary import log1p_defect

# sup{Σ q'_j v'_j : Σ B_j log(q_j/q'_j) + Σ B_j (v'_j - v_j)²/(2 s_j²) <= level}, q_j = B_j/n.
#
# With multipliers c for the budget and eta for Σ q'_j = 1 the stationarity conditions are
#     q'_j = c B_j/(eta - v'_j),      (v'_j - v_j)(eta - v'_j) = s_j².
# So h_j = eta - v'_j solves h + s_j²/h = eta - v_j, one quadratic per outcome, and everything is a
# function of eta alone: v'_j = v_j + s_j²/h_j, c = 1/Σ(B_j/h_j), and one equation is left,
#     G = Σ B_j [y_j - log(1+y_j) + s_j²/(2 h_j²)] = level,    y_j = q'_j/q_j - 1 = n c/h_j - 1.
# Along such a curve the value grows with G (its slope is c).
#
# Each quadratic has a large root (h >= s_j) and a small one. Were two outcomes i, k on the small
# root, moving probability from one to the other along dq'_j = (q'_j/h_j) dv'_j would change neither
# constraint to first order and raise the value to second order. So at a maximum at most one outcome
# is there. With all on the large root
#     dG/deta = 1/c - n c Σ B_j/(h_j² - s_j²) <= 0   (Cauchy-Schwarz)
# and the root is unique; it ends at eta = max_j (v_j + 2 s_j). With outcome i on the small root G
# need not be monotone and its curve is scanned; B_i <= 2 level is necessary, as s_i/h_i >= 1.
#
# An outcome never seen (B = 0) that would pay `top` needs eta >= top. If G(top) < level, then
# eta = top, all q'_j shrink by exp(-(level - G)/n), and it gets what they lose. No outcome can be
# on the small root then, by the same argument.
#
# The coordinate of a curve is x = 1/h of one outcome, the `lead`: sqrt(G) is nearly straight in it.

CELLS = 24
LEAST = 1e-290  # stands for 0 in denominators


@borrowing
def _large_root(far: float, s: float) -> float:
    """Return the large root h of h + s²/h = far >= 2s."""
    return 0.5 * (far + math.sqrt(max(far - 2.0 * s, 0.0) * (far + 2.0 * s)))


@borrowing
def _curve(
    counts: Any, means: Any, row: int, scales: Any, at: int, n: float, lead: int, h: float
) -> tuple[float, float, float]:
    """Return (G, dG/dx, value) where the lead has this h and the others take their large root."""
    m = counts.shape[1]
    s_lead = scales[at + lead]
    v_lead = means[row, lead]
    away = h + s_lead * s_lead / h  # eta - v_lead
    b_lead = counts[row, lead]
    over_c = b_lead / h
    bend = 0.0
    for j in range(m):
        b = counts[row, j]
        if j != lead and b > 0.0:
            s = scales[at + j]
            far = away + (v_lead - means[row, j])
            gap = math.sqrt(max(far - 2.0 * s, 0.0) * (far + 2.0 * s))
            h_j = max(0.5 * (far + gap), LEAST)
            over_c += b / h_j
            bend += b / max(h_j * gap, LEAST)
    middle = n / over_c
    cost = 0.0
    value = 0.0
    for j in range(m):
        b = counts[row, j]
        if b > 0.0:
            s = scales[at + j]
            v = means[row, j]
            h_j = h
            if j != lead:
                h_j = max(_large_root(away + (v_lead - v), s), LEAST)
            t = s / h_j
            ratio = middle / h_j  # q'_j/q_j
            if ratio < 0.5:
                part = (ratio - 1.0) - math.log(max(ratio, LEAST))
            else:
                part = log1p_defect((middle - h_j) / h_j)
            cost += b * (part + 0.5 * t * t)
            value += b / n * ratio * (v + s * t)
    slope = middle * b_lead - (h - s_lead) * (h + s_lead) * (over_c - middle * bend)
    if not -math.inf < slope < math.inf:
        slope = 0.0
    return cost, slope, value


@borrowing
def _root(
    counts: Any,
    means: Any,
    row: int,
    scales: Any,
    at: int,
    n: float,
    lead: int,
    level: float,
    low: float,
    high: float,
    start: float,
) -> float:
    """Return the value where G = level, for x between `low` (G <= level) and `high` (G >= level).

    Newton steps on sqrt(G); bisection when one leaves the bracket.
    """
    x = start
    last = False
    for _ in range(300):
        g, dg, value = _curve(counts, means, row, scales, at, n, lead, 1.0 / x)
        if last:
            break
        if g > level:
            high = x
        else:
            low = x
        new = 0.5 * (low + high)
        if low == 0.0:
            new = 0.25 * high
        elif high > 4.0 * low:
            new = math.sqrt(low) * math.sqrt(high)
        if 0.0 < g < math.inf and dg > 0.0:
            step = x - 2.0 * (g - math.sqrt(level) * math.sqrt(g)) / dg
            if low <= step <= high and step > 0.0:
                new = step
                last = abs(new - x) <= 1e-9 * x
        last = last or high - low <= 4e-16 * high
        x = new
    return value


@borrowing
def _scan(
    counts: Any,
    means: Any,
    row: int,
    scales: Any,
    at: int,
    n: float,
    lead: int,
    level: float,
    left: float,
    right: float,
) -> float:
    """Return the largest value where G = level with the lead on its small root, left <= x <= right.

    G(right) >= level. Only places where G rises through the level are maxima.
    """
    best = -math.inf
    x = left
    g, dg, _ = _curve(counts, means, row, scales, at, n, lead, 1.0 / x)
    for i in range(1, CELLS + 1):
        low = x
        g_before = g
        dg_before = dg
        x = left + (right - left) * (i / CELLS)
        g, dg, _ = _curve(counts, means, row, scales, at, n, lead, 1.0 / x)
        high = x
        found = g_before <= level and g >= level
        hump = g_before <= level and g <= level and dg_before >= 0.0 and dg <= 0.0
        dip = g_before >= level and g >= level and dg_before <= 0.0 and dg >= 0.0
        if not found and (hump or dip):
            # walk to the turning point; stop as soon as G is on the other side of the level
            a = low
            b = high
            for _ in range(60):
                half = 0.5 * (a + b)
                g_half, dg_half, _ = _curve(counts, means, row, scales, at, n, lead, 1.0 / half)
                if (hump and g_half > level) or (dip and g_half < level):
                    found = True
                    break
                if (dg_half > 0.0) == hump:
                    a = half
                else:
                    b = half
            if hump:
                high = 0.5 * (a + b)
            else:
                low = 0.5 * (a + b)
        if found:
            start = 0.5 * (low + high)
            value = _root(counts, means, row, scales, at, n, lead, level, low, high, start)
            best = max(best, value)
    return best


@borrowing
def outcome_upper(
    counts: Any, means: Any, row: int, scales: Any, at: int, level: float, top: float
) -> float:
    """Return the joint upper bound of the mean reward of one arm with several outcomes.

    ``counts[row, j]`` is how often outcome j was seen and ``means[row, j]`` its mean, or what it
    could pay if it was never seen (-inf: leave it out); ``scales[at + j]`` is its standard
    deviation, 0 for a known value. `top` is what a further outcome could pay that was never seen,
    -inf when there is none. ``inf`` without any observation.
    """
    m = counts.shape[1]
    n = 0.0
    mean = 0.0
    for j in range(m):
        b = counts[row, j]
        if b > 0.0:
            n += b
            mean += b * means[row, j]
        else:
            top = max(top, means[row, j])
    if n <= 0.0:
        return math.inf
    mean /= n
    if level <= 0.0:
        return mean
    variance = 0.0
    edge = -math.inf  # eta cannot be below
    lead = 0
    for j in range(m):
        b = counts[row, j]
        if b > 0.0:
            s = scales[at + j]
            v = means[row, j]
            variance += b / n * (s * s + (v - mean) * (v - mean))
            if v + 2.0 * s > edge:
                edge = v + 2.0 * s
                lead = j
    s_lead = scales[at + lead]
    v_lead = means[row, lead]
    if variance <= 0.0:
        if top <= mean:
            return mean
        return mean * math.exp(-level / n) - top * math.expm1(-level / n)
    # all on the large root
    best = -math.inf
    limit = math.inf  # largest x of the lead
    g = math.inf
    value = 0.0
    if top > edge:
        edge = top
        h = _large_root(top - v_lead, s_lead)
        limit = 1.0 / h
        g, _, value = _curve(counts, means, row, scales, at, n, lead, h)
        if g < level:
            best = value * math.exp((g - level) / n) - top * math.expm1((g - level) / n)
    elif s_lead > 0.0:
        limit = 1.0 / s_lead
        g, _, value = _curve(counts, means, row, scales, at, n, lead, s_lead)
    if g >= level:
        far = mean - v_lead + math.sqrt(n * (variance / (2.0 * level)))
        start = 0.5 * limit
        if far > 2.0 * s_lead and far > 0.0:
            start = 1.0 / _large_root(far, s_lead)
        if limit == math.inf:
            # the lead is a known value, G grows like a logarithm of x
            limit = start if start < math.inf else 1.0 / math.sqrt(variance)
            factor = 4.0
            g = 0.0
            while limit < 1e290:
                g, _, value = _curve(counts, means, row, scales, at, n, lead, 1.0 / limit)
                if g >= level:
                    break
                limit = limit * factor if limit < 1e290 / factor else 1e290
                factor = min(factor * factor, 1e100)
            start = min(start, limit)
        if g >= level:
            best = _root(
                counts, means, row, scales, at, n, lead, level, 0.0, limit, min(start, limit)
            )
        else:
            best = v_lead
    # one on the small root
    for i in range(m):
        b = counts[row, i]
        s = scales[at + i]
        if b > 0.0 and s > 0.0 and b <= 2.0 * level:
            right = math.sqrt(2.0 * level / b) / s * (1.0 + 1e-12)  # so that G >= level there
            far = max(edge - means[row, i], 2.0 * s)
            left = _large_root(far, s) / (s * s)
            if left < right:
                best = max(best, _scan(counts, means, row, scales, at, n, i, level, left, right))
    return best


def _all_rows(counts: Any, means: Any, scales: Any, levels: Any, out: Any) -> None:
    m = counts.shape[1]
    for i in range(out.size):
        out[i] = outcome_upper(counts, means, i, scales, i * m, levels[i], -np.inf)


_fill = cached_njit(_all_rows)


def outcome_kl_upper(
    counts: ArrayLike, means: ArrayLike, sigma: ArrayLike, level: ArrayLike
) -> Any:
    """Return the largest mean reward that the likelihood ratio of all outcomes does not exclude.

    Parameters
    ----------
    counts
        How often each of m outcomes was seen, along the last axis.
    means
        Mean reward of each outcome, along the last axis. For an outcome never seen: what it could
        pay; leave such outcomes out where nothing is known.
    sigma
        Standard deviation of the rewards of each outcome, one for all or along the last axis; 0 for
        outcomes that always pay the same.
    level
        Budget of log-likelihood, >= 0; broadcasts against the other axes.

    Returns
    -------
    float or ndarray
        sup{Σ q'_j v'_j : n KL(q_hat, q') + Σ B_j (v_j - v'_j)²/(2 sigma_j²) <= level}, error below
        1e-10 of the scale of the rewards; ``inf`` without any observation.

    Notes
    -----
    Zero inflation is the case of two outcomes, one of which pays 0: then this is `joint_kl_upper`.
    With known values (sigma = 0) it is the empirical-likelihood bound of Burnetas and Katehakis for
    laws on finitely many points. To first order the width is √(2 level Var(R)/n).

    The set is convex, the mean reward is not concave on it; the global supremum is returned. The
    stationary points lie on curves with one coordinate, of which at most one outcome is far from
    its observed mean, and each curve is searched.

    Examples
    --------
    >>> seen = [900, 60, 30, 10]  # ignored, clicked, bought, returned
    >>> round(outcome_kl_upper(seen, means=[0.0, 1.0, 20.0, -15.0], sigma=0.0, level=3.0), 4)
    0.8307
    """
    often = _entries("counts", counts, NONNEGATIVE)
    paid = _entries("means", means, REAL)
    wide = NONNEGATIVE("sigma", sigma)
    budget = NONNEGATIVE("level", level)
    m = often.shape[-1]
    if paid.shape[-1] != m or (wide.ndim > 0 and wide.shape[-1] != m):
        raise InvalidParameterError(
            "`means` and `sigma` must have one entry per outcome, as `counts` has; got shapes "
            f"{paid.shape} and {wide.shape} for {often.shape}"
        )
    if wide.ndim == 0:
        wide = np.full(m, float(wide))
    same_shape(often[..., 0], paid[..., 0], wide[..., 0], budget)
    shape = np.broadcast_shapes(often.shape[:-1], paid.shape[:-1], wide.shape[:-1], budget.shape)
    rows = [
        np.ascontiguousarray(np.broadcast_to(a, (*shape, m)).reshape(-1, m))
        for a in (often, paid, wide)
    ]
    out = np.empty(rows[0].shape[0])
    _fill(
        *rows[:2],
        rows[2].flatten(),
        np.broadcast_to(budget, shape).flatten(),
        out,
    )
    return number(out.reshape(shape))


def _entries(name: str, value: ArrayLike, allowed: Check) -> Array:
    array = allowed(name, value)
    if array.ndim == 0:
        raise InvalidParameterError(f"`{name}` must have one entry per outcome; got {shown(value)}")
    return array
