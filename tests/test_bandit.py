from __future__ import annotations

import copy
import json
import math
import pickle
import warnings

import numpy as np
import pytest
from scipy import stats

import zib
from tests.policies import ONLINE
from zib import InvalidParameterError, SavedStateError, mab
from zib.core import saved

UCB = mab.ZIUCB(horizon=1000, sigma=1.0)
TS = mab.ZITS(horizon=1000, sigma=1.0)


def trained(spec=UCB, n=60, seed=3, **options) -> zib.Bandit:
    bandit = zib.Bandit(spec, arms=["a", "b", "c"], seed=seed, **options)
    rng = np.random.default_rng(seed)
    for _ in range(n):
        arm = bandit.select()
        paid = rng.random() < 0.4
        bandit.update(arm, bandit.inflated + (2.0 + rng.random() if paid else 0.0))
    return bandit


def same(a: zib.Bandit, b: zib.Bandit) -> bool:
    return a.dumps() == b.dumps()


# --------------------------------------------------------------------------------- construction


def test_needs_exactly_one_of_arms_and_n_arms() -> None:
    with pytest.raises(InvalidParameterError, match="exactly one of `arms` and `n_arms`"):
        zib.Bandit(UCB)
    with pytest.raises(InvalidParameterError, match="exactly one"):
        zib.Bandit(UCB, arms=["a"], n_arms=1)


@pytest.mark.parametrize("n_arms", [0, -1, 1.5, True])
def test_n_arms_out_of_range(n_arms) -> None:
    with pytest.raises(InvalidParameterError, match="`n_arms` must"):
        zib.Bandit(UCB, n_arms=n_arms)


def test_labels_must_differ_and_exist() -> None:
    with pytest.raises(InvalidParameterError, match="different"):
        zib.Bandit(UCB, arms=["a", "a"])
    with pytest.raises(InvalidParameterError, match="at least one"):
        zib.Bandit(UCB, arms=[])


def test_unregistered_spec_and_true_size_are_refused() -> None:
    with pytest.raises(TypeError, match="not a registered policy"):
        zib.Bandit((1, 2), n_arms=2)
    with pytest.raises(InvalidParameterError, match="for simulations"):
        zib.Bandit(mab.UCB(horizon=10, sigma=1.0, size="true"), n_arms=2)


def test_any_hashable_label() -> None:
    bandit = zib.Bandit(TS, arms=[("blue", 3), 7, None, "x", 2.5], seed=1)
    for _ in range(20):
        bandit.update(bandit.select(), 1.0)
    assert sum(bandit.pulls.values()) == 20


# ----------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    "reward", [math.nan, math.inf, -math.inf, 1e300, -1e300, "1", None, [1.0], 1j]
)
def test_bad_rewards_change_nothing(reward) -> None:
    bandit = trained()
    before = bandit.dumps()
    with pytest.raises(InvalidParameterError, match="`reward` must be a finite number"):
        bandit.update("a", reward)
    with pytest.raises((InvalidParameterError, ValueError, TypeError)):
        bandit.update_many(["a", "b"], [1.0, reward])
    assert bandit.dumps() == before


@pytest.mark.parametrize("arm", ["z", 0, None, ["a"]])
def test_unknown_arms_change_nothing(arm) -> None:
    bandit = trained()
    before = bandit.dumps()
    with pytest.raises(InvalidParameterError, match="`arm` must be one of 'a', 'b', 'c'; got"):
        bandit.update(arm, 1.0)
    with pytest.raises(InvalidParameterError):
        bandit.update_many(["a", arm], [1.0, 1.0])
    with pytest.raises(InvalidParameterError):
        bandit.remove_arm(arm)
    assert bandit.dumps() == before


@pytest.mark.usefixtures("interpreting")
def test_rewards_outside_the_range_of_the_policy_are_refused() -> None:
    bandit = zib.Bandit(mab.BetaTS(scale=1.0), n_arms=2, seed=0)
    with pytest.raises(
        InvalidParameterError, match=r"`reward` must be a finite number in \[0, 1\]"
    ):
        bandit.update(0, 3.5)
    bandit = zib.Bandit(mab.ZIExponentialTS(), n_arms=2, seed=0)
    with pytest.raises(InvalidParameterError):
        bandit.update(0, -1.0)


def test_batch_of_wrong_length() -> None:
    with pytest.raises(InvalidParameterError, match="one per arm"):
        trained().update_many(["a", "b"], [1.0])


# ------------------------------------------------------------------------------------ decisions


@pytest.mark.usefixtures("_both_ways")
@pytest.mark.parametrize("name", ONLINE)
def test_indices_preview_the_next_decision(name) -> None:
    bandit = zib.Bandit(ONLINE[name], n_arms=4, seed=2)
    for t in range(40):
        scores = bandit.indices()
        best = [a for a, s in scores.items() if s == max(scores.values())]
        arm = bandit.select()
        assert arm in best
        bandit.update(arm, 0.0 if t % 3 else 1.0)


def test_zero_moves_the_occurrence_part_only() -> None:
    bandit = trained(TS)
    before = bandit.means()["a"]
    bandit.update("a", 0.0)
    after = bandit.means()["a"]
    assert after.magnitude == before.magnitude
    assert after.magnitude_interval == before.magnitude_interval
    assert after.prob < before.prob


def test_propensities_are_exact_for_index_policies_and_share_ties() -> None:
    bandit = zib.Bandit(UCB, n_arms=4, seed=0)
    found = bandit.propensities()
    assert found.exact
    assert found == dict.fromkeys(range(4), 0.25)
    for arm in range(4):
        bandit.update(arm, 1.0 if arm == 2 else 0.0)
    assert bandit.propensities()[2] in (0.0, 1.0)
    assert sum(bandit.propensities().values()) == pytest.approx(1.0)


@pytest.mark.usefixtures("interpreting")
def test_propensities_of_epsilon_greedy_are_exact() -> None:
    bandit = zib.Bandit(mab.EpsilonGreedy(epsilon=0.2), n_arms=4, seed=0)
    bandit.update_many([0, 1, 2, 3], [0.0, 1.0, 0.5, 1.0])
    found = bandit.propensities()
    assert found.exact
    assert list(found.values()) == pytest.approx([0.05, 0.45, 0.05, 0.45])
    chosen = [bandit.select() for _ in range(20_000)]
    for arm, prob in found.items():
        # four proportions at 5 standard errors: error probability below 3e-6
        share = chosen.count(arm) / len(chosen)
        assert abs(share - prob) < 5 * math.sqrt(prob * (1 - prob) / len(chosen))


def test_monte_carlo_propensities_state_their_error_and_disturb_nothing() -> None:
    bandit = trained(TS, n=300)
    twin = zib.Bandit.loads(bandit.dumps())
    found = bandit.propensities(draws=20_000)
    assert not found.exact
    assert sum(found.values()) == pytest.approx(1.0)
    assert same(bandit, twin)
    chosen = [twin.select() for _ in range(20_000)]
    for arm, prob in found.items():
        # difference of two proportions at 6 joint standard errors: below 1e-8
        error = math.hypot(found.error, math.sqrt(prob * (1 - prob) / len(chosen)) + 1e-4)
        assert abs(chosen.count(arm) / len(chosen) - prob) < 6 * error


@pytest.mark.usefixtures("interpreting")
def test_doubling_an_index_policy_keeps_exact_propensities() -> None:
    bandit = zib.Bandit(mab.Anytime(spec=UCB), n_arms=3, seed=0)
    assert bandit.propensities().exact


def test_reuse_with_the_same_seed_repeats_and_another_differs() -> None:
    def choices(seed):
        bandit = zib.Bandit(TS, n_arms=5, seed=seed)
        out = []
        for t in range(100):
            out.append(bandit.select())
            bandit.update(out[-1], float(t % 4 == 0))
        return out

    assert choices(1) == choices(1)
    assert choices(1) != choices(2)


# ------------------------------------------------------------------------------------- learning


def test_batches_equal_single_updates_and_order_does_not_matter_for_sums() -> None:
    arms, rewards = ["a", "b", "a", "c"], [0.0, 2.0, 4.0, 0.0]
    one, many, late = (zib.Bandit(UCB, arms=list("abc"), seed=0) for _ in range(3))
    for arm, reward in zip(arms, rewards):
        one.update(arm, reward)
    many.update_many(arms, rewards)
    late.update_many(arms[::-1], rewards[::-1])
    assert same(one, many)
    assert same(one, late)


def test_revising_a_zero_into_a_sale() -> None:
    bandit = zib.Bandit(UCB, arms=list("ab"), seed=0)
    bandit.update_many(["a", "a", "b"], [0.0, 0.0, 1.0])
    bandit.revise("a", 0.0, 8.0)
    wanted = zib.Bandit(UCB, arms=list("ab"), seed=0)
    wanted.update_many(["a", "a", "b"], [0.0, 8.0, 1.0])
    assert same(bandit, wanted)
    bandit.revise("a", 8.0, 0.0)
    assert bandit.means()["a"].nonzero == 0


def test_revising_what_was_never_learned_is_refused() -> None:
    bandit = zib.Bandit(UCB, arms=list("ab"), seed=0)
    bandit.update("a", 1.0)
    before = bandit.dumps()
    for arm, old in (("a", 0.0), ("b", 1.0), ("b", 0.0)):
        with pytest.raises(InvalidParameterError, match="`old` must be a reward learned"):
            bandit.revise(arm, old, 2.0)
    assert bandit.dumps() == before


@pytest.mark.usefixtures("interpreting")
def test_order_dependent_policies_refuse_to_merge_and_revise() -> None:
    bandit = zib.Bandit(mab.ZIHeavyUCB(epsilon=1.0, moment=2.0), n_arms=2, seed=0)
    bandit.update(0, 1.0)
    with pytest.raises(InvalidParameterError, match="sums over rewards"):
        bandit.revise(0, 1.0, 2.0)
    with pytest.raises(InvalidParameterError, match="sums over rewards"):
        bandit.merge(bandit)


def test_merge_adds_up_to_the_bit_for_binary_fractions() -> None:
    whole, left, right = (zib.Bandit(UCB, arms=list("abc"), seed=0) for _ in range(3))
    rng = np.random.default_rng(0)
    for i in range(64):
        arm, reward = "abc"[i % 3], float(rng.integers(0, 4)) * 0.5
        whole.update(arm, reward)
        (left if i % 2 else right).update(arm, reward)
    left.merge(right)
    for name in ("pulls", "nonzero", "total"):
        assert np.array_equal(getattr(left.state, name), getattr(whole.state, name))
    assert np.allclose(left.state.spread, whole.state.spread, rtol=1e-12)
    assert left.indices() == pytest.approx(whole.indices())


def test_merge_since_a_common_start_counts_it_once() -> None:
    start = trained(UCB)
    left, right = (zib.Bandit.loads(start.dumps(), seed=s) for s in (1, 2))
    whole = zib.Bandit.loads(start.dumps())
    left.update_many(list("ab"), [3.0, 0.0])
    right.update_many(list("bc"), [1.0, 2.0])
    whole.update_many(list("abbc"), [3.0, 0.0, 1.0, 2.0])
    left.merge(right, since=start)
    for name in ("pulls", "nonzero", "total", "spread"):
        assert np.allclose(getattr(left.state, name), getattr(whole.state, name), rtol=1e-12)


def test_merge_brings_new_arms_and_refuses_other_policies() -> None:
    left, right = zib.Bandit(UCB, arms=list("ab"), seed=0), zib.Bandit(UCB, arms=list("bc"), seed=0)
    left.update("a", 1.0)
    right.update_many(list("bc"), [2.0, 0.0])
    left.merge(right)
    assert left.pulls == {"a": 1, "b": 1, "c": 1}
    with pytest.raises(InvalidParameterError, match="same policy"):
        left.merge(zib.Bandit(TS, arms=list("ab")))


def test_arms_come_and_go() -> None:
    bandit = trained(UCB)
    kept = bandit.means()["c"]
    bandit.add_arm("d")
    assert bandit.select() == "d"
    bandit.update("d", 0.0)
    bandit.remove_arm("a")
    assert bandit.arms == ("b", "c", "d")
    assert bandit.means()["c"] == kept
    with pytest.raises(InvalidParameterError, match="must be new"):
        bandit.add_arm("b")
    bandit.remove_arm("b")
    bandit.remove_arm("c")
    with pytest.raises(InvalidParameterError, match="the last"):
        bandit.remove_arm("d")


def test_horizon_exceeded_warns_once_and_goes_on() -> None:
    bandit = zib.Bandit(mab.ZITS(horizon=5, sigma=1.0), n_arms=2, seed=0)
    bandit.update_many([0, 1] * 2 + [0], [1.0] * 5)
    with pytest.warns(UserWarning, match="horizon of 5"):
        bandit.update(0, 1.0)
    for _ in range(5):  # warnings are errors here: a second one would fail the test
        bandit.update(bandit.select(), 1.0)


@pytest.mark.usefixtures("interpreting")
def test_doubling_restarts_and_never_warns() -> None:
    bandit = zib.Bandit(mab.Anytime(spec=mab.ZITS(horizon=4, sigma=1.0)), n_arms=2, seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            bandit.update(bandit.select(), 1.0)
        assert sum(bandit.pulls.values()) == 3
        bandit.update(bandit.select(), 1.0)
        assert sum(bandit.pulls.values()) == 0  # forgotten at T = 4, the next stretch is 8
        for _ in range(7):
            bandit.update(bandit.select(), 1.0)
        assert sum(bandit.pulls.values()) == 7


def test_inflated_value_other_than_zero() -> None:
    plain, shifted = trained(UCB), trained(UCB, inflated=-3.0)
    for arm in "abc":
        a, b = plain.means()[arm], shifted.means()[arm]
        assert (a.pulls, a.nonzero, a.prob) == (b.pulls, b.nonzero, b.prob)
        assert b.magnitude == pytest.approx(a.magnitude - 3.0)
        assert b.reward == pytest.approx(a.reward - 3.0)
        assert b.reward_interval == pytest.approx([x - 3.0 for x in a.reward_interval])


# ---------------------------------------------------------------------------------------- means


def test_means_of_hand_computed_data() -> None:
    bandit = zib.Bandit(UCB, arms=list("ab"), seed=0)
    bandit.update_many(list("aaaaa"), [0.0, 2.0, 0.0, 4.0, 0.0])
    found = bandit.means(level=0.9)["a"]
    assert (found.pulls, found.nonzero, found.prob, found.magnitude) == (5, 2, 0.4, 3.0)
    assert found.reward == pytest.approx(1.2)
    exact = stats.binomtest(2, 5).proportion_ci(0.9, method="exact")
    assert found.prob_interval == pytest.approx((exact.low, exact.high))
    t = stats.t.interval(0.9, 1, loc=3.0, scale=stats.sem([2.0, 4.0]))
    assert found.magnitude_interval == pytest.approx(t)
    untried = bandit.means()["b"]
    assert math.isnan(untried.prob)
    assert untried.prob_interval == (0.0, 1.0)


@pytest.mark.parametrize(("n", "p", "mu"), [(400, 0.3, 2.0), (2000, 0.02, 4.0), (600, 0.5, -1.0)])
def test_intervals_cover(rng, n, p, mu) -> None:
    trials, level = 400, 0.9
    covered = np.zeros(3)
    for _ in range(trials):
        paid = rng.random(n) < p
        bandit = zib.Bandit(mab.UCB1(), n_arms=1, seed=0)
        bandit.update_many([0] * n, np.where(paid, rng.normal(mu, 1.0, n), 0.0))
        m = bandit.means(level)[0]
        pairs = ((m.prob_interval, p), (m.magnitude_interval, mu), (m.reward_interval, p * mu))
        covered += [low <= truth <= high for (low, high), truth in pairs]
    # each share may fall short by 4 standard errors plus 1.5 points for the approximation of r:
    # error probability below 1e-4 each
    slack = 4 * math.sqrt(level * (1 - level) / trials) + np.array([0, 0, 0.015])
    assert (covered / trials >= level - slack).all(), covered / trials


# ------------------------------------------------------------------------------------ save, load


@pytest.mark.parametrize("spec", [UCB, TS])
def test_saved_bandit_continues_exactly(tmp_path, spec) -> None:
    bandit = trained(spec)
    path = tmp_path / "bandit.json"
    bandit.save(path)
    twin = zib.Bandit.load(path)
    assert same(bandit, twin)
    for t in range(50):
        arm = bandit.select()
        assert twin.select() == arm
        bandit.update(arm, float(t % 3 == 0))
        twin.update(arm, float(t % 3 == 0))
    assert same(bandit, twin)


def test_stream_can_be_replaced_on_load() -> None:
    text = trained(TS).dumps()
    a, b, c = (zib.Bandit.loads(text, seed=s) for s in (1, 1, 2))
    first, second, third = ([x.select() for _ in range(40)] for x in (a, b, c))
    assert first == second
    assert first != third


def test_labels_survive_and_unsaveable_ones_are_refused_at_once() -> None:
    arms = [("a", 1), "b", 3, 2.5, None, True]
    bandit = zib.Bandit(UCB, arms=arms, seed=0)
    assert zib.Bandit.loads(bandit.dumps()).arms == tuple(arms)
    with pytest.raises(zib.InvalidParameterError, match="`arms` must be a label .*frozenset"):
        zib.Bandit(UCB, arms=[frozenset({1})], seed=0)
    with pytest.raises(zib.InvalidParameterError, match="`arm` must be a label .*frozenset"):
        bandit.add_arm(frozenset({1}))


def test_all_bit_generators_survive() -> None:
    for name in ("PCG64", "PCG64DXSM", "Philox", "SFC64", "MT19937"):
        stream = np.random.Generator(getattr(np.random, name)(5))
        bandit = zib.Bandit(TS, n_arms=3, seed=stream)
        bandit.update_many([0, 1, 2], [1.0, 0.0, 2.0])
        twin = zib.Bandit.loads(bandit.dumps())
        assert [bandit.select() for _ in range(30)] == [twin.select() for _ in range(30)]


def test_damaged_files_are_refused_with_one_sentence(tmp_path) -> None:
    text = trained().dumps()
    path = tmp_path / "bandit.json"
    content = json.loads(text)
    changed = json.dumps({**content, "inflated": 1.0})
    newer = json.dumps({**content, "format_version": 99})
    for bad, message in (
        (text[: len(text) // 2], "damaged or cut off"),
        ("", "damaged or cut off"),
        ("[1, 2]", "not a saved"),
        ('{"format": "other"}', "not a saved"),
        (changed, "checksum"),
        (newer, "newer zib"),
    ):
        path.write_text(bad)
        with pytest.raises(SavedStateError, match=message):
            zib.Bandit.load(path)


def test_saving_over_a_file_is_all_or_nothing(tmp_path, monkeypatch) -> None:
    path = tmp_path / "bandit.json"
    first = trained(n=20)
    first.save(path)

    def fails(*_):
        raise OSError("disk full")

    monkeypatch.setattr("os.fsync", fails)
    with pytest.raises(OSError, match="disk full"):
        trained(n=40).save(path)
    assert same(zib.Bandit.load(path), first)
    assert [p.name for p in tmp_path.iterdir()] == ["bandit.json"]


def test_a_saved_policy_that_is_not_registered_is_named() -> None:
    from zib.core import saved as _saved

    content = json.loads(trained().dumps())
    content.pop("checksum")
    content["policy"]["name"] = "elsewhere.Policy"
    with pytest.raises(SavedStateError, match="'elsewhere.Policy' is not registered here"):
        zib.Bandit.loads(_saved.dumps(content))


# ---------------------------------------------------------------------------------- odd corners


def test_true_size_inside_the_doubling_trick_is_refused_too() -> None:
    spec = mab.Anytime(spec=mab.UCB(horizon=10, sigma=1.0, size="true"))
    with pytest.raises(InvalidParameterError, match="for simulations"):
        zib.Bandit(spec, n_arms=2)


def test_merging_after_arms_were_removed_loses_and_doubles_nothing() -> None:
    start = zib.Bandit(UCB, arms=list("abc"), seed=0)
    start.update_many(list("aabbcc"), [1.0, 0.0, 2.0, 0.0, 3.0, 0.0])
    left, right = (zib.Bandit.loads(start.dumps(), seed=s) for s in (1, 2))
    right.remove_arm("a")
    right.update("b", 4.0)
    left.remove_arm("c")
    left.update("a", 5.0)
    left.merge(right, since=start)
    assert left.pulls == {"a": 3, "b": 3}
    assert left.means()["a"].magnitude == 3.0
    assert left.means()["b"].magnitude == 3.0


def test_merging_bandits_without_a_common_arm() -> None:
    left, right = zib.Bandit(UCB, arms=list("a"), seed=0), zib.Bandit(UCB, arms=list("b"), seed=0)
    base = zib.Bandit(UCB, arms=list("z"), seed=0)
    right.update("b", 1.0)
    left.merge(right, since=base)
    assert left.pulls == {"a": 0, "b": 1}


def test_horizon_warning_is_not_repeated_after_arms_change() -> None:
    bandit = zib.Bandit(mab.ZITS(horizon=2, sigma=1.0), arms=list("ab"), seed=0)
    with pytest.warns(UserWarning, match="horizon of 2"):
        bandit.update_many(list("aba"), [1.0, 0.0, 1.0])
    bandit.add_arm("c")
    bandit.update("c", 1.0)  # a second warning would be an error here


def test_truth_values_are_rewards() -> None:
    bandit = zib.Bandit(mab.BetaTS(), n_arms=2, seed=0)
    bandit.update(0, True)
    bandit.update_many([1, 1], [True, False])
    assert bandit.means()[1].prob == 0.5


@pytest.mark.parametrize("spec", [UCB, TS])
def test_copies_and_pickles_are_bandits_of_their_own(spec) -> None:
    bandit = trained(spec)
    for twin in (copy.deepcopy(bandit), pickle.loads(pickle.dumps(bandit))):
        assert same(bandit, twin)
        twin.update("a", 7.0)
        assert not same(bandit, twin)
        assert [twin.select() for _ in range(3)]
    assert bandit.pulls == trained(spec).pulls


@pytest.mark.usefixtures("interpreting")
def test_a_shallow_copy_is_independent() -> None:
    bandit = zib.Bandit(n_arms=3, seed=1)
    bandit.update_many([0, 1, 2, 1], [0.0, 3.0, 0.0, 5.0])
    twin = copy.copy(bandit)
    assert [twin.select() for _ in range(20)] == [bandit.select() for _ in range(20)]
    twin.update(0, 9.0)
    twin.add_arm("new")
    assert bandit.pulls == {0: 1, 1: 2, 2: 1}
    assert twin.pulls == {0: 2, 1: 2, 2: 1, "new": 0}


def test_a_forged_state_is_refused() -> None:
    bandit = zib.Bandit(zib.mab.UCB1(), n_arms=2, seed=1)
    bandit.update_many([0, 1, 1], [0.0, 1.0, 0.0])
    content = json.loads(bandit.dumps())
    content.pop("checksum")
    content["state"]["nonzero"] = [5.0, 1.0]
    with pytest.raises(zib.SavedStateError, match="cannot be: `nonzero` holds more"):
        zib.Bandit.loads(saved.dumps(content))
    content["format_version"] = 1
    with pytest.raises(zib.SavedStateError, match="an older zib .format 1; this one reads"):
        zib.Bandit.loads(saved.dumps(content))
