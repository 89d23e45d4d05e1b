"""Saved bandits whose state cannot be are refused, by what the policy declares about it."""

from __future__ import annotations

import json
from typing import Any

import pytest

import zib
from zib import mab
from zib.core import saved
from zib.core.entry import interpreted

NAN = "nan"


def trained(spec: Any) -> dict[str, Any]:
    """Return what is saved about a bandit with three arms, as data."""
    with interpreted():
        bandit = zib.Bandit(spec, n_arms=3, seed=0)
        bandit.update_many([0, 1, 2, 0, 2, 1], [0.0, 1.0, 2.0, 3.0, 0.0, 1.5])
        content = json.loads(bandit.dumps())
    del content["checksum"]
    return content


def loaded(content: dict[str, Any]) -> zib.Bandit:
    with interpreted():
        return zib.Bandit.loads(saved.dumps(content))


@pytest.mark.parametrize(
    ("spec", "field", "value", "words"),
    [
        (mab.ZIUCB(horizon=50, sigma=1.0), "pulls", [-1.0, 2.0, 2.0], "`pulls` holds -1"),
        (mab.ZIUCB(horizon=50, sigma=1.0), "nonzero", [9.0, 0.0, 0.0], "more non-zero rewards"),
        (mab.ZIUCB(horizon=50, sigma=1.0), "own.mean_upper", [1.0, NAN, 1.0], "own.mean_upper"),
        (mab.ZIKLUCB(sigma=1.0), "own.last", [3.0], "`own.last` must hold numbers of 3 arms"),
        (mab.ZIKLUCB(sigma=1.0), "own.last", [0.5], "`own.last` must hold numbers of 3 arms"),
        (mab.ZIPosterior(), "own.pooled_freedom", [-1.0], "`own.pooled_freedom` holds -1"),
        (mab.ZIAdaptive(), "own.place", [1.0, "inf", 1.0], "`own.place`"),
        (mab.Windowed(mab.UCB1(), 4), "around.head", [5.0], r"position in \[0, 4\]"),
        (mab.Windowed(mab.UCB1(), 4), "around.arm", [0, 1, 2, 7], "`around.arm` must hold numbers"),
        (mab.Discounted(mab.UCB1(), 20), "around.since", [-3.0], "`around.since` holds -3"),
        (mab.OutcomesPosterior(edges=(1.0,)), "own.counts", [[-1.0] * 3] * 3, "`own.counts`"),
    ],
)
def test_impossible_states_are_refused(spec: Any, field: str, value: Any, words: str) -> None:
    content = trained(spec)
    loaded(content)  # as it was saved it is fine
    *parts, name = field.split(".")
    held = content["state"]
    for part in parts:
        held = held[part]
    assert name in held
    held[name] = value
    with pytest.raises(zib.SavedStateError, match=words):
        loaded(content)


def test_states_of_the_format_before_are_refused_with_a_way_out() -> None:
    content = trained(mab.UCB1())
    content["format_version"] = 1
    with pytest.raises(zib.SavedStateError, match=r"older zib \(format 1; .*again"):
        loaded(content)
