"""How much the features matter, learned from the rewards of all arms together (empirical Bayes).

Every arm has a model of its own, with a normal prior of its coefficients around zero. With a wide
prior, twenty features that say nothing cost a policy several times the regret of one that does not
look at them; with a narrow one, features that say much are learned slowly. So the width is learned,
for all arms together, and with it which features matter and whether any does.

The *scale* s of an arm is the standard deviation that the features, all together, give its linear
predictor: a coefficient has the prior N(0, v·s²·q/(m·u)). Here q is the probability that the
feature matters, m the sum of these over the features, u the variance of the feature and v that of
the noise (1 for the occurrence). Each q is learned with a spike and a slab, given what is believed
of the other features: the odds are those of the data of all arms with a prior N(0, v·s²/(m·u)) of
its coefficients against none, times the odds that a feature matters, which are learned from all
features. Since q is chosen after looking, its divergence from what was expected is taken off the
evidence.

With the Gaussian approximation of the posterior the log probability of the data of an arm is, up to
a constant,

    ½·(log|P| − log|A| + g'A⁻¹g/v),    A = P + H,

where P holds the prior precisions, H is the curvature of the likelihood and g what the data say. An
unknown v is integrated out, with a weak prior around the scatter s₀² of an arm's rewards: the last
term is then −(n + ν)·log(y'y − g'A⁻¹g + ν·s₀²). That is computed on a grid of scales, and for no
effect at all.

The models have an intercept, behind the features, with a prior of its own: wide and around what is
usual among the arms. Features that never vary have nothing to add to it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from zib.contextual.models import settle
from zib.core.registry import borrowing
from zib.core.stacked import row_of
from zib.core.state import Floats, Part, count, scalar, scratch, table
from zib.stats.design import cholesky, dot, invert, multiply, solve_lower

FIRST_FIT, GROWTH = 8.0, 1.2  # observations before the first fit, and from one to the next
SMALLEST = 0.25  # of the scales; each of the others is twice the one before
MOST_SCALES = 10
BORROWED = 5.0  # rewards that the scatter of all arms counts for, beside those of an arm
NO_EFFECT = 1e-8  # a scale that leaves nothing of the coefficients
APART = 0.05  # how probable it is that the scale of an arm has nothing to do with those of others
CLOSE = 1.1  # a scale or unit that changed by a smaller factor is left as it is
NEAR = 0.1  # the same for the usual intercept, in standard deviations of the prior
# A model starts with precisions of 1, and digits of what is much smaller are lost beside them.
LEAST_PRECISION = 1e-9
LEAST_RELEVANCE = 1e-4  # how improbable it may become that a feature matters
SHARE_STEPS = 20  # to the share of the features that matter
# Times the divergence of what was picked: the probabilities of features stand for averages over
# them, which are less. With 1, features of noise had a tenth to a third more regret.
PRICE = 2.0
INERT = 1e6  # precision of the coefficient of a feature that never varied, in squares of that


class Prior(Part):
    """The normal prior of the coefficients of an arm's model, as it is in force."""

    precision: Floats = table("dim", start=1.0, least=0.0)
    mean: Floats = table("dim")
    scale: Floats = scalar(start=SMALLEST, least=0.0)
    evidence: Floats = scratch(MOST_SCALES + 1)


class Group(Part):
    """What is known about the features of one part, and about their coefficients in all arms."""

    seen: Floats = count()
    constant: Floats = table("dim", finite=False)  # the value a feature has always had, else inf
    centre: Floats = table("dim")
    squares: Floats = table("dim", least=0.0)  # Σ of squared distances from the centre
    unit: Floats = table("dim", start=1.0, least=0.0)  # the variance of a feature, as it is in use
    relevance: Floats = table("dim", start=1.0, least=0.0, most=1.0)  # how probably one matters
    relevant: Floats = scalar(start=1.0, least=0.0)  # how many of those that vary matter
    price: Floats = scalar(least=0.0)  # what it costs, in nats, to have picked these
    usual: Floats = scalar()  # the linear predictor that is usual among arms
    noise: Floats = scalar(start=1.0, least=0.0)  # the variance of the noise over all arms
    scatter: Floats = scalar(least=0.0)  # the same without features: of an arm's rewards
    weight: Floats = scalar(least=0.0, most=1.0)  # the probability that features matter
    marginal: Floats = scalar()  # log probability of the data, with features or without
    next_fit: Floats = scalar(start=FIRST_FIT, least=0.0)  # the number of observations it is due at
    work: Floats = scratch(MOST_SCALES)
    odds: Floats = scratch("dim")
    row: Floats = scratch("dim")  # the features of a reward, and a 1


@borrowing
def note_constants(constant: Any, x: Any, n: float) -> None:
    """Keep the value of each feature that was the same in all `n` observations; else infinity."""
    for i in range(x.size):
        if n <= 1.0:
            constant[i] = x[i]
        elif x[i] != constant[i]:
            constant[i] = np.inf


@borrowing
def add_intercept(group: Any, x: Any) -> None:
    """Keep the features of a reward, and a 1, in `group.row`."""
    for i in range(x.size):
        group.row[i] = x[i]
    group.row[x.size] = 1.0


@borrowing
def describe(group: Any, x: Any) -> bool:
    """Learn what the features look like; whether it is time for a fit."""
    group.seen[0] += 1.0
    n = group.seen[0]
    note_constants(group.constant, x, n)
    for i in range(x.size):
        apart = x[i] - group.centre[i]
        group.centre[i] += apart / n
        group.squares[i] = max(group.squares[i] + apart * (x[i] - group.centre[i]), 0.0)
    return bool(n >= group.next_fit[0])


@borrowing
def _changed(new: float, old: float) -> bool:
    return not old / CLOSE <= new <= old * CLOSE


@borrowing
def _renew_units(group: Any) -> bool:
    """Look again at how much features vary; False if none does."""
    varies = False
    for i in range(group.unit.size):
        if group.constant[i] == np.inf:
            varies = True
            unit = min(max(group.squares[i] / group.seen[0], 1e-90), 1e90)
            if _changed(unit, group.unit[i]):
                group.unit[i] = unit
    return varies


@borrowing
def _slab(group: Any, i: int, scale: float) -> float:
    """Return the prior precision of a coefficient that matters."""
    return float(group.relevant[0] * group.unit[i] / (scale * scale))


@borrowing
def _precision(group: Any, i: int, scale: float, intercept: float) -> float:
    """Return the prior precision of a coefficient; `intercept` is that of the last one."""
    size = group.constant[i]
    if i == group.constant.size - 1:
        wanted = intercept
    elif size == np.inf:
        wanted = _slab(group, i, scale) / max(group.relevance[i], LEAST_RELEVANCE)
    else:
        wanted = INERT * max(size * size, 1.0)
    return float(min(max(wanted, LEAST_PRECISION), 1e100))


@borrowing
def _evidence(
    model: Any, prior: Any, group: Any, scale: float, intercept: float, variance: float
) -> float:
    """Return the log probability of the data of an arm if its scale were this, but for a constant.

    `model.work[1]` holds g. A `variance` that is not positive is not known.
    """
    gram, kept, solved = model.curvature, model.work[0], model.work[2]
    data = model.work[1]
    dim = model.coef.size
    twice = 0.0
    for i in range(dim):
        kept[i] = gram.matrix[i, i]
        wanted = _precision(group, i, scale, intercept)
        gram.matrix[i, i] += wanted - prior.precision[i]
        twice += math.log(wanted)
        solved[i] = data[i]
    regular = cholesky(gram.matrix, gram.factor)
    for i in range(dim):
        gram.matrix[i, i] = kept[i]
    if not regular:
        return np.nan
    for i in range(dim):
        twice -= 2.0 * math.log(gram.factor[i, i])
    solve_lower(gram.factor, solved)
    explained = dot(solved, solved)
    if variance > 0.0:
        return 0.5 * (twice + explained / variance)
    rest = model.residual[0] + dot(data, model.coef) - explained + BORROWED * group.scatter[0]
    return float(0.5 * (twice - (model.seen[0] + BORROWED) * math.log(max(rest, 1e-200))))


@borrowing
def _of_prior(prior: Any) -> float:
    """Return m'Pm for the mean m and the precision P of a prior."""
    total = 0.0
    for i in range(prior.mean.size):
        total += prior.precision[i] * prior.mean[i] * prior.mean[i]
    return total


@borrowing
def _put(estimator: Any, model: Any, prior: Any, group: Any, intercept: float) -> None:
    """Put the prior that an arm should have in force, and solve anew if it is another one."""
    gram, data = model.curvature, model.work[1]
    multiply(gram.matrix, model.coef, data)
    before = dot(data, model.coef) - _of_prior(prior)
    changed = False
    for i in range(model.coef.size):
        wanted = _precision(group, i, prior.scale[0], intercept)
        mean = group.usual[0] if i == model.coef.size - 1 else 0.0
        if wanted != prior.precision[i] or mean != prior.mean[i]:
            changed = True
            more = wanted - prior.precision[i]
            gram.matrix[i, i] += more
            if model.anchor.size > 0:
                model.anchor[i, i] += more
            model.target[i] += wanted * mean - prior.precision[i] * prior.mean[i]
            prior.precision[i] = wanted
            prior.mean[i] = mean
    if not changed:
        return
    if cholesky(gram.matrix, gram.factor):
        invert(gram.factor, gram.inverse)
        gram.since_rebuild[0] = 0.0
    settle(estimator, model)
    # the sum of squares that is left, as if this had been the prior from the beginning
    multiply(gram.matrix, model.coef, data)
    after = dot(data, model.coef) - _of_prior(prior)
    model.residual[0] = max(model.residual[0] + before - after, 0.0)


@borrowing
def _noise_of(model: Any, group: Any, variance: float) -> float:
    """Return the variance of the noise of an arm; `variance` itself where it is known."""
    if variance > 0.0:
        return float(variance)
    rest = model.residual[0] + BORROWED * group.noise[0]
    return float(rest / (model.seen[0] + BORROWED))


@borrowing
def _for_one(model: Any, prior: Any, i: int, slab: float, variance: float) -> float:
    """Return the log Bayes factor of an arm's data for a coefficient with this prior against 0.

    Given what is believed of the other coefficients: a posterior N(c, v/a) under the prior
    N(0, v/p) says that the data alone, of curvature a − p, put the coefficient at a·c/(a − p).
    """
    total = 1.0 / max(model.curvature.inverse[i, i], 1e-300)
    data = total * model.coef[i]
    own = max(total - prior.precision[i], 0.0) + slab
    return float(0.5 * (math.log(slab / own) + data * data / (own * variance)))


@borrowing
def _matters(odds: float, share: float) -> float:
    """Return the probability that a feature matters, if a `share` of all do."""
    return 1.0 / (1.0 + (1.0 - share) / share * math.exp(-min(max(odds, -500.0), 500.0)))


@borrowing
def _usual_share(group: Any) -> float:
    """Return the share of the features that matter: uniform before there are data."""
    share = 0.5
    for _ in range(SHARE_STEPS):
        total, features = 1.0, 2.0
        for i in range(group.odds.size):
            if group.constant[i] == np.inf:
                total += _matters(group.odds[i], share)
                features += 1.0
        share = total / features
    return share


@borrowing
def _pick(models: Any, priors: Any, group: Any, variance: float) -> None:
    """Learn from all arms how probable it is of each feature that it matters.

    The price of having looked is the divergence of these probabilities from the usual share, and
    that of no feature being among them, which is the model without features.
    """
    for i in range(group.odds.size):
        group.odds[i] = 0.0
        if group.constant[i] == np.inf:
            for k in range(priors.scale.shape[0]):
                model, prior = row_of(models, k), row_of(priors, k)
                slab = _slab(group, i, prior.scale[0])
                group.odds[i] += _for_one(model, prior, i, slab, _noise_of(model, group, variance))
    share = _usual_share(group)
    relevant, price, none = 0.0, 0.0, 0.0
    for i in range(group.odds.size):
        if group.constant[i] == np.inf:
            probable = _matters(group.odds[i], share)
            probable = max(min(probable, 1.0 - LEAST_RELEVANCE), LEAST_RELEVANCE)
            price += probable * math.log(probable / share)
            price += (1.0 - probable) * math.log((1.0 - probable) / (1.0 - share))
            none += math.log1p(-probable)
            if _changed(probable, group.relevance[i]):
                group.relevance[i] = probable
            relevant += group.relevance[i]
    group.relevant[0] = max(relevant, 1.0)
    group.price[0] = PRICE * (max(price, 0.0) - math.log(-math.expm1(none)))


@borrowing
def _share(j: int) -> float:
    """Return how probable the j-th scale is before there are data, up to a factor."""
    scale = SMALLEST * 2.0**j
    return min(1.0, 1.0 / (scale * scale))


@borrowing
def _weigh(doubt: float, group: Any, priors: Any, scales: int) -> None:
    """Learn the scale of every arm, and how probable it is that features matter.

    Before its own data are looked at, the scale of an arm is as likely to be that of the others as
    1 − `APART`; else nothing is known about it. So features that matter in one arm only are found
    there, even if the other arms have all the data.
    """
    evidence, others = priors.evidence, group.work
    n_arms = evidence.shape[0]
    shares, without = 0.0, 0.0
    for j in range(scales):
        shares += _share(j)
    for k in range(n_arms):
        none = evidence[k, scales]
        without += none
        for j in range(scales):
            evidence[k, j] -= none
            if not abs(evidence[k, j]) < 1e100:
                evidence[k, j] = 0.0
    log_odds = math.log((1.0 - doubt) / doubt) - group.price[0]
    for k in range(n_arms):
        likeliest, own = -np.inf, -np.inf
        for j in range(scales):
            others[j] = math.log(_share(j))
            for m in range(n_arms):
                if m != k:
                    others[j] += evidence[m, j]
            likeliest = max(likeliest, others[j])
            own = max(own, evidence[k, j])
        total = 0.0
        for j in range(scales):
            others[j] = math.exp(others[j] - likeliest)
            total += others[j]
        mass, square = 0.0, 0.0
        for j in range(scales):
            likely = (1.0 - APART) * others[j] / total + APART * _share(j) / shares
            likely *= math.exp(evidence[k, j] - own)
            scale = SMALLEST * 2.0**j
            mass += likely
            square += likely * scale * scale
        log_odds += own + math.log(mass)
        scale = math.sqrt(square / mass)
        if _changed(scale, priors.scale[k, 0]):
            priors.scale[k, 0] = scale
    group.weight[0] = 1.0 / (1.0 + math.exp(-min(max(log_odds, -700.0), 700.0)))
    # that of the data, whatever the law of the noise, needs what all arms have in common
    weak = BORROWED * max(group.scatter[0], 1e-200)
    group.marginal[0] = without + 0.5 * n_arms * BORROWED * math.log(weak) + math.log(doubt)
    group.marginal[0] += max(log_odds, 0.0) + math.log1p(math.exp(-abs(log_odds)))


@borrowing
def fit(
    estimator: Any,
    models: Any,
    priors: Any,
    group: Any,
    doubt: float,
    scales: int,
    intercept: float,
    usual: float,
    variance: float,
) -> None:
    """Learn from all arms how much the features matter, and put the priors in force.

    Parameters
    ----------
    estimator, models, priors
        Those of one part; models and priors with the arm as first index.
    group
        What is known about the part.
    doubt
        Prior probability that features do not matter.
    scales
        How many scales are tried.
    intercept, usual
        Prior precision of intercepts in units of the noise, and the linear predictor they are
        around.
    variance
        Variance of the noise; not positive, or NaN, where it is not known.
    """
    n_arms = priors.scale.shape[0]
    group.next_fit[0] = math.floor(GROWTH * group.seen[0]) + 1.0
    away = usual - group.usual[0]
    if away * away * intercept > NEAR * NEAR * group.noise[0]:
        group.usual[0] = usual
    varies = _renew_units(group)
    for k in range(n_arms):
        _put(estimator, row_of(models, k), row_of(priors, k), group, intercept)
    if not varies:
        return
    _pick(models, priors, group, variance)
    for k in range(n_arms):
        model, prior = row_of(models, k), row_of(priors, k)
        multiply(model.curvature.matrix, model.coef, model.work[1])
        for j in range(scales + 1):
            scale = SMALLEST * 2.0**j if j < scales else NO_EFFECT
            prior.evidence[j] = _evidence(model, prior, group, scale, intercept, variance)
    _weigh(doubt, group, priors, scales)
    for k in range(n_arms):
        _put(estimator, row_of(models, k), row_of(priors, k), group, intercept)
