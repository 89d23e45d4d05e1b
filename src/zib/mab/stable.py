"""Symmetric stable laws, whose tails are so heavy that there is no variance, and their centre.

The posterior of the centre mu is that of all rewards under the stable density itself. A stable law
is also a mixture of normal laws with random scales, and could be sampled by drawing all scales
given mu and mu given all scales in turn. A scale that is drawn once and never again does not do:
it makes an early outlier a fact, and counts the scales as known. Here the scales are integrated
out, which is where drawing them again and again would lead.

The first `MEMORY` rewards of an arm are kept and their posterior is computed on a grid; it may have
several modes. Later the logarithm of a likelihood is as good as quadratic, and two sums tell all of
it: an arm takes a step by the score of each new reward, of the size that makes it efficient.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from zib.core.kernel import jitable
from zib.core.state import Floats

MEMORY = 32  # rewards that are kept
GRID = 96  # points at which a posterior is computed
KNOTS = 512  # distances at which the density is tabulated, equal steps of log(1 + distance)
FARTHEST = 50.0  # beyond it the tail is a power
STEP = math.log(1.0 + FARTHEST) / (KNOTS - 1)
HUGE = 1e100


# ----------------------------------------------------------------------------------- the stable law


@lru_cache(maxsize=16)
def stable_law(stability: float) -> tuple[Floats, Floats, Floats, Floats, float]:
    """Return log density and score at the knots, levels, their quantiles, Fisher information."""
    from scipy.special import ndtr

    if stability == 2.0:  # normal from the first reward on: nothing is looked up
        return np.zeros(KNOTS), np.zeros(KNOTS), np.zeros(GRID), np.zeros(GRID), 0.5
    distance = np.expm1(STEP * np.arange(KNOTS))
    # f(x) = ∫ cos(xt) exp(−t^stability) dt/π; nothing is left where the exponent is −40, and in
    # the cube root of t the integrand is smooth at 0
    nodes, weights = np.polynomial.legendre.leggauss(12)
    root = (np.arange(300)[:, None] + 0.5 * (nodes + 1.0)).ravel() / 300
    weights = np.tile(weights / 600, 300)
    end = 40.0 ** (1.0 / stability)
    t = end * root**3
    weights *= 3.0 * end / math.pi * root**2 * np.exp(-(t**stability))
    angle = distance[:, None] * t
    density = np.cos(angle) @ weights
    slope = np.sin(angle) @ (weights * t)
    # where rounding would show, next to a Gaussian law, the tail is c/x^(1 + stability)
    constant = math.gamma(1.0 + stability) * math.sin(0.5 * math.pi * stability) / math.pi
    far = (distance > 3.0) & (density < 1e-9)
    density[far] = np.maximum(constant, 1e-300) / distance[far] ** (1.0 + stability)
    slope[far] = (1.0 + stability) / distance[far] * density[far]
    score = slope / density
    mass = density * STEP * (1.0 + distance)  # per step
    above = np.concatenate([[0.0], np.cumsum(0.5 * (mass[1:] + mass[:-1]))])
    rest = distance[-1] * density[-1] / stability
    above = above[-1] + rest - above
    above = np.maximum(above * 0.5 / above[0], 1e-300)
    levels = ndtr(np.linspace(-4.8, 4.8, GRID))
    tail = np.minimum(levels, 1.0 - levels)[: GRID // 2]
    upper = np.exp(np.interp(-np.log(tail), -np.log(above), np.log(np.maximum(distance, 1e-12))))
    upper = np.where(
        tail < above[-1], distance[-1] * (above[-1] / tail) ** (1.0 / stability), upper
    )
    near = tail > above[1]
    upper[near] = np.interp(-tail[near], -above, distance)
    quantiles = np.concatenate([-upper, upper[::-1]])
    fisher = 2.0 * float(np.sum(score**2 * mass))
    return np.log(density), score, levels, quantiles, fisher


@jitable
def draw_stable(stability: float, skewness: float, u: float, v: float) -> float:
    """Return a draw of the standard stable law with mean 0; `u` and `v` are uniform on [0, 1).

    The formula of Chambers, Mallows and Stuck, in the form of Weron (1996); stability in (1, 2].
    """
    angle = math.pi * (u - 0.5)
    lean = skewness * math.tan(0.5 * math.pi * stability)
    turned = stability * angle + math.atan(lean)
    size = (1.0 + lean * lean) ** (0.5 / stability)
    base = -math.log(1.0 - v) / max(math.cos(angle - turned), 1e-300)
    out = size * math.sin(turned) / max(math.cos(angle), 1e-300) ** (1.0 / stability)
    return float(out * base ** ((stability - 1.0) / stability))


@jitable
def log_density(spec: Any, own: Any, x: float) -> float:
    """Return the logarithm of the standard stable density."""
    distance = min(abs(x), HUGE)
    place = math.log(1.0 + distance) / STEP
    if not place < KNOTS - 1:
        tail = (1.0 + spec.stability) * math.log(distance / FARTHEST)
        return float(own.log_density[KNOTS - 1] - tail)
    j = int(place)
    share = place - j
    return float((1.0 - share) * own.log_density[j] + share * own.log_density[j + 1])


@jitable
def score_at(spec: Any, own: Any, x: float) -> float:
    """Return minus the derivative of the logarithm of the standard stable density."""
    if spec.stability == 2.0:
        return 0.5 * x
    distance = min(abs(x), HUGE)
    place = math.log(1.0 + distance) / STEP
    if not place < KNOTS - 1:
        return math.copysign((1.0 + spec.stability) / distance, x)
    j = int(place)
    share = place - j
    return math.copysign((1.0 - share) * own.score[j] + share * own.score[j + 1], x)


# ------------------------------------------------------------------------ the posterior of a centre


@jitable
def is_kept(spec: Any, count: float) -> bool:
    """Whether the posterior after so many rewards is that on the grid."""
    return bool(count <= MEMORY and spec.stability < 2.0)


@jitable
def quantile(own: Any, arm: int, level: float) -> float:
    """Return a quantile of the posterior on the grid; its density is linear between points."""
    low = 0
    high = GRID - 1
    while high - low > 1:
        middle = (low + high) // 2
        if own.below[arm, middle] <= level:
            low = middle
        else:
            high = middle
    start = own.points[arm, low]
    width = own.points[arm, high] - start
    first = own.density[arm, low]
    rise = own.density[arm, high] - first
    missing = max(level - own.below[arm, low], 0.0)
    if width <= 0.0 or missing <= 0.0:
        return float(start)
    root = math.sqrt(max(first * first + 2.0 * rise * missing / width, 0.0))
    return float(start + min(2.0 * missing / max(first + root, 1e-300), width))


@jitable
def place_points(spec: Any, own: Any, arm: int, count: int) -> None:
    """Choose the points: quantiles of the law around every reward, and of what was known.

    Those around the rewards see to it that there are points between modes far apart.
    """
    if count == 1:
        for g in range(GRID):
            own.points[arm, g] = own.rewards[arm, 0] + spec.sigma * own.quantiles[g]
        return
    for g in range(GRID // 2):
        j = g % count
        around = own.rewards[arm, j] + spec.sigma * own.quantiles[2 * g]
        own.new_points[2 * g] = quantile(own, arm, own.levels[2 * g + 1])
        own.new_points[2 * g + 1] = around
    for g in range(GRID):  # sorted by insertion
        point = own.new_points[g]
        at = g
        while at > 0 and own.points[arm, at - 1] > point:
            own.points[arm, at] = own.points[arm, at - 1]
            at -= 1
        own.points[arm, at] = point


@jitable
def compute(spec: Any, own: Any, arm: int, count: int) -> None:
    """Compute the posterior at the points from the rewards that are kept."""
    top = -np.inf
    for g in range(GRID):
        value = 0.0
        for j in range(count):
            value += log_density(spec, own, (own.rewards[arm, j] - own.points[arm, g]) / spec.sigma)
        own.density[arm, g] = value
        top = max(top, value)
    total = 0.0
    for g in range(GRID):
        own.density[arm, g] = math.exp(own.density[arm, g] - top)
        if g > 0:
            width = own.points[arm, g] - own.points[arm, g - 1]
            total += 0.5 * width * (own.density[arm, g] + own.density[arm, g - 1])
        own.below[arm, g] = total
    if total > 0.0:
        for g in range(GRID):
            own.density[arm, g] /= total
            own.below[arm, g] /= total


@jitable
def summarise(own: Any, arm: int) -> None:
    """Replace the posterior on the grid by the normal law with its mean and variance."""
    mean = 0.0
    square = 0.0
    origin = quantile(own, arm, 0.5)
    for g in range(1, GRID):
        mass = own.below[arm, g] - own.below[arm, g - 1]
        middle = 0.5 * (own.points[arm, g] + own.points[arm, g - 1]) - origin
        mean += mass * middle
        square += mass * middle * middle
    own.centre[arm] = origin + mean
    own.information[arm] = 1.0 / max(square - mean * mean, 1e-300)
