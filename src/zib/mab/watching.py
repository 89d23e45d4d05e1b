"""A policy that notices by itself when an arm has changed, and forgets what was before.

Each arm has a few memories of different lengths: statistics in which older rewards of the arm count
less and less, beside those of all its rewards, in which all count alike. What a memory lacks to all
rewards are the older ones. If the two differ by more than chance, in how often or in how much the
arm pays, the arm has changed, and the memory takes the place of all rewards.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from zib.core import kernel
from zib.core.kernel import jitable, lookup, register
from zib.core.spec import label_of, optional, real
from zib.core.state import MOST_ROUNDS, ArmState, Floats, Part, count, per_arm, scratch
from zib.core.summed import put_sums, read_sums, sums_of_arms
from zib.mab.wrappers import (
    OFTEN,
    Forgetful,
    clipped,
    fade,
    inner_refresh,
    inner_refresh_all,
    wrapped,
)
from zib.theory.bernoulli import bernoulli_kl

HALF_LIVES = (16.0, 64.0, 256.0, 1024.0, 4096.0)  # of the memories, in rewards of the arm
MEMORIES = len(HALF_LIVES)
FACTORS = tuple(2.0 ** (-1.0 / half_life) for half_life in HALF_LIVES)
CAUTION = 3.5  # the first change is believed when its log-likelihood ratio exceeds log t by so much
AGAIN = 2.0  # the same of further changes, whose pace is known
KEPT = 20.0  # rewards that other arms still count for when one has changed
FEWEST_PAID = 3.0  # non-zero rewards on both sides before magnitudes are compared
NOTHING = 1e-9  # weight below which what a memory holds is nothing
RECENT = 2.0  # the mean of a long memory is as exact as that of so many times its weight
PACE = 10.0  # how many times in `recheck` rounds an arm that is due for a trial would be played


class Watching(Forgetful):
    """Notice when arms change, and forget then; nothing has to be told.

    Parameters
    ----------
    spec
        Any policy whose statistics are sums over rewards; by default `ZIAdaptive`.
    recheck
        An arm that was not played for so many rounds is tried again (≥ 1; it should be many times
        the number of arms). None: arms are played only when the policy inside plays them.

    Notes
    -----
    After every reward the arm is tested. Five memories of it have half-lives of 16, 64, …, 4096 of
    its rewards. Each is compared with the older rewards by a likelihood ratio: Bernoulli for
    paying; for the magnitude Gaussian, with the scatter of the memory or of all rewards, whichever
    is larger, so that one huge reward is no change. When it exceeds log t + 3.5, with t the number
    of rewards so far, the arm goes on with what is in the memory, and all others with the weight of
    at most twenty rewards: what moves one arm often moves others. After c changes the next is
    believed beyond log(t/(c + 1)) + 2: where arms have changed before, less evidence will do. And
    the more changes were noticed, the faster everything fades, with a half-life of t/c rewards; so
    arms that are hardly played are tried again as often as changes are to be expected.

    Until the first change the policy inside plays as it would alone. Without drift a change is
    believed by mistake in one or two of a hundred runs of 20,000 rewards (9 of 720 in six worlds),
    and regret is up to two per cent larger on average.

    What cannot be noticed is that an arm has become better which is not played any more, while all
    others stay as they were. If that is to be expected, say by `recheck` how long an arm may wait.
    It is then given a trial, which goes on while the arm has earned at least what the best of the
    others pays on average. So a trial is expected to lose no more than that one pays in a round,
    and the trials of K arms together at most the share (K − 1)/recheck of what it pays. An arm on
    trial, after n rewards in it, is played with probability 10·(n + 1)/recheck in every decision:
    the longer it does well, the more often, but never a whole batch on the strength of one reward.

    Counts are no whole numbers after the first change (`Bandit.pulls` cuts them off). A round costs
    little more than with the policy inside alone; memory is 184 bytes per arm, and 304 around
    `ZIAdaptive`.

    Examples
    --------
    >>> import zib
    >>> bandit = zib.Bandit(zib.mab.Watching(), n_arms=2, seed=0)
    >>> bandit.update_many([0] * 300 + [1] * 60, [2.0, 0.0, 0.0] * 100 + [0.0, 1.0] * 30)
    >>> bandit.update_many([0] * 100, [0.0] * 100)
    >>> max(bandit.means(), key=lambda arm: bandit.means()[arm].reward)
    1
    """

    recheck: float | None = optional(real(low=1), default=None)

    @property
    def label(self) -> str:
        """The name of the policy inside, marked."""
        trials = f", trying again after {self.recheck:g}" if self.adds_chance else ""
        return f"{label_of(self.spec)}, watching{trials}"

    @property
    def adds_chance(self) -> bool:
        """Whether decisions are random even if those of the policy inside are not."""
        return self.parameters()["recheck"] is not None


class Memories(Part):
    """What `Watching` keeps: statistics of each arm in each memory, and when it changed."""

    counts_fade: ClassVar[bool] = True  # counts are weighted, so they are no whole numbers
    pulls: Floats = per_arm(MEMORIES, least=0.0, most=MOST_ROUNDS)
    nonzero: Floats = per_arm(MEMORIES, least=0.0, most=MOST_ROUNDS)
    total: Floats = per_arm(MEMORIES)
    spread: Floats = per_arm(MEMORIES, least=0.0)
    sums: Floats = per_arm("sums")  # further sums of the policy inside, memory after memory
    rounds: Floats = count()  # rewards learned, all of them
    since: Floats = count()  # rewards since everything faded
    changes: Floats = count()  # how many were noticed
    last: Floats = per_arm(whole=True, least=0.0)  # the round of the last reward
    tried: Floats = per_arm(whole=True, least=0.0)  # rewards in the present trial
    earned: Floats = per_arm()  # their sum
    row: Floats = scratch(2, "own")


def _init(spec: Watching, n_arms: int) -> ArmState:
    own = len(sums_of_arms(lookup(spec.spec).own))
    return wrapped(spec, n_arms, Memories, own=own, sums=MEMORIES * own)


# ------------------------------------------------------------------------------------- memories


@jitable
def _contribution(spec: Any, state: Any, arm: int, reward: float) -> None:
    """Write into row 1 what a reward adds to the further sums of the policy inside.

    Only that policy knows, and adds to its own; these are put back afterwards.
    """
    row = state.around.row
    read_sums(state.own, arm, row, 0, 0)
    for j in range(row.shape[1]):
        row[1, j] = 0.0
    put_sums(state.own, arm, row, 1, 0)
    kernel.weigh(spec.spec, state, arm, reward, 1.0)
    read_sums(state.own, arm, row, 1, 0)
    put_sums(state.own, arm, row, 0, 0)


@jitable
def _remember(spec: Any, state: Any, arm: int, reward: float) -> None:
    """Add a reward to the memories of its arm, in which all older ones count less by now."""
    held = state.around
    further = held.row.shape[1]
    _contribution(spec, state, arm, reward)
    for m in range(MEMORIES):
        factor = FACTORS[m]
        held.pulls[arm, m] = factor * held.pulls[arm, m] + 1.0
        paid = factor * held.nonzero[arm, m]
        total = factor * held.total[arm, m]
        spread = factor * held.spread[arm, m]
        if reward != 0.0:
            if paid > NOTHING:
                apart = (reward - total / paid) * (reward - (total + reward) / (paid + 1.0))
                spread += max(apart, 0.0)
            else:
                paid = 0.0
                total = 0.0
                spread = 0.0
            paid += 1.0
            total += reward
        held.nonzero[arm, m] = paid
        held.total[arm, m] = total
        held.spread[arm, m] = spread
        for j in range(m * further, (m + 1) * further):
            held.sums[arm, j] = factor * held.sums[arm, j] + held.row[1, j - m * further]


@jitable
def _fade_arm(state: Any, arm: int, factor: float) -> None:
    """Let all rewards of an arm count less, in the memories too."""
    held = state.around
    fade(state, arm, factor)
    for m in range(MEMORIES):
        held.pulls[arm, m] *= factor
        held.nonzero[arm, m] *= factor
        held.total[arm, m] *= factor
        held.spread[arm, m] *= factor
    for j in range(held.sums.shape[1]):
        held.sums[arm, j] *= factor


@jitable
def _go_on_with(state: Any, arm: int, memory: int) -> None:
    """Let an arm, and its longer memories, know no more than one memory."""
    held = state.around
    further = held.row.shape[1]
    state.pulls[arm] = held.pulls[arm, memory]
    state.nonzero[arm] = held.nonzero[arm, memory]
    state.total[arm] = held.total[arm, memory]
    state.spread[arm] = held.spread[arm, memory]
    put_sums(state.own, arm, held.sums, arm, memory * further)
    fade(state, arm, 1.0)
    for m in range(memory + 1, MEMORIES):
        held.pulls[arm, m] = held.pulls[arm, memory]
        held.nonzero[arm, m] = held.nonzero[arm, memory]
        held.total[arm, m] = held.total[arm, memory]
        held.spread[arm, m] = held.spread[arm, memory]
        for j in range(further):
            held.sums[arm, m * further + j] = held.sums[arm, memory * further + j]


# -------------------------------------------------------------------------------------- noticing


@jitable
def _paying_ratio(n: float, paid: float, older: float, older_paid: float) -> float:
    """Return the log-likelihood ratio of two probabilities against one.

    Recent rewards weigh up to twice as much as those of a memory do on average. Of a deviation
    downwards the mean of a memory has the law that twice its weight would give; upwards a few that
    paid in a row weigh too much for that, and its plain weight is the safe one.
    """
    weight = RECENT if paid * older < older_paid * n else 1.0
    common = (weight * paid + older_paid) / (weight * n + older)
    if common <= 0.0 or common >= 1.0:
        return 0.0
    ratio = weight * n * bernoulli_kl(min(paid / n, 1.0), common)
    return float(ratio + older * bernoulli_kl(min(older_paid / older, 1.0), common))


@jitable
def change_ratio(state: Any, arm: int, memory: int) -> float:
    """Return the log-likelihood ratio of a change between a memory of an arm and what is older."""
    held = state.around
    n = held.pulls[arm, memory]
    older = state.pulls[arm] - n
    if older < n or n <= 0.0:
        return 0.0
    paid = held.nonzero[arm, memory]
    older_paid = max(state.nonzero[arm] - paid, 0.0)
    ratio = _paying_ratio(n, paid, older, older_paid)
    if paid >= FEWEST_PAID and older_paid >= FEWEST_PAID:
        apart = held.total[arm, memory] / paid
        apart -= (state.total[arm] - held.total[arm, memory]) / older_paid
        of_all = state.spread[arm] / state.nonzero[arm]
        of_one = max(of_all, held.spread[arm, memory] / paid)
        variance = of_one / (RECENT * paid) + of_all / older_paid
        if variance > 0.0:
            ratio += 0.5 * apart * (apart / variance)
    return float(ratio)


@jitable
def evidence_needed(state: Any) -> float:
    """Return the log-likelihood ratio beyond which a change is believed.

    The more often arms have changed, the more likely is a further change.
    """
    held = state.around
    caution = CAUTION if held.changes[0] == 0.0 else AGAIN
    return math.log(held.rounds[0] / (held.changes[0] + 1.0)) + caution


@jitable
def _notice(state: Any, arm: int) -> bool:
    """Test an arm; if it has changed, forget what was before, and say so."""
    held = state.around
    level = evidence_needed(state)
    for m in range(MEMORIES):
        if change_ratio(state, arm, m) > level:
            held.changes[0] += 1.0
            _go_on_with(state, arm, m)
            state.clock[0] = 0.0
            for k in range(state.pulls.size):
                if k != arm and state.pulls[k] > KEPT:
                    _fade_arm(state, k, KEPT / state.pulls[k])
                state.clock[0] += state.pulls[k]
            return True
    return False


@jitable
def _fade_if_due(state: Any) -> bool:
    """Let everything fade as fast as changes come, a fiftieth of a half-life at a time."""
    held = state.around
    if held.changes[0] == 0.0:
        return False
    half_life = held.rounds[0] / held.changes[0]
    if held.since[0] * OFTEN < half_life:
        return False
    factor = 2.0 ** (-held.since[0] / half_life)
    held.since[0] = 0.0
    state.clock[0] *= factor
    for k in range(state.pulls.size):
        _fade_arm(state, k, factor)
    return True


# ------------------------------------------------------------------------------- trying arms again


@jitable
def is_on_trial(spec: Any, state: Any, arm: int) -> bool:
    """Whether an arm is being tried again, or is due for it; never where `recheck` is None."""
    held = state.around
    due = held.rounds[0] - held.last[arm] >= spec.recheck
    return bool(state.pulls[arm] > 0.0 and (due or held.tried[arm] > 0.0))


@jitable
def _best_other(state: Any, arm: int) -> float:
    """Return the largest mean reward of the other arms."""
    best = -np.inf
    for k in range(state.pulls.size):
        if k != arm and state.pulls[k] > 0.0:
            best = max(best, state.total[k] / state.pulls[k])
    return float(best)


@jitable
def _end_trial(state: Any, arm: int) -> None:
    state.around.tried[arm] = 0.0
    state.around.earned[arm] = 0.0


@jitable
def _count_trial(state: Any, arm: int, reward: float) -> None:
    """Count a reward of an arm on trial; the trial ends when others would have earned more."""
    held = state.around
    held.tried[arm] += 1.0
    held.earned[arm] += reward
    if held.earned[arm] < held.tried[arm] * _best_other(state, arm):
        _end_trial(state, arm)


@jitable
def _try_again(spec: Any, state: Any, rng: Any, out: Any) -> None:
    """Let an arm on trial, drawn with its probability, have the largest score."""
    if math.isnan(spec.recheck):
        return
    u = -1.0
    for k in range(out.size):
        if is_on_trial(spec, state, k):
            if u < 0.0:
                u = rng.random()
            u -= PACE * (state.around.tried[k] + 1.0) / spec.recheck
            if u < 0.0:
                out[k] = np.inf
                return


def _scores(spec: Any, state: Any, rng: Any, out: Any) -> None:
    kernel.scores(spec.spec, state, rng, out)
    _try_again(spec, state, rng, out)


def _indices(spec: Any, state: Any, rng: Any, out: Any) -> None:
    kernel.indices(spec.spec, state, rng, out)
    _try_again(spec, state, rng, out)


# ----------------------------------------------------------------------------------------- learning


def _update(spec: Any, state: Any, arm: int, reward: float) -> None:
    held = state.around
    value = clipped(spec, reward)
    on_trial = is_on_trial(spec, state, arm)
    held.rounds[0] += 1.0
    held.since[0] += 1.0
    held.last[arm] = held.rounds[0]
    faded = _fade_if_due(state)
    _remember(spec, state, arm, value)
    kernel.update(spec.spec, state, arm, value)
    noticed = _notice(state, arm)
    if noticed:
        _end_trial(state, arm)
    elif on_trial:
        _count_trial(state, arm, value)
    if faded or noticed:
        kernel.refresh_all(spec.spec, state)
    elif held.changes[0] > 0.0 and not spec.late:
        kernel.refresh(spec.spec, state, arm)  # policies learn in whole rewards


register(
    Watching,
    init=_init,
    scores=_scores,
    update=_update,
    refresh=inner_refresh,
    refresh_all=inner_refresh_all,
    indices=_indices,
    randomized=True,
)
