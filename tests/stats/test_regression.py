"""The Newton ascent and the plain logistic fit, against statsmodels."""

import numpy as np
import pytest
import statsmodels.api as sm

from zib.stats.regression import climb, fit_logit


def data(n=500, d=3, seed=0):
    rng = np.random.default_rng(seed)
    x = np.hstack([np.ones((n, 1)), rng.normal(size=(n, d))])
    y = (rng.random(n) < 1 / (1 + np.exp(-x @ np.linspace(-1, 1, d + 1)))).astype(float)
    return x, y


def test_fit_is_that_of_statsmodels() -> None:
    x, y = data()
    wanted = sm.Logit(y, x).fit(disp=0, tol=1e-12, method="newton")
    found = fit_logit(x, y)
    assert found.converged
    assert found.value == pytest.approx(wanted.llf, rel=1e-12)
    np.testing.assert_allclose(found.at, wanted.params, rtol=1e-6)


def test_columns_that_say_the_same_do_not_change_the_likelihood() -> None:
    x, y = data()
    twice = fit_logit(np.hstack([x, 2.0 * x[:, :2]]), y)
    assert twice.value == pytest.approx(fit_logit(x, y).value, rel=1e-9)


def test_separated_outcomes_come_near_a_likelihood_of_one() -> None:
    x = np.column_stack([np.ones(40), np.linspace(-1, 1, 40)])
    found = fit_logit(x, (x[:, 1] > 0).astype(float))
    assert -1e-3 < found.value <= 0.0


def test_steps_that_leave_the_domain_are_halved() -> None:
    # log x − x, largest at 1; a Newton step from 5 would end at −15
    def look(x):
        if x[0] <= 0:
            return -np.inf, lambda: (x, x)
        return float(np.log(x[0]) - x[0]), lambda: (1 / x - 1, x**2 * (1 / x - 1))

    found = climb(look, np.array([5.0]))
    assert found.converged
    np.testing.assert_allclose(found.at, 1.0, rtol=1e-6)


def test_a_function_without_maximum_does_not_converge() -> None:
    found = climb(lambda x: (float(x[0]), lambda: (np.ones(1), np.full(1, 0.5))), np.zeros(1))
    assert not found.converged
    assert not climb(
        lambda x: (0.0, lambda: (np.ones(1), np.full(1, np.nan))), np.zeros(1)
    ).converged
