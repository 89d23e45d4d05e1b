"""Formulas of rewards that come late, on single numbers and counts; they run compiled as well.

`zib.stats.delay` explains them and has the forms for arrays; simulations (`zib.sim.delayed`) call
these in their loops.
"""

from __future__ import annotations

from typing import Any

from zib.core.kernel import jitable


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
