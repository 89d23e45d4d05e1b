"""What helps to read the contextual figures: how hard the task is, and what theory says of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from zib import theory
from zib.contextual import StandardLink, derivative, kappa, value
from zib.core.rng import Role, stream
from zib.env import RandomContextual
from zib.experiments.contextual_panels import RIDGE
from zib.experiments.judge import number

ROUNDS = 400  # enough for two digits of what is averaged over rounds and actions


class Task(NamedTuple):
    """One instance: how linear its mean reward is, and what bad play costs per round."""

    explained: float
    linear_rule: float
    at_random: float
    worst: float


def task(maker: RandomContextual, seed: int, replication: int) -> Task:
    """Measure one instance of an environment on rounds of its own stream.

    `explained` is the share of the variance of the mean reward over all actions that the best
    linear function of the features explains; `linear_rule` is the mean regret per round of playing
    the action this function likes best.
    """
    env = maker.instance(stream(seed, Role.INSTANCE, replication))
    block = env.block(stream(seed, Role.ENVIRONMENT, replication), ROUNDS)
    mean = block.mean
    features = np.moveaxis(block.z, 1, 2).reshape(mean.size, -1)
    coef = np.linalg.lstsq(features, mean.ravel(), rcond=None)[0]
    fitted = (features @ coef).reshape(mean.shape)
    best = mean.max(axis=1)
    played = np.take_along_axis(mean, fitted.argmax(axis=1)[:, None], axis=1)[:, 0]
    return Task(
        float(1.0 - np.mean((mean - fitted) ** 2) / mean.var()),
        float((best - played).mean()),
        float((best - mean.mean(axis=1)).mean()),
        float((best - mean.min(axis=1)).mean()),
    )


def why_naive_does_well(
    makers: Sequence[RandomContextual], seed: int, replications: int, horizon: int
) -> str:
    """Return what the misspecified model loses here, and why its printed width helps it."""
    tasks = [task(maker, seed, r) for maker in makers for r in range(replications)]
    shares = [100 * t.explained for t in tasks]
    cost = float(np.mean([t.linear_rule for t in tasks])) * horizon
    maker = makers[0]
    d, q = maker.n_features
    rho_x = _printed_radius(horizon, d, maker.sigma, 1.0)
    rho_y = _printed_radius(horizon, q, 1.0, kappa(StandardLink(name=maker.link), 1.0))
    return (
        "Why the misspecified model does well here: no coefficient and no centre is negative, and "
        "over such actions p·mu is nearly linear. The best linear function of x explains "
        f"{min(shares):.0f} to {max(shares):.0f} % of the variance of the mean reward over "
        f"actions and rounds. Playing by it alone would cost {number(cost)} on average in "
        f"{horizon} rounds, and less if it were fitted to the actions it plays, as the naive "
        "methods do; so the part of their regret that is bound to be linear is small here. "
        "Besides, the baselines are printed with the root of the radius: at the end naive UCB adds "
        f"{math.sqrt(rho_x):.1f} times the width of x to its estimate, while ZI-UCB adds "
        f"{rho_x:.1f} widths for the magnitude and {rho_y:.0f} for the probability and is still "
        "exploring."
    )


def _printed_radius(horizon: int, dim: int, sigma: float, slope: float) -> float:
    return float(
        theory.contextual_radius(
            horizon,
            dim,
            1.0 / horizon,
            ridge=RIDGE,
            sigma=sigma,
            kappa=slope,
            version="printed",
        )
    )


def what_the_theorem_says(
    maker: RandomContextual, seed: int, replications: int, horizon: int
) -> str:
    """Return the regret bound of the theorem next to the largest regret that is possible."""
    d, q = maker.n_features
    link = StandardLink(name=maker.link)
    bounds = [
        float(
            theory.contextual_regret_bound(
                horizon,
                d,
                q,
                1.0 / horizon,
                sigma=maker.sigma,
                slope_occurrence=max(derivative(link, x) for x in np.linspace(-1.0, 1.0, 201)),
                kappa_occurrence=kappa(link, 1.0),
                prob_min=value(link, -1.0),
                ridge_magnitude=RIDGE,
                ridge_occurrence=RIDGE,
                version=version,
            )
        )
        for version in ("corrected", "printed")
    ]
    tasks = [task(maker, seed, r) for r in range(replications)]
    worst = float(np.mean([t.worst for t in tasks])) * horizon
    random = float(np.mean([t.at_random for t in tasks])) * horizon
    return (
        f"Theorem 4.3 says nothing at this horizon: its bound is {number(bounds[0])} with the "
        f"corrected constants and {number(bounds[1])} with the printed ones, "
        f"{bounds[0] / worst:.0f} and {bounds[1] / worst:.0f} times the regret of playing the "
        f"worst action in every round ({number(worst)}). Playing at random would cost "
        f"{number(random)}. The bound is therefore not drawn."
    )


def few_replications(replications: int) -> str:
    """Return a warning about intervals from few replications."""
    from scipy.special import stdtrit

    few, many = (float(stdtrit(n - 1, 0.975)) for n in (replications, 25))
    return (
        f"Quick scale: with {replications} replications a 95 % interval is {few:.1f} standard "
        f"errors wide on either side ({many:.1f} with the paper's 25), and a standard error is "
        f"{math.sqrt(25 / replications):.1f} times as large. Much stays undecided that "
        "--scale paper decides."
    )
