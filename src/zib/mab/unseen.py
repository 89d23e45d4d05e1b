"""Arms that have been pulled but never paid.

The data bound their probability of paying and say nothing about how much they pay. By default
(`"pooled"`) such an arm borrows the most optimistic magnitude of the arms that have paid; while no
arm has paid, all of them are equally promising. A number fixes the magnitude instead (Algorithm 1
as printed uses 1, which starves arms that pay more than that). Waiting for a first success of every
arm would cost about 1/p pulls each.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from zib.core import validate as check
from zib.core.kernel import jitable
from zib.theory.products import signed_product


def resolve_unseen(unseen: object) -> float:
    """Return NaN for ``"pooled"``, else the number."""
    if isinstance(unseen, str) and unseen == "pooled":
        return math.nan
    if isinstance(unseen, str):
        raise check.InvalidParameterError(f"`unseen` must be 'pooled' or a number; got {unseen!r}")
    return check.real("unseen", unseen)


@jitable
def complete_unseen(state: Any, unseen: float, top: float, out: Any) -> None:
    """Turn the probability bound left in `out` for arms that never paid into an index.

    `top` is the largest upper bound on a magnitude, −inf while no arm has paid.
    """
    if not math.isnan(unseen):
        top = unseen
    for k in range(out.size):
        if state.nonzero[k] == 0.0 and state.pulls[k] > 0.0:
            if top == -np.inf:
                out[k] = np.inf
            else:
                out[k] = signed_product(top, 0.0, out[k])


@jitable
def sample_unseen(
    state: Any, alpha: float, beta: float, unseen: float, top: float, rng: Any, out: Any
) -> None:
    """Write a sampled score for arms that never paid; `top` is the largest sampled magnitude."""
    if not math.isnan(unseen):
        top = unseen
    elif top == -np.inf:
        top = 1.0  # nobody has paid: compare the probabilities alone
    for k in range(out.size):
        if state.nonzero[k] == 0.0:
            if state.pulls[k] == 0.0:
                out[k] = np.inf
            else:
                out[k] = top * rng.beta(alpha, beta + state.pulls[k])
