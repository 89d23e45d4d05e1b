"""Formulas of rewards that come late, on single numbers and counts; they run compiled as well.

`zib.stats.delay` explains them and has the forms for arrays; simulations (`zib.sim.delayed`) call
these in their loops.
"""

from __future__ import annotations

from typing import Any

from zib.core.kernel import jitable

FEWEST_BINS = 8  # of a trend of delays
TREND = 3.0  # rewards that no change is worth, in each part of the trend


@jitable
def weight_of(fraction: Any, chance: Any) -> Any:
    """Return how many zeros a decision without a reward so far is worth: F(1 − p)/(1 − pF).

    F is the fraction of the rewards that have come by its age, p < 1 the chance of a reward.
    """
    return fraction * (1.0 - chance) / (1.0 - chance * fraction)


@jitable
def chance_of(alpha: Any, beta: Any, events: Any, zeros: Any) -> Any:
    """Return the posterior mean of p with a Beta(α, β) prior; `zeros` may be fractional."""
    return (alpha + events) / (alpha + events + (beta + zeros))


@jitable
def assume_delays(events: Any, complete: Any, prior: float, assumed: Any) -> None:
    """Write the rewards that are assumed in each bin where nothing is known of the delay.

    Within the reach of the data, the ages that some decisions have, `prior` rewards are spread
    evenly over the bins. Nothing observed says how many rewards take longer, so there the trend
    goes on: rewards of bin j come at c/j of the rate of all rewards up to it (F grows like a
    power of time), where c and how fast it falls are those of the last half of the reach; few
    rewards are pulled towards c = 1, a uniform law. Bins are equal, or those of `delay_bins`.

    Parameters
    ----------
    events, complete
        As for `reverse_kaplan_meier`.
    prior
        How many rewards the assumption is worth.
    assumed
        Written, shape (n,).
    """
    n = events.size
    reach = 0
    for j in range(n + 1):
        if complete[j] > 0.0:
            reach = j
    held = 0.0  # rewards up to a bin, from decisions for which it is over
    half, cut = reach // 2, 3 * reach // 4
    came_first = came_last = due_first = due_last = 0.0
    total = 0.0  # assumed so far
    for j in range(n):
        held += events[j] - complete[j]
        if half <= j < cut:
            came_first += events[j]
            due_first += held / (j + 1.0)
        elif cut <= j < reach:
            came_last += events[j]
            due_last += held / (j + 1.0)
        if j < reach or reach < FEWEST_BINS:
            assumed[j] = prior / n
            total += assumed[j]
    if reach < FEWEST_BINS or reach == n:
        return
    c = (came_first + came_last + prior) / (due_first + due_last + prior)
    first = (came_first + TREND * c) / (due_first + TREND)
    last = (came_last + TREND * c) / (due_last + TREND)
    falls = min(last / first, 1.0)  # over a quarter of the reach
    for j in range(reach, n):
        quarters = (j + 1.0 - 0.875 * reach) / (0.25 * reach)
        step = min(last * falls**quarters / (j + 1.0), 0.5)
        assumed[j] = total * step / (1.0 - step)
        total += assumed[j]


@jitable
def reverse_kaplan_meier(events: Any, complete: Any, assumed: Any, out: Any) -> None:
    """Write F at the edges of the bins, by the Kaplan–Meier estimator in reversed time.

    Parameters
    ----------
    events
        Observed rewards whose delay lies in bin j, shape (n,).
    complete
        Of those rewards, how many come from decisions for which just the first j bins are over,
        shape (n + 1,).
    assumed
        Rewards that a prior adds to each bin, shape (n,), as if from decisions of any age.
    out
        F at the n + 1 edges: F(j − 1) = F(j)(1 − mⱼ/Rⱼ) from F(n) = 1 down, with mⱼ rewards in bin
        j and Rⱼ that could have been seen there: those that came by then, from decisions for which
        bin j is over.
    """
    n = events.size
    able = 0.0
    for j in range(n):
        able += events[j] - complete[j] + assumed[j]
    out[n] = 1.0
    for j in range(n - 1, 0, -1):
        came = events[j] + assumed[j]
        step = min(max(1.0 - came / able, 0.0), 1.0) if able > 0.0 else 1.0
        out[j] = out[j + 1] * step
        able += complete[j] - came
    out[0] = 0.0
