"""Thompson sampling for zero-inflated rewards: sample how often, sample how much, multiply.

For light tails with clipped posteriors (Algorithm MAB-light-TS), for exponential rewards, and for
symmetric stable ones.
"""

from __future__ import annotations

import math
from typing import Any

from zib.core.kernel import jitable, register
from zib.core.spec import Spec, number_or, positive, real
from zib.core.state import (
    ArmState,
    Floats,
    Part,
    clamped,
    new_state,
    per_arm,
    scalar,
    scratch,
    table,
)
from zib.mab.sampling import DRAWS, Draws, draw_beta, product_scores
from zib.mab.stable import (
    GRID,
    KNOTS,
    MEMORY,
    compute,
    is_kept,
    place_points,
    quantile,
    score_at,
    stable_law,
    summarise,
)
from zib.stats.arms import observe

# ------------------------------------------------------------- Algorithm MAB-light-TS (clipped)


class ZITS(Spec):
    """Thompson sampling with clipped posteriors for light tails (Algorithm MAB-light-TS).

    Parameters
    ----------
    horizon
        Number of rounds T the clipping is made for (≥ 2).
    sigma
        Sub-Gaussian size of the non-zero rewards.
    rho, gamma
        Spread of the Gaussian draw and width of the clipping; the theorem asks for ρ ∈ (½, 1) and
        γ ≥ 4, other positive values are allowed.
    alpha, beta
        Prior Beta(α, β) of the probability of paying; the theorem asks for values in [0, 1], here
        they must be positive so that the prior is proper.
    unseen
        Magnitude of an arm that never paid: ``"pooled"`` takes the largest magnitude sampled this
        round among arms that have paid; or a number.

    Notes
    -----
    p̃ ~ min{Beta(α + B, β + n − B), ϑ(p)} and μ̃ ~ min{N(μ̂, 2σ²/(ρ n p̂)), ϑ(mu)}; the arm with
    the largest p̃·μ̃ is played. ϑ(p) = p̂ + √(γ/(4n) log⁺(T/(4nK))),
    ϑ(mu) = μ̂ + √(4γqσ²/(p̂²n) log⁺(4qσ²T/(p̂²nK))), q = 1 + 1/log(1 + 1/√(nT)). Clipping is from
    above (the printed ``max`` is a slip). The paper claims that this is minimax optimal for
    sub-Gaussian rewards; its proof has gaps (see the page "The paper and the code"). ϑ(mu) is so
    wide in practice that it rarely binds.

    No mode follows the listing to the letter. This class differs from it in four ways: p̂ is B/n
    (the printed update divides by zero); the first pull of every arm counts; an arm that never paid
    follows `unseen` instead of a Gaussian with infinite variance; and ϑ(mu) is computed anew after
    a zero too, where the listing waits for a payment. The defaults of ρ and γ are ours: the text
    gives ranges and refers to another article.
    """

    horizon: float = real(low=2)
    sigma: float = positive()
    rho: float = positive(default=0.9)
    gamma: float = positive(default=4.0)
    alpha: float = positive(default=1.0)
    beta: float = positive(default=1.0)
    unseen: str | float = number_or("pooled", default="pooled")
    label = "ZI-TS"
    looks = {"ZI-TS": "#0072B2 s heavy", "ZI-TS printed": "#56B4E9 p dashed heavy"}


class Caps(Part):
    """What `ZITS` derives about an arm that has paid."""

    prob_cap: Floats = per_arm()  # ϑ(p)
    mean_cap: Floats = per_arm()  # ϑ(mu)
    mean_sd: Floats = per_arm()  # standard deviation of the draw of mu


@jitable
def _positive_log(x: float) -> float:
    return math.log(x) if x > 1.0 else 0.0


@jitable
def _refresh(spec: Any, state: Any, arm: int) -> None:
    n = state.pulls[arm]
    nonzero = state.nonzero[arm]
    if nonzero == 0.0:
        return
    horizon = state.horizon[0]
    n_arms = state.pulls.size
    p_hat = nonzero / n
    state.own.prob_cap[arm] = p_hat + math.sqrt(
        spec.gamma / (4.0 * n) * _positive_log(horizon / (4.0 * n * n_arms))
    )
    q = 1.0 + 1.0 / math.log1p(1.0 / math.sqrt(n * horizon))
    base = 4.0 * q * spec.sigma * spec.sigma / (p_hat * p_hat * n)
    state.own.mean_cap[arm] = state.total[arm] / nonzero + math.sqrt(
        spec.gamma * base * _positive_log(base * horizon / n_arms)
    )
    state.own.mean_sd[arm] = spec.sigma * math.sqrt(2.0 / (spec.rho * nonzero))


def _update(spec: Any, state: Any, arm: int, reward: float) -> None:
    observe(state, arm, reward)
    _refresh(spec, state, arm)


@jitable
def _clipped_probability(spec: Any, state: Any, arm: int, rng: Any) -> float:
    return float(min(draw_beta(spec, state, arm, rng), state.own.prob_cap[arm]))


@jitable
def _clipped_magnitude(spec: Any, state: Any, arm: int, common: Any, rng: Any) -> float:
    draw = state.total[arm] / state.nonzero[arm] + state.own.mean_sd[arm] * rng.standard_normal()
    return float(min(draw, state.own.mean_cap[arm]))


DRAWS.add(ZITS, Draws(_clipped_magnitude, _clipped_probability))
register(
    ZITS,
    own=Caps,
    scores=product_scores,
    update=_update,
    refresh=_refresh,
    additive=True,
    randomized=True,
)


# ------------------------------------------------------------------ exponential rewards, conjugate


class ZIExponentialTS(Spec):
    """Exact Thompson sampling when the non-zero rewards are exponential; needs no horizon.

    Parameters
    ----------
    shape, rate
        Prior Gamma(shape, rate) of 1/mu. The default (0, 0) is Jeffreys'.
    alpha, beta, unseen
        As in `ZITS`.

    Notes
    -----
    1/μ̃ ~ Gamma(shape + B, rate + S) and p̃ ~ Beta(α + B, β + n − B), unclipped. Non-zero rewards
    must be positive.

    An arm whose only reward so far is x, and small, is drawn above m with a probability of about
    x/m under Jeffreys' prior, as often as such a reward happens; under a prior that is flat in the
    rate (shape 1) with one of (x/m)²/2. The mean of 1/x² is infinite, so that one gives up good
    arms for too long.
    """

    shape: float = real(low=0, default=0.0)
    rate: float = real(low=0, default=0.0)
    alpha: float = positive(default=1.0)
    beta: float = positive(default=1.0)
    unseen: str | float = number_or("pooled", default="pooled")
    label = "ZI-TS exponential"
    looks = {"ZI-TS exponential": "#332288 D heavy"}

    @property
    def reward_range(self) -> tuple[float, float]:
        """Exponential rewards are not negative."""
        return (0.0, math.inf)


def _exponential_update(spec: Any, state: Any, arm: int, reward: float) -> None:
    observe(state, arm, max(reward, 0.0))


@jitable
def _exponential_magnitude(spec: Any, state: Any, arm: int, common: Any, rng: Any) -> float:
    drawn = rng.standard_gamma(spec.shape + state.nonzero[arm])
    return float(
        (spec.rate + state.total[arm]) / max(drawn, 1e-200)
    )  # 0 if nearly all is forgotten


DRAWS.add(ZIExponentialTS, Draws(_exponential_magnitude))
register(
    ZIExponentialTS,
    scores=product_scores,
    update=_exponential_update,
    additive=True,
    randomized=True,
)


# ------------------------------------------------------------------------ symmetric stable rewards


class ZIStableTS(Spec):
    """Thompson sampling when the non-zero rewards are symmetric stable around mu.

    Parameters
    ----------
    stability
        Index of stability in (1, 2]; 2 is Gaussian with variance 2σ², smaller is heavier-tailed.
    sigma
        Scale σ of the stable law (characteristic function exp(iμt − |σt|^stability)).
    alpha, beta, unseen
        As in `ZITS`.

    Notes
    -----
    p̃ ~ Beta(α + B, β + n − B), and μ̃ from the posterior of mu with a flat prior: computed from all
    rewards while there are at most 32, then normal, with the Fisher information of the stable law.
    An outlier counts little wherever it stands: with a first reward of 300 and then twenty near 0,
    mu is near 0. A non-zero reward costs about 50 µs while rewards are kept. States cannot be
    merged exactly.
    """

    stability: float = real(low=1, high=2, closed="right", default=1.8)
    sigma: float = positive()
    alpha: float = positive(default=1.0)
    beta: float = positive(default=1.0)
    unseen: str | float = number_or("pooled", default="pooled")
    label = "ZI-TS stable"
    looks = {"ZI-TS stable": "#56B4E9 s dashed heavy"}


class Latent(Part):
    """What `ZIStableTS` keeps: what is known of the centres, and the law around them."""

    # few rewards: the rewards, and the posterior of mu
    rewards: Floats = per_arm(MEMORY)
    points: Floats = per_arm(GRID)
    density: Floats = per_arm(GRID, least=0.0)
    below: Floats = per_arm(GRID, least=0.0)  # probability below the point
    # many rewards: it is normal
    centre: Floats = per_arm()
    information: Floats = per_arm(least=0.0)
    # the standard stable law
    log_density: Floats = table(KNOTS)
    score: Floats = table(KNOTS)  # −d log f(x)/dx
    levels: Floats = table(GRID)  # probabilities, and ...
    quantiles: Floats = table(GRID)  # ... quantiles
    fisher: Floats = scalar(least=0.0)
    new_points: Floats = scratch(GRID)


def _stable_init(spec: ZIStableTS, n_arms: int) -> ArmState:
    state = new_state(n_arms, own=Latent)
    own = state.own
    law = stable_law(spec.stability)
    for array, value in zip(
        (own.log_density, own.score, own.levels, own.quantiles, own.fisher), law, strict=True
    ):
        array[:] = value
    return state


@jitable
def _learn_centre(spec: Any, state: Any, arm: int, reward: float) -> None:
    own = state.own
    count = state.nonzero[arm]
    if is_kept(spec, count):
        kept = clamped(count - 1.0, MEMORY) + 1
        own.rewards[arm, kept - 1] = reward
        place_points(spec, own, arm, kept)
        compute(spec, own, arm, kept)
        if count == MEMORY:
            summarise(own, arm)
    else:
        own.information[arm] += own.fisher[0] / (spec.sigma * spec.sigma)
        step = score_at(spec, own, (reward - own.centre[arm]) / spec.sigma) / spec.sigma
        own.centre[arm] += step / own.information[arm]


def _stable_update(spec: Any, state: Any, arm: int, reward: float) -> None:
    observe(state, arm, reward)
    if reward != 0.0:
        _learn_centre(spec, state, arm, reward)


@jitable
def _stable_magnitude(spec: Any, state: Any, arm: int, common: Any, rng: Any) -> float:
    own = state.own
    if is_kept(spec, state.nonzero[arm]):
        return quantile(own, arm, rng.random())
    sd = 1.0 / math.sqrt(own.information[arm])
    return float(own.centre[arm] + sd * rng.standard_normal())


DRAWS.add(ZIStableTS, Draws(_stable_magnitude))
register(
    ZIStableTS,
    own=Latent,
    init=_stable_init,
    scores=product_scores,
    update=_stable_update,
    randomized=True,
)
