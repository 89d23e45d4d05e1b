"""Bandits that play while rewards are on their way."""

from __future__ import annotations

import copy
import json
import pickle

import numpy as np
import pytest

from tests.policies import SPECS
from zib import Bandit, InvalidParameterError, SavedStateError, mab
from zib.core import kernel
from zib.core.entry import interpreted
from zib.stats.pending import PendingDecisions

slow = pytest.mark.slow
ARMS = ["red", "green", "blue"]
ADDITIVE = {
    name: spec
    for name, spec in SPECS.items()
    if kernel.is_additive(spec) and not getattr(spec, "needs_true_sizes", False)
}


@pytest.fixture(autouse=True)
def _without_compiling():
    with interpreted():
        yield


def taught(spec=None, n=200, seed=3, **options) -> Bandit:
    bandit = Bandit(spec, arms=ARMS, seed=seed, **options)
    rng = np.random.default_rng(seed)
    low, high = getattr(bandit.spec, "reward_range", (-np.inf, np.inf))
    paid = np.clip(rng.gamma(2.0, 0.7, n), max(low, 0.01), min(high, 4.9))
    bandit.update_many(rng.choice(ARMS, n), np.where(rng.random(n) < 0.3, paid, 0.0))
    return bandit


@pytest.mark.parametrize("name", ["zi-adaptive", "zi-ucb", "zi-kl", "ucb-v"])
def test_zeros_in_flight_are_as_good_as_learned_ones(name):
    """Whole numbers of them: the bandit plays as one that had learned these zeros."""
    flying, learned = taught(SPECS[name]), taught(SPECS[name])
    flying.set_pending({"red": 40, "blue": 7})
    learned.update_many(["red"] * 40 + ["blue"] * 7, [0.0] * 47)
    learned.remove_arm("green")  # everything derived is computed anew
    flying.remove_arm("green")
    assert flying.indices() == pytest.approx(learned.indices(), rel=1e-9)
    assert flying.propensities(100) == learned.propensities(100)
    assert flying.means() == learned.means()
    assert sum(flying.pulls.values()) == sum(learned.pulls.values()) - 47


def test_nothing_in_flight_is_what_was_learned_bit_by_bit():
    bandit, untouched = taught(), taught()
    bandit.set_pending([3.7, 1e6, 0.001], amounts=[1.5, 0.5, 1.0])
    assert bandit.pending == {"red": 3.7, "green": 1e6, "blue": 0.001}
    assert bandit.indices() != untouched.indices()
    for each in (bandit, untouched):
        each.update("red", 2.5)
        each.revise("red", 2.5, 0.0)
    bandit.set_pending(None)
    assert bandit.dumps() == untouched.dumps()
    bandit.set_pending(np.zeros(3))
    assert bandit.dumps() == untouched.dumps()
    assert [bandit.select() for _ in range(20)] == [untouched.select() for _ in range(20)]


def test_rewards_are_learned_while_decisions_are_in_flight():
    """Setting what is in flight before or after rewards are learned, or a copy, is all the same."""
    early, late = taught(), taught()
    early.set_pending([5.5, 0.0, 2.25], amounts=[1.0, 1.25, 1.0])
    early.select()
    late.select()
    for each in (early, late):
        each.update("green", 4.0)
        each.update_many(["red", "blue"], [0.0, 1.0])
    late.set_pending({"red": 5.5, "blue": 2.25}, amounts={"green": 1.25})
    others = [
        late,
        copy.copy(early),
        pickle.loads(pickle.dumps(early)),
        Bandit.loads(early.dumps()),
    ]
    for other in others:
        other._rng.bit_generator.state = early.rng.bit_generator.state
        assert other.indices() == early.indices()
        assert other.dumps() == early.dumps()
        assert other.select_many(5) == copy.copy(early).select_many(5)


def test_what_is_in_flight_goes_with_its_arm_and_adds_up():
    one, two = taught(seed=1), taught(seed=2)
    one.set_pending({"red": 5.5, "green": 1.0})
    two.set_pending({"green": 2.0}, amounts={"green": 2.0})
    two.add_arm("white")
    two.set_pending({"green": 2.0, "white": 0.5})
    start = taught(seed=2)
    start.set_pending({"green": 0.5})
    both = copy.copy(one)
    both.merge(two)
    assert both.pending == {"red": 5.5, "green": 3.0, "blue": 0.0, "white": 0.5}
    both.remove_arm("green")
    both.add_arm("green")
    assert both.pending["green"] == 0.0
    two.merge(one, since=start)
    assert two.pending == {"red": 5.5, "green": 2.5, "blue": 0.0, "white": 0.5}


def test_amounts_are_multiplied():
    bandit, larger = Bandit(arms=ARMS, seed=1), Bandit(arms=ARMS, seed=1)
    rng = np.random.default_rng(5)
    for k, arm in enumerate(ARMS):
        amounts = rng.lognormal(k, 1.0, 40)
        bandit.update_many([arm] * 40, amounts)
        larger.update_many([arm] * 40, amounts * (3.0 if arm == "red" else 1.0))
    for each, factor in ((bandit, 3.0), (larger, 1.0)):
        each.set_pending({"red": 10.0}, amounts={"red": factor})
    assert bandit.indices() == pytest.approx(larger.indices(), rel=1e-9)
    within = Bandit(mab.KLUCB(scale=5.0), arms=ARMS, seed=1)
    within.update_many(ARMS, [4.0, 2.0, 0.0])
    within.set_pending(None, amounts=[2.0, 2.0, 2.0])
    assert [each.magnitude for each in within.means().values()][:2] == [5.0, 4.0]


def test_weighted_pulls_are_evidence():
    bandit = Bandit(arms=ARMS, seed=1, largest_share=0.1, evidence=100)
    bandit.update_many(["red"] * 200, [0.0, 1.0] * 100)
    bandit.update("green", 9.0)
    bandit.update("blue", 9.0)
    assert bandit.propensities()["green"] <= 0.1 + 1e-12
    bandit.set_pending({"green": 99.5, "blue": 98.5})
    shares = bandit.propensities()
    assert shares["blue"] <= 0.1 + 1e-12
    assert bandit.guard_rails.evidence == 100
    bandit.set_pending({"green": 0.0})
    bandit.set_pending({"green": 99.5})
    bandit.update_many(["green"] * 50, [9.0] * 50)
    assert bandit.propensities()["green"] > 0.5


@slow
@pytest.mark.parametrize("name", ADDITIVE)
def test_every_policy_that_sums_plays_with_fractions(name):
    """The tiniest zeros, and many: scores are numbers, and the state is not touched."""
    spec = ADDITIVE[name]
    for n in (0, 5, 200):
        bandit = taught(spec, n=n)
        before = bandit.dumps()
        for zeros in ([1e-12, 1e-3, 0.5], [1e7, 0.3, 40.0]):
            bandit.set_pending(zeros)
            assert all(np.isfinite(x) or x == np.inf for x in bandit.indices().values())
            assert sum(bandit.propensities(20).values()) == pytest.approx(1.0)
            assert all(x.prob >= 0.0 for x in bandit.means().values())
            Bandit.loads(bandit.dumps())
            assert Bandit.loads(bandit.dumps()).indices() == bandit.indices()
        if n == 200:  # the arm with ten million zeros is not worth playing
            assert bandit.propensities(200)["red"] < 0.5
        bandit.set_pending(None)
        assert bandit.dumps() == before


def test_an_estimate_is_taken_as_it_is():
    bandit = Bandit(arms=ARMS, seed=1)
    pending = PendingDecisions(7.0, [*reversed(ARMS)])
    for at in range(10):
        pending.decide("green", float(at), n=100)
    pending.reward("green", 2.0, 1.0, 20.0)
    bandit.update("green", 20.0)
    found = pending.estimate(10.0)
    bandit.set_pending(found)
    zeros = float(found.zeros[found.arms.index("green")])
    assert bandit.pending == {"red": 0.0, "green": zeros, "blue": 0.0}
    assert bandit.means()["green"].prob == pytest.approx(1.0 / (1.0 + zeros))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda b: b.set_pending([1.0]), "`zeros` must be numbers, one per arm"),
        (lambda b: b.set_pending({"z": 1.0}), "`zeros` must be one of 'red'"),
        (lambda b: b.set_pending([-1.0, 0.0, 0.0]), r"`zeros` must lie in \[0, "),
        (lambda b: b.set_pending({"red": np.nan}), r"`zeros` must lie in \[0, "),
        (lambda b: b.set_pending(None, amounts=[0.0, 1.0, 1.0]), "`amounts` must lie in"),
        (lambda b: b.set_pending("many"), "`zeros` must hold numbers"),
        (
            lambda b: b.set_pending(PendingDecisions(1.0, ARMS).estimate(0.0), amounts=[1, 1, 1]),
            "`amounts` must be None where `zeros` is an estimate",
        ),
        (
            lambda b: b.set_pending(PendingDecisions(1.0, ["z"]).estimate(0.0)),
            "`amounts` must be one of|`zeros` must be one of",
        ),
    ],
)
def test_bad_arguments_are_refused_and_change_nothing(call, message):
    bandit = taught()
    bandit.set_pending([1.0, 2.0, 3.0])
    before = bandit.dumps()
    with pytest.raises(InvalidParameterError, match=message):
        call(bandit)
    assert bandit.dumps() == before


def test_policies_without_sums_refuse():
    bandit = Bandit(mab.Discounted(mab.ZIUCB(horizon=100, sigma=1.0), half_life=50), n_arms=2)
    with pytest.raises(InvalidParameterError, match="`set_pending` needs statistics that are sums"):
        bandit.set_pending([1.0, 2.0])


@pytest.mark.parametrize("held", [3, {"zeros": [1.0]}, {"zeros": [-1.0] * 3}, {"other": 1}])
def test_a_file_with_an_impossible_view_is_refused(held):
    bandit = taught()
    content = json.loads(bandit.dumps())
    content["pending"] = held
    with pytest.raises(SavedStateError):
        Bandit.loads(json.dumps(content))
