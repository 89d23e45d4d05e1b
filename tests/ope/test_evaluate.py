"""The whole of `evaluate`: propensities, invariances, grades, refusals, results."""

from __future__ import annotations

import json
import math

import matplotlib as mpl
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from tests.ope.helpers import ARMS, LOGGING, TARGET, sparse_log
from zib import InvalidParameterError, ope
from zib.logs import LoggedData
from zib.logs.ope.page import forest_panel
from zib.stats.sampling import folds_of

mpl.use("agg")
import matplotlib.pyplot as plt

MIX = {"mix": dict(zip(ARMS, TARGET, strict=True))}
EVERY = ("replay", "ips", "snips", "clipped", "dm", "dr", "sndr", "switch")


def numbers(found):
    return np.array([v[2:6] for v in found.values])


# ------------------------------------------------------------------------------------- invariances


@pytest.mark.parametrize("interval", ["corrected", "bootstrap"])
def test_a_cost_of_every_contact_shifts_values_and_nothing_else(rng, interval) -> None:
    log = sparse_log(rng, p=0.3)
    costly = LoggedData.from_arrays(
        np.array(ARMS)[log.arm], log.reward - 0.05, propensity=log.propensity, context=log.context,
        inflated=-0.05,
    )  # fmt: skip
    assert np.allclose(costly.reward, log.reward)
    assert np.array_equal(costly.reward == 0.0, log.reward == 0.0)
    assert np.allclose(costly.to_frame()["reward"], log.reward - 0.05)
    assert costly.subset([0, 1]).inflated == -0.05
    options = {"estimators": ("ips", "snips", "dr"), "interval": interval, "baseline": "logging"}
    one, other = ope.evaluate(log, MIX, **options), ope.evaluate(costly, MIX, **options)
    for a, b in zip(one.values, other.values, strict=True):
        assert (b.value, b.low, b.high) == pytest.approx(
            (a.value - 0.05, a.low - 0.05, a.high - 0.05)
        )
        assert b.grade == a.grade
    for c, d in zip(one.differences, other.differences, strict=True):
        assert d[3:7] == pytest.approx(c[3:7])
    assert "nothing happened: -0.05" in other.summary().replace("−", "-")


@pytest.mark.parametrize("scale", [1000.0, 1e98, -1e-80])
@pytest.mark.parametrize("interval", ["corrected", "asymptotic", "bootstrap"])
def test_scaled_rewards_scale_everything(rng, interval, scale) -> None:
    log = sparse_log(rng, p=0.3)
    twice = LoggedData.from_arrays(
        np.array(ARMS)[log.arm], scale * log.reward, propensity=log.propensity, context=log.context
    )
    options = {"estimators": EVERY, "interval": interval, "baseline": "logging"}
    one, other = ope.evaluate(log, MIX, **options), ope.evaluate(twice, MIX, **options)
    swap = slice(None) if scale > 0 else [0, 1, 3, 2]  # the mirror image of an interval
    wanted = numbers(one)[:, swap] * [scale, abs(scale), scale, scale]
    # quantiles of resampled logs are order statistics, which a mirror moves by one
    rough = interval == "bootstrap" and scale < 0
    np.testing.assert_allclose(numbers(other), wanted, rtol=0.2 if rough else 1e-6)
    assert [v.grade for v in one.values] == [v.grade for v in other.values]


def test_labels_of_arms_do_not_matter(rng) -> None:
    log = sparse_log(rng, p=0.3)
    names = np.array(["z", "m", "f"])  # sorted the other way round
    other = LoggedData.from_arrays(
        names[log.arm], log.reward, propensity=log.propensity, context=log.context
    )
    assert other.arms == ("f", "m", "z")
    policy = {"mix": dict(zip(names, TARGET, strict=True))}
    np.testing.assert_allclose(
        numbers(ope.evaluate(other, policy, estimators=EVERY)),
        numbers(ope.evaluate(log, MIX, estimators=EVERY)),
        rtol=1e-7,
    )


def test_units_of_the_context_do_not_matter(rng) -> None:
    log = sparse_log(rng)
    other = LoggedData.from_arrays(
        np.array(ARMS)[log.arm],
        log.reward,
        propensity=log.propensity,
        context=log.context * [1e-3, 1e4] + [5.0, -7.0],
    )
    found = [ope.evaluate(x, MIX, estimators=["dr", "dm"]) for x in (log, other)]
    np.testing.assert_allclose(numbers(found[0]), numbers(found[1]), rtol=1e-6)


def test_seeds_change_folds_only(rng) -> None:
    log = sparse_log(rng)
    one, other = (ope.evaluate(log, MIX, seed=s) for s in (0, 1))
    assert one.value("mix", "ips") == other.value("mix", "ips")
    shift = one.value("mix", "dr").value - other.value("mix", "dr").value
    assert 0 < abs(shift) < 0.5 * one.value("mix", "dr").error
    assert ope.evaluate(log, MIX, seed=1).to_dict() == other.to_dict()


def test_the_logging_policy_is_the_mean_reward(rng) -> None:
    log = sparse_log(rng)
    found = ope.evaluate(log, ["logging"], estimators=EVERY)
    np.testing.assert_allclose([v.value for v in found.values], log.reward.mean(), rtol=1e-12)
    assert found.diagnostics[0].effective_rows == log.n_rows


def test_rows_are_predicted_by_models_that_did_not_see_them(rng) -> None:
    log = sparse_log(rng, n=4000, p=0.3)
    seen = []

    class Spy:
        def fit(self, arm, context, reward, n_arms):
            self.rows = {tuple(x) for x in context}
            seen.append(len(self.rows))

        def predict(self, context):
            assert not {tuple(x) for x in context} & self.rows
            return np.zeros((len(context), 3))

    found = ope.evaluate(log, MIX, estimators=["ips", "dr"], model=Spy(), folds=4)
    assert len(seen) == 4
    assert sum(seen) == 3 * 4000
    # a model that says 0 leaves the inverse propensity estimate
    assert found.value("mix", "dr").value == pytest.approx(found.value("mix", "ips").value)


def test_a_sample_of_the_rows_gives_nearly_the_same_model(rng) -> None:
    log = sparse_log(rng, n=40_000)
    full, part = (
        ope.evaluate(log, MIX, estimators=["dm", "dr"], fit_rows=m) for m in (500_000, 5000)
    )
    # a sample moves the model's own prediction by its own error, and the unbiased one hardly
    for name, most in (("dm", 2.0), ("dr", 0.5)):
        difference = full.value("mix", name).value - part.value("mix", name).value
        assert abs(difference) < most * full.value("mix", "dr").error


# ------------------------------------------------------------------------------------ propensities


def test_ways_to_give_propensities(rng) -> None:
    n = 3000
    arm = np.searchsorted(LOGGING.cumsum(), rng.random(n)).clip(0, 2)
    reward = (rng.random(n) < 0.2) * rng.exponential(size=n)
    names = np.array(ARMS)[arm]
    logged = LoggedData.from_arrays(names, reward, propensity=LOGGING[arm])
    bare = LoggedData.from_arrays(names, reward)
    wanted = ope.evaluate(logged, MIX).values
    shares = dict(zip(ARMS, LOGGING, strict=True))
    function = lambda x: np.tile(LOGGING, (len(x), 1))  # noqa: E731
    for given in (LOGGING[arm], shares, function):
        assert ope.evaluate(bare, MIX, propensities=given).values == wanted
    assert ope.evaluate(bare.with_propensity(LOGGING[arm]), MIX).values == wanted
    with pytest.warns(UserWarning, match="only right if the context holds every reason"):
        found = ope.evaluate(bare, MIX, propensities="estimated", estimators=["ips"])
    share = np.bincount(arm) / n
    assert found.value("mix").value == pytest.approx(np.mean((TARGET / share)[arm] * reward))
    assert found.diagnostics[0].mean_weight == pytest.approx(1.0)


def test_estimated_propensities_are_a_cross_fitted_logistic_regression(rng) -> None:
    log = sparse_log(rng, n=20_000, propensity=False)
    with pytest.warns(UserWarning, match="estimated from the log"):
        found = ope.evaluate(log, MIX, propensities="estimated", estimators="ips").value("mix")
    x = log.context
    terms = np.column_stack([x, x**2, x[:, 0] * x[:, 1]])
    fold = folds_of(0, 0, log.n_rows, 2)
    b = np.empty(log.n_rows)
    for f in range(2):
        fit = LogisticRegression(C=np.inf, tol=1e-8, max_iter=1000)
        fit.fit(terms[fold != f], log.arm[fold != f])
        rows = np.flatnonzero(fold == f)
        b[rows] = fit.predict_proba(terms[rows])[np.arange(rows.size), log.arm[rows]]
    # ours has a slight ridge
    assert found.value == pytest.approx(np.mean(TARGET[log.arm] / b * log.reward), rel=2e-3)
    assert found.grade == "caution"
    assert "propensities are estimated" in found.reasons[-1]


def test_strata_of_numbers_and_of_words(rng) -> None:
    import pandas as pd

    frame = pd.DataFrame(
        {
            "arm": rng.choice(list(ARMS), 2000),
            "reward": rng.poisson(0.4, 2000).astype(float),
            "risk": rng.choice(["HIGH", "LOW", "MEDIUM"], 2000),
            "wave": rng.integers(1, 4, 2000),
        }
    )
    log = LoggedData.from_frame(frame, arm="arm", reward="reward", context=["risk", "wave"])
    cells = frame.groupby(["risk", "wave"])["arm"]
    share = frame.groupby(["risk", "wave", "arm"])["arm"].transform("size") / cells.transform(
        "size"
    )
    np.testing.assert_allclose(ope.propensities_by(log, ["risk", "wave"]).propensity, share)
    found = ope.evaluate(log, ["a"], propensities=ope.Strata(["risk", "wave"]))
    assert found.values == ope.evaluate(ope.propensities_by(log, ["risk", "wave"]), ["a"]).values
    with pytest.raises(InvalidParameterError, match="context columns of the log .*; got 'ris'"):
        ope.propensities_by(log, ["ris"])
    with pytest.raises(InvalidParameterError, match="must be in memory"):
        ope.propensities_by(object(), ["risk"])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("logged", "`log` has no propensities; give propensities=Strata"),
        (
            "guessed",
            "`propensities` must be one of 'logged', 'randomised', 'estimated'; got 'guessed'",
        ),
        ([0.5] * 10, "one entry per row, 5000; got 10"),
        ([0.0] * 5000, r"must lie in \(0, 1\]; got 0.0 at position 0"),
        ([-0.1] * 5000, r"got -0.1"),
        ({"a": 0.5, "b": 0.2, "z": 0.3}, "about arms of the log; got 'z'"),
        ({"a": 0.5, "b": 0.5}, "must give a share for every arm of the log, .* got none for 'c'"),
        ({"a": 0.5, "b": 0.2, "c": 0.0}, "must sum to 1 over the arms; they sum to 0.7"),
        ({"a": 0.5, "b": 0.5, "c": 0.0}, r"for the arm that was played; row \d+ has 0.0"),
        (lambda x: np.ones((len(x), 2)), r"`propensities` must return .*shape \(5000, 3\)"),
    ],
)
def test_bad_propensities(rng, given, message) -> None:
    log = sparse_log(rng, propensity=False)
    with pytest.raises(InvalidParameterError, match=message):
        ope.evaluate(log, MIX, propensities=given)


# ----------------------------------------------------------------------------- support and trust


def test_arms_the_log_never_shows(rng) -> None:
    arm = rng.choice(["a", "c"], 5000)
    reward = (rng.random(5000) < 0.2) * rng.exponential(size=5000)
    log = LoggedData.from_arrays(arm, reward, propensity=[0.5] * 5000, arms=ARMS)
    with pytest.raises(ope.SupportError, match=r"'mix' plays arms .*: 'b' \(20 %\); 20 % of its"):
        ope.evaluate(log, MIX)
    with (
        pytest.warns(UserWarning, match="never shows"),
        pytest.warns(UserWarning, match="do not use its value by ips, snips, dr"),
    ):
        found = ope.evaluate(log, MIX, on_missing_support="warn", interval="asymptotic")
    bound = found.diagnostics[0].missing_bound
    assert bound == pytest.approx((0.0, 0.2 * log.reward.max()))
    ips = found.value("mix", "ips")
    assert ips.low == pytest.approx(ips.value - 1.959964 * ips.error, rel=1e-6)
    assert ips.high == pytest.approx(ips.value + 1.959964 * ips.error + bound[1], rel=1e-6)
    snips = found.value("mix", "snips")
    assert snips.low == pytest.approx(snips.value - 1.959964 * snips.error - bound[1], rel=1e-6)
    assert all(v.grade == "do not use" for v in found.values)
    assert "20 % of its decisions cannot be observed" in ips.reasons[0]
    # arms nobody plays need not be in the log
    assert ope.evaluate(log, ["a"], estimators=["ips"]).diagnostics[0].missing == {}


def test_an_arm_missing_in_one_stratum(rng) -> None:
    n = 4000
    stratum, arm = rng.integers(2, size=n), rng.integers(2, size=n)
    arm[stratum == 1] = 0
    reward = (rng.random(n) < 0.3) * 1.0
    log = LoggedData.from_arrays(arm, reward, context=stratum[:, None], context_names=["s"])
    mass = np.mean(stratum == 1)
    with pytest.raises(ope.SupportError, match=r"policy '1' plays arms .*: 1 \(\d+"):
        ope.evaluate(log, [1], propensities=ope.Strata("s"))
    with (
        pytest.warns(UserWarning, match="never shows"),
        pytest.warns(UserWarning, match="do not use"),
    ):
        found = ope.evaluate(
            log, [1], propensities=ope.Strata("s"), estimators=["ips"], on_missing_support="warn"
        )
    assert found.diagnostics[0].missing == {1: pytest.approx(mass)}
    assert abs(found.diagnostics[0].mean_weight_z) < 1e-6  # judged against the mass observed


def test_wrong_propensities_are_noticed(rng) -> None:
    log = sparse_log(rng, p=0.3)
    with pytest.warns(UserWarning, match="the propensities are probably wrong"):
        found = ope.evaluate(log.with_propensity(0.8 * log.propensity), MIX)
    assert abs(found.diagnostics[0].mean_weight_z) > 4
    assert {v.grade for v in found.values} == {"do not use"}
    assert abs(ope.evaluate(log, MIX).diagnostics[0].mean_weight_z) < 4


def test_few_rewards_are_noticed(rng) -> None:
    log = sparse_log(rng, n=2000, p=0.004)
    with pytest.warns(UserWarning, match="effectively only .* rewards that are not zero"):
        found = ope.evaluate(log, MIX, estimators=["ips"])
    assert found.value("mix").grade == "do not use"
    many = ope.evaluate(sparse_log(rng, n=30_000, p=0.1), MIX, estimators=["ips", "dm"])
    assert many.value("mix", "ips")[6:] == ("good", ())
    assert many.value("mix", "dm").grade == "caution"
    assert math.isnan(many.value("mix", "dm").low)


def test_no_reward_at_all() -> None:
    log = LoggedData.from_arrays([0, 1] * 1000, [0.0] * 2000, propensity=[0.5] * 2000)
    with pytest.warns(UserWarning, match="no matching row has a reward"):
        found = ope.evaluate(log, [1], baseline="logging", estimators=EVERY)
    for value in (*found.values, *found.differences):
        assert value.value == 0.0
        assert math.isnan(value.low)
        assert value.grade == "do not use"
    # rule of three: −log(0.05)/1000
    assert "its chance is below 0.003 at level 0.95" in found.value("1", "ips").reasons[0]
    json.dumps(found.to_dict(), allow_nan=False)


def test_one_arm_without_a_reward(rng) -> None:
    reward = np.where(rng.random(4000) < 0.3, 2.0, 0.0)
    arm = rng.integers(2, size=4000)
    reward[arm == 1] = 0.0
    log = LoggedData.from_arrays(arm, reward, propensity=[0.5] * 4000)
    with pytest.warns(UserWarning, match="no matching row"):
        found = ope.evaluate(log, [0, 1], estimators=["ips", "dr"], baseline="0")
    assert math.isnan(found.value("1", "ips").high)
    assert math.isnan(found.value("1", "dr").high)
    assert found.value("0", "dr").grade == "good"


def test_a_policy_that_never_agrees_with_the_log(rng) -> None:
    n = 2000
    context = rng.integers(2, size=(n, 1)).astype(float)
    arm = context[:, 0].astype(int)
    with pytest.warns(UserWarning, match="`x0` follows from the arm"):
        log = LoggedData.from_arrays(arm, np.ones(n), propensity=np.full(n, 0.5), context=context)
    policy = {"other": lambda x: np.stack((x[:, 0], 1 - x[:, 0]), axis=1)}
    with pytest.warns(UserWarning, match="no matching row has a reward"):
        found = ope.evaluate(log, policy, estimators=["ips", "snips", "replay", "dr"])
    assert found.value("other", "ips").value == 0.0
    assert math.isnan(found.value("other", "snips").value)
    assert math.isnan(found.value("other", "replay").value)
    assert {v.grade for v in found.values} == {"do not use"}
    assert all(math.isnan(v.low) for v in found.values)
    assert found.diagnostics[0].effective_rows == 0.0
    assert "other" in found.summary()


def test_the_bootstrap_says_nothing_where_resampled_logs_have_no_reward() -> None:
    reward = np.zeros(1000)
    reward[:2] = 3.0
    log = LoggedData.from_arrays([0, 1] * 500, reward, propensity=[0.5] * 1000)
    with pytest.warns(UserWarning, match="effectively only 1 rewards"):
        found = ope.evaluate(log, [1], estimators=["ips"], interval="bootstrap").value("1")
    assert math.isnan(found.low)


def test_cutting_weights_says_what_it_costs(rng) -> None:
    n = 20_000
    arm = (rng.random(n) < 0.02).astype(int)
    reward = (rng.random(n) < 0.5) * 1.0
    log = LoggedData.from_arrays(arm, reward, propensity=np.where(arm == 1, 0.02, 0.98))
    with pytest.warns(UserWarning, match="too low"):
        found = ope.evaluate(log, [1], estimators=["ips", "clipped", "switch"], clip=10)
    clipped, ips = found.value("1", "clipped"), found.value("1", "ips")
    assert clipped.value == pytest.approx(0.2 * ips.value)
    assert "80 % of the weight lies above 10" in clipped.reasons[0]
    assert found.diagnostics[0].cut_share == pytest.approx(0.8)
    whole = ope.evaluate(log, [1], estimators=["ips", "clipped"], clip=60)
    assert whole.value("1", "clipped").value == pytest.approx(whole.value("1", "ips").value)


# ----------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"estimators": ["snip"]}, r"`estimators` must be among .*; got 'snip' \(did you mean"),
        ({"estimators": []}, "at least one"),
        ({"level": 1.0}, r"`level` must lie in \(0, 1\); got 1.0"),
        ({"interval": "exact"}, "`interval` must be one of 'corrected', 'asymptotic', 'bootstrap'"),
        ({"clip": 0.5}, r"`clip` must lie in \[1, inf\); got 0.5"),
        ({"folds": 1}, r"`folds` must lie in \[2, 100\]; got 1"),
        ({"fit_rows": 10}, "`fit_rows`"),
        ({"replicates": 20}, "`replicates`"),
        ({"on_missing_support": "ignore"}, "`on_missing_support` must be one of"),
        ({"seed": -1}, "`seed`"),
        ({"baseline": "best"}, r"`baseline` must be 'logging' or the name of a policy \('mix'\)"),
        ({"model": "forest"}, "`model` must be 'hurdle', 'one_part' or an object"),
    ],
)
def test_bad_options(rng, options, message) -> None:
    with pytest.raises(InvalidParameterError, match=message):
        ope.evaluate(sparse_log(rng, n=300), MIX, **options)


def test_bad_logs(rng) -> None:
    with pytest.raises(InvalidParameterError, match="`log` must be a zib.datasets.LoggedData"):
        ope.evaluate(np.zeros(3), MIX)
    log = sparse_log(rng, n=300)
    with pytest.raises(InvalidParameterError, match="at least 2 rows; got 1"):
        ope.evaluate(log.subset([0]), MIX)
    with pytest.raises(InvalidParameterError, match="at least 20 rows to fit a model in 2 folds"):
        ope.evaluate(log.subset(np.arange(15)), MIX)


def test_a_model_with_a_wrong_answer(rng) -> None:
    class Wrong:
        def fit(self, arm, context, reward, n_arms):
            pass

        def predict(self, context):
            return np.zeros((len(context), 2))

    with pytest.raises(InvalidParameterError, match="`model` must predict one finite number"):
        ope.evaluate(sparse_log(rng, n=300), MIX, model=Wrong())


# -------------------------------------------------------------------------------------- results


def test_results_as_text_frame_and_json(rng, capsys) -> None:
    log = sparse_log(rng, n=20_000)
    found = ope.evaluate(log, {**MIX, "b": "b"}, baseline="logging", progress=True)
    assert repr(found) == "<Evaluation: 3 policies, 3 estimators, 20000 rows>"
    text = found.summary()
    for word in ("mix", "snips", "minus logging:", "effective non-zero", "good"):
        assert word in text
    frame = found.to_frame()
    assert frame.shape == (9, 8)
    assert frame["value"].tolist() == [v.value for v in found.values]
    assert len(found.to_frame("differences")) == 6
    assert found.to_frame("diagnostics")["policy"].tolist() == ["mix", "b", "logging"]
    again = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert again["values"][0]["value"] == found.values[0].value
    assert again["settings"]["propensities"] == "logged"
    with pytest.raises(InvalidParameterError, match="`what` must be"):
        found.to_frame("plots")
    with pytest.raises(InvalidParameterError, match="among those evaluated; got 'x'"):
        found.value("x")
    with pytest.raises(InvalidParameterError, match="among those compared; got 'logging'"):
        found.difference("logging")


def test_forest_plot_shows_every_estimate(rng) -> None:
    log = sparse_log(rng, n=20_000)
    found = ope.evaluate(log, MIX, baseline="logging", estimators=["ips", "dm", "dr"])
    figure, ax = plt.subplots()
    try:
        forest_panel(ax, found)
        points = [x.get_xdata()[0] for x in ax.get_lines() if len(x.get_xdata()) == 1]
        assert sorted(points) == sorted(v.value for v in found.values)
        spans = [tuple(x.get_xdata()) for x in ax.get_lines() if len(x.get_xdata()) == 2]
        assert sorted(spans) == sorted(
            (v.low, v.high) for v in found.values if not math.isnan(v.low)
        )
        assert [t.get_text() for t in ax.get_yticklabels()] == ["mix", "logging"]
        ax.clear()
        forest_panel(ax, found, what="differences", estimators=("dr",), title="gain")
        assert ax.get_xlabel() == "mean reward minus that of logging"
        with pytest.raises(InvalidParameterError, match="`estimators` must be among"):
            forest_panel(ax, found, estimators=("snips",))
        with pytest.raises(InvalidParameterError, match="`what` must be"):
            forest_panel(ax, ope.evaluate(log, MIX), what="differences")
    finally:
        plt.close(figure)
