"""Target policies of every kind, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import zib
from tests.ope.helpers import ARMS, TARGET, sparse_log
from zib import InvalidParameterError, ope

MIX = dict(zip(ARMS, TARGET, strict=True))


def one_value(log, policy, **options):
    return ope.evaluate(log, {"it": policy}, estimators=["snips"], **options).value("it")


def test_ways_to_say_the_same(rng) -> None:
    log = sparse_log(rng)
    by_name = one_value(log, "c")
    assert one_value(log, ope.always("c")) == by_name
    assert one_value(log, {"c": 1.0}) == by_name
    assert one_value(log, lambda x: np.tile([0, 0, 1.0], (len(x), 1))) == by_name
    even = one_value(log, "uniform")
    assert one_value(log, dict.fromkeys(ARMS, 1 / 3)).value == pytest.approx(even.value, rel=1e-12)


def test_names_in_a_list(rng) -> None:
    def greedy(context):
        return np.tile(TARGET, (len(context), 1))

    found = ope.evaluate(sparse_log(rng), ["uniform", "b", ope.always("c"), greedy, MIX])
    names = [d.policy for d in found.diagnostics]
    assert names == ["uniform", "b", "always c", "greedy", "policy 5"]


def test_a_context_policy_equals_the_sum_over_rows(rng) -> None:
    log = sparse_log(rng)

    def policy(context):
        out = np.zeros((len(context), 3))
        out[np.arange(len(context)), np.where(context[:, 0] > 0, 2, 0)] = 1.0
        return out

    found = ope.evaluate(log, {"it": policy}, estimators="ips").value("it")
    played = np.where(log.context[:, 0] > 0, 2, 0)
    assert found.value == pytest.approx(np.mean((log.arm == played) / log.propensity * log.reward))


def test_a_bandit_is_its_propensities_now(rng) -> None:
    log = sparse_log(rng)
    bandit = zib.Bandit(zib.mab.ZIUCB(horizon=1000, sigma=5.0), arms=["c", "a", "b"], seed=1)
    for _ in range(300):
        arm = bandit.select()
        bandit.update(arm, 5.0 if arm == "b" else 0.0)
    before = bandit.dumps()
    assert bandit.propensities() == {"c": 0.0, "a": 0.0, "b": 1.0}
    assert one_value(log, bandit) == one_value(log, "b")
    assert bandit.dumps() == before


def test_arms_only_the_bandit_knows_are_missing_support(rng) -> None:
    log = sparse_log(rng)
    bandit = zib.Bandit(zib.mab.UCB1(), arms=[*ARMS, "new"], seed=1)  # plays untried arms evenly
    share = bandit.propensities()["new"]
    with pytest.raises(ope.SupportError, match=r"policy 'it' plays arms .*: 'new' \(25 %\)"):
        one_value(log, bandit)
    with (
        pytest.warns(UserWarning, match="never shows"),
        pytest.warns(UserWarning, match="do not use"),
    ):
        found = ope.evaluate(log, {"it": bandit}, estimators="ips", on_missing_support="warn")
    assert found.diagnostics[0].missing == {"new": pytest.approx(share)}


@pytest.mark.slow
def test_a_snapshot_plays_what_the_contextual_bandit_would(rng) -> None:
    log = sparse_log(rng, n=1500)
    bandit = zib.ContextualBandit(zib.contextual.JointUCB(), n_features=3, seed=1)

    def features(context):
        out = np.zeros((len(context), 3, 3))
        out[:, np.arange(3), np.arange(3)] = 1.0 + np.round(context[:, :1])
        return out

    for _ in range(200):
        z = features(rng.normal(size=(1, 2)))[0]
        row = bandit.select(z)
        bandit.update(row, float(rng.random() < 0.2 + 0.2 * row), z)
    policy = ope.snapshot(bandit, features=features)
    played = np.array([bandit.propensities(z)[2] for z in features(log.context)])
    weight = played * (log.arm == 2) / log.propensity
    found = ope.evaluate(log, {"it": policy}, estimators="ips", on_missing_support="warn")
    others = [np.array([bandit.propensities(z)[k] for z in features(log.context)]) for k in (0, 1)]
    for k in (0, 1):
        weight += others[k] * (log.arm == k) / log.propensity
    assert found.value("it").value == pytest.approx(np.mean(weight * log.reward), rel=1e-12)
    # what the bandit learns later does not matter
    for _ in range(300):
        bandit.update(0, 50.0, features(log.context[:1])[0])
    again = ope.evaluate(log, {"it": policy}, estimators="ips", on_missing_support="warn")
    assert again.value("it") == found.value("it")


@pytest.mark.usefixtures("interpreting")
def test_labels_of_a_contextual_bandit_are_matched(rng) -> None:
    log = sparse_log(rng, n=2000, p=0.5)
    bandit = zib.ContextualBandit(zib.contextual.JointUCB(), n_features=1, arms=ARMS[::-1], seed=1)

    def features(context):
        return np.tile(np.array([[[1.0], [2.0], [3.0]]]), (len(context), 1, 1))

    for _ in range(300):
        bandit.update("c", 3.0, features(log.context[:1])[0], arms=ARMS)
    found = bandit.propensities(features(log.context[:1])[0], arms=ARMS)
    assert found == {"a": 0.0, "b": 0.0, "c": 1.0}
    policy = ope.snapshot(bandit, features=features)
    assert one_value(log, policy).value == one_value(log, "c").value
    with pytest.raises(InvalidParameterError, match="shape \\(2000, 3, m\\); got \\(2000, 3\\)"):
        one_value(log, ope.snapshot(bandit, features=lambda x: np.zeros((len(x), 3))))
    other = zib.ContextualBandit(zib.contextual.JointUCB(), n_features=1, arms=["a", "x"], seed=1)
    with pytest.raises(InvalidParameterError, match="it does not know 'b'"):
        one_value(log, ope.snapshot(other, features=features))


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ("d", "policy 'it' must be 'uniform', 'logging' or about arms of the log, 'a', 'b', 'c'"),
        ("unifrom", "did you mean 'uniform'?"),
        (ope.always("B"), "got 'B'"),
        ({"a": 0.5, "b": 0.4}, "must sum to 1; they sum to 0.9"),
        ({"a": 1.5, "b": -0.5}, r"must lie in \[0, 1\]; got 1.5"),
        ({"a": 0.5, "z": 0.5}, "got 'z'"),
        (lambda x: np.ones((len(x), 2)) / 2, r"shape \(5000, 3\); got \(5000, 2\)"),
        (lambda x: np.ones(3) / 3, r"shape \(5000, 3\); got \(3,\)"),
        (lambda x: np.ones((len(x), 3)), "sum to 1 in each row; got"),
        (lambda x: np.full((len(x), 3), np.nan), r"probabilities in \[0, 1\]"),
        (lambda x: "no", "must return numbers; got 'no'"),
        (lambda x: np.tile([1.5, -0.5, 0.0], (len(x), 1)), r"in \[0, 1\]"),
    ],
)
def test_bad_policies(rng, policy, message) -> None:
    with pytest.raises(InvalidParameterError, match=message):
        one_value(sparse_log(rng), policy)


def test_bad_lists_of_policies(rng) -> None:
    log = sparse_log(rng)
    with pytest.raises(InvalidParameterError, match="at least one policy"):
        ope.evaluate(log, {})
    with pytest.raises(InvalidParameterError, match="'a' occurs twice"):
        ope.evaluate(log, ["a", "a"])
    with pytest.raises(InvalidParameterError, match="`policies` must be a mapping"):
        ope.evaluate(log, 3)
    bandit = zib.ContextualBandit(zib.contextual.JointUCB(), n_features=2)
    with pytest.raises(InvalidParameterError, match="zib.ope.snapshot"):
        ope.evaluate(log, {"it": bandit})
    with pytest.raises(InvalidParameterError, match="`features` must be a function"):
        ope.snapshot(bandit, features=3)
    with pytest.raises(InvalidParameterError, match="`bandit` must be a zib.ContextualBandit"):
        ope.snapshot("x", features=len)
