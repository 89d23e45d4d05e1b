"""`Adaptive`: which part depends on the features, and how much, is learned from the rewards."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from zib.contextual import evidence
from zib.contextual.evidence import BORROWED, FIRST_FIT, MOST_SCALES, Group, Prior, describe
from zib.contextual.fit import learn
from zib.contextual.links import derivative, inverse, value
from zib.contextual.models import (
    BERNOULLI,
    GLM,
    LeastSquares,
    MedianOfMeans,
    new_magnitude,
    new_model,
    noise,
    variances,
)
from zib.contextual.per_arm import copy_arms
from zib.contextual.policy import (
    COVARIANCE,
    ETA,
    ETA_VARIANCE,
    KEPT,
    LINK,
    MAGNITUDE,
    ZETA,
    ZETA_VARIANCE,
    Clock,
    new_clock,
    register_policy,
)
from zib.core import kernel
from zib.core import validate as check
from zib.core.registry import borrowing
from zib.core.spec import Spec, choice, derived, optional, positive, real, whole
from zib.core.stacked import row_of, stacked
from zib.core.state import ArmState, rearranged
from zib.mab.adaptive import (
    STRANGERS,
    ZIAdaptive,
    draw_magnitude,
    in_common,
    score,
    seen_magnitude,
    surprise,
)
from zib.mab.pooled import UNDECIDED
from zib.mab.sampling import is_stranger, strange_magnitude
from zib.stats.design import linear_forms, quadratic_forms

LARGEST = 1e100  # beyond it products overflow; no reward is larger
NEGLIGIBLE = 0.01  # a weight that is taken for 0
UNTRIED = 1e300  # score of an arm that was never played
OCCURRENCE_SCALES = 5  # up to 4: what a link does beyond that is hardly to be told from a step
# Prior precisions of intercepts: arms differ by 2 in the linear predictor of the occurrence, and by
# three standard deviations of the noise in the magnitude.
OCCURRENCE_INTERCEPT, MAGNITUDE_INTERCEPT = 0.25, 0.1
TS = 1


class Adaptive(Spec):
    """A model per arm that uses the features as far as the rewards say that they matter.

    Occurrence and magnitude are asked separately whether they depend on the features, and how much.
    Where they do not, the policy is close to `zib.mab.ZIAdaptive`, which does not look at features;
    where they do, to `JointUCB` with a prior of the right width. It is the default of
    `zib.ContextualBandit` with `arms`.

    Parameters
    ----------
    n_arms
        Number of arms (≥ 1). Actions say which arm they belong to; by default row k is arm k.
    sigma
        Standard deviation of the noise of non-zero rewards; None (default) estimates it.
    link
        Link h of the occurrence, by name or as a registered link.
    magnitude
        Model of the non-zero rewards where they depend on features: ``"ridge"`` (default),
        ``"huber"``, `Ridge`, `LeastSquares` or `Huber`.
    doubt
        Prior probability, in (0, 1), that a part does not depend on the features.
    scale
        Factor of the width of indices and of draws; 0 plays the largest estimate.
    memory
        Observations kept for refitting (≥ 256) by every arm; older ones are summarised.
    kind
        Where features matter, ``"ucb"`` (default) plays the largest index. ``"ts"`` draws: for logs
        that other policies are evaluated on, and the default of a contextual `zib.live.Ledger`.

    Notes
    -----
    Each part has two models of every arm: without features, the posterior that `ZIAdaptive` learns,
    and with them, one of `JointUCB`. The prior of its coefficients is learned from all arms (see
    `zib.contextual.evidence`): intercepts apart from the rest, in units of what each feature varies
    by, so that the units do not matter. So is the probability that the features matter. Each is
    learned anew when the number of observations has grown by a fifth.

    For a decision p is the average, with these probabilities, of h(w'θ̂) and of a draw from the
    posterior without features; mu likewise. The index of an arm is p·mu + scale·√(2·ℓ·V) with
    V = p²·V_mu + mu²·V_p + V_mu·V_p, where V_mu and V_p are the variances of what the models with
    features contribute. As in `ZIAdaptive` ℓ = log(1 + t/(n·K)) after t rounds with K arms; here n
    is the variance of one reward over V, as many rewards as would make an arm without features
    known as well. With ``kind="ts"`` the linear predictors of both parts are drawn from the normal
    approximation of their posterior, and the score is the product of what follows from them, but at
    least p·mu and at most the index, as in `ZIAdaptive`.
    Where neither part depends on the features, arms have the scores of `ZIAdaptive`.
    A probability below 0.01 or above 0.99 counts as 0 or 1. There is no theorem. Include a 1 in the
    features: without an intercept all features together have to explain that rewards are rare, and
    they will look as if they did.

    Examples
    --------
    Whether anything is bought depends on the first of four features, how much does not:

    >>> import numpy as np
    >>> import zib
    >>> bandit = zib.ContextualBandit(arms=["red", "blue"], n_features=5, seed=1)
    >>> bandit.spec
    Adaptive(n_arms=2, sigma=None, link='logit', magnitude='ridge', doubt=0.2, scale=1.0,
             memory=4096, kind='ucb')
    >>> rng = np.random.default_rng(0)
    >>> for _ in range(600):
    ...     user = np.append(1.0, rng.normal(size=4))
    ...     colour = bandit.select(user)
    ...     buys = rng.random() < 1.0 / (1.0 + np.exp(-user[1]))
    ...     bandit.update(colour, rng.normal(3.0, 1.0) if buys else 0.0, user)
    >>> bool(bandit.state.occurrence.weight[0] > 0.99)
    True
    >>> bool(bandit.state.magnitude.weight[0] < 0.8)
    True
    """

    n_arms: int = whole(low=1)
    sigma: float | None = optional(positive(), default=None)
    link: Any = LINK
    magnitude: Any = MAGNITUDE
    doubt: float = real(low=0, high=1, closed="neither", default=0.2)
    scale: float = real(low=0, default=1.0)
    memory: int = KEPT
    kind: str = choice(("ucb", "ts"), default="ucb")
    plain: Any = derived(lambda fields: ZIAdaptive())  # what plays where features do not matter
    own_models: ClassVar[bool] = True
    looks = {"Adaptive": "#117733 * heavy", "Adaptive TS": "#117733 * dashdot"}

    @property
    def label(self) -> str:
        """A short name for figures and tables."""
        return "Adaptive TS" if self.parameters()["kind"] == "ts" else "Adaptive"

    def check(self) -> None:
        """Refuse estimates that are no posterior mode, or several of them."""
        printed = isinstance(self.magnitude, LeastSquares) and self.magnitude.solves_printed
        if printed or isinstance(self.magnitude, MedianOfMeans):
            raise check.InvalidParameterError(
                "`magnitude` must be a model with one posterior; got "
                f"{check.shown(self.parameters()['magnitude'])}"
            )


class ArmModels(NamedTuple):
    """The models of the arms that use features, with their priors; the arm is the first index."""

    occurrence: Any
    magnitude: Any
    occurrence_prior: Prior
    magnitude_prior: Prior


class State(NamedTuple):
    """Models with features and without, and what all arms say about the features."""

    arms: ArmModels
    plain: ArmState
    occurrence: Group
    magnitude: Group
    clock: Clock

    def with_arms(self, fresh: State, sources: Sequence[int]) -> State:
        """Return the state of other arms: for each the arm it was, or −1 if it is new."""
        copy_arms(self.arms, fresh.arms, np.asarray(sources, dtype=np.int64))
        plain = rearranged(self.plain, fresh.plain, sources)
        kernel.refresh_all(ZIAdaptive(), plain)
        groups = copy.deepcopy((self.occurrence, self.magnitude))
        for group in groups:  # new arms get their priors with the next reward
            group.next_fit[0] = max(group.seen[0], FIRST_FIT)
        return State(fresh.arms, plain, *groups, copy.deepcopy(self.clock))


def _init(spec: Adaptive, d: int, q: int) -> State:
    size: dict[str, Any] = {"ridge": 1.0, "bound": math.inf, "memory": spec.memory}
    one = ArmModels(
        new_model(q, **size),
        new_magnitude(spec.magnitude, d, **size, plain=False, samples=False),
        Prior.new({"dim": q}),
        Prior.new({"dim": d}),
    )
    return State(
        stacked(one, spec.n_arms),
        kernel.lookup(spec.plain).init(spec.plain, spec.n_arms),
        Group.new({"dim": q}),
        Group.new({"dim": d}),
        new_clock(),
    )


# --------------------------------------------------------------------------------------- learning


@borrowing
def _own_noise(spec: Any, state: Any, arm: int) -> float:
    """Return the variance of the noise of an arm, as its own residuals say."""
    sigma = noise(spec.magnitude, spec.sigma, row_of(state.arms.magnitude, arm))
    return min(max(sigma * sigma, 1e-200), LARGEST * LARGEST)


@borrowing
def _noise(spec: Any, state: Any, arm: int) -> float:
    """Return the variance of the noise of an arm: its own, and that of all arms for a few more."""
    n = state.plain.nonzero[arm]
    pooled = state.magnitude.noise[0]
    return float((n * _own_noise(spec, state, arm) + BORROWED * pooled) / (n + BORROWED))


@borrowing
def _is_open(link: Any) -> bool:
    """Whether a link takes any mean, as the identity does."""
    return bool(value(link, -1.0) == -1.0)


@borrowing
def _fit_occurrence(spec: Any, state: Any) -> None:
    paid, rounds = 1.0, 2.0
    for k in range(spec.n_arms):
        paid += state.plain.nonzero[k]
        rounds += state.plain.pulls[k]
    evidence.fit(
        GLM(spec.link, BERNOULLI),
        state.arms.occurrence,
        state.arms.occurrence_prior,
        state.occurrence,
        spec.doubt,
        OCCURRENCE_SCALES,
        OCCURRENCE_INTERCEPT,
        inverse(spec.link, min(paid / rounds, 0.999)),
        1.0,
    )


@borrowing
def _fit_magnitude(spec: Any, state: Any) -> None:
    paid, total, noise_total, spread, free = 0.0, 0.0, 0.0, 0.0, 0.0
    for k in range(spec.n_arms):
        paid += state.plain.nonzero[k]
        total += state.plain.total[k]
        noise_total += state.plain.nonzero[k] * _own_noise(spec, state, k)
        spread += state.plain.spread[k]
        free += max(state.plain.nonzero[k] - 1.0, 0.0)
    if paid == 0.0:
        return
    state.magnitude.noise[0] = noise_total / paid
    state.magnitude.scatter[0] = spread / max(free, 1.0)
    evidence.fit(
        spec.magnitude,
        state.arms.magnitude,
        state.arms.magnitude_prior,
        state.magnitude,
        spec.doubt,
        MOST_SCALES,
        MAGNITUDE_INTERCEPT,
        total / paid if _is_open(spec.magnitude.link) else 0.0,
        spec.sigma * spec.sigma,
    )


@borrowing
def _update(spec: Any, state: Any, arm: int, z: Any, w: Any, reward: float) -> None:
    state.clock.rounds[0] += 1.0
    paid = 1.0 if reward != 0.0 else 0.0
    kernel.update(spec.plain, state.plain, arm, reward)
    learn(GLM(spec.link, BERNOULLI), row_of(state.arms.occurrence, arm), w, paid)
    if describe(state.occurrence, w):
        _fit_occurrence(spec, state)
    if paid > 0.0:
        learn(spec.magnitude, row_of(state.arms.magnitude, arm), z, reward)
        if describe(state.magnitude, z):
            _fit_magnitude(spec, state)


# --------------------------------------------------------------------------------------- deciding


@borrowing
def _drawn_probability(plain: Any, arm: int, rng: Any) -> float:
    """Draw how often an arm pays, whatever the features; as `ZIAdaptive` does."""
    paid = plain.nonzero[arm]
    return float(rng.beta(plain.own.alpha[0] + paid, plain.own.beta[0] + plain.pulls[arm] - paid))


@borrowing
def _drawn_magnitude(plain: Any, arm: int, common: Any, rng: Any) -> float:
    """Draw how much an arm pays, whatever the features; as `ZIAdaptive` does."""
    _, top, typical, _ = common
    paid, family = plain.nonzero[arm], plain.own.family[0]
    if family == UNDECIDED:
        return float(seen_magnitude(plain, arm, top))
    if paid > 0.0 and is_stranger(plain, paid, STRANGERS, rng):
        return float(strange_magnitude(plain.total[arm] / paid, typical, rng))
    drawn: float = draw_magnitude(plain, arm, family, rng)
    return drawn if paid > 0.0 else drawn * surprise(plain.pulls.size, rng)


@borrowing
def _predict(spec: Any, state: Any, arm: int, z: Any, w: Any, k: int, work: Any) -> None:
    """Write both linear predictors of column k and their variances into work[:4, k]."""
    j = k + 1
    occurrence = row_of(state.arms.occurrence, arm)
    linear_forms(occurrence.coef, w[:, k:j], work[ETA, k:j])
    quadratic_forms(occurrence.curvature.inverse, w[:, k:j], work[5], work[ETA_VARIANCE, k:j])
    magnitude = row_of(state.arms.magnitude, arm)
    linear_forms(magnitude.coef, z[:, k:j], work[ZETA, k:j])
    variances(spec.magnitude, magnitude, z[:, k:j], work[5], work[ZETA_VARIANCE, k:j])
    work[ZETA_VARIANCE, k] *= _noise(spec, state, arm)


@borrowing
def _chance(spec: Any, eta: float) -> float:
    return min(value(spec.link, eta), 1.0)


@borrowing
def _size(spec: Any, zeta: float) -> float:
    return min(max(value(spec.magnitude.link, zeta), -LARGEST), LARGEST)


@borrowing
def _draw(spec: Any, work: Any, row: int, k: int, rng: Any) -> float:
    """Draw the linear predictor in a row of `work`; its variance is in the next one."""
    return float(work[row, k] + spec.scale * math.sqrt(work[row + 1, k]) * rng.standard_normal())


@borrowing
def _rounded(weight: float) -> float:
    """Return a weight, or the model that is as good as certain, which saves computing the other."""
    if weight < NEGLIGIBLE:
        return 0.0
    return 1.0 if weight > 1.0 - NEGLIGIBLE else weight


@borrowing
def _scores_again(
    spec: Any, state: Any, arms: Any, z: Any, w: Any, rng: Any, work: Any, out: Any
) -> None:
    plain = state.plain
    by_eta = _rounded(state.occurrence.weight[0])
    by_zeta = _rounded(state.magnitude.weight[0])
    common = in_common(spec.plain, plain)
    rounds_per_arm = state.clock.rounds[0] / spec.n_arms
    for k in range(out.size):
        arm = arms[k]
        if plain.pulls[arm] == 0.0:
            out[k] = UNTRIED
            continue
        if by_eta == 0.0 and by_zeta == 0.0:
            out[k] = score(spec.plain, plain, arm, common, rng)
            continue
        prob, var_p, mu, var_mu = 0.0, 0.0, 0.0, 0.0
        more_prob, more_mu = 0.0, 0.0  # by which draws exceed these
        if by_eta > 0.0:
            prob = by_eta * _chance(spec, work[ETA, k])
            if spec.kind == TS:
                more_prob = by_eta * _chance(spec, _draw(spec, work, ETA, k, rng)) - prob
            slope = by_eta * derivative(spec.link, work[ETA, k])
            var_p = slope * slope * work[ETA_VARIANCE, k]
        if by_eta < 1.0:
            prob += (1.0 - by_eta) * _drawn_probability(plain, arm, rng)
        if by_zeta > 0.0:
            mu = by_zeta * _size(spec, work[ZETA, k])
            if spec.kind == TS:
                more_mu = by_zeta * _size(spec, _draw(spec, work, ZETA, k, rng)) - mu
            slope = by_zeta * min(derivative(spec.magnitude.link, work[ZETA, k]), LARGEST)
            var_mu = min(slope * slope * work[ZETA_VARIANCE, k], LARGEST * LARGEST)
        if by_zeta < 1.0:
            mu += (1.0 - by_zeta) * _drawn_magnitude(plain, arm, common, rng)
        variance = prob * prob * var_mu + mu * mu * var_p + var_mu * var_p
        of_one_reward = mu * mu * prob * (1.0 - prob) + prob * _noise(spec, state, arm)
        level = math.log1p(rounds_per_arm * variance / max(of_one_reward, 1e-300))
        out[k] = prob * mu + spec.scale * math.sqrt(2.0 * level * variance)
        if spec.kind == TS:
            drawn = (prob + more_prob) * (mu + more_mu)
            out[k] = max(prob * mu, min(drawn, out[k]))


@borrowing
def _scores(
    spec: Any, state: Any, arms: Any, z: Any, w: Any, rng: Any, work: Any, out: Any
) -> None:
    if _rounded(state.occurrence.weight[0]) + _rounded(state.magnitude.weight[0]) > 0.0:
        for k in range(out.size):
            _predict(spec, state, arms[k], z, w, k, work)
    _scores_again(spec, state, arms, z, w, rng, work, out)


@borrowing
def _mixed(weight: float, without: float, variance: float, out: Any, at: int, k: int) -> None:
    """Replace mean and variance with features by those of the mixture with a law without them."""
    mean = weight * out[at, k] + (1.0 - weight) * without
    one, other = out[at, k] - mean, without - mean
    out[at + 1, k] = weight * (out[at + 1, k] + one * one) + (1.0 - weight) * (
        variance + other * other
    )
    out[at, k] = mean


@borrowing
def _moments(spec: Any, state: Any, arms: Any, z: Any, w: Any, work: Any, out: Any) -> None:
    plain = state.plain
    for k in range(out.shape[1]):
        arm = arms[k]
        _predict(spec, state, arm, z, w, k, work)
        for row in range(4):
            out[row, k] = work[row, k]
        out[COVARIANCE, k] = 0.0
        rounds, paid = plain.pulls[arm], plain.nonzero[arm]
        prob = (paid + 0.5) / (rounds + 1.0)
        eta = inverse(spec.link, prob)
        slope = max(derivative(spec.link, eta), 1e-12)
        variance = prob * (1.0 - prob) / (rounds + 2.0) / (slope * slope)
        _mixed(state.occurrence.weight[0], eta, variance, out, ETA, k)
        if paid > 0.0 and _is_open(spec.magnitude.link):
            pooled = state.magnitude.noise[0]
            variance = (plain.spread[arm] + BORROWED * pooled) / (paid - 1.0 + BORROWED) / paid
            _mixed(state.magnitude.weight[0], plain.total[arm] / paid, variance, out, ZETA, k)


register_policy(
    Adaptive,
    init=_init,
    scores=_scores,
    scores_again=_scores_again,
    update=_update,
    moments=_moments,
    randomized=True,
)
