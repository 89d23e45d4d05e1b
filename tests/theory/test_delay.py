"""The UCB policy with a known distribution of delays: its index, its level, its regret."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import lambertw

from zib import InvalidParameterError, theory


def divergence(a, q):
    return q - a + np.where(a > 0, a * np.log(np.where(a > 0, a, 1.0) / q), 0.0)


def test_the_index_is_where_the_divergence_reaches_the_level():
    total = np.array([0.0, 1e-9, 0.5, 3.0, 40.0, 900.0, 1e8])[:, None, None]
    n = np.array([0.01, 50.0, 1e9])[:, None]
    level = np.array([1e-8, 0.1, 3.0, 50.0, 1e4])
    found = theory.poisson_kl_upper(total, n, level)
    a = total / n
    assert (found >= a).all()
    clear = np.broadcast_to(level > 1e-6 * total, found.shape)  # else nothing is left of the digits
    reached = n * divergence(a, found) / level
    np.testing.assert_allclose(reached[clear], 1.0, rtol=1e-6)
    c = (level / 40.0)[2:4]
    ratio = -lambertw(-np.exp(-1.0 - c), -1).real  # SciPy's solution of z − log z = 1 + c
    np.testing.assert_allclose(found[4, 1, 2:4], ratio * 40.0 / 50.0, rtol=1e-10)
    assert theory.poisson_kl_upper(1.0, 0.0, 2.0) == np.inf
    assert theory.poisson_kl_upper(7.0, 10.0, 0.0) == pytest.approx(0.7)


def test_the_level_is_as_small_as_it_may_be():
    t = np.array([2.0, 100.0, 1e4, 1e12])
    level = theory.delayed_level(t)
    failing = np.e * np.ceil(level * np.log(t)) * np.exp(-level)
    assert (failing <= 1.0 / t * (1 + 1e-9)).all()
    assert (failing >= 0.5 / t).all()


def test_the_bound_is_the_formula():
    found = theory.delayed_regret_bound([2.0, 1.0], [0.1, 0.1], 1e4, bound=4.0, mean_delay=30.0)
    x = 0.025 / np.log(2.0)
    assert divergence(x, 0.05) == pytest.approx(divergence(x, 0.025))
    wanted = 0.1 * (theory.delayed_level(1e4) / divergence(x, 0.05) + 33.0)
    assert found == pytest.approx(wanted, rel=1e-12)
    with pytest.raises(InvalidParameterError, match="`bound` must be at least"):
        theory.delayed_regret_bound([2.0, 1.0], [0.1, 0.1], 1e4, bound=1.0, mean_delay=0.0)


WINDOW = 400
PROBS, MEANS = np.array([0.3, 0.2, 0.1]), np.array([0.5, 0.5, 0.6])  # amounts in [0, 1]
DELAYS = {
    "geometric": np.diff(1.0 - 0.98 ** np.arange(WINDOW + 1)) / (1.0 - 0.98**WINDOW),
    "uniform": np.full(WINDOW, 1.0 / WINDOW),
    "none": np.eye(WINDOW)[0],
}


def played(name: str, rounds: int, runs: int, rng: np.random.Generator):
    """Play the policy; return its regret and, per round, S − r·N and r − index of every arm."""
    mass = DELAYS[name]
    f = np.cumsum(mass)  # F at ages 1, 2, …, WINDOW
    r = PROBS * MEANS
    level = theory.delayed_level(rounds)
    seen, n_old = np.zeros((runs, 3)), np.zeros((runs, 3))
    recent = np.zeros((WINDOW, runs, 3))  # decisions of the last rounds, a ring
    coming = np.zeros((WINDOW + 1, runs, 3))  # rewards by the round they come in, a ring
    pulls = np.zeros((runs, 3))
    off, missed = np.zeros((rounds, 3)), np.zeros((rounds, 3))
    each = np.arange(runs)
    for t in range(rounds):
        slot = t % (WINDOW + 1)
        seen += coming[slot]
        coming[slot] = 0.0
        ages = (t - 1 - np.arange(WINDOW)) % WINDOW  # the ring's row of age 1, 2, …
        n = n_old + np.tensordot(f, recent[ages], axes=1)
        index = theory.poisson_kl_upper(seen, n, level)
        off[t] = (seen - r * n).mean(axis=0)
        missed[t] = (index < r).mean(axis=0)
        arm = np.argmax(index + 1e-9 * rng.random(index.shape), axis=1)
        n_old += recent[t % WINDOW]  # these are as old as the window now
        recent[t % WINDOW] = 0.0
        recent[t % WINDOW, each, arm] = 1.0
        pulls[each, arm] += 1.0
        delay = 1 + rng.choice(WINDOW, size=runs, p=mass)
        # amounts that are 0 or 1 have the largest variance
        paid = (rng.random(runs) < PROBS[arm]) * (rng.random(runs) < MEANS[arm])
        coming[(t + delay) % (WINDOW + 1), each, arm] += paid
    return pulls @ (r.max() - r), off, missed


@pytest.mark.slow
@pytest.mark.parametrize("name", DELAYS)
def test_the_regret_is_below_the_bound_and_rewards_are_counted_without_bias(name, seed):
    """The mean over 200 runs of S − r·N has a standard error below √(r·T/200) = 1.6; 6 of these
    are exceeded in some round with a probability below 1e-5."""
    rounds, runs = 3_000, 200
    regret, off, missed = played(name, rounds, runs, np.random.default_rng(seed))
    tau = float((1.0 - np.cumsum(DELAYS[name])).sum())
    bound = theory.delayed_regret_bound(MEANS, PROBS, rounds, bound=1.0, mean_delay=tau)
    assert regret.mean() < bound
    if name == "none":
        assert tau == 0.0
    else:
        without, _, _ = played("none", rounds, runs, np.random.default_rng(seed + 1))
        gaps = (PROBS * MEANS).max() - PROBS * MEANS
        # what the delay costs is at most what the theorem adds; 3 is four standard errors
        assert regret.mean() - without.mean() < gaps.sum() * tau + 3.0
    assert np.abs(off).max() < 9.6
    assert missed.mean() <= 1.0 / rounds
