"""The policy without a single knob: posterior sampling whose family and priors are learned.

What is learned from all arms, and the posterior of each, is in `zib.mab.pooled`; here is how they
are played. Plain posterior sampling explores more than a finite number of rounds pays for, so two
things are different here. An arm counts for at least what it is expected to pay: draws only ever
raise it. And a draw raises it at most as far as exploring can pay for in the rounds to come (`most`
below), as in the minimax optimal Thompson sampling of Jin et al. (2021): an arm that had its share
of the rounds is hardly raised, and one that was neglected as far as its posterior goes. What this
buys, and what it costs in unlucky runs, is measured in ``docs/default.md``.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from zib.core.kernel import jitable, register
from zib.core.spec import Spec, choice, number_or, real
from zib.core.state import ArmState, new_state
from zib.mab.pooled import (
    CERTAIN,
    GAUSSIAN,
    SHARED,
    UNDECIDED,
    Learned,
    learn_from_all,
    posterior,
)
from zib.mab.posterior import STEPS, STEPS_FROM_SCRATCH, shared_magnitude, start
from zib.mab.sampling import is_stranger, strange_magnitude, typical_magnitude
from zib.stats.arms import observe

# of all arms together, so that a thousand arms do not cost a thousand times as much:
SURPRISES = 0.75  # how many that never paid may pay far more than the others
STRANGERS = 1.25  # how many that paid a few times may scatter far more
# of both, the fewer the more arms are known: of n known arms a share 1/(1 + c·n) is left
KNOWN = 4.0  # rewards from which on an arm is known
FEWER_SURPRISES, FEWER_STRANGERS = 0.3, 3.0
DRAWN = 20.0  # how many are drawn in a round, on average


class ZIAdaptive(Spec):
    """Posterior sampling that learns everything else from the rewards; the default of `Bandit`.

    Nothing has to be known: neither the horizon nor the scale, the tail or the family of the
    rewards. Magnitudes may be of one scatter or each of its own, skewed or heavy-tailed: that they
    look log-normal is a help while rewards are few, and every arm is judged by its average in the
    end.

    Parameters
    ----------
    magnitudes
        What arms say about each other's magnitudes. ``"learned"``: as much as the rewards support.
        ``"own"``: nothing, as soon as an arm has paid. ``"shared"``: all arms pay the same on
        average when they pay, because you know it; only how often they pay is learned. Where that
        is wrong the best arm may never be found.
    horizon
        The number of rounds, if it is known: more is explored at first and less towards the end.
        After it, as if unknown.

    Notes
    -----
    p̃ ~ Beta(α + B, β + n − B) with α and β learned across arms. The magnitude μ̃ is drawn from a
    normal law (of its logarithm, if the family is log-normal) around a compromise between the arm
    and all arms, with the arm's variance a compromise as well. The score is p̃·μ̃, or what the arm is
    expected to pay if that is more; but never more than the largest p·μ whose distance from what
    is expected, the sum of the divergences of both parts times what each part is known by, is
    ℓ = log(1 + t/(n·K)) after t rounds with K arms and n pulls of this one; with a known horizon T,
    log(1 + (T − t)/(n·K)). Of K > 20 arms only about 20 are drawn in a round, the others count for
    what they are expected to pay. An arm that never paid may pay far more than the others: its
    magnitude is multiplied by a factor with a heavy tail. An arm that has paid a few times may
    scatter far more than the others: now and then, and the less often the more it has paid, it is
    drawn well above its average. Both are expected of fewer arms the more arms have paid four times
    or more. A prior learned from K arms counts for at most K²/5 payments and K/2 magnitudes, within
    2 to 20 and 5 to 20. Priors are learned anew each time the number of rounds has grown
    by five per cent, at a cost of order K.

    Examples
    --------
    >>> import zib
    >>> zib.Bandit(n_arms=3).spec
    ZIAdaptive(magnitudes='learned', horizon='unknown')
    """

    magnitudes: str = choice(("own", "shared", "learned"), default="learned")
    horizon: float | str = number_or("unknown", real(low=2), default="unknown")
    looks = {
        "ZI adaptive": "#000000 * heavy",
        "ZI adaptive own": "#666666 * dashed",
        "ZI adaptive shared": "#666666 * dotted",
    }
    learns_late = True

    @property
    def label(self) -> str:
        """A short name for figures and tables."""
        how = self.parameters()["magnitudes"]
        return "ZI adaptive" if how == "learned" else f"ZI adaptive {how}"


# --------------------------------------------------------------------------------------- learning


def _init(spec: ZIAdaptive, n_arms: int) -> ArmState:
    state = new_state(n_arms, own=Learned)
    start(state, 1.0, 1.0)
    return state


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
        learn_from_all(spec, state, STEPS)
    elif reward != 0.0 and state.own.family[0] != UNDECIDED:
        posterior(spec, state, arm)


def _refresh_all(spec: Any, state: Any) -> None:
    """Learn from the statistics alone, whatever was believed before."""
    state.own.alpha[0] = 1.0
    state.own.beta[0] = 1.0
    state.own.family[0] = UNDECIDED
    learn_from_all(spec, state, STEPS_FROM_SCRATCH)


def _refresh(spec: Any, state: Any, arm: int) -> None:
    _refresh_all(spec, state)


# --------------------------------------------------------------------------------------- deciding


@jitable
def surprise(surprises: float, n_arms: int, rng: Any) -> float:
    """Return a factor ≥ 1 for the magnitude of an arm that never paid.

    P(factor > x) = min(1, s/K)/x^1.5, where s of K arms may surprise. The other arms say little
    about such an arm: it may pay rarely and enormously. With a factor that has no such tail the arm
    is given up for ever on some bandits; with it the arm is played at least of the order of T^(2/5)
    times, and so found in the end. A heavier tail finds such arms sooner and costs more where arms
    never pay at all.
    """
    return float(max(min(surprises / n_arms, 1.0) / (1.0 - rng.random()), 1.0) ** (2.0 / 3.0))


@jitable
def seen_magnitude(state: Any, arm: int, top: float) -> float:
    """Return what an arm pays while hardly anything was paid: what was seen is what there is.

    An arm that never paid counts for the largest average of an arm, `top`.
    """
    if state.nonzero[arm] > 0.0:
        return float(state.total[arm] / state.nonzero[arm])
    return top if top > 0.0 else 1.0


@jitable
def draw_magnitude(state: Any, arm: int, family: float, rng: Any) -> float:
    """Draw a magnitude from its posterior."""
    place = state.own.place[arm]
    width = state.own.width[arm]
    freedom = state.own.freedom[arm]
    if freedom < CERTAIN:  # the variance is not known either
        width *= math.sqrt(0.5 * freedom / rng.standard_gamma(0.5 * freedom))
    if family == GAUSSIAN:
        return float(place + width * rng.standard_normal())
    return math.exp(min(place + width * rng.standard_normal(), 700.0))


@jitable
def most_probable(p: float, weight: float, level: float) -> float:
    """Return about the largest q with weight·kl(p, q) ≤ level; kl is that of coins.

    Up to the third order in d = q − p, kl(p, q) is d²/2(v + (2/3)(1 − 2p)·d) with v = p(1 − p),
    and this is a quadratic equation. For p = 0, where it is worst, the result is 4/3 of the exact
    one while both are small.
    """
    x = level / weight
    skew = 2.0 / 3.0 * (1.0 - 2.0 * p) * x
    return min(p + skew + math.sqrt(skew * skew + 2.0 * x * p * (1.0 - p)), 1.0)


@jitable
def most(state: Any, arm: int, family: float, expected: float, level: float) -> float:
    """Return the most an arm may count for, so many nats (`level`) away from what is expected.

    The level is divided between both parts as their relative variances are, which is best while it
    is small.
    """
    count = state.nonzero[arm]
    a = state.own.alpha[0] + count
    weight = a + state.own.beta[0] + state.pulls[arm] - count
    p = a / weight
    if family == UNDECIDED:
        return most_probable(p, weight, level) * expected
    width = state.own.width[arm]
    of_magnitude = width * width
    if family == GAUSSIAN:
        of_magnitude /= max(expected * expected, 1e-300)
    of_p = (1.0 - p) / a if expected > 0.0 else 0.0
    share = of_p / (of_p + of_magnitude) if of_p + of_magnitude > 0.0 else 0.0
    squared = 2.0 * (1.0 - share) * level
    freedom = state.own.freedom[arm]
    if freedom < CERTAIN:  # of a Student variable
        squared = freedom * (math.exp(min(squared / freedom, 100.0)) - 1.0)
    above = width * math.sqrt(squared)
    q = most_probable(p, weight, share * level)
    if family == GAUSSIAN:
        return float(q * (expected + above))
    return q * math.exp(min(state.own.place[arm] + above, 700.0))


class Common(NamedTuple):
    """What the scores of all arms need, computed once per round.

    Attributes
    ----------
    shared
        The magnitude they share, where they are told to share one.
    top
        The largest average of an arm, while hardly anything was paid.
    typical
        The typical size of a reward.
    ahead
        For how many rounds per arm what is learned now can be used. If the horizon is unknown, or
        over, that is taken to be as many as have been.
    surprises, strangers
        How many arms may pay far more than the others, and scatter far more.
    """

    shared: float
    top: float
    typical: float
    ahead: float
    surprises: float
    strangers: float


@jitable
def score(spec: Any, state: Any, arm: int, common: Any, rng: Any) -> float:
    """Return the score of an arm that was played; `common` is what `in_common` returned."""
    family = state.own.family[0]
    n_arms = state.pulls.size
    n = state.pulls[arm]
    count = state.nonzero[arm]
    a = state.own.alpha[0] + count
    b = state.own.beta[0] + n - count
    if spec.magnitudes == SHARED:
        expected = common.shared
        family = UNDECIDED  # there is nothing to draw
    elif family == UNDECIDED:
        expected = seen_magnitude(state, arm, common.top)
    else:
        expected = state.own.expected[arm]
    least = a / (a + b) * expected
    if n_arms > DRAWN and rng.random() * n_arms >= DRAWN:
        return float(least)
    magnitude = expected
    factor = 1.0
    if family != UNDECIDED:
        if count == 0.0:
            factor = surprise(common.surprises, n_arms, rng)
        elif is_stranger(state, count, common.strangers, rng):
            strange = strange_magnitude(state.total[arm] / count, common.typical, rng)
            return float(max(least, rng.beta(a, b) * strange))
        magnitude = draw_magnitude(state, arm, family, rng)
    drawn = rng.beta(a, b) * magnitude * factor
    if drawn <= least:
        return float(least)
    limit = factor * most(state, arm, family, expected, math.log1p(common.ahead / n))
    return float(max(least, min(drawn, limit)))


@jitable
def in_common(spec: Any, state: Any) -> Common:
    """Return what the scores of all arms need."""
    top = 0.0
    known = 0.0
    for k in range(state.pulls.size):
        if state.nonzero[k] >= KNOWN:
            known += 1.0
        if state.own.family[0] == UNDECIDED and state.nonzero[k] > 0.0:
            top = max(top, state.total[k] / state.nonzero[k])
    t = state.clock[0]
    left = spec.horizon - t  # NaN if unknown
    return Common(
        shared_magnitude(state) if spec.magnitudes == SHARED else 0.0,
        top,
        typical_magnitude(state),
        (left if left > 0.0 else t) / state.pulls.size,
        SURPRISES / (1.0 + FEWER_SURPRISES * known),
        STRANGERS / (1.0 + FEWER_STRANGERS * known),
    )


def _scores(spec: Any, state: Any, rng: Any, out: Any) -> None:
    common = in_common(spec, state)
    for k in range(out.size):
        out[k] = score(spec, state, k, common, rng) if state.pulls[k] > 0.0 else np.inf


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
