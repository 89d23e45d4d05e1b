"""Decisions made in batches (`zib.env.Batched`), as a policy around the policy that plays.

It is told every reward at once and learns them when the batch is complete. So the loop of the
environment inside plays it, and there is no other. Until then the state of the policy inside is a
*view*: what was learned, with the decisions of this batch counted as `kernel.count_as_usual` does.
What was learned is put aside meanwhile.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from zib.core import kernel
from zib.core.spec import Spec, converted, derived, label_of, whole
from zib.core.state import in_one_piece
from zib.env.batched import LARGEST_BATCH
from zib.sim.loop import FURTHER, Replication, Run, player_of


def _policy(spec: Any) -> Any:
    kernel.lookup(spec)
    return spec


class InBatches(Spec):
    """Play `spec` where nothing is learned before `size` decisions are made."""

    spec: Any = converted(_policy, allowed="policy", kw_only=False)
    size: int = whole(low=1, high=LARGEST_BATCH)
    spread: bool = derived(lambda given: kernel.spreads(given["spec"]))

    @property
    def label(self) -> str:
        """The name of the policy inside, and how many decisions it makes at a time."""
        return f"{label_of(self.spec)}, batches of {self.size}"

    @property
    def needs_true_sizes(self) -> bool:
        """Whether the policy inside asks for them."""
        return bool(getattr(self.spec, "needs_true_sizes", False))

    @property
    def n_categories(self) -> int:
        """How many kinds of rewards the policy inside is told."""
        return int(getattr(self.spec, "n_categories", 0))

    @property
    def interpreted(self) -> bool:
        """Whether only the interpreter can run the policy inside."""
        return kernel.is_interpreted(self.spec)


class Held(NamedTuple):
    """The state of the policy inside, and the decisions whose rewards it has not learned."""

    pulls: NDArray[np.float64]  # of the view
    seen: Any  # what decisions are made from
    memory: NDArray[np.uint64]  # where the view lies
    learned: NDArray[np.uint64]  # the same, before the batch
    arm: NDArray[np.int64]
    reward: NDArray[np.float64]
    kind: NDArray[np.int64]
    held: NDArray[np.int64]  # [0]: how many decisions

    @property
    def own(self) -> Any:
        """What the policy inside keeps."""
        return self.seen.own


def _init(spec: InBatches, n_arms: int) -> Held:
    view, memory = in_one_piece(kernel.init(spec.spec, n_arms))
    return Held(
        pulls=view.pulls,
        seen=view,
        memory=memory,
        learned=np.zeros_like(memory),
        arm=np.zeros(spec.size, dtype=np.int64),
        reward=np.zeros(spec.size),
        kind=np.zeros(spec.size, dtype=np.int64),
        held=np.zeros(1, dtype=np.int64),
    )


def _scores(spec: Any, state: Any, rng: Any, out: Any) -> None:
    kernel.scores(spec.spec, state.seen, rng, out)


def _indices(spec: Any, state: Any, rng: Any, out: Any) -> None:
    kernel.indices(spec.spec, state.seen, rng, out)


def _learn(spec: Any, state: Any, arm: int, reward: float, category: int) -> None:
    held = state.held[0]
    if held == 0:
        for i in range(state.memory.size):
            state.learned[i] = state.memory[i]
    state.arm[held] = arm
    state.reward[held] = reward
    state.kind[held] = category
    held += 1
    if held < spec.size:
        kernel.count_as_usual(spec.spec, state.seen, arm, spec.spread)
        state.held[0] = held
        return
    for i in range(state.memory.size):
        state.memory[i] = state.learned[i]
    for i in range(held):
        kernel.learn(spec.spec, state.seen, state.arm[i], state.reward[i], state.kind[i])
    state.held[0] = 0


def _update(spec: Any, state: Any, arm: int, reward: float) -> None:
    _learn(spec, state, arm, reward, 0)


def _imagine(spec: Any, state: Any, arm: int) -> None:
    kernel.imagine(spec.spec, state.seen, arm)


kernel.register(
    InBatches,
    init=_init,
    scores=_scores,
    update=_update,
    learn=_learn,
    indices=_indices,
    imagine=_imagine,
    randomized=True,
)


def by_batch(one: Replication) -> Run:
    """Play a replication; batches of one are no batches."""
    inside, size = one.instance.env, one.instance.size
    spec = one.spec if size == 1 else InBatches(one.spec, size=size)
    return player_of(inside)(one._replace(spec=spec, instance=inside))


FURTHER["batched"] = by_batch
