"""What delay costs a UCB policy that knows the distribution F of the delay.

Vernade, Cappé and Perchet (2017) treat conversions: a decision for an arm leads to one with
probability p, seen after a random delay with known distribution F. Here a conversion pays an amount
of mean mu, and r = p·mu. In round t, with aₛ the age of decision s, let

    S = Σ rewards seen so far,   N = Σ F(aₛ)   over the decisions for an arm.

Given everything up to decision s (also what nobody has seen yet), the reward that is seen of it by
round t has mean r·F(aₛ), since the amount does not depend on the delay. So S − r·N is a sum of
martingale differences, whatever the policy: S/N estimates r as if N decisions had returned.

Amounts in [0, b] have a moment generating function below that of a Poisson law, which gives
E exp(λS/b − (e^λ − 1)(r/b)N) ≤ 1 for each t and λ. Chernoff's bound, and peeling over the values
of N, lead to the index `poisson_kl_upper`, to a level at which it fails at most once in T rounds on
average, `delayed_level`, and to `delayed_regret_bound`. The proof is in the documentation, on the
page about delay.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from zib.core.kernel import borrowing
from zib.core.validate import InvalidParameterError, real
from zib.theory._vectorise import NONNEGATIVE, Array, number, vectorised
from zib.theory.regret import HORIZON, worse_arms

MOST_STEPS = 100


@borrowing
def poisson_kl_upper_scalar(total: float, n: float, level: float) -> float:
    """Return the largest q with n·d(total/n, q) ≤ level, by Newton's method from above."""
    if n <= 0.0:
        return math.inf
    if total <= 0.0:
        return level / n
    c = level / total
    # z − 1 − log z = c for the ratio z of q and total/n; z is below this (Chatzigeorgiou 2013)
    z = 1.0 + math.sqrt(2.0 * c) + c
    for _ in range(MOST_STEPS):
        if z <= 1.0:
            return total / n
        step = (z - 1.0 - math.log(z) - c) * z / (z - 1.0)
        z -= step
        if step <= 1e-15 * z:
            break
    return z * total / n


@vectorised(poisson_kl_upper_scalar, total=NONNEGATIVE, n=NONNEGATIVE, level=NONNEGATIVE)
def poisson_kl_upper(total: ArrayLike, n: ArrayLike, level: ArrayLike) -> Any:
    """Return the index of an arm whose rewards come late: a bound on its mean reward from above.

    Parameters
    ----------
    total
        Sum of the rewards that have come, each in [0, 1]: divide by the largest amount there is.
    n
        Σ F(age) over the decisions for the arm; it need not be whole.
    level
        Of likelihood, such as `delayed_level`.

    Returns
    -------
    float or ndarray
        The largest q with n·d(total/n, q) ≤ level, where d(a, q) = q − a + a log(a/q) is the
        divergence of Poisson laws; level/n where nothing has come, inf for an untried arm.

    Examples
    --------
    >>> round(poisson_kl_upper(30.0, 1000.0, 3.0), 4)
    0.0455
    >>> poisson_kl_upper(0.0, 100.0, 3.0)
    0.03
    """


def delayed_level(horizon: ArrayLike) -> Any:
    """Return a level at which the index of an arm falls below its mean with probability ≤ 1/T.

    Parameters
    ----------
    horizon
        T >= 2.

    Returns
    -------
    float or ndarray
        δ with e⌈δ log T⌉ exp(−δ) ≤ 1/T: log T and twice log log T, about. It holds for each of T
        rounds.

    Examples
    --------
    >>> round(delayed_level(10_000), 2)
    15.16
    """
    return number(_level(HORIZON("horizon", horizon)))


def _level(t: Array) -> Array:
    log_t = np.log(t)
    level = 1.0 + log_t
    for _ in range(MOST_STEPS):
        level = 1.0 + log_t + np.log(level * log_t + 1.0)
    return np.asarray(level)


def delayed_regret_bound(
    means: ArrayLike, probs: ArrayLike, horizon: ArrayLike, *, bound: float, mean_delay: float
) -> Any:
    """Return a bound on the regret of the UCB policy with known F, with its constants.

    The policy plays the arm with the largest `poisson_kl_upper` at the level `delayed_level`.

    Parameters
    ----------
    means, probs
        mu_k > 0 and p_k > 0 of each arm.
    horizon
        T >= 2 decisions; an array gives a curve.
    bound
        b, which no amount exceeds.
    mean_delay
        τ = Σ (1 − F(a)) over ages a = 1, 2, … in decisions: how many are made, on average, while a
        reward is on its way.

    Returns
    -------
    float or ndarray
        Σ Δ_k (δ/d_k + τ + 3) over the worse arms. With a = r_k/b and q = r_1/b, their logarithmic
        mean x = (q − a)/log(q/a) is where both are equally far, d_k = q − x + x log(x/q).

    Notes
    -----
    Proven for amounts in [0, b] that do not depend on the delay, decisions one after the other, a
    known F that is the same for all arms and times, and F = 1 from some age on. Delay costs
    ΣΔ_k τ, once: the term with log T is that of the same policy without delay.

    The constant is not the best one: for small gaps 1/d_k is 8 r/Δ² in units of b, four times as
    large as in the lower bound. A deviation of a worse arm is paid for in every round and not only
    when it is played, as a mean over decisions of different ages is no mean of independent rewards.
    Nothing is proven here for an estimated F, nor for posterior sampling.

    Examples
    --------
    >>> late = delayed_regret_bound([1.0, 1.0], [0.05, 0.03], 1e5, bound=1.0, mean_delay=500.0)
    >>> soon = delayed_regret_bound([1.0, 1.0], [0.05, 0.03], 1e5, bound=1.0, mean_delay=0.0)
    >>> round(late - soon, 6)  # a gap of 0.02, for 500 decisions
    10.0
    """
    best, _, r, _, gap = worse_arms(means, probs)
    t = HORIZON("horizon", horizon)
    largest = real("bound", bound, 0.0, closed="neither")
    tau = real("mean_delay", mean_delay, 0.0)
    if largest < float(np.max(np.asarray(means, dtype=np.float64))):
        raise InvalidParameterError(
            f"`bound` must be at least the largest of `means`; got {bound!r}"
        )
    a, q = r / largest, best / largest
    middle = (q - a) / np.log(q / a)
    apart = q - middle + middle * np.log(middle / q)
    pulls = _level(t)[..., None] / apart + tau + 3.0
    return number((gap * pulls).sum(axis=-1))
