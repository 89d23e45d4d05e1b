"""Checks that all kinds of specs share."""

from __future__ import annotations

import math
import pickle
from typing import Any

from zib.core.spec import parameters_of


def allowed(spec: Any, reward: float) -> float:
    """Return the reward nearest to this one that the policy is meant for."""
    values = getattr(spec, "reward_values", None)
    if values is not None:
        return float(min(values, key=lambda value: abs(value - reward)))
    low, high = getattr(spec, "reward_range", (-math.inf, math.inf))
    return min(max(reward, low), high)


def check_spec_is_data(spec: Any) -> None:
    """Check that a spec is rebuilt by its parameters, pickles and hashes."""
    rebuilt = type(spec)(**parameters_of(spec))
    assert rebuilt == spec, f"{spec!r} is not rebuilt by its own parameters"
    assert pickle.loads(pickle.dumps(spec)) == spec, f"{spec!r} does not survive pickling"
    hash(spec)
