"""One version of a bandit in a ledger: what it knows, how it draws, and that it can be kept."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

import zib
from zib.core.entry import interpreted
from zib.core.validate import InvalidParameterError
from zib.live.book import ACTIVE, PAUSED, RETIRED, fraction
from zib.live.model import Evidence, Model, check_policy, in_flight, limits
from zib.live.outcome import SECOND
from zib.live.settings import Configuration, Settings
from zib.live.statistics import ArmSums, Converted, Statistics, Waiting
from zib.mab import NormalTS, ZIAdaptive

LABELS = ("a", "b", "c")
DAY = 86_400.0
NOW = round(100 * DAY * SECOND)


@pytest.fixture(autouse=True)
def _interpreted():
    """Nothing is compiled: what is tested here is not how fast policies are."""
    with interpreted():
        yield


def configured(policy=None, **settings):
    return Configuration(
        Settings(window=settings.pop("window", 7 * DAY), **settings), policy or NormalTS()
    )


def statistics(rewards, zeros, waiting=(), converted=()):
    """Return statistics with these rewards and zeros of each arm, and rows of the others."""
    arms = ArmSums(len(zeros))
    arms.zero[:] = zeros
    for k, each in enumerate(rewards):
        for amount in each:
            arms.reward(k, amount, 1)
    held = np.array(waiting, dtype=np.int64).reshape(-1, 3)
    seen = np.array(converted, dtype=np.float64).reshape(-1, 6)
    converted = Converted(*seen[:, :4].astype(np.int64).T, *seen[:, 4:].T)
    return Statistics(arms, Waiting(*held.T), converted, {})


def model_of(found, configuration=None, version=1, statuses=(ACTIVE,) * 3):
    return Model.build("shop", configuration or configured(), version, NOW, LABELS, statuses, found)


def rewards_of_three(rng):
    return [rng.lognormal(2.0, 1.0, n).tolist() for n in (5, 40, 25)]


@pytest.fixture
def learned():
    return statistics(rewards_of_three(np.random.default_rng(3)), [200, 460, 500])


def test_a_version_knows_what_a_bandit_knows_that_learned_the_same(learned):
    rewards = rewards_of_three(np.random.default_rng(3))
    bandit = zib.Bandit(ZIAdaptive(), arms=LABELS, seed=1)
    for label, paid, zeros in zip(LABELS, rewards, learned.arms.zero, strict=True):
        bandit.update_many([label] * (len(paid) + zeros), [*paid, *([0.0] * zeros)])
    state, known = bandit.state, model_of(learned, configured(ZIAdaptive())).evidence
    for name in ("pulls", "nonzero", "total", "spread"):
        np.testing.assert_allclose(getattr(known, name), getattr(state, name), rtol=1e-12)
    for name in ("log_total", "log_squares", "negative"):
        np.testing.assert_allclose(getattr(known, name), getattr(state.own, name), rtol=1e-12)


def test_rewards_below_the_inflated_value_are_told_apart():
    arms = ArmSums(1)
    for amount in (-3.0, 2.0, 0.5, -1.0):
        arms.reward(0, amount, 1)
    arms.reward(0, -1.0, -1)
    found = statistics([[]], [0])._replace(arms=arms)
    evidence = Evidence.of(arms, in_flight(configured(), ["a"], found, NOW))
    assert (evidence.negative[0], evidence.total[0]) == (1.0, -0.5)
    assert evidence.log_total[0] == pytest.approx(0.0, abs=1e-15)  # log 2 + log ½
    assert evidence.log_squares[0] == pytest.approx(2 * math.log(2) ** 2)


def test_pending_decisions_are_fractional_zeros(learned):
    width = configured().settings.rules.width
    young, old = NOW // width - 1, NOW // width - 1_000
    # all rewards of the past came within half of the horizon
    rows = [(0, NOW // width - 5_000, b, 10, 100.0, 1_000.0) for b in range(79)]
    found = statistics(
        [[1.0] * 790, [1.0] * 40, [1.0] * 25],
        [9_000, 460, 500],
        [(1, young, 800), (2, old, 300)],
        rows,
    )
    pulls = model_of(found).evidence.pulls
    assert pulls[0] == 9_790
    assert 500 <= pulls[1] < 500 + 0.1 * 800  # hardly any would have been rewarded by now
    assert 825 - 0.01 * 300 < pulls[2] < 825  # nearly all would have been


def test_the_text_of_a_version_is_the_version(learned):
    model = model_of(learned, statuses=(ACTIVE, PAUSED, ACTIVE))
    again = Model.loads(model.dumps(), "shop", model.configuration)
    assert again.active == model.active == (0, 2)
    for mine, theirs in zip(model.evidence, again.evidence, strict=True):
        assert np.array_equal(mine, theirs)
    for eligible in ((0, 2), (2,), (0, 1, 2)):
        assert again.allocation(eligible) == model.allocation(eligible)
    assert [again.draw(f"k{n}", (2, 0)) for n in range(50)] == [
        model.draw(f"k{n}", (0, 2)) for n in range(50)
    ]
    assert len(model.dumps()) < 1_000


def test_realised_shares_are_the_logged_probabilities():
    """The chi-square test rejects with probability 1e-6 if probabilities are exact."""
    found = statistics([[1.0] * 10, [1.0] * 14, [1.0] * 12], [90, 90, 90])
    versions = [model_of(found, configured(least_share=0.1), version=v) for v in range(10)]
    shares = np.array(versions[0].allocation((0, 1, 2)).shares)
    drawn = [model.draw(f"key {n}", (0, 1, 2)) for model in versions for n in range(500)]
    for each in drawn[:100]:
        assert each.probability == shares[each.arm]
    counts = np.bincount([each.arm for each in drawn], minlength=3)
    assert stats.chisquare(counts, shares * len(drawn)).pvalue > 1e-6
    assert shares.min() >= 0.1
    assert shares.sum() == pytest.approx(1.0)


def test_hashed_numbers_are_uniform_and_independent():
    """Each of the two tests rejects with probability 1e-6 if they are."""
    u = np.array(
        [fraction(f"shop\0{version}\0key {n}") for n in range(300) for version in range(20)]
    )
    assert stats.kstest(u, "uniform").pvalue > 1e-6
    pairs = np.histogram2d(u[:-1:2], u[1::2], bins=5)[0].ravel()
    assert stats.chisquare(pairs).pvalue > 1e-6


def test_limits_hold_for_any_number_of_arms():
    settings = Settings(window=1.0, least_share=0.3, largest_share=0.3)
    for n in range(1, 12):
        rails = limits(settings, n)
        assert rails.least_share <= 1.0 / n <= rails.largest_share
        rails.check_room(n)
        rails.check()


def test_a_new_arm_gets_no_more_than_it_may():
    found = statistics([[1.0] * 50, [1.0] * 60, []], [400, 400, 0])
    model = model_of(found, configured(ZIAdaptive(), largest_share=0.4))
    assert model.allocation((0, 1, 2)).shares[2] == pytest.approx(0.4, abs=0.001)
    assert model.allocation((2,)).shares == [1.0]
    assert all(model.draw(f"k{n}", (0, 1)).arm != 2 for n in range(100))


def test_arms_that_rest_keep_their_statistics(learned):
    model = model_of(learned, statuses=(ACTIVE, RETIRED, PAUSED))
    assert model.active == (0,)
    assert model.evidence.nonzero.tolist() == [5, 40, 25]
    assert model.bandit.arms == LABELS


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        (zib.mab.Anytime(spec=zib.mab.ZIUCB(horizon=100, sigma=1.0)), "keep statistics that are"),
        (zib.mab.ZIHeavyUCB(epsilon=1.0, moment=1.0), "keep statistics that are"),
        (zib.mab.ZIPosterior(family="lognormal"), "keep statistics that are sums"),
        (zib.mab.KLUCB(), "take rewards of any size"),
    ],
    ids=lambda each: type(each).__name__ if isinstance(each, tuple) else "",
)
def test_policies_that_sums_do_not_determine_are_refused(policy, reason):
    with pytest.raises(InvalidParameterError, match=f"^`policy` must {reason}"):
        check_policy(policy)


def test_other_policies_are_taken():
    for spec in (ZIAdaptive(), zib.mab.ZITS(horizon=100, sigma=1.0), zib.mab.UCBV()):
        check_policy(spec)
