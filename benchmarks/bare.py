"""What a careful person would write by hand for one policy and one environment, and nothing else.

No validation, no checkpoints, no pairing of rewards between policies, no save or load, no
refill of reward blocks: these loops are the yardstick for how much the generality of the library
costs. They play the same policies as the library, so simple formulas stand here a second time on
purpose; the KL bound is the library's own, which no quick hand-written solver comes near. Reference
counting is off and all is inlined, as in the library: without that a draw costs a third more.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit
from numba.extending import register_jitable

from zib.theory.bernoulli import kl_upper_scalar as kl_upper


def lean(function: Callable[..., Any]) -> Any:
    """Compile a function that allocates nothing: inlined, without reference counting."""
    inner = register_jitable(_nrt=False, forceinline=True)(function)

    @njit
    def entry(*args: Any) -> Any:
        return inner(*args)

    return entry


@register_jitable(_nrt=False, forceinline=True)
def _pull(arm: int, means: Any, probs: Any, sigma: float, rng: Any) -> float:
    if rng.random() < probs[arm]:
        return float(means[arm] + sigma * rng.standard_normal())
    return 0.0


def zi_ucb(
    horizon: int, rounds: int, means: Any, probs: Any, sigma: float, kl: bool, rng: Any
) -> float:
    """Play zero-inflated UCB, radius given the count; occurrence by Hoeffding or by KL."""
    sums = (np.zeros(means.size), np.zeros(means.size), np.zeros(means.size))
    size = np.full(means.size, -np.inf)
    share = np.ones(means.size)
    index = np.full(means.size, np.inf)
    return float(_zi_ucb(horizon, rounds, means, probs, sigma, kl, rng, *sums, size, share, index))


@lean
def _zi_ucb(  # type: ignore[no-untyped-def]
    horizon, rounds, means, probs, sigma, kl, rng, n, count, total, size, share, index
):
    n_arms = means.size
    level = 2.0 * math.log(horizon) - math.log(2.0)  # log(2 / delta), delta = 4 / T^2
    unpaid = n_arms
    regret = 0.0
    top = 0.0
    for k in range(n_arms):
        top = max(top, means[k] * probs[k])
    for _ in range(rounds):
        if unpaid > 0:  # arms that never paid borrow the most optimistic size of the others
            most = -np.inf
            for k in range(n_arms):
                most = max(most, size[k])
            for k in range(n_arms):
                if n[k] > 0.0 and count[k] == 0.0:
                    index[k] = most * share[k] if most > -np.inf else np.inf
        arm = 0
        best = index[0]
        for k in range(1, n_arms):
            if index[k] > best:
                best = index[k]
                arm = k
        reward = _pull(arm, means, probs, sigma, rng)
        regret += top - means[arm] * probs[arm]
        n[arm] += 1.0
        if reward != 0.0:
            if count[arm] == 0.0:
                unpaid -= 1
            count[arm] += 1.0
            total[arm] += reward
        rate = count[arm] / n[arm]
        if kl:
            share[arm] = kl_upper(rate, n[arm], level)
        else:
            share[arm] = min(1.0, rate + math.sqrt(level / (2.0 * n[arm])))
        if count[arm] > 0.0:
            size[arm] = total[arm] / count[arm] + sigma * math.sqrt(2.0 * level / count[arm])
            index[arm] = size[arm] * share[arm]
    return regret


def zi_ts(horizon: int, rounds: int, means: Any, probs: Any, sigma: float, rng: Any) -> float:
    """Play clipped zero-inflated Thompson sampling: rho = 0.9, gamma = 4, uniform prior."""
    sums = (np.zeros(means.size), np.zeros(means.size), np.zeros(means.size))
    derived = (np.zeros(means.size), np.zeros(means.size))
    caps = (np.full(means.size, np.inf), np.ones(means.size))
    return float(_zi_ts(horizon, rounds, means, probs, sigma, rng, *sums, *derived, *caps))


@lean
def _zi_ts(  # type: ignore[no-untyped-def]
    horizon, rounds, means, probs, sigma, rng, n, count, total, mean, scale, cap_size, cap_share
):
    n_arms = means.size
    rho = 0.9
    gamma = 4.0
    unpaid = n_arms
    regret = 0.0
    top = 0.0
    for k in range(n_arms):
        top = max(top, means[k] * probs[k])
    for t in range(rounds):
        arm = 0
        if t < n_arms:
            arm = t
        else:
            best = -np.inf
            most = -np.inf
            for k in range(n_arms):
                if count[k] > 0.0:
                    share = min(rng.beta(1.0 + count[k], 1.0 + n[k] - count[k]), cap_share[k])
                    size = min(mean[k] + scale[k] * rng.standard_normal(), cap_size[k])
                    most = max(most, size)
                    value = share * size
                    if value > best:
                        best = value
                        arm = k
            if unpaid > 0:
                for k in range(n_arms):
                    if count[k] == 0.0:
                        share = rng.beta(1.0, 1.0 + n[k])
                        value = share * most if most > -np.inf else share
                        if value > best:
                            best = value
                            arm = k
        reward = _pull(arm, means, probs, sigma, rng)
        regret += top - means[arm] * probs[arm]
        n[arm] += 1.0
        if reward != 0.0:
            if count[arm] == 0.0:
                unpaid -= 1
            count[arm] += 1.0
            total[arm] += reward
        if count[arm] > 0.0:
            rate = count[arm] / n[arm]
            log_share = max(0.0, math.log(horizon / (4.0 * n[arm] * n_arms)))
            cap_share[arm] = rate + math.sqrt(gamma / (4.0 * n[arm]) * log_share)
            mean[arm] = total[arm] / count[arm]
            scale[arm] = sigma * math.sqrt(2.0 / (rho * count[arm]))
            q = 1.0 + 1.0 / math.log1p(1.0 / math.sqrt(n[arm] * horizon))
            width = 4.0 * q * sigma * sigma / (rate * rate * n[arm])
            log_size = max(0.0, math.log(width * horizon / n_arms))
            cap_size[arm] = mean[arm] + math.sqrt(gamma * width * log_size)
    return regret
