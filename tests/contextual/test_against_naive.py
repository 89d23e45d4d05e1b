"""Indices and draws equal those of the slow oracle at every round."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.contextual import naive
from tests.contextual.helpers import Pupil
from zib.contextual import (
    ZITS,
    ZIUCB,
    Huber,
    Integrated,
    JointUCB,
    LaplaceTS,
    MedianOfMeans,
    Naive,
)

D, Q, K, T = 3, 2, 5, 400
LINKS = list(naive.LINKS)
ROUNDS = 80  # 31 of them with an exact fit each
FAR = 1e9


class World:
    """A history and, before every round, the actions to choose from."""

    def __init__(self, rng, link, rounds=ROUNDS):
        self.z = rng.normal(size=(rounds, K, D))
        self.w = np.stack([np.ones((rounds, K)), rng.uniform(-1, 1, (rounds, K))], axis=2)
        if link == "log":
            self.w[:, :, 0] = -1.0
        self.theta = np.array([1.5, 0.7]) if link == "log" else np.array([-0.3, 0.7])
        self.beta = np.array([0.5, -0.4, 0.3])
        played = rng.integers(K, size=rounds)
        rows = np.arange(rounds)
        self.past_z, self.past_w = self.z[rows, played], self.w[rows, played]
        p = naive.value(link, self.past_w @ self.theta)
        size = self.past_z @ self.beta + 0.7 * rng.normal(size=rounds)
        self.rewards = np.where(rng.random(rounds) < p, size, 0.0)

    def past(self, t):
        return self.past_z[:t], self.past_w[:t], self.rewards[:t]


def follow(spec, world, oracle, rtol=1e-8, rounds=ROUNDS):
    """Teach round by round; before each of them compare all scores with the oracle's."""
    pupil = Pupil(spec, D, Q, compiled=False)
    mine, theirs = np.random.default_rng(3), np.random.default_rng(3)
    for t in range(rounds):
        found = pupil.scores(world.z[t], world.w[t], mine)
        wanted = oracle(pupil.state, world.past(t), world.z[t], world.w[t], theirs)
        np.testing.assert_allclose(found, wanted, rtol=rtol, atol=rtol, err_msg=f"round {t}")
        past = [part[t : t + 1] for part in (world.past_z, world.past_w, world.rewards)]
        pupil.teach(*past)


def magnitude_of(past, ridge, sigma):
    """Return the exact β̂ and σ of the non-zero rewards."""
    z, _, rewards = past
    paid = rewards != 0
    if not paid.any():
        return np.zeros(D), 1.0 if sigma is None else sigma
    estimated = naive.noise(z[paid], rewards[paid], ridge)
    beta = naive.ridge_regression(z[paid], rewards[paid], ridge)
    return beta, estimated if sigma is None else sigma


# ---------------------------------------------------------------------- from the state's estimate


@pytest.mark.parametrize("scale", [1.0, 0.2, "calibrated"])
@pytest.mark.parametrize("index", ["mean", "printed"])
@pytest.mark.parametrize("link", LINKS)
def test_zi_ucb(rng, link, index, scale) -> None:
    """θ̂ from the state, everything else from the history."""
    sigma = None if scale == 0.2 else 0.8
    bound = 3.0 if link != "log" else 2.0

    def oracle(state, past, z, w, _):
        beta, noise = magnitude_of(past, 0.5, sigma)
        assert np.linalg.norm(beta) < bound  # so that the ball does not matter here
        return naive.zi_ucb(
            past,
            z,
            w,
            beta,
            state.occurrence.coef,
            link=link,
            horizon=T,
            sigma=noise,
            ridge=0.5,
            bound=bound,
            scale=scale,
            index=index,
        )

    spec = ZIUCB(
        horizon=T,
        sigma=sigma,
        link=link,
        ridge=0.5,
        bound=bound,
        scale=scale,
        index=index,
        random_rounds=0,
    )
    follow(spec, World(rng, link, 50), oracle, rounds=50)


@pytest.mark.parametrize("link", LINKS[:-1])
def test_joint_ucb_with_exact_fits(rng, link) -> None:
    """Everything from the history, while every round is followed by a refit.

    Without the log link: few observations are fitted at the edge of its model.
    """

    def oracle(state, past, z, w, _):
        beta, noise = magnitude_of(past, 1.0, None)
        t = len(past[2])
        theta = state.occurrence.coef
        if t:
            y = (past[2] != 0).astype(float)
            theta = naive.maximum_likelihood(link, past[1], y, 1.0, np.zeros(Q))
        return naive.joint_ucb(
            past, z, w, beta, theta, link=link, sigma=noise, ridge=1.0, scale=0.7
        )

    follow(JointUCB(link=link, scale=0.7), World(rng, link), oracle, rtol=4e-3, rounds=31)


@pytest.mark.parametrize("kind", ["printed", "full"])
@pytest.mark.parametrize("sigma", [None, 0.8])
def test_naive_ucb(rng, kind, sigma) -> None:
    def oracle(state, past, z, w, _):
        if len(past[2]) < 50:
            return np.zeros(K)  # random rounds
        noise = sigma or naive.noise(past[0], past[2], 0.5)
        return naive.naive_ucb(
            past, z, horizon=T, sigma=noise, ridge=0.5, scale=0.3, radius_as=kind
        )

    spec = Naive(horizon=T, sigma=sigma, ridge=0.5, scale=0.3, radius=kind)
    follow(spec, World(rng, "logit"), oracle)


@pytest.mark.parametrize("kind", ["printed", "full"])
@pytest.mark.parametrize("link", ["probit", "cloglog"])
def test_integrated_ucb(rng, link, kind) -> None:
    def oracle(state, past, z, w, _):
        if len(past[2]) < 50:
            return np.zeros(K)
        return naive.integrated_ucb(
            past,
            z,
            w,
            state.model.coef,
            link=link,
            horizon=T,
            sigma=0.8,
            ridge=0.5,
            bound=2.0,
            scale=0.3,
            radius_as=kind,
        )

    spec = Integrated(horizon=T, sigma=0.8, link=link, ridge=0.5, bound=2.0, scale=0.3, radius=kind)
    follow(spec, World(rng, link, 60), oracle, rounds=60)


# ------------------------------------------------------------------------------------------ draws


@pytest.mark.parametrize("scale", [1.0, "calibrated"])
@pytest.mark.parametrize("index", ["mean", "printed"])
def test_zi_ts(rng, index, scale) -> None:
    """The same normal numbers, turned into β̃ and then θ̃ by the factors of V and U."""

    def oracle(state, past, z, w, stream):
        t = len(past[2])
        if t < 10:
            return np.zeros(K)
        paid = past[2] != 0
        beta, noise = magnitude_of(past, 0.5, None)
        rho_x, rho_y = naive.spread(T, D, K, noise), naive.spread(T, Q, K, 1.0)
        if scale == "calibrated":
            rho_x, rho_y = noise, 0.5 / naive.kappa("probit", 3.0)
        beta = naive.gaussian(stream, beta, naive.gram(past[0][paid], 0.5), rho_x)
        theta = state.occurrence.coef
        theta = naive.gaussian(stream, theta, naive.gram(past[1], 0.5), rho_y)
        eta, zeta = w @ theta, z @ beta
        return zeta * (eta if index == "printed" else naive.value("probit", eta))

    spec = ZITS(
        horizon=T,
        sigma=None,
        link="probit",
        ridge=0.5,
        bound=3.0,
        scale=scale,
        index=index,
        random_rounds=10,
    )
    follow(spec, World(rng, "probit"), oracle)


@pytest.mark.parametrize("link", ["logit", "cauchit"])
def test_laplace_ts_with_exact_fits(rng, link) -> None:
    def oracle(state, past, z, w, stream):
        paid = past[2] != 0
        beta, noise = magnitude_of(past, 1.0, 0.8)
        theta = np.zeros(Q)
        if paid.size:
            theta = naive.maximum_likelihood(link, past[1], paid.astype(float), 1.0, np.zeros(Q))
        fisher = naive.information(link, past[1], 1.0, theta)
        beta = naive.gaussian(stream, beta, naive.gram(past[0][paid], 1.0), 0.7 * noise)
        theta = naive.gaussian(stream, theta, fisher, 0.7)
        return (z @ beta) * naive.value(link, w @ theta)

    spec = LaplaceTS(sigma=0.8, link=link, scale=0.7)
    follow(spec, World(rng, link), oracle, rtol=4e-3, rounds=31)


def test_naive_and_integrated_ts(rng) -> None:
    def naive_oracle(state, past, z, w, stream):
        if len(past[2]) < 50:
            return np.zeros(K)
        coef = naive.ridge_regression(past[0], past[2], 1.0)
        scale = naive.spread(T, D, K, 0.8)
        return z @ naive.gaussian(stream, coef, naive.gram(past[0], 1.0), scale)

    def integrated_oracle(state, past, z, w, stream):
        if len(past[2]) < 50:
            return np.zeros(K)
        both = np.hstack([past[0], past[1]])
        scale = max(naive.spread(T, D, K, 0.8), naive.spread(T, Q, K, 1.0))
        coef = naive.gaussian(stream, state.model.coef, naive.gram(both, 1.0), scale)
        return (z @ coef[:D]) * naive.value("logit", w @ coef[D:])

    world = World(rng, "logit", 60)
    follow(Naive(horizon=T, sigma=0.8, kind="ts"), world, naive_oracle, rounds=60)
    spec = Integrated(horizon=T, sigma=0.8, kind="ts", bound=FAR)
    follow(spec, world, integrated_oracle, rounds=60)


def test_drawn_coefficients_have_the_stated_law(rng) -> None:
    """Scores of the unit vectors are the drawn β̃ itself: N(β̂, ϱ²V⁻¹).

    4000 draws of 3 coefficients, 9 statistics of the whitened draws at 5.5 standard errors: fails
    by chance with probability below 1e-6.
    """
    world = World(rng, "logit")
    pupil = Pupil(Naive(horizon=T, sigma=0.8, kind="ts"), D, Q, compiled=False)
    pupil.teach(world.past_z, world.past_w, world.rewards)
    unit, unused = np.eye(D), np.zeros((D, Q))
    draws = np.array([pupil.scores(unit, unused, rng) for _ in range(4000)])
    coef = naive.ridge_regression(world.past_z, world.rewards, 1.0)
    lower = np.linalg.cholesky(naive.gram(world.past_z, 1.0))
    white = (draws - coef) @ lower / naive.spread(T, D, D, 0.8)
    assert np.abs(white.mean(axis=0)).max() * math.sqrt(4000) < 5.5
    error = np.sqrt(np.where(np.eye(D) > 0, 2.0, 1.0) / 4000)
    assert np.abs((white.T @ white / 4000 - np.eye(D)) / error).max() < 5.5


# --------------------------------------------------------------------------------- robust variants


def test_median_of_means_in_a_policy(rng) -> None:
    """β̂ and σ of the groups, radii from all non-zero rewards together."""

    def oracle(state, past, z, w, _):
        paid = past[2] != 0
        beta, sigma = np.zeros(D), 1.0
        if paid.any():
            beta, sigma = naive.median_of_means(past[0][paid], past[2][paid], 1.0, 3)
        theta = state.occurrence.coef
        return naive.joint_ucb(
            past, z, w, beta, theta, link="logit", sigma=sigma, ridge=1.0, scale=1.0
        )

    spec = JointUCB(magnitude=MedianOfMeans(groups=3))
    # the Fisher information is exact right after a refit only, that is up to round 31
    follow(spec, World(rng, "logit"), oracle, rtol=1e-3, rounds=31)


@pytest.mark.parametrize("epsilon", [0.4, 1.0])
@pytest.mark.parametrize("robust", [Huber, MedianOfMeans])
def test_zi_ucb_with_heavy_tails(rng, robust, epsilon) -> None:
    """Estimates from the state, the radius of order 1 + ε from the number of non-zero rewards."""

    def oracle(state, past, z, w, _):
        n, t = np.count_nonzero(past[2]), len(past[2])
        if robust is Huber:
            wide = naive.huber_radius(T, D, t, max(n, 1), 0.5, 0.8, epsilon)
        else:
            wide = naive.groups_radius(T, D, n, 0.5, 0.8, epsilon, 7, 3.0)
        return naive.zi_ucb(
            past,
            z,
            w,
            state.magnitude.coef,
            state.occurrence.coef,
            link="logit",
            horizon=T,
            sigma=0.8,
            ridge=0.5,
            bound=3.0,
            scale=0.2,
            index="mean",
            radius_x=wide,
        )

    spec = ZIUCB(
        horizon=T,
        sigma=0.8,
        magnitude=robust(epsilon=epsilon),
        ridge=0.5,
        bound=3.0,
        scale=0.2,
        random_rounds=0,
    )
    follow(spec, World(rng, "logit", 40), oracle, rounds=40)
