"""What policies would earn, and which loses least: they play in worlds that the log leaves open."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from zib.core.rng import Role, stream
from zib.logs.advise.choose import Choice, Choices, with_context
from zib.logs.advise.collect import Collected, randomised
from zib.logs.advise.context_worlds import ContextWorlds
from zib.logs.advise.estimates import ArmSummary
from zib.logs.advise.words import LOG, UNIFORM
from zib.logs.advise.worlds import Worlds
from zib.sim import Results, simulate
from zib.stats import intervals
from zib.stats.intervals import Estimate

Array = NDArray[np.float64]

SCORES, SCORES_WITH_CONTEXT = 400_000_000, 15_000_000  # arms × rounds × worlds × policies
FEWEST_ROUNDS = 100
FEWEST_WORLDS, MOST_WORLDS = 20, 100  # to choose in, and as many again to report from
ALIKE_DRAWS = 400
NOISE = 2.0  # standard errors by which a policy must beat the default
WORTH_IT = 0.02  # and the share of its regret


class Earned(NamedTuple):
    """What one policy earned in the simulation.

    Attributes
    ----------
    total
        Sum over the rounds of the mean reward of the arm played, with an interval over what the
        log leaves open.
    paid
        Sum of the rewards actually drawn: noisier, the same on average.
    above_uniform
        `total` minus that of choosing at random in the same world. The interval reaches 0 unless
        the log establishes that arms differ.
    behind
        `total` of the recommended policy minus this one's, in worlds in which arms differ: the mean
        over worlds and the error of that mean.
    best_share
        Share of rounds in which the best arm was played; NaN where it depends on the context.
    regret
        What was lost against the best arm in every round (given the context, if there is one), in
        worlds in which arms differ: the mean over worlds and its error.
    plain
        Whether the policy takes the reward as one number, zeros and all.
    """

    label: str
    total: Estimate
    paid: float
    above_uniform: Estimate
    behind: Estimate
    best_share: float
    regret: Estimate
    plain: bool


class AgainstPlain(NamedTuple):
    """What telling zeros apart is worth: the best policies that do and that do not.

    The one that does was chosen in other worlds than those in which they are compared; the plain
    one is that which lost least in these very worlds, so chance can only favour it.

    Attributes
    ----------
    telling, plain
        Their names.
    saved
        Regret of the plain one minus that of the other, with the error of the mean over worlds.
    ratio
        Regret of the one that tells zeros apart over that of the plain one.
    """

    telling: str
    plain: str
    saved: Estimate
    ratio: float


@dataclass(frozen=True)
class Simulation:
    """Earnings of several policies in worlds drawn from what the log leaves open.

    Attributes
    ----------
    rounds, replications
        Length of the runs, and number of worlds that the numbers come from. As many others served
        to choose the policy.
    earned
        One entry per policy, the recommended one first, then the others by regret.
    best_total
        What playing the best arm in every round would earn.
    alike
        Probability, given the log, that all arms pay the same.
    against_plain
        What telling zeros apart is worth, or None where the candidates do not show it.
    contextual
        Whether the worlds have the contexts of the log.
    arms
        The arms that took part (those with data).
    totals
        Earnings by policy and world.
    notes
        What was cut or left out.
    """

    rounds: int
    replications: int
    earned: tuple[Earned, ...]
    best_total: float
    alike: float
    against_plain: AgainstPlain | None
    contextual: bool
    arms: tuple[Hashable, ...]
    totals: Array
    notes: tuple[str, ...]

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the policies."""
        return tuple(row.label for row in self.earned)


class Played(NamedTuple):
    """A simulation, and the policy it speaks for."""

    simulation: Simulation
    best: Choice


def simulation(
    found: Collected,
    arms: tuple[ArmSummary, ...],
    whole: ArmSummary,
    choices: Choices,
    *,
    context: bool,
    rounds: int,
    replications: int | None,
    level: float,
    seed: int,
    tell: Callable[[str, float], None],
) -> Played:
    """Play all candidates in worlds drawn from the log; choose in half of them, report the rest."""
    unit, notes = choices.unit, list[str]()
    worlds: Any = ContextWorlds(found, arms, unit) if context else Worlds(found, arms, unit)
    n_arms = len(worlds.kept)
    candidates = with_context(choices, n_arms) if context else choices.candidates
    budget = (SCORES_WITH_CONTEXT if context else SCORES) // (n_arms * len(candidates))
    if replications is None:
        replications = min(max(budget // (2 * rounds), FEWEST_WORLDS), MOST_WORLDS)
    played = max(min(rounds, budget // (2 * replications)), min(rounds, FEWEST_ROUNDS))
    if played < rounds:
        notes.append(f"The simulation has the first {played} of {rounds} rounds, to stay quick.")
    if n_arms < len(arms):
        notes.append(f"{len(arms) - n_arms} arm(s) without data do not take part.")
    policies = {choice.label: choice.build(rounds) for choice in candidates}
    for i, (label, spec) in enumerate(policies.items()):
        tell(f"preparing {label}", 0.3 * i / len(policies))
        simulate({label: spec}, worlds, horizon=2, replications=1, seed=seed, progress=False)
    results = simulate(
        policies, worlds, horizon=played, replications=2 * replications, seed=seed, checkpoints=20,
        progress=lambda done, of: tell("simulating", 0.3 + 0.7 * done / of),
    )  # fmt: skip
    return _summarised(found, whole, worlds, results, candidates, unit, level, seed, notes)


def least_regret(regret: Array) -> int:
    """Return the row with the smallest mean; the first unless another is clearly smaller.

    How strongly the first is preferred hardly matters: on 52 logs of known bandits between 0 and 3
    standard errors and 0 and 5 % give policies with 1.04 to 1.05 times the least regret there.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> least_regret(10.0 + rng.normal(size=(3, 50)))
    0
    >>> least_regret(np.array([[10.0], [10.0], [5.0]]) + rng.normal(size=(3, 50)))
    2
    """
    mean = regret.mean(axis=1)
    best = int(np.argmin(mean))
    lost = regret[0] - regret[best]
    error = float(intervals.standard_error(lost)) if lost.size > 1 else math.inf
    needed = max(NOISE * error, WORTH_IT * float(mean[best]))
    return best if float(lost.mean()) > needed else 0


def _summarised(
    found: Collected,
    whole: ArmSummary,
    worlds: Any,
    results: Results,
    candidates: Sequence[Choice],
    unit: float,
    level: float,
    seed: int,
    notes: list[str],
) -> Played:
    done = np.flatnonzero(results.finished.all(axis=0))  # an interrupted run leaves some behind
    if done.size < 4:
        raise KeyboardInterrupt
    if done.size < results.regret.shape[1]:
        notes.append(f"The simulation was interrupted after {done.size} worlds.")
    half = done.size // 2
    rounds = int(results.checkpoints[-1])
    regret = results.regret[:, done, -1] * unit
    chosen = least_regret(regret[:, :half])
    order = np.argsort(regret[:, half:].mean(axis=1), kind="stable")
    order = np.concatenate([[chosen], order[order != chosen]]).astype(np.int64)
    plain = np.array([choice.plain for choice in candidates])
    against = _against_plain(regret[:, :half], regret[:, half:], plain, results.labels, level)
    regret, told = regret[order, half:], done[half:]
    instances = [worlds.instance(stream(seed, Role.INSTANCE, int(r))) for r in told]
    per_round = rounds * unit
    means = np.array([each.arm_means for each in instances]) * per_round
    best = np.array([each.best_mean for each in instances]) * per_round
    frequency = found.rows[worlds.kept] / found.rows[worlds.kept].sum()
    uniform, as_logged = means.mean(axis=1), means @ frequency
    totals = np.vstack([best - regret, uniform, as_logged])
    regret = best - totals
    rng = stream(seed, Role.BOOTSTRAP)
    alike = np.zeros(0)
    if worlds.alike > 0.0:
        drawn = [worlds.alike_instance(rng).best_mean for _ in range(ALIKE_DRAWS)]
        alike = np.array(drawn) * per_round
    labels = [*(results.labels[i] for i in order), UNIFORM, LOG]
    share = _best_shares(results, order, told, instances, means, frequency)
    drawn_rewards = results.reward[order][:, told, -1].mean(axis=1) * unit

    def over_truths(apart: Array, together: Array) -> Estimate:
        return over_worlds(apart, together, worlds.alike, level)

    rows = []
    for i, label in enumerate(labels):
        total = over_truths(totals[i], alike)
        above = over_truths(totals[i] - uniform, np.zeros(alike.size))
        if label == LOG and randomised(found) == "no":
            # the choices depended on something that worlds ignore: the average of the log
            total = Estimate(*(rounds * x for x in whole.r))
        paid = total.value
        if i < order.size:
            paid = (1.0 - worlds.alike) * float(drawn_rewards[i])
            paid += worlds.alike * float(alike.mean()) if alike.size else 0.0
        rows.append(
            Earned(
                label, total, float(paid), above,
                intervals.paired_difference(regret[i], regret[0], level=level), float(share[i]),
                intervals.mean(regret[i], level=level),
                bool(plain[order[i]]) if i < order.size else True,
            )
        )  # fmt: skip
    names = tuple(found.arms[k] for k in worlds.kept)
    ran = Simulation(
        rounds, told.size, tuple(rows), over_truths(best, alike).value, worlds.alike, against,
        isinstance(worlds, ContextWorlds), names, totals, tuple(notes),
    )  # fmt: skip
    return Played(ran, candidates[chosen])


def over_worlds(apart: Array, together: Array, alike: float, level: float) -> Estimate:
    """Return mean and interval of a number over all worlds.

    Parameters
    ----------
    apart, together
        The number in worlds in which arms differ, and in worlds in which they are alike.
    alike
        Probability of the latter.

    Notes
    -----
    The ends are quantiles over all worlds, or over those in which arms differ where that makes the
    interval longer: how likely it is that arms differ at all is the least certain number here.

    Examples
    --------
    >>> [float(x) for x in over_worlds(np.arange(1.0, 40.0), np.zeros(9), 0.5, 0.95)]
    [10.0, 0.0, 39.0]
    """
    tail = 0.5 - level / 2.0
    value = (1.0 - alike) * float(apart.mean())
    ends = [_quantiles(apart, np.full(apart.size, 1.0 / apart.size), tail)]
    if together.size and alike > 0.0:
        value += alike * float(together.mean())
        weight = np.concatenate(
            [
                np.full(apart.size, (1.0 - alike) / apart.size),
                np.full(together.size, alike / together.size),
            ]
        )
        ends.append(_quantiles(np.concatenate([apart, together]), weight, tail))
    low, high = min(low for low, _ in ends), max(high for _, high in ends)
    return Estimate(value, min(low, value), max(high, value))


def _quantiles(x: Array, weight: Array, tail: float) -> tuple[float, float]:
    """Return quantiles such that a further draw falls between them with the probability wanted."""
    order = np.argsort(x, kind="stable")
    reached = np.cumsum(weight[order]) / (1.0 + float(weight.max()))
    low, high = np.interp([tail, 1.0 - tail], reached, x[order])
    return float(low), float(high)


def _against_plain(
    choosing: Array, reporting: Array, plain: NDArray[np.bool_], labels: Sequence[str], level: float
) -> AgainstPlain | None:
    if plain.all() or not plain.any():
        return None
    telling = int(np.argmin(np.where(plain, np.inf, choosing.mean(axis=1))))
    other = int(np.argmin(np.where(plain, reporting.mean(axis=1), np.inf)))
    saved = intervals.paired_difference(reporting[other], reporting[telling], level=level)
    lost = float(reporting[other].mean())
    ratio = float(reporting[telling].mean()) / lost if lost > 0.0 else math.nan
    return AgainstPlain(labels[telling], labels[other], saved, ratio)


def _best_shares(
    results: Results,
    order: NDArray[np.int64],
    told: NDArray[np.intp],
    instances: Sequence[Any],
    means: Array,
    frequency: Array,
) -> Array:
    """Return the share of rounds in which each policy, chance and the log played the best arm."""
    if not hasattr(instances[0], "best_arm"):
        return np.full(order.size + 2, math.nan)
    at = means.argmax(axis=1)
    pulls = results.pulls[order][:, told, :]
    own = np.take_along_axis(pulls, at[None, :, None], axis=2)[:, :, 0].mean(axis=1)
    own = own / float(results.checkpoints[-1])
    return np.concatenate([own, [1.0 / means.shape[1], float(frequency[at].mean())]])
