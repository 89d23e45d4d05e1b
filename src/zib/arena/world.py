"""`World`: one place to compete in, and the kinds there are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

KINDS: dict[str, str] = {
    "plain": "2 to 20 arms of one kind of magnitudes",
    "many": "50 to 500 arms",
    "odd": "one arm unlike the others, arms of different laws, losses",
    "drifting": "arms that change with the round",
    "batched": "decisions made in batches, before any of their rewards is known",
    "contextual": "rounds with features",
    "resampled": "rewards drawn again from logs of experiments",
}
"""The kinds of worlds, in words."""


@dataclass(frozen=True, kw_only=True)
class World:
    """Where policies play, and for how long.

    Attributes
    ----------
    name
        What tells it from others.
    kind
        One of `zib.arena.KINDS`.
    about
        What is special about it, in words.
    env
        The environment, or a generator that is redrawn for every replication.
    horizon
        Rounds to play.
    right
        Features that matter (columns of the magnitude and of the occurrence), where rounds have
        features; what a policy may be told.
    """

    name: str
    kind: str
    about: str
    env: Any
    horizon: int
    right: tuple[tuple[int, ...], tuple[int, ...]] | None = None

    @property
    def contextual(self) -> bool:
        """Whether rounds have features."""
        return hasattr(self.env, "n_features")

    @property
    def n_arms(self) -> int:
        """Number of arms."""
        return int(self.env.n_arms)

    def __str__(self) -> str:
        return f"{self.name}: {self.about}; K = {self.n_arms}, T = {self.horizon}"
