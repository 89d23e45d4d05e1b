"""Intervals built from `moments` cover as often as they say."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from tests.contextual import naive
from tests.contextual.helpers import Pupil
from zib.contextual import JointUCB
from zib.stats.predictions import capped, product_quantiles

LEVEL = 0.95
NAMES = ("occurrence", "magnitude", "reward, delta method", "reward, product of normals")


def covered(seed, link, n, theta0, sets):
    """Return, per history and action, whether the intervals for η, ζ, p·mu (two kinds) cover.

    Actions are played at random, so that the observations are independent.
    """
    rng = np.random.default_rng(seed)
    d = 3
    theta, beta = np.array([theta0, 0.8, -0.5]), np.array([1.0, -0.6, 0.4])
    actions = np.column_stack([np.ones(3), [[-0.7, 0.2], [0.0, 0.0], [0.6, -0.9]]])
    eta, mu = actions @ theta, actions @ beta
    p = naive.value(link, eta)
    quantile = stats.norm.ppf(0.5 + 0.5 * LEVEL)
    out = np.zeros((sets, 4, 3), dtype=bool)
    for i in range(sets):
        x = np.column_stack([np.ones(n), rng.uniform(-1, 1, (n, d - 1))])
        paid = rng.random(n) < naive.value(link, x @ theta)
        rewards = np.where(paid, x @ beta + 0.7 * rng.normal(size=n), 0.0)
        pupil = Pupil(JointUCB(link=link, ridge=0.01), d).teach(x, x, rewards)
        found = pupil.moments(actions, actions)
        est_eta, var_eta, est_mu, var_mu, covariance = found
        assert not covariance.any()
        out[i, 0] = np.abs(est_eta - eta) < quantile * np.sqrt(var_eta)
        out[i, 1] = np.abs(est_mu - mu) < quantile * np.sqrt(var_mu)
        est_p, slope = naive.value(link, est_eta), naive.slope(link, est_eta)
        var_p = slope**2 * var_eta
        spread = np.sqrt(est_p**2 * var_mu + est_mu**2 * var_p + var_mu * var_p)
        out[i, 2] = np.abs(est_p * est_mu - p * mu) < quantile * spread
        low, high = product_quantiles(
            lambda e: capped(naive.value(link, e)), None, found, np.array([0.025, 0.975])
        )
        out[i, 3] = (low < p * mu) & (p * mu < high)
    return out, p


def share_allowed(sets):
    """Return limits for the share of histories that are covered.

    They hold with probability 1 − 2e-6 if the probability is between 0.92 and 0.97. That is the
    nominal 0.95 up to what normal approximations cost; 1500 histories each gave between 0.916 and
    0.963, with one exception (the log link near p = 1: 0.902).
    """
    return stats.binom.ppf(1e-6, sets, 0.92) / sets, stats.binom.isf(1e-6, sets, 0.97) / sets


@pytest.mark.parametrize(
    ("link", "theta0", "sets"),
    [
        ("logit", -0.3, 500),
        ("probit", -0.3, 250),
        ("cauchit", -0.3, 250),
        ("cloglog", -0.7, 250),
        ("log", -2.0, 250),
    ],
)
def test_coverage_with_four_hundred_rewards(seed, link, theta0, sets) -> None:
    """12 shares in each case: by chance a case fails with probability below 3e-5."""
    found, _ = covered(seed, link, 400, theta0, sets)
    check(found, sets)


def test_coverage_where_few_actions_pay(seed) -> None:
    """p = .01, .02 and .05, 5000 rewards of which 100 are not zero, some of them summarised."""
    found, p = covered(seed, "logit", 5000, -3.9, 250)
    assert p.min() < 0.011
    check(found, 250)


def check(found, sets):
    low, high = share_allowed(sets)
    assert low > 0.82
    for name, shares in zip(NAMES, found.mean(axis=0), strict=True):
        assert (low <= shares).all(), (name, shares)
        assert (shares <= high).all(), (name, shares)
    assert not found.all()
