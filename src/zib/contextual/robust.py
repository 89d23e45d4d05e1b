"""Magnitudes with heavy tails: Huber's threshold, medians of means, and radii of order 1 + ε.

Noise with a moment of order 1 + ε only, E|noise|^(1+ε) ≤ σ^(1+ε), has no variance. A sum of n of
them with weights u is of size σ·(Σ|u|^(1+ε))^(1/(1+ε)) ≤ σ·n^γ·(Σu²)^(1/2) with
γ = (1 − ε)/(2(1 + ε)): where light tails ask for σ, heavy ones ask for σ·n^γ.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from zib.contextual.models import residual_size
from zib.core.registry import borrowing
from zib.core.stacked import row_of
from zib.core.state import MANY, clamped
from zib.stats.design import dot, multiply, observe, shrink
from zib.theory.contextual import contextual_radius_printed as glm_radius

STEPS = 60  # of the iteration for the geometric median
CLOSE = 1e-10  # change of its weights at which it ends
SAME = 1e-24  # squared distance, relative to the largest, at which two points are one


@borrowing
def tail_size(estimator: Any, sigma: float, model: Any) -> float:
    """Return σ·n^γ; a size estimated from the residuals grows like that by itself."""
    if sigma > 0.0:
        power = 0.5 * (1.0 - estimator.epsilon) / (1.0 + estimator.epsilon)
        sigma *= max(model.seen[0], 1.0) ** power
    size: float = residual_size(sigma, model)
    return size


# ------------------------------------------------------------------------------------------- Huber


@borrowing
def tune_huber(estimator: Any, model: Any) -> None:
    """Solve for the threshold; see `Huber`."""
    stored = clamped(model.stored[0], model.response.size + 1)
    goal = model.coef.size + math.log(max(stored, 1))
    for _ in range(4):
        limit = model.threshold[0] * model.threshold[0]
        total = 0.0
        for i in range(stored):
            residual = model.response[i] - dot(model.coef, model.features[i])
            total += min(residual * residual, limit)
        if stored <= goal or total <= 0.0:
            model.threshold[0] = np.inf  # too few to tell an outlier
            return
        model.threshold[0] = math.sqrt(total / goal)


@borrowing
def huber_radius(estimator: Any, spec: Any, model: Any, rounds: float) -> float:
    """Return σ·n^γ·L^(ε/(1+ε)), where L is what stands under the root of the light-tailed radius.

    The order is that of adaptive Huber regression, (L/n)^(ε/(1+ε)) in the features' own units; the
    constants are the light-tailed ones, which it is equal to for ε = 1.
    """
    dim = float(model.coef.size)
    root = glm_radius(math.log(spec.horizon), dim, rounds, spec.ridge, 1.0, 1.0)
    power = 2.0 * estimator.epsilon / (1.0 + estimator.epsilon)
    radius: float = tail_size(estimator, spec.sigma, model) * root**power
    return radius


# --------------------------------------------------------------------------------- median of means


@borrowing
def _median(values: Any, n: int) -> float:
    """Return the median of the first n entries, which are sorted in place."""
    for i in range(1, n):
        entry = values[i]
        j = i - 1
        while j >= 0 and values[j] > entry:
            values[j + 1] = values[j]
            j -= 1
        values[j + 1] = entry
    middle: float = 0.5 * (values[(n - 1) // 2] + values[n // 2])
    return middle


@borrowing
def _centre(apart: Any, n: int, weights: Any, new: Any) -> None:
    """Write the weights of the first n points that make their geometric median.

    It minimises the sum of distances (not squared) to the points, of which only the squared
    distances `apart` between two are needed: Weiszfeld's iteration from the mean.
    """
    largest = 0.0
    for a in range(n):
        weights[a] = 1.0 / n
        for b in range(n):
            largest = max(largest, apart[a, b])
    if largest == 0.0:
        return
    for _ in range(STEPS):
        spread = 0.0
        for a in range(n):
            new[a] = dot(apart[a][:n], weights[:n])
            spread += 0.5 * weights[a] * new[a]
        total = 0.0
        for a in range(n):
            new[a] = 1.0 / math.sqrt(max(new[a] - spread, SAME * largest))
            total += new[a]
        moved = 0.0
        for a in range(n):
            new[a] /= total
            moved = max(moved, abs(new[a] - weights[a]))
            weights[a] = new[a]
        if moved <= CLOSE:
            return


@borrowing
def learn_groups(estimator: Any, model: Any, x: Any, y: float) -> None:
    """Learn one observation: by the group whose turn it is, then take the median of the groups."""
    dim = model.coef.size
    k = clamped(model.seen[0], MANY) % estimator.groups
    part = row_of(model.parts, k)
    solved = model.work[0][:dim]
    residual = y - dot(model.coefs[k], x)
    observe(part, x, 1.0)
    observe(model.curvature, x, 1.0)
    multiply(part.inverse, x, solved)
    model.residuals[k] += residual * residual * max(1.0 - dot(x, solved), 0.0)
    for i in range(dim):
        model.targets[k, i] += y * x[i]
    multiply(part.inverse, model.targets[k], model.coefs[k])
    model.seen[0] += 1.0

    used = clamped(model.seen[0], estimator.groups + 1)
    for a in range(used):
        multiply(model.curvature.matrix, model.coefs[a], model.images[a])
    for a in range(used):
        for b in range(used):
            square = 0.0
            for i in range(dim):
                gap = model.coefs[a, i] - model.coefs[b, i]
                square += gap * (model.images[a, i] - model.images[b, i])
            model.apart[a, b] = max(square, 0.0)
    weights = model.work[1]
    _centre(model.apart, used, weights, model.work[2])
    for i in range(dim):
        model.coef[i] = 0.0
        for a in range(used):
            model.coef[i] += weights[a] * model.coefs[a, i]
    shrink(model.coef, 0, dim, model.bound[0])
    _measure_groups(estimator, model, used)


@borrowing
def variance_of_median(dim: int) -> float:
    """Return the variance of the geometric median of normal points, over that of their mean.

    (d/2)·[Γ(d/2)/Γ((d + 1)/2)]², for many points: π/2 for one dimension, 1 for many.
    """
    ratio = math.sqrt(math.pi) if dim % 2 == 1 else 2.0 / math.sqrt(math.pi)
    for i in range(1 if dim % 2 == 1 else 2, dim, 2):
        ratio *= i / (i + 1.0)
    return 0.5 * dim * ratio * ratio


@borrowing
def _measure_groups(estimator: Any, model: Any, used: int) -> None:
    """Estimate the noise, and what the median of the groups loses to one regression of all."""
    dim, groups = model.coef.size, estimator.groups
    squares = model.work[1]
    loss, freedom = 0.0, 0.0
    for a in range(used):
        inverse = model.parts.inverse[a]
        trace = 0.0
        for i in range(dim):
            trace += inverse[i, i]
            loss += dot(inverse[i], model.curvature.matrix[i])
        count = math.ceil((model.seen[0] - a) / groups)
        free = count - dim + model.ridge[0] * trace  # degrees of freedom left to the residuals
        freedom += free
        squares[a] = model.residuals[a] / max(free, 1e-12)
    model.loss[0] = loss / (used * used * dim)
    if groups > 2:
        model.loss[0] *= variance_of_median(dim)
    # an outlier spoils the mean of squares of its group only; the median of χ²(f)/f is
    # (1 − 2/(9f))³ by Wilson and Hilferty
    shift = 1.0 - 2.0 / (9.0 * max(freedom / used, 1.0))
    model.residual[0] = model.seen[0] * _median(squares, used) / (shift * shift * shift)


@borrowing
def groups_noise(estimator: Any, sigma: float, model: Any) -> float:
    """Return the size of the noise, times the root of what the median of groups loses."""
    noise: float = tail_size(estimator, sigma, model) * math.sqrt(model.loss[0])
    return noise


@borrowing
def groups_radius(estimator: Any, spec: Any, model: Any, rounds: float) -> float:
    """Return the radius of `MedianOfMeans`, whose notes have the formula."""
    epsilon, m, dim = estimator.epsilon, float(estimator.groups), float(model.coef.size)
    spoilt = (estimator.groups + 1) // 2  # so many bad groups spoil the median
    log_ways = 0.0  # of choosing them
    for i in range(spoilt):
        log_ways += math.log((m - i) / (i + 1.0))
    log_failure = -(math.log(spec.horizon) + log_ways) / spoilt  # allowed to one group
    good = (m - spoilt + 1.0) / m
    factor = good / math.sqrt(2.0 * good - 1.0)
    spread = math.sqrt(dim * math.log1p(model.seen[0] / (spec.ridge * dim)))
    power = math.exp(((1.0 - epsilon) * math.log(2.0) - log_failure) / (1.0 + epsilon))
    size = m ** (epsilon / (1.0 + epsilon)) * tail_size(estimator, spec.sigma, model)
    radius: float = factor * (size * power * spread + math.sqrt(spec.ridge) * spec.bound)
    return radius
