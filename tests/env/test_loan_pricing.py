"""The fitted loan market: fits, blocks, quadrature, means, plain data, bad input."""

import itertools
import json
import math
import pickle
import warnings

import numpy as np
import pytest
from scipy import integrate, stats

from zib import InvalidParameterError
from zib.cases.loan import LoanPricing, LoanRecords, synthetic_loan_records
from zib.cases.loan import pricing as loan_pricing
from zib.cases.loan.fit import (
    default_cuts,
    design,
    fit_binary,
    fit_profit,
    log_likelihood,
    probabilities,
    split_prices,
)
from zib.env import ContextBlock
from zib.env.contextual import LINK_NAMES

CDFS = {
    "probit": stats.norm.cdf,
    "logit": stats.logistic.cdf,
    "cauchit": stats.cauchy.cdf,
    "cloglog": lambda x: -np.expm1(-np.exp(x)),
    "log": lambda x: np.minimum(np.exp(x), 1.0),
}


@pytest.fixture(scope="module")
def records():
    return synthetic_loan_records(6000, seed=4)


@pytest.fixture(scope="module")
def market(records):
    return LoanPricing.fit(records, most_contexts=300)


def small(link="logit", **more):
    """Return a market of three classes and two covariates, given by numbers."""
    arguments = {
        "beta": [0.9, 0.2, 0.1, -0.3],
        "theta": [-0.4, -1.0, 0.3, 0.2],
        "contexts": [[0.0, 0.5], [-1.0, 1.0], [2.0, -0.5], [0.3, 0.3]],
        "prices": [[0.1, 0.5, 1.5], [1.5, 2.0, 4.0], [4.0, 9.0, 20.0]],
        "link": link,
        "sigma": 0.8,
        "price_scale": 2.0,
    }
    return LoanPricing(**(arguments | more))


def block_of(env, seed, *sizes):
    rng = np.random.default_rng(seed)
    parts = [env.block(rng, n) for n in sizes]
    return ContextBlock(*(np.concatenate(arrays) for arrays in zip(*parts)))


def same(one, two):
    return all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))


# ------------------------------------------------------------------------------------------ fits


def links_of_statsmodels():
    from statsmodels.genmod.families import links

    return {
        "logit": links.Logit(),
        "probit": links.Probit(),
        "cauchit": links.Cauchy(),
        "cloglog": links.CLogLog(),
        "log": links.Log(),
    }


@pytest.mark.parametrize("link", LINK_NAMES)
def test_acceptance_is_fitted_as_statsmodels_does(link, records):
    import statsmodels.api as sm

    if link == "log":  # so few accept that no probability comes near one
        records = synthetic_loan_records(6000, seed=4, acceptance=0.05)
    x = design(records)
    found = fit_binary(x, records.accepted, link)
    assert found.converged
    family = sm.families.Binomial(link=links_of_statsmodels()[link])
    start = None
    if link == "log":  # the usual start leaves [0, 1]
        start = np.zeros(x.shape[1])
        start[1] = math.log(records.accepted.mean())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # statsmodels thinks little of the log link
        model = sm.GLM(records.accepted.astype(float), x, family=family)
        fit = model.fit(start_params=start, tol=1e-12, maxiter=200)
    np.testing.assert_allclose(found.coef, fit.params, rtol=0, atol=1e-4 * fit.bse.min())
    assert found.log_likelihood == pytest.approx(fit.llf, rel=1e-9)
    eta = x @ found.coef
    assert log_likelihood(link, eta, records.accepted) == pytest.approx(fit.llf, rel=1e-9)
    np.testing.assert_allclose(probabilities(link, eta), CDFS[link](eta), rtol=1e-9, atol=1e-15)


def test_log_link_at_the_edge_of_what_is_possible():
    from scipy import optimize

    records = synthetic_loan_records(400, seed=4, acceptance=0.7)
    x, y = design(records), records.accepted.astype(float)
    found = fit_binary(x, y, "log")
    assert found.converged
    eta = x @ found.coef
    assert -1e-4 < eta.max() < 0.0  # somebody accepts for certain

    def negative(theta):
        eta = np.minimum(x @ theta, -1e-12)
        return -(y * eta + (1 - y) * np.log(-np.expm1(eta))).sum()

    start = np.zeros(x.shape[1])
    start[1] = -2.0
    inside = {"type": "ineq", "fun": lambda theta: -(x @ theta), "jac": lambda theta: -x}
    best = optimize.minimize(
        negative,
        start,
        constraints=[inside],
        method="SLSQP",
        options={"maxiter": 500, "ftol": 1e-10},
    )
    assert found.log_likelihood == pytest.approx(-best.fun, abs=2e-3)


def test_profit_is_fitted_as_statsmodels_does(records):
    import statsmodels.api as sm

    rng, again = np.random.default_rng(3), np.random.default_rng(3)
    found = fit_profit(records, rng, lam=1.5)
    x = records.price + 1.5 * (again.standard_exponential(records.n_records) - 1.0)
    np.testing.assert_allclose(found.beta, sm.OLS(x, design(records)).fit().params, atol=1e-9)
    assert found.sigma == 1.5

    profit = np.random.default_rng(1).gamma(2.0, 1.0, records.n_records)
    known = LoanRecords(
        records.price, records.accepted, records.covariates, records.names, profit=profit
    )
    found = fit_profit(known, rng)
    taken = records.accepted
    fit = sm.OLS(profit[taken], design(records)[taken]).fit()
    np.testing.assert_allclose(found.beta, fit.params, atol=1e-9)
    assert found.sigma == pytest.approx(math.sqrt(fit.scale))


def test_a_fit_that_does_not_exist_is_said_so():
    x = np.column_stack([np.arange(10.0), np.ones(10)])
    assert not fit_binary(x, np.arange(10) > 4, "logit").converged  # perfectly separated
    with pytest.raises(InvalidParameterError, match="`outcome` must hold both zeros and ones"):
        fit_binary(x, np.ones(10), "logit")


def test_market_has_the_fitted_coefficients(records, market):
    np.testing.assert_array_equal(
        market.theta, fit_binary(design(records), records.accepted, "logit").coef
    )
    assert market.beta[0] == pytest.approx(1.0, abs=0.05)
    assert np.abs(market.beta[2:]).max() < 0.1
    assert market.theta[0] < 0.0  # acceptance falls in the price
    assert market.price_scale == records.price.std()
    rows = {tuple(row) for row in records.standardised}
    assert all(tuple(row) in rows for row in market.contexts)
    assert len(market.contexts) == 300
    assert len(LoanPricing.fit(records.subset(np.arange(2500))).contexts) == 2500


def test_classes(records, market):
    cuts = default_cuts(records)
    np.testing.assert_allclose(cuts, [1.54, 3.639, 5.4164, 8.5466], rtol=5e-3)
    parts = split_prices(records)
    np.testing.assert_allclose(np.array([p.size for p in parts]) / 6000,
                               [0.25, 0.5, 0.165, 0.0725, 0.0125], atol=2e-4)  # fmt: skip
    assert all(p.max() <= c for p, c in zip(parts, cuts))
    assert all(p.min() > c for p, c in zip(parts[1:], cuts))
    means = market.summary().price
    np.testing.assert_allclose(means, [p.mean() for p in parts], rtol=0.02)
    assert market.classes == ("low", "medium", "high", "very high", "luxury")
    assert small().classes == ("class 1", "class 2", "class 3")
    own = LoanPricing.fit(records, cuts=[2.0], most_contexts=10)
    assert own.n_arms == 2
    assert own.prices[0, -1] <= 2.0 < own.prices[1, 0]


def test_squared_covariates(records):
    market = LoanPricing.fit(records, transform="quadratic", most_contexts=50)
    assert market.n_features == (12, 12)
    np.testing.assert_allclose(market.contexts[:, 5:], market.contexts[:, :5] ** 2 - 1.0)


# ---------------------------------------------------------------------------------------- blocks


def test_shapes_and_features(market, seed):
    block = market.block(np.random.default_rng(seed), 7)
    assert (market.n_arms, market.n_actions, market.n_features) == (5, 5, (7, 7))
    assert block.z.shape == block.w.shape == (7, 7, 5)
    assert all(a.flags.carray for a in block)
    assert (block.arms == np.arange(5)).all()
    assert (block.count == 5).all()
    np.testing.assert_array_equal(block.z, block.w)
    for t in range(7):
        np.testing.assert_allclose(block.z[t, 0] * market.price_scale, market.summary().price)
        assert (block.z[t, 1] == 1.0).all()
        assert (block.z[t, 2:] == block.z[t, 2:, :1]).all()
    # features are of order one
    assert 0.2 < np.abs(block.z[:, 0]).mean() < 5.0


def test_rounds_do_not_depend_on_the_blocks(market, seed):
    whole = block_of(market, seed, 40)
    assert same(whole, block_of(market, seed, 20, 20))
    assert same(whole, block_of(market, seed, 1, 0, 7, 32))
    assert not same(whole, block_of(market, seed + 1, 40))
    old = market.block(np.random.default_rng(seed), 8)
    new = market.block(np.random.default_rng(seed), 5, old)
    assert same(new, market.block(np.random.default_rng(seed), 5))
    assert all(np.shares_memory(a, b) for a, b in zip(new, old, strict=True))


@pytest.mark.parametrize("link", LINK_NAMES)
def test_interpreted_is_compiled(link, seed, monkeypatch):
    expected = block_of(small(link), seed, 30)
    monkeypatch.setattr(loan_pricing, "_fill_market", loan_pricing._fill)
    monkeypatch.setattr(loan_pricing, "_integrate_all", loan_pricing._integrate)
    assert same(block_of(small(link), seed, 30), expected)


@pytest.mark.parametrize("link", LINK_NAMES)
def test_means_are_integrals(link):
    # The log link stays below one here: the largest predictor is −1 + .6 + 0.
    env = small(link)
    for i, b in enumerate(env.contexts):
        for k, edges in enumerate(env.prices):

            def paid(a, b=b):
                row = np.array([a, 1.0, *b])
                return (row @ env.beta) * CDFS[link](row @ env.theta)

            # prices are uniform between neighbouring quantiles
            pieces = [
                integrate.quad(paid, low, high, epsabs=0, epsrel=1e-11)[0] / (high - low)
                for low, high in itertools.pairwise(edges)
            ]
            assert env._moments[1, i, k] == pytest.approx(np.mean(pieces), rel=1e-8)


def test_fitted_means_are_integrals(market):
    knots = market.prices[4]  # the widest pieces
    for b in market.contexts[:5]:

        def paid(a, b=b):
            row = np.array([a, 1.0, *b])
            return (row @ market.beta) * stats.logistic.cdf(row @ market.theta)

        pieces = [
            integrate.quad(paid, low, high, epsabs=0, epsrel=1e-11)[0] / (high - low)
            for low, high in itertools.pairwise(knots)
        ]
        i = np.flatnonzero((market.contexts == b).all(axis=1))[0]
        assert market._moments[1, i, 4] == pytest.approx(np.mean(pieces), rel=1e-8)


@pytest.mark.parametrize("noise", ["exponential", "gaussian"])
def test_rewards_have_the_stated_means(noise, records, seed):
    env = LoanPricing.fit(records, most_contexts=300, noise=noise)
    assert env.noise == noise
    block = env.block(np.random.default_rng(seed), 100_000)
    summary = env.summary()
    n = len(block.reward)
    for k in range(5):
        # four standard errors, 6e-5 by the normal approximation; thirty such tests with fixed seeds
        off = block.reward[:, k] - block.mean[:, k]
        assert abs(off.mean()) < 4 * off.std() / math.sqrt(n)
        paid = block.reward[:, k] != 0.0
        p = summary.acceptance[k]
        assert abs(paid.mean() - p) < 4 * math.sqrt(p * (1 - p) / n)
        se = block.reward[:, k].std() / math.sqrt(n)
        assert abs(block.reward[:, k].mean() - summary.mean[k]) < 4 * se
        assert block.reward[:, k].var() == pytest.approx(summary.variance[k], rel=0.15)
    best = np.bincount(block.mean.argmax(axis=1), minlength=5) / n
    np.testing.assert_allclose(best, summary.best, atol=0.02)
    assert (np.diff(summary.acceptance) < 0).all()


def test_classes_share_their_luck(market, seed):
    block = market.block(np.random.default_rng(seed), 500)
    # dearer offers are accepted less readily by the same customer
    paid = block.reward != 0.0
    assert (paid[:, :-1] >= paid[:, 1:]).all()
    # the noise is shared: with β₁ ≈ 1, dearer accepted offers bring more
    both = paid[:, 0] & paid[:, 1]
    assert both.any()
    assert (block.reward[both, 1] > block.reward[both, 0]).all()


# ------------------------------------------------------------------------------------ plain data


def test_plain_data_round_trip(market):
    for env in (market, small()):
        data = json.loads(json.dumps(env.to_dict()))
        assert data.pop("environment") == "LoanPricing"
        rebuilt = LoanPricing(**data)
        assert rebuilt == env
        assert hash(rebuilt) == hash(env)
        assert repr(rebuilt) == repr(env)
        assert pickle.loads(pickle.dumps(env)) == env
        assert len(repr(env)) < 200
        assert env.instance(np.random.default_rng(0)) is env
    assert repr(small()) != repr(small(sigma=0.9))
    assert small() != small(link="probit")
    for array in (market.beta, market.theta, market.contexts, market.prices):
        assert not array.flags.writeable


@pytest.mark.slow  # compiles a policy of its own
def test_simulations_run(market):
    import zib

    policy = zib.contextual.LaplaceTS()
    result = zib.simulate(
        [policy], market, horizon=200, replications=2, progress=False, backend="serial"
    )
    assert result.pulls.sum() == 400
    assert (np.diff(result.regret, axis=2) >= 0).all()


def test_sizes():
    beta, theta = small().feature_norms
    assert beta == pytest.approx(math.sqrt(1.8**2 + 0.2**2 + 0.1**2 + 0.3**2))
    assert theta == pytest.approx(math.sqrt(0.8**2 + 1.0 + 0.3**2 + 0.2**2))
    assert small().component_size() == math.inf
    assert small(noise="gaussian").component_size() == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: small(beta=[1.0]), "`beta` must have an entry for price, constant and each of "),
        (lambda: small(theta=[1.0, 2.0]), "the 2 columns of `contexts`, 4 in all; got 2"),
        (lambda: small(prices=[[2.0, 1.0]]), "`prices` must have rows of at least 2 quantiles"),
        (lambda: small(prices=[[2.0]]), "`prices` must have rows of at least 2 quantiles"),
        (lambda: small(contexts=[[np.nan, 1.0]]), "`contexts` must lie in"),
        (lambda: small(link="identity"), "`link` must be one of 'probit'"),
        (lambda: small(noise="none"), "`noise` must be one of"),
        (lambda: small(sigma=0.0), "`sigma` must lie in (0, inf); got 0.0"),
        (lambda: small(price_scale=0.0), "`price_scale` must lie in (0, inf); got 0.0"),
    ],
)
def test_bad_input(build, words):
    with pytest.raises(InvalidParameterError) as caught:
        build()
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"lam": 0.0}, "`lam` must lie in (0, inf); got 0.0"),
        ({"cuts": [2.0, 1.0]}, "`cuts` must increase strictly; got [2.0, 1.0]"),
        ({"cuts": [1e-5]}, "`cuts` must leave at least 20 records in each class"),
        ({"transform": "cubic"}, "`transform` must be one of 'linear', 'quadratic'; got 'cubic'"),
        ({"most_contexts": 0}, "`most_contexts` must lie in [1, 20000]; got 0"),
        ({"seed": -1}, "`seed` must lie in [0, inf]; got -1"),
        ({"link": "tobit"}, "`link` must be one of"),
        ({"noise": "none"}, "`noise` must be one of"),
    ],
)
def test_bad_fit(arguments, words, records):
    with pytest.raises(InvalidParameterError) as caught:
        LoanPricing.fit(records, **arguments)
    assert words in str(caught.value)


def test_only_records_are_fitted():
    with pytest.raises(InvalidParameterError, match="`records` must be LoanRecords; got list"):
        LoanPricing.fit([1.0])
