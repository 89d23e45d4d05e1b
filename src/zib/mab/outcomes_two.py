"""Two outcomes, zero and not zero: the kernels of `ZIKLUCB` and `ZIPosterior` themselves.

That a spec is of this kind is part of its type. For others the compiler is given kernels that do
nothing, so that it need not compile what is never called.
"""

from __future__ import annotations

from typing import Any

from numba.extending import overload

from zib.core.kernel import CALLED
from zib.mab.posterior import flat_scores as zi_draws
from zib.mab.zi_kl import _indices as zi_indices
from zib.mab.zi_kl import _level as level_at
from zib.mab.zi_kl import _refresh as zi_refresh
from zib.mab.zi_kl import _scores as zi_scores
from zib.mab.zi_kl import _update as zi_update

__all__ = ["level_at", "two_draws", "two_indices", "two_refresh", "two_scores", "two_update"]


def two_scores(spec: Any, state: Any, rng: Any, out: Any) -> None:
    """Write the scores of `ZIKLUCB`."""
    zi_scores(spec, state, rng, out)


def two_indices(spec: Any, state: Any, rng: Any, out: Any) -> None:
    """Write the indices of `ZIKLUCB`."""
    zi_indices(spec, state, rng, out)


def two_draws(spec: Any, state: Any, rng: Any, out: Any) -> None:
    """Write the scores of `ZIPosterior`."""
    zi_draws(spec, state, rng, out)


def two_update(spec: Any, state: Any, arm: int, reward: float) -> None:
    """Learn as `ZIKLUCB` does."""
    zi_update(spec, state, arm, reward)


def two_refresh(spec: Any, state: Any, arm: int) -> None:
    """Recompute what `ZIKLUCB` keeps."""
    zi_refresh(spec, state, arm)


def _no_scores(spec: Any, state: Any, rng: Any, out: Any) -> None:
    """Never called."""


def _no_update(spec: Any, state: Any, arm: int, reward: float) -> None:
    """Never called."""


def _no_refresh(spec: Any, state: Any, arm: int) -> None:
    """Never called."""


def _has_two(spec: Any) -> bool:
    return len(spec.types[spec.fields.index("cuts")]) == 2


@overload(two_scores, strict=False, jit_options=CALLED)
def _two_scores(spec, state, rng, out):  # type: ignore[no-untyped-def]
    return zi_scores if _has_two(spec) else _no_scores


@overload(two_indices, strict=False, jit_options=CALLED)
def _two_indices(spec, state, rng, out):  # type: ignore[no-untyped-def]
    return zi_indices if _has_two(spec) else _no_scores


@overload(two_draws, strict=False, jit_options=CALLED)
def _two_draws(spec, state, rng, out):  # type: ignore[no-untyped-def]
    return zi_draws if _has_two(spec) else _no_scores


@overload(two_update, strict=False, jit_options=CALLED)
def _two_update(spec, state, arm, reward):  # type: ignore[no-untyped-def]
    return zi_update if _has_two(spec) else _no_update


@overload(two_refresh, strict=False, jit_options=CALLED)
def _two_refresh(spec, state, arm):  # type: ignore[no-untyped-def]
    return zi_refresh if _has_two(spec) else _no_refresh
