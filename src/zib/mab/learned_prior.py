"""Priors learned across arms: how often arms pay, and how much.

The marginal likelihood of all arms does not care how it was decided which arm to play, so it may be
maximised on data that a bandit collected. Both fits are refreshed when the number of rounds has
grown by five per cent, warm-started, at a cost of order K.

A fitted prior can be too sure of itself. It therefore never counts for more than `MOST_PAID`
rewards: an arm that was hardly played keeps at least that much doubt, whatever the others did.
"""

from __future__ import annotations

import math
from typing import Any

from zib.core.kernel import jitable
from zib.mab.families import GAUSSIAN, LOG_TOTAL, LOGNORMAL, N_SHARED, pooled_scale
from zib.stats.arms import CLOCK, FIRST_FREE

ALPHA, BETA, CENTRE, SPREAD, NEXT_FIT = range(FIRST_FREE + N_SHARED, FIRST_FREE + N_SHARED + 5)
N_PRIOR = 5
MOST_PAID = 20.0
GROWTH = 1.05
FIRST_FIT = 16.0
FEWEST_PAID = 3.0
STEPS = 8
STEPS_FROM_SCRATCH = 64


def start(state: Any, alpha: float, beta: float) -> None:
    """Put the prior that is in force before anything is learned."""
    state.shared[ALPHA] = alpha
    state.shared[BETA] = beta
    state.shared[NEXT_FIT] = max(FIRST_FIT, float(state.pulls.size))


@jitable
def digamma(x: float) -> float:
    """Return the logarithmic derivative of the gamma function for x > 0."""
    out = 0.0
    while x < 6.0:
        out -= 1.0 / x
        x += 1.0
    f = 1.0 / (x * x)
    series = f * (1.0 / 12 - f * (1.0 / 120 - f * (1.0 / 252 - f * (1.0 / 240 - f / 132))))
    return out + math.log(x) - 0.5 / x - series


@jitable
def fit_probabilities(state: Any, steps: int) -> None:
    """Climb the beta-binomial likelihood by Minka's fixed point."""
    alpha = state.shared[ALPHA]
    beta = state.shared[BETA]
    for _ in range(steps):
        paid = 0.0
        unpaid = 0.0
        tried = 0.0
        at_alpha = digamma(alpha)
        at_beta = digamma(beta)
        at_both = digamma(alpha + beta)
        for k in range(state.pulls.size):
            n = state.pulls[k]
            if n > 0.0:
                b = state.nonzero[k]
                if b > 0.0:
                    paid += digamma(b + alpha) - at_alpha
                if n > b:
                    unpaid += digamma(n - b + beta) - at_beta
                tried += digamma(n + alpha + beta) - at_both
        if paid <= 0.0 or unpaid <= 0.0 or tried <= 0.0:
            return
        alpha *= paid / tried
        beta *= unpaid / tried
        if alpha > MOST_PAID:
            beta *= MOST_PAID / alpha
            alpha = MOST_PAID
    state.shared[ALPHA] = max(alpha, 1e-3)
    state.shared[BETA] = max(beta, 1e-3)


@jitable
def place_and_noise(spec: Any, state: Any, arm: int, scale: float) -> tuple[float, float]:
    """Return the mean of an arm's non-zero rewards (or logarithms), and their variance."""
    count = state.nonzero[arm]
    if spec.family == LOGNORMAL:
        return state.cache[arm, LOG_TOTAL] / count, scale * scale
    mean = state.total[arm] / count
    if spec.family != GAUSSIAN:
        return mean, mean * mean / spec.shape
    sd = scale if math.isnan(spec.sigma) else spec.sigma
    return mean, sd * sd


@jitable
def _fit_magnitudes(spec: Any, state: Any, steps: int) -> None:
    """Climb the likelihood of normal means with a common normal prior by its EM steps."""
    scale = pooled_scale(state)
    centre = state.shared[CENTRE]
    spread = state.shared[SPREAD]
    for step in range(steps):
        total = 0.0
        squares = 0.0
        arms = 0.0
        for k in range(state.pulls.size):
            count = state.nonzero[k]
            if count > 0.0:
                mean, noise = place_and_noise(spec, state, k, scale)
                share = 1.0
                if step > 0 or spread > 0.0:
                    share = spread / (spread + noise / count) if spread + noise > 0.0 else 1.0
                guess = share * mean + (1.0 - share) * centre
                total += guess
                squares += guess * guess + share * noise / count
                arms += 1.0
        if arms == 0.0:
            return
        centre = total / arms
        spread = max(squares / arms - centre * centre, 0.0)
    state.shared[CENTRE] = centre
    # at least as much doubt as `MOST_PAID` rewards leave
    least = scale * scale
    if spec.family == GAUSSIAN and not math.isnan(spec.sigma):
        least = spec.sigma * spec.sigma
    elif spec.family != GAUSSIAN and spec.family != LOGNORMAL:
        least = centre * centre / spec.shape
    state.shared[SPREAD] = max(spread, least / MOST_PAID)


@jitable
def next_fit(state: Any) -> float:
    """Return the round after which priors are learned the next time."""
    grown = math.floor(GROWTH * state.shared[CLOCK]) + 1.0
    return float(max(grown, FIRST_FIT, float(state.pulls.size)))


@jitable
def _fit(spec: Any, state: Any, steps: int) -> None:
    state.shared[NEXT_FIT] = next_fit(state)
    paid = 0.0
    for k in range(state.pulls.size):
        paid += state.nonzero[k]
    if paid >= FEWEST_PAID:
        fit_probabilities(state, steps)
        _fit_magnitudes(spec, state, steps)


@jitable
def fit_if_due(spec: Any, state: Any) -> None:
    """Learn the priors anew when enough rounds have passed."""
    if state.shared[CLOCK] >= state.shared[NEXT_FIT]:
        _fit(spec, state, STEPS)


@jitable
def fit_from_scratch(spec: Any, state: Any) -> None:
    """Learn the priors from the statistics alone, whatever they were before."""
    state.shared[ALPHA] = spec.alpha
    state.shared[BETA] = spec.beta
    state.shared[CENTRE] = 0.0
    state.shared[SPREAD] = 0.0
    _fit(spec, state, STEPS_FROM_SCRATCH)
