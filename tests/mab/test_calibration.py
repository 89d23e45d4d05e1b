"""Posteriors are calibrated: the truth stands anywhere among draws of it with the same probability.

Many arms, each a data set of its own: a truth from the prior, rewards given the truth, nineteen
draws given the rewards. If the posterior is exact, the rank of the truth among the draws is
uniform on 0, …, 19 (Cook, Gelman and Rubin 2006; Talts et al. 2018). Where a prior is flat in the
logarithm of a scale, the same holds for any fixed truth; where it is flat in a location, for the
location alone, so there every reward is paid and known to be.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import zib
from zib import mab
from zib.core import kernel
from zib.core.entry import interpreted

ARMS, PULLS, DRAWS = 1_500, 12, 19


def ranks(spec, truth: np.ndarray, rewards: np.ndarray, *, compiled: bool = False) -> np.ndarray:
    """Return the ranks of p·mu among draws of it; `rewards` has one column per arm.

    Arms that never paid are left out where they borrow from the others. What is left is chosen by
    the data alone, so ranks are still uniform.
    """
    n_arms = truth.size
    if compiled:
        bandit = zib.Bandit(spec, n_arms=n_arms, seed=0)
        for row in rewards:
            bandit.update_many(range(n_arms), row)
        state = bandit.state
    else:
        state = kernel.init(spec, n_arms)
        for row in rewards:
            for arm in range(n_arms):
                kernel.update(spec, state, arm, float(row[arm]))
    rng, out = np.random.default_rng(1), np.zeros(n_arms)
    found = np.zeros(n_arms, dtype=int)
    with interpreted():
        for _ in range(DRAWS):
            kernel.scores(spec, state, rng, out)
            found += out < truth
    return found[state.nonzero > 0] if hasattr(spec, "unseen") else found


def paid(rng, shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Draw probabilities of paying from their prior, and which pulls pay."""
    probs = rng.random(shape[1])
    return probs, rng.random(shape) < probs


def gaussian(rng, shape):
    probs, pays = paid(rng, shape)
    return probs * 2.0, np.where(pays, rng.normal(2.0, 1.0, shape), 0.0)


def exponential(rng, shape):
    probs, pays = paid(rng, shape)
    return probs * 2.0, np.where(pays, rng.exponential(2.0, shape), 0.0)


def gamma(rng, shape):
    probs, pays = paid(rng, shape)
    return probs * 2.0, np.where(pays, rng.gamma(0.7, 2.0 / 0.7, shape), 0.0)


def exponential_from_prior(rng, shape):
    means = 2.0 / rng.gamma(3.0, 1.0, shape[1])
    probs, pays = paid(rng, shape)
    return probs * means, np.where(pays, rng.exponential(means, shape), 0.0)


def stable(stability):
    def world(rng, shape):
        x = stats.levy_stable.rvs(stability, 0.0, loc=2.0, size=shape, random_state=rng)
        return np.full(shape[1], 2.0), x

    return world


def lottery(rng, shape):
    """Rewards 0, 1 and 5 with probabilities from a Dirichlet law."""
    q = rng.dirichlet([1.0, 0.5, 0.5], shape[1])
    u = rng.random(shape)
    return q @ [0.0, 1.0, 5.0], np.where(u < q[:, 0], 0.0, np.where(u < q[:, :2].sum(1), 1.0, 5.0))


def coin(rng, shape):
    probs, pays = paid(rng, shape)
    return probs, pays.astype(float)


def always_gaussian(rng, shape):
    return np.full(shape[1], 2.0), rng.normal(2.0, 1.0, shape)


PAYS = {"alpha": 1e9, "beta": 1e-9}  # a prior that is sure of it

EXACT = {
    "posterior, sigma known": (mab.ZIPosterior(sigma=1.0, **PAYS), always_gaussian),
    "posterior, exponential": (mab.ZIPosterior(family="exponential"), exponential),
    "posterior, gamma": (mab.ZIPosterior(family="gamma", shape=0.7), gamma),
    "exponential": (mab.ZIExponentialTS(), exponential),
    "exponential, proper": (mab.ZIExponentialTS(shape=3.0, rate=2.0), exponential_from_prior),
    "stable, Gaussian": (mab.ZIStableTS(sigma=0.5**0.5, stability=2.0, **PAYS), always_gaussian),
    "outcomes": (mab.OutcomesPosterior(values=(1.0, 5.0)), lottery),
    "normal": (mab.NormalTS(), always_gaussian),
    "beta": (mab.BetaTS(), coin),
}


def is_uniform(found: np.ndarray) -> bool:
    """Whether a χ² test of equal frequencies, wrong with probability 1e-4, lets it pass."""
    return stats.chisquare(np.bincount(found, minlength=DRAWS + 1)).pvalue > 1e-4


@pytest.mark.parametrize("name", EXACT)
def test_exact_posteriors_have_uniform_ranks(name) -> None:
    spec, world = EXACT[name]
    truth, rewards = world(np.random.default_rng(5), (PULLS, ARMS))
    assert is_uniform(ranks(spec, truth, rewards))


def test_another_prior_is_found_out() -> None:
    """Exponential rewards, the posterior for a prior flat in the rate: draws are too small."""
    truth, rewards = exponential(np.random.default_rng(5), (PULLS, ARMS))
    assert not is_uniform(ranks(mab.ZIExponentialTS(shape=1.0), truth, rewards))


def test_stable_posterior_of_few_rewards_has_uniform_ranks() -> None:
    truth, rewards = stable(1.5)(np.random.default_rng(6), (4, 500))
    assert is_uniform(ranks(mab.ZIStableTS(sigma=1.0, stability=1.5, **PAYS), truth, rewards))


@pytest.mark.slow
@pytest.mark.parametrize("pulls", [2, 6, 30, 60, 200])
@pytest.mark.parametrize("stability", [1.1, 1.3, 1.5, 1.8])
def test_stable_posterior_has_uniform_ranks(stability, pulls) -> None:
    """Up to 32 rewards are kept, of more there are sums."""
    truth, rewards = stable(stability)(np.random.default_rng(7), (pulls, 2_000))
    spec = mab.ZIStableTS(sigma=1.0, stability=stability, **PAYS)
    assert is_uniform(ranks(spec, truth, rewards, compiled=True))


# ------------------------------------------------------------ wider than the posterior, or clipped


def alike(rng, shape):
    """Arms whose probabilities and magnitudes have a common law."""
    means = rng.normal(4.0, 0.5, shape[1])
    probs = rng.beta(4.0, 4.0, shape[1])
    pays = rng.random(shape) < probs
    return probs * means, np.where(pays, rng.normal(means, 1.0, shape), 0.0)


def lognormal(rng, shape):
    probs, pays = paid(rng, shape)
    return probs * 2.0, np.where(pays, 2.0 * rng.lognormal(-0.32, 0.8, shape), 0.0)


WIDE = {
    # Student's t although the scatter of a thousand arms together is known; strangers
    "posterior": (mab.ZIPosterior(), gaussian),
    "posterior, lognormal": (mab.ZIPosterior(family="lognormal"), lognormal),
    # priors fitted to the arms, which count for twenty rewards at most; strangers
    "learned": (mab.ZIPosterior(prior="learned"), alike),
    "learned, sigma known": (mab.ZIPosterior(sigma=1.0, prior="learned"), alike),
    # twice the variance, clipped from above
    "zi-ts": (mab.ZITS(horizon=1_000_000, sigma=1.0), gaussian),
    # clipped from above
    "mots": (mab.MOTS(horizon=1_000_000, sigma=1.0), always_gaussian),
}


@pytest.mark.parametrize("name", WIDE)
def test_other_posteriors_cover_at_least_as_often_as_they_say(name) -> None:
    """The truth is within the range of nineteen draws nine times in ten, or more often."""
    spec, world = WIDE[name]
    arms = 250 if getattr(spec, "learns_late", False) else ARMS
    truth, rewards = world(np.random.default_rng(8), (PULLS, arms))
    found = ranks(spec, truth, rewards)
    inside = int(((found > 0) & (found < DRAWS)).sum())
    # six one-sided tests with error probability 1e-4 each
    assert stats.binomtest(inside, found.size, 0.9, alternative="less").pvalue > 1e-4
