"""Contextual policies for tests that run over all of them, and two made for tests only.

`RidgeUCB` models the reward as a whole, `TwoPart` models occurrence and magnitude apart, has a
state of nested tuples and draws random numbers. They also show that a policy of a user's own works.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

import zib
from zib import contextual
from zib.contextual import register_policy
from zib.core.spec import converted, real, whole


class Ridge(NamedTuple):
    inverse: Any
    total: Any
    estimate: Any
    count: Any


def new_ridge(width: int) -> Ridge:
    return Ridge(np.eye(width), np.zeros(width), np.zeros(width), np.zeros(1, dtype=np.int64))


@zib.jitable
def predict(ridge, columns, k):
    found = 0.0
    for i in range(columns.shape[0]):
        found += ridge.estimate[i] * columns[i, k]
    return found


@zib.jitable
def variance(ridge, columns, k):
    found = 0.0
    for i in range(columns.shape[0]):
        for j in range(columns.shape[0]):
            found += columns[i, k] * ridge.inverse[i, j] * columns[j, k]
    return max(found, 0.0)


@zib.jitable
def learn(ridge, row, target):
    size = 1.0
    for i in range(row.size):
        moved = 0.0
        for j in range(row.size):
            moved += ridge.inverse[i, j] * row[j]
        ridge.estimate[i] = moved
        size += moved * row[i]
        ridge.total[i] += target * row[i]
    for i in range(row.size):
        for j in range(row.size):
            ridge.inverse[i, j] -= ridge.estimate[i] * ridge.estimate[j] / size
    for i in range(row.size):
        found = 0.0
        for j in range(row.size):
            found += ridge.inverse[i, j] * ridge.total[j]
        ridge.estimate[i] = found
    ridge.count[0] += 1


# ------------------------------------------------------------------------- the reward as a whole


class RidgeUCB(zib.Spec):
    width: float = real(low=0, default=1.0)


def ridge_init(spec, d, q):
    return new_ridge(d)


def ridge_scores(spec, state, arms, z, w, rng, work, out):
    for k in range(out.size):
        out[k] = predict(state, z, k) + spec.width * math.sqrt(variance(state, z, k))


def ridge_update(spec, state, arm, z, w, reward):
    learn(state, z, reward)


def ridge_moments(spec, state, arms, z, w, work, out):
    for k in range(out.shape[1]):
        out[0, k] = math.nan
        out[1, k] = math.nan
        out[2, k] = predict(state, z, k)
        out[3, k] = variance(state, z, k)
        out[4, k] = 0.0


register_policy(
    RidgeUCB, init=ridge_init, scores=ridge_scores, update=ridge_update, moments=ridge_moments
)


# ------------------------------------------------------------------------------------- two parts


def registered(link):
    contextual.value(link, 0.0)
    return link


class TwoPart(zib.Spec):
    link: Any = converted(registered, allowed="link", default=contextual.Probit())
    horizon: float = real(low=1, default=10_000)


class TwoRidges(NamedTuple):
    occurrence: Ridge
    magnitude: Ridge


def two_init(spec, d, q):
    return TwoRidges(new_ridge(q), new_ridge(d))


def two_scores(spec, state, arms, z, w, rng, work, out):
    for k in range(out.size):
        eta = predict(state.occurrence, w, k)
        eta += math.sqrt(variance(state.occurrence, w, k)) * rng.standard_normal()
        zeta = predict(state.magnitude, z, k)
        zeta += math.sqrt(variance(state.magnitude, z, k)) * rng.standard_normal()
        out[k] = contextual.value(spec.link, eta) * zeta


def two_update(spec, state, arm, z, w, reward):
    learn(state.occurrence, w, 1.0 if reward != 0.0 else -1.0)
    if reward != 0.0:
        learn(state.magnitude, z, reward)


def two_moments(spec, state, arms, z, w, work, out):
    for k in range(out.shape[1]):
        out[0, k] = predict(state.occurrence, w, k)
        out[1, k] = variance(state.occurrence, w, k)
        out[2, k] = predict(state.magnitude, z, k)
        out[3, k] = variance(state.magnitude, z, k)
        out[4, k] = 0.0


register_policy(
    TwoPart,
    init=two_init,
    scores=two_scores,
    update=two_update,
    moments=two_moments,
    randomized=True,
)


# -------------------------------------------------------------------------------- one set per arm


class PerArm(zib.Spec):
    """The mean reward of each arm, whatever its features; knows arms by their numbers."""

    n_arms: int = whole(low=1)


class Means(NamedTuple):
    count: Any
    total: Any


def per_arm_init(spec, d, q):
    return Means(np.zeros(spec.n_arms), np.zeros(spec.n_arms))


def per_arm_scores(spec, state, arms, z, w, rng, work, out):
    for k in range(out.size):
        out[k] = state.total[arms[k]] / max(state.count[arms[k]], 1.0)


def per_arm_update(spec, state, arm, z, w, reward):
    state.count[arm] += 1.0
    state.total[arm] += reward


def per_arm_moments(spec, state, arms, z, w, work, out):
    for k in range(out.shape[1]):
        n = max(state.count[arms[k]], 1.0)
        out[0, k] = math.nan
        out[1, k] = math.nan
        out[2, k] = state.total[arms[k]] / n
        out[3, k] = 1.0 / n
        out[4, k] = 0.0


register_policy(
    PerArm,
    init=per_arm_init,
    scores=per_arm_scores,
    update=per_arm_update,
    moments=per_arm_moments,
)


T = 500
M = 256  # observations kept: as few as allowed, so that histories outgrow them

NATIVE = {
    "zi-ucb": contextual.ZIUCB(horizon=T, sigma=1.0, memory=M),
    "zi-ucb printed": contextual.ZIUCB(
        horizon=T, sigma=1.0, link="probit", index="printed", random_rounds=10, memory=M
    ),
    "zi-ucb calibrated": contextual.ZIUCB(
        horizon=T, sigma=None, link="cloglog", scale="calibrated", magnitude="huber", memory=M
    ),
    "zi-ucb median": contextual.ZIUCB(
        horizon=T,
        sigma=1.0,
        magnitude=contextual.MedianOfMeans(groups=5, epsilon=0.5),
        scale=0.1,
        memory=M,
    ),
    "zi-ucb log printed": contextual.ZIUCB(
        horizon=T,
        sigma=None,
        magnitude=contextual.LeastSquares(link="log", score="printed"),
        bound=2.0,
        memory=M,
    ),
    "zi-ts": contextual.ZITS(horizon=T, sigma=1.0, memory=M),
    "zi-ts median": contextual.ZITS(
        horizon=T, sigma=None, link="cauchit", magnitude="median_of_means", memory=M
    ),
    "joint ucb": contextual.JointUCB(memory=M),
    "joint ucb log": contextual.JointUCB(
        sigma=1.0, link="log", magnitude=contextual.LeastSquares(link="log"), bound=2.0, memory=M
    ),
    "laplace ts": contextual.LaplaceTS(memory=M),
    "laplace ts narrow": contextual.LaplaceTS(
        sigma=0.5, link=contextual.Probit(), scale=0.5, memory=M
    ),
    "laplace ts learned": contextual.LaplaceTS(prior="learned", memory=M),
    "laplace ts learned log": contextual.LaplaceTS(
        sigma=1.0,
        link="cloglog",
        magnitude=contextual.LeastSquares(link="log"),
        bound=2.0,
        ridge=0.3,
        prior="learned",
        memory=M,
    ),
    "naive ucb": contextual.Naive(horizon=T, sigma=1.0),
    "naive ts": contextual.Naive(horizon=T, sigma=None, kind="ts", radius="full"),
    "integrated ucb": contextual.Integrated(horizon=T, sigma=1.0, memory=M),
    "integrated ts": contextual.Integrated(
        horizon=T, sigma=None, kind="ts", link="probit", memory=M
    ),
    "disjoint": contextual.Disjoint(spec=contextual.JointUCB(memory=M), n_arms=5),
    "adaptive": contextual.Adaptive(n_arms=5, memory=M),
    "adaptive log": contextual.Adaptive(
        n_arms=5,
        sigma=1.0,
        link="cloglog",
        magnitude=contextual.LeastSquares(link="log"),
        doubt=0.5,
        memory=M,
    ),
    "adaptive ts": contextual.Adaptive(n_arms=5, kind="ts", memory=M),
    "adaptive huber": contextual.Adaptive(n_arms=5, magnitude="huber", scale=0.5, memory=M),
}

TOLD = {
    "by category": contextual.ByCategory(spec=contextual.LaplaceTS(memory=M), categories=2),
    "adaptive by category": contextual.ByCategory(
        spec=contextual.Adaptive(n_arms=5, kind="ts", memory=M), categories=2
    ),
    "disjoint by category": contextual.ByCategory(
        spec=contextual.Disjoint(
            spec=contextual.JointUCB(memory=M, magnitude=contextual.LeastSquares(link="log")),
            n_arms=5,
        ),
        categories=3,
    ),
}

INTERPRETED = {
    "template ucb": contextual.Template(
        contextual.GLMModel("bernoulli"), contextual.GLMModel("gaussian")
    ),
    "template ts": contextual.Template(
        contextual.GLMModel("bernoulli"), contextual.GLMModel("gaussian"), kind="ts"
    ),
}

TOYS = {
    "ridge ucb": RidgeUCB(width=1.0),
    "two part": TwoPart(),
    "per arm": PerArm(n_arms=5),
}

COMPILED = {**NATIVE, **TOLD, **TOYS}
SPECS = {**COMPILED, **INTERPRETED}
