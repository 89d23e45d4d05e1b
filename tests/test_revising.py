"""Contextual bandits: rewards are revised, states merged, arms come and go, files hold it all."""

from __future__ import annotations

import copy
import json
import math
import pickle

import numpy as np
import pytest

from tests.contextual_policies import PerArm, RidgeUCB
from tests.fuzz import forge
from zib import Bandit, ContextualBandit, InvalidParameterError, SavedStateError, contextual, mab
from zib.core import saved
from zib.core.entry import interpreted
from zib.online.guard import arrays_in

slow = pytest.mark.slow
ARMS = ["red", "green", "blue"]
JOINT = contextual.Disjoint(spec=contextual.JointUCB(memory=256), n_arms=3)
NAIVE = contextual.Naive(horizon=1000, sigma=None)
OWN_NAIVE = contextual.Disjoint(spec=NAIVE, n_arms=3)
LEARNED = contextual.LaplaceTS(memory=256, prior="learned")
BY_CATEGORY = contextual.ByCategory(spec=JOINT, categories=2)


@pytest.fixture(autouse=True)
def _without_compiling(request):
    """One test compiles."""
    if "compiled" in request.node.name:
        yield
    else:
        with interpreted():
            yield


def made(spec=JOINT, arms=ARMS, n_features=2, **options) -> ContextualBandit:
    return ContextualBandit(spec, arms=arms, n_features=n_features, seed=1, **options)


def rounds(n: int, seed: int = 0):
    """Yield arm, reward and user of some rounds."""
    rng = np.random.default_rng(seed)
    for _ in range(n):
        user = np.array([1.0, rng.normal()])
        arm = ARMS[rng.integers(3)]
        yield arm, float(rng.gamma(3.0) * (rng.random() < 0.4)), user


def taught(played, **options) -> ContextualBandit:
    bandit = made(**options)
    for arm, reward, user in played:
        bandit.update(arm, reward, user)
    return bandit


def close(a, b, tolerance: float) -> bool:
    """Whether two states are the same bit by bit (0), or hold the same sums and estimates."""
    if tolerance == 0.0:
        pairs = zip(arrays_in(a), arrays_in(b), strict=True)
        return all(np.array_equal(x, y, equal_nan=True) for x, y in pairs)
    (a, b) = (state.arms if hasattr(state, "arms") else state for state in (a, b))
    return all(
        np.allclose(x, y, rtol=tolerance, atol=tolerance)
        for x, y in [
            (a.clock.rounds, b.clock.rounds),
            (a.model.curvature.matrix, b.model.curvature.matrix),
            (a.model.curvature.inverse, b.model.curvature.inverse),
            (a.model.coef, b.model.coef),
            (a.model.seen, b.model.seen),
            (a.model.residual, b.model.residual),
        ]
    )


def same_means(a, b) -> bool:
    """Whether the estimates of all arms agree, but for rounding."""
    rows = [np.hstack([np.ravel(x) for found in m.values() for x in found]) for m in (a, b)]
    return a.keys() == b.keys() and np.allclose(*rows, rtol=1e-9, equal_nan=True)


def alike(a: ContextualBandit, b: ContextualBandit, tolerance: float = 0.0) -> bool:
    assert a.spec == b.spec
    assert a.arms == b.arms
    assert a.pulls == b.pulls
    assert a.n_updates == b.n_updates
    assert same_means(a.means(), b.means())
    return close(a.state, b.state, tolerance)


# ----------------------------------------------------------------------------- what was earned


def test_pulls_and_means_are_those_of_a_bandit_without_features() -> None:
    played = list(rounds(80))
    bandit, plain = taught(played, inflated=-0.5), Bandit(mab.UCB1(), arms=ARMS, inflated=-0.5)
    plain.update_many([arm for arm, _, _ in played], [reward for _, reward, _ in played])
    assert bandit.pulls == plain.pulls
    for level, anytime in ((0.95, False), (0.8, True)):
        found = bandit.means(level, anytime=anytime)
        assert same_means(found, plain.means(level, anytime=anytime))
    assert made(PerArm(n_arms=2), arms=None).pulls == {0: 0, 1: 0}
    for what in ("pulls", "means()"):
        with pytest.raises(InvalidParameterError, match="needs arms with names; make the bandit"):
            eval(f"bandit.{what}", {"bandit": made(RidgeUCB(), arms=None)})
    assert "pulls" in dir(bandit)


# ------------------------------------------------------------------------------------ revising


@pytest.mark.parametrize(
    ("spec", "keep"),
    [
        (JOINT, 15),
        pytest.param(JOINT, True, marks=slow),
        pytest.param(LEARNED, 15, marks=slow),
        pytest.param(LEARNED, True, marks=slow),
        (OWN_NAIVE, True),
    ],
)
def test_a_revised_bandit_is_one_that_had_seen_the_right_reward(spec, keep) -> None:
    wrong = list(rounds(40))
    right = list(wrong)
    late = [25, 31, 39]
    for at in late:
        arm, reward, user = wrong[at]
        right[at] = (arm, 7.5 if reward == 0.0 else 0.0, user)
    bandit = taught(wrong, spec=spec, keep_rows=keep)
    other = taught(wrong, spec=spec, keep_rows=keep)
    for at in late:
        bandit.revise(wrong[at][0], wrong[at][1], right[at][1], wrong[at][2])
    columns = [[played[at][i] for at in late] for played, i in
               ((wrong, 0), (wrong, 1), (right, 1), (wrong, 2))]  # fmt: skip
    other.revise_many(*columns)
    for found in (bandit, other):
        assert alike(found, taught(right, spec=spec, keep_rows=keep))
        # and it goes on as that one
        wanted = taught(right, spec=spec, keep_rows=keep)
        for arm, reward, user in rounds(10, seed=5):
            found.update(arm, reward, user)
            wanted.update(arm, reward, user)
        found.revise("red", *_last(wanted, "red"))
        assert found.n_updates == 50


def _last(bandit: ContextualBandit, arm: str):
    """Return reward, another one, and the features of the last reward of an arm."""
    _, _, row = next(r for r in bandit._history.latest(3) if r[1] == ARMS.index(arm))
    return row.outcome[0], 3.25, row.z[0]


@pytest.mark.parametrize(
    "spec", [NAIVE, OWN_NAIVE, contextual.Naive(horizon=999, sigma=1.0, kind="ts")]
)
def test_sums_are_revised_without_rows(spec) -> None:
    wrong = list(rounds(150))
    right = list(wrong)
    bandit = taught(wrong, spec=spec)
    for at in (3, 80, 149):
        arm, reward, user = wrong[at]
        right[at] = (arm, 7.5 if reward == 0.0 else 0.0, user)
        bandit.revise(arm, reward, right[at][1], user)
    assert alike(bandit, taught(right, spec=spec), 1e-10)
    before = bandit.dumps()
    for old, message in ((99.0, "a reward learned for arm 'red'; got 99.0"), (math.nan, "`old`")):
        with pytest.raises(InvalidParameterError, match=message):
            bandit.revise("red", old, 1.0, [1.0, 0.0])
    with pytest.raises(InvalidParameterError, match="`old` must be a reward learned for arm 'red'"):
        made(spec).revise("red", 0.0, 1.0, [1.0, 0.0])
    assert bandit.dumps() == before


def test_what_cannot_be_revised_is_refused_and_changes_nothing() -> None:
    played = list(rounds(40))
    bandit = taught(played, keep_rows=10)
    before = bandit.dumps()
    arm, reward, user = played[20]
    with pytest.raises(InvalidParameterError, match=r"one of the 10 that are kept; got"):
        bandit.revise(arm, reward, 1.0, user)
    arm, reward, user = played[-1]
    for bad in (
        lambda: bandit.revise(arm, reward + 1.0, 1.0, user),
        lambda: bandit.revise(arm, reward, 1.0, user + 1.0),
        lambda: bandit.revise("black", reward, 1.0, user),
        lambda: bandit.revise(arm, reward, math.nan, user),
        lambda: bandit.revise(arm, reward, 1.0),
        lambda: bandit.revise_many([arm, arm], [reward] * 2, [1.0] * 2, [user, user]),
        lambda: bandit.revise_many([arm], [reward], [1.0, 2.0], [user]),
        lambda: bandit.revise_many([arm], [reward], [1.0], [user[:1]]),
    ):
        with pytest.raises(InvalidParameterError):
            bad()
    assert bandit.dumps() == before
    bandit.revise_many([], [], [], [])
    assert bandit.dumps() == before
    with pytest.raises(InvalidParameterError, match="`revise` needs kept rewards.*`keep_rows`"):
        taught(played).revise(arm, reward, 1.0, user)
    for keep in (0, -1, 1.5, "all", None):
        with pytest.raises(InvalidParameterError, match="`keep_rows` must"):
            made(keep_rows=keep)


def test_rows_of_matrices_pairs_and_categories_are_revised() -> None:
    rng = np.random.default_rng(2)
    offers = rng.normal(size=(20, 4, 3))
    bandit, wanted = (
        ContextualBandit(contextual.JointUCB(memory=256), n_features=3, keep_rows=8)
        for _ in range(2)
    )
    for j, offer in enumerate(offers):
        bandit.update(j % 4, float(j % 3), offer)
        wanted.update(j % 4, 9.0 if j == 15 else float(j % 3), offer)
    bandit.revise(3, 0.0, 9.0, offers[15])
    assert close(bandit.state, wanted.state, 0.0)
    pairs = [made(n_features=(2, 1), keep_rows=True) for _ in range(2)]
    for j, (arm, reward, user) in enumerate(rounds(12)):
        pairs[0].update(arm, reward, (user, user[:1]))
        pairs[1].update(arm, 4.0 if j == 5 else reward, (user, user[:1]))
    arm, reward, user = list(rounds(12))[5]
    pairs[0].revise(arm, reward, 4.0, (user, user[:1]))
    assert alike(*pairs)
    told = [made(BY_CATEGORY, keep_rows=True) for _ in range(2)]
    for j, (arm, reward, user) in enumerate(rounds(12)):
        kind = 1 + j % 2 if reward else None
        told[0].update(arm, reward, user, category=kind)
        told[1].update(arm, *((4.0, user) if j == 5 else (reward, user)),
                       category=2 if j == 5 else kind)  # fmt: skip
    told[0].revise(arm := list(rounds(12))[5][0], list(rounds(12))[5][1], 4.0,
                   list(rounds(12))[5][2], category=2)  # fmt: skip
    assert alike(*told)
    assert arm in ARMS


# ------------------------------------------------------------------------------------- merging


@pytest.mark.parametrize(("spec", "keep", "tolerance"),
                         [pytest.param(JOINT, True, 0.0, marks=slow), (OWN_NAIVE, True, 0.0),
                          (OWN_NAIVE, False, 1e-10), (NAIVE, False, 1e-10)])  # fmt: skip
def test_a_merged_bandit_is_one_that_saw_all_rewards(spec, keep, tolerance) -> None:
    start, left, right = list(rounds(20)), list(rounds(30, seed=1)), list(rounds(25, seed=2))
    first = taught(left, spec=spec, keep_rows=keep)
    first.merge(taught(right, spec=spec, keep_rows=keep))
    assert alike(first, taught(left + right, spec=spec, keep_rows=keep), tolerance)
    base = taught(start, spec=spec, keep_rows=keep)
    here, there = copy.copy(base), copy.copy(base)
    for bandit, played in ((here, left), (there, right)):
        for arm, reward, user in played:
            bandit.update(arm, reward, user)
    here.merge(there, since=base)
    assert alike(here, taught(start + left + right, spec=spec, keep_rows=keep), tolerance)
    itself = taught(left, spec=spec, keep_rows=keep)
    itself.merge(itself)
    assert alike(itself, taught(left + left, spec=spec, keep_rows=keep), tolerance)


def test_a_worker_that_keeps_its_rows_can_be_merged_into_one_that_does_not() -> None:
    left, right = list(rounds(20)), list(rounds(20, seed=1))
    bandit = taught(left)
    bandit.merge(taught(right, keep_rows=True))
    assert alike(bandit, taught(left + right))
    before = bandit.dumps()
    with pytest.raises(InvalidParameterError, match="kept the 20 rewards.*it has kept 0"):
        bandit.merge(taught(right))
    with pytest.raises(InvalidParameterError, match="kept the 20 rewards.*it has kept 5"):
        bandit.merge(taught(right, keep_rows=5))
    part = taught(right[:15])
    later = copy.copy(part)
    with pytest.raises(InvalidParameterError, match="`since` must be the state both"):
        bandit.merge(part, since=bandit)
    for other, message in [
        (3.0, "`other` must be a ContextualBandit"),
        (made(NAIVE), "the same policy"),
        (made(n_features=3), "the same policy"),
        (made(inflated=1.0), "the same policy"),
        (made(arms=None), "labels if this one has them"),
    ]:
        with pytest.raises(InvalidParameterError, match=message):
            bandit.merge(other)
    assert bandit.dumps() == before
    assert later.n_updates == 15


def test_merging_adds_arms_that_only_the_other_knows() -> None:
    for spec, keep in ((contextual.JointUCB(memory=256), True), (NAIVE, False)):
        bandit = made(contextual.Disjoint(spec=spec, n_arms=2), ["red", "green"], keep_rows=keep)
        other = made(contextual.Disjoint(spec=spec, n_arms=2), ["blue", "green"], keep_rows=keep)
        wanted = made(contextual.Disjoint(spec=spec, n_arms=3), keep_rows=keep)
        for arm, reward, user in rounds(20):
            if arm != "blue":
                bandit.update(arm, reward, user)
                wanted.update(arm, reward, user)
        for arm, reward, user in rounds(20, seed=1):
            if arm != "red":
                other.update(arm, reward, user)
                wanted.update(arm, reward, user)
        bandit.merge(other)
        assert bandit.arms == ("red", "green", "blue")
        assert alike(bandit, wanted, 0.0 if keep else 1e-10)


# ----------------------------------------------------------------------------- arms come and go


@pytest.mark.parametrize(
    "spec", [JOINT, NAIVE, *(pytest.param(spec, marks=slow) for spec in (BY_CATEGORY, LEARNED))]
)
def test_arms_come_and_go(spec) -> None:
    told = {"category": 1} if spec is BY_CATEGORY else {}
    bandit = made(spec)
    for arm, reward, user in rounds(40):
        bandit.update(arm, reward, user, **(told if reward else {}))
    user = np.array([1.0, 0.5])
    features = (
        user if bandit.spec is not NAIVE and bandit.spec is not LEARNED else np.tile(user, (3, 1))
    )
    before, pulls = bandit.predict(features), bandit.pulls
    bandit.add_arm("black")
    assert bandit.pulls == {**pulls, "black": 0}
    features = np.tile(user, (4, 1))
    after = bandit.predict(features)
    assert np.array_equal(after.r[:3], before.r, equal_nan=True)
    for _ in range(30):
        bandit.update("black", 50.0, user, **told)
    assert bandit.select(features) in bandit.arms
    bandit.remove_arm("green")
    assert bandit.arms == ("red", "blue", "black")
    assert bandit.n_updates == 70
    left = bandit.predict(features[:3])
    if contextual.per_arm.is_split(spec):
        assert np.array_equal(left.r[:2], before.r[[0, 2]])
        assert bandit.spec == contextual.per_arm.with_arms(spec, 3)
    before_errors = bandit.dumps()
    for call, message in [
        (lambda: bandit.remove_arm("green"), "`arm` must be one of"),
        (lambda: bandit.add_arm("red"), "`arm` must be new"),
        (lambda: bandit.add_arm(object()), "`arm` must be a label"),
        (lambda: bandit.update("green", 1.0, user, **told), "`arm` must be one of"),
    ]:
        with pytest.raises(InvalidParameterError, match=message):
            call()
    assert bandit.dumps() == before_errors
    twin = ContextualBandit.loads(before_errors)
    assert twin.select(features[:3]) == bandit.select(features[:3])
    bandit.remove_arm("red")
    bandit.remove_arm("blue")
    with pytest.raises(InvalidParameterError, match="must leave at least one other"):
        bandit.remove_arm("black")


def test_a_new_arm_is_as_one_that_was_there_but_never_played() -> None:
    grown = made(contextual.Disjoint(spec=contextual.JointUCB(memory=256), n_arms=2), ARMS[:2])
    there = made()
    for arm, reward, user in rounds(30):
        if arm != "blue":
            grown.update(arm, reward, user)
            there.update(arm, reward, user)
    grown.add_arm("blue")
    assert alike(grown, there)


def test_who_cannot_change_arms_says_so() -> None:
    with pytest.raises(InvalidParameterError, match="`add_arm` needs arms with labels"):
        made(RidgeUCB(), arms=None).add_arm("x")
    with pytest.raises(InvalidParameterError, match="PerArm has a fixed number of arms"):
        made(PerArm(n_arms=3)).remove_arm("red")


@pytest.mark.parametrize("keep", [pytest.param(True, marks=slow), 9])
def test_rows_from_before_arms_changed_are_revised(keep) -> None:
    """Row by row the same history, one of them with the right reward from the start."""
    bandits = [made(keep_rows=keep) for _ in range(2)]
    for right, bandit in enumerate(bandits):
        for j, (arm, reward, user) in enumerate(rounds(30)):
            if j == 24:
                bandit.remove_arm("green")
            if j == 26:
                bandit.add_arm("green")
            if arm != "green" or not 24 <= j < 26:
                wanted = 6.0 if right and j == 23 else reward
                bandit.update("red" if j == 23 else arm, wanted, user)
    _, reward, user = list(rounds(30))[23]
    bandits[0].revise("red", reward, 6.0, user)
    assert alike(*bandits)
    twin = ContextualBandit.loads(bandits[0].dumps())
    assert twin.dumps() == bandits[0].dumps()
    twin.revise("red", 6.0, reward, user)
    bandits[0].revise("red", 6.0, reward, user)
    assert alike(twin, bandits[0])
    gone = [r for r in bandits[0]._history.latest(3) if r[1] < 0]
    assert all(row.arm == 1 for _, _, row in gone)
    assert gone or keep == 9  # rewards of the arm that was removed are still part of the history


# ---------------------------------------------------------------------------- any order of these


class Story:
    """What happened to a bandit, and what ought to have happened instead."""

    def __init__(self, spec, keep) -> None:
        self.spec, self.keep = spec, keep
        self.events: list[tuple] = []

    def played(self) -> ContextualBandit:
        """Return a bandit that had seen the right rewards from the start."""
        bandit = made(self.spec, keep_rows=self.keep)
        for what, *given in self.events:
            getattr(bandit, what)(*given)
        return bandit

    def kept(self, arm) -> list[int]:
        """Return the positions of the rewards of an arm since it was last added."""
        added = [i for i, event in enumerate(self.events) if event == ("add_arm", arm)]
        rewards = [i for i, event in enumerate(self.events) if event[0] == "update"]
        last = rewards if self.keep is True else rewards[-self.keep :]
        first = added[-1] if added else -1
        return [i for i in last if self.events[i][1] == arm and i > first]


def random_story(spec, keep, seed: int, n: int = 60) -> None:
    rng = np.random.default_rng(seed)
    bandit, story = made(spec, keep_rows=keep), Story(spec, keep)
    names = [*ARMS, "black", "white"]
    for _ in range(n):
        kind = rng.random()
        arm = bandit.arms[rng.integers(len(bandit.arms))]
        reward = float(rng.integers(4))
        if kind < 0.6:
            event = ("update", arm, reward, np.array([1.0, rng.normal()]))
        elif kind < 0.75 and (places := story.kept(arm)):
            at = places[rng.integers(len(places))]
            _, _, old, user = story.events[at]
            bandit.revise(arm, old, reward, user)
            story.events[at] = ("update", arm, reward, user)
            continue
        elif kind < 0.8 and len(bandit.arms) > 1:
            event = ("remove_arm", arm)
        elif kind < 0.9 and (new := [name for name in names if name not in bandit.arms]):
            event = ("add_arm", new[rng.integers(len(new))])
        else:
            bandit = (copy.copy, lambda b: ContextualBandit.loads(b.dumps()))[rng.integers(2)](
                bandit
            )
            continue
        getattr(bandit, event[0])(*event[1:])
        story.events.append(event)
    assert alike(bandit, story.played())


def test_a_random_story_ends_as_if_it_had_been_told_right() -> None:
    random_story(OWN_NAIVE, 12, seed=0)


@slow
@pytest.mark.parametrize("seed", range(20))
def test_random_stories_end_as_if_they_had_been_told_right(seed: int) -> None:
    spec, keep = [(OWN_NAIVE, True), (OWN_NAIVE, 12), (JOINT, 12), (JOINT, True)][seed % 4]
    random_story(spec, keep, seed)


# --------------------------------------------------------------------------------- keeping it


@pytest.mark.parametrize("keep", [*(pytest.param(k, marks=slow) for k in (False, True)), 7])
def test_tally_and_rows_are_saved(keep) -> None:
    bandit = taught(rounds(12), spec=OWN_NAIVE, keep_rows=keep)
    for twin in (
        ContextualBandit.loads(bandit.dumps()),
        copy.copy(bandit),
        pickle.loads(pickle.dumps(bandit)),
    ):
        assert twin.dumps() == bandit.dumps()
        assert same_means(twin.means(), bandit.means())
        for arm, reward, user in rounds(5, seed=3):
            twin.update(arm, reward, user)
        assert bandit.n_updates == 12  # nothing is shared
        again = ContextualBandit.loads(bandit.dumps())
        for arm, reward, user in rounds(5, seed=3):
            again.update(arm, reward, user)
        assert again.dumps() == twin.dumps()


def test_files_of_the_version_before_are_read() -> None:
    content = forge.content_of(taught(rounds(10)))
    content["format_version"] = 2
    for entry in ("tally", "rows", "encoder"):
        del content[entry]
    old = ContextualBandit.loads(saved.dumps(content))
    assert old.n_updates == 10
    assert sum(old.pulls.values()) == 0  # counted from now on
    old.update("red", 1.0, [1.0, 0.0])
    assert old.pulls["red"] == 1


@slow
@pytest.mark.parametrize("keep", [True, 5])
def test_forged_rows_and_tallies_are_refused_or_used(keep) -> None:
    """Every file loads and works, or is refused in one sentence."""
    bandit = taught(rounds(12), spec=contextual.Disjoint(spec=NAIVE, n_arms=3), keep_rows=keep)
    bandit.remove_arm("green")
    bandit.update("red", 2.0, [1.0, 0.0])
    content = forge.content_of(bandit)
    rng = np.random.default_rng(1)
    small = {"state": content["rows"], "tally": content["tally"]}
    refused = 0
    for _ in range(250):
        new = forge.forged(small, rng).text
        try:
            part = json.loads(new)
            text = saved.dumps({**content, "rows": part.get("state"), "tally": part.get("tally")})
        except ValueError:
            continue
        try:
            found = ContextualBandit.loads(text)
        except SavedStateError:
            refused += 1
            continue
        try:
            found.update("red", 1.0, [1.0, 1.0])
            found.means()
            found.revise("red", 1.0, 0.0, [1.0, 1.0])
            found.add_arm("new")
        except InvalidParameterError:
            pass
    assert refused > 50


# ------------------------------------------------------------------------------------ compiled


@slow
def test_compiled_and_interpreted_bandits_are_revised_merged_and_regrouped_alike() -> None:
    def story() -> ContextualBandit:
        bandit = taught(rounds(60), keep_rows=40)
        arm, reward, user = list(rounds(60))[45]
        bandit.revise(arm, reward, 8.0, user)
        bandit.merge(taught(rounds(20, seed=4), keep_rows=True))
        bandit.remove_arm("green")
        bandit.add_arm("black")
        bandit.update("black", 3.0, [1.0, 2.0])
        return bandit

    with interpreted():
        slow = story()
    fast = story()
    assert close(fast.state, slow.state, 0.0)
    assert fast.pulls == slow.pulls
    assert same_means(fast.means(), slow.means())
