"""Worlds whose rounds have features, and policies that see only some of them."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from zib.contextual.links import inverse
from zib.core.validate import InvalidParameterError
from zib.env import DisjointGLM
from zib.env.contextual import LINKS, ContextBlock, Instance, LinkName
from zib.env.registry import ContextualEnvironment, instance_of, sequence

Part = Literal["both", "magnitude", "occurrence", "none"]
Columns = tuple[tuple[int, ...], tuple[int, ...]]


class Seen(Instance, ContextualEnvironment):
    """A contextual environment of which policies see some features only.

    Rounds and rewards are those of the environment inside, so policies that see less can be
    compared with policies that see everything, replication by replication.

    Parameters
    ----------
    env
        The environment.
    magnitude, occurrence
        Columns of the features of either part, counted from 0.

    Examples
    --------
    >>> inside = DisjointGLM(beta=[[1, 0.5, 0], [2, 0.1, 0]], theta=[[-1, 1, 0], [-1, 0, 0]])
    >>> Seen(env=inside, magnitude=[0, 1], occurrence=[0]).n_features
    (2, 1)
    """

    env: Any = instance_of(ContextualEnvironment, "a contextual environment")
    magnitude: Any = sequence(0.0)
    occurrence: Any = sequence(0.0)

    def check(self) -> None:
        """Raise unless these columns exist; keep them as whole numbers."""
        for name, columns, most in zip(
            ("magnitude", "occurrence"),
            (self.magnitude, self.occurrence),
            self.env.n_features,
        ):
            whole = tuple(int(column) for column in columns)
            if not whole or whole != columns or max(whole) >= most:
                raise InvalidParameterError(
                    f"`{name}` must hold whole numbers in [0, {most - 1}]; got {columns}"
                )
            self._set(**{name: whole})

    @property
    def n_arms(self) -> int:
        """Number of arms."""
        return int(self.env.n_arms)

    @property
    def n_actions(self) -> int:
        """Number of actions in each round."""
        return int(self.env.n_actions)

    @property
    def n_features(self) -> tuple[int, int]:
        """Number of features that are seen."""
        return len(self.magnitude), len(self.occurrence)

    def instance(self, rng: np.random.Generator) -> Any:
        """Return the same view of an instance."""
        inside = self.env.instance(rng)
        if inside is self.env:
            return self
        return Seen(env=inside, magnitude=self.magnitude, occurrence=self.occurrence)

    def _draw(self, rng: np.random.Generator, block: ContextBlock) -> None:
        whole = self.env.block(rng, block.count.size)
        block.arms[:] = whole.arms
        block.z[:] = whole.z[:, list(self.magnitude)]
        block.w[:] = whole.w[:, list(self.occurrence)]
        block.reward[:] = whole.reward
        block.mean[:] = whole.mean
        block.count[:] = whole.count


def with_features(
    rng: np.random.Generator,
    n_arms: int,
    *,
    informative: int,
    noise: int,
    effect: float,
    part: Part = "both",
    one_arm: bool = False,
    probs: tuple[float, float] = (0.05, 0.3),
    magnitudes: tuple[float, float] = (1.0, 3.0),
    sigma: float = 0.5,
    link: LinkName = "probit",
) -> tuple[DisjointGLM, Columns]:
    """Return arms with coefficients of their own, and which features matter.

    The first feature is the constant, then come `informative` ones and `noise` ones that have
    nothing to do with any reward.

    Parameters
    ----------
    rng
        Draws everything.
    n_arms
        Number of arms.
    informative, noise
        How many features matter, and how many do not.
    effect
        Norm of the coefficients of the features that matter, per arm and part.
    part
        What depends on them: the magnitude, the occurrence, both or none.
    one_arm
        Whether they matter for one arm only, the others being always the same.
    probs, magnitudes
        Where p and magnitude lie in the average context.
    sigma, link
        As in `zib.env.ContextualGLM`.
    """
    tables = []
    for mine in ("magnitude", "occurrence"):
        slopes = rng.standard_normal((n_arms, informative))
        norm = np.linalg.norm(slopes, axis=1, keepdims=True)
        slopes *= effect / np.where(norm > 0.0, norm, 1.0)
        if part not in ("both", mine):
            slopes[:] = 0.0
        if one_arm:
            slopes[1:] = 0.0
        tables.append(np.hstack([slopes, np.zeros((n_arms, noise))]))
    size = rng.uniform(*magnitudes, n_arms)
    prob = [float(inverse(LINKS[link], float(p))) for p in rng.uniform(*probs, n_arms)]
    beta = np.column_stack([size, tables[0]])
    theta = np.column_stack([np.array(prob), tables[1]])
    order = rng.permutation(n_arms)
    env = DisjointGLM(beta[order], theta[order], link=link, sigma=sigma)
    matter = tuple(range(1 + informative))
    right = (
        matter if part in ("both", "magnitude") else (0,),
        matter if part in ("both", "occurrence") else (0,),
    )
    return env, right
