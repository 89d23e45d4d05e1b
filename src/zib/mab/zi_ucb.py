"""Algorithm 1: an upper bound on how often an arm pays times one on how much."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np

from zib.core import validate as check
from zib.core.kernel import jitable, register
from zib.core.spec import Spec
from zib.mab.tails import LITERAL, LOG2, RADII, SUBEXPONENTIAL, Tail, mean_radius, resolve_tail
from zib.mab.unseen import complete_unseen, resolve_unseen
from zib.stats.arms import LOG_HORIZON, ArmState, new_state, observe
from zib.theory.bernoulli import hoeffding_radius_scalar as hoeffding_radius
from zib.theory.bernoulli import kl_lower_scalar as kl_lower
from zib.theory.bernoulli import kl_upper_scalar as kl_upper
from zib.theory.products import signed_product

HOEFFDING, KL = 0, 1
INDEX, MEAN_UPPER = 0, 1  # columns of `cache`; INDEX holds U^p alone while the arm never paid


class _ZIUCBFields(NamedTuple):
    horizon: float
    tail: Tail
    radius: int
    occurrence: int
    unseen: float


class ZIUCB(Spec, _ZIUCBFields):
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
        printed p̂ + √(log(2/δ)/(2n)), capped at 1.
    unseen
        Magnitude assumed for an arm that never paid: ``"pooled"`` or a number (printed: 1).

    Notes
    -----
    The index is U^mu·U^p. It is a valid upper bound of mu·p with probability 1 − δ while
    U^mu ≥ 0; where U^mu < 0 (rewards can be negative) the *lower* bound on p takes the place of
    U^p, which keeps it valid. Valid for a fixed number of pulls; the regret theorem covers the
    literal radius only.

    Examples
    --------
    >>> ZIUCB(horizon=1000, sigma=1.0)
    ZIUCB(horizon=1000.0, tail=SubGaussian(sigma=1.0), radius='given_count', occurrence='kl',
          unseen='pooled')
    """

    __slots__ = ()
    choices: ClassVar[dict[str, tuple[str, ...]]] = {
        "radius": RADII,
        "occurrence": ("hoeffding", "kl"),
    }
    words: ClassVar[dict[str, str | None]] = {"unseen": "pooled"}
    default_label = "ZI-UCB"

    def __new__(
        cls,
        *,
        horizon: float,
        sigma: float | None = None,
        tail: Tail | None = None,
        radius: str = "given_count",
        occurrence: str = "kl",
        unseen: str | float = "pooled",
    ) -> ZIUCB:
        resolved = resolve_tail(sigma, tail)
        code = check.choice("radius", radius, cls.choices["radius"])
        if code == LITERAL and resolved.kind == SUBEXPONENTIAL:
            raise check.InvalidParameterError(
                "`radius`='subweibull' needs `tail`=SubWeibull(theta=1, size=...) "
                f"(see zib.theory.subweibull_size); got {resolved!r}"
            )
        return super().__new__(
            cls,
            check.real("horizon", horizon, low=2),
            resolved,
            code,
            check.choice("occurrence", occurrence, cls.choices["occurrence"]),
            resolve_unseen(unseen),
        )


def _init(spec: ZIUCB, n_arms: int) -> ArmState:
    state = new_state(n_arms, n_cache=2, horizon=spec.horizon)
    state.cache[:, INDEX] = np.inf
    return state


@jitable
def _refresh(spec: Any, state: Any, arm: int) -> None:
    n = state.pulls[arm]
    nonzero = state.nonzero[arm]
    if n == 0.0:
        state.cache[arm, INDEX] = np.inf
        return
    log_horizon = state.shared[LOG_HORIZON]
    level = 2.0 * log_horizon - LOG2
    p_hat = nonzero / n
    if spec.occurrence == KL:
        prob_upper = kl_upper(p_hat, n, level)
    else:
        prob_upper = min(1.0, p_hat + hoeffding_radius(n, level))
    if nonzero == 0.0:
        state.cache[arm, INDEX] = prob_upper
        return
    mean_upper = state.total[arm] / nonzero + mean_radius(
        spec.tail, spec.radius, nonzero, log_horizon
    )
    state.cache[arm, MEAN_UPPER] = mean_upper
    prob_lower = 0.0
    if mean_upper < 0.0:
        if spec.occurrence == KL:
            prob_lower = kl_lower(p_hat, n, level)
        else:
            prob_lower = max(0.0, p_hat - hoeffding_radius(n, level))
    state.cache[arm, INDEX] = signed_product(mean_upper, prob_lower, prob_upper)


def _update(spec: Any, state: Any, arm: int, reward: float) -> None:
    observe(state, arm, reward)
    _refresh(spec, state, arm)


def _scores(spec: Any, state: Any, rng: Any, out: Any) -> None:
    waiting = False
    for k in range(out.size):
        out[k] = state.cache[k, INDEX]
        if state.nonzero[k] == 0.0:
            waiting = True
    if waiting:
        top = -np.inf
        for k in range(out.size):
            if state.nonzero[k] > 0.0:
                top = max(top, state.cache[k, MEAN_UPPER])
        complete_unseen(state, spec.unseen, top, out)


register(ZIUCB, init=_init, scores=_scores, update=_update, refresh=_refresh, additive=True)
