"""Running estimates against exact ones on the same history.

Distances are in standard errors: √((a − b)'I(a − b)) with the information I of the exact estimate,
so that no linear predictor is further off than that many of its standard errors.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import statsmodels.api as sm

from tests.contextual import naive
from tests.contextual.helpers import Pupil, path, until_refit
from zib.contextual import (
    ZIUCB,
    Huber,
    Integrated,
    JointUCB,
    LeastSquares,
    MedianOfMeans,
    Naive,
    Ridge,
    fit,
)
from zib.contextual.fit import learn
from zib.contextual.models import new_groups, new_magnitude, new_model, noise, variances

LINKS = list(naive.LINKS)
# of the policies that are interpreted, which takes longer
FEW_LINKS = [
    pytest.param(link, marks=() if link in ("logit", "log") else pytest.mark.slow) for link in LINKS
]
FAR = 1e9  # a ball that holds everything
INTERCEPT = {
    "often": {"logit": -0.5, "probit": -0.5, "cauchit": -0.5, "cloglog": -0.5, "log": -1.5},
    "rarely": {"logit": -3.0, "probit": -2.0, "cauchit": -5.0, "cloglog": -3.0, "log": -3.5},
}


def occurrences(rng, link, n, d, how="often"):
    """Features with an intercept, and whether each action paid: about 2 in 5, or 1 in 20."""
    x = np.column_stack([np.ones(n), rng.uniform(-1.7, 1.7, (n, d - 1)) / math.sqrt(d)])
    theta = rng.normal(size=d)
    theta /= np.linalg.norm(theta)
    theta[0] = INTERCEPT[how][link]
    return x, (rng.random(n) < naive.value(link, x @ theta)).astype(float), theta


def exact(link, x, y, theta, ridge=1.0):
    start = np.zeros(theta.size)
    start[0] = -3.0 if link == "log" else 0.0
    return naive.maximum_likelihood(link, x, y, ridge, start)


def apart(link, x, y, found, theta, ridge=1.0):
    wanted = exact(link, x, y, theta, ridge)
    return naive.distance(found, wanted, naive.information(link, x, ridge, wanted))


def taught(spec, x, rewards):
    pupil = Pupil(spec, x.shape[1])
    return pupil.teach(x, x, rewards)


# ------------------------------------------------------------------------------------- at refits


@pytest.mark.parametrize("link", LINKS)
def test_a_refit_solves_the_likelihood_equations(rng, link) -> None:
    """Where memory covers the history a refit is exact, to 0.002 standard errors."""
    x, y, theta = occurrences(rng, link, 3200, 6)
    pupil = Pupil(JointUCB(link=link), 6)
    # with the log link few observations are fitted at the edge of the model, at probability one
    for least in (1000, 2500) if link == "log" else (20, 31, 60, 200, 1000, 2500):
        n = until_refit(pupil, pupil.state.occurrence, x, x, y, least)
        assert apart(link, x[:n], y[:n], pupil.state.occurrence.coef, theta) < 2e-3


@pytest.mark.filterwarnings("ignore:The Log link function does not respect")
@pytest.mark.parametrize("link", LINKS)
def test_a_refit_is_the_fit_of_statsmodels(rng, link) -> None:
    """With hardly any ridge: coefficients to 0.002 standard errors, covariance to 1 %."""
    x, y, _ = occurrences(rng, link, 3000, 5)
    pupil = Pupil(JointUCB(link=link, ridge=1e-6), 5)
    n = until_refit(pupil, pupil.state.occurrence, x, x, y, 2000)
    family = sm.families.Binomial(link=naive.LINKS[link])
    start = np.array([-1.0, 0.0, 0.0, 0.0, 0.0])
    judge = sm.GLM(y[:n], x[:n], family=family).fit(start_params=start, tol=1e-12)
    model = pupil.state.occurrence
    covariance = judge.cov_params()
    assert naive.distance(model.coef, judge.params, np.linalg.inv(covariance)) < 2e-3
    assert np.allclose(model.curvature.inverse, covariance, rtol=0.01, atol=1e-4)


@pytest.mark.parametrize("link", FEW_LINKS)
def test_a_refit_solves_the_equation_of_the_paper(rng, link) -> None:
    """Σ (Y − h(w'θ))·w = λθ, to 0.002 standard errors of its solution."""
    x, y, theta = occurrences(rng, link, 1600, 5)
    pupil = Pupil(ZIUCB(horizon=100, sigma=1.0, link=link, bound=FAR), 5)
    for least in (31, 200, 1200):
        n = until_refit(pupil, pupil.state.occurrence, x, x, y, least)
        wanted = naive.paper_estimate(link, x[:n], y[:n], 1.0, theta)
        found = pupil.state.occurrence.coef
        assert naive.distance(found, wanted, naive.sandwich(link, x[:n], 1.0, wanted)) < 2e-3


@pytest.mark.parametrize("link", ["logit", "cauchit"])
@pytest.mark.parametrize("policy", [JointUCB, ZIUCB])
def test_a_refit_stays_in_the_ball(rng, policy, link) -> None:
    """The constrained optimum, to 0.002 standard errors: on the sphere a larger ridge."""
    x, y, _ = occurrences(rng, link, 1600, 4)
    spec = policy(link=link, ridge=0.1, bound=0.4, sigma=1.0, **horizon_of(policy))
    pupil = Pupil(spec, 4)
    solve = naive.maximum_likelihood if policy is JointUCB else naive.paper_estimate
    model = pupil.state.occurrence
    for least in (10, 31, 1200):
        n = until_refit(pupil, model, x, x, y, least)
        wanted = naive.in_ball(
            lambda ridge, n=n: solve(link, x[:n], y[:n], ridge, np.zeros(4)), 0.1, 0.4
        )
        assert math.isclose(np.linalg.norm(wanted), 0.4)
        assert np.linalg.norm(model.coef) < 0.4 * (1 + 1e-8)
        information = naive.information(link, x[:n], 0.1, wanted)
        assert naive.distance(model.coef, wanted, information) < 2e-3


def horizon_of(policy):
    return {} if policy is JointUCB else {"horizon": 100}


# --------------------------------------------------------------------------------- between refits

# Distance allowed from the 200th round on, about twice the largest of 12 histories. Observations
# that were summarised while few had paid leave a bias that fades slowly, hence the second half.
STATED = {
    ("often", 4096): {"logit": 0.1, "probit": 0.2, "cauchit": 0.5, "cloglog": 0.4, "log": 1.0},
    ("often", 256): {"logit": 0.6, "probit": 0.6, "cauchit": 2.0, "cloglog": 1.0, "log": 3.0},
    ("rarely", 4096): {"logit": 0.6, "probit": 2.0, "cauchit": 2.0, "cloglog": 0.6, "log": 0.7},
    ("rarely", 256): {"logit": 2.0, "probit": 2.0, "cauchit": 9.0, "cloglog": 2.2, "log": 2.0},
}


@pytest.mark.parametrize("how", ["often", "rarely"])
@pytest.mark.parametrize("link", LINKS)
def test_the_running_estimate_stays_close(rng, link, how) -> None:
    """20 000 rounds, 10 features, at 12 times between refits and long after memory was full."""
    n, d = 20_000, 10
    x, y, theta = occurrences(rng, link, n, d, how)
    stops = np.unique(np.geomspace(200, n, 12).astype(int))
    paths = {}
    for memory in (256, 4096):
        pupil = Pupil(JointUCB(link=link, memory=memory), d)
        paths[memory] = path(pupil, pupil.state.occurrence, x, x, y, stops)
        assert pupil.state.occurrence.seen[0] == n
    for i, stop in enumerate(stops):
        wanted = exact(link, x[:stop], y[:stop], theta)
        information = naive.information(link, x[:stop], 1.0, wanted)
        for memory, found in paths.items():
            gap = naive.distance(found[i], wanted, information)
            assert gap < STATED[how, memory][link], (stop, memory)


def test_the_running_estimate_in_a_ball_stays_close(rng) -> None:
    """A truth on the sphere: at most 1.5 standard errors off (largest of 12 histories: 0.95).

    Between refits the estimate is pulled back into the ball, but what pushed it out is forgotten.
    """
    n, d = 2000, 5
    x = rng.normal(size=(n, d)) / math.sqrt(d)
    theta = rng.normal(size=d)
    theta /= np.linalg.norm(theta)
    y = (rng.random(n) < naive.value("logit", x @ theta)).astype(float)
    pupil = Pupil(ZIUCB(horizon=100, sigma=1.0, ridge=0.1), d)
    stops = np.unique(np.geomspace(60, n, 10).astype(int))
    found = path(pupil, pupil.state.occurrence, x, x, y, stops)
    assert np.linalg.norm(found, axis=1).max() < 1 + 1e-8
    for coef, stop in zip(found, stops, strict=True):
        wanted = naive.in_ball(
            lambda ridge, k=stop: naive.paper_estimate("logit", x[:k], y[:k], ridge, np.zeros(d)),
            0.1,
            1.0,
        )
        information = naive.information("logit", x[:stop], 0.1, wanted)
        assert naive.distance(coef, wanted, information) < 1.5


# ------------------------------------------------------------------------------------------- cost


@pytest.mark.parametrize("memory", [256, 600])
def test_a_round_costs_the_same_at_any_time(rng, monkeypatch, memory) -> None:
    """Rows read by refits are counted, per round and in windows of 1000 rounds."""
    read = []
    gather = fit._gather

    def counting(estimator, model, gradient):
        read.append((int(model.seen[0]), int(model.stored[0])))
        gather(estimator, model, gradient)

    monkeypatch.setattr(fit, "_gather", counting)
    x, y, _ = occurrences(rng, "logit", 4000, 2)
    pupil = Pupil(JointUCB(memory=memory), 2, compiled=False)
    model = pupil.state.occurrence
    sizes = [array.nbytes for array in (*model.curvature, *model.design, model.anchor)]
    largest = 0
    for first in range(0, 4000, 100):
        rows = slice(first, first + 100)
        pupil.teach(x[rows], x[rows], y[rows])
        largest = max(largest, int(model.stored[0]))
    assert largest == memory == len(model.response) == len(model.features)
    assert sizes == [array.nbytes for array in (*model.curvature, *model.design, model.anchor)]
    rounds, rows = np.array(read).T
    work = np.bincount((rounds - 1) // 1000, weights=rows) / 1000
    assert rows.max() <= memory
    assert work.max() < 30  # four passes over the store while a quarter of it is renewed
    assert work[3] < 1.5 * work[1]


def test_least_squares_keep_nothing(rng) -> None:
    for model in (
        Pupil(JointUCB(), 3, compiled=False).state.magnitude,
        Pupil(Naive(horizon=10, sigma=1.0), 3, compiled=False).state.model,
    ):
        assert model.response.size == 0


# ---------------------------------------------------------------------------------- the magnitude


def learned(estimator, model, x, y, stops):
    """Teach in the interpreter; return coefficients after each number of observations."""
    out = []
    for i in range(len(y)):
        learn(estimator, model, x[i], y[i])
        if i + 1 in stops:
            out.append((i + 1, model.coef.copy()))
    return out


def magnitudes(rng, n, d, noise):
    x = np.column_stack([np.ones(n), rng.normal(size=(n, d - 1))])
    beta = rng.normal(size=d)
    return x, x @ beta + noise(n), beta


@pytest.mark.parametrize("estimator", [Ridge(), LeastSquares(link="identity")], ids=repr)
def test_linear_models_are_ridge_regressions_all_the_time(rng, estimator) -> None:
    x, y, _ = magnitudes(rng, 1000, 4, rng.standard_normal)
    x *= np.array([1.0, 1e-3, 30.0, 1e3])
    memory = 0 if estimator == Ridge() else 300
    stops = {1, 2, 3, 17, 100, 333, 777, 1000}
    model = new_model(4, ridge=2.0, memory=memory)
    for n, coef in learned(estimator, model, x, y, stops):
        wanted = naive.ridge_regression(x[:n], y[:n], 2.0)
        assert naive.distance(coef, wanted, naive.gram(x[:n], 2.0)) < 1e-6


@pytest.mark.parametrize(("d", "allowed"), [(4, 1e-4), (35, 4.0)])
def test_ridge_regression_in_a_ball(rng, d, allowed) -> None:
    """Exact up to 32 coefficients; beyond, close between refits (2.7 at most in this history)."""
    x, y, beta = magnitudes(rng, 400, d, rng.standard_normal)
    bound = (0.8 if d < 10 else 1.0) * float(np.linalg.norm(beta))
    model = new_model(d, ridge=1.0, bound=bound)
    for n, coef in learned(Ridge(), model, x, y, set(range(10, 401, 30))):
        wanted = naive.in_ball(lambda r, n=n: naive.ridge_regression(x[:n], y[:n], r), 1.0, bound)
        assert np.linalg.norm(coef) < bound * (1 + 1e-8)
        assert naive.distance(coef, wanted, naive.gram(x[:n], 1.0)) < allowed


def test_least_squares_with_a_log_link(rng) -> None:
    """Exact at refits, within 0.2 standard errors between them."""
    x = np.column_stack([np.ones(700), rng.normal(size=(700, 2)) / 2])
    y = np.exp(x @ np.array([0.5, 0.6, -0.4])) + 0.5 * rng.standard_normal(700)
    model = new_model(3, ridge=1.0, memory=1000)
    for i in range(700):
        refitted = model.next_refit[0] <= i + 1
        learn(LeastSquares(link="log"), model, x[i], y[i])
        n = i + 1
        if n > 5 and (refitted or i % 50 == 49):
            wanted = naive.exponential_regression(x[:n], y[:n], 1.0, model.coef)
            metric = naive.gram(x[:n], 1.0, np.exp(2 * x[:n] @ wanted)) / 0.5**2
            assert naive.distance(model.coef, wanted, metric) < (4e-3 if refitted else 0.2)


def test_the_printed_score_with_a_log_link(rng) -> None:
    """Σ (X − exp(z'β))·z = λβ: its solution at refits, its sandwich of errors, its noise.

    The noise of 400 residuals has a standard error of 0.018; six of them are allowed.
    """
    x = np.column_stack([np.ones(400), rng.normal(size=(400, 2)) / 2])
    y = np.exp(x @ np.array([0.5, 0.6, -0.4])) + 0.5 * rng.standard_normal(400)
    estimator = LeastSquares(link="log", score="printed")
    model = new_magnitude(
        estimator, 3, ridge=1.0, bound=math.inf, memory=1000, plain=False, samples=False
    )
    actions = rng.normal(size=(4, 3))
    apart = 0.0
    for i in range(400):
        refitted = model.next_refit[0] <= i + 1
        learn(estimator, model, x[i], y[i])
        n = i + 1
        if n > 5 and refitted:
            wanted = naive.printed_exponential_regression(x[:n], y[:n], 1.0, model.coef)
            bread = naive.gram(x[:n], 1.0, np.exp(x[:n] @ wanted))
            covariance = np.linalg.solve(bread, np.linalg.solve(bread, naive.gram(x[:n], 1.0)).T)
            information = np.linalg.inv(covariance) / 0.5**2
            assert naive.distance(model.coef, wanted, information) < 4e-3
            found, work = np.zeros(4), np.zeros(4)
            variances(estimator, model, np.ascontiguousarray(actions.T), work, found)
            exact = np.einsum("ki,ij,kj->k", actions, covariance, actions)
            np.testing.assert_allclose(found, exact, rtol=2e-2)
            squares = naive.exponential_regression(x[:n], y[:n], 1.0, wanted)
            apart = max(apart, naive.distance(squares, wanted, information))
    assert apart > 0.1  # least squares has another solution
    assert abs(noise(estimator, math.nan, model) - 0.5) < 6 * 0.018


@pytest.mark.parametrize("tail", ["normal", "heavy"])
def test_huber_regression_and_its_threshold(rng, tail) -> None:
    """At refits 0.01 from the exact solution in units of the noise, threshold to 1 %."""
    draw = rng.standard_normal if tail == "normal" else lambda n: rng.standard_t(1.5, n)
    x, y, _ = magnitudes(rng, 500, 3, draw)
    model = new_model(3, ridge=1.0, memory=1000)
    for i in range(500):
        refitted = model.next_refit[0] <= i + 1
        learn(Huber(), model, x[i], y[i])
        n = i + 1
        if n > 40 and refitted:
            wanted, tau = naive.huber(x[:n], y[:n], 1.0, model.coef)
            assert naive.distance(model.coef, wanted, naive.gram(x[:n], 1.0)) < 0.01
            assert math.isclose(model.threshold[0], tau, rel_tol=0.01)
            if tail == "normal":  # nothing is cut off
                plain = naive.ridge_regression(x[:n], y[:n], 1.0)
                assert n < 200 or naive.distance(wanted, plain, naive.gram(x[:n], 1.0)) < 0.01
    assert math.isfinite(model.threshold[0])


def test_huber_regression_beats_ridge_under_heavy_tails(seed) -> None:
    """Student's t with 1.5 degrees of freedom, 40 samples of 100: the error is smaller on average.

    The logarithm of the ratio of errors has mean −0.52 and standard deviation 0.67 (600 samples),
    so its average is negative but for a probability of 1e-6.
    """
    logarithms = []
    for repetition in range(40):
        rng = np.random.default_rng((seed, repetition))
        x, y, beta = magnitudes(rng, 100, 3, lambda n, r=rng: r.standard_t(1.5, n))
        plain = naive.ridge_regression(x, y, 1.0)
        robust = learned(Huber(), new_model(3, ridge=1.0, memory=300), x, y, {100})[0][1]
        logarithms.append(math.log(np.linalg.norm(robust - beta) / np.linalg.norm(plain - beta)))
    assert np.mean(logarithms) < 0


def test_outliers_spoil_ridge_and_not_the_robust_regressions(rng) -> None:
    """Three of 210 rewards are a million: coefficients stay within 1 of the truth."""
    x, y, beta = magnitudes(rng, 210, 3, rng.standard_normal)
    y[[20, 90, 150]] = 1e6
    groups = new_groups(3, 7, ridge=1.0, bound=math.inf, samples=False)
    huber = new_model(3, ridge=1.0, memory=300)
    for estimator, model in ((MedianOfMeans(), groups), (Huber(), huber)):
        assert np.abs(learned(estimator, model, x, y, {210})[0][1] - beta).max() < 1
    assert np.abs(naive.ridge_regression(x, y, 1.0) - beta).max() > 1000


@pytest.mark.parametrize("groups", [1, 3, 7])
def test_median_of_means(rng, groups) -> None:
    """The geometric median, to a hundredth in units of the noise."""
    x, y, _ = magnitudes(rng, 150, 3, lambda n: rng.standard_t(1.5, n))
    estimator = MedianOfMeans(groups=groups)
    model = new_groups(3, groups, ridge=1.0, bound=math.inf, samples=False)
    stops = {1, 2, 5, 7, 8, 50, 149, 150}
    for n, coef in learned(estimator, model, x, y, stops):
        wanted, _ = naive.median_of_means(x[:n], y[:n], 1.0, groups)
        assert naive.distance(coef, wanted, naive.gram(x[:n], 1.0)) < 0.01, n


# ----------------------------------------------------------------------------- the reward at once


def products(rng, link, n):
    z = rng.normal(size=(n, 2)) + 0.5
    w = np.sin(z)
    p = naive.value(link, w @ np.array([0.8, 0.6]))
    return z, w, np.where(rng.random(n) < p, z @ np.array([0.6, 0.8]) + rng.normal(size=n), 0.0)


@pytest.mark.parametrize("link", ["logit", "probit"])
def test_integrated_regression(rng, link) -> None:
    """A refit is the least squares solution next to where it started."""
    z, w, y = products(rng, link, 270)
    pupil = Pupil(Integrated(horizon=100, sigma=1.0, link=link, bound=FAR), 2, compiled=False)
    model = pupil.state.model
    for least in (8, 31, 200):
        n = until_refit(pupil, model, z, w, y, least)
        wanted = naive.product_regression(link, z[:n], w[:n], y[:n], 1.0, model.coef)
        rows = naive.product_jacobian(link, z[:n], w[:n], 1.0, wanted)
        assert naive.distance(model.coef, wanted, rows.T @ rows) < 5e-3


@pytest.mark.parametrize("link", ["logit", "probit"])
def test_integrated_regression_in_balls(rng, link) -> None:
    """Both vectors are confined, and given that the fit is the best.

    On its sphere the gradient of a part points outwards; inside it is zero.
    """
    z, w, y = products(rng, link, 270)
    spec = Integrated(horizon=100, sigma=1.0, link=link, bound=0.7)
    pupil = Pupil(spec, 2, compiled=False)
    model = pupil.state.model
    for least in (31, 200):
        n = until_refit(pupil, model, z, w, y, least)
        past = link, z[:n], w[:n]
        rows = naive.product_jacobian(*past, 1.0, model.coef)
        left = -rows.T @ naive.product_residuals(*past, y[:n], 1.0, model.coef)
        for part in (slice(0, 2), slice(2, 4)):
            coef = model.coef[part]
            length = np.linalg.norm(coef)
            assert length < 0.7 * (1 + 1e-6)
            if length > 0.7 * (1 - 1e-6):
                left[part] -= max(left[part] @ coef, 0.0) / (coef @ coef) * coef
        assert left @ np.linalg.solve(rows.T @ rows, left) < 5e-3**2
        rival = naive.product_regression_in_balls(*past, y[:n], 1.0, 0.7, np.full(4, 0.3))
        lowest = naive.product_loss(*past, y[:n], 1.0, rival)
        assert naive.product_loss(*past, y[:n], 1.0, model.coef) < lowest + 1e-3


# ----------------------------------------------------------------------------- awkward histories


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("policy", [JointUCB, ZIUCB])
@pytest.mark.parametrize("case", ["separated", "never", "always", "constant", "collinear"])
def test_awkward_histories_have_exact_solutions_too(rng, policy, link, case) -> None:
    """Finite at every time; where the loss has one minimum the refit finds it."""
    n = 450
    x = np.column_stack([np.ones(n), rng.uniform(-1, 1, (n, 2))])
    if link == "log":
        x[:, 1:] *= 0.3
    y = (rng.random(n) < 0.3).astype(float)
    if case == "separated":
        y = (x[:, 1] > 0).astype(float)
    elif case in ("never", "always"):
        y[:] = case == "always"
    elif case == "constant":
        x[:] = [1.0, 1.0, -0.5]
    elif case == "collinear":
        x[:, 2] = 2.0 * x[:, 1]
    spec = policy(link=link, sigma=1.0, bound=FAR, **horizon_of(policy))
    pupil = Pupil(spec, 3)
    model = pupil.state.occurrence
    found = path(pupil, model, x, x, y, np.arange(1, 40))
    assert np.isfinite(found).all()
    assert np.abs(found).max() < 100
    n = until_refit(pupil, model, x, x, y, 350)
    if policy is ZIUCB:
        wanted = naive.paper_estimate(link, x[:n], y[:n], 1.0, model.coef)
        information = naive.gram(x[:n], 1.0, naive.slope(link, x[:n] @ wanted))
    elif link == "log" and case in ("separated", "always"):
        return  # the likelihood is largest where a probability is one, at the edge of the model
    else:
        wanted = exact(link, x[:n], y[:n], model.coef)
        information = naive.information(link, x[:n], 1.0, wanted)
    assert naive.distance(model.coef, wanted, information) < 4e-3


@pytest.mark.parametrize("link", LINKS)
def test_one_feature(rng, link) -> None:
    x = np.ones((320, 1))
    y = (rng.random(320) < 0.25).astype(float)
    pupil = Pupil(JointUCB(link=link, ridge=1e-6), 1)
    n = until_refit(pupil, pupil.state.occurrence, x, x, y, 250)
    wanted = naive.LINKS[link](y[:n].mean())
    assert math.isclose(pupil.state.occurrence.coef[0], wanted, rel_tol=1e-4)


def test_two_hundred_features(rng) -> None:
    x = rng.normal(size=(800, 200)) / 5
    y = (rng.random(800) < naive.value("logit", x[:, 0] - 1)).astype(float)
    pupil = Pupil(JointUCB(), 200)
    n = until_refit(pupil, pupil.state.occurrence, x, x, y, 500)
    gap = apart("logit", x[:n], y[:n], pupil.state.occurrence.coef, np.zeros(200))
    assert gap < 2e-3


@pytest.mark.parametrize("link", ["logit", "probit", "cauchit", "cloglog"])
@pytest.mark.parametrize("policy", [JointUCB, ZIUCB])
def test_features_as_they_come(rng, policy, link) -> None:
    """A score near 700, an amount near 20 000: nobody has put them on one scale."""
    n = 650
    x = np.column_stack([np.ones(n), rng.normal(700, 50, n), rng.normal(20_000, 8_000, n)])
    theta = np.array([-3.0, 0.004, -4e-5])
    y = (rng.random(n) < naive.value(link, x @ theta)).astype(float)
    pupil = Pupil(policy(link=link, sigma=1.0, bound=FAR, **horizon_of(policy)), 3)
    model = pupil.state.occurrence
    n = until_refit(pupil, model, x, x, y, 500)
    if policy is ZIUCB:
        wanted = naive.paper_estimate(link, x[:n], y[:n], 1.0, theta)
        information = naive.sandwich(link, x[:n], 1.0, wanted)
    else:
        wanted = naive.maximum_likelihood(link, x[:n], y[:n], 1.0, theta)
        information = naive.information(link, x[:n], 1.0, wanted)
    assert naive.distance(model.coef, wanted, information) < 4e-3


@pytest.mark.parametrize("link", ["logit", "probit", "cloglog"])
@pytest.mark.parametrize("policy", [JointUCB, pytest.param(ZIUCB, marks=pytest.mark.slow)])
@pytest.mark.parametrize("size", [1e-3, 1e2, 1e4, 1e6])
def test_separation_at_any_scale(seed, policy, link, size) -> None:
    """The estimate separates what can be separated, whatever was seen first and however large.

    Up to a size of 100 it is the best as well. Beyond, the penalty no longer holds the predictors
    near the slope of the link; then they are finite and right, but not exact.
    """
    for repetition in range(10):
        rng = np.random.default_rng((seed, repetition))
        x = size * np.column_stack([rng.normal(size=480), rng.uniform(-1, 1, 480)])
        y = (x[:, 0] > 0).astype(float)
        spec = policy(link=link, sigma=1.0, bound=FAR, **horizon_of(policy))
        pupil = Pupil(spec, 2, compiled=True)
        model = pupil.state.occurrence
        n = until_refit(pupil, model, x, x, y, 300)
        eta = x[:n] @ model.coef
        if link != "cloglog" or size > 1:  # its value at 0 is above one half
            assert np.mean((naive.value(link, eta) > 0.5) == y[:n]) > 0.97
        assert np.isfinite(model.coef).all()
        if size <= 100 and (policy is JointUCB or link == "logit"):
            loss = 0.5 * model.coef @ model.coef - naive.log_likelihood(link, eta, y[:n]).sum()
            others = [
                0.5 * (t / size) ** 2 - naive.log_likelihood(link, t * x[:n, 0] / size, y[:n]).sum()
                for t in np.geomspace(1e-3, 300, 40)
            ]
            assert loss < min(others) + 1e-6
