"""`synthetic_loan_records`: a made-up book of auto-loan offers, as code."""

from __future__ import annotations

import numpy as np

from zib.cases.loan.market import PUBLISHED_RECORDS, price_quantile
from zib.cases.loan.records import LoanRecords
from zib.core.rng import Role, stream
from zib.core.validate import InvalidParameterError, integer, real
from zib.env.registry import Array

# Steps of the US prime rate: share of July 2002 to November 2004 gone when it changed, percent.
_PRIME_UNTIL = (0.15, 0.41, 0.83, 0.87, 0.92, 0.98, 1.0)
_PRIME_RATE = (4.75, 4.25, 4.00, 4.25, 4.50, 4.75, 5.00)
_TERMS, _TERM_LEVELS = (36.0, 48.0, 60.0, 66.0, 72.0), (0.12, 0.30, 0.75, 0.80)
# Effects on the log-odds of acceptance per standard deviation; the prime rate has none.
_EFFECTS = {"FICO": -0.35, "amount": -0.15, "competitor's rate": 0.30, "term": 0.20}


def synthetic_loan_records(
    n: int = PUBLISHED_RECORDS, *, seed: int = 0, slope: float = 0.35, acceptance: float = 0.22
) -> LoanRecords:
    """Return a made-up book of auto-loan offers that agrees with what is published about one.

    Parameters
    ----------
    n
        Number of offers (≥ 100); the paper's file has 208 085.
    seed
        Seed of everything random.
    slope
        How fast the log-odds of acceptance fall per $1000 of price.
    acceptance
        Share of offers accepted (expected share given prices and covariates).

    Notes
    -----
    Published, and met: the number of offers, the names of the covariates, the quantiles 1.54,
    3.639, 5.4164 and 8.5466 ($1000) of the price at .25, .75, .915 and .9875, and its range of
    0.0004 to 28.5725. The prices are n evenly spaced quantiles of one smooth law in random order,
    so these hold for the records themselves and not on average only.

    All else is our choice. Offers are spread evenly over July 2002 to November 2004.

    - FICO: normal, mean 715, standard deviation 52, cut to 580–850.
    - amount: log-normal, median $24 000, standard deviation .4 of the logarithm, within
      $5000–75 000; correlation .2 with FICO before cutting.
    - prime rate: the steps of the US prime rate over these months, 4 to 5 %.
    - competitor's rate: prime rate + 1.5 − .7·(FICO in standard deviations) + N(0, .5²) percent, at
      least 1.
    - term: 36, 48, 60, 66 or 72 months; large amounts run longer.
    - price: larger for large amounts, long terms, high rates elsewhere and low scores; these
      explain about 40 % of the variance of its normal score.
    - acceptance: logistic, falling in the price by `slope`. Per standard deviation the log-odds
      change by −.35 (FICO), −.15 (amount), .30 (competitor's rate) and .20 (term). The prime rate
      has no effect of its own.

    Examples
    --------
    >>> records = synthetic_loan_records(2000, seed=1)
    >>> records
    <LoanRecords of 2000 offers, 22.7 % accepted, 5 covariates: synthetic auto loans>
    >>> np.quantile(records.price, [0.25, 0.75]).round(2)
    array([1.54, 3.64])
    """
    n = integer("n", n, 100)
    slope = real("slope", slope, 0.0, 5.0)
    acceptance = real("acceptance", acceptance, 0.0, 1.0, closed="neither")
    rng = stream(integer("seed", seed, 0), Role.INSTANCE)
    z_fico = rng.standard_normal(n)
    z_amount = 0.2 * z_fico + np.sqrt(1 - 0.2**2) * rng.standard_normal(n)
    z_term = 0.5 * z_amount + np.sqrt(1 - 0.5**2) * rng.standard_normal(n)
    fico = np.clip(715.0 + 52.0 * z_fico, 580.0, 850.0)
    amount = np.clip(24_000.0 * np.exp(0.4 * z_amount), 5000.0, 75_000.0)
    prime = np.asarray(_PRIME_RATE)[np.searchsorted(_PRIME_UNTIL, rng.random(n))]
    elsewhere = np.maximum(prime + 1.5 - 0.7 * z_fico + 0.5 * rng.standard_normal(n), 1.0)
    term = np.asarray(_TERMS)[np.digitize(_normal_cdf(z_term), _TERM_LEVELS)]
    covariates = {
        "FICO": fico,
        "amount": amount,
        "prime rate": prime,
        "competitor's rate": elsewhere,
        "term": term,
    }
    scores = {name: (x - x.mean()) / x.std() for name, x in covariates.items()}
    pull = 0.45 * scores["amount"] + 0.2 * scores["term"] + 0.25 * scores["competitor's rate"]
    latent = pull - 0.1 * scores["FICO"] + 0.8 * rng.standard_normal(n)
    rank = np.argsort(np.argsort(latent))
    price = price_quantile((rank + 0.5) / n, published_range=True)
    predictor = -slope * price
    for name, effect in _EFFECTS.items():
        predictor += effect * scores[name]
    accepted = rng.random(n) < _logistic(predictor + _shift(predictor, acceptance))
    if accepted.all() or not accepted.any():
        raise InvalidParameterError(
            f"`acceptance` must leave offers of both outcomes among {n}; got {acceptance:g}"
        )
    return LoanRecords(
        price,
        accepted,
        np.stack(list(covariates.values()), axis=1),
        tuple(covariates),
        source="synthetic auto loans",
    )


def _normal_cdf(z: Array) -> Array:
    from scipy.special import ndtr

    return np.asarray(ndtr(z))


def _logistic(x: Array) -> Array:
    return np.asarray(1.0 / (1.0 + np.exp(-x)))


def _shift(predictor: Array, share: float) -> float:
    """Return the intercept at which this share accepts on average."""
    low, high = -40.0, 40.0
    for _ in range(60):
        middle = (low + high) / 2
        if _logistic(predictor + middle).mean() < share:
            low = middle
        else:
            high = middle
    return (low + high) / 2
