"""The paper's indices: an upper bound on how often an arm pays times one on how much.

Algorithm 1 for light tails, and Algorithm RUCB with trimmed means for non-zero rewards of which
only a moment of order 1 + ε is finite.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from zib.core.kernel import jitable, one_more, register
from zib.core.spec import Spec, choice, number_or, positive, real
from zib.core.state import Floats, Part, per_arm
from zib.core.validate import InvalidParameterError, shown
from zib.mab.assumptions import (
    LOG2,
    RADII,
    SUBEXPONENTIAL,
    LightTailed,
    complete_unseen,
    mean_radius,
    unseen_magnitude,
)
from zib.stats.arms import observe
from zib.theory.bernoulli import hoeffding_radius_scalar, kl_lower_scalar, kl_upper_scalar
from zib.theory.means import trim_threshold, trimmed_count_radius_scalar, trimmed_radius_scalar
from zib.theory.products import error_share_scalar, signed_product

# -------------------------------------------------------------------------------- Algorithm 1

HOEFFDING, KL, LITERAL = range(3)  # the bound of the probability


class ZIUCB(LightTailed):
    """UCB for zero-inflated rewards with light tails (Algorithm 1).

    Parameters
    ----------
    horizon
        Number of rounds T the confidence level δ = 4/T² is made for (≥ 2). Playing on beyond it is
        allowed; `Anytime` adapts it.
    sigma, tail
        Exactly one: the sub-Gaussian size σ of the non-zero rewards, or a tail made by
        `SubGaussian`, `SubExponential`, `SubWeibull`.
    radius
        ``"given_count"`` (default): the bound given the number B of non-zero rewards, for σ:
        σ√(2 log(2/δ)/B). ``"subweibull"``: the bound printed in Algorithm 1, with the constants of
        the sub-Weibull lemma; several times wider.
    occurrence
        ``"kl"`` (default): Chernoff bound sup{q : n·kl(p̂, q) ≤ log(2/δ)}. ``"hoeffding"``: the
        printed p̂ + √(log(2/δ)/(2n)), capped at 1. ``"printed"``: without the cap, and multiplied
        with U^mu whatever its sign, as in the listing.
    split
        Share of δ that the bound of mu may use up, in (0, 1); the bound of p gets the rest. 0.5 is
        the paper's. ``"by_prob"``: `zib.theory.error_share` at B/(n + 1).
    unseen
        Magnitude assumed for an arm that never paid: ``"pooled"`` takes the largest U^mu among arms
        that have paid; a number (printed: 1); or ``inf``, which plays the arm until it pays.

    Notes
    -----
    The index is U^mu·U^p. It is a valid upper bound of mu·p with probability 1 − δ while
    U^mu ≥ 0; where U^mu < 0 (rewards can be negative) the *lower* bound on p takes the place of
    U^p, which keeps it valid. Valid for a fixed number of pulls; the regret theorem covers the
    literal radius only.

    Algorithm 1 as printed is ``radius="subweibull", occurrence="printed", unseen=1.0``, except that
    the first pull of every arm counts (the listing throws it away).

    The paper suspects that an optimal policy has to split δ according to p_k. It gains almost
    nothing, because δ enters through the root of its logarithm. A share that depends on data is
    proven to fail with probability at most 1.5 δ, and does so less often than δ in simulations.

    Examples
    --------
    >>> ZIUCB(horizon=1000, sigma=1.0)
    ZIUCB(horizon=1000.0, tail=SubGaussian(sigma=1.0), radius='given_count', occurrence='kl',
          split=0.5, unseen='pooled')
    """

    radius: str = choice(RADII, default="given_count")
    occurrence: str = choice(("hoeffding", "kl", "printed"), default="kl")
    split: str | float = number_or(
        "by_prob", real(low=0.0, high=1.0, closed="neither"), default=0.5
    )
    unseen: str | float = unseen_magnitude()
    label = "ZI-UCB"
    looks = {"ZI-UCB": "#009E73 o heavy", "ZI-UCB printed": "#117733 o dashed heavy"}

    def check(self) -> None:
        """Raise for a printed radius that the tail has no constants for."""
        if self.parameters()["radius"] == "subweibull" and self.tail_kind == SUBEXPONENTIAL:
            raise InvalidParameterError(
                "`radius`='subweibull' needs `tail`=SubWeibull(theta=1, size=...) "
                f"(see zib.theory.subweibull_size); got {shown(self.tail)}"
            )


class Bounds(Part):
    """What `ZIUCB` derives about an arm."""

    score: Floats = per_arm(start=math.inf, finite=False)  # U^p alone while the arm never paid
    mean_upper: Floats = per_arm()  # U^mu


@jitable
def _refresh(spec: Any, state: Any, arm: int) -> None:
    own = state.own
    n = state.pulls[arm]
    nonzero = state.nonzero[arm]
    if n == 0.0:
        own.score[arm] = np.inf
        return
    p_hat = nonzero / n
    share = spec.split
    if math.isnan(share):
        share = error_share_scalar(nonzero / (n + 1.0))
    full = 2.0 * state.log_horizon[0]  # log(4/δ) at δ = 4/T²
    level = full - LOG2 - math.log(2.0 * (1.0 - share))
    if spec.occurrence == KL:
        prob_upper = kl_upper_scalar(p_hat, n, level)
    else:
        prob_upper = p_hat + hoeffding_radius_scalar(n, level)
        if spec.occurrence == HOEFFDING:
            prob_upper = min(1.0, prob_upper)
    if nonzero == 0.0:
        own.score[arm] = prob_upper
        return
    mean_upper = state.total[arm] / nonzero + mean_radius(
        spec.tail, spec.radius, nonzero, full - math.log(2.0 * share)
    )
    own.mean_upper[arm] = mean_upper
    if spec.occurrence == LITERAL:
        own.score[arm] = mean_upper * prob_upper
        return
    prob_lower = 0.0
    if mean_upper < 0.0:
        if spec.occurrence == KL:
            prob_lower = kl_lower_scalar(p_hat, n, level)
        else:
            prob_lower = max(0.0, p_hat - hoeffding_radius_scalar(n, level))
    own.score[arm] = signed_product(mean_upper, prob_lower, prob_upper)


def _update(spec: Any, state: Any, arm: int, reward: float) -> None:
    observe(state, arm, reward)
    _refresh(spec, state, arm)


def _scores(spec: Any, state: Any, rng: Any, out: Any) -> None:
    waiting = False
    for k in range(out.size):
        out[k] = state.own.score[k]
        if state.nonzero[k] == 0.0:
            waiting = True
    if waiting:
        top = -np.inf
        for k in range(out.size):
            if state.nonzero[k] > 0.0:
                top = max(top, state.own.mean_upper[k])
        complete_unseen(state, spec.unseen, top, out)


register(ZIUCB, own=Bounds, scores=_scores, update=_update, refresh=_refresh, additive=True)


# ------------------------------------------------------------------------------ Algorithm RUCB

GROWING, PRINTED = 0, 1  # trimming, and the index
GIVEN_COUNT = 0  # radius


class ZIHeavyUCB(Spec):
    """UCB for zero-inflated rewards with heavy tails (Algorithm RUCB); needs no horizon.

    Parameters
    ----------
    epsilon
        Order of the finite moment minus one, in (0, 1].
    moment
        M with E|X|^(1+ε) ≤ M (raw moment of the non-zero rewards: the proof needs it raw).
    trim
        ``"growing"`` (default): the j-th non-zero reward counts if
        |X| ≤ (jM/log t²)^(1/(1+ε)), the threshold of the lemma. ``"printed"``: the shrinking
        threshold g(p̂, ε) M^(1/(1+ε)) (log t²/n)^(ε/(1+ε)) of the listing, which ends up discarding
        everything; kept for comparison.
    radius
        ``"given_count"`` (default): 4 M^(1/(1+ε)) (log t²/B)^(ε/(1+ε)) with the number B of
        non-zero rewards. ``"printed"``: M^(1/(1+ε)) (32 log t/n)^(ε/(1+ε)) with n pulls; too narrow
        when p is small, and, as a constant, when ε is.
    index
        ``"current"`` (default): both bounds at the present round t, U^p capped at 1, and the lower
        bound on p in place of U^p where U^mu < 0. ``"printed"``: U^p as it was when the arm was
        last played, uncapped, times U^mu as it was when the arm last paid. Between its pulls the
        index of an arm stands still then, and an arm with an unlucky start can be given up for
        good.
    unseen
        As in `ZIUCB`.

    Notes
    -----
    U^p = p̂ + √(2 log t²/n). A reward is trimmed once, when it arrives, so a round costs O(1); the
    sum of trimmed rewards depends on the order of arrival, hence two states cannot be merged.

    Algorithm RUCB as printed is ``trim="printed", radius="printed", index="printed", unseen=1.0``,
    except that the first pull of every arm counts (the listing throws it away).
    """

    epsilon: float = real(low=0, high=1, closed="right")
    moment: float = positive()
    trim: str = choice(("growing", "printed"), default="growing")
    radius: str = choice(("given_count", "printed"), default="given_count")
    index: str = choice(("current", "printed"), default="current")  # type: ignore[assignment]
    unseen: str | float = unseen_magnitude()
    label = "ZI-UCB heavy"


# Where compiled code finds the field `index`: by name it would find the method of all tuples.
_INDEX = ZIHeavyUCB._fields.index("index")


class Trimmed(Part):
    """What `ZIHeavyUCB` keeps about an arm."""

    kept: Floats = per_arm()  # sum of the rewards that passed the trimming
    prob_upper: Floats = per_arm()  # U^p when the arm was last played, for index="printed"
    mean_upper: Floats = per_arm()  # U^mu when it last paid, for index="printed"


@jitable
def _prob_radius(n: float, log_t: float) -> float:
    return math.sqrt(4.0 * log_t / n)  # sqrt(2 log t² / n)


@jitable
def _mean_scale(spec: Any, log_t: float) -> float:
    """Return the radius of the trimmed mean for one reward, or pull."""
    if spec.radius == GIVEN_COUNT:
        return trimmed_count_radius_scalar(1.0, 2.0 * log_t, spec.moment, spec.epsilon)
    power = spec.epsilon / (1.0 + spec.epsilon)
    return float(spec.moment ** (1.0 / (1.0 + spec.epsilon)) * (32.0 * log_t) ** power)


@jitable
def _mean_upper(spec: Any, state: Any, arm: int, scale: float) -> float:
    nonzero = state.nonzero[arm]
    count = nonzero if spec.radius == GIVEN_COUNT else state.pulls[arm]
    power = spec.epsilon / (1.0 + spec.epsilon)
    return float(state.own.kept[arm] / nonzero + scale * count**-power)


def _heavy_update(spec: Any, state: Any, arm: int, reward: float) -> None:
    observe(state, arm, reward)
    n = state.pulls[arm]
    nonzero = state.nonzero[arm]
    log_t = math.log(max(state.clock[0], 2.0))
    state.own.prob_upper[arm] = nonzero / n + _prob_radius(n, log_t)
    if reward == 0.0:
        return
    if spec.trim == GROWING:
        threshold = trim_threshold(nonzero, 2.0 * log_t, spec.moment, spec.epsilon)
    else:
        threshold = trimmed_radius_scalar(n, nonzero / n, 2.0 * log_t, spec.moment, spec.epsilon)
    if abs(reward) <= threshold:
        state.own.kept[arm] += reward
    state.own.mean_upper[arm] = _mean_upper(spec, state, arm, _mean_scale(spec, log_t))


def _heavy_imagine(spec: Any, state: Any, arm: int) -> None:
    state.own.kept[arm] *= one_more(state, arm)
    n = state.pulls[arm]
    log_t = math.log(max(state.clock[0], 2.0))
    state.own.prob_upper[arm] = state.nonzero[arm] / n + _prob_radius(n, log_t)


def _heavy_scores(spec: Any, state: Any, rng: Any, out: Any) -> None:
    log_t = math.log(max(state.clock[0] + 1.0, 2.0))
    scale = _mean_scale(spec, log_t)
    top = -np.inf
    for k in range(out.size):
        n = state.pulls[k]
        if n == 0.0:
            out[k] = np.inf
            continue
        paid = state.nonzero[k] > 0.0
        if spec[_INDEX] == PRINTED:
            out[k] = state.own.prob_upper[k]
            if paid:
                top = max(top, state.own.mean_upper[k])
                out[k] *= state.own.mean_upper[k]
            continue
        wide = _prob_radius(n, log_t)
        p_hat = state.nonzero[k] / n
        out[k] = min(1.0, p_hat + wide)
        if paid:
            mean_upper = _mean_upper(spec, state, k, scale)
            top = max(top, mean_upper)
            out[k] = signed_product(mean_upper, max(0.0, p_hat - wide), out[k])
    complete_unseen(state, spec.unseen, top, out)


register(
    ZIHeavyUCB,
    own=Trimmed,
    scores=_heavy_scores,
    update=_heavy_update,
    imagine=_heavy_imagine,
)
