"""What policies would have earned: rewards of the log, drawn again."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from zib import mab
from zib.core.rng import Role, stream
from zib.env import MAB, Empirical, ZeroInflated
from zib.logs.advise.choose import Choices
from zib.logs.advise.collect import Collected, randomised
from zib.logs.advise.estimates import ArmSummary
from zib.logs.advise.words import LOG, UNIFORM
from zib.sim import Results, simulate
from zib.stats import intervals
from zib.stats.intervals import Estimate

Array = NDArray[np.float64]

MOST_ROUNDS = 50_000
MOST_SCORES = 1_000_000_000  # arms × rounds × replications × policies
FEWEST_ROUNDS = 100


class Earned(NamedTuple):
    """What one policy earned in the simulation.

    Attributes
    ----------
    total
        Sum over the rounds of the mean reward of the arm played, averaged over replications.
    paid
        Sum of the rewards actually drawn: noisier, the same on average.
    above_uniform
        `total` minus that of choosing at random, paired by replication.
    behind
        `total` of the recommended policy minus this one's, paired by replication.
    best_share
        Share of rounds in which the best arm was played.
    """

    label: str
    total: Estimate
    paid: float
    above_uniform: Estimate
    behind: Estimate
    best_share: float


@dataclass(frozen=True)
class Simulation:
    """Earnings of several policies on rewards resampled from the log.

    Attributes
    ----------
    rounds, replications
        Length and number of the runs.
    earned
        One entry per policy, the recommended one first.
    best_total
        What playing the best arm in every round would earn.
    arms
        The arms that took part (those with data).
    notes
        What was cut or left out.
    """

    rounds: int
    replications: int
    earned: tuple[Earned, ...]
    best_total: float
    arms: tuple[Hashable, ...]
    totals: Array
    notes: tuple[str, ...]

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the policies."""
        return tuple(row.label for row in self.earned)


def resampled(found: Collected, arms: tuple[ArmSummary, ...], unit: float) -> tuple[MAB, list[int]]:
    """Return the bandit that draws rewards of the log again, and the arms it has.

    Where the log has propensities each reward counts 1/propensity, as in `zib.env.BootstrapMAB`.
    """
    laws, kept = [], []
    for k, arm in enumerate(arms):
        if arm.rows == 0:
            continue
        own = found.arm_value_arm == k
        kept.append(k)
        if not own.any():
            laws.append(ZeroInflated(Empirical((1.0,)), 0.0))
            continue
        values = found.arm_values[own] / unit
        prob = arm.compared[0].value
        laws.append(ZeroInflated(Empirical(values, found.arm_value_weight[own]), min(prob, 1.0)))
    return MAB(laws), kept


def simulation(
    found: Collected,
    arms: tuple[ArmSummary, ...],
    whole: ArmSummary,
    choices: Choices,
    *,
    rounds: int,
    replications: int,
    level: float,
    seed: int,
    tell: Callable[[float], None],
) -> Simulation:
    """Play the recommended policy, its alternatives and plain ones on resampled rewards."""
    unit, notes = choices.unit, []
    env, kept = resampled(found, arms, unit)
    n_policies = 4 + len(choices.others)
    wanted = min(rounds, MOST_ROUNDS)
    limit = MOST_SCORES // (len(kept) * replications * n_policies)
    played = max(min(wanted, limit), min(wanted, FEWEST_ROUNDS))
    if played < rounds:
        notes.append(f"The simulation has {played} rounds instead of {rounds}, to stay quick.")
    if len(kept) < len(arms):
        notes.append(f"{len(arms) - len(kept)} arm(s) without data do not take part.")
    reach = (max(found.highest, 0.0) - min(found.lowest, 0.0)) / unit
    sizes = np.sqrt(env.variances)
    policies: dict[str, Any] = {choices.main.label: choices.main.build(played)}
    for other in choices.others:
        policies.setdefault(other.label, other.build(played))
    policies.setdefault("UCB1", mab.UCB1(scale=reach))
    policies.setdefault("Normal TS", mab.NormalTS(sigma=max(float(sizes.max()), 1e-12)))
    policies[UNIFORM] = mab.EpsilonGreedy(epsilon=1.0)
    results = simulate(
        policies, env, horizon=played, replications=replications, seed=seed, checkpoints=20,
        progress=lambda done, of: tell(done / of),
    )  # fmt: skip
    return _summarised(found, whole, env, kept, results, unit, level, seed, notes)


def _summarised(
    found: Collected,
    whole: ArmSummary,
    env: MAB,
    kept: list[int],
    results: Results,
    unit: float,
    level: float,
    seed: int,
    notes: list[str],
) -> Simulation:
    done = results.finished.all(axis=0)  # an interrupted run leaves some policies behind
    if not done.any():
        raise KeyboardInterrupt
    if not done.all():
        notes.append(f"The simulation was interrupted after {int(done.sum())} replications.")
    rounds, replications = int(results.checkpoints[-1]), int(done.sum())
    best = env.best_mean * rounds * unit
    totals = best - results.regret[:, done, -1] * unit
    paid = results.reward[:, done, -1].mean(axis=1) * unit
    share = results.pulls[:, done, env.best_arm].mean(axis=1) / rounds
    own, own_paid, own_share = _as_in_log(found, env, kept, rounds, replications, seed)
    labels = [*results.labels, LOG]
    totals = np.vstack([totals, own * unit])
    paid, share = np.append(paid, own_paid * unit), np.append(share, own_share)
    uniform = totals[labels.index(UNIFORM)]
    means = [intervals.mean(row, level=level) for row in totals]
    if randomised(found) == "no":
        # the choices depended on something that drawing again ignores: the average of the log
        totals[-1], paid[-1] = rounds * whole.r.value, rounds * whole.r.value
        means[-1] = Estimate(*(rounds * x for x in whole.r))
    earned = tuple(
        Earned(
            label,
            means[i],
            float(paid[i]),
            intervals.paired_difference(totals[i], uniform, level=level),
            intervals.paired_difference(totals[0], totals[i], level=level),
            float(share[i]),
        )
        for i, label in enumerate(labels)
    )
    names = tuple(found.arms[k] for k in kept)
    return Simulation(rounds, replications, earned, best, names, totals, tuple(notes))


def _as_in_log(
    found: Collected, env: MAB, kept: list[int], rounds: int, replications: int, seed: int
) -> tuple[Array, float, float]:
    """Return totals, mean payment and share of the best arm when arms are drawn as in the log."""
    frequency = found.rows[kept] / found.rows[kept].sum()
    totals, paid, share = np.empty(replications), 0.0, 0.0
    for i in range(replications):
        rng = stream(seed, Role.BOOTSTRAP, i)
        pulls = rng.multinomial(rounds, frequency)
        totals[i] = float(pulls @ env.arm_means)
        paid += sum(float(env.sample(k, rng, int(n)).sum()) for k, n in enumerate(pulls) if n)
        share += float(pulls[env.best_arm]) / rounds
    return totals, paid / replications, share / replications
