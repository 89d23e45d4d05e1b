"""What environments around an environment have in common: its arms and its rewards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np

from zib.core import validate as check
from zib.core.validate import InvalidParameterError
from zib.env.registry import Array, Categories, Environment, Kind, frozen


def multi_armed(name: str, value: Any) -> Any:
    """Return an environment that another can stand around, or raise."""
    lacks = [each for each in ("n_arms", "instance") if not hasattr(value, each)]
    other = isinstance(value, Around) or any(
        getattr(value, each, False) for each in ("n_features", "by_round")
    )
    if lacks or other or isinstance(value, type):
        raise InvalidParameterError(
            f"`{name}` must be a multi-armed environment whose arms do not change, such as "
            f"GaussianMAB or RandomMAB; got {check.shown(value)}"
        )
    return value


class Around(Environment):
    """Base of the environments that change when rewards are seen, not which they are."""

    if TYPE_CHECKING:
        # Declared by the environments around: what has parameters can be made by its name.
        @property
        def env(self) -> Any:
            """The environment inside."""

    @property
    def n_arms(self) -> int:
        """Number of arms, those that come later included."""
        return int(self.env.n_arms)

    def instance(self, rng: np.random.Generator) -> Self:
        """Draw the environment inside, if it is random."""
        drawn = self.env.instance(rng)
        return self if drawn is self.env else self._replace(env=drawn)

    def sample(self, arm: int, rng: np.random.Generator, n: int) -> Array:
        """Return the next `n` rewards of `arm` in the environment inside."""
        drawn: Array = self.env.sample(arm, rng, n)
        return drawn

    def sample_categories(
        self, arm: int, rng: np.random.Generator, n: int
    ) -> tuple[Array, Categories]:
        """Return the rewards of `sample`, and of which kind each is."""
        drawn: tuple[Array, Categories] = self.env.sample_categories(arm, rng, n)
        return drawn

    @property
    def n_categories(self) -> int:
        """How many kinds of rewards there are besides nothing, in the arm that has most."""
        return int(self.env.n_categories)

    @property
    def arm_means(self) -> Array:
        """Mean reward of each arm."""
        return frozen(self.env.arm_means)

    @property
    def variances(self) -> Array:
        """Variance of each arm's reward in the environment inside."""
        return frozen(self.env.variances)

    @property
    def inflated(self) -> float:
        """The value paid when nothing happens."""
        return float(getattr(self.env, "inflated", 0.0))

    def component_size(self, kind: Kind = "subgaussian") -> float:
        """Return one size that is valid for the non-zero part of every arm."""
        return float(self.env.component_size(kind))

    def reward_sizes(self, kind: Kind = "subgaussian") -> Array:
        """Return the size of each arm's reward."""
        return frozen(self.env.reward_sizes(kind))
