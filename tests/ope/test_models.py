"""Models of the reward against other people's fits."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression

from zib import InvalidParameterError, ope
from zib.logs.ope.models import one_hot
from zib.stats import regression
from zib.stats.regression import arm_slices, fit_linear, fit_logistic, fit_multinomial


def rows(rng, n=3000, n_arms=3, d=2):
    arm, context = rng.integers(n_arms, size=n), rng.normal(size=(n, d))
    chance = expit(-2.0 + 0.5 * arm + context @ np.linspace(1.0, -0.5, d))
    reward = (rng.random(n) < chance) * (5.0 + arm + context[:, 0] + rng.normal(size=n))
    return arm, context, reward


def dense(design, arm, n_arms):
    """The design with common and own coefficients side by side, and its penalties."""
    n, m = design.shape
    own = np.zeros((n, n_arms, m))
    own[np.arange(n), arm] = design
    common = np.full(m, regression.COMMON)
    common[0] = regression.CONSTANT
    apart = np.full((n_arms, m), regression.SLOPES)
    apart[:, 0] = regression.ARM
    return np.hstack([design, own.reshape(n, -1)]), np.concatenate([common, apart.reshape(-1)])


def sorted_rows(arm, context, n_arms):
    design = np.hstack([np.ones((arm.size, 1)), context])
    order, slices = arm_slices(arm, n_arms)
    return order, design[order], list(slices)


def test_linear_fit_solves_the_dense_ridge_equations(rng) -> None:
    arm, context, reward = rows(rng, n=400)
    weight = rng.integers(1, 4, size=400).astype(float)
    order, design, slices = sorted_rows(arm, context, 3)
    x, penalty = dense(design, arm[order], 3)
    y, w = reward[order], weight[order]
    middle = np.average(y, weights=w)
    beta = np.linalg.solve((x.T * w) @ x + np.diag(penalty), (x.T * w) @ (y - middle))
    wanted = beta[:3] + beta[3:].reshape(3, 3)
    wanted[:, 0] += middle
    np.testing.assert_allclose(fit_linear(design, slices, y, w), wanted, rtol=1e-9, atol=1e-11)


def test_logistic_fit_minimises_the_dense_penalised_loss(rng) -> None:
    arm, context, reward = rows(rng, n=400)
    order, design, slices = sorted_rows(arm, context, 3)
    x, penalty = dense(design, arm[order], 3)
    y = (reward[order] != 0).astype(float)

    def loss(beta):
        eta = x @ beta
        value = (np.logaddexp(0, eta) - y * eta).sum() + 0.5 * penalty @ beta**2
        return value, x.T @ (expit(eta) - y) + penalty * beta

    options = {"gtol": 1e-10, "ftol": 1e-15, "maxiter": 5000}
    best = minimize(loss, np.zeros(x.shape[1]), jac=True, method="L-BFGS-B", options=options).x
    found = fit_logistic(design, slices, y, np.ones(400))
    np.testing.assert_allclose(found, best[:3] + best[3:].reshape(3, 3), atol=2e-5)


def test_many_rows_leave_nothing_of_the_penalty(rng) -> None:
    arm, context, reward = rows(rng, n=200_000)
    order, design, slices = sorted_rows(arm, context, 3)
    found = fit_logistic(design, slices, (reward[order] != 0).astype(float), np.ones(200_000))
    for k in range(3):
        alone = LogisticRegression(C=np.inf, tol=1e-8).fit(context[arm == k], reward[arm == k] != 0)
        np.testing.assert_allclose(found[k, 0], alone.intercept_[0], atol=5e-3)
        np.testing.assert_allclose(found[k, 1:], alone.coef_[0], atol=5e-3)


def test_without_context_it_is_chance_times_size_per_arm(rng) -> None:
    arm = rng.integers(3, size=30_000)
    reward = (rng.random(30_000) < 0.02 * (1 + arm)) * rng.exponential(4.0, 30_000)
    model = ope.Hurdle().fit(arm, np.zeros((30_000, 0)), reward, 3)
    means = [reward[arm == k].mean() for k in range(3)]
    np.testing.assert_allclose(model.predict(np.zeros((1, 0)))[0], means, rtol=0.02)


def test_weights_count_like_repeated_rows(rng) -> None:
    arm, context, reward = rows(rng, n=600)
    weight = rng.integers(1, 4, size=600)
    again = np.repeat(np.arange(600), weight)
    at = rng.normal(size=(20, 2))
    for make in (ope.Hurdle, ope.OnePart):
        once = make().fit(arm, context, reward, 3, weight=weight.astype(float)).predict(at)
        often = make().fit(arm[again], context[again], reward[again], 3).predict(at)
        np.testing.assert_allclose(once, often, rtol=1e-6)


def test_an_arm_that_never_paid_gets_the_common_size(rng) -> None:
    arm = np.repeat([0, 1, 2], 1000)
    reward = np.where((rng.random(3000) < 0.1) & (arm < 2), 7.0 + rng.normal(size=3000), 0.0)
    model = ope.Hurdle().fit(arm, np.zeros((3000, 0)), reward, 3)
    chance, size = model.parts(np.zeros((1, 0)))
    assert size[0, 2] == pytest.approx(size[0, :2].mean(), rel=0.01)
    assert chance[0, 2] < 0.01
    # an arm without a single row: chance and size of the others
    chance, size = ope.Hurdle().fit(arm, np.zeros((3000, 0)), reward, 4).parts(np.zeros((1, 0)))
    assert size[0, 3] == pytest.approx(7.0, rel=0.05)
    assert 0 < chance[0, 3] < 0.1


@pytest.mark.parametrize("make", [ope.Hurdle, ope.OnePart])
def test_odd_samples_are_no_problem(make, rng) -> None:
    context = rng.normal(size=(50, 2))
    arm = rng.integers(2, size=50)
    separated = np.where(context[:, 0] > 0, 5.0, 0.0)
    constant = np.c_[context[:, 0], np.full(50, 3.0)]
    for x, reward in (
        (context, np.zeros(50)),
        (context, np.full(50, 2.0)),
        (context, separated),
        (context, np.r_[4.0, np.zeros(49)]),
        (constant, separated),
        (context * 1e8, separated),
    ):
        found = make().fit(arm, x, reward, 3).predict(x)
        assert found.shape == (50, 3)
        assert np.isfinite(found).all()
        assert found.min() >= min(reward)
        assert found.max() <= max(reward)


def test_scikit_learn_estimators_serve_as_parts(rng) -> None:
    arm, context, reward = rows(rng)
    model = ope.Hurdle(occurrence=LogisticRegression(), magnitude=LinearRegression())
    chance, size = model.fit(arm, context, reward, 3).parts(context[:5])
    x, paid = one_hot(arm, context, 3), reward != 0
    first = LogisticRegression().fit(x, paid)
    second = LinearRegression().fit(x[paid], reward[paid])
    for k in range(3):
        at = one_hot(np.full(5, k), context[:5], 3)
        np.testing.assert_allclose(chance[:, k], first.predict_proba(at)[:, 1], rtol=1e-10)
        np.testing.assert_allclose(size[:, k], second.predict(at), rtol=1e-10)
    assert model.occurrence is not first
    assert not hasattr(model.occurrence, "coef_")  # the estimator given is left alone


def test_trees_and_unconverged_fits_do_not_complain(rng) -> None:
    arm, context, reward = rows(rng, n=500)
    trees = ope.Hurdle(
        occurrence=HistGradientBoostingClassifier(max_iter=5),
        magnitude=HistGradientBoostingRegressor(max_iter=5),
    )
    assert np.isfinite(trees.fit(arm, context, reward, 3).predict(context)).all()
    short = ope.Hurdle(occurrence=LogisticRegression(max_iter=1))
    assert np.isfinite(short.fit(arm, context, reward, 3).predict(context)).all()


def test_things_that_are_no_models_are_refused() -> None:
    with pytest.raises(InvalidParameterError, match="`occurrence` must have the methods fit and"):
        ope.Hurdle(occurrence="logistic")
    with pytest.raises(InvalidParameterError, match="`regressor` must have the methods"):
        ope.OnePart(regressor=3)


def test_multinomial_propensities_equal_scikit_learns(rng) -> None:
    context = rng.normal(size=(5000, 3))
    eta = context @ rng.normal(size=(3, 4)) * 0.5
    p = np.exp(eta) / np.exp(eta).sum(axis=1, keepdims=True)
    arm = (rng.random(5000)[:, None] > p.cumsum(axis=1)).sum(axis=1).clip(0, 3)
    design = np.hstack([np.ones((5000, 1)), context])
    beta = fit_multinomial(design, arm, 4)
    found = np.exp(design @ beta) / np.exp(design @ beta).sum(axis=1, keepdims=True)
    theirs = LogisticRegression(C=np.inf, tol=1e-8, max_iter=1000).fit(context, arm)
    np.testing.assert_allclose(found, theirs.predict_proba(context), atol=2e-4)
