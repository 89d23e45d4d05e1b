"""Rewards through several outcomes: their statistics, and the joint likelihood-ratio index.

Which outcome a reward is, a policy is told (`categories`) or sees from the reward alone: `edges`
cut the non-zero rewards into bins, `values` lists all rewards there are. In any case nothing, the
reward zero, is an outcome of its own. Count, mean and centred sum of squares are kept per arm and
outcome; the spread of an outcome is pooled over arms.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from zib.core import validate
from zib.core.kernel import jitable, one_more, register
from zib.core.spec import Spec, argument, derived, number_or, optional, real
from zib.core.state import MOST_ROUNDS, ArmState, Floats, Part, new_state, per_arm, table
from zib.core.validate import InvalidParameterError
from zib.mab.kl import (
    LAZY,
    KeptUpper,
    Lazy,
    has_expired,
    largest,
    last_round,
    level_at,
    settle,
)
from zib.stats.arms import observe
from zib.theory.outcomes import outcome_upper

# -------------------------------------------------------------------------------- what outcomes are

MOST, SHORT = 64, 8


class Outcomes(NamedTuple):
    """The outcomes of a spec; the three tuples have one entry per outcome, and are padded.

    Their length is part of the type, so one compilation serves all specs of the same length.
    """

    known: bool  # listed values, not bins
    told: bool  # categories, which come with the reward
    m: int
    cuts: tuple[float, ...]  # upper edges of the bins, or midpoints between the values
    starts: tuple[float, ...]  # what an outcome pays before it was seen; −inf: nothing is known
    scales: tuple[float, ...]  # standard deviations; NaN: estimated

    def arguments(self) -> dict[str, Any]:
        """Return `edges`, `values`, `categories` and `sigma` as they may be given."""
        given: dict[str, Any] = dict.fromkeys(("edges", "values", "categories", "sigma"))
        cuts, starts, scales = (part[: self.m] for part in (self.cuts, self.starts, self.scales))
        if self.known:
            return given | {"values": starts}
        if not math.isnan(scales[1]):
            same = len(set(scales[1:])) == 1
            given["sigma"] = scales[1] if same else scales[1:]
        return given | ({"categories": self.m - 1} if self.told else {"edges": cuts[1:-1]})


def _outcomes(given: Mapping[str, Any]) -> Outcomes:
    """Return the outcomes that the arguments describe, or raise."""
    edges, values, categories = (given[name] for name in ("edges", "values", "categories"))
    if sum(x is not None for x in (edges, values, categories)) != 1:
        raise InvalidParameterError(
            "give exactly one of `edges`, `values` and `categories`; "
            f"got edges={validate.shown(edges)}, values={validate.shown(values)}, "
            f"categories={validate.shown(categories)}"
        )
    if values is not None:
        return _listed_values(values, given["sigma"])
    return _bins(edges, given["sigma"]) if categories is None else _told(categories, given["sigma"])


def _listed_values(values: Any, sigma: Any) -> Outcomes:
    if sigma is not None:
        raise InvalidParameterError(
            "`sigma` belongs to `edges` and `categories`; listed `values` have none; "
            f"got {validate.shown(sigma)}"
        )
    array = validate.vector("values", _listed("values", values), -1e100, 1e100)
    kept = sorted({0.0, *(array + 0.0).tolist()})
    if len(kept) < 2 or len(kept) > MOST:
        raise InvalidParameterError(
            f"`values` must hold 1 to {MOST - 1} different values besides 0; "
            f"got {validate.shown(values)}"
        )
    cuts = [0.5 * (a + b) for a, b in pairwise(kept)] + [math.inf]
    return _padded(cuts, kept, [0.0] * len(kept), known=True)


def _bins(edges: Any, sigma: Any) -> Outcomes:
    given = _listed("edges", edges)
    if not given:
        raise InvalidParameterError(
            "`edges` must hold at least one number: for zero and not zero alone use ZIKLUCB or "
            f"ZIPosterior; got {validate.shown(edges)}"
        )
    array = validate.vector("edges", given)
    if (np.diff(array) <= 0).any() or array.size > MOST - 2:
        raise InvalidParameterError(
            f"`edges` must be at most {MOST - 2} increasing numbers; got {validate.shown(edges)}"
        )
    return _unknown([*(array + 0.0).tolist(), math.inf], sigma, told=False)


def _told(categories: Any, sigma: Any) -> Outcomes:
    n = validate.integer("categories", categories, low=2, high=MOST - 1)
    # without edges; a reward whose category nobody told counts as the first
    return _unknown([math.inf] * n, sigma, told=True)


def _unknown(tops: list[float], sigma: Any, *, told: bool) -> Outcomes:
    """Return nothing and outcomes that pay up to `tops`, of unknown means."""
    n = len(tops)
    starts, scales = [0.0, *[-math.inf] * n], [0.0, *_check_sigma(sigma, n)]
    return _padded([-math.inf, *tops], starts, scales, told=told)


def _padded(
    cuts: list[float],
    starts: list[float],
    scales: list[float],
    *,
    known: bool = False,
    told: bool = False,
) -> Outcomes:
    m = len(cuts)
    rest = (0.0,) * ((SHORT if m <= SHORT else MOST) - m)
    return Outcomes(known, told, m, (*cuts, *rest), (*starts, *rest), (*scales, *rest))


def _check_sigma(sigma: object, n: int) -> list[float]:
    if sigma is None:
        return [math.nan] * n
    if not isinstance(sigma, (list, tuple, np.ndarray)):
        return [validate.real("sigma", sigma, low=0, closed="neither")] * n
    scales = validate.vector("sigma", sigma, 0.0, closed="neither")
    if scales.size != n:
        raise InvalidParameterError(
            f"`sigma` must be one number or one per bin or category ({n}); "
            f"got {validate.shown(sigma)}"
        )
    return [float(s) for s in scales]


def _listed(name: str, value: object) -> list[Any]:
    unlike = (str, bytes, set, frozenset, Mapping)
    scalar = isinstance(value, np.ndarray) and value.ndim == 0
    if isinstance(value, Iterable) and not isinstance(value, unlike) and not scalar:
        return list(value)
    raise InvalidParameterError(
        f"`{name}` must be a sequence of numbers; got {validate.shown(value)}"
    )


class OutcomeSpec(Spec):
    """Base of the policies for several outcomes."""

    edges: Sequence[float] | None = argument(default=None)
    values: Sequence[float] | None = argument(default=None)
    categories: int | None = argument(default=None)
    sigma: float | Sequence[float] | None = argument(default=None)
    outcomes: Outcomes = derived(_outcomes)

    def parameters(self) -> dict[str, Any]:
        """Return the keyword arguments that rebuild this spec."""
        return self.outcomes.arguments() | super().parameters()

    @property
    def n_outcomes(self) -> int:
        """How many outcomes there are, zero among them."""
        return self.outcomes.m

    @property
    def n_categories(self) -> int:
        """How many categories come with the rewards; 0: none do."""
        return self.outcomes.m - 1 if self.outcomes.told else 0

    @property
    def reward_range(self) -> tuple[float, float]:
        """Between which values rewards lie."""
        values = self.reward_values
        return (-math.inf, math.inf) if values is None else (values[0], values[-1])

    @property
    def reward_values(self) -> tuple[float, ...] | None:
        """The rewards there are, where they were listed."""
        values: tuple[float, ...] | None = self.outcomes.arguments()["values"]
        return values

    def outcome_of(self, reward: float) -> int:
        """Return the position of the outcome this reward is.

        With `edges` zero comes first, then the bins from below; `values` stand in ascending order,
        and the one nearest to the reward counts. With `categories` a reward does not say it: what
        is not zero counts as the first.
        """
        return int(outcome_of(self.outcomes, validate.real("reward", reward)))


# ----------------------------------------------------------------------- statistics of the outcomes


class OutcomePart(Part):
    """What is kept about the outcomes, per arm and pooled over arms."""

    counts: Floats = per_arm("outcomes", whole=True, least=0.0, most=MOST_ROUNDS)
    means: Floats = per_arm("outcomes", finite=False)  # −inf: never seen and not known
    spreads: Floats = per_arm("outcomes")  # centred sums of squares
    scales: Floats = table("outcomes", least=0.0)  # standard deviations in force
    pooled_spread: Floats = table("outcomes")
    pooled_freedom: Floats = table("outcomes")
    seen: Floats = table("outcomes")  # how often, over all arms


class _KLPart(OutcomePart, KeptUpper):
    """The outcomes, and bounds of the indices that hold for some rounds."""


def new_outcomes(spec: Any, n_arms: int, own: type[Part]) -> ArmState:
    """Return the state of arms that were never played."""
    outcomes = spec.outcomes
    m = outcomes.m
    state = new_state(n_arms, own=own, sizes={"outcomes": m})
    state.own.means[:] = outcomes.starts[:m]
    state.own.scales[:] = np.nan_to_num(outcomes.scales[:m])
    return state


@jitable
def outcome_of(outcomes: Any, reward: float) -> int:
    """Return the outcome of a reward: its bin, or the nearest value."""
    if not outcomes.known and reward == 0.0:
        return 0
    j = 0
    while j < outcomes.m - 1 and reward > outcomes.cuts[j]:
        j += 1
    return j


@jitable
def learn_outcome(spec: Any, state: Any, arm: int, reward: float) -> None:
    """Add one reward to the statistics of an arm and of the outcome it shows."""
    _learn_as(spec, state, arm, reward, outcome_of(spec.outcomes, reward))


@jitable
def learn_category(spec: Any, state: Any, arm: int, reward: float, category: int) -> None:
    """Add one reward to the statistics of an arm and of the category it came with."""
    j = outcome_of(spec.outcomes, reward)
    if spec.outcomes.told and 0 <= category < spec.outcomes.m:
        j = category
    _learn_as(spec, state, arm, reward, j)


@jitable
def _learn_as(spec: Any, state: Any, arm: int, reward: float, j: int) -> None:
    own = state.own
    known = spec.outcomes.known
    if known:
        reward = spec.outcomes.starts[j]
    observe(state, arm, reward)
    count = own.counts[arm, j] + 1.0
    own.counts[arm, j] = count
    own.seen[j] += 1.0
    if known or j == 0:
        return
    if count == 1.0:
        own.means[arm, j] = reward
        return
    apart = reward - own.means[arm, j]
    mean = own.means[arm, j] + apart / count
    more = apart * (reward - mean)
    own.means[arm, j] = mean
    own.spreads[arm, j] += more
    own.pooled_spread[j] += more
    own.pooled_freedom[j] += 1.0
    _set_scale(spec, state, j)


@jitable
def _set_scale(spec: Any, state: Any, j: int) -> None:
    """Put the pooled standard deviation of an outcome in force where none was given."""
    own = state.own
    if math.isnan(spec.outcomes.scales[j]):
        freedom = own.pooled_freedom[j]
        spread = max(own.pooled_spread[j], 0.0)
        own.scales[j] = math.sqrt(spread / freedom) if freedom > 0.0 else 0.0


@jitable
def pool_outcomes(spec: Any, state: Any) -> None:
    """Compute what is pooled anew from the statistics of all arms."""
    own = state.own
    for j in range(spec.outcomes.m):
        spread = 0.0
        freedom = 0.0
        seen = 0.0
        for k in range(state.pulls.size):
            count = own.counts[k, j]
            seen += count
            if count > 1.0 and j > 0:
                spread += own.spreads[k, j]
                freedom += count - 1.0
        own.pooled_spread[j] = spread
        own.pooled_freedom[j] = freedom
        own.seen[j] = seen
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
    if spec.outcomes.known:
        return False
    for j in range(1, spec.outcomes.m):
        if state.own.counts[arm, j] == 0.0:
            return True
    return False


# ----------------------------------------------------------------------------------- joint KL index


class OutcomesKLUCB(OutcomeSpec):
    """The joint KL index for rewards through several outcomes: ignored, clicked, bought, returned.

    Parameters
    ----------
    categories
        How many kinds of rewards there are, at least 2, if each comes with its kind: then
        ``bandit.update(arm, reward, category=j)`` is told j = 1, …, `categories`, or None where
        nothing happened. What the kinds pay may overlap, and a kind may pay zero.
    edges
        Where nobody says the kind: increasing cut points.
        A non-zero reward belongs to the bin (edge, next edge] it lies in;
        zero is an outcome of its own. ``edges=(0, 5)``: negative, zero, up to 5, more than 5.
        For zero and not zero alone there is `ZIKLUCB`.
    values
        Instead of both: all rewards there are; 0 is always among them and need not be named.
        `zib.Bandit` refuses any other reward; a simulation takes the value nearest to it.
    sigma
        Standard deviation of the rewards within a bin or category: one number, one for each (bins
        from below), or None: estimated for each from all arms together. Not with `values`.
    delta, c
        The level, as in `ZIKLUCB`.
    unseen
        What an outcome pays that an arm never had: ``"pooled"`` takes the largest upper bound among
        arms that had it, at most the upper edge of the bin, and leaves out what no arm ever had; or
        a number. Listed `values` are known without having been seen.

    Notes
    -----
    The index is sup{Σ q'_j v'_j : n·KL(q̂, q') + Σ B_j (v̂_j − v'_j)²/(2σ_j²) ≤ level}
    (`zib.theory.outcome_kl_upper`). A policy that knows only zero and not zero takes all non-zero
    rewards for one law, whose spread is mostly the difference between outcomes.

    Examples
    --------
    >>> OutcomesKLUCB(values=(0.0, 1.0, 20.0, -15.0)).n_outcomes
    4
    >>> OutcomesKLUCB(edges=(0.0, 5.0), sigma=1.0).outcome_of(7.5)
    3
    >>> OutcomesKLUCB(categories=3).n_categories
    3
    """

    delta: float | None = optional(real(low=0.0, high=1.0, closed="neither"), default=None)
    c: float = real(low=0, default=0.0)
    unseen: str | float = number_or("pooled", default="pooled")
    label = "outcomes KL-UCB"


def _init(spec: OutcomesKLUCB, n_arms: int) -> ArmState:
    return new_outcomes(spec, n_arms, _KLPart)


@jitable
def _upper(spec: Any, state: Any, arm: int, level: float, top: float) -> float:
    own = state.own
    return outcome_upper(own.counts, own.means, arm, own.scales, 0, level, top)


@jitable
def _own_top(spec: Any, state: Any, arm: int) -> float:
    """Return what an outcome could pay that the arm never had, where a number was given."""
    if not math.isnan(spec.unseen) and lacks_outcome(spec, state, arm):
        return float(spec.unseen)
    return -np.inf


@jitable
def _keep(spec: Any, state: Any, arm: int) -> None:
    """Keep a bound of the index of `arm` that holds for some rounds."""
    borrows = not spec.outcomes.known and math.isnan(spec.outcomes.scales[1])
    borrows = borrows or (math.isnan(spec.unseen) and lacks_outcome(spec, state, arm))
    if borrows or state.pulls[arm] == 0.0:
        state.own.upper[arm] = np.inf  # it depends on other arms, whose data change
    else:
        until = last_round(spec, state, arm)
        level = level_at(spec, until)
        state.own.until[arm] = until
        state.own.upper[arm] = _upper(spec, state, arm, level, _own_top(spec, state, arm))


@jitable
def _keep_expired_and(spec: Any, state: Any, arm: int) -> None:
    """Keep a new bound for `arm`, and for those whose bound has expired."""
    for k in range(state.pulls.size):
        if k == arm or has_expired(state, k):
            _keep(spec, state, k)


def _refresh(spec: Any, state: Any, arm: int) -> None:
    pool_outcomes(spec, state)
    _keep_expired_and(spec, state, arm)


def _refresh_all(spec: Any, state: Any) -> None:
    pool_outcomes(spec, state)
    for k in range(state.pulls.size):
        _keep(spec, state, k)


def _update(spec: Any, state: Any, arm: int, reward: float) -> None:
    learn_outcome(spec, state, arm, reward)
    _keep_expired_and(spec, state, arm)


def _learn(spec: Any, state: Any, arm: int, reward: float, category: int) -> None:
    learn_category(spec, state, arm, reward, category)
    _keep_expired_and(spec, state, arm)


def _imagine(spec: Any, state: Any, arm: int) -> None:
    factor = one_more(state, arm)
    for j in range(spec.outcomes.m):
        state.own.counts[arm, j] *= factor
        state.own.spreads[arm, j] *= factor
    pool_outcomes(spec, state)
    _keep_expired_and(spec, state, arm)


@jitable
def _borrow(spec: Any, state: Any, level: float, out: Any) -> None:
    """Write, per arm, the most that an outcome the arm never had could pay."""
    for k in range(out.size):
        out[k] = _own_top(spec, state, k)
    if spec.outcomes.known or not math.isnan(spec.unseen):
        return
    own = state.own
    for j in range(1, spec.outcomes.m):
        top = -np.inf
        missing = False
        for k in range(out.size):
            count = own.counts[k, j]
            if count > 0.0:
                reach = own.scales[j] * math.sqrt(2.0 * level / count)
                top = max(top, own.means[k, j] + reach)
            else:
                missing = True
        top = min(top, spec.outcomes.cuts[j])
        if missing:
            for k in range(out.size):
                if own.counts[k, j] == 0.0:
                    out[k] = max(out[k], top)


@jitable
def _start(spec: Any, state: Any, level: float, exact: bool, out: Any) -> None:
    """Write the bounds kept, or indices, and the indices of arms that have no such bound."""
    if not spec.outcomes.known and math.isnan(spec.unseen) and not has_paid(state):
        for k in range(out.size):
            out[k] = np.inf
        return
    _borrow(spec, state, level, out)
    for k in range(out.size):
        if state.pulls[k] == 0.0:
            out[k] = np.inf
        elif state.own.upper[k] < np.inf and not exact:
            out[k] = state.own.upper[k]
        else:
            out[k] = _upper(spec, state, k, level, out[k])


@jitable
def _is_kept(spec: Any, state: Any, arm: int) -> bool:
    return bool(state.own.upper[arm] < np.inf)


@jitable
def _exact(spec: Any, state: Any, arm: int, level: float) -> float:
    return _upper(spec, state, arm, level, _own_top(spec, state, arm))


def _scores(spec: Any, state: Any, rng: Any, out: Any) -> None:
    level = level_at(spec, state.clock[0] + 1.0)
    _start(spec, state, level, False, out)
    settle(spec, state, level, largest(out), out)


def _indices(spec: Any, state: Any, rng: Any, out: Any) -> None:
    _start(spec, state, level_at(spec, state.clock[0] + 1.0), True, out)


register(
    OutcomesKLUCB,
    own=_KLPart,
    init=_init,
    scores=_scores,
    update=_update,
    learn=_learn,
    refresh=_refresh,
    refresh_all=_refresh_all,
    indices=_indices,
    imagine=_imagine,
)
LAZY.add(OutcomesKLUCB, Lazy(is_bound=_is_kept, exact=_exact))
