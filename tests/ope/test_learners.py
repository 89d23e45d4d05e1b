"""Policies learned from the log that judges them."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import zib
from tests.ope.helpers import ARMS, sparse_log
from zib import InvalidParameterError, ope
from zib.logs import LoggedData

pytestmark = pytest.mark.filterwarnings("ignore:policy .* do not use its value")


def without_effect(rng, n=400, arms=4, features=5, chance=0.3):
    """A randomised log in which nothing matters: every policy is worth the same."""
    arm = rng.integers(arms, size=n)
    reward = (rng.random(n) < chance) * rng.exponential(1.0, n)
    return LoggedData.from_arrays(
        arm, reward, propensity=np.full(n, 1 / arms), context=rng.normal(size=(n, features))
    )


def value_of(log, policy, **options):
    return ope.evaluate(log, {"it": policy}, estimators=["ips"], **options).value("it").value


def test_rows_are_judged_by_a_policy_that_has_not_seen_them(rng) -> None:
    """By hand: five folds, in each the best arm of the others."""
    log = without_effect(rng)
    seen = []

    class Best:
        def fit(self, part):
            mean = [part.reward[part.arm == k].mean() for k in range(4)]
            seen.append((part.n_rows, int(np.argmax(mean))))
            return ope.always(part.arms[int(np.argmax(mean))])

    found = value_of(log, ope.learned(Best()))
    assert found == value_of(log, ope.learned("best"))
    assert len(seen) == 5
    assert sum(400 - n for n, _ in seen) == 400  # the folds left out are the log
    from zib.logs.ope.learners import Learning
    from zib.logs.passes import blocks

    (block,) = blocks(log)
    fold = Learning(log, 5, 500_000, 0).fold(block)
    assert [int((fold != f).sum()) for f in range(5)] == [n for n, _ in seen]
    played = np.array([best for _, best in seen])[fold]
    assert found == pytest.approx(np.mean((log.arm == played) * 4.0 * log.reward))


def test_clusters_stay_together(rng) -> None:
    cluster = np.repeat(np.arange(40), 10)
    log = without_effect(rng)
    log = LoggedData.from_arrays(
        log.arm, log.reward, propensity=log.propensity, context=cluster[:, None], cluster=cluster
    )
    parts = []

    class Spy:
        def fit(self, part):
            parts.append(set(part.context[:, 0].tolist()))
            return lambda x: np.tile([1.0, 0, 0, 0], (len(x), 1))

    found = ope.evaluate(log, {"it": ope.learned(Spy())}, estimators=["ips"])
    assert found.settings["clusters"] == 40
    missing = [set(range(40)) - part for part in parts]
    assert sorted(c for left in missing for c in left) == list(range(40))


@pytest.mark.usefixtures("interpreting")
def test_bandits_learn_the_other_folds(rng) -> None:
    log = sparse_log(rng, n=300, p=0.4)
    for spec in (zib.mab.UCB1(scale=50.0), zib.contextual.JointUCB()):
        found = ope.evaluate(log, [ope.learned(spec)], estimators=["snips"], learn_folds=2)
        (value,) = found.values
        assert value.policy == f"learned {type(spec).__name__}"
        assert np.isfinite(value.value)
    assert found.settings["learn_folds"] == 2


def test_a_greedy_policy_takes_the_largest_prediction(rng) -> None:
    log = sparse_log(rng, n=2000, p=0.4)
    q = ope.Hurdle().fit(log.arm, log.context, log.reward, 3).predict(log.context)
    policy = ope.Greedy().fit(log)(log.context)
    assert (policy.argmax(axis=1) == q.argmax(axis=1)).all()
    assert repr(ope.Greedy("one_part")) == "Greedy(OnePart())"


def test_a_bandit_that_learned_the_log_is_noticed(rng) -> None:
    log = sparse_log(rng, n=3000, p=0.3)
    labels = [log.arms[k] for k in log.arm]
    bandit = zib.Bandit(zib.mab.UCB1(scale=50.0), arms=ARMS, seed=0)
    bandit.update_many(labels, log.reward / 7.0)  # in other units
    with pytest.warns(UserWarning, match="it has learned as many rewards of each arm"):
        found = ope.evaluate(log, {"it": bandit}, estimators=["snips"])
    assert found.value("it").grade == "caution"
    assert (
        "it probably learned from these very rows, which flatters it" in found.value("it").reasons
    )
    # one row less, or one more: another log
    other = zib.Bandit(zib.mab.UCB1(scale=50.0), arms=ARMS, seed=0)
    other.update_many(labels[1:], log.reward[1:])
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*learned")
        ope.evaluate(log, {"it": other}, estimators=["snips"], on_missing_support="warn")


def per_arm(n_arms):
    """Return a policy that is not random, so that its propensities are exact."""
    return zib.contextual.Disjoint(spec=zib.contextual.JointUCB(), n_arms=n_arms)


@pytest.mark.usefixtures("interpreting")
def test_a_contextual_bandit_needs_no_snapshot_where_arms_have_models(rng) -> None:
    log = sparse_log(rng, n=200, p=0.4)
    labels = [log.arms[k] for k in log.arm]
    bandit = zib.ContextualBandit(per_arm(len(ARMS)), arms=ARMS, n_features=2, seed=1)
    bandit.update_many(labels, log.reward, log.context)
    with pytest.warns(UserWarning, match="as many rewards as the log has rows"):
        found = ope.evaluate(log, {"it": bandit}, estimators=["ips"])
    played = [bandit.propensities(x) for x in log.context]
    weight = np.array([p[arm] for p, arm in zip(played, labels, strict=True)]) / log.propensity
    assert found.value("it").value == pytest.approx(np.mean(weight * log.reward))
    narrow = zib.ContextualBandit(per_arm(len(ARMS)), arms=ARMS, n_features=3, seed=1)
    with pytest.raises(InvalidParameterError, match="decides on 3 features and the log has a con"):
        ope.evaluate(log, {"it": narrow})


@pytest.mark.usefixtures("interpreting")
def test_the_encoder_of_a_bandit_reads_the_context(rng) -> None:
    import pandas as pd

    n = 120
    frame = pd.DataFrame(
        {
            "ad": rng.choice(["a", "b"], n),
            "age": rng.integers(18, 70, n),
            "region": rng.choice(["north", "south", "west"], n),
            "spent": (rng.random(n) < 0.4) * 3.0,
            "p": 0.5,
        }
    )
    known = frame[["age", "region"]]
    encoder = zib.Encoder().fit(known)
    bandit = zib.ContextualBandit(per_arm(2), arms=["a", "b"], encoder=encoder, seed=0)
    bandit.update_many(frame["ad"][:80], frame["spent"][:80], known[:80])
    log = LoggedData.from_frame(
        frame, arm="ad", reward="spent", propensity="p", context=["age", "region"]
    )
    found = ope.evaluate(log, {"it": bandit}, estimators=["ips"], on_missing_support="warn")
    played = [bandit.propensities(row) for row in known.to_dict("records")]
    weight = np.array([p[arm] for p, arm in zip(played, frame["ad"], strict=True)]) / 0.5
    assert found.value("it").value == pytest.approx(np.mean(weight * frame["spent"]))


@pytest.mark.parametrize("learner", ["worst", 3, None, ope.Greedy, zib.mab.UCB1])
def test_bad_learners(learner) -> None:
    with pytest.raises(InvalidParameterError, match="`learner` must be 'best', 'greedy', a policy"):
        ope.learned(learner)


def test_bad_fits(rng) -> None:
    class Nothing:
        def fit(self, log):
            return None

    log = sparse_log(rng, n=300)
    with pytest.raises(InvalidParameterError, match="`fit` must return a policy; got None"):
        ope.evaluate(log, {"it": ope.learned(Nothing())})
    with pytest.raises(InvalidParameterError, match="at least 100 rows to learn a policy in 5"):
        ope.evaluate(sparse_log(rng, n=90), {"it": ope.learned("best")})


def test_randomised_is_graded_as_such(rng) -> None:
    log = sparse_log(rng, n=8000, p=0.3, features=0, propensity=False)
    policies = {"c": "c"}
    with pytest.warns(UserWarning, match="estimated"):
        doubted = ope.evaluate(log, policies, propensities="estimated", estimators=["snips"])
    found = ope.evaluate(log, policies, propensities="randomised", estimators=["snips"])
    assert doubted.value("c").value == found.value("c").value
    assert (doubted.value("c").grade, found.value("c").grade) == ("caution", "good")
    assert found.settings["propensities"] == "randomised, with the shares of the log"


def test_rows_of_a_cluster_widen_the_interval(rng) -> None:
    """Twenty copies of each row say no more than the row: the error is that of the rows alone."""
    log = sparse_log(rng, n=300, p=0.4, features=0)
    copies = np.repeat(np.arange(300), 20)
    many = LoggedData.from_arrays(
        np.array(ARMS)[log.arm[copies]], log.reward[copies], propensity=log.propensity[copies],
        cluster=copies, arms=ARMS,
    )  # fmt: skip
    options = {"estimators": ["ips", "snips"], "baseline": "logging"}
    one, other = ope.evaluate(log, ["b"], **options), ope.evaluate(many, ["b"], **options)
    assert other.settings["clusters"] in range(290, 301)  # a few may share a bin
    for a, b in zip((*one.values, *one.differences), (*other.values, *other.differences)):
        assert b.value == pytest.approx(a.value)
        assert b.error == pytest.approx(a.error, rel=0.05)
    with pytest.raises(InvalidParameterError, match="for a log with clusters; got 'bootstrap'"):
        ope.evaluate(many, ["b"], interval="bootstrap")


@pytest.mark.slow
def test_in_sample_values_flatter_and_cross_fitted_ones_do_not() -> None:
    """300 logs without effect: each mean is within 4 standard errors of its expectation with
    probability 0.99994; the bias in sample is about 20 of them."""
    rng = np.random.default_rng(5)
    logs, truth = 300, 0.3
    inside, across = np.empty((2, logs))
    for i in range(logs):
        log = without_effect(rng)
        inside[i] = value_of(log, ope.Greedy().fit(log))
        across[i] = value_of(log, ope.learned("greedy"))
    error = across.std() / np.sqrt(logs)
    assert abs(across.mean() - truth) < 4 * error
    assert inside.mean() - truth > 4 * inside.std() / np.sqrt(logs)
    assert inside.mean() - truth > 0.05


@pytest.mark.slow
def test_intervals_of_learned_policies_cover_where_arms_differ() -> None:
    """150 logs, the value of the best arm: below 131 covered has probability 1e-4 if 95 % are."""
    rng = np.random.default_rng(6)
    means, covered = np.array([0.2, 0.3, 0.6]), 0
    for _ in range(150):
        arm = rng.integers(3, size=900)
        reward = (rng.random(900) < means[arm]) * rng.exponential(1.0, 900)
        log = LoggedData.from_arrays(arm, reward, propensity=np.full(900, 1 / 3))
        found = ope.evaluate(log, [ope.learned("best")], estimators=["snips"])
        covered += found.values[0].low <= 0.6 <= found.values[0].high
    assert covered >= 131


@pytest.mark.slow
def test_clustered_intervals_cover_with_forty_clusters() -> None:
    """300 logs of 40 clusters with effects of their own: below 264 has probability 5e-5 if 93 %
    are covered in truth; intervals for independent rows cover far less."""
    rng = np.random.default_rng(7)
    covered = naive = 0
    for _ in range(300):
        cluster = np.repeat(np.arange(40), 25)
        arm = rng.integers(2, size=1000)
        own = np.exp(rng.normal(-0.18, 0.6, 40))[cluster]
        reward = (rng.random(1000) < 0.3) * own * rng.gamma(2.0, 0.5, 1000)
        one, other = (
            ope.evaluate(
                LoggedData.from_arrays(arm, reward, propensity=np.full(1000, 0.5), **more),
                [1], estimators=["snips"],
            ).values[0]
            for more in ({"cluster": cluster}, {})
        )  # fmt: skip
        covered += one.low <= 0.3 <= one.high
        naive += other.low <= 0.3 <= other.high
    assert covered >= 264
    assert naive < covered
