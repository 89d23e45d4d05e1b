"""The model of a bandit that has learned nothing: all arms alike."""

from __future__ import annotations

from zib.live.engine import Drawn, fraction


class EvenModel:
    """Draws every eligible arm with the same probability."""

    def __init__(self, name: str, version: int = 0) -> None:
        self.name = name
        self.version = version

    def draw(self, key: str, eligible: tuple[int, ...], context: str | None) -> Drawn:
        """Return an arm and its probability."""
        u = fraction(f"{self.name}\0{self.version}\0{key}")
        return Drawn(eligible[int(u * len(eligible))], 1.0 / len(eligible))
