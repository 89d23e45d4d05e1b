"""The policy without a single knob: posterior sampling whose family and priors are learned.

Three questions are answered from the rewards of all arms, again and again as rounds go by:

- **Which family?** A Gaussian one, unless no reward is negative and a log-normal law is more likely
  than both a Gaussian and a gamma law.
- **How alike are the arms?** Their probabilities (a Beta prior), their magnitudes (a normal prior
  of the mean or of its logarithm), and how much their rewards scatter (a scaled F law of the arms'
  variances, whose degrees of freedom say how far an arm may trust the others' scatter).
- **Can the log-normal be trusted?** Its estimate of a mean is far better than the average where it
  is right, and wrong for ever where it is not. What the averages say about it is learned as well:
  every arm's logarithmic gap between the two is a draw of a common normal law, and never of one
  narrower than two per cent. So in the end every arm is judged by its average, in every family.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from zib.core.kernel import jitable, register
from zib.core.spec import Spec
from zib.core.state import ArmState, Floats, new_state, per_arm, scalar
from zib.mab.posterior import (
    FEWEST_PAID,
    MOST_PAID,
    STEPS,
    STEPS_FROM_SCRATCH,
    LearnedPrior,
    fit_probabilities,
    next_fit,
    start,
)
from zib.mab.sampling import is_stranger, strange_magnitude, typical_magnitude
from zib.stats.arms import observe

SURPRISE = 2.5  # of all arms together, so that a thousand arms do not cost a thousand times as much
UNDECIDED, GAUSSIAN, LOGNORMAL = range(3)
LEAST_GAP = 0.02**2  # variance of the gap, at least
FEWEST_FREE = 3.0  # below this many degrees of freedom arms are taken together
GRID = 10  # candidates 3, 12, 48, ... for `borrowed`
CERTAIN = 1000.0  # degrees of freedom from which a variance is taken as known
TWO_PI = 6.283185307179586


class ZIAdaptive(Spec):
    """Posterior sampling that learns everything else from the rewards; the default of `Bandit`.

    Nothing has to be known: neither the horizon nor the scale, the tail or the family of the
    rewards. Magnitudes may be of one scatter or each of its own, skewed or heavy-tailed: that they
    look log-normal is a help while rewards are few, and every arm is judged by its average in the
    end.

    Notes
    -----
    p̃ ~ Beta(α + B, β + n − B) with α and β learned across arms. The magnitude μ̃ is drawn from a
    normal law (of its logarithm, if the family is log-normal) around a compromise between the arm
    and all arms, with the arm's variance a compromise as well. An arm that never paid may pay far
    more than the others: its magnitude is drawn from all arms and multiplied by a factor with a
    heavy tail. An arm that has paid a few times may scatter far more than the others: now and then,
    and the less often the more it has paid, it is drawn well above its average. Priors are learned
    anew each time the number of rounds has grown by five per cent, at a cost of order K.

    Examples
    --------
    >>> import zib
    >>> zib.Bandit(n_arms=3).spec
    ZIAdaptive()
    """

    label = "ZI adaptive"
    looks = {"ZI adaptive": "#000000 * heavy"}
    learns_late = True


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
    # from all arms together
    family: Floats = scalar(whole=True, least=0.0, most=2.0)
    pooled: Floats = scalar(least=0.0)  # variance pooled over arms, on the scale of the family
    pooled_cv: Floats = scalar(least=0.0)  # squared coefficient of variation
    borrowed: Floats = scalar(least=0.0)  # how many rewards the pooled variance counts for
    gap: Floats = scalar()  # between average and log-normal mean: its centre over all arms, ...
    gap_spread: Floats = scalar(least=0.0)  # ... and its variance


def _init(spec: ZIAdaptive, n_arms: int) -> ArmState:
    state = new_state(n_arms, own=Learned)
    start(state, 1.0, 1.0)
    return state


# ----------------------------------------------------------------------------- an arm on its own


@jitable
def _log_spread(state: Any, arm: int) -> float:
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
    """
    count = state.nonzero[arm]
    borrowed = state.own.borrowed[0]
    v = _shrunk(_log_spread(state, arm), state.own.pooled[0], count, borrowed)
    place = state.own.log_total[arm] / count + 0.5 * v
    variance = v / count + 0.5 * v * v / (count - 1.0 + borrowed)
    of_average = max(_relative_variance(state, arm), math.exp(min(v, 50.0)) - 1.0) / count
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
    share = between / (between + of_gap)
    return (
        place + share * gap + (1.0 - share) * state.own.gap[0],
        variance + share * of_gap,
    )


@jitable
def posterior(state: Any, arm: int) -> None:
    """Put together what the arm and what all arms say."""
    place = state.own.centre[0]
    variance = state.own.variance[0]
    freedom = CERTAIN
    if state.nonzero[arm] > 0.0:
        own, noise = _place(state, arm)
        share = variance / (variance + noise) if variance + noise > 0.0 else 1.0
        place = share * own + (1.0 - share) * place
        variance = share * noise
        freedom = state.nonzero[arm] - 1.0 + state.own.borrowed[0]
    state.own.place[arm] = place
    state.own.width[arm] = math.sqrt(variance)
    state.own.freedom[arm] = freedom


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
                log_spread += _log_spread(state, k)
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
    if lognormal <= max(gaussian, gamma):
        return GAUSSIAN
    state.own.pooled[0] = log_variance
    return LOGNORMAL


@jitable
def _own_spread(state: Any, arm: int) -> float:
    """Return the centred sum of squares of an arm on the scale of the family."""
    if state.own.family[0] == LOGNORMAL:
        return _log_spread(state, arm)
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
                place, noise = _place(state, k)
                share = 1.0
                if step > 0 or spread > 0.0:
                    share = spread / (spread + noise) if spread + noise > 0.0 else 1.0
                guess = share * place + (1.0 - share) * centre
                total += guess
                squares += guess * guess + share * noise
                noise_of_one += noise * state.nonzero[k]
                arms += 1.0
        centre = total / arms
        spread = max(squares / arms - centre * centre, 0.0)
        noise_of_one /= arms
    state.own.centre[0] = centre
    # at least as much doubt as `MOST_PAID` rewards leave
    state.own.variance[0] = max(spread, noise_of_one / MOST_PAID)


@jitable
def learn_from_all(state: Any, steps: int) -> None:
    """Answer the three questions from the statistics of all arms."""
    state.own.next_fit[0] = next_fit(state)
    paid = 0.0
    for k in range(state.pulls.size):
        paid += state.nonzero[k]
    if paid < FEWEST_PAID:
        state.own.family[0] = UNDECIDED
        return
    fit_probabilities(state, steps)
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
        posterior(state, k)


# --------------------------------------------------------------------------------------- kernels


@jitable
def _weigh(spec: Any, state: Any, arm: int, reward: float, weight: float) -> None:
    """Add `weight` times what a reward contributes to the sums of an arm."""
    if reward < 0.0:
        state.own.negative[arm] += weight
    elif reward > 0.0:
        value = math.log(reward)
        state.own.log_total[arm] += weight * value
        state.own.log_squares[arm] += weight * value * value


def _rescale(spec: Any, state: Any, arm: int, factor: float) -> None:
    """Multiply the rewards of an arm."""
    own, shift = state.own, math.log(factor)
    positive = state.nonzero[arm] - own.negative[arm]
    own.log_squares[arm] += shift * (2.0 * own.log_total[arm] + shift * positive)
    own.log_total[arm] += shift * positive


def _update(spec: Any, state: Any, arm: int, reward: float) -> None:
    observe(state, arm, reward)
    _weigh(spec, state, arm, reward, 1.0)
    surprised = reward < 0.0 and state.own.family[0] > GAUSSIAN
    if surprised or state.clock[0] >= state.own.next_fit[0]:
        learn_from_all(state, STEPS)
    elif reward != 0.0 and state.own.family[0] != UNDECIDED:
        posterior(state, arm)


def _refresh_all(spec: Any, state: Any) -> None:
    """Learn from the statistics alone, whatever was believed before."""
    state.own.alpha[0] = 1.0
    state.own.beta[0] = 1.0
    state.own.family[0] = UNDECIDED
    learn_from_all(state, STEPS_FROM_SCRATCH)


def _refresh(spec: Any, state: Any, arm: int) -> None:
    _refresh_all(spec, state)


def _scores(spec: Any, state: Any, rng: Any, out: Any) -> None:
    family = state.own.family[0]
    top = 0.0
    if family == UNDECIDED:
        for k in range(out.size):
            if state.nonzero[k] > 0.0:
                top = max(top, state.total[k] / state.nonzero[k])
    typical = typical_magnitude(state)
    for k in range(out.size):
        n = state.pulls[k]
        if n == 0.0:
            out[k] = np.inf
            continue
        count = state.nonzero[k]
        prob = rng.beta(state.own.alpha[0] + count, state.own.beta[0] + n - count)
        if family == UNDECIDED:  # hardly anything was paid: what was seen is what there is
            magnitude = state.total[k] / count if count > 0.0 else (top if top > 0.0 else 1.0)
        elif count > 0.0 and is_stranger(state, count, rng):
            magnitude = strange_magnitude(state.total[k] / count, typical, rng)
        else:
            magnitude = _draw(state, k, family, rng)
            if count == 0.0:
                magnitude *= _surprise(out.size, rng)
        out[k] = prob * magnitude


@jitable
def _surprise(n_arms: int, rng: Any) -> float:
    """Return a factor ≥ 1 for the magnitude of an arm that never paid.

    P(factor > x) = min(1, 2.5/K)/x². The other arms say little about such an arm: it may pay rarely
    and enormously. With a factor that has no such tail the arm is given up for ever on some
    bandits; with it the arm is played at least of the order of T^(1/3) times, and so found in the
    end.
    """
    return math.sqrt(max(min(SURPRISE / n_arms, 1.0) / (1.0 - rng.random()), 1.0))


@jitable
def _draw(state: Any, arm: int, family: float, rng: Any) -> float:
    """Draw a magnitude from its posterior."""
    place = state.own.place[arm]
    width = state.own.width[arm]
    freedom = state.own.freedom[arm]
    if freedom < CERTAIN:  # the variance is not known either
        width *= math.sqrt(0.5 * freedom / rng.standard_gamma(0.5 * freedom))
    if family == GAUSSIAN:
        return float(place + width * rng.standard_normal())
    return math.exp(min(place + width * rng.standard_normal(), 700.0))


register(
    ZIAdaptive,
    own=Learned,
    init=_init,
    scores=_scores,
    update=_update,
    refresh=_refresh,
    refresh_all=_refresh_all,
    additive=True,
    weigh=_weigh,
    rescale=_rescale,
    randomized=True,
)
