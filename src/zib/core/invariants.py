"""What a state that comes from outside must be, by what is declared about its arrays.

Kernels trust their state: they take stored numbers for counts and positions. So whatever is loaded
is checked first, array by array, and then for what arrays say about each other.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from zib.core.state import COMMON, LARGEST_REWARD, ArmState, Array, Part, arrays

_PLAIN = Array(())  # what is not declared must be finite


def problem_in(state: Any, name: str = "") -> str | None:
    """Return what a state cannot be, in words that name the array, or None.

    A state is made of parts, of arrays and of tuples with names of both; what is declared about an
    array of a part is checked, and any other array must be finite.
    """
    fading = bool(getattr(getattr(state, "around", None), "counts_fade", False))
    problem = _problem_within(state, name, fading)
    if problem is None and isinstance(state, ArmState):
        problem = _conflict_of_arms(state)
    return problem or _conflict_within(state, state, name)


def _problem_within(part: Any, name: str, fading: bool) -> str | None:
    declared = COMMON if isinstance(part, ArmState) else getattr(part, "declared", {})
    for key, held in part._asdict().items():
        if isinstance(held, tuple):
            problem = _problem_within(held, f"{name}{key}.", fading)
        else:
            problem = _problem_with(f"{name}{key}", declared.get(key, _PLAIN), held, part, fading)
        if problem is not None:
            return problem
    return None


def _conflict_within(part: Any, state: Any, name: str) -> str | None:
    problem = part.conflict(state) if isinstance(part, Part) else None
    if problem is not None:
        return f"in `{name.rstrip('.')}`, {problem}"
    for key, held in part._asdict().items():
        if isinstance(held, tuple):
            problem = _conflict_within(held, state, f"{name}{key}.")
            if problem is not None:
                return problem
    return None


def _problem_with(name: str, declaration: Array, array: Any, part: Any, fading: bool) -> str | None:
    if declaration.is_scratch or array.dtype.kind != "f":
        return None
    if np.isnan(array).any() or (declaration.finite and np.isinf(array).any()):
        return f"`{name}` holds a value that is not a finite number"
    if declaration.is_arm:
        return None  # which needs the number of arms
    if declaration.inside is not None:
        # of several states in one, every one has its own row
        length = getattr(part, declaration.inside).shape[array.ndim - 1]
        if not _is_whole(array, 0, length):
            return f"`{name}` must be a position in [0, {length}]; got {array.tolist()}"
        return None
    if (array < declaration.least).any():
        return f"`{name}` holds {array.min():g}, less than {declaration.least:g}"
    if (array > declaration.most).any():
        return f"`{name}` holds {array.max():g}, more than {declaration.most:g}"
    if declaration.whole and not (fading and declaration.is_sum) and not _is_whole(array):
        return f"`{name}` must hold whole numbers; got {array.tolist()}"
    return None


def _conflict_of_arms(state: ArmState) -> str | None:
    n_arms = state.pulls.size
    for key, declaration, array in arrays(state):
        if declaration.is_arm and not _is_whole(array, -1, n_arms - 1):
            return f"`{key}` must hold numbers of {n_arms} arms or -1; got {array.tolist()}"
    if (state.nonzero > state.pulls).any():
        return "`nonzero` holds more non-zero rewards than `pulls` has rewards"
    if not getattr(state.around, "counts_fade", False):
        for key in ("pulls", "nonzero", "clock"):
            if not _is_whole(getattr(state, key)):
                return f"`{key}` must hold whole numbers; got {getattr(state, key).tolist()}"
    # a mean is within the bounds of a reward, and so is the distance of a reward from it
    most = LARGEST_REWARD * (1.0 + 1e-9)
    if (np.abs(state.total) > most * state.nonzero).any():
        return f"`total` holds a sum of more than `nonzero` rewards of {LARGEST_REWARD:g}"
    if (state.spread > (2.0 * most) ** 2 * state.nonzero).any():
        return f"`spread` holds more than `nonzero` rewards of {LARGEST_REWARD:g} have"
    horizon, log_horizon = state.horizon[0], state.log_horizon[0]
    if abs(log_horizon - math.log(horizon)) > 1e-9 * log_horizon:
        return f"`log_horizon` must be the logarithm of {horizon:g}; got {log_horizon:g}"
    return None


def _is_whole(array: Any, low: float = -math.inf, high: float = math.inf) -> bool:
    return bool(((array == np.floor(array)) & (low <= array) & (array <= high)).all())
