from __future__ import annotations

import copy
import json
import math
import pickle

import numpy as np
import pandas as pd
import pytest
from scipy import special, stats

import zib
from tests.contextual_policies import COMPILED, INTERPRETED, SPECS, PerArm, RidgeUCB, TwoPart
from zib import ContextualBandit, InvalidParameterError, SavedStateError, contextual
from zib.stats.predictions import Curve, product_quantiles
from zib.testing.specs import category_of

pytestmark = pytest.mark.usefixtures("_both_ways")

UCB = RidgeUCB(width=0.5)
TS = TwoPart()
D = 3
FEATURES = np.random.default_rng(0).normal(size=(4, D))
CLOSE = FEATURES[0] + 0.1 * FEATURES  # actions so alike that a draw decides


def trained(spec=TS, n=60, seed=3, n_features=D, **options) -> ContextualBandit:
    bandit = ContextualBandit(spec, n_features=n_features, seed=seed, **options)
    rng = np.random.default_rng(seed)
    for _ in range(n):
        features = rng.normal(size=(4, D))
        arm = bandit.select(features)
        paid = rng.random() < 0.4
        size = 2.0 + rng.random() if paid else 0.0
        bandit.update(arm, bandit.inflated + size, features, category=category_of(spec, size))
    return bandit


def same(a: ContextualBandit, b: ContextualBandit) -> bool:
    return a.dumps() == b.dumps()


# --------------------------------------------------------------------------------- construction


@pytest.mark.parametrize("n_features", [0, -1, 1.5, True, (3, 0), "3", None])
def test_n_features_out_of_range(n_features) -> None:
    with pytest.raises(InvalidParameterError, match="`n_features` must"):
        ContextualBandit(UCB, n_features=n_features)


def test_n_features_is_a_number_or_a_pair() -> None:
    assert ContextualBandit(UCB, n_features=3).n_features == (3, 3)
    assert ContextualBandit(UCB, n_features=(3, 2)).n_features == (3, 2)
    with pytest.raises(InvalidParameterError, match="`n_features` must be a number or a pair"):
        ContextualBandit(UCB, n_features=(3, 2, 1))


def test_labels_must_differ_and_exist() -> None:
    with pytest.raises(InvalidParameterError, match="different"):
        ContextualBandit(UCB, n_features=D, arms=["a", "a"])
    with pytest.raises(InvalidParameterError, match="at least one"):
        ContextualBandit(UCB, n_features=D, arms=[])


def test_other_policies_are_refused() -> None:
    with pytest.raises(TypeError, match="without features; use zib.Bandit"):
        ContextualBandit(zib.mab.UCB1(), n_features=D)
    with pytest.raises(TypeError, match="not a registered contextual policy"):
        ContextualBandit((1, 2), n_features=D)


def test_labels_and_arms_of_the_policy_must_agree() -> None:
    with pytest.raises(InvalidParameterError, match="`arms` must be 5 labels"):
        ContextualBandit(PerArm(n_arms=5), n_features=D, arms=list("abc"))


# ------------------------------------------------------------------------------ forms of features


@pytest.mark.slow
def test_every_form_of_the_same_features_decides_alike() -> None:
    whole = np.round(FEATURES, 2)
    forms = {
        "array": whole,
        "lists": whole.tolist(),
        "tuples": tuple(tuple(row) for row in whole.tolist()),
        "float32 and back": whole.astype(np.float32).astype(np.float64),
        "Fortran order": np.asfortranarray(whole),
        "strided": np.repeat(whole, 2, axis=1)[:, ::2],
        "frame": pd.DataFrame(whole, columns=list("xyz")),
        "pair": (whole, whole),
        "pair of lists": (whole.tolist(), whole.tolist()),
        "objects": whole.astype(object),
    }
    read_only = whole.copy()
    read_only.flags.writeable = False
    forms["read only"] = read_only
    wanted = trained(UCB).indices(whole)
    for name, form in forms.items():
        found = trained(UCB).indices(form)
        assert found == pytest.approx(wanted, rel=1e-6), name
        bandit, twin = trained(TS), trained(TS)
        assert bandit.select(form) == twin.select(whole) or name.startswith("float32")
        if not name.startswith("float32"):
            assert bandit.propensities(form) == twin.propensities(whole), name
            bandit.update(2, 1.5, form)
            twin.update(2, 1.5, whole)
            assert same(bandit, twin), name


def test_whole_numbers_and_truth_values_are_features() -> None:
    bandit, twin = trained(), trained()
    bandit.update(0, 1, np.array([[1, 0, 1]]))
    twin.update(0, 1.0, np.array([[True, False, True]]))
    assert same(bandit, twin)
    mixed = pd.DataFrame({"a": [True, False], "b": [1, 2], "c": [0.5, 1.5]})
    assert mixed.to_numpy().dtype == object
    assert bandit.select(mixed) in (0, 1)


def test_the_row_alone_teaches_what_the_matrix_teaches() -> None:
    bandits = [trained() for _ in range(4)]
    bandits[0].update(2, 1.5, FEATURES)
    bandits[1].update(2, 1.5, FEATURES[2])
    bandits[2].update(2, 1.5, FEATURES[2].tolist())
    bandits[3].update(2, 1.5, pd.DataFrame(FEATURES).iloc[2])
    assert all(same(bandits[0], other) for other in bandits[1:])


def test_the_two_parts_see_their_own_features(rng) -> None:
    bandit = ContextualBandit(TS, n_features=(3, 2), seed=0)
    z, w = rng.normal(size=(5, 3)), rng.normal(size=(5, 2))
    bandit.update(bandit.select((z, w)), 1.0, (z, w))
    bandit.update(1, 2.0, (z[1], w[1]))
    assert bandit.state.magnitude.estimate.shape == (3,)
    assert bandit.state.occurrence.estimate.shape == (2,)
    for features in (z, z[0], w):
        with pytest.raises(InvalidParameterError, match="must be a tuple of two, with 3 features"):
            bandit.update(0, 1.0, features)


def test_only_the_rows_of_one_matrix_are_used_twice(rng) -> None:
    one, two = trained(), trained()
    z, w = rng.normal(size=(5, D)), rng.normal(size=(5, D))
    assert one.indices(z) == two.indices((z, z))
    assert one.indices(z) != two.indices((z, w))


def test_action_sets_of_any_size() -> None:
    bandit = trained()
    rng = np.random.default_rng(1)
    for n in (1, 2, 40, 300, 7, 1000, 1):
        features = rng.normal(size=(n, D))
        twin = copy.deepcopy(bandit)
        scores = twin.indices(features)
        row = bandit.select(features)
        assert row == max(scores, key=scores.get)
        bandit.update(row, 1.0, features)


# ----------------------------------------------------------------------------------- bad input


BAD_FEATURES = {
    "one row alone": (FEATURES[0], "one row per action and 3 columns; got shape"),
    "a column too few": (FEATURES[:, :2], r"3 columns; got shape \(4, 2\)"),
    "a column too many": (np.ones((4, 5)), r"3 columns; got shape \(4, 5\)"),
    "three dimensions": (np.ones((2, 4, 3)), r"got shape \(2, 4, 3\)"),
    "a number": (1.0, r"got shape \(\)"),
    "no action": (np.ones((0, 3)), "at least one row; got none"),
    "an empty list": ([], "at least one row; got none"),
    "ragged": ([[1.0, 2.0, 3.0], [1.0]], "rows of equal length"),
    "text": ([["a", "b", "c"]], "must hold numbers"),
    "digits": ([["1", "2", "3"]], "must hold numbers"),
    "complex": (np.ones((4, 3)) * 1j, "must hold numbers"),
    "nothing inside": ([[None, 1.0, 2.0]], "must hold numbers; got"),
    "missing values": (pd.DataFrame({"a": [pd.NA], "b": [1.0], "c": [2.0]}), "must hold numbers"),
    "dates": (np.zeros((4, 3), dtype="datetime64[s]"), "must hold numbers"),
    "NaN": (np.where(np.eye(4, 3) == 1, np.nan, FEATURES), "got nan at position 0, 0"),
    "infinite": (np.where(np.eye(4, 3) == 1, -np.inf, FEATURES), "got -inf at position 0, 0"),
    "huge": (np.where(np.eye(4, 3) == 1, 1e51, FEATURES), "got 1e[+]51 at position 0, 0"),
    "pair of different lengths": ((FEATURES, FEATURES[:2]), "as many rows in both matrices"),
    "bad second part": ((FEATURES, FEATURES * np.nan), r"`features\[1\]` must lie in"),
}


@pytest.mark.parametrize("name", BAD_FEATURES)
def test_bad_features_change_nothing(name) -> None:
    features, message = BAD_FEATURES[name]
    bandit = trained()
    before = bandit.dumps()
    for call in (bandit.select, bandit.indices, bandit.propensities, bandit.predict):
        with pytest.raises(InvalidParameterError, match=message):
            call(features)
    if name != "one row alone":
        with pytest.raises(InvalidParameterError, match="`features"):
            bandit.update(0, 1.0, features)
    with pytest.raises(InvalidParameterError, match="`features"):
        bandit.update_many([0, 1, 2, 3], np.ones(4), features)
    assert bandit.dumps() == before
    assert bandit.select(FEATURES) in range(4)


def test_only_the_row_that_was_played_has_to_be_known() -> None:
    bandit = trained()
    features = FEATURES.copy()
    features[3] = np.nan
    bandit.update(1, 1.0, features)
    with pytest.raises(InvalidParameterError, match="got nan at position 0"):
        bandit.update(3, 1.0, features)


@pytest.mark.parametrize(
    "row", [[1.0], [1.0, 2.0, 3.0, 4.0], [math.nan, 1.0, 1.0], ["a", "b", "c"]]
)
def test_bad_rows_change_nothing(row) -> None:
    bandit = trained()
    before = bandit.dumps()
    with pytest.raises(InvalidParameterError, match="`features` must"):
        bandit.update(0, 1.0, row)
    assert bandit.dumps() == before


def test_a_reward_without_features_is_named() -> None:
    bandit = trained()
    before = bandit.dumps()
    with pytest.raises(InvalidParameterError, match="`features` must be given with the reward"):
        bandit.update(0, 1.0)
    assert bandit.dumps() == before


@pytest.mark.parametrize(
    "reward", [math.nan, math.inf, -math.inf, 1e300, -1e300, "1", None, [1.0], 1j]
)
def test_bad_rewards_change_nothing(reward) -> None:
    bandit = trained()
    before = bandit.dumps()
    with pytest.raises(InvalidParameterError, match="`reward` must be a finite number"):
        bandit.update(0, reward, FEATURES)
    with pytest.raises((InvalidParameterError, ValueError, TypeError)):
        bandit.update_many([0, 1], [1.0, reward], FEATURES[:2])
    assert bandit.dumps() == before


@pytest.mark.parametrize("arm", [4, -1, 1.0, "a", None, True, [0]])
def test_an_arm_outside_the_action_set_changes_nothing(arm) -> None:
    bandit = trained()
    before = bandit.dumps()
    with pytest.raises(InvalidParameterError, match=r"a row of `features`, .* in \[0, 3\]; got"):
        bandit.update(arm, 1.0, FEATURES)
    assert bandit.dumps() == before


@pytest.mark.parametrize("arm", ["z", 0, None, ["a"]])
def test_unknown_labels_change_nothing(arm) -> None:
    bandit = trained(arms=list("abcd"))
    before = bandit.dumps()
    for features in (FEATURES, FEATURES[0]):
        with pytest.raises(InvalidParameterError, match="`arm` must be one of 'a', 'b', 'c', 'd'"):
            bandit.update(arm, 1.0, features)
    with pytest.raises(InvalidParameterError, match="`arms` must be one of"):
        bandit.update_many(["a", arm], [1.0, 1.0], FEATURES[:2])
    assert bandit.dumps() == before


def test_batches_that_do_not_fit_change_nothing() -> None:
    bandit = trained()
    before = bandit.dumps()
    with pytest.raises(InvalidParameterError, match="one per arm"):
        bandit.update_many([0, 1], [1.0], FEATURES[:2])
    with pytest.raises(InvalidParameterError, match="one row per reward, 2; got 4"):
        bandit.update_many([0, 1], [1.0, 2.0], FEATURES)
    late = FEATURES.copy()
    late[3, 2] = np.nan
    with pytest.raises(InvalidParameterError, match="got nan at position 3, 2"):
        bandit.update_many(range(4), np.ones(4), late)
    assert bandit.dumps() == before
    bandit.update_many([], [], np.ones((0, D)))
    assert bandit.dumps() == before


def test_arms_of_the_policy_bound_the_rows() -> None:
    bandit = ContextualBandit(PerArm(n_arms=3), n_features=D, seed=0)
    with pytest.raises(InvalidParameterError, match="at most 3 rows"):
        bandit.select(FEATURES)
    with pytest.raises(InvalidParameterError, match=r"`arm` must lie in \[0, 2\]; got 3"):
        bandit.update(3, 1.0, FEATURES)
    with pytest.raises(InvalidParameterError, match=r"`arm` must lie in \[0, 2\]; got 3"):
        bandit.update(3, 1.0, FEATURES[0])
    with pytest.raises(InvalidParameterError, match=r"`arms` must lie in \[0, 2\]; got 7"):
        bandit.select(FEATURES[:2], arms=[0, 7])


# ----------------------------------------------------------------------------------------- labels


def test_labels_are_rows_in_order() -> None:
    plain, labelled = trained(), trained(arms=list("abcd"))
    assert plain.indices(FEATURES) == {
        "abcd".index(a): s for a, s in labelled.indices(FEATURES).items()
    }
    assert "abcd"[plain.select(FEATURES)] == labelled.select(FEATURES)
    assert np.array_equal(plain.state.magnitude.estimate, labelled.state.magnitude.estimate)


def test_a_changing_choice_of_known_labels() -> None:
    bandit = ContextualBandit(PerArm(n_arms=4), n_features=D, arms=list("abcd"), seed=0)
    bandit.update_many(list("abcd"), [1.0, 4.0, 3.0, 2.0], FEATURES)
    assert bandit.select(FEATURES) == "b"
    assert bandit.select(FEATURES[:2], arms=list("da")) == "d"
    assert bandit.indices(FEATURES[:3], arms=list("cab")) == {"c": 3.0, "a": 1.0, "b": 4.0}
    assert bandit.propensities(FEATURES[:2], arms=list("cd")) == {"c": 1.0, "d": 0.0}
    assert bandit.predict(FEATURES[:2], arms=list("dc")).r.tolist() == [2.0, 3.0]
    bandit.update("a", 9.0, FEATURES[:2], arms=list("da"))
    assert bandit.state.total.tolist() == [10.0, 4.0, 3.0, 2.0]
    with pytest.raises(InvalidParameterError, match="one row per arm, 4, or `arms`"):
        bandit.select(FEATURES[:2])
    with pytest.raises(InvalidParameterError, match="one row per arm, 4, or `arms`"):
        bandit.update("a", 9.0, FEATURES[:2])
    with pytest.raises(InvalidParameterError, match="`arm` must be one of `arms`"):
        bandit.update("b", 9.0, FEATURES[:2], arms=list("da"))
    with pytest.raises(InvalidParameterError, match="one label per row of `features`, 2; got 3"):
        bandit.select(FEATURES[:2], arms=list("abc"))
    with pytest.raises(InvalidParameterError, match="`arms` must be one of"):
        bandit.select(FEATURES[:2], arms=list("az"))
    with pytest.raises(InvalidParameterError, match="different"):
        bandit.select(FEATURES[:2], arms=list("aa"))


def test_labels_given_only_at_the_decision() -> None:
    bandit, twin = trained(), trained()
    articles = [("news", 17), ("news", 4), ("sport", 1), None]
    chosen = bandit.select(FEATURES, arms=articles)
    row = twin.select(FEATURES)
    assert chosen == articles[row]
    bandit.update(chosen, 1.0, FEATURES, arms=articles)
    twin.update(row, 1.0, FEATURES)
    bandit.update(chosen, 2.0, FEATURES[row])
    twin.update(row, 2.0, FEATURES[row])
    bandit.update_many([chosen], [3.0], FEATURES[:1])
    twin.update_many([row], [3.0], FEATURES[:1])
    assert same(bandit, twin)


# ------------------------------------------------------------------------------------ decisions


@pytest.mark.parametrize("name", SPECS)
def test_indices_preview_the_next_decision(name, rng) -> None:
    bandit = ContextualBandit(SPECS[name], n_features=D, seed=2)
    for t in range(40):
        features = rng.normal(size=(5, D))
        scores = bandit.indices(features)
        best = [a for a, s in scores.items() if s == max(scores.values())]
        arm = bandit.select(features)
        assert arm in best
        reward = 0.0 if t % 3 else 1.5
        bandit.update(arm, reward, features, category=category_of(SPECS[name], reward))


def test_select_learns_nothing_and_update_draws_nothing() -> None:
    bandit = trained()
    state, stream = bandit.dumps(), bandit.rng.bit_generator.state
    bandit.select(FEATURES)
    assert bandit.rng.bit_generator.state != stream
    content = [json.loads(text) for text in (state, bandit.dumps())]
    assert content[0]["state"] == content[1]["state"]
    stream = bandit.rng.bit_generator.state
    bandit.update(1, 2.0, FEATURES)
    bandit.update_many([1, 2], [0.0, 1.0], FEATURES[:2])
    assert bandit.rng.bit_generator.state == stream


def test_propensities_are_exact_for_index_policies_and_share_ties() -> None:
    bandit = ContextualBandit(UCB, n_features=D, seed=0)
    found = bandit.propensities(np.ones((4, D)))
    assert found.exact
    assert found == dict.fromkeys(range(4), 0.25)
    bandit = trained(UCB)
    found = bandit.propensities(FEATURES)
    assert found[bandit.select(FEATURES)] == 1.0
    assert sum(found.values()) == 1.0


def test_monte_carlo_propensities_state_their_error_and_disturb_nothing() -> None:
    bandit = trained(TS, n=5)
    twin = ContextualBandit.loads(bandit.dumps())
    found = bandit.propensities(CLOSE, draws=20_000)
    assert not found.exact
    assert sum(found.values()) == pytest.approx(1.0)
    assert same(bandit, twin)
    assert sum(prob > 0.05 for prob in found.values()) >= 2
    chosen = [twin.select(CLOSE) for _ in range(20_000)]
    for arm, prob in found.items():
        # difference of two proportions at 6 joint standard errors: below 1e-8
        error = math.hypot(found.error, math.sqrt(prob * (1 - prob) / len(chosen)) + 1e-4)
        assert abs(chosen.count(arm) / len(chosen) - prob) < 6 * error


# ------------------------------------------------------------------------------------- learning


def test_late_rewards_in_any_order_and_batches() -> None:
    rng = np.random.default_rng(4)
    decided = [(rng.normal(size=(5, D)), int(rng.integers(5)), float(r)) for r in range(12)]
    one, many = (
        ContextualBandit(TS, n_features=D, seed=0),
        ContextualBandit(TS, n_features=D, seed=0),
    )
    for features, arm, reward in decided[::-1]:
        one.update(arm, reward, features)
    many.update_many(
        [arm for _, arm, _ in decided[::-1]],
        [reward for *_, reward in decided[::-1]],
        np.array([features[arm] for features, arm, _ in decided[::-1]]),
    )
    assert same(one, many)
    assert one.n_updates == many.n_updates == 12


def test_horizon_exceeded_warns_once_and_goes_on() -> None:
    bandit = ContextualBandit(TwoPart(horizon=5), n_features=D, seed=0)
    bandit.update_many([0, 1, 2, 3], np.ones(4), FEATURES)
    bandit.update(0, 1.0, FEATURES)
    with pytest.warns(UserWarning, match="horizon of 5"):
        bandit.update(0, 1.0, FEATURES)
    for _ in range(5):  # warnings are errors here: a second one would fail the test
        bandit.update(bandit.select(FEATURES), 1.0, FEATURES)


def test_inflated_value_other_than_zero() -> None:
    plain, shifted = trained(), trained(inflated=-3.0)
    assert np.allclose(plain.state.magnitude.estimate, shifted.state.magnitude.estimate)
    a, b = plain.predict(FEATURES), shifted.predict(FEATURES)
    assert np.allclose(a.p, b.p)
    for name in ("mu", "mu_low", "mu_high", "r", "r_low", "r_high"):
        assert np.allclose(getattr(a, name) - 3.0, getattr(b, name)), name


def test_state_is_a_copy() -> None:
    bandit = trained()
    before = bandit.dumps()
    bandit.state.magnitude.estimate[:] = 7.0
    assert bandit.dumps() == before


# --------------------------------------------------------------------------------- predictions


def test_predictions_of_a_policy_with_two_parts() -> None:
    bandit = trained(n=200)
    found = bandit.predict(FEATURES, level=0.9)
    state = bandit.state
    z = stats.norm.ppf(0.95)
    for k, row in enumerate(FEATURES):
        eta = state.occurrence.estimate @ row
        eta_se = math.sqrt(row @ state.occurrence.inverse @ row)
        mu = state.magnitude.estimate @ row
        mu_se = math.sqrt(row @ state.magnitude.inverse @ row)
        assert found.p[k] == pytest.approx(stats.norm.cdf(eta))
        assert found.p_low[k] == pytest.approx(stats.norm.cdf(eta - z * eta_se))
        assert found.p_high[k] == pytest.approx(stats.norm.cdf(eta + z * eta_se))
        assert found.mu[k] == pytest.approx(mu)
        assert found.mu_low[k] == pytest.approx(mu - z * mu_se)
        assert found.mu_high[k] == pytest.approx(mu + z * mu_se)
        assert found.r[k] == pytest.approx(stats.norm.cdf(eta) * mu)
        assert found.r_low[k] < found.r[k] < found.r_high[k]


def test_predictions_of_a_policy_without_an_occurrence_part() -> None:
    found = trained(UCB).predict(FEATURES)
    assert all(np.isnan(getattr(found, name)).all() for name in ("p", "p_low", "mu", "mu_high"))
    assert (found.r_low < found.r).all()
    assert (found.r < found.r_high).all()


def test_predictions_as_a_table() -> None:
    frame = trained(arms=list("abcd")).predict(FEATURES).to_frame()
    assert frame.shape == (4, 9)
    assert list(frame.index) == list("abcd")
    assert frame.loc["b", "r_low"] < frame.loc["b", "r"]
    tuples = trained().predict(FEATURES[:2], arms=[("a", 1), ("b", 2)]).to_frame()
    assert list(tuples.index) == [("a", 1), ("b", 2)]


@pytest.mark.parametrize("level", [0, 1, 1.5, math.nan, "0.9"])
def test_levels_out_of_range(level) -> None:
    with pytest.raises(InvalidParameterError, match="`level` must"):
        trained().predict(FEATURES, level=level)


def test_a_link_that_exceeds_one_is_capped() -> None:
    bandit = ContextualBandit(TwoPart(link=contextual.Log()), n_features=1, seed=0)
    bandit.update_many([0] * 50, np.ones(50), np.full((50, 1), 3.0))
    found = bandit.predict([[50.0], [-50.0]])
    assert found.p[0] == found.p_high[0] == 1.0
    assert found.r_high[0] == pytest.approx(found.mu_high[0], rel=1e-3)
    assert 0.0 <= found.p_low[1] < found.p_high[1] < 1e-4


def _quantiles(eta, eta_variance, zeta, zeta_variance, covariance, levels=(0.1, 0.9), g=None):
    moments = np.array([[eta], [eta_variance], [zeta], [zeta_variance], [covariance]])
    return product_quantiles(stats.norm.cdf, g, moments, np.array(levels))[:, 0]


@pytest.mark.parametrize(
    ("eta", "eta_sd", "mu", "mu_sd", "correlation"),
    [
        (0.0, 0.3, 2.0, 0.1, 0.0),
        (-2.0, 1.0, 1.0, 2.0, 0.0),
        (-1.0, 0.5, 3.0, 1.0, 0.8),
        (0.5, 0.5, -1.0, 0.7, -0.9),
        (-3.0, 0.2, 0.1, 1.0, 0.3),
    ],
)
def test_product_quantiles_are_those_of_simulated_products(
    rng, eta, eta_sd, mu, mu_sd, correlation
) -> None:
    n = 400_000
    covariance = correlation * eta_sd * mu_sd
    matrix = [[eta_sd**2, covariance], [covariance, mu_sd**2]]
    draws = rng.multivariate_normal([eta, mu], matrix, size=n)
    products = stats.norm.cdf(draws[:, 0]) * draws[:, 1]
    levels = (0.025, 0.5, 0.9)
    found = _quantiles(eta, eta_sd**2, mu, mu_sd**2, covariance, levels)
    for level, quantile in zip(levels, found):
        # a proportion at 6 standard errors: error probability below 1e-8
        share = (products <= quantile).mean()
        assert abs(share - level) < 6 * math.sqrt(level * (1 - level) / n)


def test_product_quantiles_with_a_link_of_the_magnitude(rng) -> None:
    n = 400_000
    products = stats.norm.cdf(rng.normal(-1.0, 0.5, n)) * np.exp(rng.normal(0.3, 0.8, n))
    levels = (0.025, 0.5, 0.9)
    found = _quantiles(-1.0, 0.25, 0.3, 0.64, 0.0, levels, Curve(np.exp, np.log))
    for level, quantile in zip(levels, found):
        # a proportion at 6 standard errors: error probability below 1e-8
        share = (products <= quantile).mean()
        assert abs(share - level) < 6 * math.sqrt(level * (1 - level) / n)


def test_product_quantiles_at_the_edges() -> None:
    # only the magnitude is uncertain, only the occurrence is, neither is
    assert _quantiles(0.0, 0.0, 2.0, 1.0, 0.0, (0.975,)) == pytest.approx(
        0.5 * (2.0 + 1.95996), 1e-5
    )
    wanted = 2.0 * stats.norm.cdf(0.3 * 1.959964)
    assert _quantiles(0.0, 0.09, 2.0, 0.0, 0.0, (0.975,)) == pytest.approx(wanted, rel=0.01)
    assert _quantiles(0.0, 0.0, 2.0, 0.0, 0.0) == pytest.approx([1.0, 1.0])
    assert _quantiles(0.0, math.inf, 2.0, 1.0, 0.0, (0.1, 0.9)).tolist() == [-math.inf, math.inf]
    assert _quantiles(0.0, 1.0, 2.0, math.nan, 0.0, (0.1, 0.9)).tolist() == [-math.inf, math.inf]
    # perfectly correlated: a monotone function of one normal number
    wanted = stats.norm.cdf(1.959964) * (2.0 + 1.959964)
    assert _quantiles(0.0, 1.0, 2.0, 1.0, 1.0, (0.975,)) == pytest.approx(wanted, rel=0.02)
    # an occurrence so unlikely that its probability underflows
    assert np.isfinite(_quantiles(-50.0, 1.0, 2.0, 1.0, 0.0)).all()


@pytest.mark.slow
@pytest.mark.parametrize("link", ["logit", "probit"])
def test_predicted_intervals_cover(rng, link) -> None:
    trials, n, level = 300, 300, 0.9
    spec = contextual.JointUCB(link=link, ridge=0.1, memory=1024)
    theta, beta = np.array([-1.0, 0.8, 0.5]), np.array([1.0, 0.5, -0.4])
    h = stats.norm.cdf if link == "probit" else special.expit
    row = np.array([1.0, 0.5, -0.5])
    p, mu = h(row @ theta), row @ beta
    covered = np.zeros(3)
    for _ in range(trials):
        x = np.column_stack([np.ones(n), 0.5 * rng.normal(size=(n, 2))])
        paid = rng.random(n) < h(x @ theta)
        rewards = np.where(paid, x @ beta + 0.5 * rng.normal(size=n), 0.0)
        bandit = ContextualBandit(spec, n_features=3, seed=0)
        bandit.update_many([0] * n, rewards, x)
        m = bandit.predict([row], level)
        pairs = ((m.p_low, p, m.p_high), (m.mu_low, mu, m.mu_high), (m.r_low, p * mu, m.r_high))
        covered += [low[0] <= truth <= high[0] for low, truth, high in pairs]
    # each share may fall short by 4 standard errors plus 1.5 points for the approximation:
    # error probability below 1e-4 each
    slack = 4 * math.sqrt(level * (1 - level) / trials) + 0.015
    assert (covered / trials >= level - slack).all(), covered / trials


@pytest.mark.slow
def test_predictions_with_a_link_of_the_magnitude(rng) -> None:
    spec = contextual.JointUCB(magnitude=contextual.LeastSquares(link="log"), memory=512)
    bandit = ContextualBandit(spec, n_features=2, seed=0, inflated=1.0)
    x = np.column_stack([np.ones(400), rng.normal(size=400)])
    sizes = np.exp(x @ [0.5, 0.3]) + 0.1 * rng.normal(size=400)
    bandit.update_many([0] * 400, 1.0 + np.where(rng.random(400) < 0.5, sizes, 0.0), x)
    found = bandit.predict([[1.0, 0.0]])
    # 5 standard errors, about 0.01 each: error probability below 1e-6
    assert found.mu[0] == pytest.approx(1.0 + math.exp(0.5), abs=0.05)
    assert 1.0 < found.mu_low[0] < found.mu[0] < found.mu_high[0]
    assert found.r[0] == pytest.approx(1.0 + found.p[0] * (found.mu[0] - 1.0))
    assert 1.0 < found.r_low[0] < found.r[0] < found.r_high[0]
    assert ContextualBandit.loads(bandit.dumps()).spec == spec


# ------------------------------------------------------------------------------------ save, load


@pytest.mark.parametrize("name", COMPILED)
def test_saved_bandit_continues_exactly(tmp_path, name, rng) -> None:
    bandit = trained(COMPILED[name])
    path = tmp_path / "bandit.json"
    bandit.save(path)
    twin = ContextualBandit.load(path)
    assert same(bandit, twin)
    assert repr(bandit) == repr(twin)
    for t in range(50):
        features = rng.normal(size=(4, D))
        arm = bandit.select(features)
        assert twin.select(features) == arm
        reward = float(t % 3 == 0)
        told = category_of(COMPILED[name], reward)
        bandit.update(arm, reward, features, category=told)
        twin.update(arm, reward, features, category=told)
    assert same(bandit, twin)


def test_links_and_labels_are_saved() -> None:
    spec = TwoPart(link=contextual.CLogLog())
    bandit = ContextualBandit(spec, n_features=(3, 2), arms=[("a", 1), None, 2.5], seed=0)
    twin = ContextualBandit.loads(bandit.dumps())
    assert twin.spec == spec
    assert twin.arms == (("a", 1), None, 2.5)
    assert twin.n_features == (3, 2)


def test_stream_can_be_replaced_on_load() -> None:
    text = trained(TS).dumps()
    a, b, c = (ContextualBandit.loads(text, seed=s) for s in (1, 1, 2))
    first, second, third = ([x.select(CLOSE) for _ in range(40)] for x in (a, b, c))
    assert first == second
    assert first != third


def test_damaged_files_are_refused_with_one_sentence(tmp_path) -> None:
    from zib.core import saved as _saved

    text = trained().dumps()
    content = json.loads(text)
    content.pop("checksum")
    wrong_shape = {**content, "n_features": [2, 2]}
    lost = {**content, "state": {"occurrence": content["state"]["occurrence"]}}
    for bad, message in (
        (text[: len(text) // 2], "damaged or cut off"),
        (zib.Bandit(zib.mab.UCB1(), n_arms=2).dumps(), "not a saved zib.ContextualBandit"),
        (json.dumps({**json.loads(text), "inflated": 1.0}), "checksum"),
        (json.dumps({**json.loads(text), "format_version": 99}), "newer zib"),
        (_saved.dumps(wrong_shape), r"'state.occurrence.inverse' has shape \(3, 3\), expected"),
        (_saved.dumps(lost), "'state' must hold occurrence, magnitude; got"),
        (_saved.dumps({**content, "policy": {"name": "elsewhere.P"}}), "'elsewhere.P' is not"),
    ):
        path = tmp_path / "bandit.json"
        path.write_text(bad)
        with pytest.raises(SavedStateError, match=message):
            ContextualBandit.load(path)


@pytest.mark.parametrize("name", COMPILED)
def test_copies_and_pickles_are_bandits_of_their_own(name) -> None:
    bandit = trained(COMPILED[name])
    for twin in (copy.deepcopy(bandit), pickle.loads(pickle.dumps(bandit))):
        assert same(bandit, twin)
        twin.update(1, 7.0, FEATURES, category=category_of(COMPILED[name], 7.0))
        assert not same(bandit, twin)
        assert [twin.select(FEATURES) for _ in range(3)]
    assert same(bandit, trained(COMPILED[name]))


@pytest.mark.parametrize("name", INTERPRETED)
def test_models_that_are_objects_are_pickled_not_saved(tmp_path, name) -> None:
    bandit = trained(INTERPRETED[name])
    path = tmp_path / "bandit.json"
    with pytest.raises(SavedStateError, match="with pickle instead"):
        bandit.save(path)
    assert not path.exists()
    twin = pickle.loads(pickle.dumps(bandit))
    assert [twin.select(CLOSE) for _ in range(20)] == [bandit.select(CLOSE) for _ in range(20)]


def test_repr_names_what_it_is() -> None:
    assert repr(trained(UCB, n=7)) == (
        "ContextualBandit(RidgeUCB(width=0.5), n_features=3, 7 rewards learned)"
    )
    assert "n_features=(3, 2), 4 arms, 0 rewards" in repr(
        ContextualBandit(UCB, n_features=(3, 2), arms=list("abcd"))
    )


def test_a_shallow_copy_is_independent() -> None:
    bandit = zib.ContextualBandit(n_features=2, seed=1)
    features = np.random.default_rng(0).normal(size=(4, 2))
    bandit.update(0, 2.0, features)
    twin = copy.copy(bandit)
    twin.update(1, 3.0, features)
    assert (bandit.n_updates, twin.n_updates) == (1, 2)
    assert twin.predict(features).r[1] != bandit.predict(features).r[1]
