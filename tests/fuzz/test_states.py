"""Forged states of every policy: refused in one sentence, or played without harm."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import zib
from tests import contextual_policies, policies
from tests.fuzz import child, forge, seeds
from zib.core.entry import interpreted
from zib.core.state import SMALLEST_REWARD
from zib.testing.specs import allowed

LIMIT = 20.0  # seconds of one case: what they really take is a few milliseconds


def trained(spec: Any, n: int = 40) -> zib.Bandit:
    bandit = zib.Bandit(spec, n_arms=3, seed=1)
    for j in range(n):
        bandit.update(bandit.select(), allowed(spec, [0.0, 1.0, 0.0, 4.0, 1.5][j % 5]))
    bandit.indices()
    return bandit


def play(bandit: zib.Bandit) -> None:
    for j in range(8):
        reward = allowed(bandit.spec, [1.0, 0.0, 4.0][j % 3])
        if abs(reward) < SMALLEST_REWARD:  # a forged range is so small that its rewards are refused
            reward = 0.0
        bandit.update(bandit.select(), reward + bandit.inflated)


def load_and_play(case: forge.Forged) -> None:
    try:
        bandit = zib.Bandit.loads(case.text)
    except zib.SavedStateError:
        return
    play(bandit)


def load(case: forge.Forged) -> None:
    try:
        zib.Bandit.loads(case.text)
    except zib.SavedStateError as error:
        if len(str(error)) > 1000:
            raise AssertionError(f"a message of {len(str(error))} letters") from error


FEATURES = np.random.default_rng(3).normal(size=(5, 2))


def learn(bandit: zib.ContextualBandit, reward: float) -> None:
    """Let a bandit decide and learn a reward, with a category if it is told one."""
    told = {"category": 1} if reward and getattr(bandit.spec, "n_categories", 0) else {}
    bandit.update(bandit.select(FEATURES), bandit.inflated + reward, FEATURES, **told)


def trained_with_features(spec: Any, n: int = 60) -> zib.ContextualBandit:
    bandit = zib.ContextualBandit(spec, n_features=2, seed=1)
    for j in range(n):
        learn(bandit, [0.0, 1.0, 0.0, 4.0, 1.5][j % 5])
    return bandit


def load_and_play_with_features(case: forge.Forged) -> None:
    try:
        bandit = zib.ContextualBandit.loads(case.text)
    except zib.SavedStateError:
        return
    try:
        for j in range(4):
            learn(bandit, float(j % 2))
    except zib.InvalidParameterError:
        pass  # it was saved with other features, or another number of arms


def forgeries(bandit: Any, n: int | None = None) -> Iterator[forge.Forged]:
    """Return forged files without end, or so many."""
    rng = np.random.default_rng(seeds.seed())
    content = forge.content_of(bandit)
    numbers = itertools.count() if n is None else range(n)
    return (forge.forged(content, rng) for _ in numbers)


def test_forged_states_are_refused_or_played() -> None:
    done = child.run(
        forgeries(trained(policies.SPECS["zi-ucb"]), 400), load_and_play, LIMIT, seeds.seconds(3.0)
    )
    assert done > 20


@pytest.mark.parametrize(
    "name", ["zi-kl", "zi-adaptive", "windowed zi-ts", "discounted zi-posterior", "outcomes-kl"]
)
def test_forged_states_are_loaded_or_refused(name: str) -> None:
    with interpreted():  # compiled code is tried below
        bandit = trained(policies.SPECS[name])
        assert child.run(forgeries(bandit, 60), load, LIMIT, seeds.seconds(3.0)) > 10


def test_what_was_saved_is_loaded() -> None:
    with interpreted():
        for name in ("zi-kl", "zi-adaptive", "windowed zi-ts", "discounted zi-posterior"):
            bandit = trained(policies.SPECS[name], 200)
            assert zib.Bandit.loads(bandit.dumps()).dumps() == bandit.dumps()


@pytest.mark.slow
@pytest.mark.parametrize("name", policies.ONLINE)
def test_forged_states_of_every_policy(name: str) -> None:
    bandit = trained(policies.ONLINE[name])
    assert child.run(forgeries(bandit), load_and_play, LIMIT, seeds.seconds(2.0)) > 20


@pytest.mark.slow
@pytest.mark.parametrize("name", contextual_policies.COMPILED)
def test_forged_states_of_every_contextual_policy(name: str) -> None:
    bandit = trained_with_features(contextual_policies.COMPILED[name])
    done = child.run(forgeries(bandit), load_and_play_with_features, LIMIT, seeds.seconds(3.0))
    assert done > 5
