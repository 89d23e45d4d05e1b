"""Saved bandits with entries that nobody wrote, and a checksum that is right all the same."""

from __future__ import annotations

import copy
import json
from typing import Any, NamedTuple

import numpy as np

import zib
from zib.core import saved
from zib.core.spec import saved_name

NUMBERS = (
    "nan", "inf", "-inf", -1.0, 0.0, 1.0, 0.5, 1e300, -1e300, 1e18, 2.0**53, 2.0**63, 5e-324,
    -0.0, 3.0, 1e-12, 1e100, 100.0, 7.0, -2.0, 1e9,
)  # fmt: skip
OTHERS: tuple[Any, ...] = (
    None, True, "text", "1.5", [], {}, [[1.0]], [None], {"tuple": [1]}, {"float": "inf"}, 10**400,
    {"name": saved_name(zib.mab.ZIUCB), "parameters": {}}, -1, 10**12, 2**63,
)  # fmt: skip


class Forged(NamedTuple):
    """What was changed, and the text of the file."""

    changes: tuple[str, ...]
    text: str

    def __str__(self) -> str:
        return "; ".join(self.changes)


def content_of(bandit: Any) -> dict[str, Any]:
    """Return what is saved about a bandit, as data, without the checksum."""
    content: dict[str, Any] = json.loads(bandit.dumps())
    del content["checksum"]
    return content


def forged(content: dict[str, Any], rng: np.random.Generator) -> Forged:
    """Return a file with one to three entries changed."""
    new = copy.deepcopy(content)
    changes = tuple(_change(new, rng) for _ in range(int(rng.choice([1, 1, 1, 2, 3]))))
    try:
        return Forged(changes, saved.dumps(new))
    except (ValueError, RecursionError):  # it cannot even be written with a checksum
        return Forged(changes, json.dumps(new))


def _change(content: dict[str, Any], rng: np.random.Generator) -> str:
    """Change something in place, mostly in the state, and say what."""
    top = "state" if rng.random() < 0.75 else str(rng.choice(list(content)))
    path: list[Any] = [top]
    held: Any = content
    while isinstance(held[path[-1]], (dict, list)) and held[path[-1]]:
        inside = held[path[-1]]
        is_row = isinstance(inside, list) and not isinstance(inside[0], (dict, list))
        if rng.random() < (0.2 if is_row else 0.08):
            break
        keys = list(inside) if isinstance(inside, dict) else range(len(inside))
        held = inside
        path.append(keys[int(rng.integers(len(keys)))])
    key = path[-1]
    where = ".".join(str(step) for step in path)
    kind = rng.random()
    old = held[key]
    if kind < 0.06 and len(path) > 1:
        del held[key]
        return f"{where} deleted"
    if kind < 0.09 and isinstance(old, dict):
        old["another"] = 1.0
        return f"{where}.another added"
    if kind < 0.16 and isinstance(old, list) and old:
        held[key] = old[:-1] if rng.random() < 0.5 else [*old, old[-1]]
        return f"{where} has another length"
    if kind < 0.18:
        deep: Any = old
        for _ in range(int(rng.choice([1, 3, 100]))):
            deep = [deep]
        held[key] = deep
        return f"{where} nested"
    if isinstance(old, list) and old and isinstance(old[0], float) and kind < 0.7:
        value = NUMBERS[int(rng.integers(len(NUMBERS)))]
        held[key] = [value] * len(old)
    elif kind < 0.8:
        held[key] = value = NUMBERS[int(rng.integers(len(NUMBERS)))]
    else:
        held[key] = value = copy.deepcopy(OTHERS[int(rng.integers(len(OTHERS)))])
    return f"{where} = {str(value)[:60]}"
