"""Exact posterior sampling of p·mu: no clipping, no confidence level, no horizon.

Priors may be learned across arms. The marginal likelihood of all arms does not care how it was
decided which arm to play, so it may be maximised on data that a bandit collected. Both fits are
refreshed when the number of rounds has grown by five per cent, warm-started, at a cost of order K.

A fitted prior can be too sure of itself. It therefore never counts for more than `MOST_PAID`
rewards: an arm that was hardly played keeps at least that much doubt, whatever the others did.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from zib.core.kernel import jitable, register
from zib.core.spec import choice, number_or, positive
from zib.core.state import ArmState, Floats, Part, new_state, scalar
from zib.mab.families import GAUSSIAN, LOGNORMAL, FamilySpec, PooledScale, learn, pool, pooled_scale
from zib.mab.sampling import (
    AT_ONCE,
    DRAWS,
    Draws,
    is_stranger,
    product_scores,
    strange_magnitude,
    typical_magnitude,
)

# ---------------------------------------------------------------------- priors learned across arms

MOST_PAID = 20.0
GROWTH = 1.05
FIRST_FIT = 16.0
FEWEST_PAID = 3.0
STEPS = 8
STEPS_FROM_SCRATCH = 64


class LearnedPrior(Part):
    """Priors learned across arms: Beta(alpha, beta) of paying, normal of the magnitude."""

    alpha: Floats = scalar(start=1.0, least=1e-290, most=1e290)
    beta: Floats = scalar(start=1.0, least=1e-290, most=1e290)
    centre: Floats = scalar()
    variance: Floats = scalar(least=0.0)
    next_fit: Floats = scalar()  # the number of rewards after which it is learned again


def start(state: Any, alpha: float, beta: float) -> None:
    """Put the prior that is in force before anything is learned."""
    state.own.alpha[0] = alpha
    state.own.beta[0] = beta
    state.own.next_fit[0] = max(FIRST_FIT, float(state.pulls.size))


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
def fit_probabilities(state: Any, steps: int, most: float) -> None:
    """Climb the beta-binomial likelihood by Minka's fixed point; α stays at or below `most`."""
    alpha = state.own.alpha[0]
    beta = state.own.beta[0]
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
        if alpha > most:
            beta *= most / alpha
            alpha = most
    state.own.alpha[0] = max(alpha, 1e-3)
    state.own.beta[0] = max(beta, 1e-3)


@jitable
def place_and_noise(spec: Any, state: Any, arm: int, scale: float) -> tuple[float, float]:
    """Return the mean of an arm's non-zero rewards (or logarithms), and their variance."""
    count = state.nonzero[arm]
    if spec.family == LOGNORMAL:
        return state.own.log_total[arm] / count, scale * scale
    mean = state.total[arm] / count
    if spec.family != GAUSSIAN:
        # The variance is mu²/shape. With the square of the arm's own mean in place of mu², an arm
        # whose first reward was small would be certain to be bad.
        centre = state.own.centre[0]
        if centre <= 0.0:
            return mean, mean * mean / spec.form
        variance = state.own.variance[0]
        noise = (centre * centre + variance) / spec.form
        guess, doubt = compromise(mean, noise / count, centre, variance)
        return mean, (guess * guess + doubt) / spec.form
    sd = scale if math.isnan(spec.sigma) else spec.sigma
    return mean, sd * sd


@jitable
def compromise(place: float, noise: float, centre: float, spread: float) -> tuple[float, float]:
    """Return mean and variance of a magnitude that was estimated and has a normal prior.

    The estimate is `place`, with variance `noise`; the prior has mean `centre`, variance `spread`.
    """
    share = spread / (spread + noise) if spread + noise > 0.0 else 1.0
    return share * place + (1.0 - share) * centre, share * noise


@jitable
def _fit_magnitudes(spec: Any, state: Any, steps: int) -> None:
    """Climb the likelihood of normal means with a common normal prior by its EM steps."""
    scale = pooled_scale(state)
    centre = state.own.centre[0]
    spread = state.own.variance[0]
    for step in range(steps):
        total = 0.0
        squares = 0.0
        arms = 0.0
        for k in range(state.pulls.size):
            count = state.nonzero[k]
            if count > 0.0:
                guess, noise = place_and_noise(spec, state, k, scale)
                doubt = noise / count
                if step > 0 or spread > 0.0:  # there is a prior to start from
                    guess, doubt = compromise(guess, doubt, centre, spread)
                total += guess
                squares += guess * guess + doubt
                arms += 1.0
        if arms == 0.0:
            return
        centre = total / arms
        spread = max(squares / arms - centre * centre, 0.0)
        state.own.centre[0] = centre
        state.own.variance[0] = spread
    # at least as much doubt as `MOST_PAID` rewards leave
    least = scale * scale
    if spec.family == GAUSSIAN and not math.isnan(spec.sigma):
        least = spec.sigma * spec.sigma
    elif spec.family != GAUSSIAN and spec.family != LOGNORMAL:
        least = centre * centre / spec.form
    state.own.variance[0] = max(spread, least / MOST_PAID)


@jitable
def next_fit(state: Any) -> float:
    """Return the round after which priors are learned the next time."""
    grown = math.floor(GROWTH * state.clock[0]) + 1.0
    return float(max(grown, FIRST_FIT, float(state.pulls.size)))


@jitable
def _fit(spec: Any, state: Any, steps: int) -> None:
    state.own.next_fit[0] = next_fit(state)
    paid = 0.0
    for k in range(state.pulls.size):
        paid += state.nonzero[k]
    if paid >= FEWEST_PAID:
        fit_probabilities(state, steps, MOST_PAID)
        _fit_magnitudes(spec, state, steps)


@jitable
def fit_if_due(spec: Any, state: Any) -> None:
    """Learn the priors anew when enough rounds have passed."""
    if state.clock[0] >= state.own.next_fit[0]:
        _fit(spec, state, STEPS)


@jitable
def fit_from_scratch(spec: Any, state: Any) -> None:
    """Learn the priors from the statistics alone, whatever they were before."""
    state.own.alpha[0] = spec.alpha
    state.own.beta[0] = spec.beta
    state.own.centre[0] = 0.0
    state.own.variance[0] = 0.0
    _fit(spec, state, STEPS_FROM_SCRATCH)


# -------------------------------------------------------------------------------------- the policy

FLAT, LEARNED = 0, 1
AS_PRIOR, OWN_MAGNITUDES, SHARED_MAGNITUDES, LEARNED_MAGNITUDES = range(4)
BORROWED = 3.0  # rewards that the scale of all arms together counts for, when sigma is unknown


class ZIPosterior(FamilySpec):
    """Thompson sampling from the exact posterior of both parts.

    Parameters
    ----------
    family, sigma, shape
        As in `ZIKLUCB`.
    alpha, beta
        Prior Beta(α, β) of the probability of paying.
    unseen
        Magnitude of an arm that never paid: ``"pooled"`` takes the largest magnitude sampled this
        round among arms that have paid; or a number. With a learned prior: a draw of it.
    prior
        ``"flat"``: Beta(α, β) for the probability and no prior for the magnitude, each arm on its
        own. ``"learned"``: both priors are fitted to all arms (empirical Bayes), so that arms with
        a handful of rewards borrow strength from the others.
    magnitudes
        The same question for the magnitudes alone: ``"own"`` (flat), ``"learned"``, or as `prior`
        says by default. ``"shared"``: all arms pay the same on average when they pay, because you
        know it; only how often they pay is learned, and wherever that is wrong the best arm may
        never be found.

    Notes
    -----
    p̃ ~ Beta(α + B, β + n − B), and μ̃ from the posterior of the family: N(μ̂, σ²/B) for a known σ;
    Student's t for an unknown one, where the scale of all arms counts for three rewards; an
    inverse gamma, from Jeffreys' prior, for exponential and gamma rewards; normal-inverse-gamma of
    the logarithms for the log-normal. The arm with the largest p̃·μ̃ is played.

    Jeffreys' prior, and not one that is flat in the rate: an arm whose only reward so far is x, and
    small, is drawn above m with a probability of about x/m under the one and (x/m)²/2 under the
    other. The mean of 1/x² is infinite, so the flat one gives up good arms for too long.

    The learned prior of the probability maximises the beta-binomial likelihood of all arms, that of
    the magnitude (or of the mean logarithm) is normal. Neither counts for more than twenty rewards.

    Where the scatter is borrowed from other arms (σ unknown, log-normal), one of the first few
    rewards of an arm is no reason to believe that it is like them: an arm with B rewards is drawn
    with a probability of 0.2^B, shared by all arms if they are many, from above its average by at
    least the typical size of a reward.
    """

    alpha: float = positive(default=1.0)
    beta: float = positive(default=1.0)
    unseen: str | float = number_or("pooled", default="pooled")
    prior: str = choice(("flat", "learned"), default="flat")
    magnitudes: str = choice(("prior", "own", "shared", "learned"), default="prior")
    looks = {"ZI posterior": "#6699CC d dashdot heavy", "ZI posterior learned": "#0072B2 d heavy"}

    @property
    def label(self) -> str:
        """A short name for figures and tables."""
        told = self.parameters()
        name = "ZI posterior learned" if told["prior"] == "learned" else "ZI posterior"
        how = told["magnitudes"]
        return name if how == "prior" else f"{name}, magnitudes {how}"

    @property
    def learns_late(self) -> bool:
        """Whether priors are learned now and then only, so that they lag behind the rewards."""
        told = self.parameters()
        return bool("learned" in (told["prior"], told["magnitudes"]))


class _PosteriorPart(PooledScale, LearnedPrior):
    """A learned prior, and the scale that arms borrow from each other."""


def _init(spec: ZIPosterior, n_arms: int) -> ArmState:
    state = new_state(n_arms, own=_PosteriorPart)
    start(state, spec.alpha, spec.beta)
    return state


@jitable
def _learns(spec: Any) -> bool:
    return bool(spec.prior == LEARNED or spec.magnitudes == LEARNED_MAGNITUDES)


def _refresh_all(spec: Any, state: Any) -> None:
    pool(spec, state)
    if _learns(spec):
        fit_from_scratch(spec, state)


def _refresh(spec: Any, state: Any, arm: int) -> None:
    _refresh_all(spec, state)


def _update(spec: Any, state: Any, arm: int, reward: float) -> None:
    learn(spec, state, arm, reward)
    if _learns(spec):
        fit_if_due(spec, state)


@jitable
def _borrows_scale(spec: Any) -> bool:
    if spec.family == GAUSSIAN:
        return math.isnan(spec.sigma)
    return bool(spec.family == LOGNORMAL)


@jitable
def _scales(spec: Any, state: Any) -> tuple[float, float]:
    """Return the scatter of the rewards (or logarithms) of all arms, and their typical size."""
    if _borrows_scale(spec):
        return pooled_scale(state), typical_magnitude(state)
    return pooled_scale(state), 0.0


@jitable
def _draw(spec: Any, state: Any, arm: int, scales: tuple[float, float], rng: Any) -> float:
    """Draw a magnitude from its posterior under the flat prior, each arm on its own."""
    scale, typical = scales
    count = state.nonzero[arm]
    mean = state.total[arm] / count
    if _borrows_scale(spec) and is_stranger(state, count, AT_ONCE, rng):
        return strange_magnitude(mean, typical, rng)
    if spec.family == GAUSSIAN:
        if not math.isnan(spec.sigma):
            return float(mean + spec.sigma / math.sqrt(count) * rng.standard_normal())
        freedom = count - 1.0 + BORROWED
        own = math.sqrt((state.spread[arm] + BORROWED * scale * scale) / (freedom * count))
        return float(mean + own * rng.standard_t(freedom))
    if spec.family == LOGNORMAL:
        freedom = count - 1.0 + BORROWED
        total = state.own.log_spread[arm] + BORROWED * scale * scale
        variance = total / (2.0 * rng.standard_gamma(0.5 * freedom))
        place = state.own.log_total[arm] / count
        place += math.sqrt(variance / count) * rng.standard_normal()
        return math.exp(min(place + 0.5 * variance, 700.0))
    drawn = max(rng.standard_gamma(spec.form * count), 1e-200)  # 0 only if the shape is tiny
    return float(spec.form * state.total[arm] / drawn)


DRAWS.add(ZIPosterior, Draws(_draw, shared=_scales))


@jitable
def _draw_learned(spec: Any, state: Any, arm: int, scales: tuple[float, float], rng: Any) -> float:
    """Draw a magnitude from its posterior under the learned prior."""
    scale, typical = scales
    centre = state.own.centre[0]
    variance = state.own.variance[0]
    count = state.nonzero[arm]
    of_one = scale * scale
    if count > 0.0:
        if _borrows_scale(spec) and is_stranger(state, count, AT_ONCE, rng):
            return strange_magnitude(state.total[arm] / count, typical, rng)
        mean, noise = place_and_noise(spec, state, arm, scale)
        if _borrows_scale(spec):
            own = state.own.log_spread[arm] if spec.family == LOGNORMAL else state.spread[arm]
            noise = (own + BORROWED * scale * scale) / (count - 1.0 + BORROWED)
            of_one = noise
        centre, variance = compromise(mean, noise / count, centre, variance)
    out = centre + math.sqrt(variance) * rng.standard_normal()
    if spec.family == LOGNORMAL:
        return math.exp(min(out + 0.5 * of_one, 700.0))
    return float(out)


@jitable
def shared_magnitude(state: Any) -> float:
    """Return the average of all non-zero rewards; 1 before there are any."""
    total = 0.0
    paid = 0.0
    for k in range(state.pulls.size):
        total += state.total[k]
        paid += state.nonzero[k]
    return total / paid if paid > 0.0 else 1.0


def _scores(spec: Any, state: Any, rng: Any, out: Any) -> None:
    is_shared = spec.magnitudes == SHARED_MAGNITUDES
    is_fitted = _learns(spec) and state.own.variance[0] > 0.0
    if not is_shared and not is_fitted:
        product_scores(spec, state, rng, out)
        return
    alpha = state.own.alpha[0] if spec.prior == LEARNED and is_fitted else spec.alpha
    beta = state.own.beta[0] if spec.prior == LEARNED and is_fitted else spec.beta
    common = shared_magnitude(state)
    scales = _scales(spec, state)
    for k in range(out.size):
        n = state.pulls[k]
        if n == 0.0:
            out[k] = np.inf
            continue
        b = state.nonzero[k]
        prob = rng.beta(alpha + b, beta + n - b)
        if is_shared:
            out[k] = prob * common
        elif spec.magnitudes == OWN_MAGNITUDES and b > 0.0:
            out[k] = prob * _draw(spec, state, k, scales, rng)
        else:
            out[k] = prob * _draw_learned(spec, state, k, scales, rng)


register(
    ZIPosterior,
    own=_PosteriorPart,
    init=_init,
    scores=_scores,
    update=_update,
    refresh=_refresh,
    refresh_all=_refresh_all,
    additive=True,
    randomized=True,
)
