"""Which loop plays an environment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zib.sim.contextual import play_contextual
from zib.sim.engine import play
from zib.sim.rounds import play_rounds
from zib.sim.run import Run


def loop_of(environment: Any) -> Callable[..., Run]:
    """Return the loop that plays an environment of this kind."""
    if hasattr(environment, "n_features"):
        return play_contextual
    return play_rounds if getattr(environment, "by_round", False) else play
