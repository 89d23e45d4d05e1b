"""`Adaptive`: which part depends on the features, and how much, is learned from the rewards."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from zib.contextual import evidence
from zib.contextual.beliefs import (
    LARGEST,
    of_magnitude,
    of_occurrence,
    own_noise,
    own_noise_of_logs,
    plain_magnitude,
    plain_probability,
    scatter,
    weight_of_magnitude,
)
from zib.contextual.evidence import (
    BORROWED,
    FIRST_FIT,
    MOST_SCALES,
    Group,
    Prior,
    add_intercept,
    describe,
)
from zib.contextual.fit import learn
from zib.contextual.links import derivative, inverse, value
from zib.contextual.models import (
    BERNOULLI,
    GLM,
    Learned,
    LeastSquares,
    MedianOfMeans,
    Ridge,
    magnitude_parameter,
    new_magnitude,
    new_model,
    resolve_magnitude,
)
from zib.contextual.per_arm import copy_arms
from zib.contextual.policy import (
    COVARIANCE,
    ETA,
    ETA_VARIANCE,
    KEPT,
    LINK,
    ZETA,
    ZETA_VARIANCE,
    Clock,
    new_clock,
    register_policy,
)
from zib.core import kernel
from zib.core import validate as check
from zib.core.registry import borrowing
from zib.core.spec import Spec, choice, converted, derived, optional, positive, real, whole
from zib.core.stacked import row_of, stacked
from zib.core.state import ArmState, Floats, Part, rearranged, scalar
from zib.mab.adaptive import (
    ZIAdaptive,
    in_common,
    score,
)
from zib.mab.pooled import LOGNORMAL, spread_of_logs

NEGLIGIBLE = 0.01  # a weight that is taken for 0
UNTRIED = 1e300  # score of an arm that was never played
OCCURRENCE_SCALES = 5  # up to 4: what a link does beyond that is hardly to be told from a step
# Prior precisions of intercepts: arms differ by 2 in the linear predictor of the occurrence, and by
# three standard deviations of the noise in the magnitude.
OCCURRENCE_INTERCEPT, MAGNITUDE_INTERCEPT = 0.25, 0.1
TS = 1

LEARNED = "learned"  # the law of magnitudes


def _resolved(magnitude: Any) -> Any:
    """Return the model of the magnitude, given by name or as it is."""
    if isinstance(magnitude, Learned):
        return magnitude
    named = isinstance(magnitude, str) and magnitude == LEARNED
    return Learned() if named else resolve_magnitude(magnitude, LEARNED)


def _shown(magnitude: Any) -> Any:
    """Return the name of a model of the magnitude where it says everything, else the model."""
    return LEARNED if isinstance(magnitude, Learned) else magnitude_parameter(magnitude)


class Adaptive(Spec):
    """A model per arm that uses the features as far as the rewards say that they matter.

    Occurrence and magnitude are asked separately whether they depend on the features, on which,
    and how much. Where they do not, the policy is close to `zib.mab.ZIAdaptive`, which does not
    look at features; where they do, to `JointUCB` with a prior of the right width for those that
    matter. It is the default of `zib.ContextualBandit` with `arms`.

    Parameters
    ----------
    n_arms
        Number of arms (≥ 1). Actions say which arm they belong to; by default row k is arm k.
    sigma
        Standard deviation of the noise of non-zero rewards; None (default) estimates it.
    link
        Link h of the occurrence, by name or as a registered link.
    magnitude
        Model of the non-zero rewards where they depend on features: ``"learned"`` (default) is
        ridge regression of the rewards or of their logarithms, whichever law makes the rewards more
        probable; ``"ridge"``, ``"huber"``, `Ridge`, `LeastSquares` or `Huber` say which model.
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
    and with them, one of `JointUCB` with an intercept. The prior of its coefficients is learned
    from all arms (see `zib.contextual.evidence`): how probable it is of each feature that it
    matters, and how large the coefficients of those that do are, in units of what each feature
    varies by, so that the units do not matter; intercepts apart from the rest. So is the
    probability that the features matter at all. Each is learned anew when the number of
    observations has grown by a fifth.

    With ``magnitude="learned"`` and no `sigma` the logarithms of the rewards have a model too, as
    long as no reward is negative. It is used where `ZIAdaptive` would take a log-normal law and
    this one, averaged over whether features matter, makes the rewards more probable than a normal
    law. The magnitude is then exp(z'β̂ + v/2), where v is the variance of a logarithm.

    For a decision p is the average, with these probabilities, of h(w'θ̂) and of what is believed
    without features; mu likewise. The index of an arm is p·mu + scale·√(2·ℓ·V) with
    V = p²·V_mu + mu²·V_p + V_mu·V_p and the variances of these averages. What is believed without
    features is partly drawn, as in `ZIAdaptive`, and partly enters by its mean and variance: the
    more so, the more probable it is that one of the parts depends on features. As in `ZIAdaptive`
    ℓ = log(1 + t/(n·K)) after t rounds with K arms; here n is the variance of one reward over V, as
    many rewards as would make an arm without features known as well. With ``kind="ts"`` the linear
    predictors of both parts are drawn from the normal approximation of their posterior, what is
    believed without features is drawn, too, and the score is the product of what follows from
    these, but at least p·mu and at most the index, as in `ZIAdaptive`. Where neither part depends
    on the features, arms have the scores of `ZIAdaptive`.
    A probability below 0.01 or above 0.99 counts as 0 or 1. There is no theorem. The features need
    no 1, and one does no harm.

    Examples
    --------
    Whether anything is bought depends on the first of four features, how much does not:

    >>> import numpy as np
    >>> import zib
    >>> bandit = zib.ContextualBandit(arms=["red", "blue"], n_features=5, seed=1)
    >>> bandit.spec
    Adaptive(n_arms=2, sigma=None, link='logit', magnitude='learned', doubt=0.2, scale=1.0,
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
    magnitude: Any = converted(
        _resolved, _shown, allowed="'learned', 'ridge', 'huber' or a model", default=LEARNED
    )
    doubt: float = real(low=0, high=1, closed="neither", default=0.2)
    scale: float = real(low=0, default=1.0)
    memory: int = KEPT
    kind: str = choice(("ucb", "ts"), default="ucb")
    plain: Any = derived(lambda fields: ZIAdaptive())  # what plays where features do not matter
    of_logs: Any = derived(lambda fields: Ridge())  # model of the logarithms of magnitudes
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
    logarithm: Any
    occurrence_prior: Prior
    magnitude_prior: Prior
    logarithm_prior: Prior


class Law(Part):
    """Whether magnitudes are normal or log-normal where they depend on features."""

    open: Floats = scalar(least=0.0, most=1.0, whole=True)  # 0: normal, and nothing is learned
    logs: Floats = scalar(least=0.0, most=1.0, whole=True)  # 1: log-normal


class State(NamedTuple):
    """Models with features and without, and what all arms say about the features."""

    arms: ArmModels
    plain: ArmState
    occurrence: Group
    magnitude: Group
    logarithm: Group
    law: Law
    clock: Clock

    def with_arms(self, fresh: State, sources: Sequence[int]) -> State:
        """Return the state of other arms: for each the arm it was, or −1 if it is new."""
        copy_arms(self.arms, fresh.arms, np.asarray(sources, dtype=np.int64))
        plain = rearranged(self.plain, fresh.plain, sources)
        kernel.refresh_all(ZIAdaptive(), plain)
        groups = copy.deepcopy((self.occurrence, self.magnitude, self.logarithm))
        for group in groups:  # new arms get their priors with the next reward
            group.next_fit[0] = max(group.seen[0], FIRST_FIT)
        law, clock = copy.deepcopy((self.law, self.clock))
        return State(fresh.arms, plain, *groups, law, clock)


def _init(spec: Adaptive, d: int, q: int) -> State:
    size: dict[str, Any] = {"ridge": 1.0, "bound": math.inf, "memory": spec.memory}
    is_open = isinstance(spec.magnitude, Learned) and spec.parameters()["sigma"] is None
    of_logs = d + 1 if is_open else 0
    one = ArmModels(
        new_model(q + 1, **size),
        new_magnitude(spec.magnitude, d + 1, **size, plain=False, samples=False),
        new_magnitude(spec.of_logs, of_logs, **size, plain=False, samples=False),
        Prior.new({"dim": q + 1}),
        Prior.new({"dim": d + 1}),
        Prior.new({"dim": of_logs}),
    )
    return State(
        stacked(one, spec.n_arms),
        kernel.lookup(spec.plain).init(spec.plain, spec.n_arms),
        Group.new({"dim": q + 1}),
        Group.new({"dim": d + 1}),
        Group.new({"dim": of_logs}),
        Law.new({}, open=np.array([float(is_open)])),
        new_clock(),
    )


# --------------------------------------------------------------------------------------- learning


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
        noise_total += state.plain.nonzero[k] * own_noise(spec, state, k)
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
def _fit_logarithm(spec: Any, state: Any) -> float:
    """Do the same for logarithms; return the sum of them all."""
    paid, total, noise_total, spread, free = 0.0, 0.0, 0.0, 0.0, 0.0
    for k in range(spec.n_arms):
        if state.plain.nonzero[k] > 0.0:
            paid += state.plain.nonzero[k]
            total += state.plain.own.log_total[k]
            noise_total += state.plain.nonzero[k] * own_noise_of_logs(spec, state, k)
            spread += spread_of_logs(state.plain, k)
            free += state.plain.nonzero[k] - 1.0
    if paid == 0.0:
        return 0.0
    state.logarithm.noise[0] = noise_total / paid
    state.logarithm.scatter[0] = spread / max(free, 1.0)
    evidence.fit(
        spec.of_logs,
        state.arms.logarithm,
        state.arms.logarithm_prior,
        state.logarithm,
        spec.doubt,
        MOST_SCALES,
        MAGNITUDE_INTERCEPT,
        total / paid,
        np.nan,
    )
    return total


@borrowing
def _choose_law(state: Any, total: float) -> None:
    """Take the law that makes the rewards more probable; `total` is the sum of their logarithms.

    The density of a reward is that of its logarithm over the reward. Where `ZIAdaptive` would not
    take a log-normal law, as for gamma laws, rewards are no more than skewed.
    """
    likelier = state.logarithm.marginal[0] - total > state.magnitude.marginal[0]
    skewed = state.plain.own.family[0] == LOGNORMAL
    state.law.logs[0] = 1.0 if likelier and skewed else 0.0


@borrowing
def _learn_size(spec: Any, state: Any, arm: int, row: Any, reward: float) -> None:
    """Learn what a reward that is not zero says about magnitudes."""
    learn(spec.magnitude, row_of(state.arms.magnitude, arm), row, reward)
    if describe(state.magnitude, row):
        _fit_magnitude(spec, state)
    if reward < 0.0:
        state.law.open[0] = 0.0
        state.law.logs[0] = 0.0
    if state.law.open[0] > 0.0:
        learn(spec.of_logs, row_of(state.arms.logarithm, arm), row, math.log(reward))
        if describe(state.logarithm, row):
            _choose_law(state, _fit_logarithm(spec, state))


@borrowing
def _update(spec: Any, state: Any, arm: int, z: Any, w: Any, reward: float) -> None:
    state.clock.rounds[0] += 1.0
    paid = 1.0 if reward != 0.0 else 0.0
    kernel.update(spec.plain, state.plain, arm, reward)
    add_intercept(state.occurrence, w)
    row = state.occurrence.row
    learn(GLM(spec.link, BERNOULLI), row_of(state.arms.occurrence, arm), row, paid)
    if describe(state.occurrence, row):
        _fit_occurrence(spec, state)
    if paid > 0.0:
        add_intercept(state.magnitude, z)
        _learn_size(spec, state, arm, state.magnitude.row, reward)


# --------------------------------------------------------------------------------------- deciding


@borrowing
def _predict(spec: Any, state: Any, arm: int, z: Any, w: Any, k: int, work: Any) -> None:
    """Write both linear predictors of column k and their variances into work[:4, k]."""
    work[ETA, k], work[ETA_VARIANCE, k] = of_occurrence(state, arm, w, k)
    work[ZETA, k], work[ZETA_VARIANCE, k] = of_magnitude(spec, state, arm, z, k)


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
    by_zeta = _rounded(weight_of_magnitude(state))
    drawn = 1.0 if spec.kind == TS else 1.0 - max(by_eta, by_zeta)
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
            without, variance = plain_probability(plain, arm, drawn, rng)
            prob += (1.0 - by_eta) * without
            var_p += (1.0 - by_eta) * (1.0 - by_eta) * variance
        if by_zeta > 0.0:
            mu = by_zeta * _size(spec, work[ZETA, k])
            if spec.kind == TS:
                more_mu = by_zeta * _size(spec, _draw(spec, work, ZETA, k, rng)) - mu
            slope = by_zeta * min(derivative(spec.magnitude.link, work[ZETA, k]), LARGEST)
            var_mu = min(slope * slope * work[ZETA_VARIANCE, k], LARGEST * LARGEST)
        if by_zeta < 1.0:
            without, variance = plain_magnitude(plain, arm, drawn, common, rng)
            mu += (1.0 - by_zeta) * without
            var_mu += (1.0 - by_zeta) * (1.0 - by_zeta) * variance
        variance = prob * prob * var_mu + mu * mu * var_p + var_mu * var_p
        of_one_reward = mu * mu * prob * (1.0 - prob) + prob * scatter(spec, state, arm, mu)
        level = math.log1p(rounds_per_arm * variance / max(of_one_reward, 1e-300))
        out[k] = prob * mu + spec.scale * math.sqrt(2.0 * level * variance)
        if spec.kind == TS:
            out[k] = max(prob * mu, min((prob + more_prob) * (mu + more_mu), out[k]))


@borrowing
def _scores(
    spec: Any, state: Any, arms: Any, z: Any, w: Any, rng: Any, work: Any, out: Any
) -> None:
    if _rounded(state.occurrence.weight[0]) + _rounded(weight_of_magnitude(state)) > 0.0:
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
        _predict(spec, state, arm, z, w, k, out)
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
            _mixed(weight_of_magnitude(state), plain.total[arm] / paid, variance, out, ZETA, k)


register_policy(
    Adaptive,
    init=_init,
    scores=_scores,
    scores_again=_scores_again,
    update=_update,
    moments=_moments,
    randomized=True,
)
