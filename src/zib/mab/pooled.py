"""What all arms together say about each: the part of `ZIAdaptive` that learns.

Three questions are answered from the rewards of all arms, again and again as rounds go by:

- **Which family?** A Gaussian one, unless no reward is negative and a log-normal law is more likely
  than both a Gaussian and a gamma law, and not so wide that its mean is mere extrapolation.
- **How alike are the arms?** Their probabilities (a Beta prior), their magnitudes (a normal prior
  of the mean or of its logarithm), and how much their rewards scatter (a scaled F law of the arms'
  variances, whose degrees of freedom say how far an arm may trust the others' scatter).
- **Can the log-normal be trusted?** Its estimate of a mean is far better than the average where it
  is right, and wrong for ever where it is not. What the averages say about it is learned as well:
  every arm's logarithmic gap between the two is a draw of a common normal law, and never of one
  narrower than two per cent. An arm whose own gap is significant is judged by its average at once,
  whatever the others say. So in the end every arm is judged by its average, in every family.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from zib.core.kernel import jitable
from zib.core.state import Floats, per_arm, scalar
from zib.mab.posterior import (
    FEWEST_PAID,
    MOST_PAID,
    LearnedPrior,
    compromise,
    fit_probabilities,
    next_fit,
)

UNDECIDED, GAUSSIAN, LOGNORMAL = range(3)
OWN, SHARED, LEARNED = range(3)  # what arms say about each other's magnitudes
LEAST_GAP = 0.02**2  # variance of the gap, at least
WIDEST = 4.0  # variance of the logarithms: beyond it the law puts its mean where nobody has been
FEWEST_FREE = 3.0  # below this many degrees of freedom arms are taken together
GRID = 10  # candidates 3, 12, 48, ... for `borrowed`
ODD = 4.0  # squared standard errors from which on an arm is unlike the others
CERTAIN = 1000.0  # degrees of freedom from which a variance is taken as known
TWO_PI = 6.283185307179586


class Learned(LearnedPrior):
    """What `ZIAdaptive` learns; the prior of magnitudes is on the scale of the family."""

    # sums over the rewards of an arm
    log_total: Floats = per_arm(is_sum=True)
    log_squares: Floats = per_arm(is_sum=True)
    negative: Floats = per_arm(is_sum=True, whole=True, least=0.0)  # how many were negative
    # the posterior of the magnitude (Gaussian) or of its logarithm
    place: Floats = per_arm()
    width: Floats = per_arm(least=0.0)
    freedom: Floats = per_arm(least=0.0)
    expected: Floats = per_arm()  # the magnitude in the middle of it
    # from all arms together
    family: Floats = scalar(whole=True, least=0.0, most=2.0)
    pooled: Floats = scalar(least=0.0)  # variance pooled over arms, on the scale of the family
    pooled_cv: Floats = scalar(least=0.0)  # squared coefficient of variation
    borrowed: Floats = scalar(least=0.0)  # how many rewards the pooled variance counts for
    gap: Floats = scalar()  # between average and log-normal mean: its centre over all arms, ...
    gap_spread: Floats = scalar(least=0.0)  # ... and its variance


# ----------------------------------------------------------------------------- an arm on its own


@jitable
def spread_of_logs(state: Any, arm: int) -> float:
    """Return the centred sum of squares of the logarithms of an arm's rewards."""
    squares = state.own.log_squares[arm]
    total = state.own.log_total[arm]
    out = squares - total * total / state.nonzero[arm]
    return out if out > 1e-12 * squares else 0.0


@jitable
def _shrunk(spread: float, pooled: float, count: float, borrowed: float) -> float:
    """Return the variance of one reward: the arm's own, and the pooled one for `borrowed` more."""
    return (spread + borrowed * pooled) / (count - 1.0 + borrowed)


@jitable
def _relative_variance(state: Any, arm: int) -> float:
    """Return the squared coefficient of variation of one reward."""
    count = state.nonzero[arm]
    mean = state.total[arm] / count
    own = state.spread[arm] / (mean * mean)
    return _shrunk(own, state.own.pooled_cv[0], count, state.own.borrowed[0])


@jitable
def _lognormal_place(state: Any, arm: int) -> tuple[float, float, float, float]:
    """Return the log of the mean by the log-normal law, its variance, the gap to that of the
    average, and the variance of the gap.

    The estimate is efficient, so the variance of the gap is the difference of the two variances.
    That of the average is what the law says or what is seen, whichever is larger: samples of a
    skewed law look tamer than it is. For the same reason the logarithm of an average is too small.
    Both take the average for log-normal itself, since its relative variance may be enormous.
    """
    count = state.nonzero[arm]
    borrowed = state.own.borrowed[0]
    v = _shrunk(spread_of_logs(state, arm), state.own.pooled[0], count, borrowed)
    place = state.own.log_total[arm] / count + 0.5 * v
    variance = v / count + 0.5 * v * v / (count - 1.0 + borrowed)
    relative = max(_relative_variance(state, arm), math.exp(min(v, 50.0)) - 1.0)
    of_average = math.log1p(relative / count)
    gap = math.log(state.total[arm] / count) + 0.5 * of_average - place
    of_gap = max(of_average - variance, 0.1 * variance)
    return place, variance, gap, of_gap


@jitable
def _place(state: Any, arm: int) -> tuple[float, float]:
    """Return what the arm's own rewards say: magnitude (or its logarithm) and variance of that."""
    count = state.nonzero[arm]
    mean = state.total[arm] / count
    if state.own.family[0] == GAUSSIAN:
        own = _shrunk(state.spread[arm], state.own.pooled[0], count, state.own.borrowed[0])
        return mean, own / count
    place, variance, gap, of_gap = _lognormal_place(state, arm)
    between = max(state.own.gap_spread[0], LEAST_GAP)
    apart = (gap - state.own.gap[0]) ** 2
    if apart > ODD * (of_gap + between):  # other arms say nothing about this one
        between = apart
    share = between / (between + of_gap)
    return (
        place + share * gap + (1.0 - share) * state.own.gap[0],
        variance + share * of_gap,
    )


@jitable
def posterior(spec: Any, state: Any, arm: int) -> None:
    """Put together what the arm and what all arms say."""
    place = state.own.centre[0]
    variance = state.own.variance[0]
    freedom = CERTAIN
    if state.nonzero[arm] > 0.0:
        own, noise = _place(state, arm)
        if (own - place) ** 2 > ODD * (variance + noise):
            variance = (own - place) ** 2
        if spec.magnitudes == OWN:
            place, variance = own, noise
        else:
            place, variance = compromise(own, noise, place, variance)
        freedom = state.nonzero[arm] - 1.0 + state.own.borrowed[0]
    state.own.place[arm] = place
    state.own.width[arm] = math.sqrt(variance)
    state.own.freedom[arm] = freedom
    is_log = state.own.family[0] == LOGNORMAL
    state.own.expected[arm] = math.exp(min(place, 700.0)) if is_log else place


# ------------------------------------------------------------------------------ all arms together


@jitable
def log_gamma(x: float) -> float:
    """Return the logarithm of the gamma function for x > 0."""
    shift = 1.0
    while x < 8.0:
        shift *= x
        x += 1.0
    f = 1.0 / (x * x)
    series = (1.0 / 12 - f * (1.0 / 360 - f * (1.0 / 1260 - f / 1680))) / x
    return (x - 0.5) * math.log(x) - x + 0.5 * math.log(TWO_PI) + series - math.log(shift)


@jitable
def _choose_family(state: Any, paid: float) -> int:
    """Return the family to play with, and keep the variances pooled over arms.

    The log-normal has to be more likely than a Gaussian and than a gamma law. For gamma rewards
    averages are the best there is, and the Gaussian law of an average, with a scatter that does not
    shrink with it, led to less regret in simulations than the exact posterior: an arm that looks
    bad by bad luck is not also thought to be certainly bad.

    Every arm has a mean of its own, all have one scatter. Where hardly any arm has paid twice,
    arms are taken together: that overstates the scatter, which is the safe side.
    """
    free = 0.0
    total = 0.0
    negative = 0.0
    for k in range(state.pulls.size):
        total += state.total[k]
        negative += state.own.negative[k]
        if state.nonzero[k] > 1.0:
            free += state.nonzero[k] - 1.0
    apart = free < FEWEST_FREE
    if apart:
        free = paid - 1.0
    grand = total / paid
    positive = negative == 0.0
    logs = 0.0
    log_means = 0.0
    spread = 0.0
    relative = 0.0
    log_spread = 0.0
    for k in range(state.pulls.size):
        count = state.nonzero[k]
        if count > 0.0:
            mean = state.total[k] / count
            centre = grand if apart else mean
            own = state.spread[k] + count * (mean - centre) * (mean - centre)
            spread += own
            if positive:
                relative += own / (centre * centre)
                logs += state.own.log_total[k]
                log_means += count * math.log(centre)
                log_spread += spread_of_logs(state, k)
    if positive and apart:
        for k in range(state.pulls.size):
            count = state.nonzero[k]
            if count > 0.0:
                log_spread += count * (state.own.log_total[k] / count - logs / paid) ** 2
    state.own.pooled[0] = spread / free
    if not positive or spread <= 0.0 or log_spread <= 0.0:
        return GAUSSIAN
    state.own.pooled_cv[0] = relative / free
    log_variance = log_spread / free
    gaussian = -0.5 * paid * math.log(TWO_PI * spread / free) - 0.5 * free
    lognormal = -0.5 * paid * math.log(TWO_PI * log_variance) - 0.5 * free - logs
    s = max((log_means - logs) / free, 1e-9)
    shape = (3.0 - s + math.sqrt((s - 3.0) * (s - 3.0) + 24.0 * s)) / (12.0 * s)
    gamma = paid * (shape * math.log(shape) - log_gamma(shape) - shape)
    gamma += (shape - 1.0) * logs - shape * log_means
    if lognormal <= max(gaussian, gamma) or log_variance > WIDEST:
        return GAUSSIAN
    state.own.pooled[0] = log_variance
    return LOGNORMAL


@jitable
def _own_spread(state: Any, arm: int) -> float:
    """Return the centred sum of squares of an arm on the scale of the family."""
    if state.own.family[0] == LOGNORMAL:
        return spread_of_logs(state, arm)
    return float(state.spread[arm])


@jitable
def _fit_scatter(state: Any) -> None:
    """Choose how many rewards the pooled variance counts for: the likelihood of an F law.

    Arms of the same scatter lead to a large number, arms that differ to a small one.
    """
    state.own.borrowed[0] = FEWEST_FREE
    pooled = state.own.pooled[0]
    if pooled <= 0.0:
        return
    best = -np.inf
    borrowed = 3.0
    for _ in range(GRID):
        at = log_gamma(0.5 * borrowed)
        likelihood = 0.0
        for k in range(state.pulls.size):
            count = state.nonzero[k]
            if count > 1.0:
                free = count - 1.0
                ratio = max(_own_spread(state, k) / pooled, 1e-9) / borrowed
                likelihood += log_gamma(0.5 * (free + borrowed)) - at
                likelihood += 0.5 * free * math.log(ratio)
                likelihood -= 0.5 * (free + borrowed) * math.log(1.0 + ratio)
        if likelihood > best:
            best = likelihood
            state.own.borrowed[0] = borrowed
        borrowed *= 4.0


@jitable
def _fit_gap(state: Any) -> None:
    """Learn the law of the gaps by the moments of DerSimonian and Laird."""
    weights = 0.0
    squares = 0.0
    total = 0.0
    arms = 0.0
    for k in range(state.pulls.size):
        if state.nonzero[k] >= FEWEST_PAID:
            _, _, gap, of_gap = _lognormal_place(state, k)
            if of_gap > 0.0:
                weights += 1.0 / of_gap
                squares += 1.0 / (of_gap * of_gap)
                total += gap / of_gap
                arms += 1.0
    state.own.gap[0] = 0.0
    state.own.gap_spread[0] = 0.0
    if arms == 0.0:
        return
    centre = total / weights
    state.own.gap[0] = centre
    excess = 1.0 - arms
    for k in range(state.pulls.size):
        if state.nonzero[k] >= FEWEST_PAID:
            _, _, gap, of_gap = _lognormal_place(state, k)
            if of_gap > 0.0:
                excess += (gap - centre) * (gap - centre) / of_gap
    rest = weights - squares / weights
    if rest > 0.0:
        state.own.gap_spread[0] = max(excess / rest, 0.0)


@jitable
def most_counted(n_arms: float) -> tuple[float, float]:
    """Return for how many payments, and how many magnitudes, a prior learned from arms may count.

    A few arms that look alike do not prove that all are.
    """
    payments = max(2.0, 0.2 * n_arms * n_arms)
    return min(payments, MOST_PAID), min(max(5.0, 0.5 * n_arms), MOST_PAID)


@jitable
def _fit_magnitudes(state: Any, steps: int) -> None:
    """Learn the normal prior of the arms' magnitudes (or logarithms) by EM steps."""
    centre = state.own.centre[0]
    spread = state.own.variance[0]
    noise_of_one = 0.0
    for step in range(steps):
        total = 0.0
        squares = 0.0
        arms = 0.0
        noise_of_one = 0.0
        for k in range(state.pulls.size):
            if state.nonzero[k] > 0.0:
                guess, noise = _place(state, k)
                doubt = noise
                if step > 0 or spread > 0.0:  # there is a prior to start from
                    guess, doubt = compromise(guess, noise, centre, spread)
                total += guess
                squares += guess * guess + doubt
                noise_of_one += noise * state.nonzero[k]
                arms += 1.0
        centre = total / arms
        spread = max(squares / arms - centre * centre, 0.0)
        noise_of_one /= arms
    state.own.centre[0] = centre
    state.own.variance[0] = max(spread, noise_of_one / most_counted(arms)[1])


@jitable
def learn_from_all(spec: Any, state: Any, steps: int) -> None:
    """Answer the three questions from the statistics of all arms."""
    state.own.next_fit[0] = next_fit(state)
    paid = 0.0
    for k in range(state.pulls.size):
        paid += state.nonzero[k]
    if paid < FEWEST_PAID:
        state.own.family[0] = UNDECIDED
        return
    fit_probabilities(state, steps, most_counted(float(state.pulls.size))[0])
    family = _choose_family(state, paid)
    if family != state.own.family[0]:  # the prior was on another scale
        state.own.family[0] = family
        state.own.centre[0] = 0.0
        state.own.variance[0] = 0.0
    _fit_scatter(state)
    if family == LOGNORMAL:
        _fit_gap(state)
    _fit_magnitudes(state, steps)
    for k in range(state.pulls.size):
        posterior(spec, state, k)
