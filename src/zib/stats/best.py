"""How likely each arm is the best, from the sums a bandit keeps."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

POINTS = np.linspace(-6.0, 6.0, 33)  # of each posterior, in standard deviations
FAR = 9.0  # standard deviations behind the leader, from which on an arm is not the best


def chance_of_best(
    pulls: ArrayLike,
    nonzero: ArrayLike,
    total: ArrayLike,
    spread: ArrayLike,
    *,
    negative: bool = False,
) -> Array:
    """Return the posterior probability of each arm that none is worth more.

    Parameters
    ----------
    pulls, nonzero
        Number of rewards, pending ones as the fractions they count for, and of those that are not
        zero.
    total, spread
        Sum of the non-zero rewards and of their squared deviations from their mean.
    negative
        Whether rewards may be negative.

    Notes
    -----
    The chance p of a reward has the posterior Beta(1 + B, 1 + n − B); the mean size of a reward the
    one of a normal law with unknown variance and a prior worth one reward like those of all arms
    together. Their product is taken for a gamma law with its mean and variance, which may be
    skewed (a normal one where rewards may be negative), and P(best) is an integral over one number,
    so that small probabilities come without the noise of draws.

    Examples
    --------
    >>> chance = chance_of_best([1000, 1000], [30, 60], [300.0, 600.0], [900.0, 1800.0])
    >>> [round(x, 4) for x in chance.tolist()]
    [0.0026, 0.9974]
    """
    from scipy.special import ndtr

    mean, variance = value_moments(pulls, nonzero, total, spread)
    if mean.size < 2 or not (variance > 0.0).all():
        return np.full(mean.size, 1.0 / max(mean.size, 1))
    sd = np.sqrt(variance)
    leader = int(np.argmax(mean))
    near = mean + FAR * sd >= mean[leader] - FAR * sd[leader]
    skewed = not negative and bool((mean > 0.0).all())
    m, s = mean[near], sd[near]
    if skewed:  # the cube root of a gamma law is almost normal (Wilson and Hilferty 1931)
        ninth = (s / m) ** 2 / 9.0
        points = (
            m[:, None] * np.maximum(1.0 - ninth[:, None] + POINTS * np.sqrt(ninth)[:, None], 0) ** 3
        )
    else:
        points = m[:, None] + POINTS * s[:, None]
    grid = np.unique(points)
    if skewed:
        z = (np.cbrt(grid / m[:, None]) - 1.0 + ninth[:, None]) / np.sqrt(ninth)[:, None]
    else:
        z = (grid - m[:, None]) / s[:, None]
    below = ndtr(z)
    middle = 0.5 * (below[:, 1:] + below[:, :-1])
    logs = np.log(np.maximum(middle, 1e-300))
    others = np.exp(np.minimum(logs.sum(axis=0) - logs, 0.0))
    found = np.zeros(mean.size)
    found[near] = (np.diff(below, axis=1) * others).sum(axis=1)
    return np.asarray(found / found.sum())


def value_moments(
    pulls: ArrayLike, nonzero: ArrayLike, total: ArrayLike, spread: ArrayLike
) -> tuple[Array, Array]:
    """Return posterior mean and variance of what each arm is worth; as for `chance_of_best`."""
    n, b, sums, squares = (np.asarray(x, np.float64) for x in (pulls, nonzero, total, spread))
    alpha, beta = 1.0 + b, 1.0 + np.maximum(n - b, 0.0)
    p = alpha / (alpha + beta)
    p_variance = p * (1.0 - p) / (alpha + beta + 1.0)
    rewards = float(b.sum())
    if rewards < 2.0:
        return np.zeros(n.size), np.zeros(n.size)
    usual = float(sums.sum()) / rewards
    own = np.where(b > 0.0, sums / np.maximum(b, 1.0), usual)
    around = float((squares + b * (own - usual) ** 2).sum()) / rewards
    # a prior worth one reward, for the mean and for the variance
    mu = (sums + usual) / (b + 1.0)
    scatter = squares + b / (b + 1.0) * (own - usual) ** 2 + around
    mu_variance = scatter / np.maximum(b + 1.0 - 2.0, 1.0) / (b + 1.0)
    return p * mu, p_variance * mu**2 + (p**2 + p_variance) * mu_variance
