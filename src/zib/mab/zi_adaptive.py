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
from typing import Any, NamedTuple

import numpy as np

from zib.core.kernel import jitable, register
from zib.core.spec import Spec
from zib.mab.adaptive_model import (
    CERTAIN,
    FAMILY,
    FREEDOM,
    GAUSSIAN,
    LOG_SQUARES,
    LOG_TOTAL,
    N_CACHE,
    N_MODEL,
    N_SUMS,
    NEGATIVE,
    PLACE,
    UNDECIDED,
    WIDTH,
    learn_from_all,
    posterior,
)
from zib.mab.families import N_SHARED
from zib.mab.learned_prior import (
    ALPHA,
    BETA,
    N_PRIOR,
    NEXT_FIT,
    STEPS,
    STEPS_FROM_SCRATCH,
    start,
)
from zib.stats.arms import CLOCK, ArmState, new_state, observe

SURPRISE = 2.5  # of all arms together, so that a thousand arms do not cost a thousand times as much


class _ZIAdaptiveFields(NamedTuple):
    """No parameters; compiled code needs a field to carry."""

    version: int


class ZIAdaptive(Spec, _ZIAdaptiveFields):
    """Posterior sampling that learns everything else from the rewards; what `Bandit` plays alone.

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
    heavy tail. Priors are learned anew each time the number of rounds has grown by five per cent,
    at a cost of order K.

    Examples
    --------
    >>> import zib
    >>> zib.Bandit(n_arms=3).spec
    ZIAdaptive()
    """

    __slots__ = ()
    default_label = "ZI adaptive"
    learns_late = True

    def __new__(cls) -> ZIAdaptive:
        return super().__new__(cls, 1)

    def parameters(self) -> dict[str, Any]:
        """Return the keyword arguments that rebuild this spec: none."""
        return {}


def _init(spec: ZIAdaptive, n_arms: int) -> ArmState:
    state = new_state(n_arms, n_cache=N_CACHE, n_shared=N_SHARED + N_PRIOR + N_MODEL)
    start(state, 1.0, 1.0)
    return state


@jitable
def _weigh(spec: Any, state: Any, arm: int, reward: float, weight: float) -> None:
    """Add `weight` times what a reward contributes to the sums in `cache`."""
    if reward < 0.0:
        state.cache[arm, NEGATIVE] += weight
    elif reward > 0.0:
        value = math.log(reward)
        state.cache[arm, LOG_TOTAL] += weight * value
        state.cache[arm, LOG_SQUARES] += weight * value * value


def _update(spec: Any, state: Any, arm: int, reward: float) -> None:
    observe(state, arm, reward)
    _weigh(spec, state, arm, reward, 1.0)
    surprised = reward < 0.0 and state.shared[FAMILY] > GAUSSIAN
    if surprised or state.shared[CLOCK] >= state.shared[NEXT_FIT]:
        learn_from_all(state, STEPS)
    elif reward != 0.0 and state.shared[FAMILY] != UNDECIDED:
        posterior(state, arm)


def _refresh_all(spec: Any, state: Any) -> None:
    """Learn from the statistics alone, whatever was believed before."""
    state.shared[ALPHA] = 1.0
    state.shared[BETA] = 1.0
    state.shared[FAMILY] = UNDECIDED
    learn_from_all(state, STEPS_FROM_SCRATCH)


def _refresh(spec: Any, state: Any, arm: int) -> None:
    _refresh_all(spec, state)


def _scores(spec: Any, state: Any, rng: Any, out: Any) -> None:
    family = state.shared[FAMILY]
    top = 0.0
    if family == UNDECIDED:
        for k in range(out.size):
            if state.nonzero[k] > 0.0:
                top = max(top, state.total[k] / state.nonzero[k])
    for k in range(out.size):
        n = state.pulls[k]
        if n == 0.0:
            out[k] = np.inf
            continue
        count = state.nonzero[k]
        prob = rng.beta(state.shared[ALPHA] + count, state.shared[BETA] + n - count)
        if family == UNDECIDED:  # hardly anything was paid: what was seen is what there is
            magnitude = state.total[k] / count if count > 0.0 else (top if top > 0.0 else 1.0)
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
    place = state.cache[arm, PLACE]
    width = state.cache[arm, WIDTH]
    freedom = state.cache[arm, FREEDOM]
    if freedom < CERTAIN:  # the variance is not known either
        width *= math.sqrt(0.5 * freedom / rng.standard_gamma(0.5 * freedom))
    if family == GAUSSIAN:
        return float(place + width * rng.standard_normal())
    return math.exp(min(place + width * rng.standard_normal(), 700.0))


register(
    ZIAdaptive,
    init=_init,
    scores=_scores,
    update=_update,
    refresh=_refresh,
    refresh_all=_refresh_all,
    additive=True,
    sums=N_SUMS,
    weigh=_weigh,
    randomized=True,
)
