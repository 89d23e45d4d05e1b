"""Calls everything a service calls, on a copy, so that nothing is left to compile.

What Numba compiles depends on types only, not on values, numbers of arms or what was learned.
"""

from __future__ import annotations

import copy
from collections.abc import Hashable
from contextlib import suppress
from typing import Any

import numpy as np

from zib.core import kernel
from zib.core.state import SMALLEST_REWARD
from zib.core.validate import InvalidParameterError
from zib.mab.wrappers import Wrapper


def a_reward(bandit: Any) -> float:
    """Return a reward that means that something happened, if the policy takes any."""
    inflated = float(bandit.inflated)
    listed = getattr(bandit.spec, "reward_values", None)
    if listed is not None:
        return float(next((value for value in listed if value), 0.0)) + inflated
    low, high = getattr(bandit.spec, "reward_range", (-np.inf, np.inf))
    value = min(max(1.0, low), high)
    return float(value if abs(value) >= SMALLEST_REWARD else 0.0) + inflated


def a_new_arm(bandit: Any) -> Hashable:
    """Return a label that no arm has."""
    there = bandit.arms or ()
    return next(k for k in range(len(there) + 1) if k not in there)


def categories(bandit: Any, reward: float) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what is told besides a reward, and besides a reward and a zero."""
    if not getattr(bandit.spec, "n_categories", 0):
        return {}, {}
    category = int(reward != bandit.inflated)
    return {"category": category}, {"categories": [category, 0]}


def use(bandit: Any) -> None:
    """Decide, learn, read, revise, merge, save and load, with a `Bandit` that nobody needs."""
    arm, reward, zero = bandit.arms[0], a_reward(bandit), bandit.inflated
    told, many = categories(bandit, reward)
    bandit.set_shares(least_share=0.0, largest_share=1.0, draws=1)
    for options in ({}, {"arms": [arm]}):
        bandit.select(**options)
        bandit.select(**options, return_propensity=True)
        bandit.select_many(2, **options)
        bandit.indices(**options)
        bandit.propensities(draws=1, **options)
    bandit.update(arm, reward, **told)
    bandit.update_many([arm, arm], [reward, zero], **many)
    bandit.means()
    if not isinstance(bandit.spec, Wrapper):
        bandit.means(anytime=True)
    if kernel.is_additive(bandit.spec):
        bandit.revise(arm, reward, zero)
        bandit.merge(copy.copy(bandit))
    new = a_new_arm(bandit)
    bandit.add_arm(new)
    bandit.select_many(2)  # whose first decision counts for the second
    bandit.remove_arm(new)
    type(bandit).loads(bandit.dumps()).select()


def use_with_features(bandit: Any) -> None:
    """Decide, learn, read, revise, merge, save and load a `ContextualBandit` that nobody needs.

    It has no encoder, since what that makes of a table comes here as numbers.
    """
    d, q = bandit.n_features
    own = getattr(bandit.spec, "n_arms", None)  # how many arms have models of their own
    arms = bandit.arms or range(int(own or 2))
    pair = np.ones((len(arms), d)), np.ones((len(arms), q))
    forms: list[Any] = [pair, pair[0]] if d == q else [pair]
    rewards = [a_reward(bandit), bandit.inflated]
    told, many = categories(bandit, rewards[0])
    bandit.set_shares(least_share=0.0, largest_share=1.0, draws=1)
    for features in forms:
        bandit.select(features)
        bandit.select(features, return_propensity=True)
        bandit.select(features, arms=arms)
        bandit.indices(features)
        bandit.propensities(features, draws=1)
        bandit.predict(features)
        bandit.update(arms[0], rewards[0], features, **told)
        rows = tuple(part[:1].repeat(2, axis=0) for part in pair)
        bandit.update_many([arms[0]] * 2, rewards, rows if features is pair else rows[0], **many)
        bandit.update(arms[0], rewards[1], tuple(part[0] for part in pair))
        if own is not None:
            bandit.select_many(features)
    if told:
        bandit.predict(pair, **told)
    if bandit.arms is not None:
        bandit.means()
        bandit.means(anytime=True)
    row = tuple(part[0] for part in pair)
    with suppress(InvalidParameterError):  # not every policy can take a reward back
        bandit.revise(arms[0], *rewards, row)
        bandit.merge(copy.copy(bandit))
    with suppress(InvalidParameterError):  # nor change its arms
        new = a_new_arm(bandit)
        bandit.add_arm(new)
        bandit.remove_arm(new)
    type(bandit).loads(bandit.dumps()).select(pair)
