"""Categories that come with rewards: 1, 2, … or nothing, for which the reward must be zero."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from zib.core import validate
from zib.core.validate import InvalidParameterError


def checked_category(n: int, category: object, reward: float, name: str = "category") -> int:
    """Return a category in 1, …, n, or 0 for None where nothing happened, or raise."""
    _need_categories(n, category, name)
    found = 0 if category is None else validate.integer(name, category, 0, n)
    if found == 0 and reward != 0.0:
        raise InvalidParameterError(
            f"`{name}` must lie in [1, {n}] where a reward was paid; got {validate.shown(category)}"
        )
    return found


def checked_categories(
    n: int, categories: object, rewards: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Return the categories of a batch, 0 for each if None, or raise."""
    _need_categories(n, categories, "categories")
    if categories is None:
        given = np.zeros(rewards.shape)
    else:
        given = validate.numbers("categories", categories)
    if given.shape != rewards.shape:
        raise InvalidParameterError(
            f"`categories` must be numbers, one per reward, shape {rewards.shape}; "
            f"got shape {given.shape}"
        )
    wrong = (given != np.floor(given)) | (given < (rewards != 0.0)) | (given > n)
    if wrong.any():
        first = int(np.argmax(wrong))
        value = given[first].item()
        whole: Any = int(value) if value.is_integer() else value
        shown = None if categories is None else whole
        checked_category(n, shown, float(rewards[first]), "categories")  # raises
    return given.astype(np.int64)


def _need_categories(n: int, given: object, name: str) -> None:
    if n == 0:
        raise InvalidParameterError(
            f"`{name}` must be left out but for policies with categories, such as "
            f"mab.OutcomesKLUCB or contextual.ByCategory; got {validate.shown(given)}"
        )
