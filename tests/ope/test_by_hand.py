"""Estimates against numbers worked out by hand and against other people's software."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from scipy import stats

from tests.datasets.data import KARLAN_ZINMAN, data_file
from tests.ope.helpers import ARMS, TARGET, sparse_log
from zib import ope
from zib.logs import LoggedData
from zib.logs.ope.estimators import RowValues, estimate
from zib.stats import intervals

SIX = LoggedData.from_arrays(
    ["a", "a", "b", "b", "a", "b"],
    [0.0, 3.0, 0.0, 4.0, 0.0, 1.0],
    propensity=[0.5, 0.5, 0.25, 0.5, 0.8, 0.4],
)


@pytest.fixture
def quiet(recwarn):
    """Six rows deserve a warning; these tests are about numbers."""
    with pytest.warns(UserWarning, match="do not use"):
        yield


@pytest.mark.usefixtures("quiet")
def test_six_rows() -> None:
    # always b: weights 0, 0, 4, 2, 0, 2.5 and w·r = 0, 0, 0, 8, 0, 2.5
    found = ope.evaluate(
        SIX, {"b": ope.always("b")}, estimators=["ips", "snips", "clipped", "replay"], clip=2.25
    )
    assert found.value("b", "ips").value == pytest.approx(10.5 / 6)
    assert found.value("b", "snips").value == pytest.approx(10.5 / 8.5)
    assert found.value("b", "clipped").value == pytest.approx((2 * 4 + 2.25 * 1) / 6)
    scores = np.array([0, 0, 0, 8, 0, 2.5])
    assert found.value("b", "ips").error == pytest.approx(scores.std(ddof=1) / math.sqrt(6))
    weights = found.diagnostics[0]
    assert weights.effective_rows == pytest.approx(8.5**2 / (16 + 4 + 6.25))
    assert weights.effective_nonzero == pytest.approx(4.5**2 / (4 + 6.25))
    assert (weights.nonzero, weights.largest_weight, weights.matched_share) == (2, 4.0, 0.5)
    assert weights.largest_share == pytest.approx(4 / 8.5)
    assert weights.mean_weight == pytest.approx(8.5 / 6)
    w = np.array([0, 0, 4, 2, 0, 2.5])
    z = (w.mean() - 1) / (w.std(ddof=1) / math.sqrt(6))
    assert weights.mean_weight_z == pytest.approx(z)
    assert weights.cut_share == pytest.approx((1.75 + 0.25) / 8.5)


@pytest.mark.usefixtures("quiet")
def test_six_rows_of_a_mixture_and_of_the_log_itself() -> None:
    found = ope.evaluate(SIX, {"mix": {"a": 0.25, "b": 0.75}, "log": "logging"}, estimators="ips")
    by_hand = (0.5 * 3 + 1.5 * 4 + 1.875 * 1) / 6
    assert found.value("mix").value == pytest.approx(by_hand)
    assert found.value("log").value == pytest.approx(8 / 6)


def test_doubly_robust_scores_by_hand() -> None:
    rows = RowValues(
        weight=np.array([2.0, 0.0, 12.0]),
        reward=np.array([3.0, 1.0, 0.0]),
        predicted=np.array([1.0, 0.5, 0.25]),
        policy_predicted=np.array([0.8, 0.6, 0.4]),
    )
    assert estimate("dm", rows).value == pytest.approx(0.6)
    assert estimate("dr", rows).value == pytest.approx((0.8 + 2 * 2 + 0.6 + 0.4 - 12 * 0.25) / 3)
    assert estimate("switch", rows).value == pytest.approx((0.8 + 4 + 0.6 + 0.4) / 3)
    assert estimate("sndr", rows).value == pytest.approx(0.6 + (4 - 3) / 14)


def test_replay_on_a_uniform_log_is_the_mean_where_both_agree(rng) -> None:
    arm = rng.integers(3, size=4000)
    reward = np.where(rng.random(4000) < 0.2, rng.exponential(size=4000), 0.0)
    log = LoggedData.from_arrays(arm, reward, propensity=np.full(4000, 1 / 3))
    found = ope.evaluate(log, {"two": 2}, estimators=["replay"]).value("two")
    same = reward[arm == 2]
    assert found.value == pytest.approx(same.mean())
    # the number of matching rows is random, so the variance is that of a ratio
    assert found.error == pytest.approx(same.std() / math.sqrt(same.size), rel=1e-3)


def test_snips_is_weighted_least_squares_with_a_robust_error(rng) -> None:
    w, r = rng.exponential(size=500), rng.poisson(0.3, 500) * 2.0
    fit = sm.WLS(r, np.ones(500), weights=w).fit(cov_type="HC0")
    found = estimate("snips", RowValues(w, r))
    assert found.value == pytest.approx(fit.params[0], rel=1e-12)
    assert found.spread.error == pytest.approx(fit.bse[0] * math.sqrt(500 / 499), rel=1e-10)


def test_error_and_skewness_are_those_of_scipy(rng) -> None:
    x = np.where(rng.random(3000) < 0.02, rng.lognormal(size=3000), 0.0)
    found = estimate("ips", RowValues(np.ones(3000), x))
    assert found.spread.error == pytest.approx(stats.sem(x), rel=1e-12)
    assert found.spread.skewness == pytest.approx(stats.skew(x) / math.sqrt(3000), rel=1e-10)
    assert found.spread.freedom == 2999
    _, low, high = intervals.from_error(found.value, found.spread.error, level=0.9)
    wanted = stats.norm.interval(0.9, loc=x.mean(), scale=stats.sem(x))
    assert (low, high) == pytest.approx(wanted, rel=1e-12)


def test_differences_are_paired(rng) -> None:
    log = sparse_log(rng)
    shares = dict(zip(ARMS, TARGET, strict=True))
    near = dict(zip(ARMS, TARGET + np.array([0.01, 0.0, -0.01]), strict=True))
    found = ope.evaluate(log, {"one": shares, "two": near}, baseline="one", estimators="ips")
    w = [
        np.array([policy[log.arms[k]] for k in log.arm]) / log.propensity
        for policy in (near, shares)
    ]
    rows = (w[0] - w[1]) * log.reward
    difference = found.difference("two")
    assert difference.value == pytest.approx(rows.mean(), rel=1e-10)
    assert difference.error == pytest.approx(stats.sem(rows), rel=1e-9)
    assert difference.error < 0.05 * found.value("two").error


def test_paired_self_normalised_difference_against_the_influence_of_rows(rng) -> None:
    log = sparse_log(rng)
    found = ope.evaluate(log, ["b", "c"], baseline="b", estimators=["snips"])
    influence = []
    for code in (2, 1):
        w = (log.arm == code) / log.propensity
        theta = (w * log.reward).sum() / w.sum()
        influence.append(w * (log.reward - theta) / w.mean())
    difference = found.difference("c")
    assert difference.error == pytest.approx(stats.sem(influence[0] - influence[1]), rel=1e-9)


def test_loan_offers_by_risk_and_wave_equal_a_direct_computation() -> None:
    frame = pd.read_stata(data_file(KARLAN_ZINMAN), convert_categoricals=False)
    frame = frame[["offer4", "risk", "wave", "grossinterest"]].dropna().reset_index(drop=True)
    edges = [0, 6, 8, 10, np.inf]
    frame["band"] = pd.cut(frame["offer4"], edges, labels=["r1", "r2", "r3", "r4"]).astype(str)
    frame["risk"] = frame["risk"].astype(str)
    log = LoggedData.from_frame(frame, arm="band", reward="grossinterest", context=["risk", "wave"])
    strata = frame.groupby(["risk", "wave", "band"]).size()
    share = strata / strata.groupby(level=["risk", "wave"]).transform("sum")
    keys = pd.MultiIndex.from_frame(frame[["risk", "wave", "band"]])
    b = share.reindex(keys).to_numpy()
    np.testing.assert_allclose(ope.propensities_by(log, ["risk", "wave"]).propensity, b, rtol=1e-12)
    reached = strata.unstack(fill_value=0)["r2"] > 0
    size = frame.groupby(["risk", "wave"]).size()
    missing = size[~reached].sum() / size.sum()
    direct = float(((frame["band"] == "r2") / b * frame["grossinterest"]).mean())
    options = {"propensities": ope.Strata(["risk", "wave"]), "estimators": ["ips", "snips", "dr"]}
    if missing > 0:
        with (
            pytest.warns(UserWarning, match="never shows"),
            pytest.warns(UserWarning, match="do not use"),
        ):
            found = ope.evaluate(log, {"r2": "r2"}, on_missing_support="warn", **options)
        with pytest.raises(ope.SupportError, match=r"policy 'r2' .* 'r2'"):
            ope.evaluate(log, {"r2": "r2"}, **options)
    else:
        found = ope.evaluate(log, {"r2": "r2"}, **options)
    assert found.value("r2", "ips").value == pytest.approx(direct, rel=1e-10)
    assert found.diagnostics[0].missing_mass == pytest.approx(missing, abs=1e-12)
    # shares of the strata make the mean weight exact
    assert found.diagnostics[0].mean_weight == pytest.approx(1 - missing, rel=1e-12)
