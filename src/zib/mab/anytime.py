"""The doubling trick: any policy made for a fixed horizon, without knowing the horizon."""

from __future__ import annotations

from typing import Any, NamedTuple

from zib.core import kernel
from zib.core import validate as check
from zib.core.kernel import lookup, register
from zib.core.spec import Spec, label_of
from zib.stats.arms import CLOCK, HORIZON, ArmState, set_horizon


class _AnytimeFields(NamedTuple):
    spec: Any


class Anytime(Spec, _AnytimeFields):
    """Run `spec` for its horizon T, then forget everything and run it for 2T, 4T, …

    Keeps the regret rate of a fixed-horizon policy up to a constant. What was learned is thrown
    away at each restart, as the theory asks; `Bandit.means` then describes the present stretch.

    Examples
    --------
    >>> import zib
    >>> zib.mab.Anytime(spec=zib.mab.ZITS(horizon=1000, sigma=1.0)).label
    'ZI-TS, doubling'
    """

    __slots__ = ()

    def __new__(cls, spec: Any) -> Anytime:
        if not hasattr(spec, "horizon"):
            raise check.InvalidParameterError(
                f"`spec` must be a policy with a horizon (ZIUCB, ZITS, UCB, MOTS, …); got {spec!r}"
            )
        lookup(spec)
        return super().__new__(cls, spec)

    @property
    def label(self) -> str:
        """The name of the policy inside, marked."""
        return f"{label_of(self.spec)}, doubling"

    @property
    def needs_true_sizes(self) -> bool:
        """Whether the policy inside is one that only a simulation can run."""
        return bool(getattr(self.spec, "needs_true_sizes", False))

    @property
    def reward_range(self) -> tuple[float, float]:
        """That of the policy inside."""
        return self.spec.reward_range  # type: ignore[no-any-return]


def _init(spec: Anytime, n_arms: int) -> ArmState:
    return lookup(spec.spec).init(spec.spec, n_arms)  # type: ignore[no-any-return]


def _scores(spec: Any, state: Any, rng: Any, out: Any) -> None:
    kernel.scores(spec.spec, state, rng, out)


def _update(spec: Any, state: Any, arm: int, reward: float) -> None:
    kernel.update(spec.spec, state, arm, reward)
    if state.shared[CLOCK] >= state.shared[HORIZON]:
        state.pulls[:] = 0.0
        state.nonzero[:] = 0.0
        state.total[:] = 0.0
        state.spread[:] = 0.0
        state.shared[CLOCK] = 0.0
        set_horizon(state, 2.0 * state.shared[HORIZON])
        for k in range(state.pulls.size):
            kernel.refresh(spec.spec, state, k)


def _refresh(spec: Any, state: Any, arm: int) -> None:
    kernel.refresh(spec.spec, state, arm)


register(Anytime, init=_init, scores=_scores, update=_update, refresh=_refresh, randomized=True)
