"""Rewards through several outcomes: which outcome a reward is, and what is kept about each.

A policy sees only the reward. `edges` cut the non-zero rewards into bins; `values` lists all
rewards there are. Either way zero is an outcome of its own. Per arm and outcome the count, the mean
and the centred sum of squares stand in `cache`; pooled over arms they stand in `shared`.

With `edges=()` there are two outcomes, zero and not zero: plain zero inflation. The policies then
run the kernels of `ZIKLUCB` and `ZIPosterior` themselves.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import numpy as np

from zib.core import validate as check
from zib.core.kernel import jitable
from zib.core.spec import Spec
from zib.mab.families import FIRST_CACHE, GAUSSIAN, N_SHARED, Law, law_of, learn, pool
from zib.stats.arms import FIRST_FREE, ArmState, new_state, observe

TABLE = FIRST_CACHE + 2  # counts, then means, then centred sums of squares, one per outcome each
SCALES = FIRST_FREE + N_SHARED + 1  # standard deviations in force, then three sums over arms
MOST, SHORT = 64, 8
Floats = tuple[float, ...]


class OutcomeSpec(Spec):
    """What the specs have in common; `cuts`, `starts` and `scales` have one entry per outcome."""

    __slots__ = ()

    def parameters(self) -> dict[str, Any]:
        """Return the keyword arguments that rebuild this spec."""
        fields = super().parameters()
        m = fields.pop("m")
        cuts, means, scales = (fields.pop(name)[:m] for name in ("cuts", "starts", "scales"))
        for name in ("family", "sigma", "shape", "law"):
            del fields[name]
        if fields.pop("known"):
            first: dict[str, Any] = {"edges": None, "values": means, "sigma": None}
        else:
            sigma = scales[1:]
            if math.isnan(sigma[0]):
                sigma = None
            elif len(set(sigma)) == 1:
                sigma = sigma[0]
            first = {"edges": cuts[1:-1], "values": None, "sigma": sigma}
        return first | fields

    @property
    def n_outcomes(self) -> int:
        """How many outcomes there are, zero among them."""
        return int(self.m)  # type: ignore[attr-defined]

    @property
    def reward_range(self) -> tuple[float, float]:
        """Between which values rewards lie."""
        values = self.reward_values
        return (-math.inf, math.inf) if values is None else (values[0], values[-1])

    @property
    def reward_values(self) -> tuple[float, ...] | None:
        """The rewards there are, where they were listed."""
        values: tuple[float, ...] | None = self.parameters()["values"]
        return values

    @property
    def additive(self) -> bool:
        """Whether states of two workers can be added; only what two outcomes need is."""
        return is_plain(self)

    def outcome_of(self, reward: float) -> int:
        """Return the position of the outcome this reward is.

        With `edges` zero comes first, then the bins from below; `values` stand in ascending order,
        and the one nearest to the reward counts.
        """
        return int(outcome_of(self, check.real("reward", reward)))


def check_outcomes(
    edges: object, values: object, sigma: object
) -> tuple[int, float, float, Law, bool, int, Floats, Floats, Floats]:
    """Return the fields family, sigma, shape, law, known, cuts, starts and scales, or raise."""
    if (edges is None) == (values is None):
        raise check.InvalidParameterError(
            f"give exactly one of `edges` and `values`; got edges={edges!r}, values={values!r}"
        )
    if values is not None:
        if sigma is not None:
            raise check.InvalidParameterError(
                f"`sigma` belongs to `edges`; rewards that are listed have none; got {sigma!r}"
            )
        array = check.vector("values", _listed("values", values), -1e100, 1e100)
        kept = sorted({0.0, *(array + 0.0).tolist()})
        if len(kept) < 2 or len(kept) > MOST:
            raise check.InvalidParameterError(
                f"`values` must hold 1 to {MOST - 1} different values besides 0; got {values!r}"
            )
        cuts = [0.5 * (a + b) for a, b in pairwise(kept)] + [math.inf]
        law = law_of(GAUSSIAN, math.nan)
        return (GAUSSIAN, math.nan, 1.0, law, True, *_padded(cuts, kept, [0.0] * len(kept)))
    given = _listed("edges", edges)
    array = check.vector("edges", given) if given else np.zeros(0)
    if (np.diff(array) <= 0).any() or array.size > MOST - 2:
        raise check.InvalidParameterError(
            f"`edges` must be at most {MOST - 2} increasing numbers; got {edges!r}"
        )
    n_bins = array.size + 1
    scales = _check_sigma(sigma, n_bins)
    return (
        GAUSSIAN,
        scales[0],
        1.0,
        law_of(GAUSSIAN, scales[0] if n_bins == 1 else math.nan),
        False,
        *_padded(
            [-math.inf, *(array + 0.0).tolist(), math.inf],
            [0.0, *[-math.inf] * n_bins],
            [0.0, *scales],
        ),
    )


def _padded(
    cuts: list[float], starts: list[float], scales: list[float]
) -> tuple[int, Floats, Floats, Floats]:
    """Return the number of outcomes and the three tuples, brought to one of three lengths.

    The length is part of the type, so one compilation serves all specs of the same length. Length 2
    is kept for plain zero inflation.
    """
    m = len(cuts)
    width = SHORT if m <= SHORT else MOST
    if m == 2 and cuts[0] == -math.inf:
        width = 2
    rest = (0.0,) * (width - m)
    return m, (*cuts, *rest), (*starts, *rest), (*scales, *rest)


def _check_sigma(sigma: object, n_bins: int) -> list[float]:
    if sigma is None:
        return [math.nan] * n_bins
    if not isinstance(sigma, (list, tuple, np.ndarray)):
        return [check.real("sigma", sigma, low=0, closed="neither")] * n_bins
    scales = check.vector("sigma", sigma, 0.0, closed="neither")
    if scales.size != n_bins:
        raise check.InvalidParameterError(
            f"`sigma` must be one number or one per bin ({n_bins}); got {sigma!r}"
        )
    return [float(s) for s in scales]


def _listed(name: str, value: object) -> list[Any]:
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise check.InvalidParameterError(f"`{name}` must be a sequence of numbers; got {value!r}")
    return list(value)


def new_outcome_state(spec: Any, n_arms: int) -> ArmState:
    """Return the state of `n_arms` untried arms."""
    m = spec.m
    state = new_state(n_arms, n_cache=TABLE + 3 * m, n_shared=N_SHARED + 1 + 4 * m)
    state.cache[:, TABLE + m : TABLE + 2 * m] = spec.starts[:m]
    state.shared[SCALES : SCALES + m] = np.nan_to_num(spec.scales[:m])
    return state


@jitable
def is_plain(spec: Any) -> bool:
    """Whether the outcomes are zero and not zero, nothing else."""
    return len(spec.cuts) == 2


@jitable
def outcome_of(spec: Any, reward: float) -> int:
    """Return the outcome of a reward: its bin, or the nearest value."""
    if not spec.known and reward == 0.0:
        return 0
    j = 0
    while j < spec.m - 1 and reward > spec.cuts[j]:
        j += 1
    return j


@jitable
def learn_outcome(spec: Any, state: Any, arm: int, reward: float) -> None:
    """Add one reward to the statistics of an arm and of its outcome."""
    if is_plain(spec):
        learn(spec, state, arm, reward)
        return
    m = spec.m
    j = outcome_of(spec, reward)
    if spec.known:
        reward = spec.starts[j]
    observe(state, arm, reward)
    count = state.cache[arm, TABLE + j] + 1.0
    state.cache[arm, TABLE + j] = count
    state.shared[SCALES + 3 * m + j] += 1.0
    if spec.known or j == 0:
        return
    if count == 1.0:
        state.cache[arm, TABLE + m + j] = reward
        return
    apart = reward - state.cache[arm, TABLE + m + j]
    mean = state.cache[arm, TABLE + m + j] + apart / count
    more = apart * (reward - mean)
    state.cache[arm, TABLE + m + j] = mean
    state.cache[arm, TABLE + 2 * m + j] += more
    state.shared[SCALES + m + j] += more
    state.shared[SCALES + 2 * m + j] += 1.0
    _set_scale(spec, state, j)


@jitable
def _set_scale(spec: Any, state: Any, j: int) -> None:
    """Put the pooled standard deviation of an outcome in force where none was given."""
    m = spec.m
    if math.isnan(spec.scales[j]):
        freedom = state.shared[SCALES + 2 * m + j]
        spread = max(state.shared[SCALES + m + j], 0.0)
        state.shared[SCALES + j] = math.sqrt(spread / freedom) if freedom > 0.0 else 0.0


@jitable
def pool_outcomes(spec: Any, state: Any) -> None:
    """Compute what is pooled anew from the statistics of all arms."""
    if is_plain(spec):
        pool(spec, state)
        return
    m = spec.m
    for j in range(m):
        spread = 0.0
        freedom = 0.0
        seen = 0.0
        for k in range(state.pulls.size):
            count = state.cache[k, TABLE + j]
            seen += count
            if count > 1.0 and j > 0:
                spread += state.cache[k, TABLE + 2 * m + j]
                freedom += count - 1.0
        state.shared[SCALES + m + j] = spread
        state.shared[SCALES + 2 * m + j] = freedom
        state.shared[SCALES + 3 * m + j] = seen
        _set_scale(spec, state, j)


@jitable
def has_paid(state: Any) -> bool:
    """Whether any arm has paid anything."""
    for k in range(state.pulls.size):
        if state.nonzero[k] > 0.0:
            return True
    return False


@jitable
def lacks_outcome(spec: Any, state: Any, arm: int) -> bool:
    """Whether an outcome of unknown value was never seen for this arm."""
    if spec.known:
        return False
    for j in range(1, spec.m):
        if state.cache[arm, TABLE + j] == 0.0:
            return True
    return False
