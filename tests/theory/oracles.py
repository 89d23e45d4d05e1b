"""Slow, obvious versions of what `zib.theory` computes fast."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import optimize


def kl(p: float, q: Any) -> Any:
    """kl(p, q) between Bernoulli laws, for 0 < p <= 1 and arrays q."""
    q = np.asarray(q, dtype=float)
    with np.errstate(all="ignore"):
        first = np.where(q < 0.5 * p, -p * np.log(q / p), -p * np.log1p((q - p) / p))
        if p == 1.0:
            return first
        return first - (1 - p) * np.log1p((p - q) / (1 - p))


def kl_bound(p: float, c: float, upper: bool) -> float:
    """Solve kl(p, q) = c by bisection in log((1-p)/(1-q)) or log(p/q), in extended precision."""
    ld = np.longdouble
    a, b = (ld(p), ld(1.0 - p)) if upper else (ld(1.0 - p), ld(p))

    def value(y: Any) -> Any:
        d = -b * np.expm1(-y)
        return b * y - a * np.log1p(d / a)

    low, high = ld(0.0), ld(1.0)
    while value(high) < c:
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        if value(middle) > c:
            high = middle
        else:
            low = middle
    return float(a - b * np.expm1(-low)) if upper else float(b * np.exp(-low))


def joint_upper(n: float, count: float, level: float, best: Callable[[Any], Any]) -> float:
    """Maximise p' * best(budget left for mu') over p' on a fine grid that is refined six times.

    `best(u)` is the largest mu' whose divergence, times the count, is at most u.
    """
    p = count / n
    c = level / n
    low = float(np.exp(-c)) if p == 1.0 else kl_bound(p, c, upper=False)
    high = 1.0 if p == 1.0 else kl_bound(p, c, upper=True)
    near = np.geomspace(1e-13, 1, 3000)
    grid = np.unique(
        np.concatenate(
            [
                [low, high, p],
                np.geomspace(low, high, 8001),
                np.linspace(low, high, 8001),
                low + (p - low) * near,
                high - (high - p) * near,
                p + (low - p) * near,
                p + (high - p) * near,
            ]
        )
    )
    grid = grid[(grid >= low) & (grid <= high)]
    top = -np.inf
    for _ in range(7):
        values = grid * best(np.maximum(level - n * kl(p, grid), 0.0))
        i = int(np.argmax(values))
        top = max(top, float(values[i]))
        grid = np.linspace(grid[max(i - 1, 0)], grid[min(i + 1, grid.size - 1)], 201)
    return top


def gamma_ratio(c: Any, upper: bool) -> Any:
    """Solve 1/y - 1 + log y = c for y > 1 (upper) or y < 1 by bisection in log y."""
    c = np.asarray(c, dtype=float)
    low = np.zeros_like(c)
    high = (c + 2 + np.sqrt(2 * c)) * (1.0 if upper else -1.0)
    for _ in range(60):
        middle = (low + high) / 2
        above = np.expm1(-middle) + middle > c
        high = np.where(above, middle, high)
        low = np.where(above, low, middle)
    return np.exp(low)


def lognormal_log_mean(c: float, variance: float, upper: bool) -> float:
    """Extreme of d + S/2 where log(S/s²)/2 + (s² + d²)/(2S) - 1/2 <= c, on a grid over S."""

    def square(log_s: Any) -> Any:
        big = np.exp(log_s)
        return 2 * big * (c + 0.5 - 0.5 * (log_s - np.log(variance))) - variance

    edges = []
    for sign in (-1.0, 1.0):
        far = np.log(variance)
        step = 1e-3
        while square(far) >= 0:
            far += sign * step
            step *= 2
        edges.append(optimize.brentq(square, np.log(variance), far) if c > 0 else far)
    grid = np.linspace(*sorted(edges), 2001)
    sign = 1.0 if upper else -1.0
    top = -np.inf
    for _ in range(5):
        values = sign * (sign * np.sqrt(np.maximum(square(grid), 0)) + np.exp(grid) / 2)
        i = int(np.argmax(values))
        top = max(top, float(values[i]))
        grid = np.linspace(grid[max(i - 1, 0)], grid[min(i + 1, grid.size - 1)], 401)
    return sign * top


def log_mgf(s: Any, mean: float, prob: float, sigma: float) -> Any:
    """log E exp(s(R - mu p)) for Gaussian X, in extended precision."""
    s = np.asarray(s, dtype=np.longdouble)
    p = np.longdouble(prob)
    u = s * mean + s * s * np.longdouble(sigma) ** 2 / 2
    big = np.maximum(u, 0)
    return big + np.log(p * np.exp(u - big) + (1 - p) * np.exp(-big)) - s * mean * p


def variance_proxy(mean: float, prob: float, sigma: float, limit: float = np.inf) -> float:
    """Maximise 2 log_mgf/s² over |s| <= limit on a logarithmic grid, refined; both signs."""
    top = prob * sigma**2 + prob * (1 - prob) * mean**2
    for sign in (-1.0, 1.0):
        grid = np.geomspace(1e-4, 1e4, 5001, dtype=np.longdouble) / abs(mean)
        grid = np.append(grid[grid < limit], limit) if np.isfinite(limit) else grid
        for _ in range(5):
            values = 2 * log_mgf(sign * grid, mean, prob, sigma) / grid**2
            i = int(np.argmax(values))
            top = max(top, float(values[i]))
            grid = np.linspace(grid[max(i - 1, 0)], grid[min(i + 1, grid.size - 1)], 101)
    return top


def divergence(mean: float, prob: float, target: float, div: Callable[[Any], Any]) -> float:
    """Minimise kl(p, p') + p div(target/p') over p' on a fine grid that is refined."""
    grid = np.unique(np.concatenate([np.linspace(0, 1, 40001)[1:], np.geomspace(1e-9, 1, 40001)]))
    low = np.inf
    for _ in range(6):
        with np.errstate(all="ignore"):
            values = kl(prob, grid) + prob * div(target / grid)
        values = np.where(np.isnan(values), np.inf, values)
        i = int(np.argmin(values))
        low = min(low, float(values[i]))
        grid = np.linspace(grid[max(i - 1, 0)], grid[min(i + 1, grid.size - 1)], 401)
    return low
