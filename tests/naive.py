"""The slow, obvious oracle: every index from the full history, with SciPy doing the solving.

Nothing here is shared with the package. Each function takes the list of rewards of one arm (in
order), the number of arms and the round, and returns the index of that arm; `math.inf` before the
first pull. Arms that never paid are completed by `choose_scores`.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import optimize


def kl(p: float, q: float) -> float:
    total = 0.0
    if p > 0:
        total += p * math.log(p / q)
    if p < 1:
        total += (1 - p) * math.log((1 - p) / (1 - q))
    return total


def kl_upper(p: float, n: int, level: float) -> float:
    if p == 1:
        return 1.0
    gap = lambda q: n * kl(p, q) - level  # noqa: E731
    if gap(1 - 1e-15) < 0:
        return 1.0
    return optimize.brentq(gap, max(p, 1e-300), 1 - 1e-15, xtol=1e-15, rtol=1e-14)


def kl_lower(p: float, n: int, level: float) -> float:
    return 1 - kl_upper(1 - p, n, level)


def tau_squared(mu: float, p: float, sigma: float, bound: float = math.inf) -> float:
    def f(s: float) -> float:
        x = s * mu + s * s * sigma * sigma / 2
        return (
            2
            / s**2
            * (-s * mu * p + np.logaddexp(math.log1p(-p) if p < 1 else -math.inf, math.log(p) + x))
        )

    best = p * sigma**2 + p * (1 - p) * mu**2  # the limit s -> 0
    top = min(bound, 200 / max(abs(mu), 1e-12))
    grid = np.concatenate([np.geomspace(1e-4 / max(abs(mu), 1), top, 4000)])
    for sign in (1, -1):
        values = np.array([f(sign * s) for s in grid])
        i = int(values.argmax())
        low, high = grid[max(i - 1, 0)], grid[min(i + 1, grid.size - 1)]
        found = optimize.minimize_scalar(
            lambda s, sign=sign: -f(sign * s),
            bounds=(low, high),
            method="bounded",
            options={"xatol": 1e-12},
        )
        best = max(best, -found.fun, values[i])
    return best


def nonzero(rewards: list[float]) -> list[float]:
    return [r for r in rewards if r != 0]


# Each returns (U_mu or None when the arm never paid, lower bound of p, upper bound of p)


def zi_ucb_parts(rewards, horizon, sigma, radius, occurrence):
    n, x = len(rewards), nonzero(rewards)
    delta = 4 / horizon**2
    p = len(x) / n
    level = math.log(2 / delta)
    if occurrence == "kl":
        low, high = kl_lower(p, n, level), kl_upper(p, n, level)
    else:
        wide = math.sqrt(level / (2 * n))
        low, high = max(0, p - wide), min(1, p + wide)
    if not x:
        return None, low, high
    if radius == "given_count":
        wide = sigma * math.sqrt(2 * level / len(x))
    else:
        size = sigma * math.sqrt(8 / 3)
        d = math.sqrt(17 / (6 * math.e**2)) * max(1 / size, size ** (2 / 2 - 1))
        wide = 2 * math.e * d * size * math.sqrt(math.log(4 / delta) / (n * p / 2))
    return sum(x) / len(x) + wide, low, high


def heavy_parts(history, t, epsilon, moment):
    """`history` holds (round of arrival, reward)."""
    rewards = [r for _, r in history]
    n, x = len(rewards), nonzero(rewards)
    log_t = math.log(max(t, 2))
    p = len(x) / n
    wide = math.sqrt(2 * math.log(max(t, 2) ** 2) / n)
    low, high = max(0, p - wide), min(1, p + wide)
    if not x:
        return None, low, high
    kept, j = 0.0, 0
    for arrived, r in history:
        if r != 0:
            j += 1
            limit = (j * moment / math.log(max(arrived, 2) ** 2)) ** (1 / (1 + epsilon))
            if abs(r) <= limit:
                kept += r
    power = epsilon / (1 + epsilon)
    mean_upper = kept / len(x) + 4 * moment ** (1 / (1 + epsilon)) * (2 * log_t / len(x)) ** power
    return mean_upper, low, high


def product_indices(parts: list[tuple | None]) -> list[float]:
    """Sign-safe products; arms that never paid borrow the largest magnitude bound."""
    paid = [part[0] for part in parts if part is not None and part[0] is not None]
    out = []
    for part in parts:
        if part is None:
            out.append(math.inf)
            continue
        mean_upper, low, high = part
        if mean_upper is None:
            if not paid:
                out.append(math.inf)
                continue
            mean_upper, low = max(paid), 0.0
        out.append(mean_upper * (high if mean_upper >= 0 else low))
    return out


def baseline_index(rewards, horizon, sigma, rule, true_size=None):
    n, x = len(rewards), nonzero(rewards)
    mean = sum(rewards) / n
    level = math.log(2 / (4 / horizon**2))
    if rule == "true":
        size2 = true_size**2
    elif rule == "component" or not x:
        size2 = sigma**2
    elif rule == "variance":
        size2 = float(np.var(rewards))
    else:
        size2 = tau_squared(sum(x) / len(x), len(x) / n, sigma)
    return mean + math.sqrt(2 * size2 * level / n)


def baseline_index_subexponential(rewards, horizon, lam, rule):
    n, x = len(rewards), nonzero(rewards)
    mean = sum(rewards) / n
    level = math.log(2 / (4 / horizon**2))
    if rule == "component" or not x:
        alpha = lam
    elif rule == "variance":
        alpha = float(np.std(rewards))
    else:
        inner = tau_squared(sum(x) / len(x), len(x) / n, lam, bound=1 / lam)
        alpha = math.sqrt(max(lam**2, inner))
    return mean + alpha * math.sqrt(2 * level / n) + alpha * level / n


def zi_ts_scores(histories, rng, horizon, sigma, rho=0.9, gamma=4.0, alpha=1.0, beta=1.0):
    """Algorithm MAB-light-TS with the same stream of draws: paid arms first, then the others."""
    n_arms = len(histories)
    out = [math.inf] * n_arms
    top = -math.inf
    for k, rewards in enumerate(histories):
        x = nonzero(rewards)
        if not x:
            continue
        n, p, mu = len(rewards), len(x) / len(rewards), sum(x) / len(x)
        plus = lambda v: max(math.log(v), 0)  # noqa: E731
        prob_cap = p + math.sqrt(gamma / (4 * n) * plus(horizon / (4 * n * n_arms)))
        q = 1 + 1 / math.log(1 + 1 / math.sqrt(n * horizon))
        first = 4 * gamma * q * sigma**2 / (p**2 * n)
        mean_cap = mu + math.sqrt(first) * math.sqrt(
            plus(4 * q * sigma**2 * horizon / (p**2 * n * n_arms))
        )
        prob = min(rng.beta(alpha + len(x), beta + n - len(x)), prob_cap)
        mean = min(rng.normal(mu, math.sqrt(2 * sigma**2 / (rho * n * p))), mean_cap)
        top = max(top, mean)
        out[k] = prob * mean
    for k, rewards in enumerate(histories):
        if rewards and not nonzero(rewards):
            out[k] = (top if top > -math.inf else 1.0) * rng.beta(alpha, beta + len(rewards))
    return out
