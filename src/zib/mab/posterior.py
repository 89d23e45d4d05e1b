"""Exact posterior sampling of p·mu: no clipping, no confidence level, no horizon."""

from __future__ import annotations

import math
from typing import Any, ClassVar, NamedTuple

import numpy as np

from zib.core import validate as check
from zib.core.kernel import jitable, register
from zib.mab.families import (
    FAMILIES,
    FIRST_CACHE,
    GAUSSIAN,
    LOG_SPREAD,
    LOG_TOTAL,
    LOGNORMAL,
    N_SHARED,
    FamilySpec,
    check_family,
    learn,
    pool,
    pooled_scale,
)
from zib.mab.learned_prior import (
    ALPHA,
    BETA,
    CENTRE,
    N_PRIOR,
    SPREAD,
    fit_from_scratch,
    fit_if_due,
    place_and_noise,
    start,
)
from zib.mab.unseen import resolve_unseen, sample_unseen
from zib.stats.arms import ArmState, new_state

LEARNED = 1
BORROWED = 3.0  # rewards that the scale of all arms together counts for, when sigma is unknown


class _ZIPosteriorFields(NamedTuple):
    family: int
    sigma: float
    shape: float
    alpha: float
    beta: float
    unseen: float
    prior: int


class ZIPosterior(FamilySpec, _ZIPosteriorFields):
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
    """

    __slots__ = ()
    choices: ClassVar[dict[str, tuple[str, ...]]] = {
        "family": FAMILIES,
        "prior": ("flat", "learned"),
    }
    words: ClassVar[dict[str, str | None]] = {"unseen": "pooled", "sigma": None}
    default_label = "ZI posterior"

    def __new__(
        cls,
        *,
        family: str = "gaussian",
        sigma: float | None = None,
        shape: float | None = None,
        alpha: float = 1.0,
        beta: float = 1.0,
        unseen: str | float = "pooled",
        prior: str = "flat",
    ) -> ZIPosterior:
        return super().__new__(
            cls,
            *check_family(family, sigma, shape),
            check.real("alpha", alpha, low=0, closed="neither"),
            check.real("beta", beta, low=0, closed="neither"),
            resolve_unseen(unseen),
            check.choice("prior", prior, cls.choices["prior"]),
        )

    @property
    def label(self) -> str:
        """A short name for figures and tables."""
        return f"{self.default_label} learned" if self.prior == LEARNED else self.default_label

    @property
    def learns_late(self) -> bool:
        """Whether priors are learned now and then only, so that they lag behind the rewards."""
        return self.prior == LEARNED


def _init(spec: ZIPosterior, n_arms: int) -> ArmState:
    state = new_state(n_arms, n_cache=FIRST_CACHE, n_shared=N_SHARED + N_PRIOR)
    start(state, spec.alpha, spec.beta)
    return state


def _refresh_all(spec: Any, state: Any) -> None:
    pool(spec, state)
    if spec.prior == LEARNED:
        fit_from_scratch(spec, state)


def _refresh(spec: Any, state: Any, arm: int) -> None:
    _refresh_all(spec, state)


def _update(spec: Any, state: Any, arm: int, reward: float) -> None:
    learn(spec, state, arm, reward)
    if spec.prior == LEARNED:
        fit_if_due(spec, state)


@jitable
def _draw(spec: Any, state: Any, arm: int, scale: float, rng: Any) -> float:
    count = state.nonzero[arm]
    mean = state.total[arm] / count
    if spec.family == GAUSSIAN:
        if not math.isnan(spec.sigma):
            return float(mean + spec.sigma / math.sqrt(count) * rng.standard_normal())
        freedom = count - 1.0 + BORROWED
        own = math.sqrt((state.spread[arm] + BORROWED * scale * scale) / (freedom * count))
        return float(mean + own * rng.standard_t(freedom))
    if spec.family == LOGNORMAL:
        freedom = count - 1.0 + BORROWED
        total = state.cache[arm, LOG_SPREAD] + BORROWED * scale * scale
        variance = total / (2.0 * rng.standard_gamma(0.5 * freedom))
        place = state.cache[arm, LOG_TOTAL] / count
        place += math.sqrt(variance / count) * rng.standard_normal()
        return math.exp(min(place + 0.5 * variance, 700.0))
    drawn = max(rng.standard_gamma(spec.shape * count), 1e-200)  # 0 only if the shape is tiny
    return float(spec.shape * state.total[arm] / drawn)


@jitable
def _draw_learned(spec: Any, state: Any, arm: int, scale: float, rng: Any) -> float:
    """Draw a magnitude from its posterior under the learned prior."""
    centre = state.shared[CENTRE]
    variance = state.shared[SPREAD]
    count = state.nonzero[arm]
    if count > 0.0:
        mean, noise = place_and_noise(spec, state, arm, scale)
        if spec.family == GAUSSIAN and math.isnan(spec.sigma):
            freedom = count - 1.0 + BORROWED
            noise = (state.spread[arm] + BORROWED * scale * scale) / freedom
        if variance + noise / count > 0.0:
            share = variance / (variance + noise / count)
            centre = share * mean + (1.0 - share) * centre
            variance = share * noise / count
    out = centre + math.sqrt(variance) * rng.standard_normal()
    if spec.family == LOGNORMAL:
        return math.exp(min(out + 0.5 * scale * scale, 700.0))
    return float(out)


def _scores(spec: Any, state: Any, rng: Any, out: Any) -> None:
    scale = pooled_scale(state)
    if spec.prior == LEARNED and state.shared[SPREAD] > 0.0:
        for k in range(out.size):
            n = state.pulls[k]
            if n == 0.0:
                out[k] = np.inf
            else:
                b = state.nonzero[k]
                prob = rng.beta(state.shared[ALPHA] + b, state.shared[BETA] + n - b)
                out[k] = prob * _draw_learned(spec, state, k, scale, rng)
        return
    flat_scores(spec, state, rng, out)


@jitable
def flat_scores(spec: Any, state: Any, rng: Any, out: Any) -> None:
    """Write scores under the flat prior, each arm on its own."""
    top = -np.inf
    scale = pooled_scale(state)
    for k in range(out.size):
        nonzero = state.nonzero[k]
        if nonzero > 0.0:
            prob = rng.beta(spec.alpha + nonzero, spec.beta + state.pulls[k] - nonzero)
            mean = _draw(spec, state, k, scale, rng)
            top = max(top, mean)
            out[k] = prob * mean
    sample_unseen(state, spec.alpha, spec.beta, spec.unseen, top, rng, out)


register(
    ZIPosterior,
    init=_init,
    scores=_scores,
    update=_update,
    refresh=_refresh,
    refresh_all=_refresh_all,
    additive=True,
    randomized=True,
)
