"""One vector per user and labelled arms: every arm has a model of its own."""

from __future__ import annotations

import numpy as np
import pytest

from tests.contextual_policies import PerArm, RidgeUCB
from zib import ContextualBandit, InvalidParameterError, contextual
from zib.core.entry import interpreted

ARMS = ["red", "green", "blue"]
TS = contextual.Disjoint(spec=contextual.LaplaceTS(memory=256), n_arms=3)
UCB = contextual.Disjoint(spec=contextual.JointUCB(memory=256), n_arms=3)


@pytest.fixture(autouse=True)
def _without_compiling(request):
    """One test compiles."""
    if "compiled" in request.node.name:
        yield
    else:
        with interpreted():
            yield


def users(n: int, seed: int = 0) -> np.ndarray:
    return np.column_stack([np.ones(n), np.random.default_rng(seed).normal(size=(n, 2))])


def paid(arm: object, user: np.ndarray, rng: np.random.Generator) -> float:
    return rng.gamma(4.0) if rng.random() < (0.7 if arm == "blue" and user[1] > 0 else 0.2) else 0.0


def taught(spec=TS, n: int = 60, **options) -> ContextualBandit:
    bandit = ContextualBandit(spec, n_features=3, arms=ARMS, seed=1, **options)
    rng = np.random.default_rng(2)
    for j, user in enumerate(users(n)):
        arm = ARMS[j % 3]
        bandit.update(arm, paid(arm, user, rng), user)
    return bandit


def test_labels_alone_give_every_arm_its_own_model() -> None:
    bandit = ContextualBandit(arms=ARMS, n_features=3)
    assert bandit.spec == contextual.Adaptive(n_arms=3)
    assert ContextualBandit(n_features=3).spec == contextual.JointUCB()


@pytest.mark.parametrize("spec", [TS, pytest.param(UCB, marks=pytest.mark.slow)])
def test_a_vector_is_a_matrix_of_equal_rows(spec) -> None:
    bandit, twin = taught(spec), taught(spec)
    for user in users(5, seed=4):
        rows = np.tile(user, (3, 1))
        assert bandit.indices(user) == twin.indices(rows)
        assert bandit.propensities(user, draws=20) == twin.propensities(rows, draws=20)
        ours, theirs = bandit.predict(user), twin.predict(rows)
        assert ours.arms == theirs.arms == tuple(ARMS)
        assert np.array_equal(ours.r_low, theirs.r_low)
        forms = (user, user.tolist(), (user, user), tuple(user))
        for form in forms:
            assert bandit.select(form) == twin.select(rows)
        bandit.update("green", 2.5, user)
        twin.update("green", 2.5, rows)
        assert bandit.dumps() == twin.dumps()


def test_a_vector_of_two_numbers_may_be_a_tuple() -> None:
    bandit = ContextualBandit(arms=ARMS, n_features=2, seed=0)
    bandit.update(bandit.select((1.0, 0.5)), 1.0, (1.0, 0.5))
    assert bandit.n_updates == 1


def test_eligible_arms_are_chosen_from() -> None:
    bandit, twin = taught(), taught()
    user = users(1, seed=9)[0]
    rows = np.tile(user, (2, 1))
    for _ in range(20):
        arm = bandit.select(user, arms=["blue", "red"])
        assert arm == twin.select(rows, arms=["blue", "red"])
        assert arm in ("blue", "red")
    assert bandit.select(user, arms=["green"]) == "green"
    assert list(bandit.indices(user, arms=["blue", "red"])) == ["blue", "red"]
    assert list(bandit.propensities(user, 10, arms=["blue"])) == ["blue"]
    assert set(bandit.select_many(users(10), arms=["green", "red"])) <= {"green", "red"}
    before = bandit.dumps()
    for arms, message in [
        (["blue", "black"], "`arms` must be one of 'red', 'green', 'blue'; got 'black'"),
        ([], "`arms` must hold at least one label"),
        (["blue", "blue"], "`arms` must be different"),
        ("blue", "`arms` must be a sequence"),
    ]:
        for call in (lambda a: bandit.select(user, a), lambda a: bandit.select_many([user], a)):
            with pytest.raises(InvalidParameterError, match=message):
                call(arms)
    assert bandit.dumps() == before


@pytest.mark.parametrize("spec", [TS, pytest.param(UCB, marks=pytest.mark.slow)])
def test_many_users_are_decided_as_one_after_the_other(spec) -> None:
    bandit, twin = taught(spec), taught(spec)
    rows = users(30, seed=5)
    assert bandit.select_many(rows) == [twin.select(user) for user in rows]
    assert bandit.dumps() == twin.dumps()  # the stream as well
    arms = bandit.select_many(rows)
    bandit.update_many(arms, np.arange(30.0), rows)
    for arm, reward, user in zip(twin.select_many(rows), np.arange(30.0), rows, strict=True):
        twin.update(arm, reward, user)
    assert bandit.dumps() == twin.dumps()


def test_bad_features_of_one_user_leave_the_stream_alone() -> None:
    bandit = taught()
    before = bandit.dumps()
    rows = users(4)
    rows[3, 1] = np.nan
    with pytest.raises(InvalidParameterError, match="got nan at position 3, 1"):
        bandit.select_many(rows)
    with pytest.raises(InvalidParameterError, match="`features`"):
        bandit.select(rows[3])
    with pytest.raises(InvalidParameterError, match="one row per action and 3 columns"):
        bandit.select([1.0, 2.0])
    with pytest.raises(InvalidParameterError, match="one row per arm, 3.*`select_many`"):
        bandit.select(users(5))
    assert bandit.dumps() == before


def test_a_model_for_all_arms_needs_a_row_for_each() -> None:
    bandit = ContextualBandit(RidgeUCB(), n_features=3, arms=ARMS, seed=0)
    assert bandit.select(users(3)) in ARMS
    bandit.update("red", 1.0, users(1)[0])
    wanted = r"RidgeUCB has one model for all arms.*Disjoint\(spec=RidgeUCB\(\.\.\.\), n_arms=3\)"
    for call in (bandit.select, bandit.indices, bandit.predict, bandit.propensities):
        with pytest.raises(InvalidParameterError, match=wanted):
            call([1.0, 0.0, 0.0])
    with pytest.raises(InvalidParameterError, match=wanted):
        bandit.select_many(users(3))
    bare = ContextualBandit(RidgeUCB(), n_features=3, seed=0)
    with pytest.raises(InvalidParameterError, match="one row per action and 3 columns; got shape"):
        bare.select([1.0, 0.0, 0.0])


def test_arms_of_the_policy_without_labels_are_numbers() -> None:
    bandit = ContextualBandit(PerArm(n_arms=40), n_features=3, seed=0)
    assert bandit.select(users(1)[0]) in range(40)
    assert bandit.select(users(1)[0], arms=[39]) == 39
    assert list(bandit.indices(users(1)[0], arms=[7, 3])) == [7, 3]


def test_the_two_parts_may_have_vectors_of_their_own() -> None:
    bandit = ContextualBandit(arms=ARMS, n_features=(3, 1), seed=0)
    user = (users(1)[0], np.ones(1))
    bandit.update(bandit.select(user), 2.0, user)
    assert len(bandit.select_many((users(6), np.ones((6, 1))))) == 6
    with pytest.raises(InvalidParameterError, match="must be a tuple of two"):
        bandit.select(user[0])


@pytest.mark.slow
def test_compiled_decisions_for_users_are_the_interpreted_ones() -> None:
    rows = users(50, seed=6)
    with interpreted():
        text = taught(TS).dumps()
        slow = ContextualBandit.loads(text)
        wanted = [*slow.select_many(rows), slow.select(rows[0], arms=["red", "blue"])]
    fast = ContextualBandit.loads(text)
    assert [*fast.select_many(rows), fast.select(rows[0], arms=["red", "blue"])] == wanted
