"""Loan records: checks, the synthetic book, and readers of two published tables."""

import numpy as np
import pandas as pd
import pytest
from tests.datasets.data import KARLAN_ZINMAN, data_file

from zib import InvalidParameterError
from zib.cases.loan import LoanMarket, LoanPricing, LoanRecords, synthetic_loan_records
from zib.cases.loan.market import CUT_LEVELS, CUT_PRICES, PUBLISHED_RANGE, price_quantile


def karlan_zinman():
    """Return the published table, or skip."""
    return pd.read_stata(data_file(KARLAN_ZINMAN))


@pytest.fixture(scope="module")
def book():
    return synthetic_loan_records()


def test_published_facts_are_met(book):
    assert book.n_records == 208_085
    assert book.names == ("FICO", "amount", "prime rate", "competitor's rate", "term")
    quantiles = np.quantile(book.price, CUT_LEVELS[1:-1])
    # neighbouring prices differ by less than this there
    np.testing.assert_allclose(quantiles, CUT_PRICES[1:-1], rtol=1e-4)
    np.testing.assert_allclose([book.price.min(), book.price.max()], PUBLISHED_RANGE, rtol=1e-12)
    # the share expected is .22 exactly; six standard errors of 208 085 offers, below 1e-8
    assert abs(book.accepted.mean() - 0.22) < 6 * np.sqrt(0.22 * 0.78 / book.n_records)
    assert book.profit is None
    assert book.unit == "$1000"


def test_the_price_law_has_one_peak():
    levels = np.linspace(0.001, 0.9999, 4000)
    density = 1.0 / np.diff(price_quantile(levels, published_range=True))
    rising = np.diff(density) > 0
    # what is left of wiggles at the knots is below 2 % of the peak
    peak = int(density.argmax())
    assert 0.05 < levels[peak] < 0.45
    for part in (density[: peak + 1], density[peak:][::-1]):
        assert (np.maximum.accumulate(part) - part).max() < 0.02 * density[peak]
    assert rising[:100].all()


def test_the_multi_armed_market_keeps_its_prices():
    assert price_quantile([0.0, 0.25, 1.0]).tolist() == [0.0, 1.54, 16.0]
    assert LoanMarket().parameters() == {"slope": 0.35, "acceptance": 0.22}


def test_acceptance_falls_in_the_price_and_depends_on_covariates(book):
    tenths = np.array_split(np.argsort(book.price), 10)
    shares = np.array([book.accepted[rows].mean() for rows in tenths])
    assert shares[0] > shares[4] > shares[9] > 0.0
    import statsmodels.api as sm

    model = sm.Logit(book.accepted, np.column_stack([book.price, np.ones_like(book.price),
                                                     book.standardised])).fit(disp=0)  # fmt: skip
    truth = [-0.35, -0.35, -0.15, 0.0, 0.30, 0.20]
    off = (np.delete(model.params, 1) - truth) / np.delete(model.bse, 1)
    assert np.abs(off).max() < 6.0  # six coefficients, below 1e-7 in all
    # prices depend on covariates, too
    fitted = sm.OLS(np.log(book.price), sm.add_constant(book.standardised)).fit()
    assert 0.2 < fitted.rsquared < 0.6


def test_covariates_are_plausible(book):
    fico, amount, prime, elsewhere, term = book.covariates.T
    assert 580 <= fico.min() < fico.max() <= 850
    assert 5000 <= amount.min() < amount.max() <= 75_000
    assert set(prime) == {4.0, 4.25, 4.5, 4.75, 5.0}
    assert elsewhere.min() >= 1.0
    assert set(term) == {36.0, 48.0, 60.0, 66.0, 72.0}
    assert np.corrcoef(amount, term)[0, 1] > 0.3
    assert np.corrcoef(fico, elsewhere)[0, 1] < -0.5


def test_standardised_covariates_lead_back(book):
    np.testing.assert_allclose(book.standardised.mean(axis=0), 0.0, atol=1e-10)
    np.testing.assert_allclose(book.standardised.std(axis=0), 1.0)
    np.testing.assert_allclose(book.standardised * book.scale + book.centre, book.covariates)


def test_seeds():
    one, again, other = (synthetic_loan_records(500, seed=s) for s in (1, 1, 2))
    assert np.array_equal(one.covariates, again.covariates)
    assert np.array_equal(one.accepted, again.accepted)
    assert not np.array_equal(one.price, other.price)
    assert np.array_equal(np.sort(one.price), np.sort(other.price))


def test_records_cannot_be_changed():
    price = np.array([1.0, 2.0, 3.0])
    records = LoanRecords(price, [1, 0, 1], [[1.0], [2.0], [4.0]], ("x",), profit=[5.0, 6.0, 7.0])
    price[0] = 9.0
    assert records.price[0] == 1.0
    for array in (records.price, records.accepted, records.covariates, records.standardised):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
    np.testing.assert_array_equal(records.profit, [5.0, np.nan, 7.0])
    assert "3 offers, 66.7 % accepted, 1 covariates" in repr(records)
    part = records.subset([0, 1])
    assert part.n_records == 2
    np.testing.assert_array_equal(part.profit, [5.0, np.nan])


GOOD = {
    "price": [1.0, 2.0, 3.0],
    "accepted": [0, 1, 1],
    "covariates": [[1.0], [2.0], [4.0]],
    "names": ("x",),
}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"price": [1.0, np.nan, 2.0]}, "`price` must lie in (-inf, inf); got nan at position 1"),
        ({"price": [1.0, 1.0, 1.0]}, "`price` must vary; got 1.0 only"),
        ({"accepted": [0, 1]}, "`accepted` must be 3 truth values"),
        ({"accepted": [0, 1, 2]}, "`accepted` must be 3 truth values"),
        ({"accepted": [1, 1, 1]}, "`accepted` must hold both outcomes; got 3 of 3"),
        ({"covariates": [[1.0], [2.0]]}, "`covariates` must have shape (3, 1)"),
        ({"covariates": [[1.0], [1.0], [1.0]]}, "`covariates` must vary; got one value of 'x'"),
        ({"covariates": [[1.0], [np.inf], [1.0]]}, "`covariates` must lie in"),
        ({"profit": [1.0]}, "`profit` must have one number per price (3)"),
        ({"profit": [1.0, np.nan, 2.0]}, "`profit` must lie in (-inf, inf); got nan"),
        ({"dropped": -1}, "`dropped` must lie in [0, inf]; got -1"),
    ],
)
def test_bad_records(change, words):
    with pytest.raises(InvalidParameterError) as caught:
        LoanRecords(**{**GOOD, **change})
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"n": 10}, "`n` must lie in [100, inf]; got 10"),
        ({"n": 500, "acceptance": 1.0}, "`acceptance` must lie in (0, 1); got 1.0"),
        ({"n": 500, "slope": -1.0}, "`slope` must lie in [0, 5]; got -1.0"),
        ({"n": 500, "seed": -1}, "`seed` must lie in [0, inf]; got -1"),
    ],
)
def test_bad_synthetic_book(arguments, words):
    with pytest.raises(InvalidParameterError) as caught:
        synthetic_loan_records(**arguments)
    assert words in str(caught.value)


# ----------------------------------------------------------------------------------- CPRM columns


def offers(n=400):
    """Return a made-up table with the columns of the file."""
    rng = np.random.default_rng(5)
    amount = rng.uniform(10_000, 40_000, n).round()
    term = rng.choice([36, 48, 60, 72], n)
    monthly = rng.uniform(0.06, 0.09, n) / 12
    return pd.DataFrame(
        {
            "Tier": rng.integers(1, 5, n),
            "Primary_FICO": rng.integers(620, 800, n),
            "Term": term,
            "Competition_rate": rng.uniform(3, 6, n),
            "onemonth": rng.uniform(1.0, 2.0, n),
            "Amount_Approved": amount,
            "mp": amount * monthly / (1 - (1 + monthly) ** -term.astype(float)),
            "apply": rng.integers(0, 2, n),
        }
    )


def test_cprm_columns():
    frame = offers()
    records = LoanRecords.from_cprm(frame)
    assert (records.n_records, records.dropped) == (400, 0)
    for row in (0, 17, 399):
        line = frame.iloc[row]
        rate = line["onemonth"] / 1200
        value = line["mp"] * sum((1 + rate) ** -t for t in range(1, int(line["Term"]) + 1))
        expected = (value - line["Amount_Approved"]) / 1000
        assert records.price[row] == pytest.approx(expected, rel=1e-10)
    np.testing.assert_array_equal(records.accepted, frame["apply"] == 1)
    columns = ["Primary_FICO", "Amount_Approved", "onemonth", "Competition_rate", "Term"]
    np.testing.assert_array_equal(records.covariates, frame[columns].to_numpy(dtype=float))
    assert records.source == "CPRM auto loans"


def test_cprm_rates_in_other_units_and_columns():
    frame = offers()
    monthly = frame.assign(prime=frame["onemonth"] / 1200).drop(columns="onemonth")
    records = LoanRecords.from_cprm(monthly, prime="prime", per_month=1.0)
    np.testing.assert_allclose(records.price, LoanRecords.from_cprm(frame).price)
    free = LoanRecords.from_cprm(frame.assign(onemonth=np.where(frame.index % 2, 0.0, 1.0)))
    line = frame.iloc[1]
    assert free.price[1] == pytest.approx(
        (line["mp"] * line["Term"] - line["Amount_Approved"]) / 1000
    )


def test_cprm_outliers_are_left_out():
    frame = offers().astype({"Amount_Approved": float, "Primary_FICO": float})
    frame.loc[0, "mp"] = np.nan
    frame.loc[1, "Primary_FICO"] = 900
    frame.loc[2, "mp"] = 1.0  # a negative price
    frame.loc[3, "mp"] = 10_000.0  # far too dear
    frame.loc[4, "Amount_Approved"] = 0.0
    records = LoanRecords.from_cprm(frame)
    assert (records.n_records, records.dropped) == (395, 5)
    np.testing.assert_allclose(records.price, LoanRecords.from_cprm(offers()).price[5:])


@pytest.mark.parametrize("column", ["mp", "Term", "Amount_Approved", "onemonth", "apply"])
def test_cprm_missing_column(column):
    with pytest.raises(InvalidParameterError) as caught:
        LoanRecords.from_cprm(offers().drop(columns=column))
    assert str(caught.value) == f"`frame` must have a column {column!r}; it has none"


def test_cprm_bad_values():
    frame = offers()
    with pytest.raises(InvalidParameterError, match="column 'apply' of `frame` must hold 0 and 1"):
        LoanRecords.from_cprm(frame.assign(apply=frame["apply"] + 1))
    with pytest.raises(InvalidParameterError, match="column 'Term' of `frame` must hold numbers"):
        LoanRecords.from_cprm(frame.assign(Term="sixty"))
    with pytest.raises(InvalidParameterError, match="only 0 of 400 rows are: is `per_month`"):
        LoanRecords.from_cprm(frame, per_month=1.0)


# --------------------------------------------------------------------------------- Karlan–Zinman


def clients():
    return pd.DataFrame(
        {
            "risk": pd.Categorical(["HIGH", "HIGH", "LOW", "HIGH", "HIGH", "HIGH", "HIGH"]),
            "wave": [1, 2, 1, 3, 2, 3, 3],
            "offer4": [7.0, 9.0, 3.0, 11.0, 8.0, 5.0, 6.0],
            "normrate_less": [1, 1, 1, 0, 1, 1, 1],
            "tookup": [0, 1, 1, 1, 0, 1, 1],
            "grossinterest": [0.0, 250.0, 100.0, 90.0, 0.0, 120.0, 50.0],
            "appscore": [20.0, 30.0, 25.0, 30.0, 28.0, 35.0, np.nan],
            "itcscore": [600, 0, 610, 620, 640, 650, 600],
            "itczero": [0, 1, 0, 0, 0, 0, 0],
            "lastamount": [1000.0, 500.0, 800.0, 700.0, 900.0, 300.0, 100.0],
            "dormancy": [3, 4, 5, 6, 7, 8, 9],
        }
    )


def test_karlan_zinman_columns():
    records = LoanRecords.from_karlan_zinman(clients())
    np.testing.assert_array_equal(records.price, [7.0, 9.0, 8.0, 5.0])
    np.testing.assert_array_equal(records.accepted, [False, True, False, True])
    np.testing.assert_allclose(records.profit, [np.nan, 2.5, np.nan, 1.2])
    by_name = dict(zip(records.names, records.covariates.T, strict=True))
    np.testing.assert_allclose(by_name["itcscore"], [600, 630, 640, 650])
    np.testing.assert_allclose(by_name["log lastamount"], np.log([1000, 500, 900, 300]))
    np.testing.assert_array_equal(by_name["wave 2"], [0, 1, 1, 0])
    np.testing.assert_array_equal(by_name["wave 3"], [0, 0, 0, 1])
    assert records.dropped == 1  # no score
    for column in ("risk", "offer4", "dormancy"):
        with pytest.raises(InvalidParameterError, match=f"must have a column '{column}'"):
            LoanRecords.from_karlan_zinman(clients().drop(columns=column))


def test_the_published_experiment():
    frame = karlan_zinman()
    records = LoanRecords.from_karlan_zinman(frame)
    rows = frame[(frame["risk"] == "HIGH") & (frame["normrate_less"] == 1)]
    assert records.n_records == len(rows) == 42_033
    assert records.dropped == 0
    assert records.accepted.mean() == pytest.approx(rows["tookup"].mean())
    taken = rows["tookup"] == 1
    assert np.nanmean(records.profit) == pytest.approx(rows["grossinterest"][taken].mean() / 100)


def test_a_market_fitted_to_the_published_experiment():
    records = LoanRecords.from_karlan_zinman(karlan_zinman())
    with pytest.raises(InvalidParameterError, match="`cuts` must leave at least 20 records"):
        LoanPricing.fit(records)  # its dearest offers are many
    cuts = np.quantile(records.price, [0.2, 0.4, 0.6, 0.8])
    market = LoanPricing.fit(records, cuts=cuts)
    summary = market.summary()
    assert market.theta[0] < 0 < market.beta[0]
    # the market pays what the experiment paid, class by class, within a fifth
    codes = np.searchsorted(cuts, records.price)
    reward = np.where(records.accepted, records.profit, 0.0)
    seen = [reward[codes == k].mean() for k in range(5)]
    np.testing.assert_allclose(summary.mean, seen, rtol=0.2)
    np.testing.assert_allclose(
        summary.acceptance, [records.accepted[codes == k].mean() for k in range(5)], rtol=0.1
    )
