"""Decisions drawn from an allocation: exact propensities, limits on shares, eligible arms."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterator
from contextlib import nullcontext

import numpy as np
import pytest
from scipy import optimize, stats

import zib
from tests import contextual_policies
from tests.policies import ONLINE
from zib import InvalidParameterError, contextual, mab
from zib.core import saved
from zib.core.entry import interpreted
from zib.online.allocation import Allocation, GuardRails, of_largest

ARMS = ("a", "b", "c", "d")
TS = mab.ZITS(horizon=10_000, sigma=1.0)


@pytest.fixture(autouse=True)
def _without_compiling(request: pytest.FixtureRequest) -> Iterator[None]:
    """Compile in slow tests only."""
    slow = request.node.get_closest_marker("slow") is not None
    with nullcontext() if slow else interpreted():
        yield


def trained(spec=TS, n=60, seed=3, **options) -> zib.Bandit:
    bandit = zib.Bandit(spec, arms=ARMS, seed=seed, **options)
    rng = np.random.default_rng(seed)
    arms = [ARMS[k] for k in rng.integers(4, size=n)]
    bandit.update_many(arms, (rng.random(n) < 0.4) * (2.0 + rng.random(n)))
    return bandit


def allocated(rails: GuardRails, shares, pulls, known=None) -> np.ndarray:
    return rails.applied(np.array(shares), np.array(pulls, dtype=float), lambda: np.array(known))


# ------------------------------------------------------------------------------ limits on shares


def test_shares_stay_within_their_limits_and_add_up(rng) -> None:
    for _ in range(500):
        n = int(rng.integers(2, 12))
        shares = rng.dirichlet(np.full(n, rng.choice([0.05, 1.0])))
        pulls = rng.choice([0.0, 99.0, 100.0, 5_000.0], size=n)
        largest = rng.uniform(0.02, 1.0)
        least = rng.uniform(0.0, min(largest, 1 / n))
        known = np.where(pulls >= 100, shares + 1e-9, 0.0)
        found = allocated(
            GuardRails(least_share=least, largest_share=largest), shares, pulls,
            known / max(known.sum(), 1e-300),
        )  # fmt: skip
        assert found.sum() == pytest.approx(1.0, abs=1e-12)
        assert (found >= least - 1e-12).all()
        new = pulls < 100
        limit = max(largest, 1 / n) if new.all() else largest
        assert (found[new] <= limit + 1e-12).all()


def test_without_need_nothing_is_changed() -> None:
    shares = [0.1, 0.2, 0.7]
    rails = GuardRails(least_share=0.1, largest_share=0.5)
    assert allocated(rails, shares, [0, 0, 100]).tolist() == shares


def test_least_shares_change_the_others_in_proportion() -> None:
    """The allocation is the one nearest to the policy's in relative entropy, found by SciPy."""
    shares = np.array([0.004, 0.016, 0.18, 0.8])
    found = allocated(GuardRails(least_share=0.05), shares, [0] * 4)
    assert found[:2].tolist() == [0.05, 0.05]
    assert found[3] / found[2] == pytest.approx(0.8 / 0.18)
    best = optimize.minimize(
        lambda x: float((x * np.log(x / shares)).sum()),
        np.full(4, 0.25),
        bounds=[(0.05, 1.0)] * 4,
        constraints={"type": "eq", "fun": lambda x: x.sum() - 1.0},
        options={"ftol": 1e-14},
    )
    np.testing.assert_allclose(found, best.x, atol=1e-6)


def test_a_raised_share_may_push_another_below_the_least() -> None:
    # scaling 0.101 to make room for five arms would leave it below 0.1
    found = allocated(GuardRails(least_share=0.1), [0.101, 0.0, 0.0, 0.0, 0.0, 0.899], [0] * 6)
    np.testing.assert_allclose(found, [0.1] * 5 + [0.5])


def test_what_a_new_arm_may_not_take_goes_where_the_policy_would_play() -> None:
    rails = GuardRails(largest_share=0.2, evidence=10)
    found = allocated(rails, [0.0, 0.0, 1.0], [50, 10, 9], [0.75, 0.25, 0.0])
    np.testing.assert_allclose(found, [0.6, 0.2, 0.2])


def test_while_all_arms_are_new_shares_are_as_even_as_they_must_be() -> None:
    found = allocated(GuardRails(largest_share=0.05), [0.0, 1.0, 0.0, 0.0], [0, 3, 0, 0])
    np.testing.assert_allclose(found, [0.25] * 4)
    found = allocated(GuardRails(largest_share=0.7), [0.0, 1.0, 0.0, 0.0], [0, 3, 0, 0])
    np.testing.assert_allclose(found, [0.1, 0.7, 0.1, 0.1])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"least_share": 0.3}, "`least_share` must be at most 1/4, so that 4 arms can have it"),
        ({"least_share": 0.2, "largest_share": 0.1}, "must be at most `largest_share`, 0.1; got"),
        ({"largest_share": 0.0}, r"`largest_share` must lie in \(0, 1\]; got 0.0"),
        ({"least_share": -0.1}, r"`least_share` must lie in \[0, 1\]; got -0.1"),
        ({"evidence": 0}, "`evidence` must lie in"),
        ({"draws": 0}, "`draws` must lie in"),
    ],
)
def test_limits_that_cannot_be_kept_are_refused(options, words) -> None:
    with pytest.raises(InvalidParameterError, match=words):
        zib.Bandit(TS, n_arms=4, **options)
    bandit = zib.Bandit(TS, n_arms=4, seed=1)
    before = bandit.dumps()
    with pytest.raises(InvalidParameterError, match=words):
        bandit.set_shares(**options)
    assert bandit.dumps() == before


def test_every_arm_at_its_least_share_is_an_even_split() -> None:
    bandit = zib.Bandit(mab.ZIIMED(), n_arms=3, seed=1, least_share=1 / 3)
    assert bandit.propensities() == dict.fromkeys(range(3), pytest.approx(1 / 3))


# --------------------------------------------------------------------------------- propensities


def test_an_allocation_is_drawn_from_to_the_last_digit() -> None:
    class Fixed:
        def random(self) -> float:
            return math.nextafter(1.0, 0.0)

    shares = np.array([0.0, 0.1, 0.0, 0.2, 0.7, 0.0])
    assert Allocation.of(tuple(range(6)), shares).draw(Fixed()) == 4  # type: ignore[arg-type]
    Fixed.random = lambda self: 0.0  # type: ignore[method-assign]
    assert Allocation.of(tuple(range(6)), shares).draw(Fixed()) == 1  # type: ignore[arg-type]


def test_scores_that_are_no_numbers_never_win() -> None:
    assert of_largest(np.array([np.nan, 1.0, 2.0, 2.0])).tolist() == [0.0, 0.0, 0.5, 0.5]
    assert of_largest(np.array([np.nan, np.nan])).tolist() == [1.0, 0.0]


def test_a_policy_without_chance_has_propensity_one_or_keeps_the_least_share() -> None:
    bandit = trained(mab.ZIIMED())
    arm, share = bandit.select(return_propensity=True)
    assert (arm, share) == (bandit.select(), 1.0)
    bandit.set_shares(least_share=0.01)
    assert bandit.propensities()[arm] == pytest.approx(0.97)
    assert sorted(bandit.propensities().values())[:3] == pytest.approx([0.01] * 3)
    untried = zib.Bandit(mab.ZIIMED(), n_arms=4, seed=0)
    assert untried.select(return_propensity=True)[1] == 0.25  # ties share evenly


def test_served_arms_are_as_frequent_as_their_propensities_say(seed) -> None:
    """A chi-square test that a right allocation fails with probability 1e-6."""
    bandit = trained(seed=seed, draws=200)
    served, shares = bandit.select_many(50_000, return_propensity=True)
    logged = dict(zip(served, shares.tolist(), strict=True))
    arms = [arm for arm in ARMS if arm in logged]
    assert sum(logged.values()) == pytest.approx(1.0)
    counts = [served.count(arm) for arm in arms]
    assert len(arms) > 2
    assert stats.chisquare(counts, [50_000 * logged[arm] for arm in arms]).pvalue > 1e-6


@pytest.mark.parametrize("options", [{}, {"arms": ("d", "b")}, {"return_propensity": True}])
@pytest.mark.parametrize("least_share", [0.0, 0.1])
def test_many_decisions_are_those_of_single_calls(options, least_share) -> None:
    bandit = trained(least_share=least_share, draws=50)
    one, many = copy.copy(bandit), copy.copy(bandit)
    single = [one.select(**options) for _ in range(20)]
    together = many.select_many(20, **options)
    if "return_propensity" in options:
        together = list(zip(together[0], together[1].tolist(), strict=True))
    assert together == single
    assert one.dumps() == many.dumps()
    assert bandit.select_many(0) == []


def test_a_restart_does_not_change_decisions_or_propensities() -> None:
    """What is served follows from the state and the stream, not from when it was computed."""
    bandit = trained(least_share=0.02, draws=50)
    bandit.select()
    twin = zib.Bandit.loads(bandit.dumps())
    for t in range(30):
        (arm, share), other = (each.select(return_propensity=True) for each in (bandit, twin))
        assert (arm, share) == other
        assert share > 0.0
        bandit.update(arm, float(t % 3 == 0))
        twin.update(arm, float(t % 3 == 0))
        if t == 15:
            twin = zib.Bandit.loads(twin.dumps())


def test_shares_follow_what_is_learned() -> None:
    bandit = trained(mab.ZIIMED(), least_share=0.1)
    best = max(bandit.propensities(), key=bandit.propensities().get)
    other = next(arm for arm in ARMS if arm != best)

    def share_of_other() -> float:
        return bandit.propensities()[other]

    assert share_of_other() == pytest.approx(0.1)
    twin = copy.copy(bandit)
    bandit.update_many([other] * 200, [9.0] * 200)
    assert share_of_other() == pytest.approx(0.7)
    for _ in range(200):
        bandit.revise(other, 9.0, 0.0)
    assert share_of_other() == pytest.approx(0.1)
    more = copy.copy(twin)
    more.update_many([other] * 200, [9.0] * 200)
    bandit = twin
    bandit.merge(more)
    assert share_of_other() == pytest.approx(0.7)


@pytest.mark.slow
def test_compiled_code_decides_alike() -> None:
    bandit = trained(least_share=0.01)

    def decisions(bandit: zib.Bandit) -> list[object]:
        out: list[object] = [bandit.select(arms=["d", "b"]) for _ in range(20)]
        return [*out, *bandit.select_many(50, return_propensity=True)[1], bandit.propensities()]

    with interpreted():
        expected = decisions(zib.Bandit.loads(bandit.dumps()))
    assert decisions(bandit) == expected


@pytest.mark.slow
def test_weighting_by_logged_propensities_is_unbiased(rng) -> None:
    """Logs of a learning bandit tell what every arm is worth if they hold the propensities.

    6 standard errors of 400 logs are exceeded with probability 2e-9 for each of 3 arms. The weights
    of an even split, which this is not, are found out.
    """
    p, mu = np.array([0.10, 0.25, 0.30]), 2.0
    rounds, logs = 100, 400
    right, wrong = np.zeros((logs, 3)), np.zeros((logs, 3))
    for i in range(logs):
        bandit = zib.Bandit(TS, n_arms=3, seed=rng, least_share=0.05, draws=50)
        for _ in range(rounds):
            arm, share = bandit.select(return_propensity=True)
            assert share > 0.049
            reward = mu * (rng.random() < p[arm])
            bandit.update(arm, reward)
            right[i, arm] += reward / share / rounds
            wrong[i, arm] += 3.0 * reward / rounds
    for weighted, is_right in ((right, True), (wrong, False)):
        error = weighted.std(axis=0) / math.sqrt(logs)
        off = np.abs(weighted.mean(axis=0) - mu * p) / error
        assert (off < 6).all() == is_right, off


# ------------------------------------------------------------------------------------- new arms


def play_with_delay(bandit: zib.Bandit, rng: np.random.Generator, rounds: int, delay: int):
    """Return the arms that are played while rewards return `delay` decisions later."""
    served = []
    pending = []
    for _ in range(rounds):
        if len(pending) > delay:
            bandit.update(*pending.pop(0))
        arm = bandit.select()
        served.append(arm)
        pending.append((arm, float(rng.random() < 0.3)))
    return served


def test_a_new_arm_takes_at_most_its_share_until_its_rewards_return(rng) -> None:
    """5 standard deviations of a binomial count are exceeded with probability 3e-7."""
    spec = mab.ZIIMED()
    free = zib.Bandit(spec, arms=["old", "older"], seed=1)
    free.update_many(["old", "older"] * 200, [1.0, 0.0, 0.0, 0.0] * 100)
    kept = zib.Bandit.loads(free.dumps())
    kept.set_shares(largest_share=0.2, least_share=0.01)
    free.add_arm("new")
    kept.add_arm("new")
    assert play_with_delay(free, rng, 1_000, 1_000).count("new") == 1_000
    count = play_with_delay(kept, rng, 1_000, 1_000).count("new")
    assert abs(count - 200) < 5 * math.sqrt(1_000 * 0.2 * 0.8)
    assert kept.propensities()["new"] == pytest.approx(0.2, rel=0.02)
    kept.update_many(["new"] * 99, [0.0] * 98 + [5.0])
    assert kept.propensities()["new"] <= 0.2
    kept.update_many(["new"], [5.0])  # the hundredth that returns
    kept.update_many(["new"] * 100, [5.0] * 100)
    assert kept.propensities()["new"] == pytest.approx(0.98)


def test_an_arm_that_leaves_no_room_for_least_shares_is_refused() -> None:
    bandit = zib.Bandit(TS, n_arms=4, seed=1, least_share=0.25)
    other = zib.Bandit(TS, n_arms=5, seed=1)
    before = bandit.dumps()
    with pytest.raises(InvalidParameterError, match="at most 1/5, so that 5 arms can have it"):
        bandit.add_arm(4)
    with pytest.raises(InvalidParameterError, match="at most 1/5"):
        bandit.merge(other)
    assert bandit.dumps() == before
    other.merge(bandit)  # limits are not taken over
    assert not other.guard_rails.limits


# -------------------------------------------------------------------------------------- keeping


def test_limits_are_saved_and_files_without_them_are_read() -> None:
    limits = {"least_share": 0.02, "largest_share": 0.3, "evidence": 7, "draws": 77}
    bandit = trained(**limits)
    for twin in (zib.Bandit.loads(bandit.dumps()), copy.copy(bandit)):
        assert twin.guard_rails.parameters() == limits
        assert twin.dumps() == bandit.dumps()
    content = json.loads(bandit.dumps())
    for entry in ("checksum", "shares"):
        del content[entry]
    content["format_version"] = 2
    old = zib.Bandit.loads(saved.dumps(content))
    assert old.guard_rails == GuardRails()
    assert old.pulls == bandit.pulls


@pytest.mark.parametrize(
    "shares",
    [{"least_share": 2.0}, {"least_share": 0.9}, {"no such": 1}, [], 3, {"draws": 10**12}],
)
def test_forged_limits_are_refused(shares) -> None:
    content = json.loads(trained().dumps())
    del content["checksum"]
    if shares != []:  # an empty list of limits is as good as none
        with pytest.raises(zib.SavedStateError):
            zib.Bandit.loads(saved.dumps({**content, "shares": shares}))


# -------------------------------------------------------------------------------- eligible arms


def test_only_eligible_arms_are_played() -> None:
    some = [3, 0, 4]
    for spec in ONLINE.values():
        bandit = zib.Bandit(spec, n_arms=5, seed=2, draws=20)
        for t in range(5):
            scores = bandit.indices()
            mine = bandit.indices(arms=some)
            assert mine == {arm: scores[arm] for arm in some}
            arm = bandit.select(arms=some)
            assert mine[arm] == max(mine.values())
            bandit.update(arm, 0.0 if t % 3 else 1.0)
        assert bandit.pulls[1] == bandit.pulls[2] == 0
        assert sum(bandit.propensities(draws=50, arms=some).values()) == pytest.approx(1.0)
        arm, share = bandit.select(arms=some, return_propensity=True)
        assert arm in some
        assert 0.0 < share <= 1.0


def test_propensities_of_eligible_arms_are_those_of_the_decisions(seed) -> None:
    """Greedy policies know propensities of all arms only; 5 standard errors: 6e-7 each."""
    for spec in (TS, mab.EpsilonGreedy(epsilon=0.4)):
        bandit = trained(spec, seed=seed)
        found = bandit.propensities(draws=4_000, arms=["c", "a"])
        chosen = bandit.select_many(4_000, arms=["c", "a"])
        for arm, share in found.items():
            error = math.sqrt(2 * share * (1 - share) / 4_000)
            assert abs(chosen.count(arm) / 4_000 - share) <= 5 * error


@pytest.mark.parametrize(
    ("arms", "words"),
    [
        ([], "`arms` must hold at least one label; got none"),
        (["a", "z"], "`arms` must be one of 'a', 'b', 'c', 'd'; got 'z'"),
        (["a", "a"], "`arms` must be different from each other"),
        ("ab", "`arms` must be a sequence; got 'ab'"),
        ([["a"]], "`arms` must be a label made of text"),
    ],
)
def test_arms_that_are_none_are_refused(arms, words) -> None:
    bandit = trained()
    before = bandit.dumps()
    for call in (bandit.select, bandit.indices, bandit.propensities):
        with pytest.raises(InvalidParameterError, match=words):
            call(arms=arms)
    for options in ({}, {"return_propensity": True}):
        with pytest.raises(InvalidParameterError, match=words):
            bandit.select(arms, **options)
        with pytest.raises(InvalidParameterError, match=words):
            bandit.select_many(3, arms, **options)
    assert bandit.dumps() == before


# ---------------------------------------------------------------------------------- with features

CONTEXTUAL_TS = contextual.Disjoint(spec=contextual.LaplaceTS(memory=256), n_arms=3)
USER = [1.0, -0.5]


def taught(spec=CONTEXTUAL_TS, n=60, **options) -> zib.ContextualBandit:
    bandit = zib.ContextualBandit(spec, n_features=2, arms=["a", "b", "c"], seed=5, **options)
    rng = np.random.default_rng(6)
    arms = [bandit.arms[k] for k in rng.integers(3, size=n)]
    rewards = (rng.random(n) < 0.4) * (2.0 + rng.random(n))
    bandit.update_many(arms, rewards, np.column_stack([np.ones(n), rng.normal(size=n)]))
    return bandit


def test_with_features_served_arms_are_as_frequent_as_propensities_say() -> None:
    """The sum of (served − propensity) is a martingale: 5 standard errors, 6e-7 for each arm."""
    bandit = taught(least_share=0.1, draws=4)
    off, variance = dict.fromkeys("abc", 0.0), dict.fromkeys("abc", 0.0)
    for _ in range(80):
        shares = bandit.propensities(USER)
        assert shares.exact
        assert min(shares.values()) >= 0.1
        arm, share = bandit.select(USER, return_propensity=True)
        assert share == shares[arm]  # those of the next decision
        for each in "abc":
            off[each] += (arm == each) - shares[each]
            variance[each] += shares[each] * (1 - shares[each])
    for each in "abc":
        assert abs(off[each]) < 5 * math.sqrt(variance[each])


def test_with_features_the_stream_and_the_state_decide() -> None:
    bandit = taught(draws=5)
    twin = zib.ContextualBandit.loads(bandit.dumps())
    users = np.column_stack([np.ones(5), np.arange(5.0)])
    served = [bandit.select(user, return_propensity=True) for user in users]
    arms, shares = twin.select_many(users, return_propensity=True)
    assert list(zip(arms, shares.tolist(), strict=True)) == served
    assert bandit.dumps() == twin.dumps()
    assert all(0.0 < share <= 1.0 for _, share in served)
    some = [bandit.select(USER, arms=["c", "a"], return_propensity=True)[0] for _ in range(10)]
    assert set(some) <= {"a", "c"}
    bandit.set_shares(least_share=0.3)
    assert set(bandit.select_many(np.tile(users, (5, 1)))) == {"a", "b", "c"}


@pytest.mark.slow
def test_every_contextual_policy_is_served_with_propensities(rng) -> None:
    with interpreted():
        for spec in contextual_policies.SPECS.values():
            features = rng.normal(size=(int(getattr(spec, "n_arms", 3)), 2))
            bandit = zib.ContextualBandit(spec, n_features=2, seed=1, draws=5, least_share=0.1)
            shares = bandit.propensities(features)
            row, share = bandit.select(features, return_propensity=True)
            assert share == shares[row]
            assert sum(shares.values()) == pytest.approx(1.0)
            assert min(shares.values()) >= 0.1 - 1e-12


def test_rows_of_one_model_are_served_with_propensities() -> None:
    bandit = zib.ContextualBandit(n_features=2, seed=1)
    features = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]
    bandit.update_many([0, 1], [4.0, 0.0], features[:2])
    row, share = bandit.select(features, return_propensity=True)
    assert (row, share) == (bandit.select(features), 1.0)
    bandit.set_shares(least_share=0.2)
    assert sorted(bandit.propensities(features).values()) == pytest.approx([0.2, 0.2, 0.6])
    before = bandit.dumps()
    with pytest.raises(InvalidParameterError, match="at most 1/6, so that 6 arms can have it"):
        bandit.select(features * 2)
    with pytest.raises(InvalidParameterError, match="`largest_share` must be 1 where actions have"):
        bandit.set_shares(largest_share=0.5)
    assert bandit.dumps() == before


def test_with_features_a_new_arm_is_limited_until_its_rewards_return() -> None:
    check_new_arm(taught(n=90, largest_share=0.1, evidence=20, draws=5))


@pytest.mark.slow
def test_with_features_a_new_arm_of_the_default_policy_is_limited() -> None:
    with interpreted():
        check_new_arm(taught(None, n=200, largest_share=0.1, evidence=20))


def check_new_arm(bandit: zib.ContextualBandit) -> None:
    free = max(bandit.propensities(USER).values())
    bandit.add_arm("d")
    for user in ([1.0, 3.0], [1.0, -3.0], USER):
        shares = bandit.propensities(user)
        assert shares["d"] <= 0.1 + 1e-12
        assert sum(shares.values()) == pytest.approx(1.0)
    assert max(bandit.propensities(USER).values()) > 0.3 * free
    twin = zib.ContextualBandit.loads(bandit.dumps())
    assert twin.guard_rails == bandit.guard_rails
    bandit.update_many(["d"] * 20, [50.0] * 20, [USER] * 20)
    assert bandit.propensities(USER)["d"] > 0.9
    bandit.set_shares(least_share=0.1, largest_share=1.0)
    for k in range(6):
        bandit.add_arm(k)
    before = bandit.dumps()
    with pytest.raises(InvalidParameterError, match="`least_share` must be at most 1/11"):
        bandit.add_arm("more")
    assert bandit.dumps() == before
